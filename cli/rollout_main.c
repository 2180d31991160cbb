#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/signals.h"

#include "common/base/json.h"
#include "common/base/thread.h"
#include "rollout/player.h"
#include "rollout/rollout.h"

struct rollout_options {
    struct rollout_config rollout;
    bool json;
};

#define AT(field) offsetof(struct rollout_options, field)

static const struct opt table[] = {
    {"env", OPT_STR, AT(rollout.env), 0, 0, NULL, "addresses of env servers, separated by commas",
     NULL},
    {"learner", OPT_STR, AT(rollout.learner), 0, 0, NULL, "address of the learner", NULL},
    {"seed", OPT_INT, AT(rollout.seed), 0, 9e15, "1", "seed of everything random", NULL},
    {"num-envs", OPT_INT, AT(rollout.num_envs), 0, 65536, "0",
     "environments to take, 0 = all that are free", NULL},
    {"env-offset", OPT_INT, AT(rollout.env_offset), 0, 65535, "0",
     "number of this worker's first env among all workers' envs", NULL},
    {"horizon", OPT_INT, AT(rollout.horizon), 1, 65536, "32",
     "env steps of a trajectory chunk, the learner's", NULL},
    ROLLOUT_OPTS(struct rollout_options, rollout),
    {"connect-timeout", OPT_TIME, AT(rollout.connect_wait_ns), 0, 3600e9, "30s",
     "how long to try to connect", NULL},
    {"accel-infer", OPT_TIME, AT(rollout.accel.infer_ns), 0, 60e9, "0ns",
     "modelled accelerator: time of an inference", NULL},
    {"accel-infer-row", OPT_TIME, AT(rollout.accel.infer_row_ns), 0, 60e9, "0ns",
     "modelled accelerator: and of each of its rows", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the totals as JSON", NULL},
    {0},
};

int cmd_rollout(int argc, char **argv)
{
    struct rollout_options o = {0}; // not every field has an option
    struct rollout_progress p = {0};
    struct json j;
    enum status st;
    int code = cmd_begin(table, &o, "rollout --env=URL[,URL...] --learner=URL [--option=value ...]",
                         argc, argv, 0, NULL);

    if (code >= 0)
        return code;
    st = (o.rollout.action_chunk > 0 ? player_run : rollout_run)(&o.rollout, signals_install(), &p);
    if (st != ST_OK)
        code = cmd_fail(st);
    if (!o.json) {
        printf("%lld env steps in %lld inference batches, %lld episodes, %lld of them errors\n",
               (long long)p.env_steps, (long long)p.batches, (long long)p.episodes + p.errors,
               (long long)p.errors);
        return st == ST_OK ? EXIT_DONE : code;
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "env_steps", p.env_steps);
    json_int(&j, "inference_batches", p.batches);
    json_int(&j, "inference_rows", p.rows);
    json_int(&j, "episodes", p.episodes);
    json_int(&j, "errors", p.errors);
    json_int(&j, "version", p.version);
    json_close(&j, '}');
    cmd_print_json(&j);
    return st == ST_OK ? EXIT_DONE : code;
}
