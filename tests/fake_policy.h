// fake_policy.h - a WebSocket server of openpi's protocol for tests of its client: it says what the
// test tells it to, right or wrong.
#ifndef TESTS_FAKE_POLICY_H
#define TESTS_FAKE_POLICY_H

#include "common/base/thread.h"
#include "tests/testing.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <nng/nng.h>

#define FAKE_BYTES_MAX 4096
#define FAKE_CONN_MAX  32

// A message; `n` < 0: close the connection instead; 0: say nothing.
struct fake_say {
    const void *bytes;
    int n;
};

struct fake_policy {
    // settings; they may change between two requests
    struct fake_say hello; // on a new connection
    struct fake_say bad;   // the answer to ...
    atomic_int bad_left;   // ... so many requests that come next
    struct fake_say good;  // the answer to all others
    atomic_bool twice;     // say it twice
    atomic_int conns, requests;

    char url[64];
    nng_stream_listener *listener;
    pthread_t thread;
    atomic_bool stop;
    struct fake_conn {
        struct fake_policy *server;
        nng_stream *stream;
        pthread_t thread;
    } conn[FAKE_CONN_MAX];
};

static inline void fake_policy_must(int rv)
{
    if (rv != 0)
        panic("fake policy: %s", nng_strerror(rv));
}

// Send one message; false when the connection is gone.
static inline bool fake_policy_send(nng_stream *s, nng_aio *aio, const struct fake_say *say)
{
    nng_msg *m;

    if (say->n <= 0)
        return say->n == 0;
    fake_policy_must(nng_msg_alloc(&m, 0));
    fake_policy_must(nng_msg_append(m, say->bytes, (size_t)say->n));
    nng_aio_set_msg(aio, m);
    nng_aio_set_timeout(aio, NNG_DURATION_INFINITE);
    nng_stream_send(s, aio);
    nng_aio_wait(aio);
    if (nng_aio_result(aio) == 0)
        return true;
    if (nng_aio_get_msg(aio))
        nng_msg_free(nng_aio_get_msg(aio));
    return false;
}

static inline void *fake_policy_conn(void *arg)
{
    struct fake_conn *c = arg;
    struct fake_policy *f = c->server;
    nng_aio *aio;
    bool go;

    fake_policy_must(nng_aio_alloc(&aio, NULL, NULL));
    go = fake_policy_send(c->stream, aio, &f->hello);
    while (go && !atomic_load(&f->stop)) {
        const struct fake_say *say = &f->good;

        nng_aio_set_timeout(aio, 50);
        nng_stream_recv(c->stream, aio);
        nng_aio_wait(aio);
        if (nng_aio_result(aio) == NNG_ETIMEDOUT)
            continue;
        if (nng_aio_result(aio) != 0)
            break;
        nng_msg_free(nng_aio_get_msg(aio));
        atomic_fetch_add(&f->requests, 1);
        if (atomic_load(&f->bad_left) > 0) {
            atomic_fetch_sub(&f->bad_left, 1);
            say = &f->bad;
        }
        go = fake_policy_send(c->stream, aio, say);
        if (go && atomic_exchange(&f->twice, false))
            go = fake_policy_send(c->stream, aio, say);
    }
    nng_aio_free(aio);
    nng_stream_close(c->stream);
    return NULL;
}

static inline void *fake_policy_thread(void *arg)
{
    struct fake_policy *f = arg;
    nng_aio *aio;

    fake_policy_must(nng_aio_alloc(&aio, NULL, NULL));
    while (!atomic_load(&f->stop)) {
        struct fake_conn *c = &f->conn[atomic_load(&f->conns)];

        nng_aio_set_timeout(aio, 50);
        nng_stream_listener_accept(f->listener, aio);
        nng_aio_wait(aio);
        if (nng_aio_result(aio) != 0)
            continue;
        if (atomic_load(&f->conns) == FAKE_CONN_MAX - 1)
            panic("fake policy: too many connections");
        c->server = f;
        c->stream = nng_aio_get_output(aio, 0);
        if (thread_start(&c->thread, "fake-conn", fake_policy_conn, c) != ST_OK)
            panic("fake policy: %s", error_last()->text);
        atomic_fetch_add(&f->conns, 1);
    }
    nng_aio_free(aio);
    return NULL;
}

static inline void fake_policy_start(struct fake_policy *f)
{
    int port, rv = NNG_EADDRINUSE;

    for (port = 20000 + getpid() % 20000; rv == NNG_EADDRINUSE; port++) {
        snprintf(f->url, sizeof f->url, "ws://127.0.0.1:%d/", port);
        fake_policy_must(nng_stream_listener_alloc(&f->listener, f->url));
        fake_policy_must(nng_stream_listener_set_bool(f->listener, "ws:msgmode", true));
        rv = nng_stream_listener_listen(f->listener);
        if (rv != 0)
            nng_stream_listener_free(f->listener);
    }
    fake_policy_must(rv);
    if (thread_start(&f->thread, "fake-policy", fake_policy_thread, f) != ST_OK)
        panic("fake policy: %s", error_last()->text);
}

static inline void fake_policy_stop(struct fake_policy *f)
{
    int i;

    atomic_store(&f->stop, true);
    pthread_join(f->thread, NULL);
    for (i = 0; i < atomic_load(&f->conns); i++) {
        pthread_join(f->conn[i].thread, NULL);
        nng_stream_free(f->conn[i].stream);
    }
    nng_stream_listener_close(f->listener);
    nng_stream_listener_free(f->listener);
}

#endif
