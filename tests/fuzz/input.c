#include "input.h"

#include "../oracle.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- faults */

void broken(const char *condition, const char *file, int line, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "%s:%d: %s: ", file, line, condition);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    print_tried();
    abort();
}

void print_list(const char *name, const int64_t *list, int64_t count) {
    int64_t i;
    for (i = 0; list != NULL && i < count; i++) {
        fprintf(stderr, i == 0 ? "  %s %lld" : "%.0s %lld", name, (long long)list[i]);
    }
    fprintf(stderr, list != NULL ? "\n" : "");
}

int same(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

void must_equal(const float *got, const float *want, size_t n, const char *what) {
    size_t i;
    for (i = 0; i < n; i++) {
        MUST(same(got[i], want[i]), "%s [%zu of %zu]: %.9g, want %.9g", what, i, n, (double)got[i],
             (double)want[i]);
    }
}

/* ---------------------------------------------------------------- bytes */

static const uint8_t *next_byte, *last_byte;
static uint64_t noise;

void input_set(const uint8_t *data, size_t size) {
    next_byte = data;
    last_byte = data + size;
}

unsigned input_byte(void) {
    return next_byte < last_byte ? *next_byte++ : 0u;
}

uint64_t input_bits(int bytes) {
    uint64_t bits = 0;
    for (; bytes > 0; bytes--) {
        bits = bits << 8 | input_byte();
    }
    return bits;
}

int input_below(int n) {
    return (int)(input_byte() % (unsigned)n);
}

int64_t input_dim(void) {
    static const int64_t edges[] = {16, 32, 33, 48, 64, 15, 17, 31};
    int byte = input_below(256);
    return byte < 192 ? 1 + byte % 20 : edges[byte % COUNT(edges)];
}

int input_chance(int n) {
    return input_below(n) == n - 1;
}

int64_t input_number(void) {
    static const int64_t edges[] = {0,
                                    1,
                                    -1,
                                    2,
                                    7,
                                    -3,
                                    16,
                                    1024,
                                    1025,
                                    INT32_MAX,
                                    INT32_MIN,
                                    INT64_MAX,
                                    INT64_MIN,
                                    (int64_t)1 << 20,
                                    (int64_t)1 << 32,
                                    (int64_t)1 << 48,
                                    (int64_t)1 << 61,
                                    -((int64_t)1 << 61),
                                    INT64_MAX / 4,
                                    INT64_MAX / 8 + 1};
    unsigned kind = input_byte();
    if (kind < 160) {
        return edges[kind % (unsigned)COUNT(edges)];
    }
    return kind < 208 ? (int64_t)input_byte() - 32 : (int64_t)input_bits(8);
}

float input_float(void) {
    static const float odd[] = {0.0f,     -0.0f,  1.0f,   -1.0f,   NAN,    INFINITY, -INFINITY,
                                FLT_MAX,  1e-45f, 1e-38f, -1e-30f, 1e30f,  -88.0f,   88.8f,
                                -FLT_MAX, 1e-20f, 104.0f, -104.0f, 1e-10f, 3.4e38f};
    unsigned kind = input_byte();
    uint32_t bits;
    float x;
    if (kind < 200) {
        return odd[kind % (unsigned)COUNT(odd)];
    }
    bits = (uint32_t)input_bits(4);
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint64_t noise_bits(void) {
    uint64_t x = noise += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void noise_seed(uint64_t seed) {
    noise = seed;
}

float noise_between(float low, float high) {
    return low + (high - low) * ((float)(noise_bits() >> 40) / 16777216.0f);
}

int noise_below(int n) {
    return (int)((noise_bits() >> 33) % (unsigned)n);
}

float noise_gate(int kind) {
    static const float mixed[] = {-1000, -30, 0, -1e-6f};
    int draw = noise_below(8);
    switch (kind) {
    case 0: return noise_between(-0.3f, 0);
    case 1: return noise_between(-20, 0);
    case 2: return noise_between(-1000, 0);
    case 3: return draw < 4 ? mixed[draw] : noise_between(-0.3f, 0);
    case 4: return draw == 0 ? -INFINITY : noise_between(-3, 0);
    case 5: return -powf(10, noise_between(-7, -5));
    case 6: return draw < 2 ? -INFINITY : 0;
    default: return noise_between(-80, 0);
    }
}

/* `count` numbers, each in low .. high, now and then none of these. */
int64_t *input_list(int64_t count, int64_t low, int64_t high, int *wild) {
    int64_t *list = buffer_new((size_t)count * sizeof *list, 0), i;
    for (i = 0; i < count; i++) {
        list[i] = low + (high > low ? input_below(256) % (high - low + 1) : 0);
        if (input_chance(100)) {
            list[i] = input_number();
            *wild = 1;
        }
    }
    return list;
}

/* ---------------------------------------------------------------- buffers */

enum { BUFFERS = 512 };

typedef struct Buffer {
    unsigned char *base;   /* lead, then the bytes                 */
    unsigned char *before; /* what they held; behind it the mask   */
    size_t lead, bytes;
} Buffer;

static Buffer buffers[BUFFERS];
static int buffer_count;
static const uint32_t unwritten = 0xffc5a5a5u; /* a NaN; the processor's own are others */

void *buffer_new(size_t bytes, size_t lead) {
    Buffer *b = &buffers[buffer_count++];
    size_t i;
    MUST(buffer_count <= BUFFERS, "too many buffers");
    b->base = malloc(lead + bytes);
    MUST(b->base != NULL || lead + bytes == 0, "no memory");
    b->lead = lead;
    b->bytes = bytes;
    b->before = NULL;
    memset(b->base, 0xa5, lead + bytes);
    for (i = 0; i + 4 <= bytes; i += 4) {
        memcpy(b->base + lead + i, &unwritten, sizeof unwritten);
    }
    return b->base + lead;
}

void buffers_free(void) {
    while (buffer_count > 0) {
        buffer_count--;
        free(buffers[buffer_count].base);
        free(buffers[buffer_count].before);
    }
}

static Buffer *buffer_of(uintptr_t address, size_t bytes) {
    int i;
    for (i = 0; i < buffer_count; i++) {
        uintptr_t begin = (uintptr_t)(buffers[i].base + buffers[i].lead);
        if (address >= begin && address - begin <= buffers[i].bytes &&
            bytes <= buffers[i].bytes - (address - begin)) {
            return &buffers[i];
        }
    }
    return NULL;
}

void buffers_remember(void) {
    int i;
    for (i = 0; i < buffer_count; i++) {
        Buffer *b = &buffers[i];
        size_t size = b->lead + b->bytes;
        free(b->before);
        b->before = malloc(2 * size + 1);
        MUST(b->before != NULL, "no memory");
        memcpy(b->before, b->base, size);
        memset(b->before + size, 0, size);
    }
}

const void *buffer_before(const void *at) {
    const Buffer *b = buffer_of((uintptr_t)at, 0);
    return b->before + ((const unsigned char *)at - b->base);
}

void buffer_allow(const void *at, size_t bytes) {
    const Buffer *b = buffer_of((uintptr_t)at, bytes);
    unsigned char *mask;
    MUST(b != NULL, "an output of %zu bytes is nobody's", bytes);
    mask = b->before + b->lead + b->bytes + ((const unsigned char *)at - b->base);
    MUST(bytes == 0 || memchr(mask, 1, bytes) == NULL, "two outputs of %zu bytes", bytes);
    memset(mask, 1, bytes);
}

void buffers_check(int refused) {
    int i;
    for (i = 0; i < buffer_count; i++) {
        const Buffer *b = &buffers[i];
        size_t size = b->lead + b->bytes, at;
        if (b->before == NULL || memcmp(b->base, b->before, size) == 0) {
            continue;
        }
        for (at = 0; at < size; at++) {
            int may = !refused && b->before[size + at];
            MUST(may || b->base[at] == b->before[at], "buffer %d: byte %zu of %zu was written", i,
                 at - b->lead, b->bytes);
        }
    }
}

int is_unwritten(const float *x) {
    return memcmp(x, &unwritten, sizeof *x) == 0;
}

/* ---------------------------------------------------------------- views */

static const Range too_long = {1, 0};

Range range_of(const float *data, const Rows *rows) {
    Range range = {(uintptr_t)data, (uintptr_t)data};
    double floats = (double)rows->width;
    int i;
    for (i = 0; i < 3; i++) {
        if (rows->counts[i] <= 0) {
            return range;
        }
        floats += (double)(rows->counts[i] - 1) * fabs((double)rows->strides[i]);
    }
    if (floats * 4 > BUFFER_LIMIT) {
        return too_long;
    }
    range.end += (uintptr_t)rows->width * sizeof *data;
    for (i = 0; i < 3; i++) {
        int64_t reach = rows->counts[i] > 1 ? (rows->counts[i] - 1) * rows->strides[i] : 0;
        range.begin -= reach < 0 ? (uintptr_t)-reach * sizeof *data : 0;
        range.end += reach > 0 ? (uintptr_t)reach * sizeof *data : 0;
    }
    return range;
}

int ranges_meet(const Range *a, const Range *b) {
    return a->begin < a->end && b->begin < b->end && a->begin < b->end && b->begin < a->end;
}

int range_holds(const Range *range, int absent) {
    size_t bytes = range->end - range->begin;
    return range->begin <= range->end &&
           (bytes == 0 || absent || buffer_of(range->begin, bytes) != NULL);
}

/* A buffer for such rows, and where their first one stands. */
float *rows_buffer(const Rows *rows, int *backed) {
    static float origin;
    size_t lead = (size_t)input_below(4) * 4;
    Range range = range_of(&origin, rows);
    if (range.begin > range.end) {
        *backed = 0;
        return buffer_new(4, 0);
    }
    return (float *)buffer_new(range.end - range.begin, lead) +
           ((uintptr_t)&origin - range.begin) / sizeof origin;
}

/* Strides that keep rows apart: the axes in any order, with gaps, up or down. */
void input_strides_apart(la_out *view, const int64_t counts[3]) {
    static const int orders[6][3] = {{2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1},
                                     {1, 0, 2}, {0, 1, 2}}; /* the innermost axis first */
    int64_t *strides[3], step = view->width;
    int kind = input_below(16), i;
    const int *order = orders[kind < 8 ? 0 : kind % 6];
    int gaps = input_chance(3), signs = input_chance(3) ? input_below(8) : 0;
    strides[0] = &view->batch_stride;
    strides[1] = &view->token_stride;
    strides[2] = &view->head_stride;
    for (i = 0; i < 3; i++) {
        int axis = order[i];
        step += gaps ? input_below(4) : 0;
        *strides[axis] = signs >> i & 1 ? -step : step;
        step *= counts[axis] > 1 ? counts[axis] : 1;
    }
}

/* Any strides: rows may repeat, cross each other, or lie far apart. */
static int64_t take_stride(int64_t apart) {
    switch (input_below(8)) {
    case 5: return 0;
    case 6: return input_below(41) - 20;
    case 7: return input_chance(4) ? input_number() : 0;
    default: return apart;
    }
}

la_in input_view(const int64_t counts[3], int64_t width) {
    static const float present = 0;
    la_out apart = {NULL, 0, 0, 0, 0, LA_F32};
    la_in view = {&present, 0, 0, 0, 0, LA_F32};
    apart.width = view.width = width;
    input_strides_apart(&apart, counts);
    view.batch_stride = apart.batch_stride;
    view.token_stride = apart.token_stride;
    view.head_stride = apart.head_stride;
    if (input_chance(4)) {
        view.batch_stride = take_stride(apart.batch_stride);
        view.token_stride = take_stride(apart.token_stride);
        view.head_stride = take_stride(apart.head_stride);
    }
    return view;
}

la_in view_of(const la_out *out) {
    la_in view = {out->data,        out->batch_stride, out->token_stride,
                  out->head_stride, out->width,        out->type};
    return view;
}

int is_small(int64_t n) {
    return n >= 0 && n <= 4096;
}

/* ---------------------------------------------------------------- spoiling */

/* An odd number, or, into floats and now and then anywhere, odd bits. */
void spoil_field(unsigned char *of, const Field *field) {
    int64_t number = input_number();
    int small = (int)(number % 16);
    float real;
    if (field->size == 8) {
        memcpy(of + field->at, &number, 8);
    } else if (input_below(2)) {
        memcpy(of + field->at, &small, sizeof small);
    } else {
        real = input_float();
        memcpy(of + field->at, &real, sizeof real);
    }
}

void spoil_bytes(unsigned char *of, size_t size) {
    size_t at = (size_t)input_bits(2) % size, n = (size_t)input_below(16);
    for (; n > 0 && at < size; n--, at++) {
        of[at] = (unsigned char)input_byte();
    }
}
