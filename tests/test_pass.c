#include "tests/golden_ppo.h"

#include "common/base/rng.h"
#include "nn/simd.h"

static void pytorch_gets_the_same_to_single_precision(void **state)
{
    int level;

    (void)state;
    for (level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        golden_check(1e-5);
    }
}

static void cuts_change_no_more_than_rounding(void **state)
{
    struct rng rng = rng_make(4, RNG_TEST, 0, 0, 0);
    static struct golden g;
    static real grad[GOLDEN_PARAM];
    struct nets nets = {0};
    struct pass pass = {0};
    int round, at, n;

    (void)state;
    golden_load(&g);
    assert_ok(nets_init(&nets, &g.shape));
    assert_ok(pass_init(&pass, &nets));
    nets_pack(&nets, g.params);
    for (round = 0; round < 50; round++) {
        struct loss_sums sums = {0};

        memset(grad, 0, sizeof grad);
        for (at = 0; at < GOLDEN_N; at += n) {
            n = 1 + (int)rng_below(&rng, 20);
            n = at + n > GOLDEN_N ? GOLDEN_N - at : n;
            golden_pass(&g, &nets, &pass, at, n, round % 2, grad, &sums);
        }
        assert_true(golden_distance(grad, g.grad[round % 2], g.n_param) < 1e-5);
    }
    pass_fini(&pass);
    nets_fini(&nets);
}

// pass_value leaves what pass_run needs for the same rows.
static void kept_values_save_a_forward(void **state)
{
    static struct golden g;
    static real a[GOLDEN_PARAM], b[GOLDEN_PARAM];
    real values[GOLDEN_N], weight[GOLDEN_N], logp_ref[GOLDEN_N];
    struct loss_sums sums = {0}, again = {0};
    struct nets nets = {0};
    struct pass pass = {0};
    struct samples s;

    (void)state;
    golden_load(&g);
    s = (struct samples){.n = GOLDEN_N - 5,
                         .x = g.x,
                         .action = g.action,
                         .advantage = g.advantage,
                         .target = g.target,
                         .logp_behaviour = g.logp_behaviour,
                         .weight = weight,
                         .logp_ref = logp_ref};
    assert_ok(nets_init(&nets, &g.shape));
    assert_ok(pass_init(&pass, &nets));
    nets_pack(&nets, g.params);
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    pass_run(&pass, &nets, &golden_config, &s, true, false, a, &sums);
    pass_value(&pass, &nets, g.x, NULL, GOLDEN_N, values);
    pass_run(&pass, &nets, &golden_config, &s, true, true, b, &again);
    assert_memory_equal(a, b, sizeof a);
    assert_true(sums.value == again.value);
    pass_fini(&pass);
    nets_fini(&nets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pytorch_gets_the_same_to_single_precision),
        leak_test(cuts_change_no_more_than_rounding),
        leak_test(kept_values_save_a_forward),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
