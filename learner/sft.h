// sft.h - supervised fine-tuning: a vision-language-action policy learns to do as demonstrations
// do.
//
// A step takes `batch` samples from a shuffled stream of all of them (demos.h), packed into micro-
// batches (sft_batch.h); the gradient's sum is divided once, its norm cut off, then AdamW with a
// linear warm-up and a cosine to `lr_end` of the rate at the last step (adamw_factor). With `ema`
// the policy that is saved is the moving average of the parameters, of decay min(ema, (1 + s) / (10
// + s)) at step s.
//
// DIR/policy.h5 is the policy, DIR/checkpoint.h5 all that training needs to go on: what follows is
// the same to the bit as without the break. DIR/metrics.jsonl has a line every few steps. A run is
// a function of its options and data, not of the number of threads.
//
// Threads: sft_run is called by one thread and has its own team.
#ifndef LEARNER_SFT_H
#define LEARNER_SFT_H

#include "common/base/config.h"
#include "learner/clone_loss.h"

#include <stdatomic.h>

enum { SFT_LOSS_AUTO = CLONE_FLOW + 1 }; // as the model's head is

struct sft_config {
    char data[OPT_STR_MAX], model[OPT_STR_MAX], out[OPT_STR_MAX], init[OPT_STR_MAX];
    char cameras[OPT_STR_MAX], vocabulary[OPT_STR_MAX];
    int64_t demos_per_file, steps, batch, micro_tokens, warmup, shift, seed, threads, data_memory,
        save_every;
    double lr, lr_end, weight_decay, beta2, clip, ema, log_std;
    int loss;  // enum clone_loss, or SFT_LOSS_AUTO
    int scale; // 0 = quantiles, 1 = none
    bool center, padded, recompute, safetensors, resume;
};

// Option rows of a sft_config that is field `f` of struct T: those that change the result, and the
// others.
#define SFT_OPT(T, type, field, low, high, def, name, help, choices)  \
    {                                                                 \
        name, type, offsetof(T, field), low, high, def, help, choices \
    }
