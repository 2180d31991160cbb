// journal.h - the results of an evaluation while it is played: every episode is in results.jsonl as
// soon as it is over, so a kill costs only what was being played.
//
// A folder belongs to one process at a time. What lies there already is never replaced: without
// `resume` a folder that holds an evaluation is refused, with it the evaluation must be the same.
//
// Threads: any, once open.
#ifndef EVALUATION_JOURNAL_H
#define EVALUATION_JOURNAL_H

#include "evaluation/results.h"

struct journal;

struct journal_config {
    const char *dir;
    const char *settings; // JSON: what determines the results
    // In order; with n_task = 0 the tasks come by journal_begin.
    const struct result_task *tasks;
    int n_task;
    int64_t seed;
    bool resume; // go on with what the folder holds, if anything. Episodes that ended by an error
                 // have no result then
};

// ST_INVAL: the folder holds an evaluation, or another one, or is in use; the text says which.
NODISCARD enum status journal_open(struct journal **out, const struct journal_config *cfg);

// The number of results that were there at the start.
int64_t journal_found(const struct journal *j);

// A task is going to be played; *index is its number. Another input than the one recorded for it
// before is refused (ST_INVAL): its files or the engine have changed.
NODISCARD enum status journal_begin(struct journal *j, const struct result_task *task, int *index);

// Is there a result?
bool journal_has(struct journal *j, int task, int64_t episode);
// The results among episodes first to last - 1, and how many of them are successes.
int64_t journal_count(struct journal *j, int task, int64_t first, int64_t last, int64_t *successes);
// Forget the results of a task that was not begun in this run.
NODISCARD enum status journal_drop(struct journal *j, int task);

NODISCARD enum status journal_add(struct journal *j, int task, const struct episode_result *result);

NODISCARD enum status journal_summarise(struct journal *j, int task, int64_t wanted,
                                        struct evaluator_summary *out);

// After the last result: bring results.jsonl into order. The results are the caller's to read until
// journal_close.
NODISCARD enum status journal_finish(struct journal *j, struct results **results);

// NULL is fine.
void journal_close(struct journal *j);

#endif
