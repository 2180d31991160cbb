// worklist.h - which episode is next, what became of each, and results as they come.
//
// Pure bookkeeping without clock, lock or I/O. Episodes 0..n-1 are handed out in ascending order;
// one that came back (its server died, or it ended by an error and may be tried again) goes out
// before any later one. Each of them ends with exactly one result.
//
// Threads: one at a time; the user locks.
#ifndef EVALUATION_WORKLIST_H
#define EVALUATION_WORKLIST_H

#include "common/base/status.h"

#include <stdint.h>

#define WORKLIST_MAX 1000000 // episodes

struct worklist;

// OUTCOME_DONE: the task has no notion of success. OUTCOME_ERROR is never counted as a failure.
enum outcome { OUTCOME_DONE, OUTCOME_SUCCESS, OUTCOME_FAILURE, OUTCOME_ERROR };
#define OUTCOME_CHOICES "done|success|failure|error"
const char *outcome_name(enum outcome outcome); // "done", "success", ...

struct episode_result {
    int64_t episode;
    enum outcome outcome;
    double ret;         // sum of rewards; up to the error for OUTCOME_ERROR
    double max_reward;  // of its steps; NaN if there was none
    int64_t length;     // env steps
    int64_t clipped;    // action numbers out of bounds; -1 = not counted
    int64_t init_state; // row of the task's file of initial states; -1 = not known
    bool terminated, truncated;
    const char *cause; // OUTCOME_ERROR: why, a constant string; else NULL
};

struct worklist_counts {
    int64_t running, done, errors; // done: finished without an error
    int64_t successes;             // among those done
    int64_t retries;               // episodes started anew after an error
    int64_t returned;              // episodes given back
};

// n_episode in 1..WORKLIST_MAX; an episode that ends by an error is tried again up to n_retry
// times.
NODISCARD enum status worklist_create(struct worklist **out, int64_t n_episode, int64_t n_retry);
void worklist_destroy(struct worklist *w); // NULL is fine

// The next episode to run. ST_AGAIN: none now, but one that runs may come back. ST_CLOSED: every
// episode has its result.
NODISCARD enum status worklist_take(struct worklist *w, int64_t *episode);

// A running episode ended. An error makes it wait for another try while tries are left.
void worklist_finish(struct worklist *w, const struct episode_result *result);

// A running episode was lost with its server; that counts as no try.
void worklist_give_back(struct worklist *w, int64_t episode);

// Not to be played here: it has a result already, or belongs to another shard. Before any take.
void worklist_skip(struct worklist *w, int64_t episode);

// The next result in the order in which they came that was not emitted yet. False: none.
bool worklist_emit(struct worklist *w, struct episode_result *out);

// Has every episode that is not skipped its result?
bool worklist_complete(const struct worklist *w);

const struct worklist_counts *worklist_count(const struct worklist *w);

#endif
