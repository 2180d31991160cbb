// Walker2d-v5: a planar two-legged robot walks to the right.
#include "scenes/gym/gym.h"

struct walker2d {
    struct scene_common common;
    double forward_reward_weight, ctrl_cost_weight, healthy_reward;
    bool terminate_when_unhealthy;
    double healthy_z_range[2], healthy_angle_range[2];
    double reset_noise_scale;
    bool exclude_current_positions_from_observation;
};

struct walker2d_scratch {
    double x; // before the step
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS(struct walker2d, "walker2d_v5.xml", "4", "1000"),
    GYM_REAL(struct walker2d, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct walker2d, ctrl_cost_weight, "1e-3", "weight of the control cost"),
    GYM_REAL(struct walker2d, healthy_reward, "1", "reward of a healthy step"),
    GYM_BOOL(struct walker2d, terminate_when_unhealthy, "true",
             "an unhealthy step ends the episode"),
    GYM_RANGE(struct walker2d, healthy_z_range, "0.8,2", "healthy heights of the torso"),
    GYM_RANGE(struct walker2d, healthy_angle_range, "-1,1", "healthy angles of the torso"),
    GYM_NOISE(struct walker2d, "5e-3"),
    GYM_BOOL(struct walker2d, exclude_current_positions_from_observation, "true", "leave out x"),
    {0},
};

static enum status setup(struct scene *scene)
{
    const struct walker2d *p = scene->params;

    TRY(gym_check_size(scene, 3, 1));
    scene->n_obs = (int)scene->model->nq + (int)scene->model->nv -
                   p->exclude_current_positions_from_observation;
    TRY(scene_add_info(scene, "x_position", 1, true));
    TRY(scene_add_info(scene, "z_distance_from_origin", 1, true));
    TRY(scene_add_info(scene, "x_velocity", 1, false));
    TRY(scene_add_info(scene, "reward_forward", 1, false));
    TRY(scene_add_info(scene, "reward_ctrl", 1, false));
    return scene_add_info(scene, "reward_survive", 1, false);
}

static void reset(const struct scene *scene, mjData *d, struct rng *rng, void *scratch)
{
    const struct walker2d *p = scene->params;

    (void)scratch;
    gym_reset_noise(scene, d, rng, p->reset_noise_scale, false);
}

static void before(const struct scene *scene, const mjData *d, void *scratch)
{
    struct walker2d_scratch *s = scratch;

    (void)scene;
    s->x = d->qpos[0];
}

static bool healthy(const struct scene *scene, const struct walker2d *p, const mjData *d)
{
    double z = d->qpos[1], angle = d->qpos[2];

    (void)scene;
    return p->healthy_z_range[0] < z && z < p->healthy_z_range[1] &&
           p->healthy_angle_range[0] < angle && angle < p->healthy_angle_range[1];
}

static void reset_info(const struct scene *scene, const mjData *d, double *info)
{
    info[0] = d->qpos[0];
    info[1] = d->qpos[1] - scene->init_qpos[1];
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct walker2d *p = scene->params;
    const struct walker2d_scratch *s = scratch;
    double velocity = (d->qpos[0] - s->x) / scene->dt_s;
    bool ok = healthy(scene, p, d);
    double forward = p->forward_reward_weight * velocity, survive = ok * p->healthy_reward;
    double ctrl = p->ctrl_cost_weight * gym_sum_squares(action, scene->n_act);

    (void)success;
    *reward = forward + survive - ctrl;
    *terminated = !ok && p->terminate_when_unhealthy;
    reset_info(scene, d, info);
    info[2] = velocity;
    info[3] = forward;
    info[4] = -ctrl;
    info[5] = survive;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    const struct walker2d *p = scene->params;
    int skip = p->exclude_current_positions_from_observation ? 1 : 0;

    (void)gym_put_clipped_state(obs, scene, d, skip);
}

extern const struct scene_task task_walker2d;
const struct scene_task task_walker2d = {
    .name = "Walker2d-v5",
    .free_view = "distance=4,lookat=0/0/1.15,elevation=-20",
    .instruction = "walk to the right",
    .params_bytes = sizeof(struct walker2d),
    .scratch_bytes = sizeof(struct walker2d_scratch),
    .kwargs = kwargs,
    .setup = setup,
    .reset = reset,
    .before = before,
    .after = after,
    .reset_info = reset_info,
    .observe = observe,
};
