// An env is idle, or plays an episode; a playing env has exactly one request in flight between two
// rounds. A round: receive a batch, note what each row says, infer all rows that go on and send
// their actions, then settle (one lock): results into the list, new episodes into idle envs.
//
// With a remote policy an env may also be thinking: its observation is with the remote, and nothing
// is in flight. The answer comes in a thread of the remote, which sends the action at once
// (answered), or notes the failure, which the next round settles.
#include "evaluation/lane.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "evaluation/chunk_seats.h"
#include "nn/policy.h"
#include "rollout/envclient.h"
#include "rollout/framestack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS (100 * NS_PER_MS) // how soon a halt is noticed

struct seat { // one env
    uint32_t env;
    bool playing, in_flight, success;
    bool thinking; // a remote policy was asked for its next action
    bool failed;   // and gave none: the episode has ended by that
    bool started;  // its first observation came
    int64_t episode;
    uint64_t start;        // the episode of the task that it starts as
    uint64_t step;         // actions executed so far
    struct take *take;     // what is recorded of it
    struct script *script; // its actions, for a film
    double max_reward;     // NaN before the first step
    int64_t init_state;
    struct lane *lane;
    struct remote_seat *remote; // LANE_REMOTE only
    const char *cause;          // of the failure, a constant string
    double ret;                 // sum of its rewards so far
};

struct lane {
    struct lane_config cfg;
    char url[LINK_URL_MAX];
    struct envclient *client;
    struct policy *policy;       // NULL for the built-in ones
    struct framestack frames;    // what it sees
    struct chunk_seats *chunks;  // instead of both, for a policy of action chunks
    struct chunk_seat_row *seen; // (n_env) beside `rows`, for `chunks`
    struct remote_task *task;    // LANE_REMOTE only
    pthread_mutex_t mtx;         // the seats, and sending; taken before shared->mtx
    int n_thinking;              // guarded by mtx
    bool ending;                 // guarded by mtx; answers are of no use any more
    int n_env, n_playing, n_act, n_result, n_reset;
    int clipped;    // where the info counts action numbers out of bounds; -1: they are clipped here
    int init_state; // where the info has the row of the initial state; -1: nowhere
    int expert;     // where the observation has the expert's action; LANE_EXPERT only
    const struct spec_field *state; // its sim_state, for LANE_REPLAY; NULL if it has none
    struct seat *seats;             // (n_env)
    int32_t *seat_of;               // (SPEC_ENV_MAX) env id -> seat, -1 = not ours
    int *acting;                    // (n_env) seats that need an action, first n_act
    struct policy_row *rows;        // (n_env) what they see
    float *actions;                 // (n_env, n_act of the task)
    struct episode_result *results; // (n_env) ended in this round, first n_result
    struct reset_row *resets;       // (n_env) to be started, first n_reset
    int64_t silent_ns;              // waited since the server last said something
    int64_t n_ended;                // episodes
};

const struct spec *lane_spec(const struct lane *lane)
{
    return &envclient_welcome(lane->client)->spec;
}

const char *lane_plan(const struct lane *lane)
{
    return envclient_welcome(lane->client)->plan;
}

const char *lane_url(const struct lane *lane)
{
    return lane->url;
}

int lane_envs(const struct lane *lane)
{
    return lane->n_env;
}

int64_t lane_ended(const struct lane *lane)
{
    return lane->n_ended;
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
        lane->seats[i].lane = lane;
        lane->seat_of[w->env[i]] = i;
    }
    return ST_OK;
}

static enum status find_expert(struct lane *lane, const struct spec *spec)
{
    const struct spec_field *f = spec_field_find(spec, "expert_action");

    if (!f || f->n != spec->n_act)
        return FAIL(ST_INVAL,
                    "policy 'expert': the observations of %s at %s have no expert_action; only "
                    "tasks with the keyword expert=true give it",
                    spec->task, lane->url);
    lane->expert = f->offset;
    return ST_OK;
}

static enum status open_policy(struct lane *lane, const struct spec *spec)
{
    const struct weights *w = lane->cfg.weights;
    const struct model_vision *v = &w->shape.vision;
    const struct spec_picture *p;

