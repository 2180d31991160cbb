#include "evaluation/policy_act.h"

#include "evaluation/chunk.h"
#include "evaluation/nng_wait.h"
#include "evaluation/policy_openpi.h"

#include "common/base/json.h"
#include "common/base/mem.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <nng/supplemental/http/http.h>

#define REPLY_MAX   (64u << 20)
#define NESTING_MAX 3 // JSON texts within JSON texts

struct act {
    nng_http_client *client;
    nng_url *url;
    struct nng_wait wait;
};

// ------------------------------------------------------------------ base64

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void base64(struct text *out, const uint8_t *p, size_t n)
{
    char buf[4096];
    size_t i, k = 0;

    for (i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);

        buf[k++] = letters[v >> 18];
        buf[k++] = letters[v >> 12 & 63];
        buf[k++] = (char)(i + 1 < n ? letters[v >> 6 & 63] : '=');
        buf[k++] = (char)(i + 2 < n ? letters[v & 63] : '=');
        if (k == sizeof buf) {
            text_bytes(out, buf, k);
            k = 0;
        }
    }
    text_bytes(out, buf, k);
}

// In place; false if it is none. The bytes never outgrow the text.
static bool unbase64(char *text, size_t *n)
{
    size_t len = strlen(text), i, k = 0;
    uint32_t v = 0;
    uint8_t *out = (uint8_t *)text;

    while (len > 0 && text[len - 1] == '=')
        len--;
    if (len % 4 == 1)
        return false;
    for (i = 0; i < len; i++) {
        const char *at = text[i] ? strchr(letters, text[i]) : NULL;

        if (!at)
            return false;
        v = v << 6 | (uint32_t)(at - letters);
        if (i % 4 == 1)
            out[k++] = (uint8_t)(v >> 4);
        if (i % 4 == 2)
            out[k++] = (uint8_t)(v >> 2);
        if (i % 4 == 3)
            out[k++] = (uint8_t)v;
    }
    *n = k;
    return true;
}

// ------------------------------------------------------------------ the body of a request

void act_tensor(struct text *out, const struct tensor *t, bool twice)
{
    const char *q = twice ? "\\\"" : "\"";
    int i;

    text_add(out, "%s{%s__numpy__%s: %s", twice ? "\"" : "", q, q, q);
    base64(out, t->data, tensor_bytes(t));
    text_add(out, "%s, %sdtype%s: %s%s%s, %sshape%s: [", q, q, q, q, tensor_type_name(t->type), q,
             q, q);
    for (i = 0; i < t->n_dim; i++)
        text_add(out, i ? ", %u" : "%u", t->shape[i]);
    text_add(out, "]}%s", twice ? "\"" : "");
}

static void key(struct text *out, const char *name, bool first)
{
    struct json j;

    json_init(&j);
    json_str(&j, NULL, name);
    text_add(out, first ? "%s: " : ", %s: ", json_text(&j) ? json_text(&j) : "");
    json_fini(&j);
}

static void value(struct text *out, const char *text)
{
    struct json j;

    json_init(&j);
    json_str(&j, NULL, text);
    text_add(out, "%s", json_text(&j) ? json_text(&j) : "\"\"");
    json_fini(&j);
}

static void write_body(struct policy_client *c, const struct policy_input *in, struct text *out)
{
    const struct policy_options *o = c->options;
    const char *extra = strchr(o->extra, '{'), *end = strrchr(o->extra, '}');
    bool first = true;
    int i;

    text_add(out, "{");
    for (i = 0; i < in->n_item; i++, first = false) {
        key(out, in->items[i].key, first);
        act_tensor(out, &in->items[i].value, o->act_double);
    }
    if (o->prompt[0]) {
        key(out, o->prompt, first);
        value(out, in->prompt);
        first = false;
    }
    if (extra && end > extra + 1 && strspn(extra + 1, " \t\r\n") < (size_t)(end - extra - 1)) {
        text_add(out, first ? "" : ", ");
        text_bytes(out, extra + 1, (size_t)(end - extra - 1));
    }
    text_add(out, "}");
}

// ------------------------------------------------------------------ the reply

