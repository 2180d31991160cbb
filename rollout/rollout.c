#include "rollout/rollout.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "nn/policy.h"
#include "rollout/fleet.h"
#include "rollout/framestack.h"
#include "rollout/history.h"
#include "rollout/scheduler.h"
#include "rollout/trajectory.h"

#include <stdio.h>
#include <string.h>

#define STOP_WAIT_NS (100 * NS_PER_MS) // how soon *stop is seen

struct worker {
    const struct rollout_config *cfg;
    const atomic_bool *stop;
    struct rollout_progress *progress;
    struct intake *intake;
    struct fleet *fleet;
    struct trajectory *trajectory;
    struct scheduler *scheduler;
    struct history *history;
    const struct spec_picture *picture; // what the policy sees; NULL = none
    struct framestack frames;
    struct policy *policy;
    struct weights *weights; // NULL until the first have come
    int n_env;
    size_t n_obs, n_act;
    bool begun; // the first episodes were started
    bool done;  // the learner said BYE

    bool *pending;            // (n_env) a decision waits for its outcome
    bool *lost;               // (n_env) its server is gone
    uint64_t *used;           // (n_env) decisions made
    uint64_t *episode;        // (n_env) scratch
    uint32_t *global;         // (n_env) scratch
    struct reset_row *resets; // (n_env) scratch
    double *obs;              // (n_env, n_obs) the latest observations
    int *batch;               // (n_env) the envs of an inference or a step
    struct policy_row *rows;  // (n_env)
    float *action;            // (n_env, n_act) as sampled
    float *clipped;           // (n_env, n_act) as sent
    float *logp;              // (n_env)
};

static double *obs_of(struct worker *w, int env)
{
    return w->obs + (size_t)env * w->n_obs;
}

// ------------------------------------------------------------------ set-up

static enum status allocate(struct worker *w)
{
    size_t n = (size_t)w->n_env;

    w->pending = mem_alloc(n, sizeof w->pending[0]);
    w->lost = mem_alloc(n, sizeof w->lost[0]);
    w->global = mem_alloc(n, sizeof w->global[0]);
    w->resets = mem_alloc(n, sizeof w->resets[0]);
    w->used = mem_alloc(n, sizeof w->used[0]);
    w->episode = mem_alloc(n, sizeof w->episode[0]);
    w->obs = mem_alloc(n * w->n_obs, sizeof w->obs[0]);
    w->batch = mem_alloc(n, sizeof w->batch[0]);
    w->rows = mem_alloc(n, sizeof w->rows[0]);
    w->action = mem_alloc(n * w->n_act, sizeof w->action[0]);
    w->clipped = mem_alloc(n * w->n_act, sizeof w->clipped[0]);
    w->logp = mem_alloc(n, sizeof w->logp[0]);
    return w->pending && w->lost && w->global && w->resets && w->used && w->episode && w->obs &&
                   w->batch && w->rows && w->action && w->clipped && w->logp
               ? ST_OK
               : ST_NOMEM;
}

static enum status send_join(struct worker *w)
{
    struct join j = {.version = TRAINPROTO_VERSION,
                     .n_env = (uint32_t)w->n_env,
                     .env_first = (uint32_t)w->cfg->env_offset,
                     .seed = (uint64_t)w->cfg->seed,
                     .horizon = (uint32_t)w->cfg->horizon,
                     .n_obs = (uint32_t)w->n_obs,
                     .n_act = (uint32_t)w->n_act};
    struct msg *m;

    memcpy(j.task, fleet_spec(w->fleet)->task, sizeof j.task);
    if (w->picture) {
        memcpy(j.picture, w->picture->name, sizeof j.picture);
        j.n_view = 1;
        j.width = w->picture->width;
        j.height = w->picture->height;
    }
    TRY(join_write(&m, &j));
    return intake_send(w->intake, m);
}

// Pictures that nobody looks at are not drawn.
static struct hello wanted(const struct rollout_config *cfg)
{
    struct hello h = {.listed = !cfg->pixels || cfg->picture[0]};

    if (cfg->pixels && cfg->picture[0]) {
        h.n_picture = 1;
        snprintf(h.pictures[0].name, sizeof h.pictures[0].name, "%.*s", SPEC_NAME_MAX - 1,
                 cfg->picture);
    }
    return h;
}

static enum status set_up(struct worker *w)
{
    const struct rollout_config *cfg = w->cfg;
    int b_max;

