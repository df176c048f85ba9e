/* What a server does: ragged batches by offsets, states in pools by slot, snapshots for speculative
   decoding, states as bytes; and the shapes and distances in memory that come with it. */
#define _DEFAULT_SOURCE /* MAP_NORESERVE */

#include "linear_attention.h"

#include "oracle.h"
#include "test.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---------------------------------------------------------------- what to try */

static const Spec rows[] = {
    {.variant = LA_RETNET, .gate = GATE_MILD},
    {.variant = LA_LIGHTNING, .gate = GATE_HEAD},
    {.variant = LA_GLA, .gate = GATE_STRONG, .gate_channel = 1},
    {.variant = LA_DELTANET, .beta = BETA_TOKEN},
    {.variant = LA_GATED_DELTANET, .gate = GATE_MIXED, .beta = BETA_TOKEN},
    {.variant = LA_KDA, .gate = GATE_MILD, .gate_channel = 1, .beta = BETA_CHANNEL},
    {.variant = LA_RWKV6, .gate = GATE_MIXED, .gate_channel = 1, .token_bonus = 1},
    {.variant = LA_RWKV7, .gate = GATE_MIXED, .gate_channel = 1},
    {.variant = LA_GDN2, .gate = GATE_STRONG, .gate_channel = 1, .beta = BETA_CHANNEL},
    {.variant = LA_ELU, .gate = GATE_MILD},
    {.variant = LA_FAVOR, .features = 11},
    {.variant = LA_FAVOR, .features = 5, .favor_kernel = LA_FAVOR_HYPERBOLIC, .gate = GATE_MILD},
    {.variant = LA_COSFORMER, .position = 5, .horizon = 2000},
    {.variant = LA_DPFP, .nu = 2, .beta = BETA_TOKEN},
    {.variant = LA_BASED, .gate = GATE_MILD},
    {.variant = LA_HEDGEHOG, .features = 11, .query_projection = 1, .projection_bias = 1},
    {.variant = LA_RFF, .features = 40, .gate = GATE_MILD, .head_projections = 1},
    {.variant = LA_MAPPED, .positive = 1, .gate = GATE_MILD, .gate_channel = 1},
    {.variant = LA_ELU, .bidirectional = 1},
    {.variant = LA_FAVOR, .features = 11, .bidirectional = 1},
    {.variant = LA_COSFORMER, .position = 5, .horizon = 2000, .bidirectional = 1},
    {.variant = LA_BASED, .bidirectional = 1},
    {.variant = LA_HEDGEHOG, .features = 11, .bidirectional = 1},
    {.variant = LA_RFF, .features = 40, .query_projection = 1, .bidirectional = 1},
    {.variant = LA_MAPPED, .positive = 1, .bidirectional = 1},
};
enum { CAUSAL_CASES = 36, CASES = 2 * COUNT(rows) }; /* each row with both layouts */

static const Way forms[] = {{LA_AUTO, 0, 0, 1},      {LA_PARALLEL, 0, 0, 1},
                            {LA_RECURRENT, 0, 0, 1}, {LA_CHUNKWISE, 0, 0, 1},
                            {LA_CHUNKWISE, 0, 1, 1}, {LA_CHUNKWISE, 0, 5, 1},
                            {LA_CHUNKWISE, 0, 16, 1}};

static int next_way(int i, Way *way) {
    i = thinned(i);
    *way = forms[i % COUNT(forms)];
    return isa_number(i / COUNT(forms), &way->isa);
}

/* One long sequence, on whose token axis shorter ones are laid out. */
static Spec axis_spec(int i, int64_t tokens) {
    Spec spec = rows[i / 2];
    spec.layout = i % 2;
    spec.T = tokens;
    spec.H = 2;
    spec.Hq = i % 5 == 2 ? 4 : 2;
    spec.dk = 7;
    spec.dv = 19;
    spec.shift = i % 3 == 1;
    spec.strides = i % 4 == 3 ? STRIDES_QKV : STRIDES_BTHD;
    return spec;
}

static Problem *axis_new(int i, int64_t tokens) {
    Spec spec = axis_spec(i, tokens);
    return problem_new(&spec);
}

/* Every thread's slice, each in a workspace of just its size that holds NaN. */
static void run_call(const Problem *problem, la_call call) {
    const char *field = NULL;
    for (call.thread_index = 0; call.thread_index < call.thread_count; call.thread_index++) {
        float *workspace;
        la_status status;
        call.workspace_size = la_workspace_size(&problem->layer, &call);
        call.workspace = workspace = guarded_new(call.workspace_size / sizeof(float), 1);
        status = la_check(&problem->layer, &call, &field);
        CHECK(status == LA_OK, "%s (%s): %s", la_status_text(status), field,
              status == LA_OK ? "" : problem_text(problem));
        CHECK(la_forward(&problem->layer, &call) == status, "la_forward differs from la_check");
        guarded_free(workspace);
    }
}

static void check_bytes(const Problem *problem, const char *what, const float *got,
                        const float *want, size_t count) {
    size_t i = 0;
    while (i < count && memcmp(&got[i], &want[i], sizeof *got) == 0) {
        i++;
    }
    CHECK(i == count, "%s: %s[%zu of %zu]: %.9g, want %.9g", i < count ? problem_text(problem) : "",
          what, i, count, i < count ? (double)got[i] : 0, i < count ? (double)want[i] : 0);
}

/* ---------------------------------------------------------------- ragged batches */

enum { BATCH = 8, FIRST = 3, AXIS = FIRST + 69 + 4, SLOTS = 11 };

static const int64_t ragged[BATCH + 1] = {3, 8, 8, 9, 26, 26, 28, 59, 72};

/* A batch on one axis. `pool_in` is what the states of `from` start as. */
typedef struct Batch {
    const Problem *problem;
    la_call call;
    float *from, *to, *pool_in, *out; /* from == to: in place */
    float *want_to, *want_out;
    int64_t positions[BATCH];
    size_t pool_floats, out_floats;
} Batch;

typedef struct Slots {
    int in_place;
    int64_t in[BATCH], out[BATCH];
} Slots;

/* Negative: none. In place, nobody reads what another writes. */
static const Slots slots[] = {
    {0, {7, 3, 3, -1, 0, -9, 10, 4}, {2, -1, 0, 10, 5, 1, 6, 3}},
    {1, {7, 3, 5, -1, 0, 9, 10, 4}, {7, 1, -1, 2, 0, 8, 10, 6}},
    {1, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}},
    {0, {-1, -1, -1, -1, -1, 2, -1, 3}, {-1, -1, 1, -1, -1, 0, -2, -1}},
};

static float *filled_copy(const float *from, size_t count) {
    float *to = guarded_new(count, 1);
    if (from != NULL) {
        memcpy(to, from, count * sizeof *to);
    }
    return to;
}

