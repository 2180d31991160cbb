#include "capi/simstream_c.h"

#include "capi/describe.h"
#include "capi/servers.h"
#include "common/base/mem.h"
#include "envserver/pool.h"
#include "envserver/snapshot.h"
#include "rollout/envclient.h"
#include "scenes/scene.h"

#include <math.h>
#include <string.h>

#define NOT_OURS UINT32_MAX

// What is known of an env here: requests are checked against it before they leave, so that a
// server has no reason to refuse one and the count of requests in flight is exact.
struct place {
    uint64_t seed, episode; // the last ones that were asked for or reported
    bool seeded, started, running, busy;
};

struct ss_vec {
    struct pool *pool; // own envs
    struct port *port;
    struct envclient *client; // a server's envs
    struct servers *servers;  // those of several
    const struct spec *spec;
    const struct row_layout *layout;
    struct describe_settings settings;
    uint32_t *index;          // (spec->n_env) number here of a server's env, or NOT_OURS
    struct reset_row *resets; // (n_env)
    uint8_t *steps;           // (n_env) rows of a STEP, if there is no client
    struct json text;

    pthread_mutex_t mtx;
    struct place *places; // (n_env); guarded by mtx
    int in_flight;        // guarded by mtx
};

int ss_abi(void)
{
    return SS_ABI;
}

const char *ss_version(void)
{
    return SIMSTREAM_VERSION;
}

const char *ss_error_text(void)
{
    return error_last()->text;
}

const char *ss_row_error_name(int error)
{
    return row_error_name((enum row_error)error);
}

const char *ss_task_name(int i)
{
    const struct scene_task *task = i < 0 ? NULL : scene_task_at(i);

    return task ? task->name : NULL;
}

int ss_task_members(int i)
{
    const struct scene_task *task = i < 0 ? NULL : scene_task_at(i);

    return task ? task->n_member : 0;
}

int64_t ss_task_limit(int i, int member)
{
    const struct scene_task *task = i < 0 ? NULL : scene_task_at(i);
    int64_t limit = -1;
    void *params;

    if (!task || member < 0 || (member > 0 && member >= task->n_member))
        return -1;
    if (task->n_member > 0)
        return task->members[member].horizon;
    params = mem_alloc(1, task->params_bytes);
    if (params && scene_read_kwargs(task, "", params) == ST_OK)
        limit = ((const struct scene_common *)params)->max_episode_steps;
    mem_free(params);
    return limit;
}

// --- open and close ------------------------------------------------------------------------------

static struct ss_vec *vec_new(void)
{
    struct ss_vec *v = mem_alloc(1, sizeof *v);

    if (v) {
        pthread_mutex_init(&v->mtx, NULL);
        json_init(&v->text);
    }
    return v;
}

// After the envs are there: tables by env, and the description.
static enum status vec_build(struct ss_vec *v)
{
    int i, n = v->settings.n_env;

    v->index = mem_alloc((size_t)v->spec->n_env, sizeof v->index[0]);
    v->places = mem_alloc((size_t)n, sizeof v->places[0]);
    v->resets = mem_alloc((size_t)n, sizeof v->resets[0]);
    v->steps = mem_alloc((size_t)n, step_stride(1, v->spec->n_act));
    if (!v->index || !v->places || !v->resets || !v->steps)
        return ST_NOMEM;
    for (i = 0; i < v->spec->n_env; i++)
        v->index[i] = NOT_OURS;
    for (i = 0; i < n; i++) {
        uint32_t id = v->settings.env[i];

        if (id >= (uint32_t)v->spec->n_env || v->index[id] != NOT_OURS)
            return FAIL(ST_PROTO, "the server's list of envs is wrong: env %u", id);
        v->index[id] = (uint32_t)i;
    }
    describe(&v->text, v->spec, v->layout, &v->settings);
    return json_text(&v->text) ? ST_OK : FAIL(ST_NOMEM, "no memory for the description");
}

