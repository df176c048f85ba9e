/* The command line: a mode, and for every axis a list of values. */
#define _POSIX_C_SOURCE 200112L
#include "bench.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of values ------------------------------------------------------------------------- */

static const char *const modes[] = {"bench",  "check", "sweep",  "scale",
                                    "decode", "list",  "compare"};
static const char *const forms[] = {"auto", "parallel", "recurrent", "chunkwise"};
static const char *const decays[] = {"none", "head", "token", "channel"};
static const char *const gates[] = {"ordinary", "strong"};
static const char *const states[] = {"kept", "none"};
static const char *const layouts[] = {"kv", "vk"};
static const char *const formats[] = {"table", "md", "csv", "json"};

static const char *pick(const char *const *names, int64_t count, int64_t value) {
    return value >= 0 && value < count ? names[value] : NULL;
}

#define PICK(names, value) pick(names, (int64_t)(sizeof(names) / sizeof *(names)), value)

const char *bench_value_name(int axis, int64_t value) {
    static bench_row baseline;
    switch (axis) {
    case AXIS_VARIANT:
        if (value < BENCH_BASELINE) return la_variant_name((la_variant)value);
        value -= BENCH_BASELINE; /* fall through */
    case AXIS_BASELINES:
        if (value <= BENCH_LIBRARY || value >= BENCH_ENGINES) return NULL;
        baseline.engine = (bench_engine)value;
        return bench_row_name(&baseline);
    case AXIS_RULE: return la_variant_name((la_variant)value);
    case AXIS_FORM: return PICK(forms, value);
    case AXIS_DECAY: return PICK(decays, value);
    case AXIS_GATES: return PICK(gates, value);
    case AXIS_STATE: return PICK(states, value);
    case AXIS_LAYOUT: return PICK(layouts, value);
    case AXIS_ISA: return la_isa_name((int)value);
    default: return NULL;
    }
}

/* ---- axes ------------------------------------------------------------------------------------ */

enum { MOST_NAMED = BENCH_BASELINE + BENCH_ENGINES };

/* clang-format off */
static const struct {
    const char *option;
    int64_t low, high; /* of numbers; of names low = high = 0 */
    const char *help;
} axes[AXES] = {
    /* in the order of the enum */
    {"--batch",     1, 1 << 16, "sequences"},
    {"--heads",     1, 1024,    "states of a sequence"},
    {"--q-heads",   1, 4096,    "query heads (as many as heads)"},
    {"--k-heads",   1, 1024,    "key heads (as many as heads)"},
    {"--dims",      1, 4096,    "dim_k, or dim_k x dim_v: 64,128x256"},
    {"--tokens",    1, 1 << 24, "of a sequence; up to 16 continue the state in place"},
    {"--threads",   1, 256,     ""},
    {"--gates",     0, 0,       "ordinary (-0.1 .. 0), strong (-20 .. 0, every 7th 0 or -inf)"},
    {"--state",     0, 0,       "kept, none: neither read nor stored, however few the tokens"},
    {"--variant",   0, 0,       "of the library, or a baseline; `bench list` has the names"},
    {"--rule",      0, 0,       "the variants that baselines compute (those of --variant)"},
    {"--features",  1, 65536,   "of favor, hedgehog, rff: rows of the projection; ranks (128)"},
    {"--decay",     0, 0,       "none, head, token, channel (the variant's own)"},
    {"--form",      0, 0,       "auto, recurrent, chunkwise, parallel"},
    {"--chunk",     0, 1024,    "of the chunkwise form (0: its own), openblas (64), infini (512)"},
    {"--layout",    0, 0,       "of the state: kv, vk"},
    {"--isa",       0, 0,       "auto, or names"},
    {"--baselines", 0, 0,       "all, none, or names; without --variant: see below"},
};

