// The scripted expert: its geometry against MuJoCo's own collision functions, and what it does on
// the tabletop suite. With arguments it is a measurement instead of a test:
//
//   test_expert TASK FIRST N [KWARGS]    N episodes of TASK from number FIRST, kwargs in JSON
//
// prints one line with the successes and the mean number of actions.
#include "tests/testing.h"

#include "envserver/sim.h"
#include "scenes/libero/libero.h"

#include <stdio.h>

struct rig {
    struct scene *scene;
    struct sim sim;
    double *obs, *info;
};

static enum status rig_open(struct rig *r, const char *task, const char *kwargs)
{
    memset(r, 0, sizeof *r);
    TRY(scene_create(&r->scene, task, kwargs));
    TRY(sim_init(&r->sim, r->scene));
    r->obs = mem_alloc((size_t)r->scene->n_obs, sizeof(double));
    r->info = mem_alloc((size_t)r->scene->n_info, sizeof(double));
    return r->obs && r->info ? ST_OK : ST_NOMEM;
}

static void rig_close(struct rig *r)
{
    mem_free(r->obs);
    mem_free(r->info);
    sim_fini(&r->sim);
    scene_destroy(r->scene);
}

static int64_t horizon(const struct rig *r)
{
    return ((const struct scene_common *)r->scene->params)->max_episode_steps;
}

static bool begin(struct rig *r, uint64_t episode)
{
    struct scene_start start = {0, 0, episode};

    return sim_reset(&r->sim, &start) == ROW_ERROR_NONE;
}

// What a client does: copy the last field of the observation.
static void proposal(struct rig *r, float action[LIBERO_ACTION])
{
    int i, at = r->scene->n_obs - LIBERO_ACTION;

    sim_observe(&r->sim, r->obs);
    for (i = 0; i < LIBERO_ACTION; i++)
        action[i] = (float)r->obs[at + i];
}

// Follow the expert until success, at most `limit` actions. Their number, or -1 for no success.
static int64_t follow(struct rig *r, int64_t limit)
{
    struct scene_outcome out = {0};
    float action[LIBERO_ACTION];
    int64_t t;

    for (t = 0; t < limit; t++) {
        proposal(r, action);
        if (sim_step(&r->sim, action, &out, r->info) != ROW_ERROR_NONE)
            return -1;
        if (out.success)
            return t + 1;
    }
    return -1;
}

// ------------------------------------------------------------------ boxes

static const char two_boxes[] = "<mujoco><worldbody>"
                                "<body mocap='true'><geom type='box' size='0.1 0.2 0.05'/></body>"
                                "<body mocap='true'><geom type='box' size='0.15 0.03 0.08'/></body>"
                                "</worldbody></mujoco>";

// Numbers in [-1, 1] from a counter.
static double number(int *k)
{
    return fmod(sin(++*k * 12.9898) * 43758.5453, 1.0);
}

