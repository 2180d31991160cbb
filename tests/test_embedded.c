// Env server and rollout worker of one process.
#include "cli/embedded.h"

#include "common/wire/link.h"
#include "tests/testing.h"

#include <stdio.h>

#define LEARNER "inproc://test-embedded-learner"

static void start(struct embedded *e)
{
    struct pool_config pool = {
        .task = "InvertedPendulum-v5", .kwargs = "", .n_env = 2, .n_thread = 1};

    memset(e, 0, sizeof *e);
    assert_ok(embedded_serve(e, &pool, 2, NS_PER_MS, e->rollout.env, sizeof e->rollout.env));
    snprintf(e->rollout.learner, sizeof e->rollout.learner, LEARNER);
    e->rollout.horizon = 4;
    assert_ok(embedded_rollout(e));
}

// The learner of this process listens late, when all models are compiled and its policy is read.
static void waits_for_learner(void **state)
{
    struct embedded e;
    struct listener *listener;
    struct link *link;
    struct msg *join;

    (void)state;
    start(&e);
    // a worker that gives up does so while nobody listens yet
    for (int i = 0; i < 40; i++) {
        assert_false(atomic_load(&e.ended));
        clock_sleep_ns(10 * NS_PER_MS);
    }
    assert_ok(listener_open(&listener, LEARNER, 1 << 20));
    assert_ok(listener_accept(listener, &link, ENOUGH));
    assert_ok(link_recv(link, &join, ENOUGH));
    msg_free(join);
    assert_ok(embedded_finish(&e));
    link_close(link);
    listener_close(listener);
    link_destroy(link);
    listener_destroy(listener);
}

// Nobody comes: it ends when it is told to, without a failure.
static void stops_while_waiting(void **state)
{
    struct embedded e;

    (void)state;
    start(&e);
    assert_ok(embedded_finish(&e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_while_waiting),
        cmocka_unit_test(waits_for_learner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
