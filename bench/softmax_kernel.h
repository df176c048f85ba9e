/* Causal softmax attention of one head: a kernel for passes.h.
 *
 *     o_i = sum over j <= i of p_ij v_j,  p_ij = exp(scale q_i . k_j) / (the sum of these over j)
 *
 * A vector is two registers, W floats. A tile is ROWS queries times one vector, its sums all in
 * registers: each vector that is loaded meets ROWS numbers, so that multiply-adds and not loads are
 * the limit. Scores and outputs are made of tiles alone, and what these read is in their order:
 *
 *     once per head          K  [keys / W][dk][W]      lanes are keys
 *                            V  [dv / W][keys][W]      lanes are columns
 *     per BLOCK_Q queries    Q  [BLOCK_Q][dk]          times scale log2(e)
 *                            O  [dv / W][BLOCK_Q][W]   exponentials times values, summed so far
 *       per BLOCK_K keys     S  [BLOCK_Q][BLOCK_K]     scores, then their exponentials
 *
 * A panel [dk][W] of K stays in L1 while all queries of the block pass over it, a panel
 * [BLOCK_K][W] of V likewise. Exponentials are powers of two, relative to the largest score of the
 * row so far; when that rises by x, the row's sum and O shrink by exp2(-x), O as it is loaded.
 *
 * BLOCK_Q divides BLOCK_K, ROWS divides BLOCK_Q and W divides BLOCK_K: the last block of keys holds
 * the own keys of all the block's queries. Of its keys, query i sees the first before + i + 1,
 * where `before` counts those ahead of the first query's own. Scores are formed to the end of a
 * tile, but nothing reads those of later keys. */

#define floats        NAME(floats)
#define ints          NAME(ints)
#define vector        NAME(vector)
#define set           NAME(set)
#define load          NAME(load)
#define store         NAME(store)
#define fma1          NAME(fma1)
#define exp2_of       NAME(exp2_of)
#define largest       NAME(largest)
#define total         NAME(total)
#define columns4      NAME(columns4)
#define pack_panel    NAME(pack_panel)
#define pack_keys     NAME(pack_keys)
#define pack_values   NAME(pack_values)
#define load_queries  NAME(load_queries)
#define store_outputs NAME(store_outputs)
#define score_tile    NAME(score_tile)
#define value_tile    NAME(value_tile)
#define scores        NAME(scores)
#define row_maximum   NAME(row_maximum)
#define row_exp       NAME(row_exp)
#define exponentials  NAME(exponentials)
#define values        NAME(values)
#define query_head    NAME(query_head)
#define W             (2 * LANES)

/* ---- vectors --------------------------------------------------------------------------------- */

typedef float floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

typedef struct vector {
    floats a, b;
} vector;

INLINE floats set(float x) {
    return x - (floats){0.0f};
}

INLINE vector load(const float *p) {
    const floats *x = (const floats *)(const void *)p;
    const vector v = {x[0], x[1]};
    return v;
}

INLINE void store(float *p, vector v) {
    floats *x = (floats *)(void *)p;
    x[0] = v.a;
    x[1] = v.b;
}

/* x y + z */
INLINE vector fma1(float x, vector y, vector z) {
    const vector v = {FMA(set(x), y.a, z.a), FMA(set(x), y.b, z.b)};
    return v;
}

/* 2^x for x <= 0, but 2^-125 below -125. The polynomial is 2^x for |x| <= 1 / 2 with the least
 * relative error, 7.5e-8. Conversion drops the fraction, so that x - 1 / 2 is rounded. */
INLINE floats exp2_of(floats x) {
    floats f, p;
    ints n;
    x = MAX(set(-125.0f), x);
    n = __builtin_convertvector(x - 0.5f, ints);
    f = x - __builtin_convertvector(n, floats);
    p = FMA(set(0.00132764726f), f, set(0.00967554134f));
    p = FMA(p, f, set(0.0555071327f));
    p = FMA(p, f, set(0.240221197f));
    p = FMA(p, f, set(0.693146967f));
    p = FMA(p, f, set(1.00000007f));
    return (floats)((ints)p + (n << 23));
}

INLINE float largest(vector x) {
    const floats y = MAX(x.a, x.b);
    float most = y[0];
    int i;
    for (i = 1; i < LANES; ++i) most = y[i] > most ? y[i] : most;
    return most;
}

