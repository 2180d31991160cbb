#include "envserver/pool_priv.h"

#include "common/base/log.h"
#include "common/base/mem.h"

#include <math.h>
#include <string.h>

static enum status block_open(struct port *port)
{
    struct block *b = port->spare;
    size_t bytes = sizeof(struct batch_head) + (size_t)port->cfg.b_max * port->layout.stride;
    enum status st;

    if (b)
        port->spare = b->next;
    else
        b = mem_alloc(1, sizeof *b);
    if (!b)
        return ST_NOMEM;
    memset(b, 0, sizeof *b);
    st = batcher_init(&b->batcher, port->cfg.b_max, port->cfg.t_max_ns);
    if (st == ST_OK)
        st = msg_new(&b->m, MSG_BATCH, bytes);
    if (st == ST_OK && !msg_append(b->m, bytes))
        st = ST_NOMEM;
    if (st != ST_OK) {
        msg_free(b->m);
        mem_free(b);
        return st;
    }
    if (port->last)
        port->last->next = b;
    else
        port->first = b;
    port->last = b;
    return ST_OK;
}

// The next row of the newest block that has room; called with port->mtx held.
static uint8_t *reserve(struct port *port, struct block **out)
{
    struct block *b = port->last;

    if (!b || b->reserved == port->cfg.b_max || b->why != BATCHER_WAIT) {
        if (block_open(port) != ST_OK)
            return NULL;
        b = port->last;
    }
    *out = b;
    return b->m->data + sizeof(struct batch_head) + (size_t)b->reserved++ * port->layout.stride;
}

// Hand the finished request to its port: reserve a row, write it, count it.
void port_deliver(struct worker *w, struct slot *slot)
{
    struct port *port = slot->port;
    struct block *block;
    uint8_t *row;

    pthread_mutex_lock(&port->mtx);
    while (!(row = reserve(port, &block))) {
        // No memory for a batch: the row must not be lost, so wait for blocks to come back.
        pthread_mutex_unlock(&port->mtx);
        log_error("pool", "no memory for a batch, trying again: %s", error_last()->text);
        clock_sleep_ns(100 * NS_PER_MS);
        pthread_mutex_lock(&port->mtx);
    }
    pthread_mutex_unlock(&port->mtx);
    env_write(&slot->env, &port->layout, row);
    pool_count_row(w, &slot->env);
    pthread_mutex_lock(&port->mtx);
    slot->busy = false;
    port->in_flight--;
    batcher_add(&block->batcher, clock_now_ns());
    // the receiver has something to do at a first row (its deadline), at a full batch, when the
    // batch that it wants to send is complete, and when nothing else will come
    if (block->batcher.n == 1 || block->batcher.n == port->cfg.b_max ||
        (block->why != BATCHER_WAIT && block->batcher.n == block->reserved) || port->in_flight == 0)
        pthread_cond_broadcast(&port->cond);
    pthread_mutex_unlock(&port->mtx);
}

// Take n_env free slots (0 = all); called with pool->mtx held.
static enum status lease(struct port *port)
{
    struct pool *pool = port->pool;
    size_t per_env = (size_t)port->cfg.k_max * (size_t)pool->spec.n_act;
    int i, n = 0, n_free = 0, want = port->cfg.n_env;

    for (i = 0; i < pool->n_env; i++)
        n_free += pool->slots[i].port == NULL;
    if (want == 0)
        want = n_free;
    if (want < 1 || want > n_free)
        return FAIL(ST_INVAL, "%d envs wanted, %d of %d are free", port->cfg.n_env, n_free,
                    pool->n_env);
    port->ids = mem_alloc((size_t)want, sizeof port->ids[0]);
    port->mine = mem_alloc((size_t)pool->n_env, sizeof port->mine[0]);
    port->actions = mem_alloc((size_t)want * per_env, sizeof port->actions[0]);
    if (!port->ids || !port->mine || !port->actions)
        return ST_NOMEM;
    for (i = 0; n < want; i++) {
        struct slot *slot = &pool->slots[i];

        if (slot->port)
            continue;
        slot->port = port;
        slot->busy = false;
        slot->stamp = 0;
        slot->env.started = slot->env.running = false; // nothing of the client before is left
        slot->actions = port->actions + (size_t)n * per_env;
        port->mine[i] = true;
        port->ids[n++] = (uint32_t)i;
    }
    port->n_env = port->cfg.n_env = n;
    return ST_OK;
}

static enum status port_check(const struct port_config *cfg)
{
    struct batcher b;

