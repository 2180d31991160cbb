// nng frees a handler when its last connection has gone, which may be after http_close; so the
// pages and the struct are kept until every handler has been freed.
#include "common/wire/http.h"

#include "common/base/mem.h"

#include <endian.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <nng/nng.h>
#include <nng/supplemental/http/http.h>

#define BODY_MAX      (16u << 20)
#define CLOSE_WAIT_NS (2 * NS_PER_S)

struct route {
    struct http *http;
    struct http_page page;
};

struct http {
    nng_http_server *server;
    atomic_int refs; // handlers and the owner
    pthread_mutex_t mtx;
    bool closed; // guarded by mtx
    void *arg;
    char address[HTTP_ADDRESS_MAX];
    int n;
    struct route route[HTTP_PAGES_MAX];
};

static void drop(struct http *h)
{
    if (atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&h->mtx);
    mem_free(h);
}

static void route_free(void *arg)
{
    drop(((struct route *)arg)->http);
}

static int make(struct route *route, struct text *body)
{
    struct http *h = route->http;
    int status = 503;

    pthread_mutex_lock(&h->mtx);
    if (!h->closed)
        status = route->page.make(h->arg, body);
    pthread_mutex_unlock(&h->mtx);
    return text_get(body) ? status : 500;
}

// No page loads anything from elsewhere, or may stand inside another site's page.
static int set_headers(nng_http_res *res, const char *type)
{
    static const char *const header[][2] = {
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src "
                                    "'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'"},
    };
    int rv = nng_http_res_set_header(res, "Content-Type", type);
    size_t i;

    for (i = 0; i < sizeof header / sizeof header[0] && rv == 0; i++)
        rv = nng_http_res_set_header(res, header[i][0], header[i][1]);
    return rv;
}

static void answer(nng_aio *aio)
{
    struct route *route = nng_http_handler_get_data(nng_aio_get_input(aio, 1));
    nng_http_res *res = NULL;
    struct text body;
    int rv = nng_http_res_alloc(&res), status;

    text_init(&body);
    if (rv == 0) {
        status = make(route, &body);
        rv = nng_http_res_set_status(res, (uint16_t)status);
        if (rv == 0)
            rv = set_headers(res, route->page.type);
        if (rv == 0)
            rv = nng_http_res_copy_data(res, body.buf ? body.buf : "", body.len);
    }
    text_fini(&body);
    if (rv == 0)
        nng_aio_set_output(aio, 0, res);
    else if (res)
        nng_http_res_free(res);
    nng_aio_finish(aio, rv);
}

static int add_page(struct http *h, const struct http_page *page)
{
    struct route *route = &h->route[h->n];
    nng_http_handler *handler;
    int rv = nng_http_handler_alloc(&handler, page->path, answer);

    if (rv != 0)
        return rv;
    route->http = h;
    route->page = *page;
    h->n++;
    atomic_fetch_add(&h->refs, 1);
    rv = nng_http_handler_set_data(handler, route, route_free);
    if (rv == 0)
        rv = nng_http_server_add_handler(h->server, handler);
    if (rv != 0)
        nng_http_handler_free(handler);
    return rv;
}

static int name_server(struct http *h, const char *host)
{
    nng_sockaddr sa;
    int rv = nng_http_server_get_addr(h->server, &sa);

    if (rv == 0)
        snprintf(h->address, sizeof h->address, "%s:%d", host,
                 be16toh(sa.s_family == NNG_AF_INET6 ? sa.s_in6.sa_port : sa.s_in.sa_port));
    return rv;
}

static int start(struct http *h, const nng_url *url, const struct http_page *pages, int n)
{
    int i, rv = nng_http_server_hold(&h->server, url);

    for (i = 0; i < n && rv == 0; i++)
        rv = add_page(h, &pages[i]);
    if (rv == 0)
        rv = nng_http_server_start(h->server);
    return rv == 0 ? name_server(h, url->u_hostname) : rv;
}

static enum status parse(nng_url **out, const char *address, const char *path)
{
    const char *scheme = strstr(address, "://") ? "" : "http://";
    char text[3 * HTTP_ADDRESS_MAX];

