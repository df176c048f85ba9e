/* text_memory: what a linear-attention state can remember, without any training.
 *
 * A text is predicted byte by byte; the layer's state is the only memory. Every code is fixed and
 * random. At byte t the layer is given
 *
 *     key    the code of the bytes up to t - 1       "after these bytes ..."
 *     value  the code of byte t                      "... came this one"
 *     query  the code of the bytes up to t           "what comes after these?"
 *
 * and, as the state is read after the write, its output predicts byte t + 1 from bytes <= t alone.
 * So one causal call over many bytes is an honest online prediction.
 */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
/* NOLINTNEXTLINE(bugprone-reserved-identifier): a monotonic clock; is there a terminal? */
#define _POSIX_C_SOURCE 200112L
#endif
#define LA_IMPLEMENTATION
#include "linear_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if !defined(_WIN32)
#include <unistd.h>
#endif

enum {
    HEADS = 4,      /* each with codes of its own              */
    KEY = 256,      /* dk                                      */
    VALUE = 64,     /* dv                                      */
    FEATURES = 256, /* of FAVOR+                               */
    CONTEXT = 3,    /* a key is the code of the last 3 bytes   */
    CALL = 256,     /* bytes per call                          */
    BYTES = 256     /* different bytes                         */
};

/* The same for every variant. */
static const double sharpness = 12; /* c of softmax(c * scores)                      */
static const double share = 0.5;    /* of the order-0 frequencies in the prediction  */

/* ---- the variants ---------------------------------------------------------------------------- */

typedef enum gate { NO_GATE, RETNET, LIGHT, BY_CHANNEL, FORGET } gate;

/* A row of the tables. Without training the gates are constants: FORGET keeps 0.999 per byte,
   BY_CHANNEL from 0.99 in the first channel to 0.9999 in the last. */
typedef struct row {
    const char *name, *rule;
    la_variant variant; /* 0: the order-0 frequencies alone */
    gate gate;
    float beta;         /* 0: none given */
    float size;         /* of the keys and queries */
    int channels;       /* of them that are used */
} row;

enum { ORDER_0, AVERAGES = 2, SHARPER = 3, OVERWRITES = 12, ROWS = 18 };

/* The features of ELU+1 are nearly constant for small numbers, so it gets longer keys. Those of
   FAVOR+ and RFF stand for exp(q . k), which is the sharper the longer the keys are. Based has a
   feature for each two channels, so it gets few. */
static const row rows[ROWS] = {
    {"order-0", "counts bytes", (la_variant)0, NO_GATE, 0, 0, 0},
    {"fwp", "adds", LA_FWP, NO_GATE, 0, 1, KEY},
    {"elu", "averages", LA_ELU, NO_GATE, 0, 16, KEY},
    {"favor", "averages, sharper", LA_FAVOR, NO_GATE, 0, 4, KEY},
    {"rff", "averages, sharper", LA_RFF, NO_GATE, 0, 2, KEY},
    {"based", "averages, sharper", LA_BASED, NO_GATE, 0, 6, KEY / 8},
    {"cosformer", "averages, near ones", LA_COSFORMER, NO_GATE, 0, 1, KEY},
    {"retnet", "adds and decays", LA_RETNET, RETNET, 0, 1, KEY},
    {"lightning", "adds and decays", LA_LIGHTNING, LIGHT, 0, 1, KEY},
    {"mamba2", "adds and decays", LA_MAMBA2, FORGET, 0.3f, 1, KEY},
    {"gla", "decays by channel", LA_GLA, BY_CHANNEL, 0, 1, KEY},
    {"rwkv6", "the same, reads first", LA_RWKV6, BY_CHANNEL, 0, 1, KEY},
    {"deltanet", "overwrites", LA_DELTANET, NO_GATE, 0.3f, 1, KEY},
    {"dpfp", "overwrites, sharper", LA_DPFP, NO_GATE, 0.3f, 1, KEY},
    {"gated-deltanet", "overwrites and decays", LA_GATED_DELTANET, FORGET, 0.3f, 1, KEY},
    {"kda", "the same by channel", LA_KDA, BY_CHANNEL, 0.3f, 1, KEY},
    {"gdn2", "erases more, writes", LA_GDN2, BY_CHANNEL, 0.3f, 1, KEY},
    {"rwkv7", "removes, decays, adds", LA_RWKV7, BY_CHANNEL, 0.3f, 1, KEY},
};

