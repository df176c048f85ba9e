#include "case.h"

#include "../oracle.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the layer */

/* Any combination of the axes that there is. */
static void take_axes(la_layer *layer) {
    layer->feature = input_below(8);
    layer->write = layer->feature != LA_FEATURE_FAVOR ? input_below(2) : LA_WRITE_ADD;
    layer->write += layer->feature == LA_FEATURE_IDENTITY && layer->write && input_below(2);
    layer->normalised = layer->write == LA_WRITE_ADD ? input_below(2) : 0;
    layer->read = LA_READ_AFTER;
    if (layer->feature == LA_FEATURE_IDENTITY && !layer->write && !layer->normalised) {
        layer->read = input_below(2);
    }
    layer->normalised |= layer->feature == LA_FEATURE_FAVOR;
    layer->decay_required = input_below(2);
}

static void take_heads(la_layer *layer) {
    int64_t heads = layer->heads;
    int kind = input_below(8);
    layer->q_heads = kind < 4 ? heads : kind < 6 ? heads * (1 + input_below(3)) : 1;
    layer->k_heads = input_chance(3) ? 1 : heads;
    if (heads % 2 == 0 && input_chance(3)) {
        layer->k_heads = heads / 2;
    }
    layer->head_map = input_below(2);
    layer->state_layout = input_below(2);
}

/* A setting that is not negative: one of the usual ones, or, in odd layers, any number. */
static float take_setting(const Case *c, float usual, float other) {
    float x = input_below(2) ? usual : other;
    if (!c->ordinary && input_chance(4)) {
        x = fabsf(input_float());
        x = x <= 3e38f ? x : usual;
    }
    return x;
}

static double projection_floats(const la_layer *layer) {
    return (double)layer->features * ((double)layer->dim_k + (double)layer->projection_bias);
}

static void take_settings(Case *c) {
    static const float present = 0;
    la_layer *layer = &c->layer;
    layer->scale = take_setting(c, 1, 1 / sqrtf((float)layer->dim_k));
    layer->eps = input_chance(3) ? take_setting(c, 1e-6f, 0.5f) : 0;
    layer->eps_mode = input_below(2);
    layer->l2_mode = input_chance(3) ? 1 + input_below(2) : LA_L2_OFF;
    layer->l2_eps = take_setting(c, 1e-6f, 1e-3f);
    layer->bidirectional = layer->normalised && input_chance(4);
    if (oracle_projects(layer)) {
        layer->projection = &present;
        layer->favor_kernel = input_below(3);
        layer->features = input_dim();
        layer->feature_eps = take_setting(c, 0, 1e-4f);
        if (layer->feature != LA_FEATURE_FAVOR) {
            layer->hedgehog_kernel = layer->favor_kernel;
            layer->projection_bias = input_below(2);
            layer->q_projection = input_below(2) ? &present : NULL;
        }
        layer->projection_head_stride = input_below(2) ? (int64_t)projection_floats(layer) : 0;
    } else if (!oracle_scales_inputs(layer) && !c->ordinary && input_chance(2)) {
        layer->scale = -layer->scale;
    }
    layer->nu = layer->feature == LA_FEATURE_DPFP ? 1 + input_below(4) : layer->nu;
}

/* A layer that is sound. What is a pointer comes later: case_projection. */
void case_layer(Case *c) {
    la_variant variant = (la_variant)(LA_ELU + input_below(LA_MAPPED));
    int64_t heads = 1 + input_below(4), dim_k = input_dim(), dim_v = input_dim();
    la_status status = la_layer_init(&c->layer, variant, heads, dim_k, dim_v);
    MUST(status == LA_OK, "la_layer_init: %s", la_status_text(status));
    c->backed = 1;
    c->ordinary = !input_chance(3);
    if (input_chance(3)) {
        take_axes(&c->layer);
    }
    take_heads(&c->layer);
    take_settings(c);
    c->layer.horizon = c->layer.feature == LA_FEATURE_COSFORMER ? 1000 : 0;
}

/* ---------------------------------------------------------------- sizes */

static int is_small_layer(const la_layer *layer) {
    return is_small(layer->heads) && is_small(layer->q_heads) && is_small(layer->k_heads) &&
           is_small(layer->dim_k) && is_small(layer->dim_v) &&
           (!oracle_projects(layer) || is_small(layer->features)) &&
           (layer->feature != LA_FEATURE_DPFP || is_small(layer->nu)) &&
           (layer->projection_bias == 0 || layer->projection_bias == 1);
}

static int is_small_case(const Case *c) {
    return is_small_layer(&c->layer) && c->call.batch >= 1 && c->call.batch <= 64 &&
           is_small(c->call.tokens) && is_small(c->call.keys) && is_small(c->call.snapshot_count);
}

