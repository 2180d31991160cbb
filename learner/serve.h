// serve.h - what both training loops do: workers join, leave, lose envs and get them back; windows
// are filled with what they send and closed; weights, metrics and checkpoints go out. What a window
// is made of is the kind's: learner.h has windows of steps, rl_learner.h of episodes.
//
// Three switches, each alone and together:
//   train-async    rollout may run `max_staleness` windows ahead; off: it waits for each update
//   rollout-async  (rollout's) infers by B_max/T_max; off: a barrier over all its envs
//   streaming      forward and backward as data arrives; off: when the window is complete
// With all three off a run is a function of its seed, however it is deployed.
//
// A worker that goes away takes its envs with it: the window then closes with what the others send,
// and the learner waits for a worker when none is left. On a stop the work of closed windows is
// kept.
//
// Threads: one at a time, except learner_progress, which any thread may read at any time.
#ifndef LEARNER_SERVE_H
#define LEARNER_SERVE_H

#include "common/base/metrics.h"
#include "common/base/usage.h"
#include "common/wire/link.h"
#include "learner/admission.h"
#include "learner/hub.h"
#include "learner/rl_update.h"
#include "learner/saved.h"
#include "learner/update.h"

#include <stdatomic.h>

#define SERVE_WAIT_NS 100000000 // how soon *stop is seen

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

// What a learner reports while it runs.
struct learner_progress {
    char url[LINK_URL_MAX]; // where rollout workers connect, once `listening`
    atomic_bool listening;
    atomic_llong windows, env_steps, episodes, dropped, queue;
    _Atomic double mean_return, lag, steps_per_s, seconds;
};

// A worker that has joined.
struct member {
    int worker;
    struct join join;
    struct admission admission; // its chunks are chunks or episodes
    uint64_t start;             // index of its envs' first chunk or episode
    struct msg *state;          // where its episodes are, at the last checkpoint
    bool answered;              // nobody asked where they are, or it has told
    struct member *next;
};

// What is reported of a closed window.
struct serve_report {
    double steps_per_s, wait_share, update_share;
    int queue;
    double mean_return, lag; // the kind's
};

// The metrics of it that each kind writes, with what the process uses: a leak or a slow-down shows.
#define SERVE_METRICS(r)                                                                \
    {"perf/steps_per_s", (r)->steps_per_s}, {"perf/queue", (r)->queue},                 \
        {"perf/wait_share", (r)->wait_share}, {"perf/update_share", (r)->update_share}, \
        {"perf/cpu_s", usage_cpu_s()}, {"perf/resident_bytes", usage_resident_bytes()}, \
    {                                                                                   \
        "perf/open_files", usage_open_files()                                           \
    }

// Functions of a kind of window; `self` is the server's.
struct serve_kind {
    // The weights of now; NULL until `start`.
    const struct weights *(*weights)(const void *self);
    // The first worker has joined: make the updater; with cfg->resume `done` is the checkpoint's.
    enum status (*start)(void *self, const struct join *j);
    // A worker has joined, and is about to be sent weights.
    enum status (*join)(void *self, struct member *m);
    // What a worker sent of windows and of states. Takes the item.
    enum status (*take)(void *self, struct hub_item *item);

    enum status (*open)(void *self); // a window begins; NULL = nothing to do
    bool (*complete)(const void *self);
    enum status (*arrived)(void *self);    // after each item
    enum status (*idle)(void *self);       // nothing has come for a while
    enum status (*accumulate)(void *self); // the window is complete: what is left of it
    enum status (*step)(void *self);       // the optimizer's
    enum status (*report)(void *self, struct serve_report *r);
    bool (*enough)(const void *self);
    enum status (*checkpoint)(void *self);
};

// Embedded in a kind's own; fields are for reading, but for those of the kind.
struct serve {
    const struct learner_config *cfg;
    const atomic_bool *stop;
    struct learner_progress *progress;
    const struct serve_kind *kind;
    void *self;
    uint64_t unit;       // env steps that an admission's chunk counts as
    uint64_t rounds;     // chunks of each env that make a window
    uint32_t group_size; // as in hub_config
    bool states;         // workers are asked where their episodes are
    struct hub *hub;
    struct metrics *metrics;
    struct member *members;
    int64_t n_joined;           // envs of the members that are there
    struct train_progress done; // `episodes`, `dropped`, `next_episode` are the kind's to count
    int64_t steps;              // env steps of the present window; the kind's

    int64_t start_ns, waited_ns, window_ns;
    double seconds_before; // training time of earlier runs
    uint64_t first_window; // windows of earlier runs
};

// Listen; cfg to states are set, the rest is 0. After a failure too: serve_close.
NODISCARD enum status serve_open(struct serve *s, const struct hub_config *hub);
void serve_close(struct serve *s);

// Train until it is enough, a limit of cfg, or *stop; checkpoints are written in any case.
NODISCARD enum status serve_run(struct serve *s);

// Wait for an item and handle it; ST_TIMEOUT.
NODISCARD enum status serve_next(struct serve *s, int64_t wait_ns);

// Version of the weights; windows that a worker may run ahead.
uint64_t serve_version(const struct serve *s);
uint64_t serve_eta(const struct serve *s);

// The worker that an item is of; NULL if it is gone.
struct member *serve_member(const struct serve *s, int worker);

NODISCARD enum status serve_send_weights(struct serve *s, const struct member *m, bool want_state);

// Env steps (chunks with a unit of 1) that may still come without another limit.
uint64_t serve_coming(const struct serve *s);
// One chunk more for every env, whatever the limit.
NODISCARD enum status serve_grant(struct serve *s);

// A file of the run folder.
void serve_path(const struct serve *s, const char *name, char *buf, size_t size);

#endif
