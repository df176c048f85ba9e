/* Float64 recurrences from the formulas of the library's manual, for the check: one token after the
 * other, nothing clever. FAVOR+ needs no maximum here: the bench's exponents are small. */
#include "core.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct head {
    const bench_row *row;
    const bench_data *data;
    int64_t b, h, r, dv, queries; /* sequence, state, its size, query heads that read it */
    double *S, *z;                /* [r][dv], [r] */
    double *f, *u;                /* features of one row, what a token writes */
    double *out;
} head;

/* row t of one of `heads` heads that are `width` wide */
static const float *row_at(const head *s, const float *x, int64_t t, int64_t heads, int64_t h,
                           int64_t width) {
    return x + ((s->b * s->row->tokens + t) * heads + h) * width;
}

static void favor_features(const head *s, const float *x) {
    const double root = sqrt((double)bench_scale(s->row));
    int64_t i, j;
    for (j = 0; j < s->r; ++j) {
        const float *w = s->data->projection + j * s->row->dim_k;
        double y = 0.0;
        for (i = 0; i < s->row->dim_k; ++i)
            y += root * (double)x[i] * ((double)w[i] - root * (double)x[i] / 2.0);
        s->f[j] = exp(y) / sqrt((double)s->r);
    }
}

static void features(const head *s, const float *x, int64_t t) {
    const double theta = asin(1.0) * (double)t / (double)s->row->tokens;
    const int64_t dk = s->row->dim_k;
    int64_t i;
    if (s->row->variant == LA_FAVOR) {
        favor_features(s, x);
        return;
    }
    for (i = 0; i < dk; ++i) {
        const double xi = (double)x[i], positive = xi > 0.0 ? xi : 0.0;
        s->f[i] = xi;
        if (s->row->variant == LA_ELU) s->f[i] = xi > 0.0 ? xi + 1.0 : exp(xi);
        if (s->row->variant == LA_COSFORMER) {
            s->f[i] = positive * cos(theta);
            s->f[dk + i] = positive * sin(theta);
        }
    }
}

/* of row i of the state at token t */
static double decay(const head *s, int64_t t, int64_t i) {
    const float *g = s->data->log_decay;
    const int64_t heads = s->row->heads;
    switch (s->row->decay) {
    case BENCH_HEAD: return exp((double)g[s->h]);
    case BENCH_TOKEN: return exp((double)*row_at(s, g, t, heads, s->h, 1));
    case BENCH_CHANNEL: return exp((double)row_at(s, g, t, heads, s->h, s->row->dim_k)[i]);
    default: return 1.0;
    }
}

static void write_token(const head *s, int64_t t) {
    const bench_row *row = s->row;
    const float *v = row_at(s, s->data->v, t, row->heads, s->h, row->dim_v);
    const int delta = bench_is_delta(row);
    int64_t i, j;
    features(
        s, row_at(s, s->data->k, t, row->k_heads, s->h * row->k_heads / row->heads, row->dim_k), t);
    for (j = 0; j < s->dv; ++j) s->u[j] = (double)v[j];
    for (i = 0; i < s->r; ++i) {
        const double alpha = decay(s, t, i);
        s->z[i] = alpha * s->z[i] + s->f[i];
        for (j = 0; j < s->dv; ++j) s->S[i * s->dv + j] *= alpha;
        for (j = 0; delta && j < s->dv; ++j) s->u[j] -= s->f[i] * s->S[i * s->dv + j];
    }
    for (j = 0; delta && j < s->dv; ++j)
        s->u[j] *= (double)*row_at(s, s->data->beta, t, row->heads, s->h, 1);
    for (i = 0; i < s->r; ++i)
        for (j = 0; j < s->dv; ++j) s->S[i * s->dv + j] += s->f[i] * s->u[j];
}

/* for query head q, which is the output's head o; NaN where nothing is promised: a denominator so
 * small that float32 may not hold it */
