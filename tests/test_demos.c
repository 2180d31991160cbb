#include "learner/demos.h"

#include "tests/demos_testing.h"

#include <unistd.h>

static char path[2][64];

static struct demos *open_both(const struct demos_config *over)
{
    struct demos_config cfg = *over;
    char files[160];
    struct demos *d;

    snprintf(files, sizeof files, "%s,%s", path[0], path[1]);
    cfg.files = files;
    cfg.cameras = "agentview_image,robot0_eye_in_hand_image";
    assert_ok(demos_open(&d, &cfg));
    return d;
}

static const struct demos_config base = {.image = DEMO_SIDE, .chunk = 4, .memory_bytes = 1 << 20};

static void samples_are_chunks_of_successful_demos(void **state)
{
    static const int demo_of[] = {0, 2, 0, 1}, length[] = {5, 11, 5, 8}, file_of[] = {0, 0, 1, 1};
    struct demos_sample s;
    struct demos *d;
    int64_t i = 0;

    (void)state;
    write_demos(path[0], 0, 3, DEMO_OURS);
    write_demos(path[1], 1, 2, DEMO_OURS);
    d = open_both(&base);
    assert_int_equal(demos_info(d)->n_demo, 4);
    assert_int_equal(demos_info(d)->n_sample, 29);
    assert_int_equal(demos_info(d)->n_instruction, 2);
    assert_int_equal(demos_info(d)->shortest, 5);
    assert_int_equal(demos_info(d)->longest, 11);
    assert_string_equal(demos_info(d)->task, "tabletop/4");
    assert_string_equal(demos_info(d)->kwargs, "{\"cameras\": \"default\"}");
    for (int k = 0; k < 4; k++) {
        assert_int_equal(demos_length(d, k), length[k]);
        for (int t = 0; t < length[k]; t++, i++) {
            uint8_t got[DEMO_SIDE][DEMO_SIDE][3];

            demos_at(d, i, &s);
            assert_string_equal(s.instruction, demo_instructions[file_of[k]]);
            assert_int_equal(s.n_real, length[k] - t < 4 ? length[k] - t : 4);
            for (int j = 0; j < s.n_real * DEMO_ACT; j++)
                assert_true(s.action[j] == (float)demo_number(file_of[k], demo_of[k],
                                                              t + j / DEMO_ACT, j % DEMO_ACT));
            for (int j = 0; j < 3; j++) {
                assert_close(s.state[j], demo_number(file_of[k], demo_of[k], t, 10 + j), 1e-6,
                             1e-7);
                assert_close(s.state[3 + j], j == 0 ? 0.6 : 0, 1e-6, 0);
            }
            assert_close(s.state[7], demo_number(file_of[k], demo_of[k], t, 21), 1e-6, 1e-7);
            for (int c = 0; c < 2; c++) {
                assert_ok(demos_picture(d, i, c, got[0][0]));
                for (int j = 0; j < DEMO_SIDE * DEMO_SIDE * 3; j++)
                    assert_int_equal(
                        got[j / 3 / DEMO_SIDE][j / 3 % DEMO_SIDE][j % 3],
                        demo_pixel(demo_of[k], t, c, j / 3 / DEMO_SIDE, j / 3 % DEMO_SIDE, j % 3));
            }
        }
    }
    demos_close(d);
}

// Rows of obs were seen after the action: they belong to the next one.
static void observations_after_the_action_move_by_one(void **state)
{
    struct demos_sample s;
    struct demos *d;

    (void)state;
    write_demos(path[0], 0, 1, DEMO_POST);
    write_demos(path[1], 1, 1, DEMO_OURS);
    d = open_both(&base);
    assert_int_equal(demos_info(d)->n_sample, 4 + 5);
    demos_at(d, 1, &s);
    assert_true(s.action[0] == (float)demo_number(0, 0, 2, 0));
    assert_close(s.state[0], demo_number(0, 0, 1, 10), 1e-6, 0);
    assert_int_equal(s.n_real, 3);
    demos_close(d);
}

// The pictures of file 1 lie as LIBERO's, row 0 at the bottom; those of file 0 are upright, and
// so is the policy.
static void other_layouts_and_orientations_are_read(void **state)
{
    struct demos_config half = base;
    uint8_t got[2][2][3];
    struct vla_input in;
    struct demos_sample s;
    struct demos *d;

    (void)state;
    write_demos(path[0], 0, 1, DEMO_OURS);
    write_demos(path[1], 1, 1, DEMO_ROBOMIMIC);
    half.image = DEMO_SIDE / 2;
    d = open_both(&half);
    assert_ok(demos_input(d, false, &in));
    assert_int_equal(in.camera[0].orient, 1);
    demos_at(d, 5 + 2, &s);
    assert_close(s.state[3], 2 * acos(0.8), 1e-6, 0);
    assert_ok(demos_picture(d, 5 + 2, 1, got[0][0]));
    for (int i = 0; i < 12; i++) {
        int r = 2 * (1 - i / 6), c = 2 * (i / 3 % 2), sum = 2;

        for (int k = 0; k < 4; k++)
            sum += demo_pixel(0, 2, 1, r + k / 2, c + k % 2, i % 3);
        assert_int_equal(got[i / 6][i / 3 % 2][i % 3], sum / 4);
    }
    demos_close(d);
}

