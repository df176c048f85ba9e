/* What LA_EXTRAS should answer, from the formulas of the manual, in float64. */
#include "extra.h"

#include "../oracle.h"

#include <math.h>
#include <string.h>

enum { WIDEST = 64 }; /* dk and dv of ordinary layers */

/* ---------------------------------------------------------------- attention of three kinds */

/* A number, and the sum of the absolute terms that it is the sum of. */
typedef struct Sum {
    double value, size;
} Sum;

static void add_product(Sum *sum, double a, double b) {
    sum->value += a * b;
    sum->size += fabs(a * b);
}

static const la_attention *layer_of(const Extra *e) {
    return e->system == LINFORMER     ? &e->linformer.attention
           : e->system == SYNTHESIZER ? &e->synthesizer.attention
                                      : &e->attention;
}

/* Number j of row r of E^T K or F^T V. */
static Sum shortened(const Extra *e, const la_in *weights, const la_in *x, int64_t b, int64_t h,
                     int64_t r, int64_t j) {
    Sum sum = {0, 0};
    int64_t s;
    for (s = 0; s < extra_keys(e, b); s++) {
        add_product(&sum, (double)view_row(weights, 0, s, h)[r], (double)view_row(x, b, s, h)[j]);
    }
    return sum;
}

static Sum affine(const la_in *w, const la_in *bias, int64_t row, int64_t h, const float *x,
                  int64_t n) {
    Sum sum = {0, 0};
    int64_t i;
    for (i = 0; i < n; i++) {
        add_product(&sum, (double)view_row(w, 0, row, h)[i], (double)x[i]);
    }
    if (bias->data != NULL) {
        add_product(&sum, 1, (double)view_row(bias, 0, 0, h)[row]);
    }
    return sum;
}

/* A_ts of a Synthesizer; the token stands at position p among the keys. */
static Sum synthesized(const Extra *e, const float *x, int64_t p, int64_t h, int64_t s) {
    const la_synthesizer *layer = &e->synthesizer;
    int64_t dx = layer->attention.dim_k, i;
    Sum sum = {0, 0}, one, other;
    switch (layer->kind) {
    case LA_RANDOM: add_product(&sum, 1, (double)view_row(&layer->w1, 0, p, h)[s]); break;
    case LA_FACTORISED_RANDOM:
        for (i = 0; i < layer->rank1; i++) {
            add_product(&sum, (double)view_row(&layer->w1, 0, p, h)[i],
                        (double)view_row(&layer->w2, 0, s, h)[i]);
        }
        break;
    case LA_FACTORISED_DENSE:
        one = affine(&layer->w1, &layer->b1, s % layer->rank1, h, x, dx);
        other = affine(&layer->w2, &layer->b2, s % layer->rank2, h, x, dx);
        sum.value = one.value * other.value;
        sum.size = one.size * other.size;
        break;
    default:
        for (i = 0; i < layer->rank1; i++) {
            one = affine(&layer->w1, &layer->b1, i, h, x, dx);
            other.value = (double)view_row(&layer->w2, 0, s, h)[i];
            sum.value += fmax(one.value, 0) * other.value;
            sum.size += one.size * fabs(other.value);
        }
        if (layer->b2.data != NULL) {
            add_product(&sum, 1, (double)view_row(&layer->b2, 0, 0, h)[s]);
        }
    }
    return sum;
}

