/* What the library is compared to, three ways to run the same recurrences:
 *
 *     plain loop    token by token, as a competent C programmer writes it and -O3 compiles it
 *     four sweeps   token by token on a state [dv][dk], as inference engines do: decay, predict,
 *                   write and read each pass over the whole state, with vector code
 *     OpenBLAS      chunk by chunk, with cblas for the products and the triangular solve
 *
 * All start from the empty state. Heads are dealt to the threads in turn. The Makefile compiles
 * this with -O3, for the processor that the compiler takes by default. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") /* what it does without -std=c99, and clang anyway */
#endif

#include "core.h"
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#ifdef BENCH_WITH_OPENBLAS
#include <cblas.h>
#endif

/* head h of sequence b, and the query heads that read its state, which stand side by side */
typedef struct head {
    const bench_row *row;
    const bench_data *data;
    int64_t b, h, queries;
    float *work;
} head;

/* row t of head h, of `heads` heads that are `width` wide */
static const float *row_at(const head *s, const float *x, int64_t t, int64_t heads, int64_t h,
                           int64_t width) {
    return x + ((s->b * s->row->tokens + t) * heads + h) * width;
}

static const float *key(const head *s, int64_t t) {
    const bench_row *row = s->row;
    return row_at(s, s->data->k, t, row->k_heads, s->h * row->k_heads / row->heads, row->dim_k);
}

static const float *value(const head *s, int64_t t) {
    return row_at(s, s->data->v, t, s->row->heads, s->h, s->row->dim_v);
}

static float beta(const head *s, int64_t t) {
    return *row_at(s, s->data->beta, t, s->row->heads, s->h, 1);
}

/* the first of the query heads */
static const float *query(const head *s, int64_t t) {
    const bench_row *row = s->row;
    return row_at(s, s->data->q, t, row->q_heads, s->h * row->q_heads / row->heads, row->dim_k);
}

static float *output(const head *s, int64_t t) {
    const int64_t heads = bench_out_heads(s->row), at = (s->b * s->row->tokens + t) * heads;
    return s->data->out + (at + s->h * s->queries) * s->row->dim_v;
}

/* what token t leaves of each of r rows of the state; 0 where nothing decays */
static int decays(const head *s, int64_t t, float *alpha, int64_t r) {
    const int64_t heads = s->row->heads;
    const float *g = s->data->log_decay;
    int64_t i;
    if (s->row->decay == BENCH_NONE) return 0;
    if (s->row->decay == BENCH_CHANNEL) {
        g = row_at(s, g, t, heads, s->h, r);
        for (i = 0; i < r; ++i) alpha[i] = expf(g[i]);
        return 1;
    }
    alpha[0] = expf(s->row->decay == BENCH_HEAD ? g[s->h] : *row_at(s, g, t, heads, s->h, 1));
    for (i = 1; i < r; ++i) alpha[i] = alpha[0];
    return 1;
}

/* these have features, the other variants' are the identity */
static int is_normalised(const bench_row *row) {
    return row->variant <= LA_COSFORMER;
}

static void each_head(const bench_row *row, const bench_data *data, int64_t thread,
                      void (*run)(const head *s)) {
    int64_t i;
    for (i = thread; i < row->batch * row->heads; i += row->threads) {
        head s;
        s.row = row;
        s.data = data;
        s.b = i / row->heads;
        s.h = i % row->heads;
        s.queries = bench_out_heads(row) / row->heads;
        s.work = (float *)(void *)((char *)data->workspace + (size_t)thread * data->workspace_size);
        run(&s);
    }
}

/* ---- the plain loop -------------------------------------------------------------------------- */

/* S [r][dv], z [r]; features of a key and of a query; what is written, decays, the projection with
 * features innermost */
typedef struct plain {
    int64_t r, dv;
    float *S, *z, *f_k, *f_q, *u, *alpha, *projection;
} plain;

