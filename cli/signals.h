// signals.h - SIGINT and SIGTERM set a flag; a second one ends the process at once.
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>

// Install the handlers (and ignore SIGPIPE and SIGXFSZ); the flag is true after the first signal.
const atomic_bool *signals_install(void);

#endif