    TRY(intake_create(&w->intake, &(struct intake_config){.env_urls = cfg->env,
                                                          .learner_url = cfg->learner,
                                                          .n_env = (int)cfg->num_envs,
                                                          .connect_wait_ns = cfg->connect_wait_ns,
                                                          .rejoin = true,
                                                          .hello = wanted(cfg),
                                                          .stop = w->stop}));
    TRY(fleet_create(&w->fleet, w->intake));
    w->n_env = fleet_n_env(w->fleet);
    w->n_obs = (size_t)fleet_spec(w->fleet)->n_obs;
    w->n_act = (size_t)fleet_spec(w->fleet)->n_act;
    if (cfg->pixels)
        TRY(framestack_choose(fleet_spec(w->fleet), cfg->picture, &w->picture));
    else if (cfg->picture[0])
        return FAIL(ST_INVAL, "--picture=%s without --pixels", cfg->picture);
    b_max = cfg->batch_max > 0 ? (int)cfg->batch_max : (w->n_env + 1) / 2;
    TRY(allocate(w));
    TRY(history_create(&w->history, w->n_env, (int)w->n_act));
    TRY(scheduler_create(&w->scheduler, w->n_env, !cfg->rollout_async, b_max,
                         cfg->batch_timeout_ns));
    TRY(intake_start(w->intake));
    return send_join(w);
}

static void tear_down(struct worker *w)
{
    fleet_destroy(w->fleet);
    intake_destroy(w->intake);
    trajectory_destroy(w->trajectory);
    scheduler_destroy(w->scheduler);
    history_destroy(w->history);
    framestack_fini(&w->frames);
    policy_destroy(w->policy);
    weights_drop(w->weights);
    mem_free(w->pending);
    mem_free(w->lost);
    mem_free(w->global);
    mem_free(w->resets);
    mem_free(w->used);
    mem_free(w->episode);
    mem_free(w->obs);
    mem_free(w->batch);
    mem_free(w->rows);
    mem_free(w->action);
    mem_free(w->clipped);
    mem_free(w->logp);
}

// ------------------------------------------------------------------ actions out

static enum status infer(struct worker *w)
{
    int i, n = w->weights ? scheduler_take(w->scheduler, w->batch, clock_now_ns()) : 0;

    if (n == 0)
        return ST_OK;
    for (i = 0; i < n; i++) {
        int env = w->batch[i];

        w->rows[i] = (struct policy_row){.obs = obs_of(w, env),
                                         .seed = (uint64_t)w->cfg->seed,
                                         .stream = (uint64_t)(w->cfg->env_offset + env),
                                         .episode = history_episode(w->history, env),
                                         .step = history_elapsed(w->history, env),
                                         .pictures = framestack_at(&w->frames, env)};
    }
    accel_infer(&w->cfg->accel, n);
    TRY(policy_act(w->policy, w->weights, w->rows, n, false, w->action, w->logp));
    for (i = 0; i < n; i++) {
        const float *action = w->action + (size_t)i * w->n_act;
        float *clipped = w->clipped + (size_t)i * w->n_act;
        int env = w->batch[i];

        trajectory_decide(w->trajectory, env, w->rows[i].obs, w->rows[i].pictures, action,
                          w->logp[i], w->weights->version);
        fleet_clip(w->fleet, action, clipped);
        TRY(history_act(w->history, env, clipped));
        w->pending[env] = true;
        w->used[env]++;
    }
    atomic_fetch_add(&w->progress->batches, 1);
    atomic_fetch_add(&w->progress->rows, n);
    return fleet_step(w->fleet, w->batch, w->clipped, n);
}

// ------------------------------------------------------------------ rows in

static uint32_t chunk_flags(uint32_t row_flags)
{
    if (row_flags & ROW_FIRST)
        return CHUNK_SKIP; // the env could not go on and was reset: the action did nothing
    if (row_flags & ROW_ERROR)
        return CHUNK_ERROR;
    if (row_flags & ROW_TERMINATED)
        return CHUNK_TERMINATED;
    return row_flags & ROW_TRUNCATED ? CHUNK_TRUNCATED : 0;
}

static enum status send_chunk(struct worker *w, int env)
{
    struct msg *m;

    TRY(trajectory_close(w->trajectory, env, obs_of(w, env), framestack_newest(&w->frames, env), 0,
                         (uint32_t)(w->cfg->env_offset + env), &m));
    return intake_send(w->intake, m);
}

