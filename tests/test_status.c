#include "tests/testing.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static enum status refuse(int value)
{
    return FAIL(ST_INVAL, "value %d is refused", value);
}

static enum status forward(int value, bool *went_on)
{
    TRY(refuse(value));
    *went_on = true;
    return ST_OK;
}

static void a_failure_leaves_code_place_and_text(void **state)
{
    (void)state;
    assert_int_equal(refuse(7), ST_INVAL);
    assert_int_equal(error_last()->code, ST_INVAL);
    assert_int_equal(error_last()->sys, 0);
    assert_string_equal(error_last()->text, "value 7 is refused");
    assert_non_null(strstr(error_last()->file, "test_status.c"));
    assert_true(error_last()->line > 0);
}

static void try_returns_the_failure_at_once(void **state)
{
    bool went_on = false;

    (void)state;
    assert_int_equal(forward(3, &went_on), ST_INVAL);
    assert_false(went_on);
}

static void a_system_code_is_explained(void **state)
{
    (void)state;
    assert_int_equal(FAIL_SYS(ST_IO, ENOENT, "cannot open '%s'", "x"), ST_IO);
    assert_int_equal(error_last()->sys, ENOENT);
    assert_string_equal(error_last()->text, "cannot open 'x': No such file or directory");
}

static void prefixes_add_up(void **state)
{
    (void)state;
    (void)refuse(1);
    assert_int_equal(error_prefix("item %d", 4), ST_INVAL);
    assert_int_equal(error_prefix("file '%s'", "a"), ST_INVAL);
    assert_string_equal(error_last()->text, "file 'a': item 4: value 1 is refused");
}

static void the_old_text_may_be_part_of_the_new(void **state)
{
    (void)state;
    (void)refuse(1);
    (void)FAIL(ST_PROTO, "peer: %s", error_last()->text);
    assert_string_equal(error_last()->text, "peer: value 1 is refused");
    assert_int_equal(error_last()->code, ST_PROTO);
}

static void long_texts_are_cut(void **state)
{
    char text[2000];

    (void)state;
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    (void)FAIL_SYS(ST_IO, ENOENT, "%s", text);
    assert_int_equal(strlen(error_last()->text), sizeof error_last()->text - 1);
    assert_int_equal(error_prefix("%s", text), ST_IO);
    assert_int_equal(strlen(error_last()->text), sizeof error_last()->text - 1);
    assert_int_equal(error_prefix("short"), ST_IO);
    assert_memory_equal(error_last()->text, "short: xxx", 10);
    assert_int_equal(strlen(error_last()->text), sizeof error_last()->text - 1);
}

static void *fail_elsewhere(void *arg)
{
    *(bool *)arg = error_last()->code == ST_OK && error_last()->text[0] == '\0';
    (void)refuse(99);
    return NULL;
}

static void errors_belong_to_their_thread(void **state)
{
    pthread_t thread;
    bool clean = false;

    (void)state;
    (void)refuse(5);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &clean), 0);
    pthread_join(thread, NULL);
    assert_true(clean);
    assert_string_equal(error_last()->text, "value 5 is refused");
}

static void an_error_can_be_adopted(void **state)
{
    struct error e;

    (void)state;
    (void)refuse(8);
    e = *error_last();
    (void)FAIL(ST_IO, "something else");
    assert_int_equal(error_adopt(&e), ST_INVAL);
    assert_string_equal(error_last()->text, "value 8 is refused");
}

static void every_code_has_a_name_of_its_own(void **state)
{
    int a, b;

    (void)state;
    for (a = ST_OK; a <= ST_MISSING; a++)
        for (b = ST_OK; b < a; b++)
            assert_string_not_equal(status_name((enum status)a), status_name((enum status)b));
    assert_string_equal(status_name(ST_TIMEOUT), "timeout");
    assert_string_equal(status_name((enum status)1000), "unknown");
}

static void panic_aborts_with_a_text(void **state)
{
    char text[256] = "";
    int ends[2], status;
    ssize_t n;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], 2);
        signal(SIGABRT, SIG_DFL);
        panic("row %d is lost", 3);
    }
    close(ends[1]);
    n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(n > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "bug"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(a_failure_leaves_code_place_and_text), leak_test(try_returns_the_failure_at_once),
        leak_test(a_system_code_is_explained),           leak_test(prefixes_add_up),
        leak_test(the_old_text_may_be_part_of_the_new),  leak_test(long_texts_are_cut),
        leak_test(errors_belong_to_their_thread),        leak_test(an_error_can_be_adopted),
        leak_test(every_code_has_a_name_of_its_own),     leak_test(panic_aborts_with_a_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
