/* Causal softmax attention, as good as it gets without a linear form: blocked, vectorised, one pass
 * over the scores. The kernel is in softmax_kernel.h; here are the instruction sets and the heads.
 */
#include "core.h"
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* 48 .. 192 queries and 192 .. 384 keys are within 3 % of the best */
enum { BLOCK_Q = 96, BLOCK_K = 288 };

/* What a kernel needs: one head of keys and values, and the heads of queries that read them, which
 * stand side by side. */
typedef struct head {
    const float *q, *k, *v; /* the first token's rows */
    float *out;
    int64_t q_stride, k_stride, v_stride, out_stride; /* from token to token */
    int64_t tokens, dk, dv, queries;
    int64_t keys;               /* tokens, rounded up to whole tiles and vectors */
    float scale;                /* of scores in powers of two */
    float *K, *V, *Q, *O, *S;   /* see the kernel */
    float *most, *sum, *factor; /* of each row of S: largest score, sum, what its O shrinks by */
    float *limits;              /* W times infinity, W times -infinity */
} head;

#if defined(__x86_64__)

#define NAME(x)       avx2_##x
#define TARGET        __attribute__((target("avx2,fma")))
#define LANES         8
#define ROWS          6
#define FMA(x, y, z)  _mm256_fmadd_ps(x, y, z)
#define MAX(x, y)     _mm256_max_ps(x, y)
#define MIN(x, y)     _mm256_min_ps(x, y)
#define LOW(x, y)     _mm256_unpacklo_ps(x, y)
#define HIGH(x, y)    _mm256_unpackhi_ps(x, y)
#define QUAD(x, p, n) _mm256_insertf128_ps(x, _mm_loadu_ps(p), n)
#define QUADS(p, s)   QUAD(_mm256_castps128_ps256(_mm_loadu_ps(p)), (p) + (s), 1)
#include "softmax_kernel.h"
#undef QUAD

#define NAME(x)       avx512_##x
#define TARGET        __attribute__((target("avx512f")))
#define LANES         16
#define ROWS          8
#define FMA(x, y, z)  _mm512_fmadd_ps(x, y, z)
#define MAX(x, y)     _mm512_max_ps(x, y)
#define MIN(x, y)     _mm512_min_ps(x, y)
#define LOW(x, y)     _mm512_unpacklo_ps(x, y)
#define HIGH(x, y)    _mm512_unpackhi_ps(x, y)
#define QUAD(x, p, n) _mm512_insertf32x4(x, _mm_loadu_ps(p), n)
#define QUADS2(p, s)  QUAD(_mm512_castps128_ps512(_mm_loadu_ps(p)), (p) + (s), 1)
#define QUADS(p, s)   QUAD(QUAD(QUADS2(p, s), (p) + 2 * (s), 2), (p) + 3 * (s), 3)
#include "softmax_kernel.h"
#undef QUAD
#undef QUADS2

#endif

/* four floats: NEON, or what the compiler makes of them */
#define NAME(x) portable_##x
#define TARGET
#define LANES 4
#define ROWS  6
#if defined(__aarch64__)
#define FMA(x, y, z) vfmaq_f32(z, x, y)
#else
#define FMA(x, y, z) ((x) * (y) + (z))
#endif
#define SELECT(m, x, y) ((floats)(((ints)(x) & (ints)(m)) | ((ints)(y) & ~(ints)(m))))
#define MAX(x, y)       SELECT((x) > (y), x, y)
#define MIN(x, y)       SELECT((x) < (y), x, y)
#define LOW(x, y)       ((floats){(x)[0], (y)[0], (x)[1], (y)[1]})
#define HIGH(x, y)      ((floats){(x)[2], (y)[2], (x)[3], (y)[3]})
#define QUADS(p, s)     (*(const floats *)(const void *)(p))
#include "softmax_kernel.h"
#undef SELECT

typedef struct kernel {
    void (*attend)(const head *h);
    int64_t lanes, rows;
} kernel;

/* without `attend` where this machine has no such instructions */
static kernel find_kernel(int isa) {
    static const kernel none = {NULL, 1, 1}, portable = {portable_attend, 4, 6};
#if defined(__x86_64__)
    static const kernel avx2 = {avx2_attend, 8, 6}, avx512 = {avx512_attend, 16, 8};
    if (isa == LA_ISA_AVX512 && __builtin_cpu_supports("avx512f")) return avx512;
    if (isa == LA_ISA_AVX2 && la_isa_available(LA_ISA_AVX2)) return avx2;
#endif
    if (isa == LA_ISA_NEON && la_isa_available(LA_ISA_NEON)) return portable;
    return isa == LA_ISA_SCALAR ? portable : none;
}

static int64_t round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
}

/* Lays the scratch out from `at` on, which is on a cache line, and so is all that follows. */
static void place(head *h, int64_t columns, float *at) {
    h->K = at;
    h->V = h->K + h->keys * h->dk;
    h->Q = h->V + h->keys * columns;
    h->O = h->Q + BLOCK_Q * h->dk;
    h->S = h->O + BLOCK_Q * columns;
    h->most = h->S + BLOCK_Q * BLOCK_K;
    h->sum = h->most + BLOCK_Q;
    h->factor = h->sum + BLOCK_Q;
    h->limits = h->factor + BLOCK_Q;
}

static int64_t padded_keys(const bench_row *row, const kernel *use) {
    return round_up(round_up(row->tokens, use->rows), 2 * use->lanes);
}

size_t bench_softmax_workspace(const bench_row *row) {
    const kernel use = find_kernel(row->isa);
    const int64_t width = 2 * use.lanes, columns = round_up(row->dim_v, width);
    const int64_t rows = padded_keys(row, &use) + BLOCK_Q; /* of k and q, of v and out */
    const int64_t floats = rows * (row->dim_k + columns) + BLOCK_Q * (BLOCK_K + 3) + 2 * width;
    return use.attend ? (size_t)floats * sizeof(float) + 64 : 0;
}

/* the tensors of head i of sequence b */
static void set_tensors(head *h, const bench_row *row, const bench_data *data, int64_t b,
                        int64_t i) {
    const int64_t first = b * row->tokens, H = row->heads, Hq = row->q_heads, Hk = row->k_heads;
    h->tokens = row->tokens;
    h->dk = row->dim_k;
    h->dv = row->dim_v;
    h->queries = bench_out_heads(row) / H;
    h->scale = bench_scale(row) * 1.44269504f; /* 1 / ln 2 */
    h->q_stride = Hq * h->dk;
    h->k_stride = Hk * h->dk;
    h->v_stride = H * h->dv;
    h->out_stride = bench_out_heads(row) * h->dv;
    h->q = data->q + first * h->q_stride + i * Hq / H * h->dk;
    h->k = data->k + first * h->k_stride + i * Hk / H * h->dk;
    h->v = data->v + first * h->v_stride + i * h->dv;
    h->out = data->out + first * h->out_stride + i * h->queries * h->dv;
}

void bench_run_softmax(const bench_row *row, const bench_data *data, int64_t thread) {
    const kernel use = find_kernel(row->isa);
    char *at = (char *)data->workspace + (size_t)thread * data->workspace_size;
    int64_t i;
    head h;
    at += (64 - (uintptr_t)at % 64) % 64;
    for (i = thread; i < row->batch * row->heads; i += row->threads) {
        set_tensors(&h, row, data, i / row->heads, i % row->heads);
        h.keys = padded_keys(row, &use);
        place(&h, round_up(h.dv, 2 * use.lanes), (float *)(void *)at);
        use.attend(&h);
    }
}
