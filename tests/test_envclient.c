// States and fields of a server's envs: branching from one server to another, batches that come
// between question and answer, refusals, and a server that answers nonsense.
#include "tests/wire_samples.h"

#include "common/wire/link.h"
#include "envserver/server.h"
#include "rollout/envclient.h"

#include <stdio.h>

#define N_ENV   4
#define ROW_MAX 8192

struct side {
    struct pool *pool;
    struct server *server;
    struct envclient *client;
    uint8_t rows[N_ENV][ROW_MAX];
    char url[64];
};

static const struct pool_config hopper = {
    .task = "Hopper-v5", .kwargs = "{\"max_episode_steps\": 20}", .n_env = N_ENV, .n_thread = 2};

// All envs of the server, once a client before has gone.
static void dial(struct side *s)
{
    struct envclient_config cfg = {
        .url = s->url,
        .hello = {.autoreset = AUTORESET_SAME_STEP, .n_env = N_ENV, .k_max = 1, .t_max_ns = -1},
        .connect_wait_ns = ENOUGH};
    int64_t until = deadline_after(ENOUGH);

    while (envclient_open(&s->client, &cfg) != ST_OK)
        assert_true(clock_now_ns() < until);
}

static void open_side(struct side *s, const char *name, const struct pool_config *pool)
{
    struct server_config cfg = {.b_max = 16, .t_max_ns = NS_PER_MS};

    memset(s, 0, sizeof *s);
    snprintf(s->url, sizeof s->url, "inproc://test-envclient-%s", name);
    assert_ok(pool_create(&s->pool, pool));
    cfg.pool = s->pool;
    cfg.listen = s->url;
    assert_ok(server_create(&s->server, &cfg));
    dial(s);
    assert_true(envclient_layout(s->client)->stride <= ROW_MAX);
}

static void close_side(struct side *s)
{
    envclient_destroy(s->client);
    server_destroy(s->server);
    pool_destroy(s->pool);
    msg_drain();
}

// Receive n rows.
static void receive(struct side *s, int n)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    uint32_t i;

    while (n > 0) {
        assert_ok(envclient_recv(s->client, &m, &head, &rows, ENOUGH));
        for (i = 0; i < head->n; i++) {
            const uint8_t *row = rows + (size_t)i * head->stride;

            memcpy(s->rows[((const struct row_head *)row)->env], row, head->stride);
        }
        n -= (int)head->n;
        msg_free(m);
    }
    assert_int_equal(n, 0);
}

static void reset_all(struct side *s)
{
    struct reset_row rows[N_ENV] = {0};
    uint32_t i;

    for (i = 0; i < N_ENV; i++)
        rows[i] = (struct reset_row){.env = i, .seed = 5, .stream = i};
    assert_ok(envclient_reset(s->client, rows, N_ENV));
    receive(s, N_ENV);
}

static void send_one(struct side *s, uint32_t env, int t)
{
    uint8_t *row;
    struct msg *m;
    int k;

    assert_ok(envclient_step_begin(s->client, 1, &m, &row));
    *(struct step_row *)row = (struct step_row){.env = env, .n_sub = 1};
    for (k = 0; k < envclient_welcome(s->client)->spec.n_act; k++)
        ((float *)(row + sizeof(struct step_row)))[k] = sinf((float)(3 * t + k));
    assert_ok(envclient_step_send(s->client, m));
}

static void step_one(struct side *s, uint32_t env, int t)
{
    send_one(s, env, t);
    receive(s, 1);
}

static void save(struct side *s, uint32_t env, struct msg **m, const uint8_t **bytes, size_t *n)
{
    struct state_rows rows;

    assert_ok(envclient_save(s->client, &env, 1, m, &rows));
    *bytes = rows.rows + sizeof(struct state_row);
    *n = rows.stride - sizeof(struct state_row);
}

