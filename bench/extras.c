/* What LA_EXTRAS has beside the linear layer, as rows:
 *
 *     softmax, sigmoid    causal attention to all keys
 *
 * Another one is a row of the table at the end, what it runs, its floor in floor.c and its oracle in
 * oracle.c; members of a family share these. */
#include "units.h"

static int kind(const bench_row *row) {
    return bench_extra_of(row)->kind;
}

static void expect_ok(const bench_row *row, la_status status) {
    if (status != LA_OK) bench_fail(1, "%s: %s", bench_row_name(row), la_status_text(status));
}

/* ---- attention: a unit is a call, since keys may have fewer heads here than values have ------- */

static la_attention make_attention(const bench_row *row) {
    la_attention layer;
    la_attention_init(&layer, kind(row), bench_out_heads(row) / row->heads, row->dim_k, row->dim_v);
    layer.kv_heads = 1;
    layer.scale = bench_scale(row);
    layer.bias = bench_bias(row);
    return layer;
}

static la_attention_call make_call(const bench_row *row, const la_attention *layer) {
    la_attention_call call;
    la_attention_call_init(&call, layer, 1, row->tokens);
    call.isa = row->isa;
    return call;
}

static la_attention_call call_of(const unit *s, const la_attention *layer) {
    const bench_row *row = s->row;
    la_attention_call call = make_call(row, layer);
    call.q = la_bthd(query(s, 0), row->tokens, row->q_heads, row->dim_k);
    call.k = la_bthd(key(s, 0), row->tokens, row->k_heads, row->dim_k);
    call.v = la_bthd(value(s, 0), row->tokens, row->heads, row->dim_v);
    call.out = la_bthd_out(s->data->out + output_row(s, 0) * row->dim_v, row->tokens,
                           bench_out_heads(row), row->dim_v);
    call.workspace = s->work;
    call.workspace_size = s->data->workspace_size;
    return call;
}

static size_t attention_workspace(const bench_row *row) {
    const la_attention layer = make_attention(row);
    const la_attention_call call = make_call(row, &layer);
    return la_attention_workspace_size(&layer, &call);
}

static void attend(const unit *s) {
    const la_attention layer = make_attention(s->row);
    const la_attention_call call = call_of(s, &layer);
    expect_ok(s->row, la_attention_forward(&layer, &call));
}

static void run_attention(const bench_row *row, const bench_data *data, int64_t thread) {
    each_unit(row, data, thread, attend);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const bench_family attention = {NULL, attention_workspace, run_attention,
                                       bench_least_attention, bench_oracle_attention};

/* clang-format off */
static const bench_extra extras[BENCH_ENGINES - BENCH_SOFTMAX] = {
    {"softmax", LA_SOFTMAX, BENCH_QUERIES | BENCH_KEYS, &attention},
    {"sigmoid", LA_SIGMOID, BENCH_QUERIES | BENCH_KEYS, &attention},
};
/* clang-format on */

int bench_is_extra(const bench_row *row) {
    return row->engine >= BENCH_SOFTMAX;
}

const bench_extra *bench_extra_of(const bench_row *row) {
    return bench_is_extra(row) ? &extras[row->engine - BENCH_SOFTMAX] : NULL;
}

int bench_has(const bench_row *row, int what) {
    return bench_is_extra(row) && (bench_extra_of(row)->has & what);
}
