#include "learner/clone_loss.h"

#include "common/base/rng.h"
#include "tests/testing.h"

#define CHUNK 5
#define ACT   3
#define N     (CHUNK * ACT)

static double total(enum clone_loss kind, const float *mean, const float *target, int n_real,
                    const float *log_std)
{
    float d_mean[N];
    double d_log_std[ACT] = {0};

    return clone_loss(kind, mean, target, n_real, CHUNK, ACT, log_std, d_mean, d_log_std);
}

static void gradients_agree_with_differences(void **state)
{
    struct rng r = rng_make(1, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int round = 0; round < 300; round++) {
        enum clone_loss kind = (enum clone_loss)(round % 3);
        float mean[N], target[N], log_std[ACT], d_mean[N];
        double d_log_std[ACT] = {0}, h = 1e-3;
        int n_real = 1 + (int)rng_below(&r, CHUNK);

        for (int i = 0; i < N; i++) {
            // l1 on both sides of its bend, but not across it
            double apart = round % 2 ? rng_uniform(&r, 0.06, 1) : rng_uniform(&r, -0.04, 0.04);

            target[i] = (float)rng_uniform(&r, -1, 1);
            mean[i] = (float)(target[i] + (rng_below(&r, 2) ? apart : -apart));
        }
        for (int d = 0; d < ACT; d++)
            log_std[d] = (float)rng_uniform(&r, -1.5, 0.5);
        (void)clone_loss(kind, mean, target, n_real, CHUNK, ACT, log_std, d_mean, d_log_std);
        for (int i = 0; i < N + ACT; i++) {
            float *x = i < N ? &mean[i] : &log_std[i - N], keep = *x, low, high;
            double slope;

            *x = high = (float)(keep + h);
            slope = total(kind, mean, target, n_real, log_std);
            *x = low = (float)(keep - h);
            slope -= total(kind, mean, target, n_real, log_std);
            *x = keep;
            assert_close(i < N ? (double)d_mean[i] : d_log_std[i - N], slope / ((double)high - low),
                         1e-3, 1e-4);
        }
    }
}

// What is behind the end of a demo changes nothing, by a single bit.
static void the_tail_does_not_count(void **state)
{
    float mean[N], target[N], log_std[ACT] = {-1, 0, -0.5f}, a[N], b[N];
    double da[ACT] = {0}, db[ACT] = {0};

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        double x, y;

        for (int i = 0; i < N; i++) {
            mean[i] = 0.1f * (float)i;
            target[i] = 0.3f;
        }
        x = clone_loss((enum clone_loss)kind, mean, target, 2, CHUNK, ACT, log_std, a, da);
        for (int i = 2 * ACT; i < N; i++) {
            mean[i] = -7;
            target[i] = 1e9f;
        }
        y = clone_loss((enum clone_loss)kind, mean, target, 2, CHUNK, ACT, log_std, b, db);
        assert_true(x == y);
        assert_memory_equal(a, b, sizeof a);
        assert_memory_equal(da, db, sizeof da);
        for (int i = 2 * ACT; i < N; i++)
            assert_true(a[i] == 0);
    }
}

static void values_are_those_of_the_formulas(void **state)
{
    float mean[1] = {1}, target[1] = {0.5f}, log_std[1] = {-1}, d[1];
    double none[1] = {0};

    (void)state;
    assert_close(clone_loss(CLONE_L1, mean, target, 1, 1, 1, log_std, d, none), 0.475, 1e-12, 0);
    assert_close(clone_loss(CLONE_L2, mean, target, 1, 1, 1, log_std, d, none), 0.125, 1e-12, 0);
    assert_close(clone_loss(CLONE_NLL, mean, target, 1, 1, 1, log_std, d, none),
                 0.125 * exp(2) - 1 + log(2 * M_PI) / 2, 1e-12, 0);
    target[0] = 0.98f;
    assert_close(clone_loss(CLONE_L1, mean, target, 1, 1, 1, log_std, d, none), 0.02 * 0.02 / 0.1,
                 1e-5, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(gradients_agree_with_differences),
        leak_test(the_tail_does_not_count),
        leak_test(values_are_those_of_the_formulas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
