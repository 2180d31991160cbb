#include "evaluation/results.h"

#include "common/base/config.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "evaluation/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

// ------------------------------------------------------------------ tasks and rows in memory

void results_fini(struct results *r)
{
    int i;

    for (i = 0; i < r->n_cause; i++)
        mem_free(r->causes[i]);
    mem_free(r->causes);
    mem_free(r->settings);
    mem_free(r->tasks);
    mem_free(r->rows);
    memset(r, 0, sizeof *r);
}

enum status results_add_task(struct results *r, const struct result_task *task)
{
    struct result_task *tasks;

    if (results_find_task(r, task->name) >= 0)
        return FAIL(ST_INVAL, "task %s stands twice", task->name);
    tasks = mem_resize(r->tasks, (size_t)r->n_task + 1, sizeof tasks[0]);
    if (!tasks)
        return ST_NOMEM;
    r->tasks = tasks;
    tasks[r->n_task++] = *task;
    return ST_OK;
}

int results_find_task(const struct results *r, const char *name)
{
    int i = r->n_task;

    while (--i >= 0 && strcmp(r->tasks[i].name, name) != 0)
        ;
    return i;
}

// A copy of `cause` that lives as long as `r`; NULL = no memory.
static const char *intern(struct results *r, const char *cause)
{
    char **causes;
    int i;

    for (i = 0; i < r->n_cause; i++)
        if (strcmp(r->causes[i], cause) == 0)
            return r->causes[i];
    causes = mem_resize(r->causes, (size_t)r->n_cause + 1, sizeof causes[0]);
    if (!causes)
        return NULL;
    r->causes = causes;
    causes[r->n_cause] = mem_strdup(cause);
    return causes[r->n_cause] ? causes[r->n_cause++] : NULL;
}

enum status results_add(struct results *r, const struct result *row)
{
    struct result copy = *row;

    if (row->r.cause && !(copy.r.cause = intern(r, row->r.cause)))
        return ST_NOMEM;
    if (r->n == r->cap) {
        int64_t cap = r->cap ? 2 * r->cap : 64;
        struct result *rows = mem_resize(r->rows, (size_t)cap, sizeof rows[0]);

        if (!rows)
            return ST_NOMEM;
        r->rows = rows;
        r->cap = cap;
    }
    r->rows[r->n++] = copy;
    return ST_OK;
}

