// InvertedDoublePendulum-v5: balance a pole of two links on a cart.
#include "scenes/gym/gym.h"

struct double_pendulum {
    struct gym_params base;
    double healthy_reward;
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("inverted_double_pendulum.xml", "5", "1000"),
    GYM_REAL(struct double_pendulum, healthy_reward, "10", "reward of a step that does not fall"),
    GYM_NOISE("0.1"),
    {0},
};

static enum status setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"reward_survive", 1, false},
        {"distance_penalty", 1, false},
        {"velocity_penalty", 1, false},
        {"", 0, false},
    };

    TRY(gym_check_size(scene, 3, 3));
    if (scene->model->nq != 3 || scene->model->nv != 3 || scene->model->nsite < 1)
        return FAIL(ST_INVAL,
                    "the model of task '%s' is no cart with two links and a site at the "
                    "tip",
                    scene->task->name);
    scene->n_obs = 9;
    return gym_add_infos(scene, info);
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct double_pendulum *p = scene->params;
    double x = d->site_xpos[0], y = d->site_xpos[2], v1 = d->qvel[1], v2 = d->qvel[2];
    double distance = 0.01 * (x * x) + (y - 2) * (y - 2);
    double velocity = 0.001 * (v1 * v1) + 0.005 * (v2 * v2);

    (void)action;
    (void)scratch;
    (void)success;
    *terminated = y <= 1;
    info[0] = *terminated ? 0 : p->healthy_reward;
    info[1] = -distance;
    info[2] = -velocity;
    *reward = info[0] - distance - velocity;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    int i;

    (void)scene;
    obs[0] = d->qpos[0];
    for (i = 0; i < 2; i++) {
        obs[1 + i] = sin(d->qpos[1 + i]);
        obs[3 + i] = cos(d->qpos[1 + i]);
    }
    for (i = 0; i < 3; i++)
        obs[5 + i] = gym_clip(d->qvel[i], -10, 10);
    obs[8] = gym_clip(d->qfrc_constraint[0], -10, 10);
}

extern const struct scene_task task_inverted_double_pendulum;
const struct scene_task task_inverted_double_pendulum = {
    .name = "InvertedDoublePendulum-v5",
    .instruction = "balance the double pole",
    .params_bytes = sizeof(struct double_pendulum),
    .kwargs = kwargs,
    .setup = setup,
    .reset = gym_reset_normal,
    .before = gym_before_none,
    .after = after,
    .observe = observe,
};
