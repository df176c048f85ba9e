/* Bad input: each fault has its own status and field, and leaves every buffer untouched.

   One row per fault: REFUSED(status, field, statements that break a good call). */
#include "linear_attention.h"

#include "test.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* A small good call, all of whose buffers stand in one arena: a byte written anywhere shows. */
enum { B = 2, T = 3, H = 4, HK = 2, DK = 5, DV = 6, STATE = H * DK * DV, FEATURES = 7 };
enum { Q, K, V, LOG_DECAY, BETA, OUT, STATE_IN, STATE_OUT, PROJECTION, PARTNER, B_OF_A, PLACES };
enum { WORKSPACE = 32768, PLACE = 2048, ARENA = WORKSPACE + (PLACES + 1) * PLACE }; /* floats */

typedef struct Fixture {
    la_layer layer;
    la_call call;
    float *at[PLACES];
    float arena[ARENA], before[ARENA]; /* the workspace, then the places */
} Fixture;

static Fixture fixture;

static void fixture_layer(la_layer *layer, la_variant variant) {
    CHECK(la_layer_init(layer, variant, H, DK, DV) == LA_OK, "variant %d", (int)variant);
    layer->k_heads = HK;
    layer->horizon = variant == LA_COSFORMER ? T : 0;
    if (variant == LA_FAVOR || variant == LA_HEDGEHOG || variant == LA_RFF) {
        layer->projection = fixture.at[PROJECTION];
        layer->features = FEATURES;
        layer->feature_eps = 1e-4f;
    }
}

static void fixture_views(la_call *call, la_variant variant) {
    la_in partner = la_bthd(fixture.at[PARTNER], T, H, DK);
    if (variant == LA_GDN2) {
        call->erase = partner;
    } else if (variant == LA_RWKV6) {
        call->bonus = la_per_channel(fixture.at[PARTNER], DK);
    } else if (variant == LA_RWKV7) {
        call->a = partner;
        call->b = la_bthd(fixture.at[B_OF_A], T, H, DK);
    }
    call->q = la_bthd(fixture.at[Q], T, H, DK);
    call->k = la_bthd(fixture.at[K], T, HK, DK);
    call->v = la_bthd(fixture.at[V], T, H, DV);
    call->log_decay = la_bthd(fixture.at[LOG_DECAY], T, H, 1);
    call->beta = la_bthd(fixture.at[BETA], T, H, 1);
    call->out = la_bthd_out(fixture.at[OUT], T, H, DV);
    call->state_in = fixture.at[STATE_IN];
    call->state_out = fixture.at[STATE_OUT];
}

static void fixture_fill(void) {
    size_t i;
    for (i = 0; i < ARENA; i++) {
        fixture.arena[i] = -0.125f;
    }
    memcpy(fixture.before, fixture.arena, sizeof fixture.arena);
}

/* The good call of a variant, in the recurrent form (its workspace does not depend on sizes). */
static void fixture_set(la_variant variant) {
    size_t i;
    for (i = 0; i < PLACES; i++) {
        fixture.at[i] = fixture.arena + WORKSPACE + i * PLACE;
    }
    fixture_layer(&fixture.layer, variant);
    CHECK(la_call_init(&fixture.call, &fixture.layer, B, T) == LA_OK, "variant %d", (int)variant);
    fixture_views(&fixture.call, variant);
    fixture.call.form = LA_RECURRENT;
    fixture.call.workspace = fixture.arena;
    fixture.call.workspace_size = la_workspace_size(&fixture.layer, &fixture.call);
    CHECK(fixture.call.workspace_size <= WORKSPACE * sizeof(float), "workspace of %zu bytes",
          fixture.call.workspace_size);
    fixture_fill();
}

static void check_untouched(const char *what, int line) {
    size_t i = 0;
    if (memcmp(fixture.arena, fixture.before, sizeof fixture.arena) != 0) {
        while (memcmp(&fixture.arena[i], &fixture.before[i], sizeof(float)) == 0) {
            i++;
        }
    } else {
        i = ARENA;
    }
    CHECK(i == ARENA, "line %d: %s: float %zu of the arena was written", line, what, i);
}

static void check_refused(const la_layer *layer, const la_call *call, la_status status,
                          const char *field, const char *what, int line) {
    const char *named = "(unset)";
    la_status got = la_check(layer, call, &named);
    CHECK(got == status, "line %d: %s: want %d for %s, got %d (%s)", line, what, status, field, got,
          la_status_text(got));
    CHECK(named != NULL && strcmp(named, field) == 0, "line %d: %s: want field %s, got %s", line,
          what, field, named ? named : "(null)");
    CHECK(la_check(layer, call, NULL) == got, "line %d: %s: another status without field", line,
          what);
    if (got != LA_OK) { /* a fault that is not seen could write anywhere: not run */
        CHECK(la_forward(layer, call) == got, "line %d: %s: la_forward differs", line, what);
    }
    check_untouched(what, line);
}

