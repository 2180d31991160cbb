#include "capi/servers.h"

#include "common/base/batcher.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "envserver/snapshot.h"
#include "rollout/fleet.h"

#include <string.h>

struct seat {     // one env
    bool asked;   // its server has a request of it
    bool gone;    // its server is lost
    bool held;    // a request waits for the server's return
    bool restart; // the next step begins the episode below instead
    bool seeded;
    uint64_t seed, episode; // of the present episode, or the one to begin
    uint64_t ended;         // the episode of the error row that is owed
};

struct servers {
    struct intake *intake;
    struct spec spec;
    struct row_layout layout;
    int n_env, b_max;
    uint32_t *envs; // (n_env)

    pthread_mutex_t mtx;    // the fleet and what follows
    struct fleet *fleet;    // sends while it is held
    struct seat *seats;     // (n_env)
    int *owed, n_owed;      // (n_env) envs that answer with an error, the first n_owed
    int *batch;             // (n_env) scratch
    struct reset_row *rows; // (n_env) scratch
    float *actions;         // (n_env, n_act) scratch
    uint32_t *ids;          // (n_env) scratch
};

static enum status check_same(const struct servers *s, int i)
{
    const struct envclient *c = intake_source(s->intake, i);
    const struct row_layout *a = &s->layout, *b = envclient_layout(c);
    const struct welcome *w = envclient_welcome(c);
    const struct welcome *first = envclient_welcome(intake_source(s->intake, 0));

    if (memcmp(a, b, sizeof *a) != 0 || w->spec.has_success != s->spec.has_success ||
        w->autoreset != first->autoreset)
        return FAIL(ST_INVAL, "env server %s offers other rows of %s than %s", envclient_url(c),
                    s->spec.task, envclient_url(intake_source(s->intake, 0)));
    return ST_OK;
}

static enum status build(struct servers *s)
{
    const struct welcome *w = envclient_welcome(intake_source(s->intake, 0));
    size_t n;
    int i;

    TRY(fleet_create(&s->fleet, s->intake));
    s->spec = w->spec;
    s->layout = *envclient_layout(intake_source(s->intake, 0));
    s->spec.n_env = s->n_env = fleet_n_env(s->fleet);
    for (i = 0; i < intake_n_source(s->intake); i++) {
        int b_max = (int)envclient_welcome(intake_source(s->intake, i))->b_max;

        TRY(check_same(s, i));
        s->b_max = b_max > s->b_max ? b_max : s->b_max;
    }
    n = (size_t)s->n_env;
    s->envs = mem_alloc(n, sizeof s->envs[0]);
    s->seats = mem_alloc(n, sizeof s->seats[0]);
    s->owed = mem_alloc(n, sizeof s->owed[0]);
    s->batch = mem_alloc(n, sizeof s->batch[0]);
    s->rows = mem_alloc(n, sizeof s->rows[0]);
    s->actions = mem_alloc(n * (size_t)s->spec.n_act, sizeof s->actions[0]);
    s->ids = mem_alloc(n, sizeof s->ids[0]);
    if (!s->envs || !s->seats || !s->owed || !s->batch || !s->rows || !s->actions || !s->ids)
        return ST_NOMEM;
    for (i = 0; i < s->n_env; i++)
        s->envs[i] = (uint32_t)i;
    return intake_start(s->intake);
}

enum status servers_open(struct servers **out, const struct intake_config *cfg)
{
    static const atomic_bool never;
    struct servers *s = mem_alloc(1, sizeof *s);
    struct intake_config own = *cfg;
    enum status st;

