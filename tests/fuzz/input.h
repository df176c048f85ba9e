/* What the fuzzers share: the bytes of one input as numbers, buffers of exactly the size that a
   call describes, and views of them. */
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
void print_tried(void); /* each target's own: what the input stands for */
void print_list(const char *name, const int64_t *list, int64_t count);

int same(float a, float b); /* the same bits; all NaNs are alike */
void must_equal(const float *got, const float *want, size_t n, const char *what);

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---------------------------------------------------------------- bytes */

void input_set(const uint8_t *data, size_t size);
unsigned input_byte(void);  /* 0 behind the last one                                       */
uint64_t input_bits(int bytes);
int input_below(int n);     /* in 0 .. n - 1, n <= 256; 0 behind the last byte            */
int input_chance(int n);    /* 1 in one of n cases; 0 behind the last byte                 */
int64_t input_number(void); /* any number, mostly one at an edge of something              */
float input_float(void);    /* any bits, mostly those of an odd number                     */
int64_t input_dim(void);    /* of rows: 1 .. 64                                            */

/* `count` numbers, each in low .. high, now and then none of these, which is wild. */
int64_t *input_list(int64_t count, int64_t low, int64_t high, int *wild);

uint64_t noise_bits(void); /* splitmix64; the input says the seed */
void noise_seed(uint64_t seed);
int noise_below(int n);
float noise_between(float low, float high);
float noise_gate(int kind); /* of one of 8 kinds: weak, strong, -infinity among others, ... */

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

/* ---------------------------------------------------------------- views */

/* What a pointer stands for: rows of `width`, counted without the header. */
typedef struct Rows {
    int64_t counts[3], strides[3], width;
} Rows;

/* The addresses of such rows. Empty: none. Begins behind its end: more than a buffer may have. */
typedef struct Range {
    uintptr_t begin, end;
} Range;

Range range_of(const float *data, const Rows *rows);
int ranges_meet(const Range *a, const Range *b);
int range_holds(const Range *range, int absent); /* does it lie in a buffer, if it is there? */

/* A buffer for such rows, and where their first one stands; one that is too long is not backed. */
float *rows_buffer(const Rows *rows, int *backed);

/* Strides that keep rows apart: the axes in any order, with gaps, up or down. And a view whose rows
   may also repeat, cross each other, or lie far apart; its pointer only says that it is there. */
void input_strides_apart(la_out *view, const int64_t counts[3]);
la_in input_view(const int64_t counts[3], int64_t width);
la_in view_of(const la_out *out);

/* What a size may be for buffers to be made. */
int is_small(int64_t n);

/* ---------------------------------------------------------------- spoiling */

typedef struct Field {
    size_t at, size;
} Field;

/* An odd number, or, into floats and now and then anywhere, odd bits. */
void spoil_field(unsigned char *of, const Field *field);
void spoil_bytes(unsigned char *of, size_t size);

#endif
