/* The eight promises of the contract, each as tests named after it. Every test goes through the
   variants that it concerns, both state layouts, every form and every instruction set of this
   machine. (Promise 1 for the other variants is in test_features.c.) */
#define _POSIX_C_SOURCE 200809L

#include "linear_attention.h"

#include "oracle.h"
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---------------------------------------------------------------- what to try */

/* The inputs of a token, in the order of problem_inputs; then the state's. */
typedef enum Tensor {
    IN_Q,
    IN_K,
    IN_V,
    IN_GATE,
    IN_BETA,
    IN_ERASE,
    IN_BONUS,
    IN_A,
    IN_B,
    IN_SKIP,
    IN_OUT_GATE,
    IN_STATE,
    IN_NORM,
    TENSORS
} Tensor;
enum { FORMS = 8, INPUTS = IN_STATE };

/* Two cases to a row, one for each layout of the state. The bidirectional ones come last. */
static const Spec rows[] = {
    {.variant = LA_RETNET, .gate = GATE_MILD},
    {.variant = LA_DELTANET, .beta = BETA_TOKEN},
    {.variant = LA_GATED_DELTANET, .gate = GATE_MILD, .beta = BETA_TOKEN},
    {.variant = LA_LIGHTNING, .gate = GATE_MILD},
    {.variant = LA_GLA, .gate = GATE_MILD, .gate_channel = 1},
    {.variant = LA_KDA, .gate = GATE_MILD, .gate_channel = 1, .beta = BETA_TOKEN},
    {.variant = LA_RWKV6, .gate = GATE_MILD, .gate_channel = 1, .token_bonus = 1},
    {.variant = LA_RWKV7, .gate = GATE_MILD, .gate_channel = 1},
    {.variant = LA_GDN2, .gate = GATE_MILD, .gate_channel = 1, .beta = BETA_CHANNEL},
    {.variant = LA_MAMBA2, .gate = GATE_MILD, .skip = 2, .out_gate = 1},
    {.variant = LA_RWKV7, .gate = GATE_MILD, .skip = 1, .out_gate = 1},
    {.variant = LA_ELU},
    {.variant = LA_ELU, .gate = GATE_MILD, .gate_channel = 1},
    {.variant = LA_FAVOR, .features = 11, .gate = GATE_MILD},
    {.variant = LA_COSFORMER, .position = 5},
    {.variant = LA_DPFP, .nu = 2, .beta = BETA_TOKEN},
    {.variant = LA_BASED, .gate = GATE_MILD},
    {.variant = LA_HEDGEHOG, .features = 11, .query_projection = 1, .projection_bias = 1},
    {.variant = LA_RFF, .features = 40, .gate = GATE_MILD, .head_projections = 1},
    {.variant = LA_MAPPED, .positive = 1, .gate = GATE_MILD, .gate_channel = 1},
    {.variant = LA_ELU, .bidirectional = 1},
    {.variant = LA_FAVOR, .features = 11, .bidirectional = 1},
    {.variant = LA_COSFORMER, .position = 5, .bidirectional = 1},
    {.variant = LA_BASED, .bidirectional = 1},
    {.variant = LA_HEDGEHOG, .features = 11, .bidirectional = 1},
    {.variant = LA_RFF, .features = 40, .query_projection = 1, .bidirectional = 1},
    {.variant = LA_MAPPED, .positive = 1, .bidirectional = 1},
    {.variant = LA_ELU, .bidirectional = 1, .out_gate = 1},
};
enum { SCALAR_CASES = 6, CAUSAL_CASES = 40, CASES = 2 * COUNT(rows) };

static const Way forms[FORMS] = {{LA_AUTO, 0, 0, 1},       {LA_PARALLEL, 0, 0, 1},
                                 {LA_RECURRENT, 0, 0, 1},  {LA_CHUNKWISE, 0, 0, 1},
                                 {LA_CHUNKWISE, 0, 1, 1},  {LA_CHUNKWISE, 0, 5, 1},
                                 {LA_CHUNKWISE, 0, 16, 1}, {LA_CHUNKWISE, 0, 64, 1}};

static int next_way(int i, Way *way) {
    i = thinned(i);
    *way = forms[i % FORMS];
    return isa_number(i / FORMS, &way->isa);
}

/* Different primes for the dimensions, two panels of columns. */
static Spec case_spec(int i, int64_t T) {
    Spec spec = rows[i / 2];
    spec.layout = i % 2;
    spec.T = T;
    spec.H = 2;
    spec.dk = 7;
    spec.dv = 19;
    return spec;
}

/* q and the gate of outputs have a row for each token, the other inputs have one for each key. */
static int64_t input_tokens(const Problem *problem, int64_t n) {
    return n == IN_Q || n == IN_OUT_GATE ? problem->spec.T : problem->spec.keys;
}

static void problem_inputs(const Problem *problem, la_out views[INPUTS], int64_t heads[INPUTS]) {
    const la_layer *layer = &problem->layer;
    const la_out all[INPUTS] = {problem->q,    problem->k,     problem->v,       problem->log_decay,
                                problem->beta, problem->erase, problem->bonus,   problem->a,
                                problem->b,    problem->skip,  problem->out_gate};
    int64_t counts[INPUTS] = {layer->q_heads, layer->k_heads};
    int n;
    for (n = 2; n < INPUTS; n++) {
        counts[n] = n == IN_OUT_GATE ? oracle_out_heads(layer) : layer->heads;
    }
    memcpy(views, all, sizeof all);
    memcpy(heads, counts, sizeof counts);
}

/* Copies every input from one problem to another, whatever the strides of both. They share a
   projection, `from` being freed last. */
static void copy_inputs(const Problem *from, Problem *to) {
    la_out source[INPUTS], target[INPUTS];
    int64_t heads[INPUTS], b, t, h, n;
    problem_inputs(from, source, heads);
    problem_inputs(to, target, heads);
    to->layer.projection = from->layer.projection;
    to->layer.q_projection = from->layer.q_projection;
    for (n = 0; n < INPUTS; n++) {
        for (b = 0; target[n].data != NULL && b < to->spec.B; b++) {
            for (t = 0; t < input_tokens(to, n); t++) {
                for (h = 0; h < heads[n]; h++) {
                    memcpy(out_row(&target[n], b, t, h), out_row(&source[n], b, t, h),
                           (size_t)target[n].width * sizeof(float));
                }
            }
        }
    }
}

static void copy_state_in(const Problem *from, Problem *to) {
    size_t floats = la_state_floats(&to->layer) * sizeof(float);
    int64_t b;
    for (b = 0; to->state_start != NULL && b < to->spec.B; b++) {
        memcpy(to->state_start + b * to->call.state_in_stride,
               from->state_start + b * from->call.state_in_stride, floats);
    }
}

/* Output and final states of a run, packed. */
typedef struct Result {
    float *out, *state;
    size_t out_floats, state_floats;
} Result;

static Result result_take(const Problem *problem) {
    Result result;
    result.out = problem_copy_out(problem, &result.out_floats);
    result.state = problem_copy_state(problem, &result.state_floats);
    return result;
}

static void result_free(Result *result) {
    free(result->out);
    free(result->state);
}

static int check_same_result(const Problem *problem, const Result *want) {
    Result got = result_take(problem);
    int ok = got.out_floats == 0 ||
             check_same(problem_text(problem), got.out, want->out, got.out_floats);
    ok &= check_same(problem_text(problem), got.state, want->state, got.state_floats);
    result_free(&got);
    return ok;
}

/* ---------------------------------------------------------------- runs with real threads */

typedef struct Slice {
    const la_layer *layer;
    la_call call;
    float *workspace;
    int rounds;
    la_status status;
} Slice;

static void *slice_run(void *argument) {
    Slice *slice = argument;
    while (slice->status == LA_OK && slice->rounds-- > 0) {
        slice->status = la_forward(slice->layer, &slice->call);
    }
    return NULL;
}

static void fill_floats(float *data, size_t count, float value) {
    while (count-- > 0) {
        data[count] = value;
    }
}

