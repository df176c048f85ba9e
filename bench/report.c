/* Rows as they come: the table on a terminal, Markdown, CSV, JSON; and a row's parameters as the
 * options that ask for it again. */
#define _POSIX_C_SOURCE 200112L
#include "core.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

static const char *const engines[] = {NULL, "plain-loop", "four-sweep", "softmax", "openblas"};
static const char *const forms[] = {"auto", "parallel", "recurrent", "chunkwise"};
static const char *const decays[] = {"none", "head", "token", "channel"};
static const char *const levels[] = {"L1", "L2", "L3", "memory"};

/* ---- parameters ------------------------------------------------------------------------------ */

static int is_library(const bench_row *row) {
    return row->engine == BENCH_LIBRARY;
}

static int is_softmax(const bench_row *row) {
    return row->engine == BENCH_SOFTMAX;
}

static int is_favor(const bench_row *row) {
    return is_library(row) && row->variant == LA_FAVOR;
}

/* what a baseline does not have is null, or the default, whatever the row says */
static const char *form(const bench_row *row) {
    return is_library(row) ? forms[row->form] : NULL;
}

static const char *rule(const bench_row *row) {
    return is_library(row) || is_softmax(row) ? NULL : la_variant_name(row->variant);
}

static int decay(const bench_row *row) {
    return is_softmax(row) ? BENCH_NONE : row->decay;
}

static int strong(const bench_row *row) {
    return !is_softmax(row) && row->strong;
}

static int layout(const bench_row *row) {
    return is_library(row) ? row->layout : LA_KV;
}

/* what the variant's paper has, and the bench unless asked for something else */
static int usual_decay(const bench_row *row) {
    if (is_softmax(row)) return BENCH_NONE;
    switch (row->variant) {
    case LA_RETNET:
    case LA_LIGHTNING: return BENCH_HEAD;
    case LA_GLA: return BENCH_CHANNEL;
    case LA_GATED_DELTANET: return BENCH_TOKEN;
    default: return BENCH_NONE;
    }
}

const char *bench_row_name(const bench_row *row) {
    return is_library(row) ? la_variant_name(row->variant) : engines[row->engine];
}

static void append(char *text, size_t size, const char *format, ...) {
    const size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, size - used, format, list);
    va_end(list);
}

static void append_number(char *text, size_t size, const char *option, int64_t value) {
    append(text, size, " --%s %lld", option, (long long)value);
}

void bench_row_options(const bench_row *row, char *text, size_t size) {
    snprintf(text, size, "--variant %s", bench_row_name(row));
    if (rule(row)) append(text, size, " --rule %s", rule(row));
    if (form(row)) append(text, size, " --form %s", form(row));
    append(text, size, " --isa %s", la_isa_name(row->isa));
    append_number(text, size, "tokens", row->tokens);
    append_number(text, size, "dims", row->dim_k);
    if (row->dim_v != row->dim_k) append(text, size, "x%lld", (long long)row->dim_v);
    append_number(text, size, "heads", row->heads);
    append_number(text, size, "threads", row->threads);
    if (row->batch != 1) append_number(text, size, "batch", row->batch);
    if (row->q_heads != row->heads) append_number(text, size, "q-heads", row->q_heads);
    if (row->k_heads != row->heads) append_number(text, size, "k-heads", row->k_heads);
    if (row->chunk) append_number(text, size, "chunk", row->chunk);
    if (decay(row) != usual_decay(row)) append(text, size, " --decay %s", decays[decay(row)]);
    if (strong(row)) append(text, size, " --gates strong");
    if (layout(row) == LA_VK) append(text, size, " --layout vk");
    if (is_favor(row) && row->features != 128) append_number(text, size, "features", row->features);
}

/* ---- results --------------------------------------------------------------------------------- */

static double gflops(const bench_row *row) {
    return row->flops / row->ns_min;
}

static double gbps(const bench_row *row) {
    return row->bytes / row->ns_min;
}

/* a row that failed has no speed to show, and a share only where that is what is wrong */
static int has_share(const bench_row *row) {
    return !row->failed || row->floor_share > 1.03;
}

