// The lanes play; the calling thread takes results out of the list as they come and writes them, so
// no file is touched under the lock. Demonstrations alone are written in episode order.
#include "evaluation/evaluator.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/envproto.h"
#include "common/wire/hosts.h"
#include "evaluation/chunk_seats.h"
#include "evaluation/lane.h"
#include "rollout/framestack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS  (100 * NS_PER_MS)
#define EMIT_MAX 64 // results taken out of the list at a time

#define REDIAL_NS   (500 * NS_PER_MS)
#define RETURNS_MAX 3 // of a server in a row, when it finishes no episode in between

struct run;

struct server { // one lane and its thread
    struct run *run;
    struct lane *lane; // the thread's own while it runs
    pthread_t thread;
    bool started;
    int n_vain; // returns in a row without an episode
};

struct run {
    const struct evaluator_config *cfg;
    const struct weights *weights;
    struct evaluator_progress *progress;
    struct lane_shared shared;
    int task;                    // in the journal
    bool *written;               // (episodes) whose result is in the journal
    int64_t n_recorded;          // episodes below were handed to the recorder's file
    struct hosts *hosts;         // the servers' addresses
    struct spec *spec;           // of the first server; the others' are the same
    char plan[WELCOME_PLAN_MAX]; // likewise
    struct server *servers;      // (n_server)
    int n_server;
    atomic_bool over;  // nobody needs a lost server any more
    int n_alive;       // guarded by shared.mtx; when it is 0, no server returns
    struct error lost; // guarded by shared.mtx; how the last server was lost
    double sum;        // of the returns written
    int64_t n_sum;
};

bool evaluator_has_policy(const char *name)
{
    return strcmp(name, "random") == 0 || strcmp(name, "zero") == 0 ||
           strcmp(name, "expert") == 0 ||
           strncmp(name, REPLAY_PREFIX, strlen(REPLAY_PREFIX)) == 0 || policy_is_address(name);
}

static enum lane_policy policy_of(const struct run *run)
{
    if (run->weights)
        return LANE_WEIGHTS;
    if (run->cfg->remote)
        return LANE_REMOTE;
    if (run->cfg->replay)
        return LANE_REPLAY;
    if (strcmp(run->cfg->policy, "expert") == 0)
        return LANE_EXPERT;
    return strcmp(run->cfg->policy, "zero") == 0 ? LANE_ZERO : LANE_RANDOM;
}

static enum status check_config(const struct evaluator_config *cfg, const struct weights *w)
{
    if (!w && !evaluator_has_policy(cfg->policy))
        return FAIL(ST_INVAL,
                    "policy '%s' has no weights, expected 'random', 'zero', 'expert', "
                    "'replay:FILE' or a policy server's address",
                    cfg->policy);
    if (!cfg->remote != !policy_is_address(cfg->policy))
        return FAIL(ST_INVAL, "policy '%s' and a policy server do not go together", cfg->policy);
    if (!cfg->replay != !!strncmp(cfg->policy, REPLAY_PREFIX, strlen(REPLAY_PREFIX)))
        return FAIL(ST_INVAL, "policy '%s' and a replay do not go together", cfg->policy);
    if (cfg->replay && cfg->episodes > replay_demos(cfg->replay))
        return FAIL(ST_INVAL, "'%s' has %lld demos, %lld episodes are wanted",
                    replay_path(cfg->replay), (long long)replay_demos(cfg->replay),
                    (long long)cfg->episodes);
    if (cfg->seed < 0)
        return FAIL(ST_INVAL, "seed %lld, expected 0 or more", (long long)cfg->seed);
    return ST_OK;
}

// --- servers ------------------------------------------------------------------------------------

static enum status open_lane(struct run *run, const char *url, int64_t wait_ns,
                             const atomic_bool *stop, struct lane **out)
{
    struct lane_config cfg = {
        .url = url,
        .policy = policy_of(run),
        .weights = run->weights,
        .replay = run->cfg->replay,
        .remote = run->cfg->remote,
        .greedy = run->cfg->greedy,
        .pictures = run->cfg->remote || run->cfg->record ||
                    (run->weights && (run->weights->vla || run->weights->shape.vision.n_conv > 0)),
        .execute = run->cfg->execute,
        .seed = (uint64_t)run->cfg->seed,
        .connect_wait_ns = wait_ns,
        .answer_wait_ns = run->cfg->answer_wait_ns,
        .stop = stop,
        .shared = &run->shared,
    };

    return lane_open(out, &cfg);
}

