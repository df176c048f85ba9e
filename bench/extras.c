/* What LA_EXTRAS has beside the linear layer, as rows:
 *
 *     softmax, sigmoid    causal attention to all keys
 *     infini              to the keys of a segment of --chunk tokens, and a memory of those before
 *     infini-delta        the same, with the delta rule for the memory
 *     linformer           to --features rows that are made of all keys and values; not causal
 *     synthesizer-d       causal weights of values without keys: dense, with rank1 = --features,
 *     synthesizer-fd      factorised dense, with ranks that give each key a product of its own,
 *     synthesizer-r       random,
 *     synthesizer-fr      factorised random, with rank1 = --features
 *     rwkv4, hgrn         recurrences of single channels, dim_v of them a head
 *
 * Another one is a row of the table at the end, and where none of the families fits, a family: what
 * it runs, its floor in floor.c and its oracle in oracle.c. */
#include "units.h"

enum { MOST_WEIGHTS = 1 << 28 }; /* 1 GiB: more is as good as not there */

static int kind(const bench_row *row) {
    return bench_extra_of(row)->kind;
}

static void expect_ok(const bench_row *row, la_status status) {
    if (status != LA_OK) bench_fail(1, "%s: %s", bench_row_name(row), la_status_text(status));
}

/* ---- weights --------------------------------------------------------------------------------- */

static int64_t weight_floats(const bench_row *row, int i) {
    const bench_extra *extra = bench_extra_of(row);
    return extra && extra->family->weight ? extra->family->weight(row, i) : 0;
}

static int64_t weights_before(const bench_row *row, int end) {
    int64_t sum = 0;
    int i;
    for (i = 0; i < end; ++i) sum += weight_floats(row, i);
    return sum;
}

int64_t bench_weights(const bench_row *row) {
    return weights_before(row, BENCH_WEIGHTS);
}

const float *bench_weight(const bench_row *row, const bench_data *data, int i) {
    return data->weights + weights_before(row, i);
}

/* ---- attention: a unit is a call, since keys may have fewer heads here than values have ------ */

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

/* ---- Infini-attention ------------------------------------------------------------------------ */

static int64_t infini_weight(const bench_row *row, int i) {
    return i == 0 ? row->heads : 0;
}

static la_infini make_infini(const bench_row *row) {
    la_infini layer;
    la_infini_init(&layer, row->heads, row->dim_k, row->dim_v, row->chunk);
    layer.memory.q_heads = row->q_heads;
    layer.memory.k_heads = row->k_heads;
    layer.write = kind(row);
    layer.scale = bench_scale(row);
    return layer;
}

static la_call infini_call(const bench_row *row, const la_infini *layer, const bench_data *data,
                           int64_t thread) {
    la_call call = bench_call(row, &layer->memory, data, thread);
    call.chunk = 0; /* the row's is the segment */
    return call;
}

static size_t infini_state(const bench_row *row) {
    const la_infini layer = make_infini(row);
    return la_state_floats(&layer.memory);
}

static size_t infini_workspace(const bench_row *row) {
    const la_infini layer = make_infini(row);
    const la_call call = infini_call(row, &layer, NULL, 0);
    return la_infini_workspace_size(&layer, &call);
}

static void run_infini(const bench_row *row, const bench_data *data, int64_t thread) {
    const la_infini layer = make_infini(row);
    la_call call = infini_call(row, &layer, data, thread);
    call.beta = la_per_head(bench_weight(row, data, 0));
    expect_ok(row, la_infini_forward(&layer, &call));
}

/* ---- Linformer ------------------------------------------------------------------------------- */

static int64_t linformer_weight(const bench_row *row, int i) {
    return i < 2 ? row->tokens * row->features : 0;
}

static la_linformer make_linformer(const bench_row *row) {
    la_linformer layer;
    la_linformer_init(&layer, bench_out_heads(row) / row->heads, row->dim_k, row->dim_v,
                      row->tokens, row->features);
    layer.attention.kv_heads = 1;
    layer.attention.scale = bench_scale(row);
    return layer;
}

