#include "learner/update_priv.h"

#include "common/base/mem.h"
#include "learner/gae.h"
#include "learner/stack.h"

#include <string.h>

static void slot_fini(struct slot *s)
{
    mem_free(s->grad);
    mem_free(s->obs.sum);
    mem_free(s->obs.square);
}

static enum status slot_init(struct slot *s, int64_t n_param, int n_obs)
{
    s->grad = mem_alloc((size_t)n_param, sizeof s->grad[0]);
    s->obs.sum = mem_alloc((size_t)n_obs, sizeof s->obs.sum[0]);
    s->obs.square = mem_alloc((size_t)n_obs, sizeof s->obs.square[0]);
    return s->grad && s->obs.sum && s->obs.square ? ST_OK : ST_NOMEM;
}

static void worker_fini(struct worker *w)
{
    pass_fini(&w->pass);
    store_fini(&w->scratch);
    mem_free(w->x);
    mem_free(w->value);
    mem_free(w->advantage);
    mem_free(w->ret);
    mem_free(w->valid);
    mem_free(w->picture);
    mem_free(w->view.advantage);
    mem_free(w->view.target);
    mem_free(w->view.pictures);
}

static enum status worker_init(struct worker *w, const struct nets *nets)
{
    struct view *v = &w->view;

    store_init(&w->scratch, &nets->shape);
    v->advantage = mem_alloc(PASS_ROWS, sizeof v->advantage[0]);
    v->target = mem_alloc(PASS_ROWS, sizeof v->target[0]);
    v->pictures = mem_alloc(PASS_ROWS * (size_t)(w->scratch.stack + 1), sizeof v->pictures[0]);
    if (!v->advantage || !v->target || !v->pictures)
        return ST_NOMEM;
    TRY(store_reserve(&w->scratch, PASS_ROWS));
    return pass_init(&w->pass, nets);
}

// Room for a chunk of n_step steps and all observations that values are needed of.
static enum status worker_reserve(struct worker *w, int64_t n_rows, int n_obs)
{
    TRY(store_reserve(&w->scratch, n_rows));
    if (n_rows <= w->n_max)
        return ST_OK;
    mem_free(w->x);
    mem_free(w->value);
    mem_free(w->advantage);
    mem_free(w->ret);
    mem_free(w->valid);
    mem_free(w->picture);
    w->n_max = 0;
    w->x = mem_alloc((size_t)n_rows * (size_t)REAL_LD(n_obs), sizeof w->x[0]);
    w->value = mem_alloc((size_t)n_rows, sizeof w->value[0]);
    w->advantage = mem_alloc((size_t)n_rows, sizeof w->advantage[0]);
    w->ret = mem_alloc((size_t)n_rows, sizeof w->ret[0]);
    w->valid = mem_alloc((size_t)n_rows, sizeof w->valid[0]);
    w->picture = mem_alloc((size_t)n_rows * (size_t)(w->scratch.stack + 1), sizeof w->picture[0]);
    if (!w->x || !w->value || !w->advantage || !w->ret || !w->valid || !w->picture)
        return ST_NOMEM;
    w->n_max = n_rows;
    return ST_OK;
}

void updater_pack(struct updater *u)
{
    nets_pack(&u->nets, u->params);
}

static void slot_clear(struct slot *s, int64_t n_param, int n_obs)
{
    if (s->used)
        memset(s->grad, 0, (size_t)n_param * sizeof s->grad[0]);
    s->used = false;
    memset(&s->loss, 0, sizeof s->loss);
    s->obs.n = 0;
    memset(s->obs.sum, 0, (size_t)n_obs * sizeof s->obs.sum[0]);
    memset(s->obs.square, 0, (size_t)n_obs * sizeof s->obs.square[0]);
    memset(&s->advantage, 0, sizeof s->advantage);
    memset(&s->ret, 0, sizeof s->ret);
    s->lag = s->lag_max = 0;
}

