#include "learner/rl_learner.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "learner/rl_start.h"
#include "learner/rl_window.h"

#include <stdio.h>
#include <string.h>

// Instructions live as long as the learner: episodes of workers that are gone point to them.
struct instruction {
    char text[SPEC_TEXT_MAX];
    struct instruction *next;
};

struct learner {
    struct serve s;
    struct weights *initial; // NULL: a new policy
    struct rl_updater *updater;
    struct groups *groups;
    struct instruction *instructions;
    uint64_t *next;          // (num_envs) index of the first episode that the env has not sent
    struct rl_window window; // the present one
    struct rl_stats stats;   // of the last one
};

static const struct weights *weights(const void *self)
{
    const struct learner *l = self;

    return l->updater ? rl_weights(l->updater) : NULL;
}

// ------------------------------------------------------------------ start and members

static enum status start(void *self, const struct join *j)
{
    struct learner *l = self;
    const struct learner_config *cfg = l->s.cfg;

    TRY(rl_start_updater(&l->updater, cfg, l->initial, j, &l->s.done));
    for (int64_t i = 0; i < cfg->num_envs; i++)
        l->next[i] = l->s.done.next_episode;
    return ST_OK;
}

static enum status note_instruction(struct learner *l, const char *text)
{
    struct instruction *i;

    for (i = l->instructions; i; i = i->next)
        if (strcmp(i->text, text) == 0)
            return ST_OK;
    i = mem_alloc(1, sizeof *i);
    if (!i)
        return ST_NOMEM;
    snprintf(i->text, sizeof i->text, "%s", text);
    i->next = l->instructions;
    l->instructions = i;
    return ST_OK;
}

static const char *find_instruction(const struct learner *l, const char *text)
{
    const struct instruction *i = l->instructions;

    while (i && strcmp(i->text, text) != 0)
        i = i->next;
    return i ? i->text : "";
}

static enum status join(void *self, struct member *m)
{
    struct learner *l = self;

    for (uint32_t i = 0; i < m->join.n_env; i++)
        if (l->next[m->join.env_first + i] > m->start)
            m->start = l->next[m->join.env_first + i];
    return note_instruction(l, m->join.instruction);
}

// ------------------------------------------------------------------ episodes in

// Takes the item.
static enum status take(void *self, struct hub_item *item)
{
    struct learner *l = self;
    const struct episode_head *h = &item->episode.head;
    const uint64_t version = serve_version(&l->s);
    struct member *m = serve_member(&l->s, item->worker);
    enum group_verdict verdict;
    enum status st;

    if (item->kind != HUB_EPISODE) { // a state, which nobody asked for
        hub_item_free(item);
        return ST_OK;
    }
    if (m) {
        admission_count(&m->admission, h->env - m->join.env_first, false);
        item->join = m->join; // the worker may be gone when its group is complete
    }
    if (h->index + 1 > l->next[h->env])
        l->next[h->env] = h->index + 1;
    l->s.done.episodes++;
    l->s.steps += h->n_sub;
    st = rl_window_note(&l->window, item->join.task, h, version);
    if (st == ST_OK)
        st = groups_add(
            l->groups,
            &(struct group_member){.group = h->group,
                                   .member = h->member,
                                   .version_min = h->n_decision > 0 ? h->version_min : version,
                                   .score = h->score,
                                   .error = h->flags & EPISODE_ERROR,
                                   .episode = item},
            &verdict);
    if (st == ST_OK && verdict == GROUP_HELD)
        return ST_OK;
    l->s.done.dropped++;
    hub_item_free(item);
    return st;
}

// The episodes of a settled group: into the window, or away.
static enum status take_group(struct learner *l, const struct group_result *r)
{
    for (int i = 0; i < r->n; i++) {
        struct hub_item *item = r->member[i].episode;
        struct msg *m = item->m;
        enum status st = ST_OK;

        if (r->fate == GROUP_KEPT && !r->member[i].error) {
            rl_window_keep(&l->window, item->join.task, r->member[i].score);
            item->m = NULL;
            st = rl_add(l->updater, m, &item->episode, find_instruction(l, item->join.instruction),
                        r->advantage[i]);
        } else {
            l->s.done.dropped++;
        }
        hub_item_free(item);
        if (st != ST_OK) {
            while (++i < r->n)
                hub_item_free(r->member[i].episode);
            return st;
        }
    }
    return ST_OK;
}

