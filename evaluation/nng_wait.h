// nng_wait.h - wait for an operation of nng with a time limit and a flag to stop.
//
// nng's own limits do not see a flag. Embedded; init and fini in the owner's thread.
// Threads: one at a time; nng ends the operation in a thread of its own.
#ifndef EVALUATION_NNG_WAIT_H
#define EVALUATION_NNG_WAIT_H

#include "common/base/thread.h"

#include <stdatomic.h>

#include <nng/nng.h>

struct nng_wait {
    pthread_mutex_t mtx;
    pthread_cond_t cond;
    bool done; // guarded by mtx
    nng_aio *aio;
};

NODISCARD enum status nng_wait_init(struct nng_wait *w);
void nng_wait_fini(struct nng_wait *w); // waits for the operation's end; fine after a failed init

void nng_wait_begin(struct nng_wait *w); // right before an operation is started on w->aio
bool nng_wait_ended(struct nng_wait *w);

// False when the time has passed or *stop is true; the operation goes on.
bool nng_wait_for(struct nng_wait *w, int64_t wait_ns, const atomic_bool *stop);
// The same, but then the operation is cancelled and over. nng's code of how it ended.
int nng_wait_or_cancel(struct nng_wait *w, int64_t wait_ns, const atomic_bool *stop);

#endif