    if ((int)cfg->autoreset < 0 || cfg->autoreset > AUTORESET_DISABLED)
        return FAIL(ST_INVAL, "autoreset mode %d is unknown", (int)cfg->autoreset);
    if (cfg->k_max < 1 || cfg->k_max > SPEC_CHUNK_MAX)
        return FAIL(ST_INVAL, "%d actions per request are outside 1..%d", cfg->k_max,
                    SPEC_CHUNK_MAX);
    if (cfg->n_env < 0)
        return FAIL(ST_INVAL, "%d envs wanted", cfg->n_env);
    return batcher_init(&b, cfg->b_max, cfg->t_max_ns);
}

enum status port_open(struct port **out, struct pool *pool, const struct port_config *cfg)
{
    struct port *port;
    enum status st;

    TRY(port_check(cfg));
    port = mem_alloc(1, sizeof *port);
    if (!port)
        return ST_NOMEM;
    pthread_mutex_init(&port->mtx, NULL);
    cond_init(&port->cond);
    port->pool = pool;
    port->cfg = *cfg;
    port->refused = UINT32_MAX;
    pthread_mutex_lock(&pool->mtx);
    st = lease(port);
    pthread_mutex_unlock(&pool->mtx);
    if (st != ST_OK) {
        port_close(port);
        return st;
    }
    if (port->cfg.b_max > port->n_env)
        port->cfg.b_max = port->n_env;
    row_layout_make(&port->layout, &pool->spec, cfg->k_max, cfg->autoreset);
    *out = port;
    return ST_OK;
}

const struct row_layout *port_layout(const struct port *port)
{
    return &port->layout;
}

const struct port_config *port_settings(const struct port *port)
{
    return &port->cfg;
}

const uint32_t *port_envs(const struct port *port, int *n)
{
    *n = port->n_env;
    return port->ids;
}

uint32_t port_refused_env(const struct port *port)
{
    return port->refused;
}

// May this env take a request now? Called with port->mtx held; marks the env for the present stamp.
static enum status check_env(struct port *port, uint32_t env)
{
    struct slot *slot;

    port->refused = env;
    if (env >= (uint32_t)port->pool->n_env || !port->mine[env])
        return FAIL(ST_PROTO, "env %u is not one of this client's envs", env);
    slot = &port->pool->slots[env];
    if (slot->busy)
        return FAIL(ST_PROTO, "env %u has a request in flight", env);
    if (slot->stamp == port->stamp)
        return FAIL(ST_PROTO, "env %u stands twice in one request", env);
    slot->stamp = port->stamp;
    return ST_OK;
}

static enum status check_step(struct port *port, const uint8_t *row)
{
    const struct step_row *head = (const struct step_row *)row;
    const float *action = (const float *)(row + sizeof *head);
    int k, n_act = port->pool->spec.n_act;
    const struct env *env;

    TRY(check_env(port, head->env));
    if (head->n_sub < 1 || head->n_sub > (uint32_t)port->cfg.k_max)
        return FAIL(ST_PROTO, "env %u: %u actions, expected 1 to %d", head->env, head->n_sub,
                    port->cfg.k_max);
    env = &port->pool->slots[head->env].env;
    if (!env->started || (!env->running && port->cfg.autoreset == AUTORESET_DISABLED))
        return FAIL(ST_PROTO, "env %u needs a reset before it can step", head->env);
    for (k = 0; k < (int)head->n_sub * n_act; k++)
        if (!isfinite(action[k]))
            return FAIL(ST_PROTO, "env %u: action [%d][%d] is %s", head->env, k / n_act, k % n_act,
                        isnan(action[k]) ? "NaN" : "infinite");
    return ST_OK;
}

enum status port_reset(struct port *port, const struct reset_row *rows, int n)
{
    enum status st = ST_OK;
    int i;

    pthread_mutex_lock(&port->mtx);
    port->stamp++;
    for (i = 0; i < n && st == ST_OK; i++)
        st = check_env(port, rows[i].env);
    for (i = 0; i < n && st == ST_OK; i++) {
        struct slot *slot = &port->pool->slots[rows[i].env];

        slot->busy = true;
        slot->is_reset = true;
        slot->reset = rows[i];
        port->in_flight++;
    }
    pthread_cond_broadcast(&port->cond); // port_wait_busy
    pthread_mutex_unlock(&port->mtx);
    if (st == ST_OK)
        pool_enqueue(port->pool, (const uint8_t *)rows, sizeof rows[0], n);
    return st;
}

enum status port_step(struct port *port, const uint8_t *rows, int n)
{
    size_t stride = step_stride(port->cfg.k_max, port->pool->spec.n_act);
    enum status st = ST_OK;
    int i;

