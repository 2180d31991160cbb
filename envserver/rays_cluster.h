// rays_cluster.h - the triangles of a mesh in batches as wide as a vector, and the batches in
// clusters that can be left out as a whole: out of view, all turned away, or hidden.
//
// Threads: read only once they are made.
#ifndef ENVSERVER_RAYS_CLUSTER_H
#define ENVSERVER_RAYS_CLUSTER_H

#include "common/base/status.h"

#define BATCH_LANES     8
#define CLUSTER_BATCHES 8 // at most

// Corners of BATCH_LANES triangles. Lanes without one have prim -1 and no area.
struct rays_batch {
    _Alignas(32) float p[3][3][BATCH_LANES]; // corner, axis, lane
    int prim[BATCH_LANES];
};

struct rays_cluster {
    float lo[3], hi[3]; // bounds
    // Seen from e, no face looks back if (centre - e) . axis >= cutoff |centre - e| + radius.
    float centre[3], radius, axis[3], cutoff; // cutoff above 1: can never be said
    int first, n;                             // batches
};

struct rays_clusters {
    struct rays_batch *batch;     // owned
    struct rays_cluster *cluster; // owned
    int n_batch, n_cluster;
};

// Sort `n` triangles (n, 3, 3) into clusters.
NODISCARD enum status clusters_build(struct rays_clusters *out, const float *pos, int n);
void clusters_free(struct rays_clusters *c); // zeroes are fine

#endif