typedef struct result {
    double bits, hits; /* sums over the bytes */
    double seconds;    /* in la_forward */
    size_t state_bytes;
} result;

typedef struct text {
    const char *name;
    unsigned char *bytes;
    size_t length;
} text;

static void fail(const char *about, const char *problem)
{
    fprintf(stderr, "text_memory: %s: %s\n", about, problem);
    exit(2);
}

/* ---- codes: signs from a hash ---------------------------------------------------------------- */

static uint64_t scramble(uint64_t x) /* splitmix64 */
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Adds the code of `name`, +1 or -1 in each place. */
static void add_code(float *sum, int count, uint64_t name)
{
    uint64_t signs = 0;
    for (int i = 0; i < count; ++i, signs >>= 1) {
        if (i % 64 == 0) signs = name = scramble(name);
        sum[i] += signs & 1 ? 1.0f : -1.0f;
    }
}

static void to_unit_length(float *x, int count)
{
    float sum = 0;
    for (int i = 0; i < count; ++i) sum += x[i] * x[i];
    if (sum > 0) sum = 1 / sqrtf(sum);
    for (int i = 0; i < count; ++i) x[i] *= sum;
}

/* The code of the bytes that end before `end`: the sum of the codes of the last one, two and three,
   so that contexts with the same ending are alike. */
static void context_code(float code[HEADS][KEY], const unsigned char *bytes, size_t end)
{
    uint64_t name = 0;
    memset(code, 0, sizeof(float[HEADS][KEY]));
    for (size_t back = 1; back <= CONTEXT && back <= end; ++back) {
        name = scramble(name << 9 | bytes[end - back]);
        for (uint64_t h = 0; h < HEADS; ++h) add_code(code[h], KEY, name + h);
    }
    for (int h = 0; h < HEADS; ++h) to_unit_length(code[h], KEY);
}

/* ---- one prediction -------------------------------------------------------------------------- */

typedef struct predictor {
    float values[BYTES][HEADS][VALUE];  /* the code of each byte            */
    float columns[HEADS][VALUE][BYTES]; /* the same, transposed             */
    float scores[BYTES];
    double counts[BYTES], total;        /* order-0 frequencies, from 1 each */
} predictor;

static void start_predictor(predictor *p)
{
    memset(p, 0, sizeof *p);
    p->total = BYTES;
    for (int b = 0; b < BYTES; ++b) {
        p->counts[b] = 1;
        for (int h = 0; h < HEADS; ++h) {
            add_code(p->values[b][h], VALUE, ~(uint64_t)(b * HEADS + h));
            to_unit_length(p->values[b][h], VALUE);
            for (int e = 0; e < VALUE; ++e) p->columns[h][e][b] = p->values[b][h][e];
        }
    }
}

/* How much the layer's output is like each byte's code. Each head is brought to unit length first,
   as these layers do with a norm behind the attention. */
static void score(predictor *p, float out[HEADS][VALUE])
{
    memset(p->scores, 0, sizeof p->scores);
    for (int h = 0; h < HEADS; ++h) {
        to_unit_length(out[h], VALUE);
        for (int e = 0; e < VALUE; ++e)
            for (int b = 0; b < BYTES; ++b)
                p->scores[b] += out[h][e] / HEADS * p->columns[h][e][b];
    }
}

/* Prices the byte that came, then counts it. */
static void account(predictor *p, double frequencies, int byte, result *r)
{
    double likely[BYTES], sum = 0;
    int guess = 0;
    for (int b = 0; b < BYTES; ++b) sum += likely[b] = exp(sharpness * (double)p->scores[b]);
    for (int b = 0; b < BYTES; ++b) {
        likely[b] = (1 - frequencies) * likely[b] / sum + frequencies * p->counts[b] / p->total;
        if (likely[b] >= likely[guess]) guess = b;
    }
    r->bits -= log2(likely[byte]);
    r->hits += guess == byte;
    p->counts[byte] += 1;
    p->total += 1;
}

