// published.h - SmolVLA, pi0 and pi0.5 as LeRobot publishes them: a folder of config.json and
// model.safetensors becomes a policy, by the operators of nn/ops.h.
//
// A vision transformer and a connector make tokens of pictures; with the instruction's (and, of
// SmolVLA, one for the state) they are the prefix of a language model. An action expert of its own
// weights sees the prefix in every layer and gives the velocity of noisy actions (nn/heads.h),
// followed from noise to a chunk of actions. The prefix is computed once for a chunk.
//
// Numbers in and out are normalised; statistics and tokenisers are not a part of these folders.
// Weights of 16 bits become float32, and all is computed in float32. Cameras that are missing and
// the instruction's padding are left out instead of being masked, which gives the same.
//
// Ownership: a policy holds its weights and all memory that it computes with. Threads: one at a
// time.
#ifndef NN_PUBLISHED_H
#define NN_PUBLISHED_H

#include "common/base/status.h"

#include <stdint.h>

#define PUBLISHED_CAMERAS_MAX 8

enum published_kind { PUBLISHED_SMOLVLA, PUBLISHED_PI0, PUBLISHED_PI05 };

struct published_shape {
    enum published_kind kind;
    int cameras;  // that it may see, in the order of config.json
    int side;     // of a picture in pixels
    int texts;    // tokens of an instruction at most
    int vocab;    // ids are below
    int state;    // numbers of the robot's state; 0: it is a part of the instruction
    int chunk;    // actions that come out at once
    int action;   // numbers of an action that mean something
    int n_action; // numbers of an action inside, of noise and velocity
    int steps;    // from noise to actions
};

// What is in no file of a folder; 0: as published (SmolVLM2 500M, PaliGemma 3B).
struct published_sizes {
    int head_dim;     // of language model and expert
    int vision_heads; // of the vision transformer
};

// What it sees.
struct published_row {
    const float *const *image; // (cameras) each (3, side, side) of -1 to 1; NULL: missing
    const int *text;           // (n_text) tokens
    int n_text;
    const float *state; // (state)
};

struct published;

// `sizes` may be NULL. ST_MISSING, or ST_INVAL with the file and what is wrong in it: nothing that
// is missing is made up.
NODISCARD enum status published_open(struct published **out, const char *folder,
                                     const struct published_sizes *sizes);
void published_close(struct published *p); // NULL is fine
const struct published_shape *published_shape(const struct published *p);

// A picture (height, width, 3) as the model wants it, out (3, side, side): shrunk or enlarged to
// fit (bilinear, half-pixel centres), on black - above and left of it of SmolVLA, around it of pi0
// - from -1 to 1. ST_NOMEM.
NODISCARD enum status published_picture(const struct published *p, const uint8_t *rgb, int width,
                                        int height, float *out);

// Look at a row: the prefix, which what follows goes on from. ST_INVAL names what is out of range.
NODISCARD enum status published_see(struct published *p, const struct published_row *row);

// The velocity (chunk, n_action) of actions x (chunk, n_action) at time t, 1 noise to 0 action.
void published_velocity(struct published *p, const float *x, double t, float *v);

// From noise (chunk, n_action) to actions (chunk, action) by Euler's steps.
void published_follow(struct published *p, const float *noise, float *action);

#endif
