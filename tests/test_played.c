#include "rollout/played.h"

#include "tests/wire_samples.h"

#define LATENT 4

static const struct played_config sizes = {.n_env = 2,
                                           .n_obs = 2,
                                           .n_act = 1,
                                           .chunk = 3,
                                           .n_view = 2,
                                           .picture_bytes = 3,
                                           .n_latent = LATENT};
static const struct join join = {
    .n_env = 8, .n_obs = 2, .n_act = 1, .chunk = 3, .width = 1, .height = 1, .n_view = 2};

// Decision t of an env: everything tells env and t.
static void decide(struct played *p, int env, int t)
{
    const double obs[] = {env, t};
    const uint8_t first[] = {(uint8_t)env, (uint8_t)t, 0}, second[] = {(uint8_t)env, (uint8_t)t, 1};
    const uint8_t *views[] = {first, second};
    const float action[] = {(float)t, (float)t + 0.25f, (float)t + 0.5f};
    const float logp[] = {-1, -2, -(float)t};
    float latent[LATENT];

    for (int i = 0; i < LATENT; i++)
        latent[i] = (float)(1000 * env + 10 * t + i);
    assert_ok(played_decide(p, env,
                            &(struct played_decision){.obs = obs,
                                                      .views = views,
                                                      .action = action,
                                                      .logp = logp,
                                                      .latent = latent,
                                                      .version = (uint64_t)(10 + t / 20)}));
}

static void episodes_of_two_envs_stay_apart(void **state)
{
    const double reward[] = {0.5, 1, 2};
    struct played *p;

    (void)state;
    assert_ok(played_create(&p, &sizes));
    for (int round = 0; round < 3; round++) {
        for (int env = 0; env < 2; env++)
            played_begin(p, env, (uint64_t)round, (uint64_t)(7 * round + env), (uint32_t)env);
        for (int t = 0; t < 50; t++) // more than there is room for at first
            for (int env = 0; env < 2; env++) {
                if (t >= 50 - 20 * env)
                    continue;
                assert_int_equal(played_decisions(p, env), t);
                decide(p, env, t);
                played_outcome(p, env, reward, t == 49 - 20 * env ? 2 : 3);
            }
        for (int env = 0; env < 2; env++) {
            const uint32_t n = 50 - 20 * (uint32_t)env;
            struct episode e;
            struct msg *m;

            assert_int_equal(played_index(p, env), round);
            assert_int_equal(played_group(p, env), 7 * round + env);
            assert_int_equal(played_member(p, env), env);
            assert_ok(played_end(p, env, (uint32_t)(4 + env), EPISODE_SUCCESS, 1, 3.5, &m));
            assert_ok(episode_read(m, &join, &e));
            assert_int_equal(e.head.env, 4 + env);
            assert_int_equal(e.head.n_decision, n);
            assert_int_equal(e.head.n_sub, 3 * n - 1);
            assert_int_equal(e.head.version_min, 10);
            assert_int_equal(e.head.version_max, 10 + (n - 1) / 20);
            for (uint32_t t = 0; t < n; t++) {
                const uint8_t *view = e.pictures + t * 6;

                assert_true(e.obs[2 * t] == env && e.obs[2 * t + 1] == t);
                assert_true(e.action[3 * t + 2] == t + 0.5f && e.logp[3 * t + 1] == -2);
                assert_true(view[1] == t && view[2] == 0 && view[4] == t && view[5] == 1);
                assert_true(e.reward[3 * t + 1] == 1);
                for (uint32_t k = 0; k < LATENT; k++)
                    assert_true(e.latent[LATENT * t + k] ==
                                (float)(1000 * env + 10 * (int)t + (int)k));
            }
            assert_true(e.reward[3 * n - 1] == 0); // was not executed
            msg_free(m);
        }
    }
    played_destroy(p);
}

// The time limit: what was seen last stands behind the decisions, until the next episode.
static void what_was_seen_last_is_behind_the_decisions(void **state)
{
    const uint8_t first[] = {9, 8, 7}, second[] = {6, 5, 4};
    const uint8_t *views[] = {first, second};
    const double obs[] = {41, 42}, reward[] = {1, 1, 1};
    struct played *p;

    (void)state;
    assert_ok(played_create(&p, &sizes));
    for (int n = 16; n > 0; n -= 15) { // with and without room for one more at first
        for (int final = 1; final >= 0; final--) {
            struct episode e;
            struct msg *m;

            played_begin(p, 0, 0, 0, 0);
            for (int t = 0; t < n; t++) {
                decide(p, 0, t);
                played_outcome(p, 0, reward, 3);
            }
            if (final)
                assert_ok(played_final(p, 0, obs, views));
            assert_ok(played_end(p, 0, 0, EPISODE_TRUNCATED, 0, 0, &m));
            assert_ok(episode_read(m, &join, &e));
            assert_int_equal(e.head.n_decision, n);
            assert_int_equal(e.head.flags, EPISODE_TRUNCATED | (final ? EPISODE_FINAL : 0));
            assert_int_equal(episode_n_seen(&e.head), n + final);
            assert_true(e.obs[2 * n - 1] == (float)(n - 1));
            if (final) {
                assert_true(e.obs[2 * n] == 41 && e.obs[2 * n + 1] == 42);
                assert_memory_equal(e.pictures + 6 * n, first, 3);
                assert_memory_equal(e.pictures + 6 * n + 3, second, 3);
            }
            msg_free(m);
        }
    }
    played_destroy(p);
}

// An error before the first action of a chunk: the decision has no outcome.
static void a_decision_without_outcome_is_forgotten(void **state)
{
    struct episode e;
    struct played *p;
    struct msg *m;

    (void)state;
    assert_ok(played_create(&p, &sizes));
    played_begin(p, 0, 0, 0, 0);
    decide(p, 0, 0);
    played_outcome(p, 0, NULL, 0);
    assert_int_equal(played_decisions(p, 0), 0);
    assert_ok(played_end(p, 0, 0, EPISODE_ERROR, 0, 0, &m));
    assert_ok(episode_read(m, &join, &e));
    assert_int_equal(e.head.n_decision, 0);
    msg_free(m);
    played_destroy(p);
}

static void sizes_are_checked(void **state)
{
    struct played_config bad = sizes;
    struct played *p;

    (void)state;
    bad.chunk = SPEC_CHUNK_MAX + 1;
    assert_fails(played_create(&p, &bad), ST_INVAL, "chunks of 257 actions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(episodes_of_two_envs_stay_apart),
        wire_test(what_was_seen_last_is_behind_the_decisions),
        wire_test(a_decision_without_outcome_is_forgotten),
        wire_test(sizes_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
