// Reacher-v5: a two-joint arm reaches for a target in the plane.
#include "scenes/gym/gym.h"

struct reacher {
    struct scene_common common;
    double reward_dist_weight, reward_control_weight;
    int fingertip, target; // body ids
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("reacher.xml", "2", "50"),
    GYM_REAL(struct reacher, reward_dist_weight, "1", "weight of the distance"),
    GYM_REAL(struct reacher, reward_control_weight, "1", "weight of the control cost"),
    {0},
};

static enum status setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"reward_dist", 1, false},
        {"reward_ctrl", 1, false},
        {"", 0, false},
    };
    struct reacher *p = scene->params;

    TRY(gym_check_size(scene, 4, 4));
    if (scene->model->nq != 4)
        return FAIL(ST_INVAL, "the model of task '%s' has %d positions, expected 4",
                    scene->task->name, (int)scene->model->nq);
    TRY(gym_body(scene, "fingertip", &p->fingertip));
    TRY(gym_body(scene, "target", &p->target));
    scene->n_obs = 10;
    return gym_add_infos(scene, info);
}

static void reset(const struct scene *scene, mjData *d, struct rng *rng, void *scratch)
{
    int nq = (int)scene->model->nq, nv = (int)scene->model->nv, i;
    double x, y;

    (void)scratch;
    for (i = 0; i < nq; i++)
        d->qpos[i] = rng_uniform(rng, -0.1, 0.1) + scene->init_qpos[i];
    do { // uniform in a disc
        x = rng_uniform(rng, -0.2, 0.2);
        y = rng_uniform(rng, -0.2, 0.2);
    } while (!(hypot(x, y) < 0.2));
    d->qpos[nq - 2] = x;
    d->qpos[nq - 1] = y;
    for (i = 0; i < nv; i++)
        d->qvel[i] = i < nv - 2 ? scene->init_qvel[i] + rng_uniform(rng, -0.005, 0.005) : 0;
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct reacher *p = scene->params;
    double dist =
        -mju_dist3(d->xpos + 3 * p->fingertip, d->xpos + 3 * p->target) * p->reward_dist_weight;
    double ctrl = -gym_sum_squares(action, scene->n_act) * p->reward_control_weight;

    (void)scratch;
    (void)success;
    *reward = dist + ctrl;
    *terminated = false;
    info[0] = dist;
    info[1] = ctrl;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    const struct reacher *p = scene->params;
    const double *tip = d->xpos + 3 * p->fingertip, *target = d->xpos + 3 * p->target;
    int i;

    for (i = 0; i < 2; i++) {
        obs[i] = cos(d->qpos[i]);
        obs[2 + i] = sin(d->qpos[i]);
        obs[4 + i] = d->qpos[2 + i];
        obs[6 + i] = d->qvel[i];
        obs[8 + i] = tip[i] - target[i];
    }
}

extern const struct scene_task task_reacher;
const struct scene_task task_reacher = {
    .name = "Reacher-v5",
    .instruction = "reach for the target",
    .params_bytes = sizeof(struct reacher),
    .kwargs = kwargs,
    .setup = setup,
    .reset = reset,
    .before = gym_before_none,
    .after = after,
    .observe = observe,
};
