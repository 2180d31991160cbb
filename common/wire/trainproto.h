// trainproto.h - the messages between rollout workers and a learner.
//
//   rollout                             learner
//   JOIN    who it is              ->
//                                  <-   WEIGHTS  version, how far it may run ahead, parameters
//                                  <-   STATE    first of all, if training goes on from a
//                                  checkpoint
//   CHUNK   T steps of one env     ->
//   EPISODE a whole episode, from a worker of chunk policies (episode.h)
//   STATE   where its episodes are ->
//   LOST    envs that are gone     ->
//   BACK    envs that return       ->
//                                  <-   WEIGHTS  after each global batch
//                                  <-   BYE      training has ended
//
// Numbers are checked before use: sizes against JOIN, values for being finite.
#ifndef COMMON_WIRE_TRAINPROTO_H
#define COMMON_WIRE_TRAINPROTO_H

#include "common/wire/spec.h"

#define TRAINPROTO_VERSION 5
#define TRAIN_STEPS_MAX    65536
#define TRAIN_LEAD_MAX     64
#define TRAIN_SIDE_MAX     4096 // of a picture
#define CHUNK_BYTES_MAX    (256u << 20)

struct join {
    uint32_t version;
    uint32_t n_env;     // envs of this rollout worker
    uint32_t env_first; // global number of the first
    uint64_t seed;
    uint32_t horizon; // env steps of a chunk
    uint32_t n_obs, n_act;
    uint32_t width, height; // of the pictures that it sends, RGB; 0 = none
    uint32_t chunk;         // actions of a decision: the worker sends EPISODEs; 0: CHUNKs
    uint32_t n_view;        // pictures of an observation
    char task[SPEC_NAME_MAX];
    char picture[SPEC_NAME_MAX]; // their names, separated by commas; "" = none
    char instruction[SPEC_TEXT_MAX];
};

// Bytes of one of them.
static inline uint32_t join_picture_bytes(const struct join *j)
{
    return 3 * j->width * j->height;
}

// Parameters as the learner publishes them; `blob` is nn/weights.h's own format.
struct weights_head {
    uint64_t version;    // optimizer windows behind these weights
    uint64_t admit;      // env steps that each env may have submitted in all before it must wait
    uint32_t blob_bytes; // the rest of the message
    uint32_t want_state; // 1 = answer with STATE before the next decision: a checkpoint is made
    // for workers that send EPISODEs, whose `admit` counts episodes; 0 for others:
    uint32_t group_size; // episodes of a group, which divides n_env and the worker's part of it
    uint32_t n_env;      // envs of all workers
    uint64_t start;      // index of the first episode of each env that has made none yet
};

enum chunk_flag {
    CHUNK_TERMINATED = 1,
    CHUNK_TRUNCATED = 2,
    CHUNK_ERROR = 4, // the episode ended by an error: the step counts, nothing is bootstrapped
    CHUNK_SKIP = 8,  // a step that only reset the env (next-step autoreset): not a sample
};

// T consecutive steps of one env. The arrays follow the head: `version` first, since its numbers
// have 8 bytes, then the others in the order of struct chunk.
struct chunk_head {
    uint32_t worker, env; // env is global: unique over all workers
    uint64_t index;       // chunks of this env before this one
    uint64_t version_min, version_max;
    uint32_t n_step, n_obs, n_act;
    uint32_t n_truncated;   // steps with CHUNK_TRUNCATED
    uint32_t n_episode;     // finished episodes listed at the end
    uint32_t n_lead;        // pictures before the first step
    uint32_t picture_bytes; // of one; 0: no pictures, and none before
    uint32_t reserved;
};

// The arrays of a chunk; pointers into a message, or what a writer copies from.
struct chunk {
    struct chunk_head head;
    const float *obs;      // (n_step, n_obs) raw observations that the actions answered
    const float *last_obs; // (n_obs) the observation after the last step
    const float
        *final_obs;        // (n_truncated, n_obs) the true final observation of each truncated step
    const float *action;   // (n_step, n_act) as sampled, before clipping
    const float *logp;     // (n_step) log-probability under the behaviour policy
    const float *reward;   // (n_step)
    const uint32_t *flags; // (n_step) enum chunk_flag
    const uint64_t *version;     // (n_step) weights that chose the action
    const float *episode_return; // (n_episode)
    const float *episode_length; // (n_episode) env steps
    // (n_lead + n_step + 1, picture_bytes) each picture once: those that the policy saw before the
    // first step's (of an earlier episode never; the first of this one again instead), those of
    // obs, that of last_obs
    const uint8_t *pictures;
    const uint8_t *final_pictures; // (n_truncated, picture_bytes) of final_obs; behind `pictures`
                                   // in a chunk that was read
};

static inline uint32_t chunk_n_picture(const struct chunk_head *h)
{
    return h->picture_bytes ? h->n_lead + h->n_step + 1 + h->n_truncated : 0;
}

// Where the episodes of a worker are, so that a later worker can go on exactly there: an episode is
// its identity and the actions executed so far.
struct episode_state {
    uint64_t episode;
    uint32_t elapsed; // actions executed
    uint32_t reserved;
    const float *action; // (elapsed, n_act) clipped as executed
};

NODISCARD enum status state_begin(struct msg **out, uint32_t env_first, uint32_t n_env,
                                  uint32_t n_act);
NODISCARD enum status state_add(struct msg *m, const struct episode_state *s, uint32_t n_act);
// Head of a STATE; then call state_next n_env times and reader_end.
NODISCARD enum status state_read(const struct msg *m, uint32_t n_act, struct reader *r,
                                 uint32_t *env_first, uint32_t *n_env);
NODISCARD enum status state_next(struct reader *r, uint32_t n_act, struct episode_state *out);

// Envs (global numbers, ascending) that send nothing more: their env server is gone.
NODISCARD enum status lost_write(struct msg **out, const uint32_t *env, uint32_t n);
NODISCARD enum status lost_read(const struct msg *m, const uint32_t **env, uint32_t *n);

// Lost envs whose server is there again. They go on as if each had sent `chunks` chunks so far:
// what they missed is not made up for.
NODISCARD enum status back_write(struct msg **out, uint64_t chunks, const uint32_t *env,
                                 uint32_t n);
NODISCARD enum status back_read(const struct msg *m, uint64_t *chunks, const uint32_t **env,
                                uint32_t *n);

NODISCARD enum status join_write(struct msg **out, const struct join *j);
NODISCARD enum status join_read(const struct msg *m, struct join *out);
NODISCARD enum status weights_write(struct msg **out, const struct weights_head *h,
                                    const void *blob);
NODISCARD enum status weights_read(const struct msg *m, struct weights_head *out,
                                   const void **blob);
NODISCARD enum status chunk_write(struct msg **out, const struct chunk *c);
// Sizes are those of the JOIN and `n_lead`; any other is ST_PROTO, as is a number that is not
// finite.
NODISCARD enum status chunk_read(const struct msg *m, const struct join *j, uint32_t n_lead,
                                 struct chunk *out);

#endif