static int by_item(const void *a, const void *b)
{
    const struct result *x = a, *y = b;

    if (x->task != y->task)
        return x->task < y->task ? -1 : 1;
    return (x->r.episode > y->r.episode) - (x->r.episode < y->r.episode);
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool same_row(const struct result *x, const struct result *y)
{
    const struct episode_result *a = &x->r, *b = &y->r;

    return x->seed == y->seed && a->outcome == b->outcome && same_number(a->ret, b->ret) &&
           same_number(a->max_reward, b->max_reward) && a->length == b->length &&
           a->clipped == b->clipped && a->init_state == b->init_state &&
           a->terminated == b->terminated && a->truncated == b->truncated && a->cause == b->cause;
}

// Of an item's rows the one to keep comes first: a verdict, then the error that had got furthest.
static int by_item_and_rank(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    bool x_error = x->r.outcome == OUTCOME_ERROR, y_error = y->r.outcome == OUTCOME_ERROR;
    int order = by_item(a, b);

    if (order == 0)
        order = x_error - y_error;
    if (order == 0 && x_error)
        order = (y->r.length > x->r.length) - (y->r.length < x->r.length);
    return order == 0 && x_error && x->r.cause && y->r.cause ? strcmp(x->r.cause, y->r.cause)
                                                             : order;
}

enum status results_sort(struct results *r)
{
    int64_t i, n = 0;

    if (r->n > 0)
        qsort(r->rows, (size_t)r->n, sizeof r->rows[0], by_item_and_rank);
    for (i = 0; i < r->n; i++) {
        const struct result *row = &r->rows[i];

        if (n == 0 || by_item(&r->rows[n - 1], row) != 0)
            r->rows[n++] = *row;
        else if (row->r.outcome != OUTCOME_ERROR && !same_row(&r->rows[n - 1], row))
            return FAIL(ST_INVAL, "episode %lld of %s has two results that differ",
                        (long long)row->r.episode, r->tasks[row->task].name);
    }
    r->n = n;
    return ST_OK;
}

void results_group(const char *task, char group[SPEC_NAME_MAX], int64_t *index)
{
    const char *slash = strrchr(task, '/');
    char *end = NULL;

    *index = slash ? strtoll(slash + 1, &end, 10) : 0;
    if (slash && (end == slash + 1 || *end)) {
        slash = NULL;
        *index = 0;
    }
    snprintf(group, SPEC_NAME_MAX, "%.*s", slash ? (int)(slash - task) : SPEC_NAME_MAX - 1, task);
}

// ------------------------------------------------------------------ of the same evaluation?

// Where two texts differ first, with what stands around it.
static enum status differ(const char *path, const char *there, const char *here)
{
    size_t i = 0, from;

    while (there[i] && there[i] == here[i])
        i++;
    from = i > 40 ? i - 40 : 0;
    return FAIL(ST_INVAL,
                "%s/settings.json is of another evaluation: it has '...%.70s...' where this one "
                "has '...%.70s...'",
                path, there + from, here + from);
}

enum status results_check_same(const struct results *a, const char *path, const struct results *b)
{
    int i;

    if (strcmp(a->settings, b->settings) != 0)
        return differ(path, a->settings, b->settings);
    if (a->n_task != b->n_task && a->n_task > 0 && b->n_task > 0)
        return FAIL(ST_INVAL, "%s/tasks.jsonl has %d tasks, expected %d", path, a->n_task,
                    b->n_task);
    for (i = 0; i < a->n_task && i < b->n_task; i++)
        if (strcmp(a->tasks[i].name, b->tasks[i].name) != 0 ||
            a->tasks[i].episodes != b->tasks[i].episodes)
            return FAIL(ST_INVAL, "%s/tasks.jsonl has %lld episodes of %s, expected %lld of %s",
                        path, (long long)a->tasks[i].episodes, a->tasks[i].name,
                        (long long)b->tasks[i].episodes, b->tasks[i].name);
    return ST_OK;
}

bool results_same_input(const struct result_input *a, const struct result_input *b)
{
    return strcmp(a->engine, b->engine) == 0 && a->max_episode_steps == b->max_episode_steps &&
           a->dt_s == b->dt_s && a->has_success == b->has_success &&
           strcmp(a->bddl_sha256, b->bddl_sha256) == 0 &&
           strcmp(a->init_sha256, b->init_sha256) == 0 && strcmp(a->randomize, b->randomize) == 0;
}

static enum status merge_task(struct results *into, int i, const struct result_task *task,
                              const char *path)
{
    if (i >= into->n_task)
        return results_add_task(into, task);
    if (!into->tasks[i].input.engine[0])
        into->tasks[i].input = task->input;
    else if (task->input.engine[0] && !results_same_input(&into->tasks[i].input, &task->input))
        return FAIL(ST_INVAL,
                    "%s/inputs.jsonl: engine, limits or files of %s are not those of the other "
                    "parts",
                    path, task->name);
    return ST_OK;
}

enum status results_merge(struct results *into, const struct results *from, const char *path)
{
    int64_t k;
    int i;

    if (!into->settings)
        into->settings = mem_strdup(from->settings);
    if (!into->settings)
        return ST_NOMEM;
    TRY(results_check_same(from, path, into));
    for (i = 0; i < from->n_task; i++)
        TRY(merge_task(into, i, &from->tasks[i], path));
    for (k = 0; k < from->n; k++)
        TRY(results_add(into, &from->rows[k]));
    if (results_sort(into) != ST_OK)
        return error_prefix("%s", path);
    return ST_OK;
}

// ------------------------------------------------------------------ lines

// Every line is read by a table, so a name, type or number that is not of ours is refused.
struct row_line {
    char task[OPT_STR_MAX], item[OPT_STR_MAX], error[OPT_STR_MAX];
    int64_t episode, seed, stream, length, clipped, init_state;
    double ret, max_reward;
    int outcome;
    bool terminated, truncated, success;
};

#define ROW(field) offsetof(struct row_line, field)

static const struct opt row_table[] = {
    {"item", OPT_STR, ROW(item), 0, 0, "", "", NULL},
    {"task", OPT_STR, ROW(task), 0, 0, "", "", NULL},
    {"episode", OPT_INT, ROW(episode), 0, WORKLIST_MAX - 1, "0", "", NULL},
    {"seed", OPT_INT, ROW(seed), 0, 9e15, "0", "", NULL},
    {"stream", OPT_INT, ROW(stream), 0, 0, "0", "", NULL},
    {"init_state", OPT_INT, ROW(init_state), 0, 1e9, "0", "", NULL},
    {"outcome", OPT_ENUM, ROW(outcome), 0, 0, "done", "", OUTCOME_CHOICES},
    {"return", OPT_REAL, ROW(ret), -INFINITY, INFINITY, "0", "", NULL},
    {"max_reward", OPT_REAL, ROW(max_reward), -INFINITY, INFINITY, "0", "", NULL},
    {"length", OPT_INT, ROW(length), 0, 1e12, "0", "", NULL},
    {"terminated", OPT_BOOL, ROW(terminated), 0, 1, "false", "", NULL},
    {"truncated", OPT_BOOL, ROW(truncated), 0, 1, "false", "", NULL},
    {"success", OPT_BOOL, ROW(success), 0, 1, "false", "", NULL},
    {"error", OPT_STR, ROW(error), 0, 0, "", "", NULL},
    {"clipped", OPT_INT, ROW(clipped), 0, 1e15, "0", "", NULL},
    {0},
};

struct task_line {
    char task[OPT_STR_MAX], instruction[OPT_STR_MAX];
    int64_t episodes;
};

#define TASK(field) offsetof(struct task_line, field)

static const struct opt task_table[] = {
    {"task", OPT_STR, TASK(task), 0, 0, "", "", NULL},
    {"instruction", OPT_STR, TASK(instruction), 0, 0, "", "", NULL},
    {"episodes", OPT_INT, TASK(episodes), 0, WORKLIST_MAX, "0", "", NULL},
    {0},
};

struct input_line {
    char task[OPT_STR_MAX], engine[OPT_STR_MAX], bddl[OPT_STR_MAX], init[OPT_STR_MAX];
    char randomize[OPT_STR_MAX];
    int64_t limit;
    double dt_s;
    bool has_success;
};

#define INPUT(field) offsetof(struct input_line, field)

static const struct opt input_table[] = {
    {"task", OPT_STR, INPUT(task), 0, 0, "", "", NULL},
    {"engine", OPT_STR, INPUT(engine), 0, 0, "", "", NULL},
    {"max_episode_steps", OPT_INT, INPUT(limit), 0, 1e12, "0", "", NULL},
    {"dt_s", OPT_REAL, INPUT(dt_s), 0, 1e9, "0", "", NULL},
    {"has_success", OPT_BOOL, INPUT(has_success), 0, 1, "false", "", NULL},
    {"bddl_sha256", OPT_STR, INPUT(bddl), 0, 0, "", "", NULL},
    {"init_sha256", OPT_STR, INPUT(init), 0, 0, "", "", NULL},
    {"randomize", OPT_STR, INPUT(randomize), 0, 0, "", "", NULL},
    {0},
};

static enum status copy_name(char *out, size_t size, const char *text, const char *what)
{
    if (strlen(text) >= size)
        return FAIL(ST_INVAL, "%s: '%.40s...' is too long, expected at most %zu bytes", what, text,
                    size - 1);
    memcpy(out, text, strlen(text) + 1);
    return ST_OK;
}

static void clear_row(struct row_line *l)
{
    l->clipped = l->init_state = -1;
    l->ret = l->max_reward = NAN;
    l->episode = l->seed = l->length = -1;
    l->outcome = -1;
}

static enum status read_row(struct results *r, const void *line, const char *what)
{
    const struct row_line *l = line;
    struct result row = {
        .task = results_find_task(r, l->task),
        .seed = l->seed,
        .r = {.episode = l->episode,
              .outcome = (enum outcome)l->outcome,
              .ret = l->ret,
              .max_reward = l->max_reward,
              .length = l->length,
              .clipped = l->clipped,
              .init_state = l->init_state,
              .terminated = l->terminated,
              .truncated = l->truncated,
              .cause = l->outcome == OUTCOME_ERROR ? l->error : NULL},
    };

    if (l->episode < 0 || l->seed < 0 || l->length < 0 || l->outcome < 0)
        return FAIL(ST_INVAL, "%s: expected episode, seed, length and outcome", what);
    if (row.task < 0 || l->episode >= r->tasks[row.task].episodes)
        return FAIL(ST_INVAL, "%s: episode %lld of %s is none of tasks.jsonl", what,
                    (long long)l->episode, l->task);
    return results_add(r, &row);
}

static enum status read_task(struct results *r, const void *line, const char *what)
{
    const struct task_line *l = line;
    struct result_task task = {.episodes = l->episodes};

    if (!l->task[0] || l->episodes < 1)
        return FAIL(ST_INVAL, "%s: expected a task and its number of episodes", what);
    TRY(copy_name(task.name, sizeof task.name, l->task, what));
    TRY(copy_name(task.instruction, sizeof task.instruction, l->instruction, what));
    if (results_add_task(r, &task) != ST_OK)
        return error_prefix("%s", what);
    return ST_OK;
}

static enum status read_input(struct results *r, const void *line, const char *what)
{
    const struct input_line *l = line;
    int i = results_find_task(r, l->task);
    struct result_input *in;

    if (i < 0)
        return FAIL(ST_INVAL, "%s: task '%.60s' is none of tasks.jsonl", what, l->task);
    in = &r->tasks[i].input;
    TRY(copy_name(in->engine, sizeof in->engine, l->engine, what));
    TRY(copy_name(in->bddl_sha256, sizeof in->bddl_sha256, l->bddl, what));
    TRY(copy_name(in->init_sha256, sizeof in->init_sha256, l->init, what));
    TRY(copy_name(in->randomize, sizeof in->randomize, l->randomize, what));
    in->max_episode_steps = l->limit;
    in->dt_s = l->dt_s;
    in->has_success = l->has_success;
    return ST_OK;
}

// One line into `line` by its table.
static enum status parse(const struct opt *table, void *line, const char *text, const char *what)
{
    TRY(opts_defaults(table, line));
    if (table == row_table) // numbers that may be missing, or must not be
        clear_row(line);
    return opts_json(table, line, text, what);
}

static enum status read_lines(struct results *r, const char *dir, const char *name,
                              const struct opt *table, void *line,
                              enum status (*take)(struct results *, const void *, const char *))
{
    char path[PATH_MAX], what[PATH_MAX + 32], *text, *p, *end;
    enum status st;
    size_t n;
    int i = 1;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    TRY(file_read(path, &text, &n));
    st = ST_OK;
    for (p = text; st == ST_OK && (end = memchr(p, '\n', n - (size_t)(p - text))); p = end + 1) {
        *end = '\0';
        snprintf(what, sizeof what, "%s, line %d", path, i++);
        if (strspn(p, " \t\r") == strlen(p))
            st = FAIL(ST_INVAL, "%s: expected a JSON object", what);
        if (st == ST_OK)
            st = parse(table, line, p, what);
        if (st == ST_OK)
            st = take(r, line, what);
    }
    mem_free(text);
    return st;
}

static enum status read_settings(struct results *out, const char *dir)
{
    char path[PATH_MAX];
    enum status st;
    size_t n;

    snprintf(path, sizeof path, "%s/settings.json", dir);
    st = file_read(path, &out->settings, &n);
    if (st == ST_MISSING)
        return FAIL(ST_MISSING, "'%s' is no folder of an evaluation: it has no settings.json", dir);
    TRY(st);
    if (strlen(out->settings) != n)
        return FAIL(ST_INVAL, "%s: expected a JSON object, not one with a byte 0", path);
    return config_check_object(out->settings, path);
}

enum status results_lock(const char *dir, int *fd)
{
    TRY(file_make_dir(dir));
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return FAIL_SYS(ST_IO, errno, "cannot open folder '%s'", dir);
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return ST_OK;
    if (errno == EWOULDBLOCK)
        return FAIL(ST_INVAL, "folder '%s' is in use by another evaluation or merge", dir);
    log_warn("eval", "folder '%s' cannot be locked: nothing else may write there", dir);
    return ST_OK;
}

enum status results_read(struct results *out, const char *dir)
{
    struct row_line *row;
    struct task_line task;
    struct input_line input;
    enum status st;

    if (strlen(dir) > PATH_MAX - 64)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", dir);
    st = read_settings(out, dir);
    row = st == ST_OK ? mem_alloc(1, sizeof *row) : NULL;
    if (st == ST_OK)
        st = row ? ST_OK : ST_NOMEM;
    if (st == ST_OK)
        st = read_lines(out, dir, "tasks.jsonl", task_table, &task, read_task);
    if (st == ST_OK)
        st = read_lines(out, dir, "inputs.jsonl", input_table, &input, read_input);
    if (st == ST_OK)
        st = read_lines(out, dir, "results.jsonl", row_table, row, read_row);
    mem_free(row);
    if (st == ST_OK && results_sort(out) != ST_OK)
        st = error_prefix("%s/results.jsonl", dir);
    if (st != ST_OK)
        results_fini(out);
    return st;
}

// ------------------------------------------------------------------ writing

static void put_line(struct json *j, struct text *out)
{
    const char *text;

    json_close(j, '}');
    text = json_text(j);
    if (text)
        text_add(out, "%s\n", text);
    else
        out->failed = true;
    json_fini(j);
}

void results_put_row(const struct results *r, const struct result *row, struct text *out)
{
    const struct result_task *task = &r->tasks[row->task];
    const struct episode_result *e = &row->r;
    char item[SPEC_NAME_MAX + 24];
    struct json j;

    snprintf(item, sizeof item, "%s/%lld", task->name, (long long)e->episode);
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "item", item);
    json_str(&j, "task", task->name);
    json_int(&j, "episode", e->episode);
    json_int(&j, "seed", row->seed);
    json_int(&j, "stream", 0);
    if (e->init_state >= 0)
        json_int(&j, "init_state", e->init_state);
    json_str(&j, "outcome", outcome_name(e->outcome));
    if (isfinite(e->ret))
        json_real(&j, "return", e->ret);
    if (isfinite(e->max_reward))
        json_real(&j, "max_reward", e->max_reward);
    json_int(&j, "length", e->length);
    json_bool(&j, "terminated", e->terminated);
    json_bool(&j, "truncated", e->truncated);
    if (e->outcome == OUTCOME_SUCCESS || e->outcome == OUTCOME_FAILURE)
        json_bool(&j, "success", e->outcome == OUTCOME_SUCCESS);
    if (e->outcome == OUTCOME_ERROR)
        json_str(&j, "error", e->cause ? e->cause : "");
    if (e->clipped >= 0)
        json_int(&j, "clipped", e->clipped);
    put_line(&j, out);
}

