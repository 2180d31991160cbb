#include "learner/serve.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"

#include <stdio.h>

uint64_t serve_version(const struct serve *s)
{
    return s->kind->weights(s->self)->version;
}

uint64_t serve_eta(const struct serve *s)
{
    return s->cfg->train_async ? (uint64_t)s->cfg->max_staleness : 0;
}

void serve_path(const struct serve *s, const char *name, char *buf, size_t size)
{
    if (snprintf(buf, size, "%s/%s", s->cfg->out, name) >= (int)size)
        log_warn("learner", "the path of '%s' is cut off", name);
}

// ------------------------------------------------------------------ weights out

enum status serve_send_weights(struct serve *s, const struct member *m, bool want_state)
{
    const struct weights *w = s->kind->weights(s->self);
    struct weights_head head = {.version = w->version,
                                .admit = m->start + admission_limit(&m->admission, w->version),
                                .blob_bytes = (uint32_t)weights_blob_bytes(w),
                                .want_state = want_state};
    uint8_t *blob = mem_alloc(1, head.blob_bytes);
    struct msg *msg;
    enum status st;

    if (!blob)
        return ST_NOMEM;
    if (s->group_size > 0) {
        head.group_size = s->group_size;
        head.n_env = (uint32_t)s->cfg->num_envs;
        head.start = m->start;
    }
    weights_blob_write(w, blob);
    st = weights_write(&msg, &head, blob);
    mem_free(blob);
    if (st == ST_OK)
        hub_send(s->hub, m->worker, msg);
    return st;
}

static enum status publish(struct serve *s, bool want_state)
{
    for (struct member *m = s->members; m; m = m->next) {
        m->answered = !want_state;
        TRY(serve_send_weights(s, m, want_state));
    }
    return ST_OK;
}

static void say_bye(struct serve *s)
{
    struct msg *msg;

    for (struct member *m = s->members; m; m = m->next)
        if (msg_new(&msg, MSG_BYE, 0) == ST_OK)
            hub_send(s->hub, m->worker, msg);
}

// ------------------------------------------------------------------ members

struct member *serve_member(const struct serve *s, int worker)
{
    struct member *m = s->members;

    while (m && m->worker != worker)
        m = m->next;
    return m;
}

static enum status member_join(struct serve *s, const struct hub_item *item)
{
    struct member *m = mem_alloc(1, sizeof *m);

    if (!m)
        return ST_NOMEM;
    m->worker = item->worker;
    m->join = item->join;
    m->answered = true;
    m->next = s->members;
    s->members = m;
    s->n_joined += m->join.n_env;
    if (!s->kind->weights(s->self)) {
        TRY(s->kind->start(s->self, &m->join));
        s->seconds_before = s->done.seconds;
    }
    TRY(admission_init(&m->admission, m->join.n_env, s->unit, serve_eta(s), serve_version(s)));
    m->admission.rounds = s->rounds;
    log_info("learner", "worker %d joined with envs %u to %u of %s", m->worker, m->join.env_first,
             m->join.env_first + m->join.n_env - 1, m->join.task);
    TRY(s->kind->join(s->self, m));
    return serve_send_weights(s, m, false);
}

static void member_free(struct member *m)
{
    msg_free(m->state);
    admission_fini(&m->admission);
    mem_free(m);
}

static void member_leave(struct serve *s, int worker)
{
    struct member **at, *m;

    for (at = &s->members; *at && (*at)->worker != worker; at = &(*at)->next)
        ;
    m = *at;
    if (!m)
        return;
    *at = m->next;
    s->n_joined -= m->admission.n_left;
    log_warn("learner", "worker %d with envs %u to %u is gone", worker, m->join.env_first,
             m->join.env_first + m->join.n_env - 1);
    member_free(m);
}

// Envs of a worker are gone, and the window closes without them; or they are there again.
static void member_change(struct serve *s, const struct hub_item *item)
{
    struct member *m = serve_member(s, item->worker);
    const bool lost = item->kind == HUB_LOST;
    uint32_t before;

    if (!m)
        return;
    before = m->admission.n_left;
    for (uint32_t i = 0; i < item->n_envs; i++) {
        uint32_t env = item->envs[i] - m->join.env_first;

        if (lost)
            admission_lose(&m->admission, env);
        else
            admission_return(&m->admission, env,
                             item->chunks > m->start ? item->chunks - m->start : 0);
    }
    s->n_joined += (int64_t)m->admission.n_left - (int64_t)before;
    if (lost)
        log_warn("learner", "worker %d has lost %u envs, %u of %u are left", m->worker,
                 before - m->admission.n_left, m->admission.n_left, m->join.n_env);
    else
        log_info("learner", "worker %d has %u envs back, %u of %u are there", m->worker,
                 m->admission.n_left - before, m->admission.n_left, m->join.n_env);
}

uint64_t serve_coming(const struct serve *s)
{
    uint64_t n = 0;

    for (const struct member *m = s->members; m; m = m->next)
        n += admission_open(&m->admission, serve_version(s));
    return n;
}

enum status serve_grant(struct serve *s)
{
    for (struct member *m = s->members; m; m = m->next) {
        admission_grant(&m->admission);
        TRY(serve_send_weights(s, m, false));
    }
    return ST_OK;
}

// ------------------------------------------------------------------ items in

// Takes the item.
static enum status handle(struct serve *s, struct hub_item *item)
{
    enum status st = ST_OK;

