#include "envserver/pool_priv.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "envserver/snapshot.h"
#include "envserver/wake.h"

#include <math.h>
#include <sched.h>
#include <string.h>

// A shorter T_max than this is kept by waking the receiver at the first row; a longer one by a
// receiver that sleeps no longer than that, which costs no wake-up per batch.
#define T_MAX_WAKES_NS (1 * NS_PER_MS)

// Make the receiver look again.
static void nudge(struct port_view *view)
{
    atomic_fetch_add(&view->event, 1);
    wake_all(&view->event);
}

static enum status block_open(struct port *port)
{
    struct block *b = port->spare;
    size_t bytes = sizeof(struct batch_head) + (size_t)port->cfg.b_max * port->view->layout.stride;
    enum status st;

    if (!b) {
        b = mem_alloc(1, sizeof *b);
        if (!b)
            return ST_NOMEM;
        atomic_store(&b->reserved, BLOCK_CLOSED);
        port->spare = b;
    }
    st = msg_new(&b->m, MSG_BATCH, bytes);
    if (st == ST_OK && !msg_extend(b->m, bytes)) // not all of its rows may be used
        st = ST_NOMEM;
    if (st != ST_OK) {
        msg_free(b->m);
        b->m = NULL;
        return st;
    }
    port->spare = b->next;
    b->next = NULL;
    b->why = BATCHER_WAIT;
    b->n_row = 0;
    atomic_store(&b->done, 0);
    atomic_store(&b->oldest_ns, 0);
    atomic_store(&b->reserved, 0); // from here on it gives rows
    if (port->last)
        port->last->next = b;
    else
        port->first = b;
    port->last = b;
    atomic_store(&port->open, b);
    return ST_OK;
}

// Open a block unless there is one that has room. It does not suffice that the open one is not the
// one that a worker found full: that may have left, and be open again with all its rows to give.
static enum status block_next(struct port *port)
{
    enum status st = ST_OK;
    struct block *b;

    pthread_mutex_lock(&port->mtx);
    b = atomic_load(&port->open);
    if (!b || atomic_load(&b->reserved) >= (unsigned)port->cfg.b_max)
        st = block_open(port);
    pthread_mutex_unlock(&port->mtx);
    return st;
}

// The next row of the newest block that has room, zeroed.
static uint8_t *reserve(struct port *port, struct block **out)
{
    for (;;) {
        struct block *b = atomic_load(&port->open);
        unsigned i = b ? atomic_fetch_add(&b->reserved, 1) : BLOCK_CLOSED;

        if (i < (unsigned)port->cfg.b_max) {
            size_t stride = port->view->layout.stride;

            *out = b;
            return memset(b->m->data + sizeof(struct batch_head) + i * stride, 0, stride);
        }
        while (block_next(port) != ST_OK) {
            // the row must not be lost, so wait for memory
            log_error("pool", "no memory for a batch, trying again: %s", error_last()->text);
            clock_sleep_ns(100 * NS_PER_MS);
        }
    }
}

// The row is written: count it, and wake the receiver if that makes a difference to it: at enough
// rows, at a full batch, when a batch that it wants to send is complete, and when nothing else will
// come.
static void complete(struct port *port, struct block *b, int64_t now_ns)
{
    long long none = 0;
    unsigned n;
    int left;

    if (atomic_load_explicit(&b->oldest_ns, memory_order_relaxed) == 0)
        atomic_compare_exchange_strong(&b->oldest_ns, &none, now_ns ? now_ns : clock_now_ns());
    n = atomic_fetch_add(&b->done, 1) + 1;
    left = atomic_fetch_sub(&port->in_flight, 1) - 1;
    if ((n == 1 && port->cfg.t_max_ns < T_MAX_WAKES_NS) || n == (unsigned)port->cfg.b_min ||
        n == (unsigned)port->cfg.b_max || (atomic_load(&b->reserved) & BLOCK_CLOSED) || left == 0)
        nudge(port->view);
    atomic_fetch_sub(&port->owed, 1); // the last look at the port
}

void port_deliver(struct slot *slot, struct desk *desk)
{
    struct port *port = slot->port;
    struct block *block;
    uint8_t *row = reserve(port, &block);

    env_write(&slot->env, desk, &port->view->layout, row);
    workq_release(&port->pool->cells[slot - port->pool->slots]);
    complete(port, block, 0);
}

