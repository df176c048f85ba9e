#define LA_IMPLEMENTATION
#define LA_EXTRAS
#include "linear_attention.h"
#include "test.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPORTS_PER_TEST = 8, CANARY_BYTES = 128, CANARY = 0xa5 };

/* TEST_TIGHT: nothing stands behind a buffer, so that sanitizers and valgrind see reads there. */
#if defined(TEST_TIGHT) || defined(__SANITIZE_ADDRESS__)
enum { TAIL_BYTES = 0, ALIGNMENT = 1 };
#else
enum { TAIL_BYTES = CANARY_BYTES, ALIGNMENT = 64 };
#endif

static Test *first_test, **last_link = &first_test;
static const char *running = "";
static uint64_t generator; /* never 0 */
static int thinning = 1;
static unsigned long checks, failures; /* of the running test */

void test_register(Test *test) {
    *last_link = test;
    last_link = &test->next;
}

int test_check(int ok, const char *condition, const char *file, int line, const char *format, ...) {
    va_list arguments;
    checks++;
    failures += !ok;
    if (!ok && failures <= REPORTS_PER_TEST) {
        printf("%s:%d: %s: %s: ", file, line, running, condition);
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        printf("\n");
    }
    return ok;
}

int check_close(const char *name, const float *got, const double *want, size_t n,
                double tolerance) {
    size_t i, worst = 0;
    double error, largest = -1;
    for (i = 0; i < n; i++) {
        error = fabs((double)got[i] - want[i]) / fmax(1, fabs(want[i]));
        worst = !isnan(largest) && !(error <= largest) ? i : worst;
        largest = worst == i ? error : largest;
    }
    return CHECK(largest >= 0 && largest <= tolerance, "%s[%zu]: %.9g, want %.9g, error %g", name,
                 worst, n ? (double)got[worst] : 0, n ? want[worst] : 0, largest);
}

int check_same(const char *name, const float *got, const float *want, size_t n) {
    size_t i, first = n, differing = 0;
    for (i = n; i-- > 0;) {
        int same = memcmp(&got[i], &want[i], sizeof got[i]) == 0;
        first = same ? first : i;
        differing += !same;
    }
    return CHECK(n > 0 && first == n, "%s: %zu of %zu differ, first [%zu]: %.9g, want %.9g", name,
                 differing, n, first, first < n ? (double)got[first] : 0,
                 first < n ? (double)want[first] : 0);
}

uint64_t random_bits(void) {
    generator ^= generator >> 12;
    generator ^= generator << 25;
    generator ^= generator >> 27;
    return generator * 2685821657736338717u;
}

float random_uniform(float low, float high) {
    float value = low + (high - low) * ((float)(random_bits() >> 40) / 16777216.0f);
    return value < high ? value : low;
}

int thinned(int i) {
    static int offset;
    if (thinning == 1) {
        return i;
    }
    offset = i == 0 ? random_below(thinning) : offset;
    return offset + i * thinning;
}

int random_below(int n) {
    return (int)((random_bits() >> 33) % (unsigned)n);
}

/* In memory: ... | count | what malloc gave | canary | data | canary. */
float *guarded_new(size_t count, int shift) {
    size_t bytes = count * sizeof(float), lead = 64 + CANARY_BYTES + 4 * (size_t)shift;
    unsigned char *base = malloc(lead + ALIGNMENT - 1 + bytes + TAIL_BYTES), *data;
    if (base == NULL) abort();
    data = base + lead + (ALIGNMENT - (uintptr_t)base % ALIGNMENT) % ALIGNMENT;
    memset(data - CANARY_BYTES, CANARY, CANARY_BYTES);
    memset(data, 0xff, bytes);
    memset(data + bytes, CANARY, TAIL_BYTES);
    memcpy(data - CANARY_BYTES - sizeof base, &base, sizeof base);
    memcpy(data - CANARY_BYTES - sizeof base - sizeof count, &count, sizeof count);
    return (float *)(void *)data;
}

float *guarded_random(size_t count, int shift, float low, float high) {
    float *data = guarded_new(count, shift);
    size_t i;
    for (i = 0; i < count; i++) {
        data[i] = random_uniform(low, high);
    }
    return data;
}

int guarded_check(const float *data) {
    const unsigned char *bytes = (const unsigned char *)data;
    size_t i, count, touched = 0;
    memcpy(&count, bytes - CANARY_BYTES - sizeof(void *) - sizeof count, sizeof count);
    for (i = 0; i < CANARY_BYTES; i++) touched += bytes[(ptrdiff_t)i - CANARY_BYTES] != CANARY;
    for (i = count * sizeof(float); i < count * sizeof(float) + TAIL_BYTES; i++)
        touched += bytes[i] != CANARY;
    return CHECK(touched == 0, "%zu bytes outside a buffer of %zu floats were written", touched,
                 count);
}

void guarded_free(float *data) {
    void *base;
    if (data == NULL) return;
    guarded_check(data);
    memcpy(&base, (unsigned char *)data - CANARY_BYTES - sizeof base, sizeof base);
    free(base);
}

static int run_test(const Test *test, uint64_t seed) {
    clock_t start = clock();
    running = test->name;
    generator = (seed + 1) * 0x9e3779b97f4a7c15u | 1;
    checks = failures = 0;
    test->run();
    if (checks == 0) CHECK(0, "nothing was checked");
    printf("%s %-48s %7lu checks, %lu failed %6.2f s\n", failures ? "FAIL" : "ok  ", test->name,
           checks, failures, (double)(clock() - start) / CLOCKS_PER_SEC);
    fflush(stdout);
    return failures == 0;
}

static int is_chosen(const Test *test, char **filters, int count) {
    int i, chosen = count == 0;
    for (i = 0; i < count; i++) chosen |= strstr(test->name, filters[i]) != NULL;
    return chosen;
}

int main(int argc, char **argv) {
    int i, list = 0, filters = 0, counts[2] = {0, 0}; /* failed, passed */
    const Test *test;
    uint64_t seed = 0;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            list = 1;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--thin") == 0 && i + 1 < argc) {
            thinning = atoi(argv[++i]);
            thinning = thinning < 1 ? 1 : thinning > 8 ? 8 : thinning;
        } else if (argv[i][0] != '-') {
            argv[filters++] = argv[i];
        } else {
            fprintf(stderr, "usage: tests [--list] [--seed N] [--thin N] [part of a name ...]\n");
            return 2;
        }
    }
    for (test = first_test; test != NULL; test = test->next) {
        if (!is_chosen(test, argv, filters)) continue;
        if (list)
            printf("%s\n", test->name);
        else
            counts[run_test(test, seed)]++;
    }
    if (!list) printf("%d passed, %d failed\n", counts[1], counts[0]);
    return counts[0] != 0 || (!list && counts[1] == 0);
}
