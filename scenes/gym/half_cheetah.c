// HalfCheetah-v5: a planar two-legged robot runs to the right.
#include "scenes/gym/gym.h"

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("half_cheetah.xml", "5", "1000"),
    GYM_REAL(struct gym_runner, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct gym_runner, ctrl_cost_weight, "0.1", "weight of the control cost"),
    GYM_NOISE("0.1"),
    GYM_EXCLUDE("leave out x"),
    {0},
};

static enum status setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"x_position", 1, true},   {"x_velocity", 1, false}, {"reward_forward", 1, false},
        {"reward_ctrl", 1, false}, {"", 0, false},
    };

    TRY(gym_check_size(scene, 2, 1));
    scene->n_obs = (int)scene->model->nq + (int)scene->model->nv - gym_excluded(scene, 1);
    return gym_add_infos(scene, info);
}

static void reset_info(const struct scene *scene, const mjData *d, double *info)
{
    (void)scene;
    info[0] = d->qpos[0];
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct gym_runner *p = scene->params;
    const struct gym_place *s = scratch;
    double velocity = (d->qpos[0] - s->xy[0]) / scene->dt_s;
    double forward = p->forward_reward_weight * velocity;
    double ctrl = p->ctrl_cost_weight * gym_sum_squares(action, scene->n_act);

    (void)success;
    *reward = forward - ctrl;
    *terminated = false;
    reset_info(scene, d, info);
    info[1] = velocity;
    info[2] = forward;
    info[3] = -ctrl;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    (void)gym_put_state(obs, scene, d, gym_excluded(scene, 1));
}

extern const struct scene_task task_half_cheetah;
const struct scene_task task_half_cheetah = {
    .name = "HalfCheetah-v5",
    .free_view = "distance=4",
    .instruction = "run to the right",
    .params_bytes = sizeof(struct gym_runner),
    .scratch_bytes = sizeof(struct gym_place),
    .kwargs = kwargs,
    .setup = setup,
    .reset = gym_reset_normal,
    .before = gym_before_place,
    .after = after,
    .reset_info = reset_info,
    .observe = observe,
};
