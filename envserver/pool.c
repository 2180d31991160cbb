#include "envserver/pool_priv.h"

#include "common/base/log.h"
#include "common/base/mem.h"

#include <string.h>

static void count(atomic_llong *counter, long long n)
{
    // one writer, so a plain add is enough
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

// One line a second at most; the others are counted.
static void log_episode_error(struct pool *pool, const struct env *env)
{
    int64_t now = clock_now_ns();
    long long last = atomic_load(&pool->logged_ns);

    if ((last != 0 && now - last < NS_PER_S) ||
        !atomic_compare_exchange_strong(&pool->logged_ns, &last, now)) {
        atomic_fetch_add(&pool->unlogged, 1);
        return;
    }
    log_warn("pool", "env %u: episode %llu ended by an error after %u steps: %s%s%s (%lld more)",
             env->head.env, (unsigned long long)env->head.episode, env->head.elapsed,
             row_error_name((enum row_error)env->head.error), env->sim.error[0] ? ": " : "",
             env->sim.error, atomic_exchange(&pool->unlogged, 0));
}

void pool_count_row(struct worker *w, const struct env *env)
{
    count(&w->steps, env->head.n_sub);
    if (env->head.flags & ROW_DONE)
        count(&w->episodes, 1);
    if (env->head.flags & ROW_ERROR) {
        count(&w->errors, 1);
        log_episode_error(w->pool, env);
    }
}

void pool_enqueue(struct pool *pool, const uint8_t *rows, size_t stride, int n)
{
    int i, wake;

    pthread_mutex_lock(&pool->mtx);
    for (i = 0; i < n; i++) {
        // a step_row and a reset_row both begin with the env
        memcpy(&pool->queue[(pool->head + pool->count++) % pool->n_env], rows + (size_t)i * stride,
               sizeof(uint32_t));
    }
    wake = n < pool->idle ? n : pool->idle;
    if (wake > 1)
        pthread_cond_broadcast(&pool->work);
    else if (wake == 1)
        pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->mtx);
}

static void *worker_run(void *arg)
{
    struct worker *w = arg;
    struct pool *pool = w->pool;
    struct slot *slot;

    pthread_mutex_lock(&pool->mtx);
    for (;;) {
        while (pool->count == 0 && !pool->stop) {
            pool->idle++;
            pthread_cond_wait(&pool->work, &pool->mtx);
            pool->idle--;
        }
        if (pool->count == 0)
            break;
        slot = &pool->slots[pool->queue[pool->head]];
        pool->head = (pool->head + 1) % pool->n_env;
        pool->count--;
        pthread_mutex_unlock(&pool->mtx);
        if (slot->is_reset)
            env_reset(&slot->env, &slot->reset);
        else
            env_step(&slot->env, slot->actions, slot->n_sub, slot->port->cfg.autoreset);
        port_deliver(w, slot);
        pthread_mutex_lock(&pool->mtx);
    }
    pthread_mutex_unlock(&pool->mtx);
    return NULL;
}

static void fill_spec(struct pool *pool)
{
    const struct scene *scene = pool->scene;
    struct spec *spec = &pool->spec;
    int i;

    snprintf(spec->task, sizeof spec->task, "%s", scene->task->name);
    snprintf(spec->engine, sizeof spec->engine, "MuJoCo %s", mj_versionString());
    spec->n_obs = scene->n_obs;
    spec->n_act = scene->n_act;
    spec->n_info = scene->n_info;
    spec->n_info_key = scene->n_info_key;
    for (i = 0; i < scene->n_info_key; i++) {
        snprintf(spec->info[i].name, sizeof spec->info[i].name, "%s", scene->info[i].name);
        spec->info[i].n = scene->info[i].n;
        spec->info[i].on_reset = scene->info[i].on_reset;
    }
    memcpy(spec->act_low, scene->act_low, sizeof spec->act_low);
    memcpy(spec->act_high, scene->act_high, sizeof spec->act_high);
    spec->max_episode_steps = ((const struct scene_common *)scene->params)->max_episode_steps;
    spec->dt_s = scene->dt_s;
    spec->has_success = scene->task->has_success;
    spec->n_env = pool->n_env;
}

static enum status start_workers(struct pool *pool)
{
    int i;

    pool->workers = mem_alloc((size_t)pool->n_worker, sizeof pool->workers[0]);
    if (!pool->workers)
        return ST_NOMEM;
    for (i = 0; i < pool->n_worker; i++) {
        struct worker *w = &pool->workers[i];

        w->pool = pool;
        TRY(thread_start(&w->thread, "worker", worker_run, w));
        w->started = true;
    }
    return ST_OK;
}

static enum status build(struct pool *pool, const struct pool_config *cfg)
{
    int i;

    TRY(scene_create(&pool->scene, cfg->task, cfg->kwargs ? cfg->kwargs : ""));
    fill_spec(pool);
    pool->slots = mem_alloc((size_t)cfg->n_env, sizeof pool->slots[0]);
    pool->queue = mem_alloc((size_t)cfg->n_env, sizeof pool->queue[0]);
    if (!pool->slots || !pool->queue)
        return ST_NOMEM;
    for (i = 0; i < cfg->n_env; i++) {
        enum status st = env_init(&pool->slots[i].env, pool->scene, (uint32_t)i);

        if (st != ST_OK)
            return error_prefix("env %d of %d", i, cfg->n_env);
    }
    return start_workers(pool);
}

enum status pool_create(struct pool **out, const struct pool_config *cfg)
{
    struct pool *pool;
    enum status st;

    if (cfg->n_env < 1 || cfg->n_env > SPEC_ENV_MAX)
        return FAIL(ST_INVAL, "%d envs are outside 1..%d", cfg->n_env, SPEC_ENV_MAX);
    if (cfg->n_thread < 0 || cfg->n_thread > 256)
        return FAIL(ST_INVAL, "%d threads are outside 0..256", cfg->n_thread);
    pool = mem_alloc(1, sizeof *pool);
    if (!pool)
        return ST_NOMEM;
    pthread_mutex_init(&pool->mtx, NULL);
    cond_init(&pool->work);
    pool->n_env = cfg->n_env;
    pool->n_worker = cfg->n_thread > 0 ? cfg->n_thread : thread_cpus();
    st = build(pool, cfg);
    if (st != ST_OK) {
        pool_destroy(pool);
        return st;
    }
    *out = pool;
    return ST_OK;
}

const struct spec *pool_spec(const struct pool *pool)
{
    return &pool->spec;
}

void pool_stats_get(struct pool *pool, struct pool_stats *out)
{
    int i;

    memset(out, 0, sizeof *out);
    for (i = 0; i < pool->n_worker; i++) {
        out->steps += atomic_load(&pool->workers[i].steps);
        out->episodes += atomic_load(&pool->workers[i].episodes);
        out->errors += atomic_load(&pool->workers[i].errors);
    }
    for (i = 0; i < 4; i++)
        out->batches[i] = atomic_load(&pool->batches[i]);
    out->rows = atomic_load(&pool->rows);
}

void pool_destroy(struct pool *pool)
{
    int i;

    if (!pool)
        return;
    pthread_mutex_lock(&pool->mtx);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mtx);
    for (i = 0; pool->workers && i < pool->n_worker; i++)
        if (pool->workers[i].started)
            pthread_join(pool->workers[i].thread, NULL);
    for (i = 0; pool->slots && i < pool->n_env; i++)
        env_fini(&pool->slots[i].env);
    mem_free(pool->workers);
    mem_free(pool->slots);
    mem_free(pool->queue);
    scene_destroy(pool->scene);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mtx);
    mem_free(pool);
}
