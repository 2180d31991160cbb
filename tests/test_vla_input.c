#include "nn/vla_input.h"

#include "common/base/rng.h"
#include "tests/testing.h"

#include <stdio.h>

static void make_spec(struct spec *spec, int side)
{
    struct spec_picture p = {.name = "agentview_image",
                             .camera = "agentview",
                             .width = (uint32_t)side,
                             .height = (uint32_t)side,
                             .orient = 1};

    memset(spec, 0, sizeof *spec);
    snprintf(spec->task, sizeof spec->task, "tabletop/0");
    spec->n_act = 2;
    spec->n_obs = 10;
    spec->n_field = 4;
    spec->fields[0] = (struct spec_field){"other", 0, 1};
    spec->fields[1] = (struct spec_field){"robot0_eef_pos", 1, 3};
    spec->fields[2] = (struct spec_field){"robot0_eef_quat", 4, 4};
    spec->fields[3] = (struct spec_field){"robot0_gripper_qpos", 8, 2};
    assert_ok(spec_add_picture(spec, &p));
}

static void make_input(struct vla_input *in)
{
    memset(in, 0, sizeof *in);
    in->n_camera = 1;
    snprintf(in->camera[0].picture, SPEC_NAME_MAX, "agentview_image");
    in->camera[0].orient = 1;
    in->n_action = 2;
    for (int i = 0; i < VLA_STATE; i++) {
        in->state_mean[i] = i;
        in->state_std[i] = 2;
    }
    in->action_low[0] = -0.5;
    in->action_high[0] = 1.5;
    in->action_low[1] = -1;
    in->action_high[1] = 1;
}

// The matrix of a rotation vector (Rodrigues).
static void matrix(const double v[3], double m[9])
{
    double a = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]), s = a > 0 ? sin(a) / a : 1;
    double c = a > 0 ? (1 - cos(a)) / (a * a) : 0.5;
    double k[9] = {0, -v[2], v[1], v[2], 0, -v[0], -v[1], v[0], 0};

    for (int i = 0; i < 9; i++) {
        m[i] = (i % 4 == 0) + s * k[i];
        for (int j = 0; j < 3; j++)
            m[i] += c * k[i / 3 * 3 + j] * k[j * 3 + i % 3];
    }
}

static void turns_mean_the_same_and_do_not_jump(void **state)
{
    struct rng r = rng_make(3, RNG_TEST, 0, 0, 0);
    double before[3] = {0};

    (void)state;
    for (int i = 0; i < 1000; i++) {
        double v[3], chosen[3], a[9], b[9];

        for (int k = 0; k < 3; k++)
            chosen[k] = v[k] = rng_uniform(&r, -1.8, 1.8);
        vla_input_turn_choose(chosen);
        assert_true(chosen[0] >= 0);
        matrix(v, a);
        matrix(chosen, b);
        for (int k = 0; k < 9; k++)
            assert_close(b[k], a[k], 0, 1e-12);
    }
    for (int i = 0; i <= 100; i++) { // a hand that points down, through half a turn about x
        double angle = M_PI - 0.05 + 0.001 * i, half = angle / 2, turn[3];
        double sign = i % 2 ? -1 : 1; // a quaternion and its negative are one rotation
        double quat[4] = {sign * sin(half), 0, 0, sign * cos(half)};

        vla_input_turn(quat, turn);
        assert_close(turn[0], angle, 1e-9, 0);
        if (i > 0)
            assert_true(fabs(turn[0] - before[0]) < 0.002);
        memcpy(before, turn, sizeof before);
    }
    vla_input_turn((double[]){0, 0, 0, 1}, before);
    assert_true(before[0] == 0 && before[1] == 0 && before[2] == 0);
}

static void actions_are_scaled_and_back(void **state)
{
    float action[2] = {0, 0.25f}, scaled[2], back[2];
    struct vla_input in;

    (void)state;
    make_input(&in);
    vla_input_scale(&in, action, scaled);
    assert_close(scaled[0], -0.5, 1e-7, 0);
    assert_close(scaled[1], 0.25, 1e-7, 0);
    vla_input_unscale(&in, scaled, back);
    assert_close(back[0], 0, 0, 1e-7);
    assert_close(back[1], 0.25, 1e-7, 0);
    action[0] = 9;
    vla_input_scale(&in, action, scaled);
    assert_true(scaled[0] == 1);
    scaled[0] = 2; // what a network says is not cut off
    vla_input_unscale(&in, scaled, back);
    assert_close(back[0], 2.5, 1e-7, 0);
}

