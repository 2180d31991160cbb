// vla_input.h - what a vision-language-action policy sees of a task, and what its numbers mean:
// which pictures, how they lie, the robot's state, and the scales of states and actions.
//
// The state is eight numbers: position of the hand (3, metres), its turn as a rotation vector (3,
// radians; of the two that mean the same the one whose first number is not negative, so that a
// hand that points down does not jump between them), and the gripper's joints (2, metres). Networks
// see (state - mean) / std. Actions are -1 to 1 between `low` and `high`: 2 (a - low) / (high -
// low) - 1, the convention of OpenVLA and pi0.5 with the quantiles of 1 and 99 % as bounds.
//
// Pictures of the model are square. Larger ones are averaged over whole blocks of pixels, and
// turned over where they lie otherwise than those that the policy was trained on.
//
// Threads: pure functions; a view may be read by many.
#ifndef NN_VLA_INPUT_H
#define NN_VLA_INPUT_H

#include "common/wire/spec.h"

#define VLA_CAMERAS_MAX 16
#define VLA_STATE       8

struct vla_input {
    int n_camera;
    struct vla_camera {
        char picture[SPEC_NAME_MAX]; // "agentview_image"
        uint32_t orient;             // as in struct spec_picture
    } camera[VLA_CAMERAS_MAX];       // in the order of the model's cameras
    int n_action;
    double state_mean[VLA_STATE], state_std[VLA_STATE];         // std above 0
    double action_low[SPEC_ACT_MAX], action_high[SPEC_ACT_MAX]; // (n_action) low below high
};

// ST_INVAL names what is out of range.
NODISCARD enum status vla_input_check(const struct vla_input *in);
bool vla_input_equal(const struct vla_input *a, const struct vla_input *b);

// The rotation vector of a quaternion (x, y, z, w), and the choice between the two of a vector.
void vla_input_turn(const double quat[4], double out[3]);
void vla_input_turn_choose(double turn[3]);

// To what the network sees, from numbers that are rounded to float32 first, as messages have them.
void vla_input_state(const struct vla_input *in, const double state[VLA_STATE], float *out);
// To the scale of the network, cut off at -1 and 1; and back, not cut off.
void vla_input_scale(const struct vla_input *in, const float *action, float *out);
void vla_input_unscale(const struct vla_input *in, const float *scaled, float *out);

// How a picture (height, width, 3) becomes one of (side, side, 3). ST_INVAL unless height and width
// are the same multiple of `side`.
struct vla_shrink {
    int side, factor;
    bool flip_rows, flip_columns;
};
NODISCARD enum status vla_shrink_init(struct vla_shrink *s, int side, int64_t height, int64_t width,
                                      uint32_t from_orient, uint32_t to_orient);
void vla_shrink(const struct vla_shrink *s, const uint8_t *picture, uint8_t *out);

// The policy's view of an env server's rows.
struct vla_view {
    const struct vla_input *in; // borrowed
    int pos, quat, gripper;     // offsets in the observation
    struct {
        struct vla_shrink shrink;
        uint32_t offset; // in the picture block of a row
    } camera[VLA_CAMERAS_MAX];
};

// ST_INVAL says what the task does not give, and which keyword arguments would.
NODISCARD enum status vla_view_init(struct vla_view *v, const struct vla_input *in, int side,
                                    const struct spec *spec);
// The robot's state from a row's numbers.
void vla_view_state(const struct vla_view *v, const double *obs, double state[VLA_STATE]);
// From a row's picture block to a camera's picture (side, side, 3).
void vla_view_picture(const struct vla_view *v, int camera, const uint8_t *block, uint8_t *out);

#endif
