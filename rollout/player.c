#include "rollout/player.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "nn/gaussian.h"
#include "nn/policy.h"
#include "nn/vla_config.h"
#include "rollout/eyes.h"
#include "rollout/fleet.h"
#include "rollout/played.h"
#include "rollout/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STOP_WAIT_NS (100 * NS_PER_MS) // how soon *stop is seen
#define RESETS_MAX   16                // that fail one after the other

struct worker {
    const struct rollout_config *cfg;
    const atomic_bool *stop;
    struct rollout_progress *progress;
    struct hello hello;
    struct intake *intake;
    struct fleet *fleet;
    struct played *played;
    struct scheduler *scheduler; // an env's `used` are the episodes that it has ended
    struct policy *policy;
    struct weights *weights; // NULL until the first have come
    int n_env, chunk;
    size_t n_act, width; // numbers of an action, of a chunk
    struct eyes eyes;
    uint32_t group_size, n_env_all; // as the learner says
    bool begun, done;

    bool *pending, *lost;     // (n_env) a decision waits for its outcome; its server is gone
    bool *succeeded;          // (n_env) the goal was reached in this episode
    int *failed;              // (n_env) resets that failed since the last that did not
    int *batch;               // (n_env) the envs of an inference
    uint32_t *global;         // (n_env) scratch
    struct reset_row *resets; // (n_env) scratch
    struct policy_row *rows;  // (n_env)
    // (n_env, chunk, n_act): means and actions on the policy's scale, on the task's, as sent
    float *mean, *action, *unscaled, *clipped;
    float *logp;              // (n_env, chunk)
    float *log_std, *inv_std; // (chunk, n_act)
};

// ------------------------------------------------------------------ set-up

static enum status allocate(struct worker *w)
{
    const size_t n = (size_t)w->n_env;

    w->pending = mem_alloc(n, sizeof w->pending[0]);
    w->lost = mem_alloc(n, sizeof w->lost[0]);
    w->succeeded = mem_alloc(n, sizeof w->succeeded[0]);
    w->failed = mem_alloc(n, sizeof w->failed[0]);
    w->batch = mem_alloc(n, sizeof w->batch[0]);
    w->global = mem_alloc(n, sizeof w->global[0]);
    w->resets = mem_alloc(n, sizeof w->resets[0]);
    w->rows = mem_alloc(n, sizeof w->rows[0]);
    return w->pending && w->lost && w->succeeded && w->failed && w->batch && w->global &&
                   w->resets && w->rows
               ? ST_OK
               : ST_NOMEM;
}

// What depends on the policy.
static enum status allocate_policy(struct worker *w)
{
    const size_t n = (size_t)w->n_env;

    w->mean = mem_alloc(4 * n * w->width, sizeof w->mean[0]);
    w->logp = mem_alloc(n * (size_t)w->chunk, sizeof w->logp[0]);
    w->log_std = mem_alloc(2 * w->width, sizeof w->log_std[0]);
    if (!w->mean || !w->logp || !w->log_std)
        return ST_NOMEM;
    w->action = w->mean + n * w->width;
    w->unscaled = w->action + n * w->width;
    w->clipped = w->unscaled + n * w->width;
    w->inv_std = w->log_std + w->width;
    return ST_OK;
}

static enum status send_join(struct worker *w)
{
    const struct spec *spec = fleet_spec(w->fleet);
    struct join j = {.version = TRAINPROTO_VERSION,
                     .n_env = (uint32_t)w->n_env,
                     .env_first = (uint32_t)w->cfg->env_offset,
                     .seed = (uint64_t)w->cfg->seed,
                     .horizon = 1,
                     .n_obs = (uint32_t)spec->n_obs,
                     .n_act = (uint32_t)w->n_act,
                     .chunk = (uint32_t)w->chunk,
                     .n_view = (uint32_t)w->eyes.n_shown};
    struct msg *m;

