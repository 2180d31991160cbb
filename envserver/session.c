#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/stateproto.h"
#include "envserver/server_priv.h"

#include <stdio.h>
#include <string.h>

static void add(atomic_llong *counter, long long n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

// Takes `m`, whatever happens.
static enum status session_send(struct session *s, struct msg *m)
{
    size_t n = m->len;
    enum status st;

    pthread_mutex_lock(&s->send_mtx);
    st = link_send(s->link, m);
    pthread_mutex_unlock(&s->send_mtx);
    if (st == ST_OK)
        add(&s->server->bytes_out, (long long)n);
    else
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

// The first reason counts.
static void set_end(struct session *s, enum session_end end)
{
    int none = -1;

    (void)atomic_compare_exchange_strong(&s->end, &none, (int)end);
}

// ------------------------------------------------------------------ batches out

// Times of a batch that is about to leave.
static void measure(struct session *s, const struct msg *batch)
{
    const struct batch_head *head = (const void *)batch->data;
    const uint8_t *row = batch->data + sizeof *head;
    int64_t now = clock_now_ns();
    uint32_t i;

    histogram_add(&s->server->batch_rows, head->n);
    histogram_add(&s->server->batch_wait_ns, port_waited_ns(s->port));
    for (i = 0; i < head->n; i++, row += head->stride)
        histogram_add(&s->server->request_ns,
                      now - s->asked_ns[((const struct row_head *)row)->env]);
    add(&s->rows, head->n);
}

static enum status send_bye(struct session *s)
{
    struct bye bye = {.seq = (uint64_t)atomic_load(&s->requests), .why = "the server is stopped"};
    struct msg *m;

    atomic_store(&s->said_bye, true);
    set_end(s, END_DRAINED);
    if (!(s->features & FEATURE_BYE))
        return ST_CLOSED;
    TRY(bye_write(&m, &bye));
    return session_send(s, m);
}

static void *writer_run(void *arg)
{
    struct session *s = arg;
    struct msg *batch;
    enum status st = ST_OK;

    while (st == ST_OK && port_wait_busy(s->port) == ST_OK) {
        st = port_recv(s->port, &batch, WAIT_NEVER);
        if (st == ST_OK) {
            measure(s, batch);
            st = session_send(s, batch); // when it fails, the reader sees the same and cleans up
        } else if (st == ST_AGAIN) {
            st = ST_OK;
        }
    }
    // the client closes after BYE: closing first could destroy what it has not read yet
    if (st == ST_OK && atomic_load(&s->server->draining) && send_bye(s) != ST_OK)
        link_close(s->link);
    return NULL;
}

// ------------------------------------------------------------------ the greeting

// The client's wishes within the server's settings.
static enum status port_for(struct session *s, const struct hello *h)
{
    const struct server_config *server = &s->server->cfg;
    struct port_config cfg = {.autoreset = (enum autoreset)h->autoreset,
                              .n_env = (int)h->n_env,
                              .k_max = (int)h->k_max,
                              .b_max = h->b_max ? (int)h->b_max : server->b_max,
                              .b_min = (int)h->b_min,
                              .t_max_ns = h->t_max_ns >= 0 ? h->t_max_ns : server->t_max_ns};
    struct port *port;

    TRY(hello_skip(h, pool_spec(server->pool), &cfg.skip));
    if (cfg.b_min == 0 && server->b_min < cfg.b_max)
        cfg.b_min = server->b_min; // a smaller batch of the client's is full before that
    TRY(port_open(&port, server->pool, &cfg));
    s->features = h->features &
                  (FEATURE_HEARTBEAT | FEATURE_BYE | FEATURE_AUTH | FEATURE_STATE | FEATURE_PLAN);
    pthread_mutex_lock(&s->server->mtx);
    // without the feature it cannot answer a PING, so its silence means nothing
    s->idle_ns = !(s->features & FEATURE_HEARTBEAT) ? 0 : h->idle_ns ? h->idle_ns : server->idle_ns;
    memcpy(s->name, h->name, sizeof s->name);
    s->port = port;
    pthread_mutex_unlock(&s->server->mtx);
    return ST_OK;
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
    w->spec = *port_spec(s->port);
    w->autoreset = cfg->autoreset;
    w->k_max = (uint32_t)cfg->k_max;
    w->b_max = (uint32_t)cfg->b_max;
    w->b_min = (uint32_t)cfg->b_min;
    w->t_max_ns = cfg->t_max_ns;
    w->idle_ns = s->idle_ns;
    w->features = s->features;
    w->session = s->id;
    w->n_env = (uint32_t)n;
    memcpy(w->env, ids, (size_t)n * sizeof ids[0]);
    snprintf(w->plan, sizeof w->plan, "%s", pool_plan(s->server->cfg.pool));
    st = welcome_write(&m, w);
    mem_free(w);
    return st == ST_OK ? session_send(s, m) : st;
}

static enum status recv_first(struct session *s, const char *what, struct msg **m)
{
    enum status st = link_recv_soon(s->link, m, HELLO_WAIT_S);

    return st == ST_TIMEOUT ? FAIL(ST_PROTO, "a client sent no %s in %d s", what, HELLO_WAIT_S)
                            : st;
}

// Both sides prove that they have the key. `hello` is the client's message.
static enum status authenticate(struct session *s, const struct msg *hello, uint32_t features)
{
    struct auth_seen seen = {.hello = hello->data, .n_hello = hello->len};
    struct proof theirs, mine = {0};
    struct msg *m;
    enum status st;

    if (!(features & FEATURE_AUTH))
        return FAIL(ST_INVAL, "this server asks for a key (--key-file), the client has none");
    TRY(auth_nonce(seen.server));
    TRY(challenge_write(&m, seen.server));
    TRY(session_send(s, m));
    TRY(recv_first(s, "PROOF", &m));
    st = proof_read(m, &theirs);
    msg_free(m);
    TRY(st);
    memcpy(seen.client, theirs.nonce, sizeof seen.client);
    TRY(auth_check(&s->server->key, AUTH_CLIENT, &seen, theirs.mac));
    TRY(auth_prove(&s->server->key, AUTH_SERVER, &seen, mine.mac));
    TRY(proof_write(&m, &mine));
    return session_send(s, m);
}

static enum status check_key(struct session *s, const struct msg *hello, uint32_t features)
{
    enum status st = ST_OK;

    if (s->server->cfg.key)
        st = authenticate(s, hello, features);
    else if (features & FEATURE_AUTH)
        st = FAIL(ST_INVAL, "the client has a key, this server has none (--key-file)");
    if (st == ST_INVAL || st == ST_PROTO)
        set_end(s, END_AUTH);
    return st;
}

// Wait for HELLO and answer it. A refusal has been sent when this fails.
static enum status greet(struct session *s)
{
    struct hello h;
    struct msg *m;
    enum status st;

    link_set_max(s->link, HELLO_BYTES_MAX);
    TRY(recv_first(s, "HELLO", &m));
    st = hello_read(m, &h);
    if (st == ST_OK)
        st = check_key(s, m, h.features);
    msg_free(m);
    link_set_max(s->link, REQUEST_BYTES_MAX);
    if (st == ST_OK && atomic_load(&s->server->draining))
        st = FAIL(ST_CLOSED, "the server is stopped");
    if (st == ST_OK)
        st = port_for(s, &h);
    if (st == ST_OK)
        return send_welcome(s);
    (void)send_error(s, UINT32_MAX, 0);
    return st;
}

// ------------------------------------------------------------------ requests in

static enum status check_seq(struct session *s, uint64_t seq)
{
    if (seq != s->seq + 1)
        return FAIL(ST_PROTO, "request %llu came after request %llu", (unsigned long long)seq,
                    (unsigned long long)s->seq);
    s->seq = seq;
    return ST_OK;
}

// The envs of a request have been asked now. A row begins with its env's number; one that is out of
// range or in flight is refused later.
static void note_asked(struct session *s, const uint8_t *rows, size_t stride, int n)
{
    uint32_t n_env = (uint32_t)pool_spec(s->server->cfg.pool)->n_env;
    int64_t now = clock_now_ns();
    int i;

    for (i = 0; i < n; i++) {
        uint32_t env = *(const uint32_t *)(const void *)(rows + (size_t)i * stride);

        if (env < n_env)
            atomic_store_explicit(&s->asked_ns[env], now, memory_order_relaxed);
    }
    add(&s->server->request_rows, n);
}

// *fair: the request makes sense; a failure is then only a refusal.
static enum status do_reset(struct session *s, const struct msg *m, bool *fair)
{
    const struct reset_row *rows;
    uint64_t seq;
    int n;

    TRY(reset_read(m, &seq, &rows, &n));
    TRY(check_seq(s, seq));
    *fair = true;
    add(&s->server->resets, 1);
    note_asked(s, (const void *)rows, sizeof *rows, n);
    return port_reset(s->port, rows, n);
}

static enum status do_step(struct session *s, const struct msg *m, bool *fair)
{
    int k_max = port_settings(s->port)->k_max, n_act = pool_spec(s->server->cfg.pool)->n_act, n;
    const uint8_t *rows;
    uint64_t seq;

    TRY(step_read(m, k_max, n_act, &seq, &rows, &n));
    TRY(check_seq(s, seq));
    *fair = true;
    add(&s->server->steps, 1);
    note_asked(s, rows, step_stride(k_max, n_act), n);
    return port_step(s->port, rows, n);
}

// ------------------------------------------------------------------ states and fields

// The envs of a request, in one piece; free with mem_free.
static enum status list_envs(const struct state_rows *q, uint32_t **out)
{
    uint32_t *env = mem_alloc((size_t)q->n, sizeof env[0]);
    int i;

    if (!env)
        return ST_NOMEM;
    for (i = 0; i < q->n; i++)
        memcpy(&env[i], q->rows + (size_t)i * q->stride, sizeof env[0]);
    *out = env;
    return ST_OK;
}

static enum status do_save(struct session *s, const struct state_rows *q, const uint32_t *env)
{
    size_t bytes = port_state_bytes(s->port);
    struct msg *m;
    uint8_t *rows;
    enum status st;

    TRY(state_begin_rows(&m, MSG_SAVED, q->seq, env, q->n, bytes, &rows));
    st = port_save(s->port, env, q->n, rows + sizeof(struct state_row),
                   sizeof(struct state_row) + bytes);
    if (st == ST_OK)
        return session_send(s, m);
    msg_free(m);
    return st;
}

static enum status do_get(struct session *s, const struct state_rows *q, const uint32_t *env)
{
    struct msg *m;
    uint8_t *rows;
    enum status st;
    size_t bytes;
    int k;

    TRY(port_field_size(s->port, q->field, q->element, &k));
    bytes = (size_t)k * sizeof(double);
    TRY(state_begin_rows(&m, MSG_VALUES, q->seq, env, q->n, bytes, &rows));
    st = port_get_field(s->port, env, q->n, q->field, q->element,
                        (double *)(rows + sizeof(struct state_row)),
                        sizeof(struct state_row) + bytes, k);
    if (st == ST_OK)
        return session_send(s, m);
    msg_free(m);
    return st;
}

// LOAD or SET.
static enum status do_write(struct session *s, const struct msg *m, const struct state_rows *q,
                            const uint32_t *env)
{
    const uint8_t *first = q->rows + sizeof(struct state_row);
    size_t bytes = q->stride - sizeof(struct state_row);
    struct msg *answer;

    if (m->type == MSG_LOAD)
        TRY(port_load(s->port, env, q->n, first, q->stride, bytes));
    else
        TRY(port_set_field(s->port, env, q->n, q->field, q->element,
                           (const double *)(const void *)first, q->stride,
                           (int)(bytes / sizeof(double))));
    TRY(executed_write(&answer, q->seq));
    return session_send(s, answer);
}

// A request that is answered at once.
static enum status do_state(struct session *s, const struct msg *m, bool *fair)
{
    struct state_rows q;
    uint32_t *env;
    enum status st;

    TRY(state_read_rows(m, &q));
    TRY(check_seq(s, q.seq));
    *fair = true;
    TRY(list_envs(&q, &env));
    st = m->type == MSG_SAVE  ? do_save(s, &q, env)
         : m->type == MSG_GET ? do_get(s, &q, env)
                              : do_write(s, m, &q, env);
    mem_free(env);
    return st;
}

static bool is_state_request(unsigned type)
{
    return type == MSG_SAVE || type == MSG_LOAD || type == MSG_SET || type == MSG_GET;
}

// ------------------------------------------------------------------ any request

static enum status do_ping(struct session *s, const struct msg *m)
{
    struct msg *pong;
    uint64_t n;

    if (m->type == MSG_PONG)
        return ping_read(m, MSG_PONG, &n);
    TRY(ping_read(m, MSG_PING, &n));
    TRY(ping_write(&pong, MSG_PONG, n));
    return session_send(s, pong);
}

// Execute one message. A refusal (the request was well-formed, but an env may not do it) is told to
// the client and is no failure; a message that makes no sense is.
static enum status serve(struct session *s, const struct msg *m)
{
    bool fair = false;
    enum status st;

    if (m->type == MSG_PING || m->type == MSG_PONG)
        return do_ping(s, m);
    if (m->type == MSG_BYE) {
        set_end(s, END_BYE);
        return FAIL(ST_CLOSED, "the client said BYE");
    }
    if (m->type == MSG_RESET)
        st = do_reset(s, m, &fair);
    else if (m->type == MSG_STEP)
        st = do_step(s, m, &fair);
    else if (is_state_request(m->type))
        st = do_state(s, m, &fair);
    else
        return FAIL(ST_PROTO, "message type %u is not a request", m->type);
    if (st == ST_OK) {
        atomic_store(&s->requests, (long long)s->seq);
        return ST_OK;
    }
    if (!fair)
        return st;
    if (st == ST_CLOSED)
        return ST_OK; // the server ends: BYE says how far it came
    add(&s->server->refused, 1);
    server_note_fault(s->server, s->id);
    return send_error(s, port_refused_env(s->port), s->seq);
}

// ------------------------------------------------------------------ the reader

// Nothing came for a third of the idle time, `thirds` times in a row: they are counted because a
// machine that stands still hears nothing either, and that is one wait, however long. A PING that
// cannot be sent at once need not be: then there is something on its way already.
static enum status on_silence(struct session *s, int thirds)
{
    struct msg *m;
    enum status st;

    if (thirds >= 3) {
        set_end(s, END_IDLE);
        return FAIL(ST_IO, "silent for %.1f s", 1e-9 * (double)s->idle_ns);
    }
    TRY(ping_write(&m, MSG_PING, ++s->pings));
    if (pthread_mutex_trylock(&s->send_mtx) != 0) {
        msg_free(m);
        return ST_OK;
    }
    st = link_send(s->link, m);
    pthread_mutex_unlock(&s->send_mtx);
    if (st != ST_OK)
        msg_free(m);
    return st;
}

static enum status listen_to(struct session *s)
{
    int64_t wait = s->idle_ns ? s->idle_ns / 3 + 1 : WAIT_NEVER;
    int thirds = 0;
    struct msg *m;
    enum status st;

    for (;;) {
        st = link_recv(s->link, &m, wait);
        if (st == ST_TIMEOUT) {
            TRY(on_silence(s, ++thirds));
            continue;
        }
        TRY(st);
        thirds = 0;
        atomic_store(&s->heard_ns, clock_now_ns());
        add(&s->server->bytes_in, (long long)m->len);
        st = serve(s, m);
        msg_free(m);
        if (st == ST_PROTO || st == ST_INVAL) {
            set_end(s, END_PROTOCOL);
            (void)error_prefix("the connection is closed");
            (void)send_error(s, UINT32_MAX, s->seq);
        }
        TRY(st);
    }
}

// Coming and going; inside one process that is no news.
static enum log_level visit_level(const struct session *s)
{
    return strncmp(s->server->cfg.listen, "inproc:", 7) == 0 ? LOG_DEBUG : LOG_INFO;
}

static enum status converse(struct session *s)
{
    int n_env = pool_spec(s->server->cfg.pool)->n_env;

    s->asked_ns = mem_alloc((size_t)n_env, sizeof s->asked_ns[0]);
    if (!s->asked_ns)
        return ST_NOMEM;
    TRY(greet(s));
    log_line(visit_level(s), "server", "client %llu (%s) is here", (unsigned long long)s->id,
             s->name[0] ? s->name : "no name");
    TRY(thread_start(&s->writer, "server-out", writer_run, s));
    s->writing = true;
    return listen_to(s);
}

static void note_end(struct session *s, enum status st)
{
    set_end(s, st == ST_CLOSED                    ? END_CLOSED
               : st == ST_PROTO || st == ST_INVAL ? END_PROTOCOL
                                                  : END_FAILED);
    add(&s->server->ended[atomic_load(&s->end)], 1);
    if (st == ST_CLOSED) {
        log_line(visit_level(s), "server", "client %llu left: %s", (unsigned long long)s->id,
                 session_end_name((enum session_end)atomic_load(&s->end)));
        return;
    }
    server_note_fault(s->server, s->id);
    log_warn("server", "client %llu is dropped: %s", (unsigned long long)s->id, error_last()->text);
}

static void *reader_run(void *arg)
{
    struct session *s = arg;
    struct port *port;

    note_end(s, converse(s));
    if (s->port)
        port_wake(s->port);
    link_close(s->link);
    if (s->writing)
        pthread_join(s->writer, NULL);
    pthread_mutex_lock(&s->server->mtx);
    port = s->port;
    s->port = NULL;
    pthread_mutex_unlock(&s->server->mtx);
    port_close(port);
    atomic_store(&s->ended, true);
    return NULL;
}

void session_free(struct session *s)
{
    pthread_join(s->reader, NULL);
    link_destroy(s->link);
    pthread_mutex_destroy(&s->send_mtx);
    mem_free(s->asked_ns);
    mem_free(s);
}

void session_drain(struct session *s)
{
    if (s->port)
        port_drain(s->port);
}

enum status session_start(struct server *server, struct link *link)
{
    struct session *s = mem_alloc(1, sizeof *s);
    enum status st = ST_NOMEM;

    if (s) {
        s->server = server;
        s->link = link;
        atomic_store(&s->end, -1);
        atomic_store(&s->begun_ns, clock_now_ns());
        atomic_store(&s->heard_ns, clock_now_ns());
        pthread_mutex_init(&s->send_mtx, NULL);
        pthread_mutex_lock(&server->mtx);
        s->id = ++server->next_id;
        st = thread_start(&s->reader, "server-in", reader_run, s);
        if (st == ST_OK) {
            s->next = server->sessions;
            server->sessions = s;
            server->n_session++;
        }
        pthread_mutex_unlock(&server->mtx);
    }
    if (st != ST_OK) {
        link_close(link);
        link_destroy(link);
        mem_free(s);
        return st;
    }
    add(&server->sessions_total, 1);
    return ST_OK;
}
