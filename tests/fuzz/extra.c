#include "extra.h"

#include "../oracle.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- one name for five */

la_status extra_check(const Extra *e, const char **field) {
    switch (e->system) {
    case ATTENTION: return la_attention_check(&e->attention, &e->attention_call, field);
    case LINFORMER: return la_linformer_check(&e->linformer, &e->attention_call, field);
    case SYNTHESIZER: return la_synthesizer_check(&e->synthesizer, &e->attention_call, field);
    case INFINI: return la_infini_check(&e->infini, &e->infini_call, field);
    default: return la_scan_check(&e->scan, field);
    }
}

la_status extra_forward(const Extra *e) {
    switch (e->system) {
    case ATTENTION: return la_attention_forward(&e->attention, &e->attention_call);
    case LINFORMER: return la_linformer_forward(&e->linformer, &e->attention_call);
    case SYNTHESIZER: return la_synthesizer_forward(&e->synthesizer, &e->attention_call);
    case INFINI: return la_infini_forward(&e->infini, &e->infini_call);
    default: return la_scan_forward(&e->scan);
    }
}

size_t extra_workspace(const Extra *e) {
    switch (e->system) {
    case ATTENTION: return la_attention_workspace_size(&e->attention, &e->attention_call);
    case LINFORMER: return la_linformer_workspace_size(&e->linformer, &e->attention_call);
    case SYNTHESIZER: return la_synthesizer_workspace_size(&e->synthesizer, &e->attention_call);
    case INFINI: return la_infini_workspace_size(&e->infini, &e->infini_call);
    default: return 0;
    }
}

la_attention *attention_of(Extra *e) {
    return e->system == LINFORMER     ? &e->linformer.attention
           : e->system == SYNTHESIZER ? &e->synthesizer.attention
                                      : &e->attention;
}

void **workspace_of(Extra *e, size_t **size) {
    static void *none;
    static size_t nothing;
    int infini = e->system == INFINI;
    if (e->system == SCAN) {
        *size = &nothing;
        return &none;
    }
    *size = infini ? &e->infini_call.workspace_size : &e->attention_call.workspace_size;
    return infini ? &e->infini_call.workspace : &e->attention_call.workspace;
}

int64_t *threads_of(Extra *e, int64_t **index) {
    if (e->system == INFINI) {
        *index = &e->infini_call.thread_index;
        return &e->infini_call.thread_count;
    }
    *index = e->system == SCAN ? &e->scan.thread_index : &e->attention_call.thread_index;
    return e->system == SCAN ? &e->scan.thread_count : &e->attention_call.thread_count;
}

int *isa_of(Extra *e) {
    return e->system == SCAN     ? &e->scan.isa
           : e->system == INFINI ? &e->infini_call.isa
                                 : &e->attention_call.isa;
}

/* The same where nothing is to be changed. */
static const la_attention *heads_of(const Extra *e) {
    return e->system == LINFORMER     ? &e->linformer.attention
           : e->system == SYNTHESIZER ? &e->synthesizer.attention
                                      : &e->attention;
}

int64_t extra_batch(const Extra *e) {
    return e->system == SCAN     ? e->scan.batch
           : e->system == INFINI ? e->infini_call.batch
                                 : e->attention_call.batch;
}

int64_t extra_heads(const Extra *e) {
    return e->system == SCAN     ? 1
           : e->system == INFINI ? oracle_out_heads(&e->infini.memory)
                                 : heads_of(e)->q_heads;
}

int64_t extra_dv(const Extra *e) {
    return e->system == SCAN     ? e->scan.channels
           : e->system == INFINI ? e->infini.memory.dim_v
                                 : heads_of(e)->dim_v;
}

int64_t extra_tokens(const Extra *e, int64_t b) {
    const la_call *call = &e->infini_call;
    const int64_t *lengths = e->system == SCAN ? e->scan.lengths : e->attention_call.lengths;
    if (e->system == INFINI && call->offsets != NULL) {
        return call->offsets[b + 1] - call->offsets[b];
    }
    if (e->system == INFINI) {
        return call->lengths != NULL ? call->lengths[b] : call->tokens;
    }
    return lengths != NULL     ? lengths[b]
           : e->system == SCAN ? e->scan.tokens
                               : e->attention_call.tokens;
}

int64_t extra_keys(const Extra *e, int64_t b) {
    const la_attention_call *call = &e->attention_call;
    int64_t keys = call->keys;
    if (e->system >= INFINI) {
        return extra_tokens(e, b);
    }
    if (call->key_lengths != NULL) {
        return call->key_lengths[b];
    }
    if (call->lengths != NULL && (e->system == SYNTHESIZER || !heads_of(e)->bidirectional)) {
        keys += call->lengths[b] - call->tokens;
    }
    return keys < 0 ? 0 : keys;
}

int64_t extra_first(const Extra *e, int64_t b) {
    const int64_t *offsets = e->infini_call.offsets;
    return e->system == INFINI && offsets != NULL ? offsets[b] : 0;
}

int64_t extra_view_batch(const Extra *e, int64_t b) {
    return e->system == INFINI && e->infini_call.offsets != NULL ? 0 : b;
}

