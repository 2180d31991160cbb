// The chunk loss in double: the same sources, compiled again.
#define REAL_IS_DOUBLE
#include "tests/golden_token.h"

// clang-format off
#include "nn/gaussian.c"
#include "learner/token_loss.c"
// clang-format on

#include "common/base/rng.h"

static void pytorch_gets_the_same_losses_and_gradients(void **state)
{
    (void)state;
    token_check(1e-12);
}

// --- finite differences --------------------------------------------------------------------------

// The loss with its entropy bonus; the weights and the start of the window are held.
static double total(struct golden_token *g, const struct token_config *cfg)
{
    struct token_result r = {0};
    double entropy = 0;

    token_update(g);
    token_run(g, cfg, true, 0, TOKEN_N, &r);
    for (int i = 0; i < TOKEN_N; i++)
        for (int d = 0; d < (int)g->n_sub[i] * TOKEN_D; d++)
            entropy += g->omega[i] * g->log_std[d];
    return r.sums.policy - cfg->entropy_coef * entropy;
}

static double difference(struct golden_token *g, const struct token_config *cfg, real *x)
{
    const double h = 1e-6, at = *x;
    double high, low;

    *x = at + h;
    high = total(g, cfg);
    *x = at - h;
    low = total(g, cfg);
    *x = at;
    return (high - low) / (2 * h);
}

static void gradients_are_those_of_finite_differences(void **state)
{
    static struct golden_token g;

    (void)state;
    token_load(&g);
    for (int i = 0; i < 2 * 3 * 2; i++) {
        struct token_config cfg = golden_token_config;
        struct token_result r = {0};

        cfg.level = i / 6 ? TOKEN_CHUNK : TOKEN_ACTION;
        cfg.mean = (enum token_mean)(i / 2 % 3);
        cfg.objective = i % 2 ? TOKEN_DECOUPLED : TOKEN_BEHAVIOUR;
        (void)token_prepare(&g, &cfg);
        token_update(&g);
        token_run(&g, &cfg, true, 0, TOKEN_N, &r);
        for (int k = 0; k < TOKEN_N; k++)
            for (int d = 0; d < TOKEN_W; d++)
                assert_close(r.mean_grad[k * TOKEN_LD + d],
                             difference(&g, &cfg, &g.mean[k * TOKEN_LD + d]), 1e-6, 1e-8);
        for (int d = 0; d < TOKEN_W; d++)
            assert_close(r.log_std_grad[d], difference(&g, &cfg, &g.log_std[d]), 1e-6, 1e-8);
    }
}

// --- properties ----------------------------------------------------------------------------------

// Any cut of the rows in any order gives the sums of the whole.
static void the_cut_does_not_matter(void **state)
{
    static struct golden_token g;

    (void)state;
    token_load(&g);
    for (int trial = 0; trial < 100; trial++) {
        struct rng rng = rng_make(4, RNG_TEST, (uint64_t)trial, 0, 0);
        struct token_config cfg = golden_token_config;
        struct token_result whole = {0}, cut = {0};

        cfg.level = trial % 2 ? TOKEN_CHUNK : TOKEN_ACTION;
        cfg.mean = (enum token_mean)(trial / 2 % 3);
        cfg.objective = trial / 6 % 2 ? TOKEN_DECOUPLED : TOKEN_BEHAVIOUR;
        (void)token_prepare(&g, &cfg);
        token_run(&g, &cfg, true, 0, TOKEN_N, &whole);
        for (int at = TOKEN_N, n; at > 0;) { // from the end on
            n = 1 + (int)rng_below(&rng, (uint32_t)at);
            at -= n;
            token_run(&g, &cfg, true, at, n, &cut);
        }
        assert_memory_equal(cut.mean_grad, whole.mean_grad, sizeof cut.mean_grad);
        for (int d = 0; d < TOKEN_W; d++)
            assert_close(cut.log_std_grad[d], whole.log_std_grad[d], 1e-12, 1e-14);
        assert_close(cut.sums.policy, whole.sums.policy, 1e-12, 0);
        assert_true(cut.sums.entries == whole.sums.entries);
    }
}

