// policy_vla_eval.h - the protocol of vla-eval's model servers: typed messages over a WebSocket,
// one connection an episode at a time, one action a message.
#ifndef EVALUATION_POLICY_VLA_EVAL_H
#define EVALUATION_POLICY_VLA_EVAL_H

#include "evaluation/policy_client.h"

extern const struct policy_ops vla_eval_ops;

#endif
