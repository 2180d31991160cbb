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

#endif
