// remote.h - a policy behind a server: a few connections to it, and the envs that it acts for.
//
// Observations are queued; a connection takes one, or up to batch_max of them within batch_wait
// where the server takes batches. Where the server knows episodes, a connection belongs to one
// episode from its first observation to its end. What the policy says depends on the observation
// alone, so it does not matter which connection asks, nor when.
//
// A connection that is lost is made again, for as long as connect_wait; the episodes whose request
// it had fail and are tried again by the caller. A server that says something else of itself than
// before is refused: results of two policies are never mixed.
//
// Threads: one a connection, here; functions may be called from any thread unless they say
// otherwise. remote_seat: one at a time each.
#ifndef EVALUATION_REMOTE_H
#define EVALUATION_REMOTE_H

#include "evaluation/policy_options.h"

#include <stdatomic.h>
#include <stdint.h>

struct remote;
struct remote_task; // what of a task the policy sees
struct remote_seat; // one env
struct spec;

struct remote_config {
    const char *address; // "ws://host:8000" and so on
    const char *preset;  // NULL = none
    const char *options; // JSON object for policy_opts, or "@FILE"; NULL = none
    const char *key;     // the server's secret; NULL = none
    int n_conn;          // connections: as many as envs act at a time
    const atomic_bool *stop;
};

// Connect all. ST_MISSING when the server cannot be reached within connect_wait, or refuses the
// connection; ST_CLOSED: *stop. While it waits, a line on stderr every ten seconds says so.
NODISCARD enum status remote_open(struct remote **out, const struct remote_config *cfg);
void remote_close(struct remote *r); // after its tasks and seats; NULL is fine

const struct policy_options *remote_options(const struct remote *r);
// JSON for the report: {"protocol", "says": the server of itself, "options": those that determine
// results}.
const char *remote_describe(const struct remote *r);

struct remote_counts {
    int64_t requests, observations, failures, reconnects;
    int64_t wait_ns; // for answers, summed over the requests
};
void remote_count(struct remote *r, struct remote_counts *out);

// `spec` is borrowed until remote_task_destroy. ST_INVAL: policy and task do not fit; every point
// was logged.
NODISCARD enum status remote_task_create(struct remote_task **out, struct remote *r,
                                         const struct spec *spec);
void remote_task_destroy(struct remote_task *t); // NULL is fine

// `done` is called in a thread of the remote when an observation was answered, or failed with the
// status (policy_client.h) and the thread's last error.
typedef void (*remote_done_fn)(void *arg, enum status st);
NODISCARD enum status remote_seat_create(struct remote_seat **out, struct remote_task *t,
                                         remote_done_fn done, void *arg);
// Waits for a call of `done` that is under way, and gives up a request. NULL is fine.
void remote_seat_destroy(struct remote_seat *s);

// An episode begins, or has ended.
void remote_begin(struct remote_seat *s, uint64_t seed, uint64_t episode);
void remote_end(struct remote_seat *s, bool success);

// The action of a step of the episode, (n_act); false if it has to be asked for first.
bool remote_act(struct remote_seat *s, uint64_t step, float *action);

// Ask for the actions from `step` on. The numbers and pictures are copied.
void remote_ask(struct remote_seat *s, uint64_t step, const double *obs, const uint8_t *pictures);

#endif
