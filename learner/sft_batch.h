// sft_batch.h - the samples of one optimizer step: packed into micro-batches, forward and backward
// on several threads, one sum of gradients.
//
// Sums do not depend on the number of threads: micro-batches are added in their order.
//
// Threads: one caller; a team of its own works.
#ifndef LEARNER_SFT_BATCH_H
#define LEARNER_SFT_BATCH_H

#include "learner/clone_loss.h"
#include "learner/demos.h"
#include "nn/vla_about.h"

struct sft_batch_config {
    int samples;     // of a step at most
    int budget;      // tokens of a micro-batch
    int threads;     // that work
    int shift;       // pictures are moved by up to so many pixels, as their sample's numbers say
    bool padded;     // for comparison: batches in the given order, padded
    bool checkpoint; // keep less of the forward pass, compute it twice
    enum clone_loss loss;
};

struct sft_sums {
    double loss;      // sum
    double weight;    // numbers that were demonstrated: the divisor
    int64_t tokens;   // of the sequences
    int64_t computed; // with padding
    int micro;        // micro-batches
};

struct sft_batch;

// `demos` and `about` are borrowed. ST_INVAL if a sequence does not fit into the budget, or the
// data and the model do not fit.
NODISCARD enum status sft_batch_create(struct sft_batch **out, const struct sft_batch_config *cfg,
                                       struct demos *demos, const struct vla_about *about);
void sft_batch_destroy(struct sft_batch *b); // NULL is fine

int64_t sft_batch_params(const struct sft_batch *b);
int64_t sft_batch_log_std(const struct sft_batch *b); // where log_std is among them
int64_t sft_batch_bytes(const struct sft_batch *b);   // memory of the workspaces and gradients

// First values of the parameters, a function of the seed.
void sft_batch_init(const struct sft_batch *b, uint64_t seed, double log_std, float *params);

// Start from what the data look like: the mean picture embeds as zero, and what differs between
// pictures (their standard deviation, over all pixels) as about 0.5, the size of the position
// embedding. Pictures of one scene are nearly equal, and a network that begins with their common
// part takes long to see the rest. A function of the seed, which picks the pictures; in the spirit
// of Salimans and Kingma 2016, who set the first biases and gains from data.
NODISCARD enum status sft_batch_center(struct sft_batch *b, uint64_t seed, float *params);

// Gradient sum (n_param) over n samples, set. `seed` and `step` determine the shifts.
NODISCARD enum status sft_batch_run(struct sft_batch *b, const float *params, const int32_t *sample,
                                    int n, uint64_t seed, uint64_t step, float *grad,
                                    struct sft_sums *sums);

#endif
