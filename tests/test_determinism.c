// The rows of an env are a function of (task, seed, stream, actions): not of how many envs and
// workers there are, what the workers are, where envs live, how batches are cut, or when the client
// answers.
#include "tests/testing.h"

#include "common/base/rng.h"
#include "envserver/pool_priv.h"

#define ENV_MAX 16

struct setting {
    int n_env, n_thread;
    enum pool_isolate isolate;
    enum pool_worlds worlds;
    int b_max;
    int64_t t_max_ns, delay_ns;
    const char *affinity;
};

struct subject {
    const char *task, *kwargs;
    int steps; // of each env, after the reset
};

struct rig {
    struct pool *pool;
    struct port *port;
    int steps;
    uint64_t hash[ENV_MAX];
    int count[ENV_MAX];
};

static void send(struct rig *r, uint32_t env)
{
    int n_act = pool_spec(r->pool)->n_act, k;
    uint8_t buf[512] = {0};
    struct step_row *row = (struct step_row *)buf;

    row->env = env;
    row->n_sub = 1 + (uint32_t)r->count[env] % 2; // chunks of one and two actions
    for (k = 0; k < 2 * n_act; k++)
        ((float *)(row + 1))[k] =
            sinf((float)(env * 7 + (uint32_t)(r->count[env] * 3 + k))) * (k % 3 ? 1.0f : 0.4f);
    assert_ok(port_step(r->port, buf, 1));
}

static void take_row(struct rig *r, const uint8_t *row, size_t stride)
{
    uint32_t env = ((const struct row_head *)row)->env;
    size_t k;

    for (k = 0; k < stride; k++)
        r->hash[env] = (r->hash[env] ^ row[k]) * 1099511628211u;
    if (++r->count[env] <= r->steps)
        send(r, env);
}

static void run(const struct subject *what, const struct setting *s, uint64_t *hash)
{
    struct rng rng = rng_make(9, RNG_TEST, (uint64_t)s->delay_ns, 0, 0);
    struct reset_row resets[ENV_MAX] = {0};
    const struct batch_head *head;
    const uint8_t *rows;
    struct rig r = {.steps = what->steps};
    struct msg *m;
    enum status st;
    uint32_t i;

    assert_ok(pool_create(&r.pool, &(struct pool_config){.task = what->task,
                                                         .kwargs = what->kwargs,
                                                         .n_env = s->n_env,
                                                         .n_thread = s->n_thread,
                                                         .worlds = s->worlds,
                                                         .affinity = s->affinity,
                                                         .isolate = s->isolate}));
    assert_ok(port_open(&r.port, r.pool,
                        &(struct port_config){.autoreset = AUTORESET_SAME_STEP,
                                              .k_max = 2,
                                              .b_max = s->b_max,
                                              .t_max_ns = s->t_max_ns}));
    for (i = 0; i < (uint32_t)s->n_env; i++)
        resets[i] = (struct reset_row){.env = i, .seed = 4, .stream = i};
    assert_ok(port_reset(r.port, resets, s->n_env));
    while ((st = port_recv(r.port, &m, ENOUGH)) == ST_OK) {
        assert_ok(batch_read(m, port_layout(r.port), &head, &rows));
        if (s->delay_ns && rng_below(&rng, 8) == 0)
            clock_sleep_ns(rng_below(&rng, (uint32_t)s->delay_ns));
        for (i = 0; i < head->n; i++)
            take_row(&r, rows + (size_t)i * head->stride, head->stride);
        msg_free(m);
    }
    assert_int_equal(st, ST_AGAIN);
    for (i = 0; i < (uint32_t)s->n_env; i++)
        assert_int_equal(r.count[i], what->steps + 1);
    memcpy(hash, r.hash, sizeof r.hash);
    port_close(r.port);
    pool_destroy(r.pool);
    msg_drain();
}

static void check(const struct subject *what)
{
    static const int envs[] = {1, 4, 16}, threads[] = {1, 2, 8};
    uint64_t want[ENV_MAX], got[ENV_MAX];
    struct setting s = {16, 1, POOL_ISOLATE_THREAD, POOL_WORLDS_OWN, 1, 0, 0, NULL};
    int e, t, isolate, i, n = 0;

    run(what, &s, want);
    for (e = 0; e < 3; e++)
        for (t = 0; t < 3; t++)
            for (isolate = 0; isolate < 2; isolate++, n++) {
                s = (struct setting){.n_env = envs[e],
                                     .n_thread = threads[t],
                                     .isolate = (enum pool_isolate)isolate,
                                     .worlds = n % 5 == 4 ? POOL_WORLDS_OWN : POOL_WORLDS_AUTO,
                                     .b_max = 1 + n * 5 % 16,
                                     .t_max_ns = n % 3 ? 200000 : 3600 * NS_PER_S,
                                     .delay_ns = n % 4 == 3 ? 3 * NS_PER_MS : 0,
                                     .affinity = n % 7 == 6 ? "auto" : NULL};
                run(what, &s, got);
                for (i = 0; i < envs[e]; i++)
                    if (got[i] != want[i])
                        fail_msg("%s: env %d of %d, %d workers, isolate %d differs", what->task, i,
                                 envs[e], threads[t], isolate);
            }
    for (i = 1; i < ENV_MAX; i++)
        assert_true(want[i] != want[0]);
}

static void rows_do_not_depend_on_the_setting(void **state)
{
    // several episodes of each; LIBERO's random resets depend on those before
    static const struct subject subjects[] = {
        {"Hopper-v5", "{\"max_episode_steps\": 50}", 60},
        {"Ant-v5", "{\"max_episode_steps\": 50}", 60},
        {"tabletop/4",
         "{\"max_episode_steps\": 4, \"init_states\": \"random\", \"settle_steps\": 1}", 9},
        {"tabletop/8", "{\"max_episode_steps\": 6, \"settle_steps\": 0, \"expert\": true}", 8},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
        check(&subjects[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(rows_do_not_depend_on_the_setting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
