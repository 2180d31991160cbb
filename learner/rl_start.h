// rl_start.h - the policy that training from groups begins with: a new one, that of --init, or that
// of a checkpoint, and its updater.
//
// Threads: one at a time.
#ifndef LEARNER_RL_START_H
#define LEARNER_RL_START_H

#include "learner/rl_checkpoint.h"
#include "learner/serve.h"

// The policy of cfg->rl.init, of the checkpoint with cfg->resume, or NULL: then a new one is made
// for the first worker's task.
NODISCARD enum status rl_start_read(struct weights **out, const struct learner_config *cfg);

// The updater, for a worker that has joined. `initial` is from above (borrowed); ST_INVAL if it
// does not fit what the worker sees and does. With cfg->resume it goes on from the checkpoint, and
// *progress is that one's.
NODISCARD enum status rl_start_updater(struct rl_updater **out, const struct learner_config *cfg,
                                       const struct weights *initial, const struct join *j,
                                       struct train_progress *progress);

#endif
