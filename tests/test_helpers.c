/* The helpers: gates, sigmoid, the converter of states, sizes, and what la_describe tells. */
#include "linear_attention.h"

#include "oracle.h"
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Within three roundings of the exact value, or of the smallest float where it underflows. */
static void check_float(const char *name, float got, long double want, double x, double y) {
    double tolerance = 2e-7 * fabs((double)want) + 1.5e-45;
    int ok = fabsl(want) > (long double)FLT_MAX * (1 + 1e-7L)
                 ? isinf(got) && (got < 0) == (want < 0)
                 : fabsl((long double)got - want) <= (long double)tolerance;
    CHECK(ok, "%s of %g, %g: got %.9g, want %.12Lg", name, x, y, (double)got, want);
}

TEST(helpers_retnet_log_decay) {
    float g[160];
    int h;
    CHECK(la_retnet_log_decay(g, COUNT(g)) == LA_OK, "%d heads", COUNT(g));
    for (h = 0; h < COUNT(g); h++) {
        check_float("ln(1 - 2^(-5-h))", g[h], log1pl(-powl(2, -5 - h)), h, 0);
    }
    g[1] = 7;
    CHECK(la_retnet_log_decay(g, 1) == LA_OK && g[1] == 7, "one head wrote %g", (double)g[1]);
    CHECK(la_retnet_log_decay(NULL, 4) == LA_E_NULL, "null");
    CHECK(la_retnet_log_decay(g, -1) == LA_E_SIZE && g[1] == 7, "negative");
}

/* The two of largest size first: where they cancel, they do so exactly and the third one counts. */
static long double sum_of(long double x, long double y, long double z) {
    if (fabsl(z) > fabsl(x)) {
        return sum_of(z, y, x);
    }
    return fabsl(z) > fabsl(y) ? (x + z) + y : (x + y) + z;
}

/* -exp(A) softplus(x), through the logarithm of the softplus, which cannot overflow. */
static long double gate_of(float a, float A_log, float dt_bias) {
    long double x = (long double)a + (long double)dt_bias;
    if (x < -50) {
        /* softplus(x) = e^x (1 - e^x / 2 ...) */
        return -expl(sum_of((long double)A_log, (long double)a, (long double)dt_bias));
    }
    return -expl((long double)A_log + logl(x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x))));
}

static const float gate_a[] = {0,   1,    -1,   3.5f, -20, 20,    88,     -88,    -103.5f, -200,
                               200, 1000, -1e4, 1e4f, -30, 1e30f, -1e30f, 1e-30f, -1e-30f, FLT_MAX};
static const float gate_A[] = {0,    1,   -1,    2.7f, 88,   -88,   100,    104,
                               -100, 150, -1000, 1e4,  -1e4, 1e30f, -1e30f, 9999.5f};
static const float gate_dt[] = {0, -4.6f, 1, -200, 1e30f};

TEST(helpers_gate_log_decay) {
    enum { ROWS = COUNT(gate_a), HEADS = COUNT(gate_A) };
    static float a[ROWS][HEADS], g[ROWS][HEADS], dt[HEADS];
    int i, h, n;
    for (n = 0; n < COUNT(gate_dt); n++) {
        for (h = 0; h < HEADS; h++) {
            dt[h] = gate_dt[(n + h) % COUNT(gate_dt)];
            for (i = 0; i < ROWS; i++) {
                a[i][h] = gate_a[i];
            }
        }
        CHECK(la_gate_log_decay(g[0], a[0], gate_A, dt, ROWS, HEADS) == LA_OK, "round %d", n);
        for (i = 0; i < ROWS; i++) {
            for (h = 0; h < HEADS; h++) {
                CHECK(g[i][h] <= 0, "not a decay: %g", (double)g[i][h]);
                check_float("gate", g[i][h], gate_of(a[i][h], gate_A[h], dt[h]),
                            (double)(a[i][h] + dt[h]), (double)gate_A[h]);
            }
        }
        CHECK(la_gate_log_decay(a[0], a[0], gate_A, dt, ROWS, HEADS) == LA_OK, "in place");
        check_same("in place", a[0], g[0], ROWS * HEADS);
    }
}

