/* The rows that a run measures: what each mode has unless told otherwise, the product of the axes,
 * their order. */
#define _POSIX_C_SOURCE 200112L
#include "bench.h"
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT(options, axis, ...)                                                                \
    do {                                                                                           \
        static const int64_t values[] = {__VA_ARGS__};                                             \
        bench_default(options, axis, (int)(sizeof values / sizeof *values), values);               \
    } while (0)

/* ---- defaults -------------------------------------------------------------------------------- */

#define ALL_VARIANTS                                                                               \
    LA_RETNET, LA_LIGHTNING, LA_MAMBA2, LA_GLA, LA_FWP, LA_DELTANET, LA_GATED_DELTANET, LA_KDA,    \
        LA_ELU, LA_COSFORMER, LA_FAVOR, LA_RWKV6, LA_RWKV7, LA_GDN2, LA_DPFP, LA_BASED,            \
        LA_HEDGEHOG, LA_RFF, LA_MAPPED
/* one of each kind, in half a minute */
#define SOME_VARIANTS                                                                              \
    LA_RETNET, LA_GLA, LA_DELTANET, LA_GATED_DELTANET, LA_KDA, LA_RWKV7, LA_ELU, LA_FAVOR
/* no two lines upon each other */
#define PLOTTED_VARIANTS                                                                           \
    LA_RETNET, LA_LIGHTNING, LA_GLA, LA_DELTANET, LA_GATED_DELTANET, LA_ELU, LA_COSFORMER, LA_FAVOR
#define SOME_BASELINES BENCH_PLAIN_LOOP, BENCH_FOUR_SWEEP, BENCH_SOFTMAX, BENCH_OPENBLAS
#define ALL_FORMS      LA_AUTO, LA_RECURRENT, LA_CHUNKWISE, LA_PARALLEL

static void default_bench(bench_options *o) {
    if (!o->axis[AXIS_VARIANT].given) DEFAULT(o, AXIS_BASELINES, SOME_BASELINES);
    if (o->plot)
        DEFAULT(o, AXIS_VARIANT, PLOTTED_VARIANTS);
    else
        DEFAULT(o, AXIS_VARIANT, SOME_VARIANTS);
    DEFAULT(o, AXIS_FORM, LA_CHUNKWISE);
    DEFAULT(o, AXIS_TOKENS, 64, 512, 2048, 8192);
    DEFAULT(o, AXIS_DIMS, 64 * BENCH_WIDTH + 64, 128 * BENCH_WIDTH + 128);
}

static void default_check(bench_options *o) {
    int64_t isas[BENCH_ISAS], engines[BENCH_ENGINES];
    int isa, count = 0, engine = BENCH_PLAIN_LOOP;
    for (; engine < BENCH_ENGINES; ++engine) engines[engine - BENCH_PLAIN_LOOP] = engine;
    if (!o->axis[AXIS_VARIANT].given)
        bench_default(o, AXIS_BASELINES, BENCH_ENGINES - BENCH_PLAIN_LOOP, engines);
    for (isa = 1; isa < BENCH_ISAS; ++isa)
        if (la_isa_available(isa)) isas[count++] = isa;
    o->check = 1;
    if (!o->reps) o->reps = 1;
    bench_default(o, AXIS_ISA, count, isas);
    DEFAULT(o, AXIS_VARIANT, ALL_VARIANTS);
    DEFAULT(o, AXIS_FORM, ALL_FORMS);
    DEFAULT(o, AXIS_CHUNK, 0, 1, 16, 64);
    DEFAULT(o, AXIS_TOKENS, 1, 100);
    DEFAULT(o, AXIS_DIMS, 64 * BENCH_WIDTH + 48);
}

