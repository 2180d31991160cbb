#include "learner/rl_learner.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/metrics.h"
#include "common/base/thread.h"
#include "learner/admission.h"
#include "learner/hub.h"
#include "learner/rl_start.h"
#include "learner/rl_window.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STOP_WAIT_NS (100 * NS_PER_MS) // how soon *stop is seen

struct member {
    int worker;
    struct join join;
    struct admission admission; // its chunks are episodes
    uint64_t start;             // index of its envs' first episode
    struct member *next;
};

// Instructions live as long as the learner: episodes of workers that are gone point to them.
struct instruction {
    char text[SPEC_TEXT_MAX];
    struct instruction *next;
};

struct learner {
    const struct learner_config *cfg;
    const atomic_bool *stop;
    struct learner_progress *progress;
    struct hub *hub;
    struct weights *initial; // NULL: a new policy
    struct rl_updater *updater;
    struct groups *groups;
    struct metrics *metrics;
    struct rl_progress done;
    struct member *members;
    struct instruction *instructions;
    int64_t n_joined; // envs of the members
    uint64_t *next;   // (num_envs) index of the first episode that the env has not sent

    struct rl_window window; // the present one
    int64_t start_ns, waited_ns, window_ns;
    double seconds_before; // training time of earlier runs
    uint64_t first_window; // windows of earlier runs
};

static uint64_t version(const struct learner *l)
{
    return rl_weights(l->updater)->version;
}

static uint64_t eta(const struct learner *l)
{
    return l->cfg->train_async ? (uint64_t)l->cfg->max_staleness : 0;
}

static void path(const struct learner *l, const char *name, char *buf, size_t size)
{
    if (snprintf(buf, size, "%s/%s", l->cfg->out, name) >= (int)size)
        log_warn("learner", "the path of '%s' is cut off", name);
}

// ------------------------------------------------------------------ weights out

static enum status send_weights(struct learner *l, const struct member *m)
{
    const struct weights *w = rl_weights(l->updater);
    struct weights_head head = {.version = w->version,
                                .admit = m->start + admission_limit(&m->admission, w->version),
                                .blob_bytes = (uint32_t)weights_blob_bytes(w),
                                .group_size = (uint32_t)l->cfg->rl.group_size,
                                .n_env = (uint32_t)l->cfg->num_envs,
                                .start = m->start};
    uint8_t *blob = mem_alloc(1, head.blob_bytes);
    struct msg *msg;
    enum status st;

    if (!blob)
        return ST_NOMEM;
    weights_blob_write(w, blob);
    st = weights_write(&msg, &head, blob);
    mem_free(blob);
    if (st == ST_OK)
        hub_send(l->hub, m->worker, msg);
    return st;
}

static enum status publish(struct learner *l)
{
    for (struct member *m = l->members; m; m = m->next)
        TRY(send_weights(l, m));
    return ST_OK;
}

static void say_bye(struct learner *l)
{
    struct msg *msg;

    for (struct member *m = l->members; m; m = m->next)
        if (msg_new(&msg, MSG_BYE, 0) == ST_OK)
            hub_send(l->hub, m->worker, msg);
}

// ------------------------------------------------------------------ start and members

static enum status make_updater(struct learner *l, const struct join *j)
{
    TRY(rl_start_updater(&l->updater, l->cfg, l->initial, j, &l->done));
    l->seconds_before = l->done.seconds;
    for (int64_t i = 0; i < l->cfg->num_envs; i++)
        l->next[i] = l->done.next;
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

static enum status member_join(struct learner *l, const struct hub_item *item)
{
    struct member *m;

    if (!l->updater)
        TRY(make_updater(l, &item->join));
    TRY(note_instruction(l, item->join.instruction));
    m = mem_alloc(1, sizeof *m);
    if (!m)
        return ST_NOMEM;
    m->worker = item->worker;
    m->join = item->join;
    for (uint32_t i = 0; i < m->join.n_env; i++)
        if (l->next[m->join.env_first + i] > m->start)
            m->start = l->next[m->join.env_first + i];
    m->next = l->members;
    l->members = m;
    l->n_joined += m->join.n_env;
    TRY(admission_init(&m->admission, m->join.n_env, 1, eta(l), version(l)));
    m->admission.rounds = (uint64_t)(l->cfg->rl.window_episodes / l->cfg->num_envs);
    log_info("learner", "worker %d joined with envs %u to %u of %s", m->worker, m->join.env_first,
             m->join.env_first + m->join.n_env - 1, m->join.task);
    return send_weights(l, m);
}

static void member_free(struct member *m)
{
    admission_fini(&m->admission);
    mem_free(m);
}

static struct member *member_find(const struct learner *l, int worker)
{
    struct member *m = l->members;