#define REFUSED_OF(variant, status, field, ...)                                                    \
    do {                                                                                           \
        la_layer *layer = &fixture.layer;                                                          \
        la_call *call = &fixture.call;                                                             \
        fixture_set(variant);                                                                      \
        __VA_ARGS__;                                                                               \
        check_refused(layer, call, status, field, #__VA_ARGS__, __LINE__);                         \
    } while (0)
#define REFUSED(status, field, ...) REFUSED_OF(LA_GATED_DELTANET, status, field, __VA_ARGS__)

/* Otherwise everything below would be refused for a fault of the fixture. */
static void check_accepted(const char *what, int line) {
    const char *field = NULL;
    la_status status = la_check(&fixture.layer, &fixture.call, &field);
    CHECK(status == LA_OK, "line %d: %s: status %d, field %s", line, what, status,
          field ? field : "(null)");
    check_untouched(what, line);
    status = la_forward(&fixture.layer, &fixture.call);
    CHECK(status == LA_OK, "line %d: %s: la_forward answers %d", line, what, status);
    CHECK(status != LA_OK || memcmp(fixture.arena, fixture.before, sizeof fixture.arena) != 0,
          "line %d: %s: nothing was written", line, what);
}

#define ACCEPTED_OF(variant, ...)                                                                  \
    do {                                                                                           \
        la_layer *layer = &fixture.layer;                                                          \
        la_call *call = &fixture.call;                                                             \
        fixture_set(variant);                                                                      \
        __VA_ARGS__;                                                                               \
        (void)layer, (void)call;                                                                   \
        check_accepted(#__VA_ARGS__, __LINE__);                                                    \
    } while (0)
#define ACCEPTED(...) ACCEPTED_OF(LA_GATED_DELTANET, __VA_ARGS__)

TEST(input_good_calls_pass) {
    ACCEPTED_OF(LA_RETNET, call->log_decay = la_per_head(fixture.at[LOG_DECAY]));
    ACCEPTED_OF(LA_DELTANET, call->log_decay.data = NULL);
    ACCEPTED(call->log_decay.data = NULL, call->beta.data = NULL);
    ACCEPTED(call->beta = la_bthd(fixture.at[BETA], T, H, DV));
    ACCEPTED(call->state_in = NULL, call->state_out = NULL);
    ACCEPTED(call->state_in = call->state_out);
    ACCEPTED(call->state_in_stride = 0);                  /* one state for all: a real stride */
    ACCEPTED(call->k = call->q, call->k.head_stride = 0); /* inputs may overlap */
    ACCEPTED(call->q.token_stride = -T * DK, call->q.data += 2 * T * H * DK);
    ACCEPTED(layer->scale = -1, layer->l2_mode = LA_L2_MAX, layer->l2_eps = 0);
    ACCEPTED(call->chunk = 16, call->form = LA_CHUNKWISE,
             call->workspace_size = la_workspace_size(layer, call));
    ACCEPTED(call->thread_index = 0, call->thread_count = 1000000);
    ACCEPTED(layer->q_heads = 8, call->q = la_bthd(fixture.at[Q], T, 8, DK),
             call->out = la_bthd_out(fixture.at[OUT], T, 8, DV),
             call->workspace_size = la_workspace_size(layer, call));
}

/* What stands beside the keys of some rules is theirs alone. */
TEST(input_partners) {
    static const la_variant rules[] = {LA_GDN2, LA_RWKV6, LA_RWKV7};
    static const la_variant others[] = {LA_ELU, LA_RETNET, LA_GLA};
    float *partner, *last;
    int i;
    for (i = 0; i < COUNT(rules); i++) {
        ACCEPTED_OF(rules[i], (void)0);
        ACCEPTED_OF(rules[i], call->log_decay.data = NULL);
        ACCEPTED_OF(rules[i], call->log_decay = la_bthd(fixture.at[LOG_DECAY], T, H, DK));
        ACCEPTED_OF(rules[i], call->erase.data = NULL, call->bonus.data = NULL);
        ACCEPTED_OF(rules[i], call->beta = la_bthd(fixture.at[BETA], T, H, DV));
        REFUSED_OF(rules[i], LA_E_DIRECTION, "bidirectional", layer->bidirectional = 1);
    }
    ACCEPTED_OF(LA_RWKV6, call->bonus = la_bthd(fixture.at[PARTNER], T, H, DK));
    ACCEPTED_OF(LA_RWKV7, call->b = call->a); /* inputs may overlap */
    ACCEPTED_OF(LA_RWKV7, call->tokens = call->keys = 0, call->a.data = NULL);
    ACCEPTED(call->erase = la_bthd(fixture.at[PARTNER], T, H, DK)); /* any delta rule's */
    for (i = 0; i < COUNT(others); i++) {
        REFUSED_OF(others[i], LA_E_UNSUPPORTED, "erase", call->erase = call->q);
        REFUSED_OF(others[i], LA_E_UNSUPPORTED, "bonus", call->bonus = call->q);
        REFUSED_OF(others[i], LA_E_UNSUPPORTED, "a", call->a = call->q);
        REFUSED_OF(others[i], LA_E_UNSUPPORTED, "b", call->b = call->q);
    }
    REFUSED(LA_E_UNSUPPORTED, "bonus", call->bonus = call->q);
    REFUSED_OF(LA_RWKV6, LA_E_UNSUPPORTED, "erase", call->erase = call->q);
    REFUSED_OF(LA_RWKV7, LA_E_UNSUPPORTED, "erase", call->erase = call->q);
    REFUSED_OF(LA_RWKV7, LA_E_NULL, "a", call->a.data = NULL);
    REFUSED_OF(LA_RWKV7, LA_E_NULL, "b", call->b.data = NULL);
    REFUSED_OF(LA_RWKV7, LA_E_SHAPE, "a.width", call->a.width = DV);
    REFUSED_OF(LA_RWKV7, LA_E_SHAPE, "b.width", call->b.width = 1);
    REFUSED_OF(LA_RWKV6, LA_E_SHAPE, "bonus.width", call->bonus.width = 1);
    REFUSED_OF(LA_GDN2, LA_E_SHAPE, "erase.width", call->erase.width = 0);
    REFUSED_OF(LA_RWKV7, LA_E_TYPE, "a.type", call->a.type = LA_F32 + 1);
    REFUSED_OF(LA_RWKV7, LA_E_TYPE, "b.type", call->b.type = -1);
    REFUSED_OF(LA_RWKV6, LA_E_TYPE, "bonus.type", call->bonus.type = 7);
    REFUSED_OF(LA_GDN2, LA_E_TYPE, "erase.type", call->erase.type = 7);
    REFUSED_OF(LA_RWKV7, LA_E_OVERFLOW, "a", call->a.token_stride = INT64_MAX);
    REFUSED_OF(LA_RWKV7, LA_E_OVERFLOW, "b", call->b.head_stride = INT64_MIN);
    REFUSED_OF(LA_RWKV6, LA_E_OVERFLOW, "bonus", call->bonus.head_stride = INT64_MAX);
    REFUSED_OF(LA_GDN2, LA_E_OVERFLOW, "erase", call->erase.batch_stride = INT64_MAX);
    for (i = 0; i < COUNT(rules); i++) {
        partner = fixture.at[PARTNER];
        last = rules[i] == LA_RWKV6 ? partner + H * DK - 1 : partner + B * T * H * DK - 1;
        REFUSED_OF(rules[i], LA_E_OVERLAP, "out", call->out.data = partner);
        REFUSED_OF(rules[i], LA_E_OVERLAP, "out", call->out.data = last);
        REFUSED_OF(rules[i], LA_E_OVERLAP, "state_out", call->state_out = partner);
        REFUSED_OF(rules[i], LA_E_OVERLAP, "workspace", call->workspace = last);
        ACCEPTED_OF(rules[i], call->out.data = last + 1);
    }
    REFUSED_OF(LA_RWKV7, LA_E_OVERLAP, "out", call->out.data = fixture.at[B_OF_A]);
}

/* Read first: additive writes of keys as they are, without a denominator. */
TEST(input_rules_that_do_not_combine) {
    REFUSED_OF(LA_RWKV6, LA_E_VARIANT, "read", layer->read = LA_READ_BEFORE + 1);
    REFUSED_OF(LA_RWKV6, LA_E_VARIANT, "read", layer->read = -1);
    REFUSED_OF(LA_RWKV6, LA_E_UNSUPPORTED, "read", layer->normalised = 1);
    REFUSED_OF(LA_RWKV6, LA_E_UNSUPPORTED, "read", layer->feature = LA_FEATURE_ELU1);
    REFUSED_OF(LA_RWKV6, LA_E_UNSUPPORTED, "read", layer->write = LA_WRITE_DELTA,
               call->bonus.data = NULL);
    REFUSED_OF(LA_ELU, LA_E_UNSUPPORTED, "read", layer->read = LA_READ_BEFORE);
    REFUSED_OF(LA_GDN2, LA_E_UNSUPPORTED, "read", layer->read = LA_READ_BEFORE);
    REFUSED_OF(LA_RWKV7, LA_E_UNSUPPORTED, "read", layer->read = LA_READ_BEFORE);
    REFUSED_OF(LA_RWKV7, LA_E_UNSUPPORTED, "normalised", layer->normalised = 1);
    REFUSED_OF(LA_RWKV7, LA_E_UNSUPPORTED, "feature", layer->feature = LA_FEATURE_ELU1);
    ACCEPTED_OF(LA_GLA, layer->read = LA_READ_BEFORE,
                call->workspace_size = la_workspace_size(layer, call));
}

TEST(input_null_pointers) {
    REFUSED(LA_E_NULL, "layer", layer = NULL);
    REFUSED(LA_E_NULL, "call", call = NULL);
    REFUSED(LA_E_NULL, "q", call->q.data = NULL);
    REFUSED(LA_E_NULL, "k", call->k.data = NULL);
    REFUSED(LA_E_NULL, "v", call->v.data = NULL);
    REFUSED(LA_E_NULL, "out", call->out.data = NULL);
    fixture_set(LA_RETNET);
    CHECK(la_layer_init(NULL, LA_RETNET, H, DK, DV) == LA_E_NULL, "la_layer_init");
    CHECK(la_call_init(NULL, &fixture.layer, B, T) == LA_E_NULL, "la_call_init");
    CHECK(la_call_init(&fixture.call, NULL, B, T) == LA_E_NULL, "la_call_init");
    CHECK(la_forward(NULL, NULL) == LA_E_NULL, "la_forward");
    CHECK(la_workspace_size(NULL, &fixture.call) == 0, "la_workspace_size");
    CHECK(la_workspace_size(&fixture.layer, NULL) == 0, "la_workspace_size");
    CHECK(la_state_floats(NULL) == 0, "la_state_floats");
    CHECK(la_describe(&fixture.layer, &fixture.call, NULL) == LA_E_NULL, "la_describe");
}

TEST(input_uninitialised_structs) {
    static const unsigned char fill[] = {0, 1, 0x55, 0xa5, 0xff};
    size_t i;
    for (i = 0; i < sizeof fill; i++) {
        REFUSED(LA_E_STRUCT, "layer.struct_size", memset(layer, fill[i], sizeof *layer));
        REFUSED(LA_E_STRUCT, "call.struct_size", memset(call, fill[i], sizeof *call));
    }
    REFUSED(LA_E_STRUCT, "layer.struct_size", layer->struct_size--);
    REFUSED(LA_E_STRUCT, "layer.struct_size", layer->struct_size++);
    REFUSED(LA_E_STRUCT, "call.struct_size", call->struct_size--);
    REFUSED(LA_E_STRUCT, "call.struct_size", call->struct_size++);
}

/* ---------------------------------------------------------------- fields by their offset */

enum { LAYER, CALL };
typedef struct Field {
    const char *name;
    int owner;
    size_t offset;
    la_status status;
} Field;
#define LAYER_FIELD(name) #name, LAYER, offsetof(la_layer, name)
#define CALL_FIELD(name)  #name, CALL, offsetof(la_call, name)

static void *field_address(const Field *field) {
    void *owner = field->owner == LAYER ? (void *)&fixture.layer : (void *)&fixture.call;
    return (char *)owner + field->offset;
}

static void set_field64(const Field *field, int64_t value) {
    memcpy(field_address(field), &value, sizeof value);
}

static void set_field(const Field *field, int value) {
    memcpy(field_address(field), &value, sizeof value);
}

static const Field sizes[] = {
    {LAYER_FIELD(heads), LA_E_SIZE},      {LAYER_FIELD(q_heads), LA_E_SIZE},
    {LAYER_FIELD(k_heads), LA_E_SIZE},    {LAYER_FIELD(dim_k), LA_E_SIZE},
    {LAYER_FIELD(dim_v), LA_E_SIZE},      {CALL_FIELD(batch), LA_E_SIZE},
    {CALL_FIELD(tokens), LA_E_SIZE},      {CALL_FIELD(keys), LA_E_SIZE},
    {CALL_FIELD(q.width), LA_E_SHAPE},    {CALL_FIELD(k.width), LA_E_SHAPE},
    {CALL_FIELD(v.width), LA_E_SHAPE},    {CALL_FIELD(log_decay.width), LA_E_SHAPE},
    {CALL_FIELD(beta.width), LA_E_SHAPE}, {CALL_FIELD(out.width), LA_E_SHAPE},
    {CALL_FIELD(chunk), LA_E_CHUNK},      {CALL_FIELD(thread_index), LA_E_THREADS},
};

TEST(input_sizes) {
    static const int64_t values[] = {-1, -7, INT64_MIN, INT64_MAX, (int64_t)1 << 62};
    int i, j;
    for (i = 0; i < COUNT(sizes); i++) {
        for (j = 0; j < COUNT(values); j++) {
            REFUSED(sizes[i].status, sizes[i].name, set_field64(&sizes[i], values[j]));
        }
    }
    for (i = 0; i < 5; i++) {
        REFUSED(LA_E_SIZE, sizes[i].name, set_field64(&sizes[i], 0));
    }
    REFUSED(LA_E_SIZE, "keys", call->keys = T + 1);
    REFUSED(LA_E_THREADS, "thread_count", call->thread_count = 0);
    REFUSED(LA_E_THREADS, "thread_count", call->thread_count = -1);
    REFUSED(LA_E_THREADS, "thread_count", call->thread_count = INT64_MIN);
    REFUSED(LA_E_THREADS, "thread_index", call->thread_index = 1);
    REFUSED(LA_E_THREADS, "thread_index", call->thread_index = 7, call->thread_count = 7);
    REFUSED(LA_E_CHUNK, "chunk", call->chunk = 1025);
}

TEST(input_sizes_of_the_initialisers) {
    static const int64_t values[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 62};
    la_layer layer;
    la_call call;
    int i;
    fixture_set(LA_RETNET);
    CHECK(la_layer_init(&layer, LA_RETNET, 0, DK, DV) == LA_E_SIZE, "no heads");
    for (i = 0; i < COUNT(values); i++) {
        int64_t n = values[i];
        CHECK(la_layer_init(&layer, LA_RETNET, n, DK, DV) == LA_E_SIZE, "heads %lld", (long long)n);
        CHECK(la_layer_init(&layer, LA_RETNET, H, n, DV) == LA_E_SIZE, "dim_k %lld", (long long)n);
        CHECK(la_layer_init(&layer, LA_RETNET, H, DK, n) == LA_E_SIZE, "dim_v %lld", (long long)n);
        CHECK(la_call_init(&call, &fixture.layer, n, T) == LA_E_SIZE, "batch %lld", (long long)n);
        CHECK(la_call_init(&call, &fixture.layer, B, n) == LA_E_SIZE, "tokens %lld", (long long)n);
    }
}

/* Each size is harmless alone. */
TEST(input_products_that_overflow) {
    const int64_t big = (int64_t)1 << 20, half = (int64_t)1 << 61;
    la_layer huge;
    fixture_set(LA_RETNET);
    CHECK(la_layer_init(&huge, LA_RETNET, big, 1, 1) == LA_OK, "each size is harmless");
    CHECK(la_layer_init(&huge, LA_RETNET, 1, big, 1) == LA_OK, "each size is harmless");
    CHECK(la_layer_init(&huge, LA_RETNET, 1, 1, big) == LA_OK, "each size is harmless");
    CHECK(la_layer_init(&huge, LA_RETNET, big, big, big) == LA_E_OVERFLOW, "their product");
    REFUSED(LA_E_OVERFLOW, "dim_v", layer->heads = layer->q_heads = layer->k_heads = big,
            layer->dim_k = layer->dim_v = big);
    CHECK(la_state_floats(&fixture.layer) == 0, "%zu", la_state_floats(&fixture.layer));
    CHECK(la_workspace_size(&fixture.layer, &fixture.call) == 0, "of too large a layer");
    REFUSED(LA_E_OVERFLOW, "q", call->q.batch_stride = INT64_MAX);
    REFUSED(LA_E_OVERFLOW, "k", call->k.token_stride = half);
    REFUSED(LA_E_OVERFLOW, "v", call->v.head_stride = half);
    REFUSED(LA_E_OVERFLOW, "v", call->v.head_stride = INT64_MIN);
    REFUSED(LA_E_OVERFLOW, "log_decay", call->log_decay.token_stride = INT64_MIN);
    REFUSED(LA_E_OVERFLOW, "beta", call->beta.batch_stride = -half - half);
    REFUSED(LA_E_OVERFLOW, "out", call->out.token_stride = INT64_MAX);
    REFUSED(LA_E_OVERFLOW, "state_in", call->state_in_stride = INT64_MAX);
    REFUSED(LA_E_OVERFLOW, "state_out", call->state_out_stride = half);
}

TEST(input_heads_and_widths) {
    REFUSED(LA_E_HEADS, "q_heads", layer->q_heads = 3);
    REFUSED(LA_E_HEADS, "q_heads", layer->q_heads = 6);
    REFUSED(LA_E_HEADS, "k_heads", layer->k_heads = 3);
    REFUSED(LA_E_HEADS, "k_heads", layer->k_heads = 8);
    REFUSED(LA_E_SHAPE, "q.width", call->q.width = DK + 1);
    REFUSED(LA_E_SHAPE, "k.width", call->k.width = DK - 1);
    REFUSED(LA_E_SHAPE, "v.width", call->v.width = DK);
    REFUSED(LA_E_SHAPE, "out.width", call->out.width = DK);
    REFUSED(LA_E_SHAPE, "log_decay.width", call->log_decay.width = DV);
    REFUSED(LA_E_SHAPE, "log_decay.width", call->log_decay.width = 0);
    REFUSED(LA_E_SHAPE, "beta.width", call->beta.width = DK);
    REFUSED(LA_E_SHAPE, "beta.width", call->beta.width = 0);
}

static const Field enums[] = {
    {LAYER_FIELD(feature), LA_E_VARIANT}, {LAYER_FIELD(write), LA_E_VARIANT},
    {LAYER_FIELD(normalised), LA_E_VARIANT}, {LAYER_FIELD(decay_required), LA_E_VALUE},
    {LAYER_FIELD(bidirectional), LA_E_VALUE}, {LAYER_FIELD(head_map), LA_E_VALUE},
    {LAYER_FIELD(state_layout), LA_E_VALUE}, {LAYER_FIELD(eps_mode), LA_E_VALUE},
    {LAYER_FIELD(l2_mode), LA_E_VALUE}, {LAYER_FIELD(favor_kernel), LA_E_VALUE},
    {LAYER_FIELD(hedgehog_kernel), LA_E_VALUE},
    {CALL_FIELD(form), LA_E_FORM}, {CALL_FIELD(isa), LA_E_ISA},
    {CALL_FIELD(q.type), LA_E_TYPE}, {CALL_FIELD(k.type), LA_E_TYPE},
    {CALL_FIELD(v.type), LA_E_TYPE}, {CALL_FIELD(log_decay.type), LA_E_TYPE},
    {CALL_FIELD(beta.type), LA_E_TYPE}, {CALL_FIELD(out.type), LA_E_TYPE},
};

TEST(input_unknown_enums) {
    static const int values[] = {-1, 50, 99, INT_MAX, INT_MIN};
    int i, j;
    int isa;
    for (i = 0; i < COUNT(enums); i++) {
        for (j = 0; j < COUNT(values); j++) {
            REFUSED(enums[i].status, enums[i].name, set_field(&enums[i], values[j]));
        }
    }
    REFUSED(LA_E_VARIANT, "write", layer->write = LA_WRITE_DPLR + 1);
    REFUSED(LA_E_VALUE, "state_layout", layer->state_layout = LA_VK + 1);
    REFUSED(LA_E_VALUE, "head_map", layer->head_map = LA_TILED + 1);
    REFUSED(LA_E_VALUE, "l2_mode", layer->l2_mode = LA_L2_MAX + 1);
    REFUSED(LA_E_FORM, "form", call->form = LA_CHUNKWISE + 1);
    REFUSED(LA_E_TYPE, "q.type", call->q.type = LA_F32 + 1);
    for (isa = LA_ISA_SCALAR; isa <= LA_ISA_NEON; isa++) {
        if (!la_isa_available(isa)) {
            REFUSED(LA_E_ISA, "isa", call->isa = isa);
        }
    }
}

TEST(input_settings_out_of_range) {
    REFUSED(LA_E_VALUE, "scale", layer->scale = NAN);
    REFUSED(LA_E_VALUE, "eps", layer->eps = -FLT_MIN);
    REFUSED(LA_E_VALUE, "eps", layer->eps = NAN);
    REFUSED(LA_E_VALUE, "l2_eps", layer->l2_eps = -1e-6f);
    REFUSED(LA_E_VALUE, "l2_eps", layer->l2_eps = NAN);
}

TEST(input_missing_decay_and_direction) {
    REFUSED_OF(LA_RETNET, LA_E_DECAY, "log_decay", call->log_decay.data = NULL);
    REFUSED_OF(LA_DELTANET, LA_E_DECAY, "log_decay", layer->decay_required = 1,
               call->log_decay.data = NULL);
    REFUSED(LA_E_DIRECTION, "bidirectional", layer->bidirectional = 1);
    REFUSED_OF(LA_DELTANET, LA_E_DIRECTION, "bidirectional", layer->bidirectional = 1);
}

TEST(input_not_yet_supported) {
    static const int64_t numbers[B + 1] = {0, 1, 2};
    static const la_variant no_positions[] = {LA_ELU, LA_FAVOR, LA_GLA, LA_GATED_DELTANET};
    int i;
    for (i = 0; i < COUNT(no_positions); i++) {
        REFUSED_OF(no_positions[i], LA_E_UNSUPPORTED, "positions", call->positions = numbers);
        REFUSED_OF(no_positions[i], LA_E_UNSUPPORTED, "key_lengths", call->key_lengths = numbers);
    }
    REFUSED_OF(LA_COSFORMER, LA_E_UNSUPPORTED, "key_lengths", call->key_lengths = numbers);
    REFUSED_OF(LA_COSFORMER, LA_E_UNSUPPORTED, "log_decay.width", call->log_decay.width = DK);
    REFUSED_OF(LA_FAVOR, LA_E_UNSUPPORTED, "log_decay.width", call->log_decay.width = DK);
    REFUSED(LA_E_UNSUPPORTED, "normalised", layer->normalised = 1);
    REFUSED_OF(LA_DPFP, LA_E_UNSUPPORTED, "log_decay.width", call->log_decay.width = DK);
    REFUSED_OF(LA_BASED, LA_E_UNSUPPORTED, "log_decay.width", call->log_decay.width = DK);
    REFUSED_OF(LA_HEDGEHOG, LA_E_UNSUPPORTED, "log_decay.width", call->log_decay.width = DK);
    REFUSED_OF(LA_RFF, LA_E_UNSUPPORTED, "log_decay.width", call->log_decay.width = DK);
    REFUSED_OF(LA_DPFP, LA_E_DIRECTION, "bidirectional", layer->bidirectional = 1);
    REFUSED(LA_E_UNSUPPORTED, "normalised", layer->feature = LA_FEATURE_FAVOR,
            layer->projection = fixture.at[PROJECTION], layer->features = FEATURES);
}

/* ---------------------------------------------------------------- feature maps and sequences */

static const la_variant featured[] = {LA_ELU,      LA_FAVOR, LA_COSFORMER, LA_BASED,
                                      LA_HEDGEHOG, LA_RFF,   LA_MAPPED};

/* The keys of a bidirectional layer may be others than its queries. */
#define ACCEPTED_BOTH_WAYS(variant, ...)                                                           \
    ACCEPTED_OF(variant, __VA_ARGS__, layer->bidirectional = 1,                                    \
                call->workspace_size = la_workspace_size(layer, call))

TEST(input_good_calls_of_feature_maps_pass) {
    static const int64_t lengths[B] = {T, 0}, positions[B] = {0, 1};
    int i;
    for (i = 0; i < COUNT(featured); i++) {
        ACCEPTED_OF(featured[i], (void)0);
        ACCEPTED_OF(featured[i], call->log_decay.data = NULL, call->beta.data = NULL);
        ACCEPTED_OF(featured[i], layer->eps = 1, layer->eps_mode = LA_EPS_MAX);
        ACCEPTED_OF(featured[i], call->lengths = lengths);
        ACCEPTED_OF(featured[i], layer->scale = 0.25f);
        ACCEPTED_BOTH_WAYS(featured[i], (void)0);
        ACCEPTED_BOTH_WAYS(featured[i], call->keys = T - 1);
        ACCEPTED_BOTH_WAYS(featured[i], call->keys = 0);
        ACCEPTED_BOTH_WAYS(featured[i], call->tokens = 0);
        ACCEPTED_BOTH_WAYS(featured[i], call->lengths = lengths, call->key_lengths = positions);
    }
    ACCEPTED(call->lengths = lengths);
    ACCEPTED_OF(LA_ELU, call->log_decay = la_bthd(fixture.at[LOG_DECAY], T, H, DK));
    ACCEPTED_OF(LA_COSFORMER, call->positions = positions);
    ACCEPTED_OF(LA_COSFORMER, layer->horizon = T - 1); /* the last position is T - 1 */
    ACCEPTED_OF(LA_COSFORMER, layer->horizon = 1e9);
    ACCEPTED_OF(LA_FAVOR, layer->projection_head_stride = FEATURES * DK);
    ACCEPTED_OF(LA_FAVOR, layer->favor_kernel = LA_FAVOR_RELU,
                call->workspace_size = la_workspace_size(layer, call));
    ACCEPTED_OF(LA_FAVOR, layer->projection = fixture.at[Q]); /* inputs may overlap */
}

TEST(input_settings_of_cosformer) {
    REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "horizon", layer->horizon = 0);
    REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "horizon", layer->horizon = -1);
    REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "horizon", layer->horizon = (double)NAN);
    REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "horizon", layer->horizon = -HUGE_VAL);
}

