// pool_priv.h - the inside of pool.c (workers and their queue) and port.c (requests and batches).
//
// Lock rules. `pool->mtx` guards the queue of slots to run and the leases; `port->mtx` guards a
// port's blocks and the busy marks of its slots. Neither is held while physics runs, while a row is
// written, or while the other is taken.
//
// A slot (an env and its present request) belongs to the port's user while it is not busy, to the
// pool from port_step until its row is complete.
#ifndef ENVSERVER_POOL_PRIV_H
#define ENVSERVER_POOL_PRIV_H

#include "envserver/env.h"
#include "envserver/pool.h"

#include <stdatomic.h>

// A batch in the making. Rows are reserved when their physics is done and then written; the block
// may leave when every reserved row is complete.
struct block {
    struct msg *m;
    struct batcher batcher; // counts complete rows
    int reserved;
    enum batcher_why why; // BATCHER_WAIT = takes rows
    struct block *next;
};

struct slot {
    struct env env;
    struct port *port; // who leases it, NULL = free; guarded by pool->mtx
    bool busy;         // guarded by port->mtx
    uint64_t stamp;    // finds an env that stands twice in one request; guarded by port->mtx
    bool is_reset;
    struct reset_row reset;
    int n_sub;
    float *actions; // (k_max, n_act), owned by the port
};

struct port {
    struct pool *pool;
    struct port_config cfg;
    struct row_layout layout;
    float *actions; // (n_env, k_max, n_act)
    uint32_t *ids;  // (n_env) ascending
    bool *mine;     // (pool's n_env) is it leased to this port
    int n_env;
    uint32_t refused;
    uint64_t stamp; // of the present request

    pthread_mutex_t mtx;
    pthread_cond_t cond;
    struct block *first, *last; // batches in the making, oldest first; guarded by mtx
    struct block *spare;        // unused blocks; guarded by mtx
    int in_flight;              // requests whose rows are not complete; guarded by mtx
    uint64_t seq;               // batches sent; guarded by mtx
    bool woken;                 // guarded by mtx
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    bool started;
    atomic_llong steps, episodes, errors; // written by this worker only
} __attribute__((aligned(64)));

struct pool {
    struct scene *scene;
    struct spec spec;
    struct slot *slots; // (n_env)
    int n_env;

    pthread_mutex_t mtx;
    pthread_cond_t work;
    uint32_t *queue; // (n_env) ring of slots to run; guarded by mtx
    int head, count; // guarded by mtx
    int idle;        // workers that wait; guarded by mtx
    bool stop;       // guarded by mtx

    atomic_llong batches[4], rows;
    atomic_llong logged_ns, unlogged;
    int n_worker;
    struct worker *workers; // (n_worker)
};

// Put the n envs of a request on the pool's queue; they are marked busy already. A row begins with
// its env's number.
void pool_enqueue(struct pool *pool, const uint8_t *rows, size_t stride, int n);

// Reserve a row in the newest batch of the slot's port, write the slot's answer into it, count it.
// Called by worker `w`, which gives the slot up with this call.
void port_deliver(struct worker *w, struct slot *slot);

// Add the env's finished request to the worker's counters.
void pool_count_row(struct worker *w, const struct env *env);

#endif
