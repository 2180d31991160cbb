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

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(steps_follow_the_method),
        leak_test(the_first_step_is_the_learning_rate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
