// An env is idle, or plays an episode; a playing env has exactly one request in flight between two
// rounds. A round: receive a batch, note what each row says, infer all rows that go on and send
// their actions, then settle (one lock): results into the list, new episodes into idle envs.
#include "evaluation/lane.h"

#include "common/base/mem.h"
#include "nn/policy.h"
#include "rollout/envclient.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS (100 * NS_PER_MS) // how soon a halt is noticed

struct seat { // one env
    uint32_t env;
    bool playing, in_flight, success;
    bool started; // its first observation came
    int64_t episode;
    uint64_t step; // actions executed so far
};

struct lane {
    struct lane_config cfg;
    char url[LINK_URL_MAX];
    struct envclient *client;
    struct policy *policy; // NULL for the built-in ones
    int n_env, n_playing, n_act, n_result, n_reset;
    struct seat *seats;             // (n_env)
    int32_t *seat_of;               // (SPEC_ENV_MAX) env id -> seat, -1 = not ours
    int *acting;                    // (n_env) seats that need an action, first n_act
    struct policy_row *rows;        // (n_env) what they see
    float *actions;                 // (n_env, n_act of the task)
    struct episode_result *results; // (n_env) ended in this round, first n_result
    struct reset_row *resets;       // (n_env) to be started, first n_reset
    int64_t heard_ns;               // when the server last said something
};

const struct spec *lane_spec(const struct lane *lane)
{
    return &envclient_welcome(lane->client)->spec;
}

const char *lane_url(const struct lane *lane)
{
    return lane->url;
}

int lane_envs(const struct lane *lane)
{
    return lane->n_env;
}

static enum status make_seats(struct lane *lane)
{
    const struct welcome *w = envclient_welcome(lane->client);
    int i;

    for (i = 0; i < SPEC_ENV_MAX; i++)
        lane->seat_of[i] = -1;
    for (i = 0; i < lane->n_env; i++) {
        if (w->env[i] >= SPEC_ENV_MAX || lane->seat_of[w->env[i]] >= 0)
            return FAIL(ST_PROTO, "env server %s: env %u is out of range or stands twice",
                        lane->url, w->env[i]);
        lane->seats[i].env = w->env[i];
        lane->seat_of[w->env[i]] = i;
    }
    return ST_OK;
}

static enum status lane_build(struct lane *lane)
{
    const struct welcome *w = envclient_welcome(lane->client);
    size_t n = w->n_env;

    if (w->autoreset != AUTORESET_DISABLED || n < 1)
        return FAIL(ST_PROTO, "env server %s: %zu envs, autoreset %u: expected 1 or more, %d",
                    lane->url, n, w->autoreset, (int)AUTORESET_DISABLED);
    lane->n_env = (int)n;
    lane->seats = mem_alloc(n, sizeof lane->seats[0]);
    lane->seat_of = mem_alloc(SPEC_ENV_MAX, sizeof lane->seat_of[0]);
    lane->acting = mem_alloc(n, sizeof lane->acting[0]);
    lane->rows = mem_alloc(n, sizeof lane->rows[0]);
    lane->actions = mem_alloc(n * (size_t)w->spec.n_act, sizeof lane->actions[0]);
    lane->results = mem_alloc(n, sizeof lane->results[0]);
    lane->resets = mem_alloc(n, sizeof lane->resets[0]);
    if (!lane->seats || !lane->seat_of || !lane->acting || !lane->rows || !lane->actions ||
        !lane->results || !lane->resets)
        return ST_NOMEM;
    if (lane->cfg.policy == LANE_WEIGHTS)
        TRY(policy_create(&lane->policy, &lane->cfg.weights->shape, lane->n_env));
    return make_seats(lane);
}

enum status lane_open(struct lane **out, const struct lane_config *cfg)
{
    struct lane *lane = mem_alloc(1, sizeof *lane);
    struct envclient_config client = {
        .url = cfg->url,
        .hello = {.autoreset = AUTORESET_DISABLED, .k_max = 1, .t_max_ns = -1},
        .connect_wait_ns = cfg->connect_wait_ns,
    };
    enum status st;

    if (!lane)
        return ST_NOMEM;
    lane->cfg = *cfg;
    snprintf(lane->url, sizeof lane->url, "%s", cfg->url);
    st = envclient_open(&lane->client, &client);
    if (st == ST_OK)
        st = lane_build(lane);
    if (st != ST_OK) {
        lane_destroy(lane);
        return st;
    }
    *out = lane;
    return ST_OK;
}

void lane_destroy(struct lane *lane)
{
    if (!lane)
        return;
    envclient_destroy(lane->client);
    policy_destroy(lane->policy);
    mem_free(lane->seats);
    mem_free(lane->seat_of);
    mem_free(lane->acting);
    mem_free(lane->rows);
    mem_free(lane->actions);
    mem_free(lane->results);
    mem_free(lane->resets);
    mem_free(lane);
}

