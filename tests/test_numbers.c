/* Numbers that break such kernels elsewhere: gates of every size in every place, keys and features
   far from 1, floating-point exceptions, a million steps, states that die away, NaN and infinities,
   and whatever memory held before. Each through every form, chunk and instruction set. */
#define _GNU_SOURCE /* feenableexcept */

#include "oracle.h"
#include "test.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <xmmintrin.h>
#endif

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---------------------------------------------------------------- what to try

   Every recurrence with decay per token and per channel, several query heads to a state among them.
   No denominator lies in (0, 1e-30): either features are never 0, or queries and keys positive. */
static const Spec kinds[] = {
    {.variant = LA_RETNET, .dk = 7, .dv = 19},
    {.variant = LA_LIGHTNING, .dk = 24, .dv = 5, .Hq = 2, .beta = BETA_TOKEN},
    {.variant = LA_GLA, .dk = 17, .dv = 18, .gate_channel = 1},
    {.variant = LA_DELTANET, .dk = 8, .dv = 16, .beta = BETA_TOKEN},
    {.variant = LA_GATED_DELTANET, .dk = 33, .dv = 21, .beta = BETA_CHANNEL},
    {.variant = LA_KDA, .dk = 18, .dv = 7, .gate_channel = 1, .beta = BETA_TOKEN},
    {.variant = LA_KDA, .dk = 7, .dv = 19, .gate_channel = 1, .Hq = 3},
    {.variant = LA_ELU, .dk = 19, .dv = 7},
    {.variant = LA_ELU, .dk = 7, .dv = 18, .gate_channel = 1, .Hq = 2},
    {.variant = LA_GLA, .dk = 9, .dv = 17, .gate_channel = 1, .normalised = 1, .positive = 1},
    {.variant = LA_FAVOR, .dk = 7, .dv = 5, .features = 11},
    {.variant = LA_FAVOR, .dk = 5, .dv = 17, .features = 9, .favor_kernel = LA_FAVOR_HYPERBOLIC},
    /* clang-format off */
    {.variant = LA_FAVOR, .dk = 7, .dv = 5, .features = 19, .favor_kernel = LA_FAVOR_RELU,
     .feature_eps = 1e-3f},
    /* clang-format on */
    {.variant = LA_COSFORMER, .dk = 7, .dv = 19, .positive = 1},
    {.variant = LA_ELU, .dk = 7, .dv = 5, .gate_channel = 1, .bidirectional = 1},
    {.variant = LA_FAVOR, .dk = 7, .dv = 5, .features = 11, .bidirectional = 1},
    {.variant = LA_COSFORMER, .dk = 7, .dv = 5, .positive = 1, .bidirectional = 1},
    {.variant = LA_DPFP, .dk = 5, .dv = 19, .nu = 2, .beta = BETA_TOKEN},
    {.variant = LA_BASED, .dk = 5, .dv = 7},
    {.variant = LA_HEDGEHOG, .dk = 7, .dv = 5, .features = 9},
    {.variant = LA_RFF, .dk = 7, .dv = 5, .features = 40},
    {.variant = LA_MAPPED, .dk = 9, .dv = 17, .positive = 1, .gate_channel = 1},
    {.variant = LA_RWKV6, .dk = 17, .dv = 18, .gate_channel = 1, .Hq = 2},
    {.variant = LA_RWKV6, .dk = 7, .dv = 5},
    {.variant = LA_RWKV7, .dk = 18, .dv = 19, .gate_channel = 1, .Hq = 2},
    {.variant = LA_RWKV7, .dk = 9, .dv = 5},
    {.variant = LA_GDN2, .dk = 18, .dv = 7, .gate_channel = 1, .beta = BETA_CHANNEL},
    {.variant = LA_GDN2, .dk = 8, .dv = 16, .beta = BETA_TOKEN},
};
enum { KINDS = COUNT(kinds), FEATURED = 7, BY_CHANNEL = 22 }; /* where these begin */

static Spec kind_spec(int i, int64_t T) {
    Spec spec = kinds[i];
    spec.T = T;
    spec.gate = GATE_FILLED;
    return spec;
}

/* The N of --thin N: what is long gets shorter by it. */
static int thinning(void) {
    int first = thinned(0);
    return thinned(1) - first;
}

static void check_right(Problem *problem, const char *note) {
    Way way;
    int i;
    problem->note = note;
    problem_oracle(problem);
    for (i = 0; way_number(i, &way); i++) {
        if (problem_run(problem, &way)) {
            problem_check(problem);
        }
    }
}

static void fill_row(float *row, int64_t count, float value) {
    while (count-- > 0) {
        row[count] = value;
    }
}

/* Row t of every head and sequence. */
static void set_rows(const Problem *problem, const la_out *view, int64_t heads, int64_t t,
                     float value) {
    int64_t b, h;
    for (b = 0; b < problem->spec.B; b++) {
        for (h = 0; h < heads; h++) {
            fill_row(out_row(view, b, t, h), view->width, value);
        }
    }
}

static void set_values(Problem *problem, float value) {
    int64_t t;
    for (t = 0; t < problem->spec.keys; t++) {
        set_rows(problem, &problem->v, problem->spec.H, t, value);
    }
}

/* ---------------------------------------------------------------- gates */

enum { SWEEP_T = 97 }; /* three blocks of 32 tokens and one, and the end of a chunk of 64 */

static const float sweep_gates[] = {0,   -1e-7f, -0.1f, -1,   -1.4f, -2.5f, -3,    -5,
                                    -11, -50,    -88,   -100, -1000, -2700, -1e6f, -INFINITY};

typedef enum Draw { STRUCK, MIXED, ALPHAS, LOG_UNIFORM } Draw;

/* STRUCK: the gate at tokens from .. to - 1 of each period, mild ones elsewhere. */
typedef struct Pattern {
    const char *name;
    Draw draw;
    int64_t period, from, to;
} Pattern;

static const Pattern patterns[] = {
    {"every token", STRUCK, 1, 0, 1},
    {"first token", STRUCK, SWEEP_T, 0, 1},
    {"last token", STRUCK, SWEEP_T, SWEEP_T - 1, SWEEP_T},
    {"bursts", STRUCK, 16, 9, 14},
    {"bursts across blocks", STRUCK, 31, 0, 4},
    {"first of 2", STRUCK, 2, 0, 1},
    {"last of 2", STRUCK, 2, 1, 2},
    {"first of 6", STRUCK, 6, 0, 1},
    {"last of 6", STRUCK, 6, 5, 6},
    {"first of 7", STRUCK, 7, 0, 1},
    {"last of 7", STRUCK, 7, 6, 7},
    {"first of 16", STRUCK, 16, 0, 1},
    {"last of 16", STRUCK, 16, 15, 16},
    {"first of 32", STRUCK, 32, 0, 1},
    {"last of 32", STRUCK, 32, 31, 32},
    {"first of 64", STRUCK, 64, 0, 1},
    {"last of 64", STRUCK, 64, 63, 64},
    {"mixed", MIXED, 0, 0, 0},
    {"alphas", ALPHAS, 0, 0, 0},
    {"log-uniform", LOG_UNIFORM, 0, 0, 0},
};