    pthread_mutex_lock(&port->mtx);
    port->stamp++;
    for (i = 0; i < n && st == ST_OK; i++)
        st = check_step(port, rows + (size_t)i * stride);
    for (i = 0; i < n && st == ST_OK; i++) {
        const struct step_row *head = (const struct step_row *)(rows + (size_t)i * stride);
        struct slot *slot = &port->pool->slots[head->env];

        slot->busy = true;
        slot->is_reset = false;
        slot->n_sub = (int)head->n_sub;
        memcpy(slot->actions, head + 1,
               head->n_sub * (size_t)port->pool->spec.n_act * sizeof(float));
        port->in_flight++;
    }
    pthread_cond_broadcast(&port->cond); // port_wait_busy
    pthread_mutex_unlock(&port->mtx);
    if (st == ST_OK)
        pool_enqueue(port->pool, rows, stride, n);
    return st;
}

// Why the oldest block may leave now, BATCHER_WAIT if it may not. A block that is due takes no more
// rows; it leaves once those being written are complete. Called with port->mtx held.
static enum batcher_why may_leave(const struct port *port, int64_t now_ns)
{
    struct block *b = port->first;

    if (!b)
        return BATCHER_WAIT;
    if (b->why == BATCHER_WAIT)
        b->why = batcher_check(&b->batcher, now_ns, port->in_flight);
    return b->batcher.n == b->reserved ? b->why : BATCHER_WAIT;
}

// Take the oldest block as a BATCH message; called with port->mtx held.
static struct msg *take(struct port *port, enum batcher_why why)
{
    struct block *b = port->first;
    struct msg *m = b->m;
    struct batch_head head = {.seq = ++port->seq,
                              .n = (uint32_t)b->batcher.n,
                              .why = why,
                              .in_flight = (uint32_t)port->in_flight,
                              .stride = port->layout.stride};

    memcpy(m->data, &head, sizeof head);
    m->len = sizeof head + (size_t)head.n * head.stride;
    port->first = b->next;
    if (!port->first)
        port->last = NULL;
    b->m = NULL;
    b->next = port->spare;
    port->spare = b;
    atomic_fetch_add(&port->pool->batches[why], 1);
    atomic_fetch_add(&port->pool->rows, head.n);
    return m;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

enum status port_recv(struct port *port, struct msg **batch, int64_t wait_ns)
{
    int64_t deadline = deadline_after(wait_ns);
    enum status st = ST_OK;
    enum batcher_why why;

    pthread_mutex_lock(&port->mtx);
    for (;;) {
        int64_t now = clock_now_ns(), until = deadline;

        why = may_leave(port, now);
        if (why != BATCHER_WAIT) {
            *batch = take(port, why);
            break;
        }
        if (port->woken)
            st = ST_CLOSED;
        else if (wait_ns == 0 || (port->in_flight == 0 && !port->first))
            st = ST_AGAIN;
        else if (now >= deadline)
            st = ST_TIMEOUT;
        if (st != ST_OK)
            break;
        if (port->first && port->first->why == BATCHER_WAIT)
            until = sooner(until, deadline_after(batcher_due_ns(&port->first->batcher, now)));
        (void)cond_wait_until(&port->cond, &port->mtx, until);
    }
    pthread_mutex_unlock(&port->mtx);
    return st;
}

enum status port_wait_busy(struct port *port)
{
    bool woken;

    pthread_mutex_lock(&port->mtx);
    while (port->in_flight == 0 && !port->first && !port->woken)
        pthread_cond_wait(&port->cond, &port->mtx);
    woken = port->woken;
    pthread_mutex_unlock(&port->mtx);
    return woken ? ST_CLOSED : ST_OK;
}

void port_wake(struct port *port)
{
    pthread_mutex_lock(&port->mtx);
    port->woken = true;
    pthread_cond_broadcast(&port->cond);
    pthread_mutex_unlock(&port->mtx);
}

static void blocks_free(struct block *b)
{
    struct block *next;

    for (; b; b = next) {
        next = b->next;
        msg_free(b->m);
        mem_free(b);
    }
}

void port_close(struct port *port)
{
    int i;

    if (!port)
        return;
    pthread_mutex_lock(&port->mtx);
    while (port->in_flight > 0)
        pthread_cond_wait(&port->cond, &port->mtx);
    pthread_mutex_unlock(&port->mtx);
    pthread_mutex_lock(&port->pool->mtx);
    for (i = 0; i < port->n_env; i++)
        port->pool->slots[port->ids[i]].port = NULL;
    pthread_mutex_unlock(&port->pool->mtx);
    blocks_free(port->first);
    blocks_free(port->spare);
    mem_free(port->ids);
    mem_free(port->mine);
    mem_free(port->actions);
    pthread_cond_destroy(&port->cond);
    pthread_mutex_destroy(&port->mtx);
    mem_free(port);
}