double case_state_floats(const la_layer *layer) {
    double r = (double)layer->dim_k, more = 0;
    if (layer->feature == LA_FEATURE_FAVOR) {
        r = (double)layer->features * (layer->favor_kernel == LA_FAVOR_HYPERBOLIC ? 2 : 1);
    } else if (oracle_projects(layer)) {
        r = 2 * (double)layer->features;
    } else if (layer->feature == LA_FEATURE_COSFORMER) {
        r *= 2;
    } else if (layer->feature == LA_FEATURE_DPFP) {
        r *= 2 * (double)layer->nu;
    } else if (layer->feature == LA_FEATURE_TAYLOR) {
        r = (r + 1) * (r + 2) / 2;
    }
    if (layer->normalised) {
        more = layer->feature == LA_FEATURE_FAVOR && layer->favor_kernel != LA_FAVOR_RELU;
        more += r;
    }
    return (double)layer->heads * (r * (double)layer->dim_v + more);
}

int64_t case_tokens(const la_call *call, int64_t b) {
    if (call->offsets != NULL) {
        return call->offsets[b + 1] - call->offsets[b];
    }
    return call->lengths != NULL ? call->lengths[b] : call->tokens;
}

int64_t case_keys(const la_layer *layer, const la_call *call, int64_t b) {
    if (!layer->bidirectional || call->offsets != NULL) {
        return case_tokens(call, b);
    }
    return call->key_lengths != NULL ? call->key_lengths[b] : call->keys;
}

double case_cost(const Case *c) {
    const la_layer *layer = &c->layer;
    const la_call *call = &c->call;
    double T = (double)call->tokens + (double)call->keys, heads = (double)layer->heads;
    double floats = case_state_floats(layer) / heads, dk = (double)layer->dim_k;
    double width = floats / (double)layer->dim_v + (double)layer->dim_v;
    double queries = 1 + (double)layer->q_heads / heads, each = (floats + width * T + 64) * queries;
    each += oracle_projects(layer) ? (double)layer->features * dk * queries : 0;
    return (double)call->batch * heads * (floats * 4 + 200 + T * each);
}

/* ---------------------------------------------------------------- views */

/* How many sequences a view has: with offsets they share one token axis. */
static int64_t view_batch(const la_call *call) {
    return call->offsets != NULL ? 1 : call->batch;
}

static Rows view_rows(const Case *c, const la_in *view, int64_t tokens, int64_t heads) {
    Rows rows = {{0, 0, 0}, {0, 0, 0}, 0};
    rows.counts[0] = view_batch(&c->call);
    rows.counts[1] = tokens;
    rows.counts[2] = heads;
    rows.strides[0] = view->batch_stride;
    rows.strides[1] = view->token_stride;
    rows.strides[2] = view->head_stride;
    rows.width = view->width < 1 ? 1 : view->width;
    return rows;
}

/* States from the first of the pool to the last that slots name. */
static Rows pool_rows(const Case *c, const int64_t *slots, int64_t stride) {
    Rows rows = {{0, 1, 1}, {0, 0, 0}, 0};
    int64_t b;
    rows.counts[0] = slots != NULL ? 0 : c->call.batch;
    for (b = 0; slots != NULL && b < c->call.batch; b++) {
        if (slots[b] >= rows.counts[0] && slots[b] < INT64_MAX) {
            rows.counts[0] = slots[b] + 1;
        }
    }
    rows.strides[0] = stride;
    rows.width = (int64_t)case_state_floats(&c->layer);
    return rows;
}

static Rows projection_rows(const la_layer *layer) {
    Rows rows = {{1, 1, 0}, {0, 0, 0}, 0};
    if (oracle_projects(layer)) { /* in other layers any numbers may stand there */
        rows.counts[2] = layer->heads;
        rows.strides[2] = layer->projection_head_stride;
        rows.width = (int64_t)projection_floats(layer);
    }
    return rows;
}

/* ---------------------------------------------------------------- the numbers of a call */

/* What only some rules have, and what finishes outputs. */
static void take_partners(Case *c, const int64_t v[3], const int64_t out[3]) {
    const la_layer *layer = &c->layer;
    la_call *call = &c->call;
    int64_t dk = layer->dim_k, dv = layer->dim_v;
    int wide = layer->feature == LA_FEATURE_IDENTITY || layer->feature == LA_FEATURE_ELU1;
    if (layer->write == LA_WRITE_DELTA && wide && input_below(2)) {
        call->erase = input_view(v, dk);
    }
    if (layer->read == LA_READ_BEFORE && !input_chance(3)) {
        call->bonus = input_view(v, dk);
    }
    if (call->bonus.data != NULL && input_below(2)) { /* of the head, at every token */
        call->bonus.token_stride = call->bonus.batch_stride = 0;
    }
    if (layer->write == LA_WRITE_DPLR) {
        call->a = input_view(v, dk);
        call->b = input_view(v, dk);
    }
    if (!layer->bidirectional && input_chance(4)) {
        call->skip = input_view(v, input_below(2) ? dv : 1);
        call->skip.token_stride = call->skip.batch_stride = 0;
    }
    if (input_chance(4)) {
        call->out_gate = input_view(out, dv);
    }
}

