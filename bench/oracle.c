/* Float64 recurrences from the formulas of the library's manual, for the check: one token after the
 * other, nothing clever. FAVOR+ needs no maximum here: the bench's exponents are small. */
#include "units.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct head {
    unit at;
    int64_t r, dv;  /* of the state */
    double *S, *z;  /* [r][dv], [r] */
    double *f, *u;  /* features of one row, what a token writes */
    double *e;      /* of DPLR: what it writes with b */
    double squares; /* |S|^2 */
    double *out, *size;
} head;

static void favor_features(const head *s, const float *x) {
    const double root = sqrt((double)bench_scale(s->at.row));
    const int64_t dk = s->at.row->dim_k;
    int64_t i, j;
    for (j = 0; j < s->r; ++j) {
        const float *w = s->at.data->projection + j * dk;
        double y = 0.0;
        for (i = 0; i < dk; ++i)
            y += root * (double)x[i] * ((double)w[i] - root * (double)x[i] / 2.0);
        s->f[j] = exp(y) / sqrt((double)s->r);
    }
}

/* y = W x, then softmax of y and of -y, or the cosines and sines of sqrt(scale) y */
static void projected_features(const head *s, const float *x) {
    const bench_row *row = s->at.row;
    const int64_t dk = row->dim_k, m = row->features;
    const double root = sqrt((double)bench_scale(row));
    double plus = 0.0, minus = 0.0;
    int64_t i, j;
    for (j = 0; j < m; ++j) {
        double y = 0.0;
        for (i = 0; i < dk; ++i) y += (double)s->at.data->projection[j * dk + i] * (double)x[i];
        s->f[j] = row->variant == LA_RFF ? cos(root * y) / sqrt((double)m) : exp(y);
        s->f[m + j] = row->variant == LA_RFF ? sin(root * y) / sqrt((double)m) : exp(-y);
        plus += s->f[j];
        minus += s->f[m + j];
    }
    for (j = 0; row->variant == LA_HEDGEHOG && j < m; ++j) {
        s->f[j] /= plus;
        s->f[m + j] /= minus;
    }
}

/* [relu(x), relu(-x)] times the same one place further, over their sum */
static void dpfp_features(const head *s, const float *x) {
    const int64_t n = s->at.row->dim_k;
    double sum = 0.0;
    int64_t i;
    for (i = 0; i < 2 * n; ++i) {
        const int64_t before = (i + 2 * n - 1) % (2 * n);
        const double a = i < n ? (double)x[i] : -(double)x[i - n];
        const double b = before < n ? (double)x[before] : -(double)x[before - n];
        s->f[i] = a > 0.0 && b > 0.0 ? a * b : 0.0;
        sum += s->f[i];
    }
    for (i = 0; i < 2 * n; ++i) s->f[i] /= sum;
}

/* f . f' = 1 + s + s^2 / 2 */
static void taylor_features(const head *s, const float *x) {
    const double scale = (double)bench_scale(s->at.row);
    const int64_t n = s->at.row->dim_k;
    double *f = s->f;
    int64_t i, j;
    *f++ = 1.0;
    for (i = 0; i < n; ++i) *f++ = sqrt(scale) * (double)x[i];
    for (i = 0; i < n; ++i)
        for (j = 0; j <= i; ++j)
            *f++ = scale * (double)x[i] * (double)x[j] * (i == j ? sqrt(0.5) : 1.0);
}

static void features(const head *s, const float *x, int64_t t) {
    const bench_row *row = s->at.row;
    const double theta = asin(1.0) * (double)t / (double)row->tokens;
    const int64_t dk = row->dim_k;
    int64_t i;
    switch (row->variant) {
    case LA_FAVOR: favor_features(s, x); return;
    case LA_DPFP: dpfp_features(s, x); return;
    case LA_BASED: taylor_features(s, x); return;
    case LA_HEDGEHOG:
    case LA_RFF: projected_features(s, x); return;
    default: break;
    }
    for (i = 0; i < dk; ++i) {
        const double xi = (double)x[i], positive = xi > 0.0 ? xi : 0.0;
        s->f[i] = xi;
        if (row->variant == LA_ELU) s->f[i] = xi > 0.0 ? xi + 1.0 : exp(xi);
        if (row->variant == LA_COSFORMER) {
            s->f[i] = positive * cos(theta);
            s->f[dk + i] = positive * sin(theta);
        }
    }
}

