// episode_lengths.h - how long episodes of LIBERO and their instructions are, for benchmarks.
//
// A success lasts as long as the scripted expert's: from the deciles of its successes, 100, 100, 95
// and 77 episodes of the four suites (docs/libero-expert.html). A failure lasts until evaluators
// stop: 220, 280, 300 and 520 steps. Instructions have the bytes of the suites' ten tasks.
//
// Threads: pure functions.
#ifndef BENCH_EPISODE_LENGTHS_H
#define BENCH_EPISODE_LENGTHS_H

#include <stdbool.h>

#define EPISODE_SUITES   "all|libero_spatial|libero_object|libero_goal|libero_10"
#define EPISODE_TEXT_MAX 88 // bytes of the longest instruction

struct episode {
    int suite; // 0 libero_spatial to 3 libero_10
    int task;  // 0..9
    int steps; // actions until success or the suite's end
    int text;  // bytes of the instruction
    bool success;
};

// Episode number i of those that `suite`, an index into EPISODE_SUITES, gives at that success rate
// (0..1): a function of the three. "all" takes the suites in turn. Of each suite's first n episodes
// n times the rate succeed, to within one, and the lengths of successes are spread evenly over the
// distribution (multiples of the golden ratio), so that a small batch has its shape.
struct episode episode_draw(int suite, double success, int i);

#endif
