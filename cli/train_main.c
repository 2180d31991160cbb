#include "cli/cmd.h"
#include "cli/embedded.h"
#include "cli/indices.h"
#include "cli/kwargs.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "cli/training.h"
#include "cli/vary.h"

#include "common/base/mem.h"
#include "learner/learner.h"
#include "nn/weights.h"

#include <string.h>

#define OPTIONS_MAX 8192

struct train_options {
    char task[OPT_STR_MAX], kwargs[OPT_STR_MAX], randomize[OPT_STR_MAX];
    char suite[OPT_STR_MAX], tasks[OPT_STR_MAX];
    int64_t threads, batch_max, batch_timeout_ns;
    struct learner_config learner;
    struct rollout_config rollout;
    bool json;
};

// A training in this process: of each task an env server and a rollout worker.
struct run {
    struct train_options *o;
    char *plan;
    int n_task;
    char task[TRAINING_PARTNERS_MAX][SPEC_NAME_MAX];
    struct embedded part[TRAINING_PARTNERS_MAX];
};

#define AT(field) offsetof(struct train_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, "", "task to train on; 'simstream tasks' lists them", NULL},
    {"suite", OPT_STR, AT(suite), 0, 0, "",
     "groups: tasks of a suite instead of one; the policy is told each one's instruction", NULL},
    {"tasks", OPT_STR, AT(tasks), 0, 0, "", "of these indices, such as 0,3,5-7", NULL},
    {"kwargs", OPT_STR, AT(kwargs), 0, 0, "", "the task's keyword arguments, a JSON object", NULL},
    VARY_OPT(AT(randomize)),
    SHARED_OPTS(struct train_options, learner.seed, learner.num_envs, learner.horizon),
    {"threads", OPT_INT, AT(threads), 0, 256, "0", "env worker threads, 0 = one a CPU", NULL},
    {"batch-max", OPT_INT, AT(batch_max), 1, BATCHER_MAX, "16",
     "rows of a batch of the env server at most (B_max)", NULL},
    {"batch-timeout", OPT_TIME, AT(batch_timeout_ns), 0, 3600e9, "2ms",
     "longest wait of a finished row in the env server (T_max)", NULL},
    ROLLOUT_OPTS(struct train_options, rollout),
    LEARNER_OPTS(struct train_options, learner),
    UPDATE_OPTS(struct train_options, learner.update),
    RL_OPTS(struct train_options, learner.rl),
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the result as JSON", NULL},
    {0},
};

// ------------------------------------------------------------------ which tasks

static enum status add_task(struct run *r, const char *name)
{
    if (r->n_task == TRAINING_PARTNERS_MAX)
        return FAIL(ST_INVAL, "more than %d tasks in one process", TRAINING_PARTNERS_MAX);
    for (int i = 0; i < r->n_task; i++)
        if (strcmp(r->task[i], name) == 0)
            return FAIL(ST_INVAL, "--tasks: '%s' names a task twice", r->o->tasks);
    if (snprintf(r->task[r->n_task], sizeof r->task[0], "%s", name) >= (int)sizeof r->task[0])
        return FAIL(ST_INVAL, "the task's name '%.60s...' is too long", name);
    r->n_task++;
    return ST_OK;
}

static enum status add_member(void *arg, long index)
{
    struct run *r = arg;
    char name[OPT_STR_MAX + 32];

    snprintf(name, sizeof name, "%s/%ld", r->o->suite, index);
    return add_task(r, name);
}

static enum status choose_tasks(struct run *r)
{
    const struct train_options *o = r->o;

    if ((o->task[0] != 0) == (o->suite[0] != 0))
        return FAIL(ST_INVAL, "expected --task=NAME, or --suite=NAME with --tasks=LIST");
    if (o->task[0])
        return add_task(r, o->task);
    if (!o->tasks[0])
        return FAIL(ST_INVAL, "--suite=%s without --tasks", o->suite);
    TRY(indices_each(o->tasks, "--tasks", add_member, r));
    if (r->n_task > 1 && o->learner.rl.algo == RL_PPO)
        return FAIL(ST_INVAL, "several tasks with --algo=ppo, expected one of whole episodes");
    if (o->learner.num_envs % (r->n_task * rl_group_size(&o->learner.rl)) != 0)
        return FAIL(
            ST_INVAL, "--num-envs=%lld of %d tasks in groups of %lld: expected a multiple of both",
            (long long)o->learner.num_envs, r->n_task, (long long)rl_group_size(&o->learner.rl));
    return ST_OK;
}

