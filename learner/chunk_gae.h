// chunk_gae.h - generalised advantage estimation over an episode of chunks (Schulman et al. 2016,
// eq. 16, with a decision as the step):
//
//   delta_k = r_k + gamma V_k+1 - V_k        A_k = delta_k + gamma lambda A_k+1
//
// r_k is the sum of the rewards of the executed actions of decision k. Behind the last one stands V
// of what was seen last where the episode could have gone on (EPISODE_FINAL), else 0: a goal was
// reached, an episode failed, or time was up where that is a failure.
//
// Threads: a pure function.
#ifndef LEARNER_CHUNK_GAE_H
#define LEARNER_CHUNK_GAE_H

#include "common/wire/episode.h"

// value (episode_n_seen) in; advantage, ret (n_decision) out: A and the value's target A + V.
void chunk_gae_run(const struct episode *e, double gamma, double lambda, const float *value,
                   float *advantage, float *ret);

#endif
