/* Includes KERNEL once for each instruction set that the compiler has code for, with
 *
 *     NAME(x)         the pass' own name for x
 *     TARGET          attribute of its functions
 *     LANES           floats of a register
 *     FMA(x, y, z)    x y + z of registers
 *     MAX, MIN(x, y)  of registers; where one lane is NaN, y's
 *     LOW, HIGH(x, y) x0 y0 x1 y1 and x2 y2 x3 y3 of every four lanes
 *     QUADS(p, s)     a register of four floats each from p, p + s, p + 2 s ..
 *
 * and defines BY_ISA(x): the addresses of the passes' x by LA_ISA_SCALAR .., null where there is
 * none. All these expand to names that begin with PASS, so that a pass has nothing else to set, and
 * what a kernel defines in terms of them serves all its passes. A kernel has types `floats` and
 * `ints` of a register. */
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define NAME(x)      PASTE(PASS, x)
#define TARGET       NAME(TARGET)
#define INLINE       TARGET static inline __attribute__((always_inline))
#define LANES        NAME(LANES)
#define FMA(x, y, z) NAME(FMA)(x, y, z)
#define MAX(x, y)    NAME(MAX)(x, y)
#define MIN(x, y)    NAME(MIN)(x, y)
#define LOW(x, y)    NAME(LOW)(x, y)
#define HIGH(x, y)   NAME(HIGH)(x, y)
#define QUADS(p, s)  NAME(QUADS)(p, s)

#if defined(__x86_64__)

#define avx2_TARGET       __attribute__((target("avx2,fma")))
#define avx2_LANES        8
#define avx2_FMA(x, y, z) _mm256_fmadd_ps(x, y, z)
#define avx2_MAX(x, y)    _mm256_max_ps(x, y)
#define avx2_MIN(x, y)    _mm256_min_ps(x, y)
#define avx2_LOW(x, y)    _mm256_unpacklo_ps(x, y)
#define avx2_HIGH(x, y)   _mm256_unpackhi_ps(x, y)
#define avx2_QUADS(p, s)                                                                           \
    _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps((p) + (s)), 1)
#define PASS avx2
#include KERNEL
#undef PASS

#define avx512_TARGET        __attribute__((target("avx512f")))
#define avx512_LANES         16
#define avx512_FMA(x, y, z)  _mm512_fmadd_ps(x, y, z)
#define avx512_MAX(x, y)     _mm512_max_ps(x, y)
#define avx512_MIN(x, y)     _mm512_min_ps(x, y)
#define avx512_LOW(x, y)     _mm512_unpacklo_ps(x, y)
#define avx512_HIGH(x, y)    _mm512_unpackhi_ps(x, y)
#define avx512_QUAD(x, p, n) _mm512_insertf32x4(x, _mm_loadu_ps(p), n)
#define avx512_PAIR(p, s)    avx512_QUAD(_mm512_castps128_ps512(_mm_loadu_ps(p)), (p) + (s), 1)
#define avx512_QUADS(p, s)                                                                         \
    avx512_QUAD(avx512_QUAD(avx512_PAIR(p, s), (p) + 2 * (s), 2), (p) + 3 * (s), 3)
#define PASS avx512
#include KERNEL
#undef PASS

#endif

/* four floats: NEON, or what the compiler makes of them */
#define portable_TARGET
#define portable_LANES 4
#if defined(__aarch64__)
#define portable_FMA(x, y, z) vfmaq_f32(z, x, y)
#else
#define portable_FMA(x, y, z) ((x) * (y) + (z))
#endif
#define portable_SELECT(m, x, y) ((floats)(((ints)(x) & (ints)(m)) | ((ints)(y) & ~(ints)(m))))
#define portable_MAX(x, y)       portable_SELECT((x) > (y), x, y)
#define portable_MIN(x, y)       portable_SELECT((x) < (y), x, y)
#define portable_LOW(x, y)       ((floats){(x)[0], (y)[0], (x)[1], (y)[1]})
#define portable_HIGH(x, y)      ((floats){(x)[2], (y)[2], (x)[3], (y)[3]})
#define portable_QUADS(p, s)     (*(const floats *)(const void *)(p))
#define PASS                     portable
#include KERNEL
#undef PASS

#if defined(__x86_64__)
#define BY_ISA(x)                                                                                  \
    { NULL, &portable_##x, &avx2_##x, &avx512_##x, NULL }
#elif defined(__aarch64__)
#define BY_ISA(x)                                                                                  \
    { NULL, &portable_##x, NULL, NULL, &portable_##x }
#else
#define BY_ISA(x)                                                                                  \
    { NULL, &portable_##x, NULL, NULL, NULL }
#endif
