// scale.h - the statistics that put observations, returns and advantages on a common scale. All are
// frozen inside a window and move when it closes.
//
// Threads: one at a time.
#ifndef LEARNER_SCALE_H
#define LEARNER_SCALE_H

#include "nn/model.h"

#include <stdint.h>

// A moving average over windows of a number's mean and square, free of the start's bias.
struct average {
    double weight, mean, square; // sums with weights that fade by `keep` a window
};

void average_add(struct average *a, double keep, double mean, double square);
// Mean and standard deviation (never below 1e-4); untouched if nothing was added yet.
void average_read(const struct average *a, double *mean, double *std);

// Sums of one number over samples.
struct tally {
    double n, sum, square;
};

static inline void tally_add(struct tally *t, double x)
{
    t->n += 1;
    t->sum += x;
    t->square += x * x;
}

void tally_merge(struct tally *to, const struct tally *from);
double tally_mean(const struct tally *t); // 0 if empty
double tally_var(const struct tally *t);  // never below 0

// Sums of whole observations around a shift near their mean; they merge by addition.
struct obs_sums {
    double n;
    double *sum, *square; // (n_obs) of obs - shift; the caller's memory
};

void obs_sums_add(struct obs_sums *s, const float *obs, const double *shift, int n_obs);
void obs_sums_merge(struct obs_sums *to, const struct obs_sums *from, int n_obs);
// Merge into mean, var (n_obs) of `count` observations (Chan, Golub and LeVeque 1979).
void obs_sums_apply(const struct obs_sums *s, const double *shift, int n_obs, double *count,
                    double *mean, double *var);

// PopArt (van Hasselt et al. 2016): change the value network's last layer so that mean + std * V
// predicts what old_mean + old_std * V did: `row` is its (n) weights and its bias behind them.
void scale_preserve(float *row, int n, double old_mean, double old_std, double mean, double std);

#endif
