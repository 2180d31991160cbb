// stats.h - what a number of episodes says about the policy: mean and rate with 95 % intervals, and
// whether one policy beats another on the same episodes.
//
// Mean: Student's t with n - 1 degrees of freedom, which takes the returns of episodes as
// independent and near normal. Rate: Wilson's score interval (E. B. Wilson, JASA 22, 1927), which
// stays inside 0..1 and is honest for few episodes. Pure functions.
#ifndef EVALUATION_STATS_H
#define EVALUATION_STATS_H

struct stats_mean {
    double mean, std; // std with n - 1; NaN for fewer than 2 values
    double low, high; // 95 % interval; NaN for fewer than 2 values
    double min, max;
};

struct stats_rate {
    double rate, low, high;
};

// Of `n` values; all NaN for n = 0.
void stats_mean(struct stats_mean *out, const double *values, int n);

// Of `hits` among `n`; all NaN for n = 0.
void stats_wilson(struct stats_rate *out, int hits, int n);

// Paired yes-or-no answers. McNemar's exact test: the two-sided probability that `x` and `y`
// pairs, which differ one way and the other, are as uneven as this by chance (Q. McNemar,
// Psychometrika 12, 1947; binomial with 1/2). 1 if none differs.
double stats_mcnemar(int x, int y);

// Difference of the two rates, (x - y) / n, where x and y of n pairs differ one way and the other;
// 95 % score interval (T. Tango, Statistics in Medicine 17, 1998). All NaN for n = 0.
void stats_paired(struct stats_rate *out, int x, int y, int n);

// The t below which 97.5 % of Student's distribution with `df` >= 1 degrees of freedom lie;
// relative error below 1e-10.
double stats_t975(double df);

// The regularised incomplete beta function I_x(a, b), for a, b > 0 and x in 0..1.
double stats_beta_inc(double a, double b, double x);

#endif
