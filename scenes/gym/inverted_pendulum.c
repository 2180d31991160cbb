// InvertedPendulum-v5: balance a pole on a cart.
#include "scenes/gym/gym.h"

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("inverted_pendulum.xml", "2", "1000"),
    GYM_NOISE("0.01"),
    {0},
};

static enum status setup(struct scene *scene)
{
    TRY(gym_check_size(scene, 2, 2));
    scene->n_obs = (int)scene->model->nq + (int)scene->model->nv;
    return scene_add_info(scene, "reward_survive", 1, false);
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    (void)scene;
    (void)action;
    (void)scratch;
    (void)success;
    // a state that is not finite never gets here: the episode ended by an error
    *terminated = fabs(d->qpos[1]) > 0.2;
    *reward = *terminated ? 0 : 1;
    info[0] = *reward;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    (void)gym_put_state(obs, scene, d, 0);
}

extern const struct scene_task task_inverted_pendulum;
const struct scene_task task_inverted_pendulum = {
    .name = "InvertedPendulum-v5",
    .free_view = "distance=2.04",
    .instruction = "balance the pole",
    .params_bytes = sizeof(struct gym_params),
    .kwargs = kwargs,
    .setup = setup,
    .reset = gym_reset_uniform,
    .before = gym_before_none,
    .after = after,
    .observe = observe,
};
