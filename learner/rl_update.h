// rl_update.h - the update of a policy of action chunks from whole episodes: forward and
// backward as kept episodes arrive, sums accumulated, one division and one AdamW step when the
// window closes.
//
// The gradient of a window does not depend on how it was cut into messages and passes nor on the
// order of arrival (beyond rounding); see token_loss.h for the loss and groups.h for advantages.
// Weights do not move inside a window: with one step a window the present policy is that at its
// start. With --epochs or --minibatches above 1 the window is kept and its steps are made from
// memory when it closes, over its episodes in a shuffled order.
//
// Advantages are those of groups (groups.h), one an episode, without a critic; or with RL_CHUNK_PPO
// those of a critic, one a decision (chunk_gae.h): values of all decisions are taken before the
// first step of a window. The critic's loss of a decision is (V - target)^2 / 2 on the scale of
// PopArt (scale.h), times the weight of the decision's entries in the policy's loss, so that both
// have one divisor. Advantages are scaled by mean and deviation as in update.h: of the windows
// before, as long as a window is streamed; the very first one is kept until it closes.
//
// Observations keep the scale that the initial policy has.
//
// Threads: one at a time.
#ifndef LEARNER_RL_UPDATE_H
#define LEARNER_RL_UPDATE_H

#include "common/wire/episode.h"
#include "learner/groups.h"
#include "learner/token_loss.h"
#include "learner/update.h"

// The first is update.h's, the next are groups'.
enum rl_algo { RL_PPO, RL_RLOO, RL_GRPO, RL_DRGRPO, RL_CHUNK_PPO };
#define RL_ALGOS "ppo|" GROUP_BASELINES "|chunk-ppo"

struct rl_config {
    int algo; // enum rl_algo
    int64_t group_size;
    int64_t window_episodes; // kept ones that close a window
    int64_t window_max;      // times as many that are played for it at most
    int64_t updates;         // windows of the whole training
    double clip_high, dual_clip;
    int level, mean, objective; // see token_loss.h
    int64_t loss_length;        // entries of an episode for the fixed mean
    double explore;             // standard deviation of the actions to start with, 0 = the policy's
    bool train_std;
    int64_t budget; // tokens of a pass
    int64_t warmup; // optimizer steps
    char init[OPT_STR_MAX];
};

// Option rows of a rl_config that is field `r` of struct T.
#define RL_ENUM(T, field, def, name, help, choices)                  \
    {                                                                \
        name, OPT_ENUM, offsetof(T, field), 0, 0, def, help, choices \
    }
