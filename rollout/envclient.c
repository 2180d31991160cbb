#include "rollout/envclient.h"

#include "common/base/mem.h"
#include "common/wire/auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES_MAX (256u << 20)
#define WELCOME_WAIT_NS (30 * NS_PER_S)
#define LOOK_NS         NS_PER_S // between two looks at the stop flag
#define ANSWER_WAIT_NS  (60 * NS_PER_S)

// What the sending thread waits for.
struct question {
    uint64_t seq;
    struct msg *answer; // NULL = not there yet
};

struct envclient {
    struct link *link;
    struct welcome welcome;
    struct row_layout layout;
    pthread_mutex_t send_mtx; // a PONG may go out beside a request
    uint64_t sent, received;  // sequence numbers
    bool said_bye;            // the last error says why
    int64_t silent_ns;        // waited since the server last said something
    // A thread that waits for a message reads for the other one too, if that waits as well.
    pthread_mutex_t mtx;
    pthread_cond_t cond;
    bool reading;              // one of them is at the link; guarded by mtx
    struct msg *kept;          // for envclient_recv, oldest first, by next_; guarded by mtx
    struct question *question; // guarded by mtx
    char url[LINK_URL_MAX];
};

// The text of an ERROR frame becomes the calling thread's last error.
static enum status refusal(const struct envclient *c, const struct msg *m)
{
    struct proto_error e;

    TRY(proto_error_read(m, &e));
    if (e.code == ST_INVAL)
        return FAIL(ST_INVAL, "env server %s: %s", c->url, e.text);
    return FAIL(ST_PROTO, "env server %s: %s", c->url, e.text);
}

static enum status unexpected(const struct envclient *c, const struct msg *m)
{
    if (m->type == MSG_ERROR)
        return refusal(c, m);
    return FAIL(ST_PROTO, "env server %s sent a message of type %u", c->url, m->type);
}

static bool stopped(const atomic_bool *stop)
{
    return stop && atomic_load(stop);
}

static int64_t slice(int64_t deadline)
{
    int64_t left = deadline == WAIT_NEVER ? LOOK_NS : deadline - clock_now_ns();

    return left < LOOK_NS ? left : LOOK_NS;
}

static enum status dial(struct link **out, const char *url, size_t max_bytes, int64_t wait_ns,
                        const atomic_bool *stop, const struct link_tls *tls)
{
    int64_t deadline = deadline_after(wait_ns), wait = wait_ns < LOOK_NS ? wait_ns : LOOK_NS;

    for (;;) {
        int64_t start = clock_now_ns();
        enum status st = link_dial_tls(out, url, max_bytes, wait, tls);

        // a failure that comes early is one that no second attempt can mend
        if (st != ST_IO || clock_now_ns() - start < wait)
            return st;
        if (stopped(stop))
            return FAIL(ST_CLOSED, "stopped while connecting to %s", url);
        wait = slice(deadline);
        if (wait <= 0)
            return st;
    }
}

enum status envclient_dial(struct link **out, const char *url, size_t max_bytes, int64_t wait_ns,
                           const atomic_bool *stop)
{
    return dial(out, url, max_bytes, wait_ns, stop, NULL);
}

// What was given, or the environment's; NULL if it is neither.
static const char *setting(const char *given, const char *variable)
{
    const char *text = given ? given : getenv(variable);

    return text && *text ? text : NULL;
}

// What the server says next until WELCOME. The looks are counted, so that a machine that stands
// still for longer than the wait does not end it.
static enum status recv_answer(struct envclient *c, const atomic_bool *stop, struct msg **m)
{
    int64_t left = WELCOME_WAIT_NS;
    enum status st;

    do {
        st = link_recv(c->link, m, LOOK_NS);
        if (st == ST_TIMEOUT && stopped(stop))
            return FAIL(ST_CLOSED, "stopped while connecting to %s", c->url);
        left -= LOOK_NS;
    } while (st == ST_TIMEOUT && left > 0);
    if (st == ST_TIMEOUT || st == ST_AGAIN)
        return FAIL(ST_IO, "env server %s: no answer to HELLO", c->url);
    return st == ST_CLOSED ? FAIL(ST_IO, "env server %s: closed the connection", c->url) : st;
}

