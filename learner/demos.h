// demos.h - demonstrations in HDF5 as training samples: what was seen before an action, and the
// chunk of actions from there on.
//
// Files are ours (evaluation/record.h), LIBERO's own or robomimic's: data/demo_I/actions and
// obs/agentview_rgb, eye_in_hand_rgb, ee_pos, ee_ori, gripper_states (robomimic: agentview_image,
// robot0_eye_in_hand_image, robot0_eef_pos, robot0_eef_quat, robot0_gripper_qpos). The attribute
// `problem_info` of data holds the instruction. A demo that says success = 0 is left out. Where the
// attribute obs_alignment is "post", row t of obs was seen after action t and belongs to the next.
//
// A sample is (demo, step). Its chunk ends with the demo: `n_real` actions are there, the rest of
// the chunk is not to be learned from. Numbers of all demos are in memory, pictures are read when
// they are asked for and kept as far as the bound allows.
//
// Ownership: what a sample points to is the object's. Threads: one at a time.
#ifndef LEARNER_DEMOS_H
#define LEARNER_DEMOS_H

#include "nn/vla_input.h"

#define DEMOS_FILES_MAX 256
#define DEMOS_STEPS_MAX 10000000
#define DEMOS_TEXT_MAX  2048

struct demos_config {
    const char *files;      // with commas between; borrowed during demos_open
    const char *cameras;    // pictures of a task with commas between: "agentview_image,..."
    int image;              // side of the pictures that come out
    int chunk;              // actions of a sample
    int64_t demos_per_file; // at most, the first ones; 0 = all
    int64_t memory_bytes;   // for pictures
};

struct demos_sample {
    const char *instruction;
    int i_instruction; // the same instruction has the same number in all files
    double state[VLA_STATE];
    const float *action; // (n_real, n_action)
    int n_real;          // 1..chunk
};

struct demos_info {
    int64_t n_demo, n_sample;
    int n_file, n_instruction, n_action;
    char task[SPEC_NAME_MAX];    // of the first file; "" = it does not say
    char kwargs[DEMOS_TEXT_MAX]; // JSON object of the keyword arguments that give its pictures
    int64_t longest, shortest;   // demos, in samples
};

struct demos;

// ST_INVAL names file and dataset, and what was expected.
NODISCARD enum status demos_open(struct demos **out, const struct demos_config *cfg);
void demos_close(struct demos *d); // NULL is fine

const struct demos_info *demos_info(const struct demos *d);
const char *demos_instruction(const struct demos *d, int i);
int64_t demos_length(const struct demos *d, int64_t demo); // samples

// Cameras and scales: mean and standard deviation of the states; actions between their quantiles of
// 1 and 99 % (numpy's definition). The last number of an action, the gripper, keeps its unit, and
// so does one whose quantiles are less than 0.01 apart (about their middle). With `plain` all do.
NODISCARD enum status demos_input(const struct demos *d, bool plain, struct vla_input *out);

void demos_at(const struct demos *d, int64_t sample, struct demos_sample *out);

// The picture of a camera (image, image, 3).
NODISCARD enum status demos_picture(struct demos *d, int64_t sample, int camera, uint8_t *out);

// The order of `n` samples in an epoch, a function of the seed.
void demos_shuffle(int32_t *order, int n, uint64_t seed, uint64_t epoch);

#endif
