/* The modes. The exit status is 1 if a row is wrong, or faster than its floor allows: then the
 * floor or the timing is. */
#include "bench.h"
#include <stdlib.h>

static void print_names(int axis, const char *what, int64_t first, int64_t end) {
    int64_t i;
    for (i = first; i < end; ++i) printf("%s %s\n", what, bench_value_name(axis, i));
}

static int list_names(void) {
    int isa;
    int variants = LA_ELU;
    while (la_variant_name((la_variant)variants)) ++variants;
    print_names(AXIS_VARIANT, "variant", LA_ELU, variants);
    print_names(AXIS_BASELINES, "baseline", BENCH_PLAIN_LOOP,
                bench_has_openblas() ? BENCH_SOFTMAX : BENCH_OPENBLAS);
    print_names(AXIS_BASELINES, "baseline", BENCH_SOFTMAX, BENCH_ENGINES);
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

/* contest after contest, each told when it is over */
static void measure(bench_row *rows, int count, const bench_options *o,
                    const bench_machine *machine) {
    int first, i, n;
    bench_report_begin(stdout, o->format, machine);
    for (first = 0; first < count; first += n) {
        for (n = 1; first + n < count; ++n)
            if (!bench_same_contest(&rows[first], &rows[first + n])) break;
        bench_contest(&rows[first], n, o, machine);
        for (i = first; i < first + n; ++i) bench_report_row(stdout, o->format, &rows[i]);
    }
    bench_report_end(stdout, o->format);
}

int main(int argc, char **argv) {
    bench_options options;
    bench_machine machine;
    bench_row *rows;
    int count, bad;
    bench_parse(&options, argc, argv);
    if (options.mode == MODE_LIST) return list_names();
    if (options.mode == MODE_COMPARE) {
        bench_compare(options.files[0], options.files[1]);
        return 0;
    }
    bench_measure_machine(&machine, most_threads(&options));
    count = bench_collect(&rows, &options, &machine);
    measure(rows, count, &options, &machine);
    bad = bench_tell(&options, rows, count);
    if (options.plot) bad += bench_plot(options.plot, &machine, rows, count);
    free(rows);
    return bad != 0;
}
