// Humanoid-v5: a humanoid walks to the right without falling.
#include "scenes/gym/gym.h"

struct humanoid {
    struct scene_common common;
    double forward_reward_weight, ctrl_cost_weight, contact_cost_weight;
    double contact_cost_range[2];
    double healthy_reward;
    bool terminate_when_unhealthy;
    double healthy_z_range[2], reset_noise_scale;
    bool exclude_current_positions_from_observation;
    struct gym_humanoid_parts parts;
};

struct humanoid_scratch {
    double xy[2]; // centre of mass before the step
};

static const struct opt kwargs[] = {
    GYM_COMMON_OPTS(struct humanoid, "humanoid.xml", "5", "1000"),
    GYM_REAL(struct humanoid, forward_reward_weight, "1.25", "weight of the forward reward"),
    GYM_REAL(struct humanoid, ctrl_cost_weight, "0.1", "weight of the control cost"),
    GYM_REAL(struct humanoid, contact_cost_weight, "5e-7", "weight of the contact cost"),
    GYM_RANGE(struct humanoid, contact_cost_range, "-inf,10",
              "the contact cost is limited to this"),
    GYM_REAL(struct humanoid, healthy_reward, "5", "reward of a healthy step"),
    GYM_BOOL(struct humanoid, terminate_when_unhealthy, "true",
             "an unhealthy step ends the episode"),
    GYM_RANGE(struct humanoid, healthy_z_range, "1,2", "healthy heights of the torso"),
    GYM_NOISE(struct humanoid, "0.01"),
    GYM_BOOL(struct humanoid, exclude_current_positions_from_observation, "true",
             "leave out x and y"),
    GYM_HUMANOID_PARTS(struct humanoid),
    {0},
};

static enum status setup(struct scene *scene)
{
    struct humanoid *p = scene->params;

    TRY(gym_check_size(scene, 3, 6));
    scene->n_obs =
        gym_humanoid_n_obs(scene, &p->parts, 2 * p->exclude_current_positions_from_observation);
    TRY(scene_add_info(scene, "x_position", 1, true));
    TRY(scene_add_info(scene, "y_position", 1, true));
    TRY(scene_add_info(scene, "tendon_length", (int)scene->model->ntendon, true));
    TRY(scene_add_info(scene, "tendon_velocity", (int)scene->model->ntendon, true));
    TRY(scene_add_info(scene, "distance_from_origin", 1, true));
    TRY(scene_add_info(scene, "x_velocity", 1, false));
    TRY(scene_add_info(scene, "y_velocity", 1, false));
    TRY(scene_add_info(scene, "reward_survive", 1, false));
    TRY(scene_add_info(scene, "reward_forward", 1, false));
    TRY(scene_add_info(scene, "reward_ctrl", 1, false));
    return scene_add_info(scene, "reward_contact", 1, false);
}

static void reset(const struct scene *scene, mjData *d, struct rng *rng, void *scratch)
{
    const struct humanoid *p = scene->params;

    (void)scratch;
    gym_reset_noise(scene, d, rng, p->reset_noise_scale, false);
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
    struct humanoid_scratch *s = scratch;

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
    const struct humanoid_scratch *s = scratch;
    bool ok = p->healthy_z_range[0] < d->qpos[2] && d->qpos[2] < p->healthy_z_range[1];
    double xy[2], vx, vy, forward, survive = ok * p->healthy_reward;
    double ctrl = p->ctrl_cost_weight * gym_sum_squares(d->ctrl, (int)scene->model->nu);
    double contact =
        p->contact_cost_weight * gym_sum_squares(d->cfrc_ext, 6 * (int)scene->model->nbody);

    (void)action;
    (void)success;
    mass_centre(scene, d, xy);
    vx = (xy[0] - s->xy[0]) / scene->dt_s;
    vy = (xy[1] - s->xy[1]) / scene->dt_s;
    forward = p->forward_reward_weight * vx;
    contact = gym_clip(contact, p->contact_cost_range[0], p->contact_cost_range[1]);
    *reward = forward + survive - (ctrl + contact);
    *terminated = !ok && p->terminate_when_unhealthy;
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

    gym_humanoid_observe(scene, d, &p->parts, p->exclude_current_positions_from_observation ? 2 : 0,
                         obs);
}

extern const struct scene_task task_humanoid;
const struct scene_task task_humanoid = {
    .name = "Humanoid-v5",
    .free_view = "distance=4,lookat=0/0/2,elevation=-20",
    .instruction = "walk to the right without falling",
    .params_bytes = sizeof(struct humanoid),
    .scratch_bytes = sizeof(struct humanoid_scratch),
    .kwargs = kwargs,
    .contact_forces = true,
    .setup = setup,
    .reset = reset,
    .before = before,
    .after = after,
    .reset_info = reset_info,
    .observe = observe,
};
