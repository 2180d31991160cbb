#include "learner/hub.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/queue.h"
#include "common/wire/envproto.h"
#include "nn/model.h"

#include <stdatomic.h>
#include <string.h>

#define ITEMS_MAX      1024
#define OUTBOX_MAX     8
#define WORKERS_MAX    1024
#define JOIN_WAIT_S    10
#define ACCEPT_WAIT_NS (250 * NS_PER_MS)
#define FAREWELL_NS    NS_PER_S

struct worker {
    struct hub *hub;
    struct link *link;
    struct queue *outbox; // struct msg
    struct join join;
    int number;
    pthread_t reader, sender;
    bool sending;
    bool joined;       // guarded by hub->mtx
    bool sent;         // guarded by hub->mtx: the sender is about to return
    atomic_bool ended; // the reader is about to return
    struct worker *next;
};

struct hub {
    struct hub_config cfg; // n_obs and n_act guarded by mtx
    struct join first;     // guarded by mtx; whose sizes those are
    struct listener *listener;
    struct queue *items;
    pthread_t acceptor;
    bool accepting;
    pthread_mutex_t mtx;
    pthread_cond_t sent_cond;
    struct worker *workers; // guarded by mtx
    int n_worker;           // guarded by mtx
    int next_number;        // the acceptor's
};

void hub_item_free(struct hub_item *item)
{
    if (!item)
        return;
    msg_free(item->m);
    mem_free(item);
}

// Takes from->m.
static enum status post(struct hub *hub, const struct hub_item *from)
{
    struct hub_item *item = mem_alloc(1, sizeof *item);
    enum status st;

    if (!item) {
        msg_free(from->m);
        return ST_NOMEM;
    }
    *item = *from;
    st = queue_push(hub->items, item, WAIT_NEVER);
    if (st != ST_OK)
        hub_item_free(item);
    return st;
}

static void *sender_run(void *arg)
{
    struct worker *w = arg;
    void *m;

    while (queue_pop(w->outbox, &m, WAIT_NEVER) == ST_OK) {
        if (link_send(w->link, m) != ST_OK) {
            msg_free(m);
            break; // the reader sees the same
        }
    }
    pthread_mutex_lock(&w->hub->mtx);
    w->sent = true;
    pthread_cond_broadcast(&w->hub->sent_cond);
    pthread_mutex_unlock(&w->hub->mtx);
    return NULL;
}

static bool overlap(const struct join *a, const struct join *b)
{
    return a->env_first < b->env_first + b->n_env && b->env_first < a->env_first + a->n_env;
}

// Can the learner's convolutions see the worker's picture?
static enum status check_picture(const struct hub_config *cfg, const struct join *j)
{
    struct model_vision v = {.width = (int)j->width,
                             .height = (int)j->height,
                             .stack = cfg->group_size > 0 ? (int)j->n_view : cfg->stack};

    return j->picture[0] ? model_conv_parse(&v, cfg->conv) : ST_OK;
}

// Does a worker send what the learner learns from?
static enum status check_kind(const struct hub *hub, const struct join *j)
{
    const uint32_t size = hub->cfg.group_size;

    if (size == 0)
        return j->chunk == 0
                   ? ST_OK
                   : FAIL(ST_INVAL,
                          "the worker plays whole episodes (--action-chunk), "
                          "the learner learns from steps (--algo=ppo; for chunks: chunk-ppo)");
    if (j->chunk == 0)
        return FAIL(ST_INVAL, "the worker sends steps, the learner learns from groups of whole "
                              "episodes: expected --action-chunk");
    if (hub->cfg.n_obs && (j->chunk != hub->first.chunk || j->n_view != hub->first.n_view))
        return FAIL(ST_INVAL,
                    "the worker's chunks are %u actions with %u pictures, expected %u, %u",
                    j->chunk, j->n_view, hub->first.chunk, hub->first.n_view);
    if (j->n_env % size != 0 || j->env_first % size != 0)
        return FAIL(ST_INVAL,
                    "the worker has envs %u to %u, expected a multiple of the group size %u",
                    j->env_first, j->env_first + j->n_env - 1, size);
    return ST_OK;
}

// Does a worker fit? Called with hub->mtx held.
static enum status check_join(struct hub *hub, const struct join *j)
{
    const struct hub_config *cfg = &hub->cfg;
    const struct worker *w;