/* of row i of the state at token t */
static double decay(const head *s, int64_t t, int64_t i) {
    const float *g = gate(&s->at, t);
    return g ? exp((double)g[s->at.row->decay == BENCH_CHANNEL ? i : 0]) : 1.0;
}

/* e = S^T a, of the state before it decays */
static void predict(head *s, int64_t t) {
    const float *a = partner(&s->at, s->at.data->a, t);
    int64_t i, j;
    for (j = 0; j < s->dv; ++j) s->e[j] = 0.0;
    for (i = 0; i < s->r; ++i)
        for (j = 0; j < s->dv; ++j) s->e[j] += (double)a[i] * s->S[i * s->dv + j];
}

/* S += b e^T */
static void write_first(head *s, int64_t t) {
    const float *b = partner(&s->at, s->at.data->b, t);
    int64_t i, j;
    for (i = 0; i < s->r; ++i)
        for (j = 0; j < s->dv; ++j) s->S[i * s->dv + j] += (double)b[i] * s->e[j];
}

/* u = v - S^T (erase k), S being decayed; the write's own gate is none here */
static void erase(head *s, int64_t t) {
    const float *gates = partner(&s->at, s->at.data->erase, t);
    int64_t i, j;
    for (j = 0; j < s->dv; ++j) s->u[j] *= (double)beta(&s->at, t);
    for (i = 0; i < s->r; ++i)
        for (j = 0; j < s->dv; ++j) s->u[j] -= (double)gates[i] * s->f[i] * s->S[i * s->dv + j];
}

static void write_token(head *s, int64_t t) {
    const int erases = bench_erases(s->at.row), delta = bench_is_delta(s->at.row) && !erases;
    const int has_beta = bench_has_beta(s->at.row) && !erases, dplr = bench_is_dplr(s->at.row);
    const float *v = value(&s->at, t);
    int64_t i, j;
    if (dplr) predict(s, t);
    features(s, key(&s->at, t), t);
    for (j = 0; j < s->dv; ++j) s->u[j] = (double)v[j];
    for (i = 0; i < s->r; ++i) {
        const double alpha = decay(s, t, i);
        s->z[i] = alpha * s->z[i] + s->f[i];
        for (j = 0; j < s->dv; ++j) s->S[i * s->dv + j] *= alpha;
        for (j = 0; delta && j < s->dv; ++j) s->u[j] -= s->f[i] * s->S[i * s->dv + j];
    }
    if (dplr) write_first(s, t);
    if (erases) erase(s, t);
    for (j = 0; has_beta && j < s->dv; ++j) s->u[j] *= (double)beta(&s->at, t);
    s->squares = 0.0;
    for (i = 0; i < s->r; ++i)
        for (j = 0; j < s->dv; ++j) {
            double *S = &s->S[i * s->dv + j];
            *S += s->f[i] * s->u[j];
            s->squares += *S * *S;
        }
}

/* for query head `n` of those that read the state; NaN where nothing is promised: a denominator so
 * small that float32 may not hold it */
