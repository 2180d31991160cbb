// fake_server.h - an env server without physics, for tests of its clients: counting envs whose
// episodes, rewards and faults follow from the script. One client a server at a time.
//
// Episode e lasts `length + e % 5` steps. Observation: (episode, steps so far). The reward of a
// step is the sum of its actions plus the episode's number.
#ifndef TESTS_FAKE_SERVER_H
#define TESTS_FAKE_SERVER_H

#include "common/base/batcher.h"
#include "common/wire/envproto.h"
#include "common/wire/link.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define FAKE_ENVS_MAX 64
#define FAKE_NEVER    UINT64_MAX

struct fake_script {
    const char *task; // NULL = "Count-v0"
    const char *engine;
    int n_env, n_obs, n_act; // n_obs, n_act: 0 = 2, 3
    int b_max;               // rows of a batch, 0 = all of a request
    uint64_t length;         // 0 = 3
    bool has_success;        // even episodes succeed, in their first step
    uint64_t error_always;   // this episode ends by an error in its second step, every time
    uint64_t error_once;     // this one only the first time it is played anywhere
    atomic_int *errors_made; // its count
    // faults at the first episode that is not below:
    uint64_t die_at;        // close the connection
    uint64_t silent_at;     // answer nothing from then on
    uint64_t refuse_at;     // send an ERROR frame
    uint64_t confuse_at;    // answer for another episode
    sem_t *post_at_fault;   // NULL = none
    int returns;            // so many clients more, one after the other, without faults
    sem_t *post_at_return;  // when one of them asks for the first time; NULL = none
    int vanish;             // the first so many clients lose the connection after WELCOME
    sem_t *post_at_welcome; // of each client; NULL = none
    sem_t *wait_at_start;   // until then the first reset is not answered; NULL = at once
    uint64_t stop_at;       // set `stop` when this episode is asked for
    atomic_bool *stop;
};

// A script without faults.
#define FAKE_SCRIPT                                                             \
    .error_always = FAKE_NEVER, .error_once = FAKE_NEVER, .die_at = FAKE_NEVER, \
    .silent_at = FAKE_NEVER, .refuse_at = FAKE_NEVER, .confuse_at = FAKE_NEVER, \
    .stop_at = FAKE_NEVER

struct fake_env {
    uint64_t seed, stream, episode, steps;
    double ret;
    bool playing;
};

struct fake_server {
    struct fake_script script;
    struct listener *listener;
    struct spec spec;
    struct row_layout layout;
    struct fake_env envs[FAKE_ENVS_MAX];
    uint64_t batches, sessions;
    bool silent, waited, posted;
    pthread_t thread;
};

// A fault of the fake itself, on its own thread.
static inline void fake_must(enum status st)
{
    if (st != ST_OK)
        panic("fake server: %s (%s)", status_name(st), error_last()->text);
}

static inline void fake_fill_row(struct fake_server *f, uint32_t id, uint8_t *row,
                                 const float *action)
{
    struct fake_env *env = &f->envs[id];
    struct row_head *h = (void *)row;
    double *obs = (void *)(row + f->layout.obs), reward = (double)env->episode;
    uint64_t length = f->script.length + env->episode % 5;
    bool error;
    int k;

    *h = (struct row_head){
        .env = id, .seed = env->seed, .stream = env->stream, .episode = env->episode};
    if (!action) {
        h->flags = ROW_FIRST;
    } else {
        error = env->steps == 1 && (env->episode == f->script.error_always ||
                                    (env->episode == f->script.error_once &&
                                     atomic_fetch_add(f->script.errors_made, 1) == 0));
        if (!env->playing)
            panic("fake server: env %u steps without a reset", id);
        if (error) {
            h->flags = ROW_ERROR;
            h->error = ROW_ERROR_QACC;
        } else {
            for (k = 0; k < f->spec.n_act; k++) {
                if (!(action[k] >= f->spec.act_low[k] && action[k] <= f->spec.act_high[k]))
                    panic("fake server: action %g is out of bounds", (double)action[k]);
                reward += action[k];
            }
            *(double *)(row + f->layout.reward) = reward;
            env->ret += reward;
            env->steps++;
            h->n_sub = 1;
            if (f->script.has_success && env->steps == 1 && env->episode % 2 == 0)
                h->flags |= ROW_SUCCESS;
            if (env->steps == length)
                h->flags |= env->episode % 2 ? ROW_TERMINATED : ROW_TRUNCATED;
        }
        env->playing = !(h->flags & ROW_DONE);
    }
    h->episode_return = env->ret;
    h->elapsed = (uint32_t)env->steps;
    if (env->episode >= f->script.confuse_at)
        h->episode++;
    obs[0] = (double)env->episode;
    obs[1] = (double)env->steps;
}