    while (m && m->worker != worker)
        m = m->next;
    return m;
}

static void member_leave(struct learner *l, int worker)
{
    struct member **at, *m;

    for (at = &l->members; *at && (*at)->worker != worker; at = &(*at)->next)
        ;
    m = *at;
    if (!m)
        return;
    *at = m->next;
    l->n_joined -= m->admission.n_left;
    log_warn("learner", "worker %d with envs %u to %u is gone", worker, m->join.env_first,
             m->join.env_first + m->join.n_env - 1);
    member_free(m);
}

// Envs of a worker are gone, or there again.
static void member_change(struct learner *l, const struct hub_item *item)
{
    struct member *m = member_find(l, item->worker);
    const bool lost = item->kind == HUB_LOST;
    uint32_t before;

    if (!m)
        return;
    before = m->admission.n_left;
    for (uint32_t i = 0; i < item->n_envs; i++) {
        uint32_t env = item->envs[i] - m->join.env_first;

        if (lost)
            admission_lose(&m->admission, env);
        else
            admission_return(&m->admission, env,
                             item->chunks > m->start ? item->chunks - m->start : 0);
    }
    l->n_joined += (int64_t)m->admission.n_left - (int64_t)before;
    log_warn("learner", "worker %d has %s envs, %u of %u are there", m->worker,
             lost ? "lost" : "got back", m->admission.n_left, m->join.n_env);
}

// ------------------------------------------------------------------ episodes in

// Takes the item.
static enum status take_episode(struct learner *l, struct hub_item *item)
{
    const struct episode_head *h = &item->episode.head;
    struct member *m = member_find(l, item->worker);
    enum group_verdict verdict;
    enum status st;

    if (m) {
        admission_count(&m->admission, h->env - m->join.env_first, false);
        item->join = m->join; // the worker may be gone when its group is complete
    }
    if (h->index + 1 > l->next[h->env])
        l->next[h->env] = h->index + 1;
    l->done.episodes++;
    rl_window_note(&l->window, h, version(l));
    st = groups_add(
        l->groups,
        &(struct group_member){.group = h->group,
                               .member = h->member,
                               .version_min = h->n_decision > 0 ? h->version_min : version(l),
                               .score = h->score,
                               .error = h->flags & EPISODE_ERROR,
                               .episode = item},
        &verdict);
    if (st == ST_OK && verdict == GROUP_HELD)
        return ST_OK;
    l->done.dropped++;
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
            l->window.kept++;
            tally_add(&l->window.kept_score, r->member[i].score);
            item->m = NULL;
            st = rl_add(l->updater, m, &item->episode, find_instruction(l, item->join.instruction),
                        r->advantage[i]);
        } else {
            l->done.dropped++;
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
    return l->window.kept >= l->cfg->rl.window_episodes ||
           l->window.played >= l->cfg->rl.window_episodes * l->cfg->rl.window_max;
}

// Settled groups into the window; without train-async all of them, else until it is full.
static enum status settle(struct learner *l, enum group_call call)
{
    struct group_result r;
    enum status st = ST_OK;

    while (st == ST_OK && (call != GROUP_WHOLE || !l->cfg->train_async || !full(l))) {
        st = groups_take(l->groups, version(l), call, &r);
        if (st == ST_OK)
            st = take_group(l, &r);
    }
    return st == ST_AGAIN ? ST_OK : st;
}

// Takes the item.
static enum status handle(struct learner *l, struct hub_item *item)
{
    enum status st = ST_OK;

    switch (item->kind) {
    case HUB_JOINED:
        st = member_join(l, item);
        break;
    case HUB_LEFT:
        member_leave(l, item->worker);
        break;
    case HUB_LOST:
    case HUB_BACK:
        member_change(l, item);
        break;
    case HUB_EPISODE:
        return take_episode(l, item);
    case HUB_STATE: // nobody asked
    case HUB_CHUNK: // not of a hub for episodes
        break;
    }
    hub_item_free(item);
    return st;
}

// Episodes that may still come without another limit.
static uint64_t coming(const struct learner *l)
{
    uint64_t n = 0;

    for (const struct member *m = l->members; m; m = m->next)
        n += admission_open(&m->admission, version(l));
    return n;
}

// The window needs more episodes than may come, since groups were dropped: one more for every env.
static enum status grant(struct learner *l)
{
    uint64_t have = (uint64_t)(l->window.kept + groups_waiting(l->groups));

