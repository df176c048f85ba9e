/* The feature maps by themselves: ELU+1, FAVOR+ and its projection, random Fourier features, DPFP;
   and Lightning's slopes. */
#include "oracle.h"
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Each instruction set with each form that may compute features on its own. */
static int feature_way(int i, Way *way) {
    static const Way ways[] = {{LA_PARALLEL, 0, 0, 1},
                               {LA_RECURRENT, 0, 0, 1},
                               {LA_CHUNKWISE, 0, 0, 1},
                               {LA_CHUNKWISE, 0, 16, 1}};
    *way = ways[i % 4];
    return isa_number(i / 4, &way->isa);
}

/* Runs the call with a workspace of its own. */
static int run_call(const la_layer *layer, la_call *call, const Way *way) {
    const char *field = NULL;
    float *workspace;
    la_status status;
    call->form = way->form;
    call->chunk = way->chunk;
    call->isa = way->isa;
    call->workspace_size = la_workspace_size(layer, call);
    call->workspace = workspace = guarded_new((call->workspace_size + 3) / 4, 0);
    status = la_forward(layer, call);
    la_check(layer, call, &field);
    guarded_free(workspace);
    return CHECK(status == LA_OK, "%s (%s), form %d isa %d", la_status_text(status),
                 field ? field : "", way->form, way->isa);
}

/* ---------------------------------------------------------------- ELU+1 */

enum { PHI = 4096 };

/* From -87 to 40, and all that is special. */
static float phi_argument(int i) {
    static const float special[] = {0, -0.0f, 1e-30f, -1e-30f, -1e-7f, 1e-7f, -0.5f, -0.34657359f,
                                    -0.6931472f, -87, -86.5f, -1, 1, 40, -40, 1e-3f};
    return i < COUNT(special) ? special[i] : -87 + 127 * (float)i / PHI;
}

static void check_phi(const char *name, const Way *way, const float *got) {
    double worst = 0;
    int i, at = 0;
    for (i = 0; i < PHI; i++) {
        double x = (double)phi_argument(i), want = x > 0 ? x + 1 : exp(x);
        double error = fabs((double)got[i] - want) / want;
        at = !(error <= worst) ? i : at;
        worst = at == i ? error : worst;
    }
    CHECK(worst < 1e-6, "%s, form %d chunk %d isa %d: phi(%g) = %.9g, error %g", name, way->form,
          (int)way->chunk, way->isa, (double)phi_argument(at), (double)got[at], worst);
}

/* v = 1: S of each sequence, and z, is phi of its one key. */
TEST(features_elu_of_keys) {
    static float x[PHI], ones[PHI], out[PHI], states[2 * PHI], S[PHI], z[PHI];
    la_layer layer;
    la_call call;
    Way way;
    int i, n;
    la_layer_init(&layer, LA_ELU, 1, 1, 1);
    la_call_init(&call, &layer, PHI, 1);
    call.q = call.v = la_bthd(ones, 1, 1, 1);
    call.k = la_bthd(x, 1, 1, 1);
    call.out = la_bthd_out(out, 1, 1, 1);
    call.state_out = states;
    for (i = 0; i < PHI; i++) {
        x[i] = phi_argument(i);
        ones[i] = 1;
    }
    for (n = 0; feature_way(n, &way); n++) {
        run_call(&layer, &call, &way);
        for (i = 0; i < PHI; i++) {
            S[i] = states[2 * i];
            z[i] = states[2 * i + 1];
        }
        check_phi("S", &way, S);
        check_phi("z", &way, z);
    }
}

/* A state of S = 1 and z = 0, and a denominator that is held at 1: o is phi of the query. */
TEST(features_elu_of_queries) {
    static float x[PHI], out[PHI], no_key[PHI], zeros[PHI];
    static const float state[] = {1, 0};
    la_layer layer;
    la_call call;
    Way way;
    int i, n;
    la_layer_init(&layer, LA_ELU, 1, 1, 1);
    layer.eps = 1;
    layer.eps_mode = LA_EPS_MAX;
    for (i = 0; i < PHI; i++) {
        x[i] = phi_argument(i);
        no_key[i] = -200; /* phi is 0 */
    }
    for (layer.bidirectional = 0; layer.bidirectional < 2; layer.bidirectional++) {
        la_call_init(&call, &layer, 1, PHI);
        call.keys = layer.bidirectional ? 0 : PHI;
        call.q = la_bthd(x, PHI, 1, 1);
        call.k = la_bthd(no_key, PHI, 1, 1);
        call.v = la_bthd(zeros, PHI, 1, 1);
        call.out = la_bthd_out(out, PHI, 1, 1);
        call.state_in = state;
        for (n = 0; feature_way(n, &way); n++) {
            run_call(&layer, &call, &way);
            check_phi(layer.bidirectional ? "o of a stored state" : "o", &way, out);
        }
    }
}

/* Outputs are averages of the values, whatever their weights. */
static void check_averages(Problem *problem) {
    int64_t b, t, h, i;
    Way way;
    int n;
    for (b = 0; b < problem->spec.B; b++) {
        for (t = 0; t < problem->call.keys; t++) {
            for (h = 0; h < problem->layer.heads; h++) {
                for (i = 0; i < problem->layer.dim_v; i++) {
                    out_row(&problem->v, b, t, h)[i] = 1;
                }
            }
        }
    }
    for (n = 0; way_number(n, &way); n++) {
        size_t count, j;
        float *out;
        double *ones;
        problem_run(problem, &way);
        out = problem_copy_out(problem, &count);
        ones = malloc(count * sizeof *ones);
        for (j = 0; ones != NULL && j < count; j++) {
            ones[j] = 1;
        }
        check_close(problem_text(problem), out, ones, count, 1e-6);
        free(out);
        free(ones);
    }
}

TEST(features_elu_averages) {
    static const float sizes[] = {1, 40};
    int n, direction;
    for (n = 0; n < 4; n++) {
        for (direction = 0; direction < 2; direction++) {
            Spec spec = {.variant = LA_ELU, .T = 67, .dk = 17, .dv = 5, .states = STATES_NONE};
            Problem *problem;
            int64_t t, i;
            spec.bidirectional = direction;
            problem = problem_new(&spec);
            if (problem == NULL) {
                return;
            }
            problem->note = "averages";
            for (t = 0; t < spec.T; t++) {
                for (i = 0; i < spec.dk; i++) {
                    float size = sizes[n / 2], low = n % 2 ? -size : size > 1 ? -40 : 0;
                    float high = n % 2 ? size : low < 0 ? -35 : size;
                    out_row(&problem->q, 0, t, 0)[i] = random_uniform(low, high);
                    out_row(&problem->k, 0, t, 0)[i] = random_uniform(low, high);
                }
            }
            check_averages(problem);
            problem_free(problem);
        }
    }
}

