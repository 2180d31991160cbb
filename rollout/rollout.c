#include "rollout/rollout.h"

#include "common/base/mem.h"
#include "common/base/thread.h"
#include "rollout/framestack.h"
#include "rollout/history.h"
#include "rollout/trajectory.h"

#include <stdio.h>
#include <string.h>

struct stepper {
    struct worker w; // an env's `used` are its decisions
    struct trajectory *trajectory;
    struct history *history;
    const struct spec_picture *picture; // what the policy sees; NULL = none
    struct framestack frames;
    int n_replay; // envs of the batch that replay their history

    uint64_t *used;    // (n_env) decisions made
    uint64_t *episode; // (n_env) scratch
    double *obs;       // (n_env, n_obs) the latest observations
    float *action;     // (n_env, n_act) as sampled
    float *clipped;    // (n_env, n_act) as sent
    float *logp;       // (n_env)
};

static double *obs_of(struct stepper *s, int env)
{
    return s->obs + (size_t)env * s->w.n_obs;
}

// ------------------------------------------------------------------ set-up

static enum status allocate(struct stepper *s)
{
    const size_t n = (size_t)s->w.n_env;

    s->used = mem_alloc(n, sizeof s->used[0]);
    s->episode = mem_alloc(n, sizeof s->episode[0]);
    s->obs = mem_alloc(n * s->w.n_obs, sizeof s->obs[0]);
    s->action = mem_alloc(n * s->w.n_act, sizeof s->action[0]);
    s->clipped = mem_alloc(n * s->w.n_act, sizeof s->clipped[0]);
    s->logp = mem_alloc(n, sizeof s->logp[0]);
    return s->used && s->episode && s->obs && s->action && s->clipped && s->logp ? ST_OK : ST_NOMEM;
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

static enum status set_up(struct stepper *s)
{
    const struct rollout_config *cfg = s->w.cfg;
    const struct hello hello = wanted(cfg);
    struct join j = {.horizon = (uint32_t)cfg->horizon};

    TRY(worker_open(&s->w, &hello));
    if (cfg->pixels)
        TRY(framestack_choose(fleet_spec(s->w.fleet), cfg->picture, &s->picture));
    else if (cfg->picture[0])
        return FAIL(ST_INVAL, "--picture=%s without --pixels", cfg->picture);
    TRY(allocate(s));
    TRY(history_create(&s->history, s->w.n_env, (int)s->w.n_act));
    if (s->picture) {
        memcpy(j.picture, s->picture->name, sizeof j.picture);
        j.n_view = 1;
        j.width = s->picture->width;
        j.height = s->picture->height;
    }
    return worker_join(&s->w, &j);
}

static void tear_down(struct stepper *s)
{
    worker_close(&s->w);
    trajectory_destroy(s->trajectory);
    history_destroy(s->history);
    framestack_fini(&s->frames);
    mem_free(s->used);
    mem_free(s->episode);
    mem_free(s->obs);
    mem_free(s->action);
    mem_free(s->clipped);
    mem_free(s->logp);
}

// ------------------------------------------------------------------ actions out

static enum status infer(void *self, int n)
{
    struct stepper *s = self;
    struct worker *w = &s->w;
    int i;

    for (i = 0; i < n; i++) {
        int env = w->batch[i];

        w->rows[i] = (struct policy_row){.obs = obs_of(s, env),
                                         .seed = (uint64_t)w->cfg->seed,
                                         .stream = worker_global(w, env),
                                         .episode = history_episode(s->history, env),
                                         .step = history_elapsed(s->history, env),
                                         .pictures = framestack_at(&s->frames, env)};
    }
    TRY(policy_act(w->policy, w->weights, w->rows, n, false, s->action, s->logp));
    for (i = 0; i < n; i++) {
        const float *action = s->action + (size_t)i * w->n_act;
        float *clipped = s->clipped + (size_t)i * w->n_act;
        int env = w->batch[i];

        trajectory_decide(s->trajectory, env, w->rows[i].obs, w->rows[i].pictures, action,
                          s->logp[i], w->weights->version);
        fleet_clip(w->fleet, action, clipped);
        TRY(history_act(s->history, env, clipped));
        w->pending[env] = true;
        s->used[env]++;
    }
    return fleet_step(w->fleet, w->batch, s->clipped, n);
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

static enum status send_chunk(struct stepper *s, int env)
{
    struct msg *m;

