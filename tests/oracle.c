#include "oracle.h"

#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the oracle */

int64_t oracle_features(const la_layer *layer) {
    switch (layer->feature) {
    case LA_FEATURE_COSFORMER: return 2 * layer->dim_k;
    case LA_FEATURE_FAVOR:
        return layer->favor_kernel == LA_FAVOR_HYPERBOLIC ? 2 * layer->features : layer->features;
    case LA_FEATURE_DPFP: return 2 * layer->dim_k * layer->nu;
    case LA_FEATURE_TAYLOR: return (layer->dim_k + 1) * (layer->dim_k + 2) / 2;
    case LA_FEATURE_HEDGEHOG:
    case LA_FEATURE_RFF: return 2 * layer->features;
    default: return layer->dim_k;
    }
}

int oracle_projects(const la_layer *layer) {
    return layer->feature == LA_FEATURE_FAVOR || layer->feature == LA_FEATURE_HEDGEHOG ||
           layer->feature == LA_FEATURE_RFF;
}

int oracle_has_maximum(const la_layer *layer) {
    return layer->feature == LA_FEATURE_FAVOR && layer->favor_kernel != LA_FAVOR_RELU;
}

int64_t oracle_out_heads(const la_layer *layer) {
    return layer->q_heads > layer->heads ? layer->q_heads : layer->heads;
}

int64_t oracle_head_floats(const la_layer *layer) {
    int64_t columns = layer->dim_v + (layer->normalised ? 1 : 0);
    return oracle_features(layer) * columns + oracle_has_maximum(layer);
}

int64_t oracle_state_index(const la_layer *layer, int64_t h, int64_t i, int64_t j) {
    int64_t r = oracle_features(layer), dv = layer->dim_v, first = h * oracle_head_floats(layer);
    if (i == r) {
        return first + oracle_head_floats(layer) - 1;
    }
    if (j == dv) {
        return first + r * dv + i;
    }
    return first + (layer->state_layout == LA_KV ? i * dv + j : j * r + i);
}

const float *view_row(const la_in *view, int64_t b, int64_t t, int64_t h) {
    return view->data + (b * view->batch_stride + t * view->token_stride + h * view->head_stride);
}

float *out_row(const la_out *view, int64_t b, int64_t t, int64_t h) {
    return view->data + (b * view->batch_stride + t * view->token_stride + h * view->head_stride);
}

static void skip(la_in *view, int64_t tokens) {
    if (view->data != NULL) {
        view->data += tokens * view->token_stride;
    }
}

void call_skip(la_call *call, int64_t tokens) {
    skip(&call->q, tokens);
    skip(&call->k, tokens);
    skip(&call->v, tokens);
    skip(&call->log_decay, tokens);
    skip(&call->beta, tokens);
    skip(&call->erase, tokens);
    skip(&call->bonus, tokens);
    skip(&call->a, tokens);
    skip(&call->b, tokens);
    skip(&call->skip, tokens);
    skip(&call->out_gate, tokens);
    call->out.data += tokens * call->out.token_stride;
}

static int64_t mapped_head(const la_layer *layer, int64_t h, int64_t heads) {
    return layer->head_map == LA_TILED ? h % heads : h * heads / layer->heads;
}

static int64_t tokens_of(const la_call *call, int64_t b) {
    return call->lengths != NULL ? call->lengths[b] : call->tokens;
}

static int64_t keys_of(const la_layer *layer, const la_call *call, int64_t b) {
    if (!layer->bidirectional) {
        return tokens_of(call, b);
    }
    return call->key_lengths != NULL ? call->key_lengths[b] : call->keys;
}

/* One state, and one query head that reads it. */
typedef struct Head {
    const la_layer *layer;
    const la_call *call;
    int64_t b, state, query, key;
    int round_decay;
    double *S, *z;    /* S[i][j] = S[i * dv + j]; both relative to exp(m)       */
    double *x;        /* the row that features were taken of                    */
    double *features; /* relative to exp(top)                                */
    double *e;        /* what DPLR predicts                                  */
    double m, top;    /* 0 where the features are no exponentials               */
} Head;

