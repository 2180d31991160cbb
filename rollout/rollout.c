#include "rollout/rollout.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "common/wire/trainproto.h"
#include "nn/policy.h"
#include "rollout/intake.h"
#include "rollout/scheduler.h"
#include "rollout/trajectory.h"

#include <string.h>

#define STOP_WAIT_NS (100 * NS_PER_MS) // how soon *stop is seen

// One env as the worker sees it; its number here is its global number less env_offset.
struct slot {
    int source;
    uint32_t env; // the server's number
    uint64_t episode;
    uint32_t elapsed; // steps of the episode so far
    uint64_t used;    // decisions made
    bool pending;     // a decision waits for its outcome
    // The actions of the episode as executed, so that a checkpoint can say where it is.
    float *history; // (history_cap, n_act)
    size_t history_cap;
    uint32_t replay; // steps to execute again from the history before new decisions are made
};

struct worker {
    const struct rollout_config *cfg;
    struct rollout_progress *progress;
    struct intake *intake;
    struct trajectory *trajectory;
    struct scheduler *scheduler;
    struct policy *policy;
    struct weights *weights;
    const struct spec *spec;
    int n_env, n_lost;
    bool begun;
    struct slot *slots;      // (n_env)
    int **local;             // (n_source, server's envs) slot of each env of a server
    double *obs;             // (n_env, n_obs) the latest observation of each env
    int *batch;              // (n_env) slots to infer or to step
    struct policy_row *rows; // (n_env)
    float *actions;          // (n_env, n_act)
    float *logp;             // (n_env)
};

static double *obs_of(struct worker *w, int i)
{
    return w->obs + (size_t)i * (size_t)w->spec->n_obs;
}

// ------------------------------------------------------------------ set-up

static enum status check_same(struct worker *w, const struct spec *spec)
{
    if (!w->spec)
        w->spec = spec;
    if (strcmp(spec->task, w->spec->task) != 0 || spec->n_obs != w->spec->n_obs ||
        spec->n_act != w->spec->n_act)
        return FAIL(ST_INVAL, "env servers offer different tasks: '%s' (%d, %d) and '%s' (%d, %d)",
                    w->spec->task, w->spec->n_obs, w->spec->n_act, spec->task, spec->n_obs,
                    spec->n_act);
    return ST_OK;
}

static enum status allocate(struct worker *w)
{
    size_t n = (size_t)w->n_env;

    w->slots = mem_alloc(n, sizeof w->slots[0]);
    w->obs = mem_alloc(n * (size_t)w->spec->n_obs, sizeof w->obs[0]);
    w->batch = mem_alloc(n, sizeof w->batch[0]);
    w->rows = mem_alloc(n, sizeof w->rows[0]);
    w->actions = mem_alloc(n * (size_t)w->spec->n_act, sizeof w->actions[0]);
    w->logp = mem_alloc(n, sizeof w->logp[0]);
    w->local = mem_alloc((size_t)intake_n_source(w->intake), sizeof w->local[0]);
    return w->slots && w->obs && w->batch && w->rows && w->actions && w->logp && w->local
               ? ST_OK
               : ST_NOMEM;
}

static enum status map_envs(struct worker *w)
{
    int s, at = 0;
    uint32_t k;

    for (s = 0; s < intake_n_source(w->intake); s++) {
        const struct welcome *wel = envclient_welcome(intake_source(w->intake, s));

        w->local[s] = mem_alloc((size_t)wel->spec.n_env, sizeof w->local[s][0]);
        if (!w->local[s])
            return ST_NOMEM;
        for (k = 0; k < (uint32_t)wel->spec.n_env; k++)
            w->local[s][k] = -1;
        for (k = 0; k < wel->n_env; k++, at++) {
            w->slots[at].source = s;
            w->slots[at].env = wel->env[k];
            w->local[s][wel->env[k]] = at;
        }
    }
    return ST_OK;
}

