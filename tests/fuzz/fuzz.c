/* A target for libFuzzer: whatever the fields of a layer and of a call hold, and whatever the data
   are, the contract holds. `make check-fuzz` runs it for a short time, `make check-fuzz
   FUZZ_TIME=1800` for longer; build/fuzz/fuzz FILE repeats one input and says what it stands for.

   - la_check and la_forward answer the same; an error has a field, and nothing was written.
   - Only the described rows are written, all of them, whatever was in them (buffers have their
     exact size: the address sanitizer sees the rest); inputs stay as they are.
   - A batch in slices, with any strides, slots and lengths, has the bits of its sequences run one
     by one; the recurrent form, split anywhere, has the bits of the whole.
   - What later tokens and other heads hold changes no bit.
   - Ordinary data: the oracle's answer, to promise 1, in every form and instruction set.
   - States survive as bytes and in the other layout; spoilt bytes are refused, or only numbers. */
#include "case.h"

#include "../oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Case tried;

void print_tried(void) {
    case_print(&tried);
}

/* ---------------------------------------------------------------- what is said of a call */

static la_status check_answers(const Case *c) {
    const char *field = "unset", *again = NULL;
    la_status status = la_check(&c->layer, &c->call, &field);
    MUST((field != NULL) == (status != LA_OK), "status %d, field %s", status, field ? field : "-");
    MUST(la_check(&c->layer, &c->call, &again) == status && again == field, "%d", status);
    MUST(la_check(&c->layer, &c->call, NULL) == status, "%d", status);
    MUST(strcmp(la_status_text(status), "unknown status") != 0, "%d", status);
    MUST(c->wild || !c->backed || status == LA_OK, "%s: %s", field, la_status_text(status));
    return status;
}

static void check_plan(const Case *c, la_status status) {
    size_t floats = la_state_floats(&c->layer), bytes = la_workspace_size(&c->layer, &c->call);
    la_plan plan;
    la_status described = la_describe(&c->layer, &c->call, &plan);
    MUST(described == LA_OK || described == status, "describe %d, check %d", described, status);
    MUST(status != LA_OK || (bytes > 0 && floats > 0), "%zu bytes, %zu floats", bytes, floats);
    if (floats > 0) {
        MUST((double)floats == case_state_floats(&c->layer), "%zu floats", floats);
    }
    if (described != LA_OK) {
        return;
    }
    MUST(plan.workspace_size == bytes, "%zu, %zu", plan.workspace_size, bytes);
    MUST(plan.form > LA_AUTO && plan.form <= LA_CHUNKWISE, "form %d", plan.form);
    MUST(c->call.form == LA_AUTO || c->call.form == plan.form, "form %d", plan.form);
    MUST(plan.isa != LA_ISA_AUTO && la_isa_available(plan.isa), "isa %d", plan.isa);
    MUST(plan.kernel != NULL && plan.units >= 1, "%lld units", (long long)plan.units);
    MUST(status != LA_OK || (plan.flops >= 0 && plan.bytes >= 0), "%g, %g", plan.flops, plan.bytes);
}

/* ---------------------------------------------------------------- what may be written */

static int64_t slot_of(const int64_t *slots, int64_t b) {
    return slots != NULL ? slots[b] : b;
}

/* Row t of query head h in sequence b, counted from its own first token. */
static float *case_out(const Case *c, int64_t b, int64_t t, int64_t h) {
    const int64_t *offsets = c->call.offsets;
    return out_row(&c->call.out, offsets ? 0 : b, offsets ? offsets[b] + t : t, h);
}

/* Each row that the call has to write is handed to `act`. */
static void each_written(const Case *c, void (*act)(const float *row, size_t floats)) {
    const la_call *call = &c->call;
    size_t floats = (size_t)case_state_floats(&c->layer);
    int64_t b, t, h, slot, W = call->snapshot_count - 1;
    for (b = 0; b < call->batch; b++) {
        int64_t n = case_tokens(call, b);
        for (t = 0; t < n; t++) {
            for (h = 0; h < oracle_out_heads(&c->layer); h++) {
                act(case_out(c, b, t, h), (size_t)c->layer.dim_v);
            }
        }
        slot = slot_of(call->slots_out, b);
        if (call->state_out != NULL && slot >= 0) {
            act(call->state_out + slot * call->state_out_stride, floats);
        }
        for (t = 0; call->snapshots != NULL && t <= W; t++) {
            if (n - W + t >= 0) {
                act(call->snapshots + (b * call->snapshot_count + t) * (int64_t)floats, floats);
            }
        }
    }
}

static void allow(const float *row, size_t floats) {
    buffer_allow(row, floats * sizeof *row);
}

static void must_be_written(const float *row, size_t floats) {
    size_t i;
    for (i = 0; i < floats; i++) {
        MUST(!is_unwritten(&row[i]), "number %zu of a row of %zu was not written", i, floats);
    }
}

/* ---------------------------------------------------------------- one sequence alone */

/* A sequence of the case, its inputs packed, its results in buffers of their own. */
typedef struct Single {
    la_call call;
    int64_t b, position, heads, out_heads;
    size_t floats; /* of its state */
} Single;

static la_in packed(const Case *c, const la_in *view, int64_t b, int64_t tokens, int64_t heads) {
    int64_t first = c->call.offsets != NULL ? c->call.offsets[b] : 0, t, h;
    size_t row = (size_t)view->width;
    float *data;
    la_in copy = la_bthd(NULL, tokens, heads, view->width);
    if (view->data == NULL) {
        return copy;
    }
    copy.data = data = buffer_new((size_t)(tokens * heads) * row * sizeof *data, 0);
    b = c->call.offsets != NULL ? 0 : b;
    for (t = 0; t < tokens; t++) {
        for (h = 0; h < heads; h++, data += row) {
            memcpy(data, view_row(view, b, first + t, h), row * sizeof *data);
        }
    }
    return copy;
}