    if (chunk_seats_wanted(w, spec)) {
        lane->seen = mem_alloc((size_t)lane->n_env, sizeof lane->seen[0]);
        return lane->seen
                   ? chunk_seats_create(&lane->chunks, w, spec, lane->n_env, lane->cfg.execute)
                   : ST_NOMEM;
    }
    TRY(policy_create(&lane->policy, &w->shape, lane->n_env));
    if (v->n_conv == 0)
        return ST_OK;
    TRY(framestack_choose(spec, w->picture, &p));
    if ((int)p->width != v->width || (int)p->height != v->height)
        return FAIL(ST_INVAL, "the policy sees %s in %d by %d, env server %s draws it in %u by %u",
                    p->name, v->width, v->height, lane->url, p->width, p->height);
    return framestack_init(&lane->frames, p, lane->n_env, v->stack);
}

static void answered(void *arg, enum status st);

static enum status make_remote(struct lane *lane, const struct spec *spec)
{
    int i;

    TRY(remote_task_create(&lane->task, lane->cfg.remote, spec));
    for (i = 0; i < lane->n_env; i++)
        TRY(remote_seat_create(&lane->seats[i].remote, lane->task, answered, &lane->seats[i]));
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
    lane->clipped = spec_info_find(&w->spec, "clipped");
    lane->init_state = spec_info_find(&w->spec, "init_state");
    if (lane->cfg.policy == LANE_EXPERT)
        TRY(find_expert(lane, &w->spec));
    if (lane->cfg.policy == LANE_REPLAY)
        lane->state = spec_field_find(&w->spec, "sim_state");
    if (lane->cfg.policy == LANE_WEIGHTS)
        TRY(open_policy(lane, &w->spec));
    TRY(make_seats(lane));
    return lane->cfg.policy == LANE_REMOTE ? make_remote(lane, &w->spec) : ST_OK;
}

enum status lane_open(struct lane **out, const struct lane_config *cfg)
{
    struct lane *lane = mem_alloc(1, sizeof *lane);
    struct envclient_config client = {
        .url = cfg->url,
        .hello = {.autoreset = AUTORESET_DISABLED,
                  .k_max = 1,
                  .t_max_ns = -1,
                  .listed = !cfg->pictures},
        .connect_wait_ns = cfg->connect_wait_ns,
        .stop = cfg->stop,
    };
    enum status st;

    if (!lane)
        return ST_NOMEM;
    lane->cfg = *cfg;
    pthread_mutex_init(&lane->mtx, NULL);
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
    int i;

    if (!lane)
        return;
    pthread_mutex_lock(&lane->mtx);
    lane->ending = true;
    pthread_mutex_unlock(&lane->mtx);
    for (i = 0; lane->seats && i < lane->n_env; i++) {
        remote_seat_destroy(lane->seats[i].remote);
        take_free(lane->seats[i].take);
        script_free(lane->seats[i].script);
    }
    remote_task_destroy(lane->task);
    pthread_mutex_destroy(&lane->mtx);
    envclient_destroy(lane->client);
    policy_destroy(lane->policy);
    framestack_fini(&lane->frames);
    chunk_seats_destroy(lane->chunks);
    mem_free(lane->seen);
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
    const double *info = (const void *)((const uint8_t *)h + envclient_layout(lane->client)->info);
    bool error = h->flags & ROW_ERROR, has_success = lane_spec(lane)->has_success;

    if (seat->remote)
        remote_end(seat->remote, seat->success && !error);
    lane->results[lane->n_result++] = (struct episode_result){
        .episode = seat->episode,
        .outcome = error           ? OUTCOME_ERROR
                   : !has_success  ? OUTCOME_DONE
                   : seat->success ? OUTCOME_SUCCESS
                                   : OUTCOME_FAILURE,
        .ret = h->episode_return,
        .max_reward = seat->max_reward,
        .init_state = seat->init_state,
        .length = (int64_t)seat->step,
        .clipped = lane->clipped >= 0 && !error ? (int64_t)info[lane->clipped] : -1,
        .terminated = (h->flags & ROW_TERMINATED) && !error,
        .truncated = (h->flags & ROW_TRUNCATED) && !error,
        .cause = error ? row_error_name((enum row_error)h->error) : NULL,
    };
}

