#include "learner/rl_window.h"

#include "tests/testing.h"

#include <limits.h>
#include <stdio.h>

static char dir[64];

static int make_dir(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/simstream-window-XXXXXX");
    return mkdtemp(dir) ? leak_setup(state) : -1;
}

static int remove_dir(void **state)
{
    char cmd[128];

    snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
    return system(cmd) == 0 ? leak_teardown(state) : -1;
}

static void note(struct rl_window *w, const char *task, double score, uint32_t flags)
{
    const struct episode_head h = {.score = score, .n_sub = 10, .flags = flags};

    assert_ok(rl_window_note(w, task, &h, 0));
}

// The metrics that the window gives, with those of the windows written before it in front.
static char written[16384];

static void write_window(const struct rl_window *w)
{
    static const struct groups_count groups;
    const struct rl_stats stats = {0};
    const struct train_progress done = {0};
    const struct serve_report serve = {0};
    char path[PATH_MAX];
    struct metrics *m;
    FILE *f;

    assert_ok(metrics_open(&m, dir));
    assert_ok(rl_window_write(
        w, &(struct rl_report){.stats = &stats, .done = &done, .groups = &groups, .serve = &serve},
        m));
    metrics_close(m);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    f = fopen(path, "rb");
    assert_non_null(f);
    written[fread(written, 1, sizeof written - 1, f)] = 0;
    fclose(f);
}

static void assert_written(const char *text)
{
    if (!strstr(written, text))
        fail_msg("'%s' is not in %s", text, written);
}

static void each_task_has_its_own_numbers(void **state)
{
    const struct groups_count groups = {0};
    struct rl_window w = {0};

    (void)state;
    rl_window_open(&w, &groups);
    for (int i = 0; i < 4; i++) {
        note(&w, "suite/1", i < 3, i < 3 ? EPISODE_SUCCESS : 0);
        note(&w, "suite/5", i < 1, i < 1 ? EPISODE_SUCCESS : 0);
    }
    note(&w, "suite/5", 0, EPISODE_ERROR); // played, but no failure of the policy
    note(&w, "", 1, EPISODE_SUCCESS);      // of a worker that is gone
    rl_window_keep(&w, "suite/5", 1);
    rl_window_keep(&w, "suite/5", 0);
    rl_window_keep(&w, "", 1);
    write_window(&w);
    assert_written("\"train/window_played\": 10,");
    assert_written("\"train/window_kept\": 3,");
    assert_written("\"task/suite/1/success\": 0.75,");
    assert_written("\"task/suite/1/played\": 4,");
    assert_written("\"task/suite/1/kept\": 0,");
    assert_written("\"task/suite/5/success\": 0.25,");
    assert_written("\"task/suite/5/played\": 4,");
    assert_written("\"task/suite/5/kept\": 2");
    rl_window_fini(&w);
}

static void a_new_window_counts_anew(void **state)
{
    const struct groups_count groups = {0};
    struct rl_window w = {0};

    (void)state;
    rl_window_open(&w, &groups);
    note(&w, "suite/1", 1, EPISODE_SUCCESS);
    note(&w, "suite/5", 1, EPISODE_SUCCESS);
    rl_window_keep(&w, "suite/1", 1);
    rl_window_open(&w, &groups);
    note(&w, "suite/1", 0, 0);
    write_window(&w);
    assert_written("\"task/suite/1/success\": 0,");
    assert_written("\"task/suite/1/played\": 1,");
    assert_written("\"task/suite/1/kept\": 0,");
    assert_written("\"task/suite/5/played\": 0,"); // and no rate
    assert_null(strstr(written, "task/suite/5/success"));
    rl_window_fini(&w);
}

static void one_task_needs_no_numbers_of_its_own(void **state)
{
    const struct groups_count groups = {0};
    struct rl_window w = {0};

    (void)state;
    rl_window_open(&w, &groups);
    note(&w, "suite/1", 1, EPISODE_SUCCESS);
    write_window(&w);
    assert_written("\"train/success\": 1,");
    assert_null(strstr(written, "\"task/"));
    rl_window_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_task_has_its_own_numbers, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_new_window_counts_anew, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(one_task_needs_no_numbers_of_its_own, make_dir, remove_dir),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
