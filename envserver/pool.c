#define _GNU_SOURCE
#include "envserver/pool_priv.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "envserver/wake.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static void count(atomic_llong *counter, long long n)
{
    // one writer, so a plain add is enough
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

// One line a second at most; the others are counted.
static void log_episode_error(struct pool *pool, const struct env *env, const struct desk *desk)
{
    int64_t now = clock_now_ns();
    long long last = atomic_load(&pool->logged_ns);
    const char *text = desk->at->world.error;

    if ((last != 0 && now - last < NS_PER_S) ||
        !atomic_compare_exchange_strong(&pool->logged_ns, &last, now)) {
        atomic_fetch_add(&pool->unlogged, 1);
        return;
    }
    log_warn("pool", "env %u: episode %llu ended by an error after %u steps: %s%s%s (%lld more)",
             env->head.env, (unsigned long long)env->head.episode, env->head.elapsed,
             row_error_name((enum row_error)env->head.error), text[0] ? ": " : "", text,
             atomic_exchange(&pool->unlogged, 0));
}

static void count_row(struct pool *pool, struct worker *w, const struct env *env,
                      const struct desk *desk)
{
    count(&w->steps, env->head.n_sub);
    if (env->head.flags & ROW_DONE)
        count(&w->episodes, 1);
    if (env->head.flags & ROW_ERROR) {
        count(&w->errors, 1);
        log_episode_error(pool, env, desk);
    }
}

// ------------------------------------------------------------------ workers

// Wake up to n workers that sleep; called with pool->mtx held.
static void wake_some(struct pool *pool, int n)
{
    int i, first = pool->next_wake;

    for (i = 0; i < pool->n_worker && n > 0; i++) {
        struct worker *w = &pool->workers[(first + i) % pool->n_worker];
        unsigned asleep = 1;

        if (atomic_load(&w->asleep) == 1 &&
            atomic_compare_exchange_strong(&w->asleep, &asleep, 0)) {
            wake_one(&w->asleep);
            pool->next_wake = (first + i + 1) % pool->n_worker;
            n--;
        }
    }
}

void pool_enqueue(struct pool *pool, const uint8_t *rows, size_t stride, int n)
{
    uint32_t env;
    int i;

    pthread_mutex_lock(&pool->mtx);
    for (i = 0; i < n; i++) {
        // a step_row and a reset_row both begin with the env
        memcpy(&env, rows + (size_t)i * stride, sizeof env);
        workq_put(&pool->lanes[pool->slots[env].lane], env);
    }
    wake_some(pool, pool->fixed ? pool->n_worker : n);
    pthread_mutex_unlock(&pool->mtx);
}

void pool_rouse(struct pool *pool)
{
    int i;

    for (i = 0; i < pool->n_worker; i++)
        if (atomic_exchange(&pool->workers[i].asleep, 0))
            wake_one(&pool->workers[i].asleep);
}

static int lane_of_worker(const struct pool *pool, int w)
{
    return pool->fixed ? w : pool->placement.node[w];
}

// The next slot for worker w: of its own lane, else of another one.
static struct slot *next_slot(struct pool *pool, int w)
{
    int i, first = lane_of_worker(pool, w), n = pool->fixed ? 1 : pool->n_lane;

    for (i = 0; i < n; i++) {
        int64_t item = workq_claim(&pool->lanes[(first + i) % pool->n_lane], (unsigned)w);

        if (item >= 0)
            return &pool->slots[item];
    }
    return NULL;
}

static bool any_work(struct pool *pool, int w)
{
    int i, first = lane_of_worker(pool, w), n = pool->fixed ? 1 : pool->n_lane;

    for (i = 0; i < n; i++)
        if (workq_any(&pool->lanes[(first + i) % pool->n_lane]))
            return true;
    return false;
}

// Sleep until there may be work.
static void rest(struct pool *pool, int w)
{
    struct worker *me = &pool->workers[w];

    atomic_store(&me->since_ns, 0);
    atomic_store(&me->asleep, 1);
    // whoever queues work looks at `asleep` afterwards, so one of the two sees the other
    while (atomic_load(&me->asleep) == 1 && !any_work(pool, w) && !atomic_load(&pool->shared->stop))
        wake_wait(&me->asleep, 1, WAIT_NEVER);
    atomic_store(&me->asleep, 0);
}

void pool_answer(struct pool *pool, int w, struct slot *slot, struct desk *desk)
{
    if (pool->cfg.isolate == POOL_ISOLATE_PROCESS) {
        env_write(&slot->env, desk, &slot->view->layout, slot->row);
        count_row(pool, &pool->workers[w], &slot->env, desk);
        slot->done_ns = clock_now_ns();
        slot->retried = false;
        workq_finish(&pool->cells[slot - pool->slots], (unsigned)w);
        port_announce(slot, false);
    } else {
        count_row(pool, &pool->workers[w], &slot->env, desk);
        port_deliver(slot, desk);
    }
}

void pool_work(struct pool *pool, int w, struct desk *desk)
{
    struct worker *me = &pool->workers[w];
    bool timed = pool->cfg.isolate == POOL_ISOLATE_PROCESS;
    struct slot *slot;

    while (!atomic_load_explicit(&pool->shared->stop, memory_order_relaxed)) {
        if (timed) // before the claim, so that no claim is without a time
            atomic_store(&me->since_ns, clock_now_ns());
        slot = next_slot(pool, w);
        if (!slot) {
            rest(pool, w);
            continue;
        }
        if (slot->is_reset)
            env_reset(&slot->env, desk, &slot->reset);
        else
            env_step(&slot->env, desk, slot->actions, slot->n_sub, slot->view->autoreset);
        pool_answer(pool, w, slot, desk);
    }
}

struct seat {
    struct pool *pool;
    int w;
    struct error error; // why the worker could not start
    atomic_uint ready;
};

static void *worker_run(void *arg)
{
    struct seat *seat = arg;
    struct pool *pool = seat->pool;
    int w = seat->w;
    enum status st = placement_pin(&pool->placement, w);

    // after pinning, so that the world lies in the memory of this processor's node
    if (st == ST_OK)
        st = desk_init(&pool->desks[w], pool->scene, pool->by_rows, pool->pictures);
    if (st != ST_OK)
        seat->error = *error_last();
    atomic_store(&seat->ready, 1);
    wake_all(&seat->ready); // the seat is gone now
    if (st == ST_OK)
        pool_work(pool, w, &pool->desks[w]);
    desk_fini(&pool->desks[w]); // here, for a graphics context belongs to its thread
    return NULL;
}

static enum status start_threads(struct pool *pool)
{
    int i;

    pool->desks = mem_alloc((size_t)pool->n_worker, sizeof pool->desks[0]);
    if (!pool->desks)
        return ST_NOMEM;
    for (i = 0; i < pool->n_worker; i++) {
        struct seat seat = {.pool = pool, .w = i};

        TRY(thread_start(&pool->workers[i].thread, "worker", worker_run, &seat));
        pool->workers[i].started = true;
        while (!atomic_load(&seat.ready))
            wake_wait(&seat.ready, 0, WAIT_NEVER);
        if (seat.error.code != ST_OK)
            return error_adopt(&seat.error);
    }
    return ST_OK;
}

// ------------------------------------------------------------------ the pool

static void fill_fields(struct spec *spec, const struct scene *scene)
{
    int i;

    for (i = 0; i < scene->n_info_key; i++) {
        snprintf(spec->info[i].name, sizeof spec->info[i].name, "%s", scene->info[i].name);
        spec->info[i].n = scene->info[i].n;
        spec->info[i].on_reset = scene->info[i].on_reset;
    }
    for (i = 0; i < scene->n_field; i++) {
        snprintf(spec->fields[i].name, sizeof spec->fields[i].name, "%s", scene->fields[i].name);
        spec->fields[i].offset = scene->fields[i].offset;
        spec->fields[i].n = scene->fields[i].n;
    }
}

static enum status fill_spec(struct pool *pool)
{
    const struct scene *scene = pool->scene;
    struct spec *spec = &pool->spec;

    if (scene->n_field > SPEC_FIELD_MAX)
        return FAIL(ST_INVAL, "task '%s' has %d observation fields, expected at most %d",
                    scene->name, scene->n_field, SPEC_FIELD_MAX);
    snprintf(spec->task, sizeof spec->task, "%s", scene->name);
    snprintf(spec->instruction, sizeof spec->instruction, "%s", scene->instruction);
    snprintf(spec->engine, sizeof spec->engine, "MuJoCo %s", mj_versionString());
    spec->n_obs = scene->n_obs;
    spec->n_act = scene->n_act;
    spec->n_info = scene->n_info;
    spec->n_info_key = scene->n_info_key;
    spec->n_field = scene->n_field;
    fill_fields(spec, scene);
    memcpy(spec->act_low, scene->act_low, sizeof spec->act_low);
    memcpy(spec->act_high, scene->act_high, sizeof spec->act_high);
    spec->max_episode_steps = ((const struct scene_common *)scene->params)->max_episode_steps;
    spec->dt_s = scene->dt_s;
    spec->has_success = scene->task->has_success;
    spec->n_env = pool->n_env;
    return ST_OK;
}

// Pages of zeroes that are there once they are touched, so memory lies at the node of the thread
// that first writes to it.
static enum status map(uint8_t **out, size_t bytes, bool shared)
{
    int kind = shared ? MAP_SHARED : MAP_PRIVATE;
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return FAIL_SYS(errno == ENOMEM ? ST_NOMEM : ST_IO, errno, "cannot map %zu bytes", bytes);
    *out = p;
    return ST_OK;
}

// The next `bytes` of the area; with a NULL area they are only counted.
static void *take(struct pool *pool, size_t *at, size_t bytes)
{
    void *p = pool->area ? pool->area + *at : NULL;

    *at += (bytes + 63) / 64 * 64;
    return p;
}

static size_t row_bytes(const struct pool *pool)
{
    return pool->by_rows ? sim_row_bytes(pool->scene) : 0;
}

static size_t variant_bytes(const struct pool *pool)
{
    return pool->randomize ? randomize_variant_bytes(pool->randomize) : 0;
}

static size_t place(struct pool *pool, uint8_t **rows, uint8_t **variants, uint8_t **rings)
{
    size_t at = 0;

    pool->shared = take(pool, &at, sizeof *pool->shared);
    pool->workers = take(pool, &at, (size_t)pool->n_worker * sizeof pool->workers[0]);
    pool->cells = take(pool, &at, (size_t)pool->n_env * sizeof pool->cells[0]);
    pool->views = take(pool, &at, (size_t)pool->n_env * sizeof pool->views[0]);
    pool->lanes = take(pool, &at, (size_t)pool->n_lane * sizeof pool->lanes[0]);
    *rings = take(pool, &at, (size_t)pool->n_lane * workq_ring_bytes(pool->n_env));
    pool->slots = take(pool, &at, (size_t)pool->n_env * sizeof pool->slots[0]);
    *rows = take(pool, &at, (size_t)pool->n_env * row_bytes(pool));
    *variants = take(pool, &at, (size_t)pool->n_env * variant_bytes(pool));
    return at;
}

static enum status make_area(struct pool *pool, uint8_t **rows, uint8_t **variants)
{
    bool shared = pool->cfg.isolate == POOL_ISOLATE_PROCESS;
    uint8_t *rings;
    int i;

    pool->area_bytes = place(pool, rows, variants, &rings);
    TRY(map(&pool->area, pool->area_bytes, shared));
    (void)place(pool, rows, variants, &rings);
    for (i = 0; i < pool->n_lane; i++)
        workq_init(&pool->lanes[i], rings + (size_t)i * workq_ring_bytes(pool->n_env), pool->cells,
                   pool->n_env);
    if (shared) {
        // as much as if every env had a port with the longest chunks
        struct row_layout layout;

        row_layout_make(&layout, &pool->spec, SPEC_CHUNK_MAX, AUTORESET_SAME_STEP);
        pool->port_area_bytes =
            (size_t)pool->n_env *
            (layout.stride + SPEC_CHUNK_MAX * (size_t)pool->spec.n_act * sizeof(float) + 4 * 64);
        TRY(map(&pool->port_area, pool->port_area_bytes, true));
    }
    return ST_OK;
}

static enum status make_envs(struct pool *pool, uint8_t *rows, uint8_t *variants)
{
    bool own = !pool->by_rows && pool->cfg.isolate != POOL_ISOLATE_PROCESS;
    int i;

    for (i = 0; i < pool->n_env; i++) {
        struct slot *slot = &pool->slots[i];

        slot->lane = (int)((int64_t)i * pool->n_lane / pool->n_env);
        // a worker that is a process makes the worlds of its envs itself
        slot->env.scene = pool->scene;
        slot->env.head.env = (uint32_t)i;
        if ((pool->by_rows || own) &&
            env_init(&slot->env, pool->scene, (uint32_t)i,
                     pool->by_rows ? rows + (size_t)i * row_bytes(pool) : NULL) != ST_OK)
            return error_prefix("env %d of %d", i, pool->n_env);
        if (pool->randomize)
            slot->env.variant =
                variant_make(pool->randomize, variants + (size_t)i * variant_bytes(pool));
    }
    return ST_OK;
}

static enum status build(struct pool *pool)
{
    const struct pool_config *cfg = &pool->cfg;
    uint8_t *rows, *variants;

    TRY(placement_make(&pool->placement, cfg->affinity, pool->n_worker, NULL));
    TRY(scene_create(&pool->scene, cfg->task, cfg->kwargs ? cfg->kwargs : ""));
    TRY(fill_spec(pool));
    TRY(pictures_create(&pool->pictures, pool->scene, &pool->spec));
    if (pool->pictures &&
        (cfg->isolate != POOL_ISOLATE_PROCESS || pictures_can_fork(pool->pictures)))
        TRY(pictures_prepare(pool->pictures));
    pool->by_rows = cfg->worlds == POOL_WORLDS_AUTO && sim_by_rows(pool->scene);
    pool->fixed = !pool->by_rows && cfg->isolate == POOL_ISOLATE_PROCESS;
    pool->n_lane = pool->fixed ? pool->n_worker : pool->placement.n_node;
    if (cfg->randomize && cfg->randomize[0])
        TRY(randomize_create(&pool->randomize, pool->scene, cfg->randomize));
    TRY(make_area(pool, &rows, &variants));
    TRY(make_envs(pool, rows, variants));
    return cfg->isolate == POOL_ISOLATE_PROCESS ? isolate_start(pool) : start_threads(pool);
}

static enum status check(const struct pool_config *cfg)
{
    if (cfg->n_env < 1 || cfg->n_env > SPEC_ENV_MAX)
        return FAIL(ST_INVAL, "%d envs are outside 1..%d", cfg->n_env, SPEC_ENV_MAX);
    if (cfg->n_thread < 0 || cfg->n_thread > PLACEMENT_MAX)
        return FAIL(ST_INVAL, "%d threads are outside 0..%d", cfg->n_thread, PLACEMENT_MAX);
    if (cfg->step_timeout_ns < 0)
        return FAIL(ST_INVAL, "step timeout %lld ns is negative", (long long)cfg->step_timeout_ns);
    if (cfg->step_timeout_ns > 0 && cfg->isolate != POOL_ISOLATE_PROCESS)
        return FAIL(ST_INVAL, "a step timeout needs isolate = process: a thread cannot be ended");
    if (cfg->randomize && cfg->randomize[0] && cfg->worlds == POOL_WORLDS_OWN)
        return FAIL(ST_INVAL, "randomize needs envs that live in rows");
    return ST_OK;
}

enum status pool_create(struct pool **out, const struct pool_config *cfg)
{
    struct pool *pool;
    enum status st;

    TRY(check(cfg));
    pool = mem_alloc(1, sizeof *pool);
    if (!pool)
        return ST_NOMEM;
    pthread_mutex_init(&pool->mtx, NULL);
    pool->cfg = *cfg;
    pool->warden_fd = -1;
    pool->n_env = cfg->n_env;
    pool->n_worker = cfg->n_thread > 0 ? cfg->n_thread : thread_cpus();
    st = build(pool);
    if (st != ST_OK) {
        pool_destroy(pool);
        return st;
    }
    *out = pool;
    return ST_OK;
}

const struct scene *pool_scene(const struct pool *pool)
{
    return pool->scene;
}

const char *pool_plan(const struct pool *pool)
{
    return pool->randomize ? randomize_text(pool->randomize) : "";
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
        if (atomic_load(&pool->workers[i].starts) > 1)
            out->restarts += atomic_load(&pool->workers[i].starts) - 1;
    }
    for (i = 0; i < BATCHER_WHYS; i++)
        out->batches[i] = atomic_load(&pool->batches[i]);
    out->rows = atomic_load(&pool->rows);
}