int64_t extra_state_floats(const Extra *e) {
    const la_layer *memory = &e->infini.memory;
    double floats = 0, most = BUFFER_LIMIT; /* beyond that they are all alike */
    if (e->system == SCAN) {
        floats = (double)e->scan.channels * (e->scan.kind == LA_SCAN_RWKV4 ? 3 : 1);
    } else if (e->system == INFINI) {
        floats = (double)memory->heads * (double)memory->dim_k * ((double)memory->dim_v + 1);
    }
    return (int64_t)fmax(0, fmin(floats, most));
}

static int64_t mapped(int map, int64_t h, int64_t heads, int64_t of) {
    return map == LA_TILED ? h % of : h * of / heads;
}

int64_t extra_key_head(const Extra *e, int64_t head) {
    const la_attention *layer = heads_of(e);
    const la_layer *memory = &e->infini.memory;
    if (e->system == INFINI) {
        head = head * memory->heads / oracle_out_heads(memory);
        return mapped(memory->head_map, head, memory->heads, memory->k_heads);
    }
    return e->system == SCAN ? 0 : mapped(layer->head_map, head, layer->q_heads, layer->kv_heads);
}

double extra_cost(const Extra *e) {
    const la_attention_call *call = &e->attention_call;
    const la_attention *layer = heads_of(e);
    double T = (double)call->tokens, S = (double)call->keys;
    double widths = (double)layer->dim_k + (double)layer->dim_v + 8, rank = 0;
    if (e->system == SCAN) {
        return 64 * (double)e->scan.batch * (double)e->scan.tokens * (double)e->scan.channels;
    }
    if (e->system == INFINI) {
        const la_layer *memory = &e->infini.memory;
        double N = (double)e->infini_call.tokens, dk = (double)memory->dim_k;
        widths = (dk + 8) * ((double)memory->dim_v + 8) + (dk + (double)memory->dim_v) * N;
        return (double)e->infini_call.batch * (N + 4) * (double)extra_heads(e) * widths * 2;
    }
    if (e->system == LINFORMER) {
        rank = (double)e->linformer.rank;
    } else if (e->system == SYNTHESIZER) {
        rank = (double)e->synthesizer.rank1 + (double)e->synthesizer.rank2;
    }
    return (double)call->batch * (T + 1) * (double)layer->q_heads * (S + rank) * widths *
           (1 + rank);
}

/* Positions may be any numbers: beyond 2^60 they are all alike. */
static int64_t bounded(int64_t x) {
    const int64_t most = (int64_t)1 << 60;
    return x > most ? most : x < -most ? -most : x;
}

int extra_sees(const Extra *e, int64_t b, int64_t t, int64_t s) {
    const la_attention *layer = heads_of(e);
    const int64_t *positions = e->attention_call.positions;
    int64_t keys = extra_keys(e, b), n = e->infini.segment, at;
    if (e->system == SCAN) {
        return s <= t;
    }
    if (e->system == INFINI) {
        return s <= t || (e->infini.bidirectional && s / n == t / n);
    }
    if (e->system == LINFORMER) {
        return s < keys;
    }
    at = positions != NULL ? bounded(positions[b]) + t : keys - extra_tokens(e, b) + t;
    if (s >= keys || (!layer->bidirectional && s > at)) {
        return 0;
    }
    return layer->window == 0 || s < layer->sinks ||
           (at - s < bounded(layer->window) && s - at < bounded(layer->window));
}

/* ---------------------------------------------------------------- the table of operands */

static Rows rows_for(int64_t batch, int64_t tokens, int64_t heads) {
    Rows rows = {{0, 0, 0}, {0, 0, 0}, 0};
    rows.counts[0] = batch;
    rows.counts[1] = tokens;
    rows.counts[2] = heads;
    return rows;
}

static Operand *add(Operand *list, int *n, Role role, Rows rows) {
    static const Operand nothing;
    list[*n] = nothing;
    list[*n].role = role;
    list[*n].rows = rows;
    return &list[(*n)++];
}

static void add_in(Operand *list, int *n, Role role, la_in *view, Rows rows) {
    rows.strides[0] = view->batch_stride;
    rows.strides[1] = view->token_stride;
    rows.strides[2] = view->head_stride;
    rows.width = view->width < 1 ? 1 : view->width;
    add(list, n, role, rows)->in = view;
}

static void add_out(Operand *list, int *n, Role role, la_out *out, Rows rows) {
    rows.strides[0] = out->batch_stride;
    rows.strides[1] = out->token_stride;
    rows.strides[2] = out->head_stride;
    rows.width = out->width < 1 ? 1 : out->width;
    add(list, n, role, rows)->out = out;
}

static void add_states(Operand *list, int *n, int64_t batch, int64_t floats, float **out,
                       const float **in) {
    Rows rows = rows_for(batch, 1, 1);
    rows.strides[0] = rows.width = floats;
    add(list, n, STATE_OUT, rows)->to = out;
    add(list, n, STATE_IN, rows)->from = in;
}

