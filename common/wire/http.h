// http.h - a few read-only pages over HTTP/1.1, and a client that fetches one.
//
// The protocol itself is nng's HTTP server and client. Pages are made anew for each request; there
// is no keep of what a client sends, and nothing but GET and HEAD is answered.
//
// Threads: pages are made by nng's threads, one at a time.
#ifndef COMMON_WIRE_HTTP_H
#define COMMON_WIRE_HTTP_H

#include "common/base/text.h"
#include "common/base/thread.h"

#define HTTP_PAGES_MAX   8
#define HTTP_ADDRESS_MAX 256

struct http_page {
    const char *path; // "/metrics"
    const char *type; // "text/html; charset=utf-8"
    // Write the page; the HTTP status, 200 if all is well.
    int (*make)(void *arg, struct text *out);
};

struct http;

// Listen on "host:port", port 0 picks a free one. ST_INVAL, ST_IO name the address. `pages` and
// `arg` are borrowed until http_close.
NODISCARD enum status http_open(struct http **out, const char *address,
                                const struct http_page *pages, int n, void *arg);

// "host:port" with the real port.
const char *http_address(const struct http *h);

// No page is made after this. NULL is fine.
void http_close(struct http *h);

// The body of a page of "host:port" (or "http://host:port") into `out`. ST_IO: no connection, no
// answer in time, or a status other than 200 and 503.
NODISCARD enum status http_get(const char *address, const char *path, int64_t wait_ns,
                               struct text *out);

#endif
