#include "tests/testing.h"

#include "common/base/rng.h"
#include "common/wire/trainproto.h"
#include "learner/gae.h"

#define N     6
#define GAMMA 0.9
#define LAM   0.8

static const float reward[N] = {1, -2, 3, 0.5f, 2, -1};
static const float value[N + 1] = {0.1f, 0.7f, -0.3f, 1.5f, 0.4f, -0.8f, 0.9f};
static const float final_value[3] = {5, -6, 7};

static float adv[N], ret[N];
static uint8_t valid[N];

static int run(const uint32_t *flags)
{
    struct gae_input in = {N, GAMMA, LAM, reward, flags, value, final_value};

    return gae_run(&in, adv, ret, valid);
}

// By its definition: the sum of the discounted deltas up to the first boundary.
static double reference(const uint32_t *flags, int t)
{
    double sum = 0, factor = 1, next;
    int k, i, n_final;

    for (k = t; k < N && !(flags[k] & (CHUNK_SKIP | CHUNK_ERROR)); k++, factor *= GAMMA * LAM) {
        for (n_final = 0, i = 0; i < k; i++)
            n_final += (flags[i] & CHUNK_TRUNCATED) != 0;
        next = flags[k] & CHUNK_TERMINATED  ? 0
               : flags[k] & CHUNK_TRUNCATED ? (double)final_value[n_final]
                                            : (double)value[k + 1];
        sum += factor * ((double)reward[k] + GAMMA * next - (double)value[k]);
        if (flags[k] & (CHUNK_TERMINATED | CHUNK_TRUNCATED))
            break;
    }
    return sum;
}

static void check(const uint32_t *flags)
{
    int t, n = 0, count = run(flags);

    for (t = 0; t < N; t++) {
        bool sample = !(flags[t] & (CHUNK_SKIP | CHUNK_ERROR));
        double want = sample ? reference(flags, t) : 0;

        assert_int_equal(valid[t], sample);
        assert_close(adv[t], want, 1e-6, 1e-6);
        assert_close(ret[t], sample ? want + (double)value[t] : 0, 1e-6, 1e-6);
        n += sample;
    }
    assert_int_equal(count, n);
}

static void an_open_chunk_looks_ahead_to_its_last_observation(void **state)
{
    const uint32_t flags[N] = {0};

    (void)state;
    check(flags);
    // by hand: the last step
    assert_close(adv[5], -1 + 0.9 * 0.9 + 0.8, 1e-6, 0);
    // and the one before
    assert_close(adv[4], 2 - 0.9 * 0.8 - 0.4 + 0.72 * (-1 + 0.81 + 0.8), 1e-6, 0);
}

static void every_kind_of_end_at_every_place(void **state)
{
    static const uint32_t kinds[] = {CHUNK_TERMINATED,
                                     CHUNK_TRUNCATED,
                                     CHUNK_TERMINATED | CHUNK_TRUNCATED,
                                     CHUNK_ERROR,
                                     CHUNK_ERROR | CHUNK_TRUNCATED,
                                     CHUNK_SKIP};
    size_t i, j;
    int t, s;

    (void)state;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (j = 0; j < sizeof kinds / sizeof *kinds; j++)
            for (t = 0; t < N; t++)
                for (s = 0; s < N; s++) {
                    uint32_t flags[N] = {0};

                    flags[t] |= kinds[i];
                    flags[s] = t == s ? flags[s] : kinds[j];
                    check(flags);
                }
}

static void an_end_hides_what_follows(void **state)
{
    static const uint32_t ends[] = {CHUNK_TERMINATED, CHUNK_TRUNCATED, CHUNK_ERROR};
    float later_reward[N], later_value[N + 1], before[N];
    int i, t;

    (void)state;
    for (i = 0; i < 3; i++) {
        uint32_t flags[N] = {0, 0, ends[i], 0, 0, 0};
        struct gae_input in = {N, GAMMA, LAM, later_reward, flags, later_value, final_value};

        memcpy(later_reward, reward, sizeof reward);
        memcpy(later_value, value, sizeof value);
        (void)gae_run(&in, adv, ret, valid);
        memcpy(before, adv, sizeof adv);
        for (t = 3; t < N; t++) {
            later_reward[t] += 100;
            later_value[t] -= 50;
        }
        (void)gae_run(&in, adv, ret, valid);
        assert_memory_equal(adv, before, 3 * sizeof *adv);
        assert_true(adv[4] != before[4]);
    }
}

static void a_step_that_is_no_sample_changes_nothing_else(void **state)
{
    const uint32_t flags[N] = {0, CHUNK_TERMINATED, CHUNK_SKIP, 0, CHUNK_ERROR, 0};
    float other_reward[N], before[N];
    struct gae_input in = {N, GAMMA, LAM, other_reward, flags, value, final_value};

    (void)state;
    (void)run(flags);
    memcpy(before, adv, sizeof adv);
    memcpy(other_reward, reward, sizeof reward);
    other_reward[2] = 1e9f;
    other_reward[4] = -1e9f;
    (void)gae_run(&in, adv, ret, valid);
    assert_memory_equal(adv, before, sizeof adv);
    assert_true(adv[2] == 0 && adv[4] == 0 && ret[2] == 0 && ret[4] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(an_open_chunk_looks_ahead_to_its_last_observation),
        leak_test(every_kind_of_end_at_every_place),
        leak_test(an_end_hides_what_follows),
        leak_test(a_step_that_is_no_sample_changes_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