    memcpy(j.task, spec->task, sizeof j.task);
    memcpy(j.instruction, spec->instruction, sizeof j.instruction);
    memcpy(j.picture, w->eyes.names, sizeof j.picture);
    if (w->eyes.n_shown > 0) {
        j.width = w->eyes.view[0]->width;
        j.height = w->eyes.view[0]->height;
    }
    TRY(join_write(&m, &j));
    return intake_send(w->intake, m);
}

// Pictures that nobody looks at are not drawn; the end of an episode waits for a RESET.
static enum status wanted(struct worker *w)
{
    struct hello *h = &w->hello;

    *h = (struct hello){.autoreset = AUTORESET_DISABLED,
                        .k_max = (uint32_t)w->chunk,
                        .t_max_ns = -1,
                        .listed = !w->cfg->pixels};
    if (w->cfg->picture[0] && !w->cfg->pixels)
        return FAIL(ST_INVAL, "--picture=%s without --pixels", w->cfg->picture);
    return w->cfg->picture[0] ? hello_want(h, w->cfg->picture) : ST_OK;
}

static enum status set_up(struct worker *w)
{
    const struct rollout_config *cfg = w->cfg;
    int b_max;

    if (cfg->action_chunk < 1 || cfg->action_chunk > SPEC_CHUNK_MAX)
        return FAIL(ST_INVAL, "chunks of %lld actions, expected 1 to %d",
                    (long long)cfg->action_chunk, SPEC_CHUNK_MAX);
    w->chunk = (int)cfg->action_chunk;
    TRY(wanted(w));
    TRY(intake_create(&w->intake, &(struct intake_config){.env_urls = cfg->env,
                                                          .learner_url = cfg->learner,
                                                          .n_env = (int)cfg->num_envs,
                                                          .connect_wait_ns = cfg->connect_wait_ns,
                                                          .rejoin = true,
                                                          .hello = w->hello,
                                                          .stop = w->stop}));
    TRY(fleet_create(&w->fleet, w->intake));
    w->n_env = fleet_n_env(w->fleet);
    w->n_act = (size_t)fleet_spec(w->fleet)->n_act;
    w->width = (size_t)w->chunk * w->n_act;
    TRY(eyes_init(&w->eyes, fleet_spec(w->fleet), &w->hello, cfg->pixels));
    b_max = cfg->batch_max > 0 ? (int)cfg->batch_max : (w->n_env + 1) / 2;
    TRY(allocate(w));
    TRY(scheduler_create(&w->scheduler, w->n_env, !cfg->rollout_async, b_max,
                         cfg->batch_timeout_ns));
    TRY(intake_start(w->intake));
    return send_join(w);
}

static void tear_down(struct worker *w)
{
    fleet_destroy(w->fleet);
    intake_destroy(w->intake);
    played_destroy(w->played);
    eyes_fini(&w->eyes);
    scheduler_destroy(w->scheduler);
    policy_destroy(w->policy);
    weights_drop(w->weights);
    mem_free(w->pending);
    mem_free(w->lost);
    mem_free(w->succeeded);
    mem_free(w->failed);
    mem_free(w->batch);
    mem_free(w->global);
    mem_free(w->resets);
    mem_free(w->rows);
    mem_free(w->mean);
    mem_free(w->logp);
    mem_free(w->log_std);
}

// ------------------------------------------------------------------ episodes

// Env `env` takes its episode number `index`: what to reset it to.
static struct reset_row take_episode(struct worker *w, int env, uint64_t index)
{
    const uint64_t size = w->group_size, e = (uint64_t)w->cfg->env_offset + (uint64_t)env;
    const uint64_t group = index * (w->n_env_all / size) + e / size;
    uint64_t start = group;

    if (w->cfg->own_starts) // so that none is left out
        start = index * ((uint64_t)w->n_env / size) + (uint64_t)env / size;
    if (w->cfg->start_states > 0)
        start %= (uint64_t)w->cfg->start_states;
    played_begin(w->played, env, index, group, (uint32_t)(e % size));
    w->pending[env] = w->succeeded[env] = false;
    return (struct reset_row){.seed = (uint64_t)w->cfg->seed, .episode = start};
}

