#include "learner/learner.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/metrics.h"
#include "common/base/thread.h"
#include "learner/admission.h"
#include "learner/hub.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STOP_WAIT_NS    (100 * NS_PER_MS) // how soon *stop is seen
#define STATE_WAIT_NS   (10 * NS_PER_S)   // for the workers' answers at a checkpoint
#define STOPPED_WAIT_NS NS_PER_S          // the same after *stop
#define RECENT          100               // episodes behind the mean return

struct member {
    int worker;
    struct join join;
    struct admission admission;
    struct msg *state; // where its episodes are, at the last checkpoint
    bool answered;
    struct member *next;
};

struct learner {
    const struct learner_config *cfg;
    const atomic_bool *stop;
    struct learner_progress *progress;
    struct hub *hub;
    struct updater *updater;
    struct metrics *metrics;
    struct train_progress done;
    uint64_t total_windows;
    struct member *members;
    int64_t n_joined;          // envs of the members
    struct hub_item **held;    // chunks of the present window that are not accumulated yet
    const struct chunk **list; // (held_cap) scratch
    size_t n_held, held_cap;
    int64_t steps; // env steps of the present window
    double recent[RECENT], lengths[RECENT];
    int64_t n_recent;
    int64_t start_ns, waited_ns, window_ns;
    double seconds_before; // training time of earlier runs
    uint64_t first_window; // windows of earlier runs
    double lag_sum, lag_max, lag_n;
};

static uint64_t version(const struct learner *l)
{
    return updater_weights(l->updater)->version;
}

static uint64_t eta(const struct learner *l)
{
    return l->cfg->train_async ? (uint64_t)l->cfg->max_staleness : 0;
}

static void path(const struct learner *l, const char *name, char *buf, size_t size)
{
    if (snprintf(buf, size, "%s/%s", l->cfg->out, name) >= (int)size)
        log_warn("learner", "the path of '%s' is cut off", name);
}

// ------------------------------------------------------------------ weights out

static enum status send_weights(struct learner *l, const struct member *m, bool want_state)
{
    const struct weights *w = updater_weights(l->updater);
    struct weights_head head = {.version = w->version,
                                .admit = admission_limit(&m->admission, w->version),
                                .blob_bytes = (uint32_t)weights_blob_bytes(w),
                                .want_state = want_state};
    uint8_t *blob = mem_alloc(1, head.blob_bytes);
    struct msg *msg;
    enum status st;

    if (!blob)
        return ST_NOMEM;
    weights_blob_write(w, blob);
    st = weights_write(&msg, &head, blob);
    mem_free(blob);
    if (st == ST_OK)
        hub_send(l->hub, m->worker, msg);
    return st;
}

static enum status publish(struct learner *l, bool want_state)
{
    struct member *m;

    for (m = l->members; m; m = m->next) {
        m->answered = !want_state;
        TRY(send_weights(l, m, want_state));
    }
    return ST_OK;
}

static void say_bye(struct learner *l)
{
    struct member *m;
    struct msg *msg;

    for (m = l->members; m; m = m->next)
        if (msg_new(&msg, MSG_BYE, 0) == ST_OK)
            hub_send(l->hub, m->worker, msg);
}

// ------------------------------------------------------------------ start and members

// A window's pictures are the largest part of a learner's memory by far.
static void say_memory(const struct learner_config *cfg, const struct model_vision *v)
{
    double picture = (double)model_picture_bytes(v), n_env = (double)cfg->num_envs;
    double window = n_env * (double)(cfg->horizon + v->stack) * picture;

    log_info("learner",
             "pictures of %d by %d, %d at once: a window has %.1f MiB of them%s, beside its chunks "
             "that wait",
             v->width, v->height, v->stack, window / 1048576,
             cfg->update.epochs > 1 ? ", kept for its replay" : "");
}

static enum status make_updater(struct learner *l, const struct join *j)
{
    const struct learner_config *cfg = l->cfg;
    struct model_shape shape;
    struct weights *w;
    enum status st;