void updater_open_window(struct updater *u)
{
    const struct weights *w = u->weights;
    int i;

    for (i = 0; i < SLOTS; i++)
        slot_clear(&u->slot[i], w->n_param, w->shape.n_obs);
    u->n_sample = u->n_chunk = 0;
    u->window.n = u->window.n_picture = 0;
    obsnorm_set(&u->norm, w->obs_mean, w->obs_var);
    u->scales = (struct scales){.adv_std = 1, .ret_mean = w->ret_mean, .ret_std = w->ret_std};
    // the first window knows no advantages before it: its own are used, once it is complete
    u->deferred = u->cfg.normalize_advantage && u->adv_average.weight == 0;
    if (u->cfg.normalize_advantage)
        average_read(&u->adv_average, &u->scales.adv_mean, &u->scales.adv_std);
    updater_pack(u);
}

static enum status build(struct updater *u, const struct weights *w)
{
    int i;

    TRY(weights_copy(&u->weights, w));
    TRY(nets_init(&u->nets, &w->shape));
    TRY(obsnorm_init(&u->norm, w->shape.n_obs));
    u->params = mem_alloc((size_t)w->n_param, sizeof u->params[0]);
    u->m = mem_alloc((size_t)w->n_param, sizeof u->m[0]);
    u->v = mem_alloc((size_t)w->n_param, sizeof u->v[0]);
    u->grad = mem_alloc((size_t)w->n_param, sizeof u->grad[0]);
    if (!u->params || !u->m || !u->v || !u->grad)
        return ST_NOMEM;
    memcpy(u->params, w->params, (size_t)w->n_param * sizeof u->params[0]);
    for (i = 0; i < SLOTS; i++)
        TRY(slot_init(&u->slot[i], w->n_param, w->shape.n_obs));
    for (i = 0; i < u->cfg.threads; i++)
        TRY(worker_init(&u->worker[i], &u->nets));
    store_init(&u->window, &w->shape);
    return team_create(&u->team, (int)u->cfg.threads);
}

enum status updater_create(struct updater **out, const struct update_config *cfg,
                           const struct weights *w, int64_t total_windows)
{
    struct updater *u;
    enum status st;

    if (cfg->threads < 1 || cfg->threads > UPDATE_THREADS_MAX)
        return FAIL(ST_INVAL, "%lld learner threads, expected 1 to %d", (long long)cfg->threads,
                    UPDATE_THREADS_MAX);
    if (cfg->epochs < 1 || cfg->minibatches < 1)
        return FAIL(ST_INVAL, "%lld epochs of %lld minibatches, expected at least 1 of each",
                    (long long)cfg->epochs, (long long)cfg->minibatches);
    u = mem_alloc(1, sizeof *u);
    if (!u)
        return ST_NOMEM;
    u->cfg = *cfg;
    u->loss = (struct loss_config){.clip = cfg->clip,
                                   .value_coef = cfg->value_coef,
                                   .entropy_coef = cfg->entropy_coef,
                                   .weight_cap = cfg->weight_cap};
    u->total_windows = total_windows > 0 ? total_windows : 1;
    st = build(u, w);
    if (st != ST_OK) {
        updater_destroy(u);
        return st;
    }
    updater_open_window(u);
    *out = u;
    return ST_OK;
}

void updater_destroy(struct updater *u)
{
    int i;

    if (!u)
        return;
    team_destroy(u->team);
    for (i = 0; i < SLOTS; i++)
        slot_fini(&u->slot[i]);
    for (i = 0; i < UPDATE_THREADS_MAX; i++)
        worker_fini(&u->worker[i]);
    store_fini(&u->window);
    nets_fini(&u->nets);
    obsnorm_fini(&u->norm);
    weights_drop(u->weights);
    mem_free(u->params);
    mem_free(u->m);
    mem_free(u->v);
    mem_free(u->grad);
    mem_free(u->chunk_first);
    mem_free(u->shuffled);
    mem_free(u);
}

// --- chunks --------------------------------------------------------------------------------------

