/* Worked examples with printed figures, and small cases that tell the conventions apart. Most are
   exact in binary: every form, instruction set and state layout must give these very numbers. */
#include "oracle.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HALF -0.69314718f    /* exp: exactly 1/2 in float32 */
#define QUARTER -1.38629436f /* exp: exactly 1/4 */

typedef struct Example {
    const char *name;
    la_variant variant;
    int write; /* LA_WRITE_... */
    int normalised, bidirectional;
    double horizon; /* cosFormer */
    int64_t T, dk, dv;
    const float *q, *k, *v;
    const float *log_decay, *beta; /* one per token; or NULL */
    int by_channel;                /* 1: log_decay [T][dk] */
    const float *S0;               /* [dk][dv], then z [dk] where normalised; or NULL */
    const double *o, *S;           /* [T][dv], and like S0; S may be NULL */
    double tolerance;              /* of o; states are exact */
    const double *printed;         /* the first rows of o as the document has them, or NULL */
    int64_t printed_rows;
    double printed_tolerance;
} Example;

/* [r][dv], then z [r] <-> the layout of the layer: which is state[i]? */
static int64_t state_place(const la_layer *layer, int64_t i) {
    int64_t r = oracle_features(layer), dv = layer->dim_v;
    return i < r * dv ? oracle_state_index(layer, 0, i / dv, i % dv)
                      : oracle_state_index(layer, 0, i - r * dv, dv);
}

static void set_example(const Example *example, int layout, la_layer *layer, la_call *call) {
    int64_t T = example->T, keys = T;
    la_layer_init(layer, example->variant, 1, example->dk, example->dv);
    layer->state_layout = layout;
    layer->write = example->write;
    layer->decay_required = 0;
    layer->normalised = example->normalised;
    layer->bidirectional = example->bidirectional;
    layer->horizon = example->horizon;
    la_call_init(call, layer, 1, T);
    call->q = la_bthd(example->q, T, 1, example->dk);
    call->k = la_bthd(example->k, keys, 1, example->dk);
    call->v = la_bthd(example->v, keys, 1, example->dv);
    if (example->log_decay != NULL) {
        call->log_decay = la_bthd(example->log_decay, T, 1, example->by_channel ? example->dk : 1);
    }
    if (example->beta != NULL) {
        call->beta = la_bthd(example->beta, T, 1, 1);
    }
}

static void check_example(const Example *example, const la_layer *layer, const float *out,
                          const float *state) {
    size_t out_floats = (size_t)(example->T * example->dv), n = la_state_floats(layer), i;
    float *S = guarded_new(n, 0);
    check_close(example->name, out, example->o, out_floats, example->tolerance);
    if (example->printed != NULL) {
        check_close(example->name, out, example->printed,
                    (size_t)(example->printed_rows * example->dv), example->printed_tolerance);
    }
    if (example->S != NULL) {
        for (i = 0; i < n; i++) {
            S[i] = state[state_place(layer, (int64_t)i)];
        }
        check_close(example->name, S, example->S, n, 0);
    }
    guarded_free(S);
}

static void run_example_way(const Example *example, int layout, const Way *way) {
    float *out = guarded_new((size_t)(example->T * example->dv), 0), *state, *workspace;
    const char *field = "";
    la_layer layer;
    la_call call;
    la_status status;
    size_t i, n;
    set_example(example, layout, &layer, &call);
    n = la_state_floats(&layer);
    state = guarded_new(n, 0);
    call.form = way->form;
    call.chunk = way->chunk;
    call.isa = way->isa;
    call.out = la_bthd_out(out, example->T, 1, example->dv);
    call.state_out = state;
    if (example->S0 != NULL) {
        for (i = 0; i < n; i++) {
            state[state_place(&layer, (int64_t)i)] = example->S0[i];
        }
        call.state_in = state;
    }
    call.workspace_size = la_workspace_size(&layer, &call);
    call.workspace = workspace = guarded_new((call.workspace_size + 3) / 4, 0);
    status = la_forward(&layer, &call);
    la_check(&layer, &call, &field);
    if (CHECK(status == LA_OK, "%s: %s (%s), form %d isa %d", example->name,
              la_status_text(status), field ? field : "", way->form, way->isa)) {
        check_example(example, &layer, out, state);
    }
    guarded_free(out);
    guarded_free(state);
    guarded_free(workspace);
}

