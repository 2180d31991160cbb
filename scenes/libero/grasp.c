#include "scenes/libero/grasp.h"

#include <math.h>
#include <string.h>

#define NEVER     1e9
#define PARTS_MAX 64    // boxes of a thing moved at a time
#define YAWS      12    // in half a turn
#define STEP      0.012 // m between grasp points
#define SPAN_MAX  0.3   // m, of the search along an axis
#define DEPTHS    8     // heights tried, from the top down
#define DEPTH     0.012
#define WIDTH_MAX 0.074 // m
#define MARGIN    0.002 // m of air that the open hand needs
#define COMFORT   0.01  // m of air that it likes to have
#define TIGHT     0.08  // cost of less
#define MIDDLE    0.02  // m, a grasp within it about the thing's centre has no side
#define TAPER_MAX 0.009 // m
#define RISE      0.25  // m of free way above the grasp
#define RISE_LEAN 0.1   // the same for a leaning hand, backwards
#define AIR       0.007 // m, least opening beyond the thing on each side

// Openings of the fingers, tried from the widest.
static const double openings[] = {GRASP_OPENING, 0.025, 0.0125};

// ------------------------------------------------------------------ closing

static const double down[3] = {0, 0, -1};

// Where along a the inner faces of the two fingers' quarter pads first touch the thing. False if a
// finger finds nothing or touches it already when open.
static bool close_quarter(const struct grasp_query *q, const struct hand_pose *at, double opening,
                          int quarter, double face[2])
{
    const struct box *pad = &q->hand->pad;
    double b = (quarter & 1 ? 0.5 : -0.5) * pad->half[1], a[3] = {at->R[0], at->R[3], at->R[6]};
    double n = pad->center[2] + (quarter & 2 ? 0.5 : -0.5) * pad->half[2], range[2], local[3];
    struct box probe = *pad;
    int i;

    probe.half[0] = 1e-4; // the inner face
    probe.half[1] *= 0.4;
    probe.half[2] *= 0.4;
    local[0] = 0;
    local[1] = b;
    local[2] = n;
    mju_mulMatVec3(probe.center, at->R, local);
    mju_addTo3(probe.center, at->pos);
    memcpy(probe.R, at->R, sizeof probe.R);
    face[0] = -1;
    face[1] = 1;
    for (i = 0; i < q->around->n; i++) {
        if (!q->around->own[i] || !box_sweep(&probe, &q->around->boxes[i], a, range))
            continue;
        if (range[0] > opening || range[1] < -opening)
            continue; // beyond the fingers
        if (range[1] > opening || range[0] < -opening)
            return false;
        face[0] = fmax(face[0], range[1]);
        face[1] = fmin(face[1], range[0]);
    }
    return face[0] >= face[1];
}

// What closing the fingers on the thing gives.
struct closing {
    double middle, width; // m along a
    double uneven;        // m, how far the pads are from lying flat
    double taper;         // m, how much narrower the thing is on one side: it slips out there
};

static bool close_fingers(const struct grasp_query *q, const struct hand_pose *at, double opening,
                          struct closing *out)
{
    double high = -1, low = 1, sum[2] = {0, 0}, wide[2] = {0, 0}, face[2];
    int i, n = 0;

    for (i = 0; i < 4; i++) {
        if (!close_quarter(q, at, opening, i, face))
            continue;
        high = fmax(high, face[0]);
        low = fmin(low, face[1]);
        sum[0] += face[0];
        sum[1] += face[1];
        wide[i & 1] = fmax(wide[i & 1], face[0] - face[1]);
        n++;
    }
    if (n < 2)
        return false;
    out->middle = 0.5 * (high + low);
    out->width = high - low;
    out->uneven = (high - sum[0] / n) + (sum[1] / n - low) + 0.004 * (4 - n);
    out->taper = fabs(wide[0] - wide[1]);
    return true;
}

// ------------------------------------------------------------------ collisions

// Boxes that move as one, and a ball around them: most others are beside its way.
struct group {
    const struct box *boxes;
    int n;
    double centre[3], radius;
};

static void wrap(struct group *g, const struct box *boxes, int n)
{
    int i;

    g->boxes = boxes;
    g->n = n;
    mju_zero3(g->centre);
    for (i = 0; i < n; i++)
        mju_addToScl3(g->centre, boxes[i].center, 1.0 / n);
    g->radius = 0;
    for (i = 0; i < n; i++)
        g->radius =
            fmax(g->radius, mju_dist3(g->centre, boxes[i].center) + mju_norm3(boxes[i].half));
}

// True if the ball, moving along dir both ways, stays clear of `b`.
static bool is_beside(const struct group *g, const struct box *b, const double dir[3])
{
    double off[3], along = 0, away = 0, size = 0, r;
    int i;

    for (i = 0; i < 3; i++) {
        off[i] = b->center[i] - g->centre[i];
        along += off[i] * dir[i];
        size += b->half[i] * b->half[i];
    }
    for (i = 0; i < 3; i++)
        away += (off[i] - along * dir[i]) * (off[i] - along * dir[i]);
    r = g->radius + sqrt(size) + 2 * COMFORT;
    return away > r * r;
}