static void default_sweep(bench_options *o) {
    DEFAULT(o, AXIS_VARIANT, LA_RETNET, LA_GLA, LA_GATED_DELTANET, LA_ELU);
    DEFAULT(o, AXIS_FORM, ALL_FORMS);
    DEFAULT(o, AXIS_CHUNK, 0, 16, 64, 256);
    DEFAULT(o, AXIS_TOKENS, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096);
    DEFAULT(o, AXIS_DIMS, 64 * BENCH_WIDTH + 64, 128 * BENCH_WIDTH + 128);
}

static void default_scale(bench_options *o, const bench_machine *machine) {
    int64_t threads[BENCH_VALUES];
    int count = 0;
    while (count < machine->cores && count < BENCH_VALUES) threads[count] = count + 1, ++count;
    bench_default(o, AXIS_THREADS, count, threads);
    DEFAULT(o, AXIS_VARIANT, LA_RETNET, LA_GATED_DELTANET, LA_ELU);
    DEFAULT(o, AXIS_FORM, LA_CHUNKWISE);
    DEFAULT(o, AXIS_TOKENS, 128, 512, 2048);
    DEFAULT(o, AXIS_DIMS, 64 * BENCH_WIDTH + 64, 128 * BENCH_WIDTH + 128);
    DEFAULT(o, AXIS_HEADS, 1, 4);
}

static void default_decode(bench_options *o) {
    DEFAULT(o, AXIS_VARIANT, LA_RETNET, LA_GLA, LA_GATED_DELTANET);
    DEFAULT(o, AXIS_FORM, LA_AUTO);
    DEFAULT(o, AXIS_LAYOUT, LA_KV, LA_VK);
    DEFAULT(o, AXIS_TOKENS, 1);
    DEFAULT(o, AXIS_DIMS, 128 * BENCH_WIDTH + 128);
    if (!o->axis[AXIS_VARIANT].given)
        DEFAULT(o, AXIS_BASELINES, BENCH_PLAIN_LOOP, BENCH_FOUR_SWEEP);
}

/* the rules of baselines: what they are compared to */
static void default_rules(bench_options *o) {
    const bench_axis *variant = &o->axis[AXIS_VARIANT];
    int64_t rules[BENCH_VALUES];
    int i, count = 0;
    for (i = 0; i < variant->count; ++i)
        if (variant->at[i] < BENCH_BASELINE) rules[count++] = variant->at[i];
    if (count)
        bench_default(o, AXIS_RULE, count, rules);
    else
        DEFAULT(o, AXIS_RULE, LA_RETNET, LA_GATED_DELTANET);
}

/* few lines of many points */
static void default_plot(bench_options *o) {
    DEFAULT(o, AXIS_TOKENS, 64, 128, 256, 512, 1024, 2048, 4096, 8192);
    DEFAULT(o, AXIS_DIMS, 128 * BENCH_WIDTH + 128);
    if (o->axis[AXIS_VARIANT].given) return;
    DEFAULT(o, AXIS_RULE, LA_RETNET);
    DEFAULT(o, AXIS_BASELINES, BENCH_PLAIN_LOOP, BENCH_FOUR_SWEEP, BENCH_SOFTMAX);
}

/* first what holds for all modes, then what the mode has of its own */
static void defaults(bench_options *o, const bench_machine *machine) {
    DEFAULT(o, AXIS_BATCH, 1);
    DEFAULT(o, AXIS_HEADS, 4);
    DEFAULT(o, AXIS_Q_HEADS, BENCH_HEADS);
    DEFAULT(o, AXIS_K_HEADS, BENCH_HEADS);
    DEFAULT(o, AXIS_THREADS, 1);
    DEFAULT(o, AXIS_GATES, 0);
    DEFAULT(o, AXIS_STATE, 0);
    DEFAULT(o, AXIS_FEATURES, 128);
    DEFAULT(o, AXIS_DECAY, BENCH_USUAL);
    DEFAULT(o, AXIS_CHUNK, 0);
    DEFAULT(o, AXIS_LAYOUT, LA_KV);
    DEFAULT(o, AXIS_ISA, LA_ISA_AUTO);
    if (o->mode == MODE_BENCH) default_bench(o);
    if (o->mode == MODE_CHECK) default_check(o);
    if (o->mode == MODE_SWEEP) default_sweep(o);
    if (o->mode == MODE_SCALE) default_scale(o, machine);
    if (o->mode == MODE_DECODE) default_decode(o);
    default_rules(o);
    if (o->mode == MODE_BENCH && o->plot) default_plot(o);
}

