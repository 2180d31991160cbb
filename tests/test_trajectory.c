#include "rollout/trajectory.h"

#include "tests/wire_samples.h"

static const struct trajectory_config sizes = {.n_env = 2, .horizon = 3, .n_obs = 2, .n_act = 1};
static const struct join join = {.n_obs = 2, .n_act = 1};

static void a_chunk_holds_what_was_decided_and_what_came_of_it(void **state)
{
    const double obs[4][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, final[2] = {8, 9};
    const uint32_t flags[3] = {0, CHUNK_TRUNCATED, CHUNK_TERMINATED};
    struct trajectory *t;
    struct chunk c;
    struct msg *m;
    bool full;
    int i;

    (void)state;
    assert_ok(trajectory_create(&t, &sizes));
    for (i = 0; i < 3; i++) {
        const float action = 10.0f + (float)i;

        trajectory_decide(t, 1, obs[i], NULL, &action, 0.5f * (float)i, 4 + (uint64_t)i);
        if (i == 1)
            trajectory_episode(t, 1, 42, 17);
        assert_ok(trajectory_outcome(t, 1, i, flags[i], final, NULL, &full));
        assert_int_equal(full, i == 2);
    }
    assert_ok(trajectory_close(t, 1, obs[3], NULL, 0, 33, &m));
    assert_ok(chunk_read(m, &join, 0, &c));
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

        trajectory_decide(t, 1, obs[i], NULL, &action, 0, 9);
        assert_ok(trajectory_outcome(t, 1, 0, 0, NULL, NULL, &full));
    }
    assert_ok(trajectory_close(t, 1, obs[3], NULL, 0, 33, &m));
    assert_ok(chunk_read(m, &join, 0, &c));
    assert_int_equal(c.head.index, 1);
    assert_int_equal(c.head.n_truncated, 0);
    assert_int_equal(c.head.n_episode, 0);
    msg_free(m);
    trajectory_destroy(t);
}

static void each_picture_is_sent_once(void **state)
{
    const struct trajectory_config cfg = {
        .n_env = 1, .horizon = 3, .n_obs = 1, .n_act = 1, .picture_bytes = 3, .stack = 3};
    const struct join seen = {
        .n_obs = 1, .n_act = 1, .width = 1, .height = 1, .picture = "track_image"};
    const uint8_t picture[][3] = {{0}, {10}, {20}, {30}, {40}, {50}, {60}, {70}};
    const uint8_t first[] = {0, 0, 0, 10, 20, 30, 77}, second[] = {10, 20, 30, 40, 50, 60};
    const double obs = 0;
    const float action = 0;
    struct trajectory *t;
    struct chunk c;
    struct msg *m;
    bool full;
    int i, k;

    (void)state;
    assert_ok(trajectory_create(&t, &cfg));
    for (i = 0; i < 6; i++) {
        // the policy sees 0 0 0, 0 0 10, 0 10 20, ...
        const uint8_t *stack[3] = {picture[i > 1 ? i - 2 : 0], picture[i > 0 ? i - 1 : 0],
                                   picture[i]};
        const uint8_t final[3] = {77};

        trajectory_decide(t, 0, &obs, stack, &action, 0, 1);
        assert_ok(trajectory_outcome(t, 0, 0, i == 1 ? CHUNK_TRUNCATED : 0, &obs, final, &full));
        if (!full)
            continue;
        assert_ok(trajectory_close(t, 0, &obs, picture[i + 1], 0, 0, &m));
        assert_ok(chunk_read(m, &seen, 2, &c));
        assert_int_equal(chunk_n_picture(&c.head), i == 2 ? 7 : 6);
        for (k = 0; k < (i == 2 ? 7 : 6); k++)
            assert_int_equal(c.pictures[3 * k], (i == 2 ? first : second)[k]);
        msg_free(m);
    }
    trajectory_destroy(t);
}

static void impossible_sizes_are_refused(void **state)
{
    const struct trajectory_config none = {.n_env = 1, .n_obs = 2, .n_act = 1};
    const struct trajectory_config nobody = {.horizon = 1, .n_obs = 2, .n_act = 1};
    struct trajectory *t;

    (void)state;
    assert_fails(trajectory_create(&t, &none), ST_INVAL, "0 steps");
    assert_fails(trajectory_create(&t, &nobody), ST_INVAL, "0 envs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(a_chunk_holds_what_was_decided_and_what_came_of_it),
        wire_test(each_picture_is_sent_once),
        wire_test(impossible_sizes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