// ------------------------------------------------------------------ rows from other processes

void port_announce(struct slot *slot, bool again)
{
    struct port_view *view = slot->view;

    atomic_fetch_or(&view->done[slot->index / 64], 1ULL << (slot->index % 64));
    if (atomic_fetch_sub(&view->left, 1) == 1 || again)
        nudge(view);
}

// Copy the finished slot's row into a block.
static void fetch(struct port *port, int index)
{
    struct slot *slot = &port->pool->slots[port->ids[index]];
    struct block *block;
    int64_t done_ns = slot->done_ns;
    uint8_t *row;

    if (workq_look(&port->pool->cells[port->ids[index]], NULL) != WORKQ_FINISHED)
        return; // announced twice
    row = reserve(port, &block);
    memcpy(row, slot->row, port->view->layout.stride);
    (void)workq_collect(&port->pool->cells[port->ids[index]]);
    complete(port, block, done_ns);
}

// Fetch all rows that worker processes have finished; by the receiving thread.
static void harvest(struct port *port)
{
    int i;

    if (!port->view->done)
        return;
    for (i = 0; i * 64 < port->n_env; i++) {
        unsigned long long bits = atomic_load(&port->view->done[i]);

        if (bits == 0)
            continue;
        for (bits = atomic_exchange(&port->view->done[i], 0); bits; bits &= bits - 1)
            fetch(port, i * 64 + __builtin_ctzll(bits));
    }
}

// Let the workers wake the receiver after `want` more rows; false if so many are there already.
static bool ask_for(struct port *port, int want)
{
    int i, there = 0;

    if (!port->view->done)
        return true;
    atomic_store(&port->view->left, want);
    for (i = 0; i * 64 < port->n_env; i++)
        there += __builtin_popcountll(atomic_load(&port->view->done[i]));
    // a row may be counted twice, here and by its worker: that wakes the receiver too early, once
    return there == 0 || atomic_fetch_sub(&port->view->left, there) > there;
}

// ------------------------------------------------------------------ opening

// Room of `bytes` in the pool's port area, first fit; called with pool->mtx held.
static enum status area_find(struct pool *pool, size_t bytes, size_t *at)
{
    const struct port *p, *hit;

    *at = 0;
    do {
        for (hit = NULL, p = pool->ports; p && !hit; p = p->next)
            if (p->area_at < *at + bytes && *at < p->area_at + p->area_bytes)
                hit = p;
        if (hit)
            *at = hit->area_at + hit->area_bytes;
    } while (hit);
    if (*at + bytes > pool->port_area_bytes)
        return FAIL(ST_NOMEM, "no room of %zu bytes is left beside the other clients", bytes);
    return ST_OK;
}

static size_t round64(size_t n)
{
    return (n + 63) / 64 * 64;
}

// Memory that the workers see, for `n` envs: marks, actions, rows. Called with pool->mtx held.
//
// The view lies apart: a worker may look at it once more after the port was closed. All that it can
// do then is to wake the receiver of the next port there.
static enum status place(struct port *port, int n, size_t actions, uint8_t **rows)
{
    struct pool *pool = port->pool;
    struct port_view *view = &pool->views[port->ids[0]];
    size_t marks = round64((size_t)(n + 63) / 64 * 8), bytes;
    uint8_t *p;

    row_layout_make(&view->layout, &port->spec, port->cfg.k_max, port->cfg.autoreset);
    view->autoreset = port->cfg.autoreset;
    *rows = NULL;
    if (pool->cfg.isolate == POOL_ISOLATE_PROCESS) {
        bytes = round64(marks + round64((size_t)n * actions) + (size_t)n * view->layout.stride);
        TRY(area_find(pool, bytes, &port->area_at));
        port->area_bytes = bytes;
        p = pool->port_area + port->area_at;
        memset(p, 0, marks);
        view->done = (atomic_ullong *)p;
        port->actions = (float *)(p + marks);
        *rows = p + marks + round64((size_t)n * actions);
    } else {
        port->actions = mem_alloc((size_t)n, actions);
        if (!port->actions)
            return ST_NOMEM;
    }
    port->view = view;
    return ST_OK;
}

// Take n_env free slots (0 = all); called with pool->mtx held.
static enum status lease(struct port *port)
{
    struct pool *pool = port->pool;
    size_t per_env = (size_t)port->cfg.k_max * (size_t)pool->spec.n_act;
    int i, n = 0, n_free = 0, want = port->cfg.n_env;
    uint8_t *rows;

