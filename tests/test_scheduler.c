#include "rollout/scheduler.h"

#include "tests/testing.h"

#define MS 1000000

static struct scheduler *make(int n_env, bool barrier, int b_max, int64_t t_max_ns, uint64_t limit)
{
    struct scheduler *s = NULL;

    assert_ok(scheduler_create(&s, n_env, barrier, b_max, t_max_ns));
    scheduler_admit(s, limit, 0);
    return s;
}

static void the_barrier_waits_for_all_and_keeps_their_order(void **state)
{
    struct scheduler *s = make(3, true, 1, 0, 10);
    int env[3];

    (void)state;
    scheduler_arrive(s, 2, 0, 0);
    scheduler_arrive(s, 0, 0, 1);
    assert_int_equal(scheduler_take(s, env, 99 * MS), 0);
    assert_true(scheduler_due_ns(s, 99 * MS) == INT64_MAX);
    scheduler_arrive(s, 1, 0, 2);
    assert_int_equal(scheduler_take(s, env, 3), 3);
    assert_int_equal(env[0], 0);
    assert_int_equal(env[1], 1);
    assert_int_equal(env[2], 2);
    assert_int_equal(scheduler_take(s, env, 4), 0);
    scheduler_destroy(s);
}

static void a_batch_leaves_full_or_at_the_deadline_of_its_oldest(void **state)
{
    struct scheduler *s = make(5, false, 2, 5 * MS, 10);
    int env[5];

    (void)state;
    scheduler_arrive(s, 4, 0, 10 * MS);
    assert_int_equal(scheduler_take(s, env, 14 * MS), 0);
    assert_true(scheduler_due_ns(s, 14 * MS) == 1 * MS);
    assert_int_equal(scheduler_take(s, env, 15 * MS), 1);
    assert_int_equal(env[0], 4);
    scheduler_arrive(s, 3, 0, 20 * MS);
    scheduler_arrive(s, 1, 0, 20 * MS);
    scheduler_arrive(s, 2, 0, 21 * MS);
    assert_int_equal(scheduler_take(s, env, 21 * MS), 2);
    assert_int_equal(env[0], 3);
    assert_int_equal(env[1], 1);
    assert_true(scheduler_due_ns(s, 22 * MS) == 4 * MS); // of env 2, since 21
    scheduler_destroy(s);
}

static void nothing_in_flight_means_nothing_to_wait_for(void **state)
{
    struct scheduler *s = make(2, false, 2, 1000 * MS, 10);
    int env[2];

    (void)state;
    scheduler_arrive(s, 0, 0, 0);
    assert_int_equal(scheduler_take(s, env, 0), 0);
    scheduler_arrive(s, 1, 10, 0); // has used up what is admitted
    assert_int_equal(scheduler_take(s, env, 0), 1);
    assert_int_equal(env[0], 0);
    scheduler_destroy(s);
}

static void parked_envs_wake_when_more_is_admitted(void **state)
{
    struct scheduler *s = make(2, true, 1, 0, 4);
    int env[2];

    (void)state;
    scheduler_arrive(s, 0, 4, 0);
    scheduler_arrive(s, 1, 4, 0);
    assert_int_equal(scheduler_take(s, env, 0), 0);
    scheduler_admit(s, 4, 0);
    assert_int_equal(scheduler_take(s, env, 0), 0);
    scheduler_admit(s, 8, 0);
    assert_int_equal(scheduler_take(s, env, 0), 2);
    scheduler_destroy(s);
}

static void a_lost_env_is_waited_for_no_more(void **state)
{
    struct scheduler *s = make(3, true, 1, 0, 10);
    int env[3];

    (void)state;
    scheduler_arrive(s, 0, 0, 0);
    scheduler_arrive(s, 2, 0, 0);
    scheduler_remove(s, 1); // running
    scheduler_remove(s, 0); // ready
    scheduler_remove(s, 0);
    assert_int_equal(scheduler_take(s, env, 0), 1);
    assert_int_equal(env[0], 2);
    scheduler_return(s, 1); // waited for again
    scheduler_arrive(s, 2, 1, 0);
    assert_int_equal(scheduler_take(s, env, 0), 0);
    scheduler_arrive(s, 1, 1, 0);
    assert_int_equal(scheduler_take(s, env, 0), 2);
    assert_int_equal(env[0], 1);
    // and not held up by one that may not go on
    scheduler_arrive(s, 1, 2, 0);
    scheduler_arrive(s, 2, 10, 0);
    assert_int_equal(scheduler_take(s, env, 0), 1);
    assert_int_equal(env[0], 1);
    scheduler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(the_barrier_waits_for_all_and_keeps_their_order),
        leak_test(a_batch_leaves_full_or_at_the_deadline_of_its_oldest),
        leak_test(nothing_in_flight_means_nothing_to_wait_for),
        leak_test(parked_envs_wake_when_more_is_admitted),
        leak_test(a_lost_env_is_waited_for_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
