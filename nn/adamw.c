#include "nn/adamw.h"

#include <math.h>

void adamw_step(const struct adamw *a, int64_t step, const float *grad, double scale, int64_t n,
                float *p, float *m, float *v)
{
    // the averages start at zero; these take that bias out again
    double fix1 = 1 - pow(a->beta1, (double)step), fix2 = 1 - pow(a->beta2, (double)step);
    const float rate = (float)(a->lr / fix1), root = (float)(1 / sqrt(fix2));
    const float keep = (float)(1 - a->lr * a->weight_decay), eps = (float)a->eps;
    const float b1 = (float)a->beta1, b2 = (float)a->beta2, k = (float)scale;
    const float c1 = (float)(1 - a->beta1), c2 = (float)(1 - a->beta2);

    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * k;

        m[i] = b1 * m[i] + c1 * g;
        v[i] = b2 * v[i] + c2 * g * g;
        p[i] = keep * p[i] - rate * m[i] / (sqrtf(v[i]) * root + eps);
    }
}
