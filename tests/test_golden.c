/* The outputs of published reference implementations, in tests/golden. A case is one row below;
   which arrays it has decides how the call is set up. Other folder: -DTEST_GOLDEN='"..."'. */
#include "npy.h"
#include "oracle.h"
#include "test.h"

#include <math.h>

#ifndef TEST_GOLDEN
#define TEST_GOLDEN "tests/golden"
#endif

static const struct Golden {
    const char *name;
    la_variant variant;
} cases[] = {
    {"retention_01", LA_RETNET},   {"retention_02", LA_RETNET},   {"retention_03", LA_RETNET},
    {"retention_04", LA_RETNET},   {"retention_05", LA_RETNET},   {"retention_06", LA_RETNET},
    {"retention_07", LA_RETNET},   {"delta_01", LA_DELTANET},     {"delta_02", LA_DELTANET},
    {"delta_03", LA_DELTANET},     {"delta_04", LA_DELTANET},     {"delta_05", LA_DELTANET},
    {"delta_06", LA_DELTANET},     {"delta_07", LA_DELTANET},     {"gdn_01", LA_GATED_DELTANET},
    {"gdn_02", LA_GATED_DELTANET}, {"gdn_03", LA_GATED_DELTANET}, {"gdn_04", LA_GATED_DELTANET},
    {"gdn_05", LA_GATED_DELTANET}, {"gdn_06", LA_GATED_DELTANET}, {"gdn_07", LA_GATED_DELTANET},
    {"gdn_08", LA_GATED_DELTANET}, {"gdn_09", LA_GATED_DELTANET}, {"onnx_02", LA_DELTANET},
};

enum { CASES = sizeof cases / sizeof cases[0] };

/* ---------------------------------------------------------------- files */

