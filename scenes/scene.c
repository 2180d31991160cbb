#define _GNU_SOURCE
#include "scenes/scene.h"

#include "common/base/mem.h"
#include "scenes/engine.h"
#include "scenes/model_arrays.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern const struct scene_task *const scene_registry[]; // made by the build, sorted, ends with NULL

static const char *const render_keywords[] = {
    "default_camera_config", "width",       "height",   "camera_id",
    "camera_name",           "render_mode", "max_geom", "visual_options",
};

const struct scene_task *scene_task_at(int i)
{
    int n = 0;

    while (scene_registry[n])
        n++;
    return i >= 0 && i < n ? scene_registry[i] : NULL;
}

static void task_name(const struct scene_task *task, int member, char buf[SCENE_NAME_MAX])
{
    if (task->members)
        snprintf(buf, SCENE_NAME_MAX, "%s/%d", task->name, member);
    else
        snprintf(buf, SCENE_NAME_MAX, "%s", task->name);
}

// SUITE/INDEX; -1 if `name` is not of that form or the index is none of the suite's.
static int member_of(const struct scene_task *task, const char *name)
{
    size_t n = strlen(task->name);
    int index = 0, digits = 0;
    const char *p;

    if (strncmp(name, task->name, n) != 0 || name[n] != '/')
        return -1;
    for (p = name + n + 1; *p >= '0' && *p <= '9' && digits < 6; p++, digits++)
        index = index * 10 + (*p - '0');
    if (*p != '\0' || digits == 0 || (digits > 1 && name[n + 1] == '0'))
        return -1;
    return index < task->n_member ? index : -1;
}

const struct scene_task *scene_task_find(const char *name, int *member)
{
    int i;

    for (i = 0; scene_registry[i]; i++) {
        const struct scene_task *task = scene_registry[i];

        *member = task->members ? member_of(task, name) : 0;
        if (task->members ? *member >= 0 : strcmp(task->name, name) == 0)
            return task;
    }
    return NULL;
}

enum status scene_suite_find(const struct scene_task **out, const char *name)
{
    int i;

    for (i = 0; scene_registry[i]; i++)
        if (scene_registry[i]->members && strcmp(scene_registry[i]->name, name) == 0) {
            *out = scene_registry[i];
            return ST_OK;
        }
    return FAIL(ST_INVAL, "there is no suite '%s' ('simstream tasks' lists them)", name);
}

const struct scene_preset *scene_preset_find(const char *name)
{
    const struct scene_preset *p;
    int i;

    for (i = 0; scene_registry[i]; i++)
        for (p = scene_registry[i]->presets; p && p->name; p++)
            if (strcmp(p->name, name) == 0)
                return p;
    return NULL;
}

const struct scene_field *scene_field_find(const struct scene *scene, const char *name)
{
    int i;

    for (i = 0; i < scene->n_field; i++)
        if (strcmp(scene->fields[i].name, name) == 0)
            return &scene->fields[i];
    return NULL;
}

// Edit distance (Levenshtein) of two names, case ignored.
static int distance(const char *a, const char *b)
{
    int row[SCENE_NAME_MAX + 1], i, j, n = (int)strlen(b);

    if (n > SCENE_NAME_MAX)
        return INT_MAX;
    for (j = 0; j <= n; j++)
        row[j] = j;
    for (i = 1; a[i - 1]; i++) {
        int diagonal = row[0];

        row[0] = i;
        for (j = 1; j <= n; j++) {
            int cost = diagonal + ((a[i - 1] | 32) != (b[j - 1] | 32));

            diagonal = row[j];
            if (row[j] + 1 < cost)
                cost = row[j] + 1;
            if (row[j - 1] + 1 < cost)
                cost = row[j - 1] + 1;
            row[j] = cost;
        }
    }
    return row[n];
}