void results_put_task(const struct result_task *task, struct text *out)
{
    struct json j;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "task", task->name);
    json_str(&j, "instruction", task->instruction);
    json_int(&j, "episodes", task->episodes);
    put_line(&j, out);
}

void results_put_input(const struct result_task *task, struct text *out)
{
    struct json j;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "task", task->name);
    json_str(&j, "engine", task->input.engine);
    json_int(&j, "max_episode_steps", task->input.max_episode_steps);
    json_real(&j, "dt_s", task->input.dt_s);
    json_bool(&j, "has_success", task->input.has_success);
    if (task->input.bddl_sha256[0])
        json_str(&j, "bddl_sha256", task->input.bddl_sha256);
    if (task->input.init_sha256[0])
        json_str(&j, "init_sha256", task->input.init_sha256);
    if (task->input.randomize[0])
        json_str(&j, "randomize", task->input.randomize);
    put_line(&j, out);
}

enum status results_write_text(const char *dir, const char *name, const struct text *text)
{
    char path[PATH_MAX];

    if (!text_get(text))
        return ST_NOMEM;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", dir);
    return file_write_atomic(path, text_get(text), text->len);
}

enum status results_write(const struct results *r, const char *dir)
{
    struct text settings, tasks, inputs, rows;
    enum status st;
    int64_t k;
    int i;