/* The weights of a Linformer stand for keys, those of a Synthesizer for logits. */
static void add_weights(Extra *e, Operand *list, int *n) {
    la_linformer *linformer = &e->linformer;
    la_synthesizer *s = &e->synthesizer;
    int64_t Hq = s->attention.q_heads, L = s->length, a = s->rank1, b = s->rank2;
    int random = s->kind == LA_RANDOM || s->kind == LA_FACTORISED_RANDOM;
    if (e->system == LINFORMER) {
        Rows rows = rows_for(1, linformer->length, linformer->attention.kv_heads);
        add_in(list, n, WEIGHT, &linformer->E, rows);
        add_in(list, n, WEIGHT, &linformer->F, rows);
        return;
    }
    add_in(list, n, WEIGHT, &s->w1, rows_for(1, random ? L : a, Hq));
    if (s->kind != LA_RANDOM) {
        add_in(list, n, WEIGHT, &s->w2, rows_for(1, s->kind == LA_FACTORISED_DENSE ? b : L, Hq));
    }
    if (!random) {
        add_in(list, n, WEIGHT, &s->b1, rows_for(1, 1, Hq));
        add_in(list, n, WEIGHT, &s->b2, rows_for(1, 1, Hq));
    }
}

static int attention_operands(Extra *e, Operand *list) {
    la_attention_call *call = &e->attention_call;
    const la_attention *layer = attention_of(e);
    int64_t B = call->batch, T = call->tokens, S = call->keys;
    Rows queries = rows_for(B, T, layer->q_heads), keys = rows_for(B, S, layer->kv_heads);
    int n = 0;
    add_out(list, &n, OUT, &call->out, queries);
    add_out(list, &n, LSE, &call->lse, queries);
    if (layer->dim_k != 0) {
        add_in(list, &n, QUERY, &call->q, queries);
    }
    if (layer->dim_k != 0 && e->system != SYNTHESIZER) {
        add_in(list, &n, KEY, &call->k, keys);
    }
    add_in(list, &n, VALUE, &call->v, keys);
    if (e->system == ATTENTION) {
        add_in(list, &n, LOGITS, &call->logits, queries);
    } else {
        add_weights(e, list, &n);
    }
    return n;
}

static int infini_operands(Extra *e, Operand *list) {
    la_call *call = &e->infini_call;
    const la_layer *memory = &e->infini.memory;
    int64_t B = call->offsets != NULL ? 1 : call->batch, T = call->tokens;
    int n = 0;
    add_out(list, &n, OUT, &call->out, rows_for(B, T, oracle_out_heads(memory)));
    add_states(list, &n, call->batch, extra_state_floats(e), &call->state_out, &call->state_in);
    list[1].rows.strides[0] = call->state_out_stride;
    list[2].rows.strides[0] = call->state_in_stride;
    add_in(list, &n, QUERY, &call->q, rows_for(B, T, memory->q_heads));
    add_in(list, &n, KEY, &call->k, rows_for(B, T, memory->k_heads));
    add_in(list, &n, VALUE, &call->v, rows_for(B, T, memory->heads));
    add_in(list, &n, SHARE, &call->beta, rows_for(B, T, memory->heads));
    return n;
}

static int scan_operands(Extra *e, Operand *list) {
    la_scan *scan = &e->scan;
    Rows tokens = rows_for(scan->batch, scan->tokens, 1), bonus = rows_for(1, 1, 1);
    int n = 0;
    add_out(list, &n, OUT, &scan->out, tokens);
    add_states(list, &n, scan->batch, extra_state_floats(e), &scan->state_out, &scan->state_in);
    add_in(list, &n, VALUE, &scan->v, tokens);
    add_in(list, &n, GATE, &scan->log_decay, tokens);
    if (scan->kind == LA_SCAN_RWKV4) {
        add_in(list, &n, KEY, &scan->k, tokens);
        bonus.width = scan->channels;
        add(list, &n, SHARE, bonus)->from = &scan->bonus;
    }
    return n;
}

int extra_operands(Extra *e, Operand list[OPERANDS]) {
    return e->system == SCAN     ? scan_operands(e, list)
           : e->system == INFINI ? infini_operands(e, list)
                                 : attention_operands(e, list);
}

const float *operand_data(const Operand *operand) {
    return operand->in != NULL    ? operand->in->data
           : operand->out != NULL ? operand->out->data
           : operand->to != NULL  ? *operand->to
                                  : *operand->from;
}

void operand_point(const Operand *operand, float *data) {
    if (operand->in != NULL) {
        operand->in->data = data;
    } else if (operand->out != NULL) {
        operand->out->data = data;
    } else if (operand->to != NULL) {
        *operand->to = data;
    } else {
        *operand->from = data;
    }
}

/* ---------------------------------------------------------------- what is written */

static int put(Written *list, int n, Written row) {
    if (n < 0 || n >= WRITTEN) {
        return -1;
    }
    list[n] = row;
    return n + 1;
}