static void count(struct worker *w, int env, const struct row_head *head, uint32_t flags)
{
    if (head->flags & ROW_ERROR) {
        atomic_fetch_add(&w->progress->errors, 1);
    } else if (head->flags & ROW_DONE) {
        trajectory_episode(w->trajectory, env, head->episode_return, head->elapsed);
        atomic_fetch_add(&w->progress->episodes, 1);
    }
    if (!(flags & (CHUNK_ERROR | CHUNK_SKIP)))
        atomic_fetch_add(&w->progress->env_steps, 1);
}

// Where the env is now. A row's identity is that of the episode that its reward belongs to.
static void move_on(struct worker *w, int env, const struct row_head *head)
{
    if (head->flags & ROW_FIRST)
        history_begin(w->history, env, head->episode);
    else if (head->flags & ROW_DONE)
        history_begin(w->history, env, head->episode + 1);
    else
        history_executed(w->history, env);
}

// A row of an env that replays its history; *next is the action that comes next, NULL = none.
static enum status replay_row(struct worker *w, int env, const struct row_head *head,
                              const float **next)
{
    if ((head->flags & ROW_DONE) && history_replay(w->history, env))
        return FAIL(ST_PROTO,
                    "env %d ended its episode while it was replayed: the engine or the task is not "
                    "that of the checkpoint",
                    env);
    move_on(w, env, head);
    *next = history_replay(w->history, env);
    return ST_OK;
}

// One row of a batch; *replay as above.
static enum status take_row(struct worker *w, int env, const uint8_t *row,
                            const struct row_layout *layout, const float **replay)
{
    const struct row_head *head = (const struct row_head *)row;
    bool full = false;

    *replay = NULL;
    memcpy(obs_of(w, env), row + layout->obs, w->n_obs * sizeof(double));
    framestack_push(&w->frames, env, row + layout->pictures,
                    head->flags & (ROW_FIRST | ROW_DONE)); // at an end the next episode's first
    if (w->pending[env]) {
        uint32_t flags = chunk_flags(head->flags);

        w->pending[env] = false;
        count(w, env, head, flags);
        TRY(trajectory_outcome(w->trajectory, env, *(const double *)(row + layout->reward), flags,
                               (const double *)(row + layout->final_obs),
                               row + layout->final_pictures + w->frames.offset, &full));
        move_on(w, env, head);
    } else {
        TRY(replay_row(w, env, head, replay));
    }
    if (full)
        TRY(send_chunk(w, env));
    if (!*replay)
        scheduler_arrive(w->scheduler, env, w->used[env], clock_now_ns());
    return ST_OK;
}

static enum status take_batch(struct worker *w, const struct event *e)
{
    const struct row_layout *layout = envclient_layout(intake_source(w->intake, e->source));
    int env, n_replay = 0;
    const float *replay;
    uint32_t k;

    for (k = 0; k < e->head->n; k++) {
        const uint8_t *row = e->rows + (size_t)k * e->head->stride;

        TRY(fleet_find(w->fleet, e->source, ((const struct row_head *)row)->env, &env));
        TRY(take_row(w, env, row, layout, &replay));
        if (replay) {
            memcpy(w->clipped + (size_t)n_replay * w->n_act, replay, w->n_act * sizeof replay[0]);
            w->batch[n_replay++] = env;
        }
    }
    return n_replay > 0 ? fleet_step(w->fleet, w->batch, w->clipped, n_replay) : ST_OK;
}

// The global numbers of the first n envs of the batch. Scratch.
static const uint32_t *global_envs(struct worker *w, int n)
{
    int i;

    for (i = 0; i < n; i++)
        w->global[i] = (uint32_t)(w->cfg->env_offset + w->batch[i]);
    return w->global;
}

// Go on with the envs of the other servers, and tell the learner, which waits for all.
static enum status lose_source(struct worker *w, const struct event *e)
{
    int i, n = fleet_lose(w->fleet, e->source, w->batch);
    struct msg *m;

    if (n == 0)
        return ST_OK;
    if (fleet_n_left(w->fleet) == 0)
        return error_adopt(&e->err);
    log_warn("rollout", "%s; %d of %d envs are left", e->err.text, fleet_n_left(w->fleet),
             w->n_env);
    for (i = 0; i < n; i++) {
        scheduler_remove(w->scheduler, w->batch[i]);
        w->lost[w->batch[i]] = true;
    }
    TRY(lost_write(&m, global_envs(w, n), (uint32_t)n));
    return intake_send(w->intake, m);
}