static enum status vec_finish(struct ss_vec *v, enum status st, struct ss_vec **out)
{
    if (st == ST_OK)
        st = vec_build(v);
    if (st != ST_OK)
        ss_close(v);
    else
        *out = v;
    return st;
}

static enum status open_port(struct ss_vec *v, const struct pool_config *pool,
                             const struct port_config *port)
{
    TRY(pool_create(&v->pool, pool));
    TRY(port_open(&v->port, v->pool, port));
    v->spec = pool_spec(v->pool);
    v->layout = port_layout(v->port);
    v->settings.autoreset = (int)port_settings(v->port)->autoreset;
    v->settings.b_max = port_settings(v->port)->b_max;
    v->settings.env = port_envs(v->port, &v->settings.n_env);
    return ST_OK;
}

int ss_open_pool(struct ss_vec **out, const char *task, const char *kwargs, int n_env,
                 const struct ss_workers *workers, int autoreset, int b_max, int64_t t_max_ns)
{
    struct pool_config pool = {.task = task,
                               .kwargs = kwargs,
                               .n_env = n_env,
                               .n_thread = workers->n,
                               .affinity = workers->affinity,
                               .randomize = workers->randomize,
                               .isolate = (enum pool_isolate)workers->isolate,
                               .step_timeout_ns = workers->step_timeout_ns};
    struct port_config port = {
        .autoreset = (enum autoreset)autoreset, .k_max = 1, .b_max = b_max, .t_max_ns = t_max_ns};
    struct ss_vec *v = vec_new();

    return v ? vec_finish(v, open_port(v, &pool, &port), out) : ST_NOMEM;
}

static enum status open_client(struct ss_vec *v, const struct envclient_config *cfg)
{
    const struct welcome *w;

    TRY(envclient_open(&v->client, cfg));
    w = envclient_welcome(v->client);
    v->spec = &w->spec;
    v->layout = envclient_layout(v->client);
    v->settings.autoreset = (int)w->autoreset;
    v->settings.b_max = (int)w->b_max;
    v->settings.n_env = (int)w->n_env;
    v->settings.env = w->env;
    return ST_OK;
}

static enum status open_servers(struct ss_vec *v, const char *urls, int n_env,
                                const struct envclient_config *cfg)
{
    struct intake_config intake = {.env_urls = urls,
                                   .n_env = n_env,
                                   .connect_wait_ns = cfg->connect_wait_ns,
                                   .hello = cfg->hello,
                                   .key_file = cfg->key_file,
                                   .tls_ca = cfg->tls_ca,
                                   .tls_name = cfg->tls_name};

    TRY(servers_open(&v->servers, &intake));
    v->spec = servers_spec(v->servers);
    v->layout = servers_layout(v->servers);
    v->settings.autoreset = servers_autoreset(v->servers);
    v->settings.b_max = servers_b_max(v->servers);
    v->settings.n_env = v->spec->n_env;
    v->settings.env = servers_envs(v->servers);
    return ST_OK;
}

// One server or several.
static enum status open_any(struct ss_vec *v, const char *urls, int n_env,
                            struct envclient_config *cfg)
{
    struct hosts *hosts = mem_alloc(1, sizeof *hosts);
    enum status st = hosts ? hosts_expand(hosts, urls) : ST_NOMEM;

    if (st == ST_OK && hosts->n > 1) {
        st = open_servers(v, urls, n_env, cfg);
    } else if (st == ST_OK) {
        cfg->url = hosts->url[0];
        st = open_client(v, cfg);
    }
    mem_free(hosts);
    return st;
}

