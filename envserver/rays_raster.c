#include "envserver/rays_raster.h"

#include <math.h>
#include <string.h>

#define UNIT      256 // of a pixel, as llvmpipe snaps corners
#define TILE_UNIT (TILE * UNIT)
#define REACH     1048576.0f // corners farther off than this, in units, are cut off
#define POLYGON   8          // corners of a triangle cut by five planes

// A view of an instance: X z, Y z (in units from the block's corner) and z of a point in list
// coordinates are m[0], m[1], m[2] times (p, 1).
struct projection {
    double m[3][4];
    float f[3][4]; // the same
    float near, far;
    float eye[3]; // in list coordinates
};

// What is being drawn.
struct canvas {
    const struct rays_block *block;
    const struct rays_pattern *pattern;
    struct projection to;
    int inst;
    float width, height; // of the block, units
};

static void project(struct projection *to, const struct rays_scene *s, const struct rays_view *v,
                    int i, const struct rays_block *b)
{
    const struct rays_inst *in = &s->inst[i];
    const double *axis[2] = {v->right, v->up};
    double corner[2] = {b->x, b->y}, row[3][3];
    int j, k;

    for (k = 0; k < 3; k++) {
        for (j = 0; j < 2; j++)
            row[j][k] = UNIT * ((axis[j][k] - v->e0[j] * v->forward[k]) / v->e1[j] -
                                corner[j] * v->forward[k]);
        row[2][k] = v->forward[k];
        to->eye[k] = (float)v->seen[i].o[k];
    }
    for (j = 0; j < 3; j++) {
        to->m[j][3] = 0;
        for (k = 0; k < 3; k++) {
            to->m[j][k] = row[j][0] * (double)in->lin[k] + row[j][1] * (double)in->lin[3 + k] +
                          row[j][2] * (double)in->lin[6 + k];
            to->m[j][3] += row[j][k] * (in->pos[k] - v->eye[k]);
        }
        for (k = 0; k < 4; k++)
            to->f[j][k] = (float)to->m[j][k];
    }
    to->near = v->near;
    to->far = v->far;
}

// Sample `r` of the tile meets triangle `prim` at depth t.
static void meet(struct rays_tile *tile, int r, float t, int inst, int prim)
{
    if (t < tile->t[r] * (1 - SAME_DEPTH) ||
        (t <= tile->t[r] * (1 + SAME_DEPTH) && tile->inst[r] < inst)) {
        tile->t[r] = t;
        tile->inst[r] = inst;
        tile->prim[r] = prim;
        tile->stale = true;
    }
}

// Of two triangles with a common edge one has the samples on it; both have them where numbers are
// too large for halves.
static float edge_bias(float a, float b)
{
    return a > 0 || (a == 0 && b > 0) ? 0 : -0.5f;
}

static int into_tiles(float x, int n)
{
    return x < 0 ? 0 : x >= (float)(n * TILE_UNIT) ? n - 1 : (int)x / TILE_UNIT;
}

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define NAME(x)      PASTE(x, SET)
#define LANES        8
#include "envserver/rays_simd.h"

#define SET sse
#define TARGET
#define BITS_256 0
#include "envserver/rays_raster_impl.h"
#ifndef RAYS_BASE_ONLY
#undef SET
#undef TARGET
#undef BITS_256
#define SET    avx2
#define TARGET TARGET_AVX2
#if defined(__x86_64__) && !defined(__clang__)
#define BITS_256 1
#else
#define BITS_256 0
#endif
#include "envserver/rays_raster_impl.h"
#endif

static const struct rays_raster rasters[] = {
#ifndef RAYS_BASE_ONLY
    {"avx2", draw_avx2},
#endif
    {"sse", draw_sse},
};

const struct rays_raster *rays_raster_find(const char *name)
{
    return rays_set_find(rasters, sizeof rasters / sizeof rasters[0], sizeof rasters[0], name);
}

const struct rays_raster *rays_raster_best(void)
{
    return rays_set_best(rasters, sizeof rasters / sizeof rasters[0], sizeof rasters[0]);
}
