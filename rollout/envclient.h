// envclient.h - one connection to one env server: which envs it owns, requests out, batches in.
//
// The client answers the server's PINGs while it waits for a batch, and takes a server that is
// silent for the agreed time for dead. So a client must not stay away from envclient_recv for
// longer than that (welcome.idle_ns); who computes longer asks for more in hello.idle_ns.
//
// Threads: one thread sends and asks, one receives (they may be the same). envclient_close from any
// thread wakes both.
#ifndef ROLLOUT_ENVCLIENT_H
#define ROLLOUT_ENVCLIENT_H

#include "common/wire/link.h"
#include "common/wire/stateproto.h"

#include <stdatomic.h>

struct envclient;

// NULL for a file or name: that of the environment variable SIMSTREAM_KEY_FILE, SIMSTREAM_TLS_CA or
// SIMSTREAM_TLS_NAME, if it is set. With a key, a server that has not proved the same key is
// refused.
struct envclient_config {
    const char *url;
    struct hello hello;      // version and features are filled in
    int64_t connect_wait_ns; // how long to try
    const atomic_bool *stop; // give up with ST_CLOSED when it is true; NULL = no such flag
    const char *key_file;    // see common/wire/auth.h
    const char *tls_ca;      // for tls+tcp: the authorities that are trusted, PEM
    const char *tls_name;    // for tls+tcp: the name in the certificate, if not the address's host
};

// link_dial that looks at `stop` (NULL = none) while it tries.
NODISCARD enum status envclient_dial(struct link **out, const char *url, size_t max_bytes,
                                     int64_t wait_ns, const atomic_bool *stop);

// Connect, say HELLO, prove the key, wait for WELCOME. The server's refusal is this function's
// error text.
NODISCARD enum status envclient_open(struct envclient **out, const struct envclient_config *cfg);

const struct welcome *envclient_welcome(const struct envclient *c);
const struct row_layout *envclient_layout(const struct envclient *c);
const char *envclient_url(const struct envclient *c);

NODISCARD enum status envclient_reset(struct envclient *c, const struct reset_row *rows, int n);

// Begin a STEP of n rows, fill `rows` (step_stride bytes each, zeroed), send it.
NODISCARD enum status envclient_step_begin(struct envclient *c, int n, struct msg **m,
                                           uint8_t **rows);
NODISCARD enum status envclient_step_send(struct envclient *c, struct msg *m); // takes m, always

// The next batch; free `*m` with msg_free. A server's ERROR frame becomes this function's status
// and text; a gap in the sequence is ST_PROTO. ST_TIMEOUT, ST_CLOSED as link_recv; ST_CLOSED with
// the server's reason when it says BYE; ST_IO when it is silent for too long.
NODISCARD enum status envclient_recv(struct envclient *c, struct msg **m,
                                     const struct batch_head **head, const uint8_t **rows,
                                     int64_t wait_ns);

// States and models of envs, by the sending thread; env is (n) ids. The answer is waited for, and
// batches that come meanwhile are kept for envclient_recv. ST_INVAL or ST_PROTO with the server's
// words if it refuses: then nothing of it was executed.
//
// envclient_save and envclient_get give rows as *out has them; free `*m` with msg_free afterwards.
// The states of envclient_load stand at every `stride` bytes of `states`, the k numbers of
// envclient_set one after the other.
NODISCARD enum status envclient_save(struct envclient *c, const uint32_t *env, int n,
                                     struct msg **m, struct state_rows *out);
NODISCARD enum status envclient_load(struct envclient *c, const uint32_t *env, int n,
                                     const uint8_t *states, size_t stride, size_t bytes);
NODISCARD enum status envclient_set(struct envclient *c, const uint32_t *env, int n,
                                    const char *field, const char *element, const double *x, int k);
NODISCARD enum status envclient_get(struct envclient *c, const uint32_t *env, int n,
                                    const char *field, const char *element, struct msg **m,
                                    struct state_rows *out);

// Wake both threads; later calls fail with ST_CLOSED.
void envclient_close(struct envclient *c);
void envclient_destroy(struct envclient *c); // NULL is fine

#endif
