#include "scenes/libero/libero.h"

#include "common/base/mem.h"
#include "scenes/libero/data.h"
#include "scenes/libero/model_cache.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define AT(field) offsetof(struct libero_params, field)
#define STEPS_MAX 1000000

static const char *const robosuite_versions[] = {"1.4.0", "1.4.1"};

// ------------------------------------------------------------------ parameters

// Settings that published evaluations share under a name; each can be changed by its own keyword.
const struct scene_preset libero_presets[] = {
    {"none", "", 0},
    {"openpi",
     "{\"settle_steps\": 10, \"settle_gripper\": -1, \"image_orientation\": \"rot180\", "
     "\"image_size\": \"256x256\"}",
     7},
    {"openvla-oft",
     "{\"settle_steps\": 10, \"settle_gripper\": -1, \"gripper\": \"openvla\", "
     "\"image_orientation\": \"rot180\", \"image_size\": \"256x256\"}",
     0},
    {"lerobot", "{\"settle_steps\": 10, \"settle_gripper\": -1, \"image_size\": \"256x256\"}", 0},
    {"rlinf",
     "{\"settle_steps\": 15, \"settle_gripper\": -1, \"image_orientation\": \"rot180\", "
     "\"image_size\": \"256x256\"}",
     0},
    {"libero", "{\"settle_steps\": 5, \"settle_gripper\": 0, \"observation\": \"joints\"}", 0},
    {NULL, NULL, 0},
};

// Time limits that differ from the suite's own, by preset; 0 = the suite's.
static const struct {
    const char *preset, *suite;
    int64_t steps;
} horizons[] = {
    {"lerobot", "libero_spatial", 280}, {"rlinf", "libero_spatial", 240},
    {"rlinf", "libero_goal", 320},      {"libero", "libero_spatial", 600},
    {"libero", "libero_object", 600},   {"libero", "libero_goal", 600},
    {"libero", "libero_10", 600},       {"libero", "libero_90", 600},
};

const struct opt libero_kwargs[] = {
    {"preset", OPT_ENUM, AT(preset), 0, 0, "none",
     "settings of a published evaluation; the other keywords change them one by one",
     "none|openpi|openvla-oft|lerobot|rlinf|libero"},
    {"max_episode_steps", OPT_INT, AT(common.max_episode_steps), -1, STEPS_MAX, "-1",
     "time limit, settling not counted; 0 = none, -1 = the suite's or the preset's", NULL},
    {"init_states", OPT_ENUM, AT(init_states), 0, 0, "file",
     "where an episode starts: a row of the task's init-state file, or a random reset",
     "file|random"},
    {"init_state", OPT_INT, AT(init_state), -1, 1000000, "-1",
     "row of the init-state file; -1 = (stream + episode) modulo the number of rows", NULL},
    {"settle_steps", OPT_INT, AT(settle_steps), 0, 1000, "10",
     "env steps with a motion of zero before the first observation", NULL},
    {"settle_gripper", OPT_REAL, AT(settle_gripper), -1, 1, "-1",
     "gripper action while settling: -1 opens, 1 closes, 0 holds", NULL},
    {"control", OPT_ENUM, AT(control), 0, 0, "delta",
     "action: change of the hand's pose in -1..1, or the pose itself in m and rad",
     "delta|absolute"},
    {"gripper", OPT_ENUM, AT(gripper), 0, 0, "direct",
     "seventh action number: as robosuite takes it (-1 opens, 1 closes), or 0..1 with 1 = open",
     "direct|openvla"},
    {"observation", OPT_ENUM, AT(observation), 0, 0, "robosuite",
     "all numbers of robosuite's observation and policy_state; policy_state alone (hand position, "
     "axis-angle, gripper); or gripper and joint positions",
     "robosuite|policy|joints"},
    SCENE_PICTURE_OPTS(struct libero_params, "128x128", "opengl"),
    {"terminate_on_success", OPT_BOOL, AT(terminate_on_success), 0, 1, "true",
     "success ends the episode", NULL},
    {"compat", OPT_ENUM, AT(compat), 0, 0, "libero",
     "reproduce LIBERO's faults (stale first physics step, late observations, growing list of "
     "joint "
     "draws, fixture poses that depend on the number of resets), or leave them out",
     "libero|clean"},
    {"robosuite", OPT_ENUM, AT(robosuite), 0, 0, "1.4.1", "robosuite version of the arm's model",
     "1.4.0|1.4.1"},
    {"arm_noise", OPT_REAL, AT(arm_noise), 0, 1, "0",
     "standard deviation of the initial joint angles, rad", NULL},
    {"visual", OPT_BOOL, AT(visual), 0, 1, "false",
     "compile the model with visual geoms, textures and meshes", NULL},
    {"expert", OPT_BOOL, AT(expert), 0, 1, "false",
     "append expert_action, what a scripted expert that sees the true state would do next", NULL},
    {"sim_state", OPT_BOOL, AT(sim_state), 0, 1, "false",
     "append sim_state (time, qpos, qvel of this instant) and fixture_pose "
     "(position and quaternion w, x, y, z of each fixture), as recording needs them",
     NULL},
    {"data_dir", OPT_STR, AT(data_dir), 0, 0, "",
     "folder with bddl_files, init_files and assets; empty = LIBERO_DIR or what make fetched",
     NULL},
    {"variant", OPT_STR, AT(variant), 0, 0, "",
     "a variant of the task: swap, object, lan, task of LIBERO-PRO, light_3, table_2 of "
     "LIBERO-plus",
     NULL},
    {"bddl_file", OPT_STR, AT(bddl_file), 0, 0, "", "another BDDL file for the task", NULL},
    {"init_file", OPT_STR, AT(init_file), 0, 0, "", "another init-state file for the task", NULL},
    {"tables_file", OPT_STR, AT(tables_file), 0, 0, "",
     "more object categories and problem classes", NULL},
    {0},
};

