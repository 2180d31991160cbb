// episode.h - the message of a finished episode, from a rollout worker that plays whole episodes of
// a policy of action chunks (JOIN: chunk > 0) to its learner.
//
// A decision is a chunk of actions; `executed` of them were, fewer than `chunk` where the episode
// ended. What is behind those means nothing. Episodes with the same group number began in the same
// state; members of a group are numbered from 0.
//
// Numbers are checked before use: sizes against JOIN, values for being finite.
#ifndef COMMON_WIRE_EPISODE_H
#define COMMON_WIRE_EPISODE_H

#include "common/wire/trainproto.h"

enum episode_flag {
    EPISODE_SUCCESS = 1,   // the task's goal was reached
    EPISODE_TRUNCATED = 2, // it ended by the time limit
    EPISODE_ERROR = 4,     // by an error: it has no score, and may have no decisions
    EPISODE_FINAL = 8,     // what was seen last stands behind the decisions' observations: the time
                           // limit cut off an episode that could have gone on
};

struct episode_head {
    uint64_t index; // episodes of this env before this one
    uint64_t group;
    uint64_t version_min, version_max; // of the decisions
    double score;                      // success 0 or 1 where the task knows it, else the return
    double episode_return;             // sum of rewards
    uint32_t env;                      // global: unique over all workers
    uint32_t member;
    uint32_t flags; // enum episode_flag
    uint32_t n_decision;
    uint32_t n_sub; // actions executed, in all
    uint32_t n_obs, n_act, chunk;
    uint32_t n_view, picture_bytes; // pictures of a decision, bytes of one; 0, 0: none
    uint32_t n_latent, unused;      // numbers of a decision's latent; 0
};

#define EPISODE_LATENT_MAX (SPEC_CHUNK_MAX * SPEC_ACT_MAX + 1)

// Pointers into a message, or what a writer copies from.
struct episode {
    struct episode_head head;
    const uint64_t *version;  // (n_decision) weights that chose the chunk
    const float *obs;         // (n_seen, n_obs) raw observations that the chunks answered
    const float *action;      // (n_decision, chunk, n_act) as sampled, before clipping
    const float *logp;        // (n_decision, chunk) log-probability of each action
    const float *reward;      // (n_decision, chunk)
    const uint32_t *executed; // (n_decision) 1..chunk
    const uint8_t *pictures;  // (n_seen, n_view, picture_bytes)
    const float *latent;      // (n_decision, n_latent) what else the policy's mean is a function of
                              // (policy_draw of nn/policy.h); the learner knows how many
};

// Observations of an episode: n_seen above.
static inline uint32_t episode_n_seen(const struct episode_head *h)
{
    return h->n_decision + ((h->flags & EPISODE_FINAL) != 0);
}

NODISCARD enum status episode_write(struct msg **out, const struct episode *e);
// Sizes are those of the JOIN; any other is ST_PROTO, as is a number that is not finite.
NODISCARD enum status episode_read(const struct msg *m, const struct join *j, struct episode *out);

#endif
