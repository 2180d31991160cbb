#include "scenes/libero/plan.h"

#include <math.h>
#include <string.h>

#define PUSH_LEAN 0.6 // rad
#define NEVER     1e9
#define POOR      0.12 // cost of a grasp that is worse than dragging

// ------------------------------------------------------------------ putting down

void plan_target(const struct expert_view *v, const struct predicate *p, double centre[3],
                 double slack[2])
{
    const double *h = v->m->site_size + 3 * p->site, *R = v->d->site_xmat + 9 * p->site;
    double e[3];
    int i;

    if (p->kind == PREDICATE_ON_OBJECT) {
        mju_copy3(centre, v->d->xpos + 3 * v->binding->items[p->b].body);
        slack[0] = slack[1] = 0.012;
        return;
    }
    mju_copy3(centre, v->d->site_xpos + 3 * p->site);
    mju_mulMatVec3(e, R, h);
    for (i = 0; i < 2; i++)
        slack[i] = 0.7 * (p->kind == PREDICATE_IN ? fabs(e[i]) : fmin(h[0], h[1]));
}

// How far height z of the origin is outside of what the predicate wants.
static double height_fault(const struct expert_view *v, const struct predicate *p, double z)
{
    const double *h = v->m->site_size + 3 * p->site, *c = v->d->site_xpos + 3 * p->site;
    double e[3], low, high;

    if (p->kind == PREDICATE_ON_OBJECT)
        return fmax(0, v->d->xpos[3 * v->binding->items[p->b].body + 2] - z);
    mju_mulMatVec3(e, v->d->site_xmat + 9 * p->site, h);
    low = p->kind == PREDICATE_IN ? c[2] - fabs(e[2]) - 0.01 : c[2] + h[2] - 0.005;
    high = p->kind == PREDICATE_IN ? c[2] + fabs(e[2]) : c[2] + h[2] + 0.1;
    return fmax(0, fmax(low - z, z - high));
}

// A thing held by the hand at `from`, to be put down.
struct holding {
    const struct surroundings *around;
    const double *origin; // of the thing
    struct hand_pose from;
    double opening;
    bool spread; // others go to the same place: not into its middle
};

// Let the thing down at x, y with the hand turned to `R`: where it ends, and what speaks against
// it.
static void try_place(const struct expert_view *v, const struct skill *k, const struct holding *h,
                      const double xy[2], const double R[9], struct place_plan *out)
{
    static const double down[3] = {0, 0, -1};
    double shift[3], reach_down, side, thing, free, off[3], turn[9];
    struct hand_pose hand;

    motion_own_reach(h->around, h->from.pos, &reach_down, &side);
    shift[0] = xy[0] - h->origin[0];
    shift[1] = xy[1] - h->origin[1];
    shift[2] = motion_top(h->around, xy, xy, fmax(side, MOTION_PALM_REACH), false) + reach_down +
               0.01 - h->from.pos[2];
    mju_mulMatMatT(turn, R, h->from.R, 3, 3, 3);
    mju_sub3(off, h->from.pos, h->origin);
    mju_mulMatVec3(hand.pos, turn, off);
    mju_addTo3(hand.pos, h->origin);
    mju_addTo3(hand.pos, shift);
    memcpy(hand.R, R, sizeof hand.R);
    thing = thing_free(h->around, turn, h->origin, shift, down, 1.0);
    free = fmin(thing - 0.001, hand_free(v->hand, h->around, &hand, h->opening, down, 1.0) - 0.004);
    out->pos[0] = xy[0];
    out->pos[1] = xy[1];
    out->pos[2] = h->origin[2] + shift[2] - free;
    memcpy(out->R, R, sizeof out->R);
    out->cost = (thing - free) + (h->origin[2] + shift[2] - thing) +
                10 * height_fault(v, &k->wanted, h->origin[2] + shift[2] - thing);
}

