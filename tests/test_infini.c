/* Infini-attention (LA_EXTRAS) against its definition in float64, the peers' outputs, and what it
   promises. */
#define LA_EXTRAS
#include "golden.h"
#include "oracle.h"

#include <math.h>

/* ---------------------------------------------------------------- a case */

typedef struct Shape { /* 0 stands for the usual value: B = 1, Hq = Hk = H */
    int64_t B, T, H, Hq, Hk, dk, dv, segment;
    int write, bidirectional, wide_beta, layout, no_state, ragged, tiled;
    float scale, eps; /* of the memory: 1, 0 */
    int l2;
} Shape;

enum { MOST_BATCH = 4 };

typedef struct Infini {
    Shape shape;
    la_infini layer;
    la_call call;
    float *q, *k, *v, *beta, *out, *start, *end, *workspace; /* guarded */
    int64_t lengths[MOST_BATCH];
    double *want, *want_end; /* as out; and [B][H] M [dk][dv], z [dk] */
} Infini;

static size_t state_floats(const Infini *x) {
    return (size_t)(x->shape.H * (x->shape.dk * x->shape.dv + x->shape.dk));
}

/* Where M[i][j] of a head stands in a state of the library; j = dv: z[i]. */
static size_t state_at(const Infini *x, int64_t b, int64_t h, int64_t i, int64_t j) {
    const Shape *s = &x->shape;
    int64_t head = (b * s->H + h) * (s->dk * s->dv + s->dk);
    if (j == s->dv) {
        return (size_t)(head + s->dk * s->dv + i);
    }
    return (size_t)(head + (s->layout == LA_VK ? j * s->dk + i : i * s->dv + j));
}

static void infini_views(Infini *x) {
    const Shape *s = &x->shape;
    la_call *call = &x->call;
    call->q = la_bthd(x->q, s->T, s->Hq, s->dk);
    call->k = la_bthd(x->k, s->T, s->Hk, s->dk);
    call->v = la_bthd(x->v, s->T, s->H, s->dv);
    call->beta = la_per_head(x->beta);
    if (s->wide_beta) {
        call->beta = la_per_channel(x->beta, s->dv);
    }
    call->out = la_bthd_out(x->out, s->T, s->Hq > s->H ? s->Hq : s->H, s->dv);
    call->state_in = s->no_state ? NULL : x->start;
    call->state_out = x->end;
    call->lengths = s->ragged ? x->lengths : NULL;
}

static int infini_new(Infini *x, const Shape *shape) {
    Shape *s = &x->shape;
    size_t rows, states;
    int64_t b, h, i;
    la_status status;
    memset(x, 0, sizeof *x);
    *s = *shape;
    s->B = s->B ? s->B : 1;
    s->Hq = s->Hq ? s->Hq : s->H;
    s->Hk = s->Hk ? s->Hk : s->H;
    status = la_infini_init(&x->layer, s->H, s->dk, s->dv, s->segment);
    x->layer.memory.q_heads = s->Hq;
    x->layer.memory.k_heads = s->Hk;
    x->layer.memory.state_layout = s->layout;
    x->layer.memory.head_map = s->tiled;
    x->layer.memory.scale = s->scale = s->scale != 0 ? s->scale : 1;
    x->layer.memory.eps = s->eps;
    x->layer.memory.l2_mode = s->l2 ? LA_L2_SUM : LA_L2_OFF;
    x->layer.write = s->write;
    x->layer.bidirectional = s->bidirectional;
    if (!CHECK(status == LA_OK, "%s", la_status_text(status)) ||
        !CHECK(la_call_init(&x->call, &x->layer.memory, s->B, s->T) == LA_OK, "call")) {
        return 0;
    }
    rows = (size_t)(s->B * s->T);
    states = (size_t)s->B * state_floats(x);
    x->q = guarded_random(rows * (size_t)(s->Hq * s->dk), 1, -1, 1);
    x->k = guarded_random(rows * (size_t)(s->Hk * s->dk), 1, -1, 1);
    x->v = guarded_random(rows * (size_t)(s->H * s->dv), 1, -1, 1);
    x->beta = guarded_random((size_t)(s->H * (s->wide_beta ? s->dv : 1)), 1, -3, 3);
    x->out = guarded_new(rows * (size_t)((s->Hq > s->H ? s->Hq : s->H) * s->dv), 2);
    x->start = guarded_random(states, 1, -1, 1);
    x->end = guarded_new(states, 3);
    for (b = 0; b < s->B; b++) {
        for (h = 0; h < s->H; h++) {
            for (i = 0; i < s->dk; i++) { /* as sums of features are */
                x->start[state_at(x, b, h, i, s->dv)] = random_uniform(0.5f, 2);
            }
        }
        x->lengths[b] = random_below((int)s->T + 1);
    }
    infini_views(x);
    x->want = calloc(rows * (size_t)((s->Hq > s->H ? s->Hq : s->H) * s->dv) + 1, sizeof(double));
    x->want_end = calloc(states, sizeof(double));
    return 1;
}

