/* Softmax and sigmoid attention (LA_EXTRAS) against the definition in float64. */
#define LA_EXTRAS
#include "oracle.h"
#include "test.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- what to try */

enum { MOST_BATCH = 4 };

typedef enum Given { GIVEN_NONE, GIVEN_LOGITS, GIVEN_MASK } Given; /* in (-2, 2); some -infinity */

typedef struct Shape { /* 0 stands for the usual value: B = 1, Hq = Hkv = 1, keys = T, dv = dk */
    int64_t B, T, keys, Hq, Hkv, dk, dv;
    int kind, bidirectional, head_map;
    int64_t window, sinks;
    Given given;
    float bias, size; /* of q and k: 1 */
    int ragged;       /* 1: lengths of queries, 2: and of keys, 3: and positions; NaN beyond */
    int lse, bhtd, shift, no_dot; /* no_dot: the logits are given, there is no q . k */
} Shape;

typedef struct Attention {
    Shape shape;
    la_attention layer;
    la_attention_call call;
    float *q, *k, *v, *logits, *out, *lse; /* guarded */
    int64_t lengths[MOST_BATCH], key_lengths[MOST_BATCH], positions[MOST_BATCH];
    double *want, *size, *want_lse; /* [B][T][Hq][dv] twice, [B][T][Hq]; size: without cancelling */
} Attention;

static const char *shape_text(const Shape *s) {
    static char text[256];
    snprintf(text, sizeof text,
             "%s%s B%d T%d S%d H%d/%d %dx%d window %d sinks %d map %d given %d ragged %d",
             s->kind == LA_SIGMOID ? "sigmoid" : "softmax", s->bidirectional ? " full" : "",
             (int)s->B, (int)s->T, (int)s->keys, (int)s->Hq, (int)s->Hkv, (int)s->dk, (int)s->dv,
             (int)s->window, (int)s->sinks, s->head_map, (int)s->given, s->ragged);
    return text;
}

static int64_t queries_of(const Attention *a, int64_t b) {
    return a->shape.ragged ? a->lengths[b] : a->shape.T;
}

static int64_t keys_of(const Attention *a, int64_t b) {
    if (a->shape.ragged >= 2) {
        return a->key_lengths[b];
    }
    if (a->shape.ragged == 1 && !a->shape.bidirectional) {
        int64_t keys = a->shape.keys - (a->shape.T - a->lengths[b]);
        return keys < 0 ? 0 : keys;
    }
    return a->shape.keys;
}

static int64_t position_of(const Attention *a, int64_t b) {
    return a->shape.ragged == 3 ? a->positions[b] : keys_of(a, b) - queries_of(a, b);
}

static int sees(const Attention *a, int64_t b, int64_t t, int64_t s) {
    const Shape *shape = &a->shape;
    int64_t at = position_of(a, b) + t;
    if (s >= keys_of(a, b) || (!shape->bidirectional && s > at)) {
        return 0;
    }
    return shape->window == 0 || s < shape->sinks || llabs(at - s) < shape->window;
}

static const float *at(const la_in *x, int64_t b, int64_t t, int64_t h) {
    return view_row(x, b, t, h);
}

/* ---------------------------------------------------------------- the definition */

/* logit of a key, and the sum of |products| that it came from */
static double logit(const Attention *a, int64_t b, int64_t t, int64_t h, int64_t kv, int64_t s,
                    double *size) {
    const la_attention *layer = &a->layer;
    double x = 0;
    int64_t i;
    *size = 0;
    for (i = 0; i < layer->dim_k; i++) {
        double product = (double)at(&a->call.q, b, t, h)[i] * (double)at(&a->call.k, b, s, kv)[i];
        x += product;
        *size += fabs(product);
    }
    *size *= fabs((double)layer->scale);
    x *= (double)layer->scale;
    if (a->call.logits.data != NULL) {
        x += (double)at(&a->call.logits, b, t, h)[s];
    }
    return x;
}

static void want_row(Attention *a, int64_t b, int64_t t, int64_t h) {
    const Shape *shape = &a->shape;
    int64_t group = shape->Hq / shape->Hkv, s, j, row = (b * shape->T + t) * shape->Hq + h;
    int64_t kv = shape->head_map == LA_TILED ? h % shape->Hkv : h / group;
    int softmax = shape->kind == LA_SOFTMAX;
    double most = -(double)INFINITY, sum = 0, size, error = 0;
    double *want = a->want + row * shape->dv, *bound = a->size + row * shape->dv;
    for (s = 0; s < shape->keys; s++) {
        if (sees(a, b, t, s)) {
            most = fmax(most, logit(a, b, t, h, kv, s, &size));
            error = fmax(error, isfinite(size) ? size : 0);
        }
    }
    most = isinf(most) && most < 0 ? 0 : most;
    for (s = 0; s < shape->keys; s++) {
        double x, w;
        if (!sees(a, b, t, s)) {
            continue;
        }
        x = logit(a, b, t, h, kv, s, &size);
        w = softmax ? exp(x - most) : 1 / (1 + exp(-(x + (double)shape->bias)));
        sum += w;
        for (j = 0; j < shape->dv; j++) {
            want[j] += w * (double)at(&a->call.v, b, s, kv)[j];
            bound[j] += w * fabs((double)at(&a->call.v, b, s, kv)[j]);
        }
    }
    for (j = 0; j < shape->dv; j++) {
        want[j] = softmax ? (sum == 0 ? 0 : want[j] / sum) : want[j];
        bound[j] = (softmax ? (sum == 0 ? 0 : bound[j] / sum) : bound[j]) * (1 + 0.2 * error);
    }
    a->want_lse[row] = most + log(sum);
}

static void want_all(Attention *a) {
    const Shape *shape = &a->shape;
    size_t rows = (size_t)(shape->B * shape->T * shape->Hq), width = (size_t)shape->dv;
    int64_t b, t, h;
    memset(a->want, 0, rows * width * sizeof *a->want);
    memset(a->size, 0, rows * width * sizeof *a->size);
    for (b = 0; b < shape->B; b++) {
        for (t = 0; t < queries_of(a, b); t++) {
            for (h = 0; h < shape->Hq; h++) {
                want_row(a, b, t, h);
            }
        }
    }
}

/* ---------------------------------------------------------------- making and running */

static la_in view(const Attention *a, const float *data, int64_t rows, int64_t heads,
                  int64_t width) {
    return a->shape.bhtd ? la_bhtd(data, rows, heads, width) : la_bthd(data, rows, heads, width);
}

