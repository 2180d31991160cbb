// compare.h - two evaluations of the same items, paired: who wins where, and whether that can be
// chance. Item by item, so that easy and hard tasks do not hide a difference.
//
// Threads: one at a time.
#ifndef EVALUATION_COMPARE_H
#define EVALUATION_COMPARE_H

#include "evaluation/results.h"
#include "evaluation/stats.h"

struct compared { // pairs of results without an error
    int64_t n;
    bool has_success;
    int64_t both, only_a, only_b, neither; // successes
    double p;                              // McNemar, exact, two-sided
    struct stats_rate difference;          // rate of B less rate of A, 95 % (Tango)
    struct stats_mean returns;             // of return of B less return of A, 95 % (Student t)
};

struct flip {     // an item that came out differently
    int64_t a, b; // rows
};

struct comparison {
    struct compared all;
    struct compared *tasks; // (a->n_task) in the order of A
    struct flip *flips;     // (n_flip) in the order of A
    int64_t n_flip;
    int64_t unpaired_a, unpaired_b; // results whose item the other has not, or not without an error
};

// `a` and `b` are sorted. Items pair by task, episode and seed. ST_INVAL if none does.
NODISCARD enum status compare_make(struct comparison *out, const struct results *a,
                                   const struct results *b);
void compare_fini(struct comparison *c);

#endif
