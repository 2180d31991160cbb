// link_testing.h - addresses and connected pairs for the tests of links.
#ifndef TESTS_LINK_TESTING_H
#define TESTS_LINK_TESTING_H

#include "tests/wire_samples.h"

#include "common/base/rng.h"
#include "common/wire/link.h"

#include <stdio.h>
#include <unistd.h>

enum kind { INPROC, IPC, TCP, KINDS };

#define LIMIT (10u << 20) // longest message

// An address nobody else uses, in one of a few buffers.
static inline const char *fresh_url(enum kind kind)
{
    static char urls[8][LINK_URL_MAX];
    static int next;
    char *url = urls[next % 8];

    if (kind == TCP) // a loopback address that no other process of these tests has
        snprintf(url, LINK_URL_MAX, "tcp://127.%d.%d.%d:0", 1 + (getpid() >> 16),
                 getpid() >> 8 & 255, getpid() & 255);
    else
        snprintf(url, LINK_URL_MAX,
                 kind == INPROC ? "inproc://test-%d-%d" : "ipc:///tmp/simstream-%d-%d",
                 (int)getpid(), next++);
    return url;
}

struct pair {
    struct listener *listener;
    struct link *client, *server;
};

static inline struct pair pair_open(enum kind kind)
{
    struct pair p = {0};

    assert_ok(listener_open(&p.listener, fresh_url(kind), LIMIT));
    assert_ok(link_dial(&p.client, listener_url(p.listener), LIMIT, ENOUGH));
    assert_ok(listener_accept(p.listener, &p.server, ENOUGH));
    return p;
}

static inline void pair_close(struct pair *p)
{
    link_destroy(p->client);
    link_destroy(p->server);
    listener_destroy(p->listener);
}

// A message of n bytes that depend on n and the number.
static inline struct msg *numbered(uint32_t number, size_t n)
{
    struct rng r = rng_make(number, RNG_TEST, n, 0, 0);
    struct msg *m = NULL;
    uint8_t *p;

    assert_ok(msg_new(&m, (uint16_t)(number % 60000), n));
    p = msg_append(m, n);
    for (size_t i = 0; i < n; i += 97)
        p[i] = (uint8_t)rng_u32(&r);
    return m;
}

static inline bool is_numbered(const struct msg *m, uint32_t number, size_t n)
{
    struct rng r = rng_make(number, RNG_TEST, n, 0, 0);

    if (m->type != number % 60000 || m->len != n)
        return false;
    for (size_t i = 0; i < n; i += 97)
        if (m->data[i] != (uint8_t)rng_u32(&r))
            return false;
    return true;
}

static inline void send_ok(struct link *k, struct msg *m)
{
    assert_ok(link_send(k, m));
}

static inline void expect_numbered(struct link *k, uint32_t number, size_t n)
{
    struct msg *m = NULL;

    assert_ok(link_recv(k, &m, ENOUGH));
    assert_true(is_numbered(m, number, n));
    msg_free(m);
}

static inline void expect_closed(struct link *k)
{
    struct msg *m = NULL;

    assert_int_equal(link_recv(k, &m, ENOUGH), ST_CLOSED);
    assert_null(m);
}

#endif
