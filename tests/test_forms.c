/* Every form, chunk, instruction set and state layout against the float64 oracle, by promise 1. */
#include "oracle.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

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
TEST(forms_decoding_is_bitwise_the_recurrent_form) {
    static const int64_t ones[33] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    int i, n, layout;
    for (i = 0; i < 2 * VARIANTS; i++) {
        Spec spec = {.B = 2, .T = 33, .H = 2, .Hq = 4, .dk = 33, .dv = 47, .beta = BETA_TOKEN};
        spec.variant = variants[i / 2];
        spec.gate = i % 2 ? GATE_STRONG : usual_gate(spec.variant);
        spec.states = STATES_SAME;
        for (layout = LA_KV; layout <= LA_VK; layout++) {
            Problem *problem;
            Way way = {.form = LA_RECURRENT, .threads = 1};
            spec.layout = layout;
            problem = problem_new(&spec);
            if (problem == NULL) {
                return;
            }
            problem->note = "decoding";
            for (n = 0; isa_number(n, &way.isa); n++) {
                size_t count;
                float *whole, *steps;
                problem_run(problem, &way);
                whole = problem_copy_out(problem, &count);
                problem_run_split(problem, &way, ones, 33);
                problem_check(problem);
                steps = problem_copy_out(problem, &count);
                check_same(problem_text(problem), steps, whole, count);
                free(whole);
                free(steps);
            }
            problem_free(problem);
        }
    }
}
