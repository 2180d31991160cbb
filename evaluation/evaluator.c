// The lanes play; the calling thread takes results out of the list in episode order and writes
// them, so no file is touched under the lock.
#include "evaluation/evaluator.h"

#include "common/base/crc.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "evaluation/lane.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS  (100 * NS_PER_MS)
#define EMIT_MAX 64 // results taken out of the list at a time

struct run;

struct server { // one lane and its thread
    struct run *run;
    struct lane *lane;
    pthread_t thread;
    bool started;
};

struct run {
    const struct evaluator_config *cfg;
    const struct weights *weights;
    struct evaluator_progress *progress;
    struct lane_shared shared;
    struct report *report;
    char urls[OPT_STR_MAX]; // cut at the commas
    struct server *servers; // (n_server)
    int n_server;
    int n_alive;       // guarded by shared.mtx
    struct error lost; // guarded by shared.mtx; how the last server was lost
    double sum;        // of the returns written
    int64_t n_sum;
};

static enum lane_policy policy_of(const struct run *run)
{
    if (run->weights)
        return LANE_WEIGHTS;
    return strcmp(run->cfg->policy, "zero") == 0 ? LANE_ZERO : LANE_RANDOM;
}

static enum status check_config(const struct evaluator_config *cfg, const struct weights *w)
{
    if (!w && strcmp(cfg->policy, "random") != 0 && strcmp(cfg->policy, "zero") != 0)
        return FAIL(ST_INVAL, "policy '%s' has no weights, expected 'random' or 'zero'",
                    cfg->policy);
    if (cfg->seed < 0)
        return FAIL(ST_INVAL, "seed %lld, expected 0 or more", (long long)cfg->seed);
    return ST_OK;
}

// --- servers
// --------------------------------------------------------------------------------------

static enum status open_server(struct run *run, const char *url)
{
    struct lane_config cfg = {
        .url = url,
        .policy = policy_of(run),
        .weights = run->weights,
        .greedy = run->cfg->greedy,
        .seed = (uint64_t)run->cfg->seed,
        .connect_wait_ns = run->cfg->connect_wait_ns,
        .answer_wait_ns = run->cfg->answer_wait_ns,
        .shared = &run->shared,
    };
    struct server *s = &run->servers[run->n_server];

    TRY(lane_open(&s->lane, &cfg));
    s->run = run;
    run->n_server++;
    return ST_OK;
}

static enum status open_servers(struct run *run)
{
    char *p, *next;
    int n = 1;

    snprintf(run->urls, sizeof run->urls, "%s", run->cfg->env);
    for (p = run->urls; *p; p++)
        n += *p == ',';
    run->servers = mem_alloc((size_t)n, sizeof run->servers[0]);
    if (!run->servers)
        return ST_NOMEM;
    for (p = run->urls; p; p = next) {
        next = strchr(p, ',');
        if (next)
            *next++ = '\0';
        p += strspn(p, " ");
        p[strcspn(p, " ")] = '\0';
        if (!*p)
            return FAIL(ST_INVAL, "'%s' has an empty address of an env server", run->cfg->env);
        TRY(open_server(run, p));
    }
    return ST_OK;
}

static bool same_bounds(const struct spec *a, const struct spec *b)
{
    size_t bytes = (size_t)a->n_act * sizeof a->act_low[0];

    return memcmp(a->act_low, b->act_low, bytes) == 0 &&
           memcmp(a->act_high, b->act_high, bytes) == 0;
}

// Servers that differ would make a result depend on who played the episode.
static enum status check_same(const struct lane *a, const struct lane *b)
{
    const struct spec *x = lane_spec(a), *y = lane_spec(b);
    const char *what = NULL;

    if (strcmp(x->task, y->task) != 0)
        return FAIL(ST_INVAL, "env server %s has task %s, %s has %s", lane_url(a), x->task,
                    lane_url(b), y->task);
    if (strcmp(x->engine, y->engine) != 0)
        return FAIL(ST_INVAL, "env server %s runs %s, %s runs %s", lane_url(a), x->engine,
                    lane_url(b), y->engine);
    if (x->n_obs != y->n_obs || x->n_act != y->n_act)
        what = "the sizes of observations or actions";
    else if (!same_bounds(x, y))
        what = "action bounds";
    else if (x->max_episode_steps != y->max_episode_steps)
        what = "max_episode_steps";
    else if (x->dt_s != y->dt_s)
        what = "the time of a step";
    else if (x->has_success != y->has_success)
        what = "success";
    if (what)
        return FAIL(ST_INVAL, "env servers %s and %s differ in %s of %s", lane_url(a), lane_url(b),
                    what, x->task);
    return ST_OK;
}

static enum status check_policy(const struct run *run)
{
    const struct lane *lane = run->servers[0].lane;
    const struct spec *spec = lane_spec(lane);
    const struct weights *w = run->weights;
    int k;

