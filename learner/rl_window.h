// rl_window.h - what is counted of a window of episodes, and the metrics that are made of it.
//
// Where workers play several tasks, each has numbers of its own beside those of all, since a common
// mean hides that one gains at another's cost: task/NAME/success, task/NAME/played, task/NAME/kept.
//
// Threads: one at a time.
#ifndef LEARNER_RL_WINDOW_H
#define LEARNER_RL_WINDOW_H

#include "learner/scale.h"
#include "learner/serve.h"

#define RL_RECENT 100 // episodes behind the recent mean score

// One task's part of the window.
struct rl_task {
    char name[SPEC_NAME_MAX];
    struct tally score; // of all episodes without an error
    int64_t kept;       // episodes in kept groups
};

struct rl_window {
    int64_t kept, played;           // episodes in kept groups, of all
    struct tally score, kept_score; // of all episodes, of those in kept groups
    struct tally success_length, failure_length, lag;
    double lag_max;
    struct groups_count before; // counts at its start
    struct rl_task *task;       // (n_task) in the order in which they were first seen
    int n_task;
    // over windows
    double recent[RL_RECENT];
    int64_t n_recent;
};

// A new window begins; the recent scores and the tasks' names stay. The first one: of zeros.
void rl_window_open(struct rl_window *w, const struct groups_count *groups);
void rl_window_fini(struct rl_window *w);

// An episode of `task` ("" = not known) has come, at the present version.
NODISCARD enum status rl_window_note(struct rl_window *w, const char *task,
                                     const struct episode_head *h, uint64_t version);
// One that was noted before is kept.
void rl_window_keep(struct rl_window *w, const char *task, double score);

// Mean score of the recent episodes; NaN without any.
double rl_window_recent(const struct rl_window *w);

struct rl_report {
    const struct rl_stats *stats;
    const struct train_progress *done;
    const struct groups_count *groups;
    const struct serve_report *serve;
    bool critic; // there is one
};
NODISCARD enum status rl_window_write(const struct rl_window *w, const struct rl_report *r,
                                      struct metrics *metrics);

#endif
