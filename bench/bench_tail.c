// Requests of very different length: a share of them, or those of a share of the envs, takes many
// times as long (chunks of as many actions). A barrier waits for the slowest of every round;
// dynamic batches leave without them.
//
// What that can win at best follows from the setting, since both ways have to do the same work:
// only the time that workers stand idle at the barrier. A model without any other cost says how
// much it is. Where a thread has many envs, there is hardly any: with 64 envs on 2 threads the
// others keep both busy for as long as the slow one takes. The setting that is measured unless
// told otherwise is that of a node with a processor for every fourth env. So that two processors
// do for it, a step does not compute for that long but waits (--wait=0s: it computes).
#include "bench/bench.h"

#include "cli/cmd.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/thread.h"
#include "envserver/pool.h"
#include "envserver/sim.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPS_MAX    64
#define BATCHES_MAX 200000
#define MODEL_RUN   200000 // requests

enum slow { SLOW_ENVS, SLOW_REQUESTS };

struct tail_options {
    char task[OPT_STR_MAX];
    int64_t num_envs, threads, batch_max, batch_timeout_ns, think_ns, wait_ns, seconds_ns, reps;
    int64_t factor;
    int slow;
    double share;
};

#define AT(field) offsetof(struct tail_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, "HalfCheetah-v5", "the task", NULL},
    {"num-envs", OPT_INT, AT(num_envs), 1, SPEC_ENV_MAX, "64", "environments", NULL},
    {"threads", OPT_INT, AT(threads), 1, 256, "16", "workers", NULL},
    {"factor", OPT_INT, AT(factor), 1, SPEC_CHUNK_MAX, "20", "how much longer a long request is",
     NULL},
    {"slow", OPT_ENUM, AT(slow), 0, 0, "envs",
     "what is long: always the requests of some envs, or some requests of every env",
     "envs|requests"},
    {"share", OPT_REAL, AT(share), 0, 1, "0.05", "share of them (of the envs: one at least)", NULL},
    {"wait", OPT_TIME, AT(wait_ns), 0, 1e9, "1ms",
     "time that each mj_step waits, besides what it computes: a processor for each worker, on a "
     "machine that has fewer",
     NULL},
    {"think", OPT_TIME, AT(think_ns), 0, 1e9, "0s", "time of the policy per batch", NULL},
    {"batch-max", OPT_INT, AT(batch_max), 1, BATCHER_MAX, "16", "rows of a batch (B_max)", NULL},
    {"batch-timeout", OPT_TIME, AT(batch_timeout_ns), 0, 3600e9, "2ms", "T_max", NULL},
    {"seconds", OPT_TIME, AT(seconds_ns), 1e8, 600e9, "2s", "length of one repetition", NULL},
    {"reps", OPT_INT, AT(reps), 1, REPS_MAX, "5", "repetitions, interleaved", NULL},
    {0},
};

// How long the oldest row of a batch waited, and what of it may not have been the server's: the
// receiver was busy with the batch before, or was ready to run and the machine did not let it; and
// after the batch was due, a worker that was writing one of its rows was ready and did not run. A
// machine that stands still as a whole shows in none of these, but in a bystander that is late.
struct wait {
    int64_t ns, end_ns, away_ns, unscheduled_ns, held_ns, workers_ns, still_ns;
};

// A thread that does nothing but sleep a millisecond at a time.
struct bystander {
    pthread_t thread;
    bool started;
    atomic_bool stop;
    atomic_llong since_ns,
        late_ns; // begin of its present sleep; the latest end since the last look
};

// The pool's workers as the kernel counts the time for which they were ready and did not run.
struct watch {
    int fd[256], n;
    int64_t seen_ns[256];
};

struct run {
    const struct tail_options *o;
    struct pool *pool;
    struct port *port;
    uint8_t *steps;
    struct rng rng;
    struct watch watch;
    struct bystander *bystander;
    int64_t requests, actions;
    struct wait *waits; // (BATCHES_MAX)
    struct wait *parts; // (BATCHES_MAX) what was measured in the call that received the batch
    int n_wait;
    int n_before; // those of earlier repetitions
};

