/* The machine: clocks, pinning, the pool of threads; and its limits, the peak of multiply-adds, the
 * rate of exponentials, the bandwidths of the caches and of memory. */
#ifdef __linux__
#define _GNU_SOURCE /* affinity */
#else
#define _POSIX_C_SOURCE 200809L
#endif
#include "bench.h"
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown flags"
#endif

void bench_fail(int status, const char *format, ...) {
    va_list list;
    fflush(stdout);
    fprintf(stderr, "bench: ");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n");
    exit(status);
}

double bench_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void *bench_allocate(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0) bench_fail(1, "out of memory");
    memset(p, 0, bytes);
    return p;
}

void bench_clear_registers(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx")) __asm__ volatile("vzeroupper");
#endif
}

/* ---- processors ------------------------------------------------------------------------------ */

/* The processors that this process may use, from the one that it runs on. */
static struct { int count, at[1024]; } cores;

#ifdef __linux__
static void find_cores(void) {
    const int here = sched_getcpu(), most = (int)(sizeof cores.at / sizeof *cores.at);
    cpu_set_t set;
    int i, cpu;
    if (sched_getaffinity(0, sizeof set, &set) != 0 || here < 0) return;
    for (i = 0; i < CPU_SETSIZE && cores.count < most; ++i) {
        cpu = (here + i) % CPU_SETSIZE;
        if (CPU_ISSET((size_t)cpu, &set)) cores.at[cores.count++] = cpu;
    }
}

static int pin(int64_t thread) {
    cpu_set_t set;
    if (!cores.count) return 0;
    CPU_ZERO(&set);
    CPU_SET((size_t)cores.at[thread % cores.count], &set);
    return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}
#else
static void find_cores(void) {}

static int pin(int64_t thread) {
    (void)thread;
    return 0;
}
#endif

/* ---- the pool -------------------------------------------------------------------------------- */

enum { POOL = 256 };

/* Each worker has a line of its own: it runs the job when `go` moves on, and says so in `done`. */
typedef struct worker {
    pthread_t id;
    int64_t number;
    unsigned go, done;
    char space[64];
} worker;

static struct {
    void (*job)(void *what, int64_t thread); /* null: the worker ends */
    void *what;
    int64_t count;
    worker workers[POOL];
} pool = {NULL, NULL, 1, {{0, 0, 0, 0, {0}}}};

/* With more threads than processors the one that is waited for may need this one. */
static void wait_for(const unsigned *counter, unsigned value) {
    const long patience = pool.count > cores.count ? 0 : 20000;
    long spins;
    for (spins = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) != value; ++spins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (spins > patience) sched_yield();
    }
}

static void *work(void *argument) {
    worker *w = argument;
    unsigned turn;
    pin(w->number);
    for (turn = 1;; ++turn) {
        wait_for(&w->go, turn);
        if (!pool.job) return NULL;
        pool.job(pool.what, w->number);
        __atomic_store_n(&w->done, turn, __ATOMIC_RELEASE);
    }
}

void bench_pool_open(int64_t count) {
    int64_t i;
    pool.count = count;
    for (i = 1; i < count; ++i) {
        worker *w = &pool.workers[i];
        w->number = i;
        w->go = w->done = 0;
        if (pthread_create(&w->id, NULL, work, w) != 0)
            bench_fail(1, "no thread %lld", (long long)i);
    }
}

static void start(void (*job)(void *what, int64_t thread), void *what) {
    int64_t i;
    pool.job = job;
    pool.what = what;
    for (i = 1; i < pool.count; ++i)
        __atomic_store_n(&pool.workers[i].go, pool.workers[i].go + 1, __ATOMIC_RELEASE);
}

void bench_pool_run(void (*job)(void *what, int64_t thread), void *what) {
    int64_t i;
    start(job, what);
    job(what, 0);
    for (i = 1; i < pool.count; ++i) wait_for(&pool.workers[i].done, pool.workers[i].go);
}

void bench_pool_close(void) {
    int64_t i;
    start(NULL, NULL);
    for (i = 1; i < pool.count; ++i) pthread_join(pool.workers[i].id, NULL);
    pool.count = 1;
}

/* ---- what each instruction set can do -------------------------------------------------------- */

typedef struct kernel {
    double (*peak)(int loops);
    void (*exps)(float *y, const float *x, size_t count);
    int32_t (*read)(const char *from, size_t bytes);
    void (*update)(char *at, size_t bytes);
} kernel;

#define KERNEL "machine_kernels.h"
#include "passes.h"

/* The portable code is compiled as this file is: with what the compiler may use unasked. */
static const kernel *kernel_of(int isa) {
    static const kernel *const kernels[BENCH_ISAS] = BY_ISA(kernel);
#if defined(__AVX512F__)
    if (isa == LA_ISA_SCALAR) isa = LA_ISA_AVX512;
#elif defined(__AVX2__) && defined(__FMA__)
    if (isa == LA_ISA_SCALAR) isa = LA_ISA_AVX2;
#endif
    return kernels[isa];
}

static int has(int isa) {
#if defined(__x86_64__)
    if (isa == LA_ISA_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == LA_ISA_AVX512) return __builtin_cpu_supports("avx512f") != 0;
#endif
    return kernel_of(isa) != NULL;
}

double bench_peak(int isa) {
    double start, flops;
    if (!has(isa)) return 0.0;
    start = bench_ns();
    flops = kernel_of(isa)->peak(40000);
    return flops / (bench_ns() - start);
}

typedef struct peak_job {
    int isa, loops;
    double flops; /* of one thread */
} peak_job;

static void run_peak(void *what, int64_t thread) {
    peak_job *job = what;
    const double flops = kernel_of(job->isa)->peak(job->loops);
    if (thread == 0) job->flops = flops;
}

