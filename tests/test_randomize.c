// Models that differ per env. The oracle is the engine on a full copy of the model in which the
// same fields were changed by hand.
#include "tests/testing.h"

#include "envserver/pool_priv.h"
#include "scenes/model_arrays.h"

#include <sys/mman.h>

#define ROW_MAX 16384

static const char plan[] =
    "[{\"field\": \"body_mass\", \"also\": \"body_inertia\", \"range\": [0.7, 1.4]},"
    " {\"field\": \"geom_friction\", \"component\": 0, \"shared\": true, \"range\": [0.5, 2],"
    "  \"distribution\": \"log-uniform\"},"
    " {\"field\": \"gravity\", \"component\": 2, \"op\": \"add\", \"range\": [-1, 1]},"
    " {\"field\": \"dof_damping\", \"range\": [0.5, 1.5], \"distribution\": \"normal\"},"
    " {\"field\": \"actuator_gear\", \"component\": 0, \"range\": [0.9, 1.1]},"
    " {\"field\": \"geom_rgba\", \"op\": \"set\", \"component\": 1, \"range\": [0, 1]}]";

// ------------------------------------------------------------------ against a full copy

// Every array of two models is the same.
static void assert_same_model(const mjModel *a, const mjModel *b)
{
    struct model_array all[MODEL_ARRAYS_MAX];
    int i, n = model_arrays(a, all);

    assert_true(n > 100);
    for (i = 0; i < n; i++)
        if (all[i].bytes > 0 &&
            memcmp(model_data(a, &all[i]), model_data(b, &all[i]), all[i].bytes) != 0)
            fail_msg("%s differs", all[i].name);
    assert_memory_equal(&a->opt, &b->opt, sizeof a->opt);
    assert_memory_equal(&a->stat, &b->stat, sizeof a->stat);
}

#define COPY(field) memcpy(full->field, v->field, sizeof full->field[0] * count)

static void check_against_copy(const char *task)
{
    struct scene_start start = {5, 6, 7};
    struct scene_outcome out, want;
    struct randomize *r = NULL;
    struct scene *scene = NULL, with_copy;
    struct sim sim, by_hand;
    const mjModel *v;
    mjModel *full;
    void *mem;
    double obs[2][2048], info[256];
    float action[SPEC_ACT_MAX];
    struct variant *variant;
    size_t count;
    int t, k;

    assert_ok(scene_create(&scene, task, ""));
    assert_ok(randomize_create(&r, scene, plan));
    mem = mem_alloc(1, randomize_variant_bytes(r));
    variant = variant_make(r, mem);
    assert_ok(sim_init(&sim, scene));
    assert_int_equal(variant_enter(variant, &sim), ROW_ERROR_NONE);
    assert_int_equal(variant_draw(variant, &sim, &start), ROW_ERROR_NONE);
    v = sim.world.model;

    full = mj_copyModel(NULL, scene->model);
    count = (size_t)v->nbody;
    COPY(body_mass);
    count = 3 * (size_t)v->nbody;
    COPY(body_inertia);
    count = 3 * (size_t)v->ngeom;
    COPY(geom_friction);
    count = 4 * (size_t)v->ngeom;
    COPY(geom_rgba);
    count = (size_t)v->nv;
    COPY(dof_damping);
    count = 6 * (size_t)v->nu;
    COPY(actuator_gear);
    full->opt.gravity[2] = v->opt.gravity[2];
    with_copy = *scene;
    with_copy.model = full;
    assert_ok(sim_init(&by_hand, &with_copy));
    mj_setConst(full, by_hand.world.d);
    assert_same_model(full, v);
    assert_memory_not_equal(full->body_mass, scene->model->body_mass, 8 * (size_t)v->nbody);
    assert_memory_not_equal(full->dof_invweight0, scene->model->dof_invweight0, 8 * (size_t)v->nv);

    assert_int_equal(sim_reset(&sim, &start), ROW_ERROR_NONE);
    assert_int_equal(sim_reset(&by_hand, &start), ROW_ERROR_NONE);
    assert_true(scene->n_obs <= 2048 && scene->n_info <= 256);
    for (t = 0; t < 40; t++) {
        for (k = 0; k < scene->n_act; k++)
            action[k] = sinf((float)(3 * t + k));
        assert_int_equal(sim_step(&sim, action, &out, info), ROW_ERROR_NONE);
        assert_int_equal(sim_step(&by_hand, action, &want, info), ROW_ERROR_NONE);
        sim_observe(&sim, obs[0]);
        sim_observe(&by_hand, obs[1]);
        assert_memory_equal(obs[0], obs[1], 8 * (size_t)scene->n_obs);
        assert_true(out.reward == want.reward);
    }
    sim_fini(&by_hand);
    sim_fini(&sim);
    mj_deleteModel(full);
    mem_free(mem);
    randomize_destroy(r);
    scene_destroy(scene);
}

