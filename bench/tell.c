/* What follows from all rows together: from which length on what is linear beats softmax, how far
 * LA_AUTO is from the best, what threads gain; and which rows failed. */
#include "bench.h"
#include <string.h>

enum { MOST = 12 }; /* columns: lengths, or numbers of threads */

typedef struct table {
    const char *begin, *end; /* of a section */
    const bench_row *rows;
    int count;
} table;

/* whether all parameters are equal but those */
static int alike(const bench_row *a, const bench_row *b, int but) {
    char x[BENCH_TEXT], y[BENCH_TEXT];
    if (a->engine != b->engine || a->variant != b->variant || b->failed) return 0;
    bench_row_options(a, but, x);
    bench_row_options(b, but, y);
    return strcmp(x, y) == 0;
}

/* whether a row like it stands before this one */
static int is_first(const table *t, const bench_row *row, int but) {
    const bench_row *other = t->rows;
    while (other < row && !alike(row, other, but)) ++other;
    return other == row;
}

/* "retnet chunkwise avx2 dims=64 ..." */
static void print_name(const bench_row *row, int but) {
    char options[BENCH_TEXT], text[BENCH_TEXT];
    bench_row_options(row, but, options);
    bench_shorten(options, text);
    printf("%s\n", text);
}

/* n is among those, which stay in order */
static void insert(int64_t n, int64_t *sorted, int *count) {
    int i, j;
    for (i = 0; i < *count && sorted[i] < n;) ++i;
    if ((i < *count && sorted[i] == n) || *count == MOST) return;
    for (j = (*count)++; j > i; --j) sorted[j] = sorted[j - 1];
    sorted[i] = n;
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* the row like this one with so many tokens; null: there is none */
static const bench_row *at_length(const table *t, const bench_row *row, int64_t tokens) {
    int i;
    for (i = 0; i < t->count; ++i)
        if (t->rows[i].tokens == tokens && alike(row, &t->rows[i], BENCH_NO_TOKENS))
            return &t->rows[i];
    return NULL;
}

/* ns of softmax attention over tensors of the row's sizes; 0: there is none */
static double softmax_ns(const table *t, const bench_row *row) {
    int i;
    for (i = 0; i < t->count; ++i) {
        const bench_row *softmax = &t->rows[i];
        bench_row other = *row;
        if (softmax->engine != BENCH_SOFTMAX || softmax->failed || softmax->isa != row->isa)
            continue;
        other.strong = softmax->strong; /* it has no gates */
        if (bench_same_contest(softmax, &other)) return softmax->ns_min;
    }
    return 0.0;
}

/* Where the row's variant overtakes softmax, and softmax' time over its own. Between two lengths
 * either time per token is taken to lie on a line, as softmax' does. */
static void print_lengths(const table *t, const bench_row *row, const int64_t *length, int count) {
    double gain = 0.0, first = 0.0, from = 0.0, T = 0.0;
    char cells[MOST * 8 + 1] = "", text[32];
    int i;
    for (i = 0; i < count; ++i) {
        const bench_row *at = at_length(t, row, length[i]);
        const double softmax = at ? softmax_ns(t, at) : 0.0, last_gain = gain, last = T;
        snprintf(cells + 8 * i, 9, "%8s", "");
        if (softmax == 0.0) continue;
        T = (double)length[i];
        gain = softmax - at->ns_min;
        if (first == 0.0) from = first = T;
        if (gain > 0.0 && last_gain < 0.0)
            from = last + (T - last) * last_gain / (last_gain - gain);
        snprintf(cells + 8 * i, 9, "%8.2f", softmax / at->ns_min);
    }
    if (first == 0.0) return;
    snprintf(text, sizeof text, "%s%.0f",
             gain <= 0.0     ? "> "
             : from == first ? "< "
                             : "",
             gain <= 0.0 ? T : from);
    printf("%8s%s  ", text, cells);
    print_name(row, BENCH_NO_TOKENS);
}

static void tell_softmax(const table *t) {
    int64_t length[MOST];
    int i, count = 0;
    for (i = 0; i < t->count; ++i)
        if (t->rows[i].engine == BENCH_SOFTMAX) insert(t->rows[i].tokens, length, &count);
    if (count < 2) return;
    printf("%sfaster than causal softmax from this T on, and its time / theirs at T =\n    from",
           t->begin);
    for (i = 0; i < count; ++i) printf("%8lld", (long long)length[i]);
    putchar('\n');
    for (i = 0; i < t->count; ++i) {
        const bench_row *row = &t->rows[i];
        const int is_asked = row->engine == BENCH_LIBRARY || row->engine > BENCH_SOFTMAX;
        if (is_asked && !row->failed && is_first(t, row, BENCH_NO_TOKENS))
            print_lengths(t, row, length, count);
    }
    printf("%s", t->end);
}

/* ---- LA_AUTO --------------------------------------------------------------------------------- */

static int runs_the_same(const bench_row *a, const bench_row *b) {
    const la_plan x = bench_plan(a), y = bench_plan(b);
    return x.form == y.form && x.chunk == y.chunk && strcmp(x.kernel, y.kernel) == 0;
}

/* "chunkwise 64", "chunkwise pair", "recurrent" */
static void form_text(const bench_row *row, char text[32]) {
    const la_plan plan = bench_plan(row);
    const char *form = bench_value_name(AXIS_FORM, plan.form);
    if (plan.form != LA_CHUNKWISE)
        snprintf(text, 32, "%s", form);
    else if (strcmp(plan.kernel, "tile") == 0)
        snprintf(text, 32, "%s %lld", form, (long long)plan.chunk);
    else
        snprintf(text, 32, "%s %s", form, plan.kernel);
}

/* What LA_AUTO takes may have been measured under its own name, too: the better one counts. Returns
 * how far that is from the fastest form. */
static double print_auto(const table *t, const bench_row *row) {
    const bench_row *best = row, *own = row;
    char form[32], fastest[32];
    int i;
    for (i = 0; i < t->count; ++i) {
        const bench_row *other = &t->rows[i];
        if (other->tokens != row->tokens || !alike(row, other, BENCH_NO_FORM)) continue;
        if (other->ns_min < best->ns_min) best = other;
        if (other->ns_min < own->ns_min && runs_the_same(row, other)) own = other;
    }
    form_text(row, form);
    form_text(best, fastest);
    printf("%7lld  %-15s %9.1f  %-15s %9.1f %6.1f%%\n", (long long)row->tokens, form, own->ns_min,
           fastest, best->ns_min, 100.0 * (own->ns_min / best->ns_min - 1.0));
    return own->ns_min / best->ns_min - 1.0;
}

static int is_auto(const bench_row *row) {
    return row->engine == BENCH_LIBRARY && row->form == LA_AUTO && !row->failed;
}

static void tell_sweep(const table *t) {
    const int but = BENCH_NO_FORM | BENCH_NO_TOKENS;
    int i, j, rows = 0, close = 0;
    printf("%s", t->begin);
    for (i = 0; i < t->count; ++i) {
        if (!is_auto(&t->rows[i]) || !is_first(t, &t->rows[i], but)) continue;
        print_name(&t->rows[i], but);
        printf("%7s  %-15s %9s  %-15s %9s %7s\n", "T", "LA_AUTO takes", "ns", "fastest", "ns",
               "behind");
        for (j = i; j < t->count; ++j) {
            if (!is_auto(&t->rows[j]) || !alike(&t->rows[i], &t->rows[j], but)) continue;
            close += print_auto(t, &t->rows[j]) <= 0.05;
            ++rows;
        }
        putchar('\n');
    }
    printf("LA_AUTO is at most 5 %% behind the fastest in %d of %d rows.\n%s", close, rows, t->end);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void print_speed_up(const table *t, const bench_row *one, const int64_t *threads,
                           int count) {
    int i, j, same = 1;
    printf("%9.1f", one->ns_min);
    for (i = 0; i < count; ++i) {
        char cell[16] = "";
        for (j = 0; j < t->count; ++j) {
            const bench_row *row = &t->rows[j];
            if (row->threads != threads[i] || !alike(one, row, BENCH_NO_THREADS)) continue;
            snprintf(cell, sizeof cell, "%.2f", one->ns_min / row->ns_min);
            same &= row->hash == one->hash;
        }
        printf("%7s", cell);
    }
    printf("  %s  ", same ? "same " : "OTHER");
    print_name(one, BENCH_NO_THREADS);
}

static void tell_scale(const table *t) {
    int64_t threads[MOST];
    int i, count = 0;
    for (i = 0; i < t->count; ++i)
        if (t->rows[i].threads > 1) insert(t->rows[i].threads, threads, &count);
    printf("%sspeed-up over one thread, and whether the output has the same bits\n\n1 thread:",
           t->begin);
    for (i = 0; i < count; ++i) printf("%7lld", (long long)threads[i]);
    printf("  bits\n%9s\n", "ns");
    for (i = 0; i < t->count; ++i)
        if (t->rows[i].threads == 1 && !t->rows[i].failed)
            print_speed_up(t, &t->rows[i], threads, count);
    printf("%s", t->end);
}

/* ---- what is wrong --------------------------------------------------------------------------- */

/* whether the output of the row is not that of one thread */
static int has_other_bits(const table *t, const bench_row *row) {
    int i;
    for (i = 0; i < t->count; ++i)
        if (t->rows[i].threads == 1 && alike(row, &t->rows[i], BENCH_NO_THREADS))
            return row->hash != t->rows[i].hash;
    return 0;
}

static int tell_failures(const table *t) {
    char text[BENCH_TEXT];
    int i, bad = 0;
    for (i = 0; i < t->count; ++i) {
        const bench_row *row = &t->rows[i];
        const int other = has_other_bits(t, row);
        if (!row->failed && !other) continue;
        bench_row_options(row, BENCH_ALL_OPTIONS, text);
        if (!row->failed)
            fprintf(stderr, "bench: other bits than with one thread: %s\n", text);
        else if (row->floor_share > 1.03)
            fprintf(stderr, "bench: %.2f of the floor: %s\n", row->floor_share, text);
        else
            fprintf(stderr, "bench: wrong, error %.1e: %s\n", row->error, text);
        ++bad;
    }
    return bad;
}

int bench_tell(const bench_options *options, const bench_row *rows, int count) {
    const int markdown = options->format == BENCH_MD;
    const table t = {markdown ? "\n```text\n" : "\n", markdown ? "```\n" : "", rows, count};
    if (options->format <= BENCH_MD) {
        if (options->mode == MODE_BENCH) tell_softmax(&t);
        if (options->mode == MODE_SWEEP) tell_sweep(&t);
        if (options->mode == MODE_SCALE) tell_scale(&t);
    }
    return tell_failures(&t);
}