/* ---------------------------------------------------------------- NaN and infinity */

/* Two heads; the fault is in head 1, token 20. Which outputs of it may, and which must, be NaN? */
static void check_faults(Problem *problem, const Way *way, const float *clean, int must_from,
                         int must_to, int64_t column) {
    int64_t T = problem->spec.T, dv = problem->spec.dv, t, h, i;
    size_t wrong = 0, spared = 0;
    for (t = 0; t < T; t++) {
        for (h = 0; h < 2; h++) {
            const float *got = out_row(&problem->call.out, 0, t, h);
            for (i = 0; i < dv; i++) {
                int hit = h == 1 && t >= must_from && t < must_to && (column < 0 || i == column);
                const float *want = clean + (t * 2 + h) * dv + i;
                spared += hit && !isnan(got[i]);
                wrong += !hit && memcmp(&got[i], want, sizeof *want) != 0;
            }
        }
    }
    CHECK(wrong == 0 && spared == 0, "%s: %zu outputs are not NaN, %zu others changed, isa %d",
          problem_text(problem), spared, wrong, way->isa);
}

static void fault(Problem *problem, const Way *way, const char *note, float *at, float value,
                  int from, int to, int64_t column) {
    size_t count;
    float *clean, saved = *at;
    problem->note = note;
    problem_run(problem, way);
    clean = problem_copy_out(problem, &count);
    *at = value;
    problem_run(problem, way);
    check_faults(problem, way, clean, from, to, column);
    *at = saved;
    free(clean);
}

static void every_fault(const Spec *spec) {
    Problem *problem = problem_new(spec);
    int n, T = (int)spec->T, first = spec->bidirectional ? 0 : 20;
    Way way;
    for (n = 0; problem != NULL && way_number(n, &way); n++) {
        fault(problem, &way, "NaN in q", &out_row(&problem->q, 0, 20, 1)[2], NAN, 20, 21, -1);
        fault(problem, &way, "NaN in k", &out_row(&problem->k, 0, 20, 1)[2], NAN, first, T, -1);
        fault(problem, &way, "NaN in v", &out_row(&problem->v, 0, 20, 1)[3], NAN, first, T, 3);
        if (!oracle_projects(&problem->layer)) { /* inf / inf */
            fault(problem, &way, "inf in k", &out_row(&problem->k, 0, 20, 1)[2], INFINITY, first, T,
                  -1);
        }
    }
    if (problem != NULL) {
        problem_free(problem);
    }
}

TEST(features_nan_reaches_what_depends_on_it) {
    static const la_variant featured[] = {LA_ELU,      LA_FAVOR, LA_COSFORMER, LA_BASED,
                                          LA_HEDGEHOG, LA_RFF,   LA_MAPPED};
    int i, kernel;
    for (i = 0; i < COUNT(featured); i++) {
        for (kernel = LA_FAVOR_POSITIVE; kernel <= LA_FAVOR_RELU; kernel++) {
            Spec spec = {.T = 37, .H = 2, .dk = 7, .dv = 5, .positive = 1};
            spec.variant = featured[i];
            spec.favor_kernel = spec.hedgehog_kernel = kernel;
            spec.feature_eps = spec.variant == LA_FAVOR ? 1e-3f : 0;
            every_fault(&spec);
            spec.bidirectional = 1;
            spec.layout = LA_VK;
            every_fault(&spec);
            if (spec.variant != LA_FAVOR && spec.variant != LA_HEDGEHOG) {
                break;
            }
        }
    }
}

/* ---------------------------------------------------------------- the projection of FAVOR+ */

/* splitmix64: the state grows by the golden ratio; its bits are mixed thrice. */
static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) {
    return ((double)(splitmix64(state) >> 11) + 0.5) / 9007199254740992.0;
}

TEST(features_projection_gaussian) {
    static const int64_t sizes[][2] = {{8, 6}, {5, 7}, {1, 1}, {33, 64}};
    static const uint64_t seeds[] = {0, 1, 42, 0xffffffffffffffffu};
    static float W[33 * 64];
    static double want[33 * 64 + 1];
    int n, s, i;
    for (n = 0; n < COUNT(sizes); n++) {
        for (s = 0; s < COUNT(seeds); s++) {
            int64_t count = sizes[n][0] * sizes[n][1], dk = sizes[n][1];
            uint64_t state = seeds[s];
            for (i = 0; i < count; i += i % dk == dk - 1 ? 1 : 2) { /* each row begins a pair */
                double length = sqrt(-2 * log(uniform(&state)));
                double angle = 2 * acos(-1) * uniform(&state);
                want[i] = length * cos(angle);
                want[i + 1] = length * sin(angle);
            }
            CHECK(la_favor_projection(W, sizes[n][0], sizes[n][1], LA_GAUSSIAN, seeds[s]) == LA_OK,
                  "%d x %d", (int)sizes[n][0], (int)sizes[n][1]);
            check_close("Gaussian projection", W, want, (size_t)count, 1e-6);
        }
    }
}

static double row_dot(const float *W, int64_t dk, int64_t i, int64_t j) {
    double sum = 0;
    int64_t n;
    for (n = 0; n < dk; n++) {
        sum += (double)W[i * dk + n] * (double)W[j * dk + n];
    }
    return sum;
}

/* Rows of a block of dk are orthogonal; those of different blocks are not. */
static void check_orthogonal(const float *W, int64_t rows, int64_t dk) {
    double worst = 0, across = 0;
    int64_t i, j;
    for (i = 0; i < rows; i++) {
        for (j = 0; j < i; j++) {
            double lengths = sqrt(row_dot(W, dk, i, i) * row_dot(W, dk, j, j));
            double cosine = fabs(row_dot(W, dk, i, j)) / lengths;
            if (i / dk == j / dk) {
                worst = fmax(worst, cosine);
            } else {
                across = fmax(across, cosine);
            }
        }
    }
    CHECK(worst <= 1e-6, "%d x %d: rows of a block have a cosine of %g", (int)rows, (int)dk, worst);
    CHECK(rows <= dk || across > 0.01, "%d x %d: blocks repeat", (int)rows, (int)dk);
}