void scene_task_nearest(const char *name, char *buf, size_t size)
{
    char candidate[SCENE_NAME_MAX];
    int i, k, d, least = INT_MAX;

    for (i = 0; scene_registry[i]; i++) {
        const struct scene_task *task = scene_registry[i];

        for (k = 0; k < (task->members ? task->n_member : 1); k++) {
            task_name(task, k, candidate);
            d = distance(name, candidate);
            if (d < least) {
                least = d;
                snprintf(buf, size, "%s", candidate);
            }
        }
    }
}

enum status scene_asset_dir(const char *what, char *buf, size_t size)
{
    static const char *const made[] = {
#ifdef SIMSTREAM_GYM_DIR
        "gym",         SIMSTREAM_GYM_DIR,
        "libero",      SIMSTREAM_SOURCE_DIR "/scenes/libero",
        "libero-data", SIMSTREAM_SOURCE_DIR "/build/deps/libero",
        "tabletop",    SIMSTREAM_SOURCE_DIR "/scenes/libero/tabletop",
#endif
        NULL};
    char path[PATH_MAX];
    Dl_info info;
    char *slash;
    int i;

    if (dladdr((void *)scene_asset_dir, &info) && realpath(info.dli_fname, path)) {
        slash = strrchr(path, '/');
        if (slash)
            *slash = '\0';
        if (snprintf(buf, size, "%s/../share/simstream/%s", path, what) < (int)size &&
            access(buf, R_OK) == 0)
            return ST_OK;
    }
    for (i = 0; made[i]; i += 2)
        if (strcmp(made[i], what) == 0 && snprintf(buf, size, "%s", made[i + 1]) < (int)size &&
            access(buf, R_OK) == 0)
            return ST_OK;
    return FAIL(ST_MISSING,
                "the task files '%s' are neither installed beside the library (share/simstream/%s) "
                "nor in the build tree; run 'make'",
                what, what);
}

// Gymnasium's rule: a name that begins with '.', '/' or '~' is a path, others lie among the assets.
static enum status model_path(const char *file, char *buf, size_t size)
{
    const char *home = getenv("HOME");
    char dir[PATH_MAX];
    struct stat st;
    int n;

    if (file[0] == '.' || file[0] == '/') {
        n = snprintf(buf, size, "%s", file);
    } else if (file[0] == '~') {
        if (file[1] != '/' || !home)
            return FAIL(ST_INVAL, "xml_file is '%s', expected ~/PATH and a home folder", file);
        n = snprintf(buf, size, "%s%s", home, file + 1);
    } else {
        TRY(scene_asset_dir("gym", dir, sizeof dir));
        n = snprintf(buf, size, "%s/%s", dir, file);
    }
    if (n < 0 || (size_t)n >= size)
        return FAIL(ST_INVAL, "the path of model file '%s' is too long", file);
    if (stat(buf, &st) != 0 || access(buf, R_OK) != 0)
        return FAIL(ST_MISSING, "cannot read model file '%s'", buf);
    if (!S_ISREG(st.st_mode)) // reading a device might never end
        return FAIL(ST_INVAL, "model file '%s' is no file", buf);
    return ST_OK;
}

static enum status compile_file(struct scene *scene)
{
    const struct scene_common *common = scene->params;
    char path[PATH_MAX], error[512] = "";
    struct engine_trap trap;

    TRY(model_path(common->xml_file, path, sizeof path));
    if (!ENGINE_TRY(&trap))
        return FAIL(ST_INVAL, "cannot compile model '%s': %s", path, trap.text);
    scene->model = mj_loadXML(path, NULL, error, sizeof error);
    engine_end(&trap);
    if (!scene->model)
        return FAIL(ST_INVAL, "cannot compile model '%s': %s", path, error);
    return ST_OK;
}

// Initial state, control range and step length, as Gymnasium's MujocoEnv takes them.
static enum status measure(struct scene *scene)
{
    const mjModel *m = scene->model;
    int k;