TEST(input_settings_of_other_features) {
    static const la_variant scaled[] = {LA_BASED, LA_RFF}, projected[] = {LA_HEDGEHOG, LA_RFF};
    float *W;
    int i;
    fixture_set(LA_HEDGEHOG);
    W = fixture.at[PROJECTION];
    REFUSED_OF(LA_DPFP, LA_E_SIZE, "nu", layer->nu = 0);
    REFUSED_OF(LA_DPFP, LA_E_SIZE, "nu", layer->nu = INT64_MIN);
    REFUSED_OF(LA_DPFP, LA_E_SIZE, "nu", layer->nu = INT64_MAX);
    REFUSED_OF(LA_DPFP, LA_E_SIZE, "nu", layer->nu = 1 << 20); /* r is 2^20 times 2 dk */
    REFUSED_OF(LA_BASED, LA_E_SIZE, "dim_k", layer->dim_k = 1 << 12); /* its square is too many */
    ACCEPTED_OF(LA_DPFP, layer->nu = 3, call->state_in = call->state_out = NULL,
                call->workspace_size = la_workspace_size(layer, call));
    for (i = 0; i < COUNT(scaled); i++) {
        REFUSED_OF(scaled[i], LA_E_VALUE, "scale", layer->scale = -FLT_MIN);
        REFUSED_OF(scaled[i], LA_E_VALUE, "scale", layer->scale = NAN);
    }
    for (i = 0; i < COUNT(projected); i++) {
        la_variant variant = projected[i];
        REFUSED_OF(variant, LA_E_NULL, "projection", layer->projection = NULL);
        REFUSED_OF(variant, LA_E_SIZE, "features", layer->features = 0);
        REFUSED_OF(variant, LA_E_SIZE, "features", layer->features = INT64_MAX);
        REFUSED_OF(variant, LA_E_VALUE, "projection_bias", layer->projection_bias = 2);
        REFUSED_OF(variant, LA_E_VALUE, "projection_bias", layer->projection_bias = -1);
        REFUSED_OF(variant, LA_E_VALUE, "feature_eps", layer->feature_eps = -1);
        REFUSED_OF(variant, LA_E_OVERLAP, "out", layer->projection_bias = 1,
                   call->out.data = W + FEATURES * (DK + 1) - 1);
        REFUSED_OF(variant, LA_E_OVERLAP, "out", layer->projection = fixture.at[Q],
                   layer->q_projection = W, call->out.data = W + FEATURES * DK - 1,
                   call->workspace_size = la_workspace_size(layer, call));
        ACCEPTED_OF(variant, layer->projection = fixture.at[Q], layer->q_projection = W,
                    call->out.data = W + FEATURES * DK,
                    call->workspace_size = la_workspace_size(layer, call));
        ACCEPTED_OF(variant, layer->scale = 0);
    }
    ACCEPTED_OF(LA_HEDGEHOG, layer->scale = -1); /* it multiplies q . k there */
    REFUSED_OF(LA_FAVOR, LA_E_UNSUPPORTED, "projection_bias", layer->projection_bias = 1);
}

