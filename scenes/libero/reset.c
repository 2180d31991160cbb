#include "scenes/libero/reset.h"

#include "scenes/libero/osc.h"

#include <math.h>
#include <string.h>

#define TRIES   5000
#define Z_ABOVE 0.01 // m that movable objects are put above a surface

// ------------------------------------------------------------------ the plan

static enum status plan_joint(struct reset_plan *plan, const struct bddl *bddl,
                              const struct bddl_atom *atom, const mjModel *m)
{
    struct predicate *p = &plan->joints[plan->n_joint];

    if (plan->n_joint == PLACE_MAX)
        return bddl_refuse(atom, "too many initial joint states");
    TRY(predicate_bind(p, bddl, atom, plan->binding, m));
    if (!p->rule.has_init)
        return bddl_refuse(atom, "the category has no initial range for this state");
    memcpy(plan->joint_range[plan->n_joint++], p->rule.init, sizeof p->rule.init);
    return ST_OK;
}

// What an (on ...) or (in ...) of :init means.
static enum status plan_step(const struct reset_plan *plan, struct place_step *s,
                             const struct bddl *bddl, const struct bddl_atom *atom,
                             const mjModel *m)
{
    const struct bddl_region *r = atom->n_arg == 2 ? bddl_region_find(bddl, atom->arg[1]) : NULL;
    bool in = strcmp(atom->predicate, "in") == 0;

    memset(s, 0, sizeof *s);
    s->site = s->target = -1;
    s->item = atom->n_arg == 2 ? binding_find(plan->binding, atom->arg[0]) : -1;
    if (s->item < 0)
        return bddl_refuse(atom, "expected an object of the scene and where it is");
    if (!r) {
        s->kind = PLACE_OBJECT;
        s->target = binding_find(plan->binding, atom->arg[1]);
        return s->target >= 0 && !in ? ST_OK : bddl_refuse(atom, "expected a region or an object");
    }
    s->target = binding_find(plan->binding, r->target);
    if (s->target < 0) {
        if (in || !r->has_range)
            return bddl_refuse(atom, "expected a region with a rectangle");
        s->kind = PLACE_ZONE;
        memcpy(s->range, r->range, sizeof s->range);
        memcpy(s->yaw, r->yaw, sizeof s->yaw);
        return ST_OK;
    }
    s->kind = in ? PLACE_IN : PLACE_SITE;
    s->site = mj_name2id(m, mjOBJ_SITE, r->key);
    if (s->site < 0)
        return bddl_refuse(atom, "the model has no site of the region's name");
    if (!in) {
        const double *h = m->site_size + 3 * s->site;

        s->range[0] = -h[0] / 2;
        s->range[1] = -h[1] / 2;
        s->range[2] = h[0] / 2;
        s->range[3] = h[1] / 2;
    }
    return ST_OK;
}

static bool is_place(const struct bddl_atom *atom)
{
    return strcmp(atom->predicate, "on") == 0 || strcmp(atom->predicate, "in") == 0;
}

enum status reset_plan_make(struct reset_plan *plan, const struct bddl *bddl,
                            const struct binding *b, const struct problem_class *problem,
                            const mjModel *m)
{
    struct place_step s;
    int kind, i;

    memset(plan, 0, sizeof *plan);
    plan->binding = b;
    plan->problem = problem;
    for (i = 0; i < bddl->n_init; i++)
        if (!is_place(&bddl->init[i]))
            TRY(plan_joint(plan, bddl, &bddl->init[i], m));
    for (kind = 0; kind < N_PLACE_KIND; kind++)
        for (i = 0; i < bddl->n_init; i++) {
            if (!is_place(&bddl->init[i]))
                continue;
            TRY(plan_step(plan, &s, bddl, &bddl->init[i], m));
            if ((int)s.kind != kind)
                continue;
            if (plan->n_step == PLACE_MAX)
                return bddl_refuse(&bddl->init[i], "too many objects to place");
            plan->steps[plan->n_step++] = s;
        }
    return ST_OK;
}

