#include "learner/token_loss.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LOG_RATIO_MAX 20.0 // beyond it a ratio says nothing any more, but must stay finite

static double limited(double x)
{
    return x > LOG_RATIO_MAX ? LOG_RATIO_MAX : x < -LOG_RATIO_MAX ? -LOG_RATIO_MAX : x;
}

// The log-probability of an entry: sub-steps k..end-1 of row i; 0 without an array.
static double entry_logp(const struct token_rows *rows, const real *logp, int i, int k, int end)
{
    double sum = 0;

    for (; logp && k < end; k++)
        sum += (double)logp[(size_t)i * (size_t)rows->chunk + (size_t)k];
    return sum;
}

// The loss of an entry with ratio r and its derivative by log r.
static double clip_loss(const struct token_config *cfg, double a, double r, double *slope,
                        struct token_sums *sums)
{
    double limit = a > 0 ? 1 + cfg->clip_high : 1 - cfg->clip_low;

    if (a > 0 ? r > limit : r < limit) {
        sums->clipped += a != 0;
        *slope = 0;
        return -a * limit;
    }
    if (a < 0 && cfg->dual_clip > 0 && r > cfg->dual_clip) {
        sums->dual++;
        *slope = 0;
        return -a * cfg->dual_clip;
    }
    *slope = -a * r;
    return -a * r;
}

// The derivative of omega times an entry's loss by its log-probability.
static double entry_slope(const struct token_config *cfg, const struct token_rows *rows, int i,
                          int k, int end, struct token_sums *sums)
{
    const double a = (double)rows->advantage[i], omega = (double)rows->omega[i];
    const double now = entry_logp(rows, rows->logp, i, k, end);
    const double behaviour = limited(now - entry_logp(rows, rows->logp_behaviour, i, k, end));
    double w = 1, log_r = behaviour, loss, slope;

    if (cfg->objective == TOKEN_DECOUPLED) {
        log_r = 0;
        w = behaviour;
        if (rows->logp_start) {
            double start = entry_logp(rows, rows->logp_start, i, k, end);

            log_r = limited(now - start);
            w = limited(start - entry_logp(rows, rows->logp_behaviour, i, k, end));
        }
        w = exp(w);
        sums->capped += w > cfg->weight_cap;
        w = fmin(w, cfg->weight_cap);
    }
    loss = w * clip_loss(cfg, a, exp(log_r), &slope, sums);
    sums->entries++;
    sums->policy += omega * loss;
    sums->kl += exp(behaviour) - 1 - behaviour;
    sums->log_ratio_max = fmax(sums->log_ratio_max, fabs(behaviour));
    sums->weight += w;
    sums->weight_square += w * w;
    sums->weight_max = fmax(sums->weight_max, w);
    return omega * w * slope;
}

// Gradients of one sub-step's numbers, at `first` in the row.
static void sub_step_grad(const struct token_config *cfg, const struct token_rows *rows, int i,
                          int first, double slope, double omega, real *mean_grad,
                          real *log_std_grad)
{
    const int width = rows->chunk * rows->n_act;
    const real *mean = rows->mean + (size_t)i * (size_t)rows->ld;
    const real *action = rows->action + (size_t)i * (size_t)width;

    for (int d = first; d < first + rows->n_act; d++) {
        double inv_std = (double)rows->inv_std[d];
        double z = ((double)action[d] - (double)mean[d]) * inv_std;

        // d logp / d mean = z / std, d logp / d log_std = z^2 - 1, d entropy / d log_std = 1
        mean_grad[d] = (real)(slope * z * inv_std);
        log_std_grad[d] += (real)(slope * (z * z - 1) - omega * cfg->entropy_coef);
    }
}

void token_loss(const struct token_config *cfg, const struct token_rows *rows, real *mean_grad,
                real *log_std_grad, struct token_sums *sums)
{
    const size_t ld = (size_t)rows->ld;

    memset(mean_grad, 0, (size_t)rows->n * ld * sizeof *mean_grad);
    for (int i = 0; i < rows->n; i++, mean_grad += ld) {
        const int n_sub = (int)rows->n_sub[i], whole = cfg->level == TOKEN_CHUNK;
        // an entry of several sub-steps has the entropy of all, and counts once
        const double omega = (double)rows->omega[i];
        double slope = whole ? entry_slope(cfg, rows, i, 0, n_sub, sums) : 0;

        for (int k = 0; k < n_sub; k++) {
            if (!whole)
                slope = entry_slope(cfg, rows, i, k, k + 1, sums);
            sub_step_grad(cfg, rows, i, k * rows->n_act, slope, omega, mean_grad, log_std_grad);
        }
    }
}

void token_sums_add(struct token_sums *to, const struct token_sums *from)
{
    to->entries += from->entries;
    to->policy += from->policy;
    to->clipped += from->clipped;
    to->dual += from->dual;
    to->kl += from->kl;
    to->log_ratio_max = fmax(to->log_ratio_max, from->log_ratio_max);
    to->weight += from->weight;
    to->weight_square += from->weight_square;
    to->weight_max = fmax(to->weight_max, from->weight_max);
    to->capped += from->capped;
}

int64_t token_entries(enum token_level level, int64_t decisions, int64_t sub_steps)
{
    return level == TOKEN_CHUNK ? decisions : sub_steps;
}

double token_omega(enum token_mean mean, int64_t episode_entries)
{
    return mean == TOKEN_SEQUENCE ? 1 / (double)episode_entries : 1;
}

double token_divisor(enum token_mean mean, int64_t episodes, int64_t entries, int64_t length)
{
    if (mean == TOKEN_SEQUENCE)
        return (double)episodes;
    return mean == TOKEN_ENTRY ? (double)entries : (double)episodes * (double)length;
}