TEST(input_settings_of_favor) {
    REFUSED_OF(LA_FAVOR, LA_E_NULL, "projection", layer->projection = NULL);
    REFUSED_OF(LA_FAVOR, LA_E_SIZE, "features", layer->features = 0);
    REFUSED_OF(LA_FAVOR, LA_E_SIZE, "features", layer->features = -1);
    REFUSED_OF(LA_FAVOR, LA_E_SIZE, "features", layer->features = INT64_MIN);
    REFUSED_OF(LA_FAVOR, LA_E_SIZE, "features", layer->features = INT64_MAX);
    REFUSED_OF(LA_FAVOR, LA_E_SIZE, "features", layer->features = (int64_t)1 << 62);
    REFUSED_OF(LA_FAVOR, LA_E_VALUE, "favor_kernel", layer->favor_kernel = LA_FAVOR_RELU + 1);
    REFUSED_OF(LA_FAVOR, LA_E_VALUE, "favor_kernel", layer->favor_kernel = -1);
    REFUSED_OF(LA_FAVOR, LA_E_VALUE, "scale", layer->scale = -FLT_MIN);
    REFUSED_OF(LA_FAVOR, LA_E_VALUE, "scale", layer->scale = -1);
    REFUSED_OF(LA_FAVOR, LA_E_VALUE, "scale", layer->scale = NAN);
    REFUSED_OF(LA_FAVOR, LA_E_VALUE, "feature_eps", layer->feature_eps = -FLT_MIN);
    REFUSED_OF(LA_FAVOR, LA_E_VALUE, "feature_eps", layer->feature_eps = -1);
    REFUSED_OF(LA_FAVOR, LA_E_VALUE, "feature_eps", layer->feature_eps = NAN);
    REFUSED_OF(LA_FAVOR, LA_E_OVERFLOW, "projection", layer->projection_head_stride = INT64_MAX);
    REFUSED_OF(LA_FAVOR, LA_E_OVERFLOW, "projection", layer->projection_head_stride = INT64_MIN);
}

