/* The bench:
 *
 *     main.c        modes: what is measured
 *     options.c     the command line
 *     rows.c        the rows that it asks for
 *     measure.c     samples of rows in turn, the check
 *     floor.c       the least that a row can take: flops, exponentials, bytes
 *     oracle.c      float64 recurrences, for the check
 *     machine.c     clock, pinning, threads; the peak, the bandwidths and the rate of exp
 *     library.c     the library as a row: the one file with LA_IMPLEMENTATION
 *     baselines.c   what the library is compared to: the plain loop, four sweeps, cblas
 *     extras.c      what LA_EXTRAS has beside the linear layer, softmax first: a table of engines
 *     report.c      the table on a terminal, Markdown, CSV, JSON
 *     tell.c        what follows from all rows: crossovers, what LA_AUTO misses, speed-ups
 *     compare.c     two JSON files, row by row
 *     plot.c        time per token against T, as SVG
 *
 * Each needs only this file; those with kernels also passes.h, those that go through the heads one
 * by one units.h. */
#ifndef BENCH_H
#define BENCH_H

#define LA_EXTRAS
#include "linear_attention.h"
#include <stdio.h>

/* ---- what is measured ------------------------------------------------------------------------ */

/* What does the work: the library, or a baseline, whose name stands in the column `variant`. */
typedef enum bench_engine {
    BENCH_LIBRARY,
    BENCH_PLAIN_LOOP, /* the recurrence as a competent programmer writes it, -O3 */
    BENCH_FOUR_SWEEP, /* decay, predict, write, read as sweeps over a [dv][dk] state */
    BENCH_OPENBLAS,   /* the chunk algorithm on cblas calls, where there is one */
    BENCH_SOFTMAX,    /* the first of the extras, which are the rows of a table in extras.c */
    BENCH_ENGINES = BENCH_SOFTMAX + 11
} bench_engine;

typedef enum bench_decay { BENCH_NONE, BENCH_HEAD, BENCH_TOKEN, BENCH_CHANNEL } bench_decay;

enum { BENCH_LEVELS = 4, BENCH_ISAS = 5 }; /* L1, L2, L3, memory; LA_ISA_SCALAR .. */

/* Calls of so few tokens are steps of a decoder: they continue the state, in place. Longer ones are
 * prefill: from the empty state. Either way the row ends with its state in memory, unless it is
 * stateless: then nobody wants it, and it is empty before, too. */
enum { BENCH_STEP = 16 };

/* The parameters of a row. Two rows with equal parameters measure the same thing; printed as
 * options (bench_row_options) they can be given to the bench again. What a baseline does not have
 * is 0. */
typedef struct bench_row {
    bench_engine engine;
    la_variant variant; /* of a baseline: the rule it computes; of an extra: LA_RETNET */
    int form, isa, layout;
    int decay;  /* bench_decay */
    int strong; /* gates in -20 .. 0, exactly 0 or -inf at every 7th token; else in -0.1 .. 0 */
    int stateless;
    int64_t batch, tokens, heads, q_heads, k_heads, dim_k, dim_v, features, chunk, threads;

    /* Results. Times are nanoseconds per token and head: per b, t and state head. */
    double ns_min, ns_median, ns_spread; /* spread: (75th - 25th percentile) / median */
    int samples;
    double flops, bytes;          /* the least that any exact form needs, per token and head */
    double floor_ns, floor_share; /* share = floor_ns / ns_min */
    double own_share;             /* the same for the flops of the row's own form and chunk */
    int level;                    /* of a step: the cache, or memory, that holds its states, */
    double level_share;           /* and bytes / ns_min as a share of its read+write bandwidth */
    double speedup_plain;         /* plain-loop's ns_min / this one's; 0 = there is no such row */
    double error;                 /* |o - o64| / |o64|, rms over everything; -1 = not checked */
    int failed;                   /* wrong, or faster than its floor: never printed as fast */
    uint64_t hash;                /* of the output, in the mode that compares threads */
} bench_row;

int bench_is_step(const bench_row *row);
int bench_is_delta(const bench_row *row);
int bench_is_dplr(const bench_row *row);     /* diagonal plus low rank: two writes a token */
int bench_erases(const bench_row *row);      /* a delta rule with a gate of its own */
int bench_reads_first(const bench_row *row); /* before the token's decay and write */
int bench_has_beta(const bench_row *row);
int bench_is_normalised(const bench_row *row);
int bench_projects(const bench_row *row);         /* features of W x, row->features of them */
int bench_has_channels(const bench_row *row);     /* features are channels of the keys */
int bench_usual_decay(const bench_row *row);      /* the variant's own */
float bench_scale(const bench_row *row);          /* of q . k */
float bench_bias(const bench_row *row);           /* of sigmoid attention's logits */
int64_t bench_key_features(const bench_row *row); /* r, the rows of a state */
int64_t bench_out_heads(const bench_row *row);
size_t bench_state_floats(const bench_row *row); /* of a sequence; 0: there is no state */
int bench_has_state(const bench_row *row);
int bench_is_extra(const bench_row *row);
int bench_same_contest(const bench_row *a, const bench_row *b);

