#include "evaluation/summary.h"

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "evaluation/film.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#ifndef SIMSTREAM_VERSION
#define SIMSTREAM_VERSION "unknown"
#endif

bool summary_film(const struct results *r, const struct result *row,
                  const struct summary_about *about, char *buf, size_t size)
{
    char name[PATH_MAX / 4], path[PATH_MAX + PATH_MAX / 4];
    size_t n = strlen(about->dir);
    int i;

    film_path(name, sizeof name, r->tasks[row->task].name, row->r.episode);
    snprintf(path, sizeof path, "%s/%s", about->dir, name);
    if (file_exists(path)) {
        snprintf(buf, size, "%s", name);
        return true;
    }
    for (i = 0; i < about->n_source; i++) {
        const char *source = about->sources[i];
        bool inside = strncmp(source, about->dir, n) == 0 && source[n] == '/';

        snprintf(path, sizeof path, "%s/%s", source, name);
        if (!file_exists(path))
            continue;
        snprintf(buf, size, "%s", inside ? path + n + 1 : path);
        return true;
    }
    return false;
}

// ------------------------------------------------------------------ summary.json

static void put_interval(struct json *j, const char *key, double low, double high)
{
    json_open(j, key, '[');
    json_real(j, NULL, low);
    json_real(j, NULL, high);
    json_close(j, ']');
}

static void put_counts(struct json *j, const struct evaluator_summary *s)
{
    json_bool(j, "complete", s->complete);
    json_open(j, "episodes", '{');
    json_int(j, "wanted", s->wanted);
    json_int(j, "done", s->episodes);
    json_int(j, "errors", s->errors);
    json_close(j, '}');
    json_open(j, "return", '{');
    json_real(j, "mean", s->return_mean);
    json_real(j, "low", s->return_low);
    json_real(j, "high", s->return_high);
    json_real(j, "std", s->return_std);
    json_real(j, "min", s->return_min);
    json_real(j, "max", s->return_max);
    json_str(j, "interval", "95 %, Student t");
    json_close(j, '}');
    json_real(j, "length_mean", s->length_mean);
    if (!s->has_success)
        return;
    json_open(j, "success", '{');
    json_int(j, "count", s->successes);
    json_real(j, "rate", s->success_rate);
    json_real(j, "low", s->success_low);
    json_real(j, "high", s->success_high);
    json_str(j, "interval", "95 %, Wilson");
    json_close(j, '}');
}

// The names that programs look for which read LeRobot's eval_info.json.
static void put_lerobot(struct json *j, const struct evaluator_summary *s)
{
    json_int(j, "n_episodes", s->episodes);
    if (!s->has_success)
        return;
    json_int(j, "n_success", s->successes);
    json_real(j, "pc_success", 100 * s->success_rate);
    put_interval(j, "pc_success_ci95", 100 * s->success_low, 100 * s->success_high);
}

typedef bool (*keep_fn)(const struct results *, const struct result *, const void *);

// The films of the rows that `keep` accepts.
static void put_films(struct json *j, const struct results *r, const struct summary_about *about,
                      keep_fn keep, const void *arg)
{
    char film[PATH_MAX];
    int64_t k;

    json_open(j, "video_paths", '[');
    for (k = 0; k < r->n; k++)
        if (keep(r, &r->rows[k], arg) && r->rows[k].r.outcome != OUTCOME_ERROR &&
            summary_film(r, &r->rows[k], about, film, sizeof film))
            json_str(j, NULL, film);
    json_close(j, ']');
}

static void put_means(struct json *j, const struct evaluator_summary *s)
{
    json_real(j, "avg_sum_reward", s->return_mean);
    json_real(j, "avg_max_reward", s->max_reward_mean);
    put_lerobot(j, s);
}

enum column { SUM_REWARD, MAX_REWARD, SUCCESS };

// One list of a task's metrics: an entry an episode that did not end by an error.
static void put_column(struct json *j, const char *key, const struct results *r, int task,
                       enum column column)
{
    int64_t k;

    json_open(j, key, '[');
    for (k = 0; k < r->n; k++) {
        const struct result *row = &r->rows[k];

        if (row->task != task || row->r.outcome == OUTCOME_ERROR)
            continue;
        if (column == SUM_REWARD)
            json_real(j, NULL, row->r.ret);
        else if (column == MAX_REWARD)
            json_real(j, NULL, row->r.max_reward);
        else
            json_bool(j, NULL, row->r.outcome == OUTCOME_SUCCESS);
    }
    json_close(j, ']');
}

