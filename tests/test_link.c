#include "common/wire/link.h"

#include "tests/link_testing.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>

static void *echo(void *arg)
{
    struct link *k = arg;
    struct msg *m;
    enum status st;

    while ((st = link_recv(k, &m, WAIT_NEVER)) == ST_OK)
        if (link_send(k, m) != ST_OK)
            msg_free(m);
    return (void *)(intptr_t)st;
}

static void messages_of_every_size_come_back(void **state)
{
    static const size_t sizes[] = {0,      1,     19,    20,     64,      1000,          16363,
                                   16364,  16365, 65536, 100000, 1 << 20, (1 << 20) + 1, 3 << 20,
                                   8 << 20};

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct pair p = pair_open((enum kind)kind);
        pthread_t thread;
        void *end;

        assert_ok(thread_start(&thread, "echo", echo, p.server));
        for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            send_ok(p.client, numbered(i, sizes[i]));
            expect_numbered(p.client, i, sizes[i]);
        }
        for (uint32_t i = 0; i < 50; i++) // several on their way at once
            send_ok(p.client, numbered(i, i * 33));
        for (uint32_t i = 0; i < 50; i++)
            expect_numbered(p.client, i, i * 33);
        link_close(p.client);
        pthread_join(thread, &end);
        assert_int_equal((intptr_t)end, ST_CLOSED);
        pair_close(&p);
    }
}

static void inproc_hands_the_message_itself_over(void **state)
{
    struct pair p = pair_open(INPROC);
    struct msg *m = numbered(1, 100), *got;

    (void)state;
    send_ok(p.client, m);
    assert_ok(link_recv(p.server, &got, 0));
    assert_ptr_equal(got, m);
    msg_free(got);
    pair_close(&p);
}

static void waits_end_in_time_and_lose_nothing(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct pair p = pair_open((enum kind)kind);
        struct msg *m = NULL;
        int64_t start = clock_now_ns(), give_up = deadline_after(ENOUGH);
        enum status st;

        assert_int_equal(link_recv(p.server, &m, 0), ST_AGAIN);
        assert_int_equal(link_recv(p.server, &m, 3 * NS_PER_MS), ST_TIMEOUT);
        assert_true(clock_now_ns() - start >= 3 * NS_PER_MS);
        assert_null(m);
        for (uint32_t i = 0; i < 30; i++) {
            send_ok(p.client, numbered(i, i * 100));
            do // a look without waiting finds it, once it is there
                st = link_recv(p.server, &m, i % 2 ? 0 : 1000);
            while ((st == ST_AGAIN || st == ST_TIMEOUT) && clock_now_ns() < give_up);
            assert_int_equal(st, ST_OK);
            assert_true(is_numbered(m, i, i * 100));
            msg_free(m);
        }
        m = NULL;
        assert_int_equal(link_recv(p.server, &m, 0), ST_AGAIN);
        pair_close(&p);
    }
}

#define ROUNDS 400

// Two messages a round: one when the reader's limit passes, one a little later.
static void *send_at_the_limit(void *arg)
{
    struct link *k = arg;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct msg *m;

        if (link_recv(k, &m, ENOUGH) != ST_OK)
            return NULL;
        clock_sleep_ns(NS_PER_MS + ((int64_t)(i % 40) - 20) * 20000);
        if (link_send(k, m) != ST_OK || msg_new(&m, 1, 0) != ST_OK)
            return NULL;
        clock_sleep_ns(200000);
        if (link_send(k, m) != ST_OK)
            return NULL;
    }
    return arg;
}

static void a_peer_has_seconds_to_say_something(void **state)
{
    struct pair p = pair_open(IPC);
    struct msg *m;

    (void)state;
    assert_int_equal(link_recv_soon(p.server, &m, 1), ST_TIMEOUT);
    assert_ok(link_send(p.client, numbered(1, 100)));
    assert_ok(link_recv_soon(p.server, &m, 3600));
    msg_free(m);
    link_close(p.client);
    assert_int_equal(link_recv_soon(p.server, &m, 3600), ST_CLOSED);
    pair_close(&p);
    msg_drain();
}

