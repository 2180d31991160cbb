// rl_checkpoint.h - everything that training from groups needs to go on where it stopped, as one
// HDF5 file; see checkpoint.h.
#ifndef LEARNER_RL_CHECKPOINT_H
#define LEARNER_RL_CHECKPOINT_H

#include "learner/rl_update.h"
#include "learner/saved.h"

// Options that change the result are written too.
NODISCARD enum status rl_checkpoint_save(const char *path, const struct update_config *cfg,
                                         const struct rl_config *rl, struct rl_updater *u,
                                         const struct train_progress *progress);
// ST_INVAL names the option or size that differs. After a failure the updater can only be
// destroyed.
NODISCARD enum status rl_checkpoint_load(const char *path, const struct update_config *cfg,
                                         const struct rl_config *rl, struct rl_updater *u,
                                         struct train_progress *progress);

#endif
