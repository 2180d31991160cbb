#include "cli/embedded.h"

#include "rollout/player.h"

#include <stdio.h>

#define WAIT_NS (24 * 3600 * NS_PER_S) // for the learner, that is until *stop

static atomic_int serial; // several in one process, in benchmarks

enum status embedded_serve(struct embedded *e, const struct pool_config *pool, int b_max,
                           int64_t t_max_ns, char *url, size_t size)
{
    snprintf(url, size, "inproc://envs-%d", atomic_fetch_add(&serial, 1));
    TRY(pool_create(&e->pool, pool));
    return server_create(&e->server,
                         &(struct server_config){
                             .pool = e->pool, .listen = url, .b_max = b_max, .t_max_ns = t_max_ns});
}

static void *rollout_thread(void *arg)
{
    struct embedded *e = arg;

    e->st = (e->rollout.action_chunk > 0 ? player_run : rollout_run)(&e->rollout, &e->stop,
                                                                     &e->progress);
    if (e->st != ST_OK)
        e->err = *error_last();
    atomic_store(&e->ended, true);
    return NULL;
}

enum status embedded_rollout(struct embedded *e)
{
    e->rollout.connect_wait_ns = WAIT_NS;
    TRY(thread_start(&e->thread, "rollout", rollout_thread, e));
    e->started = true;
    return ST_OK;
}

enum status embedded_finish(struct embedded *e)
{
    atomic_store(&e->stop, true);
    if (e->started)
        pthread_join(e->thread, NULL);
    server_destroy(e->server);
    pool_destroy(e->pool);
    return e->st == ST_OK ? ST_OK : error_adopt(&e->err);
}