static void keep_best(double *best, double value) {
    if (value > *best) *best = value;
}

static void measure_peaks(bench_machine *machine, int threads) {
    int isa, i;
    for (isa = 1; isa < BENCH_ISAS; ++isa)
        for (i = 0; i < 50 && has(isa); ++i) keep_best(&machine->peak[isa], bench_peak(isa));
    machine->threads = threads;
    bench_pool_open(threads);
    for (isa = 1; isa < BENCH_ISAS; ++isa)
        for (i = 0; i < 10 && has(isa); ++i) {
            peak_job job = {0, 100000, 0.0};
            const double start = bench_ns();
            job.isa = isa;
            bench_pool_run(run_peak, &job);
            keep_best(&machine->peak_all[isa], job.flops * threads / (bench_ns() - start));
        }
    bench_pool_close();
}

static void measure_exps(bench_machine *machine) {
    enum { COUNT = 1024, TIMES = 20 };
    float *x = bench_allocate(2 * COUNT * sizeof *x);
    int isa, i, n;
    for (i = 0; i < COUNT; ++i) x[i] = (float)(i % 32) - 20.0f;
    for (isa = 1; isa < BENCH_ISAS; ++isa)
        for (i = 0; i < 100 && has(isa); ++i) {
            const double start = bench_ns();
            for (n = 0; n < TIMES; ++n) kernel_of(isa)->exps(x + COUNT, x, COUNT);
            keep_best(&machine->exp_rate[isa], COUNT * TIMES / (bench_ns() - start));
        }
    free(x);
}

/* ---- caches ---------------------------------------------------------------------------------- */

/* what the system tells of cache number i of the first processor; whether it does */
static int read_cache(int i, const char *what, char line[64]) {
    char path[96];
    FILE *file;
    int got;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, what);
    file = fopen(path, "r");
    got = file && fgets(line, 64, file);
    if (file) fclose(file);
    return got;
}

/* bytes of the caches L1 .. L3; what the system does not tell is taken to be usual */
static void find_caches(double bytes[3]) {
    char level[64], type[64], size[64];
    int i;
    bytes[0] = 32768.0;
    bytes[1] = 1048576.0;
    bytes[2] = 33554432.0;
    for (i = 0; i < 8 && read_cache(i, "level", level); ++i)
        if (strchr("123", *level) && read_cache(i, "type", type) && *type != 'I' &&
            read_cache(i, "size", size))
            bytes[*level - '1'] = atof(size) * (strchr(size, 'M') ? 1048576.0 : 1024.0);
}

static const kernel *widest(void) {
    int isa = BENCH_ISAS - 1;
    while (!has(isa)) --isa;
    return kernel_of(isa);
}

enum { SAMPLE_BYTES = 4000000, STRIDE = 1024 }; /* a sample has as much or one pass; 8 registers */

static double read_gbps(const char *buffer, size_t bytes) {
    static volatile int32_t sink;
    const size_t passes = 1 + SAMPLE_BYTES / bytes;
    const double start = bench_ns();
    size_t n;
    for (n = 0; n < passes; ++n) sink = sink ^ widest()->read(buffer, bytes);
    return (double)(bytes * passes) / (bench_ns() - start);
}

double bench_update_gbps(void *buffer, size_t bytes) {
    const size_t whole = bytes - bytes % STRIDE, passes = 1 + SAMPLE_BYTES / (bytes + 1);
    const double start = bench_ns();
    size_t n;
    for (n = 0; n < passes; ++n) widest()->update(buffer, whole);
    return 2.0 * (double)(whole * passes) / (bench_ns() - start);
}

/* the best of several samples: an L1 is as fast as it is seen once */
static void measure_levels(bench_machine *machine) {
    double caches[3], *size = machine->level_bytes;
    char *buffer;
    int i, n;
    find_caches(caches);
    for (i = 0; i < 3; ++i) size[i] = STRIDE * (double)(int64_t)(caches[i] / (2.0 * STRIDE));
    size[3] = 8.0 * caches[2] < 536870912.0 ? 8.0 * caches[2] : 536870912.0;
    if (size[3] < 2.0 * caches[2]) size[3] = 2.0 * caches[2];
    buffer = bench_allocate((size_t)size[3]);
    for (i = 0; i < BENCH_LEVELS; ++i)
        for (n = i == BENCH_LEVELS - 1 ? 8 : 24; n > 0; --n) {
            keep_best(&machine->read_gbps[i], read_gbps(buffer, (size_t)size[i]));
            keep_best(&machine->write_gbps[i], bench_update_gbps(buffer, (size_t)size[i]));
        }
    free(buffer);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void find_cpu(char *cpu, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(cpu, size, "unknown processor");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0) continue;
        snprintf(cpu, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file) fclose(file);
}

void bench_measure_machine(bench_machine *machine, int threads) {
    const time_t now = time(NULL);
    memset(machine, 0, sizeof *machine);
    find_cores();
    machine->cores = cores.count ? cores.count : 1;
    machine->pinned = pin(0);
    machine->flags = BENCH_FLAGS;
    find_cpu(machine->cpu, sizeof machine->cpu);
#if defined(__clang__)
    snprintf(machine->compiler, sizeof machine->compiler, "%s", __VERSION__);
#else
    snprintf(machine->compiler, sizeof machine->compiler, "gcc %s", __VERSION__);
#endif
    strftime(machine->date, sizeof machine->date, "%Y-%m-%d %H:%M UTC", gmtime(&now));
    measure_peaks(machine, threads ? threads : machine->cores);
    measure_exps(machine);
    measure_levels(machine);
}