/* The workspace has exactly the size asked for, right before the canary, hardly ever aligned. */
static Slice slice_new(Problem *problem, const Way *way, float fill) {
    Slice slice = {&problem->layer, problem->call, NULL, 1, LA_OK};
    size_t size, count;
    problem->way = *way;
    slice.call.form = way->form;
    slice.call.isa = way->isa;
    slice.call.chunk = way->chunk;
    slice.call.thread_count = way->threads;
    size = la_workspace_size(&problem->layer, &slice.call);
    count = (size + 6) / 4;
    slice.workspace = guarded_new(count, problem->spec.shift);
    fill_floats(slice.workspace, count, fill);
    slice.call.workspace = (char *)slice.workspace + (4 * count - size);
    slice.call.workspace_size = size;
    return slice;
}

static void slice_free(const Problem *problem, Slice *slice) {
    guarded_free(slice->workspace);
    CHECK(slice->status == LA_OK, "%d: %s", slice->status, problem_text(problem));
}

/* Every slice of the call in its own thread, all buffers full of `fill` before. */
static void run_threads(Problem *problem, const Way *way, float fill) {
    enum { MOST = 64 };
    static Slice slices[MOST];
    pthread_t threads[MOST];
    int i, count = (int)way->threads;
    fill_floats(problem->out_start, problem->out_floats, fill);
    fill_floats(problem->states, problem->state_floats, fill);
    for (i = 0; i < count; i++) {
        slices[i] = slice_new(problem, way, fill);
        slices[i].call.thread_index = i;
    }
    for (i = 0; i < count; i++) {
        int error = pthread_create(&threads[i], NULL, slice_run, &slices[i]);
        if (!CHECK(error == 0, "pthread_create: %d", error)) {
            abort();
        }
    }
    for (i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        slice_free(problem, &slices[i]);
    }
}

/* ---------------------------------------------------------------- 1 right */

static void check_all_ways(Problem *problem, const char *note) {
    Way way;
    int i;
    problem->note = note;
    problem_oracle(problem);
    for (i = 0; next_way(i, &way); i++) {
        if (problem_run(problem, &way)) {
            problem_check(problem);
        }
    }
}

static const float rough_gates[] = {0,    -1e-7f, -0.1f, -1,   -1.4f, -2.5f,  -3,    -5,
                                    -11,  -50,    -88,   -100, -1000, -2700,  -1e6f, -INFINITY};

typedef enum Pattern {
    CONSTANT,
    FIRST,
    LAST,
    BURSTS,
    MIXED,
    ALPHAS, /* in [1e-4, 0.4] */
    LOG_UNIFORM,
    PATTERNS
} Pattern;

static float pattern_gate(Pattern pattern, float gate, int64_t t, int64_t T) {
    float mild = random_uniform(-0.3f, 0);
    switch (pattern) {
    case CONSTANT: return gate;
    case FIRST: return t == 0 ? gate : mild;
    case LAST: return t == T - 1 ? gate : mild;
    case BURSTS: return t % 16 >= 9 && t % 16 < 14 ? gate : mild;
    case MIXED: return rough_gates[random_below(COUNT(rough_gates))];
    case ALPHAS: return (float)log((double)random_uniform(1e-4f, 0.4f));
    default: return -(float)pow(10, (double)random_uniform(-8, 4));
    }
}

static void set_gates(Problem *problem, Pattern pattern, float gate) {
    int64_t b, t, h, T = problem->spec.T;
    for (b = 0; b < problem->spec.B; b++) {
        for (h = 0; h < problem->spec.H; h++) {
            for (t = 0; t < T; t++) {
                *out_row(&problem->log_decay, b, t, h) = pattern_gate(pattern, gate, t, T);
            }
        }
    }
}

static const char *const pattern_names[] = {"constant", "first",  "last",       "bursts",
                                            "mixed",    "alphas", "log-uniform"};

static void check_gates(Spec spec) {
    Problem *problem;
    Pattern pattern;
    int i;
    spec.gate = GATE_FILLED;
    problem = problem_new(&spec);
    for (pattern = CONSTANT; pattern < PATTERNS; pattern++) {
        for (i = 0; i < (pattern < MIXED ? COUNT(rough_gates) : 4); i++) {
            problem->spec.gate_value = rough_gates[i];
            set_gates(problem, pattern, rough_gates[i]);
            check_all_ways(problem, pattern_names[pattern]);
        }
    }
    problem_free(problem);
}

TEST(promise_1_right_rough_gates) {
    int i;
    for (i = 0; i < SCALAR_CASES; i++) {
        check_gates(case_spec(i, 37)); /* DeltaNet with gates is Gated DeltaNet */
    }
}

TEST(promise_1_right_rough_gates_long) {
    static const float gates[] = {-1e-7f, -1.4f, -11, -88, -1000, -INFINITY};
    int i, g;
    for (i = 0; i < SCALAR_CASES; i++) {
        Spec spec = case_spec(i, 200);
        Problem *problem;
        spec.gate = GATE_FILLED;
        problem = problem_new(&spec);
        for (g = 0; g < COUNT(gates); g++) {
            problem->spec.gate_value = gates[g];
            set_gates(problem, BURSTS, gates[g]);
            check_all_ways(problem, "long bursts");
        }
        set_gates(problem, ALPHAS, 0);
        check_all_ways(problem, "long alphas");
        problem_free(problem);
    }
}

TEST(promise_1_right_without_gates) {
    static const int64_t lengths[] = {1, 2, 4, 5, 6, 15, 16, 17, 63, 64, 65, 195};
    int i, n;
    for (i = 0; i < SCALAR_CASES; i++) {
        for (n = 0; n < COUNT(lengths); n++) {
            Spec spec = case_spec(i, lengths[n]);
            Problem *problem;
            spec.gate = spec.variant == LA_RETNET ? GATE_ZERO : GATE_NONE;
            spec.beta = n % 2 ? BETA_CHANNEL : BETA_TOKEN;
            problem = problem_new(&spec);
            check_all_ways(problem, "no gates");
            problem_free(problem);
        }
    }
}

/* Near `about`, the gate whose alpha suffers most from being rounded to a float. */
static float badly_rounded_gate(float about) {
    float worst = about, gate = about;
    double worst_error = 0;
    int i;
    for (i = 0; i < 200; i++, gate *= 1.0001f) {
        double alpha = exp((double)gate), error = fabs((double)(float)alpha - alpha);
        if (error > worst_error) {
            worst_error = error;
            worst = gate;
        }
    }
    return worst;
}

/* Nothing but decay: what each step adds to the error shows in the final state. */
TEST(promise_1_right_slow_decay) {
    static const float gates[] = {-1.05e-5f, -3e-5f, -2e-4f, -1e-3f, -1e-7f, -2e-6f};
    int i, g, w;
    Way way;
    for (i = 0; i < SCALAR_CASES; i++) {
        for (g = 0; g < COUNT(gates); g++) {
            Spec spec = {LA_RETNET, .T = 3001, .H = 1, .dk = 2, .dv = 3, .gate = GATE_FILLED};
            Problem *problem;
            spec.variant = case_spec(i, 1).variant;
            spec.layout = i % 2;
            spec.zero_keys = 1;
            spec.gate_value = badly_rounded_gate(gates[g]);
            problem = problem_new(&spec);
            problem->note = "slow decay";
            for (w = 0; next_way(w, &way); w++) {
                int quadratic = way.form == LA_PARALLEL && (g > 0 || i % 2);
                if (!quadratic && problem_run(problem, &way)) {
                    problem_check(problem);
                }
            }
            problem_free(problem);
        }
    }
}

