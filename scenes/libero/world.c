// The driver of a LIBERO world: reset, settling, the 25 physics steps of an action, observation.
#include "scenes/libero/libero.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

static const double init_qpos[OSC_DOF] = {0,         -0.161037389,      0, -2.44459747, 0,
                                          2.2267522, 0.7853981633974483};
static const double init_gripper[2] = {0.020833, -0.020833};

static const struct libero *shared(const struct world *w)
{
    return w->scene->data;
}

static const struct libero_params *params(const struct world *w)
{
    return w->scene->params;
}

// ------------------------------------------------------------------ open and close

static enum status world_open(struct world *w)
{
    struct libero_world *lw = w->scratch;
    const mjModel *m = w->scene->model;

    lw->body_pos = mem_alloc((size_t)m->nbody * 3, sizeof(double));
    lw->body_quat = mem_alloc((size_t)m->nbody * 4, sizeof(double));
    lw->site_rgba = mem_alloc((size_t)m->nsite * 4, sizeof(float));
    lw->obs = mem_alloc((size_t)w->scene->n_obs, sizeof(double));
    if (!lw->body_pos || !lw->body_quat || !lw->site_rgba || !lw->obs)
        return ST_NOMEM;
    libero_base_view(w);
    if (params(w)->common.pictures.cameras[0] && params(w)->compat == COMPAT_LIBERO) {
        lw->seen_qpos = mem_alloc((size_t)m->nq, sizeof(double));
        lw->seen_rgba = mem_alloc((size_t)m->nsite * 4, sizeof(float));
        if (!lw->seen_qpos || !lw->seen_rgba)
            return ST_NOMEM;
    }
    return params(w)->expert ? expert_open(&lw->expert, m) : ST_OK;
}

static void world_close(struct world *w)
{
    struct libero_world *lw = w->scratch;

    mem_free(lw->body_pos);
    mem_free(lw->body_quat);
    mem_free(lw->site_rgba);
    mem_free(lw->obs);
    mem_free(lw->seen_qpos);
    mem_free(lw->seen_rgba);
    expert_close(&lw->expert);
}

// ------------------------------------------------------------------ observation

static double *put(double *out, const double *x, int n)
{
    memcpy(out, x, (size_t)n * sizeof out[0]);
    return out + n;
}

// MuJoCo's w, x, y, z as robosuite's x, y, z, w.
static double *put_quat(double *out, const double *q)
{
    out[0] = q[1];
    out[1] = q[2];
    out[2] = q[3];
    out[3] = q[0];
    return out + 4;
}

// Pose of an object seen from the hand, with w >= 0.
static double *put_relative(double *out, const double *hand_pos, const double *hand_quat,
                            const double *pos, const double *quat)
{
    double back[4], offset[3], q[4];

    mju_negQuat(back, hand_quat);
    mju_sub3(offset, pos, hand_pos);
    mju_rotVecQuat(out, offset, back);
    mju_mulQuat(q, back, quat);
    if (q[0] < 0)
        mju_scl(q, q, -1, 4);
    return put_quat(out + 3, q);
}

// As the evaluators of VLA policies compute it: w is clipped, the angle may exceed pi.
static double *put_axis_angle(double *out, const double *quat)
{
    double w = mju_clip(quat[0], -1, 1), den = sqrt(1 - w * w), angle = 2 * acos(w);
    int i;

    for (i = 0; i < 3; i++)
        out[i] = den == 0 ? 0 : quat[1 + i] * angle / den;
    return out + 3;
}

static double *put_robot(double *out, const struct libero *l, const mjData *d)
{
    int i;

    out = put(out, d->qpos, 7);
    for (i = 0; i < 7; i++)
        *out++ = cos(d->qpos[i]);
    for (i = 0; i < 7; i++)
        *out++ = sin(d->qpos[i]);
    out = put(out, d->qvel, 7);
    out = put(out, d->site_xpos + 3 * l->osc.grip_site, 3);
    out = put_quat(out, d->xquat + 4 * l->hand_body);
    out = put(out, d->qpos + 7, 2);
    return put(out, d->qvel + 7, 2);
}

