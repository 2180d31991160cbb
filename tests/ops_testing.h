// ops_testing.h - what the tests of the numeric operators share: random numbers, finite differences
// and distances, in the precision of nn/real.h.
#ifndef TESTS_OPS_TESTING_H
#define TESTS_OPS_TESTING_H

#include "tests/testing.h"

#include "common/base/rng.h"
#include "nn/ops.h"

static inline real *zeros(int64_t n)
{
    real *p = mem_alloc((size_t)n, sizeof *p);

    assert_non_null(p);
    return p;
}

// Standard normal numbers times `scale`.
static inline real *normals(struct rng *r, int64_t n, double scale)
{
    real *p = zeros(n);

    for (int64_t i = 0; i < n; i++)
        p[i] = (real)(scale * rng_normal(r));
    return p;
}

static inline int between(struct rng *r, int low, int high)
{
    return low + (int)rng_below(r, (uint32_t)(high - low + 1));
}

// Largest difference over the largest number of `want`.
static inline double distance(const real *got, const real *want, int64_t n)
{
    double most = 0, size = 1e-30;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);

        most = d > most || isnan(d) ? d : most;
        size = fmax(size, fabs((double)want[i]));
    }
    return most / size;
}

// sum of y * factor over rows of `width` numbers: a loss whose gradient by y is `factor`.
static inline double weighted(const real *y, const real *factor, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)y[i] * (double)factor[i];
    return sum;
}

// A loss as a function of numbers that a test changes one at a time.
typedef double (*loss_fn)(void *arg);

// The gradient of `loss` by `n_try` of the n numbers x is what `grad` says.
static inline void check_gradient(loss_fn loss, void *arg, real *x, int64_t n, const real *grad,
                                  int n_try, struct rng *r)
{
    const double h = 1e-5;

    for (int t = 0; t < n_try && n > 0; t++) {
        int64_t at = n <= n_try ? t % n : (int64_t)rng_below(r, (uint32_t)n);
        real held = x[at];
        double up, down;

        x[at] = held + (real)h;
        up = loss(arg);
        x[at] = held - (real)h;
        down = loss(arg);
        x[at] = held;
        assert_close((double)grad[at], (up - down) / (2 * h), 1e-6, 1e-7);
    }
}

#endif
