// Hopper-v5: a planar one-legged robot hops to the right.
#include "scenes/gym/gym.h"

struct hopper {
    struct gym_runner runner;
    double healthy_state_range[2], healthy_angle_range[2];
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("hopper.xml", "4", "1000"),
    GYM_REAL(struct gym_runner, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct gym_runner, ctrl_cost_weight, "1e-3", "weight of the control cost"),
    GYM_REAL(struct gym_runner, healthy_reward, "1", "reward of a healthy step"),
    GYM_BOOL(struct gym_runner, terminate_when_unhealthy, "true",
             "an unhealthy step ends the episode"),
    GYM_RANGE(struct hopper, healthy_state_range, "-100,100", "healthy positions and velocities"),
    GYM_RANGE(struct gym_runner, healthy_z_range, "0.7,inf", "healthy heights of the torso"),
    GYM_RANGE(struct hopper, healthy_angle_range, "-0.2,0.2", "healthy angles of the torso"),
    GYM_NOISE("5e-3"),
    GYM_EXCLUDE("leave out x"),
    {0},
};

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
           inside(d->qpos + 1, 1, p->runner.healthy_z_range) &&
           inside(d->qpos + 2, 1, p->healthy_angle_range);
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    (void)success;
    gym_walker_after(scene, d, action, scratch, healthy(scene, scene->params, d), reward,
                     terminated, info);
}

extern const struct scene_task task_hopper;
const struct scene_task task_hopper = {
    .name = "Hopper-v5",
    .free_view = "distance=3,lookat=0/0/1.15,elevation=-20",
    .instruction = "hop to the right",
    .params_bytes = sizeof(struct hopper),
    .scratch_bytes = sizeof(struct gym_place),
    .kwargs = kwargs,
    .setup = gym_walker_setup,
    .reset = gym_reset_uniform,
    .before = gym_before_place,
    .after = after,
    .reset_info = gym_walker_reset_info,
    .observe = gym_walker_observe,
};
