// A seat is idle, waits in the queue, or a worker has its request (holder). A worker is a thread
// with one connection. The lock guards the queue, the counts and who has whom; it is held neither
// while a connection is used nor while `done` runs.
#include "evaluation/remote.h"

#include "evaluation/chunk.h"
#include "evaluation/policy_act.h"
#include "evaluation/policy_check.h"
#include "evaluation/policy_gr00t.h"
#include "evaluation/policy_openpi.h"
#include "evaluation/policy_vla_eval.h"

#include "common/base/batcher.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"

#include <stdio.h>
#include <string.h>

#define TRY_NS       (5 * NS_PER_S) // one attempt to connect
#define BACKOFF_NS   NS_PER_S       // before the second attempt; doubles
#define BACKOFF_MAX  (30 * NS_PER_S)
#define LOOK_NS      (100 * NS_PER_MS)
#define TELL_NS      (10 * NS_PER_S)
#define FAILURES_MAX 20 // one after the other without an answer: something is wrong for good

struct remote_task {
    struct remote *r;
    struct policy_view *view;
    const struct policy_task *about; // of the view
};

struct worker {
    struct remote *r;
    pthread_t thread;
    bool started, open;
    atomic_bool stop; // give up what is under way
    struct policy_client client;
    struct policy_input *in; // (batch_max)
    struct policy_chunk *out;
    struct remote_seat **batch;
    int n_batch;
    // guarded by the lock
    struct remote_seat *bound; // the episode that the connection belongs to
    bool release, success;     // the episode before has ended, how; the server is to be told
};

struct remote_seat {
    struct remote_task *task;
    remote_done_fn done;
    void *arg;
    struct chunk *chunk;
    char session[96];
    uint64_t step; // that was asked for
    double *obs;   // copies
    uint8_t *pictures, *scratch;
    float *actions; // (CHUNK_STEPS_MAX, n_act)
    // guarded by the lock
    bool playing, waiting;
    bool begun;  // the server was told of the episode
    int calling; // calls of `done` that have not returned; the next request may be under way
    int64_t asked_ns;
    struct worker *holder; // that has its request, NULL = none
    struct worker *worker; // that its episode belongs to, where the server knows episodes
    struct remote_seat *next;
};

struct remote {
    struct policy_options options;
    const struct policy_ops *ops;
    char key[256];
    struct text about; // what the server says of itself, JSON
    char *described;
    int n_worker, batch_max;
    struct worker *workers;
    atomic_bool telling; // a worker says that it waits for the server; the others wait silently
    pthread_mutex_t mtx;
    pthread_cond_t changed;
    // guarded by the lock
    bool closing, answered;
    struct batcher batcher; // of the queue
    struct remote_seat *head, *tail;
    int n_playing, n_busy, failures_in_a_row;
    struct remote_counts counts;
};

static const struct policy_ops *ops_of(const struct policy_options *o)
{
    static const struct policy_ops *const all[POLICY_PROTOCOLS] = {
        [POLICY_OPENPI] = &openpi_ops,
        [POLICY_ROBOARENA] = &roboarena_ops,
        [POLICY_VLLM_OMNI] = &vllm_omni_ops,
        [POLICY_STARVLA] = &starvla_ops,
        [POLICY_VLA_EVAL] = &vla_eval_ops,
        [POLICY_GR00T] = &gr00t_ops,
        [POLICY_ACT] = &act_ops,
    };

    if (o->protocol == POLICY_GR00T && o->gr00t_shape == GR00T_N15)
        return &gr00t_n15_ops;
    return all[o->protocol];
}

// ------------------------------------------------------------------ connecting

static bool give_up(const struct worker *w)
{
    return w->client.stop && atomic_load(w->client.stop);
}

// One attempt; then the server has to be the same as ever.
static enum status connect_once(struct worker *w)
{
    struct remote *r = w->r;
    struct text about;
    enum status st;