static enum status put_task(struct json *j, const struct results *r, int i,
                            const struct summary_about *about)
{
    const struct result_task *task = &r->tasks[i];
    struct evaluator_summary s;
    char group[SPEC_NAME_MAX];
    int64_t index;

    TRY(results_summarise(r, results_keep_task, &i, task->episodes, &s));
    results_group(task->name, group, &index);
    json_open(j, NULL, '{');
    json_str(j, "task_group", group);
    json_int(j, "task_id", index);
    json_str(j, "task", task->name);
    json_str(j, "instruction", task->instruction);
    json_open(j, "metrics", '{');
    put_column(j, "sum_rewards", r, i, SUM_REWARD);
    put_column(j, "max_rewards", r, i, MAX_REWARD);
    if (s.has_success)
        put_column(j, "successes", r, i, SUCCESS);
    put_films(j, r, about, results_keep_task, &i);
    json_close(j, '}');
    put_lerobot(j, &s);
    put_counts(j, &s);
    json_str(j, "engine", task->input.engine);
    json_int(j, "max_episode_steps", task->input.max_episode_steps);
    json_real(j, "dt_s", task->input.dt_s);
    if (task->input.bddl_sha256[0])
        json_str(j, "bddl_sha256", task->input.bddl_sha256);
    if (task->input.init_sha256[0])
        json_str(j, "init_sha256", task->input.init_sha256);
    if (task->input.randomize[0])
        json_str(j, "randomize", task->input.randomize);
    json_close(j, '}');
    return ST_OK;
}

static enum status put_groups(struct json *j, const struct results *r,
                              const struct summary_about *about)
{
    char group[SPEC_NAME_MAX], before[SPEC_NAME_MAX] = "", other[SPEC_NAME_MAX];
    struct evaluator_summary s;
    int64_t index, wanted;
    int i, k;

    json_open(j, "per_group", '{');
    for (i = 0; i < r->n_task; i++) {
        results_group(r->tasks[i].name, group, &index);
        if (strcmp(group, before) == 0)
            continue; // the tasks of a suite follow each other
        memcpy(before, group, sizeof before);
        for (wanted = 0, k = i; k < r->n_task; k++) {
            results_group(r->tasks[k].name, other, &index);
            wanted += strcmp(group, other) == 0 ? r->tasks[k].episodes : 0;
        }
        TRY(results_summarise(r, results_keep_group, group, wanted, &s));
        json_open(j, group, '{');
        put_means(j, &s);
        put_films(j, r, about, results_keep_group, group);
        put_counts(j, &s);
        json_close(j, '}');
    }
    json_close(j, '}');
    return ST_OK;
}

static void put_overall(struct json *j, const struct results *r, const struct summary_about *about,
                        const struct evaluator_summary *all)
{
    double wall_s = about->wall_s;

    json_open(j, "overall", '{');
    put_means(j, all);
    put_films(j, r, about, results_keep_all, NULL);
    if (isfinite(wall_s)) {
        json_real(j, "eval_s", round(wall_s * 1e3) / 1e3);
        json_real(j, "eval_ep_s",
                  all->episodes > 0 ? round(wall_s / (double)all->episodes * 1e6) / 1e6 : NAN);
    }
    json_close(j, '}');
}

static enum status put_all(struct json *j, const struct results *r,
                           const struct summary_about *about, const struct evaluator_summary *all)
{
    int i;

    json_open(j, NULL, '{');
    put_counts(j, all);
    json_int(j, "retries", about->retries);
    json_int(j, "returned", about->returned);
    if (isfinite(about->fail_below))
        json_real(j, "fail_below", about->fail_below);
    json_open(j, "per_task", '[');
    for (i = 0; i < r->n_task; i++)
        TRY(put_task(j, r, i, about));
    json_close(j, ']');
    TRY(put_groups(j, r, about));
    put_overall(j, r, about, all);
    if (isfinite(about->wall_s))
        json_real(j, "wall_s", round(about->wall_s * 1e3) / 1e3);
    json_str(j, "out", about->dir);
    json_str(j, "simstream", SIMSTREAM_VERSION);
    json_raw(j, "settings", r->settings);
    json_raw(j, "options", about->options ? about->options : "null");
    json_raw(j, "machine", about->machine ? about->machine : "null");
    if (about->n_source > 0) {
        json_open(j, "merged", '[');
        for (i = 0; i < about->n_source; i++)
            json_str(j, NULL, about->sources[i]);
        json_close(j, ']');
    }
    json_close(j, '}');
    return ST_OK;
}

enum status summary_text(const struct results *r, const struct summary_about *about,
                         struct text *out)
{
    struct evaluator_summary all;
    enum status st;
    struct json j;

