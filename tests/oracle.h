/* The float64 oracle, written from the recurrence of the contract, and the Problem: one seeded call
   with its inputs, the oracle's answer, and the comparisons. Shares no code with the library.

       Spec spec = {.variant = LA_GATED_DELTANET, .T = 33, .H = 2, .dk = 7, .dv = 13};
       Problem *problem = problem_new(&spec);
       Way way;
       for (int i = 0; way_number(i, &way); i++) {
           if (problem_run(problem, &way)) {
               problem_check(problem);
           }
       }
       problem_free(problem);
*/
#ifndef ORACLE_H
#define ORACLE_H

#include "linear_attention.h"

/* ---------------------------------------------------------------- the oracle */

typedef struct Oracle {
    double *out;     /* [B][T][max(H, Hq)][dv]                                           */
    double *state;   /* [B][H][S [r][dv], z [r] where normalised, m [1] where exponential], */
                     /* whatever the layout; S and z relative to exp(m), as in the library  */
    double *size;    /* [B][max(H, Hq)]: N of promise 1, the size without cancellation   */
    int round_decay; /* 1: exp(g) rounded to float32, for exact data                    */
} Oracle;

/* Reads every tensor through the views of the call. The arrays are the caller's. */
void oracle_forward(const la_layer *layer, const la_call *call, Oracle *oracle);

int64_t oracle_features(const la_layer *layer);    /* r                        */
int oracle_has_maximum(const la_layer *layer);     /* m: FAVOR+ with exponentials */
int oracle_projects(const la_layer *layer);        /* features of W x */
int oracle_scales_inputs(const la_layer *layer);   /* features of sqrt(scale) x */
int64_t oracle_out_heads(const la_layer *layer);   /* max(H, Hq)               */
int64_t oracle_head_floats(const la_layer *layer); /* floats of the oracle's state per head */

/* Where S[i][j] (or z[i], as j = dv, or m, as i = r) of head h stands in one sequence's state of
   the library. */
int64_t oracle_state_index(const la_layer *layer, int64_t h, int64_t i, int64_t j);

/* Row of token t and head h of sequence b. */
const float *view_row(const la_in *view, int64_t b, int64_t t, int64_t h);
float *out_row(const la_out *view, int64_t b, int64_t t, int64_t h);

/* Moves all tensors of a call on by some tokens; the counts and positions stay. */
void call_skip(la_call *call, int64_t tokens);

/* ---------------------------------------------------------------- what to try */

typedef enum Gate {
    GATE_NONE,
    GATE_HEAD,   /* one per head: by turns ln(1 - 2^(-5-h)), -20, 0, -1e-6, -inf             */
    GATE_MILD,   /* (-0.3, 0)                                                                */
    GATE_STRONG, /* (-20, 0), and -inf every 7th token                                       */
    GATE_ANY,    /* [-1000, 0]                                                               */
    GATE_MIXED,  /* -1000, -30, 0, mild                                                      */
    GATE_EDGES,  /* -inf at the first and the last token, mild between                       */
    GATE_SLOW,   /* -1e-5 .. -1e-7                                                           */
    GATE_ZERO,   /* 0 throughout                                                             */
    GATE_HALVES, /* 0, -inf, and few times -ln 2: exact                                      */
    GATE_FILLED  /* Spec.gate_value at every token                                           */
} Gate;

typedef enum Beta { BETA_NONE, BETA_TOKEN, BETA_CHANNEL } Beta; /* in [0, 2], also 0, 1, 2 */

typedef enum States { STATES_BOTH, STATES_SAME, STATES_IN, STATES_OUT, STATES_NONE } States;

typedef enum Strides {
    STRIDES_BTHD,
    STRIDES_BHTD,
    STRIDES_PADDED,   /* rows apart, NaN between them                               */
    STRIDES_QKV,      /* q, k and v side by side in one buffer [B][T][...]          */
    STRIDES_REVERSED, /* heads and tokens stored backwards                          */
    STRIDES_BROADCAST /* stride 0: q by sequence, k by head, v by token, gates by sequence */
} Strides;

