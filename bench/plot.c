/* Time per token and head against the number of tokens, as an SVG: both axes logarithmic, a line
 * for each series with its name at the end. What all series share stands below the title.
 * Colour and marker say the rule (each eighth has the same colour, and another marker); the library
 * is solid, each baseline has dashes of its own; those of the extras are the same, and colour and
 * marker say which. */
#define _POSIX_C_SOURCE 200112L
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = BENCH_TEXT };
enum { LEFT = 78, TOP = 78, FOOT = 62, INSET = 18, LEADER = 46, GAP = 17 }; /* pixels */
enum { RULES = 8, MARKERS = 8, DASHES = BENCH_SOFTMAX + 1 };

/* Rows that differ in their tokens only. */
typedef struct series {
    char text[TEXT]; /* the options but for the tokens */
    int id;          /* its index before the series are sorted */
    int engine, dashes;
    int color, number;     /* number: of those before it with the same dashes and colour */
    const bench_row *last; /* point */
    double height;         /* of the name */
} series;

typedef struct plot {
    FILE *file;
    const bench_row *rows;
    int row_count, count;
    int *id;                     /* of each row's series; -1: left out */
    series *all;                 /* in the end sorted, highest first */
    double width, height, names; /* of the frame; the longest name */
    int x_first, x_last;         /* log2 of the tokens at the ends of the axis */
    int y_first, y_last;         /* ticks at its ends, see tick() */
} plot;

/* ---- series ---------------------------------------------------------------------------------- */

/* The row's options but for the tokens, and for the instruction set that the plain loop has not: a
 * blank behind each. */
static void series_key(const bench_row *row, char *text) {
    char *isa, *next;
    bench_row_options(row, BENCH_NO_TOKENS, text);
    strncat(text, " ", TEXT - 1 - strlen(text));
    if (row->engine != BENCH_PLAIN_LOOP) return;
    isa = strstr(text, "--isa ");
    next = strstr(isa + 1, "--");
    memmove(isa, next, strlen(next) + 1);
}

/* softmax has one of its own */
static int color_of(const bench_row *row) {
    if (row->engine == BENCH_SOFTMAX) return RULES;
    return (bench_is_extra(row) ? (int)row->engine - BENCH_SOFTMAX - 1 : (int)row->variant - 1) %
           RULES;
}

static void add_series(plot *p, const bench_row *row, const char *key) {
    series *s = &p->all[p->count];
    int i;
    memcpy(s->text, key, TEXT);
    s->id = p->count++;
    s->last = row;
    s->engine = (int)row->engine;
    s->dashes = bench_is_extra(row) ? BENCH_SOFTMAX : s->engine;
    s->color = color_of(row);
    for (i = 0; i < s->id; ++i)
        s->number += p->all[i].dashes == s->dashes && p->all[i].color == s->color;
}

static void find_series(plot *p) {
    char key[TEXT];
    int i, j;
    for (i = 0; i < p->row_count; ++i) {
        const bench_row *row = &p->rows[i];
        p->id[i] = -1;
        if (row->failed || !isfinite(row->ns_min) || row->ns_min <= 0.0) continue;
        series_key(row, key);
        for (j = 0; j < p->count && strcmp(key, p->all[j].text) != 0;) ++j;
        if (j == p->count) add_series(p, row, key);
        if (row->tokens > p->all[j].last->tokens) p->all[j].last = row;
        p->id[i] = j;
    }
}