static void read_token(const head *s, int64_t t, int64_t q, int64_t o) {
    const bench_row *row = s->row;
    double *out = s->out + ((s->b * row->tokens + t) * bench_out_heads(row) + o) * s->dv;
    const int normalised = row->variant <= LA_COSFORMER;
    double factor = row->variant == LA_FAVOR ? 1.0 : (double)bench_scale(row), sum = 0.0;
    int64_t i, j;
    features(s, row_at(s, s->data->q, t, row->q_heads, q, row->dim_k), t);
    for (i = 0; i < s->r; ++i) sum += s->z[i] * s->f[i];
    if (normalised) factor = sum >= 1e-30 ? 1.0 / sum : sum > 0.0 ? (double)NAN : 0.0;
    for (j = 0; j < s->dv; ++j) out[j] = 0.0;
    for (i = 0; i < s->r; ++i)
        for (j = 0; j < s->dv; ++j) out[j] += factor * s->f[i] * s->S[i * s->dv + j];
}

static void recur(const head *s, int passes) {
    const int64_t Hq = s->row->q_heads, H = s->row->heads;
    int64_t t, j;
    for (; passes > 0; --passes)
        for (t = 0; t < s->row->tokens; ++t) {
            write_token(s, t);
            for (j = 0; j < s->queries && Hq > H; ++j)
                read_token(s, t, s->h * s->queries + j, s->h * s->queries + j);
            if (Hq <= H) read_token(s, t, s->h * Hq / H, s->h);
        }
}

int bench_oracle_token(const bench_row *row, int64_t token) {
    return row->engine != BENCH_SOFTMAX || token % (row->tokens / 64 + 1) == 0 ||
           token == row->tokens - 1;
}

/* out of token t: `weights` has room for t + 1 numbers */
static void attend(const head *s, int64_t t, int64_t q, int64_t o, double *weights) {
    const bench_row *row = s->row;
    const int64_t dk = row->dim_k, state = o * row->heads / bench_out_heads(row);
    const int64_t key = state * row->k_heads / row->heads;
    const float *x = row_at(s, s->data->q, t, row->q_heads, q, dk);
    double *out = s->out + ((s->b * row->tokens + t) * bench_out_heads(row) + o) * s->dv;
    double sum = 0.0;
    int64_t i, j;
    for (j = 0; j < s->dv; ++j) out[j] = 0.0;
    for (i = 0; i <= t; ++i) {
        const float *k = row_at(s, s->data->k, i, row->k_heads, key, dk);
        double score = 0.0;
        for (j = 0; j < dk; ++j) score += (double)x[j] * (double)k[j];
        sum += weights[i] = exp((double)bench_scale(row) * score);
    }
    for (i = 0; i <= t; ++i) {
        const float *v = row_at(s, s->data->v, i, row->heads, state, s->dv);
        for (j = 0; j < s->dv; ++j) out[j] += weights[i] / sum * (double)v[j];
    }
}

static void softmax(head *s, double *weights) {
    const int64_t heads = bench_out_heads(s->row);
    int64_t t, o;
    for (o = 0; o < heads; ++o)
        for (t = 0; t < s->row->tokens; ++t)
            if (bench_oracle_token(s->row, t))
                attend(s, t, o * s->row->q_heads / heads, o, weights);
}

void bench_oracle(const bench_row *row, const bench_data *data, int passes, double *out) {
    const int64_t r = bench_key_features(row), dv = row->dim_v;
    const size_t state = (size_t)(r * dv + 2 * r + dv);
    double *work = bench_allocate((state + (size_t)row->tokens) * sizeof *work);
    head s;
    s.row = row;
    s.data = data;
    s.r = r;
    s.dv = dv;
    s.queries = bench_out_heads(row) / row->heads;
    s.S = work;
    s.z = s.S + r * dv;
    s.f = s.z + r;
    s.u = s.f + r;
    s.out = out;
    for (s.b = 0; s.b < row->batch; ++s.b) {
        if (row->engine == BENCH_SOFTMAX) softmax(&s, work + state);
        for (s.h = 0; s.h < row->heads && row->engine != BENCH_SOFTMAX; ++s.h) {
            memset(work, 0, state * sizeof *work);
            recur(&s, passes);
        }
    }
    free(work);
}
