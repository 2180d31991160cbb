// Pusher-v5: an arm pushes a cylinder to a goal.
#include "scenes/gym/gym.h"

struct pusher {
    struct scene_common common;
    double reward_near_weight, reward_dist_weight, reward_control_weight;
    int tips_arm, object, goal; // body ids
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("pusher_v5.xml", "5", "100"),
    GYM_REAL(struct pusher, reward_near_weight, "0.5", "weight of the hand's distance"),
    GYM_REAL(struct pusher, reward_dist_weight, "1", "weight of the object's distance"),
    GYM_REAL(struct pusher, reward_control_weight, "0.1", "weight of the control cost"),
    {0},
};

static enum status setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"reward_dist", 1, false},
        {"reward_ctrl", 1, false},
        {"reward_near", 1, false},
        {"", 0, false},
    };
    struct pusher *p = scene->params;

    TRY(gym_check_size(scene, 11, 11));
    TRY(gym_body(scene, "tips_arm", &p->tips_arm));
    TRY(gym_body(scene, "object", &p->object));
    TRY(gym_body(scene, "goal", &p->goal));
    scene->n_obs = 23;
    return gym_add_infos(scene, info);
}

static void reset(const struct scene *scene, mjData *d, struct rng *rng, void *scratch)
{
    int nq = (int)scene->model->nq, nv = (int)scene->model->nv, i;
    double x, y;

    (void)scratch;
    do { // not on top of the goal, which is at the origin
        x = rng_uniform(rng, -0.3, 0);
        y = rng_uniform(rng, -0.2, 0.2);
    } while (!(hypot(x, y) > 0.17));
    mju_copy(d->qpos, scene->init_qpos, nq);
    d->qpos[nq - 4] = x;
    d->qpos[nq - 3] = y;
    d->qpos[nq - 2] = d->qpos[nq - 1] = 0;
    for (i = 0; i < nv; i++)
        d->qvel[i] = i < nv - 4 ? scene->init_qvel[i] + rng_uniform(rng, -0.005, 0.005) : 0;
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct pusher *p = scene->params;
    const double *object = d->xpos + 3 * p->object;
    double near = -mju_dist3(object, d->xpos + 3 * p->tips_arm) * p->reward_near_weight;
    double dist = -mju_dist3(object, d->xpos + 3 * p->goal) * p->reward_dist_weight;
    double ctrl = -gym_sum_squares(action, scene->n_act) * p->reward_control_weight;

    (void)scratch;
    (void)success;
    *reward = dist + ctrl + near;
    *terminated = false;
    info[0] = dist;
    info[1] = ctrl;
    info[2] = near;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    const struct pusher *p = scene->params;

    obs = gym_put(obs, d->qpos, 7);
    obs = gym_put(obs, d->qvel, 7);
    obs = gym_put(obs, d->xpos + 3 * p->tips_arm, 3);
    obs = gym_put(obs, d->xpos + 3 * p->object, 3);
    (void)gym_put(obs, d->xpos + 3 * p->goal, 3);
}

extern const struct scene_task task_pusher;
const struct scene_task task_pusher = {
    .name = "Pusher-v5",
    .free_view = "distance=4",
    .instruction = "push the cylinder to the goal",
    .params_bytes = sizeof(struct pusher),
    .kwargs = kwargs,
    .setup = setup,
    .reset = reset,
    .before = gym_before_none,
    .after = after,
    .observe = observe,
};