// Takes `m`, whatever happens.
static enum status send(struct envclient *c, struct msg *m)
{
    enum status st;

    pthread_mutex_lock(&c->send_mtx);
    st = link_send(c->link, m);
    pthread_mutex_unlock(&c->send_mtx);
    if (st != ST_OK)
        msg_free(m);
    if (st == ST_CLOSED)
        return FAIL(ST_CLOSED, "env server %s is gone", c->url);
    return st;
}

// A failed send while connecting is a failure to connect.
static enum status send_first(struct envclient *c, struct msg *m)
{
    enum status st = send(c, m);

    return st == ST_CLOSED ? FAIL(ST_IO, "env server %s: closed the connection", c->url) : st;
}

// Answer the server's CHALLENGE and check its own proof.
static enum status prove(struct envclient *c, const struct envclient_config *cfg,
                         const struct auth_key *key, struct auth_seen *seen)
{
    struct proof mine, theirs;
    struct msg *m;
    enum status st;

    TRY(auth_nonce(seen->client));
    memcpy(mine.nonce, seen->client, sizeof mine.nonce);
    TRY(auth_prove(key, AUTH_CLIENT, seen, mine.mac));
    TRY(proof_write(&m, &mine));
    TRY(send_first(c, m));
    TRY(recv_answer(c, cfg->stop, &m));
    st = m->type == MSG_PROOF ? proof_read(m, &theirs) : unexpected(c, m);
    msg_free(m);
    TRY(st);
    st = auth_check(key, AUTH_SERVER, seen, theirs.mac);
    return st == ST_OK ? ST_OK : error_prefix("env server %s", c->url);
}

// The first answer to `hello` that is not about the key; with a key, only after both proofs.
static enum status recv_welcome(struct envclient *c, const struct envclient_config *cfg,
                                const struct auth_key *key, const struct msg *hello, struct msg **m)
{
    struct auth_seen seen = {.hello = hello->data, .n_hello = hello->len};
    enum status st;

    TRY(recv_answer(c, cfg->stop, m));
    if ((*m)->type == MSG_CHALLENGE) {
        st = challenge_read(*m, seen.server);
        msg_free(*m);
        TRY(st);
        if (!key)
            return FAIL(ST_INVAL, "env server %s asks for a key: give its file", c->url);
        TRY(prove(c, cfg, key, &seen));
        return recv_answer(c, cfg->stop, m);
    }
    if (key && (*m)->type != MSG_ERROR) {
        msg_free(*m);
        return FAIL(ST_PROTO, "env server %s does not prove that it has the key", c->url);
    }
    return ST_OK;
}

static enum status greet(struct envclient *c, const struct envclient_config *cfg,
                         const struct auth_key *key)
{
    struct hello h = cfg->hello;
    struct msg *m, *hello;
    enum status st;

    h.version = ENVPROTO_VERSION;
    h.features =
        FEATURE_HEARTBEAT | FEATURE_BYE | FEATURE_STATE | FEATURE_PLAN | (key ? FEATURE_AUTH : 0);
    TRY(hello_write(&hello, &h));
    st = msg_new(&m, MSG_HELLO, hello->len);
    if (st == ST_OK)
        st = msg_bytes(m, hello->data, hello->len); // one to send, one that the proofs cover
    if (st == ST_OK)
        st = send_first(c, m);
    if (st == ST_OK)
        st = recv_welcome(c, cfg, key, hello, &m);
    msg_free(hello);
    TRY(st);
    st = m->type == MSG_WELCOME ? welcome_read(m, &c->welcome) : unexpected(c, m);
    msg_free(m);
    return st;
}

static enum status greet_with_key(struct envclient *c, const struct envclient_config *cfg)
{
    const char *file = setting(cfg->key_file, "SIMSTREAM_KEY_FILE");
    struct auth_key key;
    enum status st;

    if (!file)
        return greet(c, cfg, NULL);
    TRY(auth_key_load(&key, file));
    st = greet(c, cfg, &key);
    auth_key_clear(&key);
    return st;
}

enum status envclient_open(struct envclient **out, const struct envclient_config *cfg)
{
    struct link_tls tls = {.ca_file = setting(cfg->tls_ca, "SIMSTREAM_TLS_CA"),
                           .server_name = setting(cfg->tls_name, "SIMSTREAM_TLS_NAME")};
    struct envclient *c = mem_alloc(1, sizeof *c);
    enum status st;

