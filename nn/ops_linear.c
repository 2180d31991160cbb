#include "nn/ops.h"

#define KERNELS "nn/ops_linear_priv.h"
#include "nn/ops_levels.h"

void nn_linear_forward(const struct nn_linear *l, int n, const real *x, int ldx, real *y, int ldy)
{
    DISPATCH(linear_forward, l, n, x, ldx, y, ldy);
}

void nn_linear_backward(const struct nn_linear *l, int n, const real *x, int ldx, const real *dy,
                        int lddy, const struct nn_linear_grad *g)
{
    if (g->dx)
        DISPATCH(linear_input_grad, l, n, dy, lddy, g->dx, g->lddx, g->add);
    if (g->dweight)
        DISPATCH(linear_param_grad, l, n, x, ldx, dy, lddy, g->dweight, g->dbias);
}