static void run_example(const Example *example) {
    Way way;
    int i;
    for (i = 0; way_number(i, &way); i++) {
        run_example_way(example, LA_KV, &way);
        run_example_way(example, LA_VK, &way);
    }
}

/* ---------------------------------------------------------------- example 1a: ELU+1 */

static const float elu_q[] = {1, 0, 1, 0, 0, 2, 0, 1, 1, 1, 0, 0, 0, 0, 1, 2};
static const float elu_k[] = {1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 2, 1, 1, 0, 0, 1};
static const float elu_v[] = {2, 0, 1, 1, 1, 3, 0, 0, 0, 1, 4, 2, 1, 2, 0, 5};

TEST(example_elu) {
    static const double S[] = {7, 8, 6, 14, 7, 9, 6, 9, 5, 11, 13, 12, 5, 9, 9, 15, /* z */
                               6, 6, 7, 6};
    static const double o[] = {36. / 38, 56. / 38, 53. / 38, 76. / 38, 43. / 43, 64. / 43,
                               55. / 43, 83. / 43, 38. / 37, 54. / 37, 46. / 37, 73. / 37,
                               39. / 44, 66. / 44, 65. / 44, 92. / 44};
    static const double causal_o[] = {2,        0,        1,        1,        1.5,      1.5,
                                      0.5,      0.5,      29. / 28, 36. / 28, 46. / 28, 1,
                                      39. / 44, 66. / 44, 65. / 44, 92. / 44};
    static const double printed[] = {0.95, 1.47, 1.39, 2.00}; /* two places */
    Example example = {.name = "ELU+1", .variant = LA_ELU, .normalised = 1, .tolerance = 1e-6};
    example.T = example.dk = example.dv = 4;
    example.q = elu_q;
    example.k = elu_k;
    example.v = elu_v;
    example.S = S;
    example.o = causal_o;
    run_example(&example);
    example.bidirectional = 1;
    example.o = o;
    example.printed = printed;
    example.printed_rows = 1;
    example.printed_tolerance = 5e-3;
    run_example(&example);
}

/* The last two rows of the causal output, from the state after the first two. */
TEST(example_elu_continued) {
    static const float S0[] = {5, 3, 2, 2, 6, 6, 2, 2, 4, 6, 1, 1, 3, 3, 1, 1, /* z */ 3, 4, 3, 2};
    static const double o[] = {29. / 28, 36. / 28, 46. / 28, 1, 39. / 44, 66. / 44, 65. / 44,
                               92. / 44};
    Example example = {.name = "ELU+1 continued", .variant = LA_ELU, .normalised = 1};
    example.tolerance = 1e-6;
    example.T = 2;
    example.dk = example.dv = 4;
    example.q = elu_q + 8;
    example.k = elu_k + 8;
    example.v = elu_v + 8;
    example.S0 = S0;
    example.o = o;
    run_example(&example);
}

/* ---------------------------------------------------------------- example 3: cosFormer, M = 4 */

static const float cosformer_q[] = {1, -1, 2, 0, 0, 3, -2, 1, 2, 1, 0, -1, -1, 0, 2, 2};
static const float cosformer_k[] = {1, 1, 0, -2, -1, 2, 1, 0, 0, 0, 2, 1, 2, -1, 0, 1};

/* From the document's products of relu(Q) and relu(K), weighted by cos(pi |i - j| / 8). */
static void cosformer_outputs(int causal, double *o) {
    static const double scores[4][4] = {{1, 2, 4, 2}, {3, 6, 1, 1}, {3, 2, 0, 4}, {0, 2, 6, 2}};
    int i, j, n;
    for (i = 0; i < 4; i++) {
        double sum = 0;
        for (n = 0; n < 4; n++) {
            o[4 * i + n] = 0;
        }
        for (j = 0; j < (causal ? i + 1 : 4); j++) {
            double weight = scores[i][j] * cos(acos(-1) * abs(i - j) / 8);
            sum += weight;
            for (n = 0; n < 4; n++) {
                o[4 * i + n] += weight * (double)elu_v[4 * j + n];
            }
        }
        for (n = 0; n < 4; n++) {
            o[4 * i + n] /= sum;
        }
    }
}