static void try_around(const struct expert_view *v, const struct skill *skill,
                       const struct holding *h, const double centre[3], const double at[2],
                       const double step[2], int n, const double R[9], struct place_plan *best)
{
    int i, k;

    for (i = -n; i <= n; i++)
        for (k = -n; k <= n; k++) {
            double xy[2] = {at[0] + i * step[0], at[1] + k * step[1]};
            double off = hypot(xy[0] - centre[0], xy[1] - centre[1]);
            struct place_plan p;

            try_place(v, skill, h, xy, R, &p);
            p.cost += (h->spread ? -0.5 : 0.5) * off;
            if (p.cost < best->cost)
                *best = p;
        }
}

// Over the region in steps, then finer about the best.
static void try_yaw(const struct expert_view *v, const struct skill *skill, const struct holding *h,
                    double yaw, double extra, struct place_plan *best)
{
    double centre[3], slack[2], step[2], R[9];
    struct place_plan here = {.cost = NEVER};
    int level;

    plan_target(v, &skill->wanted, centre, slack);
    hand_down(v->hand, centre, yaw, R);
    step[0] = 0.5 * slack[0];
    step[1] = 0.5 * slack[1];
    try_around(v, skill, h, centre, centre, step, 2, R, &here);
    for (level = 0; level < 3 && mju_max(step[0], step[1]) > 0.006; level++) {
        double at[2] = {here.pos[0], here.pos[1]};

        step[0] *= 0.5;
        step[1] *= 0.5;
        try_around(v, skill, h, centre, at, step, 1, R, &here);
    }
    here.cost += extra;
    if (here.cost < best->cost)
        *best = here;
}

struct place_plan plan_place(const struct plan_request *q, const struct hand_pose *from,
                             double opening)
{
    const struct expert_view *v = q->view;
    static const double turns[] = {0, 0.5 * mjPI, -0.5 * mjPI}; // as held, or by a quarter
    struct holding h = {q->around, v->d->xpos + 3 * v->binding->items[q->skill->wanted.a].body,
                        *from, opening, q->spread};
    struct place_plan best = {.cost = NEVER};
    int i;

    for (i = 0; i < 3; i++) {
        double yaw = hand_yaw(from->R) + turns[i];

        if (i == 0 || fabs(remainder(yaw - q->neutral, 2 * mjPI)) < 1.7)
            try_yaw(v, q->skill, &h, yaw, i > 0 ? 0.02 : 0, &best);
    }
    return best;
}

// ------------------------------------------------------------------ taking hold

int plan_body(const struct expert_view *v, const struct skill *k)
{
    if (k->kind == SKILL_JOINT)
        return v->m->jnt_bodyid[k->joint];
    return v->binding->items[k->wanted.a].body;
}

// The closed hand behind what it pushes, palm along the front and leaning so that the finger tips
// are foremost: nothing above is in the way then.
static bool plan_push(const struct plan_request *q, struct reach *out)
{
    const struct expert_view *v = q->view;
    const struct joint_rule *r = &q->skill->wanted.rule;
    int at = joint_outermost(v, q->skill->joint, r->less, true, q->around);
    struct hand_pose *p = &out->grasp.hand;
    double dir[3], z[3] = {0, 0, 1}, across;
    const struct box *b;

    if (at < 0)
        return false;
    b = &q->around->boxes[at];
    joint_direction(v, q->skill->joint, r->less, b->center, dir);
    mju_addScl3(p->pos, b->center, dir, -(box_reach(b, dir) + 0.04));
    p->pos[2] = b->center[2] + fmax(0, box_reach(b, z) - 0.01);
    across = atan2(dir[1], dir[0]) + 0.5 * mjPI;
    hand_leaning(q->neutral + remainder(across - q->neutral, mjPI), dir, PUSH_LEAN, p->R);
    out->leaning = out->push = true;
    out->grasp.width = out->grasp.opening = 0;
    return true;
}