int ss_open_remote(struct ss_vec **out, const char *url, int n_env, int autoreset, int b_max,
                   int64_t t_max_ns, int64_t connect_wait_ns, int64_t idle_ns,
                   const struct ss_access *access)
{
    struct envclient_config cfg = {.hello = {.autoreset = (uint32_t)autoreset,
                                             .n_env = (uint32_t)n_env,
                                             .k_max = 1,
                                             .b_max = (uint32_t)b_max,
                                             .t_max_ns = t_max_ns,
                                             .idle_ns = idle_ns},
                                   .connect_wait_ns = connect_wait_ns,
                                   .key_file = access->key_file,
                                   .tls_ca = access->tls_ca,
                                   .tls_name = access->tls_name};
    struct ss_vec *v;

    if (n_env < 0 || b_max < 0 || t_max_ns < -1 || idle_ns < 0)
        return FAIL(ST_INVAL,
                    "%d envs, batches of %d rows, %lld ns for a batch, %lld ns of silence: "
                    "one of these is impossible",
                    n_env, b_max, (long long)t_max_ns, (long long)idle_ns);
    if (access->pictures)
        TRY(hello_want(&cfg.hello, access->pictures));
    v = vec_new();
    return v ? vec_finish(v, open_any(v, url, n_env, &cfg), out) : ST_NOMEM;
}

const char *ss_describe(const struct ss_vec *v)
{
    return json_text(&v->text);
}

void ss_close(struct ss_vec *v)
{
    if (!v)
        return;
    port_close(v->port);
    pool_destroy(v->pool);
    envclient_destroy(v->client);
    servers_close(v->servers);
    mem_free(v->index);
    mem_free(v->places);
    mem_free(v->resets);
    mem_free(v->steps);
    json_fini(&v->text);
    pthread_mutex_destroy(&v->mtx);
    mem_free(v);
}

// --- requests ------------------------------------------------------------------------------------

static uint32_t env_at(const uint32_t *which, int i)
{
    return which ? which[i] : (uint32_t)i;
}

// Give the first n envs of a request back; called with v->mtx held.
static void unclaim(struct ss_vec *v, const uint32_t *which, int n)
{
    int i;

    for (i = 0; i < n; i++)
        v->places[env_at(which, i)].busy = false;
    v->in_flight -= n;
}

static enum status claim_one(struct ss_vec *v, uint32_t env)
{
    if (env >= (uint32_t)v->settings.n_env)
        return FAIL(ST_INVAL, "env %u is outside 0..%d", env, v->settings.n_env - 1);
    if (v->places[env].busy)
        return FAIL(ST_PROTO, "env %u has a request in flight", env);
    v->places[env].busy = true;
    return ST_OK;
}

// Mark all envs of a request busy, or none.
static enum status claim(struct ss_vec *v, const uint32_t *which, int n)
{
    enum status st = ST_OK;
    int i;

    if (n < 1 || n > v->settings.n_env)
        return FAIL(ST_INVAL, "a request for %d envs, expected 1 to %d", n, v->settings.n_env);
    pthread_mutex_lock(&v->mtx);
    for (i = 0; i < n; i++) {
        st = claim_one(v, env_at(which, i));
        if (st != ST_OK)
            break;
        v->in_flight++;
    }
    if (st != ST_OK)
        unclaim(v, which, i);
    pthread_mutex_unlock(&v->mtx);
    return st;
}

static enum status refuse(struct ss_vec *v, const uint32_t *which, int n, enum status st)
{
    pthread_mutex_lock(&v->mtx);
    unclaim(v, which, n);
    pthread_mutex_unlock(&v->mtx);
    return st;
}

// The claimed places belong to the sender, so that the lock is not needed here.
static enum status fill_resets(struct ss_vec *v, const uint32_t *which, const int64_t *seed, int n)
{
    int i;

