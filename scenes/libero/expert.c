#include "scenes/libero/expert.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

#define PATIENCE  120   // actions on the way to a grasp
#define PRESS     0.025 // m that a dragging hand aims below the thing
#define DRAG_LEAD 0.04  // m, how far ahead it aims
#define BACK      0.09  // m before the grasp, where a leaning hand starts from

static struct surroundings look(struct expert *e, const struct expert_view *v, int body)
{
    return motion_look(v, e->boxes, e->own, body);
}

static void enter(struct expert *e, enum expert_phase phase)
{
    e->phase = phase;
    e->count = 0;
    e->lost = 0;
    e->held = 0;
    e->still = 0;
}

// ------------------------------------------------------------------ skills

static void add_skill(struct expert *e, const struct predicate *p)
{
    struct skill *k = &e->skills[e->n_skill];

    if (p->negated || p->kind == PREDICATE_TRUE)
        return;
    memset(k, 0, sizeof *k);
    k->wanted = *p;
    k->kind = p->kind == PREDICATE_UP      ? SKILL_LIFT
              : p->kind == PREDICATE_JOINT ? SKILL_JOINT
                                           : SKILL_PLACE;
    k->joint = p->kind == PREDICATE_JOINT ? p->joints[0] : -1;
    e->n_skill++;
}

// Doors and drawers are shut by pushing.
static bool choose_push(struct expert *e, const struct expert_view *v, const struct skill *k)
{
    struct surroundings s;

    if (k->kind != SKILL_JOINT || !k->wanted.all)
        return false;
    s = look(e, v, v->m->jnt_bodyid[k->joint]);
    return joint_slides(v, k->joint) || joint_extent(v, k->joint, &s) > 0.1;
}

static bool waits_for(const struct predicate *x, const struct predicate *y)
{
    if (y->kind == PREDICATE_JOINT)
        return !y->all && x->kind != PREDICATE_JOINT; // open first
    if (x->kind == PREDICATE_JOINT)
        return x->all; // close last
    return x->b >= 0 && x->b == y->a;
}

static void order_skills(struct expert *e, const struct expert_view *v)
{
    bool done[GOAL_MAX] = {false};
    int i, k, round;

    e->n_skill = 0;
    for (round = 0; round < v->goal->n; round++)
        for (i = 0; i < v->goal->n; i++) {
            bool ready = !done[i];

            for (k = 0; k < v->goal->n && ready; k++)
                if (!done[k] && k != i && waits_for(&v->goal->atoms[i], &v->goal->atoms[k]))
                    ready = false;
            if (ready || (round + 1 == v->goal->n && !done[i])) {
                done[i] = true;
                add_skill(e, &v->goal->atoms[i]);
            }
        }
}

static bool holds_now(const struct expert_view *v, const struct skill *k)
{
    return predicate_holds(&k->wanted, v->binding, v->m, v->d);
}

// What has to be done before `k` if it is not: the drawer that it needs is shut. False if there is
// no such thing.
static bool comes_first(const struct expert_view *v, const struct skill *k, struct skill *first)
{
    int j, body;

    if (k->kind != SKILL_PLACE || k->wanted.site < 0 || k->wanted.b < 0)
        return false;
    body = v->m->site_bodyid[k->wanted.site];
    if (v->m->body_jntnum[body] != 1 || !v->binding->items[k->wanted.b].item.category->rules[0].has)
        return false;
    j = v->m->body_jntadr[body];
    memset(first, 0, sizeof *first);
    first->kind = SKILL_JOINT;
    first->joint = j;
    first->wanted.kind = PREDICATE_JOINT;
    first->wanted.a = first->wanted.site = -1;
    first->wanted.b = k->wanted.b;
    first->wanted.rule = v->binding->items[k->wanted.b].item.category->rules[JOINT_OPEN];
    first->wanted.n_joint = 1;
    first->wanted.joints[0] = j;
    return true;
}