TEST(example_cosformer) {
    static const double printed[] = {0.716, 1.537, 1.912, 1.628, 1.178, 1.955, 0.622, 0.784,
                                     1.277, 1.688, 0.277, 2.688, 0.381, 1.539, 2.475, 2.354};
    double o[16], causal_o[16];
    Example example = {.name = "cosFormer", .variant = LA_COSFORMER, .normalised = 1, .horizon = 4};
    example.tolerance = 1e-6;
    example.T = example.dk = example.dv = 4;
    example.q = cosformer_q;
    example.k = cosformer_k;
    example.v = elu_v; /* the same */
    cosformer_outputs(1, causal_o);
    example.o = causal_o;
    run_example(&example);
    cosformer_outputs(0, o);
    example.bidirectional = 1;
    example.o = o;
    example.printed = printed;
    example.printed_rows = 4;
    example.printed_tolerance = 2e-3;
    run_example(&example);
}

/* ---------------------------------------------------------------- example 4: RetNet */

/* gamma = 1/2 */
static const float retnet_q[] = {1, 0, 1, 0, 0, 4, 0, 0, 1, 0, 0, 1, 0, 2, 0, 2};
static const float retnet_k[] = {1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1};
static const float retnet_v[] = {2, 0, 1, 1, 0, 4, 0, 0, 1, 0, 2, 0, 0, 1, 1, 0};
static const float retnet_g[] = {HALF, HALF, HALF, HALF};
static const double retnet_o[] = {2,   0, 1,    1,    4,   16, 2,    2,
                                  1.5, 2, 2.25, 0.25, 0.5, 6,  2.25, 0.25};