static inline enum status fake_send(struct link *k, struct msg *m)
{
    enum status st = link_send(k, m);

    if (st != ST_OK)
        msg_free(m);
    return st;
}

// Answer one request in batches of b_max rows. `resets` or `steps` is NULL.
static inline enum status fake_answer(struct fake_server *f, struct link *k,
                                      const struct reset_row *resets, const uint8_t *steps, int n)
{
    size_t stride = step_stride(1, f->spec.n_act);
    int b_max = f->script.b_max > 0 ? f->script.b_max : n, i, j;

    for (i = 0; i < n; i += b_max) {
        int n_row = n - i < b_max ? n - i : b_max;
        struct batch_head head = {.seq = ++f->batches,
                                  .n = (uint32_t)n_row,
                                  .why = BATCHER_DRAINED,
                                  .stride = f->layout.stride};
        struct msg *m;
        uint8_t *rows;

        fake_must(msg_new(&m, MSG_BATCH, 0));
        fake_must(msg_bytes(m, &head, sizeof head));
        rows = msg_append(m, (size_t)n_row * f->layout.stride);
        for (j = 0; j < n_row; j++) {
            const struct step_row *step =
                steps ? (const void *)(steps + (size_t)(i + j) * stride) : NULL;

            fake_fill_row(f, step ? step->env : resets[i + j].env,
                          rows + (size_t)j * f->layout.stride,
                          step ? (const float *)(step + 1) : NULL);
        }
        TRY(fake_send(k, m));
    }
    return ST_OK;
}

static inline enum status fake_refuse(struct link *k, uint64_t seq)
{
    struct proto_error e = {
        .code = ST_PROTO, .env = UINT32_MAX, .seq = seq, .text = "no such luck"};
    struct msg *m;

    fake_must(proto_error_write(&m, &e));
    return fake_send(k, m);
}

static inline bool fake_faulty(const struct fake_script *s, uint64_t episode)
{
    return episode >= s->die_at || episode >= s->silent_at || episode >= s->refuse_at ||
           episode >= s->confuse_at;
}

static inline enum status fake_reset(struct fake_server *f, struct link *k, const struct msg *m)
{
    const struct fake_script *s = &f->script;
    const struct reset_row *rows;
    uint64_t seq;
    int i, n;

    fake_must(reset_read(m, &seq, &rows, &n));
    if (s->wait_at_start && !f->waited)
        while (sem_wait(s->wait_at_start) != 0)
            continue;
    f->waited = true;
    for (i = 0; i < n && s->post_at_fault && !f->posted; i++) {
        f->posted = s->post_at_fault == s->post_at_return || fake_faulty(s, rows[i].episode);
        if (f->posted)
            sem_post(s->post_at_fault);
    }
    for (i = 0; i < n; i++) {
        struct fake_env *env = &f->envs[rows[i].env];

        if (rows[i].episode >= s->die_at)
            return ST_CLOSED;
        if (rows[i].episode >= s->refuse_at)
            return fake_refuse(k, seq);
        f->silent |= rows[i].episode >= s->silent_at;
        if (rows[i].episode == s->stop_at)
            atomic_store(s->stop, true);
        *env = (struct fake_env){.seed = rows[i].seed,
                                 .stream = rows[i].stream,
                                 .episode = rows[i].episode,
                                 .playing = true};
    }
    return f->silent ? ST_OK : fake_answer(f, k, rows, NULL, n);
}