static void take_views(Case *c) {
    static float present;
    const la_layer *layer = &c->layer;
    la_call *call = &c->call;
    int64_t B = view_batch(call), T = call->tokens, S = call->keys, H = layer->heads;
    const int64_t q[3] = {B, T, layer->q_heads}, k[3] = {B, S, layer->k_heads}, v[3] = {B, S, H};
    const int64_t out[3] = {B, T, oracle_out_heads(layer)};
    int wide = layer->feature == LA_FEATURE_IDENTITY || layer->feature == LA_FEATURE_ELU1;
    call->q = input_view(q, layer->dim_k);
    call->k = input_view(k, layer->dim_k);
    call->v = input_view(v, layer->dim_v);
    call->log_decay = input_view(v, wide && input_below(2) ? layer->dim_k : 1);
    call->beta = input_view(v, input_below(2) ? layer->dim_v : 1);
    if (input_chance(5)) { /* a gate per head */
        call->log_decay.token_stride = call->log_decay.batch_stride = 0;
    }
    take_partners(c, v, out);
    call->log_decay.data = layer->decay_required || !input_chance(3) ? call->log_decay.data : NULL;
    call->beta.data = input_chance(3) ? NULL : call->beta.data;
    call->out.width = layer->dim_v;
    input_strides_apart(&call->out, out);
    call->out.data = &present;
}

static void take_state_numbers(Case *c) {
    static float present[2]; /* in place: the same one */
    la_call *call = &c->call;
    int64_t floats = (int64_t)case_state_floats(&c->layer);
    int kind = input_below(8), gap = input_chance(3) ? input_below(8) : 0;
    int64_t step = input_chance(8) ? -(floats + gap) : floats + gap;
    call->state_in = kind != 1 && kind != 2 ? &present[kind % 2] : NULL;
    call->state_out = kind != 1 && kind != 3 ? &present[0] : NULL;
    call->state_in_stride = call->state_out_stride = step;
    call->slots_in = call->state_in != NULL ? call->slots_in : NULL;
    call->slots_out = call->state_out != NULL ? call->slots_out : NULL;
    if (call->state_in == call->state_out && call->slots_in == NULL) {
        call->slots_out = NULL; /* none may read what another one writes */
    }
    if (call->state_in != call->state_out && input_chance(3)) { /* inputs may overlap */
        call->state_in_stride = input_chance(2) ? input_number() : input_below(16) * 3;
    }
}

/* Which lists there are; what stands in them comes when they have their final length. */
static void take_lists(Case *c) {
    static const int64_t present = 0;
    la_call *call = &c->call;
    int kind = input_below(8);
    call->lengths = kind == 5 || kind == 6 ? &present : NULL;
    call->offsets = kind == 7 ? &present : NULL;
    if (c->layer.bidirectional && kind != 7 && input_below(2)) {
        call->key_lengths = &present;
    }
    if (c->layer.feature == LA_FEATURE_COSFORMER && input_below(2)) {
        call->positions = &present;
    }
    kind = input_below(8);
    call->slots_in = kind == 5 || kind == 7 ? &present : NULL;
    call->slots_out = kind >= 6 ? &present : NULL;
}

static void take_numbers(Case *c) {
    static float present;
    la_call *call = &c->call;
    int64_t batch = input_chance(3) ? 1 + input_below(5) : 1;
    int64_t tokens = input_chance(8) ? input_below(70) : input_below(20);
    la_status status = la_call_init(call, &c->layer, batch, tokens);
    MUST(status == LA_OK || c->wild, "la_call_init: %s", la_status_text(status));
    call->struct_size = sizeof *call;
    call->batch = batch;
    call->tokens = call->keys = tokens;
    take_lists(c);
    if (c->layer.bidirectional && call->offsets == NULL && input_below(2)) {
        call->keys = input_below(20);
    }
    call->form = input_below(4);
    call->isa = input_below(6);
    call->isa = la_isa_available(call->isa) ? call->isa : LA_ISA_AUTO;
    call->chunk = input_below(2) ? input_below(36) : 0;
    call->chunk = input_chance(64) ? 1024 - input_below(256) : call->chunk;
    call->thread_count = input_chance(3) ? 1 + input_below(6) : 1;
    take_views(c);
    take_state_numbers(c);
    if (call->form == LA_RECURRENT && !c->layer.bidirectional && input_chance(3)) {
        call->snapshots = &present;
        call->snapshot_count = input_below(8);
    }
}

/* ---------------------------------------------------------------- spoiling */

#define LAYER_FIELD(name) {offsetof(la_layer, name), sizeof(((la_layer *)0)->name)}
#define CALL_FIELD(name) {offsetof(la_call, name), sizeof(((la_call *)0)->name)}
#define VIEW_FIELDS(name)                                                                          \
    CALL_FIELD(name.batch_stride), CALL_FIELD(name.token_stride), CALL_FIELD(name.head_stride),    \
        CALL_FIELD(name.width), CALL_FIELD(name.type)

static const Field layer_fields[] = {
    LAYER_FIELD(struct_size), LAYER_FIELD(feature), LAYER_FIELD(write), LAYER_FIELD(normalised),
    LAYER_FIELD(decay_required), LAYER_FIELD(bidirectional), LAYER_FIELD(heads),
    LAYER_FIELD(q_heads), LAYER_FIELD(k_heads), LAYER_FIELD(dim_k), LAYER_FIELD(dim_v),
    LAYER_FIELD(head_map), LAYER_FIELD(state_layout), LAYER_FIELD(scale), LAYER_FIELD(eps),
    LAYER_FIELD(eps_mode), LAYER_FIELD(l2_mode), LAYER_FIELD(l2_eps),
    LAYER_FIELD(projection_head_stride), LAYER_FIELD(features), LAYER_FIELD(favor_kernel),
    LAYER_FIELD(feature_eps), LAYER_FIELD(horizon), LAYER_FIELD(nu), LAYER_FIELD(projection_bias),
    LAYER_FIELD(hedgehog_kernel), LAYER_FIELD(read)};