static void read_token(const head *s, int64_t t, int64_t n) {
    const bench_row *row = s->at.row;
    const int64_t at = output_row(&s->at, t) + n;
    double *out = s->out + at * s->dv, factor = 1.0, sum = 0.0, squares = 0.0;
    int64_t i, j;
    features(s, query(&s->at, t) + n * row->dim_k, t);
    for (i = 0; i < s->r; ++i) {
        sum += s->z[i] * s->f[i];
        squares += s->f[i] * s->f[i];
    }
    if (row->variant != LA_FAVOR && row->variant != LA_BASED && row->variant != LA_RFF)
        factor = (double)bench_scale(row);
    if (bench_is_normalised(row)) factor = sum >= 1e-30 ? 1.0 / sum : sum > 0.0 ? (double)NAN : 0.0;
    s->size[at] = factor * factor * squares * s->squares / (double)s->r;
    for (j = 0; j < s->dv; ++j) out[j] = 0.0;
    for (i = 0; i < s->r; ++i)
        for (j = 0; j < s->dv; ++j) out[j] += factor * s->f[i] * s->S[i * s->dv + j];
}

/* q . (bonus k) v: what is read of the token itself, where that comes before its write. It
 * counts in the size of the output. */
static void add_bonus(const head *s, int64_t t, int64_t n) {
    const bench_row *row = s->at.row;
    const float *q = query(&s->at, t) + n * row->dim_k, *k = key(&s->at, t), *v = value(&s->at, t);
    const float *bonus = s->at.data->bonus + s->at.h * row->dim_k;
    const int64_t at = output_row(&s->at, t) + n;
    double score = 0.0, q_squares = 0.0, k_squares = 0.0, v_squares = 0.0;
    int64_t i;
    for (i = 0; i < row->dim_k; ++i) {
        const double x = (double)bonus[i] * (double)k[i], scaled = (double)bench_scale(row);
        score += scaled * (double)q[i] * x;
        q_squares += scaled * scaled * (double)q[i] * (double)q[i];
        k_squares += x * x;
    }
    for (i = 0; i < s->dv; ++i) {
        s->out[at * s->dv + i] += score * (double)v[i];
        v_squares += (double)v[i] * (double)v[i];
    }
    s->size[at] += q_squares * k_squares * v_squares / (double)s->r;
}

static void recur_token(head *s, int64_t t) {
    const int first = bench_reads_first(s->at.row);
    int64_t n;
    if (!first) write_token(s, t);
    for (n = 0; n < s->at.queries; ++n) {
        read_token(s, t, n);
        if (first) add_bonus(s, t, n);
    }
    if (first) write_token(s, t);
}

static void recur(head *s, int passes) {
    int64_t t;
    for (; passes > 0; --passes)
        for (t = 0; t < s->at.row->tokens; ++t) recur_token(s, t);
}

/* ---- extras ---------------------------------------------------------------------------------- */

int bench_oracle_token(const bench_row *row, int64_t token) {
    return bench_has_state(row) || token % (row->tokens / 64 + 1) == 0 || token == row->tokens - 1;
}

static double dot(const float *x, const float *y, int64_t n) {
    double sum = 0.0;
    int64_t i;
    for (i = 0; i < n; ++i) sum += (double)x[i] * (double)y[i];
    return sum;
}

static double *doubles(int64_t count) {
    return bench_allocate((size_t)count * sizeof(double));
}

/* of query head n at token t and the keys first .. t; what their sum is to be divided by */
static double weigh(const unit *s, int64_t t, int64_t n, int64_t first, int sigmoid, double *w) {
    const bench_row *row = s->row;
    const float *q = query(s, t) + n * row->dim_k;
    double sum = 0.0;
    int64_t i;
    for (i = first; i <= t; ++i) {
        const double score = (double)bench_scale(row) * dot(q, key(s, i), row->dim_k);
        w[i] = sigmoid ? 1.0 / (1.0 + exp(-score - (double)bench_bias(row))) : exp(score);
        sum += w[i];
    }
    return sigmoid ? 1.0 : sum;
}

/* out = sum of w_i v_i / sum, first <= i <= t */
static void average(const unit *s, int64_t t, int64_t first, const double *w, double sum,
                    double *out) {
    int64_t i, j;
    for (j = 0; j < s->row->dim_v; ++j) out[j] = 0.0;
    for (i = first; i <= t; ++i)
        for (j = 0; j < s->row->dim_v; ++j) out[j] += w[i] / sum * (double)value(s, i)[j];
}

