// One env: identity, autoreset modes, chunks, final observations, errors, determinism.
#include "tests/testing.h"

#include "envserver/env.h"

struct rig {
    struct scene *scene;
    struct env env;
    struct desk desk;
    void *state; // NULL: the env has a world of its own
    struct row_layout layout;
    uint8_t *row;
    float zero[SPEC_CHUNK_MAX * 8];
};

static bool own_worlds; // which of the two kinds of envs the tests run with

static void rig_init(struct rig *r, const char *task, const char *kwargs, int k_max,
                     enum autoreset autoreset)
{
    struct spec spec = {0};

    memset(r, 0, sizeof *r);
    assert_ok(scene_create(&r->scene, task, kwargs));
    assert_true(sim_by_rows(r->scene));
    r->state = own_worlds ? NULL : mem_alloc(1, sim_row_bytes(r->scene));
    assert_ok(desk_init(&r->desk, r->scene, !own_worlds, NULL));
    assert_ok(env_init(&r->env, r->scene, 7, r->state));
    spec.n_obs = r->scene->n_obs;
    spec.n_act = r->scene->n_act;
    spec.n_info = r->scene->n_info;
    row_layout_make(&r->layout, &spec, k_max, autoreset);
    r->row = mem_alloc(1, r->layout.stride);
    assert_non_null(r->row);
}

static void rig_fini(struct rig *r)
{
    mem_free(r->row);
    env_fini(&r->env);
    desk_fini(&r->desk);
    mem_free(r->state);
    scene_destroy(r->scene);
}

static const struct row_head *head(const struct rig *r)
{
    return (const struct row_head *)r->row;
}

static const double *obs(const struct rig *r)
{
    return (const double *)(r->row + r->layout.obs);
}

static void reset(struct rig *r, uint64_t episode)
{
    struct reset_row row = {.env = 7, .seed = 5, .stream = 2, .episode = episode};

    env_reset(&r->env, &r->desk, &row);
    env_write(&r->env, &r->desk, &r->layout, r->row);
}

static void step(struct rig *r, int n_sub, enum autoreset mode)
{
    env_step(&r->env, &r->desk, r->zero, n_sub, mode);
    env_write(&r->env, &r->desk, &r->layout, r->row);
}

static void a_reset_row_carries_identity_and_no_step(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r, "InvertedPendulum-v5", "", 1, AUTORESET_NEXT_STEP);
    reset(&r, 3);
    assert_int_equal(head(&r)->env, 7);
    assert_int_equal(head(&r)->flags, ROW_FIRST);
    assert_int_equal(head(&r)->seed, 5);
    assert_int_equal(head(&r)->stream, 2);
    assert_int_equal(head(&r)->episode, 3);
    assert_int_equal(head(&r)->n_sub, 0);
    assert_int_equal(head(&r)->elapsed, 0);
    rig_fini(&r);
}

static void the_initial_state_is_a_function_of_the_identity(void **state)
{
    struct rig r;
    double first[4];

    (void)state;
    rig_init(&r, "InvertedPendulum-v5", "", 1, AUTORESET_NEXT_STEP);
    reset(&r, 3);
    memcpy(first, obs(&r), sizeof first);
    reset(&r, 4);
    assert_memory_not_equal(first, obs(&r), sizeof first);
    step(&r, 1, AUTORESET_NEXT_STEP);
    reset(&r, 3);
    assert_memory_equal(first, obs(&r), sizeof first);
    rig_fini(&r);
}

// Step until the episode ends; how many steps that took.
static int run_out(struct rig *r, enum autoreset mode)
{
    int n = 0;

    do {
        step(r, 1, mode);
        n++;
    } while (!(head(r)->flags & ROW_DONE) && n < 10000);
    return n;
}

static void next_step_shows_the_final_observation_then_resets(void **state)
{
    struct rig r;
    double final[4];

    (void)state;
    rig_init(&r, "InvertedPendulum-v5", "", 1, AUTORESET_NEXT_STEP);
    reset(&r, 0);
    r.zero[0] = 3; // push until the pole falls
    assert_true(run_out(&r, AUTORESET_NEXT_STEP) > 1);
    assert_int_equal(head(&r)->flags, ROW_TERMINATED);
    memcpy(final, obs(&r), sizeof final);
    assert_true(fabs(final[1]) > 0.2);
    step(&r, 1, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->flags, ROW_FIRST);
    assert_int_equal(head(&r)->episode, 1);
    assert_int_equal(head(&r)->n_sub, 0);
    assert_true(fabs(obs(&r)[1]) <= 0.01);
    rig_fini(&r);
}