// Time of one mj_step, for the engine's hook, which has no argument of ours.
static int64_t step_wait_ns;

static void wait_a_step(const mjModel *m, mjData *d)
{
    (void)m;
    (void)d;
    clock_sleep_ns(step_wait_ns);
}

// How long a thread has been ready to run and did not, ns; 0 where the kernel does not say.
static int64_t unscheduled_ns(int fd)
{
    char text[128];
    ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, 0);
    long long ran, waited;

    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : 0;
}

static int64_t mine_unscheduled_ns(void)
{
    static int fd = -2;

    if (fd == -2)
        fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    return unscheduled_ns(fd);
}

static void watch_open(struct watch *w)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *e;
    char path[288], name[16];
    int fd;

    while (dir && (e = readdir(dir)) != NULL && w->n < 256) {
        memset(name, 0, sizeof name);
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, name, sizeof name - 1) < 0 || strcmp(name, "worker\n") != 0) {
            close(fd);
            continue;
        }
        close(fd);
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        w->fd[w->n++] = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (dir)
        closedir(dir);
}

static void watch_close(struct watch *w)
{
    while (w->n > 0)
        close(w->fd[--w->n]);
}

// The longest time since the last look for which a worker was ready and did not run.
static int64_t watch_look(struct watch *w)
{
    int64_t longest = 0;
    int i;

    for (i = 0; i < w->n; i++) {
        int64_t now = unscheduled_ns(w->fd[i]);

        longest = now - w->seen_ns[i] > longest ? now - w->seen_ns[i] : longest;
        w->seen_ns[i] = now;
    }
    return longest;
}

static void *stand_by(void *arg)
{
    struct bystander *b = arg;

    while (!atomic_load(&b->stop)) {
        long long since = clock_now_ns(), late, seen = atomic_load(&b->late_ns);

        atomic_store(&b->since_ns, since);
        clock_sleep_ns(NS_PER_MS);
        late = clock_now_ns() - since - NS_PER_MS;
        while (late > seen && !atomic_compare_exchange_weak(&b->late_ns, &seen, late))
            ;
    }
    return NULL;
}

// How late the bystander was at most since the last look, or is now.
static int64_t bystander_look(struct bystander *b)
{
    int64_t now = clock_now_ns() - atomic_load(&b->since_ns) - NS_PER_MS;
    int64_t late = atomic_exchange(&b->late_ns, 0);

    return now > late ? now : late;
}

// Is the next request of this env a long one?
static bool is_slow(const struct tail_options *o, struct rng *rng, uint32_t env)
{
    int n = (int)(o->share * (double)o->num_envs);

    if (o->slow == SLOW_ENVS)
        return o->share > 0 && env < (uint32_t)(n > 0 ? n : 1);
    return rng_unit(rng) < o->share;
}

// ------------------------------------------------------------------ the model

static int earliest(const double *until, int n)
{
    int w, first = 0;

    for (w = 1; w < n; w++)
        if (until[w] < until[first])
            first = w;
    return first;
}

// Requests in the time of a short one: workers take them in the order in which they were made, and
// nothing else costs time. With the barrier all envs ask again when the last one was answered, else
// each at once.
static double model(const struct tail_options *o, bool barrier)
{
    int n_worker = (int)(o->threads < o->num_envs ? o->threads : o->num_envs), w, i;
    int queue[SPEC_ENV_MAX], at[256] = {0}, first = 0, n_queue = (int)o->num_envs;
    struct rng rng = rng_make(2, RNG_TEST, 0, 0, 0);
    double until[256] = {0}, end = 0;

    for (i = 0; i < n_queue; i++)
        queue[i] = i;
    for (w = 0; w < n_worker; w++)
        at[w] = -1;
    for (i = 0; i < MODEL_RUN; i++) {
        if (barrier && i % o->num_envs == 0)
            for (w = 0; w < n_worker; w++)
                until[w] = end;
        w = earliest(until, n_worker);
        if (at[w] >= 0) // its env asks again
            queue[(first + n_queue++) % o->num_envs] = at[w];
        at[w] = queue[first];
        first = (int)((first + 1) % o->num_envs);
        n_queue--;
        until[w] += is_slow(o, &rng, (uint32_t)at[w]) ? (double)o->factor : 1;
        end = until[w] > end ? until[w] : end;
    }
    return MODEL_RUN / (barrier ? end : until[earliest(until, n_worker)]);
}