static const char usage[] =
    "usage: bench [MODE] [OPTION VALUE]...\n"
    "\n"
    "  bench      time, and the share of what this machine can do (the default)\n"
    "  check      every form and instruction set against the float64 oracle\n"
    "  sweep      forms and chunks against the number of tokens, and what LA_AUTO takes\n"
    "  scale      what threads gain, and whether they change a bit\n"
    "  decode     one token, 32 heads or what fits: states that fill half of L2, of L3; memory\n"
    "  list       the names of variants, baselines, forms, instruction sets\n"
    "  compare A.json B.json\n"
    "\n"
    "Options that take a list, such as 64,128; of names also `all`:\n";

static const char more_usage[] =
    "\n"
    "Others:\n"
    "  --reps N           samples of each row (at least 10, and as --min-time has it)\n"
    "  --min-time S       seconds of samples of each row (0.05)\n"
    "  --filter RE        only rows whose options match the extended regular expression\n"
    "  --check            also check each row against the float64 oracle\n"
    "  --format FORMAT    table, md, csv, json\n"
    "  --plot FILE.svg    time per token against the number of tokens\n"
    "\n"
    "Baselines are all that stands beside the library's variants, and `--variant all` has none of\n"
    "them. plain-loop, four-sweep and openblas compute a rule. The others are what LA_EXTRAS has:\n"
    "\n"
    "  softmax, sigmoid       causal attention\n"
    "  infini, infini-delta   the same in segments of --chunk tokens, and a memory\n"
    "  linformer              attention to --features rows, not causal\n"
    "  synthesizer-d, -fd     dense, with a hidden layer of --features; factorised dense; causal\n"
    "  synthesizer-r, -fr     random; factorised random, of rank --features\n"
    "  rwkv4, hgrn            element-wise recurrences, dim_v channels a head\n"
    "\n"
    "Without --variant, bench takes plain-loop, four-sweep, softmax and openblas, and check all.\n"
    "\n"
    "bench --plot FILE.svg alone takes what a README needs: all variants, the plain loop, four\n"
    "sweeps and softmax at d = 128, T = 64 .. 8192. That is a quarter of a minute.\n";
/* clang-format on */

static void help(void) {
    int i;
    fputs(usage, stdout);
    for (i = 0; i < AXES; ++i) printf("  %-18s %s\n", axes[i].option, axes[i].help);
    fputs(more_usage, stdout);
    exit(0);
}

void bench_default(bench_options *options, int axis, int count, const int64_t *values) {
    bench_axis *a = &options->axis[axis];
    if (a->given) return;
    a->count = count;
    memcpy(a->at, values, (size_t)count * sizeof *values);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int64_t number(const char *option, const char *text, int64_t low, int64_t high) {
    char *end;
    long long value;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end || errno || *text == '+' || *text == ' ')
        bench_fail(2, "%s: \"%s\" is no number", option, text);
    if (value < low || value > high)
        bench_fail(2, "%s: %lld is not in %lld .. %lld", option, value, (long long)low,
                   (long long)high);
    return value;
}

static double seconds(const char *option, const char *text) {
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0.0 && value <= 3600.0))
        bench_fail(2, "%s: \"%s\" is not in 0 .. 3600", option, text);
    return value;
}

/* "64" or "128x256" */
static int64_t dims(const char *option, char *text, int64_t low, int64_t high) {
    char *x = strchr(text, 'x');
    int64_t dim_k, dim_v;
    if (x) *x = '\0';
    dim_k = number(option, text, low, high);
    dim_v = x ? number(option, x + 1, low, high) : dim_k;
    return dim_k * BENCH_WIDTH + dim_v;
}

static int64_t named(int axis, const char *text) {
    int64_t value;
    for (value = 0; value < MOST_NAMED; ++value) {
        const char *name = bench_value_name(axis, value);
        if (name && strcmp(name, text) == 0) return value;
    }
    bench_fail(2, "%s: there is no \"%s\" (see bench list)", axes[axis].option, text);
}

/* all of the library's and this machine's; a baseline is no variant unless it is named */
static int is_one_of_all(int axis, int64_t value) {
    if (axis == AXIS_ISA) return value != LA_ISA_AUTO && la_isa_available((int)value);
    return bench_value_name(axis, value) && !(axis == AXIS_VARIANT && value >= BENCH_BASELINE);
}

