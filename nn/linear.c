#include "nn/linear.h"

#include "nn/simd.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TARGET
#define LEVEL(name)   base_##name
#define VEC_BYTES     16
#define ROWS          4
#define MADD(a, b, c) ((a) * (b) + (c))
#define SPLAT(x)      ((base_vec){0} + (x))
#include "nn/linear_priv.h"

#ifdef __x86_64__
#include <immintrin.h>

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
#include "nn/linear_priv.h"

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
#include "nn/linear_priv.h"
#endif

void linear_pack(struct linear *l, const real *weight, const real *bias)
{
    const int ld = REAL_LD(l->n_out);
    int i, o;

    for (i = 0; i < l->n_in; i++)
        for (o = 0; o < l->n_out; o++)
            l->weight[(size_t)i * ld + o] = weight[(size_t)o * l->n_in + i];
    memcpy(l->bias, bias, (size_t)l->n_out * sizeof *bias);
}

void linear_forward(const struct linear *l, const real *x, int n, bool squash, real *y)
{
    switch (simd_level()) {
#ifdef __x86_64__
    case SIMD_AVX512:
        avx512_forward(l, x, n, squash, y);
        return;
    case SIMD_AVX2:
        avx2_forward(l, x, n, squash, y);
        return;
#endif
    default:
        base_forward(l, x, n, squash, y);
    }
}
