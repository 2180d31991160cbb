// predicate.h - the goal of a BDDL problem, bound to a model: LIBERO's predicates, as it computes
// them.
//
// Positions and contacts are those of d's last forward evaluation, joint angles those of d->qpos.
//
// Threads: a bound goal is read-only.
#ifndef SCENES_LIBERO_PREDICATE_H
#define SCENES_LIBERO_PREDICATE_H

#include "scenes/libero/compose.h"

#include <mujoco/mujoco.h>

#define GOAL_MAX        16
#define GOAL_JOINTS_MAX 8

// Where the composed items are in the model.
struct bound_item {
    struct item item;
    int body;   // NAME_main
    int qpos;   // of the free joint; -1 for fixtures
    int n_geom; // of its subtree
    int burner; // site shown while the stove is on; -1 = none
};

struct binding {
    struct bound_item items[ITEMS_MAX];
    int n_item, n_movable; // movable items come first
    int *geom_item;        // (ngeom) the item that the contact geom belongs to; -1 = none
};

enum predicate_kind {
    PREDICATE_TRUE,
    PREDICATE_IN,        // item in the box of a site
    PREDICATE_ON_SITE,   // item above a site
    PREDICATE_ON_OBJECT, // item on another item
    PREDICATE_UP,        // item above 1 m
    PREDICATE_JOINT,     // open, close, turnon, turnoff
};

struct predicate {
    enum predicate_kind kind;
    bool negated;
    int a, b; // items; b is -1 for zones of the workspace
    int site; // -1 = none
    bool all; // joints: all of them, not any
    struct joint_rule rule;
    int n_joint;
    int joints[GOAL_JOINTS_MAX];  // joint ids
    char text[3 * BDDL_NAME_MAX]; // "on akita_black_bowl_1 plate_1"
};

struct goal {
    struct predicate atoms[GOAL_MAX];
    int n;
};

// ids of the items in `m`; binding->geom_item is the binding's (binding_fini).
NODISCARD enum status binding_make(struct binding *b, const mjModel *m, const struct item *items,
                                   int n_item);
void binding_fini(struct binding *b);

// Is `body` the body `root` or a part of its subtree?
bool body_is_below(const mjModel *m, int body, int root);

// Item of this name; -1 if there is none.
int binding_find(const struct binding *b, const char *name);

// Bind one atom. ST_INVAL names the line and what cannot be evaluated.
NODISCARD enum status predicate_bind(struct predicate *p, const struct bddl *bddl,
                                     const struct bddl_atom *atom, const struct binding *b,
                                     const mjModel *m);
NODISCARD enum status goal_bind(struct goal *g, const struct bddl *bddl, const struct binding *b,
                                const mjModel *m);

bool predicate_holds(const struct predicate *p, const struct binding *b, const mjModel *m,
                     const mjData *d);
bool goal_holds(const struct goal *g, const struct binding *b, const mjModel *m, const mjData *d);

#endif
