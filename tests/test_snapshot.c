// States: branching, replay to the bit, going back, and bytes that are not a state.
#include "tests/testing.h"

#include "common/base/crc.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "envserver/pool_priv.h"

#define N_ENV   9
#define ROW_MAX 32768

struct rig {
    struct pool *pool;
    struct port *port;
    uint8_t rows[N_ENV][ROW_MAX]; // the latest of each env
    void *state;
    size_t bytes;
};

static void rig_open(struct rig *r, const char *task, const char *kwargs, enum pool_worlds worlds,
                     enum autoreset mode)
{
    memset(r, 0, sizeof *r);
    assert_ok(pool_create(
        &r->pool,
        &(struct pool_config){
            .task = task, .kwargs = kwargs, .n_env = N_ENV, .n_thread = 2, .worlds = worlds}));
    assert_ok(port_open(&r->port, r->pool,
                        &(struct port_config){.autoreset = mode, .k_max = 1, .b_max = N_ENV}));
    r->bytes = port_state_bytes(r->port);
    assert_true(r->bytes > 0);
    assert_true(port_layout(r->port)->stride <= ROW_MAX);
    r->state = mem_alloc(1, r->bytes);
    assert_non_null(r->state);
}

static void rig_init(struct rig *r, const char *task, enum pool_worlds worlds, enum autoreset mode)
{
    rig_open(r, task, "{\"max_episode_steps\": 40}", worlds, mode);
}

static void rig_fini(struct rig *r)
{
    mem_free(r->state);
    port_close(r->port);
    pool_destroy(r->pool);
    msg_drain();
}

static enum status save(struct rig *r, uint32_t env, void *out, size_t size)
{
    return port_save(r->port, &env, 1, out, size);
}

static enum status load(struct rig *r, uint32_t env, const void *in, size_t bytes)
{
    return port_load(r->port, &env, 1, in, (bytes + 7) / 8 * 8, bytes);
}

static void receive(struct rig *r)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    uint32_t i;

    while (port_recv(r->port, &m, ENOUGH) == ST_OK) {
        assert_ok(batch_read(m, port_layout(r->port), &head, &rows));
        for (i = 0; i < head->n; i++) {
            const uint8_t *row = rows + (size_t)i * head->stride;

            memcpy(r->rows[((const struct row_head *)row)->env], row, head->stride);
        }
        msg_free(m);
    }
}

static void reset_all(struct rig *r)
{
    struct reset_row rows[N_ENV];
    int i;

    for (i = 0; i < N_ENV; i++)
        rows[i] = (struct reset_row){.env = (uint32_t)i, .seed = 3, .stream = (uint64_t)i};
    assert_ok(port_reset(r->port, rows, N_ENV));
    receive(r);
}

// One step of env with the actions of branch `b` at time t.
static void step(struct rig *r, int env, int b, int t)
{
    int n_act = pool_spec(r->pool)->n_act, k;
    uint8_t buf[512] = {0};
    struct step_row *row = (struct step_row *)buf;

    row->env = (uint32_t)env;
    row->n_sub = 1;
    for (k = 0; k < n_act; k++)
        ((float *)(row + 1))[k] = sinf((float)(b * 11 + t * 3 + k));
    assert_ok(port_step(r->port, buf, 1));
    receive(r);
}

// The rows of two envs, the env's number apart.
static void assert_same_row(const struct rig *r, int a, const struct rig *q, int b)
{
    size_t from = sizeof(uint32_t);

    assert_memory_equal(r->rows[a] + from, q->rows[b] + from, port_layout(r->port)->stride - from);
}

