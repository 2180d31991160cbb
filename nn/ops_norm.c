#include "nn/ops.h"

#ifdef REAL_IS_DOUBLE
#define SQRT sqrt
#else
#define SQRT sqrtf
#endif
#define KERNELS "nn/ops_norm_priv.h"
#include "nn/ops_levels.h"

void nn_rms_forward(const struct nn_norm *m, int n, const real *x, real *y, real *rstd)
{
    DISPATCH(rms_forward, m, n, x, y, rstd);
}

void nn_rms_backward(const struct nn_norm *m, int n, const real *x, const real *rstd,
                     const real *dy, const struct nn_norm_grad *g)
{
    DISPATCH(rms_backward, m, n, x, rstd, dy, g);
}

void nn_layer_norm_forward(const struct nn_norm *m, int n, const real *x, real *y, real *mean_rstd)
{
    DISPATCH(layer_norm_forward, m, n, x, y, mean_rstd);
}

void nn_layer_norm_backward(const struct nn_norm *m, int n, const real *x, const real *mean_rstd,
                            const real *dy, const struct nn_norm_grad *g)
{
    DISPATCH(layer_norm_backward, m, n, x, mean_rstd, dy, g);
}