/* exp(g) is no normal float here, or none at all, but the state times exp(g) is one. */
TEST(promise_1_right_deep_gates) {
    static const int64_t lengths[] = {1, 2, 3, 4, 5, 8, 17};
    int i, n, total;
    for (i = 0; i < SCALAR_CASES; i++) {
        for (n = 0; n < COUNT(lengths); n++) {
            Spec spec = case_spec(i, lengths[n]);
            Problem *problem;
            spec.gate = GATE_FILLED;
            spec.beta = BETA_NONE;
            spec.state_size = 1e20f;
            spec.zero_keys = 1;
            problem = problem_new(&spec);
            for (total = -85; total >= -130; total -= 5) {
                problem->spec.gate_value = (float)total / (float)lengths[n];
                set_gates(problem, CONSTANT, problem->spec.gate_value);
                check_all_ways(problem, "deep, constant");
                problem->spec.gate_value = (float)total + 10;
                set_gates(problem, BURSTS, 0); /* mild ones but for the last */
                *out_row(&problem->log_decay, 0, lengths[n] - 1, 0) = (float)total + 10;
                *out_row(&problem->log_decay, 0, lengths[n] - 1, 1) = (float)total + 10;
                check_all_ways(problem, "deep, last");
            }
            problem_free(problem);
        }
    }
}

