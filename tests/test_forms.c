/* Every form, chunk, instruction set and state layout against the float64 oracle, by promise 1. */
#include "oracle.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const la_variant variants[] = {LA_RETNET, LA_DELTANET, LA_GATED_DELTANET};
static const int64_t lengths[] = {0,  1,  2,  3,  15, 16, 17, 31, 32,
                                  33, 34, 63, 64, 65, 67, 130};

enum {
    VARIANTS = sizeof variants / sizeof variants[0],
    LENGTHS = sizeof lengths / sizeof lengths[0]
};

/* RetNet needs a gate, DeltaNet is the rule without one. */
static Gate usual_gate(la_variant variant) {
    return variant == LA_RETNET ? GATE_HEAD : variant == LA_DELTANET ? GATE_NONE : GATE_MILD;
}

static void both_layouts(Spec spec, const char *note) {
    spec.layout = LA_KV;
    problem_all_ways(&spec, note);
    spec.layout = LA_VK;
    problem_all_ways(&spec, note);
}

/* RetNet with one gate per head, and Gated DeltaNet with gates and strengths per token. */
static void both_rules(Spec spec, const char *note) {
    spec.variant = LA_RETNET;
    spec.gate = GATE_HEAD;
    spec.beta = BETA_NONE;
    both_layouts(spec, note);
    spec.variant = LA_GATED_DELTANET;
    spec.gate = GATE_MILD;
    spec.beta = BETA_TOKEN;
    both_layouts(spec, note);
}

TEST(forms_lengths) {
    int i, n;
    for (i = 0; i < VARIANTS; i++) {
        for (n = 0; n < LENGTHS; n++) {
            Spec spec = {.variant = variants[i], .T = lengths[n], .H = 2, .dk = 7, .dv = 13};
            spec.gate = usual_gate(variants[i]);
            spec.beta = BETA_TOKEN;
            both_layouts(spec, "lengths");
        }
    }
}

/* A state of one number may cancel to far below its terms, which no float32 sum survives to promise
   1, so 1 x 1 is left to the exact data. */
TEST(forms_dimensions) {
    static const int64_t dims[][2] = {{1, 17},  {1, 7},   {7, 1},   {2, 3},   {7, 13},  {8, 16},
                                      {16, 8},  {17, 19}, {33, 47}, {3, 129}, {129, 3}, {31, 64}};
    size_t i;
    for (i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        Spec spec = {.T = 35, .dk = dims[i][0], .dv = dims[i][1]};
        both_rules(spec, "dimensions");
        spec.T = 2;
        both_rules(spec, "dimensions");
    }
}

TEST(forms_usual_dimensions) {
    static const int64_t cases[][3] = {{67, 64, 64}, {33, 128, 96}, {130, 32, 64}, {18, 128, 128}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Spec spec = {.T = cases[i][0], .dk = cases[i][1], .dv = cases[i][2]};
        both_rules(spec, "usual dimensions");
    }
}

/* H states, Hq query heads and Hk key heads, in both maps. */
TEST(forms_heads) {
    static const int64_t heads[][3] = {{4, 4, 2}, {4, 2, 1}, {4, 1, 4}, {6, 3, 2}, {6, 2, 3},
                                       {2, 4, 2}, {3, 6, 1}, {2, 6, 1}, {1, 5, 1}, {5, 5, 5}};
    size_t i;
    for (i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        Spec spec = {.B = 2, .T = 19, .dk = 7, .dv = 13};
        spec.H = heads[i][0];
        spec.Hq = heads[i][1];
        spec.Hk = heads[i][2];
        spec.head_map = LA_GROUPED;
        both_rules(spec, "heads grouped");
        spec.head_map = LA_TILED;
        both_rules(spec, "heads tiled");
    }
}

TEST(forms_batches) {
    Spec spec = {.B = 3, .T = 34, .H = 2, .dk = 17, .dv = 19};
    both_rules(spec, "batches");
    spec.B = 7;
    spec.T = 1;
    both_rules(spec, "batches of one token");
}

TEST(forms_gates) {
    static const Gate gates[] = {GATE_HEAD,  GATE_MILD, GATE_STRONG, GATE_MIXED,
                                 GATE_EDGES, GATE_SLOW, GATE_ZERO};
    size_t g;
    int i;
    for (g = 0; g < sizeof gates / sizeof gates[0]; g++) {
        for (i = 0; i < VARIANTS; i++) {
            Spec spec = {.variant = variants[i], .B = 2, .T = 67, .H = 5, .dk = 7, .dv = 13};
            spec.gate = gates[g];
            spec.beta = i == 0 ? BETA_NONE : BETA_TOKEN;
            both_layouts(spec, "gates");
            spec.B = spec.H = 1;
            spec.dk = 33;
            spec.dv = 47;
            both_layouts(spec, "gates, wide");
            spec.T = 130;
            spec.states = STATES_OUT;
            both_layouts(spec, "gates, without state");
        }
    }
}

/* The same gate at every token: each of these is a corner of some range of exponents. */
TEST(forms_constant_gates) {
    static const float values[] = {-INFINITY, -1000, -104, -88, -30, -0.6931472f,
                                   -0.5f,     -0.49f, -1e-3f, -1e-7f, -1e-30f, -0.0f};
    size_t g;
    for (g = 0; g < sizeof values / sizeof values[0]; g++) {
        Spec spec = {.T = 35, .dk = 7, .dv = 13, .gate = GATE_FILLED};
        spec.gate_value = values[g];
        spec.variant = LA_RETNET;
        both_layouts(spec, "constant gates");
        spec.variant = LA_GATED_DELTANET;
        spec.beta = BETA_TOKEN;
        both_layouts(spec, "constant gates");
    }
}

