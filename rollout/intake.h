// intake.h - the connections of a rollout worker, and everything that arrives on them in one queue:
// batches of its env servers and messages of its learner, each read by a thread of its own.
//
// A peer that does not read must not keep the worker from stopping: half a second after *stop all
// connections are closed, which ends every send.
//
// Threads: one consumer, which also sends. The other threads run inside.
#ifndef ROLLOUT_INTAKE_H
#define ROLLOUT_INTAKE_H

#include "common/wire/hosts.h"
#include "rollout/envclient.h"

#define INTAKE_SERVERS_MAX HOSTS_MAX

enum event_kind {
    EVENT_BATCH,        // `source` finished rows
    EVENT_SOURCE_LOST,  // `source` is gone: err
    EVENT_SOURCE_BACK,  // and is there again, with as many envs: call intake_adopt
    EVENT_LEARNER,      // a message of the learner
    EVENT_LEARNER_LOST, // err
};

struct event {
    enum event_kind kind;
    int source;
    struct msg *m; // NULL with *_LOST
    const struct batch_head *head;
    const uint8_t *rows;
    struct error err;
    struct envclient *client_; // these two are the intake's
    struct event *next_;
};

struct intake;

struct intake_config {
    const char *env_urls;    // as common/wire/hosts.h has it
    const char *learner_url; // NULL = no learner
    int n_env;               // envs wanted in all, 0 = all that are free
    int64_t connect_wait_ns;
    bool rejoin;          // dial a lost server again until it is back
    struct hello hello;   // k_max 0: same-step autoreset, one action a request
    const char *key_file; // these three as in envclient_config
    const char *tls_ca, *tls_name;
    const atomic_bool *stop;
};

// Connect to all env servers and the learner. ST_CLOSED if *stop came first.
NODISCARD enum status intake_create(struct intake **out, const struct intake_config *cfg);

int intake_n_source(const struct intake *in);
struct envclient *intake_source(struct intake *in, int i);

// First of all with EVENT_SOURCE_BACK: use its connection from now on. The old one is destroyed;
// what was in flight on it is lost. It may be gone again already; then EVENT_SOURCE_LOST follows.
void intake_adopt(struct intake *in, const struct event *e);

// Start the readers.
NODISCARD enum status intake_start(struct intake *in);

// The next event; give it back with intake_done. ST_TIMEOUT (ST_AGAIN if wait_ns is 0).
NODISCARD enum status intake_next(struct intake *in, struct event **out, int64_t wait_ns);
void intake_done(struct intake *in, struct event *e);

// Send a message to the learner; takes it. A learner that is gone swallows it, since its reader
// says so.
NODISCARD enum status intake_send(struct intake *in, struct msg *m);

// Close all connections and wait for the threads. NULL is fine.
void intake_destroy(struct intake *in);

#endif