void bench_oracle_attention(const unit *s, int passes, double *out, double *size) {
    const int sigmoid = bench_extra_of(s->row)->kind == LA_SIGMOID;
    double *w = doubles(s->row->tokens);
    int64_t t, n;
    (void)passes;
    for (t = 0; t < s->row->tokens; ++t)
        for (n = 0; n < s->queries && bench_oracle_token(s->row, t); ++n) {
            const int64_t at = output_row(s, t) + n;
            const double sum = weigh(s, t, n, 0, sigmoid, w);
            average(s, t, 0, w, sum, out + at * s->row->dim_v);
            size[at] = 0.0;
        }
    free(w);
}

/* Of one head M [dk][dv] and z [dk], as they were before the segment, and what the segment adds:
 * u [N][dv]. Room for weights of the segment's keys. */
typedef struct infini {
    const unit *s;
    double *M, *z, *u, *f, *w;
} infini;

static void elu(const float *x, int64_t n, double *f) {
    int64_t i;
    for (i = 0; i < n; ++i) f[i] = x[i] > 0.0f ? (double)x[i] + 1.0 : exp((double)x[i]);
}

/* y = share M^T f / (z . f), f = elu + 1 of x; its size without cancellation */
static double recall(const infini *m, const float *x, double share, double *y) {
    const int64_t dk = m->s->row->dim_k, dv = m->s->row->dim_v;
    double sum = 0.0, f_squares = 0.0, squares = 0.0;
    int64_t i, j;
    elu(x, dk, m->f);
    for (j = 0; j < dv; ++j) y[j] = 0.0;
    for (i = 0; i < dk; ++i) sum += m->z[i] * m->f[i];
    if (sum == 0.0) return 0.0;
    for (i = 0; i < dk; ++i) {
        f_squares += m->f[i] * m->f[i];
        for (j = 0; j < dv; ++j) {
            const double M = m->M[i * dv + j];
            squares += M * M;
            y[j] += share * m->f[i] / sum * M;
        }
    }
    return share * share * f_squares * squares / (sum * sum * (double)dk);
}

/* for query head n at token t of a segment that began with token `first` */
static void read_both(const infini *m, int64_t t, int64_t n, int64_t first, double *out,
                      double *size) {
    const unit *s = m->s;
    const int64_t dv = s->row->dim_v, at = output_row(s, t) + n;
    const double share = 1.0 / (1.0 + exp(-(double)bench_weight(s->row, s->data, 0)[s->h]));
    const double sum = weigh(s, t, n, first, 0, m->w);
    double *y = m->u;
    int64_t j;
    average(s, t, first, m->w, sum, out + at * dv);
    size[at] = recall(m, query(s, t) + n * s->row->dim_k, share, y);
    for (j = 0; j < dv; ++j) out[at * dv + j] = (1.0 - share) * out[at * dv + j] + y[j];
}

/* the tokens of a segment, all with what the memory was before it */
static void write_segment(const infini *m, int64_t first, int64_t end) {
    const unit *s = m->s;
    const int64_t dk = s->row->dim_k, dv = s->row->dim_v;
    const int delta = bench_extra_of(s->row)->kind == LA_WRITE_DELTA;
    int64_t t, i, j;
    for (t = first; t < end; ++t) {
        double *u = m->u + (t - first) * dv;
        recall(m, key(s, t), 1.0, u);
        for (j = 0; j < dv; ++j) u[j] = (double)value(s, t)[j] - (delta ? u[j] : 0.0);
    }
    for (t = first; t < end; ++t) {
        elu(key(s, t), dk, m->f);
        for (i = 0; i < dk; ++i) {
            m->z[i] += m->f[i];
            for (j = 0; j < dv; ++j) m->M[i * dv + j] += m->f[i] * m->u[(t - first) * dv + j];
        }
    }
}

