#define _GNU_SOURCE
#include "common/base/thread.h"

#include "tests/testing.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

static void the_clock_goes_forward(void **state)
{
    int64_t a = clock_now_ns(), b;

    (void)state;
    clock_sleep_ns(NS_PER_MS);
    b = clock_now_ns();
    assert_true(b - a >= NS_PER_MS);
    clock_sleep_ns(0);
    clock_sleep_ns(-NS_PER_S);
    assert_true(clock_wall_s() > 1.6e9);
}

static void deadlines_do_not_overflow(void **state)
{
    int64_t now = clock_now_ns(), at = deadline_after(NS_PER_S);

    (void)state;
    assert_true(at >= now + NS_PER_S && at <= clock_now_ns() + NS_PER_S);
    assert_true(deadline_after(WAIT_NEVER) == WAIT_NEVER);
    assert_true(deadline_after(WAIT_NEVER - 1) == WAIT_NEVER);
}

static void a_condition_wait_ends_at_its_deadline(void **state)
{
    pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    int64_t deadline = deadline_after(3 * NS_PER_MS);

    (void)state;
    cond_init(&cond);
    pthread_mutex_lock(&mtx);
    while (cond_wait_until(&cond, &mtx, deadline)) // a wake-up without a signal is allowed
        ;
    assert_true(clock_now_ns() >= deadline);
    assert_false(cond_wait_until(&cond, &mtx, 0));
    assert_false(cond_wait_until(&cond, &mtx, -5));
    pthread_mutex_unlock(&mtx);
    pthread_cond_destroy(&cond);
}

struct seen {
    bool blocked;
};

static void *look_around(void *arg)
{
    struct seen *seen = arg;
    sigset_t set;

    pthread_sigmask(SIG_BLOCK, NULL, &set);
    seen->blocked = sigismember(&set, SIGINT) == 1 && sigismember(&set, SIGTERM) == 1;
    return NULL;
}

static void threads_leave_signals_to_the_main_thread(void **state)
{
    struct seen seen = {0};
    pthread_t thread;
    sigset_t before, after;

    (void)state;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    assert_ok(thread_start(&thread, "looks-around", look_around, &seen));
    pthread_join(thread, NULL);
    assert_true(seen.blocked);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int sig = 1; sig < 32; sig++)
        assert_int_equal(sigismember(&after, sig), sigismember(&before, sig));
}

static void the_cpus_follow_the_affinity_mask(void **state)
{
    cpu_set_t all, one;
    int first = 0, n = thread_cpus();

    (void)state;
    assert_true(n >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_true(n <= CPU_COUNT(&all));
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(thread_cpus(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

struct work {
    atomic_int calls[8];
    int n_thread[8];
    pthread_t thread[8];
};

static void do_work(void *arg, int i_thread, int n_thread)
{
    struct work *work = arg;

    atomic_fetch_add(&work->calls[i_thread], 1);
    work->n_thread[i_thread] = n_thread;
    work->thread[i_thread] = pthread_self();
}

static void a_team_runs_every_seat_once_a_round(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n += 3) {
        struct work work = {0};
        struct team *team;

        assert_ok(team_create(&team, n));
        assert_int_equal(team_size(team), n);
        for (int round = 0; round < 300; round++) {
            team_run(team, do_work, &work);
            for (int i = 0; i < 8; i++)
                assert_int_equal(atomic_load(&work.calls[i]), i < n ? round + 1 : 0);
        }
        assert_true(pthread_equal(work.thread[0], pthread_self()));
        for (int i = 0; i < n; i++)
            assert_int_equal(work.n_thread[i], n);
        team_destroy(team);
    }
    team_destroy(NULL);
}

#define CELLS 4096

struct cells {
    int values[CELLS];
};

static void fill(void *arg, int i_thread, int n_thread)
{
    struct cells *c = arg;

    for (int i = i_thread; i < CELLS; i += n_thread)
        c->values[i]++;
}

static void rounds_hand_their_writes_on(void **state)
{
    static struct cells cells;
    struct team *team;

    (void)state;
    assert_ok(team_create(&team, 4));
    for (int round = 0; round < 50; round++) {
        team_run(team, fill, &cells);
        for (int i = 0; i < CELLS; i++)
            assert_int_equal(cells.values[i], round + 1);
    }
    team_destroy(team);
}

static void bad_teams_are_refused(void **state)
{
    struct team *team = NULL;

    (void)state;
    assert_fails(team_create(&team, 0), ST_INVAL, "1..1024");
    assert_fails(team_create(&team, 1025), ST_INVAL, "1..1024");
    assert_null(team);
    for (int64_t n = 0;; n++) {
        enum status st;

        mem_fail_after(n);
        st = team_create(&team, 2);
        mem_fail_after(-1);
        if (st == ST_OK) {
            assert_true(n > 0);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(team);
    }
    team_destroy(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(the_clock_goes_forward),
        leak_test(deadlines_do_not_overflow),
        leak_test(a_condition_wait_ends_at_its_deadline),
        leak_test(threads_leave_signals_to_the_main_thread),
        leak_test(the_cpus_follow_the_affinity_mask),
        leak_test(a_team_runs_every_seat_once_a_round),
        leak_test(rounds_hand_their_writes_on),
        leak_test(bad_teams_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
