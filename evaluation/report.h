// report.h - what an evaluation leaves behind: results.jsonl, one line an episode, and
// summary.json.
//
// results.jsonl holds nothing that depends on time or on how the work was spread, so two runs of
// the same evaluation give the same bytes. summary.json is written beside and renamed.
//
// Threads: one at a time.
#ifndef EVALUATION_REPORT_H
#define EVALUATION_REPORT_H

#include "common/wire/spec.h"
#include "evaluation/worklist.h"

struct report;

struct evaluator_summary {
    int64_t episodes, errors; // finished by the task or time limit; ended by an error
    int64_t successes;
    bool has_success, complete;                  // complete: all episodes have a result
    double return_mean, return_low, return_high; // mean and 95 % interval (Student t)
    double return_std, return_min, return_max, length_mean;
    double success_rate, success_low, success_high; // Wilson interval
};

// Where the results come from. All pointers are borrowed until report_close.
struct report_about {
    const struct spec *spec;
    const char *policy;  // file, "random" or "zero"
    bool has_weights;    // the two below mean something
    uint64_t version;    // of the weights
    uint32_t crc;        // CRC-32C of the weights as a WEIGHTS blob
    const char *kwargs;  // the task's keyword arguments as JSON; "" = not known (other servers)
    const char *options; // resolved options as JSON; NULL = none
    int64_t wanted, seed;
    int n_server, n_env;
    bool greedy;
};

// Make folder `dir` and an empty results.jsonl in it; the results of an earlier run there go.
NODISCARD enum status report_open(struct report **out, const char *dir,
                                  const struct report_about *about);

// One line. ST_IO names the file; half a line is never left.
NODISCARD enum status report_add(struct report *r, const struct episode_result *result);

// What the lines so far amount to.
void report_summarise(const struct report *r, bool complete, struct evaluator_summary *out);

// Write summary.json. `wall_s` is the time it took, in seconds.
NODISCARD enum status report_finish(struct report *r, const struct evaluator_summary *summary,
                                    const struct worklist_counts *counts, double wall_s);

// NULL is fine.
void report_close(struct report *r);

#endif