TEST(helpers_gate_log_decay_that_is_finite) {
    float a = -200, A_log = 100, dt = 0, g = 0;
    CHECK(la_gate_log_decay(&g, &a, &A_log, &dt, 1, 1) == LA_OK, "status");
    CHECK(fabs((double)g / -exp(-100.0) - 1) < 0.05, "got %g", (double)g); /* no normal float */
    a = -20, A_log = 1e2f, dt = -79;
    CHECK(la_gate_log_decay(&g, &a, &A_log, &dt, 1, 1) == LA_OK, "status");
    CHECK(fabs((double)g / -exp(1.0) - 1) < 2e-7, "got %g", (double)g);
    CHECK(la_gate_log_decay(NULL, &a, &A_log, &dt, 1, 1) == LA_E_NULL, "log_decay");
    CHECK(la_gate_log_decay(&g, NULL, &A_log, &dt, 1, 1) == LA_E_NULL, "a");
    CHECK(la_gate_log_decay(&g, &a, NULL, &dt, 1, 1) == LA_E_NULL, "A_log");
    CHECK(la_gate_log_decay(&g, &a, &A_log, &dt, -1, 1) == LA_E_SIZE, "rows");
    CHECK(la_gate_log_decay(&g, &a, &A_log, &dt, 1, -1) == LA_E_SIZE, "heads");
}

TEST(helpers_gate_log_decay_random) {
    float a[64], A_log[64], dt[64], g[64];
    int i, round;
    for (round = 0; round < 100; round++) {
        for (i = 0; i < 64; i++) {
            a[i] = random_uniform(-120, 40);
            A_log[i] = random_uniform(-5, 80);
            dt[i] = random_uniform(-8, 8);
        }
        CHECK(la_gate_log_decay(g, a, A_log, dt, 1, 64) == LA_OK, "round %d", round);
        for (i = 0; i < 64; i++) {
            check_float("gate", g[i], gate_of(a[i], A_log[i], dt[i]), (double)(a[i] + dt[i]),
                        (double)A_log[i]);
        }
    }
}

/* bound sigmoid(exp(A) x); where exp(A) x is infinite, the sigmoid is 0 or 1. */
static long double bounded_of(float a, float A_log, float dt_bias, float bound) {
    long double x = (long double)a + (long double)dt_bias;
    long double y = x == 0 ? 0 : copysignl(expl((long double)A_log + logl(fabsl(x))), x);
    return (long double)bound * (y < 0 ? expl(y) / (1 + expl(y)) : 1 / (1 + expl(-y)));
}

/* Both forms, each head with its own A_log and its own bias for each channel. */
TEST(helpers_kda_log_decay) {
    enum { HEADS = COUNT(gate_A), WIDTH = COUNT(gate_a), ROWS = 3, N = ROWS * HEADS * WIDTH };
    static const float bounds[] = {0, -5, -1e-30f, -FLT_MAX};
    static float a[N], g[N], dt[HEADS * WIDTH];
    int i, n;
    for (i = 0; i < HEADS * WIDTH; i++) {
        dt[i] = gate_dt[i % 7 % COUNT(gate_dt)];
    }
    for (n = 0; n < COUNT(bounds); n++) {
        for (i = 0; i < N; i++) {
            a[i] = gate_a[(i + i / (HEADS * WIDTH)) % WIDTH];
        }
        CHECK(la_kda_log_decay(g, a, gate_A, dt, bounds[n], ROWS, HEADS, WIDTH) == LA_OK, "%d", n);
        for (i = 0; i < N; i++) {
            float A = gate_A[i / WIDTH % HEADS], bias = dt[i % (HEADS * WIDTH)];
            long double want = n ? bounded_of(a[i], A, bias, bounds[n]) : gate_of(a[i], A, bias);
            CHECK(g[i] <= 0 && (n == 0 || g[i] >= bounds[n]), "not a decay: %g", (double)g[i]);
            check_float("gate", g[i], want, (double)(a[i] + bias), (double)A);
        }
        CHECK(la_kda_log_decay(a, a, gate_A, dt, bounds[n], ROWS, HEADS, WIDTH) == LA_OK, "%d", n);
        check_same("in place", a, g, N);
    }
}