/* ---- the rows that are asked for ------------------------------------------------------------- */

typedef struct item {
    bench_row row;
    char text[BENCH_TEXT]; /* its options: what is asked for by the same ones is the same */
    int wanted;            /* 0: not available, or already in a contest */
} item;

typedef struct list {
    item *items;
    int count, room, wanted, filtered;
    regex_t filter;
    int missing; /* of the rows that are not available: those that were named */
    char first_missing[BENCH_TEXT];
} list;

/* The rule is one that asks for nothing an extra has not. */
static void settle_extra(bench_row *row) {
    row->variant = LA_RETNET;
    row->decay = BENCH_USUAL;
    if (!bench_has(row, BENCH_QUERIES)) {
        row->q_heads = row->heads;
        row->dim_k = row->dim_v;
    }
    if (!bench_has(row, BENCH_KEYS)) row->k_heads = row->heads;
}

/* Parameters that a row does not have take one value, so that equal rows look equal. */
static void settle(bench_row *row) {
    if (bench_is_extra(row)) settle_extra(row);
    if (row->engine != BENCH_LIBRARY) {
        row->form = LA_AUTO;
        row->layout = row->engine == BENCH_FOUR_SWEEP ? LA_VK : LA_KV;
    }
    if (row->decay == BENCH_USUAL) row->decay = bench_usual_decay(row);
    if (row->decay == BENCH_NONE) row->strong = 0;
    if (!bench_projects(row) && !bench_has(row, BENCH_FEATURES)) row->features = 0;
    if (row->engine == BENCH_OPENBLAS) row->isa = LA_ISA_AUTO; /* it chooses itself */
    if (row->isa == LA_ISA_AUTO) row->isa = bench_plan(row).isa;
    if (row->engine == BENCH_PLAIN_LOOP)
        row->isa = LA_ISA_SCALAR; /* what the compiler makes of it */
    if (row->engine == BENCH_OPENBLAS && !row->chunk) row->chunk = 64;
    if (bench_has(row, BENCH_SEGMENTS) && !row->chunk) row->chunk = 512;
    if (row->engine != BENCH_OPENBLAS && !bench_has(row, BENCH_SEGMENTS) &&
        row->form != LA_CHUNKWISE)
        row->chunk = 0;
}

static bench_row make_row(const int64_t value[AXES]) {
    const int64_t variant = value[AXIS_VARIANT], H = value[AXIS_HEADS];
    bench_row row;
    memset(&row, 0, sizeof row);
    row.engine = BENCH_LIBRARY;
    if (variant >= BENCH_BASELINE) row.engine = (bench_engine)(variant - BENCH_BASELINE);
    row.variant = (la_variant)(variant < BENCH_BASELINE ? variant : value[AXIS_RULE]);
    row.form = (int)value[AXIS_FORM];
    row.isa = (int)value[AXIS_ISA];
    row.layout = (int)value[AXIS_LAYOUT];
    row.decay = (int)value[AXIS_DECAY];
    row.strong = (int)value[AXIS_GATES];
    row.stateless = (int)value[AXIS_STATE];
    row.batch = value[AXIS_BATCH];
    row.tokens = value[AXIS_TOKENS];
    row.heads = H;
    row.q_heads = value[AXIS_Q_HEADS] == BENCH_HEADS ? H : value[AXIS_Q_HEADS];
    row.k_heads = value[AXIS_K_HEADS] == BENCH_HEADS ? H : value[AXIS_K_HEADS];
    row.dim_k = value[AXIS_DIMS] / BENCH_WIDTH;
    row.dim_v = value[AXIS_DIMS] % BENCH_WIDTH;
    row.features = value[AXIS_FEATURES];
    row.chunk = value[AXIS_CHUNK];
    row.threads = value[AXIS_THREADS];
    settle(&row);
    return row;
}

