#include "scenes/libero/predicate.h"

#include "common/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ------------------------------------------------------------------ items in the model

bool body_is_below(const mjModel *m, int body, int root)
{
    while (body > root)
        body = m->body_parentid[body];
    return body == root;
}

static enum status bind_item(struct binding *b, const mjModel *m, int i)
{
    struct bound_item *it = &b->items[i];
    char name[2 * BDDL_NAME_MAX];
    int g, joint;

    snprintf(name, sizeof name, "%s_main", it->item.name);
    it->body = mj_name2id(m, mjOBJ_BODY, name);
    if (it->body < 0)
        return FAIL(ST_INVAL, "the model has no body '%s'", name);
    snprintf(name, sizeof name, "%s_joint0", it->item.name);
    joint = it->item.movable ? mj_name2id(m, mjOBJ_JOINT, name) : -1;
    if (it->item.movable && joint < 0)
        return FAIL(ST_INVAL, "the model has no joint '%s'", name);
    it->qpos = joint < 0 ? -1 : (int)m->jnt_qposadr[joint];
    snprintf(name, sizeof name, "%s_burner", it->item.name);
    it->burner = mj_name2id(m, mjOBJ_SITE, name);
    for (g = 0; g < m->ngeom; g++)
        if (body_is_below(m, m->geom_bodyid[g], it->body)) {
            it->n_geom++;
            if (m->geom_group[g] == 0)
                b->geom_item[g] = i;
        }
    return ST_OK;
}

enum status binding_make(struct binding *b, const mjModel *m, const struct item *items, int n_item)
{
    int i;

    memset(b, 0, sizeof *b);
    b->geom_item = mem_alloc((size_t)m->ngeom, sizeof b->geom_item[0]);
    if (!b->geom_item)
        return ST_NOMEM;
    for (i = 0; i < m->ngeom; i++)
        b->geom_item[i] = -1;
    for (i = 0; i < n_item; i++) {
        b->items[i].item = items[i];
        b->n_item++;
        b->n_movable += items[i].movable;
        TRY(bind_item(b, m, i));
    }
    return ST_OK;
}

void binding_fini(struct binding *b)
{
    mem_free(b->geom_item);
    b->geom_item = NULL;
}

int binding_find(const struct binding *b, const char *name)
{
    int i;

    for (i = 0; i < b->n_item; i++)
        if (strcmp(b->items[i].item.name, name) == 0)
            return i;
    return -1;
}

// ------------------------------------------------------------------ binding atoms

// The site of a region, and the item that it is part of (-1: the workspace).
static enum status bind_region(struct predicate *p, const struct bddl *bddl,
                               const struct bddl_atom *atom, const char *key,
                               const struct binding *b, const mjModel *m)
{
    const struct bddl_region *r = bddl_region_find(bddl, key);

    if (!r)
        return bddl_refuse(atom, "expected an object, a fixture or a region of the problem");
    p->site = mj_name2id(m, mjOBJ_SITE, key);
    if (p->site < 0)
        return bddl_refuse(atom, "the model has no site of the region's name");
    p->b = binding_find(b, r->target);
    return ST_OK;
}

static enum status bind_place(struct predicate *p, const struct bddl *bddl,
                              const struct bddl_atom *atom, const struct binding *b,
                              const mjModel *m)
{
    bool in = strcmp(atom->predicate, "in") == 0;

    if (atom->n_arg != 2)
        return bddl_refuse(atom, "expected two arguments");
    p->a = binding_find(b, atom->arg[0]);
    if (p->a < 0)
        return bddl_refuse(atom, "the first argument is no object of the scene");
    p->b = binding_find(b, atom->arg[1]);
    if (p->b >= 0 && in)
        return bddl_refuse(atom, "'in' an object has no geometry, expected one of its regions");
    p->kind = in ? PREDICATE_IN : p->b >= 0 ? PREDICATE_ON_OBJECT : PREDICATE_ON_SITE;
    return p->b >= 0 ? ST_OK : bind_region(p, bddl, atom, atom->arg[1], b, m);
}

