// rays_simd.h - vectors of LANES floats, for sources that are compiled once per instruction set.
//
// The including file defines LANES (8 or 16). Everything is inlined into functions that carry the
// target attribute, so no vector ever crosses a call.
#ifndef ENVSERVER_RAYS_SIMD_H
#define ENVSERVER_RAYS_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

// clang refuses to inline across targets, so its builds (sanitizers) stay with the base set.
#if defined(__x86_64__) && !defined(__clang__)
#define TARGET_AVX2   __attribute__((target("avx2,fma")))
#define TARGET_AVX512 __attribute__((target("avx2,fma,avx512f,avx512dq,avx512vl,avx512bw")))
#else
#define TARGET_AVX2
#define TARGET_AVX512
#endif

#endif

// What follows depends on LANES and may be included again with another value.
#undef VF
#undef VI
#undef V_
#undef V__
#undef V___
#define V___(name, n) name##_##n
#define V__(name, n)  V___(name, n)
#define V_(name)      V__(name, LANES)
#define VF            V_(vf)
#define VI            V_(vi)

#ifndef RAYS_SIMD_ONCE
typedef float vf_8 __attribute__((vector_size(32), may_alias));
typedef int vi_8 __attribute__((vector_size(32), may_alias));
typedef float vf_16 __attribute__((vector_size(64), may_alias));
typedef int vi_16 __attribute__((vector_size(64), may_alias));
#define RAYS_SIMD_ONCE
#endif

INLINE VF V_(load)(const float *p)
{
    return *(const VF *)p;
}

INLINE void V_(store)(float *p, VF v)
{
    *(VF *)p = v;
}

// From any address.
INLINE VF V_(loadu)(const float *p)
{
    VF v;

    memcpy(&v, p, sizeof v);
    return v;
}

INLINE VI V_(loadi)(const int *p)
{
    return *(const VI *)p;
}

INLINE void V_(storei)(int *p, VI v)
{
    *(VI *)p = v;
}

INLINE VF V_(pick)(VI mask, VF a, VF b)
{
    return (VF)(((VI)a & mask) | ((VI)b & ~mask));
}

INLINE VI V_(picki)(VI mask, VI a, VI b)
{
    return (a & mask) | (b & ~mask);
}

INLINE VF V_(min)(VF a, VF b)
{
    return V_(pick)((VI)(a < b), a, b);
}

INLINE VF V_(max)(VF a, VF b)
{
    return V_(pick)((VI)(a > b), a, b);
}

INLINE VF V_(abs)(VF a)
{
    return (VF)((VI)a & 0x7fffffff);
}

// All lanes x.
INLINE VF V_(all)(float x)
{
    return x - (VF){0};
}

INLINE VI V_(toint)(VF a) // toward zero
{
    return __builtin_convertvector(a, VI);
}

INLINE VF V_(tofloat)(VI a)
{
    return __builtin_convertvector(a, VF);
}

INLINE bool V_(any)(VI mask)
{
    int64_t w[LANES / 2], r = 0;
    int i;

    memcpy(w, &mask, sizeof w);
    for (i = 0; i < LANES / 2; i++)
        r |= w[i];
    return r != 0;
}