/* Results are to be made again, in new buffers. */
static void new_results(const Case *c, Single *s) {
    int64_t slot = slot_of(c->call.slots_out, s->b), n = s->call.tokens;
    size_t out = (size_t)(n * s->out_heads * c->layer.dim_v);
    s->call.out = la_bthd_out(buffer_new(out * 4, 0), n, s->out_heads, c->layer.dim_v);
    s->call.state_out = NULL;
    if (c->call.state_out != NULL && slot >= 0) {
        s->call.state_out = buffer_new(s->floats * 4, 0);
    }
}

static void single_new(const Case *c, int64_t b, Single *s) {
    const la_layer *layer = &c->layer;
    const la_call *call = &c->call;
    int64_t n = case_tokens(call, b), m = case_keys(layer, call, b), H = layer->heads;
    int64_t slot = slot_of(call->slots_in, b);
    la_status status = la_call_init(&s->call, layer, 1, n);
    MUST(status == LA_OK, "%d", status);
    s->b = b;
    s->floats = (size_t)case_state_floats(layer);
    s->heads = H;
    s->out_heads = oracle_out_heads(layer);
    s->call.keys = m;
    s->call.form = call->form;
    s->call.isa = call->isa;
    s->call.chunk = call->chunk;
    s->call.q = packed(c, &call->q, b, n, layer->q_heads);
    s->call.k = packed(c, &call->k, b, m, layer->k_heads);
    s->call.v = packed(c, &call->v, b, m, H);
    s->call.log_decay = packed(c, &call->log_decay, b, m, H);
    s->call.beta = packed(c, &call->beta, b, m, H);
    s->call.erase = packed(c, &call->erase, b, m, H);
    s->call.bonus = packed(c, &call->bonus, b, m, H);
    s->call.a = packed(c, &call->a, b, m, H);
    s->call.b = packed(c, &call->b, b, m, H);
    s->call.skip = packed(c, &call->skip, b, m, H);
    s->call.out_gate = packed(c, &call->out_gate, b, n, s->out_heads);
    if (call->positions != NULL) {
        s->position = call->positions[b];
        s->call.positions = &s->position;
    }
    if (call->state_in != NULL && slot >= 0) { /* it may have been overwritten since */
        float *state = buffer_new(s->floats * 4, 0);
        memcpy(state, buffer_before(call->state_in + slot * call->state_in_stride), s->floats * 4);
        s->call.state_in = state;
    }
    new_results(c, s);
}

/* With a workspace as short as it may be. */
static void run(const la_layer *layer, la_call call) {
    size_t bytes = la_workspace_size(layer, &call);
    const char *field = NULL;
    la_status status;
    call.workspace = malloc(bytes);
    call.workspace_size = bytes;
    MUST(call.workspace != NULL, "no memory");
    memset(call.workspace, 0xff, bytes);
    status = la_check(layer, &call, &field);
    MUST(status == LA_OK, "%s: %s", field, la_status_text(status));
    status = la_forward(layer, &call);
    MUST(status == LA_OK, "%s", la_status_text(status));
    free(call.workspace);
}

/* What the whole call has left of this sequence. */
static void must_equal_case(const Case *c, const Single *s) {
    size_t dv = (size_t)c->layer.dim_v;
    int64_t t, h, slot = slot_of(c->call.slots_out, s->b);
    for (t = 0; t < s->call.tokens; t++) {
        for (h = 0; h < s->out_heads; h++) {
            must_equal(case_out(c, s->b, t, h), out_row(&s->call.out, 0, t, h), dv, "out");
        }
    }
    if (s->call.state_out != NULL) {
        must_equal(c->call.state_out + slot * c->call.state_out_stride, s->call.state_out,
                   s->floats, "state_out");
    }
}

/* ---------------------------------------------------------------- promise 3: divisible */

/* `tokens` of a sequence from token `first` on. */
static la_call part_of(const Single *s, int64_t first, int64_t tokens, int64_t *position) {
    la_call call = s->call;
    call.form = LA_RECURRENT;
    call.tokens = call.keys = tokens;
    call_skip(&call, first);
    if (call.positions != NULL || first > 0) {
        *position = first + (call.positions != NULL ? s->position : 0);
    }
    return call;
}

/* The snapshot of the state after `tokens`, where the call has one. */
static const float *snapshot_of(const Case *c, const Single *s, int64_t tokens) {
    int64_t count = c->call.snapshot_count, at = tokens - (s->call.tokens - (count - 1));
    if (c->call.snapshots == NULL || at < 0 || at >= count) {
        return NULL;
    }
    return c->call.snapshots + (s->b * count + at) * (int64_t)s->floats;
}

/* Has FAVOR+ lost a head's state, all of z having underflowed next to a maximum that is kept?
   Within a call it goes on with that maximum; once stored, such a state counts as empty. */
static int is_lost(const la_layer *layer, const float *states) {
    int64_t floats = (int64_t)la_state_floats(layer) / layer->heads, h, i;
    int64_t r = (floats - 1) / (layer->dim_v + 1);
    for (h = 0; oracle_has_maximum(layer) && h < layer->heads; h++) {
        const float *z = states + h * floats + r * layer->dim_v;
        for (i = 0; i < r && z[i] == 0; i++) {
        }
        if (i == r && z[r] > -HUGE_VALF) {
            return 1;
        }
    }
    return 0;
}

