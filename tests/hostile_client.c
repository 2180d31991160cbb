// hostile_client URL KIND [SECONDS] - does one thing to an env server that no client should, and
// tells whether the server did what docs/protocol.md says. Exit code 0 if so.
//
// URL is tcp:// or ipc://. Kinds: see `kinds` at the end.
#include "common/base/thread.h"
#include "common/wire/control.h"
#include "common/wire/envproto.h"
#include "common/wire/link.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *url;
static int64_t patience_ns;
static struct welcome w;

static void must(enum status st, const char *what)
{
    if (st == ST_OK)
        return;
    fprintf(stderr, "hostile_client: %s: %s (%s)\n", what, status_name(st), error_last()->text);
    exit(1);
}

static void say(const char *what)
{
    fprintf(stderr, "hostile_client: %s\n", what);
    exit(1);
}

static struct link *connect_raw(void)
{
    struct link *k;

    must(link_dial(&k, url, 64 << 20, patience_ns), "connect");
    return k;
}

static struct link *connect_hello(uint32_t features)
{
    struct hello h = {.version = ENVPROTO_VERSION,
                      .n_env = 1,
                      .k_max = 1,
                      .t_max_ns = -1,
                      .features = features,
                      .idle_ns = NS_PER_S,
                      .name = "hostile"};
    struct link *k = connect_raw();
    struct msg *m;

    must(hello_write(&m, &h), "HELLO");
    must(link_send(k, m), "HELLO");
    must(link_recv(k, &m, patience_ns), "WELCOME");
    must(welcome_read(m, &w), "WELCOME");
    msg_free(m);
    return k;
}

static struct msg *reset_env(uint64_t seq, uint32_t env)
{
    struct reset_row row = {.env = env, .seed = 1};
    struct msg *m;

    must(reset_write(&m, seq, &row, 1), "RESET");
    return m;
}

static struct msg *reset_msg(uint64_t seq)
{
    return reset_env(seq, w.env[0]);
}

static struct msg *step_msg(uint64_t seq, float action)
{
    struct msg *m;
    uint8_t *rows;

    must(step_begin(&m, seq, 1, 1, w.spec.n_act, &rows), "STEP");
    *(struct step_row *)rows = (struct step_row){.env = w.env[0], .n_sub = 1};
    for (int k = 0; k < w.spec.n_act; k++)
        ((float *)(rows + sizeof(struct step_row)))[k] = action;
    return m;
}

static void expect_type(struct link *k, uint16_t type, const char *what)
{
    struct msg *m;

    do { // its heart may beat in between
        must(link_recv(k, &m, patience_ns), what);
        if (m->type == MSG_PING)
            msg_free(m);
    } while (m->type == MSG_PING);
    if (m->type != type)
        say(what);
    msg_free(m);
}

// The server ends the connection within the time allowed.
static void expect_end(struct link *k, const char *what)
{
    int64_t deadline = deadline_after(patience_ns);
    enum status st;
    struct msg *m;

    while ((st = link_recv(k, &m, NS_PER_S)) == ST_OK || st == ST_TIMEOUT) {
        if (st == ST_OK)
            msg_free(m);
        if (clock_now_ns() > deadline)
            say(what);
    }
    link_destroy(k);
}

// An action that is not a number is refused, by name; the same client goes on.
static void nan_action(void)
{
    struct link *k = connect_hello(0);
    struct proto_error e;
    struct msg *m;

    must(link_send(k, reset_msg(1)), "send");
    expect_type(k, MSG_BATCH, "a batch after RESET");
    must(link_send(k, step_msg(2, NAN)), "send");
    must(link_recv(k, &m, patience_ns), "ERROR after a NaN");
    must(proto_error_read(m, &e), "ERROR after a NaN");
    if (!strstr(e.text, "is NaN") || e.env != w.env[0])
        say(e.text);
    msg_free(m);
    must(link_send(k, step_msg(3, 0)), "send");
    expect_type(k, MSG_BATCH, "a batch after a good STEP");
    link_destroy(k);
}

// A message longer than the limit: the connection ends before memory is taken for it.
static void oversized(void)
{
    struct link *k = connect_hello(0);
    struct msg *m;

    must(msg_new(&m, MSG_STEP, 100u << 20), "memory");
    if (!msg_append(m, 100u << 20))
        say("memory");
    if (link_send(k, m) != ST_OK)
        msg_free(m); // the server closed while it was being sent
    expect_end(k, "a message of 100 MiB did not end the connection");
}

// A client that is there but says nothing any more.
static void half_open(void)
{
    struct link *k = connect_hello(FEATURE_HEARTBEAT);

    must(link_send(k, reset_msg(1)), "send");
    expect_end(k, "a silent client was kept");
}

static void no_hello(void)
{
    expect_end(connect_raw(), "a client without HELLO was kept");
}

