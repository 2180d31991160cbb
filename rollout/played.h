// played.h - the open episodes of all envs of a rollout worker of chunk policies: decisions and
// their outcomes are appended until the episode ends, then it becomes an EPISODE message.
//
// Threads: one at a time. Memory grows to the longest episode, then stays.
#ifndef ROLLOUT_PLAYED_H
#define ROLLOUT_PLAYED_H

#include "common/wire/episode.h"

struct played;

struct played_config {
    int n_env, n_obs, n_act, chunk;
    int n_view;           // pictures of an observation
    size_t picture_bytes; // of one
    int n_latent;         // numbers of a decision's latent
};

// A decision, all of it copied.
struct played_decision {
    const double *obs;           // (n_obs)
    const uint8_t *const *views; // (n_view) places of pictures
    const float *action, *logp;  // (chunk, n_act) as sampled, (chunk)
    const float *latent;         // (n_latent)
    uint64_t version;            // of the weights
};

NODISCARD enum status played_create(struct played **out, const struct played_config *cfg);
void played_destroy(struct played *p); // NULL is fine

// The env is at the start of its episode number `index`, member `member` of `group`.
void played_begin(struct played *p, int env, uint64_t index, uint64_t group, uint32_t member);

uint64_t played_index(const struct played *p, int env);
uint64_t played_group(const struct played *p, int env);
uint32_t played_member(const struct played *p, int env);
int played_decisions(const struct played *p, int env); // behind it, with outcome

// The env has no open decision.
NODISCARD enum status played_decide(struct played *p, int env, const struct played_decision *d);

// Its outcome: `executed` actions and their rewards. With 0 the decision is forgotten.
void played_outcome(struct played *p, int env, const double *reward, uint32_t executed);

// What was seen last goes behind the decisions' observations; the env has no open decision.
NODISCARD enum status played_final(struct played *p, int env, const double *obs,
                                   const uint8_t *const *views);

// The episode has ended: a message. `flags` as in episode.h.
NODISCARD enum status played_end(struct played *p, int env, uint32_t env_global, uint32_t flags,
                                 double score, double episode_return, struct msg **out);

#endif
