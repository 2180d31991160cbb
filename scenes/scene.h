// scene.h - a task: name -> compiled model, and what a reset, an observation and a reward are.
//
// A `struct scene` is compiled once and shared, read-only, by all envs of the task; a `mjData` and
// a scratch block belong to one env. The hooks are pure functions of (scene, data, scratch, rng),
// so every world can be stepped by any thread.
//
// Adding a Gymnasium task is one file: scenes/gym/NAME.c that defines `const struct scene_task
// task_NAME`. The build collects the files into the registry. A suite (LIBERO, tabletop) is one
// scene_task whose members are named SUITE/INDEX.
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

// One env's world. `model` is the scene's, or the env's own view of it where a task poses fixtures
// or colours per env: a shallow copy that shares every array but a few. Where worlds take turns,
// the scene may be another one (with a model that differs in numbers) at every `start` and `load`,
// so these two base the view on it anew.
struct world {
    const struct scene *scene; // borrowed
    const mjModel *model;
    mjData *d;       // owned
    void *scratch;   // owned, (task->scratch_bytes)
    char error[256]; // text of the last engine error
};

// Which episode begins. Everything random in it is a function of these three numbers.
struct scene_start {
    uint64_t seed, stream, episode;
};

// What one env step gave.
struct scene_outcome {
    double reward;
    bool terminated, success;
};

// A task whose episodes are more than `reset, then frame_skip times mj_step` drives its worlds
// itself. The calls run inside an engine trap (scenes/engine.h): they own nothing while MuJoCo
// runs. d was reset to defaults before `start`.
struct scene_driver {
    enum status (*open)(struct world *w); // after d and scratch were made; may replace w->model
    void (*close)(struct world *w);       // also after an `open` that failed
    void (*start)(struct world *w, const struct scene_start *start);
    // action is (n_act); info is (n_info).
    void (*step)(struct world *w, const double *action, struct scene_outcome *out, double *info);
    void (*observe)(const struct world *w, double *obs);     // obs is (n_obs)
    void (*start_info)(const struct world *w, double *info); // entries are NaN before

    // Optional. What the next `step` needs of d beyond its state goes into scratch: after `start`,
    // after `step`, and after d was placed from outside.
    void (*mark)(struct world *w);
    // Optional. What a picture of the present observation shows, if that is not w->d as it is: `d`,
    // another mjData of the model, is placed; members of `m`, a copy of *w->model, may be replaced.
    void (*pose)(const struct world *w, mjModel *m, mjData *d);
    // The integration state of d, scratch and what `save` wrote are all that a world needs between
    // two requests: then worlds may share one mjData, which is left after `observe` and loaded
    // before `step`. Fields of d that are older than the state (xpos, cfrc_ext) are gone then.
    bool by_rows;
    // Optional, all or none: what is kept of a world in place of scratch, where that is more or
    // less or has pointers; `kept` is aligned to 8. After `load` the world goes on to the bit as if
    // nothing had happened. ST_PROTO from `check` says what is wrong with bytes that come from
    // outside; what it takes can do no harm. A driver that is neither by_rows nor has `save` cannot
    // be saved.
    size_t (*kept_bytes)(const struct scene *scene);
    void (*save)(const struct world *w, void *kept);
    void (*load)(struct world *w, const void *kept); // d's state is in place
    enum status (*check)(const struct scene *scene, const void *kept);
};

// A member of a suite.
struct scene_member {
    const char *instruction; // one line
    const char *file;        // base name of the task's files
    int64_t horizon;         // default time limit
};

// A named set of keyword values, chosen by the keyword `preset`.
struct scene_preset {
    const char *name;
    const char *json;
    int64_t seed; // that its evaluations are run with
};

// One named part of the observation vector.
struct scene_field {
    char name[SCENE_NAME_MAX];
    int offset, n;
};