static int was_named(const bench_options *asked, const bench_row *row) {
    const bench_axis *variant = &asked->axis[AXIS_VARIANT];
    int i;
    if (row->engine == BENCH_LIBRARY) return variant->named || asked->axis[AXIS_ISA].named;
    for (i = 0; i < variant->count && variant->named; ++i)
        if (variant->at[i] == BENCH_BASELINE + (int64_t)row->engine) return 1;
    return asked->axis[AXIS_BASELINES].named;
}

static int is_available(const bench_row *row) {
    const int64_t H = row->heads, Hq = row->q_heads;
    if (row->engine == BENCH_LIBRARY) return bench_workspace(row) != 0;
    return H % row->k_heads == 0 && (H % Hq == 0 || Hq % H == 0) && la_isa_available(row->isa) &&
           bench_workspace(row) != 0;
}

/* null: it is already there */
static item *new_item(list *l, const char *text) {
    int i;
    for (i = 0; i < l->count; ++i)
        if (strcmp(l->items[i].text, text) == 0) return NULL;
    if (l->count == l->room) {
        l->room = 2 * l->room + 64;
        l->items = realloc(l->items, (size_t)l->room * sizeof *l->items);
        if (!l->items) bench_fail(1, "out of memory");
    }
    memcpy(l->items[l->count].text, text, BENCH_TEXT);
    return &l->items[l->count++];
}

/* Beside a step, which continues a state, what has none stands only if it is named. */
static void add_row(list *l, const bench_options *asked, const bench_row *row) {
    const int named = was_named(asked, row);
    char text[BENCH_TEXT];
    item *it;
    bench_row_options(row, BENCH_ALL_OPTIONS, text);
    if (l->filtered && regexec(&l->filter, text, 0, NULL, 0) != 0) return;
    if (!bench_has_state(row) && !named && row->tokens <= BENCH_STEP) return;
    it = new_item(l, text);
    if (!it) return;
    it->row = *row;
    it->wanted = is_available(row);
    l->wanted += it->wanted;
    if (!it->wanted && named && l->missing++ == 0) memcpy(l->first_missing, text, sizeof text);
}

/* all combinations of the axes' values; the last axis is the fastest */
static void add_product(list *l, const bench_options *asked, const bench_options *o) {
    int64_t value[AXES];
    int at[AXES] = {0}, i;
    do {
        bench_row row;
        for (i = 0; i < AXES; ++i) value[i] = o->axis[i].count ? o->axis[i].at[at[i]] : 0;
        row = make_row(value);
        add_row(l, asked, &row);
        for (i = AXES - 1; i >= 0 && ++at[i] >= o->axis[i].count; --i) at[i] = 0;
    } while (i >= 0);
}

/* Unless asked for, only the plain loop computes every variant's rule: that takes its time. */
static void add_baselines(list *l, const bench_options *asked, const bench_options *o) {
    const bench_axis *engines = &o->axis[AXIS_BASELINES];
    const int few =
        o->mode == MODE_BENCH && !o->plot && !engines->given && !o->axis[AXIS_RULE].given;
    int i;
    if (!l->wanted && l->missing) return; /* beside nothing they are not wanted */
    for (i = 0; i < engines->count; ++i) {
        bench_options baseline = *o;
        baseline.axis[AXIS_VARIANT].count = 1;
        baseline.axis[AXIS_VARIANT].at[0] = BENCH_BASELINE + engines->at[i];
        if (few && engines->at[i] != BENCH_PLAIN_LOOP)
            DEFAULT(&baseline, AXIS_RULE, LA_RETNET, LA_GATED_DELTANET);
        add_product(l, asked, &baseline);
    }
}

