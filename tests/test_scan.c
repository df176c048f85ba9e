/* Element-wise recurrences (LA_EXTRAS): RWKV-4 against its definition as weighted means in float64,
   HGRN against its recurrence and the peers' outputs, and what both promise. */
#define LA_EXTRAS
#include "golden.h"
#include "oracle.h"

#include <math.h>

/* ---------------------------------------------------------------- a case */

typedef struct Scan {
    int kind;
    int64_t B, T, C;
    float k_size, decay; /* k in (-k_size, k_size), log_decay in (decay, 0)  */
    int gates;           /* 1: log_decay for each token, some of them -inf   */
    la_scan call;
    float *k, *v, *log_decay, *bonus, *out, *start, *end;
    double *want, *want_end; /* [B][T][C]; numerator and denominator relative to exp(maximum) */
} Scan;

static size_t scan_state(const Scan *scan) { /* floats of one sequence's state */
    return (size_t)scan->C * (scan->kind == LA_SCAN_RWKV4 ? 3 : 1);
}

/* Maxima of every size, denominators not always there, of course positive. */
static void scan_fill_state(Scan *scan) {
    int64_t b, c, C = scan->C;
    for (b = 0; b < scan->B && scan->kind == LA_SCAN_RWKV4; b++) {
        float *state = scan->start + (size_t)b * scan_state(scan);
        for (c = 0; c < C; c++) {
            state[C + c] = random_below(5) ? random_uniform(0.5f, 2) : 0;
            state[c] *= state[C + c];
            state[2 * C + c] = random_uniform(-scan->k_size, scan->k_size);
        }
    }
}

static void scan_new(Scan *scan) {
    size_t n = (size_t)(scan->B * scan->T * scan->C), i;
    size_t gates = scan->gates ? n : (size_t)scan->C;
    la_status status = la_scan_init(&scan->call, scan->kind, scan->B, scan->T, scan->C);
    CHECK(status == LA_OK, "%s", la_status_text(status));
    scan->k = guarded_random(n, 1, -scan->k_size, scan->k_size);
    scan->v = guarded_random(n, 1, -1, 1);
    scan->log_decay = guarded_random(gates, 1, scan->decay, 0);
    for (i = 0; scan->gates && i < gates; i += 13) {
        scan->log_decay[i] = -INFINITY;
    }
    scan->bonus = guarded_random((size_t)scan->C, 1, -2, 2);
    scan->out = guarded_new(n, 3);
    scan->start = guarded_random((size_t)scan->B * scan_state(scan), 1, -1, 1);
    scan->end = guarded_new((size_t)scan->B * scan_state(scan), 2);
    scan->want = calloc(n + 1, sizeof(double));
    scan->want_end = calloc((size_t)scan->B * scan_state(scan), sizeof(double));
    scan_fill_state(scan);
    scan->call.v = la_bthd(scan->v, scan->T, 1, scan->C);
    scan->call.log_decay = scan->gates ? la_bthd(scan->log_decay, scan->T, 1, scan->C)
                                       : la_per_channel(scan->log_decay, scan->C);
    scan->call.out = la_bthd_out(scan->out, scan->T, 1, scan->C);
    scan->call.state_in = scan->start;
    scan->call.state_out = scan->end;
    if (scan->kind == LA_SCAN_RWKV4) {
        scan->call.k = la_bthd(scan->k, scan->T, 1, scan->C);
        scan->call.bonus = scan->bonus;
    }
}

static void scan_free(Scan *scan) {
    guarded_free(scan->k);
    guarded_free(scan->v);
    guarded_free(scan->log_decay);
    guarded_free(scan->bonus);
    guarded_free(scan->out);
    guarded_free(scan->start);
    guarded_free(scan->end);
    free(scan->want);
    free(scan->want_end);
}

static double scan_gate(const Scan *scan, int64_t b, int64_t t, int64_t c) {
    return (double)scan->log_decay[(scan->gates ? (b * scan->T + t) * scan->C : 0) + c];
}

