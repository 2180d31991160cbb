// batcher.h - when does a dynamic batch leave? A pure state machine without clock, lock or data.
//
// A batch leaves when B_max rows wait, when T_max has passed since the oldest waiting row arrived,
// or when nothing is in flight that could still join it; with a B_min, also as soon as B_min rows
// wait, with all that are there by then. So a short batch is normal, and it says why it left. The
// deadline belongs to the oldest row, so a late row never pushes it out and an idle gap never
// shortens it.
//
// The env server (finished rows) and rollout (rows to infer) use the same rule.
#ifndef COMMON_BASE_BATCHER_H
#define COMMON_BASE_BATCHER_H

#include "common/base/status.h"

#include <stdint.h>

#define BATCHER_MAX 65536

// Why a batch left; BATCHER_WAIT means that it may not leave yet.
enum batcher_why {
    BATCHER_WAIT,
    BATCHER_FULL,     // B_max rows
    BATCHER_DEADLINE, // T_max has passed
    BATCHER_DRAINED,  // nothing is in flight
    BATCHER_ENOUGH,   // B_min rows
};
#define BATCHER_WHYS 5

struct batcher {
    int b_min, b_max;
    int64_t t_max_ns;
    int n;             // rows waiting
    int64_t oldest_ns; // when the oldest of them arrived
};

// b_max in 1..BATCHER_MAX, t_max_ns >= 0 (0 = a row never waits). B_min is b_max.
NODISCARD enum status batcher_init(struct batcher *b, int b_max, int64_t t_max_ns);

// b_min in 1..b_max.
NODISCARD enum status batcher_set_min(struct batcher *b, int b_min);

// A row arrived at now_ns. More rows than b_max may wait; they leave in the batches after.
void batcher_add(struct batcher *b, int64_t now_ns);

// May a batch leave, with `in_flight` rows that could still join?
enum batcher_why batcher_check(const struct batcher *b, int64_t now_ns, int in_flight);

// Nanoseconds until the deadline of the waiting rows, INT64_MAX if none waits.
int64_t batcher_due_ns(const struct batcher *b, int64_t now_ns);

// A batch leaves: at most b_max rows; returns how many. The rows that stay count as having
// arrived at `next_ns`, the arrival of the oldest of them.
int batcher_take(struct batcher *b, int64_t next_ns);

// "full", "deadline", "drained" or "enough".
const char *batcher_why_name(enum batcher_why why);

#endif