    text_init(&settings);
    text_init(&tasks);
    text_init(&inputs);
    text_init(&rows);
    text_bytes(&settings, r->settings, strlen(r->settings));
    for (i = 0; i < r->n_task; i++) {
        results_put_task(&r->tasks[i], &tasks);
        if (r->tasks[i].input.engine[0])
            results_put_input(&r->tasks[i], &inputs);
    }
    for (k = 0; k < r->n; k++)
        results_put_row(r, &r->rows[k], &rows);
    st = results_write_text(dir, "settings.json", &settings);
    if (st == ST_OK)
        st = results_write_text(dir, "tasks.jsonl", &tasks);
    if (st == ST_OK)
        st = results_write_text(dir, "inputs.jsonl", &inputs);
    if (st == ST_OK)
        st = results_write_text(dir, "results.jsonl", &rows);
    text_fini(&settings);
    text_fini(&tasks);
    text_fini(&inputs);
    text_fini(&rows);
    return st;
}

// ------------------------------------------------------------------ what they amount to

bool results_keep_all(const struct results *r, const struct result *row, const void *arg)
{
    (void)r;
    (void)row;
    (void)arg;
    return true;
}

bool results_keep_task(const struct results *r, const struct result *row, const void *arg)
{
    (void)r;
    return row->task == *(const int *)arg;
}

