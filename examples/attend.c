/* attend: any variant, in any form, and every system of LA_EXTRAS, on arrays from .npy files.
 *
 * For people who write their own kernels: save q, k, v from NumPy, PyTorch or JAX, run this, and
 * compare. `attend --help` lists the options; each is one row of the table below.
 *
 * Exit status: 0 success; 1 --compare found too large a difference; 2 anything wrong with the
 * options or the files, said in one line that names the option, and nothing is written.
 */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
/* NOLINTNEXTLINE(bugprone-reserved-identifier): a monotonic clock, stat and threads */
#define _POSIX_C_SOURCE 200112L
#endif
#define LA_IMPLEMENTATION
#define LA_EXTRAS
#include "linear_attention.h"

#include "../tests/npy.h"

#include <errno.h>
#include <stdarg.h>
#include <time.h>

#if !defined(_WIN32)
#include <sys/stat.h>
#include <unistd.h>
#endif
#if !defined(_OPENMP) && defined(_POSIX_THREADS)
#include <pthread.h>
#define ATTEND_PTHREADS 1
#endif

/* ---- the options ----------------------------------------------------------------------------- */

/* The systems of LA_EXTRAS, behind all that the library has by name. Each kind of Synthesizer has a
 * number of its own, for each has its own inputs. */
enum { INFINI = 22, LINFORMER, SYNTHESIZER, RWKV4 = SYNTHESIZER + 4, HGRN, SOFTMAX, SIGMOID };

#define BIT(variant) (1u << (variant))
#define ALL (~0u)
#define EXTRAS (ALL << INFINI)
#define LINEAR (~EXTRAS)
#define SCANS (BIT(RWKV4) | BIT(HGRN))
#define DENSE (BIT(SYNTHESIZER + LA_DENSE) | BIT(SYNTHESIZER + LA_FACTORISED_DENSE))
#define RANDOM (BIT(SYNTHESIZER + LA_RANDOM) | BIT(SYNTHESIZER + LA_FACTORISED_RANDOM))
#define FACTORS (SYNTHESIZERS & ~BIT(SYNTHESIZER + LA_RANDOM))
#define SYNTHESIZERS (DENSE | RANDOM)
#define ATTENTION (BIT(SOFTMAX) | BIT(SIGMOID))
#define SOFTMAXES (BIT(SOFTMAX) | BIT(LINFORMER) | SYNTHESIZERS)
#define ENGINE (LINEAR | BIT(INFINI)) /* an la_layer, of which Infini-attention makes its memory */
#define STATES (ENGINE | SCANS)
#define QUERIES (~(SCANS | RANDOM))
#define KEYS (~(SYNTHESIZERS | BIT(HGRN)))
#define PRODUCTS (ENGINE | ATTENTION | BIT(LINFORMER)) /* q . k */
#define FAVOR BIT(LA_FAVOR)
#define COSFORMER BIT(LA_COSFORMER)
#define HEDGEHOG BIT(LA_HEDGEHOG)
#define PROJECTED (FAVOR | HEDGEHOG | BIT(LA_RFF))
#define AVERAGES (BIT(LA_ELU) | COSFORMER | BIT(LA_BASED) | BIT(LA_MAPPED) | PROJECTED)
#define NORMALISED (AVERAGES | BIT(INFINI))
#define ERASING (BIT(LA_DELTANET) | BIT(LA_GATED_DELTANET) | BIT(LA_KDA) | BIT(LA_GDN2))
#define CHANNELS (LINEAR & ~(COSFORMER | PROJECTED | BIT(LA_BASED) | BIT(LA_DPFP))) /* features */
#define DECAYING (LINEAR | SCANS)
#define FADING (BIT(LA_RETNET) | BIT(LA_LIGHTNING) | SCANS) /* not without decay */
#define BIASED (HEDGEHOG | BIT(LA_RFF))
#define KEY_COUNTS (AVERAGES | ATTENTION | BIT(LINFORMER))
#define LARGEST ((double)FLT_MAX)
#define EXACT 9007199254740992.0 /* 2^53: integers up to here survive as a double */
#define MOST 281474976710656.0   /* 2^48: the most tokens of the library */

enum {
    O_VARIANT, O_Q, O_K, O_V, O_LOG_DECAY, O_BETA, O_OUT, O_STATE_IN, O_STATE_OUT, O_NORM_IN,
    O_NORM_OUT, O_MAX_IN, O_MAX_OUT, O_LENGTHS, O_KEY_LENGTHS, O_FORM, O_CHUNK, O_ISA,
    O_BIDIRECTIONAL, O_SCALE, O_EPS, O_EPS_MODE, O_L2NORM, O_L2_EPS, O_L2_MODE, O_HORIZON,
    O_POSITION, O_PROJECTION, O_PROJECTION_BIAS, O_Q_PROJECTION, O_Q_PROJECTION_BIAS,
    O_FAVOR_KERNEL, O_HEDGEHOG_KERNEL, O_FEATURE_EPS,
    O_NU, O_SKIP, O_OUT_GATE, O_HEAD_MAP, O_STATE_LAYOUT, O_THREADS, O_REPEAT, O_COMPARE,
    O_TOLERANCE, O_WINDOW, O_SINKS, O_BIAS, O_LOGITS, O_LSE_OUT, O_ERASE, O_BONUS, O_A, O_B,
    O_SEGMENT, O_UPDATE, O_E, O_F, O_KIND, O_FACTORISED, O_W1, O_B1, O_W2, O_B2, O_TOKENS, O_COUNT
};

enum { TEXT = 5000 }; /* room for a message, the name of a file included */

typedef enum option_kind { FLAG, CHOICE, INTEGER, REAL, NAME, INPUT, OUTPUT } option_kind;

typedef struct option {
    const char *name;
    option_kind kind;
    unsigned variants, required; /* the variants that use it; those that cannot do without */
    int needs;                   /* another option without which it says nothing           */
    double low, high;
    const char *value, *meaning; /* of a CHOICE, value lists the words in the enum's order */
} option;

