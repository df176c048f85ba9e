/* streaming: a prompt in chunks, then token by token, a break in the middle, and the same output.
 *
 * The state is all that a layer keeps of the past: here it is saved to a file after the prompt and
 * loaded again, as a server does that moves a conversation. The output is compared with that of one
 * call over all tokens: equal in every bit in the recurrent form, to rounding otherwise. */
#define LA_IMPLEMENTATION
#include "linear_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KEY = 32, VALUE = 48, TOKENS = 200, PROMPT = 150, CHUNK = 64 };

static float q[TOKENS][HEADS][KEY], k[TOKENS][HEADS][KEY], v[TOKENS][HEADS][VALUE];
static float gates[TOKENS][HEADS], beta[TOKENS][HEADS];
static float whole[TOKENS][HEADS][VALUE], pieces[TOKENS][HEADS][VALUE];
static float state[HEADS * KEY * VALUE], workspace[1 << 18];

static void must(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "streaming: %s\n", what);
    exit(1);
}

/* Tokens [first, first + count) into `out`; the state goes on from one call to the next. */
static void attend(float (*out)[HEADS][VALUE], int form, int first, int count) {
    la_layer layer;
    la_call call;
    la_status status;
    la_layer_init(&layer, LA_GATED_DELTANET, HEADS, KEY, VALUE);
    layer.l2_mode = LA_L2_SUM;
    must(la_state_floats(&layer) == sizeof state / sizeof *state, "a state of another size");
    la_call_init(&call, &layer, 1, count);
    call.form = form;
    call.q = la_bthd(q[first][0], count, HEADS, KEY);
    call.k = la_bthd(k[first][0], count, HEADS, KEY);
    call.v = la_bthd(v[first][0], count, HEADS, VALUE);
    call.log_decay = la_bthd(gates[first], count, HEADS, 1);
    call.beta = la_bthd(beta[first], count, HEADS, 1);
    call.out = la_bthd_out(out[first][0], count, HEADS, VALUE);
    call.state_in = call.state_out = state;
    call.workspace = workspace;
    call.workspace_size = sizeof workspace;
    status = la_forward(&layer, &call);
    must(status == LA_OK, la_status_text(status));
}

/* The floats as they are in memory: for the same kind of machine. */
static void save_and_load(FILE *file) {
    must(fwrite(state, sizeof state, 1, file) == 1, "the state cannot be saved");
    memset(state, 0xff, sizeof state); /* NaN: nothing may be left */
    rewind(file);
    must(fread(state, sizeof state, 1, file) == 1, "the state cannot be loaded");
}

static void stream(int form) {
    FILE *file = tmpfile();
    must(file != NULL, "no temporary file");
    memset(state, 0, sizeof state);
    for (int t = 0; t < PROMPT; t += CHUNK)
        attend(pieces, form, t, t + CHUNK < PROMPT ? CHUNK : PROMPT - t);
    save_and_load(file);
    fclose(file);
    for (int t = PROMPT; t < TOKENS; ++t) attend(pieces, form, t, 1);
}

/* |pieces - whole| / |whole| */
static double difference(void) {
    const float *a = pieces[0][0], *b = whole[0][0];
    double error = 0, size = 0;
    for (int i = 0; i < TOKENS * HEADS * VALUE; ++i) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(error / size);
}

static void compare(const char *name, int form, double tolerance) {
    double error;
    memset(state, 0, sizeof state);
    attend(whole, form, 0, TOKENS);
    stream(form);
    error = difference();
    if (memcmp(pieces, whole, sizeof whole) == 0) printf("  %-10s  the same bits\n", name);
    else printf("  %-10s  |difference| / |output| = %.0e\n", name, error);
    must(error <= tolerance, "the pieces differ from the whole");
}

static void fill(float *x, int count, float low, float high) {
    for (int i = 0; i < count; ++i) x[i] = low + (high - low) * (float)rand() / (float)RAND_MAX;
}

int main(void) {
    fill(q[0][0], TOKENS * HEADS * KEY, -1, 1);
    fill(k[0][0], TOKENS * HEADS * KEY, -1, 1);
    fill(v[0][0], TOKENS * HEADS * VALUE, -1, 1);
    fill(gates[0], TOKENS * HEADS, -0.2f, 0);
    fill(beta[0], TOKENS * HEADS, 0, 1);
    printf("gated-deltanet, %d tokens in one call; and in chunks of %d, the state of %lu KiB\n"
           "through a file after %d tokens, the others one by one:\n",
           TOKENS, CHUNK, (unsigned long)sizeof state / 1024, PROMPT);
    compare("recurrent", LA_RECURRENT, 0);
    compare("chunkwise", LA_CHUNKWISE, 1e-5);
    compare("auto", LA_AUTO, 1e-5);
    return 0;
}