static int64_t horizon(const struct scene *scene)
{
    const struct libero_params *p = scene->params;
    size_t i;

    for (i = 0; i < sizeof horizons / sizeof horizons[0]; i++)
        if (strcmp(horizons[i].preset, libero_presets[p->preset].name) == 0 &&
            strcmp(horizons[i].suite, scene->task->name) == 0)
            return horizons[i].steps;
    return scene->task->members[scene->member].horizon;
}

// ------------------------------------------------------------------ files

static bool readable(char *path, const char *format, const char *root, const char *suite,
                     const char *file, const char *variant)
{
    int n = snprintf(path, OPT_STR_MAX, format, root, suite, file, variant);

    return n > 0 && n < OPT_STR_MAX && access(path, R_OK) == 0;
}

// LIBERO-PRO keeps a variant in a folder SUITE_VARIANT, LIBERO-plus in a file FILE_VARIANT.
static enum status find_bddl(struct libero *l, const char *root, const char *suite,
                             const char *file, const char *variant)
{
    if (!*variant) {
        (void)readable(l->bddl_path, "%s/bddl_files/%s/%s.bddl", root, suite, file, "");
        return ST_OK; // the reader says what is wrong with it
    }
    if (readable(l->bddl_path, "%1$s/bddl_files/%2$s_%4$s/%3$s.bddl", root, suite, file, variant) ||
        readable(l->bddl_path, "%1$s/bddl_files/%2$s/%3$s_%4$s.bddl", root, suite, file, variant))
        return ST_OK;
    if (strncmp(variant, "view_", 5) == 0)
        return FAIL(ST_INVAL,
                    "variant '%s': LIBERO-plus moves the camera and the arm's start by the task's "
                    "name alone, which is not supported; it has no file of its own",
                    variant);
    return FAIL(ST_MISSING,
                "variant '%s': there is neither bddl_files/%s_%s/%s.bddl nor "
                "bddl_files/%s/%s_%s.bddl in '%s'",
                variant, suite, variant, file, suite, file, variant, root);
}

// The variant's own states, else those of the task that it varies.
static void find_init(struct libero *l, const char *root, const char *suite, const char *file,
                      const char *variant)
{
    static const char *const formats[] = {
        "%1$s/init_files/%2$s_%4$s/%3$s.pruned_init",
        "%1$s/init_files/%2$s_%4$s/%3$s.pruned_init.npz",
        "%1$s/init_files/libero_newobj/%2$s/%3$s_%4$s.pruned_init",
        "%1$s/init_files/%2$s/%3$s_%4$s.pruned_init",
        "%1$s/init_files/%2$s/%3$s.pruned_init.npz",
        "%1$s/init_files/%2$s/%3$s.pruned_init",
    };
    size_t i;

    for (i = *variant ? 0 : 4; i < sizeof formats / sizeof formats[0]; i++)
        if (readable(l->init_path, formats[i], root, suite, file, variant))
            return;
}

