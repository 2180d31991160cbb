// tcp and ipc over nng's byte streams.
//
// An operation of nng either moves bytes or ends by its time limit without having moved any, so a
// limit that passes loses nothing: what has arrived stands in `stage` (heads and small messages) or
// in the body of the message that is being received. Operations are waited for without a callback,
// which would cost a switch to one of nng's threads each time.
//
// Threads: the receiving thread owns the receive fields, the sending thread the send fields.
#include "common/base/mem.h"
#include "common/wire/link.h"
#include "common/wire/link_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>

#define STAGE_BYTES     16384
#define BODY_STEP_BYTES (1u << 20) // of a body are allocated before its bytes have come
#define DIAL_TRY_NS     (5 * NS_PER_S)
#define DIAL_PAUSE_NS   (10 * NS_PER_MS)

struct stream_link {
    struct link base;
    nng_stream *stream;
    size_t max_bytes;
    pthread_mutex_t mtx;
    bool closed; // guarded by mtx
    nng_aio *send;
    bool send_broken; // part of a message may be out: nothing can follow it

    nng_aio *recv;
    struct msg *body; // being received; body->len bytes have a place
    struct link_header head;
    size_t got;         // bytes of the body that have come
    size_t first, last; // of the bytes in stage
    uint8_t stage[STAGE_BYTES];
};

struct stream_listener {
    struct listener base;
    nng_stream_listener *nng;
    nng_tls_config *tls; // NULL without
    size_t max_bytes;
    nng_aio *accept;
};

static enum status nng_failed(int rv, const char *what)
{
    switch (rv) {
    case NNG_ECLOSED:
    case NNG_ECONNSHUT:
    case NNG_ECONNRESET:
    case NNG_ECONNABORTED:
        return FAIL(ST_CLOSED, "%s: the connection is closed", what);
    case NNG_ENOMEM:
        return FAIL(ST_NOMEM, "%s: out of memory", what);
    case NNG_EPEERAUTH:
        return FAIL(ST_PROTO, "%s: the peer's certificate is not trusted", what);
    case NNG_ECRYPTO:
        return FAIL(ST_PROTO, "%s: the peer does not speak TLS, or refuses our certificate", what);
    default:
        return FAIL(ST_IO, "%s: %s", what, nng_strerror(rv));
    }
}

static nng_duration to_ms(int64_t ns)
{
    if (ns == WAIT_NEVER)
        return NNG_DURATION_INFINITE;
    return (nng_duration)(ns > INT32_MAX * NS_PER_MS ? INT32_MAX
                                                     : (ns + NS_PER_MS - 1) / NS_PER_MS);
}

// Before an operation starts. nng would let one with no time at all fail without a look, so that
// one is cancelled by await instead.
static void set_limit(nng_aio *aio, int64_t wait_ns)
{
    nng_aio_set_timeout(aio, wait_ns > 0 ? to_ms(wait_ns) : NNG_DURATION_INFINITE);
}

// The end of an operation: ST_OK, ST_TIMEOUT or ST_AGAIN, or why it failed. ST_TIMEOUT may come too
// early, even without a limit: nng may be late with the limit of the operation before. The callers
// go on while there is time left.
static enum status await(nng_aio *aio, int64_t wait_ns, const char *what)
{
    int rv;

    if (wait_ns <= 0)
        nng_aio_cancel(aio); // does nothing if it is done already
    nng_aio_wait(aio);
    rv = nng_aio_result(aio);
    if (rv == NNG_ETIMEDOUT)
        return ST_TIMEOUT;
    if (rv == NNG_ECANCELED)
        return ST_AGAIN;
    return rv == 0 ? ST_OK : nng_failed(rv, what);
}

// nng never ends an operation that is started on a closed stream, so closing waits until one has
// been started, and none is started afterwards.
static enum status start(struct stream_link *sl, void (*op)(nng_stream *, nng_aio *), nng_aio *aio)
{
    bool closed;

    pthread_mutex_lock(&sl->mtx);
    closed = sl->closed;
    if (!closed)
        op(sl->stream, aio);
    pthread_mutex_unlock(&sl->mtx);
    return closed ? FAIL(ST_CLOSED, "this side has closed the connection") : ST_OK;
}

