// checkpoint.h - everything that a learner needs to go on exactly where it stopped, as one HDF5
// file.
//
// Written to a temporary name and renamed; a reader never sees half a file. Loading checks shapes
// and the options that change the result, and names what differs.
#ifndef LEARNER_CHECKPOINT_H
#define LEARNER_CHECKPOINT_H

#include "learner/saved.h"
#include "learner/update.h"

// As of the last closed window; samples of an open one are not part of it.
NODISCARD enum status checkpoint_save(const char *path, struct updater *u,
                                      const struct train_progress *progress);
// Restores parameters, optimizer moments, normalisers, advantage scale and version into `u`, which
// is of the same model. What follows is the same to the bit as without the break. After a failure
// the updater can only be destroyed.
NODISCARD enum status checkpoint_load(const char *path, struct updater *u,
                                      struct train_progress *progress);

#endif
