#include "envserver/server.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/link.h"

#include <stdatomic.h>
#include <string.h>

#define SESSIONS_MAX      1024
#define REQUEST_BYTES_MAX (64u << 20)
#define HELLO_WAIT_NS     (10 * NS_PER_S)
#define ACCEPT_WAIT_NS    (250 * NS_PER_MS) // how soon ended sessions are joined

// One client: the reader thread owns the session, the writer sends batches.
struct session {
    struct server *server;
    struct link *link;
    struct port *port;
    pthread_t reader, writer;
    bool writing;             // the writer was started
    pthread_mutex_t send_mtx; // one message at a time on the link
    uint64_t seq;             // requests so far
    atomic_bool ended;        // the reader is about to return
    struct session *next;     // guarded by server->mtx
};

struct server {
    struct server_config cfg;
    struct listener *listener;
    pthread_t acceptor;
    bool accepting;
    pthread_mutex_t mtx;
    struct session *sessions; // guarded by mtx
    int n_session;            // guarded by mtx
};

// Takes `m`, whatever happens.
static enum status session_send(struct session *s, struct msg *m)
{
    enum status st;

    pthread_mutex_lock(&s->send_mtx);
    st = link_send(s->link, m);
    pthread_mutex_unlock(&s->send_mtx);
    if (st != ST_OK)
        msg_free(m);
    return st;
}

// Tell the client what the calling thread's last error is.
static enum status send_error(struct session *s, uint32_t env, uint64_t seq)
{
    struct proto_error e = {.code = error_last()->code, .env = env, .seq = seq};
    struct msg *m;

    memcpy(e.text, error_last()->text, sizeof e.text);
    TRY(proto_error_write(&m, &e));
    return session_send(s, m);
}

static void *writer_run(void *arg)
{
    struct session *s = arg;
    struct msg *batch;
    enum status st;

    while (port_wait_busy(s->port) == ST_OK) {
        st = port_recv(s->port, &batch, WAIT_NEVER);
        if (st == ST_OK && session_send(s, batch) != ST_OK)
            break; // the reader sees the same and cleans up
    }
    return NULL;
}

// The client's wishes within the server's settings.
static enum status port_for(struct session *s, const struct hello *h)
{
    struct port_config cfg = {.autoreset = (enum autoreset)h->autoreset,
                              .n_env = (int)h->n_env,
                              .k_max = (int)h->k_max,
                              .b_max = h->b_max ? (int)h->b_max : s->server->cfg.b_max,
                              .t_max_ns = h->t_max_ns >= 0 ? h->t_max_ns : s->server->cfg.t_max_ns};

    return port_open(&s->port, s->server->cfg.pool, &cfg);
}

static enum status send_welcome(struct session *s)
{
    const struct port_config *cfg = port_settings(s->port);
    struct welcome *w = mem_alloc(1, sizeof *w);
    const uint32_t *ids;
    struct msg *m;
    enum status st;
    int n;

    if (!w)
        return ST_NOMEM;
    ids = port_envs(s->port, &n);
    w->spec = *pool_spec(s->server->cfg.pool);
    w->autoreset = cfg->autoreset;
    w->k_max = (uint32_t)cfg->k_max;
    w->b_max = (uint32_t)cfg->b_max;
    w->t_max_ns = cfg->t_max_ns;
    w->n_env = (uint32_t)n;
    memcpy(w->env, ids, (size_t)n * sizeof ids[0]);
    st = welcome_write(&m, w);
    mem_free(w);
    return st == ST_OK ? session_send(s, m) : st;
}

// Wait for HELLO and answer it. A refusal has been sent when this fails.
static enum status greet(struct session *s)
{
    struct hello h;
    struct msg *m;
    enum status st = link_recv(s->link, &m, HELLO_WAIT_NS);

    if (st == ST_TIMEOUT)
        return FAIL(ST_PROTO, "a client sent no HELLO in 10 s");
    TRY(st);
    st = hello_read(m, &h);
    msg_free(m);
    if (st == ST_OK)
        st = port_for(s, &h);
    if (st == ST_OK)
        st = send_welcome(s);
    else
        (void)send_error(s, UINT32_MAX, 0);
    return st;
}

static enum status check_seq(struct session *s, uint64_t seq)
{
    if (seq != s->seq + 1)
        return FAIL(ST_PROTO, "request %llu came after request %llu", (unsigned long long)seq,
                    (unsigned long long)s->seq);
    s->seq = seq;
    return ST_OK;
}

