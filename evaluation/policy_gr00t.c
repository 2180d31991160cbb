#include "evaluation/policy_gr00t.h"

#include "evaluation/chunk.h"
#include "evaluation/policy_openpi.h"

#include "common/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifdef SIMSTREAM_ZMQ

#include <zmq.h>

#define LOOK_NS   (100 * NS_PER_MS) // between two looks at the stop flag
#define REPLY_MAX (64 << 20)

struct gr00t {
    void *context, *socket;
    uint8_t *batch; // where observations are joined
    size_t batch_cap;
};

static void gr00t_close(struct policy_client *c)
{
    struct gr00t *g = c->conn;

    if (!g)
        return;
    if (g->socket)
        zmq_close(g->socket);
    if (g->context)
        zmq_ctx_term(g->context);
    mem_free(g->batch);
    mem_free(g);
    c->conn = NULL;
}

static bool gr00t_alive(struct policy_client *c)
{
    return c->conn; // ZeroMQ reconnects by itself, and says nothing
}

static enum status make_socket(struct policy_client *c, struct gr00t *g)
{
    int zero = 0;
    int64_t max = REPLY_MAX;

    g->context = zmq_ctx_new();
    g->socket = g->context ? zmq_socket(g->context, ZMQ_REQ) : NULL;
    if (!g->socket || zmq_setsockopt(g->socket, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_setsockopt(g->socket, ZMQ_MAXMSGSIZE, &max, sizeof max) != 0)
        return FAIL(ST_IO, "cannot make a socket of ZeroMQ: %s", zmq_strerror(zmq_errno()));
    if (zmq_connect(g->socket, c->url) != 0)
        return FAIL(ST_INVAL, "'%.200s' is no address for ZeroMQ: %s", c->url,
                    zmq_strerror(zmq_errno()));
    return ST_OK;
}

// Until the socket can be read or written.
static enum status await(struct policy_client *c, short what, int64_t deadline)
{
    struct gr00t *g = c->conn;
    zmq_pollitem_t item = {.socket = g->socket, .events = what};

    while (zmq_poll(&item, 1, LOOK_NS / NS_PER_MS) <= 0) {
        if (c->stop && atomic_load(c->stop))
            return FAIL(ST_CLOSED, "stopped");
        if (clock_now_ns() >= deadline)
            return ST_TIMEOUT;
    }
    return ST_OK;
}

// Send what was packed; the reply is unpacked, `u` and `m` are the caller's to end.
static enum status ask(struct policy_client *c, msgpack_unpacked *u, zmq_msg_t *m, int64_t wait_ns)
{
    struct gr00t *g = c->conn;
    int64_t deadline = deadline_after(wait_ns);
    const msgpack_object *error;
    const uint8_t *bytes;
    char text[512];
    size_t n;

    msgpack_unpacked_init(u);
    zmq_msg_init(m);
    TRY(pack_done(&c->pack));
    TRY(await(c, ZMQ_POLLOUT, deadline));
    if (zmq_send(g->socket, c->pack.buf.data, c->pack.buf.size, ZMQ_DONTWAIT) < 0)
        return FAIL(ST_IO, "cannot send to %s: %s", c->url, zmq_strerror(zmq_errno()));
    TRY(await(c, ZMQ_POLLIN, deadline));
    if (zmq_msg_recv(m, g->socket, ZMQ_DONTWAIT) < 0)
        return FAIL(ST_IO, "cannot receive from %s: %s", c->url, zmq_strerror(zmq_errno()));
    if (zmq_msg_more(m))
        return FAIL(ST_PROTO, "the policy server's reply has several parts");
    bytes = zmq_msg_data(m);
    n = zmq_msg_size(m);
    if (n == 5 && memcmp(bytes, "ERROR", 5) == 0)
        return policy_server_error("ERROR");
    TRY(pack_open(u, bytes, n));
    error = pack_find(&u->data, "error");
    return error ? policy_server_error(pack_text(error, text, sizeof text)) : ST_OK;
}

// Begin a request; with `data`, its value follows.
static void request(struct policy_client *c, const char *endpoint, bool data)
{
    struct pack *k = &c->pack;

    pack_clear(k);
    pack_map(k, 1 + (size_t)data + (c->key != NULL));
    pack_str(k, "endpoint");
    pack_str(k, endpoint);
    if (c->key) {
        pack_str(k, "api_token");
        pack_str(k, c->key);
    }
    if (data)
        pack_str(k, "data");
}

static enum status ask_about(struct policy_client *c, int64_t wait_ns, struct text *about)
{
    msgpack_unpacked u;
    zmq_msg_t m;
    enum status st;

