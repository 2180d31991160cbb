// Closing a window: the streamed step, the replayed ones, and the scales of the next window.
#include "learner/update_priv.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "nn/adamw.h"

#include <math.h>
#include <string.h>

#define KEEP       0.9 // memory of the moving averages, per window
#define STD_FLOOR  1e-4
#define LOG_2_PI_E 2.8378770664093453

// u->grad = sum over the slots, in their order; the losses likewise.
static void reduce(struct updater *u, struct loss_sums *loss)
{
    int64_t n = u->weights->n_param, k;
    int i;

    memset(u->grad, 0, (size_t)n * sizeof u->grad[0]);
    memset(loss, 0, sizeof *loss);
    for (i = 0; i < SLOTS; i++) {
        struct slot *s = &u->slot[i];

        loss_sums_add(loss, &s->loss);
        memset(&s->loss, 0, sizeof s->loss);
        if (!s->used)
            continue;
        for (k = 0; k < n; k++)
            u->grad[k] += s->grad[k];
        memset(s->grad, 0, (size_t)n * sizeof s->grad[0]);
        s->used = false;
    }
}

// Divide, clip and step the parameters first..last of one network; the gradient's norm.
static double step_network(struct updater *u, double lr, int64_t first, int64_t last, double n)
{
    const struct update_config *c = &u->cfg;
    struct adamw a = {.lr = lr,
                      .beta1 = c->beta1,
                      .beta2 = c->beta2,
                      .eps = c->adam_eps,
                      .weight_decay = c->weight_decay};
    double square = 0, norm, scale = 1 / n;
    int64_t k;

    for (k = first; k < last; k++)
        square += (double)u->grad[k] * (double)u->grad[k];
    norm = sqrt(square) / n;
    if (c->max_grad_norm > 0 && norm > c->max_grad_norm)
        scale *= c->max_grad_norm / norm;
    adamw_step(&a, u->n_step, u->grad + first, scale, last - first, u->params + first, u->m + first,
               u->v + first);
    return norm;
}

static void limit_log_std(struct updater *u)
{
    const struct model_table *t = &u->nets.table;
    float *log_std = u->params + t->piece[t->i_log_std].offset;
    int i;

    for (i = 0; i < t->piece[t->i_log_std].rows; i++) {
        if (log_std[i] < (float)UPDATE_LOG_STD_MIN)
            log_std[i] = (float)UPDATE_LOG_STD_MIN;
        if (log_std[i] > (float)UPDATE_LOG_STD_MAX)
            log_std[i] = (float)UPDATE_LOG_STD_MAX;
    }
}

// One optimizer step from what the slots hold.
static enum status optimize(struct updater *u, double lr, struct update_stats *stats,
                            struct loss_sums *loss)
{
    double norm;

    reduce(u, loss);
    if (loss->samples == 0)
        return ST_OK;
    u->n_step++;
    norm = step_network(u, lr, 0, u->nets.table.n_policy, (double)loss->samples);
    norm = hypot(norm, step_network(u, lr, u->nets.table.n_policy, u->weights->n_param,
                                    (double)loss->samples));
    if (!isfinite(norm))
        return FAIL(ST_INVAL, "the gradient of update %llu is not finite",
                    (unsigned long long)u->weights->version);
    limit_log_std(u);
    accel_step(&u->cfg.accel);
    stats->steps++;
    stats->grad_norm += norm;
    updater_pack(u);
    return ST_OK;
}

// ------------------------------------------------------------------ replay

static enum status shuffle(struct updater *u, int64_t epoch)
{
    struct rng rng = rng_make(u->weights->version, RNG_SHUFFLE, (uint64_t)epoch, 0, 0);
    int64_t i, k;

    if (u->window.n > u->shuffled_max) {
        uint32_t *p = mem_resize(u->shuffled, (size_t)u->window.n, sizeof p[0]);

        if (!p)
            return ST_NOMEM;
        u->shuffled = p;
        u->shuffled_max = u->window.n;
    }
    for (i = 0; i < u->window.n; i++) { // inside-out Fisher-Yates
        k = rng_below(&rng, (uint32_t)i + 1);
        u->shuffled[i] = u->shuffled[k];
        u->shuffled[k] = (uint32_t)i;
    }
    return ST_OK;
}

static enum status replay(struct updater *u, double lr, struct update_stats *stats)
{
    int64_t epoch, b, n = u->window.n;

    for (epoch = 1; epoch < u->cfg.epochs; epoch++) {
        struct loss_sums all = {0};

        TRY(shuffle(u, epoch));
        for (b = 0; b < u->cfg.minibatches; b++) {
            int64_t first = n * b / u->cfg.minibatches;
            struct loss_sums loss;

            u->order = u->shuffled + first;
            u->n_order = n * (b + 1) / u->cfg.minibatches - first;
            updater_run_rows(u);
            TRY(optimize(u, lr, stats, &loss));
            loss_sums_add(&all, &loss);
        }
        stats->approx_kl = all.kl / (double)all.samples;
        stats->clip_fraction = all.clipped / (double)all.samples;
        if (u->cfg.target_kl > 0 && stats->approx_kl > u->cfg.target_kl)
            break;
    }
    return ST_OK;
}

