#include "evaluation/report.h"

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "evaluation/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef SIMSTREAM_VERSION
#define SIMSTREAM_VERSION "unknown"
#endif

struct report {
    struct report_about about;
    int fd; // results.jsonl
    char dir[PATH_MAX], lines_path[PATH_MAX], summary_path[PATH_MAX];
    double *returns; // (wanted) of the episodes that did not end by an error
    double lengths;  // sum over the same
    int n_done, n_error, n_success;
};

static enum status open_lines(struct report *r, const char *dir)
{
    if ((size_t)snprintf(r->lines_path, PATH_MAX, "%s/results.jsonl", dir) >= PATH_MAX ||
        (size_t)snprintf(r->summary_path, PATH_MAX, "%s/summary.json", dir) >= PATH_MAX)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", dir);
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    TRY(file_make_dir(dir));
    // a summary of other results must not stand beside the new ones
    if (unlink(r->summary_path) != 0 && errno != ENOENT)
        return FAIL_SYS(ST_IO, errno, "cannot remove '%s'", r->summary_path);
    r->fd = open(r->lines_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (r->fd < 0)
        return FAIL_SYS(ST_IO, errno, "cannot open '%s'", r->lines_path);
    return ST_OK;
}

enum status report_open(struct report **out, const char *dir, const struct report_about *about)
{
    struct report *r = mem_alloc(1, sizeof *r);
    enum status st;

    if (!r)
        return ST_NOMEM;
    r->fd = -1;
    r->about = *about;
    r->returns = mem_alloc((size_t)about->wanted, sizeof r->returns[0]);
    st = r->returns ? open_lines(r, dir) : ST_NOMEM;
    if (st != ST_OK) {
        report_close(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

static void count(struct report *r, const struct episode_result *e)
{
    if (e->outcome == OUTCOME_ERROR) {
        r->n_error++;
        return;
    }
    r->returns[r->n_done++] = e->ret;
    r->lengths += (double)e->length;
    r->n_success += e->outcome == OUTCOME_SUCCESS;
}

enum status report_add(struct report *r, const struct episode_result *e)
{
    struct json j;
    enum status st = ST_NOMEM;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "episode", e->episode);
    json_int(&j, "seed", r->about.seed);
    json_int(&j, "stream", 0);
    json_str(&j, "outcome", outcome_name(e->outcome));
    json_real(&j, "return", e->ret);
    json_int(&j, "length", e->length);
    json_bool(&j, "terminated", e->terminated);
    json_bool(&j, "truncated", e->truncated);
    if (r->about.spec->has_success && e->outcome != OUTCOME_ERROR)
        json_bool(&j, "success", e->outcome == OUTCOME_SUCCESS);
    if (e->outcome == OUTCOME_ERROR)
        json_str(&j, "error", e->cause);
    if (r->about.has_weights)
        json_int(&j, "policy_version", (int64_t)r->about.version);
    else
        json_str(&j, "policy", r->about.policy);
    json_close(&j, '}');
    if (json_text(&j)) {
        j.buf[j.len] = '\n'; // in place of the terminator
        st = file_append(r->fd, r->lines_path, j.buf, j.len + 1);
    }
    json_fini(&j);
    if (st == ST_OK)
        count(r, e);
    return st;
}

void report_summarise(const struct report *r, bool complete, struct evaluator_summary *out)
{
    struct stats_mean ret;
    struct stats_rate success;

    stats_mean(&ret, r->returns, r->n_done);
    stats_wilson(&success, r->n_success, r->n_done);
    *out = (struct evaluator_summary){
        .episodes = r->n_done,
        .errors = r->n_error,
        .has_success = r->about.spec->has_success,
        .complete = complete,
        .return_mean = ret.mean,
        .return_low = ret.low,
        .return_high = ret.high,
        .return_std = ret.std,
        .return_min = ret.min,
        .return_max = ret.max,
        .length_mean = r->n_done > 0 ? r->lengths / r->n_done : NAN,
        .success_rate = NAN,
        .success_low = NAN,
        .success_high = NAN,
    };
    if (out->has_success) {
        out->successes = r->n_success;
        out->success_rate = success.rate;
        out->success_low = success.low;
        out->success_high = success.high;
    }
}

static void put_results(struct json *j, const struct evaluator_summary *s)
{
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

static void put_provenance(struct json *j, const struct report_about *a)
{
    json_str(j, "simstream", SIMSTREAM_VERSION);
    json_str(j, "engine", a->spec->engine);
    json_str(j, "task", a->spec->task);
    json_raw(j, "kwargs", a->kwargs[0] ? a->kwargs : "null");
    json_int(j, "max_episode_steps", a->spec->max_episode_steps);
    json_open(j, "policy", '{');
    json_str(j, "source", a->policy);
    if (a->has_weights) {
        char crc[16];

        snprintf(crc, sizeof crc, "%08x", a->crc);
        json_int(j, "version", (int64_t)a->version);
        json_str(j, "crc32c", crc);
        json_str(j, "action", a->greedy ? "mean" : "sampled");
    }
    json_close(j, '}');
    json_int(j, "seed", a->seed);
    json_int(j, "servers", a->n_server);
    json_int(j, "envs", a->n_env);
    json_raw(j, "options", a->options ? a->options : "null");
}

enum status report_finish(struct report *r, const struct evaluator_summary *summary,
                          const struct worklist_counts *counts, double wall_s)
{
    struct json j;
    enum status st = ST_NOMEM;

    json_init(&j);
    json_open(&j, NULL, '{');
    json_bool(&j, "complete", summary->complete);
    json_open(&j, "episodes", '{');
    json_int(&j, "wanted", r->about.wanted);
    json_int(&j, "done", summary->episodes);
    json_int(&j, "errors", summary->errors);
    json_int(&j, "retries", counts->retries);
    json_int(&j, "returned", counts->returned);
    json_close(&j, '}');
    put_results(&j, summary);
    json_real(&j, "wall_s", round(wall_s * 1e3) / 1e3);
    json_str(&j, "out", r->dir);
    put_provenance(&j, &r->about);
    json_close(&j, '}');
    if (json_text(&j)) {
        j.buf[j.len] = '\n';
        st = file_write_atomic(r->summary_path, j.buf, j.len + 1);
    }
    json_fini(&j);
    return st;
}

void report_close(struct report *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    mem_free(r->returns);
    mem_free(r);
}
