#include "tests/toy_chunks.h"

#include "common/base/log.h"
#include "learner/checkpoint.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define N_CHUNK 8

struct options {
    struct update_config u;
};

static const struct opt table[] = {UPDATE_OPTS(struct options, u), {0}};

static char folder[] = "/tmp/simstream-checkpoint-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/checkpoint.h5", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static struct update_config config(void)
{
    struct options o;

    assert_ok(opts_defaults(table, &o));
    o.u.epochs = 3;
    o.u.minibatches = 3;
    return o.u;
}

static struct updater *make(const struct update_config *cfg, const char *hidden)
{
    struct weights *w = toy_weights(hidden);
    struct updater *u;

    assert_ok(updater_create(&u, cfg, w, 10));
    weights_drop(w);
    return u;
}

static void run(struct updater *u, int windows)
{
    static struct toy_chunk chunk;
    struct update_stats stats;
    struct weights *w;
    struct policy *p;

    while (windows-- > 0) {
        const struct weights *now = updater_weights(u);

        assert_ok(policy_create(&p, &now->shape, 1));
        for (uint32_t i = 0; i < N_CHUNK; i++) {
            toy_make(&chunk, p, now, i, now->version, true);
            assert_ok(updater_accumulate(u, &chunk.c));
        }
        assert_ok(updater_step(u, &w, &stats));
        weights_drop(w);
        policy_destroy(p);
    }
}

static void assert_same(struct updater *a, struct updater *b)
{
    struct updater_state x, y;

    updater_get(a, &x);
    updater_get(b, &y);
    assert_int_equal(x.weights->version, y.weights->version);
    assert_int_equal(x.n_step, y.n_step);
    assert_memory_equal(x.weights->params, y.weights->params,
                        (size_t)x.n_param * sizeof *x.weights->params);
    assert_memory_equal(x.m, y.m, (size_t)x.n_param * sizeof *x.m);
    assert_memory_equal(x.v, y.v, (size_t)x.n_param * sizeof *x.v);
    assert_memory_equal(x.averages, y.averages, sizeof x.averages);
    assert_memory_equal(x.weights->obs_mean, y.weights->obs_mean, TOY_OBS * sizeof(double));
    assert_memory_equal(x.weights->obs_var, y.weights->obs_var, TOY_OBS * sizeof(double));
    assert_true(x.weights->ret_std == y.weights->ret_std);
}

static const struct train_progress progress = {
    .windows = 2, .env_steps = 640, .episodes = 55, .seconds = 1.5, .dropped = 3};

// Four windows at a stretch, and two, a break, two more.
static void going_on_is_exact(void **state)
{
    struct update_config cfg = config();
    struct updater *whole = make(&cfg, "16,16"), *before = make(&cfg, "16,16"), *after;
    struct train_progress p;

    (void)state;
    run(whole, 4);
    run(before, 2);
    assert_ok(checkpoint_save(path, before, &progress));
    updater_destroy(before);
    after = make(&cfg, "16,16");
    run(after, 1); // whatever it did so far is replaced
    assert_ok(checkpoint_load(path, after, &p));
    assert_memory_equal(&p, &progress, sizeof p);
    run(after, 2);
    assert_same(whole, after);
    updater_destroy(whole);
    updater_destroy(after);
}

static void an_open_window_is_not_saved(void **state)
{
    struct update_config cfg = config();
    struct updater *u = make(&cfg, "8"), *v = make(&cfg, "8");
    static struct toy_chunk chunk;
    struct train_progress p;
    struct policy *policy;

    (void)state;
    run(u, 1);
    run(v, 1);
    assert_ok(policy_create(&policy, &updater_weights(u)->shape, 1));
    toy_make(&chunk, policy, updater_weights(u), 0, 9, true);
    assert_ok(updater_accumulate(u, &chunk.c));
    assert_ok(checkpoint_save(path, u, &progress));
    assert_ok(checkpoint_load(path, u, &p));
    assert_int_equal(updater_samples(u), 0);
    assert_same(u, v);
    run(u, 1);
    run(v, 1);
    assert_same(u, v);
    policy_destroy(policy);
    updater_destroy(u);
    updater_destroy(v);
}

