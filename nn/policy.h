// policy.h - inference: observation rows in, actions and log-probabilities out.
//
// A row's result is the same to the bit whatever batch it is in (every row is computed in the same
// order of operations), so neither the number of envs nor the batch cut changes an episode.
//
// Threads: one policy object per thread; weights may be shared.
#ifndef NN_POLICY_H
#define NN_POLICY_H

#include "common/base/rng.h"
#include "nn/policy_row.h"
#include "nn/weights.h"

struct policy;

// Workspace for up to n_max rows of this shape.
NODISCARD enum status policy_create(struct policy **out, const struct model_shape *shape,
                                    int n_max);
void policy_destroy(struct policy *p);

// The same for the model of these weights, whatever its kind.
NODISCARD enum status policy_create_of(struct policy **out, const struct weights *w, int n_max);

// Actions that policy_act gives for a row: 1, or the chunk of a vision-language-action model, whose
// row is (chunk, actions) and has a log-probability for each of them.
int policy_chunk(const struct policy *p);

// action (n, n_act) as sampled (not clipped), logp (n) or NULL. `greedy`: the mean, logp of it.
// ST_INVAL if the weights have another shape or an observation is not finite (the row is named).
NODISCARD enum status policy_act(struct policy *p, const struct weights *w,
                                 const struct policy_row *rows, int n, bool greedy, float *action,
                                 float *logp);

// Draw decisions of n rows. What is drawn from is a diagonal Gaussian of the standard deviations
// that policy_log_std gives: the policy's own, and drawn and action are the same. Of a flow one
// step of its stochastic sampler is drawn (heads.h), in units of its own standard deviation, and
// the action is where the flow takes it from there; `latent` is where that step began, and its
// number.
NODISCARD enum status policy_draw(struct policy *p, const struct weights *w,
                                  const struct policy_row *rows, int n,
                                  const struct policy_draw *out);

// Numbers of `latent` of a model of these weights: 0, or chunk * actions + 1 of a flow.
int policy_latent(const struct weights *w);

// log_std (chunk * actions) of the Gaussian that policy_draw draws from; ST_NOMEM.
NODISCARD enum status policy_log_std(const struct weights *w, float *log_std);

#endif
