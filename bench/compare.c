/* Two runs, row by row, and whether they differ by more than the noise; with a reader of the
 * bench's own JSON that is strict: what the bench did not write is an error and not a guess. */
#define _POSIX_C_SOURCE 200112L
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 256, DEPTH = 16 };

typedef struct result {
    char options[TEXT];
    double ns, spread; /* ns = 0: the row failed */
    int matched;       /* with a row of the other run */
} result;

typedef struct run {
    const char *path;
    char cpu[TEXT], compiler[TEXT], date[TEXT];
    result *rows;
    int count, has_machine, has_rows;
} run;

/* ---- reader ---------------------------------------------------------------------------------- */

typedef struct reader {
    const char *at;
    const char *error; /* the first; nothing is read after it */
    int depth;
    run *into;
} reader;

static void fail(reader *r, const char *error) {
    if (!r->error) r->error = error;
}

static char peek(reader *r) {
    if (r->error) return '\0';
    r->at += strspn(r->at, " \t\r\n");
    return *r->at;
}

/* steps over the character if it is the next */
static int accept(reader *r, char c) {
    if (peek(r) != c) return 0;
    ++r->at;
    return 1;
}

static int accept_word(reader *r, const char *word) {
    const size_t length = strlen(word);
    if (peek(r) != *word || strncmp(r->at, word, length) != 0) return 0;
    r->at += length;
    return 1;
}

static void expect(reader *r, char c, const char *error) {
    if (!accept(r, c)) fail(r, error);
}

/* what stands behind a backslash; all but the three become '?' */
static char read_escape(reader *r) {
    const char c = *r->at;
    const size_t digits = c == 'u' ? 4 : 0;
    if (!c || !strchr("u\"\\/bfnrt", c) || strspn(r->at + 1, "0123456789abcdefABCDEF") < digits)
        fail(r, "no such escape in a string");
    else
        r->at += 1 + digits;
    return c == '"' || c == '\\' || c == '/' ? c : '?';
}

/* text may be null, else holds TEXT */
static void read_string(reader *r, char *text) {
    size_t used = 0;
    expect(r, '"', "expected a string");
    while (!r->error && (unsigned char)*r->at >= ' ' && *r->at != '"') {
        char c = *r->at++;
        if (c == '\\') c = read_escape(r);
        if (text && used == TEXT - 1)
            fail(r, "a string is too long");
        else if (text)
            text[used++] = c;
    }
    if (text) text[used] = '\0';
    if (*r->at != '"')
        fail(r, "a string does not end");
    else
        ++r->at;
}

static void skip_digits(reader *r) {
    const size_t count = strspn(r->at, "0123456789");
    if (count == 0) fail(r, "expected a value");
    r->at += count;
}

static double read_number(reader *r) {
    const char *from;
    peek(r);
    from = r->at;
    if (*r->at == '-') ++r->at;
    if (*r->at == '0')
        ++r->at;
    else
        skip_digits(r);
    if (*r->at == '.') ++r->at, skip_digits(r);
    if (*r->at == 'e' || *r->at == 'E') {
        ++r->at;
        if (*r->at == '-' || *r->at == '+') ++r->at;
        skip_digits(r);
    }
    return strtod(from, NULL);
}

/* null is 0 */
static double read_result(reader *r) {
    const double value = accept_word(r, "null") ? 0.0 : read_number(r);
    if (!(value >= 0.0 && value <= 1e300)) fail(r, "no such result");
    return value;
}

static void enter(reader *r, char c, const char *error) {
    expect(r, c, error);
    if (++r->depth > DEPTH) fail(r, "nested too deeply");
}

static void read_object(reader *r, void (*member)(reader *r, const char *key)) {
    char key[TEXT];
    int more;
    enter(r, '{', "expected an object");
    for (more = peek(r) != '}'; more && !r->error; more = accept(r, ',')) {
        read_string(r, key);
        expect(r, ':', "expected a colon");
        if (!r->error) member(r, key);
    }
    expect(r, '}', "expected a comma or the end of an object");
    --r->depth;
}

static void read_array(reader *r, void (*element)(reader *r)) {
    int more;
    enter(r, '[', "expected an array");
    for (more = peek(r) != ']'; more && !r->error; more = accept(r, ',')) element(r);
    expect(r, ']', "expected a comma or the end of an array");
    --r->depth;
}

static void skip_member(reader *r, const char *key);