static double *put_objects(double *out, const struct libero *l, const mjData *d)
{
    const double *hand = d->site_xpos + 3 * l->osc.grip_site, *turn = d->xquat + 4 * l->hand_body;
    int i;

    for (i = 0; i < l->binding.n_movable; i++) {
        const double *pos = d->xpos + 3 * l->binding.items[i].body;
        const double *quat = d->xquat + 4 * l->binding.items[i].body;

        out = put(out, pos, 3);
        out = put_quat(out, quat);
        out = put_relative(out, hand, turn, pos, quat);
    }
    return out;
}

// Take the observation of this instant. Positions and orientations are those of the last forward
// evaluation, joint angles and speeds those of d.
static void sample(struct world *w)
{
    const struct libero *l = shared(w);
    const mjData *d = w->d;
    double *out = ((struct libero_world *)w->scratch)->obs;

    if (params(w)->observation == OBSERVATION_JOINTS) {
        out = put(out, d->qpos + 7, 2);
        put(out, d->qpos, 7);
        return;
    }
    if (params(w)->observation == OBSERVATION_ROBOSUITE) {
        out = put_robot(out, l, d);
        out = put_objects(out, l, d);
    }
    out = put(out, d->site_xpos + 3 * l->osc.grip_site, 3);
    out = put_axis_angle(out, d->xquat + 4 * l->hand_body);
    put(out, d->qpos + 7, 2);
}

// The poses of this instant were computed from d's joint angles: pictures of the next observation
// show them.
static void see(struct world *w)
{
    struct libero_world *lw = w->scratch;

    if (!lw->seen_qpos)
        return;
    mju_copy(lw->seen_qpos, w->d->qpos, (int)w->model->nq);
    memcpy(lw->seen_rgba, lw->site_rgba, (size_t)w->model->nsite * 4 * sizeof(float));
}

// robosuite draws from what the last physics step before the sampling has computed, so the poses
// are older than the joint angles of the same observation, and than a stove's disc. With compat =
// clean it is all of one instant.
static void world_pose(const struct world *w, mjModel *m, mjData *d)
{
    const struct libero_world *lw = w->scratch;

    if (lw->seen_qpos)
        m->site_rgba = lw->seen_rgba;
    mju_copy(d->qpos, lw->seen_qpos ? lw->seen_qpos : w->d->qpos, (int)m->nq);
    mj_kinematics(m, d);
    mj_comPos(m, d);
    mj_camlight(m, d);
    mj_tendon(m, d);
}

// sim_state and fixture_pose. Unlike the observables, the state is that of this very instant.
static void put_state(const struct world *w, double *out)
{
    const struct binding *b = &shared(w)->binding;
    int i;

    *out++ = w->d->time;
    out = put(out, w->d->qpos, (int)w->model->nq);
    out = put(out, w->d->qvel, (int)w->model->nv);
    for (i = b->n_movable; i < b->n_item; i++) {
        out = put(out, w->model->body_pos + 3 * b->items[i].body, 3);
        out = put(out, w->model->body_quat + 4 * b->items[i].body, 4);
    }
}

static void world_observe(const struct world *w, double *obs)
{
    const struct libero_world *lw = w->scratch;

    memcpy(obs, lw->obs, (size_t)w->scene->n_obs * sizeof obs[0]);
    if (params(w)->sim_state)
        put_state(w, obs + shared(w)->state_at);
}

static void fill_info(const struct world *w, double *info)
{
    const struct libero_world *lw = w->scratch;

    info[0] = lw->success;
    info[1] = (double)lw->clipped;
    info[2] = lw->init_row;
}

// A stove's red disc follows its knob, one step late: pictures are taken before this.
static void show_burners(struct world *w)
{
    const struct libero *l = shared(w);
    struct libero_world *lw = w->scratch;
    int i;

    for (i = 0; i < l->n_burner; i++) {
        float *alpha = &lw->site_rgba[4 * l->burner_site[i] + 3];
        bool on = predicate_holds(&l->burner_on[i], &l->binding, w->model, w->d);

        if (on != (*alpha > 0))
            *alpha = 1 - *alpha;
    }
}

static bool succeeded(const struct world *w)
{
    const struct libero *l = shared(w);

    return goal_holds(&l->goal, &l->binding, w->model, w->d);
}

// ------------------------------------------------------------------ step