    request(c, "ping", false);
    st = ask(c, &u, &m, wait_ns);
    msgpack_unpacked_destroy(&u);
    zmq_msg_close(&m);
    if (st == ST_TIMEOUT)
        return FAIL(ST_IO, "no answer from %s", c->url);
    TRY(st);
    request(c, "get_modality_config", false);
    st = ask(c, &u, &m, wait_ns);
    if (st == ST_OK)
        pack_to_json(about, &u.data);
    msgpack_unpacked_destroy(&u);
    zmq_msg_close(&m);
    if (st == ST_IO) { // a server without that endpoint
        text_add(about, "{}");
        return ST_OK;
    }
    return st == ST_TIMEOUT ? FAIL(ST_IO, "no answer from %s", c->url) : st;
}

static enum status gr00t_open(struct policy_client *c, int64_t wait_ns, struct text *about)
{
    struct gr00t *g = mem_alloc(1, sizeof *g);
    enum status st;

    if (!g)
        return ST_NOMEM;
    c->conn = g;
    st = make_socket(c, g);
    if (st == ST_OK)
        st = ask_about(c, wait_ns, about);
    if (st != ST_OK)
        gr00t_close(c);
    return st;
}

// ------------------------------------------------------------------ observations

static enum tensor_style style(const struct policy_client *c)
{
    return c->options->gr00t_codec ? TENSOR_ND : TENSOR_NPY;
}

// Item i of all observations as one array with a batch (but for N1.5) and a time.
static enum status join(struct policy_client *c, const struct policy_input *in, int n, int i,
                        struct tensor *out)
{
    struct gr00t *g = c->conn;
    const struct tensor *one = &in[0].items[i].value;
    size_t bytes = tensor_bytes(one);
    int k, head = c->options->gr00t_shape == GR00T_N15 ? 1 : 2;

    if (g->batch_cap < bytes * (size_t)n) {
        uint8_t *more = mem_resize(g->batch, bytes * (size_t)n, 1);

        if (!more)
            return ST_NOMEM;
        g->batch = more;
        g->batch_cap = bytes * (size_t)n;
    }
    for (k = 0; k < n; k++)
        memcpy(g->batch + (size_t)k * bytes, in[k].items[i].value.data, bytes);
    *out = (struct tensor){.type = one->type, .n_dim = one->n_dim + head, .data = g->batch};
    out->shape[0] = (uint32_t)(head == 2 ? n : 1);
    out->shape[1] = 1; // overwritten where there is no batch
    for (k = 0; k < one->n_dim; k++)
        out->shape[head + k] = one->shape[k];
    return ST_OK;
}

static void pack_prompts(struct policy_client *c, const struct policy_input *in, int n)
{
    int i;

    pack_array(&c->pack, (size_t)n);
    for (i = 0; i < n; i++) {
        if (c->options->gr00t_shape == GR00T_NESTED) // a time within the batch
            pack_array(&c->pack, 1);
        pack_str(&c->pack, in[i].prompt);
    }
}

static enum status pack_items(struct policy_client *c, const struct policy_input *in, int n,
                              int first, int count, const char *group)
{
    size_t skip = group ? strlen(group) + 1 : 0;
    struct tensor t;
    int i;

    for (i = first; i < first + count; i++) {
        TRY(join(c, in, n, i, &t));
        pack_str(&c->pack, in[0].items[i].key + skip);
        pack_tensor(&c->pack, style(c), &t);
    }
    return ST_OK;
}

static bool in_group(const struct policy_input *in, int i, const char *group)
{
    return strncmp(in->items[i].key, group, strlen(group)) == 0 &&
           in->items[i].key[strlen(group)] == '.';
}

// {"video": {...}, "state": {...}, "language": {task: ...}} of keys such as "video.image".
static enum status pack_nested(struct policy_client *c, const struct policy_input *in, int n)
{
    static const char *const groups[] = {"video", "state"};
    const char *key = strchr(c->options->prompt, '.');
    int counts[2] = {0, 0}, i, g, at = 0;

    for (i = 0; i < in->n_item; i++) {
        if (!in_group(in, i, "video") && !in_group(in, i, "state"))
            return FAIL(ST_INVAL, "'%s': keys of nested observations begin with video. or state.",
                        in->items[i].key);
        counts[in_group(in, i, "state")]++;
    }
    pack_map(&c->pack, (size_t)(counts[0] > 0) + (counts[1] > 0) + (c->options->prompt[0] != '\0'));
    for (g = 0; g < 2; at += counts[g++]) {
        if (!counts[g])
            continue;
        pack_str(&c->pack, groups[g]);
        pack_map(&c->pack, (size_t)counts[g]);
        TRY(pack_items(c, in, n, at, counts[g], groups[g]));
    }
    if (!c->options->prompt[0])
        return ST_OK;
    pack_str(&c->pack, "language");
    pack_map(&c->pack, 1);
    pack_str(&c->pack, key && strncmp(c->options->prompt, "language.", 9) == 0
                           ? key + 1
                           : c->options->prompt);
    pack_prompts(c, in, n);
    return ST_OK;
}

static enum status pack_flat(struct policy_client *c, const struct policy_input *in, int n)
{
    size_t extra;

