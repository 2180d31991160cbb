// embedded.h - env server and rollout worker inside this process, over inproc.
#ifndef CLI_EMBEDDED_H
#define CLI_EMBEDDED_H

#include "envserver/server.h"
#include "rollout/rollout.h"

struct embedded {
    struct pool *pool;
    struct server *server;
    struct rollout_config rollout;
    struct rollout_progress progress;
    atomic_bool stop; // the rollout worker's
    atomic_bool ended;
    enum status st;
    struct error err;
    pthread_t thread;
    bool started;
};

// A pool and its server at an inproc address of its own; the address is written into `url`.
NODISCARD enum status embedded_serve(struct embedded *e, const struct pool_config *pool, int b_max,
                                     int64_t t_max_ns, char *url, size_t size);

// Start the rollout worker with e->rollout. It waits for the learner of this process however long
// that takes to listen - other models are compiled, a policy is read - or until embedded_finish.
NODISCARD enum status embedded_rollout(struct embedded *e);

// Stop and free everything; the rollout worker's failure, or ST_OK.
enum status embedded_finish(struct embedded *e);

#endif
