#include "tests/testing.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "evaluation/evaluator.h"
#include "tests/fake_server.h"
#include "tests/log_testing.h"

#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static char dir[64];
static char text[1 << 16]; // of the file read last
static struct fake_server fakes[2];
static struct evaluator_config cfg;
static struct evaluator_progress progress;
static struct evaluator_summary summary;
static bool resume, disk_full;
static int64_t n_row; // results in the folder

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/simstream-eval-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    log_capture();
    progress = (struct evaluator_progress){0};
    summary = (struct evaluator_summary){0};
    resume = disk_full = false;
    cfg = (struct evaluator_config){.env = "inproc://fake-0",
                                    .policy = "random",
                                    .episodes = 20,
                                    .seed = 7,
                                    .retries = 1,
                                    .connect_wait_ns = ENOUGH,
                                    .answer_wait_ns = ENOUGH};
    snprintf(cfg.out, sizeof cfg.out, "%s/out", dir);
    return leak_setup(state);
}

static int teardown(void **state)
{
    char cmd[128];

    log_set_sink(NULL, NULL);
    msg_drain();
    snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
    return system(cmd) == 0 ? leak_teardown(state) : -1;
}

// An evaluation whose results are in a new folder, or in the same one with `resume`.
static enum status evaluate(const struct weights *w, const atomic_bool *stop)
{
    struct journal_config config = {
        .dir = cfg.out, .settings = "{}", .seed = cfg.seed, .resume = resume};
    struct results *results;
    struct error err;
    enum status st;

    if (!resume) {
        char cmd[OPT_STR_MAX + 16];

        snprintf(cmd, sizeof cmd, "rm -rf '%s'", cfg.out);
        assert_int_equal(system(cmd), 0);
    }
    assert_ok(journal_open(&cfg.journal, &config));
    if (disk_full)
        limit_files(300); // one line, not two
    st = evaluator_run(&cfg, w, stop, &progress, &summary);
    err = *error_last();
    if (disk_full)
        limit_files(RLIM_INFINITY);
    assert_ok(journal_finish(cfg.journal, &results));
    n_row = results->n;
    journal_close(cfg.journal);
    return st == ST_OK ? ST_OK : error_adopt(&err);
}

// One or two servers, an evaluation, its status.
static enum status run(const struct fake_script *a, const struct fake_script *b,
                       const struct weights *w, const atomic_bool *stop)
{
    enum status st;

    fake_start(&fakes[0], "inproc://fake-0", a);
    if (b) {
        fake_start(&fakes[1], "inproc://fake-1", b);
        snprintf(cfg.env, sizeof cfg.env, "inproc://fake-0, inproc://fake-1");
    }
    st = evaluate(w, stop);
    fake_stop(&fakes[0]);
    if (b)
        fake_stop(&fakes[1]);
    return st;
}

