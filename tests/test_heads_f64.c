// Losses of heads in double: gradients by finite differences, and the samplers of flow matching
// against what is known of them.
#define REAL_IS_DOUBLE
#include "tests/ops_testing.h"

// clang-format off
#include "nn/heads.c"
// clang-format on

#define N   9
#define DIM 4

struct rig {
    real x[N * DIM], v[N * DIM], a[N * DIM], log_std[DIM], d[N * DIM], out[N * DIM], weight[N];
    int target[N];
    struct heads_flow f;
};

static void fill(struct rig *g, struct rng *r)
{
    memset(g, 0, sizeof *g);
    for (int i = 0; i < N * DIM; i++) {
        g->x[i] = rng_normal(r);
        g->v[i] = rng_normal(r);
        g->a[i] = rng_normal(r);
        g->d[i] = rng_normal(r);
    }
    for (int i = 0; i < DIM; i++)
        g->log_std[i] = rng_normal(r) / 2;
    for (int i = 0; i < N; i++) {
        g->weight[i] = rng_unit(r);
        g->target[i] = between(r, -1, DIM - 1);
    }
}

static double gaussian_loss(void *arg)
{
    struct rig *g = arg;

    heads_gaussian_logp(N, DIM, g->x, g->log_std, g->a, g->out);
    return weighted(g->out, g->d, N * DIM);
}

static double category_loss(void *arg)
{
    struct rig *g = arg;

    heads_cross_entropy(N, DIM, g->x, g->target, NULL, g->out, NULL);
    return weighted(g->out, g->weight, N);
}

static double flow_loss(void *arg)
{
    struct rig *g = arg;

    return heads_flow_loss(N, DIM, g->v, g->a, g->weight, NULL);
}

static double sde_loss(void *arg)
{
    struct rig *g = arg;

    heads_flow_logp(&g->f, N * DIM, g->x, g->v, g->a, g->out);
    return weighted(g->out, g->d, N * DIM);
}

static void gradients_agree_with_finite_differences(void **state)
{
    struct rng r = rng_make(1, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 10; i++) {
        struct rig g;
        real grad[N * DIM], d_log_std[DIM] = {0};

        fill(&g, &r);
        heads_gaussian_backward(N, DIM, g.x, g.log_std, g.a, g.d, grad, d_log_std);
        check_gradient(gaussian_loss, &g, g.x, N * DIM, grad, 20, &r);
        check_gradient(gaussian_loss, &g, g.log_std, DIM, d_log_std, DIM, &r);
        heads_cross_entropy(N, DIM, g.x, g.target, g.weight, g.out, grad);
        check_gradient(category_loss, &g, g.x, N * DIM, grad, 20, &r);
        (void)heads_flow_loss(N, DIM, g.v, g.a, g.weight, grad);
        check_gradient(flow_loss, &g, g.v, N * DIM, grad, 20, &r);
        g.f = heads_flow_sde(between(&r, 0, 3), 4, 0.5);
        heads_flow_logp_backward(&g.f, N * DIM, g.x, g.v, g.a, g.d, grad);
        check_gradient(sde_loss, &g, g.v, N * DIM, grad, 20, &r);
    }
}

static void values_are_what_the_formulas_say(void **state)
{
    const real logits[] = {0, log(3), 1000, 0}, mean = 1, action = 3, log_std = log(2);
    const int target[] = {1, 1};
    real loss[2], logp;

    (void)state;
    heads_cross_entropy(2, 2, logits, target, NULL, loss, NULL);
    assert_close(loss[0], log(4.0 / 3), 1e-12, 0);
    assert_close(loss[1], 1000, 1e-12, 0);
    heads_gaussian_logp(1, 1, &mean, &log_std, &action, &logp);
    assert_close(logp, -0.5 - log(2) - 0.5 * log(TWO_PI), 1e-12, 0);
}

static void noise_of_the_stochastic_steps_is_as_published(void **state)
{
    static const double four[] = {.500, .433, .250, .144}, five[] = {.500, .447, .274, .183, .112};

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_close(heads_flow_sde(i, 4, 0.5).std, four[i], 0, 6e-4);
    for (int i = 0; i < 5; i++)
        assert_close(heads_flow_sde(i, 5, 0.5).std, five[i], 0, 6e-4);
    for (int i = 0; i < 5; i++) { // without noise it is Euler's
        const struct heads_flow a = heads_flow_sde(i, 5, 0), b = heads_flow_step(i, 5);

        assert_close(a.by_x, b.by_x, 0, 1e-15);
        assert_close(a.by_v, b.by_v, 0, 1e-15);
        assert_true(a.std == 0);
    }
    // the other form: (1 - t') a + (t' - s^2 h / (2 t)) e with a = x - t v, e = x + (1 - t) v
    for (int i = 0; i < 4; i++) {
        const struct heads_flow f = heads_flow_sde(i, 4, 0.5);
        const double h = 0.25, x = 0.7, v = -1.3, a = x - f.t * v, e = x + (1 - f.t) * v;
        const double s2 = f.std * f.std / h, next = f.t - h;

        assert_close(f.by_x * x + f.by_v * v, (1 - next) * a + (next - s2 * h / (2 * f.t)) * e, 0,
                     1e-12);
    }
}

