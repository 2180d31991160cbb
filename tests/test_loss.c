// The losses, the networks and their gradients in double: the same sources as the learner's,
// compiled again.
#define REAL_IS_DOUBLE
#include "tests/golden_ppo.h"

// clang-format off
#include "nn/linear.c"
#include "nn/gemm.c"
#include "nn/gaussian.c"
#include "nn/encoder.c"
#include "nn/mlp.c"
#include "learner/loss.c"
#include "learner/pass.c"
// clang-format on

#include "common/base/rng.h"

static void pytorch_gets_the_same_losses_and_gradients(void **state)
{
    (void)state;
    golden_check(1e-9);
}

// --- finite differences --------------------------------------------------------------------------

// The whole loss at other parameters, with importance weights (and, in the first pass, the
// reference of the ratio) held where they are.
static double total_loss(const struct golden *g, struct nets *nets, struct pass *pass,
                         const real *params, const real *weight, const real *logp_ref)
{
    static real grad[GOLDEN_PARAM];
    struct loss_sums sums = {0};
    struct samples s = {.n = GOLDEN_N,
                        .x = g->x,
                        .action = g->action,
                        .advantage = g->advantage,
                        .target = g->target,
                        .weight = (real *)weight,
                        .logp_ref = (real *)logp_ref};
    double entropy = 0;
    int d;

    nets_pack(nets, params);
    pass_run(pass, nets, &golden_config, &s, false, false, grad, &sums);
    for (d = 0; d < GOLDEN_ACT; d++)
        entropy += params[nets->table.piece[nets->table.i_log_std].offset + d];
    return sums.policy + golden_config.value_coef * sums.value -
           golden_config.entropy_coef * GOLDEN_N * entropy;
}

static void check_differences(struct golden *g, bool first)
{
    static real grad[GOLDEN_PARAM], at[GOLDEN_PARAM];
    real weight[GOLDEN_N], logp_ref[GOLDEN_N];
    struct loss_sums sums = {0};
    struct nets nets = {0};
    struct pass pass = {0};
    struct samples s = {.n = GOLDEN_N,
                        .x = g->x,
                        .action = g->action,
                        .advantage = g->advantage,
                        .target = g->target,
                        .logp_behaviour = g->logp_behaviour,
                        .weight = weight,
                        .logp_ref = logp_ref};
    int64_t i;

    assert_ok(nets_init(&nets, &g->shape));
    assert_ok(pass_init(&pass, &nets));
    nets_pack(&nets, g->params);
    memcpy(weight, g->weight, sizeof weight);
    memcpy(logp_ref, g->logp_ref, sizeof logp_ref);
    memset(grad, 0, sizeof grad);
    pass_run(&pass, &nets, &golden_config, &s, first, false, grad, &sums);
    for (i = 0; i < g->n_param; i++) {
        const double h = 1e-6;
        double up, down;

        memcpy(at, g->params, sizeof at);
        at[i] += h;
        up = total_loss(g, &nets, &pass, at, weight, logp_ref);
        at[i] -= 2 * h;
        down = total_loss(g, &nets, &pass, at, weight, logp_ref);
        assert_close(grad[i], (up - down) / (2 * h), 1e-6, 1e-6);
    }
    pass_fini(&pass);
    nets_fini(&nets);
}

static void gradients_agree_with_finite_differences(void **state)
{
    static struct golden g;

    (void)state;
    golden_load(&g);
    check_differences(&g, true);
    check_differences(&g, false);
}

// --- cuts and order ------------------------------------------------------------------------------

static void swap_rows(real *p, int width, int a, int b)
{
    for (int k = 0; k < width; k++) {
        real held = p[a * width + k];

        p[a * width + k] = p[b * width + k];
        p[b * width + k] = held;
    }
}

static void permute(struct golden *g, struct rng *rng)
{
    for (int i = GOLDEN_N - 1; i > 0; i--) {
        int k = (int)rng_below(rng, (uint32_t)i + 1);

        swap_rows(g->x, REAL_LD(GOLDEN_OBS), i, k);
        swap_rows(g->action, GOLDEN_ACT, i, k);
        swap_rows(g->advantage, 1, i, k);
        swap_rows(g->target, 1, i, k);
        swap_rows(g->logp_behaviour, 1, i, k);
        swap_rows(g->logp_ref, 1, i, k);
        swap_rows(g->weight, 1, i, k);
    }
}