    if (!c)
        return ST_NOMEM;
    pthread_mutex_init(&c->send_mtx, NULL);
    pthread_mutex_init(&c->mtx, NULL);
    cond_init(&c->cond);
    snprintf(c->url, sizeof c->url, "%s", cfg->url);
    st = dial(&c->link, cfg->url, BATCH_BYTES_MAX, cfg->connect_wait_ns, cfg->stop, &tls);
    if (st == ST_OK)
        st = greet_with_key(c, cfg);
    if (st != ST_OK) {
        envclient_destroy(c);
        return st;
    }
    row_layout_make(&c->layout, &c->welcome.spec, (int)c->welcome.k_max,
                    (enum autoreset)c->welcome.autoreset);
    *out = c;
    return ST_OK;
}

const struct welcome *envclient_welcome(const struct envclient *c)
{
    return &c->welcome;
}

const struct row_layout *envclient_layout(const struct envclient *c)
{
    return &c->layout;
}

const char *envclient_url(const struct envclient *c)
{
    return c->url;
}

enum status envclient_reset(struct envclient *c, const struct reset_row *rows, int n)
{
    struct msg *m;

    TRY(reset_write(&m, c->sent + 1, rows, n));
    c->sent++;
    return send(c, m);
}

enum status envclient_step_begin(struct envclient *c, int n, struct msg **m, uint8_t **rows)
{
    return step_begin(m, c->sent + 1, n, (int)c->welcome.k_max, c->welcome.spec.n_act, rows);
}

enum status envclient_step_send(struct envclient *c, struct msg *m)
{
    c->sent++;
    return send(c, m);
}

// PING, PONG and BYE: ST_OK if the wait for a batch goes on. Takes `m`.
static enum status take_control(struct envclient *c, struct msg *m)
{
    enum status st = ST_OK;
    struct bye bye;
    struct msg *pong;
    uint64_t n;

    if (m->type == MSG_PING) {
        st = ping_read(m, MSG_PING, &n);
        if (st == ST_OK)
            st = ping_write(&pong, MSG_PONG, n);
        if (st == ST_OK)
            st = send(c, pong);
    } else if (m->type == MSG_BYE) {
        st = bye_read(m, &bye);
        if (st == ST_OK)
            st = FAIL(ST_CLOSED, "env server %s ends: %s", c->url, bye.why);
        c->said_bye = true;
    }
    msg_free(m);
    return st;
}

// The next message that is not about the connection itself.
static enum status recv_work(struct envclient *c, struct msg **m, int64_t wait_ns)
{
    bool watch = (c->welcome.features & FEATURE_HEARTBEAT) && c->welcome.idle_ns > 0;
    int64_t deadline = deadline_after(wait_ns), wait = wait_ns, look = c->welcome.idle_ns / 4 + 1;
    enum status st;

    for (;;) {
        int64_t begin = clock_now_ns(), most = watch && wait > look ? look : wait, waited;

        st = link_recv(c->link, m, most);
        if (st == ST_OK) {
            c->silent_ns = 0;
            if ((*m)->type != MSG_PING && (*m)->type != MSG_PONG && (*m)->type != MSG_BYE)
                return ST_OK;
            TRY(take_control(c, *m));
        } else if (st == ST_TIMEOUT) {
            waited = clock_now_ns() - begin;
            c->silent_ns += waited < most ? waited : most; // not while the machine stood still
            if (watch && c->silent_ns >= c->welcome.idle_ns)
                return FAIL(ST_IO, "env server %s is silent for %.1f s", c->url,
                            1e-9 * (double)c->silent_ns);
        }
        if (st != ST_OK && st != ST_TIMEOUT)
            return st;
        wait = wait_ns == 0 || deadline == WAIT_NEVER ? wait_ns : deadline - clock_now_ns();
        if (wait_ns != 0 && wait <= 0)
            return ST_TIMEOUT;
    }
}

// Is it for the thread that asks? A refusal of everything is, too.
static bool answers(const struct question *q, const struct msg *m)
{
    struct proto_error e;

    if (m->type == MSG_ERROR)
        return proto_error_read(m, &e) == ST_OK && (e.seq == q->seq || e.env == UINT32_MAX);
    return m->type == MSG_SAVED || m->type == MSG_VALUES || m->type == MSG_EXECUTED;
}