// Values, on the scale of returns, of all observations of the chunk in w->x: its steps, the one
// after, the final ones.
static void chunk_values(struct updater *u, struct worker *w, const struct chunk *c)
{
    const struct chunk_head *h = &c->head;
    size_t ld = (size_t)REAL_LD(h->n_obs);
    int n = (int)(h->n_step + 1 + h->n_truncated), stack = w->scratch.stack, i, k;

    obsnorm_rows(&u->norm, c->obs, (int)h->n_step, w->x);
    obsnorm_rows(&u->norm, c->last_obs, 1, w->x + h->n_step * ld);
    obsnorm_rows(&u->norm, c->final_obs, (int)h->n_truncated, w->x + (h->n_step + 1) * ld);
    if (stack > 0)
        stack_pictures(c, stack, w->picture);
    for (i = 0; i < n; i += PASS_ROWS) {
        int rows = n - i < PASS_ROWS ? n - i : PASS_ROWS;

        for (k = 0; k < rows * stack; k++)
            w->view.pictures[k] =
                c->pictures + (size_t)w->picture[i * stack + k] * h->picture_bytes;
        pass_value(&w->pass, &u->nets, w->x + (size_t)i * ld, w->view.pictures, rows, w->value + i);
    }
    for (k = 0; k < n; k++)
        w->value[k] = (float)(u->weights->ret_mean + u->weights->ret_std * (double)w->value[k]);
}

// Put the chunk's samples into rows `first` and on of `to`, and count them in the slot. Number 0 of
// the chunk's pictures is picture_first of the list that they are numbered in.
static int chunk_samples(struct updater *u, struct worker *w, struct slot *slot,
                         const struct chunk *c, struct store *to, int64_t first,
                         int64_t picture_first)
{
    const struct chunk_head *h = &c->head;
    size_t ld = (size_t)REAL_LD(h->n_obs), n_act = h->n_act;
    struct gae_input in = {.n = (int)h->n_step,
                           .gamma = u->cfg.gamma,
                           .lambda = u->cfg.gae_lambda,
                           .reward = c->reward,
                           .flags = c->flags,
                           .value = w->value,
                           .final_value = w->value + h->n_step + 1};
    uint32_t t;
    int n = 0;

    (void)gae_run(&in, w->advantage, w->ret, w->valid);
    for (t = 0; t < h->n_step; t++) {
        size_t row = (size_t)first + (size_t)n;
        double lag = (double)(u->weights->version - c->version[t]);

        if (!w->valid[t])
            continue;
        memcpy(to->x + row * ld, w->x + t * ld, ld * sizeof to->x[0]);
        memcpy(to->action + row * n_act, c->action + t * n_act, n_act * sizeof to->action[0]);
        to->advantage[row] = w->advantage[t];
        to->ret[row] = w->ret[t];
        to->logp_behaviour[row] = c->logp[t];
        for (int k = 0; k < to->stack; k++)
            to->picture[row * (size_t)to->stack + (size_t)k] =
                (uint32_t)picture_first + w->picture[t * (size_t)to->stack + (size_t)k];
        tally_add(&slot->advantage, (double)w->advantage[t]);
        tally_add(&slot->ret, (double)w->ret[t]);
        obs_sums_add(&slot->obs, c->obs + t * h->n_obs, u->weights->obs_mean, (int)h->n_obs);
        slot->lag += lag;
        slot->lag_max = lag > slot->lag_max ? lag : slot->lag_max;
        n++;
    }
    return n;
}

// First pass over rows of a store whose pictures are those of `list`: forward and backward into the
// slot.
static void first_pass(struct updater *u, struct worker *w, struct slot *slot,
                       const struct store *from, const uint8_t *list, int64_t first, int n,
                       bool have_value)
{
    int i;

    for (i = 0; i < n; i += PASS_ROWS) {
        int rows = n - i < PASS_ROWS ? n - i : PASS_ROWS;
        struct samples s = store_view(from, first + i, rows, &u->scales, list, &w->view);

        pass_run(&w->pass, &u->nets, &u->loss, &s, true, have_value, slot->grad, &slot->loss);
    }
    slot->used = true;
}