void bench_oracle_infini(const unit *s, int passes, double *out, double *size) {
    const int64_t T = s->row->tokens, N = s->row->chunk, dk = s->row->dim_k, dv = s->row->dim_v;
    double *room = doubles(dk * dv + 2 * dk + N * dv + T);
    int64_t t, n, first;
    infini m;
    m.s = s;
    m.M = room;
    m.z = m.M + dk * dv;
    m.f = m.z + dk;
    m.u = m.f + dk;
    m.w = m.u + N * dv;
    for (; passes > 0; --passes)
        for (first = 0; first < T; first += N) {
            const int64_t end = first + N < T ? first + N : T;
            for (t = first; t < end; ++t)
                for (n = 0; n < s->queries; ++n) read_both(&m, t, n, first, out, size);
            write_segment(&m, first, end);
        }
    free(room);
}

/* to [k][width] += x_t [width] times row t of E [T][k] */
static void compress(const float *E, int64_t k, const float *x, int64_t width, double *to) {
    int64_t i, j;
    for (i = 0; i < k; ++i)
        for (j = 0; j < width; ++j) to[i * width + j] += (double)E[i] * (double)x[j];
}

/* of query head n at token t, to K' [k][dk] and V' [k][dv]; the square of the size without
 * cancellation */
static double attend_few(const unit *s, int64_t t, int64_t n, const double *K, const double *V,
                         double *out) {
    const int64_t k = s->row->features, dk = s->row->dim_k, dv = s->row->dim_v;
    const float *q = query(s, t) + n * dk;
    double sum = 0.0, squares = 0.0;
    int64_t i, j;
    for (j = 0; j < dv; ++j) out[j] = 0.0;
    for (i = 0; i < k; ++i) {
        double score = 0.0, w;
        for (j = 0; j < dk; ++j) score += (double)q[j] * K[i * dk + j];
        sum += w = exp((double)bench_scale(s->row) * score);
        for (j = 0; j < dv; ++j) {
            out[j] += w * V[i * dv + j];
            squares += w * w * V[i * dv + j] * V[i * dv + j];
        }
    }
    for (j = 0; j < dv; ++j) out[j] /= sum;
    return squares / (sum * sum);
}

void bench_oracle_linformer(const unit *s, int passes, double *out, double *size) {
    const int64_t k = s->row->features, dk = s->row->dim_k, dv = s->row->dim_v;
    const float *E = bench_weight(s->row, s->data, 0), *F = bench_weight(s->row, s->data, 1);
    double *K = doubles(k * (dk + dv)), *V = K + k * dk;
    int64_t t, n;
    (void)passes;
    for (t = 0; t < s->row->tokens; ++t) {
        compress(E + t * k, k, key(s, t), dk, K);
        compress(F + t * k, k, value(s, t), dv, V);
    }
    for (t = 0; t < s->row->tokens; ++t)
        for (n = 0; n < s->queries && bench_oracle_token(s->row, t); ++n) {
            const int64_t at = output_row(s, t) + n;
            size[at] = attend_few(s, t, n, K, V, out + at * dv);
        }
    free(K);
}

/* y = W x + b, W [count][dx], of token t's x */
static void dense(const unit *s, int64_t t, int64_t count, const float *W, const float *b,
                  double *y) {
    const int64_t dx = s->row->dim_k;
    int64_t i;
    for (i = 0; i < count; ++i) y[i] = dot(W + i * dx, query(s, t), dx) + (double)b[i];
}

/* of token t: y what it makes of x, of random kinds nothing */
static double logit(const unit *s, int64_t t, int64_t key, const double *y) {
    const int64_t r = bench_rank(s->row), T = s->row->tokens;
    const float *w1 = bench_weight(s->row, s->data, 0), *w2 = bench_weight(s->row, s->data, 1);
    const float *b2 = bench_weight(s->row, s->data, 3);
    double sum = 0.0;
    int64_t i;
    switch (bench_extra_of(s->row)->kind) {
    case LA_RANDOM: return (double)w1[t * T + key];
    case LA_FACTORISED_RANDOM: return dot(w1 + t * r, w2 + key * r, r);
    case LA_FACTORISED_DENSE: return y[key % r] * y[r + key % (r + 1)];
    default:
        for (i = 0; i < r; ++i) sum += (double)w2[key * r + i] * fmax(y[i], 0.0);
        return sum + (double)b2[key];
    }
}