// Set e->now by which, first and push.
static void set_skill(struct expert *e, const struct expert_view *v)
{
    const struct skill *k = &e->skills[e->which];
    struct skill first;

    e->now = e->first && comes_first(v, k, &first) ? first : *k;
    e->now.push = e->push;
}

static bool choose_skill(struct expert *e, const struct expert_view *v)
{
    int i;

    for (i = 0; i < e->n_skill; i++) {
        struct skill first;

        if (holds_now(v, &e->skills[i]))
            continue;
        e->which = i;
        e->first = comes_first(v, &e->skills[i], &first) && !holds_now(v, &first);
        e->push = choose_push(e, v, e->first ? &first : &e->skills[i]);
        set_skill(e, v);
        e->has_grasp = false;
        if (plan_body(v, &e->now) != e->taboo_body)
            e->n_taboo = 0;
        e->taboo_body = plan_body(v, &e->now);
        enter(e, PHASE_APPROACH);
        return true;
    }
    return false;
}

// ------------------------------------------------------------------ planning

// Another thing goes to the same site later.
static bool shares_place(const struct expert *e, const struct expert_view *v)
{
    int i;

    for (i = 0; i < e->n_skill; i++) {
        const struct predicate *p = &e->skills[i].wanted;

        if (p->kind == PREDICATE_ON_SITE && p->site == e->now.wanted.site &&
            p->a != e->now.wanted.a && !predicate_holds(p, v->binding, v->m, v->d))
            return true;
    }
    return false;
}

static struct plan_request request(const struct expert *e, const struct expert_view *v,
                                   const struct surroundings *s)
{
    struct plan_request q = {.view = v, .skill = &e->now, .around = s, .neutral = e->neutral};

    memcpy(q.taboos, e->taboos, sizeof q.taboos);
    q.n_taboo = e->n_taboo < TABOO_MAX ? e->n_taboo : TABOO_MAX;
    q.spread = shares_place(e, v);
    return q;
}

static bool plan_grasp(struct expert *e, const struct expert_view *v, const struct surroundings *s)
{
    struct plan_request q = request(e, v, s);

    mju_copy3(e->grasp_origin, v->d->xpos + 3 * plan_body(v, &e->now));
    return plan_reach(&q, &e->reach);
}

static void choose_place(struct expert *e, const struct expert_view *v,
                         const struct surroundings *s)
{
    struct plan_request q = request(e, v, s);
    struct hand_pose now;

    hand_now(v->hand, v->d, &now);
    e->place = plan_place(&q, &now, motion_opening(v) + 0.005);
}

// ------------------------------------------------------------------ phases

static void grasp_failed(struct expert *e)
{
    struct taboo *t = &e->taboos[e->n_taboo++ % TABOO_MAX];

    mju_sub3(t->offset, e->reach.grasp.hand.pos, e->grasp_origin);
    t->yaw = hand_yaw(e->reach.grasp.hand.R);
    e->has_grasp = false;
    enter(e, PHASE_RETREAT);
}

static bool near_hand(const struct expert_view *v, const double pos[3], double distance)
{
    return mju_dist3(v->d->site_xpos + 3 * v->hand->site, pos) < distance;
}

static bool grip_ready(const struct expert *e, const struct expert_view *v)
{
    return e->reach.push ? motion_opening(v) < 0.005
                         : fabs(motion_opening(v) - e->reach.grasp.opening) < 0.005;
}

