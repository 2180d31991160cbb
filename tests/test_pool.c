// The pool and its ports: leases, refusals, dynamic batches, isolation of faults, determinism.
#include "tests/testing.h"

#include "envserver/pool_priv.h"

static struct pool *make_pool(const char *task, const char *kwargs, int n_env, int n_thread)
{
    struct pool *pool = NULL;

    assert_ok(pool_create(
        &pool, &(struct pool_config){
                   .task = task, .kwargs = kwargs, .n_env = n_env, .n_thread = n_thread}));
    return pool;
}

static struct port *make_port(struct pool *pool, int n_env, enum autoreset mode, int b_max,
                              int64_t t_max_ns)
{
    struct port *port = NULL;

    assert_ok(port_open(
        &port, pool,
        &(struct port_config){
            .autoreset = mode, .n_env = n_env, .k_max = 1, .b_max = b_max, .t_max_ns = t_max_ns}));
    return port;
}

static void reset_all(struct port *port)
{
    struct reset_row rows[64];
    const uint32_t *ids;
    int i, n;

    ids = port_envs(port, &n);
    for (i = 0; i < n; i++)
        rows[i] = (struct reset_row){.env = ids[i], .seed = 1, .stream = ids[i]};
    assert_ok(port_reset(port, rows, n));
}

// Actions for the envs of `ids`: a function of (env, t).
static enum status step(struct port *port, const uint32_t *ids, int n, int t)
{
    int n_act = pool_spec(port->pool)->n_act, i, k;
    size_t stride = step_stride(1, n_act);
    uint8_t buf[64 * 256];
    enum status st;

    memset(buf, 0, sizeof buf);
    for (i = 0; i < n; i++) {
        struct step_row *row = (struct step_row *)(buf + (size_t)i * stride);

        row->env = ids[i];
        row->n_sub = 1;
        for (k = 0; k < n_act; k++)
            ((float *)(row + 1))[k] = sinf((float)(ids[i] * 7 + (uint32_t)(t * 3 + k)));
    }
    st = port_step(port, buf, n);
    return st;
}

static int batch_size(struct port *port, struct msg *m, uint32_t *ids)
{
    const struct batch_head *head;
    const uint8_t *rows;
    uint32_t i;

    assert_ok(batch_read(m, port_layout(port), &head, &rows));
    for (i = 0; ids && i < head->n; i++)
        ids[i] = ((const struct row_head *)(rows + (size_t)i * head->stride))->env;
    return (int)head->n;
}

static void drain(struct port *port)
{
    struct msg *m;

    while (port_recv(port, &m, ENOUGH) == ST_OK)
        msg_free(m);
}

static void ports_lease_disjoint_envs(void **state)
{
    struct pool *pool = make_pool("InvertedPendulum-v5", "", 4, 1);
    struct port *a = make_port(pool, 3, AUTORESET_NEXT_STEP, 4, 0), *b = NULL;
    struct port_config two = {.n_env = 2, .k_max = 1, .b_max = 1};
    uint32_t foreign = 3;
    int n;

    (void)state;
    assert_fails(port_open(&b, pool, &two), ST_INVAL, "1 of 4 are free");
    b = make_port(pool, 0, AUTORESET_NEXT_STEP, 4, 0);
    assert_int_equal(port_envs(b, &n)[0], 3);
    assert_int_equal(n, 1);
    reset_all(a);
    assert_fails(step(a, &foreign, 1, 0), ST_PROTO, "env 3 is not one of this client's");
    assert_int_equal(port_refused_env(a), 3);
    port_close(b);
    b = make_port(pool, 1, AUTORESET_NEXT_STEP, 4, 0);
    port_close(b);
    drain(a);
    port_close(a);
    pool_destroy(pool);
    msg_drain();
}