// What variants do not have of their own belongs to other envs, which run at the same time: the
// engine does not even write to it for a moment, as mj_setConst does with the modes of cameras.
static void what_is_shared_is_never_written(void **state)
{
    static const char *const tasks[] = {"Hopper-v5", "Ant-v5",     "HalfCheetah-v5", "Humanoid-v5",
                                        "Pusher-v5", "Swimmer-v5", "tabletop/4"};
    struct model_array all[MODEL_ARRAYS_MAX];
    struct scene_start start = {5, 6, 7};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        struct randomize *r = NULL;
        struct scene *scene = NULL;
        struct variant *variant;
        const mjModel *model;
        mjModel shared;
        uint8_t *still, *buffer;
        struct sim sim;
        void *mem;
        int k, n;

        assert_ok(scene_create(&scene, tasks[i], ""));
        // the same model in memory that nobody may write to
        model = scene->model;
        shared = *model;
        buffer = shared.buffer;
        still = mmap(NULL, (size_t)shared.nbuffer, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(still != MAP_FAILED);
        memcpy(still, buffer, (size_t)shared.nbuffer);
        n = model_arrays(&shared, all);
        for (k = 0; k < n; k++) {
            uint8_t **at = (uint8_t **)(void *)((uint8_t *)&shared + all[k].offset);

            if (*at)
                *at = still + (*at - buffer);
        }
        assert_int_equal(mprotect(still, (size_t)shared.nbuffer, PROT_READ), 0);

        assert_ok(randomize_create(&r, scene, plan));
        mem = mem_alloc(1, randomize_variant_bytes(r));
        assert_ok(sim_init(&sim, scene));
        scene->model = &shared;
        variant = variant_make(r, mem);
        assert_int_equal(variant_enter(variant, &sim), ROW_ERROR_NONE);
        assert_int_equal(variant_draw(variant, &sim, &start), ROW_ERROR_NONE);
        assert_int_equal(sim_reset(&sim, &start), ROW_ERROR_NONE);
        sim_fini(&sim);
        mem_free(mem);
        randomize_destroy(r);
        assert_int_equal(mprotect(still, (size_t)shared.nbuffer, PROT_READ | PROT_WRITE), 0);
        scene->model = model;
        scene_destroy(scene);
        munmap(still, (size_t)shared.nbuffer);
    }
}

static void a_variant_is_a_changed_copy(void **state)
{
    (void)state;
    check_against_copy("Hopper-v5");
    check_against_copy("Ant-v5");
    check_against_copy("HalfCheetah-v5");
    check_against_copy("Humanoid-v5");
    check_against_copy("tabletop/4");
}

// ------------------------------------------------------------------ in a pool

#define N_ENV 6

struct rig {
    struct pool *pool;
    struct port *port;
    uint8_t rows[N_ENV][ROW_MAX];
    uint64_t hash[N_ENV];
};