static const Field call_fields[] = {
    CALL_FIELD(struct_size), CALL_FIELD(form), CALL_FIELD(isa), CALL_FIELD(chunk),
    CALL_FIELD(thread_index), CALL_FIELD(thread_count), CALL_FIELD(batch), CALL_FIELD(tokens),
    CALL_FIELD(keys), VIEW_FIELDS(q), VIEW_FIELDS(k), VIEW_FIELDS(v), VIEW_FIELDS(log_decay),
    VIEW_FIELDS(beta), VIEW_FIELDS(out), VIEW_FIELDS(erase), VIEW_FIELDS(bonus), VIEW_FIELDS(a),
    VIEW_FIELDS(b), VIEW_FIELDS(skip), VIEW_FIELDS(out_gate), CALL_FIELD(state_in_stride),
    CALL_FIELD(state_out_stride), CALL_FIELD(snapshot_count)};

/* Only numbers: pointers stay what they were. */
static void keep_pointers(const Case *from, Case *to) {
    const la_call *call = &from->call;
    to->layer.projection = from->layer.projection;
    to->layer.q_projection = from->layer.q_projection;
    to->call.q.data = call->q.data;
    to->call.k.data = call->k.data;
    to->call.v.data = call->v.data;
    to->call.log_decay.data = call->log_decay.data;
    to->call.beta.data = call->beta.data;
    to->call.erase.data = call->erase.data;
    to->call.bonus.data = call->bonus.data;
    to->call.a.data = call->a.data;
    to->call.b.data = call->b.data;
    to->call.skip.data = call->skip.data;
    to->call.out_gate.data = call->out_gate.data;
    to->call.out.data = call->out.data;
    to->call.state_in = call->state_in;
    to->call.state_out = call->state_out;
    to->call.lengths = call->lengths;
    to->call.key_lengths = call->key_lengths;
    to->call.positions = call->positions;
    to->call.offsets = call->offsets;
    to->call.slots_in = call->slots_in;
    to->call.slots_out = call->slots_out;
    to->call.snapshots = call->snapshots;
    to->call.workspace = call->workspace;
}

void case_spoil(Case *c, int with_call) {
    const Case before = *c;
    int n = 1 + input_below(3), kind;
    unsigned char *layer = (unsigned char *)&c->layer, *call = (unsigned char *)&c->call;
    for (; n > 0; n--) {
        kind = input_below(with_call ? 8 : 4);
        if (kind == 0) {
            spoil_bytes(layer, sizeof c->layer);
        } else if (kind < 4) {
            spoil_field(layer, &layer_fields[input_below(COUNT(layer_fields))]);
        } else if (kind == 4) {
            spoil_bytes(call, sizeof c->call);
        } else {
            spoil_field(call, &call_fields[input_below(COUNT(call_fields))]);
        }
    }
    keep_pointers(&before, c);
    c->wild = 1;
    c->ordinary = 0;
}

/* ---------------------------------------------------------------- lists */

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Slots that are written: no two alike, some of them none. */
static int64_t *new_slots_out(Case *c) {
    int64_t B = c->call.batch, pool = B + input_below(3), b, first = input_below(8);
    int64_t *slots = input_list(B, 0, 7, &c->wild);
    for (b = 0; b < B; b++) {
        int64_t drawn = slots[b];
        slots[b] = drawn < 0 || drawn > 7 ? drawn : drawn == 7 ? -1 : (first + b) % pool;
    }
    return slots;
}

static void new_lists(Case *c) {
    la_call *call = &c->call;
    int64_t B = call->batch, T = call->tokens, b;
    int64_t *slots_out = call->slots_out != NULL ? new_slots_out(c) : NULL, *offsets;
    if (call->offsets != NULL) {
        call->offsets = offsets = input_list(B + 1, 0, T, &c->wild);
        if (!input_chance(32)) {
            qsort(offsets, (size_t)B + 1, sizeof *offsets, ascending);
        } else {
            c->wild = 1;
        }
    }
    call->lengths = call->lengths != NULL ? input_list(B, 0, T, &c->wild) : NULL;
    call->key_lengths = call->key_lengths != NULL ? input_list(B, 0, call->keys, &c->wild) : NULL;
    call->positions = call->positions != NULL ? input_list(B, 0, 30, &c->wild) : NULL;
    if (call->slots_in != NULL) {
        int64_t *slots_in = input_list(B, -1, 4, &c->wild);
        for (b = 0; b < B && call->state_in == call->state_out; b++) { /* in place */
            int64_t own = slots_out != NULL ? slots_out[b] : b;
            slots_in[b] = slots_in[b] == 3 ? -1 : own;
        }
        call->slots_in = slots_in;
    }
    call->slots_out = slots_out;
}