static enum status stream_send(struct link *k, struct msg *m)
{
    struct stream_link *sl = (struct stream_link *)k;
    uint8_t head[LINK_HEADER_BYTES];
    size_t done = 0, all = sizeof head + m->len;

    if (sl->send_broken)
        return FAIL(ST_CLOSED, "the connection is closed");
    link_header_encode(head, m);
    while (done < all) {
        size_t in_head = done < sizeof head ? done : sizeof head;
        size_t in_body = done - in_head;
        nng_iov iov[2] = {{head + in_head, sizeof head - in_head},
                          {m->data + in_body, m->len - in_body}};
        int rv = nng_aio_set_iov(sl->send, 2, iov);

        if (rv == 0) {
            TRY(start(sl, nng_stream_send, sl->send));
            nng_aio_wait(sl->send);
            rv = nng_aio_result(sl->send);
        }
        if (rv != 0) {
            sl->send_broken = true;
            return nng_failed(rv, "cannot send");
        }
        done += nng_aio_count(sl->send);
    }
    msg_free(m);
    return ST_OK;
}

// Receive into the rest of the body and, behind it, the stage.
static enum status recv_some(struct stream_link *sl, int64_t wait_ns)
{
    size_t body = sl->body ? sl->body->len - sl->got : 0, n;
    nng_iov iov[2];
    unsigned n_iov = 0;
    int rv;

    if (body > 0)
        iov[n_iov++] = (nng_iov){sl->body->data + sl->got, body};
    if (!sl->body || sl->body->len == sl->head.len) { // else more of the body comes first
        memmove(sl->stage, sl->stage + sl->first, sl->last - sl->first);
        sl->last -= sl->first;
        sl->first = 0;
        iov[n_iov++] = (nng_iov){sl->stage + sl->last, sizeof sl->stage - sl->last};
    }
    rv = nng_aio_set_iov(sl->recv, n_iov, iov);
    if (rv != 0)
        return nng_failed(rv, "cannot receive");
    set_limit(sl->recv, wait_ns);
    TRY(start(sl, nng_stream_recv, sl->recv));
    TRY(await(sl->recv, wait_ns, "cannot receive"));
    n = nng_aio_count(sl->recv);
    body = n < body ? n : body;
    sl->got += body;
    sl->last += n - body;
    return ST_OK;
}

// A peer that announces a long message has sent an eighth of what is allocated for it.
static enum status body_grow(struct stream_link *sl)
{
    size_t left = sl->head.len - sl->body->len, step = 7 * sl->body->len;

    return msg_append(sl->body, left < step ? left : step) ? ST_OK : ST_NOMEM;
}

static enum status body_begin(struct stream_link *sl)
{
    TRY(link_header_decode(sl->stage + sl->first, sl->max_bytes, &sl->head));
    sl->first += LINK_HEADER_BYTES;
    TRY(msg_new(&sl->body, sl->head.type,
                sl->head.len < BODY_STEP_BYTES ? sl->head.len : BODY_STEP_BYTES));
    sl->body->len = sl->head.len < BODY_STEP_BYTES ? sl->head.len : BODY_STEP_BYTES;
    sl->got = 0;
    return ST_OK;
}

// Move on with what has arrived: ST_OK and *out when a message is complete, ST_AGAIN if not.
static enum status take(struct stream_link *sl, struct msg **out)
{
    size_t n;

    if (!sl->body) {
        if (sl->last - sl->first < LINK_HEADER_BYTES)
            return ST_AGAIN;
        TRY(body_begin(sl));
    }
    for (;;) {
        n = sl->body->len - sl->got;
        n = n < sl->last - sl->first ? n : sl->last - sl->first;
        memcpy(sl->body->data + sl->got, sl->stage + sl->first, n);
        sl->got += n;
        sl->first += n;
        if (sl->got < sl->body->len)
            return ST_AGAIN;
        if (sl->got == sl->head.len)
            break;
        TRY(body_grow(sl));
    }
    TRY(link_body_check(&sl->head, sl->body->data));
    *out = sl->body;
    sl->body = NULL;
    return ST_OK;
}

