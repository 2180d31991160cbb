#include "rollout/history.h"

#include "common/base/mem.h"

#include <string.h>

#define CAPACITY_MIN 256

struct past {
    uint64_t episode;
    uint32_t elapsed;  // actions executed
    uint32_t known;    // actions to replay; more than elapsed while that goes on
    uint32_t capacity; // actions that `action` has room for
    float *action;     // (capacity, n_act)
};

struct history {
    int n_env;
    size_t n_act;
    struct past *past; // (n_env)
};

enum status history_create(struct history **out, int n_env, int n_act)
{
    struct history *h = mem_alloc(1, sizeof *h);

    if (!h)
        return ST_NOMEM;
    h->n_env = n_env;
    h->n_act = (size_t)n_act;
    h->past = mem_alloc((size_t)n_env, sizeof h->past[0]);
    if (!h->past) {
        mem_free(h);
        return ST_NOMEM;
    }
    *out = h;
    return ST_OK;
}

void history_destroy(struct history *h)
{
    int i;

    if (!h)
        return;
    for (i = 0; i < h->n_env; i++)
        mem_free(h->past[i].action);
    mem_free(h->past);
    mem_free(h);
}

uint64_t history_episode(const struct history *h, int env)
{
    return h->past[env].episode;
}

uint32_t history_elapsed(const struct history *h, int env)
{
    return h->past[env].elapsed;
}

static enum status reserve(struct history *h, struct past *p, uint32_t n)
{
    uint32_t capacity = p->capacity ? p->capacity : CAPACITY_MIN;
    float *action;

    if (n <= p->capacity)
        return ST_OK;
    while (capacity < n)
        capacity = capacity > UINT32_MAX / 2 ? UINT32_MAX : 2 * capacity;
    action = mem_resize(p->action, capacity * h->n_act, sizeof action[0]);
    if (!action)
        return ST_NOMEM;
    p->action = action;
    p->capacity = capacity;
    return ST_OK;
}

enum status history_act(struct history *h, int env, const float *action)
{
    struct past *p = &h->past[env];

    TRY(reserve(h, p, p->elapsed + 1));
    memcpy(p->action + p->elapsed * h->n_act, action, h->n_act * sizeof action[0]);
    return ST_OK;
}

void history_executed(struct history *h, int env)
{
    h->past[env].elapsed++;
}

void history_begin(struct history *h, int env, uint64_t episode)
{
    struct past *p = &h->past[env];

    if (p->episode != episode)
        p->known = 0; // what was to be replayed is another episode's
    p->episode = episode;
    p->elapsed = 0;
}

const float *history_replay(const struct history *h, int env)
{
    const struct past *p = &h->past[env];

    return p->elapsed < p->known ? p->action + p->elapsed * h->n_act : NULL;
}

enum status history_write(const struct history *h, uint32_t env_first, struct msg **out)
{
    struct msg *m;
    enum status st;
    int i;

    TRY(state_begin(&m, env_first, (uint32_t)h->n_env, (uint32_t)h->n_act));
    for (i = 0, st = ST_OK; i < h->n_env && st == ST_OK; i++) {
        const struct past *p = &h->past[i];
        // an env that is still on its way to where it was is as good as there
        uint32_t n = p->known > p->elapsed ? p->known : p->elapsed;

        st = state_add(
            m, &(struct episode_state){.episode = p->episode, .elapsed = n, .action = p->action},
            (uint32_t)h->n_act);
    }
    if (st != ST_OK) {
        msg_free(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

enum status history_read(struct history *h, uint32_t env_first, const struct msg *m)
{
    struct episode_state s;
    uint32_t first, n;
    struct reader r;
    int i;

    TRY(state_read(m, (uint32_t)h->n_act, &r, &first, &n));
    if (first != env_first || n != (uint32_t)h->n_env)
        return FAIL(ST_PROTO, "STATE of envs %u to %u, expected %u to %u", first, first + n - 1,
                    env_first, env_first + (uint32_t)h->n_env - 1);
    for (i = 0; i < h->n_env; i++) {
        struct past *p = &h->past[i];

        TRY(state_next(&r, (uint32_t)h->n_act, &s));
        TRY(reserve(h, p, s.elapsed));
        if (s.elapsed > 0)
            memcpy(p->action, s.action, s.elapsed * h->n_act * sizeof p->action[0]);
        p->episode = s.episode;
        p->elapsed = 0;
        p->known = s.elapsed;
    }
    return reader_end(&r, true, "STATE");
}
