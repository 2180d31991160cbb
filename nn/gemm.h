// gemm.h - the matrix products of the backward pass; the home of BLAS.
//
// BLAS is told to use one thread: the learner's own threads call it side by side.
// Threads: any.
#ifndef NN_GEMM_H
#define NN_GEMM_H

#include "nn/real.h"

#ifdef REAL_IS_DOUBLE
#define gemm_tn_add gemm_tn_add_f64
#define gemm_nn     gemm_nn_f64
#endif

// c (m, n) += a^T b with a (k, m), b (k, n): the gradient of a weight. ld* are leading dimensions.
void gemm_tn_add(int m, int n, int k, const real *a, int lda, const real *b, int ldb, real *c,
                 int ldc);

// c (m, n) = a b with a (m, k), b (k, n): the gradient of a layer's input.
void gemm_nn(int m, int n, int k, const real *a, int lda, const real *b, int ldb, real *c, int ldc);

#endif
