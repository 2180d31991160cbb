// evaluator.h - closed-loop evaluation: N episodes of a task with frozen weights, over the same env
// servers as training.
//
// Episode i starts from (seed, stream 0, episode i), so it is the same however many envs, threads
// or servers are used; inference is exact per row, so the whole episode is. Three outcomes: an
// episode that ends by an infrastructure error is retried up to `retries` times, then counted
// apart, never as a failure.
//
// A lost server's episodes go to the others. It is dialled until it is back and then plays along;
// when none is left, the evaluation ends.
//
// Threads: evaluator_run is called by one thread and starts one per env server.
#ifndef EVALUATION_EVALUATOR_H
#define EVALUATION_EVALUATOR_H

#include "common/base/config.h"
#include "evaluation/film.h"
#include "evaluation/journal.h"
#include "evaluation/record.h"
#include "evaluation/remote.h"
#include "evaluation/replay.h"
#include "nn/weights.h"

#include <stdatomic.h>

struct evaluator_config {
    char env[OPT_STR_MAX];    // addresses of env servers, as common/wire/hosts.h has it
    char out[OPT_STR_MAX];    // folder for demos.hdf5 and films of the task
    char policy[OPT_STR_MAX]; // recorded in the results; or a built-in one: "random" acts
                              // uniformly, "zero" not at all, "expert" as the observation
                              // proposes, "replay:FILE" as recorded; or a policy server's address
    int64_t episodes, seed, retries;
    int64_t first, last; // play these alone, first to last - 1; 0, 0 = all
    bool greedy;         // mean action; else sampled
    int64_t execute;     // actions of a policy's chunk that are executed, 0 = all
    int64_t connect_wait_ns;
    int64_t answer_wait_ns;      // a server that is silent for longer is given up
    const char *task;            // that the servers must have; NULL or "" = any
    const char *kwargs;          // the task's keyword arguments for recordings; NULL = not known
    bool own_plan;               // the servers' plan is kept elsewhere already, in the settings
    struct journal *journal;     // borrowed; episodes that have a result there are not played
    struct result_task about;    // for the journal; what the servers say of the task is filled in
    const struct replay *replay; // of the policy "replay:FILE", borrowed; with at least
                                 // `episodes` demos
    struct remote *remote;       // of a policy server, borrowed; NULL = none
    struct film *film;           // borrowed; films of episodes too; NULL = none
    const struct record_about *record; // record demos.hdf5 too; NULL = do not. What it says of the
                                       // evaluation itself is filled in
};

// Is this the name of a policy that needs no weights? Addresses of policy servers are such.
bool evaluator_has_policy(const char *name);

struct evaluator_progress {
    atomic_llong done, errors, successes, env_steps; // of this run
    atomic_llong retries, returned;
    _Atomic double mean_return;
};

// `w` is NULL for the built-in policies. Each result is in the journal as soon as its episode is
// over; *stop ends early and keeps what is done. So does the loss of all servers, which is a
// failure. `*out` is what the journal has of the task, filled in whenever episodes were played.
NODISCARD enum status evaluator_run(const struct evaluator_config *cfg, const struct weights *w,
                                    const atomic_bool *stop, struct evaluator_progress *progress,
                                    struct evaluator_summary *out);

#endif
