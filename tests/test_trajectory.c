#include "rollout/trajectory.h"

#include "tests/wire_samples.h"

static void a_chunk_holds_what_was_decided_and_what_came_of_it(void **state)
{
    const double obs[4][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, final[2] = {8, 9};
    const uint32_t flags[3] = {0, CHUNK_TRUNCATED, CHUNK_TERMINATED};
    struct trajectory *t;
    struct chunk c;
    struct msg *m;
    int i;

    (void)state;
    assert_ok(trajectory_create(&t, 2, 3, 2, 1));
    for (i = 0; i < 3; i++) {
        const float action = 10.0f + (float)i;

        trajectory_decide(t, 1, obs[i], &action, 0.5f * (float)i, 4 + (uint64_t)i);
        if (i == 1)
            trajectory_episode(t, 1, 42, 17);
        assert_int_equal(trajectory_outcome(t, 1, i, flags[i], final), i == 2);
    }
    assert_ok(trajectory_close(t, 1, obs[3], 0, 33, &m));
    assert_ok(chunk_read(m, 2, 1, &c));
    assert_int_equal(c.head.env, 33);
    assert_int_equal(c.head.index, 0);
    assert_int_equal(c.head.version_min, 4);
    assert_int_equal(c.head.version_max, 6);
    assert_int_equal(c.head.n_truncated, 1);
    assert_int_equal(c.head.n_episode, 1);
    assert_true(c.episode_return[0] == 42 && c.episode_length[0] == 17);
    assert_true(c.final_obs[0] == 8 && c.final_obs[1] == 9);
    assert_true(c.last_obs[0] == 6 && c.last_obs[1] == 7);
    for (i = 0; i < 3; i++) {
        assert_true(c.obs[2 * i] == (float)obs[i][0] && c.obs[2 * i + 1] == (float)obs[i][1]);
        assert_true(c.action[i] == 10.0f + (float)i && c.logp[i] == 0.5f * (float)i);
        assert_true(c.reward[i] == (float)i && c.version[i] == 4 + (uint64_t)i);
        assert_int_equal(c.flags[i], flags[i]);
    }
    msg_free(m);
    // the next chunk starts empty and counts on
    for (i = 0; i < 3; i++) {
        const float action = 0;

        trajectory_decide(t, 1, obs[i], &action, 0, 9);
        (void)trajectory_outcome(t, 1, 0, 0, NULL);
    }
    assert_ok(trajectory_close(t, 1, obs[3], 0, 33, &m));
    assert_ok(chunk_read(m, 2, 1, &c));
    assert_int_equal(c.head.index, 1);
    assert_int_equal(c.head.n_truncated, 0);
    assert_int_equal(c.head.n_episode, 0);
    msg_free(m);
    trajectory_destroy(t);
}

static void impossible_sizes_are_refused(void **state)
{
    struct trajectory *t;

    (void)state;
    assert_fails(trajectory_create(&t, 1, 0, 2, 1), ST_INVAL, "0 steps");
    assert_fails(trajectory_create(&t, 0, 1, 2, 1), ST_INVAL, "0 envs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(a_chunk_holds_what_was_decided_and_what_came_of_it),
        wire_test(impossible_sizes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