    for (i = 0; i < n; i++) {
        uint32_t env = env_at(which, i);
        const struct place *p = &v->places[env];

        if (seed[i] < SS_GO_ON)
            return FAIL(ST_INVAL, "env %u: seed %lld is negative", env, (long long)seed[i]);
        if (seed[i] == SS_GO_ON && !p->seeded)
            return FAIL(ST_INVAL, "env %u has no seed yet", env);
        v->resets[i] = (struct reset_row){.env = v->settings.env[env]};
        v->resets[i].seed = seed[i] == SS_GO_ON ? p->seed : (uint64_t)seed[i];
        v->resets[i].episode = seed[i] == SS_GO_ON ? p->episode + 1 : 0;
    }
    return ST_OK;
}

int ss_reset(struct ss_vec *v, const uint32_t *which, const int64_t *seed, int n)
{
    enum status st;
    int i;

    TRY(claim(v, which, n));
    st = fill_resets(v, which, seed, n);
    for (i = 0; i < n && st == ST_OK; i++) {
        struct place *p = &v->places[env_at(which, i)];

        p->seed = v->resets[i].seed;
        p->episode = v->resets[i].episode;
        p->seeded = true;
    }
    if (st == ST_OK)
        st = v->port      ? port_reset(v->port, v->resets, n)
             : v->servers ? servers_reset(v->servers, v->resets, n)
                          : envclient_reset(v->client, v->resets, n);
    return st == ST_OK ? ST_OK : refuse(v, which, n, st);
}

// The sum of 0 * x is NaN if one x is NaN or infinite; the row is looked at again to name it.
static enum status check_actions(const struct ss_vec *v, uint32_t env, const float *action)
{
    int k, n_act = v->spec->n_act;
    float sum = 0;

    for (k = 0; k < n_act; k++)
        sum += 0 * action[k];
    if (sum == 0)
        return ST_OK;
    for (k = 0; isfinite(action[k]); k++)
        ;
    return FAIL(ST_INVAL, "env %u: action [%d] is %s", env, k,
                isnan(action[k]) ? "NaN" : "infinite");
}

static enum status fill_steps(const struct ss_vec *v, const uint32_t *which, const float *actions,
                              int n, uint8_t *rows)
{
    size_t n_act = (size_t)v->spec->n_act, stride = step_stride(1, v->spec->n_act);
    int i;

    for (i = 0; i < n; i++, rows += stride, actions += n_act) {
        uint32_t env = env_at(which, i);
        const struct place *p = &v->places[env];

        if (!p->started || (!p->running && v->settings.autoreset == AUTORESET_DISABLED))
            return FAIL(ST_PROTO, "env %u needs a reset before it can step", env);
        TRY(check_actions(v, env, actions));
        *(struct step_row *)rows = (struct step_row){.env = v->settings.env[env], .n_sub = 1};
        memcpy(rows + sizeof(struct step_row), actions, n_act * sizeof actions[0]);
    }
    return ST_OK;
}

static enum status send_remote(struct ss_vec *v, const uint32_t *which, const float *actions, int n)
{
    enum status st;
    uint8_t *rows;
    struct msg *m;

    TRY(envclient_step_begin(v->client, n, &m, &rows));
    st = fill_steps(v, which, actions, n, rows);
    if (st != ST_OK) {
        msg_free(m);
        return st;
    }
    return envclient_step_send(v->client, m);
}

int ss_send(struct ss_vec *v, const uint32_t *which, const float *actions, int n)
{
    enum status st;

    TRY(claim(v, which, n));
    if (v->client) {
        st = send_remote(v, which, actions, n);
    } else {
        st = fill_steps(v, which, actions, n, v->steps);
        if (st == ST_OK)
            st = v->port ? port_step(v->port, v->steps, n) : servers_step(v->servers, v->steps, n);
    }
    return st == ST_OK ? ST_OK : refuse(v, which, n, st);
}

// --- results -------------------------------------------------------------------------------------

// Note what a row says of its env and number it as the caller does; called with v->mtx held.
static enum status note_row(struct ss_vec *v, struct row_head *row)
{
    uint32_t i = row->env < (uint32_t)v->spec->n_env ? v->index[row->env] : NOT_OURS;
    struct place *p;

