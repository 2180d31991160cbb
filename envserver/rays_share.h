// rays_share.h - things with equal content exist once in the process: meshes with their ray trees
// and textures with their mip levels, counted by use.
//
// An item embeds struct shared_item as its first member. Content is compared in full, not only by
// hash. Threads: any; items are built under one lock, and are only read once rays_share gave them.
#ifndef ENVSERVER_RAYS_SHARE_H
#define ENVSERVER_RAYS_SHARE_H

#include "common/base/status.h"

#include <stdint.h>

struct shared_item;

struct shared_kind {
    enum status (*build)(struct shared_item *item); // make the derived parts, once
    void (*destroy)(struct shared_item *item);      // free it, built or not
};

struct shared_item {
    const struct shared_kind *kind;
    const void *key; // content, inside the item
    size_t key_bytes;
    uint64_t hash;
    int refs;
    struct shared_item *next;
};

// Hand `item` (kind, key and key_bytes set) over: the one item with this content comes out, built,
// with one more use; `item` itself is destroyed if there was one before, and on failure.
NODISCARD enum status rays_share(struct shared_item **out, struct shared_item *item);

// Give one use back; the last one destroys it. NULL is fine.
void rays_unshare(struct shared_item *item);

// Items alive in the process.
int rays_shared_items(void);

#endif
