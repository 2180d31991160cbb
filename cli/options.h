// options.h - option rows that several subcommands share: train is serve + rollout + learn, so the
// names, ranges and defaults must be the same everywhere.
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "common/base/config.h"

#include <math.h>
#include <stddef.h>

// Rows for a struct learner_config that is member `f` of struct T. The updater's rows are apart
// (UPDATE_OPTS in learner/update.h).
#define LEARNER_OPTS(T, f)                                                        \
    {"out",                                                                       \
     OPT_STR,                                                                     \
     offsetof(T, f.out),                                                          \
     0,                                                                           \
     0,                                                                           \
     "run/train",                                                                 \
     "folder for policy.h5, checkpoint.h5, metrics.jsonl and TensorBoard events", \
     NULL},                                                                       \
        {"total-steps", OPT_INT,   offsetof(T, f.total_steps),        1,          \
         1e15,          "2000000", "env steps of the whole training", NULL},      \
        {"max-seconds",                                                           \
         OPT_REAL,                                                                \
         offsetof(T, f.max_seconds),                                              \
         0,                                                                       \
         1e9,                                                                     \
         "0",                                                                     \
         "end after so much training time, 0 = no limit",                         \
         NULL},                                                                   \
        {"target-return",                                                         \
         OPT_REAL,                                                                \
         offsetof(T, f.target_return),                                            \
         -INFINITY,                                                               \
         INFINITY,                                                                \
         "inf",                                                                   \
         "end when the last 100 episodes reach this mean return",                 \
         NULL},                                                                   \
        {"hidden",                                                                \
         OPT_STR,                                                                 \
         offsetof(T, f.hidden),                                                   \
         0,                                                                       \
         0,                                                                       \
         "64,64",                                                                 \
         "hidden layers of the policy and of the value network",                  \
         NULL},                                                                   \
        {"conv",                                                                  \
         OPT_STR,                                                                 \
         offsetof(T, f.conv),                                                     \
         0,                                                                       \
         0,                                                                       \
         "16x8/4,32x4/2",                                                         \
         "with pictures: convolutions, channels x kernel / stride of each",       \
         NULL},                                                                   \
        {"frame-stack",                                                           \
         OPT_INT,                                                                 \
         offsetof(T, f.frame_stack),                                              \
         1,                                                                       \
         8,                                                                       \
         "3",                                                                     \
         "with pictures: those of so many successive steps are seen at once",     \
         NULL},                                                                   \
        {"pixels-state",                                                          \
         OPT_BOOL,                                                                \
         offsetof(T, f.pixels_state),                                             \
         0,                                                                       \
         1,                                                                       \
         "false",                                                                 \
         "with pictures: the observation vector is seen too",                     \
         NULL},                                                                   \
        {"log-std",                                                               \
         OPT_REAL,                                                                \
         offsetof(T, f.log_std),                                                  \
         -5,                                                                      \
         2,                                                                       \
         "-0.5",                                                                  \
         "initial log standard deviation of the actions",                         \
         NULL},                                                                   \
        {"checkpoint-every",                                                      \
         OPT_INT,                                                                 \
         offsetof(T, f.checkpoint_every),                                         \
         0,                                                                       \
         1e9,                                                                     \
         "100",                                                                   \
         "windows between checkpoints, 0 = at the end only",                      \
         NULL},                                                                   \
        {"resume",                                                                \
         OPT_BOOL,                                                                \
         offsetof(T, f.resume),                                                   \
         0,                                                                       \
         1,                                                                       \
         "false",                                                                 \
         "go on from the folder's checkpoint.h5",                                 \
         NULL},                                                                   \
        {"train-async",                                                           \
         OPT_BOOL,                                                                \
         offsetof(T, f.train_async),                                              \
         0,                                                                       \
         1,                                                                       \
         "false",                                                                 \
         "rollout goes on while the learner updates",                             \
         NULL},                                                                   \
        {"streaming",                                                             \
         OPT_BOOL,                                                                \
         offsetof(T, f.streaming),                                                \
         0,                                                                       \
         1,                                                                       \
         "false",                                                                 \
         "forward and backward as trajectories arrive",                           \
         NULL},                                                                   \
    {                                                                             \
        "max-staleness", OPT_INT, offsetof(T, f.max_staleness), 1, 1000, "1",     \
            "updates that a trajectory may be old, with --train-async", NULL      \
    }

// Rows for a struct rollout_config that is member `f` of struct T.
#define ROLLOUT_OPTS(T, f)                                                                  \
    {"pixels",                                                                              \
     OPT_BOOL,                                                                              \
     offsetof(T, f.pixels),                                                                 \
     0,                                                                                     \
     1,                                                                                     \
     "false",                                                                               \
     "learn from a picture of the task, which its keyword 'cameras' asks for",              \
     NULL},                                                                                 \
        {"picture",                                                                         \
         OPT_STR,                                                                           \
         offsetof(T, f.picture),                                                            \
         0,                                                                                 \
         0,                                                                                 \
         "",                                                                                \
         "name of the picture, with --pixels; empty = the first",                           \
         NULL},                                                                             \
        {"action-chunk",                                                                    \
         OPT_INT,                                                                           \
         offsetof(T, f.action_chunk),                                                       \
         0,                                                                                 \
         256,                                                                               \
         "0",                                                                               \
         "actions of a decision; whole episodes are played, in groups; 0 = step by step",   \
         NULL},                                                                             \
        {"start-states",                                                                    \
         OPT_INT,                                                                           \
         offsetof(T, f.start_states),                                                       \
         0,                                                                                 \
         1e9,                                                                               \
         "0",                                                                               \
         "states that groups of episodes begin in, in turn; 0 = always a new one",          \
         NULL},                                                                             \
        {"rollout-async",                                                                   \
         OPT_BOOL,                                                                          \
         offsetof(T, f.rollout_async),                                                      \
         0,                                                                                 \
         1,                                                                                 \
         "false",                                                                           \
         "infer by batch size and deadline instead of a barrier over all envs",             \
         NULL},                                                                             \
        {"infer-batch-max",                                                                 \
         OPT_INT,                                                                           \
         offsetof(T, f.batch_max),                                                          \
         0,                                                                                 \
         65536,                                                                             \
         "0",                                                                               \
         "rows of an inference batch at most (B_max), 0 = half of the envs",                \
         NULL},                                                                             \
    {                                                                                       \
        "infer-batch-timeout", OPT_TIME, offsetof(T, f.batch_timeout_ns), 0, 3600e9, "2ms", \
            "longest wait of a row for inference (T_max)", NULL                             \
    }

// Rows that every role needs alike; the fields are int64_t.
#define SHARED_OPTS(T, f_seed, f_num_envs, f_horizon)                                         \
    {"seed", OPT_INT, offsetof(T, f_seed), 0, 9e15, "1", "seed of everything random", NULL},  \
        {"num-envs", OPT_INT, offsetof(T, f_num_envs), 0, 65536, "64", "environments", NULL}, \
    {                                                                                         \
        "horizon", OPT_INT, offsetof(T, f_horizon), 1, 65536, "32",                           \
            "env steps of a trajectory chunk; a global batch is num-envs * horizon", NULL     \
    }

#endif