static size_t plain_floats(const bench_row *row) {
    const int64_t r = bench_key_features(row), dk = row->dim_k;
    return (size_t)((r + 1) * row->dim_v + 4 * r + (row->variant == LA_FAVOR ? r * dk : 0));
}

/* m^-1/2 exp(w_j . y - |y|^2 / 2), y = sqrt(scale) x */
static void favor_features(const head *s, const plain *p, const float *x, float *restrict f) {
    const float root = sqrtf(bench_scale(s->row));
    float half = 0.0f;
    int64_t i, j;
    memset(f, 0, (size_t)p->r * sizeof *f);
    for (i = 0; i < s->row->dim_k; ++i) {
        const float y = root * x[i], *w = p->projection + i * p->r;
        half += 0.5f * y * y;
        for (j = 0; j < p->r; ++j) f[j] += w[j] * y;
    }
    for (j = 0; j < p->r; ++j) f[j] = expf(f[j] - half) / sqrtf((float)p->r);
}

static void features(const head *s, const plain *p, const float *x, int64_t t, float *restrict f) {
    const float theta = 1.57079633f * (float)t / (float)s->row->tokens;
    const float c = cosf(theta), d = sinf(theta);
    const int64_t dk = s->row->dim_k;
    int64_t i;
    switch (s->row->variant) {
    case LA_FAVOR: favor_features(s, p, x, f); break;
    case LA_ELU:
        for (i = 0; i < dk; ++i) f[i] = x[i] > 0.0f ? x[i] + 1.0f : expf(x[i]);
        break;
    case LA_COSFORMER:
        for (i = 0; i < dk; ++i) {
            const float positive = x[i] > 0.0f ? x[i] : 0.0f;
            f[i] = positive * c;
            f[dk + i] = positive * d;
        }
        break;
    default: memcpy(f, x, (size_t)dk * sizeof *f);
    }
}

/* Of one row of the state: what it adds to a prediction or an output y, */
static void read_row(const float *restrict S, float x, float *restrict y, int64_t n) {
    int64_t j;
    for (j = 0; j < n; ++j) y[j] += x * S[j];
}
static void decay_read_row(float *restrict S, float alpha, float x, float *restrict y, int64_t n) {
    int64_t j;
    for (j = 0; j < n; ++j) {
        S[j] *= alpha;
        y[j] += x * S[j];
    }
}
/* and what is written to it before. */
static void write_row(float *restrict S, float k, const float *restrict u, float q,
                      float *restrict o, int64_t n) {
    int64_t j;
    for (j = 0; j < n; ++j) {
        S[j] += k * u[j];
        o[j] += q * S[j];
    }
}
static void decay_write_row(float *restrict S, float alpha, float k, const float *restrict u,
                            float q, float *restrict o, int64_t n) {
    int64_t j;
    for (j = 0; j < n; ++j) {
        S[j] = alpha * S[j] + k * u[j];
        o[j] += q * S[j];
    }
}

/* decays the state; u = beta (v - S^T k) */
static void delta(const head *s, const plain *p, int64_t t, int decaying) {
    const float *v = value(s, t), b = beta(s, t);
    int64_t i, j;
    memset(p->u, 0, (size_t)p->dv * sizeof *p->u);
    for (i = 0; i < p->r; ++i) {
        float *S = p->S + i * p->dv;
        if (decaying)
            decay_read_row(S, p->alpha[i], p->f_k[i], p->u, p->dv);
        else
            read_row(S, p->f_k[i], p->u, p->dv);
    }
    for (j = 0; j < p->dv; ++j) p->u[j] = b * (v[j] - p->u[j]);
}

/* o = S^T f(q), of the first query with the write in the same pass over the state */
static void write_read(const plain *p, const float *u, int decaying, float *o) {
    int64_t i;
    memset(o, 0, (size_t)p->dv * sizeof *o);
    for (i = 0; i < p->r; ++i) {
        float *S = p->S + i * p->dv;
        if (decaying)
            decay_write_row(S, p->alpha[i], p->f_k[i], u, p->f_q[i], o, p->dv);
        else
            write_row(S, p->f_k[i], u, p->f_q[i], o, p->dv);
    }
}

