#include "scenes/libero/motion.h"

#include <math.h>

#define UNIT_M       0.05  // m of an action of 1
#define UNIT_RAD     0.5   // rad
#define CLEARANCE    0.015 // m above obstacles
#define FINGER_REACH 0.065
#define PALM_UP      0.031 // m from the grip site up to the palm
#define GAIN         1.2

// ------------------------------------------------------------------ looking around

struct surroundings motion_look(const struct expert_view *v, struct box *boxes, bool *own, int body)
{
    struct surroundings s = {boxes, own, 0};
    int g;

    for (g = 0; g < v->m->ngeom; g++) {
        if (v->hand->geom_part[g] || v->m->geom_contype[g] + v->m->geom_conaffinity[g] == 0)
            continue;
        box_of_geom(&s.boxes[s.n], v->m, v->d, g);
        s.own[s.n++] = body_is_below(v->m, v->m->geom_bodyid[g], body);
    }
    return s;
}

bool motion_holds(const struct expert_view *v, int body)
{
    bool touched[3] = {false, false, false};
    int i, k;

    for (i = 0; i < v->d->ncon; i++)
        for (k = 0; k < 2; k++) {
            int g = v->d->contact[i].geom[k], other = v->d->contact[i].geom[1 - k];

            if (g < 0 || other < 0 || v->hand->geom_part[g] < 1 || v->hand->geom_part[g] > 2)
                continue;
            if (body_is_below(v->m, v->m->geom_bodyid[other], body))
                touched[v->hand->geom_part[g]] = true;
        }
    return touched[1] && touched[2];
}

double motion_opening(const struct expert_view *v)
{
    return 0.5 * (v->d->qpos[7] - v->d->qpos[8]);
}

double motion_preshape(const struct expert_view *v, double want)
{
    double command = v->d->ctrl[7];

    if (want >= GRASP_OPENING)
        return MOTION_OPEN;
    return command > want + 0.003 ? MOTION_CLOSE : command < want - 0.003 ? MOTION_OPEN : 0;
}

double motion_top(const struct surroundings *s, const double from[2], const double to[2],
                  double radius, bool with_own)
{
    static const double x[3] = {1, 0, 0}, y[3] = {0, 1, 0}, z[3] = {0, 0, 1};
    int i, k, n = 1 + (int)(hypot(to[0] - from[0], to[1] - from[1]) / 0.03);
    double top = -1e9;

    for (i = 0; i < s->n; i++) {
        const struct box *b = &s->boxes[i];
        double rx = box_reach(b, x) + radius, ry = box_reach(b, y) + radius;
        double high = b->center[2] + box_reach(b, z);

        if ((s->own[i] && !with_own) || high <= top)
            continue;
        for (k = 0; k <= n; k++) {
            double px = from[0] + k * (to[0] - from[0]) / n - b->center[0];
            double py = from[1] + k * (to[1] - from[1]) / n - b->center[1];

            if (fabs(px) < rx && fabs(py) < ry) {
                top = high;
                break;
            }
        }
    }
    return top;
}

void motion_own_reach(const struct surroundings *s, const double hand[3], double *down,
                      double *side)
{
    static const double x[3] = {1, 0, 0}, y[3] = {0, 1, 0}, z[3] = {0, 0, 1};
    int i;

    *down = *side = 0;
    for (i = 0; i < s->n; i++) {
        const struct box *b = &s->boxes[i];

        if (!s->own[i])
            continue;
        *down = fmax(*down, hand[2] - (b->center[2] - box_reach(b, z)));
        *side = fmax(*side, fabs(b->center[0] - hand[0]) + box_reach(b, x));
        *side = fmax(*side, fabs(b->center[1] - hand[1]) + box_reach(b, y));
    }
}

// Lowest height of the grip site on the way `from` - `to` at which nothing is hit.
static double safe_height(const struct expert_view *v, const struct surroundings *s,
                          const double from[2], const double to[2], const double hand[3], bool held)
{
    double down = v->hand->tip, side = FINGER_REACH, low, palm;

    if (held) {
        double d, r;

        motion_own_reach(s, hand, &d, &r);
        down = fmax(down, d);
        side = fmax(side, r);
    }
    low = motion_top(s, from, to, side, !held) + down + CLEARANCE;
    palm = motion_top(s, from, to, fmax(side, MOTION_PALM_REACH), !held) - PALM_UP + CLEARANCE;
    return fmax(low, palm);
}

// ------------------------------------------------------------------ motion

static void rotation_error(const double goal[9], const double now[9], double out[3])
{
    double R[9], q[4];

    mju_mulMatMatT(R, goal, now, 3, 3, 3);
    mju_mat2Quat(q, R);
    mju_quat2Vel(out, q, 1);
}

void motion_go(const struct expert_view *v, const double pos[3], const double R[9], double gripper,
               double action[MOTION_ACTION])
{
    struct hand_pose now;
    double step[3], turn[3], most = 1;
    int i;

    hand_now(v->hand, v->d, &now);
    mju_sub3(step, pos, now.pos);
    rotation_error(R, now.R, turn);
    for (i = 0; i < 3; i++) {
        action[i] = GAIN * step[i] / UNIT_M;
        action[3 + i] = mju_clip(turn[i] / UNIT_RAD, -1, 1);
        most = fmax(most, fabs(action[i]));
    }
    for (i = 0; i < 3; i++)
        action[i] /= most;
    action[6] = gripper;
}

bool motion_travel(const struct expert_view *v, const struct surroundings *s, const double pos[3],
                   const double R[9], double gripper, bool held, double action[MOTION_ACTION])
{
    struct hand_pose now;
    double to[3] = {pos[0], pos[1], pos[2]}, away, turn[3], height;

    hand_now(v->hand, v->d, &now);
    rotation_error(R, now.R, turn);
    away = hypot(pos[0] - now.pos[0], pos[1] - now.pos[1]);
    height = safe_height(v, s, now.pos, pos, now.pos, held);
    to[2] = fmax(pos[2], height);
    if (away > 0.02 && now.pos[2] < height - 0.01) { // up first
        to[0] = now.pos[0];
        to[1] = now.pos[1];
        to[2] += 0.02;
    }
    motion_go(v, to, R, gripper, action);
    return away < 0.012 && mju_norm3(turn) < 0.12;
}

void motion_step_back(const struct hand_pose *from, double by, double out[3])
{
    int i;

    for (i = 0; i < 3; i++)
        out[i] = from->pos[i] - by * from->R[3 * i + 2];
}
