// linear.h - the forward kernel of a layer: y = x W^T + b, with tanh or without.
//
// Every number of y is one sum over the inputs in ascending order, in its own vector lane. So a
// row's result is the same to the bit in any batch and at any vector width; only processors
// without fused multiply-add round differently.
//
// Leading dimensions are REAL_LD of the row's length, so rows start on cache lines.
// Threads: pure functions.
#ifndef NN_LINEAR_H
#define NN_LINEAR_H

#include "nn/real.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef REAL_IS_DOUBLE
#define linear_pack    linear_pack_f64
#define linear_forward linear_forward_f64
#endif

// One layer as the kernel wants it.
struct linear {
    int n_in, n_out;
    real *weight; // (n_in, REAL_LD(n_out)) transposed, padding zero
    real *bias;   // (REAL_LD(n_out)) padding zero
};

// Numbers of memory that a layer's weight and bias take.
static inline size_t linear_count(const struct linear *l)
{
    return (size_t)(l->n_in + 1) * (size_t)REAL_LD(l->n_out);
}

// Put them at `memory` (zeros, on a cache line); returns what comes behind.
static inline real *linear_place(struct linear *l, real *memory)
{
    l->bias = memory;
    l->weight = memory + REAL_LD(l->n_out);
    return memory + linear_count(l);
}

// Fill `l` from weight (n_out, n_in) and bias (n_out).
void linear_pack(struct linear *l, const real *weight, const real *bias);

// y (n, REAL_LD(n_out)) from x (n, REAL_LD(n_in)); `squash`: tanh of it. Padding of y is zero.
// The tanh is our own: at most 2e-7 from the true one.
void linear_forward(const struct linear *l, const real *x, int n, bool squash, real *y);

#endif
