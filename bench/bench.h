/* The parts of the bench, each of which needs only this file:
 *
 *     main.c        modes: what is measured and told
 *     options.c     the command line
 *     rows.c        the rows that it asks for
 *     measure.c     samples of rows in turn, the check
 *     floor.c       the least that a row can take: flops, exponentials, bytes
 *     oracle.c      float64 recurrences, for the check
 *     machine.c     clock, pinning, threads; the peak, the bandwidths and the rate of exp
 *     library.c     the library as a row: the one file with LA_IMPLEMENTATION
 *     baselines.c   what the library is compared to: the plain loop, four sweeps, cblas
 *     softmax.c     causal softmax attention, blocked and vectorised
 *     report.c      the table on a terminal, Markdown, CSV, JSON
 *     compare.c     two JSON files, row by row
 *     plot.c        time per token against T, as SVG */
#ifndef BENCH_H
#define BENCH_H

#include "linear_attention.h"
#include <stdio.h>

/* ---- what is measured ------------------------------------------------------------------------ */

/* What does the work: the library, or a baseline, whose name stands in the column `variant`. */
typedef enum bench_engine {
    BENCH_LIBRARY,
    BENCH_PLAIN_LOOP, /* the recurrence as a competent programmer writes it, -O3 */
    BENCH_FOUR_SWEEP, /* decay, predict, write, read as sweeps over a [dv][dk] state */
    BENCH_SOFTMAX,    /* causal softmax attention */
    BENCH_OPENBLAS,   /* the chunk algorithm on cblas calls, where there is one */
    BENCH_ENGINES
} bench_engine;

typedef enum bench_decay { BENCH_NONE, BENCH_HEAD, BENCH_TOKEN, BENCH_CHANNEL } bench_decay;

/* The parameters of a row. Two rows with equal parameters measure the same thing; printed as
 * options (bench_row_options) they can be given to the bench again. */
typedef struct bench_row {
    bench_engine engine;
    la_variant variant; /* of a baseline: the rule it computes (softmax: not looked at) */
    int form, isa, layout;
    int decay;  /* bench_decay */
    int strong; /* gates in -20 .. 0, exactly 0 or -inf at every 7th token; else in -0.1 .. 0 */
    int64_t batch, tokens, heads, q_heads, k_heads, dim_k, dim_v, features, chunk, threads;

    /* Results. Times are nanoseconds per token and head: per b, t and state head. */
    double ns_min, ns_median, ns_spread; /* spread: (75th - 25th percentile) / median */
    int samples;
    double flops, bytes;           /* the least that any exact form needs, per token and head */
    double floor_ns, floor_share;  /* share = floor_ns / ns_min */
    double own_flops, own_share;   /* the same for the flops of the row's own form and chunk */
    double speedup_plain;          /* plain-loop's ns_min / this one's; 0 = there is no such row */
    double error;                  /* |o - o64| / |o64|, rms over everything; -1 = not checked */
    int failed;                    /* wrong, or faster than its floor: never printed as fast */
} bench_row;

/* ---- data ------------------------------------------------------------------------------------ */

/* Inputs, packed: q [B][T][Hq][dk], k [B][T][Hk][dk], v [B][T][H][dv], log_decay [H], [B][T][H] or
 * [B][T][H][dk] or null, beta [B][T][H] or null (additive rules), out [B][T][max(H, Hq)][dv],
 * state: la_state_floats per sequence, in and out at once, in the layout of the row. The baselines
 * start from the empty state and have nowhere to store theirs, but for their workspace. */
typedef struct bench_data {
    const float *q, *k, *v, *log_decay, *beta, *projection;
    float *out, *state;
    void *workspace; /* bench_workspace(row) bytes for each thread, one after the other */
    size_t workspace_size; /* of one thread's */
} bench_data;

/* ---- engines: one forward of the row's shape; the slice of one of row->threads threads. ------ */

typedef void bench_run(const bench_row *row, const bench_data *data, int64_t thread);

bench_run bench_run_library, bench_run_plain_loop, bench_run_four_sweep, bench_run_softmax,
    bench_run_openblas;

/* bytes of workspace of one thread; 0 = the engine cannot do this row */
size_t bench_library_workspace(const bench_row *row);
size_t bench_baseline_workspace(const bench_row *row); /* of the engine in row->engine */
size_t bench_softmax_workspace(const bench_row *row);  /* what that answers for softmax */
int bench_has_openblas(void);

/* ---- the machine ----------------------------------------------------------------------------- */

enum { BENCH_LEVELS = 4, BENCH_ISAS = 5 }; /* L1, L2, L3, memory; LA_ISA_SCALAR .. */

typedef struct bench_machine {
    char cpu[128], compiler[128], date[32];
    const char *flags;                       /* of the compiler */
    int cores, pinned;
    double level_bytes[BENCH_LEVELS];        /* size of the buffer that stands for the level */
    double read_gbps[BENCH_LEVELS], write_gbps[BENCH_LEVELS]; /* write: read and written, summed */
    double peak[BENCH_ISAS];                 /* GFLOP/s of one thread; 0 = not available */
    double peak_all[BENCH_ISAS];             /* of all asked-for threads at once */
    double exp_rate[BENCH_ISAS];             /* exponentials per ns, degree 6 */
    int threads;                             /* of peak_all */
} bench_machine;

/* ---- reports --------------------------------------------------------------------------------- */

typedef enum bench_format { BENCH_TABLE, BENCH_MD, BENCH_CSV, BENCH_JSON } bench_format;

/* "retnet", or of a baseline "plain-loop", "four-sweep", "softmax", "openblas" */
const char *bench_row_name(const bench_row *row);
/* the parameters as options, e.g. "--variant gla --form chunkwise --isa avx2 --tokens 512 ...", or
 * "--variant plain-loop --rule gla ...": what a baseline computes */
void bench_row_options(const bench_row *row, char *text, size_t size);

void bench_report_begin(FILE *file, bench_format format, const bench_machine *machine);
void bench_report_row(FILE *file, bench_format format, const bench_row *row);
void bench_report_end(FILE *file, bench_format format);

/* 0, or 1 with one line on stderr */
int bench_plot(const char *path, const bench_machine *machine, const bench_row *rows, int count);
/* prints ratio and noise per row that both files have; the exit status */
int bench_compare(const char *a, const char *b);

#endif
