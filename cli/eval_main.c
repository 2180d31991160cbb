#include "cli/cmd.h"
#include "cli/eval_film.h"
#include "cli/eval_run.h"
#include "cli/eval_verdict.h"
#include "cli/kwargs.h"
#include "cli/signals.h"
#include "cli/vary.h"

#include "common/base/crc.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "scenes/scene.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define JSON_MAX 8192

struct eval_options {
    char task[OPT_STR_MAX], kwargs[OPT_STR_MAX], suite[OPT_STR_MAX], tasks[OPT_STR_MAX];
    char preset[OPT_STR_MAX], policy_options[OPT_STR_MAX], randomize[OPT_STR_MAX];
    char *plan; // of randomize; owned, NULL = none
    struct evaluator_config eval;
    char shard[OPT_STR_MAX], film_camera[OPT_STR_MAX];
    int64_t connections;
    int64_t num_envs, threads, max_errors, per_task, max_envs, max_models, max_memory, watchdog_ns;
    int record, alignment, films, film_backend;
    double fail_below;
    int64_t keep; // percent of picture tokens that pass, 0 = the policy's
    bool json, record_failures, resume;
};

#define AT(field) offsetof(struct eval_options, field)

static const struct opt table[] = {
    {"policy", OPT_STR, AT(eval.policy), 0, 0, NULL,
     "policy.h5 of a training; 'random' acts uniformly, 'zero' not at all, 'expert' by the task's "
     "script, 'replay:FILE' as in the demos.hdf5 of an earlier --record (episode i plays demo_i; "
     "seed, task and keyword arguments must be those of the recording); or a policy server: "
     "ws://HOST:PORT (openpi), starvla+ws://, roboarena+ws://, vllm-omni+ws://, vla-eval+ws://, "
     "gr00t+tcp://, http:// (/act)",
     NULL},
    {"policy-options", OPT_STR, AT(policy_options), 0, 0, "{}",
     "what a policy server expects, a JSON object or @FILE; see docs/policies.md", NULL},
    {"connections", OPT_INT, AT(connections), 0, 1024, "0",
     "to a policy server, 0 = one an environment", NULL},
    {"task", OPT_STR, AT(task), 0, 0, "", "task; the policy's if not given", NULL},
    {"episodes", OPT_INT, AT(eval.episodes), 1, WORKLIST_MAX, "100", "episodes of --task", NULL},
    {"suite", OPT_STR, AT(suite), 0, 0, "",
     "all tasks of a suite, or of several with commas, instead of one task", NULL},
    {"tasks", OPT_STR, AT(tasks), 0, 0, "", "of these indices alone, such as 0,3,5-7", NULL},
    {"episodes-per-task", OPT_INT, AT(per_task), 1, WORKLIST_MAX, "50",
     "episodes of each task of --suite; episode i starts from init state i", NULL},
    {"max-envs", OPT_INT, AT(max_envs), 0, SPEC_ENV_MAX, "0",
     "environments of --suite in total, 0 = two a CPU", NULL},
    {"max-models", OPT_INT, AT(max_models), 0, 256, "0",
     "tasks of --suite that are open at a time, 0 = one a CPU, with --env all", NULL},
    {"max-memory", OPT_INT, AT(max_memory), 0, 1e9, "0",
     "MiB: another task of --suite is opened only while this process needs less, 0 = 80 % of what "
     "is free at the start",
     NULL},
    {"shard", OPT_STR, AT(shard), 0, 0, "0/1",
     "I/N: play the I-th (from 0) of N parts of the episodes, `simstream merge` puts them "
     "together; "
     "auto = as the task of a Slurm job array",
     NULL},
    {"preset", OPT_STR, AT(preset), 0, 0, "",
     "settings of a published evaluation, seed included: openpi, openvla-oft, lerobot, rlinf, "
     "libero; of a policy server also starvla, vla-eval, gr00t, openvla",
     NULL},
    {"seed", OPT_INT, AT(eval.seed), -1, 9e15, "-1",
     "seed of the episodes; -1 = the preset's, 0 without one", NULL},
    {"greedy", OPT_BOOL, AT(eval.greedy), 0, 1, "true",
     "act by the mean; --greedy=false samples as in training", NULL},
    {"execute", OPT_INT, AT(eval.execute), 0, 256, "0",
     "actions of a chunk that are executed before the next is asked for, 0 = all; of policies of "
     "action chunks",
     NULL},
    {"keep", OPT_INT, AT(keep), 0, 100, "0",
     "percent of picture tokens that pass, 0 = the policy's; of policies of `simstream sft`", NULL},
    {"out", OPT_STR, AT(eval.out), 0, 0, "run/eval",
     "folder for results.jsonl, summary.json, report.html and junit.xml; one that holds an "
     "evaluation is refused without --resume",
     NULL},
    {"resume", OPT_BOOL, AT(resume), 0, 1, "false",
     "go on with the evaluation in --out: what has no result is played", NULL},
    {"kwargs", OPT_STR, AT(kwargs), 0, 0, "", "the task's keyword arguments, a JSON object", NULL},
    VARY_OPT(AT(randomize)),
    {"record", OPT_ENUM, AT(record), 0, 0, "none",
     "write demos.hdf5 beside each results.jsonl, in the layout of LIBERO and robomimic",
     "none|hdf5"},
    {"record-failures", OPT_BOOL, AT(record_failures), 0, 1, "false",
     "record episodes that failed too; otherwise successes alone", NULL},
    {"libero-alignment", OPT_ENUM, AT(alignment), 0, 0, "pre",
     "obs[t] of a recording is the observation before action t, at states[t], or after it as in "
     "LIBERO's own files",
     RECORD_ALIGN_CHOICES},
    {"video", OPT_ENUM, AT(films), 0, 0, "none",
     "films of episodes, OUT/videos/TASK/eval_episode_N.mp4", FILM_CHOICES},
    {"video-camera", OPT_STR, AT(film_camera), 0, 0, "",
     "their view, as --camera of `simstream render`; agentview, else the first camera, 256x256",
     NULL},
    {"video-backend", OPT_ENUM, AT(film_backend), 0, 0, "rays", "who draws them",
     EVAL_FILM_BACKENDS},
    {"num-envs", OPT_INT, AT(num_envs), 1, SPEC_ENV_MAX, "8", "environments of the server inside",
     NULL},
    {"threads", OPT_INT, AT(threads), 0, 256, "0", "its worker threads, 0 = one a CPU", NULL},
    {"env", OPT_STR, AT(eval.env), 0, 0, "",
     "addresses of env servers, separated by commas, instead of the one inside; with --suite one "
     "for each task, in order (or several: first one each, then the second ones, and so on)",
     NULL},
    {"connect-wait", OPT_TIME, AT(eval.connect_wait_ns), 0, 3600e9, "10s",
     "how long to try to reach an env server", NULL},
    {"answer-wait", OPT_TIME, AT(eval.answer_wait_ns), 1e6, 86400e9, "60s",
     "an env server of --env that is silent for longer is given up", NULL},
    {"retries", OPT_INT, AT(eval.retries), 0, 100, "2",
     "tries more for an episode that ends by an error", NULL},
    {"max-errors", OPT_INT, AT(max_errors), 0, WORKLIST_MAX, "0",
     "more episodes than this that end by an error make the command fail", NULL},
    {"fail-below", OPT_REAL, AT(fail_below), 0, 1, "0",
     "a success rate below this makes the command fail, and junit.xml's last test", NULL},
    {"watchdog", OPT_TIME, AT(watchdog_ns), 0, 1e15, "1200s",
     "exit with code 124 if no env has stepped for so long, 0s = never", NULL},
    {"json", OPT_BOOL, AT(json), 0, 1, "false", "print the summary as JSON", NULL},
    {0},
};