/* ---- engines --------------------------------------------------------------------------------- */

/* Inputs, packed: q [B][T][Hq][dk], k [B][T][Hk][dk], v [B][T][H][dv], log_decay [H], [B][T][H] or
 * [B][T][H][dk] or null, beta [B][T][H] or null (bench_has_beta), erase, a and b [B][T][H][dk] and
 * bonus [H][dk], for the rules that have them, out [B][T][max(H, Hq)][dv],
 * state: in and out at once, in the layout of the row, of bench_state_floats per sequence. */
typedef struct bench_data {
    const float *q, *k, *v, *log_decay, *beta, *erase, *bonus, *a, *b;
    const float *projection, *columns; /* [features][dk], and the same as [dk][most_features] */
    int64_t most_features;
    const float *weights; /* of extras: bench_weight */
    float *out, *state;
    size_t head_floats;    /* of the state of one head */
    void *workspace;       /* bench_workspace(row) bytes for each thread, one after the other */
    size_t workspace_size; /* of one thread's */
} bench_data;

/* one forward of the row's shape; the slice of one of row->threads threads */
typedef void bench_run(const bench_row *row, const bench_data *data, int64_t thread);

bench_run bench_run_library, bench_run_plain_loop, bench_run_four_sweep, bench_run_openblas;

/* bytes of workspace of one thread; 0 = the engine cannot do this row */
size_t bench_workspace(const bench_row *row);
size_t bench_library_workspace(const bench_row *row); /* what that answers for the library, */
size_t bench_extra_workspace(const bench_row *row);   /* and for extras */
size_t bench_extra_state(const bench_row *row);       /* of those: bench_state_floats */
int bench_has_openblas(void);
la_plan bench_plan(const bench_row *row); /* what the library would run */
/* a call of the row's shape and tensors, and of one thread; data null: tensors to plan it with */
la_call bench_call(const bench_row *row, const la_layer *layer, const bench_data *data,
                   int64_t thread);

/* ---- extras ---------------------------------------------------------------------------------- */

/* which of a row's parameters an extra has; of what it has not, rows take one value */
enum {
    BENCH_QUERIES = 1,  /* query heads, and dim_k; else it has dim_v alone */
    BENCH_KEYS = 2,     /* key heads */
    BENCH_FEATURES = 4, /* the rows of a projection */
    BENCH_SEGMENTS = 8, /* of chunk tokens */
    BENCH_GATES = 16    /* of each channel */
};

/* The least of a token and state head: flops, exponentials, floats that are read or written once,
 * but for the state. */
typedef struct bench_work {
    double flops, exponentials, floats;
} bench_work;

typedef bench_work bench_least(const bench_row *row);

struct unit;
/* of one unit what bench_oracle says of all */
typedef void bench_oracle_unit(const struct unit *s, int passes, double *out, double *size);

/* What extras of a kind share. */
typedef struct bench_family {
    int64_t (*weight)(const bench_row *row, int i); /* floats of weight i; null: there are none */
    size_t (*state)(const bench_row *row);          /* floats of a sequence; null: there is none */
    size_t (*workspace)(const bench_row *row);      /* as bench_workspace */
    bench_run *run;
    bench_least *least;
    bench_oracle_unit *oracle;
} bench_family;

typedef struct bench_extra {
    const char *name;
    int kind; /* of the library's layer: LA_SIGMOID .. */
    int has;  /* BENCH_QUERIES .. */
    const bench_family *family;
} bench_extra;

const bench_extra *bench_extra_of(const bench_row *row); /* null: it is none */
int bench_has(const bench_row *row, int what);           /* an extra; others: 0 */

/* Weights, what a layer has learned, stand one after the other in data->weights: Linformer's E and
 * F [T][features]; a Synthesizer's w1, w2, b1 and b2; Infini-attention's beta [H]; RWKV-4's bonus
 * [H][dv]. */
enum { BENCH_WEIGHTS = 4 };
int64_t bench_weights(const bench_row *row); /* floats of all */
const float *bench_weight(const bench_row *row, const bench_data *data, int i);
int64_t bench_rank(const bench_row *row); /* a Synthesizer's rank1; factorised dense: rank2 - 1 */

bench_least bench_least_attention, bench_least_infini, bench_least_linformer,
    bench_least_synthesizer, bench_least_scan;
bench_oracle_unit bench_oracle_attention, bench_oracle_infini, bench_oracle_linformer,
    bench_oracle_synthesizer, bench_oracle_scan;

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

