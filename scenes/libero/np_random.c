#include "scenes/libero/np_random.h"

#include <math.h>

#define N 624
#define M 397

void np_seed(struct np_random *r, uint32_t seed)
{
    int i;

    r->mt[0] = seed;
    for (i = 1; i < N; i++)
        r->mt[i] = 1812433253u * (r->mt[i - 1] ^ (r->mt[i - 1] >> 30)) + (uint32_t)i;
    r->used = N;
    r->has_normal = false;
    r->normal = 0;
}

static void refill(struct np_random *r)
{
    int i;

    for (i = 0; i < N; i++) {
        uint32_t y = (r->mt[i] & 0x80000000u) | (r->mt[(i + 1) % N] & 0x7fffffffu);

        r->mt[i] = r->mt[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    r->used = 0;
}

static uint32_t next(struct np_random *r)
{
    uint32_t y;

    if (r->used == N)
        refill(r);
    y = r->mt[r->used++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

double np_unit(struct np_random *r)
{
    uint32_t a = next(r) >> 5, b = next(r) >> 6;

    return (a * 67108864.0 + b) / 9007199254740992.0;
}

double np_uniform(struct np_random *r, double low, double high)
{
    return low + (high - low) * np_unit(r);
}

double np_randn(struct np_random *r)
{
    double x1, x2, r2, f;

    if (r->has_normal) {
        r->has_normal = false;
        return r->normal;
    }
    do {
        x1 = 2.0 * np_unit(r) - 1.0;
        x2 = 2.0 * np_unit(r) - 1.0;
        r2 = x1 * x1 + x2 * x2;
    } while (r2 >= 1.0 || r2 == 0.0);
    f = sqrt(-2.0 * log(r2) / r2);
    r->normal = f * x1;
    r->has_normal = true;
    return f * x2;
}
