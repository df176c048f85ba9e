/* Compiled in many ways by run.sh, as C and as C++. For each instruction set, variant and form it
   checks exact data against integers, then prints a hash of the bits of inexact results: these
   may not depend on the compiler, its flags or the standard, so run.sh compares the lines. */
#ifndef HEADER
#define HEADER "linear_attention.h"
#endif
#ifdef PLAIN_FIRST
#include HEADER
#endif
#ifndef LA_IMPLEMENTATION
#define LA_IMPLEMENTATION
#endif
#include HEADER
#include HEADER /* changes nothing */

#include <stdio.h>
#include <string.h>

enum { T = 37, H = 3, DK = 7, DV = 19, CHUNK = 5, WORKSPACE = 1 << 20 };

static float q[T * H * DK], k[T * H * DK], v[T * H * DV], beta[T * H], decay[T * H];
static float out[T * H * DV], want[T * H * DV];
static double workspace[WORKSPACE / sizeof(double)];
static uint32_t generator;

static int below(int n) {
    generator = generator * 1664525u + 1013904223u;
    return (int)((generator >> 8) % (uint32_t)n);
}

static float uniform(void) {
    return (float)below(1 << 20) / (float)(1 << 19) - 1.0f;
}

/* Small integers, one-hot keys, beta in {0, 1, 2}, decays 1 and (five at most) 1/2. */
static void fill_exact(void) {
    int i;
    for (i = 0; i < T * H * DK; i++) {
        q[i] = (float)(below(5) - 2);
        k[i] = 0;
    }
    for (i = 0; i < T * H * DV; i++) {
        v[i] = (float)(below(5) - 2);
    }
    for (i = 0; i < T * H; i++) {
        k[i * DK + below(DK)] = below(2) ? 1.0f : -1.0f;
        beta[i] = (float)below(3);
        decay[i] = i / H % 7 == 3 ? -0.693147180559945309f : 0.0f;
    }
}

static void fill_inexact(void) {
    int i;
    for (i = 0; i < T * H * DK; i++) {
        q[i] = uniform();
        k[i] = 0.5f * uniform();
    }
    for (i = 0; i < T * H * DV; i++) {
        v[i] = uniform();
    }
    for (i = 0; i < T * H; i++) {
        beta[i] = 1.0f + uniform();
        decay[i] = below(9) ? -0.125f * (1.0f + uniform()) : -16.0f * (1.0f + uniform());
    }
}

/* The recurrence on exact data, one column of one head: every number here is exact. */
static void recur_exact(int h, int column, int delta) {
    float state[DK] = {0};
    int t, i;
    for (t = 0; t < T; t++) {
        const int row = t * H + h;
        float u = v[row * DV + column], o = 0;
        for (i = 0; i < DK; i++) {
            state[i] *= decay[row] < 0 ? 0.5f : 1.0f;
        }
        for (i = 0; i < DK && delta; i++) {
            u -= state[i] * k[row * DK + i];
        }
        for (i = 0; i < DK; i++) {
            state[i] += beta[row] * k[row * DK + i] * u;
            o += state[i] * q[row * DK + i];
        }
        want[row * DV + column] = o;
    }
}

static la_status run(la_variant variant, int isa, int form) {
    la_layer layer;
    la_call call;
    la_layer_init(&layer, variant, H, DK, DV);
    la_call_init(&call, &layer, 1, T);
    call.isa = isa;
    call.form = form;
    call.chunk = form == LA_CHUNKWISE ? CHUNK : 0;
    call.q = la_bthd(q, T, H, DK);
    call.k = la_bthd(k, T, H, DK);
    call.v = la_bthd(v, T, H, DV);
    call.log_decay = la_bthd(decay, T, H, 1);
    call.beta = la_bthd(beta, T, H, 1);
    call.out = la_bthd_out(out, T, H, DV);
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    memset(out, 0xff, sizeof out);
#if defined(_OPENMP)
    call.thread_count = 2;
    return la_forward_openmp(&layer, &call);
#else
    return la_forward(&layer, &call);
#endif
}

static unsigned hash(void) {
    unsigned sum = 2166136261u;
    size_t i;
    for (i = 0; i < sizeof out / sizeof out[0]; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], sizeof bits);
        sum = (sum ^ (unsigned)bits) * 16777619u;
    }
    return sum;
}

static int check(la_variant variant, int isa, int form) {
    const char *name = la_variant_name(variant), *isa_name = la_isa_name(isa);
    int h, column;
    la_status status;
    generator = 1;
    fill_exact();
    for (h = 0; h < H; h++) {
        for (column = 0; column < DV; column++) {
            recur_exact(h, column, variant != LA_RETNET);
        }
    }
    status = run(variant, isa, form);
    if (status != LA_OK || memcmp(out, want, sizeof out) != 0) {
        printf("%s %s form %d: wrong, status %d\n", isa_name, name, form, (int)status);
        return 1;
    }
    fill_inexact();
    run(variant, isa, form);
    printf("%s %s form %d: %08x\n", isa_name, name, form, hash());
    return 0;
}

static int check_all(void) {
    int isa, form, bad = 0;
    for (isa = LA_ISA_SCALAR; isa <= LA_ISA_NEON; isa++) {
        for (form = LA_PARALLEL; la_isa_available(isa) && form <= LA_CHUNKWISE; form++) {
            bad |= check(LA_RETNET, isa, form);
            bad |= check(LA_GATED_DELTANET, isa, form);
        }
    }
    return bad;
}

/* The same file makes both objects of a program that holds two static copies. */
int second_copy(void);

#ifdef SECOND_COPY
int second_copy(void) {
    return check_all();
}
#else
int main(void) {
#ifdef WITH_SECOND_COPY
    if (second_copy()) {
        return 1;
    }
#endif
    return check_all();
}
#endif
