// osc.h - robosuite 1.4's OSC_POSE controller of the Panda and its gripper command.
//
// Operational-space control: Khatib, "A unified approach for motion and force control of robot
// manipulators", IEEE J. Robotics and Automation 3(1), 1987, with position and orientation
// decoupled and a nullspace posture, in the discrete form and with the rounding of robosuite:
// the goal's rotation passes through single precision.
//
// Threads: a struct osc belongs to one world.
#ifndef SCENES_LIBERO_OSC_H
#define SCENES_LIBERO_OSC_H

#include "common/base/status.h"

#include <mujoco/mujoco.h>
#include <stdbool.h>

#define OSC_DOF 7

// Where the arm is in the model. Its joints are the first seven of qpos, qvel and ctrl.
struct osc_ids {
    int grip_site; // the controlled point
};

struct osc {
    // what the controller believes: state of the arm at the last refresh
    double x[3], R[9];           // grip site, R row-major
    double v[3], w[3];           // its velocities
    double J[6 * OSC_DOF];       // rows: position, rotation
    double M[OSC_DOF * OSC_DOF]; // inertia of the arm, with armature
    double q[OSC_DOF], qd[OSC_DOF];
    bool refresh_due;
    double goal_x[3], goal_R[9];
    double posture[OSC_DOF]; // nullspace target, rad
    double gripper[2];       // gripper command in -1..1 of each finger
};

// Checks that the model's first dofs are the arm's, found by name: ST_INVAL if not.
NODISCARD enum status osc_find(const mjModel *m, struct osc_ids *ids);

// As robosuite's controller is built: goal and posture are where the arm is now (after mj_forward),
// and the first torque is computed from this state, even if the arm is moved in between.
void osc_begin(struct osc *o, const struct osc_ids *ids, const mjModel *m, const mjData *d);

// Start of an env step. action is (7): delta position, delta rotation (axis-angle), gripper, in
// -1..1; with `absolute` the goal pose in m and rad instead, not clipped.
void osc_set_goal(struct osc *o, const struct osc_ids *ids, const mjModel *m, const mjData *d,
                  const double *action, bool absolute);

// Between mj_step1 and mj_step2 of each physics step: write d->ctrl (9).
void osc_control(struct osc *o, const struct osc_ids *ids, const mjModel *m, mjData *d,
                 double gripper_action);

// A quaternion (w, x, y, z) as robosuite's quat2mat rounds it, row-major.
void osc_quat_to_mat(const double quat[4], double mat[9]);

#endif
