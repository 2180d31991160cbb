// rng.h - random numbers as a function of (seed, stream, episode, step), so that no result depends
// on the number of threads, envs or servers. Philox4x32-10: Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011.
//
// Threads: a struct rng belongs to one thread; it holds no heap memory.
#ifndef COMMON_BASE_RNG_H
#define COMMON_BASE_RNG_H

#include <stdint.h>

// What a sequence is for; part of the key, so that two uses never share numbers.
enum rng_use { RNG_RESET = 1, RNG_ACTION, RNG_INIT, RNG_SHUFFLE, RNG_TEST, RNG_MODEL };

struct rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4]; // numbers drawn from the present counter
    int used;          // how many of `block` are used up, 4 = all
};

// The sequence of one (seed, use, stream, episode, step). `stream` is an env's key, for example.
struct rng rng_make(uint64_t seed, enum rng_use use, uint64_t stream, uint64_t episode,
                    uint64_t step);

uint32_t rng_u32(struct rng *r);

// Uniform in [0, 1) with 53 bits.
double rng_unit(struct rng *r);

// Uniform in [low, high).
double rng_uniform(struct rng *r, double low, double high);

// Standard normal (Box-Muller, one of the pair).
double rng_normal(struct rng *r);

// Uniform in 0..n-1, n >= 1.
uint32_t rng_below(struct rng *r, uint32_t n);

#endif
