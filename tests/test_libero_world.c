// Worlds of the tabletop suite: identity of episodes, settings, actions, observation instants, the
// view of the model that each world has, and what is refused. The numbers themselves are compared
// with Python LIBERO by tests/oracle/libero_oracle.py.
#include "tests/testing.h"

#include "envserver/sim.h"
#include "scenes/libero/libero.h"

#include <stdio.h>
#include <unistd.h>

struct rig {
    struct scene *scene;
    struct sim sim;
    double *obs, *info;
};

static void rig_init(struct rig *r, const char *task, const char *kwargs)
{
    assert_ok(scene_create(&r->scene, task, kwargs));
    assert_ok(sim_init(&r->sim, r->scene));
    r->obs = mem_alloc((size_t)r->scene->n_obs, sizeof(double));
    r->info = mem_alloc((size_t)r->scene->n_info, sizeof(double));
}

static void rig_fini(struct rig *r)
{
    mem_free(r->obs);
    mem_free(r->info);
    sim_fini(&r->sim);
    scene_destroy(r->scene);
}

static struct libero_world *inner(struct rig *r)
{
    return r->sim.world.scratch;
}

static void start(struct rig *r, uint64_t seed, uint64_t stream, uint64_t episode)
{
    struct scene_start s = {seed, stream, episode};

    assert_int_equal(sim_reset(&r->sim, &s), ROW_ERROR_NONE);
    sim_observe(&r->sim, r->obs);
    sim_reset_info(&r->sim, r->info);
}

static struct scene_outcome step(struct rig *r, const float *action)
{
    struct scene_outcome out;

    assert_int_equal(sim_step(&r->sim, action, &out, r->info), ROW_ERROR_NONE);
    sim_observe(&r->sim, r->obs);
    return out;
}

static const double *field(const struct rig *r, const char *name)
{
    const struct scene_field *f = scene_field_find(r->scene, name);

    if (!f)
        fail_msg("no field '%s'", name);
    return r->obs + f->offset;
}

// Everything that an episode's course depends on.
static void keep_state(struct rig *r, double *out, int *n)
{
    const mjModel *m = r->sim.world.model;

    *n = (int)m->nq + 7 * (int)m->nbody;
    memcpy(out, r->sim.world.d->qpos, (size_t)m->nq * sizeof out[0]);
    memcpy(out + m->nq, m->body_pos, 3 * (size_t)m->nbody * sizeof out[0]);
    memcpy(out + m->nq + 3 * m->nbody, m->body_quat, 4 * (size_t)m->nbody * sizeof out[0]);
}

#define SHORT "{\"init_states\": \"random\", \"settle_steps\": 0}"

static void an_episode_is_a_function_of_its_identity(void **state)
{
    static const uint64_t order[] = {3, 0, 4, 1, 3, 2, 0};
    double states[5][512], again[512];
    struct rig a = {0}, b = {0};
    int i, k, n = 0;

    (void)state;
    rig_init(&a, "tabletop/8", SHORT);
    rig_init(&b, "tabletop/8", SHORT);
    for (i = 0; i < 5; i++) {
        start(&a, 7, 0, (uint64_t)i);
        keep_state(&a, states[i], &n);
        for (k = 0; k < i; k++)
            assert_memory_not_equal(states[i], states[k], (size_t)n * sizeof(double));
    }
    for (i = 0; i < 7; i++) { // another world, another order
        start(&b, 7, 0, order[i]);
        keep_state(&b, again, &n);
        assert_memory_equal(again, states[order[i]], (size_t)n * sizeof(double));
    }
    start(&b, 5, 2, 3); // the generator's seed is seed + stream
    keep_state(&b, again, &n);
    assert_memory_equal(again, states[3], (size_t)n * sizeof(double));
    rig_fini(&a);
    rig_fini(&b);
}

// LIBERO's resets grow, so that a huge episode number would take for ever.
static void episode_numbers_are_bounded(void **state)
{
    const struct scene_start huge = {1, 0, UINT64_MAX}, start = {1, 0, 1};
    struct rig r = {0};

    (void)state;
    rig_init(&r, "tabletop/8", SHORT);
    assert_int_equal(sim_reset(&r.sim, &huge), ROW_ERROR_ENGINE);
    assert_non_null(strstr(r.sim.world.error, "expected fewer than 100000"));
    assert_int_equal(sim_reset(&r.sim, &start), ROW_ERROR_NONE);
    rig_fini(&r);
}

