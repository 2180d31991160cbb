// packing.h - sequences of unequal length into micro-batches of a token budget: nothing is padded.
//
// First-fit decreasing (Johnson 1973): the longest first, each into the first batch that has room.
// At most 11/9 of the fewest batches possible, and 2/3 (Dosa 2007). Equal lengths keep their order,
// so the result is a function of the lengths alone.
//
// The padded alternative, for comparison: batches in the given order, in which every sequence
// counts as long as the longest of its batch, within the same budget.
//
// Threads: one at a time. Ownership: packing_init makes room, packing_fini frees it.
#ifndef LEARNER_PACKING_H
#define LEARNER_PACKING_H

#include "common/base/status.h"

#include <stdint.h>

#define PACKING_TOKENS_MAX (1 << 30) // of a budget, and of all sequences

// Batch b holds the sequences item[first[b]] to item[first[b + 1] - 1], in ascending order.
struct packing {
    int n_max; // sequences at most
    int n, n_batch;
    int *item;        // (n)
    int *first;       // (n_batch + 1)
    int64_t tokens;   // of all sequences
    int64_t computed; // tokens with padding: those that a padded batch computes, else `tokens`
    // scratch
    int *order; // (n_max) by length, then number
    int *batch; // (n_max) of each sequence
    int *room;  // (2 * a power of two >= n_max) tree of maxima over the rooms of the batches
};

NODISCARD enum status packing_init(struct packing *p, int n_max);
void packing_fini(struct packing *p);

// Of n lengths, each 1..budget; n may be 0. ST_INVAL names the sequence that does not fit.
NODISCARD enum status packing_pack(struct packing *p, const int *length, int n, int budget);
NODISCARD enum status packing_pad(struct packing *p, const int *length, int n, int budget);

// Share of the computed tokens that are no padding, 0..1; 1 without tokens.
double packing_share(const struct packing *p);

#endif
