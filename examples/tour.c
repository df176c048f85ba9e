/* tour: every variant on the same small input, a line each.
 *
 * Six tokens write numbers under four keys, and after each of them every variant is asked for what
 * it has under A, which is written twice:
 *
 *     key      A    B    C    A    B    D
 *     value   10   20   30   50   25   40
 *
 * The keys are orthogonal and of length 1, so that what a line shows of others is the rule's doing.
 * Gates are e^-0.2 per token, or from 1 down to e^-0.6 per channel. */
#define LA_IMPLEMENTATION
#define LA_EXTRAS
#include "linear_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 6, N = 4, FEATURES = 64, SEGMENT = 3 };

static const int key_of[T] = {0, 1, 2, 0, 1, 3};
static const float value_of[T] = {10, 20, 30, 50, 25, 40};
static const float codes[N][N] = {{0.5f, -0.5f, 0.5f, -0.5f},
                                  {0.5f, 0.5f, -0.5f, -0.5f},
                                  {0.5f, -0.5f, -0.5f, 0.5f},
                                  {0.5f, 0.5f, 0.5f, 0.5f}};

static float q[T][N], k[T][N], v[T], gates[T], channel_gates[T][N], ones[T][N], out[T];
static float minus_k[T][N], bonus[N], identity[N][N], projection[FEATURES][N];
static float slope;
static char workspace[1 << 20];

typedef enum gate { NONE, TOKEN, SLOPE, CHANNEL } gate;

typedef struct row {
    la_variant variant;
    gate gate;
    float size; /* of keys and queries: what makes some feature maps sharper */
    const char *what;
} row;

