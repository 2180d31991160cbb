// The chunk loss in float, as the learner has it.
#include "tests/golden_token.h"

static void pytorch_gets_the_same_losses_and_gradients(void **state)
{
    (void)state;
    token_check(2e-6);
}

// The first part of a row is that of the whole: rollout and learner, which cut differently, agree.
static void a_sub_step_s_log_probability_does_not_depend_on_the_batch(void **state)
{
    static struct golden_token g;
    real one[TOKEN_C];

    (void)state;
    token_load(&g);
    for (int i = 0; i < TOKEN_N; i++) {
        gaussian_parts(g.mean + i * TOKEN_LD, TOKEN_LD, g.action + i * TOKEN_W, 1, TOKEN_W, TOKEN_C,
                       g.log_std, g.inv_std, one);
        assert_memory_equal(one, g.logp + i * TOKEN_C, sizeof one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pytorch_gets_the_same_losses_and_gradients),
        leak_test(a_sub_step_s_log_probability_does_not_depend_on_the_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
