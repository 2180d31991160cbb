#include "scenes/libero/spd.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

// A pivot below this part of its diagonal entry means that Cholesky's digits are gone.
#define PIVOT_MIN 1e-12
#define PINV_CUT  1e-15

// Lower factor of A into L; false if A is not positive definite in double precision.
static bool factor(const double *A, int n, double *L)
{
    int i, j, k;

    for (j = 0; j < n; j++) {
        double sum = A[j * n + j];

        for (k = 0; k < j; k++)
            sum -= L[j * n + k] * L[j * n + k];
        if (!(sum > PIVOT_MIN * A[j * n + j]))
            return false;
        L[j * n + j] = sqrt(sum);
        for (i = j + 1; i < n; i++) {
            sum = A[i * n + j];
            for (k = 0; k < j; k++)
                sum -= L[i * n + k] * L[j * n + k];
            L[i * n + j] = sum / L[j * n + j];
        }
    }
    return true;
}

// x = (L L^T)^-1 x
static void substitute(const double *L, int n, double *x)
{
    int i, k;

    for (i = 0; i < n; i++) {
        for (k = 0; k < i; k++)
            x[i] -= L[i * n + k] * x[k];
        x[i] /= L[i * n + i];
    }
    for (i = n - 1; i >= 0; i--) {
        for (k = i + 1; k < n; k++)
            x[i] -= L[k * n + i] * x[k];
        x[i] /= L[i * n + i];
    }
}

static void rotate(double *D, double *V, int n, int p, int q)
{
    double theta, t, c, s, a, b;
    int k;

    if (D[p * n + q] == 0)
        return;
    theta = (D[q * n + q] - D[p * n + p]) / (2 * D[p * n + q]);
    t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    c = 1 / sqrt(t * t + 1);
    s = t * c;
    for (k = 0; k < n; k++) {
        a = D[k * n + p];
        b = D[k * n + q];
        D[k * n + p] = c * a - s * b;
        D[k * n + q] = s * a + c * b;
    }
    for (k = 0; k < n; k++) {
        a = D[p * n + k];
        b = D[q * n + k];
        D[p * n + k] = c * a - s * b;
        D[q * n + k] = s * a + c * b;
        a = V[k * n + p];
        b = V[k * n + q];
        V[k * n + p] = c * a - s * b;
        V[k * n + q] = s * a + c * b;
    }
}

// Jacobi's eigenvalue method; for arms in singular postures only.
static void apply_pinv(const double *A, int n, const double *b, double *out)
{
    double D[SPD_MAX * SPD_MAX], V[SPD_MAX * SPD_MAX], largest = 0, y;
    int i, k, p, q, sweep;

    memcpy(D, A, (size_t)(n * n) * sizeof D[0]);
    for (i = 0; i < n * n; i++)
        V[i] = i % (n + 1) == 0;
    for (sweep = 0; sweep < 30; sweep++)
        for (p = 0; p < n; p++)
            for (q = p + 1; q < n; q++)
                rotate(D, V, n, p, q);
    for (i = 0; i < n; i++)
        largest = fmax(largest, fabs(D[i * n + i]));
    memset(out, 0, (size_t)n * sizeof out[0]);
    for (i = 0; i < n; i++) {
        if (fabs(D[i * n + i]) <= PINV_CUT * largest)
            continue;
        for (y = 0, k = 0; k < n; k++)
            y += V[k * n + i] * b[k];
        y /= D[i * n + i];
        for (k = 0; k < n; k++)
            out[k] += V[k * n + i] * y;
    }
}

void spd_apply_inverse(const double *A, int n, const double *b, double *out)
{
    double L[SPD_MAX * SPD_MAX];

    if (!factor(A, n, L)) {
        apply_pinv(A, n, b, out);
        return;
    }
    memcpy(out, b, (size_t)n * sizeof out[0]);
    substitute(L, n, out);
}

void spd_solve_transposed(const double *A, int n, const double *B, int k, double *out)
{
    double L[SPD_MAX * SPD_MAX], x[SPD_MAX];
    bool ok = factor(A, n, L);
    int i, j;

    for (j = 0; j < k; j++) {
        if (ok) {
            memcpy(x, B + j * n, (size_t)n * sizeof x[0]);
            substitute(L, n, x);
        } else {
            apply_pinv(A, n, B + j * n, x);
        }
        for (i = 0; i < n; i++)
            out[i * k + j] = x[i];
    }
}