    TRY(pack_json_members(NULL, c->options->extra, &extra));
    pack_map(&c->pack, (size_t)in->n_item + extra + (c->options->prompt[0] != '\0'));
    TRY(pack_items(c, in, n, 0, in->n_item, NULL));
    if (c->options->prompt[0]) {
        pack_str(&c->pack, c->options->prompt);
        pack_prompts(c, in, n);
    }
    return pack_json_members(&c->pack, c->options->extra, &extra);
}

static enum status pack_observation(struct policy_client *c, const struct policy_input *in, int n)
{
    request(c, "get_action", true);
    if (c->options->gr00t_shape == GR00T_N15)
        return pack_flat(c, in, n);
    pack_map(&c->pack, 2);
    pack_str(&c->pack, "observation");
    TRY(c->options->gr00t_shape == GR00T_NESTED ? pack_nested(c, in, n) : pack_flat(c, in, n));
    pack_str(&c->pack, "options");
    pack_nil(&c->pack);
    return ST_OK;
}

// ------------------------------------------------------------------ actions

// One key's actions of all observations into their columns from `at` on.
static enum status take_part(const struct policy_client *c, const msgpack_object *o, int n, int at,
                             struct policy_chunk *out, int *width)
{
    float v[CHUNK_STEPS_MAX * CHUNK_ACT_MAX];
    bool batch = c->options->gr00t_shape != GR00T_N15;
    struct tensor all, one;
    int i;

    TRY(tensor_read(&all, o));
    if (batch && (all.n_dim != 3 || all.shape[0] != (uint32_t)n))
        return FAIL(ST_INVAL, "not of shape (%d, steps, numbers)", n);
    if (!batch && all.n_dim == 1) // one number a step
        all.shape[all.n_dim++] = 1;
    for (i = 0; i < n; i++) {
        struct tensor_floats f = {.v = v, .cap = sizeof v / sizeof v[0]};

        one = all;
        if (batch)
            TRY(tensor_slice(&one, &all, (uint32_t)i));
        TRY(tensor_floats_from(&f, &one));
        TRY(policy_take_floats(&out[i], &f, at, width));
    }
    return ST_OK;
}

static enum status take_actions(const struct policy_client *c, const msgpack_object *map, int n,
                                struct policy_chunk *out)
{
    const char *p = c->options->actions;
    char key[OPT_STR_MAX];
    int at = 0, width = 0, i;

    if (map->type == MSGPACK_OBJECT_ARRAY && map->via.array.size == 2) // actions and info
        map = &map->via.array.ptr[0];
    while (*p) {
        const msgpack_object *o;
        size_t len = strcspn(p, ",");

        snprintf(key, sizeof key, "%.*s", (int)len, p);
        p += len + (p[len] == ',');
        o = pack_find(map, key);
        if (!o && strncmp(key, "action.", 7) == 0)
            o = pack_find(map, key + 7); // nested replies leave the group out
        if (!o)
            return FAIL(ST_INVAL, "the policy's reply has no '%s'", key);
        if (take_part(c, o, n, at, out, &width) != ST_OK)
            return error_prefix("'%s' of the policy's reply", key);
        at += width;
    }
    for (i = 0; i < n; i++)
        TRY(policy_check_actions(c, &out[i], at));
    return ST_OK;
}

static enum status gr00t_infer(struct policy_client *c, const struct policy_input *in, int n,
                               struct policy_chunk *out, int64_t wait_ns)
{
    msgpack_unpacked u;
    zmq_msg_t m;
    enum status st;

    TRY(pack_observation(c, in, n));
    st = ask(c, &u, &m, wait_ns);
    if (st == ST_OK)
        st = take_actions(c, &u.data, n, out);
    msgpack_unpacked_destroy(&u);
    zmq_msg_close(&m);
    return st;
}

#else

static enum status gr00t_open(struct policy_client *c, int64_t wait_ns, struct text *about)
{
    (void)wait_ns;
    (void)about;
    return FAIL(ST_MISSING, "%s: this simstream was built without ZeroMQ (libzmq3-dev)", c->url);
}

static void gr00t_close(struct policy_client *c)
{
    (void)c;
}

static bool gr00t_alive(struct policy_client *c)
{
    (void)c;
    return false;
}

static enum status gr00t_infer(struct policy_client *c, const struct policy_input *in, int n,
                               struct policy_chunk *out, int64_t wait_ns)
{
    (void)in;
    (void)n;
    (void)out;
    return gr00t_open(c, wait_ns, NULL);
}

#endif

const struct policy_ops gr00t_ops = {.name = "gr00t",
                                     .batches = true,
                                     .open = gr00t_open,
                                     .close = gr00t_close,
                                     .alive = gr00t_alive,
                                     .infer = gr00t_infer};
const struct policy_ops gr00t_n15_ops = {.name = "gr00t",
                                         .open = gr00t_open,
                                         .close = gr00t_close,
                                         .alive = gr00t_alive,
                                         .infer = gr00t_infer};
