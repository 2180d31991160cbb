#include "nn/linear.h"

#define KERNELS "nn/linear_priv.h"
#include "nn/ops_levels.h"

void linear_pack(struct linear *l, const real *weight, const real *bias)
{
    const int ld = REAL_LD(l->n_out);
    int i, o;

    for (i = 0; i < l->n_in; i++)
        for (o = 0; o < l->n_out; o++)
            l->weight[(size_t)i * ld + o] = weight[(size_t)o * l->n_in + i];
    memcpy(l->bias, bias, (size_t)l->n_out * sizeof *bias);
}

void linear_forward(const struct linear *l, const real *x, int n, bool squash, real *y)
{
    DISPATCH(forward, l, x, n, squash, y)
}