static void check_split(const Case *c, const Single *whole) {
    Single s = *whole;
    int64_t n = s.call.tokens, at = input_below(256) % (n + 1), position = 0;
    float *state = buffer_new(s.floats * 4, 0), *end = buffer_new(s.floats * 4, 0);
    size_t outs = (size_t)(n * s.out_heads * c->layer.dim_v);
    int cosine = c->layer.feature == LA_FEATURE_COSFORMER;
    float *want;
    la_call part;
    s.call.form = LA_RECURRENT;
    new_results(c, &s);
    s.call.state_out = end;
    run(&c->layer, s.call);
    want = s.call.out.data;
    new_results(c, &s);
    part = part_of(&s, 0, at, &position);
    part.state_out = state;
    run(&c->layer, part);
    if (is_lost(&c->layer, state)) {
        return;
    }
    if (snapshot_of(c, &s, at) != NULL) {
        must_equal(snapshot_of(c, &s, at), state, s.floats, "snapshot");
    }
    part = part_of(&s, at, n - at, &position);
    part.positions = cosine ? &position : NULL;
    position = cosine ? at + (whole->call.positions != NULL ? whole->position : 0) : 0;
    part.state_in = part.state_out = state;
    run(&c->layer, part);
    must_equal(s.call.out.data, want, outs, "out, split");
    must_equal(state, end, s.floats, "state, split");
}

/* ---------------------------------------------------------------- promises 2 and 7: local */

/* Rows from token `first` on, of one head or (head < 0) of all, are overwritten. */
static void overwrite(la_in *view, int64_t first, int64_t tokens, int64_t heads, int64_t head,
                      float value) {
    int64_t t, h, i;
    float *row;
    for (t = first; view->data != NULL && t < tokens; t++) {
        for (h = 0; h < heads; h++) {
            const float *at = view_row(view, 0, t, h);
            memcpy(&row, &at, sizeof row); /* a packed copy */
            for (i = 0; (head < 0 || h == head) && i < view->width; i++) {
                row[i] = value;
            }
        }
    }
}

/* After anything at all has come to stand in the tokens from one on, in one state head's own inputs
   or in all, the rest of the last result is what it was. Spoils the copies of the inputs. */
static void check_local(const Case *c, Single *s) {
    const la_layer *layer = &c->layer;
    int64_t H = layer->heads, n = s->call.tokens, m = s->call.keys, t, j;
    int64_t head = input_below(2) ? input_below(256) % H : -1, first = input_below(256) % (n + 1);
    size_t dv = (size_t)layer->dim_v;
    la_out before = s->call.out;
    float value = input_float();
    if (layer->bidirectional) {
        first = head < 0 ? m : 0;
    } else if (head < 0) {
        overwrite(&s->call.q, first, n, layer->q_heads, head, value);
        overwrite(&s->call.k, first, m, layer->k_heads, head, value);
    }
    overwrite(&s->call.v, first, m, H, head, value);
    overwrite(&s->call.log_decay, first, m, H, head, value);
    overwrite(&s->call.beta, first, m, H, head, value);
    overwrite(&s->call.erase, first, m, H, head, value);
    overwrite(&s->call.bonus, first, m, H, head, value);
    overwrite(&s->call.a, first, m, H, head, value);
    overwrite(&s->call.b, first, m, H, head, value);
    overwrite(&s->call.skip, first, m, H, head, value);
    if (head < 0 || s->out_heads == H) {
        overwrite(&s->call.out_gate, first, n, s->out_heads, head, value);
    }
    new_results(c, s);
    run(layer, s->call);
    for (t = 0; t < n; t++) {
        for (j = 0; j < s->out_heads; j++) {
            if (t < first || (head >= 0 && j * H / s->out_heads != head)) {
                must_equal(out_row(&s->call.out, 0, t, j), out_row(&before, 0, t, j), dv, "local");
            }
        }
    }
}

/* ---------------------------------------------------------------- promise 1: right */

static int all_finite(const la_in *view, int64_t rows, int64_t heads) {
    int64_t i;
    for (i = 0; view->data != NULL && i < rows * heads * view->width; i++) {
        if (!isfinite(view->data[i])) {
            return 0;
        }
    }
    return 1;
}

/* |a|^2 <= 0.4 for all a of DPLR, which overlapping rows may break; or all b. */
static int pairs_are_short(const la_in *view, const Single *s) {
    int64_t i, n = s->call.keys * s->heads * view->width;
    double sum = 0;
    for (i = 0; i < n; i++) {
        sum = i % view->width == 0 ? 0 : sum;
        sum += (double)view->data[i] * (double)view->data[i];
        if (!(sum <= 0.4)) { /* or a NaN */
            return 0;
        }
    }
    return 1;
}

/* beta |f(k)|^2 <= 2, which overlapping rows may break; and many features are longer than keys. */
static int delta_is_stable(const la_layer *layer, const Single *s) {
    int64_t i;
    double sum = 0;
    if (layer->write == LA_WRITE_DPLR) {
        return pairs_are_short(&s->call.a, s) && pairs_are_short(&s->call.b, s);
    }
    if (layer->write != LA_WRITE_DELTA || layer->feature == LA_FEATURE_DPFP) {
        return 1;
    }
    if (layer->feature != LA_FEATURE_IDENTITY && layer->feature != LA_FEATURE_COSFORMER) {
        return 0;
    }
    if (layer->l2_mode != LA_L2_OFF) {
        return 1;
    }
    for (i = 0; i < s->call.keys * layer->k_heads * layer->dim_k; i++) {
        sum = i % layer->dim_k == 0 ? 0 : sum;
        sum += (double)s->call.k.data[i] * (double)s->call.k.data[i];
        if (sum > 1) {
            return 0;
        }
    }
    return 1;
}

