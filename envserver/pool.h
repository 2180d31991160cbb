// pool.h - N worlds of one task stepped by W worker threads; results leave in dynamic batches.
//
// This is the in-process API and what the server serves. A port is one client's view: the envs it
// leases, its autoreset mode, and its B_max/T_max. Requests go in by port_reset and port_step,
// finished rows come out by port_recv, in the order in which they finish. Workers write each row
// once, straight into the batch that leaves.
//
//   pool_create(&pool, &(struct pool_config){.task = "Ant-v5", .n_env = 64});
//   port_open(&port, pool, &(struct port_config){.k_max = 1, .b_max = 16});
//   port_reset(port, rows, n);
//   port_recv(port, &batch, WAIT_NEVER);
//   port_step(port, actions, n);
//
// Threads: any number of ports; requests and receives of one port from one thread each.
#ifndef ENVSERVER_POOL_H
#define ENVSERVER_POOL_H

#include "common/base/batcher.h"
#include "common/base/thread.h"
#include "common/wire/envproto.h"

struct pool;
struct port;
struct scene;

// Where the envs live. AUTO: in rows of state, with one world per worker, if the task allows it.
// OWN: one world per env. The numbers are the same.
enum pool_worlds { POOL_WORLDS_AUTO, POOL_WORLDS_OWN };

// What a worker is. PROCESS: a worker that is killed, stopped, crashes or takes longer than
// step_timeout_ns for one request is replaced. The episode that it was at ends by an error
// (ROW_ERROR_CRASH, ROW_ERROR_TIMEOUT), nothing else is lost; of a task whose envs cannot live in
// rows, the open episodes of all its envs end. The processes are made by pool_create, before the
// process holds a GPU context if possible.
enum pool_isolate { POOL_ISOLATE_THREAD, POOL_ISOLATE_PROCESS };
#define POOL_ISOLATE_CHOICES "thread|process"

// Zeroes are the defaults.
struct pool_config {
    const char *task;   // "Ant-v5"
    const char *kwargs; // JSON object or ""
    int n_env;          // 1..SPEC_ENV_MAX
    int n_thread;       // workers, 1..256, 0 = the CPUs of this process
    enum pool_worlds worlds;
    const char *affinity; // pins workers to processors: see placement.h; NULL = no
    enum pool_isolate isolate;
    int64_t step_timeout_ns; // PROCESS: longest time of one request, 0 = no limit
    const char *randomize;   // JSON: models that differ per env, see randomize.h; NULL or "" = no
};

struct port_config {
    enum autoreset autoreset;
    int n_env; // envs to lease, 0 = all that are free
    int k_max; // actions of a request at most, 1..SPEC_CHUNK_MAX
    int b_max; // rows of a batch at most; more than the leased envs means all of them
    int b_min; // rows that are enough for a batch to leave at once, 0 = b_max
    int64_t t_max_ns;
    uint32_t skip; // bit i: rows lack picture i of the pool's spec
};

// Counters since the start, for progress lines and benchmarks.
struct pool_stats {
    int64_t steps;                 // env steps executed
    int64_t episodes;              // episodes ended
    int64_t errors;                // of them by an error
    int64_t restarts;              // workers that were replaced
    int64_t batches[BATCHER_WHYS]; // by enum batcher_why
    int64_t rows;                  // rows sent
};

NODISCARD enum status pool_create(struct pool **out, const struct pool_config *cfg);
const struct spec *pool_spec(const struct pool *pool);
const struct scene *pool_scene(const struct pool *pool); // the compiled task
const char *pool_plan(const struct pool *pool);          // pool_config.randomize; "" = none
void pool_stats_get(struct pool *pool, struct pool_stats *out);

// Process of worker `w`; 0 = a thread, or being replaced.
int pool_worker_pid(const struct pool *pool, int w);

// Close all ports first. NULL is fine.
void pool_destroy(struct pool *pool);

// Lease envs. ST_INVAL if a setting is impossible or fewer envs are free than wanted.
NODISCARD enum status port_open(struct port **out, struct pool *pool,
                                const struct port_config *cfg);
const struct spec *port_spec(const struct port *port); // the pool's without skipped pictures
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

// The env that the last request of the requesting thread was refused for, UINT32_MAX if none.
uint32_t port_refused_env(const struct port *port);

// Envs as bytes and back (snapshot.h says what they hold): for search, for branching, for going
// back. The state of env[i] stands at byte i * stride, which is a multiple of 8. The n envs must be
// leased and have no request in flight (ST_PROTO), as for port_step; called by the thread that
// makes the requests; all of it is checked before anything is loaded. port_load makes no row: the
// next step goes on from the state. ST_INVAL if the task's worlds cannot be saved, or live in
// processes of their own.
size_t port_state_bytes(const struct port *port); // 0 = they cannot
NODISCARD enum status port_save(struct port *port, const uint32_t *env, int n, void *out,
                                size_t stride);
NODISCARD enum status port_load(struct port *port, const uint32_t *env, int n, const void *in,
                                size_t stride, size_t bytes);

// Change the models of n envs between two steps, or look at them: the k numbers of one element (by
// name or number, "" = every element) of a field that pool_config.randomize names; those of env[i]
// stand at byte i * stride of `x`. Envs as for port_save; ST_INVAL names field, element and what
// was expected, and nothing is changed.
NODISCARD enum status port_field_size(const struct port *port, const char *field,
                                      const char *element, int *k);
NODISCARD enum status port_set_field(struct port *port, const uint32_t *env, int n,
                                     const char *field, const char *element, const double *x,
                                     size_t stride, int k);
NODISCARD enum status port_get_field(struct port *port, const uint32_t *env, int n,
                                     const char *field, const char *element, double *x,
                                     size_t stride, int k);

// The next batch as a BATCH message (read it with batch_read, free it with msg_free). ST_TIMEOUT,
// ST_AGAIN (wait_ns 0), ST_CLOSED after port_wake, or ST_IO if the worker processes are gone for
// good. Returns ST_AGAIN at once if nothing is in
// flight, since nothing would ever come.
NODISCARD enum status port_recv(struct port *port, struct msg **batch, int64_t wait_ns);

// Wait until a request is in flight or a batch waits. ST_CLOSED after port_wake, and at the end of
// a port_drain.
NODISCARD enum status port_wait_busy(struct port *port);

// How long the oldest row of the latest batch had waited; by the receiving thread.
int64_t port_waited_ns(const struct port *port);

// The part of it behind the moment at which the batch was found due and took no more rows: those
// that had a place in it were still being written. By the receiving thread.
int64_t port_held_ns(const struct port *port);

// Requests whose rows have not been written yet; any thread.
int port_in_flight(struct port *port);

// Take no more requests (ST_CLOSED): once what is in flight has left by port_recv, port_wait_busy
// returns ST_CLOSED; any thread.
void port_drain(struct port *port);

// Make the receiving thread return ST_CLOSED, now and later; any thread.
void port_wake(struct port *port);

// Wait for requests in flight and give the envs back. NULL is fine.
void port_close(struct port *port);

#endif
