// Closing a window: the streamed step, the replayed ones, and the scales of the next window.
#include "learner/update_priv.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "nn/adamw.h"

#include <math.h>
#include <string.h>

// How much of the averages stays when a window is added.
#define ADV_KEEP 0.8
#define RET_KEEP 0.9

#define LOG_SQRT_2_PI_E 1.4189385332046727

struct totals {
    struct tally advantage, ret;
    double lag, lag_max;
};

// --- one optimizer step --------------------------------------------------------------------------

// The slots' sums into u->grad and *loss, in the order of the slots; then the slots are empty.
static void reduce(struct updater *u, struct loss_sums *loss)
{
    const size_t n = (size_t)u->weights->n_param;

    memset(u->grad, 0, n * sizeof *u->grad);
    memset(loss, 0, sizeof *loss);
    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &u->slot[i];

        loss_sums_add(loss, &s->loss);
        memset(&s->loss, 0, sizeof s->loss);
        if (!s->used)
            continue;
        for (size_t k = 0; k < n; k++)
            u->grad[k] += s->grad[k];
        memset(s->grad, 0, n * sizeof *s->grad);
        s->used = false;
    }
}

static double learning_rate(const struct updater *u)
{
    double part = (double)u->weights->version / (double)u->total_windows;

    return u->cfg.lr + (u->cfg.lr_final - u->cfg.lr) * (part < 1 ? part : 1);
}

static double norm_of(const float *g, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * (double)g[i];
    return sqrt(sum);
}

// AdamW on parameters first..end-1 with the summed gradient times `scale`.
static void step_range(struct updater *u, int64_t first, int64_t end, double scale, double decay)
{
    const struct adamw a = {
        .lr = learning_rate(u),
        .beta1 = u->cfg.beta1,
        .beta2 = u->cfg.beta2,
        .eps = u->cfg.adam_eps,
        .weight_decay = decay,
    };

    adamw_step(&a, u->n_step, u->grad + first, scale, end - first, u->params + first, u->m + first,
               u->v + first);
}

// Divide the summed gradient by the true number of samples, clip each network's and step.
static enum status optimizer_step(struct updater *u, int64_t n_sample, struct update_stats *stats)
{
    const struct model_table *t = &u->nets.table;
    static const char *const name[] = {"policy", "value network", "encoder"};
    const int64_t bound[3][2] = {
        {t->n_encoder, t->n_policy}, {t->n_policy, t->n_param}, {0, t->n_encoder}};
    const int64_t log_std = t->piece[t->i_log_std].offset;
    double scale[3], norm[3];

    for (int i = 0; i < 3; i++) {
        scale[i] = 1 / (double)n_sample;
        norm[i] = norm_of(u->grad + bound[i][0], bound[i][1] - bound[i][0]) * scale[i];
        if (!isfinite(norm[i]))
            return FAIL(ST_INVAL,
                        "the gradient of the %s is not finite at version %llu; a lower learning "
                        "rate or smaller rewards may help",
                        name[i], (unsigned long long)u->weights->version);
        if (u->cfg.max_grad_norm > 0 && norm[i] > u->cfg.max_grad_norm)
            scale[i] *= u->cfg.max_grad_norm / norm[i];
    }
    u->n_step++;
    step_range(u, 0, t->n_encoder, scale[2], u->cfg.weight_decay);
    step_range(u, t->n_encoder, log_std, scale[0], u->cfg.weight_decay);
    step_range(u, log_std, t->n_policy, scale[0], 0); // decay would pull the deviation to 1
    step_range(u, t->n_policy, t->n_param, scale[1], u->cfg.weight_decay);
    for (int64_t i = log_std; i < t->n_policy; i++)
        u->params[i] =
            fminf(fmaxf(u->params[i], (float)UPDATE_LOG_STD_MIN), (float)UPDATE_LOG_STD_MAX);
    stats->grad_norm += hypot(hypot(norm[0], norm[1]), norm[2]);
    stats->steps++;
    accel_step(&u->cfg.accel);
    return ST_OK;
}

// --- scales --------------------------------------------------------------------------------------

// Merge the slots' statistics; those of the observations gather in the first slot.
static void collect_totals(struct updater *u, struct totals *t)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < SLOTS; i++) {
        const struct slot *s = &u->slot[i];

        tally_merge(&t->advantage, &s->advantage);
        tally_merge(&t->ret, &s->ret);
        t->lag += s->lag;
        t->lag_max = s->lag_max > t->lag_max ? s->lag_max : t->lag_max;
        if (i > 0)
            obs_sums_merge(&u->slot[0].obs, &s->obs, u->weights->shape.n_obs);
    }
}

// The averages move on with the window. What is still to be done with this window - its deferred
// first pass, its replay - uses its own advantages' scale and the new scale of returns, for which
// the value network keeps its predictions.
static void move_averages(struct updater *u, const struct totals *t)
{
    const struct model_piece *last = &u->nets.table.piece[u->nets.table.n_piece - 2];
    struct scales *s = &u->scales, old = u->scales;
    struct average window = {0};

    if (u->cfg.normalize_advantage) {
        average_add(&u->adv_average, ADV_KEEP, tally_mean(&t->advantage),
                    t->advantage.square / t->advantage.n);
        average_add(&window, 0, tally_mean(&t->advantage), t->advantage.square / t->advantage.n);
        average_read(&window, &s->adv_mean, &s->adv_std);
    }
    if (u->cfg.normalize_returns) {
        average_add(&u->ret_average, RET_KEEP, tally_mean(&t->ret), t->ret.square / t->ret.n);
        average_read(&u->ret_average, &s->ret_mean, &s->ret_std);
        scale_preserve(u->params + last->offset, last->cols, old.ret_mean, old.ret_std, s->ret_mean,
                       s->ret_std);
    }
}

