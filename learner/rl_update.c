#include "learner/rl_update.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "learner/actor.h"
#include "learner/chunk_gae.h"
#include "learner/scale.h"
#include "nn/adamw.h"
#include "nn/gaussian.h"

#include <math.h>
#include <string.h>

// How much of the averages stays when a window is added.
#define ADV_KEEP 0.8
#define RET_KEEP 0.9

// An episode of the open window.
struct kept {
    struct msg *m;
    struct episode e;
    const char *instruction;
    float advantage, omega;
    int64_t entries;
    float *logp_start; // (n_decision, chunk) where the objective needs it
    // with a critic: on the scale of its network (n_seen), then of rewards (n_decision)
    float *value, *decision_advantage, *ret;
};

struct rl_updater {
    struct update_config cfg;
    struct rl_config rl;
    struct token_config loss;
    int64_t total;
    struct weights *weights; // the present version
    float *params;           // (n_param) of it; move ahead of it while a window closes
    struct actor *actor;
    int64_t n;           // parameters that are trained
    float *grad, *m, *v; // (n)
    int64_t n_step;      // optimizer steps in all
    int width, chunk;    // chunk 0: not known yet
    bool critic;
    struct average averages[2];                  // of the windows' advantages and returns
    double adv_mean, adv_std, ret_mean, ret_std; // the scales of now

    // the open window
    struct kept *kept;              // (kept_max)
    int n_kept, n_valued, kept_max; // n_valued: of them, those whose values were taken
    int64_t n_episode, n_decision, n_entry;
    struct token_sums sums;
    double value_sum; // the critic's loss
    struct tally advantage_seen, ret_seen;
    uint32_t *order; // (kept_max) scratch

    // rows of the next pass
    int n_row;
    struct actor_row row[ACTOR_ROWS];
    const float *start[ACTOR_ROWS];                 // of each row; NULL without
    float *store[ACTOR_ROWS], *store_v[ACTOR_ROWS]; // where its log-probabilities, its value go
    float advantage[ACTOR_ROWS], omega[ACTOR_ROWS], target[ACTOR_ROWS];
    uint32_t n_sub[ACTOR_ROWS];
    float *action;                             // (ACTOR_ROWS, width)
    float *logp, *logp_behaviour, *logp_start; // (ACTOR_ROWS, width): chunk is at most width
    float *log_std_grad;                       // (width)
};

// --- set-up --------------------------------------------------------------------------------------

static bool several_steps(const struct rl_updater *u)
{
    return u->cfg.epochs > 1 || u->cfg.minibatches > 1;
}

// Does the window stay in memory until it closes? The first one has no scale for its advantages.
static bool is_deferred(const struct rl_updater *u)
{
    return several_steps(u) ||
           (u->critic && u->cfg.normalize_advantage && u->averages[0].weight == 0);
}

static bool needs_start(const struct rl_updater *u)
{
    return several_steps(u) && u->loss.objective == TOKEN_DECOUPLED;
}

static enum status build(struct rl_updater *u, const struct weights *w)
{
    size_t rows;

    TRY(weights_copy(&u->weights, w));
    TRY(actor_create(&u->actor, w, u->rl.budget, u->critic));
    u->adv_std = 1;
    u->ret_mean = w->ret_mean;
    u->ret_std = w->ret_std;
    u->n = actor_params(u->actor);
    u->width = actor_width(u->actor);
    rows = ACTOR_ROWS * (size_t)u->width;
    u->params = mem_alloc((size_t)w->n_param, sizeof *u->params);
    u->grad = mem_alloc(3 * (size_t)u->n, sizeof *u->grad);
    u->action = mem_alloc(4 * rows + (size_t)u->width, sizeof *u->action);
    if (!u->params || !u->grad || !u->action)
        return ST_NOMEM;
    u->m = u->grad + u->n;
    u->v = u->m + u->n;
    u->logp = u->action + rows;
    u->logp_behaviour = u->logp + rows;
    u->logp_start = u->logp_behaviour + rows;
    u->log_std_grad = u->logp_start + rows;
    memcpy(u->params, w->params, (size_t)w->n_param * sizeof *u->params);
    actor_use(u->actor, u->params);
    return ST_OK;
}

