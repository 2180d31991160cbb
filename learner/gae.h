// gae.h - generalised advantage estimation over one chunk (Schulman et al. 2016, eq. 16).
//
//   delta_t = r_t + gamma V(next) - V(s_t)        A_t = delta_t + gamma lambda A_t+1
//
// V(next) is V(s_t+1), or V(final observation) at a truncation, or nothing at a termination. The
// recursion stops at each of these and at the end of the chunk, so no advantage crosses an episode
// boundary. A step that ended by an error has no known future: it is no sample, and the step before
// it looks ahead to V of its observation only. A step that only reset the env is no sample either.
//
// Threads: a pure function.
#ifndef LEARNER_GAE_H
#define LEARNER_GAE_H

#include <stdint.h>

struct gae_input {
    int n;
    double gamma, lambda;
    const float *reward;      // (n)
    const uint32_t *flags;    // (n) enum chunk_flag
    const float *value;       // (n + 1) of the observation before each step and after the last
    const float *final_value; // (truncated steps) of their final observations
};

// advantage, ret (n): A_t and the value's target A_t + V(s_t); 0 where `valid` is 0. Returns the
// number of samples.
int gae_run(const struct gae_input *in, float *advantage, float *ret, uint8_t *valid);

#endif
