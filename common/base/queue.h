// queue.h - bounded blocking queue of pointers, many producers, many consumers.
//
// Ownership: a successful push hands the item to the queue, a successful pop hands it to the
// caller; on any other status the pusher still owns it. queue_close() is how a stage stops: pushes
// fail with ST_CLOSED at once, pops drain what is left and then fail with ST_CLOSED.
//
// Threads: one mutex, never held while calling out of this file.
#ifndef COMMON_BASE_QUEUE_H
#define COMMON_BASE_QUEUE_H

#include "common/base/status.h"

#include <stdint.h>

struct queue;

NODISCARD enum status queue_create(struct queue **out, int capacity);

// Waits at most `wait_ns` for room (0 = do not wait, WAIT_NEVER = no limit).
// ST_OK, ST_TIMEOUT (ST_AGAIN if wait_ns is 0) or ST_CLOSED.
NODISCARD enum status queue_push(struct queue *q, void *item, int64_t wait_ns);
NODISCARD enum status queue_pop(struct queue *q, void **out, int64_t wait_ns);

// Idempotent.
void queue_close(struct queue *q);

int queue_length(struct queue *q);

// The queue must be empty or hold only items that somebody else frees. NULL is fine.
void queue_destroy(struct queue *q);

#endif
