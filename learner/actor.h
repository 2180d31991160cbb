// actor.h - a policy of action chunks as its update sees it: means of decisions forward, gradients
// backward, whatever the model's family.
//
// The family of weights.h's perceptrons: the observation, normalised as the weights say, and the
// views of a model with vision (model.h: `stack` is their number) give chunk * n_act means. Its
// numbers are those of nn/policy.h to the bit, so the ratio of fresh data is exactly 1.
//
// Threads: one at a time.
#ifndef LEARNER_ACTOR_H
#define LEARNER_ACTOR_H

#include "nn/weights.h"

#define ACTOR_ROWS 256 // decisions of one pass at most

// What was decided on; borrowed.
struct actor_row {
    const float *obs;        // (n_obs) raw
    const uint8_t *pictures; // (n_view, picture_bytes); NULL without vision
    const char *instruction; // what the task asks for
};

struct actor;

// `w` gives sizes and normalisers, which stay as they are (borrowed, copied).
NODISCARD enum status actor_create(struct actor **out, const struct weights *w);
void actor_destroy(struct actor *a); // NULL is fine

int actor_width(const struct actor *a);          // chunk * n_act
int64_t actor_params(const struct actor *a);     // parameters that are trained, from the first on
int64_t actor_log_std_at(const struct actor *a); // the first log standard deviation's place
int actor_ld(const struct actor *a);             // from one row of means to the next

// Use these parameters (all of the weights'), which must stay until the next call.
void actor_use(struct actor *a, const float *params);

// The present standard deviations of a chunk: (width) each.
const float *actor_log_std(const struct actor *a);
const float *actor_inv_std(const struct actor *a);

// Means of n <= ACTOR_ROWS decisions: (n, ld), valid until the next call.
NODISCARD enum status actor_forward(struct actor *a, const struct actor_row *rows, int n,
                                    const float **mean);

// Where the gradient of the loss by these means goes before actor_backward: (n, ld).
float *actor_mean_grad(struct actor *a);

// After actor_forward of the same rows: grad (actor_params) += the gradient; log_std_grad (width)
// is that by the log standard deviations.
void actor_backward(struct actor *a, int n, const float *log_std_grad, float *grad);

#endif