static void init_states_are_chosen_by_the_episode(void **state)
{
    struct rig r = {0};
    const struct libero *l;

    (void)state;
    rig_init(&r, "tabletop/0", "{\"settle_steps\": 0}");
    l = r.scene->data;
    assert_int_equal(l->init.n_row, 50);
    start(&r, 0, 0, 53);
    assert_close(r.info[2], 3, 0, 0);
    assert_memory_equal(r.sim.world.d->qpos, l->init.rows + 3 * l->init.n_col + 1,
                        (size_t)r.scene->model->nq * sizeof(double));
    start(&r, 0, 4, 5);
    assert_close(r.info[2], 9, 0, 0);
    rig_fini(&r);
    rig_init(&r, "tabletop/0", "{\"init_state\": 17}");
    start(&r, 0, 4, 5);
    assert_close(r.info[2], 17, 0, 0);
    rig_fini(&r);
}

static void worlds_of_a_scene_do_not_share_fixture_poses(void **state)
{
    struct scene *scene;
    struct sim a, b;
    struct scene_start s = {1, 0, 0}, t = {2, 0, 0};
    const struct libero *l;
    double before[3], compiled[3];
    int cabinet;

    (void)state;
    assert_ok(scene_create(&scene, "tabletop/4", SHORT));
    assert_ok(sim_init(&a, scene));
    assert_ok(sim_init(&b, scene));
    l = scene->data;
    cabinet = l->binding.items[binding_find(&l->binding, "cabinet_1")].body;
    memcpy(compiled, scene->model->body_pos + 3 * cabinet, sizeof compiled);
    assert_int_equal(sim_reset(&a, &s), ROW_ERROR_NONE);
    memcpy(before, a.world.model->body_pos + 3 * cabinet, sizeof before);
    assert_int_equal(sim_reset(&b, &t), ROW_ERROR_NONE);
    assert_memory_equal(before, a.world.model->body_pos + 3 * cabinet, sizeof before);
    assert_memory_not_equal(before, b.world.model->body_pos + 3 * cabinet, sizeof before);
    assert_memory_equal(compiled, scene->model->body_pos + 3 * cabinet, sizeof compiled);
    sim_fini(&a);
    sim_fini(&b);
    scene_destroy(scene);
}

static void actions_beyond_one_are_clipped_and_counted(void **state)
{
    static const float large[7] = {3, 0, -1.5f, 0, 0, 0, 5}, small[7] = {1, 0, -1, 0, 0, 0, 1};
    struct rig a = {0}, b = {0};

    (void)state;
    rig_init(&a, "tabletop/0", SHORT);
    rig_init(&b, "tabletop/0", SHORT);
    start(&a, 0, 0, 0);
    start(&b, 0, 0, 0);
    step(&a, large);
    step(&b, small);
    assert_close(a.info[1], 2, 0, 0);
    assert_close(b.info[1], 0, 0, 0);
    assert_memory_equal(a.obs, b.obs, (size_t)a.scene->n_obs * sizeof(double));
    step(&a, large);
    assert_close(a.info[1], 4, 0, 0);
    start(&a, 0, 0, 1);
    assert_close(a.info[1], 0, 0, 0);
    rig_fini(&a);
    rig_fini(&b);
}

// An absolute goal is reached, and openvla's gripper number is turned over.
static void absolute_control_and_the_gripper_rule(void **state)
{
    struct rig r = {0};
    float action[7] = {0};
    double x[3], angle[3];
    int i;

    (void)state;
    rig_init(&r, "tabletop/0",
             "{\"init_states\": \"random\", \"settle_steps\": 0, \"control\": "
             "\"absolute\", \"gripper\": \"openvla\", \"compat\": \"clean\"}");
    start(&r, 0, 0, 0);
    memcpy(x, field(&r, "robot0_eef_pos"), sizeof x);
    memcpy(angle, field(&r, "policy_state") + 3, sizeof angle);
    x[0] += 0.05;
    x[2] += 0.04;
    for (i = 0; i < 3; i++) {
        action[i] = (float)x[i];
        action[3 + i] = (float)angle[i];
    }
    action[6] = 0; // closed
    for (i = 0; i < 40; i++)
        step(&r, action);
    assert_close(r.info[1], 0, 0, 0);
    assert_close(field(&r, "robot0_eef_pos")[0], x[0], 0, 3e-3);
    assert_close(field(&r, "robot0_eef_pos")[2], x[2], 0, 3e-3);
    assert_true(field(&r, "robot0_gripper_qpos")[0] < 0.005);
    action[6] = 1; // open
    for (i = 0; i < 15; i++)
        step(&r, action);
    assert_true(field(&r, "robot0_gripper_qpos")[0] > 0.035);
    rig_fini(&r);
}