static enum status join(struct worker *w)
{
    struct join j = {.version = TRAINPROTO_VERSION,
                     .n_env = (uint32_t)w->n_env,
                     .env_first = (uint32_t)w->cfg->env_offset,
                     .seed = (uint64_t)w->cfg->seed,
                     .horizon = (uint32_t)w->cfg->horizon,
                     .n_obs = (uint32_t)w->spec->n_obs,
                     .n_act = (uint32_t)w->spec->n_act};
    struct msg *m;
    enum status st;

    memcpy(j.task, w->spec->task, sizeof j.task);
    TRY(join_write(&m, &j));
    st = link_send(intake_learner(w->intake), m);
    if (st != ST_OK)
        msg_free(m);
    return st;
}

static enum status set_up(struct worker *w)
{
    const struct rollout_config *cfg = w->cfg;
    int s, b_max;

    TRY(intake_create(&w->intake,
                      &(struct intake_config){.env_urls = cfg->env,
                                              .learner_url = cfg->learner,
                                              .n_env = (int)cfg->num_envs,
                                              .connect_wait_ns = cfg->connect_wait_ns}));
    for (s = 0; s < intake_n_source(w->intake); s++) {
        const struct welcome *wel = envclient_welcome(intake_source(w->intake, s));

        TRY(check_same(w, &wel->spec));
        w->n_env += (int)wel->n_env;
    }
    TRY(allocate(w));
    TRY(map_envs(w));
    b_max = cfg->batch_max > 0 ? (int)cfg->batch_max : (w->n_env + 1) / 2;
    TRY(scheduler_create(&w->scheduler, w->n_env, !cfg->rollout_async, b_max,
                         cfg->batch_timeout_ns));
    TRY(trajectory_create(&w->trajectory, w->n_env, (int)cfg->horizon, w->spec->n_obs,
                          w->spec->n_act));
    TRY(intake_start(w->intake));
    return join(w);
}

static void tear_down(struct worker *w)
{
    int i;

    for (i = 0; w->local && i < intake_n_source(w->intake); i++)
        mem_free(w->local[i]);
    intake_destroy(w->intake);
    trajectory_destroy(w->trajectory);
    scheduler_destroy(w->scheduler);
    policy_destroy(w->policy);
    weights_drop(w->weights);
    for (i = 0; w->slots && i < w->n_env; i++)
        mem_free(w->slots[i].history);
    mem_free(w->local);
    mem_free(w->slots);
    mem_free(w->obs);
    mem_free(w->batch);
    mem_free(w->rows);
    mem_free(w->actions);
    mem_free(w->logp);
}

// ------------------------------------------------------------------ where the episodes are

static enum status history_reserve(struct worker *w, struct slot *slot, size_t n)
{
    size_t cap = slot->history_cap ? slot->history_cap : 256;
    float *p;

    while (cap < n)
        cap *= 2;
    if (cap == slot->history_cap)
        return ST_OK;
    p = mem_resize(slot->history, cap * (size_t)w->spec->n_act, sizeof *p);
    if (!p)
        return ST_NOMEM;
    slot->history = p;
    slot->history_cap = cap;
    return ST_OK;
}

static enum status send_state(struct worker *w)
{
    uint32_t n_act = (uint32_t)w->spec->n_act;
    struct msg *m;
    enum status st;
    int i;

    TRY(state_begin(&m, (uint32_t)w->cfg->env_offset, (uint32_t)w->n_env, n_act));
    st = ST_OK;
    for (i = 0; i < w->n_env && st == ST_OK; i++) {
        const struct slot *slot = &w->slots[i];

        st = state_add(m,
                       &(struct episode_state){.episode = slot->episode,
                                               .elapsed = slot->elapsed,
                                               .action = slot->history},
                       n_act);
    }
    if (st == ST_OK)
        st = link_send(intake_learner(w->intake), m);
    if (st != ST_OK)
        msg_free(m);
    return st;
}

static enum status take_state(struct worker *w, const struct msg *m)
{
    uint32_t env_first, n_env, n_act = (uint32_t)w->spec->n_act;
    struct episode_state s;
    struct reader r;
    int i;