typedef enum bench_format { BENCH_TABLE, BENCH_MD, BENCH_CSV, BENCH_JSON } bench_format;

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
    AXIS_STATE,
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
/* name of an axis' value; null where there is none */
const char *bench_value_name(int axis, int64_t value);

/* "bench: ..." on standard error, and the end with this status */
#if defined(__GNUC__)
__attribute__((noreturn, format(printf, 2, 3)))
#endif
void bench_fail(int status, const char *format, ...);

/* ---- the machine ----------------------------------------------------------------------------- */

typedef struct bench_machine {
    char cpu[128], compiler[128], date[32];
    const char *flags; /* of the compiler */
    int cores, pinned;
    double level_bytes[BENCH_LEVELS]; /* size of the buffer that stands for the level */
    double read_gbps[BENCH_LEVELS], write_gbps[BENCH_LEVELS]; /* write: read and written, summed */
    double peak[BENCH_ISAS];     /* GFLOP/s of one thread; 0 = not available */
    double peak_all[BENCH_ISAS]; /* of all asked-for threads at once */
    double exp_rate[BENCH_ISAS]; /* exponentials per ns, degree 6 */
    int threads;                 /* of peak_all */
} bench_machine;

/* Wall time, of which the minimum of many samples is taken. The time that a thread is charged would
 * leave out what others take, but in a virtual machine it can come out too short. */
double bench_ns(void);

/* The upper halves of registers, where left in use, slow down narrower code: up to 5 times. */
void bench_clear_registers(void);

/* zeros on a cache line, free() them; never null */
void *bench_allocate(size_t bytes);

/* pins the calling thread, measures everything; peak_all with `threads` (0: all) */
void bench_measure_machine(bench_machine *machine, int threads);
/* short samples of the calling thread: GFLOP/s, 0 = not available; GB/s of reading and writing a
 * buffer */
double bench_peak(int isa);
double bench_update_gbps(void *buffer, size_t bytes);

/* The pool: count threads, of which the caller is number 0; they spin between jobs. */
void bench_pool_open(int64_t count);
void bench_pool_run(void (*job)(void *what, int64_t thread), void *what);
void bench_pool_close(void);

/* ---- measuring ------------------------------------------------------------------------------- */

/* fills in the options' defaults; the number of rows, contest by contest, in a new array. If there
 * are none, the program ends with status 2. */
int bench_collect(bench_row **rows, bench_options *options, const bench_machine *machine);

/* Samples `count` rows of one contest in turn: they have the same sizes, gates and threads. */
void bench_contest(bench_row *rows, int count, const bench_options *options,
                   const bench_machine *machine);

/* What one thread reached beside the samples of a contest: clocks and neighbours change. */
typedef struct bench_limits {
    double peak[BENCH_ISAS]; /* GFLOP/s */
    double update_gbps;      /* of the states, for steps */
} bench_limits;

/* flops, bytes and floors of a row that has its ns_min */
void bench_floor(bench_row *row, const bench_machine *machine, const bench_limits *limits);

/* What `passes` times the row's tokens come to: of the last pass the output [B][T][heads][dv] in
 * float64, NaN where nothing is promised, and for each of its rows the square of its size without
 * cancellation, (scale |f(q)| |S| / denominator)^2 / r. Of what has no state only the tokens that
 * bench_oracle_token says. */
void bench_oracle(const bench_row *row, const bench_data *data, int passes, double *out,
                  double *size);
int bench_oracle_token(const bench_row *row, int64_t token);

/* ---- reports --------------------------------------------------------------------------------- */

/* "retnet", or of another engine "plain-loop", "softmax" .. */
const char *bench_row_name(const bench_row *row);

/* The parameters as options, e.g. "--variant gla --form chunkwise --isa avx2 --tokens 512 ...", or
 * "--variant plain-loop --rule gla ...": what a baseline computes. Some can be left out. */
enum { BENCH_TEXT = 256 };
enum { BENCH_ALL_OPTIONS = 0, BENCH_NO_FORM = 1, BENCH_NO_TOKENS = 2, BENCH_NO_THREADS = 4 };
void bench_row_options(const bench_row *row, int but, char text[BENCH_TEXT]);
/* "gla chunkwise avx2 tokens=512", of options */
void bench_shorten(const char *options, char text[BENCH_TEXT]);

void bench_report_begin(FILE *file, bench_format format, const bench_machine *machine);
void bench_report_row(FILE *file, bench_format format, const bench_row *row);
void bench_report_end(FILE *file, bench_format format);

/* prints what the mode is for, from all rows; the number of rows that are not as they should be */
int bench_tell(const bench_options *options, const bench_row *rows, int count);

/* 0, or 1 with one line on stderr */
int bench_plot(const char *path, const bench_machine *machine, const bench_row *rows, int count);
/* prints ratio and noise per row that both files have; where it cannot read one, status 2 */
void bench_compare(const char *a, const char *b);

#endif