/* The state of 1e20 is gone at once or in steps, and what is written then must be right. */
TEST(promise_1_right_deep_gates_and_writes) {
    int i, total;
    for (i = 0; i < SCALAR_CASES; i++) {
        Spec spec = case_spec(i, 19);
        Problem *problem;
        spec.gate = GATE_FILLED;
        spec.state_size = 1e20f;
        problem = problem_new(&spec);
        for (total = -87; total >= -170; total -= 9) {
            problem->spec.gate_value = (float)total;
            set_gates(problem, FIRST, (float)total);
            check_all_ways(problem, "deep, first");
            set_gates(problem, CONSTANT, (float)total);
            check_all_ways(problem, "deep, constant");
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- 2 causal */

typedef enum Change { OTHER, ALL_NAN, ALL_INF, GATE_NAN, GATE_CUT, GATE_DEEP, GATE_OPEN } Change;
enum { CHANGES = GATE_OPEN + 1 };

static float changed(Change change, int is_gate, float old) {
    switch (change) {
    case OTHER: return is_gate ? random_uniform(-9, 0) : random_uniform(-1, 1);
    case ALL_NAN: return NAN;
    case ALL_INF: return is_gate ? -INFINITY : INFINITY;
    case GATE_NAN: return is_gate ? NAN : old;
    case GATE_CUT: return is_gate ? -INFINITY : old;
    case GATE_DEEP: return is_gate ? -1000 : old;
    default: return is_gate ? 0 : old;
    }
}

/* D is that of all tokens, which none may change. */
static void change_token(Problem *problem, int64_t t, Change change) {
    la_out views[INPUTS];
    int64_t heads[INPUTS], b, h, i;
    int n;
    problem_inputs(problem, views, heads);
    for (n = 0; n < INPUTS; n++) {
        int there = views[n].data != NULL && n != IN_SKIP && t < input_tokens(problem, n);
        for (b = 0; there && b < problem->spec.B; b++) {
            for (h = 0; h < heads[n]; h++) {
                float *row = out_row(&views[n], b, t, h);
                for (i = 0; i < views[n].width; i++) {
                    row[i] = changed(change, n == IN_GATE, row[i]);
                }
            }
        }
    }
}

static int64_t same_tokens(const Problem *problem, const float *want) {
    int64_t t = 0, floats = problem->spec.H * problem->spec.dv; /* the output is packed */
    while (t < problem->spec.T &&
           memcmp(problem->call.out.data + t * floats, want + t * floats,
                  (size_t)floats * sizeof(float)) == 0) {
        t++;
    }
    return t;
}

/* The tokens change one by one from the last to the second: the outputs before stay. */
static void check_causal(Problem *problem, const Way *way, Change change) {
    Result want;
    int64_t t, same;
    if (!problem_run(problem, way)) {
        return;
    }
    want = result_take(problem);
    for (t = problem->spec.T - 1; t > 0; t--) {
        change_token(problem, t, change);
        if (problem_run(problem, way)) {
            same = same_tokens(problem, want.out);
            CHECK(same >= t, "change %d of tokens %d.. reaches token %d: %s", change, (int)t,
                  (int)same, problem_text(problem));
        }
    }
    result_free(&want);
}

/* Every row, but in one layout only behind the first ones: these tests are the long ones. */
static int is_causal_case(int i) {
    return i < SCALAR_CASES || i % 2 == i / 2 % 2;
}

static void check_causal_case(const Spec *spec, int changes) {
    Problem *problem = problem_new(spec), *fresh = problem_new(spec);
    Way way;
    int w, change;
    copy_inputs(fresh, problem);
    changes = spec->gate != GATE_NONE || changes < GATE_NAN ? changes : GATE_NAN;
    for (w = 0; next_way(w, &way); w++) {
        for (change = 0; change < changes; change++) {
            check_causal(problem, &way, (Change)change);
            copy_inputs(fresh, problem);
        }
    }
    problem_free(problem);
    problem_free(fresh);
}

TEST(promise_2_causal_37_tokens) {
    int i;
    for (i = 0; i < CAUSAL_CASES; i++) {
        Spec spec = case_spec(i, 37);
        spec.gate = spec.gate == GATE_NONE ? GATE_NONE : GATE_MIXED;
        if (is_causal_case(i)) {
            check_causal_case(&spec, CHANGES);
        }
    }
}

TEST(promise_2_causal_70_tokens) {
    int i;
    for (i = 0; i < CAUSAL_CASES; i++) {
        Spec spec = case_spec(i, 70);
        if (is_causal_case(i)) {
            check_causal_case(&spec, 2);
        }
    }
}

/* ---------------------------------------------------------------- 3 divisible */

static void check_split(Problem *problem, const Way *way, const Result *whole,
                        const int64_t *lengths, int count) {
    if (problem_run_split(problem, way, lengths, count)) {
        problem_check(problem);
        if (way->form == LA_RECURRENT) {
            check_same_result(problem, whole);
        }
    }
}

static void check_splits(Problem *problem, const Way *way) {
    static const int64_t pieces[] = {5, 0, 1, 16, 0, 15}, pairs[] = {2, 2, 3, 3, 8, 19};
    int64_t lengths[37], T = problem->spec.T;
    int i;
    Result whole;
    if (!problem_run(problem, way)) {
        return;
    }
    whole = result_take(problem);
    for (i = 0; i <= T; i++) {
        lengths[0] = i;
        lengths[1] = T - i;
        check_split(problem, way, &whole, lengths, 2);
    }
    for (i = 0; i < T; i++) {
        lengths[i] = 1;
    }
    check_split(problem, way, &whole, lengths, (int)T);
    check_split(problem, way, &whole, pieces, COUNT(pieces));
    check_split(problem, way, &whole, pairs, COUNT(pairs));
    result_free(&whole);
}

TEST(promise_3_divisible_at_every_point) {
    static const Gate gates[] = {GATE_MILD, GATE_STRONG, GATE_MIXED, GATE_SLOW};
    int i, g, w;
    for (i = 0; i < CAUSAL_CASES; i++) {
        for (g = 0; g < COUNT(gates); g++) {
            Spec spec = case_spec(i, 37);
            Problem *problem;
            Way way;
            if (spec.gate == GATE_NONE && g > 0) {
                break;
            }
            spec.gate = spec.gate == GATE_NONE ? GATE_NONE : gates[g];
            spec.states = STATES_SAME;
            problem = problem_new(&spec);
            problem->note = "split";
            for (w = 0; next_way(w, &way); w++) {
                check_splits(problem, &way);
            }
            problem_free(problem);
        }
    }
}

static void check_no_tokens(const Spec *spec) {
    Problem *problem = problem_new(spec);
    int64_t b, floats = (int64_t)la_state_floats(&problem->layer);
    float *zeros = calloc((size_t)floats, sizeof *zeros);
    Way way;
    int w;
    for (b = 0; zeros != NULL && oracle_has_maximum(&problem->layer) && b < spec->H; b++) {
        int64_t r = oracle_features(&problem->layer);
        zeros[oracle_state_index(&problem->layer, b, r, 0)] = -INFINITY;
    }
    for (w = 0; zeros != NULL && next_way(w, &way); w++) {
        way.threads = w % 3 + 1;
        for (b = 0; problem_run(problem, &way) && b < spec->B; b++) {
            int64_t from = b * problem->call.state_in_stride;
            check_same(problem_text(problem), problem->states + b * problem->call.state_out_stride,
                       problem->state_start != NULL ? problem->state_start + from : zeros,
                       (size_t)floats);
        }
    }
    free(zeros);
    problem_free(problem);
}

TEST(promise_3_divisible_no_tokens) {
    static const States states[] = {STATES_BOTH, STATES_SAME, STATES_OUT};
    int i, s;
    for (i = 0; i < CAUSAL_CASES; i++) {
        for (s = 0; s < COUNT(states); s++) {
            Spec spec = case_spec(i, 0);
            spec.B = 3;
            spec.states = states[s];
            check_no_tokens(&spec);
            spec.strides = STRIDES_PADDED;
            check_no_tokens(&spec);
        }
    }
}

/* ---------------------------------------------------------------- 4 independent */

static Spec wide_spec(int i) {
    Spec spec = case_spec(i, 23);
    spec.B = 2;
    spec.H = 3;
    spec.Hk = 1;
    spec.dv = 53; /* four panels of 16 columns */
    spec.gate = spec.gate == GATE_NONE ? GATE_NONE : GATE_MIXED;
    spec.keys = spec.bidirectional ? 29 : 0;
    return spec;
}

TEST(promise_4_independent_of_threads) {
    static const int64_t counts[] = {2, 3, 7, 64};
    int i, w, n;
    for (i = 0; i < CASES; i++) {
        Spec spec = wide_spec(i);
        Problem *problem = problem_new(&spec);
        Way way;
        problem->note = "threads";
        for (w = 0; next_way(w, &way); w++) {
            Result one;
            way.threads = 1;
            problem_run(problem, &way);
            problem_check(problem);
            one = result_take(problem);
            for (n = 0; n < COUNT(counts); n++) {
                way.threads = counts[n];
                problem_run(problem, &way);
                check_same_result(problem, &one);
                if (counts[n] != 64 || w % FORMS == 3) {
                    run_threads(problem, &way, NAN);
                    check_same_result(problem, &one);
                }
            }
            result_free(&one);
        }
        problem_free(problem);
    }
}

TEST(promise_4_independent_of_what_buffers_held) {
    static const float fills[] = {0, NAN, -INFINITY, 1e30f, 1e-40f};
    int i, w, n;
    for (i = 0; i < CASES; i++) {
        Spec spec = wide_spec(i);
        Problem *problem;
        Way way;
        spec.states = i % 3 == 0 ? STATES_OUT : STATES_BOTH;
        problem = problem_new(&spec);
        problem->note = "fill";
        for (w = 0; next_way(w, &way); w++) {
            Result want;
            problem_run(problem, &way);
            want = result_take(problem);
            for (n = 0; n < COUNT(fills); n++) {
                run_threads(problem, &way, fills[n]);
                check_same_result(problem, &want);
            }
            result_free(&want);
        }
        problem_free(problem);
    }
}

TEST(promise_4_independent_of_strides) {
    static const Strides strides[] = {STRIDES_BTHD, STRIDES_BHTD, STRIDES_PADDED, STRIDES_QKV,
                                      STRIDES_REVERSED};
    int i, n, w;
    for (i = 0; i < CASES; i++) {
        Spec spec = wide_spec(i);
        Problem *plain;
        spec.keys = 0; /* as many as queries, to lie side by side with them */
        plain = problem_new(&spec);
        for (n = 0; n < 2 * COUNT(strides); n++) {
            Problem *problem;
            Way way;
            spec.strides = strides[n / 2];
            spec.shift = n % 2 ? 1 + n / 2 : 0;
            problem = problem_new(&spec);
            copy_inputs(plain, problem);
            copy_state_in(plain, problem);
            problem->note = "strides";
            for (w = 0; next_way(w, &way); w++) {
                Result want;
                problem_run(plain, &way);
                want = result_take(plain);
                problem_run(problem, &way);
                check_same_result(problem, &want);
                result_free(&want);
            }
            problem_free(problem);
        }
        problem_free(plain);
    }
}

/* The call of sequence b alone. */
static void select_sequence(la_call *call, int64_t b) {
    la_in *inputs[INPUTS];
    int n;
    inputs[0] = &call->q, inputs[1] = &call->k, inputs[2] = &call->v;
    inputs[3] = &call->log_decay, inputs[4] = &call->beta, inputs[5] = &call->erase;
    inputs[6] = &call->bonus, inputs[7] = &call->a, inputs[8] = &call->b;
    inputs[9] = &call->skip, inputs[10] = &call->out_gate;
    for (n = 0; n < INPUTS; n++) {
        inputs[n]->data += inputs[n]->data != NULL ? b * inputs[n]->batch_stride : 0;
    }
    call->out.data += b * call->out.batch_stride;
    call->state_in += b * call->state_in_stride;
    call->state_out += b * call->state_out_stride;
    call->positions += call->positions != NULL ? b : 0;
    call->batch = 1;
}

static void check_sequence(const Problem *problem, const Result *want, int64_t b) {
    size_t out_floats = want->out_floats / (size_t)problem->spec.B;
    size_t state_floats = want->state_floats / (size_t)problem->spec.B;
    Result got = result_take(problem);
    check_same(problem_text(problem), got.out + (size_t)b * out_floats,
               want->out + (size_t)b * out_floats, out_floats);
    check_same(problem_text(problem), got.state + (size_t)b * state_floats,
               want->state + (size_t)b * state_floats, state_floats);
    result_free(&got);
}

static void check_alone(Problem *problem, const Way *way, const Result *want) {
    const la_call all = problem->call;
    int64_t b;
    problem->note = "one sequence";
    for (b = 0; b < problem->spec.B; b++) {
        select_sequence(&problem->call, b);
        problem_run(problem, way);
        problem->call = all;
        check_sequence(problem, want, b);
    }
}

static void check_beside_nan(Problem *problem, const Way *way, const Result *want) {
    int64_t t, B = problem->spec.B;
    problem->spec.B = 1; /* sequence 0 only */
    for (t = 0; t < problem->spec.T || t < problem->spec.keys; t++) {
        change_token(problem, t, ALL_NAN);
    }
    problem->spec.B = B;
    problem->note = "NaN in sequence 0";
    problem_run(problem, way);
    check_sequence(problem, want, 1);
    check_sequence(problem, want, 2);
}

TEST(promise_4_independent_of_other_sequences) {
    int i, w;
    for (i = 0; i < CASES; i++) {
        Spec spec = wide_spec(i);
        Problem *problem, *fresh;
        Way way;
        spec.B = 3;
        problem = problem_new(&spec);
        fresh = problem_new(&spec);
        copy_inputs(problem, fresh);
        for (w = 0; next_way(w, &way); w++) {
            Result want;
            problem_run(problem, &way);
            want = result_take(problem);
            check_alone(problem, &way, &want);
            check_beside_nan(problem, &way, &want);
            copy_inputs(fresh, problem);
            result_free(&want);
        }
        problem_free(problem);
        problem_free(fresh);
    }
}

/* ---------------------------------------------------------------- 5 contained */

/* Everything that the inputs of a padded problem hold, gaps and the projection included. */
static size_t copy_all_inputs(const Problem *problem, float *to) {
    la_out views[INPUTS];
    int64_t heads[INPUTS];
    size_t n, total = 0;
    problem_inputs(problem, views, heads);
    for (n = 0; n < INPUTS; n++) {
        size_t floats = (size_t)(problem->spec.B * views[n].batch_stride);
        if (views[n].data != NULL) {
            memcpy(to + total, views[n].data, floats * sizeof *to);
            total += floats;
        }
    }
    if (problem->layer.projection != NULL) {
        size_t floats = (size_t)(problem->layer.features * problem->layer.dim_k);
        memcpy(to + total, problem->layer.projection, floats * sizeof *to);
        total += floats;
    }
    memcpy(to + total, problem->state_start, problem->state_floats * sizeof *to);
    return total + problem->state_floats;
}

/* `fill` everywhere but where the output and the states belong. */
static void check_only_rows_written(const Problem *problem, float fill) {
    int64_t floats = (int64_t)la_state_floats(&problem->layer), b;
    size_t i, kept = 0, want = problem->out_floats, got = 0;
    for (i = 0; i < problem->out_floats; i++) {
        kept += problem->out_start[i] == fill;
    }
    want -= (size_t)(problem->spec.B * problem->spec.T * problem->spec.H * problem->spec.dv);
    CHECK(kept == want, "%zu of %zu floats outside the rows are left: %s", kept, want,
          problem_text(problem));
    for (b = 0; b < problem->spec.B; b++) {
        for (i = (size_t)floats; i < (size_t)problem->call.state_out_stride; i++) {
            got += problem->states[(size_t)(b * problem->call.state_out_stride) + i] != fill;
        }
    }
    CHECK(got == 0, "%zu floats between the states: %s", got, problem_text(problem));
}

/* run_threads has workspaces of exactly the size asked for; the canaries of all buffers are
   looked at as they are freed. */
TEST(promise_5_contained_between_canaries) {
    static float before[65536], after[65536];
    static const int64_t lengths[] = {1, 2, 5, 37};
    int i, n, w;
    for (i = 0; i < CASES; i++) {
        for (n = 0; n < COUNT(lengths); n++) {
            Spec spec = wide_spec(i);
            Problem *problem;
            size_t count;
            Way way;
            spec.T = lengths[n];
            spec.shift = n;
            spec.strides = STRIDES_PADDED;
            problem = problem_new(&spec);
            count = copy_all_inputs(problem, before);
            for (w = 0; next_way(w, &way); w++) {
                way.threads = 1 + w % 2 * 4;
                run_threads(problem, &way, 12345);
                check_only_rows_written(problem, 12345);
                copy_all_inputs(problem, after);
                CHECK(memcmp(before, after, count * sizeof *before) == 0,
                      "an input was written: %s", problem_text(problem));
            }
            problem_free(problem);
        }
    }
}

static void check_nothing_written(const Problem *problem, la_call call, la_status want) {
    size_t i, written = 0;
    la_status status = la_forward(&problem->layer, &call);
    CHECK(status == want, "got %d, want %d: %s", status, want, problem_text(problem));
    for (i = 0; i < problem->out_floats; i++) {
        written += problem->out_start[i] != 12345;
    }
    for (i = 0; i < problem->state_floats; i++) {
        written += problem->states[i] != 12345;
    }
    CHECK(written == 0, "%zu floats were written: %s", written, problem_text(problem));
}

TEST(promise_5_contained_errors_write_nothing) {
    int i, w;
    for (i = 0; i < CASES; i++) {
        Spec spec = wide_spec(i);
        Problem *problem = problem_new(&spec);
        Way way;
        fill_floats(problem->out_start, problem->out_floats, 12345);
        fill_floats(problem->states, problem->state_floats, 12345);
        for (w = 0; next_way(w, &way); w++) {
            Slice slice = slice_new(problem, &way, 12345);
            la_call call = slice.call;
            call.workspace_size--;
            check_nothing_written(problem, call, LA_E_WORKSPACE);
            call = slice.call;
            call.thread_index = 1;
            check_nothing_written(problem, call, LA_E_THREADS);
            call = slice.call;
            call.v.width++;
            check_nothing_written(problem, call, LA_E_SHAPE);
            slice_free(problem, &slice);
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- 6 self-sufficient */

/* Far apart addresses that nobody looks at. */
static const float *nowhere(int i) {
    return (const float *)((uintptr_t)(i + 1) << (sizeof(uintptr_t) > 4 ? 42 : 28));
}

static size_t size_for(const la_layer *layer, int64_t gates, Way way, int64_t B, int64_t T) {
    la_call call;
    CHECK(la_call_init(&call, layer, B, T) == LA_OK, "batch %d, tokens %d", (int)B, (int)T);
    call.q = la_bthd(nowhere(0), T, layer->q_heads, layer->dim_k);
    call.k = la_bthd(nowhere(1), T, layer->k_heads, layer->dim_k);
    call.v = la_bthd(nowhere(2), T, layer->heads, layer->dim_v);
    call.log_decay = la_bthd(nowhere(3), T, layer->heads, gates);
    call.out = la_bthd_out((float *)(uintptr_t)nowhere(4), T, layer->heads, layer->dim_v);
    call.form = way.form;
    call.isa = way.isa;
    call.chunk = way.chunk;
    return la_workspace_size(layer, &call);
}

TEST(promise_6_self_sufficient_workspace_does_not_grow) {
    static const int64_t batches[] = {1, 2, 1000}, lengths[] = {1, 2, 37, 1000, 1000000};
    int i, w, b, n;
    for (i = 0; i < CASES; i++) {
        Spec spec = case_spec(i, 1);
        int64_t gates;
        Problem *problem;
        Way way;
        spec.H = 3;
        spec.dk = 31;
        spec.dv = 53;
        spec.horizon = 1000000;
        gates = spec.gate_channel ? spec.dk : 1;
        problem = problem_new(&spec);
        for (w = 0; next_way(w, &way); w++) {
            size_t one = size_for(&problem->layer, gates, way, 1, 1);
            CHECK(one > 0, "form %d: no size", way.form);
            for (b = 0; b < COUNT(batches); b++) {
                for (n = 0; n < COUNT(lengths); n++) {
                    size_t size = size_for(&problem->layer, gates, way, batches[b], lengths[n]);
                    CHECK(size == one || way.form == LA_PARALLEL || way.form == LA_AUTO,
                          "case %d form %d chunk %d isa %d batch %d tokens %d: %zu, not %zu", i,
                          way.form, (int)way.chunk, way.isa, (int)batches[b], (int)lengths[n],
                          size, one);
                }
            }
        }
        problem_free(problem);
    }
}

/* Two different calls at the same time, again and again, on the same layer kind. */
TEST(promise_6_self_sufficient_reentrant) {
    enum { ROUNDS = 12 };
    int i, w;
    for (i = 0; i < CASES; i++) {
        Spec spec = wide_spec(i), other = wide_spec((i + 3) % CASES);
        Problem *problems[2];
        Way ways[2];
        problems[0] = problem_new(&spec);
        problems[1] = problem_new(&other);
        for (w = 0; next_way(w, &ways[0]); w++) {
            Result want[2];
            Slice slices[2];
            pthread_t threads[2];
            int n;
            ways[1] = forms[FORMS - 1 - w % FORMS];
            for (n = 0; n < 2; n++) {
                problem_run(problems[n], &ways[n]);
                want[n] = result_take(problems[n]);
                fill_floats(problems[n]->out_start, problems[n]->out_floats, NAN);
                slices[n] = slice_new(problems[n], &ways[n], NAN);
                slices[n].rounds = ROUNDS;
            }
            for (n = 0; n < 2; n++) {
                int error = pthread_create(&threads[n], NULL, slice_run, &slices[n]);
                if (!CHECK(error == 0, "pthread_create: %d", error)) {
                    abort();
                }
            }
            for (n = 0; n < 2; n++) {
                pthread_join(threads[n], NULL);
                problems[n]->note = "two at once";
                check_same_result(problems[n], &want[n]);
                slice_free(problems[n], &slices[n]);
                result_free(&want[n]);
            }
        }
        problem_free(problems[0]);
        problem_free(problems[1]);
    }
}

/* ------------------------------------------------ how deep a thread's stack was written */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define FRAMES_ARE_PADDED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FRAMES_ARE_PADDED 1
#endif
#endif
#ifndef FRAMES_ARE_PADDED
#define FRAMES_ARE_PADDED 0
#endif

enum { STACK_BYTES = FRAMES_ARE_PADDED ? 1 << 20 : 1 << 18 };

/* gcc has no macro for -fsanitize=undefined, but then there is this function. */
extern void __ubsan_handle_type_mismatch_v1(void) __attribute__((weak));

static void *run_nothing(void *argument) {
    return argument;
}

/* Bytes from the top of a painted stack down to the lowest one that lost its paint. */
static size_t stack_depth(void *(*run)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    unsigned char *stack = NULL;
    size_t lowest = 0;
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, STACK_BYTES) != 0) {
        abort();
    }
    stack = memset(memory, 0xa5, STACK_BYTES);
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0, "pthread_attr_setstack");
    if (!CHECK(pthread_create(&thread, &attributes, run, argument) == 0, "pthread_create")) {
        abort();
    }
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    while (lowest < STACK_BYTES && stack[lowest] == 0xa5) {
        lowest++;
    }
    free(memory);
    return STACK_BYTES - lowest;
}

/* Over a thread that does nothing. Every call was made before, so that the dynamic linker has
   nothing left to do on this stack. Without optimisation and with sanitizers frames hold much
   that the library did not ask for: there only a runaway shows. */
TEST(promise_6_self_sufficient_stack) {
    int padded = FRAMES_ARE_PADDED || __ubsan_handle_type_mismatch_v1 != NULL;
    size_t limit = padded ? 131072 : 4096, nothing = stack_depth(run_nothing, NULL);
    int i, w;
    for (i = 0; i < CASES; i++) {
        Spec spec = wide_spec(i);
        Problem *problem;
        Way way;
        spec.T = 70;
        spec.dk = 67;
        spec.features = spec.features ? 131 : 0;
        problem = problem_new(&spec);
        for (w = 0; next_way(w, &way); w++) {
            Slice slice = slice_new(problem, &way, 0);
            size_t depth;
            slice_run(&slice);
            slice.rounds = 1;
            depth = stack_depth(slice_run, &slice);
            CHECK(depth <= nothing + limit, "%zu bytes: %s", depth - nothing,
                  problem_text(problem));
            CHECK(depth > nothing, "not measured: %s", problem_text(problem));
            slice_free(problem, &slice);
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- 7 local faults */

/* One element. Of a state, t is the row of S and i its column; of a normaliser, t is the row. */
typedef struct Fault {
    Tensor tensor;
    int64_t b, t, h, i;
    float value;
} Fault;

/* MAYBE: both answers are right, as an infinity may vanish in a quotient or an exponential, and as
   chunk 0 rescales all channels of a head when one of them has to be. NEAR: but for rounding. */
enum { MAYBE = 2, NEAR };

static int64_t head_of(const la_layer *layer, int64_t h, int64_t heads) {
    return layer->head_map == LA_TILED ? h % heads : h * heads / layer->heads;
}

/* Whether out[b][t][j][i] depends on the element: by the recurrence, nothing else. */
static int out_depends(const Problem *problem, const Fault *fault, int64_t t, int64_t j,
                       int64_t i) {
    const la_layer *layer = &problem->layer;
    int more = layer->q_heads > layer->heads, later = t >= fault->t || layer->bidirectional;
    int nothing = oracle_projects(layer) && isinf(fault->value); /* exp(-inf), cos(1e6) */
    int64_t h = more ? j * layer->heads / layer->q_heads : j;
    switch (fault->tensor) {
    case IN_Q:
        later = t == fault->t && (more ? j : head_of(layer, h, layer->q_heads)) == fault->h;
        return later && nothing ? MAYBE : later;
    case IN_K:
        later = later && head_of(layer, h, layer->k_heads) == fault->h;
        return later && nothing ? MAYBE : later;
    case IN_V: return later && h == fault->h && i == fault->i;
    case IN_GATE: /* whoever reads first sees it a token later, but it may begin another chunk */
        later = later && h == fault->h;
        return later && layer->read == LA_READ_BEFORE && t == fault->t ? NEAR : later;
    case IN_ERASE:
    case IN_A:
    case IN_B: return later && h == fault->h;
    case IN_BONUS: return t == fault->t && h == fault->h;
    case IN_SKIP: return h == fault->h && (problem->skip.width == 1 || i == fault->i);
    case IN_OUT_GATE: return t == fault->t && j == fault->h && i == fault->i;
    case IN_BETA: return later && h == fault->h && (problem->beta.width == 1 || i == fault->i);
    case IN_NORM: return h != fault->h ? 0 : isinf(fault->value) ? MAYBE : 1;
    default: return h == fault->h && i == fault->i;
    }
}

/* Is row r of the features a product of channel i? 1, x, then x_a x_b for b <= a. */
static int taylor_row_is_of(int64_t dk, int64_t r, int64_t i) {
    int64_t a = 0;
    if (r <= dk) {
        return r == i + 1;
    }
    for (r -= dk + 1; r > a; a++) {
        r -= a + 1;
    }
    return a == i || r == i;
}

/* Whether row r of the final S or z may show a fault of channel i of a key, a gate or b. */
static int row_depends(const Problem *problem, const Fault *fault, int64_t r) {
    const la_layer *layer = &problem->layer;
    int whole = layer->write == LA_WRITE_DELTA; /* reads all rows at each write */
    whole = whole || (layer->write == LA_WRITE_DPLR && fault->t + 1 < problem->spec.T);
    if (fault->tensor == IN_GATE && !whole && problem->log_decay.width > 1 && r != fault->i) {
        int form = problem->way.form;
        return form == LA_AUTO || (form == LA_CHUNKWISE && problem->way.chunk == 0) ? MAYBE : NEAR;
    }
    if (fault->tensor == IN_GATE) {
        return 1;
    }
    if (oracle_projects(layer)) {
        return isinf(fault->value) ? MAYBE : 1;
    }
    if (layer->feature == LA_FEATURE_TAYLOR) {
        return taylor_row_is_of(layer->dim_k, r, fault->i);
    }
    return whole || r % layer->dim_k == fault->i;
}

/* Whether the final S[r][i] of head h does, z[r] where i = dv, or m where r is behind the rows. */
static int state_depends(const Problem *problem, const Fault *fault, int64_t h, int64_t r,
                         int64_t i) {
    const la_layer *layer = &problem->layer;
    int is_z = i == layer->dim_v, delta = layer->write != LA_WRITE_ADD;
    if (fault->tensor == IN_K) {
        int mine = head_of(layer, h, layer->k_heads) == fault->h;
        int is_m = r == oracle_features(layer);
        return !mine ? 0 : is_m ? MAYBE : row_depends(problem, fault, r);
    }
    if (h != fault->h || r == oracle_features(layer)) { /* m decays with the rest */
        return h == fault->h && fault->tensor == IN_GATE ? MAYBE : 0;
    }
    switch (fault->tensor) {
    case IN_Q:
    case IN_SKIP:
    case IN_OUT_GATE:
    case IN_BONUS: return 0;
    case IN_V: return i == fault->i;
    case IN_ERASE:
    case IN_A: return 1;
    case IN_B:
    case IN_GATE: return row_depends(problem, fault, r);
    case IN_BETA: return !is_z && (problem->beta.width == 1 || i == fault->i);
    case IN_NORM: return is_z && r == fault->t;
    default: return i == fault->i && (delta || r == fault->t);
    }
}

static float *fault_element(const Problem *problem, const Fault *fault) {
    la_out views[INPUTS];
    int64_t heads[INPUTS], at;
    if (fault->tensor >= IN_STATE) {
        at = oracle_state_index(&problem->layer, fault->h, fault->t, fault->i);
        return problem->state_start + fault->b * problem->call.state_in_stride + at;
    }
    problem_inputs(problem, views, heads);
    return out_row(&views[fault->tensor], fault->b, fault->t, fault->h) + fault->i;
}

/* NaN where the recurrence has it; not finite where it has an infinity; the same bits elsewhere. */
static int is_as_expected(const Fault *fault, int depends, float got, float without) {
    if (depends == MAYBE || depends == NEAR) {
        return depends == MAYBE || fabsf(got - without) <= 1e-5f * fmaxf(1, fabsf(without));
    }
    if (depends && isnan(fault->value)) {
        return isnan(got);
    }
    return depends ? !isfinite(got) : memcmp(&got, &without, sizeof got) == 0;
}

static void check_fault_in_out(const Problem *problem, const Fault *fault,
                               const Result *without) {
    Result got = result_take(problem);
    int64_t b, t, j, i, heads = oracle_out_heads(&problem->layer);
    size_t n = 0, wrong = 0;
    int64_t at[4] = {0, 0, 0, 0};
    for (b = 0; b < problem->spec.B; b++) {
        for (t = 0; t < problem->spec.T; t++) {
            for (j = 0; j < heads; j++) {
                for (i = 0; i < problem->spec.dv; i++, n++) {
                    int alike = b == fault->b || fault->tensor == IN_SKIP; /* D is everybody's */
                    int depends = alike ? out_depends(problem, fault, t, j, i) : 0;
                    if (!is_as_expected(fault, depends, got.out[n], without->out[n]) &&
                        wrong++ == 0) {
                        at[0] = b, at[1] = t, at[2] = j, at[3] = i;
                    }
                }
            }
        }
    }
    CHECK(wrong == 0,
          "%g in tensor %d [b %d][t %d][h %d][%d]: %zu outputs wrong, first "
          "o[b %d][t %d][h %d][%d]: %s",
          (double)fault->value, fault->tensor, (int)fault->b, (int)fault->t, (int)fault->h,
          (int)fault->i, wrong, (int)at[0], (int)at[1], (int)at[2], (int)at[3],
          problem_text(problem));
    result_free(&got);
}

/* One element of the final states; answers 1 if it is not as expected. */
static int wrong_in_state(const Problem *problem, const Fault *fault, const Result *got,
                          const Result *without, const int64_t at[4]) {
    const la_layer *layer = &problem->layer;
    int64_t n = at[0] * (int64_t)la_state_floats(layer);
    int depends = at[0] != fault->b ? 0 : state_depends(problem, fault, at[1], at[2], at[3]);
    n += oracle_state_index(layer, at[1], at[2], at[3]);
    return !is_as_expected(fault, depends, got->state[n], without->state[n]);
}

static void check_fault_in_state(const Problem *problem, const Fault *fault,
                                 const Result *without) {
    const la_layer *layer = &problem->layer;
    int64_t r = oracle_features(layer), columns = layer->dim_v + (layer->normalised ? 1 : 0);
    int64_t at[4], first[4] = {0, 0, 0, 0};
    int wrong = 0;
    Result got = result_take(problem);
    for (at[0] = 0; at[0] < problem->spec.B; at[0]++) {
        for (at[1] = 0; at[1] < layer->heads; at[1]++) {
            for (at[2] = 0; at[2] < r + oracle_has_maximum(layer); at[2]++) {
                for (at[3] = 0; at[3] < (at[2] < r ? columns : 1); at[3]++) {
                    if (wrong_in_state(problem, fault, &got, without, at) && wrong++ == 0) {
                        memcpy(first, at, sizeof at);
                    }
                }
            }
        }
    }
    CHECK(wrong == 0,
          "%g in tensor %d [b %d][t %d][h %d][%d]: %d states wrong, first "
          "S[b %d][h %d][%d][%d]: %s",
          (double)fault->value, fault->tensor, (int)fault->b, (int)fault->t, (int)fault->h,
          (int)fault->i, wrong, (int)first[0], (int)first[1], (int)first[2], (int)first[3],
          problem_text(problem));
    result_free(&got);
}

static int fault_draw(const Problem *problem, Tensor tensor, int64_t t, float value,
                      Fault *fault) {
    la_out views[INPUTS];
    int64_t heads[INPUTS];
    problem_inputs(problem, views, heads);
    fault->tensor = tensor;
    fault->value = value;
    fault->b = random_below((int)problem->spec.B);
    if (tensor >= IN_STATE) {
        fault->h = random_below((int)problem->spec.H);
        fault->t = random_below((int)oracle_features(&problem->layer));
        fault->i = tensor == IN_NORM ? problem->spec.dv : random_below((int)problem->spec.dv);
        return problem->state_start != NULL && (tensor == IN_STATE || problem->layer.normalised);
    }
    if (views[tensor].data == NULL) {
        return 0;
    }
    fault->h = random_below((int)heads[tensor]);
    fault->t = t;
    fault->i = random_below((int)views[tensor].width);
    return 1;
}

static void check_fault(Problem *problem, const Way *way, const Fault *fault,
                        const Result *without) {
    float *element = fault_element(problem, fault), before = *element;
    *element = fault->value;
    if (problem_run(problem, way)) {
        check_fault_in_out(problem, fault, without);
        check_fault_in_state(problem, fault, without);
    }
    *element = before;
}

static void check_faults(Problem *problem, const Way *way) {
    static const float values[] = {NAN, INFINITY};
    const int64_t T = problem->spec.T, tokens[] = {0, 1, 6, 7, T - 2, T - 1};
    Result without;
    Tensor tensor;
    Fault fault;
    int n, v;
    if (!problem_run(problem, way)) {
        return;
    }
    without = result_take(problem);
    for (tensor = IN_Q; tensor < TENSORS; tensor++) {
        for (v = 0; v < COUNT(values); v++) {
            for (n = 0; n < (tensor >= IN_STATE ? 2 : COUNT(tokens)); n++) {
                if (fault_draw(problem, tensor, tokens[n], values[v], &fault)) {
                    check_fault(problem, way, &fault, &without);
                }
            }
        }
    }
    result_free(&without);
}

static void check_fault_case(const Spec *given) {
    Spec spec = *given;
    Problem *problem;
    Way way;
    int w;
    spec.positive |= spec.variant == LA_COSFORMER; /* a denominator of 0 would hide the fault */
    problem = problem_new(&spec);
    problem->note = "fault";
    for (w = 0; next_way(w, &way); w++) {
        check_faults(problem, &way);
    }
    problem_free(problem);
}

/* The first rows in all three ways, each of the others in two of them. */
TEST(promise_7_local_faults) {
    int i;
    for (i = 0; i < CASES; i++) {
        Spec spec = case_spec(i, 19);
        int all = i < SCALAR_CASES;
        spec.B = 2;
        spec.H = 4;
        spec.Hk = 2;
        spec.beta = i % 2 ? BETA_CHANNEL : BETA_TOKEN;
        if (all || i % 3 == 0) {
            check_fault_case(&spec);
        }
        spec.Hq = 8; /* two query heads read one state */
        if (all || i % 3 == 1) {
            check_fault_case(&spec);
        }
        spec.Hq = 2;
        spec.head_map = LA_TILED;
        spec.beta = BETA_NONE;
        spec.states = STATES_OUT;
        if (all || i % 3 == 2) {
            check_fault_case(&spec);
        }
    }
}

/* -inf multiplies by 0: a NaN in the state stays. And no gate makes a fault of another head. */
TEST(promise_7_local_faults_with_strong_gates) {
    static const Gate gates[] = {GATE_STRONG, GATE_MIXED, GATE_EDGES};
    int i, g;
    for (i = 0; i < CASES; i++) {
        for (g = 0; g < COUNT(gates); g++) {
            Spec spec = case_spec(i, 19);
            if (spec.gate != GATE_NONE) {
                spec.gate = gates[g];
                check_fault_case(&spec);
            }
        }
    }
}

/* ---------------------------------------------------------------- 8 plain */

/* The matrices S of packed or strided states; normalisers and maxima stay. */
static void scale_matrices(const Problem *problem, float *states, int64_t stride, float factor) {
    const la_layer *layer = &problem->layer;
    int64_t b, h, r, i;
    for (b = 0; b < problem->spec.B; b++) {
        for (h = 0; h < layer->heads; h++) {
            for (r = 0; r < oracle_features(layer); r++) {
                for (i = 0; i < layer->dim_v; i++) {
                    states[b * stride + oracle_state_index(layer, h, r, i)] *= factor;
                }
            }
        }
    }
}

static void scale_values(Problem *problem, float factor) {
    int64_t b, t, h, i;
    for (b = 0; b < problem->spec.B; b++) {
        for (t = 0; t < problem->spec.keys; t++) {
            for (h = 0; h < problem->spec.H; h++) {
                for (i = 0; i < problem->spec.dv; i++) {
                    out_row(&problem->v, b, t, h)[i] *= factor;
                }
            }
        }
    }
}

static void scale_floats(float *data, size_t count, float factor) {
    while (count-- > 0) {
        data[count] *= factor;
    }
}

static void scale_result(const Problem *problem, Result *result, float factor) {
    scale_floats(result->out, result->out_floats, factor);
    scale_matrices(problem, result->state, (int64_t)la_state_floats(&problem->layer), factor);
}

/* Half the scale: half the output, but for a normalised one, where it cancels. */
static void check_half_scale(Problem *problem, const Way *way, Result *want) {
    if (oracle_scales_inputs(&problem->layer) || problem->skip.data != NULL) {
        return; /* there it is part of the features, and does not concern D v */
    }
    problem->layer.scale *= 0.5f;
    problem_run(problem, way);
    problem->layer.scale *= 2;
    scale_floats(want->out, want->out_floats, problem->layer.normalised ? 1 : 0.5f);
    check_same_result(problem, want);
}

static void check_powers_of_two(Problem *problem, const Way *way) {
    static const float factors[] = {2, 0.25f, 1099511627776.0f, -1};
    int64_t stride = problem->call.state_in_stride;
    Result want;
    int n;
    if (!problem_run(problem, way)) {
        return;
    }
    want = result_take(problem);
    for (n = 0; n < COUNT(factors); n++) {
        scale_values(problem, factors[n]);
        scale_matrices(problem, problem->state_start, stride, factors[n]);
        problem_run(problem, way);
        scale_values(problem, 1 / factors[n]);
        scale_matrices(problem, problem->state_start, stride, 1 / factors[n]);
        scale_result(problem, &want, factors[n]);
        check_same_result(problem, &want);
        scale_result(problem, &want, 1 / factors[n]);
    }
    check_half_scale(problem, way, &want);
    result_free(&want);
}

TEST(promise_8_plain_powers_of_two_are_exact) {
    int i, w;
    for (i = 0; i < CASES; i++) {
        Spec spec = case_spec(i, 37);
        Problem *problem;
        Way way;
        spec.positive |= spec.variant == LA_COSFORMER; /* 0 of a denominator of 0 has no sign */
        problem = problem_new(&spec);
        problem->note = "times a power of two";
        for (w = 0; next_way(w, &way); w++) {
            check_powers_of_two(problem, &way);
        }
        problem_free(problem);
    }
}

/* All values 1, and all columns of S equal to z: a weighted mean of ones. */
static void set_ones(Problem *problem) {
    const la_layer *layer = &problem->layer;
    int64_t b, t, h, r, i, dv = layer->dim_v;
    for (b = 0; b < problem->spec.B; b++) {
        float *state = problem->state_start + b * problem->call.state_in_stride;
        for (h = 0; h < layer->heads; h++) {
            for (t = 0; t < problem->spec.keys; t++) {
                fill_floats(out_row(&problem->v, b, t, h), (size_t)dv, 1);
            }
            for (r = 0; r < oracle_features(layer); r++) {
                float z = state[oracle_state_index(layer, h, r, dv)];
                for (i = 0; i < dv; i++) {
                    state[oracle_state_index(layer, h, r, i)] = z;
                }
            }
        }
    }
}

/* No feature is negative here, so nothing cancels, and c of promise 1 holds for each element. */
static void check_ones(Problem *problem, const Way *way) {
    Result got;
    double worst = 0, limit = promise_1(&problem->layer, &problem->call, 0, 0);
    size_t n;
    if (!problem_run(problem, way)) {
        return;
    }
    got = result_take(problem);
    for (n = 0; n < got.out_floats; n++) {
        double error = fabs((double)got.out[n] - 1);
        worst = error <= worst ? worst : error;
    }
    CHECK(worst <= limit, "|o - 1| = %g, limit %g: %s", worst, limit, problem_text(problem));
    result_free(&got);
}

TEST(promise_8_plain_means_of_ones_are_one) {
    int i, w;
    for (i = 0; i < CASES; i++) {
        Spec spec = case_spec(i, 37);
        Problem *problem;
        Way way;
        spec.positive = 1;
        problem = problem_new(&spec);
        problem->note = "ones";
        if (problem->layer.normalised)
            set_ones(problem);
        for (w = 0; problem->layer.normalised && !spec.out_gate && next_way(w, &way); w++) {
            check_ones(problem, &way);
        }
        problem_free(problem);
    }
}

static double norm(const float *x, size_t count) {
    double sum = 0;
    while (count-- > 0) {
        sum += (double)x[count] * (double)x[count];
    }
    return sqrt(sum);
}

/* |whole - (a + b)| within what promise 1 allows the three of them. */
static void check_sum(const Problem *problem, const float *whole, const float *a, const float *b,
                      size_t count, double size) {
    double error = 0, limit = 1e-6 * sqrt((double)problem->spec.T);
    size_t i;
    for (i = 0; i < count; i++) {
        double difference = (double)whole[i] - ((double)a[i] + (double)b[i]);
        error += difference * difference;
    }
    size += norm(whole, count) + norm(a, count) + norm(b, count);
    CHECK(sqrt(error) <= limit * size, "error %g, limit %g: %s", sqrt(error), limit * size,
          problem_text(problem));
}

/* Leaves the matrices of the final states only. */
static void clear_others(const Problem *problem, Result *result) {
    const la_layer *layer = &problem->layer;
    int64_t b, h, n, floats = oracle_head_floats(layer);
    int64_t matrix = oracle_features(layer) * layer->dim_v;
    for (b = 0; b < problem->spec.B; b++) {
        for (h = 0; h < layer->heads; h++) {
            for (n = matrix; n < floats; n++) {
                result->state[(b * layer->heads + h) * floats + n] = 0;
            }
        }
    }
}

/* f(v, S) = f(v, 0) + f(0, S), S being the matrices only. */
static void check_linear(Problem *problem, const Problem *fresh, const Way *way) {
    Result whole, values, state;
    double size = 0;
    int64_t h;
    problem_run(problem, way);
    whole = result_take(problem);
    scale_matrices(problem, problem->state_start, problem->call.state_in_stride, 0);
    problem_run(problem, way);
    values = result_take(problem);
    scale_values(problem, 0);
    copy_state_in(fresh, problem);
    problem_run(problem, way);
    state = result_take(problem);
    copy_inputs(fresh, problem);
    for (h = 0; h < problem->spec.H; h++) {
        size += 3 * problem->want.size[h];
    }
    check_sum(problem, whole.out, values.out, state.out, whole.out_floats, size);
    clear_others(problem, &whole);
    clear_others(problem, &values);
    clear_others(problem, &state);
    check_sum(problem, whole.state, values.state, state.state, whole.state_floats, 0);
    CHECK(norm(values.out, values.out_floats) > 0 && norm(state.out, state.out_floats) > 0,
          "nothing was compared: %s", problem_text(problem));
    result_free(&whole);
    result_free(&values);
    result_free(&state);
}

TEST(promise_8_plain_linear_in_values_and_state) {
    int i, w;
    for (i = 0; i < CASES; i++) {
        Spec spec = case_spec(i, 37);
        Problem *problem = problem_new(&spec), *fresh = problem_new(&spec);
        Way way;
        copy_inputs(problem, fresh);
        copy_state_in(problem, fresh);
        problem->note = "linear";
        for (w = 0; next_way(w, &way); w++) {
            check_linear(problem, fresh, &way);
        }
        problem_free(problem);
        problem_free(fresh);
    }
}