// From one state eight continuations; each again in another env, another pool, another kind of env.
static void check_branches(const char *task, const char *kwargs, enum autoreset mode, int from,
                           int to)
{
    struct rig r, q;
    int b, t;

    rig_open(&r, task, kwargs, POOL_WORLDS_AUTO, mode);
    rig_open(&q, task, kwargs, POOL_WORLDS_OWN, mode);
    assert_true(r.pool->by_rows && !q.pool->by_rows);
    reset_all(&r);
    reset_all(&q);
    for (t = 0; t < from; t++)
        step(&r, 0, 0, t);
    assert_ok(save(&r, 0, r.state, r.bytes));
    for (b = 1; b < N_ENV; b++) {
        assert_ok(load(&r, (uint32_t)b, r.state, r.bytes));
        assert_ok(load(&q, (uint32_t)(N_ENV - b), r.state, r.bytes));
    }
    for (; t < to; t++) { // over the end of the episode
        for (b = 1; b < N_ENV; b++) {
            step(&r, b, b - 1, t);
            step(&q, N_ENV - b, b - 1, t);
            assert_same_row(&r, b, &q, N_ENV - b);
        }
        step(&r, 0, 0, t); // the one that was saved just goes on
        assert_same_row(&r, 0, &r, 1);
        if (t == from + 4)
            assert_memory_not_equal(r.rows[1] + port_layout(r.port)->obs,
                                    r.rows[2] + port_layout(r.port)->obs,
                                    sizeof(double) * (size_t)pool_spec(r.pool)->n_obs);
    }
    rig_fini(&q);
    rig_fini(&r);
}

static void branches_are_equal_to_the_bit(void **state)
{
    const struct scene_task *task;
    int i, n = 0;

    (void)state;
    for (i = 0; (task = scene_task_at(i)); i++) {
        if (task->members || task->driver)
            continue;
        check_branches(task->name, "{\"max_episode_steps\": 40}",
                       n % 2 ? AUTORESET_NEXT_STEP : AUTORESET_SAME_STEP, 20, 70);
        n++;
    }
    assert_true(n >= 11);
}