    if (w) {
        if ((w->task[0] && strcmp(w->task, spec->task) != 0) || w->shape.n_obs != spec->n_obs ||
            w->shape.n_act != spec->n_act)
            return FAIL(ST_INVAL,
                        "policy '%s' was trained on %s (%d observations, %d actions), env server "
                        "%s has %s (%d observations, %d actions)",
                        run->cfg->policy, w->task[0] ? w->task : "an unnamed task", w->shape.n_obs,
                        w->shape.n_act, lane_url(lane), spec->task, spec->n_obs, spec->n_act);
        return ST_OK;
    }
    for (k = 0; k < spec->n_act && policy_of(run) == LANE_RANDOM; k++)
        if (!isfinite(spec->act_low[k]) || !isfinite(spec->act_high[k]))
            return FAIL(ST_INVAL, "policy 'random' needs bounded actions, action %d of %s is not",
                        k, spec->task);
    return ST_OK;
}

static enum status check_servers(const struct run *run)
{
    const struct lane *first = run->servers[0].lane;
    const char *task = run->cfg->task;
    int i;

    if (task && task[0] && strcmp(task, lane_spec(first)->task) != 0)
        return FAIL(ST_INVAL, "task %s is wanted, env server %s has %s", task, lane_url(first),
                    lane_spec(first)->task);

    for (i = 1; i < run->n_server; i++)
        TRY(check_same(first, run->servers[i].lane));
    TRY(check_policy(run));
    if (lane_spec(first)->max_episode_steps == 0)
        log_warn("eval", "%s has no time limit here: an episode lasts until the task ends it",
                 lane_spec(first)->task);
    return ST_OK;
}

// --- the run
// --------------------------------------------------------------------------------------

// What identifies the weights that were used, whatever happens to their file meanwhile.
static enum status weights_crc(const struct weights *w, uint32_t *out)
{
    size_t n = weights_blob_bytes(w);
    uint8_t *blob = mem_alloc(n, 1);

    if (!blob)
        return ST_NOMEM;
    weights_blob_write(w, blob);
    *out = crc32c(0, blob, n);
    mem_free(blob);
    return ST_OK;
}

static enum status open_report(struct run *run)
{
    const struct evaluator_config *cfg = run->cfg;
    struct report_about about = {
        .spec = lane_spec(run->servers[0].lane),
        .policy = cfg->policy,
        .kwargs = cfg->kwargs ? cfg->kwargs : "",
        .options = cfg->options,
        .wanted = cfg->episodes,
        .seed = cfg->seed,
        .n_server = run->n_server,
        .greedy = cfg->greedy,
    };
    int i;

    for (i = 0; i < run->n_server; i++)
        about.n_env += lane_envs(run->servers[i].lane);
    if (run->weights) {
        about.has_weights = true;
        about.version = run->weights->version;
        TRY(weights_crc(run->weights, &about.crc));
    }
    return report_open(&run->report, cfg->out, &about);
}

static void *server_thread(void *arg)
{
    struct server *s = arg;
    struct run *run = s->run;
    enum status st = lane_run(s->lane);
    struct error err = *error_last();
    bool others;

    pthread_mutex_lock(&run->shared.mtx);
    run->n_alive--;
    if (st != ST_OK)
        run->lost = err;
    others = run->n_alive > 0 && run->shared.fatal.code == ST_OK;
    pthread_cond_broadcast(&run->shared.changed);
    pthread_mutex_unlock(&run->shared.mtx);
    if (st != ST_OK && others)
        log_warn("eval", "%s; its episodes go to other servers", err.text);
    return NULL;
}

static enum status start_servers(struct run *run)
{
    enum status st = ST_OK;
    int i;

    for (i = 0; i < run->n_server && st == ST_OK; i++) {
        char name[16];

        snprintf(name, sizeof name, "eval-%d", i);
        pthread_mutex_lock(&run->shared.mtx);
        run->n_alive++;
        pthread_mutex_unlock(&run->shared.mtx);
        st = thread_start(&run->servers[i].thread, name, server_thread, &run->servers[i]);
        run->servers[i].started = st == ST_OK;
    }
    return st;
}

static void halt(struct run *run)
{
    pthread_mutex_lock(&run->shared.mtx);
    run->shared.halt = true;
    pthread_cond_broadcast(&run->shared.changed);
    pthread_mutex_unlock(&run->shared.mtx);
}

static void join_servers(struct run *run)
{
    int i;

    for (i = 0; i < run->n_server; i++) {
        if (run->servers[i].started)
            pthread_join(run->servers[i].thread, NULL);
        run->servers[i].started = false;
    }
}

static enum status write_results(struct run *run, const struct episode_result *results, int n)
{
    int i;