// All keyword arguments of the task with the values they have, for the report.
static enum status resolve_kwargs(const struct eval_options *o, const char *name, char *buf,
                                  size_t size)
{
    int member;
    const struct scene_task *task = scene_task_find(name, &member);
    void *params;
    enum status st;

    if (!task)
        return ST_OK; // pool_create says so
    params = mem_alloc(1, task->params_bytes);
    if (!params)
        return ST_NOMEM;
    st = scene_read_kwargs(task, o->kwargs, params);
    if (st == ST_OK)
        st = opts_dump(task->kwargs, params, buf, size);
    mem_free(params);
    return st;
}

// Suites that are evaluated together take the same keywords, so the first one's tell all; nothing
// is known of other people's servers.
static enum status resolve_all_kwargs(const struct eval_options *o, char *buf, size_t size)
{
    char first[OPT_STR_MAX + 8];

    buf[0] = '\0';
    if (o->eval.env[0])
        return ST_OK;
    snprintf(first, sizeof first, "%.*s/0", (int)strcspn(o->suite, ","), o->suite);
    return resolve_kwargs(o, o->suite[0] ? first : o->task, buf, size);
}

static bool is_replay(const struct eval_options *o)
{
    return strncmp(o->eval.policy, REPLAY_PREFIX, strlen(REPLAY_PREFIX)) == 0;
}