// The joints of a fixture, or those of the body that holds the region's site.
static enum status bind_joints(struct predicate *p, const struct bddl *bddl,
                               const struct bddl_atom *atom, enum joint_state state,
                               const struct binding *b, const mjModel *m)
{
    int j, item, holder = -1;

    if (atom->n_arg != 1)
        return bddl_refuse(atom, "expected one argument");
    item = binding_find(b, atom->arg[0]);
    if (item < 0) {
        TRY(bind_region(p, bddl, atom, atom->arg[0], b, m));
        item = p->b;
        holder = m->site_bodyid[p->site];
    }
    if (item < 0)
        return bddl_refuse(atom, "the region is the workspace's, which has no joints");
    p->a = item;
    p->kind = PREDICATE_JOINT;
    p->all = state == JOINT_CLOSE || state == JOINT_TURNOFF;
    p->rule = b->items[item].item.category->rules[state];
    if (!p->rule.has)
        return bddl_refuse(atom, "the object's category has no rule for this predicate");
    for (j = 0; j < m->njnt; j++) {
        bool mine = holder >= 0 ? m->jnt_bodyid[j] == holder
                                : body_is_below(m, m->jnt_bodyid[j], b->items[item].body) &&
                                      m->jnt_type[j] != mjJNT_FREE;

        if (!mine)
            continue;
        if (p->n_joint == GOAL_JOINTS_MAX)
            return bddl_refuse(atom, "the object has too many joints");
        p->joints[p->n_joint++] = j;
    }
    return p->n_joint > 0 ? ST_OK : bddl_refuse(atom, "there is no joint to look at");
}

enum status predicate_bind(struct predicate *p, const struct bddl *bddl,
                           const struct bddl_atom *atom, const struct binding *b, const mjModel *m)
{
    static const char *const states[] = {"open", "close", "turnon", "turnoff"};
    int i;

    memset(p, 0, sizeof *p);
    p->negated = atom->negated;
    p->a = p->b = p->site = -1;
    snprintf(p->text, sizeof p->text, "%.90s %.90s%s%.90s", atom->predicate, atom->arg[0],
             atom->n_arg > 1 ? " " : "", atom->arg[1]);
    for (i = 0; i < N_JOINT_STATE; i++)
        if (strcmp(atom->predicate, states[i]) == 0)
            return bind_joints(p, bddl, atom, (enum joint_state)i, b, m);
    if (strcmp(atom->predicate, "in") == 0 || strcmp(atom->predicate, "on") == 0)
        return bind_place(p, bddl, atom, b, m);
    if (strcmp(atom->predicate, "true") == 0 || strcmp(atom->predicate, "false") == 0) {
        p->negated ^= atom->predicate[0] == 'f';
        return ST_OK;
    }
    if (strcmp(atom->predicate, "up") == 0 && atom->n_arg == 1) {
        p->kind = PREDICATE_UP;
        p->a = binding_find(b, atom->arg[0]);
        return p->a >= 0 ? ST_OK : bddl_refuse(atom, "the argument is no object of the scene");
    }
    return bddl_refuse(atom, "expected in, on, up, open, close, turnon, turnoff, true or false");
}

enum status goal_bind(struct goal *g, const struct bddl *bddl, const struct binding *b,
                      const mjModel *m)
{
    int i;

    g->n = 0;
    if (bddl->n_goal > GOAL_MAX)
        return FAIL(ST_INVAL, "the goal has %d predicates, expected at most %d", bddl->n_goal,
                    GOAL_MAX);
    for (i = 0; i < bddl->n_goal; i++)
        TRY(predicate_bind(&g->atoms[g->n++], bddl, &bddl->goal[i], b, m));
    return ST_OK;
}