static void test_boxes_meet_where_the_engine_says(void **state)
{
    mjVFS vfs;
    mjModel *m;
    mjData *d;
    char error[200];
    int i, j, k = 0, n_met = 0;

    (void)state;
    mj_defaultVFS(&vfs);
    assert_int_equal(mj_addBufferVFS(&vfs, "b.xml", two_boxes, (int)sizeof two_boxes - 1), 0);
    m = mj_loadXML("b.xml", &vfs, error, sizeof error);
    assert_non_null(m);
    d = mj_makeData(m);
    for (i = 0; i < 300; i++) {
        double dir[3] = {number(&k), number(&k), number(&k)}, range[2], gap;
        struct box a, b;

        for (j = 0; j < 6; j++)
            d->mocap_pos[j] = 0.2 * number(&k);
        for (j = 0; j < 8; j++)
            d->mocap_quat[j] = number(&k);
        mju_normalize4(d->mocap_quat);
        mju_normalize4(d->mocap_quat + 4);
        mju_normalize3(dir);
        mj_kinematics(m, d);
        box_of_geom(&a, m, d, 0);
        box_of_geom(&b, m, d, 1);
        gap = mj_geomDistance(m, d, 0, 1, 1, NULL);
        if (fabs(gap) > 1e-4)
            assert_int_equal(box_hits(&a, &b, 0), gap < 0);
        if (!box_sweep(&a, &b, dir, range))
            continue;
        n_met++;
        for (j = 0; j < 2; j++) { // at both ends of the interval they just touch
            double p[3];

            mju_copy3(p, d->mocap_pos);
            mju_addToScl3(d->mocap_pos, dir, range[j]);
            mj_kinematics(m, d);
            assert_close(mj_geomDistance(m, d, 0, 1, 1, NULL), 0, 0, 2e-4);
            mju_copy3(d->mocap_pos, p);
        }
    }
    assert_true(n_met > 100);
    mj_deleteData(d);
    mj_deleteModel(m);
    mj_deleteVFS(&vfs);
}

// ------------------------------------------------------------------ the hand

static void test_hand_is_where_its_geoms_are(void **state)
{
    struct rig r;
    const struct libero *l;
    struct hand_pose now;
    struct box pad, mine;
    int i, g, found = 0;

    (void)state;
    assert_ok(rig_open(&r, "tabletop/0", "{\"expert\": true}"));
    assert_true(begin(&r, 0));
    l = r.scene->data;
    hand_now(&l->hand, r.sim.world.d, &now);
    g = mj_name2id(r.scene->model, mjOBJ_GEOM, "gripper0_finger1_pad_collision");
    assert_true(g >= 0);
    box_of_geom(&pad, r.scene->model, r.sim.world.d, g);
    for (i = 0; i < l->hand.n; i++) {
        hand_box(&l->hand, i, &now, r.sim.world.d->qpos[7], &mine);
        if (mju_dist3(mine.center, pad.center) < 1e-3)
            found++;
    }
    assert_int_equal(found, 1);
    rig_close(&r);
}

// ------------------------------------------------------------------ tasks

static void test_solves_the_tabletop_suite(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < 10; i++) {
        char task[SCENE_NAME_MAX];
        struct rig r;

        snprintf(task, sizeof task, "tabletop/%d", i);
        assert_ok(rig_open(&r, task, "{\"expert\": true}"));
        assert_true(begin(&r, 0));
        if (follow(&r, horizon(&r)) < 0)
            fail_msg("%s: no success within %lld actions", task, (long long)horizon(&r));
        rig_close(&r);
    }
}

// Somebody else opens the hand on the way, then does nothing for a while.
static void test_goes_on_from_where_others_leave_it(void **state)
{
    struct scene_outcome out;
    float action[LIBERO_ACTION], drop[LIBERO_ACTION] = {0, 0, 0, 0, 0, 0, -1};
    struct rig r;
    int t, lifted = 0;

    (void)state;
    assert_ok(rig_open(&r, "tabletop/1", "{\"expert\": true, \"max_episode_steps\": 400}"));
    assert_true(begin(&r, 0));
    for (t = 0; t < 100 && !lifted; t++) {
        const struct libero_world *w = r.sim.world.scratch;

        proposal(&r, action);
        assert_int_equal(sim_step(&r.sim, action, &out, r.info), ROW_ERROR_NONE);
        lifted = w->expert.phase == PHASE_CARRY && w->expert.count > 5;
    }
    assert_true(lifted);
    for (t = 0; t < 15; t++)
        assert_int_equal(sim_step(&r.sim, drop, &out, r.info), ROW_ERROR_NONE);
    assert_true(follow(&r, 250) > 0);
    rig_close(&r);
}

