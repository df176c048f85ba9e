/* The layer and the call of the linear variants that the bytes of an input stand for. */
#ifndef CASE_H
#define CASE_H

#include "input.h"

typedef struct Case {
    la_layer layer;
    la_call call;
    int wild;     /* some field is not what it should be: any status will do              */
    int backed;   /* every buffer is as long as the call says                             */
    int ordinary; /* settings and data are of the size that promise 1 speaks of           */
    int known;    /* the data were filled in, and every pointer is where it was then      */
} Case;

void case_layer(Case *c);                     /* an ordinary layer, or one with odd settings */
void case_spoil(Case *c, int with_call);      /* odd numbers into fields                     */
void case_projection(Case *c);                /* its buffer                                  */
void case_new(Case *c);                       /* all of it, buffers and data included        */
int case_holds(const Case *c);                /* do all rows lie in buffers?                 */
void case_meets(const Case *c);               /* an output that meets anything is a fault    */
double case_cost(const Case *c);              /* about how many multiplications              */
int64_t case_tokens(const la_call *call, int64_t b);
int64_t case_keys(const la_layer *layer, const la_call *call, int64_t b);
double case_state_floats(const la_layer *layer); /* as the manual says; exact up to 2^53 */
void case_print(const Case *c);

#endif