/* Row of token t -> head->x, by the L2 norm where the layer has it. */
static void take_row(Head *head, const la_in *view, int64_t t, int64_t h) {
    const float *x = view_row(view, head->b, t, h);
    double sum = 0, eps = (double)head->layer->l2_eps, divisor = 1;
    int64_t i;
    for (i = 0; i < head->layer->dim_k; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    if (head->layer->l2_mode == LA_L2_SUM) {
        divisor = sqrt(sum + eps);
    } else if (head->layer->l2_mode == LA_L2_MAX) {
        divisor = fmax(sqrt(sum), eps);
    }
    for (i = 0; i < head->layer->dim_k; i++) {
        head->x[i] = (double)x[i] / divisor;
    }
}

/* ReLU by comparison, so that a NaN stays one. */
static double positive_part(double x) {
    return x <= 0 ? 0 : x;
}

/* [relu(x) cos(theta), relu(x) sin(theta)], theta = pi position / (2 M). */
static void cosformer_features(Head *head, int64_t t) {
    int64_t i, dk = head->layer->dim_k;
    int64_t position = t + (head->call->positions != NULL ? head->call->positions[head->b] : 0);
    double theta = asin(1) * (double)position / head->layer->horizon;
    for (i = 0; i < dk; i++) {
        head->features[i] = positive_part(head->x[i]) * cos(theta);
        head->features[dk + i] = positive_part(head->x[i]) * sin(theta);
    }
}

/* W (factor x) + b, by the weights of keys or of queries. */
static void project(const Head *head, int query, double factor, double *Wx) {
    const la_layer *layer = head->layer;
    int64_t i, j, m = layer->features, dk = layer->dim_k;
    const float *W = query && layer->q_projection ? layer->q_projection : layer->projection;
    W += head->state * layer->projection_head_stride;
    for (j = 0; j < m; j++) {
        Wx[j] = layer->projection_bias ? (double)W[m * dk + j] : 0;
        for (i = 0; i < dk; i++) {
            Wx[j] += (double)W[j * dk + i] * factor * head->x[i];
        }
    }
}

/* W y and |y|^2 / 2, y = sqrt(scale) x. */
static double favor_project(const Head *head, int query, double *Wy) {
    double half = 0;
    int64_t i;
    project(head, query, sqrt((double)head->layer->scale), Wy);
    for (i = 0; i < head->layer->dim_k; i++) {
        half += (double)head->layer->scale * head->x[i] * head->x[i] / 2;
    }
    return half;
}

/* x' = [relu(x), relu(-x)], block i = x' times x' rolled by i, all over their sum; 0 of 0. */
static void dpfp_features(Head *head) {
    int64_t i, j, n = head->layer->dim_k, r = oracle_features(head->layer);
    double *f = head->features, sum = 0;
    for (i = 0; i < r; i++) {
        int64_t other = i % (2 * n) - (i / (2 * n) + 1) % (2 * n);
        j = i % (2 * n);
        other = other < 0 ? other + 2 * n : other;
        f[i] = positive_part(j < n ? head->x[j] : -head->x[j - n]);
        f[i] *= positive_part(other < n ? head->x[other] : -head->x[other - n]);
        sum += f[i];
    }
    for (i = 0; i < r; i++) {
        f[i] = sum == 0 ? 0 : f[i] / sum;
    }
}

/* 1, y, and y_i y_j once for each pair, of y = sqrt(scale) x: f . f' = 1 + s + s^2 / 2. */
static void taylor_features(Head *head) {
    int64_t i, j, n = head->layer->dim_k;
    double *f = head->features, scale = (double)head->layer->scale;
    *f++ = 1;
    for (i = 0; i < n; i++) {
        *f++ = sqrt(scale) * head->x[i];
    }
    for (i = 0; i < n; i++) {
        for (j = 0; j <= i; j++) {
            *f++ = scale * head->x[i] * head->x[j] / (i == j ? sqrt(2) : 1);
        }
    }
}

/* [softmax(y), softmax(-y)], one softmax of [2y, -2y], or [exp(y - max y), exp(min y - y)]. */
static void hedgehog_features(Head *head, int query) {
    int64_t i, half, m = head->layer->features, parts = 2;
    double *f = head->features;
    project(head, query, 1, f);
    for (i = 0; i < m; i++) {
        f[m + i] = -f[i];
    }
    if (head->layer->hedgehog_kernel == LA_HEDGEHOG_JOINT) {
        parts = 1;
    }
    for (half = 0; half < parts; half++, f += m) {
        int64_t count = 2 * m / parts;
        double top = f[0], sum = 0;
        for (i = 0; i < count; i++) {
            top = f[i] <= top ? top : f[i];
        }
        for (i = 0; i < count; i++) {
            f[i] = exp((parts == 1 ? 2 : 1) * (f[i] - top));
            sum += f[i];
        }
        for (i = 0; i < count; i++) {
            f[i] /= head->layer->hedgehog_kernel == LA_HEDGEHOG_EXP ? 1 : sum;
            f[i] = f[i] < (double)head->layer->feature_eps ? (double)head->layer->feature_eps
                                                           : f[i];
        }
    }
}

/* [cos(W y + b), sin(W y + b)] / sqrt(m), y = sqrt(scale) x. */
static void fourier_features(Head *head, int query) {
    int64_t i, m = head->layer->features;
    double *f = head->features;
    project(head, query, sqrt((double)head->layer->scale), f);
    for (i = 0; i < m; i++) {
        f[m + i] = sin(f[i]) / sqrt((double)m);
        f[i] = cos(f[i]) / sqrt((double)m);
    }
}

/* r^-1/2 (exp(+-W y - |y|^2 / 2) + eps), relative to exp(top): the largest of them and `least`. */
static void favor_features(Head *head, int query, double least) {
    int64_t j, m = head->layer->features, r = oracle_features(head->layer);
    double *f = head->features, half = favor_project(head, query, f);
    double eps = (double)head->layer->feature_eps, top = fmax(least, log(eps));
    if (!oracle_has_maximum(head->layer)) {
        for (j = 0; j < r; j++) {
            f[j] = positive_part(f[j]) + eps;
        }
        return;
    }
    for (j = r; j-- > 0;) {
        f[j] = (j < m ? f[j] : -f[j - m]) - half;
        top = f[j] <= top ? top : f[j];
    }
    for (j = 0; j < r; j++) {
        f[j] = (exp(f[j] - top) + (eps > 0 ? eps * exp(-top) : 0)) / sqrt((double)r);
    }
    head->top = top;
}

/* The features of token t's row; `least` is the least that they may be relative to. */
static void take_features(Head *head, const la_in *view, int64_t t, int64_t h, double least) {
    int64_t i;
    int query = view == &head->call->q;
    take_row(head, view, t, h);
    head->top = 0;
    switch (head->layer->feature) {
    case LA_FEATURE_COSFORMER: cosformer_features(head, t); break;
    case LA_FEATURE_FAVOR: favor_features(head, query, least); break;
    case LA_FEATURE_DPFP: dpfp_features(head); break;
    case LA_FEATURE_TAYLOR: taylor_features(head); break;
    case LA_FEATURE_HEDGEHOG: hedgehog_features(head, query); break;
    case LA_FEATURE_RFF: fourier_features(head, query); break;
    default:
        for (i = 0; i < head->layer->dim_k; i++) {
            double x = head->x[i];
            head->features[i] = head->layer->feature == LA_FEATURE_IDENTITY ? x
                                : x > 0                                     ? x + 1
                                                                            : exp(x);
        }
    }
}

int oracle_scales_inputs(const la_layer *layer) {
    return layer->feature == LA_FEATURE_FAVOR || layer->feature == LA_FEATURE_TAYLOR ||
           layer->feature == LA_FEATURE_RFF;
}

static double decay_of(const Head *head, int64_t t, int64_t i) {
    const la_in *view = &head->call->log_decay;
    double alpha = 1;
    if (view->data != NULL) {
        alpha = exp((double)view_row(view, head->b, t, head->state)[view->width == 1 ? 0 : i]);
    }
    return head->round_decay ? (double)(float)alpha : alpha;
}

/* What was relative to exp(m) becomes so to exp(top); of nothing, m is -inf. */
static void raise_maximum(Head *head) {
    double factor = exp(head->m - head->top);
    int64_t i, r = oracle_features(head->layer);
    for (i = 0; head->top != head->m && i < r * head->layer->dim_v; i++) {
        head->S[i] *= factor;
    }
    for (i = 0; head->top != head->m && i < r; i++) {
        head->z[i] *= factor;
    }
    head->m = head->top;
}

/* Element i of an optional row of this head; 1 where it is absent. */
static double element(const Head *head, const la_in *view, int64_t t, int64_t i) {
    if (view->data == NULL) {
        return 1;
    }
    return (double)view_row(view, head->b, t, head->state)[view->width == 1 ? 0 : i];
}

/* e = S^T a before the decay, for DPLR. */
static void oracle_predict(Head *head, int64_t t) {
    int64_t i, j, dv = head->layer->dim_v;
    for (j = 0; j < dv; j++) {
        head->e[j] = 0;
        for (i = 0; i < head->layer->dim_k; i++) {
            head->e[j] += head->S[i * dv + j] * element(head, &head->call->a, t, i);
        }
    }
}

/* S' = Diag(alpha) S;  u = beta v  or  beta (v - S'^T k)  or, with an erase gate,
   beta v - S'^T (erase k);  S = S' + k u^T, of DPLR + b e^T;  z likewise. */
static void oracle_write(Head *head, int64_t t) {
    int64_t i, j, r = oracle_features(head->layer), dv = head->layer->dim_v;
    const float *v = view_row(&head->call->v, head->b, t, head->state);
    const la_in *beta = &head->call->beta, *erase = &head->call->erase;
    const double *k = head->features;
    double *S = head->S;
    int dplr = head->layer->write == LA_WRITE_DPLR;
    if (dplr) {
        oracle_predict(head, t);
    }
    take_features(head, &head->call->k, t, head->key, head->m);
    raise_maximum(head);
    for (i = 0; i < r; i++) {
        double alpha = decay_of(head, t, i);
        for (j = 0; j < dv; j++) {
            S[i * dv + j] *= alpha;
        }
        head->z[i] = alpha * head->z[i] + k[i];
    }
    for (j = 0; j < dv; j++) {
        double u = (double)v[j] * (erase->data != NULL ? element(head, beta, t, j) : 1);
        for (i = 0; head->layer->write == LA_WRITE_DELTA && i < r; i++) {
            u -= S[i * dv + j] * k[i] * element(head, erase, t, i);
        }
        u *= erase->data == NULL ? element(head, beta, t, j) : 1;
        for (i = 0; i < r; i++) {
            S[i * dv + j] += k[i] * u;
            S[i * dv + j] += dplr ? element(head, &head->call->b, t, i) * head->e[j] : 0;
        }
    }
}

/* Of a token that is read before its write: S + (bonus k) (beta v)^T, without the decay. */
static void oracle_preview(Head *head, int64_t t) {
    int64_t i, j, dv = head->layer->dim_v;
    const float *v = view_row(&head->call->v, head->b, t, head->state);
    take_features(head, &head->call->k, t, head->key, 0);
    for (i = 0; i < head->layer->dim_k; i++) {
        double k = head->features[i] * element(head, &head->call->bonus, t, i);
        for (j = 0; j < dv; j++) {
            double u = element(head, &head->call->beta, t, j) * (double)v[j];
            head->S[i * dv + j] += k * u;
        }
    }
}

/* o = scale S^T q / den. Answers (scale |q| |S| / den)^2 / r: one summand of N^2. */
static double oracle_read(Head *head, int64_t t, double *o) {
    int64_t i, j, r = oracle_features(head->layer), dv = head->layer->dim_v;
    double scale = (double)head->layer->scale, eps = (double)head->layer->eps;
    double qq = 0, SS = 0, den = 0, size;
    const double *q = head->features, *S = head->S;
    take_features(head, &head->call->q, t, head->query, -(double)INFINITY);
    scale = oracle_scales_inputs(head->layer) ? 1 : scale;
    eps = eps > 0 && !isinf(head->m) ? eps * exp(-head->m - head->top) : eps;
    for (i = 0; i < r; i++) {
        qq += q[i] * q[i];
        den += scale * q[i] * head->z[i];
    }
    den = head->layer->eps_mode == LA_EPS_ADD ? den + eps : fmax(den, eps);
    den = head->layer->normalised ? den : 1;
    for (j = 0; j < dv; j++) {
        double sum = 0;
        for (i = 0; i < r; i++) {
            sum += S[i * dv + j] * q[i];
            SS += S[i * dv + j] * S[i * dv + j];
        }
        o[j] = den != 0 ? scale * sum / den : 0;
    }
    size = den != 0 ? scale * sqrt(qq) * sqrt(SS) / den : 0;
    return size * size / (double)r;
}

static double stored(const Head *head, int64_t i, int64_t j) {
    int64_t index = oracle_state_index(head->layer, head->state, i, j);
    return (double)head->call->state_in[head->b * head->call->state_in_stride + index];
}

static void load_state(Head *head) {
    int64_t i, j, dv = head->layer->dim_v, r = oracle_features(head->layer);
    double sum = 0;
    for (i = 0; i < r; i++) {
        for (j = 0; j < dv; j++) {
            head->S[i * dv + j] = head->call->state_in != NULL ? stored(head, i, j) : 0;
        }
        head->z[i] = 0;
        if (head->call->state_in != NULL && head->layer->normalised) {
            head->z[i] = stored(head, i, dv);
        }
        sum += fabs(head->z[i]);
    }
    head->m = 0;
    if (oracle_has_maximum(head->layer)) {
        head->m = sum != 0 ? stored(head, r, dv) : -(double)INFINITY;
    }
}

static void save_state(const Head *head) {
    int64_t r = oracle_features(head->layer), at = r * head->layer->dim_v;
    if (head->layer->normalised) {
        memcpy(head->S + at, head->z, (size_t)r * sizeof *head->z);
        at += r;
    }
    if (oracle_has_maximum(head->layer)) {
        head->S[at] = head->m;
    }
}

/* Read before the write: what is read is only looked at. */
static double oracle_read_first(Head *head, int64_t t, double *o) {
    double *S = head->S, size;
    head->S = calloc((size_t)(head->layer->dim_k * head->layer->dim_v), sizeof *S);
    if (head->S == NULL) {
        abort();
    }
    memcpy(head->S, S, (size_t)(head->layer->dim_k * head->layer->dim_v) * sizeof *S);
    oracle_preview(head, t);
    size = oracle_read(head, t, o);
    free(head->S);
    head->S = S;
    return size;
}

/* y = (o + D v) z / (1 + exp(-z)) for output head j */
static void oracle_finish(const Head *head, int64_t t, int64_t j, double *o) {
    const la_call *call = head->call;
    int64_t i;
    for (i = 0; i < head->layer->dim_v; i++) {
        if (call->skip.data != NULL) {
            double v = (double)view_row(&call->v, head->b, t, head->state)[i];
            o[i] += element(head, &call->skip, t, i) * v;
        }
        if (call->out_gate.data != NULL) {
            double z = (double)view_row(&call->out_gate, head->b, t, j)[i];
            o[i] *= z / (1 + exp(-z));
        }
    }
}

/* Query head j. Causal: write a token, read it, or, if the layer has it so, the other way round.
   Bidirectional: write all, then read all. */
static void oracle_head(Head *head, int64_t j, Oracle *oracle) {
    int64_t t, heads = oracle_out_heads(head->layer), dv = head->layer->dim_v;
    double *out = oracle->out + (head->b * head->call->tokens * heads + j) * dv, size = 0;
    load_state(head);
    for (t = 0; head->layer->bidirectional && t < keys_of(head->layer, head->call, head->b); t++) {
        oracle_write(head, t);
    }
    for (t = 0; t < tokens_of(head->call, head->b); t++) {
        if (head->layer->read == LA_READ_BEFORE) {
            size += oracle_read_first(head, t, out + t * heads * dv);
        }
        if (!head->layer->bidirectional) {
            oracle_write(head, t);
        }
        if (head->layer->read == LA_READ_AFTER) {
            size += oracle_read(head, t, out + t * heads * dv);
        }
        oracle_finish(head, t, j, out + t * heads * dv);
    }
    oracle->size[head->b * heads + j] = sqrt(size);
    save_state(head);
}

void oracle_forward(const la_layer *layer, const la_call *call, Oracle *oracle) {
    int64_t b, j, heads = oracle_out_heads(layer), r = oracle_features(layer);
    double *z = calloc((size_t)(2 * r + layer->dim_k + layer->dim_v), sizeof *z);
    if (z == NULL) {
        abort();
    }
    for (b = 0; b < call->batch; b++) {
        for (j = 0; j < heads; j++) {
            Head head = {layer,
                         call,
                         b,
                         j,
                         j,
                         0,
                         oracle->round_decay,
                         NULL,
                         z,
                         z + 2 * r,
                         z + r,
                         z + 2 * r + layer->dim_k,
                         0,
                         0};
            if (layer->q_heads > layer->heads) {
                head.state = j * layer->heads / layer->q_heads;
            } else {
                head.query = mapped_head(layer, j, layer->q_heads);
            }
            head.key = mapped_head(layer, head.state, layer->k_heads);
            head.S = oracle->state + (b * layer->heads + head.state) * oracle_head_floats(layer);
            oracle_head(&head, j, oracle);
        }
    }
    free(z);
}

/* ---------------------------------------------------------------- ways */

int isa_number(int i, int *isa) {
    for (*isa = LA_ISA_SCALAR; *isa <= LA_ISA_NEON; ++*isa) {
        if (la_isa_available(*isa) && i-- == 0) {
            return 1;
        }
    }
    return 0;
}

int way_number(int i, Way *way) {
    static const int64_t chunks[] = {0, 1, 2, 3, 7, 16, 64, 1000};
    static const int forms[] = {LA_AUTO, LA_PARALLEL, LA_RECURRENT};
    const int others = 3, ways = 3 + 8;
    int form = (i = thinned(i)) % ways;
    way->form = form < others ? forms[form] : LA_CHUNKWISE;
    way->chunk = form < others ? 0 : chunks[form - others];
    way->threads = 1;
    return isa_number(i / ways, &way->isa);
}

/* ---------------------------------------------------------------- tensors */

static float *problem_buffer(Problem *problem, size_t count) {
    float *data = guarded_new(count, problem->spec.shift);
    if (problem->buffer_count == PROBLEM_BUFFERS) {
        abort();
    }
    problem->buffers[problem->buffer_count++] = data;
    return data;
}

static la_in as_input(la_out view) {
    la_in input = {view.data,        view.batch_stride, view.token_stride,
                   view.head_stride, view.width,        view.type};
    return input;
}

/* A tensor [B][T][heads][width] in its own buffer, with the strides that the spec asks for. */
static la_out new_tensor(Problem *problem, int64_t T, int64_t heads, int64_t width) {
    la_out view = {NULL, 0, 0, 0, width, LA_F32};
    Strides strides = problem->spec.strides;
    int64_t gap = strides == STRIDES_PADDED ? 3 : 0, last;
    view.head_stride = width + gap;
    view.token_stride = heads * view.head_stride + gap;
    view.batch_stride = T * view.token_stride + gap;
    last = (heads - 1) * view.head_stride + (T - 1) * view.token_stride;
    view.data = problem_buffer(problem, (size_t)(problem->spec.B * view.batch_stride));
    if (strides == STRIDES_BHTD) {
        view.token_stride = width;
        view.head_stride = T * width;
    } else if (strides == STRIDES_REVERSED && T > 0) {
        view.data += last;
        view.token_stride *= -1;
        view.head_stride *= -1;
    }
    return view;
}

/* q, k and v of a token side by side. */
static void new_packed_tensors(Problem *problem) {
    const la_layer *layer = &problem->layer;
    int64_t q_floats = layer->q_heads * layer->dim_k, k_floats = layer->k_heads * layer->dim_k;
    int64_t token = q_floats + k_floats + layer->heads * layer->dim_v, T = problem->spec.T;
    float *data = problem_buffer(problem, (size_t)(problem->spec.B * T * token));
    la_out view = {data, T * token, token, layer->dim_k, layer->dim_k, LA_F32};
    problem->q = problem->k = problem->v = view;
    problem->k.data = data + q_floats;
    problem->v.data = data + q_floats + k_floats;
    problem->v.width = problem->v.head_stride = layer->dim_v;
}

/* What else the rule has: the erase gate and the bonus, unless Spec.bare, or the vectors of
   DPLR. */
static void new_partners(Problem *problem) {
    const la_layer *layer = &problem->layer;
    la_call *call = &problem->call;
    int64_t S = call->keys, H = layer->heads, dk = layer->dim_k;
    if (problem->spec.variant == LA_GDN2 && !problem->spec.bare) {
        problem->erase = new_tensor(problem, S, H, dk);
    }
    if (layer->read == LA_READ_BEFORE && !problem->spec.bare) {
        problem->bonus = new_tensor(problem, S, H, dk);
    }
    if (layer->read == LA_READ_BEFORE && !problem->spec.token_bonus) {
        problem->bonus.token_stride = problem->bonus.batch_stride = 0;
    }
    if (layer->write == LA_WRITE_DPLR) {
        problem->a = new_tensor(problem, S, H, dk);
        problem->b = new_tensor(problem, S, H, dk);
    }
    call->erase = as_input(problem->erase);
    call->bonus = as_input(problem->bonus);
    call->a = as_input(problem->a);
    call->b = as_input(problem->b);
}

static void new_inputs(Problem *problem) {
    const Spec *spec = &problem->spec;
    const la_layer *layer = &problem->layer;
    int64_t S = problem->call.keys;
    if (spec->strides == STRIDES_QKV) {
        new_packed_tensors(problem);
    } else {
        problem->q = new_tensor(problem, spec->T, layer->q_heads, layer->dim_k);
        problem->k = new_tensor(problem, S, layer->k_heads, layer->dim_k);
        problem->v = new_tensor(problem, S, layer->heads, layer->dim_v);
    }
    if (spec->gate != GATE_NONE) {
        int64_t width = spec->gate_channel ? layer->dim_k : 1;
        problem->log_decay = new_tensor(problem, S, layer->heads, width);
        if (spec->gate == GATE_HEAD) {
            problem->log_decay.token_stride = problem->log_decay.batch_stride = 0;
        }
    }
    if (spec->beta != BETA_NONE) {
        int64_t width = spec->beta == BETA_CHANNEL ? layer->dim_v : 1;
        problem->beta = new_tensor(problem, S, layer->heads, width);
    }
    new_partners(problem);
    if (spec->skip != 0) {
        problem->skip = new_tensor(problem, 1, layer->heads, spec->skip == 2 ? layer->dim_v : 1);
        problem->skip.token_stride = problem->skip.batch_stride = 0;
    }
    if (spec->out_gate) {
        problem->out_gate = new_tensor(problem, spec->T, oracle_out_heads(layer), layer->dim_v);
    }
    problem->call.skip = as_input(problem->skip);
    problem->call.out_gate = as_input(problem->out_gate);
    if (spec->strides == STRIDES_BROADCAST) {
        problem->q.batch_stride = problem->k.head_stride = problem->v.token_stride = 0;
        problem->log_decay.batch_stride = problem->beta.batch_stride = 0;
        problem->a.batch_stride = problem->call.a.batch_stride = 0;
    }
    problem->call.q = as_input(problem->q);
    problem->call.k = as_input(problem->k);
    problem->call.v = as_input(problem->v);
    problem->call.log_decay = as_input(problem->log_decay);
    problem->call.beta = as_input(problem->beta);
}

static void *zeros(size_t count, size_t size) {
    void *data = calloc(count + 1, size);
    if (data == NULL) {
        abort();
    }
    return data;
}

/* ---------------------------------------------------------------- values */

static float small_integer(int limit) {
    return (float)(random_below(2 * limit + 1) - limit);
}

static void fill_any(const Spec *spec, float *x, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i++) {
        x[i] = spec->exact ? small_integer(2) : random_uniform(-1, 1);
    }
}