// Rewards of the steps that were executed; where the episode began.
static void note_numbers(struct lane *lane, struct seat *seat, const struct row_head *h)
{
    const struct row_layout *layout = envclient_layout(lane->client);
    const double *reward = (const void *)((const uint8_t *)h + layout->reward);
    const double *info = (const void *)((const uint8_t *)h + layout->info);
    uint32_t i;

    for (i = 0; i < h->n_sub && !(h->flags & ROW_ERROR); i++)
        seat->max_reward = fmax(seat->max_reward, reward[i]);
    if ((h->flags & ROW_FIRST) && lane->init_state >= 0 && info[lane->init_state] >= 0)
        seat->init_state = (int64_t)info[lane->init_state];
}

// An observation came: check where a replay begins, record.
static enum status note_obs(struct lane *lane, struct seat *seat, const struct row_head *h)
{
    struct recorder *rec = lane->cfg.shared->recorder;
    const double *obs = (const void *)((const uint8_t *)h + envclient_layout(lane->client)->obs);

    if ((h->flags & ROW_FIRST) && lane->state)
        TRY(replay_check_start(lane->cfg.replay, seat->episode, obs + lane->state->offset,
                               lane->state->n));
    if (!rec)
        return ST_OK;
    if (h->flags & ROW_FIRST)
        TRY(recorder_begin(rec, &seat->take, seat->start));
    return take_observe(seat->take, obs,
                        (const uint8_t *)h + envclient_layout(lane->client)->pictures,
                        h->flags & ROW_SUCCESS);
}

// Where the action of the i-th acting seat goes.
static float *action_of(const struct lane *lane, int i)
{
    return lane->actions + (size_t)i * (size_t)lane_spec(lane)->n_act;
}

// Ask the remote policy; `answered` goes on.
static void think(struct lane *lane, struct seat *seat, const uint8_t *row)
{
    const struct row_layout *layout = envclient_layout(lane->client);

    seat->thinking = true;
    lane->n_thinking++;
    remote_ask(seat->remote, seat->step, (const void *)(row + layout->obs),
               layout->pictures ? row + layout->pictures : NULL);
}

// One row of a batch: check that it answers what was asked, then the episode goes on or ended.
static enum status take_row(struct lane *lane, const uint8_t *row)
{
    const struct row_head *h = (const void *)row;
    int32_t i = h->env < SPEC_ENV_MAX ? lane->seat_of[h->env] : -1;
    struct seat *seat = i < 0 ? NULL : &lane->seats[i];
    enum status st = ST_OK;

    if (!seat || !seat->in_flight)
        return bad_row(lane, h, "nothing was asked of it");
    if (h->seed != lane->cfg.seed || h->stream != 0 || h->episode != seat->start)
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
    note_numbers(lane, seat, h);
    if (!(h->flags & ROW_ERROR))
        st = note_obs(lane, seat, h);
    if (st != ST_OK)
        return fatal(lane, st);
    if (h->flags & ROW_DONE) {
        note_end(lane, seat, h);
        return ST_OK;
    }
    if (h->n_sub != !(h->flags & ROW_FIRST) || h->elapsed != seat->step)
        return bad_row(lane, h, "the count of its steps is wrong");
    framestack_push(&lane->frames, i, row + envclient_layout(lane->client)->pictures,
                    h->flags & ROW_FIRST);
    seat->ret = h->episode_return;
    if (seat->remote && !remote_act(seat->remote, seat->step, action_of(lane, lane->n_act))) {
        think(lane, seat, row);
        return ST_OK;
    }
    lane->acting[lane->n_act] = i;
    lane->rows[lane->n_act++] = (struct policy_row){
        .obs = (const void *)(row + envclient_layout(lane->client)->obs),
        .seed = lane->cfg.seed,
        .episode = (uint64_t)seat->episode,
        .step = seat->step,
        .pictures = framestack_at(&lane->frames, i),
    };
    if (lane->chunks)
        lane->seen[lane->n_act - 1] = (struct chunk_seat_row){
            .env = i,
            .row = lane->rows[lane->n_act - 1],
            .block = row + envclient_layout(lane->client)->pictures,
        };
    return ST_OK;
}

