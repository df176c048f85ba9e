/* The outputs of published reference implementations, in tests/golden. A case is one row below;
   which arrays it has decides how the call is set up. */
#define LA_EXTRAS
#include "golden.h"
#include "oracle.h"

#include <math.h>

static const struct Golden {
    const char *name;
    la_variant variant;
} cases[] = {
    /* clang-format off */
    {"retention_01", LA_RETNET}, {"retention_02", LA_RETNET}, {"retention_03", LA_RETNET},
    {"retention_04", LA_RETNET}, {"retention_05", LA_RETNET}, {"retention_06", LA_RETNET},
    {"retention_07", LA_RETNET}, {"delta_01", LA_DELTANET}, {"delta_02", LA_DELTANET},
    {"delta_03", LA_DELTANET}, {"delta_04", LA_DELTANET}, {"delta_05", LA_DELTANET},
    {"delta_06", LA_DELTANET}, {"delta_07", LA_DELTANET}, {"gdn_01", LA_GATED_DELTANET},
    {"gdn_02", LA_GATED_DELTANET}, {"gdn_03", LA_GATED_DELTANET}, {"gdn_04", LA_GATED_DELTANET},
    {"gdn_05", LA_GATED_DELTANET}, {"gdn_06", LA_GATED_DELTANET}, {"gdn_07", LA_GATED_DELTANET},
    {"gdn_08", LA_GATED_DELTANET}, {"gdn_09", LA_GATED_DELTANET},
    {"linear_elu_causal_01", LA_ELU}, {"linear_elu_causal_02", LA_ELU},
    {"linear_elu_causal_03", LA_ELU}, {"linear_elu_causal_04", LA_ELU},
    {"linear_elu_causal_05", LA_ELU}, {"linear_elu_causal_06", LA_ELU},
    {"linear_elu_noncausal_01", LA_ELU}, {"linear_elu_noncausal_02", LA_ELU},
    {"linear_elu_noncausal_03", LA_ELU}, {"linear_elu_noncausal_04", LA_ELU},
    {"favor_causal_02", LA_FAVOR}, {"favor_causal_04", LA_FAVOR}, {"favor_causal_05", LA_FAVOR},
    {"favor_causal_07", LA_FAVOR}, {"favor_noncausal_02", LA_FAVOR},
    {"favor_noncausal_04", LA_FAVOR}, {"favor_noncausal_05", LA_FAVOR},
    {"cosformer_causal_01", LA_COSFORMER}, {"cosformer_causal_02", LA_COSFORMER},
    {"cosformer_causal_03", LA_COSFORMER}, {"cosformer_causal_04", LA_COSFORMER},
    {"cosformer_noncausal_01", LA_COSFORMER}, {"cosformer_noncausal_02", LA_COSFORMER},
    {"cosformer_noncausal_03", LA_COSFORMER}, {"cosformer_noncausal_04", LA_COSFORMER},
    {"cosformer_noncausal_05", LA_COSFORMER}, {"lightning_01", LA_LIGHTNING},
    {"lightning_02", LA_LIGHTNING}, {"lightning_03", LA_LIGHTNING},
    {"lightning_04", LA_LIGHTNING}, {"lightning_05", LA_LIGHTNING}, {"simple_gla_01", LA_GLA},
    {"simple_gla_02", LA_GLA}, {"simple_gla_03", LA_GLA}, {"simple_gla_04", LA_GLA},
    {"simple_gla_05", LA_GLA}, {"simple_gla_06", LA_GLA}, {"gla_01", LA_GLA}, {"gla_02", LA_GLA},
    {"gla_03", LA_GLA}, {"gla_04", LA_GLA}, {"gla_05", LA_GLA}, {"gla_06", LA_GLA},
    {"gla_07", LA_GLA}, {"hgrn2_01", LA_GLA}, {"hgrn2_02", LA_GLA}, {"hgrn2_03", LA_GLA},
    {"linear_plain_01", LA_FWP}, {"linear_plain_02", LA_FWP},
    {"linear_plain_03", LA_FWP}, {"linear_plain_04", LA_FWP}, {"linear_plain_05", LA_FWP},
    {"linear_plain_06", LA_FWP}, {"kda_01", LA_KDA}, {"kda_02", LA_KDA}, {"kda_03", LA_KDA},
    {"kda_04", LA_KDA}, {"kda_05", LA_KDA}, {"kda_06", LA_KDA}, {"kda_07", LA_KDA},
    {"kda_08", LA_KDA}, {"kda_09", LA_KDA}, {"mamba2_01", LA_MAMBA2}, {"mamba2_02", LA_MAMBA2},
    {"mamba2_03", LA_MAMBA2}, {"mamba2_04", LA_MAMBA2}, {"mamba2_05", LA_MAMBA2},
    {"mamba2_06", LA_MAMBA2}, {"mamba2_07", LA_MAMBA2}, {"mamba2_08", LA_MAMBA2},
    {"onnx_01", LA_KDA}, {"onnx_02", LA_DELTANET}, {"onnx_04", LA_GLA}, {"onnx_05", LA_KDA},
    {"onnx_06", LA_KDA}, {"onnx_07", LA_KDA}, {"onnx_10", LA_FWP}, {"onnx_11", LA_FWP},
    {"onnx_12", LA_KDA}, {"rwkv6_01", LA_RWKV6}, {"rwkv6_02", LA_RWKV6}, {"rwkv6_03", LA_RWKV6},
    {"rwkv6_04", LA_RWKV6}, {"rwkv6_05", LA_RWKV6}, {"rwkv6_06", LA_RWKV6}, {"rwkv7_01", LA_RWKV7},
    {"rwkv7_02", LA_RWKV7}, {"rwkv7_03", LA_RWKV7}, {"rwkv7_04", LA_RWKV7}, {"rwkv7_05", LA_RWKV7},
    {"rwkv7_06", LA_RWKV7}, {"rwkv7_07", LA_RWKV7}, {"rwkv7_08", LA_RWKV7},
    {"dpfp_delta_01", LA_DPFP}, {"dpfp_delta_02", LA_DPFP},
    {"dpfp_delta_03", LA_DPFP}, {"dpfp_delta_04", LA_DPFP}, {"based_01", LA_BASED},
    {"based_02", LA_BASED}, {"based_03", LA_BASED}, {"based_04", LA_BASED},
    {"based_05", LA_BASED}, {"based_06", LA_BASED}, {"hedgehog_01", LA_HEDGEHOG},
    {"hedgehog_02", LA_HEDGEHOG}, {"hedgehog_03", LA_HEDGEHOG}, {"hedgehog_04", LA_HEDGEHOG},
    /* clang-format on */
};