// One entry of the info vector, such as {"tendon_length", 2, true}.
struct scene_info {
    char name[SCENE_NAME_MAX];
    int n;         // numbers it takes
    bool on_reset; // also given by a reset; otherwise NaN there
};

// Options that say what pictures an observation has; every task has them.
struct scene_pictures {
    char cameras[OPT_STR_MAX]; // see envserver/pictures.h; "" = none
    char size[OPT_STR_MAX];    // WIDTHxHEIGHT of a camera that says none
    int orient;                // of a camera that says none; as enum render_orient
    int renderer;              // index into SCENE_RENDERERS
    int64_t samples;           // per pixel, 1 or 4
    bool fast, fallback;
    int64_t egl_device, cuda_device; // -1 = not chosen
};

#define SCENE_RENDERERS "rays|egl"

// The rows of a task's table. `T` is the parameter struct, `dim` and `turn` the defaults of size
// and orientation.
#define SCENE_PICTURE_OPT(T, name, type, field, low, high, def, help, choices)        \
    {                                                                                 \
        name, type, offsetof(T, common.pictures.field), low, high, def, help, choices \
    }
#define SCENE_PICTURE_OPTS(T, dim, turn)                                                           \
    SCENE_PICTURE_OPT(T, "cameras", OPT_STR, cameras, 0, 0, "",                                    \
                      "pictures in observations: VIEW[:WxH][:ORIENTATION][:rgb+depth+seg],... "    \
                      "or default",                                                                \
                      NULL),                                                                       \
        SCENE_PICTURE_OPT(T, "image_size", OPT_STR, size, 0, 0, dim,                               \
                          "size of a camera that says none", NULL),                                \
        SCENE_PICTURE_OPT(T, "image_orientation", OPT_ENUM, orient, 0, 0, turn,                    \
                          "row 0 of a picture is the bottom (robosuite), the top, or the picture " \
                          "is turned by 180 degrees",                                              \
                          "opengl|upright|rot180"),                                                \
        SCENE_PICTURE_OPT(T, "renderer", OPT_ENUM, renderer, 0, 0, "rays",                         \
                          "a ray caster on the CPU, or OpenGL by EGL", SCENE_RENDERERS),           \
        SCENE_PICTURE_OPT(T, "render_samples", OPT_INT, samples, 1, 4, "4",                        \
                          "samples per pixel, 1 or 4", NULL),                                      \
        SCENE_PICTURE_OPT(T, "render_fast", OPT_BOOL, fast, 0, 1, "false",                         \
                          "leave out mirrors and shadows", NULL),                                  \
        SCENE_PICTURE_OPT(T, "render_fallback", OPT_BOOL, fallback, 0, 1, "false",                 \
                          "draw with rays where egl cannot", NULL),                                \
        SCENE_PICTURE_OPT(T, "egl_device", OPT_INT, egl_device, -1, 1000, "-1",                    \
                          "EGL device by its index, -1 = the first that works", NULL),             \
        SCENE_PICTURE_OPT(T, "cuda_device", OPT_INT, cuda_device, -1, 1000, "-1",                  \
                          "EGL device by its CUDA ordinal, -1 = not chosen", NULL)

// Options that every Gymnasium MuJoCo task has; the first member of each task's parameters.
struct scene_common {
    struct scene_pictures pictures;
    char
        xml_file[OPT_STR_MAX]; // a path if it begins with '/', '.' or '~', else a model file's name
    int64_t frame_skip;        // physics steps per env step
    int64_t max_episode_steps; // time limit; 0 = none
};

struct scene_task {
    const char *name;         // "Ant-v5"; of a suite its name, "libero_spatial"
    const char *instruction;  // what the task asks for, one line; NULL for a suite
    size_t params_bytes;      // size of the task's parameter struct, first member scene_common
    size_t scratch_bytes;     // per-env memory that lives from `before` to `after` and across steps
    const struct opt *kwargs; // Gymnasium's keyword arguments: defaults and ranges
    bool has_success;         // success is meaningful
    const char *free_view;    // Gymnasium: of its free camera what is not as Gymnasium has it for
                              // every task ("distance=2.04")
    bool contact_forces;      // the hooks read cfrc_ext, cacc or cfrc_int (mj_rnePostConstraint)

