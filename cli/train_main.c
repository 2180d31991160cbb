#include "cli/cmd.h"
#include "cli/embedded.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "cli/training.h"
#include "cli/vary.h"

#include "common/base/mem.h"
#include "learner/learner.h"

#include <string.h>

struct train_options {
    char task[OPT_STR_MAX], kwargs[OPT_STR_MAX], randomize[OPT_STR_MAX];
    int64_t threads, batch_max, batch_timeout_ns;
    struct learner_config learner;
    struct rollout_config rollout;
    bool json;
};

#define AT(field) offsetof(struct train_options, field)

static const struct opt table[] = {
    {"task", OPT_STR, AT(task), 0, 0, NULL, "task to train on; 'simstream tasks' lists them", NULL},
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

static enum status start(struct train_options *o, const char *plan, struct embedded *e)
{
    struct pool_config pool = {.task = o->task,
                               .kwargs = o->kwargs,
                               .randomize = plan,
                               .n_env = (int)o->learner.num_envs,
                               .n_thread = (int)o->threads};

    TRY(embedded_serve(e, &pool, (int)o->batch_max, o->batch_timeout_ns, o->rollout.env,
                       sizeof o->rollout.env));
    snprintf(o->learner.listen, sizeof o->learner.listen, "inproc://learner%s",
             o->rollout.env + strlen("inproc://envs"));
    memcpy(o->learner.task, o->task, sizeof o->task);
    memcpy(o->rollout.learner, o->learner.listen, sizeof o->rollout.learner);
    o->rollout.horizon = o->learner.horizon;
    o->rollout.seed = o->learner.seed;
    o->rollout.connect_wait_ns = 10 * NS_PER_S;
    o->rollout.accel = o->learner.update.accel;
    e->rollout = o->rollout;
    return embedded_rollout(e);
}

int cmd_train(int argc, char **argv)
{
    struct train_options o;
    struct embedded e = {0};
    struct training t;
    enum status st, other;
    struct error why;
    char options[4096], noted[4096] = "", *plan = NULL;
    int code;

    memset(&o, 0, sizeof o);
    code = cmd_begin(table, &o, "train --task=NAME [--option=value ...]", argc, argv, 0, NULL);
    if (code >= 0)
        return code;
    st = vary_read(&plan, o.randomize);
    if (st == ST_OK)
        st = opts_dump(table, &o, options, sizeof options);
    if (st == ST_OK)
        st = vary_note(noted, sizeof noted, options, plan);
    o.learner.options = noted;
    training_init(&t, &o.learner, signals_install());
    t.partner_ended = &e.ended;
    if (st == ST_OK)
        st = start(&o, plan, &e);
    if (st == ST_OK)
        st = training_watch(&t);
    why = *error_last(); // the worker's end is but a consequence
    other = embedded_finish(&e);
    if (st != ST_OK)
        st = error_adopt(&why);
    else if (other != ST_OK && other != ST_CLOSED)
        st = other;
    mem_free(plan);
    return training_finish(&t, st, o.json);
}
