// eval_run.h - an evaluation of one task or of many, in bounded memory: at most n_model tasks are
// open at a time, each with its own env server inside (or servers elsewhere), and n_env envs in
// total. Every task's episodes are an evaluation of their own (evaluation/evaluator.h), so the
// results depend on neither bound.
//
// An item is an episode of a task, numbered through: task by task, episode by episode. Shard i of n
// plays the i-th part of them.
//
// Threads: eval_run is called by one thread and starts n_model more.
#ifndef CLI_EVAL_RUN_H
#define CLI_EVAL_RUN_H

#include "cli/eval_record.h"

#include "evaluation/evaluator.h"
#include "evaluation/film.h"

struct eval_run_config {
    const char *suites; // separated by commas; "" = one task
    const char *tasks;  // of each suite: indices, "0,3,5-7"; "" = all
    const char *task;   // "" = whatever the servers of base.env have
    // base.out is the folder; base.env, if it is not empty, names servers of the one task, or of
    // all tasks of the suites: one each in their order, then the second one each, and so on;
    // base.episodes are those of each task
    struct evaluator_config base;
    const struct weights *weights;
    const char *kwargs;    // for the servers inside, JSON object or ""
    const char *randomize; // plan of envserver/randomize.h for them, NULL = none
    const char *settings;  // what determines the results, JSON
    const char *options;   // JSON
    int n_env;             // in total, at least one a model
    int n_model;           // tasks that are open at a time
    int n_thread;          // worker threads in total
    double memory_mib;     // another task is opened only while less is in use; 0 = most of what the
                           // machine has left
    int shard, n_shard;
    bool resume;
    bool record, record_failures; // demos.hdf5 of every task (cli/eval_record.h)
    enum record_align record_align;
    enum film_which films;
    const char *film_camera;
    int film_backend;
    int64_t watchdog_ns; // exit with EXIT_WATCHDOG if nothing goes on for longer; 0 = never
    double fail_below;   // NaN = none
};

#define EXIT_WATCHDOG 124

// Prints a line a task of a suite to stdout unless `quiet`. What is done is kept when *stop ends it
// early, or a failure. `*out` is what is in summary.json.
NODISCARD enum status eval_run(const struct eval_run_config *cfg, const atomic_bool *stop,
                               bool quiet, struct evaluator_summary *out);

#endif