    for (i = 0; i < pool->n_env; i++)
        n_free += pool->slots[i].port == NULL;
    if (want == 0)
        want = n_free;
    if (want < 1 || want > n_free)
        return FAIL(ST_INVAL, "%d envs wanted, %d of %d are free", port->cfg.n_env, n_free,
                    pool->n_env);
    port->ids = mem_alloc((size_t)want, sizeof port->ids[0]);
    port->mine = mem_alloc((size_t)pool->n_env, sizeof port->mine[0]);
    if (!port->ids || !port->mine)
        return ST_NOMEM;
    for (i = 0; n < want; i++)
        if (!pool->slots[i].port)
            port->ids[n++] = (uint32_t)i;
    TRY(place(port, want, per_env * sizeof port->actions[0], &rows));
    for (n = 0; n < want; n++) {
        struct slot *slot = &pool->slots[port->ids[n]];

        slot->port = port;
        slot->view = port->view;
        slot->index = n;
        slot->stamp = 0;
        slot->env.skip = port->cfg.skip;
        slot->env.started = slot->env.running = false; // nothing of the client before is left
        if (slot->env.variant)
            variant_reset(slot->env.variant);
        slot->actions = port->actions + (size_t)n * per_env;
        slot->row = rows ? rows + (size_t)n * port->view->layout.stride : NULL;
        port->mine[port->ids[n]] = true;
    }
    port->n_env = port->cfg.n_env = n;
    port->next = pool->ports;
    pool->ports = port;
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
    TRY(batcher_init(&b, cfg->b_max, cfg->t_max_ns));
    return cfg->b_min ? batcher_set_min(&b, cfg->b_min) : ST_OK;
}

static enum status check_batch(const struct port *port)
{
    size_t stride = port->view->layout.stride;
    size_t most = (MSG_BYTES_MAX - sizeof(struct batch_head)) / stride;

    if ((size_t)port->cfg.b_max > most)
        return FAIL(ST_INVAL,
                    "a batch of %d rows of %zu bytes is longer than a message may be (%u MiB): ask "
                    "for at most %zu rows a batch, or for smaller pictures",
                    port->cfg.b_max, stride, MSG_BYTES_MAX >> 20, most);
    return ST_OK;
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
    port->pool = pool;
    port->cfg = *cfg;
    port->spec = pool->spec;
    spec_skip_pictures(&port->spec, cfg->skip);
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
    if (port->cfg.b_min == 0 || port->cfg.b_min > port->cfg.b_max)
        port->cfg.b_min = port->cfg.b_max;
    st = batcher_init(&port->rule, port->cfg.b_max, port->cfg.t_max_ns);
    if (st == ST_OK)
        st = batcher_set_min(&port->rule, port->cfg.b_min);
    if (st == ST_OK)
        st = check_batch(port);
    if (st != ST_OK) {
        port_close(port);
        return st;
    }
    *out = port;
    return ST_OK;
}

const struct spec *port_spec(const struct port *port)
{
    return &port->spec;
}