static float drawn_gate(const Pattern *pattern, float gate, int64_t t) {
    float mild = random_uniform(-0.3f, 0);
    int64_t at = pattern->draw == STRUCK ? t % pattern->period : 0;
    switch (pattern->draw) {
    case MIXED: return sweep_gates[random_below(COUNT(sweep_gates))];
    case ALPHAS: return (float)log((double)random_uniform(1e-4f, 0.4f));
    case LOG_UNIFORM: return -(float)pow(10, (double)random_uniform(-7, 0));
    default: return at >= pattern->from && at < pattern->to ? gate : mild;
    }
}

/* One in `every` channels is struck; the others have mild gates. */
static void set_gates(Problem *problem, const Pattern *pattern, float gate, int every) {
    static const Pattern mild = {"mild", STRUCK, 1, 0, 0};
    int64_t t, i;
    problem->spec.gate_value = gate;
    for (t = 0; t < problem->spec.keys; t++) {
        float *row = out_row(&problem->log_decay, 0, t, 0);
        for (i = 0; i < problem->log_decay.width; i++) {
            row[i] = drawn_gate(i % every ? &mild : pattern, gate, t);
        }
    }
}

/* Both layouts by turns; thinned, every third gate. */
static void sweep_pattern(Problem *const problems[2], const Pattern *pattern, int n) {
    int g, count = pattern->draw == STRUCK ? COUNT(sweep_gates) : 4, step = thinning() > 1 ? 3 : 1;
    for (g = n % step; g < count; g += step) {
        Problem *problem = problems[(n + g) % 2];
        set_gates(problem, pattern, sweep_gates[g], (n + g / 2) % 2 ? 3 : 1);
        check_right(problem, pattern->name);
    }
}

static void sweep_kind(int i) {
    Spec spec = kind_spec(i, SWEEP_T);
    Problem *problems[2];
    int n;
    problems[0] = problem_new(&spec);
    spec.layout = LA_VK;
    problems[1] = problem_new(&spec);
    for (n = 0; n < COUNT(patterns); n++) {
        sweep_pattern(problems, &patterns[n], n);
    }
    problem_free(problems[0]);
    problem_free(problems[1]);
}

TEST(numbers_gates_everywhere) {
    int i;
    for (i = 0; i < KINDS; i++) {
        sweep_kind(i);
    }
}

/* One row of gates for all tokens; without a state the first gate acts on nothing. */
TEST(numbers_gates_per_head) {
    static const States states[] = {STATES_BOTH, STATES_OUT, STATES_SAME};
    int i, g;
    for (i = 0; i < KINDS; i++) {
        for (g = 0; g < COUNT(sweep_gates); g++) {
            Spec spec = kind_spec(i, 67);
            Problem *problem;
            spec.layout = g % 2;
            spec.states = states[g % 3];
            spec.gate_value = sweep_gates[g];
            problem = problem_new(&spec);
            problem->call.log_decay.token_stride = 0;
            check_right(problem, "one gate");
            problem_free(problem);
        }
    }
}

/* ---------------------------------------------------------------- slow decays */

/* The last two take long: one layer is enough for them. */
static const Way long_ways[] = {{LA_RECURRENT, 0, 0, 1},
                                {LA_CHUNKWISE, 0, 0, 1},
                                {LA_CHUNKWISE, 0, 64, 1},
                                {LA_CHUNKWISE, 0, 1000, 1},
                                {LA_PARALLEL, 0, 0, 1}};
enum { LONG_WAYS = COUNT(long_ways), QUICK_WAYS = LONG_WAYS - 2 };

/* Each way once, the instruction sets taking turns. */
static int long_way(int i, int turn, Way *way) {
    int count = 0, isa, all = turn == 0 && thinning() == 1;
    i = thinned(i);
    while (isa_number(count, &isa)) {
        count++;
    }
    *way = long_ways[i % LONG_WAYS];
    return i < (all ? LONG_WAYS : QUICK_WAYS) && isa_number((i + turn) % count, &way->isa);
}

static void check_slow(const Spec *spec, int turn, const char *note) {
    Problem *problem = problem_new(spec);
    Way way;
    int i;
    problem->note = note;
    for (i = 0; long_way(i, turn, &way); i++) {
        if (problem_run(problem, &way)) {
            problem_check(problem);
        }
    }
    problem_free(problem);
}

TEST(numbers_slow_decays) {
    int i;
    for (i = 0; i < KINDS; i++) {
        Spec spec = kind_spec(i, 65536);
        spec.dk = 5;
        spec.dv = 6;
        spec.Hq = 1;
        spec.layout = i % 2;
        spec.gate = GATE_SLOW;
        check_slow(&spec, i, "slow decays");
    }
}

/* Nothing is written: the rounding of every step is all that the final state shows. */
TEST(numbers_slow_decays_of_a_state) {
    static const float gates[] = {-1e-7f, -1.05e-6f, -0.99e-5f, -1.01e-5f};
    int i, g;
    for (i = 0; i < KINDS; i++) {
        for (g = 0; g < COUNT(gates); g++) {
            Spec spec = kind_spec(i, 65536);
            int written = spec.variant == LA_FAVOR || spec.variant == LA_ELU || spec.normalised ||
                          (spec.variant >= LA_BASED && spec.variant <= LA_RFF); /* by a key of 0 */
            spec.dk = 3;
            spec.dv = 2;
            spec.Hq = 1;
            spec.zero_keys = 1;
            spec.gate_value = gates[g];
            if (!written && !spec.bidirectional && spec.variant != LA_COSFORMER) {
                check_slow(&spec, i + g + 1, "slow decays of a state");
            }
        }
    }
}

/* ---------------------------------------------------------------- floating-point exceptions */

enum { EXCEPTIONS = FE_OVERFLOW | FE_INVALID };

#if defined(__linux__) && defined(__GLIBC__)
static sigjmp_buf out_of_trap;

static void on_trap(int number) {
    (void)number;
    siglongjmp(out_of_trap, 1);
}

/* Answers 1 if there was a trap. Where the processor has none, the flags have to do. */
static int forward_trapped(const la_layer *layer, const la_call *call) {
    struct sigaction mine, before;
    volatile int trapped = 1;
    memset(&mine, 0, sizeof mine);
    mine.sa_handler = on_trap;
    sigaction(SIGFPE, &mine, &before);
    if (sigsetjmp(out_of_trap, 1) == 0) {
        feenableexcept(EXCEPTIONS);
        la_forward(layer, call);
        trapped = 0;
    }
    fedisableexcept(EXCEPTIONS);
    sigaction(SIGFPE, &before, NULL);
    return trapped;
}
#else
static int forward_trapped(const la_layer *layer, const la_call *call) {
    la_forward(layer, call);
    return 0;
}
#endif

/* What a buffer may hold before: nothing, a quiet and a signalling NaN, infinity, the largest. */
enum { QUIET_NAN = 0x7fc00000 };
static const uint32_t fills[] = {0, QUIET_NAN, 0x7fa00000, 0x7f800000, 0x7f7fffff};
enum { FILLS = COUNT(fills) };

