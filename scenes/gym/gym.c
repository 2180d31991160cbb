#include "scenes/gym/gym.h"

#include <math.h>
#include <string.h>

double gym_sum_squares(const double *x, int n)
{
    double sum = 0;
    int i;

    for (i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

double gym_clip(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

double *gym_put(double *out, const double *x, int n)
{
    memcpy(out, x, (size_t)n * sizeof *x);
    return out + n;
}

double *gym_put_state(double *out, const struct scene *scene, const mjData *d, int skip)
{
    out = gym_put(out, d->qpos + skip, (int)scene->model->nq - skip);
    return gym_put(out, d->qvel, (int)scene->model->nv);
}

int gym_humanoid_n_obs(const struct scene *scene, const struct gym_humanoid_parts *parts, int skip)
{
    int n_body = (int)scene->model->nbody - 1, nv = (int)scene->model->nv; // without the world

    return (int)scene->model->nq - skip + nv + parts->cinert * 10 * n_body +
           parts->cvel * 6 * n_body + parts->qfrc_actuator * (nv - 6) +
           parts->cfrc_ext * 6 * n_body;
}

void gym_humanoid_observe(const struct scene *scene, const mjData *d,
                          const struct gym_humanoid_parts *parts, int skip, double *obs)
{
    int n_body = (int)scene->model->nbody - 1;

    obs = gym_put_state(obs, scene, d, skip);
    if (parts->cinert)
        obs = gym_put(obs, d->cinert + 10, 10 * n_body);
    if (parts->cvel)
        obs = gym_put(obs, d->cvel + 6, 6 * n_body);
    if (parts->qfrc_actuator)
        obs = gym_put(obs, d->qfrc_actuator + 6, (int)scene->model->nv - 6);
    if (parts->cfrc_ext)
        (void)gym_put(obs, d->cfrc_ext + 6, 6 * n_body);
}

enum status gym_body(const struct scene *scene, const char *name, int *out)
{
    int id = mj_name2id(scene->model, mjOBJ_BODY, name);

    if (id < 0)
        return FAIL(ST_INVAL, "the model of task '%s' has no body '%s'", scene->task->name, name);
    *out = id;
    return ST_OK;
}

enum status gym_check_size(const struct scene *scene, int nq, int nv)
{
    if (scene->model->nq < nq || scene->model->nv < nv)
        return FAIL(ST_INVAL,
                    "the model of task '%s' has %d positions and %d velocities, at least "
                    "%d and %d are needed",
                    scene->task->name, (int)scene->model->nq, (int)scene->model->nv, nq, nv);
    return ST_OK;
}

enum status gym_add_infos(struct scene *scene, const struct scene_info *info)
{
    for (; info->name[0]; info++)
        TRY(scene_add_info(scene, info->name,
                           info->n == GYM_TENDONS ? (int)scene->model->ntendon : info->n,
                           info->on_reset));
    return ST_OK;
}

int gym_excluded(const struct scene *scene, int n)
{
    const struct gym_params *p = scene->params;

    return p->exclude_current_positions_from_observation ? n : 0;
}

void gym_before_none(const struct scene *scene, const mjData *d, void *scratch)
{
    (void)scene;
    (void)d;
    (void)scratch;
}

void gym_before_place(const struct scene *scene, const mjData *d, void *scratch)
{
    struct gym_place *s = scratch;

    (void)scene;
    memcpy(s->xy, d->qpos, sizeof s->xy);
}

static void reset_noise(const struct scene *scene, mjData *d, struct rng *rng, bool normal_velocity)
{
    const struct gym_params *p = scene->params;
    double noise = p->reset_noise_scale;
    int i;

    for (i = 0; i < scene->model->nq; i++)
        d->qpos[i] = scene->init_qpos[i] + rng_uniform(rng, -noise, noise);
    for (i = 0; i < scene->model->nv; i++)
        d->qvel[i] = scene->init_qvel[i] +
                     (normal_velocity ? noise * rng_normal(rng) : rng_uniform(rng, -noise, noise));
}

void gym_reset_uniform(const struct scene *scene, mjData *d, struct rng *rng, void *scratch)
{
    (void)scratch;
    reset_noise(scene, d, rng, false);
}

void gym_reset_normal(const struct scene *scene, mjData *d, struct rng *rng, void *scratch)
{
    (void)scratch;
    reset_noise(scene, d, rng, true);
}

void gym_info_place(const struct scene *scene, const mjData *d, double *info)
{
    (void)scene;
    info[0] = d->qpos[0];
    info[1] = d->qpos[1];
    info[2] = hypot(d->qpos[0], d->qpos[1]);
}

// --- planar walkers -----------------------------------------------------------------------------

enum status gym_walker_setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"x_position", 1, true},
        {"z_distance_from_origin", 1, true},
        {"x_velocity", 1, false},
        {"reward_forward", 1, false},
        {"reward_ctrl", 1, false},
        {"reward_survive", 1, false},
        {"", 0, false},
    };

    TRY(gym_check_size(scene, 3, 1));
    scene->n_obs = (int)scene->model->nq + (int)scene->model->nv - gym_excluded(scene, 1);
    return gym_add_infos(scene, info);
}

void gym_walker_reset_info(const struct scene *scene, const mjData *d, double *info)
{
    info[0] = d->qpos[0];
    info[1] = d->qpos[1] - scene->init_qpos[1];
}

void gym_walker_after(const struct scene *scene, const mjData *d, const double *action,
                      const struct gym_place *from, bool healthy, double *reward, bool *terminated,
                      double *info)
{
    const struct gym_runner *p = scene->params;
    double velocity = (d->qpos[0] - from->xy[0]) / scene->dt_s;
    double forward = p->forward_reward_weight * velocity, survive = healthy * p->healthy_reward;
    double ctrl = p->ctrl_cost_weight * gym_sum_squares(action, scene->n_act);

    *reward = forward + survive - ctrl;
    *terminated = !healthy && p->terminate_when_unhealthy;
    gym_walker_reset_info(scene, d, info);
    info[2] = velocity;
    info[3] = forward;
    info[4] = -ctrl;
    info[5] = survive;
}

void gym_walker_observe(const struct scene *scene, const mjData *d, double *obs)
{
    int i;

    obs = gym_put(obs, d->qpos + gym_excluded(scene, 1),
                  (int)scene->model->nq - gym_excluded(scene, 1));
    for (i = 0; i < scene->model->nv; i++)
        *obs++ = gym_clip(d->qvel[i], -10, 10);
}
