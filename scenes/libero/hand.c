#include "scenes/libero/hand.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

#define SLABS    6    // boxes along n that a finger's or the palm's mesh is cut into
#define REACH    0.65 // m from shoulder to wrist; the arm is straight at 0.72
#define LEAN_MAX 0.8  // rad

// ------------------------------------------------------------------ slabs of a convex hull

struct slab {
    double low[3], high[3];
    bool any;
};

static void grow(struct slab *s, const double p[3])
{
    int i;

    for (i = 0; i < 3; i++) {
        s->low[i] = s->any ? fmin(s->low[i], p[i]) : p[i];
        s->high[i] = s->any ? fmax(s->high[i], p[i]) : p[i];
    }
    s->any = true;
}

// The part of segment p q with n between z[0] and z[1].
static void grow_segment(struct slab *s, const double p[3], const double q[3], const double z[2])
{
    double rise = q[2] - p[2], t[2] = {0, 1}, x[3];
    int i, k;

    for (k = 0; k < 2; k++) {
        double at = fabs(rise) < 1e-12 ? -1 : (z[k] - p[2]) / rise;

        if (p[2] >= z[0] && p[2] <= z[1])
            grow(s, p);
        if (q[2] >= z[0] && q[2] <= z[1])
            grow(s, q);
        if (at < t[0] || at > t[1])
            continue;
        for (i = 0; i < 3; i++)
            x[i] = p[i] + at * (q[i] - p[i]);
        grow(s, x);
    }
}

static void add_box(struct hand *h, enum hand_part part, const struct slab *s)
{
    struct box *b = &h->boxes[h->n];
    int i;

    if (h->n == HAND_BOX_MAX || !s->any)
        return;
    for (i = 0; i < 3; i++) {
        b->center[i] = 0.5 * (s->low[i] + s->high[i]);
        b->half[i] = 0.5 * (s->high[i] - s->low[i]);
    }
    mju_copy(b->R, (const double[9]){1, 0, 0, 0, 1, 0, 0, 0, 1}, 9);
    b->geom = -1;
    h->part[h->n++] = part;
}

// Cut the convex hull of `n` points along n.
static void add_hull(struct hand *h, enum hand_part part, const double *points, int n)
{
    struct slab all = {0};
    int i, k, s;

    for (i = 0; i < n; i++)
        grow(&all, points + 3 * i);
    for (s = 0; s < SLABS; s++) {
        double step = (all.high[2] - all.low[2]) / SLABS;
        double z[2] = {all.low[2] + s * step, all.low[2] + (s + 1) * step};
        struct slab slab = {0};

        for (i = 0; i < n; i++)
            for (k = i + 1; k < n; k++)
                grow_segment(&slab, points + 3 * i, points + 3 * k, z);
        add_box(h, part, &slab);
    }
}

// ------------------------------------------------------------------ the model's hand

struct frame {
    double pos[3], R[9];
};

static void into(const struct frame *f, const double world[3], double out[3])
{
    double off[3];

    mju_sub3(off, world, f->pos);
    mju_mulMatTVec3(out, f->R, off);
}

static enum status add_mesh(struct hand *h, const mjModel *m, const mjData *d,
                            const struct frame *f, int g, enum hand_part part)
{
    int mesh = m->geom_dataid[g], n = m->mesh_vertnum[mesh], i;
    double *points = mem_alloc((size_t)n * 3, sizeof points[0]);

    if (!points)
        return ST_NOMEM;
    for (i = 0; i < n; i++) {
        const float *v = m->mesh_vert + 3 * (m->mesh_vertadr[mesh] + i);
        double p[3] = {v[0], v[1], v[2]}, x[3];

        mju_mulMatVec3(x, d->geom_xmat + 9 * g, p);
        mju_addTo3(x, d->geom_xpos + 3 * g);
        into(f, x, points + 3 * i);
    }
    add_hull(h, part, points, n);
    mem_free(points);
    return ST_OK;
}

static void add_pad(struct hand *h, const mjModel *m, const mjData *d, const struct frame *f, int g,
                    enum hand_part part)
{
    struct slab s = {0};
    double dirs[3][3];
    struct box world;
    int i;

    box_of_geom(&world, m, d, g);
    into(f, world.center, h->pad.center);
    for (i = 0; i < 3; i++) {
        dirs[i][0] = f->R[i];
        dirs[i][1] = f->R[3 + i];
        dirs[i][2] = f->R[6 + i];
        h->pad.half[i] = box_reach(&world, dirs[i]);
        s.low[i] = h->pad.center[i] - h->pad.half[i];
        s.high[i] = h->pad.center[i] + h->pad.half[i];
    }
    s.any = true;
    add_box(h, part, &s);
}

static enum status add_geoms(struct hand *h, const mjModel *m, const mjData *d, int left, int right,
                             const struct frame *f)
{
    int base = m->body_parentid[m->body_parentid[left]], root = m->body_rootid[left], g, body;
    int palm = m->body_parentid[m->body_parentid[base]]; // the arm's last link goes with the hand

    for (g = 0; g < m->ngeom; g++) {
        enum hand_part part = HAND_PALM;

        if (m->body_rootid[m->geom_bodyid[g]] != root)
            continue;
        h->geom_part[g] = 3;
        for (body = m->geom_bodyid[g]; body > palm; body = m->body_parentid[body]) {
            if (body == m->body_parentid[left])
                part = HAND_LEFT;
            if (body == m->body_parentid[right])
                part = HAND_RIGHT;
        }
        if (part != HAND_PALM)
            h->geom_part[g] = (int)part;
        if (body != palm || m->geom_contype[g] + m->geom_conaffinity[g] == 0)
            continue;
        if (m->geom_type[g] == mjGEOM_MESH)
            TRY(add_mesh(h, m, d, f, g, part));
        else if (part != HAND_PALM)
            add_pad(h, m, d, f, g, part);
    }
    return ST_OK;
}