    TRY(model_shape_parse(&shape, (int)j->n_obs, (int)j->n_act, cfg->hidden));
    if (j->picture[0]) {
        shape.vision = (struct model_vision){.width = (int)j->width,
                                             .height = (int)j->height,
                                             .stack = (int)cfg->frame_stack,
                                             .state = cfg->pixels_state};
        TRY(model_conv_parse(&shape.vision, cfg->conv));
        say_memory(cfg, &shape.vision);
    }
    TRY(weights_create(&w, &shape));
    snprintf(w->task, sizeof w->task, "%s", j->task);
    snprintf(w->picture, sizeof w->picture, "%s", j->picture);
    snprintf(w->config, sizeof w->config, "%s", cfg->options ? cfg->options : "");
    st = model_init(&shape, (uint64_t)cfg->seed, cfg->log_std, w->params);
    if (st == ST_OK)
        st = updater_create(&l->updater, &cfg->update, w, (int64_t)l->total_windows);
    weights_drop(w);
    TRY(st);
    if (cfg->resume) {
        char file[OPT_STR_MAX + 32];

        path(l, "checkpoint.h5", file, sizeof file);
        TRY(checkpoint_load(file, l->updater, &l->done));
        l->seconds_before = l->done.seconds;
        log_info("learner", "going on from '%s', window %llu", file,
                 (unsigned long long)l->done.windows);
    }
    return ST_OK;
}

// The saved state of this worker's episodes goes to it before the weights.
static enum status send_saved_state(struct learner *l, const struct member *m);

static enum status member_join(struct learner *l, const struct hub_item *item)
{
    struct member *m = mem_alloc(1, sizeof *m);

    if (!m)
        return ST_NOMEM;
    m->worker = item->worker;
    m->join = item->join;
    m->answered = true;
    m->next = l->members;
    l->members = m;
    l->n_joined += m->join.n_env;
    if (!l->updater)
        TRY(make_updater(l, &item->join));
    TRY(admission_init(&m->admission, m->join.n_env, (uint64_t)l->cfg->horizon, eta(l),
                       version(l)));
    log_info("learner", "worker %d joined with envs %u to %u", m->worker, m->join.env_first,
             m->join.env_first + m->join.n_env - 1);
    if (l->cfg->resume && version(l) == l->done.windows)
        TRY(send_saved_state(l, m));
    return send_weights(l, m, false);
}

static void member_free(struct member *m)
{
    msg_free(m->state);
    admission_fini(&m->admission);
    mem_free(m);
}

static void member_leave(struct learner *l, int worker)
{
    struct member **at, *m;

    for (at = &l->members; *at && (*at)->worker != worker; at = &(*at)->next)
        ;
    m = *at;
    if (!m)
        return;
    *at = m->next;
    l->n_joined -= m->admission.n_left;
    log_warn("learner", "worker %d with envs %u to %u is gone", worker, m->join.env_first,
             m->join.env_first + m->join.n_env - 1);
    member_free(m);
}

static struct member *member_find(const struct learner *l, int worker)
{
    struct member *m = l->members;

    while (m && m->worker != worker)
        m = m->next;
    return m;
}

// Envs of a worker are gone: the window closes without them.
static void member_lost(struct learner *l, const struct hub_item *item)
{
    struct member *m = member_find(l, item->worker);
    uint32_t i, before;

    if (!m)
        return;
    before = m->admission.n_left;
    for (i = 0; i < item->n_envs; i++)
        admission_lose(&m->admission, item->envs[i] - m->join.env_first);
    l->n_joined -= before - m->admission.n_left;
    log_warn("learner", "worker %d has lost %u envs, %u are left", m->worker,
             before - m->admission.n_left, m->admission.n_left);
}

// Envs of a worker are there again.
static void member_back(struct learner *l, const struct hub_item *item)
{
    struct member *m = member_find(l, item->worker);
    uint32_t i, before;

    if (!m)
        return;
    before = m->admission.n_left;
    for (i = 0; i < item->n_envs; i++)
        admission_return(&m->admission, item->envs[i] - m->join.env_first, item->chunks);
    l->n_joined += m->admission.n_left - before;
    log_info("learner", "worker %d has %u envs back, %u are there", m->worker,
             m->admission.n_left - before, m->admission.n_left);
}

static void member_state(struct learner *l, struct hub_item *item)
{
    struct member *m = member_find(l, item->worker);

    if (!m)
        return;
    msg_free(m->state);
    m->state = item->m;
    m->answered = true;
    item->m = NULL;
}

// ------------------------------------------------------------------ checkpoints