static bool full(const struct learner *l)
{
    const struct rl_config *rl = &l->s.cfg->rl;

    return l->window.kept >= rl->window_episodes ||
           l->window.played >= rl->window_episodes * rl->window_max;
}

// Settled groups into the window; without train-async all of them, else until it is full.
static enum status settle(struct learner *l, enum group_call call)
{
    struct group_result r;
    enum status st = ST_OK;

    while (st == ST_OK && (call != GROUP_WHOLE || !l->s.cfg->train_async || !full(l))) {
        st = groups_take(l->groups, serve_version(&l->s), call, &r);
        if (st == ST_OK)
            st = take_group(l, &r);
    }
    return st == ST_AGAIN ? ST_OK : st;
}

// The window needs more episodes than may come, since groups were dropped: one more for every env.
static enum status grant(struct learner *l)
{
    uint64_t have = (uint64_t)(l->window.kept + groups_waiting(l->groups));

    if (full(l) || l->s.n_joined == 0 ||
        have + serve_coming(&l->s) >= (uint64_t)l->s.cfg->rl.window_episodes)
        return ST_OK;
    return serve_grant(&l->s);
}

static enum status open_window(void *self)
{
    struct learner *l = self;

    if (l->s.cfg->train_async)
        TRY(settle(l, GROUP_WHOLE)); // what is left from before
    return grant(l);
}

// Is the window complete? Without train-async nobody may be under way.
static bool complete(const void *self)
{
    const struct learner *l = self;

    return full(l) && (l->s.cfg->train_async || serve_coming(&l->s) == 0);
}

static enum status arrived(void *self)
{
    struct learner *l = self;

    // in the order of the groups' numbers, once all are there
    if (l->s.cfg->train_async || serve_coming(&l->s) == 0) {
        TRY(settle(l, GROUP_WHOLE));
        if (l->s.cfg->streaming)
            TRY(rl_accumulate(l->updater));
    }
    return grant(l);
}

// Everybody has played what they may, but groups of envs that are gone wait: settle them.
static enum status unblock(void *self)
{
    struct learner *l = self;

    if (l->s.n_joined > 0 && serve_coming(&l->s) == 0 && groups_waiting(l->groups) > 0 && !full(l))
        TRY(settle(l, GROUP_ALL));
    return grant(l);
}

static enum status accumulate(void *self)
{
    struct learner *l = self;

    TRY(settle(l, GROUP_LAST_CALL));
    return rl_accumulate(l->updater);
}

// ------------------------------------------------------------------ the loop

static enum status report(void *self, struct serve_report *r)
{
    struct learner *l = self;
    const struct rl_report all = {.stats = &l->stats,
                                  .done = &l->s.done,
                                  .groups = groups_counts(l->groups),
                                  .serve = r,
                                  .critic = l->s.cfg->rl.algo == RL_CHUNK_PPO};

    r->mean_return = rl_window_recent(&l->window);
    r->lag = tally_mean(&l->window.lag);
    TRY(rl_window_write(&l->window, &all, l->s.metrics));
    rl_window_open(&l->window, all.groups); // episodes may come before it is filled
    return ST_OK;
}

static bool enough(const void *self)
{
    const struct learner *l = self;
    const struct learner_config *cfg = l->s.cfg;
    const struct train_progress *done = &l->s.done;
    bool good =
        l->window.n_recent >= RL_RECENT && rl_window_recent(&l->window) >= cfg->target_return;

    return good || done->windows >= (uint64_t)cfg->rl.updates ||
           done->env_steps >= (uint64_t)cfg->total_steps;
}