// ------------------------------------------------------------------ evaluation

// Any contact between the two, however light: LIBERO asks for no force.
static bool touching(const struct binding *b, const mjData *d, int x, int y)
{
    int i;

    for (i = 0; i < d->ncon; i++) {
        const mjContact *c = &d->contact[i];
        int p, q;

        if (c->geom[0] < 0 || c->geom[1] < 0)
            continue; // flexes have no geom
        p = b->geom_item[c->geom[0]];
        q = b->geom_item[c->geom[1]];
        if ((p == x && q == y) || (p == y && q == x))
            return true;
    }
    return false;
}

// The site's half-sizes are turned by its matrix, which is a box around it only for quarter turns.
static bool in_site(const mjModel *m, const mjData *d, int site, const double *p)
{
    const double *c = d->site_xpos + 3 * site;
    double e[3];
    int i;

    mju_mulMatVec(e, d->site_xmat + 9 * site, m->site_size + 3 * site, 3, 3);
    for (i = 0; i < 3; i++) {
        double low = c[i] - fabs(e[i]) - (i == 2 ? 0.01 : 0), high = c[i] + fabs(e[i]);

        if (!(low < p[i] && p[i] < high))
            return false;
    }
    return true;
}

// LIBERO turns the offset by the site's matrix, not by its transpose, and compares with the sizes
// as they are.
static bool above_site(const mjModel *m, const mjData *d, int site, const double *p)
{
    const double *c = d->site_xpos + 3 * site, *h = m->site_size + 3 * site;
    double offset[3] = {p[0] - c[0], p[1] - c[1], p[2] - c[2]}, o[3];

    mju_mulMatVec(o, d->site_xmat + 9 * site, offset, 3, 3);
    return h[2] - 0.005 < o[2] && o[2] < h[2] + 0.10 && fabs(o[0]) < h[0] && fabs(o[1]) < h[1];
}

static bool joint_is(const struct joint_rule *r, double q)
{
    if (r->less)
        return r->strict ? q < r->value : q <= r->value;
    return r->strict ? q > r->value : q >= r->value;
}

static bool joints_are(const struct predicate *p, const mjModel *m, const mjData *d)
{
    int i, n = 0;

    for (i = 0; i < p->n_joint; i++)
        n += joint_is(&p->rule, d->qpos[m->jnt_qposadr[p->joints[i]]]);
    return p->all ? n == p->n_joint : n > 0;
}

static bool holds(const struct predicate *p, const struct binding *b, const mjModel *m,
                  const mjData *d)
{
    const double *x = p->a < 0 ? NULL : d->xpos + 3 * b->items[p->a].body, *y;

    switch (p->kind) {
    case PREDICATE_TRUE:
        return true;
    case PREDICATE_IN:
        return in_site(m, d, p->site, x);
    case PREDICATE_ON_SITE:
        return above_site(m, d, p->site, x) && (p->b < 0 || touching(b, d, p->b, p->a));
    case PREDICATE_ON_OBJECT:
        y = d->xpos + 3 * b->items[p->b].body;
        return y[2] <= x[2] && touching(b, d, p->b, p->a) &&
               sqrt((x[0] - y[0]) * (x[0] - y[0]) + (x[1] - y[1]) * (x[1] - y[1])) < 0.03;
    case PREDICATE_UP:
        return x[2] >= 1.0;
    case PREDICATE_JOINT:
        return joints_are(p, m, d);
    }
    return false;
}

bool predicate_holds(const struct predicate *p, const struct binding *b, const mjModel *m,
                     const mjData *d)
{
    return holds(p, b, m, d) != p->negated;
}

bool goal_holds(const struct goal *g, const struct binding *b, const mjModel *m, const mjData *d)
{
    int i;

    for (i = 0; i < g->n; i++)
        if (!predicate_holds(&g->atoms[i], b, m, d))
            return false;
    return true;
}
