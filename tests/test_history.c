#include "rollout/history.h"

#include "tests/wire_samples.h"

static void play(struct history *h, int env, float action)
{
    const float a[2] = {action, -action};

    assert_ok(history_act(h, env, a));
    history_executed(h, env);
}

static void another_worker_replays_what_was_executed(void **state)
{
    struct history *a, *b;
    struct msg *m;
    int i;

    (void)state;
    assert_ok(history_create(&a, 2, 2));
    assert_ok(history_create(&b, 2, 2));
    history_begin(a, 1, 6);
    for (i = 0; i < 700; i++) // more than the first block
        play(a, 1, (float)i);
    history_begin(a, 1, 7); // forgets episode 6
    for (i = 0; i < 300; i++)
        play(a, 1, (float)i / 8);
    assert_ok(history_act(a, 1, (const float[2]){9, 9})); // on its way: not executed
    assert_ok(history_write(a, 4, &m));
    assert_ok(history_read(b, 4, m));
    msg_free(m);
    assert_null(history_replay(b, 0));
    assert_int_equal(history_episode(b, 1), 7);
    history_begin(b, 1, 7);
    for (i = 0; i < 300; i++) {
        assert_non_null(history_replay(b, 1));
        assert_true(history_replay(b, 1)[0] == (float)i / 8);
        if (i == 100) { // a worker that is still replaying tells the same
            assert_ok(history_write(b, 4, &m));
            assert_ok(history_read(a, 4, m));
            msg_free(m);
        }
        history_executed(b, 1);
    }
    assert_null(history_replay(b, 1));
    assert_int_equal(history_elapsed(b, 1), 300);
    for (i = 0; i < 300; i++)
        history_executed(a, 1);
    assert_null(history_replay(a, 1));
    history_destroy(a);
    history_destroy(b);
}

static void another_episode_replays_nothing(void **state)
{
    struct history *h;
    struct msg *m;

    (void)state;
    assert_ok(history_create(&h, 1, 2));
    play(h, 0, 1);
    assert_ok(history_write(h, 0, &m));
    assert_ok(history_read(h, 0, m));
    assert_non_null(history_replay(h, 0));
    history_begin(h, 0, 1);
    assert_null(history_replay(h, 0));
    assert_fails(history_read(h, 3, m), ST_PROTO, "STATE of envs 0 to 0, expected 3 to 3");
    msg_free(m);
    history_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(another_worker_replays_what_was_executed),
        wire_test(another_episode_replays_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