static void a_refused_request_changes_nothing(void **state)
{
    struct pool *pool = make_pool("Hopper-v5", "", 3, 1);
    struct port *port = make_port(pool, 0, AUTORESET_DISABLED, 3, 0);
    uint32_t ids[] = {0, 1, 1}, all[] = {0, 1, 2};
    uint8_t row[64] = {0};
    float *action = (float *)(row + sizeof(struct step_row));

    (void)state;
    assert_fails(step(port, all, 3, 0), ST_PROTO, "env 0 needs a reset");
    reset_all(port);
    drain(port);
    assert_fails(step(port, ids, 3, 0), ST_PROTO, "env 1 stands twice");
    ((struct step_row *)row)->env = 2;
    ((struct step_row *)row)->n_sub = 1;
    action[1] = NAN;
    assert_fails(port_step(port, row, 1), ST_PROTO, "env 2: action [0][1] is NaN");
    action[1] = -INFINITY;
    assert_fails(port_step(port, row, 1), ST_PROTO, "env 2: action [0][1] is infinite");
    ((struct step_row *)row)->n_sub = 2;
    assert_fails(port_step(port, row, 1), ST_PROTO, "env 2: 2 actions");
    assert_int_equal(port->in_flight, 0);
    assert_ok(step(port, all, 3, 0));
    drain(port);
    port_close(port);
    pool_destroy(pool);
    msg_drain();
}

static void impossible_settings_are_refused(void **state)
{
    struct pool *pool = make_pool("Swimmer-v5", "", 1, 1);
    struct port *port = NULL;
    struct port_config cfg = {.k_max = 1, .b_max = 0};

    (void)state;
    assert_fails(port_open(&port, pool, &cfg), ST_INVAL, "batch size 0");
    cfg.b_max = 1;
    cfg.k_max = 0;
    assert_fails(port_open(&port, pool, &cfg), ST_INVAL, "0 actions");
    cfg.k_max = 1;
    cfg.t_max_ns = -1;
    assert_fails(port_open(&port, pool, &cfg), ST_INVAL, "negative");
    assert_null(port);
    pool_destroy(pool);
    assert_fails(pool_create(&pool, &(struct pool_config){.task = "Swimmer-v5", .n_env = 0}),
                 ST_INVAL, "0 envs");
}

// With an endless T_max batches leave full, and the rest leaves when nothing else can join.
static void batches_leave_full_or_drained(void **state)
{
    struct pool *pool = make_pool("Swimmer-v5", "", 10, 2);
    struct port *port = make_port(pool, 0, AUTORESET_NEXT_STEP, 4, 3600 * NS_PER_S);
    int t, seen[10], i, n, total;
    uint32_t ids[64];
    struct msg *m;

    (void)state;
    reset_all(port);
    for (t = 0; t < 20; t++) {
        memset(seen, 0, sizeof seen);
        for (total = 0; total < 10; total += n) {
            assert_ok(port_recv(port, &m, ENOUGH));
            n = batch_size(port, m, ids);
            assert_true(n == 4 || (n == 2 && total == 8));
            for (i = 0; i < n; i++)
                seen[ids[i]]++;
            msg_free(m);
        }
        for (i = 0; i < 10; i++)
            assert_int_equal(seen[i], 1);
        assert_int_equal(port_recv(port, &m, ENOUGH), ST_AGAIN); // nothing would ever come
        for (i = 0; i < 10; i++)
            ids[i] = (uint32_t)i;
        assert_ok(step(port, ids, 10, t));
    }
    drain(port);
    port_close(port);
    pool_destroy(pool);
    msg_drain();
}

static void a_closed_port_drops_what_nobody_read(void **state)
{
    struct pool *pool = make_pool("Swimmer-v5", "", 6, 2);
    struct port *port = make_port(pool, 0, AUTORESET_NEXT_STEP, 2, 0);

    (void)state;
    reset_all(port);
    port_close(port);
    port = make_port(pool, 6, AUTORESET_NEXT_STEP, 6, 0);
    reset_all(port);
    drain(port);
    port_close(port);
    pool_destroy(pool);
    msg_drain();
}

