// simstream load - drives one or many env servers with random actions and keeps the books: every
// request is answered exactly once, or its server is known to have been lost. A server that comes
// back is used again.
#include "cli/cmd.h"
#include "cli/signals.h"

#include "common/base/batcher.h"
#include "common/base/histogram.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/progress.h"
#include "common/base/rng.h"
#include "common/base/thread.h"
#include "rollout/fleet.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define LOOK_NS (50 * NS_PER_MS)

struct load_options {
    char env[OPT_STR_MAX], key_file[OPT_STR_MAX], tls_ca[OPT_STR_MAX], tls_name[OPT_STR_MAX];
    int64_t num_envs, seed, connect_ns, answer_ns, think_ns, connects, resets;
    double seconds;
    bool rejoin, json;
};

#define AT(field) offsetof(struct load_options, field)

static const struct opt table[] = {
    {"env", OPT_STR, AT(env), 0, 0, NULL,
     "addresses, as in tcp://node[01-04]:7447,ipc:///run/a.sock or a Slurm host list", NULL},
    {"num-envs", OPT_INT, AT(num_envs), 0, SPEC_ENV_MAX, "0", "environments, 0 = all that are free",
     NULL},
    {"seconds", OPT_REAL, AT(seconds), 0, 1e9, "10", "how long; 0 = until it is stopped", NULL},
    {"seed", OPT_INT, AT(seed), 0, 9e15, "1", "seed of actions and episodes", NULL},
    {"rejoin", OPT_BOOL, AT(rejoin), 0, 1, "true", "use a lost server again when it is back", NULL},
    {"connects", OPT_INT, AT(connects), 0, 1e9, "0",
     "instead: connect, reset one env and leave, so many times; every other time without waiting",
     NULL},
    {"resets", OPT_INT, AT(resets), 0, 1e9, "0",
     "instead: begin so many episodes in each env and play none", NULL},
    {"think", OPT_TIME, AT(think_ns), 0, 60e9, "0s", "pause before each answer to a batch", NULL},
    {"connect-timeout", OPT_TIME, AT(connect_ns), 0, 3600e9, "30s", "how long to try to connect",
     NULL},
    {"answer-timeout", OPT_TIME, AT(answer_ns), 0, 3600e9, "30s",
     "at the end, how long to wait for what is in flight", NULL},
    {"key-file", OPT_STR, AT(key_file), 0, 0, "", "key that the servers ask for", NULL},
    {"tls-ca", OPT_STR, AT(tls_ca), 0, 0, "", "authorities to trust (PEM), for tls+tcp", NULL},
    {"tls-name", OPT_STR, AT(tls_name), 0, 0, "", "name in the certificate, if not the host", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the figures as JSON", NULL},
    {0},
};

enum seat_state { SEAT_GONE, SEAT_ASKED, SEAT_IDLE };

struct seat { // one env
    enum seat_state state;
    uint64_t episode, asked, answered; // requests
    int64_t asked_ns;
};

struct books {
    int64_t asked, answered, lost; // requests; lost with their server
    int64_t strays;                // rows that nothing was asked for: an answer given twice
    int64_t wrong_episode;         // rows of another episode than the one that was asked for
    int64_t steps, episodes, errors, batches[BATCHER_WHYS];
    int64_t servers_lost, servers_back;
};

struct load {
    struct load_options o;
    const atomic_bool *stop;
    struct intake *intake;
    struct fleet *fleet;
    int n_env;
    bool ending;
    struct seat *seats;     // (n_env)
    int *batch;             // (n_env) scratch
    float *actions;         // (n_env, n_act)
    struct reset_row *rows; // (n_env)
    struct rng rng;
    struct books books;
    struct histogram latency;
    int64_t begun_ns;
};

static const int64_t latency_bound[] = {
    10000,     20000,      50000,      100000,     200000,      500000,      1000000,
    2000000,   5000000,    10000000,   20000000,   50000000,    100000000,   200000000,
    500000000, 1000000000, 2000000000, 5000000000, 10000000000, 60000000000,
};

static const char *given(const char *text)
{
    return text[0] ? text : NULL;
}

// ------------------------------------------------------------------ requests out

static void ask(struct load *l, int env)
{
    struct seat *seat = &l->seats[env];

    seat->state = SEAT_ASKED;
    seat->asked++;
    seat->asked_ns = clock_now_ns();
    l->books.asked++;
}

// New episodes in the first n envs of the batch.
static enum status reset(struct load *l, int n)
{
    int i;

    for (i = 0; i < n; i++) {
        int env = l->batch[i];

        l->rows[i] = (struct reset_row){
            .seed = (uint64_t)l->o.seed, .stream = (uint64_t)env, .episode = l->seats[env].episode};
        ask(l, env);
    }
    return n > 0 ? fleet_reset_some(l->fleet, l->batch, l->rows, n) : ST_OK;
}

// Random actions to the first n envs of the batch.
static enum status step(struct load *l, int n)
{
    const struct spec *spec = fleet_spec(l->fleet);
    int i, k;

    for (i = 0; i < n; i++) {
        for (k = 0; k < spec->n_act; k++)
            l->actions[i * spec->n_act + k] =
                (float)rng_uniform(&l->rng, spec->act_low[k], spec->act_high[k]);
        ask(l, l->batch[i]);
    }
    return n > 0 ? fleet_step(l->fleet, l->batch, l->actions, n) : ST_OK;
}

// ------------------------------------------------------------------ events in

// Note one row; true if its env may be asked again.
static bool take_row(struct load *l, int env, const struct row_head *h)
{
    struct seat *seat = &l->seats[env];
    struct books *b = &l->books;

    if (seat->state != SEAT_ASKED) {
        b->strays++;
        return false;
    }
    seat->state = SEAT_IDLE;
    seat->answered++;
    b->answered++;
    histogram_add(&l->latency, clock_now_ns() - seat->asked_ns);
    if (h->episode != seat->episode || h->stream != (uint64_t)env)
        b->wrong_episode++;
    b->steps += h->n_sub;
    if (h->flags & ROW_DONE) {
        seat->episode = h->episode + 1; // the server has begun it
        b->episodes++;
        b->errors += (h->flags & ROW_ERROR) != 0;
    }
    return true;
}

// Begin the next episodes of the first n envs of the batch, in those that have not begun them all.
static enum status reset_next(struct load *l, int n)
{
    int i, left = 0;

    for (i = 0; i < n; i++) {
        struct seat *seat = &l->seats[l->batch[i]];

        if (seat->answered == (uint64_t)l->o.resets)
            continue;
        seat->episode++;
        l->batch[left++] = l->batch[i];
    }
    return reset(l, left);
}

static enum status take_batch(struct load *l, const struct event *e)
{
    uint32_t k;
    int env, n = 0;

    l->books.batches[e->head->why]++;
    for (k = 0; k < e->head->n; k++) {
        const struct row_head *h = (const void *)(e->rows + (size_t)k * e->head->stride);

        TRY(fleet_find(l->fleet, e->source, h->env, &env));
        if (take_row(l, env, h) && !l->ending)
            l->batch[n++] = env;
    }
    if (l->o.think_ns > 0 && n > 0)
        clock_sleep_ns(l->o.think_ns);
    return l->o.resets > 0 ? reset_next(l, n) : step(l, n);
}

static enum status lose(struct load *l, const struct event *e)
{
    int i, n = fleet_lose(l->fleet, e->source, l->batch);

    l->books.servers_lost++;
    for (i = 0; i < n; i++) {
        struct seat *seat = &l->seats[l->batch[i]];

        l->books.lost += seat->state == SEAT_ASKED;
        seat->state = SEAT_GONE;
    }
    log_warn("load", "%s; %d of %d envs are left", e->err.text, fleet_n_left(l->fleet), l->n_env);
    if (!l->o.rejoin && fleet_n_left(l->fleet) == 0)
        return error_adopt(&e->err);
    return ST_OK;
}

static enum status welcome_back(struct load *l, const struct event *e)
{
    int i, n;

    intake_adopt(l->intake, e);
    TRY(fleet_return(l->fleet, e->source, l->batch, &n));
    l->books.servers_back++;
    log_info("load", "env server %s is back; %d of %d envs are there",
             envclient_url(intake_source(l->intake, e->source)), fleet_n_left(l->fleet), l->n_env);
    for (i = 0; i < n; i++) {
        l->seats[l->batch[i]].state = SEAT_IDLE;
        l->seats[l->batch[i]].episode++;
    }
    return l->ending ? ST_OK : reset(l, n);
}

static enum status handle(struct load *l, const struct event *e)
{
    if (e->kind == EVENT_BATCH)
        return take_batch(l, e);
    if (e->kind == EVENT_SOURCE_LOST)
        return lose(l, e);
    if (e->kind == EVENT_SOURCE_BACK)
        return welcome_back(l, e);
    return ST_OK;
}

// ------------------------------------------------------------------ the run

static int in_flight(const struct load *l)
{
    int i, n = 0;

    for (i = 0; i < l->n_env; i++)
        n += l->seats[i].state == SEAT_ASKED;
    return n;
}

static void draw(const struct load *l, bool force)
{
    double s = 1e-9 * (double)(clock_now_ns() - l->begun_ns);

    progress_draw(force, "envs %d of %d  steps/s %.0f  episodes %lld  servers lost %lld, back %lld",
                  fleet_n_left(l->fleet), l->n_env, (double)l->books.steps / s,
                  (long long)l->books.episodes, (long long)l->books.servers_lost,
                  (long long)l->books.servers_back);
}

static enum status work(struct load *l, int64_t until_ns)
{
    while (!atomic_load(l->stop) && clock_now_ns() < until_ns) {
        struct event *e;
        enum status st = intake_next(l->intake, &e, LOOK_NS);

        if (st == ST_OK) {
            st = handle(l, e);
            intake_done(l->intake, e);
        }
        if (st != ST_OK && st != ST_TIMEOUT)
            return st;
        if ((l->ending || l->o.resets > 0) && in_flight(l) == 0)
            return ST_OK;
        draw(l, false);
    }
    return ST_OK;
}

static enum status set_up(struct load *l)
{
    static const atomic_bool never;
    const struct load_options *o = &l->o;
    struct intake_config cfg = {.env_urls = o->env,
                                .n_env = (int)o->num_envs,
                                .connect_wait_ns = o->connect_ns,
                                .rejoin = o->rejoin,
                                .key_file = given(o->key_file),
                                .tls_ca = given(o->tls_ca),
                                .tls_name = given(o->tls_name),
                                .stop = &never}; // what is in flight is waited for after a stop
    int i;

    histogram_init(&l->latency, latency_bound, sizeof latency_bound / sizeof latency_bound[0]);
    l->rng = rng_make((uint64_t)o->seed, RNG_ACTION, 0, 0, 0);
    TRY(intake_create(&l->intake, &cfg));
    TRY(fleet_create(&l->fleet, l->intake));
    l->n_env = fleet_n_env(l->fleet);
    l->seats = mem_alloc((size_t)l->n_env, sizeof l->seats[0]);
    l->batch = mem_alloc((size_t)l->n_env, sizeof l->batch[0]);
    l->rows = mem_alloc((size_t)l->n_env, sizeof l->rows[0]);
    l->actions =
        mem_alloc((size_t)l->n_env * (size_t)fleet_spec(l->fleet)->n_act, sizeof l->actions[0]);
    if (!l->seats || !l->batch || !l->rows || !l->actions)
        return ST_NOMEM;
    TRY(intake_start(l->intake));
    for (i = 0; i < l->n_env; i++)
        l->batch[i] = i;
    l->begun_ns = clock_now_ns();
    return reset(l, l->n_env);
}

static enum status run(struct load *l)
{
    const struct load_options *o = &l->o;
    static const atomic_bool go_on;
    enum status st;

    TRY(set_up(l));
    st = work(l, o->seconds > 0 && o->resets == 0 ? l->begun_ns + (int64_t)(o->seconds * 1e9)
                                                  : WAIT_NEVER);
    TRY(st);
    l->ending = true;
    l->stop = &go_on;
    st = work(l, deadline_after(o->answer_ns));
    draw(l, true);
    progress_end();
    return st;
}

static void tear_down(struct load *l)
{
    fleet_destroy(l->fleet);
    intake_destroy(l->intake);
    mem_free(l->seats);
    mem_free(l->batch);
    mem_free(l->rows);
    mem_free(l->actions);
}

// ------------------------------------------------------------------ connections only

// One client that comes, asks, and leaves, before or after its answer.
static enum status visit(const struct load_options *o, int64_t i)
{
    struct envclient_config cfg = {
        .url = o->env,
        .hello = {.n_env = 1, .k_max = 1, .t_max_ns = -1, .name = "visitor"},
        .connect_wait_ns = o->connect_ns,
        .key_file = given(o->key_file),
        .tls_ca = given(o->tls_ca),
        .tls_name = given(o->tls_name)};
    const struct batch_head *head;
    struct reset_row row = {.seed = (uint64_t)o->seed, .episode = (uint64_t)i};
    const uint8_t *rows;
    struct envclient *c;
    struct msg *m;
    enum status st;

    TRY(envclient_open(&c, &cfg));
    row.env = envclient_welcome(c)->env[0];
    st = envclient_reset(c, &row, 1);
    if (st == ST_OK && i % 2) {
        st = envclient_recv(c, &m, &head, &rows, o->answer_ns);
        if (st == ST_OK)
            msg_free(m);
        else if (st == ST_TIMEOUT)
            st = FAIL(ST_IO, "visit %lld: no answer", (long long)i);
    }
    envclient_destroy(c);
    return st;
}

static enum status visits(const struct load_options *o, const atomic_bool *stop)
{
    int64_t begin = clock_now_ns(), i;
    double seconds;
    struct json j;

    for (i = 0; i < o->connects && !atomic_load(stop); i++)
        TRY(visit(o, i));
    seconds = 1e-9 * (double)(clock_now_ns() - begin);
    if (!o->json) {
        printf("%lld connections in %.2f s\n", (long long)i, seconds);
        return ST_OK;
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "connections", i);
    json_real(&j, "seconds", seconds);
    json_close(&j, '}');
    cmd_print_json(&j);
    return ST_OK;
}

// ------------------------------------------------------------------ the figures

// Every request is accounted for.
static enum status audit(const struct load *l)
{
    const struct books *b = &l->books;
    int64_t open = b->asked - b->answered - b->lost;

    if (b->strays || b->wrong_episode || open != 0)
        return FAIL(ST_PROTO,
                    "of %lld requests %lld were answered and %lld lost with their server: %lld are "
                    "open, %lld rows came unasked, %lld for another episode",
                    (long long)b->asked, (long long)b->answered, (long long)b->lost,
                    (long long)open, (long long)b->strays, (long long)b->wrong_episode);
    return ST_OK;
}

static void print_json(const struct load *l, const struct histogram_view *v, double seconds)
{
    const struct books *b = &l->books;
    struct json j;
    int why;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "task", fleet_spec(l->fleet)->task);
    json_int(&j, "servers", intake_n_source(l->intake));
    json_int(&j, "envs", l->n_env);
    json_real(&j, "seconds", seconds);
    json_int(&j, "asked", b->asked);
    json_int(&j, "answered", b->answered);
    json_int(&j, "lost_with_server", b->lost);
    json_int(&j, "open", b->asked - b->answered - b->lost);
    json_int(&j, "unasked", b->strays);
    json_int(&j, "wrong_episode", b->wrong_episode);
    json_int(&j, "steps", b->steps);
    json_real(&j, "steps_per_s", (double)b->steps / seconds);
    json_int(&j, "episodes", b->episodes);
    json_int(&j, "errors", b->errors);
    json_int(&j, "servers_lost", b->servers_lost);
    json_int(&j, "servers_back", b->servers_back);
    for (why = BATCHER_FULL; why < BATCHER_WHYS; why++) {
        char key[32];

        snprintf(key, sizeof key, "batches_%s", batcher_why_name((enum batcher_why)why));
        json_int(&j, key, b->batches[why]);
    }
    json_real(&j, "latency_p50_s", histogram_quantile(v, 0.5) * 1e-9);
    json_real(&j, "latency_p99_s", histogram_quantile(v, 0.99) * 1e-9);
    json_close(&j, '}');
    cmd_print_json(&j);
}

