/* attend: any variant, in any form, on arrays from .npy files.
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

#define BIT(variant) (1u << (variant))
#define ALL (~0u)
#define SIGMOID BIT(31) /* the two of LA_EXTRAS, behind all that the library has by name */
#define ATTENTION (BIT(30) | SIGMOID)
#define LINEAR (~ATTENTION)
#define FAVOR BIT(LA_FAVOR)
#define COSFORMER BIT(LA_COSFORMER)
#define HEDGEHOG BIT(LA_HEDGEHOG)
#define PROJECTED (FAVOR | HEDGEHOG | BIT(LA_RFF))
#define NORMALISED (BIT(LA_ELU) | COSFORMER | BIT(LA_BASED) | BIT(LA_MAPPED) | PROJECTED)
#define ERASING (BIT(LA_DELTANET) | BIT(LA_GATED_DELTANET) | BIT(LA_KDA) | BIT(LA_GDN2))
#define LARGEST ((double)FLT_MAX)
#define EXACT 9007199254740992.0 /* 2^53: integers up to here survive as a double */

enum {
    O_VARIANT, O_Q, O_K, O_V, O_LOG_DECAY, O_BETA, O_OUT, O_STATE_IN, O_STATE_OUT, O_NORM_IN,
    O_NORM_OUT, O_MAX_IN, O_MAX_OUT, O_LENGTHS, O_FORM, O_CHUNK, O_ISA, O_BIDIRECTIONAL, O_SCALE,
    O_EPS, O_EPS_MODE, O_L2NORM, O_L2_EPS, O_L2_MODE, O_HORIZON, O_POSITION, O_PROJECTION,
    O_Q_PROJECTION, O_FAVOR_KERNEL, O_HEDGEHOG_KERNEL, O_FEATURE_EPS, O_NU, O_HEAD_MAP,
    O_STATE_LAYOUT, O_THREADS, O_REPEAT, O_COMPARE, O_TOLERANCE, O_WINDOW, O_SINKS, O_BIAS,
    O_LOGITS, O_ERASE, O_BONUS, O_A, O_B, O_COUNT
};

typedef enum kind { FLAG, CHOICE, INTEGER, REAL, NAME, INPUT, OUTPUT } kind;

typedef struct option {
    const char *name;
    kind kind;
    unsigned variants, required; /* the variants that use it; those that cannot do without */
    int needs;                   /* another option without which it says nothing           */
    double low, high;
    const char *value, *meaning; /* of a CHOICE, value lists the words in the enum's order */
} option;

