/* Softmax and sigmoid attention (LA_EXTRAS) against the definition in float64. */
#define LA_EXTRAS
#include "oracle.h"
#include "test.h"

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
        double product =
            (double)at(&a->call.q, b, t, h)[i] * (double)at(&a->call.k, b, s, kv)[i];
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
    double most = -INFINITY, sum = 0, size, error = 0;
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
