// Ant-v5: a four-legged robot walks to the right.
#include "scenes/gym/gym.h"

#include <stdlib.h>
#include <string.h>

struct ant {
    struct gym_runner runner;
    double contact_cost_weight, contact_force_range[2];
    char main_body[OPT_STR_MAX]; // number or name
    bool include_cfrc_ext_in_observation;
    int body; // main_body's id
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("ant.xml", "5", "1000"),
    GYM_REAL(struct gym_runner, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct gym_runner, ctrl_cost_weight, "0.5", "weight of the control cost"),
    GYM_REAL(struct ant, contact_cost_weight, "5e-4", "weight of the contact cost"),
    GYM_REAL(struct gym_runner, healthy_reward, "1", "reward of a healthy step"),
    {"main_body", OPT_STR, offsetof(struct ant, main_body), 0, 0, "1",
     "number or name of the body whose speed is rewarded", NULL},
    GYM_BOOL(struct gym_runner, terminate_when_unhealthy, "true",
             "an unhealthy step ends the episode"),
    GYM_RANGE(struct gym_runner, healthy_z_range, "0.2,1", "healthy heights of the torso"),
    GYM_RANGE(struct ant, contact_force_range, "-1,1", "contact forces are limited to this"),
    GYM_NOISE("0.1"),
    GYM_EXCLUDE("leave out x and y"),
    GYM_BOOL(struct ant, include_cfrc_ext_in_observation, "true", "observe contact forces"),
    {0},
};

static enum status find_body(const struct scene *scene, struct ant *p)
{
    char *end;
    long id = strtol(p->main_body, &end, 10);

    if (*end != '\0' || end == p->main_body)
        return gym_body(scene, p->main_body, &p->body);
    if (id < 0 || id >= scene->model->nbody)
        return FAIL(ST_INVAL, "main_body is %ld, the model has bodies 0 to %d", id,
                    (int)scene->model->nbody - 1);
    p->body = (int)id;
    return ST_OK;
}

static enum status setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"x_position", 1, true},           {"y_position", 1, true},
        {"distance_from_origin", 1, true}, {"x_velocity", 1, false},
        {"y_velocity", 1, false},          {"reward_forward", 1, false},
        {"reward_ctrl", 1, false},         {"reward_contact", 1, false},
        {"reward_survive", 1, false},      {"", 0, false},
    };
    struct ant *p = scene->params;

    TRY(gym_check_size(scene, 3, 1));
    TRY(find_body(scene, p));
    scene->n_obs = (int)scene->model->nq - gym_excluded(scene, 2) + (int)scene->model->nv +
                   p->include_cfrc_ext_in_observation * 6 * ((int)scene->model->nbody - 1);
    return gym_add_infos(scene, info);
}

static void before(const struct scene *scene, const mjData *d, void *scratch)
{
    const struct ant *p = scene->params;
    struct gym_place *s = scratch;

    memcpy(s->xy, d->xpos + 3 * p->body, sizeof s->xy);
}

static bool healthy(const struct scene *scene, const struct ant *p, const mjData *d)
{
    int i;

    for (i = 0; i < scene->model->nq; i++)
        if (!isfinite(d->qpos[i]))
            return false;
    for (i = 0; i < scene->model->nv; i++)
        if (!isfinite(d->qvel[i]))
            return false;
    return p->runner.healthy_z_range[0] <= d->qpos[2] && d->qpos[2] <= p->runner.healthy_z_range[1];
}

static double contact_cost(const struct scene *scene, const struct ant *p, const mjData *d)
{
    double sum = 0, f;
    int i;

    for (i = 0; i < 6 * scene->model->nbody; i++) {
        f = gym_clip(d->cfrc_ext[i], p->contact_force_range[0], p->contact_force_range[1]);
        sum += f * f;
    }
    return p->contact_cost_weight * sum;
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct ant *p = scene->params;
    const struct gym_place *s = scratch;
    const double *xy = d->xpos + 3 * p->body;
    double vx = (xy[0] - s->xy[0]) / scene->dt_s, vy = (xy[1] - s->xy[1]) / scene->dt_s;
    bool ok = healthy(scene, p, d);
    double forward = vx * p->runner.forward_reward_weight, survive = ok * p->runner.healthy_reward;
    double ctrl = p->runner.ctrl_cost_weight * gym_sum_squares(action, scene->n_act);
    double contact = contact_cost(scene, p, d);

    (void)success;
    *reward = forward + survive - (ctrl + contact);
    *terminated = !ok && p->runner.terminate_when_unhealthy;
    gym_info_place(scene, d, info);
    info[3] = vx;
    info[4] = vy;
    info[5] = forward;
    info[6] = -ctrl;
    info[7] = -contact;
    info[8] = survive;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    const struct ant *p = scene->params;
    int i;

    obs = gym_put_state(obs, scene, d, gym_excluded(scene, 2));
    if (!p->include_cfrc_ext_in_observation)
        return;
    for (i = 6; i < 6 * scene->model->nbody; i++)
        *obs++ = gym_clip(d->cfrc_ext[i], p->contact_force_range[0], p->contact_force_range[1]);
}

extern const struct scene_task task_ant;
const struct scene_task task_ant = {
    .name = "Ant-v5",
    .free_view = "distance=4",
    .instruction = "walk to the right",
    .params_bytes = sizeof(struct ant),
    .scratch_bytes = sizeof(struct gym_place),
    .kwargs = kwargs,
    .contact_forces = true,
    .setup = setup,
    .reset = gym_reset_normal,
    .before = before,
    .after = after,
    .reset_info = gym_info_place,
    .observe = observe,
};
