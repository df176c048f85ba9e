/* Linformer and Synthesizer (LA_EXTRAS) against their definitions in float64, the peers' outputs
   and the documents' examples. */
#define LA_EXTRAS
#include "golden.h"
#include "oracle.h"

#include <math.h>

enum { LINFORMER = -1, MOST_BATCH = 4, MOST_KEYS = 512 };

/* 0 stands for the usual value: B = 1, S = T, Hkv = H, L = S */
typedef struct Shape {
    int kind; /* LINFORMER, or the Synthesizer's */
    int64_t B, T, S, H, Hkv, dk, dv, L, rank1, rank2;
    int causal, shared, per_head, no_bias, ragged, lse, head_map;
} Shape;

typedef struct Layer {
    Shape shape;
    la_linformer linformer;
    la_synthesizer synthesizer;
    la_attention_call call;
    float *q, *k, *v, *w1, *b1, *w2, *b2, *out, *lse; /* guarded; E and F are w1 and w2 */
    int64_t lengths[MOST_BATCH], key_lengths[MOST_BATCH];
    double *want, *want_lse;
} Layer;

static int is_dense(const Shape *s) {
    return s->kind == LA_DENSE || s->kind == LA_FACTORISED_DENSE;
}

/* rows and width of w1 and w2 */
static void weight_sizes(const Shape *s, int64_t size[4]) {
    int64_t of[5][4] = {{s->L, s->rank1, s->L, s->rank1},
                        {s->rank1, s->dk, s->L, s->rank1},
                        {s->rank1, s->dk, s->rank2, s->dk},
                        {s->L, s->L, 0, 0},
                        {s->L, s->rank1, s->L, s->rank1}};
    memcpy(size, of[s->kind + 1], sizeof of[0]);
}

static la_in weights(const Layer *x, const float *data, int64_t rows, int64_t width) {
    la_in view = la_matrix(data, width);
    view.head_stride = x->shape.per_head ? rows * width : 0;
    return view;
}

static la_status layer_init(Layer *x) {
    const Shape *s = &x->shape;
    int64_t size[4];
    la_status status;
    weight_sizes(s, size);
    if (s->kind == LINFORMER) {
        status = la_linformer_init(&x->linformer, s->H, s->dk, s->dv, s->L, s->rank1);
        x->linformer.attention.kv_heads = s->Hkv;
        x->linformer.attention.head_map = s->head_map;
        x->linformer.E = weights(x, x->w1, size[0], size[1]);
        if (!s->shared) {
            x->linformer.F = weights(x, x->w2, size[2], size[3]);
        }
        return status;
    }
    status = la_synthesizer_init(&x->synthesizer, s->kind, s->H, is_dense(s) ? s->dk : 0, s->dv,
                                 s->L, s->rank1, s->rank2);
    x->synthesizer.attention.bidirectional = !s->causal;
    x->synthesizer.w1 = weights(x, x->w1, size[0], size[1]);
    x->synthesizer.w2 = weights(x, x->w2, size[2], size[3]);
    if (!s->no_bias) { /* rows of their own for each head, or one */
        x->synthesizer.b1 = la_matrix(x->b1, size[0]);
        x->synthesizer.b2 = la_matrix(x->b2, size[2]);
        x->synthesizer.b1.head_stride = s->per_head ? size[0] : 0;
        x->synthesizer.b2.head_stride = s->per_head ? size[2] : 0;
    }
    return status;
}

static void layer_call(Layer *x) {
    const Shape *s = &x->shape;
    const la_attention *a =
        s->kind == LINFORMER ? &x->linformer.attention : &x->synthesizer.attention;
    la_status status = la_attention_call_init(&x->call, a, s->B, s->T);
    CHECK(status == LA_OK, "%s", la_status_text(status));
    x->call.keys = s->S;
    x->call.v = la_bthd(x->v, s->S, s->Hkv, s->dv);
    x->call.out = la_bthd_out(x->out, s->T, s->H, s->dv);
    if (s->kind == LINFORMER || is_dense(s)) {
        x->call.q = la_bthd(x->q, s->T, s->H, s->dk);
    }
    if (s->kind == LINFORMER) {
        x->call.k = la_bthd(x->k, s->S, s->Hkv, s->dk);
    }
    if (s->lse) {
        x->call.lse = la_bthd_out(x->lse, s->T, s->H, 1);
    }
    x->call.lengths = s->ragged ? x->lengths : NULL;
    x->call.key_lengths = s->ragged && s->kind == LINFORMER ? x->key_lengths : NULL;
}