// robosuite's observables are due every 0.05 s of a clock that every forced update moves by one
// physics step, so that each of these makes later observations one physics step earlier: sampled
// after physics step 26 - n_forced.
static int sampling_substep(const struct world *w)
{
    const struct libero_world *lw = w->scratch;

    if (params(w)->compat == COMPAT_CLEAN)
        return 0;
    return LIBERO_SUBSTEPS + 1 - lw->n_forced;
}

static double gripper_action(const struct world *w, double a)
{
    if (params(w)->gripper == GRIPPER_DIRECT)
        return a;
    a = 2 * a - 1; // 1 = open; binarised and inverted
    return a > 0 ? -1 : a < 0 ? 1 : 0;
}

static void run_substeps(struct world *w, const double *action, bool absolute)
{
    const struct libero *l = shared(w);
    struct libero_world *lw = w->scratch;
    double gripper = gripper_action(w, action[6]);
    int i, when = sampling_substep(w);

    for (i = 0; i < LIBERO_SUBSTEPS; i++) {
        mj_step1(w->model, w->d);
        if (i == 0)
            osc_set_goal(&lw->osc, &l->osc, w->model, w->d, action, absolute);
        osc_control(&lw->osc, &l->osc, w->model, w->d, gripper);
        if (i + 1 == when)
            see(w);
        mj_step2(w->model, w->d);
        if (i + 1 == when)
            sample(w);
    }
    if (when == 0) { // at the end, everything of one instant
        mj_kinematics(w->model, w->d);
        sample(w);
    }
}

// What the expert would do next goes to the end of the observation.
static void ask_expert(struct world *w)
{
    const struct libero *l = shared(w);
    struct libero_world *lw = w->scratch;
    struct expert_view v = {&l->hand, &l->binding, &l->goal, w->model, w->d};
    double *action = lw->obs + w->scene->n_obs - LIBERO_ACTION;

    expert_act(&lw->expert, &v, action);
    if (params(w)->gripper == GRIPPER_OPENVLA)
        action[6] = 0.5 * (1 - action[6]); // 1 = open
}

static void step_once(struct world *w, const double *action, bool absolute)
{
    struct libero_world *lw = w->scratch;
    int i;

    for (i = 0; i < 6 && !absolute; i++)
        lw->clipped += !(action[i] >= -1 && action[i] <= 1);
    run_substeps(w, action, absolute);
    lw->success = succeeded(w);
    show_burners(w);
}

bool libero_step(struct world *w, const double *action)
{
    const struct libero_world *lw = w->scratch;

    step_once(w, action, params(w)->control == CONTROL_ABSOLUTE);
    if (params(w)->expert)
        ask_expert(w);
    return lw->success;
}

static void world_step(struct world *w, const double *action, struct scene_outcome *out,
                       double *info)
{
    out->success = libero_step(w, action);
    out->reward = out->success;
    out->terminated = out->success && params(w)->terminate_on_success;
    fill_info(w, info);
}

// ------------------------------------------------------------------ reset

void libero_start_arm(const struct scene *scene, const struct reset_places *p, double *qpos)
{
    const struct libero_params *par = scene->params;
    int i;

    for (i = 0; i < OSC_DOF; i++)
        qpos[i] = init_qpos[i] + p->arm_noise[i] * par->arm_noise;
    mju_copy(qpos + OSC_DOF, init_gripper, 2);
}

// Objects, drawers, knobs and fixtures to their places; the arm to its posture. Gripper at 0.
static void put_in_place(struct world *w)
{
    const struct libero *l = shared(w);
    struct libero_world *lw = w->scratch;
    const struct reset_places *p = &lw->places;
    int i, k;

    mju_copy(w->d->qpos, w->model->qpos0, (int)w->model->nq);
    libero_start_arm(w->scene, p, w->d->qpos);
    w->d->qpos[7] = w->d->qpos[8] = 0;
    for (i = 0; i < l->plan.n_joint; i++)
        for (k = 0; k < l->plan.joints[i].n_joint; k++)
            w->d->qpos[w->model->jnt_qposadr[l->plan.joints[i].joints[k]]] = p->joints[i];
    for (i = 0; i < l->binding.n_item; i++) {
        const struct bound_item *it = &l->binding.items[i];

        if (!p->placed[i])
            continue;
        mju_copy3(it->qpos >= 0 ? w->d->qpos + it->qpos : lw->body_pos + 3 * it->body, p->pos[i]);
        mju_copy4(it->qpos >= 0 ? w->d->qpos + it->qpos + 3 : lw->body_quat + 4 * it->body,
                  p->quat[i]);
    }
}