static void skip_value(reader *r) {
    const char c = peek(r);
    if (c == '{')
        read_object(r, skip_member);
    else if (c == '[')
        read_array(r, skip_value);
    else if (c == '"')
        read_string(r, NULL);
    else if (!accept_word(r, "null") && !accept_word(r, "true") && !accept_word(r, "false"))
        read_number(r);
}

static void skip_member(reader *r, const char *key) {
    (void)key;
    skip_value(r);
}

/* ---- the bench's document -------------------------------------------------------------------- */

static void row_member(reader *r, const char *key) {
    result *row = &r->into->rows[r->into->count];
    if (strcmp(key, "options") == 0)
        read_string(r, row->options);
    else if (strcmp(key, "ns_per_token_head") == 0)
        row->ns = read_result(r);
    else if (strcmp(key, "spread") == 0)
        row->spread = read_result(r);
    else
        skip_value(r);
}

static void read_row(reader *r) {
    static const result none;
    run *into = r->into;
    result *rows = realloc(into->rows, ((size_t)into->count + 1) * sizeof *rows);
    if (!rows) {
        fail(r, "out of memory");
        return;
    }
    into->rows = rows;
    rows[into->count] = none;
    read_object(r, row_member);
    if (!*rows[into->count].options) fail(r, "a row has no options");
    ++into->count;
}

static void machine_member(reader *r, const char *key) {
    if (strcmp(key, "cpu") == 0)
        read_string(r, r->into->cpu);
    else if (strcmp(key, "compiler") == 0)
        read_string(r, r->into->compiler);
    else if (strcmp(key, "date") == 0)
        read_string(r, r->into->date);
    else
        skip_value(r);
}

static void document_member(reader *r, const char *key) {
    const int machine = strcmp(key, "machine") == 0, rows = strcmp(key, "rows") == 0;
    r->into->has_machine |= machine;
    r->into->has_rows |= rows;
    if (machine)
        read_object(r, machine_member);
    else if (rows)
        read_array(r, read_row);
    else
        skip_value(r);
}

/* the whole file and a 0 behind it; null with errno */
static char *load(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    char *text = NULL, *more = NULL;
    size_t got = 1;
    for (*size = 0; file && got > 0; *size += got) {
        more = realloc(text, *size + 65537);
        if (!more) break;
        text = more;
        got = fread(text + *size, 1, 65536, file);
    }
    if (!more || ferror(file))
        free(text), text = NULL;
    else
        text[*size] = '\0';
    if (file) fclose(file);
    return text;
}

/* 0, or 2 with one line on stderr */
static int read_run(run *into) {
    size_t size;
    char *text = load(into->path, &size);
    const char *at;
    reader r = {text, NULL, 0, into};
    int line = 1;
    if (!text) {
        fprintf(stderr, "bench: cannot read %s: %s\n", into->path, strerror(errno));
        return 2;
    }
    read_object(&r, document_member);
    peek(&r);
    if (r.at != text + size) fail(&r, "something follows the document");
    if (!into->has_machine || !into->has_rows) fail(&r, "no machine or no rows");
    for (at = text; at < r.at; ++at) line += *at == '\n';
    if (r.error)
        fprintf(stderr, "bench: %s is not from --format json: line %d: %s\n", into->path, line,
                r.error);
    free(text);
    return r.error ? 2 : 0;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* "--variant gla --form chunkwise --tokens 512" as "gla chunkwise tokens=512" */
static void shorten(const char *at, char *text) {
    size_t used = 0;
    text[0] = '\0';
    while (*at && used < TEXT) {
        const int plain = strncmp(at, "--variant ", 10) == 0 || strncmp(at, "--rule ", 7) == 0 ||
                          strncmp(at, "--form ", 7) == 0 || strncmp(at, "--isa ", 6) == 0;
        const char *name = at + strspn(at, "-"), *name_end = name + strcspn(name, " ");
        const char *value = name_end + strspn(name_end, " ");
        at = value + strcspn(value, " ");
        used += (size_t)snprintf(text + used, TEXT - used, "%s%.*s%s%.*s", used ? " " : "",
                                 plain ? 0 : (int)(name_end - name), name, plain ? "" : "=",
                                 (int)(at - value), value);
        at += strspn(at, " ");
    }
}

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
    shorten(a->options, name);
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
        shorten(a->rows[i].options, name);
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

int bench_compare(const char *a, const char *b) {
    run first = {.path = a}, second = {.path = b};
    int status = read_run(&first);
    if (!status) status = read_run(&second);
    if (!status) compare(&first, &second);
    free(first.rows);
    free(second.rows);
    return status;
}