static la_out out_view(const Attention *a, float *data, int64_t rows, int64_t heads,
                       int64_t width) {
    return a->shape.bhtd ? la_bhtd_out(data, rows, heads, width)
                         : la_bthd_out(data, rows, heads, width);
}

/* Rows of a sequence behind its length stay NaN, which is what a new buffer holds. */
static float *fill(const Attention *a, int64_t rows, int64_t heads, int64_t width, float size,
                   int is_key) {
    const Shape *s = &a->shape;
    float *data = guarded_new((size_t)(s->B * rows * heads * width), s->shift);
    la_out x = out_view(a, data, rows, heads, width);
    int64_t b, t, h, i;
    for (b = 0; b < s->B; b++) {
        for (t = 0; t < (is_key ? keys_of(a, b) : queries_of(a, b)); t++) {
            for (h = 0; h < heads; h++) {
                for (i = 0; i < width; i++) {
                    out_row(&x, b, t, h)[i] = random_uniform(-size, size);
                }
            }
        }
    }
    return data;
}

static void give_logits(Attention *a) {
    const Shape *s = &a->shape;
    int64_t i, count = s->B * s->T * s->Hq * s->keys;
    a->logits = fill(a, s->T, s->Hq, s->keys, 2, 0);
    for (i = 0; s->given == GIVEN_MASK && i < count; i++) {
        if (random_below(3) == 0) {
            a->logits[i] = -INFINITY;
        }
    }
    a->call.logits = view(a, a->logits, s->T, s->Hq, s->keys);
}

static void choose_lengths(Attention *a) {
    const Shape *s = &a->shape;
    int64_t b;
    for (b = 0; b < s->B; b++) {
        a->lengths[b] = b == 0 ? s->T : random_below((int)s->T + 1);
        a->key_lengths[b] = b == 1 ? s->keys : random_below((int)s->keys + 1);
        a->positions[b] = random_below((int)s->keys + 20) - 10;
    }
    a->call.lengths = s->ragged ? a->lengths : NULL;
    a->call.key_lengths = s->ragged >= 2 ? a->key_lengths : NULL;
    a->call.positions = s->ragged == 3 ? a->positions : NULL;
}

static Attention *attention_new(const Shape *given) {
    Attention *a = calloc(1, sizeof *a);
    Shape *s = &a->shape;
    la_attention *layer = &a->layer;
    la_attention_call *call = &a->call;
    size_t rows;
    la_status status;
    *s = *given;
    s->B = s->B ? s->B : 1;
    s->Hkv = s->Hkv ? s->Hkv : 1;
    s->Hq = s->Hq ? s->Hq : s->Hkv;
    s->keys = s->keys < 0 ? 0 : s->keys ? s->keys : s->T;
    s->dv = s->dv ? s->dv : s->dk;
    s->dk = s->no_dot ? 0 : s->dk;
    status = la_attention_init(layer, s->kind, s->Hq, s->dk, s->dv);
    CHECK(status == LA_OK, "%s", la_status_text(status));
    layer->kv_heads = s->Hkv;
    layer->bidirectional = s->bidirectional;
    layer->head_map = s->head_map;
    layer->window = s->window;
    layer->sinks = s->sinks;
    layer->bias = s->bias;
    status = la_attention_call_init(call, layer, s->B, s->T);
    CHECK(status == LA_OK, "%s", la_status_text(status));
    call->keys = s->keys;
    choose_lengths(a);
    if (!s->no_dot) {
        a->q = fill(a, s->T, s->Hq, s->dk, s->size > 0 ? s->size : 1, 0);
        a->k = fill(a, s->keys, s->Hkv, s->dk, s->size > 0 ? s->size : 1, 1);
        call->q = view(a, a->q, s->T, s->Hq, s->dk);
        call->k = view(a, a->k, s->keys, s->Hkv, s->dk);
    }
    a->v = fill(a, s->keys, s->Hkv, s->dv, 1, 1);
    call->v = view(a, a->v, s->keys, s->Hkv, s->dv);
    if (s->given != GIVEN_NONE) {
        give_logits(a);
    }
    rows = (size_t)(s->B * s->T * s->Hq);
    a->out = guarded_new(rows * (size_t)s->dv, s->shift);
    call->out = out_view(a, a->out, s->T, s->Hq, s->dv);
    if (s->lse) {
        a->lse = guarded_new(rows, s->shift);
        call->lse = out_view(a, a->lse, s->T, s->Hq, 1);
    }
    a->want = calloc(rows * (size_t)s->dv + 1, sizeof *a->want);
    a->size = calloc(rows * (size_t)s->dv + 1, sizeof *a->size);
    a->want_lse = calloc(rows + 1, sizeof *a->want_lse);
    want_all(a);
    return a;
}

static void attention_free(Attention *a) {
    guarded_free(a->q);
    guarded_free(a->k);
    guarded_free(a->v);
    guarded_free(a->logits);
    guarded_free(a->out);
    guarded_free(a->lse);
    free(a->want);
    free(a->size);
    free(a->want_lse);
    free(a);
}

static int run(Attention *a, int isa, int64_t threads) {
    const Shape *s = &a->shape;
    la_attention_call call = a->call;
    size_t floats, rows = (size_t)(s->B * s->T * s->Hq);
    float *workspace;
    int good = 1;
    call.isa = isa;
    call.thread_count = threads;
    call.workspace_size = la_attention_workspace_size(&a->layer, &call);
    floats = (call.workspace_size + sizeof(float) - 1) / sizeof(float);
    workspace = guarded_new(floats, 3);
    call.workspace = workspace;
    memset(a->out, 0xff, rows * (size_t)s->dv * sizeof(float));
    if (a->lse != NULL) {
        memset(a->lse, 0xff, rows * sizeof(float));
    }
    for (call.thread_index = 0; call.thread_index < threads; call.thread_index++) {
        const char *field = "";
        la_status status = la_attention_forward(&a->layer, &call);
        if (status != LA_OK) {
            la_attention_check(&a->layer, &call, &field);
        }
        good &= CHECK(status == LA_OK, "%s: %s %s", shape_text(s), field, la_status_text(status));
    }
    guarded_free(workspace);
    return good;
}

