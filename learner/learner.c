#include "learner/learner.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/thread.h"
#include "learner/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_WAIT_NS   (10 * NS_PER_S) // for the workers' answers at a checkpoint
#define STOPPED_WAIT_NS NS_PER_S        // the same after *stop
#define RECENT          100             // episodes behind the mean return

struct learner {
    struct serve s;
    struct updater *updater;
    uint64_t total_windows;
    struct hub_item **held;    // chunks of the present window that are not accumulated yet
    const struct chunk **list; // (held_cap) scratch
    size_t n_held, held_cap;
    struct update_stats stats; // of the last window
    double recent[RECENT], lengths[RECENT];
    int64_t n_recent;
    double lag_sum, lag_max, lag_n;
};

static const struct weights *weights(const void *self)
{
    const struct learner *l = self;

    return l->updater ? updater_weights(l->updater) : NULL;
}

// ------------------------------------------------------------------ start

// A window's pictures are the largest part of a learner's memory by far.
static void say_memory(const struct learner_config *cfg, const struct model_vision *v)
{
    double picture = (double)model_picture_bytes(v), n_env = (double)cfg->num_envs;
    double window = n_env * (double)(cfg->horizon + v->stack) * picture;

    log_info("learner",
             "pictures of %d by %d, %d at once: a window has %.1f MiB of them%s, beside its chunks "
             "that wait",
             v->width, v->height, v->stack, window / 1048576,
             cfg->update.epochs > 1 ? ", kept for its replay" : "");
}

static enum status start(void *self, const struct join *j)
{
    struct learner *l = self;
    const struct learner_config *cfg = l->s.cfg;
    struct model_shape shape;
    struct weights *w;
    enum status st;

    TRY(model_shape_parse(&shape, (int)j->n_obs, (int)j->n_act, cfg->hidden));
    if (j->picture[0]) {
        shape.vision = (struct model_vision){.width = (int)j->width,
                                             .height = (int)j->height,
                                             .stack = (int)cfg->frame_stack,
                                             .state = cfg->pixels_state};
        TRY(model_conv_parse(&shape.vision, cfg->conv));
        say_memory(cfg, &shape.vision);
    }
    TRY(weights_create(&w, &shape));
    snprintf(w->task, sizeof w->task, "%s", j->task);
    snprintf(w->picture, sizeof w->picture, "%s", j->picture);
    snprintf(w->config, sizeof w->config, "%s", cfg->options ? cfg->options : "");
    st = model_init(&shape, (uint64_t)cfg->seed, cfg->log_std, w->params);
    if (st == ST_OK)
        st = updater_create(&l->updater, &cfg->update, w, (int64_t)l->total_windows);
    weights_drop(w);
    TRY(st);
    if (cfg->resume) {
        char file[OPT_STR_MAX + 32];

        serve_path(&l->s, "checkpoint.h5", file, sizeof file);
        TRY(checkpoint_load(file, l->updater, &l->s.done));
        log_info("learner", "going on from '%s', window %llu", file,
                 (unsigned long long)l->s.done.windows);
    }
    return ST_OK;
}

// ------------------------------------------------------------------ checkpoints

// The state file: per worker a u64 length and the STATE body. Its first number is the version that
// it belongs to.
static enum status save_state(const struct serve *s)
{
    char file[OPT_STR_MAX + 32];
    const struct member *m;
    struct msg *all;
    enum status st;

    TRY(msg_new(&all, MSG_STATE, 1 << 16));
    st = msg_u64(all, serve_version(s));
    for (m = s->members; m && st == ST_OK; m = m->next) {
        if (!m->state)
            continue;
        st = msg_u64(all, m->state->len);
        if (st == ST_OK)
            st = msg_bytes(all, m->state->data, m->state->len);
    }
    serve_path(s, "envs.state", file, sizeof file);
    if (st == ST_OK)
        st = file_write_atomic(file, all->data, all->len);
    msg_free(all);
    return st;
}

static enum status read_file(const char *file, struct msg **out)
{
    FILE *f = fopen(file, "rb");
    struct msg *m;
    long n;
    enum status st;