static const char *read_out(const char *name)
{
    char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", cfg.out, name);
    f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static int count_of(const char *part)
{
    const char *p;
    int n = 0;

    for (p = text; (p = strstr(p, part)); p++)
        n++;
    return n;
}

#define assert_has(part)                                   \
    do {                                                   \
        if (!strstr(text, (part)))                         \
            fail_msg("'%s' is not in:\n%s", (part), text); \
    } while (0)

// Return of an episode of "zero": its length times (its number + 0.25).
static double zero_return(int e, int length)
{
    return (length + e % 5) * (e + 0.25);
}

static void evaluator_plays_each_episode_once_and_in_order(void **state)
{
    double sum = 0;
    int e;

    (void)state;
    snprintf(cfg.policy, sizeof cfg.policy, "zero");
    assert_ok(run(&(struct fake_script){FAKE_SCRIPT, .n_env = 4}, NULL, NULL, NULL));
    read_out("results.jsonl");
    assert_int_equal(count_of("\n"), 20);
    for (e = 0; e < 20; e++) {
        char line[256];

        snprintf(line, sizeof line,
                 "{\"item\": \"Count-v0/%d\", \"task\": \"Count-v0\", \"episode\": %d, "
                 "\"seed\": 7, \"stream\": 0, \"outcome\": \"done\", \"return\": %.10g, "
                 "\"max_reward\": %.10g, \"length\": %d, \"terminated\": %s, "
                 "\"truncated\": %s}\n",
                 e, e, zero_return(e, 3), e + 0.25, 3 + e % 5, e % 2 ? "true" : "false",
                 e % 2 ? "false" : "true");
        assert_has(line);
        sum += zero_return(e, 3);
    }
    assert_int_equal(summary.episodes, 20);
    assert_int_equal(summary.errors, 0);
    assert_true(summary.complete && !summary.has_success);
    assert_close(summary.return_mean, sum / 20, 1e-14, 0);
    assert_close(summary.length_mean, 5, 1e-15, 0);
    assert_true(summary.return_min == zero_return(0, 3) &&
                summary.return_max == zero_return(19, 3));
    assert_true(summary.return_low < sum / 20 && sum / 20 < summary.return_high);
    assert_int_equal(progress.done, 20);
    assert_int_equal(progress.env_steps, 100);
    assert_close(progress.mean_return, sum / 20, 1e-12, 0);
    read_out("inputs.jsonl");
    assert_has("{\"task\": \"Count-v0\", \"engine\": \"Counter 1.0\", ");
    assert_has("\"has_success\": false}\n");
}

// What the random policy earns follows from (seed, episode, step) alone.
static double random_return(int e, int length)
{
    double sum = 0, reward;
    int step, k;

    for (step = 0; step < length; step++) {
        struct rng rng = rng_make(7, RNG_ACTION, 0, (uint64_t)e, (uint64_t)step);

        for (reward = e, k = 0; k < 3; k++)
            reward += (float)rng_uniform(&rng, k == 1 ? 0.25 : -1, 2);
        sum += reward;
    }
    return sum;
}

static void evaluator_draws_random_actions_by_episode_and_step(void **state)
{
    double ret;
    int e;

    (void)state;
    assert_ok(run(&(struct fake_script){FAKE_SCRIPT, .n_env = 4}, NULL, NULL, NULL));
    read_out("results.jsonl");
    for (e = 0; e < 20; e++) {
        char start[64];
        const char *line;

        snprintf(start, sizeof start, "\"episode\": %d, ", e);
        line = strstr(text, start);
        assert_non_null(line);
        line = strstr(line, "\"return\": ");
        assert_non_null(line);
        ret = strtod(line + strlen("\"return\": "), NULL);
        assert_close(ret, random_return(e, 3 + e % 5), 1e-14, 0);
    }
}

static void evaluator_results_do_not_depend_on_the_spread(void **state)
{
    static const struct {
        int n_env, b_max, second;
    } spread[] = {{3, 0, 0}, {8, 1, 0}, {8, 3, 0}, {1, 0, 3}, {5, 2, 8}, {64, 0, 0}};
    static char first[sizeof text];
    size_t i;

    (void)state;
    assert_ok(run(&(struct fake_script){FAKE_SCRIPT, .n_env = 1}, NULL, NULL, NULL));
    memcpy(first, read_out("results.jsonl"), sizeof first);
    assert_int_equal(count_of("\n"), 20);
    for (i = 0; i < sizeof spread / sizeof spread[0]; i++) {
        struct fake_script a = {FAKE_SCRIPT, .n_env = spread[i].n_env, .b_max = spread[i].b_max};
        struct fake_script b = {FAKE_SCRIPT, .n_env = spread[i].second};

        assert_ok(run(&a, b.n_env ? &b : NULL, NULL, NULL));
        assert_string_equal(read_out("results.jsonl"), first);
        snprintf(cfg.env, sizeof cfg.env, "inproc://fake-0");
    }
    cfg.seed = 8;
    assert_ok(run(&(struct fake_script){FAKE_SCRIPT, .n_env = 1}, NULL, NULL, NULL));
    assert_string_not_equal(read_out("results.jsonl"), first);
}

// A small network that is not all zeros, for the counting task.
static struct weights *make_weights(int n_obs, int n_act)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, n_obs, n_act, "8"));
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, 3, -0.5, w->params));
    w->version = 41;
    snprintf(w->task, sizeof w->task, "Count-v0");
    return w;
}

static void evaluator_infers_the_same_however_rows_are_batched(void **state)
{
    struct weights *w = make_weights(2, 3);
    static char first[sizeof text];
    int n_env, greedy;

    (void)state;
    snprintf(cfg.policy, sizeof cfg.policy, "policy.h5");
    for (greedy = 0; greedy < 2; greedy++) {
        cfg.greedy = greedy;
        for (n_env = 1; n_env <= 64; n_env *= 4) {
            struct fake_script a = {FAKE_SCRIPT, .n_env = n_env};

            assert_ok(run(&a, NULL, w, NULL));
            read_out("results.jsonl");
            assert_int_equal(count_of("\n"), 20);
            if (n_env == 1)
                memcpy(first, text, sizeof first);
            assert_string_equal(text, first);
        }
    }
    weights_drop(w);
}

