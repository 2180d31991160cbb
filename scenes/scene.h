// scene.h - a task: name -> compiled model, and what a reset, an observation and a reward are.
//
// A `struct scene` is compiled once and shared, read-only, by all envs of the task; a `mjData` and
// a scratch block belong to one env. The hooks are pure functions of (scene, data, scratch, rng),
// so every world can be stepped by any thread.
//
// Adding a task is one file: scenes/gym/NAME.c that defines `const struct scene_task task_NAME`.
// The build collects the files into the registry.
//
// Threads: scene_create and scene_destroy from one thread at a time; a created scene from any.
#ifndef SCENES_SCENE_H
#define SCENES_SCENE_H

#include "common/base/config.h"
#include "common/base/rng.h"
#include "common/base/status.h"

#include <mujoco/mujoco.h>

#define SCENE_NAME_MAX 64
#define SCENE_INFO_MAX 16

struct scene;

// One entry of the info vector, such as {"tendon_length", 2, true}.
struct scene_info {
    char name[SCENE_NAME_MAX];
    int n;         // numbers it takes
    bool on_reset; // also given by a reset; otherwise NaN there
};

// Options that every Gymnasium MuJoCo task has; the first member of each task's parameters.
struct scene_common {
    char
        xml_file[OPT_STR_MAX]; // a path if it begins with '/', '.' or '~', else a model file's name
    int64_t frame_skip;        // physics steps per env step
    int64_t max_episode_steps; // time limit; 0 = none
};

struct scene_task {
    const char *name;         // "Ant-v5"
    const char *instruction;  // what the task asks for, one line
    size_t params_bytes;      // size of the task's parameter struct, first member scene_common
    size_t scratch_bytes;     // per-env memory that lives from `before` to `after` and across steps
    const struct opt *kwargs; // Gymnasium's keyword arguments: defaults and ranges
    bool has_success;         // success is meaningful

    // After compilation: set scene->n_obs and scene->info, check the model. Once per scene.
    enum status (*setup)(struct scene *scene);
    // Draw the initial state into d->qpos and d->qvel (d was reset to defaults; mj_forward
    // follows).
    void (*reset)(const struct scene *scene, mjData *d, struct rng *rng, void *scratch);
    // Before the physics steps of an action: remember positions.
    void (*before)(const struct scene *scene, const mjData *d, void *scratch);
    // After them (mj_rnePostConstraint was called): reward, termination, info.
    // action is (n_act); info is (n_info).
    void (*after)(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info);
    // The info terms of a reset; entries that are not on_reset are NaN already.
    void (*reset_info)(const struct scene *scene, const mjData *d, double *info);
    // obs is (n_obs).
    void (*observe)(const struct scene *scene, const mjData *d, double *obs);
};

struct scene {
    const struct scene_task *task;
    const mjModel *model; // owned
    void *params;         // owned; starts with struct scene_common
    double dt_s;          // seconds per env step: timestep * frame_skip
    double *init_qpos;    // (nq)
    double *init_qvel;    // (nv)
    int n_act;            // model->nu
    int n_obs;
    int n_info;     // numbers in the info vector
    int n_info_key; // entries of `info`
    struct scene_info info[SCENE_INFO_MAX];
    float act_low[64], act_high[64]; // (n_act) control range, as Gymnasium's action space has it
};

// Compile task `name` with keyword arguments `kwargs` (a JSON object or ""). ST_INVAL for an
// unknown name (the text offers the nearest ones) or keyword, ST_MISSING if the model file is
// absent.
NODISCARD enum status scene_create(struct scene **out, const char *name, const char *kwargs);

// NULL is fine.
void scene_destroy(struct scene *scene);

// In setup: append an info entry of `n` numbers.
NODISCARD enum status scene_add_info(struct scene *scene, const char *name, int n, bool on_reset);

// Gymnasium's MujocoEnv.set_state: qpos (nq), qvel (nv) into `d`, then mj_forward.
void scene_set_state(const struct scene *scene, mjData *d, const double *qpos, const double *qvel);

// The registered tasks in alphabetical order; NULL past the end.
const struct scene_task *scene_task_at(int i);

// NULL if there is none.
const struct scene_task *scene_task_find(const char *name);

// The registered name nearest to `name` (edit distance).
const char *scene_task_nearest(const char *name);

// Folder with the model files of the Gymnasium tasks, found relative to the library (installed:
// ../share/simstream/gym) or in the build tree. ST_MISSING if there is none.
NODISCARD enum status scene_asset_dir(char *buf, size_t size);

#endif
