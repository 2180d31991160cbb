#include "evaluation/nng_wait.h"

#define LOOK_NS (100 * NS_PER_MS) // between two looks at the flag

static void ended(void *arg)
{
    struct nng_wait *w = arg;

    pthread_mutex_lock(&w->mtx);
    w->done = true;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mtx);
}

enum status nng_wait_init(struct nng_wait *w)
{
    pthread_mutex_init(&w->mtx, NULL);
    cond_init(&w->cond);
    w->done = false;
    if (nng_aio_alloc(&w->aio, ended, w) == 0)
        return ST_OK;
    w->aio = NULL;
    return FAIL(ST_NOMEM, "no memory for nng");
}

void nng_wait_fini(struct nng_wait *w)
{
    if (w->aio)
        nng_aio_free(w->aio);
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->mtx);
}

void nng_wait_begin(struct nng_wait *w)
{
    nng_aio_set_timeout(w->aio, NNG_DURATION_INFINITE);
    pthread_mutex_lock(&w->mtx);
    w->done = false;
    pthread_mutex_unlock(&w->mtx);
}

bool nng_wait_ended(struct nng_wait *w)
{
    bool done;

    pthread_mutex_lock(&w->mtx);
    done = w->done;
    pthread_mutex_unlock(&w->mtx);
    return done;
}

bool nng_wait_for(struct nng_wait *w, int64_t wait_ns, const atomic_bool *stop)
{
    int64_t deadline = deadline_after(wait_ns), look;
    bool done;

    pthread_mutex_lock(&w->mtx);
    while (!w->done && clock_now_ns() < deadline && !(stop && atomic_load(stop))) {
        look = deadline_after(LOOK_NS);
        (void)cond_wait_until(&w->cond, &w->mtx, look < deadline ? look : deadline);
    }
    done = w->done;
    pthread_mutex_unlock(&w->mtx);
    return done;
}

int nng_wait_or_cancel(struct nng_wait *w, int64_t wait_ns, const atomic_bool *stop)
{
    if (!nng_wait_for(w, wait_ns, stop))
        nng_aio_cancel(w->aio);
    nng_aio_wait(w->aio);
    return nng_aio_result(w->aio);
}