static void misfits_are_named(void **state)
{
    struct update_config cfg = config(), other = cfg;
    struct updater *u = make(&cfg, "16,16"), *v;
    struct train_progress p;
    struct weights *w;

    (void)state;
    assert_ok(checkpoint_save(path, u, &progress));
    v = make(&cfg, "16,8");
    assert_fails(checkpoint_load(path, v, &p), ST_INVAL,
                 "hidden layers 16,16, expected 3, 2 and 16,8");
    assert_fails(checkpoint_load(path, v, &p), ST_INVAL, path);
    updater_destroy(v);
    other.gamma = 0.5;
    v = make(&other, "16,16");
    assert_fails(checkpoint_load(path, v, &p), ST_INVAL,
                 "'gamma' was 0.99 in the checkpoint and is 0.5");
    updater_destroy(v);
    other = cfg;
    other.normalize_obs = false;
    v = make(&other, "16,16");
    assert_fails(checkpoint_load(path, v, &p), ST_INVAL, "'normalize-obs'");
    updater_destroy(v);
    other = cfg;
    other.threads = 2; // changes no result
    other.accel.infer_ns = 5;
    v = make(&other, "16,16");
    assert_ok(checkpoint_load(path, v, &p));
    updater_destroy(v);
    // a policy is no checkpoint, but a checkpoint holds a policy
    assert_ok(weights_load(&w, path));
    assert_ok(weights_save(w, path));
    weights_drop(w);
    assert_fails(checkpoint_load(path, u, &p), ST_INVAL, "no attribute");
    unlink(path);
    assert_fails(checkpoint_load(path, u, &p), ST_MISSING, path);
    updater_destroy(u);
}

static void count_lines(enum log_level level, const char *line, void *arg)
{
    if (level == LOG_WARN && strstr(line, "schedule"))
        ++*(int *)arg;
}

static void another_length_is_warned_of(void **state)
{
    struct update_config cfg = config();
    struct weights *w = toy_weights("8");
    struct updater *u = make(&cfg, "8"), *v;
    struct train_progress p;
    int warnings = 0;

    (void)state;
    assert_ok(checkpoint_save(path, u, &progress));
    log_set_sink(count_lines, &warnings);
    assert_ok(checkpoint_load(path, u, &p));
    assert_int_equal(warnings, 0);
    assert_ok(updater_create(&v, &cfg, w, 20));
    assert_ok(checkpoint_load(path, v, &p));
    assert_int_equal(warnings, 1);
    log_set_sink(NULL, NULL);
    weights_drop(w);
    updater_destroy(u);
    updater_destroy(v);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    struct update_config cfg = config();
    struct updater *u = make(&cfg, "16,16"), *v = make(&cfg, "16,16");
    struct train_progress p;
    struct rlimit limit, small;
    enum status st;

    (void)state;
    assert_ok(checkpoint_save(path, u, &progress));
    run(u, 1);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    st = checkpoint_save(path, u, &progress);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_fails(st, ST_IO, "checkpoint.h5");
    assert_ok(checkpoint_load(path, u, &p));
    assert_same(u, v);
    updater_destroy(u);
    updater_destroy(v);
}

static void damage_is_noticed(void **state)
{
    struct update_config cfg = config();
    struct updater *u = make(&cfg, "8");
    struct train_progress p;
    FILE *f;

    (void)state;
    assert_ok(checkpoint_save(path, u, &progress));
    f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 3000, SEEK_SET), 0);
    fputs("scratch", f);
    fclose(f);
    assert_fails(checkpoint_load(path, u, &p), ST_INVAL, "damaged");
    assert_int_equal(truncate(path, 2000), 0);
    assert_fails(checkpoint_load(path, u, &p), ST_INVAL, path);
    updater_destroy(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(going_on_is_exact),
        leak_test(an_open_window_is_not_saved),
        leak_test(misfits_are_named),
        leak_test(another_length_is_warned_of),
        leak_test(a_full_disk_leaves_the_old_file),
        leak_test(damage_is_noticed),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
