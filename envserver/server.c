#include "envserver/server.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "envserver/server_priv.h"

#include <stdio.h>
#include <string.h>

#define ACCEPT_WAIT_NS (250 * NS_PER_MS) // how soon ended sessions are joined
#define DRAIN_LOOK_NS  (5 * NS_PER_MS)
#define LEAVE_WAIT_NS  (2 * NS_PER_S) // for a client to close after BYE

static const int64_t rows_bound[] = {1,   2,   4,    8,    16,   32,   64,   128,
                                     256, 512, 1024, 2048, 4096, 8192, 65536};
static const int64_t time_bound[] = {
    10000,     20000,     50000,     100000,     200000,     500000,
    1000000,   2000000,   5000000,   10000000,   20000000,   50000000,
    100000000, 200000000, 500000000, 1000000000, 2000000000, 5000000000,
};

const char *session_end_name(enum session_end end)
{
    static const char *const names[] = {"bye",  "closed",  "protocol", "auth",
                                        "idle", "drained", "failed"};

    return names[end];
}

void server_note_fault(struct server *server, uint64_t session)
{
    struct server_fault *f;

    pthread_mutex_lock(&server->mtx);
    f = &server->fault[server->n_fault++ % SERVER_FAULTS];
    f->wall_s = clock_wall_s();
    f->session = session;
    snprintf(f->text, sizeof f->text, "%.255s", error_last()->text);
    pthread_mutex_unlock(&server->mtx);
}

// The time since the last look. One that comes late counts as if it were in time: while the machine
// stood still nobody could say or do anything.
static int64_t since_look(int64_t *looked_ns)
{
    int64_t now = clock_now_ns(), since = now - *looked_ns;

    *looked_ns = now;
    return since < 2 * ACCEPT_WAIT_NS ? since : 2 * ACCEPT_WAIT_NS;
}

// Drop the clients that have been silent for too long; a reader that cannot get its own message out
// does not come to do it. Called with the lock held.
static void drop_silent(struct server *server)
{
    int64_t since = since_look(&server->looked_ns);
    struct session *s;
    int none = -1;

    for (s = server->sessions; s; s = s->next) {
        int64_t limit = s->port ? s->idle_ns : 3 * HELLO_WAIT_S * NS_PER_S;
        int64_t heard = atomic_load(&s->heard_ns);

        s->silent_ns = heard == s->seen_ns ? s->silent_ns + since : 0;
        s->seen_ns = heard;
        if (limit == 0 || s->silent_ns < limit + ACCEPT_WAIT_NS)
            continue;
        if (atomic_compare_exchange_strong(&s->end, &none, END_IDLE))
            log_warn("server", "client %llu is silent", (unsigned long long)s->id);
        none = -1;
        link_close(s->link);
    }
}

// Join the sessions that have ended (or all, after closing them); called without the lock.
static void reap(struct server *server, bool all)
{
    struct session **at, *s, *gone = NULL;

    pthread_mutex_lock(&server->mtx);
    drop_silent(server);
    for (at = &server->sessions; *at;) {
        s = *at;
        if (all)
            link_close(s->link);
        if (all || atomic_load(&s->ended)) {
            *at = s->next;
            s->next = gone;
            gone = s;
            server->n_session--;
        } else {
            at = &s->next;
        }
    }
    pthread_mutex_unlock(&server->mtx);
    for (; gone; gone = s) {
        s = gone->next;
        session_free(gone);
    }
}

// Takes the link.
static enum status take_client(struct server *server, struct link *link)
{
    if (server_clients(server) < SERVER_SESSIONS_MAX)
        return session_start(server, link);
    link_close(link);
    link_destroy(link);
    return FAIL(ST_IO, "%d clients are connected already", SERVER_SESSIONS_MAX);
}

static void *accept_run(void *arg)
{
    struct server *server = arg;
    struct link *link;
    enum status st;

    while ((st = listener_accept(server->listener, &link, ACCEPT_WAIT_NS)) != ST_CLOSED) {
        if (st == ST_OK)
            st = take_client(server, link);
        if (st != ST_OK && st != ST_TIMEOUT) {
            log_error("server", "cannot take a client: %s", error_last()->text);
            clock_sleep_ns(ACCEPT_WAIT_NS); // no descriptors, for example: do not spin
        }
        reap(server, false);
    }
    return NULL;
}

static enum status check_config(const struct server_config *cfg)
{
    struct batcher b;

    TRY(batcher_init(&b, cfg->b_max, cfg->t_max_ns));
    if (cfg->b_min)
        TRY(batcher_set_min(&b, cfg->b_min));
    if (cfg->idle_ns < 0)
        return FAIL(ST_INVAL, "an idle time of %lld ns is impossible", (long long)cfg->idle_ns);
    if (!cfg->key && !cfg->insecure && !link_is_local(cfg->listen))
        return FAIL(ST_INVAL,
                    "%s can be reached from other machines and anybody could use it: give a key "
                    "(--key-file), or say --insecure in a network that you trust",
                    cfg->listen);
    return ST_OK;
}

static enum status start(struct server *server)
{
    const struct server_config *cfg = &server->cfg;

    TRY(listener_open_tls(&server->listener, cfg->listen, REQUEST_BYTES_MAX, &cfg->tls));
    TRY(thread_start(&server->acceptor, "server", accept_run, server));
    server->accepting = true;
    return ST_OK;
}

enum status server_create(struct server **out, const struct server_config *cfg)
{
    struct server *server;
    enum status st;