    text_init(&about);
    st = r->ops->open(&w->client, TRY_NS, &about);
    if (st == ST_OK && !text_get(&about))
        st = FAIL(ST_NOMEM, "no memory for what the policy server says of itself");
    if (st == ST_OK && r->about.len == 0)
        text_add(&r->about, "%s", text_get(&about)); // the first of all, nobody else is there
    else if (st == ST_OK && strcmp(text_get(&about), text_get(&r->about)) != 0)
        st = FAIL(ST_INVAL, "%s: another policy than before: it says %.150s, it said %.150s",
                  w->client.url, text_get(&about), text_get(&r->about));
    if (st != ST_OK)
        r->ops->close(&w->client);
    w->open = st == ST_OK;
    text_fini(&about);
    return st;
}

// Says on stderr that the server is not there yet, why, and for how long it is waited for.
struct wait_note {
    struct remote *r;
    int64_t begin_ns, said_ns;
    bool mine; // this worker is the one that says it
};

static void note_waiting(struct wait_note *n, const char *why)
{
    int64_t now = clock_now_ns();

    if (!n->mine)
        n->mine = !atomic_exchange(&n->r->telling, true);
    if (!n->mine || (n->said_ns && now - n->said_ns < TELL_NS))
        return;
    log_warn("eval", "waiting for the policy server, %.0f s of %.0f s (connect_wait): %s",
             (double)(now - n->begin_ns) * 1e-9, (double)n->r->options.connect_wait_ns * 1e-9, why);
    n->said_ns = now;
}

static void note_end(struct wait_note *n, const struct worker *w)
{
    if (!n->mine)
        return;
    if (w->open)
        log_info("eval", "the policy server %s is there after %.1f s", w->client.url,
                 (double)(clock_now_ns() - n->begin_ns) * 1e-9);
    atomic_store(&n->r->telling, false);
}

// Try until there is a connection, or it is certain that there will be none.
static enum status try_to_connect(struct worker *w, struct wait_note *note)
{
    int64_t deadline = deadline_after(w->r->options.connect_wait_ns), pause = BACKOFF_NS, until;

    for (;;) {
        enum status st = connect_once(w);

        if (st != ST_IO && st != ST_TIMEOUT && st != ST_CLOSED)
            return st;
        if (give_up(w))
            return FAIL(ST_CLOSED, "stopped while connecting to %s", w->client.url);
        if (clock_now_ns() >= deadline)
            return FAIL(ST_MISSING, "no policy server after %.0f s (connect_wait): %.300s",
                        (double)w->r->options.connect_wait_ns * 1e-9, error_last()->text);
        note_waiting(note, error_last()->text);
        until = deadline_after(pause);
        pause = pause * 2 < BACKOFF_MAX ? pause * 2 : BACKOFF_MAX;
        while (clock_now_ns() < (until < deadline ? until : deadline) && !give_up(w))
            clock_sleep_ns(LOOK_NS);
    }
}

static enum status connect_worker(struct worker *w)
{
    struct wait_note note = {.r = w->r, .begin_ns = clock_now_ns()};
    enum status st = try_to_connect(w, &note);

    note_end(&note, w);
    return st;
}

// ------------------------------------------------------------------ one request

static void gripper(enum policy_gripper how, float *g)
{
    float unit = 2 * *g - 1;

    switch (how) {
    case GRIPPER_NONE:
        return;
    case GRIPPER_SIGN:
        *g = *g < 0 ? -1 : 1;
        return;
    case GRIPPER_INVERT:
        *g = -*g;
        return;
    case GRIPPER_UNIT:
        *g = unit;
        return;
    case GRIPPER_UNIT_INV:
        *g = unit > 0 ? -1 : unit < 0 ? 1 : 0;
        return;
    case GRIPPER_HALF_INV:
        *g = *g > 0.5F ? -1 : 1;
        return;
    }
}

static enum status keep_chunk(struct remote_seat *s, const struct policy_chunk *c)
{
    enum policy_gripper how = (enum policy_gripper)s->task->r->options.gripper;
    int i;

    for (i = 1; i <= c->n; i++)
        gripper(how, &c->actions[i * c->n_act - 1]);
    return chunk_add(s->chunk, s->step, c->actions, c->n);
}

static void make_input(struct worker *w, int i)
{
    struct remote_seat *s = w->batch[i];

    policy_view_make(s->task->view, s->obs, s->pictures, s->scratch, &w->in[i]);
    w->in[i].prompt = s->task->about->prompt;
    memcpy(w->in[i].session, s->session, sizeof s->session);
    w->out[i] = (struct policy_chunk){.n_act = s->task->about->n_act, .actions = s->actions};
}