static void nonsense(void)
{
    struct link *k = connect_hello(0);
    struct msg *m;

    must(msg_new(&m, 999, 16), "memory");
    must(msg_bytes(m, "what is this?", 13), "memory");
    must(link_send(k, m), "send");
    expect_end(k, "nonsense did not end the connection");
}

static void gap(void)
{
    struct link *k = connect_hello(0);

    must(link_send(k, reset_msg(2)), "send");
    expect_end(k, "a gap in the sequence did not end the connection");
}

// A request that was sent before.
static void again(void)
{
    struct link *k = connect_hello(0);

    must(link_send(k, reset_msg(1)), "send");
    must(link_send(k, reset_msg(1)), "send");
    expect_end(k, "a request number that came twice did not end the connection");
}

// The env twice in flight: the second request is refused, the first one answered.
static void twice(void)
{
    struct link *k = connect_hello(0);
    int batches = 0, refusals = 0;
    struct msg *m;

    for (uint64_t seq = 1; seq <= 200; seq++)
        must(link_send(k, reset_msg(seq)), "send");
    while (batches + refusals < 200) {
        must(link_recv(k, &m, patience_ns), "an answer to each request");
        batches += m->type == MSG_BATCH;
        refusals += m->type == MSG_ERROR;
        msg_free(m);
    }
    if (batches < 1 || refusals < 1)
        say("expected refusals and answers");
    link_destroy(k);
}

// Requests without reading a single answer: the server stops reading, and drops the client when it
// goes away; memory does not grow (the caller looks at that).
static void flood(void)
{
    struct link *k = connect_hello(0);
    int64_t deadline = deadline_after(patience_ns);

    for (uint64_t seq = 1; clock_now_ns() < deadline && seq < 20000; seq++)
        must(link_send(k, reset_msg(seq)), "send");
    link_destroy(k);
}

#define SLOW_REQUESTS 200000 // their refusals fill the system's buffers of a connection twice

struct asker {
    struct link *k;
    uint32_t env;
    atomic_int sent;
};

static void *ask_without_end(void *arg)
{
    struct asker *a = arg;

    for (int i = 0; i < SLOW_REQUESTS; i++) {
        must(link_send(a->k, reset_env((uint64_t)i + 1, a->env)), "send");
        atomic_store(&a->sent, i + 1);
    }
    return NULL;
}

// Until no request has gone out for twenty looks, or all have.
static void await_standstill(struct asker *a)
{
    int seen = -1, still = 0;

    while (still < 20) {
        int sent = atomic_load(&a->sent);

        still = sent == seen ? still + 1 : 0;
        seen = sent;
        clock_sleep_ns(20 * NS_PER_MS);
    }
    if (seen == SLOW_REQUESTS)
        say("the server took every request of a client that reads no answers");
}

// Asks without end and reads nothing for a while: the server stops reading it, serves another
// client meanwhile, and in the end has answered or refused each request once.
static void slow_reader(void)
{
    struct asker a = {.k = connect_hello(0), .env = w.env[0]};
    uint64_t refused = 0;
    int answers = 0;
    struct link *other;
    pthread_t thread;
    struct msg *m;

    must(thread_start(&thread, "asker", ask_without_end, &a), "thread");
    await_standstill(&a);
    other = connect_hello(0);
    must(link_send(other, reset_msg(1)), "send");
    expect_type(other, MSG_BATCH, "an answer to another client");
    link_destroy(other);
    while (answers < SLOW_REQUESTS) {
        must(link_recv(a.k, &m, patience_ns), "an answer to each request");
        if (m->type == MSG_ERROR) {
            struct proto_error e;

            must(proto_error_read(m, &e), "ERROR");
            if (e.seq <= refused)
                say("a request was refused twice");
            refused = e.seq;
        } else if (m->type != MSG_BATCH) {
            say("expected refusals and batches only");
        }
        msg_free(m);
        answers++;
    }
    pthread_join(thread, NULL);
    if (link_recv(a.k, &m, 0) == ST_OK)
        say("more answers than requests");
    link_destroy(a.k);
}

// Gone in the middle of a message and of a request.
static void vanish(void)
{
    struct link *k = connect_hello(0);

    must(link_send(k, reset_msg(1)), "send");
    link_destroy(k);
}

static const struct kind {
    const char *name;
    void (*run)(void);
} kinds[] = {
    {"nan", nan_action},    {"oversized", oversized}, {"half-open", half_open},
    {"no-hello", no_hello}, {"nonsense", nonsense},   {"gap", gap},
    {"again", again},       {"twice", twice},         {"slow-reader", slow_reader},
    {"flood", flood},       {"vanish", vanish},
};

int main(int argc, char **argv)
{
    if (argc < 3)
        say("usage: hostile_client URL KIND [SECONDS]");
    url = argv[1];
    patience_ns = (int64_t)(1e9 * (argc > 3 ? strtod(argv[3], NULL) : 30));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(argv[2], kinds[i].name) == 0) {
            kinds[i].run();
            return 0;
        }
    }
    say("no such kind");
}
