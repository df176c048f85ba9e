/* The library as a row: the one file with LA_IMPLEMENTATION. A call is built from the row each
 * time; that is cheap beside la_forward's own checks. */
#define LA_IMPLEMENTATION
#include "core.h"

static la_layer make_layer(const bench_row *row, const float *projection) {
    la_layer layer;
    la_layer_init(&layer, row->variant, row->heads, row->dim_k, row->dim_v);
    layer.q_heads = row->q_heads;
    layer.k_heads = row->k_heads;
    layer.state_layout = row->layout;
    layer.scale = bench_scale(row);
    layer.horizon = (double)row->tokens;
    layer.features = row->features;
    layer.projection = projection;
    return layer;
}

static la_call make_call(const bench_row *row, const la_layer *layer, int64_t tokens) {
    la_call call;
    la_call_init(&call, layer, row->batch, tokens);
    call.form = row->form;
    call.isa = row->isa;
    call.chunk = row->chunk;
    call.thread_count = row->threads;
    return call;
}

static la_in decay_view(const bench_row *row, const float *data) {
    if (row->decay == BENCH_HEAD) return la_per_head(data);
    return la_bthd(data, row->tokens, row->heads, row->decay == BENCH_CHANNEL ? row->dim_k : 1);
}

/* Tensors are not there yet, and a call without tokens needs none: of one that is right but for its
 * workspace la_check says just that. */
static int is_possible(const bench_row *row, const la_layer *layer) {
    static const float gates;
    la_call call = make_call(row, layer, 0);
    const char *field = NULL;
    call.q = call.k = la_bthd(NULL, 0, 1, row->dim_k);
    call.v = la_bthd(NULL, 0, 1, row->dim_v);
    call.out = la_bthd_out(NULL, 0, 1, row->dim_v);
    if (row->decay != BENCH_NONE) call.log_decay = decay_view(row, &gates);
    return la_check(layer, &call, &field) == LA_E_NULL && strcmp(field, "workspace") == 0;
}

size_t bench_library_workspace(const bench_row *row) {
    static const float projection;
    const la_layer layer = make_layer(row, &projection);
    const la_call call = make_call(row, &layer, row->tokens);
    return is_possible(row, &layer) ? la_workspace_size(&layer, &call) : 0;
}

void bench_run_library(const bench_row *row, const bench_data *data, int64_t thread) {
    const la_layer layer = make_layer(row, data->projection);
    la_call call = make_call(row, &layer, row->tokens);
    const int64_t T = row->tokens;
    const char *field = "";
    la_status status;
    call.q = la_bthd(data->q, T, row->q_heads, row->dim_k);
    call.k = la_bthd(data->k, T, row->k_heads, row->dim_k);
    call.v = la_bthd(data->v, T, row->heads, row->dim_v);
    if (row->decay != BENCH_NONE) call.log_decay = decay_view(row, data->log_decay);
    if (data->beta) call.beta = la_bthd(data->beta, T, row->heads, 1);
    call.out = la_bthd_out(data->out, T, bench_out_heads(row), row->dim_v);
    call.state_in = T <= BENCH_STEP ? data->state : NULL;
    call.state_out = data->state;
    call.workspace = (char *)data->workspace + (size_t)thread * data->workspace_size;
    call.workspace_size = data->workspace_size;
    call.thread_index = thread;
    if (la_forward(&layer, &call) == LA_OK) return;
    status = la_check(&layer, &call, &field);
    bench_fail(1, "%s: %s", field, la_status_text(status));
}

size_t bench_state_floats(const bench_row *row) {
    static const float projection;
    const la_layer layer = make_layer(row, &projection);
    return la_state_floats(&layer);
}

int bench_library_isa(void) {
    la_layer layer;
    la_call call;
    la_plan plan;
    la_layer_init(&layer, LA_DELTANET, 1, 1, 1);
    la_call_init(&call, &layer, 1, 1);
    la_describe(&layer, &call, &plan);
    return plan.isa;
}
