/* Two runs, row by row, and whether they differ by more than the noise. Of their JSON this reads
 * the parts that it needs, in any order and layout. */
#define _POSIX_C_SOURCE 200112L
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = BENCH_TEXT };

typedef struct result {
    char options[TEXT];
    double ns, spread; /* ns = 0: the row failed */
    int matched;       /* with a row of the other run */
} result;

typedef struct run {
    const char *path;
    char cpu[TEXT], compiler[TEXT], date[TEXT];
    result *rows;
    int count;
} run;

/* ---- reading --------------------------------------------------------------------------------- */

/* the value of a member of the object that ends at `end`; null: it has no such member */
static const char *member(const char *at, const char *end, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\"", name);
    at = strstr(at, key);
    if (!at || at > end) return NULL;
    at += strlen(key);
    at += strspn(at, " \t\r\n");
    return *at == ':' ? at + 1 + strspn(at + 1, " \t\r\n") : NULL;
}

/* whether there is a string */
static int read_text(const char *at, const char *end, const char *name, char text[TEXT]) {
    size_t used = 0;
    at = member(at, end, name);
    if (!at || *at++ != '"') return 0;
    for (; *at && *at != '"' && used < TEXT - 1; ++at) {
        if (*at == '\\' && at[1]) ++at;
        text[used++] = *at;
    }
    text[used] = '\0';
    return *at == '"';
}

/* null is 0; whether there is a number that a result can be */
static int read_result(const char *at, const char *end, const char *name, double *value) {
    char *stop;
    at = member(at, end, name);
    if (!at) return 0;
    *value = strtod(at, &stop);
    return (stop > at && *value >= 0.0 && *value < 1e300) || strncmp(at, "null", 4) == 0;
}

static int read_row(run *into, const char *at, const char *end) {
    result *rows = realloc(into->rows, ((size_t)into->count + 1) * sizeof *rows), *row;
    if (!rows) bench_fail(1, "out of memory");
    into->rows = rows;
    row = &rows[into->count++];
    row->matched = 0;
    return read_text(at, end, "options", row->options) &&
           read_result(at, end, "ns_per_token_head", &row->ns) &&
           read_result(at, end, "spread", &row->spread);
}

/* Rows are objects without objects in them, in an array that ends the document or is followed by
 * the machine. */
static int read_text_of_run(run *into, const char *text) {
    const char *all = text + strlen(text), *at = member(text, all, "rows"), *end;
    const char *machine = member(text, all, "machine");
    if (!at || !machine || !read_text(machine, all, "cpu", into->cpu) ||
        !read_text(machine, all, "compiler", into->compiler) ||
        !read_text(machine, all, "date", into->date))
        return 0;
    while (at += strcspn(at, "{]"), *at == '{') {
        end = strchr(at, '}');
        if (!end || !read_row(into, at, end)) return 0;
        at = end;
    }
    return *at == ']';
}

/* the whole file and a 0 behind it; null with errno */
static char *load(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = NULL, *more;
    size_t size = 0, got = 1;
    while (file && got > 0 && (more = realloc(text, size + 65537)) != NULL) {
        text = more;
        got = fread(text + size, 1, 65536, file);
        text[size += got] = '\0';
    }
    if (file) fclose(file);
    return text;
}

static void read_run(run *into) {
    char *text = load(into->path);
    if (!text) bench_fail(2, "cannot read %s: %s", into->path, strerror(errno));
    if (!read_text_of_run(into, text)) bench_fail(2, "%s is not from --format json", into->path);
    free(text);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static result *find_row(const run *in, const char *options) {
    int i;
    for (i = 0; i < in->count; ++i)
        if (!in->rows[i].matched && strcmp(in->rows[i].options, options) == 0) return &in->rows[i];
    return NULL;
}

static int is_timed(const result *a, const result *b) {
    return a->ns > 0.0 && b->ns > 0.0;
}

/* spreads of samples that know nothing of each other */
static double noise(const result *a, const result *b) {
    return sqrt(a->spread * a->spread + b->spread * b->spread);
}

static const char *verdict(const result *a, const result *b) {
    const double ratio = b->ns / a->ns, limit = 1.0 + fmax(0.02, noise(a, b));
    return ratio > limit ? "slower" : ratio * limit < 1.0 ? "faster" : "same";
}

static void print_ns(double ns) {
    if (ns > 0.0)
        printf(" %10.1f", ns);
    else
        printf(" %10s", "failed");
}

static void print_pair(const result *a, const result *b, int width) {
    char name[TEXT];
    bench_shorten(a->options, name);
    printf("%-*s", width, name);
    print_ns(a->ns);
    print_ns(b->ns);
    if (is_timed(a, b))
        printf(" %7.3f %6.1f%%  %s", b->ns / a->ns, 100.0 * noise(a, b), verdict(a, b));
    printf("\n");
}

/* both runs and the names of the columns; the width of the first */
static int print_head(const run *a, const run *b) {
    char name[TEXT];
    int i, width = 3;
    printf("A  %s: %s, %s, %s\n", a->path, a->cpu, a->compiler, a->date);
    printf("B  %s: %s, %s, %s\n\n", b->path, b->cpu, b->compiler, b->date);
    for (i = 0; i < a->count; ++i) {
        bench_shorten(a->rows[i].options, name);
        if ((int)strlen(name) > width) width = (int)strlen(name);
    }
    printf("%-*s %10s %10s %7s %7s  B is\n", width, "row", "A ns", "B ns", "B/A", "noise");
    return width;
}

static void compare(const run *a, const run *b) {
    const int width = print_head(a, b);
    int i, pairs = 0, timed = 0;
    double logs = 0.0;
    for (i = 0; i < a->count; ++i) {
        const result *row = &a->rows[i];
        result *other = find_row(b, row->options);
        if (!other) continue;
        other->matched = 1;
        print_pair(row, other, width);
        ++pairs;
        if (!is_timed(row, other)) continue;
        logs += log(other->ns / row->ns);
        ++timed;
    }
    if (timed)
        printf("\ngeometric mean of B/A: %.3f, over %d rows\n", exp(logs / timed), timed);
    else
        printf("\nno row has a time in both\n");
    printf("rows only in A: %d, only in B: %d, failed: %d\n", a->count - pairs, b->count - pairs,
           pairs - timed);
}

void bench_compare(const char *a, const char *b) {
    run first = {.path = a}, second = {.path = b};
    read_run(&first);
    read_run(&second);
    compare(&first, &second);
    free(first.rows);
    free(second.rows);
}
