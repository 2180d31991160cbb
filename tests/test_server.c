// The env server over inproc: leases, refusals, clients that die or talk nonsense.
#include "tests/testing.h"

#include "common/wire/link.h"
#include "envserver/server.h"
#include "rollout/envclient.h"

#define URL "inproc://test-server"

struct rig {
    struct pool *pool;
    struct server *server;
};

static void rig_init(struct rig *r, int n_env)
{
    assert_ok(pool_create(
        &r->pool, &(struct pool_config){
                      .task = "InvertedPendulum-v5", .kwargs = "", .n_env = n_env, .n_thread = 1}));
    assert_ok(server_create(
        &r->server, &(struct server_config){
                        .pool = r->pool, .listen = URL, .b_max = 16, .t_max_ns = NS_PER_MS}));
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
                                   .connect_wait_ns = NS_PER_S};

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

    assert_ok(envclient_recv(c, &m, &head, &rows, 10 * NS_PER_S));
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
    int64_t until = deadline_after(10 * NS_PER_S);

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
    assert_fails(envclient_recv(c, &m, &head, &rows, 10 * NS_PER_S), ST_PROTO, "env 5");
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

    assert_ok(link_dial(&k, URL, 1 << 20, NS_PER_S));
    if (after_hello) {
        struct hello h = {
            .version = ENVPROTO_VERSION, .n_env = 1, .k_max = 1, .b_max = 0, .t_max_ns = -1};

        assert_ok(hello_write(&m, &h));
        assert_ok(link_send(k, m));
        assert_ok(link_recv(k, &m, 10 * NS_PER_S));
        assert_int_equal(m->type, MSG_WELCOME);
        msg_free(m);
    }
    assert_ok(msg_new(&m, type, n + 1));
    assert_ok(msg_bytes(m, bytes, n));
    assert_ok(link_send(k, m));
    assert_ok(link_recv(k, &m, 10 * NS_PER_S));
    assert_int_equal(m->type, MSG_ERROR);
    msg_free(m);
    assert_int_equal(link_recv(k, &m, 10 * NS_PER_S), ST_CLOSED);
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
    assert_ok(link_dial(&k, URL, 1 << 20, NS_PER_S));
    assert_ok(hello_write(&m, &h));
    assert_ok(link_send(k, m));
    assert_ok(link_recv(k, &m, 10 * NS_PER_S));
    assert_ok(proto_error_read(m, &e));
    assert_non_null(strstr(e.text, "version"));
    msg_free(m);
    link_destroy(k);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
