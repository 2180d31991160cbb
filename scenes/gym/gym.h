// gym.h - what the Gymnasium MuJoCo v5 tasks share: option rows, sums, the pieces of observations.
//
// The tasks give what Gymnasium 1.x gives (gymnasium/envs/mujoco/*_v5.py), term by term and nearly
// to the last digit: observations are equal, sums may round differently.
#ifndef SCENES_GYM_GYM_H
#define SCENES_GYM_GYM_H

#include "scenes/scene.h"

#include <math.h>
#include <stddef.h>

#define GYM_MAX 1e300

// Parameters of tasks whose initial state is drawn around that of the model; the first member of
// theirs.
struct gym_params {
    struct scene_common common;
    double reset_noise_scale;
    bool exclude_current_positions_from_observation;
};

// Parameters of tasks that reward speed to the right; the first member of theirs.
struct gym_runner {
    struct gym_params base;
    double forward_reward_weight, ctrl_cost_weight, healthy_reward;
    bool terminate_when_unhealthy;
    double healthy_z_range[2];
};

// The rows that every task's table starts with.
#define GYM_COMMON_OPTS(xml, skip, limit)                                                          \
    {"xml_file", OPT_STR, offsetof(struct scene_common, xml_file), 0, 0, xml, "model file", NULL}, \
        {"frame_skip",                                                                             \
         OPT_INT,                                                                                  \
         offsetof(struct scene_common, frame_skip),                                                \
         1,                                                                                        \
         1000,                                                                                     \
         skip,                                                                                     \
         "physics steps per env step",                                                             \
         NULL},                                                                                    \
        {"max_episode_steps",                                                                      \
         OPT_INT,                                                                                  \
         offsetof(struct scene_common, max_episode_steps),                                         \
         -1,                                                                                       \
         1e9,                                                                                      \
         limit,                                                                                    \
         "time limit in env steps, 0 or -1 = none",                                                \
         NULL},                                                                                    \
        SCENE_PICTURE_OPTS(struct gym_params, "480x480", "upright")

#define GYM_REAL(T, field, def, help)                                            \
    {                                                                            \
#field, OPT_REAL, offsetof(T, field), -GYM_MAX, GYM_MAX, def, help, NULL \
    }
// The reset noise is not negative, as NumPy's generators demand.
#define GYM_NOISE(def)                                                                             \
    {                                                                                              \
        "reset_noise_scale", OPT_REAL, offsetof(struct gym_params, reset_noise_scale), 0, GYM_MAX, \
            def, "noise of the initial state", NULL                                                \
    }
#define GYM_EXCLUDE(help) \
    GYM_BOOL(struct gym_params, exclude_current_positions_from_observation, "true", help)
#define GYM_RANGE(T, field, def, help)                                              \
    {                                                                               \
#field, OPT_RANGE, offsetof(T, field), -INFINITY, INFINITY, def, help, NULL \
    }
#define GYM_BOOL(T, field, def, help)                               \
    {                                                               \
#field, OPT_BOOL, offsetof(T, field), 0, 1, def, help, NULL \
    }

// Sum of squares of (n) numbers.
double gym_sum_squares(const double *x, int n);

double gym_clip(double x, double low, double high);

// Append (n) numbers; returns the end.
double *gym_put(double *out, const double *x, int n);

// Append d->qpos without its first `skip` numbers, then d->qvel; returns the end.
double *gym_put_state(double *out, const struct scene *scene, const mjData *d, int skip);

// ST_INVAL if the model has fewer than nq positions or nv velocities.
NODISCARD enum status gym_check_size(const struct scene *scene, int nq, int nv);

// What the humanoids observe besides positions and velocities.
struct gym_humanoid_parts {
    bool cinert, cvel, qfrc_actuator, cfrc_ext;
};

#define GYM_PART(T, part, help)                                                                    \
    {                                                                                              \
        "include_" #part "_in_observation", OPT_BOOL, offsetof(T, parts.part), 0, 1, "true", help, \
            NULL                                                                                   \
    }

// The option rows of a parameter struct with a member `parts`.
#define GYM_HUMANOID_PARTS(T)                                             \
    GYM_PART(T, cinert, "observe inertias about the centre of mass"),     \
        GYM_PART(T, cvel, "observe velocities about the centre of mass"), \
        GYM_PART(T, qfrc_actuator, "observe actuator forces"),            \
        GYM_PART(T, cfrc_ext, "observe external forces")

// Numbers of the observation without the first `skip` positions.
int gym_humanoid_n_obs(const struct scene *scene, const struct gym_humanoid_parts *parts, int skip);
void gym_humanoid_observe(const struct scene *scene, const mjData *d,
                          const struct gym_humanoid_parts *parts, int skip, double *obs);

// Add the terms of a table that ends with an empty name; GYM_TENDONS stands for a number a tendon.
#define GYM_TENDONS (-1)
NODISCARD enum status gym_add_infos(struct scene *scene, const struct scene_info *info);

// Positions that are left out of the observation: `n` or none (struct gym_params).
int gym_excluded(const struct scene *scene, int n);

// Body id by name; ST_INVAL names the body and the task.
NODISCARD enum status gym_body(const struct scene *scene, const char *name, int *out);

// --- hooks --------------------------------------------------------------------------------------

// The `before` of a task that remembers nothing.
void gym_before_none(const struct scene *scene, const mjData *d, void *scratch);

// Scratch of a task that rewards speed: where it was before the step.
struct gym_place {
    double xy[2];
};

// The first two positions.
void gym_before_place(const struct scene *scene, const mjData *d, void *scratch);

// qpos = init + U(-noise, noise), qvel = init + U(-noise, noise) or noise * N(0, 1), the noise that
// of struct gym_params.
void gym_reset_uniform(const struct scene *scene, mjData *d, struct rng *rng, void *scratch);
void gym_reset_normal(const struct scene *scene, mjData *d, struct rng *rng, void *scratch);

// The first two positions and the distance of that place from the origin.
void gym_info_place(const struct scene *scene, const mjData *d, double *info);

// --- planar walkers: Hopper and Walker2d, whose root is (x, z, angle) ---------------------------

NODISCARD enum status gym_walker_setup(struct scene *scene);
void gym_walker_after(const struct scene *scene, const mjData *d, const double *action,
                      const struct gym_place *from, bool healthy, double *reward, bool *terminated,
                      double *info);
void gym_walker_reset_info(const struct scene *scene, const mjData *d, double *info);
void gym_walker_observe(const struct scene *scene, const mjData *d, double *obs);

#endif
