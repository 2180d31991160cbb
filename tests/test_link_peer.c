// Peers that are slow, hostile or killed: raw sockets and processes on the other side of a link.
#include <sys/types.h>
// The system has a MSG_BATCH of its own.
#define MSG_BATCH SOCKET_MSG_BATCH
#include <sys/socket.h>
#undef MSG_BATCH

#include "tests/link_testing.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

// A plain socket that is connected to a listener of ours, and our end of it.
struct raw {
    struct listener *listener;
    struct link *link;
    int fd;
};

static int connect_raw(const char *url)
{
    int fd, rc;

    if (strncmp(url, "ipc://", 6) == 0) {
        struct sockaddr_un sa = {.sun_family = AF_UNIX};

        snprintf(sa.sun_path, sizeof sa.sun_path, "%s", url + 6);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        rc = connect(fd, (struct sockaddr *)&sa, sizeof sa);
    } else {
        const char *colon = strrchr(url, ':');
        struct sockaddr_in sa = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)atoi(colon + 1))};
        char host[64];

        snprintf(host, sizeof host, "%.*s", (int)(colon - url - 6), url + 6); // behind tcp://
        assert_int_equal(inet_pton(AF_INET, host, &sa.sin_addr), 1);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        rc = connect(fd, (struct sockaddr *)&sa, sizeof sa);
    }
    assert_true(fd >= 0);
    assert_int_equal(rc, 0);
    return fd;
}

static struct raw raw_open(enum kind kind, size_t max_bytes)
{
    struct raw raw = {0};

    assert_ok(listener_open(&raw.listener, fresh_url(kind), max_bytes));
    raw.fd = connect_raw(listener_url(raw.listener));
    assert_ok(listener_accept(raw.listener, &raw.link, ENOUGH));
    return raw;
}

static void raw_close(struct raw *raw)
{
    close(raw->fd);
    link_destroy(raw->link);
    listener_destroy(raw->listener);
}

static void write_all(int fd, const void *p, size_t n)
{
    assert_int_equal(send(fd, p, n, MSG_NOSIGNAL), n);
}

// Header and body as they stand on the wire; returns how many bytes.
static size_t frame(uint8_t *out, uint32_t number, size_t n)
{
    struct msg *m = numbered(number, n);

    link_header_encode(out, m);
    memcpy(out + LINK_HEADER_BYTES, m->data, n);
    msg_free(m);
    return LINK_HEADER_BYTES + n;
}

// The other side has closed the socket.
static void expect_raw_end(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char c;

    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_true(recv(fd, &c, 1, 0) <= 0);
}

static void the_header_is_what_it_says(void **state)
{
    struct msg m = {.type = 0x1234, .data = (uint8_t *)"123456789", .len = 9};
    uint8_t h[LINK_HEADER_BYTES];
    struct link_header out;

    (void)state;
    link_header_encode(h, &m);
    assert_memory_equal(h, "SSTM\1\0\x34\x12\x09\0\0\0\x83\x92\x06\xe3", 16);
    assert_ok(link_header_decode(h, 9, &out));
    assert_int_equal(out.type, 0x1234);
    assert_int_equal(out.len, 9);
    assert_int_equal(out.crc, 0xe3069283);
    assert_ok(link_body_check(&out, m.data));
    assert_fails(link_body_check(&out, (const uint8_t *)"123456780"), ST_PROTO, "checksum");
    assert_fails(link_header_decode(h, 8, &out), ST_PROTO, "9 bytes, at most 8");
}