TEST(forms_slow_gates) {
    int i;
    for (i = 0; i < VARIANTS; i++) {
        Spec spec = {.variant = variants[i], .T = 700, .dk = 5, .dv = 7, .gate = GATE_SLOW};
        both_layouts(spec, "slow");
        spec.gate = GATE_FILLED;
        spec.gate_value = -3e-5f;
        both_layouts(spec, "nearly slow");
    }
}

/* A gate whose exp lies half way between two floats, and a state that nothing renews: a float32
   alpha is off by 3e-8 in the same direction at each of 3000 steps: 9e-5, and 5.5e-5 is allowed. */
TEST(forms_gates_do_not_drift) {
    int i;
    for (i = 0; i < VARIANTS; i++) {
        Spec spec = {.variant = variants[i], .T = 3000, .dk = 3, .dv = 5, .zero_keys = 1};
        spec.gate = GATE_FILLED;
        spec.gate_value = (float)log1p(-168.5 / 16777216);
        both_layouts(spec, "drift");
    }
}

TEST(forms_beta) {
    static const Beta betas[] = {BETA_NONE, BETA_TOKEN, BETA_CHANNEL};
    size_t b;
    int i;
    for (b = 0; b < 3; b++) {
        for (i = 0; i < VARIANTS; i++) {
            Spec spec = {.variant = variants[i], .B = 2, .T = 65, .H = 3, .dk = 17, .dv = 19};
            spec.gate = usual_gate(variants[i]);
            spec.beta = betas[b];
            both_layouts(spec, "beta");
            spec.T = 4;
            both_layouts(spec, "beta, few tokens");
        }
    }
}

TEST(forms_scale) {
    static const float scales[] = {0.37796447f, -2.5f, 1e-8f, 1e8f};
    size_t i;
    for (i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        Spec spec = {.T = 34, .H = 2, .dk = 7, .dv = 13};
        spec.scale = scales[i];
        both_rules(spec, "scale");
    }
}

TEST(forms_l2) {
    int mode;
    for (mode = LA_L2_SUM; mode <= LA_L2_MAX; mode++) {
        Spec spec = {.B = 2, .T = 35, .H = 4, .Hq = 2, .Hk = 2, .dk = 13, .dv = 7};
        spec.l2_mode = mode;
        spec.scale = 0.25f;
        both_rules(spec, "l2");
        spec.T = 1;
        both_rules(spec, "l2, one token");
        spec.T = 66;
        spec.dk = 64;
        spec.H = spec.Hq = spec.Hk = 1;
        both_rules(spec, "l2, wide");
    }
}

TEST(forms_states) {
    static const States states[] = {STATES_BOTH, STATES_SAME, STATES_IN, STATES_OUT, STATES_NONE};
    size_t i;
    for (i = 0; i < 5; i++) {
        Spec spec = {.B = 2, .T = 33, .H = 3, .dk = 17, .dv = 19};
        spec.states = states[i];
        both_rules(spec, "states");
        spec.T = 1;
        both_rules(spec, "states, one token");
    }
}

TEST(forms_strides) {
    int strides, shift;
    for (strides = STRIDES_BTHD; strides <= STRIDES_BROADCAST; strides++) {
        for (shift = 0; shift < 2; shift++) {
            Spec spec = {.B = 2, .T = 34, .H = 4, .Hq = 2, .Hk = 2, .dk = 17, .dv = 19};
            spec.strides = (Strides)strides;
            spec.shift = shift;
            both_rules(spec, "strides");
            spec.Hq = 8;
            spec.T = 5;
            both_rules(spec, "strides");
            spec.Hk = 4;
            spec.T = 1;
            both_rules(spec, "strides, one token");
        }
    }
}

TEST(forms_strides_of_beta_per_channel) {
    int strides;
    for (strides = STRIDES_BTHD; strides <= STRIDES_BROADCAST; strides++) {
        Spec spec = {.variant = LA_GATED_DELTANET, .B = 2, .T = 18, .H = 3, .dk = 7, .dv = 13};
        spec.gate = GATE_STRONG;
        spec.beta = BETA_CHANNEL;
        spec.strides = (Strides)strides;
        both_layouts(spec, "strides of beta per channel");
    }
}

/* ---------------------------------------------------------------- the deep range

   exp(g) is no float32 any more, but the state is so large that exp(g) S is an ordinary number. */

static void deep(Spec spec, int64_t first, int64_t second, float g, float v_size) {
    Problem *problem;
    Way way;
    int i;
    spec.gate = GATE_ZERO;
    spec.beta = spec.variant == LA_RETNET ? BETA_NONE : BETA_TOKEN;
    problem = problem_new(&spec);
    if (problem == NULL) {
        return;
    }
    problem->note = "deep";
    problem->spec.gate_value = g;
    out_row(&problem->log_decay, 0, first, 0)[0] = g;
    out_row(&problem->log_decay, 0, second, 0)[0] = g;
    if (problem->beta.data != NULL) {
        out_row(&problem->beta, 0, 0, 0)[0] = 1;
    }
    for (i = 0; i < (int)spec.dv; i++) {
        out_row(&problem->v, 0, 0, 0)[i] *= v_size;
    }
    problem_oracle(problem);
    for (i = 0; way_number(i, &way); i++) {
        if (problem_run(problem, &way)) {
            problem_check(problem);
        }
    }
    problem_free(problem);
}

