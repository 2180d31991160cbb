#include "cli/signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static atomic_bool stop;

static void on_signal(int sig)
{
    if (atomic_exchange(&stop, true))
        _exit(128 + sig);
}

const atomic_bool *signals_install(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL); // a file limit is then an error of the write
    return &stop;
}