static void layer_new(Layer *x, const Shape *shape) {
    Shape *s = &x->shape;
    int64_t size[4], b;
    size_t heads, rows;
    memset(x, 0, sizeof *x);
    *s = *shape;
    s->B = s->B ? s->B : 1;
    s->S = s->S ? s->S : s->T;
    s->Hkv = s->Hkv ? s->Hkv : s->H;
    s->L = s->L ? s->L : s->S;
    heads = (size_t)(s->per_head ? s->H : 1);
    rows = (size_t)(s->B * s->T * s->H);
    weight_sizes(s, size);
    x->q = guarded_random(rows * (size_t)s->dk, 3, -1, 1);
    x->k = guarded_random((size_t)(s->B * s->S * s->Hkv * s->dk), 3, -1, 1);
    x->v = guarded_random((size_t)(s->B * s->S * s->Hkv * s->dv), 3, -1, 1);
    x->w1 = guarded_random(heads * (size_t)(size[0] * size[1]), 3, -1, 1);
    x->w2 = guarded_random(heads * (size_t)(size[2] * size[3]), 3, -1, 1);
    x->b1 = guarded_random(heads * (size_t)size[0], 3, -1, 1);
    x->b2 = guarded_random(heads * (size_t)size[2], 3, -1, 1);
    x->out = guarded_new(rows * (size_t)s->dv, 1);
    x->lse = guarded_new(rows, 1);
    x->want = calloc(rows * (size_t)s->dv + 1, sizeof(double));
    x->want_lse = calloc(rows + 1, sizeof(double));
    for (b = 0; b < s->B; b++) {
        x->lengths[b] = random_below((int)s->T + 1);
        x->key_lengths[b] = random_below((int)s->S + 1);
    }
    CHECK(layer_init(x) == LA_OK, "kind %d", s->kind);
    layer_call(x);
}

static void layer_free(Layer *x) {
    guarded_free(x->q);
    guarded_free(x->k);
    guarded_free(x->v);
    guarded_free(x->w1);
    guarded_free(x->w2);
    guarded_free(x->b1);
    guarded_free(x->b2);
    guarded_free(x->out);
    guarded_free(x->lse);
    free(x->want);
    free(x->want_lse);
}

/* ---------------------------------------------------------------- the definitions */

static double weight(const Layer *x, const float *w, int64_t head, int64_t row, int64_t column,
                     int second) {
    int64_t size[4];
    weight_sizes(&x->shape, size);
    head = x->shape.per_head ? head : 0;
    return (double)w[(head * size[2 * second] + row) * size[2 * second + 1] + column];
}

/* one number of W x + b for the first or the second layer */
static double affine(const Layer *x, int second, int64_t head, const float *input, int64_t row) {
    int64_t size[4], i;
    const float *bias = second ? x->b2 : x->b1;
    double sum;
    weight_sizes(&x->shape, size);
    sum = x->shape.no_bias ? 0
                           : (double)bias[(x->shape.per_head ? head : 0) * size[2 * second] + row];
    for (i = 0; i < x->shape.dk; i++) {
        sum += weight(x, second ? x->w2 : x->w1, head, row, i, second) * (double)input[i];
    }
    return sum;
}

/* the logit of key s for the token that is the layer's token t */
static double synthesized(const Layer *x, int64_t head, const float *input, int64_t t, int64_t s) {
    const Shape *shape = &x->shape;
    double sum = 0;
    int64_t i;
    switch (shape->kind) {
    case LA_DENSE:
        for (i = 0; i < shape->rank1; i++) {
            sum += weight(x, x->w2, head, s, i, 1) * fmax(0, affine(x, 0, head, input, i));
        }
        return sum +
               (shape->no_bias ? 0 : (double)x->b2[(shape->per_head ? head * shape->L : 0) + s]);
    case LA_FACTORISED_DENSE:
        return affine(x, 0, head, input, s % shape->rank1) *
               affine(x, 1, head, input, s % shape->rank2);
    case LA_RANDOM: return weight(x, x->w1, head, t, s, 0);
    default:
        for (i = 0; i < shape->rank1; i++) {
            sum += weight(x, x->w1, head, t, i, 0) * weight(x, x->w2, head, s, i, 1);
        }
        return sum;
    }
}

/* sum over the keys of row j of E^T or F^T, times a channel of k or v */
static double compressed(const Layer *x, const float *w, const la_in *view, int64_t b, int64_t kv,
                         int64_t keys, int64_t j, int64_t channel) {
    double sum = 0;
    int64_t s;
    for (s = 0; s < keys; s++) {
        sum += weight(x, w, kv, s, j, 0) * (double)view_row(view, b, s, kv)[channel];
    }
    return sum;
}

static int64_t tokens_of(const Layer *x, int64_t b) {
    return x->shape.ragged ? x->lengths[b] : x->shape.T;
}

static int64_t keys_of(const Layer *x, int64_t b) {
    if (x->call.key_lengths != NULL) {
        return x->key_lengths[b];
    }
    return x->shape.kind == LINFORMER ? x->shape.S : x->shape.S - (x->shape.T - tokens_of(x, b));
}

/* logits of one query, then softmax over `rows` rows of values */
static void want_softmax(Layer *x, const double *logits, const double *values, int64_t rows,
                         int64_t at) {
    int64_t s, j;
    double most = -HUGE_VAL, sum = 0;
    for (s = 0; s < rows; s++) {
        most = fmax(most, logits[s]);
    }
    for (s = 0; s < rows; s++) {
        sum += exp(logits[s] - most);
    }
    for (s = 0; s < rows; s++) {
        for (j = 0; j < x->shape.dv; j++) {
            x->want[at * x->shape.dv + j] +=
                exp(logits[s] - most) / sum * values[s * x->shape.dv + j];
        }
    }
    x->want_lse[at] = sum > 0 ? most + log(sum) : -HUGE_VAL;
}

