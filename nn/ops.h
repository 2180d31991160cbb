// ops.h - the operators of transformer policies, forward and backward, on packed rows.
//
// A buffer of rows is (n, width) with a distance `ld` between rows, of any length: sequences lie
// one behind the other, without padding, and operators that mix rows take cumulative lengths.
// Weights are (n_out, n_in) as PyTorch has them. Gradients of parameters are added to, gradients of
// inputs are set unless it says otherwise.
//
// A device implements `struct nn_backend`; `nn_cpu` is the one for the CPU. Every function is pure:
// it allocates nothing, keeps nothing and cannot fail; shapes are the caller's to check.
//
// What a row becomes does not depend on the rows beside it, to the bit: each number is one chain
// of sums in the order of its own row. That holds on one processor type; another vector width
// rounds some sums differently.
//
// Threads: any; one call works on its caller's thread.
#ifndef NN_OPS_H
#define NN_OPS_H

#include "nn/real.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef REAL_IS_DOUBLE
#define nn_linear_forward  nn_linear_forward_f64
#define nn_linear_backward nn_linear_backward_f64
#endif

// --- linear: y = x W^T + b -----------------------------------------------------------------------

struct nn_linear {
    int n_in, n_out;
    const real *weight; // (n_out, n_in)
    const real *bias;   // (n_out); NULL: none
};

struct nn_linear_grad {
    real *dx; // (n, n_in); NULL: not wanted
    int lddx;
    bool add;      // dx is added to
    real *dweight; // (n_out, n_in); NULL: no gradient of parameters
    real *dbias;   // (n_out); NULL where there is none
};

// y (n, n_out) from x (n, n_in).
void nn_linear_forward(const struct nn_linear *l, int n, const real *x, int ldx, real *y, int ldy);

// From dy (n, n_out), and x of the forward pass.
void nn_linear_backward(const struct nn_linear *l, int n, const real *x, int ldx, const real *dy,
                        int lddy, const struct nn_linear_grad *g);

#endif