// One state into all envs of another server, whose workers are processes: all go on as the first.
static void check_branches(const struct pool_config *from, int steps)
{
    static const uint32_t all[] = {0, 1, 2, 3};
    struct pool_config other = *from;
    struct side a, b;
    const uint8_t *bytes;
    struct msg *m;
    size_t n, skip = sizeof(uint32_t);
    uint32_t i;
    int t;

    other.isolate = POOL_ISOLATE_PROCESS;
    open_side(&a, "a", from);
    open_side(&b, "b", &other);
    reset_all(&a);
    for (t = 0; t < steps; t++)
        step_one(&a, 2, t);
    save(&a, 2, &m, &bytes, &n);
    assert_ok(envclient_load(b.client, all, N_ENV, bytes, 0, n)); // never reset before
    msg_free(m);
    for (; t < 3 * steps; t++) {
        step_one(&a, 2, t);
        for (i = 0; i < N_ENV; i++) {
            step_one(&b, i, t);
            assert_memory_equal(a.rows[2] + skip, b.rows[i] + skip,
                                envclient_layout(a.client)->stride - skip);
        }
    }
    close_side(&b);
    close_side(&a);
}

static void a_state_goes_on_at_another_server(void **state)
{
    static const struct pool_config libero = {.task = "tabletop/4",
                                              .kwargs = "{\"max_episode_steps\": 5}",
                                              .n_env = N_ENV,
                                              .n_thread = 2};
    struct pool_config varied = libero;

    (void)state;
    check_branches(&hopper, 12);
    check_branches(&libero, 3);
    varied.randomize =
        "[{\"field\": \"body_mass\", \"also\": \"body_inertia\", \"range\": [0.8, 1.2]},"
        " {\"field\": \"gravity\", \"component\": 2, \"range\": [0.9, 1.1]},"
        " {\"field\": \"site_rgba\", \"op\": \"set\", \"range\": [0, 1]},"
        " {\"field\": \"geom_friction\", \"component\": 0, \"range\": [0.5, 1.5]}]";
    check_branches(&varied, 3);
}

// Rows that are on their way when a question is asked are received after the answer.
static void batches_may_come_before_an_answer(void **state)
{
    const uint8_t *bytes;
    struct side s;
    struct msg *m;
    size_t n;
    int t;

    (void)state;
    open_side(&s, "c", &hopper);
    reset_all(&s);
    for (t = 0; t < 50; t++) {
        send_one(&s, 0, t);
        send_one(&s, 1, t);
        save(&s, 3, &m, &bytes, &n);
        assert_memory_equal(bytes, "SIMSTATE", 8);
        msg_free(m);
        receive(&s, 2);
    }
    close_side(&s);
}

struct receiver {
    struct side *side;
    int n;
};

static void *receiver_run(void *arg)
{
    struct receiver *r = arg;

    receive(r->side, r->n);
    return NULL;
}

// One thread receives while another sends and asks.
static void an_answer_finds_the_thread_that_asks(void **state)
{
    const uint8_t *bytes;
    struct receiver r;
    struct side s;
    pthread_t thread;
    struct msg *m;
    size_t n;
    int t;

    (void)state;
    open_side(&s, "d", &hopper);
    reset_all(&s);
    for (t = 0; t < 20; t++) {
        r = (struct receiver){&s, 2};
        assert_ok(thread_start(&thread, "receiver", receiver_run, &r));
        send_one(&s, 0, t);
        save(&s, 3, &m, &bytes, &n); // the receiver waits for env 1 meanwhile
        msg_free(m);
        send_one(&s, 1, t);
        save(&s, 3, &m, &bytes, &n);
        msg_free(m);
        pthread_join(thread, NULL);
    }
    close_side(&s);
}