int extra_written(const Extra *e, Written list[WRITTEN]) {
    int infini = e->system == INFINI, n = 0;
    const la_out *out = infini              ? &e->infini_call.out
                        : e->system == SCAN ? &e->scan.out
                                            : &e->attention_call.out;
    const la_out *lse = &e->attention_call.lse;
    float *states = infini ? e->infini_call.state_out : e->scan.state_out;
    int64_t b, t, h, floats = extra_state_floats(e), i;
    int64_t stride = infini ? e->infini_call.state_out_stride : floats;
    for (b = 0; b < extra_batch(e); b++) {
        for (t = 0; t < extra_tokens(e, b); t++) {
            for (h = 0; h < extra_heads(e); h++) {
                Written row = {OUT, NULL, extra_dv(e), b, t, h};
                i = extra_first(e, b) + t;
                row.at = out_row(out, extra_view_batch(e, b), i, h);
                n = put(list, n, row);
                if (e->system < INFINI && lse->data != NULL) {
                    row.role = LSE;
                    row.at = out_row(lse, b, t, h);
                    row.floats = 1;
                    n = put(list, n, row);
                }
            }
        }
    }
    for (b = 0; e->system >= INFINI && states != NULL && b < extra_batch(e); b++) {
        Written row = {STATE_OUT, states + b * stride, floats, b, 0, 0};
        n = put(list, n, row);
    }
    return n;
}

/* ---------------------------------------------------------------- the numbers */

static int take_isa(void) {
    int isa = input_below(6);
    return la_isa_available(isa) ? isa : LA_ISA_AUTO;
}

static void take_attention(Extra *e, la_attention *layer) {
    static const int64_t bias[] = {0, -2, 3};
    layer->kv_heads = 1 + input_below(3);
    layer->q_heads = layer->kv_heads * (1 + input_below(3));
    layer->head_map = input_below(2);
    if (e->system != LINFORMER) {
        layer->kind = input_below(2);
        layer->bidirectional = input_below(2);
        layer->window = input_chance(3) ? 1 + input_below(12) : 0;
        layer->sinks = layer->window > 0 && input_below(2) ? input_below(5) : 0;
        layer->bias = layer->kind == LA_SIGMOID ? (float)bias[input_below(3)] : 0;
    }
    if (layer->dim_k > 0 && input_chance(3)) {
        layer->scale = input_below(2) ? 1.0f : -0.5f;
    }
}

static la_status take_linformer(Extra *e) {
    la_linformer *layer = &e->linformer;
    int64_t length = 1 + input_below(24), rank = input_dim();
    la_status status = la_linformer_init(layer, 1, input_dim(), input_dim(), length, rank);
    take_attention(e, &layer->attention);
    return status;
}

static la_status take_synthesizer(Extra *e) {
    la_synthesizer *layer = &e->synthesizer;
    int kind = input_below(4), random = kind == LA_RANDOM || kind == LA_FACTORISED_RANDOM;
    int64_t dx = random ? 0 : input_dim(), dv = input_dim(), length = 1 + input_below(24);
    int64_t rank1 = kind == LA_RANDOM ? 0 : input_dim();
    int64_t rank2 = kind == LA_FACTORISED_DENSE ? input_dim() : 0;
    la_status status = la_synthesizer_init(layer, kind, 1, dx, dv, length, rank1, rank2);
    take_attention(e, &layer->attention);
    layer->attention.kv_heads = layer->attention.q_heads;
    return status;
}

static la_status take_infini(Extra *e) {
    la_infini *infini = &e->infini;
    la_layer *memory = &infini->memory;
    int64_t heads = 1 + input_below(4), dk = input_dim(), dv = input_dim();
    la_status status = la_infini_init(infini, heads, dk, dv, 1 + input_below(24));
    memory->q_heads = input_chance(3) ? heads * 2 : heads;
    memory->k_heads = input_chance(3) ? 1 : heads;
    memory->head_map = input_below(2);
    memory->state_layout = input_below(2);
    infini->write = input_below(2);
    infini->bidirectional = input_below(2);
    return status;
}

static la_status take_layer(Extra *e) {
    int64_t dk;
    switch (e->system) {
    case ATTENTION:
        dk = input_chance(8) ? 0 : input_dim();
        return la_attention_init(&e->attention, LA_SOFTMAX, 1, dk, input_dim());
    case LINFORMER: return take_linformer(e);
    case SYNTHESIZER: return take_synthesizer(e);
    case INFINI: return take_infini(e);
    default: return LA_OK;
    }
}

static int64_t take_tokens(void) {
    return input_chance(8) ? input_below(200) : input_below(24);
}

static void take_out(la_out *out, const int64_t counts[3], int64_t width) {
    static float present;
    out->width = width;
    input_strides_apart(out, counts);
    out->data = &present;
}

