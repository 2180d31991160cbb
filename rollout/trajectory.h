// trajectory.h - the open chunks of all envs of a rollout worker: steps are appended until a chunk
// holds `horizon` of them, then it becomes a CHUNK message.
//
// A step has two halves: the decision (observation, action, log-probability, weights version), and
// its outcome (reward, end of the episode) when the env server answers.
//
// With pictures, each is kept once; `pictures` below are those that the policy sees with an
// observation, (stack) places of picture_bytes each, the oldest first (see framestack.h).
//
// Threads: one at a time. Memory: all of it is allocated at creation, but for the pictures of final
// observations, which are few.
#ifndef ROLLOUT_TRAJECTORY_H
#define ROLLOUT_TRAJECTORY_H

#include "common/wire/trainproto.h"

struct trajectory;

struct trajectory_config {
    int n_env, horizon, n_obs, n_act;
    size_t picture_bytes; // 0: no pictures, and NULL for them below
    int stack;
};

NODISCARD enum status trajectory_create(struct trajectory **out,
                                        const struct trajectory_config *cfg);
void trajectory_destroy(struct trajectory *t); // NULL is fine

// First half. obs is (n_obs), action is (n_act) as sampled. The env has no open decision.
void trajectory_decide(struct trajectory *t, int env, const double *obs,
                       const uint8_t *const *pictures, const float *action, float logp,
                       uint64_t version);

// Second half. `flags` are those of the chunk; final_obs (n_obs) and the picture of it are needed
// with CHUNK_TRUNCATED. *full: the chunk is full now.
NODISCARD enum status trajectory_outcome(struct trajectory *t, int env, double reward,
                                         uint32_t flags, const double *final_obs,
                                         const uint8_t *final_picture, bool *full);

// An episode of the env has ended with this return and length; listed in its chunk.
void trajectory_episode(struct trajectory *t, int env, double episode_return, uint32_t length);

// Forget the open chunk of an env, with an open decision.
void trajectory_forget(struct trajectory *t, int env);

// Close the full chunk of an env as a message; `last_obs` (n_obs) follows its last step.
NODISCARD enum status trajectory_close(struct trajectory *t, int env, const double *last_obs,
                                       const uint8_t *last_picture, uint32_t worker,
                                       uint32_t env_global, struct msg **out);

#endif