static enum status read_numpy(struct tensor_floats *f, cJSON *o)
{
    cJSON *data = cJSON_GetObjectItemCaseSensitive(o, "__numpy__"), *d;
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(o, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(o, "shape");
    struct tensor t = {.n_dim = 0};
    uint64_t want;
    size_t n;

    if (!cJSON_IsString(data) || !cJSON_IsString(type) || !cJSON_IsArray(shape) ||
        cJSON_GetArraySize(shape) > TENSOR_DIMS || !unbase64(data->valuestring, &n))
        return FAIL(ST_PROTO, "an array is damaged");
    TRY(tensor_type_find(&t.type, type->valuestring, strlen(type->valuestring)));
    want = tensor_bytes(&t);
    cJSON_ArrayForEach(d, shape)
    {
        if (!cJSON_IsNumber(d) || d->valuedouble < 0 || d->valuedouble > REPLY_MAX ||
            d->valuedouble != floor(d->valuedouble) || want > REPLY_MAX)
            return FAIL(ST_PROTO, "an array's shape is damaged");
        t.shape[t.n_dim++] = (uint32_t)d->valuedouble;
        want *= (uint64_t)d->valuedouble;
    }
    if (want != n)
        return FAIL(ST_PROTO, "an array has %zu bytes, its shape needs another number", n);
    t.data = data->valuestring;
    return tensor_floats_from(f, &t);
}

// cJSON bounds the depth of lists.
static enum status read_numbers(struct tensor_floats *f, const cJSON *j, int dim)
{
    const cJSON *c;

    if (!cJSON_IsArray(j)) {
        if (!cJSON_IsNumber(j) || dim != f->n_dim || f->n == f->cap)
            return FAIL(ST_PROTO, "not a list of actions of equal length");
        f->v[f->n++] = (float)j->valuedouble;
        return ST_OK;
    }
    if (dim == f->n_dim || cJSON_GetArraySize(j) != (int)f->shape[dim])
        return FAIL(ST_PROTO, "not a list of actions of equal length");
    cJSON_ArrayForEach(c, j) TRY(read_numbers(f, c, dim + 1));
    return ST_OK;
}

// A list may be one of arrays: OpenVLA-OFT's chunk.
static enum status read_value(struct tensor_floats *f, cJSON *j)
{
    cJSON *c;

    if (cJSON_IsObject(j))
        return read_numpy(f, j);
    if (cJSON_IsArray(j) && cJSON_IsObject(j->child)) {
        struct tensor_floats part = {.v = f->v, .cap = f->cap};
        size_t width = 0;
        int n = 0;

        cJSON_ArrayForEach(c, j)
        {
            if (!cJSON_IsObject(c))
                return FAIL(ST_PROTO, "not a list of arrays");
            TRY(read_numpy(&part, c));
            if (n++ && part.n != width)
                return FAIL(ST_PROTO, "not a list of actions of equal length");
            width = part.n;
            part.v += width;
            part.cap -= width;
        }
        f->n_dim = 2;
        f->shape[0] = (uint32_t)n;
        f->shape[1] = (uint32_t)width;
        f->n = (size_t)n * width;
        return ST_OK;
    }
    f->n = 0;
    f->n_dim = 0;
    for (c = j; cJSON_IsArray(c) && f->n_dim < TENSOR_DIMS; c = c->child)
        f->shape[f->n_dim++] = (uint32_t)cJSON_GetArraySize(c);
    return read_numbers(f, j, 0);
}

static enum status read_reply(const struct policy_client *c, cJSON *j, int depth,
                              struct policy_chunk *out)
{
    float v[CHUNK_STEPS_MAX * CHUNK_ACT_MAX];
    struct tensor_floats f = {.v = v, .cap = sizeof v / sizeof v[0]};
    const char *name = c->options->actions;
    cJSON *inner, *encoded;
    enum status st;
    int width;

    encoded = cJSON_GetObjectItemCaseSensitive(j, "encoded");
    if (cJSON_IsString(encoded))
        j = encoded;
    if (cJSON_IsString(j)) {
        inner = depth < NESTING_MAX ? config_parse(j->valuestring) : NULL;
        if (!inner)
            return policy_server_error(j->valuestring); // the text "error", or any other
        st = read_reply(c, inner, depth + 1, out);
        cJSON_Delete(inner);
        return st;
    }
    if (name[0]) {
        j = cJSON_GetObjectItemCaseSensitive(j, name);
        if (!j)
            return FAIL(ST_INVAL, "the policy's reply has no '%s'", name);
        if (cJSON_IsString(j) && depth < NESTING_MAX) {
            struct policy_options bare = *c->options;
            struct policy_client plain = *c;

            bare.actions[0] = '\0';
            plain.options = &bare;
            return read_reply(&plain, j, depth + 1, out);
        }
    }
    TRY(read_value(&f, j));
    TRY(policy_take_floats(out, &f, 0, &width));
    return policy_check_actions(c, out, width);
}

enum status act_read(const struct policy_client *c, const char *body, size_t n,
                     struct policy_chunk *out)
{
    char *text = mem_alloc(n + 1, 1);
    enum status st;
    cJSON *j;