static int64_t time_left(int64_t wait_ns, int64_t deadline)
{
    int64_t left;

    if (wait_ns <= 0 || deadline == WAIT_NEVER)
        return wait_ns;
    left = deadline - clock_now_ns();
    return left > 0 ? left : 0;
}

static enum status stream_recv(struct link *k, struct msg **out, int64_t wait_ns)
{
    struct stream_link *sl = (struct stream_link *)k;
    int64_t deadline = deadline_after(wait_ns), left = wait_ns;
    enum status st;

    for (;;) {
        st = take(sl, out);
        if (st != ST_AGAIN)
            return st;
        st = recv_some(sl, left);
        left = time_left(wait_ns, deadline);
        if (st == ST_TIMEOUT && left > 0)
            continue;
        if (st != ST_OK) // when the time is over, what is here already is still taken
            return st == ST_AGAIN ? wait_over(wait_ns) : st;
    }
}

static void stream_set_max(struct link *k, size_t max_bytes)
{
    ((struct stream_link *)k)->max_bytes = max_bytes;
}

static void stream_close(struct link *k)
{
    struct stream_link *sl = (struct stream_link *)k;

    pthread_mutex_lock(&sl->mtx);
    sl->closed = true;
    nng_stream_close(sl->stream);
    pthread_mutex_unlock(&sl->mtx);
}

static void stream_destroy(struct link *k)
{
    struct stream_link *sl = (struct stream_link *)k;

    if (sl->recv)
        nng_aio_free(sl->recv);
    if (sl->send)
        nng_aio_free(sl->send);
    nng_stream_free(sl->stream);
    pthread_mutex_destroy(&sl->mtx);
    msg_free(sl->body);
    mem_free(sl);
}

static const struct link_ops link_ops = {
    .send = stream_send,
    .recv = stream_recv,
    .set_max = stream_set_max,
    .close = stream_close,
    .destroy = stream_destroy,
};

// Takes the stream, always.
static enum status link_new(struct link **out, nng_stream *stream, size_t max_bytes)
{
    struct stream_link *sl = mem_alloc(1, sizeof *sl);
    int rv;

    if (!sl) {
        nng_stream_free(stream);
        return ST_NOMEM;
    }
    sl->base.ops = &link_ops;
    sl->stream = stream;
    sl->max_bytes = max_bytes;
    pthread_mutex_init(&sl->mtx, NULL);
    rv = nng_aio_alloc(&sl->recv, NULL, NULL);
    if (rv == 0)
        rv = nng_aio_alloc(&sl->send, NULL, NULL);
    if (rv != 0) {
        stream_close(&sl->base);
        stream_destroy(&sl->base);
        return nng_failed(rv, "cannot set up a connection");
    }
    // tcp only; ipc answers that it does not know these
    (void)nng_stream_set_bool(stream, NNG_OPT_TCP_NODELAY, true);
    (void)nng_stream_set_bool(stream, NNG_OPT_TCP_KEEPALIVE, true);
    *out = &sl->base;
    return ST_OK;
}

// One attempt; *again tells whether another one may have more luck.
static enum status dial_once(nng_stream_dialer *dialer, nng_aio *aio, const char *url,
                             int64_t limit_ns, nng_stream **out, bool *again)
{
    int rv;

    nng_aio_set_timeout(aio, to_ms(limit_ns));
    nng_stream_dialer_dial(dialer, aio);
    nng_aio_wait(aio);
    rv = nng_aio_result(aio);
    *again = rv != NNG_EADDRINVAL && rv != NNG_EPERM;
    if (rv == 0)
        *out = nng_aio_get_output(aio, 0);
    else if (rv == NNG_EADDRINVAL)
        return FAIL(ST_IO, "cannot connect to %s: unknown host or bad address", url);
    else if (rv == NNG_ECONNREFUSED || rv == NNG_ENOENT)
        return FAIL(ST_IO, "cannot connect to %s: nobody listens there", url);
    else if (rv != 0)
        return FAIL(ST_IO, "cannot connect to %s: %s", url, nng_strerror(rv));
    return ST_OK;
}