/* Gates of ordinary data are never positive. Features that may all be 0 leave a denominator to what
   strong gates left of earlier ones, and that may lie in (0, 1e-30). */
static int gates_are_promised(const la_layer *layer, const Single *s) {
    const la_in *view = &s->call.log_decay;
    int relu = layer->feature == LA_FEATURE_COSFORMER ||
               (layer->feature == LA_FEATURE_FAVOR && layer->favor_kernel == LA_FAVOR_RELU);
    int64_t i;
    for (i = 0; view->data != NULL && i < s->call.keys * layer->heads * view->width; i++) {
        if (!(view->data[i] <= 0) || (relu && view->data[i] < -0.5f)) {
            return 0;
        }
    }
    return 1;
}

/* Sums of features are positive, unless states that overlap have spoilt them. */
static int state_is_promised(const la_layer *layer, const Single *s) {
    const float *state = s->call.state_in;
    int64_t h, i;
    size_t n;
    for (n = 0; state != NULL && n < s->floats; n++) {
        if (!isfinite(state[n])) {
            return 0;
        }
    }
    for (h = 0; state != NULL && layer->normalised && h < layer->heads; h++) {
        for (i = 0; i < oracle_features(layer); i++) {
            if (state[oracle_state_index(layer, h, i, layer->dim_v)] <= 0) {
                return 0;
            }
        }
    }
    return 1;
}

/* Does promise 1 speak about this sequence? */
static int is_promised(const Case *c, const Single *s) {
    const la_layer *layer = &c->layer;
    const la_call *call = &s->call;
    int64_t H = layer->heads, most = call->tokens > call->keys ? call->tokens : call->keys;
    /* Near the horizon cos(theta) is the rounding of pi, whoever computes it. */
    if (layer->feature == LA_FEATURE_COSFORMER &&
        (double)(most + (call->positions != NULL ? s->position : 0)) > 0.97 * layer->horizon) {
        return 0;
    }
    if (layer->feature == LA_FEATURE_TAYLOR || layer->feature == LA_FEATURE_RFF) {
        return 0; /* features with signs: sums and denominators may cancel */
    }
    return c->ordinary && gates_are_promised(layer, s) &&
           all_finite(&call->q, call->tokens, layer->q_heads) &&
           all_finite(&call->k, call->keys, layer->k_heads) &&
           all_finite(&call->v, call->keys, H) && all_finite(&call->beta, call->keys, H) &&
           all_finite(&call->erase, call->keys, H) && all_finite(&call->bonus, call->keys, H) &&
           all_finite(&call->skip, call->keys, H) &&
           all_finite(&call->out_gate, call->tokens, s->out_heads) &&
           state_is_promised(layer, s) && delta_is_stable(layer, s);
}

/* The oracle's answer, and the sizes that errors are measured by. */
typedef struct Answer {
    Oracle exact;
    Oracle size; /* its N and states are those of the terms, which may cancel */
} Answer;

/* Room for its answer to a call of so many tokens or fewer. */
static void oracle_room(const Case *c, const la_call *call, Oracle *oracle) {
    size_t outs = (size_t)(call->tokens * oracle_out_heads(&c->layer) * c->layer.dim_v);
    oracle->out = buffer_new(outs * sizeof(double), 0);
    oracle->state = buffer_new((size_t)case_state_floats(&c->layer) * sizeof(double), 0);
    oracle->size = buffer_new((size_t)oracle_out_heads(&c->layer) * sizeof(double), 0);
    oracle->round_decay = 0;
}

static void oracle_new(const Case *c, const la_call *call, Oracle *oracle) {
    oracle_room(c, call, oracle);
    oracle_forward(&c->layer, call, oracle);
}

static la_in absolute(const la_in *view, int64_t rows, int64_t heads) {
    la_in copy = *view;
    int64_t i, n = rows * heads * view->width;
    float *data;
    if (view->data != NULL) {
        copy.data = data = buffer_new((size_t)n * sizeof *data, 0);
        for (i = 0; i < n; i++) {
            data[i] = fabsf(view->data[i]);
        }
    }
    return copy;
}

/* An additive rule is a sum: that of the absolute values is the size of its terms. m stays. */
static void size_of_sums(const Case *c, const Single *s, Oracle *size) {
    const la_layer *layer = &c->layer;
    la_call call = s->call;
    la_in state = {call.state_in, 0, 0, 0, 1, LA_F32};
    int64_t m = call.keys, H = layer->heads, h, at;
    float *data;
    if (layer->feature == LA_FEATURE_IDENTITY) {
        call.q = absolute(&call.q, call.tokens, layer->q_heads);
        call.k = absolute(&call.k, m, layer->k_heads);
    }
    call.v = absolute(&call.v, m, H);
    call.beta = absolute(&call.beta, m, H);
    call.bonus = absolute(&call.bonus, m, H);
    call.skip = absolute(&call.skip, m, H);
    if (call.state_in != NULL) {
        state = absolute(&state, 1, (int64_t)s->floats);
        memcpy(&data, &state.data, sizeof data);
        for (h = 0; oracle_has_maximum(layer) && h < H; h++) {
            at = oracle_state_index(layer, h, oracle_features(layer), 0);
            data[at] = call.state_in[at];
        }
        call.state_in = state.data;
    }
    oracle_new(c, &call, size);
}

