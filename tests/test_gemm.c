#include "tests/testing.h"

#include "common/base/rng.h"
#include "nn/gemm.h"

// BLAS has had kernels that were wrong on new processors, so every shape in use is compared with
// plain loops.

static float *random_floats(int n, uint64_t stream)
{
    struct rng rng = rng_make(2, RNG_TEST, stream, 0, 0);
    float *p = mem_alloc((size_t)n, sizeof *p);

    assert_non_null(p);
    for (int i = 0; i < n; i++)
        p[i] = (float)rng_normal(&rng);
    return p;
}

// c (m, n) += a^T b over k rows
static void check_tn_add(int m, int n, int k)
{
    int lda = REAL_LD(m), ldb = REAL_LD(n), i, j, l;
    float *a = random_floats(k * lda, 1), *b = random_floats(k * ldb, 2);
    float *c = random_floats(m * n, 3), *before = random_floats(m * n, 3);

    gemm_tn_add(m, n, k, a, lda, b, ldb, c, n);
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) {
            double want = (double)before[i * n + j];

            for (l = 0; l < k; l++)
                want += (double)a[l * lda + i] * (double)b[l * ldb + j];
            assert_close(c[i * n + j], want, 1e-4, 1e-4 * sqrt(k));
        }
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(before);
}

// c (m, n) = a b over k columns
static void check_nn(int m, int n, int k)
{
    int lda = REAL_LD(k), ldc = REAL_LD(n), i, j, l;
    float *a = random_floats(m * lda, 4), *b = random_floats(k * n, 5);
    float *c = random_floats(m * ldc, 6);

    gemm_nn(m, n, k, a, lda, b, n, c, ldc);
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) {
            double want = 0;

            for (l = 0; l < k; l++)
                want += (double)a[i * lda + l] * (double)b[l * n + j];
            assert_close(c[i * ldc + j], want, 1e-4, 1e-4 * sqrt(k));
        }
    mem_free(a);
    mem_free(b);
    mem_free(c);
}

static const int widths[][2] = {{17, 64}, {64, 64},  {64, 6},    {64, 1},  {376, 256},
                                {27, 64}, {256, 17}, {256, 256}, {1, 1},   {16, 16},
                                {5, 16},  {16, 3},   {105, 128}, {128, 8}, {11, 32}};
static const int rows[] = {1, 2, 7, 31, 32, 64, 100, 255, 256};

#define N_WIDTH (int)(sizeof widths / sizeof *widths)
#define N_ROWS  (int)(sizeof rows / sizeof *rows)

static void weight_gradients_agree_with_plain_loops(void **state)
{
    int i, k;

    (void)state;
    for (i = 0; i < N_WIDTH; i++)
        for (k = 0; k < N_ROWS; k += i % 3 + 1)
            check_tn_add(widths[i][1], widths[i][0], rows[k]);
}

static void input_gradients_agree_with_plain_loops(void **state)
{
    int i, k;

    (void)state;
    for (i = 0; i < N_WIDTH; i++)
        for (k = 0; k < N_ROWS; k += i % 3 + 1)
            check_nn(rows[k], widths[i][0], widths[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(weight_gradients_agree_with_plain_loops),
        leak_test(input_gradients_agree_with_plain_loops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