// What only the env server inside can do.
static enum status check_env(const struct eval_options *o)
{
    if (!o->eval.env[0])
        return ST_OK;
    if (o->record)
        return FAIL(ST_INVAL, "--record with --env: only the env server inside tells the files of "
                              "its task");
    if (o->films)
        return FAIL(ST_INVAL,
                    "--video with --env: only the env server inside has the task's world");
    if (o->kwargs[0])
        return FAIL(ST_INVAL, "--kwargs with --env: the env servers have their keyword arguments");
    return ST_OK;
}

static enum status check_suite(const struct eval_options *o)
{
    if (o->task[0])
        return FAIL(ST_INVAL, "--suite and --task: give one of them");
    if (is_replay(o))
        return FAIL(ST_INVAL, "--suite: a replay is of one task, give --task");
    return ST_OK;
}

static enum status check_plan(const struct eval_options *o)
{
    if (!o->plan)
        return ST_OK;
    if (o->eval.env[0])
        return FAIL(ST_INVAL, "--randomize with --env: the env servers have theirs");
    if (o->record || is_replay(o))
        return FAIL(ST_INVAL, "--randomize: a recording does not hold the envs' models, so that it "
                              "could not be replayed");
    if (o->films)
        return FAIL(ST_INVAL, "--randomize: a film is drawn by the task's own model, not by those "
                              "of the envs");
    return ST_OK;
}

static enum status check(struct eval_options *o, const struct weights *w)
{
    TRY(check_plan(o));
    TRY(check_env(o));
    if (o->suite[0])
        return check_suite(o);
    if (!o->eval.env[0] && !o->task[0]) {
        if (!w || !w->task[0])
            return FAIL(ST_INVAL, "policy '%s' names no task, --task is needed", o->eval.policy);
        snprintf(o->task, sizeof o->task, "%s", w->task);
    }
    o->eval.task = o->task;
    return ST_OK;
}

// Does the task offer what recording needs? The task may be unknown; pool_create says so.
static enum status check_record(const struct eval_options *o)
{
    int member;
    const struct scene_task *task = scene_task_find(o->task, &member);
    const struct opt *k;

    for (k = task ? task->kwargs : NULL; k && k->name && strcmp(k->name, "sim_state") != 0;)
        k++;
    if (k && !k->name)
        return FAIL(ST_INVAL,
                    "%s: %s does not give the simulator's state; LIBERO's tasks and "
                    "tabletop do",
                    o->record ? "--record" : "--policy=replay", o->task);
    return ST_OK;
}

static void print_table(const struct eval_options *o, const struct evaluator_summary *s)
{
    printf("policy    %s\n", o->eval.policy);
    if (o->task[0])
        printf("task      %s\n", o->task);
    if (o->suite[0])
        printf("suite     %s\n", o->suite);
    printf("episodes  %lld done, %lld ended by an error%s\n", (long long)s->episodes,
           (long long)s->errors, s->complete ? "" : "  (incomplete)");
    if (!o->suite[0])
        printf("return    %.4g  (95 %% interval %.4g to %.4g; std %.4g, min %.4g, max %.4g)\n",
               s->return_mean, s->return_low, s->return_high, s->return_std, s->return_min,
               s->return_max);
    printf("length    %.1f steps\n", s->length_mean);
    eval_print_success(s);
    eval_print_report(o->eval.out);
    if (o->record)
        printf("recorded  %s/%sdemos.hdf5\n", o->eval.out, o->suite[0] ? "TASK/" : "");
    if (o->films)
        printf("films     %s/videos/\n", o->eval.out);
}

static int conclude(const struct eval_options *o, const struct evaluator_summary *s)
{
    if (!s->complete) {
        fprintf(stderr, "simstream: stopped after %lld of %lld episodes, --resume goes on\n",
                (long long)(s->episodes + s->errors), (long long)s->wanted);
        return EXIT_FAILED;
    }
    return eval_verdict(s, o->max_errors, o->fail_below);
}