static void fill_bits(float *data, size_t count, uint32_t bits) {
    while (count-- > 0) {
        memcpy(&data[count], &bits, sizeof bits);
    }
}

/* The call with a workspace of its own; that and the outputs hold `bits` before. */
static la_call filled_call(Problem *problem, const Way *way, uint32_t bits) {
    la_call call = problem->call;
    size_t floats;
    problem->way = *way;
    call.form = way->form;
    call.isa = way->isa;
    call.chunk = way->chunk;
    call.workspace_size = la_workspace_size(&problem->layer, &call);
    floats = (call.workspace_size + 3) / 4;
    call.workspace = guarded_new(floats, 1);
    fill_bits(call.workspace, floats, bits);
    fill_bits(problem->out_start, problem->out_floats, bits);
    if (problem->states != NULL) {
        fill_bits(problem->states, problem->state_floats, bits);
    }
    return call;
}

/* Whether the call overflows or is invalid; then outputs are not to be used. */
static int raises(Problem *problem, const Way *way, uint32_t bits) {
    la_call call = filled_call(problem, way, bits);
    int raised;
    feclearexcept(FE_ALL_EXCEPT);
    raised = forward_trapped(&problem->layer, &call) || fetestexcept(EXCEPTIONS);
    feclearexcept(FE_ALL_EXCEPT);
    guarded_free(call.workspace);
    return raised;
}

static void check_quiet(Problem *problem, const char *note, uint32_t bits) {
    Way way;
    int i;
    problem->note = note;
    for (i = 0; way_number(i, &way); i++) {
        int raised = raises(problem, &way, bits);
        CHECK(!raised, "overflow or invalid, buffers held %08x: %s", (unsigned)bits,
              raised ? problem_text(problem) : "");
    }
}

static void check_quiet_gates(int i, uint32_t bits) {
    static const int chosen[] = {0, 3, 7, 8, 17, 18, 19}; /* of the patterns */
    Spec spec = kind_spec(i, 71);
    Problem *problem;
    int n, g;
    spec.layout = i % 2;
    spec.states = i % 3 == 0 ? STATES_OUT : STATES_BOTH;
    problem = problem_new(&spec);
    for (n = 0; n < COUNT(chosen); n++) {
        const Pattern *pattern = &patterns[chosen[n]];
        for (g = n % 2; g < COUNT(sweep_gates); g += pattern->draw == STRUCK ? 2 : 8) {
            set_gates(problem, pattern, sweep_gates[g], 1 + n % 2);
            check_quiet(problem, pattern->name, bits);
        }
    }
    problem_free(problem);
}

/* Gates of -inf among them, though they are not finite. */
TEST(numbers_nothing_traps_under_any_gate) {
    int i;
    for (i = 0; i < KINDS; i++) {
        check_quiet_gates(i, QUIET_NAN);
    }
}

/* Sums of two are beyond any float, and masks of other libraries are as large as that. */
TEST(numbers_nothing_traps_under_huge_gates) {
    static const float gates[] = {-1e10f, -1e19f, -1e30f, -FLT_MAX};
    int i, g;
    for (i = 0; i < KINDS; i++) {
        for (g = 0; g < COUNT(gates); g++) {
            Spec spec = kind_spec(i, 37);
            Problem *problem;
            spec.gate_value = gates[g];
            problem = problem_new(&spec);
            check_right(problem, "huge gates");
            check_quiet(problem, "huge gates", QUIET_NAN);
            problem_free(problem);
        }
    }
}

/* Lanes that nobody reads must not compute with what the workspace held. */
TEST(numbers_nothing_traps_whatever_buffers_held) {
    static const int64_t lengths[] = {1, 5, 18, 71};
    int i, n, f;
    for (i = 0; i < KINDS; i++) {
        for (n = 0; n < COUNT(lengths); n++) {
            Spec spec = kind_spec(i, lengths[n]);
            Problem *problem;
            spec.gate = n % 2 ? GATE_MIXED : GATE_MILD;
            problem = problem_new(&spec);
            for (f = 0; f < FILLS; f++) {
                check_quiet(problem, "buffers", fills[f]);
            }
            problem_free(problem);
        }
    }
}

/* ---------------------------------------------------------------- lengths of keys */

static void set_length(float *x, int64_t n, double length) {
    double sum = 0;
    int64_t i;
    for (i = 0; i < n; i++) {
        x[i] = random_uniform(0.1f, 1);
        x[i] = random_below(2) ? x[i] : -x[i];
        sum += (double)x[i] * (double)x[i];
    }
    for (i = 0; i < n; i++) {
        x[i] = (float)((double)x[i] * length / sqrt(sum));
    }
}

/* All lengths in one sequence, or the same one throughout. */
static void set_lengths(Problem *problem, int only) {
    static const double lengths[] = {1e-4, 1e4, 1e20, 1e-20, 0, 1, 1e18, 1e-16, 3e37};
    int64_t t;
    for (t = 0; t < problem->spec.T; t++) {
        int n = only < 0 ? random_below(COUNT(lengths)) : only;
        set_length(out_row(&problem->k, 0, t, 0), problem->spec.dk, lengths[n]);
        n = only < 0 ? random_below(COUNT(lengths)) : only;
        set_length(out_row(&problem->q, 0, t, 0), problem->spec.dk, lengths[n]);
    }
}

enum { LENGTHS = 9 };

static void check_lengths(const Spec *spec) {
    static const float epsilons[] = {1e-6f, 1e-12f, 1e-30f};
    Problem *problem = problem_new(spec);
    int only, e;
    for (only = -1; only < LENGTHS; only++) {
        set_lengths(problem, only);
        for (e = 0; e < COUNT(epsilons); e++) {
            problem->layer.l2_eps = epsilons[e];
            check_right(problem, "lengths before L2 normalisation");
            check_quiet(problem, "lengths before L2 normalisation", QUIET_NAN);
        }
    }
    problem_free(problem);
}

/* Layers that look at the direction of keys only, where eps is small. */
TEST(numbers_keys_of_any_length) {
    static const int chosen[] = {0, 2, 3, 4, 5, 10, 13};
    int i;
    for (i = 0; i < COUNT(chosen); i++) {
        Spec spec = kind_spec(chosen[i], 29);
        spec.gate = GATE_MILD;
        spec.layout = i % 2;
        for (spec.l2_mode = LA_L2_SUM; spec.l2_mode <= LA_L2_MAX; spec.l2_mode++) {
            spec.beta = spec.beta == BETA_NONE ? BETA_NONE : BETA_TOKEN;
            check_lengths(&spec);
        }
    }
}

/* Output and final state, one after the other; free() them. */
static float *copy_result(const Problem *problem, size_t *count) {
    size_t out, state;
    float *result = problem_copy_out(problem, &out), *states = problem_copy_state(problem, &state);
    result = realloc(result, (out + state + 1) * sizeof *result);
    if (result == NULL) {
        abort();
    }
    memcpy(result + out, states, state * sizeof *states);
    free(states);
    *count = out + state;
    return result;
}