// The closed hand down on the middle of a flat thing, to drag it; turned so that it gets lowest.
static void plan_drag(const struct plan_request *q, struct reach *out)
{
    static const double down[3] = {0, 0, -1}, turns[] = {0, 0.5 * mjPI};
    const struct expert_view *v = q->view;
    struct surroundings all = *q->around;
    struct hand_pose p;
    int i;

    memset(all.own, 0, (size_t)all.n * sizeof all.own[0]);
    for (i = 0; i < 2; i++) {
        mju_copy3(p.pos, v->d->xpos + 3 * plan_body(v, q->skill));
        p.pos[2] += 0.2;
        hand_down(v->hand, p.pos, q->neutral + turns[i], p.R);
        p.pos[2] -= hand_free(v->hand, &all, &p, 0, down, 0.3) + 0.002;
        if (i == 0 || p.pos[2] < out->grasp.hand.pos[2] - 0.005)
            out->grasp.hand = p;
    }
    out->push = true;
    out->grasp.width = out->grasp.opening = 0;
}

// Hold of the drawer's handle, across the pull: from above or, if the fingers do not fit behind it,
// leaning towards the front.
static bool plan_pull(const struct plan_request *q, struct grasp_query *ask, struct reach *out)
{
    const struct expert_view *v = q->view;
    const struct skill *k = q->skill;
    static const double leans[] = {0, 0.5, 0.8, 1.1, 1.4};
    int at = joint_outermost(v, k->joint, k->wanted.rule.less, false, q->around), i;
    struct grasp found[GRASP_MAX];
    double dir[3];

    if (at < 0)
        return false;
    joint_direction(v, k->joint, k->wanted.rule.less, q->around->boxes[at].center, dir);
    ask->fixed_yaw = true;
    ask->preferred = q->neutral + remainder(atan2(dir[1], dir[0]) - q->neutral, mjPI);
    memcpy(ask->near, q->around->boxes[at].center, sizeof ask->near);
    ask->near_radius = 0.04;
    ask->wide = true;
    ask->lean_to[0] = -dir[0];
    ask->lean_to[1] = -dir[1];
    for (i = 0; i < (int)(sizeof leans / sizeof leans[0]); i++) {
        ask->lean = leans[i];
        out->leaning = ask->lean > 0;
        if (grasp_find(ask, found) > 0) {
            out->grasp = found[0];
            return true;
        }
    }
    return false;
}

// The grasp that is best for taking and for putting down.
static int easiest_to_place(const struct plan_request *q, const struct grasp *found, int n)
{
    double best = NEVER;
    int i, at = 0;

    for (i = 0; i < n; i++) {
        struct place_plan p = plan_place(q, &found[i].hand, 0.5 * found[i].width + 0.007);

        if (found[i].cost + p.cost < best) {
            best = found[i].cost + p.cost;
            at = i;
        }
    }
    return at;
}

bool plan_reach(const struct plan_request *q, struct reach *out)
{
    const struct expert_view *v = q->view;
    const struct skill *k = q->skill;
    int body = plan_body(v, k), n;
    bool slide;
    struct grasp_query ask = {.hand = v->hand, .around = q->around, .n_taboo = q->n_taboo};
    struct grasp found[GRASP_MAX];

    memset(out, 0, sizeof *out);
    if (k->kind == SKILL_JOINT && k->push)
        return plan_push(q, out);
    mju_copy3(ask.origin, v->d->xpos + 3 * body);
    mju_copy3(ask.centre, v->d->xipos + 3 * body);
    ask.yaw = ask.preferred = q->neutral;
    memcpy(ask.taboos, q->taboos, sizeof ask.taboos);
    if (k->kind == SKILL_JOINT && joint_slides(v, k->joint))
        return plan_pull(q, &ask, out);
    if (k->kind == SKILL_JOINT) {
        mju_copy3(ask.centre, v->d->xanchor + 3 * k->joint);
        ask.preferred = q->neutral + (k->wanted.rule.less ? 0.4 : -0.4); // then there is room
    }
    n = grasp_find(&ask, found);
    slide = k->wanted.kind == PREDICATE_ON_SITE && k->wanted.b < 0; // on the table
    if (n == 0 && !slide)
        return false;
    if (n == 0 || (slide && found[0].cost > POOR))
        plan_drag(q, out);
    else
        out->grasp = found[k->kind == SKILL_PLACE ? easiest_to_place(q, found, n) : 0];
    return true;
}