static enum status open_servers(struct run *run)
{
    run->hosts = mem_alloc(1, sizeof *run->hosts);
    run->spec = mem_alloc(1, sizeof *run->spec);
    if (!run->hosts || !run->spec)
        return ST_NOMEM;
    TRY(hosts_expand(run->hosts, run->cfg->env));
    run->servers = mem_alloc((size_t)run->hosts->n, sizeof run->servers[0]);
    if (!run->servers)
        return ST_NOMEM;
    for (; run->n_server < run->hosts->n; run->n_server++) {
        struct server *s = &run->servers[run->n_server];

        s->run = run;
        TRY(open_lane(run, run->hosts->url[run->n_server], run->cfg->connect_wait_ns, NULL,
                      &s->lane));
    }
    *run->spec = *lane_spec(run->servers[0].lane);
    snprintf(run->plan, sizeof run->plan, "%s", lane_plan(run->servers[0].lane));
    return ST_OK;
}

static bool same_bounds(const struct spec *a, const struct spec *b)
{
    size_t bytes = (size_t)a->n_act * sizeof a->act_low[0];

    return memcmp(a->act_low, b->act_low, bytes) == 0 &&
           memcmp(a->act_high, b->act_high, bytes) == 0;
}

// Servers that differ would make a result depend on who played the episode.
static enum status check_same(const struct run *run, const struct lane *b)
{
    const struct spec *x = run->spec, *y = lane_spec(b);
    const char *what = NULL, *first = run->hosts->url[0];

    if (strcmp(x->task, y->task) != 0)
        return FAIL(ST_INVAL, "env server %s has task %s, %s has %s", first, x->task, lane_url(b),
                    y->task);
    if (strcmp(x->engine, y->engine) != 0)
        return FAIL(ST_INVAL, "env server %s runs %s, %s runs %s", first, x->engine, lane_url(b),
                    y->engine);
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
    else if (strcmp(x->instruction, y->instruction) != 0)
        what = "the instruction";
    else if (!framestack_same(x, y))
        what = "pictures";
    else if (strcmp(run->plan, lane_plan(b)) != 0)
        what = "the plan of --randomize";
    if (what)
        return FAIL(ST_INVAL, "env servers %s and %s differ in %s of %s", first, lane_url(b), what,
                    x->task);
    return ST_OK;
}

// Numbers of the observation that policies see: those before sim_state, which is for recording.
static int policy_obs(const struct spec *spec)
{
    const struct spec_field *state = spec_field_find(spec, "sim_state");

    return state ? state->offset : spec->n_obs;
}

static enum status check_policy(const struct run *run)
{
    const struct spec *spec = run->spec;
    const char *url = run->hosts->url[0];
    const struct weights *w = run->weights;
    const struct replay *replay = run->cfg->replay;
    int k;

    if (replay && replay_n_act(replay) != spec->n_act)
        return FAIL(ST_INVAL, "'%s' has %d numbers an action, %s at %s takes %d",
                    replay_path(replay), replay_n_act(replay), spec->task, url, spec->n_act);
    if (replay)
        return replay_check_task(replay, spec->task, run->cfg->seed);
    if (w && w->vla)
        return ST_OK; // whatever the task, chunk_seats_create has found all that the policy sees
    if (w) {
        if ((w->task[0] && strcmp(w->task, spec->task) != 0) ||
            w->shape.n_obs != policy_obs(spec) ||
            (w->shape.n_act != spec->n_act && !chunk_seats_wanted(w, spec)))
            return FAIL(ST_INVAL,
                        "policy '%s' was trained on %s (%d observations, %d actions), env server "
                        "%s has %s (%d observations, %d actions)",
                        run->cfg->policy, w->task[0] ? w->task : "an unnamed task", w->shape.n_obs,
                        w->shape.n_act, url, spec->task, spec->n_obs, spec->n_act);
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
    const struct spec *spec = run->spec;
    const char *task = run->cfg->task;
    int i;

    if (task && task[0] && strcmp(task, spec->task) != 0)
        return FAIL(ST_INVAL, "task %s is wanted, env server %s has %s", task, run->hosts->url[0],
                    spec->task);

    for (i = 1; i < run->n_server; i++)
        TRY(check_same(run, run->servers[i].lane));
    TRY(check_policy(run));
    if (spec->max_episode_steps == 0)
        log_warn("eval", "%s has no time limit here: an episode lasts until the task ends it",
                 spec->task);
    return ST_OK;
}

// --- the run ------------------------------------------------------------------------------------

static enum status open_journal(struct run *run)
{
    const struct spec *spec = run->spec;
    struct result_task task = run->cfg->about;
    const char *plan = run->cfg->own_plan ? "" : run->plan;

