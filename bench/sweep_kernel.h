/* The recurrence in sweeps over a state [dv][dk]: a kernel for passes.h. */

#define floats   NAME(floats)
#define multiply NAME(multiply)
#define add      NAME(add)
#define dot      NAME(dot)
#define token    NAME(token)

typedef float floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* y *= x */
INLINE void multiply(float *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        *(floats *)(void *)(y + i) *= *(const floats *)(const void *)(x + i);
    for (; i < n; ++i) y[i] *= x[i];
}

/* y += a x */
INLINE void add(float *y, float a, const float *x, int64_t n) {
    const floats factor = a - (floats){0.0f};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        floats *to = (floats *)(void *)(y + i);
        *to = FMA(factor, *(const floats *)(const void *)(x + i), *to);
    }
    for (; i < n; ++i) y[i] += a * x[i];
}

/* four sums hide the latency of the additions */
INLINE float dot(const float *x, const float *y, int64_t n) {
    floats a = {0.0f}, b = a, c = a, d = a;
    float sum = 0.0f;
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        const floats *p = (const floats *)(const void *)(x + i);
        const floats *q = (const floats *)(const void *)(y + i);
        a = FMA(p[0], q[0], a);
        b = FMA(p[1], q[1], b);
        c = FMA(p[2], q[2], c);
        d = FMA(p[3], q[3], d);
    }
    a += b + (c + d);
    for (; i < n; ++i) sum += x[i] * y[i];
    for (i = 0; i < LANES; ++i) sum += a[i];
    return sum;
}

/* the scratch: u [dv], alpha [dk] */
TARGET static void token(const unit *s, int64_t t) {
    const int64_t dk = s->row->dim_k, dv = s->row->dim_v;
    const int is_delta = bench_is_delta(s->row), has_beta = bench_has_beta(s->row);
    float *S = s->state, *u = s->work, *alpha = u + dv, *o = output(s, t);
    const float *k = key(s, t), *v = value(s, t), *q = query(s, t), scale = bench_scale(s->row);
    int64_t i, j;
    if (decays(s, t, alpha, dk))
        for (j = 0; j < dv; ++j) multiply(S + j * dk, alpha, dk);
    for (j = 0; has_beta && j < dv; ++j)
        u[j] = beta(s, t) * (is_delta ? v[j] - dot(S + j * dk, k, dk) : v[j]);
    for (j = 0; j < dv; ++j) add(S + j * dk, has_beta ? u[j] : v[j], k, dk);
    for (i = 0; i < s->queries; ++i, q += dk, o += dv)
        for (j = 0; j < dv; ++j) o[j] = scale * dot(S + j * dk, q, dk);
}

TARGET static void NAME(sweep_unit)(const unit *s) {
    int64_t t;
    begin(s);
    for (t = 0; t < s->row->tokens; ++t) token(s, t);
}
