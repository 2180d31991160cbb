#include "learner/rl_window.h"

#include <math.h>

void rl_window_open(struct rl_window *w, const struct groups_count *groups)
{
    w->kept = w->played = 0;
    w->score = w->kept_score = w->success_length = w->failure_length = w->lag = (struct tally){0};
    w->lag_max = 0;
    w->before = *groups;
}

void rl_window_note(struct rl_window *w, const struct episode_head *h, uint64_t version)
{
    double lag = (double)admission_lag(version, h->version_min);

    w->played++;
    if (h->flags & EPISODE_ERROR)
        return;
    w->recent[w->n_recent++ % RL_RECENT] = h->score;
    tally_add(&w->score, h->score);
    tally_add(&w->lag, lag);
    w->lag_max = fmax(w->lag_max, lag);
    tally_add(h->flags & EPISODE_SUCCESS ? &w->success_length : &w->failure_length, h->n_sub);
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

enum status rl_window_write(const struct rl_window *w, const struct rl_report *r,
                            struct metrics *metrics)
{
    const struct groups_count *g = r->groups, *b = &w->before;
    const double groups = (double)(g->kept + g->uniform + g->stale + g->single - b->kept -
                                   b->uniform - b->stale - b->single);
    const struct rl_stats *s = r->stats;
    const bool trained = s->steps > 0;
    const struct metric values[] = {
        {"train/success", mean_or_nan(&w->score)},
        {"train/success_kept", mean_or_nan(&w->kept_score)},
        {"train/success_recent", rl_window_recent(w)},
        {"train/length_success", mean_or_nan(&w->success_length)},
        {"train/length_failure", mean_or_nan(&w->failure_length)},
        {"train/episodes", (double)r->done->episodes},
        {"train/window_played", (double)w->played},
        {"train/window_kept", (double)w->kept},
        {"train/loss", trained ? s->loss : NAN},
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
        {"perf/steps_per_s", r->serve->steps_per_s},
        {"perf/queue", r->serve->queue},
        {"perf/wait_share", r->serve->wait_share},
        {"perf/update_share", r->serve->update_share},
        {"time/seconds", r->done->seconds},
    };

    return metrics_write(metrics, (int64_t)r->done->env_steps, values,
                         (int)(sizeof values / sizeof values[0]));
}