/* Every row against the definition: |out - want| <= c sum of weights |v|. Answers the largest c. */
static double check_rows(const Attention *a, double c, const char *note) {
    const Shape *s = &a->shape;
    double worst = 0, worst_lse = 0;
    int64_t b, t, h, j, untouched = 0;
    for (b = 0; b < s->B; b++) {
        for (t = 0; t < s->T; t++) {
            for (h = 0; h < s->Hq; h++) {
                int64_t row = (b * s->T + t) * s->Hq + h;
                const float *out = out_row(&a->call.out, b, t, h);
                if (t >= queries_of(a, b)) {
                    untouched += isnan(out[0]) != 0;
                    continue;
                }
                for (j = 0; j < s->dv; j++) {
                    double size = a->size[row * s->dv + j];
                    double error = fabs((double)out[j] - a->want[row * s->dv + j]);
                    error = size > 0 ? error / size : error;
                    worst = !(error <= worst) ? error : worst;
                }
                if (a->lse != NULL) {
                    float lse = *out_row(&a->call.lse, b, t, h);
                    double error = fabs((double)lse - a->want_lse[row]);
                    error = (double)lse == a->want_lse[row] ? 0 : error;
                    error /= 1 + fabs(a->want_lse[row]);
                    worst_lse = !(error <= worst_lse) ? error : worst_lse;
                }
            }
        }
    }
    for (b = 0; b < s->B; b++) {
        untouched -= (s->T - queries_of(a, b)) * s->Hq;
    }
    CHECK(untouched == 0, "%s %s: rows behind the end were written", note, shape_text(s));
    CHECK(worst <= c, "%s %s: off by %g", note, shape_text(s), worst);
    CHECK(worst_lse <= c, "%s %s: lse off by %g", note, shape_text(s), worst_lse);
    return worst;
}

static void all_ways(const Shape *shape, const char *note) {
    Attention *a = attention_new(shape);
    int i, isa;
    for (i = 0; isa_number(i, &isa); i++) {
        size_t floats = (size_t)(a->shape.B * a->shape.T * a->shape.Hq * a->shape.dv);
        float *first;
        if (run(a, isa, 1)) {
            check_rows(a, 2e-6, note);
        }
        first = malloc((floats + 1) * sizeof *first);
        memcpy(first, a->out, floats * sizeof *first);
        if (run(a, isa, 3) && floats > 0) {
            check_same("three threads", a->out, first, floats);
        }
        free(first);
    }
    attention_free(a);
}

/* ---------------------------------------------------------------- right */

TEST(attention_lengths_and_sizes) {
    static const int64_t lengths[] = {1, 2, 4, 5, 15, 16, 17, 95, 96, 97, 193, 301};
    static const int64_t sizes[][2] = {{1, 1}, {7, 19}, {16, 16}, {64, 33}, {130, 48}};
    size_t i, j;
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            Shape shape = {.T = lengths[i], .dk = sizes[j][0], .dv = sizes[j][1], .lse = 1};
            shape.bhtd = j % 2 == 1;
            shape.shift = (int)(i % 4);
            all_ways(&shape, "causal");
            shape.bidirectional = 1;
            shape.keys = lengths[(i + 5) % 12];
            all_ways(&shape, "full");
        }
    }
}

TEST(attention_windows) {
    static const int64_t lengths[] = {1, 17, 230}, windows[] = {1, 2, 8, 16, 64, 200, 1000};
    static const int64_t sinks[] = {0, 1, 4, 20, 210};
    size_t i, j, l;
    for (i = 0; i < 3; i++) {
        for (j = 0; j < 7; j++) {
            for (l = 0; l < 5; l++) {
                Shape shape = {.T = lengths[i], .dk = 5, .dv = 17, .lse = 1, .Hq = 2, .Hkv = 2};
                shape.window = windows[j];
                shape.sinks = sinks[l];
                all_ways(&shape, "window");
                shape.keys = shape.T + 41;
                all_ways(&shape, "window with a past");
                shape.bidirectional = 1;
                shape.keys = l == 0 ? 19 : 0;
                all_ways(&shape, "window in both directions");
            }
        }
    }
}

TEST(attention_heads) {
    static const int64_t heads[][2] = {{3, 3}, {6, 2}, {8, 1}, {5, 5}, {12, 4}, {200, 1}, {7, 1}};
    size_t i;
    for (i = 0; i < sizeof heads / sizeof *heads; i++) {
        Shape shape = {.B = 2, .dk = 7, .dv = 11, .Hq = heads[i][0], .Hkv = heads[i][1], .lse = 1};
        for (shape.T = 1; shape.T < 80; shape.T = 3 * shape.T + 1) {
            shape.head_map = LA_GROUPED;
            all_ways(&shape, "grouped");
            shape.head_map = LA_TILED;
            shape.window = 9;
            shape.sinks = 2;
            all_ways(&shape, "tiled");
            shape.kind = LA_SIGMOID;
            shape.lse = 0;
            all_ways(&shape, "tiled");
            shape.kind = LA_SOFTMAX;
            shape.lse = 1;
            shape.window = shape.sinks = 0;
        }
    }
}

TEST(attention_ragged) {
    Shape shape = {.B = 4, .dk = 6, .dv = 10, .Hq = 4, .Hkv = 2, .lse = 1};
    int turn;
    for (turn = 0; turn < 24; turn++) {
        shape.ragged = 1 + turn % 3;
        shape.bidirectional = turn / 3 % 2;
        shape.window = turn / 6 % 2 ? 13 : 0;
        shape.sinks = turn % 5;
        shape.T = 1 + random_below(60);
        shape.keys = 1 + random_below(70);
        shape.bhtd = turn % 4 == 1;
        all_ways(&shape, "ragged");
    }
}

TEST(attention_sigmoid) {
    static const int64_t lengths[] = {1, 3, 33, 201};
    size_t i;
    for (i = 0; i < 4; i++) {
        Shape shape = {.kind = LA_SIGMOID, .T = lengths[i], .dk = 19, .dv = 21, .Hq = 3, .Hkv = 1};
        all_ways(&shape, "no bias");
        shape.bias = -5;
        all_ways(&shape, "bias");
        shape.bidirectional = 1;
        shape.keys = 50;
        all_ways(&shape, "full");
        shape.size = 30;
        all_ways(&shape, "large logits");
        shape.given = GIVEN_MASK;
        all_ways(&shape, "masked");
    }
}

TEST(attention_logits_given) {
    int turn;
    for (turn = 0; turn < 24; turn++) {
        Shape shape = {.B = 2, .dk = 9, .dv = 18, .Hq = 4, .Hkv = 2, .lse = 1};
        shape.T = 1 + (turn % 4) * 37;
        shape.keys = turn % 3 == 0 ? 2 : turn % 3 == 1 ? 0 : 71;
        shape.given = turn % 2 ? GIVEN_MASK : GIVEN_LOGITS;
        shape.no_dot = turn / 2 % 2;
        shape.bidirectional = turn / 4 % 2;
        shape.bhtd = turn / 8 % 2;
        all_ways(&shape, "given");
    }
}