static void evaluator_refuses_a_policy_for_another_task(void **state)
{
    struct weights *w = make_weights(2, 3);

    (void)state;
    snprintf(cfg.policy, sizeof cfg.policy, "p.h5");
    assert_fails(
        run(&(struct fake_script){FAKE_SCRIPT, .n_env = 1, .task = "Other-v1"}, NULL, w, NULL),
        ST_INVAL,
        "policy 'p.h5' was trained on Count-v0 (2 observations, 3 actions), env server "
        "inproc://fake-0 has Other-v1 (2 observations, 3 actions)");
    assert_fails(
        run(&(struct fake_script){FAKE_SCRIPT, .n_env = 1, .n_obs = 5, .n_act = 4}, NULL, w, NULL),
        ST_INVAL, "has Count-v0 (5 observations, 4 actions)");
    assert_int_equal(n_row, 0);
    weights_drop(w);
    assert_fails(evaluator_run(&cfg, NULL, NULL, &progress, &summary), ST_INVAL,
                 "policy 'p.h5' has no weights");
}

static void evaluator_ends_when_the_policy_fails(void **state)
{
    struct weights *w = make_weights(2, 3);
    struct fake_script a = {FAKE_SCRIPT, .n_env = 2};
    int64_t i;

    (void)state;
    for (i = 0; i < w->n_param; i++)
        w->params[i] = NAN;
    cfg.greedy = true;
    assert_fails(run(&a, &a, w, NULL), ST_INVAL, "the policy's action 0 is NaN in episode");
    assert_false(summary.complete);
    assert_string_equal(log_text, ""); // no server is to blame
    weights_drop(w);
}

static void evaluator_refuses_servers_that_differ(void **state)
{
    struct fake_script a = {FAKE_SCRIPT, .n_env = 1}, b = a;

    (void)state;
    b.task = "Other-v1";
    assert_fails(run(&a, &b, NULL, NULL), ST_INVAL,
                 "env server inproc://fake-0 has task Count-v0, inproc://fake-1 has Other-v1");
    b.task = NULL;
    b.engine = "Counter 2.0";
    assert_fails(run(&a, &b, NULL, NULL), ST_INVAL, "runs Counter 1.0, inproc://fake-1 runs");
    b.engine = NULL;
    b.has_success = true;
    assert_fails(run(&a, &b, NULL, NULL), ST_INVAL, "differ in success of Count-v0");
    snprintf(cfg.env, sizeof cfg.env, "inproc://fake-0");
    cfg.task = "Other-v1";
    assert_fails(run(&a, NULL, NULL, NULL), ST_INVAL,
                 "task Other-v1 is wanted, env server inproc://fake-0 has Count-v0");
    snprintf(cfg.env, sizeof cfg.env, "inproc://fake-0,,x");
    assert_fails(run(&a, NULL, NULL, NULL), ST_INVAL, "empty address");
}

static void evaluator_names_a_server_that_is_not_there(void **state)
{
    (void)state;
    snprintf(cfg.env, sizeof cfg.env, "inproc://nobody");
    cfg.connect_wait_ns = 0;
    assert_fails(evaluator_run(&cfg, NULL, NULL, &progress, &summary), ST_IO, "inproc://nobody");
}

static void evaluator_tries_errors_again_and_counts_them_apart(void **state)
{
    atomic_int made = 0;
    struct fake_script a = {FAKE_SCRIPT, .n_env = 3, .has_success = true};

    (void)state;
    a.error_once = 9;
    a.error_always = 4;
    a.errors_made = &made;
    assert_ok(run(&a, NULL, NULL, NULL));
    assert_int_equal(summary.errors, 1);
    assert_int_equal(summary.episodes, 19);
    assert_int_equal(summary.successes, 9); // the even ones but 4
    assert_close(summary.success_rate, 9.0 / 19, 1e-15, 0);
    assert_true(summary.success_low > 0.2 && summary.success_high < 0.75);
    assert_true(summary.complete);
    assert_int_equal(progress.errors, 1);
    read_out("results.jsonl");
    assert_int_equal(count_of("\n"), 20);
    assert_int_equal(count_of("\"outcome\": \"success\""), 9);
    assert_int_equal(count_of("\"outcome\": \"failure\""), 10);
    assert_has("\"episode\": 4, \"seed\": 7, \"stream\": 0, \"outcome\": \"error\", ");
    assert_has("\"length\": 1, \"terminated\": false, \"truncated\": false, \"error\": \"");
    assert_has(row_error_name(ROW_ERROR_QACC));
    assert_true(progress.retries == 2 && progress.returned == 0);
}

