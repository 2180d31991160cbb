// policy_gr00t.h - NVIDIA GR00T's policy server: requests and replies over ZeroMQ, one msgpack map
// each, several observations a request.
//
// Built with libzmq; without, opening says so (ST_MISSING).
#ifndef EVALUATION_POLICY_GR00T_H
#define EVALUATION_POLICY_GR00T_H

#include "evaluation/policy_client.h"

extern const struct policy_ops gr00t_ops, gr00t_n15_ops; // the older one takes no batches

#endif