static void deep_everywhere(la_variant variant, int layout) {
    static const float single[] = {-87, -87.5f, -88.8f, -95, -103, -104, -120, -128};
    Spec spec = {.T = 5, .dk = 7, .dv = 13, .zero_keys = 1, .state_size = 1e20f};
    int64_t t;
    size_t g;
    spec.variant = variant;
    spec.layout = layout;
    for (g = 0; g < sizeof single / sizeof single[0]; g++) {
        for (t = 0; t < 4; t++) {
            deep(spec, t, t, single[g], 1);
        }
    }
    for (t = 0; t < 4; t++) {
        deep(spec, t, t + 1, -60, 1);
        deep(spec, 0, t, -55, 1);
    }
    spec.state_size = 1e29f;
    deep(spec, 0, 0, -148, 1);
    deep(spec, 0, 1, -75, 1);
    deep(spec, 1, 4, -75, 1);
}

TEST(forms_deep_gates_additive) {
    deep_everywhere(LA_RETNET, LA_KV);
    deep_everywhere(LA_RETNET, LA_VK);
}

TEST(forms_deep_gates_delta) {
    deep_everywhere(LA_GATED_DELTANET, LA_KV);
    deep_everywhere(LA_GATED_DELTANET, LA_VK);
}

/* What is decayed was written within the call, by a value of 1e20 at token 0. */
TEST(forms_deep_gates_written) {
    int i;
    for (i = 0; i < VARIANTS; i++) {
        Spec spec = {.variant = variants[i], .T = 6, .dk = 7, .dv = 13, .zero_keys = 2};
        int64_t t;
        for (spec.layout = LA_KV; spec.layout <= LA_VK; spec.layout++) {
            for (t = 1; t < 5; t++) {
                deep(spec, t, t, -100, 1e20f);
                deep(spec, t, t + 1, -60, 1e20f);
            }
        }
    }
}

/* No gate is deep, but a chunk of them is. */
TEST(forms_deep_chunks) {
    static const int64_t tokens[] = {12, 15, 16, 17, 33, 64};
    size_t n;
    int i;
    for (n = 0; n < sizeof tokens / sizeof tokens[0]; n++) {
        for (i = 0; i < VARIANTS; i++) {
            Spec spec = {.variant = variants[i], .T = tokens[n], .dk = 7, .dv = 13};
            spec.gate = GATE_FILLED;
            spec.gate_value = -120 / (float)tokens[n];
            spec.zero_keys = 1;
            spec.state_size = 1e20f;
            both_layouts(spec, "deep chunk");
        }
    }
}

/* ---------------------------------------------------------------- exact data */

/* Nothing is rounded anywhere, in whatever order it is computed. */
static void exact(Spec spec) {
    int i;
    spec.exact = 1;
    spec.beta = BETA_TOKEN;
    for (i = 0; i < VARIANTS; i++) {
        spec.variant = variants[i];
        spec.gate = GATE_HALVES;
        both_layouts(spec, "exact halves");
        spec.gate = variants[i] == LA_DELTANET ? GATE_NONE : GATE_ZERO;
        both_layouts(spec, "exact without decay");
    }
}

TEST(forms_exact_lengths) {
    int n;
    for (n = 0; n < LENGTHS; n++) {
        Spec spec = {.T = lengths[n], .H = 2, .dk = 7, .dv = 13};
        exact(spec);
    }
}

TEST(forms_exact_dimensions) {
    static const int64_t cases[][3] = {{35, 1, 1},   {35, 17, 19}, {67, 33, 47},
                                       {34, 64, 64}, {17, 128, 96}, {35, 3, 129}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Spec spec = {.T = cases[i][0], .dk = cases[i][1], .dv = cases[i][2]};
        spec.scale = 0.5f;
        exact(spec);
    }
}

TEST(forms_exact_settings) {
    Spec spec = {.B = 2, .T = 35, .H = 4, .Hq = 2, .Hk = 2, .dk = 7, .dv = 13, .exact = 1};
    int strides;
    spec.beta = BETA_CHANNEL;
    for (strides = STRIDES_BTHD; strides <= STRIDES_BROADCAST; strides++) {
        spec.strides = (Strides)strides;
        spec.head_map = strides % 2;
        spec.states = (States)(strides % 5);
        spec.variant = LA_RETNET;
        spec.gate = GATE_HEAD;
        both_layouts(spec, "exact settings");
        spec.variant = LA_GATED_DELTANET;
        spec.gate = GATE_HALVES;
        both_layouts(spec, "exact settings");
        spec.Hq = spec.Hq == 2 ? 8 : 2;
    }
}

/* ---------------------------------------------------------------- calls that carry the state */

typedef struct Cut {
    int count;
    int64_t lengths[8];
} Cut;

static const Cut cuts[] = {{4, {1, 2, 30, 34}}, {3, {33, 1, 33}}, {3, {0, 67, 0}},
                           {5, {16, 16, 16, 16, 3}}, {2, {66, 1}}, {6, {5, 7, 0, 11, 13, 31}}};

enum { CUTS = sizeof cuts / sizeof cuts[0] };

/* Bitwise: in the recurrent form a sequence is the same however it is cut. */
static void check_cut(Problem *problem, const Way *way, const Cut *cut) {
    size_t out_count, state_count;
    float *out, *state, *cut_out, *cut_state;
    if (!problem_run(problem, way)) {
        return;
    }
    out = problem_copy_out(problem, &out_count);
    state = problem_copy_state(problem, &state_count);
    if (problem_run_split(problem, way, cut->lengths, cut->count)) {
        problem_check(problem);
        cut_out = problem_copy_out(problem, &out_count);
        cut_state = problem_copy_state(problem, &state_count);
        if (way->form == LA_RECURRENT) {
            check_same(problem_text(problem), cut_out, out, out_count);
            check_same(problem_text(problem), cut_state, state, state_count);
        }
        free(cut_out);
        free(cut_state);
    }
    free(out);
    free(state);
}

