// rays_shade.h - colours of (pixel, triangle) pairs: OpenGL's fixed-function lighting at the
// triangle's corners, interpolated to the pixel's centre, times the texture there.
//
// As in a multisampled OpenGL picture a triangle has one colour per pixel however many samples it
// covers, and that colour is computed at the pixel's centre even where the centre lies outside of
// the triangle.
//
// Threads: any; the functions have no state.
#ifndef ENVSERVER_RAYS_SHADE_H
#define ENVSERVER_RAYS_SHADE_H

#include "envserver/rays_trace.h"

#define SHADE_GROUP 8
#define PATCH       32 // pixels of a side of what is shaded at once: whole tiles

// A triangle as a patch sees it: what is interpolated over it, each times w, is linear in the
// window coordinates (x, y) from the patch's corner: v w = plane[0] + x plane[1] + y plane[2].
enum { FACET_RGB = 0, FACET_TEX = 3, FACET_T = 6, FACET_W = 7 }; // colour, texture, depth, w itself

struct rays_facet {
    _Alignas(32) float plane[3][8];
    float light[RAYS_LIGHT_MAX][3][4]; // the same for the colours of the `shadowed` lights
    int inst, prim;
};

struct rays_frag {
    int facet;
    uint16_t pixel; // row * PATCH + column of the patch
};

// What is lit how.
struct rays_lighting {
    unsigned base;     // bit l: light l acts in the base colour
    unsigned shadowed; // bit l: light l has a colour of its own, and may be in shadow
    float scale;       // of the material's colour (mirror images)
};

struct rays_colour {
    _Alignas(16) float rgba[4];
    float light[RAYS_LIGHT_MAX][3]; // of the `shadowed` lights; zero where in shadow
};

struct pixel8 {
    uint8_t c[4];
};

// For up to SHADE_GROUP things of one instance, of the patch whose corner is (x, y).
struct rays_shader {
    const char *name;
    // Light the corners of facets whose inst and prim are set: fills in the rest.
    void (*prepare)(const struct rays_scene *s, const struct rays_view *v, int x, int y,
                    struct rays_facet *const facet[], int n, const struct rays_lighting *how);
    // Colours out[i] of frags[i] of prepared facets, for all i of which[0..n).
    void (*colour)(const struct rays_scene *s, const struct rays_view *v,
                   const struct rays_tracer *tracer, int x, int y, const struct rays_facet *facets,
                   const struct rays_frag *frags, const int *which, int n,
                   const struct rays_lighting *how, struct rays_colour *out);
    // The same where no light may be in shadow, in 8 bits and without alpha.
    void (*colour8)(const struct rays_scene *s, const struct rays_facet *facets,
                    const struct rays_frag *frags, const int *which, int n, struct pixel8 *out);
};

const struct rays_shader *rays_shader_best(void);
const struct rays_shader *rays_shader_find(const char *name); // NULL if it cannot run

#endif
