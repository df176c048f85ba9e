/* The modes: contest after contest, and what is told of them. The exit status is 1 if a row is
 * wrong, or faster than its floor allows: then the floor or the timing is. */
#include "core.h"
#include <stdlib.h>
#include <string.h>

/* ---- what is told ---------------------------------------------------------------------------- */

/* the options of the row as if its form and chunk, or its threads, were others' */
static void options_but(const bench_row *row, bench_mode mode, char *text) {
    bench_row other = *row;
    if (mode == MODE_SWEEP) {
        other.form = LA_AUTO;
        other.chunk = 0;
    }
    if (mode == MODE_SCALE) other.threads = 1;
    bench_row_options(&other, text, BENCH_TEXT);
}

/* the first of `count` rows with these options; null: there is none */
static const bench_row *find(const bench_row *rows, int count, const char *options) {
    char text[BENCH_TEXT];
    int i;
    for (i = 0; i < count; ++i) {
        bench_row_options(&rows[i], text, sizeof text);
        if (!rows[i].failed && strcmp(text, options) == 0) return &rows[i];
    }
    return NULL;
}

/* of the rows of a contest that differ in form and chunk alone: the fastest, and what LA_AUTO takes
 * beside it */
static void tell_sweep(FILE *file, const bench_row *rows, int count) {
    char text[BENCH_TEXT], other[BENCH_TEXT], best_text[BENCH_TEXT];
    int i, j;
    for (i = 0; i < count; ++i) {
        const bench_row *best = NULL;
        if (rows[i].form != LA_AUTO || rows[i].engine != BENCH_LIBRARY || rows[i].failed) continue;
        options_but(&rows[i], MODE_SWEEP, text);
        for (j = 0; j < count; ++j) {
            options_but(&rows[j], MODE_SWEEP, other);
            if (!rows[j].failed && rows[j].engine == BENCH_LIBRARY && strcmp(text, other) == 0 &&
                (!best || rows[j].ns_min < best->ns_min))
                best = &rows[j];
        }
        bench_row_options(best, best_text, sizeof best_text);
        fprintf(file, "auto: %5.1f%% over the best, %s\n",
                100.0 * (rows[i].ns_min / best->ns_min - 1.0), best_text);
    }
}

/* speed-up over one thread, and whether the output is the same; returns how many are not */
static int tell_scale(FILE *file, const bench_row *rows, const uint64_t *hashes, int count) {
    char text[BENCH_TEXT];
    int i, bad = 0;
    fprintf(file, "\nspeed-up over one thread\n");
    for (i = 0; i < count; ++i) {
        const bench_row *one;
        int same;
        options_but(&rows[i], MODE_SCALE, text);
        one = find(rows, count, text);
        if (!one || rows[i].threads == 1 || rows[i].failed) continue;
        same = hashes[i] == hashes[one - rows];
        bench_row_options(&rows[i], text, sizeof text);
        fprintf(file, "%5.2f  %s  %s\n", one->ns_min / rows[i].ns_min,
                same ? "the same bits" : "OTHER BITS   ", text);
        bad += !same;
    }
    return bad;
}

static int tell_failures(const bench_row *rows, int count) {
    char text[BENCH_TEXT];
    int i, bad = 0;
    for (i = 0; i < count; ++i) {
        if (!rows[i].failed) continue;
        bench_row_options(&rows[i], text, sizeof text);
        if (rows[i].floor_share > 1.03)
            fprintf(stderr, "bench: %.2f of the floor: %s\n", rows[i].floor_share, text);
        else
            fprintf(stderr, "bench: error %.1e: %s\n", rows[i].error, text);
        ++bad;
    }
    return bad;
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void print_names(int axis, const char *what, int64_t first, int64_t end) {
    int64_t i;
    for (i = first; i < end; ++i) printf("%s %s\n", what, bench_value_name(axis, i));
}

static int list_names(void) {
    int isa;
    print_names(AXIS_VARIANT, "variant", LA_ELU, LA_GATED_DELTANET + 1);
    print_names(AXIS_BASELINES, "baseline", BENCH_PLAIN_LOOP,
                bench_has_openblas() ? BENCH_ENGINES : BENCH_OPENBLAS);
    print_names(AXIS_FORM, "form", LA_AUTO, LA_CHUNKWISE + 1);
    for (isa = 1; isa < BENCH_ISAS; ++isa)
        if (la_isa_available(isa)) print_names(AXIS_ISA, "isa", isa, isa + 1);
    return 0;
}

/* 0: as many as there are */
static int most_threads(const bench_options *o) {
    const bench_axis *threads = &o->axis[AXIS_THREADS];
    int64_t most = o->mode != MODE_SCALE;
    int i;
    for (i = 0; i < threads->count; ++i)
        if (threads->at[i] > most) most = threads->at[i];
    return (int)most;
}

/* contest after contest, each told when it is over; returns the rows that failed */
static int measure(bench_row *rows, int count, const bench_options *o,
                   const bench_machine *machine) {
    uint64_t *hashes = bench_allocate((size_t)count * sizeof *hashes);
    FILE *notes = o->format <= BENCH_MD ? stdout : stderr;
    int first, i, n, bad = 0;
    bench_report_begin(stdout, o->format, machine);
    for (first = 0; first < count; first += n) {
        for (n = 1; first + n < count; ++n)
            if (!bench_same_contest(&rows[first], &rows[first + n])) break;
        bench_contest(&rows[first], &hashes[first], n, o, machine);
        for (i = first; i < first + n; ++i) bench_report_row(stdout, o->format, &rows[i]);
        if (o->mode == MODE_SWEEP) tell_sweep(notes, &rows[first], n);
    }
    bench_report_end(stdout, o->format);
    if (o->mode == MODE_SCALE) bad = tell_scale(notes, rows, hashes, count);
    free(hashes);
    return bad + tell_failures(rows, count);
}

int main(int argc, char **argv) {
    bench_options options;
    bench_machine machine;
    bench_row *rows;
    int count, bad;
    bench_parse(&options, argc, argv);
    if (options.mode == MODE_LIST) return list_names();
    if (options.mode == MODE_COMPARE) return bench_compare(options.files[0], options.files[1]);
    bench_measure_machine(&machine, most_threads(&options));
    count = bench_collect(&rows, &options, &machine);
    bad = measure(rows, count, &options, &machine);
    if (options.plot) bad += bench_plot(options.plot, &machine, rows, count);
    free(rows);
    return bad != 0;
}
