#include "tests/testing.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "evaluation/record.h"
#include "evaluation/replay.h"
#include "nn/h5file.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_STATE 5
#define N_ACT   7

static char dir[64], path[96], temp[96];
static struct spec spec;
static struct record_about about;
static struct recorder *rec;

static void add_field(const char *name, int n)
{
    struct spec_field *f = &spec.fields[spec.n_field++];

    snprintf(f->name, sizeof f->name, "%s", name);
    f->offset = spec.n_obs;
    f->n = n;
    spec.n_obs += n;
}

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/simstream-record-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/demos.hdf5", dir);
    snprintf(temp, sizeof temp, "%s/demos.hdf5.tmp", dir);
    spec = (struct spec){.task = "Lift/0", .engine = "none", .n_act = N_ACT, .has_success = true};
    add_field("other", 3);
    add_field("robot0_joint_pos", 7);
    add_field("robot0_eef_pos", 3);
    add_field("robot0_eef_quat", 4);
    add_field("robot0_gripper_qpos", 2);
    add_field("sim_state", N_STATE);
    add_field("fixture_pose", 7);
    about = (struct record_about){.failures = true,
                                  .env_name = "Lift",
                                  .env_args = "{}",
                                  .problem_info = "{}",
                                  .bddl_name = "lift.bddl",
                                  .bddl_text = "(define)",
                                  .model = "<b pos=\"@0@ @1@ @2@\" f=\"a@b@c@@99@\"/>",
                                  .policy = "plan",
                                  .kwargs = "{}",
                                  .seed = 3,
                                  .n_episode = 8};
    return leak_setup(state);
}

static int teardown(void **state)
{
    char cmd[128];

    snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
    return system(cmd) == 0 ? leak_teardown(state) : -1;
}

static int length_of(int64_t e)
{
    return 100 + (int)e * 37;
}

// Number `k` of what is seen at step t of episode e.
static double number(int64_t e, int t, int k)
{
    return (double)e + t * 0.01 + k * 0.001;
}

// A colour picture of 3 x 2, a depth of 1 x 2 and a segmentation of 2 x 1, if the spec has them.
static const uint8_t *pictures_of(int64_t e, int t)
{
    static _Alignas(8) uint8_t block[64];
    float depth[2] = {(float)t, (float)e};
    int32_t seg[4] = {t, -1, (int32_t)e, 5};
    int i;

    for (i = 0; i < 18; i++)
        block[i] = (uint8_t)(e * 50 + t + i);
    memcpy(block + 24, depth, sizeof depth);
    memcpy(block + 32, seg, sizeof seg);
    return block;
}

static void add_pictures(void)
{
    static const struct spec_picture pictures[] = {
        {.name = "robot0_eye_in_hand_image",
         .camera = "hand",
         .plane = SPEC_RGB,
         .width = 3,
         .height = 2},
        {.name = "agentview_depth", .camera = "a", .plane = SPEC_DEPTH, .width = 2, .height = 1},
        {.name = "agentview_segmentation",
         .camera = "a",
         .plane = SPEC_SEG,
         .width = 1,
         .height = 2},
    };
    size_t i;

    for (i = 0; i < sizeof pictures / sizeof pictures[0]; i++)
        assert_ok(spec_add_picture(&spec, &pictures[i]));
    assert_int_equal(spec.picture_bytes, 48);
}

static void play(int64_t e, bool success, int n)
{
    struct episode_result result = {
        .episode = e, .outcome = success ? OUTCOME_SUCCESS : OUTCOME_FAILURE, .length = n};
    struct take *take = NULL;
    double obs[64];
    float action[N_ACT];
    int t, k;

    assert_ok(recorder_begin(rec, &take, (uint64_t)e));
    for (t = 0; t <= n; t++) {
        for (k = 0; k < spec.n_obs; k++)
            obs[k] = number(e, t, k);
        assert_ok(take_observe(take, obs, pictures_of(e, t), success && t == n));
        for (k = 0; k < N_ACT && t < n; k++)
            action[k] = (float)number(e, t, k);
        if (t < n)
            take_act(take, action);
    }
    assert_ok(recorder_keep(rec, &take, &result));
    assert_null(take);
}

