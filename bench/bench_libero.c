// LIBERO's tasks against a bare loop over mj_step on the same states: the loop starts from the same
// state and gets the torques that the controller gave, so both compute the same trajectory, and the
// difference is controller, predicates and observation. Also the time of a reset, the memory of
// many envs, and what a second thread brings.
#include "bench/bench.h"

#include "cli/cmd.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "common/base/usage.h"
#include "envserver/sim.h"
#include "scenes/libero/libero.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define REPS_MAX 64
#define N_CTRL   9

struct libero_options {
    char task[OPT_STR_MAX];
    int64_t steps, reps, resets, envs;
    bool json;
};

#define AT(field) offsetof(struct libero_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0,
     "libero_spatial/0,libero_object/0,libero_goal/0,libero_10/0,libero_90/0",
     "tasks, separated by commas", NULL},
    {"steps", OPT_INT, AT(steps), 10, 100000, "100", "env steps of one repetition", NULL},
    {"reps", OPT_INT, AT(reps), 1, REPS_MAX, "5", "repetitions, interleaved", NULL},
    {"resets", OPT_INT, AT(resets), 1, 100000, "20", "resets of one repetition", NULL},
    {"envs", OPT_INT, AT(envs), 1, 4096, "64", "environments whose memory is measured", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "one JSON line a task and implementation", NULL},
    {0},
};

struct figures {
    double bare[REPS_MAX], ours[REPS_MAX], ratio[REPS_MAX], reset_ms[REPS_MAX];
    double two[REPS_MAX],
        two_bare[REPS_MAX]; // what a second thread brings, with a world of its own
    double rss_mb;
};

// One world and the actions and torques of its episode.
struct track {
    struct scene *scene;
    struct sim sim;
    int n;
    double *actions; // (n, 7)
    double *ctrl;    // (n * 25, 9)
    double *info;
};

static void begin(struct track *t)
{
    struct scene_start start = {0, 0, 0};

    (void)sim_reset(&t->sim, &start);
}

// The episode once, torques kept. The calls are those of the driver's step.
static void record(struct track *t)
{
    struct world *w = &t->sim.world;
    struct libero_world *lw = w->scratch;
    const struct libero *l = t->scene->data;
    int i, k;

    begin(t);
    for (i = 0; i < t->n; i++)
        for (k = 0; k < LIBERO_SUBSTEPS; k++) {
            mj_step1(w->model, w->d);
            if (k == 0)
                osc_set_goal(&lw->osc, &l->osc, w->model, w->d, t->actions + i * LIBERO_ACTION,
                             false);
            osc_control(&lw->osc, &l->osc, w->model, w->d, t->actions[i * LIBERO_ACTION + 6]);
            mju_copy(t->ctrl + (i * LIBERO_SUBSTEPS + k) * N_CTRL, w->d->ctrl, N_CTRL);
            mj_step2(w->model, w->d);
        }
}

static enum status track_init(struct track *t, const char *task, int n)
{
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    int i, member;
    const struct scene_task *found = scene_task_find(task, &member);

    memset(t, 0, sizeof *t);
    t->n = n;
    if (found && !found->members)
        return FAIL(ST_INVAL, "task '%s' is none of a suite", task);
    TRY(scene_create(&t->scene, task, "{\"settle_steps\": 0, \"terminate_on_success\": false}"));
    TRY(sim_init(&t->sim, t->scene));
    t->actions = mem_alloc((size_t)n * LIBERO_ACTION, sizeof(double));
    t->ctrl = mem_alloc((size_t)n * LIBERO_SUBSTEPS * N_CTRL, sizeof(double));
    t->info = mem_alloc((size_t)t->scene->n_info, sizeof(double));
    if (!t->actions || !t->ctrl || !t->info)
        return ST_NOMEM;
    for (i = 0; i < n * LIBERO_ACTION; i++)
        t->actions[i] = (float)rng_uniform(&rng, -0.3, 0.3);
    record(t);
    return ST_OK;
}

static void track_fini(struct track *t)
{
    sim_fini(&t->sim);
    scene_destroy(t->scene);
    mem_free(t->actions);
    mem_free(t->ctrl);
    mem_free(t->info);
}

// Env steps per second of mj_step alone.
static double run_bare(struct track *t)
{
    struct world *w = &t->sim.world;
    int64_t t0;
    int i;

    begin(t);
    t0 = clock_now_ns();
    for (i = 0; i < t->n * LIBERO_SUBSTEPS; i++) {
        mju_copy(w->d->ctrl, t->ctrl + i * N_CTRL, N_CTRL);
        mj_step(w->model, w->d);
    }
    return t->n * 1e9 / (double)(clock_now_ns() - t0);
}

static double run_ours(struct track *t, double *obs)
{
    float action[LIBERO_ACTION];
    struct scene_outcome out;
    int64_t t0;
    int i, k;

    begin(t);
    t0 = clock_now_ns();
    for (i = 0; i < t->n; i++) {
        for (k = 0; k < LIBERO_ACTION; k++)
            action[k] = (float)t->actions[i * LIBERO_ACTION + k];
        (void)sim_step(&t->sim, action, &out, t->info);
        sim_observe(&t->sim, obs);
    }
    return t->n * 1e9 / (double)(clock_now_ns() - t0);
}