#define RL_OPTS(T, r)                                                                            \
    RL_ENUM(T, r.algo, "ppo", "algo",                                                            \
            "ppo learns from steps, chunk-ppo from whole episodes of action chunks, both with "  \
            "a critic; the others from groups of episodes without one",                          \
            RL_ALGOS),                                                                           \
        UPDATE_OPT(T, OPT_INT, r.group_size, 2, GROUPS_SIZE_MAX, "8", "group-size",              \
                   "groups: episodes that begin in the same state"),                             \
        UPDATE_OPT(T, OPT_INT, r.window_episodes, 2, 1000000, "64", "window-episodes",           \
                   "groups: episodes of a window, of groups that are not uniform"),              \
        UPDATE_OPT(T, OPT_INT, r.window_max, 1, 1000, "3", "window-max",                         \
                   "groups: times as many that are played for a window at most"),                \
        UPDATE_OPT(T, OPT_INT, r.updates, 1, 1000000000, "100", "updates",                       \
                   "groups: windows of the whole training"),                                     \
        UPDATE_OPT(T, OPT_REAL, r.clip_high, 0.001, 10, "0.28", "clip-high",                     \
                   "groups: clip range above 1; --clip is that below"),                          \
        UPDATE_OPT(T, OPT_REAL, r.dual_clip, 0, 1000, "3", "dual-clip",                          \
                   "groups: greatest ratio of actions that were bad, 0 = off"),                  \
        RL_ENUM(T, r.level, "action", "loss-level", "groups: what has a ratio of its own",       \
                TOKEN_LEVELS),                                                                   \
        RL_ENUM(T, r.mean, "sequence", "loss-mean",                                              \
                "groups: mean over episodes of their means, over all entries, or over a fixed "  \
                "length",                                                                        \
                TOKEN_MEANS),                                                                    \
        RL_ENUM(T, r.objective, "behaviour", "objective",                                        \
                "groups: ratio to the policy that acted, or decoupled from it for stale data",   \
                TOKEN_OBJECTIVES),                                                               \
        UPDATE_OPT(T, OPT_INT, r.loss_length, 1, 1000000, "100", "loss-length",                  \
                   "groups: entries of an episode, with --loss-mean=fixed"),                     \
        UPDATE_OPT(T, OPT_REAL, r.explore, 0, 10, "0", "explore",                                \
                   "groups: standard deviation of the actions to start with, 0 = the policy's"), \
        UPDATE_OPT(T, OPT_BOOL, r.train_std, 0, 1, "true", "train-std",                          \
                   "groups: learn the standard deviations"),                                     \
        UPDATE_OPT(T, OPT_INT, r.warmup, 0, 1000000, "10", "warmup",                             \
                   "groups: optimizer steps in which the learning rate rises to --lr"),          \
        UPDATE_OPT(T, OPT_INT, r.budget, 1, 1000000000, "4096", "budget",                        \
                   "groups: tokens of a pass of a vision-language-action model"),                \
        UPDATE_OPT(T, OPT_STR, r.init, 0, 0, "", "init",                                         \
                   "groups: policy to start from, policy.h5 or its folder; empty = a new one")

// What one window did; means are over entries of the first pass unless said otherwise.
struct rl_stats {
    int64_t episodes, decisions, steps; // optimizer steps
    double entries, loss;
    double clip_fraction, dual_fraction, kl; // of the last pass
    double log_ratio_max;
    double weight_mean, weight_max, capped, ess; // of the importance weights; ess as a share
    double value_loss, explained_variance;       // with a critic, on the scale of its network
    double grad_norm;                            // before clipping, mean over the steps
    double std_mean, lr;
};

struct rl_updater;

// `w` gives the initial policy (borrowed, copied); total is for the schedule of the learning rate.
NODISCARD enum status rl_create(struct rl_updater **out, const struct update_config *cfg,
                                const struct rl_config *rl, const struct weights *w, int64_t total);
void rl_destroy(struct rl_updater *u); // NULL is fine

// Episodes of a group: 1 where there are none.
static inline int64_t rl_group_size(const struct rl_config *rl)
{
    return rl->algo == RL_CHUNK_PPO ? 1 : rl->group_size;
}

// A kept episode, which points into `m`; takes m. `instruction` must stay; a critic needs no
// `advantage`.
NODISCARD enum status rl_add(struct rl_updater *u, struct msg *m, const struct episode *e,
                             const char *instruction, double advantage);

// Forward and backward of what was added since, unless the window is kept in memory.
NODISCARD enum status rl_accumulate(struct rl_updater *u);

// Close the window; `*out` is the new version (the caller's reference). Without episodes only the
// version moves on. ST_INVAL if a gradient is not finite; then the updater can only be destroyed.
NODISCARD enum status rl_step(struct rl_updater *u, struct weights **out, struct rl_stats *stats);

const struct weights *rl_weights(const struct rl_updater *u); // the present version, borrowed

// For checkpoints, as of the last closed window: AdamW's moments (n) and steps, the updater's own.
struct rl_state {
    int64_t n, n_step;
    float *m, *v;
    int64_t log_std_at; // the first of the log standard deviations
    int n_log_std;
    double *averages; // (2, 3) those of advantages and of returns, see scale.h; 0 without a critic
};
void rl_get(struct rl_updater *u, struct rl_state *out);
// Go on from `w` (copied) with what was written into the arrays of rl_get; forgets an open window.
NODISCARD enum status rl_restore(struct rl_updater *u, const struct weights *w, int64_t n_step);

#endif