/* ---------------------------------------------------------------- the oracles

   RWKV-4 by its definition: at token t (or T, for the state at the end) token i < t weighs exp(k_i
   + the decays between), the state before token 0 likewise, and t itself exp(bonus + k_t). Sums are
   relative to the largest exponent, which is returned. */
static double wkv_sums(const Scan *scan, int64_t b, int64_t t, int64_t c, double *a, double *w) {
    const float *state = scan->start + (size_t)b * scan_state(scan);
    double exponent[512], most = -HUGE_VAL, between = 0;
    int64_t i;
    CHECK(t < 510, "T is %d", (int)t);
    for (i = t - 1; i >= 0; i--) { /* exponent[i + 1] is token i's */
        exponent[i + 1] = (double)scan->k[(b * scan->T + i) * scan->C + c] + between;
        /* at the end the last token's own gate has not acted yet, as before any other output */
        between += scan_gate(scan, b, i, c);
    }
    exponent[0] = state[scan->C + c] > 0 ? (double)state[2 * scan->C + c] + between : -HUGE_VAL;
    exponent[t + 1] = -HUGE_VAL;
    if (t < scan->T) {
        exponent[t + 1] = (double)scan->bonus[c] + (double)scan->k[(b * scan->T + t) * scan->C + c];
    }
    for (i = 0; i <= t + 1; i++) {
        most = fmax(most, exponent[i]);
    }
    *a = *w = 0;
    for (i = 0; i <= t + 1 && most > -HUGE_VAL; i++) {
        double weight = exp(exponent[i] - most);
        *a += weight * (i == 0       ? (double)state[c]
                        : weight > 0 ? (double)scan->v[(b * scan->T + i - 1) * scan->C + c]
                                     : 0);
        *w += weight * (i == 0 ? (double)state[scan->C + c] : 1);
    }
    return most;
}

static void wkv_oracle(Scan *scan) {
    double a, w;
    int64_t b, t, c;
    for (b = 0; b < scan->B; b++) {
        for (c = 0; c < scan->C; c++) {
            double *end = scan->want_end + (size_t)b * scan_state(scan) + c;
            for (t = 0; t < scan->T; t++) {
                wkv_sums(scan, b, t, c, &a, &w);
                scan->want[(b * scan->T + t) * scan->C + c] = w > 0 ? a / w : 0;
            }
            end[2 * scan->C] = wkv_sums(scan, b, scan->T, c, &end[0], &end[scan->C]);
        }
    }
}

static void hgrn_oracle(Scan *scan) {
    int64_t b, t, c;
    for (b = 0; b < scan->B; b++) {
        for (c = 0; c < scan->C; c++) {
            double h = (double)scan->start[b * scan->C + c];
            for (t = 0; t < scan->T; t++) {
                int64_t at = (b * scan->T + t) * scan->C + c;
                h = exp(scan_gate(scan, b, t, c)) * h + (double)scan->v[at];
                scan->want[at] = h;
            }
            scan->want_end[b * scan->C + c] = h;
        }
    }
}

/* ---------------------------------------------------------------- comparisons */

static void scan_run(Scan *scan) {
    la_status status;
    size_t i, n = (size_t)(scan->B * scan->T * scan->C);
    for (i = 0; i < n; i++) {
        scan->out[i] = NAN;
    }
    status = la_scan_forward(&scan->call);
    CHECK(status == LA_OK, "%s", la_status_text(status));
}

