// learner.h - the training loop (serve.h) of policies that decide on each step: admits chunks,
// closes windows.
//
// A window (global batch) is horizon steps of every env: num_envs * horizon samples. With all three
// switches off, chunks are processed in the order (env, index). Chunks older than max_staleness are
// counted and dropped.
//
// Threads: learner_run is called by one thread and returns when training has ended.
#ifndef LEARNER_LEARNER_H
#define LEARNER_LEARNER_H

#include "learner/serve.h"

// Runs until total_steps, a limit of cfg, or *stop. On a stop the work of closed windows is kept:
// checkpoint.h5 and policy.h5 are written in any case.
NODISCARD enum status learner_run(const struct learner_config *cfg, const atomic_bool *stop,
                                  struct learner_progress *progress);

#endif