static void fill_query(const Spec *spec, float *q, int64_t n) {
    int64_t i;
    fill_any(spec, q, n);
    for (i = 0; spec->positive && i < n; i++) {
        q[i] = random_uniform(0.1f, 1);
    }
}

/* Delta rules: beta |k|^2 <= 2 where beta = 2, so |k| = 0.999, and here and there a key of 0, but
   for the last of n keys and where keys are to be positive. */
static void fill_key(const Problem *problem, float *k, int64_t t, int64_t n) {
    int64_t i, dk = problem->layer.dim_k;
    int delta = problem->layer.write == LA_WRITE_DELTA, zero_keys = problem->spec.zero_keys;
    double sum = 0, length;
    int positive = problem->spec.positive, sparse = t % 11 == 4 && t != n - 1 && !positive;
    int zero = sparse || (zero_keys && t >= zero_keys - 1);
    for (i = 0; i < dk; i++) {
        k[i] = random_uniform(positive ? 0.1f : -1, 1);
        if (problem->spec.exact) {
            k[i] = random_below(4) == 0 ? 1 : 0;
            k[i] = random_below(2) == 0 ? k[i] : -k[i];
        }
        sum += (double)k[i] * (double)k[i];
    }
    length = sqrt(sum) / 0.999;
    if (problem->spec.l2_mode != LA_L2_OFF) {
        length = pow(10, (double)random_uniform(-2, 2));
    }
    for (i = 0; i < dk; i++) {
        if (delta && !problem->spec.exact) {
            k[i] = (float)((double)k[i] / length);
        }
        k[i] = zero || (delta && problem->spec.exact) ? 0 : k[i];
    }
    if (delta && problem->spec.exact && !zero) {
        k[random_below((int)dk)] = random_below(2) ? 1 : -1;
    }
}