static void print_figures(const struct load *l)
{
    double seconds = 1e-9 * (double)(clock_now_ns() - l->begun_ns);
    const struct books *b = &l->books;
    struct histogram_view v;

    histogram_read(&l->latency, &v);
    if (l->o.json) {
        print_json(l, &v, seconds);
        return;
    }
    printf("%d envs of %d servers for %.1f s: %.0f steps/s, answers in %.0f us (half), %.0f us "
           "(99 %%)\n",
           l->n_env, intake_n_source(l->intake), seconds, (double)b->steps / seconds,
           histogram_quantile(&v, 0.5) * 1e-3, histogram_quantile(&v, 0.99) * 1e-3);
    printf("%lld requests: %lld answered once, %lld lost with one of %lld servers (%lld came "
           "back)\n",
           (long long)b->asked, (long long)b->answered, (long long)b->lost,
           (long long)b->servers_lost, (long long)b->servers_back);
}

int cmd_load(int argc, char **argv)
{
    static struct load l;
    enum status st;
    int code = cmd_begin(table, &l.o, "load --env=LIST [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    l.stop = signals_install();
    if (l.o.connects > 0) {
        st = visits(&l.o, l.stop);
        return st == ST_OK ? EXIT_DONE : cmd_fail(st);
    }
    st = run(&l);
    if (l.begun_ns)
        print_figures(&l);
    if (st == ST_OK)
        st = audit(&l);
    tear_down(&l);
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
