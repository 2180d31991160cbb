#include "cli/cmd.h"
#include "cli/limits.h"
#include "cli/signals.h"
#include "cli/vary.h"

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/progress.h"
#include "common/base/thread.h"
#include "envserver/monitor.h"
#include "envserver/server.h"

#include <math.h>
#include <stddef.h>

#ifndef SIMSTREAM_VERSION
#define SIMSTREAM_VERSION "unknown"
#endif
#ifndef SIMSTREAM_COMMIT
#define SIMSTREAM_COMMIT "unknown"
#endif

#define FILES_NEEDED 32 // apart from those of the clients
#define FILES_WANTED 1200
#define STEP_TIMEOUT (60 * NS_PER_S) // of worker processes, unless told otherwise

struct serve_options {
    char task[OPT_STR_MAX], kwargs[OPT_STR_MAX], listen[OPT_STR_MAX], http[OPT_STR_MAX];
    char randomize[OPT_STR_MAX], key_file[OPT_STR_MAX], tls_cert[OPT_STR_MAX],
        affinity[OPT_STR_MAX];
    int64_t num_envs, threads, batch_max, batch_min, batch_timeout_ns, idle_ns, drain_ns;
    char log_level[OPT_STR_MAX];
    int64_t step_timeout_ns;
    int log, isolate;
    bool insecure, preflight, json;
};

#define AT(field) offsetof(struct serve_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, NULL, "task to serve; 'simstream tasks' lists them", NULL},
    {"kwargs", OPT_STR, AT(kwargs), 0, 0, "", "the task's keyword arguments, a JSON object", NULL},
    VARY_OPT(AT(randomize)),
    {"num-envs", OPT_INT, AT(num_envs), 1, SPEC_ENV_MAX, "64", "environments", NULL},
    {"threads", OPT_INT, AT(threads), 0, 256, "0", "worker threads, 0 = one a CPU", NULL},
    {"isolate", OPT_ENUM, AT(isolate), 0, 0, "process",
     "workers as processes, which may crash or hang and are replaced, or as threads",
     POOL_ISOLATE_CHOICES},
    {"step-timeout", OPT_TIME, AT(step_timeout_ns), -1, 3600e9, "-1ns",
     "with processes: longest time of one request, 0s = no limit, -1ns = 60s", NULL},
    {"affinity", OPT_STR, AT(affinity), 0, 0, "none",
     "pin workers to processors: none, auto or a list such as 0-3,8", NULL},
    {"batch-max", OPT_INT, AT(batch_max), 1, BATCHER_MAX, "16",
     "rows of a batch at most (B_max), unless a client asks for another", NULL},
    {"batch-min", OPT_INT, AT(batch_min), 0, BATCHER_MAX, "0",
     "rows that are enough for a batch (B_min), 0 = batch-max", NULL},
    {"batch-timeout", OPT_TIME, AT(batch_timeout_ns), 0, 3600e9, "2ms",
     "longest wait of a finished row (T_max), 0s = none; unless a client asks for another", NULL},
    {"listen", OPT_STR, AT(listen), 0, 0, "tcp://127.0.0.1:7447",
     "address: tcp://host:port (port 0: a free one), tls+tcp://host:port or ipc://path", NULL},
    {"key-file", OPT_STR, AT(key_file), 0, 0, "",
     "key that clients must prove; needed where other machines can connect", NULL},
    {"tls-cert", OPT_STR, AT(tls_cert), 0, 0, "",
     "certificate and private key (PEM) for a tls+tcp address", NULL},
    {"insecure", OPT_BOOL, AT(insecure), 0, 1, "false",
     "serve other machines without a key: only in a network that you trust", NULL},
    {"idle-timeout", OPT_TIME, AT(idle_ns), 0, 86400e9, "60s",
     "drop a client that answers nothing for so long, 0s = never", NULL},
    {"drain-timeout", OPT_TIME, AT(drain_ns), 0, 3600e9, "30s",
     "after SIGTERM, how long running requests may take", NULL},
    {"http", OPT_STR, AT(http), 0, 0, "",
     "host:port for /metrics, /healthz, /status and a page for people; \"\" = none", NULL},
    {"preflight", OPT_BOOL, AT(preflight), 0, 1, "true",
     "check that memory and open files are enough before starting", NULL},
    {"log", OPT_ENUM, AT(log), 0, 0, "text", "form of the log lines on stderr", "text|json"},
    {"log-level", OPT_STR, AT(log_level), 0, 0, "info", "error, warn, info or debug", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the address and the totals as JSON", NULL},
    {0},
};

