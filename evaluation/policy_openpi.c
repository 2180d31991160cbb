#include "evaluation/policy_openpi.h"

#include "evaluation/chunk.h"
#include "evaluation/ws.h"

#include <stdio.h>
#include <string.h>

enum status policy_server_error(const char *text)
{
    const char *last = text, *p;

    for (p = text; (p = strchr(p, '\n')); p++) // a traceback ends with what went wrong
        if (p[1] && p[1] != '\n')
            last = p + 1;
    return FAIL(ST_IO, "the policy server reported an error: %.*s", (int)strcspn(last, "\n"), last);
}

static bool is_map(const uint8_t *bytes, size_t n)
{
    return n > 0 && ((bytes[0] & 0xf0) == 0x80 || bytes[0] == 0xde || bytes[0] == 0xdf);
}

enum status policy_read_map(msgpack_unpacked *u, const uint8_t *bytes, size_t n)
{
    char text[4096];
    const uint8_t *end = bytes + n;
    size_t i, k = 0;

    if (is_map(bytes, n))
        return pack_open(u, bytes, n);
    msgpack_unpacked_init(u);
    // the end of a long traceback is what counts
    for (i = n > sizeof text - 1 ? n - sizeof text + 1 : 0; bytes + i < end; i++)
        text[k++] =
            (char)(bytes[i] == '\n' || (bytes[i] >= 0x20 && bytes[i] < 0x7f) ? bytes[i] : '?');
    text[k] = '\0';
    return k ? policy_server_error(text) : FAIL(ST_PROTO, "the policy server sent nothing");
}

static enum status receive_map(struct policy_client *c, msgpack_unpacked *u, int64_t wait_ns)
{
    const uint8_t *bytes;
    size_t n;

    msgpack_unpacked_init(u);
    TRY(ws_recv(c->conn, &bytes, &n, wait_ns, c->stop));
    return policy_read_map(u, bytes, n);
}

// ------------------------------------------------------------------ the connection

static void openpi_close(struct policy_client *c)
{
    ws_close(c->conn);
    c->conn = NULL;
}

static bool openpi_alive(struct policy_client *c)
{
    return c->conn && ws_alive(c->conn);
}

enum status policy_dial(struct policy_client *c, struct ws **out, int64_t wait_ns)
{
    char header[600];

    if (c->key)
        snprintf(header, sizeof header, "Api-Key %s", c->key);
    return ws_open(out, c->url, c->key ? header : NULL, wait_ns, c->stop);
}

enum status policy_not_greeted(const struct policy_client *c, enum status st)
{
    if (st == ST_TIMEOUT)
        return FAIL(ST_IO, "%s: the server has not said what it is", c->url);
    if (st == ST_CLOSED && !(c->stop && atomic_load(c->stop)))
        return FAIL(ST_IO, "%s: the server closed the connection at once", c->url);
    return st;
}

static enum status openpi_open(struct policy_client *c, int64_t wait_ns, struct text *about)
{
    msgpack_unpacked u;
    enum status st;
    struct ws *ws;

    TRY(policy_dial(c, &ws, wait_ns));
    c->conn = ws;
    st = receive_map(c, &u, wait_ns);
    if (st == ST_OK)
        pack_to_json(about, &u.data);
    msgpack_unpacked_destroy(&u);
    if (st == ST_OK)
        return ST_OK;
    openpi_close(c);
    return policy_not_greeted(c, st);
}

// Send what was packed and get a map back.
static enum status ask(struct policy_client *c, msgpack_unpacked *u, int64_t wait_ns)
{
    int64_t deadline = deadline_after(wait_ns);

    msgpack_unpacked_init(u);
    TRY(pack_done(&c->pack));
    TRY(ws_send(c->conn, c->pack.buf.data, c->pack.buf.size, wait_ns, c->stop));
    return receive_map(c, u, deadline - clock_now_ns());
}

// ------------------------------------------------------------------ one observation, one chunk