static void every_damaged_bit_of_a_header_is_noticed(void **state)
{
    struct msg m = {.type = 3, .data = (uint8_t *)"abc", .len = 3};
    uint8_t h[LINK_HEADER_BYTES];
    struct link_header out;

    (void)state;
    for (int bit = 0; bit < 8 * LINK_HEADER_BYTES; bit++) {
        link_header_encode(h, &m);
        h[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(link_header_decode(h, MSG_BYTES_MAX, &out), ST_PROTO);
    }
}

// Whatever is done to a valid frame: one ST_PROTO, then the connection is over on both sides.
static void hostile_bytes_end_the_connection(void **state)
{
    enum { GARBAGE, HTTP, VERSION, LENGTH, HEADER_SUM, BODY_SUM, BODY, CASES };

    (void)state;
    for (int kind = IPC; kind < KINDS; kind++) {
        for (int what = 0; what < CASES; what++) {
            struct raw raw = raw_open((enum kind)kind, 1000);
            struct msg longest = {.type = 1, .data = (uint8_t *)"", .len = 0};
            struct msg *m = NULL;
            uint8_t bytes[200];
            size_t n = frame(bytes, 5, 100);
            int64_t calls;

            switch (what) {
            case GARBAGE:
                memset(bytes, 0xff, sizeof bytes);
                break;
            case HTTP:
                snprintf((char *)bytes, sizeof bytes, "GET / HTTP/1.1\r\nHost: here\r\n\r\n");
                break;
            case VERSION:
                bytes[4]++;
                break;
            case LENGTH: // sums are right, but 4 GiB are announced
                link_header_encode(bytes, &longest);
                memset(bytes + 8, 0xff, 4);
                break;
            case HEADER_SUM:
                bytes[16]++;
                break;
            case BODY_SUM:
                bytes[12]++;
                break;
            case BODY:
                bytes[LINK_HEADER_BYTES + 99]++;
                break;
            }
            msg_drain();
            calls = mem_calls();
            write_all(raw.fd, bytes, n);
            assert_int_equal(link_recv(raw.link, &m, ENOUGH), ST_PROTO);
            if (what != BODY)
                assert_int_equal(mem_calls(), calls); // nothing was allocated for it
            assert_null(m);
            expect_closed(raw.link);
            expect_raw_end(raw.fd);
            raw_close(&raw);
        }
    }
}

static void what_was_sent_before_the_damage_still_counts(void **state)
{
    struct raw raw = raw_open(IPC, 1000);
    uint8_t bytes[400];
    size_t n = frame(bytes, 5, 100);
    struct msg *m = NULL;

    (void)state;
    memset(bytes + n, 0, 50);
    write_all(raw.fd, bytes, n + 50);
    expect_numbered(raw.link, 5, 100);
    assert_int_equal(link_recv(raw.link, &m, ENOUGH), ST_PROTO);
    raw_close(&raw);
}

// Cut at every kind of place, with time limits that pass in between.
static void a_message_in_pieces_is_put_together(void **state)
{
    enum { N = 60000 };
    static uint8_t bytes[LINK_HEADER_BYTES + N];
    struct rng r = rng_make(3, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int kind = IPC; kind < KINDS; kind++) {
        for (int round = 0; round < 12; round++) {
            size_t n = round < 6 ? (size_t)round * 9 : N, all, at = 0;
            struct raw raw = raw_open((enum kind)kind, N);
            struct msg *m = NULL;

            all = frame(bytes, 7, n);
            while (at < all) {
                size_t piece = 1 + rng_below(&r, at < 60 ? 7 : 9000);

                piece = piece < all - at ? piece : all - at;
                write_all(raw.fd, bytes + at, piece);
                at += piece;
                if (at < all)
                    assert_int_equal(link_recv(raw.link, &m, at % 2 ? 0 : 200000),
                                     at % 2 ? ST_AGAIN : ST_TIMEOUT);
            }
            expect_numbered(raw.link, 7, n);
            raw_close(&raw);
        }
    }
}

// Several messages that arrive with one read, the last of them only in part.
static void messages_in_one_piece_are_told_apart(void **state)
{
    struct raw raw = raw_open(IPC, 1000);
    uint8_t bytes[4000];
    size_t n = 0;
    struct msg *m = NULL;

    (void)state;
    for (uint32_t i = 0; i < 20; i++)
        n += frame(bytes + n, i, i * 5);
    write_all(raw.fd, bytes, n - 3);
    for (uint32_t i = 0; i < 19; i++)
        expect_numbered(raw.link, i, i * 5);
    assert_int_equal(link_recv(raw.link, &m, NS_PER_MS), ST_TIMEOUT);
    write_all(raw.fd, bytes + n - 3, 3);
    expect_numbered(raw.link, 19, 19 * 5);
    raw_close(&raw);
}

static void *recv_one(void *arg)
{
    struct msg *m = NULL;
    enum status st = link_recv(arg, &m, WAIT_NEVER);

    msg_free(m);
    return (void *)(intptr_t)st;
}

static void a_peer_that_stops_holds_nobody_else_up(void **state)
{
    static uint8_t bytes[LINK_HEADER_BYTES + 500000];

    (void)state;
    for (int kind = IPC; kind < KINDS; kind++) {
        struct raw raw = raw_open((enum kind)kind, LIMIT);
        struct link *client = NULL, *server = NULL;
        pthread_t thread;
        void *end;

        frame(bytes, 1, 500000);
        write_all(raw.fd, bytes, LINK_HEADER_BYTES + 1000); // and never the rest
        assert_ok(thread_start(&thread, "stuck", recv_one, raw.link));
        assert_ok(link_dial(&client, listener_url(raw.listener), LIMIT, ENOUGH));
        assert_ok(listener_accept(raw.listener, &server, ENOUGH));
        for (uint32_t i = 0; i < 100; i++) {
            send_ok(client, numbered(i, i));
            expect_numbered(server, i, i);
        }
        link_close(raw.link);
        pthread_join(thread, &end);
        assert_int_equal((intptr_t)end, ST_CLOSED);
        link_destroy(client);
        link_destroy(server);
        raw_close(&raw);
    }
}

static void a_peer_that_leaves_in_the_middle_is_gone(void **state)
{
    uint8_t bytes[200];
    size_t n = frame(bytes, 1, 100);

    (void)state;
    for (int kind = IPC; kind < KINDS; kind++) {
        for (size_t cut = 0; cut < n; cut += 17) {
            struct raw raw = raw_open((enum kind)kind, 1000);

            write_all(raw.fd, bytes, cut);
            shutdown(raw.fd, SHUT_RDWR);
            expect_closed(raw.link);
            raw_close(&raw);
        }
    }
}

static void tcp_sends_without_delay(void **state)
{
    struct pair p = pair_open(TCP);
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *e;
    int sockets = 0;

    (void)state;
    assert_non_null(dir);
    while ((e = readdir(dir))) {
        int fd = atoi(e->d_name), on = 0;
        struct sockaddr_in sa;
        socklen_t n = sizeof sa, n_on = sizeof on;

        if (getpeername(fd, (struct sockaddr *)&sa, &n) != 0 || sa.sin_family != AF_INET)
            continue;
        sockets++;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &n_on), 0);
        assert_int_not_equal(on, 0);
    }
    closedir(dir);
    assert_int_equal(sockets, 2);
    pair_close(&p);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
    const char *url = fresh_url(IPC), *path = url + 6;
    struct listener *l = NULL;
    struct stat sb;
    int fd = open(path, O_CREAT | O_WRONLY, 0600);

    (void)state;
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
    assert_fails(listener_open(&l, url, LIMIT), ST_IO, "not a socket");
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(sb.st_size, 4);
    unlink(path);
}