// Have a connection: in the middle of a server's episode it has to be the one that there was.
static enum status have_connection(struct worker *w)
{
    if (w->open && w->r->ops->alive(&w->client))
        return ST_OK;
    if (w->open) {
        w->r->ops->close(&w->client);
        w->open = false;
        if (w->r->ops->sessions && w->batch[0]->begun)
            return FAIL(ST_CLOSED, "%s has closed the connection within an episode", w->client.url);
    }
    TRY(connect_worker(w));
    pthread_mutex_lock(&w->r->mtx);
    w->r->counts.reconnects++;
    pthread_mutex_unlock(&w->r->mtx);
    return ST_OK;
}

static enum status infer(struct worker *w, int first, int n)
{
    struct remote *r = w->r;
    struct remote_seat *s = w->batch[first];
    int64_t begin_ns, wait_ns;

    TRY(have_connection(w));
    if (r->ops->sessions && !s->begun)
        TRY(r->ops->begin(&w->client, &w->in[first]));
    pthread_mutex_lock(&r->mtx);
    s->begun = r->ops->sessions;
    wait_ns = r->answered ? r->options.answer_wait_ns : r->options.first_wait_ns;
    r->counts.requests++;
    r->counts.observations += n;
    pthread_mutex_unlock(&r->mtx);
    begin_ns = clock_now_ns();
    TRY(r->ops->infer(&w->client, w->in + first, n, w->out + first, wait_ns));
    pthread_mutex_lock(&r->mtx);
    r->counts.wait_ns += clock_now_ns() - begin_ns;
    r->answered = true;
    r->failures_in_a_row = 0;
    pthread_mutex_unlock(&r->mtx);
    return ST_OK;
}

// After a failure nothing is known of the connection. The caller's error is kept, or made worse.
static enum status after_failure(struct worker *w, enum status st)
{
    struct remote *r = w->r;
    bool hopeless;

    if (st == ST_TIMEOUT)
        st = FAIL(ST_TIMEOUT, "%s has not answered in time", w->client.url);
    r->ops->close(&w->client);
    w->open = false;
    pthread_mutex_lock(&r->mtx);
    r->counts.failures++;
    hopeless = !give_up(w) && ++r->failures_in_a_row >= FAILURES_MAX;
    if (w->bound) {
        w->bound->begun = false;
        w->bound->worker = NULL;
        w->bound = NULL;
    }
    pthread_mutex_unlock(&r->mtx);
    if (hopeless && st != ST_INVAL && st != ST_NOMEM && st != ST_MISSING)
        return FAIL(ST_MISSING,
                    "%d requests to the policy server failed one after the other: %.300s",
                    FAILURES_MAX, error_last()->text);
    return st;
}

static void finish(struct worker *w, int i, enum status st)
{
    struct remote_seat *s = w->batch[i];
    struct remote *r = w->r;

    if (st == ST_OK)
        st = keep_chunk(s, &w->out[i]);
    pthread_mutex_lock(&r->mtx);
    s->holder = NULL;
    s->calling++;
    r->n_busy--;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mtx);
    s->done(s->arg, st);
    pthread_mutex_lock(&r->mtx);
    s->calling--; // only now may the seat go
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mtx);
}

// A batch that the server refuses is asked for one by one: one bad observation fails alone.
static void run(struct worker *w)
{
    struct error err;
    enum status st;
    int i;

    for (i = 0; i < w->n_batch; i++)
        make_input(w, i);
    st = infer(w, 0, w->n_batch);
    if (st != ST_OK)
        st = after_failure(w, st);
    err = *error_last();
    for (i = 0; i < w->n_batch; i++) {
        enum status own = st;

        if (st != ST_OK)
            (void)error_adopt(&err);
        if (st == ST_IO && w->n_batch > 1) {
            own = infer(w, i, 1);
            if (own != ST_OK)
                own = after_failure(w, own);
        }
        finish(w, i, own);
    }
}

// ------------------------------------------------------------------ workers

// May this worker take the seat's observation?
static bool may_take(const struct worker *w, const struct remote_seat *s)
{
    if (!w->r->ops->sessions)
        return true;
    return s->worker == w || (!s->worker && !w->bound);
}