    TRY(state_read(m, n_act, &r, &env_first, &n_env));
    if (w->begun || n_env != (uint32_t)w->n_env || env_first != (uint32_t)w->cfg->env_offset)
        return FAIL(ST_PROTO, "the learner sent the state of envs %u to %u", env_first,
                    env_first + n_env - 1);
    for (i = 0; i < w->n_env; i++) {
        struct slot *slot = &w->slots[i];

        TRY(state_next(&r, n_act, &s));
        TRY(history_reserve(w, slot, s.elapsed));
        memcpy(slot->history, s.action, (size_t)s.elapsed * n_act * sizeof(float));
        slot->episode = s.episode;
        slot->replay = s.elapsed;
    }
    return reader_end(&r, true, "STATE");
}

// ------------------------------------------------------------------ actions out

// Send the actions of `n` slots in w->batch to their servers; action (n, n_act) is clipped.
static enum status send_actions(struct worker *w, int n)
{
    int n_act = w->spec->n_act, s, i, k;
    size_t stride = step_stride(1, n_act);

    for (s = 0; s < intake_n_source(w->intake); s++) {
        struct envclient *c = intake_source(w->intake, s);
        struct msg *m;
        uint8_t *out;
        int count = 0;

        for (i = 0; i < n; i++)
            count += w->slots[w->batch[i]].source == s;
        if (count == 0)
            continue;
        TRY(envclient_step_begin(c, count, &m, &out));
        for (i = 0; i < n; i++) {
            struct slot *slot = &w->slots[w->batch[i]];
            struct step_row *row = (struct step_row *)out;
            const float *a = w->actions + (size_t)i * (size_t)n_act;
            float *to = (float *)(row + 1);

            if (slot->source != s)
                continue;
            row->env = slot->env;
            row->n_sub = 1;
            for (k = 0; k < n_act; k++)
                to[k] = a[k] < w->spec->act_low[k]    ? w->spec->act_low[k]
                        : a[k] > w->spec->act_high[k] ? w->spec->act_high[k]
                                                      : a[k];
            if (slot->pending) { // not a replay
                if (history_reserve(w, slot, slot->elapsed + 1) != ST_OK) {
                    msg_free(m);
                    return ST_NOMEM;
                }
                memcpy(slot->history + (size_t)slot->elapsed * (size_t)n_act, to,
                       (size_t)n_act * sizeof to[0]);
            }
            out += stride;
        }
        if (envclient_step_send(c, m) != ST_OK)
            log_warn("rollout", "%s", error_last()->text); // its reader tells the rest
    }
    return ST_OK;
}

static enum status infer(struct worker *w)
{
    int n = w->weights ? scheduler_take(w->scheduler, w->batch, clock_now_ns()) : 0, i;
    size_t n_act = (size_t)w->spec->n_act;

    if (n == 0)
        return ST_OK;
    for (i = 0; i < n; i++) {
        const struct slot *slot = &w->slots[w->batch[i]];

        w->rows[i] = (struct policy_row){.obs = obs_of(w, w->batch[i]),
                                         .seed = (uint64_t)w->cfg->seed,
                                         .stream = (uint64_t)(w->cfg->env_offset + w->batch[i]),
                                         .episode = slot->episode,
                                         .step = slot->elapsed};
    }
    accel_infer(&w->cfg->accel, n);
    TRY(policy_act(w->policy, w->weights, w->rows, n, false, w->actions, w->logp));
    for (i = 0; i < n; i++) {
        struct slot *slot = &w->slots[w->batch[i]];

        trajectory_decide(w->trajectory, w->batch[i], w->rows[i].obs,
                          w->actions + (size_t)i * n_act, w->logp[i], w->weights->version);
        slot->used++;
        slot->pending = true;
    }
    atomic_fetch_add(&w->progress->batches, 1);
    atomic_fetch_add(&w->progress->rows, n);
    return send_actions(w, n);
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

static enum status send_chunk(struct worker *w, int i)
{
    struct msg *m;
    enum status st;