/* s_j of key (or made row) s. */
static Sum logit(const Extra *e, const Written *row, int64_t s) {
    const la_attention_call *call = &e->attention_call;
    const la_attention *layer = layer_of(e);
    int64_t kv = extra_key_head(e, row->head), i;
    const float *q = layer->dim_k > 0 ? view_row(&call->q, row->b, row->t, row->head) : NULL;
    Sum sum = {0, 0};
    if (e->system == SYNTHESIZER) {
        int64_t p = extra_keys(e, row->b) - extra_tokens(e, row->b) + row->t;
        return synthesized(e, q, p, row->head, s);
    }
    for (i = 0; i < layer->dim_k; i++) {
        double scaled = (double)layer->scale * (double)q[i];
        if (e->system == LINFORMER) {
            Sum k = shortened(e, &e->linformer.E, &call->k, row->b, kv, s, i);
            sum.value += scaled * k.value;
            sum.size += fabs(scaled) * k.size;
        } else {
            add_product(&sum, scaled, (double)view_row(&call->k, row->b, s, kv)[i]);
        }
    }
    if (e->system == ATTENTION && call->logits.data != NULL) {
        double given = (double)view_row(&call->logits, row->b, row->t, row->head)[s];
        sum.value += given;
        sum.size += isinf(given) ? 0 : fabs(given);
    }
    return sum;
}

static Sum value(const Extra *e, const Written *row, int64_t s, int64_t j) {
    const la_attention_call *call = &e->attention_call;
    const la_in *F = e->linformer.F.data != NULL ? &e->linformer.F : &e->linformer.E;
    int64_t kv = extra_key_head(e, row->head);
    Sum sum = {0, 0};
    if (e->system == LINFORMER) {
        return shortened(e, F, &call->v, row->b, kv, s, j);
    }
    add_product(&sum, 1, (double)view_row(&call->v, row->b, s, kv)[j]);
    return sum;
}

/* Of s: m, and the largest logit. */
static double largest(const Extra *e, const Written *row, int64_t keys, double *m) {
    double most = -HUGE_VAL;
    int64_t s;
    *m = 0;
    for (s = 0; s < keys; s++) {
        if (e->system == LINFORMER || extra_sees(e, row->b, row->t, s)) {
            Sum sum = logit(e, row, s);
            most = fmax(most, sum.value);
            *m = fmax(*m, sum.size);
        }
    }
    return most;
}

static void attention_answer(const Extra *e, const Written *row, double *want, double *limit) {
    const la_attention *layer = layer_of(e);
    int64_t keys = e->system == LINFORMER ? e->linformer.rank : extra_keys(e, row->b), s, j;
    int softmax = layer->kind == LA_SOFTMAX;
    double m, most = largest(e, row, keys, &m), total = 0;
    double error = 2e-6 + 4e-7 * m;
    error *= e->system == ATTENTION ? 1 : 2;
    if (row->role == OUT) {
        memset(want, 0, (size_t)row->floats * sizeof *want);
        memset(limit, 0, (size_t)row->floats * sizeof *limit);
    }
    for (s = 0; most > -HUGE_VAL && s < keys; s++) {
        double x, w;
        if (e->system != LINFORMER && !extra_sees(e, row->b, row->t, s)) {
            continue;
        }
        x = logit(e, row, s).value;
        w = softmax ? exp(x - most) : 1 / (1 + exp(-(x + (double)layer->bias)));
        total += w;
        for (j = 0; row->role == OUT && j < row->floats; j++) {
            Sum v = value(e, row, s, j);
            want[j] += w * v.value;
            limit[j] += w * v.size;
        }
    }
    if (row->role == LSE) {
        *want = most > -HUGE_VAL ? most + log(total) : most;
        *limit = error + 1e-7 * fabs(*want);
        return;
    }
    for (j = 0; j < row->floats; j++) {
        want[j] /= softmax && total > 0 ? total : 1;
        limit[j] = error * limit[j] / (softmax && total > 0 ? total : 1) + 1e-35;
    }
}

/* ---------------------------------------------------------------- Infini-attention */

/* One head's memory, and the same of absolute terms. */
typedef struct Memory {
    double M[WIDEST * WIDEST], size[WIDEST * WIDEST], z[WIDEST];
} Memory;

static double elu1(float x) {
    return x > 0 ? (double)x + 1 : exp((double)x);
}

