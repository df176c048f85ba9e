/* What the library is compared to, three ways to run the same recurrences:
 *
 *     plain loop    token by token, as a competent C programmer writes it and -O3 compiles it
 *     four sweeps   token by token on a state [dv][dk], as inference engines do: decay, predict,
 *                   write and read each pass over the whole state, with vector code
 *     OpenBLAS      chunk by chunk, with cblas for the products and the triangular solve
 *
 * Each works on the row's state in place. The Makefile compiles this with -O3, for the processor
 * that the compiler takes by default. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") /* what it does without -std=c99, and clang anyway */
#endif

#include "units.h"
#include <math.h>
#include <string.h>
#ifdef BENCH_WITH_OPENBLAS
#include <cblas.h>
#endif

static float *output(const unit *s, int64_t t) {
    return s->data->out + output_row(s, t) * s->row->dim_v;
}

/* prefill starts from the empty state */
static void begin(const unit *s) {
    if (!bench_is_step(s->row)) memset(s->state, 0, s->data->head_floats * sizeof *s->state);
}

/* what token t leaves of each of r rows of the state; 0 where nothing decays */
static int decays(const unit *s, int64_t t, float *alpha, int64_t r) {
    const float *g = gate(s, t);
    const int64_t own = s->row->decay == BENCH_CHANNEL ? r : 1;
    int64_t i;
    if (!g) return 0;
    for (i = 0; i < own; ++i) alpha[i] = expf(g[i]);
    for (; i < r; ++i) alpha[i] = alpha[0];
    return 1;
}

/* ---- the plain loop -------------------------------------------------------------------------- */

/* S [r][dv], z [r] where the rule is normalised; features of a key and of a query; what is written,
 * decays */
typedef struct plain {
    int64_t r, dv;
    float *S, *z, *f_k, *f_q, *u, *alpha;
    float *f_p, *e; /* erase times the key; what DPLR writes with b */
} plain;

static size_t plain_floats(const bench_row *row) {
    return (size_t)(4 * bench_key_features(row) + 2 * row->dim_v);
}

/* f = W root x, of all rows of the projection */
static void project(const unit *s, const float *x, float root, float *restrict f) {
    const int64_t m = s->row->features;
    int64_t i, j;
    memset(f, 0, (size_t)m * sizeof *f);
    for (i = 0; i < s->row->dim_k; ++i) {
        const float y = root * x[i], *w = s->data->columns + i * s->data->most_features;
        for (j = 0; j < m; ++j) f[j] += w[j] * y;
    }
}

/* m^-1/2 exp(w_j . y - |y|^2 / 2), y = sqrt(scale) x; the maximum that the state has room for stays
 * 0: here the exponents are small */
static void favor_features(const unit *s, const plain *p, const float *x, float *restrict f) {
    float half = 0.0f;
    int64_t i;
    project(s, x, sqrtf(bench_scale(s->row)), f);
    for (i = 0; i < s->row->dim_k; ++i) half += 0.5f * bench_scale(s->row) * x[i] * x[i];
    for (i = 0; i < p->r; ++i) f[i] = expf(f[i] - half) / sqrtf((float)p->r);
}

/* softmax(W x), softmax(-W x), of numbers that are small, too */
static void hedgehog_features(const unit *s, const float *x, float *restrict f) {
    const int64_t m = s->row->features;
    float plus = 0.0f, minus = 0.0f;
    int64_t i;
    project(s, x, 1.0f, f);
    for (i = 0; i < m; ++i) {
        minus += f[m + i] = expf(-f[i]);
        plus += f[i] = expf(f[i]);
    }
    for (i = 0; i < m; ++i) {
        f[i] /= plus;
        f[m + i] /= minus;
    }
}

static void fourier_features(const unit *s, const float *x, float *restrict f) {
    const int64_t m = s->row->features;
    const float one = 1.0f / sqrtf((float)m);
    int64_t i;
    project(s, x, sqrtf(bench_scale(s->row)), f);
    for (i = 0; i < m; ++i) {
        f[m + i] = one * sinf(f[i]);
        f[i] = one * cosf(f[i]);
    }
}