    if (full(l) || l->n_joined == 0 || have + coming(l) >= (uint64_t)l->cfg->rl.window_episodes)
        return ST_OK;
    for (struct member *m = l->members; m; m = m->next) {
        admission_grant(&m->admission);
        TRY(send_weights(l, m));
    }
    return ST_OK;
}

// Is the window complete? Without train-async nobody may be under way.
static bool complete(const struct learner *l)
{
    return l->updater && full(l) && (l->cfg->train_async || coming(l) == 0);
}

// Everybody has played what they may, but groups of envs that are gone wait: settle them.
static enum status unblock(struct learner *l)
{
    if (l->updater && l->n_joined > 0 && coming(l) == 0 && groups_waiting(l->groups) > 0 &&
        !full(l)) {
        TRY(settle(l, GROUP_ALL));
        return grant(l);
    }
    return ST_OK;
}

// Fill the present window. ST_CLOSED if *stop was set first.
static enum status collect(struct learner *l)
{
    struct hub_item *item;
    enum status st;

    if (l->cfg->train_async)
        TRY(settle(l, GROUP_WHOLE)); // what is left from before
    while (!complete(l)) {
        int64_t t = clock_now_ns();

        if (atomic_load(l->stop))
            return ST_CLOSED;
        TRY(grant(l));
        st = hub_next(l->hub, &item, STOP_WAIT_NS);
        l->waited_ns += clock_now_ns() - t;
        if (st == ST_TIMEOUT) {
            TRY(unblock(l));
            continue;
        }
        TRY(st);
        TRY(handle(l, item));
        if (!l->updater || (!l->cfg->train_async && coming(l) > 0))
            continue; // in the order of the groups' numbers, once all are there
        TRY(settle(l, GROUP_WHOLE));
        if (l->cfg->streaming)
            TRY(rl_accumulate(l->updater));
    }
    TRY(settle(l, GROUP_LAST_CALL));
    return rl_accumulate(l->updater);
}

static enum status wait_for_envs(struct learner *l)
{
    struct hub_item *item;
    enum status st;

    while (l->n_joined < l->cfg->num_envs) {
        if (atomic_load(l->stop))
            return ST_CLOSED;
        st = hub_next(l->hub, &item, STOP_WAIT_NS);
        if (st == ST_OK)
            st = handle(l, item);
        if (st != ST_OK && st != ST_TIMEOUT)
            return st;
    }
    return ST_OK;
}

// ------------------------------------------------------------------ the loop

static enum status report(struct learner *l, const struct rl_stats *s, int64_t update_ns)
{
    const int64_t now = clock_now_ns();
    const double window_s = (double)(now - l->window_ns) * 1e-9;
    const double rate = (double)l->window.steps / window_s, score = rl_window_recent(&l->window);
    const struct rl_report r = {.stats = s,
                                .done = &l->done,
                                .groups = groups_counts(l->groups),
                                .steps_per_s = rate,
                                .queue = hub_length(l->hub),
                                .wait_share = (double)l->waited_ns * 1e-9 / window_s,
                                .update_share = (double)update_ns * 1e-9 / window_s};

    atomic_store(&l->progress->windows, (long long)l->done.windows);
    atomic_store(&l->progress->env_steps, (long long)l->done.env_steps);
    atomic_store(&l->progress->episodes, (long long)l->done.episodes);
    atomic_store(&l->progress->dropped, (long long)l->done.dropped);
    atomic_store(&l->progress->queue, r.queue);
    atomic_store(&l->progress->mean_return, score);
    atomic_store(&l->progress->lag, tally_mean(&l->window.lag));
    atomic_store(&l->progress->steps_per_s, rate);
    atomic_store(&l->progress->seconds, l->done.seconds);
    l->window_ns = now;
    return rl_window_write(&l->window, &r, l->metrics);
}

static bool finished(const struct learner *l)
{
    const struct learner_config *cfg = l->cfg;
    bool good =
        l->window.n_recent >= RL_RECENT && rl_window_recent(&l->window) >= cfg->target_return;

    return good || l->done.windows >= (uint64_t)cfg->rl.updates ||
           l->done.env_steps >= (uint64_t)cfg->total_steps ||
           (cfg->max_seconds > 0 && l->done.seconds >= cfg->max_seconds);
}

static enum status checkpoint(struct learner *l)
{
    char file[OPT_STR_MAX + 32];

    path(l, "checkpoint.h5", file, sizeof file);
    TRY(rl_checkpoint_save(file, &l->cfg->update, &l->cfg->rl, l->updater, &l->done));
    path(l, "policy.h5", file, sizeof file);
    return weights_save(rl_weights(l->updater), file);
}

static enum status close_window(struct learner *l)
{
    int64_t t = clock_now_ns();
    struct rl_stats stats;
    struct weights *w;