static const row rows[] = {
    {LA_FWP, NONE, 1, "adds: both values of A"},
    {LA_MAPPED, NONE, 1, "averages with the weights q . k, here 1 for A and else 0"},
    {LA_ELU, NONE, 6, "averages; elu + 1 tells other keys apart only in part"},
    {LA_FAVOR, NONE, 2, "averages as softmax does, to what random features can"},
    {LA_RFF, NONE, 2, "the same with Fourier features, whose errors have signs"},
    {LA_BASED, NONE, 2, "averages with the weights 1 + s + s^2 / 2"},
    {LA_HEDGEHOG, NONE, 6, "averages with learned features (here of W = 1)"},
    {LA_COSFORMER, NONE, 1, "averages; near tokens weigh more"},
    {LA_RETNET, TOKEN, 1, "adds and forgets at a constant rate"},
    {LA_LIGHTNING, SLOPE, 1, "the same with its own rates, e^-0.0625 here"},
    {LA_GLA, CHANNEL, 1, "adds; each channel of the key forgets by itself"},
    {LA_MAMBA2, TOKEN, 1, "adds and forgets as much as the token says"},
    {LA_RWKV6, CHANNEL, 1, "answers before it forgets and writes; 1/2 of the token's own"},
    {LA_DELTANET, NONE, 1, "overwrites: the new value of A"},
    {LA_DPFP, NONE, 1, "the same with products of channels as features"},
    {LA_GATED_DELTANET, TOKEN, 1, "overwrites and forgets"},
    {LA_KDA, CHANNEL, 1, "overwrites; each channel forgets by itself"},
    {LA_GDN2, CHANNEL, 1, "the same, erasing and writing by two gates; here it erases half"},
    {LA_RWKV7, CHANNEL, 1, "removes what is under a key, then forgets and writes"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void must(la_status status, const char *name) {
    if (status == LA_OK) return;
    fprintf(stderr, "tour: %s: %s\n", name, la_status_text(status));
    exit(1);
}

/* `first`: the first token that has an answer of its own */
static void tell(const char *name, int first, const char *what) {
    int t;
    printf("%-15s", name);
    for (t = 0; t < T; ++t) {
        if (t < first)
            printf("      ");
        else
            printf("%6.1f", (double)out[t]);
    }
    printf("   %s\n", what);
}

static void write_keys(float size) {
    int t, i;
    for (t = 0; t < T; ++t)
        for (i = 0; i < N; ++i) {
            q[t][i] = size * codes[0][i];
            k[t][i] = size * codes[key_of[t]][i];
            minus_k[t][i] = -k[t][i];
        }
}

static void write_inputs(void) {
    int t, i;
    for (t = 0; t < T; ++t) {
        v[t] = value_of[t];
        gates[t] = -0.2f;
        for (i = 0; i < N; ++i) {
            channel_gates[t][i] = -0.2f * (float)i;
            ones[t][i] = 1.0f;
        }
    }
    for (i = 0; i < N; ++i) {
        bonus[i] = 0.5f;
        identity[i][i] = 1.0f;
    }
    must(la_lightning_log_decay(&slope, 1, 3, 8, 0, 1), "la_lightning_log_decay");
    must(la_favor_projection(projection[0], FEATURES, N, LA_ORTHOGONAL, 1), "la_favor_projection");
}

/* what some variants need besides */
static void complete(la_layer *layer, la_call *call) {
    layer->horizon = T;
    layer->projection = layer->feature == LA_FEATURE_HEDGEHOG ? identity[0] : projection[0];
    layer->features = layer->feature == LA_FEATURE_HEDGEHOG ? N : FEATURES;
    must(la_call_init(call, layer, 1, T), "la_call_init");
    if (layer->read == LA_READ_BEFORE) call->bonus = la_per_channel(bonus, N);
    if (layer->write == LA_WRITE_DPLR) {
        call->a = la_bthd(minus_k[0], T, 1, N); /* -kk, of length 1 */
        call->b = la_bthd(k[0], T, 1, N);       /* kk times a learning rate, 1 here */
    }
}

static void tour(const row *r) {
    static const float half[N] = {0.5f, 0.5f, 0.5f, 0.5f};
    const char *name = la_variant_name(r->variant);
    la_layer layer;
    la_call call;
    write_keys(r->size);
    must(la_layer_init(&layer, r->variant, 1, N, 1), name);
    complete(&layer, &call);
    call.q = la_bthd(q[0], T, 1, N);
    call.k = la_bthd(k[0], T, 1, N);
    call.v = la_bthd(v, T, 1, 1);
    if (r->gate == TOKEN) call.log_decay = la_bthd(gates, T, 1, 1);
    if (r->gate == SLOPE) call.log_decay = la_per_head(&slope);
    if (r->gate == CHANNEL) call.log_decay = la_bthd(channel_gates[0], T, 1, N);
    if (r->variant == LA_GDN2) call.erase = la_per_channel(half, N);
    call.out = la_bthd_out(out, T, 1, 1);
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    must(la_forward(&layer, &call), name);
    tell(name, 0, r->what);
}

/* ---- what LA_EXTRAS adds --------------------------------------------------------------------- */

static void set_attention(la_attention *layer, la_attention_call *call) {
    must(la_attention_call_init(call, layer, 1, T), "la_attention_call_init");
    call->q = la_bthd(q[0], T, 1, N);
    call->k = la_bthd(k[0], T, 1, N);
    call->v = la_bthd(v, T, 1, 1);
    call->out = la_bthd_out(out, T, 1, 1);
    call->workspace = workspace;
    call->workspace_size = sizeof workspace;
}

static void tour_attention(int kind, int64_t window, const char *name, const char *what) {
    la_attention layer;
    la_attention_call call;
    must(la_attention_init(&layer, kind, 1, N, 1), name);
    layer.scale = 1.0f;
    layer.window = window;
    layer.sinks = window > 0; /* the first token stays visible */
    set_attention(&layer, &call);
    must(la_attention_forward(&layer, &call), name);
    tell(name, 0, what);
}

static void tour_infini(void) {
    static const float even = 0.0f; /* sigmoid: half of the memory, half of the segment */
    la_infini layer;
    la_call call;
    must(la_infini_init(&layer, 1, N, 1, SEGMENT), "infini");
    layer.scale = 1.0f;
    must(la_call_init(&call, &layer.memory, 1, T), "la_call_init");
    call.q = la_bthd(q[0], T, 1, N);
    call.k = la_bthd(k[0], T, 1, N);
    call.v = la_bthd(v, T, 1, 1);
    call.beta = la_per_head(&even);
    call.out = la_bthd_out(out, T, 1, 1);
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    must(la_infini_forward(&layer, &call), "infini");
    tell("infini", 0, "softmax within 3 tokens, and a memory of those before");
}

static void tour_linformer(void) {
    static float E[T][2];
    la_linformer layer;
    la_attention_call call;
    int t;
    for (t = 0; t < T; ++t) E[t][t % 2] = 2.0f / T; /* the means of even and of odd tokens */
    must(la_linformer_init(&layer, 1, N, 1, T, 2), "linformer");
    layer.attention.scale = 1.0f;
    layer.E = la_matrix(E[0], 2);
    set_attention(&layer.attention, &call);
    must(la_linformer_forward(&layer, &call), "linformer");
    tell("linformer", T - 1, "softmax over two sums of all tokens; there is no causal form");
}

static void tour_synthesizer(void) {
    static float R[T][T];
    la_synthesizer layer;
    la_attention_call call;
    int t;
    for (t = 0; t < T; ++t) R[t][T - 1 - t] = 2.0f;
    must(la_synthesizer_init(&layer, LA_RANDOM, 1, 0, 1, T, 0, 0), "synthesizer");
    layer.w1 = la_matrix(R[0], T);
    set_attention(&layer.attention, &call);
    must(la_synthesizer_forward(&layer, &call), "synthesizer");
    tell("synthesizer", T - 1, "weights by position, whatever the keys are");
}

/* one channel; keys say how much a token counts, here those of A e^2 times as much */
static void tour_scan(int kind, const char *name, const char *what) {
    static const float as_others = 0.0f;
    float count[T];
    la_scan scan;
    int t;
    for (t = 0; t < T; ++t) count[t] = key_of[t] == 0 ? 2.0f : 0.0f;
    must(la_scan_init(&scan, kind, 1, T, 1), name);
    if (kind == LA_SCAN_RWKV4) scan.k = la_bthd(count, T, 1, 1);
    if (kind == LA_SCAN_RWKV4) scan.bonus = &as_others;
    scan.v = la_bthd(v, T, 1, 1);
    scan.log_decay = la_bthd(gates, T, 1, 1);
    scan.out = la_bthd_out(out, T, 1, 1);
    must(la_scan_forward(&scan), name);
    tell(name, 0, what);
}

int main(void) {
    size_t i;
    write_inputs();
    printf("key                 A     B     C     A     B     D   what is under A, after each\n");
    printf("value          ");
    for (i = 0; i < T; ++i) printf("%6.0f", (double)value_of[i]);
    printf("\n\n");
    for (i = 0; i < ROWS; ++i) tour(&rows[i]);
    printf("\nwith LA_EXTRAS\n\n");
    write_keys(2.0f);
    tour_attention(LA_SOFTMAX, 0, "softmax", "averages with the weights exp(q . k)");
    tour_attention(LA_SOFTMAX, 2, "softmax, window", "the same, of 2 tokens and the first one");
    tour_attention(LA_SIGMOID, 0, "sigmoid", "adds with weights between 0 and 1");
    tour_infini();
    tour_linformer();
    tour_synthesizer();
    tour_scan(LA_SCAN_RWKV4, "rwkv4", "channels by themselves, without queries: A counts for more");
    tour_scan(LA_SCAN_HGRN, "hgrn", "adds and forgets, each channel by itself");
    return 0;
}
