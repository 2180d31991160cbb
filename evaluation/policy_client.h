// policy_client.h - one connection to a policy server, whatever it speaks.
//
// A client is a struct of operations with its connection. The first call of a connection is open;
// after any failure of infer the connection is closed and has to be opened again. The status says
// what the caller does next:
//   ST_IO       the server is not there, or reported an error: the episode is tried again
//   ST_TIMEOUT  it did not answer in time: the same
//   ST_CLOSED   it closed the connection, or the client was stopped: the same
//   ST_PROTO    what it said is damaged, or an action is not finite: the same
//   ST_INVAL    what it says does not fit the task: no second try would help
//   ST_MISSING  there is no such server, or it refuses this client: the same
//
// Threads: one at a time; `stop` may be set from anywhere.
#ifndef EVALUATION_POLICY_CLIENT_H
#define EVALUATION_POLICY_CLIENT_H

#include "common/base/thread.h"
#include "evaluation/pack.h"
#include "evaluation/policy_view.h"

#include <stdatomic.h>

// Actions that come back: (n, n_act).
struct policy_chunk {
    int n, n_act;   // n_act is the caller's
    float *actions; // the caller's, room for CHUNK_STEPS_MAX actions
};

struct policy_client;

struct policy_ops {
    const char *name;
    bool batches;  // infer takes several observations
    bool sessions; // a connection serves one episode at a time: begin and end
    // Connect; `about` gets what the server says of itself, as JSON ("" = nothing).
    enum status (*open)(struct policy_client *c, int64_t wait_ns, struct text *about);
    void (*close)(struct policy_client *c); // fine if it is not open
    bool (*alive)(struct policy_client *c);
    enum status (*begin)(struct policy_client *c, const struct policy_input *first);
    enum status (*infer)(struct policy_client *c, const struct policy_input *in, int n,
                         struct policy_chunk *out, int64_t wait_ns);
    enum status (*end)(struct policy_client *c, bool success);
};

struct policy_client {
    const struct policy_ops *ops;
    const struct policy_options *options; // borrowed
    char url[OPT_STR_MAX];
    const char *key;         // secret of the server (API key or token), borrowed; NULL = none
    const atomic_bool *stop; // borrowed
    struct pack pack;        // of requests
    void *conn;              // the protocol's own
};

void policy_client_init(struct policy_client *c, const struct policy_ops *ops, const char *url,
                        const struct policy_options *options, const char *key,
                        const atomic_bool *stop);
void policy_client_fini(struct policy_client *c); // closes

// --- for the protocols
// The actions of one observation from a reply's map: the members that the options name, joined.
NODISCARD enum status policy_take_actions(const struct policy_client *c, const msgpack_object *map,
                                          struct policy_chunk *out);
// The same from numbers of shape (n_act), (n, n_act) or (1, n, n_act); `at` = column of the first.
NODISCARD enum status policy_take_floats(struct policy_chunk *out, const struct tensor_floats *f,
                                         int at, int *width);
// After the parts: as many columns as the task has, all finite, as many steps as asked for.
NODISCARD enum status policy_check_actions(const struct policy_client *c,
                                           const struct policy_chunk *out, int columns);

#endif
