// boxes.h - a scene's collision geoms as oriented boxes, and boxes that move along a line.
//
// Boxes and meshes' bounds are exact; spheres, capsules, cylinders and ellipsoids get the box
// around them, a plane a thick slab below it.
//
// Threads: any.
#ifndef SCENES_LIBERO_BOXES_H
#define SCENES_LIBERO_BOXES_H

#include "common/base/status.h"

#include <mujoco/mujoco.h>

struct box {
    double center[3], half[3], R[9]; // R row-major, its columns are the box's axes
    int geom;                        // -1 = none
};

// The box of geom `g` where `d` has it.
void box_of_geom(struct box *out, const mjModel *m, const mjData *d, int g);

// Half-length of the box along the unit vector `dir`.
double box_reach(const struct box *b, const double dir[3]);

// The interval of t at which `moving`, shifted by t * dir, overlaps `fixed`. False if it never
// does.
bool box_sweep(const struct box *moving, const struct box *fixed, const double dir[3],
               double range[2]);

// True if they overlap when `a` is larger by `margin` on each side.
bool box_hits(const struct box *a, const struct box *b, double margin);

#endif
