/* The second target for libFuzzer: what stands behind LA_EXTRAS. Whatever the fields of the structs
   hold and whatever the data are, the contract holds. `make check-fuzz` runs it, too;
   build/fuzz/fuzz_extras FILE repeats one input and says what it stands for.

   - The check and the forward answer the same; an error has a field, and nothing was written.
   - Only the described rows are written, all of them, whatever was in them; inputs stay as they
     are; a workspace as short as its size is enough.
   - Packed, in other slices, one after the other, a call has the same bits.
   - What a row does not see changes no bit of it: later tokens, other heads and sequences.
   - Ordinary data: the formula's answer, in every instruction set; of keys in parts, too. */
#include "extra.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Extra tried;

void print_tried(void) {
    extra_print(&tried);
}

/* ---------------------------------------------------------------- what is said of a call */

static la_status check_answers(const Extra *e) {
    const char *field = "unset", *again = NULL;
    la_status status = extra_check(e, &field);
    MUST((field != NULL) == (status != LA_OK), "status %d, field %s", status, field ? field : "-");
    MUST(extra_check(e, &again) == status && again == field, "%d", status);
    MUST(extra_check(e, NULL) == status, "%d", status);
    MUST(strcmp(la_status_text(status), "unknown status") != 0, "%d", status);
    MUST(e->wild || !e->backed || status == LA_OK, "%s: %s", field, la_status_text(status));
    MUST(status != LA_OK || e->system == SCAN || extra_workspace(e) > 0, "no workspace");
    return status;
}

static Range operand_range(const Operand *operand) {
    return range_of(operand_data(operand), &operand->rows);
}

/* Pointers may have been moved since the buffers were made. */
static int all_hold(Extra *e) {
    Operand list[OPERANDS];
    int n = extra_operands(e, list), i;
    for (i = 0; i < n; i++) {
        Range range = operand_range(&list[i]);
        if (!range_holds(&range, operand_data(&list[i]) == NULL)) {
            return 0;
        }
    }
    return e->backed;
}

/* It was let pass: no output may meet an input or another output, but for states in place. */
static void check_meetings(Extra *e) {
    Operand list[OPERANDS];
    int n = extra_operands(e, list), i, j;
    for (i = 0; i < n && list[i].role < OUTPUT_ROLES; i++) {
        for (j = i + 1; j < n; j++) {
            Range a = operand_range(&list[i]), b = operand_range(&list[j]);
            const float *from = operand_data(&list[i]), *to = operand_data(&list[j]);
            int in_place = list[i].role == STATE_OUT && list[j].role == STATE_IN && from == to;
            MUST(from == NULL || to == NULL || in_place || !ranges_meet(&a, &b),
                 "operand %d meets %d", i, j);
        }
    }
}

/* ---------------------------------------------------------------- runs */

/* All slices, in either order, or, of very many, the one that the call is. */
static void run_slices(Extra *e) {
    int64_t *index, n = *threads_of(e, &index), first = *index, i;
    int all = n <= 8, backwards = input_below(2);
    for (i = 0; i < (all ? n : 1); i++) {
        la_status status;
        *index = all ? (backwards ? n - 1 - i : i) : first;
        status = extra_forward(e);
        MUST(status == LA_OK, "slice %d: %s", (int)*index, la_status_text(status));
    }
    *index = first;
}

/* With a workspace of its own, as short as it may be. */
static void run_again(Extra *e) {
    size_t *bytes, need = extra_workspace(e);
    void **workspace = workspace_of(e, &bytes);
    const char *field = NULL;
    la_status status;
    *workspace = buffer_new(need, 0);
    *bytes = need;
    status = extra_check(e, &field);
    MUST(status == LA_OK, "%s: %s", field, la_status_text(status));
    run_slices(e);
}

static void set_strides(const Operand *operand, const int64_t strides[3]) {
    if (operand->in != NULL) {
        operand->in->batch_stride = strides[0];
        operand->in->token_stride = strides[1];
        operand->in->head_stride = strides[2];
    } else if (operand->out != NULL) {
        operand->out->batch_stride = strides[0];
        operand->out->token_stride = strides[1];
        operand->out->head_stride = strides[2];
    }
}

/* Rows one after the other, but for those that repeat. */
static Rows packed_rows(const Rows *rows) {
    Rows packed = *rows;
    int64_t step = rows->width;
    int i;
    for (i = 2; i >= 0; i--) {
        packed.strides[i] = rows->strides[i] == 0 ? 0 : step;
        step *= rows->strides[i] == 0 || rows->counts[i] == 0 ? 1 : rows->counts[i];
    }
    return packed;
}