    if (i == NOT_OURS || !v->places[i].busy)
        return FAIL(ST_PROTO, "the server sent a row of env %u, which was not asked for", row->env);
    p = &v->places[i];
    p->busy = false;
    p->started = true;
    p->running = !(row->flags & ROW_DONE);
    p->seed = row->seed;
    p->episode = row->episode + ((row->flags & ROW_HAS_FINAL) != 0);
    row->env = i;
    v->in_flight--;
    return ST_OK;
}

// The next BATCH of any kind.
static enum status next_batch(struct ss_vec *v, int64_t wait_ns, struct msg **m, size_t *at, int *n,
                              int *why)
{
    const struct batch_head *head;
    const uint8_t *rows;
    enum status st;

    if (v->client) {
        TRY(envclient_recv(v->client, m, &head, &rows, wait_ns));
    } else if (v->servers) {
        TRY(servers_recv(v->servers, m, &head, &rows, wait_ns));
    } else {
        TRY(port_recv(v->port, m, wait_ns));
        st = batch_read(*m, v->layout, &head, &rows);
        if (st != ST_OK) {
            msg_free(*m);
            return st;
        }
    }
    *at = (size_t)(rows - (*m)->data);
    *n = (int)head->n;
    *why = (int)head->why;
    return ST_OK;
}

int ss_recv(struct ss_vec *v, int64_t wait_ns, struct ss_batch *out)
{
    struct ss_batch b = {.stride = (int32_t)v->layout->stride};
    enum status st = ST_OK;
    struct msg *m;
    size_t at;
    int i;

    if (ss_in_flight(v) == 0)
        return FAIL(ST_PROTO, "no request is in flight, so nothing would ever be received");
    TRY(next_batch(v, wait_ns, &m, &at, &b.n, &b.why));
    b.block = m;
    b.rows = m->data + at;
    pthread_mutex_lock(&v->mtx);
    for (i = 0; i < b.n && st == ST_OK; i++)
        st = note_row(v, (struct row_head *)(b.rows + (size_t)i * (size_t)b.stride));
    b.in_flight = v->in_flight;
    pthread_mutex_unlock(&v->mtx);
    if (st != ST_OK)
        msg_free(m);
    else
        *out = b;
    return st;
}

int ss_gather(struct ss_vec *v, uint8_t *rows, int64_t wait_ns)
{
    int64_t deadline = deadline_after(wait_ns), left;
    struct ss_batch b;
    int i;

    while (ss_in_flight(v) > 0) {
        if (v->servers)
            servers_give_up(v->servers);
        left = wait_ns == WAIT_NEVER ? WAIT_NEVER : deadline - clock_now_ns();
        TRY(ss_recv(v, left > 0 ? left : 0, &b));
        for (i = 0; i < b.n; i++) {
            const uint8_t *row = b.rows + (size_t)i * (size_t)b.stride;
            size_t env = ((const struct row_head *)row)->env;

            memcpy(rows + env * (size_t)b.stride, row, (size_t)b.stride);
        }
        msg_free(b.block);
    }
    return ST_OK;
}

// Row i of the columns.
static void put_row(const struct ss_vec *v, const uint8_t *row, size_t i, struct ss_columns *out)
{
    const struct row_head *head = (const struct row_head *)row;
    const double *info = (const double *)(row + v->layout->info);
    size_t n = (size_t)v->settings.n_env, n_obs = (size_t)v->spec->n_obs;
    bool is_start = head->flags & ROW_FIRST;
    double *to = out->info + i;
    int key, k;

    out->flags |= head->flags;
    out->stepped += !is_start;
    out->terminated[i] = (head->flags & ROW_TERMINATED) != 0;
    out->truncated[i] = (head->flags & (ROW_TRUNCATED | ROW_ERROR)) != 0;
    memcpy(&out->reward[i], row + v->layout->reward, sizeof out->reward[i]);
    if (out->obs)
        memcpy(out->obs + i * n_obs, row + v->layout->obs, n_obs * sizeof out->obs[0]);
    for (key = 0; key < v->spec->n_info_key; key++) {
        bool has = !is_start || v->spec->info[key].on_reset;

        out->mask[(size_t)key * n + i] = has;
        for (k = 0; k < (int)v->spec->info[key].n; k++, to += n, info++)
            *to = has ? *info : 0;
    }
}

