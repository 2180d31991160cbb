// chunk.h - how the action chunks of a policy become one action a step: how much of a chunk is
// executed before the next is asked for, and what is made of chunks that overlap.
//
// Pure bookkeeping. Threads: one at a time.
#ifndef EVALUATION_CHUNK_H
#define EVALUATION_CHUNK_H

#include "common/base/status.h"

#include <stdint.h>

#define CHUNK_STEPS_MAX 256 // of one chunk
#define CHUNK_ACT_MAX   64  // numbers of an action

// What the action of a step is where several chunks have one for it.
enum chunk_ensemble {
    CHUNK_NEWEST,  // that of the newest chunk
    CHUNK_AVERAGE, // their mean
    CHUNK_EMA,     // from the oldest on: a * newer + (1 - a) * what there is
    CHUNK_ACT,     // weights exp(-a * i), i = 0 the oldest chunk
};

struct chunk_config {
    int n_act;   // numbers of an action
    int execute; // steps between two requests; 0 = the whole chunk
    enum chunk_ensemble ensemble;
    double a;
};

struct chunk;

NODISCARD enum status chunk_create(struct chunk **out, const struct chunk_config *cfg);
void chunk_destroy(struct chunk *c); // NULL is fine

// A new episode: forget everything.
void chunk_reset(struct chunk *c);

// Does this step need a new chunk before chunk_act? Steps count from 0 in an episode and come one
// after the other.
bool chunk_wanted(const struct chunk *c, uint64_t step);

// The chunk asked for at `step`, (n, n_act). ST_INVAL if it is shorter than what is executed.
NODISCARD enum status chunk_add(struct chunk *c, uint64_t step, const float *actions, int n);

// The action of a step, (n_act).
void chunk_act(const struct chunk *c, uint64_t step, float *action);

#endif