// Episodes 0 to 4, played in an order of its own; 1 and 4 fail.
static void record_five(size_t bound)
{
    static const int order[] = {3, 1, 4, 0, 2};
    int64_t n;
    int i;

    assert_ok(recorder_open(&rec, dir, &about, &spec));
    recorder_set_bound(rec, bound);
    for (i = 0; i < 5; i++)
        play(order[i], order[i] % 3 != 1, length_of(order[i]));
    for (i = 0; i < 8; i++)
        assert_ok(recorder_write(rec, i));
    assert_false(file_exists(path));
    assert_ok(recorder_finish(rec, &n));
    assert_int_equal(n, about.failures ? 5 : 3);
    recorder_close(rec);
    assert_false(file_exists(temp));
}

static int64_t int_attr(struct h5file *f, const char *name)
{
    int64_t value = -1;

    assert_ok(h5file_get_int(f, name, 0, INT64_MAX, &value));
    return value;
}

static void demos_hold_what_was_played(void **state)
{
    static double data[400][N_STATE];
    struct h5file *f;
    double init[N_STATE];
    char text[256];
    int demo, t, k;

    (void)state;
    about.failures = false;
    record_five((size_t)1 << 30);
    assert_ok(h5file_open_large(&f, path));
    assert_ok(h5file_at(f, "data"));
    assert_int_equal(int_attr(f, "num_demos"), 3);
    assert_int_equal(int_attr(f, "total"), length_of(0) + length_of(2) + length_of(3));
    assert_int_equal(int_attr(f, "seed"), 3);
    for (demo = 0; demo < 3; demo++) {
        int e = (int[]){0, 2, 3}[demo];

        snprintf(text, sizeof text, "data/demo_%d", demo);
        assert_ok(h5file_at(f, text));
        assert_int_equal(int_attr(f, "episode"), e);
        assert_int_equal(int_attr(f, "success"), 1);
        assert_ok(h5file_get_reals(f, "init_state", N_STATE, init));
        snprintf(text, sizeof text, "data/demo_%d/states", demo);
        assert_ok(h5file_get(f, text, H5_F64, length_of(e), N_STATE, data));
        assert_memory_equal(data[0], init, sizeof init);
        for (t = 0; t < length_of(e); t++)
            for (k = 0; k < N_STATE; k++)
                assert_true(data[t][k] == number(e, t, k + 19));
        assert_ok(h5file_get_text(f, "model_file", text, sizeof text));
        snprintf((char *)data, sizeof data, "<b pos=\"%.17g %.17g %.17g\" f=\"a@b@c@@99@\"/>",
                 number(e, 0, 24), number(e, 0, 25), number(e, 0, 26));
        assert_string_equal(text, (char *)data);
    }
    h5file_close(f);
}

static void obs_moves_with_the_alignment(void **state)
{
    static double pos[400][3];
    struct h5file *f;
    int align, t;

    (void)state;
    for (align = RECORD_PRE; align <= RECORD_POST; align++) {
        about.align = (enum record_align)align;
        record_five((size_t)1 << 30);
        assert_ok(h5file_open_large(&f, path));
        assert_ok(h5file_get(f, "data/demo_2/obs/ee_pos", H5_F64, length_of(2), 3, pos));
        for (t = 0; t < length_of(2); t++)
            assert_true(pos[t][1] == number(2, t + align, 11));
        h5file_close(f);
    }
}

static void outcomes_stand_at_the_end(void **state)
{
    static uint8_t flags[400];
    struct h5file *f;
    int e, t;

    (void)state;
    record_five((size_t)1 << 30);
    assert_ok(h5file_open_large(&f, path));
    for (e = 0; e < 5; e++) {
        char name[64];

        snprintf(name, sizeof name, "data/demo_%d/rewards", e);
        assert_ok(h5file_get(f, name, H5_U8, length_of(e), 0, flags));
        for (t = 0; t < length_of(e); t++)
            assert_int_equal(flags[t], e % 3 != 1 && t == length_of(e) - 1);
        snprintf(name, sizeof name, "data/demo_%d/dones", e);
        assert_ok(h5file_get(f, name, H5_U8, length_of(e), 0, flags));
        for (t = 0; t < length_of(e); t++)
            assert_int_equal(flags[t], t == length_of(e) - 1);
    }
    h5file_close(f);
}

static void the_bound_does_not_change_the_file(void **state)
{
    char *a, *b;
    size_t n, m;

    (void)state;
    record_five((size_t)1 << 30);
    assert_ok(file_read(path, &a, &n));
    record_five(0); // all wait on disk
    assert_ok(file_read(path, &b, &m));
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    mem_free(b);
    record_five(40000); // some
    assert_ok(file_read(path, &b, &m));
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    mem_free(a);
    mem_free(b);
}