/* ---------------------------------------------------------------- buffers of a case */

static void new_view(Case *c, la_in *view, int64_t tokens, int64_t heads) {
    Rows rows = view_rows(c, view, tokens, heads);
    view->data = view->data != NULL ? rows_buffer(&rows, &c->backed) : NULL;
}

static float *new_out(Case *c) {
    la_in view = view_of(&c->call.out);
    Rows rows = view_rows(c, &view, c->call.tokens, oracle_out_heads(&c->layer));
    return rows_buffer(&rows, &c->backed);
}

static float *new_pool(Case *c, const int64_t *slots, int64_t stride) {
    Rows rows = pool_rows(c, slots, stride);
    return rows_buffer(&rows, &c->backed);
}

static void new_states(Case *c) {
    la_call *call = &c->call;
    int in_place = call->state_in == call->state_out;
    if (call->state_out != NULL) {
        call->state_out = new_pool(c, call->slots_out, call->state_out_stride);
    }
    if (in_place) {
        call->state_in = call->state_out;
    } else if (call->state_in != NULL) {
        call->state_in = new_pool(c, call->slots_in, call->state_in_stride);
    }
}

static float *new_snapshots(Case *c) {
    double floats = case_state_floats(&c->layer) * (double)c->call.batch;
    floats *= (double)c->call.snapshot_count;
    if (floats * 4 > BUFFER_LIMIT) {
        c->backed = 0;
        return buffer_new(4, 0);
    }
    return buffer_new((size_t)floats * 4, 0);
}

static const float *new_projection(Case *c) {
    Rows rows = projection_rows(&c->layer);
    const float *projection = rows_buffer(&rows, &c->backed);
    Range range = range_of(projection, &rows);
    float *at;
    for (; range.begin < range.end; range.begin += sizeof *at) {
        at = (float *)range.begin;
        *at = noise_between(-1.7f, 1.7f);
    }
    return projection;
}

void case_projection(Case *c) {
    la_layer *layer = &c->layer;
    if (!oracle_projects(layer) || !is_small_layer(layer)) {
        c->backed &= !oracle_projects(layer);
        layer->projection = input_chance(8) ? NULL : buffer_new(4, 0);
        layer->q_projection = layer->q_projection != NULL ? layer->projection : NULL;
        return;
    }
    layer->projection = new_projection(c);
    layer->q_projection = layer->q_projection != NULL ? new_projection(c) : NULL;
}

static void new_workspace(Case *c) {
    la_call *call = &c->call;
    size_t need = la_workspace_size(&c->layer, call), lead = (size_t)input_below(64);
    size_t room = need <= BUFFER_LIMIT ? need : 0;
    c->backed &= room == need;
    call->workspace = buffer_new(room, lead);
    call->workspace_size = need;
    switch (input_below(16)) {
    case 12: call->workspace_size = need + (size_t)input_below(256); break;
    case 13: call->workspace_size = SIZE_MAX - (size_t)input_below(64); break;
    case 14: /* too short, by one byte or by all of them */
        call->workspace_size = need > 0 && input_below(2) ? need - 1 : (size_t)input_below(200);
        c->wild = 1;
        break;
    default: break;
    }
}

/* ---------------------------------------------------------------- what meets what */

enum { OUTPUTS = 4, RANGES = 18 };

static Range view_range(const Case *c, const la_in *view, int64_t tokens, int64_t heads) {
    Rows rows = view_rows(c, view, tokens, heads);
    return range_of(view->data, &rows);
}

static Range pool_range(const Case *c, const float *pool, int64_t stride, const int64_t *slots) {
    Rows rows = pool_rows(c, slots, stride);
    return range_of(pool, &rows);
}

/* Everything that a call reads and writes, but for lists: outputs first. An absent tensor has the
   address 0. */
static void all_ranges(const Case *c, Range ranges[RANGES]) {
    const la_layer *layer = &c->layer;
    const la_call *call = &c->call;
    la_in out = view_of(&call->out);
    Rows snapshots = pool_rows(c, NULL, (int64_t)case_state_floats(layer));
    Rows projection = projection_rows(layer);
    snapshots.counts[0] = call->snapshots != NULL ? call->batch * call->snapshot_count : 0;
    ranges[0] = view_range(c, &out, call->tokens, oracle_out_heads(layer));
    ranges[1] = pool_range(c, call->state_out, call->state_out_stride, call->slots_out);
    ranges[2].begin = (uintptr_t)call->workspace;
    ranges[2].end = ranges[2].begin + la_workspace_size(layer, call);
    ranges[3] = range_of(call->snapshots, &snapshots);
    ranges[4] = pool_range(c, call->state_in, call->state_in_stride, call->slots_in);
    ranges[5] = view_range(c, &call->q, call->tokens, layer->q_heads);
    ranges[6] = view_range(c, &call->k, call->keys, layer->k_heads);
    ranges[7] = view_range(c, &call->v, call->keys, layer->heads);
    ranges[8] = view_range(c, &call->log_decay, call->keys, layer->heads);
    ranges[9] = view_range(c, &call->beta, call->keys, layer->heads);
    ranges[10] = range_of(layer->projection, &projection);
    ranges[11] = range_of(layer->q_projection, &projection);
    ranges[12] = view_range(c, &call->erase, call->keys, layer->heads);
    ranges[13] = view_range(c, &call->bonus, call->keys, layer->heads);
    ranges[14] = view_range(c, &call->a, call->keys, layer->heads);
    ranges[15] = view_range(c, &call->b, call->keys, layer->heads);
    ranges[16] = view_range(c, &call->skip, call->keys, layer->heads);
    ranges[17] = view_range(c, &call->out_gate, call->tokens, oracle_out_heads(layer));
}

