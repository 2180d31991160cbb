// intake.h - the connections of a rollout worker, and everything that arrives on them in one queue:
// batches of its env servers and messages of its learner, each read by a thread of its own.
//
// A peer that does not read must not keep the worker from stopping: half a second after *stop all
// connections are closed, which ends every send.
//
// Threads: one consumer, which also sends. The other threads run inside.
#ifndef ROLLOUT_INTAKE_H
#define ROLLOUT_INTAKE_H

#include "rollout/envclient.h"

#define INTAKE_SERVERS_MAX 256

enum event_kind {
    EVENT_BATCH,        // `source` finished rows
    EVENT_SOURCE_LOST,  // `source` is gone: err
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
    struct event *next_; // the intake's
};

struct intake;

struct intake_config {
    const char *env_urls; // separated by commas
    const char *learner_url;
    int n_env; // envs wanted in all, 0 = all that are free
    int64_t connect_wait_ns;
    const atomic_bool *stop;
};

// Connect to all env servers and the learner. ST_CLOSED if *stop came first.
NODISCARD enum status intake_create(struct intake **out, const struct intake_config *cfg);

int intake_n_source(const struct intake *in);
struct envclient *intake_source(struct intake *in, int i);

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