static const int64_t bad_lengths[][B] = {{0, T + 1}, {-1, T}, {INT64_MAX, 0}, {0, INT64_MIN}};

TEST(input_lengths_out_of_range) {
    int i, v;
    for (i = 0; i < COUNT(bad_lengths); i++) {
        const int64_t *bad = bad_lengths[i];
        REFUSED(LA_E_SIZE, "lengths", call->lengths = bad);
        for (v = 0; v < COUNT(featured); v++) {
            REFUSED_OF(featured[v], LA_E_SIZE, "lengths", call->lengths = bad);
            REFUSED_OF(featured[v], LA_E_SIZE, "lengths", call->lengths = bad,
                       layer->bidirectional = 1);
            REFUSED_OF(featured[v], LA_E_SIZE, "key_lengths", call->key_lengths = bad,
                       layer->bidirectional = 1);
        }
    }
    REFUSED_OF(LA_ELU, LA_E_SIZE, "key_lengths", call->key_lengths = bad_lengths[0],
               layer->bidirectional = 1, call->keys = T - 1);
}

/* Every position of a sequence is in [0, horizon]; with positions 0, T - 1 is the last. */
TEST(input_positions_out_of_range) {
    static const int64_t bad[][B] = {{2, 0}, {0, -1}, {0, 2}, {INT64_MAX, 0}, {0, INT64_MIN}};
    static const int64_t lengths[B] = {T, 1}, positions[B] = {1, 3}, too_long[B] = {0, 2};
    int i;
    for (i = 0; i < COUNT(bad); i++) {
        REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "positions", call->positions = bad[i]);
        REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "positions", call->positions = bad[i],
                   layer->bidirectional = 1);
    }
    REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "positions", layer->horizon = T - 1.5);
    REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "positions", layer->bidirectional = 1, /* of keys */
               call->tokens = 1, layer->horizon = T - 1.5);
    REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "positions", layer->bidirectional = 1, /* of queries */
               call->keys = 1, layer->horizon = T - 1.5);
    ACCEPTED_OF(LA_COSFORMER, call->positions = positions, call->lengths = lengths);
    REFUSED_OF(LA_COSFORMER, LA_E_VALUE, "positions", call->positions = positions,
               call->lengths = too_long, layer->horizon = 3.5);
}

