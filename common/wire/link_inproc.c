// Inside one process a connection is two bounded queues of messages; nothing is copied. Names,
// listeners and connections that wait to be accepted are guarded by one lock: dialing is rare.
#include "common/base/mem.h"
#include "common/base/queue.h"
#include "common/wire/link_priv.h"

#include <stdio.h>
#include <string.h>

#define QUEUE_MESSAGES 64

// What the two sides share.
struct channel {
    struct queue *to[2]; // messages to side 0 (dialed) and side 1 (accepted)
    atomic_int refs;
};

struct inproc_link {
    struct link base;
    struct channel *channel;
    int side;
    size_t max_bytes;
    struct inproc_link *next; // of the connections to be accepted; guarded by mtx
};

struct inproc_listener {
    struct listener base;
    size_t max_bytes;
    struct inproc_link *first, *last; // connections to be accepted; guarded by mtx
    bool listed;                      // guarded by mtx
    struct inproc_listener *next;     // guarded by mtx
};

static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; // a listener or a connection came or went
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct inproc_listener *listeners; // guarded by mtx

static void init_once(void)
{
    cond_init(&changed);
}

static void channel_drop(struct channel *c)
{
    void *item;
    int i;

    if (atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    for (i = 0; i < 2; i++) {
        while (c->to[i] && queue_pop(c->to[i], &item, 0) == ST_OK)
            msg_free(item);
        queue_destroy(c->to[i]);
    }
    mem_free(c);
}

static enum status closed(void)
{
    return FAIL(ST_CLOSED, "the peer has closed the connection");
}

static enum status inproc_send(struct link *k, struct msg *m)
{
    struct inproc_link *il = (struct inproc_link *)k;
    enum status st = queue_push(il->channel->to[!il->side], m, WAIT_NEVER);

    return st == ST_CLOSED ? closed() : st;
}

static enum status inproc_recv(struct link *k, struct msg **out, int64_t wait_ns)
{
    struct inproc_link *il = (struct inproc_link *)k;
    void *item;
    enum status st = queue_pop(il->channel->to[il->side], &item, wait_ns);
    struct msg *m;

    if (st == ST_CLOSED)
        return closed();
    if (st != ST_OK)
        return st;
    m = item;
    if (m->len > il->max_bytes) {
        st = FAIL(ST_PROTO, "a message of %zu bytes, at most %zu are accepted", m->len,
                  il->max_bytes);
        msg_free(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

static void inproc_set_max(struct link *k, size_t max_bytes)
{
    ((struct inproc_link *)k)->max_bytes = max_bytes;
}

static void inproc_close(struct link *k)
{
    struct inproc_link *il = (struct inproc_link *)k;

    queue_close(il->channel->to[0]);
    queue_close(il->channel->to[1]);
}

static void inproc_destroy(struct link *k)
{
    struct inproc_link *il = (struct inproc_link *)k;

    channel_drop(il->channel);
    mem_free(il);
}

static const struct link_ops link_ops = {
    .send = inproc_send,
    .recv = inproc_recv,
    .set_max = inproc_set_max,
    .close = inproc_close,
    .destroy = inproc_destroy,
};

static struct inproc_link *link_new(struct channel *c, int side, size_t max_bytes)
{
    struct inproc_link *il = mem_alloc(1, sizeof *il);

    if (!il)
        return NULL;
    atomic_fetch_add(&c->refs, 1);
    il->base.ops = &link_ops;
    il->channel = c;
    il->side = side;
    il->max_bytes = max_bytes;
    return il;
}

// Both ends of a new connection.
static enum status pair_create(struct inproc_link *ends[2], size_t max_bytes)
{
    struct channel *c = mem_alloc(1, sizeof *c);
    enum status st;
    int i;

    if (!c)
        return ST_NOMEM;
    atomic_store(&c->refs, 1); // this function's, until it returns
    ends[0] = ends[1] = NULL;
    st = queue_create(&c->to[0], QUEUE_MESSAGES);
    if (st == ST_OK)
        st = queue_create(&c->to[1], QUEUE_MESSAGES);
    for (i = 0; i < 2 && st == ST_OK; i++) {
        ends[i] = link_new(c, i, max_bytes);
        st = ends[i] ? ST_OK : ST_NOMEM;
    }
    if (st != ST_OK && ends[0])
        inproc_destroy(&ends[0]->base);
    channel_drop(c);
    return st;
}

static struct inproc_listener *find(const char *url)
{
    struct inproc_listener *l = listeners;

    while (l && strcmp(l->base.url, url) != 0)
        l = l->next;
    return l;
}

// The listener of an address, waiting for it; called and returns with the lock held.
static struct inproc_listener *await(const char *url, int64_t wait_ns)
{
    int64_t deadline = deadline_after(wait_ns);
    struct inproc_listener *l;

    while (!(l = find(url)) && wait_ns > 0)
        if (!cond_wait_until(&changed, &mtx, deadline))
            return find(url);
    return l;
}

enum status inproc_dial(struct link **out, const char *url, size_t max_bytes, int64_t wait_ns)
{
    struct inproc_link *ends[2];
    struct inproc_listener *l;

    pthread_once(&once, init_once);
    TRY(pair_create(ends, max_bytes));
    pthread_mutex_lock(&mtx);
    l = await(url, wait_ns);
    if (l) {
        ends[1]->max_bytes = l->max_bytes;
        *(l->first ? &l->last->next : &l->first) = ends[1];
        l->last = ends[1];
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mtx);
    if (!l) {
        inproc_destroy(&ends[0]->base);
        inproc_destroy(&ends[1]->base);
        return FAIL(ST_IO, "cannot connect to %s: nobody listens there", url);
    }
    *out = &ends[0]->base;
    return ST_OK;
}

static enum status inproc_accept(struct listener *base, struct link **out, int64_t wait_ns)
{
    struct inproc_listener *l = (struct inproc_listener *)base;
    int64_t deadline = deadline_after(wait_ns);
    enum status st = ST_OK;
    struct inproc_link *il;

    pthread_mutex_lock(&mtx);
    while (!l->first && l->listed && st == ST_OK)
        if (wait_ns == 0 || !cond_wait_until(&changed, &mtx, deadline))
            st = wait_over(wait_ns);
    il = l->first;
    if (il) {
        l->first = il->next;
        st = ST_OK;
    } else if (!l->listed) {
        st = ST_CLOSED;
    }
    pthread_mutex_unlock(&mtx);
    if (st == ST_CLOSED)
        return FAIL(ST_CLOSED, "%s does not listen any more", l->base.url);
    if (st == ST_OK)
        *out = &il->base;
    return st;
}

static void inproc_unlisten(struct listener *base)
{
    struct inproc_listener *l = (struct inproc_listener *)base, **p;
    struct inproc_link *il, *next;

    pthread_mutex_lock(&mtx);
    for (p = &listeners; *p; p = &(*p)->next) {
        if (*p == l) {
            *p = l->next;
            break;
        }
    }
    l->listed = false;
    il = l->first;
    l->first = NULL;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mtx);
    for (; il; il = next) { // nobody will accept these
        next = il->next;
        inproc_close(&il->base);
        inproc_destroy(&il->base);
    }
}

static void inproc_listener_destroy(struct listener *base)
{
    mem_free(base);
}

static const struct listener_ops listener_ops = {
    .accept = inproc_accept,
    .close = inproc_unlisten,
    .destroy = inproc_listener_destroy,
};

enum status inproc_listen(struct listener **out, const char *url, size_t max_bytes)
{
    struct inproc_listener *l = mem_alloc(1, sizeof *l);
    bool taken;

    if (!l)
        return ST_NOMEM;
    pthread_once(&once, init_once);
    l->base.ops = &listener_ops;
    l->max_bytes = max_bytes;
    snprintf(l->base.url, sizeof l->base.url, "%s", url);
    pthread_mutex_lock(&mtx);
    taken = find(url) != NULL;
    if (!taken) {
        l->listed = true;
        l->next = listeners;
        listeners = l;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mtx);
    if (taken) {
        mem_free(l);
        return FAIL(ST_IO, "cannot listen on %s: the address is in use", url);
    }
    *out = &l->base;
    return ST_OK;
}