INLINE float total(vector x) {
    const floats y = x.a + x.b;
    float sum = y[0];
    int i;
    for (i = 1; i < LANES; ++i) sum += y[i];
    return sum;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* columns 0 .. 3 of LANES rows become rows, W apart */
INLINE void columns4(float *to, const float *x, int64_t stride) {
    const floats x0 = QUADS(x, 4 * stride), x1 = QUADS(x + stride, 4 * stride);
    const floats x2 = QUADS(x + 2 * stride, 4 * stride), x3 = QUADS(x + 3 * stride, 4 * stride);
    const floats even = LOW(x0, x2), odd = LOW(x1, x3);
    const floats even_high = HIGH(x0, x2), odd_high = HIGH(x1, x3);
    *(floats *)(void *)to = LOW(even, odd);
    *(floats *)(void *)(to + W) = HIGH(even, odd);
    *(floats *)(void *)(to + 2 * W) = LOW(even_high, odd_high);
    *(floats *)(void *)(to + 3 * W) = HIGH(even_high, odd_high);
}

/* `count` rows of `width` floats become columns of a panel [width][W]; the other columns are 0 */
TARGET static void pack_panel(float *to, const float *x, int64_t stride, int64_t count,
                              int64_t width) {
    int64_t i = 0, j;
    if (count < W) memset(to, 0, (size_t)(width * W) * sizeof *to);
    for (; count >= W && i + 4 <= width; i += 4) {
        columns4(to + i * W, x + i, stride);
        columns4(to + i * W + LANES, x + i + LANES * stride, stride);
    }
    for (; i < width; ++i)
        for (j = 0; j < W && j < count; ++j) to[i * W + j] = x[j * stride + i];
}

TARGET static void pack_keys(const head *h) {
    int64_t t;
    for (t = 0; t < h->keys; t += W)
        pack_panel(h->K + t * h->dk, h->k + t * h->k_stride, h->k_stride, h->tokens - t, h->dk);
}

TARGET static void pack_values(const head *h) {
    float *to = h->V;
    int64_t t, i, j;
    for (i = 0; i < h->dv; i += W) {
        for (t = 0; t < h->tokens; ++t, to += W) {
            const float *v = h->v + t * h->v_stride + i;
            if (i + W <= h->dv)
                store(to, load(v));
            else
                for (j = 0; j < W; ++j) to[j] = i + j < h->dv ? v[j] : 0.0f;
        }
        for (; t < h->keys; ++t, to += W) memset(to, 0, W * sizeof *to);
    }
}

/* `count` queries times the scale, then zeros to `rows` */
TARGET static void load_queries(const head *h, const float *q, int64_t count, int64_t rows) {
    float *to = h->Q;
    int64_t i, j;
    for (i = 0; i < count; ++i, to += h->dk, q += h->q_stride)
        for (j = 0; j < h->dk; ++j) to[j] = q[j] * h->scale;
    memset(to, 0, (size_t)((rows - count) * h->dk) * sizeof *to);
}

TARGET static void store_outputs(const head *h, float *out, int64_t count) {
    int64_t i, j, n;
    for (i = 0; i < count; ++i, out += h->out_stride) {
        const float inverse = 1.0f / h->sum[i], *O = h->O + i * W;
        for (j = 0; j + W <= h->dv; j += W, O += BLOCK_Q * W) {
            vector x = load(O);
            x.a *= inverse;
            x.b *= inverse;
            store(out + j, x);
        }
        for (n = 0; j + n < h->dv; ++n) out[j + n] = O[n] * inverse;
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* f(n) for each row of a tile; the sums are variables, as compilers keep arrays in memory */
#undef ROWS
#undef EACH_ROW
#if LANES == 16 /* there are 32 registers */
#define ROWS        8
#define EACH_ROW(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#else
#define ROWS        6
#define EACH_ROW(f) f(0) f(1) f(2) f(3) f(4) f(5)
#endif

/* S = Q K^T */
TARGET static void score_tile(float *S, const float *Q, const float *K, int64_t dk) {
    int64_t i;
#define ZERO(n)  vector x##n = {{0.0f}, {0.0f}};
#define STEP(n)  x##n = fma1(Q[n * dk + i], k, x##n);
#define STORE(n) store(S + n * BLOCK_K, x##n);
    EACH_ROW(ZERO)
    for (i = 0; i < dk; ++i, K += W) {
        const vector k = load(K);
        EACH_ROW(STEP)
    }
    EACH_ROW(STORE)
#undef STORE
#undef STEP
}

/* O = factor O + S V over n keys, or without O where factor is null; if `own`, row i goes on with
 * i keys more */
TARGET static void value_tile(float *O, const float *factor, const float *S, const float *V,
                              int64_t n, int own) {
    int64_t j;
#define SCALE(n) x##n = fma1(factor[n], load(O + n * W), x##n);
#define STEP(n)  x##n = fma1(S[n * BLOCK_K + j], v, x##n);
#define MORE(n)                                                                                    \
    for (j = 0; j < n; ++j) x##n = fma1(S[n * BLOCK_K + j], load(V + j * W), x##n);
#define STORE(n) store(O + n * W, x##n);
    EACH_ROW(ZERO)
    if (factor) {
        EACH_ROW(SCALE)
    }
    for (j = 0; j < n; ++j) {
        const vector v = load(V + j * W);
        EACH_ROW(STEP)
    }
    S += n;
    V += n * W;
    if (own) {
        EACH_ROW(MORE)
    }
    EACH_ROW(STORE)
#undef STORE
#undef MORE
#undef STEP
#undef SCALE
#undef ZERO
}

/* ---- a block of queries and a block of keys -------------------------------------------------- */

/* Each panel of keys begins with the tile that holds the first query to see one of them. */
TARGET static void scores(const head *h, const float *K, int64_t rows, int64_t before) {
    const int64_t keys = before + rows < BLOCK_K ? before + rows : BLOCK_K;
    int64_t i, j;
    for (j = 0; j < keys; j += W, K += W * h->dk)
        for (i = j < before ? 0 : (j - before) / ROWS * ROWS; i < rows; i += ROWS)
            score_tile(h->S + i * BLOCK_K + j, h->Q + i * h->dk, K, h->dk);
}

/* of n scores; what fills the last vector becomes -infinity */
INLINE float row_maximum(const head *h, float *S, int64_t n) {
    vector most = {set(-INFINITY), set(-INFINITY)}, x;
    int64_t j;
    for (j = 0; j < n; j += W) {
        x = load(S + j);
        if (j + W > n) {
            const vector limit = load(h->limits + W - (n - j));
            x.a = MIN(x.a, limit.a);
            x.b = MIN(x.b, limit.b);
            store(S + j, x);
        }
        most.a = MAX(x.a, most.a);
        most.b = MAX(x.b, most.b);
    }
    return largest(most);
}

/* S = exp2(S - most), whole vectors; their sum */
INLINE float row_exp(float *S, int64_t n, float most) {
    vector sum = {{0.0f}, {0.0f}}, x;
    int64_t j;
    for (j = 0; j < n; j += W) {
        x = load(S + j);
        x.a = exp2_of(x.a - most);
        x.b = exp2_of(x.b - most);
        store(S + j, x);
        sum.a += x.a;
        sum.b += x.b;
    }
    return total(sum);
}

TARGET static void exponentials(const head *h, int64_t rows, int64_t before) {
    int64_t i;
    for (i = 0; i < rows; ++i) {
        float *S = h->S + i * BLOCK_K;
        const int64_t n = before + i + 1 < BLOCK_K ? before + i + 1 : BLOCK_K;
        const float here = row_maximum(h, S, n), last = h->most[i];
        const float most = here > last ? here : last;
        h->factor[i] = exp2_of(set(last - most))[0];
        h->most[i] = most;
        h->sum[i] = h->factor[i] * h->sum[i] + row_exp(S, n, most);
    }
}

TARGET static void values(const head *h, const float *V, int64_t rows, int64_t before, int first) {
    const int own = before < BLOCK_K;
    float *O = h->O;
    int64_t i, j;
    for (j = 0; j < h->dv; j += W, V += h->keys * W, O += BLOCK_Q * W)
        for (i = 0; i < rows; i += ROWS)
            value_tile(O + i * W, first ? NULL : h->factor + i, h->S + i * BLOCK_K, V,
                       own ? before + i + 1 : BLOCK_K, own);
}

/* ---- the head -------------------------------------------------------------------------------- */

/* one head of queries */
TARGET static void query_head(const head *h, const float *q, float *out) {
    int64_t begin, key, i;
    for (begin = 0; begin < h->tokens; begin += BLOCK_Q) {
        const int64_t left = h->tokens - begin, count = left < BLOCK_Q ? left : BLOCK_Q;
        const int64_t rows = (count + ROWS - 1) / ROWS * ROWS;
        load_queries(h, q + begin * h->q_stride, count, rows);
        for (i = 0; i < rows; ++i) h->most[i] = -INFINITY, h->sum[i] = 0.0f;
        for (key = 0; key <= begin; key += BLOCK_K) {
            scores(h, h->K + key * h->dk, rows, begin - key);
            exponentials(h, rows, begin - key);
            values(h, h->V + key * W, rows, begin - key, key == 0);
        }
        store_outputs(h, out + begin * h->out_stride, count);
    }
}

TARGET static void NAME(attend)(const head *h) {
    int64_t i;
    for (i = 0; i < W; ++i) h->limits[i] = INFINITY, h->limits[W + i] = -INFINITY;
    pack_keys(h);
    pack_values(h);
    for (i = 0; i < h->queries; ++i) query_head(h, h->q + i * h->dk, h->out + i * h->dv);
}

static const kernel NAME(kernel) = {NAME(attend), LANES, ROWS};
