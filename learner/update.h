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
// Advantages are scaled by the mean and deviation of the windows before (a moving average), because
// those of the open window are not known while it streams. The very first window has none before
// it: it is kept, and its first pass runs when it closes. With epochs > 1 every window is kept;
// after the streamed pass it is replayed from memory, on its own advantages' mean and deviation,
// against the policy that it began with.
//
// Threads: one thread calls; the work is shared by a team of the updater's own. Results depend on
// the order of the chunks, not on the number of threads nor on their timing.
#ifndef LEARNER_UPDATE_H
#define LEARNER_UPDATE_H

#include "common/base/config.h"
#include "common/wire/trainproto.h"
#include "nn/accel.h"
#include "nn/weights.h"

#define UPDATE_THREADS_MAX 8
#define UPDATE_LOG_STD_MIN (-5.0) // log_std is kept in this range
#define UPDATE_LOG_STD_MAX 2.0

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

// Option rows of an update_config that is field `u` of struct T, for a table as config.h has them.
#define UPDATE_OPT(T, type, field, low, high, def, name, help)     \
    {                                                              \
        name, type, offsetof(T, field), low, high, def, help, NULL \
    }
#define UPDATE_OPTS(T, u)                                                                   \
    UPDATE_OPT(T, OPT_REAL, u.gamma, 0, 1, "0.99", "gamma", "discount of a step"),          \
        UPDATE_OPT(T, OPT_REAL, u.gae_lambda, 0, 1, "0.95", "gae-lambda",                   \
                   "advantages: 0 looks one step ahead, 1 to the end"),                     \
        UPDATE_OPT(T, OPT_REAL, u.clip, 0.001, 10, "0.2", "clip", "PPO clip range"),        \
        UPDATE_OPT(T, OPT_REAL, u.value_coef, 0, 1000, "1", "value-coef",                   \
                   "weight of the value loss"),                                             \
        UPDATE_OPT(T, OPT_REAL, u.entropy_coef, 0, 100, "0", "entropy-coef",                \
                   "weight of the entropy bonus"),                                          \
        UPDATE_OPT(T, OPT_REAL, u.lr, 0, 1, "0.0003", "lr", "learning rate"),               \
        UPDATE_OPT(T, OPT_REAL, u.lr_final, 0, 1, "0", "lr-final",                          \
                   "learning rate at the end, reached linearly"),                           \
        UPDATE_OPT(T, OPT_REAL, u.beta1, 0, 0.9999, "0.9", "beta1",                         \
                   "AdamW: memory of the gradient"),                                        \
        UPDATE_OPT(T, OPT_REAL, u.beta2, 0, 0.99999, "0.999", "beta2",                      \
                   "AdamW: memory of its square"),                                          \
        UPDATE_OPT(T, OPT_REAL, u.adam_eps, 1e-12, 1, "1e-5", "adam-eps",                   \
                   "AdamW: added to the root of the square"),                               \
        UPDATE_OPT(T, OPT_REAL, u.weight_decay, 0, 10, "0", "weight-decay",                 \
                   "AdamW: decay of the networks' parameters"),                             \
        UPDATE_OPT(T, OPT_REAL, u.max_grad_norm, 0, 1e9, "0.5", "max-grad-norm",            \
                   "limit of each network's gradient norm, 0 = off"),                       \
        UPDATE_OPT(T, OPT_REAL, u.weight_cap, 1, 1e6, "2", "weight-cap",                    \
                   "cap of the importance weight of stale samples"),                        \
        UPDATE_OPT(T, OPT_REAL, u.target_kl, 0, 100, "0", "target-kl",                      \
                   "replay of a window stops above it, 0 = off"),                           \
        UPDATE_OPT(T, OPT_INT, u.epochs, 1, 1000, "10", "epochs",                           \
                   "passes over a window; the first is streamed"),                          \
        UPDATE_OPT(T, OPT_INT, u.minibatches, 1, 100000, "8", "minibatches",                \
                   "optimizer steps of each replayed pass"),                                \
        UPDATE_OPT(T, OPT_INT, u.threads, 1, UPDATE_THREADS_MAX, "1", "learner-threads",    \
                   "threads of the update"),                                                \
        UPDATE_OPT(T, OPT_BOOL, u.normalize_obs, 0, 1, "true", "normalize-obs",             \
                   "scale observations by running mean and std"),                           \
        UPDATE_OPT(T, OPT_BOOL, u.normalize_returns, 0, 1, "true", "normalize-returns",     \
                   "scale value targets (PopArt)"),                                         \
        UPDATE_OPT(T, OPT_BOOL, u.normalize_advantage, 0, 1, "true", "normalize-advantage", \
                   "scale advantages by mean and std"),                                     \
        UPDATE_OPT(T, OPT_TIME, u.accel.infer_ns, 0, 60e9, "0", "accel-infer",              \
                   "modelled accelerator: time of an inference"),                           \
        UPDATE_OPT(T, OPT_TIME, u.accel.infer_row_ns, 0, 60e9, "0", "accel-infer-row",      \
                   "and of each row of it"),                                                \
        UPDATE_OPT(T, OPT_TIME, u.accel.update_row_ns, 0, 60e9, "0", "accel-update-row",    \
                   "and of a sample's forward and backward"),                               \
        UPDATE_OPT(T, OPT_TIME, u.accel.update_ns, 0, 60e9, "0", "accel-update",            \
                   "and of an optimizer step")

