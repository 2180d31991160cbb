#include "tests/testing.h"

#include "common/base/rng.h"
#include "learner/scale.h"

static void the_average_has_no_bias_and_forgets(void **state)
{
    struct average a = {0};
    double mean = 7, std = 8;
    int i;

    (void)state;
    average_read(&a, &mean, &std);
    assert_close(mean, 7, 0, 0); // nothing yet: untouched
    average_add(&a, 0.9, 3, 3 * 3 + 4);
    average_read(&a, &mean, &std);
    assert_close(mean, 3, 1e-12, 0);
    assert_close(std, 2, 1e-12, 0);
    for (i = 0; i < 300; i++)
        average_add(&a, 0.9, -1, 1 + 0.25);
    average_read(&a, &mean, &std);
    assert_close(mean, -1, 1e-9, 0);
    assert_close(std, 0.5, 1e-9, 0);
    for (i = 0; i < 1000; i++)
        average_add(&a, 0.9, 2, 4); // no spread at all
    average_read(&a, &mean, &std);
    assert_close(std, 1e-4, 1e-9, 0);
}

#define N_OBS 3

// Windows in several shares, against all observations at once.
static void observations_merge_to_their_mean_and_variance(void **state)
{
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    double mean[N_OBS] = {0}, var[N_OBS] = {1, 1, 1}, count = 0;
    static double all[6000][N_OBS];
    int window, i, k, n = 0;

    (void)state;
    for (window = 0; window < 4; window++) {
        double sums[2][2 * N_OBS] = {{0}}, shift[N_OBS];
        struct obs_sums part[2] = {{0, sums[0], sums[0] + N_OBS}, {0, sums[1], sums[1] + N_OBS}};

        memcpy(shift, mean, sizeof shift);
        for (i = 0; i < 1000 + 300 * window; i++, n++) {
            float obs[N_OBS];

            for (k = 0; k < N_OBS; k++) {
                obs[k] = (float)(1000 * k + (1 + k) * rng_normal(&rng) + window);
                all[n][k] = (double)obs[k];
            }
            obs_sums_add(&part[i % 2], obs, shift, N_OBS);
        }
        obs_sums_merge(&part[0], &part[1], N_OBS);
        obs_sums_apply(&part[0], shift, N_OBS, &count, mean, var);
    }
    assert_close(count, n, 0, 0);
    for (k = 0; k < N_OBS; k++) {
        double m = 0, v = 0;

        for (i = 0; i < n; i++)
            m += all[i][k] / n;
        for (i = 0; i < n; i++)
            v += (all[i][k] - m) * (all[i][k] - m) / n;
        assert_close(mean[k], m, 1e-12, 1e-12);
        assert_close(var[k], v, 1e-7, 0);
    }
}

static void an_empty_window_moves_nothing(void **state)
{
    double sums[2 * N_OBS] = {0}, shift[N_OBS] = {0}, mean[N_OBS] = {1, 2, 3},
                    var[N_OBS] = {4, 5, 6};
    struct obs_sums s = {0, sums, sums + N_OBS};
    double count = 10;

    (void)state;
    obs_sums_apply(&s, shift, N_OBS, &count, mean, var);
    assert_true(count == 10 && mean[1] == 2 && var[2] == 6);
}

static void rescaling_keeps_predictions(void **state)
{
    struct model_shape shape;
    struct model_table t;
    float params[256];
    double before = 0, after = 0, h[8];
    const float *w, *b;
    int i;

    (void)state;
    assert_ok(model_shape_parse(&shape, 3, 2, "8"));
    model_table_make(&t, &shape);
    assert_true(t.n_param < 256);
    assert_ok(model_init(&shape, 1, 0, params));
    w = params + t.piece[t.n_piece - 2].offset;
    b = params + t.piece[t.n_piece - 1].offset;
    for (i = 0; i < 8; i++) {
        h[i] = sin(i);
        before += h[i] * (double)w[i];
    }
    before = 5 + 2 * (before + (double)*b);
    scale_preserve(params + t.piece[t.n_piece - 2].offset, 8, 5, 2, -100, 30);
    for (i = 0; i < 8; i++)
        after += h[i] * (double)w[i];
    after = -100 + 30 * (after + (double)*b);
    assert_close(after, before, 1e-5, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(the_average_has_no_bias_and_forgets),
        leak_test(observations_merge_to_their_mean_and_variance),
        leak_test(an_empty_window_moves_nothing),
        leak_test(rescaling_keeps_predictions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