static void rig_init(struct rig *r, const char *json, int n_thread, enum pool_isolate isolate)
{
    memset(r, 0, sizeof *r);
    assert_ok(pool_create(&r->pool, &(struct pool_config){.task = "Hopper-v5",
                                                          .kwargs = "{\"max_episode_steps\": 30}",
                                                          .n_env = N_ENV,
                                                          .n_thread = n_thread,
                                                          .isolate = isolate,
                                                          .randomize = json}));
    assert_ok(port_open(
        &r->port, r->pool,
        &(struct port_config){.autoreset = AUTORESET_SAME_STEP, .k_max = 1, .b_max = N_ENV}));
}

static void rig_fini(struct rig *r)
{
    port_close(r->port);
    pool_destroy(r->pool);
    msg_drain();
}

static void receive(struct rig *r)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    uint32_t i;
    size_t k;

    while (port_recv(r->port, &m, ENOUGH) == ST_OK) {
        assert_ok(batch_read(m, port_layout(r->port), &head, &rows));
        for (i = 0; i < head->n; i++) {
            const uint8_t *row = rows + (size_t)i * head->stride;
            uint32_t env = ((const struct row_head *)row)->env;

            memcpy(r->rows[env], row, head->stride);
            for (k = sizeof env; k < head->stride; k++)
                r->hash[env] = (r->hash[env] ^ row[k]) * 1099511628211u;
        }
        msg_free(m);
    }
}

static void reset(struct rig *r, int env, uint64_t stream, uint64_t episode)
{
    struct reset_row row = {.env = (uint32_t)env, .seed = 2, .stream = stream, .episode = episode};

    assert_ok(port_reset(r->port, &row, 1));
    receive(r);
}

static void step(struct rig *r, int env, int t)
{
    uint8_t buf[64] = {0};
    struct step_row *row = (struct step_row *)buf;
    int k;

    row->env = (uint32_t)env;
    row->n_sub = 1;
    for (k = 0; k < 3; k++)
        ((float *)(row + 1))[k] = 0.8f * sinf((float)(3 * t + k));
    assert_ok(port_step(r->port, buf, 1));
    receive(r);
}

static double one(struct rig *r, int env, const char *field, const char *element, int component)
{
    uint32_t id = (uint32_t)env;
    double x[64];
    int n;

    assert_ok(port_field_size(r->port, field, element, &n));
    assert_true(n <= 64);
    assert_ok(port_get_field(r->port, &id, 1, field, element, x, 0, n));
    assert_true(component < n);
    return x[component];
}

// Over several episodes, rows depend on the identity of an env only.
static void draws_are_a_function_of_the_identity(void **state)
{
    static const struct {
        int n_thread;
        enum pool_isolate isolate;
    } how[] = {{1, POOL_ISOLATE_THREAD}, {4, POOL_ISOLATE_THREAD}, {2, POOL_ISOLATE_PROCESS}};
    uint64_t want[N_ENV];
    struct rig r;
    int h, i, t;

    (void)state;
    for (h = 0; h < 3; h++) {
        rig_init(&r, plan, how[h].n_thread, how[h].isolate);
        for (i = 0; i < N_ENV; i++) // in another env each time
            reset(&r, (i + h) % N_ENV, (uint64_t)i, 0);
        for (t = 0; t < 100; t++)
            for (i = 0; i < N_ENV; i++)
                step(&r, (i + h) % N_ENV, t);
        for (i = 0; i < N_ENV; i++) {
            if (h == 0)
                want[i] = r.hash[i];
            assert_true(r.hash[(i + h) % N_ENV] == want[i]);
            assert_true(i == 0 || want[i] != want[0]);
        }
        rig_fini(&r);
    }
}

