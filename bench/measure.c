/* A contest: rows of the same sizes, sampled in turn so that what the machine does meanwhile hits
 * all alike; first, where asked for, each is checked against the float64 oracle. A row that is
 * wrong gets no samples. */
#define _POSIX_C_SOURCE 200112L
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* At least 10 samples of 0.2 ms and more, but 5 do where they take half a second. */
enum { MOST_SAMPLES = 1000, ENOUGH_SAMPLES = 10, FEWEST_SAMPLES = 5 };
static const double shortest_sample = 2e5, long_enough = 5e8;

/* ---- what rows are --------------------------------------------------------------------------- */

/* small enough that random features estimate kernels well: sums of weights stay away from 0 */
float bench_scale(const bench_row *row) {
    const float d = (float)row->dim_k;
    return row->variant == LA_FAVOR ? 0.1f : row->variant == LA_RFF ? 1.0f / d : 1.0f / sqrtf(d);
}

/* as many keys as there are share weights that add up to about 1: 2409.04431 begins with that */
float bench_bias(const bench_row *row) {
    return -logf((float)row->tokens);
}

int bench_has_state(const bench_row *row) {
    return !bench_is_extra(row) || bench_extra_of(row)->family->state != NULL;
}

int bench_is_step(const bench_row *row) {
    return bench_has_state(row) && row->tokens <= BENCH_STEP && !row->stateless;
}

int bench_is_dplr(const bench_row *row) {
    return row->variant == LA_RWKV7;
}

int bench_erases(const bench_row *row) {
    return row->variant == LA_GDN2;
}

int bench_reads_first(const bench_row *row) {
    return row->variant == LA_RWKV6;
}

int bench_is_delta(const bench_row *row) {
    return row->variant == LA_DELTANET || row->variant == LA_GATED_DELTANET ||
           row->variant == LA_KDA || row->variant == LA_DPFP || bench_erases(row);
}

/* Mamba-2's is dt */
int bench_has_beta(const bench_row *row) {
    return bench_is_delta(row) || row->variant == LA_MAMBA2;
}

int bench_is_normalised(const bench_row *row) {
    return row->variant <= LA_COSFORMER || (row->variant >= LA_BASED && row->variant <= LA_MAPPED);
}

int bench_projects(const bench_row *row) {
    return row->variant == LA_FAVOR || row->variant == LA_HEDGEHOG || row->variant == LA_RFF;
}

int bench_has_channels(const bench_row *row) {
    return row->variant != LA_FAVOR && row->variant != LA_COSFORMER &&
           (row->variant < LA_DPFP || row->variant > LA_RFF);
}

int bench_usual_decay(const bench_row *row) {
    if (bench_is_extra(row)) return bench_has(row, BENCH_GATES) ? BENCH_CHANNEL : BENCH_NONE;
    switch (row->variant) {
    case LA_RETNET:
    case LA_LIGHTNING: return BENCH_HEAD;
    case LA_GLA:
    case LA_KDA:
    case LA_RWKV6:
    case LA_RWKV7:
    case LA_GDN2: return BENCH_CHANNEL;
    case LA_GATED_DELTANET:
    case LA_MAMBA2: return BENCH_TOKEN;
    default: return BENCH_NONE;
    }
}

int64_t bench_key_features(const bench_row *row) {
    switch (row->variant) {
    case LA_FAVOR: return row->features;
    case LA_HEDGEHOG:
    case LA_RFF: return 2 * row->features;
    case LA_COSFORMER:
    case LA_DPFP: return 2 * row->dim_k; /* nu = 1 */
    case LA_BASED: return (row->dim_k + 1) * (row->dim_k + 2) / 2;
    default: return row->dim_k;
    }
}

int64_t bench_out_heads(const bench_row *row) {
    return row->q_heads > row->heads ? row->q_heads : row->heads;
}

int bench_same_contest(const bench_row *a, const bench_row *b) {
    return a->batch == b->batch && a->tokens == b->tokens && a->heads == b->heads &&
           a->q_heads == b->q_heads && a->k_heads == b->k_heads && a->dim_k == b->dim_k &&
           a->dim_v == b->dim_v && a->threads == b->threads && a->strong == b->strong &&
           a->stateless == b->stateless;
}