// ------------------------------------------------------------------ drawing

// Uniform draws, or the middle of every range for the nominal placement (rng NULL).
static double draw(struct np_random *rng, double low, double high)
{
    return rng ? np_uniform(rng, low, high) : low + (high - low) * 0.5;
}

// Product of two quaternions in x, y, z, w, rounded to single precision as robosuite does.
static void multiply_xyzw(const double a[4], const double b[4], double out[4])
{
    double x0 = b[0], y0 = b[1], z0 = b[2], w0 = b[3];
    double x1 = a[0], y1 = a[1], z1 = a[2], w1 = a[3];
    double q[4] = {
        x1 * w0 + y1 * z0 - z1 * y0 + w1 * x0,
        -x1 * z0 + y1 * w0 + z1 * x0 + w1 * y0,
        x1 * y0 - y1 * x0 + z1 * w0 + w1 * z0,
        -x1 * x0 - y1 * y0 - z1 * z0 + w1 * w0,
    };
    int i;

    for (i = 0; i < 4; i++)
        out[i] = (double)(float)q[i];
}

// LIBERO makes x, y, z, w and stores it where w, x, y, z belongs; so it is here.
static void object_quat(const struct category *c, struct np_random *rng, double out[4])
{
    double total[4] = {0, 0, 0, 1};
    int i, k;

    for (i = 0; i < c->n_rotate; i++) {
        double a = draw(rng, c->rotate[i][0], c->rotate[i][1]), q[4] = {0, 0, 0, cos(a / 2)};

        q[c->axis[i]] = sin(a / 2);
        if (c->n_rotate == 1)
            for (k = 0; k < 4; k++)
                total[k] = q[k];
        else
            multiply_xyzw(q, total, total);
    }
    memcpy(out, total, sizeof total);
}

static void fixture_quat(const struct place_step *s, struct np_random *rng, double out[4])
{
    double low = fmin(s->yaw[0], s->yaw[1]), high = fmax(s->yaw[0], s->yaw[1]);
    double yaw = draw(rng, low, high);

    out[0] = cos(yaw / 2);
    out[1] = out[2] = 0;
    out[3] = sin(yaw / 2);
}

static bool overlaps(const struct reset_plan *plan, const struct reset_places *out, int item,
                     const double pos[3])
{
    const struct item *x = &plan->binding->items[item].item;
    int i;

    for (i = 0; i < plan->binding->n_item; i++) {
        const struct item *o = &plan->binding->items[i].item;
        double dx = pos[0] - out->pos[i][0], dy = pos[1] - out->pos[i][1];

        if (out->placed[i] && sqrt(dx * dx + dy * dy) <= o->radius + x->radius &&
            pos[2] - out->pos[i][2] <= o->top - x->bottom)
            return true;
    }
    return false;
}

// The point that ranges are about, and the height that is added to it.
static void reference(const struct reset_plan *plan, const struct place_step *s, const mjData *d,
                      const struct reset_places *out, double base[3], double site[3], double *above)
{
    const struct bound_item *target = s->target < 0 ? NULL : &plan->binding->items[s->target];
    double R[9];

    memset(site, 0, 3 * sizeof site[0]);
    memcpy(base, target ? out->pos[s->target] : plan->problem->offset, 3 * sizeof base[0]);
    *above = s->kind == PLACE_SITE || s->kind == PLACE_IN ? 0 : Z_ABOVE;
    if (target && s->kind != PLACE_IN)
        base[2] += target->item.top;
    if (s->site >= 0) {
        osc_quat_to_mat(out->quat[s->target], R);
        mju_mulMatVec(site, R, d->site_xpos + 3 * s->site, 3, 3);
    }
}