static enum status start_one(struct worker *w, int env, uint64_t index)
{
    w->resets[0] = take_episode(w, env, index);
    return fleet_reset_some(w->fleet, &env, w->resets, 1);
}

// ------------------------------------------------------------------ actions out

// Around the means: sampled actions, and what is sent of them.
static void sample(struct worker *w, int n)
{
    const struct vla_about *vla = w->weights->vla;

    for (int i = 0; i < n; i++) {
        const struct policy_row *row = &w->rows[i];
        struct rng rng = rng_make(row->seed, RNG_ACTION, row->stream, row->episode, row->step);
        const size_t at = (size_t)i * w->width;

        for (size_t d = 0; d < w->width; d++)
            w->action[at + d] =
                (float)((double)w->mean[at + d] + rng_normal(&rng) * exp((double)w->log_std[d]));
        for (size_t k = at; k < at + w->width; k += w->n_act) {
            if (vla)
                vla_input_unscale(&vla->input, w->action + k, w->unscaled + k);
            else
                memcpy(w->unscaled + k, w->action + k, w->n_act * sizeof w->action[0]);
            fleet_clip(w->fleet, w->unscaled + k, w->clipped + k);
        }
    }
}

static enum status infer(struct worker *w)
{
    int i, n = w->weights ? scheduler_take(w->scheduler, w->batch, clock_now_ns()) : 0;

    if (n == 0)
        return ST_OK;
    for (i = 0; i < n; i++) {
        int env = w->batch[i];

        w->rows[i] = (struct policy_row){.seed = (uint64_t)w->cfg->seed,
                                         .stream = played_group(w->played, env),
                                         .episode = played_member(w->played, env),
                                         .step = (uint64_t)played_decisions(w->played, env)};
        eyes_row(&w->eyes, env, &w->rows[i]);
    }
    accel_infer(&w->cfg->accel, n);
    TRY(policy_means(w->policy, w->weights, w->rows, n, w->mean));
    sample(w, n);
    gaussian_parts(w->mean, (int)w->width, w->action, n, (int)w->width, w->chunk, w->log_std,
                   w->inv_std, w->logp);
    for (i = 0; i < n; i++) {
        TRY(played_decide(w->played, w->batch[i], w->rows[i].obs, w->rows[i].pictures,
                          w->action + (size_t)i * w->width, w->logp + (size_t)i * (size_t)w->chunk,
                          w->weights->version));
        w->pending[w->batch[i]] = true;
    }
    atomic_fetch_add(&w->progress->batches, 1);
    atomic_fetch_add(&w->progress->rows, n);
    return fleet_step_chunks(w->fleet, w->batch, w->clipped, w->chunk, n);
}

// ------------------------------------------------------------------ rows in

static enum status end_episode(struct worker *w, int env, const struct row_head *head)
{
    const bool judged = fleet_spec(w->fleet)->has_success;
    const bool success = w->succeeded[env];
    const bool error = (head->flags & ROW_ERROR) != 0;
    uint32_t flags = (success ? EPISODE_SUCCESS : 0) | (error ? EPISODE_ERROR : 0);
    struct msg *m;

    // a time-out is a failure like any other; the flag is there for who counts it apart
    if ((head->flags & ROW_TRUNCATED) && !(head->flags & ROW_TERMINATED))
        flags |= EPISODE_TRUNCATED;
    atomic_fetch_add(error ? &w->progress->errors : &w->progress->episodes, 1);
    TRY(played_end(w->played, env, (uint32_t)(w->cfg->env_offset + env), flags,
                   judged ? (double)success : head->episode_return, head->episode_return, &m));
    return intake_send(w->intake, m);
}

