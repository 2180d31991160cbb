#include "scenes/libero/articulation.h"

#include <math.h>
#include <string.h>

double joint_position(const struct expert_view *v, int joint)
{
    return v->d->qpos[v->m->jnt_qposadr[joint]];
}

bool joint_slides(const struct expert_view *v, int joint)
{
    return v->m->jnt_type[joint] == mjJNT_SLIDE;
}

double joint_goal(const struct expert_view *v, int joint, const struct joint_rule *r)
{
    double past = joint_slides(v, joint) ? 0.05 : 0.3;
    const double *range = v->m->jnt_range + 2 * joint;

    if (r->less)
        return fmax(r->value - past, range[0]);
    return fmin(r->value + past, range[1]);
}

void joint_carry(const struct expert_view *v, int joint, double dq, double pos[3], double R[9])
{
    const double *axis = v->d->xaxis + 3 * joint, *anchor = v->d->xanchor + 3 * joint;
    double quat[4], turn[9], off[3], out[9];

    if (joint_slides(v, joint)) {
        mju_addToScl3(pos, axis, dq);
        return;
    }
    mju_axisAngle2Quat(quat, axis, dq);
    mju_quat2Mat(turn, quat);
    mju_sub3(off, pos, anchor);
    mju_mulMatVec3(pos, turn, off);
    mju_addTo3(pos, anchor);
    mju_mulMatMat(out, turn, R, 3, 3, 3);
    memcpy(R, out, sizeof out);
}

void joint_direction(const struct expert_view *v, int joint, bool less, const double pos[3],
                     double dir[3])
{
    const double *axis = v->d->xaxis + 3 * joint;
    double off[3];

    if (joint_slides(v, joint))
        mju_copy3(dir, axis);
    else {
        mju_sub3(off, pos, v->d->xanchor + 3 * joint);
        mju_cross(dir, axis, off);
    }
    mju_normalize3(dir);
    if (less)
        mju_scl3(dir, dir, -1);
}

int joint_outermost(const struct expert_view *v, int joint, bool less, bool push,
                    const struct surroundings *s)
{
    const double *anchor = v->d->xanchor + 3 * joint;
    double best = -1e9, dir[3], off[3];
    int i, found = -1;

    joint_direction(v, joint, less, anchor, dir);
    if (push)
        mju_scl3(dir, dir, -1);
    for (i = 0; i < s->n; i++) {
        double far;

        if (!s->own[i])
            continue;
        mju_sub3(off, s->boxes[i].center, anchor);
        far = joint_slides(v, joint) ? mju_dot3(off, dir) + box_reach(&s->boxes[i], dir)
                                     : hypot(off[0], off[1]);
        if (far > best + 1e-6) {
            best = far;
            found = i;
        }
    }
    return found;
}

double joint_extent(const struct expert_view *v, int joint, const struct surroundings *s)
{
    const double *anchor = v->d->xanchor + 3 * joint;
    double far = 0;
    int i;

    for (i = 0; i < s->n; i++)
        if (s->own[i])
            far = fmax(far,
                       hypot(s->boxes[i].center[0] - anchor[0], s->boxes[i].center[1] - anchor[1]));
    return far;
}