static const option options[O_COUNT] = {
    {"--variant", NAME, ALL, ALL, 0, 0, 0, "NAME", "one of those below"},
    {"--q", INPUT, ALL, ALL, 0, 0, 0, "F", "queries [B,T,Hq,dk]"},
    {"--k", INPUT, ALL, ALL, 0, 0, 0, "F", "keys [B,S,Hk,dk]; S = T unless bidirectional"},
    {"--v", INPUT, ALL, ALL, 0, 0, 0, "F", "values [B,S,H,dv]"},
    {"--log-decay", INPUT, LINEAR, 0, 0, 0, 0, "F", "ln of the decay: [H], [B,T,H] or [B,T,H,dk]"},
    {"--beta", INPUT, LINEAR, 0, 0, 0, 0, "F", "writing strength [B,T,H] or [B,T,H,dv]; 1"},
    {"--out", OUTPUT, ALL, ALL, 0, 0, 0, "F", "the output [B,T,max(H,Hq),dv]"},
    {"--state-in", INPUT, LINEAR, 0, 0, 0, 0, "F", "[B,H,r,dv] (kv) or [B,H,dv,r] (vk); empty"},
    {"--state-out", OUTPUT, LINEAR, 0, 0, 0, 0, "F", "the final state, the same shape"},
    {"--norm-in", INPUT, NORMALISED, 0, O_STATE_IN, 0, 0, "F", "its normaliser [B,H,r]"},
    {"--norm-out", OUTPUT, NORMALISED, 0, 0, 0, 0, "F", "the final normaliser"},
    {"--max-in", INPUT, FAVOR, 0, O_STATE_IN, 0, 0, "F", "its running maximum [B,H]"},
    {"--max-out", OUTPUT, FAVOR, 0, 0, 0, 0, "F", "the final running maximum"},
    {"--lengths", INPUT, ALL, 0, 0, 0, 0, "F", "tokens (bidirectional: keys) of each [B]; all"},
    {"--form", CHOICE, LINEAR, 0, 0, 0, 0, "auto|parallel|recurrent|chunkwise", "auto"},
    {"--chunk", INTEGER, LINEAR, 0, 0, 0, 1024, "N",
     "of the chunkwise form; 0: the library's choice"},
    {"--isa", CHOICE, ALL, 0, 0, 0, 0, "auto|scalar|avx2|avx512|neon", "auto"},
    {"--bidirectional", FLAG, NORMALISED | ATTENTION, 0, 0, 0, 0, "", "all keys for all queries"},
    {"--scale", REAL, ALL, 0, 0, -LARGEST, LARGEST, "X", "on q . k; 1, of attention dk^-1/2"},
    {"--eps", REAL, NORMALISED, 0, 0, 0, LARGEST, "X", "of the denominator; 0"},
    {"--eps-mode", CHOICE, NORMALISED, 0, 0, 0, 0, "add|max", "added, or a lower bound; add"},
    {"--l2norm", FLAG, LINEAR, 0, 0, 0, 0, "", "L2 normalisation of q and k, before features"},
    {"--l2-eps", REAL, LINEAR, 0, O_L2NORM, 0, LARGEST, "X", "of that normalisation; 1e-6"},
    {"--l2-mode", CHOICE, LINEAR, 0, O_L2NORM, 0, 0, "sum|max",
     "x/sqrt(|x|^2+eps) or x/max(|x|,eps); sum"},
    {"--horizon", REAL, COSFORMER, COSFORMER, 0, 0, EXACT, "M", "of the cosine"},
    {"--position", INTEGER, COSFORMER, 0, 0, 0, EXACT, "P", "the first token's index; 0"},
    {"--projection", INPUT, PROJECTED, PROJECTED, 0, 0, 0, "F", "[m,dk] or [H,m,dk]"},
    {"--q-projection", INPUT, PROJECTED, 0, O_PROJECTION, 0, 0, "F", "that of queries; the same"},
    {"--favor-kernel", CHOICE, FAVOR, 0, 0, 0, 0, "positive|hyperbolic|relu", "positive"},
    {"--hedgehog-kernel", CHOICE, HEDGEHOG, 0, 0, 0, 0, "split|joint|exp", "split"},
    {"--feature-eps", REAL, FAVOR | HEDGEHOG, 0, 0, 0, LARGEST, "X",
     "favor: added to each feature; hedgehog: their least; 0"},
    {"--nu", INTEGER, BIT(LA_DPFP), 0, 0, 1, 1 << 20, "N", "rolls of the features; 1"},
    {"--head-map", CHOICE, ALL, 0, 0, 0, 0, "grouped|tiled", "grouped"},
    {"--state-layout", CHOICE, LINEAR, 0, 0, 0, 0, "kv|vk", "kv"},
    {"--threads", INTEGER, ALL, 0, 0, 1, 1024, "N", "slices of the work, a thread for each; 1"},
    {"--repeat", INTEGER, ALL, 0, 0, 1, 1000000, "N", "runs; prints ns_per_token_head MIN MEDIAN"},
    {"--compare", INPUT, ALL, 0, 0, 0, 0, "F", "|out-F|/|F|; exit 1 beyond the tolerance"},
    {"--tolerance", REAL, ALL, 0, O_COMPARE, 0, LARGEST, "X", "1e-5"},
    {"--window", INTEGER, ATTENTION, 0, 0, 0, EXACT, "N", "keys that a query sees; 0: all"},
    {"--sinks", INTEGER, ATTENTION, 0, O_WINDOW, 0, EXACT, "N", "first keys seen besides; 0"},
    {"--bias", REAL, SIGMOID, 0, 0, -LARGEST, LARGEST, "X", "added to each logit; 0"},
    {"--logits", INPUT, ATTENTION, 0, 0, 0, 0, "F", "added to scale q . k [B,T,Hq,S]; none"},
    {"--erase", INPUT, ERASING, 0, 0, 0, 0, "F", "gate of what is predicted [B,T,H,dk]; beta's"},
    {"--bonus", INPUT, BIT(LA_RWKV6), 0, 0, 0, 0, "F", "of a token itself [H,dk] or [B,T,H,dk]; 1"},
    {"--a", INPUT, BIT(LA_RWKV7), BIT(LA_RWKV7), 0, 0, 0, "F", "reads the state undecayed"},
    {"--b", INPUT, BIT(LA_RWKV7), BIT(LA_RWKV7), 0, 0, 0, "F", "and writes it; [B,T,H,dk] both"},
};