static void a_limit_never_ends_the_wait_after_it(void **state)
{
    (void)state;
    for (int kind = IPC; kind < KINDS; kind++) {
        struct pair p = pair_open((enum kind)kind);
        pthread_t thread;
        void *fine;

        assert_ok(thread_start(&thread, "sender", send_at_the_limit, p.server));
        for (int i = 0; i < ROUNDS; i++) {
            struct msg *m = NULL;
            int n = 0;
            enum status st;

            send_ok(p.client, numbered(1, 0));
            st = link_recv(p.client, &m, NS_PER_MS);
            if (st == ST_OK) {
                msg_free(m);
                n++;
            } else {
                assert_int_equal(st, ST_TIMEOUT);
            }
            for (; n < 2; n++) {
                assert_ok(link_recv(p.client, &m, WAIT_NEVER));
                msg_free(m);
            }
        }
        pthread_join(thread, &fine);
        assert_non_null(fine);
        pair_close(&p);
    }
}

#define MANY 1500

static size_t size_of(uint32_t i)
{
    return i % 50 ? i % 3000 : 200000;
}

struct side {
    struct link *k;
    enum status st;
    uint32_t done;
};

static void *send_many(void *arg)
{
    struct side *s = arg;
    struct msg *m = NULL;

    for (s->done = 0; s->done < MANY; s->done++) {
        m = numbered(s->done, size_of(s->done));
        s->st = link_send(s->k, m);
        if (s->st != ST_OK) {
            msg_free(m);
            break;
        }
    }
    return NULL;
}

static void *recv_many(void *arg)
{
    struct side *s = arg;
    struct msg *m = NULL;

    for (s->done = 0; s->done < MANY; s->done++) {
        bool fine;

        do
            s->st = link_recv(s->k, &m, s->done % 3 ? WAIT_NEVER : 100000);
        while (s->st == ST_TIMEOUT);
        if (s->st != ST_OK)
            break;
        fine = is_numbered(m, s->done, size_of(s->done));
        msg_free(m);
        if (!fine)
            break;
    }
    return NULL;
}

static void both_directions_work_at_once(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct pair p = pair_open((enum kind)kind);
        struct side sides[4] = {{.k = p.client}, {.k = p.server}, {.k = p.client}, {.k = p.server}};
        pthread_t threads[4];

        for (int i = 0; i < 4; i++)
            assert_ok(thread_start(&threads[i], "side", i < 2 ? send_many : recv_many, &sides[i]));
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(sides[i].st, ST_OK);
            assert_int_equal(sides[i].done, MANY);
        }
        pair_close(&p);
    }
}

struct flood {
    struct link *k;
    atomic_int sent;
    enum status st;
};

#define FLOOD 400

static void *flood(void *arg)
{
    struct flood *f = arg;

    for (uint32_t i = 0; i < FLOOD; i++) {
        struct msg *m = numbered(i, 100000);

        f->st = link_send(f->k, m);
        if (f->st != ST_OK) {
            msg_free(m); // a failed send leaves it with the caller
            break;
        }
        atomic_fetch_add(&f->sent, 1);
    }
    return NULL;
}

// Wait until the flood has not moved for a while: it is blocked, or the machine is very slow.
static void wait_until_blocked(struct flood *f)
{
    int last, now = -1;

    do {
        last = now;
        clock_sleep_ns(20 * NS_PER_MS);
        now = atomic_load(&f->sent);
    } while (now != last);
}

static void a_sender_waits_for_its_reader(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct pair p = pair_open((enum kind)kind);
        struct flood f = {.k = p.client};
        pthread_t thread;

        assert_ok(thread_start(&thread, "flood", flood, &f));
        wait_until_blocked(&f);
        assert_true(atomic_load(&f.sent) < FLOOD); // 40 MB are more than any socket holds
        for (uint32_t i = 0; i < FLOOD; i++)
            expect_numbered(p.server, i, 100000);
        pthread_join(thread, NULL);
        assert_int_equal(f.st, ST_OK);
        pair_close(&p);
    }
}