// ------------------------------------------------------------------ the pool

static enum status first_episodes(struct run *r)
{
    struct reset_row *rows;
    const uint32_t *ids;
    enum status st;
    int i, n;

    ids = port_envs(r->port, &n);
    rows = mem_alloc((size_t)n, sizeof rows[0]);
    if (!rows)
        return ST_NOMEM;
    for (i = 0; i < n; i++)
        rows[i] = (struct reset_row){.env = ids[i], .seed = 1, .stream = ids[i]};
    st = port_reset(r->port, rows, n);
    mem_free(rows);
    return st;
}

static enum status answer(struct run *r, const struct batch_head *head, const uint8_t *rows)
{
    const struct spec *spec = pool_spec(r->pool);
    size_t stride = step_stride((int)r->o->factor, spec->n_act);
    uint32_t i, k;

    for (i = 0; i < head->n; i++) {
        const struct row_head *row = (const void *)(rows + (size_t)i * head->stride);
        struct step_row *step = (struct step_row *)(r->steps + i * stride);
        float *action = (float *)(step + 1);

        r->requests++;
        r->actions += row->n_sub;
        step->env = row->env;
        step->n_sub = is_slow(r->o, &r->rng, row->env) ? (uint32_t)r->o->factor : 1;
        for (k = 0; k < step->n_sub * (uint32_t)spec->n_act; k++)
            action[k] = (float)rng_uniform(&r->rng, -1, 1);
    }
    return port_step(r->port, r->steps, (int)head->n);
}

// What kept the receiver from one batch has kept it from the next as well, if that has waited since
// before the first was received.
static void note(struct run *r, const struct wait *w)
{
    struct wait all = *w;
    int i;

    if (r->n_wait == BATCHES_MAX)
        return;
    for (i = r->n_wait - 1; i >= r->n_before && r->waits[i].end_ns > w->end_ns - w->ns; i--) {
        const struct wait *before = &r->parts[i];

        all.away_ns += before->away_ns;
        all.unscheduled_ns += before->unscheduled_ns;
        all.still_ns = before->still_ns > all.still_ns ? before->still_ns : all.still_ns;
    }
    r->parts[r->n_wait] = *w;
    r->waits[r->n_wait++] = all;
}

static enum status drive(struct run *r, double *rate)
{
    int64_t t0 = clock_now_ns(), back = t0;
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    enum status st;

    TRY(first_episodes(r));
    r->n_before = r->n_wait;
    (void)watch_look(&r->watch);
    (void)bystander_look(r->bystander);
    while (clock_now_ns() - t0 < r->o->seconds_ns) {
        int64_t asked = clock_now_ns(), unscheduled = mine_unscheduled_ns();

        TRY(port_recv(r->port, &m, WAIT_NEVER));
        note(r, &(struct wait){.ns = port_waited_ns(r->port),
                               .end_ns = clock_now_ns(),
                               .away_ns = asked - back,
                               .unscheduled_ns = mine_unscheduled_ns() - unscheduled,
                               .held_ns = port_held_ns(r->port),
                               .workers_ns = watch_look(&r->watch),
                               .still_ns = bystander_look(r->bystander)});
        back = clock_now_ns();
        st = batch_read(m, port_layout(r->port), &head, &rows);
        clock_sleep_ns(r->o->think_ns);
        if (st == ST_OK)
            st = answer(r, head, rows);
        msg_free(m);
        TRY(st);
    }
    *rate = (double)r->requests * 1e9 / (double)(clock_now_ns() - t0);
    return ST_OK;
}

static enum status run_once(struct run *r, bool barrier, double *rate)
{
    const struct tail_options *o = r->o;
    struct port_config pc = {.autoreset = AUTORESET_SAME_STEP,
                             .k_max = (int)o->factor,
                             .b_max = barrier ? (int)o->num_envs : (int)o->batch_max,
                             .t_max_ns = barrier ? 3600 * NS_PER_S : o->batch_timeout_ns};
    enum status st;