static void taylor_features(const unit *s, const float *x, float *restrict f) {
    const float scale = bench_scale(s->row), root = sqrtf(scale);
    const int64_t n = s->row->dim_k;
    int64_t i, j;
    *f++ = 1.0f;
    for (i = 0; i < n; ++i) *f++ = root * x[i];
    for (i = 0; i < n; f += ++i) {
        for (j = 0; j < i; ++j) f[j] = scale * x[i] * x[j];
        f[i] = 0.707106781f * scale * x[i] * x[i];
    }
}

/* x' = [relu(x), relu(-x)], each number times the one before it, over the sum */
static void dpfp_features(const unit *s, const float *x, float *restrict f) {
    const int64_t n = s->row->dim_k;
    float sum = 0.0f, before = x[n - 1] < 0.0f ? -x[n - 1] : 0.0f;
    int64_t i;
    for (i = 0; i < 2 * n; ++i) {
        const float xi = i < n ? x[i] : -x[i - n], own = xi > 0.0f ? xi : 0.0f;
        sum += f[i] = own * before;
        before = own;
    }
    for (i = 0; i < 2 * n; ++i) f[i] /= sum;
}

static void cosine_features(const unit *s, const float *x, int64_t t, float *restrict f) {
    const float theta = 1.57079633f * (float)t / (float)s->row->tokens;
    const float c = cosf(theta), d = sinf(theta);
    const int64_t dk = s->row->dim_k;
    int64_t i;
    for (i = 0; i < dk; ++i) {
        const float positive = x[i] > 0.0f ? x[i] : 0.0f;
        f[i] = positive * c;
        f[dk + i] = positive * d;
    }
}

static void features(const unit *s, const plain *p, const float *x, int64_t t, float *restrict f) {
    const int64_t dk = s->row->dim_k;
    int64_t i;
    switch (s->row->variant) {
    case LA_FAVOR: favor_features(s, p, x, f); break;
    case LA_ELU:
        for (i = 0; i < dk; ++i) f[i] = x[i] > 0.0f ? x[i] + 1.0f : expf(x[i]);
        break;
    case LA_COSFORMER: cosine_features(s, x, t, f); break;
    case LA_DPFP: dpfp_features(s, x, f); break;
    case LA_BASED: taylor_features(s, x, f); break;
    case LA_HEDGEHOG: hedgehog_features(s, x, f); break;
    case LA_RFF: fourier_features(s, x, f); break;
    default: memcpy(f, x, (size_t)dk * sizeof *f);
    }
}

/* One pass over the state: it decays by alpha, u is written with f_k, and y = S^T x. What is null
 * is left out: compilers make loops of their own of that. */
static void pass(const plain *p, const float *alpha, const float *restrict u, const float *x,
                 float *restrict y) {
    int64_t i, j;
    memset(y, 0, (size_t)p->dv * sizeof *y);
    for (i = 0; i < p->r; ++i) {
        float *restrict S = p->S + i * p->dv;
        const float a = alpha ? alpha[i] : 1.0f, k = p->f_k[i], xi = x[i];
        for (j = 0; j < p->dv; ++j) {
            if (alpha) S[j] *= a;
            if (u) S[j] += k * u[j];
            y[j] += xi * S[j];
        }
    }
}

/* u = beta v, or beta (v - S^T k), or beta v - S^T (erase k) */
static void weigh(const unit *s, const plain *p, int64_t t, const float *alpha) {
    const float *v = value(s, t), b = beta(s, t), *gates;
    int64_t j;
    if (bench_erases(s->row)) {
        gates = partner(s, s->data->erase, t);
        for (j = 0; j < p->r; ++j) p->f_p[j] = gates[j] * p->f_k[j];
        pass(p, alpha, NULL, p->f_p, p->u);
        for (j = 0; j < p->dv; ++j) p->u[j] = b * v[j] - p->u[j];
        return;
    }
    if (bench_is_delta(s->row))
        pass(p, alpha, NULL, p->f_k, p->u);
    else
        memset(p->u, 0, (size_t)p->dv * sizeof *p->u);
    for (j = 0; j < p->dv; ++j) p->u[j] = b * (v[j] - p->u[j]);
}

/* o times the scale, or over the denominator */
static void finish(const unit *s, const plain *p, float *o) {
    float factor = bench_scale(s->row), sum = 0.0f;
    int64_t i;
    if (bench_is_normalised(s->row)) {
        for (i = 0; i < p->r; ++i) sum += p->z[i] * p->f_q[i];
        factor = sum > 0.0f ? 1.0f / sum : 0.0f;
    }
    for (i = 0; i < p->dv; ++i) o[i] *= factor;
}

