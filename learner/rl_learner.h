// rl_learner.h - the training loop for policies of action chunks: accepts rollout workers that play
// whole episodes, collects groups, closes windows, publishes weights, writes checkpoints.
//
// A window is `window_episodes` episodes of groups that were kept: how many are played for it
// depends on how many groups are uniform, `window_max` times as many at most. Groups are admitted,
// scored and dropped as a whole (groups.h). The switches are those of learner.h: without
// train-async the workers have played all that they may when a window closes, groups are taken in
// the order of their numbers, and a run is a function of its seed, however it is deployed; with it
// they run `max_staleness` windows ahead, and groups with a member that is too old are dropped.
// `streaming` runs forward and backward for groups as they are completed.
//
// A worker that goes away takes its envs with it; what it leaves of groups is settled without it.
// Every worker has one task, and the task's instruction goes with its episodes.
//
// Threads: rl_learner_run is called by one thread and returns when training has ended.
#ifndef LEARNER_RL_LEARNER_H
#define LEARNER_RL_LEARNER_H

#include "learner/learner.h"

// As learner_run, for cfg->rl.algo other than RL_PPO.
NODISCARD enum status rl_learner_run(const struct learner_config *cfg, const atomic_bool *stop,
                                     struct learner_progress *progress);

#endif