/* Logits of 1e4 that floats hold exactly: what is left is the error of exponentials and sums. */
TEST(attention_huge_logits) {
    Shape shape = {.T = 210, .dk = 16, .dv = 8, .lse = 1};
    Attention *a = attention_new(&shape);
    int64_t i, turn;
    int isa, w;
    for (turn = 0; turn < 3; turn++) {
        for (i = 0; i < shape.T * shape.dk; i++) {
            a->q[i] = (float)(random_below(turn ? 101 : 3) - (turn ? 50 : 1));
            a->k[i] = (float)(random_below(turn ? 401 : 3) - (turn ? 200 : 1));
        }
        if (turn == 2) { /* most weights of a row alike: all its logits are near 10000 */
            for (i = 0; i < shape.T; i++) {
                a->q[i * shape.dk] = 200;
                a->k[i * shape.dk] = 200;
                memset(a->k + i * shape.dk + 1, 0, 15 * sizeof(float));
                a->k[i * shape.dk + 1 + random_below(15)] = 1;
            }
        }
        want_all(a);
        for (i = 0; i < shape.T * shape.dv; i++) {
            a->size[i] = 1; /* |v| < 1 */
        }
        for (w = 0; isa_number(w, &isa); w++) {
            if (run(a, isa, 1)) {
                check_rows(a, 1e-6, "exact logits");
            }
        }
    }
    attention_free(a);
}

/* ---------------------------------------------------------------- beyond numbers */

/* One channel, queries 1: a key is its logit. */
TEST(attention_infinite_logits) {
    Shape shape = {.T = 20, .dk = 1, .dv = 3, .lse = 1};
    Attention *a = attention_new(&shape);
    int isa, w, i;
    for (w = 0; isa_number(w, &isa); w++) {
        for (i = 0; i < 20; i++) {
            a->q[i] = 1;
            a->k[i] = i < 3 ? -INFINITY : i == 15 ? INFINITY : i % 2 ? 3e38f : -3e38f;
        }
        if (!run(a, isa, 1)) {
            continue;
        }
        for (i = 0; i < 3; i++) {
            CHECK(a->out[3 * i] == 0 && a->out[3 * i + 2] == 0, "row %d: %g", i,
                  (double)a->out[3 * i]);
            CHECK(a->lse[i] == -INFINITY, "row %d: lse %g", i, (double)a->lse[i]);
        }
        CHECK(a->out[9] == a->v[9] && a->lse[3] == 3e38f, "one key: %g, lse %g", (double)a->out[9],
              (double)a->lse[3]);
        CHECK(fabsf(a->out[15] - (a->v[9] + a->v[15]) / 2) < 1e-6f, "two keys: %g",
              (double)a->out[15]);
        CHECK(isnan(a->out[3 * 15]) && isnan(a->out[3 * 19]) && isnan(a->lse[15]),
              "an infinite logit: %g", (double)a->out[45]);
    }
    attention_free(a);
}

static int is_poisoned(const Attention *a, int64_t t, int64_t h, int64_t first, int64_t count) {
    const float *out = out_row(&a->call.out, 0, t, h);
    int64_t j, poisoned = 0;
    for (j = first; j < first + count; j++) {
        poisoned += isnan(out[j]) != 0;
    }
    return poisoned == count ? 1 : poisoned == 0 ? 0 : -1;
}

/* A NaN reaches what depends on it, and the rest keeps its bits. `column` < 0: all columns. */
static void poison(Attention *a, float *where, int64_t query, int64_t key, int64_t column) {
    const Shape *s = &a->shape;
    size_t count = (size_t)(s->T * s->Hq * s->dv);
    float *before = malloc(count * sizeof *before), kept = *where;
    int64_t t, h, j;
    int isa, w;
    for (w = 0; isa_number(w, &isa); w++) {
        run(a, isa, 1);
        memcpy(before, a->out, count * sizeof *before);
        *where = NAN;
        run(a, isa, 1);
        *where = kept;
        for (t = 0; t < s->T; t++) {
            for (h = 0; h < s->Hq; h++) {
                int hit = query >= 0 ? t == query && h == 1 : sees(a, 0, t, key) && h / 2 == 1;
                const float *out = out_row(&a->call.out, 0, t, h);
                for (j = 0; j < s->dv; j++) {
                    const float *old = before + (out - a->out) + j;
                    if (hit && (column < 0 || j == column)) {
                        CHECK(is_poisoned(a, t, h, j, 1) == 1, "%s: row %d", shape_text(s), (int)t);
                    } else if (memcmp(old, out + j, sizeof *old) != 0) {
                        CHECK(0, "%s: row %d has other bits", shape_text(s), (int)t);
                    }
                }
            }
        }
    }
    free(before);
}

TEST(attention_faults_are_local) {
    int turn;
    for (turn = 0; turn < 8; turn++) {
        Shape shape = {.T = turn % 2 ? 215 : 1, .keys = 220, .Hq = 4, .Hkv = 2, .dk = 3, .dv = 18};
        Attention *a;
        shape.kind = turn / 4;
        shape.window = turn / 2 % 2 ? 30 : 0;
        shape.sinks = 2;
        shape.given = GIVEN_LOGITS;
        a = attention_new(&shape);
        poison(a, a->q + (shape.T / 2 * 4 + 1) * 3 + 1, shape.T / 2, 0, -1);
        poison(a, a->logits + (shape.T / 2 * 4 + 1) * 220 + 1, shape.T / 2, 0, -1);
        poison(a, a->k + (198 * 2 + 1) * 3 + 1, -1, 198, -1);
        poison(a, a->v + (198 * 2 + 1) * 18 + 17, -1, 198, 17);
        poison(a, a->k + 1 * 3, -1, 0, -1);
        attention_free(a);
    }
}

/* ---------------------------------------------------------------- caches and parts */

TEST(attention_nothing_to_see) {
    Shape none = {.T = 5, .keys = -1, .dk = 4, .dv = 20, .lse = 1};
    Shape short_past = {.T = 9, .keys = 4, .dk = 4, .dv = 20, .lse = 1};
    Shape empty = {.T = 0, .keys = 7, .dk = 4, .dv = 4};
    all_ways(&none, "no keys");
    all_ways(&short_past, "more queries than keys");
    all_ways(&empty, "no queries");
}

