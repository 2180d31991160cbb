#include "rollout/intake.h"

#include "common/base/mem.h"
#include "common/base/queue.h"

#include <stdio.h>
#include <string.h>

#define EVENTS_MAX        4096
#define WEIGHTS_BYTES_MAX (256u << 20)
#define WATCH_NS          (100 * NS_PER_MS)
#define REDIAL_NS         (500 * NS_PER_MS)
#define STOP_GRACE_NS     (500 * NS_PER_MS)

struct source {
    struct intake *intake;
    struct envclient *client; // the consumer's; replaced under mtx
    struct envclient *read;   // the reader's, ahead of the consumer's; guarded by mtx
    char url[HOSTS_URL_MAX];
    int i, n_env;
    pthread_t thread;
    bool started;
};

struct intake {
    struct intake_config cfg;
    const atomic_bool *stop;
    atomic_bool closing;  // connections are closed: no new ones
    struct queue *events; // struct event
    struct source source[INTAKE_SERVERS_MAX];
    int n_source;
    struct link *learner;
    char learner_url[LINK_URL_MAX];
    pthread_t learner_thread, watch_thread;
    bool learner_started, watch_started;
    pthread_mutex_t mtx;
    pthread_cond_t ending_cond;
    bool ending;         // guarded by mtx
    struct event *spare; // guarded by mtx
};

static struct event *event_new(struct intake *in)
{
    struct event *e;

    pthread_mutex_lock(&in->mtx);
    e = in->spare;
    if (e)
        in->spare = e->next_;
    pthread_mutex_unlock(&in->mtx);
    return e ? e : mem_alloc(1, sizeof *e);
}

void intake_done(struct intake *in, struct event *e)
{
    msg_free(e->m);
    pthread_mutex_lock(&in->mtx);
    e->next_ = in->spare;
    in->spare = e;
    pthread_mutex_unlock(&in->mtx);
}

// A place in the queue for what comes next; the reader waits while there is no memory, because its
// loss must be told.
static struct event *event_await(struct intake *in)
{
    struct event *e;

    while (!(e = event_new(in)))
        clock_sleep_ns(WATCH_NS);
    *e = (struct event){0};
    return e;
}

// An event that the consumer will not see.
static void event_drop(struct intake *in, struct event *e)
{
    envclient_destroy(e->client_);
    intake_done(in, e);
}

// False when nobody reads any more.
static bool post(struct intake *in, struct event *e)
{
    if (queue_push(in->events, e, WAIT_NEVER) == ST_OK)
        return true;
    event_drop(in, e);
    return false;
}

static enum status open_client(struct source *s, const atomic_bool *stop, int64_t wait_ns,
                               struct envclient **out)
{
    const struct intake_config *cfg = &s->intake->cfg;
    struct envclient_config client = {.url = s->url,
                                      .hello = cfg->hello,
                                      .connect_wait_ns = wait_ns,
                                      .stop = stop,
                                      .key_file = cfg->key_file,
                                      .tls_ca = cfg->tls_ca,
                                      .tls_name = cfg->tls_name};

    if (cfg->hello.k_max == 0) {
        client.hello.autoreset = AUTORESET_SAME_STEP;
        client.hello.k_max = 1;
        client.hello.t_max_ns = -1;
    }
    client.hello.n_env = (uint32_t)s->n_env;
    return envclient_open(out, &client);
}

// What close_all closes beside the consumer's connection.
static void reads(struct source *s, struct envclient *client)
{
    struct intake *in = s->intake;

    pthread_mutex_lock(&in->mtx);
    s->read = client;
    if (client && atomic_load(&in->closing))
        envclient_close(client); // it came too late to be closed with the others
    pthread_mutex_unlock(&in->mtx);
}

// Dial until the server is back with as many envs; NULL when the intake is closed. The consumer may
// be at events of long ago, so that several returns are in the queue: each carries its connection.
static struct envclient *await_return(struct source *s)
{
    struct intake *in = s->intake;
    struct envclient *client = NULL;
    struct event *e;