static void link_close_wakes_both_threads(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int far = 0; far < 2; far++) { // closed by this side, by the other side
            struct pair p = pair_open((enum kind)kind);
            struct flood f = {.k = p.client};
            struct side r = {.k = p.client};
            pthread_t threads[2];

            assert_ok(thread_start(&threads[0], "flood", flood, &f));
            assert_ok(thread_start(&threads[1], "reader", recv_many, &r));
            wait_until_blocked(&f);
            link_close(far ? p.server : p.client);
            pthread_join(threads[0], NULL);
            pthread_join(threads[1], NULL);
            assert_int_equal(f.st, ST_CLOSED);
            assert_int_equal(r.st, ST_CLOSED);
            link_close(p.client);
            link_close(p.client);
            expect_closed(p.client);
            pair_close(&p); // unread messages are freed
        }
    }
}

static void *send_forever(void *arg)
{
    enum status st = ST_OK;

    while (st == ST_OK) {
        struct msg *m;

        st = msg_new(&m, 1, 20000);
        if (st != ST_OK)
            break;
        memset(m->data, 0, 20000);
        m->len = 20000;
        st = link_send(arg, m);
        if (st != ST_OK)
            msg_free(m);
    }
    return (void *)(intptr_t)st;
}

static void *recv_forever(void *arg)
{
    enum status st;
    struct msg *m;

    while ((st = link_recv(arg, &m, ENOUGH)) == ST_OK)
        msg_free(m);
    return (void *)(intptr_t)st;
}

static void a_close_at_any_moment_ends_busy_threads(void **state)
{
    struct rng r = rng_make(5, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 40 * KINDS; i++) {
        struct pair p = pair_open((enum kind)(i % KINDS));
        pthread_t threads[4];
        void *end;

        for (int k = 0; k < 4; k++)
            assert_ok(thread_start(&threads[k], "busy", k < 2 ? send_forever : recv_forever,
                                   k % 2 ? p.client : p.server));
        clock_sleep_ns(rng_below(&r, 1000000));
        link_close(i / KINDS % 2 ? p.client : p.server);
        for (int k = 0; k < 4; k++) {
            pthread_join(threads[k], &end);
            assert_int_equal((intptr_t)end, ST_CLOSED);
        }
        pair_close(&p);
    }
}

static void messages_sent_before_a_close_arrive(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct listener *l = NULL;

        assert_ok(listener_open(&l, fresh_url((enum kind)kind), LIMIT));
        for (uint32_t i = 0; i < 100; i++) {
            struct link *client = NULL, *server = NULL;

            assert_ok(link_dial(&client, listener_url(l), LIMIT, ENOUGH));
            assert_ok(listener_accept(l, &server, ENOUGH));
            for (uint32_t k = 0; k < 3; k++)
                send_ok(server, numbered(k, i * 10));
            link_destroy(server);
            for (uint32_t k = 0; k < 3; k++)
                expect_numbered(client, k, i * 10);
            expect_closed(client);
            expect_closed(client);
            link_destroy(client);
        }
        listener_destroy(l);
    }
}

static void sending_to_a_closed_peer_fails_and_keeps_the_message(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct pair p = pair_open((enum kind)kind);
        int64_t give_up = deadline_after(ENOUGH);
        enum status st;
        struct msg *m;

        link_close(p.server);
        do { // a socket may take a few before it knows; SIGPIPE would end the test
            m = numbered(1, 10000);
            st = link_send(p.client, m);
        } while (st == ST_OK && clock_now_ns() < give_up);
        assert_int_equal(st, ST_CLOSED);
        assert_true(is_numbered(m, 1, 10000));
        msg_free(m);
        m = numbered(2, 10);
        assert_int_equal(link_send(p.server, m), ST_CLOSED);
        msg_free(m);
        pair_close(&p);
    }
}