/* RWKV-6: what is read is the state as it was, and the token's own write with a bonus */
static void plain_rwkv6(const unit *s, const plain *p, int64_t t) {
    const float *k = key(s, t), *v = value(s, t), *q = query(s, t);
    const float *bonus = s->data->bonus + s->h * p->r, *alpha = p->alpha;
    float *restrict o = output(s, t);
    int64_t i, j, m;
    if (!decays(s, t, p->alpha, p->r))
        for (i = 0; i < p->r; ++i) p->alpha[i] = 1.0f;
    for (m = 0; m < s->queries; ++m, o += p->dv, q += p->r) {
        const int last = m + 1 == s->queries;
        float own = 0.0f;
        memset(o, 0, (size_t)p->dv * sizeof *o);
        for (i = 0; i < p->r; ++i) {
            float *restrict S = p->S + i * p->dv;
            const float a = alpha[i], ki = k[i], qi = q[i];
            own += qi * bonus[i] * ki;
            for (j = 0; j < p->dv; ++j) {
                o[j] += qi * S[j];
                if (last) S[j] = a * S[j] + ki * v[j];
            }
        }
        for (j = 0; j < p->dv; ++j) o[j] = bench_scale(s->row) * (o[j] + own * v[j]);
    }
}

/* RWKV-7: e of the state as it was; then decay, both writes and the first read in one pass */
static void plain_rwkv7(const unit *s, const plain *p, int64_t t) {
    const float *k = key(s, t), *v = value(s, t), *q = query(s, t);
    const float *b = partner(s, s->data->b, t), *alpha = p->alpha;
    float *restrict o = output(s, t), *e = p->e;
    int64_t i, j, m;
    if (!decays(s, t, p->alpha, p->r))
        for (i = 0; i < p->r; ++i) p->alpha[i] = 1.0f;
    pass(p, NULL, NULL, partner(s, s->data->a, t), e);
    memset(o, 0, (size_t)p->dv * sizeof *o);
    for (i = 0; i < p->r; ++i) {
        float *restrict S = p->S + i * p->dv;
        const float a = alpha[i], bi = b[i], ki = k[i], qi = q[i];
        for (j = 0; j < p->dv; ++j) {
            S[j] = a * S[j] + bi * e[j] + ki * v[j];
            o[j] += qi * S[j];
        }
    }
    finish(s, p, o);
    for (m = 1; m < s->queries; ++m) {
        pass(p, NULL, NULL, q + m * p->r, o + m * p->dv);
        finish(s, p, o + m * p->dv);
    }
}

static void plain_token(const unit *s, const plain *p, int64_t t) {
    const float *alpha = decays(s, t, p->alpha, p->r) ? p->alpha : NULL, *u = value(s, t);
    float *o = output(s, t);
    int64_t i;
    features(s, p, key(s, t), t, p->f_k);
    for (i = 0; bench_is_normalised(s->row) && i < p->r; ++i)
        p->z[i] = (alpha ? alpha[i] : 1.0f) * p->z[i] + p->f_k[i];
    if (bench_has_beta(s->row)) {
        weigh(s, p, t, alpha);
        u = p->u;
    }
    if (bench_is_delta(s->row)) alpha = NULL; /* it has been */
    for (i = 0; i < s->queries; ++i, o += p->dv) {
        features(s, p, query(s, t) + i * s->row->dim_k, t, p->f_q);
        pass(p, i ? NULL : alpha, i ? NULL : u, p->f_q, o);
        finish(s, p, o);
    }
}

static void plain_unit(const unit *s) {
    int64_t t;
    plain p;
    p.r = bench_key_features(s->row);
    p.dv = s->row->dim_v;
    p.S = s->state;
    p.z = p.S + p.r * p.dv;
    p.f_k = s->work;
    p.f_q = p.f_k + p.r;
    p.alpha = p.f_q + p.r;
    p.f_p = p.alpha + p.r;
    p.u = p.f_p + p.r;
    p.e = p.u + p.dv;
    begin(s);
    for (t = 0; t < s->row->tokens; ++t)
        if (bench_reads_first(s->row))
            plain_rwkv6(s, &p, t);
        else if (bench_is_dplr(s->row))
            plain_rwkv7(s, &p, t);
        else
            plain_token(s, &p, t);
}

