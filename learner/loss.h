// loss.h - the losses of single samples and their derivatives by what the networks put out.
//
// Policy: -w min(r A, clip(r) A) (Schulman et al. 2017, eq. 7) with w = min(pi / mu, cap), detached
// (Hilton et al. 2021): pi is the policy being trained, r its ratio to the policy at the start of
// the window, mu the one that chose the action. Value: (V - target)^2 / 2. Entropy of a Gaussian.
// Everything is a sum over samples; nobody divides here.
//
// Threads: pure functions.
#ifndef LEARNER_LOSS_H
#define LEARNER_LOSS_H

#include "nn/real.h"

#include <stdint.h>

#ifdef REAL_IS_DOUBLE
#define loss_weights  loss_weights_f64
#define loss_policy   loss_policy_f64
#define loss_value    loss_value_f64
#define loss_sums_add loss_sums_add_f64
#endif

struct loss_config {
    double clip, value_coef, entropy_coef, weight_cap;
};

struct loss_sums {
    int64_t samples;
    double policy, value;      // losses, without coefficients
    double kl;                 // r - 1 - log r, against the window's start, or mu while streaming
    double clipped;            // samples at which clipping took the gradient away
    double weight, weight_max; // of the importance weights
};

// Samples as both losses see them. Rows of padded arrays are REAL_LD apart.
struct loss_rows {
    int n, n_act;
    const real *mean;      // (n, n_act) padded
    const real *inv_std;   // (n_act)
    const real *action;    // (n, n_act)
    const real *logp;      // (n) of the action now
    const real *logp_ref;  // (n) at the start of the window; NULL: this is the start, r = 1
    const real *weight;    // (n) w
    const real *advantage; // (n) as it enters the loss
    const real *value;     // (n, 1) padded
    const real *target;    // (n) on the scale of `value`
};

// weight (n) = min(exp(logp - logp_behaviour), cap), and the KL sum of it.
void loss_weights(const real *logp, const real *logp_behaviour, int n, double cap, real *weight,
                  struct loss_sums *sums);

// mean_grad (n, n_act) padded: set; log_std_grad (n_act): added to.
void loss_policy(const struct loss_config *cfg, const struct loss_rows *rows, real *mean_grad,
                 real *log_std_grad, struct loss_sums *sums);

// value_grad (n, 1) padded: set.
void loss_value(const struct loss_config *cfg, const struct loss_rows *rows, real *value_grad,
                struct loss_sums *sums);

void loss_sums_add(struct loss_sums *to, const struct loss_sums *from);

#endif