static enum status find_files(struct scene *scene, struct libero *l, struct data_dirs *dirs)
{
    const struct libero_params *p = scene->params;
    const char *suite = scene->task->name, *file = scene->task->members[scene->member].file;

    if (strcmp(suite, "tabletop") == 0)
        TRY(data_find_own(dirs));
    else
        TRY(data_find_libero(dirs, p->data_dir, robosuite_versions[p->robosuite]));
    if (strlen(dirs->root) > OPT_STR_MAX - 300)
        return FAIL(ST_INVAL, "the path of the task's files in '%s' is too long", dirs->root);
    if (p->bddl_file[0])
        snprintf(l->bddl_path, sizeof l->bddl_path, "%s", p->bddl_file);
    else
        TRY(find_bddl(l, dirs->root, suite, file, p->variant));
    if (p->init_file[0])
        snprintf(l->init_path, sizeof l->init_path, "%s", p->init_file);
    else
        find_init(l, dirs->root, suite, file, p->variant);
    return ST_OK;
}

static enum status read_files(struct scene *scene, struct libero *l, struct data_dirs *dirs)
{
    const struct libero_params *p = scene->params;
    bool exact;

    TRY(find_files(scene, l, dirs));
    TRY(bddl_load(&l->bddl, l->bddl_path));
    TRY(tables_load(&l->tables, dirs->tables));
    if (p->tables_file[0])
        TRY(tables_load(&l->tables, p->tables_file));
    l->problem = tables_problem(&l->tables, l->bddl.problem, &exact);
    if (l->problem && !exact && p->visual)
        return FAIL(ST_INVAL,
                    "%s: problem class '%s' is a look of '%s' that no table describes, so its "
                    "pictures cannot be made",
                    l->bddl_path, l->bddl.problem, l->problem->name);
    if (!l->problem)
        return FAIL(ST_INVAL, "%s: the problem class is '%s', which no table has", l->bddl_path,
                    l->bddl.problem);
    if (p->init_states == START_FILE)
        TRY(init_states_load(&l->init, l->init_path));
    return ST_OK;
}

// A fixture's pose in the MJCF as the placeholders of numbers 7 i to 7 i + 6.
static void mark_fixture(struct xml_doc *doc, struct xml_node *body, int i)
{
    static const char *const others[] = {"axisangle", "xyaxes", "zaxis", "euler"};
    char pos[64], quat[96];
    int k = 7 * i;
    size_t a;

    snprintf(pos, sizeof pos, "@%d@ @%d@ @%d@", k, k + 1, k + 2);
    snprintf(quat, sizeof quat, "@%d@ @%d@ @%d@ @%d@", k + 3, k + 4, k + 5, k + 6);
    xml_set(doc, body, "pos", pos);
    xml_set(doc, body, "quat", quat);
    for (a = 0; a < sizeof others / sizeof others[0]; a++)
        xml_unset(body, others[a]);
}

// Compose again, with pictures, for l->model_text.
static enum status keep_text(struct libero *l, const struct compose_input *physics,
                             const mjModel *m, struct xml_doc *doc)
{
    struct compose_input in = *physics;
    struct item items[ITEMS_MAX];
    struct xml_node *root;
    const char *text;
    int n_item, i;

    in.visual = true;
    TRY(compose(&in, doc, &root, items, &n_item));
    for (i = l->binding.n_movable; i < l->binding.n_item; i++) {
        const char *name = mj_id2name(m, mjOBJ_BODY, l->binding.items[i].body);
        struct xml_node *body = name ? xml_find(root, "body", name) : NULL;

        if (!body)
            return FAIL(ST_INVAL, "the composed model has no body for fixture '%s'",
                        l->binding.items[i].item.name);
        mark_fixture(doc, body, i - l->binding.n_movable);
    }
    text = xml_text(doc, root);
    l->model_text = text ? mem_strdup(text) : NULL;
    return l->model_text ? ST_OK : ST_NOMEM;
}

