// rollout.h - a rollout worker (worker.h) of a policy that decides on each step: steps are appended
// to each env's open chunk, closed chunks stream to the learner, so data is never staler than the
// learner's bound. The envs of a lost server begin new episodes when it is back.
//
// Noise of an action is a function of (seed, stream = global env number, episode, step).
//
// Threads: rollout_run is called by one thread; it starts one receiver per env server and one for
// the learner.
#ifndef ROLLOUT_ROLLOUT_H
#define ROLLOUT_ROLLOUT_H

#include "rollout/worker.h"

// Runs until the learner says BYE (ST_OK), *stop, or a failure: a server or the learner is gone.
NODISCARD enum status rollout_run(const struct rollout_config *cfg, const atomic_bool *stop,
                                  struct rollout_progress *progress);

#endif
