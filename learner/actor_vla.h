// actor_vla.h - a vision-language-action policy as its update sees it; learner/actor.h is the door
// to it, and says what the functions do.
//
// Decisions of any instructions go through the model together, packed: `rows` of them at a time, as
// the token budget allows. Of a flow the mean is that of the stochastic step that acted, in units
// of its standard deviation. The observation of a decision is the robot's state, its pictures one a
// camera.
#ifndef LEARNER_ACTOR_VLA_H
#define LEARNER_ACTOR_VLA_H

#include "nn/weights.h"

struct actor_row {
    const float *obs;        // (n_obs) raw
    const uint8_t *pictures; // (n_view, picture_bytes); NULL without vision
    const char *instruction; // what the task asks for
    const float *latent;     // (actor_vla_latent) of a flow: policy_draw of nn/policy.h
};

struct actor_vla;

// `budget`: tokens of a pass. ST_INVAL if a decision has more.
NODISCARD enum status actor_vla_create(struct actor_vla **out, const struct weights *w,
                                       int64_t budget);
void actor_vla_destroy(struct actor_vla *a); // NULL is fine

int actor_vla_rows(const struct actor_vla *a);
int actor_vla_latent(const struct actor_vla *a); // numbers of a row's latent, 0: none
int64_t actor_vla_params(const struct actor_vla *a);
int64_t actor_vla_log_std_at(const struct actor_vla *a); // (action) of them
int64_t actor_vla_bytes(const struct actor_vla *a);      // of the workspace

void actor_vla_use(struct actor_vla *a, const float *params);
NODISCARD enum status actor_vla_forward(struct actor_vla *a, const struct actor_row *rows, int n,
                                        const float **mean);
float *actor_vla_mean_grad(struct actor_vla *a);
const float *actor_vla_value(const struct actor_vla *a);
float *actor_vla_value_grad(struct actor_vla *a);
int64_t actor_vla_value_at(const struct actor_vla *a); // the value head's row; its bias is behind
int actor_vla_value_cols(const struct actor_vla *a);
// Without log_std's part; `critic`: with the value's.
void actor_vla_backward(struct actor_vla *a, bool critic, float *grad);

#endif
