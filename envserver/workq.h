// workq.h - a queue of items that workers claim, without locks, even between processes: whichever
// instruction a worker dies at, every item is still idle, queued, claimed by somebody who is known,
// or finished by him.
//
// Each item has a cell that says so; the cell is the truth and moves by one atomic instruction:
//
//   idle --put--> queued --claim--> claimed (by worker w) --finish--> finished (by w)
//     ^------------------release-----------'                              |
//     ^------------------collect------------------------------------------'
//
// The ring only gives the order. An entry whose item is not queued any more is skipped by whoever
// meets it, so a worker that died between a claim and moving the ring's head holds up nobody.
//
// Memory: given by the caller, zeroed; several queues (lanes) may share one array of cells.
// Threads: workq_put from one thread at a time, everything else from any.
#ifndef ENVSERVER_WORKQ_H
#define ENVSERVER_WORKQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum workq_state { WORKQ_IDLE, WORKQ_QUEUED, WORKQ_CLAIMED, WORKQ_FINISHED };

struct workq_cell {
    atomic_uint word; // state and worker
} __attribute__((aligned(64)));

struct workq {
    atomic_ullong head __attribute__((aligned(64))); // next to claim
    atomic_ullong tail __attribute__((aligned(64))); // next to fill
    uint64_t mask;
    atomic_uint *ring;
    struct workq_cell *cells;
};

// Bytes of the ring for items 0..n_item-1.
size_t workq_ring_bytes(int n_item);
void workq_init(struct workq *q, void *ring, struct workq_cell *cells, int n_item);

// Queue an idle item; what was written before is visible to who claims it.
void workq_put(struct workq *q, uint32_t item);

// Claim the oldest queued item for `worker`; -1 if there is none.
int64_t workq_claim(struct workq *q, unsigned worker);

// Is anything queued? May say yes for entries that will be skipped.
bool workq_any(struct workq *q);

void workq_release(struct workq_cell *cell);                 // claimed -> idle
void workq_finish(struct workq_cell *cell, unsigned worker); // claimed -> finished
bool workq_collect(struct workq_cell *cell);                 // finished -> idle; false: it was not

enum workq_state workq_look(struct workq_cell *cell, unsigned *worker);

#endif
