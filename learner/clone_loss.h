// clone_loss.h - behaviour cloning: how far the mean actions of a chunk are from those of a
// demonstration, as a sum over what was demonstrated. The sum is divided once, by the number of
// demonstrated numbers of the whole optimizer step; what is behind the end of a demo counts in
// neither.
//
//   l1   |r| - b / 2 where |r| > b = 0.05, else r^2 / (2 b)   (Huber 1964, scaled to slope 1)
//   l2   r^2 / 2
//   nll  r^2 / (2 s^2) + log s + log(2 pi) / 2, s = exp(log_std) of the action's number
//
//   flow r^2 of the velocity of a flow (nn/heads.h); the only loss of such a model
//
// with r = mean - target on the scale of the network.
//
// Threads: pure functions.
#ifndef LEARNER_CLONE_LOSS_H
#define LEARNER_CLONE_LOSS_H

enum clone_loss { CLONE_L1, CLONE_L2, CLONE_NLL, CLONE_FLOW };
#define CLONE_LOSSES "l1|l2|nll|flow"

// Of one chunk: mean and target (of a flow velocity and noise - action) (chunk, n_act), of which
// the first n_real steps count. Sets d_mean (chunk, n_act), adds to d_log_std (n_act) with
// CLONE_NLL; returns the sum.
double clone_loss(enum clone_loss kind, const float *mean, const float *target, int n_real,
                  int chunk, int n_act, const float *log_std, float *d_mean, double *d_log_std);

#endif