/* Column j of M^T f / (z . f), 0 / 0 being 0. */
static Sum recalled(const Extra *e, const Memory *memory, const float *x, int64_t j) {
    int64_t i, dk = e->infini.memory.dim_k;
    double below = 0;
    Sum sum = {0, 0};
    for (i = 0; i < dk; i++) {
        sum.value += memory->M[i * WIDEST + j] * elu1(x[i]);
        sum.size += memory->size[i * WIDEST + j] * elu1(x[i]);
        below += memory->z[i] * elu1(x[i]);
    }
    sum.value /= below > 0 ? below : 1;
    sum.size /= below > 0 ? below : 1;
    return sum;
}

static void remember_state(const Extra *e, Memory *memory, int64_t b, int64_t h) {
    const la_layer *layer = &e->infini.memory;
    const float *state = e->infini_call.state_in;
    int64_t i, j;
    memset(memory, 0, sizeof *memory);
    if (state == NULL) {
        return;
    }
    state = buffer_before(state + b * e->infini_call.state_in_stride);
    for (i = 0; i < layer->dim_k; i++) {
        for (j = 0; j < layer->dim_v; j++) {
            double x = (double)state[oracle_state_index(layer, h, i, j)];
            memory->M[i * WIDEST + j] = x;
            memory->size[i * WIDEST + j] = fabs(x);
        }
        memory->z[i] = (double)state[oracle_state_index(layer, h, i, layer->dim_v)];
    }
}

static const float *infini_row(const Extra *e, const la_in *view, int64_t b, int64_t t, int64_t h) {
    return view_row(view, extra_view_batch(e, b), extra_first(e, b) + t, h);
}

/* The tokens first .. last - 1 are written, all against the memory from before them. */
static void write_segment(const Extra *e, Memory *memory, int64_t b, int64_t h, int64_t kh,
                          int64_t first, int64_t last) {
    static Memory old;
    const la_call *call = &e->infini_call;
    const la_layer *layer = &e->infini.memory;
    int64_t t, i, j;
    old = *memory;
    for (t = first; t < last; t++) {
        const float *k = infini_row(e, &call->k, b, t, kh), *v = infini_row(e, &call->v, b, t, h);
        for (j = 0; j < layer->dim_v; j++) {
            Sum known = recalled(e, &old, k, j);
            double u = (double)v[j], size = fabs(u);
            if (e->infini.write == LA_WRITE_DELTA) {
                u -= known.value;
                size += known.size;
            }
            for (i = 0; i < layer->dim_k; i++) {
                memory->M[i * WIDEST + j] += elu1(k[i]) * u;
                memory->size[i * WIDEST + j] += elu1(k[i]) * size;
            }
        }
        for (i = 0; i < layer->dim_k; i++) {
            memory->z[i] += elu1(k[i]);
        }
    }
}

static double infini_error(const Extra *e, int64_t b) {
    return 4e-6 + 1e-6 * sqrt((double)extra_tokens(e, b));
}

static double dot_size(const Extra *e, const float *q, const float *k, double *size) {
    int64_t i;
    double sum = 0;
    *size = 0;
    for (i = 0; i < e->infini.memory.dim_k; i++) {
        double product = (double)e->infini.scale * (double)q[i] * (double)k[i];
        sum += product;
        *size += fabs(product);
    }
    return sum;
}

/* Softmax within the segment that begins at `first`. */
static void local_answer(const Extra *e, const Written *row, int64_t first, const float *q,
                         int64_t kh, int64_t h, double *want, double *limit) {
    const la_call *call = &e->infini_call;
    int64_t s, j, last = first + e->infini.segment, n = extra_tokens(e, row->b);
    double most = -HUGE_VAL, total = 0, m = 0, size;
    last = last < n ? last : n;
    last = e->infini.bidirectional ? last : row->t + 1;
    for (s = first; s < last; s++) {
        most = fmax(most, dot_size(e, q, infini_row(e, &call->k, row->b, s, kh), &size));
        m = fmax(m, size);
    }
    memset(want, 0, (size_t)row->floats * sizeof *want);
    memset(limit, 0, (size_t)row->floats * sizeof *limit);
    for (s = first; s < last; s++) {
        double w = exp(dot_size(e, q, infini_row(e, &call->k, row->b, s, kh), &size) - most);
        total += w;
        for (j = 0; j < row->floats; j++) {
            double v = (double)infini_row(e, &call->v, row->b, s, h)[j];
            want[j] += w * v;
            limit[j] += w * fabs(v);
        }
    }
    for (j = 0; j < row->floats; j++) {
        want[j] /= total;
        limit[j] *= (2e-6 + 4e-7 * m) / total;
    }
}