/* ---- the layer ------------------------------------------------------------------------------- */

typedef struct memory {
    la_layer layer;
    la_call call;
    float q[CALL][HEADS][KEY], k[CALL][HEADS][KEY], v[CALL][HEADS][VALUE], out[CALL][HEADS][VALUE];
    float log_decay[HEADS][KEY], beta[CALL][HEADS], projection[FEATURES][KEY];
    float minus_k[CALL][HEADS][KEY], beta_k[CALL][HEADS][KEY], erase[KEY];
    float *state, size;
    int64_t position; /* of the first byte */
} memory;

static void must(la_status status)
{
    if (status != LA_OK) fail("linear_attention", la_status_text(status));
}

/* One gate per head, or one per head and channel; the same for every token. */
static void set_gates(memory *m, const row *kind)
{
    float *decay = m->log_decay[0];
    for (int h = 0; h < HEADS; ++h) {
        decay[h] = logf(0.999f);
        for (int i = 0; i < KEY && kind->gate == BY_CHANNEL; ++i)
            m->log_decay[h][i] = -0.01f * powf(0.01f, (float)i / (KEY - 1));
    }
    if (kind->gate == RETNET) must(la_retnet_log_decay(decay, HEADS));
    if (kind->gate == LIGHT) must(la_lightning_log_decay(decay, HEADS, 0, HEADS, 0, 1));
    if (kind->gate != NO_GATE) m->call.log_decay = la_per_head(decay);
    if (kind->gate == BY_CHANNEL) m->call.log_decay.head_stride = m->call.log_decay.width = KEY;
    for (int t = 0; t < CALL; ++t)
        for (int h = 0; h < HEADS; ++h) m->beta[t][h] = kind->beta;
    if (kind->beta > 0) m->call.beta = la_bthd(m->beta[0], CALL, HEADS, 1);
}

/* What only some rules have: an erase gate, here stronger than beta; a = -k and b = beta k. */
static void set_partners(memory *m, const row *kind)
{
    for (int i = 0; i < KEY; ++i) m->erase[i] = 1.5f * kind->beta;
    if (kind->variant == LA_GDN2) {
        m->call.erase = la_per_channel(m->erase, KEY);
        m->call.erase.head_stride = 0;
    }
    if (m->layer.write == LA_WRITE_DPLR) {
        m->call.a = la_bthd(m->minus_k[0][0], CALL, HEADS, KEY);
        m->call.b = la_bthd(m->beta_k[0][0], CALL, HEADS, KEY);
    }
}

/* What the feature maps need. */
static void set_features(memory *m, size_t length)
{
    m->layer.horizon = (double)length;
    m->layer.features = FEATURES;
    m->layer.projection = m->projection[0];
    must(la_favor_projection(m->projection[0], FEATURES, m->layer.dim_k, LA_ORTHOGONAL, 1));
}

static void start_memory(memory *m, const row *kind, size_t length)
{
    memset(m, 0, sizeof *m);
    m->size = kind->size;
    must(la_layer_init(&m->layer, kind->variant, HEADS, kind->channels, VALUE));
    set_features(m, length);
    must(la_call_init(&m->call, &m->layer, 1, CALL));
    m->call.q = la_bthd(m->q[0][0], CALL, HEADS, KEY);
    m->call.k = la_bthd(m->k[0][0], CALL, HEADS, KEY);
    m->call.q.width = m->call.k.width = kind->channels;
    m->call.v = la_bthd(m->v[0][0], CALL, HEADS, VALUE);
    m->call.out = la_bthd_out(m->out[0][0], CALL, HEADS, VALUE);
    set_gates(m, kind);
    set_partners(m, kind);
    m->state = (float *)calloc(la_state_floats(&m->layer) + 1, sizeof *m->state);
    m->call.state_out = m->state;
    m->call.workspace_size = la_workspace_size(&m->layer, &m->call);
    m->call.workspace = malloc(m->call.workspace_size + 1);
    if (!m->state || !m->call.workspace) fail(kind->name, "not enough memory");
}