    if (m->nu < 1 || m->nu > (int)(sizeof scene->act_low / sizeof scene->act_low[0]))
        return FAIL(ST_INVAL, "the model of task '%s' has %d actuators, expected 1 to 64",
                    scene->task->name, (int)m->nu);
    scene->n_act = (int)m->nu;
    for (k = 0; k < scene->n_act; k++) {
        scene->act_low[k] = (float)m->actuator_ctrlrange[2 * k];
        scene->act_high[k] = (float)m->actuator_ctrlrange[2 * k + 1];
    }
    scene->dt_s =
        m->opt.timestep * (double)((const struct scene_common *)scene->params)->frame_skip;
    scene->init_qpos = mem_alloc((size_t)m->nq, sizeof(double));
    scene->init_qvel = mem_alloc((size_t)m->nv, sizeof(double));
    if (!scene->init_qpos || !scene->init_qvel)
        return ST_NOMEM;
    memcpy(scene->init_qpos, m->qpos0, (size_t)m->nq * sizeof(double));
    return ST_OK;
}

// Defaults, then the preset that `kwargs` names, then `kwargs`.
static enum status read_values(const struct scene_task *task, const char *kwargs, void *params)
{
    const struct scene_preset *preset = task->presets;
    const struct opt *o;
    char what[SCENE_NAME_MAX + 16];

    snprintf(what, sizeof what, "kwargs of %s", task->name);
    TRY(opts_defaults(task->kwargs, params));
    TRY(opts_json(task->kwargs, params, kwargs, what));
    if (!preset)
        return ST_OK;
    for (o = task->kwargs; strcmp(o->name, "preset") != 0; o++)
        ;
    preset += *(const int *)((const char *)params + o->offset);
    TRY(opts_json(task->kwargs, params, preset->json, preset->name));
    return opts_json(task->kwargs, params, kwargs, what);
}

enum status scene_read_kwargs(const struct scene_task *task, const char *kwargs, void *params)
{
    struct scene_common *common = params;
    enum status st = read_values(task, kwargs, params);
    size_t i;

    for (i = 0; st != ST_OK && i < sizeof render_keywords / sizeof render_keywords[0]; i++) {
        char quoted[64];

        snprintf(quoted, sizeof quoted, "unknown option '%s'", render_keywords[i]);
        if (strstr(error_last()->text, quoted))
            return FAIL(ST_INVAL,
                        "%s: keyword '%s' is about rendering; pictures are asked for by "
                        "'cameras' and 'image_size'",
                        task->name, render_keywords[i]);
    }
    if (common->max_episode_steps < 0 && !task->members)
        common->max_episode_steps = 0; // both mean none
    return st;
}

// ------------------------------------------------------------------ tasks made of hooks

static void hooks_start(struct world *w, const struct scene_start *start)
{
    struct rng rng = rng_make(start->seed, RNG_RESET, start->stream, start->episode, 0);

    w->scene->task->reset(w->scene, w->d, &rng, w->scratch);
    mj_forward(w->model, w->d);
}

static void hooks_step(struct world *w, const double *action, struct scene_outcome *out,
                       double *info)
{
    const struct scene *scene = w->scene;
    int64_t i, skip = ((const struct scene_common *)scene->params)->frame_skip;

    mju_copy(w->d->ctrl, action, scene->n_act);
    for (i = 0; i < skip; i++)
        mj_step(w->model, w->d);
    if (scene->task->contact_forces)
        mj_rnePostConstraint(w->model, w->d);
    scene->task->after(scene, w->d, action, w->scratch, &out->reward, &out->terminated,
                       &out->success, info);
}

static void hooks_observe(const struct world *w, double *obs)
{
    w->scene->task->observe(w->scene, w->d, obs);
}

static void hooks_start_info(const struct world *w, double *info)
{
    if (w->scene->task->reset_info)
        w->scene->task->reset_info(w->scene, w->d, info);
}

static void hooks_mark(struct world *w)
{
    w->scene->task->before(w->scene, w->d, w->scratch);
}

static const struct scene_driver hooks_driver = {
    .start = hooks_start,
    .step = hooks_step,
    .observe = hooks_observe,
    .start_info = hooks_start_info,
    .mark = hooks_mark,
    .by_rows = true,
};

// ------------------------------------------------------------------ scenes