bool results_keep_group(const struct results *r, const struct result *row, const void *arg)
{
    char group[SPEC_NAME_MAX];
    int64_t index;

    results_group(r->tasks[row->task].name, group, &index);
    return strcmp(group, arg) == 0;
}

enum status results_summarise(const struct results *r,
                              bool (*keep)(const struct results *, const struct result *,
                                           const void *),
                              const void *arg, int64_t wanted, struct evaluator_summary *out)
{
    double *returns = mem_alloc((size_t)r->n, sizeof returns[0]), lengths = 0, best = 0;
    struct stats_rate success;
    struct stats_mean ret;
    int64_t k;
    int n = 0;

    if (!returns)
        return ST_NOMEM;
    *out = (struct evaluator_summary){.wanted = wanted};
    for (k = 0; k < r->n; k++) {
        const struct result *row = &r->rows[k];

        if (!keep(r, row, arg))
            continue;
        out->has_success |= r->tasks[row->task].input.has_success;
        if (row->r.outcome == OUTCOME_ERROR) {
            out->errors++;
            continue;
        }
        returns[n++] = row->r.ret;
        lengths += (double)row->r.length;
        best += row->r.max_reward;
        out->successes += row->r.outcome == OUTCOME_SUCCESS;
    }
    stats_mean(&ret, returns, n);
    mem_free(returns);
    stats_wilson(&success, (int)out->successes, n);
    out->episodes = n;
    out->complete = n + out->errors == wanted;
    out->return_mean = ret.mean;
    out->return_low = ret.low;
    out->return_high = ret.high;
    out->return_std = ret.std;
    out->return_min = ret.min;
    out->return_max = ret.max;
    out->length_mean = n > 0 ? lengths / n : NAN;
    out->max_reward_mean = n > 0 ? best / n : NAN;
    out->success_rate = out->has_success ? success.rate : NAN;
    out->success_low = out->has_success ? success.low : NAN;
    out->success_high = out->has_success ? success.high : NAN;
    return ST_OK;
}