    if (cfg->task[0] && strcmp(cfg->task, j->task) != 0)
        return FAIL(ST_INVAL, "the worker's task is '%s', the learner's is '%s'", j->task,
                    cfg->task);
    TRY(check_kind(hub, j));
    if (cfg->group_size == 0 && j->horizon != cfg->horizon)
        return FAIL(ST_INVAL, "the worker's horizon is %u, the learner's is %u", j->horizon,
                    cfg->horizon);
    if (cfg->n_obs && (j->n_obs != cfg->n_obs || j->n_act != cfg->n_act))
        return FAIL(ST_INVAL,
                    "the worker's task has %u observations and %u actions, the learner's "
                    "policy takes %u and %u",
                    j->n_obs, j->n_act, cfg->n_obs, cfg->n_act);
    if (cfg->n_obs && (j->width != hub->first.width || j->height != hub->first.height ||
                       strcmp(j->picture, hub->first.picture) != 0))
        return FAIL(ST_INVAL,
                    "the worker's picture is '%s' of %u by %u, that of the first worker was '%s' "
                    "of %u by %u",
                    j->picture, j->width, j->height, hub->first.picture, hub->first.width,
                    hub->first.height);
    TRY(check_picture(cfg, j));
    if (j->env_first > cfg->n_env || j->n_env > cfg->n_env - j->env_first)
        return FAIL(ST_INVAL, "the worker has envs %u to %u, the learner expects %u in all",
                    j->env_first, j->env_first + j->n_env - 1, cfg->n_env);
    for (w = hub->workers; w; w = w->next)
        if (w->joined && overlap(j, &w->join))
            return FAIL(ST_INVAL, "envs %u to %u belong to another worker (--env-offset)",
                        j->env_first, j->env_first + j->n_env - 1);
    return ST_OK;
}

// The worker sends the state and the pictures that the model sees.
static enum status see_as_model(const struct vla_about *vla, struct join *j)
{
    if (j->chunk != (uint32_t)vla->model.chunk || j->n_act != (uint32_t)vla->model.action)
        return FAIL(ST_INVAL,
                    "the worker's decisions are %u actions of %u numbers, the policy's "
                    "%lld of %lld",
                    j->chunk, j->n_act, (long long)vla->model.chunk, (long long)vla->model.action);
    j->n_obs = VLA_STATE;
    j->n_view = (uint32_t)vla->input.n_camera;
    j->width = j->height = (uint32_t)vla->model.image;
    j->picture[0] = '\0'; // whatever their names
    return ST_OK;
}

static enum status read_join(struct worker *w)
{
    struct hub *hub = w->hub;
    struct msg *m;
    enum status st = link_recv_soon(w->link, &m, JOIN_WAIT_S);

    if (st == ST_TIMEOUT)
        return FAIL(ST_PROTO, "a worker sent no JOIN in %d s", JOIN_WAIT_S);
    TRY(st);
    st = join_read(m, &w->join);
    msg_free(m);
    TRY(st);
    if (hub->cfg.vla)
        TRY(see_as_model(hub->cfg.vla, &w->join));
    pthread_mutex_lock(&hub->mtx);
    st = check_join(hub, &w->join);
    if (st == ST_OK) {
        hub->first = w->join;
        hub->cfg.n_obs = w->join.n_obs;
        hub->cfg.n_act = w->join.n_act;
        w->joined = true;
    }
    pthread_mutex_unlock(&hub->mtx);
    return st;
}

static enum status check_env(const struct worker *w, const struct chunk_head *h)
{
    if (h->env < w->join.env_first || h->env - w->join.env_first >= w->join.n_env)
        return FAIL(ST_PROTO, "CHUNK: env %u is not the worker's", h->env);
    if (h->n_step != w->join.horizon)
        return FAIL(ST_PROTO, "CHUNK: %u steps, expected %u", h->n_step, w->join.horizon);
    return ST_OK;
}

// LOST or BACK.
static enum status read_envs(const struct worker *w, const struct msg *m, struct hub_item *item)
{
    uint32_t i;

    if (item->kind == HUB_LOST)
        TRY(lost_read(m, &item->envs, &item->n_envs));
    else
        TRY(back_read(m, &item->chunks, &item->envs, &item->n_envs));
    for (i = 0; i < item->n_envs; i++)
        if (item->envs[i] - w->join.env_first >= w->join.n_env)
            return FAIL(ST_PROTO, "%s: env %u is not the worker's",
                        item->kind == HUB_LOST ? "LOST" : "BACK", item->envs[i]);
    return ST_OK;
}

static enum status read_item(struct worker *w, struct msg *m)
{
    struct hub_item item = {.worker = w->number, .m = m};
    enum status st = ST_OK;

