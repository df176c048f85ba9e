/* Reading and writing of NumPy's .npy files: what the tests and build/attend need, no more.
 *
 * Reads formats 1.0, 2.0 and 3.0, C order, of the types '<f4' '<f8' '<i4' '<i8'; anything else, and
 * any file that does not hold exactly what its header says, is refused. Writes '<f4', format 1.0.
 * Functions that can fail return NULL, or one line that says why.
 *
 *     npy_array q;
 *     const char *error = npy_read("q.npy", &q);
 *     if (!error && npy_has_shape(&q, 4, shape)) use(npy_float(&q, i));
 *     npy_free(&q);
 */
#ifndef NPY_H
#define NPY_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GNUC__
#define NPY_DEF static __attribute__((unused))
#else
#define NPY_DEF static
#endif

enum { NPY_MAX_RANK = 8, NPY_MAX_HEADER = 65535, NPY_PREFIX = 10 };

typedef enum npy_type { NPY_F4, NPY_F8, NPY_I4, NPY_I8, NPY_TYPES } npy_type;

typedef struct npy_array {
    npy_type type;
    int rank;
    int64_t shape[NPY_MAX_RANK];
    size_t count;
    unsigned char *data; /* the file's little-endian elements */
} npy_array;

typedef struct npy_cursor {
    const char *at, *end;
} npy_cursor;

static const char npy_bad_header[] = "the .npy header is malformed";
static const char npy_bad_shape[] = "the shape does not fit the address space";

NPY_DEF const char *npy_type_name(npy_type type)
{
    static const char *const names[NPY_TYPES] = {"<f4", "<f8", "<i4", "<i8"};
    return names[type];
}

NPY_DEF size_t npy_type_size(npy_type type)
{
    return type == NPY_F4 || type == NPY_I4 ? 4 : 8;
}

NPY_DEF int npy_is_float(npy_type type)
{
    return type == NPY_F4 || type == NPY_F8;
}

/* The number of elements; 0 if they, at 8 bytes each, exceed the address space (a zero dimension
   does not excuse the others: code that multiplies some of them must not overflow either). */
NPY_DEF int npy_count(int rank, const int64_t *shape, size_t *count)
{
    const uint64_t limit = (SIZE_MAX < INT64_MAX ? SIZE_MAX : (uint64_t)INT64_MAX) / 8;
    uint64_t product = 1;
    int empty = 0;
    for (int i = 0; i < rank; ++i) {
        if (shape[i] < 0 || (shape[i] > 0 && (uint64_t)shape[i] > limit / product)) return 0;
        if (shape[i] == 0) empty = 1;
        else product *= (uint64_t)shape[i];
    }
    *count = empty ? 0 : (size_t)product;
    return 1;
}

NPY_DEF int npy_has_shape(const npy_array *a, int rank, const int64_t *shape)
{
    if (a->rank != rank) return 0;
    for (int i = 0; i < rank; ++i)
        if (a->shape[i] != shape[i]) return 0;
    return 1;
}

NPY_DEF void npy_free(npy_array *a)
{
    free(a->data);
    memset(a, 0, sizeof *a);
}

/* ---- elements -------------------------------------------------------------------------------- */

NPY_DEF uint64_t npy_bits(const npy_array *a, size_t i)
{
    const size_t size = npy_type_size(a->type);
    uint64_t bits = 0;
    for (size_t b = size; b-- > 0;) bits = bits << 8 | a->data[i * size + b];
    return bits;
}