static void approach(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    int body = plan_body(v, &e->now);
    struct surroundings s = look(e, v, body);
    double moved[3], above[3], grip;
    bool there;

    mju_sub3(moved, v->d->xpos + 3 * body, e->grasp_origin);
    if (!e->has_grasp || (mju_norm3(moved) > 0.01 && e->count % 8 == 7)) {
        e->has_grasp = plan_grasp(e, v, &s);
        if (!e->has_grasp) { // out of ideas from here: stay, the world may move
            struct hand_pose now;

            hand_now(v->hand, v->d, &now);
            motion_go(v, now.pos, now.R, MOTION_OPEN, action);
            e->n_taboo = 0;
            return;
        }
    }
    grip = e->reach.push ? MOTION_CLOSE : motion_preshape(v, e->reach.grasp.opening);
    mju_copy3(above, e->reach.grasp.hand.pos);
    if (e->reach.leaning)
        motion_step_back(&e->reach.grasp.hand, BACK, above);
    there = motion_travel(v, &s, above, e->reach.grasp.hand.R, grip, false, action);
    if (e->reach.leaning && there) { // then down, before the front
        motion_go(v, above, e->reach.grasp.hand.R, grip, action);
        there = near_hand(v, above, 0.015);
    }
    if (there && grip_ready(e, v))
        enter(e, PHASE_DESCEND);
    else if (e->count > PATIENCE) // it cannot be reached
        grasp_failed(e);
}

static void descend(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    const struct hand_pose *to = &e->reach.grasp.hand;
    struct hand_pose now;
    double off[3], grip = e->reach.push ? MOTION_CLOSE : motion_preshape(v, e->reach.grasp.opening);

    hand_now(v->hand, v->d, &now);
    mju_sub3(off, to->pos, now.pos);
    motion_go(v, to->pos, to->R, grip, action);
    if (hypot(off[0], off[1]) > (e->reach.leaning ? BACK + 0.04 : 0.03))
        enter(e, PHASE_APPROACH);
    else if (mju_norm3(off) < 0.005 || e->still >= 6 || e->count > 60)
        enter(e, e->reach.push ? PHASE_WORK : PHASE_CLOSE);
    if (e->phase == PHASE_CLOSE)
        action[6] = MOTION_CLOSE;
}

static void take(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    motion_go(v, e->reach.grasp.hand.pos, e->reach.grasp.hand.R, MOTION_CLOSE, action);
    if (e->held >= 2)
        enter(e, e->now.kind == SKILL_JOINT ? PHASE_WORK : PHASE_CARRY);
    else if (e->count > 14)
        grasp_failed(e);
}

// Keep the thing's origin on its way to `goal`.
static void hand_for(const struct expert_view *v, int body, const double goal[3], const double R[9],
                     double out[3])
{
    const double *origin = v->d->xpos + 3 * body;
    struct hand_pose now;
    double off[3], turn[9], turned[3];

    hand_now(v->hand, v->d, &now);
    mju_sub3(off, now.pos, origin);
    mju_mulMatMatT(turn, R, now.R, 3, 3, 3);
    mju_mulMatVec3(turned, turn, off);
    mju_add3(out, goal, turned);
}

static void carry(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    int body = plan_body(v, &e->now);
    struct surroundings s = look(e, v, body);
    double to[3];

    if (e->lost >= 3) {
        grasp_failed(e);
        e->phase = PHASE_APPROACH;
        approach(e, v, action);
        return;
    }
    if (e->now.kind == SKILL_LIFT) {
        struct hand_pose now;

        hand_now(v->hand, v->d, &now);
        mju_copy3(to, now.pos);
        to[2] += 1.03 - v->d->xpos[3 * body + 2];
        motion_go(v, to, e->reach.grasp.hand.R, MOTION_CLOSE, action);
        return;
    }
    if (e->count <= 1)
        choose_place(e, v, &s);
    hand_for(v, body, e->place.pos, e->place.R, to);
    if (motion_travel(v, &s, to, e->place.R, MOTION_CLOSE, true, action))
        enter(e, PHASE_LOWER);
}

static void lower(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    int body = plan_body(v, &e->now);
    struct hand_pose now;
    double to[3], off[3];

    if (e->lost >= 3) {
        enter(e, PHASE_RELEASE);
        motion_go(v, (hand_now(v->hand, v->d, &now), now.pos), now.R, MOTION_OPEN, action);
        return;
    }
    hand_now(v->hand, v->d, &now);
    hand_for(v, body, e->place.pos, e->place.R, to);
    motion_go(v, to, e->place.R, MOTION_CLOSE, action);
    mju_sub3(off, to, now.pos);
    if (hypot(off[0], off[1]) > 0.04)
        enter(e, PHASE_CARRY);
    else if (mju_norm3(off) < 0.006 || e->still >= 5 || e->count > 60)
        enter(e, PHASE_RELEASE);
}