static bool place(const struct reset_plan *plan, const struct place_step *s, struct np_random *rng,
                  const mjData *d, struct reset_places *out)
{
    const struct bound_item *it = &plan->binding->items[s->item];
    bool movable = it->item.movable;
    bool shrinks =
        movable && (s->kind == PLACE_SITE || (s->kind == PLACE_ZONE && plan->problem->shrink));
    bool checks = movable && s->kind != PLACE_OBJECT;
    double margin = shrinks ? it->item.radius : 0, base[3], site[3], above, pos[3];
    int i;

    reference(plan, s, d, out, base, site, &above);
    if (!movable)
        above = plan->problem->fixture_z;
    for (i = 0; i < TRIES; i++) {
        pos[0] = draw(rng, s->range[0] + margin, s->range[2] - margin) + base[0];
        pos[1] = draw(rng, s->range[1] + margin, s->range[3] - margin) + base[1];
        pos[2] = above + base[2];
        if (s->site >= 0) {
            pos[0] += site[0];
            pos[1] += site[1];
            pos[2] += site[2];
        }
        pos[2] -= it->item.bottom;
        if (!checks || !rng || !overlaps(plan, out, s->item, pos))
            break;
    }
    if (i == TRIES)
        return false;
    if (movable)
        object_quat(it->item.category, rng, out->quat[s->item]);
    else
        fixture_quat(s, rng, out->quat[s->item]);
    memcpy(out->pos[s->item], pos, sizeof pos);
    out->placed[s->item] = true;
    return true;
}

static void draw_joints(const struct reset_plan *plan, struct np_random *rng, uint64_t rounds,
                        struct reset_places *out)
{
    uint64_t r;
    int i;

    for (r = 0; r < rounds; r++) // the last round's values stay
        for (i = 0; i < plan->n_joint; i++)
            out->joints[i] = draw(rng, plan->joint_range[i][0], plan->joint_range[i][1]);
}

// Sites as LIBERO sees them when it places: drawers where they were drawn, fixtures where their
// files have them.
static void forward(const struct reset_plan *plan, const struct reset_places *out, const mjModel *m,
                    mjData *d)
{
    int i, k;

    for (i = 0; i < plan->n_joint; i++)
        for (k = 0; k < plan->joints[i].n_joint; k++)
            d->qpos[m->jnt_qposadr[plan->joints[i].joints[k]]] = out->joints[i];
    mj_kinematics(m, d);
}

static bool draw_once(const struct reset_plan *plan, struct np_random *rng, uint64_t rounds,
                      const mjModel *m, mjData *d, struct reset_places *out)
{
    int i;

    memset(out, 0, sizeof *out);
    for (i = 0; i < 7 && rng; i++)
        out->arm_noise[i] = np_randn(rng);
    draw_joints(plan, rng, rounds, out);
    forward(plan, out, m, d);
    for (i = 0; i < plan->n_step; i++)
        if (!place(plan, &plan->steps[i], rng, d, out))
            return false;
    return true;
}

bool reset_draw(const struct reset_plan *plan, struct reset_cursor *cursor, uint32_t seed,
                uint64_t k, bool accumulate, const mjModel *m, mjData *d, struct reset_places *out)
{
    bool ok = true;
    int restart;

    if (!cursor->started || cursor->seed != seed || cursor->next > k) {
        np_seed(&cursor->rng, seed);
        cursor->seed = seed;
        cursor->next = 0;
        cursor->loads = 1; // the constructor's
        cursor->started = true;
    }
    for (; cursor->next <= k; cursor->next++) {
        // a reset that finds no room starts over, with the model loaded once more
        for (restart = 0, ok = false; restart < RESET_RESTARTS && !ok; restart++) {
            cursor->loads++;
            ok = draw_once(plan, &cursor->rng, accumulate ? cursor->loads : 1, m, d, out);
        }
    }
    return ok;
}

void reset_nominal(const struct reset_plan *plan, const mjModel *m, mjData *d,
                   struct reset_places *out)
{
    (void)draw_once(plan, NULL, 1, m, d, out); // overlaps are not looked for, so it cannot fail
}