    if (strlen(address) + strlen(path) >= HTTP_ADDRESS_MAX)
        return FAIL(ST_INVAL, "an address of %zu characters, at most %d are possible",
                    strlen(address), HTTP_ADDRESS_MAX - 1);
    snprintf(text, sizeof text, "%s%s%s", scheme, address, path);
    if (!strrchr(address, ':') || nng_url_parse(out, text) != 0)
        return FAIL(ST_INVAL, "address '%s': expected host:port", address);
    if (strcmp((*out)->u_scheme, "http") != 0) {
        nng_url_free(*out);
        return FAIL(ST_INVAL, "address '%s': expected host:port or http://host:port", address);
    }
    return ST_OK;
}

enum status http_open(struct http **out, const char *address, const struct http_page *pages, int n,
                      void *arg)
{
    struct http *h;
    nng_url *url;
    int rv;

    if (n > HTTP_PAGES_MAX)
        return FAIL(ST_INVAL, "%d pages, at most %d are possible", n, HTTP_PAGES_MAX);
    TRY(parse(&url, address, ""));
    h = mem_alloc(1, sizeof *h);
    if (!h) {
        nng_url_free(url);
        return ST_NOMEM;
    }
    pthread_mutex_init(&h->mtx, NULL);
    atomic_store(&h->refs, 1);
    h->arg = arg;
    rv = start(h, url, pages, n);
    nng_url_free(url);
    if (rv != 0) {
        http_close(h);
        return FAIL(ST_IO, "cannot serve HTTP at %s: %s", address, nng_strerror(rv));
    }
    *out = h;
    return ST_OK;
}

const char *http_address(const struct http *h)
{
    return h->address;
}

void http_close(struct http *h)
{
    int64_t deadline = deadline_after(CLOSE_WAIT_NS);

    if (!h)
        return;
    pthread_mutex_lock(&h->mtx);
    h->closed = true;
    pthread_mutex_unlock(&h->mtx);
    if (h->server) {
        nng_http_server_stop(h->server);
        nng_http_server_release(h->server);
    }
    while (atomic_load(&h->refs) > 1 && clock_now_ns() < deadline)
        clock_sleep_ns(NS_PER_MS);
    drop(h);
}

// ------------------------------------------------------------------ the client

static int transact(nng_http_client *client, nng_aio *aio, nng_http_req *req, nng_http_res *res)
{
    nng_http_client_transact(client, req, res, aio);
    nng_aio_wait(aio);
    return nng_aio_result(aio);
}

static enum status take_body(nng_http_res *res, const char *address, const char *path,
                             struct text *out)
{
    int code = nng_http_res_get_status(res);
    void *data = NULL;
    size_t n = 0;

    nng_http_res_get_data(res, &data, &n);
    if (code != 200 && code != 503)
        return FAIL(ST_IO, "%s%s: HTTP status %d", address, path, code);
    if (n > BODY_MAX)
        return FAIL(ST_IO, "%s%s: %zu bytes, at most %u are taken", address, path, n, BODY_MAX);
    text_bytes(out, data, n);
    return text_get(out) ? ST_OK : ST_NOMEM;
}

enum status http_get(const char *address, const char *path, int64_t wait_ns, struct text *out)
{
    nng_http_client *client = NULL;
    nng_http_req *req = NULL;
    nng_http_res *res = NULL;
    nng_aio *aio = NULL;
    enum status st;
    nng_url *url;
    int rv;

    TRY(parse(&url, address, path));
    rv = nng_http_client_alloc(&client, url);
    if (rv == 0)
        rv = nng_http_req_alloc(&req, url);
    if (rv == 0)
        rv = nng_http_res_alloc(&res);
    if (rv == 0)
        rv = nng_aio_alloc(&aio, NULL, NULL);
    if (rv == 0)
        rv = nng_http_req_set_header(req, "Connection", "close");
    if (rv == 0) {
        nng_aio_set_timeout(aio, (nng_duration)(wait_ns / NS_PER_MS));
        rv = transact(client, aio, req, res);
    }
    st = rv == 0 ? take_body(res, address, path, out)
                 : FAIL(ST_IO, "%s%s: %s", address, path, nng_strerror(rv));
    if (aio)
        nng_aio_free(aio);
    if (res)
        nng_http_res_free(res);
    if (req)
        nng_http_req_free(req);
    if (client)
        nng_http_client_free(client);
    nng_url_free(url);
    return st;
}
