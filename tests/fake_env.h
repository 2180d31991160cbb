// fake_env.h - an env server for tests: an env counts its steps. Its observation is
// (step, episode, stream), its reward the step's number, and every episode lasts `length` steps.
#ifndef TESTS_FAKE_ENV_H
#define TESTS_FAKE_ENV_H

#include "tests/testing.h"

#include "common/base/thread.h"
#include "common/wire/envproto.h"
#include "common/wire/link.h"

#include <stdatomic.h>
#include <stdio.h>

#define FAKE_OBS     3
#define FAKE_ENV_MAX 64
#define FAKE_LOG_MAX 4096

struct fake_step { // an executed action
    uint64_t stream, episode;
    uint32_t step;
    float action;
};

struct fake_env {
    // settings
    const char *url;
    int n_env;         // of the server
    uint32_t length;   // steps of an episode
    bool terminates;   // episodes end by termination, else by truncation
    uint32_t error_at; // the step of episode 0 that ends it by an error, 0 = none
    int die_after;     // requests answered before the connection is cut, 0 = never
    bool stays_away;   // and `away` is set then
    atomic_bool away;  // cut every new connection at once
    const char *task;

    struct listener *listener;
    pthread_t thread;
    uint32_t autoreset;
    struct {
        uint64_t seed, stream, episode;
        double sum;
        uint32_t step;
    } env[FAKE_ENV_MAX];
    uint64_t seq;
    // what was executed, in order; read it after fake_env_stop
    struct fake_step log[FAKE_LOG_MAX];
    int n_log;
    atomic_int requests;
};

static inline struct spec fake_spec(const struct fake_env *f)
{
    struct spec s = {.engine = "none",
                     .instruction = "nothing",
                     .n_obs = FAKE_OBS,
                     .n_act = 1,
                     .act_low = {-0.5f},
                     .act_high = {0.5f},
                     .dt_s = 1,
                     .n_env = f->n_env};

    snprintf(s.task, sizeof s.task, "%s", f->task ? f->task : "Counter");
    return s;
}

static inline void fake_obs(const struct fake_env *f, int e, double *obs)
{
    obs[0] = f->env[e].step;
    obs[1] = (double)f->env[e].episode;
    obs[2] = (double)f->env[e].stream;
}

static inline void fake_row(struct fake_env *f, const struct row_layout *layout, int e,
                            const float *action, uint8_t *row)
{
    struct row_head *head = (struct row_head *)row;
    bool error;

    *head = (struct row_head){.env = (uint32_t)e,
                              .flags = ROW_FIRST,
                              .seed = f->env[e].seed,
                              .stream = f->env[e].stream,
                              .episode = f->env[e].episode};
    if (action) {
        if (f->n_log < FAKE_LOG_MAX)
            f->log[f->n_log++] =
                (struct fake_step){f->env[e].stream, f->env[e].episode, f->env[e].step, *action};
        f->env[e].step++;
        error = f->error_at > 0 && f->env[e].episode == 0 && f->env[e].step == f->error_at;
        f->env[e].sum += f->env[e].step;
        head->flags = 0;
        head->n_sub = 1;
        head->elapsed = f->env[e].step;
        head->episode_return = f->env[e].sum;
        *(double *)(row + layout->reward) = f->env[e].step;
        if (error) {
            head->flags = ROW_ERROR | ROW_HAS_FINAL;
            head->error = ROW_ERROR_ENGINE;
        } else if (f->env[e].step == f->length) {
            head->flags = (f->terminates ? ROW_TERMINATED : ROW_TRUNCATED) | ROW_HAS_FINAL;
            fake_obs(f, e, (double *)(row + layout->final_obs));
        }
        if (head->flags) {
            f->env[e].episode++;
            f->env[e].step = 0;
            f->env[e].sum = 0;
        }
    }
    fake_obs(f, e, (double *)(row + layout->obs));
}

static inline enum status fake_answer(struct fake_env *f, struct link *k, const struct msg *m)
{
    const struct spec spec = fake_spec(f);
    size_t stride = step_stride(1, 1);
    const struct reset_row *resets = NULL;
    const uint8_t *steps = NULL;
    struct row_layout layout;
    struct msg *out;
    uint8_t *row;
    uint64_t seq;
    int n, i;

    row_layout_make(&layout, &spec, 1, (enum autoreset)f->autoreset);
    if (m->type == MSG_RESET)
        TRY(reset_read(m, &seq, &resets, &n));
    else
        TRY(step_read(m, 1, 1, &seq, &steps, &n));
    TRY(msg_new(&out, MSG_BATCH, sizeof(struct batch_head) + (size_t)n * layout.stride));
    *(struct batch_head *)msg_append(out, sizeof(struct batch_head)) =
        (struct batch_head){.seq = ++f->seq, .n = (uint32_t)n, .why = 3, .stride = layout.stride};
    for (i = 0; i < n; i++) {
        int e = (int)(resets ? resets[i].env
                             : ((const struct step_row *)(steps + (size_t)i * stride))->env);

        row = msg_append(out, layout.stride);
        if (resets) {
            f->env[e].seed = resets[i].seed;
            f->env[e].stream = resets[i].stream;
            f->env[e].episode = resets[i].episode;
            f->env[e].sum = f->env[e].step = 0;
            fake_row(f, &layout, e, NULL, row);
        } else {
            fake_row(f, &layout, e,
                     (const float *)(steps + (size_t)i * stride + sizeof(struct step_row)), row);
        }
    }
    return link_send(k, out);
}

// Serves one client at a time.
static inline void *fake_env_run(void *arg)
{
    struct fake_env *f = arg;
    struct welcome *w = mem_alloc(1, sizeof *w);
    struct hello h;
    struct link *k;
    struct msg *m;
    int i;

    while (listener_accept(f->listener, &k, WAIT_NEVER) == ST_OK) {
        enum status st = atomic_load(&f->away) ? ST_CLOSED : link_recv(k, &m, WAIT_NEVER);

        if (st == ST_OK) {
            assert_ok(hello_read(m, &h));
            msg_free(m);
            f->autoreset = h.autoreset;
            f->seq = 0;
            *w = (struct welcome){.spec = fake_spec(f),
                                  .autoreset = h.autoreset,
                                  .k_max = 1,
                                  .b_max = 1,
                                  .b_min = 1,
                                  .n_env = h.n_env ? h.n_env : (uint32_t)f->n_env};
            for (i = 0; i < (int)w->n_env; i++)
                w->env[i] = (uint32_t)i;
            assert_ok(welcome_write(&m, w));
            st = link_send(k, m);
        }
        while (st == ST_OK && (st = link_recv(k, &m, WAIT_NEVER)) == ST_OK) {
            st = fake_answer(f, k, m);
            msg_free(m);
            if (atomic_fetch_add(&f->requests, 1) + 1 == f->die_after) {
                atomic_store(&f->away, f->stays_away);
                st = ST_CLOSED;
            }
        }
        link_close(k);
        link_destroy(k);
    }
    mem_free(w);
    return NULL;
}

static inline void fake_env_start(struct fake_env *f)
{
    assert_ok(listener_open(&f->listener, f->url, 1 << 20));
    assert_ok(thread_start(&f->thread, "fake-env", fake_env_run, f));
}

// The clients must have gone.
static inline void fake_env_stop(struct fake_env *f)
{
    listener_close(f->listener);
    pthread_join(f->thread, NULL);
    listener_destroy(f->listener);
}

#endif