static void infini_out(const Extra *e, const Written *row, double *want, double *limit) {
    static Memory memory;
    const la_layer *layer = &e->infini.memory;
    int64_t n = e->infini.segment, first = row->t / n * n, s, j;
    int64_t h = row->head * layer->heads / oracle_out_heads(layer);
    int64_t kh = extra_key_head(e, row->head), qh = row->head;
    const float *q, *beta = infini_row(e, &e->infini_call.beta, row->b, row->t, h);
    double error = infini_error(e, row->b);
    if (layer->q_heads < layer->heads) {
        qh = layer->head_map == LA_TILED ? h % layer->q_heads : h * layer->q_heads / layer->heads;
    }
    q = infini_row(e, &e->infini_call.q, row->b, row->t, qh);
    remember_state(e, &memory, row->b, h);
    for (s = 0; s < first; s += n) {
        write_segment(e, &memory, row->b, h, kh, s, s + n);
    }
    local_answer(e, row, first, q, kh, h, want, limit);
    for (j = 0; j < row->floats; j++) {
        Sum known = recalled(e, &memory, q, j);
        double g = 1 / (1 + exp(-(double)beta[e->infini_call.beta.width == 1 ? 0 : j]));
        want[j] = g * known.value + (1 - g) * want[j];
        limit[j] = g * error * known.size + (1 - g) * limit[j] + 1e-6 * fabs(want[j]) + 1e-30;
    }
}

static void infini_state(const Extra *e, const Written *row, double *want, double *limit) {
    static Memory memory;
    const la_layer *layer = &e->infini.memory;
    int64_t n = extra_tokens(e, row->b), N = e->infini.segment, h, i, j, t;
    double error = infini_error(e, row->b);
    for (h = 0; h < layer->heads; h++) {
        int64_t kh =
            layer->head_map == LA_TILED ? h % layer->k_heads : h * layer->k_heads / layer->heads;
        remember_state(e, &memory, row->b, h);
        for (t = 0; t < n; t += N) {
            write_segment(e, &memory, row->b, h, kh, t, t + N < n ? t + N : n);
        }
        for (i = 0; i < layer->dim_k; i++) {
            for (j = 0; j <= layer->dim_v; j++) {
                int64_t at = oracle_state_index(layer, h, i, j);
                double size = j < layer->dim_v ? memory.size[i * WIDEST + j] : memory.z[i];
                want[at] = j < layer->dim_v ? memory.M[i * WIDEST + j] : memory.z[i];
                limit[at] = error * size + 1e-30;
            }
        }
    }
}

/* ---------------------------------------------------------------- scans */

/* One channel: h of HGRN and, as b, the sum of its absolute terms; or a and b of RWKV-4 relative to
   e^p. `most` is the largest |v| so far. */
typedef struct Channel {
    double a, b, p, most;
} Channel;

static int is_rwkv(const Extra *e) {
    return e->scan.kind == LA_SCAN_RWKV4;
}

static Channel channel_start(const Extra *e, int64_t b, int64_t c) {
    const float *state = e->scan.state_in;
    int64_t C = e->scan.channels;
    Channel x = {0, 0, -HUGE_VAL, 0};
    if (state == NULL) {
        return x;
    }
    state = buffer_before(state + b * extra_state_floats(e));
    x.a = (double)state[c];
    x.b = is_rwkv(e) ? (double)state[C + c] : fabs(x.a);
    x.p = is_rwkv(e) && x.b != 0 ? (double)state[2 * C + c] : -HUGE_VAL;
    x.most = is_rwkv(e) && x.b != 0 ? fabs(x.a / x.b) : 0;
    return x;
}

