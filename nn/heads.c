#include "nn/heads.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define LOG_SQRT_2_PI 0.91893853320467274178
#define TWO_PI        6.28318530717958647692

void heads_gaussian_logp(int n, int dim, const real *mean, const real *log_std, const real *action,
                         real *logp)
{
    for (int d = 0; d < dim; d++) {
        const double inv_std = exp(-(double)log_std[d]), norm = (double)log_std[d] + LOG_SQRT_2_PI;

        for (ptrdiff_t i = d; i < (ptrdiff_t)n * dim; i += dim) {
            const double z = ((double)action[i] - (double)mean[i]) * inv_std;

            logp[i] = (real)(-0.5 * z * z - norm);
        }
    }
}

void heads_gaussian_backward(int n, int dim, const real *mean, const real *log_std,
                             const real *action, const real *d_logp, real *d_mean, real *d_log_std)
{
    for (int d = 0; d < dim; d++) {
        const double inv_std = exp(-(double)log_std[d]);
        double sum = 0;

        for (ptrdiff_t i = d; i < (ptrdiff_t)n * dim; i += dim) {
            const double z = ((double)action[i] - (double)mean[i]) * inv_std;

            d_mean[i] = (real)((double)d_logp[i] * z * inv_std);
            sum += (double)d_logp[i] * (z * z - 1);
        }
        if (d_log_std)
            d_log_std[d] += (real)sum;
    }
}

void heads_cross_entropy(int n, int classes, const real *logits, const int *target,
                         const real *weight, real *loss, real *d_logits)
{
    for (int i = 0; i < n; i++) {
        const real *row = logits + (ptrdiff_t)i * classes;
        real *d = d_logits ? d_logits + (ptrdiff_t)i * classes : NULL;
        const double k = weight ? (double)weight[i] : 1;
        double most = (double)row[0], sum = 0;

        if (target[i] < 0) {
            loss[i] = 0;
            if (d)
                memset(d, 0, (size_t)classes * sizeof *d);
            continue;
        }
        for (int c = 1; c < classes; c++)
            most = (double)row[c] > most ? (double)row[c] : most;
        for (int c = 0; c < classes; c++)
            sum += exp((double)row[c] - most);
        loss[i] = (real)(most + log(sum) - (double)row[target[i]]);
        for (int c = 0; d && c < classes; c++)
            d[c] = (real)(k * (exp((double)row[c] - most) / sum - (c == target[i])));
    }
}

double heads_flow_time(double u)
{
    return 0.999 * pow(u, 2.0 / 3) + 0.001; // the distribution of Beta(1.5, 1) is x^1.5
}

void heads_flow_point(int n, int width, const real *noise, const real *action, const real *t,
                      real *x, real *target)
{
    for (int i = 0; i < n; i++)
        for (ptrdiff_t k = (ptrdiff_t)i * width; k < (ptrdiff_t)(i + 1) * width; k++) {
            x[k] = t[i] * noise[k] + (1 - t[i]) * action[k];
            target[k] = noise[k] - action[k];
        }
}

double heads_flow_loss(int n, int width, const real *v, const real *target, const real *weight,
                       real *d_v)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        const real k = weight ? weight[i] : 1;

        for (ptrdiff_t j = (ptrdiff_t)i * width; j < (ptrdiff_t)(i + 1) * width; j++) {
            const real e = target[j] - v[j];

            sum += (double)k * (double)e * (double)e;
            if (d_v)
                d_v[j] = -2 * k * e;
        }
    }
    return sum;
}

struct heads_flow heads_flow_step(int i, int steps)
{
    const double h = 1.0 / steps;

    return (struct heads_flow){.t = 1 - i * h, .by_x = 1, .by_v = -h};
}

struct heads_flow heads_flow_sde(int i, int steps, double noise_level)
{
    const double h = 1.0 / steps, t = 1 - i * h, rest = i == 0 ? h : 1 - t;
    const double s = noise_level * sqrt(t / rest), pull = s * s * h / (2 * t);

    // mean = x - h v - pull (x + (1 - t) v)
    return (struct heads_flow){
        .t = t, .by_x = 1 - pull, .by_v = -h - pull * (1 - t), .std = s * sqrt(h)};
}

static double mean_of(const struct heads_flow *f, real x, real v)
{
    return f->by_x * (double)x + f->by_v * (double)v;
}

void heads_flow_mean(const struct heads_flow *f, int64_t n, const real *x, const real *v,
                     real *mean)
{
    for (int64_t i = 0; i < n; i++)
        mean[i] = (real)mean_of(f, x[i], v[i]);
}

void heads_flow_logp(const struct heads_flow *f, int64_t n, const real *x, const real *v,
                     const real *next, real *logp)
{
    const double norm = log(f->std) + LOG_SQRT_2_PI;

    for (int64_t i = 0; i < n; i++) {
        const double z = ((double)next[i] - mean_of(f, x[i], v[i])) / f->std;

        logp[i] = (real)(-0.5 * z * z - norm);
    }
}

void heads_flow_logp_backward(const struct heads_flow *f, int64_t n, const real *x, const real *v,
                              const real *next, const real *d_logp, real *d_v)
{
    for (int64_t i = 0; i < n; i++) {
        const double z = ((double)next[i] - mean_of(f, x[i], v[i])) / f->std;

        d_v[i] = (real)((double)d_logp[i] * z / f->std * f->by_v);
    }
}

void heads_flow_levels(int i, int steps, int n_act, const real *log_level, struct heads_flow *out)
{
    for (int d = 0; d < n_act; d++)
        out[d] = heads_flow_sde(i, steps, exp((double)log_level[d]));
}

void heads_flow_unit(const struct heads_flow *f, int n_act, int64_t n, const real *x, const real *v,
                     real *mean)
{
    for (int64_t k = 0; k < n; k++) {
        const struct heads_flow *of = &f[k % n_act];

        mean[k] = (real)(mean_of(of, x[k], v[k]) / of->std);
    }
}

void heads_flow_unit_backward(const struct heads_flow *f, int n_act, int64_t n, const real *d_mean,
                              real *d_v)
{
    for (int64_t k = 0; k < n; k++) {
        const struct heads_flow *of = &f[k % n_act];

        d_v[k] = (real)((double)d_mean[k] * of->by_v / of->std);
    }
}

void heads_time_embedding(double t, int dim, real *out)
{
    const int half = dim / 2;

    for (int j = 0; j < half; j++) {
        const double part = half > 1 ? (double)j / (half - 1) : 0;
        const double angle = TWO_PI / (4e-3 * pow(1000, part)) * t;

        out[j] = (real)sin(angle);
        out[half + j] = (real)cos(angle);
    }
}