static float *result_of(Problem *problem, const Way *way, size_t *count) {
    problem_run(problem, way);
    return copy_result(problem, count);
}

static void check_same_bits(const Problem *problem, float *got, float *want, size_t count) {
    if (memcmp(got, want, count * sizeof *got) != 0) {
        check_same(problem_text(problem), got, want, count);
    }
    CHECK(count > 0, "nothing to compare");
    free(got);
    free(want);
}

/* l2_eps = 0: a key of zeros has no direction, and counts as it does with any other eps. */
TEST(numbers_keys_of_zeros_without_eps) {
    int i, w, mode;
    for (i = 3; i <= 5; i++) {
        for (mode = LA_L2_SUM; mode <= LA_L2_MAX; mode++) {
            Spec spec = kind_spec(i, 37);
            Problem *problem;
            size_t count;
            Way way;
            spec.gate = GATE_MILD;
            spec.l2_mode = mode;
            problem = problem_new(&spec); /* some of its keys are zeros */
            set_rows(problem, &problem->q, 1, 20, 0);
            for (w = 0; way_number(w, &way); w++) {
                float *want, *got;
                problem->layer.l2_eps = 1e-30f;
                want = result_of(problem, &way, &count);
                problem->layer.l2_eps = 0;
                got = result_of(problem, &way, &count);
                check_same_bits(problem, got, want, count);
            }
            problem_free(problem);
        }
    }
}

/* beta = 2 reflects at the same key again and again. */
static void check_repeated(const Spec *spec, float beta, const char *note) {
    Problem *problem = problem_new(spec);
    int64_t t;
    for (t = 0; t < spec->T; t++) {
        memcpy(out_row(&problem->k, 0, t, 0), out_row(&problem->k, 0, 0, 0),
               (size_t)spec->dk * sizeof(float));
        fill_row(out_row(&problem->beta, 0, t, 0), problem->beta.width, beta);
    }
    check_right(problem, note);
    check_quiet(problem, note, QUIET_NAN);
    problem_free(problem);
}

static void check_repeated_keys(int l2_mode) {
    static const Gate gates[] = {GATE_NONE, GATE_ZERO, GATE_SLOW, GATE_MILD};
    int i, g;
    for (i = 3; i <= 5; i++) {
        for (g = 0; g < COUNT(gates); g++) {
            Spec spec = kind_spec(i, 256);
            spec.gate = gates[g];
            spec.l2_mode = l2_mode;
            spec.layout = g % 2;
            check_repeated(&spec, 1, "repeated, beta 1");
            check_repeated(&spec, 2, "repeated, beta 2");
            spec.zero_keys = 1;
            check_repeated(&spec, 2, "zero keys");
        }
    }
}

TEST(numbers_keys_repeated) {
    check_repeated_keys(LA_L2_OFF);
}

TEST(numbers_keys_repeated_of_any_length) {
    check_repeated_keys(LA_L2_SUM);
    check_repeated_keys(LA_L2_MAX);
}

/* ---------------------------------------------------------------- features */

static const float *stored(const Problem *problem, int64_t i, int64_t j) {
    return problem->states + oracle_state_index(&problem->layer, 0, i, j);
}

/* z is phi of the only key. */
static void check_phi(const Problem *problem) {
    int64_t i;
    for (i = 0; i < problem->spec.dk; i++) {
        double want = exp((double)out_row(&problem->k, 0, 0, 0)[i]);
        double got = (double)*stored(problem, i, problem->spec.dv);
        CHECK(fabs(got - want) < 1e-6 * want, "phi(%g) = %.9g, want %.9g: %s", log(want), got, want,
              problem_text(problem));
    }
}

TEST(numbers_elu_of_very_negative_keys) {
    static const float keys[] = {-15, -17, -20, -87, -60, -36.5f, -1, -1e-7f, -86.99f};
    Spec spec = {.variant = LA_ELU, .T = 1, .dk = COUNT(keys), .dv = 5, .states = STATES_OUT};
    Way way;
    int i;
    for (spec.layout = LA_KV; spec.layout <= LA_VK; spec.layout++) {
        for (spec.bidirectional = 0; spec.bidirectional < 2; spec.bidirectional++) {
            Problem *problem = problem_new(&spec);
            problem->note = "negative keys";
            memcpy(out_row(&problem->k, 0, 0, 0), keys, sizeof keys);
            for (i = 0; way_number(i, &way); i++) {
                problem_run(problem, &way);
                check_phi(problem);
            }
            problem_free(problem);
        }
    }
}

/* Rows of the projection without a negative number: negative queries have no feature. */
static void make_projection_positive(Problem *problem) {
    int64_t i;
    for (i = 0; problem->layer.projection != NULL && i < problem->spec.features * problem->spec.dk;
         i++) {
        problem->buffers[0][i] = fabsf(problem->buffers[0][i]);
    }
}

/* Which tokens have a query without any positive channel. */
static int is_negative(int64_t t, int part) {
    return part == 0 || (part == 1 ? t % 6 == 5 || t % 16 == 0 : t > 30);
}

static void check_zeros(Problem *problem, int part) {
    int64_t t, h, i, wrong = 0;
    for (t = 0; t < problem->spec.T; t++) {
        for (h = 0; is_negative(t, part) && h < oracle_out_heads(&problem->layer); h++) {
            for (i = 0; i < problem->spec.dv; i++) {
                wrong += out_row(&problem->call.out, 0, t, h)[i] == 0 ? 0 : 1;
            }
        }
    }
    CHECK(wrong == 0, "%d outputs are not 0: %s", (int)wrong, problem_text(problem));
}

static void check_negative_queries(const Spec *spec, int part) {
    Problem *problem = problem_new(spec);
    int64_t t;
    Way way;
    int w;
    make_projection_positive(problem);
    for (t = 0; t < spec->T; t++) {
        if (is_negative(t, part)) {
            set_rows(problem, &problem->q, problem->spec.Hq, t, -1e-3f - (float)t);
        }
    }
    problem->note = "negative queries";
    problem_oracle(problem);
    for (w = 0; way_number(w, &way); w++) {
        int raised = raises(problem, &way, QUIET_NAN);
        CHECK(!raised, "overflow or invalid: %s", problem_text(problem));
        problem_run(problem, &way);
        problem_check(problem);
        check_zeros(problem, part);
    }
    problem_free(problem);
}

/* Every feature of the query is 0, and so the denominator; no output is 0 / 0. */
TEST(numbers_relu_of_negative_queries) {
    static const int chosen[] = {12, 13, 16};
    int i, part;
    for (i = 0; i < COUNT(chosen); i++) {
        for (part = 0; part < 3; part++) {
            Spec spec = kind_spec(chosen[i], 67);
            spec.gate = part % 2 ? GATE_MILD : GATE_NONE;
            spec.feature_eps = 0;
            spec.positive = 1;
            spec.Hq = 2;
            spec.states = part == 1 ? STATES_OUT : STATES_BOTH;
            check_negative_queries(&spec, part);
            spec.eps = 1e-6f;
            spec.eps_mode = part % 2 ? LA_EPS_MAX : LA_EPS_ADD;
            check_negative_queries(&spec, part);
        }
    }
}