static bool progressed(struct expert *e, double at, double least)
{
    if (e->count <= 1 || fabs(at - e->progress) > least) {
        e->progress = at;
        e->stalled = 0;
        return true;
    }
    e->stalled++;
    return false;
}

// Press on the thing and move it over the table.
static void drag(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    double centre[3], slack[2], off[3], left;
    struct hand_pose now;

    hand_now(v->hand, v->d, &now);
    plan_target(v, &e->now.wanted, centre, slack);
    mju_sub3(off, centre, v->d->xpos + 3 * plan_body(v, &e->now));
    left = hypot(off[0], off[1]);
    mju_scl(off, off, fmin(1, DRAG_LEAD / fmax(left, 1e-9)), 2);
    off[2] = e->reach.grasp.hand.pos[2] - PRESS - now.pos[2];
    mju_addTo3(now.pos, off);
    hand_down(v->hand, now.pos, hand_yaw(e->reach.grasp.hand.R), now.R);
    motion_go(v, now.pos, now.R, MOTION_CLOSE, action);
    progressed(e, left, 0.003);
    if (left < 0.4 * slack[0] || e->stalled > 25)
        enter(e, PHASE_RETREAT);
}

static void work(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    bool slide;
    double q, left, lead;
    struct hand_pose to;

    if (e->now.kind != SKILL_JOINT) {
        drag(e, v, action);
        return;
    }
    slide = joint_slides(v, e->now.joint);
    q = joint_position(v, e->now.joint);
    left = joint_goal(v, e->now.joint, &e->now.wanted.rule) - q;
    lead = slide ? (e->reach.push ? 0.1 : 0.04) : 0.5;
    if (e->count <= 1) {
        hand_now(v->hand, v->d, &e->work_from);
        e->work_q = q;
    }
    to = e->work_from;
    progressed(e, q, slide ? 0.002 : 0.02);
    joint_carry(v, e->now.joint, q - e->work_q + (left > 0 ? lead : -lead), to.pos, to.R);
    motion_go(v, to.pos, e->reach.push ? e->reach.grasp.hand.R : to.R, MOTION_CLOSE, action);
    if (fabs(left) < (slide ? 0.003 : 0.05) || e->stalled > 25 ||
        (holds_now(v, &e->now) && e->stalled > 8)) {
        if (holds_now(v, &e->now))
            enter(e, PHASE_RELEASE);
        else
            grasp_failed(e);
    }
}

static void release(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    struct hand_pose now;
    double wide = e->reach.push ? 0 : fmin(0.5 * e->reach.grasp.width + 0.006, 0.037);

    hand_now(v->hand, v->d, &now);
    motion_go(v, now.pos, now.R, e->reach.push ? MOTION_CLOSE : MOTION_OPEN, action);
    if (motion_opening(v) > wide || e->count > 10)
        enter(e, PHASE_RETREAT);
}

static void retreat(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    struct hand_pose now;

    hand_now(v->hand, v->d, &now);
    motion_step_back(&now, 0.05, now.pos);
    motion_go(v, now.pos, now.R, e->reach.push ? MOTION_CLOSE : MOTION_OPEN, action);
    if (e->count >= 7) {
        e->busy = e->has_grasp = false;
        enter(e, PHASE_APPROACH);
    }
}

static void (*const phases[])(struct expert *, const struct expert_view *,
                              double[MOTION_ACTION]) = {
    [PHASE_APPROACH] = approach, [PHASE_DESCEND] = descend, [PHASE_CLOSE] = take,
    [PHASE_CARRY] = carry,       [PHASE_LOWER] = lower,     [PHASE_WORK] = work,
    [PHASE_RELEASE] = release,   [PHASE_RETREAT] = retreat,
};

// ------------------------------------------------------------------ interface

