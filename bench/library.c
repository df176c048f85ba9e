/* The library as a row: the one file with LA_IMPLEMENTATION. A call is built from the row each
 * time; that is cheap beside la_forward's own checks. */
#define LA_IMPLEMENTATION
#include "bench.h"

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

static la_in decay_view(const bench_row *row, const float *data) {
    if (row->decay == BENCH_HEAD) return la_per_head(data);
    return la_bthd(data, row->tokens, row->heads, row->decay == BENCH_CHANNEL ? row->dim_k : 1);
}

/* what a call is to be planned with: tensors that nobody looks into */
static const bench_data *some_data(void) {
    static float number;
    static const bench_data data = {.q = &number,
                                    .k = &number,
                                    .v = &number,
                                    .log_decay = &number,
                                    .out = &number,
                                    .state = &number,
                                    .projection = &number,
                                    .erase = &number,
                                    .bonus = &number,
                                    .a = &number,
                                    .b = &number,
                                    .beta = NULL};
    return &data;
}

la_call bench_call(const bench_row *row, const la_layer *layer, const bench_data *given,
                   int64_t thread) {
    const bench_data *data = given ? given : some_data();
    const int64_t T = row->tokens;
    la_call call;
    la_call_init(&call, layer, row->batch, T);
    call.form = row->form;
    call.isa = row->isa;
    call.chunk = row->chunk;
    call.thread_index = thread;
    call.thread_count = row->threads;
    call.q = la_bthd(data->q, T, row->q_heads, row->dim_k);
    call.k = la_bthd(data->k, T, row->k_heads, row->dim_k);
    call.v = la_bthd(data->v, T, row->heads, row->dim_v);
    if (row->decay != BENCH_NONE) call.log_decay = decay_view(row, data->log_decay);
    if (data->beta) call.beta = la_bthd(data->beta, T, row->heads, 1);
    if (bench_erases(row)) call.erase = la_bthd(data->erase, T, row->heads, row->dim_k);
    if (bench_reads_first(row)) call.bonus = la_per_channel(data->bonus, row->dim_k);
    if (bench_is_dplr(row)) call.a = la_bthd(data->a, T, row->heads, row->dim_k);
    if (bench_is_dplr(row)) call.b = la_bthd(data->b, T, row->heads, row->dim_k);
    call.out = la_bthd_out(data->out, T, bench_out_heads(row), row->dim_v);
    call.state_in = bench_is_step(row) ? data->state : NULL;
    call.state_out = row->stateless ? NULL : data->state;
    if (!given) return call;
    call.workspace = (char *)data->workspace + (size_t)thread * data->workspace_size;
    call.workspace_size = data->workspace_size;
    return call;
}

/* Where a call without tokens needs no tensors: of one that is right but for its workspace la_check
 * says just that. */
static int is_possible(const bench_row *row, const la_layer *layer) {
    la_call call = bench_call(row, layer, NULL, 0);
    const char *field = NULL;
    call.tokens = call.keys = 0;
    call.state_in = call.state_out = NULL; /* it may not overlap what only looks like tensors */
    return la_check(layer, &call, &field) == LA_E_NULL && strcmp(field, "workspace") == 0;
}

size_t bench_library_workspace(const bench_row *row) {
    const la_layer layer = make_layer(row, some_data()->projection);
    const la_call call = bench_call(row, &layer, NULL, 0);
    return is_possible(row, &layer) ? la_workspace_size(&layer, &call) : 0;
}

void bench_run_library(const bench_row *row, const bench_data *data, int64_t thread) {
    const la_layer layer = make_layer(row, data->projection);
    const la_call call = bench_call(row, &layer, data, thread);
    const char *field = "";
    la_status status;
    if (la_forward(&layer, &call) == LA_OK) return;
    status = la_check(&layer, &call, &field);
    bench_fail(1, "%s: %s", field, la_status_text(status));
}

size_t bench_state_floats(const bench_row *row) {
    const la_layer layer = make_layer(row, some_data()->projection);
    return bench_is_extra(row) ? bench_extra_state(row) : la_state_floats(&layer);
}

la_plan bench_plan(const bench_row *row) {
    static const la_plan none;
    const la_layer layer = make_layer(row, some_data()->projection);
    const la_call call = bench_call(row, &layer, NULL, 0);
    la_plan plan = none; /* heads that do not divide have none */
    la_describe(&layer, &call, &plan);
    return plan;
}
