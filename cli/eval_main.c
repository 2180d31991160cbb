#include "cli/cmd.h"
#include "cli/embedded.h"
#include "cli/signals.h"

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/progress.h"
#include "evaluation/evaluator.h"
#include "scenes/scene.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define JSON_MAX 8192

struct eval_options {
    char task[OPT_STR_MAX], kwargs[OPT_STR_MAX];
    struct evaluator_config eval;
    int64_t num_envs, threads, max_errors;
    bool json;
};

#define AT(field) offsetof(struct eval_options, field)

static const struct opt table[] = {
    {"policy", OPT_STR, AT(eval.policy), 0, 0, NULL,
     "policy.h5 of a training; 'random' acts uniformly, 'zero' not at all", NULL},
    {"task", OPT_STR, AT(task), 0, 0, "", "task; the policy's if not given", NULL},
    {"episodes", OPT_INT, AT(eval.episodes), 1, WORKLIST_MAX, "100", "episodes", NULL},
    {"seed", OPT_INT, AT(eval.seed), 0, 9e15, "0", "seed of the episodes", NULL},
    {"greedy", OPT_BOOL, AT(eval.greedy), 0, 1, "true",
     "act by the mean; --greedy=false samples as in training", NULL},
    {"out", OPT_STR, AT(eval.out), 0, 0, "run/eval",
     "folder for results.jsonl and summary.json; earlier ones there are replaced", NULL},
    {"kwargs", OPT_STR, AT(kwargs), 0, 0, "", "the task's keyword arguments, a JSON object", NULL},
    {"num-envs", OPT_INT, AT(num_envs), 1, SPEC_ENV_MAX, "8", "environments of the server inside",
     NULL},
    {"threads", OPT_INT, AT(threads), 0, 256, "0", "its worker threads, 0 = one a CPU", NULL},
    {"env", OPT_STR, AT(eval.env), 0, 0, "",
     "addresses of env servers, separated by commas, instead of the one inside", NULL},
    {"connect-wait", OPT_TIME, AT(eval.connect_wait_ns), 0, 3600e9, "10s",
     "how long to try to reach an env server", NULL},
    {"answer-wait", OPT_TIME, AT(eval.answer_wait_ns), 1e6, 86400e9, "60s",
     "an env server that is silent for longer is given up", NULL},
    {"retries", OPT_INT, AT(eval.retries), 0, 100, "2",
     "tries more for an episode that ends by an error", NULL},
    {"max-errors", OPT_INT, AT(max_errors), 0, WORKLIST_MAX, "0",
     "more episodes than this that end by an error make the command fail", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the summary as JSON", NULL},
    {0},
};

// The evaluation in its thread, while the main thread draws.
struct evaluation {
    struct evaluator_config *cfg;
    const struct weights *weights;
    const atomic_bool *stop;
    struct evaluator_progress progress;
    struct evaluator_summary summary;
    atomic_bool ended;
    enum status st;
    struct error err;
};

static void *evaluation_thread(void *arg)
{
    struct evaluation *e = arg;

    e->st = evaluator_run(e->cfg, e->weights, e->stop, &e->progress, &e->summary);
    if (e->st != ST_OK)
        e->err = *error_last();
    atomic_store(&e->ended, true);
    return NULL;
}

static void draw(const struct evaluation *e, double seconds)
{
    const struct evaluator_progress *p = &e->progress;
    long long done = atomic_load(&p->done) + atomic_load(&p->errors), n = e->cfg->episodes;
    double share = (double)done / (double)n;
    char left[16];

    progress_draw(false,
                  "%3.0f%%  episodes %lld of %lld  errors %lld  return %.1f  %.0f steps/s  "
                  "left %s",
                  100 * share, done, n, (long long)atomic_load(&p->errors),
                  atomic_load(&p->mean_return),
                  (double)atomic_load(&p->env_steps) / fmax(seconds, 1e-3),
                  done > 0 ? progress_time(left, seconds * (1 / share - 1)) : "?");
}

static enum status evaluate(struct evaluation *e)
{
    int64_t begin_ns = clock_now_ns();
    pthread_t thread;

    atomic_store(&e->progress.mean_return, NAN);
    TRY(thread_start(&thread, "eval", evaluation_thread, e));
    while (!atomic_load(&e->ended)) {
        clock_sleep_ns(20 * NS_PER_MS);
        draw(e, (double)(clock_now_ns() - begin_ns) * 1e-9);
    }
    pthread_join(thread, NULL);
    progress_end();
    return e->st == ST_OK ? ST_OK : error_adopt(&e->err);
}

// All keyword arguments of the task with the values they have, for the report.
static enum status resolve_kwargs(const struct eval_options *o, char *buf, size_t size)
{
    const struct scene_task *task = scene_task_find(o->task);
    void *params;
    enum status st;

    if (!task)
        return ST_OK; // pool_create says so
    params = mem_alloc(1, task->params_bytes);
    if (!params)
        return ST_NOMEM;
    st = opts_defaults(task->kwargs, params);
    if (st == ST_OK)
        st = opts_json(task->kwargs, params, o->kwargs, "--kwargs");
    if (st == ST_OK)
        st = opts_dump(task->kwargs, params, buf, size);
    mem_free(params);
    return st;
}

static enum status check(struct eval_options *o, const struct weights *w)
{
    if (o->eval.env[0] && o->kwargs[0])
        return FAIL(ST_INVAL, "--kwargs with --env: the env servers have their keyword arguments");
    if (!o->eval.env[0] && !o->task[0]) {
        if (!w || !w->task[0])
            return FAIL(ST_INVAL, "policy '%s' names no task, --task is needed", o->eval.policy);
        snprintf(o->task, sizeof o->task, "%s", w->task);
    }
    o->eval.task = o->task;
    return ST_OK;
}

// The env server inside: as many envs as there are episodes at most.
static enum status serve(struct eval_options *o, struct embedded *inside)
{
    int n_env = (int)(o->num_envs < o->eval.episodes ? o->num_envs : o->eval.episodes);
    struct pool_config pool = {
        .task = o->task, .kwargs = o->kwargs, .n_env = n_env, .n_thread = (int)o->threads};

    return embedded_serve(inside, &pool, (n_env + 1) / 2, 2 * NS_PER_MS, o->eval.env,
                          sizeof o->eval.env);
}

static void print_table(const struct eval_options *o, const struct evaluator_summary *s)
{
    printf("policy    %s\n", o->eval.policy);
    if (o->task[0])
        printf("task      %s\n", o->task);
    printf("episodes  %lld done, %lld ended by an error%s\n", (long long)s->episodes,
           (long long)s->errors, s->complete ? "" : "  (incomplete)");
    printf("return    %.4g  (95 %% interval %.4g to %.4g; std %.4g, min %.4g, max %.4g)\n",
           s->return_mean, s->return_low, s->return_high, s->return_std, s->return_min,
           s->return_max);
    printf("length    %.1f steps\n", s->length_mean);
    if (s->has_success)
        printf("success   %.1f %%  (%lld of %lld; 95 %% interval %.1f to %.1f %%)\n",
               100 * s->success_rate, (long long)s->successes, (long long)s->episodes,
               100 * s->success_low, 100 * s->success_high);
    printf("report    %s/summary.json, %s/results.jsonl\n", o->eval.out, o->eval.out);
}

static enum status print_json(const struct eval_options *o)
{
    char path[PATH_MAX], text[2 * JSON_MAX];
    size_t n;
    FILE *f;

    if ((size_t)snprintf(path, sizeof path, "%s/summary.json", o->eval.out) >= sizeof path)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", o->eval.out);
    f = fopen(path, "r");
    if (!f)
        return FAIL(ST_IO, "cannot read '%s'", path);
    while ((n = fread(text, 1, sizeof text, f)) > 0)
        fwrite(text, 1, n, stdout);
    fclose(f);
    return ST_OK;
}

static int conclude(const struct eval_options *o, const struct evaluator_summary *s)
{
    if (!s->complete) {
        fprintf(stderr, "simstream: stopped after %lld of %lld episodes\n",
                (long long)(s->episodes + s->errors), (long long)o->eval.episodes);
        return EXIT_FAILED;
    }
    if (s->errors > o->max_errors) {
        fprintf(stderr, "simstream: %lld episodes ended by an error, --max-errors is %lld\n",
                (long long)s->errors, (long long)o->max_errors);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

static enum status run(struct eval_options *o, struct evaluation *e, struct weights **w)
{
    static char options[JSON_MAX], kwargs[JSON_MAX];
    struct embedded inside = {0};
    enum status st;

    TRY(opts_dump(table, o, options, sizeof options));
    if (strcmp(o->eval.policy, "random") != 0 && strcmp(o->eval.policy, "zero") != 0)
        TRY(weights_load(w, o->eval.policy));
    TRY(check(o, *w));
    o->eval.options = options;
    e->weights = *w;
    e->cfg = &o->eval;
    if (o->eval.env[0])
        return evaluate(e);
    o->eval.kwargs = kwargs;
    st = resolve_kwargs(o, kwargs, sizeof kwargs);
    if (st == ST_OK)
        st = serve(o, &inside);
    if (st == ST_OK)
        st = evaluate(e);
    if (st == ST_OK)
        return embedded_finish(&inside);
    e->err = *error_last();
    (void)embedded_finish(&inside);
    return error_adopt(&e->err);
}

int cmd_eval(int argc, char **argv)
{
    struct eval_options o;
    struct evaluation e;
    struct weights *w = NULL;
    enum status st;
    int code;

    memset(&o, 0, sizeof o);
    memset(&e, 0, sizeof e);
    code = cmd_begin(table, &o, "eval --policy=FILE [--option=value ...]", argc, argv, 0, NULL);
    if (code >= 0)
        return code;
    e.stop = signals_install();
    st = run(&o, &e, &w);
    weights_drop(w);
    if (st == ST_OK && o.json)
        st = print_json(&o);
    else if (st == ST_OK)
        print_table(&o, &e.summary);
    return st == ST_OK ? conclude(&o, &e.summary) : cmd_fail(st);
}
