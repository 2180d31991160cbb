// plan.h - how to go about a skill: the grasp, and where the thing is put.
//
// Threads: any; nothing is kept between calls.
#ifndef SCENES_LIBERO_PLAN_H
#define SCENES_LIBERO_PLAN_H

#include "scenes/libero/articulation.h"

// One thing to bring about.
struct skill {
    enum { SKILL_PLACE, SKILL_LIFT, SKILL_JOINT } kind;
    struct predicate wanted;
    int joint; // of SKILL_JOINT
    bool push; // with the closed hand, not by taking hold
};

struct plan_request {
    const struct expert_view *view;
    const struct skill *skill;
    const struct surroundings *around; // `own` marks plan_body
    double neutral;                    // the hand's yaw at rest
    struct taboo taboos[TABOO_MAX];
    int n_taboo;
    bool spread; // others go to the same place: not into its middle
};

// How to begin.
struct reach {
    struct grasp grasp;
    bool push;    // with the fingers closed
    bool leaning; // from the front, not from above
};

struct place_plan {
    double cost, pos[3], R[9]; // of the thing's origin; of the hand
};

// The body that a skill is about.
int plan_body(const struct expert_view *v, const struct skill *k);

// False if there is no way. What cannot be held well is dragged over the table if that is where it
// goes: `own` is cleared then.
bool plan_reach(const struct plan_request *q, struct reach *out);

// The best way to put the thing down, held by a hand at `from` that opens to `opening`.
struct place_plan plan_place(const struct plan_request *q, const struct hand_pose *from,
                             double opening);

// Where the thing's origin is to be, and how far off it may be in x and y.
void plan_target(const struct expert_view *v, const struct predicate *p, double centre[3],
                 double slack[2]);

#endif