TEST(helpers_kda_log_decay_refuses) {
    float a = 1, A_log = 0, dt = 0, g = 7;
    CHECK(la_kda_log_decay(NULL, &a, &A_log, &dt, 0, 1, 1, 1) == LA_E_NULL, "log_decay");
    CHECK(la_kda_log_decay(&g, NULL, &A_log, &dt, 0, 1, 1, 1) == LA_E_NULL, "a");
    CHECK(la_kda_log_decay(&g, &a, NULL, &dt, 0, 1, 1, 1) == LA_E_NULL, "A_log");
    CHECK(la_kda_log_decay(&g, &a, &A_log, NULL, 0, 1, 1, 1) == LA_E_NULL, "dt_bias");
    CHECK(la_kda_log_decay(&g, &a, &A_log, &dt, 0, -1, 1, 1) == LA_E_SIZE, "rows");
    CHECK(la_kda_log_decay(&g, &a, &A_log, &dt, 0, 1, -1, 1) == LA_E_SIZE, "heads");
    CHECK(la_kda_log_decay(&g, &a, &A_log, &dt, 0, 1, 1, -1) == LA_E_SIZE, "dim_k");
    CHECK(la_kda_log_decay(&g, &a, &A_log, &dt, 0, 1, 1, INT64_MAX) == LA_E_SIZE, "dim_k");
    CHECK(la_kda_log_decay(&g, &a, &A_log, &dt, 1, 1, 1, 1) == LA_E_VALUE, "a bound above 0");
    CHECK(la_kda_log_decay(&g, &a, &A_log, &dt, NAN, 1, 1, 1) == LA_E_VALUE, "NaN");
    CHECK(la_kda_log_decay(&g, &a, &A_log, &dt, -INFINITY, 1, 1, 1) == LA_E_VALUE, "-infinity");
    CHECK(la_kda_log_decay(NULL, NULL, NULL, NULL, 0, 5, 0, 1) == LA_OK && g == 7, "no heads");
}

/* softplus(x), then the limits, then its product with -exp(A). */
static long double step_of(float a, float dt_bias, float low, float high) {
    long double x = (long double)a + (long double)dt_bias;
    long double step = x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
    step = step < (long double)low ? (long double)low : step;
    return high > 0 && step > (long double)high ? (long double)high : step;
}

static long double step_gate_of(float a, float A_log, float dt_bias, float low, float high) {
    long double step = step_of(a, dt_bias, low, high), free_step = step_of(a, dt_bias, 0, 0);
    return step == free_step ? gate_of(a, A_log, dt_bias) : -expl((long double)A_log + logl(step));
}

TEST(helpers_mamba2_gates) {
    enum { ROWS = COUNT(gate_a), HEADS = COUNT(gate_A), N = ROWS * HEADS };
    static const float limits[][2] = {{0, 0}, {0, INFINITY}, {0.001f, 0.1f},
                                      {0, 2}, {3, 3},        {1, 0}};
    static float a[N], dt[N], g[N], again[N], bias[HEADS];
    int i, n;
    for (n = 0; n < COUNT(limits); n++) {
        float low = limits[n][0], high = limits[n][1];
        for (i = 0; i < N; i++) {
            a[i] = gate_a[i / HEADS];
            bias[i % HEADS] = gate_dt[(n + i % HEADS) % COUNT(gate_dt)];
        }
        CHECK(la_mamba2_gates(dt, g, a, gate_A, bias, low, high, ROWS, HEADS) == LA_OK, "%d", n);
        for (i = 0; i < N; i++) {
            float A = gate_A[i % HEADS], b = bias[i % HEADS];
            check_float("dt", dt[i], step_of(a[i], b, low, high), (double)(a[i] + b), (double)high);
            check_float("gate", g[i], step_gate_of(a[i], A, b, low, high), (double)(a[i] + b),
                        (double)A);
        }
        memcpy(again, a, sizeof a);
        la_mamba2_gates(again, g, again, gate_A, bias, low, high, ROWS, HEADS);
        check_same("dt in place", again, dt, N);
        la_mamba2_gates(again, a, a, gate_A, bias, low, high, ROWS, HEADS);
        check_same("gates in place", a, g, N);
    }
}