// Give a message to whom it is for; called with c->mtx held.
static void hand_over(struct envclient *c, struct msg *m)
{
    struct msg **end = &c->kept;

    m->next_ = NULL;
    if (c->question && !c->question->answer && answers(c->question, m)) {
        c->question->answer = m;
        return;
    }
    while (*end)
        end = &(*end)->next_;
    *end = m;
}

// Take what is there for the caller; called with c->mtx held.
static struct msg *take_mine(struct envclient *c, struct question *q)
{
    struct msg *m = q ? q->answer : c->kept;

    if (q)
        q->answer = NULL;
    else if (m)
        c->kept = m->next_;
    return m;
}

// The next message: the answer to `q`, or one for envclient_recv.
static enum status recv_mine(struct envclient *c, struct question *q, struct msg **out,
                             int64_t wait_ns)
{
    int64_t deadline = deadline_after(wait_ns);
    enum status st = ST_OK;

    pthread_mutex_lock(&c->mtx);
    while (!(*out = take_mine(c, q)) && st == ST_OK) {
        int64_t left = wait_ns == 0 || deadline == WAIT_NEVER ? wait_ns : deadline - clock_now_ns();
        struct msg *m;

        if (left < 0) {
            st = ST_TIMEOUT;
        } else if (!c->reading) {
            c->reading = true;
            pthread_mutex_unlock(&c->mtx);
            st = recv_work(c, &m, left);
            pthread_mutex_lock(&c->mtx);
            c->reading = false;
            if (st == ST_OK)
                hand_over(c, m);
            pthread_cond_broadcast(&c->cond);
        } else if (wait_ns == 0) {
            st = ST_AGAIN;
        } else {
            (void)cond_wait_until(&c->cond, &c->mtx, deadline);
        }
    }
    pthread_mutex_unlock(&c->mtx);
    return st;
}

enum status envclient_recv(struct envclient *c, struct msg **m, const struct batch_head **head,
                           const uint8_t **rows, int64_t wait_ns)
{
    enum status st = recv_mine(c, NULL, m, wait_ns);

    if (st == ST_CLOSED && c->said_bye)
        return st; // with the reason
    if (st == ST_CLOSED)
        return FAIL(ST_CLOSED, "env server %s is gone", c->url);
    TRY(st);
    st = (*m)->type == MSG_BATCH ? batch_read(*m, &c->layout, head, rows) : unexpected(c, *m);
    if (st == ST_OK && (*head)->seq != c->received + 1)
        st = FAIL(ST_PROTO, "env server %s: batch %llu came after batch %llu", c->url,
                  (unsigned long long)(*head)->seq, (unsigned long long)c->received);
    if (st != ST_OK) {
        msg_free(*m);
        return st;
    }
    c->received++;
    return ST_OK;
}

// ------------------------------------------------------------------ states and fields

static enum status check_answer(const struct envclient *c, const struct msg *m, uint64_t seq,
                                enum msg_type want, struct state_rows *out)
{
    if (m->type != want)
        return unexpected(c, m);
    if (want == MSG_EXECUTED)
        TRY(executed_read(m, &out->seq));
    else
        TRY(state_read_rows(m, out));
    if (out->seq != seq)
        return FAIL(ST_PROTO, "env server %s answers request %llu, expected %llu", c->url,
                    (unsigned long long)out->seq, (unsigned long long)seq);
    return ST_OK;
}

// Send a request and wait for what it is answered by. Takes `m`.
static enum status ask(struct envclient *c, struct msg *m, enum msg_type want, struct msg **answer,
                       struct state_rows *out)
{
    struct question q = {.seq = ++c->sent};
    enum status st;

    pthread_mutex_lock(&c->mtx);
    c->question = &q;
    pthread_mutex_unlock(&c->mtx);
    st = send(c, m);
    if (st == ST_OK)
        st = recv_mine(c, &q, answer, ANSWER_WAIT_NS);
    pthread_mutex_lock(&c->mtx);
    c->question = NULL;
    if (st != ST_OK)
        msg_free(q.answer);
    pthread_mutex_unlock(&c->mtx);
    if (st == ST_TIMEOUT) {
        link_close(c->link); // an answer that comes later would be taken for another one's
        return FAIL(ST_IO, "env server %s does not answer", c->url);
    }
    if (st == ST_CLOSED && !c->said_bye)
        return FAIL(ST_CLOSED, "env server %s is gone", c->url);
    TRY(st);
    st = check_answer(c, *answer, q.seq, want, out);
    if (st != ST_OK)
        msg_free(*answer);
    return st;
}

