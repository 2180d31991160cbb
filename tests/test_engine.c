// The engine's errors and warnings: caught per thread, never printed, never written to a file.
#include "tests/testing.h"

#include "common/base/log.h"
#include "scenes/engine.h"

#include <fcntl.h>
#include <mujoco/mujoco.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_THREAD 2
#define N_ERROR  100

static const char pendulum[] = "<mujoco><worldbody><body><joint type='hinge' axis='0 1 0'/>"
                               "<geom type='capsule' size='.05' fromto='0 0 0 .3 0 0'/></body>"
                               "</worldbody></mujoco>";

// A model from text, through a file in the working directory (the tests run in a scratch folder).
static mjModel *load(const char *xml, char *error, int size)
{
    FILE *f = fopen("model.xml", "w");
    struct engine_trap trap;
    mjModel *m;

    assert_non_null(f);
    assert_true(fputs(xml, f) >= 0);
    assert_int_equal(fclose(f), 0);
    if (!ENGINE_TRY(&trap))
        fail_msg("loading a model jumped: %s", trap.text);
    m = mj_loadXML("model.xml", NULL, error, size);
    engine_end(&trap);
    return m;
}

struct worker {
    pthread_t thread;
    int id, caught, wrong;
};

static void *provoke(void *arg)
{
    struct worker *w = arg;
    struct engine_trap trap;
    char want[64];
    volatile int i;

    for (i = 0; i < N_ERROR; i++) {
        snprintf(want, sizeof want, "error %d of thread %d", i, w->id);
        if (ENGINE_TRY(&trap)) {
            mju_error("error %d of thread %d", i, w->id);
            engine_end(&trap); // not reached
        } else {
            w->caught++;
            w->wrong += strstr(trap.text, want) == NULL;
        }
    }
    return NULL;
}

static void errors_come_back_to_the_thread_that_made_them(void **state)
{
    struct worker w[N_THREAD] = {0};
    int i;

    (void)state;
    for (i = 0; i < N_THREAD; i++) {
        w[i].id = i;
        assert_int_equal(pthread_create(&w[i].thread, NULL, provoke, &w[i]), 0);
    }
    for (i = 0; i < N_THREAD; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        assert_int_equal(w[i].caught, N_ERROR);
        assert_int_equal(w[i].wrong, 0);
    }
}

static void a_long_error_text_is_cut(void **state)
{
    struct engine_trap trap;
    char text[600];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    if (ENGINE_TRY(&trap)) {
        mju_error("%s", text);
        fail_msg("the engine returned from an error");
    }
    assert_int_equal(strlen(trap.text), sizeof trap.text - 1);
}

static void step(const mjModel *m, mjData *d, int n, double *qpos)
{
    struct engine_trap trap;
    int i;

    if (!ENGINE_TRY(&trap))
        fail_msg("stepping failed: %s", trap.text);
    for (i = 0; i < n; i++)
        mj_step(m, d);
    engine_end(&trap);
    *qpos = d->qpos[0];
}

static void a_world_is_usable_after_an_error_and_a_reset(void **state)
{
    char error[256] = "";
    struct engine_trap trap;
    mjModel *m = load(pendulum, error, sizeof error);
    mjData *d;
    double before, after;

    (void)state;
    if (!m)
        fail_msg("%s", error);
    d = mj_makeData(m);
    assert_non_null(d);
    step(m, d, 100, &before);
    assert_true(fabs(before) > 0.01);
    if (ENGINE_TRY(&trap)) {
        (void)mj_stackAllocNum(d, (size_t)1 << 40); // more than the world's memory
        fail_msg("the engine gave memory that it does not have");
    }
    assert_true(strlen(trap.text) > 0);
    mj_resetData(m, d);
    step(m, d, 100, &after);
    assert_true(before == after);
    mj_deleteData(d);
    mj_deleteModel(m);
}

static void a_bad_model_is_a_message_not_a_jump(void **state)
{
    static const char *const bad[] = {
        "",
        "no xml at all",
        "<mujoco><worldbody>",
        "<mujoco><nonsense/></mujoco>",
        "<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>", // no mass
        "<mujoco><worldbody><geom type='mesh' mesh='absent'/></worldbody></mujoco>",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char error[256] = "";

        assert_null(load(bad[i], error, sizeof error));
        assert_true(strlen(error) > 0);
    }
}

