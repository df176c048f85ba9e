/* speculative: a draft of W tokens is run in one call, j of them turn out right, and decoding goes
 * on from there.
 *
 * Three ways: snapshots of the states along the draft, of which the j-th is kept; the state left
 * alone (state_in and state_out in separate buffers) and the j tokens run again; and, to compare
 * with, a caller who knew all along. The output and the state are the same in every bit, for the
 * recurrent form does not care how tokens are divided over calls. */
#define _POSIX_C_SOURCE 199309L
#define LA_IMPLEMENTATION
#include "linear_attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 8, DIM = 64, DRAFT = 8, NEXT = 5, TOKENS = DRAFT + NEXT, STATE = HEADS * DIM * DIM };
enum { ROUNDS = 60 };

static float q[TOKENS][HEADS][DIM], k[TOKENS][HEADS][DIM], v[TOKENS][HEADS][DIM];
static float gates[TOKENS][HEADS], beta[TOKENS][HEADS];
static float out[TOKENS][HEADS][DIM], kept[3][TOKENS][HEADS][DIM];
static float before[STATE], after[STATE], ends[3][STATE], snapshots[DRAFT + 1][STATE];
static float workspace[1 << 16];
static la_layer layer;

static void must(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "speculative: %s\n", what);
    exit(1);
}

/* Tokens [first, first + count) into `out`, with snapshots of all of them where there is room. */
static void attend(int first, int count, const float *from, float *to, float *all) {
    la_call call;
    la_status status;
    la_call_init(&call, &layer, 1, count);
    call.form = LA_RECURRENT;
    call.q = la_bthd(q[first][0], count, HEADS, DIM);
    call.k = la_bthd(k[first][0], count, HEADS, DIM);
    call.v = la_bthd(v[first][0], count, HEADS, DIM);
    call.log_decay = la_bthd(gates[first], count, HEADS, 1);
    call.beta = la_bthd(beta[first], count, HEADS, 1);
    call.out = la_bthd_out(out[first][0], count, HEADS, DIM);
    call.state_in = from;
    call.state_out = to;
    call.snapshots = all;
    call.snapshot_count = count + 1;
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    status = la_forward(&layer, &call);
    must(status == LA_OK, la_status_text(status));
}

/* Decoding goes on: the tokens behind the draft, one at a time, from a state on. */
static void go_on(const float *state, int accepted, int way) {
    memcpy(ends[way], state, sizeof ends[way]);
    for (int t = DRAFT; t < TOKENS; ++t) attend(t, 1, ends[way], ends[way], NULL);
    memset(out[accepted], 0, (size_t)(DRAFT - accepted) * sizeof *out); /* the rejected ones */
    memcpy(kept[way], out, sizeof out);
}

/* 1 if all three ways agree in every bit. */
static int compare(int accepted) {
    attend(0, accepted, before, after, NULL);
    go_on(after, accepted, 0);
    attend(0, DRAFT, before, after, snapshots[0]);
    go_on(snapshots[accepted], accepted, 1);
    attend(0, DRAFT, before, after, NULL);
    attend(0, accepted, before, after, NULL); /* the replay */
    go_on(after, accepted, 2);
    for (int way = 1; way < 3; ++way)
        if (memcmp(kept[way], kept[0], sizeof out) != 0 ||
            memcmp(ends[way], ends[0], sizeof *ends) != 0)
            return 0;
    return 1;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* A draft plain, with snapshots, and with a replay of half of it: the least microseconds of each,
 * taken by turns, since the machine may have other things to do. */
static void measure(double least[3]) {
    least[0] = least[1] = least[2] = 1e30;
    for (int i = 0; i < 3 * ROUNDS; ++i) {
        const double start = now();
        double time;
        attend(0, DRAFT, before, after, i % 3 == 1 ? snapshots[0] : NULL);
        if (i % 3 == 2) attend(0, DRAFT / 2, before, after, NULL);
        time = now() - start;
        if (time < least[i % 3]) least[i % 3] = time;
    }
}

static void fill(float *x, int count, float low, float high) {
    for (int i = 0; i < count; ++i) x[i] = low + (high - low) * (float)rand() / (float)RAND_MAX;
}

int main(void) {
    double least[3];
    must(la_layer_init(&layer, LA_GATED_DELTANET, HEADS, DIM, DIM) == LA_OK, "no such layer");
    layer.l2_mode = LA_L2_SUM;
    fill(q[0][0], TOKENS * HEADS * DIM, -1, 1);
    fill(k[0][0], TOKENS * HEADS * DIM, -1, 1);
    fill(v[0][0], TOKENS * HEADS * DIM, -1, 1);
    fill(gates[0], TOKENS * HEADS, -0.1f, 0);
    fill(beta[0], TOKENS * HEADS, 0, 1);
    fill(before, STATE, -1, 1);
    for (int accepted = 0; accepted <= DRAFT; ++accepted)
        must(compare(accepted), "other bits than those of the accepted tokens alone");
    printf("a draft of %d tokens, 0 .. %d of them kept: the same bits in all ways\n", DRAFT, DRAFT);
    measure(least);
    printf("  plain %.0f us, with snapshots x %.2f (%d KiB), with a replay of %d tokens x %.2f\n",
           least[0], least[1] / least[0], (int)(sizeof snapshots / 1024), DRAFT / 2,
           least[2] / least[0]);
    return 0;
}