static double seconds(void)
{
#ifdef CLOCK_MONOTONIC
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;
#endif
}

static void stretch(float *x, size_t count, float factor)
{
    while (count-- > 0) *x++ *= factor;
}

/* Gives the layer the bytes [start, start + count) of the text; returns the seconds it took. */
static double attend(memory *m, const predictor *p, const text *input, size_t start, size_t count)
{
    double began;
    for (size_t t = 0; t < count; ++t) {
        if (t > 0) memcpy(m->k[t], m->q[t - 1], sizeof m->k[t]);
        else context_code(m->k[t], input->bytes, start);
        context_code(m->q[t], input->bytes, start + t + 1);
        memcpy(m->v[t], p->values[input->bytes[start + t]], sizeof m->v[t]);
    }
    stretch(m->q[0][0], count * HEADS * KEY, m->size);
    stretch(m->k[0][0], count * HEADS * KEY, m->size);
    memcpy(m->minus_k, m->k, sizeof m->k);
    memcpy(m->beta_k, m->k, sizeof m->k);
    stretch(m->minus_k[0][0], count * HEADS * KEY, -1);
    stretch(m->beta_k[0][0], count * HEADS * KEY, m->beta[0][0]);
    m->position = (int64_t)start;
    m->call.positions = m->layer.feature == LA_FEATURE_COSFORMER ? &m->position : NULL;
    m->call.tokens = m->call.keys = (int64_t)count;
    began = seconds();
    must(la_forward(&m->layer, &m->call));
    m->call.state_in = m->state; /* in place from the second call on */
    return seconds() - began;
}

/* ---- the progress bar ------------------------------------------------------------------------ */

static int on_terminal(void)
{
#if !defined(_WIN32)
    return isatty(STDERR_FILENO);
#else
    return 0;
#endif
}

static void progress(const row *kind, size_t done, size_t all)
{
    static const char bar[] = "########################################";
    const int width = (int)sizeof bar - 1;
    const int filled = (int)((double)done / (double)all * width);
    if (!on_terminal()) return;
    if (done < all) fprintf(stderr, "\r  %-16s [%-*.*s]", kind->name, width, filled, bar);
    else fprintf(stderr, "\r%*s\r", width + 22, "");
}

/* ---- a text, a row --------------------------------------------------------------------------- */

static result count_bytes(const row *kind, const text *input)
{
    static predictor p;
    result r = {0, 0, 0, 0};
    (void)kind;
    start_predictor(&p);
    for (size_t t = 0; t < input->length; ++t) account(&p, 1, input->bytes[t], &r);
    return r;
}

static result run_layer(const row *kind, const text *input)
{
    static predictor p;
    static memory m;
    result r = {0, 0, 0, 0};
    start_predictor(&p);
    start_memory(&m, kind, input->length);
    r.state_bytes = la_state_floats(&m.layer) * sizeof *m.state;
    for (size_t start = 0; start < input->length; start += CALL) {
        const size_t left = input->length - start, count = left < CALL ? left : CALL;
        progress(kind, start, input->length);
        r.seconds += attend(&m, &p, input, start, count);
        for (size_t t = 0; t < count; ++t) { /* the scores still stem from byte start + t - 1 */
            account(&p, share, input->bytes[start + t], &r);
            score(&p, m.out[t]);
        }
    }
    progress(kind, input->length, input->length);
    free(m.state);
    free(m.call.workspace);
    return r;
}

static void print_row(const row *kind, const result *r, const text *input)
{
    const double n = (double)input->length;
    printf("  %-16s %-22s %9.3f %7.1f %%", kind->name, kind->rule, r->bits / n, 100 * r->hits / n);
    if (kind->variant)
        printf(" %11.0f %7.0f KiB", n / (r->seconds + 1e-9), (double)r->state_bytes / 1024);
    printf("\n");
    fflush(stdout);
}

/* ---- what the numbers say -------------------------------------------------------------------- */

/* A difference that a reader may believe. */
static const double clear_bits = 0.1;