static void all_cuts(Spec spec) {
    Problem *problem;
    Way way;
    int i, n;
    spec.T = 67;
    spec.states = STATES_SAME;
    problem = problem_new(&spec);
    if (problem == NULL) {
        return;
    }
    problem->note = "cuts";
    for (i = 0; way_number(i, &way); i++) {
        for (n = 0; n < CUTS; n++) {
            check_cut(problem, &way, &cuts[n]);
        }
    }
    problem_free(problem);
}

TEST(forms_calls_that_carry_the_state) {
    static const Gate gates[] = {GATE_HEAD, GATE_MILD, GATE_STRONG, GATE_MIXED, GATE_SLOW};
    size_t g;
    int i;
    for (g = 0; g < sizeof gates / sizeof gates[0]; g++) {
        for (i = 0; i < VARIANTS; i++) {
            Spec spec = {.variant = variants[i], .H = 2, .dk = 17, .dv = 19, .gate = gates[g]};
            spec.beta = i == 0 ? BETA_NONE : i == 1 ? BETA_CHANNEL : BETA_TOKEN;
            spec.layout = LA_KV;
            all_cuts(spec);
            spec.layout = LA_VK;
            spec.l2_mode = LA_L2_SUM;
            all_cuts(spec);
        }
    }
}

/* One token at a time, as in decoding, is the whole sequence in one recurrent call. */
static void decode(Spec spec) {
    static const int64_t ones[33] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    int n;
    spec.T = 33;
    for (spec.layout = LA_KV; spec.layout <= LA_VK; spec.layout++) {
        Problem *problem = problem_new(&spec);
        Way way = {.form = LA_RECURRENT, .threads = 1};
        for (n = 0; problem != NULL && isa_number(n, &way.isa); n++) {
            size_t count;
            float *whole, *steps;
            problem->note = "decoding";
            problem_run(problem, &way);
            whole = problem_copy_out(problem, &count);
            problem_run_split(problem, &way, ones, 33);
            problem_check(problem);
            steps = problem_copy_out(problem, &count);
            check_same(problem_text(problem), steps, whole, count);
            free(whole);
            free(steps);
        }
        if (problem != NULL) {
            problem_free(problem);
        }
    }
}

TEST(forms_decoding_is_bitwise_the_recurrent_form) {
    int i;
    for (i = 0; i < 2 * VARIANTS; i++) {
        Spec spec = {.B = 2, .H = 2, .Hq = 4, .dk = 33, .dv = 47, .beta = BETA_TOKEN};
        spec.variant = variants[i / 2];
        spec.gate = i % 2 ? GATE_STRONG : usual_gate(spec.variant);
        spec.states = STATES_SAME;
        decode(spec);
    }
}

/* ---------------------------------------------------------------- all eight variants

   What a variant has of its own, for the sweeps below; they choose sizes, gates and states. */

typedef struct Kind {
    const char *name;
    Spec spec;
    int root_scale; /* 1: scale = dk^-1/2                          */
    int by_channel; /* 1: decay may be per channel                 */
    int additive;   /* 1: there is a bidirectional form            */
} Kind;

