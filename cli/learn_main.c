#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "cli/training.h"

#include "learner/learner.h"

#include <string.h>

struct learn_options {
    struct learner_config learner;
    bool json;
};

#define AT(field) offsetof(struct learn_options, field)

static const struct opt table[] = {
    {"listen", OPT_STR, AT(learner.listen), 0, 0, "tcp://127.0.0.1:7448",
     "address for rollout workers: tcp://host:port or ipc://path", NULL},
    {"task", OPT_STR, AT(learner.task), 0, 0, "", "task; empty = that of the first worker", NULL},
    SHARED_OPTS(struct learn_options, learner.seed, learner.num_envs, learner.horizon),
    LEARNER_OPTS(struct learn_options, learner),
    UPDATE_OPTS(struct learn_options, learner.update),
    RL_OPTS(struct learn_options, learner.rl),
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the result as JSON", NULL},
    {0},
};

int cmd_learn(int argc, char **argv)
{
    struct learn_options o;
    struct training t;
    char options[4096];
    int code;

    memset(&o, 0, sizeof o);
    code = cmd_begin(table, &o, "learn [--option=value ...]", argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    if (opts_dump(table, &o, options, sizeof options) == ST_OK)
        o.learner.options = options;
    training_init(&t, &o.learner, signals_install());
    t.announce = true;
    t.json = o.json;
    return training_finish(&t, training_watch(&t), o.json);
}
