// expert.h - a scripted policy that sees the simulator's true state: the action that a patient
// operator would take next towards the goal of a task.
//
// The goal's atoms become skills (carry a thing somewhere, lift it, move a joint), and a skill is a
// sequence of phases whose ends are looked up in the state, so that it goes on from wherever the
// world is, also when somebody else's actions brought it there. Nothing is random.
//
// Threads: a struct expert belongs to one world; a struct hand is shared.
#ifndef SCENES_LIBERO_EXPERT_H
#define SCENES_LIBERO_EXPERT_H

#include "scenes/libero/plan.h"

#include <stddef.h>

enum expert_phase {
    PHASE_APPROACH, // to a point above the grasp
    PHASE_DESCEND,
    PHASE_CLOSE,
    PHASE_CARRY, // the thing is in the hand
    PHASE_LOWER,
    PHASE_WORK, // moving a joint
    PHASE_RELEASE,
    PHASE_RETREAT,
};

struct expert {
    struct box *boxes; // (ngeom) scratch
    bool *own;         // (ngeom)
    struct skill skills[GOAL_MAX];
    int n_skill;
    struct skill now; // the one at work: made of `which` to `push`

    // From here on it is what expert_save keeps; the numbers are checked in expert_check.
    int which;  // of the skills
    bool first; // not the skill itself but what has to be done before
    bool push;  // now.push
    bool busy;
    int phase;          // enum expert_phase
    int count;          // actions in this phase
    int lost, held;     // actions in a row without and with the thing in the hand
    int still;          // actions in a row that the hand hardly moved
    double last[3];     // where the hand was
    double neutral;     // yaw of the hand at the start
    struct reach reach; // how it begins
    bool has_grasp;
    double grasp_origin[3]; // of the thing when the grasp was planned
    struct taboo taboos[TABOO_MAX];
    int n_taboo, taboo_body;    // grasps of this body that failed
    struct place_plan place;    // where the thing goes
    struct hand_pose work_from; // the hand when it began to move the joint
    double work_q;              // and the joint
    double progress;            // joint position, or distance, when progress was last seen
    int stalled;                // actions since then
};

// Bytes that expert_save writes, a multiple of 8.
#define EXPERT_KEPT_BYTES ((sizeof(struct expert) - offsetof(struct expert, which) + 7) / 8 * 8)

// `e` is zeroed memory; m gives sizes.
NODISCARD enum status expert_open(struct expert *e, const mjModel *m);
void expert_close(struct expert *e);

// An episode begins.
void expert_begin(struct expert *e, const struct expert_view *v);

// What the expert has in mind, and back: for a world whose `d` has the same state. expert_check
// says whether bytes that come from outside may be loaded.
void expert_save(const struct expert *e, void *kept);
void expert_load(struct expert *e, const struct expert_view *v, const void *kept);
NODISCARD enum status expert_check(const struct goal *goal, const void *kept);

// The next action; called once for every env step.
void expert_act(struct expert *e, const struct expert_view *v, double action[MOTION_ACTION]);

#endif
