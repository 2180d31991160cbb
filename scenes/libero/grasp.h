// grasp.h - where to take hold of a thing, and where to put a held one down: searches over hand
// poses in a world of boxes.
//
// Threads: any; the caller owns all of it.
#ifndef SCENES_LIBERO_GRASP_H
#define SCENES_LIBERO_GRASP_H

#include "scenes/libero/hand.h"

#define GRASP_OPENING 0.04 // m, of each finger when open
#define TABOO_MAX     8
#define GRASP_MAX     5 // a grasp of the middle and one of each side

// Boxes of the scene without the robot. `own[i]` marks those of the thing in question.
struct surroundings {
    struct box *boxes; // owned by the caller
    bool *own;
    int n;
};

struct grasp {
    struct hand_pose hand;
    double width;   // m between the fingers
    double opening; // m, of each finger on the way there
    double cost;
};

// A grasp that failed: near ones are avoided.
struct taboo {
    double offset[3], yaw; // from the thing's origin
};

struct grasp_query {
    const struct hand *hand;
    const struct surroundings *around;
    double origin[3], centre[3]; // of the thing: its body's origin and its centre of mass, world
    double yaw;                  // the hand's neutral yaw; grasps are within a quarter turn of it
    double preferred;            // yaw to prefer, as far as it matters
    bool wide;                   // the wider the better: the fingers press harder
    bool fixed_yaw;              // only `preferred`
    double lean, lean_to[2];     // > 0: not from above, but leaning towards this direction
    double near[3], near_radius; // if > 0: only grasps about this point
    struct taboo taboos[TABOO_MAX];
    int n_taboo;
};

// The best grasps by side of the thing, the best one first. Returns their number.
int grasp_find(const struct grasp_query *q, struct grasp out[GRASP_MAX]);

// How far the hand can move along `dir` from `at` before it touches anything but the thing, at most
// `limit`.
double hand_free(const struct hand *hand, const struct surroundings *s, const struct hand_pose *at,
                 double opening, const double dir[3], double limit);

// The same for the thing itself, turned by R about `about` and shifted first.
double thing_free(const struct surroundings *s, const double R[9], const double about[3],
                  const double shift[3], const double dir[3], double limit);

#endif