static void pictures_are_averaged_and_turned_over(void **state)
{
    static const uint8_t picture[4][4][3] = {{{1}, {2}, {10}, {10}},
                                             {{3}, {5}, {10}, {11}},
                                             {{0}, {0}, {100}, {200}},
                                             {{0}, {1}, {0}, {0}}};
    static const uint8_t want[3][2][2] = {
        {{3, 10}, {0, 75}}, {{0, 75}, {3, 10}}, {{75, 0}, {10, 3}}};
    uint8_t out[2][2][3];
    struct vla_shrink s;

    (void)state;
    for (uint32_t orient = 0; orient < 3; orient++) {
        assert_ok(vla_shrink_init(&s, 2, 4, 4, 0, orient));
        vla_shrink(&s, picture[0][0], out[0][0]);
        for (int i = 0; i < 4; i++)
            assert_int_equal(out[i / 2][i % 2][0], want[orient][i / 2][i % 2]);
    }
    assert_ok(vla_shrink_init(&s, 4, 4, 4, 2, 2));
    assert_fails(vla_shrink_init(&s, 2, 4, 6, 0, 0), ST_INVAL, "6 by 4, expected squares");
    assert_fails(vla_shrink_init(&s, 8, 4, 4, 0, 0), ST_INVAL, "multiple of 8");
    assert_fails(vla_shrink_init(&s, 2, 4, 4, 3, 0), ST_INVAL, "orientation");
}

static void a_view_finds_its_parts(void **state)
{
    double obs[10] = {9, 1, 2, 3, 1, 0, 0, 0, 5, 6};
    double state_of[VLA_STATE];
    float got[VLA_STATE];
    uint8_t block[48] = {1, 2, 3}, out[48];
    struct vla_input in;
    struct vla_view v;
    struct spec spec;

    (void)state;
    make_spec(&spec, 4);
    make_input(&in);
    assert_ok(vla_view_init(&v, &in, 4, &spec));
    vla_view_state(&v, obs, state_of);
    vla_input_state(&in, state_of, got);
    assert_close(got[0], 0.5, 1e-7, 0);
    assert_close(got[3], (M_PI - 3) / 2, 1e-6, 0);
    assert_close(got[7], -0.5, 1e-7, 0);
    vla_view_picture(&v, 0, block, out);
    assert_memory_equal(out, block, 48);
    assert_fails(vla_view_init(&v, &in, 3, &spec), ST_INVAL, "'agentview_image' of tabletop/0");
    spec.fields[3].n = 1;
    assert_fails(vla_view_init(&v, &in, 4, &spec), ST_INVAL, "'robot0_gripper_qpos'");
    make_spec(&spec, 4);
    spec.n_picture = 0;
    assert_fails(vla_view_init(&v, &in, 4, &spec), ST_INVAL,
                 "{\"cameras\": \"agentview:4x4,...\"}");
    spec.n_act = 3;
    assert_fails(vla_view_init(&v, &in, 4, &spec), ST_INVAL, "actions have 2 numbers");
}

static void inputs_are_checked_and_compared(void **state)
{
    struct vla_input in, other;

    (void)state;
    make_input(&in);
    other = in;
    assert_ok(vla_input_check(&in));
    assert_true(vla_input_equal(&in, &other));
    other.action_high[1] = 2;
    assert_false(vla_input_equal(&in, &other));
    other.action_low[1] = 2;
    assert_fails(vla_input_check(&other), ST_INVAL, "action_low and action_high of number 1");
    other = in;
    other.state_std[2] = 0;
    assert_fails(vla_input_check(&other), ST_INVAL, "state_std of number 2");
    other = in;
    other.camera[0].orient = 7;
    assert_fails(vla_input_check(&other), ST_INVAL, "camera 0");
    other = in;
    other.n_action = 65;
    assert_fails(vla_input_check(&other), ST_INVAL, "65 numbers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(turns_mean_the_same_and_do_not_jump),   leak_test(actions_are_scaled_and_back),
        leak_test(pictures_are_averaged_and_turned_over), leak_test(a_view_finds_its_parts),
        leak_test(inputs_are_checked_and_compared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
