#include "nn/gaussian.h"

#include <math.h>
#include <stddef.h>

#define LOG_SQRT_2_PI 0.91893853320467274178

double gaussian_inv_std(const real *log_std, int n_act, real *inv_std)
{
    double norm = 0;

    for (int d = 0; d < n_act; d++) {
        inv_std[d] = (real)exp(-(double)log_std[d]);
        norm += (double)log_std[d] + LOG_SQRT_2_PI;
    }
    return norm;
}

void gaussian_logp(const real *mean, const real *action, int n, int n_act, const real *inv_std,
                   double norm, real *logp)
{
    int i, d;

    for (i = 0; i < n; i++, mean += REAL_LD(n_act), action += n_act) {
        double square = 0;

        for (d = 0; d < n_act; d++) {
            double z = ((double)action[d] - (double)mean[d]) * (double)inv_std[d];

            square += z * z;
        }
        logp[i] = (real)(-0.5 * square - norm);
    }
}

void gaussian_parts(const real *mean, int ld, const real *action, int n, int n_act, int n_part,
                    const real *log_std, const real *inv_std, real *logp)
{
    const int width = n_act / n_part;
    int i, k, d;

    for (i = 0; i < n; i++, mean += ld, action += n_act)
        for (k = 0; k < n_part; k++) {
            double sum = 0;

            for (d = k * width; d < (k + 1) * width; d++) {
                double z = ((double)action[d] - (double)mean[d]) * (double)inv_std[d];

                sum -= 0.5 * z * z + (double)log_std[d] + LOG_SQRT_2_PI;
            }
            *logp++ = (real)sum;
        }
}
