/* Compiled in many ways by run.sh, as C and as C++. For each instruction set, variant and form it
   checks exact data against integers, then prints a hash of the bits of inexact results: these
   may not depend on the compiler, its flags or the standard, so run.sh compares the lines. What an
   option leaves out must be refused.
   PLAIN_FIRST, PLAIN: includes without the implementation, before it or instead of it.
   FAST: another object, built without -Ofast, has the results that this one is compared to. */
#ifndef HEADER
#define HEADER "linear_attention.h"
#endif
#if defined(PLAIN_FIRST) || defined(PLAIN)
#include HEADER
#endif
#ifndef PLAIN
#define LA_IMPLEMENTATION
#endif
#include HEADER
#include HEADER /* changes nothing */

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef LA_NO_FEATURES
#define HAS_FEATURES 0
#else
#define HAS_FEATURES 1
#endif
#ifdef LA_NO_CHANNELS
#define HAS_CHANNELS 0
#else
#define HAS_CHANNELS 1
#endif
#ifdef LA_NO_CHUNKS
#define HAS_CHUNKS 0
#else
#define HAS_CHUNKS 1
#endif

enum { T = 37, H = 3, DK = 7, DV = 19, ANGLES = 9, WORKSPACE = 1 << 20 };
enum { FORMS = 4, MOST = T * H * DV };

/* form and chunk */
static const int forms[FORMS][2] = {
    {LA_PARALLEL, 0}, {LA_RECURRENT, 0}, {LA_CHUNKWISE, 5}, {LA_CHUNKWISE, 0}};

static float q[T * H * DK], k[T * H * DK], v[T * H * DV], beta[T * H], decay[T * H * DK];
static float partner[T * H * DK]; /* erase gates, bonus or a, as the rule has them; and D */
static float out[T * H * DV], want[T * H * DV], weights[ANGLES * DK];
static double workspace[WORKSPACE / sizeof(double)];
static uint32_t generator;

static int below(int n) {
    generator = generator * 1664525u + 1013904223u;
    return (int)((generator >> 8) % (uint32_t)n);
}

static float uniform(void) {
    return (float)below(1 << 20) / (float)(1 << 19) - 1.0f;
}

/* Small integers, one-hot keys, beta in {0, 1, 2}, decays 1 and (six at most) 1/2. */
static void fill_exact(int width) {
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
    }
    for (i = 0; i < T * H * DK; i++) {
        decay[i] = i / (H * width) % 7 == 3 && i % width % 3 == 0 ? -0.693147180559945309f : 0.0f;
    }
}

/* Strong gates are those of one token in nine: -deepest / 2 .. -deepest. */
static void fill_inexact(float deepest) {
    int i;
    for (i = 0; i < T * H * DK; i++) {
        q[i] = uniform();
        k[i] = 0.5f * uniform();
        partner[i] = 0.5f * uniform();
    }
    for (i = 0; i < T * H * DV; i++) {
        v[i] = uniform();
    }
    for (i = 0; i < T * H; i++) {
        beta[i] = 1.0f + uniform();
    }
    for (i = 0; i < T * H * DK; i++) {
        decay[i] = (below(9) ? 0.125f : 0.5f * deepest) * (1.0f + uniform());
    }
}