// What one window did. Means are over its samples; losses are those of the first pass.
struct update_stats {
    int64_t samples, chunks, steps; // optimizer steps
    double policy_loss, value_loss; // the value's on the scale of its network
    double entropy;
    double approx_kl;     // of the last pass: from the window's start, or without replay from the
                          // policies that acted
    double clip_fraction; // of the last pass
    double grad_norm;     // before clipping, mean over the steps
    double weight_mean, weight_max; // behaviour importance weights
    double explained_variance, lr;
    double lag_mean, lag_max; // versions
};

struct updater;

// `w` gives the initial parameters, normalisers and version (borrowed, copied). total_windows is
// for the schedule.
NODISCARD enum status updater_create(struct updater **out, const struct update_config *cfg,
                                     const struct weights *w, int64_t total_windows);
void updater_destroy(struct updater *u); // NULL is fine

// Forward and backward of one chunk at the frozen weights. The chunk's arrays, its pictures as
// chunk_read gives them, are read before the call returns. A chunk of another model or of a later
// version is ST_PROTO.
NODISCARD enum status updater_accumulate(struct updater *u, const struct chunk *c);

// The same for a list, which the team shares; equal to the same chunks one by one, to the bit.
NODISCARD enum status updater_accumulate_many(struct updater *u, const struct chunk *const *c,
                                              int n);

// Samples accumulated since the last step.
int64_t updater_samples(const struct updater *u);

// Close the window: divide, clip, AdamW, replay passes, normalisers, version + 1. `*out` is the new
// version (the caller's reference). A window without samples only counts the version up. ST_INVAL
// if a gradient is not finite; after a failure the updater can only be destroyed.
NODISCARD enum status updater_step(struct updater *u, struct weights **out,
                                   struct update_stats *stats);

// The present version (borrowed).
const struct weights *updater_weights(const struct updater *u);

// All that the next window depends on, as of the last closed one; for checkpoints. The arrays are
// the updater's.
struct updater_state {
    const struct weights *weights;
    int64_t n_param, n_step, total_windows;
    float *m, *v;          // (n_param) AdamW's moments
    double averages[2][3]; // of advantages and returns: see scale.h
    const struct update_config *cfg;
};

void updater_get(struct updater *u, struct updater_state *out);
// Go on from `w` (copied) with the moments that were written into the arrays of updater_get.
// Forgets an open window.
NODISCARD enum status updater_restore(struct updater *u, const struct weights *w,
                                      const struct updater_state *state);

#endif