/* Token by token, keys and values in a ring, against the definition. */
static void decode(const Shape *shape, int isa, int64_t window, int64_t sinks) {
    Attention *a = attention_new(shape);
    const Shape *s = &a->shape;
    int64_t slots = la_attention_slots(&a->layer, s->T), row = s->Hkv * s->dk, t;
    float *k = guarded_new((size_t)(slots * row), 1), *v = guarded_new((size_t)(slots * row), 2);
    CHECK(slots == (window && sinks + window < s->T ? sinks + window : s->T), "%d slots",
          (int)slots);
    for (t = 0; t < s->T; t++) {
        int64_t slot = la_attention_slot(&a->layer, t);
        la_attention_call call;
        la_status status;
        CHECK(slot >= 0 && slot < slots, "slot %d of %d", (int)slot, (int)slots);
        memcpy(k + slot * row, a->k + t * row, (size_t)row * sizeof *k);
        memcpy(v + slot * row, a->v + t * row, (size_t)row * sizeof *v);
        la_attention_call_init(&call, &a->layer, 1, 1);
        call.isa = isa;
        call.keys = la_attention_slots(&a->layer, t + 1);
        call.q = la_bthd(a->q + t * s->Hq * s->dk, 1, s->Hq, s->dk);
        call.k = la_bthd(k, call.keys, s->Hkv, s->dk);
        call.v = la_bthd(v, call.keys, s->Hkv, s->dk);
        call.out = la_bthd_out(a->out + t * s->Hq * s->dk, 1, s->Hq, s->dk);
        call.workspace_size = la_attention_workspace_size(&a->layer, &call);
        call.workspace = malloc(call.workspace_size);
        status = la_attention_forward(&a->layer, &call);
        CHECK(status == LA_OK, "%s", la_status_text(status));
        free(call.workspace);
    }
    check_rows(a, 2e-6, "decoding");
    guarded_free(k);
    guarded_free(v);
    attention_free(a);
}

TEST(attention_decodes_over_a_ring) {
    static const int64_t rings[][2] = {{0, 0}, {9, 3}, {1, 0}, {16, 0}, {7, 20}, {1, 1}, {500, 4}};
    size_t i;
    int isa, w;
    for (w = 0; isa_number(w, &isa); w++) {
        for (i = 0; i < sizeof rings / sizeof *rings; i++) {
            Shape shape = {.T = 61, .Hq = 6, .Hkv = 2, .dk = 20};
            shape.window = rings[i][0];
            shape.sinks = rings[i][1];
            shape.kind = (int)(i % 2);
            decode(&shape, isa, shape.window, shape.sinks);
            shape.Hq = 12; /* more rows than a few */
            decode(&shape, isa, shape.window, shape.sinks);
        }
    }
}

TEST(attention_slots) {
    la_attention layer;
    la_attention_init(&layer, LA_SOFTMAX, 1, 1, 1);
    CHECK(la_attention_slot(&layer, 12345) == 12345, "no ring");
    CHECK(la_attention_slots(&layer, 77) == 77, "no ring");
    layer.window = 4;
    layer.sinks = 2;
    CHECK(la_attention_slot(&layer, 1) == 1 && la_attention_slot(&layer, 5) == 5, "the first ones");
    CHECK(la_attention_slot(&layer, 6) == 2 && la_attention_slot(&layer, 9) == 5, "around");
    CHECK(la_attention_slots(&layer, 5) == 5 && la_attention_slots(&layer, 600) == 6, "filled");
    CHECK(la_attention_slot(&layer, -1) == -1 && la_attention_slots(&layer, -1) == -1, "negative");
    CHECK(la_attention_slot(NULL, 1) == -1 && la_attention_slots(NULL, 1) == -1, "no layer");
    layer.window = -1;
    CHECK(la_attention_slot(&layer, 1) == -1 && la_attention_slots(&layer, 1) == -1, "window");
    layer.window = 1;
    layer.sinks = INT64_MAX;
    CHECK(la_attention_slot(&layer, 1) == -1 && la_attention_slots(&layer, 1) == -1, "sinks");
}

/* The keys in parts, each with its own call, joined: what one call has. Parts that a query does
   not see change nothing. */
static void run_in_parts(Attention *a, int isa, const int64_t *borders, int parts) {
    const Shape *s = &a->shape;
    size_t rows = (size_t)(s->T * s->Hq), floats = rows * (size_t)s->dv;
    float *out = malloc(floats * sizeof *out), *lse = malloc(rows * sizeof *lse);
    la_attention_call whole = a->call;
    int64_t position = s->keys - s->T, begin = 0;
    size_t i;
    int part;
    for (i = 0; i < floats; i++) {
        out[i] = 0;
    }
    for (i = 0; i < rows; i++) {
        lse[i] = -INFINITY;
    }
    for (part = 0; part < parts; part++) {
        a->positions[0] = position - begin;
        a->call.positions = a->positions;
        a->call.keys = borders[part] - begin;
        a->call.k.data = whole.k.data + begin * whole.k.token_stride;
        a->call.v.data = whole.v.data + begin * whole.v.token_stride;
        run(a, isa, 2);
        if (s->kind == LA_SOFTMAX) {
            la_status status = la_attention_merge(out, lse, a->out, a->lse, (int64_t)rows, s->dv);
            CHECK(status == LA_OK, "%s", la_status_text(status));
        }
        for (i = 0; s->kind == LA_SIGMOID && i < floats; i++) {
            out[i] += a->out[i];
        }
        begin = borders[part];
    }
    a->call = whole;
    memcpy(a->out, out, floats * sizeof *out);
    if (s->lse) {
        memcpy(a->lse, lse, rows * sizeof *lse);
    }
    check_rows(a, 3e-6, "in parts");
    free(out);
    free(lse);
}

TEST(attention_in_parts) {
    static const int64_t borders[] = {1, 40, 40, 130, 229};
    int isa, w, turn;
    for (w = 0; isa_number(w, &isa); w++) {
        for (turn = 0; turn < 8; turn++) {
            Shape shape = {.T = 107, .keys = 229, .Hq = 2, .dk = 12, .dv = 20};
            Attention *a;
            shape.kind = turn % 2;
            shape.lse = !shape.kind;
            shape.bidirectional = turn / 2 % 2;
            shape.size = turn / 4 ? 9 : 1;
            a = attention_new(&shape);
            run_in_parts(a, isa, borders, 5);
            attention_free(a);
        }
    }
}

