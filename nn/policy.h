// policy.h - inference: observation rows in, actions and log-probabilities out.
//
// A row's result is the same to the bit whatever batch it is in (every row is computed in the same
// order of operations), so neither the number of envs nor the batch cut changes an episode.
//
// Threads: one policy object per thread; weights may be shared.
#ifndef NN_POLICY_H
#define NN_POLICY_H

#include "common/base/rng.h"
#include "nn/weights.h"

struct policy;

// One row to act for. The noise is a function of (seed, stream, episode, step).
struct policy_row {
    const double *obs; // (n_obs) raw
    uint64_t seed, stream, episode, step;
    const uint8_t *const *pictures; // (stack) of a model with vision, see encoder.h
};

// Workspace for up to n_max rows of this shape.
NODISCARD enum status policy_create(struct policy **out, const struct model_shape *shape,
                                    int n_max);
void policy_destroy(struct policy *p);

// action (n, n_act) as sampled (not clipped), logp (n) or NULL. `greedy`: the mean, logp of it.
// ST_INVAL if the weights have another shape or an observation is not finite (the row is named).
NODISCARD enum status policy_act(struct policy *p, const struct weights *w,
                                 const struct policy_row *rows, int n, bool greedy, float *action,
                                 float *logp);

#endif
