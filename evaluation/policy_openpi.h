// policy_openpi.h - openpi's WebSocket protocol and those that use its envelope: RoboArena,
// vLLM-Omni's robot endpoint, StarVLA.
//
// One binary message is one msgpack map. The server speaks first and says what it is. A text is an
// error's traceback, after which the server closes the connection.
#ifndef EVALUATION_POLICY_OPENPI_H
#define EVALUATION_POLICY_OPENPI_H

#include "evaluation/policy_client.h"

extern const struct policy_ops openpi_ops, roboarena_ops, vllm_omni_ops, starvla_ops;

// --- for vla-eval, which has the same transport

struct ws;

// A WebSocket to the server, with its key.
NODISCARD enum status policy_dial(struct policy_client *c, struct ws **out, int64_t wait_ns);
// The status of a greeting that failed: that the server is not there as it should be is ST_IO.
NODISCARD enum status policy_not_greeted(const struct policy_client *c, enum status st);

// A message that has to be a map; `u` is the caller's to destroy, also after a failure. ST_IO with
// the text if it is an error's.
NODISCARD enum status policy_read_map(msgpack_unpacked *u, const uint8_t *bytes, size_t n);
// ST_IO with the server's words, without its traceback's head.
NODISCARD enum status policy_server_error(const char *text);

#endif
