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

// The rows that every task's table starts with. `T` is the parameter struct.
#define GYM_COMMON_OPTS(T, xml, skip, limit)                                            \
    {"xml_file", OPT_STR, offsetof(T, common.xml_file), 0, 0, xml, "model file", NULL}, \
        {"frame_skip", OPT_INT, offsetof(T, common.frame_skip), 1,                      \
         1000,         skip,    "physics steps per env step",   NULL},                  \
        {"max_episode_steps",                                                           \
         OPT_INT,                                                                       \
         offsetof(T, common.max_episode_steps),                                         \
         -1,                                                                            \
         1e9,                                                                           \
         limit,                                                                         \
         "time limit in env steps, 0 or -1 = none",                                     \
         NULL},                                                                         \
        SCENE_PICTURE_OPTS(T, "480x480", "upright")

#define GYM_REAL(T, field, def, help)                                            \
    {                                                                            \
#field, OPT_REAL, offsetof(T, field), -GYM_MAX, GYM_MAX, def, help, NULL \
    }
// The reset noise is not negative, as NumPy's generators demand.
#define GYM_NOISE(T, def)                                                               \
    {                                                                                   \
        "reset_noise_scale", OPT_REAL, offsetof(T, reset_noise_scale), 0, GYM_MAX, def, \
            "noise of the initial state", NULL                                          \
    }
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

// Append d->qpos without its first `skip` numbers, then d->qvel limited to +-10; returns the end.
double *gym_put_clipped_state(double *out, const struct scene *scene, const mjData *d, int skip);

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

// Body id by name; ST_INVAL names the body and the task.
NODISCARD enum status gym_body(const struct scene *scene, const char *name, int *out);

// The `before` of a task that remembers nothing.
void gym_before_none(const struct scene *scene, const mjData *d, void *scratch);

// qpos = init + U(-noise, noise), qvel = init + noise * N(0, 1) or U(-noise, noise).
void gym_reset_noise(const struct scene *scene, mjData *d, struct rng *rng, double noise,
                     bool normal_velocity);

#endif