TEST(helpers_mamba2_gates_refuses) {
    float a = 1, A = 0, bias = 0, dt = 7, g = 7;
    CHECK(la_mamba2_gates(NULL, &g, &a, &A, &bias, 0, 0, 1, 1) == LA_E_NULL, "dt");
    CHECK(la_mamba2_gates(&dt, NULL, &a, &A, &bias, 0, 0, 1, 1) == LA_E_NULL, "log_decay");
    CHECK(la_mamba2_gates(&dt, &g, NULL, &A, &bias, 0, 0, 1, 1) == LA_E_NULL, "a");
    CHECK(la_mamba2_gates(&dt, &g, &a, NULL, &bias, 0, 0, 1, 1) == LA_E_NULL, "A_log");
    CHECK(la_mamba2_gates(&dt, &g, &a, &A, NULL, 0, 0, 1, 1) == LA_E_NULL, "dt_bias");
    CHECK(la_mamba2_gates(&dt, &g, &a, &A, &bias, 0, 0, -1, 1) == LA_E_SIZE, "rows");
    CHECK(la_mamba2_gates(&dt, &g, &a, &A, &bias, 0, 0, 1, -1) == LA_E_SIZE, "heads");
    CHECK(la_mamba2_gates(&dt, &g, &a, &A, &bias, -1, 0, 1, 1) == LA_E_VALUE, "dt_min");
    CHECK(la_mamba2_gates(&dt, &g, &a, &A, &bias, NAN, 0, 1, 1) == LA_E_VALUE, "dt_min");
    CHECK(la_mamba2_gates(&dt, &g, &a, &A, &bias, 0, -1, 1, 1) == LA_E_VALUE, "dt_max");
    CHECK(la_mamba2_gates(&dt, &g, &a, &A, &bias, 0, NAN, 1, 1) == LA_E_VALUE, "dt_max");
    CHECK(la_mamba2_gates(&dt, &g, &a, &A, &bias, 2, 1, 1, 1) == LA_E_VALUE, "limits");
    CHECK(la_mamba2_gates(&g, &g, &a, &A, &bias, 0, 0, 1, 1) == LA_E_OVERLAP, "outputs");
    CHECK(la_mamba2_gates(NULL, NULL, NULL, NULL, NULL, 0, 0, 1, 0) == LA_OK, "no heads");
    CHECK(dt == 7 && g == 7, "a refused call wrote");
}

TEST(helpers_sigmoid) {
    static const float ends[] = {0,    1e30f,   -1e30f, 88,        -88,     -90,     -103,
                                 -104, FLT_MAX, 17,     -INFINITY, -1e-30f, INFINITY};
    float x[400], y[400];
    int i;
    for (i = 0; i < 400; i++) {
        x[i] = i < COUNT(ends) ? ends[i] : (float)(i - 200) * 0.53f;
    }
    CHECK(la_sigmoid(y, x, 400) == LA_OK, "status");
    for (i = 0; i < 400; i++) {
        check_float("sigmoid", y[i], 1 / (1 + expl(-(long double)x[i])), (double)x[i], 0);
    }
    CHECK(la_sigmoid(x, x, 400) == LA_OK, "in place");
    check_same("in place", x, y, 400);
    x[0] = NAN;
    CHECK(la_sigmoid(y, x, 1) == LA_OK && isnan(y[0]), "NaN became %g", (double)y[0]);
    CHECK(la_sigmoid(NULL, x, 1) == LA_E_NULL && la_sigmoid(y, NULL, 1) == LA_E_NULL, "null");
    CHECK(la_sigmoid(y, x, -1) == LA_E_SIZE, "negative");
}