    TRY(trajectory_close(w->trajectory, i, obs_of(w, i), 0, (uint32_t)(w->cfg->env_offset + i),
                         &m));
    st = link_send(intake_learner(w->intake), m);
    if (st != ST_OK)
        msg_free(m);
    return st == ST_CLOSED ? ST_OK : st; // the reader says why
}

// The outcome of a decision: append it, count episodes, say whether the chunk is full.
static bool outcome(struct worker *w, int i, const uint8_t *row, const struct row_layout *layout)
{
    const struct row_head *head = (const struct row_head *)row;
    struct slot *slot = &w->slots[i];
    uint32_t flags = chunk_flags(head->flags);

    slot->pending = false;
    if (!(flags & (CHUNK_ERROR | CHUNK_SKIP)))
        atomic_fetch_add(&w->progress->env_steps, 1);
    slot->elapsed++;
    if ((head->flags & ROW_DONE) && !(flags & CHUNK_ERROR)) {
        trajectory_episode(w->trajectory, i, head->episode_return, head->elapsed);
        atomic_fetch_add(&w->progress->episodes, 1);
    }
    if (flags & CHUNK_ERROR)
        atomic_fetch_add(&w->progress->errors, 1);
    if (head->flags & ROW_DONE) {
        slot->episode = head->episode + 1;
        slot->elapsed = 0;
    }
    return trajectory_outcome(w->trajectory, i, *(const double *)(row + layout->reward), flags,
                              (const double *)(row + layout->final_obs));
}

// One row of a batch. `*replay` is set if the env must execute an action of its history again.
static enum status take_row(struct worker *w, int i, const uint8_t *row,
                            const struct row_layout *layout, bool *replay)
{
    const struct row_head *head = (const struct row_head *)row;
    struct slot *slot = &w->slots[i];
    bool full = false;

    *replay = false;
    memcpy(obs_of(w, i), row + layout->obs, (size_t)w->spec->n_obs * sizeof(double));
    if (slot->pending) {
        full = outcome(w, i, row, layout);
    } else if (slot->replay > 0) {
        slot->elapsed = head->elapsed;
        if (head->flags & ROW_DONE)
            return FAIL(ST_PROTO,
                        "env %u ended while its episode was replayed: another engine or "
                        "task than the checkpoint's",
                        slot->env);
        *replay = slot->elapsed < slot->replay;
        if (*replay)
            return ST_OK;
        slot->replay = 0;
    }
    if (head->flags & ROW_FIRST) {
        slot->episode = head->episode;
        slot->elapsed = 0;
    }
    if (full)
        TRY(send_chunk(w, i));
    scheduler_arrive(w->scheduler, i, slot->used, clock_now_ns());
    return ST_OK;
}

static enum status take_batch(struct worker *w, const struct event *e)
{
    const struct row_layout *layout = envclient_layout(intake_source(w->intake, e->source));
    size_t n_act = (size_t)w->spec->n_act;
    int n_replay = 0;
    uint32_t k;

    for (k = 0; k < e->head->n; k++) {
        const uint8_t *row = e->rows + (size_t)k * e->head->stride;
        uint32_t env = ((const struct row_head *)row)->env;
        bool replay;
        int i = env < (uint32_t)w->spec->n_env ? w->local[e->source][env] : -1;

        if (i < 0)
            return FAIL(ST_PROTO, "an env server sent a row of env %u, which is not ours", env);
        TRY(take_row(w, i, row, layout, &replay));
        if (replay) {
            memcpy(w->actions + (size_t)n_replay * n_act,
                   w->slots[i].history + w->slots[i].elapsed * n_act, n_act * sizeof(float));
            w->batch[n_replay++] = i;
        }
    }
    return n_replay > 0 ? send_actions(w, n_replay) : ST_OK;
}

static enum status lose_source(struct worker *w, const struct event *e)
{
    int i;

    for (i = 0; i < w->n_env; i++) {
        if (w->slots[i].source == e->source) {
            scheduler_remove(w->scheduler, i);
            w->n_lost++;
        }
    }
    if (w->n_lost == w->n_env)
        return error_adopt(&e->err);
    log_warn("rollout", "%s; %d of %d envs are left", e->err.text, w->n_env - w->n_lost, w->n_env);
    return ST_OK;
}

// ------------------------------------------------------------------ the learner's messages

// Start all episodes: the first ones, or those of the checkpoint.
static enum status begin(struct worker *w)
{
    struct reset_row *rows = mem_alloc((size_t)w->n_env, sizeof rows[0]);
    enum status st = rows ? ST_OK : ST_NOMEM;
    int s, i, n;