// Hash of all rows of `steps` steps of every env, in the order of envs.
static uint64_t fingerprint(int n_env, int n_thread, int b_max, uint32_t spoil)
{
    struct pool *pool = make_pool("Hopper-v5", "", n_env, n_thread);
    struct port *port = make_port(pool, 0, AUTORESET_SAME_STEP, b_max, 100000);
    uint64_t hash[64];
    uint32_t ids[64];
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    int t, i, n;
    size_t k;

    for (i = 0; i < 64; i++)
        hash[i] = 14695981039346656037u;
    reset_all(port);
    for (t = 0; t < 300; t++) {
        n = 0;
        while (n < n_env) {
            assert_ok(port_recv(port, &m, ENOUGH));
            assert_ok(batch_read(m, port_layout(port), &head, &rows));
            for (i = 0; i < (int)head->n; i++) {
                const uint8_t *row = rows + (size_t)i * head->stride;
                uint32_t env = ((const struct row_head *)row)->env;

                for (k = 0; k < head->stride; k++)
                    hash[env] = (hash[env] ^ row[k]) * 1099511628211u;
            }
            n += (int)head->n;
            msg_free(m);
        }
        if (t == 100 && spoil < (uint32_t)n_env)
            ((double *)pool->slots[spoil].env.row)[1 + pool->scene->model->nq] = NAN;
        for (i = 0; i < n_env; i++)
            ids[i] = (uint32_t)i;
        if (t < 299)
            assert_ok(step(port, ids, n_env, t));
    }
    port_close(port);
    pool_destroy(pool);
    msg_drain();
    for (i = 1; i < 4; i++)
        hash[0] = hash[0] * 31 + hash[i];
    return hash[0];
}

static void trajectories_do_not_depend_on_threads_batches_or_neighbours(void **state)
{
    uint64_t want = fingerprint(4, 1, 4, UINT32_MAX);

    (void)state;
    assert_true(fingerprint(4, 2, 1, UINT32_MAX) == want);
    assert_true(fingerprint(16, 3, 5, UINT32_MAX) == want);
    assert_true(fingerprint(8, 2, 8, 6) == want); // a world that breaks disturbs no other
    assert_false(fingerprint(8, 2, 8, 2) == want);
}

static void errors_are_counted(void **state)
{
    struct pool *pool = make_pool("Hopper-v5", "", 2, 1);
    struct port *port = make_port(pool, 0, AUTORESET_NEXT_STEP, 2, 0);
    uint32_t ids[] = {0, 1};
    struct pool_stats stats;

    (void)state;
    reset_all(port);
    drain(port);
    ((double *)pool->slots[1].env.row)[1] = NAN;
    assert_ok(step(port, ids, 2, 0));
    drain(port);
    pool_stats_get(pool, &stats);
    assert_int_equal(stats.steps, 1);
    assert_int_equal(stats.errors, 1);
    assert_int_equal(stats.episodes, 1);
    assert_int_equal(stats.rows, 4);
    port_close(port);
    pool_destroy(pool);
    msg_drain();
}

static void a_receiver_wakes_up(void **state)
{
    struct pool *pool = make_pool("Swimmer-v5", "", 1, 1);
    struct port *port = make_port(pool, 0, AUTORESET_NEXT_STEP, 1, 0);
    struct msg *m;

    (void)state;
    assert_int_equal(port_recv(port, &m, 0), ST_AGAIN);
    port_wake(port);
    assert_int_equal(port_wait_busy(port), ST_CLOSED);
    assert_int_equal(port_recv(port, &m, WAIT_NEVER), ST_CLOSED);
    port_close(port);
    pool_destroy(pool);
    msg_drain();
}

// Small batches and many workers: blocks are used again while workers still look at them.
static void blocks_that_are_used_again_lose_no_row(void **state)
{
    struct pool *pool = make_pool("InvertedPendulum-v5", "", 64, 8);
    int b_max, n, rows;
    uint32_t ids[64];
    struct msg *m;

    (void)state;
    for (b_max = 1; b_max <= 4; b_max++) {
        struct port *port = make_port(pool, 0, AUTORESET_SAME_STEP, b_max, b_max % 2 ? 0 : 2000);

        reset_all(port);
        for (rows = 0; rows < 30000; rows += n) {
            assert_ok(port_recv(port, &m, ENOUGH));
            n = batch_size(port, m, ids);
            msg_free(m);
            assert_ok(step(port, ids, n, rows));
        }
        drain(port);
        port_close(port);
    }
    pool_destroy(pool);
    msg_drain();
}

#define SLEEPS 0.77f

static atomic_bool asleep;

static void control(const mjModel *m, mjData *d)
{
    (void)m;
    while (d->ctrl[0] == (double)SLEEPS && atomic_load(&asleep))
        clock_sleep_ns(NS_PER_MS);
}