    r->rng = rng_make(1, RNG_TEST, 0, 0, 0);
    r->requests = r->actions = 0;
    st = pool_create(&r->pool, &(struct pool_config){.task = o->task,
                                                     .kwargs = "",
                                                     .n_env = (int)o->num_envs,
                                                     .n_thread = (int)o->threads});
    if (st == ST_OK)
        st = port_open(&r->port, r->pool, &pc);
    if (st == ST_OK) {
        r->steps =
            mem_alloc((size_t)o->num_envs, step_stride((int)o->factor, pool_spec(r->pool)->n_act));
        watch_open(&r->watch);
        st = r->steps ? drive(r, rate) : ST_NOMEM;
        watch_close(&r->watch);
    }
    mem_free(r->steps);
    port_close(r->port);
    pool_destroy(r->pool);
    r->steps = NULL;
    r->port = NULL;
    r->pool = NULL;
    return st;
}

static int by_length(const void *a, const void *b)
{
    int64_t x = ((const struct wait *)a)->ns, y = ((const struct wait *)b)->ns;

    return (x > y) - (x < y);
}

// Quantiles and a histogram of the waits of the oldest rows, in milliseconds.
static void put_waits(struct json *j, const char *key, struct run *r)
{
    static const double bounds_ms[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50};
    static const double at[] = {0.5, 0.9, 0.99, 1};
    static const char *const names[] = {"p50_ms", "p90_ms", "p99_ms", "max_ms"};
    char name[32];
    size_t i;
    int k = 0, before;

    if (r->n_wait == 0)
        return;
    qsort(r->waits, (size_t)r->n_wait, sizeof r->waits[0], by_length);
    json_open(j, key, '{');
    json_int(j, "batches", r->n_wait);
    for (i = 0; i < sizeof at / sizeof at[0]; i++)
        json_real(j, names[i], (double)r->waits[(int)(at[i] * (r->n_wait - 1))].ns / 1e6);
    for (i = 0; i < sizeof bounds_ms / sizeof bounds_ms[0]; i++) {
        for (before = k; k < r->n_wait && (double)r->waits[k].ns <= bounds_ms[i] * 1e6; k++)
            ;
        snprintf(name, sizeof name, "to_%g_ms", bounds_ms[i]);
        json_int(j, name, k - before);
    }
    json_int(j, "above", r->n_wait - k);
    json_close(j, '}');
}

static int64_t above_zero(int64_t ns)
{
    return ns > 0 ? ns : 0;
}

// Of a wait beyond T_max what nothing outside explains: until the batch was closed, the receiver
// was neither busy nor kept from running, and after that no worker was.
static int64_t unexplained_ns(const struct wait *w, int64_t t_max_ns)
{
    int64_t closing = above_zero(w->ns - t_max_ns - w->held_ns);
    int64_t stopped = w->unscheduled_ns > w->still_ns ? w->unscheduled_ns : w->still_ns;
    int64_t left = above_zero(stopped - above_zero(closing - w->away_ns)); // not used up yet

    return above_zero(closing - w->away_ns - stopped) +
           above_zero(w->held_ns - (left > w->workers_ns ? left : w->workers_ns));
}

static void put_parts(struct json *j, const char *key, const struct wait *w, int64_t t_max_ns)
{
    json_open(j, key, '{');
    json_real(j, "beyond_batch_timeout_ms", (double)above_zero(w->ns - t_max_ns) / 1e6);
    json_real(j, "until_closed_ms", (double)above_zero(w->ns - t_max_ns - w->held_ns) / 1e6);
    json_real(j, "receiver_busy_ms", (double)w->away_ns / 1e6);
    json_real(j, "receiver_not_run_ms", (double)w->unscheduled_ns / 1e6);
    json_real(j, "until_written_ms", (double)w->held_ns / 1e6);
    json_real(j, "worker_not_run_ms", (double)w->workers_ns / 1e6);
    json_real(j, "bystander_late_ms", (double)w->still_ns / 1e6);
    json_real(j, "unexplained_ms", (double)unexplained_ns(w, t_max_ns) / 1e6);
    json_close(j, '}');
}