// The calling thread's last error ends the whole evaluation.
static enum status fatal(struct lane *lane, enum status st)
{
    struct lane_shared *s = lane->cfg.shared;

    pthread_mutex_lock(&s->mtx);
    if (s->fatal.code == ST_OK)
        s->fatal = *error_last();
    s->halt = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mtx);
    return st;
}

static enum status bad_row(const struct lane *lane, const struct row_head *h, const char *what)
{
    return FAIL(ST_PROTO, "env server %s: env %u, episode %llu: %s", lane->url, h->env,
                (unsigned long long)h->episode, what);
}

static void note_end(struct lane *lane, struct seat *seat, const struct row_head *h)
{
    bool error = h->flags & ROW_ERROR, has_success = lane_spec(lane)->has_success;

    lane->results[lane->n_result++] = (struct episode_result){
        .episode = seat->episode,
        .outcome = error           ? OUTCOME_ERROR
                   : !has_success  ? OUTCOME_DONE
                   : seat->success ? OUTCOME_SUCCESS
                                   : OUTCOME_FAILURE,
        .ret = h->episode_return,
        .length = (int64_t)seat->step,
        .terminated = (h->flags & ROW_TERMINATED) && !error,
        .truncated = (h->flags & ROW_TRUNCATED) && !error,
        .cause = error ? row_error_name((enum row_error)h->error) : NULL,
    };
}

// One row of a batch: check that it answers what was asked, then the episode goes on or ended.
static enum status take_row(struct lane *lane, const uint8_t *row)
{
    const struct row_head *h = (const void *)row;
    int32_t i = h->env < SPEC_ENV_MAX ? lane->seat_of[h->env] : -1;
    struct seat *seat = i < 0 ? NULL : &lane->seats[i];

    if (!seat || !seat->in_flight)
        return bad_row(lane, h, "nothing was asked of it");
    if (h->seed != lane->cfg.seed || h->stream != 0 || h->episode != (uint64_t)seat->episode)
        return bad_row(lane, h, "another episode was asked for");
    if (!(h->flags & ROW_FIRST) != seat->started)
        return bad_row(lane, h, "its first row came at the wrong time");
    seat->started = true;
    seat->in_flight = false;
    if (!(h->flags & ROW_FIRST)) {
        seat->step += h->n_sub;
        seat->success |= (h->flags & ROW_SUCCESS) != 0;
        atomic_fetch_add_explicit(lane->cfg.shared->env_steps, h->n_sub, memory_order_relaxed);
    }
    if (h->flags & ROW_DONE) {
        note_end(lane, seat, h);
        return ST_OK;
    }
    if (h->n_sub != !(h->flags & ROW_FIRST) || h->elapsed != seat->step)
        return bad_row(lane, h, "the count of its steps is wrong");
    lane->acting[lane->n_act] = i;
    lane->rows[lane->n_act++] = (struct policy_row){
        .obs = (const void *)(row + envclient_layout(lane->client)->obs),
        .seed = lane->cfg.seed,
        .episode = (uint64_t)seat->episode,
        .step = seat->step,
    };
    return ST_OK;
}

// Actions of the built-in policies for one row; "zero" stays 0, which clipping moves into bounds.
static void built_in(const struct lane *lane, const struct policy_row *row, float *action)
{
    const struct spec *spec = lane_spec(lane);
    struct rng rng = rng_make(row->seed, RNG_ACTION, row->stream, row->episode, row->step);
    int k;

    for (k = 0; k < spec->n_act; k++)
        action[k] = lane->cfg.policy == LANE_ZERO
                        ? 0
                        : (float)rng_uniform(&rng, spec->act_low[k], spec->act_high[k]);
}

static enum status infer(struct lane *lane)
{
    int i, n_act = lane_spec(lane)->n_act;

    if (lane->cfg.policy == LANE_WEIGHTS) {
        TRY(policy_act(lane->policy, lane->cfg.weights, lane->rows, lane->n_act, lane->cfg.greedy,
                       lane->actions, NULL));
        for (i = 0; i < lane->n_act * n_act; i++)
            if (isnan(lane->actions[i]))
                return FAIL(ST_INVAL, "the policy's action %d is NaN in episode %llu, step %llu",
                            i % n_act, (unsigned long long)lane->rows[i / n_act].episode,
                            (unsigned long long)lane->rows[i / n_act].step);
        return ST_OK;
    }
    for (i = 0; i < lane->n_act; i++)
        built_in(lane, &lane->rows[i], lane->actions + (size_t)i * (size_t)n_act);
    return ST_OK;
}