static enum status check_expert(const struct eval_options *o)
{
    int member;
    const struct scene_task *task = scene_task_find(o->task, &member);

    if (task && !task->members)
        return FAIL(ST_INVAL,
                    "--policy=expert: %s has no expert, only the tasks of suites have one",
                    o->task);
    return ST_OK;
}

// The environment's preset, and its seed.
static enum status apply_scene_preset(struct eval_options *o, const char *name)
{
    const struct scene_preset *preset = name[0] ? scene_preset_find(name) : NULL;
    char member[OPT_STR_MAX + 16];

    if (name[0] && !preset)
        return FAIL(ST_INVAL, "--preset: there is no preset '%s'", name);
    if (preset && o->eval.env[0])
        return FAIL(ST_INVAL, "--preset with --env: the env servers have their keyword arguments");
    if (o->eval.seed < 0)
        o->eval.seed = preset ? preset->seed : 0;
    if (!preset)
        return ST_OK;
    snprintf(member, sizeof member, "\"preset\": \"%s\"", preset->name);
    return kwargs_add(o->kwargs, member);
}

// What --preset and --policy mean for the task, and the preset's seed.
static enum status apply_preset(struct eval_options *o)
{
    if (strcmp(o->eval.policy, "expert") == 0)
        TRY(check_expert(o));
    if (strcmp(o->eval.policy, "expert") == 0 && !o->eval.env[0])
        TRY(kwargs_add(o->kwargs, "\"expert\": true"));
    if (policy_is_address(o->eval.policy))
        return ST_OK; // connect_policy does it
    return apply_scene_preset(o, o->preset);
}

// Environments that act at a time.
static int total_envs(const struct eval_options *o)
{
    int64_t n = o->suite[0] ? (o->max_envs ? o->max_envs : 2 * thread_cpus()) : o->num_envs;
    int64_t most = o->suite[0] ? WORKLIST_MAX : o->eval.episodes;

    return (int)(n < most ? n : most);
}

// Connect to a policy server. Its preset says also how the environment is to be.
static enum status connect_policy(struct eval_options *o, const atomic_bool *stop)
{
    const struct policy_preset *preset = o->preset[0] ? policy_preset_find(o->preset) : NULL;
    struct remote_config cfg = {.address = o->eval.policy,
                                .preset = preset ? preset->name : NULL,
                                .options = o->policy_options,
                                .key = getenv("SIMSTREAM_POLICY_KEY"),
                                .n_conn = o->connections ? (int)o->connections : total_envs(o),
                                .stop = stop};
    bool inside = !o->eval.env[0]; // other servers have their keyword arguments
    char member[OPT_STR_MAX];

    if (inside)
        TRY(apply_scene_preset(o, preset ? preset->scene : o->preset));
    else if (o->eval.seed < 0)
        o->eval.seed = 0;
    TRY(remote_open(&o->eval.remote, &cfg));
    if (!inside)
        return ST_OK;
    if (preset && preset->kwargs[0])
        TRY(kwargs_add(o->kwargs, preset->kwargs));
    TRY(policy_cameras(remote_options(o->eval.remote), member, sizeof member));
    return member[0] && !strstr(o->kwargs, "\"cameras\"") ? kwargs_add(o->kwargs, member) : ST_OK;
}

// "2/8", or "auto": the task of a Slurm job array.
static enum status read_shard(const struct eval_options *o, int *shard, int *n)
{
    const char *id = getenv("SLURM_ARRAY_TASK_ID"), *min = getenv("SLURM_ARRAY_TASK_MIN");
    const char *count = getenv("SLURM_ARRAY_TASK_COUNT");
    char text[OPT_STR_MAX], *end;

    snprintf(text, sizeof text, "%s", o->shard);
    if (strcmp(text, "auto") == 0 && !(id && min && count))
        return FAIL(ST_INVAL, "--shard=auto: this is no task of a Slurm job array "
                              "(SLURM_ARRAY_TASK_ID, _MIN and _COUNT are not set)");
    if (strcmp(text, "auto") == 0)
        snprintf(text, sizeof text, "%ld/%s", strtol(id, NULL, 10) - strtol(min, NULL, 10), count);
    *shard = (int)strtol(text, &end, 10);
    *n = end > text && *end == '/' ? (int)strtol(end + 1, &end, 10) : 0;
    if (*end || *n < 1 || *n > WORKLIST_MAX || *shard < 0 || *shard >= *n)
        return FAIL(ST_INVAL, "--shard is '%s', expected I/N with I from 0 to N - 1", text);
    return ST_OK;
}