    switch (item->kind) {
    case HUB_JOINED:
        st = member_join(s, item);
        break;
    case HUB_LEFT:
        member_leave(s, item->worker);
        break;
    case HUB_LOST:
    case HUB_BACK:
        member_change(s, item);
        break;
    case HUB_STATE:
    case HUB_CHUNK:
    case HUB_EPISODE:
        return s->kind->take(s->self, item);
    }
    hub_item_free(item);
    return st;
}

enum status serve_next(struct serve *s, int64_t wait_ns)
{
    struct hub_item *item;
    enum status st = hub_next(s->hub, &item, wait_ns);

    return st == ST_OK ? handle(s, item) : st;
}

// Nothing is learned before all envs are there.
static enum status wait_for_envs(struct serve *s)
{
    while (s->n_joined < s->cfg->num_envs) {
        enum status st;

        if (atomic_load(s->stop))
            return ST_CLOSED;
        st = serve_next(s, SERVE_WAIT_NS);
        if (st != ST_OK && st != ST_TIMEOUT)
            return st;
    }
    return ST_OK;
}

// Fill the present window. ST_CLOSED if *stop was set first.
static enum status collect(struct serve *s)
{
    if (s->kind->open)
        TRY(s->kind->open(s->self));
    while (!s->kind->complete(s->self)) {
        struct hub_item *item;
        int64_t t = clock_now_ns();
        enum status st;

        if (atomic_load(s->stop))
            return ST_CLOSED;
        st = hub_next(s->hub, &item, SERVE_WAIT_NS);
        s->waited_ns += clock_now_ns() - t;
        if (st == ST_TIMEOUT) {
            TRY(s->kind->idle(s->self));
            continue;
        }
        TRY(st);
        TRY(handle(s, item));
        TRY(s->kind->arrived(s->self));
    }
    return s->kind->accumulate(s->self);
}

// ------------------------------------------------------------------ the loop

static enum status report(struct serve *s, int64_t update_ns)
{
    const int64_t now = clock_now_ns();
    const double window_s = (double)(now - s->window_ns) * 1e-9;
    struct serve_report r = {.steps_per_s = (double)s->steps / window_s,
                             .wait_share = (double)s->waited_ns * 1e-9 / window_s,
                             .update_share = (double)update_ns * 1e-9 / window_s,
                             .queue = hub_length(s->hub)};
    struct learner_progress *p = s->progress;

    TRY(s->kind->report(s->self, &r));
    atomic_store(&p->windows, (long long)s->done.windows);
    atomic_store(&p->env_steps, (long long)s->done.env_steps);
    atomic_store(&p->episodes, (long long)s->done.episodes);
    atomic_store(&p->dropped, (long long)s->done.dropped);
    atomic_store(&p->queue, r.queue);
    atomic_store(&p->mean_return, r.mean_return);
    atomic_store(&p->lag, r.lag);
    atomic_store(&p->steps_per_s, r.steps_per_s);
    atomic_store(&p->seconds, s->done.seconds);
    s->window_ns = now;
    s->waited_ns = 0;
    s->steps = 0;
    return ST_OK;
}

static bool finished(const struct serve *s)
{
    return s->kind->enough(s->self) ||
           (s->cfg->max_seconds > 0 && s->done.seconds >= s->cfg->max_seconds);
}

static enum status close_window(struct serve *s)
{
    const uint64_t every = (uint64_t)s->cfg->checkpoint_every;
    int64_t t = clock_now_ns();
    bool due;

    TRY(s->kind->step(s->self));
    t = clock_now_ns() - t;
    s->done.windows++;
    s->done.env_steps += (uint64_t)s->steps;
    s->done.seconds = s->seconds_before + (double)(clock_now_ns() - s->start_ns) * 1e-9;
    due = finished(s) || (every > 0 && s->done.windows % every == 0);
    // without train-async a stop at any time must find where the episodes were just now
    TRY(publish(s, s->states && (due || !s->cfg->train_async)));
    TRY(report(s, t));
    return due ? s->kind->checkpoint(s->self) : ST_OK;
}

static enum status train(struct serve *s)
{
    TRY(wait_for_envs(s));
    s->first_window = s->done.windows;
    s->start_ns = s->window_ns = clock_now_ns();
    while (!finished(s)) {
        TRY(collect(s));
        TRY(close_window(s));
    }
    return ST_OK;
}

enum status serve_run(struct serve *s)
{
    enum status st = train(s);

    if (st != ST_CLOSED || !atomic_load(s->stop))
        return st;
    if (s->done.windows == s->first_window || !s->kind->weights(s->self))
        return ST_OK;
    if (s->states && s->cfg->train_async)
        TRY(publish(s, true));
    return s->kind->checkpoint(s->self);
}

enum status serve_open(struct serve *s, const struct hub_config *hub)
{
    TRY(file_make_dir(s->cfg->out));
    TRY(metrics_open(&s->metrics, s->cfg->out));
    TRY(hub_create(&s->hub, hub));
    snprintf(s->progress->url, sizeof s->progress->url, "%s", hub_url(s->hub));
    atomic_store(&s->progress->listening, true);
    return ST_OK;
}

void serve_close(struct serve *s)
{
    if (s->hub)
        say_bye(s);
    hub_destroy(s->hub);
    while (s->members) {
        struct member *m = s->members;

        s->members = m->next;
        member_free(m);
    }
    metrics_close(s->metrics);
}
