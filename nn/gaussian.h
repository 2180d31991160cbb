// gaussian.h - log-probability of actions under a diagonal Gaussian. One function for rollout and
// learner, so that the ratio of fresh data is exactly 1.
//
// Threads: pure functions.
#ifndef NN_GAUSSIAN_H
#define NN_GAUSSIAN_H

#include "nn/real.h"

#ifdef REAL_IS_DOUBLE
#define gaussian_inv_std gaussian_inv_std_f64
#define gaussian_logp    gaussian_logp_f64
#define gaussian_parts   gaussian_parts_f64
#endif

// inv_std (n_act) = exp(-log_std). Returns the sum of log_std + log sqrt(2 pi).
double gaussian_inv_std(const real *log_std, int n_act, real *inv_std);

// logp (n) of action (n, n_act) with mean (n, REAL_LD(n_act)); `norm` and inv_std from above.
void gaussian_logp(const real *mean, const real *action, int n, int n_act, const real *inv_std,
                   double norm, real *logp);

// The same of the parts of an action chunk apart: logp (n, n_part), where each part is n_act /
// n_part numbers of the action; rows of mean are `ld` apart. A row's result does not depend on the
// others.
void gaussian_parts(const real *mean, int ld, const real *action, int n, int n_act, int n_part,
                    const real *log_std, const real *inv_std, real *logp);

#endif