    if (!f)
        return FAIL(ST_MISSING, "cannot open '%s'", file);
    if (fseek(f, 0, SEEK_END) != 0 || (n = ftell(f)) < 0 || n > (long)MSG_BYTES_MAX) {
        fclose(f);
        return FAIL(ST_IO, "cannot read '%s'", file);
    }
    rewind(f);
    st = msg_new(&m, MSG_STATE, (size_t)n);
    if (st == ST_OK && n > 0 &&
        (!msg_append(m, (size_t)n) || fread(m->data, 1, (size_t)n, f) != (size_t)n)) {
        msg_free(m);
        st = FAIL(ST_IO, "cannot read '%s'", file);
    }
    fclose(f);
    if (st == ST_OK)
        *out = m;
    return st;
}

static enum status find_saved(uint64_t version, const struct member *m, const struct msg *all,
                              struct msg **out)
{
    struct reader r = reader_make(all), inner;
    uint32_t env_first, n_env;
    struct msg *one;
    enum status st;

    if (read_u64(&r) != version)
        return FAIL(ST_INVAL, "the episodes' state belongs to another checkpoint");
    while (!r.bad && r.p != r.end) {
        uint64_t n = read_u64(&r);
        const void *body = read_bytes(&r, n, 1);

        TRY(reader_end(&r, false, "envs.state"));
        TRY(msg_new(&one, MSG_STATE, n));
        st = msg_bytes(one, body, n);
        if (st == ST_OK)
            st = state_read(one, m->join.n_act, &inner, &env_first, &n_env);
        if (st == ST_OK && env_first == m->join.env_first && n_env == m->join.n_env) {
            *out = one;
            return ST_OK;
        }
        msg_free(one);
        TRY(st);
    }
    return FAIL(ST_INVAL, "no state of envs %u to %u", m->join.env_first,
                m->join.env_first + m->join.n_env - 1);
}

// The saved state of this worker's episodes goes to it before the weights.
static enum status send_saved_state(struct serve *s, const struct member *m)
{
    char file[OPT_STR_MAX + 32];
    struct msg *all = NULL, *one;
    enum status st;

    serve_path(s, "envs.state", file, sizeof file);
    st = read_file(file, &all);
    if (st == ST_OK)
        st = find_saved(serve_version(s), m, all, &one);
    if (st == ST_OK)
        hub_send(s->hub, m->worker, one);
    else
        log_warn("learner", "%s: worker %d starts new episodes", error_last()->text, m->worker);
    msg_free(all);
    return st == ST_NOMEM ? st : ST_OK;
}

static enum status join(void *self, struct member *m)
{
    struct serve *s = &((struct learner *)self)->s;

    return s->cfg->resume && serve_version(s) == s->done.windows ? send_saved_state(s, m) : ST_OK;
}

static enum status collect_states(struct serve *s)
{
    int64_t until = deadline_after(STATE_WAIT_NS), soon = deadline_after(STOPPED_WAIT_NS);
    const struct member *m;
    enum status st;

    for (;;) {
        for (m = s->members; m && m->answered; m = m->next)
            ;
        if (!m)
            return ST_OK;
        if (clock_now_ns() >= (atomic_load(s->stop) ? soon : until)) {
            log_warn("learner", "worker %d does not say where its episodes are", m->worker);
            return ST_OK;
        }
        st = serve_next(s, SERVE_WAIT_NS);
        if (st != ST_OK && st != ST_TIMEOUT)
            return st;
    }
}

// Called when the workers have been asked for their state with the weights of this version.
static enum status checkpoint(void *self)
{
    struct learner *l = self;
    struct serve *s = &l->s;
    char file[OPT_STR_MAX + 32];

    TRY(collect_states(s));
    TRY(save_state(s));
    serve_path(s, "checkpoint.h5", file, sizeof file);
    TRY(checkpoint_save(file, l->updater, &s->done));
    serve_path(s, "policy.h5", file, sizeof file);
    return weights_save(updater_weights(l->updater), file);
}

// ------------------------------------------------------------------ chunks in