static int is_absent(const Case *c, int i) {
    const la_call *call = &c->call;
    return (i == 1 && call->state_out == NULL) || (i == 4 && call->state_in == NULL) ||
           (i == 8 && call->log_decay.data == NULL) || (i == 9 && call->beta.data == NULL) ||
           (i == 11 && c->layer.q_projection == NULL) || (i == 12 && call->erase.data == NULL) ||
           (i == 13 && call->bonus.data == NULL) || (i == 14 && call->a.data == NULL) ||
           (i == 15 && call->b.data == NULL) || (i == 16 && call->skip.data == NULL) ||
           (i == 17 && call->out_gate.data == NULL);
}

/* Pointers may have been moved since the buffers were made. */
int case_holds(const Case *c) {
    Range ranges[RANGES];
    int i;
    all_ranges(c, ranges);
    for (i = 0; i < RANGES; i++) {
        if (!range_holds(&ranges[i], is_absent(c, i))) {
            return 0;
        }
    }
    return c->backed;
}

/* la_check has let it pass: no output may meet an input or another output. */
void case_meets(const Case *c) {
    Range ranges[RANGES];
    int i, j, in_place = c->call.state_in == c->call.state_out;
    all_ranges(c, ranges);
    for (i = 0; i < OUTPUTS; i++) {
        for (j = i + 1; j < RANGES; j++) {
            int apart = is_absent(c, i) || is_absent(c, j) || !ranges_meet(&ranges[i], &ranges[j]);
            MUST(apart || (i == 1 && j == 4 && in_place), "output %d meets %d", i, j);
        }
    }
}

/* ---------------------------------------------------------------- data */

typedef enum Kind { QUERY, KEY, VALUE, GATE, BETA, ERASE, PAIR, CLOSE } Kind;

/* What the data of one input are like, drawn once. */
typedef struct Taste {
    int gates, odd, positive, poison; /* odd: one number in so many is odd_value */
    float odd_value;
} Taste;

static float any_value(const Taste *taste, Kind kind) {
    switch (kind) {
    case GATE: return noise_gate(taste->gates);
    case BETA: return noise_between(0, 2);
    case ERASE: return noise_between(0, 1);
    case PAIR:
    case CLOSE:
    case VALUE: return noise_between(-1, 1);
    default: return taste->positive ? noise_between(0.1f, 1) : noise_between(-1, 1);
    }
}

/* Tokens of a view that are read in sequence b. */
static int64_t rows_read(const Case *c, Kind kind, int64_t b) {
    if (c->call.offsets != NULL) {
        return c->call.tokens;
    }
    if (kind == QUERY || kind == CLOSE) {
        return case_tokens(&c->call, b);
    }
    return case_keys(&c->layer, &c->call, b);
}

static void fill_row(const Case *c, const Taste *taste, Kind kind, float *row, int64_t n) {
    double sum = 0, length;
    int64_t i;
    for (i = 0; i < n; i++) {
        row[i] = any_value(taste, kind);
        sum += (double)row[i] * (double)row[i];
    }
    length = sqrt(sum) / 0.999; /* delta rules: beta |k|^2 <= 2 */
    for (i = 0; i < n; i++) {
        if (kind == KEY && c->layer.write == LA_WRITE_DELTA && length > 0) {
            row[i] = (float)((double)row[i] / length);
        }
        if (kind == PAIR && length > 0) { /* |a| |b| = 0.4 */
            row[i] = (float)((double)row[i] * 0.63 / length);
        }
        if (taste->odd > 0 && noise_below(taste->odd) == 0) {
            row[i] = taste->odd_value;
        }
    }
}

/* The rows as the call reads them; gaps keep their NaN, and rows beyond a length get one. */
static void fill_view(const Case *c, const Taste *taste, Kind kind, const la_in *view,
                      int64_t tokens, int64_t heads) {
    int64_t b, t, h, batch = view_batch(&c->call);
    float *row;
    for (b = 0; view->data != NULL && b < batch; b++) {
        for (t = 0; t < tokens; t++) {
            for (h = 0; h < heads; h++) {
                const float *at = view_row(view, b, t, h);
                memcpy(&row, &at, sizeof row); /* the buffer is ours */
                fill_row(c, taste, kind, row, view->width);
                if (taste->poison && view->token_stride != 0 && t >= rows_read(c, kind, b)) {
                    row[0] = NAN;
                }
            }
        }
    }
}

