#define _GNU_SOURCE
#include "scenes/scene.h"

#include "common/base/mem.h"
#include "scenes/engine.h"

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

const struct scene_task *scene_task_find(const char *name)
{
    int i;

    for (i = 0; scene_registry[i]; i++)
        if (strcmp(scene_registry[i]->name, name) == 0)
            return scene_registry[i];
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

const char *scene_task_nearest(const char *name)
{
    const char *best = scene_registry[0]->name;
    int i, d, least = INT_MAX;

    for (i = 0; scene_registry[i]; i++) {
        d = distance(name, scene_registry[i]->name);
        if (d < least) {
            least = d;
            best = scene_registry[i]->name;
        }
    }
    return best;
}

enum status scene_asset_dir(char *buf, size_t size)
{
    char path[PATH_MAX];
    Dl_info info;
    char *slash;

    if (dladdr((void *)scene_asset_dir, &info) && realpath(info.dli_fname, path)) {
        slash = strrchr(path, '/');
        if (slash)
            *slash = '\0';
        if (snprintf(buf, size, "%s/../share/simstream/gym", path) < (int)size &&
            access(buf, R_OK) == 0)
            return ST_OK;
    }
#ifdef SIMSTREAM_ASSET_DIR
    if (snprintf(buf, size, "%s", SIMSTREAM_ASSET_DIR) < (int)size && access(buf, R_OK) == 0)
        return ST_OK;
#endif
    return FAIL(ST_MISSING,
                "the model files of the Gymnasium tasks are neither installed beside the "
                "library (share/simstream/gym) nor in the build tree; run 'make'");
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
        TRY(scene_asset_dir(dir, sizeof dir));
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

static enum status compile(struct scene *scene)
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

static enum status read_kwargs(struct scene *scene, const char *kwargs)
{
    struct scene_common *common = scene->params;
    enum status st;
    size_t i;

    TRY(opts_defaults(scene->task->kwargs, scene->params));
    st = opts_json(scene->task->kwargs, scene->params, kwargs, scene->task->name);
    for (i = 0; st != ST_OK && i < sizeof render_keywords / sizeof render_keywords[0]; i++) {
        char quoted[64];

        snprintf(quoted, sizeof quoted, "unknown option '%s'", render_keywords[i]);
        if (strstr(error_last()->text, quoted))
            return FAIL(ST_INVAL,
                        "%s: keyword '%s' is about rendering; the task is stepped without "
                        "cameras",
                        scene->task->name, render_keywords[i]);
    }
    if (common->max_episode_steps < 0)
        common->max_episode_steps = 0; // both mean none
    return st;
}

enum status scene_create(struct scene **out, const char *name, const char *kwargs)
{
    const struct scene_task *task = scene_task_find(name);
    struct scene *scene;
    enum status st;

    if (!task)
        return FAIL(ST_INVAL,
                    "unknown task '%s'; the nearest is '%s' ('simstream tasks' lists all)", name,
                    scene_task_nearest(name));
    engine_init();
    scene = mem_alloc(1, sizeof *scene);
    if (!scene)
        return ST_NOMEM;
    scene->task = task;
    scene->params = mem_alloc(1, task->params_bytes);
    st = scene->params ? read_kwargs(scene, kwargs) : ST_NOMEM;
    if (st == ST_OK)
        st = compile(scene);
    if (st == ST_OK)
        st = measure(scene);
    if (st == ST_OK)
        st = task->setup(scene);
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
    mj_deleteModel((mjModel *)scene->model);
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

void scene_set_state(const struct scene *scene, mjData *d, const double *qpos, const double *qvel)
{
    mju_copy(d->qpos, qpos, (int)scene->model->nq);
    mju_copy(d->qvel, qvel, (int)scene->model->nv);
    mj_forward(scene->model, d);
}