// What is in them, oracle/record_check.py reads.
static void pictures_wait_like_numbers(void **state)
{
    int64_t rows, cols;
    struct h5file *f;
    char text[32];

    add_pictures();
    the_bound_does_not_change_the_file(state);
    assert_ok(h5file_open_large(&f, path));
    // they have more than two dimensions
    assert_fails(h5file_shape(f, "data/demo_0/obs/eye_in_hand_rgb", &rows, &cols), ST_INVAL,
                 "no table");
    assert_fails(h5file_shape(f, "data/demo_0/obs/agentview_depth", &rows, &cols), ST_INVAL,
                 "no table");
    assert_fails(h5file_shape(f, "data/demo_0/obs/agentview_segmentation", &rows, &cols), ST_INVAL,
                 "no table");
    assert_ok(h5file_at(f, "data"));
    assert_ok(h5file_get_text(f, "image_orientation", text, sizeof text));
    assert_string_equal(text, "opengl");
    h5file_close(f);
    spec.pictures[1].orient = 2;
    assert_fails(recorder_open(&rec, dir, &about, &spec), ST_INVAL, "the same way up");
}

static void parts_that_are_missing_are_named(void **state)
{
    (void)state;
    snprintf(spec.fields[5].name, SPEC_NAME_MAX, "state");
    assert_fails(recorder_open(&rec, dir, &about, &spec), ST_INVAL, "recording needs 'sim_state'");
    snprintf(spec.fields[5].name, SPEC_NAME_MAX, "sim_state");
    spec.fields[3].n = 3;
    assert_fails(recorder_open(&rec, dir, &about, &spec), ST_INVAL, "'robot0_eef_quat'");
    assert_false(file_exists(temp));
}

static void an_unfinished_file_leaves_nothing(void **state)
{
    (void)state;
    record_five(0);
    assert_true(file_exists(path));
    assert_ok(recorder_open(&rec, dir, &about, &spec));
    assert_false(file_exists(path)); // it would stand beside other results
    assert_true(file_exists(temp));
    play(0, true, 5);
    play(1, true, 5); // never written
    assert_ok(recorder_write(rec, 0));
    recorder_close(rec);
    assert_false(file_exists(path));
    assert_false(file_exists(temp));
}

// In a process of its own, whose files may have `bytes`: the status of the first failure.
static enum status record_in_small_space(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    enum status st;
    int64_t n;
    int i;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return ST_MISSING;
    st = recorder_open(&rec, dir, &about, &spec);
    if (st != ST_OK)
        return st;
    for (i = 0; i < 5; i++)
        play(i, true, length_of(i));
    for (i = 0; i < 5 && st == ST_OK; i++)
        st = recorder_write(rec, i);
    if (st == ST_OK)
        st = recorder_finish(rec, &n);
    if (st != ST_OK && (!strstr(error_last()->text, "demos.hdf5") ||
                        !strstr(error_last()->text, "File too large")))
        st = ST_MISSING; // file and reason were not named
    recorder_close(rec);
    return st;
}

static void a_full_disk_is_an_error_without_a_file(void **state)
{
    static const rlim_t sizes[] = {0, 2000, 6000, 20000, 60000, 100000, 150000, 190000};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pid_t child;
        int status;

        fflush(NULL);
        child = fork();
        if (child == 0) // through exit(), which HDF5 must survive too
            exit(record_in_small_space(sizes[i]));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), ST_IO);
        assert_false(file_exists(path));
        assert_false(file_exists(temp));
    }
}