// What identifies the weights that were used, whatever happens to their file meanwhile.
static enum status put_weights(struct json *j, const struct weights *w, bool greedy)
{
    size_t n = weights_blob_bytes(w);
    uint8_t *blob = mem_alloc(n, 1);
    char crc[16];

    if (!blob)
        return ST_NOMEM;
    weights_blob_write(w, blob);
    snprintf(crc, sizeof crc, "%08x", crc32c(0, blob, n));
    mem_free(blob);
    json_int(j, "version", (int64_t)w->version);
    json_str(j, "crc32c", crc);
    json_str(j, "action", greedy ? "mean" : "sampled");
    if (w->vla && w->vla->model.keep < 100)
        json_int(j, "keep", w->vla->model.keep);
    return ST_OK;
}

// What determines the results.
static enum status write_settings(struct json *j, const struct eval_options *o,
                                  const struct weights *w, int64_t episodes)
{
    const char *source = o->eval.policy;

    json_open(j, NULL, '{');
    json_str(j, "schema", "simstream.eval/1");
    json_str(j, "simstream", SIMSTREAM_VERSION);
    json_open(j, "policy", '{');
    if (o->eval.remote && remote_options(o->eval.remote)->name[0])
        source = remote_options(o->eval.remote)->name;
    json_str(j, "source", source);
    if (w)
        TRY(put_weights(j, w, o->eval.greedy));
    if (o->eval.remote)
        json_raw(j, "server", remote_describe(o->eval.remote));
    json_close(j, '}');
    json_int(j, "seed", o->eval.seed);
    json_int(j, "episodes_per_task", episodes);
    json_str(j, "preset", o->preset[0] ? o->preset : "none");
    json_str(j, "suite", o->suite);
    json_str(j, "tasks", o->tasks);
    json_str(j, "task", o->task);
    json_raw(j, "kwargs", o->eval.kwargs[0] ? o->eval.kwargs : "null");
    if (o->plan)
        json_raw(j, "randomize", o->plan);
    json_close(j, '}');
    return json_text(j) ? ST_OK : ST_NOMEM;
}

// Keyword arguments that change no result.
static enum status add_kwargs(struct eval_options *o)
{
    int member;
    const struct scene_task *task = scene_task_find(o->task, &member);

    if (o->record || is_replay(o))
        TRY(kwargs_add(o->kwargs, "\"sim_state\": true"));
    if (o->films && (o->suite[0] || (task && task->members)))
        TRY(kwargs_add(o->kwargs, "\"visual\": true"));
    return ST_OK;
}

static enum status run_all(struct eval_options *o, const struct weights *w, const char *options,
                           const atomic_bool *stop, struct evaluator_summary *out)
{
    static char kwargs[JSON_MAX];
    int n = thread_cpus();
    struct eval_run_config cfg = {
        .suites = o->suite,
        .tasks = o->tasks,
        .task = o->task,
        .base = o->eval,
        .weights = w,
        .kwargs = o->kwargs,
        .randomize = o->plan,
        .options = options,
        .n_env = o->suite[0] ? o->max_envs ? (int)o->max_envs : 2 * n : (int)o->num_envs,
        .n_model = !o->suite[0]     ? 1
                   : o->max_models  ? (int)o->max_models
                   : o->eval.env[0] ? WORKLIST_MAX
                                    : n,
        .n_thread = o->threads ? (int)o->threads : n,
        .memory_mib = (double)o->max_memory,
        .resume = o->resume,
        .record = o->record,
        .record_failures = o->record_failures,
        .record_align = (enum record_align)o->alignment,
        .films = (enum film_which)o->films,
        .film_camera = o->film_camera,
        .film_backend = o->film_backend,
        .watchdog_ns = o->watchdog_ns,
        .fail_below = o->fail_below > 0 ? o->fail_below : NAN,
    };
    enum status st;
    struct json settings;

    if (cfg.n_model > cfg.n_env && !o->eval.env[0])
        cfg.n_model = cfg.n_env;
    if (o->suite[0])
        cfg.base.episodes = o->per_task;
    TRY(read_shard(o, &cfg.shard, &cfg.n_shard));
    TRY(resolve_all_kwargs(o, kwargs, sizeof kwargs));
    cfg.base.kwargs = o->eval.kwargs = kwargs;
    json_init(&settings);
    st = write_settings(&settings, o, w, cfg.base.episodes);
    if (st == ST_OK && !o->eval.env[0])
        st = add_kwargs(o);
    cfg.settings = json_text(&settings);
    if (st == ST_OK)
        st = eval_run(&cfg, stop, o->json, out);
    json_fini(&settings);
    return st;
}

