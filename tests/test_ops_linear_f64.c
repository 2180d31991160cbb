// The linear operator in double: gradients by finite differences, over random shapes.
#define REAL_IS_DOUBLE
#include "tests/ops_testing.h"

struct rig {
    struct nn_linear l;
    int n, ldx, ldy;
    real *x, *w, *b, *y, *factor;
};

static double loss(void *arg)
{
    struct rig *g = arg;

    nn_linear_forward(&g->l, g->n, g->x, g->ldx, g->y, g->ldy);
    return weighted(g->y, g->factor, (int64_t)g->n * g->ldy);
}

static void gradients_agree_with_finite_differences(void **state)
{
    struct rng r = rng_make(1, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 40; i++) {
        struct rig g = {.l = {.n_in = between(&r, 1, 70), .n_out = between(&r, 1, 70)},
                        .n = between(&r, 0, 20)};
        const bool bias = rng_below(&r, 2);
        real *dx, *dw, *db, *held;
        int64_t n_x, n_w;

        g.ldx = g.l.n_in + between(&r, 0, 3);
        g.ldy = g.l.n_out + between(&r, 0, 3);
        n_x = (int64_t)g.n * g.ldx;
        n_w = (int64_t)g.l.n_in * g.l.n_out;
        g.x = normals(&r, n_x, 1);
        g.l.weight = g.w = normals(&r, n_w, 1);
        g.b = normals(&r, g.l.n_out, 1);
        g.l.bias = bias ? g.b : NULL;
        g.y = zeros((int64_t)g.n * g.ldy);
        g.factor = normals(&r, (int64_t)g.n * g.ldy, 1);
        dx = zeros(n_x);
        dw = zeros(n_w);
        db = zeros(g.l.n_out);
        held = zeros(n_x);
        nn_linear_backward(&g.l, g.n, g.x, g.ldx, g.factor, g.ldy,
                           &(struct nn_linear_grad){
                               .dx = dx, .lddx = g.ldx, .dweight = dw, .dbias = bias ? db : NULL});
        check_gradient(loss, &g, g.x, n_x, dx, 8, &r);
        check_gradient(loss, &g, g.w, n_w, dw, 8, &r);
        if (bias)
            check_gradient(loss, &g, g.b, g.l.n_out, db, 8, &r);
        // it adds where it should
        memcpy(held, dx, (size_t)n_x * sizeof *dx);
        nn_linear_backward(&g.l, g.n, g.x, g.ldx, g.factor, g.ldy,
                           &(struct nn_linear_grad){.dx = dx, .lddx = g.ldx, .add = true});
        for (int64_t k = 0; k < n_x; k++)
            assert_close(dx[k], 2 * held[k], 1e-12, 1e-12);
        mem_free(g.x);
        mem_free(g.w);
        mem_free(g.b);
        mem_free(g.y);
        mem_free(g.factor);
        mem_free(dx);
        mem_free(dw);
        mem_free(db);
        mem_free(held);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_test(gradients_agree_with_finite_differences)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