TEST(features_projection_orthogonal) {
    static const int64_t sizes[][2] = {{1, 5}, {8, 8}, {7, 16}, {50, 16}, {130, 64}, {100, 3}};
    static float W[130 * 64];
    int n, kind;
    int64_t i;
    for (n = 0; n < COUNT(sizes); n++) {
        for (kind = LA_ORTHOGONAL; kind <= LA_ORTHOGONAL_SPHERE; kind++) {
            int64_t rows = sizes[n][0], dk = sizes[n][1];
            CHECK(la_favor_projection(W, rows, dk, kind, 7) == LA_OK, "kind %d", kind);
            check_orthogonal(W, rows, dk);
            for (i = 0; kind == LA_ORTHOGONAL_SPHERE && i < rows; i++) {
                double length = sqrt(row_dot(W, dk, i, i) / (double)dk);
                CHECK(fabs(length - 1) <= 1e-6, "row %d has the length %g sqrt(dk)", (int)i,
                      length);
            }
        }
    }
}

/* |w|^2 of a normal row is chi-square: mean dk, variance 2 dk. Of n rows the mean is known to
   sqrt(2 dk / n), the variance of 4096 rows to about 5 %: five times that is allowed. */
static void check_row_lengths(const float *W, int64_t rows, int64_t dk, int kind) {
    double sum = 0, squares = 0, mean, variance, d = (double)dk, n = (double)rows;
    int64_t i;
    for (i = 0; i < rows; i++) {
        double length = row_dot(W, dk, i, i);
        sum += length;
        squares += (length - d) * (length - d);
    }
    mean = sum / n;
    variance = squares / n;
    CHECK(fabs(mean - d) < 5 * sqrt(2 * d / n), "kind %d: |w|^2 is %g on average", kind, mean);
    CHECK(fabs(variance / (2 * d) - 1) < 0.25, "kind %d: |w|^2 has the variance %g", kind,
          variance);
}

TEST(features_projection_row_lengths) {
    static float W[4096 * 16];
    uint64_t seed;
    for (seed = 0; seed < 4; seed++) {
        la_favor_projection(W, 4096, 16, LA_GAUSSIAN, seed);
        check_row_lengths(W, 4096, 16, LA_GAUSSIAN);
        la_favor_projection(W, 4096, 16, LA_ORTHOGONAL, seed);
        check_row_lengths(W, 4096, 16, LA_ORTHOGONAL);
    }
}

/* No direction is preferred: each channel has mean 0 and variance 1, in every row of a block. */
TEST(features_projection_has_no_direction) {
    enum { SEEDS = 4000, DK = 4 };
    double sums[DK * DK] = {0}, squares[DK * DK] = {0};
    float W[DK * DK];
    uint64_t seed;
    int i;
    for (seed = 0; seed < SEEDS; seed++) {
        la_favor_projection(W, DK, DK, LA_ORTHOGONAL, seed);
        for (i = 0; i < DK * DK; i++) {
            sums[i] += (double)W[i];
            squares[i] += (double)W[i] * (double)W[i];
        }
    }
    for (i = 0; i < DK * DK; i++) {
        double mean = sums[i] / SEEDS, variance = squares[i] / SEEDS;
        CHECK(fabs(mean) < 5 / sqrt(SEEDS), "row %d channel %d: mean %g", i / DK, i % DK, mean);
        CHECK(fabs(variance - 1) < 5 * sqrt(2.0 / SEEDS), "row %d channel %d: variance %g", i / DK,
              i % DK, variance);
    }
}

TEST(features_projection_refuses) {
    float W[16];
    W[0] = 5;
    CHECK(la_favor_projection(NULL, 2, 2, LA_GAUSSIAN, 1) == LA_E_NULL, "null");
    CHECK(la_favor_projection(W, 0, 2, LA_GAUSSIAN, 1) == LA_E_SIZE, "no features");
    CHECK(la_favor_projection(W, 2, 0, LA_GAUSSIAN, 1) == LA_E_SIZE, "no channels");
    CHECK(la_favor_projection(W, -1, 2, LA_GAUSSIAN, 1) == LA_E_SIZE, "negative");
    CHECK(la_favor_projection(W, 2, INT64_MAX, LA_GAUSSIAN, 1) == LA_E_SIZE, "absurd");
    CHECK(la_favor_projection(W, 2, 2, -1, 1) == LA_E_VALUE, "kind");
    CHECK(la_favor_projection(W, 2, 2, LA_ORTHOGONAL_SPHERE + 1, 1) == LA_E_VALUE, "kind");
    CHECK(W[0] == 5, "an error wrote %g", (double)W[0]);
}

/* ---------------------------------------------------------------- FAVOR+ estimates softmax */

enum { SM_T = 24, SM_DK = 16, SM_DV = 4, SM_FEATURES = 4096 };

typedef struct Softmax {
    float q[SM_T * SM_DK], k[SM_T * SM_DK], v[SM_T * SM_DV], out[SM_T * SM_DV];
    double want[SM_T * SM_DV], size;
    float W[SM_FEATURES * SM_DK];
} Softmax;

static void softmax_row(Softmax *data, int t) {
    double sum = 0, *o = &data->want[t * SM_DV];
    int s, i;
    for (i = 0; i < SM_DV; i++) {
        o[i] = 0;
    }
    for (s = 0; s < SM_T; s++) {
        double logit = 0, weight;
        for (i = 0; i < SM_DK; i++) {
            logit += (double)data->q[t * SM_DK + i] * (double)data->k[s * SM_DK + i];
        }
        weight = exp(logit / sqrt(SM_DK));
        sum += weight;
        for (i = 0; i < SM_DV; i++) {
            o[i] += weight * (double)data->v[s * SM_DV + i];
        }
    }
    for (i = 0; i < SM_DV; i++) {
        o[i] /= sum;
        data->size += o[i] * o[i];
    }
}

