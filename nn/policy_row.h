// policy_row.h - one row to act for, of either kind of policy (nn/policy.h).
#ifndef NN_POLICY_ROW_H
#define NN_POLICY_ROW_H

#include <stdint.h>

// The noise is a function of (seed, stream, episode, step).
struct policy_row {
    const double *obs; // (n_obs) raw
    uint64_t seed, stream, episode, step;
    const uint8_t *const *pictures; // (stack) of a model with vision, see encoder.h; of a
                                    // vision-language-action model one a camera (vla_input.h),
                                    // NULL = this row lacks it
    const char *instruction;        // of a vision-language-action model
};

// What policy_draw makes of n rows: decisions that a policy gradient can learn from. `width` is the
// chunk's numbers, all on the scale of the network. Arrays may be NULL if not wanted.
struct policy_draw {
    float *mean;   // (n, width) of the Gaussian that was drawn from
    float *drawn;  // (n, width) from it: what log-probabilities are of
    float *action; // (n, width) what is done of it
    float *latent; // (n, policy_latent) what the mean is a function of besides the row
};

#endif
