/* The test harness. A test registers itself: TEST(adds_up) { CHECK(1 + 1 == 2, "got %d", 1 + 1); }
   Run with parts of names to choose, --list to see them, --seed N for other random inputs, --thin N
   (at most 8) where it is slow: every case in an N-th of all ways. Every test starts from the same
   seed, alone or not. One in which nothing was checked has failed. */
#ifndef TEST_H
#define TEST_H

#include <stddef.h>
#include <stdint.h>

typedef struct Test {
    const char *name;
    void (*run)(void);
    struct Test *next;
} Test;

void test_register(Test *test);

#define TEST(NAME)                                                                            \
    static void test_##NAME(void);                                                            \
    static Test test_entry_##NAME = {#NAME, test_##NAME, NULL};                               \
    __attribute__((constructor)) static void test_constructor_##NAME(void) {                  \
        test_register(&test_entry_##NAME);                                                    \
    }                                                                                         \
    static void test_##NAME(void)

/* A failed check is counted and reported, and the test goes on. Answers the condition. */
#define CHECK(condition, ...) test_check(!!(condition), #condition, __FILE__, __LINE__, __VA_ARGS__)

int test_check(int ok, const char *condition, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* |got - want| <= tolerance * max(1, |want|), element by element. Prints the worst one. */
int check_close(const char *name, const float *got, const double *want, size_t n, double tolerance);

/* The same bits: a NaN equals the same NaN, and -0 differs from 0. */
int check_same(const char *name, const float *got, const float *want, size_t n);

/* xorshift64* (Vigna 2014, arXiv 1402.6246): x ^= x >> 12, x << 25, x >> 27; times a constant. */
uint64_t random_bits(void);
float random_uniform(float low, float high); /* in [low, high), 24 random bits */
int random_below(int n);                     /* in 0 .. n - 1                  */

/* For loops over all ways to compute: i itself, or with --thin N every N-th number, from a random
   one on that each new loop draws. */
int thinned(int i);

/* `count` floats between canaries, on a boundary of 64 bytes plus 4 * shift; they hold NaN at
   first. guarded_free checks the canaries (guarded_check does only that); data may be NULL. */
float *guarded_new(size_t count, int shift);
float *guarded_random(size_t count, int shift, float low, float high); /* filled */
int guarded_check(const float *data);
void guarded_free(float *data);

#endif