static void infini_free(Infini *x) {
    guarded_free(x->q);
    guarded_free(x->k);
    guarded_free(x->v);
    guarded_free(x->beta);
    guarded_free(x->out);
    guarded_free(x->start);
    guarded_free(x->end);
    free(x->want);
    free(x->want_end);
}

/* ---------------------------------------------------------------- the definition */

enum { MOST = 160 }; /* channels and tokens of a segment */

static double elu1(double x) {
    return x > 0 ? x + 1 : exp(x);
}

/* Number i of f(row): the memory's q and k may be normalised. */
static double feature(const Infini *x, const float *row, int64_t i) {
    double square = 1e-6;
    int64_t j;
    for (j = 0; j < x->shape.dk; j++) {
        square += (double)row[j] * (double)row[j];
    }
    return elu1((double)row[i] / (x->shape.l2 ? sqrt(square) : 1));
}

/* Which of `heads` heads state h reads. */
static int64_t mapped(const Infini *x, int64_t h, int64_t heads) {
    return x->shape.tiled ? h % heads : h * heads / x->shape.H;
}

/* scale sigma(row) M / (scale sigma(row) z + eps), 0 for 0 / 0 */
static void retrieve(const Infini *x, const double *M, const double *z, const float *row,
                     double *to) {
    double denominator = 0;
    int64_t i, j;
    for (i = 0; i < x->shape.dk; i++) {
        denominator += feature(x, row, i) * z[i];
    }
    denominator += (double)x->shape.eps / (double)x->shape.scale;
    for (j = 0; j < x->shape.dv; j++) {
        to[j] = 0;
        for (i = 0; i < x->shape.dk && denominator != 0; i++) {
            to[j] += feature(x, row, i) * M[i * x->shape.dv + j] / denominator;
        }
    }
}

/* softmax attention of query t over the tokens first .. end - 1 */
static void attend(const Infini *x, int64_t b, int64_t t, int64_t first, int64_t end, int64_t q,
                   int64_t h, double *to) {
    int64_t s, i, j, hk = mapped(x, h, x->shape.Hk);
    double logits[MOST] = {0}, most = -HUGE_VAL, sum = 0;
    end = x->shape.bidirectional ? end : t + 1;
    for (s = first; s < end; s++) {
        double dot = 0;
        for (i = 0; i < x->shape.dk; i++) {
            dot += (double)view_row(&x->call.q, b, t, q)[i] *
                   (double)view_row(&x->call.k, b, s, hk)[i];
        }
        logits[s - first] = dot * (double)x->layer.scale;
        most = fmax(most, logits[s - first]);
    }
    for (s = first; s < end; s++) {
        sum += exp(logits[s - first] - most);
    }
    for (j = 0; j < x->shape.dv; j++) {
        to[j] = 0;
        for (s = first; s < end; s++) {
            to[j] += exp(logits[s - first] - most) / sum * (double)view_row(&x->call.v, b, s, h)[j];
        }
    }
}

/* out of tokens first .. end - 1, all of whose query heads that read state h */
static void want_segment(Infini *x, int64_t b, int64_t h, int64_t first, int64_t end,
                         const double *M, const double *z) {
    const Shape *s = &x->shape;
    int64_t heads = s->Hq > s->H ? s->Hq : s->H, t, o, j;
    double memory[MOST], local[MOST];
    for (t = first; t < end; t++) {
        for (o = 0; o < heads; o++) {
            double *want = x->want + ((b * s->T + t) * heads + o) * s->dv;
            int64_t q = s->Hq > s->H ? o : mapped(x, o, s->Hq);
            if (o * s->H / heads != h) {
                continue;
            }
            retrieve(x, M, z, view_row(&x->call.q, b, t, q), memory);
            attend(x, b, t, first, end, q, h, local);
            for (j = 0; j < s->dv; j++) {
                double g =
                    1 / (1 + exp(-(double)view_row(&x->call.beta, b, t, h)[s->wide_beta ? j : 0]));
                want[j] = g * memory[j] + (1 - g) * local[j];
            }
        }
    }
}

