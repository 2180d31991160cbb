// simd.h - which vector instructions the numeric loops use, found out once at run time.
//
// Explicit function tables instead of compiler-made dispatch: they work under every compiler and
// sanitizer, and a test can walk through all levels.
//
// Threads: any; simd_limit is for tests, before other threads use the numeric loops.
#ifndef NN_SIMD_H
#define NN_SIMD_H

enum simd_level { SIMD_BASE, SIMD_AVX2, SIMD_AVX512 };

// The best level that this processor (and simd_limit) allows.
enum simd_level simd_level(void);

// Use no more than `level`.
void simd_limit(enum simd_level level);

#endif