/* what logits of token t are made of */
static void synthesize(const unit *s, int64_t t, double *y) {
    const int kind = bench_extra_of(s->row)->kind;
    const int64_t r = bench_rank(s->row);
    const bench_data *data = s->data;
    if (kind == LA_RANDOM || kind == LA_FACTORISED_RANDOM) return;
    dense(s, t, r, bench_weight(s->row, data, 0), bench_weight(s->row, data, 2), y);
    if (kind == LA_FACTORISED_DENSE)
        dense(s, t, r + 1, bench_weight(s->row, data, 1), bench_weight(s->row, data, 3), y + r);
}

void bench_oracle_synthesizer(const unit *s, int passes, double *out, double *size) {
    const int64_t T = s->row->tokens;
    double *w = doubles(T + 2 * bench_rank(s->row) + 1), *y = w + T;
    int64_t t, i;
    (void)passes;
    for (t = 0; t < T; ++t) {
        double sum = 0.0;
        if (!bench_oracle_token(s->row, t)) continue;
        synthesize(s, t, y);
        for (i = 0; i <= t; ++i) sum += w[i] = exp(logit(s, t, i, y));
        average(s, t, 0, w, sum, out + output_row(s, t) * s->row->dim_v);
        size[output_row(s, t)] = 0.0;
    }
    free(w);
}

/* one channel: from the states a and b, or h = a */
static double channel(const unit *s, int64_t t, int64_t j, double *a, double *b) {
    const bench_row *row = s->row;
    const double v = (double)value(s, t)[j];
    double alpha = exp((double)gate(s, t)[j]), x, bonus, out;
    if (bench_extra_of(row)->kind == LA_SCAN_HGRN) return *a = alpha * *a + v;
    alpha = exp((double)s->data->log_decay[s->h * row->dim_v + j]); /* that of all tokens */
    x = exp((double)key(s, t)[j]);
    bonus = exp((double)bench_weight(row, s->data, 0)[s->h * row->dim_v + j]);
    out = (*a + bonus * x * v) / (*b + bonus * x);
    *a = alpha * *a + x * v;
    *b = alpha * *b + x;
    return out;
}

void bench_oracle_scan(const unit *s, int passes, double *out, double *size) {
    const int64_t dv = s->row->dim_v;
    double *a = doubles(2 * dv), *b = a + dv;
    int64_t t, j;
    for (; passes > 0; --passes)
        for (t = 0; t < s->row->tokens; ++t) {
            const int64_t at = output_row(s, t);
            for (j = 0; j < dv; ++j) out[at * dv + j] = channel(s, t, j, &a[j], &b[j]);
            size[at] = 0.0;
        }
    free(a);
}

/* ---- all heads ------------------------------------------------------------------------------- */

void bench_oracle(const bench_row *row, const bench_data *data, int passes, double *out,
                  double *size) {
    const int64_t r = bench_key_features(row), dv = row->dim_v;
    const size_t state = (size_t)(r * dv + 2 * r + 2 * dv);
    double *work = bench_allocate(state * sizeof *work);
    int64_t i;
    head s;
    s.r = r;
    s.dv = dv;
    s.S = work;
    s.z = s.S + r * dv;
    s.f = s.z + r;
    s.u = s.f + r;
    s.e = s.u + dv;
    s.squares = 0.0;
    s.out = out;
    s.size = size;
    for (i = 0; i < unit_count(row); ++i) {
        s.at = unit_at(row, data, i, 0);
        memset(work, 0, state * sizeof *work);
        if (bench_is_extra(row))
            bench_extra_of(row)->family->oracle(&s.at, passes, out, size);
        else
            recur(&s, passes);
    }
    free(work);
}
