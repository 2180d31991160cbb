// evaluator.h - closed-loop evaluation: N episodes of a task with frozen weights, over the same env
// servers as training.
//
// Episode i starts from (seed, stream 0, episode i), so it is the same however many envs, threads
// or servers are used; inference is exact per row, so the whole episode is. Three outcomes: an
// episode that ends by an infrastructure error is retried up to `retries` times, then counted
// apart, never as a failure.
//
// Threads: evaluator_run is called by one thread and starts one per env server.
#ifndef EVALUATION_EVALUATOR_H
#define EVALUATION_EVALUATOR_H

#include "common/base/config.h"
#include "evaluation/report.h"
#include "nn/weights.h"

#include <stdatomic.h>

struct evaluator_config {
    char env[OPT_STR_MAX];    // addresses of env servers, separated by commas
    char out[OPT_STR_MAX];    // folder for results.jsonl and summary.json
    char policy[OPT_STR_MAX]; // recorded in the results; "random" acts uniformly, "zero" not at all
    int64_t episodes, seed, retries;
    bool greedy; // mean action; else sampled
    int64_t connect_wait_ns;
    int64_t answer_wait_ns; // a server that is silent for longer is given up
    const char *task;       // that the servers must have; NULL or "" = any
    const char *kwargs;     // the task's keyword arguments for the report; NULL = not known
    const char *options;    // resolved options for the report, JSON; NULL = none
};

struct evaluator_progress {
    atomic_llong done, errors, env_steps;
    _Atomic double mean_return;
};

// `w` is NULL for the built-in policies. Lines of results.jsonl appear in episode order as episodes
// finish; *stop ends early, keeps what is done and marks the summary incomplete. So does the loss
// of all servers, which is a failure. `*out` (see report.h) is filled in whenever summary.json was
// written, even then.
NODISCARD enum status evaluator_run(const struct evaluator_config *cfg, const struct weights *w,
                                    const atomic_bool *stop, struct evaluator_progress *progress,
                                    struct evaluator_summary *out);

#endif
