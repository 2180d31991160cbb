// worker.h - what all rollout workers do: env servers on one side, a learner on the other, and the
// loop between them. What is made of rows and weights is the role's: rollout.h plays steps,
// player.h whole episodes.
//
// Rows that env servers finish are batched for inference by the same B_max/T_max rule
// (rollout-async) or by a barrier over all envs. New weights are taken between two inference
// batches. Each env waits when it has submitted as many decisions as the learner admits.
//
// The envs of a lost server are left out until it is back; they go on with the round (what the
// role counts: chunks or episodes) of the slowest env that is there, which nobody waits for. The
// loss of all servers ends the worker.
//
// Threads: one at a time.
#ifndef ROLLOUT_WORKER_H
#define ROLLOUT_WORKER_H

#include "common/base/config.h"
#include "common/wire/trainproto.h"
#include "nn/accel.h"
#include "nn/policy.h"
#include "rollout/fleet.h"
#include "rollout/scheduler.h"

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

// Functions of a role; `self` is the worker's.
struct worker_role {
    // Decide in the first n envs of `batch`, and send that off.
    enum status (*infer)(void *self, int n);
    // A row of an env has come.
    enum status (*take_row)(void *self, int env, const uint8_t *row,
                            const struct row_layout *layout);
    enum status (*rows_taken)(void *self); // all of a message; NULL = nothing to do
    // Other weights, which are in use when it returns; the first are there to make `policy`.
    enum status (*use_weights)(void *self, const struct weights *weights);
    // Start the first episodes.
    enum status (*begin)(void *self, const struct weights_head *head);
    // The rounds that an env has made.
    uint64_t (*rounds)(const void *self, int env);
    // The first n envs of `batch` are there again and go on after so many rounds; before the first
    // episodes were begun too.
    enum status (*go_on)(void *self, int n, uint64_t rounds);
    // Where the episodes are: to start from, to tell. NULL = nobody asks.
    enum status (*take_state)(void *self, const struct msg *m);
    enum status (*answer_state)(void *self);
};

// Embedded in a role's own; fields are for reading, but for scratch.
struct worker {
    const struct rollout_config *cfg;
    const atomic_bool *stop;
    struct rollout_progress *progress;
    const struct worker_role *role;
    void *self;
    struct intake *intake;
    struct fleet *fleet;
    struct scheduler *scheduler;
    struct policy *policy;   // the role makes it
    struct weights *weights; // NULL until the first have come
    int n_env;
    size_t n_obs, n_act;
    bool begun; // the first episodes were started
    bool done;  // the learner said BYE

    bool *pending;            // (n_env) a decision waits for its outcome; the role's
    bool *lost;               // (n_env) its server is gone
    int *batch;               // (n_env) the envs of an inference or a step; scratch
    uint32_t *global;         // (n_env) scratch
    struct reset_row *resets; // (n_env) scratch
    struct policy_row *rows;  // (n_env) scratch
};

// Connect; cfg to self are set, the rest is 0. After a failure too: worker_close.
NODISCARD enum status worker_open(struct worker *w, const struct hello *hello);
void worker_close(struct worker *w);

// Start the readers and join the learner: what is the same for all roles is filled in.
NODISCARD enum status worker_join(struct worker *w, struct join *j);

// Until the learner says BYE (ST_OK), *stop, or a failure.
NODISCARD enum status worker_work(struct worker *w);

// The number of an env among those of all workers.
uint32_t worker_global(const struct worker *w, int env);

#endif
