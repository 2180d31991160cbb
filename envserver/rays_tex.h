// rays_tex.h - textures with mip levels, filtered as Mesa's software renderer filters them.
//
// Pictures made by llvmpipe are the reference, so its arithmetic is kept: mip levels of linear
// textures come from 8-bit interpolation, 2-D linear textures are interpolated in 8 bits with
// 1/256 steps, log2 is piecewise linear. Cube maps and sRGB textures are filtered in float.
//
// Threads: read only once made.
#ifndef ENVSERVER_RAYS_TEX_H
#define ENVSERVER_RAYS_TEX_H

#include "envserver/rays_share.h"

#include <mujoco/mujoco.h>

#define TEX_LEVEL_MAX 16

struct rays_tex {
    struct shared_item head;
    int id[4];      // cube, sRGB, width, height: part of the key
    uint8_t *texel; // owned, RGBA of all levels and faces; level 0 follows the id in the key
    bool cube, srgb;
    int n_face; // images: 1, or 6 different ones
    int n_level;
    int w[TEX_LEVEL_MAX], h[TEX_LEVEL_MAX];
    size_t offset[TEX_LEVEL_MAX]; // of a level's first face, in bytes
};

NODISCARD enum status tex_create(struct rays_tex **out, const mjModel *m, int id);
void tex_release(struct rays_tex *tex); // NULL is fine

// Colour of a cube map in direction `at`, whose neighbours one pixel to the right and one up have
// directions `right` and `up`. out: RGBA, 0..1. (2-D ones are sampled in rays_shade.)
void tex_sample_cube(const struct rays_tex *tex, const float at[3], const float right[3],
                     const float up[3], float out[4]);

#endif
