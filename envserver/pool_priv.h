// pool_priv.h - the inside of pool.c (workers), port.c (requests and batches) and isolate.c
// (workers that are processes).
//
// A worker's loop takes no lock: it claims a slot (workq), executes the request, reserves a row of
// the newest block by one atomic addition, writes the row and counts it. Two locks are left.
// `pool->mtx` guards the leases and lets one request at a time be queued. `port->mtx` guards the
// list of blocks: workers take it when a block is full, the receiver when it takes one. Neither is
// held while physics runs, while a row is written, or while the other is taken.
//
// A slot (an env and its present request) belongs to the port's user while its cell is idle, to the
// queue and then to a worker from port_step until its row is complete.
//
// With isolation the workers are processes. They see the pool as it was when they were made; what
// lies in pool->area and pool->port_area is shared, at the same addresses. A worker writes its row
// into the slot and marks it finished; the receiver copies it into a block. Nothing a worker does
// takes a lock of the server, and one that dies leaves every slot in a state that is known.
#ifndef ENVSERVER_POOL_PRIV_H
#define ENVSERVER_POOL_PRIV_H

#include "envserver/env.h"
#include "envserver/placement.h"
#include "envserver/pool.h"
#include "envserver/workq.h"

#include <sys/types.h>

#define LANES_MAX PLACEMENT_MAX

// A batch in the making. Rows are reserved when their physics is done and then written; the block
// may leave when every reserved row is complete. Blocks are used again but not freed before their
// port is, since a worker may still look at one that has left: it finds it closed.
struct block {
    struct msg *m;
    atomic_uint reserved;   // rows given away; with BLOCK_CLOSED set it gives none
    atomic_uint done;       // rows complete
    atomic_llong oldest_ns; // when the first of them was, 0 = none
    unsigned n_row;         // rows of a closed block
    int64_t closed_ns;      // since when
    enum batcher_why why;   // BATCHER_WAIT = takes rows
    struct block *next;
};
#define BLOCK_CLOSED (1u << 30)

// What a worker needs to know of a port.
struct port_view {
    struct row_layout layout;
    enum autoreset autoreset;
    atomic_uint event;   // moves when the receiver should look
    atomic_int left;     // isolation: rows until then
    atomic_ullong *done; // isolation: (n_env / 64) bit i: slot of index i is finished
} __attribute__((aligned(64)));

struct slot {
    struct env env;
    struct port_view *view;
    int index; // in the port
    int lane;
    bool is_reset;
    bool retried; // isolation: a worker died while it put this env on its feet again
    struct reset_row reset;
    int n_sub;
    float *actions;  // (k_max, n_act), owned by the port
    uint8_t *row;    // isolation: (stride), owned by the port
    int64_t done_ns; // isolation: when the row was complete

    struct port *port; // who leases it, NULL = free; guarded by pool->mtx
    uint64_t stamp;    // finds an env that stands twice in one request
} __attribute__((aligned(64)));

struct port {
    struct pool *pool;
    struct port_config cfg;
    struct batcher rule; // empty, with the limits set
    struct port_view *view;
    struct spec spec; // the pool's without the pictures that are not wanted
    float *actions;   // (n_env, k_max, n_act)
    uint32_t *ids;    // (n_env) ascending
    bool *mine;       // (pool's n_env) is it leased to this port
    int n_env;
    size_t area_at, area_bytes; // isolation: its part of pool->port_area
    struct port *next;          // of the pool's ports; guarded by pool->mtx

    uint32_t refused; // by the requesting thread
    uint64_t stamp;   // of the present request

    pthread_mutex_t mtx;
    struct block *first, *last; // batches in the making, oldest first; guarded by mtx
    struct block *spare;        // unused blocks; guarded by mtx
    _Atomic(struct block *) open;
    atomic_int in_flight; // requests whose rows are not complete
    atomic_int owed;      // the same, until their workers have done with the port
    atomic_uint resting;  // the receiver waits for a request
    uint64_t seq;         // batches sent; by the receiver
    int64_t waited_ns;    // the oldest row of the latest batch
    int64_t held_ns;      // of it: from the end of the rule's wait until the last row was written
    atomic_bool woken, draining;
};

struct worker {
    pthread_t thread;
    bool started;
    atomic_uint asleep;                   // 1 = sleeps, or is about to
    atomic_llong steps, episodes, errors; // written by this worker only
    atomic_llong since_ns;                // isolation: begin of what it does now, 0 = it sleeps

    // isolation; all but `pid` are the warden's
    atomic_int pid; // 0 = none
    atomic_bool ready;
    atomic_int starts;
    enum row_error cause; // of the end of the one before
    char cause_text[64];
    bool stopped;
    int64_t begun_ns, retry_ns;
    int64_t seen_ns;                     // since_ns at the last look
    int64_t busy_ns, still_ns, start_ns; // time in one request, stopped, not ready yet
} __attribute__((aligned(64)));

// Written after the workers were made.
struct pool_shared {
    atomic_bool stop;
};

struct pool {
    struct scene *scene;
    struct spec spec;
    struct randomize *randomize; // NULL: all envs share the scene's model
    struct pictures *pictures;   // NULL: observations are numbers only
    struct pool_config cfg;
    struct placement placement;
    struct slot *slots; // (n_env)
    int n_env;
    bool by_rows; // envs live in rows, not in worlds of their own

    uint8_t *area; // the arrays below, mapped; shared with the workers under isolation
    size_t area_bytes;
    struct pool_shared *shared;
    struct worker *workers;   // (n_worker)
    struct workq_cell *cells; // (n_env)
    int n_worker;

    struct port_view *views; // (n_env) of the port whose first env this is

    struct workq *lanes; // (n_lane) by memory node, or by worker
    int n_lane;
    bool fixed; // an env is stepped by the worker of its lane only

    struct desk *desks; // (n_worker) of the threads

    pthread_mutex_t mtx;
    struct port *ports; // guarded by mtx
    int next_wake;      // where the search for a sleeping worker starts; guarded by mtx

    uint8_t *port_area; // isolation: memory of the ports
    size_t port_area_bytes;
    pid_t warden;  // isolation: the process that watches the workers
    int warden_fd; // closed = stop

    atomic_llong batches[BATCHER_WHYS], rows;
    atomic_llong logged_ns, unlogged;
};

// Put the n envs of a request on the pool's queue. A row begins with its env's number.
void pool_enqueue(struct pool *pool, const uint8_t *rows, size_t stride, int n);

// The loop of worker `w`, until the pool stops.
void pool_work(struct pool *pool, int w, struct desk *desk);

// Execute nothing, answer: the slot, claimed by `w`, is given up with this call.
void pool_answer(struct pool *pool, int w, struct slot *slot, struct desk *desk);

// Wake all workers that sleep.
void pool_rouse(struct pool *pool);

// Reserve a row in the newest batch of the slot's port, write the slot's answer into it, count it.
void port_deliver(struct slot *slot, struct desk *desk);

// Isolation, in a worker: the answer is in slot->row; tell the port. `again`: a worker that died
// may have told it already.
void port_announce(struct slot *slot, bool again);

// Isolation: start and stop the processes (isolate.c).
NODISCARD enum status isolate_start(struct pool *pool);
void isolate_stop(struct pool *pool);

// ST_IO if the process that watches the workers has died. By any thread.
NODISCARD enum status isolate_check(struct pool *pool);

#endif