/* Values that are large where a key is, so that a wrong average shows. */
static void softmax_new(Softmax *data, float size) {
    int i;
    for (i = 0; i < SM_T * SM_DK; i++) {
        data->q[i] = random_uniform(-size, size);
        data->k[i] = random_uniform(-size, size);
    }
    for (i = 0; i < SM_T * SM_DV; i++) {
        data->v[i] = random_uniform(-1, 1) + data->k[i / SM_DV * SM_DK + i % SM_DV];
    }
    data->size = 0;
    for (i = 0; i < SM_T; i++) {
        softmax_row(data, i);
    }
    data->size = sqrt(data->size);
}

/* The relative error of one estimate. */
static double softmax_error(Softmax *data, int64_t features, int kernel, int kind, uint64_t seed,
                            const Way *way) {
    la_layer layer;
    la_call call;
    double error = 0;
    int i;
    la_layer_init(&layer, LA_FAVOR, 1, SM_DK, SM_DV);
    layer.bidirectional = 1;
    layer.scale = 0.25f; /* dk^-1/2 */
    layer.projection = data->W;
    layer.favor_kernel = kernel;
    layer.features = kernel == LA_FAVOR_HYPERBOLIC ? features / 2 : features;
    CHECK(la_favor_projection(data->W, layer.features, SM_DK, kind, seed) == LA_OK, "projection");
    la_call_init(&call, &layer, 1, SM_T);
    call.q = la_bthd(data->q, SM_T, 1, SM_DK);
    call.k = la_bthd(data->k, SM_T, 1, SM_DK);
    call.v = la_bthd(data->v, SM_T, 1, SM_DV);
    call.out = la_bthd_out(data->out, SM_T, 1, SM_DV);
    run_call(&layer, &call, way);
    for (i = 0; i < SM_T * SM_DV; i++) {
        double difference = (double)data->out[i] - data->want[i];
        error += difference * difference;
    }
    return sqrt(error) / data->size;
}

/* Root of the mean square over seeds. */
static double mean_error(Softmax *data, int64_t features, int kernel, int kind, int seeds) {
    Way way = {.form = LA_CHUNKWISE, .threads = 1};
    double sum = 0;
    int seed;
    for (seed = 0; seed < seeds; seed++) {
        double error = softmax_error(data, features, kernel, kind, (uint64_t)seed, &way);
        sum += error * error;
    }
    return sqrt(sum / seeds);
}

TEST(features_favor_estimates_softmax) {
    static Softmax data;
    int kernel, n;
    Way way;
    softmax_new(&data, 0.7f);
    for (kernel = LA_FAVOR_POSITIVE; kernel <= LA_FAVOR_HYPERBOLIC; kernel++) {
        for (n = 0; feature_way(n, &way); n++) {
            double error = softmax_error(&data, 4096, kernel, LA_ORTHOGONAL, 3, &way);
            CHECK(error < 0.05, "kernel %d form %d isa %d: error %g", kernel, way.form, way.isa,
                  error);
        }
    }
}

TEST(features_favor_error_falls_with_features) {
    static const int64_t features[] = {64, 256, 1024, 4096};
    static Softmax data;
    double errors[4], slope;
    int kernel, n;
    softmax_new(&data, 0.7f);
    for (kernel = LA_FAVOR_POSITIVE; kernel <= LA_FAVOR_HYPERBOLIC; kernel++) {
        for (n = 0; n < 4; n++) {
            errors[n] = mean_error(&data, features[n], kernel, LA_ORTHOGONAL, 40);
            CHECK(n == 0 || (errors[n] < errors[n - 1] / 1.4 && errors[n] > errors[n - 1] / 2.8),
                  "kernel %d: %g with %d features, %g with %d", kernel, errors[n], (int)features[n],
                  n ? errors[n - 1] : 0, n ? (int)features[n - 1] : 0);
        }
        slope = log(errors[3] / errors[0]) / log(64);
        CHECK(slope < -0.42 && slope > -0.58, "kernel %d: error ~ features^%g", kernel, slope);
    }
}

/* Over 600 seeds. It is the antithetic pairs of the hyperbolic features that gain most. */
TEST(features_favor_orthogonal_beats_independent) {
    static const double most[] = {0.98, 0.8};
    static Softmax data;
    double independent, orthogonal;
    int kernel;
    softmax_new(&data, 0.7f);
    for (kernel = LA_FAVOR_POSITIVE; kernel <= LA_FAVOR_HYPERBOLIC; kernel++) {
        independent = mean_error(&data, 64, kernel, LA_GAUSSIAN, 600);
        orthogonal = mean_error(&data, 64, kernel, LA_ORTHOGONAL, 600);
        CHECK(orthogonal < most[kernel] * independent, "kernel %d: %g, independent rows %g", kernel,
              orthogonal, independent);
    }
}

/* ---------------------------------------------------------------- FAVOR+ far from the origin */

static void check_finite(Problem *problem, const Way *way) {
    size_t count, j, bad = 0;
    float *out, *state;
    problem->note = "huge inputs";
    problem_run(problem, way);
    out = problem_copy_out(problem, &count);
    for (j = 0; j < count; j++) {
        bad += fabsf(out[j]) <= 1.00001f ? 0 : 1;
    }
    CHECK(bad == 0, "%s: %zu outputs are no averages", problem_text(problem), bad);
    state = problem_copy_state(problem, &count);
    for (j = bad = 0; j < count; j++) {
        bad += isfinite(state[j]) ? 0 : 1;
    }
    CHECK(bad == 0, "%s: %zu numbers of the state", problem_text(problem), bad);
    free(out);
    free(state);
}

/* Keys and queries up to `size`: averages of v, or 0 where no weight is left. */
static void check_huge(const Spec *spec, float size) {
    Problem *problem = problem_blank(spec);
    int64_t t, i;
    int n;
    Way way;
    for (t = 0; problem != NULL && t < spec->T; t++) {
        for (i = 0; i < spec->dk; i++) {
            out_row(&problem->q, 0, t, 0)[i] = random_uniform(-size, size);
            out_row(&problem->k, 0, t, 0)[i] = random_uniform(-size, size);
        }
        for (i = 0; i < spec->dv; i++) {
            out_row(&problem->v, 0, t, 0)[i] = random_uniform(-1, 1);
        }
    }
    for (n = 0; problem != NULL && way_number(n, &way); n++) {
        check_finite(problem, &way);
    }
    if (problem != NULL) {
        problem_free(problem);
    }
}

