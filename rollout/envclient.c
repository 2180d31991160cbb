#include "rollout/envclient.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

#define BATCH_BYTES_MAX (256u << 20)
#define WELCOME_WAIT_NS (30 * NS_PER_S)
#define LOOK_NS         NS_PER_S // between two looks at the stop flag

struct envclient {
    struct link *link;
    struct welcome welcome;
    struct row_layout layout;
    uint64_t sent, received; // sequence numbers
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

enum status envclient_dial(struct link **out, const char *url, size_t max_bytes, int64_t wait_ns,
                           const atomic_bool *stop)
{
    int64_t deadline = deadline_after(wait_ns), wait = wait_ns < LOOK_NS ? wait_ns : LOOK_NS;

    for (;;) {
        int64_t start = clock_now_ns();
        enum status st = link_dial(out, url, max_bytes, wait);

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

// The answer to HELLO.
static enum status recv_answer(struct envclient *c, const atomic_bool *stop, struct msg **m)
{
    int64_t deadline = deadline_after(WELCOME_WAIT_NS);
    enum status st;

    do {
        st = link_recv(c->link, m, slice(deadline));
        if (st == ST_TIMEOUT && stopped(stop))
            return FAIL(ST_CLOSED, "stopped while connecting to %s", c->url);
    } while (st == ST_TIMEOUT && clock_now_ns() < deadline);
    if (st == ST_TIMEOUT || st == ST_AGAIN)
        return FAIL(ST_IO, "env server %s: no answer to HELLO", c->url);
    return st == ST_CLOSED ? FAIL(ST_IO, "env server %s: closed the connection", c->url) : st;
}

static enum status greet(struct envclient *c, const struct envclient_config *cfg)
{
    struct hello h = cfg->hello;
    struct msg *m;
    enum status st;

    h.version = ENVPROTO_VERSION;
    TRY(hello_write(&m, &h));
    st = link_send(c->link, m);
    if (st != ST_OK) {
        msg_free(m);
        return st == ST_CLOSED ? FAIL(ST_IO, "env server %s: closed the connection", c->url) : st;
    }
    TRY(recv_answer(c, cfg->stop, &m));
    st = m->type == MSG_WELCOME ? welcome_read(m, &c->welcome) : unexpected(c, m);
    msg_free(m);
    return st;
}

enum status envclient_open(struct envclient **out, const struct envclient_config *cfg)
{
    struct envclient *c = mem_alloc(1, sizeof *c);
    enum status st;

    if (!c)
        return ST_NOMEM;
    snprintf(c->url, sizeof c->url, "%s", cfg->url);
    st = envclient_dial(&c->link, cfg->url, BATCH_BYTES_MAX, cfg->connect_wait_ns, cfg->stop);
    if (st == ST_OK)
        st = greet(c, cfg);
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

static enum status send(struct envclient *c, struct msg *m)
{
    enum status st = link_send(c->link, m);

    if (st != ST_OK)
        msg_free(m);
    if (st == ST_CLOSED)
        return FAIL(ST_CLOSED, "env server %s is gone", c->url);
    return st;
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

enum status envclient_recv(struct envclient *c, struct msg **m, const struct batch_head **head,
                           const uint8_t **rows, int64_t wait_ns)
{
    enum status st = link_recv(c->link, m, wait_ns);

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

void envclient_close(struct envclient *c)
{
    link_close(c->link);
}

void envclient_destroy(struct envclient *c)
{
    if (!c)
        return;
    if (c->link)
        link_close(c->link);
    link_destroy(c->link);
    mem_free(c);
}