static void a_replay_gives_the_actions_back(void **state)
{
    struct replay *r;
    float action[N_ACT];
    double start[N_STATE];
    int demo, t, k;

    (void)state;
    about.failures = false;
    record_five(0);
    assert_ok(replay_open(&r, path));
    assert_int_equal(replay_demos(r), 3);
    assert_int_equal(replay_n_act(r), N_ACT);
    for (demo = 0; demo < 3; demo++) {
        int e = (int[]){0, 2, 3}[demo];

        assert_int_equal(replay_start(r, demo), e);
        for (t = 0; t < length_of(e) + 3; t++) {
            replay_act(r, demo, (uint64_t)t, action);
            for (k = 0; k < N_ACT; k++)
                assert_true(action[k] == (t < length_of(e) ? (float)number(e, t, k) : 0));
        }
        for (k = 0; k < N_STATE; k++)
            start[k] = number(e, 0, k + 19);
        assert_ok(replay_check_start(r, demo, start, N_STATE));
        assert_fails(replay_check_start(r, demo, start, N_STATE - 1), ST_INVAL, "5 numbers");
        start[4] += 1e-6;
        assert_fails(replay_check_start(r, demo, start, N_STATE), ST_INVAL, "its number 4 is");
        start[4] = NAN;
        assert_fails(replay_check_start(r, demo, start, N_STATE), ST_INVAL, "its number 4 is");
    }
    assert_ok(replay_check_task(r, "Lift/0", 3));
    assert_fails(replay_check_task(r, "Lift/1", 3), ST_INVAL, "of task Lift/0, not of Lift/1");
    assert_fails(replay_check_task(r, "Lift/0", 4), ST_INVAL, "with seed 3, not with 4");
    replay_close(r);
}

// A file with `n` demos, of which one exists; its actions are (3, n_act).
static void write_odd(int64_t n, enum h5_type type, int64_t n_act, bool states)
{
    static const double zeros[64];
    struct h5file *f;

    assert_ok(h5file_stream(&f, path));
    assert_ok(h5file_put(f, "data/demo_0/actions", type, 3, n_act, zeros));
    if (states)
        assert_ok(h5file_put(f, "data/demo_0/states", H5_F64, 3, 4, zeros));
    assert_ok(h5file_at(f, "data/demo_0"));
    assert_ok(h5file_put_reals(f, "init_state", 4, zeros));
    assert_ok(h5file_at(f, "data"));
    assert_ok(h5file_put_int(f, "num_demos", n));
    assert_ok(h5file_finish(f));
    h5file_close(f);
}

static void odd_files_are_refused(void **state)
{
    struct replay *r;

    (void)state;
    assert_fails(replay_open(&r, path), ST_MISSING, "demos.hdf5");
    write_odd(1, H5_F64, 7, true);
    assert_ok(replay_open(&r, path));
    assert_int_equal(replay_start(r, 0), 0);
    assert_ok(replay_check_task(r, "any", 9)); // the file does not say
    replay_close(r);
    write_odd(2, H5_F64, 7, true);
    assert_fails(replay_open(&r, path), ST_INVAL, "no group 'data/demo_1'");
    write_odd(0, H5_F64, 7, true);
    assert_fails(replay_open(&r, path), ST_INVAL, "'num_demos' of 'data' is 0, expected 1 to");
    write_odd((int64_t)1 << 40, H5_F64, 7, true);
    assert_fails(replay_open(&r, path), ST_INVAL, "'num_demos' of 'data' is 1099511627776");
    write_odd(1, H5_F32, 7, true);
    assert_fails(replay_open(&r, path), ST_INVAL, "'data/demo_0/actions' is of another type");
    write_odd(1, H5_F64, 0, true);
    assert_fails(replay_open(&r, path), ST_INVAL, "'data/demo_0/actions' is (3, 0)");
    write_odd(1, H5_F64, 7, false);
    assert_fails(replay_open(&r, path), ST_INVAL, "no dataset 'data/demo_0/states'");
    assert_int_equal(truncate(path, 700), 0);
    assert_fails(replay_open(&r, path), ST_INVAL, "is not a readable HDF5 file");
}

static void out_of_memory_is_reported(void **state)
{
    struct replay *r = NULL;
    enum status st;
    int n;

    (void)state;
    record_five(0);
    for (n = 0;; n++) {
        mem_fail_after(n);
        st = replay_open(&r, path);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
    }
    assert_true(n > 5);
    replay_close(r);
    for (n = 0;; n++) {
        mem_fail_after(n);
        st = recorder_open(&rec, dir, &about, &spec);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
    }
    assert_true(n > 2);
    recorder_close(rec);
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(demos_hold_what_was_played),        test(obs_moves_with_the_alignment),
        test(outcomes_stand_at_the_end),         test(the_bound_does_not_change_the_file),
        test(pictures_wait_like_numbers),        test(parts_that_are_missing_are_named),
        test(an_unfinished_file_leaves_nothing), test(a_full_disk_is_an_error_without_a_file),
        test(a_replay_gives_the_actions_back),   test(odd_files_are_refused),
        test(out_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