// Sub-steps after the end may hold anything.
static void what_was_not_executed_changes_nothing(void **state)
{
    static struct golden_token g, other;

    (void)state;
    token_load(&g);
    for (int trial = 0; trial < 12; trial++) {
        struct token_config cfg = golden_token_config;
        struct token_result a = {0}, b = {0};

        cfg.level = trial % 2 ? TOKEN_CHUNK : TOKEN_ACTION;
        cfg.mean = (enum token_mean)(trial / 2 % 3);
        cfg.objective = trial / 6 ? TOKEN_DECOUPLED : TOKEN_BEHAVIOUR;
        (void)token_prepare(&g, &cfg);
        other = g;
        for (int i = 0; i < TOKEN_N; i++)
            for (int k = (int)g.n_sub[i]; k < TOKEN_C; k++) {
                other.logp[i * TOKEN_C + k] = other.behaviour[i * TOKEN_C + k] = 17;
                other.start[i * TOKEN_C + k] = -4;
                for (int d = 0; d < TOKEN_D; d++)
                    other.action[i * TOKEN_W + k * TOKEN_D + d] = 1e6;
            }
        token_run(&g, &cfg, true, 0, TOKEN_N, &a);
        token_run(&other, &cfg, true, 0, TOKEN_N, &b);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

// With the policy that acted and no step since: no ratio, no clip, and both objectives have the
// gradient of -A l.
static void fresh_data_is_a_plain_policy_gradient(void **state)
{
    static struct golden_token g;
    struct token_config cfg = golden_token_config;
    struct token_result a = {0}, b = {0};

    (void)state;
    token_load(&g);
    memcpy(g.behaviour, g.logp, sizeof g.behaviour);
    (void)token_prepare(&g, &cfg);
    cfg.objective = TOKEN_BEHAVIOUR;
    token_run(&g, &cfg, false, 0, TOKEN_N, &a);
    cfg.objective = TOKEN_DECOUPLED;
    token_run(&g, &cfg, false, 0, TOKEN_N, &b);
    assert_memory_equal(a.mean_grad, b.mean_grad, sizeof a.mean_grad);
    assert_true(a.sums.clipped == 0 && a.sums.log_ratio_max == 0 && a.sums.kl == 0);
    assert_true(b.sums.weight == b.sums.entries && b.sums.capped == 0);
    for (int d = 0; d < TOKEN_D; d++) // of row 0's first sub-step
        assert_close(a.mean_grad[d],
                     -g.omega[0] * g.advantage[0] * (g.action[d] - g.mean[d]) * g.inv_std[d] *
                         g.inv_std[d],
                     1e-12, 0);
}

// A ratio of 4 with A < 0: the dual clip ends the gradient, which PPO alone would not.
static void the_dual_clip_bounds_what_a_bad_action_can_do(void **state)
{
    static struct golden_token g;
    struct token_config cfg = golden_token_config;
    struct token_result with = {0}, without = {0};

    (void)state;
    token_load(&g);
    g.advantage[0] = -1;
    g.n_sub[0] = 1;
    g.omega[0] = 1;
    g.behaviour[0] = g.logp[0] - log(4);
    cfg.entropy_coef = 0;
    token_run(&g, &cfg, false, 0, 1, &with);
    assert_true(with.sums.dual == 1 && with.mean_grad[0] == 0);
    assert_close(with.sums.policy, 3, 1e-12, 0);
    cfg.dual_clip = 0;
    token_run(&g, &cfg, false, 0, 1, &without);
    assert_close(without.sums.policy, 4, 1e-12, 0);
    assert_true(without.mean_grad[0] != 0);
}

// The mean of the score is 0: over samples of the policy itself the gradient of any constant
// advantage vanishes.
static void the_score_has_mean_zero(void **state)
{
    enum { N = 100000 };
    const struct token_config cfg = {.level = TOKEN_CHUNK, .clip_low = 0.2, .clip_high = 0.2};
    real mean[TOKEN_LD] = {0.3, -1, 0.5, 2}, log_std[4] = {-0.5, 0.2, -1, 0}, inv_std[4];
    double sum[8] = {0}, square[8] = {0};
    struct rng rng = rng_make(5, RNG_TEST, 0, 0, 0);

    (void)state;
    (void)gaussian_inv_std(log_std, 4, inv_std);
    for (int i = 0; i < N; i++) {
        real action[4], logp[2], grad[TOKEN_LD], std_grad[4] = {0}, one = 1;
        const uint32_t n_sub = 1 + (uint32_t)i % 2;
        struct token_sums sums = {0};

        for (int d = 0; d < 4; d++)
            action[d] = mean[d] + rng_normal(&rng) / inv_std[d];
        gaussian_parts(mean, TOKEN_LD, action, 1, 4, 2, log_std, inv_std, logp);
        token_loss(&cfg,
                   &(struct token_rows){.n = 1,
                                        .chunk = 2,
                                        .n_act = 2,
                                        .ld = TOKEN_LD,
                                        .mean = mean,
                                        .log_std = log_std,
                                        .inv_std = inv_std,
                                        .action = action,
                                        .n_sub = &n_sub,
                                        .logp = logp,
                                        .logp_behaviour = logp,
                                        .advantage = &one,
                                        .omega = &one},
                   grad, std_grad, &sums);
        for (int d = 0; d < 8; d++) {
            double x = d < 4 ? grad[d] : std_grad[d - 4];

            sum[d] += x;
            square[d] += x * x;
        }
    }
    for (int d = 0; d < 8; d++)
        assert_true(fabs(sum[d]) < 4 * sqrt(square[d]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pytorch_gets_the_same_losses_and_gradients),
        leak_test(gradients_are_those_of_finite_differences),
        leak_test(the_cut_does_not_matter),
        leak_test(what_was_not_executed_changes_nothing),
        leak_test(fresh_data_is_a_plain_policy_gradient),
        leak_test(the_dual_clip_bounds_what_a_bad_action_can_do),
        leak_test(the_score_has_mean_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
