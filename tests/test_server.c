// The env server over inproc: leases, refusals, clients that die or talk nonsense.
#include "tests/testing.h"

#include "common/wire/link.h"
#include "envserver/server.h"
#include "rollout/envclient.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define URL "inproc://test-server"

struct rig {
    struct pool *pool;
    struct server *server;
};

static void rig_init_with(struct rig *r, int n_env, struct server_config cfg)
{
    assert_ok(pool_create(
        &r->pool, &(struct pool_config){
                      .task = "InvertedPendulum-v5", .kwargs = "", .n_env = n_env, .n_thread = 1}));
    cfg.pool = r->pool;
    cfg.listen = URL;
    cfg.b_max = 16;
    cfg.t_max_ns = NS_PER_MS;
    assert_ok(server_create(&r->server, &cfg));
}

// How many sessions ended by `why`, once they are `n` or more: a client sees its end before the
// server counts it.
static int64_t ended(const struct rig *r, int why, int64_t n)
{
    int64_t until = clock_now_ns() + ENOUGH;
    struct server_stats stats;

    do {
        server_stats_get(r->server, &stats);
    } while (stats.ended[why] < n && clock_now_ns() < until);
    return stats.ended[why];
}

static void rig_init(struct rig *r, int n_env)
{
    rig_init_with(r, n_env, (struct server_config){0});
}

static void rig_fini(struct rig *r)
{
    server_destroy(r->server);
    pool_destroy(r->pool);
    msg_drain();
}

static enum status dial(struct envclient **c, uint32_t n_env)
{
    struct envclient_config cfg = {.url = URL,
                                   .hello = {.n_env = n_env, .k_max = 1, .t_max_ns = -1},
                                   .connect_wait_ns = ENOUGH};

    *c = NULL;
    return envclient_open(c, &cfg);
}

static enum status reset_one(struct envclient *c, uint32_t env)
{
    struct reset_row row = {.env = env, .seed = 1, .stream = env};

    return envclient_reset(c, &row, 1);
}

// Receive one batch and give its first row's flags.
static uint32_t recv_flags(struct envclient *c)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    uint32_t flags;

    assert_ok(envclient_recv(c, &m, &head, &rows, ENOUGH));
    flags = ((const struct row_head *)rows)->flags;
    msg_free(m);
    return flags;
}

static void clients_share_the_envs(void **state)
{
    struct envclient *a, *b, *c;
    struct rig r;

    (void)state;
    rig_init(&r, 3);
    assert_ok(dial(&a, 2));
    assert_ok(dial(&b, 0));
    assert_int_equal(envclient_welcome(a)->n_env, 2);
    assert_int_equal(envclient_welcome(b)->env[0], 2);
    assert_string_equal(envclient_welcome(b)->spec.task, "InvertedPendulum-v5");
    assert_fails(dial(&c, 1), ST_INVAL, "0 of 3 are free");
    assert_ok(reset_one(a, 0));
    assert_int_equal(recv_flags(a), ROW_FIRST);
    assert_ok(reset_one(b, 2));
    assert_int_equal(recv_flags(b), ROW_FIRST);
    envclient_destroy(a);
    envclient_destroy(b);
    rig_fini(&r);
}

static void a_dead_client_frees_its_envs(void **state)
{
    struct envclient *a, *b;
    struct rig r;
    int64_t until = deadline_after(ENOUGH);

    (void)state;
    rig_init(&r, 2);
    assert_ok(dial(&a, 0));
    assert_ok(reset_one(a, 1)); // and go away while it runs
    envclient_destroy(a);
    while (dial(&b, 2) != ST_OK)
        assert_true(clock_now_ns() < until);
    assert_ok(reset_one(b, 1));
    assert_int_equal(recv_flags(b), ROW_FIRST);
    envclient_destroy(b);
    rig_fini(&r);
}

static void a_refusal_names_the_env_and_the_client_goes_on(void **state)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct envclient *c;
    struct msg *m;
    struct rig r;

    (void)state;
    rig_init(&r, 2);
    assert_ok(dial(&c, 0));
    assert_ok(reset_one(c, 5));
    assert_fails(envclient_recv(c, &m, &head, &rows, ENOUGH), ST_PROTO, "env 5");
    assert_ok(reset_one(c, 1));
    assert_int_equal(recv_flags(c), ROW_FIRST);
    envclient_destroy(c);
    rig_fini(&r);
}