static void same_step_gives_both_observations(void **state)
{
    struct rig r, again;
    const double *final;

    (void)state;
    rig_init(&r, "InvertedPendulum-v5", "", 1, AUTORESET_SAME_STEP);
    rig_init(&again, "InvertedPendulum-v5", "", 1, AUTORESET_NEXT_STEP);
    reset(&r, 0);
    r.zero[0] = 3;
    run_out(&r, AUTORESET_SAME_STEP);
    assert_int_equal(head(&r)->flags, ROW_TERMINATED | ROW_HAS_FINAL);
    assert_int_equal(head(&r)->episode, 0); // the identity is that of the rewards
    final = (const double *)(r.row + r.layout.final_obs);
    assert_true(fabs(final[1]) > 0.2);
    reset(&again, 1);
    assert_memory_equal(obs(&r), obs(&again), 4 * sizeof(double));
    step(&r, 1, AUTORESET_SAME_STEP);
    assert_int_equal(head(&r)->episode, 1);
    assert_int_equal(head(&r)->elapsed, 1);
    rig_fini(&again);
    rig_fini(&r);
}

static void the_time_limit_truncates_and_both_flags_may_hold(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r, "HalfCheetah-v5", "{\"max_episode_steps\": 5}", 1, AUTORESET_DISABLED);
    reset(&r, 0);
    assert_int_equal(run_out(&r, AUTORESET_DISABLED), 5);
    assert_int_equal(head(&r)->flags, ROW_TRUNCATED);
    assert_int_equal(head(&r)->elapsed, 5);
    assert_false(r.env.running);
    rig_fini(&r);
}

static void a_chunk_stops_with_the_episode(void **state)
{
    struct rig r;
    const double *reward;
    double sum = 0;
    int i;

    (void)state;
    rig_init(&r, "HalfCheetah-v5", "{\"max_episode_steps\": 6}", 4, AUTORESET_NEXT_STEP);
    reset(&r, 0);
    step(&r, 4, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->n_sub, 4);
    assert_int_equal(head(&r)->flags, 0);
    reward = (const double *)(r.row + r.layout.reward);
    for (i = 0; i < 4; i++)
        sum += reward[i];
    step(&r, 4, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->n_sub, 2);
    assert_int_equal(head(&r)->flags, ROW_TRUNCATED);
    sum += reward[0] + reward[1];
    assert_true(reward[2] == 0 && reward[3] == 0);
    assert_close(head(&r)->episode_return, sum, 1e-12, 0);
    rig_fini(&r);
}

static void a_chunk_is_the_same_as_single_steps(void **state)
{
    struct rig a, b;
    int i;

    (void)state;
    rig_init(&a, "Hopper-v5", "", 5, AUTORESET_NEXT_STEP);
    rig_init(&b, "Hopper-v5", "", 1, AUTORESET_NEXT_STEP);
    reset(&a, 0);
    reset(&b, 0);
    step(&a, 5, AUTORESET_NEXT_STEP);
    for (i = 0; i < 5; i++)
        step(&b, 1, AUTORESET_NEXT_STEP);
    assert_memory_equal(obs(&a), obs(&b), (size_t)a.scene->n_obs * sizeof(double));
    rig_fini(&b);
    rig_fini(&a);
}

// Change the world between two requests: where in it is a number.
static double *between(struct rig *r, int qpos, int qvel)
{
    const mjModel *m = r->scene->model;
    double *p = r->state; // time, qpos, qvel

    if (r->env.own)
        return qpos >= 0 ? &r->env.own->world.d->qpos[qpos] : &r->env.own->world.d->qvel[qvel];
    return qpos >= 0 ? &p[1 + qpos] : &p[1 + m->nq + qvel];
}

static void a_bad_state_ends_the_episode_by_an_error(void **state)
{
    struct rig r;
    int i;

    (void)state;
    rig_init(&r, "Hopper-v5", "", 1, AUTORESET_NEXT_STEP);
    reset(&r, 0);
    step(&r, 1, AUTORESET_NEXT_STEP);
    *between(&r, -1, 0) = NAN;
    step(&r, 1, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->flags, ROW_ERROR);
    assert_int_equal(head(&r)->error, ROW_ERROR_QVEL);
    assert_int_equal(head(&r)->elapsed, 1); // the failed step does not count
    for (i = 0; i < r.scene->n_obs; i++)
        assert_true(obs(&r)[i] == 0);
    step(&r, 1, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->flags, ROW_FIRST);
    assert_int_equal(head(&r)->episode, 1);
    step(&r, 1, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->flags & ROW_ERROR, 0);
    rig_fini(&r);
}

static void an_error_in_same_step_mode_starts_the_next_episode(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r, "Hopper-v5", "", 1, AUTORESET_SAME_STEP);
    reset(&r, 0);
    *between(&r, 1, -1) = INFINITY;
    step(&r, 1, AUTORESET_SAME_STEP);
    assert_int_equal(head(&r)->flags, ROW_ERROR | ROW_HAS_FINAL);
    assert_true(r.env.running);
    assert_true(obs(&r)[0] > 1); // the next episode's hopper stands
    rig_fini(&r);
}

