#include "evaluation/film.h"

#include "common/base/mem.h"
#include "common/base/thread.h"

#include <stdio.h>
#include <string.h>

struct script {
    float *actions; // (cap numbers)
    size_t n, cap;  // numbers
    int64_t n_step;
    bool failed; // no memory
};

struct slot {
    struct script *script; // NULL = no film
    uint64_t start;
};

struct film {
    struct film_config cfg;
    pthread_mutex_t mtx;
    struct slot *slots; // (episodes) guarded by mtx
};

// ------------------------------------------------------------------ scripts

void script_act(struct script **script, const float *action, int n_act)
{
    struct script *s = *script ? *script : mem_alloc(1, sizeof *s);
    size_t n = (size_t)n_act;

    *script = s;
    if (!s || s->failed)
        return;
    if (s->n + n > s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 128 * n;
        float *actions = mem_resize(s->actions, cap, sizeof actions[0]);

        s->failed = !actions;
        if (!actions)
            return;
        s->actions = actions;
        s->cap = cap;
    }
    memcpy(s->actions + s->n, action, n * sizeof action[0]);
    s->n += n;
    s->n_step++;
}

void script_clear(struct script *s)
{
    if (!s)
        return;
    s->n = 0;
    s->n_step = 0;
    s->failed = false;
}

void script_free(struct script *s)
{
    if (s)
        mem_free(s->actions);
    mem_free(s);
}

// ------------------------------------------------------------------ films

void film_path(char *buf, size_t size, const char *task, int64_t episode)
{
    size_t n, i;

    n = (size_t)snprintf(buf, size, "videos/%s", task);
    for (i = strlen("videos/"); i < n && i < size - 1; i++)
        if (buf[i] == '/')
            buf[i] = '_';
    if (episode >= 0 && n < size)
        snprintf(buf + n, size - n, "/eval_episode_%lld.mp4", (long long)episode);
}

enum status film_create(struct film **out, const struct film_config *cfg)
{
    struct film *f = mem_alloc(1, sizeof *f);

    if (!f)
        return ST_NOMEM;
    f->cfg = *cfg;
    f->slots = mem_alloc((size_t)cfg->episodes, sizeof f->slots[0]);
    if (!f->slots) {
        mem_free(f);
        return ST_NOMEM;
    }
    pthread_mutex_init(&f->mtx, NULL);
    *out = f;
    return ST_OK;
}

void film_destroy(struct film *f)
{
    int64_t e;

    if (!f)
        return;
    for (e = 0; e < f->cfg.episodes; e++)
        script_free(f->slots[e].script);
    mem_free(f->slots);
    pthread_mutex_destroy(&f->mtx);
    mem_free(f);
}

enum status film_keep(struct film *f, struct script **script, uint64_t start,
                      const struct episode_result *result)
{
    struct script *s = *script;

    if (result->outcome == OUTCOME_ERROR || result->length == 0 ||
        (f->cfg.which == FILM_FAILURES && result->outcome != OUTCOME_FAILURE))
        return ST_OK;
    if (!s || s->failed)
        return FAIL(ST_NOMEM, "no memory for the actions of episode %lld",
                    (long long)result->episode);
    *script = NULL;
    pthread_mutex_lock(&f->mtx);
    f->slots[result->episode] = (struct slot){s, start};
    pthread_mutex_unlock(&f->mtx);
    return ST_OK;
}

enum status film_make(struct film *f, const struct episode_result *result)
{
    enum status st = ST_OK;
    struct slot slot;

    pthread_mutex_lock(&f->mtx);
    slot = f->slots[result->episode];
    f->slots[result->episode] = (struct slot){0};
    pthread_mutex_unlock(&f->mtx);
    if (slot.script)
        st = f->cfg.make(f->cfg.arg, slot.start, slot.script->actions, slot.script->n_step, result);
    script_free(slot.script);
    return st;
}