static enum status take_row(struct worker *w, int env, const uint8_t *row,
                            const struct row_layout *layout)
{
    const struct row_head *head = (const struct row_head *)row;
    uint64_t index = played_index(w->played, env);

    eyes_see(&w->eyes, env, row, layout);
    w->succeeded[env] |= (head->flags & ROW_SUCCESS) != 0; // a task may go on after it
    w->failed[env] = (head->flags & ROW_ERROR) && head->n_sub == 0 ? w->failed[env] + 1 : 0;
    if (w->failed[env] > RESETS_MAX)
        return FAIL(ST_IO, "env %d of %s cannot begin an episode: %s", env,
                    fleet_spec(w->fleet)->task, row_error_name((enum row_error)head->error));
    if (w->pending[env]) {
        w->pending[env] = false;
        played_outcome(w->played, env, (const double *)(row + layout->reward), head->n_sub);
        atomic_fetch_add(&w->progress->env_steps, head->n_sub);
    }
    if (head->flags & ROW_DONE) {
        TRY(end_episode(w, env, head));
        return start_one(w, env, index + 1);
    }
    scheduler_arrive(w->scheduler, env, index, clock_now_ns());
    return ST_OK;
}

static enum status take_batch(struct worker *w, const struct event *e)
{
    const struct row_layout *layout = envclient_layout(intake_source(w->intake, e->source));
    int env;

    for (uint32_t k = 0; k < e->head->n; k++) {
        const uint8_t *row = e->rows + (size_t)k * e->head->stride;

        TRY(fleet_find(w->fleet, e->source, ((const struct row_head *)row)->env, &env));
        TRY(take_row(w, env, row, layout));
    }
    return ST_OK;
}

// The global numbers of the first n envs of the batch. Scratch.
static const uint32_t *global_envs(struct worker *w, int n)
{
    for (int i = 0; i < n; i++)
        w->global[i] = (uint32_t)(w->cfg->env_offset + w->batch[i]);
    return w->global;
}

static enum status lose_source(struct worker *w, const struct event *e)
{
    int n = fleet_lose(w->fleet, e->source, w->batch);
    struct msg *m;

    if (n == 0)
        return ST_OK;
    if (fleet_n_left(w->fleet) == 0)
        return error_adopt(&e->err);
    log_warn("rollout", "%s; %d of %d envs are left", e->err.text, fleet_n_left(w->fleet),
             w->n_env);
    for (int i = 0; i < n; i++) {
        scheduler_remove(w->scheduler, w->batch[i]);
        w->lost[w->batch[i]] = true;
    }
    TRY(lost_write(&m, global_envs(w, n), (uint32_t)n));
    return intake_send(w->intake, m);
}

// The episode that the first n envs of the batch go on with: that of the slowest env that is there,
// but none that one of them has ended.
static uint64_t index_at_return(const struct worker *w, int n)
{
    uint64_t slowest = UINT64_MAX, index;

    for (int i = 0; i < w->n_env; i++)
        if (!w->lost[i] && played_index(w->played, i) < slowest)
            slowest = played_index(w->played, i);
    index = slowest == UINT64_MAX ? 0 : slowest;
    for (int i = 0; i < n; i++) {
        uint64_t own = played_index(w->played, w->batch[i]);

        index = own > index ? own : index;
    }
    return index;
}

static enum status return_source(struct worker *w, const struct event *e)
{
    uint64_t index;
    struct msg *m;
    int n;

    intake_adopt(w->intake, e->source);
    if (fleet_return(w->fleet, e->source, w->batch, &n) != ST_OK) {
        log_error("rollout", "%s; it is not used again", error_last()->text);
        return ST_OK;
    }
    index = index_at_return(w, n);
    log_info("rollout", "env server %s is back; %d of %d envs are there",
             envclient_url(intake_source(w->intake, e->source)), fleet_n_left(w->fleet), w->n_env);
    TRY(back_write(&m, index, global_envs(w, n), (uint32_t)n));
    TRY(intake_send(w->intake, m));
    for (int i = 0; i < n; i++) {
        scheduler_return(w->scheduler, w->batch[i]);
        w->lost[w->batch[i]] = false;
        if (w->begun)
            w->resets[i] = take_episode(w, w->batch[i], index);
    }
    return w->begun ? fleet_reset_some(w->fleet, w->batch, w->resets, n) : ST_OK;
}