    if (!s)
        return ST_NOMEM;
    pthread_mutex_init(&s->mtx, NULL);
    own.learner_url = NULL;
    own.rejoin = true;
    own.stop = &never;
    st = intake_create(&s->intake, &own);
    if (st == ST_OK)
        st = build(s);
    if (st != ST_OK) {
        servers_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void servers_close(struct servers *s)
{
    if (!s)
        return;
    fleet_destroy(s->fleet);
    intake_destroy(s->intake);
    mem_free(s->envs);
    mem_free(s->seats);
    mem_free(s->owed);
    mem_free(s->batch);
    mem_free(s->rows);
    mem_free(s->actions);
    mem_free(s->ids);
    pthread_mutex_destroy(&s->mtx);
    mem_free(s);
}

const struct spec *servers_spec(const struct servers *s)
{
    return &s->spec;
}

const struct row_layout *servers_layout(const struct servers *s)
{
    return &s->layout;
}

int servers_autoreset(const struct servers *s)
{
    return (int)envclient_welcome(intake_source(s->intake, 0))->autoreset;
}

int servers_b_max(const struct servers *s)
{
    return s->b_max;
}

const uint32_t *servers_envs(const struct servers *s)
{
    return s->envs;
}

// --- requests; all of this with s->mtx held ------------------------------------------------------

// Ask an env to begin its seat's episode: into the scratch at *n, or held.
static void begin(struct servers *s, int env, int *n)
{
    struct seat *seat = &s->seats[env];

    seat->held = seat->restart = seat->gone;
    seat->asked = !seat->gone;
    if (seat->gone)
        return;
    s->batch[*n] = env;
    s->rows[(*n)++] = (struct reset_row){.seed = seat->seed, .episode = seat->episode};
}

static enum status send_resets(struct servers *s, int n)
{
    return n > 0 ? fleet_reset_some(s->fleet, s->batch, s->rows, n) : ST_OK;
}

static enum status reset(struct servers *s, const struct reset_row *rows, int n)
{
    int i, k = 0;

    for (i = 0; i < n; i++) {
        struct seat *seat = &s->seats[rows[i].env];

        seat->seeded = true;
        seat->seed = rows[i].seed;
        seat->episode = rows[i].episode;
        begin(s, (int)rows[i].env, &k);
    }
    return send_resets(s, k);
}

static enum status step(struct servers *s, const uint8_t *rows, int n)
{
    size_t n_act = (size_t)s->spec.n_act, stride = step_stride(1, s->spec.n_act);
    int i, k;

    for (i = k = 0; i < n; i++) {
        const struct step_row *row = (const struct step_row *)(rows + (size_t)i * stride);

        if (s->seats[row->env].restart)
            begin(s, (int)row->env, &k);
    }
    TRY(send_resets(s, k));
    for (i = k = 0; i < n; i++) {
        const struct step_row *row = (const struct step_row *)(rows + (size_t)i * stride);
        struct seat *seat = &s->seats[row->env];

        if (seat->asked || seat->held)
            continue; // it begins an episode
        seat->asked = true;
        s->batch[k] = (int)row->env;
        memcpy(s->actions + (size_t)k++ * n_act, row + 1, n_act * sizeof s->actions[0]);
    }
    return k > 0 ? fleet_step(s->fleet, s->batch, s->actions, k) : ST_OK;
}

enum status servers_reset(struct servers *s, const struct reset_row *rows, int n)
{
    enum status st;

    pthread_mutex_lock(&s->mtx);
    st = reset(s, rows, n);
    pthread_mutex_unlock(&s->mtx);
    return st;
}

enum status servers_step(struct servers *s, const uint8_t *rows, int n)
{
    enum status st;

    pthread_mutex_lock(&s->mtx);
    st = step(s, rows, n);
    pthread_mutex_unlock(&s->mtx);
    return st;
}

// --- states and fields; all of this with s->mtx held, for a connection must not be replaced by its
// --- successor while it is asked something -------------------------------------------------------

// What one server has to do with a request: its envs' places in the request (s->batch), and the
// server's numbers of them (s->ids).
static enum status part_of(struct servers *s, int source, const uint32_t *env, int n, int *n_part)
{
    int i, at, k = 0;

    for (i = 0; i < n; i++) {
        TRY(fleet_locate(s->fleet, (int)env[i], &at, &s->ids[k]));
        if (at == source)
            s->batch[k++] = i;
    }
    *n_part = k;
    return ST_OK;
}

static enum status name_server(const struct envclient *c)
{
    return error_prefix("env server %s", envclient_url(c));
}

// The answer of one server into that of all; the first one says how long a row is.
static enum status merge(const struct servers *s, const struct state_rows *part,
                         const uint32_t *env, int n, struct msg **m, struct state_rows *out)
{
    size_t bytes = part->stride - sizeof(struct state_row);
    uint8_t *rows;
    int i;

    if (!*m) {
        TRY(state_begin_rows(m, MSG_SAVED, 0, env, n, bytes, &rows));
        *out = (struct state_rows){.n = n, .stride = part->stride, .rows = rows};
    }
    if (part->stride != out->stride)
        return FAIL(ST_PROTO, "rows of %zu bytes, those of another server have %zu", part->stride,
                    out->stride);
    rows = (*m)->data + (out->rows - (*m)->data);
    for (i = 0; i < part->n; i++)
        memcpy(rows + (size_t)s->batch[i] * out->stride + sizeof(struct state_row),
               part->rows + (size_t)i * part->stride + sizeof(struct state_row), bytes);
    return ST_OK;
}

static enum status read_part(struct servers *s, struct envclient *c, const uint32_t *env, int n,
                             int n_part, const char *field, const char *element, struct msg **m,
                             struct state_rows *out)
{
    struct state_rows part;
    struct msg *answer;
    enum status st;

    if (field)
        TRY(envclient_get(c, s->ids, n_part, field, element, &answer, &part));
    else
        TRY(envclient_save(c, s->ids, n_part, &answer, &part));
    st = merge(s, &part, env, n, m, out);
    msg_free(answer);
    return st;
}

static enum status read_all(struct servers *s, const uint32_t *env, int n, const char *field,
                            const char *element, struct msg **m, struct state_rows *out)
{
    int source, k;

    for (source = 0; source < intake_n_source(s->intake); source++) {
        struct envclient *c = intake_source(s->intake, source);

        TRY(part_of(s, source, env, n, &k));
        if (k > 0 && read_part(s, c, env, n, k, field, element, m, out) != ST_OK)
            return name_server(c);
    }
    return ST_OK;
}

enum status servers_read(struct servers *s, const uint32_t *env, int n, const char *field,
                         const char *element, struct msg **m, struct state_rows *out)
{
    enum status st;

    *m = NULL;
    pthread_mutex_lock(&s->mtx);
    st = read_all(s, env, n, field, element, m, out);
    pthread_mutex_unlock(&s->mtx);
    if (st != ST_OK)
        msg_free(*m);
    return st;
}

// The episodes of loaded states are those of their envs now.
static enum status note_loaded(struct servers *s, const uint32_t *env, int n, const uint8_t *states,
                               size_t bytes)
{
    struct snapshot_identity id;
    int i;

    for (i = 0; i < n; i++) {
        struct seat *seat = &s->seats[env[s->batch[i]]];

        TRY(snapshot_identify(states + (size_t)i * bytes, bytes, &id));
        seat->seed = id.seed;
        seat->episode = id.episode;
        seat->seeded = true;
        seat->restart = false;
    }
    return ST_OK;
}

// `part`: (n, bytes) scratch.
static enum status write_all(struct servers *s, const uint32_t *env, int n, const char *field,
                             const char *element, const uint8_t *content, size_t stride,
                             size_t bytes, uint8_t *part)
{
    int source, i, k;
    enum status st;

    for (source = 0; source < intake_n_source(s->intake); source++) {
        struct envclient *c = intake_source(s->intake, source);

        TRY(part_of(s, source, env, n, &k));
        for (i = 0; i < k; i++)
            memcpy(part + (size_t)i * bytes, content + (size_t)s->batch[i] * stride, bytes);
        if (k == 0)
            continue;
        if (field)
            st = envclient_set(c, s->ids, k, field, element, (const double *)(const void *)part,
                               (int)(bytes / sizeof(double)));
        else
            st = envclient_load(c, s->ids, k, part, bytes, bytes);
        if (st == ST_OK && !field)
            st = note_loaded(s, env, k, part, bytes);
        if (st != ST_OK)
            return name_server(c);
    }
    return ST_OK;
}

enum status servers_write(struct servers *s, const uint32_t *env, int n, const char *field,
                          const char *element, const void *content, size_t stride, size_t bytes)
{
    uint8_t *part = mem_alloc((size_t)n, bytes);
    enum status st;

    if (!part)
        return ST_NOMEM;
    pthread_mutex_lock(&s->mtx);
    st = write_all(s, env, n, field, element, content, stride, bytes, part);
    pthread_mutex_unlock(&s->mtx);
    mem_free(part);
    return st;
}

// --- events; all of this with s->mtx held --------------------------------------------------------

static void lose(struct servers *s, int source)
{
    int i, n = fleet_lose(s->fleet, source, s->batch);

    for (i = 0; i < n; i++) {
        struct seat *seat = &s->seats[s->batch[i]];

        if (seat->asked)
            s->owed[s->n_owed++] = s->batch[i];
        seat->asked = false;
        seat->gone = true;
        seat->restart = seat->seeded;
        seat->ended = seat->episode;
        seat->episode += seat->seeded;
    }
}

static enum status come_back(struct servers *s, const struct event *e)
{
    int i, n, k = 0, source = e->source;
    enum status st;

    intake_adopt(s->intake, e);
    st = check_same(s, source);
    if (st == ST_OK)
        st = fleet_return(s->fleet, source, s->batch, &n);
    if (st != ST_OK) {
        log_error("servers", "%s; it is not used again", error_last()->text);
        return ST_OK;
    }
    for (i = 0; i < n; i++) { // begin() overwrites the scratch no further than here
        int env = s->batch[i];

        s->seats[env].gone = false;
        if (s->seats[env].held)
            begin(s, env, &k);
    }
    return send_resets(s, k);
}

// Number the rows as we do; they are ours.
static enum status take_batch(struct servers *s, const struct event *e)
{
    uint8_t *rows = e->m->data + (e->rows - e->m->data);
    uint32_t i;
    int env;

    for (i = 0; i < e->head->n; i++) {
        struct row_head *h = (struct row_head *)(rows + (size_t)i * e->head->stride);
        struct seat *seat;

        TRY(fleet_find(s->fleet, e->source, h->env, &env));
        seat = &s->seats[env];
        if (!seat->asked)
            return FAIL(ST_PROTO, "env server %s sent a row of env %u, which was not asked for",
                        envclient_url(intake_source(s->intake, e->source)), h->env);
        seat->asked = false;
        seat->seed = h->seed;
        seat->episode = h->episode + ((h->flags & ROW_HAS_FINAL) != 0);
        h->env = (uint32_t)env;
    }
    return ST_OK;
}

static enum status handle(struct servers *s, const struct event *e)
{
    switch (e->kind) {
    case EVENT_BATCH:
        return take_batch(s, e);
    case EVENT_SOURCE_LOST:
        lose(s, e->source);
        break;
    case EVENT_SOURCE_BACK:
        return come_back(s, e);
    case EVENT_LEARNER:
    case EVENT_LEARNER_LOST:
        break; // there is none
    }
    return ST_OK;
}

// The error rows that are owed as a batch.
static enum status pay(struct servers *s, struct msg **out)
{
    struct batch_head head = {
        .n = (uint32_t)s->n_owed, .why = BATCHER_DRAINED, .stride = s->layout.stride};
    size_t bytes = (size_t)s->n_owed * s->layout.stride;
    enum status st;
    struct msg *m;
    uint8_t *rows;
    int i;

    TRY(msg_new(&m, MSG_BATCH, sizeof head + bytes));
    st = msg_bytes(m, &head, sizeof head);
    rows = st == ST_OK ? msg_append(m, bytes) : NULL;
    if (!rows) {
        msg_free(m);
        return ST_NOMEM;
    }
    memset(rows, 0, bytes);
    for (i = 0; i < s->n_owed; i++) {
        const struct seat *seat = &s->seats[s->owed[i]];
        struct row_head *h = (struct row_head *)(rows + (size_t)i * s->layout.stride);

        h->env = (uint32_t)s->owed[i];
        h->flags = ROW_ERROR;
        h->error = ROW_ERROR_SERVER;
        h->seed = seat->seed;
        h->episode = seat->ended;
    }
    s->n_owed = 0;
    *out = m;
    return ST_OK;
}

void servers_give_up(struct servers *s)
{
    int i;

    pthread_mutex_lock(&s->mtx);
    for (i = 0; i < s->n_env; i++) {
        struct seat *seat = &s->seats[i];

        if (seat->held) {
            s->owed[s->n_owed++] = i;
            seat->ended = seat->episode;
        }
        seat->held = false;
    }
    pthread_mutex_unlock(&s->mtx);
}

// What there is without waiting for the servers; NULL = nothing.
static enum status take_owed(struct servers *s, struct msg **m)
{
    enum status st = ST_OK;

    *m = NULL;
    pthread_mutex_lock(&s->mtx);
    if (s->n_owed > 0)
        st = pay(s, m);
    pthread_mutex_unlock(&s->mtx);
    return st;
}

enum status servers_recv(struct servers *s, struct msg **m, const struct batch_head **head,
                         const uint8_t **rows, int64_t wait_ns)
{
    int64_t deadline = deadline_after(wait_ns);

    for (;;) {
        int64_t left = wait_ns == 0 || wait_ns == WAIT_NEVER ? wait_ns : deadline - clock_now_ns();
        struct event *e;
        enum status st;

        TRY(take_owed(s, m));
        if (*m)
            break;
        TRY(intake_next(s->intake, &e, left > 0 ? left : 0));
        pthread_mutex_lock(&s->mtx);
        st = handle(s, e);
        pthread_mutex_unlock(&s->mtx);
        if (st == ST_OK && e->kind == EVENT_BATCH) {
            *m = e->m;
            e->m = NULL;
        }
        intake_done(s->intake, e);
        TRY(st);
        if (*m)
            break;
    }
    *head = (const struct batch_head *)(*m)->data;
    *rows = (const uint8_t *)(*head + 1);
    return ST_OK;
}
