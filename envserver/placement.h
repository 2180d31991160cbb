// placement.h - which processors the workers run on: the affinity option, and the memory nodes that
// /sys shows.
//
// Threads: any; nothing is kept.
#ifndef ENVSERVER_PLACEMENT_H
#define ENVSERVER_PLACEMENT_H

#include "common/base/status.h"

#define PLACEMENT_MAX 256 // workers

struct placement {
    int cpu[PLACEMENT_MAX];  // of worker i, -1 = wherever the kernel likes
    int node[PLACEMENT_MAX]; // memory node of that processor as 0..n_node-1; 0 if it is not known
    int n_node;              // nodes that have a worker, at least 1
};

// affinity: "" or "none" (not pinned), "auto" (one worker after the other on the processors of this
// process), or a list such as "0-3,8": worker i takes entry i, from the front again when they are
// used up. `sys` is the root of the nodes, NULL = /sys/devices/system/node. ST_INVAL names a
// processor that this process may not use.
NODISCARD enum status placement_make(struct placement *out, const char *affinity, int n_worker,
                                     const char *sys);

// Pin the calling thread to worker i's processor, if it has one.
NODISCARD enum status placement_pin(const struct placement *p, int i);

#endif
