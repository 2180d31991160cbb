// envclient.h - one connection to one env server: which envs it owns, requests out, batches in.
//
// Threads: one thread sends, one receives (they may be the same). envclient_close from any thread
// wakes both.
#ifndef ROLLOUT_ENVCLIENT_H
#define ROLLOUT_ENVCLIENT_H

#include "common/wire/envproto.h"
#include "common/wire/link.h"

#include <stdatomic.h>

struct envclient;

struct envclient_config {
    const char *url;
    struct hello hello;      // version is filled in
    int64_t connect_wait_ns; // how long to try
    const atomic_bool *stop; // give up with ST_CLOSED when it is true; NULL = no such flag
};

// link_dial that looks at `stop` (NULL = none) while it tries.
NODISCARD enum status envclient_dial(struct link **out, const char *url, size_t max_bytes,
                                     int64_t wait_ns, const atomic_bool *stop);

// Connect, say HELLO, wait for WELCOME. The server's refusal is this function's error text.
NODISCARD enum status envclient_open(struct envclient **out, const struct envclient_config *cfg);

const struct welcome *envclient_welcome(const struct envclient *c);
const struct row_layout *envclient_layout(const struct envclient *c);

NODISCARD enum status envclient_reset(struct envclient *c, const struct reset_row *rows, int n);

// Begin a STEP of n rows, fill `rows` (step_stride bytes each, zeroed), send it.
NODISCARD enum status envclient_step_begin(struct envclient *c, int n, struct msg **m,
                                           uint8_t **rows);
NODISCARD enum status envclient_step_send(struct envclient *c, struct msg *m); // takes m, always

// The next batch; free `*m` with msg_free. A server's ERROR frame becomes this function's status
// and text; a gap in the sequence is ST_PROTO. ST_TIMEOUT, ST_CLOSED as link_recv.
NODISCARD enum status envclient_recv(struct envclient *c, struct msg **m,
                                     const struct batch_head **head, const uint8_t **rows,
                                     int64_t wait_ns);

// Wake both threads; later calls fail with ST_CLOSED.
void envclient_close(struct envclient *c);
void envclient_destroy(struct envclient *c); // NULL is fine

#endif