enum status rl_create(struct rl_updater **out, const struct update_config *cfg,
                      const struct rl_config *rl, const struct weights *w, int64_t total)
{
    struct rl_updater *u;
    enum status st;

    if (cfg->threads != 1)
        return FAIL(ST_INVAL,
                    "--learner-threads is %lld, expected 1 where whole episodes are learned "
                    "from",
                    (long long)cfg->threads);
    u = mem_alloc(1, sizeof *u);
    if (!u)
        return ST_NOMEM;
    u->cfg = *cfg;
    u->rl = *rl;
    u->total = total;
    u->critic = rl->algo == RL_CHUNK_PPO;
    u->loss = (struct token_config){.level = (enum token_level)rl->level,
                                    .mean = (enum token_mean)rl->mean,
                                    .objective = (enum token_objective)rl->objective,
                                    .clip_low = cfg->clip,
                                    .clip_high = rl->clip_high,
                                    .dual_clip = rl->dual_clip,
                                    .weight_cap = cfg->weight_cap,
                                    .entropy_coef = cfg->entropy_coef};
    st = build(u, w);
    if (st != ST_OK) {
        rl_destroy(u);
        return st;
    }
    *out = u;
    return ST_OK;
}

static void forget(struct rl_updater *u)
{
    for (int i = 0; i < u->n_kept; i++) {
        msg_free(u->kept[i].m);
        mem_free(u->kept[i].logp_start);
        mem_free(u->kept[i].value);
    }
    u->n_kept = u->n_valued = u->n_row = 0;
}

void rl_destroy(struct rl_updater *u)
{
    if (!u)
        return;
    forget(u);
    mem_free(u->kept);
    mem_free(u->order);
    actor_destroy(u->actor);
    weights_drop(u->weights);
    mem_free(u->params);
    mem_free(u->grad);
    mem_free(u->action);
    mem_free(u);
}

const struct weights *rl_weights(const struct rl_updater *u)
{
    return u->weights;
}

void rl_get(struct rl_updater *u, struct rl_state *out)
{
    *out = (struct rl_state){.n = u->n,
                             .n_step = u->n_step,
                             .m = u->m,
                             .v = u->v,
                             .log_std_at = actor_log_std_at(u->actor),
                             .n_log_std = actor_n_log_std(u->actor),
                             .averages = &u->averages[0].weight};
}

static void open_window(struct rl_updater *u)
{
    forget(u);
    average_read(&u->averages[0], &u->adv_mean, &u->adv_std);
    u->n_episode = u->n_decision = u->n_entry = 0;
    u->value_sum = 0;
    u->advantage_seen = u->ret_seen = (struct tally){0};
    memset(&u->sums, 0, sizeof u->sums);
    memset(u->grad, 0, (size_t)u->n * sizeof *u->grad);
    memset(u->log_std_grad, 0, (size_t)u->width * sizeof *u->log_std_grad);
}

enum status rl_restore(struct rl_updater *u, const struct weights *w, int64_t n_step)
{
    struct weights *copy;

    if (!weights_same_model(w, u->weights))
        return FAIL(ST_INVAL, "weights of another model than the updater's");
    TRY(weights_copy(&copy, w));
    weights_drop(u->weights);
    u->weights = copy;
    memcpy(u->params, w->params, (size_t)w->n_param * sizeof *u->params);
    actor_use(u->actor, u->params);
    u->n_step = n_step;
    u->ret_mean = w->ret_mean;
    u->ret_std = w->ret_std;
    open_window(u);
    return ST_OK;
}

// --- episodes in ---------------------------------------------------------------------------------

static enum status grow(struct rl_updater *u)
{
    int n = u->kept_max ? 2 * u->kept_max : 64;
    struct kept *kept;
    uint32_t *order;

    if (u->n_kept < u->kept_max)
        return ST_OK;
    kept = mem_resize(u->kept, (size_t)n, sizeof *kept);
    if (!kept)
        return ST_NOMEM;
    u->kept = kept;
    order = mem_resize(u->order, (size_t)n, sizeof *order);
    if (!order)
        return ST_NOMEM;
    u->order = order;
    u->kept_max = n;
    return ST_OK;
}

static enum status check(struct rl_updater *u, const struct episode_head *h)
{
    if ((int)(h->chunk * h->n_act) != u->width || (int)h->n_obs != u->weights->shape.n_obs)
        return FAIL(ST_PROTO,
                    "an episode of %u observations and %u actions of %u, expected %d and "
                    "%d numbers",
                    h->n_obs, h->chunk, h->n_act, u->weights->shape.n_obs, u->width);
    if ((int)h->n_latent != actor_latent(u->actor))
        return FAIL(ST_PROTO, "an episode with a latent of %u numbers, expected %d", h->n_latent,
                    actor_latent(u->actor));
    if (h->version_max > u->weights->version)
        return FAIL(ST_PROTO, "an episode of version %llu, the present one is %llu",
                    (unsigned long long)h->version_max, (unsigned long long)u->weights->version);
    if (h->n_decision == 0)
        return FAIL(ST_PROTO, "an episode without decisions");
    u->chunk = (int)h->chunk;
    return ST_OK;
}

