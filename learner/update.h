// update.h - the micro-batched streaming actor update: forward and backward for each chunk as it
// arrives, sums and counts accumulated, one division and one AdamW step per global batch.
//
// The gradient of a global batch does not depend on how it was cut nor on the order of arrival
// (beyond rounding): every term is a sum over samples, every divisor a total that is known when the
// batch closes. Weights, normalisers and advantage scale are frozen inside a batch. GAE uses the
// values of the frozen value network, V(final observation) at a truncation, nothing at a
// termination. Formulas: Schulman et al. 2017 (PPO, eq. 7), Schulman et al. 2016 (GAE, eq. 16),
// Hilton et al. 2021 (decoupled objective for stale data), van Hasselt et al. 2016 (PopArt).
//
// With epochs > 1 the first pass is streamed; the window is then replayed from memory.
//
// Threads: one thread calls; the work is shared by a team of the updater's own. Results do not
// depend on thread timing.
#ifndef LEARNER_UPDATE_H
#define LEARNER_UPDATE_H

#include "common/base/config.h"
#include "common/wire/trainproto.h"
#include "nn/accel.h"
#include "nn/weights.h"

struct update_config {
    double gamma, gae_lambda;
    double clip;       // PPO clip range
    double value_coef; // weight of the value loss
    double entropy_coef;
    double lr, lr_final; // linear from lr to lr_final over all windows
    double beta1, beta2, adam_eps, weight_decay;
    double max_grad_norm; // per network, 0 = off
    double weight_cap;    // cap of the behaviour importance weight for stale data
    double target_kl;     // replay of a window stops above it, 0 = off
    int64_t epochs;       // passes over a window; the first is streamed
    int64_t minibatches;  // optimizer steps per replayed pass
    int64_t threads;
    bool normalize_obs, normalize_returns, normalize_advantage;
    struct accel accel;
};

// What one window did. Means are over its samples.
struct update_stats {
    int64_t samples, chunks, steps; // optimizer steps
    double policy_loss, value_loss, entropy, approx_kl, clip_fraction, grad_norm;
    double weight_mean, weight_max; // behaviour importance weights
    double explained_variance, lr;
    double lag_mean, lag_max; // versions
};

struct updater;

// `w` gives the initial parameters (borrowed, copied). total_windows is for the schedule.
NODISCARD enum status updater_create(struct updater **out, const struct update_config *cfg,
                                     const struct weights *w, int64_t total_windows);
void updater_destroy(struct updater *u);

// Forward and backward of one chunk at the frozen weights. The chunk's arrays are read before the
// call returns.
NODISCARD enum status updater_accumulate(struct updater *u, const struct chunk *c);

// Samples accumulated since the last step.
int64_t updater_samples(const struct updater *u);

// Close the window: divide, clip, AdamW, replay passes, normalisers, version + 1. `*out` is the new
// version (the caller's reference).
NODISCARD enum status updater_step(struct updater *u, struct weights **out,
                                   struct update_stats *stats);

// The present version (borrowed).
const struct weights *updater_weights(const struct updater *u);

#endif