// Waits beyond T_max, in their parts: the longest, and the one of which most is the server's.
static void put_late(struct json *j, const struct run *r)
{
    int64_t t_max = r->o->batch_timeout_ns;
    const struct wait *worst = r->waits;
    int i;

    if (r->n_wait == 0)
        return;
    for (i = 1; i < r->n_wait; i++)
        if (unexplained_ns(&r->waits[i], t_max) > unexplained_ns(worst, t_max))
            worst = &r->waits[i];
    put_parts(j, "latest", &r->waits[r->n_wait - 1], t_max); // they are sorted
    put_parts(j, "latest_by_the_server", worst, t_max);
}

static void print(struct run *barrier, struct run *dynamic, double rate[2][REPS_MAX])
{
    const struct tail_options *o = barrier->o;
    double ratio[REPS_MAX];
    struct json j;
    int i;

    for (i = 0; i < o->reps; i++)
        ratio[i] = rate[1][i] / rate[0][i];
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "tail");
    json_str(&j, "task", o->task);
    json_int(&j, "num_envs", o->num_envs);
    json_int(&j, "threads", o->threads);
    json_int(&j, "factor", o->factor);
    json_str(&j, "slow", o->slow == SLOW_ENVS ? "envs" : "requests");
    json_real(&j, "share", o->share);
    json_real(&j, "wait_ms", (double)o->wait_ns / 1e6);
    json_real(&j, "think_ms", (double)o->think_ns / 1e6);
    json_int(&j, "batch_max", o->batch_max);
    json_real(&j, "batch_timeout_ms", (double)o->batch_timeout_ns / 1e6);
    json_int(&j, "reps", o->reps);
    bench_spread(&j, "dynamic_ratio", ratio, (int)o->reps);
    json_real(&j, "ratio_of_the_model", model(o, false) / model(o, true));
    bench_spread(&j, "barrier_requests_per_s", rate[0], (int)o->reps);
    bench_spread(&j, "dynamic_requests_per_s", rate[1], (int)o->reps);
    put_waits(&j, "barrier_oldest_wait", barrier);
    put_waits(&j, "dynamic_oldest_wait", dynamic);
    put_late(&j, dynamic);
    json_close(&j, '}');
    cmd_print_json(&j);
}

int bench_tail(int argc, char **argv)
{
    struct tail_options o;
    struct bystander bystander = {.stop = false};
    struct run runs[2] = {{.o = &o, .bystander = &bystander}, {.o = &o, .bystander = &bystander}};
    double rate[2][REPS_MAX];
    enum status st = ST_OK;
    int i, k, code = cmd_begin(table, &o, "bench tail [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    step_wait_ns = o.wait_ns;
    if (o.wait_ns > 0)
        mjcb_control = wait_a_step;
    for (k = 0; k < 2; k++) {
        runs[k].waits = mem_alloc(BATCHES_MAX, sizeof runs[k].waits[0]);
        runs[k].parts = mem_alloc(BATCHES_MAX, sizeof runs[k].parts[0]);
        if (!runs[k].waits || !runs[k].parts)
            st = ST_NOMEM;
    }
    if (st == ST_OK)
        st = thread_start(&bystander.thread, "bystander", stand_by, &bystander);
    bystander.started = st == ST_OK;
    for (i = 0; i < o.reps && st == ST_OK; i++)
        for (k = 0; k < 2 && st == ST_OK; k++)
            st = run_once(&runs[k], k == 0, &rate[k][i]);
    if (st == ST_OK)
        print(&runs[0], &runs[1], rate);
    atomic_store(&bystander.stop, true);
    if (bystander.started)
        pthread_join(bystander.thread, NULL);
    mjcb_control = NULL;
    mem_free(runs[0].waits);
    mem_free(runs[1].waits);
    mem_free(runs[0].parts);
    mem_free(runs[1].parts);
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
