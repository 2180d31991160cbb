// Hopper-v5: a planar one-legged robot hops to the right.
#include "scenes/gym/gym.h"

struct hopper {
    struct scene_common common;
    double forward_reward_weight, ctrl_cost_weight, healthy_reward;
    bool terminate_when_unhealthy;
    double healthy_state_range[2], healthy_z_range[2], healthy_angle_range[2];
    double reset_noise_scale;
    bool exclude_current_positions_from_observation;
};

struct hopper_scratch {
    double x; // before the step
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS(struct hopper, "hopper.xml", "4", "1000"),
    GYM_REAL(struct hopper, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct hopper, ctrl_cost_weight, "1e-3", "weight of the control cost"),
    GYM_REAL(struct hopper, healthy_reward, "1", "reward of a healthy step"),
    GYM_BOOL(struct hopper, terminate_when_unhealthy, "true", "an unhealthy step ends the episode"),
    GYM_RANGE(struct hopper, healthy_state_range, "-100,100", "healthy positions and velocities"),
    GYM_RANGE(struct hopper, healthy_z_range, "0.7,inf", "healthy heights of the torso"),
    GYM_RANGE(struct hopper, healthy_angle_range, "-0.2,0.2", "healthy angles of the torso"),
    GYM_NOISE(struct hopper, "5e-3"),
    GYM_BOOL(struct hopper, exclude_current_positions_from_observation, "true", "leave out x"),
    {0},
};

static enum status setup(struct scene *scene)
{
    const struct hopper *p = scene->params;

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
    const struct hopper *p = scene->params;

    (void)scratch;
    gym_reset_noise(scene, d, rng, p->reset_noise_scale, false);
}

static void before(const struct scene *scene, const mjData *d, void *scratch)
{
    struct hopper_scratch *s = scratch;

    (void)scene;
    s->x = d->qpos[0];
}

// Is every number of x (n) inside the range, ends excluded?
static bool inside(const double *x, int n, const double range[2])
{
    int i;

    for (i = 0; i < n; i++)
        if (!(range[0] < x[i] && x[i] < range[1]))
            return false;
    return true;
}

static bool healthy(const struct scene *scene, const struct hopper *p, const mjData *d)
{
    return inside(d->qpos + 2, (int)scene->model->nq - 2, p->healthy_state_range) &&
           inside(d->qvel, (int)scene->model->nv, p->healthy_state_range) &&
           inside(d->qpos + 1, 1, p->healthy_z_range) &&
           inside(d->qpos + 2, 1, p->healthy_angle_range);
}

static void reset_info(const struct scene *scene, const mjData *d, double *info)
{
    info[0] = d->qpos[0];
    info[1] = d->qpos[1] - scene->init_qpos[1];
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct hopper *p = scene->params;
    const struct hopper_scratch *s = scratch;
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
    const struct hopper *p = scene->params;
    int skip = p->exclude_current_positions_from_observation ? 1 : 0;

    (void)gym_put_clipped_state(obs, scene, d, skip);
}

extern const struct scene_task task_hopper;
const struct scene_task task_hopper = {
    .name = "Hopper-v5",
    .free_view = "distance=3,lookat=0/0/1.15,elevation=-20",
    .instruction = "hop to the right",
    .params_bytes = sizeof(struct hopper),
    .scratch_bytes = sizeof(struct hopper_scratch),
    .kwargs = kwargs,
    .setup = setup,
    .reset = reset,
    .before = before,
    .after = after,
    .reset_info = reset_info,
    .observe = observe,
};