static const Kind kinds[] = {
    {"elu", {.variant = LA_ELU}, 0, 1, 1},
    {"elu, eps added", {.variant = LA_ELU, .eps = 0.25f, .beta = BETA_TOKEN}, 1, 1, 1},
    {"elu, eps as a bound", {.variant = LA_ELU, .eps = 9, .eps_mode = LA_EPS_MAX}, 0, 1, 1},
    {"favor", {.variant = LA_FAVOR}, 0, 0, 1},
    {"favor, feature eps", {.variant = LA_FAVOR, .feature_eps = 1e-4f, .eps = 1e-3f}, 1, 0, 1},
    {"favor, eps as a bound",
     {.variant = LA_FAVOR, .head_projections = 1, .eps = 2, .eps_mode = LA_EPS_MAX}, 0, 0, 1},
    {"favor, hyperbolic",
     {.variant = LA_FAVOR, .favor_kernel = LA_FAVOR_HYPERBOLIC, .head_projections = 1}, 1, 0, 1},
    {"favor, hyperbolic, feature eps",
     {.variant = LA_FAVOR, .favor_kernel = LA_FAVOR_HYPERBOLIC, .feature_eps = 1e-4f,
      .beta = BETA_TOKEN}, 0, 0, 1},
    {"favor, relu", {.variant = LA_FAVOR, .favor_kernel = LA_FAVOR_RELU}, 1, 0, 1},
    {"favor, relu, feature eps",
     {.variant = LA_FAVOR, .favor_kernel = LA_FAVOR_RELU, .feature_eps = 1e-3f,
      .head_projections = 1, .beta = BETA_CHANNEL}, 0, 0, 1},
    {"cosformer", {.variant = LA_COSFORMER}, 0, 0, 1},
    {"cosformer, positions",
     {.variant = LA_COSFORMER, .position = 5, .eps = 1e-6f, .eps_mode = LA_EPS_MAX}, 1, 0, 1},
    {"lightning", {.variant = LA_LIGHTNING, .gate = GATE_HEAD}, 0, 1, 0},
    {"gla", {.variant = LA_GLA, .gate = GATE_MILD, .gate_channel = 1}, 1, 1, 0},
    {"gla, beta", {.variant = LA_GLA, .gate = GATE_MILD, .gate_channel = 1, .beta = BETA_TOKEN},
     0, 1, 0},
    {"normalised gla", {.variant = LA_GLA, .normalised = 1, .positive = 1, .gate = GATE_MILD,
                        .gate_channel = 1}, 0, 1, 1},
    {"kda", {.variant = LA_KDA, .gate = GATE_MILD, .gate_channel = 1, .beta = BETA_TOKEN}, 1, 1, 0},
    {"dpfp", {.variant = LA_DPFP, .beta = BETA_TOKEN}, 0, 0, 0},
    {"dpfp, nu 3", {.variant = LA_DPFP, .nu = 3, .gate = GATE_MILD}, 0, 0, 0},
    {"based", {.variant = LA_BASED}, 1, 0, 1},
    {"based, not normalised", {.variant = LA_BASED, .normalised = -1, .gate = GATE_MILD}, 1, 0, 0},
    {"based, eps", {.variant = LA_BASED, .eps = 1e-6f, .beta = BETA_TOKEN}, 1, 0, 1},
    {"hedgehog", {.variant = LA_HEDGEHOG, .feature_eps = 1e-3f, .head_projections = 1}, 0, 0, 1},
    {"hedgehog, joint, bias",
     {.variant = LA_HEDGEHOG, .hedgehog_kernel = LA_HEDGEHOG_JOINT, .projection_bias = 1}, 1, 0, 1},
    {"hedgehog, exp, queries' own weights",
     {.variant = LA_HEDGEHOG, .hedgehog_kernel = LA_HEDGEHOG_EXP, .query_projection = 1,
      .head_projections = 1, .projection_bias = 1, .eps = 1e-3f}, 0, 0, 1},
    {"rff", {.variant = LA_RFF}, 1, 0, 1},
    {"rff, bias", {.variant = LA_RFF, .projection_bias = 1, .head_projections = 1}, 1, 0, 1},
    {"mapped", {.variant = LA_MAPPED, .positive = 1}, 0, 1, 1},
    {"cosformer, delta", {.variant = LA_COSFORMER, .delta = 1, .beta = BETA_TOKEN}, 0, 0, 0},
    {"rff, delta", {.variant = LA_RFF, .delta = 1, .beta = BETA_CHANNEL}, 1, 0, 0},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* The sizes and settings of `spec`, what is the kind's own of the kind. */
static Spec kind_spec(int i, Spec spec) {
    Spec own = kinds[i].spec;
    own.B = spec.B;
    own.T = spec.T;
    own.keys = spec.keys;
    own.H = spec.H;
    own.Hq = spec.Hq;
    own.Hk = spec.Hk;
    own.dk = spec.dk;
    own.dv = spec.dv;
    own.head_map = spec.head_map;
    own.states = spec.states;
    own.strides = spec.strides;
    own.shift = spec.shift;
    own.ragged = spec.ragged;
    own.bidirectional = spec.bidirectional;
    own.l2_mode = spec.l2_mode;
    own.scale = kinds[i].root_scale ? (float)(1 / sqrt((double)spec.dk)) : 0;
    return own;
}

static void every_kind(Spec spec) {
    int i;
    for (i = 0; i < KINDS; i++) {
        both_layouts(kind_spec(i, spec), kinds[i].name);
    }
}

TEST(variants_lengths) {
    int n;
    for (n = 0; n < LENGTHS; n++) {
        Spec spec = {.T = lengths[n], .H = 2, .dk = 7, .dv = 13};
        every_kind(spec);
    }
}

TEST(variants_dimensions) {
    static const int64_t dims[][2] = {{2, 1},   {2, 3},   {5, 17}, {8, 16}, {16, 8},
                                      {17, 19}, {33, 47}, {3, 129}, {31, 64}};
    size_t i;
    for (i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        Spec spec = {.T = 35, .dk = dims[i][0], .dv = dims[i][1]};
        every_kind(spec);
        spec.T = 2;
        every_kind(spec);
    }
}

/* Numbers of features on both sides of the widths of vectors, tiles and panels. */
TEST(variants_features) {
    static const int64_t features[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 95, 130};
    size_t n;
    int i;
    for (n = 0; n < sizeof features / sizeof features[0]; n++) {
        for (i = 0; i < KINDS; i++) {
            Spec spec = {.T = 19, .dk = 9, .dv = 18};
            const la_variant variant = kinds[i].spec.variant;
            int wide = kinds[i].spec.favor_kernel == LA_FAVOR_RELU || variant == LA_RFF;
            if ((variant == LA_FAVOR || variant == LA_HEDGEHOG || variant == LA_RFF) &&
                (!wide || features[n] > 30)) { /* so many that no kernel is next to 0 */
                spec = kind_spec(i, spec);
                spec.features = features[n];
                both_layouts(spec, kinds[i].name);
            }
        }
    }
}

TEST(variants_usual_dimensions) {
    static const int64_t cases[][3] = {{35, 64, 64}, {18, 128, 128}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Spec spec = {.T = cases[i][0], .dk = cases[i][1], .dv = cases[i][2]};
        every_kind(spec);
    }
}

TEST(variants_heads) {
    static const int64_t heads[][3] = {{4, 2, 1}, {4, 1, 4}, {6, 2, 3},
                                       {2, 4, 2}, {3, 6, 1}, {1, 5, 1}};
    size_t i;
    for (i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        Spec spec = {.T = 18, .dk = 7, .dv = 5};
        spec.H = heads[i][0];
        spec.Hq = heads[i][1];
        spec.Hk = heads[i][2];
        spec.head_map = LA_GROUPED;
        every_kind(spec);
        spec.head_map = LA_TILED;
        every_kind(spec);
    }
}

TEST(variants_batches) {
    Spec spec = {.B = 3, .T = 34, .H = 2, .dk = 17, .dv = 19};
    every_kind(spec);
    spec.B = 7;
    spec.T = 1;
    every_kind(spec);
}

TEST(variants_l2) {
    Spec spec = {.B = 2, .T = 35, .H = 2, .dk = 13, .dv = 7, .l2_mode = LA_L2_SUM};
    every_kind(spec);
    spec.l2_mode = LA_L2_MAX;
    every_kind(spec);
}

TEST(variants_scale) {
    static const float scales[] = {0.3f, 4, 1e-8f};
    size_t n;
    int i;
    for (n = 0; n < sizeof scales / sizeof scales[0]; n++) {
        for (i = 0; i < KINDS; i++) {
            Spec spec = {.T = 34, .H = 2, .dk = 7, .dv = 13};
            spec = kind_spec(i, spec);
            spec.scale = scales[n];
            both_layouts(spec, kinds[i].name);
        }
    }
}

TEST(variants_states) {
    int states;
    for (states = STATES_BOTH; states <= STATES_NONE; states++) {
        Spec spec = {.B = 2, .T = 18, .H = 2, .dk = 7, .dv = 18};
        spec.states = (States)states;
        every_kind(spec);
        spec.T = 1;
        every_kind(spec);
    }
}

/* The same bits, however many threads share the work. */
TEST(variants_threads) {
    static const int64_t threads[] = {2, 3, 5, 100};
    int i, n, m;
    for (i = 0; i < KINDS; i++) {
        Spec spec = {.B = 2, .T = 19, .H = 2, .Hq = 4, .dk = 7, .dv = 37};
        Problem *problem = problem_new((spec = kind_spec(i, spec), &spec));
        Way way;
        for (n = 0; problem != NULL && way_number(n, &way); n++) {
            size_t count;
            float *want, *got;
            problem->note = kinds[i].name;
            problem_run(problem, &way);
            want = problem_copy_out(problem, &count);
            for (m = 0; m < 4; m++) {
                way.threads = threads[m];
                problem_run(problem, &way);
                problem_check(problem);
                got = problem_copy_out(problem, &count);
                check_same(problem_text(problem), got, want, count);
                free(got);
            }
            free(want);
        }
        if (problem != NULL) {
            problem_free(problem);
        }
    }
}

TEST(variants_strides) {
    int strides;
    for (strides = STRIDES_BTHD; strides <= STRIDES_BROADCAST; strides++) {
        Spec spec = {.B = 2, .T = 10, .H = 4, .Hq = 2, .Hk = 2, .dk = 7, .dv = 18};
        spec.strides = (Strides)strides;
        spec.shift = strides % 2;
        every_kind(spec);
        spec.Hq = 8;
        spec.T = 1;
        every_kind(spec);
    }
}

/* Rows at and beyond a sequence's length hold NaN, and are neither read nor written. */
TEST(variants_ragged) {
    static const int64_t tokens[] = {1, 5, 34, 67};
    size_t n;
    int i;
    for (n = 0; n < sizeof tokens / sizeof tokens[0]; n++) {
        Spec spec = {.B = 5, .T = tokens[n], .H = 2, .dk = 7, .dv = 5, .ragged = 1};
        every_kind(spec);
        spec.strides = STRIDES_PADDED;
        spec.states = STATES_SAME;
        for (i = 0; i < VARIANTS; i++) {
            spec.variant = variants[i];
            spec.gate = usual_gate(variants[i]);
            spec.beta = BETA_TOKEN;
            both_layouts(spec, "ragged");
        }
    }
}

/* ---------------------------------------------------------------- decay of every granularity */

/* Deep gates leave nothing but the last keys in a denominator, and relu maybe nothing of them. */
static int needs_positive(int i, Gate gate) {
    int deep = gate != GATE_MILD && gate != GATE_SLOW && gate != GATE_ZERO;
    int relu = kinds[i].spec.variant == LA_COSFORMER || kinds[i].spec.favor_kernel == LA_FAVOR_RELU;
    return kinds[i].spec.positive || (deep && relu && kinds[i].additive);
}

static void every_gate(int i, Spec spec) {
    static const Gate gates[] = {GATE_MILD, GATE_STRONG, GATE_MIXED, GATE_EDGES,
                                 GATE_SLOW, GATE_ZERO,   GATE_ANY};
    size_t g;
    spec = kind_spec(i, spec);
    for (g = 0; g < sizeof gates / sizeof gates[0]; g++) {
        spec.gate = gates[g];
        spec.positive = needs_positive(i, spec.gate);
        if (spec.positive && kinds[i].spec.favor_kernel == LA_FAVOR_RELU) {
            spec.features = 60; /* so many that some are positive for both */
        }
        spec.gate_channel = 0;
        both_layouts(spec, kinds[i].name);
        spec.gate_channel = kinds[i].by_channel;
        if (spec.gate_channel) {
            both_layouts(spec, kinds[i].name);
        }
    }
    spec.gate = GATE_HEAD;
    spec.gate_channel = 0;
    spec.positive = needs_positive(i, spec.gate);
    both_layouts(spec, kinds[i].name);
}

TEST(variants_gates) {
    int i;
    for (i = 0; i < KINDS; i++) {
        Spec spec = {.T = 67, .H = 2, .dk = 7, .dv = 13};
        every_gate(i, spec);
        spec.B = spec.H = 1;
        spec.T = 18;
        spec.dk = 33;
        spec.dv = 18;
        every_gate(i, spec);
    }
}

/* Five heads' gates: by turns slow, -20, 0, -1e-6, and -inf. */
TEST(variants_gates_per_head) {
    int i;
    for (i = 0; i < KINDS; i++) {
        Spec spec = {.T = 34, .H = 5, .dk = 7, .dv = 13};
        spec = kind_spec(i, spec);
        spec.gate = GATE_HEAD;
        for (spec.gate_channel = 0; spec.gate_channel <= kinds[i].by_channel; spec.gate_channel++) {
            spec.positive = needs_positive(i, spec.gate);
            spec.features = 60;
            both_layouts(spec, kinds[i].name);
        }
    }
}

/* The variants of the table whose decay is usually another's: per channel, and none. */
TEST(variants_other_granularities) {
    static const la_variant additive[] = {LA_RETNET, LA_LIGHTNING, LA_DELTANET};
    static const Gate gates[] = {GATE_MILD, GATE_STRONG, GATE_ANY, GATE_SLOW};
    size_t v, g;
    Spec spec = {.T = 67, .H = 2, .dk = 17, .dv = 19, .gate_channel = 1};
    for (v = 0; v < 3; v++) {
        for (g = 0; g < 4; g++) {
            spec.variant = additive[v];
            spec.gate = gates[g];
            both_layouts(spec, "per channel");
        }
    }
    spec.gate_channel = 0;
    spec.variant = LA_GLA;
    for (g = 0; g < 4; g++) {
        spec.gate = gates[g];
        both_layouts(spec, "gla per token");
    }
    spec.gate = GATE_NONE;
    both_layouts(spec, "gla without decay");
}

/* The same gate in every channel, at every token: each of these is a corner of a range. */
TEST(variants_constant_gates_per_channel) {
    static const float values[] = {-INFINITY, -1000, -104, -88,   -30,   -0.6931472f,
                                   -0.5f,     -0.49f, -1e-3f, -1e-7f, -1e-30f, -0.0f};
    static const la_variant by_channel[] = {LA_GLA, LA_GATED_DELTANET, LA_ELU};
    size_t g, i;
    for (g = 0; g < sizeof values / sizeof values[0]; g++) {
        for (i = 0; i < 3; i++) {
            Spec spec = {.T = 35, .dk = 7, .dv = 13, .gate = GATE_FILLED, .gate_channel = 1};
            spec.gate_value = values[g];
            spec.variant = by_channel[i];
            both_layouts(spec, "constant gates per channel");
        }
    }
}

TEST(variants_gates_per_channel_do_not_drift) {
    static const la_variant by_channel[] = {LA_GLA, LA_GATED_DELTANET, LA_ELU};
    int i;
    for (i = 0; i < 3; i++) {
        Spec spec = {.variant = by_channel[i], .T = 2000, .dk = 3, .dv = 5, .zero_keys = i < 2};
        spec.gate = GATE_FILLED;
        spec.gate_channel = 1;
        spec.gate_value = (float)log1p(-168.5 / 16777216);
        problem_all_ways(&spec, "drift");
    }
}

/* Long sums of what is never forgotten. */
TEST(variants_long) {
    int i;
    for (i = 0; i < KINDS; i++) {
        Spec spec = {.T = 700, .dk = 5, .dv = 7};
        problem_all_ways((spec = kind_spec(i, spec), &spec), kinds[i].name);
    }
}

/* ---------------------------------------------------------------- bidirectional */

TEST(bidirectional_lengths) {
    static const int64_t counts[] = {0, 1, 2, 15, 16, 17, 33, 67, 130};
    enum { COUNTS = sizeof counts / sizeof counts[0] };
    int i, n;
    for (i = 0; i < KINDS; i++) {
        for (n = 0; kinds[i].additive && n < COUNTS; n++) {
            Spec spec = {.H = 2, .dk = 7, .dv = 13, .bidirectional = 1};
            spec.T = counts[n];
            spec.gate = GATE_NONE;
            both_layouts(kind_spec(i, spec), kinds[i].name);
            spec.keys = counts[(n + 4) % COUNTS];
            spec.keys = spec.keys ? spec.keys : -1;
            both_layouts(kind_spec(i, spec), kinds[i].name);
        }
    }
}

static void every_bidirectional(Spec spec) {
    int i;
    spec.bidirectional = 1;
    for (i = 0; i < KINDS; i++) {
        if (kinds[i].additive) {
            both_layouts(kind_spec(i, spec), kinds[i].name);
        }
    }
}

TEST(bidirectional_dimensions) {
    static const int64_t dims[][2] = {{2, 3}, {16, 8}, {33, 47}, {64, 64}};
    size_t i;
    for (i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        Spec spec = {.T = 19, .keys = 35, .dk = dims[i][0], .dv = dims[i][1]};
        every_bidirectional(spec);
    }
}

TEST(bidirectional_heads_and_strides) {
    static const int64_t heads[][3] = {{4, 2, 1}, {4, 4, 2}, {2, 6, 1}, {1, 5, 1}};
    int strides;
    for (strides = STRIDES_BTHD; strides <= STRIDES_BROADCAST; strides++) {
        size_t i = (size_t)strides % 4;
        Spec spec = {.B = 2, .T = 17, .keys = 34, .dk = 7, .dv = 19};
        spec.H = heads[i][0];
        spec.Hq = heads[i][1];
        spec.Hk = heads[i][2];
        spec.strides = (Strides)strides;
        spec.keys = strides == STRIDES_QKV ? 17 : 34; /* these share the tokens */
        spec.states = (States)(strides % 5);
        every_bidirectional(spec);
        spec.head_map = LA_TILED;
        every_bidirectional(spec);
    }
}

/* Lengths of queries and of keys, both per sequence; NaN beyond. */
TEST(bidirectional_ragged) {
    static const int64_t tokens[] = {1, 7, 34, 67};
    size_t n;
    for (n = 0; n < sizeof tokens / sizeof tokens[0]; n++) {
        Spec spec = {.B = 5, .H = 2, .dk = 7, .dv = 5, .ragged = 1};
        spec.T = tokens[n];
        every_bidirectional(spec);
        spec.keys = tokens[3 - n];
        spec.states = STATES_OUT; /* and with no key: nothing to read */
        every_bidirectional(spec);
    }
}

/* All keys without a query, then all queries without a key: what one call does. */
static void store_then_query(const Spec *spec, const char *note) {
    Problem *problem = problem_new(spec);
    size_t bytes = problem != NULL ? problem->state_floats * sizeof(float) : 0, i, written;
    float *first = malloc(bytes + 1);
    Way way;
    int n;
    for (n = 0; problem != NULL && first != NULL && way_number(n, &way); n++) {
        problem->note = note;
        memcpy(first, problem->state_start, bytes);
        problem->call.tokens = 0;
        problem_run(problem, &way);
        for (i = written = 0; i < problem->out_floats; i++) {
            written += isnan(problem->out_start[i]) ? 0 : 1;
        }
        CHECK(written == 0, "%s: %zu outputs of no token", problem_text(problem), written);
        memcpy(problem->state_start, problem->states, bytes);
        problem->call.tokens = problem->spec.T;
        problem->call.keys = 0;
        problem_run(problem, &way);
        problem->call.keys = problem->spec.keys;
        problem_check(problem);
        memcpy(problem->state_start, first, bytes);
    }
    free(first);
    if (problem != NULL) {
        problem_free(problem);
    }
}

TEST(bidirectional_query_of_a_stored_state) {
    int i, n;
    for (i = 0; i < KINDS; i++) {
        Spec spec = {.B = 2, .T = 21, .keys = 34, .H = 2, .Hq = 4, .dk = 7, .dv = 13};
        spec.bidirectional = 1;
        spec.states = STATES_BOTH;
        for (n = 0; kinds[i].additive && n < 2; n++) {
            Spec own = kind_spec(i, spec);
            own.layout = n;
            store_then_query(&own, kinds[i].name);
        }
    }
}

/* ---------------------------------------------------------------- carried states */

TEST(variants_calls_that_carry_the_state) {
    int i;
    for (i = 0; i < KINDS; i++) {
        Spec spec = {.H = 2, .dk = 7, .dv = 19, .T = 67};
        spec = kind_spec(i, spec);
        spec.layout = LA_KV;
        all_cuts(spec);
        spec.layout = LA_VK;
        spec.gate = kinds[i].by_channel ? GATE_STRONG : spec.gate;
        all_cuts(spec);
    }
}

/* A state that one form hands over is one that any other continues. */
static void every_pair(Problem *problem, int isa) {
    static const Way forms[] = {{LA_PARALLEL, 0, 0, 1},
                                {LA_RECURRENT, 0, 0, 1},
                                {LA_CHUNKWISE, 0, 0, 1},
                                {LA_CHUNKWISE, 0, 7, 1}};
    static const int64_t splits[] = {1, 6, 33, 66};
    int from, to, n;
    for (from = 0; from < 4; from++) {
        for (to = 0; to < 4; to++) {
            Way ways[2];
            ways[0] = forms[from];
            ways[1] = forms[to];
            ways[0].isa = ways[1].isa = isa;
            for (n = 0; n < 4 && from != to; n++) {
                const int64_t parts[] = {splits[n], 67 - splits[n]};
                if (problem_run_parts(problem, ways, parts, 2)) {
                    problem->way = ways[1];
                    problem_check(problem);
                }
            }
        }
    }
}

TEST(variants_any_form_continues_any_other) {
    int i, n, isa;
    for (i = 0; i < KINDS + 2 * VARIANTS; i++) {
        Spec spec = {.T = 67, .H = 2, .dk = 7, .dv = 19, .beta = BETA_TOKEN};
        if (i < KINDS) {
            spec = kind_spec(i, spec);
        } else {
            spec.variant = variants[(i - KINDS) / 2];
            spec.gate = usual_gate(spec.variant);
        }
        spec.states = STATES_SAME;
        for (spec.layout = LA_KV; spec.layout <= LA_VK; spec.layout++) {
            Problem *problem = problem_new(&spec);
            for (n = 0; problem != NULL && isa_number(n, &isa); n++) {
                problem->note = "from form to form";
                every_pair(problem, isa);
            }
            if (problem != NULL) {
                problem_free(problem);
            }
        }
    }
}

TEST(variants_decoding_is_bitwise_the_recurrent_form) {
    int i;
    for (i = 0; i < KINDS; i++) {
        Spec spec = {.B = 2, .H = 2, .Hq = 4, .dk = 9, .dv = 37, .states = STATES_SAME};
        spec = kind_spec(i, spec);
        decode(spec);
        spec.gate = kinds[i].by_channel ? GATE_STRONG : spec.gate;
        decode(spec);
    }
}

/* ---------------------------------------------------------------- exact data, per channel */

TEST(variants_exact_per_channel) {
    static const int64_t cases[][3] = {{35, 1, 1}, {67, 7, 13}, {34, 64, 64}, {35, 3, 129}};
    static const la_variant by_channel[] = {LA_GLA, LA_RETNET, LA_GATED_DELTANET};
    size_t i;
    int v;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (v = 0; v < 3; v++) {
            Spec spec = {.T = cases[i][0], .dk = cases[i][1], .dv = cases[i][2], .exact = 1};
            spec.variant = by_channel[v];
            spec.gate_channel = 1;
            spec.gate = GATE_HALVES;
            spec.beta = BETA_TOKEN;
            both_layouts(spec, "exact per channel");
            spec.gate = GATE_ZERO;
            both_layouts(spec, "exact per channel, no decay");
        }
    }
}