    while (!client && !atomic_load(&in->closing)) {
        if (open_client(s, &in->closing, REDIAL_NS, &client) != ST_OK)
            clock_sleep_ns(WATCH_NS);
    }
    if (!client)
        return NULL;
    reads(s, client);
    e = event_await(in);
    e->kind = EVENT_SOURCE_BACK;
    e->source = s->i;
    e->client_ = client;
    if (queue_push(in->events, e, WAIT_NEVER) == ST_OK)
        return client;
    reads(s, NULL);
    event_drop(in, e);
    return NULL;
}

static void *source_run(void *arg)
{
    struct source *s = arg;
    struct envclient *client = s->client;
    enum status st;

    while (client) {
        struct event *e = event_await(s->intake);

        e->kind = EVENT_BATCH;
        e->source = s->i;
        st = envclient_recv(client, &e->m, &e->head, &e->rows, WAIT_NEVER);
        if (st != ST_OK) {
            e->kind = EVENT_SOURCE_LOST;
            e->m = NULL;
            e->err = *error_last();
            reads(s, NULL); // the consumer may destroy it from here on
        }
        if (!post(s->intake, e))
            return NULL;
        if (st != ST_OK)
            client = s->intake->cfg.rejoin ? await_return(s) : NULL;
    }
    return NULL;
}

static void *learner_run(void *arg)
{
    struct intake *in = arg;
    enum status st;

    for (;;) {
        struct event *e = event_await(in);

        e->kind = EVENT_LEARNER;
        st = link_recv(in->learner, &e->m, WAIT_NEVER);
        if (st != ST_OK) {
            if (st == ST_CLOSED)
                (void)FAIL(ST_CLOSED, "the learner at %s is gone", in->learner_url);
            e->kind = EVENT_LEARNER_LOST;
            e->m = NULL;
            e->err = *error_last();
        }
        if (!post(in, e) || st != ST_OK)
            return NULL;
    }
}

static void close_all(struct intake *in)
{
    int i;

    atomic_store(&in->closing, true);
    pthread_mutex_lock(&in->mtx);
    for (i = 0; i < in->n_source; i++) {
        envclient_close(in->source[i].client);
        if (in->source[i].read)
            envclient_close(in->source[i].read);
    }
    pthread_mutex_unlock(&in->mtx);
    if (in->learner)
        link_close(in->learner);
}

// Cut off sends that do not end by themselves once *stop is set.
static void *watch_run(void *arg)
{
    struct intake *in = arg;
    int64_t close_ns = WAIT_NEVER;

    pthread_mutex_lock(&in->mtx);
    while (!in->ending && clock_now_ns() < close_ns) {
        if (close_ns == WAIT_NEVER && atomic_load(in->stop))
            close_ns = deadline_after(STOP_GRACE_NS);
        (void)cond_wait_until(&in->ending_cond, &in->mtx, deadline_after(WATCH_NS));
    }
    pthread_mutex_unlock(&in->mtx);
    close_all(in);
    return NULL;
}

static enum status dial_source(struct intake *in, const struct intake_config *cfg, const char *url,
                               int n_env)
{
    struct source *s = &in->source[in->n_source];

    s->intake = in;
    s->n_env = n_env;
    snprintf(s->url, sizeof s->url, "%s", url);
    TRY(open_client(s, cfg->stop, cfg->connect_wait_ns, &s->client));
    s->n_env = (int)envclient_welcome(s->client)->n_env; // as many when it comes back
    s->i = in->n_source++;
    return ST_OK;
}

static enum status dial_sources(struct intake *in, const struct intake_config *cfg,
                                const struct hosts *hosts)
{
    int i, n = hosts->n;

    if (cfg->n_env > 0 && cfg->n_env < n)
        return FAIL(ST_INVAL, "%d envs of %d env servers: expected one of each at least",
                    cfg->n_env, n);
    for (i = 0; i < n; i++) // an even share each, whichever answers first
        TRY(dial_source(in, cfg, hosts->url[i], cfg->n_env / n + (i < cfg->n_env % n)));
    return ST_OK;
}