static enum status checkpoint(void *self)
{
    struct learner *l = self;
    const struct learner_config *cfg = l->s.cfg;
    char file[OPT_STR_MAX + 32];

    serve_path(&l->s, "checkpoint.h5", file, sizeof file);
    TRY(rl_checkpoint_save(file, &cfg->update, &cfg->rl, l->updater, &l->s.done));
    serve_path(&l->s, "policy.h5", file, sizeof file);
    return weights_save(rl_weights(l->updater), file);
}

static enum status step(void *self)
{
    struct learner *l = self;
    struct train_progress *done = &l->s.done;
    struct weights *w;

    if (l->window.kept == 0)
        log_warn("learner",
                 "window %llu: all groups of %lld episodes were dropped, mean score %.3g",
                 (unsigned long long)done->windows, (long long)l->window.played,
                 tally_mean(&l->window.score));
    TRY(rl_step(l->updater, &w, &l->stats));
    weights_drop(w);
    for (int64_t i = 0; i < l->s.cfg->num_envs; i++)
        if (l->next[i] > done->next_episode)
            done->next_episode = l->next[i];
    return ST_OK;
}

static enum status set_up(struct learner *l)
{
    const struct learner_config *cfg = l->s.cfg;
    const struct rl_config *rl = &cfg->rl;
    const int64_t size = rl_group_size(rl);

    if (cfg->num_envs < 1 || cfg->num_envs % size != 0 || rl->window_episodes % cfg->num_envs != 0)
        return FAIL(ST_INVAL,
                    "--num-envs=%lld with --group-size=%lld and --window-episodes=%lld: expected "
                    "envs in whole groups, and a window of the same number of episodes of each env",
                    (long long)cfg->num_envs, (long long)size, (long long)rl->window_episodes);
    l->s.unit = 1;
    l->s.rounds = (uint64_t)(rl->window_episodes / cfg->num_envs);
    l->s.group_size = (uint32_t)size;
    l->next = mem_alloc((size_t)cfg->num_envs, sizeof l->next[0]);
    if (!l->next)
        return ST_NOMEM;
    TRY(groups_create(&l->groups,
                      &(struct groups_config){.size = (int)size,
                                              .eta = serve_eta(&l->s),
                                              .baseline = (enum group_baseline)(rl->algo - 1)}));
    TRY(rl_start_read(&l->initial, cfg));
    return serve_open(&l->s, &(struct hub_config){.listen = cfg->listen,
                                                  .task = cfg->task,
                                                  .n_env = (uint32_t)cfg->num_envs,
                                                  .conv = cfg->conv,
                                                  .vla = l->initial ? l->initial->vla : NULL,
                                                  .group_size = l->s.group_size});
}

static void tear_down(struct learner *l)
{
    struct group_result r;

    serve_close(&l->s);
    while (l->groups && groups_drain(l->groups, &r) == ST_OK)
        for (int i = 0; i < r.n; i++)
            hub_item_free(r.member[i].episode);
    groups_destroy(l->groups);
    rl_destroy(l->updater); // its episodes point to instructions
    while (l->instructions) {
        struct instruction *i = l->instructions;

        l->instructions = i->next;
        mem_free(i);
    }
    rl_window_fini(&l->window);
    weights_drop(l->initial);
    mem_free(l->next);
}

enum status rl_learner_run(const struct learner_config *cfg, const atomic_bool *stop,
                           struct learner_progress *progress)
{
    static const struct serve_kind kind = {.weights = weights,
                                           .start = start,
                                           .join = join,
                                           .take = take,
                                           .open = open_window,
                                           .complete = complete,
                                           .arrived = arrived,
                                           .idle = unblock,
                                           .accumulate = accumulate,
                                           .step = step,
                                           .report = report,
                                           .enough = enough,
                                           .checkpoint = checkpoint};
    struct learner l = {
        .s = {.cfg = cfg, .stop = stop, .progress = progress, .kind = &kind, .self = &l}};
    enum status st = set_up(&l);

    if (st == ST_OK)
        st = serve_run(&l.s);
    tear_down(&l);
    return st;
}
