/* The systems of LA_EXTRAS: the structs that the bytes of an input stand for, what their pointers
   stand for, in one table, and the answers in float64. */
#ifndef EXTRA_H
#define EXTRA_H

#define LA_EXTRAS
#include "input.h"

typedef enum System { ATTENTION, LINFORMER, SYNTHESIZER, INFINI, SCAN, SYSTEMS } System;

typedef struct Extra {
    System system;
    la_attention attention; /* of the first three: their call is attention_call */
    la_linformer linformer;
    la_synthesizer synthesizer;
    la_attention_call attention_call;
    la_infini infini;
    la_call infini_call;
    la_scan scan;
    int wild, backed, ordinary; /* as in Case                                        */
    float size;                 /* of queries and keys                               */
} Extra;

/* What a tensor is there for; outputs come first. */
typedef enum Role {
    OUT,
    LSE,
    STATE_OUT,
    OUTPUT_ROLES,
    STATE_IN = OUTPUT_ROLES,
    QUERY,
    KEY,
    VALUE,
    LOGITS,
    GATE,
    SHARE,
    WEIGHT
} Role;

/* One of the pointers of an Extra; one of these four is not null. */
typedef struct Operand {
    Role role;
    Rows rows;
    la_in *in;
    la_out *out;
    const float **from;
    float **to;
} Operand;

enum { OPERANDS = 10 };

int extra_operands(Extra *e, Operand list[OPERANDS]); /* how many; outputs first        */
const float *operand_data(const Operand *operand);
void operand_point(const Operand *operand, float *data); /* to other data               */

void extra_new(Extra *e); /* all of it, buffers and data included */
void extra_print(const Extra *e);

la_status extra_check(const Extra *e, const char **field);
la_status extra_forward(const Extra *e);
size_t extra_workspace(const Extra *e);
void **workspace_of(Extra *e, size_t **size);
int64_t *threads_of(Extra *e, int64_t **index); /* thread_count */
int *isa_of(Extra *e);
la_attention *attention_of(Extra *e); /* of the first three */

int64_t extra_batch(const Extra *e);
int64_t extra_heads(const Extra *e);               /* of the output           */
int64_t extra_dv(const Extra *e);
int64_t extra_tokens(const Extra *e, int64_t b);   /* whose outputs are written */
int64_t extra_keys(const Extra *e, int64_t b);
int64_t extra_first(const Extra *e, int64_t b);    /* of sequence b in the token axis */
int64_t extra_view_batch(const Extra *e, int64_t b); /* and its place in the batch axis */
int64_t extra_state_floats(const Extra *e);
int64_t extra_key_head(const Extra *e, int64_t head);
double extra_cost(const Extra *e);
int extra_sees(const Extra *e, int64_t b, int64_t t, int64_t s); /* token t the key s */

/* Everything that a call writes, in order: of each sequence token by token and head by head a row
   of the output, and its lse where there is one; then the states. */
typedef struct Written {
    Role role;
    float *at;
    int64_t floats, b, t, head;
} Written;

enum { WRITTEN = 1 << 13 };

int extra_written(const Extra *e, Written list[WRITTEN]); /* how many; -1: too many */

/* What should stand there, and how far it may be off. */
void extra_answer(const Extra *e, const Written *row, double *want, double *limit);

#endif