/* through all heads: a token is done when its last head is */
static double tokens_per_second(const bench_row *row) {
    return 1e9 / (row->ns_min * (double)row->heads);
}

/* ---- table and Markdown ---------------------------------------------------------------------- */

/* The last two cells are often empty, and stand there so that the lines are short then. */
/* clang-format off */
enum { NAME, FORM, ISA, DECAY, NS, MEDIAN, SPREAD, MTOKENS, GFLOPS, GBPS, FLOOR, PLAIN, OWN, ERROR,
       COLUMNS };
enum { CELL = 32 };

static const struct {
    const char *name;
    int width; /* negative: to the left */
} columns[COLUMNS] = {
    {"variant", -14}, {"form", -16},  {"isa", -6},    {"decay", -7},    /* parameters */
    {"ns", 8},        {"median", 7},  {"spread", 6},                    /* times */
    {"Mtok/s", 6},    {"GFLOP/s", 7}, {"GB/s", 6},                      /* rates */
    {"floor", 6},     {"x plain", 7}, {"own", 4},     {"error", 7}};
/* clang-format on */

static const char *const legend[] = {
    "ns       nanoseconds per token and state head, of the fastest sample; median: of all",
    "spread   of the samples: from the 25th to the 75th percentile, as a share of the median",
    "Mtok/s   million tokens per second, each through all heads",
    "GFLOP/s  the fewest flops that any form needs / ns; GB/s: inputs, output, states once / ns",
    "floor    the longer of the times that these take on this machine, as a share of ns",
    "x plain  the plain loop's ns / ns",
    "own      as floor, of the flops of this form and chunk, where that differs",
    "error    |o - o64| / |o64|, where checked against float64",
    "A baseline has no form; the rule that it computes stands there.",
};

static bench_row previous; /* of this report; before the first: no tokens */

static void print_size(FILE *file, double bytes) {
    const int mega = bytes >= 1048576.0;
    fprintf(file, " %6.0f %s", bytes / (mega ? 1048576.0 : 1024.0), mega ? "MiB" : "KiB");
}

static void print_numbers(FILE *file, const char *name, const double *x, int count) {
    int i;
    fprintf(file, "%-16s", name);
    for (i = 0; i < count; ++i) fprintf(file, " %10.1f", x[i]);
}

static void print_memory(FILE *file, const bench_machine *machine) {
    int i;
    fprintf(file, "\n%-16s", "memory");
    for (i = 0; i < BENCH_LEVELS; ++i) fprintf(file, " %10s", levels[i]);
    fprintf(file, "\n%-16s", "buffer");
    for (i = 0; i < BENCH_LEVELS; ++i) print_size(file, machine->level_bytes[i]);
    fputc('\n', file);
    print_numbers(file, "read, GB/s", machine->read_gbps, BENCH_LEVELS);
    fputc('\n', file);
    print_numbers(file, "read+write, GB/s", machine->write_gbps, BENCH_LEVELS);
    fputc('\n', file);
}

static void print_machine(FILE *file, const bench_machine *machine) {
    const int several = machine->threads > 1;
    size_t i;
    fprintf(file, "cpu       %s, %d core%s, threads %spinned\n", machine->cpu, machine->cores,
            machine->cores == 1 ? "" : "s", machine->pinned ? "" : "not ");
    fprintf(file, "compiler  %s, %s\n", machine->compiler, machine->flags);
    fprintf(file, "date      %s\n\n", machine->date);
    fprintf(file, "%-16s %10s", "peak, GFLOP/s", "1 thread");
    if (several) fprintf(file, " %2d threads", machine->threads);
    fprintf(file, " %10s\n", "exp/ns");
    for (i = 0; i < BENCH_ISAS; ++i) {
        const double rates[] = {machine->peak[i], machine->peak_all[i], machine->exp_rate[i]};
        if (!(rates[0] > 0.0)) continue;
        print_numbers(file, la_isa_name((int)i), rates, 1 + several);
        fprintf(file, " %10.2f\n", rates[2]);
    }
    print_memory(file, machine);
    fputc('\n', file);
    for (i = 0; i < sizeof legend / sizeof *legend; ++i) fprintf(file, "%s\n", legend[i]);
}

