// trajectory.h - the open chunks of all envs of a rollout worker: steps are appended until a chunk
// holds `horizon` of them, then it becomes a CHUNK message.
//
// A step has two halves: the decision (observation, action, log-probability, weights version), and
// its outcome (reward, end of the episode) when the env server answers.
//
// Threads: one at a time. Memory: all of it is allocated at creation.
#ifndef ROLLOUT_TRAJECTORY_H
#define ROLLOUT_TRAJECTORY_H

#include "common/wire/trainproto.h"

struct trajectory;

NODISCARD enum status trajectory_create(struct trajectory **out, int n_env, int horizon, int n_obs,
                                        int n_act);
void trajectory_destroy(struct trajectory *t); // NULL is fine

// First half. obs is (n_obs), action is (n_act) as sampled. The env has no open decision.
void trajectory_decide(struct trajectory *t, int env, const double *obs, const float *action,
                       float logp, uint64_t version);

// Second half. `flags` are those of the chunk; final_obs (n_obs) is needed with CHUNK_TRUNCATED.
// True if the chunk is full now.
bool trajectory_outcome(struct trajectory *t, int env, double reward, uint32_t flags,
                        const double *final_obs);

// An episode of the env has ended with this return and length; listed in its chunk.
void trajectory_episode(struct trajectory *t, int env, double episode_return, uint32_t length);

// Close the full chunk of an env as a message; `last_obs` (n_obs) follows its last step.
NODISCARD enum status trajectory_close(struct trajectory *t, int env, const double *last_obs,
                                       uint32_t worker, uint32_t env_global, struct msg **out);

#endif