// The state file: per worker a u64 length and the STATE body. Its first number is the version that
// it belongs to.
static enum status save_state(struct learner *l)
{
    char file[OPT_STR_MAX + 32];
    const struct member *m;
    struct msg *all;
    enum status st;

    TRY(msg_new(&all, MSG_STATE, 1 << 16));
    st = msg_u64(all, version(l));
    for (m = l->members; m && st == ST_OK; m = m->next) {
        if (!m->state)
            continue;
        st = msg_u64(all, m->state->len);
        if (st == ST_OK)
            st = msg_bytes(all, m->state->data, m->state->len);
    }
    path(l, "envs.state", file, sizeof file);
    if (st == ST_OK)
        st = file_write_atomic(file, all->data, all->len);
    msg_free(all);
    return st;
}

static enum status read_file(const char *file, struct msg **out)
{
    FILE *f = fopen(file, "rb");
    struct msg *m;
    long n;
    enum status st;

    if (!f)
        return FAIL(ST_MISSING, "cannot open '%s'", file);
    if (fseek(f, 0, SEEK_END) != 0 || (n = ftell(f)) < 0 || n > (long)MSG_BYTES_MAX) {
        fclose(f);
        return FAIL(ST_IO, "cannot read '%s'", file);
    }
    rewind(f);
    st = msg_new(&m, MSG_STATE, (size_t)n);
    if (st == ST_OK && n > 0 &&
        (!msg_append(m, (size_t)n) || fread(m->data, 1, (size_t)n, f) != (size_t)n)) {
        msg_free(m);
        st = FAIL(ST_IO, "cannot read '%s'", file);
    }
    fclose(f);
    if (st == ST_OK)
        *out = m;
    return st;
}

static enum status find_saved(const struct learner *l, const struct member *m,
                              const struct msg *all, struct msg **out)
{
    struct reader r = reader_make(all), inner;
    uint32_t env_first, n_env;
    struct msg *one;
    enum status st;

    if (read_u64(&r) != version(l))
        return FAIL(ST_INVAL, "the episodes' state belongs to another checkpoint");
    while (!r.bad && r.p != r.end) {
        uint64_t n = read_u64(&r);
        const void *body = read_bytes(&r, n, 1);

        TRY(reader_end(&r, false, "envs.state"));
        TRY(msg_new(&one, MSG_STATE, n));
        st = msg_bytes(one, body, n);
        if (st == ST_OK)
            st = state_read(one, m->join.n_act, &inner, &env_first, &n_env);
        if (st == ST_OK && env_first == m->join.env_first && n_env == m->join.n_env) {
            *out = one;
            return ST_OK;
        }
        msg_free(one);
        TRY(st);
    }
    return FAIL(ST_INVAL, "no state of envs %u to %u", m->join.env_first,
                m->join.env_first + m->join.n_env - 1);
}

static enum status send_saved_state(struct learner *l, const struct member *m)
{
    char file[OPT_STR_MAX + 32];
    struct msg *all = NULL, *one;
    enum status st;

    path(l, "envs.state", file, sizeof file);
    st = read_file(file, &all);
    if (st == ST_OK)
        st = find_saved(l, m, all, &one);
    if (st == ST_OK)
        hub_send(l->hub, m->worker, one);
    else
        log_warn("learner", "%s: worker %d starts new episodes", error_last()->text, m->worker);
    msg_free(all);
    return st == ST_NOMEM ? st : ST_OK;
}

static enum status handle(struct learner *l, struct hub_item *item);

static enum status collect_states(struct learner *l)
{
    int64_t until = deadline_after(STATE_WAIT_NS), soon = deadline_after(STOPPED_WAIT_NS);
    struct hub_item *item;
    const struct member *m;
    enum status st;

    for (;;) {
        for (m = l->members; m && m->answered; m = m->next)
            ;
        if (!m)
            return ST_OK;
        if (clock_now_ns() >= (atomic_load(l->stop) ? soon : until)) {
            log_warn("learner", "worker %d does not say where its episodes are", m->worker);
            return ST_OK;
        }
        st = hub_next(l->hub, &item, STOP_WAIT_NS);
        if (st == ST_OK)
            st = handle(l, item);
        if (st != ST_OK && st != ST_TIMEOUT)
            return st;
    }
}