#define SFT_RESULT_OPTS(T, f)                                                                      \
    SFT_OPT(T, OPT_STR, f.data, 0, 0, NULL, "data",                                                \
            "demonstrations: HDF5 files of --record, LIBERO or robomimic, with commas between",    \
            NULL),                                                                                 \
        SFT_OPT(T, OPT_STR, f.model, 0, 0, "vla-tiny", "model",                                    \
                "vla-tiny, vla-small, or a JSON file of sizes; see docs/vla.md", NULL),            \
        SFT_OPT(T, OPT_STR, f.cameras, 0, 0, "agentview_image,robot0_eye_in_hand_image",           \
                "cameras", "pictures that the policy sees, by the names that the task gives them", \
                NULL),                                                                             \
        SFT_OPT(T, OPT_STR, f.vocabulary, 0, 0, "", "vocabulary",                                  \
                "byte pairs of the instruction's tokens, a file as docs/vla.md has it; empty = "   \
                "bytes",                                                                           \
                NULL),                                                                             \
        SFT_OPT(T, OPT_STR, f.init, 0, 0, "", "init",                                              \
                "go on from this policy's parameters, policy.h5 or model.safetensors", NULL),      \
        SFT_OPT(T, OPT_INT, f.demos_per_file, 0, 1e9, "0", "demos-per-file",                       \
                "the first so many demos of each file, 0 = all", NULL),                            \
        SFT_OPT(T, OPT_ENUM, f.scale, 0, 0, "quantiles", "action-scale",                           \
                "actions are -1 to 1 between their quantiles of 1 and 99 %, or as they are",       \
                "quantiles|none"),                                                                 \
        SFT_OPT(T, OPT_INT, f.steps, 1, 1e9, "1000", "steps", "optimizer steps in all", NULL),     \
        SFT_OPT(T, OPT_INT, f.batch, 1, 65536, "64", "batch", "samples of a step", NULL),          \
        SFT_OPT(T, OPT_INT, f.micro_tokens, 16, 1 << 24, "1536", "micro-tokens",                   \
                "tokens of a micro-batch at most: what memory is for", NULL),                      \
        SFT_OPT(T, OPT_ENUM, f.loss, 0, 0, "auto", "loss",                                         \
                "l1 (smooth near 0), l2, nll, which learns the standard deviations too, or flow "  \
                "where the model's head is one; auto = l1 or flow",                                \
                CLONE_LOSSES "|auto"),                                                             \
        SFT_OPT(T, OPT_REAL, f.lr, 0, 1, "0.001", "lr", "learning rate", NULL),                    \
        SFT_OPT(T, OPT_REAL, f.lr_end, 0, 1, "0.05", "lr-end",                                     \
                "share of it that is left at the end", NULL),                                      \
        SFT_OPT(T, OPT_INT, f.warmup, 0, 1e9, "50", "warmup", "steps of the linear warm-up",       \
                NULL),                                                                             \
        SFT_OPT(T, OPT_REAL, f.weight_decay, 0, 10, "0.01", "weight-decay", "of AdamW", NULL),     \
        SFT_OPT(T, OPT_REAL, f.beta2, 0, 0.999999, "0.99", "beta2",                                \
                "decay of AdamW's mean square", NULL),                                             \
        SFT_OPT(T, OPT_REAL, f.clip, 0, 1e9, "1", "max-grad-norm",                                 \
                "the gradient's norm is cut off here, 0 = never", NULL),                           \
        SFT_OPT(T, OPT_REAL, f.ema, 0, 0.999999, "0", "ema",                                       \
                "save the moving average of the parameters with this decay, 0 = the last ones",    \
                NULL),                                                                             \
        SFT_OPT(T, OPT_REAL, f.log_std, -10, 2, "-1.6", "log-std",                                 \
                "log standard deviation of the actions to start with, on the network's scale",     \
                NULL),                                                                             \
        SFT_OPT(T, OPT_INT, f.shift, 0, 64, "4", "shift",                                          \
                "pictures are moved at random by up to so many pixels", NULL),                     \
        SFT_OPT(T, OPT_BOOL, f.center, 0, 1, "true", "center",                                     \
                "begin with a picture embedding that is centred and scaled by the data", NULL),    \
        SFT_OPT(T, OPT_BOOL, f.padded, 0, 1, "false", "padded",                                    \
                "pad sequences instead of packing them, for comparison", NULL),                    \
        SFT_OPT(T, OPT_INT, f.seed, 0, 9e15, "1", "seed", "seed of everything random", NULL)
#define SFT_OTHER_OPTS(T, f)                                                                  \
    SFT_OPT(T, OPT_STR, f.out, 0, 0, "run/sft", "out",                                        \
            "folder for policy.h5, checkpoint.h5 and metrics.jsonl", NULL),                   \
        SFT_OPT(T, OPT_INT, f.threads, 0, 256, "0", "threads", "that compute, 0 = one a CPU", \
                NULL),                                                                        \
        SFT_OPT(T, OPT_INT, f.data_memory, 0, 1e7, "512", "data-memory",                      \
                "MiB of pictures that are kept in memory", NULL),                             \
        SFT_OPT(T, OPT_BOOL, f.recompute, 0, 1, "false", "recompute",                         \
                "keep less of the forward pass and compute it twice: less memory", NULL),     \
        SFT_OPT(T, OPT_INT, f.save_every, 0, 1e9, "200", "save-every",                        \
                "steps between checkpoints, 0 = at the end only", NULL),                      \
        SFT_OPT(T, OPT_BOOL, f.safetensors, 0, 1, "false", "safetensors",                     \
                "write the parameters as model.safetensors too", NULL),                       \
        SFT_OPT(T, OPT_BOOL, f.resume, 0, 1, "false", "resume",                               \
                "go on from the folder's checkpoint.h5", NULL)

struct sft_result {
    int64_t steps, demos, samples, params, work_bytes;
    int64_t tokens, computed; // of this run, without and with padding
    double loss;              // mean of the last steps, a demonstrated number
    double seconds;           // of this run
};

// Called after each step.
struct sft_report {
    int64_t step, steps;
    double loss, lr, tokens_per_s, seconds;
};
typedef void (*sft_report_fn)(void *arg, const struct sft_report *report);

// Train until `steps` or *stop; either way everything is saved. `report` may be NULL.
NODISCARD enum status sft_run(const struct sft_config *cfg, const atomic_bool *stop,
                              sft_report_fn report, void *arg, struct sft_result *out);

#endif