/* A new buffer for an operand, as it was before the call. */
static void pack(const Operand *from, const Operand *to) {
    Rows packed = packed_rows(&from->rows);
    const int64_t *counts = from->rows.counts, *old = from->rows.strides, *strides = packed.strides;
    const float *data = operand_data(from);
    int64_t b, t, h;
    int backed = 1;
    float *copy;
    if (from->to != NULL || from->from != NULL) {
        packed.strides[0] = from->rows.strides[0]; /* which no field says */
    }
    if (data == NULL) {
        return;
    }
    copy = rows_buffer(&packed, &backed);
    MUST(backed, "too long");
    operand_point(to, copy);
    set_strides(to, strides);
    for (b = 0; from->role >= STATE_IN && b < counts[0]; b++) {
        for (t = 0; t < counts[1]; t++) {
            for (h = 0; h < counts[2]; h++) {
                const float *row = data + b * old[0] + t * old[1] + h * old[2];
                memcpy(copy + b * strides[0] + t * strides[1] + h * strides[2], buffer_before(row),
                       (size_t)packed.width * sizeof *row);
            }
        }
    }
}

/* The same call in buffers of its own, states not in place. */
static Extra pack_all(Extra *e) {
    Operand from[OPERANDS], to[OPERANDS];
    Extra packed = *e;
    int n = extra_operands(e, from), i;
    extra_operands(&packed, to);
    for (i = 0; i < n; i++) {
        pack(&from[i], &to[i]);
    }
    return packed;
}

/* Results are to be made again, in new buffers. */
static void new_results(Extra *e) {
    Operand list[OPERANDS];
    int n = extra_operands(e, list), backed = 1, i;
    for (i = 0; i < n && list[i].role < OUTPUT_ROLES; i++) {
        if (operand_data(&list[i]) != NULL) {
            operand_point(&list[i], rows_buffer(&list[i].rows, &backed));
        }
    }
}

/* ---------------------------------------------------------------- right */

static Written rows[WRITTEN], others[WRITTEN];

enum { STATE = 1 << 15 }; /* more than an ordinary one has */

static void check_answer(Extra *e, const Written *row) {
    static double want[STATE], limit[STATE];
    int64_t i;
    extra_answer(e, row, want, limit);
    for (i = 0; i < row->floats; i++) {
        double got = (double)row->at[i], error = fabs(got - want[i]);
        MUST(got == want[i] || error <= limit[i],
             "role %d of sequence %d, token %d, head %d [%d]: %.9g, want %.9g +- %g", row->role,
             (int)row->b, (int)row->t, (int)row->head, (int)i, got, want[i], limit[i]);
    }
}

/* About forty of the rows, and the states. `of` tells what is right, `list` what there is. */
static void check_answers_of(Extra *of, const Written *list, int n) {
    int step = 1 + n / 40, i = n > 0 ? input_below(256) % step : 0;
    for (; i < n && list[i].role != STATE_OUT; i += step) {
        check_answer(of, &list[i]);
    }
    for (i = 0; i < n; i++) {
        if (list[i].role == STATE_OUT) {
            check_answer(of, &list[i]);
        }
    }
}

/* ---------------------------------------------------------------- the same bits */

static void must_be_alike(const Written *list, const Written *other, int n, const char *what) {
    int i;
    for (i = 0; i < n; i++) {
        must_equal(other[i].at, list[i].at, (size_t)list[i].floats, what);
    }
}

/* A token of a sequence, and one of its heads of keys. */
typedef struct Spot {
    int64_t b, s, head;
} Spot;

/* Does a row depend on what stands there? States depend on all of it; and Infini-attention's keys
   may be shared by heads with values of their own: there all heads are overwritten. */
static int depends(const Extra *e, const Written *row, const Spot *spot) {
    if (row->b != spot->b || row->role == STATE_OUT) {
        return row->b == spot->b;
    }
    return (e->system == INFINI || extra_key_head(e, row->head) == spot->head) &&
           extra_sees(e, row->b, row->t, spot->s);
}

/* Anything at all comes to stand in one key and its value. */
static void overwrite(Extra *e, const Spot *spot, float x) {
    Operand list[OPERANDS];
    int n = extra_operands(e, list), i;
    int64_t h, j;
    for (i = 0; i < n; i++) {
        const int64_t *strides = list[i].rows.strides;
        Role role = list[i].role;
        if ((role != KEY && role != VALUE) || operand_data(&list[i]) == NULL) {
            continue;
        }
        for (h = 0; h < list[i].rows.counts[2]; h++) {
            const float *at = operand_data(&list[i]) + extra_view_batch(e, spot->b) * strides[0];
            float *row;
            at += (extra_first(e, spot->b) + spot->s) * strides[1] + h * strides[2];
            memcpy(&row, &at, sizeof row);
            for (j = 0; (e->system == INFINI || h == spot->head) && j < list[i].rows.width; j++) {
                row[j] = x;
            }
        }
    }
}

