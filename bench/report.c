/* Rows as they come: the table on a terminal, Markdown, CSV, JSON; and a row's parameters as the
 * options that ask for it again. */
#define _POSIX_C_SOURCE 200112L
#include "bench.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

static const char *const levels[BENCH_LEVELS] = {"L1", "L2", "L3", "memory"};
static const char *const engines[] = {NULL, "plain-loop", "four-sweep", "openblas"};

/* ---- parameters ------------------------------------------------------------------------------ */

const char *bench_row_name(const bench_row *row) {
    if (bench_is_extra(row)) return bench_extra_of(row)->name;
    return row->engine == BENCH_LIBRARY ? la_variant_name(row->variant) : engines[row->engine];
}

/* of a baseline null */
static const char *form(const bench_row *row) {
    return row->engine == BENCH_LIBRARY ? bench_value_name(AXIS_FORM, row->form) : NULL;
}

/* what a baseline computes; else null */
static const char *rule(const bench_row *row) {
    const int has = row->engine != BENCH_LIBRARY && !bench_is_extra(row);
    return has ? la_variant_name(row->variant) : NULL;
}

static const char *decay(const bench_row *row) {
    return bench_value_name(AXIS_DECAY, row->decay);
}

static void append(char *text, size_t size, const char *format, ...) {
    const size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, size - used, format, list);
    va_end(list);
}

static void append_number(char *text, const char *option, int64_t value) {
    append(text, BENCH_TEXT, " --%s %lld", option, (long long)value);
}

static void append_name(char *text, const char *option, const char *value) {
    append(text, BENCH_TEXT, " --%s %s", option, value);
}

void bench_row_options(const bench_row *row, int but, char text[BENCH_TEXT]) {
    snprintf(text, BENCH_TEXT, "--variant %s", bench_row_name(row));
    if (rule(row)) append_name(text, "rule", rule(row));
    if (form(row) && !(but & BENCH_NO_FORM)) append_name(text, "form", form(row));
    append_name(text, "isa", la_isa_name(row->isa));
    if (!(but & BENCH_NO_TOKENS)) append_number(text, "tokens", row->tokens);
    append_number(text, "dims", row->dim_k);
    if (row->dim_v != row->dim_k) append(text, BENCH_TEXT, "x%lld", (long long)row->dim_v);
    append_number(text, "heads", row->heads);
    if (!(but & BENCH_NO_THREADS)) append_number(text, "threads", row->threads);
    if (row->batch != 1) append_number(text, "batch", row->batch);
    if (row->q_heads != row->heads) append_number(text, "q-heads", row->q_heads);
    if (row->k_heads != row->heads) append_number(text, "k-heads", row->k_heads);
    if (row->chunk && !(but & BENCH_NO_FORM)) append_number(text, "chunk", row->chunk);
    if (row->decay != bench_usual_decay(row)) append_name(text, "decay", decay(row));
    if (row->strong) append_name(text, "gates", "strong");
    if (row->stateless) append_name(text, "state", "none");
    if (form(row) && row->layout == LA_VK) append_name(text, "layout", "vk");
    if (row->features && row->features != 128) append_number(text, "features", row->features);
}

void bench_shorten(const char *at, char text[BENCH_TEXT]) {
    for (text[0] = '\0'; *at; at += strspn(at, " ")) {
        const int plain = strncmp(at, "--variant ", 10) == 0 || strncmp(at, "--rule ", 7) == 0 ||
                          strncmp(at, "--form ", 7) == 0 || strncmp(at, "--isa ", 6) == 0;
        const char *name = at + strspn(at, "-"), *name_end = name + strcspn(name, " ");
        const char *value = name_end + strspn(name_end, " ");
        at = value + strcspn(value, " ");
        append(text, BENCH_TEXT, "%s%.*s%s%.*s", *text ? " " : "",
               plain ? 0 : (int)(name_end - name), name, plain ? "" : "=", (int)(at - value),
               value);
    }
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
    {"floor", 6},     {"x plain", 7}, {"own", 7},     {"error", 7}};
/* clang-format on */

static const char *const legend[] = {
    "ns       nanoseconds per token and state head, of the fastest sample; median: of all",
    "spread   of the samples: from the 25th to the 75th percentile, as a share of the median",
    "Mtok/s   million tokens per second, each through all heads",
    "GFLOP/s  the fewest flops that any form needs / ns; GB/s: inputs, outputs, states once / ns",
    "floor    the longer of the times that these take on this machine, as a share of ns",
    "x plain  the plain loop's ns / ns",
    "own      as floor, of the flops of this form and chunk, where that differs; more than",
    "         100 % where decay leaves nothing of old tokens, and the kernel leaves them out",
    "states   of a step: where they are, and GB/s as a share of what that reads and writes",
    "error    |o - o64| / |o64|, where checked against float64",
    "A baseline has no form; the rule that it computes, or its segment, stands there.",
};

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
    if (row->stateless) append(text, size, ", no state");
}

