// server.h - serves a pool's envs over the wire: any number of clients, each with its own port.
//
// A client says HELLO, leases envs, and sends requests; two threads a client carry requests in and
// batches out. A client that goes away, breaks the protocol or stays silent before its HELLO loses
// its connection and its envs become free again; others do not notice.
//
// Threads: create, stop and destroy from one thread; the server runs its own.
#ifndef ENVSERVER_SERVER_H
#define ENVSERVER_SERVER_H

#include "envserver/pool.h"

struct server;

struct server_config {
    struct pool *pool;  // borrowed; must outlive the server
    const char *listen; // tcp://, ipc:// or inproc://
    int b_max;          // rows per batch unless the client asks for less
    int64_t t_max_ns;   // longest wait of a finished row unless the client asks for another
};

// Listen and start serving.
NODISCARD enum status server_create(struct server **out, const struct server_config *cfg);

// The address that clients dial, with the real port.
const char *server_url(const struct server *s);

// Clients connected now.
int server_clients(struct server *s);

// Close the listener and all connections and wait for the threads. NULL is fine.
void server_destroy(struct server *s);

#endif
