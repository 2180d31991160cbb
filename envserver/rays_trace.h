// rays_trace.h - which triangle the rays of one tile of the picture meet.
//
// A tile is TILE x TILE pixels with up to 4 samples each. Rays go in packets of 8, or of 16 where
// the processor has AVX-512. Instances are tried nearest first; boxes and planes in closed form,
// everything else through its ray tree. Faces seen from behind are not there, as in MuJoCo.
//
// Threads: a tile belongs to one thread; tables of functions are constant.
#ifndef ENVSERVER_RAYS_TRACE_H
#define ENVSERVER_RAYS_TRACE_H

#include "envserver/rays_scene.h"

#define TILE_BITS     3
#define TILE          (1 << TILE_BITS)
#define TILE_PIXELS   (TILE * TILE)
#define TILE_RAYS_MAX (4 * TILE_PIXELS)
#define SAME_DEPTH    3e-7f // relative: what rounding makes of one surface drawn twice
#define LAYER_MAX     4096  // hits of transparent things in one tile

// Where the rays of a tile go: offsets from its corner in pixels, and their pixels.
struct rays_pattern {
    int n_ray, samples;
    _Alignas(64) float x[TILE_RAYS_MAX];
    _Alignas(64) float y[TILE_RAYS_MAX];
    uint8_t pixel[TILE_RAYS_MAX]; // row * TILE + column
};

// 1 or 4 samples per pixel, row by row.
void rays_pattern_init(struct rays_pattern *p, int samples);

struct rays_tile {
    const struct rays_pattern *pattern;
    const float *tnear; // (n_ray) nothing before this counts; aligned to 64
    int x, y;           // window coordinates of the corner
    float limit;        // the farthest of t, or farther if stale
    bool stale;
    _Alignas(64) float t[TILE_RAYS_MAX];  // depth of the nearest hit so far
    _Alignas(64) int inst[TILE_RAYS_MAX]; // -1 = nothing hit
    _Alignas(64) int prim[TILE_RAYS_MAX];
};

// Of a distance: which of two such hits is in front, rounding decides. Corners are moved to 1/256
// of a pixel, which shifts a surface that is seen at a low angle so much.
#define NEARLY 1e-3f

// One more surface along a ray, at `t`.
struct rays_layer {
    short ray;
    int geom, inst, prim;
    float t;
};

struct rays_layers {
    int n;
    bool full; // some were lost
    struct rays_layer hit[LAYER_MAX];
};

// Depth of the farthest sample; no longer stale.
float rays_tile_limit(struct rays_tile *tile);

// Points whose way to a light is to be checked, relative to the eye of the view.
struct rays_probe {
    int n; // at most 8
    _Alignas(64) float o[3][8], d[3][8], t0[8], t1[8];
};

struct rays_tracer {
    const char *name;
    // Bring the tile's nearest hits, and their limit, up to date with instance `i` of the view.
    void (*nearest)(const struct rays_scene *s, const struct rays_view *v, int i,
                    struct rays_tile *tile);
    // Append every front face of instance `i` that is no farther than the tile's hits, or no more
    // than NEARLY beyond.
    void (*layers)(const struct rays_scene *s, const struct rays_view *v, int i,
                   const struct rays_tile *tile, struct rays_layers *out);
    // Bit k: something that casts shadows is on the way of probe k.
    unsigned (*blocked)(const struct rays_scene *s, const struct rays_view *v,
                        const struct rays_probe *probe);
};

// The fastest one for this processor; or by name ("sse", "avx2", "avx512"), NULL if it cannot run.
const struct rays_tracer *rays_tracer_best(void);
const struct rays_tracer *rays_tracer_find(const char *name);

// The same for any table of `n` entries of `size` bytes that begin with such a name, the fastest
// entry first and one that always can run last.
const void *rays_set_best(const void *table, size_t n, size_t size);
const void *rays_set_find(const void *table, size_t n, size_t size, const char *name);

#endif
