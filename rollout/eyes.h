// eyes.h - what the policy of a rollout worker sees of each env: the numbers and pictures of the
// latest observation, as the policy wants them. Perceptrons see the task's observation and its
// pictures as they are; a vision-language-action model sees the robot's state and its own pictures
// (nn/vla_input.h).
//
// Threads: one at a time.
#ifndef ROLLOUT_EYES_H
#define ROLLOUT_EYES_H

#include "common/wire/envproto.h"
#include "nn/policy_row.h"
#include "nn/vla_input.h"
#include "nn/weights.h"

struct eyes {
    const struct spec *spec; // borrowed
    // what the task shows, by eyes_init
    const struct spec_picture *view[SPEC_PICTURE_MAX];
    int n_shown;
    char names[SPEC_NAME_MAX]; // of these pictures, with commas between
    // what the policy sees, by eyes_open
    int n_obs, n_view;
    size_t picture_bytes; // of one
    bool vla;
    struct vla_view vla_view;
    double *obs;          // (n_env, n_obs)
    uint8_t *pictures;    // (n_env, n_view, picture_bytes)
    const uint8_t **seen; // (n_env, n_view) places of them
};

// With `pixels` the pictures that `hello` asked for, or all RGB ones. ST_INVAL, with a list of
// those that are there, if there is none, or they are not of one size.
NODISCARD enum status eyes_init(struct eyes *e, const struct spec *spec, const struct hello *hello,
                                bool pixels);
void eyes_fini(struct eyes *e);

// See as the policy of these weights does, for n_env envs. ST_INVAL or ST_PROTO if it cannot.
// `width`: numbers of a decision.
NODISCARD enum status eyes_open(struct eyes *e, const struct weights *w, int n_env, int width);

// A row of an env has come.
void eyes_see(struct eyes *e, int env, const uint8_t *row, const struct row_layout *layout);

// Numbers, pictures and instruction of an env.
void eyes_row(const struct eyes *e, int env, struct policy_row *row);

#endif
