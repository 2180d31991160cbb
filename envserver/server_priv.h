// server_priv.h - the inside of server.c (listener, list of clients, drain) and session.c (one
// client).
//
// Lock rules. `server->mtx` guards the list and, in a session, the fields that others read; it is
// not held while anything is sent or received. `session->send_mtx` is held for one send.
#ifndef ENVSERVER_SERVER_PRIV_H
#define ENVSERVER_SERVER_PRIV_H

#include "envserver/server.h"

#include <stdatomic.h>

#define HELLO_BYTES_MAX   4096 // of a stranger's message
#define REQUEST_BYTES_MAX (64u << 20)
#define HELLO_WAIT_S      10

// One client: the reader thread owns the session, the writer sends batches.
struct session {
    struct server *server;
    uint64_t id;
    struct link *link;
    struct port *port; // set and cleared under server->mtx
    pthread_t reader, writer;
    bool writing;             // the writer was started
    pthread_mutex_t send_mtx; // one message at a time on the link
    uint32_t features;
    int64_t idle_ns;             // 0 = it may be silent; set with the port, under server->mtx
    char name[SPEC_NAME_MAX];    // guarded by server->mtx
    atomic_llong *asked_ns;      // (pool's envs) arrival of the request in flight
    uint64_t seq, pings;         // requests, PINGs so far
    atomic_llong requests, rows; // for others to read
    atomic_llong begun_ns, heard_ns;
    int64_t seen_ns, silent_ns; // heard_ns at the last look, silence since; guarded by server->mtx
    atomic_int end;             // enum session_end once it is known, -1 before
    atomic_bool said_bye;       // BYE was sent: requests are ignored
    atomic_bool ended;          // the reader is about to return
    struct session *next;       // guarded by server->mtx
};

struct server {
    struct server_config cfg;
    struct auth_key key;
    struct listener *listener;
    pthread_t acceptor;
    bool accepting;
    atomic_bool draining;
    pthread_mutex_t mtx;
    struct session *sessions;                 // guarded by mtx
    int n_session;                            // guarded by mtx
    uint64_t next_id;                         // guarded by mtx
    int64_t looked_ns;                        // for silent clients; guarded by mtx
    struct server_fault fault[SERVER_FAULTS]; // ring; guarded by mtx
    int n_fault;                              // so far; guarded by mtx

    atomic_llong sessions_total, ended[SESSION_ENDS];
    atomic_llong resets, steps, refused, request_rows, bytes_in, bytes_out;
    struct histogram batch_rows, batch_wait_ns, request_ns;
};

// Serve the link as a client of its own; takes the link, also on failure.
NODISCARD enum status session_start(struct server *server, struct link *link);

// Take no more requests; BYE follows when nothing is in flight.
void session_drain(struct session *s);

// Wait for the session's threads and free it.
void session_free(struct session *s);

// Keep the text of the calling thread's last error for the status page.
void server_note_fault(struct server *server, uint64_t session);

#endif