// Controller, poses of fixtures, a stove, the random reset's cursor, the expert's plans.
static void libero_branches_are_equal_to_the_bit(void **state)
{
    static const struct {
        const char *task, *kwargs;
        enum autoreset mode;
    } cases[] = {
        {"tabletop/0", "{\"max_episode_steps\": 14}", AUTORESET_SAME_STEP},
        {"tabletop/4",
         "{\"max_episode_steps\": 14, \"init_states\": \"random\", \"settle_steps\": 1, "
         "\"sim_state\": true}",
         AUTORESET_NEXT_STEP},
        {"tabletop/6",
         "{\"max_episode_steps\": 14, \"expert\": true, \"settle_steps\": 2, \"compat\": "
         "\"clean\", \"init_states\": \"random\"}",
         AUTORESET_SAME_STEP},
        {"tabletop/8", "{\"max_episode_steps\": 14, \"expert\": true, \"settle_steps\": 0}",
         AUTORESET_NEXT_STEP},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_branches(cases[i].task, cases[i].kwargs, cases[i].mode, 7, 19);
}

static void going_back_repeats_the_rows(void **state)
{
    static uint8_t seen[30][ROW_MAX];
    struct rig r;
    int round, t;

    (void)state;
    rig_init(&r, "Hopper-v5", POOL_WORLDS_AUTO, AUTORESET_NEXT_STEP);
    reset_all(&r);
    step(&r, 4, 1, 0);
    assert_ok(save(&r, 4, r.state, r.bytes));
    for (round = 0; round < 3; round++) {
        for (t = 0; t < 30; t++) {
            step(&r, 4, 1, t);
            if (round == 0)
                memcpy(seen[t], r.rows[4], ROW_MAX);
            else
                assert_memory_equal(seen[t], r.rows[4], port_layout(r.port)->stride);
        }
        assert_ok(load(&r, 4, r.state, r.bytes));
    }
    rig_fini(&r);
}

static void bytes_that_are_no_state_change_nothing(void **state)
{
    struct rig r, q;
    uint8_t *copy;
    size_t i;

    (void)state;
    rig_init(&r, "Hopper-v5", POOL_WORLDS_AUTO, AUTORESET_NEXT_STEP);
    rig_init(&q, "Walker2d-v5", POOL_WORLDS_AUTO, AUTORESET_NEXT_STEP);
    assert_fails(save(&r, 0, r.state, r.bytes), ST_INVAL, "before its first reset");
    reset_all(&r);
    reset_all(&q);
    assert_fails(save(&r, 0, r.state, r.bytes - 8), ST_INVAL, "a state needs");
    assert_fails(save(&r, N_ENV, r.state, r.bytes), ST_PROTO, "not one of this client's");
    assert_ok(save(&r, 0, r.state, r.bytes));
    assert_ok(save(&q, 0, q.state, q.bytes));
    assert_fails(load(&r, 1, q.state, q.bytes), ST_PROTO, "of task 'Walker2d-v5'");
    copy = mem_alloc(1, r.bytes);
    assert_non_null(copy);
    for (i = 0; i < r.bytes; i++) { // cut anywhere, or one bit turned
        assert_int_equal(load(&r, 1, r.state, i), ST_PROTO);
        memcpy(copy, r.state, r.bytes);
        copy[i] ^= (uint8_t)(1u << i % 8);
        assert_int_equal(load(&r, 1, copy, r.bytes), ST_PROTO);
    }
    step(&r, 0, 0, 0);
    assert_int_equal(((struct row_head *)r.rows[1])->stream, 1); // env 1 is what it was
    step(&r, 1, 0, 0);
    assert_int_equal(((struct row_head *)r.rows[1])->stream, 1);
    assert_int_equal(((struct row_head *)r.rows[1])->elapsed, 1);
    mem_free(copy);
    rig_fini(&q);
    rig_fini(&r);
}

// Whoever puts the checksum right can load nonsense, but the process and the other envs are safe.
static void forge(const char *task, const char *kwargs, int rounds)
{
    struct rng rng = rng_make(3, RNG_TEST, 0, 0, 0);
    int i, k, t, taken = 0;
    uint32_t crc;
    uint8_t *copy;
    struct rig r;

    rig_open(&r, task, kwargs, POOL_WORLDS_AUTO, AUTORESET_SAME_STEP);
    reset_all(&r);
    step(&r, 0, 0, 0);
    assert_ok(save(&r, 0, r.state, r.bytes));
    copy = mem_alloc(1, r.bytes);
    assert_non_null(copy);
    for (i = 0; i < rounds; i++) {
        memcpy(copy, r.state, r.bytes);
        for (k = 1 + (int)rng_below(&rng, 4); k > 0; k--) {
            size_t at = 160 + rng_below(&rng, (uint32_t)r.bytes - 168);

            if (rng_below(&rng, 2))
                copy[at] = (uint8_t)rng_u32(&rng);
            else
                memset(copy + at, rng_below(&rng, 2) ? 0xff : 0, 1 + rng_below(&rng, 8));
        }
        crc = crc32c(0, copy + 16, r.bytes - 16);
        memcpy(copy + 12, &crc, sizeof crc);
        if (load(&r, 1, copy, r.bytes) != ST_OK)
            continue;
        taken++;
        for (t = 0; t < 3; t++)
            step(&r, 1, 1, t);
    }
    assert_true(taken > rounds / 20 && taken < rounds);
    step(&r, 2, 0, 0);
    assert_int_equal(((struct row_head *)r.rows[2])->flags & ROW_ERROR, 0);
    mem_free(copy);
    rig_fini(&r);
}

static void forged_states_do_no_harm(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR); // of episodes that end by an error
    forge("Hopper-v5", "", 300);
    forge("tabletop/8", "{\"expert\": true, \"settle_steps\": 0}", 120);
    log_set_level(LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(branches_are_equal_to_the_bit), leak_test(libero_branches_are_equal_to_the_bit),
        leak_test(going_back_repeats_the_rows),   leak_test(bytes_that_are_no_state_change_nothing),
        leak_test(forged_states_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