TEST(features_favor_of_huge_inputs_is_finite) {
    static const float sizes[] = {10, 30, 100, 1000};
    static const float epsilons[] = {0, 1e-4f, 0}, eps[] = {0, 0, 1e-6f};
    int kernel, direction, n, e;
    for (kernel = LA_FAVOR_POSITIVE; kernel <= LA_FAVOR_RELU; kernel++) {
        for (direction = 0; direction < 2; direction++) {
            Spec spec = {.variant = LA_FAVOR, .T = 37, .dk = 16, .dv = 5, .states = STATES_OUT};
            spec.favor_kernel = kernel;
            spec.bidirectional = direction;
            for (n = 0; n < COUNT(sizes); n++) {
                for (e = 0; e < 3; e++) {
                    spec.feature_eps = epsilons[e];
                    spec.eps = eps[e];
                    spec.eps_mode = n % 2 ? LA_EPS_MAX : LA_EPS_ADD;
                    check_huge(&spec, sizes[n]);
                }
            }
        }
    }
}

enum { GROW_T = 67, GROW_DK = 8 };

/* Token t's key is `size` times as long as one of (-1, 1); one is as long as it grew. */
static void grow_keys(Problem *problem, float first, float last) {
    int64_t t, i;
    for (t = 0; t < GROW_T; t++) {
        double size = (double)first * pow((double)(last / first), (double)t / (GROW_T - 1));
        double length = 0;
        float *k = out_row(&problem->k, 0, t, 0);
        for (i = 0; i < GROW_DK; i++) {
            k[i] = random_uniform(-1, 1);
            length += (double)k[i] * (double)k[i];
        }
        for (i = 0; i < GROW_DK; i++) {
            k[i] = (float)((double)k[i] * size / sqrt(length));
        }
    }
}

/* m of the final state is the largest exponent of all keys, and of the state that came in. */
static void check_growth(const Spec *spec, float first, float last) {
    Problem *problem = problem_new(spec);
    const double *want;
    int n;
    Way way;
    if (problem == NULL) {
        return;
    }
    problem->note = "growing keys";
    grow_keys(problem, first, last);
    problem_oracle(problem);
    want = problem->want.state + oracle_head_floats(&problem->layer) - 1;
    for (n = 0; way_number(n, &way); n++) {
        double m;
        problem_run(problem, &way);
        problem_check(problem);
        m = (double)problem->states[oracle_head_floats(&problem->layer) - 1];
        CHECK(fabs(m - *want) <= 1e-4 * fmax(1, fabs(*want)), "%s: m = %.9g, want %.9g",
              problem_text(problem), m, *want);
    }
    problem_free(problem);
}

TEST(features_favor_keys_that_grow) {
    int kernel;
    for (kernel = LA_FAVOR_POSITIVE; kernel <= LA_FAVOR_HYPERBOLIC; kernel++) {
        Spec spec = {.variant = LA_FAVOR, .T = GROW_T, .dk = GROW_DK, .dv = 5};
        spec.favor_kernel = kernel;
        for (spec.layout = LA_KV; spec.layout <= LA_VK; spec.layout++) {
            spec.states = STATES_BOTH;
            check_growth(&spec, 0.09f, 9); /* |y|^2 from 0.0081 to 81 */
            check_growth(&spec, 9, 0.09f);
            spec.states = STATES_OUT;
            spec.feature_eps = 1e-4f;
            check_growth(&spec, 0.09f, 9);
            spec.feature_eps = 0;
            check_growth(&spec, 9, 9);
        }
    }
}

/* Along a row w of the projection exponents are s |w|^2 - s^2 |w|^2 / 2, and grow from 0 to
   |w|^2 / 2: with |w|^2 = 80 the maximum rises by 40, and each token outweighs all before. */
TEST(features_favor_maximum_that_rises) {
    int layout, n;
    Way way;
    for (layout = LA_KV; layout <= LA_VK; layout++) {
        Spec spec = {.variant = LA_FAVOR, .T = GROW_T, .dk = GROW_DK, .dv = 5, .features = 19};
        Problem *problem;
        int64_t t, i;
        spec.layout = layout;
        problem = problem_new(&spec);
        if (problem == NULL) {
            return;
        }
        problem->note = "rising maximum";
        for (i = 0; i < GROW_DK; i++) { /* row 4, of the problem's first buffer */
            problem->buffers[0][4 * GROW_DK + i] = i % 2 ? 3.1622777f : -3.1622777f;
        }
        for (t = 0; t < GROW_T; t++) {
            double s = 0.01 * pow(100, (double)t / (GROW_T - 1));
            for (i = 0; i < GROW_DK; i++) {
                float w = problem->buffers[0][4 * GROW_DK + i];
                out_row(&problem->k, 0, t, 0)[i] = (float)(s * (double)w);
            }
        }
        problem_oracle(problem);
        CHECK(problem->want.state[oracle_head_floats(&problem->layer) - 1] > 39.9, "m rises");
        for (n = 0; way_number(n, &way); n++) {
            problem_run(problem, &way);
            problem_check(problem);
        }
        problem_free(problem);
    }
}

/* Promise 2: keys that raise the maximum later change no bit of what was before. */
TEST(features_favor_later_keys_change_nothing) {
    static const float sizes[] = {1000, 3, 1e30f, INFINITY, NAN};
    int kernel, n, i, size;
    Way way;
    for (kernel = LA_FAVOR_POSITIVE; kernel <= LA_FAVOR_RELU; kernel++) {
        for (size = 0; size < COUNT(sizes); size++) {
            Spec spec = {.variant = LA_FAVOR, .T = 67, .H = 2, .dk = 9, .dv = 21};
            Problem *before, *after;
            size_t count;
            int first = size % 2 ? 33 : 40;
            spec.favor_kernel = kernel;
            spec.layout = size % 2;
            spec.feature_eps = size % 3 ? 1e-4f : 0;
            before = problem_new(&spec);
            for (n = 0; before != NULL && way_number(n, &way); n++) {
                float *want, *got, saved[9];
                problem_run(before, &way);
                want = problem_copy_out(before, &count);
                after = before;
                memcpy(saved, out_row(&after->k, 0, first, 1), sizeof saved);
                for (i = 0; i < 9; i++) {
                    out_row(&after->k, 0, first, 1)[i] *= sizes[size];
                }
                after->note = "a later key";
                problem_run(after, &way);
                got = problem_copy_out(after, &count);
                check_same(problem_text(after), got, want, (size_t)first * 2 * 21);
                memcpy(out_row(&after->k, 0, first, 1), saved, sizeof saved);
                free(want);
                free(got);
            }
            if (before != NULL) {
                problem_free(before);
            }
        }
    }
}

