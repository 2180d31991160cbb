// Walker2d-v5: a planar two-legged robot walks to the right.
#include "scenes/gym/gym.h"

struct walker2d {
    struct gym_runner runner;
    double healthy_angle_range[2];
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("walker2d_v5.xml", "4", "1000"),
    GYM_REAL(struct gym_runner, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct gym_runner, ctrl_cost_weight, "1e-3", "weight of the control cost"),
    GYM_REAL(struct gym_runner, healthy_reward, "1", "reward of a healthy step"),
    GYM_BOOL(struct gym_runner, terminate_when_unhealthy, "true",
             "an unhealthy step ends the episode"),
    GYM_RANGE(struct gym_runner, healthy_z_range, "0.8,2", "healthy heights of the torso"),
    GYM_RANGE(struct walker2d, healthy_angle_range, "-1,1", "healthy angles of the torso"),
    GYM_NOISE("5e-3"),
    GYM_EXCLUDE("leave out x"),
    {0},
};

static bool healthy(const struct scene *scene, const struct walker2d *p, const mjData *d)
{
    double z = d->qpos[1], angle = d->qpos[2];

    (void)scene;
    return p->runner.healthy_z_range[0] < z && z < p->runner.healthy_z_range[1] &&
           p->healthy_angle_range[0] < angle && angle < p->healthy_angle_range[1];
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    (void)success;
    gym_walker_after(scene, d, action, scratch, healthy(scene, scene->params, d), reward,
                     terminated, info);
}

extern const struct scene_task task_walker2d;
const struct scene_task task_walker2d = {
    .name = "Walker2d-v5",
    .free_view = "distance=4,lookat=0/0/1.15,elevation=-20",
    .instruction = "walk to the right",
    .params_bytes = sizeof(struct walker2d),
    .scratch_bytes = sizeof(struct gym_place),
    .kwargs = kwargs,
    .setup = gym_walker_setup,
    .reset = gym_reset_uniform,
    .before = gym_before_place,
    .after = after,
    .reset_info = gym_walker_reset_info,
    .observe = gym_walker_observe,
};