TEST(attention_merge_refuses) {
    float x[4] = {1, 2, 3, 4}, l[2] = {0, 0}, y[4] = {5, 6, 7, 8}, m[2] = {0, 0};
    CHECK(la_attention_merge(NULL, l, y, m, 2, 2) == LA_E_NULL, "out");
    CHECK(la_attention_merge(x, NULL, y, m, 2, 2) == LA_E_NULL, "lse");
    CHECK(la_attention_merge(x, l, NULL, m, 2, 2) == LA_E_NULL, "more_out");
    CHECK(la_attention_merge(x, l, y, NULL, 2, 2) == LA_E_NULL, "more_lse");
    CHECK(la_attention_merge(x, l, y, m, -1, 2) == LA_E_SIZE, "rows");
    CHECK(la_attention_merge(x, l, y, m, 2, 0) == LA_E_SIZE, "dim_v");
    CHECK(la_attention_merge(x, l, y, m, (int64_t)1 << 48, 1 << 20) == LA_E_OVERFLOW, "all");
    CHECK(la_attention_merge(x, l, x + 1, m, 1, 2) == LA_E_OVERLAP, "out over more_out");
    CHECK(la_attention_merge(x, l, y, l, 2, 2) == LA_E_OVERLAP, "lse over more_lse");
    CHECK(la_attention_merge(x, x + 3, y, m, 2, 2) == LA_E_OVERLAP, "lse over out");
    CHECK(x[0] == 1 && x[3] == 4 && l[0] == 0, "something was written");
    CHECK(la_attention_merge(NULL, NULL, NULL, NULL, 0, 2) == LA_OK, "no rows");
    CHECK(la_attention_merge(x, l, y, m, 2, 2) == LA_OK, "good");
    CHECK(x[0] == 3 && x[3] == 6 && fabsf(l[1] - 0.693147182f) < 1e-7f, "%g %g", (double)x[0],
          (double)l[1]);
    l[0] = m[0] = -INFINITY; /* neither saw a key */
    l[1] = NAN;
    CHECK(la_attention_merge(x, l, y, m, 2, 2) == LA_OK, "good");
    CHECK(x[0] == 0 && l[0] == -INFINITY && isnan(x[2]) && isnan(l[1]), "%g %g", (double)x[0],
          (double)l[0]);
}

/* ---------------------------------------------------------------- views, threads */

/* Views of any strides give the bits of packed ones: heads and tokens stored backwards, rows in a
   cache of keys and values side by side, one sequence or head for all. */
TEST(attention_strides) {
    Shape shape = {.B = 2, .T = 30, .Hq = 4, .Hkv = 2, .dk = 8, .dv = 8, .lse = 1};
    Attention *a = attention_new(&shape);
    size_t count = 2 * 30 * 4 * 8, i;
    float *packed = malloc(count * sizeof *packed);
    float *cache = guarded_new(2 * 30 * 2 * 2 * 8, 1), *back = guarded_new(count, 1);
    int64_t t, h;
    int isa, w;
    for (t = 0; t < 2 * 30; t++) { /* both sequences read the first one's keys */
        for (h = 0; h < 2; h++) {
            memcpy(cache + ((t * 2 + h) * 2 + 0) * 8, a->k + (t % 30 * 2 + h) * 8, 32);
            memcpy(cache + ((t * 2 + h) * 2 + 1) * 8, a->v + (t * 2 + h) * 8, 32);
        }
    }
    for (w = 0; isa_number(w, &isa); w++) {
        la_attention_call call = a->call;
        a->call.k.batch_stride = 0;
        run(a, isa, 1);
        memcpy(packed, a->out, count * sizeof *packed);
        a->call.k = la_bthd(cache, 30, 2, 16);
        a->call.v = la_bthd(cache + 8, 30, 2, 16);
        a->call.k.width = a->call.v.width = 8;
        a->call.out = la_bthd_out(back + count - 8, 30, 4, 8);
        a->call.out.batch_stride *= -1;
        a->call.out.token_stride *= -1;
        a->call.out.head_stride *= -1;
        run(a, isa, 3);
        for (i = 0; i < count; i++) {
            a->out[i] = back[count - 8 - i / 8 * 8 + i % 8];
        }
        check_same("strides", a->out, packed, count);
        a->call = call;
    }
    guarded_free(cache);
    guarded_free(back);
    free(packed);
    attention_free(a);
}

/* One key and one query, whose distances from the next ones are never looked at. (Sanitizers see
   whether an address is made of them.) */
TEST(attention_strides_of_single_rows) {
    static const float x[4] = {1, 2, 3, 4};
    static const int64_t heads[] = {1, 3, 40}; /* few rows and many */
    static float out[40 * 4], none[4];
    static double workspace[1 << 16];
    int w, isa, n, kind;
    for (w = 0; isa_number(w, &isa); w++) {
        for (n = 0; n < 6; n++) {
            la_attention layer;
            la_attention_call call;
            kind = n % 2 ? LA_SIGMOID : LA_SOFTMAX;
            la_attention_init(&layer, kind, heads[n / 2], 4, 4);
            layer.kv_heads = 1;
            la_attention_call_init(&call, &layer, 1, 1);
            call.isa = isa;
            call.q = call.k = call.v = la_bthd(x, 1, 1, 4);
            call.logits = la_bthd(none, 1, 1, 1);
            call.q.head_stride = call.logits.head_stride = 0;
            call.q.token_stride = call.k.token_stride = call.v.token_stride = INT64_MAX;
            call.logits.token_stride = call.k.head_stride = call.v.batch_stride = INT64_MIN;
            call.out = la_bthd_out(out, 1, heads[n / 2], 4);
            call.out.token_stride = INT64_MAX;
            call.workspace = workspace;
            call.workspace_size = sizeof workspace;
            memset(out, 0, sizeof out);
            CHECK(la_attention_forward(&layer, &call) == LA_OK, "%d heads", (int)heads[n / 2]);
            CHECK(fabsf(out[4 * heads[n / 2] - 1] - 4) < 1e-5f, "%g", (double)out[3]);
        }
    }
}

/* Queries, keys and values may be one tensor, and the workspace depends on the widths alone. */
TEST(attention_of_one_tensor) {
    Shape shape = {.B = 2, .T = 40, .Hq = 3, .Hkv = 3, .dk = 9, .dv = 9, .lse = 1};
    Attention *a = attention_new(&shape);
    size_t count = 2 * 40 * 3 * 9, bytes = la_attention_workspace_size(&a->layer, &a->call);
    float *apart = malloc(count * sizeof *apart);
    la_attention_call call = a->call;
    int w, isa;
    memcpy(a->q, a->v, count * sizeof *a->q);
    memcpy(a->k, a->v, count * sizeof *a->k);
    for (w = 0; isa_number(w, &isa); w++) {
        run(a, isa, 1);
        memcpy(apart, a->out, count * sizeof *apart);
        a->call.q = a->call.k = a->call.v;
        run(a, isa, 2);
        check_same("one tensor", a->out, apart, count);
        a->call = call;
    }
    call.batch = 77;
    call.tokens = 1 << 20;
    call.keys = (int64_t)1 << 30;
    call.thread_count = 9;
    CHECK(la_attention_workspace_size(&a->layer, &call) == bytes, "it grew with the call");
    free(apart);
    attention_free(a);
}

