// rays_scene.h - one frame's scene as rays need it: instances of meshes, materials, lights, views.
//
// All positions are relative to the eye of a view, so that float is enough. A ray of window point
// (x, y) - pixels, y up - is o + t d with o and d affine in x and y; t is the depth along the view
// axis in metres. Perspective views have a constant o, orthographic ones a constant d.
//
// Threads: rays_shared is only read by frames; everything else belongs to one worker.
#ifndef ENVSERVER_RAYS_SCENE_H
#define ENVSERVER_RAYS_SCENE_H

#include "envserver/rays_depth.h"
#include "envserver/rays_mesh.h"
#include "envserver/rays_tex.h"

#define RAYS_LIGHT_MAX 8 // as many as OpenGL has

// What all envs of a task model share.
struct rays_shared {
    struct rays_mesh *shape[N_SHAPE];
    struct rays_mesh *box, *square;
    int n_plane, n_mesh, n_hfield, n_tex;
    struct rays_mesh **plane;   // owned (n_plane), model planes in order
    struct rays_mesh **mesh;    // owned (n_mesh)
    struct rays_mesh **hfield;  // owned (n_hfield)
    struct rays_tex **tex;      // owned (n_tex), NULL where no material uses it
    const struct rays_tex *sky; // the first skybox
    int n_slice;
};

NODISCARD enum status rays_shared_init(struct rays_shared *shared, const mjModel *m);
void rays_shared_fini(struct rays_shared *shared); // zeroes are fine

enum tex_coords {
    TEX_NONE,
    TEX_PLACE, // from the list coordinates of the vertex
    TEX_UV,    // from the mesh's texture coordinates
};

// One mjvGeom's looks.
struct rays_material {
    float rgba[4];
    float emission, specular, exponent; // exponent = 128 shininess
    const struct rays_tex *tex;
    enum tex_coords coords;
    float scale[3], bias[3]; // texture coordinate = scale * source + bias
    bool transparent;
    bool behind; // a plane seen from its back
    bool casts;  // throws shadows
    bool mirror; // the one reflective geom
    float reflectance;
    double camdist; // sorting key of transparent geoms
};

// One mesh in one place; a capsule is three of them.
struct rays_inst {
    const struct rays_mesh *mesh;
    int geom;      // index into mjvScene.geoms and the materials
    double pos[3]; // world
    float lin[9];  // list -> world, row-major
    float inv[9];  // world -> list
    float nrm[9];  // list normals -> world directions, to be normalised
};

// How one view sees an instance: rays in list coordinates at window point (0, 0) and their change
// per pixel, and what it covers.
struct rays_seen {
    double o[3], ox[3], oy[3], d[3], dx[3], dy[3];
    float rel[3];     // place relative to the eye
    float x[2], y[2]; // window rectangle that holds it
    float depth;      // nearest possible t; INFINITY = not in view
};

struct rays_light {
    bool directional, cone;
    bool shadow;
    float pos[3]; // relative to the eye of the view
    float dir[3]; // unit
    float amb[3], dif[3], spe[3], att[3];
    float exponent, cos_cutoff;
};

// The square that a shadow map would cover (MuJoCo lights everything outside of it).
struct rays_shadow {
    float right[3], up[3], forward[3];
    float half;  // directional: metres; else tangent of half the angle
    float texel; // size of a texel: directional: metres; else metres per metre of depth
};

struct rays_view {
    double eye[3];
    double right[3], up[3], forward[3];
    double o[3], ox[3], oy[3], d[3], dx[3], dy[3];
    double e0[2], e1[2]; // window -> eye plane coordinates: e = e0 + e1 * (x, y)
    bool ortho;
    float near, far;
    struct rays_depth_view gl; // perspective views: as OpenGL has it
    struct rays_light light[RAYS_LIGHT_MAX];
    struct rays_seen *seen; // (n_inst), in the scene's memory
    int *order;             // (n_inst), instances in view, nearest first
    int n_order;
};

struct rays_scene {
    int n_inst, max_inst;
    struct rays_inst *inst;         // owned (max_inst)
    struct rays_material *material; // owned (max_geom)
    int n_geom, max_geom;
    int n_light;
    bool no_light; // the scene had none: a dim ambient one acts
    struct rays_shadow shadow[RAYS_LIGHT_MAX];
    int n_transparent;
    int *transparent; // owned (max_geom), geoms by distance
    int *first_inst;  // owned (max_geom + 1), instances of a geom
    int mirror_geom;  // -1 = none
    double mirror_pos[3], mirror_normal[3];
    int width, height;
    struct rays_view main, mirrored;
    const struct rays_tex *sky; // NULL = black
    double sky_distance;
    int n_slice;
};

// Room for `max_geom` geoms.
NODISCARD enum status rays_scene_init(struct rays_scene *s, int max_geom);
void rays_scene_fini(struct rays_scene *s); // zeroes are fine

// Take over the abstract scene for a picture of width x height.
NODISCARD enum status rays_scene_set(struct rays_scene *s, const struct rays_shared *shared,
                                     const mjModel *m, const mjvScene *scn, int width, int height);

#endif