int pool_worker_pid(const struct pool *pool, int w)
{
    return w >= 0 && w < pool->n_worker ? atomic_load(&pool->workers[w].pid) : 0;
}

static void stop_threads(struct pool *pool)
{
    int i;

    atomic_store(&pool->shared->stop, true);
    pool_rouse(pool);
    for (i = 0; i < pool->n_worker; i++)
        if (pool->workers[i].started)
            pthread_join(pool->workers[i].thread, NULL);
}

void pool_destroy(struct pool *pool)
{
    int i;

    if (!pool)
        return;
    if (pool->area) {
        if (pool->cfg.isolate == POOL_ISOLATE_PROCESS)
            isolate_stop(pool);
        else
            stop_threads(pool);
        for (i = 0; i < pool->n_env && pool->cfg.isolate != POOL_ISOLATE_PROCESS; i++)
            env_fini(&pool->slots[i].env);
        munmap(pool->area, pool->area_bytes);
    }
    if (pool->port_area)
        munmap(pool->port_area, pool->port_area_bytes);
    mem_free(pool->desks);
    randomize_destroy(pool->randomize);
    pictures_destroy(pool->pictures);
    scene_destroy(pool->scene);
    pthread_mutex_destroy(&pool->mtx);
    mem_free(pool);
}