static enum status check_can_ask(const struct envclient *c)
{
    if (c->welcome.features & FEATURE_STATE)
        return ST_OK;
    return FAIL(ST_INVAL, "env server %s is of a version without states and fields", c->url);
}

// The rows of an answer are those of the envs that were asked for.
static enum status check_rows(const struct envclient *c, struct msg *m,
                              const struct state_rows *out, const uint32_t *env, int n)
{
    bool same = out->n == n;
    int i;

    for (i = 0; i < n && same; i++)
        same = memcmp(out->rows + (size_t)i * out->stride, &env[i], sizeof env[i]) == 0;
    if (same)
        return ST_OK;
    msg_free(m);
    return FAIL(ST_PROTO, "env server %s answers for other envs", c->url);
}

enum status envclient_save(struct envclient *c, const uint32_t *env, int n, struct msg **m,
                           struct state_rows *out)
{
    struct msg *q;

    TRY(check_can_ask(c));
    TRY(state_ask(&q, MSG_SAVE, c->sent + 1, env, n, NULL, NULL));
    TRY(ask(c, q, MSG_SAVED, m, out));
    return check_rows(c, *m, out, env, n);
}

enum status envclient_get(struct envclient *c, const uint32_t *env, int n, const char *field,
                          const char *element, struct msg **m, struct state_rows *out)
{
    struct msg *q;

    TRY(check_can_ask(c));
    TRY(state_ask(&q, MSG_GET, c->sent + 1, env, n, field, element));
    TRY(ask(c, q, MSG_VALUES, m, out));
    return check_rows(c, *m, out, env, n);
}

// A request with `bytes` of content for each env, and names if `field` is not NULL.
static enum status write(struct envclient *c, enum msg_type type, const uint32_t *env, int n,
                         const void *content, size_t stride, size_t bytes, const char *field,
                         const char *element)
{
    enum status st = ST_OK;
    struct state_rows none;
    struct msg *q, *answer;
    uint8_t *rows;
    int i;

    TRY(check_can_ask(c));
    TRY(state_begin_rows(&q, type, c->sent + 1, env, n, bytes, &rows));
    for (i = 0; i < n; i++)
        memcpy(rows + (size_t)i * (sizeof(struct state_row) + bytes) + sizeof(struct state_row),
               (const uint8_t *)content + (size_t)i * stride, bytes);
    if (field)
        st = state_name(q, field, element);
    if (st != ST_OK) {
        msg_free(q);
        return st;
    }
    TRY(ask(c, q, MSG_EXECUTED, &answer, &none));
    msg_free(answer);
    return ST_OK;
}

enum status envclient_load(struct envclient *c, const uint32_t *env, int n, const uint8_t *states,
                           size_t stride, size_t bytes)
{
    if (bytes == 0 || bytes % 8 != 0)
        return FAIL(ST_INVAL, "%zu bytes are no state", bytes);
    return write(c, MSG_LOAD, env, n, states, stride, bytes, NULL, NULL);
}

enum status envclient_set(struct envclient *c, const uint32_t *env, int n, const char *field,
                          const char *element, const double *x, int k)
{
    size_t bytes = (size_t)k * sizeof x[0];

    if (k < 1)
        return FAIL(ST_INVAL, "field '%s': %d numbers", field, k);
    return write(c, MSG_SET, env, n, x, bytes, bytes, field, element);
}

void envclient_close(struct envclient *c)
{
    link_close(c->link);
}

void envclient_destroy(struct envclient *c)
{
    struct msg *m;

    if (!c)
        return;
    if (c->link)
        link_close(c->link);
    link_destroy(c->link);
    while ((m = c->kept)) {
        c->kept = m->next_;
        msg_free(m);
    }
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->mtx);
    pthread_mutex_destroy(&c->send_mtx);
    mem_free(c);
}