    TRY(check_config(cfg));
    server = mem_alloc(1, sizeof *server);
    if (!server)
        return ST_NOMEM;
    server->cfg = *cfg;
    if (cfg->key) {
        server->key = *cfg->key;
        server->cfg.key = &server->key;
    }
    pthread_mutex_init(&server->mtx, NULL);
    histogram_init(&server->batch_rows, rows_bound, sizeof rows_bound / sizeof rows_bound[0]);
    histogram_init(&server->batch_wait_ns, time_bound, sizeof time_bound / sizeof time_bound[0]);
    histogram_init(&server->request_ns, time_bound, sizeof time_bound / sizeof time_bound[0]);
    st = start(server);
    if (st != ST_OK) {
        server_destroy(server);
        return st;
    }
    *out = server;
    return ST_OK;
}

const char *server_url(const struct server *s)
{
    return listener_url(s->listener);
}

int server_clients(struct server *s)
{
    int n;

    pthread_mutex_lock(&s->mtx);
    n = s->n_session;
    pthread_mutex_unlock(&s->mtx);
    return n;
}

bool server_draining(const struct server *s)
{
    return atomic_load(&s->draining);
}

// ------------------------------------------------------------------ counters

// Called with the lock held.
static void add_client(struct server_stats *out, struct session *s, int64_t now)
{
    struct server_client *c = &out->client[out->n_client];
    int n_env = 0, in_flight;

    if (!s->port)
        return; // it has not said HELLO yet, or is leaving
    (void)port_envs(s->port, &n_env);
    in_flight = port_in_flight(s->port);
    out->leased += n_env;
    out->in_flight += in_flight;
    if (out->n_client == SERVER_CLIENTS)
        return;
    out->n_client++;
    *c = (struct server_client){.session = s->id,
                                .n_env = n_env,
                                .in_flight = in_flight,
                                .requests = atomic_load(&s->requests),
                                .rows = atomic_load(&s->rows),
                                .age_ns = now - atomic_load(&s->begun_ns),
                                .heard_ns = now - atomic_load(&s->heard_ns)};
    memcpy(c->name, s->name, sizeof c->name);
}

static void read_lists(struct server *s, struct server_stats *out)
{
    int64_t now = clock_now_ns();
    struct session *at;
    int i;

    pthread_mutex_lock(&s->mtx);
    out->clients = s->n_session;
    for (at = s->sessions; at; at = at->next)
        add_client(out, at, now);
    out->n_fault = s->n_fault < SERVER_FAULTS ? s->n_fault : SERVER_FAULTS;
    for (i = 0; i < out->n_fault; i++)
        out->fault[i] = s->fault[(s->n_fault - 1 - i) % SERVER_FAULTS];
    pthread_mutex_unlock(&s->mtx);
}

void server_stats_get(struct server *s, struct server_stats *out)
{
    int i;

    memset(out, 0, sizeof *out);
    read_lists(s, out);
    out->sessions = atomic_load(&s->sessions_total);
    for (i = 0; i < SESSION_ENDS; i++)
        out->ended[i] = atomic_load(&s->ended[i]);
    out->resets = atomic_load(&s->resets);
    out->steps = atomic_load(&s->steps);
    out->refused = atomic_load(&s->refused);
    out->request_rows = atomic_load(&s->request_rows);
    out->bytes_in = atomic_load(&s->bytes_in);
    out->bytes_out = atomic_load(&s->bytes_out);
    out->n_env = pool_spec(s->cfg.pool)->n_env;
    out->draining = atomic_load(&s->draining);
    histogram_read(&s->batch_rows, &out->batch_rows);
    histogram_read(&s->batch_wait_ns, &out->batch_wait_ns);
    histogram_read(&s->request_ns, &out->request_ns);
}

// ------------------------------------------------------------------ the end

// Requests in flight, and clients that have not gone.
static void look(struct server *server, int *in_flight, int *clients)
{
    struct session *s;

    *in_flight = *clients = 0;
    pthread_mutex_lock(&server->mtx);
    for (s = server->sessions; s; s = s->next) {
        if (atomic_load(&s->ended))
            continue;
        ++*clients;
        if (s->port && !atomic_load(&s->said_bye))
            ++*in_flight; // or on its way out
        if (!s->port)
            link_close(s->link); // it waits to say HELLO
    }
    pthread_mutex_unlock(&server->mtx);
}

bool server_drain(struct server *server, int64_t wait_ns)
{
    int64_t looked = clock_now_ns(), waited = 0, leaving = 0; // leaving: since nothing is in flight
    int in_flight, clients;
    struct session *s;

    atomic_store(&server->draining, true);
    listener_close(server->listener);
    if (server->accepting)
        pthread_join(server->acceptor, NULL);
    server->accepting = false;
    pthread_mutex_lock(&server->mtx);
    for (s = server->sessions; s; s = s->next)
        session_drain(s);
    pthread_mutex_unlock(&server->mtx);
    for (;;) {
        int64_t since = since_look(&looked);

        look(server, &in_flight, &clients);
        waited += since;
        leaving = in_flight == 0 ? leaving + since : 0;
        if (clients == 0 || waited >= wait_ns || leaving >= LEAVE_WAIT_NS)
            return in_flight == 0;
        clock_sleep_ns(DRAIN_LOOK_NS);
    }
}

void server_destroy(struct server *s)
{
    if (!s)
        return;
    if (s->listener)
        listener_close(s->listener);
    if (s->accepting)
        pthread_join(s->acceptor, NULL);
    reap(s, true);
    listener_destroy(s->listener);
    auth_key_clear(&s->key);
    pthread_mutex_destroy(&s->mtx);
    mem_free(s);
}
