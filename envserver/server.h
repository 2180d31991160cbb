// server.h - serves a pool's envs over the wire: any number of clients, each with its own port.
//
// A client says HELLO, proves the key if there is one, leases envs, and sends requests; two threads
// a client carry requests in and batches out. A client that goes away, breaks the protocol, has
// another key, stays silent before its HELLO, or answers no PING for the idle time loses its
// connection, and its envs become free again; others do not notice.
//
// Nothing grows: an env has one request in flight at most, and a client that does not read its
// batches is not read from once its refusals fill the connection.
//
// Threads: create, drain and destroy from one thread; the readers of counters from any.
#ifndef ENVSERVER_SERVER_H
#define ENVSERVER_SERVER_H

#include "common/base/histogram.h"
#include "common/wire/auth.h"
#include "common/wire/link.h"
#include "envserver/pool.h"

struct server;

struct server_config {
    struct pool *pool;  // borrowed; must outlive the server
    const char *listen; // tcp://, tls+tcp://, ipc:// or inproc://
    int b_max;          // rows per batch unless the client asks for less
    int b_min;          // rows that are enough for a batch, 0 = b_max
    int64_t t_max_ns;   // longest wait of a finished row unless the client asks for another
    int64_t idle_ns;    // silence after which a client is dropped unless it asks for another,
                        // 0 = never
    const struct auth_key *key; // copied; NULL = anybody is served
    struct link_tls tls;        // for tls+tcp
    bool insecure;              // without it, an address that others can reach needs a key
};

// Why clients left.
enum session_end {
    END_BYE,      // it said so
    END_CLOSED,   // it closed the connection, or its process died
    END_PROTOCOL, // it broke the protocol or asked for what is impossible
    END_AUTH,     // it has no key or another one
    END_IDLE,     // it was silent for too long
    END_DRAINED,  // this server ends
    END_FAILED,   // this server could not go on with it
    SESSION_ENDS
};
const char *session_end_name(enum session_end end);

// What a client is doing, for status pages.
struct server_client {
    uint64_t session;
    char name[SPEC_NAME_MAX];
    int n_env, in_flight;
    int64_t requests, rows, age_ns, heard_ns; // heard_ns: since it was last heard
};

#define SERVER_SESSIONS_MAX 1024
#define SERVER_FAULTS       16
#define SERVER_CLIENTS      32

struct server_fault { // a client that was dropped, or a request that was refused
    double wall_s;
    uint64_t session;
    char text[256];
};

struct server_stats {
    int clients;                           // connected now
    int64_t sessions, ended[SESSION_ENDS]; // so far
    int64_t resets, steps, refused;        // requests
    int64_t request_rows;                  // envs asked to reset or step
    int64_t bytes_in, bytes_out;           // message bodies
    int n_env, leased, in_flight;          // envs; leased, and of those with a request running
    bool draining;
    struct histogram_view batch_rows;    // rows of a batch
    struct histogram_view batch_wait_ns; // age of a batch's oldest row when it leaves
    struct histogram_view request_ns;    // from a request's arrival to its row's departure
    int n_client;                        // the first SERVER_CLIENTS of them
    struct server_client client[SERVER_CLIENTS];
    int n_fault; // the latest, newest first
    struct server_fault fault[SERVER_FAULTS];
};

// Listen and start serving. ST_INVAL if the address can be reached from other machines and there is
// neither a key nor `insecure`.
NODISCARD enum status server_create(struct server **out, const struct server_config *cfg);

// The address that clients dial, with the real port.
const char *server_url(const struct server *s);

// Clients connected now.
int server_clients(struct server *s);

// Has server_drain begun?
bool server_draining(const struct server *s);

void server_stats_get(struct server *s, struct server_stats *out);

// Take no more clients and requests, let what is in flight run and leave, say BYE to all, and wait
// until they have gone (two seconds at most), but no longer than wait_ns. True if nothing was in
// flight any more.
bool server_drain(struct server *s, int64_t wait_ns);

// Close the listener and all connections and wait for the threads. NULL is fine.
void server_destroy(struct server *s);

#endif
