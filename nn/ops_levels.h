// ops_levels.h - compiles a header of kernels once per vector instruction set. A source sets
// KERNELS to the header's path and includes this file; the kernels name everything LEVEL(name) and
// use TARGET, VEC_BYTES, ROWS, MADD(a, b, c) = a b + c and SPLAT(x), a vector of equal numbers.
//
// Not guarded: each source includes it once, for its own kernels.
#include "nn/real.h"
#include "nn/simd.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define ALWAYS static inline __attribute__((always_inline))

#define TARGET
#define LEVEL(name)   base_##name
#define VEC_BYTES     16
#define ROWS          4
#define MADD(a, b, c) ((a) * (b) + (c))
#define SPLAT(x)      ((base_vec){0} + (real)(x))
#include KERNELS
#undef TARGET
#undef LEVEL
#undef VEC_BYTES
#undef ROWS
#undef MADD
#undef SPLAT

#ifdef __x86_64__
#define TARGET      __attribute__((target("avx2,fma")))
#define LEVEL(name) avx2_##name
#define VEC_BYTES   32
#define ROWS        4
#ifdef REAL_IS_DOUBLE
#define MADD(a, b, c) _mm256_fmadd_pd(a, b, c)
#define SPLAT(x)      _mm256_set1_pd(x)
#else
#define MADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define SPLAT(x)      _mm256_set1_ps(x)
#endif
#include KERNELS
#undef TARGET
#undef LEVEL
#undef VEC_BYTES
#undef ROWS
#undef MADD
#undef SPLAT

#define TARGET      __attribute__((target("avx2,fma,avx512f,avx512dq,avx512vl")))
#define LEVEL(name) avx512_##name
#define VEC_BYTES   64
#define ROWS        8
#ifdef REAL_IS_DOUBLE
#define MADD(a, b, c) _mm512_fmadd_pd(a, b, c)
#define SPLAT(x)      _mm512_set1_pd(x)
#else
#define MADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define SPLAT(x)      _mm512_set1_ps(x)
#endif
#include KERNELS
#undef TARGET
#undef LEVEL
#undef VEC_BYTES
#undef ROWS
#undef MADD
#undef SPLAT

#define DISPATCH(name, ...)         \
    switch (simd_level()) {         \
    case SIMD_AVX512:               \
        avx512_##name(__VA_ARGS__); \
        break;                      \
    case SIMD_AVX2:                 \
        avx2_##name(__VA_ARGS__);   \
        break;                      \
    default:                        \
        base_##name(__VA_ARGS__);   \
    }
#else
#define DISPATCH(name, ...) base_##name(__VA_ARGS__)
#endif
