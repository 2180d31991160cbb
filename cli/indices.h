// indices.h - lists of indices as options have them: "0,3,5-7".
#ifndef CLI_INDICES_H
#define CLI_INDICES_H

#include "common/base/status.h"

typedef enum status (*index_fn)(void *arg, long index);

// Call `fn` for each index of the list; its first failure ends it. ST_INVAL names the option where
// the text is no such list.
NODISCARD enum status indices_each(const char *text, const char *option, index_fn fn, void *arg);

#endif