/* No key has a feature: z is 0, and whatever is asked, the answer is 0. */
TEST(numbers_relu_of_negative_keys) {
    static const int chosen[] = {12, 13, 16};
    int i, w;
    for (i = 0; i < COUNT(chosen); i++) {
        Spec spec = kind_spec(chosen[i], 37);
        Problem *problem;
        int64_t t;
        Way way;
        spec.feature_eps = 0;
        spec.states = STATES_OUT;
        problem = problem_new(&spec);
        problem->note = "negative keys";
        make_projection_positive(problem);
        for (t = 0; t < spec.T; t++) {
            set_rows(problem, &problem->k, 1, t, -0.5f);
        }
        problem_oracle(problem);
        for (w = 0; way_number(w, &way); w++) {
            problem_run(problem, &way);
            problem_check(problem);
            check_zeros(problem, 0);
        }
        problem_free(problem);
    }
}

/* Keys along one row of the projection, queries along another: all products underflow. */
static void set_apart(Problem *problem, float size) {
    int64_t t, i, dk = problem->spec.dk;
    fill_row(problem->buffers[0], problem->spec.features * dk, 0);
    for (i = 0; i < problem->spec.features; i++) {
        problem->buffers[0][i * dk + i % 2] = 1;
    }
    for (t = 0; t < problem->spec.T; t++) {
        set_rows(problem, &problem->q, 1, t, 0);
        set_rows(problem, &problem->k, 1, t, 0);
        out_row(&problem->q, 0, t, 0)[0] = size;
        out_row(&problem->k, 0, t, 0)[1] = size;
    }
}

TEST(numbers_favor_whose_products_underflow) {
    static const float sizes[] = {100, 300, 1000};
    int kernel, n, w;
    for (kernel = LA_FAVOR_POSITIVE; kernel <= LA_FAVOR_RELU; kernel++) {
        for (n = 0; n < 2 * COUNT(sizes); n++) {
            Spec spec = {.variant = LA_FAVOR, .T = 37, .dk = 5, .dv = 7, .features = 6};
            Problem *problem;
            Way way;
            spec.states = STATES_OUT;
            spec.favor_kernel = kernel;
            spec.bidirectional = n % 2;
            problem = problem_new(&spec);
            problem->note = "products that underflow";
            set_apart(problem, sizes[n / 2]);
            for (w = 0; way_number(w, &way); w++) {
                int raised = raises(problem, &way, QUIET_NAN);
                CHECK(!raised, "overflow or invalid: %s", problem_text(problem));
                check_zeros(problem, 0);
            }
            problem_free(problem);
        }
    }
}

/* Inputs up to 1e3, and what eps and feature_eps become relative to such maxima. */
TEST(numbers_nothing_traps_in_features) {
    static const float sizes[] = {1, 30, 1000};
    int i, n, e;
    for (i = FEATURED; i < BY_CHANNEL; i++) {
        for (n = 0; n < COUNT(sizes); n++) {
            for (e = 0; e < 4; e++) {
                Spec spec = kind_spec(i, 37);
                Problem *problem;
                int64_t t, c;
                spec.gate = GATE_MILD;
                spec.states = STATES_OUT;
                spec.eps = e % 2 ? 1e-6f : 0;
                spec.eps_mode = e / 2 ? LA_EPS_MAX : LA_EPS_ADD;
                spec.feature_eps = e / 2 ? 1e-4f : 0;
                problem = problem_new(&spec);
                for (t = 0; t < spec.T; t++) {
                    for (c = 0; c < spec.dk; c++) {
                        out_row(&problem->q, 0, t, 0)[c] *= sizes[n];
                        out_row(&problem->k, 0, t, 0)[c] *= sizes[n];
                    }
                }
                check_quiet(problem, "large features", QUIET_NAN);
                problem_free(problem);
            }
        }
    }
}

/* ---------------------------------------------------------------- means and multiples */

/* All values 1, and every column of S equal to z. */
static void set_ones(Problem *problem) {
    int64_t i, j, r = oracle_features(&problem->layer), dv = problem->spec.dv;
    float *state = problem->state_start;
    set_values(problem, 1);
    for (i = 0; state != NULL && i < r; i++) {
        for (j = 0; j < dv; j++) {
            state[oracle_state_index(&problem->layer, 0, i, j)] =
                state[oracle_state_index(&problem->layer, 0, i, dv)];
        }
    }
}

static void check_ones(Problem *problem, const Way *way) {
    double worst = 0, limit = promise_1(&problem->layer, &problem->call, 0, 0);
    size_t i;
    if (!problem_run(problem, way)) {
        return;
    }
    for (i = 0; i < problem->out_floats; i++) {
        double error = fabs((double)problem->out_start[i] - 1);
        worst = error <= worst ? worst : error;
    }
    CHECK(worst <= limit, "|o - 1| = %g, limit %g: %s", worst, limit,
          worst <= limit ? "" : problem_text(problem));
}

/* However strong the gates: numerator and denominator forget alike. */
TEST(numbers_means_of_ones_are_one) {
    int i, n, w;
    for (i = FEATURED; i < BY_CHANNEL; i++) {
        Spec spec = kind_spec(i, SWEEP_T);
        Problem *problem;
        Way way;
        if (spec.variant == LA_DPFP) {
            continue; /* has no denominator */
        }
        spec.positive = 1;
        spec.states = i % 2 ? STATES_BOTH : STATES_OUT;
        problem = problem_new(&spec);
        set_ones(problem);
        for (n = 0; n < COUNT(patterns); n++) {
            set_gates(problem, &patterns[n], sweep_gates[(7 * n + i) % COUNT(sweep_gates)],
                      1 + n % 2);
            problem->note = patterns[n].name;
            for (w = 0; way_number(w, &way); w++) {
                check_ones(problem, &way);
            }
        }
        problem_free(problem);
    }
}

static void scale_values(Problem *problem, float factor) {
    int64_t t, i;
    for (t = 0; t < problem->spec.keys; t++) {
        for (i = 0; i < problem->spec.dv; i++) {
            out_row(&problem->v, 0, t, 0)[i] *= factor;
        }
    }
    for (i = 0; problem->state_start != NULL && i < (int64_t)problem->state_floats; i++) {
        problem->state_start[i] *= factor;
    }
}

static void check_multiples(Problem *problem, const Way *way) {
    static const float factors[] = {1.0f / 1073741824, 1099511627776.0f, 4};
    size_t count, i;
    int n;
    for (n = 0; n < COUNT(factors); n++) {
        float *want = result_of(problem, way, &count), *got;
        for (i = 0; i < count; i++) {
            want[i] *= factors[n];
        }
        scale_values(problem, factors[n]);
        got = result_of(problem, way, &count);
        scale_values(problem, 1 / factors[n]);
        check_same_bits(problem, got, want, count);
    }
}

/* Past the end of blocks and chunks, with gates that forget all or little: what is nearly
   forgotten would be denormal, where multiples are rounded differently. */