    if (strlen(plan) >= sizeof task.input.randomize)
        return FAIL(ST_INVAL,
                    "env server %s: its plan of --randomize has %zu bytes, at most %zu can be kept "
                    "with the results",
                    run->hosts->url[0], strlen(plan), sizeof task.input.randomize - 1);
    memcpy(task.input.randomize, plan, strlen(plan) + 1);
    snprintf(task.name, sizeof task.name, "%s", spec->task);
    if (!task.instruction[0])
        snprintf(task.instruction, sizeof task.instruction, "%s", spec->instruction);
    snprintf(task.input.engine, sizeof task.input.engine, "%s", spec->engine);
    task.episodes = run->cfg->episodes;
    task.input.max_episode_steps = spec->max_episode_steps;
    task.input.dt_s = spec->dt_s;
    task.input.has_success = spec->has_success;
    return journal_begin(run->cfg->journal, &task, &run->task);
}

// What is left to play.
static enum status make_list(struct run *run)
{
    const struct evaluator_config *cfg = run->cfg;
    int64_t e, last = cfg->last > 0 ? cfg->last : cfg->episodes;

    TRY(worklist_create(&run->shared.list, cfg->episodes, cfg->retries));
    run->written = mem_alloc((size_t)cfg->episodes, sizeof run->written[0]);
    if (!run->written)
        return ST_NOMEM;
    for (e = 0; e < cfg->episodes; e++)
        if (e < cfg->first || e >= last || journal_has(cfg->journal, run->task, e))
            worklist_skip(run->shared.list, e);
    return ST_OK;
}

static enum status open_recorder(struct run *run)
{
    const struct evaluator_config *cfg = run->cfg;
    struct record_about about;