struct lines {
    int n[LOG_DEBUG + 1];
    char last[256];
};

static void count_line(enum log_level level, const char *line, void *arg)
{
    struct lines *l = arg;

    l->n[level]++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

static void the_first_warning_of_a_kind_is_logged_the_others_counted(void **state)
{
    struct lines lines = {0};
    long long before = engine_warnings();
    int i;

    (void)state;
    log_set_sink(count_line, &lines);
    log_set_level(LOG_DEBUG);
    for (i = 0; i < 10; i++)
        mju_warning("apples: %d at time %.3f", i, 0.5 * i);
    assert_int_equal(lines.n[LOG_WARN], 1);
    mju_warning("pears: 3");
    log_set_level(LOG_INFO);
    log_set_sink(NULL, NULL);
    assert_int_equal(lines.n[LOG_WARN], 2);
    assert_int_equal(lines.n[LOG_DEBUG], 9);
    assert_non_null(strstr(lines.last, "pears: 3"));
    assert_true(engine_warnings() - before == 11);
}

// What a process does whose stdout and stderr are files: errors, warnings, a model with a warning.
static void make_noise(void)
{
    static const char heavy[] = "<mujoco><compiler settotalmass='14'/><worldbody><body><freejoint/>"
                                "<geom size='.1'/></body></worldbody></mujoco>";
    struct worker w = {.id = 7};
    char error[256];

    log_set_sink(count_line, &(struct lines){0});
    provoke(&w);
    mju_warning("not for the console");
    mj_deleteModel(load(heavy, error, sizeof error));
    fflush(NULL);
    _exit(w.caught == N_ERROR && w.wrong == 0 ? 0 : 1);
}

static long long file_size(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (long long)st.st_size : -1;
}

static void redirect(int fd, const char *path)
{
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (to < 0 || dup2(to, fd) != fd)
        _exit(99);
}

// Run fn in a child process with its output in files; its wait status.
static int in_child(void (*fn)(void))
{
    int status = -1;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0, 0};

        (void)setrlimit(RLIMIT_CORE, &none);
        redirect(STDOUT_FILENO, "stdout.txt");
        redirect(STDERR_FILENO, "stderr.txt");
        fn();
        _exit(98);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void nothing_is_printed_or_written(void **state)
{
    int status = in_child(make_noise);

    (void)state;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(file_size("stdout.txt"), 0);
    assert_int_equal(file_size("stderr.txt"), 0);
    assert_int_equal(file_size("MUJOCO_LOG.TXT"), -1);
}

static void error_outside(void)
{
    mju_error("nobody waits for this");
}

static void an_error_outside_of_a_trap_aborts_with_its_text(void **state)
{
    int status = in_child(error_outside);
    char text[512] = "";
    FILE *f = fopen("stderr.txt", "r");

    (void)state;
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "nobody waits for this"));
    assert_int_equal(file_size("MUJOCO_LOG.TXT"), -1);
}

static char scratch[] = "/tmp/test_engine.XXXXXX";

static int enter_scratch(void **state)
{
    (void)state;
    engine_init();
    engine_init(); // once is enough, twice is fine
    return mkdtemp(scratch) && chdir(scratch) == 0 ? 0 : -1;
}

static int leave_scratch(void **state)
{
    (void)state;
    (void)unlink("model.xml");
    (void)unlink("stdout.txt");
    (void)unlink("stderr.txt");
    return chdir("/") == 0 && rmdir(scratch) == 0 ? 0 : -1; // fails if another file was written
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(errors_come_back_to_the_thread_that_made_them),
        leak_test(a_long_error_text_is_cut),
        leak_test(a_world_is_usable_after_an_error_and_a_reset),
        leak_test(a_bad_model_is_a_message_not_a_jump),
        leak_test(the_first_warning_of_a_kind_is_logged_the_others_counted),
        leak_test(nothing_is_printed_or_written),
        leak_test(an_error_outside_of_a_trap_aborts_with_its_text),
    };

    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
