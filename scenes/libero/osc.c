#include "scenes/libero/osc.h"

#include "scenes/libero/spd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define KP           150.0
#define DT_GRIPPER   0.01 // gripper command per physics step
#define POSTURE_KP   10.0
#define OUT_POSITION 0.05 // m of an action of 1
#define OUT_ROTATION 0.5  // rad
#define TORQUE_LARGE 80.0 // N m, joints 1 to 5
#define TORQUE_SMALL 12.0 // joints 6 and 7

enum status osc_find(const mjModel *m, struct osc_ids *ids)
{
    char name[32];
    int i, joint;

    ids->grip_site = mj_name2id(m, mjOBJ_SITE, "gripper0_grip_site");
    if (ids->grip_site < 0)
        return FAIL(ST_INVAL, "the model has no site 'gripper0_grip_site'");
    for (i = 0; i < OSC_DOF + 2; i++) {
        if (i < OSC_DOF)
            snprintf(name, sizeof name, "robot0_joint%d", i + 1);
        else
            snprintf(name, sizeof name, "gripper0_finger_joint%d", i - OSC_DOF + 1);
        joint = mj_name2id(m, mjOBJ_JOINT, name);
        if (joint < 0 || m->jnt_qposadr[joint] != i || m->jnt_dofadr[joint] != i || m->nu != 9)
            return FAIL(ST_INVAL,
                        "joint '%s' is not number %d of the model, or it does not have "
                        "9 actuators",
                        name, i);
    }
    return ST_OK;
}

// Rows of the arm's dofs in the engine's sparse inertia have columns among the arm's alone.
static void arm_inertia(const mjModel *m, const mjData *d, double *M)
{
    int i, k;

    memset(M, 0, OSC_DOF * OSC_DOF * sizeof M[0]);
    for (i = 0; i < OSC_DOF; i++)
        for (k = 0; k < m->M_rownnz[i]; k++) {
            int at = (int)m->M_rowadr[i] + k, j = m->M_colind[at];

            M[i * OSC_DOF + j] = M[j * OSC_DOF + i] = d->M[at];
        }
}

// Column of the site's Jacobian per arm joint: axis and lever, as mj_jacSite has it.
static void arm_jacobian(const mjModel *m, const mjData *d, const double *x, double *J)
{
    int i, k;

    for (i = 0; i < OSC_DOF; i++) {
        int joint = m->dof_jntid[i];
        const double *axis = d->xaxis + 3 * joint, *anchor = d->xanchor + 3 * joint;
        double lever[3] = {x[0] - anchor[0], x[1] - anchor[1], x[2] - anchor[2]}, turn[3];

        mju_cross(turn, axis, lever);
        for (k = 0; k < 3; k++) {
            J[k * OSC_DOF + i] = turn[k];
            J[(3 + k) * OSC_DOF + i] = axis[k];
        }
    }
}

static void refresh(struct osc *o, const struct osc_ids *ids, const mjModel *m, const mjData *d)
{
    memcpy(o->x, d->site_xpos + 3 * ids->grip_site, sizeof o->x);
    memcpy(o->R, d->site_xmat + 9 * ids->grip_site, sizeof o->R);
    memcpy(o->q, d->qpos, sizeof o->q);
    memcpy(o->qd, d->qvel, sizeof o->qd);
    arm_jacobian(m, d, o->x, o->J);
    mju_mulMatVec(o->v, o->J, o->qd, 3, OSC_DOF);
    mju_mulMatVec(o->w, o->J + 3 * OSC_DOF, o->qd, 3, OSC_DOF);
    arm_inertia(m, d, o->M);
    o->refresh_due = false;
}

void osc_begin(struct osc *o, const struct osc_ids *ids, const mjModel *m, const mjData *d)
{
    memset(o, 0, sizeof *o);
    refresh(o, ids, m, d);
    memcpy(o->goal_x, o->x, sizeof o->goal_x);
    memcpy(o->goal_R, o->R, sizeof o->goal_R);
    memcpy(o->posture, o->q, sizeof o->posture);
}

void osc_quat_to_mat(const double quat[4], double mat[9])
{
    float q[4], p[4][4];
    double sum = 0, scale;
    int i, j;

    for (i = 0; i < 4; i++) {
        q[i] = (float)quat[i];
        sum += (double)(float)(q[i] * q[i]);
    }
    scale = sqrt(2.0 / (double)(float)sum);
    for (i = 0; i < 4; i++)
        q[i] = (float)((double)q[i] * scale);
    for (i = 0; i < 4; i++)
        for (j = 0; j < 4; j++)
            p[i][j] = q[i] * q[j];
    mat[0] = 1.0 - (double)p[2][2] - (double)p[3][3];
    mat[1] = (double)(p[1][2] - p[3][0]);
    mat[2] = (double)(p[1][3] + p[2][0]);
    mat[3] = (double)(p[1][2] + p[3][0]);
    mat[4] = 1.0 - (double)p[1][1] - (double)p[3][3];
    mat[5] = (double)(p[2][3] - p[1][0]);
    mat[6] = (double)(p[1][3] - p[2][0]);
    mat[7] = (double)(p[2][3] + p[1][0]);
    mat[8] = 1.0 - (double)p[1][1] - (double)p[2][2];
}