// Chunks that each of the first n envs of the batch counts as having made when it returns: as many
// as it has, and what it missed while it was away, which nobody waits for.
static uint64_t chunks_at_return(const struct worker *w, int n)
{
    uint64_t slowest = UINT64_MAX, chunks = 0;
    int i;

    for (i = 0; i < w->n_env; i++)
        if (!w->lost[i] && w->used[i] < slowest)
            slowest = w->used[i];
    if (slowest != UINT64_MAX)
        chunks = slowest / (uint64_t)w->cfg->horizon;
    for (i = 0; i < n; i++) {
        uint64_t own = w->used[w->batch[i]] / (uint64_t)w->cfg->horizon;

        chunks = own > chunks ? own : chunks;
    }
    return chunks;
}

// Begin new episodes in the first n envs of the batch. What was decided in the episodes that ended
// with the server is forgotten up to the last closed chunk.
static enum status restart(struct worker *w, int n, uint64_t chunks)
{
    int i;

    for (i = 0; i < n; i++) {
        int env = w->batch[i];
        uint64_t episode = history_episode(w->history, env) + w->begun;

        scheduler_return(w->scheduler, env);
        if (w->begun) // before the first weights nothing was decided
            trajectory_forget(w->trajectory, env);
        history_begin(w->history, env, episode);
        w->lost[env] = w->pending[env] = false;
        w->used[env] = chunks * (uint64_t)w->cfg->horizon;
        w->resets[i] = (struct reset_row){.seed = (uint64_t)w->cfg->seed,
                                          .stream = (uint64_t)(w->cfg->env_offset + env),
                                          .episode = episode};
    }
    if (!w->begun)
        return ST_OK; // begin() starts all
    atomic_fetch_add(&w->progress->errors, n);
    return fleet_reset_some(w->fleet, w->batch, w->resets, n);
}

static enum status return_source(struct worker *w, const struct event *e)
{
    uint64_t chunks;
    struct msg *m;
    int n;

    intake_adopt(w->intake, e->source);
    if (fleet_return(w->fleet, e->source, w->batch, &n) != ST_OK) {
        log_error("rollout", "%s; it is not used again", error_last()->text);
        return ST_OK;
    }
    chunks = chunks_at_return(w, n);
    log_info("rollout", "env server %s is back; %d of %d envs are there",
             envclient_url(intake_source(w->intake, e->source)), fleet_n_left(w->fleet), w->n_env);
    TRY(back_write(&m, chunks, global_envs(w, n), (uint32_t)n));
    TRY(intake_send(w->intake, m));
    return restart(w, n, chunks);
}

// ------------------------------------------------------------------ the learner's messages

// Start all episodes: the first ones, or those of the checkpoint.
static enum status begin(struct worker *w)
{
    int i;

    for (i = 0; i < w->n_env; i++)
        w->episode[i] = history_episode(w->history, i);
    w->begun = true;
    return fleet_reset(w->fleet, (uint64_t)w->cfg->seed, (uint64_t)w->cfg->env_offset, w->episode);
}

static enum status take_state(struct worker *w, const struct msg *m)
{
    if (w->begun)
        return FAIL(ST_PROTO, "the learner at %s sent a STATE after WEIGHTS", w->cfg->learner);
    return history_read(w->history, (uint32_t)w->cfg->env_offset, m);
}

static enum status answer_state(struct worker *w)
{
    struct msg *m;

    TRY(history_write(w->history, (uint32_t)w->cfg->env_offset, &m));
    return intake_send(w->intake, m);
}

// The first weights say what the policy sees.
static enum status set_up_policy(struct worker *w, const struct weights *weights)
{
    const struct model_vision *v = &weights->shape.vision;
    struct trajectory_config cfg = {.n_env = w->n_env,
                                    .horizon = (int)w->cfg->horizon,
                                    .n_obs = (int)w->n_obs,
                                    .n_act = (int)w->n_act,
                                    .picture_bytes = model_picture_bytes(v),
                                    .stack = v->stack};