typedef struct setting {
    const char *text; /* null: not given */
    double number;    /* of a CHOICE: the index of the word */
} setting;

typedef struct tensor {
    npy_array file; /* its shape; the bytes are freed once they are converted */
    float *data;
} tensor;

typedef struct job {
    setting set[O_COUNT];
    tensor in[O_COUNT]; /* of the options that are inputs */
    int variant;      /* an la_variant, or 30 + a kind of attention */
    la_layer layer;   /* of attention the sizes of the output alone */
    la_attention attention;
    la_attention_call attention_call;
    la_call call;
    int64_t r; /* rows of the state: channels of a feature */
    size_t state_floats, head_floats;
    float *projection, *state_in, *state_out, *out;
    int64_t *lengths, *positions;
    char *workspace;
} job;

/* The one way out when something is wrong. */
#ifdef __GNUC__
__attribute__((noreturn, format(printf, 2, 3)))
#endif
static void refuse(int o, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "attend: %s: ", options[o].name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
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

static int is_attention(const job *j)
{
    return (ATTENTION & BIT(j->variant)) != 0;
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

static void help(void)
{
    puts("attend: linear attention on .npy files (float32, or float64 converted)\n");
    for (int o = 0; o < O_COUNT; ++o) {
        const option *row = &options[o];
        printf("  %-17s %-34s %s%s\n", row->name, row->value, row->meaning,
               row->required == ALL ? " (required)" : "");
    }
    puts("\nAfter a semicolon stands what holds when the option is absent.");
    printf("Variants:");
    for (int v = LA_ELU; la_variant_name((la_variant)v); ++v)
        printf(" %s", la_variant_name((la_variant)v));
    puts("\nAttention: softmax sigmoid");
    puts("B sequences, T tokens, S keys; Hq, Hk, H heads of q, k, v; r rows of a state.");
}

/* ---- parsing --------------------------------------------------------------------------------- */

static int find_option(const char *name)
{
    for (int o = 0; o < O_COUNT; ++o)
        if (strcmp(name, options[o].name) == 0) return o;
    fprintf(stderr, "attend: %s: unknown option; attend --help lists them\n", name);
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
        refuse(o, "%s is outside %.10g .. %.10g", text, row->low, row->high);
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
        if (options[o].kind == CHOICE) set->number = parse_choice(o, set->text);
        if (options[o].kind == INTEGER || options[o].kind == REAL)
            set->number = parse_number(o, set->text);
    }
}

/* ---- do the options fit the variant and each other? ------------------------------------------ */

static void check_variant(job *j)
{
    const char *name = j->set[O_VARIANT].text;
    la_variant found;
    la_status status;
    if (!name) refuse(O_VARIANT, "required; attend --help lists the options");
    if (strcmp(name, "softmax") == 0) j->variant = 30 + LA_SOFTMAX;
    if (strcmp(name, "sigmoid") == 0) j->variant = 30 + LA_SIGMOID;
    if (is_attention(j)) return;
    if (la_variant_find(name, &found) != LA_OK) refuse(O_VARIANT, "'%s' is unknown", name);
    j->variant = (int)found;
    status = la_layer_init(&j->layer, found, 1, 1, 1);
    if (status != LA_OK) refuse(O_VARIANT, "%s: %s", name, la_status_text(status));
}

static void check_usage(const job *j)
{
    const unsigned bit = BIT(j->variant);
    const char *name = j->set[O_VARIANT].text;
    for (int o = 0; o < O_COUNT; ++o) {
        const option *row = &options[o];
        if (given(j, o) && !(row->variants & bit)) refuse(o, "not used by %s", name);
        if (!given(j, o) && (row->required & bit)) refuse(o, "required by %s", name);
        if (given(j, o) && !given(j, row->needs))
            refuse(o, "says nothing without %s", options[row->needs].name);
    }
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
    if ((NORMALISED & BIT(j->variant)) && !given(j, O_NORM_IN))
        refuse(O_NORM_IN, "required with --state-in");
    if (has_maximum(j) && !given(j, O_MAX_IN)) refuse(O_MAX_IN, "required with --state-in");
}

/* Two files of one name would leave only the last; one over the reference would destroy it. */
static void check_outputs(const job *j)
{
    for (int o = 0; o < O_COUNT; ++o) {
        if (options[o].kind != OUTPUT || !given(j, o)) continue;
        if (!*j->set[o].text) refuse(o, "an empty file name");
        for (int other = 0; other < O_COUNT; ++other) {
            const int clash = other == O_COMPARE || (other < o && options[other].kind == OUTPUT);
            if (clash && given(j, other) && strcmp(j->set[o].text, j->set[other].text) == 0)
                refuse(o, "the same file as %s", options[other].name);
        }
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static void load(job *j, int o)
{
    tensor *t = &j->in[o];
    const char *path = j->set[o].text, *error = npy_read(path, &t->file);
    if (error) refuse(o, "%s: %s", path, error);
    if (o != O_LENGTHS && !npy_is_float(t->file.type))
        refuse(o, "%s: has type %s, needs <f4 or <f8", path, npy_type_name(t->file.type));
    if (o == O_LENGTHS || o == O_COMPARE) return; /* read from the file's own bytes */
    t->data = npy_floats(&t->file);
    if (!t->data) refuse(o, "%s: not enough memory", path);
    free(t->file.data);
    t->file.data = NULL;
}

static void print_shape(char *text, size_t size, int rank, const int64_t *shape)
{
    size_t length = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < rank; ++i)
        length += (size_t)snprintf(text + length, size - length, i ? ",%lld" : "%lld",
                                   (long long)shape[i]);
    snprintf(text + length, size - length, "]");
}

/* The array of option o must have this shape. */
static void want_shape(const job *j, int o, int rank, const int64_t *shape)
{
    const npy_array *file = &j->in[o].file;
    char have[200], want[200];
    if (npy_has_shape(file, rank, shape)) return;
    print_shape(have, sizeof have, file->rank, file->shape);
    print_shape(want, sizeof want, rank, shape);
    refuse(o, "%s: has shape %s, needs %s", j->set[o].text, have, want);
}

static void want_rank(const job *j, int o, int rank)
{
    const int have = j->in[o].file.rank;
    if (have != rank)
        refuse(o, "%s: has %d dimensions, needs %d", j->set[o].text, have, rank);
}

/* The arrays fix all sizes: B, T, Hq and dk stand in q; S and Hk in k; H and dv in v. */
static void set_sizes(job *j)
{
    const int64_t *q = j->in[O_Q].file.shape, *k = j->in[O_K].file.shape;
    const int64_t *v = j->in[O_V].file.shape;
    la_status status;
    for (int o = O_Q; o <= O_V; ++o) want_rank(j, o, 4);
    {
        const int any = given(j, O_BIDIRECTIONAL) || is_attention(j); /* number of keys */
        const int64_t key_shape[] = {q[0], any ? k[1] : q[1], k[2], q[3]};
        const int64_t value_shape[] = {q[0], k[1], is_attention(j) ? k[2] : v[2], v[3]};
        want_shape(j, O_K, 4, key_shape);
        want_shape(j, O_V, 4, value_shape);
    }
    if (is_attention(j))
        status = la_layer_init(&j->layer, LA_FWP, q[2], k[3], v[3]);
    else
        status = la_layer_init(&j->layer, (la_variant)j->variant, v[2], k[3], v[3]);
    if (status != LA_OK)
        refuse(O_V, "%s: %s", j->set[O_V].text, la_status_text(status));
    j->layer.q_heads = q[2];
    j->layer.k_heads = k[2];
}

static void set_projection(job *j)
{
    const int64_t *shape = j->in[O_PROJECTION].file.shape;
    const int rank = j->in[O_PROJECTION].file.rank;
    la_layer *layer = &j->layer;
    if (!given(j, O_PROJECTION)) return;
    if (rank == 2) {
        const int64_t want[] = {shape[0], layer->dim_k};
        want_shape(j, O_PROJECTION, 2, want);
        layer->features = shape[0];
    } else {
        const int64_t want[] = {layer->heads, shape[1], layer->dim_k};
        want_rank(j, O_PROJECTION, 3);
        want_shape(j, O_PROJECTION, 3, want);
        layer->features = shape[1];
        layer->projection_head_stride = shape[1] * layer->dim_k;
    }
    layer->projection = j->in[O_PROJECTION].data;
    if (!given(j, O_Q_PROJECTION)) return;
    want_shape(j, O_Q_PROJECTION, rank, shape);
    layer->q_projection = j->in[O_Q_PROJECTION].data;
}

static void set_layer(job *j)
{
    la_layer *layer = &j->layer;
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

/* log_decay and beta belong to the writes: one per key token and state head. */
static la_in gate(const job *j, int o, int64_t channels)
{
    const tensor *t = &j->in[o];
    const int64_t *v = j->in[O_V].file.shape;
    const int64_t shape[] = {v[0], v[1], v[2], channels};
    if (!given(j, o)) return la_bthd(NULL, v[1], v[2], 1);
    if (o == O_LOG_DECAY && t->file.rank == 1) {
        want_shape(j, o, 1, shape + 2);
        return la_per_head(t->data);
    }
    want_shape(j, o, t->file.rank == 4 ? 4 : 3, shape);
    return la_bthd(t->data, v[1], v[2], t->file.rank == 4 ? channels : 1);
}

/* What stands beside the keys of some rules: a number per key channel. */
static la_in partner(const job *j, int o)
{
    const tensor *t = &j->in[o];
    const int64_t *v = j->in[O_V].file.shape, dk = j->layer.dim_k;
    const int64_t shape[] = {v[0], v[1], v[2], dk};
    if (given(j, o) && o == O_BONUS && t->file.rank == 2) {
        want_shape(j, o, 2, shape + 2);
        return la_per_channel(t->data, dk);
    }
    if (given(j, o)) want_shape(j, o, 4, shape);
    return la_bthd(given(j, o) ? t->data : NULL, v[1], v[2], dk);
}

/* Whole numbers of any type. Bidirectional: of keys, every query is answered. */
static int64_t *read_lengths(const job *j)
{
    const npy_array *file = &j->in[O_LENGTHS].file;
    const int64_t batch = j->call.batch;
    const int64_t limit = j->layer.bidirectional ? j->call.keys : j->call.tokens;
    int64_t *lengths;
    if (!given(j, O_LENGTHS)) return NULL;
    want_shape(j, O_LENGTHS, 1, &batch);
    lengths = (int64_t *)need(O_LENGTHS, file->count, sizeof *lengths);
    for (size_t b = 0; b < file->count; ++b) {
        const double length = npy_double(file, b);
        if (!(length >= 0 && length <= (double)limit && floor(length) == length))
            refuse(O_LENGTHS, "%s: %.10g is no whole number in 0 .. %lld",
                   j->set[O_LENGTHS].text, length, (long long)limit);
        lengths[b] = (int64_t)length;
    }
    return lengths;
}

static void set_positions(job *j)
{
    const int64_t batch = j->call.batch;
    if (!given(j, O_POSITION)) return;
    j->positions = (int64_t *)need(O_POSITION, (size_t)batch, sizeof *j->positions);
    for (int64_t b = 0; b < batch; ++b) j->positions[b] = (int64_t)j->set[O_POSITION].number;
    j->call.positions = j->positions;
}

static void out_shape(const job *j, int64_t shape[4])
{
    const la_layer *layer = &j->layer;
    shape[0] = j->call.batch;
    shape[1] = j->call.tokens;
    shape[2] = layer->heads > layer->q_heads ? layer->heads : layer->q_heads;
    shape[3] = layer->dim_v;
}

/* The library says what the options alone could not; its field leads back to an option. */
static int option_of_field(const char *field)
{
    static const struct { const char *field; int o; } others[] = {
        {"heads", O_V}, {"q_heads", O_Q}, {"k_heads", O_K}, {"kv_heads", O_K},
        {"dim_k", O_K}, {"dim_v", O_V}, {"batch", O_Q}, {"tokens", O_Q}, {"keys", O_K},
        {"features", O_PROJECTION},
        {"key_lengths", O_LENGTHS}, {"positions", O_POSITION}, {"thread_count", O_THREADS},
    };
    const size_t length = field ? strcspn(field, ".") : 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; ++i)
        if (field && strcmp(field, others[i].field) == 0) return others[i].o;
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
    const la_status status = la_check(&j->layer, &j->call, &field);
    if (status != LA_OK)
        refuse(option_of_field(field), "%s (%s)", la_status_text(status), field ? field : "layer");
}

/* la_call_init refuses a layer without saying why; la_check does, beside a call that is fine. */
static void start_call(job *j, int64_t batch, int64_t tokens)
{
    la_layer plain;
    const la_status status = la_call_init(&j->call, &j->layer, batch, tokens);
    if (status == LA_OK) return;
    la_layer_init(&plain, LA_DELTANET, 1, 1, 1);
    la_call_init(&j->call, &plain, 1, 1);
    ask_library(j);
    refuse(O_Q, "%s", la_status_text(status));
}

static void set_call(job *j)
{
    const int64_t *q = j->in[O_Q].file.shape, *k = j->in[O_K].file.shape;
    la_call *call = &j->call;
    start_call(j, q[0], q[1]);
    call->form = choice(j, O_FORM);
    call->isa = choice(j, O_ISA);
    call->chunk = (int64_t)number_or(j, O_CHUNK, 0);
    call->thread_count = (int64_t)number_or(j, O_THREADS, 1);
    call->keys = k[1];
    call->q = la_bthd(j->in[O_Q].data, q[1], q[2], q[3]);
    call->k = la_bthd(j->in[O_K].data, k[1], k[2], k[3]);
    call->v = la_bthd(j->in[O_V].data, k[1], j->layer.heads, j->layer.dim_v);
    call->log_decay = gate(j, O_LOG_DECAY, j->layer.dim_k);
    call->beta = gate(j, O_BETA, j->layer.dim_v);
    call->erase = partner(j, O_ERASE);
    call->bonus = partner(j, O_BONUS);
    call->a = partner(j, O_A);
    call->b = partner(j, O_B);
    j->lengths = read_lengths(j);
    if (j->layer.bidirectional) call->key_lengths = j->lengths;
    else call->lengths = j->lengths;
    set_positions(j);
}

static void set_out(job *j)
{
    int64_t shape[4];
    size_t count = 0;
    out_shape(j, shape);
    if (!npy_count(4, shape, &count)) refuse(O_OUT, "the output does not fit the address space");
    if (given(j, O_COMPARE)) want_shape(j, O_COMPARE, 4, shape);
    j->out = (float *)need(O_OUT, count, sizeof *j->out);
    j->call.out = la_bthd_out(j->out, shape[1], shape[2], shape[3]);
}

/* ---- states: three files outside, S then z then m of each head inside ------------------------ */

static void state_shape(const job *j, int o, int *rank, int64_t shape[4])
{
    const int vk = j->layer.state_layout == LA_VK;
    const int whole = o == O_STATE_IN || o == O_STATE_OUT;
    shape[0] = j->call.batch;
    shape[1] = j->layer.heads;
    shape[2] = whole && vk ? j->layer.dim_v : j->r;
    shape[3] = vk ? j->r : j->layer.dim_v;
    *rank = whole ? 4 : o == O_NORM_IN || o == O_NORM_OUT ? 3 : 2;
}

/* Copies one part of every head, `size` floats at `offset` within it, from or to a file's array. */
static void copy_part(const job *j, float *packed, size_t offset, size_t size, float *part,
                      int join)
{
    const size_t heads = (size_t)j->call.batch * (size_t)j->layer.heads;
    for (size_t h = 0; h < heads; ++h) {
        float *inside = packed + h * j->head_floats + offset, *outside = part + h * size;
        if (join) memcpy(inside, outside, size * sizeof *part);
        else memcpy(outside, inside, size * sizeof *part);
    }
}

static void join_state(job *j)
{
    const size_t r = (size_t)j->r, matrix = r * (size_t)j->layer.dim_v;
    for (int o = O_STATE_IN; o <= O_MAX_IN; ++o) {
        int64_t shape[4];
        int rank;
        if (options[o].kind != INPUT || !given(j, o)) continue;
        state_shape(j, o, &rank, shape);
        want_shape(j, o, rank, shape);
    }
    copy_part(j, j->state_in, 0, matrix, j->in[O_STATE_IN].data, 1);
    if (given(j, O_NORM_IN)) copy_part(j, j->state_in, matrix, r, j->in[O_NORM_IN].data, 1);
    if (given(j, O_MAX_IN)) copy_part(j, j->state_in, matrix + r, 1, j->in[O_MAX_IN].data, 1);
}

static int64_t feature_rows(const job *j)
{
    const la_layer *layer = &j->layer;
    const int64_t n = layer->dim_k, m = layer->features;
    switch (j->variant) {
    case LA_COSFORMER: return 2 * n;
    case LA_FAVOR: return layer->favor_kernel == LA_FAVOR_HYPERBOLIC ? 2 * m : m;
    case LA_DPFP: return 2 * n * layer->nu;
    case LA_BASED: return 1 + n + n * (n + 1) / 2;
    case LA_HEDGEHOG:
    case LA_RFF: return 2 * m;
    default: return n;
    }
}

/* The parts that the files hold must be there in the library's state. */
static void check_state_size(const job *j)
{
    size_t parts = (size_t)j->r * (size_t)j->layer.dim_v;
    if (NORMALISED & BIT(j->variant)) parts += (size_t)j->r;
    if (has_maximum(j)) parts += 1;
    if (j->head_floats < parts) refuse(O_VARIANT, "the library's state has an unknown layout");
}

static void set_state(job *j)
{
    const size_t heads = (size_t)j->layer.heads;
    size_t count;
    int wanted = given(j, O_STATE_OUT) || given(j, O_NORM_OUT) || given(j, O_MAX_OUT);
    j->r = feature_rows(j);
    j->state_floats = la_state_floats(&j->layer);
    if (j->state_floats == 0 || heads == 0) return; /* la_check has the reason */
    j->head_floats = j->state_floats / heads;
    check_state_size(j);
    count = (size_t)j->call.batch;
    if (count > SIZE_MAX / 8 / j->state_floats)
        refuse(O_V, "the states do not fit the address space");
    count *= j->state_floats;
    if (given(j, O_STATE_IN)) {
        j->call.state_in = j->state_in = (float *)need(O_STATE_IN, count, sizeof(float));
        join_state(j);
    }
    if (!wanted) return;
    j->call.state_out = j->state_out = (float *)need(O_STATE_OUT, count, sizeof(float));
}

static void set_workspace(job *j)
{
    const size_t size = la_workspace_size(&j->layer, &j->call);
    const size_t threads = (size_t)j->call.thread_count;
    j->call.workspace_size = size;
    j->call.workspace = j->workspace = (char *)need(O_THREADS, threads, size ? size : 1);
}

/* ---- attention, a layer of its own ----------------------------------------------------------- */

static void ask_about_attention(const job *j)
{
    const char *field = NULL;
    const la_status status = la_attention_check(&j->attention, &j->attention_call, &field);
    if (status == LA_OK) return;
    refuse(option_of_field(field), "%s (%s)", la_status_text(status), field ? field : "layer");
}

static void set_attention(job *j)
{
    const int64_t *q = j->in[O_Q].file.shape, *k = j->in[O_K].file.shape;
    la_attention *layer = &j->attention;
    const la_status status = la_attention_init(layer, j->variant - 30, q[2], k[3], j->layer.dim_v);
    if (status != LA_OK) refuse(O_Q, "%s: %s", j->set[O_Q].text, la_status_text(status));
    layer->kv_heads = k[2];
    layer->bidirectional = given(j, O_BIDIRECTIONAL);
    layer->head_map = choice(j, O_HEAD_MAP);
    layer->window = (int64_t)number_or(j, O_WINDOW, 0);
    layer->sinks = (int64_t)number_or(j, O_SINKS, 0);
    layer->scale = (float)number_or(j, O_SCALE, (double)layer->scale);
    layer->bias = (float)number_or(j, O_BIAS, 0);
}

/* As in the other layers, lengths are of tokens, or bidirectional of keys. */
static void set_attention_call(job *j)
{
    const int64_t *q = j->in[O_Q].file.shape, *k = j->in[O_K].file.shape;
    const int64_t logits[] = {q[0], q[1], q[2], k[1]};
    la_attention_call *call = &j->attention_call;
    if (la_attention_call_init(call, &j->attention, q[0], q[1]) != LA_OK) ask_about_attention(j);
    call->isa = choice(j, O_ISA);
    call->thread_count = (int64_t)number_or(j, O_THREADS, 1);
    call->keys = k[1];
    call->q = la_bthd(j->in[O_Q].data, q[1], q[2], q[3]);
    call->k = la_bthd(j->in[O_K].data, k[1], k[2], k[3]);
    call->v = la_bthd(j->in[O_V].data, k[1], k[2], j->layer.dim_v);
    if (given(j, O_LOGITS)) want_shape(j, O_LOGITS, 4, logits);
    if (given(j, O_LOGITS)) call->logits = la_bthd(j->in[O_LOGITS].data, q[1], q[2], k[1]);
    j->layer.bidirectional = j->attention.bidirectional;
    j->call.batch = q[0];
    j->call.tokens = q[1];
    j->call.keys = k[1];
    j->call.thread_count = call->thread_count;
    j->lengths = read_lengths(j);
    if (j->attention.bidirectional) call->key_lengths = j->lengths;
    else call->lengths = j->lengths;
}

static void prepare_attention(job *j)
{
    set_attention(j);
    set_attention_call(j);
    set_out(j);
    j->attention_call.out = j->call.out;
    j->call.workspace_size = la_attention_workspace_size(&j->attention, &j->attention_call);
    j->attention_call.workspace_size = j->call.workspace_size;
    j->workspace = (char *)need(O_THREADS, (size_t)j->call.thread_count,
                                j->call.workspace_size ? j->call.workspace_size : 1);
    j->attention_call.workspace = j->workspace;
    ask_about_attention(j);
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct slice {
    const job *job;
    la_call call;
    la_attention_call attention_call;
    la_status status;
} slice;

static void run_slice(slice *s)
{
    s->status = is_attention(s->job) ? la_attention_forward(&s->job->attention, &s->attention_call)
                                     : la_forward(&s->job->layer, &s->call);
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
    const int64_t count = j->call.thread_count;
    slice *slices = (slice *)need(O_THREADS, (size_t)count, sizeof *slices);
    for (int64_t i = 0; i < count; ++i) {
        slices[i].job = j;
        slices[i].call = j->call;
        slices[i].call.thread_index = i;
        slices[i].call.workspace = j->workspace + (size_t)i * j->call.workspace_size;
        slices[i].attention_call = j->attention_call;
        slices[i].attention_call.thread_index = i;
        slices[i].attention_call.workspace = slices[i].call.workspace;
    }
    return slices;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const job *j, double *times, size_t runs)
{
    const double work = (double)j->call.batch * (double)j->call.tokens * (double)j->layer.heads;
    qsort(times, runs, sizeof *times, ascending);
    printf("ns_per_token_head %.3f %.3f\n", times[0] / work,
           (times[(runs - 1) / 2] + times[runs / 2]) / 2 / work);
}

/* state_in and state_out are different buffers, so every run starts from the same state. */
static void run(const job *j)
{
    const size_t runs = (size_t)number_or(j, O_REPEAT, 1);
    const int count = (int)j->call.thread_count;
    double *times = (double *)need(O_REPEAT, runs, sizeof *times);
    slice *slices = make_slices(j);
    for (size_t i = 0; i < runs; ++i) {
        const double start = nanoseconds();
        run_slices(slices, count);
        times[i] = nanoseconds() - start;
    }
    for (int i = 0; i < count; ++i)
        if (slices[i].status != LA_OK) refuse(O_VARIANT, "%s", la_status_text(slices[i].status));
    if (given(j, O_REPEAT)) print_times(j, times, runs);
    free(slices);
    free(times);
}

/* ---- writing: first all files under temporary names, then all renamed ------------------------ */

typedef struct output {
    int o, rank;
    int64_t shape[4];
    float *data; /* owned, but for the output itself */
    char *path;  /* the temporary file; owned */
} output;

enum { OUTPUTS = 4 };

static float *split_part(const job *j, int o)
{
    const size_t r = (size_t)j->r, matrix = r * (size_t)j->layer.dim_v;
    const size_t offset = o == O_STATE_OUT ? 0 : o == O_NORM_OUT ? matrix : matrix + r;
    const size_t size = o == O_STATE_OUT ? matrix : o == O_NORM_OUT ? r : 1;
    const size_t heads = (size_t)j->call.batch * (size_t)j->layer.heads;
    float *part = (float *)need(o, heads * size, sizeof *part);
    copy_part(j, j->state_out, offset, size, part, 0);
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
    static const int order[OUTPUTS] = {O_OUT, O_STATE_OUT, O_NORM_OUT, O_MAX_OUT};
    int count = 0;
    for (int i = 0; i < OUTPUTS; ++i) {
        const int o = order[i];
        output *file = &outputs[count];
        if (!given(j, o)) continue;
        file->o = o;
        file->rank = 4;
        if (o == O_OUT) out_shape(j, file->shape);
        else state_shape(j, o, &file->rank, file->shape);
        file->data = o == O_OUT ? j->out : split_part(j, o);
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
    for (int i = 0; i < count; ++i) {
        error = commit(&outputs[i], j->set[outputs[i].o].text);
        if (error) abandon(j, outputs, count, i, error);
    }
    for (int i = 0; i < count; ++i) {
        if (outputs[i].o != O_OUT) free(outputs[i].data);
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
    free(j->lengths);
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

static void prepare_layer(job *j)
{
    set_layer(j);
    set_call(j);
    set_out(j);
    set_state(j);
    set_workspace(j);
    ask_library(j);
}

static void prepare(job *j)
{
    for (int o = 0; o < O_COUNT; ++o)
        if (options[o].kind == INPUT && given(j, o)) load(j, o);
    set_sizes(j);
    if (is_attention(j)) prepare_attention(j);
    else prepare_layer(j);
    if (given(j, O_REPEAT) && j->in[O_Q].file.count == 0) refuse(O_REPEAT, "no tokens to time");
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
    status = compare(&j);
    free_job(&j);
    return status;
}