/* The value of a key in case.txt; 0 if there is no such key. */
static int case_value(const char *name, const char *key, char *value, size_t size) {
    char path[256], line[1024];
    size_t length = strlen(key);
    int found = 0;
    FILE *file;
    snprintf(path, sizeof path, "%s/%s/case.txt", TEST_GOLDEN, name);
    file = fopen(path, "r");
    if (!CHECK(file != NULL, "%s", path)) {
        return 0;
    }
    while (!found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            snprintf(value, size, "%s", line + length + 1);
            value[strcspn(value, "\r\n")] = '\0';
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static double case_number(const char *name, const char *key, double otherwise) {
    char value[64];
    return case_value(name, key, value, sizeof value) ? strtod(value, NULL) : otherwise;
}

static int case_says(const char *name, const char *key, const char *want) {
    char value[64];
    return case_value(name, key, value, sizeof value) && strcmp(value, want) == 0;
}

/* Arrays that the case does not list are empty. */
static int read_array(const char *name, const char *kind, const char *array, npy_array *data) {
    char path[256], text[64], key[64];
    const char *error;
    memset(data, 0, sizeof *data);
    snprintf(key, sizeof key, "%s.%s", kind, array);
    if (!case_value(name, key, text, sizeof text)) {
        return 0;
    }
    snprintf(path, sizeof path, "%s/%s/%s.npy", TEST_GOLDEN, name, array);
    error = npy_read(path, data);
    return CHECK(error == NULL, "%s: %s", path, error);
}

/* ---------------------------------------------------------------- from files to a problem */

/* Element i of the array is element i of the packed tensor [B][T][heads][width]. */
static void fill_tensor(const Problem *problem, const npy_array *data, const la_out *view,
                        int64_t heads, int64_t T) {
    int64_t b, t, h, j;
    size_t i = 0;
    int64_t B = view->batch_stride == 0 ? 1 : problem->spec.B;
    CHECK(data->count == (size_t)(B * T * heads * view->width), "%s: %zu elements, want %d",
          problem->note, data->count, (int)(B * T * heads * view->width));
    for (b = 0; b < B; b++) {
        for (t = 0; t < T; t++) {
            for (h = 0; h < heads; h++) {
                for (j = 0; j < view->width && i < data->count; j++) {
                    out_row(view, b, t, h)[j] = npy_float(data, i++);
                }
            }
        }
    }
}

static void read_tensor(const Problem *problem, const char *array, const la_out *view,
                        int64_t heads, int64_t T) {
    npy_array data;
    if (CHECK(read_array(problem->note, "input", array, &data), "no %s", array)) {
        fill_tensor(problem, &data, view, heads, T);
        npy_free(&data);
    }
}

/* gamma -> its logarithm. */
static void read_gammas(const Problem *problem) {
    npy_array gamma;
    int64_t h;
    read_array(problem->note, "input", "gamma", &gamma);
    for (h = 0; h < problem->spec.H && h < (int64_t)gamma.count; h++) {
        double g = log(npy_double(&gamma, (size_t)h));
        out_row(&problem->log_decay, 0, 0, h)[0] = (float)g;
    }
    npy_free(&gamma);
}

/* a, A_log, dt_bias -> g, by the library's own helper. */
static void read_raw_gates(const Problem *problem) {
    npy_array a, A_log, dt_bias;
    int64_t rows = problem->spec.B * problem->spec.T, heads = problem->spec.H;
    if (CHECK(read_array(problem->note, "input", "a", &a), "no a") &&
        CHECK(read_array(problem->note, "input", "A_log", &A_log), "no A_log") &&
        CHECK(read_array(problem->note, "input", "dt_bias", &dt_bias), "no dt_bias")) {
        float *values = npy_floats(&a), *scales = npy_floats(&A_log);
        float *biases = npy_floats(&dt_bias);
        la_status status = la_gate_log_decay(values, values, scales, biases, rows, heads);
        CHECK(status == LA_OK, "la_gate_log_decay: %s", la_status_text(status));
        memcpy(problem->log_decay.data, values, a.count * sizeof *values);
        free(values);
        free(scales);
        free(biases);
    }
    npy_free(&a);
    npy_free(&A_log);
    npy_free(&dt_bias);
}

static void fill_state(const Problem *problem) {
    const la_layer *layer = &problem->layer;
    int64_t b, h, i, j;
    size_t n = 0;
    npy_array S0;
    if (!read_array(problem->note, "input", "S0", &S0)) {
        return;
    }
    for (b = 0; b < problem->spec.B; b++) {
        for (h = 0; h < layer->heads; h++) {
            for (i = 0; i < layer->dim_k; i++) {
                for (j = 0; j < layer->dim_v && n < S0.count; j++) {
                    int64_t at = oracle_state_index(layer, h, i, j);
                    problem->state_start[b * problem->call.state_in_stride + at] =
                        npy_float(&S0, n++);
                }
            }
        }
    }
    CHECK(n == S0.count, "%s: S0 has %zu elements", problem->note, S0.count);
    npy_free(&S0);
}

static void fill_problem(const Problem *problem) {
    const Spec *spec = &problem->spec;
    read_tensor(problem, "q", &problem->q, spec->Hq, spec->T);
    read_tensor(problem, "k", &problem->k, spec->Hk, spec->keys);
    read_tensor(problem, "v", &problem->v, spec->H, spec->keys);
    if (spec->beta != BETA_NONE) {
        read_tensor(problem, "beta", &problem->beta, spec->H, spec->keys);
    }
    if (spec->gate == GATE_HEAD) {
        read_gammas(problem);
    } else if (case_says(problem->note, "gate", "raw")) {
        read_raw_gates(problem);
    } else if (spec->gate != GATE_NONE) {
        read_tensor(problem, "g", &problem->log_decay, spec->H, spec->keys);
    }
    fill_state(problem);
}

/* How many dimensions an input has; 0 if there is no such input. */
static int has(const char *name, const char *array) {
    npy_array data;
    int rank = read_array(name, "input", array, &data) ? data.rank : 0;
    npy_free(&data);
    return rank;
}

static Spec read_spec(const struct Golden *golden) {
    const char *name = golden->name;
    Spec spec = {.variant = golden->variant};
    spec.B = (int64_t)case_number(name, "B", 1);
    spec.T = (int64_t)case_number(name, "T", 0);
    spec.Hk = (int64_t)case_number(name, "H", 1);
    spec.H = (int64_t)case_number(name, "HV", (double)spec.Hk);
    spec.Hq = (int64_t)case_number(name, "HQ", (double)spec.Hk);
    spec.dk = (int64_t)case_number(name, "dk", 0);
    spec.dv = (int64_t)case_number(name, "dv", 0);
    spec.scale = (float)case_number(name, "scale", 1);
    spec.l2_mode = case_says(name, "qk_l2norm", "yes") ? LA_L2_SUM : LA_L2_OFF;
    spec.states = has(name, "S0") ? STATES_BOTH : STATES_OUT;
    spec.beta = !has(name, "beta") ? BETA_NONE : has(name, "beta") == 4 ? BETA_CHANNEL : BETA_TOKEN;
    if (has(name, "gamma")) {
        spec.gate = GATE_HEAD;
    } else if (has(name, "g") || has(name, "a")) {
        spec.gate = GATE_MILD;
    }
    return spec;
}

/* ---------------------------------------------------------------- the comparison */

/* |factor oracle - peer|_2 <= tolerance |peer|_2. Unless the peer computed in float32, its values
   then take the place of the oracle's, so that the library is held to them. */
static void compare_oracle(const char *name, const char *array, double *oracle, double factor) {
    int narrow = has(name, "gamma") || has(name, "a"), single = 0;
    double tolerance, error = 0, size = 0;
    char text[128]; /* of the key `precision` */
    npy_array peer;
    size_t i;
    single = case_value(name, "precision", text, sizeof text);
    tolerance = single ? 1e-5 : narrow ? 1e-6 : 1e-12; /* narrow: the gate is rounded to float32 */
    if (!CHECK(read_array(name, "output", array, &peer), "%s has no %s", name, array)) {
        return;
    }
    for (i = 0; i < peer.count; i++) {
        double want = npy_double(&peer, i);
        error += (factor * oracle[i] - want) * (factor * oracle[i] - want);
        size += want * want;
        oracle[i] = single ? oracle[i] : want;
    }
    CHECK(sqrt(error) <= tolerance * sqrt(size), "%s %s: the oracle is off by %g, relative", name,
          array, sqrt(error / size));
    npy_free(&peer);
}

static void run_case(const struct Golden *golden, int layout) {
    Spec spec = read_spec(golden);
    Problem *problem;
    double scale;
    Way way;
    int i;
    spec.layout = layout;
    problem = problem_blank(&spec);
    if (problem == NULL) {
        return;
    }
    problem->note = golden->name;
    fill_problem(problem);
    problem_oracle(problem);
    scale = case_number(golden->name, "scale", 1); /* of the peer, in float64 */
    compare_oracle(golden->name, "o", problem->want.out, scale / (double)problem->layer.scale);
    compare_oracle(golden->name, "ST", problem->want.state, 1);
    for (i = 0; way_number(i, &way); i++) {
        if (problem_run(problem, &way)) {
            problem_check(problem);
        }
    }
    problem_free(problem);
}

TEST(golden_cases) {
    int i;
    for (i = 0; i < CASES; i++) {
        run_case(&cases[i], LA_KV);
        run_case(&cases[i], LA_VK);
    }
}
