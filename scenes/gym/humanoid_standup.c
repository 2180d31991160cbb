// HumanoidStandup-v5: a humanoid that lies on the ground stands up.
#include "scenes/gym/gym.h"

struct standup {
    struct gym_params base;
    double uph_cost_weight, ctrl_cost_weight, impact_cost_weight;
    double impact_cost_range[2];
    struct gym_humanoid_parts parts;
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("humanoidstandup.xml", "5", "1000"),
    GYM_REAL(struct standup, uph_cost_weight, "1", "accepted, without effect, as in Gymnasium"),
    GYM_REAL(struct standup, ctrl_cost_weight, "0.1", "weight of the control cost"),
    GYM_REAL(struct standup, impact_cost_weight, "5e-7", "weight of the impact cost"),
    GYM_RANGE(struct standup, impact_cost_range, "-inf,10", "the impact cost is limited to this"),
    GYM_NOISE("0.01"),
    GYM_EXCLUDE("leave out x and y"),
    GYM_HUMANOID_PARTS(struct standup),
    {0},
};

static enum status setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"x_position", 1, true},
        {"y_position", 1, true},
        {"z_distance_from_origin", 1, true},
        {"tendon_length", GYM_TENDONS, true},
        {"tendon_velocity", GYM_TENDONS, true},
        {"reward_linup", 1, false},
        {"reward_quadctrl", 1, false},
        {"reward_impact", 1, false},
        {"", 0, false},
    };
    const struct standup *p = scene->params;

    TRY(gym_check_size(scene, 3, 6));
    scene->n_obs = gym_humanoid_n_obs(scene, &p->parts, gym_excluded(scene, 2));
    return gym_add_infos(scene, info);
}

// The terms that a reset gives too; returns the end.
static double *put_position(const struct scene *scene, const mjData *d, double *info)
{
    info = gym_put(info, d->qpos, 2);
    *info++ = d->qpos[2] - scene->init_qpos[2];
    info = gym_put(info, d->ten_length, (int)scene->model->ntendon);
    return gym_put(info, d->ten_velocity, (int)scene->model->ntendon);
}

static void reset_info(const struct scene *scene, const mjData *d, double *info)
{
    (void)put_position(scene, d, info);
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct standup *p = scene->params;
    double up = d->qpos[2] / scene->model->opt.timestep;
    double ctrl = p->ctrl_cost_weight * gym_sum_squares(d->ctrl, (int)scene->model->nu);
    double impact =
        p->impact_cost_weight * gym_sum_squares(d->cfrc_ext, 6 * (int)scene->model->nbody);

    (void)action;
    (void)scratch;
    (void)success;
    impact = gym_clip(impact, p->impact_cost_range[0], p->impact_cost_range[1]);
    *reward = up - ctrl - impact + 1;
    *terminated = false;
    info = put_position(scene, d, info);
    info[0] = up;
    info[1] = -ctrl;
    info[2] = -impact;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    const struct standup *p = scene->params;

    gym_humanoid_observe(scene, d, &p->parts, gym_excluded(scene, 2), obs);
}

extern const struct scene_task task_humanoid_standup;
const struct scene_task task_humanoid_standup = {
    .name = "HumanoidStandup-v5",
    .free_view = "distance=4,lookat=0/0/0.8925,elevation=-20",
    .instruction = "stand up",
    .params_bytes = sizeof(struct standup),
    .kwargs = kwargs,
    .contact_forces = true,
    .setup = setup,
    .reset = gym_reset_uniform,
    .before = gym_before_none,
    .after = after,
    .reset_info = reset_info,
    .observe = observe,
};
