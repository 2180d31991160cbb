// reset.h - LIBERO's random reset: where objects and fixtures are put, number for number.
//
// The draws come from NumPy's global generator, so an episode depends on all resets before it. A
// reset_cursor walks along: the k-th reset after np.random.seed(s) is a function of (s, k),
// whatever order the episodes are asked for.
//
// Threads: a plan is read-only; a cursor belongs to one world.
#ifndef SCENES_LIBERO_RESET_H
#define SCENES_LIBERO_RESET_H

#include "scenes/libero/np_random.h"
#include "scenes/libero/predicate.h"

#define PLACE_MAX      64
#define RESET_RESTARTS 100 // of a reset that finds no room for the objects

enum place_kind { PLACE_ZONE, PLACE_SITE, PLACE_IN, PLACE_OBJECT, N_PLACE_KIND };

struct place_step {
    enum place_kind kind;
    int item, target; // target: the item that it is put on or into; -1 for zones
    int site;
    double range[4]; // x0 y0 x1 y1 about the reference, before the radius is taken off
    double yaw[2];   // of fixtures
};

struct reset_plan {
    const struct binding *binding;       // borrowed
    const struct problem_class *problem; // borrowed
    int n_joint, n_step;
    struct predicate joints[PLACE_MAX]; // joint states to draw, in file order
    double joint_range[PLACE_MAX][2];
    struct place_step steps[PLACE_MAX]; // in the order of drawing
};

// One reset's result.
struct reset_places {
    double arm_noise[7];
    double joints[PLACE_MAX]; // of plan->joints
    double pos[ITEMS_MAX][3], quat[ITEMS_MAX][4];
    bool placed[ITEMS_MAX];
};

struct reset_cursor {
    struct np_random rng;
    uint32_t seed;
    uint64_t next;  // number of the reset that comes next
    uint64_t loads; // model loads since the environment was made
    bool started;
};

// ST_INVAL names the line of what cannot be placed.
NODISCARD enum status reset_plan_make(struct reset_plan *plan, const struct bddl *bddl,
                                      const struct binding *b, const struct problem_class *problem,
                                      const mjModel *m);

// Reset number `k` (0 = the first one after the seed). `d` is scratch with qpos at its defaults and
// `m` with fixtures at their places in the files; its kinematics are computed. With `accumulate`,
// joint samplers are drawn once per model load so far, as LIBERO's growing list does. Returns false
// if there is no room for the objects.
bool reset_draw(const struct reset_plan *plan, struct reset_cursor *cursor, uint32_t seed,
                uint64_t k, bool accumulate, const mjModel *m, mjData *d, struct reset_places *out);

// The nominal placement, without chance: centres of all ranges.
void reset_nominal(const struct reset_plan *plan, const mjModel *m, mjData *d,
                   struct reset_places *out);

#endif