/* Whatever the workspace held: nothing is computed with it, so that no flag is raised. */
static void check_quiet(Attention *a, int isa, uint32_t bits) {
    la_attention_call call = a->call;
    size_t floats, i;
    float *workspace;
    int raised;
    call.isa = isa;
    call.workspace_size = la_attention_workspace_size(&a->layer, &call);
    floats = (call.workspace_size + 3) / 4;
    call.workspace = workspace = guarded_new(floats, 1);
    for (i = 0; i < floats; i++) {
        memcpy(&workspace[i], &bits, sizeof bits);
    }
    feclearexcept(FE_ALL_EXCEPT);
    CHECK(la_attention_forward(&a->layer, &call) == LA_OK, "%s", shape_text(&a->shape));
    raised = fetestexcept(FE_INVALID | FE_OVERFLOW);
    feclearexcept(FE_ALL_EXCEPT);
    CHECK(!raised, "isa %d, %08x: overflow or invalid, %s", isa, (unsigned)bits,
          shape_text(&a->shape));
    guarded_free(workspace);
}

TEST(attention_nothing_is_computed_with_what_memory_held) {
    static const uint32_t fills[] = {0x7fa00000, 0x7f800000, 0x7f7fffff}; /* a signalling NaN */
    static const int64_t lengths[] = {1, 2, 4, 5, 15, 16, 20, 32, 34, 48, 64, 80, 200};
    int n, i, w, isa;
    for (n = 0; n < 4 * 13; n++) {
        Shape shape = {.keys = 200, .Hq = 2, .Hkv = 2, .dk = 7, .dv = 19, .lse = 1};
        Attention *a;
        shape.T = lengths[n / 4];
        shape.kind = n % 2 ? LA_SIGMOID : LA_SOFTMAX;
        shape.lse = !(n % 2);
        shape.given = n % 4 >= 2 ? GIVEN_MASK : GIVEN_NONE;
        shape.window = n % 4 >= 2 ? 9 : 0;
        a = attention_new(&shape);
        for (w = 0; isa_number(w, &isa); w++) {
            for (i = 0; i < 3; i++) {
                check_quiet(a, isa, fills[i]);
            }
        }
        attention_free(a);
    }
}

/* ---------------------------------------------------------------- bad input */

static la_attention bad_layer;
static la_attention_call bad_call;
static float numbers[1 << 12];
static double room[1 << 16];

static void good_call(void) {
    la_attention_init(&bad_layer, LA_SOFTMAX, 4, 8, 8);
    bad_layer.kv_heads = 2;
    la_attention_call_init(&bad_call, &bad_layer, 2, 3);
    bad_call.q = la_bthd(numbers, 3, 4, 8);
    bad_call.k = la_bthd(numbers + 200, 3, 2, 8);
    bad_call.v = la_bthd(numbers + 300, 3, 2, 8);
    bad_call.logits = la_bthd(numbers + 400, 3, 4, 3);
    bad_call.out = la_bthd_out(numbers + 500, 3, 4, 8);
    bad_call.lse = la_bthd_out(numbers + 700, 3, 4, 1);
    bad_call.workspace = room;
    bad_call.workspace_size = sizeof room;
}

static void refused(la_status want, const char *want_field, const char *what) {
    const char *field = NULL;
    la_status got = la_attention_check(&bad_layer, &bad_call, &field);
    CHECK(got == want && field != NULL && strcmp(field, want_field) == 0, "%s: %s, %s", what,
          la_status_text(got), field ? field : "-");
    CHECK(la_attention_forward(&bad_layer, &bad_call) == want, "%s: forward", what);
    good_call();
}

#define REFUSED(change, status, field) (good_call(), (change), refused(status, field, #change))