static size_t linformer_workspace(const bench_row *row) {
    const la_linformer layer = make_linformer(row);
    const la_attention_call call = make_call(row, &layer.attention);
    return la_linformer_workspace_size(&layer, &call);
}

static void attend_few(const unit *s) {
    la_linformer layer = make_linformer(s->row);
    const la_attention_call call = call_of(s, &layer.attention);
    layer.E = la_matrix(bench_weight(s->row, s->data, 0), s->row->features);
    layer.F = la_matrix(bench_weight(s->row, s->data, 1), s->row->features);
    expect_ok(s->row, la_linformer_forward(&layer, &call));
}

static void run_linformer(const bench_row *row, const bench_data *data, int64_t thread) {
    each_unit(row, data, thread, attend_few);
}

/* ---- Synthesizer ----------------------------------------------------------------------------- */

static int is_dense(const bench_row *row) {
    return kind(row) == LA_DENSE || kind(row) == LA_FACTORISED_DENSE;
}

/* Ranks without a common factor repeat only after their product: T keys have as many products. */
int64_t bench_rank(const bench_row *row) {
    int64_t rank = 1;
    if (kind(row) == LA_RANDOM) return 0;
    if (kind(row) != LA_FACTORISED_DENSE) return row->features;
    while (rank * (rank + 1) < row->tokens) ++rank;
    return rank;
}

static int64_t rank2(const bench_row *row) {
    return kind(row) == LA_FACTORISED_DENSE ? bench_rank(row) + 1 : 0;
}

static int64_t synthesizer_weight(const bench_row *row, int i) {
    const int64_t T = row->tokens, r1 = bench_rank(row), dx = row->dim_k;
    const int64_t rows = kind(row) == LA_FACTORISED_DENSE ? r1 + 1 : T; /* of w2 */
    switch (i) {
    case 0: return is_dense(row) ? r1 * dx : kind(row) == LA_RANDOM ? T * T : T * r1;
    case 1: return kind(row) == LA_FACTORISED_DENSE ? rows * dx : rows * r1;
    case 2: return is_dense(row) ? r1 : 0;
    default: return is_dense(row) ? rows : 0;
    }
}

static la_synthesizer make_synthesizer(const bench_row *row) {
    la_synthesizer layer;
    la_synthesizer_init(&layer, kind(row), 1, is_dense(row) ? row->dim_k : 0, row->dim_v,
                        row->tokens, bench_rank(row), rank2(row));
    layer.attention.bidirectional = 0;
    layer.attention.q_heads = bench_out_heads(row) / row->heads;
    return layer;
}

static size_t synthesizer_workspace(const bench_row *row) {
    const la_synthesizer layer = make_synthesizer(row);
    const la_attention_call call = make_call(row, &layer.attention);
    return la_synthesizer_workspace_size(&layer, &call);
}

static la_in matrix(const unit *s, int i, int64_t width) {
    return la_matrix(bench_weight(s->row, s->data, i), width);
}

static void synthesize(const unit *s) {
    const bench_row *row = s->row;
    const int64_t r1 = bench_rank(row), T = row->tokens;
    la_synthesizer layer = make_synthesizer(row);
    const la_attention_call call = call_of(s, &layer.attention);
    layer.w1 = matrix(s, 0, is_dense(row) ? row->dim_k : kind(row) == LA_RANDOM ? T : r1);
    layer.w2 = matrix(s, 1, kind(row) == LA_FACTORISED_DENSE ? row->dim_k : r1);
    if (is_dense(row)) {
        layer.b1 = matrix(s, 2, r1);
        layer.b2 = matrix(s, 3, rank2(row) ? rank2(row) : T);
    }
    expect_ok(row, la_synthesizer_forward(&layer, &call));
}

static void run_synthesizer(const bench_row *row, const bench_data *data, int64_t thread) {
    each_unit(row, data, thread, synthesize);
}

/* ---- scans: a call is all channels of all heads ---------------------------------------------- */

static int64_t scan_weight(const bench_row *row, int i) {
    return kind(row) == LA_SCAN_RWKV4 && i == 0 ? row->heads * row->dim_v : 0;
}

