#include "learner/chunk_gae.h"

#include "tests/testing.h"

#include "common/base/rng.h"

#define CHUNK 3
#define N     6

// An episode whose rewards behind what was executed are no numbers.
static struct episode sample(uint32_t flags, float *reward, uint32_t *executed)
{
    struct rng rng = rng_make(flags, RNG_TEST, 0, 0, 0);

    for (int k = 0; k < N; k++) {
        executed[k] = 1 + rng_below(&rng, CHUNK);
        for (uint32_t i = 0; i < CHUNK; i++)
            reward[k * CHUNK + (int)i] = i < executed[k] ? (float)rng_normal(&rng) : NAN;
    }
    return (struct episode){
        .head = {.n_decision = N, .flags = flags, .chunk = CHUNK, .n_obs = 1, .n_act = 1},
        .reward = reward,
        .executed = executed};
}

static double reward_of(const struct episode *e, int k)
{
    double sum = 0;

    for (uint32_t i = 0; i < e->executed[k]; i++)
        sum += (double)e->reward[k * CHUNK + (int)i];
    return sum;
}

// The definition: the sum over l of (gamma lambda)^l delta_k+l.
static void advantages_are_the_sums_of_the_definition(void **state)
{
    static const double decay[][2] = {{0.99, 0.95}, {1, 1}, {0.9, 0}, {0, 0.5}};
    static const uint32_t flags[] = {0, EPISODE_SUCCESS, EPISODE_TRUNCATED,
                                     EPISODE_TRUNCATED | EPISODE_FINAL};
    float reward[N * CHUNK], value[N + 1], advantage[N], ret[N];
    uint32_t executed[N];

    (void)state;
    for (int f = 0; f < 4; f++) {
        const struct episode e = sample(flags[f], reward, executed);

        for (int k = 0; k <= N; k++)
            value[k] = (float)sin(k + f);
        if (!(flags[f] & EPISODE_FINAL))
            value[N] = NAN; // there is none
        for (int d = 0; d < 4; d++) {
            const double gamma = decay[d][0], lambda = decay[d][1];

            chunk_gae_run(&e, gamma, lambda, value, advantage, ret);
            for (int k = 0; k < N; k++) {
                double want = 0;

                for (int l = k; l < N; l++) {
                    double next =
                        l + 1 < N || (flags[f] & EPISODE_FINAL) ? (double)value[l + 1] : 0;

                    want += pow(gamma * lambda, l - k) *
                            (reward_of(&e, l) + gamma * next - (double)value[l]);
                }
                assert_close((double)advantage[k], want, 0, 2e-6);
                assert_close((double)ret[k], want + (double)value[k], 0, 2e-6);
            }
        }
    }
}

// With gamma = lambda = 1 the target is what came after, whatever the values are.
static void without_decay_targets_are_returns(void **state)
{
    float reward[N * CHUNK], value[N] = {5, -3, 2, 0, 1, 7}, advantage[N], ret[N];
    uint32_t executed[N];
    const struct episode e = sample(EPISODE_TRUNCATED, reward, executed);
    double sum = 0;

    (void)state;
    chunk_gae_run(&e, 1, 1, value, advantage, ret);
    for (int k = N; k-- > 0;) {
        sum += reward_of(&e, k);
        assert_close((double)ret[k], sum, 0, 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advantages_are_the_sums_of_the_definition),
        cmocka_unit_test(without_decay_targets_are_returns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