static void fill_parameters(const bench_row *row, char cell[][CELL]) {
    snprintf(cell[NAME], CELL, "%s", bench_row_name(row));
    if (row->features && row->features != 128)
        append(cell[NAME], CELL, " %lld", (long long)row->features);
    snprintf(cell[FORM], CELL, "%s", form(row) ? form(row) : rule(row) ? rule(row) : "");
    if (row->chunk) append(cell[FORM], CELL, " %lld", (long long)row->chunk);
    if (row->layout == LA_VK) append(cell[FORM], CELL, " vk");
    snprintf(cell[ISA], CELL, "%s", la_isa_name(row->isa));
    snprintf(cell[DECAY], CELL, "%s", decay(row));
}

static void fill_speed(const bench_row *row, char cell[][CELL]) {
    snprintf(cell[NS], CELL, "%.1f", row->ns_min);
    snprintf(cell[MEDIAN], CELL, "%.1f", row->ns_median);
    snprintf(cell[SPREAD], CELL, "%.1f%%", 100.0 * row->ns_spread);
    snprintf(cell[MTOKENS], CELL, "%.3f", 1e-6 * tokens_per_second(row));
    snprintf(cell[GFLOPS], CELL, "%.1f", gflops(row));
    snprintf(cell[GBPS], CELL, "%.1f", gbps(row));
    if (row->speedup_plain > 0.0) snprintf(cell[PLAIN], CELL, "%.2f", row->speedup_plain);
    if (bench_is_step(row))
        snprintf(cell[OWN], CELL, "%.3s %3.0f%%", levels[row->level], 100.0 * row->level_share);
    else if (fabs(row->own_share / row->floor_share - 1.0) > 0.005)
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
    if (bench_is_step(row)) snprintf(cell[OWN], CELL, "states");
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
    fill_cells(row, cell);
    print_cells(file, markdown, 0, cell);
}

/* ---- CSV and JSON ---------------------------------------------------------------------------- */

/* Names and values of a row or a part of the machine, as JSON has them. */
enum { FIELDS = 48 };

typedef struct record {
    const char *name[FIELDS];
    char value[FIELDS][2 * BENCH_TEXT];
    int count;
} record;

static void put_text(record *to, const char *name, const char *text) {
    char *at = to->value[to->count], *const end = at + sizeof *to->value - 4;
    to->name[to->count++] = name;
    strcpy(at, text ? "\"" : "null");
    for (at += strlen(at); text && *text && at < end; ++text) {
        if (*text == '"' || *text == '\\') *at++ = '\\';
        *at++ = *text < ' ' || *text > '~' ? '?' : *text; /* nothing of ours, and may be no UTF-8 */
    }
    strcpy(at, text ? "\"" : "");
}

/* null if there is no such number */
static void put_number(record *to, const char *name, int has, double value) {
    to->name[to->count] = name;
    snprintf(to->value[to->count++], 32, has && isfinite(value) ? "%.10g" : "null", value);
}

static void put_flag(record *to, const char *name, int value) {
    to->name[to->count] = name;
    strcpy(to->value[to->count++], value ? "true" : "false");
}

static void put_parameters(record *to, const bench_row *row) {
    put_text(to, "variant", bench_row_name(row));
    put_text(to, "rule", rule(row));
    put_text(to, "form", form(row));
    put_text(to, "isa", la_isa_name(row->isa));
    put_number(to, "tokens", 1, (double)row->tokens);
    put_number(to, "dim_k", 1, (double)row->dim_k);
    put_number(to, "dim_v", 1, (double)row->dim_v);
    put_number(to, "heads", 1, (double)row->heads);
    put_number(to, "q_heads", 1, (double)row->q_heads);
    put_number(to, "k_heads", 1, (double)row->k_heads);
    put_number(to, "batch", 1, (double)row->batch);
    put_number(to, "threads", 1, (double)row->threads);
    put_number(to, "chunk", 1, (double)row->chunk);
    put_text(to, "decay", decay(row));
    put_text(to, "gates", row->strong ? "strong" : "ordinary");
    put_text(to, "state", row->stateless ? "none" : "kept");
    put_text(to, "layout", row->layout == LA_VK ? "vk" : "kv");
    put_number(to, "features", row->features != 0, (double)row->features);
}

