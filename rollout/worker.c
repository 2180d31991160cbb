#include "rollout/worker.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"

#include <string.h>

#define STOP_WAIT_NS (100 * NS_PER_MS) // how soon *stop is seen

uint32_t worker_global(const struct worker *w, int env)
{
    return (uint32_t)(w->cfg->env_offset + env);
}

// ------------------------------------------------------------------ set-up

static enum status allocate(struct worker *w)
{
    const size_t n = (size_t)w->n_env;

    w->pending = mem_alloc(n, sizeof w->pending[0]);
    w->lost = mem_alloc(n, sizeof w->lost[0]);
    w->batch = mem_alloc(n, sizeof w->batch[0]);
    w->global = mem_alloc(n, sizeof w->global[0]);
    w->resets = mem_alloc(n, sizeof w->resets[0]);
    w->rows = mem_alloc(n, sizeof w->rows[0]);
    return w->pending && w->lost && w->batch && w->global && w->resets && w->rows ? ST_OK
                                                                                  : ST_NOMEM;
}

enum status worker_open(struct worker *w, const struct hello *hello)
{
    const struct rollout_config *cfg = w->cfg;
    int b_max;

    TRY(intake_create(&w->intake, &(struct intake_config){.env_urls = cfg->env,
                                                          .learner_url = cfg->learner,
                                                          .n_env = (int)cfg->num_envs,
                                                          .connect_wait_ns = cfg->connect_wait_ns,
                                                          .rejoin = true,
                                                          .hello = *hello,
                                                          .stop = w->stop}));
    TRY(fleet_create(&w->fleet, w->intake));
    w->n_env = fleet_n_env(w->fleet);
    w->n_obs = (size_t)fleet_spec(w->fleet)->n_obs;
    w->n_act = (size_t)fleet_spec(w->fleet)->n_act;
    b_max = cfg->batch_max > 0 ? (int)cfg->batch_max : (w->n_env + 1) / 2;
    TRY(allocate(w));
    return scheduler_create(&w->scheduler, w->n_env, !cfg->rollout_async, b_max,
                            cfg->batch_timeout_ns);
}

void worker_close(struct worker *w)
{
    fleet_destroy(w->fleet);
    intake_destroy(w->intake);
    scheduler_destroy(w->scheduler);
    policy_destroy(w->policy);
    weights_drop(w->weights);
    mem_free(w->pending);
    mem_free(w->lost);
    mem_free(w->batch);
    mem_free(w->global);
    mem_free(w->resets);
    mem_free(w->rows);
}

enum status worker_join(struct worker *w, struct join *j)
{
    const struct spec *spec = fleet_spec(w->fleet);
    struct msg *m;

    j->version = TRAINPROTO_VERSION;
    j->n_env = (uint32_t)w->n_env;
    j->env_first = worker_global(w, 0);
    j->seed = (uint64_t)w->cfg->seed;
    j->n_obs = (uint32_t)w->n_obs;
    j->n_act = (uint32_t)w->n_act;
    memcpy(j->task, spec->task, sizeof j->task);
    TRY(intake_start(w->intake));
    TRY(join_write(&m, j));
    return intake_send(w->intake, m);
}

// ------------------------------------------------------------------ rows in

static enum status take_batch(struct worker *w, const struct event *e)
{
    const struct row_layout *layout = envclient_layout(intake_source(w->intake, e->source));
    int env;

    for (uint32_t k = 0; k < e->head->n; k++) {
        const uint8_t *row = e->rows + (size_t)k * e->head->stride;

        TRY(fleet_find(w->fleet, e->source, ((const struct row_head *)row)->env, &env));
        TRY(w->role->take_row(w->self, env, row, layout));
    }
    return w->role->rows_taken ? w->role->rows_taken(w->self) : ST_OK;
}

// The global numbers of the first n envs of the batch. Scratch.
static const uint32_t *global_envs(struct worker *w, int n)
{
    for (int i = 0; i < n; i++)
        w->global[i] = worker_global(w, w->batch[i]);
    return w->global;
}

