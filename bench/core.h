/* What main.c, options.c, rows.c, measure.c, floor.c, oracle.c, machine.c and library.c share. */
#ifndef BENCH_CORE_H
#define BENCH_CORE_H

#include "bench.h"

/* ---- the command line ------------------------------------------------------------------------ */

typedef enum bench_mode {
    MODE_BENCH,
    MODE_CHECK,
    MODE_SWEEP,
    MODE_SCALE,
    MODE_DECODE,
    MODE_LIST,
    MODE_COMPARE,
    MODES
} bench_mode;

/* The axes whose product is what a run measures. Neighbours in a contest differ in the last. */
enum {
    AXIS_BATCH,
    AXIS_HEADS,
    AXIS_Q_HEADS,
    AXIS_K_HEADS,
    AXIS_DIMS,
    AXIS_TOKENS,
    AXIS_THREADS,
    AXIS_GATES,
    AXIS_VARIANT,
    AXIS_RULE,
    AXIS_FEATURES,
    AXIS_DECAY,
    AXIS_FORM,
    AXIS_CHUNK,
    AXIS_LAYOUT,
    AXIS_ISA,
    AXIS_BASELINES,
    AXES
};

/* What values of an axis stand for beside numbers and the enums of the library: */
enum {
    BENCH_BASELINE = 100, /* a variant: this plus a bench_engine */
    BENCH_USUAL = -1,     /* a decay: the variant's own */
    BENCH_HEADS = 0,      /* query or key heads: as many as there are heads */
    BENCH_WIDTH = 1 << 16 /* dims: dim_k times this, plus dim_v */
};

enum { BENCH_VALUES = 64 };

typedef struct bench_axis {
    int count;
    int given; /* on the command line */
    int named; /* and not as "all": what is not available is worth a line */
    int64_t at[BENCH_VALUES];
} bench_axis;

typedef struct bench_options {
    bench_mode mode;
    bench_axis axis[AXES];
    int reps;        /* samples of each row; 0: what min_time takes, at least 10 */
    double min_time; /* ns of samples of each row */
    const char *filter, *plot, *files[2];
    bench_format format;
    int check;
} bench_options;

/* Bad options end the program with status 2, --help with 0. */
void bench_parse(bench_options *options, int argc, char **argv);
/* the axis takes these values, unless it was given some */
void bench_default(bench_options *options, int axis, int count, const int64_t *values);
/* name of an axis' value, for `list`; null where there is none */
const char *bench_value_name(int axis, int64_t value);

/* "bench: ..." on standard error, and the end with this status */
#if defined(__GNUC__)
__attribute__((noreturn, format(printf, 2, 3)))
#endif
void bench_fail(int status, const char *format, ...);

/* ---- the machine ----------------------------------------------------------------------------- */

/* Wall time, of which the minimum of many samples is taken. The time that a thread is charged would
 * leave out what others take, but in a virtual machine it can come out too short. */
double bench_ns(void);

/* The upper halves of registers, where left in use, slow down narrower code: up to 5 times. */
void bench_clear_registers(void);

/* zeros on a cache line, free() them; never null */
void *bench_allocate(size_t bytes);

/* pins the calling thread, measures everything; peak_all with `threads` (0: all) */
void bench_measure_machine(bench_machine *machine, int threads);
double bench_peak(int isa); /* one short sample, GFLOP/s of the calling thread; 0 = not available */

/* The pool: count threads, of which the caller is number 0; they spin between jobs. */
void bench_pool_open(int64_t count);
void bench_pool_run(void (*job)(void *what, int64_t thread), void *what);
void bench_pool_close(void);

/* ---- rows that are asked for ----------------------------------------------------------------- */

enum { BENCH_TEXT = 256 }; /* for bench_row_options */

/* fills in the options' defaults; the number of rows, contest by contest, in a new array. If there
 * are none, the program ends with status 2. */
int bench_collect(bench_row **rows, bench_options *options, const bench_machine *machine);

/* ---- rows ------------------------------------------------------------------------------------ */

/* Calls of so few tokens are steps of a decoder: they continue the state, in place. Longer ones are
 * prefill: from the empty state. Either way the row ends with its state in memory. */
enum { BENCH_STEP = 16 };

int bench_library_isa(void);                     /* what LA_ISA_AUTO takes */
size_t bench_state_floats(const bench_row *row); /* of a sequence */
float bench_scale(const bench_row *row);         /* of q . k */
int bench_is_delta(const bench_row *row);
int64_t bench_key_features(const bench_row *row); /* r, the rows of a state */
int64_t bench_out_heads(const bench_row *row);

/* flops, bytes and floors of a row that has its ns_min; peak: GFLOP/s of one thread, per isa */
void bench_floor(bench_row *row, const bench_machine *machine, const double peak[BENCH_ISAS]);

/* the output [B][T][heads][dv] of `passes` times the row's tokens, of the last pass, NaN where
 * nothing is promised; of softmax only for the tokens that bench_oracle_token says */
void bench_oracle(const bench_row *row, const bench_data *data, int passes, double *out);
int bench_oracle_token(const bench_row *row, int64_t token);

/* Samples `count` rows of one contest in turn: they have the same sizes, gates and threads.
 * hashes[i]: of the output of row i. */
void bench_contest(bench_row *rows, uint64_t *hashes, int count, const bench_options *options,
                   const bench_machine *machine);
int bench_same_contest(const bench_row *a, const bench_row *b);

#endif