static void evaluator_goes_on_when_one_of_the_servers_is_lost(void **state)
{
    static const char *const why[] = {"is gone", "no such luck", "another episode was asked",
                                      "has not answered for"};
    static char first[sizeof text];
    int fault;

    (void)state;
    assert_ok(run(&(struct fake_script){FAKE_SCRIPT, .n_env = 2}, NULL, NULL, NULL));
    memcpy(first, read_out("results.jsonl"), sizeof first);
    for (fault = 0; fault < 4; fault++) {
        // the good one holds one episode until the other, which has the 19 others, is lost
        struct fake_script good = {FAKE_SCRIPT, .n_env = 1}, bad = {FAKE_SCRIPT, .n_env = 19};
        uint64_t *when[] = {&bad.die_at, &bad.refuse_at, &bad.confuse_at, &bad.silent_at};
        enum status st;
        sem_t lost;

        sem_init(&lost, 0, 0);
        *when[fault] = 10;
        bad.post_at_fault = good.wait_at_start = &lost;
        cfg.answer_wait_ns = fault == 3 ? NS_PER_S / 4 : ENOUGH;
        do { // on a slow machine the good one may be silent for as long: then with more patience
            log_text[0] = '\0';
            cfg.answer_wait_ns *= fault == 3 ? 4 : 1;
            st = run(&good, &bad, NULL, NULL);
        } while (fault == 3 && cfg.answer_wait_ns < 60 * NS_PER_S &&
                 (st == ST_IO || strstr(log_text, "inproc://fake-0")));
        assert_int_equal(st, ST_OK);
        assert_string_equal(read_out("results.jsonl"), first);
        assert_true(summary.complete);
        assert_non_null(strstr(log_text, "inproc://fake-1"));
        assert_non_null(strstr(log_text, why[fault]));
        assert_null(strstr(log_text, "inproc://fake-0"));
        snprintf(cfg.env, sizeof cfg.env, "inproc://fake-0");
        sem_destroy(&lost);
    }
}

static void evaluator_takes_a_server_back(void **state)
{
    static char first[sizeof text];
    // one holds an episode until the other, which was lost with the 19 others, is asked again
    struct fake_script good = {FAKE_SCRIPT, .n_env = 1}, bad = {FAKE_SCRIPT, .n_env = 19};
    sem_t back;

    (void)state;
    assert_ok(run(&(struct fake_script){FAKE_SCRIPT, .n_env = 2}, NULL, NULL, NULL));
    memcpy(first, read_out("results.jsonl"), sizeof first);
    sem_init(&back, 0, 0);
    bad.die_at = 10;
    bad.returns = 1;
    bad.post_at_return = good.wait_at_start = &back;
    assert_ok(run(&good, &bad, NULL, NULL));
    assert_string_equal(read_out("results.jsonl"), first);
    assert_true(summary.complete);
    assert_non_null(strstr(log_text, "inproc://fake-1 is gone; its episodes go to other servers"));
    assert_non_null(strstr(log_text, "env server inproc://fake-1 is back"));
    sem_destroy(&back);
}

static void evaluator_keeps_what_is_done_when_all_servers_are_gone(void **state)
{
    struct fake_script a = {FAKE_SCRIPT, .n_env = 1};

    (void)state;
    a.die_at = 5;
    assert_fails(run(&a, NULL, NULL, NULL), ST_IO,
                 "all env servers are gone after 5 of 20 episodes: env server inproc://fake-0");
    assert_string_equal(log_text, ""); // an error is said once
    read_out("results.jsonl");
    assert_int_equal(count_of("\n"), 5);
    assert_int_equal(summary.episodes, 5);
    assert_false(summary.complete);
    assert_int_equal(progress.returned, 1);
}

