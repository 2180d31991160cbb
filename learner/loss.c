#include "learner/loss.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LOG_RATIO_MAX 20.0 // beyond it a ratio says nothing any more, but must stay finite

static double limited(double x)
{
    return x > LOG_RATIO_MAX ? LOG_RATIO_MAX : x < -LOG_RATIO_MAX ? -LOG_RATIO_MAX : x;
}

void loss_weights(const real *logp, const real *logp_behaviour, int n, double cap, real *weight,
                  struct loss_sums *sums)
{
    for (int i = 0; i < n; i++) {
        double log_w = limited((double)logp[i] - (double)logp_behaviour[i]);
        double w = log_w == 0 ? 1 : exp(log_w);

        sums->kl += w - 1 - log_w;
        weight[i] = (real)(w < cap ? w : cap);
    }
}

// The derivative of -w min(r A, clip(r) A) by the log-probability.
static double policy_slope(const struct loss_config *cfg, const struct loss_rows *rows, int i,
                           struct loss_sums *sums)
{
    double a = (double)rows->advantage[i], w = (double)rows->weight[i], log_r, r, limit;
    bool clipped;

    sums->weight += w;
    if (w > sums->weight_max)
        sums->weight_max = w;
    if (!rows->logp_ref) {
        sums->policy -= w * a;
        return -w * a;
    }
    log_r = limited((double)rows->logp[i] - (double)rows->logp_ref[i]);
    r = exp(log_r);
    limit = a > 0 ? 1 + cfg->clip : 1 - cfg->clip;
    clipped = a > 0 ? r > limit : r < limit;
    sums->kl += r - 1 - log_r;
    sums->clipped += clipped;
    sums->policy -= w * a * (clipped ? limit : r);
    return clipped ? 0 : -w * a * r;
}

void loss_policy(const struct loss_config *cfg, const struct loss_rows *rows, real *mean_grad,
                 real *log_std_grad, struct loss_sums *sums)
{
    const int n_act = rows->n_act, ld = REAL_LD(n_act);
    const real *mean = rows->mean, *action = rows->action;
    int i, d;

    for (i = 0; i < rows->n; i++, mean += ld, action += n_act, mean_grad += ld) {
        double slope = policy_slope(cfg, rows, i, sums);

        for (d = 0; d < n_act; d++) {
            double inv_std = (double)rows->inv_std[d];
            double z = ((double)action[d] - (double)mean[d]) * inv_std;

            // d logp / d mean = z / std, d logp / d log_std = z^2 - 1, d entropy / d log_std = 1
            mean_grad[d] = (real)(slope * z * inv_std);
            log_std_grad[d] += (real)(slope * (z * z - 1) - cfg->entropy_coef);
        }
        memset(mean_grad + n_act, 0, (size_t)(ld - n_act) * sizeof *mean_grad);
    }
    sums->samples += rows->n;
}

void loss_value(const struct loss_config *cfg, const struct loss_rows *rows, real *value_grad,
                struct loss_sums *sums)
{
    const int ld = REAL_LD(1);

    memset(value_grad, 0, (size_t)rows->n * ld * sizeof *value_grad);
    for (int i = 0; i < rows->n; i++) {
        double error = (double)rows->value[(size_t)i * ld] - (double)rows->target[i];

        sums->value += 0.5 * error * error;
        value_grad[(size_t)i * ld] = (real)(cfg->value_coef * error);
    }
}

void loss_sums_add(struct loss_sums *to, const struct loss_sums *from)
{
    to->samples += from->samples;
    to->policy += from->policy;
    to->value += from->value;
    to->kl += from->kl;
    to->clipped += from->clipped;
    to->weight += from->weight;
    if (from->weight_max > to->weight_max)
        to->weight_max = from->weight_max;
}