// What a vision-language-action policy sees of a task, and how long its chunks are, it says itself,
// as long as the user does not.
static enum status ask_policy(struct train_options *o)
{
    const char *from = o->learner.resume ? o->learner.out : o->learner.rl.init;
    const char *name = o->learner.resume ? "checkpoint.h5" : "policy.h5";
    size_t n = strlen(from);
    char file[OPT_STR_MAX + 32], member[OPT_STR_MAX];
    struct weights *w;
    enum status st = ST_OK;

    if (o->learner.rl.algo == RL_PPO || !from[0])
        return ST_OK;
    snprintf(file, sizeof file, n > 3 && strcmp(from + n - 3, ".h5") == 0 ? "%s" : "%s/%s", from,
             name);
    TRY(weights_load(&w, file));
    if (w->vla) {
        o->rollout.pixels = true;
        if (o->rollout.action_chunk == 0)
            o->rollout.action_chunk = w->vla->model.chunk;
        n = strlen(w->vla->kwargs);
        if (n > 2 && !strstr(o->kwargs, "\"cameras\"")) {
            snprintf(member, sizeof member, "%.*s", (int)n - 2, w->vla->kwargs + 1);
            st = kwargs_add(o->kwargs, member);
        }
    }
    weights_drop(w);
    return st;
}

// ------------------------------------------------------------------ the parts

static enum status serve_part(struct run *r, int i)
{
    struct train_options *o = r->o;
    struct embedded *e = &r->part[i];
    struct pool_config pool = {.task = r->task[i],
                               .kwargs = o->kwargs,
                               .randomize = r->plan,
                               .n_env = (int)(o->learner.num_envs / r->n_task),
                               .n_thread = (int)o->threads};

    e->rollout = o->rollout;
    return embedded_serve(e, &pool, (int)o->batch_max, o->batch_timeout_ns, e->rollout.env,
                          sizeof e->rollout.env);
}

static enum status start_part(struct run *r, int i)
{
    const struct train_options *o = r->o;
    struct rollout_config *c = &r->part[i].rollout;

    memcpy(c->learner, o->learner.listen, sizeof c->learner);
    c->horizon = o->learner.horizon;
    c->seed = o->learner.seed;
    c->accel = o->learner.update.accel;
    c->env_offset = i * (o->learner.num_envs / r->n_task);
    c->own_starts = r->n_task > 1;
    return embedded_rollout(&r->part[i]);
}

static enum status start(struct run *r, struct training *t)
{
    struct train_options *o = r->o;

    TRY(choose_tasks(r));
    TRY(ask_policy(o));
    if (r->n_task == 1)
        memcpy(o->learner.task, r->task[0], sizeof r->task[0]);
    for (int i = 0; i < r->n_task; i++)
        TRY(serve_part(r, i));
    snprintf(o->learner.listen, sizeof o->learner.listen, "inproc://learner%s",
             r->part[0].rollout.env + strlen("inproc://envs"));
    for (int i = 0; i < r->n_task; i++) {
        TRY(start_part(r, i));
        t->partner_ended[t->n_partner++] = &r->part[i].ended;
    }
    return ST_OK;
}

// The first failure counts: that of the others is but its consequence.
static enum status finish(struct run *r, enum status st)
{
    struct error why = *error_last();

    for (int i = 0; i < r->n_task; i++) {
        enum status other = embedded_finish(&r->part[i]);

        if (st == ST_OK && other != ST_OK && other != ST_CLOSED) {
            st = other;
            why = *error_last();
        }
    }
    return st == ST_OK ? ST_OK : error_adopt(&why);
}

int cmd_train(int argc, char **argv)
{
    static struct train_options o;
    static struct run r;
    static char options[OPTIONS_MAX], noted[OPTIONS_MAX];
    struct training t;
    enum status st;
    int code;

    memset(&o, 0, sizeof o);
    memset(&r, 0, sizeof r);
    r.o = &o;
    noted[0] = '\0';
    code = cmd_begin(table, &o, "train --task=NAME [--option=value ...]", argc, argv, 0, NULL);
    if (code >= 0)
        return code;
    st = vary_read(&r.plan, o.randomize);
    if (st == ST_OK)
        st = opts_dump(table, &o, options, sizeof options);
    if (st == ST_OK)
        st = vary_note(noted, sizeof noted, options, r.plan);
    o.learner.options = noted;
    training_init(&t, &o.learner, signals_install());
    if (st == ST_OK)
        st = start(&r, &t);
    if (st == ST_OK)
        st = training_watch(&t);
    st = finish(&r, st);
    mem_free(r.plan);
    return training_finish(&t, st, o.json);
}
