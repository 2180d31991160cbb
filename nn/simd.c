#include "nn/simd.h"

#include <pthread.h>
#include <stdatomic.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum simd_level found; // written once, before any reader passes `once`
static atomic_int limit = SIMD_AVX512;

static void detect(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found = SIMD_AVX2;
    if (found == SIMD_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found = SIMD_AVX512;
#endif
}

enum simd_level simd_level(void)
{
    int most = atomic_load_explicit(&limit, memory_order_relaxed);

    pthread_once(&once, detect);
    return (int)found < most ? found : (enum simd_level)most;
}

void simd_limit(enum simd_level level)
{
    atomic_store(&limit, level);
}