static void take_attention_call(Extra *e) {
    static const int64_t present;
    const la_attention *layer = attention_of(e);
    la_attention_call *call = &e->attention_call;
    int64_t B = call->batch, T = call->tokens, Hq = layer->q_heads, L;
    const int64_t queries[3] = {B, T, Hq};
    int64_t keys[3] = {B, 0, layer->kv_heads};
    call->keys = e->system == ATTENTION && input_below(2) ? take_tokens() : T;
    if (e->system != ATTENTION) {
        L = e->system == LINFORMER ? e->linformer.length : e->synthesizer.length;
        call->keys = L - input_below(2) * input_below((int)L + 1);
        call->tokens = e->system == SYNTHESIZER && T > call->keys ? call->keys : T;
    }
    keys[1] = call->keys;
    take_out(&call->out, queries, layer->dim_v);
    if (layer->kind == LA_SOFTMAX && input_below(2)) {
        take_out(&call->lse, queries, 1);
    }
    if (layer->dim_k > 0) {
        call->q = input_view(queries, layer->dim_k);
        call->k = input_view(keys, layer->dim_k);
    }
    call->v = input_view(keys, layer->dim_v);
    if (e->system == ATTENTION && (layer->dim_k == 0 || input_chance(3))) {
        call->logits = input_view(queries, call->keys);
    }
    call->lengths = input_chance(4) ? &present : NULL;
    call->key_lengths = e->system != SYNTHESIZER && input_chance(4) ? &present : NULL;
    call->positions = e->system == ATTENTION && input_chance(4) ? &present : NULL;
}

static la_in take_matrix(int64_t rows, int64_t heads, int64_t width) {
    static const float present;
    la_in matrix = la_matrix(&present, width);
    matrix.head_stride = heads > 1 && input_below(2) ? rows * width : 0;
    return matrix;
}

static void take_weights(Extra *e) {
    la_linformer *l = &e->linformer;
    la_synthesizer *s = &e->synthesizer;
    int64_t H = attention_of(e)->q_heads, L = s->length, dx = s->attention.dim_k;
    int dense = s->kind == LA_DENSE || s->kind == LA_FACTORISED_DENSE;
    int64_t logits = s->kind == LA_DENSE ? L : s->rank2;
    if (e->system == LINFORMER) {
        l->E = take_matrix(l->length, l->attention.kv_heads, l->rank);
        l->F = take_matrix(l->length, l->attention.kv_heads, l->rank);
        l->F.data = input_below(2) ? l->F.data : NULL;
        return;
    }
    s->w1 = take_matrix(dense ? s->rank1 : L, H, dense ? dx : s->kind == LA_RANDOM ? L : s->rank1);
    if (s->kind != LA_RANDOM) {
        s->w2 = take_matrix(dense ? logits : L, H, s->kind == LA_FACTORISED_DENSE ? dx : s->rank1);
    }
    if (dense) {
        s->b1 = take_matrix(1, H, s->rank1);
        s->b2 = take_matrix(1, H, logits);
        s->b1.data = input_below(2) ? s->b1.data : NULL;
        s->b2.data = input_below(2) ? s->b2.data : NULL;
    }
}

static void take_states(float **out, const float **in) {
    static float present[2];
    int kind = input_below(6);
    *in = kind != 1 && kind != 2 ? &present[kind % 2] : NULL;
    *out = kind != 1 && kind != 3 ? &present[0] : NULL;
}

static void take_infini_call(Extra *e) {
    static const int64_t present;
    const la_layer *memory = &e->infini.memory;
    la_call *call = &e->infini_call;
    int64_t T = call->tokens, H = memory->heads, dv = memory->dim_v, kind = input_below(8);
    int64_t B;
    call->lengths = kind == 6 ? &present : NULL;
    call->offsets = kind == 7 ? &present : NULL;
    B = call->offsets != NULL ? 1 : call->batch;
    {
        const int64_t out[3] = {B, T, oracle_out_heads(memory)}, q[3] = {B, T, memory->q_heads};
        const int64_t k[3] = {B, T, memory->k_heads}, v[3] = {B, T, H};
        take_out(&call->out, out, dv);
        call->q = input_view(q, memory->dim_k);
        call->k = input_view(k, memory->dim_k);
        call->v = input_view(v, dv);
    }
    call->beta = input_below(2) ? la_per_head(call->v.data) : la_per_channel(call->v.data, dv);
    take_states(&call->state_out, &call->state_in);
    call->state_in_stride = call->state_out_stride =
        extra_state_floats(e) + (input_chance(3) ? input_below(4) : 0);
}

static void take_scan(Extra *e, int64_t batch, int64_t tokens) {
    static const float present;
    static const int64_t lengths;
    la_scan *scan = &e->scan;
    int64_t C = input_dim();
    const int64_t counts[3] = {batch, tokens, 1};
    la_status status = la_scan_init(scan, input_below(2), batch, tokens, C);
    MUST(status == LA_OK, "la_scan_init: %s", la_status_text(status));
    take_out(&scan->out, counts, C);
    scan->v = input_view(counts, C);
    scan->log_decay = input_below(2) ? input_view(counts, C) : la_per_channel(&present, C);
    if (scan->kind == LA_SCAN_RWKV4) {
        scan->k = input_view(counts, C);
        scan->bonus = &present;
    }
    take_states(&scan->state_out, &scan->state_in);
    scan->lengths = input_chance(4) ? &lengths : NULL;
}

