// np_random.h - NumPy's legacy generator (np.random.seed, uniform, randn), number for number.
//
// MT19937: Matsumoto & Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998; seeded by the
// authors' init_genrand. Normals by the polar method with its second value kept, as NumPy does.
//
// Threads: a struct np_random belongs to one thread.
#ifndef SCENES_LIBERO_NP_RANDOM_H
#define SCENES_LIBERO_NP_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct np_random {
    uint32_t mt[624];
    int used; // numbers of `mt` that are used up
    bool has_normal;
    double normal; // the second value of the last pair
};

void np_seed(struct np_random *r, uint32_t seed);

double np_unit(struct np_random *r); // [0, 1) with 53 bits
// low + (high - low) * unit; high < low is accepted.
double np_uniform(struct np_random *r, double low, double high);
double np_randn(struct np_random *r);

#endif