static enum status dial_all(struct intake *in, const struct intake_config *cfg)
{
    struct hosts *hosts = mem_alloc(1, sizeof *hosts);
    enum status st = hosts ? hosts_expand(hosts, cfg->env_urls) : ST_NOMEM;

    if (st == ST_OK)
        st = dial_sources(in, cfg, hosts);
    mem_free(hosts);
    if (st != ST_OK || !cfg->learner_url)
        return st;
    snprintf(in->learner_url, sizeof in->learner_url, "%s", cfg->learner_url);
    return envclient_dial(&in->learner, cfg->learner_url, WEIGHTS_BYTES_MAX, cfg->connect_wait_ns,
                          cfg->stop);
}

enum status intake_create(struct intake **out, const struct intake_config *cfg)
{
    struct intake *in = mem_alloc(1, sizeof *in);
    enum status st;

    if (!in)
        return ST_NOMEM;
    in->cfg = *cfg;
    in->stop = cfg->stop;
    pthread_mutex_init(&in->mtx, NULL);
    cond_init(&in->ending_cond);
    st = queue_create(&in->events, EVENTS_MAX);
    if (st == ST_OK)
        st = dial_all(in, cfg);
    if (st != ST_OK) {
        intake_destroy(in);
        return st;
    }
    *out = in;
    return ST_OK;
}

int intake_n_source(const struct intake *in)
{
    return in->n_source;
}

struct envclient *intake_source(struct intake *in, int i)
{
    return in->source[i].client;
}

void intake_adopt(struct intake *in, const struct event *e)
{
    struct source *s = &in->source[e->source];
    struct envclient *old = s->client;

    pthread_mutex_lock(&in->mtx);
    s->client = e->client_;
    pthread_mutex_unlock(&in->mtx);
    envclient_destroy(old);
}

enum status intake_start(struct intake *in)
{
    int i;

    TRY(thread_start(&in->watch_thread, "rollout-watch", watch_run, in));
    in->watch_started = true;
    for (i = 0; i < in->n_source; i++) {
        TRY(thread_start(&in->source[i].thread, "from-envs", source_run, &in->source[i]));
        in->source[i].started = true;
    }
    if (!in->learner)
        return ST_OK;
    TRY(thread_start(&in->learner_thread, "from-learner", learner_run, in));
    in->learner_started = true;
    return ST_OK;
}

enum status intake_next(struct intake *in, struct event **out, int64_t wait_ns)
{
    void *e;

    TRY(queue_pop(in->events, &e, wait_ns));
    *out = e;
    return ST_OK;
}

enum status intake_send(struct intake *in, struct msg *m)
{
    enum status st = link_send(in->learner, m);

    if (st != ST_OK)
        msg_free(m);
    return st == ST_CLOSED ? ST_OK : st;
}

static void join_all(struct intake *in)
{
    int i;

    pthread_mutex_lock(&in->mtx);
    in->ending = true;
    pthread_cond_broadcast(&in->ending_cond);
    pthread_mutex_unlock(&in->mtx);
    if (in->watch_started)
        pthread_join(in->watch_thread, NULL);
    for (i = 0; i < in->n_source; i++)
        if (in->source[i].started)
            pthread_join(in->source[i].thread, NULL);
    if (in->learner_started)
        pthread_join(in->learner_thread, NULL);
}

void intake_destroy(struct intake *in)
{
    struct event *e;
    void *item;
    int i;

    if (!in)
        return;
    if (in->events)
        queue_close(in->events);
    close_all(in);
    join_all(in);
    while (in->events && queue_pop(in->events, &item, 0) == ST_OK)
        event_drop(in, item);
    while ((e = in->spare)) {
        in->spare = e->next_;
        mem_free(e);
    }
    for (i = 0; i < in->n_source; i++)
        envclient_destroy(in->source[i].client);
    link_destroy(in->learner);
    queue_destroy(in->events);
    pthread_cond_destroy(&in->ending_cond);
    pthread_mutex_destroy(&in->mtx);
    mem_free(in);
}
