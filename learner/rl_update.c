#include "learner/rl_update.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "learner/actor.h"
#include "nn/adamw.h"
#include "nn/gaussian.h"

#include <math.h>
#include <string.h>

// An episode of the open window.
struct kept {
    struct msg *m;
    struct episode e;
    const char *instruction;
    float advantage, omega;
    int64_t entries;
    float *logp_start; // (n_decision, chunk) where the objective needs it
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

    // the open window
    struct kept *kept; // (kept_max)
    int n_kept, n_accumulated, kept_max;
    int64_t n_episode, n_decision, n_entry;
    struct token_sums sums;
    uint32_t *order; // (kept_max) scratch

    // rows of the next pass
    int n_row;
    struct actor_row row[ACTOR_ROWS];
    const float *start[ACTOR_ROWS]; // of each row; NULL without
    float *store[ACTOR_ROWS];       // where its log-probabilities go
    float advantage[ACTOR_ROWS], omega[ACTOR_ROWS];
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

static bool needs_start(const struct rl_updater *u)
{
    return several_steps(u) && u->loss.objective == TOKEN_DECOUPLED;
}

static enum status build(struct rl_updater *u, const struct weights *w)
{
    size_t rows;

    TRY(weights_copy(&u->weights, w));
    TRY(actor_create(&u->actor, w, u->rl.budget));
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
        return FAIL(ST_INVAL, "--learner-threads is %lld, expected 1 where groups are learned from",
                    (long long)cfg->threads);
    u = mem_alloc(1, sizeof *u);
    if (!u)
        return ST_NOMEM;
    u->cfg = *cfg;
    u->rl = *rl;
    u->total = total;
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
    }
    u->n_kept = u->n_accumulated = u->n_row = 0;
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
                             .n_log_std = actor_n_log_std(u->actor)};
}

static void open_window(struct rl_updater *u)
{
    forget(u);
    u->n_episode = u->n_decision = u->n_entry = 0;
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
    if (st != ST_OK) {
        msg_free(m);
        return st;
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

// Forward, loss and backward of the rows that wait; or only their log-probabilities, where they go.
static enum status flush(struct rl_updater *u, struct token_sums *sums)
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
    if (u->store[0]) {
        for (int i = 0; i < n; i++)
            memcpy(u->store[i], u->logp + (size_t)i * (size_t)u->chunk,
                   (size_t)u->chunk * sizeof *u->logp);
        return ST_OK;
    }
    if (u->start[0])
        rows.logp_start = u->logp_start;
    memset(u->log_std_grad, 0, (size_t)u->width * sizeof *u->log_std_grad);
    token_loss(&u->loss, &rows, actor_mean_grad(u->actor), u->log_std_grad, sums);
    if (!u->rl.train_std)
        memset(u->log_std_grad, 0, (size_t)u->width * sizeof *u->log_std_grad);
    actor_backward(u->actor, n, u->log_std_grad, u->grad);
    return ST_OK;
}

// Decision i of an episode becomes the next row.
static void put_row(struct rl_updater *u, const struct kept *k, size_t i, bool store)
{
    const struct episode_head *h = &k->e.head;
    const size_t chunk = (size_t)u->chunk, width = (size_t)u->width, at = (size_t)u->n_row++;
    const size_t views = (size_t)h->n_view * h->picture_bytes;

    u->row[at] =
        (struct actor_row){.obs = k->e.obs + i * h->n_obs,
                           .pictures = views > 0 ? k->e.pictures + i * views : NULL,
                           .latent = h->n_latent > 0 ? k->e.latent + i * h->n_latent : NULL,
                           .instruction = k->instruction};
    memcpy(u->action + at * width, k->e.action + i * width, width * sizeof *u->action);
    memcpy(u->logp_behaviour + at * chunk, k->e.logp + i * chunk, chunk * sizeof *u->logp);
    if (k->logp_start && !store)
        memcpy(u->logp_start + at * chunk, k->logp_start + i * chunk, chunk * sizeof *u->logp);
    u->start[at] = store ? NULL : k->logp_start;
    u->store[at] = store ? k->logp_start + i * chunk : NULL;
    u->advantage[at] = k->advantage;
    u->omega[at] = k->omega;
    u->n_sub[at] = k->e.executed[i];
}

// All decisions of n episodes, through passes that are as full as they can be.
static enum status run(struct rl_updater *u, const uint32_t *order, int first, int n, bool store,
                       struct token_sums *sums)
{
    for (int k = 0; k < n; k++) {
        const struct kept *kept = &u->kept[order ? (int)order[first + k] : first + k];

        for (size_t i = 0; i < kept->e.head.n_decision; i++) {
            put_row(u, kept, i, store);
            if (u->n_row == actor_rows(u->actor))
                TRY(flush(u, sums));
        }
    }
    TRY(flush(u, sums));
    accel_accumulate(&u->cfg.accel, n);
    return ST_OK;
}

enum status rl_accumulate(struct rl_updater *u)
{
    if (several_steps(u) || u->n_kept == 0)
        return ST_OK;
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

// Divide the sums, clip their norm and step; then they are empty.
static enum status optimizer_step(struct rl_updater *u, double divisor, struct rl_stats *stats)
{
    const int64_t log_std = actor_log_std_at(u->actor);
    const int64_t end = log_std + actor_n_log_std(u->actor);
    double square = 0, norm, scale = 1 / divisor;

    for (int64_t i = 0; i < u->n; i++)
        square += (double)u->grad[i] * (double)u->grad[i];
    norm = sqrt(square) * scale;
    if (!isfinite(norm))
        return FAIL(ST_INVAL,
                    "the gradient of the policy is not finite at version %llu; a lower learning "
                    "rate may help",
                    (unsigned long long)u->weights->version);
    if (u->cfg.max_grad_norm > 0 && norm > u->cfg.max_grad_norm)
        scale *= u->cfg.max_grad_norm / norm;
    u->n_step++;
    step_range(u, 0, log_std, scale, u->cfg.weight_decay);
    if (u->rl.train_std)
        step_range(u, log_std, end, scale, 0); // decay would pull the deviation to 1
    step_range(u, end, u->n, scale, u->cfg.weight_decay);
    for (int64_t i = log_std; i < end && u->rl.train_std; i++)
        u->params[i] =
            fminf(fmaxf(u->params[i], (float)UPDATE_LOG_STD_MIN), (float)UPDATE_LOG_STD_MAX);
    memset(u->grad, 0, (size_t)u->n * sizeof *u->grad);
    actor_use(u->actor, u->params);
    stats->grad_norm += norm;
    stats->steps++;
    accel_step(&u->cfg.accel);
    return ST_OK;
}

static void fill_first(const struct rl_updater *u, const struct token_sums *s,
                       struct rl_stats *stats)
{
    stats->entries = s->entries;
    stats->loss =
        s->policy / token_divisor(u->loss.mean, u->n_episode, u->n_entry, u->rl.loss_length);
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

static enum status train(struct rl_updater *u, struct rl_stats *stats)
{
    bool stop = false;

    if (!several_steps(u)) {
        TRY(rl_accumulate(u));
        fill_first(u, &u->sums, stats);
        fill_pass(&u->sums, stats);
        return optimizer_step(
            u, token_divisor(u->loss.mean, u->n_episode, u->n_entry, u->rl.loss_length), stats);
    }
    if (needs_start(u))
        TRY(run(u, NULL, 0, u->n_kept, true, NULL));
    for (int64_t pass = 0; pass < u->cfg.epochs && !stop; pass++)
        TRY(epoch(u, pass, stats, &stop));
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
