// Swimmer-v5: a chain of links swims to the right in a viscous plane.
#include "scenes/gym/gym.h"

struct swimmer {
    struct scene_common common;
    double forward_reward_weight, ctrl_cost_weight, reset_noise_scale;
    bool exclude_current_positions_from_observation;
};

struct swimmer_scratch {
    double xy[2]; // before the step
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS(struct swimmer, "swimmer.xml", "4", "1000"),
    GYM_REAL(struct swimmer, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct swimmer, ctrl_cost_weight, "1e-4", "weight of the control cost"),
    GYM_NOISE(struct swimmer, "0.1"),
    GYM_BOOL(struct swimmer, exclude_current_positions_from_observation, "true",
             "leave out x and y"),
    {0},
};

static enum status setup(struct scene *scene)
{
    const struct swimmer *p = scene->params;

    TRY(gym_check_size(scene, 2, 1));
    scene->n_obs = (int)scene->model->nq + (int)scene->model->nv -
                   2 * p->exclude_current_positions_from_observation;
    TRY(scene_add_info(scene, "x_position", 1, true));
    TRY(scene_add_info(scene, "y_position", 1, true));
    TRY(scene_add_info(scene, "distance_from_origin", 1, true));
    TRY(scene_add_info(scene, "x_velocity", 1, false));
    TRY(scene_add_info(scene, "y_velocity", 1, false));
    TRY(scene_add_info(scene, "reward_forward", 1, false));
    return scene_add_info(scene, "reward_ctrl", 1, false);
}

static void reset(const struct scene *scene, mjData *d, struct rng *rng, void *scratch)
{
    const struct swimmer *p = scene->params;

    (void)scratch;
    gym_reset_noise(scene, d, rng, p->reset_noise_scale, false);
}

static void before(const struct scene *scene, const mjData *d, void *scratch)
{
    struct swimmer_scratch *s = scratch;

    (void)scene;
    s->xy[0] = d->qpos[0];
    s->xy[1] = d->qpos[1];
}

static void reset_info(const struct scene *scene, const mjData *d, double *info)
{
    (void)scene;
    info[0] = d->qpos[0];
    info[1] = d->qpos[1];
    info[2] = hypot(d->qpos[0], d->qpos[1]);
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct swimmer *p = scene->params;
    const struct swimmer_scratch *s = scratch;
    double vx = (d->qpos[0] - s->xy[0]) / scene->dt_s, vy = (d->qpos[1] - s->xy[1]) / scene->dt_s;
    double forward = p->forward_reward_weight * vx;
    double ctrl = p->ctrl_cost_weight * gym_sum_squares(action, scene->n_act);

    (void)success;
    *reward = forward - ctrl;
    *terminated = false;
    reset_info(scene, d, info);
    info[3] = vx;
    info[4] = vy;
    info[5] = forward;
    info[6] = -ctrl;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    const struct swimmer *p = scene->params;

    (void)gym_put_state(obs, scene, d, p->exclude_current_positions_from_observation ? 2 : 0);
}

extern const struct scene_task task_swimmer;
const struct scene_task task_swimmer = {
    .name = "Swimmer-v5",
    .instruction = "swim to the right",
    .params_bytes = sizeof(struct swimmer),
    .scratch_bytes = sizeof(struct swimmer_scratch),
    .kwargs = kwargs,
    .setup = setup,
    .reset = reset,
    .before = before,
    .after = after,
    .reset_info = reset_info,
    .observe = observe,
};