int ss_step(struct ss_vec *v, const float *actions, uint8_t *rows, struct ss_columns *out,
            int64_t wait_ns)
{
    int i;

    if (actions)
        TRY(ss_send(v, NULL, actions, v->settings.n_env));
    TRY(ss_gather(v, rows, wait_ns));
    out->flags = out->stepped = 0;
    for (i = 0; i < v->settings.n_env; i++)
        put_row(v, rows + (size_t)i * v->layout->stride, (size_t)i, out);
    return ST_OK;
}

int ss_in_flight(struct ss_vec *v)
{
    int n;

    pthread_mutex_lock(&v->mtx);
    n = v->in_flight;
    pthread_mutex_unlock(&v->mtx);
    return n;
}

int ss_worker_pid(const struct ss_vec *v, int w)
{
    return v->pool ? pool_worker_pid(v->pool, w) : 0;
}

// --- states and models ---------------------------------------------------------------------------

// Claim the envs of a request that has no row, and their ids at the pool or server: free with
// mem_free after `let_go`.
static enum status take_hold(struct ss_vec *v, const uint32_t *which, int n, uint32_t **ids)
{
    int i;

    TRY(claim(v, which, n));
    *ids = mem_alloc((size_t)n, sizeof **ids);
    if (!*ids)
        return refuse(v, which, n, ST_NOMEM);
    for (i = 0; i < n; i++)
        (*ids)[i] = v->settings.env[env_at(which, i)];
    return ST_OK;
}

static enum status let_go(struct ss_vec *v, const uint32_t *which, int n, uint32_t *ids,
                          enum status st)
{
    mem_free(ids);
    return refuse(v, which, n, st);
}

static enum status save(struct ss_vec *v, const uint32_t *ids, int n, struct ss_states *out)
{
    struct state_rows rows;
    struct msg *m;
    uint8_t *first;
    enum status st;

    if (v->client) {
        TRY(envclient_save(v->client, ids, n, &m, &rows));
    } else if (v->servers) {
        TRY(servers_read(v->servers, ids, n, NULL, NULL, &m, &rows));
    } else {
        size_t bytes = port_state_bytes(v->port);

        TRY(state_begin_rows(&m, MSG_SAVED, 0, ids, n, bytes, &first));
        rows.stride = sizeof(struct state_row) + bytes;
        rows.rows = first;
        st = port_save(v->port, ids, n, first + sizeof(struct state_row), rows.stride);
        if (st != ST_OK) {
            msg_free(m);
            return st;
        }
    }
    *out = (struct ss_states){.block = m,
                              .states = rows.rows + sizeof(struct state_row),
                              .stride = (int64_t)rows.stride,
                              .bytes = (int64_t)(rows.stride - sizeof(struct state_row))};
    return ST_OK;
}

int ss_save(struct ss_vec *v, const uint32_t *which, int n, struct ss_states *out)
{
    uint32_t *ids;

    TRY(take_hold(v, which, n, &ids));
    return let_go(v, which, n, ids, save(v, ids, n, out));
}

// What ss_reset and ss_send look at is that of the loaded episodes now.
static enum status note_states(struct ss_vec *v, const uint32_t *which, int n,
                               const struct ss_states *s)
{
    struct snapshot_identity id;
    int i;

    for (i = 0; i < n; i++) {
        struct place *p = &v->places[env_at(which, i)];

        TRY(snapshot_identify(s->states + (size_t)i * (size_t)s->stride, (size_t)s->bytes, &id));
        p->seed = id.seed;
        p->episode = id.episode;
        p->running = id.running;
        p->seeded = p->started = true;
    }
    return ST_OK;
}

