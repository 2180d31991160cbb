// histogram.h - how often a value fell between given bounds, counted by any number of threads.
//
// Threads: any may add and read; a reading is not one instant, but every count is exact.
#ifndef COMMON_BASE_HISTOGRAM_H
#define COMMON_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define HISTOGRAM_MAX 24

struct histogram {
    int n;                                 // bounds
    const int64_t *bound;                  // (n) ascending; borrowed
    atomic_llong count[HISTOGRAM_MAX + 1]; // values <= bound[i] and above the one before; the rest
    atomic_llong sum;
};

// What a reader gets.
struct histogram_view {
    int n;
    const int64_t *bound;
    int64_t count[HISTOGRAM_MAX + 1];
    int64_t total, sum;
};

// `bound` has 1..HISTOGRAM_MAX values and outlives the histogram.
void histogram_init(struct histogram *h, const int64_t *bound, int n);
void histogram_add(struct histogram *h, int64_t value);
void histogram_read(const struct histogram *h, struct histogram_view *out);

// The value below which a share `q` (0..1) of the values lies, interpolated inside its bin; the
// last bound if it lies above. NaN without values.
double histogram_quantile(const struct histogram_view *v, double q);

#endif
