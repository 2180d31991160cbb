#include "scenes/libero/boxes.h"

#include <math.h>
#include <string.h>

#define SLAB 0.5 // m, half thickness of a plane's box
#define WIDE 50.0

// In this file's loops; the engine's own are calls into another library.
static inline double dot(const double a[3], const double b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

void box_of_geom(struct box *out, const mjModel *m, const mjData *d, int g)
{
    const double *size = m->geom_size + 3 * g, *bound = m->geom_aabb + 6 * g;
    double offset[3] = {0, 0, 0}, turned[3];

    memcpy(out->R, d->geom_xmat + 9 * g, sizeof out->R);
    memcpy(out->half, size, sizeof out->half);
    out->geom = g;
    switch (m->geom_type[g]) {
    case mjGEOM_SPHERE:
        out->half[1] = out->half[2] = size[0];
        break;
    case mjGEOM_CAPSULE:
        out->half[1] = size[0];
        out->half[2] = size[0] + size[1];
        break;
    case mjGEOM_CYLINDER:
        out->half[1] = size[0];
        out->half[2] = size[1];
        break;
    case mjGEOM_PLANE:
        out->half[0] = out->half[1] = WIDE;
        out->half[2] = SLAB;
        offset[2] = -SLAB;
        break;
    case mjGEOM_MESH:
        memcpy(offset, bound, sizeof offset);
        memcpy(out->half, bound + 3, sizeof out->half);
        break;
    default: // boxes and ellipsoids
        break;
    }
    mju_mulMatVec3(turned, out->R, offset);
    mju_add3(out->center, d->geom_xpos + 3 * g, turned);
}

double box_reach(const struct box *b, const double dir[3])
{
    double sum = 0;
    int i;

    for (i = 0; i < 3; i++)
        sum += b->half[i] * fabs(b->R[i] * dir[0] + b->R[3 + i] * dir[1] + b->R[6 + i] * dir[2]);
    return sum;
}

// Narrow `range` to the t at which the shadows on the axis L overlap.
static bool narrow(const struct box *a, const struct box *b, const double gap[3],
                   const double dir[3], const double L[3], double range[2])
{
    double r = box_reach(a, L) + box_reach(b, L), at = dot(gap, L), speed = dot(dir, L);

    if (fabs(speed) < 1e-9)
        return fabs(at) <= r;
    range[0] = fmax(range[0], (at - (speed > 0 ? r : -r)) / speed);
    range[1] = fmin(range[1], (at + (speed > 0 ? r : -r)) / speed);
    return range[0] <= range[1];
}

// Separating axes: the faces of both and the crosses of their edges (Gottschalk, Lin and Manocha,
// "OBBTree", SIGGRAPH 1996), each giving an interval of t.
bool box_sweep(const struct box *moving, const struct box *fixed, const double dir[3],
               double range[2])
{
    double gap[3], off[3], L[3];
    double r = sqrt(dot(moving->half, moving->half)) + sqrt(dot(fixed->half, fixed->half)), along;
    int i, k;

    for (i = 0; i < 3; i++)
        gap[i] = fixed->center[i] - moving->center[i];
    along = dot(gap, dir);
    for (i = 0; i < 3; i++)
        off[i] = gap[i] - along * dir[i];
    if (dot(off, off) > r * r)
        return false;
    range[0] = -1e9;
    range[1] = 1e9;
    for (i = 0; i < 6; i++) {
        const double *R = i < 3 ? moving->R : fixed->R;
        int c = i % 3;

        L[0] = R[c];
        L[1] = R[3 + c];
        L[2] = R[6 + c];
        if (!narrow(moving, fixed, gap, dir, L, range))
            return false;
    }
    for (i = 0; i < 3; i++)
        for (k = 0; k < 3; k++) {
            double a[3] = {moving->R[i], moving->R[3 + i], moving->R[6 + i]};
            double b[3] = {fixed->R[k], fixed->R[3 + k], fixed->R[6 + k]};

            L[0] = a[1] * b[2] - a[2] * b[1];
            L[1] = a[2] * b[0] - a[0] * b[2];
            L[2] = a[0] * b[1] - a[1] * b[0];
            if (dot(L, L) > 1e-6 && !narrow(moving, fixed, gap, dir, L, range))
                return false;
        }
    return true;
}

bool box_hits(const struct box *a, const struct box *b, double margin)
{
    static const double dir[3] = {0, 0, 1};
    struct box grown = *a;
    double range[2];
    int i;

    for (i = 0; i < 3; i++)
        grown.half[i] += margin;
    return box_sweep(&grown, b, dir, range) && range[0] <= 0 && range[1] >= 0;
}