/* per sequence, token and state head */
static double units(const bench_row *row) {
    return (double)row->batch * (double)row->tokens * (double)row->heads;
}

static size_t out_floats(const bench_row *row) {
    return (size_t)(row->batch * row->tokens * bench_out_heads(row) * row->dim_v);
}

static size_t state_bytes(const bench_row *row) {
    return bench_state_floats(row) * (size_t)row->batch * sizeof(float);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* What the rows of a contest share; the state and the workspace are as large as any needs. */
typedef struct buffers {
    bench_data data; /* but for what differs from row to row */
    const float *gates[4], *beta;
    const float *mapped_q, *mapped_k; /* positive, as features that a caller has mapped are */
    float *a, *b;                     /* -kk, of length 1, and kk lr */
    void *all[20];                    /* to be freed */
    int count;
} buffers;

static void *keep(buffers *b, size_t bytes) {
    return b->all[b->count++] = bench_allocate(bytes);
}

/* splitmix64: the same numbers in every run and contest */
static float uniform(uint64_t *state, float low, float high) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return low + (high - low) * (float)(x >> 40) / 16777216.0f;
}

static float *numbers(buffers *b, uint64_t seed, int64_t count, float low, float high) {
    float *x = keep(b, (size_t)count * sizeof *x);
    int64_t i;
    for (i = 0; i < count; ++i) x[i] = uniform(&seed, low, high);
    return x;
}

/* keys of length 1: a delta rule with beta in 0 .. 1 stays bounded */
static void normalise(float *x, int64_t rows, int64_t width) {
    int64_t i, j;
    for (i = 0; i < rows; ++i, x += width) {
        float sum = 0.0f;
        for (j = 0; j < width; ++j) sum += x[j] * x[j];
        for (j = 0; j < width; ++j) x[j] /= sqrtf(sum);
    }
}

static float *make_gates(buffers *b, const bench_row *row) {
    const int64_t tokens = row->decay == BENCH_HEAD ? 1 : row->batch * row->tokens;
    const int64_t width = row->heads * (row->decay == BENCH_CHANNEL ? row->dim_k : 1);
    float *x = numbers(b, 5, tokens * width, row->strong ? -20.0f : -0.1f, 0.0f);
    int64_t t, i;
    for (t = 6; row->strong && t < tokens; t += 7)
        for (i = 0; i < width; ++i) x[t * width + i] = t % 2 ? 0.0f : -INFINITY;
    return x;
}

/* FAVOR+'s rows differ in their numbers of features: the longest projection serves all */
static void make_projection(buffers *b, int64_t dk) {
    const int64_t m = b->data.most_features;
    float *rows = keep(b, (size_t)(m * dk) * sizeof *rows);
    float *columns = keep(b, (size_t)(m * dk) * sizeof *columns);
    int64_t i, j;
    la_favor_projection(rows, m, dk, LA_GAUSSIAN, 6);
    for (i = 0; i < m; ++i)
        for (j = 0; j < dk; ++j) columns[j * m + i] = rows[i * dk + j];
    b->data.projection = rows;
    b->data.columns = columns;
}

/* what some rules have per key channel */
static void make_partners(buffers *b, const bench_row *row) {
    const int64_t rows = row->batch * row->tokens * row->heads, dk = row->dim_k;
    int64_t i;
    b->data.bonus = numbers(b, 8, row->heads * dk, -1.0f, 1.0f);
    b->data.erase = numbers(b, 9, rows * dk, 0.0f, 1.0f);
    b->a = numbers(b, 10, rows * dk, -1.0f, 1.0f);
    b->b = numbers(b, 11, rows * dk, 0.0f, 1.0f);
    normalise(b->a, rows, dk);
    for (i = 0; i < rows * dk; ++i) b->b[i] *= -b->a[i];
    b->data.a = b->a;
    b->data.b = b->b;
}