static size_t scan_state(const bench_row *row) {
    return (size_t)((kind(row) == LA_SCAN_RWKV4 ? 3 : 1) * row->heads * row->dim_v);
}

/* it needs none */
static size_t scan_workspace(const bench_row *row) {
    la_scan scan;
    const int64_t channels = row->heads * row->dim_v;
    return la_scan_init(&scan, kind(row), row->batch, row->tokens, channels) == LA_OK;
}

static void run_scan(const bench_row *row, const bench_data *data, int64_t thread) {
    const int64_t T = row->tokens, channels = row->heads * row->dim_v;
    la_scan scan;
    la_scan_init(&scan, kind(row), row->batch, T, channels);
    scan.isa = row->isa;
    scan.thread_index = thread;
    scan.thread_count = row->threads;
    scan.v = la_bthd(data->v, T, 1, channels);
    scan.log_decay = la_bthd(data->log_decay, T, 1, channels);
    if (kind(row) == LA_SCAN_RWKV4) {
        scan.k = la_bthd(data->k, T, 1, channels);
        scan.log_decay = la_per_channel(data->log_decay, channels);
        scan.bonus = bench_weight(row, data, 0);
    }
    scan.out = la_bthd_out(data->out, T, 1, channels);
    scan.state_in = bench_is_step(row) ? data->state : NULL;
    scan.state_out = row->stateless ? NULL : data->state;
    expect_ok(row, la_scan_forward(&scan));
}

/* ---- the table ------------------------------------------------------------------------------- */

static const bench_family attention = {.workspace = attention_workspace,
                                       .run = run_attention,
                                       .least = bench_least_attention,
                                       .oracle = bench_oracle_attention};

static const bench_family infini = {.weight = infini_weight,
                                    .state = infini_state,
                                    .workspace = infini_workspace,
                                    .run = run_infini,
                                    .least = bench_least_infini,
                                    .oracle = bench_oracle_infini};

static const bench_family linformer = {.weight = linformer_weight,
                                       .workspace = linformer_workspace,
                                       .run = run_linformer,
                                       .least = bench_least_linformer,
                                       .oracle = bench_oracle_linformer};

static const bench_family synthesizer = {.weight = synthesizer_weight,
                                         .workspace = synthesizer_workspace,
                                         .run = run_synthesizer,
                                         .least = bench_least_synthesizer,
                                         .oracle = bench_oracle_synthesizer};

static const bench_family scan = {.weight = scan_weight,
                                  .state = scan_state,
                                  .workspace = scan_workspace,
                                  .run = run_scan,
                                  .least = bench_least_scan,
                                  .oracle = bench_oracle_scan};

/* clang-format off */
enum { Q = BENCH_QUERIES, K = BENCH_KEYS, F = BENCH_FEATURES, S = BENCH_SEGMENTS,
       G = BENCH_GATES };

static const bench_extra extras[BENCH_ENGINES - BENCH_SOFTMAX] = {
    {"softmax",        LA_SOFTMAX,           Q | K,     &attention},
    {"sigmoid",        LA_SIGMOID,           Q | K,     &attention},
    {"infini",         LA_WRITE_ADD,         Q | K | S, &infini},
    {"infini-delta",   LA_WRITE_DELTA,       Q | K | S, &infini},
    {"linformer",      0,                    Q | K | F, &linformer},
    {"synthesizer-d",  LA_DENSE,             Q | F,     &synthesizer},
    {"synthesizer-fd", LA_FACTORISED_DENSE,  Q,         &synthesizer},
    {"synthesizer-r",  LA_RANDOM,            0,         &synthesizer},
    {"synthesizer-fr", LA_FACTORISED_RANDOM, F,         &synthesizer},
    {"rwkv4",          LA_SCAN_RWKV4,        G,         &scan},
    {"hgrn",           LA_SCAN_HGRN,         G,         &scan},
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

size_t bench_extra_workspace(const bench_row *row) {
    return bench_weights(row) > MOST_WEIGHTS ? 0 : bench_extra_of(row)->family->workspace(row);
}

size_t bench_extra_state(const bench_row *row) {
    return bench_has_state(row) ? bench_extra_of(row)->family->state(row) : 0;
}