// Take what is due out of the queue, as a batch; the lock is held.
static void pick(struct worker *w)
{
    struct remote *r = w->r;
    struct remote_seat **at = &r->head, *last = NULL;
    int in_flight = r->n_playing - r->n_busy - r->batcher.n;
    enum batcher_why why = batcher_check(&r->batcher, clock_now_ns(), in_flight);

    w->n_batch = 0;
    // a server works on one request at a time: while it does, only a full batch gains anything
    if (why == BATCHER_WAIT || (why != BATCHER_FULL && r->n_busy > 0))
        return;
    while (*at && w->n_batch < r->batch_max) {
        struct remote_seat *s = *at;

        if (!may_take(w, s)) {
            last = s;
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (r->tail == s)
            r->tail = last;
        s->waiting = false;
        s->holder = w;
        if (r->ops->sessions) {
            s->worker = w;
            w->bound = s;
        }
        r->n_busy++;
        w->batch[w->n_batch++] = s;
    }
    if (w->n_batch > 0)
        (void)batcher_take(&r->batcher, r->head ? r->head->asked_ns : 0);
}

// The episode that the connection belonged to has ended: say so; the lock is held.
static void release(struct worker *w)
{
    struct remote *r = w->r;
    bool success = w->success;

    w->release = false;
    pthread_mutex_unlock(&r->mtx);
    if (w->open && r->ops->alive(&w->client) && r->ops->end(&w->client, success) != ST_OK) {
        r->ops->close(&w->client);
        w->open = false;
    }
    pthread_mutex_lock(&r->mtx);
    pthread_cond_broadcast(&r->changed);
}

static void *worker_thread(void *arg)
{
    struct worker *w = arg;
    struct remote *r = w->r;
    int64_t due;

    pthread_mutex_lock(&r->mtx);
    while (!r->closing) {
        if (w->release) {
            release(w);
            continue;
        }
        pick(w);
        if (w->n_batch > 0) {
            pthread_mutex_unlock(&r->mtx);
            run(w);
            pthread_mutex_lock(&r->mtx);
            atomic_store(&w->stop, r->closing);
            continue;
        }
        due = batcher_due_ns(&r->batcher, clock_now_ns());
        (void)cond_wait_until(&r->changed, &r->mtx,
                              due > 0 && due < WAIT_NEVER ? deadline_after(due)
                                                          : deadline_after(LOOK_NS));
    }
    pthread_mutex_unlock(&r->mtx);
    return NULL;
}

static enum status start_worker(struct remote *r, int i, const char *url, const atomic_bool *stop)
{
    struct worker *w = &r->workers[i];
    char name[24];

    w->r = r;
    policy_client_init(&w->client, r->ops, url, &r->options, r->key[0] ? r->key : NULL, stop);
    w->in = mem_alloc((size_t)r->batch_max, sizeof w->in[0]);
    w->out = mem_alloc((size_t)r->batch_max, sizeof w->out[0]);
    w->batch = mem_alloc((size_t)r->batch_max, sizeof(struct remote_seat *));
    if (!w->in || !w->out || !w->batch)
        return ST_NOMEM;
    TRY(connect_worker(w));
    w->client.stop = &w->stop;
    snprintf(name, sizeof name, "policy-%d", i);
    TRY(thread_start(&w->thread, name, worker_thread, w));
    w->started = true;
    return ST_OK;
}

static enum status check_options(const struct policy_options *o)
{
    size_t n;

    if (pack_json_members(NULL, o->extra, &n) != ST_OK)
        return error_prefix("extra");
    if (o->protocol == POLICY_GR00T && !o->actions[0])
        return FAIL(ST_INVAL, "actions: no keys of the reply");
    if (!o->images[0] && !o->states[0])
        return FAIL(ST_INVAL, "the policy would see nothing: neither images nor states are given, "
                              "nor a preset that has them");
    return ST_OK;
}

static enum status describe(struct remote *r)
{
    char options[8192];
    struct text t;
    enum status st;

    TRY(policy_options_settings(&r->options, options, sizeof options));
    text_init(&t);
    text_add(&t, "{\"protocol\": \"%s\", \"says\": %s, \"options\": %s}", r->ops->name,
             text_get(&r->about), options);
    r->described = text_get(&t) ? mem_strdup(text_get(&t)) : NULL;
    st = r->described ? ST_OK : ST_NOMEM;
    text_fini(&t);
    return st;
}

enum status remote_open(struct remote **out, const struct remote_config *cfg)
{
    struct remote *r = mem_alloc(1, sizeof *r);
    char url[OPT_STR_MAX];
    enum status st;
    int i;

    if (!r)
        return ST_NOMEM;
    pthread_mutex_init(&r->mtx, NULL);
    cond_init(&r->changed);
    text_init(&r->about);
    snprintf(r->key, sizeof r->key, "%s", cfg->key ? cfg->key : "");
    st = policy_options_make(&r->options, cfg->address, cfg->preset, cfg->options, url, sizeof url);
    if (st == ST_OK)
        st = check_options(&r->options);
    if (st == ST_OK) {
        r->ops = ops_of(&r->options);
        r->batch_max = r->ops->batches ? (int)r->options.batch_max : 1;
        r->n_worker = cfg->n_conn;
        if (r->ops->batches) { // two, so that one prepares while the other waits
            r->n_worker = (cfg->n_conn + r->batch_max - 1) / r->batch_max;
            r->n_worker = r->n_worker < 2 && cfg->n_conn > 1 ? 2 : r->n_worker;
        }
        r->workers = mem_alloc((size_t)r->n_worker, sizeof r->workers[0]);
        st = r->workers ? batcher_init(&r->batcher, r->batch_max, r->options.batch_wait_ns)
                        : ST_NOMEM;
    }
    for (i = 0; st == ST_OK && i < r->n_worker; i++)
        st = start_worker(r, i, url, cfg->stop);
    if (st == ST_OK)
        st = describe(r);
    if (st != ST_OK) {
        struct error err = *error_last();

        remote_close(r);
        return st == ST_NOMEM ? st : error_adopt(&err);
    }
    *out = r;
    return ST_OK;
}

void remote_close(struct remote *r)
{
    int i;

    if (!r)
        return;
    pthread_mutex_lock(&r->mtx);
    r->closing = true;
    for (i = 0; r->workers && i < r->n_worker; i++)
        atomic_store(&r->workers[i].stop, true);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mtx);
    for (i = 0; r->workers && i < r->n_worker; i++) {
        struct worker *w = &r->workers[i];

        if (w->started)
            pthread_join(w->thread, NULL);
        if (w->r)
            policy_client_fini(&w->client);
        mem_free(w->in);
        mem_free(w->out);
        mem_free(w->batch);
    }
    mem_free(r->workers);
    text_fini(&r->about);
    mem_free(r->described);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mtx);
    mem_free(r);
}