TEST(attention_refuses) {
    static const int64_t lengths[2] = {3, 4}, negative[2] = {0, -1};
    static const int64_t far[2] = {0, INT64_MAX};
    size_t i;
    good_call();
    CHECK(la_attention_check(&bad_layer, &bad_call, NULL) == LA_OK, "the good one");
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        numbers[i] = 7;
    }
    REFUSED(bad_layer.struct_size = 0, LA_E_STRUCT, "layer.struct_size");
    REFUSED(bad_layer.kind = 2, LA_E_VARIANT, "kind");
    REFUSED(bad_layer.bidirectional = -1, LA_E_VALUE, "bidirectional");
    REFUSED(bad_layer.q_heads = 0, LA_E_SIZE, "q_heads");
    REFUSED(bad_layer.q_heads = 5, LA_E_HEADS, "q_heads");
    REFUSED(bad_layer.kv_heads = -2, LA_E_SIZE, "kv_heads");
    REFUSED(bad_layer.dim_k = -1, LA_E_SIZE, "dim_k");
    REFUSED(bad_layer.dim_v = 0, LA_E_SIZE, "dim_v");
    REFUSED(bad_layer.dim_v = 1 << 21, LA_E_SIZE, "dim_v");
    REFUSED(bad_layer.window = -1, LA_E_SIZE, "window");
    REFUSED(bad_layer.sinks = INT64_MAX, LA_E_SIZE, "sinks");
    REFUSED(bad_layer.head_map = 2, LA_E_VALUE, "head_map");
    REFUSED(bad_layer.scale = NAN, LA_E_VALUE, "scale");
    REFUSED(bad_layer.bias = INFINITY, LA_E_VALUE, "bias");
    REFUSED(bad_layer.kind = LA_SIGMOID, LA_E_UNSUPPORTED, "lse");
    REFUSED(bad_call.struct_size = 1, LA_E_STRUCT, "call.struct_size");
    REFUSED(bad_call.isa = 99, LA_E_ISA, "isa");
    REFUSED(bad_call.thread_count = 0, LA_E_THREADS, "thread_count");
    REFUSED(bad_call.thread_index = 1, LA_E_THREADS, "thread_index");
    REFUSED(bad_call.batch = 0, LA_E_SIZE, "batch");
    REFUSED(bad_call.tokens = -1, LA_E_SIZE, "tokens");
    REFUSED(bad_call.keys = -1, LA_E_SIZE, "keys");
    REFUSED((bad_call.batch = (int64_t)1 << 40, bad_call.tokens = (int64_t)1 << 40), LA_E_OVERFLOW,
            "batch");
    REFUSED(bad_call.lengths = lengths, LA_E_SIZE, "lengths");
    REFUSED(bad_call.lengths = negative, LA_E_SIZE, "lengths");
    REFUSED(bad_call.key_lengths = lengths, LA_E_SIZE, "key_lengths");
    REFUSED(bad_call.positions = far, LA_E_SIZE, "positions");
    REFUSED(bad_call.q.data = NULL, LA_E_NULL, "q");
    REFUSED(bad_call.k.width = 9, LA_E_SHAPE, "k.width");
    REFUSED(bad_call.v.type = 1, LA_E_TYPE, "v.type");
    REFUSED(bad_call.v.token_stride = INT64_MIN, LA_E_OVERFLOW, "v");
    REFUSED(bad_call.logits.width = 4, LA_E_SHAPE, "logits.width");
    REFUSED((bad_layer.dim_k = 0, bad_call.logits.data = NULL), LA_E_NULL, "logits");
    REFUSED(bad_call.out.data = NULL, LA_E_NULL, "out");
    REFUSED(bad_call.out.width = 7, LA_E_SHAPE, "out.width");
    REFUSED(bad_call.out.token_stride = 8, LA_E_OVERLAP, "out");
    REFUSED(bad_call.lse.width = 8, LA_E_SHAPE, "lse.width");
    REFUSED(bad_call.lse.head_stride = 0, LA_E_OVERLAP, "lse");
    REFUSED(bad_call.out.data = numbers, LA_E_OVERLAP, "out");
    REFUSED(bad_call.lse.data = numbers + 510, LA_E_OVERLAP, "lse");
    REFUSED(bad_call.workspace = NULL, LA_E_NULL, "workspace");
    REFUSED(bad_call.workspace_size = 4096, LA_E_WORKSPACE, "workspace_size");
    REFUSED(bad_call.q.data = (const float *)(void *)room, LA_E_OVERLAP, "workspace");
    for (i = 0; i < sizeof numbers / sizeof *numbers && numbers[i] == 7; i++) {
    }
    CHECK(i == sizeof numbers / sizeof *numbers, "a refused call wrote");
    CHECK(la_attention_check(NULL, &bad_call, NULL) == LA_E_NULL, "no layer");
    CHECK(la_attention_forward(&bad_layer, NULL) == LA_E_NULL, "no call");
}

/* Of views that are absent, or of no rows, nobody reads the strides: what comes of them must be
 * defined, which the sanitizer of undefined behaviour sees, and finite. */
TEST(attention_ignores_absent_views) {
    static const int64_t none[2] = {0, 0};
    float *out = numbers + 500;
    int map, i;
    for (map = 0; map < 2; map++) {
        good_call();
        bad_layer.head_map = map;
        bad_call.lse.data = NULL;
        bad_call.lse.head_stride = bad_call.lse.token_stride = INT64_MAX;
        bad_call.logits.data = NULL;
        bad_call.logits.head_stride = INT64_MAX;
        CHECK(la_attention_forward(&bad_layer, &bad_call) == LA_OK, "no logits, no lse");
        good_call();
        bad_layer.head_map = map;
        bad_call.keys = 0;
        bad_call.k.head_stride = bad_call.v.head_stride = bad_call.logits.head_stride = INT64_MAX;
        bad_call.k.data = bad_call.v.data = NULL;
        out[0] = 1;
        CHECK(la_attention_forward(&bad_layer, &bad_call) == LA_OK, "no keys");
        CHECK(out[0] == 0 && numbers[700] == -INFINITY, "no keys: %g, lse %g", (double)out[0],
              (double)numbers[700]);
        good_call();
        bad_layer.dim_k = 0;
        bad_layer.head_map = map;
        bad_call.q.head_stride = bad_call.k.head_stride = INT64_MAX;
        bad_call.key_lengths = none;
        CHECK(la_attention_forward(&bad_layer, &bad_call) == LA_OK, "logits alone, of no keys");
        for (i = 0; i < 2 * 3 * 4 * 8; i++) {
            CHECK(out[i] == 0, "out[%d]: %g", i, (double)out[i]);
        }
    }
    memset(numbers, 0, sizeof numbers);
}

TEST(attention_sigmoid_of_infinite_logits) {
    Shape shape = {.T = 3, .dk = 1, .dv = 2, .kind = LA_SIGMOID, .bidirectional = 1};
    Attention *a = attention_new(&shape);
    int isa, w, i;
    for (w = 0; isa_number(w, &isa); w++) {
        for (i = 0; i < 3; i++) {
            a->q[i] = 1;
            a->k[i] = i == 1 ? INFINITY : -INFINITY;
        }
        for (i = 0; run(a, isa, 1) && i < 6; i++) {
            CHECK(a->out[i] == a->v[2 + i % 2], "out[%d]: %g, not %g", i, (double)a->out[i],
                  (double)a->v[2 + i % 2]);
        }
    }
    attention_free(a);
}

TEST(attention_initialisers) {
    la_attention layer;
    la_attention_call call;
    CHECK(la_attention_init(NULL, LA_SOFTMAX, 1, 1, 1) == LA_E_NULL, "null");
    CHECK(la_attention_init(&layer, 7, 1, 1, 1) == LA_E_VARIANT, "kind");
    CHECK(la_attention_call_init(&call, &layer, 1, 1) == LA_E_STRUCT, "of a refused layer");
    CHECK(la_attention_workspace_size(&layer, &call) == 0, "of a refused layer");
    CHECK(la_attention_init(&layer, LA_SOFTMAX, 0, 1, 1) == LA_E_SIZE, "heads");
    CHECK(la_attention_init(&layer, LA_SOFTMAX, 3, 16, 5) == LA_OK, "good");
    CHECK(layer.scale == 0.25f && layer.kv_heads == 3 && !layer.bidirectional, "defaults");
    CHECK(la_attention_call_init(NULL, &layer, 1, 1) == LA_E_NULL, "null");
    CHECK(la_attention_call_init(&call, &layer, 0, 1) == LA_E_SIZE, "batch");
    CHECK(la_attention_workspace_size(&layer, &call) == 0, "of a refused call");
    CHECK(la_attention_call_init(&call, &layer, 2, 9) == LA_OK, "good");
    CHECK(call.keys == 9 && call.thread_count == 1, "defaults");
    CHECK(la_attention_workspace_size(&layer, &call) > 0, "good");
}