static void numbers_lie_in_their_range_and_ramps_open_it(void **state)
{
    static const char json[] =
        "[{\"field\": \"body_mass\", \"element\": \"torso\", \"range\": [0.5, 1.5],"
        "  \"ramp\": [10, 20]},"
        " {\"field\": \"geom_friction\", \"element\": \"floor\", \"op\": \"set\","
        "  \"range\": [0.25, 4], \"distribution\": \"log-uniform\"},"
        " {\"field\": \"cam_quat\", \"op\": \"add\", \"range\": [-0.1, 0.1]}]";
    double mass, low = 1e9, high = 0, x, sum = 0, q[64];
    struct rig r;
    int i;

    (void)state;
    rig_init(&r, json, 1, POOL_ISOLATE_THREAD);
    mass = one(&r, 0, "body_mass", "torso", 0);
    assert_true(mass > 0);
    for (i = 0; i <= 10; i++) {
        reset(&r, 0, 0, (uint64_t)i);
        assert_true(one(&r, 0, "body_mass", "torso", 0) == mass);
    }
    for (i = 0; i < 200; i++) {
        reset(&r, 0, (uint64_t)i, 15); // half open
        x = one(&r, 0, "body_mass", "torso", 0) / mass;
        assert_true(x >= 0.75 - 1e-12 && x <= 1.25 + 1e-12);
        reset(&r, 0, (uint64_t)i, 20);
        x = one(&r, 0, "body_mass", "torso", 0) / mass;
        assert_true(x >= 0.5 - 1e-12 && x <= 1.5 + 1e-12);
        low = fmin(low, x);
        high = fmax(high, x);
        x = one(&r, 0, "geom_friction", "floor", 1);
        assert_true(x >= 0.25 && x <= 4);
        sum += log(x);
    }
    assert_true(low < 0.55 && high > 1.45);
    assert_true(fabs(sum / 200) < 0.25); // the middle of the logarithm; its deviation is 0.057
    assert_ok(port_get_field(r.port, &(uint32_t){0}, 1, "cam_quat", "0", q, 0, 4));
    assert_close(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3], 1, 1e-12, 0);
    rig_fini(&r);
}

// Set while the env runs: it falls otherwise, its neighbour does not, and it stays so.
static void check_set(enum pool_isolate isolate)
{
    static const char json[] = "[{\"field\": \"gravity\"}, {\"field\": \"body_mass\"}]";
    const double moon[3] = {0, 0, -1.62}, heavy = 30;
    struct rig r;
    int t;

    rig_init(&r, json, 2, isolate);
    for (t = 0; t < 3; t++)
        reset(&r, t, 1, 1);
    for (t = 0; t < 10; t++) {
        step(&r, 0, t);
        step(&r, 1, t);
        step(&r, 2, t);
    }
    assert_true(r.hash[0] == r.hash[1] && r.hash[1] == r.hash[2]);
    assert_ok(port_set_field(r.port, &(uint32_t){0}, 1, "gravity", "", moon, 0, 3));
    assert_ok(port_set_field(r.port, &(uint32_t){1}, 1, "body_mass", "torso", &heavy, 0, 1));
    for (t = 10; t < 20; t++) {
        step(&r, 0, t);
        step(&r, 1, t);
        step(&r, 2, t);
    }
    assert_true(r.hash[0] != r.hash[2] && r.hash[1] != r.hash[2] && r.hash[0] != r.hash[1]);
    reset(&r, 0, 1, 1);
    assert_true(one(&r, 0, "gravity", "", 2) == -1.62);
    assert_true(one(&r, 2, "gravity", "", 2) == -9.81);
    assert_true(one(&r, 1, "body_mass", "torso", 0) == 30);
    rig_fini(&r);
}

static void fields_can_be_set_while_envs_run(void **state)
{
    (void)state;
    check_set(POOL_ISOLATE_THREAD);
    check_set(POOL_ISOLATE_PROCESS);
}

static void a_state_carries_the_model(void **state)
{
    struct rig r, q;
    uint8_t *buf;
    size_t bytes;
    int t;

    (void)state;
    rig_init(&r, plan, 1, POOL_ISOLATE_THREAD);
    rig_init(&q, "[{\"field\": \"body_mass\"}]", 1, POOL_ISOLATE_THREAD);
    bytes = port_state_bytes(r.port);
    buf = mem_alloc(1, bytes);
    for (t = 0; t < 4; t++)
        reset(&r, t, (uint64_t)t, 3);
    for (t = 0; t < 10; t++)
        step(&r, 0, t);
    assert_ok(port_save(r.port, &(uint32_t){0}, 1, buf, bytes));
    assert_ok(port_load(r.port, &(uint32_t){3}, 1, buf, bytes, bytes));
    assert_true(one(&r, 0, "body_mass", "1", 0) == one(&r, 3, "body_mass", "1", 0));
    r.hash[3] = r.hash[0];
    for (t = 10; t < 60; t++) {
        step(&r, 0, t);
        step(&r, 3, t);
        assert_true(r.hash[0] == r.hash[3]);
    }
    assert_fails(port_load(q.port, &(uint32_t){0}, 1, buf, bytes, bytes), ST_PROTO,
                 "randomised otherwise");
    mem_free(buf);
    rig_fini(&q);
    rig_fini(&r);
}