TEST(input_direction) {
    static const la_variant causal[] = {LA_RETNET,         LA_LIGHTNING, LA_GLA,    LA_DELTANET,
                                        LA_GATED_DELTANET, LA_KDA,       LA_MAMBA2, LA_FWP};
    int i;
    for (i = 0; i < COUNT(causal); i++) {
        REFUSED_OF(causal[i], LA_E_DIRECTION, "bidirectional", layer->bidirectional = 1);
    }
    for (i = 0; i < COUNT(featured); i++) {
        REFUSED_OF(featured[i], LA_E_SIZE, "keys", call->keys = T - 1);
        REFUSED_OF(featured[i], LA_E_SIZE, "keys", call->keys = 0);
        REFUSED_OF(featured[i], LA_E_SIZE, "keys", call->keys = -1, layer->bidirectional = 1);
        REFUSED_OF(featured[i], LA_E_DIRECTION, "bidirectional", layer->bidirectional = 1,
                   layer->normalised = 0);
    }
    REFUSED_OF(LA_LIGHTNING, LA_E_DECAY, "log_decay", call->log_decay.data = NULL);
}

TEST(input_workspace) {
    static const int forms[] = {LA_PARALLEL, LA_RECURRENT, LA_CHUNKWISE, LA_AUTO};
    size_t size;
    int i;
    for (i = 0; i < COUNT(forms); i++) {
        fixture_set(LA_RETNET);
        fixture.call.form = forms[i];
        size = la_workspace_size(&fixture.layer, &fixture.call);
        CHECK(size > 0, "form %d", forms[i]);
        REFUSED_OF(LA_RETNET, LA_E_WORKSPACE, "workspace_size", call->form = forms[i],
                   call->workspace_size = size - 1);
        REFUSED_OF(LA_RETNET, LA_E_WORKSPACE, "workspace_size", call->form = forms[i],
                   call->workspace_size = 0);
        REFUSED_OF(LA_RETNET, LA_E_NULL, "workspace", call->form = forms[i],
                   call->workspace_size = size, call->workspace = NULL);
    }
}

/* ---------------------------------------------------------------- overlaps */

static float *end_of(int place) { /* its last float */
    static const int floats[] = {B * T * H * DK, B * T * HK * DK, B * T * H * DV, B * T * H,
                                 B * T * H,      B * T * H * DV,  B * STATE,      B * STATE};
    return fixture.at[place] + floats[place] - 1;
}

TEST(input_overlaps) {
    static const int places[] = {Q, K, V, LOG_DECAY, BETA, STATE_IN};
    int i;
    for (i = 0; i < COUNT(places); i++) {
        int place = places[i];
        REFUSED(LA_E_OVERLAP, "out", call->out.data = fixture.at[place]);
        REFUSED(LA_E_OVERLAP, "out", call->out.data = end_of(place));
        REFUSED(LA_E_OVERLAP, "out", call->out.data = fixture.at[place] + 1 - B * T * H * DV);
        REFUSED(LA_E_OVERLAP, "workspace", call->workspace = fixture.at[place]);
        REFUSED(LA_E_OVERLAP, "workspace", call->workspace = end_of(place));
        REFUSED(LA_E_OVERLAP, "workspace",
                call->workspace = (char *)fixture.at[place] + 1 - call->workspace_size);
        REFUSED(LA_E_OVERLAP, "workspace", /* one byte only */
                call->workspace = (char *)end_of(place) + 3);
        if (place != STATE_IN) {
            REFUSED(LA_E_OVERLAP, "state_out", call->state_out = fixture.at[place]);
        }
        REFUSED(LA_E_OVERLAP, "state_out", call->state_out = end_of(place));
        REFUSED(LA_E_OVERLAP, "state_out", call->state_out = fixture.at[place] + 1 - B * STATE);
        ACCEPTED(call->out.data = end_of(place) + 1);
        ACCEPTED(call->state_out = end_of(place) + 1);
    }
}

/* [FEATURES][DK], or as many as there are heads. */
TEST(input_overlaps_of_the_projection) {
    float *W, *last, *of_heads;
    fixture_set(LA_FAVOR);
    W = fixture.at[PROJECTION];
    last = W + FEATURES * DK - 1;
    of_heads = W + H * FEATURES * DK - 1;
    REFUSED_OF(LA_FAVOR, LA_E_OVERLAP, "out", call->out.data = W);
    REFUSED_OF(LA_FAVOR, LA_E_OVERLAP, "out", call->out.data = last);
    REFUSED_OF(LA_FAVOR, LA_E_OVERLAP, "out", call->out.data = of_heads,
               layer->projection_head_stride = FEATURES * DK);
    REFUSED_OF(LA_FAVOR, LA_E_OVERLAP, "state_out", call->state_out = W);
    REFUSED_OF(LA_FAVOR, LA_E_OVERLAP, "state_out", call->state_out = last);
    REFUSED_OF(LA_FAVOR, LA_E_OVERLAP, "state_out", call->state_out = of_heads,
               layer->projection_head_stride = FEATURES * DK);
    REFUSED_OF(LA_FAVOR, LA_E_OVERLAP, "workspace", call->workspace = W);
    REFUSED_OF(LA_FAVOR, LA_E_OVERLAP, "workspace", call->workspace = last);
    ACCEPTED_OF(LA_FAVOR, call->out.data = last + 1);
}

TEST(input_overlaps_of_outputs) {
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out = call->out.data);
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out = end_of(OUT));
    REFUSED(LA_E_OVERLAP, "workspace", call->workspace = call->out.data);
    REFUSED(LA_E_OVERLAP, "workspace", call->workspace = call->state_out);
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out = fixture.at[STATE_IN] + 1);
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out = fixture.at[STATE_IN] + STATE);
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out = fixture.at[STATE_IN],
            call->state_out_stride = STATE + 1); /* the first at the same place, not the second */
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out = fixture.at[STATE_IN],
            call->state_in_stride = 0);
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out_stride = 0);
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out_stride = STATE - 1);
    REFUSED(LA_E_OVERLAP, "state_out", call->state_out_stride = 1 - STATE);
}

TEST(input_overlaps_of_out_with_itself) {
    REFUSED(LA_E_OVERLAP, "out", call->out.head_stride = 0);
    REFUSED(LA_E_OVERLAP, "out", call->out.token_stride = 0);
    REFUSED(LA_E_OVERLAP, "out", call->out.batch_stride = 0);
    REFUSED(LA_E_OVERLAP, "out", call->out.head_stride = DV - 1);
    REFUSED(LA_E_OVERLAP, "out", call->out.head_stride = 1 - DV);
    REFUSED(LA_E_OVERLAP, "out", call->out.token_stride = H * DV - 1);
    REFUSED(LA_E_OVERLAP, "out", call->out.batch_stride = T * H * DV - 1);
    REFUSED(LA_E_OVERLAP, "out", call->out.head_stride = 2 * H * DV);
    ACCEPTED(call->out = la_bhtd_out(fixture.at[OUT], T, H, DV));
    ACCEPTED(call->out.head_stride = DV + 1, call->out.token_stride = H * (DV + 1),
             call->out.batch_stride = T * H * (DV + 1) + 3);
    ACCEPTED(call->batch = 1, call->out.batch_stride = 0);
}