static void make_buffers(buffers *b, const bench_row *rows, int count) {
    const int64_t tokens = rows->batch * rows->tokens, H = rows->heads;
    const int64_t dk = rows->dim_k, dv = rows->dim_v;
    size_t workspace = 0, states = 0;
    int64_t weights = 0;
    float *k;
    int i;
    memset(b, 0, sizeof *b);
    b->data.q = numbers(b, 1, tokens * rows->q_heads * dk, -1.0f, 1.0f);
    b->data.k = k = numbers(b, 2, tokens * rows->k_heads * dk, -1.0f, 1.0f);
    normalise(k, tokens * rows->k_heads, dk);
    b->data.v = numbers(b, 3, tokens * H * dv, -1.0f, 1.0f);
    b->beta = numbers(b, 4, tokens * H, 0.0f, 1.0f);
    b->data.out = keep(b, out_floats(rows) * sizeof(float));
    for (i = 0; i < count; ++i) {
        const bench_row *row = &rows[i];
        const size_t state = state_bytes(row), work = bench_workspace(row) * (size_t)row->threads;
        if (state > states) states = state;
        if (work > workspace) workspace = work;
        if (bench_weights(row) > weights) weights = bench_weights(row);
        if (row->features > b->data.most_features) b->data.most_features = row->features;
        if ((bench_is_dplr(row) || bench_erases(row) || bench_reads_first(row)) && !b->a)
            make_partners(b, row);
        if (row->decay != BENCH_NONE && !b->gates[row->decay])
            b->gates[row->decay] = make_gates(b, row);
    }
    make_projection(b, dk);
    b->mapped_q = numbers(b, 7, tokens * rows->q_heads * dk, 0.0f, 1.0f);
    b->mapped_k = numbers(b, 8, tokens * rows->k_heads * dk, 0.0f, 1.0f);
    b->data.weights = numbers(b, 12, weights, -0.5f, 0.5f);
    b->data.state = keep(b, states);
    b->data.workspace = keep(b, workspace);
}

/* ---- one row --------------------------------------------------------------------------------- */

typedef struct runner {
    bench_row *row;
    bench_data data;
    bench_run *run;
    long reps; /* of a sample */
    double spent;
    double samples[MOST_SAMPLES]; /* ns of one forward */
} runner;

static void make_runner(runner *r, bench_row *row, const buffers *b) {
    static bench_run *const runs[] = {bench_run_library, bench_run_plain_loop, bench_run_four_sweep,
                                      bench_run_openblas};
    r->row = row;
    r->run = bench_is_extra(row) ? bench_extra_of(row)->family->run : runs[row->engine];
    r->data = b->data;
    r->data.log_decay = b->gates[row->decay];
    r->data.beta = bench_has_beta(row) ? b->beta : NULL;
    if (row->variant == LA_MAPPED) {
        r->data.q = b->mapped_q;
        r->data.k = b->mapped_k;
    }
    r->data.head_floats = bench_state_floats(row) / (size_t)row->heads;
    r->data.workspace_size = bench_workspace(row);
}

static void run_slice(void *what, int64_t thread) {
    const runner *r = what;
    bench_clear_registers(); /* whatever ran before */
    r->run(r->row, &r->data, thread);
}

/* The state of another row, in another layout, may stand there. */
static void clear_state(const runner *r) {
    memset(r->data.state, 0, state_bytes(r->row));
}

static void do_nothing(void *what, int64_t thread) {
    (void)what;
    (void)thread;
}

/* ns of one forward, of `reps`; short ones after one that warms the caches. A thread that has given
 * way to others while there was nothing to do comes back first: that can take milliseconds. */
static double sample(runner *r, long reps) {
    static volatile float sink; /* results that are looked at cannot be dropped */
    const size_t last = out_floats(r->row) - 1;
    double start;
    long i;
    if (bench_is_step(r->row)) clear_state(r);
    if (reps > 1 || bench_is_step(r->row)) bench_pool_run(run_slice, r);
    bench_pool_run(do_nothing, NULL);
    start = bench_ns();
    for (i = 0; i < reps; ++i) bench_pool_run(run_slice, r);
    start = bench_ns() - start;
    for (i = 0; i <= 64; ++i) sink = sink + r->data.out[last * (size_t)i / 64];
    return start / (double)reps;
}

/* repetitions that fill a sample; this is the warm-up, too */
static void choose_reps(runner *r) {
    double time;
    r->reps = 1;
    for (;;) {
        time = sample(r, r->reps) * (double)r->reps;
        if (time >= shortest_sample) return;
        r->reps = time < shortest_sample / 10.0
                      ? r->reps * 10
                      : 1 + (long)((double)r->reps * 1.2 * shortest_sample / time);
    }
}

