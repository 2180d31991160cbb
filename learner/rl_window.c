#include "learner/rl_window.h"

#include "common/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TASK_METRICS 3                                        // of each task
#define TAG_MAX      (sizeof "task//success" + SPEC_NAME_MAX) // bytes of the longest tag

void rl_window_open(struct rl_window *w, const struct groups_count *groups)
{
    w->kept = w->played = 0;
    w->score = w->kept_score = w->success_length = w->failure_length = w->lag = (struct tally){0};
    w->lag_max = 0;
    w->before = *groups;
    for (int i = 0; i < w->n_task; i++) {
        w->task[i].score = (struct tally){0};
        w->task[i].kept = 0;
    }
}

void rl_window_fini(struct rl_window *w)
{
    mem_free(w->task);
    w->task = NULL;
    w->n_task = 0;
}

static struct rl_task *find_task(const struct rl_window *w, const char *name)
{
    for (int i = 0; i < w->n_task; i++)
        if (strcmp(w->task[i].name, name) == 0)
            return &w->task[i];
    return NULL;
}

static enum status add_task(struct rl_window *w, const char *name)
{
    struct rl_task *task;

    if (!name[0] || find_task(w, name))
        return ST_OK;
    task = mem_resize(w->task, (size_t)w->n_task + 1, sizeof *task);
    if (!task)
        return ST_NOMEM;
    w->task = task;
    task[w->n_task] = (struct rl_task){0};
    snprintf(task[w->n_task++].name, sizeof task->name, "%s", name);
    return ST_OK;
}

enum status rl_window_note(struct rl_window *w, const char *task, const struct episode_head *h,
                           uint64_t version)
{
    double lag = (double)admission_lag(version, h->version_min);

    TRY(add_task(w, task));
    w->played++;
    if (h->flags & EPISODE_ERROR)
        return ST_OK;
    if (task[0])
        tally_add(&find_task(w, task)->score, h->score);
    w->recent[w->n_recent++ % RL_RECENT] = h->score;
    tally_add(&w->score, h->score);
    tally_add(&w->lag, lag);
    w->lag_max = fmax(w->lag_max, lag);
    tally_add(h->flags & EPISODE_SUCCESS ? &w->success_length : &w->failure_length, h->n_sub);
    return ST_OK;
}

void rl_window_keep(struct rl_window *w, const char *task, double score)
{
    struct rl_task *t = find_task(w, task);

    w->kept++;
    tally_add(&w->kept_score, score);
    if (t)
        t->kept++;
}

double rl_window_recent(const struct rl_window *w)
{
    int64_t n = w->n_recent < RL_RECENT ? w->n_recent : RL_RECENT;
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += w->recent[i];
    return n > 0 ? sum / (double)n : NAN;
}

static double mean_or_nan(const struct tally *t)
{
    return t->n > 0 ? tally_mean(t) : NAN;
}

// The metrics of each task, TASK_METRICS each, with their tags.
static void fill_tasks(const struct rl_window *w, char (*tag)[TAG_MAX], struct metric *out)
{
    static const char *const name[TASK_METRICS] = {"success", "played", "kept"};

    for (int i = 0; i < w->n_task; i++) {
        const struct rl_task *t = &w->task[i];
        const double value[TASK_METRICS] = {mean_or_nan(&t->score), t->score.n, (double)t->kept};

        for (int k = 0; k < TASK_METRICS; k++, tag++) {
            snprintf(*tag, TAG_MAX, "task/%s/%s", t->name, name[k]);
            *out++ = (struct metric){*tag, value[k]};
        }
    }
}

enum status rl_window_write(const struct rl_window *w, const struct rl_report *r,
                            struct metrics *metrics)
{
    const struct groups_count *g = r->groups, *b = &w->before;
    const double groups = (double)(g->kept + g->uniform + g->stale + g->single - b->kept -
                                   b->uniform - b->stale - b->single);
    const struct rl_stats *s = r->stats;
    const bool trained = s->steps > 0;
    const struct metric common[] = {
        {"train/success", mean_or_nan(&w->score)},
        {"train/success_kept", mean_or_nan(&w->kept_score)},
        {"train/success_recent", rl_window_recent(w)},
        {"train/length_success", mean_or_nan(&w->success_length)},
        {"train/length_failure", mean_or_nan(&w->failure_length)},
        {"train/episodes", (double)r->done->episodes},
        {"train/window_played", (double)w->played},
        {"train/window_kept", (double)w->kept},
        {"train/loss", trained ? s->loss : NAN},
        {"train/value_loss", trained && r->critic ? s->value_loss : NAN},
        {"train/explained_variance", trained && r->critic ? s->explained_variance : NAN},
        {"train/clip_fraction", trained ? s->clip_fraction : NAN},
        {"train/dual_clip_fraction", trained ? s->dual_fraction : NAN},
        {"train/kl", trained ? s->kl : NAN},
        {"train/log_ratio_max", trained ? s->log_ratio_max : NAN},
        {"train/weight_mean", trained ? s->weight_mean : NAN},
        {"train/weight_max", trained ? s->weight_max : NAN},
        {"train/weight_capped", trained ? s->capped : NAN},
        {"train/ess", trained ? s->ess : NAN},
        {"train/grad_norm", trained ? s->grad_norm : NAN},
        {"train/std", s->std_mean},
        {"train/lr", s->lr},
        {"groups/kept_share", groups > 0 ? (double)(g->kept - b->kept) / groups : NAN},
        {"groups/uniform", (double)(g->uniform - b->uniform)},
        {"groups/stale", (double)(g->stale - b->stale)},
        {"groups/single", (double)(g->single - b->single)},
        {"groups/incomplete", (double)(g->incomplete - b->incomplete)},
        {"groups/late", (double)(g->late + g->twice - b->late - b->twice)},
        {"stale/lag_mean", mean_or_nan(&w->lag)},
        {"stale/lag_max", w->lag_max},
        SERVE_METRICS(r->serve),
        {"time/seconds", r->done->seconds},
    };

    const int n_common = (int)(sizeof common / sizeof common[0]);
    const int n_more = w->n_task > 1 ? TASK_METRICS * w->n_task : 0;
    struct metric *values = mem_alloc((size_t)(n_common + n_more), sizeof *values);
    char(*tag)[TAG_MAX] = mem_alloc((size_t)n_more + 1, sizeof *tag);
    enum status st = ST_NOMEM;

    if (values && tag) {
        memcpy(values, common, sizeof common);
        if (n_more > 0)
            fill_tasks(w, tag, values + n_common);
        st = metrics_write(metrics, (int64_t)r->done->env_steps, values, n_common + n_more);
    }
    mem_free(values);
    mem_free(tag);
    return st;
}
