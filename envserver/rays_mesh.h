// rays_mesh.h - the triangles that MuJoCo's renderer draws, and ray trees over them.
//
// The picture depends on MuJoCo's own vertices, for light is computed there: round shapes are
// tessellated exactly as MuJoCo does it, boxes and planes are cut into the same cells. Boxes and
// planes need no tree: a ray meets them in closed form, the cell follows from the place.
//
// Coordinates are those of the display list, before the scale of a geom: unit sphere, unit box,
// metres for planes, meshes and height fields.
//
// Threads: meshes are only read once they are made; making and freeing may happen in any thread.
#ifndef ENVSERVER_RAYS_MESH_H
#define ENVSERVER_RAYS_MESH_H

#include "envserver/rays_cluster.h"
#include "envserver/rays_share.h"

#include <mujoco/mujoco.h>

enum mesh_kind {
    MESH_SOUP, // triangles under a ray tree
    MESH_BOX,  // [-1,1]^3, n_cell[0] x n_cell[0] cells a face
    MESH_GRID, // z = 0, cells between line[0] and line[1], normal +z
};

// One triangle's corners.
struct mesh_tri {
    float p[3][3], n[3][3], uv[3][2];
};

struct rays_mesh {
    struct shared_item head; // soups only
    enum mesh_kind kind;
    float lo[3], hi[3];            // bounds
    int n_tri;                     // soup
    float *pos;                    // owned, (n_tri, 3, 3); attributes follow in the same block
    float *attr;                   // (n_tri, 15): normals (3, 3), texture coordinates (3, 2)
    void *tree;                    // RTCScene
    struct rays_clusters clusters; // soup, box
    struct mesh_tri *tri;          // owned, box: all triangles
    int n_cell[2];                 // box, grid
    float *line[2];                // owned, grid: (n_cell + 1) edges
    float inv_step[2];             // grid: 1 / width of the inner cells
    float size[2];                 // grid: half sizes for texture coordinates, 0 = infinite
};

enum mesh_shape {
    SHAPE_SPHERE,
    SHAPE_TUBE,     // cylinder without caps
    SHAPE_CYLINDER, // with caps
    SHAPE_TOP,      // half sphere of a capsule, z from 1 to 2
    SHAPE_BOTTOM,   // z from -1 to -2
    N_SHAPE,
};

// A round shape of `ns` slices and `nt` stacks.
NODISCARD enum status mesh_shape_create(struct rays_mesh **out, enum mesh_shape shape, int ns,
                                        int nt);
NODISCARD enum status mesh_box_create(struct rays_mesh **out, int nq);
// The square [-1,1]^2 in nq x nq cells (planes that are no model geoms).
NODISCARD enum status mesh_square_create(struct rays_mesh **out, int nq);
// Plane geom `geom`, mesh `id` and height field `id` of a model.
NODISCARD enum status mesh_plane_create(struct rays_mesh **out, const mjModel *m, int geom);
NODISCARD enum status mesh_model_create(struct rays_mesh **out, const mjModel *m, int id);
NODISCARD enum status mesh_hfield_create(struct rays_mesh **out, const mjModel *m, int id);

// Give one use back. NULL is fine.
void mesh_release(struct rays_mesh *mesh);

// Triangle `prim`: soups number theirs; of a grid it is ((column * rows) + row) * 2 + half, of a
// box
// (((axis * 2 + positive) * n + column) * n + row) * 2 + half.
void mesh_fetch(const struct rays_mesh *mesh, int prim, struct mesh_tri *out);

// Have triangle `prim` brought near: it will be fetched soon.
static inline void mesh_prefetch(const struct rays_mesh *mesh, int prim)
{
    if (mesh->kind == MESH_SOUP) {
        __builtin_prefetch(mesh->pos + (size_t)prim * 9);
        __builtin_prefetch(mesh->attr + (size_t)prim * 15);
    }
}

// A box triangle on the +z face (the one that mirrors).
bool mesh_box_is_top(const struct rays_mesh *mesh, int prim);

#endif
