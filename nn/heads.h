// heads.h - what turns outputs of a network into losses: a Gaussian and a categorical head, and
// flow matching with the stochastic sampler that gives it likelihoods.
//
// Everything is elementwise or by rows; what is summed, masked and divided is the caller's.
// Gradients are set unless it says otherwise. Threads: pure functions.
#ifndef NN_HEADS_H
#define NN_HEADS_H

#include "nn/real.h"

#include <stdint.h>

#ifdef REAL_IS_DOUBLE
#define heads_gaussian_logp      heads_gaussian_logp_f64
#define heads_gaussian_backward  heads_gaussian_backward_f64
#define heads_cross_entropy      heads_cross_entropy_f64
#define heads_flow_point         heads_flow_point_f64
#define heads_flow_loss          heads_flow_loss_f64
#define heads_flow_time          heads_flow_time_f64
#define heads_flow_step          heads_flow_step_f64
#define heads_flow_sde           heads_flow_sde_f64
#define heads_flow_mean          heads_flow_mean_f64
#define heads_flow_logp          heads_flow_logp_f64
#define heads_flow_logp_backward heads_flow_logp_backward_f64
#define heads_flow_levels        heads_flow_levels_f64
#define heads_flow_unit          heads_flow_unit_f64
#define heads_flow_unit_backward heads_flow_unit_backward_f64
#define heads_time_embedding     heads_time_embedding_f64
#endif

// --- diagonal Gaussian --------------------------------------------------------------------------

// logp (n, dim) = log N(action; mean, exp(log_std)^2) of every number; log_std (dim).
void heads_gaussian_logp(int n, int dim, const real *mean, const real *log_std, const real *action,
                         real *logp);
// From d_logp (n, dim): d_mean (n, dim) is set, d_log_std (dim) added to (NULL: not wanted).
void heads_gaussian_backward(int n, int dim, const real *mean, const real *log_std,
                             const real *action, const real *d_logp, real *d_mean, real *d_log_std);

// --- categorical: softmax cross entropy ---------------------------------------------------------

// loss (n) = -log softmax(logits)[target], 0 where target is negative. d_logits (n, classes), which
// may be logits or NULL: the gradient of the sum of weight * loss; weight (n), NULL: all 1.
void heads_cross_entropy(int n, int classes, const real *logits, const int *target,
                         const real *weight, real *loss, real *d_logits);

// --- flow matching (Lipman et al. 2023), as pi0 has it ------------------------------------------
//
// t = 1 is noise, t = 0 the action: x_t = t noise + (1 - t) action; the network's velocity v is
// fitted to noise - action and followed from 1 to 0.

// A training time of uniform u in [0, 1): 0.999 Beta(1.5, 1) + 0.001.
double heads_flow_time(double u);

// x (n, width) at times t (n), and the velocity's target (n, width).
void heads_flow_point(int n, int width, const real *noise, const real *action, const real *t,
                      real *x, real *target);

// Sum of weight * (target - v)^2 over rows and width; weight (n), NULL: all 1. d_v (n, width),
// NULL: not wanted.
double heads_flow_loss(int n, int width, const real *v, const real *target, const real *weight,
                       real *d_v);

// One step of a sampler from t to t - 1 / steps: x' ~ N(by_x x + by_v v, std^2).
struct heads_flow {
    double t;          // where v is evaluated
    double by_x, by_v; // of the mean
    double std;        // 0: Euler's step, no likelihood
};

// Euler's step number i of `steps`.
struct heads_flow heads_flow_step(int i, int steps);

// The step of Flow-SDE (Flow-GRPO, Liu et al. 2025; pi-RL, arXiv 2510.25889): the same marginals
// with noise s = noise_level sqrt(t / (1 - t)), 1 - t being 1 / steps at t = 1.
struct heads_flow heads_flow_sde(int i, int steps, double noise_level);

// mean (n) of the next x; x may be mean.
void heads_flow_mean(const struct heads_flow *f, int64_t n, const real *x, const real *v,
                     real *mean);

// logp (n) of `next` for every number, and d_v (n) from d_logp (n). std is not 0.
void heads_flow_logp(const struct heads_flow *f, int64_t n, const real *x, const real *v,
                     const real *next, real *logp);
void heads_flow_logp_backward(const struct heads_flow *f, int64_t n, const real *x, const real *v,
                              const real *next, const real *d_logp, real *d_v);

// The same with a noise level for each of n_act numbers of an action, exp(log_level); out (n_act).
void heads_flow_levels(int i, int steps, int n_act, const real *log_level, struct heads_flow *out);

// The step in units of its own standard deviation: mean (n) = (by_x x + by_v v) / std, so that
// next / std is drawn from a Gaussian of standard deviation 1. Number k is of f[k % n_act].
void heads_flow_unit(const struct heads_flow *f, int n_act, int64_t n, const real *x, const real *v,
                     real *mean);
// d_v (n) from d_mean (n), which it may be.
void heads_flow_unit_backward(const struct heads_flow *f, int n_act, int64_t n, const real *d_mean,
                              real *d_v);

// out (dim), dim even: sines, then cosines of t at dim / 2 periods from 0.004 to 4, spread evenly
// by their logarithm.
void heads_time_embedding(double t, int dim, real *out);

#endif