void bench_run_plain_loop(const bench_row *row, const bench_data *data, int64_t thread) {
    each_unit(row, data, thread, plain_unit);
}

/* ---- four sweeps ----------------------------------------------------------------------------- */

#define KERNEL "sweep_kernel.h"
#include "passes.h"

void bench_run_four_sweep(const bench_row *row, const bench_data *data, int64_t thread) {
    static void (*const sweeps[BENCH_ISAS])(const unit *s) = BY_ISA(sweep_unit);
    each_unit(row, data, thread, sweeps[row->isa]);
}

/* ---- OpenBLAS --------------------------------------------------------------------------------
 * A chunk of n tokens, S the state before it, gamma_t what decay leaves of S at token t, D_ts what
 * it leaves of token s, made row by row and never from differences of sums:
 *
 *     (1 + L) U = beta (V - gamma K S),  L_ts = beta_t D_ts k_t . k_s below the diagonal
 *     O = scale gamma Q S + scale (Q K^T * D) U
 *     S = gamma_n S + (D_n K)^T U
 *
 * with U = V for additive rules. */

int bench_has_openblas(void) {
#ifdef BENCH_WITH_OPENBLAS
    return 1;
#else
    return 0;
#endif
}

#ifdef BENCH_WITH_OPENBLAS

/* S [dk][dv], D and scores [C][C], rows of keys or queries [C][dk], U [C][dv]; and for each token
 * gamma and a factor */
typedef struct chunk {
    int n, C, dk, dv;
    float *S, *D, *scores, *rows, *U, *gamma, *factor;
} chunk;

static int64_t chunk_tokens(const bench_row *row) {
    const int64_t C = row->chunk ? row->chunk : 64;
    return C < row->tokens ? C : row->tokens;
}

static size_t chunk_floats(const bench_row *row) {
    const int64_t C = chunk_tokens(row), dk = row->dim_k, dv = row->dim_v;
    return (size_t)(C * (2 * C + dk + dv + 2));
}

static chunk make_chunk(const unit *s) {
    chunk c;
    c.C = (int)chunk_tokens(s->row);
    c.dk = (int)s->row->dim_k;
    c.dv = (int)s->row->dim_v;
    c.S = s->state;
    c.D = s->work;
    c.scores = c.D + c.C * c.C;
    c.rows = c.scores + c.C * c.C;
    c.U = c.rows + c.C * c.dk;
    c.gamma = c.U + c.C * c.dv;
    c.factor = c.gamma + c.C;
    return c;
}

static void chunk_decays(const unit *s, const chunk *c, int64_t first) {
    float alpha = 1.0f, gamma = 1.0f;
    int t, i;
    for (t = 0; t < c->n; ++t) {
        float *D = c->D + t * c->C;
        decays(s, first + t, &alpha, 1);
        for (i = 0; i < t; ++i) D[i] = alpha * D[i - c->C];
        D[t] = 1.0f;
        c->gamma[t] = gamma *= alpha;
    }
}

/* rows[t] = factor_t x_t, rows of x `stride` apart */
static void scale_rows(const chunk *c, const float *factor, const float *x, int stride) {
    int t, i;
    for (t = 0; t < c->n; ++t, x += stride)
        for (i = 0; i < c->dk; ++i) c->rows[t * c->dk + i] = factor[t] * x[i];
}

/* scores = factor (X K^T * D), 0 above the diagonal; factor *= gamma; rows = factor X */
static void scores_and_rows(const chunk *c, const float *x, int x_stride, const float *k,
                            int k_stride) {
    int t, i;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, c->n, c->n, c->dk, 1.0f, x, x_stride, k,
                k_stride, 0.0f, c->scores, c->C);
    for (t = 0; t < c->n; ++t) {
        float *scores = c->scores + t * c->C;
        const float *D = c->D + t * c->C;
        for (i = 0; i <= t; ++i) scores[i] *= c->factor[t] * D[i];
        for (; i < c->n; ++i) scores[i] = 0.0f;
        c->factor[t] *= c->gamma[t];
    }
    scale_rows(c, c->factor, x, x_stride);
}

/* C = product A B + sum C, A [n][m], B [m][dv] */
static void times(const chunk *c, int m, float product, const float *A, int a_stride,
                  const float *B, int b_stride, float sum, float *C, int c_stride) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, c->n, c->dv, m, product, A, a_stride, B,
                b_stride, sum, C, c_stride);
}