/* Means of numbers in (-1, 1): absolute errors. States of RWKV-4: mean and logarithm of weight. */
static void scan_check(const Scan *scan, const char *name, double tolerance) {
    int64_t b, c, C = scan->C;
    if (scan->T > 0) {
        check_close(name, scan->out, scan->want, (size_t)(scan->B * scan->T * C), tolerance);
    }
    if (scan->kind == LA_SCAN_HGRN) {
        check_close(name, scan->end, scan->want_end, (size_t)(scan->B * C), tolerance);
        return;
    }
    for (b = 0; b < scan->B; b++) {
        const float *got = scan->end + (size_t)b * scan_state(scan);
        const double *want = scan->want_end + (size_t)b * scan_state(scan);
        for (c = 0; c < C; c++) {
            double size = log((double)got[C + c]) + (double)got[2 * C + c];
            double log_want = log(want[C + c]) + want[2 * C + c];
            if (!(want[C + c] > 0)) {
                CHECK(got[C + c] == 0 && got[c] == 0, "%s: no weights, but a state", name);
                continue;
            }
            CHECK(fabs((double)(got[c] / got[C + c]) - want[c] / want[C + c]) <= tolerance,
                  "%s: the mean of the state", name);
            CHECK(fabs(size - log_want) <= tolerance * (1 + fabs(log_want)),
                  "%s: the state weighs exp(%.9g), want exp(%.9g)", name, size, log_want);
        }
    }
}

TEST(scan_follows_the_definition) {
    static const int64_t sizes[][3] = {{1, 1, 1},  {2, 7, 5},    {1, 0, 16},  {3, 33, 17},
                                       {1, 5, 64}, {2, 12, 131}, {1, 300, 31}};
    static const float k_sizes[] = {1, 20, 300, 8000};
    static const float decays[] = {-1e-5f, -0.3f, -5, -90};
    int i, j, n, isa;
    for (n = 0; n < (int)(sizeof sizes / sizeof *sizes); n++) {
        for (j = 0; j < 32; j++) {
            Scan scan = {.kind = j / 16 ? LA_SCAN_HGRN : LA_SCAN_RWKV4,
                         .B = sizes[n][0],
                         .T = sizes[n][1],
                         .C = sizes[n][2],
                         .k_size = k_sizes[j % 4],
                         .decay = decays[j / 4 % 4],
                         .gates = j & 1};
            scan_new(&scan);
            scan.kind == LA_SCAN_HGRN ? hgrn_oracle(&scan) : wkv_oracle(&scan);
            for (i = 0; isa_number(i, &isa); i++) {
                scan.call.isa = isa;
                scan_run(&scan);
                /* as promise 1: weak decays may round the same way at every token */
                scan_check(&scan, la_isa_name(isa),
                           1e-6 + fmax(1e-6 * sqrt((double)scan.T), 6e-8 * (double)scan.T));
            }
            scan_free(&scan);
        }
    }
}

/* A decay that the maximum's rounding loses beside a large key, token by token, yet it counts. */
TEST(scan_rwkv4_keeps_weak_decays) {
    static const float firsts[] = {20, 3000, 30000};
    int i, j, isa, t;
    for (j = 0; j < 3; j++) {
        Scan scan = {.kind = LA_SCAN_RWKV4, .B = 1, .T = 500, .C = 3, .k_size = 1};
        scan_new(&scan);
        for (i = 0; i < 3; i++) {
            scan.log_decay[i] = -firsts[j] * 2e-8f * (float)(1 + i); /* half an ulp and more */
            for (t = 0; t < 500; t++) {
                scan.k[3 * t + i] = firsts[j] - (t == 0 ? 0 : 8.0f);
            }
        }
        scan.call.state_in = NULL;
        memset(scan.start, 0, 9 * sizeof(float));
        wkv_oracle(&scan);
        for (i = 0; isa_number(i, &isa); i++) {
            scan.call.isa = isa;
            scan_run(&scan);
            scan_check(&scan, "weak", 1e-5);
        }
        scan_free(&scan);
    }
}

