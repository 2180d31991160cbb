// results.h - the results of an evaluation as they lie in its folder, and what they amount to.
//
//   settings.json   what determines the results, as one JSON object
//   tasks.jsonl     the tasks that were asked for, one a line, in order
//   inputs.jsonl    for each task that was begun: engine, limits, hashes of its files
//   results.jsonl   one line an episode
//
// None of them holds anything that depends on time or on how the work was spread: once sorted, two
// runs of the same evaluation give the same bytes, whole, in shards or resumed.
//
// Threads: one at a time.
#ifndef EVALUATION_RESULTS_H
#define EVALUATION_RESULTS_H

#include "common/base/config.h"
#include "common/base/text.h"
#include "common/wire/spec.h"
#include "evaluation/worklist.h"

#define RESULTS_HASH 72 // bytes of a SHA-256 as text, with room

// What is known of a task once it was begun.
struct result_input {
    char engine[SPEC_NAME_MAX]; // "MuJoCo 3.3.7"; "" = not begun
    int64_t max_episode_steps;  // 0 = no limit
    double dt_s;                // seconds an env step
    bool has_success;
    char bddl_sha256[RESULTS_HASH], init_sha256[RESULTS_HASH]; // of its files, "" = none
    char
        randomize[OPT_STR_MAX]; // plan of env servers that were not the evaluation's own, "" = none
};

struct result_task {
    char name[SPEC_NAME_MAX]; // "libero_spatial/3"
    char instruction[SPEC_TEXT_MAX];
    int64_t episodes; // asked for
    struct result_input input;
};

struct result {
    int task;     // index
    int64_t seed; // of the evaluation
    struct episode_result r;
};

struct results {
    char *settings; // JSON
    struct result_task *tasks;
    int n_task;
    struct result *rows;
    int64_t n, cap;
    char **causes; // what rows[].r.cause points to
    int n_cause;
};

// What a number of episodes amounts to.
struct evaluator_summary {
    int64_t wanted;
    int64_t episodes, errors; // finished by the task or time limit; ended by an error
    int64_t successes;
    bool has_success, complete;                  // complete: all episodes have a result
    double return_mean, return_low, return_high; // mean and 95 % interval (Student t)
    double return_std, return_min, return_max, max_reward_mean, length_mean;
    double success_rate, success_low, success_high; // Wilson interval
};

// A struct of zeroes is empty. results_fini frees what it holds.
void results_fini(struct results *r);

// Make folder `dir` if it is not there, and keep other processes that write from it until *fd is
// closed. The folder itself is locked, so that nothing of it is needed or left behind. ST_INVAL: it
// is in use. *fd is -1 or open also on failure.
NODISCARD enum status results_lock(const char *dir, int *fd);

// Read folder `dir` into an empty *out. A last line without its end is not there. ST_INVAL names
// file, line and what was expected; ST_MISSING: the folder has no evaluation.
NODISCARD enum status results_read(struct results *out, const char *dir);

NODISCARD enum status results_add_task(struct results *r, const struct result_task *task);
int results_find_task(const struct results *r, const char *name); // -1 = none

// Append; the cause is copied.
NODISCARD enum status results_add(struct results *r, const struct result *row);

// By task, then episode. Of equal results one is kept, and an error only where there is no verdict:
// the episode was tried again. ST_INVAL names an episode that has two verdicts that differ.
NODISCARD enum status results_sort(struct results *r);

// ST_INVAL unless both are of the same evaluation: settings, and tasks as far as both have some.
// The text names `path`, the folder of `a`, and what differs.
NODISCARD enum status results_check_same(const struct results *a, const char *path,
                                         const struct results *b);

// Add what `from`, of folder `path`, has; an empty `into` becomes a copy. ST_INVAL: they are not
// parts of one evaluation.
NODISCARD enum status results_merge(struct results *into, const struct results *from,
                                    const char *path);

bool results_same_input(const struct result_input *a, const struct result_input *b);

// One line each, with its end.
void results_put_row(const struct results *r, const struct result *row, struct text *out);
void results_put_task(const struct result_task *task, struct text *out);
void results_put_input(const struct result_task *task, struct text *out);

// All four files, each written beside and renamed.
NODISCARD enum status results_write(const struct results *r, const char *dir);

// `text` as file DIR/NAME, written beside and renamed. ST_NOMEM if the text failed.
NODISCARD enum status results_write_text(const char *dir, const char *name,
                                         const struct text *text);

// "libero_spatial" of "libero_spatial/3" and its index; a task that is in no suite is its own
// group, with index 0.
void results_group(const char *task, char group[SPEC_NAME_MAX], int64_t *index);

// Of the rows that `keep` accepts; `wanted` is the number of episodes asked for. ST_NOMEM.
NODISCARD enum status
results_summarise(const struct results *r,
                  bool (*keep)(const struct results *r, const struct result *row, const void *arg),
                  const void *arg, int64_t wanted, struct evaluator_summary *out);
bool results_keep_all(const struct results *r, const struct result *row, const void *arg);
bool results_keep_task(const struct results *r, const struct result *row,
                       const void *arg); // arg: int, index
bool results_keep_group(const struct results *r, const struct result *row,
                        const void *arg); // arg: char, name

#endif