static inline enum status fake_step(struct fake_server *f, struct link *k, const struct msg *m)
{
    const uint8_t *rows;
    uint64_t seq;
    int n;

    fake_must(step_read(m, 1, f->spec.n_act, &seq, &rows, &n));
    return f->silent ? ST_OK : fake_answer(f, k, NULL, rows, n);
}

static inline void fake_welcome(struct fake_server *f, struct link *k)
{
    static _Thread_local struct welcome w;
    struct hello hello;
    struct msg *m;
    int i;

    fake_must(link_recv(k, &m, ENOUGH));
    fake_must(hello_read(m, &hello));
    msg_free(m);
    w = (struct welcome){.spec = f->spec,
                         .autoreset = hello.autoreset,
                         .k_max = hello.k_max,
                         .b_max = (uint32_t)f->script.n_env,
                         .b_min = (uint32_t)f->script.n_env,
                         .session = ++f->sessions,
                         .n_env = (uint32_t)f->script.n_env};
    for (i = 0; i < f->script.n_env; i++)
        w.env[i] = (uint32_t)i;
    fake_must(welcome_write(&m, &w));
    fake_must(fake_send(k, m));
}

// Serve one client to its end; false if none came.
static inline bool fake_serve(struct fake_server *f)
{
    struct link *k;
    struct msg *m;

    if (listener_accept(f->listener, &k, WAIT_NEVER) != ST_OK)
        return false;
    fake_welcome(f, k);
    if (f->script.post_at_welcome)
        sem_post(f->script.post_at_welcome);
    while (f->sessions > (uint64_t)f->script.vanish && link_recv(k, &m, WAIT_NEVER) == ST_OK) {
        enum status st = m->type == MSG_RESET  ? fake_reset(f, k, m)
                         : m->type == MSG_STEP ? fake_step(f, k, m)
                                               : ST_CLOSED;

        msg_free(m);
        if (st != ST_OK)
            break;
    }
    link_close(k);
    link_destroy(k);
    return true;
}

static inline void *fake_run(void *arg)
{
    struct fake_server *f = arg;
    struct fake_script *s = &f->script;
    int i;

    for (i = 0; fake_serve(f) && i < s->returns; i++) {
        s->die_at = s->silent_at = s->refuse_at = s->confuse_at = FAKE_NEVER;
        s->post_at_fault = s->post_at_return;
        f->silent = f->posted = false;
        f->batches = 0;
    }
    return NULL;
}

// Start a server at `url`.
static inline void fake_start(struct fake_server *f, const char *url,
                              const struct fake_script *script)
{
    int k;

    *f = (struct fake_server){.script = *script};
    if (f->script.length == 0)
        f->script.length = 3;
    f->spec.n_obs = script->n_obs ? script->n_obs : 2;
    f->spec.n_act = script->n_act ? script->n_act : 3;
    f->spec.has_success = script->has_success;
    f->spec.max_episode_steps = 1000;
    f->spec.dt_s = 0.05;
    f->spec.n_env = script->n_env;
    snprintf(f->spec.task, sizeof f->spec.task, "%s", script->task ? script->task : "Count-v0");
    snprintf(f->spec.instruction, sizeof f->spec.instruction, "count");
    snprintf(f->spec.engine, sizeof f->spec.engine, "%s",
             script->engine ? script->engine : "Counter 1.0");
    for (k = 0; k < f->spec.n_act; k++) {
        f->spec.act_low[k] = k == 1 ? 0.25f : -1; // zero is out of bounds for one of them
        f->spec.act_high[k] = 2;
    }
    row_layout_make(&f->layout, &f->spec, 1, AUTORESET_DISABLED);
    fake_must(listener_open(&f->listener, url, 1 << 20));
    if (pthread_create(&f->thread, NULL, fake_run, f) != 0)
        panic("fake server: no thread");
}

static inline void fake_stop(struct fake_server *f)
{
    listener_close(f->listener);
    pthread_join(f->thread, NULL);
    listener_destroy(f->listener);
}

#endif
