/* One input of the fuzzer: its bytes as numbers, buffers of exactly the size that a call describes,
   and the layer and the call that the bytes stand for. */
#ifndef INPUT_H
#define INPUT_H

#include "linear_attention.h"

#include <stddef.h>
#include <stdint.h>

/* A contract that is broken ends the process: that is how libFuzzer learns of it. */
#define MUST(condition, ...)                                                                       \
    ((condition) ? (void)0 : broken(#condition, __FILE__, __LINE__, __VA_ARGS__))
void broken(const char *condition, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));

/* ---------------------------------------------------------------- bytes */

void input_set(const uint8_t *data, size_t size);
int input_below(int n);     /* in 0 .. n - 1, n <= 256; 0 behind the last byte            */
int input_chance(int n);    /* 1 in one of n cases; 0 behind the last byte                 */
int64_t input_number(void); /* any number, mostly one at an edge of something              */
float input_float(void);    /* any bits, mostly those of an odd number                     */

uint64_t noise_bits(void); /* splitmix64; the input says the seed */
void noise_seed(uint64_t seed);
float noise_between(float low, float high);

/* ---------------------------------------------------------------- buffers */

enum { BUFFER_LIMIT = 1 << 21 }; /* bytes; what would need more is not run */

/* `bytes` on the heap, with nothing behind them and `lead` bytes before them that belong to nobody.
   Full of a NaN that no arithmetic makes. Freed by buffers_free. */
void *buffer_new(size_t bytes, size_t lead);
void buffers_free(void);

void buffers_remember(void);                    /* what all of them hold now */
const void *buffer_before(const void *at);      /* that, of an address in one */
void buffer_allow(const void *at, size_t bytes); /* these may change */
void buffers_check(int refused); /* whatever else has changed, or anything at all, is a fault */
int is_unwritten(const float *x); /* what buffer_new has put there */

/* ---------------------------------------------------------------- a layer and a call */

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