static const option options[O_COUNT] = {
    {"--variant", NAME, ALL, ALL, 0, 0, 0, "NAME", "one of those below"},
    {"--q", INPUT, QUERIES, QUERIES, 0, 0, 0, "F",
     "queries [B,T,Hq,dk], synthesizer: x [B,T,H,dx]"},
    {"--k", INPUT, KEYS, KEYS, 0, 0, 0, "F", "keys [B,S,Hk,dk], rwkv4: [B,T,C]"},
    {"--v", INPUT, ALL, ALL, 0, 0, 0, "F", "values [B,S,H,dv], of scans [B,T,C]"},
    {"--log-decay", INPUT, DECAYING, FADING, 0, 0, 0, "F",
     "ln of the decay, [H], [B,S,H] or [B,S,H,dk], of scans [C] or [B,T,C]"},
    {"--beta", INPUT, ENGINE, BIT(INFINI), 0, 0, 0, "F",
     "writing strength [B,S,H] or [B,S,H,dv]; 1. infini: mixing logit [H] or [H,dv]"},
    {"--out", OUTPUT, ALL, ALL, 0, 0, 0, "F", "the output [B,T,max(H,Hq),dv], of scans [B,T,C]"},
    {"--state-in", INPUT, STATES, 0, 0, 0, 0, "F",
     "[B,H,r,dv] (kv) or [B,H,dv,r] (vk), rwkv4: [B,3,C], hgrn: [B,C]; empty"},
    {"--state-out", OUTPUT, STATES, 0, 0, 0, 0, "F", "the final state, the same shape"},
    {"--norm-in", INPUT, NORMALISED, 0, O_STATE_IN, 0, 0, "F", "its normaliser [B,H,r]"},
    {"--norm-out", OUTPUT, NORMALISED, 0, 0, 0, 0, "F", "the final normaliser"},
    {"--max-in", INPUT, FAVOR, 0, O_STATE_IN, 0, 0, "F", "its running maximum [B,H]"},
    {"--max-out", OUTPUT, FAVOR, 0, 0, 0, 0, "F", "the final running maximum"},
    {"--lengths", INPUT, ALL, 0, 0, 0, 0, "F", "tokens of each sequence [B]; all"},
    {"--key-lengths", INPUT, KEY_COUNTS, 0, 0, 0, 0, "F", "keys of each sequence [B]; all"},
    {"--form", CHOICE, LINEAR, 0, 0, 0, 0, "auto|parallel|recurrent|chunkwise", "auto"},
    {"--chunk", INTEGER, ENGINE, 0, 0, 0, 1024, "N",
     "of the chunkwise form; 0: the library's choice"},
    {"--isa", CHOICE, ALL, 0, 0, 0, 0, "auto|scalar|avx2|avx512|neon", "auto"},
    {"--bidirectional", FLAG, NORMALISED | ATTENTION | SYNTHESIZERS, 0, 0, 0, 0, "",
     "all keys for all queries, infini: all of the segment"},
    {"--scale", REAL, PRODUCTS, 0, 0, -LARGEST, LARGEST, "X", "on q . k; 1, of attention dk^-1/2"},
    {"--eps", REAL, NORMALISED, 0, 0, 0, LARGEST, "X", "of the denominator; 0"},
    {"--eps-mode", CHOICE, NORMALISED, 0, 0, 0, 0, "add|max", "added, or a lower bound; add"},
    {"--l2norm", FLAG, ENGINE, 0, 0, 0, 0, "", "L2 normalisation of q and k, before features"},
    {"--l2-eps", REAL, ENGINE, 0, O_L2NORM, 0, LARGEST, "X", "of that normalisation; 1e-6"},
    {"--l2-mode", CHOICE, ENGINE, 0, O_L2NORM, 0, 0, "sum|max",
     "x/sqrt(|x|^2+eps) or x/max(|x|,eps); sum"},
    {"--horizon", REAL, COSFORMER, COSFORMER, 0, 0, EXACT, "M", "of the cosine"},
    {"--position", INTEGER, COSFORMER | ATTENTION, 0, 0, 0, MOST, "P",
     "of the first token; 0, of attention such that the last query has the last key"},
    {"--projection", INPUT, PROJECTED, PROJECTED, 0, 0, 0, "F", "[m,dk] or [H,m,dk]"},
    {"--projection-bias", INPUT, BIASED, 0, O_PROJECTION, 0, 0, "F", "[m] or [H,m]; 0"},
    {"--q-projection", INPUT, PROJECTED, 0, O_PROJECTION, 0, 0, "F", "that of queries; the same"},
    {"--q-projection-bias", INPUT, BIASED, 0, O_Q_PROJECTION, 0, 0, "F", "its bias; 0"},
    {"--favor-kernel", CHOICE, FAVOR, 0, 0, 0, 0, "positive|hyperbolic|relu", "positive"},
    {"--hedgehog-kernel", CHOICE, HEDGEHOG, 0, 0, 0, 0, "split|joint|exp", "split"},
    {"--feature-eps", REAL, FAVOR | HEDGEHOG, 0, 0, 0, LARGEST, "X",
     "favor: added to each feature; hedgehog: their least; 0"},
    {"--nu", INTEGER, BIT(LA_DPFP), 0, 0, 1, 1 << 20, "N", "rolls of the features; 1"},
    {"--skip", INPUT, LINEAR, 0, 0, 0, 0, "F", "D [H] or [H,dv]: D v is added to the output; 0"},
    {"--out-gate", INPUT, LINEAR, 0, 0, 0, 0, "F",
     "z like the output, which is multiplied by z / (1 + exp(-z)); none"},
    {"--head-map", CHOICE, PRODUCTS, 0, 0, 0, 0, "grouped|tiled", "grouped"},
    {"--state-layout", CHOICE, ENGINE, 0, 0, 0, 0, "kv|vk", "kv"},
    {"--threads", INTEGER, ALL, 0, 0, 1, 1024, "N", "slices of the work, a thread for each; 1"},
    {"--repeat", INTEGER, ALL, 0, 0, 1, 1000000, "N", "runs; prints ns_per_token_head MIN MEDIAN"},
    {"--compare", INPUT, ALL, 0, 0, 0, 0, "F", "|out-F|/|F|; exit 1 beyond the tolerance"},
    {"--tolerance", REAL, ALL, 0, O_COMPARE, 0, LARGEST, "X", "1e-5"},
    {"--window", INTEGER, ATTENTION | SYNTHESIZERS, 0, 0, 0, MOST, "N",
     "keys that a query sees; 0: all"},
    {"--sinks", INTEGER, ATTENTION | SYNTHESIZERS, 0, O_WINDOW, 0, MOST, "N",
     "first keys seen besides; 0"},
    {"--bias", REAL, BIT(SIGMOID), 0, 0, -LARGEST, LARGEST, "X", "added to each logit; 0"},
    {"--logits", INPUT, ATTENTION, 0, 0, 0, 0, "F", "added to scale q . k [B,T,Hq,S]; none"},
    {"--lse-out", OUTPUT, SOFTMAXES, 0, 0, 0, 0, "F", "ln of the sum of exp(logits) [B,T,Hq]"},
    {"--erase", INPUT, ERASING, 0, 0, 0, 0, "F", "gate of what is predicted [B,S,H,dk]; beta's"},
    {"--bonus", INPUT, BIT(LA_RWKV6) | BIT(RWKV4), BIT(RWKV4), 0, 0, 0, "F",
     "of a token itself [H,dk] or [B,S,H,dk]; 1. rwkv4: [C]"},
    {"--a", INPUT, BIT(LA_RWKV7), BIT(LA_RWKV7), 0, 0, 0, "F", "reads the state undecayed"},
    {"--b", INPUT, BIT(LA_RWKV7), BIT(LA_RWKV7), 0, 0, 0, "F", "and writes it; [B,S,H,dk] both"},
    {"--segment", INTEGER, BIT(INFINI), BIT(INFINI), 0, 1, MOST, "N", "tokens of a segment"},
    {"--update", CHOICE, BIT(INFINI), 0, 0, 0, 0, "linear|delta", "of the memory; linear"},
    {"--E", INPUT, BIT(LINFORMER), BIT(LINFORMER), 0, 0, 0, "F", "of keys, [n,k] or [Hk,n,k]"},
    {"--F", INPUT, BIT(LINFORMER), 0, 0, 0, 0, "F", "of values, the same shape; E"},
    {"--kind", CHOICE, SYNTHESIZERS, 0, 0, 0, 0, "dense|random", "dense"},
    {"--factorised", FLAG, SYNTHESIZERS, 0, 0, 0, 0, "", "logits are products of two factors"},
    {"--w1", INPUT, SYNTHESIZERS, SYNTHESIZERS, 0, 0, 0, "F",
     "[rank1,dx], random [L,L], factorised random [L,rank1]; or with H in front"},
    {"--b1", INPUT, DENSE, 0, 0, 0, 0, "F", "[rank1] or [H,rank1]; 0"},
    {"--w2", INPUT, FACTORS, FACTORS, 0, 0, 0, "F",
     "[L,rank1], factorised dense [rank2,dx]; or with H in front"},
    {"--b2", INPUT, DENSE, 0, 0, 0, 0, "F", "[L], factorised [rank2]; or with H in front; 0"},
    {"--tokens", INTEGER, RANDOM, 0, 0, 0, MOST, "T", "the last of the keys; all"},
};

typedef struct setting {
    const char *text; /* null: not given */
    double number;    /* of a CHOICE: the index of the word */
} setting;

typedef struct tensor {
    npy_array file; /* its shape; the bytes are freed once they are converted */
    float *data;
} tensor;

/* What the library is called with: the layer and the call of the family, and no others. */
typedef struct work {
    la_layer layer;
    la_infini infini;
    la_call call; /* of these two */
    la_attention attention;
    la_linformer linformer;
    la_synthesizer synthesizer;
    la_attention_call attention_call; /* of these three */
    la_scan scan;
} work;