/* Do rows of keys or values share memory, so that an overwritten one is more than one? */
static int keys_repeat(Extra *e) {
    Operand list[OPERANDS];
    int n = extra_operands(e, list), i, j;
    for (i = 0; i < n; i++) {
        for (j = 0; (list[i].role == KEY || list[i].role == VALUE) && j < 3; j++) {
            if (list[i].rows.strides[j] == 0 && list[i].rows.counts[j] > 1) {
                return 1;
            }
        }
    }
    return 0;
}

/* Spoils the packed copy's inputs. */
static void check_local(Extra *e, const Written *list, int n) {
    Spot spot = {input_below(256) % extra_batch(e), input_below(256), 0};
    float x = input_float();
    int i;
    spot.head = input_below(256) % (e->system < INFINI ? attention_of(e)->kv_heads : 1);
    if (spot.s >= extra_keys(e, spot.b) || keys_repeat(e)) {
        return;
    }
    overwrite(e, &spot, x);
    new_results(e);
    run_again(e);
    MUST(extra_written(e, others) == n, "%d rows", n);
    for (i = 0; i < n; i++) {
        if (!depends(e, &list[i], &spot)) {
            must_equal(others[i].at, list[i].at, (size_t)list[i].floats, "local");
        }
    }
}

/* ---------------------------------------------------------------- keys in parts */

/* The keys first .. last - 1, with results of their own. */
static Extra part_of(const Extra *packed, int64_t first, int64_t last, int64_t *positions) {
    Extra part = *packed;
    la_attention_call *call = &part.attention_call;
    int64_t b;
    for (b = 0; b < call->batch; b++) {
        int64_t own = extra_keys(packed, b) - extra_tokens(packed, b);
        positions[b] = (call->positions != NULL ? call->positions[b] : own) - first;
    }
    call->keys = last - first;
    call->positions = positions;
    call->k.data = call->k.data != NULL ? call->k.data + first * call->k.token_stride : NULL;
    call->v.data += first * call->v.token_stride;
    if (call->logits.data != NULL) {
        call->logits.data += first;
        call->logits.width = last - first;
    }
    call->key_lengths = NULL;
    new_results(&part);
    return part;
}

/* Softmax over all keys, without sinks, is that over some, merged with that over the rest. */
static void check_parts(Extra *e, Extra *packed) {
    la_attention_call *call = &packed->attention_call;
    int64_t at = input_below(256) % (call->keys + 1), lists[2][8];
    int64_t count = call->batch * call->tokens * e->attention.q_heads;
    Extra one, two;
    int n;
    if (e->system != ATTENTION || call->lse.data == NULL || e->attention.sinks > 0 ||
        call->lengths != NULL || call->key_lengths != NULL) {
        return;
    }
    one = part_of(packed, 0, at, lists[0]);
    two = part_of(packed, at, call->keys, lists[1]);
    run_again(&one);
    run_again(&two);
    MUST(la_attention_merge(one.attention_call.out.data, one.attention_call.lse.data,
                            two.attention_call.out.data, two.attention_call.lse.data, count,
                            e->attention.dim_v) == LA_OK,
         "merge");
    n = extra_written(&one, others);
    check_answers_of(e, others, n);
}

/* ---------------------------------------------------------------- a call */

static void check_more(Extra *e, int n) {
    Extra packed = pack_all(e);
    int64_t *index;
    if (e->ordinary) {
        check_answers_of(e, rows, n);
    }
    *threads_of(&packed, &index) = 1 + input_below(3);
    *index = 0;
    run_again(&packed);
    MUST(extra_written(&packed, others) == n, "%d rows", n);
    must_be_alike(rows, others, n, "packed");
    if (e->ordinary) {
        check_parts(e, &packed);
    }
    check_local(&packed, rows, n);
}

/* Another instruction set: other bits, the same answer. */
static void check_isa(Extra *e) {
    Extra packed = pack_all(e);
    int isa = input_below(5);
    if (e->ordinary && la_isa_available(isa)) {
        *isa_of(&packed) = isa;
        run_again(&packed);
        check_answers_of(e, others, extra_written(&packed, others));
    }
}

