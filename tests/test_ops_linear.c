// The linear operator in float: values against double sums at every vector width, and rows that do
// not depend on their company.
#include "tests/ops_testing.h"

#include "nn/simd.h"

static const int shapes[][3] = {{1, 1, 1},    {3, 17, 33},   {9, 64, 64},   {40, 300, 130},
                                {13, 257, 7}, {31, 600, 96}, {300, 48, 20}, {0, 5, 5}};

struct example {
    struct nn_linear l;
    int n;
    real *x, *w, *b, *y, *dx, *dw, *db;
};

static void make(struct example *e, struct rng *r, const int *shape)
{
    e->n = shape[0];
    e->l = (struct nn_linear){.n_in = shape[1], .n_out = shape[2]};
    e->x = normals(r, (int64_t)e->n * e->l.n_in, 1);
    e->l.weight = e->w = normals(r, (int64_t)e->l.n_out * e->l.n_in, 1);
    e->l.bias = e->b = normals(r, e->l.n_out, 1);
    e->y = normals(r, (int64_t)e->n * e->l.n_out, 1);
    e->dx = zeros((int64_t)e->n * e->l.n_in);
    e->dw = zeros((int64_t)e->l.n_out * e->l.n_in);
    e->db = zeros(e->l.n_out);
}

static void drop(struct example *e)
{
    real *all[] = {e->x, e->w, e->b, e->y, e->dx, e->dw, e->db};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

// a sum of `n` products with distances between them
static double product(const real *a, int da, const real *b, int db, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)a[i * da] * (double)b[i * db];
    return sum;
}

static void check(struct example *e)
{
    const int n_in = e->l.n_in, n_out = e->l.n_out;
    const double tol = 3e-6 * sqrt((double)(n_in + n_out + e->n));
    real *dy = e->y; // any numbers

    nn_linear_backward(
        &e->l, e->n, e->x, n_in, dy, n_out,
        &(struct nn_linear_grad){.dx = e->dx, .lddx = n_in, .dweight = e->dw, .dbias = e->db});
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < n_in; k++)
            assert_close((double)e->dx[i * n_in + k],
                         product(dy + i * n_out, 1, e->w + k, n_in, n_out), 1e-5, tol);
    for (int o = 0; o < n_out; o++)
        for (int k = 0; k < n_in; k++)
            assert_close((double)e->dw[o * n_in + k], product(dy + o, n_out, e->x + k, n_in, e->n),
                         1e-5, tol);
    for (int o = 0; o < n_out; o++) {
        real one = 1;

        assert_close((double)e->db[o], product(dy + o, n_out, &one, 0, e->n), 1e-5, tol);
    }
    nn_linear_forward(&e->l, e->n, e->x, n_in, e->y, n_out);
    for (int i = 0; i < e->n; i++)
        for (int o = 0; o < n_out; o++)
            assert_close((double)e->y[i * n_out + o],
                         (double)e->b[o] + product(e->x + i * n_in, 1, e->w + o * n_in, 1, n_in),
                         1e-5, tol);
}

static void every_vector_width_computes_the_products(void **state)
{
    (void)state;
    for (int level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        struct rng r = rng_make(2, RNG_TEST, 0, 0, 0);

        simd_limit((enum simd_level)level);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct example e;

            make(&e, &r, shapes[i]);
            check(&e);
            drop(&e);
        }
    }
    simd_limit(SIMD_AVX512);
}

static void a_row_is_the_same_in_any_batch(void **state)
{
    struct rng r = rng_make(3, RNG_TEST, 0, 0, 0);
    struct example e;
    real alone[130], back[300];

    (void)state;
    make(&e, &r, shapes[3]);
    nn_linear_forward(&e.l, e.n, e.x, 300, e.y, 130);
    nn_linear_backward(&e.l, e.n, e.x, 300, e.y, 130,
                       &(struct nn_linear_grad){.dx = e.dx, .lddx = 300});
    for (int i = 0; i < e.n; i++) {
        nn_linear_forward(&e.l, 1, e.x + i * 300, 300, alone, 130);
        assert_memory_equal(alone, e.y + i * 130, sizeof alone);
        nn_linear_backward(&e.l, 1, e.x + i * 300, 300, alone, 130,
                           &(struct nn_linear_grad){.dx = back, .lddx = 300});
        assert_memory_equal(back, e.dx + i * 300, sizeof back);
    }
    drop(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(every_vector_width_computes_the_products),
        leak_test(a_row_is_the_same_in_any_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
