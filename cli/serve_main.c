#include "cli/cmd.h"
#include "cli/signals.h"

#include "common/base/json.h"
#include "common/base/progress.h"
#include "common/base/thread.h"
#include "envserver/server.h"

#include <math.h>
#include <stddef.h>

struct serve_options {
    char task[OPT_STR_MAX], kwargs[OPT_STR_MAX], listen[OPT_STR_MAX];
    int64_t num_envs, threads, batch_max, batch_timeout_ns;
    bool json;
};

#define AT(field) offsetof(struct serve_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, NULL, "task to serve; 'simstream tasks' lists them", NULL},
    {"kwargs", OPT_STR, AT(kwargs), 0, 0, "", "the task's keyword arguments, a JSON object", NULL},
    {"num-envs", OPT_INT, AT(num_envs), 1, SPEC_ENV_MAX, "64", "environments", NULL},
    {"threads", OPT_INT, AT(threads), 0, 256, "0", "worker threads, 0 = one a CPU", NULL},
    {"batch-max", OPT_INT, AT(batch_max), 1, BATCHER_MAX, "16",
     "rows of a batch at most (B_max), unless a client asks for another", NULL},
    {"batch-timeout", OPT_TIME, AT(batch_timeout_ns), 0, 3600e9, "2ms",
     "longest wait of a finished row (T_max), unless a client asks for another", NULL},
    {"listen", OPT_STR, AT(listen), 0, 0, "tcp://127.0.0.1:7447",
     "address: tcp://host:port (port 0: a free one) or ipc://path", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the address and the totals as JSON", NULL},
    {0},
};

static void announce(const struct serve_options *o, const struct pool *pool,
                     const struct server *server)
{
    struct json j;

    if (!o->json) {
        printf("serving %lld envs of %s (%s) at %s\n", (long long)o->num_envs, o->task,
               pool_spec(pool)->engine, server_url(server));
    } else {
        json_init(&j);
        json_open(&j, NULL, '{');
        json_str(&j, "task", o->task);
        json_str(&j, "engine", pool_spec(pool)->engine);
        json_int(&j, "num_envs", o->num_envs);
        json_str(&j, "url", server_url(server));
        json_close(&j, '}');
        cmd_print_json(&j);
    }
    fflush(stdout);
}

static void watch(struct pool *pool, struct server *server, const atomic_bool *stop)
{
    struct pool_stats now, before = {0};
    int64_t t_before = clock_now_ns();

    while (!atomic_load(stop)) {
        int64_t t;

        clock_sleep_ns(200 * NS_PER_MS);
        t = clock_now_ns();
        if (t - t_before < NS_PER_S)
            continue;
        pool_stats_get(pool, &now);
        progress_draw(false,
                      "clients %d  steps/s %.0f  episodes %lld  errors %lld  rows/batch %.1f",
                      server_clients(server),
                      (double)(now.steps - before.steps) * 1e9 / (double)(t - t_before),
                      (long long)now.episodes, (long long)now.errors,
                      (double)now.rows / fmax(1, (double)(now.batches[BATCHER_FULL] +
                                                          now.batches[BATCHER_DEADLINE] +
                                                          now.batches[BATCHER_DRAINED])));
        before = now;
        t_before = t;
    }
    progress_end();
}

static void totals(const struct serve_options *o, struct pool *pool)
{
    struct pool_stats s;
    struct json j;

    pool_stats_get(pool, &s);
    if (!o->json) {
        printf("%lld steps, %lld episodes, %lld of them ended by an error\n", (long long)s.steps,
               (long long)s.episodes, (long long)s.errors);
        return;
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "steps", s.steps);
    json_int(&j, "episodes", s.episodes);
    json_int(&j, "errors", s.errors);
    json_int(&j, "batches_full", s.batches[BATCHER_FULL]);
    json_int(&j, "batches_deadline", s.batches[BATCHER_DEADLINE]);
    json_int(&j, "batches_drained", s.batches[BATCHER_DRAINED]);
    json_close(&j, '}');
    cmd_print_json(&j);
}

int cmd_serve(int argc, char **argv)
{
    struct serve_options o;
    struct pool_config cfg;
    struct pool *pool = NULL;
    struct server *server = NULL;
    const atomic_bool *stop;
    enum status st;
    int code = cmd_begin(table, &o, "serve --task=NAME [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    stop = signals_install();
    cfg = (struct pool_config){
        .task = o.task, .kwargs = o.kwargs, .n_env = (int)o.num_envs, .n_thread = (int)o.threads};
    st = pool_create(&pool, &cfg);
    if (st == ST_OK)
        st = server_create(&server, &(struct server_config){.pool = pool,
                                                            .listen = o.listen,
                                                            .b_max = (int)o.batch_max,
                                                            .t_max_ns = o.batch_timeout_ns});
    if (st == ST_OK) {
        announce(&o, pool, server);
        watch(pool, server, stop);
        server_destroy(server);
        totals(&o, pool);
    }
    pool_destroy(pool);
    return st == ST_OK ? EXIT_DONE : cmd_fail(st);
}
