// admission.h - how far a rollout worker may run ahead of the learner, and what is too old to learn
// from. A pure rule: versions and counts in, numbers out.
//
// With staleness eta, a decision made now may be used eta windows later at most (the rule of AReaL,
// arXiv 2505.24298, per env): an env of a worker that joined at version j may have made
// (version - j + 1 + eta) * rounds * horizon decisions in all. eta = 0 is the synchronous mode.
// Steps of chunks that were dropped are given back, or a run would come to a halt when enough of
// them were.
//
// Threads: one at a time.
#ifndef LEARNER_ADMISSION_H
#define LEARNER_ADMISSION_H

#include "common/base/status.h"

#include <stdint.h>

// The account of one worker. Embedded.
struct admission {
    uint64_t horizon, eta;
    uint64_t rounds;  // chunks of each env that make a window: 1, or what the owner sets
    uint64_t joined;  // the version at that time
    uint32_t n_env;   // envs of the worker
    uint32_t n_left;  // of them still there
    uint64_t *chunks; // (n_env) that have come; ADMISSION_LOST = the env is gone
    uint64_t dropped; // chunks of all its envs
    uint64_t granted; // chunks that every env may make beyond the rule
};

#define ADMISSION_LOST UINT64_MAX

NODISCARD enum status admission_init(struct admission *a, uint32_t n_env, uint64_t horizon,
                                     uint64_t eta, uint64_t joined);
void admission_fini(struct admission *a);

// A chunk of an env (0..n_env-1) has come, and was dropped or not.
void admission_count(struct admission *a, uint32_t env, bool dropped);

// An env is gone.
void admission_lose(struct admission *a, uint32_t env);

// A lost env is there again and goes on as if `chunks` of it had come; no effect on others.
void admission_return(struct admission *a, uint32_t env, uint64_t chunks);

// Every env may make one chunk more, whatever the rule says.
void admission_grant(struct admission *a);

// Decisions that each env may have made in all at this version.
uint64_t admission_limit(const struct admission *a, uint64_t version);

// Steps that may still come without another limit.
uint64_t admission_open(const struct admission *a, uint64_t version);

// Versions between the oldest decision of a chunk and now.
uint64_t admission_lag(uint64_t version, uint64_t version_min);

#endif