/* ---------------------------------------------------------------- names and texts */

TEST(input_status_texts) {
    int i, j;
    for (i = LA_OK; i >= LA_E_UNSUPPORTED; i--) {
        const char *text = la_status_text((la_status)i);
        CHECK(text != NULL && *text != '\0', "status %d", i);
        for (j = LA_OK; j > i; j--) {
            CHECK(strcmp(text, la_status_text((la_status)j)) != 0, "%d and %d: %s", i, j, text);
        }
    }
    CHECK(la_status_text((la_status)(LA_E_UNSUPPORTED - 1)) != NULL, "an unknown status");
    CHECK(la_status_text((la_status)1) != NULL, "an unknown status");
}

TEST(input_names) {
    static const char *const names[] = {"elu", "favor",    "cosformer",      "retnet", "lightning",
                                        "gla", "deltanet", "gated-deltanet", "kda",    "mamba2",
                                        "fwp", "rwkv6",    "rwkv7",          "gdn2",     "dpfp",
                                        "based", "hedgehog", "rff", "mapped"};
    static const char *const wrong[] = {"", "retne", "retnett", "RetNet", "gated_deltanet", " gla"};
    la_variant variant;
    la_layer layer;
    int i;
    for (i = 0; i < COUNT(names); i++) {
        variant = (la_variant)0;
        CHECK(la_variant_find(names[i], &variant) == LA_OK, "%s", names[i]);
        CHECK((int)variant == LA_ELU + i, "%s is %d", names[i], (int)variant);
        CHECK(strcmp(la_variant_name(variant), names[i]) == 0, "%s", la_variant_name(variant));
    }
    for (i = 0; i < 6; i++) {
        CHECK(la_variant_find(wrong[i], &variant) == LA_E_VARIANT, "\"%s\"", wrong[i]);
    }
    CHECK(variant == LA_MAPPED, "an unknown name wrote %d", (int)variant);
    CHECK(la_variant_find(NULL, &variant) == LA_E_NULL, "no name");
    CHECK(la_variant_find("gla", NULL) == LA_E_NULL, "no result");
    CHECK(la_variant_name((la_variant)0) == NULL, "variant 0");
    CHECK(la_variant_name((la_variant)(COUNT(names) + 1)) == NULL, "one too many");
    CHECK(la_layer_init(&layer, (la_variant)0, H, DK, DV) == LA_E_VARIANT, "variant 0");
    CHECK(la_layer_init(&layer, (la_variant)(COUNT(names) + 1), H, DK, DV) == LA_E_VARIANT,
          "one too many");
    CHECK(la_layer_init(&layer, (la_variant)99, H, DK, DV) == LA_E_VARIANT, "variant 99");
}

TEST(input_instruction_sets) {
    static const char *const names[] = {"auto", "scalar", "avx2", "avx512", "neon"};
    int isa;
    for (isa = LA_ISA_AUTO; isa <= LA_ISA_NEON; isa++) {
        CHECK(strcmp(la_isa_name(isa), names[isa]) == 0, "%s", la_isa_name(isa));
        CHECK(la_isa_available(isa) == 0 || la_isa_available(isa) == 1, "%s", names[isa]);
    }
    CHECK(la_isa_available(LA_ISA_SCALAR) == 1, "the scalar pass is always there");
    CHECK(!la_isa_available(-1) && !la_isa_available(5) && !la_isa_available(INT_MIN), "unknown");
    CHECK(la_isa_name(-1) == NULL && la_isa_name(LA_ISA_NEON + 1) == NULL, "unknown");
}

/* ---------------------------------------------------------------- any bits at all */

static const Field strides[] = {
    {CALL_FIELD(q.batch_stride), LA_OK},          {CALL_FIELD(q.token_stride), LA_OK},
    {CALL_FIELD(k.head_stride), LA_OK},           {CALL_FIELD(v.token_stride), LA_OK},
    {CALL_FIELD(log_decay.head_stride), LA_OK},   {CALL_FIELD(beta.batch_stride), LA_OK},
    {CALL_FIELD(out.batch_stride), LA_OK},        {CALL_FIELD(out.token_stride), LA_OK},
    {CALL_FIELD(out.head_stride), LA_OK},         {CALL_FIELD(state_in_stride), LA_OK},
    {CALL_FIELD(state_out_stride), LA_OK},        {CALL_FIELD(thread_count), LA_OK},
    {LAYER_FIELD(projection_head_stride), LA_OK}, {LAYER_FIELD(features), LA_OK},
};

static int64_t odd_number(void) {
    static const int64_t numbers[] = {0,
                                      1,
                                      2,
                                      3,
                                      7,
                                      -1,
                                      1024,
                                      INT_MAX,
                                      INT_MIN,
                                      INT64_MAX,
                                      INT64_MIN,
                                      1LL << 31,
                                      (int64_t)1 << 40,
                                      (int64_t)1 << 62};
    return random_below(4) ? numbers[random_below(COUNT(numbers))] : (int64_t)random_bits();
}

static void set_anything(void) {
    switch (random_below(3)) {
    case 0: set_field(&enums[random_below(COUNT(enums))], random_below(9) - 2); break;
    case 1: set_field64(&sizes[random_below(COUNT(sizes))], odd_number()); break;
    default: set_field64(&strides[random_below(COUNT(strides))], odd_number());
    }
}

/* Whatever the fields hold, looking at them is defined, and what is refused is not touched. */
TEST(input_any_bits) {
    int i, n, refused = 0;
    for (i = 0; i < 3000; i++) {
        la_plan plan;
        la_status status;
        fixture_set((la_variant)(LA_ELU + i % LA_FWP));
        for (n = 1 + random_below(4); n > 0; n--) {
            set_anything();
        }
        status = la_check(&fixture.layer, &fixture.call, NULL);
        (void)la_state_floats(&fixture.layer);
        (void)la_workspace_size(&fixture.layer, &fixture.call);
        (void)la_describe(&fixture.layer, &fixture.call, &plan);
        if (status != LA_OK) {
            refused++;
            CHECK(la_forward(&fixture.layer, &fixture.call) == status, "round %d: %d", i, status);
        }
        check_untouched("any bits", __LINE__);
    }
    CHECK(refused > 1000, "only %d were refused", refused);
}

/* What only FAVOR+ has may lie about in another layer (nothing is packed from it), and so may a
 * chunk in a call whose form is automatic: the workspace is what la_workspace_size says. */