// The members that all variants share; `more` follow from the caller.
static enum status pack_observation(struct policy_client *c, const struct policy_input *in,
                                    size_t more)
{
    const struct policy_options *o = c->options;
    struct pack *k = &c->pack;
    size_t n;
    int i;

    TRY(pack_json_members(NULL, o->extra, &n));
    pack_clear(k);
    pack_map(k, (size_t)in->n_item + (o->prompt[0] != '\0') + n + more);
    for (i = 0; i < in->n_item; i++) {
        pack_str(k, in->items[i].key);
        pack_tensor(k, TENSOR_OPENPI, &in->items[i].value);
    }
    if (o->prompt[0]) {
        pack_str(k, o->prompt);
        pack_str(k, in->prompt);
    }
    return pack_json_members(k, o->extra, &n);
}

static enum status read_chunk(const struct policy_client *c, const msgpack_object *map,
                              struct policy_chunk *out)
{
    char text[512];

    if (pack_is(pack_find(map, "type"), "error"))
        return policy_server_error(pack_text(pack_find(map, "message"), text, sizeof text));
    return policy_take_actions(c, map, out);
}

static enum status ask_chunk(struct policy_client *c, struct policy_chunk *out, int64_t wait_ns)
{
    msgpack_unpacked u;
    enum status st = ask(c, &u, wait_ns);

    if (st == ST_OK)
        st = read_chunk(c, &u.data, out);
    msgpack_unpacked_destroy(&u);
    return st;
}

static enum status openpi_infer(struct policy_client *c, const struct policy_input *in, int n,
                                struct policy_chunk *out, int64_t wait_ns)
{
    (void)n; // one: it takes no batches
    TRY(pack_observation(c, in, 0));
    return ask_chunk(c, out, wait_ns);
}

static enum status endpoint_infer(struct policy_client *c, const struct policy_input *in, int n,
                                  struct policy_chunk *out, int64_t wait_ns)
{
    (void)n;
    TRY(pack_observation(c, in, 2));
    pack_str(&c->pack, "session_id");
    pack_str(&c->pack, in->session);
    pack_str(&c->pack, "endpoint");
    pack_str(&c->pack, "infer");
    return ask_chunk(c, out, wait_ns);
}

static enum status endpoint_begin(struct policy_client *c, const struct policy_input *first)
{
    const uint8_t *bytes;
    msgpack_unpacked u;
    enum status st;
    size_t n;

    pack_clear(&c->pack);
    pack_map(&c->pack, 2);
    pack_str(&c->pack, "endpoint");
    pack_str(&c->pack, "reset");
    pack_str(&c->pack, "session_id");
    pack_str(&c->pack, first->session);
    TRY(pack_done(&c->pack));
    TRY(ws_send(c->conn, c->pack.buf.data, c->pack.buf.size, c->options->answer_wait_ns, c->stop));
    TRY(ws_recv(c->conn, &bytes, &n, c->options->answer_wait_ns, c->stop));
    if (n == 16 && memcmp(bytes, "reset successful", 16) == 0) // a text, and no error
        return ST_OK;
    st = policy_read_map(&u, bytes, n);
    if (st == ST_OK)
        st = FAIL(ST_PROTO, "the policy server did not say that the reset was successful");
    msgpack_unpacked_destroy(&u);
    return st;
}

static enum status endpoint_end(struct policy_client *c, bool success)
{
    (void)c;
    (void)success;
    return ST_OK;
}

// ------------------------------------------------------------------ StarVLA: many examples

