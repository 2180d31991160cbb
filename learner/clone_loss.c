#include "learner/clone_loss.h"

#include <math.h>

#define BEND 0.05 // of l1

double clone_loss(enum clone_loss kind, const float *mean, const float *target, int n_real,
                  int chunk, int n_act, const float *log_std, float *d_mean, double *d_log_std)
{
    double sum = 0;

    for (int i = 0; i < chunk * n_act; i++) {
        double r = (double)mean[i] - target[i], log_s, z;

        if (i >= n_real * n_act) {
            d_mean[i] = 0;
            continue;
        }
        switch (kind) {
        case CLONE_L1:
            sum += fabs(r) > BEND ? fabs(r) - BEND / 2 : r * r / (2 * BEND);
            d_mean[i] = (float)(fabs(r) > BEND ? copysign(1, r) : r / BEND);
            break;
        case CLONE_L2:
            sum += r * r / 2;
            d_mean[i] = (float)r;
            break;
        case CLONE_NLL:
            log_s = log_std[i % n_act];
            z = r * exp(-log_s);
            sum += z * z / 2 + log_s + log(2 * M_PI) / 2;
            d_mean[i] = (float)(z * exp(-log_s));
            d_log_std[i % n_act] += 1 - z * z;
            break;
        case CLONE_FLOW:
            sum += r * r;
            d_mean[i] = (float)(2 * r);
            break;
        }
    }
    return sum;
}