    if (strcmp(weights->picture, w->picture ? w->picture->name : "") != 0 ||
        (w->picture &&
         ((uint32_t)v->width != w->picture->width || (uint32_t)v->height != w->picture->height)))
        return FAIL(ST_PROTO,
                    "the learner's policy sees picture '%s' of %d by %d, not the worker's",
                    weights->picture, v->width, v->height);
    if (((size_t)cfg.horizon * 2 + (size_t)cfg.stack) * cfg.picture_bytes > CHUNK_BYTES_MAX / 2)
        return FAIL(ST_INVAL, "%d steps of %zu bytes are too much for a chunk: a smaller --horizon",
                    cfg.horizon, cfg.picture_bytes);
    if (w->picture)
        TRY(framestack_init(&w->frames, w->picture, w->n_env, v->stack));
    TRY(trajectory_create(&w->trajectory, &cfg));
    return policy_create(&w->policy, &weights->shape, w->n_env);
}

static enum status use_weights(struct worker *w, struct weights *weights)
{
    if (weights->shape.n_obs != (int)w->n_obs || weights->shape.n_act != (int)w->n_act)
        return FAIL(ST_PROTO,
                    "the learner's policy takes %d observations and %d actions, %s has %zu and %zu",
                    weights->shape.n_obs, weights->shape.n_act, fleet_spec(w->fleet)->task,
                    w->n_obs, w->n_act);
    if (!w->policy)
        TRY(set_up_policy(w, weights));
    weights_drop(w->weights);
    w->weights = weights_hold(weights);
    return ST_OK;
}

static enum status take_weights(struct worker *w, const struct msg *m)
{
    struct weights_head head;
    struct weights *weights;
    const void *blob;
    enum status st;

    TRY(weights_read(m, &head, &blob));
    TRY(weights_blob_read(&weights, blob, head.blob_bytes));
    st = use_weights(w, weights);
    weights_drop(weights);
    TRY(st);
    if (head.want_state)
        TRY(answer_state(w));
    atomic_store(&w->progress->version, (long long)head.version);
    scheduler_admit(w->scheduler, head.admit, clock_now_ns());
    return w->begun ? ST_OK : begin(w);
}

static enum status take_learner(struct worker *w, const struct msg *m)
{
    struct proto_error e;

    switch (m->type) {
    case MSG_WEIGHTS:
        return take_weights(w, m);
    case MSG_STATE:
        return take_state(w, m);
    case MSG_BYE:
        w->done = true;
        return ST_OK;
    case MSG_ERROR:
        TRY(proto_error_read(m, &e));
        return FAIL(e.code == ST_INVAL ? ST_INVAL : ST_PROTO, "the learner at %s refuses: %s",
                    w->cfg->learner, e.text);
    default:
        return FAIL(ST_PROTO, "the learner at %s sent a message of type %u", w->cfg->learner,
                    m->type);
    }
}

// ------------------------------------------------------------------ the loop

static bool over(const struct worker *w)
{
    return w->done || atomic_load(w->stop);
}

static enum status handle(struct worker *w, const struct event *e)
{
    if (over(w))
        return ST_OK; // connections may be closed by now, which means nothing
    switch (e->kind) {
    case EVENT_BATCH:
        return take_batch(w, e);
    case EVENT_SOURCE_LOST:
        return lose_source(w, e);
    case EVENT_SOURCE_BACK:
        return return_source(w, e);
    case EVENT_LEARNER:
        return take_learner(w, e->m);
    case EVENT_LEARNER_LOST:
        return error_adopt(&e->err);
    }
    return ST_OK;
}

static enum status work(struct worker *w)
{
    while (!over(w)) {
        int64_t due = scheduler_due_ns(w->scheduler, clock_now_ns());
        struct event *e;
        enum status st = intake_next(w->intake, &e, due < STOP_WAIT_NS ? due : STOP_WAIT_NS);

        // take all that has arrived before the next inference
        while (st == ST_OK) {
            st = handle(w, e);
            intake_done(w->intake, e);
            TRY(st);
            st = intake_next(w->intake, &e, 0);
        }
        if (st != ST_AGAIN && st != ST_TIMEOUT)
            return st;
        if (!over(w))
            TRY(infer(w));
    }
    return ST_OK;
}

enum status rollout_run(const struct rollout_config *cfg, const atomic_bool *stop,
                        struct rollout_progress *progress)
{
    struct worker w = {.cfg = cfg, .stop = stop, .progress = progress};
    enum status st = set_up(&w);

    if (st == ST_OK)
        st = work(&w);
    tear_down(&w);
    return atomic_load(stop) ? ST_OK : st; // a stop may cut off anything
}
