// learner.h - the training loop of the learner: accepts rollout workers, admits chunks, closes
// windows, publishes weights, writes checkpoints and metrics.
//
// A window (global batch) is horizon steps of every env: num_envs * horizon samples. Three
// switches, each alone and together:
//   train-async    rollout may run `max_staleness` windows ahead; off: it waits for each update
//   rollout-async  (rollout's) infers by B_max/T_max; off: a barrier over all its envs
//   streaming      forward and backward as chunks arrive; off: when the window is complete
// With all three off, chunks are processed in the order (env, index), so that a run is a function
// of its seed, however it is deployed.
//
// Chunks older than max_staleness are counted and dropped. A worker that goes away takes its envs
// with it: the window then closes with what the others send, and the learner waits for a worker
// when none is left.
//
// Threads: learner_run is called by one thread and returns when training has ended.
#ifndef LEARNER_LEARNER_H
#define LEARNER_LEARNER_H

#include "common/wire/link.h"
#include "learner/checkpoint.h"
#include "learner/rl_update.h"
#include "learner/update.h"

#include <stdatomic.h>

struct learner_config {
    struct update_config update;
    struct rl_config rl;      // learner_run is for rl.algo RL_PPO, rl_learner.h for the others
    char listen[OPT_STR_MAX]; // where rollout workers connect
    char out[OPT_STR_MAX];    // run folder: policy.h5, checkpoint.h5, metrics.jsonl, events
    char task[OPT_STR_MAX];   // "" = that of the first worker
    char hidden[OPT_STR_MAX]; // hidden layers, "64,64"
    char conv[OPT_STR_MAX];   // convolutions where workers send pictures, "16x8/4,32x4/2"
    int64_t frame_stack;      // pictures that are seen at once
    bool pixels_state;        // the observation is seen too
    double log_std;           // initial log standard deviation
    int64_t seed;
    int64_t num_envs, horizon; // of all workers together; a window is their product
    int64_t total_steps;       // env steps of the whole training
    int64_t checkpoint_every;  // windows; 0 = at the end only
    int64_t max_staleness;
    bool train_async, streaming;
    bool resume;          // go on from out/checkpoint.h5
    double max_seconds;   // stop after so much training time, 0 = no limit
    double target_return; // stop when the mean return of the last 100 episodes reaches it;
                          // NaN-free: +inf = never
    const char *options;  // resolved options as JSON, kept in policy.h5; NULL = none
};

// What learner_run reports while it runs; may be read by any thread at any time.
struct learner_progress {
    char url[LINK_URL_MAX]; // where rollout workers connect, once `listening`
    atomic_bool listening;
    atomic_llong windows, env_steps, episodes, dropped, queue;
    _Atomic double mean_return, lag, steps_per_s, seconds;
};

// Runs until total_steps, a limit above, or *stop. On a stop the work of closed windows is kept:
// checkpoint.h5 and policy.h5 are written in any case.
NODISCARD enum status learner_run(const struct learner_config *cfg, const atomic_bool *stop,
                                  struct learner_progress *progress);

#endif