// Joints 2 and 6 of the arm are at the shoulder and the wrist.
static void measure_reach(struct hand *h, const mjData *d, const struct frame *f)
{
    const double *wrist = d->xanchor + 3 * 5;
    double local[3];

    memcpy(h->shoulder, d->xanchor + 3 * 1, sizeof h->shoulder);
    into(f, wrist, local);
    h->wrist[0] = -local[2];
    h->wrist[1] = hypot(local[0], local[1]);
}

static enum status measure(struct hand *h, const mjModel *m, mjData *d)
{
    int left = mj_name2id(m, mjOBJ_BODY, "gripper0_finger_joint1_tip");
    int right = mj_name2id(m, mjOBJ_BODY, "gripper0_finger_joint2_tip"), i;
    double a[3], b[3], n[3];
    struct frame f;

    if (left < 0 || right < 0)
        return FAIL(ST_INVAL, "the model lacks the bodies 'gripper0_finger_joint1_tip' and "
                              "'gripper0_finger_joint2_tip'");
    d->qpos[7] = d->qpos[8] = 0;
    mj_kinematics(m, d);
    memcpy(f.pos, d->site_xpos + 3 * h->site, sizeof f.pos);
    for (i = 0; i < 3; i++)
        n[i] = d->site_xmat[9 * h->site + 3 * i + 2];
    mju_sub3(a, d->xpos + 3 * left, d->xpos + 3 * right);
    mju_normalize3(a);
    mju_cross(b, n, a);
    for (i = 0; i < 3; i++) {
        f.R[3 * i] = a[i];
        f.R[3 * i + 1] = b[i];
        f.R[3 * i + 2] = n[i];
    }
    mju_mulMatTMat(h->to_site, f.R, d->site_xmat + 9 * h->site, 3, 3, 3);
    TRY(add_geoms(h, m, d, left, right, &f));
    measure_reach(h, d, &f);
    for (i = 0; i < h->n; i++)
        if (h->part[i] != HAND_PALM)
            h->tip = fmax(h->tip, h->boxes[i].center[2] + h->boxes[i].half[2]);
    return ST_OK;
}

enum status hand_make(struct hand *h, const mjModel *m, int grip_site)
{
    mjData *d = mj_makeData(m);
    enum status st;

    memset(h, 0, sizeof *h);
    h->site = grip_site;
    h->geom_part = mem_alloc((size_t)m->ngeom, sizeof h->geom_part[0]);
    st = d && h->geom_part ? measure(h, m, d) : ST_NOMEM;
    if (d)
        mj_deleteData(d);
    return st;
}

void hand_fini(struct hand *h)
{
    mem_free(h->geom_part);
    h->geom_part = NULL;
}

static double stretch(const struct hand *h, const double pos[3], double r, double lean)
{
    double c = cos(lean), s = sin(lean);
    double out = r - c * h->wrist[1] - s * h->wrist[0];
    double up = pos[2] - h->shoulder[2] + c * h->wrist[0] - s * h->wrist[1];

    return hypot(out, up);
}

void hand_leaning(double yaw, const double dir[2], double lean, double R[9])
{
    double c = cos(yaw), s = sin(yaw), quat[4], turn[9];
    double upright[9] = {c, s, 0, s, -c, 0, 0, 0, -1}, axis[3] = {dir[1], -dir[0], 0};

    mju_axisAngle2Quat(quat, axis, lean);
    mju_quat2Mat(turn, quat);
    mju_mulMatMat(R, turn, upright, 3, 3, 3);
}

void hand_down(const struct hand *h, const double pos[3], double yaw, double R[9])
{
    double x = pos[0] - h->shoulder[0], y = pos[1] - h->shoulder[1], r = hypot(x, y), lean = 0;
    double dir[2] = {x / fmax(r, 1e-9), y / fmax(r, 1e-9)};

    while (lean < LEAN_MAX && stretch(h, pos, r, lean) > REACH)
        lean += 0.02;
    hand_leaning(yaw, dir, lean, R);
}

double hand_yaw(const double R[9])
{
    return atan2(R[3], R[0]);
}

void hand_box(const struct hand *h, int i, const struct hand_pose *at, double opening,
              struct box *out)
{
    double local[3], turned[3];

    memcpy(local, h->boxes[i].center, sizeof local);
    if (h->part[i] != HAND_PALM)
        local[0] += h->part[i] == HAND_LEFT ? opening : -opening;
    mju_mulMatVec3(turned, at->R, local);
    mju_add3(out->center, at->pos, turned);
    memcpy(out->half, h->boxes[i].half, sizeof out->half);
    memcpy(out->R, at->R, sizeof out->R);
    out->geom = -1;
}

void hand_now(const struct hand *h, const mjData *d, struct hand_pose *out)
{
    memcpy(out->pos, d->site_xpos + 3 * h->site, sizeof out->pos);
    mju_mulMatMatT(out->R, d->site_xmat + 9 * h->site, h->to_site, 3, 3, 3);
}
