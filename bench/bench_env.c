// Env steps per second of the env server against the same worlds in a bare loop: the loop's threads
// walk over their share of the worlds and do nothing but draw actions, call mj_step and start
// finished episodes again.
#include "bench/bench.h"

#include "cli/cmd.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "envserver/server.h"
#include "envserver/sim.h"
#include "rollout/envclient.h"

#if mjVERSION_HEADER >= 4000000
#include <mujoco/mjbatch.h>
#endif
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REPS_MAX 64
#define WAYS_MAX 16

struct env_options {
    char tasks[OPT_STR_MAX], ways[OPT_STR_MAX], affinity[OPT_STR_MAX];
    int64_t num_envs, threads, batch_max, batch_timeout_ns, seconds_ns, reps;
    int isolate;
    bool own_worlds;
};

#define AT(field) offsetof(struct env_options, field)

static const struct opt table[] = {
    {"tasks", OPT_STR, AT(tasks), 0, 0, "Ant-v5,Humanoid-v5", "tasks, separated by commas", NULL},
    {"num-envs", OPT_INT, AT(num_envs), 1, SPEC_ENV_MAX, "64", "environments", NULL},
    {"threads", OPT_INT, AT(threads), 1, 256, "2", "threads of the loop and of the server", NULL},
    {"batch-max", OPT_INT, AT(batch_max), 1, BATCHER_MAX, "16", "rows of a batch (B_max)", NULL},
    {"batch-timeout", OPT_TIME, AT(batch_timeout_ns), 0, 3600e9, "2ms", "T_max", NULL},
    {"seconds", OPT_TIME, AT(seconds_ns), 1e8, 600e9, "3s", "length of one repetition", NULL},
    {"reps", OPT_INT, AT(reps), 1, REPS_MAX, "5", "repetitions, interleaved", NULL},
    {"ways", OPT_STR, AT(ways), 0, 0, "pool,inproc,ipc",
     "what is compared with the bare loop: pool (in process, no server), inproc, ipc, tcp; mjbatch "
     "(the same env steps by MuJoCo 4's mjb_apply)",
     NULL},
    {"isolate", OPT_ENUM, AT(isolate), 0, 0, "thread", "what the server's workers are",
     POOL_ISOLATE_CHOICES "|both"},
    {"affinity", OPT_STR, AT(affinity), 0, 0, "none", "processors of the server's workers", NULL},
    {"own-worlds", OPT_BOOL, AT(own_worlds), 0, 1, "false",
     "one world per env in the server, as in the loop", NULL},
    {0},
};

// Env steps per second, and per second of processor time: the second number stays of use on a
// machine that does other things as well, where it does not see that a thread had to wait.
struct rate {
    double wall, cpu;
};

