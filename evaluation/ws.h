// ws.h - a client's WebSocket: whole messages out and in, each operation with a time limit.
//
// The protocol is nng's (nng_stream in message mode). nng answers PINGs from its own threads, also
// while nobody receives. Text and binary messages look the same here: who expects a map finds out
// by the first byte.
//
// Threads: one at a time; `stop` may be set from anywhere.
#ifndef EVALUATION_WS_H
#define EVALUATION_WS_H

#include "common/base/thread.h"

#include <stdatomic.h>

#define WS_MESSAGE_MAX (256u << 20)

struct ws;

// Connect to "ws://host:port/path". `header` is the value of an Authorization header, NULL = none.
// nng gives the server's answer two seconds, so a server that is at work may be there and yet not
// answer: ST_IO, try again. ST_CLOSED: *stop became true.
NODISCARD enum status ws_open(struct ws **out, const char *url, const char *header, int64_t wait_ns,
                              const atomic_bool *stop);
void ws_close(struct ws *ws); // NULL is fine

// False when the server has closed the connection, or said something that nobody asked for.
bool ws_alive(struct ws *ws);

// ST_CLOSED: the server has closed the connection, or *stop became true. ST_TIMEOUT: not sent.
NODISCARD enum status ws_send(struct ws *ws, const void *bytes, size_t n, int64_t wait_ns,
                              const atomic_bool *stop);

// The next message; `*bytes` are valid until the next ws_recv or ws_close. ST_TIMEOUT, ST_CLOSED as
// above.
NODISCARD enum status ws_recv(struct ws *ws, const uint8_t **bytes, size_t *n, int64_t wait_ns,
                              const atomic_bool *stop);

#endif
