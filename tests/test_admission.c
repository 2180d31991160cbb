#include "learner/admission.h"

#include "tests/testing.h"

static void a_synchronous_worker_gets_one_chunk_per_version(void **state)
{
    struct admission a;

    (void)state;
    assert_ok(admission_init(&a, 2, 10, 0, 5));
    assert_int_equal(admission_limit(&a, 5), 10);
    assert_int_equal(admission_limit(&a, 6), 20);
    assert_int_equal(admission_open(&a, 5), 20);
    admission_count(&a, 0, false);
    assert_int_equal(admission_open(&a, 5), 10);
    admission_count(&a, 1, false);
    assert_int_equal(admission_open(&a, 5), 0);
    admission_fini(&a);
}

static void staleness_lets_it_run_ahead(void **state)
{
    struct admission a;

    (void)state;
    assert_ok(admission_init(&a, 1, 10, 3, 0));
    assert_int_equal(admission_limit(&a, 0), 40);
    assert_int_equal(admission_limit(&a, 2), 60);
    admission_fini(&a);
}

static void dropped_chunks_come_back(void **state)
{
    struct admission a;

    (void)state;
    assert_ok(admission_init(&a, 2, 10, 1, 0));
    admission_count(&a, 0, true);
    assert_int_equal(admission_limit(&a, 0), 20);
    admission_count(&a, 0, true);
    assert_int_equal(admission_limit(&a, 0), 30);
    admission_lose(&a, 1); // two drops are two chunks for the env that is left
    assert_int_equal(admission_limit(&a, 0), 40);
    admission_fini(&a);
}

static void lost_envs_send_nothing_more(void **state)
{
    struct admission a;

    (void)state;
    assert_ok(admission_init(&a, 3, 10, 0, 0));
    admission_lose(&a, 1);
    admission_lose(&a, 1);
    assert_int_equal(a.n_left, 2);
    assert_int_equal(admission_open(&a, 0), 20);
    admission_count(&a, 1, false); // was on its way
    assert_int_equal(admission_open(&a, 0), 20);
    admission_grant(&a);
    assert_int_equal(admission_open(&a, 0), 40);
    admission_fini(&a);
}

static void returned_envs_count_from_where_they_say(void **state)
{
    struct admission a;

    (void)state;
    assert_ok(admission_init(&a, 3, 10, 0, 0));
    admission_return(&a, 0, 7); // it never was away
    admission_lose(&a, 1);
    assert_int_equal(admission_open(&a, 4), 100);
    admission_return(&a, 1, 4);
    assert_int_equal(a.n_left, 3);
    assert_int_equal(admission_open(&a, 4), 110);
    admission_count(&a, 1, false);
    assert_int_equal(admission_open(&a, 4), 100);
    admission_fini(&a);
}

static void a_window_may_be_several_chunks_of_each_env(void **state)
{
    struct admission a;

    (void)state;
    assert_ok(admission_init(&a, 2, 1, 1, 3));
    a.rounds = 4;
    assert_int_equal(admission_limit(&a, 3), 8); // this window's and the next one's
    assert_int_equal(admission_limit(&a, 5), 16);
    admission_grant(&a);
    assert_int_equal(admission_limit(&a, 5), 17);
    admission_fini(&a);
}

static void lag_counts_versions(void **state)
{
    (void)state;
    assert_int_equal(admission_lag(7, 5), 2);
    assert_int_equal(admission_lag(5, 5), 0);
    assert_int_equal(admission_lag(5, 7), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(a_synchronous_worker_gets_one_chunk_per_version),
        leak_test(staleness_lets_it_run_ahead),
        leak_test(dropped_chunks_come_back),
        leak_test(lost_envs_send_nothing_more),
        leak_test(returned_envs_count_from_where_they_say),
        leak_test(a_window_may_be_several_chunks_of_each_env),
        leak_test(lag_counts_versions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