static void explain(const result *r, size_t length)
{
    double bits[ROWS];
    int best = 0;
    for (int i = 0; i < ROWS; ++i) {
        bits[i] = r[i].bits / (double)length;
        if (bits[i] < bits[best]) best = i;
    }
    if (best == ORDER_0) {
        printf("  Here no memory helps: counting bytes alone is best.\n\n");
        return;
    }
    printf("  %s is best, %.2f bits below counting", rows[best].name, bits[ORDER_0] - bits[best]);
    if (bits[AVERAGES] > bits[OVERWRITES] + clear_bits && r[AVERAGES].hits < r[OVERWRITES].hits)
        printf("; a plain average blurs (%+.2f\n  against overwriting)",
               bits[AVERAGES] - bits[OVERWRITES]);
    if (bits[SHARPER] < bits[AVERAGES] - clear_bits && r[SHARPER].hits > r[AVERAGES].hits)
        printf(", sharper features help it (%+.2f)", bits[SHARPER] - bits[AVERAGES]);
    printf(".\n\n");
}

static void show(const text *input, const char *about)
{
    result results[ROWS];
    printf("%s, %lu bytes%s\n\n", input->name, (unsigned long)input->length, about);
    printf("  %-16s %-22s %9s %9s %11s %11s\n", "variant", "the memory", "bits/byte", "top-1",
           "tokens/s", "state");
    for (int i = 0; i < ROWS; ++i) {
        results[i] = (rows[i].variant ? run_layer : count_bytes)(&rows[i], input);
        print_row(&rows[i], &results[i], input);
    }
    printf("\n");
    explain(results, input->length);
}

/* ---- the two inputs -------------------------------------------------------------------------- */

static text read_text(const char *name)
{
    text input = {NULL, NULL, 0};
    FILE *file = fopen(name, "rb");
    size_t capacity = 65536;
    input.name = name;
    if (!file) fail(name, "the file cannot be opened");
    for (;; capacity *= 2) {
        unsigned char *bytes = (unsigned char *)realloc(input.bytes, capacity);
        if (!bytes) fail(name, "not enough memory");
        input.bytes = bytes;
        input.length += fread(bytes + input.length, 1, capacity - input.length, file);
        if (input.length < capacity) break;
    }
    if (ferror(file)) fail(name, "the file cannot be read");
    fclose(file);
    if (input.length == 0) fail(name, "the file is empty");
    return input;
}

enum { NAMES = 32, LINES = 2000, LINE = 6 };

static unsigned draw(uint64_t *seed, unsigned below)
{
    *seed = scramble(*seed);
    return (unsigned)((*seed >> 33) % below);
}

/* Lines like QM=dk. Each repeats what a name stands for, or, three times in ten, changes it. */
static text make_bindings(void)
{
    static unsigned char bytes[LINES][LINE];
    unsigned char line[NAMES][LINE];
    text input = {"Bindings that change", bytes[0], sizeof bytes};
    uint64_t seed = 1;
    for (int i = 0; i < NAMES; ++i) {
        line[i][0] = (unsigned char)('A' + i % 26); /* no two names are the same */
        line[i][1] = (unsigned char)('A' + i / 26 * 13 + (int)draw(&seed, 13));
        line[i][2] = '=';
        line[i][3] = (unsigned char)('a' + draw(&seed, 26));
        line[i][4] = (unsigned char)('a' + draw(&seed, 26));
        line[i][5] = '\n';
    }
    for (int n = 0; n < LINES; ++n) {
        unsigned char *chosen = line[draw(&seed, NAMES)];
        if (draw(&seed, 10) < 3) {
            chosen[3] = (unsigned char)('a' + draw(&seed, 26));
            chosen[4] = (unsigned char)('a' + draw(&seed, 26));
        }
        memcpy(bytes[n], chosen, LINE);
    }
    return input;
}

int main(int count, char **arguments)
{
    text input, bindings = make_bindings();
    if (count > 2) fail(arguments[2], "one file is enough");
    input = read_text(count == 2 ? arguments[1] : "README.md");
    show(&input, "");
    show(&bindings, ": lines like QM=dk, of 32 names, 3 in 10 with a new value");
    free(input.bytes);
    return 0;
}