TEST(helpers_rwkv_log_decay) {
    static const float ends[] = {0, -88, 88, -104, -1e30f, -INFINITY, 5, -5, -0.5f};
    float w[400], g[400];
    int i;
    for (i = 0; i < 400; i++) {
        w[i] = i < COUNT(ends) ? ends[i] : (float)(i - 200) * 0.4f;
    }
    CHECK(la_rwkv_log_decay(g, w, 400) == LA_OK, "status");
    for (i = 0; i < 400; i++) {
        check_float("rwkv", g[i], -expl((long double)w[i]), (double)w[i], 0);
    }
    CHECK(la_rwkv_log_decay(w, w, 400) == LA_OK, "in place");
    check_same("in place", w, g, 400);
    CHECK(la_rwkv_log_decay(NULL, w, 1) == LA_E_NULL, "null");
    CHECK(la_rwkv_log_decay(g, NULL, 1) == LA_E_NULL, "null");
    CHECK(la_rwkv_log_decay(NULL, NULL, 0) == LA_OK, "nothing");
    CHECK(la_rwkv_log_decay(g, w, -1) == LA_E_SIZE, "negative");
}

TEST(helpers_views_of_rows_for_all_tokens) {
    static const float x[6];
    la_in one = la_per_head(x), many = la_per_channel(x, 3);
    CHECK(one.data == x && one.width == 1 && one.head_stride == 1, "one number");
    CHECK(many.data == x && many.width == 3 && many.head_stride == 3, "a row");
    CHECK(one.token_stride == 0 && one.batch_stride == 0, "one number at every token");
    CHECK(many.token_stride == 0 && many.batch_stride == 0, "a row at every token");
}

/* ---------------------------------------------------------------- states */

enum { SEQUENCES = 2, H = 3, DK = 5, DV = 7, STATE = H * DK * DV, STATES = SEQUENCES * STATE };

static void convert_layer(la_layer *layer) {
    CHECK(la_layer_init(layer, LA_GATED_DELTANET, H, DK, DV) == LA_OK, "status");
}

TEST(helpers_state_convert) {
    float *kv = guarded_new(STATES, 0), *vk = guarded_new(STATES, 1);
    float *back = guarded_new(STATES, 3);
    la_layer layer;
    int n, i, j, wrong = 0;
    convert_layer(&layer);
    for (n = 0; n < STATES; n++) {
        kv[n] = (float)n;
    }
    CHECK(la_state_convert(&layer, SEQUENCES, LA_KV, kv, LA_VK, vk) == LA_OK, "kv to vk");
    for (n = 0; n < SEQUENCES * H; n++) {
        for (i = 0; i < DK; i++) {
            for (j = 0; j < DV; j++) {
                wrong += vk[(n * DV + j) * DK + i] != (float)((n * DK + i) * DV + j);
            }
        }
    }
    CHECK(wrong == 0, "%d of %d", wrong, STATES);
    CHECK(la_state_convert(&layer, SEQUENCES, LA_VK, vk, LA_KV, back) == LA_OK, "vk to kv");
    check_same("and back", back, kv, STATES);
    CHECK(la_state_convert(&layer, SEQUENCES, LA_VK, kv, LA_VK, back) == LA_OK, "vk to vk");
    check_same("the same layout", back, kv, STATES);
    guarded_free(kv);
    guarded_free(vk);
    guarded_free(back);
}

TEST(helpers_state_convert_refuses) {
    static float all[3 * STATES], before[3 * STATES];
    float *from = all + STATES, *to = all;
    la_layer layer;
    convert_layer(&layer);
    CHECK(la_state_convert(NULL, 1, LA_KV, from, LA_VK, to) == LA_E_NULL, "layer");
    CHECK(la_state_convert(&layer, 1, LA_KV, NULL, LA_VK, to) == LA_E_NULL, "from");
    CHECK(la_state_convert(&layer, 1, LA_KV, from, LA_VK, NULL) == LA_E_NULL, "to");
    CHECK(la_state_convert(&layer, -1, LA_KV, from, LA_VK, to) == LA_E_SIZE, "count");
    CHECK(la_state_convert(&layer, 1, 2, from, LA_VK, to) == LA_E_VALUE, "from_layout");
    CHECK(la_state_convert(&layer, 1, LA_KV, from, -1, to) == LA_E_VALUE, "to_layout");
    CHECK(la_state_convert(&layer, 2, LA_KV, from, LA_VK, from) == LA_E_OVERLAP, "in place");
    CHECK(la_state_convert(&layer, 2, LA_KV, from, LA_VK, from + 1) == LA_E_OVERLAP, "by one");
    CHECK(la_state_convert(&layer, 2, LA_KV, from, LA_VK, from + STATES - 1) == LA_E_OVERLAP,
          "last");
    CHECK(la_state_convert(&layer, 2, LA_KV, from, LA_VK, to + 1) == LA_E_OVERLAP, "first");
    CHECK(la_state_convert(&layer, INT64_MAX, LA_KV, from, LA_VK, to) != LA_OK, "too many");
    CHECK(memcmp(all, before, sizeof all) == 0, "a refused call wrote");
    layer.struct_size = 0;
    CHECK(la_state_convert(&layer, 1, LA_KV, from, LA_VK, to) == LA_E_STRUCT, "layer");
}

