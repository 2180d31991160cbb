// Humanoid-v5: a humanoid walks to the right without falling.
#include "scenes/gym/gym.h"

struct humanoid {
    struct gym_runner runner;
    double contact_cost_weight, contact_cost_range[2];
    struct gym_humanoid_parts parts;
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS("humanoid.xml", "5", "1000"),
    GYM_REAL(struct gym_runner, forward_reward_weight, "1.25", "weight of the forward reward"),
    GYM_REAL(struct gym_runner, ctrl_cost_weight, "0.1", "weight of the control cost"),
    GYM_REAL(struct humanoid, contact_cost_weight, "5e-7", "weight of the contact cost"),
    GYM_RANGE(struct humanoid, contact_cost_range, "-inf,10",
              "the contact cost is limited to this"),
    GYM_REAL(struct gym_runner, healthy_reward, "5", "reward of a healthy step"),
    GYM_BOOL(struct gym_runner, terminate_when_unhealthy, "true",
             "an unhealthy step ends the episode"),
    GYM_RANGE(struct gym_runner, healthy_z_range, "1,2", "healthy heights of the torso"),
    GYM_NOISE("0.01"),
    GYM_EXCLUDE("leave out x and y"),
    GYM_HUMANOID_PARTS(struct humanoid),
    {0},
};

static enum status setup(struct scene *scene)
{
    static const struct scene_info info[] = {
        {"x_position", 1, true},
        {"y_position", 1, true},
        {"tendon_length", GYM_TENDONS, true},
        {"tendon_velocity", GYM_TENDONS, true},
        {"distance_from_origin", 1, true},
        {"x_velocity", 1, false},
        {"y_velocity", 1, false},
        {"reward_survive", 1, false},
        {"reward_forward", 1, false},
        {"reward_ctrl", 1, false},
        {"reward_contact", 1, false},
        {"", 0, false},
    };
    struct humanoid *p = scene->params;

    TRY(gym_check_size(scene, 3, 6));
    scene->n_obs = gym_humanoid_n_obs(scene, &p->parts, gym_excluded(scene, 2));
    return gym_add_infos(scene, info);
}

static void mass_centre(const struct scene *scene, const mjData *d, double xy[2])
{
    double mass = 0; // of all bodies: it may differ per env
    int i;

    xy[0] = xy[1] = 0;
    for (i = 0; i < scene->model->nbody; i++) {
        mass += scene->model->body_mass[i];
        xy[0] += scene->model->body_mass[i] * d->xipos[3 * i];
        xy[1] += scene->model->body_mass[i] * d->xipos[3 * i + 1];
    }
    xy[0] /= mass;
    xy[1] /= mass;
}

static void before(const struct scene *scene, const mjData *d, void *scratch)
{
    struct gym_place *s = scratch;

    mass_centre(scene, d, s->xy);
}

// The terms that a reset gives too; returns the end.
static double *put_position(const struct scene *scene, const mjData *d, double *info)
{
    info = gym_put(info, d->qpos, 2);
    info = gym_put(info, d->ten_length, (int)scene->model->ntendon);
    info = gym_put(info, d->ten_velocity, (int)scene->model->ntendon);
    *info++ = hypot(d->qpos[0], d->qpos[1]);
    return info;
}

static void reset_info(const struct scene *scene, const mjData *d, double *info)
{
    (void)put_position(scene, d, info);
}

static void after(const struct scene *scene, const mjData *d, const double *action, void *scratch,
                  double *reward, bool *terminated, bool *success, double *info)
{
    const struct humanoid *p = scene->params;
    const struct gym_place *s = scratch;
    bool ok =
        p->runner.healthy_z_range[0] < d->qpos[2] && d->qpos[2] < p->runner.healthy_z_range[1];
    double xy[2], vx, vy, forward, survive = ok * p->runner.healthy_reward;
    double ctrl = p->runner.ctrl_cost_weight * gym_sum_squares(d->ctrl, (int)scene->model->nu);
    double contact =
        p->contact_cost_weight * gym_sum_squares(d->cfrc_ext, 6 * (int)scene->model->nbody);

    (void)action;
    (void)success;
    mass_centre(scene, d, xy);
    vx = (xy[0] - s->xy[0]) / scene->dt_s;
    vy = (xy[1] - s->xy[1]) / scene->dt_s;
    forward = p->runner.forward_reward_weight * vx;
    contact = gym_clip(contact, p->contact_cost_range[0], p->contact_cost_range[1]);
    *reward = forward + survive - (ctrl + contact);
    *terminated = !ok && p->runner.terminate_when_unhealthy;
    info = put_position(scene, d, info);
    info[0] = vx;
    info[1] = vy;
    info[2] = survive;
    info[3] = forward;
    info[4] = -ctrl;
    info[5] = -contact;
}

static void observe(const struct scene *scene, const mjData *d, double *obs)
{
    const struct humanoid *p = scene->params;

    gym_humanoid_observe(scene, d, &p->parts, gym_excluded(scene, 2), obs);
}

extern const struct scene_task task_humanoid;
const struct scene_task task_humanoid = {
    .name = "Humanoid-v5",
    .free_view = "distance=4,lookat=0/0/2,elevation=-20",
    .instruction = "walk to the right without falling",
    .params_bytes = sizeof(struct humanoid),
    .scratch_bytes = sizeof(struct gym_place),
    .kwargs = kwargs,
    .contact_forces = true,
    .setup = setup,
    .reset = gym_reset_uniform,
    .before = before,
    .after = after,
    .reset_info = reset_info,
    .observe = observe,
};
