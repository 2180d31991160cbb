// kwargs.h - keyword arguments that a subcommand adds to the user's.
#ifndef CLI_KWARGS_H
#define CLI_KWARGS_H

#include "common/base/config.h"

// Put `member` ("\"a\": 1") before the members of the JSON object in `kwargs` (OPT_STR_MAX bytes,
// "" is an empty object), so that what was there wins. A text that is no object stays as it is.
NODISCARD enum status kwargs_add(char *kwargs, const char *member);

#endif