struct serving {
    struct serve_options o;
    struct auth_key key;
    char *plan; // owned, NULL = all envs have the same model
    struct pool *pool;
    struct server *server;
    struct monitor *monitor;
};

// ------------------------------------------------------------------ before the start

static enum status set_log(const struct serve_options *o)
{
    enum log_level level;

    if (!log_level_parse(o->log_level, &level))
        return FAIL(ST_INVAL, "--log-level=%s: expected error, warn, info or debug", o->log_level);
    log_set_level(level);
    log_set_json(o->log == 1);
    return ST_OK;
}

static enum status check_files(const struct limits *l)
{
    double clients = l->files - l->files_open - FILES_NEEDED;

    if (clients < 1)
        return FAIL(ST_INVAL,
                    "%.0f of %.0f files are open, %d more are needed: raise the limit (ulimit -n)",
                    l->files_open, l->files, FILES_NEEDED);
    if (!isinf(clients))
        log_info("serve", "open files: enough for %.0f clients",
                 fmin(clients, SERVER_SESSIONS_MAX));
    return ST_OK;
}

static enum status check_memory(const struct serve_options *o, const struct limits *l)
{
    double mib, fit;

    if (isnan(l->free_mib))
        return ST_OK; // nothing is known
    TRY(limits_env_mib(o->task, o->kwargs, &mib));
    fit = floor(0.95 * l->free_mib / mib);
    log_info("serve", "memory: about %.2f MiB an env, %.0f MiB free: enough for %.0f envs", mib,
             l->free_mib, fit);
    if ((double)o->num_envs > fit)
        return FAIL(ST_INVAL,
                    "%lld envs of %.2f MiB do not fit into %.0f MiB of free memory: %.0f do "
                    "(--num-envs; --preflight=false tries all the same)",
                    (long long)o->num_envs, mib, l->free_mib, fit);
    return ST_OK;
}

// Say what fits before anything fails.
static enum status preflight(const struct serve_options *o)
{
    struct limits l;

    if (!o->preflight)
        return ST_OK;
    limits_raise_files(FILES_WANTED);
    limits_measure(&l);
    if (!isnan(l.shm_free_mib))
        log_info("serve", "shared memory: %.0f MiB free", l.shm_free_mib);
    TRY(check_files(&l));
    return check_memory(o, &l);
}

static enum status check_batches(const struct serve_options *o)
{
    if (o->batch_min > o->num_envs)
        return FAIL(ST_INVAL, "--batch-min=%lld can never be reached by %lld envs",
                    (long long)o->batch_min, (long long)o->num_envs);
    if (o->step_timeout_ns > 0 && o->isolate != POOL_ISOLATE_PROCESS)
        return FAIL(ST_INVAL, "--step-timeout needs --isolate=process");
    if (o->batch_min > o->batch_max)
        return FAIL(ST_INVAL, "--batch-min=%lld is more than --batch-max=%lld",
                    (long long)o->batch_min, (long long)o->batch_max);
    return ST_OK;
}

// ------------------------------------------------------------------ start

static enum status start_server(struct serving *s)
{
    const struct serve_options *o = &s->o;
    struct server_config cfg = {.pool = s->pool,
                                .listen = o->listen,
                                .b_max = (int)o->batch_max,
                                .b_min = (int)o->batch_min,
                                .t_max_ns = o->batch_timeout_ns,
                                .idle_ns = o->idle_ns,
                                .tls = {.cert_file = o->tls_cert},
                                .insecure = o->insecure};

    if (o->key_file[0]) {
        TRY(auth_key_load(&s->key, o->key_file));
        cfg.key = &s->key;
    }
    TRY(server_create(&s->server, &cfg));
    if (!cfg.key && !link_is_local(o->listen))
        log_warn("serve", "%s: anybody who reaches it is served", server_url(s->server));
    return ST_OK;
}

static enum status start(struct serving *s)
{
    const struct serve_options *o = &s->o;
    struct pool_config cfg = {.task = o->task,
                              .kwargs = o->kwargs,
                              .n_env = (int)o->num_envs,
                              .n_thread = (int)o->threads,
                              .affinity = o->affinity,
                              .isolate = (enum pool_isolate)o->isolate,
                              .step_timeout_ns = o->step_timeout_ns};