static bool blocks(const struct box *part, double margin, const struct box *b, const double dir[3],
                   double back)
{
    struct box grown = *part;
    double range[2];
    int j;

    for (j = 0; j < 3; j++)
        grown.half[j] += margin;
    return box_sweep(&grown, b, dir, range) && range[1] >= -back && range[0] <= 0;
}

// One search: what is asked, the best so far, and the box that was in the way of the last pose: it
// often is again.
struct search {
    const struct grasp_query *q;
    struct grasp *best; // (GRASP_MAX)
    int hint;
};

enum fit { FIT_NONE, FIT_TIGHT, FIT_EASY };

// If the open hand fits at `at` and on its way there.
static enum fit fits(struct search *f, const struct hand_pose *at, double opening)
{
    const struct grasp_query *q = f->q;
    double back = q->lean > 0 ? RISE_LEAN : RISE, n[3] = {at->R[2], at->R[5], at->R[8]};
    const double *dir = q->lean > 0 ? n : down;
    enum fit fit = FIT_EASY;
    struct box parts[HAND_BOX_MAX];
    struct group g;
    int i, k;

    for (i = 0; i < q->hand->n; i++)
        hand_box(q->hand, i, at, opening, &parts[i]);
    wrap(&g, parts, q->hand->n);
    for (i = 0; i < g.n; i++)
        if (blocks(&parts[i], MARGIN, &q->around->boxes[f->hint], dir, back))
            return FIT_NONE;
    for (k = 0; k < q->around->n; k++) {
        const struct box *b = &q->around->boxes[k];

        if (is_beside(&g, b, dir))
            continue;
        for (i = 0; i < g.n; i++) {
            if (blocks(&parts[i], MARGIN, b, dir, back)) {
                f->hint = k;
                return FIT_NONE;
            }
            if (fit == FIT_EASY && !q->around->own[k] && blocks(&parts[i], COMFORT, b, dir, back))
                fit = FIT_TIGHT;
        }
    }
    return fit;
}

static double free_of(const struct surroundings *s, const struct group *g, const double dir[3],
                      double limit)
{
    double range[2];
    int i, k;

    for (k = 0; k < s->n; k++) {
        if (s->own[k] || is_beside(g, &s->boxes[k], dir))
            continue;
        for (i = 0; i < g->n; i++)
            if (box_sweep(&g->boxes[i], &s->boxes[k], dir, range) && range[1] > 0)
                limit = fmin(limit, fmax(0, range[0]));
    }
    return limit;
}

double hand_free(const struct hand *hand, const struct surroundings *s, const struct hand_pose *at,
                 double opening, const double dir[3], double limit)
{
    struct box parts[HAND_BOX_MAX];
    struct group g;
    int i;

    for (i = 0; i < hand->n; i++)
        hand_box(hand, i, at, opening, &parts[i]);
    wrap(&g, parts, hand->n);
    return free_of(s, &g, dir, limit);
}

double thing_free(const struct surroundings *s, const double R[9], const double about[3],
                  const double shift[3], const double dir[3], double limit)
{
    struct box parts[PARTS_MAX];
    struct group g;
    double off[3];
    int i, n = 0;

    for (i = 0; i < s->n; i++) {
        struct box *b = &parts[n];

        if (!s->own[i])
            continue;
        *b = s->boxes[i];
        mju_sub3(off, s->boxes[i].center, about);
        mju_mulMatVec3(b->center, R, off);
        mju_addTo3(b->center, about);
        mju_addTo3(b->center, shift);
        mju_mulMatMat(b->R, R, s->boxes[i].R, 3, 3, 3);
        if (++n == PARTS_MAX) { // a part of the thing at a time
            wrap(&g, parts, n);
            limit = free_of(s, &g, dir, limit);
            n = 0;
        }
    }
    if (n > 0) {
        wrap(&g, parts, n);
        limit = free_of(s, &g, dir, limit);
    }
    return limit;
}

// ------------------------------------------------------------------ search

static double turn_between(double x, double y)
{
    double t = fmod(fabs(x - y), mjPI);

    return fmin(t, mjPI - t);
}

static double taboo_cost(const struct grasp_query *q, const struct hand_pose *at, double yaw)
{
    double cost = 0, off[3];
    int i;

    for (i = 0; i < q->n_taboo; i++) {
        mju_sub3(off, at->pos, q->origin);
        mju_subFrom3(off, q->taboos[i].offset);
        if (mju_norm3(off) < 0.02 && turn_between(yaw, q->taboos[i].yaw) < 0.4)
            cost += 0.1;
    }
    return cost;
}

// Which of the GRASP_MAX kinds of grasp this is.
static int side_of(const double off[3])
{
    if (hypot(off[0], off[1]) < MIDDLE)
        return 0;
    return 1 + (int)(2 * (atan2(off[1], off[0]) + mjPI) / mjPI) % 4;
}

