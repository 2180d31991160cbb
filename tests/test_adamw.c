#include "tests/testing.h"

#include "nn/adamw.h"

// The method as its paper writes it, in double.
static void reference(const struct adamw *a, int step, double g, double *p, double *m, double *v)
{
    double m_hat, v_hat;

    *m = a->beta1 * *m + (1 - a->beta1) * g;
    *v = a->beta2 * *v + (1 - a->beta2) * g * g;
    m_hat = *m / (1 - pow(a->beta1, step));
    v_hat = *v / (1 - pow(a->beta2, step));
    *p -= a->lr * (m_hat / (sqrt(v_hat) + a->eps) + a->weight_decay * *p);
}

static void steps_follow_the_method(void **state)
{
    const struct adamw a = {
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-5, .weight_decay = 0.1};
    float p[3] = {1, -2, 0.5f}, m[3] = {0}, v[3] = {0}, g[3];
    double rp[3] = {1, -2, 0.5}, rm[3] = {0}, rv[3] = {0};
    int step, i;

    (void)state;
    for (step = 1; step <= 50; step++) {
        for (i = 0; i < 3; i++)
            g[i] = (float)sin(step * (i + 1)) * 4;
        adamw_step(&a, step, g, 0.25, 3, p, m, v);
        for (i = 0; i < 3; i++) {
            reference(&a, step, (double)g[i] * 0.25, &rp[i], &rm[i], &rv[i]);
            assert_close(p[i], rp[i], 1e-5, 1e-6);
        }
    }
}

static void the_first_step_is_the_learning_rate(void **state)
{
    const struct adamw a = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-12};
    float p[2] = {0, 0}, m[2] = {0}, v[2] = {0};
    const float g[2] = {1e-3f, -1e3f};

    (void)state;
    adamw_step(&a, 1, g, 1, 2, p, m, v);
    assert_close(p[0], -0.1, 1e-5, 0);
    assert_close(p[1], 0.1, 1e-5, 0);
}

// The factors that lerobot's scheduler gives for SmolVLA's numbers.
static void the_schedule_is_that_of_smolvla(void **state)
{
    static const struct {
        int64_t total, step;
        double want;
    } cases[] = {{0, 0, 0.000999000999000999},
                 {0, 1, 0.0019980019980019303},
                 {0, 500, 0.5004995004995005},
                 {0, 1000, 0.9973294239920333},
                 {0, 15000, 0.5125},
                 {0, 30000, 0.025},
                 {0, 99999, 0.025},
                 {3000, 0, 0.009900990099009901},
                 {3000, 99, 0.9900990099009901},
                 {3000, 100, 0.9973294239920333},
                 {3000, 1500, 0.5125},
                 {3000, 2999, 0.025000267301761418}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct adamw_schedule s = {
            .warmup = 1000, .decay = 30000, .total = cases[i].total, .floor = 2.5e-6 / 1e-4};

        assert_close(adamw_factor(&s, cases[i].step), cases[i].want, 1e-12, 0);
    }
    // none at all
    assert_true(adamw_factor(&(struct adamw_schedule){0}, 0) == 1);
    assert_true(adamw_factor(&(struct adamw_schedule){0}, 1000) == 1);
}

static void gradients_are_clipped_to_their_norm(void **state)
{
    float g[11];

    (void)state;
    for (int i = 0; i < 11; i++)
        g[i] = i < 2 ? 3.0f + (float)i : 0;
    assert_true(adamw_sum_squares(g, 11) == 25);
    assert_true(adamw_sum_squares(g, 0) == 0);
    assert_close(adamw_clip(25, 0.5, 1), 1 / 2.5, 1e-6, 0);
    assert_true(adamw_clip(25, 0.5, 3) == 1); // short enough
    assert_true(adamw_clip(25, 1, 0) == 1);   // no clipping
    assert_true(adamw_clip(0, 1, 1) == 1);
}

static void averages_follow_slowly(void **state)
{
    const float p[2] = {1, -2};
    float average[2] = {0, 0};

    (void)state;
    for (int i = 0; i < 20; i++)
        adamw_average(0.9, 2, p, average);
    assert_close(average[0], 1 - pow(0.9, 20), 1e-5, 0);
    assert_close(average[1], -2 * (1 - pow(0.9, 20)), 1e-5, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(steps_follow_the_method),         leak_test(the_first_step_is_the_learning_rate),
        leak_test(the_schedule_is_that_of_smolvla), leak_test(gradients_are_clipped_to_their_norm),
        leak_test(averages_follow_slowly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