typedef struct Spec { /* 0 stands for the usual value: B = 1, Hq = Hk = H, scale = 1, ... */
    la_variant variant;
    int64_t B, T, H, Hq, Hk, dk, dv;
    int64_t keys; /* of bidirectional layers; -1: none             */
    Gate gate;
    float gate_value;
    int gate_channel; /* 1: a gate per key channel                     */
    Beta beta;
    States states;
    Strides strides;
    int head_map, layout, l2_mode;
    float scale;
    float state_size; /* the initial state is in (-size, size)         */
    int zero_keys;    /* 1: all keys are 0. 2: all but token 0's       */
    int exact;        /* 1: exact data (style.md): no result is rounded */
    int shift;        /* buffers start 4 * shift bytes off a boundary of 64 */
    int normalised;   /* 1: also where the preset is not; -1: nowhere  */
    int bidirectional;
    int ragged;   /* 1: a length per sequence, and one of its keys; NaN beyond */
    int positive; /* 1: q and k in (0.1, 1)                        */
    int eps_mode;
    float eps;
    int64_t position; /* cosFormer: of sequence 0's first token; each next one starts 3 later */
    double horizon;   /* cosFormer: 0 stands for one that just suffices */
    int64_t features; /* rows of the projection, 2 dk + 3              */
    int favor_kernel, head_projections; /* 1: a projection per head    */
    float feature_eps;
    int skip, out_gate; /* 1: there is one; skip 2: by channel                      */
    int bare;           /* 1: without erase gate or bonus; b of DPLR is 0             */
    int token_bonus;    /* 1: a bonus per token, not per head                        */
    int general;        /* 1: a and b of DPLR have nothing to do with each other     */
    int64_t nu;
    int hedgehog_kernel, projection_bias;
    int query_projection; /* 1: queries have a projection of their own */
    int delta;        /* 1: the delta rule, which no variant but DPFP has with its features */
} Spec;

/* One way to compute it. All zero: what LA_AUTO takes, in one thread. */
typedef struct Way {
    int form, isa;
    int64_t chunk, threads;
} Way;

/* The i-th of all ways: every instruction set of this machine, AUTO, PARALLEL, RECURRENT and
   CHUNKWISE with chunk 0, 1, 2, 3, 7, 16, 64, 1000. Answers 0 behind the last one. */
int way_number(int i, Way *way);
int isa_number(int i, int *isa); /* the i-th instruction set of this machine */

/* ---------------------------------------------------------------- the problem */

enum { PROBLEM_BUFFERS = 16, PROBLEM_BATCH = 16 };

typedef struct Problem {
    Spec spec;
    la_layer layer;
    la_call call; /* complete but for the workspace, which problem_run brings            */
    la_out q, k, v, log_decay, beta; /* the inputs again, writable through out_row              */
    la_out erase, bonus, a, b, skip, out_gate;
    const char *note; /* told in failures                                                    */
    Way way;          /* of the last run                                                     */
    float *buffers[PROBLEM_BUFFERS]; /* guarded; freed with the problem                        */
    int buffer_count;
    int64_t lengths[PROBLEM_BATCH], key_lengths[PROBLEM_BATCH], positions[PROBLEM_BATCH];
    float *state_start; /* the initial states, or NULL; restored before every run              */
    size_t out_floats, state_floats; /* of all sequences, gaps included                         */
    float *out_start; /* the lowest address of the output                                    */
    float *states;    /* the buffer of the final states, or NULL                             */
    Oracle want;
} Problem;

/* Both answer NULL, after a failed check, if the layer is refused. */
Problem *problem_new(const Spec *spec);   /* fills everything from random_bits, asks the oracle */
Problem *problem_blank(const Spec *spec); /* everything in place, but not yet filled           */
void problem_oracle(Problem *problem);    /* again, after inputs or settings were changed       */
void problem_free(Problem *problem);      /* checks the canaries                                */

/* "gated-deltanet B1 T33 H2/2/2 7x13 kv ... chunkwise 16 avx2", in a static buffer. */
const char *problem_text(const Problem *problem);

/* Output set to NaN, state restored, then every thread's slice in turn. 1 if all answered LA_OK. */
int problem_run(Problem *problem, const Way *way);

/* The same as `count` calls of lengths[i] tokens which carry the state (STATES_SAME only); the
   second one with a way for each of them. */
int problem_run_split(Problem *problem, const Way *way, const int64_t *lengths, int count);
int problem_run_parts(Problem *problem, const Way *ways, const int64_t *lengths, int count);

int problem_check(Problem *problem);       /* promise 1: output and final state              */
int problem_check_exact(Problem *problem); /* equal to the oracle, for exact data            */

/* c of promise 1 for one head of one sequence. */
double promise_1(const la_layer *layer, const la_call *call, int64_t b, int64_t h);

/* new -> every way -> check (exact data: exactly) -> free. */
void problem_all_ways(const Spec *spec, const char *note);

/* Packed [B][T][heads][dv] copy of the output, and the final states, for bitwise comparisons;
   free() them. */
float *problem_copy_out(const Problem *problem, size_t *count);
float *problem_copy_state(const Problem *problem, size_t *count);

#endif