    if (m->type == MSG_EPISODE && w->hub->cfg.group_size > 0) {
        item.kind = HUB_EPISODE;
        st = episode_read(m, &w->join, &item.episode);
        if (st == ST_OK && item.episode.head.member >= w->hub->cfg.group_size)
            st = FAIL(ST_PROTO, "EPISODE: member %u of a group of %u", item.episode.head.member,
                      w->hub->cfg.group_size);
    } else if (m->type == MSG_CHUNK && w->hub->cfg.group_size == 0) {
        item.kind = HUB_CHUNK;
        st = chunk_read(m, &w->join, w->join.picture[0] ? (uint32_t)w->hub->cfg.stack - 1 : 0,
                        &item.chunk);
        if (st == ST_OK)
            st = check_env(w, &item.chunk.head);
    } else if (m->type == MSG_STATE) {
        item.kind = HUB_STATE;
    } else if (m->type == MSG_LOST || m->type == MSG_BACK) {
        item.kind = m->type == MSG_LOST ? HUB_LOST : HUB_BACK;
        st = read_envs(w, m, &item);
    } else if (m->type == MSG_BYE) {
        st = ST_CLOSED;
    } else {
        st = FAIL(ST_PROTO, "message type %u is not for a learner", m->type);
    }
    if (st != ST_OK) {
        msg_free(m);
        return st;
    }
    return post(w->hub, &item);
}

static enum status serve(struct worker *w)
{
    struct msg *m;

    TRY(read_join(w));
    TRY(post(w->hub, &(struct hub_item){.kind = HUB_JOINED, .worker = w->number, .join = w->join}));
    for (;;) {
        TRY(link_recv(w->link, &m, WAIT_NEVER));
        TRY(read_item(w, m));
    }
}

static void refuse(struct worker *w)
{
    struct proto_error e = {.code = error_last()->code, .env = UINT32_MAX};
    struct msg *m;

    memcpy(e.text, error_last()->text, sizeof e.text);
    if (proto_error_write(&m, &e) == ST_OK)
        hub_send(w->hub, w->number, m);
}

static void await_sender(struct worker *w)
{
    int64_t until = deadline_after(FAREWELL_NS);

    pthread_mutex_lock(&w->hub->mtx);
    while (!w->sent && cond_wait_until(&w->hub->sent_cond, &w->hub->mtx, until))
        ;
    pthread_mutex_unlock(&w->hub->mtx);
}

static void *reader_run(void *arg)
{
    struct worker *w = arg;
    enum status st = serve(w);
    bool joined;

    if (st != ST_CLOSED) {
        log_warn("learner", "a worker is dropped: %s", error_last()->text);
        refuse(w);
    }
    pthread_mutex_lock(&w->hub->mtx);
    joined = w->joined;
    w->joined = false;
    pthread_mutex_unlock(&w->hub->mtx);
    queue_close(w->outbox); // the sender drains it, if the peer reads
    if (st != ST_CLOSED)
        await_sender(w);
    link_close(w->link);
    if (joined)
        (void)post(w->hub, &(struct hub_item){.kind = HUB_LEFT, .worker = w->number});
    atomic_store(&w->ended, true);
    return NULL;
}

static void worker_free(struct worker *w)
{
    void *m;

    if (w->sending)
        pthread_join(w->sender, NULL);
    if (w->link)
        link_close(w->link);
    while (w->outbox && queue_pop(w->outbox, &m, 0) == ST_OK)
        msg_free(m);
    queue_destroy(w->outbox);
    link_destroy(w->link);
    mem_free(w);
}

// Takes the link.
static enum status worker_start(struct hub *hub, struct link *link)
{
    struct worker *w = mem_alloc(1, sizeof *w);
    enum status st = w ? ST_OK : ST_NOMEM;

    if (!w) {
        link_close(link);
        link_destroy(link);
        return st;
    }
    w->hub = hub;
    w->link = link;
    w->number = hub->next_number++;
    st = queue_create(&w->outbox, OUTBOX_MAX);
    if (st == ST_OK) {
        st = thread_start(&w->sender, "learner-out", sender_run, w);
        w->sending = st == ST_OK;
    }
    if (st == ST_OK) {
        pthread_mutex_lock(&hub->mtx); // before the reader runs, so that hub_send finds it
        w->next = hub->workers;
        hub->workers = w;
        hub->n_worker++;
        pthread_mutex_unlock(&hub->mtx);
        st = thread_start(&w->reader, "learner-in", reader_run, w);
        if (st == ST_OK)
            return ST_OK;
        pthread_mutex_lock(&hub->mtx);
        hub->workers = w->next;
        hub->n_worker--;
        pthread_mutex_unlock(&hub->mtx);
    }
    if (w->outbox)
        queue_close(w->outbox);
    worker_free(w);
    return st;
}

