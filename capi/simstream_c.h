// simstream_c.h - a vector of envs behind a flat C interface, for callers from other languages.
//
// The envs live in this process or at an env server; what follows is the same for both. Envs are
// numbered 0..n-1 whatever their ids at the server. Results leave in dynamic batches (ss_recv) or
// are gathered in env order (ss_gather).
//
// Every function that can fail returns an enum status of common/base/status.h as int, 0 is success;
// ss_error_text has the words, per thread. Waits are int64_t nanoseconds.
//
// Threads: one thread may send (ss_reset, ss_send) while another receives (ss_recv, ss_gather);
// more of either need a lock of their own. ss_step does both. ss_close when neither is inside. No
// vector survives a fork.
#ifndef CAPI_SIMSTREAM_C_H
#define CAPI_SIMSTREAM_C_H

#include <stdint.h>

#define SS_ABI 3 // changes with every incompatible change of this file

#define SS_GO_ON (-1) // instead of a seed: the next episode of the env's present seed

struct ss_vec;

// A batch: `n` rows of `stride` bytes at `rows`, in the order in which the envs finished. `block`
// is what ss_block_free takes; the rows are the caller's until then, also after ss_close. A row is
// laid out as ss_describe says; its env is the number in this vector.
struct ss_batch {
    void *block;
    uint8_t *rows;
    int32_t n, stride;
    int32_t why;       // enum batcher_why
    int32_t in_flight; // requests of this vector that are still running
};

int ss_abi(void);
const char *ss_version(void);
const char *ss_error_text(void); // of the calling thread's last failure; never NULL
const char *ss_row_error_name(int error);

// The tasks and suites that ss_open_pool knows, in alphabetical order; NULL past the end. A suite
// has members, which are called SUITE/0 to SUITE/(n-1); a task has 0.
const char *ss_task_name(int i);
int ss_task_members(int i);
// The default time limit in steps, of a suite that of its member; 0 = none, -1 = no such task.
int64_t ss_task_limit(int i, int member);

// How an own pool works; zeroes are the defaults. See struct pool_config of envserver/pool.h.
struct ss_workers {
    int32_t n;       // threads or processes that step the envs, 0 = the CPUs of this process
    int32_t isolate; // enum pool_isolate: 0 threads, 1 processes
    int64_t step_timeout_ns;
    const char *affinity;
    const char *randomize; // JSON of envserver/randomize.h
};

// A vector of `n_env` new envs in this process. `kwargs` is a JSON object or "".
int ss_open_pool(struct ss_vec **out, const char *task, const char *kwargs, int n_env,
                 const struct ss_workers *workers, int autoreset, int b_max, int64_t t_max_ns);

// What a server may ask for, and what is asked of it; NULL: see struct envclient_config of
// rollout/envclient.h.
struct ss_access {
    const char *key_file, *tls_ca, *tls_name;
    const char
        *pictures; // what rows shall have of the server's: "NAME[:WIDTHxHEIGHT],...", NULL = all
};

// Lease `n_env` envs (0 = all that are free) of the server at `url`, or an even share of each of
// several (a list as common/wire/hosts.h has it), trying to connect for `connect_wait_ns`. b_max 0,
// t_max_ns -1 and idle_ns 0 are the server's settings. Either side takes the other for dead after a
// silence of idle_ns; this side is silent while it receives nothing.
//
// When one of several servers dies, each of its envs that was asked for something answers with a
// row error "server lost" and is not heard of until the server is back; then what was asked of it
// meanwhile begins its next episode. ss_gather does not wait so long: it gives these envs rows with
// the same error.
int ss_open_remote(struct ss_vec **out, const char *url, int n_env, int autoreset, int b_max,
                   int64_t t_max_ns, int64_t connect_wait_ns, int64_t idle_ns,
                   const struct ss_access *access);

// The JSON text of capi/describe.h; the vector owns it.
const char *ss_describe(const struct ss_vec *v);