    if (!text)
        return ST_NOMEM;
    memcpy(text, body, n);
    j = strlen(text) == n ? config_parse(text) : NULL;
    st = j ? read_reply(c, j, 0, out)
           : FAIL(ST_PROTO, "the policy server's reply is no JSON: %.100s", text);
    cJSON_Delete(j);
    mem_free(text);
    return st;
}

// ------------------------------------------------------------------ the connection

static void act_close(struct policy_client *c)
{
    struct act *a = c->conn;

    if (!a)
        return;
    nng_wait_fini(&a->wait);
    if (a->client)
        nng_http_client_free(a->client);
    if (a->url)
        nng_url_free(a->url);
    mem_free(a);
    c->conn = NULL;
}

static bool act_alive(struct policy_client *c)
{
    return c->conn; // each request has its own connection
}

// The protocol has no handshake, so that all there is to learn is whether somebody listens.
static enum status knock(struct policy_client *c, int64_t wait_ns)
{
    struct act *a = c->conn;
    int rv;

    nng_wait_begin(&a->wait);
    nng_http_client_connect(a->client, a->wait.aio);
    rv = nng_wait_or_cancel(&a->wait, wait_ns, c->stop);
    if (rv == 0) {
        nng_http_conn_close(nng_aio_get_output(a->wait.aio, 0));
        return ST_OK;
    }
    if (c->stop && atomic_load(c->stop))
        return FAIL(ST_CLOSED, "stopped while connecting to %s", c->url);
    return FAIL(ST_IO, "cannot connect to %s: %s", c->url,
                rv == NNG_ECANCELED ? "no answer" : nng_strerror(rv));
}

static enum status act_open(struct policy_client *c, int64_t wait_ns, struct text *about)
{
    struct act *a = mem_alloc(1, sizeof *a);
    char url[OPT_STR_MAX + 8];
    const char *host = strstr(c->url, "://");
    enum status st;

    if (!a)
        return ST_NOMEM;
    c->conn = a;
    // without a path it is the usual one
    snprintf(url, sizeof url, "%s%s", c->url,
             host && !strchr(host + 3, '/')                    ? "/act"
             : host && strcmp(strchr(host + 3, '/'), "/") == 0 ? "act"
                                                               : "");
    if (nng_wait_init(&a->wait) != ST_OK) {
        act_close(c);
        return ST_NOMEM;
    }
    if (nng_url_parse(&a->url, url) != 0 || nng_http_client_alloc(&a->client, a->url) != 0) {
        act_close(c);
        return FAIL(ST_INVAL, "'%.200s' is no address of an HTTP server", c->url);
    }
    st = knock(c, wait_ns);
    if (st != ST_OK) {
        act_close(c);
        return st;
    }
    text_add(about, "{}");
    return ST_OK;
}

static enum status exchange(struct policy_client *c, nng_http_req *req, nng_http_res *res,
                            int64_t wait_ns)
{
    struct act *a = c->conn;
    int rv;

    nng_wait_begin(&a->wait);
    nng_http_client_transact(a->client, req, res, a->wait.aio);
    rv = nng_wait_or_cancel(&a->wait, wait_ns, c->stop);
    if (rv == NNG_ECANCELED)
        return c->stop && atomic_load(c->stop) ? FAIL(ST_CLOSED, "stopped") : ST_TIMEOUT;
    if (rv != 0)
        return FAIL(ST_IO, "cannot reach %s: %s", c->url, nng_strerror(rv));
    return ST_OK;
}

static enum status read_response(const struct policy_client *c, nng_http_res *res,
                                 struct policy_chunk *out)
{
    char text[400];
    void *body;
    size_t n;

    nng_http_res_get_data(res, &body, &n);
    if (nng_http_res_get_status(res) != 200) {
        snprintf(text, sizeof text, "HTTP status %d: %.*s", nng_http_res_get_status(res),
                 (int)(n < 300 ? n : 300), n ? (const char *)body : "");
        return policy_server_error(text);
    }
    if (n > REPLY_MAX)
        return FAIL(ST_PROTO, "a reply of %zu bytes", n);
    return act_read(c, body, n, out);
}

static enum status act_infer(struct policy_client *c, const struct policy_input *in, int n,
                             struct policy_chunk *out, int64_t wait_ns)
{
    struct act *a = c->conn;
    nng_http_req *req = NULL;
    nng_http_res *res = NULL;
    struct text body;
    enum status st = FAIL(ST_NOMEM, "no memory for a request to %s", c->url);

    (void)n; // one: it takes no batches
    text_init(&body);
    write_body(c, in, &body);
    if (text_get(&body) && nng_http_req_alloc(&req, a->url) == 0 && nng_http_res_alloc(&res) == 0 &&
        nng_http_req_set_method(req, "POST") == 0 &&
        nng_http_req_set_header(req, "Content-Type", "application/json") == 0 &&
        nng_http_req_copy_data(req, body.buf, body.len) == 0)
        st = exchange(c, req, res, wait_ns);
    if (st == ST_OK)
        st = read_response(c, res, out);
    if (res)
        nng_http_res_free(res);
    if (req)
        nng_http_req_free(req);
    text_fini(&body);
    return st;
}

const struct policy_ops act_ops = {
    .name = "act", .open = act_open, .close = act_close, .alive = act_alive, .infer = act_infer};
