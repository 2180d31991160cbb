// articulation.h - drawers, doors and knobs: where a joint takes what is fixed to it.
//
// `less` is the direction of the goal: a smaller joint position.
//
// Threads: any; nothing is kept between calls.
#ifndef SCENES_LIBERO_ARTICULATION_H
#define SCENES_LIBERO_ARTICULATION_H

#include "scenes/libero/motion.h"

double joint_position(const struct expert_view *v, int joint);
bool joint_slides(const struct expert_view *v, int joint);

// Where the joint is to go: past the rule's value, within its range.
double joint_goal(const struct expert_view *v, int joint, const struct joint_rule *r);

// Take a pose that is fixed to the joint's body along while the joint moves by dq.
void joint_carry(const struct expert_view *v, int joint, double dq, double pos[3], double R[9]);

// Unit direction in which the point `pos` of the joint's body moves towards the goal.
void joint_direction(const struct expert_view *v, int joint, bool less, const double pos[3],
                     double dir[3]);

// The own box that is farthest out: along the motion (`push`: against it), or from the hinge. -1 if
// there is none.
int joint_outermost(const struct expert_view *v, int joint, bool less, bool push,
                    const struct surroundings *s);

// How far the own boxes reach from the joint's axis, horizontally.
double joint_extent(const struct expert_view *v, int joint, const struct surroundings *s);

#endif