static void read_again(const plain *p, float *o) {
    int64_t i;
    memset(o, 0, (size_t)p->dv * sizeof *o);
    for (i = 0; i < p->r; ++i) read_row(p->S + i * p->dv, p->f_q[i], o, p->dv);
}

/* o times the scale, or over the denominator */
static void finish(const head *s, const plain *p, float *o) {
    float factor = bench_scale(s->row), sum = 0.0f;
    int64_t i;
    if (is_normalised(s->row)) {
        for (i = 0; i < p->r; ++i) sum += p->z[i] * p->f_q[i];
        factor = sum > 0.0f ? 1.0f / sum : 0.0f;
    }
    for (i = 0; i < p->dv; ++i) o[i] *= factor;
}

static void plain_token(const head *s, const plain *p, int64_t t) {
    const int decaying = decays(s, t, p->alpha, p->r);
    const int is_delta = bench_is_delta(s->row);
    float *o = output(s, t);
    int64_t i;
    features(s, p, key(s, t), t, p->f_k);
    for (i = 0; i < p->r; ++i) p->z[i] = (decaying ? p->alpha[i] : 1.0f) * p->z[i] + p->f_k[i];
    if (is_delta) delta(s, p, t, decaying);
    for (i = 0; i < s->queries; ++i, o += p->dv) {
        features(s, p, query(s, t) + i * s->row->dim_k, t, p->f_q);
        if (i == 0)
            write_read(p, is_delta ? p->u : value(s, t), is_delta ? 0 : decaying, o);
        else
            read_again(p, o);
        finish(s, p, o);
    }
}

static void plain_head(const head *s) {
    const int64_t dk = s->row->dim_k;
    int64_t i, j, t;
    plain p;
    p.r = bench_key_features(s->row);
    p.dv = s->row->dim_v;
    p.S = s->work;
    p.z = p.S + p.r * p.dv;
    p.f_k = p.z + p.r;
    p.f_q = p.f_k + p.r;
    p.u = p.f_q + p.r;
    p.alpha = p.u + p.dv;
    p.projection = p.alpha + p.r;
    memset(p.S, 0, (size_t)(p.r * (p.dv + 1)) * sizeof *p.S);
    for (i = 0; s->row->variant == LA_FAVOR && i < dk; ++i)
        for (j = 0; j < p.r; ++j) p.projection[i * p.r + j] = s->data->projection[j * dk + i];
    for (t = 0; t < s->row->tokens; ++t) plain_token(s, &p, t);
}

void bench_run_plain_loop(const bench_row *row, const bench_data *data, int64_t thread) {
    each_head(row, data, thread, plain_head);
}