/* Any key that is a number; keys of -inf are as if not there. */
TEST(scan_rwkv4_takes_any_key) {
    static const float keys[] = {0,     3e38f, -3e38f, -INFINITY, 88,       -90, 1e9f,
                                 1e30f, 5,     -1e30f, -INFINITY, -3.4e38f, 200, -1};
    enum { T = sizeof keys / sizeof *keys };
    int first, t, i, isa;
    for (first = 0; first < T; first++) {
        Scan scan = {.kind = LA_SCAN_RWKV4, .B = 1, .T = T, .C = 1, .k_size = 1, .decay = -1};
        scan_new(&scan);
        for (t = 0; t < T; t++) {
            scan.k[t] = keys[(first + t) % T];
        }
        scan.call.state_in = NULL;
        memset(scan.start, 0, 3 * sizeof(float));
        scan.bonus[0] = 0.5f;
        wkv_oracle(&scan);
        for (i = 0; isa_number(i, &isa); i++) {
            scan.call.isa = isa;
            scan_run(&scan);
            check_close("any key", scan.out, scan.want, T, 2e-6);
        }
        scan_free(&scan);
    }
}

/* Calls that carry the state, threads, rows apart in memory and in-place states change no bit. */
TEST(scan_splits_and_threads_bitwise) {
    enum { T = 23, C = 150, PADDED = 171 };
    int i, isa, kind, cut;
    for (kind = 0; kind < 2; kind++) {
        Scan scan = {.kind = kind, .B = 2, .T = T, .C = C, .k_size = 9, .decay = -2, .gates = 1};
        size_t states, n = 2 * T * C, t;
        float *out = malloc(n * sizeof *out), *end, *wide = guarded_new(2 * T * PADDED, 3);
        scan_new(&scan);
        states = 2 * scan_state(&scan);
        end = malloc(states * sizeof *end);
        for (i = 0; isa_number(i, &isa); i++) {
            la_scan whole = scan.call;
            scan.call.isa = whole.isa = isa;
            scan_run(&scan);
            memcpy(out, scan.out, n * sizeof *out);
            memcpy(end, scan.end, states * sizeof *end);
            for (cut = 0; cut <= T; cut += 5) { /* the second part continues in place */
                scan.call = whole;
                scan.call.tokens = cut;
                memset(scan.out, 0xff, n * sizeof *out);
                CHECK(la_scan_forward(&scan.call) == LA_OK, "first part");
                scan.call.state_in = scan.end;
                scan.call.tokens = T - cut;
                scan.call.k.data = kind == LA_SCAN_RWKV4 ? scan.k + cut * C : NULL;
                scan.call.v.data += cut * C;
                scan.call.log_decay.data += cut * C;
                scan.call.out.data += cut * C;
                CHECK(la_scan_forward(&scan.call) == LA_OK, "second part");
                check_same("split", scan.out, out, n);
                check_same("split state", scan.end, end, states);
            }
            scan.call = whole;
            for (t = 0; t < 2 * T; t++) {
                memcpy(wide + t * PADDED, scan.v + t * C, C * sizeof *wide);
            }
            scan.call.v = la_bthd(wide, T, 1, PADDED);
            scan.call.v.width = C;
            memset(scan.out, 0xff, n * sizeof *out);
            for (scan.call.thread_count = 5; scan.call.thread_index < 5; scan.call.thread_index++) {
                CHECK(la_scan_forward(&scan.call) == LA_OK, "a thread");
            }
            check_same("threads", scan.out, out, n);
            check_same("threads' states", scan.end, end, states);
            scan.call = whole;
        }
        free(out);
        free(end);
        guarded_free(wide);
        scan_free(&scan);
    }
}