// 5 episodes and an error are there; what has no result is played, and the rest is as without the
// break.
static void evaluator_goes_on_with_what_has_no_result(void **state)
{
    static char whole[sizeof text];
    struct fake_script a = {FAKE_SCRIPT, .n_env = 1};
    atomic_int made = 0;

    (void)state;
    assert_ok(run(&a, NULL, NULL, NULL));
    memcpy(whole, read_out("results.jsonl"), sizeof whole);
    a.error_always = 3;
    a.die_at = 5;
    a.errors_made = &made;
    assert_fails(run(&a, NULL, NULL, NULL), ST_IO, "all env servers are gone");
    assert_int_equal(n_row, 5);
    resume = true;
    progress = (struct evaluator_progress){0};
    a = (struct fake_script){FAKE_SCRIPT, .n_env = 3};
    assert_ok(run(&a, NULL, NULL, NULL));
    assert_int_equal(progress.done, 16);
    assert_int_equal(summary.episodes, 20);
    assert_true(summary.complete);
    assert_string_equal(read_out("results.jsonl"), whole);
    assert_ok(run(&a, NULL, NULL, NULL)); // nothing is left
    assert_int_equal(progress.done, 0);
    assert_string_equal(read_out("results.jsonl"), whole);
}

static void evaluator_plays_its_part_alone(void **state)
{
    static char whole[sizeof text];
    struct fake_script a = {FAKE_SCRIPT, .n_env = 3};

    (void)state;
    assert_ok(run(&a, NULL, NULL, NULL));
    memcpy(whole, read_out("results.jsonl"), sizeof whole);
    cfg.first = 7;
    cfg.last = 12;
    assert_ok(run(&a, NULL, NULL, NULL));
    assert_int_equal(n_row, 5);
    assert_int_equal(summary.wanted, 5);
    assert_true(summary.complete);
    assert_non_null(strstr(whole, read_out("results.jsonl")));
}

static void evaluator_stops_on_request_and_keeps_what_is_done(void **state)
{
    struct fake_script a = {FAKE_SCRIPT, .n_env = 1};
    atomic_bool stop = false;
    int n;

    (void)state;
    cfg.episodes = WORKLIST_MAX;
    a.stop_at = 10;
    a.stop = &stop;
    assert_ok(run(&a, NULL, NULL, &stop));
    assert_false(summary.complete);
    assert_true(summary.episodes >= 10 && summary.episodes < WORKLIST_MAX);
    read_out("results.jsonl");
    assert_non_null(strstr(text, "\"episode\": 0, "));
    n = (int)strlen(text);
    if (n < (int)sizeof text - 1)
        assert_true(text[n - 1] == '\n');
}

static void evaluator_names_the_file_when_the_disk_is_full(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    disk_full = true;
    assert_fails(run(&(struct fake_script){FAKE_SCRIPT, .n_env = 2}, NULL, NULL, NULL), ST_IO,
                 "/out/results.jsonl'");
    assert_int_equal(n_row, 1);
    read_out("results.jsonl");
    assert_int_equal(count_of("\n"), 1);
}

static int64_t calls_for(uint64_t length)
{
    struct fake_script a = {FAKE_SCRIPT, .n_env = 2};
    int64_t before = mem_calls();

    a.length = length;
    assert_ok(run(&a, NULL, NULL, NULL));
    return mem_calls() - before;
}

static void evaluator_allocates_nothing_per_step(void **state)
{
    int64_t few, many;

    (void)state;
    (void)calls_for(10);
    few = calls_for(10);
    many = calls_for(1000);
    // the free list of messages may grow by a few more; 20,000 steps would show
    assert_true(many - few < 50);
}

#define eval_test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        eval_test(evaluator_plays_each_episode_once_and_in_order),
        eval_test(evaluator_draws_random_actions_by_episode_and_step),
        eval_test(evaluator_results_do_not_depend_on_the_spread),
        eval_test(evaluator_infers_the_same_however_rows_are_batched),
        eval_test(evaluator_refuses_a_policy_for_another_task),
        eval_test(evaluator_ends_when_the_policy_fails),
        eval_test(evaluator_refuses_servers_that_differ),
        eval_test(evaluator_names_a_server_that_is_not_there),
        eval_test(evaluator_tries_errors_again_and_counts_them_apart),
        eval_test(evaluator_goes_on_when_one_of_the_servers_is_lost),
        eval_test(evaluator_takes_a_server_back),
        eval_test(evaluator_keeps_what_is_done_when_all_servers_are_gone),
        eval_test(evaluator_stops_on_request_and_keeps_what_is_done),
        eval_test(evaluator_names_the_file_when_the_disk_is_full),
        eval_test(evaluator_goes_on_with_what_has_no_result),
        eval_test(evaluator_plays_its_part_alone),
        eval_test(evaluator_allocates_nothing_per_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