/* the row of the series with the fewest tokens beyond `tokens`, or null */
static const bench_row *next_point(const plot *p, const series *s, int64_t tokens) {
    const bench_row *next = NULL;
    int i;
    for (i = 0; i < p->row_count; ++i)
        if (p->id[i] == s->id && p->rows[i].tokens > tokens)
            if (!next || p->rows[i].tokens < next->tokens) next = &p->rows[i];
    return next;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* whether some other series has another value; that another engine has none says nothing */
static int differs(const plot *p, const series *s, const char *word) {
    char option[TEXT];
    int i;
    snprintf(option, sizeof option, "%.*s", (int)strcspn(word, " ") + 1, word);
    for (i = 0; i < p->count; ++i) {
        const series *other = &p->all[i];
        if (strstr(other->text, word)) continue;
        if (strstr(other->text, option) || other->engine == s->engine) return 1;
    }
    return 0;
}

/* shared = 0: variant, rule and what tells the series from others; 1: what it has with all */
static void describe(const plot *p, const series *s, int shared, char *text) {
    const char *at = s->text, *end;
    char word[TEXT];
    size_t used = 0;
    for (text[0] = '\0'; *at; at = end) {
        int rule, bare;
        const char *from;
        end = strstr(at + 2, "--");
        if (!end) end = at + strlen(at);
        snprintf(word, sizeof word, "%.*s", (int)(end - at), at);
        rule = strstr(word, "--variant ") || strstr(word, "--rule ");
        bare = rule || strstr(word, "--form ") || strstr(word, "--isa ");
        if ((rule || differs(p, s, word)) == shared) continue;
        from = bare ? strchr(word, ' ') + 1 : word + 2;
        used += (size_t)snprintf(text + used, TEXT - used, "%s%.*s",
                                 !used    ? ""
                                 : shared ? ", "
                                          : " ",
                                 (int)strlen(from) - 1, from);
    }
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* 1, 2, 5, 10, 20, 50, ... from tick 0 on */
static double tick(int n) {
    static const double steps[] = {1.0, 2.0, 5.0};
    const int decade = (int)floor(n / 3.0);
    return steps[n - 3 * decade] * pow(10.0, decade);
}

static double x_at(const plot *p, double tokens) {
    const int octaves = p->x_last - p->x_first;
    const double at = octaves ? (log2(tokens) - p->x_first) / octaves : 0.5;
    return LEFT + INSET + at * (p->width - 2 * INSET);
}

static double y_at(const plot *p, double ns) {
    const double low = log10(tick(p->y_first)), high = log10(tick(p->y_last));
    return TOP + (high - log10(ns)) / (high - low) * p->height;
}

static void find_ranges(plot *p) {
    double t0 = (double)p->all->last->tokens, t1 = t0, ns0 = p->all->last->ns_min, ns1 = ns0;
    int i;
    for (i = 0; i < p->row_count; ++i) {
        if (p->id[i] < 0) continue;
        t0 = fmin(t0, (double)p->rows[i].tokens), t1 = fmax(t1, (double)p->rows[i].tokens);
        ns0 = fmin(ns0, p->rows[i].ns_min), ns1 = fmax(ns1, p->rows[i].ns_min);
    }
    p->x_first = (int)floor(log2(t0));
    p->x_last = (int)ceil(log2(t1));
    p->y_first = 3 * (int)floor(log10(ns0));
    while (tick(p->y_first + 1) < ns0) ++p->y_first;
    p->y_last = p->y_first + 1;
    while (tick(p->y_last) < ns1) ++p->y_last;
}

static void put_text(const plot *p, const char *class_name, double x, double y, const char *text) {
    fprintf(p->file, "<text class='%s' x='%.1f' y='%.1f'>", class_name, x, y);
    for (; *text; ++text)
        if (strchr("<>&", *text))
            fprintf(p->file, "&#%d;", *text);
        else
            fputc(*text >= ' ' && *text <= '~' ? *text : '?', p->file);
    fputs("</text>\n", p->file);
}

static void draw_axes(const plot *p) {
    const double right = LEFT + p->width, bottom = TOP + p->height;
    const int step = 1 + (p->x_last - p->x_first) / 14; /* else the numbers touch */
    char text[32];
    int i;
    for (i = p->x_first; i <= p->x_last; i += step) {
        const double tokens = ldexp(1.0, i), x = x_at(p, tokens);
        fprintf(p->file, "<path class='grid' d='M%.1f %dV%.1f'/>\n", x, TOP, bottom);
        snprintf(text, sizeof text, "%.0f", tokens);
        put_text(p, "tick x", x, bottom + 19, text);
    }
    for (i = p->y_first; i <= p->y_last; ++i) {
        const double y = y_at(p, tick(i));
        fprintf(p->file, "<path class='grid' d='M%d %.1fH%.1f'/>\n", LEFT, y, right);
        snprintf(text, sizeof text, "%.*f", i < 0 ? -(int)floor(i / 3.0) : 0, tick(i));
        put_text(p, "tick y", LEFT - 9, y + 4, text);
    }
    fprintf(p->file, "<path class='axis' d='M%d %dV%.1fH%.1f'/>\n", LEFT, TOP, bottom, right);
    put_text(p, "note x", LEFT + p->width / 2, bottom + 44, "tokens T");
    fprintf(p->file, "<g transform='translate(22 %.1f) rotate(-90)'>", TOP + p->height / 2);
    put_text(p, "note x", 0, 0, "ns per token and head");
    fputs("</g>\n", p->file);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int by_end(const void *a, const void *b) {
    const double x = ((const series *)a)->last->ns_min, y = ((const series *)b)->last->ns_min;
    return (x < y) - (x > y);
}

/* As near to the ends, in the sense of least squares, as names can be that lie GAP apart: those
 * that would overlap form a block about the mean of where they should be. */
static void place_names(plot *p) {
    const double lowest = TOP + p->height - GAP * (p->count - 1);
    int i, j, after = 0;
    qsort(p->all, (size_t)p->count, sizeof *p->all, by_end);
    for (i = 0; i < p->count; i = after) {
        double sum = 0.0, mean = HUGE_VAL;
        for (j = i; j < p->count; ++j) {
            sum += y_at(p, p->all[j].last->ns_min) - GAP * j;
            if (sum <= mean * (j - i + 1)) mean = sum / (j - i + 1), after = j + 1;
        }
        mean = fmax(TOP, fmin(mean, lowest));
        for (j = i; j < after; ++j) p->all[j].height = mean + GAP * j;
    }
}

static void draw_marker(const plot *p, const series *s, double x, double y) {
    fprintf(p->file, "<use href='#m%d' class='%s' x='%.1f' y='%.1f'/>\n",
            (s->color + s->number) % MARKERS, s->engine ? "open page" : "full", x, y);
}

static void draw_series(const plot *p, const series *s) {
    const double right = LEFT + p->width + LEADER;
    const bench_row *row;
    char name[TEXT];
    fprintf(p->file, "<g class='c%d'>\n<polyline class='d%d' points='", s->color,
            (s->dashes ? s->dashes : s->number) % DASHES);
    for (row = next_point(p, s, 0); row; row = next_point(p, s, row->tokens))
        fprintf(p->file, "%.1f,%.1f ", x_at(p, (double)row->tokens), y_at(p, row->ns_min));
    fprintf(p->file, "'/>\n<path class='lead' d='M%.1f %.1fL%.1f %.1f'/>\n",
            x_at(p, (double)s->last->tokens), y_at(p, s->last->ns_min), right, s->height);
    for (row = next_point(p, s, 0); row; row = next_point(p, s, row->tokens))
        draw_marker(p, s, x_at(p, (double)row->tokens), y_at(p, row->ns_min));
    draw_marker(p, s, right, s->height);
    fputs("</g>\n", p->file);
    describe(p, s, 0, name);
    put_text(p, "text", right + 10, s->height + 4, name);
}

/* ---- the picture ----------------------------------------------------------------------------- */

static const char style[] =
    "<style>\n"
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}\n"
    ".title{font-size:16px;font-weight:600}.note{font-size:13px}\n"
    ".x{text-anchor:middle}.y{text-anchor:end}\n"
    "polyline{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}\n"
    ".d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}"
    ".d4{stroke-dasharray:13 3}\n"
    ".grid,.axis{fill:none}.lead{stroke:currentColor;opacity:.5}\n"
    ".full{fill:currentColor}.open{stroke:currentColor;stroke-width:1.6}\n"
    ".page{fill:#fff}.text{fill:#1f2328}.tick,.note{fill:#57606a}\n"
    ".grid{stroke:#e4e8ec}.axis{stroke:#8c959f}\n"
    ".c0{color:#0b5fce}.c1{color:#c24e00}.c2{color:#177a36}.c3{color:#a3189b}.c4{color:#7a5c00}"
    ".c5{color:#d1242f}.c6{color:#0a7a85}.c7{color:#6e40c9}.c8{color:#3d444d}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".page{fill:#0d1117}.text{fill:#f0f6fc}.tick,.note{fill:#9ea7b1}\n"
    ".grid{stroke:#262c36}.axis{stroke:#6e7781}\n"
    ".c0{color:#5aa9ff}.c1{color:#ff9b4d}.c2{color:#4cc764}.c3{color:#f58bea}.c4{color:#d9bb3c}"
    ".c5{color:#ff7b78}.c6{color:#45d0da}.c7{color:#b99aff}.c8{color:#c8d1da}\n"
    "}\n"
    "</style>\n";

static const char *const markers[MARKERS] = {
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.7-3.7h7.4v7.4h-7.4z",
    "M0-4.9L4.7 3.5H-4.7z",
    "M4.9 0L-3.5 4.7V-4.7z",
    "M0 4.9L4.7-3.5H-4.7z",
    "M-1.7-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
    "M-4.9 0L3.5 4.7V-4.7z",
    "M0-5.2L5.2 0L0 5.2L-5.2 0z"};

static void lay_out(plot *p) {
    char name[TEXT];
    int i;
    p->height = fmax(560.0 - TOP - FOOT, GAP * p->count);
    find_ranges(p);
    place_names(p);
    for (i = 0; i < p->count; ++i) {
        describe(p, &p->all[i], 0, name);
        p->names = fmax(p->names, 7.0 * (double)strlen(name) + 24.0);
    }
    p->width = fmax(540.0, 900.0 - LEFT - LEADER - p->names);
}

static void draw(plot *p, const char *cpu) {
    double width, height;
    char text[TEXT];
    int i;
    lay_out(p);
    snprintf(text, sizeof text, "Time per token and head, %s", cpu);
    width = LEFT + fmax(p->width + LEADER + p->names, 9.5 * (double)strlen(text));
    height = TOP + p->height + FOOT;
    fprintf(p->file, "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' ", width,
            height);
    fprintf(p->file, "viewBox='0 0 %.0f %.0f' role='img'>\n<title>", width, height);
    fprintf(p->file, "Time per token and head against the number of tokens</title>\n%s<defs>\n",
            style);
    for (i = 0; i < MARKERS; ++i) fprintf(p->file, "<path id='m%d' d='%s'/>\n", i, markers[i]);
    fputs("</defs>\n<rect class='page' width='100%' height='100%' rx='6'/>\n", p->file);
    put_text(p, "text title", LEFT, 32, text);
    for (i = 0; i < p->count - 1 && p->all[i].engine != BENCH_LIBRARY;) ++i;
    describe(p, &p->all[i], 1, text);
    put_text(p, "note", LEFT, 54, text);
    draw_axes(p);
    for (i = 0; i < p->count; ++i) draw_series(p, &p->all[i]);
    fputs("</svg>\n", p->file);
}

static int write_file(plot *p, const char *path, const char *cpu) {
    int bad;
    p->file = fopen(path, "w");
    if (p->file) draw(p, cpu);
    bad = !p->file || ferror(p->file);
    if (p->file && fclose(p->file) != 0) bad = 1;
    if (bad) fprintf(stderr, "bench: cannot write %s: %s\n", path, strerror(errno));
    return bad;
}

int bench_plot(const char *path, const bench_machine *machine, const bench_row *rows, int count) {
    const size_t room = (size_t)count + 1;
    plot p = {.rows = rows, .row_count = count};
    int bad = 1;
    p.id = malloc(room * sizeof *p.id);
    p.all = calloc(room, sizeof *p.all);
    if (p.id && p.all) find_series(&p);
    if (!p.id || !p.all)
        fprintf(stderr, "bench: out of memory\n");
    else if (p.count == 0)
        fprintf(stderr, "bench: nothing to plot: no row has a time\n");
    else
        bad = write_file(&p, path, machine->cpu);
    free(p.id);
    free(p.all);
    return bad;
}