enum status expert_open(struct expert *e, const mjModel *m)
{
    e->boxes = mem_alloc((size_t)m->ngeom, sizeof e->boxes[0]);
    e->own = mem_alloc((size_t)m->ngeom, sizeof e->own[0]);
    return e->boxes && e->own ? ST_OK : ST_NOMEM;
}

void expert_close(struct expert *e)
{
    mem_free(e->boxes);
    mem_free(e->own);
}

void expert_begin(struct expert *e, const struct expert_view *v)
{
    struct expert kept = {.boxes = e->boxes, .own = e->own};
    struct hand_pose now;

    *e = kept;
    hand_now(v->hand, v->d, &now);
    e->neutral = hand_yaw(now.R);
    order_skills(e, v);
}

void expert_save(const struct expert *e, void *kept)
{
    memset(kept, 0, EXPERT_KEPT_BYTES);
    memcpy(kept, &e->which, sizeof *e - offsetof(struct expert, which));
}

void expert_load(struct expert *e, const struct expert_view *v, const void *kept)
{
    memcpy(&e->which, kept, sizeof *e - offsetof(struct expert, which));
    order_skills(e, v);
    if (e->which < e->n_skill)
        set_skill(e, v);
    else
        e->busy = false;
}

static int byte_at(const void *kept, size_t field)
{
    return ((const uint8_t *)kept)[field - offsetof(struct expert, which)];
}

static bool fine_numbers(const double *x, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (!(fabs(x[i]) < 1e6)) // m, rad, costs: no sane one is near it
            return false;
    return true;
}

#define FLAG_AT(field)  (byte_at(kept, offsetof(struct expert, field)) <= 1)
#define COUNT_OF(field) (e.field >= 0 && e.field <= 1000000000)
#define FINE(part)      fine_numbers((const double *)&(part), (sizeof(part)) / (sizeof(double)))

enum status expert_check(const struct goal *goal, const void *kept)
{
    struct expert e = {0};
    bool fine = FLAG_AT(first) && FLAG_AT(push) && FLAG_AT(busy) && FLAG_AT(has_grasp) &&
                FLAG_AT(reach.push) && FLAG_AT(reach.leaning);

    memcpy(&e.which, kept, sizeof e - offsetof(struct expert, which));
    fine = fine && e.which >= 0 && e.which < goal->n && e.phase >= 0 && e.phase <= PHASE_RETREAT &&
           COUNT_OF(count) && COUNT_OF(lost) && COUNT_OF(held) && COUNT_OF(still) &&
           COUNT_OF(n_taboo) && COUNT_OF(stalled) && FINE(e.last) && FINE(e.neutral) &&
           FINE(e.reach.grasp.hand) && FINE(e.reach.grasp.width) && FINE(e.reach.grasp.opening) &&
           FINE(e.grasp_origin) && FINE(e.taboos) && FINE(e.place.pos) && FINE(e.place.R) &&
           FINE(e.work_from) && FINE(e.work_q) && FINE(e.progress);
    return fine ? ST_OK : FAIL(ST_PROTO, "the expert's part of the state makes no sense");
}

static void watch(struct expert *e, const struct expert_view *v)
{
    struct hand_pose now;
    double off[3];

    hand_now(v->hand, v->d, &now);
    mju_sub3(off, now.pos, e->last);
    e->still = mju_norm3(off) < 0.0015 ? e->still + 1 : 0;
    mju_copy3(e->last, now.pos);
    if (motion_holds(v, plan_body(v, &e->now))) {
        e->held++;
        e->lost = 0;
    } else {
        e->held = 0;
        e->lost++;
    }
}

void expert_act(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION])
{
    memset(action, 0, MOTION_ACTION * sizeof action[0]);
    if (!e->busy)
        e->busy = choose_skill(e, v);
    if (!e->busy) { // all done: stay
        action[6] = MOTION_OPEN;
        return;
    }
    watch(e, v);
    phases[e->phase](e, v, action);
    e->count++;
}