// ------------------------------------------------------------------ scales

struct window_sums {
    struct tally advantage, ret;
    double lag, lag_max;
};

// Merge the slots' statistics; those of the observations gather in the first slot.
static void gather_sums(struct updater *u, struct window_sums *s)
{
    int i;

    memset(s, 0, sizeof *s);
    for (i = 0; i < SLOTS; i++) {
        tally_merge(&s->advantage, &u->slot[i].advantage);
        tally_merge(&s->ret, &u->slot[i].ret);
        tally_merge(&s->error, &u->slot[i].error);
        s->lag += u->slot[i].lag;
        s->lag_max = fmax(s->lag_max, u->slot[i].lag_max);
        if (i > 0)
            obs_sums_merge(&u->slot[0].obs, &u->slot[i].obs, u->weights->shape.n_obs);
    }
}

static void own_scale(struct updater *u, const struct window_sums *s)
{
    if (!u->cfg.normalize_advantage)
        return;
    u->scales.adv_mean = tally_mean(&s->advantage);
    u->scales.adv_std = fmax(sqrt(tally_var(&s->advantage)), STD_FLOOR);
}

static void add_average(struct average *a, const struct tally *t)
{
    average_add(a, KEEP, tally_mean(t), t->square / t->n);
}

static void move_scales(struct updater *u, const struct window_sums *s)
{
    struct weights *w = u->weights;
    double mean = w->ret_mean, std = w->ret_std;
    double *shift;

    add_average(&u->adv_average, &s->advantage);
    if (u->cfg.normalize_returns) {
        add_average(&u->ret_average, &s->ret);
        average_read(&u->ret_average, &mean, &std);
        scale_preserve(&u->nets.table, u->params, w->ret_mean, w->ret_std, mean, std);
        w->ret_mean = mean;
        w->ret_std = std;
    }
    if (u->cfg.normalize_obs) {
        shift = u->norm.mean; // a copy of obs_mean as it was inside the window
        obs_sums_apply(&u->slot[0].obs, shift, w->shape.n_obs, &w->obs_count, w->obs_mean,
                       w->obs_var);
    }
}

static void fill_stats(const struct updater *u, const struct window_sums *s,
                       const struct loss_sums *first, struct update_stats *stats)
{
    const struct model_table *t = &u->nets.table;
    const float *log_std = u->params + t->piece[t->i_log_std].offset;
    double n = (double)first->samples;
    int i;

    stats->policy_loss = first->policy / n;
    stats->value_loss = first->value / n;
    stats->weight_mean = first->weight / n;
    stats->weight_max = first->weight_max;
    stats->approx_kl = first->kl / n;
    stats->lag_mean = s->lag / n;
    stats->lag_max = s->lag_max;
    stats->explained_variance =
        1 - tally_var(&s->error) / fmax(tally_var(&s->ret), STD_FLOOR * STD_FLOOR);
    for (i = 0; i < t->piece[t->i_log_std].rows; i++)
        stats->entropy += (double)log_std[i] + LOG_2_PI_E / 2;
}

// The steps of a window that has samples.
static enum status run_window(struct updater *u, struct update_stats *stats)
{
    struct window_sums sums;
    struct loss_sums first;

    gather_sums(u, &sums);
    if (u->deferred) {
        own_scale(u, &sums);
        u->order = NULL;
        u->n_order = u->window.n;
        updater_run_rows(u);
    }
    TRY(optimize(u, stats->lr, stats, &first));
    fill_stats(u, &sums, &first, stats);
    if (u->cfg.epochs > 1) {
        own_scale(u, &sums);
        TRY(replay(u, stats->lr, stats));
    }
    stats->grad_norm /= (double)stats->steps;
    move_scales(u, &sums);
    return ST_OK;
}

enum status updater_step(struct updater *u, struct weights **out, struct update_stats *stats)
{
    double share = fmin(1, (double)u->weights->version / (double)u->total_windows);
    struct update_stats s = {.samples = u->n_sample,
                             .chunks = u->n_chunk,
                             .lr = u->cfg.lr + (u->cfg.lr_final - u->cfg.lr) * share};
    struct weights *copy;

    if (u->n_sample > 0)
        TRY(run_window(u, &s));
    memcpy(u->weights->params, u->params, (size_t)u->weights->n_param * sizeof u->params[0]);
    u->weights->version++;
    TRY(weights_copy(&copy, u->weights));
    updater_open_window(u);
    *out = copy;
    *stats = s;
    return ST_OK;
}
