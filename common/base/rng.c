#include "common/base/rng.h"

#include <math.h>

// A strong 64-bit mixer (the finalizer of SplitMix64): spreads seed and stream over the key.
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    int round;

    for (round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;

        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

struct rng rng_make(uint64_t seed, enum rng_use use, uint64_t stream, uint64_t episode,
                    uint64_t step)
{
    uint64_t key = mix(mix(mix(seed) ^ (uint64_t)use) ^ stream);
    uint64_t base = mix(episode) ^ mix(step ^ 0x5851f42d4c957f2du);
    struct rng r = {.used = 4};

    r.key[0] = (uint32_t)key;
    r.key[1] = (uint32_t)(key >> 32);
    r.counter[2] = (uint32_t)base;
    r.counter[3] = (uint32_t)(base >> 32);
    return r;
}

uint32_t rng_u32(struct rng *r)
{
    if (r->used == 4) {
        philox(r->counter, r->key, r->block);
        if (++r->counter[0] == 0)
            r->counter[1]++;
        r->used = 0;
    }
    return r->block[r->used++];
}

double rng_unit(struct rng *r)
{
    uint32_t a = rng_u32(r) >> 5, b = rng_u32(r) >> 6;

    return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
}

double rng_uniform(struct rng *r, double low, double high)
{
    return low + (high - low) * rng_unit(r);
}

double rng_normal(struct rng *r)
{
    double u = 1.0 - rng_unit(r), v = rng_unit(r); // u > 0

    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)(((uint64_t)rng_u32(r) * n) >> 32);
}
