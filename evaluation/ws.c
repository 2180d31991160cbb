// One receive is always under way, so that a server's closing is noticed while nothing is asked of
// it.
#include "evaluation/ws.h"

#include "evaluation/nng_wait.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

struct ws {
    nng_stream *stream;
    struct nng_wait send, recv;
    nng_msg *held; // received last
    char url[512];
};

static enum status set_up(nng_stream_dialer *d, const char *header)
{
    int rv = nng_stream_dialer_set_bool(d, "ws:msgmode", true);

    if (rv != 0)
        return FAIL(ST_MISSING, "this libnng has no message mode for WebSockets: %s",
                    nng_strerror(rv));
    rv = nng_stream_dialer_set_bool(d, NNG_OPT_WS_RECV_TEXT, true);
    if (rv == 0)
        rv = nng_stream_dialer_set_size(d, NNG_OPT_WS_RECVMAXFRAME, WS_MESSAGE_MAX);
    if (rv == 0)
        rv = nng_stream_dialer_set_size(d, NNG_OPT_RECVMAXSZ, WS_MESSAGE_MAX);
    if (rv == 0 && header)
        rv = nng_stream_dialer_set_string(d, NNG_OPT_WS_REQUEST_HEADER "Authorization", header);
    return rv == 0 ? ST_OK : FAIL(ST_IO, "cannot set up a WebSocket: %s", nng_strerror(rv));
}

static void receive(struct ws *ws)
{
    nng_wait_begin(&ws->recv);
    nng_stream_recv(ws->stream, ws->recv.aio);
}

static enum status dial(struct ws *ws, nng_stream_dialer *d, int64_t wait_ns,
                        const atomic_bool *stop)
{
    int rv;

    nng_wait_begin(&ws->send);
    nng_stream_dialer_dial(d, ws->send.aio);
    rv = nng_wait_or_cancel(&ws->send, wait_ns, stop);
    if (rv == 0) {
        ws->stream = nng_aio_get_output(ws->send.aio, 0);
        receive(ws);
        return ST_OK;
    }
    if (stop && atomic_load(stop))
        return FAIL(ST_CLOSED, "stopped while connecting to %s", ws->url);
    if (rv == NNG_EPERM) // HTTP 401 or 403: it will not change its mind
        return FAIL(ST_MISSING,
                    "%s refuses the connection (HTTP 401 or 403): is SIMSTREAM_POLICY_KEY its key?",
                    ws->url);
    return FAIL(ST_IO, "cannot connect to %s: %s", ws->url,
                rv == NNG_ECANCELED ? "no answer" : nng_strerror(rv));
}

enum status ws_open(struct ws **out, const char *url, const char *header, int64_t wait_ns,
                    const atomic_bool *stop)
{
    struct ws *ws = mem_alloc(1, sizeof *ws);
    nng_stream_dialer *d = NULL;
    enum status st;
    int rv;

    if (!ws)
        return ST_NOMEM;
    snprintf(ws->url, sizeof ws->url, "%s", url);
    st = nng_wait_init(&ws->send);
    if (nng_wait_init(&ws->recv) != ST_OK)
        st = ST_NOMEM;
    rv = st == ST_OK ? nng_stream_dialer_alloc(&d, url) : 0;
    if (rv != 0)
        st = FAIL(ST_INVAL, "'%.200s' is no address of a WebSocket: %s", url, nng_strerror(rv));
    if (st == ST_OK)
        st = set_up(d, header);
    if (st == ST_OK)
        st = dial(ws, d, wait_ns, stop);
    if (d)
        nng_stream_dialer_free(d);
    if (st != ST_OK) {
        ws_close(ws);
        return st;
    }
    *out = ws;
    return ST_OK;
}

void ws_close(struct ws *ws)
{
    if (!ws)
        return;
    if (ws->stream) {
        nng_stream_close(ws->stream);
        nng_aio_stop(ws->recv.aio);
        if (nng_aio_result(ws->recv.aio) == 0 && nng_aio_get_msg(ws->recv.aio))
            nng_msg_free(nng_aio_get_msg(ws->recv.aio));
    }
    if (ws->held)
        nng_msg_free(ws->held);
    nng_wait_fini(&ws->send);
    nng_wait_fini(&ws->recv);
    if (ws->stream)
        nng_stream_free(ws->stream);
    mem_free(ws);
}

bool ws_alive(struct ws *ws)
{
    return !nng_wait_ended(&ws->recv);
}

// How an operation failed.
static enum status failed(const struct ws *ws, int rv, const atomic_bool *stop)
{
    if (stop && atomic_load(stop))
        return FAIL(ST_CLOSED, "stopped");
    if (rv == NNG_ECANCELED)
        return ST_TIMEOUT;
    return FAIL(ST_CLOSED, "%s has closed the connection (%s)", ws->url, nng_strerror(rv));
}

enum status ws_send(struct ws *ws, const void *bytes, size_t n, int64_t wait_ns,
                    const atomic_bool *stop)
{
    nng_msg *m;
    int rv;

    if (nng_msg_alloc(&m, n) != 0)
        return FAIL(ST_NOMEM, "no memory for a message of %zu bytes", n);
    memcpy(nng_msg_body(m), bytes, n);
    nng_aio_set_msg(ws->send.aio, m);
    nng_wait_begin(&ws->send);
    nng_stream_send(ws->stream, ws->send.aio);
    rv = nng_wait_or_cancel(&ws->send, wait_ns, stop);
    if (rv == 0)
        return ST_OK;
    m = nng_aio_get_msg(ws->send.aio);
    if (m)
        nng_msg_free(m);
    return failed(ws, rv, stop);
}

enum status ws_recv(struct ws *ws, const uint8_t **bytes, size_t *n, int64_t wait_ns,
                    const atomic_bool *stop)
{
    int rv;

    if (ws->held)
        nng_msg_free(ws->held);
    ws->held = NULL;
    if (!nng_wait_for(&ws->recv, wait_ns, stop))
        return failed(ws, NNG_ECANCELED, stop); // it goes on
    rv = nng_aio_result(ws->recv.aio);
    if (rv != 0)
        return failed(ws, rv, stop);
    ws->held = nng_aio_get_msg(ws->recv.aio);
    *bytes = nng_msg_body(ws->held);
    *n = nng_msg_len(ws->held);
    receive(ws);
    return ST_OK;
}