enum status rl_add(struct rl_updater *u, struct msg *m, const struct episode *e,
                   const char *instruction, double advantage)
{
    enum status st = check(u, &e->head);
    struct kept k = {.m = m, .e = *e, .instruction = instruction, .advantage = (float)advantage};

    if (st == ST_OK)
        st = grow(u);
    if (st == ST_OK && needs_start(u)) {
        k.logp_start = mem_alloc((size_t)e->head.n_decision * e->head.chunk, sizeof *k.logp_start);
        st = k.logp_start ? ST_OK : ST_NOMEM;
    }
    if (st == ST_OK && u->critic) {
        k.value =
            mem_alloc(episode_n_seen(&e->head) + 2 * (size_t)e->head.n_decision, sizeof *k.value);
        st = k.value ? ST_OK : ST_NOMEM;
    }
    if (st != ST_OK) {
        mem_free(k.logp_start);
        msg_free(m);
        return st;
    }
    if (k.value) {
        k.decision_advantage = k.value + episode_n_seen(&e->head);
        k.ret = k.decision_advantage + e->head.n_decision;
    }
    k.entries = token_entries(u->loss.level, e->head.n_decision, e->head.n_sub);
    k.omega = (float)token_omega(u->loss.mean, k.entries);
    u->kept[u->n_kept++] = k;
    u->n_episode++;
    u->n_decision += e->head.n_decision;
    u->n_entry += k.entries;
    return ST_OK;
}

// --- passes --------------------------------------------------------------------------------------

// The critic's loss of the n rows of a pass, and its gradient.
static void value_loss(struct rl_updater *u, int n)
{
    for (int i = 0; i < n; i++) {
        const double error = (double)actor_value(u->actor, i) - (double)u->target[i];
        const double weight =
            (double)u->omega[i] * (double)token_entries(u->loss.level, 1, u->n_sub[i]);

        u->value_sum += 0.5 * weight * error * error;
        *actor_value_grad(u->actor, i) = (float)(u->cfg.value_coef * weight * error);
    }
}

// Where they go: log-probabilities and values of the n rows of a pass.
static void store_rows(struct rl_updater *u, int n)
{
    for (int i = 0; i < n; i++) {
        if (u->store[i])
            memcpy(u->store[i], u->logp + (size_t)i * (size_t)u->chunk,
                   (size_t)u->chunk * sizeof *u->logp);
        if (u->store_v[i])
            *u->store_v[i] = actor_value(u->actor, i);
    }
}

// Forward, loss and backward of the rows that wait; or only store what they give.
static enum status flush(struct rl_updater *u, bool store, struct token_sums *sums)
{
    const int n = u->n_row, n_act = u->width / u->chunk;
    struct token_rows rows = {.n = n,
                              .chunk = u->chunk,
                              .n_act = n_act,
                              .ld = actor_ld(u->actor),
                              .log_std = actor_log_std(u->actor),
                              .inv_std = actor_inv_std(u->actor),
                              .action = u->action,
                              .n_sub = u->n_sub,
                              .logp = u->logp,
                              .logp_behaviour = u->logp_behaviour,
                              .advantage = u->advantage,
                              .omega = u->omega};

    u->n_row = 0;
    if (n == 0)
        return ST_OK;
    TRY(actor_forward(u->actor, u->row, n, &rows.mean));
    gaussian_parts(rows.mean, rows.ld, u->action, n, u->width, u->chunk, rows.log_std, rows.inv_std,
                   u->logp);
    if (store) {
        store_rows(u, n);
        return ST_OK;
    }
    if (u->start[0])
        rows.logp_start = u->logp_start;
    memset(u->log_std_grad, 0, (size_t)u->width * sizeof *u->log_std_grad);
    token_loss(&u->loss, &rows, actor_mean_grad(u->actor), u->log_std_grad, sums);
    if (!u->rl.train_std)
        memset(u->log_std_grad, 0, (size_t)u->width * sizeof *u->log_std_grad);
    if (u->critic)
        value_loss(u, n);
    actor_backward(u->actor, n, u->log_std_grad, u->grad);
    return ST_OK;
}