// Actions of the built-in policies for one row; "zero" stays 0, which clipping moves into bounds.
static void built_in(const struct lane *lane, const struct policy_row *row, float *action)
{
    const struct spec *spec = lane_spec(lane);
    struct rng rng = rng_make(row->seed, RNG_ACTION, row->stream, row->episode, row->step);
    int k;

    if (lane->cfg.policy == LANE_REPLAY) {
        replay_act(lane->cfg.replay, (int64_t)row->episode, row->step, action);
        return;
    }
    if (lane->cfg.policy == LANE_EXPERT) {
        for (k = 0; k < spec->n_act; k++)
            action[k] = (float)row->obs[lane->expert + k];
        return;
    }
    for (k = 0; k < spec->n_act; k++)
        action[k] = lane->cfg.policy == LANE_ZERO
                        ? 0
                        : (float)rng_uniform(&rng, spec->act_low[k], spec->act_high[k]);
}

static enum status infer(struct lane *lane)
{
    int i, n_act = lane_spec(lane)->n_act;

    if (lane->cfg.policy == LANE_REMOTE)
        return ST_OK; // they are there
    if (lane->cfg.policy == LANE_WEIGHTS) {
        if (lane->chunks)
            TRY(chunk_seats_act(lane->chunks, lane->cfg.weights, lane->seen, lane->n_act,
                                lane->cfg.greedy, lane->actions));
        else
            TRY(policy_act(lane->policy, lane->cfg.weights, lane->rows, lane->n_act,
                           lane->cfg.greedy, lane->actions, NULL));
        for (i = 0; i < lane->n_act * n_act; i++)
            if (isnan(lane->actions[i]))
                return FAIL(ST_INVAL, "the policy's action %d is NaN in episode %llu, step %llu",
                            i % n_act, (unsigned long long)lane->rows[i / n_act].episode,
                            (unsigned long long)lane->rows[i / n_act].step);
        return ST_OK;
    }
    for (i = 0; i < lane->n_act; i++)
        built_in(lane, &lane->rows[i], action_of(lane, i));
    return ST_OK;
}

// The actions of `n` seats, in their order; the lane's lock is held.
static enum status send_actions(struct lane *lane, const int *acting, int n, const float *actions)
{
    const struct spec *spec = lane_spec(lane);
    size_t n_act = (size_t)spec->n_act;
    size_t stride = step_stride((int)envclient_welcome(lane->client)->k_max, spec->n_act);
    uint8_t *rows;
    struct msg *m;
    int i, k;

    TRY(envclient_step_begin(lane->client, n, &m, &rows));
    for (i = 0; i < n; i++) {
        struct seat *seat = &lane->seats[acting[i]];
        struct step_row *head = (void *)(rows + (size_t)i * stride);
        float *out = (void *)(head + 1);
        const float *in = actions + (size_t)i * n_act;

        *head = (struct step_row){.env = seat->env, .n_sub = 1};
        for (k = 0; k < spec->n_act; k++)
            out[k] = lane->clipped >= 0 ? in[k]
                                        : fminf(fmaxf(in[k], spec->act_low[k]), spec->act_high[k]);
        if (lane->cfg.shared->recorder)
            take_act(seat->take, out);
        if (lane->cfg.shared->film)
            script_act(&seat->script, out, spec->n_act);
        seat->in_flight = true;
    }
    return envclient_step_send(lane->client, m);
}

// Why an episode has ended by the policy server.
static const char *cause_of(enum status st)
{
    switch (st) {
    case ST_TIMEOUT:
        return "the policy server did not answer in time";
    case ST_CLOSED:
        return "the policy server closed the connection";
    case ST_PROTO:
        return "the policy server's answer was damaged";
    default:
        return "the policy server reported an error";
    }
}

// A remote policy has answered; in a thread of the remote.
static void answered(void *arg, enum status st)
{
    struct seat *seat = arg;
    struct lane *lane = seat->lane;
    float action[SPEC_ACT_MAX];
    int i = (int)(seat - lane->seats);

    pthread_mutex_lock(&lane->mtx);
    seat->thinking = false;
    lane->n_thinking--;
    if (lane->ending) {
        pthread_mutex_unlock(&lane->mtx);
        return;
    }
    if (st == ST_OK && remote_act(seat->remote, seat->step, action)) {
        st = send_actions(lane, &i, 1, action); // a failure shows in the lane's own thread too
    } else if (st == ST_INVAL || st == ST_NOMEM || st == ST_MISSING) {
        (void)fatal(lane, st);
    } else {
        log_warn("eval", "episode %lld: %s", (long long)seat->episode, error_last()->text);
        seat->failed = true;
        seat->cause = cause_of(st);
    }
    pthread_mutex_unlock(&lane->mtx);
}