TEST(input_settings_of_others_are_not_used) {
    enum { TOKENS = 40, D = 16, ROOM = 1 << 20 };
    static float x[TOKENS * D], out[3][TOKENS * D], projection[4 * D];
    static unsigned char workspace[ROOM];
    la_layer layer;
    la_call call;
    size_t i, size;
    int n;
    for (i = 0; i < TOKENS * D; i++) {
        x[i] = (float)(i % 7) - 3;
    }
    for (n = 0; n < 3; n++) {
        CHECK(la_layer_init(&layer, LA_ELU, 1, D, D) == LA_OK, "layer");
        layer.projection = n == 1 ? projection : NULL;
        layer.features = n == 1 ? 1 << 19 : 0;
        CHECK(la_call_init(&call, &layer, 1, TOKENS) == LA_OK, "call");
        call.q = call.k = call.v = la_bthd(x, TOKENS, 1, D);
        call.out = la_bthd_out(out[n], TOKENS, 1, D);
        call.form = n < 2 ? LA_CHUNKWISE : LA_AUTO;
        call.chunk = n < 2 ? 0 : 1;
        size = la_workspace_size(&layer, &call);
        CHECK(size > 0 && size < ROOM, "%zu bytes", size);
        memset(workspace, 0x5a, ROOM);
        call.workspace = workspace;
        call.workspace_size = size;
        CHECK(la_forward(&layer, &call) == LA_OK, "forward");
        for (i = size; i < ROOM && workspace[i] == 0x5a; i++) {
        }
        CHECK(i == ROOM, "byte %zu of a workspace of %zu was written", i, size);
    }
    CHECK(memcmp(out[0], out[1], sizeof out[0]) == 0, "the output depends on a projection");
    CHECK(memcmp(out[0], out[2], sizeof out[0]) == 0, "the output depends on a chunk");
}

/* FAVOR+ rescales its state by the running maximum, which gates per channel have no room for, also
 * where there are as many features as channels. */
TEST(input_gates_per_channel_of_random_features) {
    enum { D = 16 };
    static float x[D], out[D], projection[D * D];
    static double workspace[1 << 16];
    const char *field = NULL;
    la_layer layer;
    la_call call;
    int form;
    CHECK(la_layer_init(&layer, LA_FAVOR, 1, D, D) == LA_OK, "layer");
    layer.projection = projection;
    layer.features = D;
    CHECK(la_call_init(&call, &layer, 1, 1) == LA_OK, "call");
    call.q = call.k = call.v = la_bthd(x, 1, 1, D);
    call.out = la_bthd_out(out, 1, 1, D);
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    for (form = LA_AUTO; form <= LA_CHUNKWISE; form++) {
        call.form = form;
        call.log_decay = la_bthd(x, 1, 1, D);
        CHECK(la_check(&layer, &call, &field) == LA_E_UNSUPPORTED, "form %d", form);
        CHECK(field != NULL && strcmp(field, "log_decay.width") == 0, "field %s", field);
        call.log_decay = la_bthd(x, 1, 1, 1);
        CHECK(la_check(&layer, &call, NULL) == LA_OK, "form %d, a gate per token", form);
    }
}

/* The stride of the only row is never used, whatever it is. */
TEST(input_strides_of_single_rows) {
    static float x[4] = {1, 2, 3, 4}, out[4];
    static double workspace[1 << 14];
    la_layer layer;
    la_call call;
    int form;
    CHECK(la_layer_init(&layer, LA_DELTANET, 1, 4, 4) == LA_OK, "layer");
    CHECK(la_call_init(&call, &layer, 1, 1) == LA_OK, "call");
    call.q = call.k = call.v = la_bthd(x, 1, 1, 4);
    call.out = la_bthd_out(out, 1, 1, 4);
    call.q.token_stride = call.k.token_stride = call.v.token_stride = INT64_MAX;
    call.q.head_stride = call.k.batch_stride = call.out.token_stride = INT64_MIN;
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    for (form = LA_AUTO; form <= LA_CHUNKWISE; form++) {
        call.form = form;
        out[0] = 0;
        CHECK(la_forward(&layer, &call) == LA_OK, "form %d", form);
        CHECK(out[0] == 30, "form %d: %g", form, (double)out[0]);
    }
}

/* Nor are those of no rows: of a batch without tokens, and of empty sequences behind the last token
   of a packed axis. (Sanitizers see whether an address is made of them.) */
TEST(input_strides_of_no_rows) {
    static float x[4] = {1, 2, 3, 4}, out[4], states[3 * 16];
    static double workspace[1 << 14];
    static const int64_t offsets[] = {0, 1, 1, 1};
    la_layer layer;
    la_call call;
    int tokens, form;
    CHECK(la_layer_init(&layer, LA_DELTANET, 1, 4, 4) == LA_OK, "layer");
    for (tokens = 0; tokens <= 1; tokens++) {
        CHECK(la_call_init(&call, &layer, 3, tokens) == LA_OK, "call");
        call.q = call.k = call.v = call.log_decay = call.beta = la_bthd(x, 1, 1, 4);
        call.out = la_bthd_out(out, 1, 1, 4);
        call.q.batch_stride = call.k.token_stride = call.v.token_stride = INT64_MAX;
        call.out.token_stride = call.beta.batch_stride = INT64_MIN;
        call.log_decay.token_stride = INT64_MAX / 2;
        call.offsets = tokens ? offsets : NULL;
        call.state_out = states;
        call.workspace = workspace;
        call.workspace_size = sizeof workspace;
        for (form = LA_AUTO; form <= LA_CHUNKWISE; form++) {
            call.form = form;
            states[47] = 1;
            CHECK(la_forward(&layer, &call) == LA_OK, "%d tokens, form %d", tokens, form);
            CHECK(states[47] == 0, "the last state is not empty: %g", (double)states[47]);
        }
    }
}

/* One query of many keys: the distance from a query to the next one is never looked at. (Only a
   sanitizer sees that it is not even added to an address.) */
TEST(input_strides_of_one_query) {
    enum { KEYS = 9 };
    static float keys[KEYS * 4], q[4] = {1, 2, 3, 4}, out[4];
    static double workspace[1 << 14];
    la_layer layer;
    la_call call;
    int i, form;
    for (i = 0; i < KEYS * 4; i++) {
        keys[i] = (float)(i % 4);
    }
    CHECK(la_layer_init(&layer, LA_ELU, 1, 4, 4) == LA_OK, "layer");
    layer.bidirectional = 1;
    CHECK(la_call_init(&call, &layer, 1, 1) == LA_OK, "call");
    call.keys = KEYS;
    call.q = la_bthd(q, 1, 1, 4);
    call.k = call.v = la_bthd(keys, KEYS, 1, 4);
    call.out = la_bthd_out(out, 1, 1, 4);
    call.q.token_stride = INT64_MAX;
    call.out.token_stride = INT64_MIN;
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    for (form = LA_AUTO; form <= LA_CHUNKWISE; form++) {
        call.form = form;
        CHECK(la_forward(&layer, &call) == LA_OK, "form %d", form);
        for (i = 0; i < 4; i++) {
            CHECK(fabsf(out[i] - (float)i) < 1e-5f, "form %d: %g", form, (double)out[i]);
        }
    }
}

/* Sizes that no memory holds make packed views that no check lets pass, whatever their product. */
TEST(input_packed_views_of_absurd_sizes) {
    static const int64_t absurd[] = {INT64_MAX, (int64_t)1 << 62, (int64_t)1 << 48, -1, INT64_MIN};
    const int64_t huge = (int64_t)1 << 40;
    la_in view;
    int i;
    for (i = 0; i < COUNT(absurd); i++) {
        view = la_bthd(fixture.at[Q], huge, absurd[i], 1 << 20);
        CHECK(view.token_stride == INT64_MAX, "size %d: %lld", i, (long long)view.token_stride);
        CHECK(view.batch_stride == INT64_MAX, "size %d: %lld", i, (long long)view.batch_stride);
        view = la_bhtd(fixture.at[Q], absurd[i], huge, 1 << 20);
        CHECK(view.head_stride == INT64_MAX, "size %d: %lld", i, (long long)view.head_stride);
    }
    REFUSED(LA_E_OVERFLOW, "q", call->q = la_bthd(fixture.at[Q], huge, INT64_MAX, DK));
    REFUSED(LA_E_OVERFLOW, "k", call->k = la_bhtd(fixture.at[K], (int64_t)1 << 62, HK, DK));
    REFUSED(LA_E_OVERFLOW, "out", call->out = la_bthd_out(fixture.at[OUT], huge, huge, DV));
}