// Send raw messages; the server must answer ERROR and close, and serve others as before.
static void nonsense(uint16_t type, const char *bytes, size_t n, bool after_hello)
{
    struct link *k;
    struct msg *m;

    assert_ok(link_dial(&k, URL, 1 << 20, ENOUGH));
    if (after_hello) {
        struct hello h = {
            .version = ENVPROTO_VERSION, .n_env = 1, .k_max = 1, .b_max = 0, .t_max_ns = -1};

        assert_ok(hello_write(&m, &h));
        assert_ok(link_send(k, m));
        assert_ok(link_recv(k, &m, ENOUGH));
        assert_int_equal(m->type, MSG_WELCOME);
        msg_free(m);
    }
    assert_ok(msg_new(&m, type, n + 1));
    assert_ok(msg_bytes(m, bytes, n));
    assert_ok(link_send(k, m));
    assert_ok(link_recv(k, &m, ENOUGH));
    assert_int_equal(m->type, MSG_ERROR);
    msg_free(m);
    assert_int_equal(link_recv(k, &m, ENOUGH), ST_CLOSED);
    link_destroy(k);
}

static void nonsense_ends_one_connection_only(void **state)
{
    struct envclient *c;
    struct rig r;
    struct reset_row row = {.env = 1};
    struct msg *m;

    (void)state;
    rig_init(&r, 4);
    assert_ok(dial(&c, 1));
    nonsense(MSG_STEP, "hello?", 6, false);
    nonsense(MSG_HELLO, "\1\0\0\0", 4, false);
    nonsense(MSG_STEP, "short", 5, true);
    nonsense(999, "", 0, true);
    assert_ok(reset_write(&m, 2, &row, 1)); // request 2 without request 1
    nonsense(MSG_RESET, (const char *)m->data, m->len, true);
    msg_free(m);
    assert_ok(reset_one(c, envclient_welcome(c)->env[0]));
    assert_int_equal(recv_flags(c), ROW_FIRST);
    envclient_destroy(c);
    rig_fini(&r);
}

static void a_wrong_version_is_refused(void **state)
{
    struct proto_error e;
    struct hello h = {.version = ENVPROTO_VERSION + 1, .k_max = 1, .t_max_ns = -1};
    struct link *k;
    struct msg *m;
    struct rig r;

    (void)state;
    rig_init(&r, 1);
    assert_ok(link_dial(&k, URL, 1 << 20, ENOUGH));
    assert_ok(hello_write(&m, &h));
    assert_ok(link_send(k, m));
    assert_ok(link_recv(k, &m, ENOUGH));
    assert_ok(proto_error_read(m, &e));
    assert_non_null(strstr(e.text, "version"));
    msg_free(m);
    link_destroy(k);
    rig_fini(&r);
}

static enum status dial_with(struct envclient **c, const char *key_file)
{
    struct envclient_config cfg = {.url = URL,
                                   .hello = {.n_env = 1, .k_max = 1, .t_max_ns = -1},
                                   .connect_wait_ns = ENOUGH,
                                   .key_file = key_file};

    *c = NULL;
    return envclient_open(c, &cfg);
}

static void write_key(const char *path, const char *key)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(key, f);
    fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
}

static void only_who_has_the_key_is_served(void **state)
{
    char dir[] = "/tmp/simstream-server-XXXXXX", right[64], wrong[64];
    struct auth_key key;
    struct envclient *c;
    struct rig r;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(right, sizeof right, "%s/right", dir);
    snprintf(wrong, sizeof wrong, "%s/wrong", dir);
    write_key(right, "a key of twenty-two bytes");
    write_key(wrong, "a key of twenty-two bites");
    assert_ok(auth_key_load(&key, right));
    rig_init_with(&r, 2, (struct server_config){.key = &key});
    assert_fails(dial_with(&c, NULL), ST_INVAL, "asks for a key");
    assert_fails(dial_with(&c, wrong), ST_PROTO, "the client has another key");
    assert_ok(dial_with(&c, right));
    assert_ok(reset_one(c, 0));
    assert_int_equal(recv_flags(c), ROW_FIRST);
    envclient_destroy(c);
    assert_int_equal(ended(&r, END_AUTH, 2), 2);
    rig_fini(&r);
    // and a client with a key does not talk to a server that does not prove it
    rig_init(&r, 2);
    assert_fails(dial_with(&c, right), ST_INVAL, "this server has none");
    rig_fini(&r);
    unlink(right);
    unlink(wrong);
    assert_int_equal(rmdir(dir), 0);
}

