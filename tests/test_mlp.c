// Networks of other depths and widths than the golden file's, in double.
#define REAL_IS_DOUBLE
#include "tests/testing.h"

// clang-format off
#include "nn/linear.c"
#include "nn/gemm.c"
#include "nn/mlp.c"
// clang-format on

#include "common/base/rng.h"

#define N 9

// The sum of outputs times fixed factors, so that its gradient by an output is the factor.
static double score(const struct mlp *m, struct mlp_rows *rows, const real *x, const real *factor)
{
    const struct linear *last = &m->layer[m->n_layer - 1];
    const real *y = mlp_forward(m, rows, x, N);
    double sum = 0;

    for (int i = 0; i < N; i++)
        for (int o = 0; o < REAL_LD(last->n_out); o++)
            sum += y[i * REAL_LD(last->n_out) + o] * factor[i * REAL_LD(last->n_out) + o];
    return sum;
}

static real *normal_numbers(int64_t n, double scale, uint64_t stream)
{
    struct rng rng = rng_make(3, RNG_TEST, stream, 0, 0);
    real *p = mem_alloc((size_t)n, sizeof *p);

    assert_non_null(p);
    for (int64_t i = 0; i < n; i++)
        p[i] = scale * rng_normal(&rng);
    return p;
}

static void zero_padding(real *p, int width)
{
    for (int i = 0; i < N; i++)
        memset(p + i * REAL_LD(width) + width, 0, (size_t)(REAL_LD(width) - width) * sizeof *p);
}

static void check(int n_obs, int n_out, const char *hidden)
{
    struct model_shape shape;
    struct mlp_rows rows;
    struct mlp m;
    real *params, *x, *factor, *grad;
    int64_t i;

    assert_ok(model_shape_parse(&shape, n_obs, 1, hidden));
    assert_ok(mlp_init(&m, &shape, n_out));
    assert_ok(mlp_rows_init(&rows, &m, N, true));
    params = normal_numbers(mlp_n_param(&m), 0.3, 0);
    x = normal_numbers((int64_t)N * REAL_LD(n_obs), 1, 1);
    factor = normal_numbers((int64_t)N * REAL_LD(n_out), 1, 2);
    grad = normal_numbers(mlp_n_param(&m), 0, 3);
    zero_padding(x, n_obs);
    zero_padding(factor, n_out);
    mlp_pack(&m, params);
    (void)score(&m, &rows, x, factor);
    memcpy(mlp_out_grad(&m, &rows), factor, (size_t)(N * REAL_LD(n_out)) * sizeof *factor);
    mlp_backward(&m, &rows, x, N, grad, NULL);
    for (i = 0; i < mlp_n_param(&m); i += 1 + i / 50) {
        const double h = 1e-6, held = params[i];
        double up, down;

        params[i] = held + h;
        mlp_pack(&m, params);
        up = score(&m, &rows, x, factor);
        params[i] = held - h;
        mlp_pack(&m, params);
        down = score(&m, &rows, x, factor);
        params[i] = held;
        assert_close(grad[i], (up - down) / (2 * h), 1e-6, 1e-6);
    }
    mem_free(params);
    mem_free(x);
    mem_free(factor);
    mem_free(grad);
    mlp_rows_fini(&rows);
    mlp_fini(&m);
}

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    check(1, 1, "1");
    check(5, 3, "9");
    check(7, 2, "8,16");
    check(11, 4, "13,7,5");
    check(6, 17, "3,33,8,10");
}

static void backward_adds(void **state)
{
    struct model_shape shape;
    struct mlp_rows rows;
    struct mlp m;
    real *params, *x, *factor, *grad;
    int64_t i, n;

    (void)state;
    assert_ok(model_shape_parse(&shape, 3, 1, "4"));
    assert_ok(mlp_init(&m, &shape, 2));
    assert_ok(mlp_rows_init(&rows, &m, N, true));
    n = mlp_n_param(&m);
    params = normal_numbers(n, 0.3, 0);
    x = normal_numbers(N * REAL_LD(3), 1, 1);
    factor = normal_numbers(N * REAL_LD(2), 1, 2);
    grad = normal_numbers(2 * n, 0, 3);
    zero_padding(x, 3);
    zero_padding(factor, 2);
    mlp_pack(&m, params);
    for (i = 0; i < 3; i++) {
        (void)mlp_forward(&m, &rows, x, N);
        memcpy(mlp_out_grad(&m, &rows), factor, (size_t)(N * REAL_LD(2)) * sizeof *factor);
        mlp_backward(&m, &rows, x, N, i == 0 ? grad + n : grad, NULL); // once there, twice here
    }
    for (i = 0; i < n; i++)
        assert_close(grad[i], 2 * grad[n + i], 1e-12, 1e-12);
    mem_free(params);
    mem_free(x);
    mem_free(factor);
    mem_free(grad);
    mlp_rows_fini(&rows);
    mlp_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(gradients_agree_with_finite_differences),
        leak_test(backward_adds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