static int by_env(const void *a, const void *b)
{
    const struct chunk_head *x = &(*(struct hub_item *const *)a)->chunk.head;
    const struct chunk_head *y = &(*(struct hub_item *const *)b)->chunk.head;

    if (x->env != y->env)
        return x->env < y->env ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void note_episodes(struct learner *l, const struct chunk *c)
{
    uint32_t i;

    for (i = 0; i < c->head.n_episode; i++) {
        l->recent[l->n_recent % RECENT] = c->episode_return[i];
        l->lengths[l->n_recent % RECENT] = c->episode_length[i];
        l->n_recent++;
        l->s.done.episodes++;
    }
}

// Forward and backward of the held chunks.
static enum status accumulate(void *self)
{
    struct learner *l = self;
    enum status st;
    size_t i;

    if (l->n_held == 0)
        return ST_OK;
    if (!l->s.cfg->streaming)
        qsort(l->held, l->n_held, sizeof l->held[0], by_env);
    for (i = 0; i < l->n_held; i++) {
        l->list[i] = &l->held[i]->chunk;
        note_episodes(l, l->list[i]);
    }
    st = updater_accumulate_many(l->updater, l->list, (int)l->n_held);
    for (i = 0; i < l->n_held; i++)
        hub_item_free(l->held[i]);
    l->n_held = 0;
    return st;
}

static enum status hold(struct learner *l, struct hub_item *item)
{
    if (l->n_held == l->held_cap) {
        size_t cap = l->held_cap ? 2 * l->held_cap : 256;
        struct hub_item **held = mem_resize(l->held, cap, sizeof held[0]);
        const struct chunk **list;

        if (!held)
            return ST_NOMEM;
        l->held = held;
        list = mem_resize(l->list, cap, sizeof list[0]);
        if (!list)
            return ST_NOMEM;
        l->list = list;
        l->held_cap = cap;
    }
    l->held[l->n_held++] = item;
    l->s.steps += item->chunk.head.n_step;
    return ST_OK;
}

// Takes the item.
static enum status admit(struct learner *l, struct hub_item *item)
{
    const uint64_t version = serve_version(&l->s);
    double lag = (double)admission_lag(version, item->chunk.head.version_min);
    bool drop = lag > (double)serve_eta(&l->s);
    struct member *m = serve_member(&l->s, item->worker);
    enum status st;

    if (m) {
        uint64_t before = admission_limit(&m->admission, version);

        admission_count(&m->admission, item->chunk.head.env - m->join.env_first, drop);
        if (admission_limit(&m->admission, version) != before)
            TRY(serve_send_weights(&l->s, m, false));
    }
    if (drop) {
        l->s.done.dropped++;
        hub_item_free(item);
        return ST_OK;
    }
    l->lag_sum += lag;
    l->lag_n++;
    l->lag_max = lag > l->lag_max ? lag : l->lag_max;
    st = hold(l, item);
    if (st != ST_OK)
        hub_item_free(item);
    return st;
}

static enum status take(void *self, struct hub_item *item)
{
    struct learner *l = self;
    struct member *m;

    if (item->kind == HUB_CHUNK)
        return admit(l, item);
    m = serve_member(&l->s, item->worker);
    if (m && item->kind == HUB_STATE) { // a hub for chunks gives nothing else
        msg_free(m->state);
        m->state = item->m;
        m->answered = true;
        item->m = NULL;
    }
    hub_item_free(item);
    return ST_OK;
}

// Env steps that close the present window: those of the envs that are there, once all have come.
static int64_t target(const struct serve *s)
{
    return (s->n_joined < s->cfg->num_envs ? s->n_joined : s->cfg->num_envs) * s->cfg->horizon;
}

static bool complete(const void *self)
{
    const struct learner *l = self;

    return l->s.n_joined > 0 && l->s.steps >= target(&l->s);
}

// All that has arrived, while the rest is on its way.
static enum status arrived(void *self)
{
    struct learner *l = self;

    return l->s.cfg->streaming && hub_length(l->s.hub) == 0 ? accumulate(l) : ST_OK;
}

// Where workers came and went, or chunks were dropped, what the others may still send can be too
// little to close the window. Then the rule must give way; too old chunks are dropped as ever.
static enum status relieve(void *self)
{
    struct serve *s = &((struct learner *)self)->s;

    if (s->n_joined == 0 || (uint64_t)s->steps + serve_coming(s) >= (uint64_t)target(s))
        return ST_OK;
    return serve_grant(s);
}

// ------------------------------------------------------------------ the loop

static double mean(const double *x, int64_t n)
{
    double sum = 0;
    int64_t i;

    for (i = 0; i < n; i++)
        sum += x[i];
    return n > 0 ? sum / (double)n : NAN;
}

static enum status report(void *self, struct serve_report *r)
{
    struct learner *l = self;
    const struct update_stats *s = &l->stats;
    const struct train_progress *done = &l->s.done;
    int64_t n = l->n_recent < RECENT ? l->n_recent : RECENT;

    r->mean_return = mean(l->recent, n);
    r->lag = l->lag_n > 0 ? l->lag_sum / l->lag_n : 0;
    const struct metric values[] = {
        {"train/return_mean", r->mean_return},
        {"train/episode_length", mean(l->lengths, n)},
        {"train/episodes", (double)done->episodes},
        {"train/policy_loss", s->policy_loss},
        {"train/value_loss", s->value_loss},
        {"train/entropy", s->entropy},
        {"train/approx_kl", s->approx_kl},
        {"train/clip_fraction", s->clip_fraction},
        {"train/grad_norm", s->grad_norm},
        {"train/explained_variance", s->explained_variance},
        {"train/lr", s->lr},
        {"train/weight_mean", s->weight_mean},
        {"train/weight_max", s->weight_max},
        {"stale/lag_mean", r->lag},
        {"stale/lag_max", l->lag_max},
        {"stale/dropped", (double)done->dropped},
        SERVE_METRICS(r),
        {"time/seconds", done->seconds},
    };

    l->lag_sum = l->lag_max = l->lag_n = 0;
    return metrics_write(l->s.metrics, (int64_t)done->env_steps, values,
                         (int)(sizeof values / sizeof values[0]));
}

static bool enough(const void *self)
{
    const struct learner *l = self;

    return l->s.done.windows >= l->total_windows ||
           (l->n_recent >= RECENT && mean(l->recent, RECENT) >= l->s.cfg->target_return);
}

static enum status step(void *self)
{
    struct learner *l = self;
    struct weights *w;

    TRY(updater_step(l->updater, &w, &l->stats));
    weights_drop(w);
    return ST_OK;
}

static enum status set_up(struct learner *l)
{
    const struct learner_config *cfg = l->s.cfg;

    if (cfg->num_envs < 1 || cfg->horizon < 1 || cfg->horizon > TRAIN_STEPS_MAX)
        return FAIL(ST_INVAL, "%lld envs, chunks of %lld steps", (long long)cfg->num_envs,
                    (long long)cfg->horizon);
    l->total_windows = (uint64_t)((cfg->total_steps + cfg->num_envs * cfg->horizon - 1) /
                                  (cfg->num_envs * cfg->horizon));
    l->s.unit = (uint64_t)cfg->horizon;
    l->s.rounds = 1;
    l->s.states = true;
    return serve_open(&l->s, &(struct hub_config){.listen = cfg->listen,
                                                  .task = cfg->task,
                                                  .horizon = (uint32_t)cfg->horizon,
                                                  .n_env = (uint32_t)cfg->num_envs,
                                                  .conv = cfg->conv,
                                                  .stack = (int)cfg->frame_stack});
}

static void tear_down(struct learner *l)
{
    serve_close(&l->s);
    for (size_t i = 0; i < l->n_held; i++)
        hub_item_free(l->held[i]);
    mem_free(l->held);
    mem_free(l->list);
    updater_destroy(l->updater);
}

enum status learner_run(const struct learner_config *cfg, const atomic_bool *stop,
                        struct learner_progress *progress)
{
    static const struct serve_kind kind = {.weights = weights,
                                           .start = start,
                                           .join = join,
                                           .take = take,
                                           .complete = complete,
                                           .arrived = arrived,
                                           .idle = relieve,
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
