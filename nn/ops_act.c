#include "nn/ops.h"

#define KERNELS "nn/ops_act_priv.h"
#include "nn/ops_levels.h"

void nn_gelu_forward(int64_t n, const real *x, real *y)
{
    DISPATCH(act_forward, NN_GEGLU, n, x, y);
}

void nn_gelu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    DISPATCH(act_backward, NN_GEGLU, n, x, dy, dx);
}

void nn_silu_forward(int64_t n, const real *x, real *y)
{
    DISPATCH(act_forward, NN_SWIGLU, n, x, y);
}

void nn_silu_backward(int64_t n, const real *x, const real *dy, real *dx)
{
    DISPATCH(act_backward, NN_SWIGLU, n, x, dy, dx);
}

void nn_glu_forward(enum nn_gate f, int n, int m, const real *u, real *y)
{
    DISPATCH(glu_forward, f, n, m, u, y);
}

void nn_glu_backward(enum nn_gate f, int n, int m, const real *u, const real *dy, real *du)
{
    DISPATCH(glu_backward, f, n, m, u, dy, du);
}

void nn_add(int64_t n, const real *a, const real *b, real *y)
{
    DISPATCH(add, n, a, b, y);
}