/* factor = beta, U = beta V */
static void weigh_chunk(const unit *s, const chunk *c, int64_t first) {
    int t, j;
    for (t = 0; t < c->n; ++t) {
        const float *v = value(s, first + t);
        c->factor[t] = beta(s, first + t);
        for (j = 0; j < c->dv; ++j) c->U[t * c->dv + j] = c->factor[t] * v[j];
    }
}

static void solve(const chunk *c, const float *k, int k_stride) {
    scores_and_rows(c, k, k_stride, k, k_stride);
    times(c, c->dk, -1.0f, c->rows, c->dk, c->S, c->dv, 1.0f, c->U, c->dv);
    cblas_strsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, c->n, c->dv, 1.0f,
                c->scores, c->C, c->U, c->dv);
}

static void chunk_run(const unit *s, const chunk *c, int64_t first) {
    const bench_row *row = s->row;
    const int q_stride = (int)row->q_heads * c->dk, k_stride = (int)row->k_heads * c->dk;
    const int o_stride = (int)bench_out_heads(row) * c->dv, has_beta = bench_has_beta(row);
    const int u_stride = has_beta ? c->dv : (int)row->heads * c->dv;
    const float *k = key(s, first), *U = has_beta ? c->U : value(s, first);
    int64_t i;
    int t;
    chunk_decays(s, c, first);
    if (has_beta) weigh_chunk(s, c, first);
    if (bench_is_delta(row)) solve(c, k, k_stride);
    for (i = 0; i < s->queries; ++i) {
        float *o = output(s, first) + i * c->dv;
        for (t = 0; t < c->n; ++t) c->factor[t] = bench_scale(row);
        scores_and_rows(c, query(s, first) + i * c->dk, q_stride, k, k_stride);
        times(c, c->dk, 1.0f, c->rows, c->dk, c->S, c->dv, 0.0f, o, o_stride);
        times(c, c->n, 1.0f, c->scores, c->C, U, u_stride, 1.0f, o, o_stride);
    }
    scale_rows(c, c->D + (c->n - 1) * c->C, k, k_stride);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, c->dk, c->dv, c->n, 1.0f, c->rows, c->dk,
                U, u_stride, c->gamma[c->n - 1], c->S, c->dv);
}

static void chunk_unit(const unit *s) {
    chunk c = make_chunk(s);
    int64_t t;
    begin(s);
    for (t = 0; t < s->row->tokens; t += c.n) {
        c.n = (int)(s->row->tokens - t < c.C ? s->row->tokens - t : c.C);
        chunk_run(s, &c, t);
    }
}

void bench_run_openblas(const bench_row *row, const bench_data *data, int64_t thread) {
    each_unit(row, data, thread, chunk_unit);
}

#else

void bench_run_openblas(const bench_row *row, const bench_data *data, int64_t thread) {
    (void)row;
    (void)data;
    (void)thread;
}

#endif

/* ---- which rows ------------------------------------------------------------------------------ */

static size_t floats_of(const bench_row *row) {
    const int channels = bench_has_channels(row);
    const int known = !bench_is_dplr(row) && !bench_erases(row) && !bench_reads_first(row);
    switch (row->engine) {
    case BENCH_PLAIN_LOOP: return !channels && row->decay == BENCH_CHANNEL ? 0 : plain_floats(row);
    case BENCH_FOUR_SWEEP:
        return !known || bench_is_normalised(row) || !channels ? 0
                                                               : (size_t)(row->dim_v + row->dim_k);
#ifdef BENCH_WITH_OPENBLAS
    case BENCH_OPENBLAS:
        openblas_set_num_threads(1); /* the threads are the bench's own */
        if (!known || bench_is_normalised(row) || !channels || row->decay == BENCH_CHANNEL)
            return 0;
        return chunk_floats(row);
#endif
    default: return 0;
    }
}

size_t bench_workspace(const bench_row *row) {
    size_t bytes = floats_of(row) * sizeof(float);
    if (row->engine == BENCH_LIBRARY) bytes = bench_library_workspace(row);
    if (bench_is_extra(row)) bytes = bench_extra_workspace(row);
    return (bytes + 63) / 64 * 64; /* each thread's on cache lines */
}
