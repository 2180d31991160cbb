// vary.h - the option --randomize: models that differ per env, given as JSON or as a file.
#ifndef CLI_VARY_H
#define CLI_VARY_H

#include "common/base/config.h"

#define VARY_OPT(offset)                                                                \
    {                                                                                   \
        "randomize", OPT_STR, (offset), 0, 0, "",                                       \
            "fields of the model that differ per env and episode, or may be set: JSON " \
            "(docs/operations.md) or a file with it",                                   \
            NULL                                                                        \
    }

// The plan of envserver/randomize.h that the option's value means; *out is NULL for "", else the
// caller's (mem_free). Whether it fits the task, pool_create finds out.
NODISCARD enum status vary_read(char **out, const char *value);

// `options` (a JSON object) with the plan as the member "randomize_plan", for the record; into
// `buf`. Without a plan, just the options.
NODISCARD enum status vary_note(char *buf, size_t size, const char *options, const char *plan);

#endif
