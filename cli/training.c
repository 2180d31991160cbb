#include "cli/training.h"

#include "cli/cmd.h"
#include "common/base/json.h"
#include "common/base/progress.h"
#include "learner/rl_learner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void training_init(struct training *t, struct learner_config *cfg, const atomic_bool *asked)
{
    memset(t, 0, sizeof *t);
    t->cfg = cfg;
    t->asked = asked;
    atomic_store(&t->progress.mean_return, NAN);
}

static void *learner_thread(void *arg)
{
    struct training *t = arg;

    t->st =
        (t->cfg->rl.algo == RL_PPO ? learner_run : rl_learner_run)(t->cfg, &t->stop, &t->progress);
    if (t->st != ST_OK)
        t->err = *error_last();
    atomic_store(&t->ended, true);
    return NULL;
}

static void draw(const struct training *t)
{
    const struct learner_progress *p = &t->progress;
    double steps = (double)atomic_load(&p->env_steps), rate = atomic_load(&p->steps_per_s);
    double share = steps / (double)t->cfg->total_steps, seconds = atomic_load(&p->seconds);
    double windows = (double)atomic_load(&p->windows) / (double)t->cfg->rl.updates;
    char left[16];

    if (t->cfg->rl.algo != RL_PPO && windows > share)
        share = windows;
    progress_draw(false,
                  "%3.0f%%  steps %.0f  %.0f steps/s  return %.4g  episodes %lld  lag %.2f  "
                  "queue %lld  dropped %lld  left %s",
                  100 * share, steps, rate, atomic_load(&p->mean_return),
                  (long long)atomic_load(&p->episodes), atomic_load(&p->lag),
                  (long long)atomic_load(&p->queue), (long long)atomic_load(&p->dropped),
                  share > 0 ? progress_time(left, seconds * (1 / share - 1)) : "?");
}

// The address, so that rollout workers can be pointed at it when the port was left open.
static void announce(const struct training *t)
{
    struct json j;

    if (!t->json) {
        printf("learner at %s\n", t->progress.url);
    } else {
        json_init(&j);
        json_open(&j, NULL, '{');
        json_str(&j, "url", t->progress.url);
        json_close(&j, '}');
        cmd_print_json(&j);
    }
    fflush(stdout);
}

static bool partner_ended(const struct training *t)
{
    for (int i = 0; i < t->n_partner; i++)
        if (atomic_load(t->partner_ended[i]))
            return true;
    return false;
}

enum status training_watch(struct training *t)
{
    pthread_t thread;

    bool announced = !t->announce;

    TRY(thread_start(&thread, "learner", learner_thread, t));
    while (!atomic_load(&t->ended)) {
        if (!announced && atomic_load(&t->progress.listening)) {
            announce(t);
            announced = true;
        }
        if (atomic_load(t->asked) || partner_ended(t))
            atomic_store(&t->stop, true);
        clock_sleep_ns(50 * NS_PER_MS);
        draw(t);
    }
    pthread_join(thread, NULL);
    progress_end();
    return t->st == ST_OK ? ST_OK : error_adopt(&t->err);
}

int training_finish(struct training *t, enum status st, bool json)
{
    const struct learner_progress *p = &t->progress;
    struct json j;

    if (st != ST_OK)
        return cmd_fail(st);
    if (!json) {
        printf("%lld env steps, %lld updates, %lld episodes, mean return of the last 100: %.4g, "
               "%.1f s of training\npolicy: %s/policy.h5\n",
               (long long)p->env_steps, (long long)p->windows, (long long)p->episodes,
               p->mean_return, p->seconds, t->cfg->out);
        return EXIT_DONE;
    }
    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "env_steps", p->env_steps);
    json_int(&j, "updates", p->windows);
    json_int(&j, "episodes", p->episodes);
    json_int(&j, "dropped", p->dropped);
    json_real(&j, "mean_return", p->mean_return);
    json_real(&j, "seconds", p->seconds);
    json_str(&j, "out", t->cfg->out);
    json_close(&j, '}');
    cmd_print_json(&j);
    return EXIT_DONE;
}