// Go on with the envs of the other servers, and tell the learner, which waits for all.
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

// Rounds that each of the first n envs of the batch counts as having made when it returns: those
// of the slowest env that is there, but none less than one of them has made.
static uint64_t rounds_at_return(const struct worker *w, int n)
{
    uint64_t slowest = UINT64_MAX, rounds;

    for (int i = 0; i < w->n_env; i++) {
        uint64_t own = w->lost[i] ? UINT64_MAX : w->role->rounds(w->self, i);

        slowest = own < slowest ? own : slowest;
    }
    rounds = slowest == UINT64_MAX ? 0 : slowest;
    for (int i = 0; i < n; i++) {
        uint64_t own = w->role->rounds(w->self, w->batch[i]);

        rounds = own > rounds ? own : rounds;
    }
    return rounds;
}

static enum status return_source(struct worker *w, const struct event *e)
{
    uint64_t rounds;
    struct msg *m;
    int n;

    intake_adopt(w->intake, e);
    if (fleet_return(w->fleet, e->source, w->batch, &n) != ST_OK) {
        log_error("rollout", "%s; it is not used again", error_last()->text);
        return ST_OK;
    }
    rounds = rounds_at_return(w, n);
    log_info("rollout", "env server %s is back; %d of %d envs are there",
             envclient_url(intake_source(w->intake, e->source)), fleet_n_left(w->fleet), w->n_env);
    TRY(back_write(&m, rounds, global_envs(w, n), (uint32_t)n));
    TRY(intake_send(w->intake, m));
    for (int i = 0; i < n; i++) {
        scheduler_return(w->scheduler, w->batch[i]);
        w->lost[w->batch[i]] = w->pending[w->batch[i]] = false;
    }
    return w->role->go_on(w->self, n, rounds);
}

// ------------------------------------------------------------------ the learner's messages

static enum status take_weights(struct worker *w, const struct msg *m)
{
    struct weights_head head;
    struct weights *weights;
    const void *blob;
    enum status st;

    TRY(weights_read(m, &head, &blob));
    TRY(weights_blob_read(&weights, blob, head.blob_bytes));
    st = w->role->use_weights(w->self, weights);
    if (st != ST_OK) {
        weights_drop(weights);
        return st;
    }
    weights_drop(w->weights);
    w->weights = weights;
    if (head.want_state && w->role->answer_state)
        TRY(w->role->answer_state(w->self));
    atomic_store(&w->progress->version, (long long)head.version);
    scheduler_admit(w->scheduler, head.admit, clock_now_ns());
    if (w->begun)
        return ST_OK;
    TRY(w->role->begin(w->self, &head));
    w->begun = true;
    return ST_OK;
}

static enum status take_learner(struct worker *w, const struct msg *m)
{
    struct proto_error e;

    switch (m->type) {
    case MSG_WEIGHTS:
        return take_weights(w, m);
    case MSG_STATE:
        if (w->begun)
            return FAIL(ST_PROTO, "the learner at %s sent a STATE after WEIGHTS", w->cfg->learner);
        if (w->role->take_state)
            return w->role->take_state(w->self, m);
        break;
    case MSG_BYE:
        w->done = true;
        return ST_OK;
    case MSG_ERROR:
        TRY(proto_error_read(m, &e));
        return FAIL(e.code == ST_INVAL ? ST_INVAL : ST_PROTO, "the learner at %s refuses: %s",
                    w->cfg->learner, e.text);
    }
    return FAIL(ST_PROTO, "the learner at %s sent a message of type %u", w->cfg->learner, m->type);
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

static enum status infer(struct worker *w)
{
    int n = w->weights ? scheduler_take(w->scheduler, w->batch, clock_now_ns()) : 0;

    if (n == 0)
        return ST_OK;
    accel_infer(&w->cfg->accel, n);
    atomic_fetch_add(&w->progress->batches, 1);
    atomic_fetch_add(&w->progress->rows, n);
    return w->role->infer(w->self, n);
}

enum status worker_work(struct worker *w)
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