static enum status dial_until(nng_stream_dialer *dialer, nng_aio *aio, const char *url,
                              int64_t wait_ns, nng_stream **out)
{
    int64_t deadline = deadline_after(wait_ns), left = wait_ns > 0 ? wait_ns : DIAL_TRY_NS;
    enum status st;
    bool again;

    for (;;) {
        st = dial_once(dialer, aio, url, left < DIAL_TRY_NS ? left : DIAL_TRY_NS, out, &again);
        if (st == ST_OK || !again || wait_ns == 0)
            return st;
        if (deadline != WAIT_NEVER)
            left = deadline - clock_now_ns();
        if (left <= 0)
            return st;
        clock_sleep_ns(left < DIAL_PAUSE_NS ? left : DIAL_PAUSE_NS);
    }
}

// The certificates of a dialer or listener; freed by the caller.
static enum status tls_make(nng_tls_config **out, nng_tls_mode mode, const struct link_tls *tls)
{
    const char *file = mode == NNG_TLS_MODE_SERVER ? tls->cert_file : tls->ca_file;
    nng_tls_config *config;
    int rv = nng_tls_config_alloc(&config, mode);

    if (rv == NNG_ENOTSUP)
        return FAIL(ST_MISSING, "this libnng was built without TLS");
    if (rv != 0)
        return nng_failed(rv, "TLS");
    rv = nng_tls_config_version(config, NNG_TLS_1_2, NNG_TLS_1_3);
    if (rv == NNG_ENOTSUP) // an mbed TLS that ends at 1.2
        rv = nng_tls_config_version(config, NNG_TLS_1_2, NNG_TLS_1_2);
    if (rv == 0 && mode == NNG_TLS_MODE_SERVER)
        rv = nng_tls_config_cert_key_file(config, file, NULL);
    if (rv == 0 && mode == NNG_TLS_MODE_CLIENT) {
        rv = nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED);
        if (rv == 0)
            rv = nng_tls_config_ca_file(config, file);
        if (rv == 0 && tls->server_name && *tls->server_name)
            rv = nng_tls_config_server_name(config, tls->server_name);
    }
    if (rv != 0) {
        nng_tls_config_free(config);
        return FAIL(ST_INVAL, "TLS file %s: %s", file, nng_strerror(rv));
    }
    *out = config;
    return ST_OK;
}

static enum status dialer_set_tls(nng_stream_dialer *dialer, const struct link_tls *tls)
{
    nng_tls_config *config;
    int rv;

    TRY(tls_make(&config, NNG_TLS_MODE_CLIENT, tls));
    rv = nng_stream_dialer_set_ptr(dialer, NNG_OPT_TLS_CONFIG, config);
    nng_tls_config_free(config);
    return rv == 0 ? ST_OK : nng_failed(rv, "TLS");
}

enum status stream_dial(struct link **out, const char *url, size_t max_bytes, int64_t wait_ns,
                        const struct link_tls *tls)
{
    nng_stream_dialer *dialer = NULL;
    nng_stream *stream = NULL;
    nng_aio *aio = NULL;
    enum status st = ST_OK;
    int rv = nng_stream_dialer_alloc(&dialer, url);

    if (rv == 0)
        rv = nng_aio_alloc(&aio, NULL, NULL);
    if (rv == 0 && tls)
        st = dialer_set_tls(dialer, tls);
    if (st != ST_OK)
        ; // the dialer is freed below
    else if (rv == 0)
        st = dial_until(dialer, aio, url, wait_ns, &stream);
    else
        st =
            FAIL(rv == NNG_ENOMEM ? ST_NOMEM : ST_INVAL, "address '%s': %s", url, nng_strerror(rv));
    if (aio)
        nng_aio_free(aio);
    if (dialer)
        nng_stream_dialer_free(dialer);
    TRY(st);
    return link_new(out, stream, max_bytes);
}

