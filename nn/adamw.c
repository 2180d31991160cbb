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

double adamw_factor(const struct adamw_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;
    double warmup = (double)s->warmup, decay = (double)s->decay, at = (double)step;

    if (s->total > 0 && s->total < s->decay) {
        warmup = floor(warmup * (double)s->total / decay);
        decay = (double)s->total;
    }
    if (at < warmup)
        return (1 / (warmup + 1) - 1) * (1 - at / warmup) + 1;
    if (decay < 1)
        return 1; // no decay
    return (1 - s->floor) * 0.5 * (1 + cos(pi * fmin(at, decay) / decay)) + s->floor;
}

double adamw_sum_squares(const float *grad, int64_t n)
{
    double part[8] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            part[k] += (double)grad[i + k] * (double)grad[i + k];
    for (; i < n; i++)
        sum += (double)grad[i] * (double)grad[i];
    for (int k = 0; k < 8; k++)
        sum += part[k];
    return sum;
}

double adamw_clip(double sum_squares, double scale, double limit)
{
    const double factor = limit / (sqrt(sum_squares) * fabs(scale) + 1e-6);

    return limit > 0 && factor < 1 ? factor : 1;
}

void adamw_average(double decay, int64_t n, const float *p, float *average)
{
    const float keep = (float)decay, take = (float)(1 - decay);

    for (int64_t i = 0; i < n; i++)
        average[i] = keep * average[i] + take * p[i];
}
