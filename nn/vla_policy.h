// vla_policy.h - inference of a vision-language-action policy: pictures, state and instruction in,
// a chunk of actions out. nn/policy.h is the door to it.
//
// Rows are computed a few at a time, so memory does not grow with their number. Actions are a
// diagonal Gaussian on the scale of the network, or what a flow makes of noise; what comes out is
// on the task's scale, log-probabilities are those of the network's. The noise that a flow begins
// with is a function of the row, whether greedy or not; greedy means Euler's steps, without more
// noise.
//
// Threads: one policy object per thread; weights may be shared.
#ifndef NN_VLA_POLICY_H
#define NN_VLA_POLICY_H

#include "nn/policy_row.h"
#include "nn/weights.h"

struct vla_policy;

// For the model of these weights.
NODISCARD enum status vla_policy_create(struct vla_policy **out, const struct weights *w);
void vla_policy_destroy(struct vla_policy *p); // NULL is fine

// As policy_act: action (n, chunk, action), logp (n, chunk) or NULL. The weights must stay during
// the call.
NODISCARD enum status vla_policy_act(struct vla_policy *p, const struct weights *w,
                                     const struct policy_row *rows, int n, bool greedy,
                                     float *action, float *logp);

// As policy_draw, policy_latent and policy_log_std.
NODISCARD enum status vla_policy_draw(struct vla_policy *p, const struct weights *w,
                                      const struct policy_row *rows, int n,
                                      const struct policy_draw *out);
int vla_policy_latent(const struct vla_config *c);
NODISCARD enum status vla_policy_log_std(const struct weights *w, float *log_std);

#endif