// Episodes that the remote policy ended.
static void note_failures(struct lane *lane)
{
    int i;

    for (i = 0; i < lane->n_env; i++) {
        struct seat *seat = &lane->seats[i];

        if (!seat->failed)
            continue;
        seat->failed = false;
        remote_end(seat->remote, false);
        lane->results[lane->n_result++] = (struct episode_result){.episode = seat->episode,
                                                                  .outcome = OUTCOME_ERROR,
                                                                  .ret = seat->ret,
                                                                  .length = (int64_t)seat->step,
                                                                  .clipped = -1,
                                                                  .cause = seat->cause};
    }
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
    return send_actions(lane, lane->acting, lane->n_act, lane->actions);
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

        if (seat->playing && (seat->in_flight || seat->thinking))
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
        seat->ret = 0;
        seat->max_reward = NAN;
        seat->init_state = -1;
        script_clear(seat->script);
        seat->start = lane->cfg.replay ? replay_start(lane->cfg.replay, seat->episode)
                                       : (uint64_t)seat->episode;
        if (seat->remote)
            remote_begin(seat->remote, lane->cfg.seed, (uint64_t)seat->episode);
        lane->n_playing++;
        lane->resets[lane->n_reset++] =
            (struct reset_row){.env = seat->env, .seed = lane->cfg.seed, .episode = seat->start};
    }
    if (lane->n_result > 0)
        pthread_cond_broadcast(&s->changed);
    lane->n_ended += lane->n_result;
    lane->n_result = 0;
    return !s->halt && st != ST_CLOSED;
}

// Hand over what was recorded of the episodes that ended. Only now: until the results are in the
// list, the loss of the server gives the episodes back.
static enum status keep_takes(struct lane *lane)
{
    struct lane_shared *s = lane->cfg.shared;
    int i, k;

    for (i = 0; i < lane->n_env && (s->recorder || s->film); i++) {
        struct seat *seat = &lane->seats[i];

        for (k = 0; k < lane->n_result; k++) {
            const struct episode_result *result = &lane->results[k];

            if (!seat->playing || seat->in_flight || seat->thinking ||
                result->episode != seat->episode)
                continue;
            if (s->recorder && result->outcome != OUTCOME_ERROR)
                TRY(recorder_keep(s->recorder, &seat->take, result));
            if (s->film)
                TRY(film_keep(s->film, &seat->script, seat->start, result));
        }
    }
    return ST_OK;
}

static enum status settle(struct lane *lane, bool *more)
{
    struct lane_shared *s = lane->cfg.shared;
    enum status st;
    int i;

    note_failures(lane);
    st = keep_takes(lane);
    if (st != ST_OK)
        return fatal(lane, st);
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

    if (st == ST_TIMEOUT) {
        lane->silent_ns += TICK_NS; // not by the clock: the machine may have stood still
        if (lane->silent_ns <= lane->cfg.answer_wait_ns)
            return ST_OK;
        return FAIL(ST_IO, "env server %s has not answered for %.1f s", lane->url,
                    (double)lane->silent_ns * 1e-9);
    }
    TRY(st);
    lane->silent_ns = 0;
    pthread_mutex_lock(&lane->mtx);
    st = round_of(lane, rows, head);
    pthread_mutex_unlock(&lane->mtx);
    msg_free(m);
    return st;
}

static enum status play(struct lane *lane)
{
    enum status st;
    bool more;

    for (;;) {
        pthread_mutex_lock(&lane->mtx);
        st = settle(lane, &more);
        if (lane->n_playing == lane->n_thinking)
            lane->silent_ns = 0; // the server owes nothing
        pthread_mutex_unlock(&lane->mtx);
        TRY(st);
        if (!more)
            return ST_OK;
        if (lane->n_playing > 0)
            TRY(hear(lane));
    }
}

enum status lane_run(struct lane *lane)
{
    struct lane_shared *s = lane->cfg.shared;
    enum status st;
    int i;

    lane->silent_ns = 0;
    st = play(lane);
    pthread_mutex_lock(&lane->mtx);
    lane->ending = true;
    pthread_mutex_unlock(&lane->mtx);
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
