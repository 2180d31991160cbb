// The three switches with a modelled accelerator: inference and updates wait for a set time without
// using the CPU, so that their overlap with simulation shows on a small machine. Throughput of the
// four rows is held against the bound: no pipeline can be faster than its slowest stage.
#include "bench/bench.h"

#include "cli/cmd.h"
#include "cli/embedded.h"
#include "cli/options.h"
#include "common/base/thread.h"
#include "learner/learner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPS_MAX 16

struct async_options {
    char task[OPT_STR_MAX];
    int64_t num_envs, threads, horizon, windows, reps;
    int64_t infer_ns, infer_row_ns, update_row_ns, update_ns;
};

#define AT(field) offsetof(struct async_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, "Ant-v5", "task", NULL},
    {"num-envs", OPT_INT, AT(num_envs), 2, 4096, "64", "environments", NULL},
    {"threads", OPT_INT, AT(threads), 1, 256, "2", "env worker threads", NULL},
    {"horizon", OPT_INT, AT(horizon), 1, 4096, "16", "env steps of a trajectory chunk", NULL},
    {"windows", OPT_INT, AT(windows), 2, 100000, "20", "global batches of one run", NULL},
    {"reps", OPT_INT, AT(reps), 1, REPS_MAX, "3", "repetitions, interleaved", NULL},
    {"accel-infer", OPT_TIME, AT(infer_ns), 0, 60e9, "1ms", "time of an inference", NULL},
    {"accel-infer-row", OPT_TIME, AT(infer_row_ns), 0, 60e9, "60us", "and of each row", NULL},
    {"accel-update-row", OPT_TIME, AT(update_row_ns), 0, 60e9, "100us",
     "time of forward and backward per sample", NULL},
    {"accel-update", OPT_TIME, AT(update_ns), 0, 60e9, "5ms", "time of an optimizer step", NULL},
    {0},
};

static const struct row {
    const char *name;
    bool train_async, rollout_async, streaming;
} rows[] = {
    {"sync", false, false, false},
    {"train_async", true, false, false},
    {"rollout_async", true, true, false},
    {"streaming", true, true, true},
};

#define N_ROW 4

static void learner_settings(const struct async_options *o, const struct row *row, const char *out,
                             struct learner_config *cfg)
{
    snprintf(cfg->out, sizeof cfg->out, "%s", out);
    snprintf(cfg->hidden, sizeof cfg->hidden, "64,64");
    cfg->log_std = -0.5;
    cfg->seed = 1;
    cfg->num_envs = o->num_envs;
    cfg->horizon = o->horizon;
    cfg->total_steps = o->windows * o->num_envs * o->horizon;
    cfg->max_staleness = 1;
    cfg->train_async = row->train_async;
    cfg->streaming = row->streaming;
    cfg->target_return = INFINITY;
    cfg->update.epochs = 1;
    cfg->update.threads = 1;
    cfg->update.accel = (struct accel){.infer_ns = o->infer_ns,
                                       .infer_row_ns = o->infer_row_ns,
                                       .update_row_ns = o->update_row_ns,
                                       .update_ns = o->update_ns};
}

// Env steps per second of one run of the whole loop.
static enum status run(const struct async_options *o, const struct row *row, double *rate)
{
    static const struct opt update_table[] = {UPDATE_OPTS(struct learner_config, update), {0}};
    struct learner_config cfg;
    struct learner_progress progress = {0};
    struct embedded e = {0};
    struct pool_config pool = {
        .task = o->task, .kwargs = "", .n_env = (int)o->num_envs, .n_thread = (int)o->threads};
    atomic_bool stop = false;
    char out[] = "/tmp/simstream-bench-XXXXXX", remove[64];
    enum status st, other;

    if (!mkdtemp(out))
        return FAIL_SYS(ST_IO, 0, "cannot make a folder for the run");
    memset(&cfg, 0, sizeof cfg);
    st = opts_defaults(update_table, &cfg);
    learner_settings(o, row, out, &cfg);
    if (st == ST_OK)
        st = embedded_serve(&e, &pool, 8, NS_PER_MS, e.rollout.env, sizeof e.rollout.env);
    if (st == ST_OK) {
        snprintf(cfg.listen, sizeof cfg.listen, "inproc://learner%.100s",
                 e.rollout.env + strlen("inproc://envs"));
        memcpy(e.rollout.learner, cfg.listen, sizeof e.rollout.learner);
        e.rollout.horizon = o->horizon;
        e.rollout.seed = 1;
        e.rollout.rollout_async = row->rollout_async;
        e.rollout.batch_max = o->num_envs / 4;
        e.rollout.batch_timeout_ns = 2 * NS_PER_MS;
        e.rollout.accel = cfg.update.accel;
        st = embedded_rollout(&e);
    }
    if (st == ST_OK)
        st = learner_run(&cfg, &stop, &progress);
    other = embedded_finish(&e);
    if (st == ST_OK && other != ST_OK && other != ST_CLOSED)
        st = other;
    snprintf(remove, sizeof remove, "rm -rf '%s'", out);
    if (system(remove) != 0 && st == ST_OK)
        st = FAIL(ST_IO, "cannot remove '%s'", out);
    if (st == ST_OK)
        *rate = (double)progress.env_steps / progress.seconds;
    return st;
}

// Env steps per second of the pool alone with the loop's batches.
static enum status run_pool(const struct async_options *o, double *rate)
{
    return bench_simulation(o->task, (int)o->num_envs, (int)o->threads, 8, NS_PER_MS, 2 * NS_PER_S,
                            rate);
}

int bench_async(int argc, char **argv)
{
    struct async_options o;
    double rate[N_ROW][REPS_MAX], share[N_ROW][REPS_MAX], sim[REPS_MAX], infer, update, bound;
    struct json j;
    enum status st = ST_OK;
    int i, k, code = cmd_begin(table, &o, "bench async [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    infer = 1e9 / ((double)o.infer_row_ns + (double)o.infer_ns / ((double)o.num_envs / 4));
    update =
        1e9 / ((double)o.update_row_ns + (double)o.update_ns / (double)(o.num_envs * o.horizon));
    for (i = 0; i < o.reps && st == ST_OK; i++) {
        st = run_pool(&o, &sim[i]);
        bound = sim[i] < infer ? sim[i] : infer;
        bound = update < bound ? update : bound;
        for (k = 0; k < N_ROW && st == ST_OK; k++) {
            st = run(&o, &rows[k], &rate[k][i]);
            share[k][i] = rate[k][i] / bound;
        }
    }
    if (st != ST_OK)
        return cmd_fail(st);
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "async");
    json_str(&j, "task", o.task);
    json_int(&j, "reps", o.reps);
    json_real(&j, "inference_bound_steps_per_s", infer);
    json_real(&j, "update_bound_steps_per_s", update);
    bench_spread(&j, "simulation_bound_steps_per_s", sim, (int)o.reps);
    for (k = 0; k < N_ROW; k++) {
        json_open(&j, rows[k].name, '{');
        bench_spread(&j, "steps_per_s", rate[k], (int)o.reps);
        bench_spread(&j, "share_of_bound", share[k], (int)o.reps);
        json_close(&j, '}');
    }
    json_close(&j, '}');
    cmd_print_json(&j);
    return EXIT_DONE;
}