/* S is any, z positive, as sums of features are, and m near 0. */
static void fill_state(const Case *c, float *state) {
    const la_layer *layer = &c->layer;
    int64_t h, i, j, r = oracle_features(layer);
    for (h = 0; h < layer->heads; h++) {
        for (i = 0; i < r; i++) {
            for (j = 0; j < layer->dim_v; j++) {
                state[oracle_state_index(layer, h, i, j)] = noise_between(-1, 1);
            }
            if (layer->normalised) {
                state[oracle_state_index(layer, h, i, layer->dim_v)] = noise_between(0.5f, 1.5f);
            }
        }
        if (layer->normalised && oracle_has_maximum(layer)) {
            state[oracle_state_index(layer, h, r, 0)] = noise_between(-1, 1);
        }
    }
}

static void fill_states(const Case *c, const Taste *taste) {
    const la_call *call = &c->call;
    int64_t b, floats = (int64_t)case_state_floats(&c->layer), slot;
    float *state;
    for (b = 0; call->state_in != NULL && b < call->batch; b++) {
        const float *at = call->state_in;
        slot = call->slots_in != NULL ? call->slots_in[b] : b;
        if (slot < 0) {
            continue;
        }
        at += slot * call->state_in_stride;
        memcpy(&state, &at, sizeof state);
        fill_state(c, state);
        if (taste->odd > 0 && noise_below(4) == 0) {
            state[noise_bits() % (uint64_t)floats] = taste->odd_value;
        }
    }
}

static void fill(Case *c) {
    const la_layer *layer = &c->layer;
    const la_call *call = &c->call;
    Taste taste = {0, 0, 0, 0, 0};
    int64_t T = call->tokens, S = call->keys, H = layer->heads;
    int signed_sums = layer->normalised && layer->feature == LA_FEATURE_IDENTITY;
    taste.gates = input_below(8);
    taste.poison = input_below(2);
    taste.positive = signed_sums || input_chance(4);
    if (!c->ordinary) {
        taste.odd = 1 + input_below(64);
        taste.odd_value = input_float();
    }
    fill_view(c, &taste, QUERY, &call->q, T, layer->q_heads);
    fill_view(c, &taste, KEY, &call->k, S, layer->k_heads);
    fill_view(c, &taste, VALUE, &call->v, S, H);
    fill_view(c, &taste, GATE, &call->log_decay, S, H);
    fill_view(c, &taste, BETA, &call->beta, S, H);
    fill_view(c, &taste, ERASE, &call->erase, S, H);
    fill_view(c, &taste, VALUE, &call->bonus, S, H);
    fill_view(c, &taste, PAIR, &call->a, S, H);
    fill_view(c, &taste, PAIR, &call->b, S, H);
    fill_view(c, &taste, VALUE, &call->skip, S, H);
    fill_view(c, &taste, CLOSE, &call->out_gate, T, oracle_out_heads(layer));
    fill_states(c, &taste);
}

/* ---------------------------------------------------------------- all of it */

/* One pointer, mostly that of an output, is null, is another one, or stands a little aside. */
static void spoil_pointer(Case *c) {
    la_call *call = &c->call;
    const void *pointers[15], *one;
    int to = input_below(2) ? 6 + input_below(3) : input_below(9);
    int from = input_below(15), kind = input_below(4);
    char *moved;
    pointers[0] = call->q.data;
    pointers[1] = call->k.data;
    pointers[2] = call->v.data;
    pointers[3] = call->log_decay.data;
    pointers[4] = call->beta.data;
    pointers[5] = call->state_in;
    pointers[6] = call->out.data;
    pointers[7] = call->state_out;
    pointers[8] = call->workspace;
    pointers[9] = call->erase.data;
    pointers[10] = call->bonus.data;
    pointers[11] = call->a.data;
    pointers[12] = call->b.data;
    pointers[13] = call->skip.data;
    pointers[14] = call->out_gate.data;
    one = kind == 0 ? NULL : kind == 1 ? pointers[to] : pointers[from];
    memcpy(&moved, &one, sizeof moved);
    if (one != NULL && kind < 3) {
        moved += 4 * (input_below(17) - 8);
    }
    switch (to) {
    case 0: call->q.data = (float *)(void *)moved; break;
    case 1: call->k.data = (float *)(void *)moved; break;
    case 2: call->v.data = (float *)(void *)moved; break;
    case 3: call->log_decay.data = (float *)(void *)moved; break;
    case 4: call->beta.data = (float *)(void *)moved; break;
    case 5: call->state_in = (float *)(void *)moved; break;
    case 6: call->out.data = (float *)(void *)moved; break;
    case 7: call->state_out = (float *)(void *)moved; break;
    default: call->workspace = moved; break;
    }
    c->wild = 1;
    c->ordinary = 0;
}

/* cosFormer: every position is at most the horizon, mostly with room to spare. */
static void set_horizon(Case *c) {
    const la_call *call = &c->call;
    int64_t b, last = 1;
    for (b = 0; call->positions != NULL && b < call->batch; b++) {
        last = call->positions[b] > last && call->positions[b] < 1000 ? call->positions[b] : last;
    }
    last += call->tokens > call->keys ? call->tokens : call->keys;
    c->layer.horizon = (double)(last + input_below(8)) * (input_chance(4) ? 100 : 1.05);
}