/* State s is the problem's initial one, times 1 + s / 8. */
static float *new_pool(const Problem *problem, size_t count) {
    size_t floats = la_state_floats(&problem->layer), s, i;
    float *pool = guarded_new(count * floats, 1);
    for (s = 0; s < count; s++) {
        for (i = 0; i < floats; i++) {
            pool[s * floats + i] = problem->state_start[i] * (1 + (float)s / 8);
        }
    }
    return pool;
}

static void batch_begin(Batch *batch, const Problem *problem, const Way *way, const Slots *slot) {
    la_call *call = &batch->call;
    int b;
    batch->problem = problem;
    batch->pool_floats = SLOTS * la_state_floats(&problem->layer);
    batch->out_floats = problem->out_floats;
    batch->pool_in = new_pool(problem, SLOTS);
    batch->from = filled_copy(batch->pool_in, batch->pool_floats);
    batch->to = slot->in_place ? batch->from : filled_copy(NULL, batch->pool_floats);
    batch->want_to = filled_copy(slot->in_place ? batch->pool_in : NULL, batch->pool_floats);
    batch->out = filled_copy(NULL, batch->out_floats);
    batch->want_out = filled_copy(NULL, batch->out_floats);
    *call = problem->call;
    call->form = way->form;
    call->isa = way->isa;
    call->chunk = way->chunk;
    call->thread_count = way->threads;
    call->batch = BATCH;
    call->offsets = ragged;
    call->out.data = batch->out;
    call->state_in = batch->from;
    call->state_out = batch->to;
    call->slots_in = slot->in;
    call->slots_out = slot->out;
    for (b = 0; b < BATCH; b++) {
        batch->positions[b] = 5 + 3 * b;
    }
    call->positions = problem->call.positions != NULL ? batch->positions : NULL;
    /* views have no batch then */
    call->q.batch_stride = call->k.batch_stride = call->out.batch_stride = INT64_MAX;
}

static void batch_end(Batch *batch) {
    guarded_free(batch->pool_in);
    guarded_free(batch->from);
    guarded_free(batch->to != batch->from ? batch->to : NULL);
    guarded_free(batch->want_to);
    guarded_free(batch->out);
    guarded_free(batch->want_out);
}

/* The call for tokens first .. first + count - 1 of the axis, as the only sequence. */
static la_call part_of(const la_call *call, int64_t first, int64_t count) {
    la_call part = *call;
    part.batch = 1;
    part.offsets = part.lengths = NULL;
    part.slots_in = part.slots_out = NULL;
    part.snapshots = NULL;
    part.tokens = part.keys = count;
    part.thread_count = 1;
    call_skip(&part, first);
    return part;
}

static void run_alone(Batch *batch, const Slots *slot, int b) {
    int64_t floats = (int64_t)la_state_floats(&batch->problem->layer);
    la_call call = part_of(&batch->call, ragged[b], ragged[b + 1] - ragged[b]);
    call.out.data = batch->want_out + (call.out.data - batch->out);
    call.positions = call.positions != NULL ? &batch->positions[b] : NULL;
    call.state_in = slot->in[b] < 0 ? NULL : batch->pool_in + slot->in[b] * floats;
    call.state_out = slot->out[b] < 0 ? NULL : batch->want_to + slot->out[b] * floats;
    run_call(batch->problem, call);
}

static void check_batch(Problem *problem, const Way *way, const Slots *slot) {
    Batch batch;
    int b;
    problem->way = *way;
    batch_begin(&batch, problem, way, slot);
    run_call(problem, batch.call);
    for (b = 0; b < BATCH; b++) {
        run_alone(&batch, slot, b);
    }
    check_bytes(problem, "output", batch.out, batch.want_out, batch.out_floats);
    check_bytes(problem, "states", batch.to, batch.want_to, batch.pool_floats);
    if (!slot->in_place) {
        check_bytes(problem, "what was read", batch.from, batch.pool_in, batch.pool_floats);
    }
    batch_end(&batch);
}

/* Rows of no sequence and states of no slot still hold what they did: they are compared too. */
TEST(serving_ragged_batches_equal_separate_calls) {
    int i, n, s;
    for (i = 0; i < CASES; i++) {
        Problem *problem = axis_new(i, AXIS);
        Way way;
        for (n = 0; next_way(n, &way); n++) {
            for (s = 0; s < COUNT(slots); s++) {
                way.threads = (n + s) % 3 == 2 ? 3 : 1;
                check_batch(problem, &way, &slots[s]);
            }
        }
        problem_free(problem);
    }
}

/* Of heads this wide LA_AUTO takes other forms where a sequence has no state: by its slot. */
TEST(serving_automatic_forms_look_at_the_slot) {
    int i, n, s;
    for (i = 0; i < CASES; i++) {
        Way way = {LA_AUTO, 0, 0, 1};
        Spec spec = axis_spec(i, AXIS);
        Problem *problem;
        spec.dk = spec.dv = 48;
        problem = problem_new(&spec);
        for (n = 0; isa_number(n, &way.isa); n++) {
            for (s = 0; s < COUNT(slots); s++) {
                check_batch(problem, &way, &slots[s]);
            }
        }
        problem_free(problem);
    }
}