// A row leaves at T_max though its neighbour is still at work, and not before.
static void check_deadline(int64_t t_max_ns)
{
    struct pool *pool = make_pool("Hopper-v5", "", 2, 2);
    struct port *port = make_port(pool, 0, AUTORESET_NEXT_STEP, 2, t_max_ns);
    size_t stride = step_stride(1, 3);
    const struct batch_head *head;
    uint8_t buf[2 * 64] = {0};
    const uint8_t *rows;
    struct msg *m;
    int i;

    reset_all(port);
    drain(port);
    for (i = 0; i < 2; i++) {
        struct step_row *row = (struct step_row *)(buf + (size_t)i * stride);

        row->env = (uint32_t)i;
        row->n_sub = 1;
        ((float *)(row + 1))[0] = i ? 0 : SLEEPS;
    }
    atomic_store(&asleep, true);
    assert_ok(port_step(port, buf, 2));
    assert_ok(port_recv(port, &m, ENOUGH));
    atomic_store(&asleep, false);
    assert_ok(batch_read(m, port_layout(port), &head, &rows));
    assert_int_equal(head->n, 1);
    assert_int_equal(head->why, BATCHER_DEADLINE);
    assert_int_equal(head->in_flight, 1);
    assert_int_equal(((const struct row_head *)rows)->env, 1);
    assert_true(port_waited_ns(port) >= t_max_ns);
    assert_true(port_held_ns(port) == 0); // none of its rows was being written
    msg_free(m);
    assert_ok(port_recv(port, &m, ENOUGH));
    assert_ok(batch_read(m, port_layout(port), &head, &rows));
    assert_int_equal(head->why, BATCHER_DRAINED);
    msg_free(m);
    port_close(port);
    pool_destroy(pool);
    msg_drain();
}

static void a_row_leaves_at_its_deadline(void **state)
{
    (void)state;
    mjcb_control = control;
    check_deadline(20 * NS_PER_MS); // the receiver sleeps until then
    check_deadline(NS_PER_MS / 2);  // a row wakes the receiver
    check_deadline(0);
    mjcb_control = NULL;
}

static void a_warm_loop_allocates_nothing(void **state)
{
    struct pool *pool = make_pool("Hopper-v5", "", 8, 2);
    struct port *port = make_port(pool, 0, AUTORESET_SAME_STEP, 3, NS_PER_MS);
    uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t before = 0;
    int t;

    (void)state;
    reset_all(port);
    for (t = 0; t < 600; t++) {
        drain(port);
        if (t == 100)
            before = mem_calls();
        assert_ok(step(port, ids, 8, t));
    }
    drain(port);
    // Every batch under way holds a row, so there are never more of them than envs: a moment with
    // more batches than before has to allocate (three blocks of memory each), every step may not.
    assert_true(mem_calls() - before <= 3 * 8);
    port_close(port);
    pool_destroy(pool);
    msg_drain();
}

static void creation_survives_out_of_memory(void **state)
{
    struct pool_config cfg = {.task = "Swimmer-v5", .kwargs = "", .n_env = 2, .n_thread = 2};
    struct port_config pc = {.k_max = 1, .b_max = 2};
    struct pool *pool = NULL;
    struct port *port = NULL;
    int64_t n;

    (void)state;
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (pool_create(&pool, &cfg) == ST_OK)
            break;
        assert_null(pool);
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_true(n > 3);
    for (n = 0;; n++) {
        mem_fail_after(n);
        if (port_open(&port, pool, &pc) == ST_OK)
            break;
        assert_null(port);
    }
    mem_fail_after(-1);
    port_close(port);
    pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(ports_lease_disjoint_envs),
        leak_test(a_refused_request_changes_nothing),
        leak_test(impossible_settings_are_refused),
        leak_test(batches_leave_full_or_drained),
        leak_test(a_closed_port_drops_what_nobody_read),
        leak_test(trajectories_do_not_depend_on_threads_batches_or_neighbours),
        leak_test(errors_are_counted),
        leak_test(a_receiver_wakes_up),
        leak_test(blocks_that_are_used_again_lose_no_row),
        leak_test(a_row_leaves_at_its_deadline),
        leak_test(a_warm_loop_allocates_nothing),
        leak_test(creation_survives_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
