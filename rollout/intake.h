// intake.h - everything that arrives at a rollout worker, in one queue: batches of its env servers
// and messages of its learner, each read by a thread of its own.
//
// Threads: one consumer. Close order: intake_destroy closes all connections and joins the readers.
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
};

struct intake;

struct intake_config {
    const char *env_urls; // separated by commas
    const char *learner_url;
    int n_env; // envs wanted in all, 0 = all that are free
    int64_t connect_wait_ns;
};

// Connect to all env servers and the learner. The readers do not run yet.
NODISCARD enum status intake_create(struct intake **out, const struct intake_config *cfg);

int intake_n_source(const struct intake *in);
struct envclient *intake_source(struct intake *in, int i);
struct link *intake_learner(struct intake *in);

// Start the readers.
NODISCARD enum status intake_start(struct intake *in);

// The next event; the caller frees it with event_free. ST_TIMEOUT.
NODISCARD enum status intake_next(struct intake *in, struct event **out, int64_t wait_ns);
void event_free(struct event *e); // NULL is fine

// Events that wait.
int intake_length(struct intake *in);

void intake_destroy(struct intake *in); // NULL is fine

#endif
