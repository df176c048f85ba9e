/* Causal softmax attention, as good as it gets without a linear form: blocked, vectorised, one pass
 * over the scores. The kernel is in softmax_kernel.h; here are the heads. */
#include "units.h"
#include <math.h>
#include <string.h>

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

typedef struct kernel {
    void (*attend)(const head *h);
    int64_t lanes, rows;
} kernel;

#define KERNEL "softmax_kernel.h"
#include "passes.h"

static const kernel *const kernels[BENCH_ISAS] = BY_ISA(kernel);

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
    const kernel *use = kernels[row->isa];
    const int64_t width = use ? 2 * use->lanes : 1, columns = round_up(row->dim_v, width);
    const int64_t rows = use ? padded_keys(row, use) + BLOCK_Q : 0; /* of k and q, of v and out */
    const int64_t floats = rows * (row->dim_k + columns) + BLOCK_Q * (BLOCK_K + 3) + 2 * width;
    return use ? (size_t)floats * sizeof(float) : 0;
}

static void attend(const unit *s) {
    const bench_row *row = s->row;
    const kernel *use = kernels[row->isa];
    head h;
    h.tokens = row->tokens;
    h.dk = row->dim_k;
    h.dv = row->dim_v;
    h.queries = s->queries;
    h.keys = padded_keys(row, use);
    h.scale = bench_scale(row) * 1.44269504f; /* 1 / ln 2 */
    h.q_stride = row->q_heads * h.dk;
    h.k_stride = row->k_heads * h.dk;
    h.v_stride = row->heads * h.dv;
    h.out_stride = bench_out_heads(row) * h.dv;
    h.q = query(s, 0);
    h.k = key(s, 0);
    h.v = value(s, 0);
    h.out = s->data->out + output_row(s, 0) * h.dv;
    place(&h, round_up(h.dv, 2 * use->lanes), s->work);
    use->attend(&h);
}

void bench_run_softmax(const bench_row *row, const bench_data *data, int64_t thread) {
    each_unit(row, data, thread, attend);
}