// This program again, as a process of its own: `peer URL` or `listen URL`.
static pid_t spawn(const char *what, const char *url)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "peer", what, url, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void kill_hard(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static int child(const char *what, const char *url)
{
    struct link *k = NULL;
    struct msg *m;

    if (strcmp(what, "listen") == 0) {
        struct listener *l = NULL;

        if (listener_open(&l, url, LIMIT) != ST_OK || listener_accept(l, &k, ENOUGH) != ST_OK)
            return 1;
    } else if (link_dial(&k, url, LIMIT, ENOUGH) != ST_OK) {
        return 1;
    }
    if (msg_new(&m, 42, 0) != ST_OK || link_send(k, m) != ST_OK)
        return 1;
    return link_recv(k, &m, ENOUGH) == ST_OK ? 2 : 3; // to be killed here
}

static void a_killed_peer_is_noticed(void **state)
{
    (void)state;
    for (int kind = IPC; kind < KINDS; kind++) {
        struct listener *l = NULL;
        struct link *k = NULL;
        struct msg *m = NULL;
        int64_t give_up = deadline_after(ENOUGH);
        enum status st;
        pid_t pid;

        assert_ok(listener_open(&l, fresh_url((enum kind)kind), LIMIT));
        pid = spawn("dial", listener_url(l));
        assert_ok(listener_accept(l, &k, ENOUGH));
        assert_ok(link_recv(k, &m, ENOUGH));
        assert_int_equal(m->type, 42);
        msg_free(m);
        kill_hard(pid);
        m = NULL;
        assert_int_equal(link_recv(k, &m, ENOUGH), ST_CLOSED);
        do {
            m = numbered(1, 1000);
            st = link_send(k, m);
        } while (st == ST_OK && clock_now_ns() < give_up);
        assert_int_equal(st, ST_CLOSED); // and no SIGPIPE
        msg_free(m);
        link_destroy(k);
        listener_destroy(l);
    }
}

// A writer that is blocked because its peer does not read must notice the kill as well.
static void *send_until_it_fails(void *arg)
{
    enum status st = ST_OK;

    while (st == ST_OK) {
        struct msg *m;

        if (msg_new(&m, 1, 100000) != ST_OK)
            return (void *)(intptr_t)ST_NOMEM;
        m->len = 100000;
        memset(m->data, 0, m->len);
        st = link_send(arg, m);
        if (st != ST_OK)
            msg_free(m);
    }
    return (void *)(intptr_t)st;
}

static void a_blocked_sender_notices_a_killed_peer(void **state)
{
    (void)state;
    for (int kind = IPC; kind < KINDS; kind++) {
        struct listener *l = NULL;
        struct link *k = NULL;
        pthread_t thread;
        void *end;
        pid_t pid;

        assert_ok(listener_open(&l, fresh_url((enum kind)kind), LIMIT));
        pid = spawn("stopped", listener_url(l));
        assert_ok(listener_accept(l, &k, ENOUGH));
        assert_int_equal(kill(pid, SIGSTOP), 0);
        assert_ok(thread_start(&thread, "sender", send_until_it_fails, k));
        clock_sleep_ns(50 * NS_PER_MS); // most likely blocked by now
        kill_hard(pid);
        pthread_join(thread, &end);
        assert_int_equal((intptr_t)end, ST_CLOSED);
        link_destroy(k);
        listener_destroy(l);
    }
}

static void the_path_of_a_killed_listener_is_taken_over(void **state)
{
    char url[LINK_URL_MAX];
    struct listener *l = NULL;
    struct link *k = NULL;
    struct msg *m = NULL;
    struct stat sb;
    pid_t pid;

    (void)state;
    snprintf(url, sizeof url, "%s", fresh_url(IPC));
    pid = spawn("listen", url);
    assert_ok(link_dial(&k, url, LIMIT, ENOUGH));
    assert_ok(link_recv(k, &m, ENOUGH));
    msg_free(m);
    assert_fails(listener_open(&l, url, LIMIT), ST_IO, "in use"); // it lives
    kill_hard(pid);
    expect_closed(k);
    link_destroy(k);
    assert_int_equal(stat(url + 6, &sb), 0); // nobody has tidied up
    assert_fails(link_dial(&k, url, LIMIT, 0), ST_IO, "nobody listens");
    assert_ok(listener_open(&l, url, LIMIT));
    assert_ok(link_dial(&k, url, LIMIT, 0));
    link_destroy(k);
    listener_destroy(l);
    assert_int_equal(stat(url + 6, &sb), -1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        wire_test(the_header_is_what_it_says),
        wire_test(every_damaged_bit_of_a_header_is_noticed),
        wire_test(hostile_bytes_end_the_connection),
        wire_test(what_was_sent_before_the_damage_still_counts),
        wire_test(a_message_in_pieces_is_put_together),
        wire_test(messages_in_one_piece_are_told_apart),
        wire_test(a_peer_that_stops_holds_nobody_else_up),
        wire_test(a_peer_that_leaves_in_the_middle_is_gone),
        wire_test(tcp_sends_without_delay),
        wire_test(a_file_that_is_no_socket_is_left_alone),
        wire_test(a_killed_peer_is_noticed),
        wire_test(a_blocked_sender_notices_a_killed_peer),
        wire_test(the_path_of_a_killed_listener_is_taken_over),
    };

    if (argc == 3)
        return child(argv[1], argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