NPY_DEF int64_t npy_int(const npy_array *a, size_t i)
{
    const uint64_t bits = npy_bits(a, i);
    int64_t wide;
    int32_t narrow;
    if (a->type == NPY_I4) {
        const uint32_t low = (uint32_t)bits;
        memcpy(&narrow, &low, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

NPY_DEF double npy_double(const npy_array *a, size_t i)
{
    const uint64_t bits = npy_bits(a, i);
    double wide;
    float narrow;
    if (!npy_is_float(a->type)) return (double)npy_int(a, i);
    if (a->type == NPY_F4) {
        const uint32_t low = (uint32_t)bits;
        memcpy(&narrow, &low, sizeof narrow);
        return (double)narrow;
    }
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* A double beyond float's range becomes an infinity (the plain conversion would be undefined). */
NPY_DEF float npy_float(const npy_array *a, size_t i)
{
    const double x = npy_double(a, i);
    if (x > (double)FLT_MAX) return HUGE_VALF;
    if (x < -(double)FLT_MAX) return -HUGE_VALF;
    return (float)x;
}

/* All elements as float32, to be freed by the caller; NULL if memory is short. Never NULL because
   the array is empty. */
NPY_DEF float *npy_floats(const npy_array *a)
{
    float *values = (float *)malloc((a->count + 1) * sizeof *values);
    for (size_t i = 0; values && i < a->count; ++i) values[i] = npy_float(a, i);
    return values;
}

/* ---- the header: a Python dictionary with three keys, in any order --------------------------- */

NPY_DEF void npy_skip_spaces(npy_cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        ++c->at;
}

NPY_DEF int npy_take(npy_cursor *c, const char *token)
{
    const size_t length = strlen(token);
    npy_skip_spaces(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, token, length) != 0) return 0;
    c->at += length;
    return 1;
}

NPY_DEF int npy_take_string(npy_cursor *c, char *text, size_t size)
{
    const char *quote = npy_take(c, "'") ? "'" : "\"";
    size_t length = 0;
    if (*quote == '"' && !npy_take(c, quote)) return 0;
    while (c->at < c->end && *c->at != *quote && length + 1 < size) text[length++] = *c->at++;
    text[length] = '\0';
    if (c->at == c->end || *c->at != *quote) return 0;
    ++c->at;
    return 1;
}

NPY_DEF const char *npy_take_number(npy_cursor *c, int64_t *number)
{
    int64_t value = 0;
    npy_skip_spaces(c);
    if (c->at == c->end || *c->at < '0' || *c->at > '9') return npy_bad_header;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; ++c->at) {
        const int digit = *c->at - '0';
        if (value > (INT64_MAX - digit) / 10) return npy_bad_shape;
        value = value * 10 + digit;
    }
    *number = value;
    return NULL;
}

NPY_DEF const char *npy_take_shape(npy_cursor *c, npy_array *a)
{
    if (!npy_take(c, "(")) return npy_bad_header;
    for (a->rank = 0; !npy_take(c, ")"); ++a->rank) {
        const char *error;
        if (a->rank == NPY_MAX_RANK) return "the array has more than 8 dimensions";
        error = npy_take_number(c, &a->shape[a->rank]);
        if (error) return error;
        if (npy_take(c, ",")) continue;
        /* (3) is a number, not a tuple: only a later dimension may go without its comma */
        if (a->rank == 0 || !npy_take(c, ")")) return npy_bad_header;
        ++a->rank;
        break;
    }
    return npy_count(a->rank, a->shape, &a->count) ? NULL : npy_bad_shape;
}

NPY_DEF const char *npy_take_type(npy_cursor *c, npy_array *a)
{
    static const char unknown[] = "the element type is none of <f4, <f8, <i4, <i8";
    char name[16];
    if (!npy_take_string(c, name, sizeof name)) return unknown;
    for (int type = 0; type < NPY_TYPES; ++type) {
        a->type = (npy_type)type;
        if (strcmp(name, npy_type_name(a->type)) == 0) return NULL;
    }
    return unknown;
}

NPY_DEF const char *npy_take_value(npy_cursor *c, const char *key, npy_array *a, unsigned *bit)
{
    if (strcmp(key, "descr") == 0) {
        *bit = 1;
        return npy_take_type(c, a);
    }
    if (strcmp(key, "shape") == 0) {
        *bit = 2;
        return npy_take_shape(c, a);
    }
    if (strcmp(key, "fortran_order") != 0) return npy_bad_header;
    *bit = 4;
    if (npy_take(c, "False")) return NULL;
    return npy_take(c, "True") ? "the array is in Fortran order" : npy_bad_header;
}

NPY_DEF const char *npy_parse_header(npy_array *a, const char *text, size_t length)
{
    npy_cursor c;
    unsigned seen = 0;
    int open;
    c.at = text;
    c.end = text + length;
    open = npy_take(&c, "{");
    if (!open) return npy_bad_header;
    while (open && !npy_take(&c, "}")) {
        char key[16];
        unsigned bit = 0;
        const char *error;
        if (!npy_take_string(&c, key, sizeof key) || !npy_take(&c, ":")) return npy_bad_header;
        error = npy_take_value(&c, key, a, &bit);
        if (error || (seen & bit)) return error ? error : npy_bad_header;
        seen |= bit;
        if (npy_take(&c, ",")) continue;
        if (!npy_take(&c, "}")) return npy_bad_header;
        open = 0;
    }
    npy_skip_spaces(&c);
    return c.at == c.end && seen == 7 ? NULL : npy_bad_header;
}

/* ---- files ----------------------------------------------------------------------------------- */

NPY_DEF const char *npy_read_header(FILE *file, npy_array *a)
{
    unsigned char prefix[NPY_PREFIX + 2]; /* magic, version, and 2 or 4 bytes of header length */
    const char *error = "out of memory";
    size_t length;
    char *text;
    if (fread(prefix, 1, NPY_PREFIX, file) != NPY_PREFIX || memcmp(prefix, "\x93NUMPY", 6) != 0)
        return "not an .npy file";
    if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0) return "an unknown .npy format version";
    length = (size_t)prefix[8] | (size_t)prefix[9] << 8;
    if (prefix[6] > 1) {
        if (fread(prefix + NPY_PREFIX, 1, 2, file) != 2) return "the file is truncated";
        if (prefix[10] || prefix[11]) return "the .npy header is longer than 65535 bytes";
    }
    text = (char *)malloc(length + 1);
    if (!text) return error;
    error = fread(text, 1, length, file) == length ? npy_parse_header(a, text, length)
                                                   : "the file is truncated";
    free(text);
    return error;
}

/* Memory grows with what the file really holds, so that a header cannot ask for terabytes. */
NPY_DEF const char *npy_read_elements(FILE *file, npy_array *a)
{
    const size_t size = a->count * npy_type_size(a->type);
    size_t capacity = 0, have = 0;
    do {
        const size_t wanted = capacity ? (size - capacity > capacity ? 2 * capacity : size)
                                       : (size < 65536 ? size : 65536);
        unsigned char *data = (unsigned char *)realloc(a->data, wanted + 1);
        if (!data) return "out of memory";
        a->data = data;
        capacity = wanted;
        have += fread(data + have, 1, capacity - have, file);
        if (have < capacity)
            return ferror(file) ? "the file cannot be read" : "the file is truncated";
    } while (have < size);
    return fgetc(file) == EOF ? NULL : "the file goes on after the array";
}

NPY_DEF const char *npy_read(const char *path, npy_array *a)
{
    FILE *file = fopen(path, "rb");
    const char *error;
    memset(a, 0, sizeof *a);
    if (!file) return "the file cannot be opened";
    error = npy_read_header(file, a);
    if (!error) error = npy_read_elements(file, a);
    fclose(file);
    if (error) npy_free(a);
    return error;
}

NPY_DEF int npy_write_header(FILE *file, int rank, const int64_t *shape)
{
    char text[256] = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
    size_t length = strlen(text), padded;
    unsigned char prefix[NPY_PREFIX] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
    for (int i = 0; i < rank; ++i)
        length += (size_t)snprintf(text + length, sizeof text - length, i ? ", %lld" : "%lld",
                                   (long long)shape[i]);
    length += (size_t)snprintf(text + length, sizeof text - length, rank == 1 ? ",), }" : "), }");
    padded = (NPY_PREFIX + length + 1 + 63) / 64 * 64 - NPY_PREFIX;
    memset(text + length, ' ', padded - length);
    text[padded - 1] = '\n';
    prefix[8] = (unsigned char)(padded & 255);
    prefix[9] = (unsigned char)(padded >> 8);
    return fwrite(prefix, 1, NPY_PREFIX, file) == NPY_PREFIX
        && fwrite(text, 1, padded, file) == padded;
}

NPY_DEF int npy_write_elements(FILE *file, size_t count, const float *values)
{
    for (size_t i = 0; i < count; ++i) {
        unsigned char bytes[4];
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        for (int b = 0; b < 4; ++b) bytes[b] = (unsigned char)(bits >> (8 * b) & 255);
        if (fwrite(bytes, 1, 4, file) != 4) return 0;
    }
    return 1;
}

NPY_DEF const char *npy_write(const char *path, int rank, const int64_t *shape, const float *values)
{
    size_t count;
    FILE *file;
    int done;
    if (rank < 0 || rank > NPY_MAX_RANK || !npy_count(rank, shape, &count)) return npy_bad_shape;
    file = fopen(path, "wb");
    if (!file) return "the file cannot be created";
    done = npy_write_header(file, rank, shape) && npy_write_elements(file, count, values);
    if (fclose(file) != 0) done = 0;
    return done ? NULL : "the file cannot be written";
}

#endif /* NPY_H */
