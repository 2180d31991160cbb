// The Gymnasium tasks: sizes and initial states. Rewards, terminations and info terms are compared
// with Gymnasium itself by oracle/gym_oracle.py.
#include "tests/testing.h"

#include "scenes/scene.h"

#define N_TASK  11
#define N_RESET 4000
#define CANARY  -12345.5

// What Gymnasium's documentation says of each task.
static const struct {
    const char *name;
    int n_obs, n_act, n_info;
    double dt_s, act_high;
    int limit;
    double noise; // scale of the reset noise; 0 = the task has its own rule
    bool normal;  // velocities are normal instead of uniform
} facts[N_TASK] = {
    {"Ant-v5", 105, 8, 9, 0.05, 1, 1000, 0.1, true},
    {"HalfCheetah-v5", 17, 6, 4, 0.05, 1, 1000, 0.1, true},
    {"Hopper-v5", 11, 3, 6, 0.008, 1, 1000, 5e-3, false},
    {"Humanoid-v5", 348, 17, 13, 0.015, 0.4, 1000, 0.01, false},
    {"HumanoidStandup-v5", 348, 17, 10, 0.015, 0.4, 1000, 0.01, false},
    {"InvertedDoublePendulum-v5", 9, 1, 3, 0.05, 1, 1000, 0.1, true},
    {"InvertedPendulum-v5", 4, 1, 1, 0.04, 3, 1000, 0.01, false},
    {"Pusher-v5", 23, 7, 3, 0.05, 2, 100, 0, false},
    {"Reacher-v5", 10, 2, 2, 0.02, 1, 50, 0, false},
    {"Swimmer-v5", 8, 2, 7, 0.04, 1, 1000, 0.1, false},
    {"Walker2d-v5", 17, 6, 6, 0.008, 1, 1000, 5e-3, false},
};

struct rig {
    struct scene *scene;
    mjData *d;
    void *scratch;
};

static void world_init(struct rig *w, const char *task, const char *kwargs)
{
    w->scene = NULL;
    assert_ok(scene_create(&w->scene, task, kwargs));
    w->d = mj_makeData(w->scene->model);
    w->scratch = mem_alloc(1, w->scene->task->scratch_bytes);
    assert_non_null(w->d);
    assert_non_null(w->scratch);
}

static void world_fini(struct rig *w)
{
    mem_free(w->scratch);
    mj_deleteData(w->d);
    scene_destroy(w->scene);
}

static void world_reset(struct rig *w, uint64_t seed, uint64_t stream, uint64_t episode)
{
    struct rng rng = rng_make(seed, RNG_RESET, stream, episode, 0);

    mj_resetData(w->scene->model, w->d);
    w->scene->task->reset(w->scene, w->d, &rng, w->scratch);
}

static void sizes_are_gymnasiums(void **state)
{
    int i, k;

    (void)state;
    for (i = 0; i < N_TASK; i++) {
        struct scene *s = NULL;

        assert_ok(scene_create(&s, facts[i].name, ""));
        assert_int_equal(s->n_obs, facts[i].n_obs);
        assert_int_equal(s->n_act, facts[i].n_act);
        assert_int_equal(s->n_info, facts[i].n_info);
        assert_close(s->dt_s, facts[i].dt_s, 1e-12, 0);
        assert_int_equal(((const struct scene_common *)s->params)->max_episode_steps,
                         facts[i].limit);
        for (k = 0; k < s->n_act; k++) {
            assert_true(s->act_high[k] == (float)facts[i].act_high);
            assert_true(s->act_low[k] == -s->act_high[k]);
        }
        scene_destroy(s);
    }
}

static void keyword_arguments_change_the_observation(void **state)
{
    static const struct {
        const char *task, *kwargs;
        int n_obs;
    } cases[] = {
        {"Ant-v5", "{\"include_cfrc_ext_in_observation\": false}", 27},
        {"Ant-v5", "{\"exclude_current_positions_from_observation\": false}", 107},
        {"HalfCheetah-v5", "{\"exclude_current_positions_from_observation\": false}", 18},
        {"Hopper-v5", "{\"exclude_current_positions_from_observation\": false}", 12},
        {"Swimmer-v5", "{\"exclude_current_positions_from_observation\": false}", 10},
        {"Walker2d-v5", "{\"exclude_current_positions_from_observation\": false}", 18},
        {"Humanoid-v5", "{\"exclude_current_positions_from_observation\": false}", 350},
        {"Humanoid-v5", "{\"include_cinert_in_observation\": false}", 218},
        {"Humanoid-v5", "{\"include_cvel_in_observation\": false}", 270},
        {"HumanoidStandup-v5", "{\"include_qfrc_actuator_in_observation\": false}", 331},
        {"HumanoidStandup-v5", "{\"include_cfrc_ext_in_observation\": false}", 270},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene *s = NULL;

        assert_ok(scene_create(&s, cases[i].task, cases[i].kwargs));
        assert_int_equal(s->n_obs, cases[i].n_obs);
        scene_destroy(s);
    }
}

// Sums over resets of one number's noise.
struct moments {
    double low, high, sum, squares;
};