static double norm(const double *x, int64_t n) {
    double sum = 0;
    int64_t i;
    for (i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

/* The oracle's states, rounded, as the library stores them. */
static void store(const la_layer *layer, const Oracle *oracle, float *state) {
    int64_t h, i, j, r = oracle_features(layer), dv = layer->dim_v;
    for (h = 0; h < layer->heads; h++) {
        for (i = 0; i < r; i++) {
            for (j = 0; j < dv; j++) {
                double x = oracle->state[h * oracle_head_floats(layer) + i * dv + j];
                state[oracle_state_index(layer, h, i, j)] = (float)x;
            }
        }
    }
}

/* |scale q| of all tokens, each by its longest head. */
static double query_size(const la_layer *layer, const Single *s) {
    int64_t t, i, h;
    double sum = 0, scale = fabs((double)layer->scale);
    if (layer->l2_mode != LA_L2_OFF) {
        return scale * sqrt((double)s->call.tokens);
    }
    for (t = 0; t < s->call.tokens; t++) {
        double most = 0;
        for (h = 0; h < layer->q_heads; h++) {
            const float *q = view_row(&s->call.q, 0, t, h);
            double square = 0;
            for (i = 0; i < layer->dim_k; i++) {
                square += (double)q[i] * (double)q[i];
            }
            most = fmax(most, square);
        }
        sum += most;
    }
    return scale * sqrt(sum);
}

/* A delta rule is no sum of its inputs. Its size is the largest state on the way, which the oracle
   tells token by token. */
static void size_of_states(const Case *c, const Single *s, Oracle *size) {
    const la_layer *layer = &c->layer;
    int64_t t, h, j, H = layer->heads, floats = oracle_head_floats(layer), position = 0;
    double *largest = buffer_new((size_t)H * sizeof *largest, 0);
    float *state = buffer_new(s->floats * sizeof *state, 0);
    la_call call;
    Oracle step;
    oracle_room(c, &s->call, &step);
    size->size = buffer_new((size_t)s->out_heads * sizeof(double), 0);
    size->state = buffer_new(s->floats * sizeof(double), 0);
    memset(size->state, 0, s->floats * sizeof(double));
    memset(state, 0, s->floats * sizeof *state);
    memset(largest, 0, (size_t)H * sizeof *largest);
    if (s->call.state_in != NULL) {
        memcpy(state, s->call.state_in, s->floats * sizeof *state);
    }
    for (t = -1; t < s->call.tokens; t++) { /* first the state that it begins with */
        call = part_of(s, t < 0 ? 0 : t, t >= 0, &position);
        call.state_in = state;
        oracle_forward(layer, &call, &step);
        store(layer, &step, state);
        for (h = 0; h < H; h++) {
            largest[h] = fmax(largest[h], norm(step.state + h * floats, floats));
        }
    }
    for (h = 0; h < H; h++) {
        size->state[h * floats] = largest[h];
    }
    for (j = 0; j < s->out_heads; j++) {
        size->size[j] = query_size(layer, s) / sqrt((double)oracle_features(layer)) *
                        largest[j * H / s->out_heads];
    }
}

static void answer_new(const Case *c, const Single *s, Answer *answer) {
    oracle_new(c, &s->call, &answer->exact);
    if (c->layer.write != LA_WRITE_ADD) {
        size_of_states(c, s, &answer->size);
    } else {
        size_of_sums(c, s, &answer->size);
    }
}

static void check_out(const Case *c, const Single *s, const Answer *answer) {
    const la_layer *layer = &c->layer;
    int64_t j, t, i, dv = layer->dim_v, heads = s->out_heads;
    for (j = 0; j < heads; j++) {
        double limit = promise_1(layer, &s->call, 0, j * layer->heads / heads), error = 0, sum = 0;
        for (t = 0; t < s->call.tokens; t++) {
            const double *want = answer->exact.out + (t * heads + j) * dv;
            const float *got = out_row(&s->call.out, 0, t, j);
            for (i = 0; i < dv; i++) {
                error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
                sum += want[i] * want[i];
            }
        }
        limit *= fmax(sqrt(sum), fmax(answer->exact.size[j], answer->size.size[j]));
        MUST(sqrt(error) <= limit, "sequence %d, head %d: |o - o64| %g, limit %g (|o64| %g, N %g)"
             " by form %d, chunk %d, isa %d", (int)s->b, (int)j, sqrt(error), limit, sqrt(sum),
             answer->exact.size[j], s->call.form, (int)s->call.chunk, s->call.isa);
    }
}

/* What makes S and z relative to the oracle's maximum. */
static double state_factor(const la_layer *layer, const Single *s, const Answer *answer,
                           int64_t h) {
    double want = answer->exact.state[(h + 1) * oracle_head_floats(layer) - 1];
    int64_t at = oracle_state_index(layer, h, oracle_features(layer), 0);
    return oracle_has_maximum(layer) && !isinf(want)
               ? exp((double)s->call.state_out[at] - want)
               : 1;
}

/* Columns first .. last - 1 of S, or, as column dv, z. */
static void check_columns(const Case *c, const Single *s, const Answer *answer, int64_t h,
                          int64_t first, int64_t last) {
    const la_layer *layer = &c->layer;
    int64_t r = oracle_features(layer), dv = layer->dim_v, i, j, floats = oracle_head_floats(layer);
    const double *want = answer->exact.state + h * floats, *size = answer->size.state + h * floats;
    double error = 0, sum = 0, sizes = 0, factor = state_factor(layer, s, answer, h), limit;
    for (i = 0; i < r; i++) {
        for (j = first; j < last; j++) {
            int64_t at = j < dv ? i * dv + j : r * dv + i;
            double got = factor * (double)s->call.state_out[oracle_state_index(layer, h, i, j)];
            error += (got - want[at]) * (got - want[at]);
            sum += want[at] * want[at];
            sizes += size[at] * size[at];
        }
    }
    limit = promise_1(layer, &s->call, 0, h) * sqrt(fmax(sum, sizes));
    MUST(sqrt(error) <= limit, "sequence %d, head %d: |S - S64| %g, limit %g (|S64| %g, terms %g)"
         " by form %d, chunk %d, isa %d", (int)s->b, (int)h, sqrt(error), limit, sqrt(sum),
         sqrt(sizes), s->call.form, (int)s->call.chunk, s->call.isa);
}

static void check_answer(const Case *c, const Single *s, const Answer *answer) {
    int64_t h, dv = c->layer.dim_v;
    check_out(c, s, answer);
    for (h = 0; s->call.state_out != NULL && h < c->layer.heads; h++) {
        check_columns(c, s, answer, h, 0, dv);
        if (c->layer.normalised) {
            check_columns(c, s, answer, h, dv, dv + 1);
        }
    }
}

/* ---------------------------------------------------------------- a call */

static void take_way(la_call *call) {
    int isa = input_below(5);
    call->form = input_below(4);
    call->chunk = input_below(2) ? input_below(24) : 0;
    call->isa = la_isa_available(isa) ? isa : LA_ISA_AUTO;
}

static void check_sequence(const Case *c, int64_t b) {
    Single s = {0};
    Answer answer;
    int promised;
    single_new(c, b, &s);
    run(&c->layer, s.call);
    must_equal_case(c, &s);
    promised = is_promised(c, &s);
    if (promised) {
        answer_new(c, &s, &answer);
        check_answer(c, &s, &answer);
    }
    if (!c->layer.bidirectional) {
        check_split(c, &s); /* with the instruction set of the case: snapshots have its bits */
    }
    take_way(&s.call);
    new_results(c, &s);
    run(&c->layer, s.call);
    if (promised) {
        check_answer(c, &s, &answer);
    }
    check_local(c, &s);
}

/* All slices, in either order, or, of very many, the one that the call is. */
static void run_slices(const Case *c) {
    la_call call = c->call;
    int64_t n = call.thread_count, i, backwards = input_below(2);
    int all = n <= 8;
    for (i = 0; i < (all ? n : 1); i++) {
        la_status status;
        call.thread_index = all ? (backwards ? n - 1 - i : i) : call.thread_index;
        status = la_forward(&c->layer, &call);
        MUST(status == LA_OK, "slice %d: %s", (int)call.thread_index, la_status_text(status));
    }
}

static void fuzz_call(void) {
    Case *c = &tried;
    la_status status;
    int64_t b;
    case_new(c);
    buffers_remember();
    status = check_answers(c);
    check_plan(c, status);
    if (status != LA_OK) {
        MUST(la_forward(&c->layer, &c->call) == status, "%s", la_status_text(status));
        buffers_check(1);
        return;
    }
    case_meets(c);
    if (!case_holds(c) || case_cost(c) > 3e6) {
        return;
    }
    each_written(c, allow);
    buffer_allow(c->call.workspace, la_workspace_size(&c->layer, &c->call));
    run_slices(c);
    buffers_check(0);
    if (!c->known || c->call.thread_count > 8) {
        return;
    }
    each_written(c, must_be_written);
    for (b = 0; b < c->call.batch && b < 4; b++) {
        check_sequence(c, b);
    }
}

/* ---------------------------------------------------------------- states */

/* Counts or layers that no state has. */
static void refuse_states(const la_layer *layer, int64_t count) {
    float *a = buffer_new(64, 0), *b = buffer_new(64, 0);
    buffers_remember();
    MUST(la_state_reset(layer, count, a) != LA_OK, "reset");
    MUST(la_state_save(layer, count, a, b, 64) != LA_OK, "save");
    MUST(la_state_load(layer, count, a, 64, b) != LA_OK, "load");
    MUST(la_state_convert(layer, count, LA_KV, a, LA_VK, b) != LA_OK, "convert");
    buffers_check(1);
}

static float *random_states(size_t floats) {
    float *states = buffer_new(floats * sizeof *states, 0);
    size_t i;
    for (i = 0; i < floats; i++) {
        uint32_t bits = (uint32_t)noise_bits(); /* NaNs included */
        memcpy(&states[i], &bits, sizeof bits);
    }
    return states;
}

static void must_be_same_bytes(const void *got, const void *want, size_t bytes, const char *what) {
    MUST(bytes == 0 || memcmp(got, want, bytes) == 0, "%s", what);
}

static void check_bytes(const la_layer *layer, int64_t count, size_t floats) {
    size_t bytes = la_state_blob_size(layer, count), shift = (size_t)input_below(4), i;
    float *states = random_states(floats), *back = buffer_new(floats * 4, 0);
    unsigned char *blob = (unsigned char *)buffer_new(bytes + shift, 0) + shift;
    int spoilt, header = 0;
    la_status status;
    MUST(bytes == floats * 4 + 64, "%zu bytes for %zu floats", bytes, floats);
    MUST(la_state_save(layer, count, states, blob, bytes - 1) == LA_E_BLOB, "short");
    MUST(la_state_save(layer, count, states, blob, bytes) == LA_OK, "save");
    MUST(la_state_load(layer, count, blob, bytes - 1, back) == LA_E_BLOB, "short");
    MUST(la_state_load(layer, count, blob, bytes, back) == LA_OK, "load");
    must_be_same_bytes(back, states, floats * 4, "states as bytes");
    for (spoilt = input_below(3); spoilt > 0; spoilt--) {
        i = (size_t)input_number() % (input_below(2) ? bytes : 64);
        blob[i] = (unsigned char)(blob[i] ^ (1 + input_below(255)));
        header |= i < 64;
    }
    buffers_remember();
    status = la_state_load(layer, count, blob, bytes, back);
    MUST(status == LA_OK || (status == LA_E_BLOB && header), "spoilt: %d", status);
    if (status != LA_OK) {
        buffers_check(1);
    }
}

static void must_be_moved(const la_layer *layer, int64_t count, int from_layout, const float *from,
                          int to_layout, const float *to) {
    la_layer a = *layer, b = *layer;
    int64_t n, h, i, j, r = oracle_features(layer), floats = (int64_t)case_state_floats(layer);
    a.state_layout = from_layout;
    b.state_layout = to_layout;
    for (n = 0; n < count; n++, from += floats, to += floats) {
        for (h = 0; h < layer->heads; h++) {
            for (i = 0; i < r; i++) {
                for (j = 0; j < layer->dim_v + (layer->normalised ? 1 : 0); j++) {
                    must_be_same_bytes(&to[oracle_state_index(&b, h, i, j)],
                                       &from[oracle_state_index(&a, h, i, j)], 4, "layouts");
                }
            }
        }
    }
}

static void check_layouts(const la_layer *layer, int64_t count, size_t floats) {
    float *from = random_states(floats), *to = buffer_new(floats * 4, 0);
    float *back = buffer_new(floats * 4, 0);
    int first = input_below(4) - 1, second = input_below(4) - 1;
    int sound = first >= 0 && first <= 1 && second >= 0 && second <= 1;
    la_status status = la_state_convert(layer, count, first, from, second, to);
    MUST((status == LA_OK) == sound, "%d -> %d: %d", first, second, status);
    if (!sound) {
        return;
    }
    MUST(la_state_convert(layer, count, second, to, first, back) == LA_OK, "back");
    must_be_moved(layer, count, first, from, second, to);
    must_be_same_bytes(back, from, floats * 4, "there and back");
    MUST(la_state_reset(layer, count, to) == LA_OK, "reset");
    for (; floats > 0; floats--) {
        MUST(to[floats - 1] == 0, "float %zu", floats - 1);
    }
}

/* Both in one buffer, `apart` floats from each other. */
static void check_overlap(const la_layer *layer, int64_t count, size_t floats) {
    size_t apart = (size_t)input_below(256) * (size_t)input_below(16);
    float *low = random_states(floats + apart), *high = low + apart;
    int down = input_below(2), meet = floats > 0 && apart < floats;
    la_status status;
    buffers_remember();
    status = la_state_convert(layer, count, LA_KV, down ? high : low, LA_VK, down ? low : high);
    MUST(status == (meet ? LA_E_OVERLAP : LA_OK), "%zu apart, %zu long: %d", apart, floats, status);
    if (meet) {
        buffers_check(1);
    }
}

static void fuzz_states(void) {
    Case *c = &tried;
    int64_t count;
    double floats;
    int sound;
    case_layer(c);
    noise_seed((uint64_t)input_below(256));
    if (input_chance(3)) {
        case_spoil(c, 0);
    }
    case_projection(c);
    count = input_chance(4) ? input_number() : input_below(4);
    floats = case_state_floats(&c->layer) * (double)count;
    sound = la_state_floats(&c->layer) > 0 && count >= 0 && count <= (int64_t)1 << 48;
    MUST(c->wild || la_state_floats(&c->layer) > 0, "a sound layer");
    if (!sound) {
        refuse_states(&c->layer, count);
    } else if (floats * 16 <= BUFFER_LIMIT) {
        check_bytes(&c->layer, count, (size_t)floats);
        check_layouts(&c->layer, count, (size_t)floats);
        check_overlap(&c->layer, count, (size_t)floats);
    }
}

/* ---------------------------------------------------------------- helpers */

static int64_t take_count(int64_t most) {
    int64_t n = input_chance(4) ? input_number() : input_below(40);
    return n > most ? n % (most + 1) : n;
}

static void fuzz_gates(void) {
    int64_t heads = input_chance(4) ? input_number() : input_below(70), i;
    int64_t count = input_chance(4) ? input_number() : heads, first = 0, layer, layers;
    float *gates = buffer_new(4096 * 4, 0);
    if (heads <= 4096 || heads > 1 << 20) {
        la_status status = la_retnet_log_decay(gates, heads);
        MUST((status == LA_OK) == (heads >= 0 && heads <= 1 << 20), "%d", status);
        for (i = 0; status == LA_OK && i < heads; i++) {
            MUST(gates[i] <= 0 && gates[i] > -0.04f, "%g", (double)gates[i]);
        }
    }
    first = input_chance(3) ? input_number() : 0;
    layer = input_chance(3) ? input_number() : input_below(8);
    layers = input_chance(3) ? input_number() : input_below(16);
    if (count <= 4096) {
        la_status status = la_lightning_log_decay(gates, count, first, heads, layer, layers);
        for (i = 0; status == LA_OK && i < count; i++) {
            MUST(gates[i] <= 0 && gates[i] >= -2, "%g", (double)gates[i]);
        }
    }
}

static float *random_numbers(int64_t n) {
    float *x = buffer_new((size_t)n * sizeof *x, 0);
    int64_t i;
    for (i = 0; i < n; i++) {
        x[i] = input_float();
    }
    return x;
}

/* Of KDA, with `rows` channels to each of its rows, and of Mamba-2. */
static void fuzz_more_gates(int64_t rows, int64_t heads) {
    int64_t i, n = rows * heads;
    float *a = random_numbers(n), *A = random_numbers(heads), *bias = random_numbers(n);
    float *g = buffer_new((size_t)n * 4, 0), *dt = buffer_new((size_t)n * 4, 0);
    float low = input_float(), high = input_float();
    int bounded = isfinite(low) && low <= 0, limited = isfinite(low) && low >= 0;
    limited = limited && (high == 0 || high >= low);
    MUST(la_kda_log_decay(g, a, A, bias, low, 1, heads, rows) == (bounded ? LA_OK : LA_E_VALUE),
         "bound %g", (double)low);
    for (i = 0; bounded && i < n; i++) {
        int finite = isfinite(a[i]) && isfinite(A[i / rows]) && isfinite(bias[i]);
        MUST(!finite || (g[i] <= 0 && (low == 0 || g[i] >= low)), "%g", (double)g[i]);
    }
    MUST(la_mamba2_gates(dt, g, a, A, bias, low, high, rows, heads) ==
             (limited ? LA_OK : LA_E_VALUE),
         "limits %g, %g", (double)low, (double)high);
    for (i = 0; limited && i < n; i++) {
        int finite = isfinite(a[i]) && isfinite(A[i % heads]) && isfinite(bias[i % heads]);
        MUST(!finite || (g[i] <= 0 && dt[i] >= low && (high == 0 || dt[i] <= high)), "%g, %g",
             (double)dt[i], (double)g[i]);
    }
}

static void fuzz_curves(void) {
    int64_t rows = input_below(5), heads = input_below(5), i, n = rows * heads;
    float *a = random_numbers(n), *A = random_numbers(heads), *bias = random_numbers(heads);
    float *y = buffer_new((size_t)n * 4, 0);
    buffers_remember();
    for (i = 0; i < n; i++) {
        buffer_allow(&y[i], sizeof *y);
    }
    MUST(la_sigmoid(y, a, n) == LA_OK, "sigmoid");
    for (i = 0; i < n; i++) {
        MUST(isnan(a[i]) ? isnan(y[i]) : y[i] >= 0 && y[i] <= 1, "%g", (double)y[i]);
    }
    MUST(la_gate_log_decay(y, a, A, bias, rows, heads) == LA_OK, "gates");
    for (i = 0; i < n; i++) {
        int finite = isfinite(a[i]) && isfinite(A[i % heads]) && isfinite(bias[i % heads]);
        MUST(!finite || y[i] <= 0, "%g %g %g: %g", (double)a[i], (double)A[i % heads],
             (double)bias[i % heads], (double)y[i]);
    }
    buffers_check(0);
    MUST(la_gate_log_decay(a, a, A, bias, rows, heads) == LA_OK, "in place");
    must_equal(a, y, (size_t)n, "in place");
    MUST(la_sigmoid(NULL, a, input_number() | INT64_MIN) == LA_E_SIZE, "a count below 0");
    MUST(la_gate_log_decay(NULL, a, A, bias, -1, input_number()) == LA_E_SIZE, "-1 rows");
    fuzz_more_gates(rows, heads);
}

static void fuzz_projection(void) {
    int64_t m = take_count(64), dk = take_count(64), i;
    int kind = input_below(5) - 1, sound = m >= 1 && dk >= 1 && kind >= 0 && kind <= 2;
    float *W = buffer_new(m > 0 && dk > 0 ? (size_t)(m * dk) * 4 : 0, 0);
    la_status status = la_favor_projection(W, m, dk, kind, (uint64_t)input_number());
    MUST((status == LA_OK) == sound, "%d", status);
    for (i = 0; sound && i < m * dk; i++) {
        MUST(isfinite(W[i]), "%lld x %lld, kind %d", (long long)m, (long long)dk, kind);
    }
}

/* Numbers that no layer has, into everything that takes numbers. */
static void fuzz_initialisers(void) {
    la_layer *layer = &tried.layer;
    la_call *call = &tried.call;
    int number = (int)(input_number() % 100);
    la_variant variant = (la_variant)input_below(24), found;
    int64_t heads = input_number(), dk = input_number(), dv = input_number();
    la_status status = la_layer_init(layer, variant, heads, dk, dv);
    MUST((layer->struct_size == sizeof *layer) == (status == LA_OK), "%d", status);
    status = la_call_init(call, layer, input_number(), input_number());
    MUST((call->struct_size == sizeof *call) == (status == LA_OK), "%d", status);
    (void)la_bthd(NULL, input_number(), input_number(), input_number());
    (void)la_bhtd_out(NULL, input_number(), input_number(), input_number());
    check_plan(&tried, la_check(layer, call, NULL));
    MUST(la_status_text((la_status)number) != NULL, "%d", number);
    MUST((la_isa_name(number) != NULL) == (number >= 0 && number <= 4), "%d", number);
    (void)la_isa_available(number);
    if (la_variant_name(variant) != NULL) {
        status = la_variant_find(la_variant_name(variant), &found);
        MUST(status == LA_OK && found == variant, "%d: %d", (int)variant, status);
    }
}

static void fuzz_helpers(void) {
    noise_seed((uint64_t)input_below(256));
    switch (input_below(4)) {
    case 0: fuzz_gates(); break;
    case 1: fuzz_curves(); break;
    case 2: fuzz_projection(); break;
    default: fuzz_initialisers(); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int kind;
    input_set(data, size);
    memset(&tried, 0, sizeof tried);
    kind = input_below(16);
    if (kind < 13) {
        fuzz_call();
    } else if (kind < 15) {
        fuzz_states();
    } else {
        fuzz_helpers();
    }
    buffers_free();
    return 0;
}