/* M and z after tokens first .. end - 1 */
static void want_memory(const Infini *x, int64_t b, int64_t h, int64_t first, int64_t end,
                        double *M, double *z) {
    const Shape *s = &x->shape;
    int64_t t, i, j, hk = mapped(x, h, s->Hk);
    double *old = malloc((size_t)(s->dk * s->dv) * sizeof *old), *old_z = malloc((size_t)s->dk * 8);
    double predicted[MOST] = {0};
    memcpy(old, M, (size_t)(s->dk * s->dv) * sizeof *old);
    memcpy(old_z, z, (size_t)s->dk * sizeof *z);
    for (t = first; t < end; t++) {
        const float *k = view_row(&x->call.k, b, t, hk), *v = view_row(&x->call.v, b, t, h);
        if (s->write == LA_WRITE_DELTA) {
            retrieve(x, old, old_z, k, predicted);
        }
        for (i = 0; i < s->dk; i++) {
            for (j = 0; j < s->dv; j++) {
                M[i * s->dv + j] += feature(x, k, i) * ((double)v[j] - predicted[j]);
            }
            z[i] += feature(x, k, i);
        }
    }
    free(old);
    free(old_z);
}

static void infini_oracle(Infini *x) {
    const Shape *s = &x->shape;
    int64_t b, h, i, j, first;
    for (b = 0; b < s->B; b++) {
        for (h = 0; h < s->H; h++) {
            double *M = x->want_end + (b * s->H + h) * s->dk * (s->dv + 1);
            double *z = M + s->dk * s->dv;
            int64_t tokens = s->ragged ? x->lengths[b] : s->T;
            for (i = 0; i < s->dk * (s->dv + 1); i++) {
                M[i] = 0;
            }
            for (i = 0; i < s->dk && !s->no_state; i++) {
                for (j = 0; j <= s->dv; j++) {
                    (j < s->dv ? M + i * s->dv + j : z + i)[0] =
                        (double)x->start[state_at(x, b, h, i, j)];
                }
            }
            for (first = 0; first < tokens; first += s->segment) {
                int64_t end = first + s->segment < tokens ? first + s->segment : tokens;
                want_segment(x, b, h, first, end, M, z);
                want_memory(x, b, h, first, end, M, z);
            }
        }
    }
}

/* ---------------------------------------------------------------- comparisons */

static size_t out_floats(const Infini *x) {
    const Shape *s = &x->shape;
    return (size_t)(s->B * s->T * (s->Hq > s->H ? s->Hq : s->H) * s->dv);
}

/* thread by thread, each with a workspace that is just large enough */
static void infini_run(Infini *x, int isa, int64_t threads) {
    size_t i;
    x->call.isa = isa;
    x->call.thread_count = threads;
    x->call.thread_index = 0;
    x->call.workspace_size = la_infini_workspace_size(&x->layer, &x->call);
    for (i = 0; i < out_floats(x); i++) {
        x->out[i] = NAN;
    }
    for (; x->call.thread_index < threads; x->call.thread_index++) {
        float *workspace = guarded_new(x->call.workspace_size / 4 + 1, 1);
        const char *field = NULL;
        la_status status;
        x->call.workspace = workspace;
        status = la_infini_check(&x->layer, &x->call, &field);
        CHECK(status == LA_OK, "%s: %s", la_status_text(status), field ? field : "");
        CHECK(la_infini_forward(&x->layer, &x->call) == status, "forward");
        guarded_free(workspace);
    }
}

static void infini_check(const Infini *x, const char *name, double tolerance) {
    const Shape *s = &x->shape;
    int64_t b, h, i, j;
    size_t n, row = out_floats(x) / (size_t)(s->B * s->T + !s->T);
    double worst = 0;
    for (n = 0; n < out_floats(x); n++) {
        int64_t t = (int64_t)(n / row) % s->T,
                in = !s->ragged || t < x->lengths[n / row / (size_t)s->T];
        double error = fabs((double)x->out[n] - x->want[n]) / (1 + fabs(x->want[n]));
        if (!in) {
            CHECK(isnan(x->out[n]), "%s: a row beyond the length was written", name);
        } else if (!(error <= worst)) {
            worst = error;
        }
    }
    CHECK(worst <= tolerance, "%s T%d %dx%d segment %d write %d: off by %g", name, (int)s->T,
          (int)s->dk, (int)s->dv, (int)s->segment, s->write, worst);
    for (worst = 0, b = 0; b < s->B; b++) {
        for (h = 0; h < s->H; h++) {
            const double *M = x->want_end + (b * s->H + h) * s->dk * (s->dv + 1);
            for (i = 0; i < s->dk; i++) {
                for (j = 0; j <= s->dv; j++) {
                    double want = j < s->dv ? M[i * s->dv + j] : M[s->dk * s->dv + i];
                    double got = (double)x->end[state_at(x, b, h, i, j)];
                    worst = fmax(worst, fabs(got - want) / (sqrt((double)s->T + 1) + fabs(want)));
                }
            }
        }
    }
    CHECK(worst <= tolerance, "%s T%d: the state is off by %g", name, (int)s->T, worst);
}