static void rotation_of(const double axis_angle[3], double mat[9])
{
    double angle = sqrt(axis_angle[0] * axis_angle[0] + axis_angle[1] * axis_angle[1] +
                        axis_angle[2] * axis_angle[2]);
    double quat[4] = {1, 0, 0, 0};
    int i;

    if (angle > 0) {
        quat[0] = cos(angle / 2);
        for (i = 0; i < 3; i++)
            quat[1 + i] = axis_angle[i] / angle * sin(angle / 2);
    }
    osc_quat_to_mat(quat, mat);
}

void osc_set_goal(struct osc *o, const struct osc_ids *ids, const mjModel *m, const mjData *d,
                  const double *action, bool absolute)
{
    double u[6], turn[9];
    int i;

    if (o->refresh_due)
        refresh(o, ids, m, d);
    if (absolute) {
        memcpy(o->goal_x, action, sizeof o->goal_x);
        rotation_of(action + 3, o->goal_R);
        return;
    }
    for (i = 0; i < 6; i++)
        u[i] = mju_clip(action[i], -1, 1) * (i < 3 ? OUT_POSITION : OUT_ROTATION);
    if (u[3] != 0 || u[4] != 0 || u[5] != 0) { // otherwise the goal stays as it was
        rotation_of(u + 3, turn);
        mju_mulMatMat(o->goal_R, turn, o->R, 3, 3, 3);
    }
    for (i = 0; i < 3; i++)
        o->goal_x[i] = o->x[i] + u[i];
}

// Desired force and moment at the grip site.
static void wrench(const struct osc *o, double out[6])
{
    double kd = 2 * sqrt(KP), turn[3] = {0, 0, 0};
    int i, k;

    for (k = 0; k < 3; k++) {
        double now[3] = {o->R[k], o->R[3 + k], o->R[6 + k]}, c[3];
        double goal[3] = {o->goal_R[k], o->goal_R[3 + k], o->goal_R[6 + k]};

        mju_cross(c, now, goal);
        for (i = 0; i < 3; i++)
            turn[i] += c[i];
    }
    for (i = 0; i < 3; i++) {
        out[i] = KP * (o->goal_x[i] - o->x[i]) - kd * o->v[i];
        out[3 + i] = KP * (0.5 * turn[i]) - kd * o->w[i];
    }
}

// tau = J^T [Lp F; Lr T] + N^T M (kp (posture - q) - kd qd), where Lp, Lr, L are the inverses of
// J M^-1 J^T of the position rows, the rotation rows and both, and N = I - M^-1 J^T L J.
static void torque(const struct osc *o, double tau[OSC_DOF])
{
    double A[OSC_DOF * 6];      // M^-1 J^T
    double G[36], Gp[9], Gr[9]; // J M^-1 J^T and its diagonal blocks
    double f[6], force[6], acc[OSC_DOF], null[OSC_DOF], along[6], back[6];
    double kd = 2 * sqrt(POSTURE_KP);
    int i, k;

    spd_solve_transposed(o->M, OSC_DOF, o->J, 6, A);
    mju_mulMatMat(G, o->J, A, 6, OSC_DOF, 6);
    for (i = 0; i < 3; i++)
        for (k = 0; k < 3; k++) {
            Gp[3 * i + k] = G[6 * i + k];
            Gr[3 * i + k] = G[6 * (3 + i) + 3 + k];
        }
    wrench(o, f);
    spd_apply_inverse(Gp, 3, f, force);
    spd_apply_inverse(Gr, 3, f + 3, force + 3);
    for (i = 0; i < OSC_DOF; i++)
        acc[i] = POSTURE_KP * (o->posture[i] - o->q[i]) - kd * o->qd[i];
    mju_mulMatVec(null, o->M, acc, OSC_DOF, OSC_DOF);
    mju_mulMatTVec(along, A, null, OSC_DOF, 6);
    spd_apply_inverse(G, 6, along, back);
    for (i = 0; i < 6; i++)
        force[i] -= back[i];
    mju_mulMatTVec(tau, o->J, force, 6, OSC_DOF);
    for (i = 0; i < OSC_DOF; i++)
        tau[i] += null[i];
}

void osc_control(struct osc *o, const struct osc_ids *ids, const mjModel *m, mjData *d,
                 double gripper_action)
{
    double sign = (gripper_action > 0) - (gripper_action < 0), tau[OSC_DOF];
    int i;

    if (o->refresh_due)
        refresh(o, ids, m, d);
    torque(o, tau);
    for (i = 0; i < OSC_DOF; i++) {
        double limit = i < 5 ? TORQUE_LARGE : TORQUE_SMALL;

        d->ctrl[i] = mju_clip(tau[i] + d->qfrc_bias[i], -limit, limit);
    }
    for (i = 0; i < 2; i++) {
        double side = i == 0 ? -1 : 1; // the fingers move towards each other

        o->gripper[i] = mju_clip(o->gripper[i] + side * DT_GRIPPER * sign, -1, 1);
        d->ctrl[OSC_DOF + i] = -side * 0.02 + 0.02 * o->gripper[i];
    }
    o->refresh_due = true;
}
