#include "learner/scale.h"

#include <math.h>

#define STD_MIN 1e-4

void average_add(struct average *a, double keep, double mean, double square)
{
    a->weight = keep * a->weight + (1 - keep);
    a->mean = keep * a->mean + (1 - keep) * mean;
    a->square = keep * a->square + (1 - keep) * square;
}

void average_read(const struct average *a, double *mean, double *std)
{
    double m, var;

    if (a->weight == 0)
        return;
    m = a->mean / a->weight;
    var = a->square / a->weight - m * m;
    *mean = m;
    *std = var > STD_MIN * STD_MIN ? sqrt(var) : STD_MIN;
}

void tally_merge(struct tally *to, const struct tally *from)
{
    to->n += from->n;
    to->sum += from->sum;
    to->square += from->square;
}

double tally_mean(const struct tally *t)
{
    return t->n > 0 ? t->sum / t->n : 0;
}

double tally_var(const struct tally *t)
{
    double mean = tally_mean(t), var = t->n > 0 ? t->square / t->n - mean * mean : 0;

    return var > 0 ? var : 0;
}

void obs_sums_add(struct obs_sums *s, const float *obs, const double *shift, int n_obs)
{
    s->n += 1;
    for (int i = 0; i < n_obs; i++) {
        double d = (double)obs[i] - shift[i];

        s->sum[i] += d;
        s->square[i] += d * d;
    }
}

void obs_sums_merge(struct obs_sums *to, const struct obs_sums *from, int n_obs)
{
    to->n += from->n;
    for (int i = 0; i < n_obs; i++) {
        to->sum[i] += from->sum[i];
        to->square[i] += from->square[i];
    }
}

void obs_sums_apply(const struct obs_sums *s, const double *shift, int n_obs, double *count,
                    double *mean, double *var)
{
    double total = *count + s->n;

    if (s->n == 0)
        return;
    for (int i = 0; i < n_obs; i++) {
        double d = s->sum[i] / s->n, m2 = s->square[i] - s->sum[i] * d;
        double apart = shift[i] + d - mean[i];

        m2 = m2 > 0 ? m2 : 0;
        mean[i] += apart * s->n / total;
        var[i] = (var[i] * *count + m2 + apart * apart * *count * s->n / total) / total;
    }
    *count = total;
}

void scale_preserve(float *row, int n, double old_mean, double old_std, double mean, double std)
{
    for (int i = 0; i < n; i++)
        row[i] = (float)((double)row[i] * old_std / std);
    row[n] = (float)(((double)row[n] * old_std + old_mean - mean) / std);
}
