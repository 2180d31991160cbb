// pool.h - N worlds of one task stepped by W worker threads; results leave in dynamic batches.
//
// This is the in-process API and what the server serves. A port is one client's view: the envs it
// leases, its autoreset mode, and its B_max/T_max. Requests go in by port_reset and port_step,
// finished rows come out by port_recv, in the order in which they finish. Workers write each row
// once, straight into the batch that leaves.
//
//   struct pool *pool;   pool_create(&pool, &(struct pool_config){.task = "Ant-v5", .n_env = 64,
//   ...}); struct port *port;   port_open(&port, pool, &(struct port_config){...});
//   port_reset(port, rows, n); port_recv(port, &batch, WAIT_NEVER); ... port_step(...)
//
// Threads: any number of ports; requests and receives of one port from one thread each.
#ifndef ENVSERVER_POOL_H
#define ENVSERVER_POOL_H

#include "common/base/batcher.h"
#include "common/base/thread.h"
#include "common/wire/envproto.h"

struct pool;
struct port;

struct pool_config {
    const char *task;   // "Ant-v5"
    const char *kwargs; // JSON object or ""
    int n_env;          // 1..SPEC_ENV_MAX
    int n_thread;       // 1..256, 0 = the CPUs of this process
};

struct port_config {
    enum autoreset autoreset;
    int n_env; // envs to lease, 0 = all that are free
    int k_max; // actions of a request at most, 1..SPEC_CHUNK_MAX
    int b_max; // rows of a batch at most; more than the leased envs means all of them
    int64_t t_max_ns;
};

// Counters since the start, for progress lines and benchmarks.
struct pool_stats {
    int64_t steps;      // env steps executed
    int64_t episodes;   // episodes ended
    int64_t errors;     // of them by an error
    int64_t batches[4]; // by enum batcher_why
    int64_t rows;       // rows sent
};

NODISCARD enum status pool_create(struct pool **out, const struct pool_config *cfg);
const struct spec *pool_spec(const struct pool *pool);
void pool_stats_get(struct pool *pool, struct pool_stats *out);

// Close all ports first. NULL is fine.
void pool_destroy(struct pool *pool);

// Lease envs. ST_INVAL if a setting is impossible or fewer envs are free than wanted.
NODISCARD enum status port_open(struct port **out, struct pool *pool,
                                const struct port_config *cfg);
const struct row_layout *port_layout(const struct port *port);
const struct port_config *port_settings(const struct port *port); // as resolved
// Ids of the leased envs, ascending; *n of them.
const uint32_t *port_envs(const struct port *port, int *n);

// Start episodes. All rows are checked before any is queued: ST_PROTO names the env if it is not
// leased or has a request in flight.
NODISCARD enum status port_reset(struct port *port, const struct reset_row *rows, int n);

// Execute actions: n rows of step_stride(k_max, n_act) bytes, as step_begin lays them out.
// ST_PROTO names env (and the index of the action) that is not leased, in flight, needs a reset or
// has a NaN or infinite action; then nothing is executed.
NODISCARD enum status port_step(struct port *port, const uint8_t *rows, int n);

// The env of the last request that port_reset or port_step refused, UINT32_MAX if none.
uint32_t port_refused_env(const struct port *port);

// The next batch as a BATCH message (read it with batch_read, free it with msg_free). ST_TIMEOUT,
// ST_AGAIN (wait_ns 0), or ST_CLOSED after port_wake. Returns ST_AGAIN at once if nothing is in
// flight, since nothing would ever come.
NODISCARD enum status port_recv(struct port *port, struct msg **batch, int64_t wait_ns);

// Wait until a request is in flight or a batch waits. ST_CLOSED after port_wake.
NODISCARD enum status port_wait_busy(struct port *port);

// Make the receiving thread return ST_CLOSED, now and later; any thread.
void port_wake(struct port *port);

// Wait for requests in flight and give the envs back. NULL is fine.
void port_close(struct port *port);

#endif
