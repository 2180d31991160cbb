#include "tests/testing.h"

#include "common/base/rng.h"
#include "nn/linear.h"
#include "nn/simd.h"

#define ROWS_MAX 40

struct example {
    struct linear l;
    float *weight, *bias, *x, *y; // (n_out, n_in), (n_out), (ROWS_MAX, ldx), (ROWS_MAX, ldy)
};

static float *alloc(int64_t n)
{
    float *p = mem_alloc((size_t)n, sizeof *p);

    assert_non_null(p);
    return p;
}

static struct example make(int n_in, int n_out)
{
    struct rng rng = rng_make(1, RNG_TEST, (uint64_t)n_in, (uint64_t)n_out, 0);
    int ldx = REAL_LD(n_in), ldy = REAL_LD(n_out), i, k;
    struct example e = {.l = {.n_in = n_in, .n_out = n_out}};

    e.l.weight = alloc((int64_t)n_in * ldy);
    e.l.bias = alloc(ldy);
    e.weight = alloc((int64_t)n_in * n_out);
    e.bias = alloc(n_out);
    e.x = alloc((int64_t)ROWS_MAX * ldx);
    e.y = alloc((int64_t)ROWS_MAX * ldy);
    for (i = 0; i < n_in * n_out; i++)
        e.weight[i] = (float)rng_normal(&rng) / sqrtf((float)n_in);
    for (i = 0; i < n_out; i++)
        e.bias[i] = (float)rng_normal(&rng);
    for (i = 0; i < ROWS_MAX; i++)
        for (k = 0; k < n_in; k++)
            e.x[i * ldx + k] = (float)rng_normal(&rng);
    linear_pack(&e.l, e.weight, e.bias);
    return e;
}

static void drop(struct example *e)
{
    mem_free(e->l.weight);
    mem_free(e->l.bias);
    mem_free(e->weight);
    mem_free(e->bias);
    mem_free(e->x);
    mem_free(e->y);
}

static const int shapes[][2] = {{1, 1}, {17, 64}, {64, 64}, {64, 6}, {376, 256}, {5, 33}, {256, 1}};

#define N_SHAPE (int)(sizeof shapes / sizeof *shapes)

static void check_rows(const struct example *e, int n, bool squash)
{
    int ldx = REAL_LD(e->l.n_in), ldy = REAL_LD(e->l.n_out), i, o, k;

    linear_forward(&e->l, e->x, n, squash, e->y);
    for (i = 0; i < n; i++)
        for (o = 0; o < ldy; o++) {
            double want = o < e->l.n_out ? (double)e->bias[o] : 0;

            for (k = 0; k < e->l.n_in && o < e->l.n_out; k++)
                want += (double)e->weight[o * e->l.n_in + k] * (double)e->x[i * ldx + k];
            assert_close(e->y[i * ldy + o], squash ? tanh(want) : want, 1e-5, 2e-6);
        }
}

static void forward_agrees_with_plain_loops(void **state)
{
    int level, s;

    (void)state;
    for (level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        for (s = 0; s < N_SHAPE; s++) {
            struct example e = make(shapes[s][0], shapes[s][1]);

            check_rows(&e, 1, false);
            check_rows(&e, ROWS_MAX - 1, false);
            check_rows(&e, ROWS_MAX, true);
            drop(&e);
        }
    }
}

// Row by row, in every batch size and at every place, bit by bit.
static void a_row_does_not_depend_on_its_batch(void **state)
{
    int level, s, n, i;

    (void)state;
    for (level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        for (s = 0; s < N_SHAPE; s++) {
            struct example e = make(shapes[s][0], shapes[s][1]);
            int ldx = REAL_LD(e.l.n_in), ldy = REAL_LD(e.l.n_out);
            float *alone = alloc((int64_t)ROWS_MAX * ldy);

            for (i = 0; i < ROWS_MAX; i++)
                linear_forward(&e.l, e.x + i * ldx, 1, true, alone + i * ldy);
            for (n = 1; n <= ROWS_MAX; n++) {
                linear_forward(&e.l, e.x + (ROWS_MAX - n) * ldx, n, true, e.y);
                assert_memory_equal(e.y, alone + (ROWS_MAX - n) * ldy,
                                    (size_t)n * (size_t)ldy * sizeof *alone);
            }
            mem_free(alone);
            drop(&e);
        }
    }
}

static void vector_width_changes_nothing(void **state)
{
    struct example e = make(64, 48);
    float *wide = alloc(ROWS_MAX * REAL_LD(48));

    (void)state;
    simd_limit(SIMD_AVX512);
    if (simd_level() < SIMD_AVX2) {
        mem_free(wide);
        drop(&e);
        skip();
    }
    linear_forward(&e.l, e.x, ROWS_MAX, true, wide);
    simd_limit(SIMD_AVX2);
    linear_forward(&e.l, e.x, ROWS_MAX, true, e.y);
    assert_memory_equal(e.y, wide, ROWS_MAX * REAL_LD(48) * sizeof *wide);
    mem_free(wide);
    drop(&e);
}

// tanh(x) alone: one input, weight 1.
static float squash(struct example *e, float x)
{
    e->x[0] = x;
    linear_forward(&e->l, e->x, 1, true, e->y);
    return e->y[0];
}

static void tanh_is_exact_to_a_few_units(void **state)
{
    struct example e = make(1, 1);
    double x;
    int level;

    (void)state;
    e.weight[0] = 1;
    e.bias[0] = 0;
    linear_pack(&e.l, e.weight, e.bias);
    for (level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        for (x = -12; x < 12; x += 1.3e-3)
            assert_close(squash(&e, (float)x), tanh((double)(float)x), 4e-7, 0);
        for (x = 1e-30; x < 1e-3; x *= 3)
            assert_close(squash(&e, (float)x), tanh((double)(float)x), 4e-7, 0);
        assert_true(squash(&e, INFINITY) == 1 && squash(&e, -INFINITY) == -1);
        assert_true(squash(&e, 3e38f) == 1 && squash(&e, -3e38f) == -1);
        assert_true(isnan(squash(&e, NAN)));
    }
    drop(&e);
}

static int all_levels(void **state)
{
    simd_limit(SIMD_AVX512);
    return leak_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(forward_agrees_with_plain_loops, leak_setup, all_levels),
        cmocka_unit_test_setup_teardown(a_row_does_not_depend_on_its_batch, leak_setup, all_levels),
        cmocka_unit_test_setup_teardown(vector_width_changes_nothing, leak_setup, all_levels),
        cmocka_unit_test_setup_teardown(tanh_is_exact_to_a_few_units, leak_setup, all_levels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
