// policy_act.h - policies behind HTTP: POST with a JSON body that holds an observation, a JSON
// reply that holds actions. OpenVLA, OpenVLA-OFT and their many kin.
#ifndef EVALUATION_POLICY_ACT_H
#define EVALUATION_POLICY_ACT_H

#include "evaluation/policy_client.h"

extern const struct policy_ops act_ops;

// --- for tests

// An array as json-numpy writes it; `twice` = as a JSON text that holds it.
void act_tensor(struct text *out, const struct tensor *t, bool twice);
// The actions of a reply's body. ST_PROTO, ST_IO, ST_INVAL as policy_client.h says.
NODISCARD enum status act_read(const struct policy_client *c, const char *body, size_t n,
                               struct policy_chunk *out);

#endif