    for (s = 0; s < intake_n_source(w->intake) && st == ST_OK; s++) {
        for (i = n = 0; i < w->n_env; i++)
            if (w->slots[i].source == s)
                rows[n++] = (struct reset_row){.env = w->slots[i].env,
                                               .seed = (uint64_t)w->cfg->seed,
                                               .stream = (uint64_t)(w->cfg->env_offset + i),
                                               .episode = w->slots[i].episode};
        st = envclient_reset(intake_source(w->intake, s), rows, n);
    }
    mem_free(rows);
    w->begun = true;
    return st;
}

static enum status take_weights(struct worker *w, const struct msg *m)
{
    struct weights_head head;
    struct weights *weights;
    const void *blob;

    TRY(weights_read(m, &head, &blob));
    TRY(weights_blob_read(&weights, blob, head.blob_bytes));
    if (weights->shape.n_obs != w->spec->n_obs || weights->shape.n_act != w->spec->n_act) {
        enum status st =
            FAIL(ST_PROTO,
                 "the learner's policy takes %d observations and %d actions, "
                 "the task has %d and %d",
                 weights->shape.n_obs, weights->shape.n_act, w->spec->n_obs, w->spec->n_act);

        weights_drop(weights);
        return st;
    }
    if (head.want_state)
        TRY(send_state(w));
    weights_drop(w->weights);
    w->weights = weights;
    if (!w->policy)
        TRY(policy_create(&w->policy, &weights->shape, w->n_env));
    atomic_store(&w->progress->version, (long long)head.version);
    scheduler_admit(w->scheduler, head.admit, clock_now_ns());
    return w->begun ? ST_OK : begin(w);
}

static enum status take_learner(struct worker *w, const struct msg *m, bool *done)
{
    struct proto_error e;

    switch (m->type) {
    case MSG_WEIGHTS:
        return take_weights(w, m);
    case MSG_STATE:
        return take_state(w, m);
    case MSG_BYE:
        *done = true;
        return ST_OK;
    case MSG_ERROR:
        TRY(proto_error_read(m, &e));
        return FAIL(ST_PROTO, "the learner at %s refuses: %s", w->cfg->learner, e.text);
    default:
        return FAIL(ST_PROTO, "the learner at %s sent a message of type %u", w->cfg->learner,
                    m->type);
    }
}

static enum status handle(struct worker *w, const struct event *e, bool *done)
{
    switch (e->kind) {
    case EVENT_BATCH:
        return take_batch(w, e);
    case EVENT_SOURCE_LOST:
        return lose_source(w, e);
    case EVENT_LEARNER:
        return take_learner(w, e->m, done);
    case EVENT_LEARNER_LOST:
        return error_adopt(&e->err);
    }
    return ST_OK;
}

static enum status work(struct worker *w, const atomic_bool *stop)
{
    bool done = false;

    while (!done && !atomic_load(stop)) {
        int64_t due = scheduler_due_ns(w->scheduler, clock_now_ns());
        struct event *e;
        enum status st = intake_next(w->intake, &e, due < STOP_WAIT_NS ? due : STOP_WAIT_NS);

        // take all that has arrived before the next inference
        while (st == ST_OK) {
            st = handle(w, e, &done);
            event_free(e);
            TRY(st);
            st = done ? ST_AGAIN : intake_next(w->intake, &e, 0);
        }
        if (st != ST_AGAIN && st != ST_TIMEOUT)
            return st;
        if (!done)
            TRY(infer(w));
    }
    return ST_OK;
}

enum status rollout_run(const struct rollout_config *cfg, const atomic_bool *stop,
                        struct rollout_progress *progress)
{
    struct worker w = {.cfg = cfg, .progress = progress};
    enum status st = set_up(&w);

    if (st == ST_OK)
        st = work(&w, stop);
    tear_down(&w);
    return st;
}