TEST(numbers_multiples_by_powers_of_two) {
    static const float gates[] = {-INFINITY, -1e6f, -2.5f, -0.1f};
    int i, n, w;
    for (i = 0; i < 7; i++) {
        Spec spec = kind_spec(i, SWEEP_T);
        Problem *problem;
        Way way;
        spec.layout = i % 2;
        problem = problem_new(&spec);
        problem->note = "times a power of two";
        for (n = 0; n < COUNT(gates); n++) {
            set_gates(problem, &patterns[3 + 2 * n], gates[n], 1 + n % 2);
            for (w = 0; way_number(w, &way); w++) {
                check_multiples(problem, &way);
            }
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- long runs */

enum { LONG_T = 1000000, PIECE = 997, PIECES = LONG_T / PIECE + 1 };

/* The recurrences, once each, and what is hardest for sums: gates that hardly forget. */
static const struct LongKind {
    const char *name;
    Spec spec;
} long_kinds[] = {
    {"retnet", {.variant = LA_RETNET, .gate = GATE_FILLED, .gate_value = -0.001f}},
    {"lightning", {.variant = LA_LIGHTNING, .gate = GATE_FILLED, .gate_value = -1e-5f}},
    {"gla", {.variant = LA_GLA, .gate = GATE_MILD, .gate_channel = 1}},
    {"gla, slow", {.variant = LA_GLA, .gate = GATE_SLOW, .gate_channel = 1}},
    {"deltanet", {.variant = LA_DELTANET, .beta = BETA_TOKEN}},
    {"gated deltanet", {.variant = LA_GATED_DELTANET, .gate = GATE_MILD, .beta = BETA_TOKEN}},
    {"gated deltanet by channel, slow",
     {.variant = LA_KDA, .gate = GATE_SLOW, .gate_channel = 1, .beta = BETA_TOKEN}},
    {"elu + 1", {.variant = LA_ELU}},
    {"favor+", {.variant = LA_FAVOR, .features = 8}},
    {"cosformer", {.variant = LA_COSFORMER, .positive = 1}},
    {"dpfp", {.variant = LA_DPFP, .beta = BETA_TOKEN}},
    {"based", {.variant = LA_BASED}},
    {"hedgehog", {.variant = LA_HEDGEHOG, .features = 8}},
    {"rff", {.variant = LA_RFF, .features = 20, .normalised = -1}}, /* its z is next to constant */
    {"rwkv6, slow", {.variant = LA_RWKV6, .gate = GATE_SLOW, .gate_channel = 1}},
    {"rwkv7", {.variant = LA_RWKV7, .gate = GATE_MILD, .gate_channel = 1}},
    {"gdn2, slow", {.variant = LA_GDN2, .gate = GATE_SLOW, .gate_channel = 1, .beta = BETA_TOKEN}},
};

/* |got - want| / |want| over the last tokens, and of the final state. */
static double last_error(const Problem *problem, int64_t tokens) {
    const double *want = problem->want.out;
    int64_t i, dv = problem->spec.dv, end = problem->spec.T * dv;
    double error = 0, size = 0;
    for (i = end - tokens * dv; i < end; i++) {
        double difference = (double)problem->call.out.data[i] - want[i];
        error += difference * difference;
        size += want[i] * want[i];
    }
    return sqrt(error / size);
}

static double state_error(const Problem *problem) {
    int64_t i, j, r = oracle_features(&problem->layer), dv = problem->spec.dv;
    double error = 0, size = 0, m = 1;
    if (oracle_has_maximum(&problem->layer)) {
        m = exp((double)*stored(problem, r, 0) - problem->want.state[r * dv + r]);
    }
    for (i = 0; i < r; i++) {
        for (j = 0; j < dv; j++) {
            double want = problem->want.state[i * dv + j];
            double difference = m * (double)*stored(problem, i, j) - want;
            error += difference * difference;
            size += want * want;
        }
    }
    return sqrt(error / size);
}

static int run_long(Problem *problem, const Way *way) {
    static int64_t lengths[PIECES];
    int64_t left = problem->spec.T;
    int count = 0;
    for (; left > 0; left -= PIECE) {
        lengths[count++] = left < PIECE ? left : PIECE;
    }
    return problem_run_split(problem, way, lengths, count) && problem_check(problem);
}

/* In calls that carry the state, with other instruction sets at each turn. What is printed is the
   error of the last thousand outputs, and of the state, relative to their size. */
static void check_long(const struct LongKind *kind, int turn) {
    static const char *const names[] = {"tokens", "pairs", "chunks"};
    Spec spec = kind->spec;
    Problem *problem;
    int f, isas = 0, isa, thin = thinning();
    spec.T = LONG_T / thin;
    spec.dk = 8;
    spec.dv = 4;
    spec.layout = turn % 2;
    spec.states = STATES_SAME;
    problem = problem_new(&spec);
    problem->note = "a million steps";
    while (isa_number(isas, &isa)) {
        isas++;
    }
    printf("     %s, %d steps:", kind->name, (int)spec.T);
    for (f = 0; f < (thin > 1 ? 1 : 3); f++) {
        Way way = {LA_CHUNKWISE, 0, 0, 1};
        way.form = f == 0 ? LA_RECURRENT : LA_CHUNKWISE;
        way.chunk = f < 2 ? 0 : turn % 2 ? 64 : 16;
        isa_number((turn + f) % isas, &way.isa);
        run_long(problem, &way);
        printf(" %s %.1g, %.1g;", names[f], last_error(problem, 1000), state_error(problem));
    }
    printf("\n");
    problem_free(problem);
}

TEST(numbers_a_million_steps) {
    int i;
    for (i = 0; i < COUNT(long_kinds); i++) {
        check_long(&long_kinds[i], i);
    }
}

/* ---------------------------------------------------------------- states that die away */

/* From then on no key and no value, and no query unless asked for. */
static void silence(Problem *problem, int64_t from, int queries) {
    int64_t t;
    for (t = from; t < problem->spec.T; t++) {
        set_rows(problem, &problem->k, problem->spec.Hk, t, 0);
        set_rows(problem, &problem->v, problem->spec.H, t, 0);
        if (!queries) {
            set_rows(problem, &problem->q, problem->spec.Hq, t, 0);
        }
    }
}

static void check_finite(Problem *problem, const Way *way) {
    size_t count, i, bad = 0;
    float *result = result_of(problem, way, &count);
    for (i = 0; i < count; i++) {
        bad += fabsf(result[i]) < 1e4f ? 0 : 1;
    }
    CHECK(bad == 0, "%zu numbers are no ordinary ones: %s", bad, bad ? problem_text(problem) : "");
    free(result);
}

TEST(numbers_silence_stays_finite) {
    static const float gates[] = {0, -1e-3f, -0.05f, -0.3f, -2, -20};
    int i, g, w;
    for (i = 0; i < KINDS; i++) {
        for (g = 0; g < COUNT(gates); g++) {
            Spec spec = kind_spec(i, 700);
            Problem *problem;
            Way way;
            spec.gate_value = gates[g];
            spec.layout = g % 2;
            problem = problem_new(&spec);
            problem->note = "silence";
            silence(problem, 20, (g + i) % 2);
            for (w = 0; way_number(w, &way); w++) {
                check_finite(problem, &way);
            }
            problem_free(problem);
        }
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* From the state, which is copied to where the call reads it. */
static double time_of(Problem *problem, la_call *call, const float *state) {
    double start;
    memcpy(problem->state_start, state, problem->state_floats * sizeof *state);
    start = seconds();
    la_forward(&problem->layer, call);
    return seconds() - start;
}

/* Elsewhere the tests run in an emulator, whose times say nothing of the machine. */
#if defined(__x86_64__) || defined(__i386__)
static const int is_timed = 1;
#else
static const int is_timed = 0;
#endif

/* The least time from each state, measured by turns in the same memory; more turns where the second
   one seems to be too slow. */
static double slowdown(Problem *problem, const Way *way, float *const states[2], double limit) {
    la_call call = filled_call(problem, way, 0);
    double least[2] = {1e9, 1e9}, ratio = 9;
    int i, turn;
    for (turn = 0; turn < (is_timed ? 5 : 1) || (turn < 60 && ratio > limit && is_timed); turn++) {
        for (i = 0; i < 2; i++) {
            double time = time_of(problem, &call, states[i]);
            least[i] = time < least[i] ? time : least[i];
        }
        ratio = least[1] / least[0];
    }
    guarded_free(call.workspace);
    return ratio;
}

/* The second one has numbers without a leading bit, or soon will. */
static void new_states(const Problem *problem, float size, float *states[2]) {
    size_t i, count = problem->state_floats;
    states[0] = guarded_new(count, 0);
    states[1] = guarded_new(count, 0);
    memcpy(states[0], problem->state_start, count * sizeof *states[0]);
    for (i = 0; i < count; i++) {
        states[1][i] = random_uniform(-size, size);
    }
}

static double worst_slowdown(const Spec *spec, float size, double limit) {
    Problem *problem = problem_new(spec);
    float *states[2];
    double worst = 0;
    Way way;
    int w;
    problem->note = "dying";
    silence(problem, 0, 1);
    new_states(problem, size, states);
    for (w = 0; way_number(w, &way); w++) {
        double ratio = slowdown(problem, &way, states, limit);
        worst = ratio > worst ? ratio : worst;
        CHECK(ratio <= limit || !is_timed, "%.2f times as long: %s", ratio, problem_text(problem));
    }
    guarded_free(states[0]);
    guarded_free(states[1]);
    problem_free(problem);
    return worst;
}

static void check_dying(const int *chosen, int count, int64_t tokens, float gate, float size,
                        double limit) {
    double worst = 0;
    int i;
    for (i = 0; i < 2 * count; i++) {
        Spec spec = kind_spec(chosen[i / 2], tokens);
        double ratio;
        spec.dk = spec.dv = 64;
        spec.Hq = 1;
        spec.layout = i % 2;
        spec.gate_value = gate;
        ratio = worst_slowdown(&spec, size, limit);
        worst = ratio > worst ? ratio : worst;
    }
    printf("     a dying state takes up to %.2f times as long\n", worst);
}

/* What rounding no longer lets decay. */
TEST(numbers_dying_states_are_not_slow) {
    static const int chosen[] = {0, 2, 4, 5, 7, 22, 24, 26};
    check_dying(chosen, COUNT(chosen), 128, -1e-3f, 1e-41f, 2);
}

/* Here it dies on the way: while it does, its products lack a leading bit; but not for long. */
TEST(numbers_states_that_die_in_a_call_are_not_slow) {
    static const int chosen[] = {0, 2, 5, 7};
    check_dying(chosen, COUNT(chosen), 1500, -0.05f, 1e-33f, 5);
}

#if defined(__x86_64__) && defined(__GNUC__)
/* A state of 1e-37 that forgets a hundredth at each token has reached 0 after 2000 of them: from
   then on no operand may lack a leading bit, for where that is slow it would stay so forever. */
enum { DEAD_PIECE = 100, DEAD_PIECES = 50, DENORMAL_OPERAND = 2 };

static int piece_is_slow(Problem *problem, la_call *call) {
    _mm_setcsr(_mm_getcsr() & ~(unsigned)DENORMAL_OPERAND);
    la_forward(&problem->layer, call);
    call->state_in = call->state_out;
    return (_mm_getcsr() & DENORMAL_OPERAND) != 0;
}

static void check_dead(Problem *problem, const Way *way) {
    la_call call = filled_call(problem, way, 0);
    int n, slow = 0;
    for (n = 0; n < DEAD_PIECES; n++) {
        int is_slow = piece_is_slow(problem, &call);
        slow += n >= 25 && is_slow;
    }
    guarded_free(call.workspace);
    CHECK(slow == 0, "%d of the last 25 calls had denormal operands: %s", slow,
          slow ? problem_text(problem) : "");
}

TEST(numbers_dead_states_are_not_slow) {
    static const int chosen[] = {0, 2, 4, 5, 9, 22, 24, 26};
    int i, w;
    for (i = 0; i < 2 * COUNT(chosen); i++) {
        Spec spec = kind_spec(chosen[i / 2], DEAD_PIECE);
        Problem *problem;
        Way way;
        spec.layout = i % 2;
        spec.gate_value = -0.01f;
        spec.state_size = 1e-37f;
        problem = problem_new(&spec);
        problem->note = "dead";
        silence(problem, 0, 1);
        for (w = 0; way_number(w, &way); w++) {
            check_dead(problem, &way);
        }
        problem_free(problem);
    }
}
#endif

/* ---------------------------------------------------------------- NaN and infinity */

typedef enum Place {
    IN_Q,
    IN_K,
    IN_V,
    IN_GATE,
    IN_BETA,
    IN_STATE,
    IN_Z,
    IN_MAXIMUM,
    IN_W,
    PLACES
} Place;

enum { FAULT_T = 71, FAULT_HEAD = 1 };

/* One element, in head 1 of 2: of token t, or row t of a state or of the projection. */
typedef struct Fault {
    Place place;
    int64_t t, i;
    float value;
} Fault;

static float *fault_element(Problem *problem, const Fault *fault) {
    const la_out *views[] = {&problem->q, &problem->k, &problem->v, &problem->log_decay,
                             &problem->beta};
    const la_layer *layer = &problem->layer;
    int64_t rows = oracle_features(layer);
    switch (fault->place) {
    case IN_STATE:
        return problem->state_start + oracle_state_index(layer, FAULT_HEAD, fault->t, fault->i);
    case IN_Z:
        return problem->state_start + oracle_state_index(layer, FAULT_HEAD, fault->t, layer->dim_v);
    case IN_MAXIMUM: return problem->state_start + oracle_state_index(layer, FAULT_HEAD, rows, 0);
    case IN_W:
        return problem->buffers[0] + layer->projection_head_stride * FAULT_HEAD +
               fault->t * layer->dim_k + fault->i;
    default: return out_row(views[fault->place], 0, fault->t, FAULT_HEAD) + fault->i;
    }
}

static int fault_exists(const Problem *problem, Place place) {
    switch (place) {
    case IN_GATE: return problem->log_decay.data != NULL;
    case IN_BETA: return problem->beta.data != NULL;
    case IN_Z: return problem->layer.normalised;
    case IN_MAXIMUM: return oracle_has_maximum(&problem->layer);
    case IN_W: return problem->layer.projection != NULL;
    default: return 1;
    }
}

/* Whether o[t][h][i] depends on it, by the recurrence. */
static int fault_reaches(const Problem *problem, const Fault *fault, int64_t t, int64_t h,
                         int64_t i) {
    int later = t >= fault->t || problem->spec.bidirectional, head = h == FAULT_HEAD;
    switch (fault->place) {
    case IN_Q: return head && t == fault->t;
    case IN_V: return head && later && i == fault->i;
    case IN_BETA: return head && later && (problem->beta.width == 1 || i == fault->i);
    case IN_STATE: return head && i == fault->i;
    case IN_Z:
    case IN_MAXIMUM: return head;
    case IN_GATE: return head && (later && (problem->layer.read == LA_READ_AFTER || t > fault->t));
    case IN_W: return head || problem->layer.projection_head_stride == 0;
    default: return head && later;
    }
}

/* A NaN has to show, an infinity may vanish in an exponential or a comparison. Where the token is
   read before its gate acts, that may yet begin another chunk, which rounds otherwise. */
static void check_fault(Problem *problem, const Fault *fault, const float *want) {
    int64_t t, h, i, wrong = 0, spared = 0;
    int first = problem->layer.read == LA_READ_BEFORE && fault->place == IN_GATE;
    for (t = 0; t < FAULT_T; t++) {
        for (h = 0; h < 2; h++) {
            const float *got = out_row(&problem->call.out, 0, t, h);
            for (i = 0; i < problem->spec.dv; i++, want++) {
                if (first && t == fault->t && h == FAULT_HEAD) {
                    wrong += !isfinite(got[i]);
                } else if (!fault_reaches(problem, fault, t, h, i)) {
                    wrong += memcmp(&got[i], want, sizeof *want) != 0;
                } else {
                    spared += isnan(fault->value) && !isnan(got[i]);
                }
            }
        }
    }
    CHECK(wrong == 0 && spared == 0,
          "%g in tensor %d [%d][%d]: %d outputs changed that do not depend on it, %d are no NaN: "
          "%s",
          (double)fault->value, fault->place, (int)fault->t, (int)fault->i, (int)wrong, (int)spared,
          wrong + spared ? problem_text(problem) : "");
}

static void run_fault(Problem *problem, const Way *way, const Fault *fault, const float *want) {
    float *element = fault_element(problem, fault), before = *element;
    *element = fault->value;
    if (problem_run(problem, way)) {
        check_fault(problem, fault, want);
    }
    *element = before;
}

/* At both ends of blocks; -inf is a gate like any other. */
static void check_faults(Problem *problem, const Way *way) {
    static const float values[] = {NAN, -INFINITY};
    static const int64_t tokens[] = {0, 5, 31, 32, 63, 64, 70};
    size_t count;
    Fault fault = {IN_Q, 0, 0, 0};
    float *want;
    int v, n;
    problem_run(problem, way);
    want = problem_copy_out(problem, &count);
    for (fault.place = IN_Q; fault.place < PLACES; fault.place++) {
        int few = fault.place >= IN_STATE;
        for (v = 0; fault_exists(problem, fault.place) && v < COUNT(values); v++) {
            for (n = 0; n < (few ? 2 : COUNT(tokens)); n++) {
                fault.t = few ? 2 * n : tokens[n];
                fault.i = random_below(fault.place == IN_GATE   ? (int)problem->log_decay.width
                                       : fault.place == IN_BETA ? (int)problem->beta.width
                                                                : 5);
                fault.value = values[v];
                run_fault(problem, way, &fault, want);
            }
        }
    }
    free(want);
}

static void check_fault_kind(Spec spec) {
    Problem *problem;
    Way way;
    int w;
    spec.H = 2;
    spec.Hq = 2;
    spec.positive = 1;
    spec.dv = spec.dv < 5 ? 5 : spec.dv;
    problem = problem_new(&spec);
    problem->note = "fault";
    for (w = 0; way_number(w, &way); w++) {
        check_faults(problem, &way);
    }
    problem_free(problem);
}

TEST(numbers_faults_stay_where_they_belong) {
    int i;
    for (i = 0; i < KINDS; i++) {
        Spec spec = kind_spec(i, FAULT_T);
        spec.gate = i % 2 ? GATE_MILD : GATE_MIXED;
        spec.layout = i % 2;
        spec.head_projections = i % 2;
        check_fault_kind(spec);
    }
}

/* One NaN for all tokens: all of its head, also where there was no state to forget. */
TEST(numbers_faults_in_gates_per_head) {
    int i, w;
    for (i = 0; i < KINDS; i++) {
        Spec spec = kind_spec(i, FAULT_T);
        Fault fault = {IN_GATE, 0, 0, NAN};
        Problem *problem;
        Way way;
        spec.H = spec.Hq = 2;
        spec.positive = 1;
        spec.gate = GATE_HEAD;
        spec.gate_channel = 0;
        spec.states = i % 2 ? STATES_OUT : STATES_BOTH;
        problem = problem_new(&spec);
        problem->note = "NaN for a head";
        for (w = 0; way_number(w, &way); w++) {
            size_t count;
            float *want;
            problem_run(problem, &way);
            want = problem_copy_out(problem, &count);
            run_fault(problem, &way, &fault, want);
            free(want);
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- what memory held */

static float *filled_result(Problem *problem, const Way *way, uint32_t bits, size_t *count) {
    la_call call = filled_call(problem, way, bits);
    la_forward(&problem->layer, &call);
    guarded_free(call.workspace);
    return copy_result(problem, count);
}

/* With states in and out, and with either of them absent. */
TEST(numbers_poisoned_buffers_change_nothing) {
    static const States states[] = {STATES_BOTH, STATES_OUT, STATES_IN, STATES_NONE};
    static const int64_t lengths[] = {1, 8, 71};
    int i, n, f, w;
    for (i = 0; i < KINDS; i++) {
        for (n = 0; n < COUNT(lengths) * COUNT(states); n++) {
            Spec spec = kind_spec(i, lengths[n / COUNT(states)]);
            Problem *problem;
            Way way;
            spec.gate = n % 2 ? GATE_MIXED : GATE_MILD;
            spec.states = states[n % COUNT(states)];
            spec.layout = n % 2;
            problem = problem_new(&spec);
            problem->note = "poisoned";
            for (w = 0; way_number(w, &way); w++) {
                size_t count;
                for (f = 1; f < FILLS; f++) {
                    float *want = filled_result(problem, &way, 0, &count);
                    float *got = filled_result(problem, &way, fills[f], &count);
                    check_same_bits(problem, got, want, count);
                }
            }
            problem_free(problem);
        }
    }
}