enum { CASES = sizeof cases / sizeof cases[0] };

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

/* gamma -> its logarithm; a slope is minus that. */
static void read_head_gates(const Problem *problem) {
    npy_array data;
    int64_t h;
    int gamma = read_array(problem->note, "input", "gamma", &data);
    if (!gamma) {
        read_array(problem->note, "input", "slope", &data);
    }
    CHECK((int64_t)data.count == problem->spec.H, "%s: %zu gates", problem->note, data.count);
    for (h = 0; h < problem->spec.H && h < (int64_t)data.count; h++) {
        double value = npy_double(&data, (size_t)h);
        out_row(&problem->log_decay, 0, 0, h)[0] = (float)(gamma ? log(value) : -value);
    }
    npy_free(&data);
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

/* An input of the case as floats, `count` of them; or NULL, after a failed check. */
static float *read_floats(const char *name, const char *array, int64_t count) {
    npy_array data;
    float *values = NULL;
    read_array(name, "input", array, &data);
    if (CHECK((int64_t)data.count == count, "%s: %zu in %s, want %d", name, data.count, array,
              (int)count)) {
        values = npy_floats(&data);
    }
    npy_free(&data);
    return values;
}

static void read_raw_channel_gates(const Problem *problem) {
    const Spec *spec = &problem->spec;
    int64_t rows = spec->B * spec->T, width = spec->H * spec->dk;
    float bound = case_says(problem->note, "gate", "lowerbound") ? -5.0f : 0.0f;
    float *raw = read_floats(problem->note, "g_raw", rows * width);
    float *A_log = read_floats(problem->note, "A_log", spec->H);
    float *bias = read_floats(problem->note, "dt_bias", width);
    la_status status =
        la_kda_log_decay(problem->log_decay.data, raw, A_log, bias, bound, rows, spec->H, spec->dk);
    CHECK(status == LA_OK, "la_kda_log_decay: %s", la_status_text(status));
    free(raw);
    free(A_log);
    free(bias);
}

/* RWKV: raw w -> its logarithm, by the library's own helper; w of its version 6 may be that. */
static void read_rwkv_gates(const Problem *problem) {
    int64_t count = problem->spec.B * problem->spec.T * problem->spec.H * problem->spec.dk;
    if (has(problem->note, "w_raw")) {
        float *raw = read_floats(problem->note, "w_raw", count);
        la_status status = la_rwkv_log_decay(problem->log_decay.data, raw, count);
        CHECK(status == LA_OK, "la_rwkv_log_decay: %s", la_status_text(status));
        free(raw);
    } else {
        read_tensor(problem, "w", &problem->log_decay, problem->spec.H, problem->spec.T);
    }
}

/* The bonus of RWKV-6; a and b of RWKV-7 as they are, or -kk and kk lr. */
static void read_partners(const Problem *problem) {
    const Spec *spec = &problem->spec;
    int64_t count = spec->B * spec->T * spec->H * spec->dk, n;
    if (spec->variant == LA_RWKV6) {
        float *u = read_floats(problem->note, "u", spec->H * spec->dk);
        memcpy(problem->bonus.data, u, (size_t)(spec->H * spec->dk) * sizeof *u);
        free(u);
    } else if (has(problem->note, "kk")) {
        float *kk = read_floats(problem->note, "kk", count);
        float *lr = read_floats(problem->note, "lr", count);
        for (n = 0; n < count && kk != NULL && lr != NULL; n++) {
            problem->a.data[n] = -kk[n];
            problem->b.data[n] = kk[n] * lr[n];
        }
        free(kk);
        free(lr);
    } else {
        read_tensor(problem, "a", &problem->a, spec->H, spec->T);
        read_tensor(problem, "b", &problem->b, spec->H, spec->T);
    }
}

/* Mamba-2: dt as it is or as the helper makes it, and A, of which the helper has ln(-A). */
static void read_steps(const Problem *problem) {
    const Spec *spec = &problem->spec;
    int64_t rows = spec->B * spec->T, H = spec->H, n;
    float *raw = read_floats(problem->note, "dt", rows * H);
    float *A = read_floats(problem->note, "A", H);
    float *dt = problem->beta.data, *log_decay = problem->log_decay.data;
    if (case_says(problem->note, "dt_softplus", "yes")) {
        float *bias = read_floats(problem->note, "dt_bias", H);
        la_status status;
        for (n = 0; A != NULL && n < H; n++) {
            A[n] = (float)log(-(double)A[n]);
        }
        status = la_mamba2_gates(dt, log_decay, raw, A, bias, 0, 0, rows, H);
        CHECK(status == LA_OK, "la_mamba2_gates: %s", la_status_text(status));
        free(bias);
    } else if (raw != NULL && A != NULL) {
        for (n = 0; n < rows * H; n++) {
            dt[n] = raw[n];
            log_decay[n] = raw[n] * A[n % H];
        }
    }
    free(raw);
    free(A);
}

/* D [H] and z of Mamba-2 */
static void read_finish(const Problem *problem) {
    int64_t h, H = problem->spec.H;
    if (problem->spec.skip) {
        float *D = read_floats(problem->note, "D", H);
        for (h = 0; D != NULL && h < H; h++) {
            out_row(&problem->skip, 0, 0, h)[0] = D[h];
        }
        free(D);
    }
    if (problem->spec.out_gate) {
        read_tensor(problem, "z", &problem->out_gate, H, problem->spec.T);
    }
}

/* Element n of S0 or ST [B][H][r][dv], or of z0 or zT [B][H][r] (where `is_z`), in the oracle's
   array or, by `index`, in the library's states. */
static size_t state_place(const Problem *problem, int is_z, size_t n, int64_t *index) {
    const la_layer *layer = &problem->layer;
    int64_t r = oracle_features(layer), dv = layer->dim_v, per_head = is_z ? r : r * dv;
    int64_t head = (int64_t)n / per_head, at = (int64_t)n % per_head;
    int64_t i = is_z ? at : at / dv, j = is_z ? dv : at % dv;
    *index = head / layer->heads * problem->call.state_in_stride;
    *index += oracle_state_index(layer, head % layer->heads, i, j);
    return (size_t)(head * oracle_head_floats(layer) + (is_z ? r * dv : 0) + at);
}

static void fill_state(const Problem *problem, const char *array, int is_z) {
    size_t n, want = (size_t)(problem->spec.B * problem->spec.H * oracle_features(&problem->layer));
    npy_array data;
    if (!read_array(problem->note, "input", array, &data)) {
        return;
    }
    want *= is_z ? 1 : (size_t)problem->spec.dv;
    CHECK(data.count == want, "%s: %s has %zu elements", problem->note, array, data.count);
    for (n = 0; n < data.count && n < want; n++) {
        int64_t index;
        state_place(problem, is_z, n, &index);
        problem->state_start[index] = npy_float(&data, n);
    }
    npy_free(&data);
}

/* performer-pytorch adds 1e-6 to every channel of the running sum of keys. */
static void start_normaliser(const Problem *problem) {
    int64_t index, n, count = problem->spec.B * problem->spec.H * oracle_features(&problem->layer);
    memset(problem->state_start, 0, problem->state_floats * sizeof(float));
    for (n = 0; n < count; n++) {
        state_place(problem, 1, (size_t)n, &index);
        problem->state_start[index] = 1e-6f;
    }
}

/* FAVOR+'s W is [m][dk] for all heads, Hedgehog's is [H][dk][m], the transpose for each head. */
static void read_projection(const Problem *problem) {
    const la_layer *layer = &problem->layer;
    float *projection = problem->buffers[0]; /* the first that a problem has */
    size_t n, m = (size_t)layer->features, dk = (size_t)layer->dim_k, count = m * dk;
    int own = layer->projection_head_stride != 0;
    npy_array W;
    CHECK(projection == layer->projection, "%s: another buffer", problem->note);
    read_array(problem->note, "input", "W", &W);
    count *= own ? (size_t)layer->heads : 1;
    CHECK(W.count == count, "%s: W has %zu elements", problem->note, W.count);
    for (n = 0; n < count && n < W.count; n++) {
        size_t at = own ? n / (m * dk) * m * dk + n % m * dk + n / m % dk : n;
        projection[at] = npy_float(&W, n);
    }
    npy_free(&W);
}

static void read_key_lengths(Problem *problem) {
    npy_array data;
    size_t b;
    if (read_array(problem->note, "input", "lengths", &data)) {
        CHECK((int64_t)data.count == problem->spec.B, "%s: lengths", problem->note);
        for (b = 0; b < data.count && b < PROBLEM_BATCH; b++) {
            problem->key_lengths[b] = (int64_t)npy_double(&data, b);
        }
        problem->call.key_lengths = problem->key_lengths;
        npy_free(&data);
    }
}

/* HGRN2: k = 1 - alpha, which keeps what is left of a weak gate only as -expm1 of its logarithm. */
static void read_forgotten(const Problem *problem) {
    int64_t b, t, h, i;
    read_tensor(problem, "gk", &problem->k, problem->spec.Hk, problem->spec.keys);
    for (b = 0; b < problem->spec.B; b++) {
        for (t = 0; t < problem->spec.keys; t++) {
            for (h = 0; h < problem->spec.Hk; h++) {
                float *k = out_row(&problem->k, b, t, h);
                for (i = 0; i < problem->spec.dk; i++) {
                    k[i] = (float)-expm1((double)k[i]);
                }
            }
        }
    }
}

static int is_hgrn2(const char *name) {
    return case_says(name, "variant", "hgrn2");
}

static void fill_problem(Problem *problem) {
    const Spec *spec = &problem->spec;
    int64_t b;
    int mamba = spec->variant == LA_MAMBA2;
    int rwkv = spec->variant == LA_RWKV6 || spec->variant == LA_RWKV7;
    read_tensor(problem, mamba ? "C" : rwkv ? "r" : "q", &problem->q, spec->Hq, spec->T);
    if (is_hgrn2(problem->note)) {
        read_forgotten(problem);
    } else {
        read_tensor(problem, mamba ? "Bm" : "k", &problem->k, spec->Hk, spec->keys);
    }
    read_tensor(problem, mamba ? "x" : "v", &problem->v, spec->H, spec->keys);
    if (spec->beta != BETA_NONE && !mamba) {
        read_tensor(problem, "beta", &problem->beta, spec->H, spec->keys);
    }
    if (rwkv) {
        read_partners(problem);
        read_rwkv_gates(problem);
    } else if (mamba) {
        read_steps(problem);
        read_finish(problem);
    } else if (spec->gate == GATE_HEAD) {
        read_head_gates(problem);
    } else if (spec->gate_channel && has(problem->note, "g_raw")) {
        read_raw_channel_gates(problem);
    } else if (spec->gate_channel) {
        read_tensor(problem, "gk", &problem->log_decay, spec->H, spec->keys);
    } else if (case_says(problem->note, "gate", "raw")) {
        read_raw_gates(problem);
    } else if (spec->gate != GATE_NONE) {
        read_tensor(problem, "g", &problem->log_decay, spec->H, spec->keys);
    }
    if (oracle_projects(&problem->layer)) {
        read_projection(problem);
    }
    if (spec->variant == LA_FAVOR && spec->states == STATES_BOTH) {
        start_normaliser(problem);
    }
    for (b = 0; b < spec->B; b++) {
        problem->positions[b] = spec->position; /* every sequence starts alike */
    }
    read_key_lengths(problem);
    fill_state(problem, "S0", 0);
    fill_state(problem, "z0", 1);
}

/* eps is in words: "1e-6 added", "1e-6 clamp (max), not added", "none"; of FAVOR+'s cases only the
   hyperbolic ones have one. Scales are dk^-1/2 there, and ReLU's causal case starts with z. */
static void read_normaliser(const char *name, Spec *spec) {
    char eps[128] = "";
    case_value(name, "eps", eps, sizeof eps);
    spec->normalised = case_says(name, "normalise", "yes") ? 1 : spec->variant == LA_BASED ? -1 : 0;
    spec->bidirectional = case_says(name, "causal", "no");
    spec->eps = (float)strtod(eps, NULL);
    spec->eps_mode = strstr(eps, "clamp (max)") != NULL ? LA_EPS_MAX : LA_EPS_ADD;
    spec->horizon = case_number(name, "M", 0);
    spec->position = spec->variant == LA_COSFORMER ? 1 : 0;
    spec->nu = (int64_t)case_number(name, "nu", 0);
    if (spec->variant == LA_HEDGEHOG) {
        const char *floor = strstr(eps, "features clamped to >= ");
        spec->features = (int64_t)case_number(name, "feature_dim", 0) / 2;
        spec->head_projections = 1;
        spec->feature_eps = floor != NULL ? strtof(floor + 23, NULL) : 0;
        spec->hedgehog_kernel =
            case_says(name, "activation", "exp_dim") ? LA_HEDGEHOG_EXP : LA_HEDGEHOG_SPLIT;
    }
    if (spec->variant == LA_FAVOR) {
        char kind[64] = "";
        npy_array W;
        case_value(name, "kind", kind, sizeof kind);
        read_array(name, "input", "W", &W);
        spec->features = W.shape[0];
        npy_free(&W);
        spec->scale = (float)(1 / sqrt((double)spec->dk));
        spec->feature_eps = (float)case_number(name, "feature_eps", 0);
        spec->favor_kernel = strstr(kind, "hyperbolic") != NULL ? LA_FAVOR_HYPERBOLIC
                             : strstr(kind, "ReLU") != NULL     ? LA_FAVOR_RELU
                                                                : LA_FAVOR_POSITIVE;
        if (spec->favor_kernel == LA_FAVOR_RELU && !spec->bidirectional) {
            spec->states = STATES_BOTH;
        }
    }
}

static Spec read_spec(const struct Golden *golden) {
    const char *name = golden->name;
    Spec spec = {.variant = golden->variant};
    spec.B = (int64_t)case_number(name, "B", 1);
    spec.T = (int64_t)case_number(name, "T", 0);
    spec.Hk = (int64_t)case_number(name, "H", 1);
    spec.H = (int64_t)case_number(name, "HV", (double)spec.Hk);
    spec.Hk = (int64_t)case_number(name, "groups", (double)spec.Hk);
    spec.Hq = (int64_t)case_number(name, "HQ", (double)spec.Hk);
    spec.dk = (int64_t)case_number(name, "dk", 0);
    spec.dv = (int64_t)case_number(name, "dv", 0);
    spec.scale = (float)case_number(name, "scale", 1);
    spec.l2_mode = case_says(name, "qk_l2norm", "yes") ? LA_L2_SUM : LA_L2_OFF;
    spec.states = has(name, "S0") ? STATES_BOTH : STATES_OUT;
    spec.beta = !has(name, "beta") ? BETA_NONE : has(name, "beta") == 4 ? BETA_CHANNEL : BETA_TOKEN;
    if (has(name, "gamma") || has(name, "slope")) {
        spec.gate = GATE_HEAD;
    } else if (golden->variant == LA_MAMBA2) {
        spec.beta = BETA_TOKEN; /* dt */
        spec.skip = has(name, "D") > 0;
        spec.out_gate = has(name, "z") > 0;
        spec.gate = GATE_MILD;
    } else if (has(name, "g") || has(name, "a") || has(name, "gk") || has(name, "g_raw") ||
               has(name, "w") || has(name, "w_raw")) {
        spec.gate = GATE_MILD;
    }
    spec.gate_channel =
        has(name, "gk") || has(name, "g_raw") || has(name, "w") || has(name, "w_raw");
    spec.keys = (int64_t)case_number(name, "S", 0);
    read_normaliser(name, &spec);
    return spec;
}

/* ---------------------------------------------------------------- the comparison */

enum { OUTPUT, STATE, NORMALISER };

/* Gammas, raw gates, dt A, kk lr, keys of HGRN2, the scales of FAVOR+ and Taylor features, and
   FAVOR+'s feature eps are rounded to float32 on the way. */
static int is_narrow(const char *name) {
    return has(name, "gamma") || has(name, "a") || has(name, "g_raw") || has(name, "dt") ||
           has(name, "w_raw") || is_hgrn2(name) || strncmp(name, "favor", 5) == 0 ||
           strncmp(name, "based", 5) == 0;
}

/* |factor oracle - peer|_2 <= tolerance |peer|_2. Unless the peer computed in float32, its values
   then take the place of the oracle's, so that the library is held to them. */
static void compare_oracle(const Problem *problem, const char *array, int what, double factor) {
    const char *name = problem->note;
    double tolerance, error = 0, size = 0, *oracle;
    char text[128]; /* of the key `precision` */
    npy_array peer;
    size_t n;
    int single = case_value(name, "precision", text, sizeof text);
    tolerance = single ? 1e-5 : is_narrow(name) ? 1e-6 : 1e-12;
    if (!read_array(name, "output", array, &peer)) {
        CHECK(what != OUTPUT, "%s has no %s", name, array);
        return;
    }
    oracle = what == OUTPUT ? problem->want.out : problem->want.state;
    for (n = 0; n < peer.count; n++) {
        int64_t index;
        size_t at = what == OUTPUT ? n : state_place(problem, what == NORMALISER, n, &index);
        double want = npy_double(&peer, n);
        error += (factor * oracle[at] - want) * (factor * oracle[at] - want);
        size += want * want;
        oracle[at] = single ? oracle[at] : want;
    }
    CHECK(peer.count > 0 && sqrt(error) <= tolerance * sqrt(size),
          "%s %s: the oracle is off by %g, relative", name, array, sqrt(error / size));
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
    scale = problem->layer.normalised ? 1 : scale / (double)problem->layer.scale;
    CHECK(has(golden->name, "q") == 4 || has(golden->name, "C") == 4 || has(golden->name, "r") == 4,
          "%s has no input", golden->name);
    compare_oracle(problem, "o", OUTPUT, scale);
    compare_oracle(problem, "ST", STATE, 1);
    compare_oracle(problem, "zT", NORMALISER, 1);
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

/* ---------------------------------------------------------------- the layer around RetNet

   torchscale rotates queries and keys and normalises what the layer puts out. */

static double torchscale_angle(const Spec *spec, int64_t t, int64_t i) {
    return (double)t * pow(10000, -(double)i / ((double)spec->dk / 2 - 1));
}

/* Channels 2 i and 2 i + 1 of a token turn together. */
static void rotate(const Problem *problem, const la_out *view) {
    const Spec *spec = &problem->spec;
    int64_t b, t, h, i;
    for (b = 0; b < spec->B; b++) {
        for (t = 0; t < spec->T; t++) {
            for (h = 0; h < spec->H; h++) {
                float *x = out_row(view, b, t, h);
                for (i = 0; i < spec->dk / 2; i++, x += 2) {
                    double c = cos(torchscale_angle(spec, t, i));
                    double s = sin(torchscale_angle(spec, t, i));
                    double turned = (double)x[0] * c - (double)x[1] * s;
                    x[1] = (float)((double)x[1] * c + (double)x[0] * s);
                    x[0] = (float)turned;
                }
            }
        }
    }
}

/* A row o_t of head h over the root of its gates' sum, then by its root mean square. */
static void torchscale_norm(const Spec *spec, const float *row, int64_t t, int64_t h, double *y) {
    double gates = 0, square = 0, gamma = 1 - pow(2, -5 - (double)h);
    int64_t j;
    for (j = 0; j <= t; j++) {
        gates += pow(gamma, (double)j);
    }
    for (j = 0; j < spec->dv; j++) {
        y[j] = (double)row[j] / sqrt(gates);
        square += y[j] * y[j];
    }
    for (j = 0; j < spec->dv; j++) {
        y[j] /= sqrt(square / (double)spec->dv + 1e-6);
    }
}

/* |have - peer|_2 / |peer|_2 of a call's outputs */
static double torchscale_error(const Problem *problem, const npy_array *peer, const float *out) {
    const Spec *spec = &problem->spec;
    double error = 0, size = 0, y[32] = {0};
    int64_t row, j;
    for (row = 0; row < spec->B * spec->T * spec->H; row++) {
        int64_t t = row / spec->H % spec->T, h = row % spec->H;
        torchscale_norm(spec, out + row * spec->dv, t, h, y);
        for (j = 0; j < spec->dv; j++) {
            double want = npy_double(peer, (size_t)(row * spec->dv + j));
            error += (y[j] - want) * (y[j] - want);
            size += want * want;
        }
    }
    return sqrt(error / size);
}

/* The peer's parallel form has other factors before the norm, which then differ by its eps. */
static void torchscale_compare(const Problem *problem, const char *array, double tolerance) {
    const char *name = problem->note;
    size_t count;
    float *out = problem_copy_out(problem, &count);
    npy_array peer;
    if (CHECK(read_array(name, "output", array, &peer), "%s: no %s", name, array) &&
        CHECK(peer.count == count && problem->spec.dv <= 32, "%s: %zu", name, peer.count)) {
        double error = torchscale_error(problem, &peer, out);
        CHECK(error <= tolerance, "%s: %s is off by %g", problem_text(problem), array, error);
    }
    npy_free(&peer);
    free(out);
}

static void torchscale_run(const char *name) {
    Spec spec = {.variant = LA_RETNET, .gate = GATE_HEAD, .states = STATES_NONE};
    float gates[8] = {0};
    Problem *problem;
    int64_t h;
    Way way;
    int i;
    spec.B = (int64_t)case_number(name, "B", 0);
    spec.T = (int64_t)case_number(name, "T", 0);
    spec.H = (int64_t)case_number(name, "H", 0);
    spec.dk = (int64_t)case_number(name, "dk", 0);
    spec.dv = (int64_t)case_number(name, "dv", 0);
    spec.scale = (float)(1 / sqrt((double)spec.dk));
    problem = problem_blank(&spec);
    if (problem == NULL || !CHECK(la_retnet_log_decay(gates, spec.H) == LA_OK, "%s", name)) {
        return;
    }
    problem->note = name;
    read_tensor(problem, "q", &problem->q, spec.H, spec.T);
    read_tensor(problem, "k", &problem->k, spec.H, spec.T);
    read_tensor(problem, "v", &problem->v, spec.H, spec.T);
    rotate(problem, &problem->q);
    rotate(problem, &problem->k);
    for (h = 0; h < spec.H; h++) {
        out_row(&problem->log_decay, 0, 0, h)[0] = gates[h];
    }
    for (i = 0; way_number(i, &way); i++) {
        if (problem_run(problem, &way)) {
            torchscale_compare(problem, "o_recurrent", 1e-6);
            torchscale_compare(problem, "o_parallel", 2e-5);
        }
    }
    problem_free(problem);
}

TEST(golden_torchscale) {
    torchscale_run("retention_torchscale_01");
    torchscale_run("retention_torchscale_02");
}

/* ---------------------------------------------------------------- the joint form of Hedgehog

   A map without a layer: of keys whose value is 1, z of a state of its own. */

TEST(golden_hedgehog_map) {
    enum { ROWS = 28, DK = 12, R = 2 * DK, FLOATS = 2 * R }; /* S, then z */
    static const char name[] = "hedgehog_map_fla_01";
    static float weights[DK * DK + DK], states[ROWS * FLOATS], ones[ROWS], out[ROWS];
    float *x = read_floats(name, "x", ROWS * DK), *W = read_floats(name, "W", DK * DK);
    float *b = read_floats(name, "b", DK);
    npy_array phi;
    la_layer layer;
    la_call call;
    Way way;
    int i, n;
    CHECK(read_array(name, "output", "phi", &phi) && phi.count == ROWS * R, "%s", name);
    memcpy(weights, W, DK * DK * sizeof *W);
    memcpy(weights + DK * DK, b, DK * sizeof *b);
    CHECK(la_layer_init(&layer, LA_HEDGEHOG, 1, DK, 1) == LA_OK, "layer");
    layer.projection = weights;
    layer.projection_bias = 1;
    layer.features = DK;
    layer.hedgehog_kernel = LA_HEDGEHOG_JOINT;
    CHECK(la_call_init(&call, &layer, ROWS, 1) == LA_OK, "call");
    for (i = 0; i < ROWS; i++) {
        ones[i] = 1;
    }
    call.q = call.k = la_bthd(x, 1, 1, DK);
    call.v = la_bthd(ones, 1, 1, 1);
    call.out = la_bthd_out(out, 1, 1, 1);
    call.state_out = states;
    for (n = 0; way_number(n, &way); n++) {
        double worst = 0;
        call.form = way.form;
        call.isa = way.isa;
        call.chunk = way.chunk;
        call.workspace_size = la_workspace_size(&layer, &call);
        call.workspace = malloc(call.workspace_size);
        CHECK(la_forward(&layer, &call) == LA_OK, "form %d", way.form);
        free(call.workspace);
        for (i = 0; i < ROWS * R; i++) {
            double want = npy_double(&phi, (size_t)i);
            double S = (double)states[i / R * FLOATS + i % R];
            double z = (double)states[i / R * FLOATS + R + i % R];
            worst = fmax(worst, fmax(fabs(S - want), fabs(z - want)) / want);
        }
        CHECK(worst < 2e-6, "form %d chunk %d isa %d: off by %g", way.form, (int)way.chunk, way.isa,
              worst);
    }
    npy_free(&phi);
    free(x);
    free(W);
    free(b);
}

/* ---------------------------------------------------------------- ONNX

   The table of the manual, line by line: the operator's inputs as they are, its defaults, and the
   two shapes of beta. */

typedef struct Onnx {
    const char *name;
    int64_t B, T, H, Hq, dk, dv;
    float *query, *key, *value, *decay, *beta, *past_state; /* NULL where absent */
    float *output, *present_state;
} Onnx;

static float *onnx_input(const char *name, const char *array) {
    npy_array data;
    float *values = NULL;
    if (has(name, array) && read_array(name, "input", array, &data)) {
        values = npy_floats(&data);
        npy_free(&data);
    }
    return values;
}

static void onnx_read(Onnx *node, const char *name) {
    node->name = name;
    node->B = (int64_t)case_number(name, "B", 1);
    node->T = (int64_t)case_number(name, "T", 1);
    node->H = (int64_t)case_number(name, "H", 1);
    node->Hq = (int64_t)case_number(name, "HQ", 1);
    node->dk = (int64_t)case_number(name, "dk", 1);
    node->dv = (int64_t)case_number(name, "dv", 1);
    node->query = onnx_input(name, "q");
    node->key = onnx_input(name, "k");
    node->value = onnx_input(name, "v");
    node->decay = onnx_input(name, "gk");
    node->beta = onnx_input(name, "beta");
    node->past_state = onnx_input(name, "S0");
    node->output = calloc((size_t)(node->B * node->T * node->Hq * node->dv), sizeof(float));
    node->present_state = calloc((size_t)(node->B * node->H * node->dk * node->dv), sizeof(float));
}

static void onnx_free(Onnx *node) {
    free(node->query);
    free(node->key);
    free(node->value);
    free(node->decay);
    free(node->beta);
    free(node->past_state);
    free(node->output);
    free(node->present_state);
}

static la_variant onnx_variant(const Onnx *node) {
    int decay = node->decay != NULL, beta = node->beta != NULL; /* neither more nor less */
    if (case_says(node->name, "variant", "onnx_linear") && !decay && !beta) {
        return LA_FWP;
    }
    if (case_says(node->name, "variant", "onnx_gated") && decay && !beta) {
        return LA_GLA;
    }
    if (case_says(node->name, "variant", "onnx_delta") && !decay && beta) {
        return LA_DELTANET;
    }
    CHECK(case_says(node->name, "variant", "onnx_gated_delta") && decay && beta, "%s: which rule?",
          node->name);
    return LA_KDA;
}

static void onnx_layer(const Onnx *node, la_layer *layer) {
    la_status status = la_layer_init(layer, onnx_variant(node), node->H, node->dk, node->dv);
    CHECK(status == LA_OK, "%s: %s", node->name, la_status_text(status));
    layer->q_heads = node->Hq;
    layer->scale = 1 / sqrtf((float)node->dk); /* the attribute is 0 */
    layer->decay_required = node->decay != NULL;
}

static void onnx_call(const Onnx *node, const la_layer *layer, int one_beta, la_call *call) {
    int64_t T = node->T;
    la_status status = la_call_init(call, layer, node->B, T);
    CHECK(status == LA_OK, "%s: %s", node->name, la_status_text(status));
    call->q = la_bthd(node->query, T, node->Hq, node->dk);
    call->k = la_bthd(node->key, T, node->H, node->dk);
    call->v = la_bthd(node->value, T, node->H, node->dv);
    call->log_decay = la_bthd(node->decay, T, node->H, node->dk);
    call->beta = la_bthd(node->beta, T, one_beta ? 1 : node->H, 1);
    if (one_beta) {
        call->beta.head_stride = 0;
    }
    call->out = la_bthd_out(node->output, T, node->Hq, node->dv);
    call->state_in = node->past_state;
    call->state_out = node->present_state;
}

static void onnx_compare(const Onnx *node, const char *array, const float *have) {
    double error = 0, size = 0;
    npy_array peer;
    size_t n;
    CHECK(read_array(node->name, "output", array, &peer), "%s: no %s", node->name, array);
    for (n = 0; n < peer.count; n++) {
        double want = npy_double(&peer, n);
        error += ((double)have[n] - want) * ((double)have[n] - want);
        size += want * want;
    }
    CHECK(size > 0 && sqrt(error) <= 1e-5 * sqrt(size), "%s %s: off by %g, relative", node->name,
          array, sqrt(error / size));
    npy_free(&peer);
}

static void onnx_run(const Onnx *node, int one_beta) {
    la_layer layer;
    la_call call;
    Way way;
    int i;
    onnx_layer(node, &layer);
    for (i = 0; way_number(i, &way); i++) {
        la_status status;
        onnx_call(node, &layer, one_beta, &call);
        call.form = way.form;
        call.isa = way.isa;
        call.chunk = way.chunk;
        call.workspace_size = la_workspace_size(&layer, &call);
        call.workspace = malloc(call.workspace_size);
        status = la_forward(&layer, &call);
        CHECK(status == LA_OK, "%s: %s", node->name, la_status_text(status));
        free(call.workspace);
        onnx_compare(node, "o", node->output);
        onnx_compare(node, "ST", node->present_state);
    }
    call.log_decay.data = NULL;
    if (node->decay != NULL) {
        CHECK(la_check(&layer, &call, NULL) == LA_E_DECAY, "%s without decay", node->name);
    }
}

TEST(golden_onnx) {
    int i;
    for (i = 0; i < CASES; i++) {
        Onnx node;
        if (strncmp(cases[i].name, "onnx", 4) != 0) {
            continue;
        }
        onnx_read(&node, cases[i].name);
        CHECK(onnx_variant(&node) == cases[i].variant, "%s", node.name);
        onnx_run(&node, 0);
        if (strcmp(node.name, "onnx_06") == 0) { /* its beta was [B,T,1] */
            int64_t n;
            for (n = 0; n < node.B * node.T; n++) {
                node.beta[n] = node.beta[n * node.H];
            }
            onnx_run(&node, 1);
        }
        onnx_free(&node);
    }
}

/* ---------------------------------------------------------------- attention (LA_EXTRAS) */

static const char *const attention_cases[] = {
    "softmax_causal_01",    "softmax_causal_02",    "softmax_causal_03",
    "softmax_causal_04",    "softmax_causal_05",    "softmax_causal_06",
    "softmax_noncausal_01", "softmax_noncausal_02", "softmax_noncausal_03",
    "swa_01",               "swa_02",               "swa_03",
    "swa_04"};

static void attention_compare(const char *name, const float *have) {
    double error = 0, size = 0;
    npy_array peer;
    size_t n;
    CHECK(read_array(name, "output", "o", &peer), "%s: no output", name);
    for (n = 0; n < peer.count; n++) {
        double want = npy_double(&peer, n);
        error += ((double)have[n] - want) * ((double)have[n] - want);
        size += want * want;
    }
    CHECK(size > 0 && sqrt(error) <= 1e-6 * sqrt(size), "%s: off by %g, relative", name,
          sqrt(error / size));
    npy_free(&peer);
}

static void attention_run(const char *name, int isa) {
    int64_t B = (int64_t)case_number(name, "B", 0), T = (int64_t)case_number(name, "T", 0);
    int64_t S = (int64_t)case_number(name, "S", 0), H = (int64_t)case_number(name, "H", 0);
    int64_t dk = (int64_t)case_number(name, "dk", 0), dv = (int64_t)case_number(name, "dv", 0);
    int64_t kv_heads = (int64_t)case_number(name, "HV", 0);
    float *q = read_floats(name, "q", B * T * H * dk);
    float *k = read_floats(name, "k", B * S * kv_heads * dk);
    float *v = read_floats(name, "v", B * S * kv_heads * dv);
    float *out = malloc((size_t)(B * T * H * dv) * sizeof *out);
    la_attention layer;
    la_attention_call call;
    la_status status;
    la_attention_init(&layer, LA_SOFTMAX, H, dk, dv);
    layer.kv_heads = kv_heads;
    layer.bidirectional = case_says(name, "causal", "no");
    layer.window = (int64_t)case_number(name, "window", 0);
    layer.scale = (float)case_number(name, "scale", 0);
    la_attention_call_init(&call, &layer, B, T);
    call.isa = isa;
    call.keys = S;
    call.q = la_bthd(q, T, H, dk);
    call.k = la_bthd(k, S, kv_heads, dk);
    call.v = la_bthd(v, S, kv_heads, dv);
    call.out = la_bthd_out(out, T, H, dv);
    call.workspace_size = la_attention_workspace_size(&layer, &call);
    call.workspace = malloc(call.workspace_size);
    status = la_attention_forward(&layer, &call);
    if (CHECK(status == LA_OK, "%s: %s", name, la_status_text(status))) {
        attention_compare(name, out);
    }
    free(call.workspace);
    free(q);
    free(k);
    free(v);
    free(out);
}

TEST(golden_attention) {
    size_t i;
    int isa, w;
    for (i = 0; i < sizeof attention_cases / sizeof *attention_cases; i++) {
        for (w = 0; isa_number(w, &isa); w++) {
            attention_run(attention_cases[i], isa);
        }
    }
}
