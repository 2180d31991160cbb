// actor.h - a policy of action chunks as its update sees it: means of decisions forward, gradients
// backward, whatever the model's family.
//
// The family of weights.h's perceptrons: the observation, normalised as the weights say, and the
// views of a model with vision (model.h: `stack` is their number) give chunk * n_act means. Its
// numbers are those of nn/policy.h to the bit, so the ratio of fresh data is exactly 1. A vision-
// language-action model (actor_vla.h) sees the robot's state, pictures and the instruction; it has
// one standard deviation for each number of an action, which all actions of a chunk share.
//
// With a critic the value of each decision's observation comes along: from a network of its own
// behind the perceptrons' policy, from a head on the trunk of the other family. It is on the scale
// of the network (PopArt, scale.h).
//
// Threads: one at a time.
#ifndef LEARNER_ACTOR_H
#define LEARNER_ACTOR_H

#include "learner/actor_vla.h"
#include "nn/weights.h"

#define ACTOR_ROWS 256 // decisions of one pass at most

struct actor;

// `w` gives sizes and normalisers, which stay as they are (borrowed, copied). `budget`: tokens of a
// pass of a vision-language-action model.
NODISCARD enum status actor_create(struct actor **out, const struct weights *w, int64_t budget,
                                   bool critic);
void actor_destroy(struct actor *a); // NULL is fine

int actor_rows(const struct actor *a);           // decisions of a pass, at most ACTOR_ROWS
int actor_width(const struct actor *a);          // chunk * n_act
int actor_ld(const struct actor *a);             // from one row of means to the next
int64_t actor_params(const struct actor *a);     // parameters that are trained, from the first on
int64_t actor_log_std_at(const struct actor *a); // the first log standard deviation's place
int actor_n_log_std(const struct actor *a);      // how many there are
int actor_latent(const struct actor *a);         // numbers of a row's latent, 0: none
// Parameters from here on are the value network's alone; actor_params if none are.
int64_t actor_critic_at(const struct actor *a);

// Use these parameters (all of the weights'), which must stay until the next call.
void actor_use(struct actor *a, const float *params);

// The present standard deviations of a chunk: (width) each. Those of a flow are 1, for its means
// are in units of them; its log_std is the log of its noise level, which has no gradient.
const float *actor_log_std(const struct actor *a);
const float *actor_inv_std(const struct actor *a);

// Means of n <= actor_rows decisions: (n, ld), valid until the next call.
NODISCARD enum status actor_forward(struct actor *a, const struct actor_row *rows, int n,
                                    const float **mean);

// Where the gradient of the loss by these means goes before actor_backward: (n, ld).
float *actor_mean_grad(struct actor *a);

// With a critic, of the same decisions: value of row i, and its place for the gradient.
float actor_value(const struct actor *a, int i);
float *actor_value_grad(struct actor *a, int i);

// Change the value's last layer in `params`, so that mean + std * V predicts what it did with the
// old ones.
void actor_value_rescale(const struct actor *a, float *params, double old_mean, double old_std,
                         double mean, double std);

// After actor_forward of the same rows: grad (actor_params) += the gradient; log_std_grad (width)
// is that by the log standard deviations.
void actor_backward(struct actor *a, int n, const float *log_std_grad, float *grad);

#endif
