// demos_testing.h - small files of demonstrations for tests, in the layouts of three programs.
#ifndef TESTS_DEMOS_TESTING_H
#define TESTS_DEMOS_TESTING_H

#include "tests/testing.h"

#include "common/base/rng.h"
#include "nn/h5file.h"

#include <stdio.h>

#define DEMO_ACT  3
#define DEMO_SIDE 4 // of the pictures in a file

static const char *const demo_instructions[] = {"open the drawer", "lift the block"};

// What is stored of a step; functions of demo, step and what.
static inline double demo_number(int file, int demo, int t, int k)
{
    struct rng r = rng_make((uint64_t)file, RNG_TEST, (uint64_t)demo, (uint64_t)t, (uint64_t)k);

    return rng_uniform(&r, -1, 1);
}

static inline uint8_t demo_pixel(int demo, int t, int camera, int row, int column, int channel)
{
    return (uint8_t)(demo * 64 + t * 8 + camera * 128 + row * 4 + column + channel * 50);
}

enum demo_form { DEMO_OURS, DEMO_POST, DEMO_ROBOMIMIC };

static inline void put_table(struct h5file *f, const char *group, const char *name,
                             enum h5_type type, int n, int cols, const double *wide)
{
    char full[96];
    float narrow[512];

    snprintf(full, sizeof full, "%s/%s", group, name);
    for (int i = 0; i < n * cols; i++)
        narrow[i] = (float)wide[i];
    assert_ok(h5file_put(f, full, type, n, cols, type == H5_F32 ? (void *)narrow : (void *)wide));
}

static inline void put_demo(struct h5file *f, int file, int demo, int n, enum demo_form form)
{
    static const char *const names[][5] = {{"obs/ee_pos", "obs/ee_ori", "obs/gripper_states",
                                            "obs/agentview_rgb", "obs/eye_in_hand_rgb"},
                                           {"obs/robot0_eef_pos", "obs/robot0_eef_quat",
                                            "obs/robot0_gripper_qpos", "obs/agentview_image",
                                            "obs/robot0_eye_in_hand_image"}};
    const char *const *name = names[form == DEMO_ROBOMIMIC];
    double actions[64 * DEMO_ACT], pos[64 * 3], ori[64 * 4], gripper[64 * 2];
    static uint8_t pictures[64][DEMO_SIDE][DEMO_SIDE][3];
    enum h5_type type = form == DEMO_ROBOMIMIC ? H5_F32 : H5_F64;
    int n_ori = form == DEMO_ROBOMIMIC ? 4 : 3;
    char group[32], full[96];

    snprintf(group, sizeof group, "data/demo_%d", demo);
    for (int t = 0; t < n; t++) {
        for (int k = 0; k < DEMO_ACT; k++)
            actions[t * DEMO_ACT + k] = demo_number(file, demo, t, k);
        for (int k = 0; k < 3; k++)
            pos[t * 3 + k] = demo_number(file, demo, t, 10 + k);
        for (int k = 0; k < n_ori; k++)
            ori[t * n_ori + k] = k == 0 ? 0.6 : k == 3 ? 0.8 : 0;
        for (int k = 0; k < 2; k++)
            gripper[t * 2 + k] = demo_number(file, demo, t, 20 + k);
    }
    put_table(f, group, "actions", type, n, DEMO_ACT, actions);
    put_table(f, group, name[0], type, n, 3, pos);
    put_table(f, group, name[1], type, n, n_ori, ori);
    put_table(f, group, name[2], type, n, 2, gripper);
    for (int c = 0; c < 2; c++) {
        for (int t = 0; t < n; t++)
            for (int i = 0; i < DEMO_SIDE * DEMO_SIDE * 3; i++)
                pictures[t][i / 3 / DEMO_SIDE][i / 3 % DEMO_SIDE][i % 3] =
                    demo_pixel(demo, t, c, i / 3 / DEMO_SIDE, i / 3 % DEMO_SIDE, i % 3);
        snprintf(full, sizeof full, "%s/%s", group, name[3 + c]);
        assert_ok(h5file_put_frames(f, full, H5_U8, n, DEMO_SIDE, DEMO_SIDE, 3, pictures));
    }
    assert_ok(h5file_at(f, group));
    if (form == DEMO_POST)
        assert_ok(h5file_put_long_text(f, "obs_alignment", "post"));
}

// demo i has 5 + 3 i steps; demo 1 of file 0 failed.
static inline void write_demos(const char *path, int file, int n_demo, enum demo_form form)
{
    char info[128];
    struct h5file *f;

    assert_ok(h5file_stream(&f, path));
    assert_ok(h5file_at(f, "data"));
    snprintf(info, sizeof info, "{\"language_instruction\": \"%s\"}", demo_instructions[file]);
    assert_ok(h5file_put_long_text(f, "problem_info", info));
    if (form == DEMO_OURS)
        assert_ok(h5file_put_long_text(f, "image_orientation", "upright"));
    if (file == 0) {
        assert_ok(h5file_put_long_text(f, "task", "tabletop/4"));
        assert_ok(h5file_put_long_text(f, "kwargs", "{\"cameras\": \"default\"}"));
    }
    for (int i = n_demo - 1; i >= 0; i--) { // whatever the order in the file
        put_demo(f, file, i, 5 + 3 * i, form);
        if (file == 0)
            assert_ok(h5file_put_flag(f, "success", i != 1));
    }
    assert_ok(h5file_finish(f));
    h5file_close(f);
}

#endif