/* Slots go with padded batches too: here each sequence of the rows' usual layout. */
TEST(serving_slots_of_padded_batches) {
    static const int64_t in[] = {3, -1, 0, 2}, out[] = {1, 4, -1, 0};
    int i, n, b;
    for (i = 0; i < CASES; i++) {
        Spec spec = rows[i / 2];
        Problem *problem;
        Way way;
        spec.layout = i % 2;
        spec.B = 4;
        spec.T = 13;
        spec.H = 3;
        spec.dk = spec.dv = 5;
        spec.ragged = 1;
        problem = problem_new(&spec);
        for (n = 0; next_way(n, &way); n++) {
            int64_t floats = (int64_t)la_state_floats(&problem->layer);
            float *pool = new_pool(problem, 4), *got = guarded_new((size_t)(5 * floats), 0);
            float *want = filled_copy(NULL, (size_t)(5 * floats));
            la_call call = problem->call;
            call.form = way.form;
            call.isa = way.isa;
            call.chunk = way.chunk;
            call.state_in = pool;
            call.state_out = got;
            call.slots_in = in;
            call.slots_out = out;
            run_call(problem, call);
            for (b = 0; b < 4; b++) { /* all sequences, one of which is looked at */
                int64_t own_in[] = {-1, -1, -1, -1}, own_out[] = {-1, -1, -1, -1};
                own_in[b] = in[b];
                own_out[b] = out[b];
                call.state_out = want;
                call.slots_in = own_in;
                call.slots_out = own_out;
                run_call(problem, call);
            }
            check_bytes(problem, "states", got, want, (size_t)(5 * floats));
            guarded_free(pool);
            guarded_free(got);
            guarded_free(want);
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- bad input */

enum { H = 2, DK = 3, DV = 5, B = 3, TOKENS = 7, STATE = H * DK * DV };
enum { Q, K, V, OUT, IN, TO, SNAPSHOTS, PLACES };
enum { WORKSPACE = 8192, PLACE = 512, ARENA = WORKSPACE + PLACES * PLACE }; /* floats */

static float arena[ARENA], before[ARENA];

static float *place(int i) {
    return arena + WORKSPACE + i * PLACE;
}

/* A good ragged call over buffers of one arena: a byte written anywhere shows. */
static void fixture(la_layer *layer, la_call *call) {
    static const int64_t offsets[B + 1] = {1, 3, 3, 6};
    int i;
    for (i = 0; i < ARENA; i++) {
        arena[i] = before[i] = -0.125f;
    }
    CHECK(la_layer_init(layer, LA_DELTANET, H, DK, DV) == LA_OK, "layer");
    CHECK(la_call_init(call, layer, B, TOKENS) == LA_OK, "call");
    call->q = la_bthd(place(Q), TOKENS, H, DK);
    call->k = la_bthd(place(K), TOKENS, H, DK);
    call->v = la_bthd(place(V), TOKENS, H, DV);
    call->out = la_bthd_out(place(OUT), TOKENS, H, DV);
    call->state_in = place(IN);
    call->state_out = place(TO);
    call->offsets = offsets;
    call->form = LA_RECURRENT;
    call->workspace = arena;
    call->workspace_size = la_workspace_size(layer, call);
    CHECK(call->workspace_size <= WORKSPACE * sizeof(float), "workspace");
}

static void check_answer(const la_layer *layer, const la_call *call, la_status status,
                         const char *field, const char *what, int line) {
    const char *named = NULL;
    la_status got = la_check(layer, call, &named);
    CHECK(got == status, "line %d: %s: want %d, got %d (%s)", line, what, status, got,
          named ? named : "-");
    if (status != LA_OK) {
        CHECK(named != NULL && strcmp(named, field) == 0, "line %d: %s: want field %s, got %s",
              line, what, field, named ? named : "(null)");
    }
    if (got == status) { /* a fault that is not seen could write anywhere: not run */
        CHECK(la_forward(layer, call) == status, "line %d: %s: la_forward differs", line, what);
    }
    CHECK((memcmp(arena, before, sizeof arena) == 0) == (status != LA_OK),
          "line %d: %s: an arena that was %swritten", line, what, status != LA_OK ? "" : "not ");
}

#define ANSWERS(status, field, ...)                                                                \
    do {                                                                                           \
        la_layer layer;                                                                            \
        la_call call;                                                                              \
        fixture(&layer, &call);                                                                    \
        __VA_ARGS__;                                                                               \
        check_answer(&layer, &call, status, field, #__VA_ARGS__, __LINE__);                        \
    } while (0)

/* The numbers as a list that outlives the call. */
#define LIST(name, ...) static const int64_t name[] = {__VA_ARGS__}

TEST(serving_offsets_are_checked) {
    LIST(descending, 3, 2, 4, 6);
    LIST(last_descends, 0, 2, 6, 5);
    LIST(negative, -1, 2, 4, 6);
    LIST(beyond, 0, 2, 4, TOKENS + 1);
    LIST(first_beyond, TOKENS + 1, TOKENS + 1, TOKENS + 1, TOKENS + 1);
    LIST(least, INT64_MIN, 2, 4, 6);
    LIST(most, 0, 2, 4, INT64_MAX);
    LIST(all, 0, 2, 4, TOKENS);
    LIST(none, TOKENS, TOKENS, TOKENS, TOKENS);
    LIST(lengths, 1, 2, 3);
    ANSWERS(LA_OK, NULL, (void)0);
    ANSWERS(LA_OK, NULL, call.offsets = all);
    ANSWERS(LA_OK, NULL, call.offsets = none); /* hands the states through */
    ANSWERS(LA_OK, NULL, call.q.batch_stride = INT64_MIN, call.out.batch_stride = 0);
    ANSWERS(LA_E_SIZE, "offsets", call.offsets = descending);
    ANSWERS(LA_E_SIZE, "offsets", call.offsets = last_descends);
    ANSWERS(LA_E_SIZE, "offsets", call.offsets = negative);
    ANSWERS(LA_E_SIZE, "offsets", call.offsets = beyond);
    ANSWERS(LA_E_SIZE, "offsets", call.offsets = first_beyond);
    ANSWERS(LA_E_SIZE, "offsets", call.offsets = least);
    ANSWERS(LA_E_SIZE, "offsets", call.offsets = most);
    ANSWERS(LA_E_VALUE, "lengths", call.lengths = lengths);
    ANSWERS(LA_E_VALUE, "key_lengths", layer.write = LA_WRITE_ADD,
            layer.normalised = layer.bidirectional = 1, call.key_lengths = lengths);
    ANSWERS(LA_E_SIZE, "keys", layer.write = LA_WRITE_ADD, layer.normalised = 1,
            layer.bidirectional = 1, call.keys = TOKENS - 1);
    ANSWERS(LA_E_OVERLAP, "state_out", call.offsets = (const int64_t *)(void *)place(TO),
            memset(place(TO), 0, 64), memset(before + (place(TO) - arena), 0, 64));
}

TEST(serving_slots_are_checked) {
    LIST(swapped, 2, 0, 1);
    LIST(straight, 0, 1, 2);
    LIST(twice, 1, 4, 1);
    LIST(twice_together, 2, 2, -1);
    LIST(absent, -1, -1, INT64_MIN);
    LIST(huge, 0, 1, INT64_MAX);
    LIST(far, 0, 1, (int64_t)1 << 47);
    LIST(others, 3, 4, 5);
    LIST(read, 5, 1, 7);
    LIST(writes_read, 2, 5, 8);
    ANSWERS(LA_OK, NULL, call.slots_in = straight, call.slots_out = swapped);
    ANSWERS(LA_OK, NULL, call.slots_in = twice); /* two may read one */
    ANSWERS(LA_OK, NULL, call.slots_in = absent, call.slots_out = absent);
    ANSWERS(LA_OK, NULL, call.state_in = place(TO), call.slots_in = swapped,
            call.slots_out = swapped);
    ANSWERS(LA_OK, NULL, call.state_in = place(TO), call.slots_in = straight,
            call.slots_out = others);
    ANSWERS(LA_OK, NULL, call.state_in = place(TO), call.slots_out = absent);
    ANSWERS(LA_OK, NULL, call.state_in = NULL, call.slots_out = swapped);
    ANSWERS(LA_OK, NULL, call.state_out = NULL, call.slots_in = twice);
    ANSWERS(LA_E_OVERLAP, "slots_out", call.slots_out = twice);
    ANSWERS(LA_E_OVERLAP, "slots_out", call.slots_out = twice_together);
    ANSWERS(LA_E_OVERLAP, "slots_in", call.state_in = place(TO), call.slots_in = straight,
            call.slots_out = swapped);
    ANSWERS(LA_E_OVERLAP, "slots_in", call.state_in = place(TO), call.slots_in = swapped);
    ANSWERS(LA_E_OVERLAP, "slots_in", call.state_in = place(TO), call.slots_out = swapped);
    ANSWERS(LA_E_OVERLAP, "slots_in", call.state_in = place(TO), call.slots_in = read,
            call.slots_out = writes_read);
    ANSWERS(LA_E_NULL, "state_in", call.state_in = NULL, call.slots_in = straight);
    ANSWERS(LA_E_NULL, "state_out", call.state_out = NULL, call.slots_out = straight);
    ANSWERS(LA_E_SIZE, "slots_in", call.slots_in = huge);
    ANSWERS(LA_E_SIZE, "slots_out", call.slots_out = huge);
    ANSWERS(LA_E_OVERFLOW, "state_out", call.slots_out = far, call.state_out_stride = 1 << 16);
    /* the pool reaches as far as its last slot */
    ANSWERS(LA_E_OVERLAP, "state_out", call.state_out = place(IN) - 8 * STATE,
            call.slots_out = writes_read);
    ANSWERS(LA_OK, NULL, call.state_out = place(IN) - 3 * STATE);
}

/* One pool, one sequence: what it reads and writes may be the same state, not parts of it. */
TEST(serving_slots_of_one_sequence_overlap) {
    LIST(first, 0);
    LIST(second, 1);
    LIST(third, 2);
    ANSWERS(LA_OK, NULL, call.batch = 1, call.state_in = place(TO), call.slots_in = second,
            call.slots_out = third);
    ANSWERS(LA_E_OVERLAP, "state_out", call.batch = 1, call.state_in = place(TO),
            call.slots_in = call.slots_out = second, call.state_out_stride = STATE + 2);
    ANSWERS(LA_E_OVERLAP, "state_out", call.batch = 1, call.state_in = place(TO),
            call.slots_in = second, call.slots_out = first,
            call.state_in_stride = call.state_out_stride = STATE - 1);
    ANSWERS(LA_E_OVERLAP, "state_out", call.batch = 1, call.state_in = place(TO),
            call.slots_in = first, call.slots_out = third, call.state_out_stride = 1);
}

TEST(serving_snapshots_are_checked) {
    int form;
    for (form = LA_AUTO; form <= LA_CHUNKWISE; form++) {
        int status = form == LA_RECURRENT ? LA_OK : LA_E_FORM;
        ANSWERS((la_status)status, "snapshots", call.form = form, call.snapshots = place(SNAPSHOTS),
                call.snapshot_count = 3, call.workspace_size = WORKSPACE * sizeof(float));
    }
    ANSWERS(LA_E_FORM, "snapshots", layer.write = LA_WRITE_ADD,
            layer.normalised = layer.bidirectional = 1, call.snapshots = place(SNAPSHOTS),
            call.snapshot_count = 1);
    ANSWERS(LA_E_SIZE, "snapshot_count", call.snapshots = place(SNAPSHOTS),
            call.snapshot_count = -1);
    ANSWERS(LA_E_SIZE, "snapshot_count", call.snapshots = place(SNAPSHOTS),
            call.snapshot_count = INT64_MAX);
    ANSWERS(LA_E_OVERFLOW, "snapshots", call.snapshots = place(SNAPSHOTS), layer.dim_v = DV,
            call.batch = B, call.snapshot_count = (int64_t)1 << 47, layer.heads = layer.q_heads = H,
            call.offsets = NULL, call.batch = (int64_t)1 << 20, call.tokens = call.keys = 0);
    ANSWERS(LA_OK, NULL, call.snapshots = place(SNAPSHOTS), call.snapshot_count = 0);
    ANSWERS(LA_OK, NULL, call.snapshots = NULL, call.snapshot_count = 7);
}

TEST(serving_snapshots_overlap_nothing) {
    static const int places[] = {Q, K, V, OUT, IN, TO};
    enum { FLOATS = B * 2 * STATE };
    int i;
    for (i = 0; i < COUNT(places); i++) {
        float *at = place(places[i]);
        ANSWERS(LA_E_OVERLAP, "snapshots", call.snapshots = at, call.snapshot_count = 2);
        ANSWERS(LA_E_OVERLAP, "snapshots", call.snapshots = at + 1 - FLOATS,
                call.snapshot_count = 2);
        ANSWERS(LA_E_OVERLAP, "snapshots", call.snapshots = at + 5, call.snapshot_count = 2);
    }
    ANSWERS(LA_E_OVERLAP, "snapshots", call.snapshots = arena, call.snapshot_count = 2);
    ANSWERS(LA_OK, NULL, call.snapshots = place(Q) - FLOATS, call.snapshot_count = 2);
}

/* ---------------------------------------------------------------- snapshots */

static const int64_t spec_lengths[] = {0, 1, 3, 4, 5, 18};
enum { START_NONE, START_STATES, START_RESET }; /* what the sequences continue */
enum { DRAFTS = 6, DRAFT_AXIS = 31 + 2 };

static int64_t draft_first(int b) {
    int64_t first = 2;
    while (b-- > 0) {
        first += spec_lengths[b];
    }
    return first;
}

/* Snapshots of a ragged batch, and what is needed to compute the same again. */
typedef struct Drafts {
    const Problem *problem;
    la_call call;
    float *snapshots, *pool, *final, *part_out;
    int64_t window, floats, offsets[DRAFTS + 1], positions[DRAFTS];
} Drafts;

static void drafts_begin(Drafts *drafts, const Problem *problem, const Way *way, int64_t window,
                         int start) {
    la_call *call = &drafts->call;
    size_t floats = la_state_floats(&problem->layer);
    int b;
    drafts->problem = problem;
    drafts->window = window;
    drafts->floats = (int64_t)floats;
    drafts->pool = new_pool(problem, DRAFTS);
    if (start == START_RESET) {
        CHECK(la_state_reset(&problem->layer, DRAFTS, drafts->pool) == LA_OK, "reset");
    }
    drafts->final = guarded_new(DRAFTS * floats, 0);
    drafts->snapshots = guarded_new(DRAFTS * (size_t)(window + 1) * floats, 1);
    drafts->part_out = guarded_new(problem->out_floats, 0);
    *call = problem->call;
    call->form = LA_RECURRENT;
    call->isa = way->isa;
    call->thread_count = way->threads;
    call->batch = DRAFTS;
    call->offsets = drafts->offsets;
    call->state_in = start != START_NONE ? drafts->pool : NULL;
    call->state_out = start != START_NONE ? drafts->final : NULL;
    call->snapshots = drafts->snapshots;
    call->snapshot_count = window + 1;
    call->positions = problem->call.positions != NULL ? drafts->positions : NULL;
    for (b = 0; b <= DRAFTS; b++) {
        drafts->offsets[b] = draft_first(b);
    }
    for (b = 0; b < DRAFTS; b++) {
        drafts->positions[b] = 2 * b;
    }
}

static void drafts_end(Drafts *drafts) {
    guarded_free(drafts->pool);
    guarded_free(drafts->final);
    guarded_free(drafts->snapshots);
    guarded_free(drafts->part_out);
}

/* Tokens first .. last - 1 of sequence b, from a state to another, which may be none. */
static void run_drafts(const Drafts *drafts, int b, int64_t first, int64_t last, const float *from,
                       float *to) {
    const la_call *whole = &drafts->call;
    int64_t position = drafts->positions[b] + first;
    la_call call = part_of(whole, drafts->offsets[b] + first, last - first);
    call.out.data = drafts->part_out + (call.out.data - whole->out.data);
    call.positions = call.positions != NULL ? &position : NULL;
    call.state_in = from;
    call.state_out = to;
    run_call(drafts->problem, call);
}

/* The snapshot after `accepted` of all tokens of sequence b, which stands `from` the end. */
static void check_draft(const Drafts *drafts, int b, int64_t accepted, const float *snapshot) {
    const Problem *problem = drafts->problem;
    const la_out *out = &problem->call.out;
    int64_t length = spec_lengths[b], row = out->token_stride;
    size_t floats = (size_t)drafts->floats, rest = (size_t)((length - accepted) * row);
    const float *start = drafts->call.state_in ? drafts->pool + b * drafts->floats : NULL;
    float *state = guarded_new(floats, 0);
    run_drafts(drafts, b, 0, accepted, start, state);
    check_bytes(problem, "snapshot", snapshot, state, floats);
    run_drafts(drafts, b, accepted, length, snapshot, state);
    if (drafts->call.state_out != NULL) {
        check_bytes(problem, "final state", state, drafts->final + b * drafts->floats, floats);
    }
    check_bytes(problem, "what follows", drafts->part_out + (drafts->offsets[b] + accepted) * row,
                out->data + (drafts->offsets[b] + accepted) * row, rest);
    guarded_free(state);
}

static void check_untouched(const Problem *problem, const float *snapshot, size_t floats) {
    float *nan = guarded_new(floats, 0);
    check_bytes(problem, "the snapshot of a token that is not there", snapshot, nan, floats);
    guarded_free(nan);
}

static void check_drafts(Problem *problem, const Way *way, int64_t window, int start) {
    Drafts drafts;
    int64_t j;
    int b;
    problem->way = *way;
    drafts_begin(&drafts, problem, way, window, start);
    memset(problem->out_start, 0xff, problem->out_floats * sizeof(float));
    run_call(problem, drafts.call);
    for (b = 0; b < DRAFTS; b++) {
        const float *first = drafts.snapshots + b * (window + 1) * drafts.floats;
        for (j = 0; j <= window; j++) {
            int64_t accepted = spec_lengths[b] - window + j;
            if (accepted < 0) {
                check_untouched(problem, first + j * drafts.floats, (size_t)drafts.floats);
            } else {
                check_draft(&drafts, b, accepted, first + j * drafts.floats);
            }
        }
    }
    drafts_end(&drafts);
}

TEST(serving_snapshots_are_what_fewer_tokens_leave) {
    static const int64_t windows[] = {0, 1, 5, 40};
    int i, n, m, isa, start;
    for (i = 0; i < CAUSAL_CASES; i++) {
        Problem *problem = axis_new(i, DRAFT_AXIS);
        for (n = 0; isa_number((m = thinned(n)) / COUNT(windows), &isa); n++) {
            Way way = {LA_RECURRENT, isa, 0, (i + n) % 2 ? 1 : 3};
            for (start = START_NONE; start <= START_RESET; start++) {
                check_drafts(problem, &way, windows[m % COUNT(windows)], start);
            }
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- states as bytes */

static const la_variant all_variants[] = {
    LA_ELU,      LA_FAVOR,          LA_COSFORMER, LA_RETNET, LA_LIGHTNING, LA_GLA,
    LA_DELTANET, LA_GATED_DELTANET, LA_KDA,       LA_MAMBA2, LA_FWP,       LA_DPFP,
    LA_BASED,    LA_HEDGEHOG,       LA_RFF,       LA_MAPPED, LA_RWKV6,
    LA_RWKV7,    LA_GDN2};

static void plain_layer(la_layer *layer, la_variant variant) {
    static const float projection[4 * 6];
    CHECK(la_layer_init(layer, variant, 3, 4, 5) == LA_OK, "layer");
    layer->horizon = 100;
    if (oracle_projects(layer)) {
        layer->projection = projection;
        layer->features = 6;
    }
}

/* Any bits at all: every kind of NaN, and denormals. */
static void fill_bits(float *x, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)(random_bits() >> 32);
        bits = i % 3 == 0 ? bits | 0x7f800000u : bits;
        memcpy(&x[i], &bits, sizeof bits);
    }
}

static unsigned char *new_bytes(size_t count) {
    return (unsigned char *)guarded_new(count / 4, 1);
}

static void free_bytes(unsigned char *bytes) {
    guarded_free((float *)(void *)bytes);
}

TEST(serving_states_survive_as_bytes) {
    int i, count;
    for (i = 0; i < 2 * COUNT(all_variants); i++) {
        for (count = 0; count <= 3; count++) {
            la_layer layer;
            size_t floats, size;
            float *states, *loaded;
            unsigned char *blob;
            plain_layer(&layer, all_variants[i / 2]);
            layer.state_layout = i % 2;
            floats = (size_t)count * la_state_floats(&layer);
            size = la_state_blob_size(&layer, count);
            CHECK(size == 64 + 4 * floats, "%zu bytes for %zu floats", size, floats);
            states = guarded_new(floats, 1);
            loaded = guarded_new(floats, 1);
            blob = new_bytes(size);
            fill_bits(states, floats);
            CHECK(la_state_save(&layer, count, states, blob, size) == LA_OK, "save");
            CHECK(la_state_load(&layer, count, blob, size, loaded) == LA_OK, "load");
            CHECK(memcmp(states, loaded, floats * sizeof *states) == 0, "variant %d", i / 2);
            CHECK(la_state_load(&layer, count, blob, size + 9, loaded) == LA_OK, "a longer buffer");
            guarded_free(states);
            guarded_free(loaded);
            free_bytes(blob);
        }
    }
}

/* The format itself: a file written on one machine is read on every other. */
TEST(serving_states_as_bytes_are_these) {
    static const unsigned char want[] = {
        'l', 'a', 's', 't', 'a', 't', 'e', 1,    /* magic, version of the format       */
        1,   0,   1,   1,   0,   0,   0,   0,    /* elu, additive, normalised, [dv][r] */
        1,   0,   0,   0,   0,   0,   0,   0,    /* heads                              */
        2,   0,   0,   0,   0,   0,   0,   0,    /* r                                  */
        1,   0,   0,   0,   0,   0,   0,   0,    /* dv                                 */
        1,   0,   0,   0,   0,   0,   0,   0,    /* states                             */
        0,   0,   0,   0,   0,   0,   0,   0,    /* nothing yet                        */
        0,   0,   0,   0,   0,   0,   0,   0,    /* nothing yet                        */
        0,   0,   128, 63,  0,   0,   32,  0xc0, /* S: 1, -2.5                         */
        1,   0,   0,   0,   2,   1,   192, 0x7f, /* z: the least denormal, a NaN       */
    };
    static const uint32_t bits[] = {0x3f800000u, 0xc0200000u, 1, 0x7fc00102u};
    unsigned char blob[sizeof want];
    float states[4], loaded[4];
    la_layer layer;
    CHECK(la_layer_init(&layer, LA_ELU, 1, 2, 1) == LA_OK, "layer");
    layer.state_layout = LA_VK;
    memcpy(states, bits, sizeof states);
    CHECK(la_state_blob_size(&layer, 1) == sizeof want, "%zu", la_state_blob_size(&layer, 1));
    CHECK(la_state_save(&layer, 1, states, blob, sizeof blob) == LA_OK, "save");
    CHECK(memcmp(blob, want, sizeof want) == 0, "the bytes have changed");
    CHECK(la_state_load(&layer, 1, want, sizeof want, loaded) == LA_OK, "load");
    CHECK(memcmp(loaded, states, sizeof states) == 0, "the floats have changed");
}

/* Nothing is written by a load that fails. */
static void check_not_loaded(const la_layer *layer, int64_t count, const unsigned char *blob,
                             size_t size, const char *what, int value) {
    size_t floats = (size_t)count * la_state_floats(layer), i;
    float *states = guarded_new(floats, 0);
    la_status status = la_state_load(layer, count, blob, size, states);
    CHECK(status == LA_E_BLOB, "%s %d: status %d", what, value, status);
    for (i = 0; i < floats * sizeof *states && ((unsigned char *)states)[i] == 0xff; i++) {
    }
    CHECK(i == floats * sizeof *states, "%s %d: byte %zu was written", what, value, i);
    guarded_free(states);
}

TEST(serving_spoilt_bytes_are_refused) {
    enum { STATES = 2 };
    la_layer layer;
    unsigned char *blob, *cut;
    float *states;
    size_t size, floats, n;
    int i, change;
    plain_layer(&layer, LA_FAVOR);
    floats = STATES * la_state_floats(&layer);
    size = la_state_blob_size(&layer, STATES);
    blob = new_bytes(size);
    states = guarded_new(floats, 0);
    fill_bits(states, floats);
    CHECK(la_state_save(&layer, STATES, states, blob, size) == LA_OK, "save");
    for (i = 0; i < 64; i++) {
        for (change = 1; change < 256; change++) {
            blob[i] = (unsigned char)(blob[i] ^ change);
            check_not_loaded(&layer, STATES, blob, size, "byte", i);
            blob[i] = (unsigned char)(blob[i] ^ change);
        }
    }
    for (n = 0; n < size; n++) {
        cut = malloc(n ? n : 1); /* a length of its own, for a sanitizer */
        if (cut == NULL) {
            abort();
        }
        memcpy(cut, blob, n);
        check_not_loaded(&layer, STATES, cut, n, "length", (int)n);
        free(cut);
    }
    check_not_loaded(&layer, STATES - 1, blob, size, "states", 1);
    check_not_loaded(&layer, STATES + 1, blob, size, "states", 3);
    cut = calloc(1, size + 4 * floats);
    if (cut == NULL) {
        abort();
    }
    memcpy(cut, blob, size);
    check_not_loaded(&layer, STATES + 1, cut, size + 4 * floats, "states, a long buffer", 3);
    free(cut);
    CHECK(la_state_load(&layer, STATES, blob, size, states) == LA_OK, "the blob is good");
    guarded_free(states);
    free_bytes(blob);
}

/* A layer that differs in one thing, where it may not. The blob is long enough for any. */
#define REFUSES(base, ...)                                                                         \
    do {                                                                                           \
        static unsigned char blob[1 << 16];                                                        \
        static float states[1 << 13];                                                              \
        la_layer other, layer;                                                                     \
        plain_layer(&layer, base);                                                                 \
        other = layer;                                                                             \
        CHECK(la_state_save(&layer, 1, states, blob, sizeof blob) == LA_OK, "save");               \
        CHECK(la_state_load(&other, 1, blob, sizeof blob, states) == LA_OK, "the same layer");     \
        __VA_ARGS__;                                                                               \
        CHECK(la_state_floats(&other) > 0, "%s", #__VA_ARGS__);                                    \
        check_not_loaded(&other, 1, blob, sizeof blob, #__VA_ARGS__, __LINE__);                    \
    } while (0)

TEST(serving_bytes_of_another_layer_are_refused) {
    REFUSES(LA_RETNET, other.heads = other.q_heads = other.k_heads = 1);
    REFUSES(LA_RETNET, other.dim_k = 5);
    REFUSES(LA_RETNET, other.dim_k = 5, other.dim_v = 4); /* as many floats */
    REFUSES(LA_RETNET, other.dim_v = 6);
    REFUSES(LA_RETNET, other.state_layout = LA_VK);
    REFUSES(LA_RETNET, other.normalised = 1);
    REFUSES(LA_RETNET, other.feature = LA_FEATURE_ELU1);
    REFUSES(LA_RETNET, other.write = LA_WRITE_DELTA);
    REFUSES(LA_RETNET, other.write = LA_WRITE_DPLR);
    REFUSES(LA_RETNET, other.read = LA_READ_BEFORE);
    REFUSES(LA_RWKV6, other.read = LA_READ_AFTER);
    REFUSES(LA_ELU, other.feature = LA_FEATURE_IDENTITY);
    REFUSES(LA_COSFORMER, other.feature = LA_FEATURE_ELU1, other.dim_k = 8); /* r is the same */
    REFUSES(LA_FAVOR, other.features = 5);
    REFUSES(LA_FAVOR, other.favor_kernel = LA_FAVOR_RELU);
    REFUSES(LA_FAVOR, other.favor_kernel = LA_FAVOR_HYPERBOLIC);
    REFUSES(LA_DELTANET, other.write = LA_WRITE_ADD);
    REFUSES(LA_DPFP, other.nu = 2);
    REFUSES(LA_DPFP, other.nu = 2, other.dim_k = 2); /* r is the same */
    REFUSES(LA_HEDGEHOG, other.feature = LA_FEATURE_RFF);
    REFUSES(LA_HEDGEHOG, other.hedgehog_kernel = LA_HEDGEHOG_EXP);
}

TEST(serving_bytes_and_resets_need_sound_arguments) {
    static float states[1000];
    unsigned char blob[4096];
    size_t size, n, i, floats;
    la_layer layer, wrong;
    plain_layer(&layer, LA_DELTANET);
    wrong = layer;
    wrong.heads = 0;
    floats = la_state_floats(&layer);
    size = la_state_blob_size(&layer, 2);
    memset(blob, 0x5a, sizeof blob);
    for (n = 0; n < size; n++) {
        CHECK(la_state_save(&layer, 2, states, blob, n) == LA_E_BLOB, "%zu bytes", n);
    }
    CHECK(la_state_save(&layer, 2, states, NULL, size) == LA_E_NULL, "no blob");
    CHECK(la_state_load(&layer, 2, NULL, size, states) == LA_E_NULL, "no blob");
    CHECK(la_state_save(&layer, 2, NULL, blob, size) == LA_E_NULL, "no states");
    CHECK(la_state_load(&layer, 2, blob, size, NULL) == LA_E_NULL, "no states");
    CHECK(la_state_save(&layer, -1, states, blob, size) == LA_E_SIZE, "-1 states");
    CHECK(la_state_load(&layer, -1, blob, size, states) == LA_E_SIZE, "-1 states");
    CHECK(la_state_save(&wrong, 2, states, blob, size) == LA_E_SIZE, "a wrong layer");
    CHECK(la_state_save(NULL, 2, states, blob, size) == LA_E_NULL, "no layer");
    CHECK(la_state_blob_size(&wrong, 2) == 0, "a wrong layer");
    CHECK(la_state_blob_size(&layer, -1) == 0, "-1 states");
    CHECK(la_state_blob_size(&layer, INT64_MAX) == 0, "more than there is memory");
    CHECK(la_state_reset(&layer, -1, states) == LA_E_SIZE, "-1 states");
    CHECK(la_state_reset(&layer, 1, NULL) == LA_E_NULL, "no states");
    CHECK(la_state_reset(&layer, 0, NULL) == LA_OK, "nothing to do");
    CHECK(la_state_reset(NULL, 1, states) == LA_E_NULL, "no layer");
    CHECK(la_state_reset(&wrong, 1, states) == LA_E_SIZE, "a wrong layer");
    for (i = 0; i < sizeof blob && blob[i] == 0x5a; i++) {
    }
    CHECK(i == sizeof blob, "byte %zu was written", i);
    for (i = 0; i < floats && states[i] == 0; i++) {
    }
    CHECK(i == floats, "float %zu was written", i);
}

/* A state of NaN and infinity is then as good as none. */
TEST(serving_resets_empty_states) {
    int i, n, isa;
    for (i = 0; i < CASES; i++) {
        Problem *problem = axis_new(i, 9);
        size_t floats = la_state_floats(&problem->layer), k;
        for (n = 0; isa_number(n, &isa); n++) {
            float *states = guarded_new(3 * floats, 1), *out, *want = guarded_new(floats, 0);
            la_call call = problem->call;
            call.form = LA_RECURRENT;
            call.isa = isa;
            for (k = 0; k < 3 * floats; k += 2) {
                states[k] = k % 4 ? INFINITY : -NAN;
            }
            out = filled_copy(states + 2 * floats, floats);
            CHECK(la_state_reset(&problem->layer, 2, states) == LA_OK, "reset");
            check_bytes(problem, "the third state", states + 2 * floats, out, floats);
            call.state_in = NULL;
            call.state_out = want;
            run_call(problem, call);
            call.state_in = call.state_out = states + floats;
            run_call(problem, call);
            check_bytes(problem, "state", states + floats, want, floats);
            guarded_free(states);
            guarded_free(out);
            guarded_free(want);
        }
        problem_free(problem);
    }
}

/* ---------------------------------------------------------------- shapes */

/* Primes for the dimensions; one packed qkv buffer and pointers off by 4 bytes by turns. */
TEST(serving_shapes_of_any_length) {
    static const int64_t lengths[] = {0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 1000};
    int i, n;
    for (i = 0; i < COUNT(lengths); i++) {
        for (n = 0; n < COUNT(rows); n++) {
            Spec spec = rows[n];
            spec.T = lengths[i];
            spec.B = spec.T < 1000 ? 2 : 1;
            spec.H = 3;
            spec.dk = 5;
            spec.dv = 2;
            spec.layout = (i + n) % 2;
            spec.strides = n % 3 == i % 3 ? STRIDES_QKV : STRIDES_BTHD;
            spec.shift = (i + n) % 4 != 0;
            problem_all_ways(&spec, "lengths");
        }
    }
}

/* One token from an empty state: o = (q . k) v, S = k v^T; small integers, so exactly that. */
enum { MANY = 35000, MANY_H = 2, MANY_K = 3, MANY_V = 2 };

static void fill_integers(float *x, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        x[i] = (float)(random_below(7) - 3);
    }
}

static void check_many(const float *q, const float *k, const float *v, const float *out,
                       const float *states) {
    size_t n, i, j, bad = 0;
    for (n = 0; n < MANY * MANY_H; n++, q += MANY_K, k += MANY_K, v += MANY_V, out += MANY_V) {
        const float *S = states + (MANY - 1 - n / MANY_H) * MANY_H * MANY_K * MANY_V +
                         n % MANY_H * MANY_K * MANY_V;
        float dot = 0;
        for (i = 0; i < MANY_K; i++) {
            dot += q[i] * k[i];
        }
        for (j = 0; j < MANY_V; j++) {
            bad += out[j] != dot * v[j];
            for (i = 0; i < MANY_K; i++) {
                bad += S[i * MANY_V + j] != k[i] * v[j];
            }
        }
    }
    CHECK(bad == 0, "%zu numbers are wrong", bad);
}

TEST(serving_shapes_of_70000_heads) {
    enum { ROWS = MANY * MANY_H, STATES = ROWS * MANY_K * MANY_V };
    float *q = guarded_new(ROWS * MANY_K, 1), *k = guarded_new(ROWS * MANY_K, 0);
    float *v = guarded_new(ROWS * MANY_V, 1), *out = guarded_new(ROWS * MANY_V, 1);
    float *states = guarded_new(STATES, 1), *workspace;
    int64_t *backwards = calloc(MANY, sizeof *backwards);
    la_layer layer;
    la_call call;
    Way way;
    int i;
    fill_integers(q, ROWS * MANY_K);
    fill_integers(k, ROWS * MANY_K);
    fill_integers(v, ROWS * MANY_V);
    for (i = 0; i < MANY; i++) {
        backwards[i] = MANY - 1 - i;
    }
    CHECK(la_layer_init(&layer, LA_GLA, MANY_H, MANY_K, MANY_V) == LA_OK, "layer");
    CHECK(la_call_init(&call, &layer, MANY, 1) == LA_OK, "call");
    call.q = la_bthd(q, 1, MANY_H, MANY_K);
    call.k = la_bthd(k, 1, MANY_H, MANY_K);
    call.v = la_bthd(v, 1, MANY_H, MANY_V);
    call.out = la_bthd_out(out, 1, MANY_H, MANY_V);
    call.state_out = states;
    call.slots_out = backwards;
    for (i = 0; next_way(i, &way); i++) {
        call.form = way.form;
        call.isa = way.isa;
        call.chunk = way.chunk;
        call.thread_count = i % 2 ? 3 : 1;
        call.thread_index = 0;
        memset(out, 0xff, ROWS * MANY_V * sizeof *out);
        memset(states, 0xff, STATES * sizeof *states);
        call.workspace_size = la_workspace_size(&layer, &call);
        call.workspace = workspace = guarded_new(call.workspace_size / sizeof(float), 0);
        for (call.thread_index = 0; call.thread_index < call.thread_count; call.thread_index++) {
            CHECK(la_forward(&layer, &call) == LA_OK, "form %d", way.form);
        }
        guarded_free(workspace);
        check_many(q, k, v, out, states);
    }
    guarded_free(q);
    guarded_free(k);
    guarded_free(v);
    guarded_free(out);
    guarded_free(states);
    free(backwards);
}

/* ---------------------------------------------------------------- distances */

/* One of a sparse tensor's strides is beyond 2^31 elements; few of its pages exist. */
enum { FAR_BATCH, FAR_TOKEN, FAR_HEAD, FAR_OFFSET, FAR_SLOT, FAR_KINDS };
enum { FAR_DIM = 4, FAR_ROWS = 2 * 2 * 2, FAR_STATE = 2 * FAR_DIM * FAR_DIM };
static const int64_t far_away = ((int64_t)1 << 31) + 8; /* a multiple of the token stride */

static void far_strides(int kind, int64_t *batch, int64_t *token, int64_t *head) {
    *head = kind == FAR_HEAD ? far_away : FAR_DIM;
    *token = kind == FAR_TOKEN ? far_away : 2 * FAR_DIM;
    *batch = kind == FAR_BATCH ? far_away : 4 * FAR_DIM;
    if (kind == FAR_HEAD) {
        *token = FAR_DIM;
        *batch = 2 * FAR_DIM;
    }
}

/* Row n in the order [2][2][2] of a tensor with these strides. */
static float *far_row(float *data, int kind, int n) {
    int64_t batch, token, head;
    far_strides(kind, &batch, &token, &head);
    data += kind == FAR_OFFSET ? far_away : 0;
    return data + (n >> 2) * batch + (n >> 1 & 1) * token + (n & 1) * head;
}

#if defined(__linux__)
static void *map_far(size_t bytes) {
    void *at = MAP_FAILED;
    if (sizeof(size_t) > 4) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    }
    return at == MAP_FAILED ? NULL : at;
}

static void unmap_far(void *at, size_t bytes) {
    if (at != NULL) {
        munmap(at, bytes);
    }
}
#else
static void *map_far(size_t bytes) {
    (void)bytes;
    return NULL;
}

static void unmap_far(void *at, size_t bytes) {
    (void)at, (void)bytes;
}
#endif

static void far_call(la_call *call, int kind, const float *in, float *out) {
    static const int64_t slots_far[] = {1, 0};
    static int64_t offsets[3];
    int64_t batch, token, head, i;
    la_in *views[3] = {&call->q, &call->k, &call->v};
    far_strides(kind, &batch, &token, &head);
    for (i = 0; i < 3; i++) {
        *views[i] = la_bthd(in, 2, 2, FAR_DIM);
        views[i]->batch_stride = batch;
        views[i]->token_stride = token;
        views[i]->head_stride = head;
    }
    call->out = la_bthd_out(out, 2, 2, FAR_DIM);
    call->out.batch_stride = batch;
    call->out.token_stride = token;
    call->out.head_stride = head;
    if (kind == FAR_OFFSET) {
        for (i = 0; i < 3; i++) {
            offsets[i] = far_away / token + 2 * i;
        }
        call->offsets = offsets;
        call->tokens = call->keys = offsets[2];
    } else if (kind == FAR_SLOT) {
        call->slots_in = call->slots_out = slots_far;
        call->state_in_stride = call->state_out_stride = far_away;
    }
}

/* kind -1: packed, and in any case from these initial states. */
static void far_run(int kind, int form, const float *in, float *out, float *states) {
    static double workspace[1 << 14];
    la_layer layer;
    la_call call;
    la_status status;
    CHECK(la_layer_init(&layer, LA_DELTANET, 2, FAR_DIM, FAR_DIM) == LA_OK, "layer");
    CHECK(la_call_init(&call, &layer, 2, 2) == LA_OK, "call");
    far_call(&call, kind, in, out);
    call.form = form;
    call.state_in = call.state_out = states;
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    status = la_forward(&layer, &call);
    CHECK(status == LA_OK, "kind %d: %s", kind, la_status_text(status));
}

static float *far_state(float *states, int kind, int64_t b) {
    return kind == FAR_SLOT ? states + (1 - b) * far_away : states + b * FAR_STATE;
}

static void check_far(int kind, int form, float *in, float *out, float *states) {
    float x[FAR_ROWS * FAR_DIM], y[FAR_ROWS * FAR_DIM], want_states[2 * FAR_STATE];
    size_t row = FAR_DIM * sizeof *x;
    int n;
    for (n = 0; n < FAR_ROWS * FAR_DIM; n++) {
        x[n] = random_uniform(-0.5f, 0.5f);
    }
    for (n = 0; n < 2 * FAR_STATE; n++) {
        want_states[n] = random_uniform(-1, 1);
    }
    for (n = 0; n < FAR_ROWS; n++) {
        memcpy(far_row(in, kind, n), x + n * FAR_DIM, row);
    }
    for (n = 0; n < 2; n++) {
        memcpy(far_state(states, kind, n), want_states + n * FAR_STATE, FAR_STATE * sizeof *x);
    }
    far_run(-1, form, x, y, want_states);
    far_run(kind, form, in, out, states);
    for (n = 0; n < FAR_ROWS; n++) {
        check_same("a far row", far_row(out, kind, n), y + n * FAR_DIM, FAR_DIM);
    }
    for (n = 0; n < 2; n++) {
        check_same("a far state", far_state(states, kind, n), want_states + n * FAR_STATE,
                   FAR_STATE);
    }
}

TEST(serving_distances_beyond_2_to_31) {
    size_t bytes = ((size_t)far_away + 4096) * sizeof(float); /* wraps where it cannot be mapped */
    float near[FAR_ROWS * FAR_DIM], near_out[FAR_ROWS * FAR_DIM], near_states[2 * FAR_STATE];
    float *in = map_far(bytes), *out = map_far(bytes), *states = map_far(bytes);
    int kind, form;
    check_far(-1, LA_AUTO, near, near_out, near_states);
    for (kind = 0; in && out && states && kind < FAR_KINDS; kind++) {
        /* the parallel form would need a workspace for the whole axis */
        for (form = kind == FAR_OFFSET ? LA_RECURRENT : LA_PARALLEL; form <= LA_CHUNKWISE; form++) {
            check_far(kind, form, in, out, states);
        }
    }
    if (!in || !out || !states) {
        printf("far tensors: skipped, there is no room for them here\n");
    }
    unmap_far(in, bytes);
    unmap_far(out, bytes);
    unmap_far(states, bytes);
}