// Try one pose with fingers opened so far; the hand is centred on the thing first.
static void consider(struct search *f, const struct hand_pose *from, double opening, double yaw)
{
    const struct grasp_query *q = f->q;
    struct hand_pose at = *from;
    double cost, off[3];
    enum fit fit;
    struct closing c;
    struct grasp *place;
    int i;

    if (!close_fingers(q, &at, opening, &c) || c.taper > TAPER_MAX ||
        c.width > fmin(WIDTH_MAX, 2 * (opening - AIR) + 0.008))
        return;
    for (i = 0; i < 3; i++)
        at.pos[i] += c.middle * at.R[3 * i];
    mju_sub3(off, at.pos, q->near_radius > 0 ? q->near : q->centre);
    place = &f->best[q->near_radius > 0 ? 0 : side_of(off)];
    cost = hypot(off[0], off[1]) + 0.5 * fabs(off[2]) + (q->wide ? -0.5 : 0.3) * c.width +
           2 * c.uneven + 5 * c.taper + 0.02 * turn_between(yaw, q->preferred) +
           taboo_cost(q, &at, yaw) + 0.3 * (GRASP_OPENING - opening);
    if (cost >= place->cost)
        return;
    fit = fits(f, &at, opening);
    if (fit == FIT_TIGHT)
        cost += TIGHT;
    if (fit == FIT_NONE || cost >= place->cost)
        return;
    place->hand = at;
    place->width = c.width;
    place->opening = opening;
    place->cost = cost;
}

struct bounds {
    double low[3], high[3];
};

// The thing's extent along the world's axes.
static bool bounds_of(const struct surroundings *s, struct bounds *out)
{
    bool any = false;
    int i, k;

    for (i = 0; i < s->n; i++)
        for (k = 0; k < 3 && s->own[i]; k++) {
            double dir[3] = {k == 0, k == 1, k == 2}, r = box_reach(&s->boxes[i], dir);
            double low = s->boxes[i].center[k] - r, high = s->boxes[i].center[k] + r;

            out->low[k] = any ? fmin(out->low[k], low) : low;
            out->high[k] = any ? fmax(out->high[k], high) : high;
            any = any || k == 2;
        }
    return any;
}

static void search_level(struct search *f, const struct bounds *box, double z, double yaw)
{
    const struct grasp_query *q = f->q;
    int nx = 1 + (int)(fmin(box->high[0] - box->low[0], SPAN_MAX) / STEP);
    int ny = 1 + (int)(fmin(box->high[1] - box->low[1], SPAN_MAX) / STEP), i, k, o;
    struct hand_pose at;

    for (i = 0; i < nx; i++)
        for (k = 0; k < ny; k++) {
            at.pos[0] = 0.5 * (box->low[0] + box->high[0]) + (i - 0.5 * (nx - 1)) * STEP;
            at.pos[1] = 0.5 * (box->low[1] + box->high[1]) + (k - 0.5 * (ny - 1)) * STEP;
            at.pos[2] = z;
            if (q->near_radius > 0 && mju_dist3(at.pos, q->near) > q->near_radius)
                continue;
            if (q->lean > 0)
                hand_leaning(yaw, q->lean_to, q->lean, at.R);
            else
                hand_down(q->hand, at.pos, yaw, at.R);
            for (o = 0; o < (int)(sizeof openings / sizeof openings[0]); o++)
                consider(f, &at, openings[o], yaw);
        }
}

// Best first, and how many there are.
static int sort_grasps(struct grasp g[GRASP_MAX])
{
    int i, k, n = 0;

    for (i = 0; i < GRASP_MAX; i++)
        for (k = i + 1; k < GRASP_MAX; k++)
            if (g[k].cost < g[i].cost) {
                struct grasp swap = g[i];

                g[i] = g[k];
                g[k] = swap;
            }
    while (n < GRASP_MAX && g[n].cost < NEVER)
        n++;
    return n;
}

int grasp_find(const struct grasp_query *q, struct grasp out[GRASP_MAX])
{
    struct bounds box;
    struct search f = {q, out, 0};
    int i, y, z;

    for (i = 0; i < GRASP_MAX; i++)
        out[i].cost = NEVER;
    if (!bounds_of(q->around, &box))
        return 0;
    for (i = 0; i < 3 && q->near_radius > 0; i++) {
        box.low[i] = q->near[i] - q->near_radius;
        box.high[i] = q->near[i] + q->near_radius;
    }
    for (y = 0; y < (q->fixed_yaw ? 1 : YAWS); y++)
        for (z = 0; z < DEPTHS; z++) {
            double yaw = q->yaw + (y - YAWS / 2) * mjPI / YAWS, height = box.high[2] - z * DEPTH;

            if (height > box.low[2])
                search_level(&f, &box, height, q->fixed_yaw ? q->preferred : yaw);
        }
    return sort_grasps(out);
}