static void refuse(const char *json, const char *text)
{
    struct scene *scene = NULL;
    struct randomize *r = NULL;

    assert_ok(scene_create(&scene, "Hopper-v5", ""));
    assert_fails(randomize_create(&r, scene, json), ST_INVAL, text);
    assert_null(r);
    scene_destroy(scene);
}

static void what_cannot_vary_is_refused(void **state)
{
    static const uint32_t env[] = {0, 2, 9}, twice[] = {1, 1};
    const double x[2] = {1, NAN};
    struct rig r;

    (void)state;
    refuse("", "expected a JSON array");
    refuse("[{\"field\": \"body_mass\"}", "expected ','");
    refuse("[{\"field\": \"body_mass\"", "entry 0 does not end");
    refuse("[{}]", "names no field");
    refuse("[{\"field\": \"body_mas\"}]", "mjModel has no field 'body_mas'");
    refuse("[{\"field\": \"body_mass\"}, {\"field\": \"geom_size\"}]",
           "entry 1: field 'geom_size' cannot vary");
    refuse("[{\"field\": \"body_mass\", \"element\": \"head\"}]", "the model has no body 'head'");
    refuse("[{\"field\": \"body_mass\", \"element\": \"9\"}]", "elements 0 to 4, not 9");
    refuse("[{\"field\": \"geom_friction\", \"component\": 3}]", "components 0 to 2, not 3");
    refuse("[{\"field\": \"gravity\", \"range\": [2, 1]}]", "is empty");
    refuse("[{\"field\": \"gravity\", \"distribution\": \"log-uniform\", \"range\": [0, 1]}]",
           "above 0");
    refuse("[{\"field\": \"gravity\", \"ramp\": [2, 1]}]", "backwards");
    refuse("[{\"field\": \"gravity\", \"size\": 1}]", "unknown option 'size'");
    refuse("[{\"field\": \"body_mass\", \"also\": \"dof_damping\"}]", "has 6 elements");
    rig_init(&r, "[{\"field\": \"body_mass\"}]", 1, POOL_ISOLATE_THREAD);
    assert_fails(port_set_field(r.port, env, 1, "dof_damping", "", x, 0, 1), ST_INVAL,
                 "not in the plan");
    assert_fails(port_set_field(r.port, env, 1, "body_mass", "torso", x, 0, 2), ST_INVAL,
                 "expected 1");
    assert_fails(port_set_field(r.port, env, 2, "body_mass", "torso", x, 8, 1), ST_INVAL,
                 "env 2: field 'body_mass', element 'torso': number 0 is not finite");
    assert_true(one(&r, 0, "body_mass", "torso", 0) != 1); // nothing was set
    assert_fails(port_set_field(r.port, env + 2, 1, "body_mass", "torso", x, 0, 1), ST_PROTO,
                 "env 9");
    assert_fails(port_set_field(r.port, twice, 2, "body_mass", "torso", x, 0, 1), ST_PROTO,
                 "stands twice");
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(a_variant_is_a_changed_copy),
        leak_test(what_is_shared_is_never_written),
        leak_test(draws_are_a_function_of_the_identity),
        leak_test(numbers_lie_in_their_range_and_ramps_open_it),
        leak_test(fields_can_be_set_while_envs_run),
        leak_test(a_state_carries_the_model),
        leak_test(what_cannot_vary_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