// --- replay --------------------------------------------------------------------------------------

// The window's rows in an order that depends on version and pass only (Fisher and Yates).
static void shuffle(struct updater *u, int64_t pass)
{
    struct rng rng = rng_make(u->weights->version, RNG_SHUFFLE, (uint64_t)pass, 0, 0);
    uint32_t *order = u->shuffled;

    for (int64_t i = 0; i < u->window.n; i++) {
        uint32_t k = rng_below(&rng, (uint32_t)i + 1);

        order[i] = order[k];
        order[k] = (uint32_t)i;
    }
}

static enum status replay_pass(struct updater *u, int64_t pass, struct update_stats *stats,
                               bool *stop)
{
    const int64_t n = u->window.n;
    const int64_t parts = u->cfg.minibatches < n ? u->cfg.minibatches : n;
    struct loss_sums all = {0}, loss;

    shuffle(u, pass);
    for (int64_t i = 0; i < parts; i++) {
        int64_t first = n * i / parts;

        u->order = u->shuffled + first;
        u->n_order = n * (i + 1) / parts - first;
        updater_pack(u);
        updater_run_rows(u);
        reduce(u, &loss);
        loss_sums_add(&all, &loss);
        *stop = u->cfg.target_kl > 0 && loss.kl > u->cfg.target_kl * (double)loss.samples;
        if (*stop)
            break;
        TRY(optimizer_step(u, loss.samples, stats));
    }
    stats->approx_kl = all.kl / (double)all.samples;
    stats->clip_fraction = all.clipped / (double)all.samples;
    return ST_OK;
}

static enum status replay(struct updater *u, struct update_stats *stats)
{
    bool stop = false;

    if (u->window.n > u->shuffled_max) {
        uint32_t *p = mem_resize(u->shuffled, (size_t)u->window.n_max, sizeof *p);

        if (!p)
            return ST_NOMEM;
        u->shuffled = p;
        u->shuffled_max = u->window.n_max;
    }
    for (int64_t pass = 1; pass < u->cfg.epochs && !stop; pass++)
        TRY(replay_pass(u, pass, stats, &stop));
    return ST_OK;
}

// --- closing a window ----------------------------------------------------------------------------

static void fill_stats(const struct updater *u, const struct totals *t,
                       const struct loss_sums *first, struct update_stats *stats)
{
    const struct model_table *table = &u->nets.table;
    const float *log_std = u->weights->params + table->piece[table->i_log_std].offset;
    const double n = (double)first->samples, var = tally_var(&t->ret);

    stats->policy_loss = first->policy / n;
    stats->value_loss = first->value / n;
    for (int d = 0; d < u->weights->shape.n_act; d++)
        stats->entropy += (double)log_std[d] + LOG_SQRT_2_PI_E;
    stats->approx_kl = first->kl / n;
    stats->weight_mean = first->weight / n;
    stats->weight_max = first->weight_max;
    // the error of a prediction, target - V, is the advantage
    stats->explained_variance = var > 0 ? 1 - tally_var(&t->advantage) / var : 0;
    stats->lag_mean = t->lag / n;
    stats->lag_max = t->lag_max;
}

// All optimizer steps of a window that has samples.
static enum status train(struct updater *u, const struct totals *t, struct update_stats *stats)
{
    struct loss_sums first;

    if (u->deferred) {
        move_averages(u, t);
        u->order = NULL;
        u->n_order = u->window.n;
        updater_pack(u);
        updater_run_rows(u);
    }
    reduce(u, &first);
    fill_stats(u, t, &first, stats);
    TRY(optimizer_step(u, first.samples, stats));
    if (!u->deferred)
        move_averages(u, t);
    if (u->cfg.epochs > 1)
        TRY(replay(u, stats));
    stats->grad_norm /= (double)stats->steps;
    return ST_OK;
}

// The new version: parameters and scales as they are now.
static enum status make_weights(const struct updater *u, struct weights **out)
{
    struct weights *w;

    TRY(weights_copy(&w, u->weights));
    memcpy(w->params, u->params, (size_t)w->n_param * sizeof *w->params);
    w->version++;
    w->ret_mean = u->scales.ret_mean;
    w->ret_std = u->scales.ret_std;
    if (u->cfg.normalize_obs)
        obs_sums_apply(&u->slot[0].obs, u->weights->obs_mean, w->shape.n_obs, &w->obs_count,
                       w->obs_mean, w->obs_var);
    *out = w;
    return ST_OK;
}

enum status updater_step(struct updater *u, struct weights **out, struct update_stats *stats)
{
    struct update_stats s = {.samples = u->n_sample, .chunks = u->n_chunk, .lr = learning_rate(u)};
    struct weights *w;
    struct totals t;

    collect_totals(u, &t);
    if (u->n_sample > 0)
        TRY(train(u, &t, &s));
    TRY(make_weights(u, &w));
    // published weights never change: others may hold the old version
    weights_drop(u->weights);
    u->weights = w;
    updater_open_window(u);
    *out = weights_hold(w);
    *stats = s;
    return ST_OK;
}