static void want_synthesizer(Layer *x, int64_t b, int64_t t, int64_t h, double *logits,
                             double *values) {
    const Shape *s = &x->shape;
    int64_t keys = keys_of(x, b), position = keys - tokens_of(x, b) + t, i, j;
    int64_t seen = s->causal ? position + 1 : keys;
    const float *input = is_dense(s) ? view_row(&x->call.q, b, t, h) : NULL;
    for (i = 0; i < seen; i++) {
        logits[i] = synthesized(x, h, input, position, i);
        for (j = 0; j < s->dv; j++) {
            values[i * s->dv + j] = (double)view_row(&x->call.v, b, i, h)[j];
        }
    }
    want_softmax(x, logits, values, seen, (b * s->T + t) * s->H + h);
}

static void want_linformer(Layer *x, int64_t b, int64_t t, int64_t h, double *logits,
                           double *values) {
    const Shape *s = &x->shape;
    int64_t kv = s->head_map == LA_TILED ? h % s->Hkv : h * s->Hkv / s->H, i, j;
    int64_t keys = keys_of(x, b);
    for (i = 0; i < s->rank1; i++) {
        logits[i] = 0;
        for (j = 0; j < s->dk; j++) {
            logits[i] += (double)x->linformer.attention.scale *
                         (double)view_row(&x->call.q, b, t, h)[j] *
                         compressed(x, x->w1, &x->call.k, b, kv, keys, i, j);
        }
        for (j = 0; j < s->dv; j++) {
            values[i * s->dv + j] =
                compressed(x, s->shared ? x->w1 : x->w2, &x->call.v, b, kv, keys, i, j);
        }
    }
    want_softmax(x, logits, values, s->rank1, (b * s->T + t) * s->H + h);
}

static void layer_oracle(Layer *x) {
    const Shape *s = &x->shape;
    double *logits = malloc(MOST_KEYS * sizeof *logits);
    double *values = malloc((size_t)(MOST_KEYS * s->dv) * sizeof *values);
    int64_t b, t, h;
    memset(x->want, 0, (size_t)(s->B * s->T * s->H * s->dv) * sizeof *x->want);
    for (b = 0; b < s->B; b++) {
        for (t = 0; t < tokens_of(x, b); t++) {
            for (h = 0; h < s->H; h++) {
                (s->kind == LINFORMER ? want_linformer : want_synthesizer)(x, b, t, h, logits,
                                                                           values);
            }
        }
    }
    free(logits);
    free(values);
}

/* ---------------------------------------------------------------- running */

static la_status layer_check(Layer *x, const char **field) {
    return x->shape.kind == LINFORMER ? la_linformer_check(&x->linformer, &x->call, field)
                                      : la_synthesizer_check(&x->synthesizer, &x->call, field);
}
static size_t layer_workspace(Layer *x) {
    return x->shape.kind == LINFORMER ? la_linformer_workspace_size(&x->linformer, &x->call)
                                      : la_synthesizer_workspace_size(&x->synthesizer, &x->call);
}
static la_status layer_forward(Layer *x) {
    return x->shape.kind == LINFORMER ? la_linformer_forward(&x->linformer, &x->call)
                                      : la_synthesizer_forward(&x->synthesizer, &x->call);
}

static void layer_run(Layer *x, int isa, int64_t threads) {
    size_t i, rows = (size_t)(x->shape.B * x->shape.T * x->shape.H);
    for (i = 0; i < rows * (size_t)x->shape.dv; i++) {
        x->out[i] = NAN;
    }
    for (i = 0; i < rows; i++) {
        x->lse[i] = NAN;
    }
    x->call.isa = isa;
    x->call.thread_count = threads;
    x->call.workspace_size = layer_workspace(x);
    for (x->call.thread_index = 0; x->call.thread_index < threads; x->call.thread_index++) {
        float *workspace = guarded_new(x->call.workspace_size / 4 + 1, 2);
        const char *field = "";
        la_status status;
        x->call.workspace = workspace;
        status = layer_check(x, &field);
        CHECK(status == LA_OK, "%s: %s", la_status_text(status), field ? field : "");
        CHECK(layer_forward(x) == status, "forward");
        guarded_free(workspace);
    }
    x->call.thread_index = 0;
}

static void layer_compare(const Layer *x, const char *name, double tolerance) {
    const Shape *s = &x->shape;
    int64_t row, j;
    double worst = 0;
    for (row = 0; row < s->B * s->T * s->H; row++) {
        int64_t b = row / (s->T * s->H), t = row / s->H % s->T;
        for (j = 0; j < s->dv; j++) {
            double got = (double)x->out[row * s->dv + j], want = x->want[row * s->dv + j];
            if (t >= tokens_of(x, b)) {
                CHECK(isnan(got), "%s: a row beyond the length was written", name);
            } else if (!(fabs(got - want) / (1 + fabs(want)) <= worst)) {
                worst = fabs(got - want) / (1 + fabs(want));
            }
        }
        if (s->lse && t < tokens_of(x, b) && isfinite(x->want_lse[row])) {
            CHECK(fabs((double)x->lse[row] - x->want_lse[row]) < 1e-5, "%s: lse", name);
        }
    }
    CHECK(worst <= tolerance, "%s kind %d T%d S%d %dx%d: off by %g", name, s->kind, (int)s->T,
          (int)s->S, (int)s->dk, (int)s->dv, worst);
}

