#include "tests/testing.h"

#include "common/base/file.h"
#include "common/base/sha256.h"
#include "evaluation/compare.h"
#include "evaluation/html.h"
#include "evaluation/journal.h"
#include "evaluation/summary.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[128];

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/simstream-results-XXXXXX");
    return mkdtemp(dir) ? leak_setup(state) : -1;
}

static int teardown(void **state)
{
    char cmd[128];

    snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
    return system(cmd) == 0 ? leak_teardown(state) : -1;
}

static const char *in(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static char *read_in(const char *name)
{
    char *text;
    size_t n;

    assert_ok(file_read(in(name), &text, &n));
    return text;
}

static void write_in(const char *name, const char *text)
{
    assert_ok(file_write_atomic(in(name), text, strlen(text)));
}

#define assert_file_has(name, part)                                \
    do {                                                           \
        char *text_ = read_in(name);                               \
        if (!strstr(text_, (part)))                                \
            fail_msg("%s lacks '%s':\n%s", (name), (part), text_); \
        mem_free(text_);                                           \
    } while (0)

static struct result_task make_task(const char *name)
{
    struct result_task task = {.episodes = 5, .instruction = "do </script> \"it\" & so"};

    snprintf(task.name, sizeof task.name, "%s", name);
    snprintf(task.input.engine, sizeof task.input.engine, "Counter 1.0");
    task.input.has_success = true;
    task.input.max_episode_steps = 100;
    task.input.dt_s = 0.05;
    return task;
}

static struct episode_result success(int64_t episode, bool yes)
{
    return (struct episode_result){.episode = episode,
                                   .outcome = yes ? OUTCOME_SUCCESS : OUTCOME_FAILURE,
                                   .ret = yes,
                                   .max_reward = yes,
                                   .length = 10 + episode,
                                   .clipped = -1,
                                   .init_state = episode,
                                   .terminated = yes,
                                   .truncated = !yes};
}

static const struct episode_result error = {.episode = 4,
                                            .outcome = OUTCOME_ERROR,
                                            .ret = NAN,
                                            .max_reward = NAN,
                                            .clipped = -1,
                                            .init_state = -1,
                                            .cause = "the server fell over"};

static struct journal *open_journal(bool resume)
{
    struct result_task tasks[] = {make_task("suite/0"), make_task("suite/1")};
    struct journal_config cfg = {.dir = dir,
                                 .settings = "{\"seed\": 7}",
                                 .tasks = tasks,
                                 .n_task = 2,
                                 .seed = 7,
                                 .resume = resume};
    struct journal *j;
    int index;

    assert_ok(journal_open(&j, &cfg));
    assert_ok(journal_begin(j, &tasks[1], &index));
    assert_int_equal(index, 1);
    assert_ok(journal_begin(j, &tasks[0], &index));
    assert_int_equal(index, 0);
    return j;
}

// Results of both tasks as they might come: not in order, one is an error.
static void play(struct journal *j, bool second_wins)
{
    static const int order[] = {2, 0, 1, 3};
    struct episode_result r;
    int i, task;

    for (i = 0; i < 4; i++)
        for (task = 1; task >= 0; task--) {
            r = success(order[i], order[i] % 2 == 0 || (second_wins && task == 1));
            assert_ok(journal_add(j, task, &r));
        }
    assert_ok(journal_add(j, 1, &error));
}

static void journal_keeps_what_came_and_resumes(void **state)
{
    struct results read = {0}, *results;
    struct evaluator_summary s;
    struct journal *j, *other;
    struct result_task task = make_task("suite/0");
    struct journal_config cfg = {.dir = dir, .settings = "{\"seed\": 8}", .resume = true};
    int64_t successes;
    int index;

    (void)state;
    j = open_journal(false);
    assert_fails(journal_open(&other, &cfg), ST_INVAL, "is in use by another evaluation");
    play(j, false);
    journal_close(j); // as a kill: not finished, not in order
    assert_ok(results_read(&read, dir));
    assert_int_equal(read.n, 9);
    assert_true(read.rows[0].task == 0 && read.rows[0].r.episode == 0);
    assert_true(read.rows[8].r.outcome == OUTCOME_ERROR && isnan(read.rows[8].r.ret));
    assert_string_equal(read.rows[8].r.cause, "the server fell over");
    assert_ok(results_summarise(&read, results_keep_all, NULL, 10, &s));
    assert_true(s.episodes == 8 && s.errors == 1 && s.successes == 4 && !s.complete);
    results_fini(&read);

    assert_fails(journal_open(&j, &cfg), ST_INVAL,
                 "/settings.json is of another evaluation: it has '...{\"seed\": 7}...'");
    cfg.settings = "{\"seed\": 7}";
    cfg.resume = false;
    assert_fails(journal_open(&j, &cfg), ST_INVAL, "holds an evaluation: --resume goes on");
    j = open_journal(true);
    assert_int_equal(journal_found(j), 8);
    assert_false(journal_has(j, 1, 4)); // an error is no result
    assert_true(journal_has(j, 1, 3));
    assert_int_equal(journal_count(j, 1, 1, 4, &successes), 3);
    assert_int_equal(successes, 1);
    task.input.dt_s = 0.1;
    assert_fails(journal_begin(j, &task, &index), ST_INVAL, "of suite/0 are not those");
    assert_ok(journal_finish(j, &results));
    assert_int_equal(results->n, 8);
    journal_close(j);
    assert_file_has("results.jsonl", "{\"item\": \"suite/0/0\", ");
}

static void journal_leaves_nothing_without_a_result(void **state)
{
    struct journal *j;

    (void)state;
    j = open_journal(false);
    assert_true(file_exists(in("results.jsonl")));
    journal_close(j);
    assert_false(file_exists(dir));
    assert_int_equal(mkdir(dir, 0777), 0);
}

static void results_read_names_what_is_wrong(void **state)
{
    static const struct {
        const char *line, *why;
    } bad[] = {
        {"[]\n", "results.jsonl, line 1 is not a JSON object"},
        {"\n", "results.jsonl, line 1: expected a JSON object"},
        {"{\"task\": \"suite/0\"}\n", "line 1: expected episode, seed, length and outcome"},
        {"{\"task\": \"suite/9\", \"episode\": 0, \"seed\": 7, \"length\": 1, \"outcome\": "
         "\"success\"}\n",
         "line 1: episode 0 of suite/9 is none of tasks.jsonl"},
        {"{\"task\": \"suite/0\", \"episode\": 5, \"seed\": 7, \"length\": 1, \"outcome\": "
         "\"success\"}\n",
         "line 1: episode 5 of suite/0 is none of tasks.jsonl"},
        {"{\"task\": \"suite/0\", \"episode\": 1e99}\n", "option 'episode'"},
        {"{\"colour\": 1}\n", "unknown option 'colour'"},
        {"{\"task\": \"suite/0\", \"episode\": 1, \"seed\": 7, \"length\": 1, \"outcome\": "
         "\"success\"}\n{\"task\": \"suite/0\", \"episode\": 1, \"seed\": 7, \"length\": 2, "
         "\"outcome\": \"success\"}\n",
         "results.jsonl: episode 1 of suite/0 has two results that differ"},
    };
    struct results r = {0};
    struct episode_result one = success(0, true);
    struct journal *j;
    size_t i;

    (void)state;
    assert_fails(results_read(&r, dir), ST_MISSING, "is no folder of an evaluation");
    j = open_journal(false);
    assert_ok(journal_add(j, 0, &one));
    journal_close(j);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_in("results.jsonl", bad[i].line);
        assert_fails(results_read(&r, dir), ST_INVAL, bad[i].why);
    }
    // equal lines count once, a last line without its end not at all
    write_in("results.jsonl",
             "{\"task\": \"suite/0\", \"episode\": 1, \"seed\": 7, \"length\": 1, \"outcome\": "
             "\"success\"}\n{\"task\": \"suite/0\", \"episode\": 1, \"seed\": 7, \"length\": 1, "
             "\"outcome\": \"success\"}\n{\"task\": \"suite/0\", \"epi");
    assert_ok(results_read(&r, dir));
    assert_int_equal(r.n, 1);
    results_fini(&r);
    // a verdict counts before an error, which was tried again; of two errors the further one
    write_in(
        "results.jsonl",
        "{\"task\": \"suite/0\", \"episode\": 1, \"seed\": 7, \"length\": 9, \"outcome\": "
        "\"error\", \"error\": \"lost\"}\n{\"task\": \"suite/0\", \"episode\": 1, \"seed\": 7, "
        "\"length\": 1, \"outcome\": \"failure\"}\n{\"task\": \"suite/0\", \"episode\": 0, "
        "\"seed\": 7, \"length\": 2, \"outcome\": \"error\", \"error\": \"lost\"}\n{\"task\": "
        "\"suite/0\", \"episode\": 0, \"seed\": 7, \"length\": 3, \"outcome\": \"error\"}\n");
    assert_ok(results_read(&r, dir));
    assert_int_equal(r.n, 2);
    assert_true(r.rows[0].r.outcome == OUTCOME_ERROR && r.rows[0].r.length == 3);
    assert_true(r.rows[1].r.outcome == OUTCOME_FAILURE);
    results_fini(&r);
    write_in("tasks.jsonl", "{\"task\": \"suite/0\", \"episodes\": 0}\n");
    assert_fails(results_read(&r, dir), ST_INVAL, "expected a task and its number of episodes");
}