static void append_count(char *text, size_t size, int64_t count, const char *what) {
    append(text, size, ", %lld %s%s", (long long)count, what, count == 1 ? "" : "s");
}

static void contest(const bench_row *row, char *text, size_t size) {
    snprintf(text, size, "T = %lld, %lld x %lld", (long long)row->tokens, (long long)row->dim_k,
             (long long)row->dim_v);
    if (row->batch != 1) append(text, size, ", batch %lld", (long long)row->batch);
    append_count(text, size, row->heads, "head");
    if (row->q_heads != row->heads) append_count(text, size, row->q_heads, "query head");
    if (row->k_heads != row->heads) append_count(text, size, row->k_heads, "key head");
    append_count(text, size, row->threads, "thread");
    if (row->strong) append(text, size, ", strong gates");
}

static void fill_parameters(const bench_row *row, char cell[][CELL]) {
    snprintf(cell[NAME], CELL, "%s", bench_row_name(row));
    if (is_favor(row) && row->features != 128)
        append(cell[NAME], CELL, " %lld", (long long)row->features);
    snprintf(cell[FORM], CELL, "%s", form(row) ? form(row) : rule(row) ? rule(row) : "");
    if (row->chunk) append(cell[FORM], CELL, " %lld", (long long)row->chunk);
    if (layout(row) == LA_VK) append(cell[FORM], CELL, " vk");
    snprintf(cell[ISA], CELL, "%s", la_isa_name(row->isa));
    snprintf(cell[DECAY], CELL, "%s", decays[decay(row)]);
}

static void fill_speed(const bench_row *row, char cell[][CELL]) {
    snprintf(cell[NS], CELL, "%.1f", row->ns_min);
    snprintf(cell[MEDIAN], CELL, "%.1f", row->ns_median);
    snprintf(cell[SPREAD], CELL, "%.1f%%", 100.0 * row->ns_spread);
    snprintf(cell[MTOKENS], CELL, "%.3f", 1e-6 * tokens_per_second(row));
    snprintf(cell[GFLOPS], CELL, "%.1f", gflops(row));
    snprintf(cell[GBPS], CELL, "%.1f", gbps(row));
    if (row->speedup_plain > 0.0) snprintf(cell[PLAIN], CELL, "%.2f", row->speedup_plain);
    if (fabs(row->own_share / row->floor_share - 1.0) > 0.005)
        snprintf(cell[OWN], CELL, "%.0f%%", 100.0 * row->own_share);
}

static void fill_cells(const bench_row *row, char cell[][CELL]) {
    memset(cell, 0, COLUMNS * sizeof *cell);
    fill_parameters(row, cell);
    if (!row->failed)
        fill_speed(row, cell);
    else
        snprintf(cell[NS], CELL, "%s", has_share(row) ? "FLOOR?" : "WRONG");
    if (has_share(row)) snprintf(cell[FLOOR], CELL, "%.1f%%", 100.0 * row->floor_share);
    if (!(row->error < 0.0)) snprintf(cell[ERROR], CELL, "%.1e", row->error);
}

/* on a terminal up to the last cell that holds something */
static void print_cells(FILE *file, int markdown, int first, char cell[][CELL]) {
    int i, end = COLUMNS;
    while (!markdown && !*cell[end - 1]) --end;
    for (i = first; i < end; ++i)
        fprintf(file, markdown ? "| %*s " : i ? " %*s" : "%*s", columns[i].width, cell[i]);
    fputs(markdown ? "|\n" : "\n", file);
}

/* The heading takes the place of the names of the first columns, which need none. */
static void print_heading(FILE *file, const char *text, char names[][CELL]) {
    int i, width = NS - 1;
    for (i = 0; i < NS; ++i) width -= columns[i].width;
    if (strlen(text) > (size_t)width) fprintf(file, "%s\n", text), text = "";
    fprintf(file, "%-*s", width, text);
    print_cells(file, 0, NS, names);
}