static enum status send_actions(struct lane *lane)
{
    const struct spec *spec = lane_spec(lane);
    size_t n_act = (size_t)spec->n_act;
    size_t stride = step_stride((int)envclient_welcome(lane->client)->k_max, spec->n_act);
    uint8_t *rows;
    struct msg *m;
    int i, k;

    TRY(envclient_step_begin(lane->client, lane->n_act, &m, &rows));
    for (i = 0; i < lane->n_act; i++) {
        struct seat *seat = &lane->seats[lane->acting[i]];
        struct step_row *head = (void *)(rows + (size_t)i * stride);
        float *out = (void *)(head + 1);
        const float *in = lane->actions + (size_t)i * n_act;

        *head = (struct step_row){.env = seat->env, .n_sub = 1};
        for (k = 0; k < spec->n_act; k++)
            out[k] = fminf(fmaxf(in[k], spec->act_low[k]), spec->act_high[k]);
        seat->in_flight = true;
    }
    return envclient_step_send(lane->client, m);
}

static enum status round_of(struct lane *lane, const uint8_t *rows, const struct batch_head *head)
{
    uint32_t i;
    enum status st;

    for (i = 0; i < head->n; i++)
        TRY(take_row(lane, rows + (size_t)i * head->stride));
    if (lane->n_act == 0)
        return ST_OK;
    st = infer(lane);
    if (st != ST_OK)
        return fatal(lane, st);
    return send_actions(lane);
}

// Put results into the list and episodes into idle envs; shared->mtx held. False: nothing is left.
static bool settle_locked(struct lane *lane)
{
    struct lane_shared *s = lane->cfg.shared;
    enum status st = ST_OK;
    int i;

    for (i = 0; i < lane->n_result; i++)
        worklist_finish(s->list, &lane->results[i]);
    for (i = 0; i < lane->n_env; i++) {
        struct seat *seat = &lane->seats[i];

        if (seat->playing && seat->in_flight)
            continue;
        lane->n_playing -= seat->playing; // its result is among those above
        seat->playing = false;
        if (s->halt || st != ST_OK)
            continue;
        st = worklist_take(s->list, &seat->episode);
        if (st != ST_OK)
            continue;
        seat->playing = true;
        seat->started = seat->success = false;
        seat->step = 0;
        lane->n_playing++;
        lane->resets[lane->n_reset++] = (struct reset_row){
            .env = seat->env, .seed = lane->cfg.seed, .episode = (uint64_t)seat->episode};
    }
    if (lane->n_result > 0)
        pthread_cond_broadcast(&s->changed);
    lane->n_result = 0;
    return !s->halt && st != ST_CLOSED;
}

static enum status settle(struct lane *lane, bool *more)
{
    struct lane_shared *s = lane->cfg.shared;
    int i;

    lane->n_act = lane->n_reset = 0;
    pthread_mutex_lock(&s->mtx);
    *more = settle_locked(lane);
    if (*more && lane->n_playing == 0) // an episode of another server may come back
        (void)cond_wait_until(&s->changed, &s->mtx, deadline_after(TICK_NS));
    pthread_mutex_unlock(&s->mtx);
    if (lane->n_reset == 0)
        return ST_OK;
    for (i = 0; i < lane->n_reset; i++)
        lane->seats[lane->seat_of[lane->resets[i].env]].in_flight = true;
    return envclient_reset(lane->client, lane->resets, lane->n_reset);
}

static enum status hear(struct lane *lane)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;
    enum status st = envclient_recv(lane->client, &m, &head, &rows, TICK_NS);
    int64_t silent_ns = clock_now_ns() - lane->heard_ns;

    if (st == ST_TIMEOUT && silent_ns > lane->cfg.answer_wait_ns)
        return FAIL(ST_IO, "env server %s has not answered for %.1f s", lane->url,
                    (double)silent_ns * 1e-9);
    if (st == ST_TIMEOUT)
        return ST_OK;
    TRY(st);
    lane->heard_ns = clock_now_ns();
    st = round_of(lane, rows, head);
    msg_free(m);
    return st;
}

static enum status play(struct lane *lane)
{
    bool more;

    for (;;) {
        TRY(settle(lane, &more));
        if (!more)
            return ST_OK;
        if (lane->n_playing > 0)
            TRY(hear(lane));
        else
            lane->heard_ns = clock_now_ns();
    }
}

enum status lane_run(struct lane *lane)
{
    struct lane_shared *s = lane->cfg.shared;
    enum status st;
    int i;

    lane->heard_ns = clock_now_ns();
    st = play(lane);
    if (st == ST_OK)
        return ST_OK; // after a halt nobody would take them
    pthread_mutex_lock(&s->mtx);
    for (i = 0; i < lane->n_env; i++)
        if (lane->seats[i].playing)
            worklist_give_back(s->list, lane->seats[i].episode);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mtx);
    return st;
}