/* ---- four sweeps ----------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define NAME(x)      avx2_##x
#define TARGET       __attribute__((target("avx2,fma")))
#define LANES        8
#define FMA(x, y, z) _mm256_fmadd_ps(x, y, z)
#include "sweep_kernel.h"
#endif

#define NAME(x) portable_##x
#define TARGET
#define LANES 4
#if defined(__aarch64__)
#define FMA(x, y, z) vfmaq_f32(z, x, y)
#else
#define FMA(x, y, z) ((x) * (y) + (z))
#endif
#include "sweep_kernel.h"

void bench_run_four_sweep(const bench_row *row, const bench_data *data, int64_t thread) {
#if defined(__x86_64__)
    if (row->isa != LA_ISA_SCALAR && la_isa_available(LA_ISA_AVX2)) {
        each_head(row, data, thread, avx2_sweep_head);
        return;
    }
#endif
    each_head(row, data, thread, portable_sweep_head);
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
    return (size_t)(dk * dv + C * (2 * C + dk + dv + 2));
}

static chunk make_chunk(const head *s) {
    chunk c;
    c.C = (int)chunk_tokens(s->row);
    c.dk = (int)s->row->dim_k;
    c.dv = (int)s->row->dim_v;
    c.S = s->work;
    c.D = c.S + c.dk * c.dv;
    c.scores = c.D + c.C * c.C;
    c.rows = c.scores + c.C * c.C;
    c.U = c.rows + c.C * c.dk;
    c.gamma = c.U + c.C * c.dv;
    c.factor = c.gamma + c.C;
    return c;
}

static void chunk_decays(const head *s, const chunk *c, int64_t first) {
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

static void solve(const head *s, const chunk *c, int64_t first, const float *k, int k_stride) {
    int t, j;
    for (t = 0; t < c->n; ++t) {
        const float *v = value(s, first + t);
        c->factor[t] = beta(s, first + t);
        for (j = 0; j < c->dv; ++j) c->U[t * c->dv + j] = c->factor[t] * v[j];
    }
    scores_and_rows(c, k, k_stride, k, k_stride);
    times(c, c->dk, -1.0f, c->rows, c->dk, c->S, c->dv, 1.0f, c->U, c->dv);
    cblas_strsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, c->n, c->dv, 1.0f,
                c->scores, c->C, c->U, c->dv);
}

static void chunk_run(const head *s, const chunk *c, int64_t first) {
    const bench_row *row = s->row;
    const int q_stride = (int)row->q_heads * c->dk, k_stride = (int)row->k_heads * c->dk;
    const int o_stride = (int)bench_out_heads(row) * c->dv, is_delta = bench_is_delta(row);
    const int u_stride = is_delta ? c->dv : (int)row->heads * c->dv;
    const float *k = key(s, first), *U = is_delta ? c->U : value(s, first);
    int64_t i;
    int t;
    chunk_decays(s, c, first);
    if (is_delta) solve(s, c, first, k, k_stride);
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

static void chunk_head(const head *s) {
    chunk c = make_chunk(s);
    int64_t t;
    memset(c.S, 0, (size_t)(c.dk * c.dv) * sizeof *c.S);
    for (t = 0; t < s->row->tokens; t += c.n) {
        c.n = (int)(s->row->tokens - t < c.C ? s->row->tokens - t : c.C);
        chunk_run(s, &c, t);
    }
}

void bench_run_openblas(const bench_row *row, const bench_data *data, int64_t thread) {
    each_head(row, data, thread, chunk_head);
}

#else

void bench_run_openblas(const bench_row *row, const bench_data *data, int64_t thread) {
    (void)row;
    (void)data;
    (void)thread;
}

#endif

/* ---- which rows ------------------------------------------------------------------------------ */

static size_t sweep_floats(const bench_row *row) {
    return (size_t)(row->dim_k * row->dim_v + row->dim_v + row->dim_k);
}

static size_t floats_of(const bench_row *row) {
    const int keys_alone = row->variant == LA_FAVOR || row->variant == LA_COSFORMER;
    switch (row->engine) {
    case BENCH_PLAIN_LOOP: return keys_alone && row->decay == BENCH_CHANNEL ? 0 : plain_floats(row);
    case BENCH_FOUR_SWEEP: return !is_normalised(row) ? sweep_floats(row) : 0;
#ifdef BENCH_WITH_OPENBLAS
    case BENCH_OPENBLAS:
        openblas_set_num_threads(1); /* the threads are the bench's own */
        return !is_normalised(row) && row->decay != BENCH_CHANNEL ? chunk_floats(row) : 0;
#endif
    default: return 0;
    }
}

size_t bench_baseline_workspace(const bench_row *row) {
    if (row->engine == BENCH_SOFTMAX) return bench_softmax_workspace(row);
    return (floats_of(row) * sizeof(float) + 63) / 64 * 64; /* each thread's on cache lines */
}