/* ---- the check ------------------------------------------------------------------------------- */

/* rows that the same oracle serves */
static int same_rule(const bench_row *a, const bench_row *b) {
    if (a->features != b->features || bench_is_extra(a) != bench_is_extra(b)) return 0;
    if (bench_is_extra(a)) return a->engine == b->engine && a->chunk == b->chunk;
    return a->variant == b->variant && a->decay == b->decay;
}

/* of the outputs of one head: squares of o - o64, of o64, of o's size without cancellation; the
 * largest square of one element's o - o64, of so many */
typedef struct distance {
    double difference, output, size, most, count;
} distance;

/* one row of o; NaN is what nothing is promised of */
static void add_row(distance *d, const float *out, const double *want, double size, int64_t width) {
    int64_t j;
    if (isnan(want[0])) return;
    for (j = 0; j < width; ++j) {
        const double e = (double)out[j] - want[j];
        d->difference += e * e;
        d->output += want[j] * want[j];
        d->most = fmax(d->most, e * e);
    }
    d->size += size;
    d->count += (double)width;
}

/* What the library promises, for each head of each sequence: |o - o64| <= c max(|o64|, N), where N
 * is the size without cancellation. One wrong element of many would not show in that: none may be
 * off by more than 4 c times their root mean square. Right kernels come to 0.3 and 1.1 c, with one
 * token or two; of more, to less. The error of the row is that of all. */
static int is_right(bench_row *row, const float *out, const double *want, const double *size) {
    const int64_t heads = bench_out_heads(row), dv = row->dim_v, T = row->tokens;
    const int loops = row->engine != BENCH_LIBRARY && !bench_is_extra(row);
    const double one = loops ? 4e-7 : 5e-8; /* a loop adds one by one */
    const double sums = one * sqrt((double)bench_key_features(row));
    const double c = fmax(1e-6 * sqrt((double)T), bench_projects(row) ? fmax(5e-6, sums) : sums);
    double difference = 0.0, output = 0.0, count = 0.0;
    int64_t i, t;
    int right = 1;
    for (i = 0; i < row->batch * heads; ++i) {
        distance d = {0.0, 0.0, 0.0, 0.0, 0.0};
        double limit;
        for (t = 0; t < T; ++t) {
            const int64_t at = (i / heads * T + t) * heads + i % heads;
            if (bench_oracle_token(row, t))
                add_row(&d, out + at * dv, want + at * dv, size[at], dv);
        }
        limit = c * c * fmax(d.output, d.size);
        right &= d.difference <= limit && d.most * d.count <= 16.0 * limit;
        difference += d.difference;
        output += d.output;
        count += d.count;
    }
    row->error = difference == 0.0 ? 0.0 : sqrt(difference / output);
    return right && count > 0.0;
}

/* Steps are checked with a state that is not empty: the second of two. */
static void check(runner *r, double *want, double *size, const bench_row *previous) {
    bench_row *row = r->row;
    size_t i;
    for (i = 0; i < out_floats(row); ++i) r->data.out[i] = NAN;
    clear_state(r);
    bench_pool_run(run_slice, r);
    if (bench_is_step(row)) bench_pool_run(run_slice, r);
    if (!previous || !same_rule(row, previous))
        bench_oracle(row, &r->data, bench_is_step(row) ? 2 : 1, want, size);
    row->failed = !is_right(row, r->data.out, want, size);
}