/* what tells the story beside the chunkwise form of all variants: the recurrent form, decoding */
static void add_more(list *l, const bench_options *o) {
    bench_options more = *o;
    if (o->axis[AXIS_VARIANT].given || o->axis[AXIS_FORM].given || o->axis[AXIS_CHUNK].given ||
        o->plot)
        return;
    DEFAULT(&more, AXIS_VARIANT, LA_RETNET, LA_GATED_DELTANET);
    DEFAULT(&more, AXIS_FORM, LA_RECURRENT);
    add_product(l, o, &more);
    if (o->axis[AXIS_TOKENS].given) return;
    DEFAULT(&more, AXIS_TOKENS, 1);
    DEFAULT(&more, AXIS_FORM, LA_AUTO);
    DEFAULT(&more, AXIS_LAYOUT, LA_KV, LA_VK);
    DEFAULT(&more, AXIS_RULE, LA_RETNET, LA_GATED_DELTANET);
    DEFAULT(&more, AXIS_BASELINES, BENCH_PLAIN_LOOP, BENCH_FOUR_SWEEP);
    add_product(l, o, &more);
    add_baselines(l, o, &more);
}

/* states that fill the buffers of L2, L3 and memory: of 32 heads, or as many as there is room for,
 * and as many sequences */
static void add_levels(list *l, const bench_options *o, const bench_machine *machine) {
    const bench_axis *dims = &o->axis[AXIS_DIMS], *asked = &o->axis[AXIS_HEADS];
    int i, level;
    for (i = 0; i < dims->count; ++i)
        for (level = 1; level < BENCH_LEVELS; ++level) {
            const int64_t size = (dims->at[i] / BENCH_WIDTH) * (dims->at[i] % BENCH_WIDTH);
            const int64_t states = (int64_t)machine->level_bytes[level] / (4 * size);
            int64_t heads = asked->given ? asked->at[0] : states < 32 ? states : 32, batch;
            bench_options at = *o;
            if (heads < 1) heads = 1;
            batch = states < heads ? 1 : states / heads;
            at.axis[AXIS_DIMS].count = 1;
            at.axis[AXIS_DIMS].at[0] = dims->at[i];
            bench_default(&at, AXIS_HEADS, 1, &heads);
            bench_default(&at, AXIS_BATCH, 1, &batch);
            add_product(l, o, &at);
            add_baselines(l, o, &at);
        }
}

/* rows of a contest one after the other, else in the order that they came */
static void group(const list *l, bench_row *rows) {
    int i, j, count = 0;
    for (i = 0; i < l->count; ++i)
        for (j = i; j < l->count && l->items[i].wanted; ++j) {
            item *it = &l->items[j];
            if (j > i && (!it->wanted || !bench_same_contest(&it->row, &l->items[i].row))) continue;
            rows[count++] = it->row;
            if (j > i) it->wanted = 0;
        }
}

static void say_missing(const list *l) {
    if (!l->wanted)
        bench_fail(2, "nothing matches%s%s", l->missing ? "; not available: " : "",
                   l->first_missing);
    if (l->missing)
        fprintf(stderr, "bench: not available, 1 of %d: %s\n", l->missing, l->first_missing);
}

int bench_collect(bench_row **rows, bench_options *o, const bench_machine *machine) {
    list all, *l = &all;
    memset(l, 0, sizeof *l);
    defaults(o, machine);
    l->filtered = o->filter != NULL;
    if (o->filter && regcomp(&l->filter, o->filter, REG_EXTENDED | REG_NOSUB) != 0)
        bench_fail(2, "--filter: \"%s\" is no regular expression", o->filter);
    if (o->mode == MODE_DECODE) {
        add_levels(l, o, machine);
    } else {
        add_product(l, o, o);
        if (o->mode == MODE_BENCH) add_more(l, o);
        add_baselines(l, o, o);
    }
    if (l->filtered) regfree(&l->filter);
    say_missing(l);
    *rows = bench_allocate((size_t)l->wanted * sizeof **rows);
    group(l, *rows);
    free(l->items);
    return l->wanted;
}