static void pack_example(struct policy_client *c, const struct policy_input *in)
{
    struct pack *k = &c->pack;
    int i, n_picture = 0;

    for (i = 0; i < in->n_item; i++)
        n_picture += in->items[i].picture;
    pack_map(k, (size_t)(in->n_item - n_picture) + (n_picture > 0) + (c->options->prompt[0] != 0));
    if (n_picture) {
        pack_str(k, "image");
        pack_array(k, (size_t)n_picture);
        for (i = 0; i < in->n_item; i++)
            if (in->items[i].picture)
                pack_tensor(k, TENSOR_OPENPI, &in->items[i].value);
    }
    if (c->options->prompt[0]) {
        pack_str(k, c->options->prompt);
        pack_str(k, in->prompt);
    }
    for (i = 0; i < in->n_item; i++)
        if (!in->items[i].picture) {
            pack_str(k, in->items[i].key);
            pack_tensor(k, TENSOR_OPENPI, &in->items[i].value);
        }
}

static enum status read_examples(const struct policy_client *c, const msgpack_object *map, int n,
                                 struct policy_chunk *out)
{
    const msgpack_object *ok = pack_find(map, "ok");
    const msgpack_object *a = pack_find(pack_find(map, "data"), "actions");
    const msgpack_object *error = pack_find(pack_find(map, "error"), "message");
    float v[CHUNK_STEPS_MAX * CHUNK_ACT_MAX];
    struct tensor all, one;
    char text[512];
    int i, width;

    if (ok && ok->type == MSGPACK_OBJECT_BOOLEAN && !ok->via.boolean)
        return policy_server_error(pack_text(error, text, sizeof text));
    if (!pack_is(pack_find(map, "request_id"), "simstream"))
        return FAIL(ST_PROTO, "the policy server answered another request");
    if (!a)
        return FAIL(ST_INVAL, "the policy's reply has no 'actions'");
    TRY(tensor_read(&all, a));
    if (all.n_dim != 3 || all.shape[0] != (uint32_t)n)
        return FAIL(ST_INVAL, "the policy's actions are not (%d, steps, numbers)", n);
    for (i = 0; i < n; i++) {
        struct tensor_floats f = {.v = v, .cap = sizeof v / sizeof v[0]};

        TRY(tensor_slice(&one, &all, (uint32_t)i));
        TRY(tensor_floats_from(&f, &one));
        TRY(policy_take_floats(&out[i], &f, 0, &width));
        TRY(policy_check_actions(c, &out[i], width));
    }
    return ST_OK;
}

static enum status starvla_infer(struct policy_client *c, const struct policy_input *in, int n,
                                 struct policy_chunk *out, int64_t wait_ns)
{
    struct pack *k = &c->pack;
    msgpack_unpacked u;
    enum status st;
    size_t extra;
    int i;

    TRY(pack_json_members(NULL, c->options->extra, &extra));
    pack_clear(k);
    pack_map(k, 3);
    pack_str(k, "type");
    pack_str(k, "infer");
    pack_str(k, "request_id");
    pack_str(k, "simstream");
    pack_str(k, "payload");
    pack_map(k, 1 + extra);
    pack_str(k, "examples");
    pack_array(k, (size_t)n);
    for (i = 0; i < n; i++)
        pack_example(c, &in[i]);
    TRY(pack_json_members(k, c->options->extra, &extra));
    st = ask(c, &u, wait_ns);
    if (st == ST_OK)
        st = read_examples(c, &u.data, n, out);
    msgpack_unpacked_destroy(&u);
    return st;
}

#define CONNECTION .open = openpi_open, .close = openpi_close, .alive = openpi_alive

const struct policy_ops openpi_ops = {.name = "openpi", CONNECTION, .infer = openpi_infer};
const struct policy_ops roboarena_ops = {.name = "roboarena",
                                         .sessions = true,
                                         CONNECTION,
                                         .begin = endpoint_begin,
                                         .infer = endpoint_infer,
                                         .end = endpoint_end};
// Its endpoint defaults to inference, and what it knows of an episode is in each request: so a
// connection that it closed for idling can be made anew within an episode.
const struct policy_ops vllm_omni_ops = {.name = "vllm-omni", CONNECTION, .infer = openpi_infer};
const struct policy_ops starvla_ops = {
    .name = "starvla", .batches = true, CONNECTION, .infer = starvla_infer};