const struct policy_options *remote_options(const struct remote *r)
{
    return &r->options;
}

const char *remote_describe(const struct remote *r)
{
    return r->described;
}

void remote_count(struct remote *r, struct remote_counts *out)
{
    pthread_mutex_lock(&r->mtx);
    *out = r->counts;
    pthread_mutex_unlock(&r->mtx);
}

// ------------------------------------------------------------------ tasks and seats

enum status remote_task_create(struct remote_task **out, struct remote *r, const struct spec *spec)
{
    struct remote_task *t = mem_alloc(1, sizeof *t);
    enum status st;
    int points;

    if (!t)
        return ST_NOMEM;
    t->r = r;
    st = policy_view_create(&t->view, spec, &r->options);
    if (st != ST_OK) {
        mem_free(t);
        return st;
    }
    t->about = policy_view_task(t->view);
    points = policy_check(&r->options, text_get(&r->about), t->view, t->about->n_act);
    if (points > 0 && !r->options.mismatch_ok) {
        remote_task_destroy(t);
        return FAIL(ST_INVAL,
                    "the policy says that it does not fit the task, in %d point%s (see above); "
                    "mismatch_ok goes on",
                    points, points == 1 ? "" : "s");
    }
    *out = t;
    return ST_OK;
}

void remote_task_destroy(struct remote_task *t)
{
    if (!t)
        return;
    policy_view_destroy(t->view);
    mem_free(t);
}