static void too_long_messages_end_the_connection(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct listener *l = NULL;
        struct link *client = NULL, *server = NULL;
        struct msg *m = NULL;

        assert_ok(listener_open(&l, fresh_url((enum kind)kind), 1000));
        assert_ok(link_dial(&client, listener_url(l), LIMIT, ENOUGH));
        assert_ok(listener_accept(l, &server, ENOUGH));
        send_ok(client, numbered(1, 1000));
        send_ok(client, numbered(2, 1001));
        expect_numbered(server, 1, 1000);
        assert_fails(link_recv(server, &m, ENOUGH), ST_PROTO, "1001 bytes, at most 1000");
        assert_null(m);
        expect_closed(server);
        expect_closed(client);
        link_destroy(client);
        link_destroy(server);
        listener_destroy(l);
    }
}

static void dialing_nobody_fails_by_itself(void **state)
{
    char tcp[LINK_URL_MAX];
    const char *urls[KINDS] = {fresh_url(INPROC), fresh_url(IPC), tcp};
    struct listener *l = NULL;
    struct link *k = NULL;

    (void)state;
    assert_ok(listener_open(&l, fresh_url(TCP), LIMIT));
    snprintf(tcp, sizeof tcp, "%s", listener_url(l));
    listener_destroy(l); // nobody has this port now
    for (int kind = 0; kind < KINDS; kind++) {
        int64_t start;

        assert_fails(link_dial(&k, urls[kind], LIMIT, 0), ST_IO, urls[kind]);
        assert_non_null(strstr(error_last()->text, "nobody listens"));
        start = clock_now_ns();
        assert_fails(link_dial(&k, urls[kind], LIMIT, 30 * NS_PER_MS), ST_IO, urls[kind]);
        assert_true(clock_now_ns() - start >= 29 * NS_PER_MS);
    }
    assert_null(k);
}

struct late {
    const char *url;
    struct listener *listener;
    struct link *link;
    enum status st;
};

static void *listen_late(void *arg)
{
    struct late *late = arg;

    clock_sleep_ns(30 * NS_PER_MS);
    late->st = listener_open(&late->listener, late->url, LIMIT);
    if (late->st == ST_OK)
        late->st = listener_accept(late->listener, &late->link, ENOUGH);
    return NULL;
}

static void dialing_waits_for_a_listener(void **state)
{
    (void)state;
    for (int kind = INPROC; kind <= IPC; kind++) {
        struct late late = {.url = fresh_url((enum kind)kind)};
        struct link *k = NULL;
        pthread_t thread;

        assert_ok(thread_start(&thread, "late", listen_late, &late));
        assert_ok(link_dial(&k, late.url, LIMIT, ENOUGH));
        pthread_join(thread, NULL);
        assert_int_equal(late.st, ST_OK);
        send_ok(k, numbered(1, 10));
        expect_numbered(late.link, 1, 10);
        link_destroy(k);
        link_destroy(late.link);
        listener_destroy(late.listener);
    }
}

static void an_address_has_one_listener(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct listener *first = NULL, *second = NULL;
        char url[LINK_URL_MAX];

        assert_ok(listener_open(&first, fresh_url((enum kind)kind), LIMIT));
        snprintf(url, sizeof url, "%s", listener_url(first));
        assert_fails(listener_open(&second, url, LIMIT), ST_IO, url);
        assert_non_null(strstr(error_last()->text, "in use"));
        assert_null(second);
        listener_destroy(first);
        assert_ok(listener_open(&second, url, LIMIT)); // and the next one can have it
        assert_string_equal(listener_url(second), url);
        listener_destroy(second);
    }
}

static void port_zero_becomes_a_real_port(void **state)
{
    struct listener *l = NULL;
    struct link *k = NULL;
    int port = 0;

    (void)state;
    assert_ok(listener_open(&l, "tcp://127.0.0.1:0", LIMIT));
    assert_int_equal(sscanf(listener_url(l), "tcp://127.0.0.1:%d", &port), 1);
    assert_true(port > 0);
    assert_ok(link_dial(&k, listener_url(l), LIMIT, ENOUGH));
    link_destroy(k);
    listener_destroy(l);
    assert_ok(listener_open(&l, "tcp://localhost:0", LIMIT)); // names work on both sides
    assert_int_equal(sscanf(listener_url(l), "tcp://localhost:%d", &port), 1);
    assert_ok(link_dial(&k, listener_url(l), LIMIT, ENOUGH));
    link_destroy(k);
    listener_destroy(l);
}

