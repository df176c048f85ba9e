/* What the baselines and the oracle go through: head h of sequence b with the query heads that read
 * its state, which stand side by side. */
#ifndef BENCH_UNITS_H
#define BENCH_UNITS_H

#include "bench.h"

typedef struct unit {
    const bench_row *row;
    const bench_data *data;
    int64_t b, h, queries;
    float *state, *work; /* work: of the thread */
} unit;

static inline int64_t unit_count(const bench_row *row) {
    return row->batch * row->heads;
}

static inline unit unit_at(const bench_row *row, const bench_data *data, int64_t i,
                           int64_t thread) {
    unit s;
    s.row = row;
    s.data = data;
    s.b = i / row->heads;
    s.h = i % row->heads;
    s.queries = bench_out_heads(row) / row->heads;
    s.state = data->state + (size_t)i * data->head_floats;
    s.work = (float *)(void *)((char *)data->workspace + (size_t)thread * data->workspace_size);
    return s;
}

/* heads are dealt to the threads in turn */
static inline void each_unit(const bench_row *row, const bench_data *data, int64_t thread,
                             void (*run)(const unit *s)) {
    int64_t i;
    for (i = thread; i < unit_count(row); i += row->threads) {
        const unit s = unit_at(row, data, i, thread);
        run(&s);
    }
}

/* row t of head h, of `heads` heads that are `width` wide */
static inline const float *row_at(const unit *s, const float *x, int64_t t, int64_t heads,
                                  int64_t h, int64_t width) {
    return x + ((s->b * s->row->tokens + t) * heads + h) * width;
}

static inline const float *key(const unit *s, int64_t t) {
    const bench_row *row = s->row;
    return row_at(s, s->data->k, t, row->k_heads, s->h * row->k_heads / row->heads, row->dim_k);
}

static inline const float *value(const unit *s, int64_t t) {
    return row_at(s, s->data->v, t, s->row->heads, s->h, s->row->dim_v);
}

/* of erase, a or b: one for each key channel */
static inline const float *partner(const unit *s, const float *x, int64_t t) {
    return row_at(s, x, t, s->row->heads, s->h, s->row->dim_k);
}

static inline float beta(const unit *s, int64_t t) {
    return *row_at(s, s->data->beta, t, s->row->heads, s->h, 1);
}

/* of the first of the query heads */
static inline const float *query(const unit *s, int64_t t) {
    const bench_row *row = s->row;
    return row_at(s, s->data->q, t, row->q_heads, s->h * row->q_heads / row->heads, row->dim_k);
}

/* where what the first of the query heads reads stands in [B][T][bench_out_heads(row)] */
static inline int64_t output_row(const unit *s, int64_t t) {
    return (s->b * s->row->tokens + t) * bench_out_heads(s->row) + s->h * s->queries;
}

/* one number, or one for each key channel; null where nothing decays */
static inline const float *gate(const unit *s, int64_t t) {
    const bench_row *row = s->row;
    if (row->decay == BENCH_NONE) return NULL;
    if (row->decay == BENCH_HEAD) return s->data->log_decay + s->h;
    return row_at(s, s->data->log_decay, t, row->heads, s->h,
                  row->decay == BENCH_CHANNEL ? row->dim_k : 1);
}

#endif