// What decision i of an episode is learned with.
static void put_goal(struct rl_updater *u, const struct kept *k, size_t i, size_t at)
{
    u->omega[at] = k->omega;
    u->n_sub[at] = k->e.executed[i];
    u->advantage[at] = k->advantage;
    if (u->critic) {
        u->advantage[at] = (float)(((double)k->decision_advantage[i] - u->adv_mean) / u->adv_std);
        u->target[at] = (float)(((double)k->ret[i] - u->ret_mean) / u->ret_std);
    }
}

// Observation i of an episode becomes the next row; all but the final one have a decision.
static void put_row(struct rl_updater *u, const struct kept *k, size_t i, bool store)
{
    const struct episode_head *h = &k->e.head;
    const size_t chunk = (size_t)u->chunk, width = (size_t)u->width, at = (size_t)u->n_row++;
    const size_t views = (size_t)h->n_view * h->picture_bytes;
    const bool final = i == h->n_decision;

    u->row[at] = (struct actor_row){.obs = k->e.obs + i * h->n_obs,
                                    .pictures = views > 0 ? k->e.pictures + i * views : NULL,
                                    .instruction = k->instruction};
    if (h->n_latent > 0) // a value is that of any noise; behind the last decision it is that one's
        u->row[at].latent = k->e.latent + (i - final) * h->n_latent;
    u->start[at] = store ? NULL : k->logp_start;
    u->store[at] = store && k->logp_start ? k->logp_start + i * chunk : NULL;
    u->store_v[at] = store && k->value ? k->value + i : NULL;
    if (final) {
        memset(u->action + at * width, 0, width * sizeof *u->action);
        u->store[at] = NULL;
        return;
    }
    memcpy(u->action + at * width, k->e.action + i * width, width * sizeof *u->action);
    memcpy(u->logp_behaviour + at * chunk, k->e.logp + i * chunk, chunk * sizeof *u->logp);
    if (k->logp_start && !store)
        memcpy(u->logp_start + at * chunk, k->logp_start + i * chunk, chunk * sizeof *u->logp);
    if (!store)
        put_goal(u, k, i, at);
}

// All decisions of n episodes, through passes that are as full as they can be.
static enum status run(struct rl_updater *u, const uint32_t *order, int first, int n, bool store,
                       struct token_sums *sums)
{
    for (int k = 0; k < n; k++) {
        const struct kept *kept = &u->kept[order ? (int)order[first + k] : first + k];

        const uint32_t rows =
            store && u->critic ? episode_n_seen(&kept->e.head) : kept->e.head.n_decision;

        for (size_t i = 0; i < rows; i++) {
            put_row(u, kept, i, store);
            if (u->n_row == actor_rows(u->actor))
                TRY(flush(u, store, sums));
        }
    }
    TRY(flush(u, store, sums));
    accel_accumulate(&u->cfg.accel, n);
    return ST_OK;
}

// What the policy of the window's start gives for the episodes that came since: log-probabilities
// where the objective needs them; with a critic values, and what is made of them.
static enum status look_first(struct rl_updater *u)
{
    if ((needs_start(u) || u->critic) && u->n_valued < u->n_kept)
        TRY(run(u, NULL, u->n_valued, u->n_kept - u->n_valued, true, NULL));
    for (; u->critic && u->n_valued < u->n_kept; u->n_valued++) {
        const struct kept *k = &u->kept[u->n_valued];
        const uint32_t n = k->e.head.n_decision;

        for (uint32_t i = 0; i < episode_n_seen(&k->e.head); i++)
            k->value[i] = (float)(u->ret_mean + u->ret_std * (double)k->value[i]);
        chunk_gae_run(&k->e, u->cfg.gamma, u->cfg.gae_lambda, k->value, k->decision_advantage,
                      k->ret);
        for (uint32_t i = 0; i < n; i++) {
            tally_add(&u->advantage_seen, (double)k->decision_advantage[i]);
            tally_add(&u->ret_seen, (double)k->ret[i]);
        }
    }
    u->n_valued = u->n_kept;
    return ST_OK;
}

enum status rl_accumulate(struct rl_updater *u)
{
    if (is_deferred(u) || u->n_kept == 0)
        return ST_OK;
    TRY(look_first(u));
    TRY(run(u, NULL, 0, u->n_kept, false, &u->sums));
    forget(u);
    return ST_OK;
}