static void run_chunk(struct updater *u, struct worker *w, struct slot *slot, int i)
{
    const struct chunk *c = u->chunks[i];
    struct store *to = window_kept(u) ? &u->window : &w->scratch;
    int64_t first = window_kept(u) ? u->chunk_first[2 * i] : 0;
    int64_t picture_first = window_kept(u) ? u->chunk_first[2 * i + 1] : 0;
    int rows = (int)(c->head.n_step + 1 + c->head.n_truncated), n;

    chunk_values(u, w, c);
    n = chunk_samples(u, w, slot, c, to, first, picture_first);
    if (window_kept(u) && to->stack > 0)
        memcpy(to->pictures + (size_t)picture_first * to->picture_bytes, c->pictures,
               (size_t)chunk_n_picture(&c->head) * to->picture_bytes);
    // the activations of the values are still there if they were one block and all rows count
    if (!u->deferred && n > 0)
        first_pass(u, w, slot, to, window_kept(u) ? to->pictures : c->pictures, first, n,
                   rows <= PASS_ROWS && n == (int)c->head.n_step);
}

// Chunks of the window go to the slots in turn; a thread works on whole slots.
static void run_chunks(void *arg, int i_thread, int n_thread)
{
    struct updater *u = arg;
    int i, k;

    for (i = 0; i < u->n_chunks; i++) {
        k = (int)((u->n_chunk + i) % SLOTS);
        if (k % n_thread == i_thread)
            run_chunk(u, &u->worker[i_thread], &u->slot[k], i);
    }
}

static enum status check_chunk(const struct updater *u, const struct chunk *c)
{
    const struct model_shape *s = &u->weights->shape;

    if ((int)c->head.n_obs != s->n_obs || (int)c->head.n_act != s->n_act)
        return FAIL(ST_PROTO, "a chunk of %u observations and %u actions, the model has %d and %d",
                    c->head.n_obs, c->head.n_act, s->n_obs, s->n_act);
    if (c->head.picture_bytes != u->window.picture_bytes ||
        (int)c->head.n_lead != (u->window.stack > 0 ? u->window.stack - 1 : 0))
        return FAIL(ST_PROTO,
                    "a chunk with pictures of %u bytes and %u before them, the model sees %d of "
                    "%zu bytes",
                    c->head.picture_bytes, c->head.n_lead, u->window.stack,
                    u->window.picture_bytes);
    if (c->head.version_max > u->weights->version)
        return FAIL(ST_PROTO, "a chunk of version %llu, the model has version %llu",
                    (unsigned long long)c->head.version_max,
                    (unsigned long long)u->weights->version);
    return ST_OK;
}

static int count_samples(const struct chunk *c)
{
    uint32_t t;
    int n = 0;

    for (t = 0; t < c->head.n_step; t++)
        n += !(c->flags[t] & (CHUNK_SKIP | CHUNK_ERROR));
    return n;
}

// Memory for a list of chunks, and the rows of their samples.
static enum status reserve(struct updater *u, const struct chunk *const *c, int n, int64_t *total,
                           int64_t *pictures)
{
    int64_t rows_max = 0;
    int i;

    if (n > u->chunk_max) {
        int64_t *first = mem_resize(u->chunk_first, (size_t)n, 2 * sizeof first[0]);

        if (!first)
            return ST_NOMEM;
        u->chunk_first = first;
        u->chunk_max = n;
    }
    *total = *pictures = 0;
    for (i = 0; i < n; i++) {
        int64_t rows = (int64_t)c[i]->head.n_step + 1 + c[i]->head.n_truncated;

        TRY(check_chunk(u, c[i]));
        rows_max = rows > rows_max ? rows : rows_max;
        u->chunk_first[2 * i] = u->window.n + *total;
        u->chunk_first[2 * i + 1] = u->window.n_picture + *pictures;
        *total += count_samples(c[i]);
        *pictures += chunk_n_picture(&c[i]->head);
    }
    for (i = 0; i < u->cfg.threads; i++)
        TRY(worker_reserve(&u->worker[i], rows_max, u->weights->shape.n_obs));
    if (!window_kept(u))
        return ST_OK;
    TRY(store_reserve_pictures(&u->window, u->window.n_picture + *pictures));
    return store_reserve(&u->window, u->window.n + *total);
}

