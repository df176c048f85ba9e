/* How close to the machine: nanoseconds per token and head, and the share of the floor, which is
 * the time that the fewest possible flops take at the FMA peak this core reaches in the same run.
 *
 *     bench [TOKENS]      forward over 4 heads, 2048 tokens unless said; one thread */
#define _POSIX_C_SOURCE 199309L
#define LA_IMPLEMENTATION
#include "linear_attention.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { HEADS = 4, FEATURES = 128 };

static double now(void) { /* ns of this thread */
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#if LAI_HAS_AVX2
/* flops per ns of ten independent sums, all different so that none can stand for another */
__attribute__((target("avx2,fma"))) static double peak(void) {
    enum { LOOPS = 40000 };
    static volatile float one = 1.0f;
    const __m256 x = _mm256_set1_ps(one), y = _mm256_set1_ps(1e-9f);
    __m256 a = x, b = a + x, c = b + x, d = c + x, e = d + x;
    __m256 f = e + x, g = f + x, h = g + x, i = h + x, j = i + x;
    const double start = now();
    float out[8];
    int n;
    for (n = 0; n < LOOPS; ++n) {
        a = _mm256_fmadd_ps(a, x, y), b = _mm256_fmadd_ps(b, x, y), c = _mm256_fmadd_ps(c, x, y);
        d = _mm256_fmadd_ps(d, x, y), e = _mm256_fmadd_ps(e, x, y), f = _mm256_fmadd_ps(f, x, y);
        g = _mm256_fmadd_ps(g, x, y), h = _mm256_fmadd_ps(h, x, y), i = _mm256_fmadd_ps(i, x, y);
        j = _mm256_fmadd_ps(j, x, y);
    }
    _mm256_storeu_ps(out, (a + b + c + d + e) + (f + g + h + i + j));
    one = out[0] > 0.0f ? 1.0f : out[0];
    return LOOPS * 10.0 * 16.0 / (now() - start);
}
#else
static double peak(void) {
    return 0.0;
}
#endif

/* n numbers in [low, high], on a cache line, as tensor libraries allocate them; never freed */
static float *numbers(size_t n, float low, float high) {
    char *at = malloc(n * sizeof(float) + 64);
    float *x;
    size_t i;
    if (!at) fprintf(stderr, "bench: out of memory\n"), exit(1);
    x = (float *)(void *)(at + (64 - (uintptr_t)at % 64) % 64);
    for (i = 0; i < n; ++i) x[i] = low + (high - low) * (float)rand() / (float)RAND_MAX;
    return x;
}

typedef struct row {
    la_variant variant;
    int form, channel, strong; /* decay per channel; gates -20 .. 0 with -inf every 7th token */
    double flops;              /* per token and head, in units of dk dv */
} row;

static const row rows[] = {
    {LA_RETNET, LA_CHUNKWISE, 0, 0, 4},
    {LA_RETNET, LA_CHUNKWISE, 0, 1, 4},
    {LA_LIGHTNING, LA_CHUNKWISE, 0, 0, 4},
    {LA_GLA, LA_CHUNKWISE, 1, 0, 4},
    {LA_GLA, LA_CHUNKWISE, 1, 1, 4},
    {LA_DELTANET, LA_CHUNKWISE, 0, 0, 6},
    {LA_GATED_DELTANET, LA_CHUNKWISE, 0, 0, 6},
    {LA_GATED_DELTANET, LA_CHUNKWISE, 0, 1, 6},
    {LA_GATED_DELTANET, LA_CHUNKWISE, 1, 0, 6},
    {LA_ELU, LA_CHUNKWISE, 0, 0, 4},
    {LA_COSFORMER, LA_CHUNKWISE, 0, 0, 8},
    {LA_FAVOR, LA_CHUNKWISE, 0, 0, 8},
    {LA_RETNET, LA_RECURRENT, 0, 0, 4},
    {LA_GATED_DELTANET, LA_RECURRENT, 0, 0, 6},
};

static void prepare(const row *r, la_layer *layer, la_call *call, int64_t d, int64_t T) {
    const size_t n = (size_t)(T * HEADS * d), gates = r->channel ? n : (size_t)(T * HEADS);
    float *g = numbers(gates, r->strong ? -20.0f : -0.1f, 0.0f);
    const int64_t width = r->channel ? d : 1;
    size_t i;
    for (i = 0; r->strong && i < gates; ++i)
        if (i / (size_t)(HEADS * width) % 7 == 0) g[i] = -INFINITY;
    la_layer_init(layer, r->variant, HEADS, d, d);
    layer->features = FEATURES;
    layer->projection = numbers((size_t)(FEATURES * d), -1.7f, 1.7f);
    layer->scale = r->variant == LA_FAVOR ? 0.1f : 1.0f;
    layer->horizon = (double)T;
    la_call_init(call, layer, 1, T);
    call->form = r->form;
    call->q = la_bthd(numbers(n, -0.5f, 0.5f), T, HEADS, d);
    call->k = la_bthd(numbers(n, -1.5f / (float)d, 1.5f / (float)d), T, HEADS, d);
    call->v = la_bthd(numbers(n, -0.5f, 0.5f), T, HEADS, d);
    call->out = la_bthd_out(numbers(n, 0, 0), T, HEADS, d);
    if (r->variant >= LA_RETNET && r->variant != LA_DELTANET)
        call->log_decay = la_bthd(g, T, HEADS, width);
    if (r->variant >= LA_DELTANET)
        call->beta = la_bthd(numbers((size_t)(T * HEADS), 0, 1), T, HEADS, 1);
    call->state_out = numbers(la_state_floats(layer), 0, 0);
    call->workspace_size = la_workspace_size(layer, call);
    call->workspace = numbers(call->workspace_size / sizeof(float) + 1, 0, 0);
}

/* the best of at least 15 samples and 0.4 s: a core may start slowly */
static void measure(const row *r, int64_t d, int64_t T) {
    const double flops = r->flops * (double)d * (double)(r->variant == LA_FAVOR ? FEATURES : d);
    double best = 1e30, best_peak = 0.0, start = now();
    la_layer layer;
    la_call call;
    int i;
    prepare(r, &layer, &call, d, T);
    for (i = 0; i < 15 || now() - start < 4e8; ++i) {
        const double begin = now();
        const la_status status = la_forward(&layer, &call);
        const double time = (now() - begin) / (double)(T * HEADS), p = peak();
        if (status != LA_OK) fprintf(stderr, "bench: %s\n", la_status_text(status)), exit(1);
        best = time < best ? time : best;
        best_peak = p > best_peak ? p : best_peak;
    }
    printf("%-15s %-10s %-8s %-8s %4d %9.1f", la_variant_name(r->variant),
           r->form == LA_RECURRENT ? "recurrent" : "chunkwise", r->channel ? "channel" : "",
           r->strong ? "strong" : "", (int)d, best);
    if (best_peak > 0.0)
        printf(" %9.1f %6.0f %%", flops / best_peak, 100.0 * flops / best_peak / best);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    char *end = NULL;
    const long T = argc > 1 ? strtol(argv[1], &end, 10) : 2048;
    size_t i;
    int64_t d;
    if (argc > 2 || T < 1 || T > 1000000 || (end && *end)) {
        fprintf(stderr, "bench: usage: bench [TOKENS], 1 .. 1000000\n");
        return 2;
    }
    printf("%ld tokens, %d heads, one thread, %s\n", T, HEADS,
           la_isa_available(LA_ISA_AVX2)   ? "avx2"
           : la_isa_available(LA_ISA_NEON) ? "neon"
                                           : "scalar");
    printf("variant         form       decay    gates    dk=dv  ns/token     floor  share\n");
    for (i = 0; i < sizeof rows / sizeof *rows; ++i)
        for (d = 64; d <= 128; d += 64) measure(&rows[i], d, T);
    return 0;
}
