// history.h - where the episodes of a rollout worker are, and how they came there: the identity of
// each env's open episode and the actions that it has executed.
//
// Physics is deterministic, so an episode number and the actions so far are all that another worker
// needs to go on exactly there: it starts the episode and replays them. As a STATE message this
// travels to the learner, which keeps it in its checkpoint.
//
// Threads: one at a time. Memory grows to the longest episode, then stays.
#ifndef ROLLOUT_HISTORY_H
#define ROLLOUT_HISTORY_H

#include "common/wire/trainproto.h"

struct history;

NODISCARD enum status history_create(struct history **out, int n_env, int n_act);
void history_destroy(struct history *h); // NULL is fine

// The open episode of an env and how many steps of it are behind.
uint64_t history_episode(const struct history *h, int env);
uint32_t history_elapsed(const struct history *h, int env);

// The action (n_act) that is on its way to an env, as it will be executed.
NODISCARD enum status history_act(struct history *h, int env, const float *action);

// The env answered: its action was executed.
void history_executed(struct history *h, int env);

// The env is at the start of this episode.
void history_begin(struct history *h, int env, uint64_t episode);

// The next action of an env that has to be replayed, NULL when the env is where it should be.
// history_executed moves on; history_act is for new actions only.
const float *history_replay(const struct history *h, int env);

// All episodes as a STATE message; `env_first` is the global number of env 0.
NODISCARD enum status history_write(const struct history *h, uint32_t env_first, struct msg **out);

// Take over the episodes of a STATE: all envs are at the start of theirs, with actions to replay.
// ST_PROTO if it is about other envs.
NODISCARD enum status history_read(struct history *h, uint32_t env_first, const struct msg *m);

#endif
