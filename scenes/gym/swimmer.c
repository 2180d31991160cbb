// Swimmer-v5: a chain of links swims to the right in a viscous plane.
#include "scenes/gym/gym.h"

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("swimmer.xml", "4", "1000"),
    GYM_REAL(struct gym_runner, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct gym_runner, ctrl_cost_weight, "1e-4", "weight of the control cost"),
    GYM_NOISE("0.1"),
    GYM_EXCLUDE("leave out x and y"),
    {0},
};

static enum status setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"x_position", 1, true},   {"y_position", 1, true},  {"distance_from_origin", 1, true},
        {"x_velocity", 1, false},  {"y_velocity", 1, false}, {"reward_forward", 1, false},
        {"reward_ctrl", 1, false}, {"", 0, false},
    };

    TRY(gym_check_size(scene, 2, 1));
    scene->n_obs = (int)scene->model->nq + (int)scene->model->nv - gym_excluded(scene, 2);
    return gym_add_infos(scene, info);
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct gym_runner *p = scene->params;
    const struct gym_place *s = scratch;
    double vx = (d->qpos[0] - s->xy[0]) / scene->dt_s, vy = (d->qpos[1] - s->xy[1]) / scene->dt_s;
    double forward = p->forward_reward_weight * vx;
    double ctrl = p->ctrl_cost_weight * gym_sum_squares(action, scene->n_act);

    (void)success;
    *reward = forward - ctrl;
    *terminated = false;
    gym_info_place(scene, d, info);
    info[3] = vx;
    info[4] = vy;
    info[5] = forward;
    info[6] = -ctrl;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    (void)gym_put_state(obs, scene, d, gym_excluded(scene, 2));
}

extern const struct scene_task task_swimmer;
const struct scene_task task_swimmer = {
    .name = "Swimmer-v5",
    .instruction = "swim to the right",
    .params_bytes = sizeof(struct gym_runner),
    .scratch_bytes = sizeof(struct gym_place),
    .kwargs = kwargs,
    .setup = setup,
    .reset = gym_reset_uniform,
    .before = gym_before_place,
    .after = after,
    .reset_info = gym_info_place,
    .observe = observe,
};