    if (l->window.kept == 0)
        log_warn("learner",
                 "window %llu: all groups of %lld episodes were dropped, mean score %.3g",
                 (unsigned long long)l->done.windows, (long long)l->window.played,
                 tally_mean(&l->window.score));
    TRY(rl_step(l->updater, &w, &stats));
    weights_drop(w);
    t = clock_now_ns() - t;
    l->done.windows++;
    l->done.env_steps += (uint64_t)l->window.steps;
    for (int64_t i = 0; i < l->cfg->num_envs; i++)
        if (l->next[i] > l->done.next)
            l->done.next = l->next[i];
    l->done.seconds = l->seconds_before + (double)(clock_now_ns() - l->start_ns) * 1e-9;
    TRY(publish(l));
    TRY(report(l, &stats, t));
    l->waited_ns = 0;
    rl_window_open(&l->window, groups_counts(l->groups));
    if (finished(l) ||
        (l->cfg->checkpoint_every > 0 && l->done.windows % (uint64_t)l->cfg->checkpoint_every == 0))
        return checkpoint(l);
    return ST_OK;
}

static enum status train(struct learner *l)
{
    l->waited_ns = 0;
    rl_window_open(&l->window, groups_counts(l->groups));
    TRY(wait_for_envs(l));
    l->first_window = l->done.windows;
    l->start_ns = l->window_ns = clock_now_ns();
    while (!finished(l)) {
        TRY(collect(l));
        TRY(close_window(l));
    }
    return ST_OK;
}

static enum status set_up(struct learner *l)
{
    const struct learner_config *cfg = l->cfg;
    const struct rl_config *rl = &cfg->rl;

    if (cfg->num_envs < 1 || cfg->num_envs % rl->group_size != 0 ||
        rl->window_episodes % cfg->num_envs != 0)
        return FAIL(ST_INVAL,
                    "--num-envs=%lld with --group-size=%lld and --window-episodes=%lld: expected "
                    "envs in whole groups, and a window of the same number of episodes of each env",
                    (long long)cfg->num_envs, (long long)rl->group_size,
                    (long long)rl->window_episodes);
    l->next = mem_alloc((size_t)cfg->num_envs, sizeof l->next[0]);
    if (!l->next)
        return ST_NOMEM;
    TRY(groups_create(&l->groups,
                      &(struct groups_config){.size = (int)rl->group_size,
                                              .eta = eta(l),
                                              .baseline = (enum group_baseline)(rl->algo - 1)}));
    TRY(rl_start_read(&l->initial, cfg));
    TRY(file_make_dir(cfg->out));
    TRY(metrics_open(&l->metrics, cfg->out));
    TRY(hub_create(&l->hub, &(struct hub_config){.listen = cfg->listen,
                                                 .task = cfg->task,
                                                 .n_env = (uint32_t)cfg->num_envs,
                                                 .conv = cfg->conv,
                                                 .vla = l->initial ? l->initial->vla : NULL,
                                                 .group_size = (uint32_t)rl->group_size}));
    snprintf(l->progress->url, sizeof l->progress->url, "%s", hub_url(l->hub));
    atomic_store(&l->progress->listening, true);
    return ST_OK;
}

static void tear_down(struct learner *l)
{
    struct group_result r;

    if (l->hub)
        say_bye(l);
    hub_destroy(l->hub);
    while (l->groups && groups_drain(l->groups, &r) == ST_OK)
        for (int i = 0; i < r.n; i++)
            hub_item_free(r.member[i].episode);
    groups_destroy(l->groups);
    while (l->members) {
        struct member *m = l->members;

        l->members = m->next;
        member_free(m);
    }
    rl_destroy(l->updater); // its episodes point to instructions
    while (l->instructions) {
        struct instruction *i = l->instructions;

        l->instructions = i->next;
        mem_free(i);
    }
    weights_drop(l->initial);
    mem_free(l->next);
    metrics_close(l->metrics);
}

enum status rl_learner_run(const struct learner_config *cfg, const atomic_bool *stop,
                           struct learner_progress *progress)
{
    struct learner l = {.cfg = cfg, .stop = stop, .progress = progress};
    enum status st = set_up(&l);

    if (st == ST_OK)
        st = train(&l);
    if (st == ST_CLOSED && atomic_load(stop)) // keep the closed windows
        st = l.updater && l.done.windows > l.first_window ? checkpoint(&l) : ST_OK;
    tear_down(&l);
    return st;
}