enum status remote_seat_create(struct remote_seat **out, struct remote_task *t, remote_done_fn done,
                               void *arg)
{
    struct remote_seat *s = mem_alloc(1, sizeof *s);
    const struct policy_options *o = &t->r->options;
    struct chunk_config chunk = {.n_act = t->about->n_act,
                                 .execute = (int)o->execute,
                                 .ensemble = (enum chunk_ensemble)o->ensemble,
                                 .a = o->ensemble_weight};
    enum status st = s ? chunk_create(&s->chunk, &chunk) : ST_NOMEM;

    if (st == ST_OK) {
        s->task = t;
        s->done = done;
        s->arg = arg;
        s->obs = mem_alloc(t->about->obs_bytes, 1);
        s->pictures = mem_alloc(t->about->picture_bytes, 1);
        s->scratch = mem_alloc(policy_view_scratch(t->view), 1);
        s->actions = mem_alloc((size_t)CHUNK_STEPS_MAX * (size_t)t->about->n_act, sizeof(float));
        if (!s->obs || !s->pictures || !s->scratch || !s->actions)
            st = ST_NOMEM;
    }
    if (st != ST_OK) {
        remote_seat_destroy(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

// Out of the queue; the lock is held.
static void unqueue(struct remote *r, struct remote_seat *s)
{
    struct remote_seat **at = &r->head, *last = NULL;

    while (*at != s) {
        last = *at;
        at = &last->next;
    }
    *at = s->next;
    if (r->tail == s)
        r->tail = last;
    s->waiting = false;
    r->batcher.n--;
    if (r->head)
        r->batcher.oldest_ns = r->head->asked_ns;
}

void remote_seat_destroy(struct remote_seat *s)
{
    struct remote *r;

    if (!s)
        return;
    if (s->task) {
        r = s->task->r;
        pthread_mutex_lock(&r->mtx);
        if (s->waiting)
            unqueue(r, s);
        if (s->holder)
            atomic_store(&s->holder->stop, true);
        while (s->holder || s->calling)
            (void)cond_wait_until(&r->changed, &r->mtx, WAIT_NEVER);
        pthread_mutex_unlock(&r->mtx);
        remote_end(s, false);
    }
    chunk_destroy(s->chunk);
    mem_free(s->obs);
    mem_free(s->pictures);
    mem_free(s->scratch);
    mem_free(s->actions);
    mem_free(s);
}

void remote_begin(struct remote_seat *s, uint64_t seed, uint64_t episode)
{
    struct remote *r = s->task->r;

    remote_end(s, false);
    snprintf(s->session, sizeof s->session, "%s/%llu/%llu", s->task->about->name,
             (unsigned long long)seed, (unsigned long long)episode);
    chunk_reset(s->chunk);
    pthread_mutex_lock(&r->mtx);
    s->playing = true;
    r->n_playing++;
    pthread_mutex_unlock(&r->mtx);
}

void remote_end(struct remote_seat *s, bool success)
{
    struct remote *r = s->task->r;
    struct worker *w;

    pthread_mutex_lock(&r->mtx);
    w = s->worker;
    if (w && w->bound == s) {
        w->bound = NULL;
        w->release = s->begun;
        w->success = success;
    }
    s->worker = NULL;
    s->begun = false;
    r->n_playing -= s->playing;
    s->playing = false;
    pthread_cond_broadcast(&r->changed); // a batch may have nothing left to wait for
    pthread_mutex_unlock(&r->mtx);
}

bool remote_act(struct remote_seat *s, uint64_t step, float *action)
{
    if (chunk_wanted(s->chunk, step))
        return false;
    chunk_act(s->chunk, step, action);
    return true;
}

void remote_ask(struct remote_seat *s, uint64_t step, const double *obs, const uint8_t *pictures)
{
    const struct policy_task *about = s->task->about;
    struct remote *r = s->task->r;

    s->step = step;
    memcpy(s->obs, obs, about->obs_bytes);
    if (about->picture_bytes)
        memcpy(s->pictures, pictures, about->picture_bytes);
    pthread_mutex_lock(&r->mtx);
    s->next = NULL;
    s->waiting = true;
    s->asked_ns = clock_now_ns();
    if (r->head)
        r->tail->next = s;
    else
        r->head = s;
    r->tail = s;
    batcher_add(&r->batcher, s->asked_ns);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mtx);
}
