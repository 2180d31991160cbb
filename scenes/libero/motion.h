// motion.h - moving the hand by the seven numbers of an action: what is where, and the way over it.
//
// Threads: any; nothing is kept between calls.
#ifndef SCENES_LIBERO_MOTION_H
#define SCENES_LIBERO_MOTION_H

#include "scenes/libero/grasp.h"
#include "scenes/libero/predicate.h"

#define MOTION_ACTION     7
#define MOTION_OPEN       (-1.0) // seventh number
#define MOTION_CLOSE      1.0
#define MOTION_PALM_REACH 0.10 // m, half the palm's width

// What the expert looks at.
struct expert_view {
    const struct hand *hand;
    const struct binding *binding;
    const struct goal *goal;
    const mjModel *m;
    const mjData *d; // not changed; kinematics and contacts of the last forward evaluation
};

// Collision boxes of everything but the robot, those of `body` and below marked as the thing's own.
// boxes and own are (ngeom).
struct surroundings motion_look(const struct expert_view *v, struct box *boxes, bool *own,
                                int body);

// True if both fingers touch `body`.
bool motion_holds(const struct expert_view *v, int body);

// Opening of each finger, m.
double motion_opening(const struct expert_view *v);

// Gripper action towards an opening: the gripper's command moves by 5 mm an action and can be held.
double motion_preshape(const struct expert_view *v, double want);

// Height of the tallest box within `radius` of the way from - to; `with_own`: also the thing's.
double motion_top(const struct surroundings *s, const double from[2], const double to[2],
                  double radius, bool with_own);

// How far the thing reaches from the hand at `hand`: down and sideways.
void motion_own_reach(const struct surroundings *s, const double hand[3], double *down,
                      double *side);

// The action straight towards a pose of the hand.
void motion_go(const struct expert_view *v, const double pos[3], const double R[9], double gripper,
               double action[MOTION_ACTION]);

// The action towards a pose by a way over all obstacles: up, across, down; `held`: with the thing.
// True when the hand is above or at the pose.
bool motion_travel(const struct expert_view *v, const struct surroundings *s, const double pos[3],
                   const double R[9], double gripper, bool held, double action[MOTION_ACTION]);

// The point `by` m behind the hand, against where the fingers point.
void motion_step_back(const struct hand_pose *from, double by, double out[3]);

#endif