static void memory_is_bounded_and_changes_nothing(void **state)
{
    struct demos_config least = base, few = base;
    uint8_t a[DEMO_SIDE * DEMO_SIDE * 3], b[DEMO_SIDE * DEMO_SIDE * 3];
    struct demos *all, *none;

    (void)state;
    write_demos(path[0], 0, 3, DEMO_OURS);
    write_demos(path[1], 1, 2, DEMO_OURS);
    least.memory_bytes = 0;
    all = open_both(&base);
    none = open_both(&least);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < demos_info(all)->n_sample; i++)
            for (int c = 0; c < 2; c++) {
                assert_ok(demos_picture(all, i, c, a));
                assert_ok(demos_picture(none, i, c, b));
                assert_memory_equal(a, b, sizeof a);
            }
    demos_close(all);
    demos_close(none);
    few.demos_per_file = 1;
    all = open_both(&few);
    assert_int_equal(demos_info(all)->n_demo, 2);
    demos_close(all);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void scales_are_quantiles_and_moments(void **state)
{
    double column[DEMO_ACT][29], sum = 0, square = 0;
    struct demos_sample s;
    struct vla_input in;
    struct demos *d;

    (void)state;
    write_demos(path[0], 0, 3, DEMO_OURS);
    write_demos(path[1], 1, 2, DEMO_OURS);
    d = open_both(&base);
    for (int i = 0; i < 29; i++) {
        demos_at(d, i, &s);
        for (int k = 0; k < DEMO_ACT; k++)
            column[k][i] = s.action[k];
        sum += s.state[0];
        square += s.state[0] * s.state[0];
    }
    assert_ok(demos_input(d, false, &in));
    assert_close(in.state_mean[0], sum / 29, 1e-12, 0);
    assert_close(in.state_std[0], sqrt(square / 29 - sum * sum / 29 / 29), 1e-9, 0);
    assert_close(in.state_std[4], 1e-4, 1e-12, 0); // it does not move
    for (int k = 0; k < DEMO_ACT - 1; k++) {
        qsort(column[k], 29, sizeof column[k][0], by_value);
        // 28 * 0.01 = 0.28 behind the first
        assert_close(in.action_low[k], column[k][0] + 0.28 * (column[k][1] - column[k][0]), 1e-9,
                     0);
        assert_close(in.action_high[k], column[k][28] - 0.28 * (column[k][28] - column[k][27]),
                     1e-9, 0);
    }
    assert_true(in.action_low[DEMO_ACT - 1] == -1 && in.action_high[DEMO_ACT - 1] == 1);
    assert_ok(demos_input(d, true, &in));
    assert_true(in.action_low[0] == -1 && in.action_high[0] == 1);
    demos_close(d);
}

static void faults_name_file_and_dataset(void **state)
{
    struct demos_config cfg = base;
    struct demos *d = NULL;
    struct h5file *f;

    (void)state;
    write_demos(path[0], 0, 1, DEMO_OURS);
    cfg.files = path[0];
    cfg.cameras = "sideview_image";
    assert_fails(demos_open(&d, &cfg), ST_INVAL, "demo_0 has neither obs/sideview_rgb nor");
    assert_fails(demos_open(&d, &cfg), ST_INVAL, path[0]);
    cfg.cameras = "agentview_image,";
    assert_fails(demos_open(&d, &cfg), ST_INVAL, "expected names with commas");
    cfg.cameras = "agentview_image";
    cfg.image = 3;
    assert_fails(demos_open(&d, &cfg), ST_INVAL, "pictures of 4 by 4, expected squares");
    cfg.image = DEMO_SIDE;
    cfg.files = "/nonexistent.hdf5";
    assert_fails(demos_open(&d, &cfg), ST_MISSING, "/nonexistent.hdf5");
    cfg.files = path[1];
    assert_ok(h5file_stream(&f, path[1]));
    assert_ok(h5file_at(f, "data"));
    put_demo(f, 0, 0, 5, DEMO_OURS);
    assert_ok(h5file_finish(f));
    h5file_close(f);
    assert_fails(demos_open(&d, &cfg), ST_INVAL, "no language_instruction");
    assert_ok(h5file_stream(&f, path[1]));
    assert_ok(h5file_at(f, "data"));
    assert_ok(h5file_put_long_text(f, "problem_info", "{\"language_instruction\": \"x\"}"));
    assert_ok(h5file_finish(f));
    h5file_close(f);
    assert_fails(demos_open(&d, &cfg), ST_INVAL, "no successful demos");
    assert_null(d);
}

static void an_order_is_a_permutation_of_the_seed(void **state)
{
    int32_t a[100], b[100];
    bool seen[100] = {0};

    (void)state;
    demos_shuffle(a, 100, 1, 0);
    demos_shuffle(b, 100, 1, 0);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < 100; i++) {
        assert_true(a[i] >= 0 && a[i] < 100 && !seen[a[i]]);
        seen[a[i]] = true;
    }
    demos_shuffle(b, 100, 1, 1);
    assert_memory_not_equal(a, b, sizeof a);
    demos_shuffle(b, 100, 2, 0);
    assert_memory_not_equal(a, b, sizeof a);
    demos_shuffle(a, 0, 1, 0);
}

static void out_of_memory_is_reported(void **state)
{
    struct demos_config cfg = base;
    struct demos *d = NULL;
    int n;

    (void)state;
    write_demos(path[0], 0, 1, DEMO_OURS);
    cfg.files = path[0];
    cfg.cameras = "agentview_image";
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (demos_open(&d, &cfg) == ST_OK)
            break;
        assert_null(d);
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_true(n > 8);
    demos_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(samples_are_chunks_of_successful_demos),
        leak_test(observations_after_the_action_move_by_one),
        leak_test(other_layouts_and_orientations_are_read),
        leak_test(memory_is_bounded_and_changes_nothing),
        leak_test(scales_are_quantiles_and_moments),
        leak_test(faults_name_file_and_dataset),
        leak_test(an_order_is_a_permutation_of_the_seed),
        leak_test(out_of_memory_is_reported),
    };
    int failed;

    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "/tmp/demos-%d-%d.hdf5", i, (int)getpid());
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path[0]);
    unlink(path[1]);
    return failed;
}