static void an_open_address_needs_a_key(void **state)
{
    struct server *other = NULL;
    struct rig r;

    (void)state;
    rig_init(&r, 1);
    assert_fails(server_create(&other, &(struct server_config){.pool = r.pool,
                                                               .listen = "tcp://0.0.0.0:0",
                                                               .b_max = 1}),
                 ST_INVAL, "--key-file");
    assert_ok(server_create(
        &other, &(struct server_config){
                    .pool = r.pool, .listen = "tcp://0.0.0.0:0", .b_max = 1, .insecure = true}));
    server_destroy(other);
    rig_fini(&r);
}

// A client that neither reads nor writes: the other end of a connection that is only half open.
static void a_silent_client_loses_its_envs(void **state)
{
    struct hello h = {.version = ENVPROTO_VERSION,
                      .k_max = 1,
                      .t_max_ns = -1,
                      .features = FEATURE_HEARTBEAT,
                      .idle_ns = 200 * NS_PER_MS};
    int64_t until = deadline_after(ENOUGH);
    struct envclient *c;
    struct link *k;
    struct msg *m;
    struct rig r;

    (void)state;
    rig_init(&r, 1);
    assert_ok(link_dial(&k, URL, 1 << 20, ENOUGH));
    assert_ok(hello_write(&m, &h));
    assert_ok(link_send(k, m));
    assert_ok(link_recv(k, &m, ENOUGH)); // WELCOME: the env is its own now
    msg_free(m);
    while (dial(&c, 1) != ST_OK)
        assert_true(clock_now_ns() < until);
    assert_int_equal(ended(&r, END_IDLE, 1), 1);
    link_destroy(k);
    envclient_destroy(c);
    rig_fini(&r);
}

// Say nothing for five idle times in waits of `wait_ns`, then ask for something.
static enum status wait_long(int64_t idle_ns, int64_t wait_ns)
{
    struct envclient_config cfg = {.url = URL,
                                   .hello = {.k_max = 1, .t_max_ns = -1, .idle_ns = idle_ns},
                                   .connect_wait_ns = ENOUGH};
    const struct batch_head *head;
    enum status st = ST_TIMEOUT;
    const uint8_t *rows;
    struct envclient *c;
    struct msg *m;
    struct rig r;

    rig_init(&r, 1);
    assert_ok(envclient_open(&c, &cfg));
    for (int64_t left = 5 * idle_ns; left > 0 && st == ST_TIMEOUT; left -= wait_ns)
        st = envclient_recv(c, &m, &head, &rows, wait_ns);
    if (st == ST_TIMEOUT)
        st = reset_one(c, 0);
    if (st == ST_OK)
        st = envclient_recv(c, &m, &head, &rows, ENOUGH);
    if (st == ST_OK)
        msg_free(m);
    envclient_destroy(c);
    rig_fini(&r);
    return st;
}

// One that answers PINGs may be idle for as long as it likes. Where the machine is so slow that it
// does not come to answer them in time, more time helps.
static void a_waiting_client_is_not_silent(void **state)
{
    (void)state;
    for (int shorter = 0; shorter < 2; shorter++) { // waits than the idle time
        int64_t idle_ns = 150 * NS_PER_MS;

        while (wait_long(idle_ns, shorter ? idle_ns / 3 : 5 * idle_ns) != ST_OK) {
            idle_ns *= 4;
            assert_true(idle_ns < 60 * NS_PER_S);
        }
    }
}