static enum status build_model(struct scene *scene, struct libero *l, const struct data_dirs *dirs,
                               struct xml_doc *doc)
{
    const struct libero_params *p = scene->params;
    struct compose_input in = {&l->bddl,     &l->tables,  l->problem,
                               dirs->assets, dirs->robot, p->visual};
    struct item items[ITEMS_MAX];
    struct xml_node *root;
    const char *text;
    int n_item;

    if (compose(&in, doc, &root, items, &n_item) != ST_OK)
        return error_prefix("%s", l->bddl_path);
    text = xml_text(doc, root);
    if (!text)
        return ST_NOMEM;
    TRY(model_compile(&scene->model, text, root, p->visual, l->bddl_path));
    TRY(binding_make(&l->binding, scene->model, items, n_item));
    if (p->sim_state && keep_text(l, &in, scene->model, doc) != ST_OK)
        return error_prefix("%s", l->bddl_path);
    return ST_OK;
}

enum status libero_compile(struct scene *scene)
{
    struct libero *l = mem_alloc(1, sizeof *l);
    struct libero_params *p = scene->params;
    struct data_dirs dirs;
    struct xml_doc doc;
    enum status st;

    if (!l)
        return ST_NOMEM;
    scene->data = l;
    p->common.frame_skip = LIBERO_SUBSTEPS;
    p->visual |= p->common.pictures.cameras[0] != '\0';
    if (p->common.max_episode_steps < 0)
        p->common.max_episode_steps = horizon(scene);
    TRY(read_files(scene, l, &dirs));
    if ((p->variant[0] || p->bddl_file[0]) && l->bddl.language[0])
        scene->instruction = l->bddl.language;
    xml_init(&doc);
    st = build_model(scene, l, &dirs, &doc);
    xml_fini(&doc);
    return st;
}

void libero_release(struct scene *scene)
{
    struct libero *l = scene->data;

    if (!l)
        return;
    bddl_fini(&l->bddl);
    tables_fini(&l->tables);
    binding_fini(&l->binding);
    hand_fini(&l->hand);
    init_states_fini(&l->init);
    mem_free(l->model_text);
    mem_free(l);
    scene->data = NULL;
}

// ------------------------------------------------------------------ set-up

// Sites that robosuite shows while a stove is on.
static enum status find_burners(struct libero *l, const mjModel *m)
{
    int i;

    for (i = 0; i < l->binding.n_item; i++) {
        const struct bound_item *it = &l->binding.items[i];
        struct bddl_atom atom = {.predicate = "turnon", .n_arg = 1};

        if (it->burner < 0 || !it->item.category->rules[JOINT_TURNON].has)
            continue;
        snprintf(atom.arg[0], sizeof atom.arg[0], "%s", it->item.name);
        TRY(predicate_bind(&l->burner_on[l->n_burner], &l->bddl, &atom, &l->binding, m));
        l->burner_site[l->n_burner++] = it->burner;
    }
    return ST_OK;
}

static enum status add_robot_fields(struct scene *scene)
{
    static const struct {
        const char *name;
        int n;
    } fields[] = {
        {"robot0_joint_pos", 7},    {"robot0_joint_pos_cos", 7}, {"robot0_joint_pos_sin", 7},
        {"robot0_joint_vel", 7},    {"robot0_eef_pos", 3},       {"robot0_eef_quat", 4},
        {"robot0_gripper_qpos", 2}, {"robot0_gripper_qvel", 2},
    };
    size_t i;

    for (i = 0; i < sizeof fields / sizeof fields[0]; i++)
        TRY(scene_add_field(scene, fields[i].name, fields[i].n));
    return ST_OK;
}

static enum status add_object_fields(struct scene *scene, const struct libero *l)
{
    static const struct {
        const char *suffix;
        int n;
    } parts[] = {{"pos", 3}, {"quat", 4}, {"to_robot0_eef_pos", 3}, {"to_robot0_eef_quat", 4}};
    char name[SCENE_NAME_MAX + BDDL_NAME_MAX];
    int i, k;

