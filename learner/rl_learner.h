// rl_learner.h - the training loop (serve.h) for policies of action chunks: collects groups of
// whole episodes, closes windows.
//
// A window is `window_episodes` episodes of groups that were kept: how many are played for it
// depends on how many groups are uniform, `window_max` times as many at most. Groups are admitted,
// scored and dropped as a whole (groups.h). Without train-async the workers have played all that
// they may when a window closes, and groups are taken in the order of their numbers; with it groups
// with a member that is too old are dropped. `streaming` runs forward and backward for groups as
// they are completed.
//
// What a worker that goes away leaves of groups is settled without it. Every worker has one task,
// and the task's instruction goes with its episodes.
//
// Threads: rl_learner_run is called by one thread and returns when training has ended.
#ifndef LEARNER_RL_LEARNER_H
#define LEARNER_RL_LEARNER_H

#include "learner/serve.h"

// As learner_run, for cfg->rl.algo other than RL_PPO.
NODISCARD enum status rl_learner_run(const struct learner_config *cfg, const atomic_bool *stop,
                                     struct learner_progress *progress);

#endif