static void fuzz_extra(void) {
    Extra *e = &tried;
    size_t *bytes;
    int64_t *index;
    int n, i;
    la_status status;
    extra_new(e);
    buffers_remember();
    status = check_answers(e);
    if (status != LA_OK) {
        MUST(extra_forward(e) == status, "%s", la_status_text(status));
        buffers_check(1);
        return;
    }
    check_meetings(e);
    if (!all_hold(e) || extra_cost(e) > 3e6) {
        return;
    }
    n = extra_written(e, rows);
    if (n < 0) {
        return;
    }
    for (i = 0; i < n; i++) {
        buffer_allow(rows[i].at, (size_t)rows[i].floats * sizeof(float));
    }
    if (e->system != SCAN) {
        buffer_allow(*workspace_of(e, &bytes), extra_workspace(e));
    }
    run_slices(e);
    buffers_check(0);
    if (e->wild || *threads_of(e, &index) > 8) {
        return;
    }
    for (i = 0; i < n; i++) {
        int64_t j;
        for (j = 0; j < rows[i].floats; j++) {
            MUST(!is_unwritten(&rows[i].at[j]), "number %d of row %d was not written", (int)j, i);
        }
    }
    check_isa(e);
    check_more(e, n);
}

/* ---------------------------------------------------------------- helpers */

static float *take_floats(int64_t n, int odd, float size) {
    float *x = buffer_new((size_t)n * sizeof *x, 0);
    int64_t i;
    for (i = 0; i < n; i++) {
        x[i] = odd && input_chance(4) ? input_float() : noise_between(-size, size);
    }
    return x;
}

static void check_merged(const float *out, const float *lse, const float *more, float more_lse,
                         int64_t dv) {
    double a = (double)*(const float *)buffer_before(lse), b = (double)more_lse;
    double most = fmax(a, b), p = exp(a - most), q = exp(b - most), want, limit;
    int64_t j;
    want = most + log(p + q);
    MUST(fabs((double)*lse - want) <= 1e-7 * (1 + fabs(want)), "lse %g, want %g", (double)*lse,
         want);
    for (j = 0; j < dv; j++) {
        double x = (double)*(const float *)buffer_before(&out[j]), y = (double)more[j];
        want = (p * x + q * y) / (p + q);
        limit = 2e-7 * (p * fabs(x) + q * fabs(y)) / (p + q);
        MUST(fabs((double)out[j] - want) <= limit + 1e-40, "%g, want %g", (double)out[j], want);
    }
}

static void fuzz_merge(void) {
    int64_t n = input_below(6), dv = input_dim(), i;
    int odd = input_chance(3);
    float *out = take_floats(n * dv, odd, 3), *lse = take_floats(n, odd, 100);
    float *more = take_floats(n * dv, odd, 3), *more_lse = take_floats(n, odd, 100);
    buffers_remember();
    MUST(la_attention_merge(out, lse, more, more_lse, -1 - input_below(9), dv) < 0, "rows");
    MUST(la_attention_merge(out, lse, more, more_lse, n, -input_below(9)) < 0, "width");
    MUST(n == 0 || la_attention_merge(out, lse, out, more_lse, n, dv) == LA_E_OVERLAP, "itself");
    buffers_check(1);
    buffer_allow(out, (size_t)(n * dv) * sizeof *out);
    buffer_allow(lse, (size_t)n * sizeof *lse);
    MUST(la_attention_merge(out, lse, more, more_lse, n, dv) == LA_OK, "merge");
    buffers_check(0);
    for (i = 0; i < n && !odd; i++) {
        check_merged(out + i * dv, lse + i, more + i * dv, more_lse[i], dv);
    }
}

/* What a token still sees is in the ring, each key in a slot of its own. */
static void fuzz_slots(void) {
    la_attention layer;
    int64_t at = input_chance(3) ? input_number() : input_below(200), slot, slots, i, kept;
    la_attention_init(&layer, LA_SOFTMAX, 1, 1, 1);
    layer.window = input_chance(3) ? input_number() : input_below(20);
    layer.sinks = input_chance(3) ? input_number() : input_below(6);
    slot = la_attention_slot(&layer, at);
    slots = la_attention_slots(&layer, at);
    if (at < 0 || layer.window < 0 || layer.sinks < 0) {
        MUST(slot == -1 && slots == -1, "%lld, %lld", (long long)slot, (long long)slots);
    } else if (at <= 1000000 && layer.window <= 1000000 && layer.sinks <= 1000000) {
        kept = layer.window > 0 ? layer.sinks + layer.window : at + 1;
        MUST(slot >= 0 && slot < kept && slots == (at < kept ? at : kept), "slot %d of %d",
             (int)slot, (int)slots);
        for (i = 0; i < at && i < 64; i++) {
            int seen = i < layer.sinks || layer.window == 0 || at - i < layer.window;
            MUST(!seen || la_attention_slot(&layer, i) != slot, "%d and %d", (int)i, (int)at);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int kind;
    input_set(data, size);
    memset(&tried, 0, sizeof tried);
    kind = input_below(32);
    if (kind < 30) {
        fuzz_extra();
    } else if (kind == 30) {
        fuzz_merge();
    } else {
        fuzz_slots();
    }
    buffers_free();
    return 0;
}