TEST(helpers_state_floats) {
    static const la_variant variants[] = {LA_RETNET, LA_DELTANET, LA_GATED_DELTANET};
    la_layer layer;
    int i;
    for (i = 0; i < COUNT(variants); i++) {
        CHECK(la_layer_init(&layer, variants[i], H, DK, DV) == LA_OK, "variant %d", i);
        CHECK(la_state_floats(&layer) == STATE, "%zu", la_state_floats(&layer));
        layer.state_layout = LA_VK;
        layer.q_heads = layer.k_heads = 1;
        CHECK(la_state_floats(&layer) == STATE, "%zu", la_state_floats(&layer));
        layer.dim_v = 0;
        CHECK(la_state_floats(&layer) == 0, "%zu", la_state_floats(&layer));
    }
    memset(&layer, 0, sizeof layer);
    CHECK(la_state_floats(&layer) == 0, "%zu", la_state_floats(&layer));
}

TEST(helpers_initialisers) {
    la_layer layer;
    la_call call;
    memset(&layer, 0x5a, sizeof layer);
    memset(&call, 0x5a, sizeof call);
    CHECK(la_layer_init(&layer, LA_RETNET, H, DK, DV) == LA_OK, "status");
    CHECK(layer.heads == H && layer.q_heads == H && layer.k_heads == H, "heads");
    CHECK(layer.dim_k == DK && layer.dim_v == DV, "dims");
    CHECK(layer.scale == 1 && layer.eps == 0 && layer.l2_eps == (float)1e-6, "numbers");
    CHECK(layer.l2_mode == LA_L2_OFF && layer.state_layout == LA_KV, "modes");
    CHECK(layer.head_map == LA_GROUPED && layer.write == LA_WRITE_ADD, "modes");
    CHECK(layer.decay_required == 1 && layer.bidirectional == 0 && layer.normalised == 0, "axes");
    CHECK(la_call_init(&call, &layer, SEQUENCES, 11) == LA_OK, "status");
    CHECK(call.batch == SEQUENCES && call.tokens == 11 && call.keys == 11, "sizes");
    CHECK(call.form == LA_AUTO && call.isa == LA_ISA_AUTO && call.chunk == 0, "form");
    CHECK(call.thread_index == 0 && call.thread_count == 1, "threads");
    CHECK(call.state_in_stride == STATE && call.state_out_stride == STATE, "strides");
    CHECK(!call.q.data && !call.beta.data && !call.out.data && !call.workspace, "pointers");
    CHECK(!call.lengths && !call.offsets && !call.slots_in && !call.positions, "pointers");
}

/* ---------------------------------------------------------------- what la_describe tells */

static void check_plan(Problem *problem, const Way *way, la_plan *plan) {
    la_call *call = &problem->call;
    call->form = way->form;
    call->isa = way->isa;
    call->chunk = way->chunk;
    CHECK(la_describe(&problem->layer, call, plan) == LA_OK, "%s", problem_text(problem));
    CHECK(plan->form >= LA_PARALLEL && plan->form <= LA_CHUNKWISE, "form %d", plan->form);
    CHECK(way->form == LA_AUTO || plan->form == way->form, "form %d for %d", plan->form, way->form);
    CHECK(plan->isa != LA_ISA_AUTO && la_isa_available(plan->isa) == 1, "isa %d", plan->isa);
    CHECK(way->isa == LA_ISA_AUTO || plan->isa == way->isa, "isa %d for %d", plan->isa, way->isa);
    CHECK(plan->chunk >= 1, "chunk %d", (int)plan->chunk);
    CHECK(way->chunk == 0 || plan->chunk == way->chunk, "chunk %d", (int)plan->chunk);
    CHECK(plan->kernel != NULL && *plan->kernel != '\0', "no kernel");
    CHECK(plan->flops > 0 && plan->units >= 1, "flops %g, units %d", plan->flops, (int)plan->units);
    CHECK(plan->workspace_size == la_workspace_size(&problem->layer, call), "%zu",
          plan->workspace_size);
}