const struct row_layout *port_layout(const struct port *port)
{
    return &port->view->layout;
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

// ------------------------------------------------------------------ requests

// The start of a request.
static enum status check_open(struct port *port)
{
    port->stamp++;
    port->refused = UINT32_MAX;
    return atomic_load(&port->draining) ? FAIL(ST_CLOSED, "no more requests are taken") : ST_OK;
}

// May this env take a request now? Marks the env for the present stamp.
static enum status check_env(struct port *port, uint32_t env)
{
    struct slot *slot;

    port->refused = env;
    if (env >= (uint32_t)port->pool->n_env || !port->mine[env])
        return FAIL(ST_PROTO, "env %u is not one of this client's envs", env);
    slot = &port->pool->slots[env];
    if (workq_look(&port->pool->cells[env], NULL) != WORKQ_IDLE)
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

// The requests of n envs stand in their slots: let them run.
static void submit(struct port *port, const uint8_t *rows, size_t stride, int n)
{
    atomic_fetch_add(&port->owed, n);
    atomic_fetch_add(&port->in_flight, n);
    if (atomic_load(&port->resting))
        nudge(port->view);
    pool_enqueue(port->pool, rows, stride, n);
}

enum status port_reset(struct port *port, const struct reset_row *rows, int n)
{
    int i;

    TRY(check_open(port));
    for (i = 0; i < n; i++)
        TRY(check_env(port, rows[i].env));
    port->refused = UINT32_MAX;
    for (i = 0; i < n; i++) {
        struct slot *slot = &port->pool->slots[rows[i].env];

        slot->is_reset = true;
        slot->reset = rows[i];
    }
    submit(port, (const uint8_t *)rows, sizeof rows[0], n);
    return ST_OK;
}

enum status port_step(struct port *port, const uint8_t *rows, int n)
{
    size_t stride = step_stride(port->cfg.k_max, port->pool->spec.n_act);
    int i;

    TRY(check_open(port));
    for (i = 0; i < n; i++)
        TRY(check_step(port, rows + (size_t)i * stride));
    port->refused = UINT32_MAX;
    for (i = 0; i < n; i++) {
        const struct step_row *head = (const struct step_row *)(rows + (size_t)i * stride);
        struct slot *slot = &port->pool->slots[head->env];

        slot->is_reset = false;
        slot->n_sub = (int)head->n_sub;
        memcpy(slot->actions, head + 1,
               head->n_sub * (size_t)port->pool->spec.n_act * sizeof(float));
    }
    submit(port, rows, stride, n);
    return ST_OK;
}

// ------------------------------------------------------------------ states

size_t port_state_bytes(const struct port *port)
{
    const struct pool *pool = port->pool;

    return pool->fixed ? 0 : snapshot_bytes(&pool->slots[0].env);
}

// All n envs are this port's and idle, none stands twice.
static enum status check_idle(struct port *port, const uint32_t *env, int n)
{
    int i;

    TRY(check_open(port));
    for (i = 0; i < n; i++)
        TRY(check_env(port, env[i]));
    port->refused = UINT32_MAX;
    return ST_OK;
}

static enum status check_states(struct port *port, const uint32_t *env, int n, const void *p,
                                size_t stride)
{
    if (port->pool->fixed)
        return FAIL(ST_INVAL,
                    "the worlds of task '%s' live in the worker processes: states need "
                    "isolate = thread",
                    port->pool->scene->name);
    if ((uintptr_t)p % 8 != 0 || stride % 8 != 0)
        return FAIL(ST_INVAL, "the bytes of a state must be aligned to 8");
    return check_idle(port, env, n);
}

static struct env *env_of(struct port *port, uint32_t env)
{
    return &port->pool->slots[env].env;
}

enum status port_save(struct port *port, const uint32_t *env, int n, void *out, size_t stride)
{
    int i;

    TRY(check_states(port, env, n, out, stride));
    if (stride < port_state_bytes(port))
        return FAIL(ST_INVAL, "a state needs %zu bytes, there are %zu", port_state_bytes(port),
                    stride);
    for (i = 0; i < n; i++) {
        port->refused = env[i];
        TRY(snapshot_write(env_of(port, env[i]), (uint8_t *)out + (size_t)i * stride));
    }
    port->refused = UINT32_MAX;
    return ST_OK;
}

enum status port_load(struct port *port, const uint32_t *env, int n, const void *in, size_t stride,
                      size_t bytes)
{
    int i;

    TRY(check_states(port, env, n, in, stride));
    if (bytes > stride)
        return FAIL(ST_INVAL, "states of %zu bytes are %zu bytes apart", bytes, stride);
    for (i = 0; i < n; i++) {
        port->refused = env[i];
        TRY(snapshot_check(env_of(port, env[i]), (const uint8_t *)in + (size_t)i * stride, bytes));
    }
    port->refused = UINT32_MAX;
    for (i = 0; i < n; i++)
        snapshot_read(env_of(port, env[i]), (const uint8_t *)in + (size_t)i * stride);
    return ST_OK;
}

enum status port_field_size(const struct port *port, const char *field, const char *element, int *k)
{
    if (!port->pool->randomize)
        return FAIL(ST_INVAL, "the envs share one model: the pool was made without `randomize`");
    return randomize_field_size(port->pool->randomize, field, element, k);
}

static enum status check_field(struct port *port, const uint32_t *env, int n, const char *field,
                               const char *element, int k)
{
    int want;

    TRY(port_field_size(port, field, element, &want));
    if (k != want)
        return FAIL(ST_INVAL, "field '%s', element '%s': %d numbers, expected %d", field, element,
                    k, want);
    return check_idle(port, env, n);
}

enum status port_set_field(struct port *port, const uint32_t *env, int n, const char *field,
                           const char *element, const double *x, size_t stride, int k)
{
    int i, j;

    TRY(check_field(port, env, n, field, element, k));
    for (i = 0; i < n; i++) {
        const double *at = (const double *)((const char *)x + (size_t)i * stride);

        port->refused = env[i];
        for (j = 0; j < k; j++)
            if (!isfinite(at[j]))
                return FAIL(ST_INVAL, "env %u: field '%s', element '%s': number %d is not finite",
                            env[i], field, element, j);
    }
    port->refused = UINT32_MAX;
    for (i = 0; i < n; i++)
        variant_set(env_of(port, env[i])->variant, field, element,
                    (const double *)((const char *)x + (size_t)i * stride));
    return ST_OK;
}

enum status port_get_field(struct port *port, const uint32_t *env, int n, const char *field,
                           const char *element, double *x, size_t stride, int k)
{
    int i;

    TRY(check_field(port, env, n, field, element, k));
    for (i = 0; i < n; i++)
        variant_get(env_of(port, env[i])->variant, field, element,
                    (double *)((char *)x + (size_t)i * stride));
    return ST_OK;
}

// ------------------------------------------------------------------ batches

// The oldest block as the batcher's rule sees it.
static struct batcher measure(const struct port *port, struct block *b)
{
    struct batcher view = port->rule;

    view.n = (int)atomic_load(&b->done);
    view.oldest_ns = atomic_load(&b->oldest_ns);
    return view;
}

// Give no more rows of the oldest block; called with port->mtx held.
static void block_close(struct port *port, struct block *b)
{
    unsigned n = atomic_fetch_or(&b->reserved, BLOCK_CLOSED);

    b->n_row = n < (unsigned)port->cfg.b_max ? n : (unsigned)port->cfg.b_max;
    if (atomic_load(&port->open) == b)
        atomic_store(&port->open, NULL);
}

// Why the oldest block may leave now, BATCHER_WAIT if it may not. A block that is due takes no more
// rows; it leaves once those being written are complete. Called with port->mtx held.
static enum batcher_why may_leave(struct port *port, int64_t now_ns)
{
    struct block *b = port->first;
    struct batcher view;

    if (!b)
        return BATCHER_WAIT;
    if (b->why == BATCHER_WAIT) {
        int in_flight = atomic_load(&port->in_flight); // before the rows are counted

        view = measure(port, b);
        b->why = batcher_check(&view, now_ns, in_flight);
        if (b->why != BATCHER_WAIT) {
            block_close(port, b);
            b->closed_ns = now_ns;
        }
    }
    return b->why != BATCHER_WAIT && atomic_load(&b->done) == b->n_row ? b->why : BATCHER_WAIT;
}

// Take the oldest block as a BATCH message; called with port->mtx held.
static struct msg *take(struct port *port, enum batcher_why why, int64_t now_ns)
{
    struct block *b = port->first;
    struct msg *m = b->m;
    struct batch_head head = {.seq = ++port->seq,
                              .n = b->n_row,
                              .why = why,
                              .in_flight = (uint32_t)atomic_load(&port->in_flight),
                              .stride = port->view->layout.stride};

    memcpy(m->data, &head, sizeof head);
    m->len = sizeof head + (size_t)head.n * head.stride;
    port->waited_ns = now_ns - atomic_load(&b->oldest_ns);
    port->held_ns = now_ns - b->closed_ns;
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

// When must the receiver look again, though nobody wakes it? Called with port->mtx held.
static int64_t look_again(const struct port *port, int64_t now_ns, int64_t deadline)
{
    struct block *b = port->first;
    struct batcher view;

    if (b && b->why != BATCHER_WAIT)
        return deadline; // a row is being written
    if (b && atomic_load(&b->done) > 0) {
        view = measure(port, b);
        return sooner(deadline, deadline_after(batcher_due_ns(&view, now_ns)));
    }
    if (port->cfg.t_max_ns < T_MAX_WAKES_NS)
        return deadline;
    return sooner(deadline, deadline_after(port->cfg.t_max_ns));
}

// Rows until the receiver wants to be woken; called with port->mtx held.
static int rows_wanted(struct port *port)
{
    int n = port->first ? (int)atomic_load(&port->first->done) : 0;
    int want = port->cfg.b_min - n, left = atomic_load(&port->in_flight);

    if ((n == 0 && port->cfg.t_max_ns < T_MAX_WAKES_NS) || want < 1)
        want = 1;
    return left > 0 && left < want ? left : want;
}

enum status port_recv(struct port *port, struct msg **batch, int64_t wait_ns)
{
    int64_t deadline = deadline_after(wait_ns), until_check = deadline_after(NS_PER_S);

    for (;;) {
        unsigned seen = atomic_load(&port->view->event);
        int64_t now, until;
        enum batcher_why why;
        bool nothing;
        int want;

        harvest(port);
        now = clock_now_ns();
        pthread_mutex_lock(&port->mtx);
        why = may_leave(port, now);
        if (why != BATCHER_WAIT)
            *batch = take(port, why, now);
        nothing = atomic_load(&port->in_flight) == 0 && !port->first;
        until = look_again(port, now, deadline);
        want = rows_wanted(port);
        pthread_mutex_unlock(&port->mtx);
        if (why != BATCHER_WAIT)
            return ST_OK;
        if (atomic_load(&port->woken))
            return ST_CLOSED;
        if (wait_ns == 0 || nothing)
            return ST_AGAIN;
        if (now >= deadline)
            return ST_TIMEOUT;
        if (port->view->done && now >= until_check) {
            TRY(isolate_check(port->pool));
            until_check = now + NS_PER_S;
        }
        if (port->view->done)
            until = sooner(until, now + NS_PER_S);
        if (ask_for(port, want))
            wake_wait(&port->view->event, seen, until);
    }
}

enum status port_wait_busy(struct port *port)
{
    bool busy, woken = false;

    for (;;) {
        unsigned seen = atomic_load(&port->view->event);

        atomic_store(&port->resting, 1); // whoever adds a request looks at this afterwards
        pthread_mutex_lock(&port->mtx);
        busy = atomic_load(&port->in_flight) > 0 || port->first;
        pthread_mutex_unlock(&port->mtx);
        woken = atomic_load(&port->woken) || (atomic_load(&port->draining) && !busy);
        if (busy || woken)
            break;
        wake_wait(&port->view->event, seen, WAIT_NEVER);
    }
    atomic_store(&port->resting, 0);
    return woken ? ST_CLOSED : ST_OK;
}

int64_t port_waited_ns(const struct port *port)
{
    return port->waited_ns;
}

int64_t port_held_ns(const struct port *port)
{
    return port->held_ns;
}

int port_in_flight(struct port *port)
{
    return atomic_load(&port->in_flight);
}

void port_drain(struct port *port)
{
    atomic_store(&port->draining, true);
    nudge(port->view);
}

void port_wake(struct port *port)
{
    atomic_store(&port->woken, true);
    nudge(port->view);
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

// Until every request has its row; nobody receives any more.
static void settle(struct port *port)
{
    while (port->view) {
        unsigned seen = atomic_load(&port->view->event);
        int left;

        harvest(port);
        left = atomic_load(&port->in_flight);
        if (left == 0)
            break;
        if (port->view->done && isolate_check(port->pool) != ST_OK)
            return; // nobody is left who could answer
        if (ask_for(port, left))
            wake_wait(&port->view->event, seen,
                      port->view->done ? deadline_after(NS_PER_S) : WAIT_NEVER);
    }
    while (atomic_load(&port->owed) > 0)
        sched_yield(); // a worker is between its last row and its last look at the port
}

void port_close(struct port *port)
{
    struct port **at;
    int i;

    if (!port)
        return;
    settle(port);
    pthread_mutex_lock(&port->pool->mtx);
    for (i = 0; i < port->n_env; i++)
        port->pool->slots[port->ids[i]].port = NULL;
    for (at = &port->pool->ports; *at && *at != port; at = &(*at)->next)
        ;
    if (*at)
        *at = port->next;
    pthread_mutex_unlock(&port->pool->mtx);
    blocks_free(port->first);
    blocks_free(port->spare);
    mem_free(port->ids);
    mem_free(port->mine);
    if (port->area_bytes == 0)
        mem_free(port->actions);
    pthread_mutex_destroy(&port->mtx);
    mem_free(port);
}
