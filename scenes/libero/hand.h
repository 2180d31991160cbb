// hand.h - the shape of the gripper, for planning: boxes in the hand's own frame.
//
// The frame's origin is the grip site; its axes are a: along which the fingers move, b: across, and
// n: where the fingers point. Each finger's inner face is at a = +-opening.
//
// Threads: read-only once made.
#ifndef SCENES_LIBERO_HAND_H
#define SCENES_LIBERO_HAND_H

#include "scenes/libero/boxes.h"

#define HAND_BOX_MAX 32

enum hand_part { HAND_PALM, HAND_LEFT, HAND_RIGHT };

// Position and orientation of the hand's frame in the world; R's columns are a, b and n.
struct hand_pose {
    double pos[3], R[9];
};

struct hand {
    int site;
    int n;
    struct box boxes[HAND_BOX_MAX]; // with the fingers closed
    enum hand_part part[HAND_BOX_MAX];
    struct box pad;     // half-sizes of a finger's pad and its place along b and n
    double to_site[9];  // site matrix = R * to_site
    double tip;         // m, how far the fingers reach beyond the grip site
    double shoulder[3]; // world; where the arm's reach is measured from
    double wrist[2]; // m from the grip site to the wrist: along -n, and back towards the shoulder
    int *geom_part;  // (ngeom) 1 = left finger, 2 = right finger, 3 = other parts of the robot, 0
};

NODISCARD enum status hand_make(struct hand *h, const mjModel *m, int grip_site);
void hand_fini(struct hand *h);

// Fingers down at `pos`, moving along the horizontal direction at `yaw` (rad from x); leaning
// outwards as far as the arm would be stretched otherwise.
void hand_down(const struct hand *h, const double pos[3], double yaw, double R[9]);

// The same, leaning by `lean` rad so that the fingers point towards (dir[0], dir[1]) (unit).
void hand_leaning(double yaw, const double dir[2], double lean, double R[9]);

// Yaw of such a hand.
double hand_yaw(const double R[9]);

// Box `i` with the hand at `at` and an opening (m, of each finger).
void hand_box(const struct hand *h, int i, const struct hand_pose *at, double opening,
              struct box *out);

// Where the hand is in `d`.
void hand_now(const struct hand *h, const mjData *d, struct hand_pose *out);

#endif