static void add_value(bench_axis *axis, const char *option, int64_t value) {
    if (axis->count == BENCH_VALUES)
        bench_fail(2, "%s: more than %d values", option, (int)BENCH_VALUES);
    axis->at[axis->count++] = value;
}

static void take_item(bench_axis *axis, int i, char *text) {
    const int has_names = axes[i].high == 0;
    int64_t value;
    if (has_names && strcmp(text, "all") == 0) {
        for (value = 0; value < MOST_NAMED; ++value)
            if (is_one_of_all(i, value)) add_value(axis, axes[i].option, value);
        return;
    }
    axis->named = 1;
    if (i == AXIS_BASELINES && strcmp(text, "none") == 0) return;
    if (has_names)
        value = named(i, text);
    else if (i == AXIS_DIMS)
        value = dims(axes[i].option, text, axes[i].low, axes[i].high);
    else
        value = number(axes[i].option, text, axes[i].low, axes[i].high);
    add_value(axis, axes[i].option, value);
}

static void take_list(bench_options *options, int i, const char *list) {
    bench_axis *axis = &options->axis[i];
    char text[64];
    if (axis->given) bench_fail(2, "%s is given twice", axes[i].option);
    axis->given = 1;
    axis->count = 0;
    for (;;) {
        const size_t length = strcspn(list, ",");
        if (length == 0 || length >= sizeof text)
            bench_fail(2, "%s: a value is %s", axes[i].option, length ? "too long" : "missing");
        snprintf(text, sizeof text, "%.*s", (int)length, list);
        take_item(axis, i, text);
        if (!list[length]) return;
        list += length + 1;
    }
}

static bench_format find_format(const char *text) {
    int i;
    for (i = 0; PICK(formats, i); ++i)
        if (strcmp(formats[i], text) == 0) return (bench_format)i;
    bench_fail(2, "--format: there is no \"%s\": table, md, csv, json", text);
}

/* ---- the command line ------------------------------------------------------------------------ */

static void take_option(bench_options *options, const char *option, const char *value) {
    static const char *const others[] = {"--reps", "--min-time", "--filter", "--plot", "--format"};
    int axis, other;
    for (axis = 0; axis < AXES && strcmp(axes[axis].option, option) != 0;) ++axis;
    for (other = 0; PICK(others, other) && strcmp(others[other], option) != 0;) ++other;
    if (axis == AXES && !PICK(others, other))
        bench_fail(2, "unknown option %s (see bench --help)", option);
    if (!value) bench_fail(2, "%s: a value is missing", option);
    if (axis < AXES)
        take_list(options, axis, value);
    else if (other == 0)
        options->reps = (int)number(option, value, 1, 1000);
    else if (other == 1)
        options->min_time = 1e9 * seconds(option, value);
    else if (other == 2)
        options->filter = value;
    else if (other == 3)
        options->plot = value;
    else
        options->format = find_format(value);
}

static int take_mode(bench_options *options, int argc, char **argv) {
    int i;
    if (argc < 2 || argv[1][0] == '-') return 1;
    for (i = 0; i < MODES && strcmp(modes[i], argv[1]) != 0; ++i) {
    }
    if (i == MODES) bench_fail(2, "unknown mode %s (see bench --help)", argv[1]);
    options->mode = (bench_mode)i;
    if (options->mode != MODE_COMPARE) return 2;
    if (argc != 4) bench_fail(2, "compare takes two files");
    options->files[0] = argv[2];
    options->files[1] = argv[3];
    return 4;
}

void bench_parse(bench_options *options, int argc, char **argv) {
    int i;
    memset(options, 0, sizeof *options);
    options->min_time = 5e7;
    for (i = 1; i < argc; ++i)
        if (strcmp(argv[i], "--help") == 0) help();
    for (i = take_mode(options, argc, argv); i < argc; ++i) {
        if (argv[i][0] != '-') bench_fail(2, "%s is no option (see bench --help)", argv[i]);
        if (strcmp(argv[i], "--check") == 0)
            options->check = 1;
        else
            take_option(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL), ++i;
    }
}