// --- closing a window ----------------------------------------------------------------------------

static double learning_rate(const struct rl_updater *u)
{
    const double part = (double)u->weights->version / (double)u->total;
    // AdamW's first steps are as long as any, whatever the gradient
    const double rise = u->rl.warmup > 0 ? (double)u->n_step / (double)u->rl.warmup : 1;

    return (u->cfg.lr + (u->cfg.lr_final - u->cfg.lr) * (part < 1 ? part : 1)) *
           (rise < 1 ? rise : 1);
}

static void step_range(struct rl_updater *u, int64_t first, int64_t end, double scale, double decay)
{
    const struct adamw a = {.lr = learning_rate(u),
                            .beta1 = u->cfg.beta1,
                            .beta2 = u->cfg.beta2,
                            .eps = u->cfg.adam_eps,
                            .weight_decay = decay};

    adamw_step(&a, u->n_step, u->grad + first, scale, end - first, u->params + first, u->m + first,
               u->v + first);
}

// The norm of a part of the sums over `divisor`, and the factor that divides and clips it.
static enum status clip(const struct rl_updater *u, const char *name, int64_t first, int64_t end,
                        double divisor, double *norm, double *scale)
{
    double square = 0;

    for (int64_t i = first; i < end; i++)
        square += (double)u->grad[i] * (double)u->grad[i];
    *scale = 1 / divisor;
    *norm = sqrt(square) * *scale;
    if (!isfinite(*norm))
        return FAIL(ST_INVAL,
                    "the gradient of the %s is not finite at version %llu; a lower learning rate "
                    "may help",
                    name, (unsigned long long)u->weights->version);
    if (u->cfg.max_grad_norm > 0 && *norm > u->cfg.max_grad_norm)
        *scale *= u->cfg.max_grad_norm / *norm;
    return ST_OK;
}

// Divide the sums, clip their norm and step; then they are empty.
static enum status optimizer_step(struct rl_updater *u, double divisor, struct rl_stats *stats)
{
    const int64_t log_std = actor_log_std_at(u->actor);
    const int64_t end = log_std + actor_n_log_std(u->actor);
    const int64_t critic = actor_critic_at(u->actor); // a network of its own is clipped alone
    double norm[2], scale[2];

    TRY(clip(u, "policy", 0, critic, divisor, &norm[0], &scale[0]));
    TRY(clip(u, "value network", critic, u->n, divisor, &norm[1], &scale[1]));
    u->n_step++;
    step_range(u, 0, log_std, scale[0], u->cfg.weight_decay);
    if (u->rl.train_std)
        step_range(u, log_std, end, scale[0], 0); // decay would pull the deviation to 1
    step_range(u, end, critic, scale[0], u->cfg.weight_decay);
    step_range(u, critic, u->n, scale[1], u->cfg.weight_decay);
    for (int64_t i = log_std; i < end && u->rl.train_std; i++)
        u->params[i] =
            fminf(fmaxf(u->params[i], (float)UPDATE_LOG_STD_MIN), (float)UPDATE_LOG_STD_MAX);
    memset(u->grad, 0, (size_t)u->n * sizeof *u->grad);
    actor_use(u->actor, u->params);
    stats->grad_norm += hypot(norm[0], norm[1]);
    stats->steps++;
    accel_step(&u->cfg.accel);
    return ST_OK;
}

static void fill_first(const struct rl_updater *u, const struct token_sums *s,
                       struct rl_stats *stats)
{
    const double divisor = token_divisor(u->loss.mean, u->n_episode, u->n_entry, u->rl.loss_length);

    stats->entries = s->entries;
    stats->loss = s->policy / divisor;
    if (u->critic) {
        const double var = tally_var(&u->ret_seen);

        // the error of a prediction, target - V, is the advantage
        stats->value_loss = u->value_sum / divisor;
        stats->explained_variance = var > 0 ? 1 - tally_var(&u->advantage_seen) / var : 0;
    }
    stats->log_ratio_max = s->log_ratio_max;
    stats->weight_mean = s->weight / s->entries;
    stats->weight_max = s->weight_max;
    stats->capped = s->capped / s->entries;
    stats->ess = s->weight * s->weight / (s->entries * s->weight_square);
}

static void fill_pass(const struct token_sums *s, struct rl_stats *stats)
{
    stats->clip_fraction = s->clipped / s->entries;
    stats->dual_fraction = s->dual / s->entries;
    stats->kl = s->kl / s->entries;
}