// An observation outside of a step. robosuite takes it from one forward evaluation.
static void force_observation(struct world *w)
{
    struct libero_world *lw = w->scratch;

    see(w);
    sample(w);
    lw->n_forced++;
}

void libero_set_state(struct world *w, const double *row)
{
    struct libero_world *lw = w->scratch;
    int nq = (int)w->model->nq, nv = (int)w->model->nv;

    w->d->time = row[0];
    mju_copy(w->d->qpos, row + 1, nq);
    mju_copy(w->d->qvel, row + 1 + nq, nv);
    mj_forward(w->model, w->d);
    if (params(w)->compat == COMPAT_CLEAN) { // the controller sees the arm where it is
        double posture[OSC_DOF];

        memcpy(posture, lw->osc.posture, sizeof posture);
        osc_begin(&lw->osc, &shared(w)->osc, w->model, w->d);
        memcpy(lw->osc.posture, posture, sizeof posture);
    }
    lw->success = succeeded(w);
    show_burners(w);
    force_observation(w);
}

static bool draw_places(struct world *w, const struct scene_start *start)
{
    const struct libero *l = shared(w);
    struct libero_world *lw = w->scratch;
    struct rng rng;

    if (params(w)->compat == COMPAT_LIBERO)
        return reset_draw(&l->plan, &lw->cursor, (uint32_t)(start->seed + start->stream),
                          start->episode, true, w->model, w->d, &lw->places);
    if (params(w)->init_states == START_FILE) {
        reset_nominal(&l->plan, w->model, w->d, &lw->places);
        return true;
    }
    rng = rng_make(start->seed, RNG_RESET, start->stream, start->episode, 0);
    lw->cursor.started = false;
    return reset_draw(&l->plan, &lw->cursor, rng_u32(&rng), 0, false, w->model, w->d, &lw->places);
}

static void settle(struct world *w)
{
    double action[LIBERO_ACTION] = {0};
    struct libero_world *lw = w->scratch;
    int64_t i;

    action[6] = params(w)->settle_gripper;
    for (i = 0; i < params(w)->settle_steps; i++)
        step_once(w, action, false);
    lw->clipped = 0;
}

static void world_start(struct world *w, const struct scene_start *start)
{
    const struct libero *l = shared(w);
    const struct libero_params *p = params(w);
    struct libero_world *lw = w->scratch;

    libero_base_view(w);
    if (p->compat == COMPAT_LIBERO && start->episode >= LIBERO_EPISODES)
        mju_error("episode %llu of a LIBERO world, expected fewer than %d",
                  (unsigned long long)start->episode, LIBERO_EPISODES);
    if (!draw_places(w, start)) // caught by the trap around the driver: the episode's error
        mju_error("there is no room for the objects of the task");
    put_in_place(w);
    mj_fwdPosition(w->model, w->d);
    osc_begin(&lw->osc, &l->osc, w->model, w->d);
    mju_copy(w->d->qpos + 7, init_gripper, 2);
    lw->clipped = 0;
    lw->n_forced = 0;
    lw->success = false;
    lw->init_row = -1;
    if (p->init_states == START_FILE) {
        uint64_t row = p->init_state >= 0
                           ? (uint64_t)p->init_state
                           : (start->stream + start->episode) % (uint64_t)l->init.n_row;

        lw->n_forced++; // the reset's own
        lw->init_row = (int)row;
        libero_set_state(w, l->init.rows + row * (uint64_t)l->init.n_col);
    } else {
        mj_forward(w->model, w->d);
        force_observation(w);
    }
    settle(w);
    if (p->expert) {
        struct expert_view v = {&l->hand, &l->binding, &l->goal, w->model, w->d};

        expert_begin(&lw->expert, &v);
        ask_expert(w);
    }
}

const struct scene_driver libero_driver = {
    .open = world_open,
    .close = world_close,
    .start = world_start,
    .step = world_step,
    .observe = world_observe,
    .start_info = fill_info,
    .pose = world_pose,
    .by_rows = true,
    .kept_bytes = libero_kept_bytes,
    .save = libero_save,
    .load = libero_load,
    .check = libero_check,
};