    for (i = 0; i < l->binding.n_movable; i++)
        for (k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "%s_%s", l->binding.items[i].item.name, parts[k].suffix);
            TRY(scene_add_field(scene, name, parts[k].n));
        }
    return ST_OK;
}

// What recording needs: the simulator's state and where the fixtures stand in this episode.
static enum status add_state_fields(struct scene *scene, struct libero *l)
{
    const struct libero_params *p = scene->params;
    int n_fixture = l->binding.n_item - l->binding.n_movable;

    if (!p->sim_state)
        return ST_OK;
    l->state_at = scene->n_obs;
    TRY(scene_add_field(scene, "sim_state", 1 + (int)scene->model->nq + (int)scene->model->nv));
    return n_fixture > 0 ? scene_add_field(scene, "fixture_pose", 7 * n_fixture) : ST_OK;
}

static enum status add_fields(struct scene *scene, struct libero *l)
{
    const struct libero_params *p = scene->params;

    if (p->observation == OBSERVATION_JOINTS) {
        TRY(scene_add_field(scene, "robot0_gripper_qpos", 2));
        TRY(scene_add_field(scene, "robot0_joint_pos", 7));
    } else {
        if (p->observation == OBSERVATION_ROBOSUITE) {
            TRY(add_robot_fields(scene));
            TRY(add_object_fields(scene, l));
        }
        TRY(scene_add_field(scene, "policy_state", 8));
    }
    TRY(add_state_fields(scene, l));
    // last, where ask_expert writes it
    return p->expert ? scene_add_field(scene, "expert_action", LIBERO_ACTION) : ST_OK;
}

static void set_action_space(struct scene *scene)
{
    const struct libero_params *p = scene->params;
    int i;

    scene->n_act = LIBERO_ACTION;
    for (i = 0; i < LIBERO_ACTION; i++) {
        bool free = p->control == CONTROL_ABSOLUTE && i < 6;
        bool unit = p->gripper == GRIPPER_OPENVLA && i == 6;

        scene->act_low[i] = free ? -(float)INFINITY : unit ? 0 : -1;
        scene->act_high[i] = free ? (float)INFINITY : 1;
    }
}

static enum status check_init_states(const struct scene *scene, const struct libero *l)
{
    const struct libero_params *p = scene->params;
    int want = 1 + (int)scene->model->nq + (int)scene->model->nv;

    if (p->init_states == START_RANDOM)
        return ST_OK;
    if (l->init.n_col != want)
        return FAIL(ST_INVAL, "%s: a state has %d numbers, the model needs %d (time, qpos, qvel)",
                    l->init_path, l->init.n_col, want);
    if (p->init_state >= l->init.n_row)
        return FAIL(ST_INVAL, "init_state is %lld, %s has rows 0 to %d", (long long)p->init_state,
                    l->init_path, l->init.n_row - 1);
    return ST_OK;
}

static enum status make_expert(const struct scene *scene, struct libero *l)
{
    const struct libero_params *p = scene->params;

    if (!p->expert)
        return ST_OK;
    if (p->control == CONTROL_ABSOLUTE)
        return FAIL(ST_INVAL, "the expert acts in changes of the pose: expected control=delta");
    return hand_make(&l->hand, scene->model, l->osc.grip_site);
}

enum status libero_setup(struct scene *scene)
{
    struct libero *l = scene->data;
    const mjModel *m = scene->model;

    TRY(osc_find(m, &l->osc));
    l->hand_body = mj_name2id(m, mjOBJ_BODY, "robot0_right_hand");
    if (l->hand_body < 0)
        return FAIL(ST_INVAL, "the model has no body 'robot0_right_hand'");
    if (goal_bind(&l->goal, &l->bddl, &l->binding, m) != ST_OK ||
        reset_plan_make(&l->plan, &l->bddl, &l->binding, l->problem, m) != ST_OK)
        return error_prefix("%s", l->bddl_path);
    TRY(find_burners(l, m));
    TRY(make_expert(scene, l));
    TRY(check_init_states(scene, l));
    set_action_space(scene);
    TRY(add_fields(scene, l));
    TRY(scene_add_info(scene, "success", 1, true));
    TRY(scene_add_info(scene, "clipped", 1, true));
    return scene_add_info(scene, "init_state", 1, true);
}