/* z all 0: empty, whatever m is. */
TEST(features_favor_state_of_nothing) {
    static const float maxima[] = {50, -50, 0, 1e30f, INFINITY, -INFINITY, NAN};
    int i, n, layout;
    Way way;
    for (layout = LA_KV; layout <= LA_VK; layout++) {
        Spec spec = {.variant = LA_FAVOR, .T = 19, .dk = 7, .dv = 5, .feature_eps = 1e-4f};
        Problem *problem;
        size_t count;
        spec.layout = layout;
        problem = problem_new(&spec);
        if (problem == NULL) {
            return;
        }
        problem->note = "state of nothing";
        count = problem->state_floats;
        for (i = 0; i < COUNT(maxima); i++) {
            memset(problem->state_start, 0, count * sizeof(float));
            problem->state_start[count - 1] = maxima[i];
            problem_oracle(problem);
            for (n = 0; way_number(n, &way); n++) {
                problem_run(problem, &way);
                problem_check(problem);
            }
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- random Fourier features */

enum { ANGLES = 8192 };

/* From -size to size, and all about where cosine or sine change sign. */
static float angle_argument(int i, float size) {
    const int turn = i / 2 - ANGLES / 8;
    double quarter = asin(1) * (double)turn;
    if (i < ANGLES / 2) {
        return fabs(quarter) <= (double)size ? (float)(quarter + (i % 2 ? 1e-3 : 0)) : (float)i;
    }
    return size * (4 * (float)i - 3 * ANGLES) / ANGLES;
}

/* One projection, w = 1, and values of 1: S of each sequence is [cos x, sin x] of its one key. */
TEST(features_cosines_and_sines) {
    static const float sizes[] = {3, 1500, 1e4f}, one[] = {1};
    static float x[ANGLES], ones[ANGLES], out[ANGLES], states[2 * ANGLES];
    la_layer layer;
    la_call call;
    Way way;
    int i, n, size;
    la_layer_init(&layer, LA_RFF, 1, 1, 1);
    layer.projection = one;
    layer.features = 1;
    layer.normalised = 0;
    la_call_init(&call, &layer, ANGLES, 1);
    call.q = call.v = la_bthd(ones, 1, 1, 1);
    call.k = la_bthd(x, 1, 1, 1);
    call.out = la_bthd_out(out, 1, 1, 1);
    call.state_out = states;
    for (size = 0; size < COUNT(sizes); size++) {
        for (i = 0; i < ANGLES; i++) {
            x[i] = angle_argument(i, sizes[size]);
            ones[i] = 1;
        }
        for (n = 0; feature_way(n, &way); n++) {
            double worst = 0;
            run_call(&layer, &call, &way);
            for (i = 0; i < ANGLES; i++) {
                double c = cos((double)x[i]) - (double)states[2 * i];
                double s = sin((double)x[i]) - (double)states[2 * i + 1];
                worst = fmax(worst, fmax(fabs(c), fabs(s)));
            }
            CHECK(worst < 2e-7, "up to %g, form %d isa %d: off by %g", (double)sizes[size],
                  way.form, way.isa, worst);
        }
    }
}

/* Angles that floats do not resolve still have cosines and sines of one circle. */
TEST(features_huge_angles_stay_on_the_circle) {
    static const float x[] = {1e5f, -3e6f, 1e20f, FLT_MAX, -FLT_MAX, INFINITY, -INFINITY};
    static const float one[] = {1};
    static float ones[COUNT(x)], out[COUNT(x)], states[2 * COUNT(x)];
    la_layer layer;
    la_call call;
    Way way;
    int i, n;
    la_layer_init(&layer, LA_RFF, 1, 1, 1);
    layer.projection = one;
    layer.features = 1;
    layer.normalised = 0;
    la_call_init(&call, &layer, COUNT(x), 1);
    call.q = la_bthd(x, 1, 1, 1);
    call.k = la_bthd(x, 1, 1, 1);
    call.v = la_bthd(ones, 1, 1, 1);
    call.out = la_bthd_out(out, 1, 1, 1);
    call.state_out = states;
    for (i = 0; i < COUNT(x); i++) {
        ones[i] = 1;
    }
    for (n = 0; feature_way(n, &way); n++) {
        run_call(&layer, &call, &way);
        for (i = 0; i < COUNT(x); i++) {
            double c = (double)states[2 * i], s = (double)states[2 * i + 1];
            CHECK(fabs(c * c + s * s - 1) < 1e-6, "x = %g: %g, %g", (double)x[i], c, s);
            CHECK(fabs((double)out[i] - 1) < 1e-6, "x = %g: o = %g", (double)x[i], (double)out[i]);
        }
    }
}

/* Averages of v, weighed with exp(-scale |q - k|^2 / 2): what rows of normal numbers estimate. */
static double gaussian_error(Softmax *data, int64_t features, uint64_t seed) {
    Way way = {.form = LA_CHUNKWISE, .threads = 1};
    la_layer layer;
    la_call call;
    double error = 0, size = 0;
    int t, s, i;
    la_layer_init(&layer, LA_RFF, 1, SM_DK, SM_DV);
    layer.bidirectional = 1;
    layer.scale = 0.25f;
    layer.projection = data->W;
    layer.features = features;
    CHECK(la_favor_projection(data->W, features, SM_DK, LA_ORTHOGONAL, seed) == LA_OK, "W");
    la_call_init(&call, &layer, 1, SM_T);
    call.q = la_bthd(data->q, SM_T, 1, SM_DK);
    call.k = la_bthd(data->k, SM_T, 1, SM_DK);
    call.v = la_bthd(data->v, SM_T, 1, SM_DV);
    call.out = la_bthd_out(data->out, SM_T, 1, SM_DV);
    run_call(&layer, &call, &way);
    for (t = 0; t < SM_T; t++) {
        double o[SM_DV] = {0}, sum = 0;
        for (s = 0; s < SM_T; s++) {
            double distance = 0, weight;
            for (i = 0; i < SM_DK; i++) {
                double d = (double)data->q[t * SM_DK + i] - (double)data->k[s * SM_DK + i];
                distance += d * d;
            }
            weight = exp(-(double)layer.scale * distance / 2);
            sum += weight;
            for (i = 0; i < SM_DV; i++) {
                o[i] += weight * (double)data->v[s * SM_DV + i];
            }
        }
        for (i = 0; i < SM_DV; i++) {
            double difference = o[i] / sum - (double)data->out[t * SM_DV + i];
            error += difference * difference;
            size += o[i] / sum * (o[i] / sum);
        }
    }
    return sqrt(error / size);
}

TEST(features_fourier_estimates_gaussian_kernels) {
    static Softmax data;
    double few = 0, many = 0;
    uint64_t seed;
    softmax_new(&data, 0.7f);
    for (seed = 0; seed < 20; seed++) {
        few += gaussian_error(&data, 256, seed) / 20;
        many += gaussian_error(&data, 4096, seed) / 20;
    }
    CHECK(many < 0.05, "4096 angles: off by %g", many);
    CHECK(many < few / 3 && many > few / 5, "256 angles: off by %g, 4096: by %g", few, many);
}

/* ---------------------------------------------------------------- DPFP */

/* o of one query, of a state that is the unit matrix: the features themselves. */
static void dpfp_of(const float *x, int64_t dk, int64_t nu, const Way *way, float *f) {
    enum { MOST = 48 };
    static float unit[MOST * MOST], no_key[MOST], no_value[MOST];
    int64_t r = 2 * dk * nu, i;
    la_layer layer;
    la_call call;
    la_layer_init(&layer, LA_DPFP, 1, dk, r);
    layer.nu = nu;
    memset(unit, 0, sizeof unit);
    for (i = 0; i < r; i++) {
        unit[i * r + i] = 1;
    }
    la_call_init(&call, &layer, 1, 1);
    call.q = la_bthd(x, 1, 1, dk);
    call.k = la_bthd(no_key, 1, 1, dk);
    call.v = la_bthd(no_value, 1, 1, r);
    call.out = la_bthd_out(f, 1, 1, r);
    call.state_in = unit;
    run_call(&layer, &call, way);
}

/* x = [2, -3, 1]: x' = [2, 0, 1, 0, 3, 0]. */
TEST(features_dpfp_by_hand) {
    static const float x[] = {2, -3, 1};
    static const double want[] = {0, 0, 0, 0, 0, 0,  /* rolled by 1: 0 2 0 1 0 3 */
                                  6, 0, 2, 0, 3, 0,  /* by 2: 3 0 2 0 1 0        */
                                  0, 0, 0, 0, 0, 0}; /* by 3: 0 3 0 2 0 1        */
    float f[18];
    double sums[18];
    Way way;
    int i, n;
    for (i = 0; i < 18; i++) {
        sums[i] = want[i] / 11;
    }
    for (n = 0; feature_way(n, &way); n++) {
        dpfp_of(x, 3, 3, &way, f);
        check_close("DPFP by hand", f, sums, 18, 1e-7);
    }
}

/* Nothing of x = 0, and of any other multiple of x the same. */
TEST(features_dpfp_does_not_depend_on_size) {
    static const float sizes[] = {1e-44f, 1e-38f, 1e-30f, 1e-10f, 1, 1e10f, 1e30f, 3e38f};
    static const float directions[] = {1, -0.5f, 0.25f, 0, 0.5f, -1, -1, 0.5f};
    float x[8], f[48], want[48];
    int64_t nu;
    Way way;
    int i, n, size;
    for (n = 0; feature_way(n, &way); n++) {
        for (nu = 1; nu <= 3; nu++) {
            double sum = 0;
            dpfp_of(directions, 8, nu, &way, want);
            for (i = 0; i < 16 * nu; i++) {
                sum += (double)want[i];
            }
            CHECK(fabs(sum - 1) < 1e-6, "nu %d: the sum is %g", (int)nu, sum);
            for (size = 1; size < COUNT(sizes); size++) {
                for (i = 0; i < 8; i++) {
                    x[i] = directions[i] * sizes[size];
                }
                dpfp_of(x, 8, nu, &way, f);
                for (i = 0; i < 16 * nu; i++) {
                    CHECK(fabsf(f[i] - want[i]) < 1e-6f, "size %g: f[%d] is %g, want %g",
                          (double)sizes[size], i, (double)f[i], (double)want[i]);
                }
            }
            memset(x, 0, sizeof x);
            dpfp_of(x, 8, nu, &way, f);
            for (i = 0; i < 16 * nu; i++) {
                CHECK(f[i] == 0, "f[%d] of nothing is %g", i, (double)f[i]);
            }
        }
    }
}

/* Rolls beyond 2 dk begin again. */
TEST(features_dpfp_of_any_nu) {
    static const int64_t sizes[][2] = {{1, 1}, {1, 2}, {1, 5}, {2, 3}, {3, 7}, {17, 4}, {5, 23}};
    int n;
    for (n = 0; n < COUNT(sizes); n++) {
        Spec spec = {.variant = LA_DPFP, .T = 19, .H = 2, .dv = 7, .beta = BETA_TOKEN};
        spec.dk = sizes[n][0];
        spec.nu = sizes[n][1];
        problem_all_ways(&spec, "any nu");
    }
}

/* ---------------------------------------------------------------- far from the origin */

/* |w| |x| up to 50, as far as it is promised; a signed denominator is left out. */
TEST(features_of_long_projections) {
    static const la_variant projected[] = {LA_HEDGEHOG, LA_RFF};
    int i;
    for (i = 0; i < 2 * 3; i++) {
        Spec spec = {.T = 35, .H = 2, .dk = 64, .dv = 9, .features = 33, .l2_mode = LA_L2_SUM};
        Problem *problem;
        int64_t n;
        Way way;
        spec.variant = projected[i / 3];
        spec.hedgehog_kernel = i % 3;
        spec.normalised = spec.variant == LA_RFF ? -1 : 1;
        spec.states = STATES_OUT;
        problem = problem_new(&spec);
        for (n = 0; n < spec.features; n++) {
            float *w = problem->buffers[0] + n * spec.dk; /* the first that a problem has */
            double length = sqrt(row_dot(w, spec.dk, 0, 0));
            int64_t j;
            for (j = 0; j < spec.dk; j++) {
                w[j] = (float)((double)w[j] * 50 / length);
            }
        }
        problem->note = "long projections";
        problem_oracle(problem);
        for (n = 0; way_number((int)n, &way); n++) {
            if (problem_run(problem, &way)) {
                problem_check(problem);
            }
        }
        problem_free(problem);
    }
}

/* Softmaxes of any size are finite, and averages stay averages. */
TEST(features_hedgehog_of_huge_inputs_is_finite) {
    static const float sizes[] = {10, 1e3f, 1e10f, 1e30f};
    int kernel, n;
    for (kernel = LA_HEDGEHOG_SPLIT; kernel <= LA_HEDGEHOG_EXP; kernel++) {
        for (n = 0; n < COUNT(sizes); n++) {
            Spec spec = {.variant = LA_HEDGEHOG, .T = 37, .dk = 16, .dv = 5, .states = STATES_OUT};
            spec.hedgehog_kernel = kernel;
            spec.feature_eps = n % 2 ? 1e-12f : 0;
            check_huge(&spec, sizes[n]);
        }
    }
}

/* ---------------------------------------------------------------- Lightning's slopes */

/* 2^(-8 (h + 1) / n) of a power of two; else the power below's, then every other one of twice
   that. */
static double slope_of(int64_t h, int64_t heads) {
    int64_t power = 1;
    while (2 * power <= heads) {
        power *= 2;
    }
    if (h < power) {
        return pow(2, -8 * (double)(h + 1) / (double)power);
    }
    return pow(2, -8 * (double)(2 * (h - power) + 1) / (double)(2 * power));
}

static void check_slopes(int64_t heads, int64_t first, int64_t count, int64_t layer,
                         int64_t layers) {
    double factor = layers <= 1 ? 1 : 1 - (double)layer / (double)(layers - 1) + 1e-5;
    float g[130];
    int64_t h;
    /* cppcheck-suppress negativeIndex */
    g[count] = 7;
    CHECK(la_lightning_log_decay(g, count, first, heads, layer, layers) == LA_OK, "%d heads",
          (int)heads);
    for (h = 0; h < count; h++) {
        double want = -slope_of(first + h, heads) * factor;
        CHECK(fabs((double)g[h] - want) <= 2e-7 * fabs(want),
              "head %d of %d, layer %d of %d: %.9g, want %.9g", (int)(first + h), (int)heads,
              (int)layer, (int)layers, (double)g[h], want);
    }
    CHECK(g[count] == 7, "a gate too many: %g", (double)g[count]);
}

TEST(features_lightning_slopes) {
    static const int64_t heads[] = {1, 2, 3, 4, 5, 8, 12, 16, 17, 31, 32, 40, 64, 100, 128};
    int n;
    CHECK(slope_of(0, 8) == 0.5 && slope_of(7, 8) == 1.0 / 256, "the formula of powers of two");
    CHECK(slope_of(8, 12) == pow(2, -0.5) && slope_of(11, 12) == pow(2, -3.5), "of others");
    for (n = 0; n < COUNT(heads); n++) {
        check_slopes(heads[n], 0, heads[n], 0, 0);
        check_slopes(heads[n], 0, heads[n], 0, 1);
        check_slopes(heads[n], 0, heads[n], 0, 32);
        check_slopes(heads[n], 0, heads[n], 5, 32);
        check_slopes(heads[n], 0, heads[n], 31, 32); /* 1e-5 is all that is left */
        check_slopes(heads[n], heads[n] / 2, heads[n] - heads[n] / 2, 79, 80);
        check_slopes(heads[n], heads[n] - 1, 1, 0, 80);
        check_slopes(heads[n], heads[n] / 3, 0, 1, 2);
    }
}

TEST(features_lightning_slopes_refuse) {
    float g[4] = {7, 7, 7, 7};
    CHECK(la_lightning_log_decay(NULL, 4, 0, 4, 0, 1) == LA_E_NULL, "null");
    CHECK(la_lightning_log_decay(g, -1, 0, 4, 0, 1) == LA_E_SIZE, "negative count");
    CHECK(la_lightning_log_decay(g, 4, -1, 4, 0, 1) == LA_E_SIZE, "negative first");
    CHECK(la_lightning_log_decay(g, 4, 1, 4, 0, 1) == LA_E_SIZE, "beyond the heads");
    CHECK(la_lightning_log_decay(g, 4, INT64_MAX, 4, 0, 1) == LA_E_SIZE, "beyond the heads");
    CHECK(la_lightning_log_decay(g, 4, 0, -4, 0, 1) == LA_E_SIZE, "negative heads");
    CHECK(la_lightning_log_decay(g, 4, 0, 4, -1, 8) == LA_E_SIZE, "negative layer");
    CHECK(la_lightning_log_decay(g, 4, 0, 4, 8, 8) == LA_E_SIZE, "beyond the layers");
    CHECK(g[0] == 7 && g[3] == 7, "an error wrote %g", (double)g[0]);
}

/* A dominating key is forgotten; those after it, 88 below it in the exponent, must not vanish. */
TEST(features_favor_maximum_is_forgotten) {
    static const float gates[] = {0, -INFINITY, -1, -1, -100, -0.5f};
    static float W[8 * 8];
    Spec spec = {.variant = LA_FAVOR, .T = 6, .dk = 8, .dv = 5, .features = 8,
                 .gate = GATE_MILD, .states = STATES_SAME};
    Way way;
    int i;
    for (i = 0; i < 8; i++) {
        W[9 * i] = 8.8f;
    }
    for (spec.layout = LA_KV; spec.layout <= LA_VK; spec.layout++) {
        static const int64_t parts[] = {2, 4};
        Problem *problem = problem_new(&spec);
        int64_t t, j;
        problem->note = "forgotten";
        problem->layer.projection = W;
        problem->layer.scale = 1;
        for (t = 0; t < spec.T; t++) {
            for (j = 0; j < spec.dk; j++) {
                out_row(&problem->k, 0, t, 0)[j] = j > 0 ? 0.1f * (float)(t + j) : t ? -10 : 10;
                out_row(&problem->q, 0, t, 0)[j] = 0.1f * (float)(t - j);
            }
            out_row(&problem->log_decay, 0, t, 0)[0] = gates[t];
        }
        problem_oracle(problem);
        for (i = 0; way_number(i, &way); i++) {
            if (problem_run(problem, &way)) {
                problem_check(problem);
            }
            if (problem_run_split(problem, &way, parts, 2)) {
                problem_check(problem);
            }
        }
        problem_free(problem);
    }
}