    // Suites: the members, in order; NULL and 0 otherwise.
    const struct scene_member *members;
    int n_member;
    const struct scene_preset *presets; // ends with a NULL name; NULL = the task has none
    const struct scene_driver *driver;  // NULL = the hooks `reset` to `observe` below
    // Make scene->model; NULL = from common.xml_file.
    enum status (*compile)(struct scene *scene);
    // Free scene->data.
    void (*release)(struct scene *scene);

    // After compilation: set scene->n_obs and scene->info, check the model. Once per scene.
    enum status (*setup)(struct scene *scene);
    // Draw the initial state into d->qpos and d->qvel (d was reset to defaults; mj_forward
    // follows).
    void (*reset)(const struct scene *scene, mjData *d, struct rng *rng, void *scratch);
    // Before the physics steps of an action: remember positions. Called as soon as the state is
    // there from which the action will start, so at the end of a reset or of the action before.
    void (*before)(const struct scene *scene, const mjData *d, void *scratch);
    // After them: reward, termination, info.
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
    const struct scene_driver *driver; // the task's, or one that calls its hooks
    int member;                        // index in the suite, 0 otherwise
    char name[SCENE_NAME_MAX];         // "Ant-v5", "libero_spatial/3"
    const char *instruction;
    void *data;           // the task's own, made by `compile`, freed by `release`
    const mjModel *model; // owned
    uint32_t signature;   // model_signature of it
    void *params;         // owned; starts with struct scene_common
    double dt_s;          // seconds per env step: timestep * frame_skip
    double *init_qpos;    // (nq)
    double *init_qvel;    // (nv)
    int n_act;            // model->nu
    int n_obs;
    int n_info;                 // numbers in the info vector
    int n_info_key;             // entries of `info`
    int n_field;                // named parts of the observation, in order; 0 = unnamed
    struct scene_field *fields; // owned
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

// In setup: append a named part of `n` numbers to the observation; moves scene->n_obs.
NODISCARD enum status scene_add_field(struct scene *scene, const char *name, int n);

// Gymnasium's MujocoEnv.set_state: qpos (nq), qvel (nv) into `d`, then mj_forward.
void scene_set_state(const struct scene *scene, mjData *d, const double *qpos, const double *qvel);

// The registered tasks and suites in alphabetical order; NULL past the end.
const struct scene_task *scene_task_at(int i);

// The task or, for SUITE/INDEX, the suite with `*member` set. NULL if there is none.
const struct scene_task *scene_task_find(const char *name, int *member);

// The suite of this name, without index. ST_INVAL if there is none.
NODISCARD enum status scene_suite_find(const struct scene_task **out, const char *name);

// The preset of this name of any task; NULL if there is none.
const struct scene_preset *scene_preset_find(const char *name);

// The named part of the scene's observation; NULL if there is none.
const struct scene_field *scene_field_find(const struct scene *scene, const char *name);

// The name nearest to `name` (edit distance) among tasks and members of suites, into buf.
void scene_task_nearest(const char *name, char *buf, size_t size);

// Keyword values of `task` from its defaults, its preset and `kwargs`, into params
// (task->params_bytes). As scene_create does it.
NODISCARD enum status scene_read_kwargs(const struct scene_task *task, const char *kwargs,
                                        void *params);

// Folder `what` ("gym", "tabletop") with shared files, found relative to the library (installed:
// ../share/simstream/WHAT) or in the source and build trees. ST_MISSING if there is none.
NODISCARD enum status scene_asset_dir(const char *what, char *buf, size_t size);

#endif
