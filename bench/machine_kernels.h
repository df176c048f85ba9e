/* The limits of one instruction set: a kernel for passes.h. */

/* Limits are the machine's, also in builds that check every access. */
#define UNCHECKED                                                                                  \
    TARGET __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize("undefined")))
#define WIDTH  (4 * LANES)
#define floats NAME(floats)
#define ints   NAME(ints)

typedef float floats __attribute__((vector_size(WIDTH), may_alias));
typedef int32_t ints __attribute__((vector_size(WIDTH), may_alias));

/* flops of `loops` steps of 12 independent chains, all different so that none stands for another;
 * 12 hide the latency of a multiplication and an addition, too */
UNCHECKED static double NAME(peak)(int loops) {
    volatile float one = 1.0f, sink; /* what the compiler cannot know, and cannot drop */
    const floats zero = {0.0f}, x = zero + one, y = zero + 1e-9f;
    floats a = x, b = a + x, c = b + x, d = c + x, e = d + x, f = e + x;
    floats g = f + x, h = g + x, i = h + x, j = i + x, k = j + x, l = k + x;
    int n;
    for (n = 0; n < loops; ++n) {
        a = FMA(a, x, y), b = FMA(b, x, y), c = FMA(c, x, y), d = FMA(d, x, y);
        e = FMA(e, x, y), f = FMA(f, x, y), g = FMA(g, x, y), h = FMA(h, x, y);
        i = FMA(i, x, y), j = FMA(j, x, y), k = FMA(k, x, y), l = FMA(l, x, y);
    }
    sink = ((a + b + c + d + e + f) + (g + h + i + j + k + l))[0];
    (void)sink;
    return (double)loops * 12.0 * 2.0 * LANES;
}

/* y = exp(x) for |x| < 87: 2^n with n rounded by a large number, and a polynomial of degree 6 */
UNCHECKED static void NAME(exps)(float *y, const float *x, size_t count) {
    const floats zero = {0.0f}, large = zero + 12582912.0f;
    const floats c6 = zero + 1.0f / 720, c5 = zero + 1.0f / 120, c4 = zero + 1.0f / 24;
    const floats c3 = zero + 1.0f / 6, c2 = zero + 0.5f, one = zero + 1.0f;
    size_t i;
    for (i = 0; i < count; i += LANES) {
        const floats v = *(const floats *)(const void *)(x + i);
        const floats t = FMA(v, zero + 1.44269504f, large), n = t - large;
        const floats r = FMA(n, zero - 1.42860677e-6f, FMA(n, zero - 0.693145752f, v));
        const floats p =
            FMA(FMA(FMA(FMA(FMA(FMA(c6, r, c5), r, c4), r, c3), r, c2), r, one), r, one);
        *(ints *)(void *)(y + i) = (ints)p + ((ints)t << 23);
    }
}

/* the buffers are multiples of 8 registers */
UNCHECKED static int32_t NAME(read)(const char *from, size_t bytes) {
    const ints *p = (const ints *)(const void *)from;
    ints a = {0}, b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    size_t i;
    for (i = 0; i < bytes / WIDTH; i += 8, p += 8) {
        a ^= p[0], b ^= p[1], c ^= p[2], d ^= p[3];
        e ^= p[4], f ^= p[5], g ^= p[6], h ^= p[7];
    }
    return ((a ^ b ^ c ^ d) ^ (e ^ f ^ g ^ h))[0];
}

/* Both halves side by side: two streams are faster than one, in memory by a tenth. Nothing is read
 * right after a write to the same place of another page. */
UNCHECKED static void NAME(update)(char *at, size_t bytes) {
    ints *p = (ints *)(void *)at, *q = (ints *)(void *)(at + bytes / 2);
    const ints ones = {1};
    size_t i;
    for (i = 0; i < bytes / 2 / WIDTH; i += 4, p += 4, q += 4) {
        const ints a = p[0] ^ ones, b = p[1] ^ ones, c = p[2] ^ ones, d = p[3] ^ ones;
        const ints e = q[0] ^ ones, f = q[1] ^ ones, g = q[2] ^ ones, h = q[3] ^ ones;
        p[0] = a, p[1] = b, p[2] = c, p[3] = d;
        q[0] = e, q[1] = f, q[2] = g, q[3] = h;
    }
}

static const kernel NAME(kernel) = {NAME(peak), NAME(exps), NAME(read), NAME(update)};