typedef struct job job;

/* Variants that are called alike. */
typedef struct family {
    unsigned variants;
    void (*set)(job *); /* work, of options and files, but for outputs, states and workspace */
    size_t (*workspace)(const work *);
    la_status (*check)(const work *, const char **field);
    la_status (*forward)(const work *);
} family;

struct job {
    setting set[O_COUNT];
    tensor in[O_COUNT]; /* of the options that are inputs */
    int variant;        /* an la_variant, or one of the systems of LA_EXTRAS */
    char name[64];
    const family *family;
    int64_t batch, tokens, keys, q_heads, k_heads, heads, dim_k, dim_v;
    int64_t r; /* rows of the state: channels of a feature */
    size_t head_floats;
    float *state_in, *state_out, *out, *lse;
    int64_t *lengths, *key_lengths, *positions;
    size_t workspace_size, thread_count, runs;
    double *times; /* of the runs, in nanoseconds */
    char *workspace;
    work work;
};

/* File names and values may hold anything: a message stays one line all the same. */
static void print_plain(const char *text)
{
    for (; *text; ++text) fputc((unsigned char)*text < ' ' || *text == 127 ? '?' : *text, stderr);
}

static void print_line(const char *name, const char *text)
{
    print_plain("attend: ");
    print_plain(name);
    print_plain(": ");
    print_plain(text);
    fputc('\n', stderr);
}

