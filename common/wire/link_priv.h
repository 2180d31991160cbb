// link_priv.h - the inside of link.c: what a transport implements.
//
// A transport embeds struct link and struct listener as its first member and fills `ops`. The
// functions behind `ops` do not look at `closed`; link.c does before it calls them.
#ifndef COMMON_WIRE_LINK_PRIV_H
#define COMMON_WIRE_LINK_PRIV_H

#include "common/base/thread.h"
#include "common/wire/msg.h"

#include <stdatomic.h>

struct link;
struct listener;
struct link_tls;

struct link_ops {
    enum status (*send)(struct link *k, struct msg *m);
    enum status (*recv)(struct link *k, struct msg **out, int64_t wait_ns);
    void (*set_max)(struct link *k, size_t max_bytes);
    void (*close)(struct link *k); // any thread, more than once
    void (*destroy)(struct link *k);
};

struct link {
    const struct link_ops *ops;
    atomic_bool closed; // by this side; only ever set
};

struct listener_ops {
    enum status (*accept)(struct listener *l, struct link **out, int64_t wait_ns);
    void (*close)(struct listener *l); // any thread, more than once
    void (*destroy)(struct listener *l);
};

struct listener {
    const struct listener_ops *ops;
    atomic_bool closed;
    char url[256]; // with the real port
};

// tcp://, tls+tcp:// and ipc://, link_stream.c. `url` is checked; `ipc_path` is NULL for tcp, `tls`
// for the others.
NODISCARD enum status stream_listen(struct listener **out, const char *url, const char *ipc_path,
                                    size_t max_bytes, const struct link_tls *tls);
NODISCARD enum status stream_dial(struct link **out, const char *url, size_t max_bytes,
                                  int64_t wait_ns, const struct link_tls *tls);

// inproc://, link_inproc.c. `url` is checked.
NODISCARD enum status inproc_listen(struct listener **out, const char *url, size_t max_bytes);
NODISCARD enum status inproc_dial(struct link **out, const char *url, size_t max_bytes,
                                  int64_t wait_ns);

// What a wait that ended without a result gives.
static inline enum status wait_over(int64_t wait_ns)
{
    return wait_ns == 0 ? ST_AGAIN : ST_TIMEOUT;
}

#endif
