// admission.h - how far rollout may run ahead of the learner, and what is too old to learn from.
//
// With staleness eta, a decision made now may be used eta windows later at most (the rule of AReaL,
// arXiv 2505.24298, per env): an env may have made (version + 1 + eta) * horizon decisions in all.
// eta = 0 is the synchronous mode. Pure functions.
#ifndef LEARNER_ADMISSION_H
#define LEARNER_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

// Decisions that an env of a worker which joined at version `joined` may have made in all.
static inline uint64_t admission_limit(uint64_t version, uint64_t joined, uint64_t horizon,
                                       uint64_t eta)
{
    return (version - joined + 1 + eta) * horizon;
}

// Versions between the oldest decision of a chunk and now.
static inline uint64_t admission_lag(uint64_t version, uint64_t version_min)
{
    return version > version_min ? version - version_min : 0;
}

#endif