// Processor time of this process and of the pool's worker processes so far, in ns. This is no clock
// for the program, so it is not in common/base/thread.
static int64_t cpu_now_ns(const struct pool *pool, int n_worker)
{
    struct timespec ts;
    clockid_t id;
    int64_t sum;
    int i;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    sum = (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
    for (i = 0; pool && i < n_worker; i++) {
        int pid = pool_worker_pid(pool, i);

        if (pid > 0 && clock_getcpuclockid(pid, &id) == 0 && clock_gettime(id, &ts) == 0)
            sum += (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
    }
    return sum;
}

// ------------------------------------------------------------------ the bare loop

struct loop {
    struct sim *sims;
    int n_env;
    int64_t until_ns;
    int64_t steps[256]; // (n_thread)
};

static void restart(struct sim *sim, int i, uint64_t episode)
{
    struct scene_start start = {1, (uint64_t)i, episode};

    (void)sim_reset(sim, &start);
}

// One env step without observation and transport: is the episode over?
static bool bare_step(struct sim *sim, struct rng *rng, double *info)
{
    struct world *w = &sim->world;
    const struct scene *scene = w->scene;
    const struct scene_common *common = scene->params;
    bool terminated = false, success = false;
    double reward;
    int64_t i;
    int k;

    for (k = 0; k < scene->n_act; k++)
        sim->action[k] = rng_uniform(rng, scene->act_low[k], scene->act_high[k]);
    scene->task->before(scene, w->d, w->scratch);
    mju_copy(w->d->ctrl, sim->action, scene->n_act);
    for (i = 0; i < common->frame_skip; i++)
        mj_step(scene->model, w->d);
    scene->task->after(scene, w->d, sim->action, w->scratch, &reward, &terminated, &success, info);
    return terminated || w->d->time > scene->dt_s * ((double)common->max_episode_steps - 0.5);
}

static void loop_run(void *arg, int i_thread, int n_thread)
{
    struct loop *loop = arg;
    int first = loop->n_env * i_thread / n_thread, last = loop->n_env * (i_thread + 1) / n_thread;
    struct rng rng = rng_make(1, RNG_TEST, (uint64_t)i_thread, 0, 0);
    double info[256];
    int64_t steps = 0;
    int i;

    while (clock_now_ns() < loop->until_ns) {
        for (i = first; i < last; i++) {
            if (bare_step(&loop->sims[i], &rng, info))
                restart(&loop->sims[i], i, (uint64_t)steps);
            steps++;
        }
    }
    loop->steps[i_thread] = steps;
}

static enum status run_bare(const struct env_options *o, const char *task, struct rate *rate)
{
    struct loop loop = {.n_env = (int)o->num_envs};
    struct scene *scene = NULL;
    struct team *team = NULL;
    enum status st = scene_create(&scene, task, "");
    int64_t t0, cpu0, steps = 0;
    int i;

    if (st == ST_OK && scene->n_info > 256)
        st = FAIL(ST_INVAL, "task '%s' has %d info numbers", task, scene->n_info);
    loop.sims = mem_alloc((size_t)loop.n_env, sizeof loop.sims[0]);
    if (!loop.sims)
        st = ST_NOMEM;
    for (i = 0; i < loop.n_env && st == ST_OK; i++) {
        st = sim_init(&loop.sims[i], scene);
        if (st == ST_OK)
            restart(&loop.sims[i], i, 0);
    }
    if (st == ST_OK)
        st = team_create(&team, (int)o->threads);
    if (st == ST_OK) {
        t0 = clock_now_ns();
        cpu0 = cpu_now_ns(NULL, 0);
        loop.until_ns = t0 + o->seconds_ns;
        team_run(team, loop_run, &loop);
        for (i = 0; i < o->threads; i++)
            steps += loop.steps[i];
        rate->wall = (double)steps * 1e9 / (double)(clock_now_ns() - t0);
        rate->cpu = (double)steps * 1e9 / (double)(cpu_now_ns(NULL, 0) - cpu0);
    }
    team_destroy(team);
    for (i = 0; loop.sims && i < loop.n_env; i++)
        sim_fini(&loop.sims[i]);
    mem_free(loop.sims);
    scene_destroy(scene);
    return st;
}

// ------------------------------------------------------------------ MuJoCo's own batches
#if mjVERSION_HEADER >= 4000000

// Whole env steps of all envs in one mjb_apply after the other: the engine's threads, one mjData
// each and the envs as rows, as the pool has it, but with a barrier at the end of each round.
struct engine_batch {
    struct sim *sims; // (n_env) what is not mjData; their own mjData is not used
    struct rng *rng;  // (n_env)
    double *obs;      // (n_env, n_obs)
    int64_t *begun;   // (n_env) episodes
};

static void engine_step(const mjModel *m, mjData *d, int i, void *arg)
{
    struct engine_batch *b = arg;
    struct sim *sim = &b->sims[i];
    const struct scene *scene = sim->world.scene;
    const struct scene_common *common = scene->params;
    mjData *own = sim->world.d;
    struct scene_outcome out;
    float action[SPEC_ACT_MAX];
    double info[256];
    int k;

    (void)m;
    sim->world.d = d;
    memset(d->warning, 0, sizeof d->warning); // those of another env
    for (k = 0; k < scene->n_act; k++)
        action[k] = (float)rng_uniform(&b->rng[i], scene->act_low[k], scene->act_high[k]);
    if (b->begun[i] == 0 || sim_step(sim, action, &out, info) != ROW_ERROR_NONE || out.terminated ||
        d->time > scene->dt_s * ((double)common->max_episode_steps - 0.5))
        restart(sim, i, (uint64_t)b->begun[i]++);
    sim_observe(sim, b->obs + (size_t)i * (size_t)scene->n_obs);
    sim->world.d = own;
}

static enum status engine_drive(const struct env_options *o, const struct scene *scene,
                                struct engine_batch *b, struct rate *rate)
{
    mjBatchConfig cfg = {.nthread = (int)o->threads};
    char text[256] = "";
    mjBatch *batch = mjb_makeBatch(scene->model, (int)o->num_envs, &cfg, text, sizeof text);
    int64_t t0, cpu0, steps = 0;

    if (!batch)
        return FAIL(ST_ENGINE, "mjb_makeBatch: %s", text);
    (void)mjb_apply(batch, NULL, 0, engine_step, b, 1); // the first episodes
    t0 = clock_now_ns();
    cpu0 = cpu_now_ns(NULL, 0);
    for (; clock_now_ns() - t0 < o->seconds_ns; steps += o->num_envs)
        (void)mjb_apply(batch, NULL, 0, engine_step, b, 1);
    rate->wall = (double)steps * 1e9 / (double)(clock_now_ns() - t0);
    rate->cpu = (double)steps * 1e9 / (double)(cpu_now_ns(NULL, 0) - cpu0);
    mjb_deleteBatch(batch);
    return ST_OK;
}

static enum status run_engine(const struct env_options *o, const char *task, struct rate *rate)
{
    size_t n = (size_t)o->num_envs, i;
    struct engine_batch b = {.sims = mem_alloc(n, sizeof b.sims[0]),
                             .rng = mem_alloc(n, sizeof b.rng[0]),
                             .begun = mem_alloc(n, sizeof b.begun[0])};
    struct scene *scene = NULL;
    enum status st = b.sims && b.rng && b.begun ? scene_create(&scene, task, "") : ST_NOMEM;

    if (st == ST_OK && scene->n_info > 256)
        st = FAIL(ST_INVAL, "task '%s' has %d info numbers", task, scene->n_info);
    if (st == ST_OK && !(b.obs = mem_alloc(n * (size_t)scene->n_obs, sizeof b.obs[0])))
        st = ST_NOMEM;
    for (i = 0; i < n && st == ST_OK; i++) {
        b.rng[i] = rng_make(1, RNG_TEST, i, 0, 0);
        st = sim_init(&b.sims[i], scene);
    }
    if (st == ST_OK)
        st = engine_drive(o, scene, &b, rate);
    for (i = 0; b.sims && i < n; i++)
        sim_fini(&b.sims[i]);
    mem_free(b.sims);
    mem_free(b.rng);
    mem_free(b.begun);
    mem_free(b.obs);
    scene_destroy(scene);
    return st;
}

#else

static enum status run_engine(const struct env_options *o, const char *task, struct rate *rate)
{
    (void)o;
    (void)task;
    (void)rate;
    return FAIL(ST_INVAL, "mjbatch: this program was built with MuJoCo %s, which has no mjb_apply",
                mj_versionString());
}

#endif
// ------------------------------------------------------------------ the server

// How rows come and actions go: straight through the pool's port, or through a client of a server.
struct mouth {
    struct pool *pool;
    struct port *port;
    struct server *server;
    struct envclient *client;
    const struct spec *spec;
    int n_env;
    const uint32_t *envs;
    uint8_t *steps; // of the port
};

static void mouth_close(struct mouth *m)
{
    mem_free(m->steps);
    port_close(m->port);
    envclient_destroy(m->client);
    server_destroy(m->server);
    pool_destroy(m->pool);
}

static enum status open_port(struct mouth *m, const struct env_options *o)
{
    TRY(port_open(&m->port, m->pool,
                  &(struct port_config){.autoreset = AUTORESET_SAME_STEP,
                                        .k_max = 1,
                                        .b_max = (int)o->batch_max,
                                        .t_max_ns = o->batch_timeout_ns}));
    m->spec = pool_spec(m->pool);
    m->envs = port_envs(m->port, &m->n_env);
    m->steps = mem_alloc((size_t)m->n_env, step_stride(1, m->spec->n_act));
    return m->steps ? ST_OK : ST_NOMEM;
}

static enum status open_client(struct mouth *m, const struct env_options *o, const char *listen)
{
    TRY(server_create(&m->server, &(struct server_config){.pool = m->pool,
                                                          .listen = listen,
                                                          .b_max = (int)o->batch_max,
                                                          .t_max_ns = o->batch_timeout_ns}));
    TRY(envclient_open(&m->client,
                       &(struct envclient_config){
                           .url = server_url(m->server),
                           .hello = {.autoreset = AUTORESET_SAME_STEP, .k_max = 1, .t_max_ns = -1},
                           .connect_wait_ns = 5 * NS_PER_S}));
    m->spec = &envclient_welcome(m->client)->spec;
    m->envs = envclient_welcome(m->client)->env;
    m->n_env = (int)envclient_welcome(m->client)->n_env;
    return ST_OK;
}

// listen: NULL = no server.
static enum status mouth_open(struct mouth *m, const struct env_options *o, const char *task,
                              const char *listen, enum pool_isolate isolate)
{
    struct pool_config cfg = {.task = task,
                              .kwargs = "",
                              .n_env = (int)o->num_envs,
                              .n_thread = (int)o->threads,
                              .affinity = o->affinity,
                              .worlds = o->own_worlds ? POOL_WORLDS_OWN : POOL_WORLDS_AUTO,
                              .isolate = isolate};

    memset(m, 0, sizeof *m);
    TRY(pool_create(&m->pool, &cfg));
    return listen ? open_client(m, o, listen) : open_port(m, o);
}

static enum status first_episodes(struct mouth *m)
{
    struct reset_row *rows = mem_alloc((size_t)m->n_env, sizeof rows[0]);
    enum status st;
    int i;

    if (!rows)
        return ST_NOMEM;
    for (i = 0; i < m->n_env; i++)
        rows[i] = (struct reset_row){.env = m->envs[i], .seed = 1, .stream = m->envs[i]};
    st = m->port ? port_reset(m->port, rows, m->n_env) : envclient_reset(m->client, rows, m->n_env);
    mem_free(rows);
    return st;
}

// Answer every row of a batch with a random action.
static enum status answer(struct mouth *m, const struct batch_head *head, const uint8_t *rows,
                          struct rng *rng)
{
    size_t stride = step_stride(1, m->spec->n_act);
    struct msg *msg = NULL;
    uint8_t *out = m->steps;
    uint32_t i;
    int k;

    if (m->client)
        TRY(envclient_step_begin(m->client, (int)head->n, &msg, &out));
    for (i = 0; i < head->n; i++) {
        struct step_row *step = (struct step_row *)(out + i * stride);
        float *action = (float *)(step + 1);

        step->env = ((const struct row_head *)(rows + (size_t)i * head->stride))->env;
        step->n_sub = 1;
        for (k = 0; k < m->spec->n_act; k++)
            action[k] = (float)rng_uniform(rng, m->spec->act_low[k], m->spec->act_high[k]);
    }
    return m->client ? envclient_step_send(m->client, msg) : port_step(m->port, out, (int)head->n);
}

static enum status next_batch(struct mouth *m, struct msg **msg, const struct batch_head **head,
                              const uint8_t **rows)
{
    if (m->client)
        return envclient_recv(m->client, msg, head, rows, WAIT_NEVER);
    TRY(port_recv(m->port, msg, WAIT_NEVER));
    return batch_read(*msg, port_layout(m->port), head, rows);
}

static enum status drive(struct mouth *m, const struct env_options *o, struct rate *rate)
{
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    int64_t t0 = clock_now_ns(), cpu0 = cpu_now_ns(m->pool, (int)o->threads), steps = 0;
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *msg;
    enum status st;
    uint32_t i;

    TRY(first_episodes(m));
    while (clock_now_ns() - t0 < o->seconds_ns) {
        TRY(next_batch(m, &msg, &head, &rows));
        for (i = 0; i < head->n; i++)
            steps += ((const struct row_head *)(rows + (size_t)i * head->stride))->n_sub;
        st = answer(m, head, rows, &rng);
        msg_free(msg);
        TRY(st);
    }
    rate->wall = (double)steps * 1e9 / (double)(clock_now_ns() - t0);
    rate->cpu = (double)steps * 1e9 / (double)(cpu_now_ns(m->pool, (int)o->threads) - cpu0);
    return ST_OK;
}

static enum status run_server(const struct env_options *o, const char *task, const char *listen,
                              enum pool_isolate isolate, struct rate *rate)
{
    struct mouth m;
    enum status st = mouth_open(&m, o, task, listen, isolate);

    if (st == ST_OK)
        st = drive(&m, o, rate);
    mouth_close(&m);
    return st;
}

enum status bench_simulation(const char *task, int n_env, int n_thread, int b_max, int64_t t_max_ns,
                             int64_t run_ns, double *rate)
{
    struct env_options o = {.num_envs = n_env,
                            .threads = n_thread,
                            .batch_max = b_max,
                            .batch_timeout_ns = t_max_ns,
                            .seconds_ns = run_ns};
    struct rate r = {0};
    enum status st = run_server(&o, task, "inproc://bench-simulation", POOL_ISOLATE_THREAD, &r);

    *rate = r.wall;
    return st;
}

// ------------------------------------------------------------------ the comparison

struct way {
    char name[48]; // "ipc", "ipc_process"
    char listen[64];
    bool engine; // no pool: mjb_apply
    enum pool_isolate isolate;
    struct rate rate[REPS_MAX];
};

static enum status add_way(struct way *ways, int *n, const char *name, enum pool_isolate isolate)
{
    struct way *w = &ways[*n];

    if (*n == WAYS_MAX)
        return FAIL(ST_INVAL, "more than %d ways", WAYS_MAX);
    snprintf(w->name, sizeof w->name, "%.31s%s", name,
             isolate == POOL_ISOLATE_PROCESS ? "_process" : "");
    w->isolate = isolate;
    if (strcmp(name, "inproc") == 0)
        snprintf(w->listen, sizeof w->listen, "inproc://bench");
    else if (strcmp(name, "ipc") == 0)
        snprintf(w->listen, sizeof w->listen, "ipc:///tmp/simstream-bench-%d.sock", (int)getpid());
    else if (strcmp(name, "tcp") == 0)
        snprintf(w->listen, sizeof w->listen, "tcp://127.0.0.1:0");
    else if (strcmp(name, "mjbatch") == 0)
        w->engine = true;
    else if (strcmp(name, "pool") != 0)
        return FAIL(ST_INVAL, "ways: '%s', expected pool, inproc, ipc, tcp or mjbatch", name);
    (*n)++;
    return ST_OK;
}

static enum status read_ways(const struct env_options *o, struct way *ways, int *n)
{
    char names[OPT_STR_MAX], *name, *rest;

    memcpy(names, o->ways, sizeof names);
    for (*n = 0, name = names; name && *name; name = rest) {
        rest = strchr(name, ',');
        if (rest)
            *rest++ = '\0';
        if (o->isolate != POOL_ISOLATE_PROCESS)
            TRY(add_way(ways, n, name, POOL_ISOLATE_THREAD));
        if (o->isolate != POOL_ISOLATE_THREAD)
            TRY(add_way(ways, n, name, POOL_ISOLATE_PROCESS));
    }
    return ST_OK;
}

// The spread of a/b over the repetitions, by the wall and by processor time.
static void print_ratio(struct json *j, const char *name, const char *what, const struct rate *a,
                        const struct rate *b, int n)
{
    double wall[REPS_MAX], cpu[REPS_MAX];
    char key[96];
    int i;

    for (i = 0; i < n; i++) {
        wall[i] = a[i].wall / b[i].wall;
        cpu[i] = a[i].cpu / b[i].cpu;
    }
    snprintf(key, sizeof key, "%.47s_%.31s", name, what);
    bench_spread(j, key, wall, n);
    snprintf(key, sizeof key, "%.47s_cpu_%.31s", name, what);
    bench_spread(j, key, cpu, n);
}

static void print_rate(struct json *j, const char *name, const struct rate *a, int n)
{
    double wall[REPS_MAX], cpu[REPS_MAX];
    char key[96];
    int i;

    for (i = 0; i < n; i++) {
        wall[i] = a[i].wall;
        cpu[i] = a[i].cpu;
    }
    snprintf(key, sizeof key, "%.47s_steps_per_s", name);
    bench_spread(j, key, wall, n);
    snprintf(key, sizeof key, "%.47s_steps_per_cpu_s", name);
    bench_spread(j, key, cpu, n);
}

static void print(const struct env_options *o, const char *task, const struct rate *bare,
                  const struct way *ways, int n_way)
{
    struct json j;
    int k, n = (int)o->reps;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "env");
    json_str(&j, "task", task);
    json_int(&j, "num_envs", o->num_envs);
    json_int(&j, "threads", o->threads);
    json_int(&j, "batch_max", o->batch_max);
    json_bool(&j, "own_worlds", o->own_worlds);
    json_int(&j, "reps", n);
    print_rate(&j, "bare", bare, n);
    for (k = 0; k < n_way; k++) {
        print_ratio(&j, ways[k].name, "ratio", ways[k].rate, bare, n);
        // a way that stands behind the same one with threads: what do processes cost?
        if (o->isolate > POOL_ISOLATE_PROCESS && ways[k].isolate == POOL_ISOLATE_PROCESS)
            print_ratio(&j, ways[k].name, "to_thread", ways[k].rate, ways[k - 1].rate, n);
        print_rate(&j, ways[k].name, ways[k].rate, n);
    }
    json_close(&j, '}');
    cmd_print_json(&j);
}

// The bare loop is that of a task made of hooks.
static enum status check_task(const char *name)
{
    int member;
    const struct scene_task *task = scene_task_find(name, &member);

    if (task && task->driver)
        return FAIL(ST_INVAL, "%s steps its worlds itself: 'simstream bench libero' is for it",
                    name);
    return ST_OK; // an unknown task is refused where it is made
}

static enum status bench_task(const void *options, const char *task)
{
    const struct env_options *o = options;
    struct rate bare[REPS_MAX] = {0};
    struct way ways[WAYS_MAX] = {0};
    int i, k, n;

    TRY(read_ways(o, ways, &n));
    TRY(check_task(task));
    for (i = 0; i < o->reps; i++) {
        TRY(run_bare(o, task, &bare[i]));
        for (k = 0; k < n; k++) {
            struct way *w = &ways[k];

            if (w->engine)
                TRY(run_engine(o, task, &w->rate[i]));
            else
                TRY(run_server(o, task, w->listen[0] ? w->listen : NULL, w->isolate, &w->rate[i]));
        }
    }
    print(o, task, bare, ways, n);
    return ST_OK;
}

int bench_env(int argc, char **argv)
{
    struct env_options o;
    int code = cmd_begin(table, &o, "bench env [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    return bench_each(o.tasks, bench_task, &o);
}