/* FNV-1a of the output */
static uint64_t hash(runner *r) {
    const unsigned char *bytes = (const unsigned char *)r->data.out;
    const size_t size = out_floats(r->row) * sizeof(float);
    uint64_t h = 0xcbf29ce484222325u;
    size_t i;
    clear_state(r);
    bench_pool_run(run_slice, r);
    for (i = 0; i < size; ++i) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

/* ---- the contest ----------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void conclude(runner *r, const bench_machine *machine, const bench_limits *limits) {
    bench_row *row = r->row;
    const int n = row->samples;
    qsort(r->samples, (size_t)n, sizeof *r->samples, compare);
    row->ns_min = r->samples[0] / units(row);
    row->ns_median = r->samples[n / 2] / units(row);
    row->ns_spread = (r->samples[(3 * n) / 4] - r->samples[n / 4]) / r->samples[n / 2];
    bench_floor(row, machine, limits);
    if (row->floor_share > 1.03) row->failed = 1;
}

static int wants_more(const runner *r, const bench_options *options) {
    const int n = r->row->samples;
    if (r->row->failed || n == MOST_SAMPLES) return 0;
    if (options->reps) return n < options->reps;
    return n < (r->spent < long_enough ? ENOUGH_SAMPLES : FEWEST_SAMPLES) ||
           r->spent < options->min_time;
}

/* one line on a terminal that the next one overwrites; null: none */
static void progress(const bench_row *row, int samples) {
    char text[BENCH_TEXT] = "";
    if (!isatty(2)) return;
    if (row) bench_row_options(row, BENCH_ALL_OPTIONS, text);
    if (row)
        fprintf(stderr, "\r\033[K%3d %.70s", samples, text);
    else
        fprintf(stderr, "\r\033[K");
    fflush(stderr);
}

/* what the machine does meanwhile: with the rows' instructions, and on their states */
static void sample_limits(bench_limits *limits, const runner *runners, int count) {
    const bench_row *first = runners->row;
    int i;
    for (i = 0; i < count; ++i) {
        const int isa = runners[i].row->isa;
        if (i && isa == runners[i - 1].row->isa) continue;
        limits->peak[isa] = fmax(limits->peak[isa], bench_peak(isa));
    }
    if (bench_is_step(first))
        limits->update_gbps =
            fmax(limits->update_gbps, bench_update_gbps(runners->data.state, state_bytes(first)));
}

/* rounds: one sample of each row, and of the limits */
static void sample_all(runner *runners, int count, const bench_options *options,
                       bench_limits *limits) {
    int i, more = 1;
    for (i = 0; i < count; ++i)
        if (!runners[i].row->failed) choose_reps(&runners[i]);
    while (more) {
        more = 0;
        for (i = 0; i < count; ++i) {
            runner *r = &runners[i];
            if (!wants_more(r, options)) continue;
            progress(r->row, r->row->samples);
            r->samples[r->row->samples] = sample(r, r->reps);
            r->spent += r->samples[r->row->samples++] * (double)r->reps;
            more = 1;
        }
        sample_limits(limits, runners, count);
    }
    progress(NULL, 0);
}

/* against the plain loop of the same rule */
static void compare_to_plain(bench_row *rows, int count) {
    int i, j;
    for (i = 0; i < count; ++i)
        for (j = 0; j < count; ++j)
            if (rows[j].engine == BENCH_PLAIN_LOOP && same_rule(&rows[i], &rows[j]) &&
                rows[i].ns_min > 0.0)
                rows[i].speedup_plain = rows[j].ns_min / rows[i].ns_min;
}

void bench_contest(bench_row *rows, int count, const bench_options *options,
                   const bench_machine *machine) {
    runner *runners = bench_allocate((size_t)count * sizeof *runners);
    const size_t floats = options->check ? out_floats(rows) : 0;
    double *want = bench_allocate(floats * sizeof *want); /* and size, which is shorter */
    double *size = bench_allocate(floats * sizeof *size);
    bench_limits limits = {{0.0}, 0.0};
    buffers b;
    int i, isa;
    make_buffers(&b, rows, count);
    bench_pool_open(rows->threads);
    for (i = 0; i < count; ++i) {
        make_runner(&runners[i], &rows[i], &b);
        rows[i].error = -1.0;
        progress(&rows[i], 0);
        if (options->check) check(&runners[i], want, size, i ? &rows[i - 1] : NULL);
        if (options->mode == MODE_SCALE) rows[i].hash = hash(&runners[i]);
    }
    sample_all(runners, count, options, &limits);
    for (isa = 1; isa < BENCH_ISAS; ++isa)
        if (!(limits.peak[isa] > 0.0)) limits.peak[isa] = machine->peak[isa];
    for (i = 0; i < count; ++i)
        if (!rows[i].failed) conclude(&runners[i], machine, &limits);
    compare_to_plain(rows, count);
    bench_pool_close();
    free(want);
    free(size);
    free(runners);
    while (b.count > 0) free(b.all[--b.count]);
}