static double run_resets(struct track *t, int64_t n)
{
    int64_t t0 = clock_now_ns(), i;

    for (i = 0; i < n; i++) {
        struct scene_start start = {0, 0, (uint64_t)i};

        (void)sim_reset(&t->sim, &start);
    }
    return (double)(clock_now_ns() - t0) * 1e-6 / (double)n;
}

// Both threads step a world of their own; sum of their rates.
struct pair {
    struct track *tracks;
    bool bare;
    double *obs[2], rate[2];
};

static void run_pair(void *arg, int i, int n)
{
    struct pair *p = arg;

    (void)n;
    p->rate[i] = p->bare ? run_bare(&p->tracks[i]) : run_ours(&p->tracks[i], p->obs[i]);
}

// Resident memory that `n` more worlds take once each was reset and stepped.
static enum status measure_memory(struct track *t, int n, double *out)
{
    struct sim *sims = mem_alloc((size_t)n, sizeof sims[0]);
    double before = usage_resident_bytes() / 1e6;
    float action[LIBERO_ACTION] = {0};
    struct scene_outcome outcome;
    enum status st = sims ? ST_OK : ST_NOMEM;
    int i, k;

    for (i = 0; i < n && st == ST_OK; i++) {
        struct scene_start start = {0, 0, (uint64_t)i};

        st = sim_init(&sims[i], t->scene);
        if (st == ST_OK)
            (void)sim_reset(&sims[i], &start);
        for (k = 0; k < 10 && st == ST_OK; k++)
            (void)sim_step(&sims[i], action, &outcome, t->info);
    }
    *out = usage_resident_bytes() / 1e6 - before;
    for (i = 0; i < n && sims; i++)
        sim_fini(&sims[i]);
    mem_free(sims);
    return st;
}

static enum status measure(const struct libero_options *o, struct track tracks[2],
                           struct figures *f)
{
    int n_obs = tracks[0].scene->n_obs, i;
    struct pair pair = {.tracks = tracks};
    struct team *team = NULL;
    enum status st;

    for (i = 0; i < 2; i++)
        pair.obs[i] = mem_alloc((size_t)n_obs, sizeof(double));
    st = pair.obs[0] && pair.obs[1] ? team_create(&team, 2) : ST_NOMEM;
    for (i = 0; i < o->reps && st == ST_OK; i++) {
        f->bare[i] = run_bare(&tracks[0]);
        f->ours[i] = run_ours(&tracks[0], pair.obs[0]);
        f->ratio[i] = f->ours[i] / f->bare[i];
        f->reset_ms[i] = run_resets(&tracks[0], o->resets);
        pair.bare = false;
        team_run(team, run_pair, &pair);
        f->two[i] = (pair.rate[0] + pair.rate[1]) / f->ours[i];
        pair.bare = true;
        team_run(team, run_pair, &pair);
        f->two_bare[i] = (pair.rate[0] + pair.rate[1]) / f->bare[i];
    }
    team_destroy(team);
    for (i = 0; i < 2; i++)
        mem_free(pair.obs[i]);
    TRY(st);
    return measure_memory(&tracks[0], (int)o->envs, &f->rss_mb);
}

static void put_impl(const char *task, const char *impl, double *rate, struct figures *f, int n)
{
    struct json j;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "bench", "libero");
    json_str(&j, "task", task);
    json_str(&j, "impl", impl);
    bench_spread(&j, "steps_per_s", rate, n);
    if (rate == f->ours) {
        bench_spread(&j, "ratio", f->ratio, n);
        bench_spread(&j, "two_threads", f->two, n);
        bench_spread(&j, "two_threads_bare", f->two_bare, n);
    }
    bench_spread(&j, "reset_ms", f->reset_ms, n);
    json_real(&j, "rss_mb", f->rss_mb);
    json_close(&j, '}');
    cmd_print_json(&j);
}

static void put(const struct libero_options *o, const char *task, struct figures *f)
{
    int n = (int)o->reps;
    char memory[64];

    if (o->json) {
        put_impl(task, "bare", f->bare, f, n);
        put_impl(task, "simstream", f->ours, f, n);
        return;
    }
    printf("%s (min / median / max)\n", task);
    bench_print_spread("env steps/s, mj_step alone", f->bare, n);
    bench_print_spread("env steps/s, simstream, one core", f->ours, n);
    bench_print_spread("ratio", f->ratio, n);
    bench_print_spread("two threads against one, mj_step alone", f->two_bare, n);
    bench_print_spread("two threads against one, simstream", f->two, n);
    bench_print_spread("reset, ms", f->reset_ms, n);
    snprintf(memory, sizeof memory, "memory of %lld environments, MB", (long long)o->envs);
    printf("  %-44s %9.1f\n", memory, f->rss_mb);
    fflush(stdout);
}

static enum status bench_task(const void *options, const char *task)
{
    const struct libero_options *o = options;
    struct track tracks[2];
    struct figures f;
    enum status st;

    memset(tracks, 0, sizeof tracks);
    memset(&f, 0, sizeof f);
    st = track_init(&tracks[0], task, (int)o->steps);
    if (st == ST_OK)
        st = track_init(&tracks[1], task, (int)o->steps);
    if (st == ST_OK)
        st = measure(o, tracks, &f);
    if (st == ST_OK)
        put(o, task, &f);
    track_fini(&tracks[0]);
    track_fini(&tracks[1]);
    return st;
}

int bench_libero(int argc, char **argv)
{
    struct libero_options o;
    int code = cmd_begin(table, &o, "bench libero [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    return bench_each(o.task, bench_task, &o);
}