// Start episodes of `n` envs: which (n), or NULL for 0..n-1; seed (n), SS_GO_ON or 0..INT64_MAX.
// A seed starts its episode 0. Nothing is started if one env may not (unknown, in flight, twice, or
// SS_GO_ON without a seed before).
int ss_reset(struct ss_vec *v, const uint32_t *which, const int64_t *seed, int n);

// Execute one action each of `n` envs: which (n), or NULL for 0..n-1; actions (n, n_act). Nothing
// is executed if one env may not (unknown, in flight, twice, needs a reset, action not finite).
int ss_send(struct ss_vec *v, const uint32_t *which, const float *actions, int n);

// The next batch. ST_TIMEOUT (ST_AGAIN if wait_ns is 0); ST_PROTO if nothing is in flight, so that
// nothing would ever come.
int ss_recv(struct ss_vec *v, int64_t wait_ns, struct ss_batch *out);

// Receive until nothing is in flight; the row of env i goes to rows + i * stride, rows of other
// envs stay as they are. ST_TIMEOUT or ST_AGAIN: not all are there, call again.
int ss_gather(struct ss_vec *v, uint8_t *rows, int64_t wait_ns);

// What the rows of all envs hold, by column: arrays of the caller, env order. An info term that a
// row does not have (a start has few) is 0 there, and so is its mask.
struct ss_columns {
    double *obs;                     // (n_env, n_obs), NULL = leave it out
    double *reward;                  // (n_env)
    double *info;                    // (n_info, n_env)
    uint8_t *terminated, *truncated; // (n_env) 0 or 1; an error counts as truncated
    uint8_t *mask;                   // (n_info_key, n_env) 0 or 1
    uint32_t flags;                  // out: the flags of all rows, or-ed
    uint32_t stepped;                // out: rows that are no start
};

// The vector step in one call: ss_send of one action for every env (NULL: they have been sent),
// ss_gather into `rows`, then its columns. ST_TIMEOUT or ST_AGAIN: not all are there, call again
// without actions. If `flags` has ROW_HAS_FINAL or ROW_ERROR, more of `rows` is to be looked at.
int ss_step(struct ss_vec *v, const float *actions, uint8_t *rows, struct ss_columns *out,
            int64_t wait_ns);

int ss_in_flight(struct ss_vec *v);

// Process of worker `w` of an own pool; 0 = a thread, none, or being replaced.
int ss_worker_pid(const struct ss_vec *v, int w);

// States of envs: that of which[i] is the `bytes` bytes at `states` + i * stride. `block` is what
// ss_block_free takes; the states are the caller's until then.
struct ss_states {
    void *block;
    const uint8_t *states;
    int64_t stride, bytes;
};

// The `n` envs of `which` (NULL: 0..n-1) as bytes and back, of an own pool or a server; they have
// no request in flight. A state goes into any env of the same task and model, also of another
// process or machine. A load makes no row: the next step goes on from the state. All states are
// checked before one is loaded; `states` is aligned to 8, stride and bytes are multiples of 8.
// Called by the thread that sends.
int ss_save(struct ss_vec *v, const uint32_t *which, int n, struct ss_states *out);
int ss_load(struct ss_vec *v, const uint32_t *which, int n, const struct ss_states *states);

// The models of `n` envs: all components of one element (by name or number, "" = every element) of
// a field that ss_workers.randomize, or the server's --randomize, names: x is (n, k). ss_get_field
// has room for `max` numbers and says *k. As ss_load for the rest.
int ss_set_field(struct ss_vec *v, const uint32_t *which, int n, const char *field,
                 const char *element, const double *x, int k);
int ss_get_field(struct ss_vec *v, const uint32_t *which, int n, const char *field,
                 const char *element, double *x, int64_t max, int *k);

void ss_block_free(void *block); // NULL is fine; any thread

// Wait for the requests in flight of an own pool, leave a server's envs. NULL is fine.
void ss_close(struct ss_vec *v);

#endif