static void bad_addresses_are_explained(void **state)
{
    static const char *const bad[] = {"",
                                      "x",
                                      "host:1",
                                      "udp://a:1",
                                      "tcp://",
                                      "tcp://host",
                                      "tcp://:5",
                                      "tcp://h:",
                                      "tcp://h:70000",
                                      "tcp://h:5x",
                                      "tcp://h:-1",
                                      "ipc://",
                                      "inproc://",
                                      "tcp://h:99999999999999999999",
                                      "TCP://h:1",
                                      "ipc:/tmp/x"};
    char long_url[400];
    struct listener *l = NULL;
    struct link *k = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_fails(listener_open(&l, bad[i], LIMIT), ST_INVAL, bad[i]);
        assert_fails(link_dial(&k, bad[i], LIMIT, ENOUGH), ST_INVAL, "expected");
    }
    assert_fails(link_dial(&k, "tcp://127.0.0.1:0", LIMIT, 0), ST_INVAL, "port 0");
    memset(long_url, 'x', sizeof long_url);
    memcpy(long_url, "ipc:///", 7);
    long_url[399] = '\0';
    assert_fails(listener_open(&l, long_url, LIMIT), ST_INVAL, "at most 255");
    long_url[6 + 108] = '\0'; // a path of 108 characters
    assert_fails(listener_open(&l, long_url, LIMIT), ST_INVAL, "108 characters, at most 107");
    assert_fails(link_dial(&k, long_url, LIMIT, 0), ST_INVAL, "108 characters");
    assert_fails(listener_open(&l, "ipc:///nonexistent/dir/x", LIMIT), ST_IO, "/nonexistent/dir/x");
    assert_fails(listener_open(&l, fresh_url(INPROC), (size_t)MSG_BYTES_MAX + 1), ST_INVAL,
                 "bytes");
    assert_fails(link_dial(&k, fresh_url(INPROC), SIZE_MAX, 0), ST_INVAL, "bytes");
    assert_null(l);
    assert_null(k);
}

static void a_path_is_used_as_it_is(void **state)
{
    char url[LINK_URL_MAX];
    struct listener *l = NULL;
    struct link *k = NULL;
    struct stat sb;

    (void)state;
    snprintf(url, sizeof url, "ipc:///tmp/simstream %d %%41?a=b#c", (int)getpid());
    assert_ok(listener_open(&l, url, LIMIT));
    assert_int_equal(stat(url + 6, &sb), 0);
    assert_true(S_ISSOCK(sb.st_mode));
    assert_ok(link_dial(&k, url, LIMIT, 0));
    link_destroy(k);
    listener_close(l);
    assert_int_equal(stat(url + 6, &sb), -1); // closing removes it
    listener_destroy(l);
}

static void *accept_one(void *arg)
{
    struct late *late = arg;

    late->st = listener_accept(late->listener, &late->link, WAIT_NEVER);
    return NULL;
}

static void listener_close_wakes_the_accepting_thread(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct late late = {0};
        struct link *k = NULL;
        pthread_t thread;

        assert_ok(listener_open(&late.listener, fresh_url((enum kind)kind), LIMIT));
        assert_int_equal(listener_accept(late.listener, &k, 0), ST_AGAIN);
        assert_int_equal(listener_accept(late.listener, &k, 2 * NS_PER_MS), ST_TIMEOUT);
        assert_ok(thread_start(&thread, "accept", accept_one, &late));
        clock_sleep_ns(5 * NS_PER_MS);
        listener_close(late.listener);
        pthread_join(thread, NULL);
        assert_int_equal(late.st, ST_CLOSED);
        assert_int_equal(listener_accept(late.listener, &k, WAIT_NEVER), ST_CLOSED);
        assert_null(k);
        listener_destroy(late.listener);
    }
}