static void print_group(FILE *file, int markdown, const bench_row *row) {
    char text[160], cell[COLUMNS][CELL];
    int i;
    for (i = 0; i < COLUMNS; ++i) snprintf(cell[i], CELL, "%s", columns[i].name);
    contest(row, text, sizeof text);
    fputc('\n', file);
    if (!markdown) {
        print_heading(file, text, cell);
        return;
    }
    fprintf(file, "**%s**\n\n", text);
    print_cells(file, markdown, 0, cell);
    for (i = 0; i < COLUMNS; ++i) fputs(columns[i].width < 0 ? "|:--" : "|--:", file);
    fputs("|\n", file);
}

static void print_row(FILE *file, int markdown, const bench_row *row) {
    char cell[COLUMNS][CELL];
    if (!bench_same_contest(row, &previous)) print_group(file, markdown, row);
    previous = *row;
    fill_cells(row, cell);
    print_cells(file, markdown, 0, cell);
}

/* ---- CSV and JSON ---------------------------------------------------------------------------- */

/* One walk over the fields writes the names (CSV's first line), the values, or both. */
typedef struct writer {
    FILE *file;
    enum { NAMES, VALUES, PAIRS } style;
    int count;
} writer;

static int rows; /* of this report so far */

static void write_string(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; ++text) {
        const unsigned char c = (unsigned char)*text;
        if (c < 32 || c > 126)
            fputc('?', file); /* nothing of ours, and may be no UTF-8 */
        else
            fprintf(file, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    fputc('"', file);
}

/* whether the value is to follow */
static int write_key(writer *to, const char *key) {
    if (to->count++) fputs(to->style == PAIRS ? ", " : ",", to->file);
    if (to->style == NAMES) fputs(key, to->file);
    if (to->style == PAIRS) fprintf(to->file, "\"%s\": ", key);
    return to->style != NAMES;
}

static void write_null(const writer *to) {
    if (to->style == PAIRS) fputs("null", to->file);
}

static void write_text(writer *to, const char *key, const char *text) {
    if (!write_key(to, key)) return;
    if (!text)
        write_null(to);
    else if (to->style == PAIRS)
        write_string(to->file, text);
    else
        fputs(text, to->file);
}

static void write_number(writer *to, const char *key, double value) {
    if (!write_key(to, key)) return;
    if (isfinite(value))
        fprintf(to->file, "%.10g", value);
    else
        write_null(to);
}

static void write_flag(writer *to, const char *key, int value) {
    if (write_key(to, key)) fputs(value ? "true" : "false", to->file);
}

/* what only a row that did not fail, or one that was checked, has */
static void write_number_if(writer *to, const char *key, int has, double value) {
    write_number(to, key, has ? value : HUGE_VAL);
}

static void write_parameters(writer *to, const bench_row *row) {
    write_text(to, "variant", bench_row_name(row));
    write_text(to, "rule", rule(row));
    write_text(to, "form", form(row));
    write_text(to, "isa", la_isa_name(row->isa));
    write_number(to, "tokens", (double)row->tokens);
    write_number(to, "dim_k", (double)row->dim_k);
    write_number(to, "dim_v", (double)row->dim_v);
    write_number(to, "heads", (double)row->heads);
    write_number(to, "q_heads", (double)row->q_heads);
    write_number(to, "k_heads", (double)row->k_heads);
    write_number(to, "batch", (double)row->batch);
    write_number(to, "threads", (double)row->threads);
    write_number(to, "chunk", (double)row->chunk);
    write_text(to, "decay", decays[decay(row)]);
    write_text(to, "gates", strong(row) ? "strong" : "ordinary");
    write_text(to, "layout", layout(row) == LA_VK ? "vk" : "kv");
    write_number_if(to, "features", is_favor(row), (double)row->features);
}

static void write_results(writer *to, const bench_row *row) {
    const int fine = !row->failed;
    write_number_if(to, "ns_per_token_head", fine, row->ns_min);
    write_number_if(to, "ns_per_token_head_median", fine, row->ns_median);
    write_number_if(to, "spread", fine, row->ns_spread);
    write_number(to, "samples", row->samples);
    write_number(to, "floor_ns", row->floor_ns);
    write_number_if(to, "floor_share", has_share(row), row->floor_share);
    write_number_if(to, "own_share", has_share(row), row->own_share);
    write_number_if(to, "gflops", fine, gflops(row));
    write_number_if(to, "gbps", fine, gbps(row));
    write_number_if(to, "tokens_per_second", fine, tokens_per_second(row));
    write_number_if(to, "speedup_plain", fine && row->speedup_plain > 0.0, row->speedup_plain);
    write_number_if(to, "error", row->error >= 0.0, row->error);
    write_flag(to, "failed", row->failed);
}

static void write_row(writer *to, const bench_row *row) {
    char options[256];
    bench_row_options(row, options, sizeof options);
    write_parameters(to, row);
    write_results(to, row);
    write_text(to, "options", options);
}

static void write_isas(FILE *file, const bench_machine *machine) {
    int i, count = 0;
    fputs(",\n\"isas\": [", file);
    for (i = 0; i < BENCH_ISAS; ++i) {
        writer to = {file, PAIRS, 0};
        if (!(machine->peak[i] > 0.0)) continue;
        fputs(count++ ? ",\n  {" : "\n  {", file);
        write_text(&to, "isa", la_isa_name(i));
        write_number(&to, "peak_gflops", machine->peak[i]);
        write_number(&to, "peak_gflops_all", machine->peak_all[i]);
        write_number(&to, "exp_per_ns", machine->exp_rate[i]);
        fputc('}', file);
    }
    fputc(']', file);
}

static void write_levels(FILE *file, const bench_machine *machine) {
    int i;
    fputs(",\n\"levels\": [", file);
    for (i = 0; i < BENCH_LEVELS; ++i) {
        writer to = {file, PAIRS, 0};
        fputs(i ? ",\n  {" : "\n  {", file);
        write_text(&to, "level", levels[i]);
        write_number(&to, "bytes", machine->level_bytes[i]);
        write_number(&to, "read_gbps", machine->read_gbps[i]);
        write_number(&to, "write_gbps", machine->write_gbps[i]);
        fputc('}', file);
    }
    fputc(']', file);
}

static void json_begin(writer *to, const bench_machine *machine) {
    fputs("{\"machine\": {", to->file);
    write_text(to, "cpu", machine->cpu);
    write_text(to, "compiler", machine->compiler);
    write_text(to, "flags", machine->flags);
    write_text(to, "date", machine->date);
    write_number(to, "cores", machine->cores);
    write_flag(to, "pinned", machine->pinned);
    write_number(to, "threads", machine->threads);
    write_isas(to->file, machine);
    write_levels(to->file, machine);
    fputs("},\n\"rows\": [", to->file);
}

/* ---- the four formats ------------------------------------------------------------------------ */

void bench_report_begin(FILE *file, bench_format format, const bench_machine *machine) {
    static const bench_row none = {.variant = LA_ELU};
    writer names = {file, NAMES, 0}, pairs = {file, PAIRS, 0};
    rows = 0;
    previous = none;
    if (format == BENCH_MD) fputs("```text\n", file);
    if (format == BENCH_TABLE || format == BENCH_MD) print_machine(file, machine);
    if (format == BENCH_MD) fputs("```\n", file);
    if (format == BENCH_CSV) write_row(&names, &none), fputc('\n', file);
    if (format == BENCH_JSON) json_begin(&pairs, machine);
    fflush(file);
}

void bench_report_row(FILE *file, bench_format format, const bench_row *row) {
    writer values = {file, VALUES, 0}, pairs = {file, PAIRS, 0};
    if (format == BENCH_TABLE || format == BENCH_MD) print_row(file, format == BENCH_MD, row);
    if (format == BENCH_CSV) write_row(&values, row), fputc('\n', file);
    if (format == BENCH_JSON) {
        fputs(rows++ ? ",\n{" : "\n{", file);
        write_row(&pairs, row);
        fputc('}', file);
    }
    fflush(file);
}

void bench_report_end(FILE *file, bench_format format) {
    if (format == BENCH_JSON) fputs("\n]}\n", file);
    fflush(file);
}