    TRY(trajectory_close(s->trajectory, env, obs_of(s, env), framestack_newest(&s->frames, env), 0,
                         worker_global(&s->w, env), &m));
    return intake_send(s->w.intake, m);
}

static void count(struct stepper *s, int env, const struct row_head *head, uint32_t flags)
{
    if (head->flags & ROW_ERROR) {
        atomic_fetch_add(&s->w.progress->errors, 1);
    } else if (head->flags & ROW_DONE) {
        trajectory_episode(s->trajectory, env, head->episode_return, head->elapsed);
        atomic_fetch_add(&s->w.progress->episodes, 1);
    }
    if (!(flags & (CHUNK_ERROR | CHUNK_SKIP)))
        atomic_fetch_add(&s->w.progress->env_steps, 1);
}

// Where the env is now. A row's identity is that of the episode that its reward belongs to.
static void move_on(struct stepper *s, int env, const struct row_head *head)
{
    if (head->flags & ROW_FIRST)
        history_begin(s->history, env, head->episode);
    else if (head->flags & ROW_DONE)
        history_begin(s->history, env, head->episode + 1);
    else
        history_executed(s->history, env);
}

// A row of an env that replays its history; *next is the action that comes next, NULL = none.
static enum status replay_row(struct stepper *s, int env, const struct row_head *head,
                              const float **next)
{
    if ((head->flags & ROW_DONE) && history_replay(s->history, env))
        return FAIL(ST_PROTO,
                    "env %d ended its episode while it was replayed: the engine or the task is not "
                    "that of the checkpoint",
                    env);
    move_on(s, env, head);
    *next = history_replay(s->history, env);
    return ST_OK;
}

static enum status take_row(void *self, int env, const uint8_t *row,
                            const struct row_layout *layout)
{
    struct stepper *s = self;
    struct worker *w = &s->w;
    const struct row_head *head = (const struct row_head *)row;
    const float *replay = NULL;
    bool full = false;

    memcpy(obs_of(s, env), row + layout->obs, w->n_obs * sizeof(double));
    framestack_push(&s->frames, env, row + layout->pictures,
                    head->flags & (ROW_FIRST | ROW_DONE)); // at an end the next episode's first
    if (w->pending[env]) {
        uint32_t flags = chunk_flags(head->flags);

        w->pending[env] = false;
        count(s, env, head, flags);
        TRY(trajectory_outcome(s->trajectory, env, *(const double *)(row + layout->reward), flags,
                               (const double *)(row + layout->final_obs),
                               row + layout->final_pictures + s->frames.offset, &full));
        move_on(s, env, head);
    } else {
        TRY(replay_row(s, env, head, &replay));
    }
    if (full)
        TRY(send_chunk(s, env));
    if (replay) {
        memcpy(s->clipped + (size_t)s->n_replay * w->n_act, replay, w->n_act * sizeof replay[0]);
        w->batch[s->n_replay++] = env;
    } else {
        scheduler_arrive(w->scheduler, env, s->used[env], clock_now_ns());
    }
    return ST_OK;
}

static enum status rows_taken(void *self)
{
    struct stepper *s = self;
    int n = s->n_replay;

    s->n_replay = 0;
    return n > 0 ? fleet_step(s->w.fleet, s->w.batch, s->clipped, n) : ST_OK;
}

// ------------------------------------------------------------------ episodes

// Start all episodes: the first ones, or those of the checkpoint.
static enum status begin(void *self, const struct weights_head *head)
{
    struct stepper *s = self;
    const struct rollout_config *cfg = s->w.cfg;

    (void)head;
    for (int i = 0; i < s->w.n_env; i++)
        s->episode[i] = history_episode(s->history, i);
    return fleet_reset(s->w.fleet, (uint64_t)cfg->seed, (uint64_t)cfg->env_offset, s->episode);
}

static uint64_t rounds(const void *self, int env)
{
    const struct stepper *s = self;

    return s->used[env] / (uint64_t)s->w.cfg->horizon; // chunks
}

// Begin new episodes. What was decided in the episodes that ended with the server is forgotten up
// to the last closed chunk.
static enum status go_on(void *self, int n, uint64_t chunks)
{
    struct stepper *s = self;
    struct worker *w = &s->w;