    if (cfg.step_timeout_ns < 0)
        cfg.step_timeout_ns = o->isolate == POOL_ISOLATE_PROCESS ? STEP_TIMEOUT : 0;
    TRY(set_log(o));
    TRY(check_batches(o));
    TRY(preflight(o));
    TRY(vary_read(&s->plan, o->randomize));
    cfg.randomize = s->plan;
    TRY(pool_create(&s->pool, &cfg));
    TRY(start_server(s));
    if (!o->http[0])
        return ST_OK;
    return monitor_open(&s->monitor, &(struct monitor_config){.address = o->http,
                                                              .server = s->server,
                                                              .pool = s->pool,
                                                              .version = SIMSTREAM_VERSION,
                                                              .commit = SIMSTREAM_COMMIT});
}

static void announce(const struct serving *s)
{
    const struct serve_options *o = &s->o;
    struct json j;

    if (!o->json) {
        printf("serving %lld envs of %s (%s) at %s\n", (long long)o->num_envs, o->task,
               pool_spec(s->pool)->engine, server_url(s->server));
        if (s->monitor)
            printf("status page at http://%s/\n", monitor_address(s->monitor));
        if (s->plan)
            printf("the envs' models differ: %s\n", o->randomize);
    } else {
        json_init(&j);
        json_open(&j, NULL, '{');
        json_str(&j, "task", o->task);
        json_str(&j, "engine", pool_spec(s->pool)->engine);
        json_int(&j, "num_envs", o->num_envs);
        json_str(&j, "url", server_url(s->server));
        if (s->monitor)
            json_str(&j, "http", monitor_address(s->monitor));
        if (s->plan)
            json_raw(&j, "randomize_plan", s->plan);
        json_close(&j, '}');
        cmd_print_json(&j);
    }
    fflush(stdout);
}

// ------------------------------------------------------------------ while it runs, and the end

static void watch(const struct serving *s, const atomic_bool *stop)
{
    struct pool_stats now, before = {0};
    int64_t t_before = clock_now_ns(), batches;
    int why;

    while (!atomic_load(stop)) {
        int64_t t;

        clock_sleep_ns(100 * NS_PER_MS);
        t = clock_now_ns();
        if (t - t_before < NS_PER_S)
            continue;
        pool_stats_get(s->pool, &now);
        for (batches = 0, why = 0; why < BATCHER_WHYS; why++)
            batches += now.batches[why];
        progress_draw(false,
                      "clients %d  steps/s %.0f  episodes %lld  errors %lld  rows/batch %.1f",
                      server_clients(s->server),
                      (double)(now.steps - before.steps) * 1e9 / (double)(t - t_before),
                      (long long)now.episodes, (long long)now.errors,
                      (double)now.rows / fmax(1, (double)batches));
        before = now;
        t_before = t;
    }
    progress_end();
}

static enum status finish(struct serving *s)
{
    log_info("serve", "stopping: no more clients and requests, those in flight are finished");
    if (!server_drain(s->server, s->o.drain_ns))
        return FAIL(ST_TIMEOUT, "requests were still running after the drain time");
    log_info("serve", "nothing is in flight any more");
    return ST_OK;
}

static void totals(const struct serving *s)
{
    struct pool_stats p;
    struct json j;
    int why;

    pool_stats_get(s->pool, &p);
    if (!s->o.json) {
        printf("%lld steps, %lld episodes, %lld of them ended by an error\n", (long long)p.steps,
               (long long)p.episodes, (long long)p.errors);
        return;
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "steps", p.steps);
    json_int(&j, "episodes", p.episodes);
    json_int(&j, "errors", p.errors);
    json_int(&j, "worker_restarts", p.restarts);
    json_int(&j, "rows", p.rows);
    for (why = BATCHER_FULL; why < BATCHER_WHYS; why++) {
        char key[32];

        snprintf(key, sizeof key, "batches_%s", batcher_why_name((enum batcher_why)why));
        json_int(&j, key, p.batches[why]);
    }
    json_close(&j, '}');
    cmd_print_json(&j);
}

int cmd_serve(int argc, char **argv)
{
    static struct serving s;
    const atomic_bool *stop;
    enum status st;
    int code =
        cmd_begin(table, &s.o, "serve --task=NAME [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    stop = signals_install();
    st = start(&s);
    if (st == ST_OK) {
        announce(&s);
        watch(&s, stop);
        st = finish(&s);
        totals(&s);
    }
    code = st == ST_OK ? EXIT_DONE : cmd_fail(st);
    monitor_close(s.monitor);
    server_destroy(s.server);
    pool_destroy(s.pool);
    mem_free(s.plan);
    auth_key_clear(&s.key);
    return code;
}