/* e^x v more to both sums. */
static void gather(Channel *x, double power, double v) {
    double p = fmax(x->p, power), kept = exp(x->p - p), more = exp(power - p);
    if (power > -HUGE_VAL) {
        x->a = (x->p > -HUGE_VAL ? kept * x->a : 0) + more * v;
        x->b = (x->p > -HUGE_VAL ? kept * x->b : 0) + more;
        x->p = p;
    }
}

/* Token t, or, as t = the length, what is left. Answers the output. */
static double channel_at(const Extra *e, int64_t b, int64_t c, int64_t t, Channel *x) {
    double out = 0;
    int64_t s;
    *x = channel_start(e, b, c);
    for (s = 0; s <= t && s < extra_tokens(e, b); s++) {
        double v = (double)view_row(&e->scan.v, b, s, 0)[c];
        double w = (double)view_row(&e->scan.log_decay, b, s, 0)[c];
        x->most = fmax(x->most, fabs(v));
        if (is_rwkv(e)) {
            double k = (double)view_row(&e->scan.k, b, s, 0)[c];
            Channel read = *x;
            gather(&read, k + (double)e->scan.bonus[c], v);
            out = read.b > 0 ? read.a / read.b : 0;
            x->p += w;
            gather(x, k, v);
        } else {
            out = x->a = exp(w) * x->a + v;
            x->b = exp(w) * x->b + fabs(v);
        }
    }
    return out;
}

static double scan_error(const Extra *e, int64_t b) {
    double T = fmax(1, (double)extra_tokens(e, b));
    return fmax(1e-6 * sqrt(T), 6e-8 * T);
}

/* Whatever power the library has its sums relative to, a is to b what it should be; b itself has
   the rounding of the power. */
static void rwkv_state(const Written *row, int64_t C, int64_t c, const Channel *x, double error,
                       double *want, double *limit) {
    double p = (double)row->at[2 * C + c], b = (double)row->at[C + c];
    int empty = b == 0 && (x->b == 0 || x->p == -HUGE_VAL);
    want[C + c] = empty ? 0 : x->b * exp(x->p - p);
    limit[C + c] = (error + 1.2e-7 * fabs(p)) * want[C + c] + 1e-30;
    want[c] = empty ? 0 : x->a / x->b * b;
    limit[c] = error * x->most * b + 1e-30;
    want[2 * C + c] = p;
    limit[2 * C + c] = 0;
}

static void scan_answer(const Extra *e, const Written *row, double *want, double *limit) {
    int64_t C = e->scan.channels, c;
    double error = scan_error(e, row->b);
    Channel x;
    for (c = 0; c < C && row->role == OUT; c++) {
        want[c] = channel_at(e, row->b, c, row->t, &x);
        limit[c] = error * (is_rwkv(e) ? x.most : x.b) + 1e-30;
    }
    for (c = 0; c < C && row->role == STATE_OUT; c++) {
        channel_at(e, row->b, c, extra_tokens(e, row->b), &x);
        want[c] = x.a;
        limit[c] = error * x.b + 1e-30;
        if (is_rwkv(e)) {
            rwkv_state(row, C, c, &x, error, want, limit);
        }
    }
}

void extra_answer(const Extra *e, const Written *row, double *want, double *limit) {
    if (e->system == SCAN) {
        scan_answer(e, row, want, limit);
    } else if (e->system == INFINI && row->role == OUT) {
        infini_out(e, row, want, limit);
    } else if (e->system == INFINI) {
        infini_state(e, row, want, limit);
    } else {
        attention_answer(e, row, want, limit);
    }
}
