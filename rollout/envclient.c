#include "rollout/envclient.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

#define BATCH_BYTES_MAX (256u << 20)
#define WELCOME_WAIT_NS (30 * NS_PER_S)

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
        return st;
    }
    TRY(link_recv(c->link, &m, WELCOME_WAIT_NS));
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
    st = link_dial(&c->link, cfg->url, BATCH_BYTES_MAX, cfg->connect_wait_ns);
    if (st == ST_OK) {
        st = greet(c, cfg);
        if (st == ST_CLOSED || st == ST_TIMEOUT)
            st = FAIL(ST_IO, "env server %s: %s", c->url,
                      st == ST_CLOSED ? "closed the connection" : "no answer to HELLO");
    }
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