// Execute one request. A refusal (the request was well-formed, but an env may not do it) is told to
// the client and is no failure; a message that makes no sense is.
static enum status serve(struct session *s, const struct msg *m)
{
    const struct port_config *cfg = port_settings(s->port);
    const struct reset_row *resets;
    const uint8_t *steps;
    uint64_t seq;
    enum status st;
    int n;

    if (m->type == MSG_RESET) {
        TRY(reset_read(m, &seq, &resets, &n));
        TRY(check_seq(s, seq));
        st = port_reset(s->port, resets, n);
    } else if (m->type == MSG_STEP) {
        TRY(step_read(m, cfg->k_max, pool_spec(s->server->cfg.pool)->n_act, &seq, &steps, &n));
        TRY(check_seq(s, seq));
        st = port_step(s->port, steps, n);
    } else if (m->type == MSG_BYE) {
        return ST_CLOSED;
    } else {
        return FAIL(ST_PROTO, "message type %u is not a request", m->type);
    }
    return st == ST_OK ? ST_OK : send_error(s, port_refused_env(s->port), seq);
}

static enum status converse(struct session *s)
{
    struct msg *m;
    enum status st;

    TRY(greet(s));
    TRY(thread_start(&s->writer, "server-out", writer_run, s));
    s->writing = true;
    for (;;) {
        TRY(link_recv(s->link, &m, WAIT_NEVER));
        st = serve(s, m);
        msg_free(m);
        if (st == ST_PROTO || st == ST_INVAL) {
            (void)error_prefix("the connection is closed");
            (void)send_error(s, UINT32_MAX, s->seq);
        }
        TRY(st);
    }
}

static void *reader_run(void *arg)
{
    struct session *s = arg;
    enum status st = converse(s);

    if (st != ST_CLOSED)
        log_warn("server", "a client is dropped: %s", error_last()->text);
    if (s->port)
        port_wake(s->port);
    link_close(s->link);
    if (s->writing)
        pthread_join(s->writer, NULL);
    port_close(s->port);
    s->port = NULL;
    atomic_store(&s->ended, true);
    return NULL;
}

static void session_free(struct session *s)
{
    pthread_join(s->reader, NULL);
    link_destroy(s->link);
    pthread_mutex_destroy(&s->send_mtx);
    mem_free(s);
}

// Join the sessions that have ended (or all, after closing them); called without the lock.
static void reap(struct server *server, bool all)
{
    struct session **at, *s, *gone = NULL;

    pthread_mutex_lock(&server->mtx);
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
static enum status session_start(struct server *server, struct link *link)
{
    struct session *s = mem_alloc(1, sizeof *s);
    enum status st = s ? ST_OK : ST_NOMEM;

    if (st == ST_OK && server_clients(server) >= SESSIONS_MAX)
        st = FAIL(ST_IO, "%d clients are connected already", SESSIONS_MAX);
    if (st == ST_OK) {
        s->server = server;
        s->link = link;
        pthread_mutex_init(&s->send_mtx, NULL);
        st = thread_start(&s->reader, "server-in", reader_run, s);
    }
    if (st != ST_OK) {
        link_close(link);
        link_destroy(link);
        mem_free(s);
        return st;
    }
    pthread_mutex_lock(&server->mtx);
    s->next = server->sessions;
    server->sessions = s;
    server->n_session++;
    pthread_mutex_unlock(&server->mtx);
    return ST_OK;
}

static void *accept_run(void *arg)
{
    struct server *server = arg;
    struct link *link;
    enum status st;

    while ((st = listener_accept(server->listener, &link, ACCEPT_WAIT_NS)) != ST_CLOSED) {
        if (st == ST_OK)
            st = session_start(server, link);
        if (st != ST_OK && st != ST_TIMEOUT) {
            log_error("server", "cannot take a client: %s", error_last()->text);
            clock_sleep_ns(ACCEPT_WAIT_NS); // no descriptors, for example: do not spin
        }
        reap(server, false);
    }
    return NULL;
}

enum status server_create(struct server **out, const struct server_config *cfg)
{
    struct batcher b;
    struct server *server;
    enum status st;

    TRY(batcher_init(&b, cfg->b_max, cfg->t_max_ns));
    server = mem_alloc(1, sizeof *server);
    if (!server)
        return ST_NOMEM;
    server->cfg = *cfg;
    pthread_mutex_init(&server->mtx, NULL);
    st = listener_open(&server->listener, cfg->listen, REQUEST_BYTES_MAX);
    if (st == ST_OK) {
        st = thread_start(&server->acceptor, "server", accept_run, server);
        server->accepting = st == ST_OK;
    }
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
    pthread_mutex_destroy(&s->mtx);
    mem_free(s);
}
