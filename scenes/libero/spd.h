// spd.h - small symmetric positive semi-definite matrices: solves of the size of an arm.
#ifndef SCENES_LIBERO_SPD_H
#define SCENES_LIBERO_SPD_H

#define SPD_MAX 8

// out (n, k) = A^-1 B^T for A (n, n) symmetric, B (k, n); all row-major.
void spd_solve_transposed(const double *A, int n, const double *B, int k, double *out);

// out (n) = pinv(A) b; the pseudo-inverse drops eigenvalues below 1e-15 of the largest, as NumPy's.
void spd_apply_inverse(const double *A, int n, const double *b, double *out);

#endif