enum status updater_accumulate_many(struct updater *u, const struct chunk *const *c, int n)
{
    int64_t total, pictures;

    TRY(reserve(u, c, n, &total, &pictures));
    u->chunks = c;
    u->n_chunks = n;
    if (n == 1)
        run_chunks(u, 0, 1); // not worth waking anybody
    else
        team_run(u->team, run_chunks, u);
    if (!u->deferred)
        accel_accumulate(&u->cfg.accel, (int)total);
    u->n_chunk += n;
    u->n_sample += total;
    if (window_kept(u)) {
        u->window.n += total;
        u->window.n_picture += pictures;
    }
    return ST_OK;
}

enum status updater_accumulate(struct updater *u, const struct chunk *c)
{
    return updater_accumulate_many(u, &c, 1);
}

int64_t updater_samples(const struct updater *u)
{
    return u->n_sample;
}

const struct weights *updater_weights(const struct updater *u)
{
    return u->weights;
}

// --- rows of the window --------------------------------------------------------------------------

static void gather(struct updater *u, struct worker *w, int64_t first, int n)
{
    int i;

    for (i = 0; i < n; i++)
        store_copy(&w->scratch, i, &u->window, u->order[first + i]);
}

// Blocks of rows go to the slots in turn.
static void run_rows(void *arg, int i_thread, int n_thread)
{
    struct updater *u = arg;
    struct worker *w = &u->worker[i_thread];
    int64_t at, block = 0;

    for (at = 0; at < u->n_order; at += PASS_ROWS, block++) {
        int n = (int)(u->n_order - at < PASS_ROWS ? u->n_order - at : PASS_ROWS);
        struct slot *slot = &u->slot[block % SLOTS];
        struct samples s;

        if ((int)(block % SLOTS) % n_thread != i_thread)
            continue;
        if (!u->order) {
            first_pass(u, w, slot, &u->window, u->window.pictures, at, n, false);
            continue;
        }
        gather(u, w, at, n);
        s = store_view(&w->scratch, 0, n, &u->scales, u->window.pictures, &w->view);
        pass_run(&w->pass, &u->nets, &u->loss, &s, false, false, slot->grad, &slot->loss);
        slot->used = true;
    }
}

void updater_run_rows(struct updater *u)
{
    if (u->n_order <= PASS_ROWS)
        run_rows(u, 0, 1);
    else
        team_run(u->team, run_rows, u);
    accel_accumulate(&u->cfg.accel, (int)u->n_order);
}

// --- checkpoints ---------------------------------------------------------------------------------

void updater_get(struct updater *u, struct updater_state *out)
{
    *out = (struct updater_state){
        .weights = u->weights,
        .n_param = u->weights->n_param,
        .n_step = u->n_step,
        .total_windows = u->total_windows,
        .m = u->m,
        .v = u->v,
        .averages = {{u->adv_average.weight, u->adv_average.mean, u->adv_average.square},
                     {u->ret_average.weight, u->ret_average.mean, u->ret_average.square}},
        .cfg = &u->cfg};
}

enum status updater_restore(struct updater *u, const struct weights *w,
                            const struct updater_state *state)
{
    struct weights *copy;

    if (!model_shape_equal(&w->shape, &u->weights->shape))
        return FAIL(ST_INVAL, "weights of a model with other sizes than the updater's");
    TRY(weights_copy(&copy, w));
    weights_drop(u->weights);
    u->weights = copy;
    memcpy(u->params, w->params, (size_t)w->n_param * sizeof u->params[0]);
    u->n_step = state->n_step;
    u->adv_average =
        (struct average){state->averages[0][0], state->averages[0][1], state->averages[0][2]};
    u->ret_average =
        (struct average){state->averages[1][0], state->averages[1][1], state->averages[1][2]};
    updater_open_window(u);
    return ST_OK;
}