    if (!cfg->record)
        return ST_OK;
    about = *cfg->record;
    about.policy = cfg->policy;
    about.kwargs = cfg->kwargs ? cfg->kwargs : "";
    about.seed = cfg->seed;
    about.n_episode = cfg->episodes;
    return recorder_open(&run->shared.recorder, cfg->out, &about, run->spec);
}

// Note that a server's lane has ended with `st` and the calling thread's last error.
static void note_end(struct run *run, enum status st)
{
    struct error err = *error_last();
    bool others;

    pthread_mutex_lock(&run->shared.mtx);
    run->n_alive--;
    if (st != ST_OK)
        run->lost = err;
    // another one may have played everything by now
    others = (run->n_alive > 0 || worklist_complete(run->shared.list)) &&
             run->shared.fatal.code == ST_OK;
    pthread_cond_broadcast(&run->shared.changed);
    pthread_mutex_unlock(&run->shared.mtx);
    if (st != ST_OK && others)
        log_warn("eval", "%s; its episodes go to other servers", err.text);
}

// Count the server as alive again; false if it is too late.
static bool note_return(struct run *run)
{
    bool back;

    pthread_mutex_lock(&run->shared.mtx);
    back = run->n_alive > 0 && !run->shared.halt && !worklist_complete(run->shared.list);
    run->n_alive += back;
    pthread_mutex_unlock(&run->shared.mtx);
    return back;
}

// Dial a lost server until it is there again, or nobody needs it any more. One that offers
// something else than before stays lost.
static bool await_return(struct server *s)
{
    struct run *run = s->run;
    const char *url = lane_url(s->lane);
    struct lane *lane;

    for (;;) {
        if (atomic_load(&run->over))
            return false;
        if (open_lane(run, url, REDIAL_NS, &run->over, &lane) == ST_OK)
            break;
        clock_sleep_ns(TICK_NS);
    }
    if (check_same(run, lane) != ST_OK) {
        log_error("eval", "%s; it is not used again", error_last()->text);
        lane_destroy(lane);
        return false;
    }
    lane_destroy(s->lane);
    s->lane = lane;
    if (!note_return(run))
        return false;
    log_info("eval", "env server %s is back", lane_url(lane));
    return true;
}

static void *server_thread(void *arg)
{
    struct server *s = arg;
    enum status st;

    do {
        st = lane_run(s->lane);
        note_end(s->run, st);
        if (st != ST_CLOSED && st != ST_IO) // it was not lost, but has done wrong
            return NULL;
        s->n_vain = lane_ended(s->lane) > 0 ? 0 : s->n_vain + 1;
    } while (s->n_vain <= RETURNS_MAX && await_return(s));
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

// Hand the recorder's file what comes next in episode order; with `skip` whatever there is.
static enum status write_demos(struct run *run, bool skip)
{
    for (; run->n_recorded < run->cfg->episodes; run->n_recorded++) {
        if (run->written[run->n_recorded])
            TRY(recorder_write(run->shared.recorder, run->n_recorded));
        else if (!skip)
            break;
    }
    return ST_OK;
}

// The film first: an episode that has a result has its film too.
static enum status write_result(struct run *run, const struct episode_result *result)
{
    if (run->cfg->film)
        TRY(film_make(run->cfg->film, result));
    TRY(journal_add(run->cfg->journal, run->task, result));
    run->written[result->episode] = true;
    if (result->outcome == OUTCOME_ERROR)
        return ST_OK;
    run->sum += result->ret;
    run->n_sum++;
    atomic_store(&run->progress->mean_return, run->sum / (double)run->n_sum);
    return ST_OK;
}

static enum status write_results(struct run *run, const struct episode_result *results, int n)
{
    int i;

    for (i = 0; i < n; i++)
        TRY(write_result(run, &results[i]));
    return run->shared.recorder ? write_demos(run, false) : ST_OK;
}

// Take results that are ready; with `wait`, until there are some, all servers are gone or a tick
// has passed. Returns their number, `*over` = no server is at work any more.
static int take_results(struct run *run, bool wait, struct episode_result *out, bool *over)
{
    struct evaluator_progress *p = run->progress;
    const struct worklist_counts *counts;
    int n = 0;

    pthread_mutex_lock(&run->shared.mtx);
    while (n < EMIT_MAX && worklist_emit(run->shared.list, &out[n]))
        n++;
    *over = run->n_alive == 0;
    if (n == 0 && !*over && wait)
        (void)cond_wait_until(&run->shared.changed, &run->shared.mtx, deadline_after(TICK_NS));
    counts = worklist_count(run->shared.list);
    atomic_store(&p->done, counts->done);
    atomic_store(&p->errors, counts->errors);
    atomic_store(&p->successes, counts->successes);
    atomic_store(&p->retries, counts->retries);
    atomic_store(&p->returned, counts->returned);
    pthread_mutex_unlock(&run->shared.mtx);
    return n;
}

// Write results until the servers have ended and nothing is left.
static enum status collect(struct run *run, const atomic_bool *stop)
{
    struct episode_result results[EMIT_MAX];
    enum status st = ST_OK;
    bool over = false;
    int n = 0;

    while (!over || n > 0) {
        n = take_results(run, true, results, &over);
        if (st == ST_OK)
            st = write_results(run, results, n);
        if (st != ST_OK || (stop && atomic_load(stop)))
            halt(run);
    }
    atomic_store(&run->over, true);
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

static enum status finish_recorder(struct run *run)
{
    int64_t n;

    if (!run->shared.recorder)
        return ST_OK;
    TRY(write_demos(run, true));
    TRY(recorder_finish(run->shared.recorder, &n));
    if (n == 0)
        log_warn("eval", "%s/demos.hdf5 has no demo: no episode of those that are kept",
                 run->cfg->out);
    return ST_OK;
}

// Finish; `st` and the calling thread's last error are how the run ended.
static enum status conclude(struct run *run, enum status st, struct evaluator_summary *out)
{
    const struct evaluator_config *cfg = run->cfg;
    int64_t last = cfg->last > 0 ? cfg->last : cfg->episodes;
    struct error err = *error_last();
    enum status finish = finish_recorder(run);

    if (finish == ST_OK)
        finish = journal_summarise(cfg->journal, run->task, last - cfg->first, out);
    return st != ST_OK ? error_adopt(&err) : finish;
}

static enum status play(struct run *run, const atomic_bool *stop, struct evaluator_summary *out)
{
    enum status st = start_servers(run);

    if (st != ST_OK) {
        struct error err = *error_last();

        halt(run);
        atomic_store(&run->over, true);
        join_servers(run);
        return error_adopt(&err);
    }
    st = collect(run, stop);
    join_servers(run);
    if (st != ST_OK)
        return st;
    return conclude(run, verdict(run), out);
}

static void run_fini(struct run *run)
{
    int i;

    for (i = 0; i < run->n_server; i++)
        lane_destroy(run->servers[i].lane);
    mem_free(run->servers);
    mem_free(run->hosts);
    mem_free(run->spec);
    recorder_close(run->shared.recorder);
    mem_free(run->written);
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
    run.shared.film = cfg->film;
    st = open_servers(&run);
    if (st == ST_OK)
        st = check_servers(&run);
    if (st == ST_OK)
        st = open_journal(&run);
    if (st == ST_OK)
        st = make_list(&run);
    if (st == ST_OK)
        st = open_recorder(&run);
    if (st == ST_OK)
        st = play(&run, stop, out);
    run_fini(&run);
    return st;
}