static const Shape shapes[] = {
    {.T = 1, .H = 1, .dk = 1, .dv = 1, .segment = 1},
    {.B = 2, .T = 7, .H = 3, .dk = 20, .dv = 12, .segment = 16, .wide_beta = 1},
    {.T = 37, .H = 2, .dk = 16, .dv = 24, .segment = 5, .write = LA_WRITE_DELTA},
    {.B = 3, .T = 50, .H = 2, .dk = 7, .dv = 33, .segment = 8, .ragged = 1, .wide_beta = 1},
    {.B = 3,
     .T = 50,
     .H = 4,
     .Hk = 2,
     .dk = 9,
     .dv = 17,
     .segment = 11,
     .ragged = 1,
     .write = LA_WRITE_DELTA,
     .layout = LA_VK},
    {.T = 45, .H = 2, .Hq = 6, .dk = 32, .dv = 16, .segment = 32, .wide_beta = 1},
    {.T = 45, .H = 4, .Hq = 2, .Hk = 1, .dk = 5, .dv = 6, .segment = 10, .bidirectional = 1},
    {.B = 2,
     .T = 300,
     .H = 1,
     .Hq = 2,
     .dk = 64,
     .dv = 64,
     .segment = 128,
     .no_state = 1,
     .write = LA_WRITE_DELTA},
    {.T = 60, .H = 2, .dk = 40, .dv = 48, .segment = 100, .layout = LA_VK, .bidirectional = 1},
    {.B = 2, .T = 0, .H = 2, .dk = 8, .dv = 5, .segment = 4},
    {.T = 30, .H = 6, .Hq = 2, .Hk = 3, .dk = 5, .dv = 7, .segment = 7, .tiled = 1},
    {.T = 40, .H = 2, .dk = 6, .dv = 9, .segment = 8, .scale = 0.4f, .eps = 3, .no_state = 1},
    {.T = 40, .H = 2, .dk = 6, .dv = 9, .segment = 8, .l2 = 1, .write = LA_WRITE_DELTA},
    {.T = 40,
     .H = 2,
     .dk = 6,
     .dv = 9,
     .segment = 8,
     .scale = 0.4f,
     .eps = 3,
     .write = LA_WRITE_DELTA},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

TEST(infini_follows_the_definition) {
    int n, i, isa;
    for (n = 0; n < SHAPES; n++) {
        Infini x;
        if (infini_new(&x, &shapes[n])) {
            infini_oracle(&x);
            for (i = 0; isa_number(i, &isa); i++) {
                infini_run(&x, isa, 1 + i);
                infini_check(&x, la_isa_name(isa), 3e-6);
            }
        }
        infini_free(&x);
    }
}

/* Calls of whole segments, the state in place, and any number of threads, change no bit. */
TEST(infini_streams_bitwise) {
    static const int64_t cuts[] = {0, 32, 64, 96};
    int n, c, i, isa;
    for (n = 0; n < 2; n++) {
        Shape shape = {.T = 107,
                       .H = 3,
                       .Hq = 6,
                       .dk = 17,
                       .dv = 20,
                       .segment = 32,
                       .write = n,
                       .wide_beta = 1};
        Infini x;
        infini_new(&x, &shape);
        for (i = 0; isa_number(i, &isa); i++) {
            size_t outs = out_floats(&x), states = state_floats(&x);
            float *out = malloc(outs * sizeof *out), *end = malloc(states * sizeof *end);
            infini_run(&x, isa, 1);
            memcpy(out, x.out, outs * sizeof *out);
            memcpy(end, x.end, states * sizeof *end);
            infini_run(&x, isa, 4);
            check_same("threads", x.out, out, outs);
            for (c = 0; c < 4; c++) {
                la_call whole = x.call, rest;
                whole.thread_count = 1;
                whole.thread_index = 0;
                whole.tokens = whole.keys = cuts[c];
                whole.workspace = malloc(whole.workspace_size);
                memset(x.out, 0xff, outs * sizeof *out);
                CHECK(la_infini_forward(&x.layer, &whole) == LA_OK, "first part");
                rest = whole;
                call_skip(&rest, cuts[c]);
                rest.tokens = rest.keys = shape.T - cuts[c];
                rest.state_in = x.end;
                CHECK(la_infini_forward(&x.layer, &rest) == LA_OK, "second part");
                check_same("parts", x.out, out, outs);
                check_same("their state", x.end, end, states);
                free(whole.workspace);
            }
            free(out);
            free(end);
        }
        infini_free(&x);
    }
}

/* Sequences in one token axis, states in a pool, and heads before tokens: the same bits. */
TEST(infini_serves) {
    enum { B = 3, T = 12, H = 2, DK = 6, DV = 9, STATES = H * DK * (DV + 1) };
    static const int64_t offsets[B + 1] = {0, 12, 12, 20}, slots_in[B] = {0, -1, 2};
    static const int64_t slots_out[B] = {1, 0, 3}, lengths[B] = {12, 0, 8};
    Shape shape = {.B = B,
                   .T = T,
                   .H = H,
                   .dk = DK,
                   .dv = DV,
                   .segment = 5,
                   .write = LA_WRITE_DELTA,
                   .ragged = 1};
    float *pool = guarded_new(4 * STATES, 1), out[B * T * H * DV], end[B * STATES];
    float *q = guarded_new(T * B * H * DK, 1), *bhtd = guarded_new(B * T * H * DV, 1);
    int i, isa, b, t, h;
    Infini x;
    infini_new(&x, &shape);
    memcpy(x.lengths, lengths, sizeof lengths);
    memset(x.start + STATES, 0, STATES * sizeof *x.start); /* slot -1: empty */
    for (i = 0; isa_number(i, &isa); i++) {
        infini_run(&x, isa, 1);
        memcpy(out, x.out, sizeof out);
        memcpy(end, x.end, sizeof end);
        x.call.state_out = pool;
        x.call.slots_in = slots_in;
        x.call.slots_out = slots_out;
        infini_run(&x, isa, 2);
        for (b = 0; b < B; b++) {
            check_same("pool", pool + slots_out[b] * STATES, end + b * STATES, STATES);
        }
        infini_views(&x);
        x.call.slots_in = x.call.slots_out = NULL;
        for (b = 0; b < B; b++) { /* heads before tokens */
            for (t = 0; t < T; t++) {
                for (h = 0; h < H; h++) {
                    memcpy(q + ((b * H + h) * T + t) * DK, x.q + ((b * T + t) * H + h) * DK,
                           DK * sizeof *q);
                }
            }
        }
        x.call.q = la_bhtd(q, T, H, DK);
        x.call.out = la_bhtd_out(bhtd, T, H, DV);
        infini_run(&x, isa, 1);
        for (t = 0; t < 8; t++) {
            check_same("heads first", bhtd + ((2 * H + 1) * T + t) * DV,
                       out + ((2 * T + t) * H + 1) * DV, DV);
        }
        infini_views(&x); /* the third sequence follows the first, the second has no tokens */
        x.call.lengths = NULL;
        x.call.offsets = offsets;
        x.call.tokens = x.call.keys = 20;
        memmove(x.q + T * H * DK, x.q + 2 * T * H * DK, 8 * H * DK * sizeof *q);
        memmove(x.k + T * H * DK, x.k + 2 * T * H * DK, 8 * H * DK * sizeof *q);
        memmove(x.v + T * H * DV, x.v + 2 * T * H * DV, 8 * H * DV * sizeof *q);
        infini_run(&x, isa, 3);
        check_same("packed", x.out, out, T * H * DV);
        check_same("packed", x.out + T * H * DV, out + 2 * T * H * DV, 8 * H * DV);
        check_same("states", x.end, end, B * STATES);
        x.call.offsets = NULL;
        x.call.tokens = x.call.keys = T;
        x.call.lengths = x.lengths;
    }
    guarded_free(pool);
    guarded_free(q);
    guarded_free(bhtd);
    infini_free(&x);
}

/* NaN reaches its own head, from its token on, or its segment where the softmax sees all of it. */
TEST(infini_faults_stay_local) {
    enum { T = 20, H = 3, DK = 6, DV = 9, SEGMENT = 8, BAD = 11, HEAD = 1 };
    int full, which, i, isa, t, h, j;
    for (full = 0; full < 2; full++) {
        Shape shape = {
            .T = T, .H = H, .dk = DK, .dv = DV, .segment = SEGMENT, .bidirectional = full};
        for (which = 0; which < 3; which++) {
            Infini x;
            infini_new(&x, &shape);
            for (i = 0; isa_number(i, &isa); i++) {
                float good[T * H * DV], *row;
                float was;
                infini_run(&x, isa, 1);
                memcpy(good, x.out, sizeof good);
                row = which == 0   ? x.q + (BAD * H + HEAD) * DK
                      : which == 1 ? x.k + (BAD * H + HEAD) * DK
                                   : x.v + (BAD * H + HEAD) * DV;
                was = row[2];
                row[2] = NAN;
                infini_run(&x, isa, 1);
                for (t = 0; t < T; t++) {
                    for (h = 0; h < H; h++) {
                        for (j = 0; j < DV; j++) {
                            int at = (t * H + h) * DV + j;
                            int from = full && which > 0 ? BAD / SEGMENT * SEGMENT : BAD;
                            int bad = h == HEAD && (which == 0   ? t == BAD
                                                    : which == 1 ? t >= from
                                                                 : t >= from && j == 2);
                            CHECK(bad ? isnan(x.out[at]) : x.out[at] == good[at],
                                  "%d of q, k, v: token %d head %d channel %d", which, t, h, j);
                        }
                    }
                }
                row[2] = was;
            }
            infini_free(&x);
        }
    }
}

/* ---------------------------------------------------------------- the peers */

static void golden_fill(const char *name, const char *array, float *to, size_t count) {
    npy_array data;
    size_t i;
    if (CHECK(read_array(name, "input", array, &data) && data.count > 0, "%s %s", name, array)) {
        for (i = 0; i < count; i++) {
            to[i] = npy_float(&data, i % data.count); /* a start is the same for every sequence */
        }
    }
    npy_free(&data);
}

/* from [B][H][dk][dv] or [B][H][dk] to the wanted state */
static void golden_state(Infini *x, const char *name, const char *kind, const char *array, int z) {
    const Shape *s = &x->shape;
    npy_array data;
    int64_t n, i, j;
    CHECK(read_array(name, kind, array, &data) && data.count > 0, "%s %s", name, array);
    for (n = 0; n < s->B * s->H; n++) {
        for (i = 0; i < s->dk; i++) {
            for (j = z ? s->dv : 0; j < s->dv + z; j++) {
                size_t at = (size_t)(z ? n * s->dk + i : (n * s->dk + i) * s->dv + j) % data.count;
                if (strcmp(kind, "input") == 0) {
                    x->start[state_at(x, n / s->H, n % s->H, i, j)] = npy_float(&data, at);
                } else {
                    x->want_end[n * s->dk * (s->dv + 1) + (z ? s->dk * s->dv + i : i * s->dv + j)] =
                        npy_double(&data, at);
                }
            }
        }
    }
    npy_free(&data);
}

static void golden_case(const char *name, int layout) {
    Shape s = {.layout = layout};
    Infini x;
    npy_array o;
    int64_t h, i;
    size_t n;
    int isa;
    s.B = (int64_t)case_number(name, "B", 0);
    s.T = (int64_t)case_number(name, "T", 0);
    s.H = (int64_t)case_number(name, "H", 0);
    s.dk = (int64_t)case_number(name, "dk", 0);
    s.dv = (int64_t)case_number(name, "dv", 0);
    s.segment = (int64_t)case_number(name, "segment", 0);
    s.write = case_says(name, "update", "delta") ? LA_WRITE_DELTA : LA_WRITE_ADD;
    s.bidirectional = case_says(name, "causal", "no");
    s.wide_beta = has(name, "beta") == 2;
    if (!infini_new(&x, &s)) {
        return;
    }
    golden_fill(name, "q", x.q, (size_t)(s.B * s.T * s.H * s.dk));
    golden_fill(name, "k", x.k, (size_t)(s.B * s.T * s.H * s.dk));
    golden_fill(name, "v", x.v, (size_t)(s.B * s.T * s.H * s.dv));
    golden_fill(name, "beta", x.beta, (size_t)(s.H * (s.wide_beta ? s.dv : 1)));
    memset(x.start, 0, (size_t)s.B * state_floats(&x) * sizeof *x.start);
    for (h = 0; h < s.B * s.H && case_says(name, "init", "default"); h++) {
        for (i = 0; i < s.dk; i++) {
            x.start[state_at(&x, h / s.H, h % s.H, i, s.dv)] = (float)(1 / (double)s.dk);
        }
    }
    if (has(name, "M0")) {
        golden_state(&x, name, "input", "M0", 0);
        golden_state(&x, name, "input", "z0", 1);
    }
    x.call.state_in = case_says(name, "init", "empty memory") ? NULL : x.start;
    golden_state(&x, name, "output", "MT", 0);
    golden_state(&x, name, "output", "zT", 1);
    CHECK(read_array(name, "output", "o", &o) && o.count == out_floats(&x), "%s: o", name);
    for (n = 0; n < o.count; n++) {
        x.want[n] = npy_double(&o, n);
    }
    for (i = 0; isa_number((int)i, &isa); i++) {
        infini_run(&x, isa, 1);
        infini_check(&x, name, 2e-6);
    }
    npy_free(&o);
    infini_free(&x);
}

TEST(infini_golden) {
    char name[] = "infini_01";
    for (; name[8] <= '6'; name[8]++) {
        golden_case(name, LA_KV);
        golden_case(name, LA_VK);
    }
}

/* The oracle itself, against the peers. */
TEST(infini_oracle_is_right) {
    char name[] = "infini_03";
    Shape s = {.B = 1,
               .T = 37,
               .H = 2,
               .dk = 16,
               .dv = 24,
               .segment = 16,
               .write = LA_WRITE_DELTA,
               .wide_beta = 1};
    Infini x;
    npy_array o;
    size_t n;
    infini_new(&x, &s);
    golden_fill(name, "q", x.q, (size_t)(s.T * s.H * s.dk));
    golden_fill(name, "k", x.k, (size_t)(s.T * s.H * s.dk));
    golden_fill(name, "v", x.v, (size_t)(s.T * s.H * s.dv));
    golden_fill(name, "beta", x.beta, (size_t)(s.H * s.dv));
    memset(x.start, 0, state_floats(&x) * sizeof *x.start);
    for (n = 0; n < 32; n++) {
        x.start[state_at(&x, 0, (int64_t)n / 16, (int64_t)n % 16, s.dv)] = 1.0f / 16;
    }
    infini_oracle(&x);
    CHECK(read_array(name, "output", "o", &o), "%s", name);
    for (n = 0; n < o.count; n++) {
        CHECK(fabs(npy_double(&o, n) - x.want[n]) < 1e-9, "%s[%d]: %g, want %g", name, (int)n,
              x.want[n], npy_double(&o, n));
    }
    npy_free(&o);
    infini_free(&x);
}

/* 1 - g of the softmax is what there is while the memory is empty, however little that is. */
TEST(infini_small_shares_are_kept) {
    static const float betas[] = {0, 9, 25, 60, -60};
    Shape s = {.T = 1, .H = 1, .dk = 2, .dv = 20, .segment = 4, .no_state = 1};
    Infini x;
    int i, j, n, isa;
    infini_new(&x, &s);
    for (n = 0; isa_number(n, &isa); n++) {
        for (j = 0; j < 5; j++) {
            x.beta[0] = betas[j];
            infini_run(&x, isa, 1);
            for (i = 0; i < 20; i++) {
                double want = (double)x.v[i] / (1 + exp((double)betas[j]));
                CHECK(fabs((double)x.out[i] - want) <= 1e-6 * fabs(want), "beta %g: %g, want %g",
                      (double)betas[j], (double)x.out[i], want);
            }
        }
    }
    infini_free(&x);
}

/* The document's worked example: what the memory says, alone. */
TEST(infini_worked_example) {
    static const float Q[16] = {1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1};
    static const double want[16] = {4, 2, 4, 2, 2, 4, 2, 4, 3, 3, 3, 3, 3, 3, 3, 3};
    Shape s = {.T = 4, .H = 1, .dk = 4, .dv = 4, .segment = 4};
    Infini x;
    int i, n, isa;
    infini_new(&x, &s);
    for (i = 0; i < 16; i++) {
        x.q[i] = Q[i];
        x.start[i] = (float)((i / 4 + i) % 2 == 0);
        x.want[i] = want[i] / 12;
    }
    for (i = 0; i < 4; i++) {
        x.start[16 + i] = 2;
    }
    x.beta[0] = 200; /* sigmoid 1 */
    for (n = 0; isa_number(n, &isa); n++) {
        infini_run(&x, isa, 1);
        check_close("A_global", x.out, x.want, 16, 1e-6);
    }
    infini_free(&x);
}

/* ---------------------------------------------------------------- bad input */

#define REFUSED(STATUS, FIELD, ...)                                                                \
    do {                                                                                           \
        la_infini layer = x.layer;                                                                 \
        la_call call = x.call;                                                                     \
        const char *field = NULL;                                                                  \
        __VA_ARGS__;                                                                               \
        CHECK(la_infini_check(&layer, &call, &field) == (STATUS), "%s: %d", #__VA_ARGS__,          \
              (int)la_infini_check(&layer, &call, NULL));                                          \
        CHECK(field != NULL && strcmp(field, FIELD) == 0, "%s: field %s", #__VA_ARGS__,            \
              field ? field : "(null)");                                                           \
        CHECK(la_infini_forward(&layer, &call) == (STATUS), "%s: forward", #__VA_ARGS__);          \
        CHECK(isnan(x.out[0]) && isnan(x.end[0]), "%s: something was written", #__VA_ARGS__);      \
    } while (0)

TEST(infini_bad_input) {
    Shape shape = {.B = 2, .T = 9, .H = 4, .dk = 5, .dv = 6, .segment = 4, .ragged = 1};
    float *workspace;
    Infini x;
    infini_new(&x, &shape);
    x.call.workspace_size = la_infini_workspace_size(&x.layer, &x.call);
    x.call.workspace = workspace = malloc(x.call.workspace_size);
    x.out[0] = x.end[0] = NAN;
    CHECK(la_infini_check(&x.layer, &x.call, NULL) == LA_OK, "a good call");
    REFUSED(LA_E_STRUCT, "infini.struct_size", layer.struct_size--);
    REFUSED(LA_E_STRUCT, "layer.struct_size", layer.memory.struct_size--);
    REFUSED(LA_E_VARIANT, "memory", layer.memory.feature = LA_FEATURE_IDENTITY);
    REFUSED(LA_E_VARIANT, "memory", layer.memory.normalised = 0);
    REFUSED(LA_E_VARIANT, "memory", layer.memory.bidirectional = 1);
    REFUSED(LA_E_SIZE, "dim_k", layer.memory.dim_k = 0);
    REFUSED(LA_E_HEADS, "k_heads", layer.memory.k_heads = 3);
    REFUSED(LA_E_SIZE, "segment", layer.segment = 0);
    REFUSED(LA_E_SIZE, "segment", layer.segment = INT64_MAX);
    REFUSED(LA_E_VARIANT, "write", layer.write = 2);
    REFUSED(LA_E_VALUE, "bidirectional", layer.bidirectional = 2);
    REFUSED(LA_E_VALUE, "scale", layer.scale = NAN);
    REFUSED(LA_E_STRUCT, "call.struct_size", call.struct_size = 0);
    REFUSED(LA_E_FORM, "form", call.form = LA_RECURRENT);
    REFUSED(LA_E_FORM, "form", call.form = 9);
    REFUSED(LA_E_ISA, "isa", call.isa = 77);
    REFUSED(LA_E_THREADS, "thread_index", call.thread_index = 1);
    REFUSED(LA_E_SIZE, "tokens", call.tokens = -1);
    REFUSED(LA_E_SIZE, "keys", call.keys = 8);
    REFUSED(LA_E_UNSUPPORTED, "log_decay", call.log_decay = la_per_head(x.beta));
    REFUSED(LA_E_UNSUPPORTED, "skip", call.skip = la_per_head(x.beta));
    REFUSED(LA_E_UNSUPPORTED, "out_gate", call.out_gate = call.v);
    REFUSED(LA_E_UNSUPPORTED, "bonus", call.bonus = call.k);
    REFUSED(LA_E_NULL, "beta", call.beta.data = NULL);
    REFUSED(LA_E_SHAPE, "beta.width", call.beta.width = 2);
    REFUSED(LA_E_NULL, "q", call.q.data = NULL);
    REFUSED(LA_E_SHAPE, "v.width", call.v.width = 5);
    REFUSED(LA_E_OVERFLOW, "k", call.k.token_stride = INT64_MAX / 2);
    REFUSED(LA_E_OVERLAP, "out", call.out.token_stride = 1);
    REFUSED(LA_E_OVERLAP, "out", call.out.data = x.v);
    REFUSED(LA_E_OVERLAP, "state_out", call.state_out = x.k);
    REFUSED(LA_E_SIZE, "lengths", x.lengths[1] = 10);
    x.lengths[1] = 3;
    REFUSED(LA_E_NULL, "workspace", call.workspace = NULL);
    REFUSED(LA_E_WORKSPACE, "workspace_size", call.workspace_size--);
    REFUSED(LA_E_OVERLAP, "workspace", call.workspace = x.q);
    CHECK(la_infini_check(NULL, &x.call, NULL) == LA_E_NULL, "no layer");
    CHECK(la_infini_check(&x.layer, NULL, NULL) == LA_E_NULL, "no call");
    CHECK(la_infini_workspace_size(NULL, &x.call) == 0, "no layer");
    CHECK(la_infini_init(NULL, 1, 1, 1, 1) == LA_E_NULL, "init");
    CHECK(la_infini_init(&x.layer, 1, 1, 1, 0) == LA_E_SIZE, "segment 0");
    CHECK(la_infini_check(&x.layer, &x.call, NULL) == LA_E_STRUCT, "after a failed init");
    CHECK(la_infini_init(&x.layer, 0, 1, 1, 4) == LA_E_SIZE, "heads 0");
    free(workspace);
    infini_free(&x);
}