// LIBERO's observation is taken two physics steps before the end of the step, the clean one at it.
static void the_clean_observation_is_of_the_end_of_the_step(void **state)
{
    static const float action[7] = {1, 0, 0, 0, 0, 0, -1};
    struct rig clean = {0}, libero = {0};
    int i;

    (void)state;
    rig_init(&clean, "tabletop/0", "{\"settle_steps\": 0, \"compat\": \"clean\"}");
    rig_init(&libero, "tabletop/0", "{\"settle_steps\": 0}");
    start(&clean, 0, 0, 0);
    start(&libero, 0, 0, 0);
    for (i = 0; i < 5; i++) {
        step(&clean, action);
        step(&libero, action);
    }
    assert_memory_equal(field(&clean, "robot0_joint_pos"), clean.sim.world.d->qpos,
                        7 * sizeof(double));
    assert_memory_not_equal(field(&libero, "robot0_joint_pos"), libero.sim.world.d->qpos,
                            7 * sizeof(double));
    mj_forward(clean.sim.world.model, clean.sim.world.d);
    assert_memory_equal(field(&clean, "robot0_eef_pos"),
                        clean.sim.world.d->site_xpos +
                            3 * ((struct libero *)clean.scene->data)->osc.grip_site,
                        3 * sizeof(double));
    assert_int_equal(inner(&libero)->n_forced, 2);
    rig_fini(&clean);
    rig_fini(&libero);
}

// Fixed init states with compat=clean: fixtures stand where they are in every episode.
static void clean_fixtures_do_not_depend_on_the_episode(void **state)
{
    double first[512], later[512];
    struct rig r = {0};
    int n;

    (void)state;
    rig_init(&r, "tabletop/4", "{\"settle_steps\": 0, \"compat\": \"clean\", \"init_state\": 3}");
    start(&r, 0, 0, 0);
    keep_state(&r, first, &n);
    start(&r, 9, 5, 31);
    keep_state(&r, later, &n);
    assert_memory_equal(first, later, (size_t)n * sizeof(double));
    rig_fini(&r);
}

// An episode that is lifted into success by hand: reward, termination, and going on after it.
static void success_gives_reward_and_ends_the_episode(void **state)
{
    static const float still[7] = {0, 0, 0, 0, 0, 0, -1};
    static const char *const kwargs[] = {"{\"settle_steps\": 0}",
                                         "{\"settle_steps\": 0, \"terminate_on_success\": false}"};
    int k;

    (void)state;
    for (k = 0; k < 2; k++) {
        struct rig r = {0};
        struct scene_outcome out;
        const struct libero *l;

        rig_init(&r, "tabletop/0", kwargs[k]);
        l = r.scene->data;
        start(&r, 0, 0, 0);
        assert_close(r.info[0], 0, 0, 0);
        r.sim.world.d->qpos[l->binding.items[binding_find(&l->binding, "red_block_1")].qpos + 2] =
            1.3;
        out = step(&r, still);
        assert_true(out.success);
        assert_int_equal(out.terminated, k == 0);
        assert_close(out.reward, 1, 0, 0);
        assert_close(r.info[0], 1, 0, 0);
        rig_fini(&r);
    }
}

// The stove's disc is shown one step after its knob has passed 0.5 rad.
static void the_burner_follows_the_knob(void **state)
{
    static const float still[7] = {0, 0, 0, 0, 0, 0, -1};
    struct rig r = {0};
    const struct libero *l;
    const float *alpha;

    (void)state;
    rig_init(&r, "tabletop/6", "{\"settle_steps\": 0, \"terminate_on_success\": false}");
    l = r.scene->data;
    assert_int_equal(l->n_burner, 1);
    start(&r, 0, 0, 0);
    alpha = &r.sim.world.model->site_rgba[4 * l->burner_site[0] + 3];
    assert_true(*alpha <= 0);
    r.sim.world.d->qpos[r.scene->model->jnt_qposadr[l->burner_on[0].joints[0]]] = 1.0;
    step(&r, still);
    assert_true(*alpha > 0);
    r.sim.world.d->qpos[r.scene->model->jnt_qposadr[l->burner_on[0].joints[0]]] = 0.1;
    step(&r, still);
    assert_true(*alpha <= 0);
    rig_fini(&r);
}