static enum status load(struct ss_vec *v, const uint32_t *ids, int n, const struct ss_states *s)
{
    if (s->bytes < 1 || s->stride < s->bytes)
        return FAIL(ST_PROTO, "a state of %lld bytes, %lld bytes from one to the next",
                    (long long)s->bytes, (long long)s->stride);
    if (v->client)
        return envclient_load(v->client, ids, n, s->states, (size_t)s->stride, (size_t)s->bytes);
    if (v->servers)
        return servers_write(v->servers, ids, n, NULL, NULL, s->states, (size_t)s->stride,
                             (size_t)s->bytes);
    return port_load(v->port, ids, n, s->states, (size_t)s->stride, (size_t)s->bytes);
}

int ss_load(struct ss_vec *v, const uint32_t *which, int n, const struct ss_states *states)
{
    enum status st;
    uint32_t *ids;

    TRY(take_hold(v, which, n, &ids));
    st = load(v, ids, n, states);
    if (st == ST_OK)
        st = note_states(v, which, n, states);
    return let_go(v, which, n, ids, st);
}

int ss_set_field(struct ss_vec *v, const uint32_t *which, int n, const char *field,
                 const char *element, const double *x, int k)
{
    size_t bytes = (size_t)k * sizeof x[0];
    enum status st;
    uint32_t *ids;

    TRY(take_hold(v, which, n, &ids));
    st = v->client    ? envclient_set(v->client, ids, n, field, element, x, k)
         : v->servers ? servers_write(v->servers, ids, n, field, element, x, bytes, bytes)
                      : port_set_field(v->port, ids, n, field, element, x, bytes, k);
    return let_go(v, which, n, ids, st);
}

static enum status check_room(const char *field, int n, size_t k, int64_t max)
{
    if ((int64_t)k > max / n)
        return FAIL(ST_INVAL, "field '%s' of %d envs has %zu numbers each, there is room for %lld",
                    field, n, k, (long long)max);
    return ST_OK;
}

static enum status get_remote(struct ss_vec *v, const uint32_t *ids, int n, const char *field,
                              const char *element, double *x, int64_t max, int *k)
{
    struct state_rows rows;
    enum status st;
    size_t bytes;
    struct msg *m;
    int i;

    if (v->client)
        TRY(envclient_get(v->client, ids, n, field, element, &m, &rows));
    else
        TRY(servers_read(v->servers, ids, n, field, element, &m, &rows));
    bytes = rows.stride - sizeof(struct state_row);
    *k = (int)(bytes / sizeof x[0]);
    st = check_room(field, n, (size_t)*k, max);
    for (i = 0; i < n && st == ST_OK; i++)
        memcpy(x + (size_t)i * (size_t)*k,
               rows.rows + (size_t)i * rows.stride + sizeof(struct state_row), bytes);
    msg_free(m);
    return st;
}

static enum status get(struct ss_vec *v, const uint32_t *ids, int n, const char *field,
                       const char *element, double *x, int64_t max, int *k)
{
    if (!v->port)
        return get_remote(v, ids, n, field, element, x, max, k);
    TRY(port_field_size(v->port, field, element, k));
    TRY(check_room(field, n, (size_t)*k, max));
    return port_get_field(v->port, ids, n, field, element, x, (size_t)*k * sizeof x[0], *k);
}

int ss_get_field(struct ss_vec *v, const uint32_t *which, int n, const char *field,
                 const char *element, double *x, int64_t max, int *k)
{
    uint32_t *ids;

    TRY(take_hold(v, which, n, &ids));
    return let_go(v, which, n, ids, get(v, ids, n, field, element, x, max, k));
}

void ss_block_free(void *block)
{
    msg_free(block);
}