static void connections_that_nobody_accepts_end_with_the_listener(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct listener *l = NULL;
        struct link *k[3];

        assert_ok(listener_open(&l, fresh_url((enum kind)kind), LIMIT));
        for (int i = 0; i < 3; i++) {
            assert_ok(link_dial(&k[i], listener_url(l), LIMIT, ENOUGH));
            send_ok(k[i], numbered(1, 10));
        }
        listener_destroy(l);
        for (int i = 0; i < 3; i++) {
            expect_closed(k[i]);
            link_destroy(k[i]);
        }
    }
    link_destroy(NULL);
    listener_destroy(NULL);
}

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void cycle(enum kind kind)
{
    struct pair p = pair_open(kind);

    send_ok(p.client, numbered(1, 100));
    expect_numbered(p.server, 1, 100);
    pair_close(&p);
}

static void many_connections_leave_nothing_behind(void **state)
{
    int fds, tasks;
    int64_t give_up;

    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 5; i++)
            cycle((enum kind)kind);
    fds = entries("/proc/self/fd");
    tasks = entries("/proc/self/task");
    for (int i = 0; i < 200; i++)
        cycle((enum kind)(i % KINDS));
    give_up = deadline_after(ENOUGH); // sockets are closed in the background
    while ((entries("/proc/self/fd") > fds || entries("/proc/self/task") > tasks) &&
           clock_now_ns() < give_up)
        clock_sleep_ns(NS_PER_MS);
    assert_true(entries("/proc/self/fd") <= fds);
    assert_true(entries("/proc/self/task") <= tasks);
}

// One whole exchange; the n-th allocation of it fails.
static enum status exchange(struct pair *p, const char *url)
{
    struct msg *m;
    enum status st;

    TRY(listener_open(&p->listener, url, LIMIT));
    TRY(link_dial(&p->client, listener_url(p->listener), LIMIT, ENOUGH));
    TRY(listener_accept(p->listener, &p->server, ENOUGH));
    TRY(msg_new(&m, 1, 30000)); // fits into a socket: nobody reads yet
    m->len = 30000;
    st = link_send(p->client, m);
    if (st != ST_OK) {
        msg_free(m);
        return st;
    }
    TRY(link_recv(p->server, &m, ENOUGH));
    msg_free(m);
    return ST_OK;
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        int64_t n;

        for (n = 0;; n++) {
            struct pair p = {0};
            enum status st;

            msg_drain();
            mem_fail_after(n);
            st = exchange(&p, fresh_url((enum kind)kind));
            mem_fail_after(-1);
            pair_close(&p);
            if (st == ST_OK)
                break;
            assert_int_equal(st, ST_NOMEM);
        }
        assert_true(n >= 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(messages_of_every_size_come_back),
        wire_test(inproc_hands_the_message_itself_over),
        wire_test(waits_end_in_time_and_lose_nothing),
        wire_test(a_peer_has_seconds_to_say_something),
        wire_test(a_limit_never_ends_the_wait_after_it),
        wire_test(both_directions_work_at_once),
        wire_test(a_sender_waits_for_its_reader),
        wire_test(link_close_wakes_both_threads),
        wire_test(a_close_at_any_moment_ends_busy_threads),
        wire_test(messages_sent_before_a_close_arrive),
        wire_test(sending_to_a_closed_peer_fails_and_keeps_the_message),
        wire_test(too_long_messages_end_the_connection),
        wire_test(dialing_nobody_fails_by_itself),
        wire_test(dialing_waits_for_a_listener),
        wire_test(an_address_has_one_listener),
        wire_test(port_zero_becomes_a_real_port),
        wire_test(bad_addresses_are_explained),
        wire_test(a_path_is_used_as_it_is),
        wire_test(listener_close_wakes_the_accepting_thread),
        wire_test(connections_that_nobody_accepts_end_with_the_listener),
        wire_test(many_connections_leave_nothing_behind),
        wire_test(no_memory_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