// The same episode twice, and a world without an expert given the same actions.
static void test_is_deterministic_and_only_looks(void **state)
{
    struct rig a, b, plain;
    struct scene_outcome out;
    float action[LIBERO_ACTION], again[LIBERO_ACTION];
    int t, n;

    (void)state;
    assert_ok(rig_open(&a, "tabletop/3", "{\"expert\": true}"));
    assert_ok(rig_open(&b, "tabletop/3", "{\"expert\": true}"));
    assert_ok(rig_open(&plain, "tabletop/3", ""));
    n = plain.scene->n_obs;
    assert_int_equal(a.scene->n_obs, n + LIBERO_ACTION);
    assert_string_equal(a.scene->fields[a.scene->n_field - 1].name, "expert_action");
    assert_true(begin(&b, 4) && begin(&a, 2) && begin(&b, 2) && begin(&plain, 2));
    for (t = 0; t < 40; t++) {
        proposal(&a, action);
        proposal(&b, again);
        sim_observe(&plain.sim, plain.obs);
        assert_memory_equal(action, again, sizeof action);
        assert_memory_equal(a.obs, plain.obs, (size_t)n * sizeof(double));
        assert_int_equal(sim_step(&a.sim, action, &out, a.info), ROW_ERROR_NONE);
        assert_int_equal(sim_step(&b.sim, action, &out, b.info), ROW_ERROR_NONE);
        assert_int_equal(sim_step(&plain.sim, action, &out, plain.info), ROW_ERROR_NONE);
    }
    rig_close(&a);
    rig_close(&b);
    rig_close(&plain);
}

static void test_speaks_the_tasks_actions(void **state)
{
    float direct[LIBERO_ACTION], other[LIBERO_ACTION];
    struct rig a, b;
    int i;

    (void)state;
    assert_ok(rig_open(&a, "tabletop/0", "{\"expert\": true}"));
    assert_ok(rig_open(&b, "tabletop/0",
                       "{\"expert\": true, \"gripper\": \"openvla\", "
                       "\"settle_gripper\": 1}"));
    assert_true(begin(&a, 0));
    assert_true(begin(&b, 0));
    proposal(&a, direct);
    proposal(&b, other);
    assert_true(direct[6] == -1 && other[6] == 1);
    for (i = 0; i < LIBERO_ACTION; i++)
        assert_true(direct[i] >= -1 && direct[i] <= 1);
    rig_close(&a);
    rig_close(&b);
    assert_fails(rig_open(&a, "tabletop/0", "{\"expert\": true, \"control\": \"absolute\"}"),
                 ST_INVAL, "control=delta");
    rig_close(&a);
}

// ------------------------------------------------------------------ measurement

static int measure(int argc, char **argv)
{
    int first = atoi(argv[2]), n = atoi(argv[3]), i, ok = 0;
    char kwargs[512];
    int64_t sum = 0;
    struct rig r;

    snprintf(kwargs, sizeof kwargs, "%s", argc > 4 ? argv[4] : "{\"expert\": true}");
    if (rig_open(&r, argv[1], kwargs) != ST_OK) {
        fprintf(stderr, "%s\n", error_last()->text);
        return 1;
    }
    for (i = first; i < first + n; i++) {
        int64_t t = begin(&r, (uint64_t)i) ? follow(&r, horizon(&r)) : -1;

        ok += t > 0;
        sum += t > 0 ? t : horizon(&r);
        if (t < 0)
            printf("episode %d fails\n", i);
    }
    printf("%s: %d of %d, mean %.0f actions: %s\n", argv[1], ok, n, (double)sum / n,
           r.scene->instruction);
    rig_close(&r);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes_meet_where_the_engine_says),
        leak_test(test_hand_is_where_its_geoms_are),
        leak_test(test_solves_the_tabletop_suite),
        leak_test(test_goes_on_from_where_others_leave_it),
        leak_test(test_is_deterministic_and_only_looks),
        leak_test(test_speaks_the_tasks_actions),
    };

    if (argc > 3)
        return measure(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
