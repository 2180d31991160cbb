// monitor.h - what an env server tells about itself over HTTP:
//   /         a page for people: envs, rates, histograms, clients, faults; it reloads itself
//   /metrics  the same for Prometheus, text format 0.0.4
//   /status   the same as JSON
//   /healthz  200 "ok"; 503 "draining" once the server takes no more clients
//
// The pages can be read by anybody who can reach the address, and change nothing.
//
// Threads: pages are made by threads of the HTTP server.
#ifndef ENVSERVER_MONITOR_H
#define ENVSERVER_MONITOR_H

#include "common/base/text.h"
#include "envserver/server.h"

struct monitor;

struct monitor_config {
    const char *address; // "host:port", port 0 = a free one
    struct server *server;
    struct pool *pool;
    const char *version, *commit;
};

NODISCARD enum status monitor_open(struct monitor **out, const struct monitor_config *cfg);
const char *monitor_address(const struct monitor *m); // with the real port

// Before the server and the pool are destroyed. NULL is fine.
void monitor_close(struct monitor *m);

// The pages themselves, for tests and for programs without HTTP. ST_NOMEM.
NODISCARD enum status monitor_metrics(struct text *out, const struct monitor_config *cfg);
NODISCARD enum status monitor_status(struct text *out, const struct monitor_config *cfg);

#endif