// A server that says nothing after WELCOME.
static void *mute_server(void *arg)
{
    struct welcome *w = mem_alloc(1, sizeof *w);
    struct listener *l = arg;
    struct link *k;
    struct msg *m;

    assert_ok(listener_accept(l, &k, ENOUGH));
    assert_ok(link_recv(k, &m, ENOUGH));
    msg_free(m);
    *w = (struct welcome){.spec = {.task = "Mute",
                                   .engine = "none",
                                   .instruction = "nothing",
                                   .n_obs = 1,
                                   .n_act = 1,
                                   .act_low = {-1},
                                   .act_high = {1},
                                   .dt_s = 1,
                                   .n_env = 1},
                          .k_max = 1,
                          .b_max = 1,
                          .b_min = 1,
                          .idle_ns = 200 * NS_PER_MS,
                          .features = FEATURE_HEARTBEAT,
                          .n_env = 1};
    assert_ok(welcome_write(&m, w));
    assert_ok(link_send(k, m));
    mem_free(w);
    while (link_recv(k, &m, ENOUGH) == ST_OK)
        msg_free(m);
    link_destroy(k);
    return NULL;
}

static void a_silent_server_is_found(void **state)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct listener *l;
    struct envclient *c;
    pthread_t thread;
    struct msg *m;

    (void)state;
    assert_ok(listener_open(&l, URL, 1 << 20));
    assert_ok(thread_start(&thread, "mute", mute_server, l));
    assert_ok(dial(&c, 1));
    assert_ok(reset_one(c, 0));
    assert_fails(envclient_recv(c, &m, &head, &rows, WAIT_NEVER), ST_IO, "is silent for 0.");
    envclient_destroy(c);
    pthread_join(thread, NULL);
    listener_destroy(l);
    msg_drain();
}

// All that is in flight arrives, then the reason, and nothing is executed after that.
static void a_drain_loses_nothing(void **state)
{
    const struct batch_head *head;
    struct server_stats stats;
    struct reset_row reset[8];
    const uint8_t *rows;
    struct envclient *c;
    int got = 0, asked = 8;
    enum status st;
    struct msg *m;
    struct rig r;

    (void)state;
    rig_init(&r, 8);
    assert_ok(dial(&c, 8));
    for (uint32_t i = 0; i < 8; i++)
        reset[i] = (struct reset_row){.env = i, .seed = 3, .stream = i};
    assert_ok(envclient_reset(c, reset, 8));
    do {
        server_stats_get(r.server, &stats);
    } while (stats.resets == 0);
    // without a reader on the other side the drain ends by its time, but not by a loss
    (void)server_drain(r.server, 50 * NS_PER_MS);
    assert_int_equal(link_dial(&(struct link *){0}, URL, 1 << 20, 0), ST_IO); // nobody new
    (void)reset_one(c, 0);                                                    // comes too late
    while ((st = envclient_recv(c, &m, &head, &rows, ENOUGH)) == ST_OK) {
        got += (int)head->n;
        msg_free(m);
    }
    assert_int_equal(st, ST_CLOSED);
    assert_non_null(strstr(error_last()->text, "the server is stopped"));
    assert_int_equal(got, asked);
    envclient_destroy(c);
    assert_true(server_drain(r.server, ENOUGH));
    assert_int_equal(ended(&r, END_DRAINED, 1), 1);
    rig_fini(&r);
}

static void an_address_in_use_is_an_error(void **state)
{
    struct server *other = NULL;
    struct rig r;

    (void)state;
    rig_init(&r, 1);
    assert_int_equal(
        server_create(&other, &(struct server_config){.pool = r.pool, .listen = URL, .b_max = 1}),
        ST_IO);
    assert_non_null(strstr(error_last()->text, URL));
    assert_null(other);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(clients_share_the_envs),
        leak_test(a_dead_client_frees_its_envs),
        leak_test(a_refusal_names_the_env_and_the_client_goes_on),
        leak_test(nonsense_ends_one_connection_only),
        leak_test(a_wrong_version_is_refused),
        leak_test(an_address_in_use_is_an_error),
        leak_test(only_who_has_the_key_is_served),
        leak_test(an_open_address_needs_a_key),
        leak_test(a_silent_client_loses_its_envs),
        leak_test(a_waiting_client_is_not_silent),
        leak_test(a_silent_server_is_found),
        leak_test(a_drain_loses_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