// Data N(0.3, 0.2^2): the exact velocity is linear in x, so that means and variances can be
// followed.
static double final_std(int steps, double noise_level)
{
    double mean = 0, var = 1;

    for (int i = 0; i < steps; i++) {
        const struct heads_flow f =
            noise_level > 0 ? heads_flow_sde(i, steps, noise_level) : heads_flow_step(i, steps);
        const double t = f.t, total = t * t + (1 - t) * (1 - t) * 0.04;
        // E[noise - action | x] = gain (x - (1 - t) 0.3) - 0.3
        const double gain = (t - (1 - t) * 0.04) / total;

        mean = f.by_x * mean + f.by_v * (gain * (mean - (1 - t) * 0.3) - 0.3);
        var = (f.by_x + f.by_v * gain) * (f.by_x + f.by_v * gain) * var + f.std * f.std;
    }
    assert_close(mean, 0.3, 0, 1e-9);
    return sqrt(var);
}

// In units of its standard deviation a step is a Gaussian of 1: the same likelihood but for that
// constant, and the same gradient.
static void a_step_in_its_own_units_is_the_same_step(void **state)
{
    struct rng r = rng_make(2, RNG_TEST, 0, 0, 0);
    struct heads_flow f[DIM];
    struct rig g;
    real mean[N * DIM], z[N * DIM], d_mean[N * DIM], d_v[N * DIM];

    (void)state;
    for (int i = 0; i < 4; i++) {
        fill(&g, &r);
        heads_flow_levels(i, 4, DIM, g.log_std, f);
        heads_flow_unit(f, DIM, N * DIM, g.x, g.v, mean);
        for (int k = 0; k < N * DIM; k++) {
            z[k] = g.a[k] / f[k % DIM].std;
            d_mean[k] = g.d[k] * (z[k] - mean[k]);
        }
        heads_flow_unit_backward(f, DIM, N * DIM, d_mean, d_mean);
        for (int d = 0; d < DIM; d++) {
            g.f = heads_flow_sde(i, 4, exp(g.log_std[d]));
            heads_flow_logp(&g.f, N * DIM, g.x, g.v, g.a, g.out);
            heads_flow_logp_backward(&g.f, N * DIM, g.x, g.v, g.a, g.d, d_v);
            for (int k = d; k < N * DIM; k += DIM) {
                const double e = z[k] - mean[k];

                assert_close(-0.5 * e * e - LOG_SQRT_2_PI - log(g.f.std), g.out[k], 1e-12, 1e-12);
                assert_close(d_mean[k], d_v[k], 1e-12, 1e-12);
            }
        }
    }
}

static void samplers_reach_the_spread_of_the_data(void **state)
{
    (void)state;
    assert_close(final_std(5, 0), .114, 0, 2e-3);
    assert_close(final_std(5, 0.5), .160, 0, 2e-3);
    assert_close(final_std(50, 0), .190, 0, 2e-3);
    assert_close(final_std(50, 0.5), .195, 0, 2e-3);
}

static void times_and_points_follow_the_convention(void **state)
{
    const real noise[] = {2, 4}, action[] = {1, 0}, t[] = {0.25};
    real x[2], u[2], e[6];

    (void)state;
    assert_close(heads_flow_time(0), 0.001, 1e-12, 0);
    assert_close(heads_flow_time(1), 1, 1e-12, 0);
    assert_close(heads_flow_time(0.125), 0.999 * 0.25 + 0.001, 1e-12, 0);
    heads_flow_point(1, 2, noise, action, t, x, u);
    assert_true(x[0] == 1.25 && x[1] == 1 && u[0] == 1 && u[1] == 4);
    heads_time_embedding(0.3, 6, e);
    assert_close(e[0], sin(TWO_PI / 0.004 * 0.3), 0, 1e-9);
    assert_close(e[2], sin(TWO_PI / 4 * 0.3), 0, 1e-9);
    assert_close(e[4], cos(TWO_PI / sqrt(0.016) * 0.3), 0, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(gradients_agree_with_finite_differences),
        leak_test(values_are_what_the_formulas_say),
        leak_test(noise_of_the_stochastic_steps_is_as_published),
        leak_test(a_step_in_its_own_units_is_the_same_step),
        leak_test(samplers_reach_the_spread_of_the_data),
        leak_test(times_and_points_follow_the_convention),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
