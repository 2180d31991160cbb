// rays_keep.h - pictures of what cannot move, kept from one frame of a camera to the next: the
// surfaces that its rays meet first and their colours. A kept picture is used only where every bit
// that went into it is the same again: view, lights, places and looks.
//
// Threads: all of it belongs to one worker.
#ifndef ENVSERVER_RAYS_KEEP_H
#define ENVSERVER_RAYS_KEEP_H

#include "envserver/rays_trace.h"

#define KEEP_MAX   64         // pictures of a worker
#define KEEP_BYTES (32 << 20) // that they take together
#define KEEP_IDLE  1024       // frames after which an unused one makes room for another
#define KEEP_RING  256        // frames within which a scene has to come back to be kept

struct kept {
    uint64_t hash;
    uint8_t *key; // owned (key_bytes)
    size_t key_bytes, bytes;
    int64_t used; // frame
    int n_ray;    // of a tile
    uint8_t *rgb; // owned (height, width, 3)
    float *t;     // owned (tiles, n_ray), as in rays_tile
    int *hit;     // owned (tiles, 2, n_ray), instances and triangles
    float *limit; // owned (tiles)
};

struct rays_keep {
    struct kept kept[KEEP_MAX];
    int n;
    size_t bytes;
    int64_t frame;
    uint64_t ring[KEEP_RING]; // scenes of the last frames that were not kept
    uint8_t *key;             // owned, of the frame at hand
    size_t key_bytes, key_room;
    uint64_t hash;
};

void rays_keep_fini(struct rays_keep *k); // zeroes are fine

// Begin a frame: the kept picture of what stands still (still[geom]) in the scene's main view, NULL
// = none. *missing: it would have been of use before, and is worth making.
NODISCARD enum status rays_keep_find(struct rays_keep *k, const struct rays_scene *s,
                                     const bool *still, int samples, struct kept **out,
                                     bool *missing);

// Room for the picture of the frame at hand, to be filled in; NULL = none to be had now.
struct kept *rays_keep_add(struct rays_keep *k, const struct rays_scene *s, int samples);
void rays_keep_drop(struct rays_keep *k, struct kept *kept);

// A tile's surfaces, to and fro. `at` is its number, row by row.
void rays_keep_save(struct kept *kept, int at, struct rays_tile *tile);
void rays_keep_load(const struct kept *kept, int at, struct rays_tile *tile);

// Bit q: a sample of the tile's pixel q meets another instance than in the kept picture.
uint64_t rays_keep_changed(const struct kept *kept, int at, const struct rays_tile *tile);

#endif