static float head_gate(const Spec *spec, int64_t h) {
    switch (spec->exact ? 2 * (h % 2) + 2 : h % 5) {
    case 0: return (float)log(1 - pow(2, -5 - (double)h));
    case 1: return -20;
    case 2: return 0;
    case 3: return -1e-6f;
    default: return -INFINITY;
    }
}

/* `halvings` counts those since the last -inf: at most ten keep everything within 24 bits. */
static float exact_gate(int *halvings) {
    int draw = random_below(16);
    if (draw == 0) {
        *halvings = 0;
        return -INFINITY;
    }
    if (draw <= 2 && *halvings + draw <= 8) {
        *halvings += draw;
        return (float)draw * (float)-0.69314718055994530942;
    }
    return 0;
}

static float gate_of(const Spec *spec, int64_t h, int64_t t, int *halvings) {
    static const float mixed[] = {-1000, -30, 0, 0};
    int draw = random_below(8);
    switch (spec->gate) {
    case GATE_HEAD: return head_gate(spec, h);
    case GATE_STRONG: return t % 7 == 6 ? -INFINITY : random_uniform(-20, 0);
    case GATE_ANY: return random_uniform(-1000, 0);
    case GATE_MIXED: return draw < 4 ? mixed[draw] : random_uniform(-0.3f, 0);
    case GATE_EDGES: return t == 0 || t == spec->T - 1 ? -INFINITY : random_uniform(-0.3f, 0);
    case GATE_SLOW: return -(float)pow(10, (double)random_uniform(-7, -5));
    case GATE_ZERO: return 0;
    case GATE_HALVES: return exact_gate(halvings);
    case GATE_FILLED: return spec->gate_value;
    default: return random_uniform(-0.3f, 0);
    }
}

