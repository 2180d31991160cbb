// HalfCheetah-v5: a planar two-legged robot runs to the right.
#include "scenes/gym/gym.h"

struct half_cheetah {
    struct scene_common common;
    double forward_reward_weight, ctrl_cost_weight, reset_noise_scale;
    bool exclude_current_positions_from_observation;
};

struct half_cheetah_scratch {
    double x; // before the step
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS(struct half_cheetah, "half_cheetah.xml", "5", "1000"),
    GYM_REAL(struct half_cheetah, forward_reward_weight, "1", "weight of the forward reward"),
    GYM_REAL(struct half_cheetah, ctrl_cost_weight, "0.1", "weight of the control cost"),
    GYM_NOISE(struct half_cheetah, "0.1"),
    GYM_BOOL(struct half_cheetah, exclude_current_positions_from_observation, "true",
             "leave out x"),
    {0},
};

static enum status setup(struct scene *scene)
{
    const struct half_cheetah *p = scene->params;

    TRY(gym_check_size(scene, 1, 1));
    scene->n_obs = (int)scene->model->nq + (int)scene->model->nv -
                   p->exclude_current_positions_from_observation;
    TRY(scene_add_info(scene, "x_position", 1, true));
    TRY(scene_add_info(scene, "x_velocity", 1, false));
    TRY(scene_add_info(scene, "reward_forward", 1, false));
    return scene_add_info(scene, "reward_ctrl", 1, false);
}

static void reset(const struct scene *scene, mjData *d, struct rng *rng, void *scratch)
{
    const struct half_cheetah *p = scene->params;

    (void)scratch;
    gym_reset_noise(scene, d, rng, p->reset_noise_scale, true);
}

static void before(const struct scene *scene, const mjData *d, void *scratch)
{
    struct half_cheetah_scratch *s = scratch;

    (void)scene;
    s->x = d->qpos[0];
}

static void reset_info(const struct scene *scene, const mjData *d, double *info)
{
    (void)scene;
    info[0] = d->qpos[0];
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct half_cheetah *p = scene->params;
    const struct half_cheetah_scratch *s = scratch;
    double velocity = (d->qpos[0] - s->x) / scene->dt_s;
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
    const struct half_cheetah *p = scene->params;

    (void)gym_put_state(obs, scene, d, p->exclude_current_positions_from_observation ? 1 : 0);
}

extern const struct scene_task task_half_cheetah;
const struct scene_task task_half_cheetah = {
    .name = "HalfCheetah-v5",
    .free_view = "distance=4",
    .instruction = "run to the right",
    .params_bytes = sizeof(struct half_cheetah),
    .scratch_bytes = sizeof(struct half_cheetah_scratch),
    .kwargs = kwargs,
    .setup = setup,
    .reset = reset,
    .before = before,
    .after = after,
    .reset_info = reset_info,
    .observe = observe,
};
