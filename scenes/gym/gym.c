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

double *gym_put_clipped_state(double *out, const struct scene *scene, const mjData *d, int skip)
{
    int i;

    out = gym_put(out, d->qpos + skip, (int)scene->model->nq - skip);
    for (i = 0; i < scene->model->nv; i++)
        *out++ = gym_clip(d->qvel[i], -10, 10);
    return out;
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

void gym_before_none(const struct scene *scene, const mjData *d, void *scratch)
{
    (void)scene;
    (void)d;
    (void)scratch;
}

void gym_reset_noise(const struct scene *scene, mjData *d, struct rng *rng, double noise,
                     bool normal_velocity)
{
    int i;

    for (i = 0; i < scene->model->nq; i++)
        d->qpos[i] = scene->init_qpos[i] + rng_uniform(rng, -noise, noise);
    for (i = 0; i < scene->model->nv; i++)
        d->qvel[i] = scene->init_qvel[i] +
                     (normal_velocity ? noise * rng_normal(rng) : rng_uniform(rng, -noise, noise));
}