static void summary_and_page_say_what_happened(void **state)
{
    struct summary_about about = {.dir = dir, .wall_s = 12.5, .wanted = 10, .fail_below = 0.9};
    struct evaluator_summary all;
    struct results *results;
    struct journal *j;

    (void)state;
    j = open_journal(false);
    play(j, true);
    assert_ok(journal_finish(j, &results));
    assert_int_equal(mkdir(in("videos"), 0777), 0);
    assert_int_equal(mkdir(in("videos/suite_0"), 0777), 0);
    write_in("videos/suite_0/eval_episode_1.mp4", "film");
    assert_ok(summary_write(results, &about, &all));
    assert_ok(html_write(results, &about));
    journal_close(j);
    assert_true(all.successes == 6 && all.episodes == 8 && all.errors == 1 && !all.complete);
    assert_file_has("summary.json", "{\"complete\": false, \"episodes\": {\"wanted\": 10, "
                                    "\"done\": 8, \"errors\": 1}, ");
    assert_file_has("summary.json",
                    "\"metrics\": {\"sum_rewards\": [1, 0, 1, 0], \"max_rewards\": [1, 0, 1, 0], "
                    "\"successes\": [true, false, true, false], \"video_paths\": "
                    "[\"videos/suite_0/eval_episode_1.mp4\"]}, \"n_episodes\": 4, "
                    "\"n_success\": 2, \"pc_success\": 50, ");
    assert_file_has("summary.json", "\"per_group\": {\"suite\": {\"avg_sum_reward\": 0.75, "
                                    "\"avg_max_reward\": 0.75, \"n_episodes\": 8, ");
    assert_file_has("summary.json", "\"eval_s\": 12.5, \"eval_ep_s\": 1.5625}");
    assert_file_has("summary.json", "\"settings\": {\"seed\": 7}");
    assert_file_has("junit.xml", "tests=\"3\" failures=\"1\" errors=\"2\"");
    assert_file_has("junit.xml", "<error message=\"4 of 5 episodes have a result\"/>");
    assert_file_has("junit.xml", "<error message=\"1 episodes ended by an error\"/>");
    assert_file_has("junit.xml", "<failure message=\"6 of 8 succeeded, 0.9 was wanted\"/>");
    assert_file_has("junit.xml", "do &lt;/script> &quot;it&quot; &amp; so: 4 of 4, 100.0 %");
    // nothing in the data ends the script element
    assert_file_has("report.html", "do \\u003c/script> \\\"it\\\" & so");
    assert_file_has("report.html", "[0, 1, \"failure\", 11, 0, 1, "
                                   "\"videos/suite_0/eval_episode_1.mp4\", null]");
    assert_file_has("report.html",
                    "[1, 4, \"error\", 0, null, -1, null, \"the server fell over\"]");
}