// Called when the workers have been asked for their state with the weights of this version.
static enum status checkpoint(struct learner *l)
{
    char file[OPT_STR_MAX + 32];

    TRY(collect_states(l));
    TRY(save_state(l));
    path(l, "checkpoint.h5", file, sizeof file);
    TRY(checkpoint_save(file, l->updater, &l->done));
    path(l, "policy.h5", file, sizeof file);
    return weights_save(updater_weights(l->updater), file);
}

// ------------------------------------------------------------------ chunks in

static int by_env(const void *a, const void *b)
{
    const struct chunk_head *x = &(*(struct hub_item *const *)a)->chunk.head;
    const struct chunk_head *y = &(*(struct hub_item *const *)b)->chunk.head;

    if (x->env != y->env)
        return x->env < y->env ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void note_episodes(struct learner *l, const struct chunk *c)
{
    uint32_t i;

    for (i = 0; i < c->head.n_episode; i++) {
        l->recent[l->n_recent % RECENT] = c->episode_return[i];
        l->lengths[l->n_recent % RECENT] = c->episode_length[i];
        l->n_recent++;
        l->done.episodes++;
    }
}

// Forward and backward of the held chunks.
static enum status accumulate(struct learner *l)
{
    enum status st;
    size_t i;

    if (l->n_held == 0)
        return ST_OK;
    if (!l->cfg->streaming)
        qsort(l->held, l->n_held, sizeof l->held[0], by_env);
    for (i = 0; i < l->n_held; i++) {
        l->list[i] = &l->held[i]->chunk;
        note_episodes(l, l->list[i]);
    }
    st = updater_accumulate_many(l->updater, l->list, (int)l->n_held);
    for (i = 0; i < l->n_held; i++)
        hub_item_free(l->held[i]);
    l->n_held = 0;
    return st;
}

static enum status hold(struct learner *l, struct hub_item *item)
{
    if (l->n_held == l->held_cap) {
        size_t cap = l->held_cap ? 2 * l->held_cap : 256;
        struct hub_item **held = mem_resize(l->held, cap, sizeof held[0]);
        const struct chunk **list;

        if (!held)
            return ST_NOMEM;
        l->held = held;
        list = mem_resize(l->list, cap, sizeof list[0]);
        if (!list)
            return ST_NOMEM;
        l->list = list;
        l->held_cap = cap;
    }
    l->held[l->n_held++] = item;
    l->steps += item->chunk.head.n_step;
    return ST_OK;
}

// Takes the item.
static enum status admit(struct learner *l, struct hub_item *item)
{
    double lag = (double)admission_lag(version(l), item->chunk.head.version_min);
    bool drop = lag > (double)eta(l);
    struct member *m = member_find(l, item->worker);
    enum status st;

    if (m) {
        uint64_t before = admission_limit(&m->admission, version(l));

        admission_count(&m->admission, item->chunk.head.env - m->join.env_first, drop);
        if (admission_limit(&m->admission, version(l)) != before)
            TRY(send_weights(l, m, false));
    }
    if (drop) {
        l->done.dropped++;
        hub_item_free(item);
        return ST_OK;
    }
    l->lag_sum += lag;
    l->lag_n++;
    l->lag_max = lag > l->lag_max ? lag : l->lag_max;
    st = hold(l, item);
    if (st != ST_OK)
        hub_item_free(item);
    return st;
}

// Takes the item.
static enum status handle(struct learner *l, struct hub_item *item)
{
    enum status st = ST_OK;

    switch (item->kind) {
    case HUB_JOINED:
        st = member_join(l, item);
        break;
    case HUB_LEFT:
        member_leave(l, item->worker);
        break;
    case HUB_STATE:
        member_state(l, item);
        break;
    case HUB_LOST:
        member_lost(l, item);
        break;
    case HUB_BACK:
        member_back(l, item);
        break;
    case HUB_EPISODE: // not of a hub for chunks
        break;
    case HUB_CHUNK:
        return admit(l, item);
    }
    hub_item_free(item);
    return st;
}

// Env steps that close the present window: those of the envs that are there, once all have come.
static int64_t target(const struct learner *l)
{
    return (l->n_joined < l->cfg->num_envs ? l->n_joined : l->cfg->num_envs) * l->cfg->horizon;
}

static bool complete(const struct learner *l)
{
    return l->updater && l->n_joined > 0 && l->steps >= target(l);
}

// Where workers came and went, or chunks were dropped, what the others may still send can be too
// little to close the window. Then the rule must give way; too old chunks are dropped as ever.
static enum status relieve(struct learner *l)
{
    uint64_t coming = 0;
    struct member *m;

    for (m = l->members; m; m = m->next)
        coming += admission_open(&m->admission, version(l));
    if (!l->updater || l->n_joined == 0 || (uint64_t)l->steps + coming >= (uint64_t)target(l))
        return ST_OK;
    for (m = l->members; m; m = m->next) {
        admission_grant(&m->admission);
        TRY(send_weights(l, m, false));
    }
    return ST_OK;
}

// Fill the present window. ST_CLOSED if *stop was set first.
static enum status collect(struct learner *l)
{
    struct hub_item *item;
    enum status st;

    while (!complete(l)) {
        int64_t t = clock_now_ns();

        if (atomic_load(l->stop))
            return ST_CLOSED;
        st = hub_next(l->hub, &item, l->cfg->streaming && l->n_held > 0 ? 0 : STOP_WAIT_NS);
        l->waited_ns += clock_now_ns() - t;
        if (st == ST_OK)
            TRY(handle(l, item));
        else if (st == ST_AGAIN)
            TRY(accumulate(l)); // all that has arrived, while the rest is on its way
        else if (st == ST_TIMEOUT)
            TRY(relieve(l));
        else
            return st;
    }
    return accumulate(l);
}

// Nothing is learned before all envs are there.
static enum status wait_for_envs(struct learner *l)
{
    struct hub_item *item;
    enum status st;

    while (l->n_joined < l->cfg->num_envs) {
        if (atomic_load(l->stop))
            return ST_CLOSED;
        st = hub_next(l->hub, &item, STOP_WAIT_NS);
        if (st == ST_OK)
            st = handle(l, item);
        if (st != ST_OK && st != ST_TIMEOUT)
            return st;
    }
    return ST_OK;
}

// ------------------------------------------------------------------ the loop

static double mean(const double *x, int64_t n)
{
    double sum = 0;
    int64_t i;

    for (i = 0; i < n; i++)
        sum += x[i];
    return n > 0 ? sum / (double)n : NAN;
}

static enum status report(struct learner *l, const struct update_stats *s, int64_t update_ns)
{
    int64_t now = clock_now_ns(), n = l->n_recent < RECENT ? l->n_recent : RECENT;
    double window_s = (double)(now - l->window_ns) * 1e-9, rate = (double)l->steps / window_s;
    double returns = mean(l->recent, n), lag = l->lag_n > 0 ? l->lag_sum / l->lag_n : 0;
    int queue = hub_length(l->hub);
    const struct metric values[] = {
        {"train/return_mean", returns},
        {"train/episode_length", mean(l->lengths, n)},
        {"train/episodes", (double)l->done.episodes},
        {"train/policy_loss", s->policy_loss},
        {"train/value_loss", s->value_loss},
        {"train/entropy", s->entropy},
        {"train/approx_kl", s->approx_kl},
        {"train/clip_fraction", s->clip_fraction},
        {"train/grad_norm", s->grad_norm},
        {"train/explained_variance", s->explained_variance},
        {"train/lr", s->lr},
        {"train/weight_mean", s->weight_mean},
        {"train/weight_max", s->weight_max},
        {"stale/lag_mean", lag},
        {"stale/lag_max", l->lag_max},
        {"stale/dropped", (double)l->done.dropped},
        {"perf/steps_per_s", rate},
        {"perf/queue", queue},
        {"perf/wait_share", (double)l->waited_ns * 1e-9 / window_s},
        {"perf/update_share", (double)update_ns * 1e-9 / window_s},
        {"time/seconds", l->done.seconds},
    };

    atomic_store(&l->progress->windows, (long long)l->done.windows);
    atomic_store(&l->progress->env_steps, (long long)l->done.env_steps);
    atomic_store(&l->progress->episodes, (long long)l->done.episodes);
    atomic_store(&l->progress->dropped, (long long)l->done.dropped);
    atomic_store(&l->progress->queue, queue);
    atomic_store(&l->progress->mean_return, returns);
    atomic_store(&l->progress->lag, lag);
    atomic_store(&l->progress->steps_per_s, rate);
    atomic_store(&l->progress->seconds, l->done.seconds);
    l->window_ns = now;
    l->waited_ns = 0;
    l->lag_sum = l->lag_max = l->lag_n = 0;
    return metrics_write(l->metrics, (int64_t)l->done.env_steps, values,
                         (int)(sizeof values / sizeof values[0]));
}

static bool finished(const struct learner *l)
{
    bool full = l->n_recent >= RECENT && mean(l->recent, RECENT) >= l->cfg->target_return;

    return l->done.windows >= l->total_windows || full ||
           (l->cfg->max_seconds > 0 && l->done.seconds >= l->cfg->max_seconds);
}

// Close the window that is complete. *asked: the workers were asked for their state.
static enum status close_window(struct learner *l, bool *asked)
{
    int64_t t = clock_now_ns();
    struct update_stats stats;
    struct weights *w;

    TRY(updater_step(l->updater, &w, &stats));
    weights_drop(w);
    t = clock_now_ns() - t;
    l->done.windows++;
    l->done.env_steps += (uint64_t)l->steps;
    l->done.seconds = l->seconds_before + (double)(clock_now_ns() - l->start_ns) * 1e-9;
    *asked = finished(l) || (l->cfg->checkpoint_every > 0 &&
                             l->done.windows % (uint64_t)l->cfg->checkpoint_every == 0);
    // without train-async a stop at any time must find where the episodes were just now
    TRY(publish(l, *asked || !l->cfg->train_async));
    TRY(report(l, &stats, t));
    l->steps = 0;
    return ST_OK;
}

static enum status train(struct learner *l)
{
    bool asked;

    TRY(wait_for_envs(l));
    l->first_window = l->done.windows;
    l->start_ns = l->window_ns = clock_now_ns();
    while (!finished(l)) {
        TRY(collect(l));
        TRY(close_window(l, &asked));
        if (asked)
            TRY(checkpoint(l));
    }
    return ST_OK;
}

static enum status set_up(struct learner *l)
{
    const struct learner_config *cfg = l->cfg;

    if (cfg->num_envs < 1 || cfg->horizon < 1 || cfg->horizon > TRAIN_STEPS_MAX)
        return FAIL(ST_INVAL, "%lld envs, chunks of %lld steps", (long long)cfg->num_envs,
                    (long long)cfg->horizon);
    l->total_windows = (uint64_t)((cfg->total_steps + cfg->num_envs * cfg->horizon - 1) /
                                  (cfg->num_envs * cfg->horizon));
    TRY(file_make_dir(cfg->out));
    TRY(metrics_open(&l->metrics, cfg->out));
    TRY(hub_create(&l->hub, &(struct hub_config){.listen = cfg->listen,
                                                 .task = cfg->task,
                                                 .horizon = (uint32_t)cfg->horizon,
                                                 .n_env = (uint32_t)cfg->num_envs,
                                                 .conv = cfg->conv,
                                                 .stack = (int)cfg->frame_stack}));
    snprintf(l->progress->url, sizeof l->progress->url, "%s", hub_url(l->hub));
    atomic_store(&l->progress->listening, true);
    return ST_OK;
}

static void tear_down(struct learner *l)
{
    size_t i;

    if (l->hub)
        say_bye(l);
    hub_destroy(l->hub);
    for (i = 0; i < l->n_held; i++)
        hub_item_free(l->held[i]);
    while (l->members) {
        struct member *m = l->members;

        l->members = m->next;
        member_free(m);
    }
    mem_free(l->held);
    mem_free(l->list);
    metrics_close(l->metrics);
    updater_destroy(l->updater);
}

enum status learner_run(const struct learner_config *cfg, const atomic_bool *stop,
                        struct learner_progress *progress)
{
    struct learner l = {.cfg = cfg, .stop = stop, .progress = progress};
    enum status st = set_up(&l), saved;

    if (st == ST_OK)
        st = train(&l);
    if (st == ST_CLOSED && atomic_load(stop)) { // keep the closed windows
        st = ST_OK;
        if (l.updater && l.done.windows > l.first_window) {
            saved = cfg->train_async ? publish(&l, true) : ST_OK;
            st = saved == ST_OK ? checkpoint(&l) : saved;
        }
    }
    tear_down(&l);
    return st;
}