static void an_engine_error_ends_the_episode_not_the_process(void **state)
{
    struct rig r;
    int saved;

    (void)state;
    rig_init(&r, "Ant-v5", "", 1, AUTORESET_NEXT_STEP);
    reset(&r, 0);
    saved = ((mjModel *)r.scene->model)->opt.integrator;
    ((mjModel *)r.scene->model)->opt.integrator = 99; // the engine refuses it in mj_step
    step(&r, 1, AUTORESET_NEXT_STEP);
    ((mjModel *)r.scene->model)->opt.integrator = saved;
    assert_int_equal(head(&r)->flags, ROW_ERROR);
    assert_int_equal(head(&r)->error, ROW_ERROR_ENGINE);
    assert_true(strlen(r.desk.at->world.error) > 0);
    step(&r, 1, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->flags, ROW_FIRST);
    step(&r, 1, AUTORESET_NEXT_STEP);
    assert_int_equal(head(&r)->flags, 0);
    rig_fini(&r);
}

static void a_warm_step_allocates_nothing(void **state)
{
    struct rig r;
    int64_t before;
    int i;

    (void)state;
    rig_init(&r, "Hopper-v5", "", 1, AUTORESET_SAME_STEP);
    reset(&r, 0);
    before = mem_calls();
    for (i = 0; i < 1000; i++)
        step(&r, 1, AUTORESET_SAME_STEP);
    assert_int_equal(mem_calls(), before);
    rig_fini(&r);
}

// The rows of `n` envs that take turns at one desk are those of envs with worlds of their own.
static void check_turns(const char *task, const char *kwargs, enum autoreset mode)
{
    struct rig rows[3], own[3];
    int i, k, t;

    for (i = 0; i < 3; i++) {
        own_worlds = false;
        rig_init(&rows[i], task, kwargs, 1, mode);
        own_worlds = true;
        rig_init(&own[i], task, kwargs, 1, mode);
        own_worlds = false;
        reset(&rows[i], (uint64_t)i);
        reset(&own[i], (uint64_t)i);
    }
    for (t = 0; t < 200; t++) {
        for (i = 0; i < 3; i++) {
            struct desk *desk = &rows[t % 2 ? i : 0].desk; // another one every time

            for (k = 0; k < rows[i].scene->n_act; k++)
                rows[i].zero[k] = own[i].zero[k] = sinf((float)(7 * i + 3 * t + k));
            env_step(&rows[i].env, desk, rows[i].zero, 1, mode);
            env_write(&rows[i].env, desk, &rows[i].layout, rows[i].row);
            step(&own[i], 1, mode);
            if (memcmp(rows[i].row, own[i].row, own[i].layout.stride) != 0)
                fail_msg("%s: step %d of env %d differs", task, t, i);
        }
    }
    for (i = 0; i < 3; i++) {
        rig_fini(&rows[i]);
        rig_fini(&own[i]);
    }
}

static void turns_at_one_world_give_the_same_bits(void **state)
{
    const struct scene_task *task;
    int i, n = 0;

    (void)state;
    for (i = 0; (task = scene_task_at(i)); i++) {
        if (task->members || task->driver)
            continue;
        check_turns(task->name, "", AUTORESET_NEXT_STEP);
        check_turns(task->name, "{\"max_episode_steps\": 17}", AUTORESET_SAME_STEP);
        n++;
    }
    assert_true(n >= 11);
}

static int with_own_worlds(void **state)
{
    own_worlds = true;
    return leak_setup(state);
}

static int with_rows(void **state)
{
    own_worlds = false;
    return leak_teardown(state);
}

#define both_ways(fn) leak_test(fn), cmocka_unit_test_setup_teardown(fn, with_own_worlds, with_rows)

int main(void)
{
    const struct CMUnitTest tests[] = {
        both_ways(a_reset_row_carries_identity_and_no_step),
        both_ways(the_initial_state_is_a_function_of_the_identity),
        both_ways(next_step_shows_the_final_observation_then_resets),
        both_ways(same_step_gives_both_observations),
        both_ways(the_time_limit_truncates_and_both_flags_may_hold),
        both_ways(a_chunk_stops_with_the_episode),
        both_ways(a_chunk_is_the_same_as_single_steps),
        both_ways(a_bad_state_ends_the_episode_by_an_error),
        both_ways(an_error_in_same_step_mode_starts_the_next_episode),
        both_ways(an_engine_error_ends_the_episode_not_the_process),
        both_ways(a_warm_step_allocates_nothing),
        leak_test(turns_at_one_world_give_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