/* The recurrence on exact data, one column of one head: every number here is exact. */
static void recur_exact(int h, int column, int width, int delta) {
    float state[DK] = {0};
    int t, i;
    for (t = 0; t < T; t++) {
        const int row = t * H + h;
        float u = v[row * DV + column], o = 0;
        for (i = 0; i < DK; i++) {
            state[i] *= decay[row * width + i % width] < 0 ? 0.5f : 1.0f;
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

static int has_features(la_variant variant) {
    return variant == LA_ELU || (variant >= LA_DPFP && variant <= LA_RFF);
}

/* Those whose results are compared between compilers, not with exact ones. */
static int is_inexact(la_variant variant) {
    return has_features(variant) || variant >= LA_MAMBA2;
}

/* ANGLES rows of W, each another mixture of few small numbers. */
static void set_features(la_layer *layer) {
    int i;
    for (i = 0; i < ANGLES * DK; i++) {
        weights[i] = 0.25f * (float)(i * i % 11 - 5);
    }
    layer->projection = weights;
    layer->features = ANGLES;
    layer->normalised = layer->feature == LA_FEATURE_RFF ? 0 : layer->normalised; /* no sums of 0 */
}

static int width_of(la_variant variant) {
    const int rule = variant == LA_RWKV6 || variant == LA_RWKV7 || variant == LA_GDN2;
    return variant == LA_GLA || variant == LA_ELU || rule ? DK : 1;
}

/* what only some rules have, and what finishes outputs */
static void set_partners(la_call *call, la_variant variant) {
    const la_in view = la_bthd(partner, T, H, DK);
    if (variant == LA_GDN2) call->erase = view;
    if (variant == LA_RWKV6) call->bonus = view;
    if (variant == LA_RWKV7) call->a = view;
    if (variant == LA_RWKV7) call->b = la_bthd(k, T, H, DK);
    if (variant == LA_MAMBA2) call->skip = la_per_head(partner);
    if (variant == LA_MAMBA2) call->out_gate = la_bthd(v, T, H, DV);
}

static la_status run(la_variant variant, int isa, int form) {
    la_layer layer;
    la_call call;
    la_layer_init(&layer, variant, H, DK, DV);
    if (has_features(variant)) {
        set_features(&layer);
    }
    la_call_init(&call, &layer, 1, T);
    call.isa = isa;
    call.form = forms[form][0];
    call.chunk = forms[form][1];
    call.q = la_bthd(q, T, H, DK);
    call.k = la_bthd(k, T, H, DK);
    call.v = la_bthd(v, T, H, DV);
    call.log_decay = la_bthd(decay, T, H, width_of(variant));
    call.beta = la_bthd(beta, T, H, 1);
    call.out = la_bthd_out(out, T, H, DV);
    set_partners(&call, variant);
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

/* what an option leaves out */
static la_status expected(la_variant variant, int form) {
    const int there = (HAS_FEATURES || !has_features(variant)) &&
                      (HAS_CHANNELS || width_of(variant) == 1) &&
                      (HAS_CHUNKS || forms[form][0] == LA_RECURRENT);
    return there ? LA_OK : LA_E_UNSUPPORTED;
}

#ifdef FAST
/* In another object: the results without -Ofast. */
const float *precise(int variant, int isa, int form);

static int is_exact(void) {
    return 1; /* sums may be taken in any order */
}

static int compare(la_variant variant, int isa, int form) {
    const float *right = precise((int)variant, isa, form);
    double error = 0, size = 0;
    int i;
    fill_inexact(-80.0f);
    if (run(variant, isa, form) != LA_OK) {
        return 1;
    }
    for (i = 0; i < MOST; i++) {
        const double difference = (double)out[i] - (double)right[i];
        error += difference * difference;
        size += (double)right[i] * (double)right[i];
    }
    printf("%s %s form %d: error %.1e\n", la_isa_name(isa), la_variant_name(variant), form,
           sqrt(error / size));
    return error <= 1e-10 * size ? 0 : 1;
}
#else
static int is_exact(void) {
    return memcmp(out, want, sizeof out) == 0;
}

static unsigned hash(void) {
    unsigned sum = 2166136261u;
    int i;
    for (i = 0; i < MOST; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], sizeof bits);
        sum = (sum ^ (unsigned)bits) * 16777619u;
    }
    return sum;
}

static int compare(la_variant variant, int isa, int form) {
    fill_inexact(-32.0f);
    run(variant, isa, form);
    printf("%s %s form %d: %08x\n", la_isa_name(isa), la_variant_name(variant), form, hash());
    return 0;
}
#endif

static int check(la_variant variant, int isa, int form) {
    int h, column;
    la_status status;
    generator = 1;
    fill_exact(width_of(variant));
    for (h = 0; h < H; h++) {
        for (column = 0; column < DV; column++) {
            recur_exact(h, column, width_of(variant), variant == LA_GATED_DELTANET);
        }
    }
    status = run(variant, isa, form);
    if (status != expected(variant, form) ||
        (status == LA_OK && !is_inexact(variant) && !is_exact())) {
        printf("%s %s form %d: wrong, status %d\n", la_isa_name(isa), la_variant_name(variant),
               form, (int)status);
        return 1;
    }
    return status == LA_OK ? compare(variant, isa, form) : 0;
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* NaN and infinity are refused as settings, whatever a compiler may assume about them. */
static int check_statuses(void) {
    static const uint32_t bad[3] = {0x7fc00000u, 0x7f800000u, 0xff800000u};
    la_layer good, layer;
    la_call call;
    int i, wrong = 0;
    wrong += la_layer_init(&good, LA_RETNET, H, DK, DV) != LA_OK;
    for (i = 0; i < 3; i++) {
        layer = good;
        layer.scale = from_bits(bad[i]);
        wrong += la_call_init(&call, &layer, 1, T) != LA_E_VALUE;
        layer = good;
        layer.eps = from_bits(bad[i]);
        wrong += la_call_init(&call, &layer, 1, T) != LA_E_VALUE;
        layer = good;
        layer.feature = LA_FEATURE_COSFORMER;
        layer.horizon = (double)from_bits(bad[i]);
        wrong += la_call_init(&call, &layer, 1, T) !=
                 (HAS_FEATURES ? LA_E_VALUE : LA_E_UNSUPPORTED);
    }
    layer = good;
    layer.normalised = layer.bidirectional = 1;
    wrong += la_call_init(&call, &layer, 1, T) != (HAS_CHUNKS ? LA_OK : LA_E_UNSUPPORTED);
    wrong += la_call_init(&call, NULL, 1, T) != LA_E_NULL;
    wrong += la_call_init(&call, &good, 1, T) != LA_OK;
    call.form = 9;
    wrong += la_check(&good, &call, NULL) != LA_E_FORM;
    if (wrong) {
        printf("%d statuses are wrong\n", wrong);
    }
    return wrong;
}

#ifdef LA_EXTRAS
enum { WINDOW = 11, SINKS = 2 };

/* one head's weight of key s in the row of token t, before they are divided by their sum */
static double weight(int kind, int t, int s, int h) {
    double x = 0;
    int i;
    if (s > t || (t - s >= WINDOW && s >= SINKS)) {
        return 0;
    }
    for (i = 0; i < DK; i++) {
        x += (double)q[(t * H + h) * DK + i] * (double)k[(s * H + h) * DK + i];
    }
    return kind == LA_SOFTMAX ? exp(x) : 1 / (1 + exp(-x));
}

static double attention_error(int kind) {
    double most = 0;
    int row, j, s;
    for (row = 0; row < T * H; row++) {
        for (j = 0; j < DV; j++) {
            double sum = 0, o = 0;
            for (s = 0; s < T; s++) {
                const double w = weight(kind, row / H, s, row % H);
                o += w * (double)v[(s * H + row % H) * DV + j];
                sum += w;
            }
            o = fabs(o / (kind == LA_SOFTMAX ? sum : 1) - (double)out[row * DV + j]);
            most = o > most ? o : most;
        }
    }
    return most;
}

static int check_attention(int kind, int isa) {
    la_attention layer;
    la_attention_call call;
    la_status status;
    la_attention_init(&layer, kind, H, DK, DV);
    layer.window = WINDOW;
    layer.sinks = SINKS;
    layer.scale = 1.0f;
    la_attention_call_init(&call, &layer, 1, T);
    call.isa = isa;
    call.q = la_bthd(q, T, H, DK);
    call.k = la_bthd(k, T, H, DK);
    call.v = la_bthd(v, T, H, DV);
    call.out = la_bthd_out(out, T, H, DV);
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    generator = 1;
    fill_inexact(-32.0f);
    memset(out, 0xff, sizeof out);
    status = la_attention_forward(&layer, &call);
    if (status != LA_OK || !(attention_error(kind) < 1e-5)) {
        printf("%s attention %d: wrong, status %d\n", la_isa_name(isa), kind, (int)status);
        return 1;
    }
#ifndef FAST
    printf("%s attention %d: %08x\n", la_isa_name(isa), kind, hash());
#endif
    return 0;
}
#else
static int check_attention(int kind, int isa) {
    (void)kind;
    (void)isa;
    return 0;
}
#endif

static int check_all(void) {
    static const la_variant variants[] = {LA_RETNET, LA_GATED_DELTANET, LA_GLA,      LA_ELU,
                                          LA_DPFP,   LA_BASED,          LA_HEDGEHOG, LA_RFF,
                                          LA_MAMBA2, LA_RWKV6,          LA_RWKV7,    LA_GDN2};
    const int count = (int)(sizeof variants / sizeof *variants);
    int isa, form, i, bad = check_statuses();
    for (isa = LA_ISA_SCALAR; isa <= LA_ISA_NEON; isa++) {
        for (i = 0; la_isa_available(isa) && i < 2; i++) {
            bad += check_attention(i, isa);
        }
        for (form = 0; la_isa_available(isa) && form < FORMS; form++) {
            for (i = 0; i < count; i++) {
                bad += check(variants[i], isa, form);
            }
        }
    }
    return bad != 0;
}

/* The same file makes both objects of a program that holds two static copies. */
int second_copy(void);

#ifdef PRECISE
const float *precise(int variant, int isa, int form);
const float *precise(int variant, int isa, int form) {
    generator = 1;
    fill_exact(width_of((la_variant)variant));
    fill_inexact(-80.0f);
    run((la_variant)variant, isa, form);
    return out;
}
#endif

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