static void moments_add(struct moments *m, double x)
{
    m->low = fmin(m->low, x);
    m->high = fmax(m->high, x);
    m->sum += x;
    m->squares += x * x;
}

// Mean 0 and the variance of U(-scale, scale) or scale * N(0, 1), both within 5 standard errors.
static void check_noise(const struct moments *m, double scale, bool normal)
{
    double variance = normal ? scale * scale : scale * scale / 3;
    double error = normal ? sqrt(2.0 / N_RESET) : sqrt(0.8 / N_RESET); // relative, of the variance

    assert_close(m->sum / N_RESET, 0, 0, 5 * sqrt(variance / N_RESET));
    assert_close(m->squares / N_RESET, variance, 5 * error, 0);
    if (!normal)
        assert_true(m->low >= -scale && m->high <= scale);
    else
        assert_true(m->low < -2 * scale && m->high > 2 * scale);
}

static void the_reset_noise_is_gymnasiums(void **state)
{
    int i, k, t;

    (void)state;
    for (t = 0; t < N_TASK; t++) {
        struct moments qpos[64] = {0}, qvel[64] = {0};
        struct rig w;

        if (facts[t].noise == 0)
            continue;
        world_init(&w, facts[t].name, "");
        for (i = 0; i < N_RESET; i++) {
            world_reset(&w, 1, 2, (uint64_t)i);
            for (k = 0; k < w.scene->model->nq; k++)
                moments_add(&qpos[k], w.d->qpos[k] - w.scene->init_qpos[k]);
            for (k = 0; k < w.scene->model->nv; k++)
                moments_add(&qvel[k], w.d->qvel[k] - w.scene->init_qvel[k]);
        }
        for (k = 0; k < w.scene->model->nq; k++)
            check_noise(&qpos[k], facts[t].noise * (1 + 1e-12), false);
        for (k = 0; k < w.scene->model->nv; k++)
            check_noise(&qvel[k], facts[t].noise, facts[t].normal);
        world_fini(&w);
    }
}

static void the_pusher_starts_with_its_object_off_the_goal(void **state)
{
    double nearest = 1, x_low = 0, y_high = 0, fastest = 0;
    struct rig w;
    int i, k;

    (void)state;
    world_init(&w, "Pusher-v5", "");
    for (i = 0; i < N_RESET; i++) {
        double x, y;

        world_reset(&w, 1, 2, (uint64_t)i);
        x = w.d->qpos[7];
        y = w.d->qpos[8];
        assert_true(x >= -0.3 && x <= 0 && fabs(y) <= 0.2);
        nearest = fmin(nearest, hypot(x, y));
        x_low = fmin(x_low, x);
        y_high = fmax(y_high, y);
        for (k = 0; k < 7; k++) {
            assert_true(w.d->qpos[k] == w.scene->init_qpos[k]);
            fastest = fmax(fastest, fabs(w.d->qvel[k]));
        }
        assert_true(w.d->qpos[9] == 0 && w.d->qpos[10] == 0);
        for (k = 7; k < 11; k++)
            assert_true(w.d->qvel[k] == 0);
    }
    assert_true(nearest > 0.17 && nearest < 0.175);
    assert_true(x_low < -0.295 && y_high > 0.195);
    assert_true(fastest <= 0.005 && fastest > 0.0049);
    world_fini(&w);
}

static void the_reachers_target_is_uniform_in_a_disc(void **state)
{
    double farthest = 0, swing = 0, fastest = 0;
    int i, k, inner = 0;
    struct rig w;

    (void)state;
    world_init(&w, "Reacher-v5", "");
    for (i = 0; i < N_RESET; i++) {
        double r;

        world_reset(&w, 1, 2, (uint64_t)i);
        r = hypot(w.d->qpos[2], w.d->qpos[3]);
        farthest = fmax(farthest, r);
        inner += r < 0.1;
        for (k = 0; k < 2; k++) {
            swing = fmax(swing, fabs(w.d->qpos[k]));
            fastest = fmax(fastest, fabs(w.d->qvel[k]));
            assert_true(w.d->qvel[2 + k] == 0);
        }
    }
    assert_true(farthest < 0.2 && farthest > 0.198);
    assert_close((double)inner / N_RESET, 0.25, 0, 5 * sqrt(0.25 * 0.75 / N_RESET));
    assert_true(swing <= 0.1 && swing > 0.099);
    assert_true(fastest <= 0.005 && fastest > 0.0049);
    world_fini(&w);
}

static void the_initial_state_is_a_function_of_its_identity(void **state)
{
    int t, v;

    (void)state;
    for (t = 0; t < N_TASK; t++) {
        double qpos[64], qvel[64];
        size_t np, nv;
        struct rig w;

        world_init(&w, facts[t].name, "");
        np = (size_t)w.scene->model->nq * sizeof(double);
        nv = (size_t)w.scene->model->nv * sizeof(double);
        world_reset(&w, 3, 4, 5);
        memcpy(qpos, w.d->qpos, np);
        memcpy(qvel, w.d->qvel, nv);
        for (v = 0; v < 3; v++) {
            world_reset(&w, 3 + (v == 0), 4 + (v == 1), 5 + (v == 2));
            assert_memory_not_equal(qpos, w.d->qpos, np);
            assert_memory_not_equal(qvel, w.d->qvel, nv);
        }
        world_reset(&w, 3, 4, 5);
        assert_memory_equal(qpos, w.d->qpos, np);
        assert_memory_equal(qvel, w.d->qvel, nv);
        world_fini(&w);
    }
}