static float beta_of(const Problem *problem, int64_t t, int64_t n) {
    int draw = random_below(8);
    if (problem->spec.exact) {
        return (float)random_below(3);
    }
    if (draw < 3 && t != n - 1) {
        return (float)draw;
    }
    return random_uniform(0.1f, 2);
}

/* a = -kk of length 0.999 and b = lr kk with lr in (0, 1), or, exact, signed unit vectors, of which
   only b is 0 here and there; in general, any with |a| |b| = 0.4. */
static void fill_pair(const Problem *problem, float *a, float *b, int64_t n) {
    double aa = 0, bb = 0;
    int64_t i;
    int general = problem->spec.general;
    for (i = 0; i < n; i++) {
        a[i] = random_uniform(-1, 1);
        b[i] = general ? random_uniform(-1, 1) : -a[i] * random_uniform(0, 1);
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    for (i = 0; i < n; i++) {
        a[i] = (float)((double)a[i] * 0.999 / sqrt(aa));
        b[i] = problem->spec.bare ? 0 : b[i];
        b[i] = (float)((double)b[i] * (general ? 0.4 / sqrt(bb) : 0.999 / sqrt(aa)));
    }
    if (problem->spec.exact) {
        int one = random_below((int)n);
        memset(a, 0, (size_t)n * sizeof *a);
        memset(b, 0, (size_t)n * sizeof *b);
        a[one] = -1;
        b[one] = (float)random_below(2);
    }
}

static void fill_partners(Problem *problem, int64_t b, int64_t h) {
    int64_t t, i, n = keys_of(&problem->layer, &problem->call, b), dk = problem->layer.dim_k;
    int exact = problem->spec.exact;
    for (t = 0; t < n; t++) {
        for (i = 0; problem->erase.data != NULL && i < dk; i++) {
            float x =
                exact ? (float)random_below(3) : random_uniform(0, problem->spec.general ? 2 : 1);
            out_row(&problem->erase, b, t, h)[i] = x;
        }
        for (i = 0; problem->bonus.data != NULL && i < dk; i++) {
            out_row(&problem->bonus, b, t, h)[i] = exact ? small_integer(2) : random_uniform(-2, 2);
        }
        if (problem->a.data != NULL) {
            fill_pair(problem, out_row(&problem->a, b, t, h), out_row(&problem->b, b, t, h), dk);
        }
    }
}

static void fill_gates(Problem *problem, int64_t b, int64_t h) {
    int64_t t, i, n = keys_of(&problem->layer, &problem->call, b);
    for (i = 0; problem->log_decay.data != NULL && i < problem->log_decay.width; i++) {
        int halvings = 0;
        for (t = 0; t < n; t++) {
            float g = gate_of(&problem->spec, h, t, &halvings);
            out_row(&problem->log_decay, b, t, h)[i] = g;
        }
    }
    for (t = 0; problem->beta.data != NULL && t < n; t++) {
        for (i = 0; i < problem->beta.width; i++) {
            out_row(&problem->beta, b, t, h)[i] = beta_of(problem, t, n);
        }
    }
}

static void fill_inputs(Problem *problem) {
    const la_layer *layer = &problem->layer;
    int64_t b, t, h;
    for (b = 0; b < problem->spec.B; b++) {
        int64_t n = keys_of(layer, &problem->call, b);
        for (t = 0; t < tokens_of(&problem->call, b); t++) {
            for (h = 0; h < layer->q_heads; h++) {
                fill_query(&problem->spec, out_row(&problem->q, b, t, h), layer->dim_k);
            }
        }
        for (t = 0; t < n; t++) {
            for (h = 0; h < layer->k_heads; h++) {
                fill_key(problem, out_row(&problem->k, b, t, h), t, n);
            }
            for (h = 0; h < layer->heads; h++) {
                fill_any(&problem->spec, out_row(&problem->v, b, t, h), layer->dim_v);
            }
        }
        for (h = 0; h < layer->heads; h++) {
            fill_gates(problem, b, h);
            fill_partners(problem, b, h);
            if (problem->skip.data != NULL) {
                fill_any(&problem->spec, out_row(&problem->skip, b, 0, h), problem->skip.width);
            }
        }
        for (t = 0; problem->out_gate.data != NULL && t < tokens_of(&problem->call, b); t++) {
            for (h = 0; h < oracle_out_heads(layer); h++) {
                fill_any(&problem->spec, out_row(&problem->out_gate, b, t, h), layer->dim_v);
            }
        }
    }
}

/* ---------------------------------------------------------------- new and free */

static void new_states(Problem *problem) {
    const Spec *spec = &problem->spec;
    la_call *call = &problem->call;
    int64_t gap = spec->strides == STRIDES_PADDED ? 5 : 0;
    int64_t stride = problem->layer.heads * oracle_head_floats(&problem->layer) + gap;
    problem->state_floats = (size_t)(spec->B * stride);
    call->state_in_stride = call->state_out_stride = stride;
    if (spec->states == STATES_NONE) {
        return;
    }
    if (spec->states != STATES_IN) {
        problem->states = call->state_out = problem_buffer(problem, problem->state_floats);
    }
    if (spec->states != STATES_OUT) {
        problem->state_start = problem_buffer(problem, problem->state_floats);
        call->state_in = spec->states == STATES_SAME ? call->state_out : problem->state_start;
    }
}

/* Where features have signs, z is thrice those of a key of 0, which all kernels of the tests are
   positive with. */
static void fill_signed_normaliser(Problem *problem, float *state, int64_t h) {
    const la_layer *layer = &problem->layer;
    float *nothing = zeros((size_t)layer->dim_k, sizeof *nothing);
    la_in view = {nothing, 0, 0, 0, layer->dim_k, LA_F32};
    int64_t i, r = oracle_features(layer);
    double *room = zeros((size_t)(r + layer->dim_k), sizeof *room);
    Head head = {.layer = layer, .call = &problem->call, .state = h, .x = room + r};
    head.features = room;
    take_features(&head, &view, 0, 0, 0);
    for (i = 0; i < r; i++) {
        state[oracle_state_index(layer, h, i, layer->dim_v)] = (float)(3 * head.features[i]);
    }
    free(room);
    free(nothing);
}

/* z is positive, as sums of features are; m is in (-1, 1). */
static void fill_normaliser(Problem *problem, float *state, int64_t h) {
    const la_layer *layer = &problem->layer;
    int64_t i, r = oracle_features(layer);
    if (layer->normalised &&
        (layer->feature == LA_FEATURE_TAYLOR || layer->feature == LA_FEATURE_RFF)) {
        fill_signed_normaliser(problem, state, h);
        return;
    }
    for (i = 0; layer->normalised && i < r; i++) {
        float *z = &state[oracle_state_index(layer, h, i, layer->dim_v)];
        *z = problem->spec.exact ? (float)(1 + random_below(3)) : random_uniform(0.5f, 1.5f);
    }
    if (oracle_has_maximum(layer)) {
        state[oracle_state_index(layer, h, r, 0)] = random_uniform(-1, 1);
    }
}

static void fill_states(Problem *problem) {
    const Spec *spec = &problem->spec;
    float size = spec->state_size != 0 ? spec->state_size : 1;
    int64_t b, h;
    size_t i;
    if (problem->state_start == NULL) {
        return;
    }
    for (i = 0; i < problem->state_floats; i++) {
        problem->state_start[i] = spec->exact ? small_integer(3) : random_uniform(-size, size);
    }
    for (b = 0; b < spec->B; b++) {
        for (h = 0; h < problem->layer.heads; h++) {
            float *state = problem->state_start + b * problem->call.state_in_stride;
            fill_normaliser(problem, state, h);
        }
    }
}

static void take_defaults(Spec *spec) {
    int64_t positions;
    spec->B = spec->B ? spec->B : 1;
    spec->H = spec->H ? spec->H : 1;
    spec->Hq = spec->Hq ? spec->Hq : spec->H;
    spec->Hk = spec->Hk ? spec->Hk : spec->H;
    spec->keys = spec->keys < 0 ? 0 : spec->keys ? spec->keys : spec->T;
    spec->scale = spec->scale != 0 ? spec->scale : 1;
    spec->features = spec->features ? spec->features : 2 * spec->dk + 3;
    spec->nu = spec->nu ? spec->nu : 1;
    positions = (spec->T > spec->keys ? spec->T : spec->keys) + spec->position + 3 * (spec->B - 1);
    spec->horizon = spec->horizon != 0 ? spec->horizon : (double)(positions > 1 ? positions : 1);
}

/* Variance 0.96, so that W y has about that of y; angles of RFF are small enough for a kernel that
   is positive, and so are biases. */
static const float *new_weights(Problem *problem) {
    const Spec *spec = &problem->spec;
    int64_t own = spec->features * (spec->dk + spec->projection_bias), i;
    int64_t floats = own * (spec->head_projections ? spec->H : 1);
    float *weights = problem_buffer(problem, (size_t)floats);
    float size = spec->variant == LA_RFF ? 1.7f / sqrtf((float)spec->dk) : 1.7f;
    problem->layer.projection_head_stride = spec->head_projections ? own : 0;
    for (i = 0; i < floats; i++) {
        int bias = i % own >= spec->features * spec->dk;
        weights[i] = bias ? random_uniform(-0.3f, 0.3f) : random_uniform(-size, size);
    }
    return weights;
}

static void new_projection(Problem *problem) {
    const Spec *spec = &problem->spec;
    la_layer *layer = &problem->layer;
    layer->features = spec->features;
    layer->favor_kernel = spec->favor_kernel;
    layer->hedgehog_kernel = spec->hedgehog_kernel;
    layer->feature_eps = spec->feature_eps;
    layer->projection_bias = spec->projection_bias;
    layer->projection = new_weights(problem);
    layer->q_projection = spec->query_projection ? new_weights(problem) : NULL;
}

static void set_layer(Problem *problem) {
    const Spec *spec = &problem->spec;
    la_layer *layer = &problem->layer;
    layer->q_heads = spec->Hq;
    layer->k_heads = spec->Hk;
    layer->head_map = spec->head_map;
    layer->state_layout = spec->layout;
    layer->l2_mode = spec->l2_mode;
    layer->scale = spec->scale;
    layer->eps = spec->eps;
    layer->eps_mode = spec->eps_mode;
    layer->bidirectional = spec->bidirectional;
    layer->normalised = spec->normalised ? spec->normalised > 0 : layer->normalised;
    if (spec->delta) {
        layer->write = LA_WRITE_DELTA;
        layer->normalised = 0;
    }
    layer->nu = spec->nu;
    if (layer->feature == LA_FEATURE_COSFORMER) {
        layer->horizon = spec->horizon;
    } else if (oracle_projects(layer)) {
        new_projection(problem);
    }
}

/* Lengths and positions of each sequence, where the spec asks for them. */
static void set_sequences(Problem *problem) {
    const Spec *spec = &problem->spec;
    la_call *call = &problem->call;
    int64_t b, T = spec->T, S = spec->keys;
    CHECK(spec->B <= PROBLEM_BATCH, "%d sequences", (int)spec->B);
    for (b = 0; b < spec->B && b < PROBLEM_BATCH; b++) {
        const int64_t lengths[] = {T - T / 3, T / 2, 0, T, T > 0};
        const int64_t keys[] = {S / 3, S, S - S / 4, 0};
        problem->lengths[b] = lengths[b % 5];
        problem->key_lengths[b] = keys[b % 4];
        problem->positions[b] = spec->position + 3 * b;
    }
    call->lengths = spec->ragged ? problem->lengths : NULL;
    call->key_lengths = spec->ragged && spec->bidirectional ? problem->key_lengths : NULL;
    call->positions = spec->position ? problem->positions : NULL;
}

Problem *problem_blank(const Spec *given) {
    Problem *problem = zeros(1, sizeof *problem);
    Spec *spec = &problem->spec;
    la_layer *layer = &problem->layer;
    la_call *call = &problem->call;
    la_status status;
    *spec = *given;
    take_defaults(spec);
    problem->note = "";
    status = la_layer_init(layer, spec->variant, spec->H, spec->dk, spec->dv);
    if (!CHECK(status == LA_OK, "la_layer_init: %s", la_status_text(status))) {
        free(problem);
        return NULL;
    }
    set_layer(problem);
    status = la_call_init(call, layer, spec->B, spec->T);
    CHECK(status == LA_OK, "la_call_init: %s", la_status_text(status));
    call->keys = spec->keys;
    set_sequences(problem);
    new_inputs(problem);
    new_states(problem);
    spec->strides = spec->strides == STRIDES_BROADCAST ? STRIDES_BTHD : spec->strides;
    call->out = new_tensor(problem, spec->T, oracle_out_heads(layer), spec->dv);
    problem->out_start = problem->buffers[problem->buffer_count - 1];
    problem->out_floats = (size_t)(spec->B * (call->out.batch_stride));
    spec->strides = given->strides;
    return problem;
}

Problem *problem_new(const Spec *spec) {
    Problem *problem = problem_blank(spec);
    if (problem != NULL) {
        fill_inputs(problem);
        fill_states(problem);
        problem_oracle(problem);
    }
    return problem;
}

void problem_oracle(Problem *problem) {
    const la_layer *layer = &problem->layer;
    la_call call = problem->call;
    int64_t heads = oracle_out_heads(layer), B = problem->spec.B;
    Oracle *want = &problem->want;
    call.state_in = call.state_in != NULL ? problem->state_start : NULL;
    free(want->out);
    free(want->state);
    free(want->size);
    want->round_decay = problem->spec.exact;
    want->out = zeros((size_t)(B * problem->spec.T * heads * layer->dim_v), sizeof(double));
    want->state = zeros((size_t)(B * layer->heads * oracle_head_floats(layer)), sizeof(double));
    want->size = zeros((size_t)(B * heads), sizeof(double));
    oracle_forward(layer, &call, want);
}

void problem_free(Problem *problem) {
    int i;
    for (i = 0; i < problem->buffer_count; i++) {
        guarded_free(problem->buffers[i]);
    }
    free(problem->want.out);
    free(problem->want.state);
    free(problem->want.size);
    free(problem);
}

/* ---------------------------------------------------------------- run */

const char *problem_text(const Problem *problem) {
    static char text[640];
    static const char *const forms[] = {"auto", "parallel", "recurrent", "chunkwise"};
    const Spec *spec = &problem->spec;
    const char *variant = la_variant_name(spec->variant), *isa = la_isa_name(problem->way.isa);
    snprintf(text, sizeof text,
             "%s: %s B%d T%d H%d/%d/%d %dx%d gate %d(%g)%s beta %d states %d strides %d map %d %s "
             "l2 %d scale %g exact %d normalised %d eps %g (%d) keys %d ragged %d position %d "
             "features %d kernel %d/%d nu %d eps %g per head %d queries' %d bias %d delta %d%s%s%s"
             "%s, %s chunk %d %s threads %d",
             problem->note, variant ? variant : "?", (int)spec->B, (int)spec->T, (int)spec->H,
             (int)spec->Hq, (int)spec->Hk, (int)spec->dk, (int)spec->dv, (int)spec->gate,
             (double)spec->gate_value, spec->gate_channel ? " by channel" : "", (int)spec->beta,
             (int)spec->states, (int)spec->strides, spec->head_map,
             spec->layout == LA_VK ? "vk" : "kv", spec->l2_mode, (double)spec->scale, spec->exact,
             problem->layer.normalised, (double)spec->eps, spec->eps_mode, (int)spec->keys,
             spec->ragged, (int)spec->position, (int)spec->features, spec->favor_kernel,
             spec->hedgehog_kernel, (int)spec->nu, (double)spec->feature_eps,
             spec->head_projections, spec->query_projection, spec->projection_bias, spec->delta,
             spec->bidirectional ? " bidirectional" : "", spec->bare ? " bare" : "",
             spec->general ? " general" : "", spec->token_bonus ? " bonus by token" : "",
             forms[problem->way.form & 3], (int)problem->way.chunk, isa ? isa : "isa auto",
             (int)problem->way.threads);
    return text;
}

/* The text takes longer than the check does. */
static const char *text_unless(int ok, const Problem *problem) {
    return ok ? "" : problem_text(problem);
}

static void prepare_run(Problem *problem, const Way *way) {
    int64_t threads = way->threads > 0 ? way->threads : 1;
    problem->way = *way;
    problem->call.form = way->form;
    problem->call.isa = way->isa;
    problem->call.chunk = way->chunk;
    problem->call.thread_count = threads;
    memset(problem->out_start, 0xff, problem->out_floats * sizeof(float));
    if (problem->states != NULL) {
        memset(problem->states, 0xff, problem->state_floats * sizeof(float));
        if (problem->spec.states == STATES_SAME) {
            memcpy(problem->states, problem->state_start, problem->state_floats * sizeof(float));
        }
    }
}

/* Every thread's slice, one after the other, each with a workspace full of NaN. */
static int run_slices(const Problem *problem, la_call call) {
    const char *field = NULL;
    la_status status = LA_OK;
    for (call.thread_index = 0; call.thread_index < call.thread_count; call.thread_index++) {
        float *workspace;
        call.workspace_size = la_workspace_size(&problem->layer, &call);
        workspace = guarded_new((call.workspace_size + 3) / 4, problem->spec.shift);
        call.workspace = workspace;
        status = la_forward(&problem->layer, &call);
        if (status != LA_OK) {
            la_check(&problem->layer, &call, &field);
        }
        guarded_free(workspace);
        if (!CHECK(status == LA_OK, "%s (%s): %s", la_status_text(status), field ? field : "?",
                   text_unless(status == LA_OK, problem))) {
            return 0;
        }
    }
    return 1;
}

int problem_run(Problem *problem, const Way *way) {
    prepare_run(problem, way);
    return run_slices(problem, problem->call);
}

int problem_run_parts(Problem *problem, const Way *ways, const int64_t *lengths, int count) {
    int64_t positions[PROBLEM_BATCH], b;
    int i, cosformer = problem->layer.feature == LA_FEATURE_COSFORMER;
    la_call call;
    prepare_run(problem, &ways[0]);
    call = problem->call;
    call.positions = cosformer ? positions : NULL;
    for (b = 0; b < problem->spec.B; b++) {
        positions[b] = problem->call.positions != NULL ? problem->call.positions[b] : 0;
    }
    for (i = 0; i < count; i++) {
        call.form = ways[i].form;
        call.chunk = ways[i].chunk;
        call.tokens = call.keys = lengths[i];
        if (!run_slices(problem, call)) {
            return 0;
        }
        call_skip(&call, lengths[i]);
        for (b = 0; b < problem->spec.B; b++) {
            positions[b] += lengths[i];
        }
    }
    return 1;
}

int problem_run_split(Problem *problem, const Way *way, const int64_t *lengths, int count) {
    Way *ways = zeros((size_t)count, sizeof *ways);
    int i, ok;
    for (i = 0; i < count; i++) {
        ways[i] = *way;
    }
    ok = problem_run_parts(problem, ways, lengths, count);
    free(ways);
    return ok;
}

/* ---------------------------------------------------------------- compare */

/* A reflection at one key over and over, which the manual excepts: beta next to 2. */
static int reflects(const la_layer *layer, const la_call *call, int64_t b, int64_t t, int64_t h) {
    int64_t kh =
        layer->head_map == LA_TILED ? h % layer->k_heads : h * layer->k_heads / layer->heads;
    if (layer->write != LA_WRITE_DELTA || call->beta.data == NULL || t == 0 ||
        view_row(&call->beta, b, t, h)[0] < 1.9f) {
        return 0;
    }
    return memcmp(view_row(&call->k, b, t, kh), view_row(&call->k, b, t - 1, kh),
                  (size_t)layer->dim_k * sizeof(float)) == 0;
}

double promise_1(const la_layer *layer, const la_call *call, int64_t b, int64_t h) {
    int64_t t, i, n = keys_of(layer, call, b), m = tokens_of(call, b);
    double T = (double)(n > m ? n : m), c = 1e-6 * sqrt(T);
    const la_in *view = &call->log_decay;
    c = fmax(c, 5e-8 * sqrt((double)oracle_features(layer)));
    c = oracle_projects(layer) ? fmax(c, 5e-6) : c;
    for (t = 0; t < n; t++) {
        c = reflects(layer, call, b, t, h) ? fmax(c, 5e-7 * T) : c;
    }
    for (t = 0; view->data != NULL && t < n; t++) {
        for (i = 0; i < view->width; i++) {
            float g = view_row(view, b, t, h)[i];
            if (g > -1e-5f && g < 0) {
                return fmax(c, 6e-8 * T);
            }
        }
    }
    return c;
}

/* |o - o64|_2 <= c max(|o64|_2, N) over all tokens of one sequence and query head. */
static int check_head(const Problem *problem, int64_t b, int64_t j) {
    const la_layer *layer = &problem->layer;
    int64_t heads = oracle_out_heads(layer), dv = layer->dim_v, T = problem->call.tokens, t, i;
    int64_t h = layer->q_heads > layer->heads ? j * layer->heads / layer->q_heads : j;
    int64_t worst_t = 0, worst_i = 0;
    int ok;
    double error = 0, size = 0, worst = -1, c = promise_1(layer, &problem->call, b, h), limit;
    const double *want = problem->want.out + (b * T * heads + j) * dv;
    for (t = 0; t < tokens_of(&problem->call, b); t++) {
        const float *got = out_row(&problem->call.out, b, t, j);
        for (i = 0; i < dv; i++) {
            double o = want[t * heads * dv + i], difference = fabs((double)got[i] - o);
            error += difference * difference;
            size += o * o;
            if (!isnan(worst) && !(difference <= worst)) {
                worst = difference;
                worst_t = t;
                worst_i = i;
            }
        }
    }
    limit = c * fmax(sqrt(size), problem->want.size[b * heads + j]);
    ok = sqrt(error) <= limit;
    return CHECK(ok,
                 "%s: |o - o64| = %g, limit %g (|o64| %g, N %g); worst o[b %d][t %d][h %d][%d]: "
                 "got %.9g, want %.9g",
                 text_unless(ok, problem), sqrt(error), limit, sqrt(size),
                 problem->want.size[b * heads + j], (int)b, (int)worst_t, (int)j, (int)worst_i,
                 T ? (double)out_row(&problem->call.out, b, worst_t, j)[worst_i] : 0,
                 T ? want[worst_t * heads * dv + worst_i] : 0);
}

static double final_state(const Problem *problem, int64_t b, int64_t h, int64_t i, int64_t j) {
    int64_t index = oracle_state_index(&problem->layer, h, i, j);
    return (double)problem->states[b * problem->call.state_out_stride + index];
}

/* What makes S and z relative to the oracle's maximum. */
static double final_factor(const Problem *problem, int64_t b, int64_t h) {
    const la_layer *layer = &problem->layer;
    int64_t floats = oracle_head_floats(layer);
    double m = problem->want.state[(b * layer->heads + h + 1) * floats - 1];
    if (!oracle_has_maximum(layer) || isinf(m)) {
        return 1;
    }
    return exp(final_state(problem, b, h, oracle_features(layer), 0) - m);
}

/* |S - S64|_F <= c |S64|_F. Columns first .. last - 1: S is 0 .. dv - 1, z is dv. */
static int check_state(const Problem *problem, int64_t b, int64_t h, int64_t first, int64_t last) {
    const la_layer *layer = &problem->layer;
    int64_t r = oracle_features(layer), dv = layer->dim_v, i, j, worst_i = 0, worst_j = first;
    double error = 0, size = 0, worst = -1, worst_want = 0, factor = final_factor(problem, b, h);
    int ok;
    double c = promise_1(layer, &problem->call, b, h);
    const double *want = problem->want.state + (b * layer->heads + h) * oracle_head_floats(layer);
    for (i = 0; i < r; i++) {
        for (j = first; j < last; j++) {
            double s = j < dv ? want[i * dv + j] : want[r * dv + i];
            double difference = fabs(factor * final_state(problem, b, h, i, j) - s);
            error += difference * difference;
            size += s * s;
            if (!isnan(worst) && !(difference <= worst)) {
                worst = difference;
                worst_i = i;
                worst_j = j;
                worst_want = s;
            }
        }
    }
    ok = sqrt(error) <= c * sqrt(size);
    return CHECK(ok,
                 "%s: |S - S64| = %g, limit %g (|S64| %g); worst S[b %d][h %d][%d][%d]: "
                 "got %.9g, want %.9g",
                 text_unless(ok, problem), sqrt(error), c * sqrt(size), sqrt(size), (int)b, (int)h,
                 (int)worst_i, (int)worst_j, factor * final_state(problem, b, h, worst_i, worst_j),
                 worst_want);
}

/* Gaps between padded rows, and rows beyond a length, must still hold prepare_run's NaN. */
static int check_gaps(const Problem *problem) {
    size_t i, written = 0, want = 0, row_floats;
    int64_t b;
    row_floats = (size_t)(oracle_out_heads(&problem->layer) * problem->layer.dim_v);
    for (b = 0; b < problem->spec.B; b++) {
        want += (size_t)tokens_of(&problem->call, b) * row_floats;
    }
    for (i = 0; i < problem->out_floats; i++) {
        written += isnan(problem->out_start[i]) ? 0 : 1;
    }
    return CHECK(written == want, "%s: %zu numbers in the output, want %zu",
                 text_unless(written == want, problem), written, want);
}

int problem_check(Problem *problem) {
    int64_t b, h, dv = problem->layer.dim_v;
    int ok = check_gaps(problem);
    for (b = 0; b < problem->spec.B; b++) {
        for (h = 0; h < oracle_out_heads(&problem->layer); h++) {
            ok &= check_head(problem, b, h);
        }
        for (h = 0; problem->states != NULL && h < problem->layer.heads; h++) {
            ok &= check_state(problem, b, h, 0, dv);
            if (problem->layer.normalised) {
                ok &= check_state(problem, b, h, dv, dv + 1);
            }
        }
    }
    return ok;
}

static int check_exact_out(const Problem *problem) {
    int64_t heads = oracle_out_heads(&problem->layer), dv = problem->layer.dim_v;
    int64_t b, t, h, i, T = problem->call.tokens;
    const double *want;
    for (b = 0; b < problem->spec.B; b++) {
        want = problem->want.out + b * T * heads * dv;
        for (t = 0; t < tokens_of(&problem->call, b); t++) {
            for (h = 0; h < heads; h++) {
                const float *got = out_row(&problem->call.out, b, t, h);
                for (i = 0; i < dv; i++, want++) {
                    if ((double)got[i] != *want) {
                        return CHECK(0, "%s: o[b %d][t %d][h %d][%d]: got %.9g, want %.17g",
                                     problem_text(problem), (int)b, (int)t, (int)h, (int)i,
                                     (double)got[i], *want);
                    }
                }
            }
        }
    }
    return CHECK(1, "equal");
}

static int check_exact_state(const Problem *problem) {
    const la_layer *layer = &problem->layer;
    int64_t b, h, i, j, r = oracle_features(layer), dv = layer->dim_v;
    for (b = 0; b < problem->spec.B; b++) {
        for (h = 0; h < layer->heads; h++) {
            int64_t first = (b * layer->heads + h) * oracle_head_floats(layer);
            for (i = 0; i < r; i++) {
                for (j = 0; j < dv + (layer->normalised ? 1 : 0); j++) {
                    int64_t at = first + (j < dv ? i * dv + j : r * dv + i);
                    double got = final_state(problem, b, h, i, j);
                    if (got != problem->want.state[at]) {
                        return CHECK(0, "%s: S[b %d][h %d][%d][%d]: got %.9g, want %.17g",
                                     problem_text(problem), (int)b, (int)h, (int)i, (int)j, got,
                                     problem->want.state[at]);
                    }
                }
            }
        }
    }
    return CHECK(1, "equal");
}

int problem_check_exact(Problem *problem) {
    int ok = check_exact_out(problem);
    return (problem->states == NULL || check_exact_state(problem)) && ok;
}

void problem_all_ways(const Spec *spec, const char *note) {
    Problem *problem = problem_new(spec);
    Way way;
    int i;
    if (problem == NULL) {
        return;
    }
    problem->note = note;
    for (i = 0; way_number(i, &way); i++) {
        if (problem_run(problem, &way)) {
            (void)(spec->exact ? problem_check_exact(problem) : problem_check(problem));
        }
    }
    problem_free(problem);
}

float *problem_copy_out(const Problem *problem, size_t *count) {
    int64_t heads = oracle_out_heads(&problem->layer), b, t, h;
    size_t dv = (size_t)problem->layer.dim_v;
    float *copy, *row;
    *count = (size_t)(problem->spec.B * problem->call.tokens * heads) * dv;
    copy = row = zeros(*count, sizeof *copy);
    for (b = 0; b < problem->spec.B; b++) {
        for (t = 0; t < problem->call.tokens; t++) {
            for (h = 0; h < heads; h++, row += dv) {
                memcpy(row, out_row(&problem->call.out, b, t, h), dv * sizeof *row);
            }
        }
    }
    return copy;
}

float *problem_copy_state(const Problem *problem, size_t *count) {
    int64_t b, floats = problem->layer.heads * oracle_head_floats(&problem->layer);
    float *copy;
    *count = (size_t)(problem->spec.B * floats);
    copy = zeros(*count, sizeof *copy);
    for (b = 0; problem->states != NULL && b < problem->spec.B; b++) {
        memcpy(copy + b * floats, problem->states + b * problem->call.state_out_stride,
               (size_t)floats * sizeof *copy);
    }
    return copy;
}
