/* How close to the machine: nanoseconds per token and head of the chunkwise form, and the share
 * of the floor, which is the time the fewest possible flops take at the peak that this core
 * reaches in the same run. A timing loop for the kernels; one thread. */
#define _POSIX_C_SOURCE 199309L
#define LA_IMPLEMENTATION
#include "linear_attention.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#if LAI_HAS_AVX2
__attribute__((target("avx2,fma"))) static double peak(void) /* flops per ns: 12 independent sums */
{
    enum { LOOPS = 400000 };
    volatile float one = 1.0f;
    const __m256 x = _mm256_set1_ps(one), y = _mm256_set1_ps(1e-9f);
    __m256 a = x, b = a + x, c = b + x, d = c + x, e = d + x;
    __m256 f = e + x, g = f + x, h = g + x, i = h + x,
           j = i + x; /* all different: none is another */
    const double start = now();
    float out[8];
    int n;
    for (n = 0; n < LOOPS; ++n) {
        a = _mm256_fmadd_ps(a, x, y), b = _mm256_fmadd_ps(b, x, y), c = _mm256_fmadd_ps(c, x, y);
        d = _mm256_fmadd_ps(d, x, y), e = _mm256_fmadd_ps(e, x, y), f = _mm256_fmadd_ps(f, x, y);
        g = _mm256_fmadd_ps(g, x, y), h = _mm256_fmadd_ps(h, x, y), i = _mm256_fmadd_ps(i, x, y);
        j = _mm256_fmadd_ps(j, x, y);
    }
    a = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d));
    a = _mm256_add_ps(_mm256_add_ps(a, e), _mm256_add_ps(_mm256_add_ps(f, g), _mm256_add_ps(h, i)));
    _mm256_storeu_ps(out, _mm256_add_ps(a, j));
    one = out[0];
    return LOOPS * 10.0 * 16.0 / (now() - start);
}
#else
static double peak(void) {
    return 1.0;
}
#endif

static float *floats(size_t n) /* as tensor libraries allocate: on a cache line */
{
    return (float *)(((uintptr_t)malloc(n * sizeof(float) + 64) + 63) / 64 * 64);
}

static void time_variant(la_variant variant, int64_t d, int strong, int form) {
    enum { H = 4, T = 2048, SAMPLES = 15 };
    const size_t n = (size_t)T * H * (size_t)d;
    float *q = floats(n), *k = floats(n), *v = floats(n), *o = floats(n);
    float *g = floats(T * H), *beta = floats(T * H), *state;
    double best = 1e30, best_peak = 0;
    la_layer layer;
    la_call call;
    size_t i;
    for (i = 0; i < n; ++i) {
        q[i] = (float)rand() / (float)RAND_MAX - 0.5f,
        v[i] = (float)rand() / (float)RAND_MAX - 0.5f;
        k[i] = ((float)rand() / (float)RAND_MAX - 0.5f) * 3.0f / (float)d;
    }
    for (i = 0; i < T * H; ++i) {
        beta[i] = 0.5f;
        g[i] = strong ? -20.0f * (float)rand() / (float)RAND_MAX
                      : -0.1f * (float)rand() / (float)RAND_MAX;
        if (strong && i / H % 7 == 0) g[i] = -INFINITY;
    }
    la_layer_init(&layer, variant, H, d, d);
    la_call_init(&call, &layer, 1, T);
    call.q = la_bthd(q, T, H, d), call.k = la_bthd(k, T, H, d), call.v = la_bthd(v, T, H, d);
    call.out = la_bthd_out(o, T, H, d);
    call.log_decay = la_bthd(g, T, H, 1);
    if (variant != LA_RETNET) call.beta = la_bthd(beta, T, H, 1);
    call.form = form;
    state = floats(la_state_floats(&layer));
    call.state_out = state;
    call.workspace_size = la_workspace_size(&layer, &call),
    call.workspace = malloc(call.workspace_size);
    for (i = 0; i < SAMPLES + 2; ++i) {
        const double start = now();
        const int status = la_forward(&layer, &call);
        const double time = (now() - start) / (T * H), p = peak();
        if (status) printf("%s\n", la_status_text((la_status)status)), exit(1);
        best = time < best ? time : best;
        best_peak = p > best_peak ? p : best_peak;
    }
    printf("%-15s d=%-4d %-9s %-8s %8.1f ns  floor %7.1f ns  %5.1f %%\n", la_variant_name(variant),
           (int)d, form == LA_RECURRENT ? "recurrent" : "chunkwise", strong ? "strong" : "ordinary",
           best, (variant == LA_RETNET ? 4.0 : 6.0) * (double)(d * d) / best_peak,
           100.0 * (variant == LA_RETNET ? 4.0 : 6.0) * (double)(d * d) / best_peak / best);
}

int main(void) {
    int64_t d;
    int strong, form;
    for (form = LA_CHUNKWISE; form >= LA_RECURRENT; --form)
        for (strong = 0; strong < 2; ++strong)
            for (d = 64; d <= 128; d += 64) {
                time_variant(LA_RETNET, d, strong, form);
                time_variant(LA_GATED_DELTANET, d, strong, form);
            }
    return 0;
}
