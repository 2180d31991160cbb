#include "evaluation/policy_vla_eval.h"

#include "evaluation/policy_openpi.h"
#include "evaluation/ws.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

struct vla_eval {
    struct ws *ws;
    int64_t seq; // of the message sent last
};

static void vla_eval_close(struct policy_client *c)
{
    struct vla_eval *v = c->conn;

    if (!v)
        return;
    ws_close(v->ws);
    mem_free(v);
    c->conn = NULL;
}

static bool vla_eval_alive(struct policy_client *c)
{
    struct vla_eval *v = c->conn;

    return v && ws_alive(v->ws);
}

// Begin a message; its payload follows.
static void message(struct policy_client *c, const char *type)
{
    struct pack *k = &c->pack;

    pack_clear(k);
    pack_map(k, 4);
    pack_str(k, "type");
    pack_str(k, type);
    pack_str(k, "payload");
}

static enum status send_message(struct policy_client *c, int64_t wait_ns)
{
    struct vla_eval *v = c->conn;
    struct pack *k = &c->pack;

    pack_str(k, "seq");
    pack_int(k, ++v->seq);
    pack_str(k, "timestamp");
    pack_real(k, clock_wall_s());
    TRY(pack_done(k));
    return ws_send(v->ws, c->pack.buf.data, c->pack.buf.size, wait_ns, c->stop);
}

// The answer to the message sent last; `*payload` points into `u`, which is the caller's to
// destroy.
static enum status receive(struct policy_client *c, const char *type, msgpack_unpacked *u,
                           const msgpack_object **payload, int64_t wait_ns)
{
    struct vla_eval *v = c->conn;
    const msgpack_object *seq;
    const uint8_t *bytes;
    char text[512];
    size_t n;

    msgpack_unpacked_init(u);
    TRY(ws_recv(v->ws, &bytes, &n, wait_ns, c->stop));
    TRY(policy_read_map(u, bytes, n));
    *payload = pack_find(&u->data, "payload");
    if (pack_is(pack_find(&u->data, "type"), "error"))
        return policy_server_error(pack_text(pack_find(*payload, "error"), text, sizeof text));
    if (!pack_is(pack_find(&u->data, "type"), type))
        return FAIL(ST_PROTO, "the policy server sent '%s', expected '%s'",
                    pack_text(pack_find(&u->data, "type"), text, sizeof text), type);
    seq = pack_find(&u->data, "seq");
    if (!seq || seq->type != MSGPACK_OBJECT_POSITIVE_INTEGER || seq->via.u64 != (uint64_t)v->seq)
        return FAIL(ST_PROTO, "the policy server answered another message than the last");
    if (!*payload || (*payload)->type != MSGPACK_OBJECT_MAP)
        return FAIL(ST_PROTO, "the policy server's '%s' has no payload", type);
    return ST_OK;
}

static enum status hello(struct policy_client *c, int64_t wait_ns, struct text *about)
{
    const msgpack_object *payload;
    msgpack_unpacked u;
    enum status st;

    message(c, "hello");
    pack_map(&c->pack, 2);
    pack_str(&c->pack, "harness_version");
    pack_str(&c->pack, "simstream " SIMSTREAM_VERSION);
    pack_str(&c->pack, "protocol_version");
    pack_int(&c->pack, 1);
    TRY(send_message(c, wait_ns));
    st = receive(c, "hello", &u, &payload, wait_ns);
    if (st == ST_OK)
        pack_to_json(about, payload);
    msgpack_unpacked_destroy(&u);
    return st;
}

static enum status vla_eval_open(struct policy_client *c, int64_t wait_ns, struct text *about)
{
    struct vla_eval *v = mem_alloc(1, sizeof *v);
    enum status st;

    if (!v)
        return ST_NOMEM;
    c->conn = v;
    st = policy_dial(c, &v->ws, wait_ns);
    if (st == ST_OK) {
        st = hello(c, wait_ns, about);
        if (st != ST_OK)
            st = policy_not_greeted(c, st);
    }
    if (st != ST_OK)
        vla_eval_close(c);
    return st;
}

static enum status vla_eval_begin(struct policy_client *c, const struct policy_input *first)
{
    struct pack *k = &c->pack;

    message(c, "episode_start");
    pack_map(k, 1);
    pack_str(k, "task");
    pack_map(k, 2);
    pack_str(k, "name");
    pack_str(k, first->prompt);
    pack_str(k, "session");
    pack_str(k, first->session);
    return send_message(c, c->options->answer_wait_ns);
}

static enum status vla_eval_end(struct policy_client *c, bool success)
{
    struct pack *k = &c->pack;

    message(c, "episode_end");
    pack_map(k, 1);
    pack_str(k, "success");
    pack_bool(k, success);
    return send_message(c, c->options->answer_wait_ns);
}

// Items "images/agentview" and "images/wrist" are one map "images" of two.
static const char *split(const char *key, size_t *n)
{
    const char *slash = strchr(key, '/');

    *n = slash ? (size_t)(slash - key) : 0;
    return slash ? slash + 1 : key;
}

static bool same_group(const char *a, const char *b)
{
    size_t n, m;

    (void)split(a, &n);
    (void)split(b, &m);
    return n > 0 && n == m && memcmp(a, b, n) == 0;
}

// Items from i on that are in one group with it; groups stand together.
static int group(const struct policy_input *in, int i)
{
    int n = 1;

    while (i + n < in->n_item && same_group(in->items[i].key, in->items[i + n].key))
        n++;
    return n;
}

static void pack_items(struct pack *k, const struct policy_input *in)
{
    char name[OPT_STR_MAX];
    int i, j, n;
    size_t head;

    for (i = 0; i < in->n_item; i += n) {
        n = group(in, i);
        (void)split(in->items[i].key, &head);
        if (head) {
            snprintf(name, sizeof name, "%.*s", (int)head, in->items[i].key);
            pack_str(k, name);
            pack_map(k, (size_t)n);
        }
        for (j = i; j < i + n; j++) {
            pack_str(k, split(in->items[j].key, &head));
            pack_tensor(k, TENSOR_STR, &in->items[j].value);
        }
    }
}

static enum status vla_eval_infer(struct policy_client *c, const struct policy_input *in, int n,
                                  struct policy_chunk *out, int64_t wait_ns)
{
    const msgpack_object *payload;
    msgpack_unpacked u;
    enum status st;
    size_t members = 0, extra;
    int i;

    (void)n; // one: the server makes the batches
    TRY(pack_json_members(NULL, c->options->extra, &extra));
    for (i = 0; i < in->n_item; i += group(in, i))
        members++;
    message(c, "observation");
    pack_map(&c->pack, members + extra + (c->options->prompt[0] != '\0'));
    pack_items(&c->pack, in);
    if (c->options->prompt[0]) {
        pack_str(&c->pack, c->options->prompt);
        pack_str(&c->pack, in->prompt);
    }
    TRY(pack_json_members(&c->pack, c->options->extra, &extra));
    TRY(send_message(c, wait_ns));
    st = receive(c, "action", &u, &payload, wait_ns);
    if (st == ST_OK)
        st = policy_take_actions(c, payload, out);
    msgpack_unpacked_destroy(&u);
    return st;
}

const struct policy_ops vla_eval_ops = {
    .name = "vla-eval",
    .sessions = true,
    .open = vla_eval_open,
    .close = vla_eval_close,
    .alive = vla_eval_alive,
    .begin = vla_eval_begin,
    .infer = vla_eval_infer,
    .end = vla_eval_end,
};
