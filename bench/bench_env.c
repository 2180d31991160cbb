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

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define REPS_MAX 64

struct env_options {
    char tasks[OPT_STR_MAX];
    int64_t num_envs, threads, batch_max, batch_timeout_ns, seconds_ns, reps;
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
    {0},
};

// ------------------------------------------------------------------ the bare loop

struct loop {
    struct sim *sims;
    int n_env;
    int64_t until_ns;
    int64_t steps[256]; // (n_thread)
};

static void restart(struct sim *sim, int i, uint64_t episode)
{
    struct rng rng = rng_make(1, RNG_RESET, (uint64_t)i, episode, 0);

    (void)sim_reset(sim, &rng);
}

// One env step without observation and transport: is the episode over?
static bool bare_step(struct sim *sim, struct rng *rng, double *info)
{
    const struct scene *scene = sim->scene;
    const struct scene_common *common = scene->params;
    bool terminated = false, success = false;
    double reward;
    int64_t i;
    int k;

    for (k = 0; k < scene->n_act; k++)
        sim->action[k] = rng_uniform(rng, scene->act_low[k], scene->act_high[k]);
    scene->task->before(scene, sim->d, sim->scratch);
    mju_copy(sim->d->ctrl, sim->action, scene->n_act);
    for (i = 0; i < common->frame_skip; i++)
        mj_step(scene->model, sim->d);
    scene->task->after(scene, sim->d, sim->action, sim->scratch, &reward, &terminated, &success,
                       info);
    return terminated || sim->d->time > scene->dt_s * ((double)common->max_episode_steps - 0.5);
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

static enum status run_bare(const struct env_options *o, const char *task, double *rate)
{
    struct loop loop = {.n_env = (int)o->num_envs};
    struct scene *scene = NULL;
    struct team *team = NULL;
    enum status st = scene_create(&scene, task, "");
    int64_t t0, steps = 0;
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
        loop.until_ns = t0 + o->seconds_ns;
        team_run(team, loop_run, &loop);
        for (i = 0; i < o->threads; i++)
            steps += loop.steps[i];
        *rate = (double)steps * 1e9 / (double)(clock_now_ns() - t0);
    }
    team_destroy(team);
    for (i = 0; loop.sims && i < loop.n_env; i++)
        sim_fini(&loop.sims[i]);
    mem_free(loop.sims);
    scene_destroy(scene);
    return st;
}

// ------------------------------------------------------------------ the server

static enum status first_episodes(struct envclient *c)
{
    const struct welcome *w = envclient_welcome(c);
    struct reset_row *rows = mem_alloc(w->n_env, sizeof rows[0]);
    enum status st;
    uint32_t i;

    if (!rows)
        return ST_NOMEM;
    for (i = 0; i < w->n_env; i++)
        rows[i] = (struct reset_row){.env = w->env[i], .seed = 1, .stream = w->env[i]};
    st = envclient_reset(c, rows, (int)w->n_env);
    mem_free(rows);
    return st;
}

// Answer every row of a batch with a random action.
static enum status answer(struct envclient *c, const struct batch_head *head, const uint8_t *rows,
                          struct rng *rng)
{
    const struct welcome *w = envclient_welcome(c);
    size_t stride = step_stride((int)w->k_max, w->spec.n_act);
    struct msg *m;
    uint8_t *out;
    uint32_t i;
    int k;

    TRY(envclient_step_begin(c, (int)head->n, &m, &out));
    for (i = 0; i < head->n; i++) {
        struct step_row *step = (struct step_row *)(out + i * stride);
        float *action = (float *)(step + 1);

        step->env = ((const struct row_head *)(rows + (size_t)i * head->stride))->env;
        step->n_sub = 1;
        for (k = 0; k < w->spec.n_act; k++)
            action[k] = (float)rng_uniform(rng, w->spec.act_low[k], w->spec.act_high[k]);
    }
    return envclient_step_send(c, m);
}

static enum status drive(struct envclient *c, int64_t run_ns, double *rate)
{
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    int64_t t0 = clock_now_ns(), steps = 0;
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    enum status st;
    uint32_t i;

    TRY(first_episodes(c));
    while (clock_now_ns() - t0 < run_ns) {
        TRY(envclient_recv(c, &m, &head, &rows, WAIT_NEVER));
        for (i = 0; i < head->n; i++)
            steps += ((const struct row_head *)(rows + (size_t)i * head->stride))->n_sub;
        st = answer(c, head, rows, &rng);
        msg_free(m);
        TRY(st);
    }
    *rate = (double)steps * 1e9 / (double)(clock_now_ns() - t0);
    return ST_OK;
}

static enum status run_server(const struct env_options *o, const char *task, const char *url,
                              double *rate)
{
    struct pool *pool = NULL;
    struct server *server = NULL;
    struct envclient *c = NULL;
    enum status st;

    st = pool_create(&pool, &(struct pool_config){.task = task,
                                                  .kwargs = "",
                                                  .n_env = (int)o->num_envs,
                                                  .n_thread = (int)o->threads});
    if (st == ST_OK)
        st = server_create(&server, &(struct server_config){.pool = pool,
                                                            .listen = url,
                                                            .b_max = (int)o->batch_max,
                                                            .t_max_ns = o->batch_timeout_ns});
    if (st == ST_OK)
        st = envclient_open(
            &c, &(struct envclient_config){
                    .url = url,
                    .hello = {.autoreset = AUTORESET_SAME_STEP, .k_max = 1, .t_max_ns = -1},
                    .connect_wait_ns = 5 * NS_PER_S});
    if (st == ST_OK)
        st = drive(c, o->seconds_ns, rate);
    envclient_destroy(c);
    server_destroy(server);
    pool_destroy(pool);
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

    return run_server(&o, task, "inproc://bench-simulation", rate);
}

static enum status bench_task(const struct env_options *o, const char *task)
{
    double rate[3][REPS_MAX], ratio[2][REPS_MAX];
    static const char *const names[] = {"bare_steps_per_s", "inproc_steps_per_s",
                                        "ipc_steps_per_s"};
    char ipc[64];
    struct json j;
    int i, k, n = (int)o->reps;

    snprintf(ipc, sizeof ipc, "ipc:///tmp/simstream-bench-%d.sock", (int)getpid());
    for (i = 0; i < n; i++) {
        TRY(run_bare(o, task, &rate[0][i]));
        TRY(run_server(o, task, "inproc://bench", &rate[1][i]));
        TRY(run_server(o, task, ipc, &rate[2][i]));
        ratio[0][i] = rate[1][i] / rate[0][i];
        ratio[1][i] = rate[2][i] / rate[0][i];
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "env");
    json_str(&j, "task", task);
    json_int(&j, "num_envs", o->num_envs);
    json_int(&j, "threads", o->threads);
    json_int(&j, "reps", n);
    bench_spread(&j, "inproc_ratio", ratio[0], n);
    bench_spread(&j, "ipc_ratio", ratio[1], n);
    for (k = 0; k < 3; k++)
        bench_spread(&j, names[k], rate[k], n);
    json_close(&j, '}');
    cmd_print_json(&j);
    return ST_OK;
}

int bench_env(int argc, char **argv)
{
    struct env_options o;
    char *task, *rest;
    int code = cmd_begin(table, &o, "bench env [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    for (task = o.tasks; task && *task; task = rest) {
        enum status st;

        rest = strchr(task, ',');
        if (rest)
            *rest++ = '\0';
        st = bench_task(&o, task);
        if (st != ST_OK)
            return cmd_fail(st);
    }
    return EXIT_DONE;
}