static void cuts_and_order_change_nothing(void **state)
{
    struct rng rng = rng_make(4, RNG_TEST, 0, 0, 0);
    static struct golden g;
    struct nets nets = {0};
    struct pass pass = {0};
    int round, first;

    (void)state;
    golden_load(&g);
    assert_ok(nets_init(&nets, &g.shape));
    assert_ok(pass_init(&pass, &nets));
    nets_pack(&nets, g.params);
    for (round = 0; round < 50; round++) {
        permute(&g, &rng);
        for (first = 0; first < 2; first++) {
            static real grad[GOLDEN_PARAM];
            struct loss_sums sums = {0};
            int at = 0, n;

            memset(grad, 0, sizeof grad);
            for (; at < GOLDEN_N; at += n) {
                n = 1 + (int)rng_below(&rng, 20);
                n = at + n > GOLDEN_N ? GOLDEN_N - at : n;
                golden_pass(&g, &nets, &pass, at, n, first, grad, &sums);
            }
            assert_int_equal(sums.samples, GOLDEN_N);
            assert_true(golden_distance(grad, g.grad[first], g.n_param) < 1e-10);
            assert_close(sums.policy, g.loss[first][0], 1e-10, 1e-10);
        }
    }
    pass_fini(&pass);
    nets_fini(&nets);
}

// --- single losses -------------------------------------------------------------------------------

static const struct loss_config one_config = {.clip = 0.2, .value_coef = 1, .weight_cap = 2};

// Slope by the log-probability of one sample with the given ratio, advantage and weight; the action
// is one deviation above the mean, so the slope by the mean is the same number.
static double slope(double ratio, double advantage, double weight, struct loss_sums *sums)
{
    real mean[REAL_PAD] = {0}, grad[REAL_PAD], log_std_grad = 0, inv_std = 1, action = 1;
    real logp = (real)log(ratio), ref = 0, a = (real)advantage, w = (real)weight;
    struct loss_rows rows = {.n = 1,
                             .n_act = 1,
                             .mean = mean,
                             .inv_std = &inv_std,
                             .action = &action,
                             .logp = &logp,
                             .logp_ref = &ref,
                             .weight = &w,
                             .advantage = &a};

    memset(sums, 0, sizeof *sums);
    loss_policy(&one_config, &rows, grad, &log_std_grad, sums);
    assert_close(log_std_grad, 0, 0, 1e-12); // z^2 - 1 = 0
    return (double)grad[0];
}

static void clipping_stops_moves_that_went_far_enough(void **state)
{
    struct loss_sums s;

    (void)state;
    assert_close(slope(1.1, 2, 1, &s), -2.2, 1e-12, 0);
    assert_close(s.clipped, 0, 0, 0);
    assert_close(slope(1.3, 2, 1, &s), 0, 0, 0); // good action, already likelier
    assert_close(s.policy, -1.2 * 2, 1e-12, 0);
    assert_close(s.clipped, 1, 0, 0);
    assert_close(slope(0.7, -2, 1, &s), 0, 0, 0); // bad action, already rarer
    assert_close(s.policy, 0.8 * 2, 1e-12, 0);
    assert_close(slope(1.3, -2, 1, &s), 2.6, 1e-12, 0); // bad action that became likelier
    assert_close(slope(0.7, 2, 1, &s), -1.4, 1e-12, 0);
    assert_close(slope(1.1, 2, 0.5, &s), -1.1, 1e-12, 0);
    assert_true(isfinite(slope(1e300, -2, 1, &s)));
}

static void importance_weights_are_capped(void **state)
{
    const real logp[5] = {-1, -1, -1, 0, -3}, behaviour[5] = {-1, -1.5, -2, -1e30, 1e30};
    real weight[5];
    struct loss_sums sums = {0};

    (void)state;
    loss_weights(logp, behaviour, 5, 2, weight, &sums);
    assert_true(weight[0] == 1);
    assert_close(weight[1], exp(0.5), 1e-12, 0);
    assert_close(weight[2], 2, 0, 0);
    assert_close(weight[3], 2, 0, 0);
    assert_close(weight[4], 0, 0, 1e-8);
    assert_true(isfinite(sums.kl));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pytorch_gets_the_same_losses_and_gradients),
        leak_test(gradients_agree_with_finite_differences),
        leak_test(cuts_and_order_change_nothing),
        leak_test(clipping_stops_moves_that_went_far_enough),
        leak_test(importance_weights_are_capped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