/* Lengths: rows beyond are neither read nor written. NaN: its own channel, from its token on. */
TEST(scan_lengths_and_faults) {
    enum { B = 3, T = 9, C = 21, BAD = 7 };
    static const int64_t lengths[B] = {9, 0, 4};
    int kind, i, isa, b, t, c;
    for (kind = 0; kind < 2; kind++) {
        Scan scan = {.kind = kind, .B = B, .T = T, .C = C, .k_size = 3, .decay = -1, .gates = 1};
        float out[B * T * C];
        scan_new(&scan);
        for (i = 0; isa_number(i, &isa); i++) {
            scan.call.isa = isa;
            scan_run(&scan);
            memcpy(out, scan.out, sizeof out);
            scan.call.lengths = lengths;
            (kind == LA_SCAN_RWKV4 ? scan.k : scan.v)[2 * C + BAD] = NAN;
            for (t = 4; t < T; t++) { /* beyond the last sequence's length */
                scan.v[(2 * T + t) * C] = NAN;
            }
            scan_run(&scan);
            for (b = 0; b < B; b++) {
                for (t = 0; t < T; t++) {
                    for (c = 0; c < C; c++) {
                        float got = scan.out[(b * T + t) * C + c], was = out[(b * T + t) * C + c];
                        int bad = t >= lengths[b] || (b == 0 && c == BAD && t >= 2);
                        CHECK(bad ? isnan(got) : got == was, "sequence %d token %d channel %d", b,
                              t, c);
                    }
                }
            }
            CHECK(memcmp(scan.end + scan_state(&scan), scan.start + scan_state(&scan),
                         C * sizeof(float)) == 0,
                  "no tokens, another state");
            for (t = 0; t < T; t++) {
                scan.v[(2 * T + t) * C] = 0.25f;
            }
            scan.k[2 * C + BAD] = scan.v[2 * C + BAD] = 0.5f;
            scan.call.lengths = NULL;
        }
        scan_free(&scan);
    }
}

TEST(scan_golden_hgrn) {
    static const char *const cases[] = {"hgrn_01", "hgrn_02", "hgrn_03", "hgrn_04"};
    int n, i, isa;
    for (n = 0; n < 4; n++) {
        const char *name = cases[n];
        npy_array x, g, o, h0, hT;
        Scan scan = {.kind = LA_SCAN_HGRN, .gates = 1};
        CHECK(read_array(name, "input", "x", &x) && read_array(name, "input", "g", &g) &&
                  read_array(name, "output", "o", &o) && read_array(name, "output", "hT", &hT),
              "%s: arrays", name);
        scan.B = x.shape[0];
        scan.T = x.shape[1];
        scan.C = x.shape[2];
        scan_new(&scan);
        for (i = 0; i < (int)x.count; i++) {
            scan.v[i] = npy_float(&x, (size_t)i);
            scan.log_decay[i] = npy_float(&g, (size_t)i);
            scan.want[i] = npy_double(&o, (size_t)i);
        }
        scan.call.state_in = has(name, "h0") ? scan.start : NULL;
        read_array(name, "input", "h0", &h0);
        for (i = 0; i < (int)h0.count; i++) {
            scan.start[i] = npy_float(&h0, (size_t)i);
        }
        for (i = 0; i < (int)hT.count; i++) {
            scan.want_end[i] = npy_double(&hT, (size_t)i);
        }
        for (i = 0; isa_number(i, &isa); i++) {
            scan.call.isa = isa;
            scan_run(&scan);
            scan_check(&scan, name, 2e-6);
        }
        scan_free(&scan);
        npy_free(&x);
        npy_free(&g);
        npy_free(&o);
        npy_free(&h0);
        npy_free(&hT);
    }
}

/* HGRN has neither keys nor a bonus: whatever stands there is not looked at. */
TEST(scan_hgrn_ignores_keys) {
    Scan scan = {.kind = LA_SCAN_HGRN, .B = 2, .T = 5, .C = 7, .k_size = 1, .decay = -1};
    float out[2 * 5 * 7];
    scan_new(&scan);
    scan_run(&scan);
    memcpy(out, scan.out, sizeof out);
    scan.call.k.data = scan.out; /* which would be an overlap */
    scan.call.k.width = 3;
    scan.call.k.token_stride = INT64_MAX;
    scan.call.bonus = scan.out;
    scan_run(&scan);
    check_same("with keys", scan.out, out, 2 * 5 * 7);
    scan_free(&scan);
}