// One pass over the kept window in `minibatches` steps.
static enum status epoch(struct rl_updater *u, int64_t pass, struct rl_stats *stats, bool *stop)
{
    const int64_t n = u->n_kept, parts = u->cfg.minibatches < n ? u->cfg.minibatches : n;
    struct rng rng = rng_make(u->weights->version, RNG_SHUFFLE, (uint64_t)pass, 0, 0);
    struct token_sums all = {0};

    for (int64_t i = 0; i < n; i++) {
        uint32_t k = rng_below(&rng, (uint32_t)i + 1);

        u->order[i] = u->order[k];
        u->order[k] = (uint32_t)i;
    }
    for (int64_t i = 0; i < parts && !*stop; i++) {
        const int64_t first = n * i / parts, end = n * (i + 1) / parts;
        struct token_sums sums = {0};
        int64_t entries = 0;

        for (int64_t k = first; k < end; k++)
            entries += u->kept[u->order[k]].entries;
        TRY(run(u, u->order, (int)first, (int)(end - first), false, &sums));
        token_sums_add(&all, &sums);
        *stop = u->cfg.target_kl > 0 && sums.kl > u->cfg.target_kl * sums.entries;
        if (*stop) {
            memset(u->grad, 0, (size_t)u->n * sizeof *u->grad);
            break;
        }
        TRY(optimizer_step(u, token_divisor(u->loss.mean, end - first, entries, u->rl.loss_length),
                           stats));
    }
    if (pass == 0)
        fill_first(u, &all, stats);
    fill_pass(&all, stats);
    return ST_OK;
}

// The averages move on with the window; see update.h. The value keeps its predictions.
static void move_averages(struct rl_updater *u)
{
    const struct tally *a = &u->advantage_seen, *r = &u->ret_seen;
    const double old_mean = u->ret_mean, old_std = u->ret_std;
    struct average window = {0};

    if (u->cfg.normalize_advantage) {
        average_add(&u->averages[0], ADV_KEEP, tally_mean(a), a->square / a->n);
        average_add(&window, 0, tally_mean(a), a->square / a->n);
        average_read(&window, &u->adv_mean, &u->adv_std);
    }
    if (u->cfg.normalize_returns) {
        average_add(&u->averages[1], RET_KEEP, tally_mean(r), r->square / r->n);
        average_read(&u->averages[1], &u->ret_mean, &u->ret_std);
        actor_value_rescale(u->actor, u->params, old_mean, old_std, u->ret_mean, u->ret_std);
        actor_use(u->actor, u->params);
    }
}

// All optimizer steps of a window that has episodes.
static enum status train(struct rl_updater *u, struct rl_stats *stats)
{
    const bool deferred = is_deferred(u);
    bool stop = false;

    TRY(look_first(u));
    if (u->critic && deferred)
        move_averages(u);
    if (several_steps(u)) {
        for (int64_t pass = 0; pass < u->cfg.epochs && !stop; pass++)
            TRY(epoch(u, pass, stats, &stop));
        return ST_OK;
    }
    TRY(run(u, NULL, 0, u->n_kept, false, &u->sums));
    fill_first(u, &u->sums, stats);
    fill_pass(&u->sums, stats);
    TRY(optimizer_step(u, token_divisor(u->loss.mean, u->n_episode, u->n_entry, u->rl.loss_length),
                       stats));
    if (u->critic && !deferred)
        move_averages(u);
    return ST_OK;
}

enum status rl_step(struct rl_updater *u, struct weights **out, struct rl_stats *stats)
{
    struct rl_stats s = {
        .episodes = u->n_episode, .decisions = u->n_decision, .lr = learning_rate(u)};
    struct weights *w;

    if (u->n_episode > 0)
        TRY(train(u, &s));
    if (s.steps > 0)
        s.grad_norm /= (double)s.steps;
    TRY(weights_copy(&w, u->weights));
    memcpy(w->params, u->params, (size_t)w->n_param * sizeof *w->params);
    w->version++;
    w->ret_mean = u->ret_mean;
    w->ret_std = u->ret_std;
    for (int d = 0; d < actor_n_log_std(u->actor); d++)
        s.std_mean +=
            exp((double)w->params[actor_log_std_at(u->actor) + d]) / actor_n_log_std(u->actor);
    weights_drop(u->weights); // published weights never change: others may hold the old version
    u->weights = w;
    open_window(u);
    *out = weights_hold(w);
    *stats = s;
    return ST_OK;
}
