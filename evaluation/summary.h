// summary.h - what a finished evaluation amounts to, for people and for programs: summary.json, a
// superset of LeRobot's eval_info.json; junit.xml, for nightly jobs.
//
// Threads: one at a time.
#ifndef EVALUATION_SUMMARY_H
#define EVALUATION_SUMMARY_H

#include "evaluation/results.h"

// What the results do not say themselves. Zeroes and NULL: not known.
struct summary_about {
    const char *dir;            // of the evaluation; films are looked for below it
    const char *const *sources; // folders that it was merged from, (n_source)
    int n_source;
    const char *options; // resolved options of the command, JSON
    const char *machine; // where it ran, JSON
    double wall_s;       // NaN = not known
    int64_t wanted;      // episodes, of this shard
    int64_t retries, returned;
    double fail_below; // success rate that is wanted at least; NaN = none
};

// Has the film of this row, if there is one: its path as seen from `dir`.
bool summary_film(const struct results *r, const struct result *row,
                  const struct summary_about *about, char *buf, size_t size);

// `r` is sorted. The text of summary.json, with its end of line.
NODISCARD enum status summary_text(const struct results *r, const struct summary_about *about,
                                   struct text *out);

// Write DIR/summary.json and DIR/junit.xml; *all is what the whole amounts to.
NODISCARD enum status summary_write(const struct results *r, const struct summary_about *about,
                                    struct evaluator_summary *all);

#endif