#define REFUSED(STATUS, FIELD, ...)                                                                \
    do {                                                                                           \
        la_scan call = scan.call;                                                                  \
        const char *field = NULL;                                                                  \
        __VA_ARGS__;                                                                               \
        CHECK(la_scan_check(&call, &field) == (STATUS), "%s: %d", #__VA_ARGS__,                    \
              (int)la_scan_check(&call, NULL));                                                    \
        CHECK(field != NULL && strcmp(field, FIELD) == 0, "%s: field %s", #__VA_ARGS__,            \
              field ? field : "(null)");                                                           \
        CHECK(la_scan_forward(&call) == (STATUS), "%s: forward", #__VA_ARGS__);                    \
        CHECK(isnan(scan.out[0]) && isnan(scan.end[0]), "%s: something was written",               \
              #__VA_ARGS__);                                                                       \
    } while (0)

TEST(scan_bad_input) {
    static const int64_t lengths[2] = {3, 10};
    Scan scan = {.kind = LA_SCAN_RWKV4, .B = 2, .T = 9, .C = 20, .k_size = 1, .gates = 1};
    scan_new(&scan);
    CHECK(la_scan_check(&scan.call, NULL) == LA_OK, "a good call");
    REFUSED(LA_E_STRUCT, "scan.struct_size", call.struct_size = 0);
    REFUSED(LA_E_VARIANT, "kind", call.kind = 2);
    REFUSED(LA_E_ISA, "isa", call.isa = 99);
    REFUSED(LA_E_THREADS, "thread_count", call.thread_count = 0);
    REFUSED(LA_E_THREADS, "thread_index", call.thread_index = 1);
    REFUSED(LA_E_SIZE, "batch", call.batch = 0);
    REFUSED(LA_E_SIZE, "tokens", call.tokens = -1);
    REFUSED(LA_E_SIZE, "channels", call.channels = 0);
    REFUSED(LA_E_SIZE, "lengths", call.lengths = lengths);
    REFUSED(LA_E_NULL, "k", call.k.data = NULL);
    REFUSED(LA_E_NULL, "v", call.v.data = NULL);
    REFUSED(LA_E_NULL, "log_decay", call.log_decay.data = NULL);
    REFUSED(LA_E_NULL, "bonus", call.bonus = NULL);
    REFUSED(LA_E_NULL, "out", call.out.data = NULL);
    REFUSED(LA_E_SHAPE, "k.width", call.k.width = 19);
    REFUSED(LA_E_SHAPE, "log_decay.width", call.log_decay.width = 1);
    REFUSED(LA_E_SHAPE, "out.width", call.out.width = 21);
    REFUSED(LA_E_TYPE, "v.type", call.v.type = 1);
    REFUSED(LA_E_OVERFLOW, "v", call.v.batch_stride = INT64_MAX);
    REFUSED(LA_E_OVERLAP, "out", call.out.token_stride = 19);
    REFUSED(LA_E_OVERLAP, "out", call.out.data = scan.v);
    REFUSED(LA_E_OVERLAP, "out", call.out.data = scan.bonus);
    REFUSED(LA_E_OVERLAP, "state_out", call.state_out = scan.start + 1);
    REFUSED(LA_E_OVERLAP, "state_out", call.state_out = scan.k);
    CHECK(la_scan_check(NULL, NULL) == LA_E_NULL, "no call");
    CHECK(la_scan_init(NULL, 0, 1, 1, 1) == LA_E_NULL, "init");
    CHECK(la_scan_init(&scan.call, 7, 1, 1, 1) == LA_E_VARIANT, "kind 7");
    CHECK(la_scan_forward(&scan.call) == LA_E_STRUCT, "after a failed init");
    scan_free(&scan);
}