// Every hook writes the numbers that the sizes promise, no more, and allocates nothing.
static void hooks_fill_their_rows_exactly(void **state)
{
    static const double action[64];
    int t, i, k, at;

    (void)state;
    for (t = 0; t < N_TASK; t++) {
        double obs[400], info[32], reward = CANARY;
        const struct scene_task *task;
        bool terminated = false, success = false;
        struct rig w;
        int64_t calls;

        world_init(&w, facts[t].name, "");
        task = w.scene->task;
        for (i = 0; i < 400; i++)
            obs[i] = CANARY;
        for (i = 0; i < 32; i++)
            info[i] = CANARY;
        calls = mem_calls();
        world_reset(&w, 3, 4, 5);
        mj_forward(w.scene->model, w.d);
        if (task->reset_info)
            task->reset_info(w.scene, w.d, info);
        for (i = 0, at = 0; i < w.scene->n_info_key; at += w.scene->info[i++].n)
            for (k = 0; k < w.scene->info[i].n; k++)
                assert_int_equal(info[at + k] != CANARY, w.scene->info[i].on_reset);
        task->before(w.scene, w.d, w.scratch);
        mj_step(w.scene->model, w.d);
        task->after(w.scene, w.d, action, w.scratch, &reward, &terminated, &success, info);
        task->observe(w.scene, w.d, obs);
        assert_true(mem_calls() == calls);
        assert_true(isfinite(reward) && reward != CANARY);
        assert_false(terminated || success);
        for (i = 0; i < 400; i++)
            assert_int_equal(obs[i] == CANARY, i >= w.scene->n_obs);
        for (i = 0; i < 32; i++)
            assert_int_equal(info[i] == CANARY, i >= w.scene->n_info);
        world_fini(&w);
    }
}

// A copy of the scene's model that looks for islands, as MuJoCo and so Gymnasium do.
static mjModel *with_islands(const struct scene *scene)
{
    mjModel *m = mj_copyModel(NULL, scene->model);

    assert_non_null(m);
    m->opt.disableflags &= ~mjDSBL_ISLAND;
    return m;
}

// Where a scene leaves out the search for islands, nothing that moves differs in a single bit.
static void one_tree_moves_as_with_islands(void **state)
{
    int t, i, k, n_one = 0;

    (void)state;
    for (t = 0; t < N_TASK; t++) {
        struct rng rng = rng_make(1, RNG_TEST, (uint64_t)t, 0, 0);
        int n_act = facts[t].n_act, islands = 0;
        struct rig w;
        mjModel *m;
        mjData *d;

        world_init(&w, facts[t].name, "");
        m = with_islands(w.scene);
        d = mj_makeData(m);
        assert_non_null(d);
        assert_int_equal(w.scene->model->opt.disableflags != m->opt.disableflags, m->ntree == 1);
        for (i = 0; i < 1000 && m->ntree == 1; i++) {
            if (i % 250 == 0) {
                world_reset(&w, 1, 0, (uint64_t)i);
                mj_copyData(d, m, w.d);
            }
            for (k = 0; k < n_act; k++)
                w.d->ctrl[k] = d->ctrl[k] =
                    rng_uniform(&rng, -facts[t].act_high, facts[t].act_high);
            mj_step(w.scene->model, w.d);
            mj_step(m, d);
            islands += d->nisland;
            assert_int_equal(w.d->nisland, 0);
            assert_memory_equal(w.d->qpos, d->qpos, (size_t)m->nq * sizeof d->qpos[0]);
            assert_memory_equal(w.d->qvel, d->qvel, (size_t)m->nv * sizeof d->qvel[0]);
            assert_memory_equal(w.d->qacc_warmstart, d->qacc_warmstart,
                                (size_t)m->nv * sizeof d->qacc_warmstart[0]);
            assert_int_equal(w.d->nefc, d->nefc);
            assert_memory_equal(w.d->efc_force, d->efc_force,
                                (size_t)d->nefc * sizeof d->efc_force[0]);
        }
        assert_true(m->ntree != 1 || islands > 0); // else nothing was compared
        n_one += m->ntree == 1;
        mj_deleteData(d);
        mj_deleteModel(m);
        world_fini(&w);
    }
    assert_int_equal(n_one, N_TASK - 2); // Pusher and Reacher have several
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(sizes_are_gymnasiums),
        leak_test(keyword_arguments_change_the_observation),
        leak_test(the_reset_noise_is_gymnasiums),
        leak_test(the_pusher_starts_with_its_object_off_the_goal),
        leak_test(the_reachers_target_is_uniform_in_a_disc),
        leak_test(the_initial_state_is_a_function_of_its_identity),
        leak_test(hooks_fill_their_rows_exactly),
        leak_test(one_tree_moves_as_with_islands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
