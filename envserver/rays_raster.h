// rays_raster.h - which triangle each ray of a picture meets first, the other way round: for all
// rays of a perspective view at once, instance by instance.
//
// The rays of a view go through one point, so those that meet a triangle are those inside of its
// outline on the picture; corners are rounded to 1/256 of a pixel as OpenGL's rasterisers do, which
// makes outlines the same to the sample. Clusters that are out of view, turned away or hidden
// behind what is already there are left out as a whole. The result is that of rays_trace.h.
//
// Threads: a block belongs to one thread; tables of functions are constant.
#ifndef ENVSERVER_RAYS_RASTER_H
#define ENVSERVER_RAYS_RASTER_H

#include "envserver/rays_trace.h"

// A rectangle of tiles.
struct rays_block {
    int x, y;               // window coordinates of the corner
    int nx, ny;             // tiles
    struct rays_tile *tile; // (ny, nx)
};

struct rays_raster {
    const char *name;
    // Bring the block up to date with instance `i` of a perspective view, whose mesh has clusters.
    void (*draw)(const struct rays_scene *s, const struct rays_view *v, int i,
                 const struct rays_block *b);
};

const struct rays_raster *rays_raster_best(void);
const struct rays_raster *rays_raster_find(const char *name); // NULL if it cannot run

#endif