static void take_call(Extra *e) {
    int64_t batch = input_chance(3) ? 1 + input_below(4) : 1, tokens = take_tokens(), *index;
    la_status status = LA_OK;
    if (e->system == SCAN) {
        take_scan(e, batch, tokens);
    } else if (e->system == INFINI) {
        status = la_call_init(&e->infini_call, &e->infini.memory, batch, tokens);
        take_infini_call(e);
    } else {
        status = la_attention_call_init(&e->attention_call, attention_of(e), batch, tokens);
        take_attention_call(e);
        if (e->system != ATTENTION) {
            take_weights(e);
        }
    }
    MUST(status == LA_OK, "the call's initialiser: %s", la_status_text(status));
    *isa_of(e) = take_isa();
    *threads_of(e, &index) = input_chance(3) ? 1 + input_below(6) : 1;
}

/* ---------------------------------------------------------------- spoiling */

typedef struct Part {
    unsigned char *of;
    size_t size;
} Part;

static Part take_part(Extra *e) {
    Part parts[2] = {{(unsigned char *)&e->scan, sizeof e->scan},
                     {(unsigned char *)&e->scan, sizeof e->scan}};
    Part layers[] = {{(unsigned char *)&e->attention, sizeof e->attention},
                     {(unsigned char *)&e->linformer, sizeof e->linformer},
                     {(unsigned char *)&e->synthesizer, sizeof e->synthesizer},
                     {(unsigned char *)&e->infini, sizeof e->infini}};
    if (e->system != SCAN) {
        parts[0] = layers[e->system];
        parts[1].of = (unsigned char *)&e->attention_call;
        parts[1].size = sizeof e->attention_call;
    }
    if (e->system == INFINI) {
        parts[1].of = (unsigned char *)&e->infini_call;
        parts[1].size = sizeof e->infini_call;
    }
    return parts[input_below(2)];
}

/* What no operand is: lists, and what infini-attention has no use for. */
static void keep_pointers(const Extra *from, Extra *to) {
    la_call *call = &to->infini_call;
    const la_call *before = &from->infini_call;
    to->attention_call.lengths = from->attention_call.lengths;
    to->attention_call.key_lengths = from->attention_call.key_lengths;
    to->attention_call.positions = from->attention_call.positions;
    to->attention_call.workspace = from->attention_call.workspace;
    to->attention_call.lse.data = from->attention_call.lse.data;
    to->attention_call.logits.data = from->attention_call.logits.data;
    to->attention_call.q.data = from->attention_call.q.data;
    to->attention_call.k.data = from->attention_call.k.data;
    to->synthesizer.w2.data = from->synthesizer.w2.data;
    to->synthesizer.b1.data = from->synthesizer.b1.data;
    to->synthesizer.b2.data = from->synthesizer.b2.data;
    to->scan.lengths = from->scan.lengths;
    to->scan.k.data = from->scan.k.data;
    to->scan.bonus = from->scan.bonus;
    to->infini.memory.projection = to->infini.memory.q_projection = NULL;
    call->lengths = before->lengths;
    call->offsets = before->offsets;
    call->key_lengths = call->positions = call->slots_in = call->slots_out = NULL;
    call->snapshots = NULL;
    call->workspace = before->workspace;
    call->log_decay.data = call->erase.data = call->bonus.data = call->a.data = NULL;
    call->b.data = call->skip.data = call->out_gate.data = NULL;
}

static void spoil(Extra *e) {
    const Extra before = *e;
    Operand list[OPERANDS];
    const float *data[OPERANDS];
    int n = extra_operands(e, list), i;
    for (i = 0; i < n; i++) {
        data[i] = operand_data(&list[i]);
    }
    for (i = 1 + input_below(3); i > 0; i--) {
        Part part = take_part(e);
        Field field = {0, input_below(2) ? 4 : 8};
        field.at = input_bits(2) % (part.size / field.size) * field.size;
        if (input_below(4) > 0) {
            spoil_field(part.of, &field);
        } else {
            spoil_bytes(part.of, part.size);
        }
    }
    for (i = 0; i < n; i++) {
        float *kept;
        memcpy(&kept, &data[i], sizeof kept);
        operand_point(&list[i], kept);
    }
    keep_pointers(&before, e);
    e->wild = 1;
    e->ordinary = 0;
}

/* ---------------------------------------------------------------- buffers */

static int is_small_extra(Extra *e) {
    Operand list[OPERANDS];
    int n = extra_operands(e, list), i, j;
    for (i = 0; i < n; i++) {
        for (j = 0; j < 3; j++) {
            if (!is_small(list[i].rows.counts[j])) {
                return 0;
            }
        }
        if (!is_small(list[i].rows.width / 16)) { /* states are long */
            return 0;
        }
    }
    return extra_batch(e) >= 1 && extra_batch(e) <= 64;
}

static void new_lists(Extra *e) {
    la_attention_call *call = &e->attention_call;
    la_call *infini = &e->infini_call;
    int64_t B = extra_batch(e), T = call->tokens, S = call->keys, *offsets, i;
    call->lengths = call->lengths != NULL ? input_list(B, 0, T, &e->wild) : NULL;
    call->key_lengths = call->key_lengths != NULL ? input_list(B, 0, S, &e->wild) : NULL;
    call->positions = call->positions != NULL ? input_list(B, -30, 60, &e->wild) : NULL;
    e->scan.lengths = e->scan.lengths != NULL ? input_list(B, 0, e->scan.tokens, &e->wild) : NULL;
    T = infini->tokens;
    infini->lengths = infini->lengths != NULL ? input_list(B, 0, T, &e->wild) : NULL;
    if (infini->offsets != NULL) {
        infini->offsets = offsets = input_list(B + 1, 0, T, &e->wild);
        for (i = 1; i <= B; i++) { /* running maxima ascend */
            offsets[i] = offsets[i] < offsets[i - 1] ? offsets[i - 1] : offsets[i];
        }
    }
}

