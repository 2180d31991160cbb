// rollout.h - a rollout worker: env servers on one side, a learner on the other.
//
// Rows that env servers finish are batched for inference by the same B_max/T_max rule
// (rollout-async) or by a barrier over all envs; actions go back, steps are appended to each env's
// open chunk, closed chunks stream to the learner. New weights are taken between two inference
// batches. Each env waits when it has submitted as many steps as the learner admits, so data is
// never staler than the learner's bound.
//
// The envs of a lost server are left out until it is back; then they begin new episodes. The loss
// of all servers ends the worker.
//
// Noise of an action is a function of (seed, stream = global env number, episode, step).
//
// Threads: rollout_run is called by one thread; it starts one receiver per env server and one for
// the learner.
#ifndef ROLLOUT_ROLLOUT_H
#define ROLLOUT_ROLLOUT_H

#include "common/base/config.h"
#include "common/wire/spec.h"
#include "nn/accel.h"

#include <stdatomic.h>

struct rollout_config {
    char env[OPT_STR_MAX];     // addresses of env servers, as common/wire/hosts.h has it
    char learner[OPT_STR_MAX]; // address of the learner
    bool pixels;               // send pictures
    char picture[OPT_STR_MAX]; // which; "" = the first
    int64_t num_envs;          // envs to take in all, 0 = all that are free
    int64_t env_offset;        // global number of this worker's first env
    int64_t horizon;           // steps of a chunk
    int64_t
        action_chunk; // actions of a decision: whole episodes are played, see player.h; 0: steps
    bool own_starts;  // the worker is the only one of its task: it counts starts by itself
    int64_t start_states; // of those: states that episodes begin in, 0 = always a new one
    int64_t seed;
    int64_t batch_max; // inference: rows per batch, 0 = half of the envs
    int64_t batch_timeout_ns;
    bool rollout_async;
    int64_t connect_wait_ns;
    struct accel accel;
};

struct rollout_progress {
    atomic_llong env_steps, batches, rows, episodes, errors, version;
};

// Runs until the learner says BYE (ST_OK), *stop, or a failure: a server or the learner is gone.
NODISCARD enum status rollout_run(const struct rollout_config *cfg, const atomic_bool *stop,
                                  struct rollout_progress *progress);

#endif