/* The numbers are final: buffers for them. */
static void new_buffers(Case *c) {
    const la_layer *layer = &c->layer;
    la_call *call = &c->call;
    new_lists(c);
    if (layer->feature == LA_FEATURE_COSFORMER && !c->wild) {
        set_horizon(c);
    }
    new_view(c, &call->q, call->tokens, layer->q_heads);
    new_view(c, &call->k, call->keys, layer->k_heads);
    new_view(c, &call->v, call->keys, layer->heads);
    new_view(c, &call->log_decay, call->keys, layer->heads);
    new_view(c, &call->beta, call->keys, layer->heads);
    new_view(c, &call->erase, call->keys, layer->heads);
    new_view(c, &call->bonus, call->keys, layer->heads);
    new_view(c, &call->a, call->keys, layer->heads);
    new_view(c, &call->b, call->keys, layer->heads);
    new_view(c, &call->skip, call->keys, layer->heads);
    new_view(c, &call->out_gate, call->tokens, oracle_out_heads(layer));
    call->out.data = call->out.data != NULL ? new_out(c) : NULL;
    new_states(c);
    call->snapshots = call->snapshots != NULL ? new_snapshots(c) : NULL;
    case_projection(c);
    new_workspace(c);
}

/* Sizes beyond any buffer: lists would be as long, so there are none. */
static void no_buffers(Case *c) {
    la_call *call = &c->call;
    call->lengths = call->key_lengths = call->positions = call->offsets = NULL;
    call->slots_in = call->slots_out = NULL;
    call->workspace = buffer_new(8, 0);
    call->workspace_size = SIZE_MAX / 2;
    case_projection(c);
    c->backed = 0;
}

void case_new(Case *c) {
    int spoilt, pointers;
    case_layer(c);
    spoilt = input_chance(4);
    pointers = input_chance(6);
    noise_seed(input_bits(2));
    take_numbers(c);
    if (spoilt) {
        case_spoil(c, 1);
    }
    if (!is_small_case(c)) {
        no_buffers(c);
        return;
    }
    new_buffers(c);
    if (c->backed && la_check(&c->layer, &c->call, NULL) == LA_OK) {
        fill(c);
        c->known = 1;
    }
    if (pointers) {
        spoil_pointer(c);
        c->known = 0;
    }
}

static void print_view(const char *name, const la_in *view) {
    fprintf(stderr, "  %s %p: %lld %lld %lld, width %lld, type %d\n", name,
            (const void *)view->data, (long long)view->batch_stride, (long long)view->token_stride,
            (long long)view->head_stride, (long long)view->width, view->type);
}

static void print_layer(const la_layer *l) {
    fprintf(stderr,
            "layer: feature %d write %d read %d normalised %d required %d bidirectional %d, heads "
            "%lld/%lld/%lld, %lldx%lld, map %d, layout %d\n  scale %g eps %g (%d) l2 %d %g, "
            "features %lld stride %lld kernel %d/%d eps %g bias %d queries' %p, horizon %g nu "
            "%lld\n",
            l->feature, l->write, l->read, l->normalised, l->decay_required, l->bidirectional,
            (long long)l->heads, (long long)l->q_heads, (long long)l->k_heads, (long long)l->dim_k,
            (long long)l->dim_v, l->head_map, l->state_layout, (double)l->scale, (double)l->eps,
            l->eps_mode, l->l2_mode, (double)l->l2_eps, (long long)l->features,
            (long long)l->projection_head_stride, l->favor_kernel, l->hedgehog_kernel,
            (double)l->feature_eps, l->projection_bias, (const void *)l->q_projection, l->horizon,
            (long long)l->nu);
}

void case_print(const Case *c) {
    const la_call *call = &c->call;
    la_in out = view_of(&call->out);
    print_layer(&c->layer);
    fprintf(stderr,
            "call: form %d isa %d chunk %lld thread %lld of %lld, batch %lld tokens %lld keys "
            "%lld\n  states %p %lld, %p %lld, snapshots %lld, workspace %p %zu%s%s%s\n",
            call->form, call->isa, (long long)call->chunk, (long long)call->thread_index,
            (long long)call->thread_count, (long long)call->batch, (long long)call->tokens,
            (long long)call->keys, (const void *)call->state_in, (long long)call->state_in_stride,
            (void *)call->state_out, (long long)call->state_out_stride,
            (long long)call->snapshot_count, call->workspace, call->workspace_size,
            c->wild ? ", wild" : "", c->backed ? ", backed" : "", c->ordinary ? ", ordinary" : "");
    print_view("q", &call->q);
    print_view("k", &call->k);
    print_view("v", &call->v);
    print_view("log_decay", &call->log_decay);
    print_view("beta", &call->beta);
    print_view("erase", &call->erase);
    print_view("bonus", &call->bonus);
    print_view("a", &call->a);
    print_view("b", &call->b);
    print_view("skip", &call->skip);
    print_view("out_gate", &call->out_gate);
    print_view("out", &out);
    print_list("lengths", call->lengths, call->batch);
    print_list("key_lengths", call->key_lengths, call->batch);
    print_list("positions", call->positions, call->batch);
    print_list("offsets", call->offsets, call->batch + 1);
    print_list("slots_in", call->slots_in, call->batch);
    print_list("slots_out", call->slots_out, call->batch);
}
