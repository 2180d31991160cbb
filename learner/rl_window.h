// rl_window.h - what is counted of a window of episodes, and the metrics that are made of it.
//
// Threads: one at a time.
#ifndef LEARNER_RL_WINDOW_H
#define LEARNER_RL_WINDOW_H

#include "learner/scale.h"
#include "learner/serve.h"

#define RL_RECENT 100 // episodes behind the recent mean score

struct rl_window {
    int64_t kept, played;           // episodes in kept groups, of all
    struct tally score, kept_score; // of all episodes, of those in kept groups
    struct tally success_length, failure_length, lag;
    double lag_max;
    struct groups_count before; // counts at its start
    // over windows
    double recent[RL_RECENT];
    int64_t n_recent;
};

// A new window begins; the recent scores stay.
void rl_window_open(struct rl_window *w, const struct groups_count *groups);

// An episode has come, at the present version.
void rl_window_note(struct rl_window *w, const struct episode_head *h, uint64_t version);

// Mean score of the recent episodes; NaN without any.
double rl_window_recent(const struct rl_window *w);

struct rl_report {
    const struct rl_stats *stats;
    const struct train_progress *done;
    const struct groups_count *groups;
    const struct serve_report *serve;
};
NODISCARD enum status rl_window_write(const struct rl_window *w, const struct rl_report *r,
                                      struct metrics *metrics);

#endif