static const Shape shapes[] = {
    {.kind = LINFORMER, .T = 1, .H = 1, .dk = 1, .dv = 1, .rank1 = 1},
    {.kind = LINFORMER, .B = 2, .T = 20, .S = 37, .H = 3, .dk = 20, .dv = 12, .rank1 = 7},
    {.kind = LINFORMER,
     .T = 130,
     .H = 4,
     .Hkv = 2,
     .dk = 17,
     .dv = 33,
     .rank1 = 16,
     .shared = 1,
     .lse = 1},
    {.kind = LINFORMER,
     .B = 3,
     .T = 11,
     .S = 90,
     .L = 100,
     .H = 4,
     .Hkv = 2,
     .dk = 8,
     .dv = 40,
     .rank1 = 13,
     .per_head = 1,
     .ragged = 1,
     .head_map = LA_TILED},
    {.kind = LINFORMER, .B = 2, .T = 0, .H = 2, .dk = 4, .dv = 4, .rank1 = 3, .L = 5},
    {.kind = LA_DENSE, .T = 1, .H = 1, .dk = 1, .dv = 1, .rank1 = 1},
    {.kind = LA_DENSE, .B = 2, .T = 37, .H = 3, .dk = 12, .dv = 20, .L = 50, .rank1 = 18, .lse = 1},
    {.kind = LA_DENSE,
     .B = 3,
     .T = 230,
     .H = 2,
     .dk = 33,
     .dv = 16,
     .rank1 = 5,
     .causal = 1,
     .per_head = 1,
     .ragged = 1},
    {.kind = LA_DENSE,
     .T = 3,
     .S = 40,
     .L = 64,
     .H = 2,
     .dk = 7,
     .dv = 9,
     .rank1 = 6,
     .causal = 1,
     .no_bias = 1},
    {.kind = LA_FACTORISED_DENSE,
     .B = 2,
     .T = 36,
     .H = 3,
     .dk = 12,
     .dv = 20,
     .L = 40,
     .rank1 = 5,
     .rank2 = 8,
     .lse = 1},
    {.kind = LA_FACTORISED_DENSE,
     .B = 3,
     .T = 130,
     .H = 2,
     .dk = 9,
     .dv = 17,
     .rank1 = 13,
     .rank2 = 10,
     .causal = 1,
     .ragged = 1,
     .per_head = 1,
     .no_bias = 1},
    {.kind = LA_RANDOM, .B = 2, .T = 33, .H = 3, .dv = 12, .L = 37, .per_head = 1, .lse = 1},
    {.kind = LA_RANDOM, .B = 3, .T = 120, .H = 2, .dv = 19, .causal = 1, .ragged = 1},
    {.kind = LA_RANDOM, .T = 4, .S = 50, .L = 51, .H = 2, .dv = 8, .causal = 1},
    {.kind = LA_FACTORISED_RANDOM,
     .B = 2,
     .T = 33,
     .H = 3,
     .dv = 12,
     .L = 37,
     .rank1 = 4,
     .per_head = 1},
    {.kind = LA_FACTORISED_RANDOM,
     .B = 3,
     .T = 120,
     .H = 2,
     .dv = 19,
     .rank1 = 17,
     .causal = 1,
     .ragged = 1,
     .lse = 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Also with threads, which change no bit. */
TEST(synthesizer_and_linformer_follow_their_definitions) {
    int n, i, isa;
    for (n = 0; n < SHAPES; n++) {
        Layer x;
        layer_new(&x, &shapes[n]);
        layer_oracle(&x);
        for (i = 0; isa_number(i, &isa); i++) {
            size_t count = (size_t)(x.shape.B * x.shape.T * x.shape.H * x.shape.dv);
            float *out = malloc(count * sizeof *out + 1);
            layer_run(&x, isa, 1);
            layer_compare(&x, la_isa_name(isa), 4e-6);
            memcpy(out, x.out, count * sizeof *out);
            layer_run(&x, isa, 3);
            if (count > 0) {
                check_same("threads", x.out, out, count);
            }
            free(out);
        }
        layer_free(&x);
    }
}

/* A NaN in x is its token's, one in v that of all tokens which see it; masked weights do not let it
   through. */
TEST(synthesizer_faults_stay_local) {
    enum { T = 20, H = 2, BAD = 7, HEAD = 1, DX = 6, DV = 5 };
    int kind, causal, which, t, h, j, i, isa;
    for (kind = 0; kind < 8; kind++) {
        Shape s = {.kind = kind / 2, .T = T, .H = H, .dk = DX, .dv = DV, .rank1 = 4};
        Layer x;
        s.causal = causal = kind % 2;
        s.rank1 = s.kind == LA_RANDOM ? 0 : 4;
        s.rank2 = s.kind == LA_FACTORISED_DENSE ? 5 : 0;
        layer_new(&x, &s);
        for (which = 0; which < 2; which++) {
            for (i = 0; isa_number(i, &isa); i++) {
                float good[T * H * DV];
                float *bad = which ? x.v + (BAD * H + HEAD) * DV + 2 : x.q + (BAD * H + HEAD) * DX;
                float was = *bad;
                layer_run(&x, isa, 1);
                memcpy(good, x.out, sizeof good);
                *bad = NAN;
                layer_run(&x, isa, 1);
                for (t = 0; t < T; t++) {
                    for (h = 0; h < H; h++) {
                        for (j = 0; j < DV; j++) {
                            int at = (t * H + h) * DV + j;
                            int hit = h == HEAD && (which ? j == 2 && (!causal || t >= BAD)
                                                          : is_dense(&s) && t == BAD);
                            CHECK(hit ? isnan(x.out[at]) : x.out[at] == good[at],
                                  "kind %d: token %d head %d channel %d", s.kind, t, h, j);
                        }
                    }
                }
                *bad = was;
            }
        }
        layer_free(&x);
    }
}

/* A NaN in a query is its token's; in a key or a value, that of all tokens of its head. */
TEST(linformer_faults_stay_local) {
    enum { T = 12, H = 2, BAD = 7, HEAD = 1, D = 6 };
    Shape s = {.kind = LINFORMER, .T = T, .H = H, .dk = D, .dv = D, .rank1 = 4};
    int which, t, h, j, i, isa;
    Layer x;
    layer_new(&x, &s);
    for (which = 0; which < 3; which++) {
        for (i = 0; isa_number(i, &isa); i++) {
            float good[T * H * D];
            float *bad = (which == 0 ? x.q : which == 1 ? x.k : x.v) + (BAD * H + HEAD) * D + 3;
            float was = *bad;
            layer_run(&x, isa, 1);
            memcpy(good, x.out, sizeof good);
            *bad = NAN;
            layer_run(&x, isa, 1);
            for (t = 0; t < T; t++) {
                for (h = 0; h < H; h++) {
                    for (j = 0; j < D; j++) {
                        int at = (t * H + h) * D + j;
                        int hit = h == HEAD && (which > 0 || t == BAD) && (which < 2 || j == 3);
                        CHECK(hit ? isnan(x.out[at]) : x.out[at] == good[at],
                              "%d of q, k, v: token %d head %d channel %d", which, t, h, j);
                    }
                }
            }
            *bad = was;
        }
    }
    layer_free(&x);
}

/* ---------------------------------------------------------------- the peers */

static void golden_fill(const char *name, const char *array, float *to) {
    npy_array data;
    size_t i;
    if (CHECK(read_array(name, "input", array, &data), "%s has no %s", name, array)) {
        for (i = 0; i < data.count; i++) {
            to[i] = npy_float(&data, i);
        }
    }
    npy_free(&data);
}

/* R2 is [H][k][L] there, [H][L][k] as in the paper here. */
static void golden_transposed(const char *name, const Shape *s, float *to) {
    npy_array data;
    int64_t h, i, j;
    CHECK(read_array(name, "input", "R2", &data), "%s", name);
    for (h = 0; h < s->H; h++) {
        for (i = 0; i < s->L; i++) {
            for (j = 0; j < s->rank1; j++) {
                to[(h * s->L + i) * s->rank1 + j] =
                    npy_float(&data, (size_t)((h * s->rank1 + j) * s->L + i));
            }
        }
    }
    npy_free(&data);
}

/* v = Wv x + bv, which is the caller's to make */
static void golden_values(const char *name, const Shape *s, float *v) {
    npy_array x, W, b;
    int64_t row, i, j;
    CHECK(read_array(name, "input", "x", &x) && read_array(name, "input", "Wv", &W) &&
              read_array(name, "input", "bv", &b),
          "%s", name);
    for (row = 0; row < s->B * s->T; row++) {
        for (i = 0; i < s->dv; i++) {
            double sum = npy_double(&b, (size_t)i);
            for (j = 0; j < s->dk; j++) {
                sum += npy_double(&W, (size_t)(i * s->dk + j)) *
                       npy_double(&x, (size_t)(row * s->dk + j));
            }
            v[row * s->dv + i] = (float)sum;
        }
    }
    npy_free(&x);
    npy_free(&W);
    npy_free(&b);
}

static Shape golden_shape(const char *name, int kind) {
    Shape s = {.kind = kind};
    s.B = (int64_t)case_number(name, "B", 0);
    s.T = (int64_t)case_number(name, "T", 0);
    s.S = (int64_t)case_number(name, "S", (double)s.T);
    s.H = (int64_t)case_number(name, "H", 0);
    s.Hkv = (int64_t)case_number(name, "HV", 0);
    s.dk = (int64_t)case_number(name, "dk", 0);
    s.dv = (int64_t)case_number(name, "dv", 0);
    s.L = (int64_t)case_number(name, "L", (double)s.S);
    s.rank1 = (int64_t)case_number(name, "k_proj", case_number(name, "hidden", 0));
    s.rank1 += (int64_t)(case_number(name, "a", 0) + case_number(name, "rank", 0));
    s.rank2 = (int64_t)case_number(name, "b", 0);
    s.causal = case_says(name, "causal", "yes");
    s.shared = case_says(name, "share_kv", "yes");
    s.per_head = kind == LA_RANDOM || kind == LA_FACTORISED_RANDOM;
    return s;
}

static void golden_case(const char *name, int kind) {
    Shape s = golden_shape(name, kind);
    Layer x;
    npy_array o;
    int i, isa;
    layer_new(&x, &s);
    if (kind == LINFORMER) {
        golden_fill(name, "q", x.q);
        golden_fill(name, "k", x.k);
        golden_fill(name, "E", x.w1);
        if (!s.shared) {
            golden_fill(name, "F", x.w2);
        }
        CHECK(fabs((double)x.linformer.attention.scale - case_number(name, "scale", 0)) < 1e-7,
              "%s: scale", name);
    } else if (is_dense(&s)) {
        golden_fill(name, "x", x.q);
        golden_fill(name, kind == LA_DENSE ? "W1" : "Wa", x.w1);
        golden_fill(name, kind == LA_DENSE ? "b1" : "ba", x.b1);
        golden_fill(name, kind == LA_DENSE ? "W2" : "Wb", x.w2);
        golden_fill(name, kind == LA_DENSE ? "b2" : "bb", x.b2);
    } else {
        golden_fill(name, kind == LA_RANDOM ? "R" : "R1", x.w1);
    }
    if (kind == LA_FACTORISED_RANDOM) {
        golden_transposed(name, &s, x.w2);
    }
    if (kind == LA_FACTORISED_DENSE) {
        golden_values(name, &s, x.v);
    } else {
        golden_fill(name, "v", x.v);
    }
    CHECK(read_array(name, "output", "o", &o) && o.count == (size_t)(s.B * s.T * s.H * s.dv),
          "%s: o", name);
    layer_oracle(&x);
    for (i = 0; i < (int)o.count; i++) { /* values were rounded on the way */
        double tolerance = kind == LA_FACTORISED_DENSE ? 1e-6 : 1e-7;
        CHECK(fabs(x.want[i] - npy_double(&o, (size_t)i)) < tolerance, "%s: the oracle", name);
        x.want[i] = npy_double(&o, (size_t)i);
    }
    for (i = 0; isa_number(i, &isa); i++) {
        layer_run(&x, isa, 1);
        layer_compare(&x, name, 2e-6);
    }
    npy_free(&o);
    layer_free(&x);
}

TEST(synthesizer_golden) {
    golden_case("synthesizer_dense_01", LA_DENSE);
    golden_case("synthesizer_dense_02", LA_DENSE);
    golden_case("synthesizer_factorised_dense_01", LA_FACTORISED_DENSE);
    golden_case("synthesizer_factorised_dense_02", LA_FACTORISED_DENSE);
    golden_case("synthesizer_random_01", LA_RANDOM);
    golden_case("synthesizer_random_02", LA_RANDOM);
    golden_case("synthesizer_factorised_random_01", LA_FACTORISED_RANDOM);
    golden_case("synthesizer_factorised_random_02", LA_FACTORISED_RANDOM);
}

TEST(linformer_golden) {
    golden_case("linformer_01", LINFORMER);
    golden_case("linformer_02", LINFORMER);
    golden_case("linformer_03", LINFORMER);
    golden_case("linformer_04", LINFORMER);
}

/* The documents' worked examples; of the Synthesizer they print weights: V is the identity. */
TEST(linformer_worked_example) {
    static const float Q[16] = {1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1};
    static const float K[16] = {2, 1, 0, 0, 0, 1, 1, 0, 0, 0, 2, 1, 1, 0, 0, 2};
    static const float V[16] = {1, 2, 0, 1, 0, 1, 3, 0, 2, 0, 1, 1, 0, 1, 0, 2};
    static const float E[8] = {1, 0, 1, 0, 0, 1, 0, 1};
    static const double want[16] = {1.5,    2,      2,      2,      1.6225, 1.7551, 1.7551, 2.2449,
                                    1.1824, 2.6351, 2.6351, 1.3649, 1.8808, 1.2384, 1.2384, 2.7616};
    Shape s = {.kind = LINFORMER, .T = 4, .H = 1, .dk = 4, .dv = 4, .rank1 = 2, .shared = 1};
    Layer x;
    layer_new(&x, &s);
    memcpy(x.q, Q, sizeof Q);
    memcpy(x.k, K, sizeof K);
    memcpy(x.v, V, sizeof V);
    memcpy(x.w1, E, sizeof E);
    layer_run(&x, LA_ISA_AUTO, 1);
    check_close("Linformer", x.out, want, 16, 5e-5);
    layer_free(&x);
}

TEST(synthesizer_worked_example) {
    static const float X[16] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1};
    static const float W1[16] = {1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1};
    static const float W2[16] = {1, 0, 1, 0, 0, 2, 0, 0, 1, 1, 0, 0, 0, 0, 1, 2};
    static const float R[16] = {3, 1, 1, 1, 1, 2, 1, 1, 0, 1, 3, 1, 1, 1, 1, 4};
    static const double dense[4] = {0.6103, 0.0826, 0.2245, 0.0826};
    static const double first[4] = {0.7112, 0.0963, 0.0963, 0.0963};
    static const double last[4] = {0.0433, 0.0433, 0.0433, 0.8700};
    int kind, i;
    for (kind = LA_DENSE; kind <= LA_RANDOM; kind += LA_RANDOM - LA_DENSE) {
        Shape s = {.kind = kind, .T = 4, .H = 1, .dk = 4, .dv = 4, .no_bias = 1};
        Layer x;
        s.rank1 = kind == LA_DENSE ? 4 : 0;
        layer_new(&x, &s);
        for (i = 0; i < 16; i++) { /* the document multiplies from the right */
            x.q[i] = X[i];
            x.v[i] = (float)(i / 4 == i % 4);
            x.w1[i] = kind == LA_DENSE ? W1[i % 4 * 4 + i / 4] : R[i];
        }
        for (i = 0; i < 16 && kind == LA_DENSE; i++) {
            x.w2[i] = W2[i % 4 * 4 + i / 4];
        }
        layer_run(&x, LA_ISA_AUTO, 1);
        check_close("row 1", x.out, kind == LA_DENSE ? dense : first, 4, 1e-4);
        if (kind == LA_RANDOM) {
            check_close("row 4", x.out + 12, last, 4, 1e-4);
        }
        layer_free(&x);
    }
}

/* Random logits are logits that are given: with them the attention of the layer does the same, in
   either direction, with windows and as sigmoid attention. Its scale is not used. */
TEST(synthesizer_random_is_attention_with_logits) {
    enum { B = 2, T = 9, S = 12, L = 15, H = 3, DV = 7 };
    Shape shape = {.kind = LA_RANDOM, .B = B, .T = T, .S = S, .L = L, .H = H, .dk = 1, .dv = DV};
    static double workspace[1 << 16], given[B * T * H * DV];
    int n, i, j, isa;
    Layer x;
    layer_new(&x, &shape);
    for (n = 0; isa_number(n, &isa); n++) {
        for (i = 0; i < 8; i++) {
            la_attention *layer = &x.synthesizer.attention;
            la_attention_call call;
            layer->kind = i % 2 ? LA_SIGMOID : LA_SOFTMAX;
            layer->bias = i % 2 ? -1 : 0;
            layer->bidirectional = i / 2 % 2;
            layer->window = i / 4 ? 4 : 0;
            layer->sinks = i / 4 ? 1 : 0;
            call = x.call;
            call.thread_count = 1;
            call.logits = la_matrix(x.w1 + (S - T) * L, L);
            call.logits.width = S;
            call.workspace = workspace;
            call.workspace_size = sizeof workspace;
            CHECK(la_attention_forward(layer, &call) == LA_OK, "attention");
            for (j = 0; j < B * T * H * DV; j++) {
                given[j] = (double)x.out[j];
            }
            layer->scale = 3;
            layer_run(&x, isa, 2);
            layer->scale = 1;
            check_close("logits", x.out, given, B * T * H * DV, 2e-6);
        }
    }
    layer_free(&x);
}

/* ---------------------------------------------------------------- bad input */

#define REFUSED(STATUS, FIELD, ...)                                                                \
    do {                                                                                           \
        la_linformer *linformer = &x.linformer;                                                    \
        la_synthesizer *synthesizer = &x.synthesizer;                                              \
        la_attention_call *call = &x.call;                                                         \
        const Layer good = x;                                                                      \
        const char *field = NULL;                                                                  \
        (void)linformer;                                                                           \
        (void)synthesizer;                                                                         \
        (void)call;                                                                                \
        __VA_ARGS__;                                                                               \
        CHECK(layer_check(&x, &field) == (STATUS), "%s: %d", #__VA_ARGS__,                         \
              (int)layer_check(&x, NULL));                                                         \
        CHECK(field != NULL && strcmp(field, FIELD) == 0, "%s: field %s", #__VA_ARGS__,            \
              field ? field : "(null)");                                                           \
        CHECK(layer_forward(&x) == (STATUS), "%s: forward", #__VA_ARGS__);                         \
        CHECK(isnan(x.out[0]), "%s: something was written", #__VA_ARGS__);                         \
        x = good;                                                                                  \
    } while (0)

static void bad_new(Layer *x, const Shape *shape) {
    layer_new(x, shape);
    x->call.workspace_size = layer_workspace(x);
    x->call.workspace = guarded_new(x->call.workspace_size / 4 + 1, 1);
    x->out[0] = NAN;
    CHECK(layer_check(x, NULL) == LA_OK, "a good call");
}

static void bad_free(Layer *x) {
    guarded_free(x->call.workspace);
    layer_free(x);
}

TEST(linformer_bad_input) {
    Shape s = {.kind = LINFORMER,
               .B = 2,
               .T = 9,
               .S = 12,
               .L = 14,
               .H = 4,
               .Hkv = 2,
               .dk = 5,
               .dv = 6,
               .rank1 = 3,
               .ragged = 1};
    Layer x;
    bad_new(&x, &s);
    REFUSED(LA_E_STRUCT, "linformer.struct_size", linformer->struct_size = 1);
    REFUSED(LA_E_STRUCT, "layer.struct_size", linformer->attention.struct_size = 1);
    REFUSED(LA_E_DIRECTION, "bidirectional", linformer->attention.bidirectional = 0);
    REFUSED(LA_E_VARIANT, "kind", linformer->attention.kind = LA_SIGMOID);
    REFUSED(LA_E_UNSUPPORTED, "window", linformer->attention.window = 3);
    REFUSED(LA_E_SIZE, "dim_k", linformer->attention.dim_k = 0);
    REFUSED(LA_E_HEADS, "q_heads", linformer->attention.kv_heads = 3);
    REFUSED(LA_E_SIZE, "length", linformer->length = 0);
    REFUSED(LA_E_SIZE, "rank", linformer->rank = 0);
    REFUSED(LA_E_SIZE, "keys", linformer->length = 11);
    REFUSED(LA_E_SIZE, "keys", call->keys = 15);
    REFUSED(LA_E_STRUCT, "call.struct_size", call->struct_size = 1);
    REFUSED(LA_E_UNSUPPORTED, "logits", call->logits = call->q);
    REFUSED(LA_E_UNSUPPORTED, "positions", call->positions = x.lengths);
    REFUSED(LA_E_NULL, "E", linformer->E.data = NULL);
    REFUSED(LA_E_SHAPE, "E.width", linformer->E.width = 4);
    REFUSED(LA_E_SHAPE, "F.width", linformer->F.width = 4);
    REFUSED(LA_E_TYPE, "F.type", linformer->F.type = 4);
    REFUSED(LA_E_OVERFLOW, "E", linformer->E.token_stride = INT64_MAX / 2);
    REFUSED(LA_E_NULL, "k", call->k.data = NULL);
    REFUSED(LA_E_SHAPE, "q.width", call->q.width = 4);
    REFUSED(LA_E_NULL, "out", call->out.data = NULL);
    REFUSED(LA_E_OVERLAP, "out", call->out.data = x.w1);
    REFUSED(LA_E_OVERLAP, "out", call->out.data = x.w2);
    REFUSED(LA_E_NULL, "workspace", call->workspace = NULL);
    REFUSED(LA_E_WORKSPACE, "workspace_size", call->workspace_size--);
    REFUSED(LA_E_OVERLAP, "workspace", call->workspace = x.w1);
    CHECK(la_linformer_check(NULL, &x.call, NULL) == LA_E_NULL, "no layer");
    CHECK(la_linformer_check(&x.linformer, NULL, NULL) == LA_E_NULL, "no call");
    CHECK(la_linformer_init(NULL, 1, 1, 1, 1, 1) == LA_E_NULL, "init");
    bad_free(&x);
    CHECK(la_linformer_init(&x.linformer, 1, 1, 1, 4, 0) == LA_E_SIZE, "rank 0");
    CHECK(la_linformer_workspace_size(&x.linformer, &x.call) == 0, "after a failed init");
}

TEST(synthesizer_bad_input) {
    Shape s = {
        .kind = LA_DENSE, .B = 2, .T = 9, .S = 12, .L = 14, .H = 4, .dk = 5, .dv = 6, .rank1 = 3};
    Layer x;
    bad_new(&x, &s);
    REFUSED(LA_E_STRUCT, "synthesizer.struct_size", synthesizer->struct_size = 1);
    REFUSED(LA_E_VARIANT, "kind", synthesizer->kind = 4);
    REFUSED(LA_E_SIZE, "dim_k", synthesizer->attention.dim_k = 0);
    REFUSED(LA_E_HEADS, "kv_heads", synthesizer->attention.kv_heads = 2);
    REFUSED(LA_E_SIZE, "length", synthesizer->length = 0);
    REFUSED(LA_E_SIZE, "rank1", synthesizer->rank1 = 0);
    REFUSED(LA_E_SIZE, "rank2", synthesizer->rank2 = 2);
    REFUSED(LA_E_SIZE, "keys", synthesizer->length = 11);
    REFUSED(LA_E_SIZE, "keys", call->keys = 8);
    REFUSED(LA_E_UNSUPPORTED, "logits", call->logits = call->q);
    REFUSED(LA_E_UNSUPPORTED, "positions", call->positions = x.lengths);
    REFUSED(LA_E_UNSUPPORTED, "key_lengths", call->key_lengths = x.key_lengths);
    REFUSED(LA_E_NULL, "w1", synthesizer->w1.data = NULL);
    REFUSED(LA_E_NULL, "w2", synthesizer->w2.data = NULL);
    REFUSED(LA_E_SHAPE, "w1.width", synthesizer->w1.width = 2);
    REFUSED(LA_E_SHAPE, "w2.width", synthesizer->w2.width = 2);
    REFUSED(LA_E_SHAPE, "b1.width", synthesizer->b1.width = 2);
    REFUSED(LA_E_SHAPE, "b2.width", synthesizer->b2.width = 2);
    REFUSED(LA_E_NULL, "q", call->q.data = NULL);
    REFUSED(LA_E_NULL, "v", call->v.data = NULL);
    REFUSED(LA_E_OVERLAP, "out", call->out.data = x.w1);
    REFUSED(LA_E_OVERLAP, "out", call->out.data = x.b2);
    REFUSED(LA_E_OVERLAP, "workspace", call->workspace = x.w2);
    REFUSED(LA_E_WORKSPACE, "workspace_size", call->workspace_size--);
    CHECK(la_synthesizer_check(NULL, &x.call, NULL) == LA_E_NULL, "no layer");
    CHECK(la_synthesizer_check(&x.synthesizer, NULL, NULL) == LA_E_NULL, "no call");
    CHECK(la_synthesizer_init(NULL, 0, 1, 1, 1, 1, 1, 0) == LA_E_NULL, "init");
    bad_free(&x);
    CHECK(la_synthesizer_init(&x.synthesizer, LA_RANDOM, 1, 3, 1, 1, 0, 0) == LA_E_SIZE, "dim_x");
    CHECK(la_synthesizer_init(&x.synthesizer, 9, 1, 3, 1, 1, 1, 0) == LA_E_VARIANT, "kind 9");
    CHECK(la_synthesizer_workspace_size(&x.synthesizer, &x.call) == 0, "after a failed init");
}