static void refusals_name_their_reason_and_nothing_is_done(void **state)
{
    static const uint32_t two[] = {0, 1}, twice[] = {1, 1}, strange[] = {0, 9};
    struct pool_config ant = hopper;
    uint8_t both[2 * 8192];
    struct state_rows rows;
    struct side s, other;
    const struct batch_head *head;
    const uint8_t *bytes, *row;
    struct msg *m, *x;
    size_t n;

    (void)state;
    ant.task = "Walker2d-v5";
    open_side(&s, "e", &hopper);
    open_side(&other, "f", &ant);
    assert_fails(envclient_save(s.client, two, 1, &m, &rows), ST_INVAL, "before its first reset");
    reset_all(&s);
    reset_all(&other);
    assert_fails(envclient_save(s.client, strange, 2, &m, &rows), ST_PROTO, "env 9 is not one of");
    assert_fails(envclient_save(s.client, twice, 2, &m, &rows), ST_PROTO, "env 1 stands twice");
    save(&s, 0, &m, &bytes, &n);
    assert_fails(envclient_load(other.client, two, 1, bytes, 0, n), ST_PROTO,
                 "the state is one of task 'Hopper-v5', expected 'Walker2d-v5'");
    assert_fails(envclient_load(s.client, two, 1, bytes, 0, n - 8), ST_PROTO, "bytes, expected");
    assert_fails(envclient_load(s.client, two, 1, bytes, 0, n - 4), ST_INVAL, "are no state");
    step_one(&s, 0, 0);
    assert_true(2 * n <= sizeof both);
    memcpy(both, bytes, n);
    memcpy(both + n, bytes, n);
    both[2 * n - 3] ^= 1;
    assert_fails(envclient_load(s.client, two, 2, both, n, n), ST_PROTO, "damaged");
    save(&s, 0, &x, &bytes, &n);
    assert_memory_not_equal(bytes, both, n); // env 0 was not set back
    msg_free(x);
    send_one(&s, 9, 0); // refused as well, and told to the receiver
    save(&s, 0, &x, &bytes, &n);
    msg_free(x);
    assert_fails(envclient_recv(s.client, &x, &head, &row, ENOUGH), ST_PROTO, "env 9");
    assert_fails(envclient_set(s.client, two, 1, "gravity", "", (double[]){1, 2, 3}, 3), ST_INVAL,
                 "made without `randomize`");
    assert_fails(envclient_get(s.client, two, 1, "gravity", "", &x, &rows), ST_INVAL,
                 "made without `randomize`");
    msg_free(m);
    close_side(&other);
    close_side(&s);
}

static void fields_are_set_and_read(void **state)
{
    static const uint32_t env[] = {1, 3};
    static const double moon[2][3] = {{0, 0, -1.62}, {0, 0, -3.7}}, bad[2][3] = {{0}, {0, NAN, 0}};
    struct pool_config cfg = hopper;
    struct state_rows rows;
    struct side s;
    struct msg *m;
    double x[3];

    (void)state;
    cfg.randomize = "[{\"field\": \"gravity\"}, {\"field\": \"body_mass\", \"range\": [0.5, 2]}]";
    open_side(&s, "g", &cfg);
    reset_all(&s);
    assert_ok(envclient_set(s.client, env, 2, "gravity", "", moon[0], 3));
    assert_fails(envclient_set(s.client, env, 2, "gravity", "", bad[0], 3), ST_INVAL,
                 "env 3: field 'gravity', element '': number 1 is not finite");
    assert_fails(envclient_set(s.client, env, 2, "gravity", "", moon[0], 2), ST_INVAL,
                 "expected 3");
    assert_fails(envclient_set(s.client, env, 2, "geom_size", "", moon[0], 3), ST_INVAL,
                 "'geom_size' is not in the plan");
    assert_ok(envclient_get(s.client, env, 2, "gravity", "", &m, &rows));
    assert_int_equal(rows.stride, 8 + 24);
    memcpy(x, rows.rows + 8 + 32, sizeof x);
    assert_true(x[2] == -3.7);
    msg_free(m);
    assert_ok(envclient_get(s.client, (uint32_t[]){0}, 1, "body_mass", "torso", &m, &rows));
    assert_int_equal(rows.stride, 8 + 8);
    msg_free(m);
    envclient_destroy(s.client); // who comes next finds the models as they were
    dial(&s);
    assert_ok(envclient_get(s.client, env, 2, "gravity", "", &m, &rows));
    memcpy(x, rows.rows + 8 + 32, sizeof x);
    assert_true(x[2] == -9.81);
    msg_free(m);
    close_side(&s);
}