static void compare_pairs_item_by_item(void **state)
{
    struct results a = {0}, b = {0}, none = {0};
    struct comparison c;
    struct journal *j;
    char cmd[160];

    (void)state;
    j = open_journal(false);
    play(j, false);
    journal_close(j);
    assert_ok(results_read(&a, dir));
    snprintf(cmd, sizeof cmd, "rm '%s/results.jsonl'", dir);
    assert_int_equal(system(cmd), 0);
    j = open_journal(false);
    play(j, true);
    journal_close(j);
    assert_ok(results_read(&b, dir));
    b.n -= 2; // the error, and episode 3 of the second task
    assert_ok(compare_make(&c, &a, &b));
    assert_int_equal(c.all.n, 7);
    assert_true(c.all.both == 4 && c.all.only_a == 0 && c.all.only_b == 1 && c.all.neither == 2);
    assert_true(c.tasks[0].n == 4 && c.tasks[0].only_b == 0 && c.tasks[1].n == 3);
    assert_close(c.all.difference.rate, 1.0 / 7, 1e-15, 0);
    assert_close(c.all.returns.mean, 1.0 / 7, 1e-15, 0);
    assert_close(c.all.p, 1, 1e-12, 0);
    assert_true(c.unpaired_a == 1 && c.unpaired_b == 0 && c.n_flip == 1);
    assert_int_equal(a.rows[c.flips[0].a].r.episode, 1);
    compare_fini(&c);
    assert_fails(compare_make(&c, &a, &none), ST_INVAL, "no item in common");
    results_fini(&a);
    results_fini(&b);
}

// From FIPS 180-2's examples.
static void sha256_matches_the_standard(void **state)
{
    char hash[SHA256_TEXT];

    (void)state;
    write_in("abc", "abc");
    assert_ok(sha256_file(in("abc"), hash));
    assert_string_equal(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    write_in("abc", "");
    assert_ok(sha256_file(in("abc"), hash));
    assert_string_equal(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_fails(sha256_file(in("none"), hash), ST_MISSING, "none");
}

#define results_test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        results_test(journal_keeps_what_came_and_resumes),
        results_test(journal_leaves_nothing_without_a_result),
        results_test(results_read_names_what_is_wrong),
        results_test(summary_and_page_say_what_happened),
        results_test(compare_pairs_item_by_item),
        results_test(sha256_matches_the_standard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