/* a row that failed has no speed */
static record row_record(const bench_row *row) {
    const int fine = !row->failed, step = has_share(row) && bench_is_step(row);
    char options[BENCH_TEXT];
    record to = {.count = 0};
    put_parameters(&to, row);
    put_number(&to, "ns_per_token_head", fine, row->ns_min);
    put_number(&to, "ns_per_token_head_median", fine, row->ns_median);
    put_number(&to, "spread", fine, row->ns_spread);
    put_number(&to, "samples", 1, row->samples);
    put_number(&to, "floor_ns", 1, row->floor_ns);
    put_number(&to, "floor_share", has_share(row), row->floor_share);
    put_number(&to, "own_share", has_share(row), row->own_share);
    put_text(&to, "level", step ? levels[row->level] : NULL);
    put_number(&to, "level_share", step, row->level_share);
    put_number(&to, "gflops", fine, gflops(row));
    put_number(&to, "gbps", fine, gbps(row));
    put_number(&to, "tokens_per_second", fine, tokens_per_second(row));
    put_number(&to, "speedup_plain", fine && row->speedup_plain > 0.0, row->speedup_plain);
    put_number(&to, "error", row->error >= 0.0, row->error);
    put_flag(&to, "failed", row->failed);
    bench_row_options(row, BENCH_ALL_OPTIONS, options);
    put_text(&to, "options", options);
    return to;
}

/* "name": value, ... */
static void write_pairs(FILE *file, const record *from) {
    int i;
    for (i = 0; i < from->count; ++i)
        fprintf(file, "%s\"%s\": %s", i ? ", " : "", from->name[i], from->value[i]);
}

/* the names, or the values: without quotes, null as nothing */
static void write_csv(FILE *file, const record *from, int names) {
    int i;
    for (i = 0; i < from->count; ++i) {
        const char *text = names ? from->name[i] : from->value[i];
        const size_t quote = *text == '"';
        fprintf(file, "%s%.*s", i ? "," : "",
                strcmp(text, "null") == 0 ? 0 : (int)(strlen(text) - 2 * quote), text + quote);
    }
    fputc('\n', file);
}

static void write_isas(FILE *file, const bench_machine *machine) {
    int i, count = 0;
    fputs(",\n\"isas\": [", file);
    for (i = 0; i < BENCH_ISAS; ++i) {
        record isa = {.count = 0};
        if (!(machine->peak[i] > 0.0)) continue;
        put_text(&isa, "isa", la_isa_name(i));
        put_number(&isa, "peak_gflops", 1, machine->peak[i]);
        put_number(&isa, "peak_gflops_all", 1, machine->peak_all[i]);
        put_number(&isa, "exp_per_ns", 1, machine->exp_rate[i]);
        fputs(count++ ? "},\n  {" : "\n  {", file);
        write_pairs(file, &isa);
    }
    fputs("}]", file);
}

static void write_levels(FILE *file, const bench_machine *machine) {
    int i;
    fputs(",\n\"levels\": [", file);
    for (i = 0; i < BENCH_LEVELS; ++i) {
        record level = {.count = 0};
        put_text(&level, "level", levels[i]);
        put_number(&level, "bytes", 1, machine->level_bytes[i]);
        put_number(&level, "read_gbps", 1, machine->read_gbps[i]);
        put_number(&level, "write_gbps", 1, machine->write_gbps[i]);
        fputs(i ? "},\n  {" : "\n  {", file);
        write_pairs(file, &level);
    }
    fputs("}]", file);
}

static void json_begin(FILE *file, const bench_machine *machine) {
    record to = {.count = 0};
    put_text(&to, "cpu", machine->cpu);
    put_text(&to, "compiler", machine->compiler);
    put_text(&to, "flags", machine->flags);
    put_text(&to, "date", machine->date);
    put_number(&to, "cores", 1, machine->cores);
    put_flag(&to, "pinned", machine->pinned);
    put_number(&to, "threads", 1, machine->threads);
    fputs("{\"machine\": {", file);
    write_pairs(file, &to);
    write_isas(file, machine);
    write_levels(file, machine);
    fputs("},\n\"rows\": [", file);
}

/* ---- the four formats ------------------------------------------------------------------------ */

static bench_row previous; /* of this report; before the first: no tokens */

void bench_report_begin(FILE *file, bench_format format, const bench_machine *machine) {
    static const bench_row none = {.variant = LA_ELU};
    const record names = row_record(&none);
    previous = none;
    if (format == BENCH_MD) fputs("```text\n", file);
    if (format == BENCH_TABLE || format == BENCH_MD) print_machine(file, machine);
    if (format == BENCH_MD) fputs("```\n", file);
    if (format == BENCH_CSV) write_csv(file, &names, 1);
    if (format == BENCH_JSON) json_begin(file, machine);
    fflush(file);
}

void bench_report_row(FILE *file, bench_format format, const bench_row *row) {
    const record values = row_record(row);
    if (format <= BENCH_MD && !bench_same_contest(row, &previous))
        print_group(file, format == BENCH_MD, row);
    if (format <= BENCH_MD) print_row(file, format == BENCH_MD, row);
    if (format == BENCH_CSV) write_csv(file, &values, 0);
    if (format == BENCH_JSON) {
        fputs(previous.tokens ? ",\n{" : "\n{", file);
        write_pairs(file, &values);
        fputc('}', file);
    }
    previous = *row;
    fflush(file);
}

void bench_report_end(FILE *file, bench_format format) {
    if (format == BENCH_JSON) fputs("\n]}\n", file);
    fflush(file);
}