    for (int i = 0; i < n; i++) {
        int env = w->batch[i];
        uint64_t episode = history_episode(s->history, env) + w->begun;

        if (w->begun) // before the first weights nothing was decided
            trajectory_forget(s->trajectory, env);
        history_begin(s->history, env, episode);
        s->used[env] = chunks * (uint64_t)w->cfg->horizon;
        w->resets[i] = (struct reset_row){
            .seed = (uint64_t)w->cfg->seed, .stream = worker_global(w, env), .episode = episode};
    }
    if (!w->begun)
        return ST_OK; // begin() starts all
    atomic_fetch_add(&w->progress->errors, n);
    return fleet_reset_some(w->fleet, w->batch, w->resets, n);
}

static enum status take_state(void *self, const struct msg *m)
{
    struct stepper *s = self;

    return history_read(s->history, worker_global(&s->w, 0), m);
}

static enum status answer_state(void *self)
{
    struct stepper *s = self;
    struct msg *m;

    TRY(history_write(s->history, worker_global(&s->w, 0), &m));
    return intake_send(s->w.intake, m);
}

// ------------------------------------------------------------------ weights

// The first weights say what the policy sees.
static enum status set_up_policy(struct stepper *s, const struct weights *weights)
{
    const struct model_vision *v = &weights->shape.vision;
    struct trajectory_config cfg = {.n_env = s->w.n_env,
                                    .horizon = (int)s->w.cfg->horizon,
                                    .n_obs = (int)s->w.n_obs,
                                    .n_act = (int)s->w.n_act,
                                    .picture_bytes = model_picture_bytes(v),
                                    .stack = v->stack};

    if (strcmp(weights->picture, s->picture ? s->picture->name : "") != 0 ||
        (s->picture &&
         ((uint32_t)v->width != s->picture->width || (uint32_t)v->height != s->picture->height)))
        return FAIL(ST_PROTO,
                    "the learner's policy sees picture '%s' of %d by %d, not the worker's",
                    weights->picture, v->width, v->height);
    if (((size_t)cfg.horizon * 2 + (size_t)cfg.stack) * cfg.picture_bytes > CHUNK_BYTES_MAX / 2)
        return FAIL(ST_INVAL, "%d steps of %zu bytes are too much for a chunk: a smaller --horizon",
                    cfg.horizon, cfg.picture_bytes);
    if (s->picture)
        TRY(framestack_init(&s->frames, s->picture, s->w.n_env, v->stack));
    TRY(trajectory_create(&s->trajectory, &cfg));
    return policy_create(&s->w.policy, &weights->shape, s->w.n_env);
}

static enum status use_weights(void *self, const struct weights *weights)
{
    struct stepper *s = self;
    const struct worker *w = &s->w;

    if (weights->shape.n_obs != (int)w->n_obs || weights->shape.n_act != (int)w->n_act)
        return FAIL(ST_PROTO,
                    "the learner's policy takes %d observations and %d actions, %s has %zu and %zu",
                    weights->shape.n_obs, weights->shape.n_act, fleet_spec(w->fleet)->task,
                    w->n_obs, w->n_act);
    return w->policy ? ST_OK : set_up_policy(s, weights);
}

// ------------------------------------------------------------------ the run

enum status rollout_run(const struct rollout_config *cfg, const atomic_bool *stop,
                        struct rollout_progress *progress)
{
    static const struct worker_role role = {.infer = infer,
                                            .take_row = take_row,
                                            .rows_taken = rows_taken,
                                            .use_weights = use_weights,
                                            .begin = begin,
                                            .rounds = rounds,
                                            .go_on = go_on,
                                            .take_state = take_state,
                                            .answer_state = answer_state};
    struct stepper s = {
        .w = {.cfg = cfg, .stop = stop, .progress = progress, .role = &role, .self = &s}};
    enum status st = set_up(&s);

    if (st == ST_OK)
        st = worker_work(&s.w);
    tear_down(&s);
    return atomic_load(stop) ? ST_OK : st; // a stop may cut off anything
}
