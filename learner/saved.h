// saved.h - what checkpoints of both training loops have in common: counters and options.
//
// Threads: one at a time.
#ifndef LEARNER_SAVED_H
#define LEARNER_SAVED_H

#include "common/base/config.h"
#include "nn/h5file.h"

#define SAVED_COUNT_MAX 1000000000000000LL

// Counters of a training loop that the updater does not know.
struct train_progress {
    uint64_t windows;      // optimizer windows done
    uint64_t env_steps;    // samples used; with episodes: executed
    uint64_t episodes;     // finished episodes seen
    double seconds;        // training time so far
    uint64_t dropped;      // chunks dropped as too stale; episodes in groups that were not kept
    uint64_t next_episode; // index of the first episode that no env has played; 0 with chunks
};

NODISCARD enum status saved_put_progress(struct h5file *f, const struct train_progress *p);
NODISCARD enum status saved_get_progress(struct h5file *f, struct train_progress *p);

// The options that change the result, stored under their names; values lie in `base`.
NODISCARD enum status saved_put_options(struct h5file *f, const struct opt *options,
                                        const void *base);
// ST_INVAL names one that differs.
NODISCARD enum status saved_check_options(struct h5file *f, const struct opt *options,
                                          const void *base);

#endif