// ------------------------------------------------------------------ the learner's messages

// The first weights say how groups are made and where to begin.
static enum status begin(struct worker *w, const struct weights_head *head)
{
    const uint32_t size = head->group_size, first = (uint32_t)w->cfg->env_offset;

    if (size < 1 || head->n_env % size != 0 || (uint32_t)w->n_env % size != 0 || first % size != 0)
        return FAIL(ST_INVAL,
                    "groups of %u episodes with %u envs in all, of which this worker has %u to %u: "
                    "expected multiples of the group's size",
                    size, head->n_env, first, first + (uint32_t)w->n_env - 1);
    w->group_size = size;
    w->n_env_all = head->n_env;
    w->begun = true;
    for (int i = 0; i < w->n_env; i++) {
        w->batch[i] = i;
        w->resets[i] = take_episode(w, i, head->start);
    }
    return fleet_reset_some(w->fleet, w->batch, w->resets, w->n_env);
}

// The first weights say what the policy sees.
static enum status set_up_policy(struct worker *w, const struct weights *weights)
{
    TRY(eyes_open(&w->eyes, weights, w->n_env, (int)w->width));
    TRY(allocate_policy(w));
    TRY(played_create(&w->played, &(struct played_config){.n_env = w->n_env,
                                                          .n_obs = w->eyes.n_obs,
                                                          .n_act = (int)w->n_act,
                                                          .chunk = w->chunk,
                                                          .n_view = w->eyes.n_view,
                                                          .picture_bytes = w->eyes.picture_bytes}));
    return policy_create_of(&w->policy, weights, w->n_env);
}

// The standard deviations of a chunk's numbers; those of a vision-language-action model are one for
// each number of an action.
static enum status take_std(struct worker *w, const struct weights *weights)
{
    struct model_table mlp;
    struct vla_table vla;
    int64_t at;
    size_t n = w->width;

    if (weights->vla) {
        TRY(vla_table_init(&vla, &weights->vla->model));
        at = vla.log_std;
        n = w->n_act;
        vla_table_fini(&vla);
    } else {
        model_table_make(&mlp, &weights->shape);
        at = mlp.piece[mlp.i_log_std].offset;
    }
    for (size_t d = 0; d < w->width; d++)
        w->log_std[d] = weights->params[at + (int64_t)(d % n)];
    (void)gaussian_inv_std(w->log_std, (int)w->width, w->inv_std);
    return ST_OK;
}

static enum status use_weights(struct worker *w, struct weights *weights)
{
    if (!w->policy)
        TRY(set_up_policy(w, weights));
    else if (!weights_same_model(weights, w->weights))
        return FAIL(ST_PROTO, "the learner at %s sent weights of another model", w->cfg->learner);
    weights_drop(w->weights);
    w->weights = weights_hold(weights);
    return take_std(w, weights);
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
    atomic_store(&w->progress->version, (long long)head.version);
    scheduler_admit(w->scheduler, head.admit, clock_now_ns());
    return w->begun ? ST_OK : begin(w, &head);
}

static enum status take_learner(struct worker *w, const struct msg *m)
{
    struct proto_error e;

    switch (m->type) {
    case MSG_WEIGHTS:
        return take_weights(w, m);
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

enum status player_run(const struct rollout_config *cfg, const atomic_bool *stop,
                       struct rollout_progress *progress)
{
    struct worker w = {.cfg = cfg, .stop = stop, .progress = progress};
    enum status st = set_up(&w);

    if (st == ST_OK)
        st = work(&w);
    tear_down(&w);
    return atomic_load(stop) ? ST_OK : st; // a stop may cut off anything
}