static void no_buffers(Extra *e) {
    size_t *bytes;
    *workspace_of(e, &bytes) = buffer_new(8, 0);
    *bytes = SIZE_MAX / 2;
    e->attention_call.lengths = e->attention_call.key_lengths = e->attention_call.positions = NULL;
    e->infini_call.lengths = e->infini_call.offsets = e->scan.lengths = NULL;
    e->backed = 0;
}

static void new_workspace(Extra *e) {
    size_t need = extra_workspace(e), *bytes;
    void **workspace = workspace_of(e, &bytes);
    *workspace = buffer_new(need <= BUFFER_LIMIT ? need : 0, (size_t)input_below(64));
    *bytes = need;
    e->backed &= need <= BUFFER_LIMIT;
    if (input_chance(16) && need > 0) {
        *bytes = need - 1 - (input_below(2) ? (size_t)input_below(200) % need : 0);
        e->wild = 1;
    }
}

static void new_buffers(Extra *e) {
    Operand list[OPERANDS];
    const float *states = NULL, *old = NULL;
    int n = extra_operands(e, list), i;
    new_lists(e);
    for (i = 0; i < n; i++) {
        const float *data = operand_data(&list[i]);
        if (data == NULL) {
            continue;
        }
        if (list[i].role == STATE_IN && data == old) { /* in place */
            float *same_states;
            memcpy(&same_states, &states, sizeof states);
            operand_point(&list[i], same_states);
            continue;
        }
        operand_point(&list[i], rows_buffer(&list[i].rows, &e->backed));
        if (list[i].role == STATE_OUT) {
            old = data;
            states = operand_data(&list[i]);
        }
    }
    new_workspace(e);
}

/* ---------------------------------------------------------------- data */

typedef struct Taste {
    int gates, odd, masks;
    float odd_value;
} Taste;

static float value_of(const Extra *e, const Taste *taste, Role role) {
    switch (role) {
    case QUERY:
    case KEY: return noise_between(-e->size, e->size);
    case LOGITS: return noise_below(8) < taste->masks ? -INFINITY : noise_between(-4, 4) * e->size;
    case GATE: return noise_gate(taste->gates);
    case SHARE: return noise_between(-4, 4);
    case WEIGHT: return noise_between(-0.5f, 0.5f);
    default: return noise_between(-1, 1);
    }
}

/* Sums of features are positive, and so is RWKV-4's b. */
static void fill_state(const Extra *e, float *state) {
    const la_layer *memory = &e->infini.memory;
    int64_t C = e->scan.channels, i, h;
    for (i = 0; e->system == SCAN && e->scan.kind == LA_SCAN_RWKV4 && i < C; i++) {
        state[C + i] = noise_between(0.1f, 1);
        state[2 * C + i] = noise_between(-3, 3);
    }
    for (h = 0; e->system == INFINI && h < memory->heads; h++) {
        for (i = 0; i < memory->dim_k; i++) {
            state[oracle_state_index(memory, h, i, memory->dim_v)] = noise_between(0.5f, 1.5f);
        }
    }
}

/* Tokens of an operand that are read in sequence b. */
static int64_t rows_read(const Extra *e, const Operand *operand, int64_t b) {
    Role role = operand->role;
    if (role == WEIGHT || role == SHARE || role == STATE_IN || e->infini_call.offsets != NULL) {
        return operand->rows.counts[1];
    }
    return role == QUERY || role == LOGITS ? extra_tokens(e, b) : extra_keys(e, b);
}

static float *operand_row(const Operand *operand, int64_t b, int64_t t, int64_t h) {
    const int64_t *strides = operand->rows.strides;
    const float *at = operand_data(operand) + b * strides[0] + t * strides[1] + h * strides[2];
    float *row;
    memcpy(&row, &at, sizeof row); /* the buffer is ours */
    return row;
}

/* What is not read keeps its NaN. */
static void fill_operand(const Extra *e, const Taste *taste, const Operand *operand) {
    const int64_t *counts = operand->rows.counts;
    int64_t b, t, h, i;
    for (b = 0; b < counts[0]; b++) {
        for (t = 0; t < counts[1] && t < rows_read(e, operand, b); t++) {
            for (h = 0; h < counts[2]; h++) {
                float *row = operand_row(operand, b, t, h);
                for (i = 0; i < operand->rows.width; i++) {
                    row[i] = value_of(e, taste, operand->role);
                    if (taste->odd > 0 && noise_below(taste->odd) == 0) {
                        row[i] = taste->odd_value;
                    }
                }
                if (operand->role == STATE_IN) {
                    fill_state(e, row);
                }
            }
        }
    }
}