    for (i = 0; i < n; i++) {
        TRY(report_add(run->report, &results[i]));
        if (results[i].outcome == OUTCOME_ERROR)
            continue;
        run->sum += results[i].ret;
        run->n_sum++;
        atomic_store(&run->progress->mean_return, run->sum / (double)run->n_sum);
    }
    return ST_OK;
}

// Take results that are ready; with `wait`, until there are some, all servers are gone or a tick
// has passed. Returns their number, `*over` = no server is at work any more.
static int take_results(struct run *run, bool wait, bool skip, struct episode_result *out,
                        bool *over)
{
    const struct worklist_counts *counts;
    int n = 0;

    pthread_mutex_lock(&run->shared.mtx);
    while (n < EMIT_MAX && worklist_emit(run->shared.list, skip, &out[n]))
        n++;
    *over = run->n_alive == 0;
    if (n == 0 && !*over && wait)
        (void)cond_wait_until(&run->shared.changed, &run->shared.mtx, deadline_after(TICK_NS));
    counts = worklist_count(run->shared.list);
    atomic_store(&run->progress->done, counts->done);
    atomic_store(&run->progress->errors, counts->errors);
    pthread_mutex_unlock(&run->shared.mtx);
    return n;
}

// Write results until the servers have ended; then what lies behind gaps.
static enum status collect(struct run *run, const atomic_bool *stop)
{
    struct episode_result results[EMIT_MAX];
    enum status st = ST_OK;
    bool over = false;
    int n;

    while (!over) {
        n = take_results(run, true, false, results, &over);
        if (st == ST_OK)
            st = write_results(run, results, n);
        if (st != ST_OK || (stop && atomic_load(stop)))
            halt(run);
    }
    while (st == ST_OK && (n = take_results(run, false, true, results, &over)) > 0)
        st = write_results(run, results, n);
    return st;
}

// How it ended, after all threads have: by the list, a failure, *stop or the loss of all servers.
static enum status verdict(struct run *run)
{
    const struct worklist_counts *c = worklist_count(run->shared.list);

    if (run->shared.fatal.code != ST_OK)
        return error_adopt(&run->shared.fatal);
    if (worklist_complete(run->shared.list) || run->shared.halt)
        return ST_OK;
    return FAIL(ST_IO, "all env servers are gone after %lld of %lld episodes: %s",
                (long long)(c->done + c->errors), (long long)run->cfg->episodes, run->lost.text);
}

// Write the summary; `st` and the calling thread's last error are how the run ended.
static enum status conclude(struct run *run, enum status st, double wall_s,
                            struct evaluator_summary *out)
{
    bool complete = worklist_complete(run->shared.list);
    struct error err = *error_last();
    struct evaluator_summary summary;
    enum status finish;

    report_summarise(run->report, complete, &summary);
    finish = report_finish(run->report, &summary, worklist_count(run->shared.list), wall_s);
    if (finish == ST_OK)
        *out = summary;
    return st != ST_OK ? error_adopt(&err) : finish;
}

static enum status play(struct run *run, const atomic_bool *stop, struct evaluator_summary *out)
{
    int64_t begin_ns = clock_now_ns();
    enum status st = start_servers(run);

    if (st != ST_OK) {
        struct error err = *error_last();

        halt(run);
        join_servers(run);
        return error_adopt(&err);
    }
    st = collect(run, stop);
    join_servers(run);
    if (st != ST_OK)
        return st;
    return conclude(run, verdict(run), (double)(clock_now_ns() - begin_ns) * 1e-9, out);
}

static void run_fini(struct run *run)
{
    int i;

    for (i = 0; i < run->n_server; i++)
        lane_destroy(run->servers[i].lane);
    mem_free(run->servers);
    report_close(run->report);
    worklist_destroy(run->shared.list);
    pthread_cond_destroy(&run->shared.changed);
    pthread_mutex_destroy(&run->shared.mtx);
}

enum status evaluator_run(const struct evaluator_config *cfg, const struct weights *w,
                          const atomic_bool *stop, struct evaluator_progress *progress,
                          struct evaluator_summary *out)
{
    struct run run = {.cfg = cfg, .weights = w, .progress = progress};
    enum status st;

    TRY(check_config(cfg, w));
    pthread_mutex_init(&run.shared.mtx, NULL);
    cond_init(&run.shared.changed);
    run.shared.env_steps = &progress->env_steps;
    st = worklist_create(&run.shared.list, cfg->episodes, cfg->retries);
    if (st == ST_OK)
        st = open_servers(&run);
    if (st == ST_OK)
        st = check_servers(&run);
    if (st == ST_OK)
        st = open_report(&run);
    if (st == ST_OK)
        st = play(&run, stop, out);
    run_fini(&run);
    return st;
}
