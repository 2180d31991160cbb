// hub.h - the rollout workers of a learner: accepts them, checks what they say, and puts everything
// that they send into one bounded queue.
//
// A worker that breaks the protocol is told so and dropped; others do not notice. What the learner
// sends goes through an outbox per worker, so that a slow worker never holds the learner up: when
// it is full, the oldest message (old weights) is replaced.
//
// Threads: one consumer; two threads a worker run inside.
#ifndef LEARNER_HUB_H
#define LEARNER_HUB_H

#include "common/wire/episode.h"
#include "common/wire/link.h"
#include "common/wire/trainproto.h"
#include "nn/vla_about.h"

enum hub_kind { HUB_JOINED, HUB_LEFT, HUB_CHUNK, HUB_EPISODE, HUB_STATE, HUB_LOST, HUB_BACK };

struct hub_item {
    enum hub_kind kind;
    int worker;             // number of the worker, unique over the life of the hub
    struct join join;       // HUB_JOINED; of a HUB_EPISODE for the consumer's use
    struct msg *m;          // HUB_CHUNK, HUB_EPISODE, HUB_STATE, HUB_LOST, HUB_BACK
    struct chunk chunk;     // HUB_CHUNK: points into m
    struct episode episode; // HUB_EPISODE: the same
    const uint32_t *envs;   // HUB_LOST, HUB_BACK: (n_envs) global numbers; points into m
    uint32_t n_envs;
    uint64_t chunks; // HUB_BACK: see back_read
};

struct hub_config {
    const char *listen;
    const char *task; // "" = any
    uint32_t horizon;
    uint32_t n_env;              // envs of all workers together
    uint32_t n_obs, n_act;       // 0 = those of the first worker
    const char *conv;            // of models with vision, see model_conv_parse
    int stack;                   // pictures that they see at once
    const struct vla_about *vla; // EPISODEs hold what this model sees, not what JOIN says; or NULL
    uint32_t group_size; // workers send EPISODEs in groups of so many; 0: CHUNKs. Tasks may differ
};

struct hub;

NODISCARD enum status hub_create(struct hub **out, const struct hub_config *cfg);
const char *hub_url(const struct hub *hub);

// The next item, ST_TIMEOUT or ST_AGAIN (wait_ns 0). The caller frees it with hub_item_free.
NODISCARD enum status hub_next(struct hub *hub, struct hub_item **out, int64_t wait_ns);
void hub_item_free(struct hub_item *item); // NULL is fine

// Items that wait.
int hub_length(struct hub *hub);

// Put a message into the worker's outbox; takes it. A worker that is gone swallows it.
void hub_send(struct hub *hub, int worker, struct msg *m);

// Close all connections (after what is in the outboxes was sent, one second at most) and wait for
// the threads. NULL is fine.
void hub_destroy(struct hub *hub);

#endif