/* the state after each token */
static const double retnet_S[4][16] = {
    {2, 0, 1, 1, 2, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {1, 0, 0.5, 0.5, 1, 4, 0.5, 0.5, 0, 0, 0, 0, 0, 4, 0, 0},
    {1.5, 0, 2.25, 0.25, 0.5, 2, 0.25, 0.25, 1, 0, 2, 0, 0, 2, 0, 0},
    {0.75, 0, 1.125, 0.125, 0.25, 1, 0.125, 0.125, 0.5, 1, 2, 0, 0, 2, 1, 0}};

TEST(example_retnet) {
    int64_t T;
    for (T = 1; T <= 4; T++) {
        Example example = {.name = "RetNet", .variant = LA_RETNET, .T = T, .dk = 4, .dv = 4};
        example.q = retnet_q;
        example.k = retnet_k;
        example.v = retnet_v;
        example.log_decay = retnet_g;
        example.o = retnet_o;
        example.S = retnet_S[T - 1];
        run_example(&example);
    }
}

/* The state after n tokens, handed to a call of the others, gives the same rest. */
TEST(example_retnet_continued) {
    int64_t n;
    int i;
    for (n = 1; n < 4; n++) {
        float S[16];
        Example example = {.name = "RetNet continued", .variant = LA_RETNET, .dk = 4, .dv = 4};
        for (i = 0; i < 16; i++) {
            S[i] = (float)retnet_S[n - 1][i];
        }
        example.T = 4 - n;
        example.q = retnet_q + 4 * n;
        example.k = retnet_k + 4 * n;
        example.v = retnet_v + 4 * n;
        example.log_decay = retnet_g;
        example.S0 = S;
        example.o = retnet_o + 4 * n;
        example.S = retnet_S[3];
        run_example(&example);
    }
}

/* ---------------------------------------------------------------- example 6: Lightning

   O_i = (Q_i K_i^T (.) M) V_i + Lambda Q_i S_{i-1}
   S_i = lambda^B S_{i-1} + (lambda^B Lambda^-1 K_i)^T V_i
   for blocks of B tokens, M_st = lambda^(s-t) for s >= t, Lambda = diag(lambda .. lambda^B). */

static double dot(const float *x, const float *y) {
    return (double)x[0] * (double)y[0] + (double)x[1] * (double)y[1] + (double)x[2] * (double)y[2] +
           (double)x[3] * (double)y[3];
}

/* One block of n tokens; q, k, v and o are of its first, S is updated. */
static void lightning_block(const float *q, const float *k, const float *v, int n, double lambda,
                            double *S, double *o) {
    int s, t, i, j;
    for (s = 0; s < n; s++) {
        for (j = 0; j < 4; j++) {
            double sum = 0;
            for (t = 0; t <= s; t++) {
                double weight = dot(q + 4 * s, k + 4 * t) * pow(lambda, s - t);
                sum += weight * (double)v[4 * t + j];
            }
            for (i = 0; i < 4; i++) {
                sum += pow(lambda, s + 1) * (double)q[4 * s + i] * S[4 * i + j];
            }
            o[4 * s + j] = sum;
        }
    }
    for (i = 0; i < 16; i++) {
        S[i] *= pow(lambda, n);
        for (t = 0; t < n; t++) {
            double k_decayed = pow(lambda, n - 1 - t) * (double)k[4 * t + i / 4];
            S[i] += k_decayed * (double)v[4 * t + i % 4];
        }
    }
}

static void lightning_blocks(const float *q, const float *k, const float *v, int T, int block,
                             double lambda, double *S, double *o) {
    int first;
    for (first = 0; first < T; first += block) {
        int n = first + block <= T ? block : T - first, at = 4 * first;
        lightning_block(q + at, k + at, v + at, n, lambda, S, o + at);
    }
}

TEST(example_lightning_blocks_are_retnet) {
    static const la_variant both[] = {LA_LIGHTNING, LA_RETNET};
    int block, i, n;
    for (block = 1; block <= 4; block++) {
        double S[16] = {0}, o[16];
        Way way = {.form = LA_CHUNKWISE, .threads = 1};
        Example example = {.name = "Lightning", .T = 4, .dk = 4, .dv = 4};
        lightning_blocks(retnet_q, retnet_k, retnet_v, 4, block, 0.5, S, o);
        CHECK(memcmp(o, retnet_o, sizeof o) == 0, "the block formulas, B = %d", block);
        example.q = retnet_q;
        example.k = retnet_k;
        example.v = retnet_v;
        example.log_decay = retnet_g;
        example.o = o;
        example.S = S;
        way.chunk = block;
        for (n = 0; n < 2; n++) {
            example.variant = both[n];
            run_example(&example);
            for (i = 0; isa_number(i, &way.isa); i++) {
                run_example_way(&example, LA_KV, &way);
                run_example_way(&example, LA_VK, &way);
            }
        }
    }
}

/* More than one block of each size; positive numbers, so that nothing cancels. */
TEST(example_lightning_blocks_of_any_size) {
    enum { T = 67 };
    static const int blocks[] = {1, 5, 16, 32, 64, T};
    float q[4 * T], k[4 * T], v[4 * T], g[T];
    size_t b;
    int i;
    for (i = 0; i < 4 * T; i++) {
        q[i] = (float)(1 + random_below(3));
        k[i] = (float)(1 + random_below(3));
        v[i] = (float)(1 + random_below(5));
        g[i / 4] = HALF;
    }
    for (b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        double S[16] = {0}, o[4 * T];
        Example example = {.name = "Lightning blocks", .variant = LA_LIGHTNING};
        lightning_blocks(q, k, v, T, blocks[b], 0.5, S, o);
        example.T = T;
        example.dk = example.dv = 4;
        example.q = q;
        example.k = k;
        example.v = v;
        example.log_decay = g;
        example.o = o;
        example.tolerance = 1e-6;
        run_example(&example);
    }
}

/* ---------------------------------------------------------------- example 7: the delta rule */

TEST(example_delta_rule) {
    static const float S0[] = {3, 1, 0, 0}, k[] = {1, 0}, v[] = {5, 2}, beta[] = {1};
    static const double o[] = {5, 2}, S[] = {5, 2, 0, 0};
    Example example = {.name = "delta rule", .variant = LA_DELTANET, .write = LA_WRITE_DELTA};
    example.T = 1;
    example.dk = example.dv = 2;
    example.q = example.k = k;
    example.v = v;
    example.S0 = S0;
    example.o = o;
    example.S = S;
    run_example(&example);
    example.beta = beta;
    run_example(&example);
}

/* The gate fades what the key does not touch; what it touches is overwritten all the same. */
TEST(example_gated_delta_rule) {
    static const float S0[] = {3, 1, 8, 4}, k[] = {1, 0}, v[] = {5, 2}, g[] = {HALF};
    static const double o[] = {5, 2}, S[] = {5, 2, 4, 2};
    Example example = {.name = "gated", .variant = LA_GATED_DELTANET, .write = LA_WRITE_DELTA};
    example.T = 1;
    example.dk = example.dv = 2;
    example.q = example.k = k;
    example.v = v;
    example.log_decay = g;
    example.S0 = S0;
    example.o = o;
    example.S = S;
    run_example(&example);
}

/* ---------------------------------------------------------------- convention probes

   dk = 2, dv = 1, T = 2. Each rule, read before or after the write, decay before or after the
   prediction: no two of them have the same numbers. */

static const float probe_q[] = {1, 2, 1, -1}, probe_k[] = {1, 0, 0.5f, 0.5f}, probe_v[] = {2, 3};
static const float probe_S0[] = {1, -2}, probe_g[] = {HALF, QUARTER}, probe_beta[] = {0.5f, 1.5f};

static void probe(const char *name, la_variant variant, const float *g, const float *beta,
                  const double *o, const double *S) {
    Example example = {.name = name, .variant = variant, .T = 2, .dk = 2, .dv = 1};
    example.write = variant == LA_GATED_DELTANET ? LA_WRITE_DELTA : LA_WRITE_ADD;
    example.q = probe_q;
    example.k = probe_k;
    example.v = probe_v;
    example.log_decay = g;
    example.beta = beta;
    example.S0 = probe_S0;
    example.o = o;
    example.S = S;
    run_example(&example);
}

TEST(probe_additive) {
    static const double o[] = {-1, 5}, S[] = {4.5, -0.5};
    static const float none[] = {0, 0}, one[] = {1, 1};
    probe("additive, no decay", LA_FWP, NULL, NULL, o, S);
    probe("additive, decay 1", LA_RETNET, none, NULL, o, S);
    probe("additive, beta 1", LA_FWP, NULL, one, o, S);
}

TEST(probe_additive_scalar_decay) {
    static const double o[] = {0.5, 0.875}, S[] = {2.125, 1.25};
    probe("additive, scalar decay", LA_RETNET, probe_g, NULL, o, S);
}

TEST(probe_write_strength) {
    static const double o[] = {-0.5, 0.625}, S[] = {2.625, 2};
    probe("additive, scalar decay, beta", LA_MAMBA2, probe_g, probe_beta, o, S);
}

TEST(probe_delta) {
    static const double o[] = {-2.5, 3.5}, S[] = {3.9375, 0.4375};
    static const float none[] = {0, 0};
    probe("delta", LA_GATED_DELTANET, NULL, probe_beta, o, S);
    probe("delta, decay 1", LA_GATED_DELTANET, none, probe_beta, o, S);
}

TEST(probe_gated_delta) {
    static const double o[] = {-0.75, 0.5625}, S[] = {2.5390625, 1.9765625};
    probe("gated delta", LA_GATED_DELTANET, probe_g, probe_beta, o, S);
}

static const float probe_A[] = {HALF, 0, QUARTER, HALF}; /* a gate per channel */

TEST(probe_channel_decay) {
    static const double o[] = {-1.5, 1.625}, S[] = {2.125, 0.5};
    Example example = {.name = "channel decay", .variant = LA_GLA, .T = 2, .dk = 2, .dv = 1};
    example.q = probe_q;
    example.k = probe_k;
    example.v = probe_v;
    example.log_decay = probe_A;
    example.by_channel = 1;
    example.S0 = probe_S0;
    example.o = o;
    example.S = S;
    run_example(&example);
    example.variant = LA_LIGHTNING; /* another preset of the same axes */
    run_example(&example);
}

TEST(probe_channel_decay_delta) {
    static const double o[] = {-2.75, 1.3125}, S[] = {2.8203125, 1.5078125};
    Example example = {.name = "channel decay, delta", .T = 2, .dk = 2, .dv = 1};
    example.variant = LA_KDA;
    example.write = LA_WRITE_DELTA;
    example.q = probe_q;
    example.k = probe_k;
    example.v = probe_v;
    example.log_decay = probe_A;
    example.by_channel = 1;
    example.beta = probe_beta;
    example.S0 = probe_S0;
    example.o = o;
    example.S = S;
    run_example(&example);
}

/* The rules that have a bonus, or a = -k and b = beta k, in every way and both layouts. */
static void probe_rule(const char *name, la_variant variant, const double *o, const double *S) {
    static const float bonus[] = {0.25f, 2}, a[] = {-1, 0, -0.5f, -0.5f};
    static const float b[] = {0.5f, 0, 0.75f, 0.75f}; /* beta k */
    Spec spec = {.variant = variant, .T = 2, .dk = 2, .dv = 1, .gate = GATE_ZERO};
    Problem *problem;
    Way way;
    int i;
    spec.exact = spec.gate_channel = 1;
    problem = problem_blank(&spec);
    problem->note = name;
    memcpy(problem->q.data, probe_q, sizeof probe_q);
    memcpy(problem->k.data, probe_k, sizeof probe_k);
    memcpy(problem->v.data, probe_v, sizeof probe_v);
    memcpy(problem->log_decay.data, probe_A, sizeof probe_A);
    memcpy(problem->state_start, probe_S0, sizeof probe_S0);
    if (variant == LA_RWKV6) {
        memcpy(problem->bonus.data, bonus, sizeof bonus);
    } else {
        memcpy(problem->a.data, a, sizeof a);
        memcpy(problem->b.data, b, sizeof b);
    }
    problem_oracle(problem);
    for (i = 0; i < 2; i++) {
        CHECK(problem->want.out[i] == o[i], "%s: o %g, want %g", name, problem->want.out[i], o[i]);
        CHECK(problem->want.state[i] == S[i], "%s: S %g", name, problem->want.state[i]);
    }
    for (i = 0; way_number(i, &way); i++) {
        if (problem_run(problem, &way)) {
            problem_check_exact(problem);
        }
    }
    problem_free(problem);
}

TEST(probe_rwkv6) {
    static const double o[] = {-2.5, 1.875}, S[] = {2.125, 0.5};
    probe_rule("read before the write, with a bonus", LA_RWKV6, o, S);
}

/* (Its key is written as it is: only b has beta.) */
TEST(probe_rwkv7) {
    static const double o[] = {-2, 1.5}, S[] = {2, 0.5};
    probe_rule("a = -k, b = beta k", LA_RWKV7, o, S);
}

TEST(probe_normalised) {
    static const float q[] = {1, 2, 1, 1}, S0z0[] = {1, -2, 1, 1};
    static const double o[] = {-0.25, 1}, S[] = {4.5, -0.5, 2.5, 1.5};
    Example example = {.name = "normalised", .variant = LA_GLA, .normalised = 1};
    example.T = 2;
    example.dk = 2;
    example.dv = 1;
    example.q = q;
    example.k = probe_k;
    example.v = probe_v;
    example.S0 = S0z0;
    example.o = o;
    example.S = S;
    run_example(&example);
}

/* ---------------------------------------------------------------- the oracle on its own

   The same rows again, to know the oracle right. */

static void check_oracle(const char *name, la_layer *layer, la_call *call, const double *o,
                         const double *state) {
    double out[2] = {0}, S[4] = {0}, size[1];
    Oracle oracle = {out, S, size, 1};
    int i, floats = (int)oracle_head_floats(layer);
    oracle_forward(layer, call, &oracle);
    for (i = 0; i < 2; i++) {
        CHECK(out[i] == o[i], "%s: o_%d = %.17g, want %.17g", name, i + 1, out[i], o[i]);
    }
    for (i = 0; i < floats; i++) {
        CHECK(S[i] == state[i], "%s: state[%d] = %.17g, want %.17g", name, i, S[i], state[i]);
    }
}

static void set_probe(la_layer *layer, la_call *call) {
    memset(layer, 0, sizeof *layer);
    memset(call, 0, sizeof *call);
    layer->heads = layer->q_heads = layer->k_heads = layer->dim_v = 1;
    layer->dim_k = 2;
    layer->scale = 1;
    call->batch = 1;
    call->tokens = call->keys = 2;
    call->q = la_bthd(probe_q, 2, 1, 2);
    call->k = la_bthd(probe_k, 2, 1, 2);
    call->v = la_bthd(probe_v, 2, 1, 1);
    call->state_in = probe_S0;
}

TEST(oracle_probes) {
    static const float g[] = {HALF, 0, QUARTER, HALF}, q[] = {1, 2, 1, 1}, S0z0[] = {1, -2, 1, 1};
    static const double gla_o[] = {-1.5, 1.625}, gla_S[] = {2.125, 0.5};
    static const double kda_o[] = {-2.75, 1.3125}, kda_S[] = {2.8203125, 1.5078125};
    static const double normalised_o[] = {-0.25, 1}, normalised_S[] = {4.5, -0.5, 2.5, 1.5};
    la_layer layer;
    la_call call;
    set_probe(&layer, &call);
    call.log_decay = la_bthd(g, 2, 1, 2);
    check_oracle("channel decay", &layer, &call, gla_o, gla_S);
    layer.write = LA_WRITE_DELTA;
    call.beta = la_bthd(probe_beta, 2, 1, 1);
    check_oracle("channel decay, delta", &layer, &call, kda_o, kda_S);
    set_probe(&layer, &call);
    layer.normalised = 1;
    call.q = la_bthd(q, 2, 1, 2);
    call.state_in = S0z0;
    check_oracle("normalised", &layer, &call, normalised_o, normalised_S);
}