// Join and free the workers whose reader has ended (or all).
static void reap(struct hub *hub, bool all)
{
    struct worker **at, *w, *gone = NULL;

    pthread_mutex_lock(&hub->mtx);
    for (at = &hub->workers; *at;) {
        w = *at;
        if (all || atomic_load(&w->ended)) {
            *at = w->next;
            w->next = gone;
            gone = w;
            hub->n_worker--;
        } else {
            at = &w->next;
        }
    }
    pthread_mutex_unlock(&hub->mtx);
    for (; gone; gone = w) {
        w = gone->next;
        if (all)
            link_close(gone->link);
        pthread_join(gone->reader, NULL);
        worker_free(gone);
    }
}

static void *accept_run(void *arg)
{
    struct hub *hub = arg;
    struct link *link;
    enum status st;

    while ((st = listener_accept(hub->listener, &link, ACCEPT_WAIT_NS)) != ST_CLOSED) {
        reap(hub, false);
        if (st == ST_OK && hub->n_worker >= WORKERS_MAX) { // only this thread adds workers
            link_close(link);
            link_destroy(link);
            st = FAIL(ST_IO, "%d workers are connected already", WORKERS_MAX);
        } else if (st == ST_OK) {
            st = worker_start(hub, link);
        }
        if (st != ST_OK && st != ST_TIMEOUT) {
            log_error("learner", "cannot take a worker: %s", error_last()->text);
            clock_sleep_ns(ACCEPT_WAIT_NS);
        }
    }
    return NULL;
}

enum status hub_create(struct hub **out, const struct hub_config *cfg)
{
    struct hub *hub = mem_alloc(1, sizeof *hub);
    enum status st;

    if (!hub)
        return ST_NOMEM;
    hub->cfg = *cfg;
    pthread_mutex_init(&hub->mtx, NULL);
    cond_init(&hub->sent_cond);
    st = queue_create(&hub->items, ITEMS_MAX);
    if (st == ST_OK)
        st = listener_open(&hub->listener, cfg->listen, CHUNK_BYTES_MAX);
    if (st == ST_OK) {
        st = thread_start(&hub->acceptor, "learner", accept_run, hub);
        hub->accepting = st == ST_OK;
    }
    if (st != ST_OK) {
        hub_destroy(hub);
        return st;
    }
    *out = hub;
    return ST_OK;
}

const char *hub_url(const struct hub *hub)
{
    return listener_url(hub->listener);
}

enum status hub_next(struct hub *hub, struct hub_item **out, int64_t wait_ns)
{
    void *item;

    TRY(queue_pop(hub->items, &item, wait_ns));
    *out = item;
    return ST_OK;
}

int hub_length(struct hub *hub)
{
    return queue_length(hub->items);
}

void hub_send(struct hub *hub, int worker, struct msg *m)
{
    enum status st = ST_CLOSED;
    struct worker *w;
    void *old;

    pthread_mutex_lock(&hub->mtx);
    for (w = hub->workers; w && w->number != worker; w = w->next)
        ;
    while (w && (st = queue_push(w->outbox, m, 0)) == ST_AGAIN)
        if (queue_pop(w->outbox, &old, 0) == ST_OK)
            msg_free(old);
    pthread_mutex_unlock(&hub->mtx);
    if (st != ST_OK)
        msg_free(m);
}

// Let the senders finish what is in the outboxes: a worker that has read its BYE goes away by
// itself.
static void farewell(struct hub *hub)
{
    int64_t until = deadline_after(FAREWELL_NS);
    struct worker *w;
    int left = 1;

    while (left > 0 && clock_now_ns() < until) {
        left = 0;
        pthread_mutex_lock(&hub->mtx);
        for (w = hub->workers; w; w = w->next)
            left += !atomic_load(&w->ended);
        pthread_mutex_unlock(&hub->mtx);
        if (left > 0)
            clock_sleep_ns(2 * NS_PER_MS);
    }
}

void hub_destroy(struct hub *hub)
{
    void *item;

    if (!hub)
        return;
    if (hub->listener)
        listener_close(hub->listener);
    if (hub->accepting)
        pthread_join(hub->acceptor, NULL);
    farewell(hub);
    if (hub->items)
        queue_close(hub->items);
    reap(hub, true);
    while (hub->items && queue_pop(hub->items, &item, 0) == ST_OK)
        hub_item_free(item);
    listener_destroy(hub->listener);
    queue_destroy(hub->items);
    pthread_cond_destroy(&hub->sent_cond);
    pthread_mutex_destroy(&hub->mtx);
    mem_free(hub);
}
