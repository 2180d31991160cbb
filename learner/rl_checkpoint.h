// rl_checkpoint.h - everything that training from groups needs to go on where it stopped, as one
// HDF5 file; see checkpoint.h.
#ifndef LEARNER_RL_CHECKPOINT_H
#define LEARNER_RL_CHECKPOINT_H

#include "learner/rl_update.h"

// Counters of the training loop.
struct rl_progress {
    uint64_t windows, env_steps;
    uint64_t episodes; // played
    uint64_t dropped;  // of them, in groups that were not kept
    uint64_t next;     // index of the first episode that no env has played
    double seconds;
};

// Options that change the result are written too.
NODISCARD enum status rl_checkpoint_save(const char *path, const struct update_config *cfg,
                                         const struct rl_config *rl, struct rl_updater *u,
                                         const struct rl_progress *progress);
// ST_INVAL names the option or size that differs. After a failure the updater can only be
// destroyed.
NODISCARD enum status rl_checkpoint_load(const char *path, const struct update_config *cfg,
                                         const struct rl_config *rl, struct rl_updater *u,
                                         struct rl_progress *progress);

#endif
