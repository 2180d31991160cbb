// policy_check.h - the handshake: what a policy server says of itself against what the task gives
// and what the options make of it.
#ifndef EVALUATION_POLICY_CHECK_H
#define EVALUATION_POLICY_CHECK_H

#include "evaluation/policy_view.h"

// `about` is the server's own description as JSON. Every point that does not fit is logged; their
// number is returned. What a server does not say fits.
int policy_check(const struct policy_options *options, const char *about,
                 const struct policy_view *view, int n_act);

#endif
