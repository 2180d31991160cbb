// Convolutions and their gradients, and those of the networks behind them: against PyTorch in both
// precisions, against finite differences in double, and a row alone against the same row in a
// batch.
#include "tests/golden_encoder.h"

#include "common/base/rng.h"
#include "nn/policy.h"
#include "nn/simd.h"

static void pytorch_gets_the_same_to_single_precision(void **state)
{
    int level;

    (void)state;
    for (level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        golden_encoder_check(1e-5, 1e-4);
    }
}

#define ROWS 6

// Each row's action, whatever batch it is in.
static void a_row_is_the_same_in_any_batch(void **state)
{
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    struct model_shape shape;
    struct weights *w;
    struct policy *p;
    static uint8_t pictures[ROWS][2][20 * 24 * 3];
    const uint8_t *list[ROWS][2];
    double obs[ROWS][3];
    struct policy_row rows[ROWS];
    float action[ROWS * 2], logp[ROWS], one[2], one_logp;
    int level, i, k;

    (void)state;
    assert_ok(model_shape_parse(&shape, 3, 2, "7"));
    shape.vision = (struct model_vision){.width = 24, .height = 20, .stack = 2, .state = true};
    assert_ok(model_conv_parse(&shape.vision, "9x5/3,18x3/1"));
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, 4, -0.5, w->params));
    assert_ok(policy_create(&p, &shape, ROWS));
    for (i = 0; i < ROWS; i++) {
        for (k = 0; k < 2; k++)
            list[i][k] = pictures[i][k];
        for (k = 0; k < (int)sizeof pictures[i]; k++)
            ((uint8_t *)pictures[i])[k] = (uint8_t)rng_u32(&rng);
        for (k = 0; k < 3; k++)
            obs[i][k] = rng_normal(&rng);
        rows[i] = (struct policy_row){obs[i], 3, (uint64_t)i, 0, 0, list[i], NULL};
    }
    rows[1].pictures = NULL;
    assert_fails(policy_act(p, w, rows, ROWS, true, action, NULL), ST_INVAL,
                 "row 1 has no pictures, the model sees 2");
    rows[1].pictures = list[1];
    for (level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        assert_ok(policy_act(p, w, rows, ROWS, false, action, logp));
        for (i = 0; i < ROWS; i++) {
            assert_ok(policy_act(p, w, &rows[i], 1, false, one, &one_logp));
            assert_memory_equal(one, action + 2 * i, sizeof one);
            assert_memory_equal(&one_logp, logp + i, sizeof one_logp);
        }
        // both pictures, their order and the observation matter
        for (k = 0; k < 4; k++) {
            pictures[0][k % 2][7] ^= k < 2 ? 0x80 : 0;
            obs[0][2] += k == 2 ? 1 : 0;
            list[0][0] = pictures[0][k == 3 ? 1 : 0];
            assert_ok(policy_act(p, w, rows, 1, true, one, NULL));
            assert_ok(policy_act(p, w, rows, 1, false, one, NULL));
            assert_true(memcmp(one, action, sizeof one) != 0);
            pictures[0][k % 2][7] ^= k < 2 ? 0x80 : 0;
            obs[0][2] -= k == 2 ? 1 : 0;
            list[0][0] = pictures[0][0];
        }
    }
    policy_destroy(p);
    weights_drop(w);
}

static void impossible_convolutions_are_named(void **state)
{
    static const char *const bad[] = {"",      "16",      "16x8",       "x8/4",         "16x8/4,",
                                      "a,b",   "16x8/4;", "16x8/4 8x2", "-1x2/1",       "16x8/0",
                                      "8x2/3", "8x70/4",  "8x33/1",     "8x16/1,8x60/4"};
    struct model_vision v = {.width = 64, .height = 64, .stack = 3}, copy;
    char text[96];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        copy = v;
        assert_fails(model_conv_parse(&copy, bad[i]), ST_INVAL, "convolution");
    }
    copy = v;
    assert_fails(model_conv_parse(&copy, "1x1/1,1x1/1,1x1/1,1x1/1,1x1/1"), ST_INVAL, "at most 4");
    assert_fails(model_conv_parse(&copy, "4096x1/1"), ST_INVAL, "too large");
    copy.stack = 9;
    assert_fails(model_conv_parse(&copy, "16x8/4"), ST_INVAL, "stack of pictures is 9");
    copy.stack = 1;
    copy.width = 0;
    assert_fails(model_conv_parse(&copy, "16x8/4"), ST_INVAL, "width of pictures is 0");
    assert_ok(model_conv_parse(&v, "16x8/4,32x4/2"));
    model_conv_print(&v, text, sizeof text);
    assert_string_equal(text, "16x8/4,32x4/2");
    assert_int_equal(model_n_feature(&v), 6 * 6 * 32);
    assert_int_equal(model_picture_bytes(&v), 64 * 64 * 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pytorch_gets_the_same_to_single_precision),
        leak_test(a_row_is_the_same_in_any_batch),
        leak_test(impossible_convolutions_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