// As many episodes as there are demos, at most.
static enum status open_replay(struct eval_options *o, struct replay **replay)
{
    TRY(replay_open(replay, o->eval.policy + strlen(REPLAY_PREFIX)));
    if (o->eval.episodes > replay_demos(*replay)) {
        o->eval.episodes = replay_demos(*replay);
        log_info("eval", "'%s' has %lld demos: as many episodes", replay_path(*replay),
                 (long long)o->eval.episodes);
    }
    o->eval.replay = *replay;
    return ST_OK;
}

// --keep: another share of picture tokens than the policy's own.
static enum status set_keep(const struct eval_options *o, struct weights *w)
{
    if (o->keep == 0)
        return ST_OK;
    if (!w->vla)
        return FAIL(ST_INVAL,
                    "--keep=%lld is for policies that see pictures as tokens, '%s' does not",
                    (long long)o->keep, o->eval.policy);
    w->vla->model.keep = o->keep;
    return vla_config_check(&w->vla->model);
}

// Weights from a file. What their policy sees of a task, it asks for itself, as long as the user
// does not.
static enum status open_weights(struct eval_options *o, struct weights **w)
{
    const char *own;
    char member[OPT_STR_MAX];

    TRY(weights_load(w, o->eval.policy));
    TRY(set_keep(o, *w));
    own = (*w)->vla ? (*w)->vla->kwargs : "";
    if (o->eval.env[0] || strlen(own) <= 2 || strstr(o->kwargs, "\"cameras\""))
        return ST_OK;
    snprintf(member, sizeof member, "%.*s", (int)strlen(own) - 2, own + 1); // without the braces
    return kwargs_add(o->kwargs, member);
}

static enum status run(struct eval_options *o, struct weights **w, struct replay **replay,
                       const atomic_bool *stop, struct evaluator_summary *out)
{
    static char options[JSON_MAX], noted[2 * JSON_MAX];

    TRY(apply_preset(o));
    if (policy_is_address(o->eval.policy))
        TRY(connect_policy(o, stop));
    if (is_replay(o))
        TRY(open_replay(o, replay));
    if (!evaluator_has_policy(o->eval.policy))
        TRY(open_weights(o, w));
    else if (o->keep > 0)
        return FAIL(ST_INVAL, "--keep=%lld is for policies of `simstream sft`, not for '%s'",
                    (long long)o->keep, o->eval.policy);
    TRY(vary_read(&o->plan, o->randomize));
    TRY(opts_dump(table, o, options, sizeof options));
    TRY(vary_note(noted, sizeof noted, options, o->plan));
    TRY(check(o, *w));
    if (!o->suite[0] && !o->eval.env[0] && (o->record || is_replay(o)))
        TRY(check_record(o));
    return run_all(o, *w, noted, stop, out);
}

int cmd_eval(int argc, char **argv)
{
    struct evaluator_summary summary = {0};
    struct eval_options o;
    struct weights *w = NULL;
    struct replay *replay = NULL;
    enum status st;
    int code;

    memset(&o, 0, sizeof o);
    code =
        cmd_begin(table, &o, "eval --policy=FILE [--task=NAME | --suite=NAME] [--option=value ...]",
                  argc, argv, 0, NULL);
    if (code >= 0)
        return code;
    st = run(&o, &w, &replay, signals_install(), &summary);
    remote_close(o.eval.remote);
    replay_close(replay);
    weights_drop(w);
    mem_free(o.plan);
    if (st == ST_OK && o.json)
        st = cmd_print_file(o.eval.out, "summary.json");
    else if (st == ST_OK)
        print_table(&o, &summary);
    return st == ST_OK ? conclude(&o, &summary) : cmd_fail(st);
}