    TRY(results_summarise(r, results_keep_all, NULL, about->wanted, &all));
    json_init(&j);
    st = put_all(&j, r, about, &all);
    if (st == ST_OK && json_text(&j))
        text_add(out, "%s\n", json_text(&j));
    else if (st == ST_OK)
        st = ST_NOMEM;
    json_fini(&j);
    return st;
}

// ------------------------------------------------------------------ junit.xml

static void put_xml(struct text *t, const char *text)
{
    const char *p;

    for (p = text; *p; p++) {
        if (*p == '&')
            text_add(t, "&amp;");
        else if (*p == '<')
            text_add(t, "&lt;");
        else if (*p == '"')
            text_add(t, "&quot;");
        else if ((unsigned char)*p >= 0x20)
            text_bytes(t, p, 1);
    }
}

static bool too_low(const struct summary_about *about, const struct evaluator_summary *all)
{
    return isfinite(about->fail_below) && !(all->success_rate >= about->fail_below);
}

// A task is a test: broken if episodes have no verdict. Whether the rate will do is asked of the
// whole.
static enum status put_case(struct text *t, const struct results *r, int i, bool complete)
{
    const struct result_task *task = &r->tasks[i];
    struct evaluator_summary s;
    char group[SPEC_NAME_MAX];
    int64_t index;

    TRY(results_summarise(r, results_keep_task, &i, task->episodes, &s));
    results_group(task->name, group, &index);
    text_add(t, "    <testcase classname=\"");
    put_xml(t, group);
    text_add(t, "\" name=\"");
    put_xml(t, task->name);
    text_add(t, "\" assertions=\"%lld\">\n", (long long)s.episodes);
    if (s.errors > 0)
        text_add(t, "      <error message=\"%lld episodes ended by an error\"/>\n",
                 (long long)s.errors);
    else if (!s.complete && complete)
        text_add(t, "      <error message=\"%lld of %lld episodes have a result\"/>\n",
                 (long long)s.episodes, (long long)s.wanted);
    text_add(t, "      <system-out>");
    put_xml(t, task->instruction);
    if (s.has_success)
        text_add(t, ": %lld of %lld, %.1f %% (95 %% interval %.1f to %.1f %%)",
                 (long long)s.successes, (long long)s.episodes, 100 * s.success_rate,
                 100 * s.success_low, 100 * s.success_high);
    else
        text_add(t, ": return %.6g (95 %% interval %.6g to %.6g)", s.return_mean, s.return_low,
                 s.return_high);
    text_add(t, "</system-out>\n    </testcase>\n");
    return ST_OK;
}

static int broken_tasks(const struct results *r, bool all)
{
    struct evaluator_summary s;
    int i, n = 0;

    for (i = 0; i < r->n_task; i++)
        if (results_summarise(r, results_keep_task, &i, r->tasks[i].episodes, &s) == ST_OK)
            n += s.errors > 0 || (all && !s.complete);
    return n;
}

static enum status junit_text(const struct results *r, const struct summary_about *about,
                              const struct evaluator_summary *all, struct text *t)
{
    bool whole = true; // all tasks are asked for here, not a shard's part of them
    int64_t wanted = 0;
    int i;

    for (i = 0; i < r->n_task; i++)
        wanted += r->tasks[i].episodes;
    whole = about->wanted == wanted;
    text_add(t,
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<testsuites>\n  <testsuite name=\"simstream\" tests=\"%d\" failures=\"%d\" "
             "errors=\"%d\">\n",
             r->n_task + 1, (int)too_low(about, all), broken_tasks(r, whole));
    for (i = 0; i < r->n_task; i++)
        TRY(put_case(t, r, i, whole));
    text_add(t, "    <testcase classname=\"simstream\" name=\"success rate\">\n");
    if (too_low(about, all))
        text_add(t, "      <failure message=\"%lld of %lld succeeded, %.4g was wanted\"/>\n",
                 (long long)all->successes, (long long)all->episodes, about->fail_below);
    text_add(t, "    </testcase>\n  </testsuite>\n</testsuites>\n");
    return ST_OK;
}

enum status summary_write(const struct results *r, const struct summary_about *about,
                          struct evaluator_summary *all)
{
    struct text text, junit;
    enum status st;

    TRY(results_summarise(r, results_keep_all, NULL, about->wanted, all));
    text_init(&text);
    text_init(&junit);
    st = summary_text(r, about, &text);
    if (st == ST_OK)
        st = junit_text(r, about, all, &junit);
    if (st == ST_OK)
        st = results_write_text(about->dir, "junit.xml", &junit);
    if (st == ST_OK)
        st = results_write_text(about->dir, "summary.json", &text);
    text_fini(&text);
    text_fini(&junit);
    return st;
}
