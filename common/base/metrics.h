// metrics.h - numbers over time: one JSON line a step and a TensorBoard event file beside it.
//
// Threads: one at a time.
#ifndef COMMON_BASE_METRICS_H
#define COMMON_BASE_METRICS_H

#include "common/base/status.h"

#include <stdint.h>

struct metrics;

struct metric {
    const char *tag; // "train/return_mean"
    double value;    // NaN: left out
};

// Opens dir/metrics.jsonl (appended to) and dir/events.out.tfevents.*; `dir` must exist.
NODISCARD enum status metrics_open(struct metrics **out, const char *dir);

// One line and one event. ST_IO (disk full, for example) names the file.
NODISCARD enum status metrics_write(struct metrics *m, int64_t step, const struct metric *values,
                                    int n);

// NULL is fine.
void metrics_close(struct metrics *m);

#endif