static double compulsory_bytes(const Problem *problem) {
    const Spec *spec = &problem->spec;
    int64_t row = spec->Hq * spec->dk + spec->Hk * spec->dk + 2 * spec->H * spec->dv + 2 * spec->H;
    return 4.0 * (double)(spec->B * (spec->T * row + 2 * spec->H * spec->dk * spec->dv));
}

TEST(helpers_describe) {
    Spec spec = {LA_GATED_DELTANET, .B = 2,  .T = 67,  .H = 4,
                 .Hk = 2,           .dk = 7, .dv = 19, .gate = GATE_MILD,
                 .beta = BETA_TOKEN};
    Problem *problem = problem_new(&spec);
    Way way;
    int i;
    for (i = 0; way_number(i, &way); i++) {
        la_plan plan;
        if (way.chunk <= spec.T) {
            check_plan(problem, &way, &plan);
            CHECK(fabs(plan.bytes / compulsory_bytes(problem) - 1) < 1e-9, "%g bytes, want %g",
                  plan.bytes, compulsory_bytes(problem));
        }
    }
    problem_free(problem);
}

/* What the rules per channel take and read. */
TEST(helpers_describe_rules_per_channel) {
    static const la_variant rules[] = {LA_RWKV6, LA_RWKV7, LA_GDN2};
    static const double flops[] = {4, 8, 6}, rows[] = {1, 3, 2}; /* of dk, beside q and k */
    int i;
    for (i = 0; i < 3; i++) {
        Spec spec = {rules[i], .T = 50,           .H = 3,           .dk = 7,
                     .dv = 19, .gate = GATE_MILD, .gate_channel = 1};
        Problem *problem = problem_new(&spec);
        double tokens = 50 * 3, state = 7 * 19, want = 4 * (tokens * ((2 + rows[i]) * 7 + 2 * 19));
        la_plan plan;
        problem->call.form = LA_CHUNKWISE;
        CHECK(la_describe(&problem->layer, &problem->call, &plan) == LA_OK, "status");
        CHECK(plan.flops == tokens * flops[i] * state, "%g flops", plan.flops);
        CHECK(plan.bytes == want + 4 * 2 * 3 * state, "%g bytes, want %g", plan.bytes, want);
        CHECK(plan.chunk == (i == 1 ? 1 : 2) && strcmp(plan.kernel, "pair") == 0, "%s %d",
              plan.kernel, (int)plan.chunk);
        problem_free(problem);
    }
}

/* What AUTO says that it would take, asked for by name, gives the same bits. */
TEST(helpers_describe_tells_what_auto_takes) {
    static const int64_t lengths[] = {1, 2, 17, 150};
    static const la_variant taken[] = {LA_RETNET, LA_GATED_DELTANET, LA_RWKV6, LA_RWKV7, LA_GDN2};
    int i, n;
    for (n = 0; n < COUNT(lengths); n++) {
        for (i = 0; i < 10; i++) {
            Spec spec = {LA_RETNET, .T = lengths[n], .H = 2, .dk = 13, .dv = 19, .gate = GATE_MILD};
            Way way = {LA_AUTO, LA_ISA_AUTO, 0, 1};
            Problem *problem;
            la_plan plan;
            float *want, *got;
            size_t count;
            spec.variant = taken[i / 2];
            spec.layout = i % 2;
            problem = problem_new(&spec);
            check_plan(problem, &way, &plan);
            problem_run(problem, &way);
            want = problem_copy_out(problem, &count);
            way.form = plan.form;
            way.isa = plan.isa;
            problem_run(problem, &way);
            got = problem_copy_out(problem, &count);
            check_same(problem_text(problem), got, want, count);
            free(want);
            free(got);
            problem_free(problem);
        }
    }
}