static void presets_set_and_keywords_win(void **state)
{
    const struct libero_params *p;
    struct scene *s;

    (void)state;
    assert_ok(scene_create(&s, "tabletop/0", "{\"preset\": \"rlinf\"}"));
    p = s->params;
    assert_int_equal(p->settle_steps, 15);
    assert_int_equal(p->common.pictures.orient, 2);
    assert_int_equal(p->common.max_episode_steps, 150);
    scene_destroy(s);
    assert_ok(
        scene_create(&s, "tabletop/0",
                     "{\"preset\": \"libero\", \"settle_steps\": 2, \"max_episode_steps\": 9}"));
    p = s->params;
    assert_int_equal(p->settle_steps, 2);
    assert_int_equal(p->common.max_episode_steps, 9);
    assert_int_equal(s->n_obs, 9); // gripper and joints
    scene_destroy(s);
    assert_ok(scene_create(&s, "tabletop/0", "{\"observation\": \"policy\"}"));
    assert_int_equal(s->n_obs, 8);
    scene_destroy(s);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

// A BDDL file of the user's: what it names and the program does not know is said.
static void problems_that_cannot_be_built_say_why(void **state)
{
    static const struct {
        const char *goal, *objects, *problem, *part;
    } bad[] = {
        {"(up red_block_1)", "red_block_1 - read_block", "tabletop", "category 'read_block'"},
        {"(up red_block_1)", "red_block_1 - red_block", "counter", "problem class is 'counter'"},
        {"(up red_block_2)", "red_block_1 - red_block", "tabletop",
         "line 4: (up red_block_2): the argument is no object"},
        {"(flies red_block_1)", "red_block_1 - red_block", "tabletop", "expected in, on, up"},
        {"(open red_block_1)", "red_block_1 - red_block", "tabletop", "no rule for this predicate"},
        {"(in red_block_1 main_table_nowhere)", "red_block_1 - red_block", "tabletop",
         "expected an object, a fixture or a region"},
        {"(in red_block_1 red_block_1)", "red_block_1 - red_block", "tabletop", "has no geometry"},
    };
    char path[] = "/tmp/simstream-bddl-XXXXXX", text[1024], kwargs[256];
    int fd = mkstemp(path);
    struct scene *s = NULL;
    size_t i;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    snprintf(kwargs, sizeof kwargs, "{\"init_states\": \"random\", \"bddl_file\": \"%s\"}", path);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text,
                 "(define (problem %s) (:language do it)\n(:fixtures main_table - table)\n"
                 "(:objects %s)\n(:goal (and %s)))\n",
                 bad[i].problem, bad[i].objects, bad[i].goal);
        write_file(path, text);
        assert_fails(scene_create(&s, "tabletop/0", kwargs), ST_INVAL, bad[i].part);
        assert_non_null(strstr(error_last()->text, path)); // the file is named too
    }
    assert_fails(scene_create(&s, "tabletop/0", "{\"init_state\": 50}"), ST_INVAL, "rows 0 to 49");
    assert_fails(scene_create(&s, "tabletop/0", "{\"init_file\": \"/absent\"}"), ST_MISSING,
                 "/absent");
    unlink(path);
}

static void without_libero_the_error_says_how_to_get_it(void **state)
{
    struct scene *s = NULL;

    (void)state;
    assert_fails(scene_create(&s, "libero_goal/2", "{\"data_dir\": \"/absent\"}"), ST_MISSING,
                 "run 'make libero-data', or set LIBERO_DIR");
}

static void running_out_of_memory_leaves_nothing_behind(void **state)
{
    struct scene *s = NULL;
    int64_t calls = mem_calls(), n, i;

    (void)state;
    assert_ok(scene_create(&s, "tabletop/6", ""));
    n = mem_calls() - calls;
    scene_destroy(s);
    for (i = 0; i < n; i += 1 + n / 40) {
        mem_fail_after(i);
        assert_int_not_equal(scene_create(&s, "tabletop/6", ""), ST_OK);
        mem_fail_after(-1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(an_episode_is_a_function_of_its_identity),
        leak_test(episode_numbers_are_bounded),
        leak_test(init_states_are_chosen_by_the_episode),
        leak_test(worlds_of_a_scene_do_not_share_fixture_poses),
        leak_test(actions_beyond_one_are_clipped_and_counted),
        leak_test(absolute_control_and_the_gripper_rule),
        leak_test(the_clean_observation_is_of_the_end_of_the_step),
        leak_test(clean_fixtures_do_not_depend_on_the_episode),
        leak_test(success_gives_reward_and_ends_the_episode),
        leak_test(the_burner_follows_the_knob),
        leak_test(presets_set_and_keywords_win),
        leak_test(problems_that_cannot_be_built_say_why),
        leak_test(without_libero_the_error_says_how_to_get_it),
        leak_test(running_out_of_memory_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