// A server that welcomes a client and then says something wrong, or nothing, to its SAVE.
enum lie { OTHER_TYPE, OTHER_ENV, OTHER_REQUEST, CUT_SHORT, HANGS_UP };

struct liar {
    struct listener *listener;
    enum lie lie;
    bool knows_states;
};

static struct msg *lie_about(const struct state_rows *q, enum lie lie)
{
    uint32_t env[2] = {0, 7};
    struct msg *m = NULL;
    uint8_t *rows;

    if (lie == OTHER_TYPE) {
        assert_ok(executed_write(&m, q->seq));
        return m;
    }
    if (lie == OTHER_ENV)
        env[0] = 63;
    assert_ok(
        state_begin_rows(&m, MSG_SAVED, q->seq + (lie == OTHER_REQUEST), env, q->n, 16, &rows));
    if (lie == CUT_SHORT)
        m->len -= 8;
    return m;
}

static void *liar_run(void *arg)
{
    struct liar *l = arg;
    struct welcome *w = sample_welcome();
    struct state_rows q;
    struct link *link;
    struct msg *m;

    if (l->knows_states)
        w->features |= FEATURE_STATE;
    assert_ok(listener_accept(l->listener, &link, ENOUGH));
    assert_ok(link_recv(link, &m, ENOUGH));
    msg_free(m);
    assert_ok(welcome_write(&m, w));
    assert_ok(link_send(link, m));
    if (l->knows_states) {
        assert_ok(link_recv(link, &m, ENOUGH));
        assert_ok(state_read_rows(m, &q));
        msg_free(m);
        if (l->lie != HANGS_UP)
            assert_ok(link_send(link, lie_about(&q, l->lie)));
    }
    while (l->lie != HANGS_UP && link_recv(link, &m, ENOUGH) == ST_OK)
        msg_free(m);
    link_close(link);
    link_destroy(link);
    mem_free(w);
    return NULL;
}

static void check_lie(enum lie lie, bool knows_states, enum status want, const char *text)
{
    static const uint32_t env[] = {0, 7};
    struct liar liar = {.lie = lie, .knows_states = knows_states};
    struct envclient_config cfg = {.url = "inproc://test-envclient-liar",
                                   .hello = {.n_env = 3, .k_max = SAMPLE_K, .t_max_ns = -1},
                                   .connect_wait_ns = ENOUGH};
    struct envclient *c;
    struct state_rows rows;
    pthread_t thread;
    struct msg *m;

    assert_ok(listener_open(&liar.listener, cfg.url, 1 << 20));
    assert_ok(thread_start(&thread, "liar", liar_run, &liar));
    assert_ok(envclient_open(&c, &cfg));
    assert_fails(envclient_save(c, env, 2, &m, &rows), want, text);
    envclient_destroy(c);
    pthread_join(thread, NULL);
    listener_close(liar.listener);
    listener_destroy(liar.listener);
    msg_drain();
}

static void answers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    check_lie(OTHER_TYPE, true, ST_PROTO, "sent a message of type 12");
    check_lie(OTHER_ENV, true, ST_PROTO, "answers for other envs");
    check_lie(OTHER_REQUEST, true, ST_PROTO, "answers request 2, expected 1");
    check_lie(CUT_SHORT, true, ST_PROTO, "SAVED is too short");
    check_lie(HANGS_UP, true, ST_CLOSED, "is gone");
    check_lie(OTHER_TYPE, false, ST_INVAL, "without states and fields");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(a_state_goes_on_at_another_server),
        leak_test(batches_may_come_before_an_answer),
        leak_test(an_answer_finds_the_thread_that_asks),
        leak_test(refusals_name_their_reason_and_nothing_is_done),
        leak_test(fields_are_set_and_read),
        leak_test(answers_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
