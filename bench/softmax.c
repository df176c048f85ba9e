/* Causal softmax attention, as good as it gets without a linear form: the library's own. A unit is
 * a call, since keys may have fewer heads here than values have. */
#define LA_EXTRAS
#include "units.h"

static la_attention make_layer(const bench_row *row) {
    la_attention layer;
    la_attention_init(&layer, LA_SOFTMAX, bench_out_heads(row) / row->heads, row->dim_k,
                      row->dim_v);
    layer.kv_heads = 1;
    layer.scale = bench_scale(row);
    return layer;
}

static la_attention_call make_call(const bench_row *row, const la_attention *layer) {
    la_attention_call call;
    la_attention_call_init(&call, layer, 1, row->tokens);
    call.isa = row->isa;
    return call;
}

size_t bench_softmax_workspace(const bench_row *row) {
    const la_attention layer = make_layer(row);
    const la_attention_call call = make_call(row, &layer);
    return la_attention_workspace_size(&layer, &call);
}

static void attend(const unit *s) {
    const bench_row *row = s->row;
    const la_attention layer = make_layer(row);
    la_attention_call call = make_call(row, &layer);
    const char *field = "";
    la_status status;
    call.q = la_bthd(query(s, 0), row->tokens, row->q_heads, row->dim_k);
    call.k = la_bthd(key(s, 0), row->tokens, row->k_heads, row->dim_k);
    call.v = la_bthd(value(s, 0), row->tokens, row->heads, row->dim_v);
    call.out = la_bthd_out(s->data->out + output_row(s, 0) * row->dim_v, row->tokens,
                           bench_out_heads(row), row->dim_v);
    call.workspace = s->work;
    call.workspace_size = s->data->workspace_size;
    if (la_attention_forward(&layer, &call) == LA_OK) return;
    status = la_attention_check(&layer, &call, &field);
    bench_fail(1, "%s: %s", field, la_status_text(status));
}

void bench_run_softmax(const bench_row *row, const bench_data *data, int64_t thread) {
    each_unit(row, data, thread, attend);
}