/* The one way out when something is wrong. */
#ifdef __GNUC__
__attribute__((noreturn, format(printf, 2, 3)))
#endif
static void refuse(int o, const char *format, ...)
{
    char text[TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_line(options[o].name, text);
    exit(2);
}

static int given(const job *j, int o)
{
    return j->set[o].text != NULL;
}

static double number_or(const job *j, int o, double otherwise)
{
    return given(j, o) ? j->set[o].number : otherwise;
}

static int is(const job *j, unsigned variants)
{
    return (variants & BIT(j->variant)) != 0;
}

static int choice(const job *j, int o)
{
    return (int)j->set[o].number;
}

static void *need(int o, size_t count, size_t size)
{
    void *memory = count < SIZE_MAX / size ? calloc(count + 1, size) : NULL;
    if (!memory) refuse(o, "not enough memory");
    return memory;
}

static const struct { const char *name; int variant; } extras[] = {
    {"softmax", SOFTMAX}, {"sigmoid", SIGMOID}, {"infini", INFINI}, {"linformer", LINFORMER},
    {"synthesizer", SYNTHESIZER}, {"rwkv4", RWKV4}, {"hgrn", HGRN},
};
enum { EXTRA_NAMES = sizeof extras / sizeof *extras };

static void help(void)
{
    puts("attend: linear attention on .npy files (float32, or float64 converted)\n");
    for (int o = 0; o < O_COUNT; ++o) {
        const option *row = &options[o];
        printf("  %-19s %-8s %s%s\n", row->name, row->value, row->meaning,
               row->required == row->variants ? " (required)" : "");
    }
    puts("\nAfter a semicolon stands what holds when the option is absent. (required) is what all");
    puts("variants that use the option require; the others refuse it.");
    printf("Variants:");
    for (int v = LA_ELU; la_variant_name((la_variant)v); ++v)
        printf(" %s", la_variant_name((la_variant)v));
    for (int i = 0; i < EXTRA_NAMES; ++i) printf(" %s", extras[i].name);
    puts("\nB sequences, T tokens, S keys (T but for attention and --bidirectional); Hq, Hk, H");
    puts("heads of q, k, v; r rows of a state; C channels of a scan (rwkv4, hgrn).");
}

/* ---- parsing --------------------------------------------------------------------------------- */

static int find_option(const char *name)
{
    for (int o = 0; o < O_COUNT; ++o)
        if (strcmp(name, options[o].name) == 0) return o;
    print_line(name, "unknown option; attend --help lists them");
    exit(2);
}

static double parse_number(int o, const char *text)
{
    const option *row = &options[o];
    char *end;
    double number;
    errno = 0;
    number = strtod(text, &end);
    if (end == text || *end || !strchr("+-.0123456789", *text))
        refuse(o, "'%s' is not a number", text);
    if (row->kind == INTEGER && (strspn(text, "0123456789") != strlen(text)))
        refuse(o, "'%s' is not a whole number", text);
    if (!(number >= row->low && number <= row->high))
        refuse(o, "%s is outside %.15g .. %.15g", text, row->low, row->high);
    return number;
}

static double parse_choice(int o, const char *text)
{
    const char *word = options[o].value;
    const size_t length = strlen(text);
    for (int index = 0;; ++index) {
        const size_t size = strcspn(word, "|");
        if (size == length && memcmp(word, text, length) == 0) return index;
        if (!word[size]) break;
        word += size + 1;
    }
    refuse(o, "'%s' is none of %s", text, options[o].value);
}

static void parse(job *j, int count, char **arguments)
{
    for (int i = 1; i < count; ++i) {
        const int o = find_option(arguments[i]);
        setting *set = &j->set[o];
        if (set->text) refuse(o, "given twice");
        if (options[o].kind != FLAG && ++i == count) refuse(o, "needs a value");
        set->text = arguments[i];
        if (!*set->text) refuse(o, "an empty value");
        if (options[o].kind == CHOICE) set->number = parse_choice(o, set->text);
        if (options[o].kind == INTEGER || options[o].kind == REAL)
            set->number = parse_number(o, set->text);
    }
}

/* ---- do the options fit the variant and each other? ------------------------------------------ */

/* 0: it is none. A kind of Synthesizer is a variant of its own. */
static int find_extra(const job *j, const char *name)
{
    for (int i = 0; i < EXTRA_NAMES; ++i) {
        const int variant = extras[i].variant;
        if (strcmp(name, extras[i].name) != 0) continue;
        if (variant != SYNTHESIZER) return variant;
        return variant + 2 * choice(j, O_KIND) + given(j, O_FACTORISED);
    }
    return 0;
}

static void check_variant(job *j)
{
    const char *name = j->set[O_VARIANT].text;
    la_layer layer;
    la_variant found;
    la_status status;
    if (!name) refuse(O_VARIANT, "required; attend --help lists the options");
    j->variant = find_extra(j, name);
    snprintf(j->name, sizeof j->name, "%s%s%s", name, is(j, RANDOM) ? " --kind random" : "",
             is(j, SYNTHESIZERS) && given(j, O_FACTORISED) ? " --factorised" : "");
    if (j->variant) return;
    if (la_variant_find(name, &found) != LA_OK) refuse(O_VARIANT, "'%s' is unknown", name);
    j->variant = (int)found;
    status = la_layer_init(&layer, found, 1, 1, 1);
    if (status != LA_OK) refuse(O_VARIANT, "%s: %s", name, la_status_text(status));
}

static void check_usage(const job *j)
{
    for (int o = 0; o < O_COUNT; ++o) {
        const option *row = &options[o];
        if (given(j, o) && !is(j, row->variants)) refuse(o, "not used by %s", j->name);
        if (!given(j, o) && is(j, row->required)) refuse(o, "required by %s", j->name);
        if (given(j, o) && !given(j, row->needs))
            refuse(o, "says nothing without %s", options[row->needs].name);
    }
    if (is(j, LINEAR) && given(j, O_KEY_LENGTHS) && !given(j, O_BIDIRECTIONAL))
        refuse(O_KEY_LENGTHS, "says nothing without --bidirectional");
    if (given(j, O_SKIP) && given(j, O_BIDIRECTIONAL))
        refuse(O_SKIP, "not used with --bidirectional");
}

/* Exponential features are held relative to a running maximum. */
static int has_maximum(const job *j)
{
    return j->variant == LA_FAVOR && choice(j, O_FAVOR_KERNEL) != LA_FAVOR_RELU;
}

static void check_state_options(const job *j)
{
    const int maxima[] = {O_MAX_IN, O_MAX_OUT};
    for (int i = 0; i < 2; ++i)
        if (given(j, maxima[i]) && !has_maximum(j))
            refuse(maxima[i], "not used by favor with --favor-kernel relu");
    if (!given(j, O_STATE_IN)) return;
    if (is(j, NORMALISED) && !given(j, O_NORM_IN))
        refuse(O_NORM_IN, "required with --state-in");
    if (has_maximum(j) && !given(j, O_MAX_IN)) refuse(O_MAX_IN, "required with --state-in");
}

/* By another name, too, where both are there already. */
static int same_file(const char *a, const char *b)
{
#if !defined(_WIN32)
    struct stat x, y;
    if (stat(a, &x) == 0 && stat(b, &y) == 0) return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
#endif
    return strcmp(a, b) == 0;
}

/* Two files of one name would leave only the last; one over the reference would destroy it. */
static void check_outputs(const job *j)
{
    for (int o = 0; o < O_COUNT; ++o) {
        if (options[o].kind != OUTPUT || !given(j, o)) continue;
        for (int other = 0; other < O_COUNT; ++other) {
            const int clash = other == O_COMPARE || (other < o && options[other].kind == OUTPUT);
            if (clash && given(j, other) && same_file(j->set[o].text, j->set[other].text))
                refuse(o, "the same file as %s", options[other].name);
        }
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static void load(job *j, int o)
{
    const int counts = o == O_LENGTHS || o == O_KEY_LENGTHS;
    tensor *t = &j->in[o];
    const char *path = j->set[o].text, *error = npy_read(path, &t->file);
    if (error) refuse(o, "%s: %s", path, error);
    if (!counts && !npy_is_float(t->file.type))
        refuse(o, "%s: has type %s, needs <f4 or <f8", path, npy_type_name(t->file.type));
    if (counts || o == O_COMPARE) return; /* read from the file's own bytes */
    t->data = npy_floats(&t->file);
    if (!t->data) refuse(o, "%s: not enough memory", path);
    free(t->file.data);
    t->file.data = NULL;
}

/* Appends it. */
static void print_shape(char text[TEXT], int rank, const int64_t *shape)
{
    size_t length = strlen(text);
    length += (size_t)snprintf(text + length, TEXT - length, "[");
    for (int i = 0; i < rank; ++i)
        length += (size_t)snprintf(text + length, TEXT - length, i ? ",%lld" : "%lld",
                                   (long long)shape[i]);
    snprintf(text + length, TEXT - length, "]");
}

static void refuse_shape(const job *j, int o, const char *wanted)
{
    char have[TEXT] = "";
    print_shape(have, j->in[o].file.rank, j->in[o].file.shape);
    refuse(o, "%s: has shape %s, needs %s", j->set[o].text, have, wanted);
}

/* The array of option o must have this shape. */
static void want_shape(const job *j, int o, int rank, const int64_t *shape)
{
    char wanted[TEXT] = "";
    if (npy_has_shape(&j->in[o].file, rank, shape)) return;
    print_shape(wanted, rank, shape);
    refuse_shape(j, o, wanted);
}

/* It must have one of these ranks, a bit each: above 2 those dimensions from the front, else, being
 * the same for all tokens, from the third one on. */
static void want_ranks(const job *j, int o, unsigned ranks, const int64_t shape[4])
{
    char wanted[TEXT] = "";
    for (int rank = 1; rank <= 4; ++rank) {
        const int64_t *from = rank > 2 ? shape : shape + 2;
        if (!(ranks & BIT(rank))) continue;
        if (npy_has_shape(&j->in[o].file, rank, from)) return;
        snprintf(wanted + strlen(wanted), 5, "%s", *wanted ? " or " : "");
        print_shape(wanted, rank, from);
    }
    refuse_shape(j, o, wanted);
}

/* Sizes that the library would refuse without a word on whose they are: only dimensions with a bit
 * in `empty` may be 0, and heads, channels and columns have a limit. */
static void want_sizes(const job *j, int o, int rank, unsigned empty)
{
    const npy_array *file = &j->in[o].file;
    char have[TEXT] = "";
    print_shape(have, file->rank, file->shape);
    if (file->rank != rank)
        refuse(o, "%s: has shape %s, needs %d dimensions", j->set[o].text, have, rank);
    for (int i = 0; i < rank; ++i) {
        const int64_t size = file->shape[i];
        if (size == 0 && !(empty & BIT(i)))
            refuse(o, "%s: has shape %s, is empty", j->set[o].text, have);
        if (size > 1 << 20 && (i > 1 || i == rank - 1))
            refuse(o, "%s: has shape %s, is wider than 1048576", j->set[o].text, have);
    }
}

/* The arrays fix all sizes: B, T, Hq and dk stand in q; S and Hk in k; H and dv in v. Scans have
 * channels in place of heads; what has no queries has as many as keys. Given logits need no dk. */
static void set_sizes(job *j)
{
    const int rank = is(j, SCANS) ? 3 : 4, own = is(j, ENGINE); /* heads of v */
    const int64_t *v = j->in[O_V].file.shape, *q = given(j, O_Q) ? j->in[O_Q].file.shape : v;
    const int64_t *k = given(j, O_K) ? j->in[O_K].file.shape : v;
    const int causal = is(j, ENGINE) && (!given(j, O_BIDIRECTIONAL) || j->variant == INFINI);
    for (int o = O_Q; o <= O_V; ++o)
        if (given(j, o))
            want_sizes(j, o, rank, BIT(1) | (o != O_V && given(j, O_LOGITS) ? BIT(3) : 0));
    {
        const int64_t key_shape[] = {q[0], causal ? q[1] : k[1], k[2], q[3]};
        const int64_t value_shape[] = {q[0], k[1], own ? v[2] : given(j, O_K) ? k[2] : q[2], v[3]};
        if (given(j, O_K)) want_shape(j, O_K, rank, key_shape);
        want_shape(j, O_V, rank, value_shape);
    }
    j->batch = q[0];
    j->tokens = (int64_t)number_or(j, O_TOKENS, (double)q[1]);
    j->keys = v[1];
    j->q_heads = rank == 4 ? q[2] : 1;
    j->k_heads = rank == 4 ? k[2] : 1;
    j->heads = own ? v[2] : j->q_heads;
    j->dim_k = q[rank - 1];
    j->dim_v = v[rank - 1];
}

/* What an initialiser answers. */
static void started(const job *j, la_status status, int o)
{
    if (status != LA_OK) refuse(o, "%s: %s", j->set[o].text, la_status_text(status));
}

/* A packed tensor of four dimensions, whatever these are. */
static la_in whole(const job *j, int o)
{
    const tensor *t = &j->in[o];
    return la_bthd(t->data, t->file.shape[1], t->file.shape[2], t->file.shape[3]);
}

/* What stands beside keys: [B,S,H] or [B,S,H,n], or, the same for every token, [H] or [H,n]. */
static la_in beside(const job *j, int o, unsigned ranks, int64_t n)
{
    const int64_t shape[] = {j->batch, j->keys, j->heads, n};
    const tensor *t = &j->in[o];
    if (!given(j, o)) return la_bthd(NULL, j->keys, j->heads, 1);
    want_ranks(j, o, ranks, shape);
    switch (t->file.rank) {
    case 1: return la_per_head(t->data);
    case 2: return la_per_channel(t->data, n);
    default: return la_bthd(t->data, j->keys, j->heads, t->file.rank == 4 ? n : 1);
    }
}

/* The last dimension but `back` of a matrix, or of one for each head. */
static int64_t side(const job *j, int o, int back)
{
    const npy_array *file = &j->in[o].file;
    if (!given(j, o)) return 0;
    want_sizes(j, o, file->rank == 3 ? 3 : 2, 0);
    return file->shape[file->rank - 1 - back];
}

/* A matrix, or with rows = 0 a vector, or one for each of the heads. */
static la_in weights(const job *j, int o, int64_t heads, int64_t rows, int64_t width)
{
    const int64_t matrix[] = {heads, rows, width}, vector[] = {heads, width};
    const int rank = rows ? 2 : 1, per_head = j->in[o].file.rank == rank + 1;
    const int64_t *shape = rows ? matrix : vector;
    la_in x = la_matrix(j->in[o].data, width);
    if (given(j, o)) want_shape(j, o, rank + per_head, shape + !per_head);
    if (per_head) x.head_stride = rows ? rows * width : width;
    return x;
}

/* ---- the layers of the engine ---------------------------------------------------------------- */

/* Projection o and its bias as the library has them, each head's biases behind its rows. */
static const float *with_bias(job *j, int o, int bias, size_t heads)
{
    const size_t rows = j->in[o].file.count / heads, biases = (size_t)j->work.layer.features;
    float *joined = (float *)need(bias, heads * (rows + biases), sizeof *joined);
    for (size_t h = 0; h < heads; ++h) {
        float *at = joined + h * (rows + biases);
        memcpy(at, j->in[o].data + h * rows, rows * sizeof *at);
        if (given(j, bias)) memcpy(at + rows, j->in[bias].data + h * biases, biases * sizeof *at);
    }
    free(j->in[o].data);
    j->in[o].data = joined;
    return joined;
}

static void set_bias(job *j)
{
    const npy_array *W = &j->in[O_PROJECTION].file;
    la_layer *layer = &j->work.layer;
    const size_t heads = W->rank == 3 ? (size_t)j->heads : 1;
    const int64_t shape[] = {j->heads, layer->features};
    const int biases[] = {O_PROJECTION_BIAS, O_Q_PROJECTION_BIAS};
    if (!given(j, O_PROJECTION_BIAS) && !given(j, O_Q_PROJECTION_BIAS)) return;
    for (int i = 0; i < 2; ++i)
        if (given(j, biases[i])) want_shape(j, biases[i], W->rank - 1, shape + (W->rank == 2));
    layer->projection_bias = 1;
    layer->projection = with_bias(j, O_PROJECTION, O_PROJECTION_BIAS, heads);
    if (heads > 1) layer->projection_head_stride += layer->features;
    if (given(j, O_Q_PROJECTION))
        layer->q_projection = with_bias(j, O_Q_PROJECTION, O_Q_PROJECTION_BIAS, heads);
}

static void set_projection(job *j)
{
    const npy_array *file = &j->in[O_PROJECTION].file;
    la_layer *layer = &j->work.layer;
    la_in W;
    if (!given(j, O_PROJECTION)) return;
    layer->features = side(j, O_PROJECTION, 1);
    W = weights(j, O_PROJECTION, j->heads, layer->features, j->dim_k);
    layer->projection = W.data;
    layer->projection_head_stride = W.head_stride;
    if (given(j, O_Q_PROJECTION)) want_shape(j, O_Q_PROJECTION, file->rank, file->shape);
    layer->q_projection = j->in[O_Q_PROJECTION].data;
    set_bias(j);
}

static void set_layer(job *j)
{
    la_layer *layer = &j->work.layer;
    const la_variant variant = j->variant == INFINI ? LA_ELU : (la_variant)j->variant;
    started(j, la_layer_init(layer, variant, j->heads, j->dim_k, j->dim_v), O_V);
    layer->q_heads = j->q_heads;
    layer->k_heads = j->k_heads;
    set_projection(j);
    layer->bidirectional = given(j, O_BIDIRECTIONAL);
    layer->head_map = choice(j, O_HEAD_MAP);
    layer->state_layout = choice(j, O_STATE_LAYOUT);
    layer->scale = (float)number_or(j, O_SCALE, (double)layer->scale);
    layer->eps = (float)number_or(j, O_EPS, (double)layer->eps);
    layer->eps_mode = choice(j, O_EPS_MODE);
    if (given(j, O_L2NORM)) layer->l2_mode = LA_L2_SUM + choice(j, O_L2_MODE);
    layer->l2_eps = (float)number_or(j, O_L2_EPS, (double)layer->l2_eps);
    layer->favor_kernel = choice(j, O_FAVOR_KERNEL);
    layer->hedgehog_kernel = choice(j, O_HEDGEHOG_KERNEL);
    layer->nu = (int64_t)number_or(j, O_NU, (double)layer->nu);
    layer->feature_eps = (float)number_or(j, O_FEATURE_EPS, (double)layer->feature_eps);
    layer->horizon = number_or(j, O_HORIZON, layer->horizon);
}

/* Whole numbers of any type; null: not given. */
static int64_t *read_lengths(const job *j, int o, int64_t limit)
{
    const npy_array *file = &j->in[o].file;
    int64_t *lengths;
    if (!given(j, o)) return NULL;
    want_shape(j, o, 1, &j->batch);
    lengths = (int64_t *)need(o, file->count, sizeof *lengths);
    for (size_t b = 0; b < file->count; ++b) {
        const double length = npy_double(file, b);
        if (!(length >= 0 && length <= (double)limit && floor(length) == length))
            refuse(o, "%s: %.10g is no whole number in 0 .. %lld", j->set[o].text, length,
                   (long long)limit);
        lengths[b] = (int64_t)length;
    }
    return lengths;
}

/* The numbers of each sequence. */
static void set_lists(job *j)
{
    j->lengths = read_lengths(j, O_LENGTHS, j->tokens);
    j->key_lengths = read_lengths(j, O_KEY_LENGTHS, j->keys);
    if (!given(j, O_POSITION)) return;
    j->positions = (int64_t *)need(O_POSITION, (size_t)j->batch, sizeof *j->positions);
    for (int64_t b = 0; b < j->batch; ++b) j->positions[b] = (int64_t)j->set[O_POSITION].number;
}

/* The library says what the options alone could not; its field leads back to an option. */
static int option_of_field(const job *j, const char *field)
{
    static const struct { const char *field; int o; } others[] = {
        {"heads", O_V}, {"q_heads", O_Q}, {"k_heads", O_K}, {"kv_heads", O_K},
        {"dim_k", O_K}, {"dim_v", O_V}, {"batch", O_Q}, {"tokens", O_Q}, {"keys", O_K},
        {"batch", O_V}, {"tokens", O_V}, {"keys", O_V}, {"features", O_PROJECTION},
        {"positions", O_POSITION}, {"positions", O_HORIZON}, {"thread_count", O_THREADS},
    };
    const size_t length = field ? strcspn(field, ".") : 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; ++i)
        if (field && strcmp(field, others[i].field) == 0 && given(j, others[i].o))
            return others[i].o;
    for (int o = 0; length && o < O_COUNT; ++o) {
        const char *name = options[o].name + 2;
        size_t same = 0;
        while (same < length && (name[same] == field[same]
                                 || (name[same] == '-' && field[same] == '_'))) ++same;
        if (same == length && !name[same]) return o;
    }
    return O_VARIANT;
}

static void ask_library(const job *j)
{
    const char *field = NULL;
    const la_status status = j->family->check(&j->work, &field);
    if (status != LA_OK)
        refuse(option_of_field(j, field), "%s (%s)", la_status_text(status),
               field ? field : "layer");
}

/* la_call_init refuses a layer without saying why; la_check does, beside a call that is fine. */
static void start_call(job *j)
{
    la_call *call = &j->work.call;
    la_layer plain;
    const la_status status = la_call_init(call, &j->work.layer, j->batch, j->tokens);
    if (status == LA_OK) return;
    la_layer_init(&plain, LA_DELTANET, 1, 1, 1);
    la_call_init(call, &plain, 1, 1);
    ask_library(j);
    refuse(O_Q, "%s", la_status_text(status));
}

static void set_call(job *j)
{
    la_call *call = &j->work.call;
    const int64_t H = j->heads > j->q_heads ? j->heads : j->q_heads;
    const int64_t gate_shape[] = {j->batch, j->tokens, H, j->dim_v};
    const unsigned constant = BIT(1) | BIT(2), per_token = BIT(3) | BIT(4);
    const unsigned decays = BIT(1) | BIT(3) | (is(j, CHANNELS) ? BIT(4) : 0);
    start_call(j);
    call->form = choice(j, O_FORM);
    call->isa = choice(j, O_ISA);
    call->chunk = (int64_t)number_or(j, O_CHUNK, 0);
    call->keys = j->keys;
    call->q = whole(j, O_Q);
    call->k = whole(j, O_K);
    call->v = whole(j, O_V);
    call->log_decay = beside(j, O_LOG_DECAY, decays, j->dim_k);
    call->beta = beside(j, O_BETA, j->variant == INFINI ? constant : per_token, j->dim_v);
    call->erase = beside(j, O_ERASE, BIT(4), j->dim_k);
    call->bonus = beside(j, O_BONUS, BIT(2) | BIT(4), j->dim_k);
    call->a = beside(j, O_A, BIT(4), j->dim_k);
    call->b = beside(j, O_B, BIT(4), j->dim_k);
    call->skip = beside(j, O_SKIP, constant, j->dim_v);
    if (given(j, O_OUT_GATE)) want_shape(j, O_OUT_GATE, 4, gate_shape);
    call->out_gate = whole(j, O_OUT_GATE);
    call->lengths = j->lengths;
    call->key_lengths = j->key_lengths;
    call->positions = j->positions;
}

static void set_linear(job *j)
{
    set_layer(j);
    set_call(j);
}

/* What the options say of scale and direction, they say of the softmax, not of the memory. */
static void set_infini(job *j)
{
    la_infini *infini = &j->work.infini;
    const int64_t segment = (int64_t)j->set[O_SEGMENT].number;
    set_layer(j);
    j->work.layer.bidirectional = 0;
    j->work.layer.scale = 1;
    started(j, la_infini_init(infini, j->heads, j->dim_k, j->dim_v, segment), O_V);
    infini->memory = j->work.layer;
    infini->write = choice(j, O_UPDATE);
    infini->bidirectional = given(j, O_BIDIRECTIONAL);
    infini->scale = (float)number_or(j, O_SCALE, (double)infini->scale);
    set_call(j);
}

/* ---- attention, and what is built on it ------------------------------------------------------ */

/* The rest of the layer, and the call. */
static void set_attention_call(job *j, la_attention *layer)
{
    const int64_t logits[] = {j->batch, j->tokens, j->q_heads, j->keys};
    la_attention_call *call = &j->work.attention_call;
    layer->kv_heads = j->k_heads;
    layer->bidirectional = given(j, O_BIDIRECTIONAL) || j->variant == LINFORMER;
    layer->head_map = choice(j, O_HEAD_MAP);
    layer->window = (int64_t)number_or(j, O_WINDOW, 0);
    layer->sinks = (int64_t)number_or(j, O_SINKS, 0);
    layer->scale = (float)number_or(j, O_SCALE, (double)layer->scale);
    layer->bias = (float)number_or(j, O_BIAS, 0);
    if (la_attention_call_init(call, layer, j->batch, j->tokens) != LA_OK) ask_library(j);
    call->isa = choice(j, O_ISA);
    call->keys = j->keys;
    call->q = whole(j, O_Q);
    call->k = whole(j, O_K);
    call->v = whole(j, O_V);
    if (given(j, O_LOGITS)) want_shape(j, O_LOGITS, 4, logits);
    call->logits = whole(j, O_LOGITS);
    call->lengths = j->lengths;
    call->key_lengths = j->key_lengths;
    call->positions = j->positions;
}

static void set_attention(job *j)
{
    la_attention *x = &j->work.attention;
    const int kind = j->variant == SIGMOID ? LA_SIGMOID : LA_SOFTMAX;
    started(j, la_attention_init(x, kind, j->q_heads, j->dim_k, j->dim_v), O_V);
    set_attention_call(j, x);
}

/* A matrix with a row for each key. */
static void want_rows(const job *j, int o, int64_t rows)
{
    if (rows < j->keys)
        refuse(o, "%s: is for %lld keys, but there are %lld", j->set[o].text, (long long)rows,
               (long long)j->keys);
}

static void set_linformer(job *j)
{
    la_linformer *x = &j->work.linformer;
    const int64_t n = side(j, O_E, 1), k = side(j, O_E, 0);
    want_rows(j, O_E, n);
    started(j, la_linformer_init(x, j->q_heads, j->dim_k, j->dim_v, n, k), O_E);
    x->E = weights(j, O_E, j->k_heads, n, k);
    x->F = weights(j, O_F, j->k_heads, n, k);
    set_attention_call(j, &x->attention);
}

/* L, rank1 and rank2 of each kind stand in other sides of the two matrices. */
static void set_synthesizer(job *j)
{
    la_synthesizer *x = &j->work.synthesizer;
    const int kind = j->variant - SYNTHESIZER, dense = is(j, DENSE), plain = kind == LA_DENSE;
    const int own = kind == LA_FACTORISED_DENSE; /* logits for any number of keys */
    const int64_t rows1 = side(j, O_W1, 1), width1 = side(j, O_W1, 0), rows2 = side(j, O_W2, 1);
    const int64_t L = own ? (j->keys ? j->keys : 1) : plain ? rows2 : rows1;
    const int64_t rank1 = dense ? rows1 : kind == LA_RANDOM ? 0 : width1, rank2 = own ? rows2 : 0;
    const int64_t dim_x = dense ? j->dim_k : 0, H = j->heads;
    want_rows(j, plain ? O_W2 : O_W1, L);
    if (j->tokens > j->keys)
        refuse(dense ? O_Q : O_TOKENS, "more tokens than the %lld keys", (long long)j->keys);
    started(j, la_synthesizer_init(x, kind, H, dim_x, j->dim_v, L, rank1, rank2), O_W1);
    x->w1 = weights(j, O_W1, H, rows1, dense ? dim_x : kind == LA_RANDOM ? L : rank1);
    x->w2 = weights(j, O_W2, H, own ? rank2 : L, own ? dim_x : rank1);
    x->b1 = weights(j, O_B1, H, 0, rank1);
    x->b2 = weights(j, O_B2, H, 0, own ? rank2 : L);
    set_attention_call(j, &x->attention);
}

/* ---- scans ----------------------------------------------------------------------------------- */

static void set_scan(job *j)
{
    la_scan *x = &j->work.scan;
    const int64_t T = j->tokens, C = j->dim_v, shape[] = {j->batch, T, C, 0};
    const int kind = j->variant == RWKV4 ? LA_SCAN_RWKV4 : LA_SCAN_HGRN;
    started(j, la_scan_init(x, kind, j->batch, T, C), O_V);
    want_ranks(j, O_LOG_DECAY, BIT(1) | BIT(3), shape);
    if (given(j, O_BONUS)) want_shape(j, O_BONUS, 1, &C);
    x->isa = choice(j, O_ISA);
    x->k = la_bthd(j->in[O_K].data, T, 1, C);
    x->v = la_bthd(j->in[O_V].data, T, 1, C);
    x->log_decay = j->in[O_LOG_DECAY].file.rank == 1
                       ? la_per_channel(j->in[O_LOG_DECAY].data, C)
                       : la_bthd(j->in[O_LOG_DECAY].data, T, 1, C);
    x->bonus = j->in[O_BONUS].data;
    x->lengths = j->lengths;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static int out_shape(const job *j, int o, int64_t shape[4])
{
    const int scan = is(j, SCANS);
    shape[0] = j->batch;
    shape[1] = j->tokens;
    shape[2] = scan ? j->dim_v : j->heads > j->q_heads ? j->heads : j->q_heads;
    shape[3] = j->dim_v;
    return scan || o == O_LSE_OUT ? 3 : 4;
}

static float *new_output(job *j, int o)
{
    int64_t shape[4];
    size_t count = 0;
    const int rank = out_shape(j, o, shape);
    if (!npy_count(rank, shape, &count)) refuse(o, "the output does not fit the address space");
    return (float *)need(o, count, sizeof(float));
}

static void set_out(job *j)
{
    int64_t shape[4];
    const int rank = out_shape(j, O_OUT, shape);
    if (given(j, O_COMPARE)) want_shape(j, O_COMPARE, rank, shape);
    j->out = new_output(j, O_OUT);
    j->work.call.out = la_bthd_out(j->out, shape[1], rank == 3 ? 1 : shape[2], shape[3]);
    j->work.attention_call.out = j->work.scan.out = j->work.call.out;
    if (!given(j, O_LSE_OUT)) return;
    j->lse = new_output(j, O_LSE_OUT);
    j->work.attention_call.lse = la_bthd_out(j->lse, shape[1], shape[2], 1);
}

/* ---- states: three files outside, S then z then m of each head inside ------------------------ */

static int is_state(int o)
{
    return o >= O_STATE_IN && o <= O_MAX_OUT;
}

/* 0: S, 1: z, 2: m. */
static int part_of(int o)
{
    return (o - O_STATE_IN) / 2; /* the options stand in pairs */
}

static int scan_state_shape(const job *j, int64_t shape[4])
{
    const int last = j->variant == RWKV4 ? 2 : 1;
    shape[0] = j->batch;
    shape[1] = j->r;
    shape[last] = j->dim_v;
    return last + 1;
}

static int state_shape(const job *j, int o, int64_t shape[4])
{
    const int part = part_of(o), vk = choice(j, O_STATE_LAYOUT) == LA_VK;
    if (is(j, SCANS)) return scan_state_shape(j, shape);
    shape[0] = j->batch;
    shape[1] = j->heads;
    shape[2] = part == 0 && vk ? j->dim_v : j->r;
    shape[3] = vk ? j->r : j->dim_v;
    return 4 - part;
}

/* Copies the part of every head that is in file o, from or to the array of that file. */
static void copy_part(const job *j, float *packed, int o, float *part, int join)
{
    const size_t r = (size_t)j->r, S = r * (size_t)j->dim_v;
    const size_t offsets[] = {0, S, S + r}, sizes[] = {S, r, 1};
    const size_t offset = offsets[part_of(o)], size = sizes[part_of(o)];
    for (size_t h = 0; h < (size_t)j->batch * (size_t)j->heads; ++h) {
        float *inside = packed + h * j->head_floats + offset, *outside = part + h * size;
        if (join) memcpy(inside, outside, size * sizeof *part);
        else memcpy(outside, inside, size * sizeof *part);
    }
}

static void join_state(job *j)
{
    for (int o = O_STATE_IN; o <= O_MAX_IN; ++o) {
        int64_t shape[4];
        if (options[o].kind != INPUT || !given(j, o)) continue;
        want_shape(j, o, state_shape(j, o, shape), shape);
        copy_part(j, j->state_in, o, j->in[o].data, 1);
    }
}

/* Rows of the state, as many as the library's state has room for. */
static int64_t state_rows(const job *j)
{
    const size_t z = is(j, NORMALISED) ? 1 : 0, m = has_maximum(j) ? 1 : 0;
    const size_t columns = (size_t)j->dim_v + z;
    if (j->head_floats < m || (j->head_floats - m) % columns)
        refuse(O_VARIANT, "the library's state has an unknown layout");
    return (int64_t)((j->head_floats - m) / columns);
}

static void set_state(job *j)
{
    const int wanted = given(j, O_STATE_OUT) || given(j, O_NORM_OUT) || given(j, O_MAX_OUT);
    const size_t numbers = j->variant == RWKV4 ? 3 : 1; /* of a channel of a scan */
    const size_t floats = is(j, SCANS) ? numbers * (size_t)j->dim_v
                                       : la_state_floats(&j->work.layer);
    const size_t batch = (size_t)j->batch;
    if (!is(j, STATES) || floats == 0) return; /* the library has the reason */
    if (batch > SIZE_MAX / 8 / floats) refuse(O_V, "the states do not fit the address space");
    j->head_floats = floats / (size_t)j->heads;
    j->r = state_rows(j);
    if (given(j, O_STATE_IN)) {
        j->state_in = (float *)need(O_STATE_IN, batch * floats, sizeof(float));
        join_state(j);
    }
    if (wanted) j->state_out = (float *)need(O_STATE_OUT, batch * floats, sizeof(float));
    j->work.call.state_in = j->work.scan.state_in = j->state_in;
    j->work.call.state_out = j->work.scan.state_out = j->state_out;
}

/* ---- families, as the library calls them ----------------------------------------------------- */

#define FAMILY(layer, call, prefix)                                                                \
    static size_t layer##_workspace(const work *w)                                                 \
    { return prefix##_workspace_size(&w->layer, &w->call); }                                       \
    static la_status layer##_check(const work *w, const char **field)                              \
    { return prefix##_check(&w->layer, &w->call, field); }                                         \
    static la_status layer##_forward(const work *w)                                                \
    { return prefix##_forward(&w->layer, &w->call); }

FAMILY(layer, call, la)
FAMILY(infini, call, la_infini)
FAMILY(attention, attention_call, la_attention)
FAMILY(linformer, attention_call, la_linformer)
FAMILY(synthesizer, attention_call, la_synthesizer)

static size_t scan_workspace(const work *w)
{
    (void)w;
    return 0;
}

static la_status scan_check(const work *w, const char **field)
{
    return la_scan_check(&w->scan, field);
}

static la_status scan_forward(const work *w)
{
    return la_scan_forward(&w->scan);
}

static const family families[] = {
    {LINEAR, set_linear, layer_workspace, layer_check, layer_forward},
    {BIT(INFINI), set_infini, infini_workspace, infini_check, infini_forward},
    {ATTENTION, set_attention, attention_workspace, attention_check, attention_forward},
    {BIT(LINFORMER), set_linformer, linformer_workspace, linformer_check, linformer_forward},
    {SYNTHESIZERS, set_synthesizer, synthesizer_workspace, synthesizer_check, synthesizer_forward},
    {SCANS, set_scan, scan_workspace, scan_check, scan_forward},
};

static const family *find_family(const job *j)
{
    const family *row = families;
    while (!is(j, row->variants)) ++row;
    return row;
}

/* What slice `index` of the threads is called with. */
static work slice_work(const job *j, size_t index)
{
    work w = j->work;
    w.call.thread_index = w.attention_call.thread_index = w.scan.thread_index = (int64_t)index;
    w.call.thread_count = w.attention_call.thread_count = w.scan.thread_count
        = (int64_t)j->thread_count;
    w.call.workspace = w.attention_call.workspace = j->workspace + index * j->workspace_size;
    w.call.workspace_size = w.attention_call.workspace_size = j->workspace_size;
    return w;
}

static void set_workspace(job *j)
{
    j->thread_count = (size_t)number_or(j, O_THREADS, 1);
    j->workspace_size = j->family->workspace(&j->work);
    j->workspace = (char *)need(O_THREADS, j->thread_count,
                                j->workspace_size ? j->workspace_size : 1);
    j->work = slice_work(j, 0);
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct slice {
    const family *family;
    work work;
    la_status status;
} slice;

static void run_slice(slice *s)
{
    s->status = s->family->forward(&s->work);
}

#ifdef ATTEND_PTHREADS
static void *run_thread(void *s)
{
    run_slice((slice *)s);
    return NULL;
}

static void run_slices(slice *slices, int count)
{
    pthread_t *threads = (pthread_t *)need(O_THREADS, (size_t)count, sizeof *threads);
    int started = 1;
    while (started < count
           && pthread_create(&threads[started], NULL, run_thread, &slices[started]) == 0) ++started;
    run_slice(&slices[0]);
    for (int i = started; i < count; ++i) run_slice(&slices[i]); /* no more threads to be had */
    for (int i = 1; i < started; ++i) pthread_join(threads[i], NULL);
    free(threads);
}
#else
static void run_slices(slice *slices, int count)
{
#ifdef _OPENMP
#pragma omp parallel for num_threads(count) schedule(static, 1)
#endif
    for (int i = 0; i < count; ++i) run_slice(&slices[i]);
}
#endif

static double nanoseconds(void)
{
#ifdef CLOCK_MONOTONIC
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
#else
    return 1e9 / CLOCKS_PER_SEC * (double)clock();
#endif
}

static slice *make_slices(const job *j)
{
    slice *slices = (slice *)need(O_THREADS, j->thread_count, sizeof *slices);
    for (size_t i = 0; i < j->thread_count; ++i) {
        slices[i].family = j->family;
        slices[i].work = slice_work(j, i);
    }
    return slices;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const job *j)
{
    const double rows = (double)j->batch * (double)j->tokens * (double)j->heads;
    const size_t runs = j->runs;
    if (!given(j, O_REPEAT)) return;
    qsort(j->times, runs, sizeof *j->times, ascending);
    printf("ns_per_token_head %.3f %.3f\n", j->times[0] / rows,
           (j->times[(runs - 1) / 2] + j->times[runs / 2]) / 2 / rows);
}

/* state_in and state_out are different buffers, so every run starts from the same state. */
static void run(job *j)
{
    slice *slices = make_slices(j);
    j->runs = (size_t)number_or(j, O_REPEAT, 1);
    j->times = (double *)need(O_REPEAT, j->runs, sizeof *j->times);
    for (size_t i = 0; i < j->runs; ++i) {
        const double start = nanoseconds();
        run_slices(slices, (int)j->thread_count);
        j->times[i] = nanoseconds() - start;
    }
    for (size_t i = 0; i < j->thread_count; ++i)
        if (slices[i].status != LA_OK) refuse(O_VARIANT, "%s", la_status_text(slices[i].status));
    free(slices);
}

/* ---- writing: first all files under temporary names, then all renamed ------------------------ */

typedef struct output {
    int o, rank;
    int64_t shape[4];
    float *data; /* owned where it is a part of the state */
    char *path;  /* the temporary file; owned */
} output;

enum { OUTPUTS = 5 };

static float *split_part(const job *j, int o, int rank, const int64_t *shape)
{
    size_t count = 0;
    float *part;
    npy_count(rank, shape, &count);
    part = (float *)need(o, count, sizeof *part);
    copy_part(j, j->state_out, o, part, 0);
    return part;
}

/* 1: a device or a pipe, which must be written to and not replaced. */
static int is_special(int o, const char *path)
{
#if !defined(_WIN32)
    struct stat about;
    if (stat(path, &about) != 0) return 0;
    if (S_ISDIR(about.st_mode)) refuse(o, "%s: is a directory", path);
    return !S_ISREG(about.st_mode);
#else
    (void)o;
    (void)path;
    return 0;
#endif
}

/* A name beside the file that is not taken, so that the rename stays within one file system. */
static char *temporary_name(int o, const char *path)
{
    const size_t size = strlen(path) + 16;
    char *name = (char *)need(o, size, 1);
    for (int i = 0; i < 1000; ++i) {
        FILE *taken;
        snprintf(name, size, "%s.tmp%d", path, i);
        taken = fopen(name, "rb");
        if (!taken) break;
        fclose(taken);
    }
    return name;
}

static int collect_outputs(const job *j, output *outputs)
{
    int count = 0;
    for (int o = 0; o < O_COUNT; ++o) {
        output *file = &outputs[count];
        if (options[o].kind != OUTPUT || !given(j, o)) continue;
        file->o = o;
        file->rank = is_state(o) ? state_shape(j, o, file->shape) : out_shape(j, o, file->shape);
        file->data = o == O_OUT ? j->out : j->lse;
        if (is_state(o)) file->data = split_part(j, o, file->rank, file->shape);
        file->path = is_special(o, j->set[o].text) ? NULL : temporary_name(o, j->set[o].text);
        ++count;
    }
    return count;
}

static void abandon(const job *j, output *outputs, int count, int at, const char *error)
{
    for (int i = 0; i < count; ++i)
        if (outputs[i].path) remove(outputs[i].path);
    refuse(outputs[at].o, "%s: %s", j->set[outputs[at].o].text, error);
}

static const char *commit(const output *file, const char *path)
{
    if (!file->path) return npy_write(path, file->rank, file->shape, file->data);
#if defined(_WIN32)
    remove(path); /* there a rename does not replace */
#endif
    return rename(file->path, path) == 0 ? NULL : "the file cannot be created";
}

static void write_outputs(const job *j)
{
    output outputs[OUTPUTS];
    const int count = collect_outputs(j, outputs);
    const char *error;
    for (int i = 0; i < count; ++i) {
        const output *file = &outputs[i];
        error = file->path ? npy_write(file->path, file->rank, file->shape, file->data) : NULL;
        if (error) abandon(j, outputs, i + 1, i, error);
    }
    for (int i = 0; i < 2 * count; ++i) { /* first those that may fail, devices and pipes */
        const output *file = &outputs[i % count];
        if ((file->path != NULL) != (i >= count)) continue;
        error = commit(file, j->set[file->o].text);
        if (error) abandon(j, outputs, count, i % count, error);
    }
    for (int i = 0; i < count; ++i) {
        if (is_state(outputs[i].o)) free(outputs[i].data);
        free(outputs[i].path);
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* 0 within the tolerance, else 1; a NaN on either side is never within. */
static int compare(const job *j)
{
    const npy_array *reference = &j->in[O_COMPARE].file;
    const double tolerance = number_or(j, O_TOLERANCE, 1e-5);
    double difference = 0, size = 0, error;
    if (!given(j, O_COMPARE)) return 0;
    for (size_t i = 0; i < reference->count; ++i) {
        const double want = npy_double(reference, i), off = (double)j->out[i] - want;
        difference += off * off;
        size += want * want;
    }
    error = difference == 0 ? 0 : sqrt(difference / size);
    printf("relative_error %.3e\n", error);
    if (error <= tolerance) return 0;
    fprintf(stderr, "attend: --compare: relative error %.3e exceeds %.3e\n", error, tolerance);
    return 1;
}

static void free_job(job *j)
{
    for (int o = 0; o < O_COUNT; ++o) {
        npy_free(&j->in[o].file);
        free(j->in[o].data);
    }
    free(j->state_in);
    free(j->state_out);
    free(j->out);
    free(j->lse);
    free(j->times);
    free(j->lengths);
    free(j->key_lengths);
    free(j->positions);
    free(j->workspace);
}

static void check_options(job *j)
{
    check_variant(j);
    check_usage(j);
    check_state_options(j);
    check_outputs(j);
    for (int o = 0; o < O_COUNT; ++o)
        if (options[o].kind == OUTPUT && given(j, o)) is_special(o, j->set[o].text);
}

static void prepare(job *j)
{
    for (int o = 0; o < O_COUNT; ++o)
        if (options[o].kind == INPUT && given(j, o)) load(j, o);
    j->family = find_family(j);
    set_sizes(j);
    set_lists(j);
    j->family->set(j);
    set_out(j);
    set_state(j);
    set_workspace(j);
    ask_library(j);
    if (given(j, O_REPEAT) && j->batch * j->tokens == 0) refuse(O_REPEAT, "no tokens to time");
}

int main(int count, char **arguments)
{
    static job j; /* static: a sanitizer that looks for leaks finds it after refuse() */
    int status;
    if (count == 2 && strcmp(arguments[1], "--help") == 0) {
        help();
        return 0;
    }
    parse(&j, count, arguments);
    check_options(&j);
    prepare(&j);
    run(&j);
    write_outputs(&j);
    print_times(&j);
    status = compare(&j);
    free_job(&j);
    return status;
}
