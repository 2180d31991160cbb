// obsnorm.h - the observation normaliser: (obs - mean) / std, clipped to +-10, from raw float32.
//
// Observations are rounded to float32 first, as they travel to the learner, so that rollout and
// learner see the same numbers.
//
// Threads: read by any after obsnorm_set.
#ifndef NN_OBSNORM_H
#define NN_OBSNORM_H

#include "common/base/status.h"

#define OBSNORM_CLIP 10.0

struct obsnorm {
    int n_obs;
    double *mean, *inv_std; // (n_obs), one block of memory
};

NODISCARD enum status obsnorm_init(struct obsnorm *o, int n_obs);
void obsnorm_fini(struct obsnorm *o);
void obsnorm_set(struct obsnorm *o, const double *mean, const double *var);

// x (n, REAL_LD(n_obs)) from raw (n, n_obs). The padding of x is not touched.
void obsnorm_rows(const struct obsnorm *o, const float *raw, int n, float *x);

#endif