static enum status stream_accept(struct listener *base, struct link **out, int64_t wait_ns)
{
    struct stream_listener *l = (struct stream_listener *)base;
    int64_t deadline = deadline_after(wait_ns), left = wait_ns;
    enum status st;

    do {
        set_limit(l->accept, left);
        nng_stream_listener_accept(l->nng, l->accept);
        st = await(l->accept, left, l->base.url);
        left = time_left(wait_ns, deadline);
    } while (st == ST_TIMEOUT && left > 0);
    return st == ST_OK ? link_new(out, nng_aio_get_output(l->accept, 0), l->max_bytes) : st;
}

static void stream_unlisten(struct listener *base)
{
    nng_stream_listener_close(((struct stream_listener *)base)->nng);
}

static void stream_listener_destroy(struct listener *base)
{
    struct stream_listener *l = (struct stream_listener *)base;

    if (l->accept)
        nng_aio_free(l->accept);
    nng_stream_listener_free(l->nng);
    if (l->tls)
        nng_tls_config_free(l->tls);
    mem_free(l);
}

static const struct listener_ops listener_ops = {
    .accept = stream_accept,
    .close = stream_unlisten,
    .destroy = stream_listener_destroy,
};

// The socket of a dead process is replaced, but never a file of somebody else's.
static enum status check_path(const char *url, const char *path)
{
    struct stat sb;

    if (lstat(path, &sb) == 0 && !S_ISSOCK(sb.st_mode))
        return FAIL(ST_IO, "cannot listen on %s: the file exists and is not a socket", url);
    return ST_OK;
}

static enum status listen_failed(int rv, const char *url)
{
    if (rv == NNG_ENOMEM)
        return FAIL(ST_NOMEM, "cannot listen on %s: out of memory", url);
    if (rv == NNG_EADDRINUSE)
        return FAIL(ST_IO, "cannot listen on %s: the address is in use", url);
    return FAIL(ST_IO, "cannot listen on %s: %s", url, nng_strerror(rv));
}

// The address with the port that was bound.
static enum status name_listener(struct stream_listener *l, const char *url, bool tcp)
{
    int port, rv;

    if (!tcp) {
        snprintf(l->base.url, sizeof l->base.url, "%s", url);
        return ST_OK;
    }
    rv = nng_stream_listener_get_int(l->nng, NNG_OPT_TCP_BOUND_PORT, &port);
    if (rv != 0)
        return listen_failed(rv, url);
    snprintf(l->base.url, sizeof l->base.url, "%.*s:%d", (int)(strrchr(url, ':') - url), url, port);
    return ST_OK;
}

static enum status listener_set_tls(struct stream_listener *l, const struct link_tls *tls)
{
    int rv;

    TRY(tls_make(&l->tls, NNG_TLS_MODE_SERVER, tls));
    rv = nng_stream_listener_set_ptr(l->nng, NNG_OPT_TLS_CONFIG, l->tls);
    return rv == 0 ? ST_OK : nng_failed(rv, "TLS");
}

enum status stream_listen(struct listener **out, const char *url, const char *ipc_path,
                          size_t max_bytes, const struct link_tls *tls)
{
    struct stream_listener *l;
    enum status st;
    int rv;

    if (ipc_path)
        TRY(check_path(url, ipc_path));
    l = mem_alloc(1, sizeof *l);
    if (!l)
        return ST_NOMEM;
    l->base.ops = &listener_ops;
    l->max_bytes = max_bytes;
    rv = nng_stream_listener_alloc(&l->nng, url);
    if (rv != 0) {
        mem_free(l);
        return listen_failed(rv, url);
    }
    st = tls ? listener_set_tls(l, tls) : ST_OK;
    if (st == ST_OK) {
        rv = nng_aio_alloc(&l->accept, NULL, NULL);
        if (rv == 0)
            rv = nng_stream_listener_listen(l->nng);
        st = rv == 0 ? name_listener(l, url, !ipc_path) : listen_failed(rv, url);
    }
    if (st != ST_OK) {
        stream_unlisten(&l->base);
        stream_listener_destroy(&l->base);
        return st;
    }
    *out = &l->base;
    return ST_OK;
}