// A step looks for islands, groups of trees that constraints join, so that the solver can take each
// alone. With one tree there is one island at most, and it has every degree of freedom and every
// constraint in the order in which they stand: the solver does the same sums without it, and the
// search takes 1 to 13 % of a step. Two trees may be apart, so there they stay.
static void skip_islands(mjModel *m)
{
    if (m->ntree == 1 && m->nflex == 0)
        m->opt.disableflags |= mjDSBL_ISLAND;
}

static enum status build(struct scene *scene, const char *kwargs)
{
    const struct scene_task *task = scene->task;

    scene->params = mem_alloc(1, task->params_bytes);
    if (!scene->params)
        return ST_NOMEM;
    TRY(scene_read_kwargs(task, kwargs, scene->params));
    TRY(task->compile ? task->compile(scene) : compile_file(scene));
    TRY(measure(scene));
    scene->signature = model_signature(scene->model); // of what was compiled
    skip_islands((mjModel *)scene->model);            // read by others from here on only
    return task->setup(scene);
}

enum status scene_create(struct scene **out, const char *name, const char *kwargs)
{
    int member;
    const struct scene_task *task = scene_task_find(name, &member);
    char nearest[SCENE_NAME_MAX];
    struct scene *scene;
    enum status st;

    if (!task) {
        scene_task_nearest(name, nearest, sizeof nearest);
        return FAIL(ST_INVAL,
                    "unknown task '%s'; the nearest is '%s' ('simstream tasks' lists all)", name,
                    nearest);
    }
    engine_init();
    scene = mem_alloc(1, sizeof *scene);
    if (!scene)
        return ST_NOMEM;
    scene->task = task;
    scene->driver = task->driver ? task->driver : &hooks_driver;
    scene->member = member;
    scene->instruction = task->members ? task->members[member].instruction : task->instruction;
    task_name(task, member, scene->name);
    st = build(scene, kwargs);
    if (st != ST_OK) {
        scene_destroy(scene);
        return st;
    }
    *out = scene;
    return ST_OK;
}

void scene_destroy(struct scene *scene)
{
    if (!scene)
        return;
    if (scene->task->release)
        scene->task->release(scene);
    mj_deleteModel((mjModel *)scene->model);
    mem_free(scene->fields);
    mem_free(scene->params);
    mem_free(scene->init_qpos);
    mem_free(scene->init_qvel);
    mem_free(scene);
}

enum status scene_add_info(struct scene *scene, const char *name, int n, bool on_reset)
{
    struct scene_info *info = &scene->info[scene->n_info_key];

    if (n == 0)
        return ST_OK; // a model without tendons, for example
    if (scene->n_info_key == SCENE_INFO_MAX)
        return FAIL(ST_INVAL, "task '%s' has more than %d info terms", scene->task->name,
                    SCENE_INFO_MAX);
    snprintf(info->name, sizeof info->name, "%s", name);
    info->n = n;
    info->on_reset = on_reset;
    scene->n_info_key++;
    scene->n_info += n;
    return ST_OK;
}

enum status scene_add_field(struct scene *scene, const char *name, int n)
{
    size_t bytes = (size_t)scene->n_field * sizeof scene->fields[0];
    struct scene_field *fields = mem_alloc((size_t)scene->n_field + 1, sizeof fields[0]);

    if (!fields)
        return ST_NOMEM;
    if (bytes)
        memcpy(fields, scene->fields, bytes);
    snprintf(fields[scene->n_field].name, sizeof fields[0].name, "%s", name);
    fields[scene->n_field].offset = scene->n_obs;
    fields[scene->n_field].n = n;
    mem_free(scene->fields);
    scene->fields = fields;
    scene->n_field++;
    scene->n_obs += n;
    return ST_OK;
}

void scene_set_state(const struct scene *scene, mjData *d, const double *qpos, const double *qvel)
{
    mju_copy(d->qpos, qpos, (int)scene->model->nq);
    mju_copy(d->qvel, qvel, (int)scene->model->nv);
    mj_forward(scene->model, d);
}