static void fill(Extra *e) {
    static const float sizes[] = {1, 0.1f, 3, 10};
    Taste taste = {0, 0, 0, 0};
    Operand list[OPERANDS];
    int n = extra_operands(e, list), i;
    e->size = sizes[input_below(4)];
    if (e->system == SCAN && input_chance(4)) {
        e->size = 2000;
    }
    taste.gates = input_below(8);
    taste.masks = input_chance(3) ? 1 + input_below(7) : 0;
    if (!e->ordinary) {
        taste.odd = 1 + input_below(64);
        taste.odd_value = input_float();
    }
    for (i = 0; i < n; i++) {
        if (list[i].role >= STATE_IN && operand_data(&list[i]) != NULL) {
            fill_operand(e, &taste, &list[i]);
        }
    }
}

/* One pointer is null, is another one, or stands a little aside. */
static void spoil_pointer(Extra *e) {
    Operand list[OPERANDS];
    int n = extra_operands(e, list), to = input_below(2) ? 0 : input_below(n);
    const float *data = operand_data(&list[input_below(2) ? to : input_below(n)]);
    char *moved;
    memcpy(&moved, &data, sizeof moved);
    if (moved != NULL) {
        moved += 4 * (input_below(17) - 8);
    }
    operand_point(&list[to], input_chance(4) ? NULL : (float *)(void *)moved);
    e->wild = 1;
    e->ordinary = 0;
}

void extra_new(Extra *e) {
    int spoilt, pointers;
    e->system = (System)input_below(SYSTEMS);
    e->backed = 1;
    e->ordinary = !input_chance(3);
    MUST(take_layer(e) == LA_OK, "the initialiser");
    if (e->system == ATTENTION) {
        take_attention(e, &e->attention);
    }
    spoilt = input_chance(4);
    pointers = input_chance(8);
    noise_seed(input_bits(2));
    take_call(e);
    if (spoilt) {
        spoil(e);
    }
    if (!is_small_extra(e)) {
        no_buffers(e);
        return;
    }
    new_buffers(e);
    if (e->backed && extra_check(e, NULL) == LA_OK) {
        fill(e);
    }
    if (pointers) {
        spoil_pointer(e);
    }
}

/* ---------------------------------------------------------------- what was tried */

static void print_heads(const la_attention *layer) {
    fprintf(stderr,
            "  kind %d full %d heads %lld/%lld %lldx%lld window %lld sinks %lld map %d scale "
            "%g bias %g\n",
            layer->kind, layer->bidirectional, (long long)layer->q_heads,
            (long long)layer->kv_heads, (long long)layer->dim_k, (long long)layer->dim_v,
            (long long)layer->window, (long long)layer->sinks, layer->head_map,
            (double)layer->scale, (double)layer->bias);
}

void extra_print(const Extra *e) {
    static const char *const names[] = {"attention", "linformer", "synthesizer", "infini", "scan"};
    static const char *const roles[] = {"out", "lse",    "state_out", "state_in", "q",     "k",
                                        "v",   "logits", "gate",      "share",    "weight"};
    Extra copy = *e;
    Operand list[OPERANDS];
    const la_layer *memory = &e->infini.memory;
    int64_t *index, threads = *threads_of(&copy, &index), B = extra_batch(e);
    int n = extra_operands(&copy, list), i;
    fprintf(stderr, "%s: isa %d, thread %lld of %lld, batch %lld, size %g%s%s%s\n",
            names[e->system], *isa_of(&copy), (long long)*index, (long long)threads, (long long)B,
            (double)e->size, e->wild ? ", wild" : "", e->backed ? ", backed" : "",
            e->ordinary ? ", ordinary" : "");
    if (e->system < INFINI) {
        print_heads(heads_of(e));
    }
    fprintf(stderr,
            "  synthesizer kind %d L %lld rank %lld %lld, linformer n %lld k %lld, segment "
            "%lld write %d full %d map %d layout %d, scan kind %d\n",
            e->synthesizer.kind, (long long)e->synthesizer.length, (long long)e->synthesizer.rank1,
            (long long)e->synthesizer.rank2, (long long)e->linformer.length,
            (long long)e->linformer.rank, (long long)e->infini.segment, e->infini.write,
            e->infini.bidirectional, memory->head_map, memory->state_layout, e->scan.kind);
    for (i = 0; i < n; i++) {
        const Rows *r = &list[i].rows;
        fprintf(stderr, "  %s %p: %lld %lld %lld rows of %lld, strides %lld %lld %lld\n",
                roles[list[i].role], (const void *)operand_data(&list[i]), (long long)r->counts[0],
                (long long)r->counts[1], (long long)r->counts[2], (long long)r->width,
                (long long)r->strides[0], (long long)r->strides[1], (long long)r->strides[2]);
    }
    print_list("lengths", e->attention_call.lengths, B);
    print_list("key_lengths", e->attention_call.key_lengths, B);
    print_list("positions", e->attention_call.positions, B);
    print_list("lengths", e->system == SCAN ? e->scan.lengths : e->infini_call.lengths, B);
    print_list("offsets", e->infini_call.offsets, B + 1);
}
