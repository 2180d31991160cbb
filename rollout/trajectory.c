#include "rollout/trajectory.h"

#include "common/base/mem.h"

#include <string.h>

// The open chunk of one env; arrays as in struct chunk.
struct open_chunk {
    uint32_t n; // complete steps
    uint32_t n_truncated, n_episode;
    uint64_t index; // chunks closed before
    float *obs, *action, *logp, *reward, *final_obs, *last_obs, *episode_return, *episode_length;
    uint32_t *flags;
    uint64_t *version;
    uint8_t *pictures;       // (lead + horizon + 1)
    uint8_t *final_pictures; // (n_final_max)
    size_t n_final_max;
};

struct trajectory {
    int n_env;
    size_t lead, picture_bytes;
    uint8_t *pictures; // (n_env, lead + horizon + 1)
    size_t horizon, n_obs, n_act;
    struct open_chunk *open; // (n_env)
    float *floats;           // (n_env, floats of a chunk)
    uint32_t *flags;         // (n_env, horizon)
    uint64_t *version;       // (n_env, horizon)
};

static float *carve(float **at, size_t n)
{
    float *p = *at;

    *at += n;
    return p;
}

// Pictures that a chunk has without the final ones.
static size_t picture_room(const struct trajectory *t)
{
    return t->lead + t->horizon + 1;
}

static uint8_t *picture_at(const struct trajectory *t, const struct open_chunk *c, size_t i)
{
    return c->pictures + i * t->picture_bytes;
}

static void lay_out(struct trajectory *t)
{
    float *at = t->floats;
    int i;

    for (i = 0; i < t->n_env; i++) {
        struct open_chunk *c = &t->open[i];

        c->obs = carve(&at, t->horizon * t->n_obs);
        c->final_obs = carve(&at, t->horizon * t->n_obs);
        c->last_obs = carve(&at, t->n_obs);
        c->action = carve(&at, t->horizon * t->n_act);
        c->logp = carve(&at, t->horizon);
        c->reward = carve(&at, t->horizon);
        c->episode_return = carve(&at, t->horizon);
        c->episode_length = carve(&at, t->horizon);
        if (t->pictures)
            c->pictures = t->pictures + (size_t)i * picture_room(t) * t->picture_bytes;
        c->flags = t->flags + (size_t)i * t->horizon;
        c->version = t->version + (size_t)i * t->horizon;
    }
}

enum status trajectory_create(struct trajectory **out, const struct trajectory_config *cfg)
{
    size_t n_env = (size_t)cfg->n_env, floats;
    struct trajectory *t;

    if (cfg->n_env < 1 || cfg->horizon < 1 || cfg->horizon > TRAIN_STEPS_MAX)
        return FAIL(ST_INVAL, "%d envs, chunks of %d steps: expected 1 or more, 1 to %d",
                    cfg->n_env, cfg->horizon, TRAIN_STEPS_MAX);
    t = mem_alloc(1, sizeof *t);
    if (!t)
        return ST_NOMEM;
    t->n_env = cfg->n_env;
    t->horizon = (size_t)cfg->horizon;
    t->n_obs = (size_t)cfg->n_obs;
    t->n_act = (size_t)cfg->n_act;
    t->picture_bytes = cfg->picture_bytes;
    t->lead = cfg->picture_bytes ? (size_t)cfg->stack - 1 : 0;
    floats = t->horizon * (2 * t->n_obs + t->n_act + 4) + t->n_obs;
    t->open = mem_alloc(n_env, sizeof t->open[0]);
    t->floats = mem_alloc(n_env * floats, sizeof t->floats[0]);
    t->flags = mem_alloc(n_env * t->horizon, sizeof t->flags[0]);
    t->version = mem_alloc(n_env * t->horizon, sizeof t->version[0]);
    if (t->picture_bytes)
        t->pictures = mem_alloc(n_env * picture_room(t), t->picture_bytes);
    if (!t->open || !t->floats || !t->flags || !t->version || (t->picture_bytes && !t->pictures)) {
        trajectory_destroy(t);
        return ST_NOMEM;
    }
    lay_out(t);
    *out = t;
    return ST_OK;
}

void trajectory_destroy(struct trajectory *t)
{
    if (!t)
        return;
    for (int i = 0; t->open && i < t->n_env; i++)
        mem_free(t->open[i].final_pictures);
    mem_free(t->open);
    mem_free(t->floats);
    mem_free(t->flags);
    mem_free(t->version);
    mem_free(t->pictures);
    mem_free(t);
}

static void to_float(float *out, const double *x, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        out[i] = (float)x[i];
}

void trajectory_decide(struct trajectory *t, int env, const double *obs,
                       const uint8_t *const *pictures, const float *action, float logp,
                       uint64_t version)
{
    struct open_chunk *c = &t->open[env];
    size_t i;

    for (i = c->n == 0 ? 0 : t->lead; t->picture_bytes && i <= t->lead; i++)
        memcpy(picture_at(t, c, c->n + i), pictures[i], t->picture_bytes);

    to_float(c->obs + c->n * t->n_obs, obs, t->n_obs);
    memcpy(c->action + c->n * t->n_act, action, t->n_act * sizeof action[0]);
    c->logp[c->n] = logp;
    c->version[c->n] = version;
}

static enum status keep_final_picture(const struct trajectory *t, struct open_chunk *c,
                                      const uint8_t *picture)
{
    if (c->n_truncated == c->n_final_max) {
        size_t n = 2 * c->n_final_max + 1;
        uint8_t *p = mem_resize(c->final_pictures, n, t->picture_bytes);

        if (!p)
            return ST_NOMEM;
        c->final_pictures = p;
        c->n_final_max = n;
    }
    memcpy(c->final_pictures + c->n_truncated * t->picture_bytes, picture, t->picture_bytes);
    return ST_OK;
}

enum status trajectory_outcome(struct trajectory *t, int env, double reward, uint32_t flags,
                               const double *final_obs, const uint8_t *final_picture, bool *full)
{
    struct open_chunk *c = &t->open[env];

    if ((flags & CHUNK_TRUNCATED) && t->picture_bytes)
        TRY(keep_final_picture(t, c, final_picture));
    c->reward[c->n] = (float)reward;
    c->flags[c->n] = flags;
    if (flags & CHUNK_TRUNCATED)
        to_float(c->final_obs + c->n_truncated++ * t->n_obs, final_obs, t->n_obs);
    c->n++;
    *full = c->n == t->horizon;
    return ST_OK;
}

void trajectory_episode(struct trajectory *t, int env, double episode_return, uint32_t length)
{
    struct open_chunk *c = &t->open[env];

    c->episode_return[c->n_episode] = (float)episode_return;
    c->episode_length[c->n_episode] = (float)length;
    c->n_episode++;
}

static void empty(struct open_chunk *c)
{
    c->n = c->n_truncated = c->n_episode = 0;
}

void trajectory_forget(struct trajectory *t, int env)
{
    empty(&t->open[env]);
}

enum status trajectory_close(struct trajectory *t, int env, const double *last_obs,
                             const uint8_t *last_picture, uint32_t worker, uint32_t env_global,
                             struct msg **out)
{
    struct open_chunk *o = &t->open[env];
    struct chunk c = {.head = {.worker = worker,
                               .env = env_global,
                               .index = o->index,
                               .version_min = UINT64_MAX,
                               .n_step = o->n,
                               .n_obs = (uint32_t)t->n_obs,
                               .n_act = (uint32_t)t->n_act,
                               .n_truncated = o->n_truncated,
                               .n_episode = o->n_episode,
                               .n_lead = (uint32_t)t->lead,
                               .picture_bytes = (uint32_t)t->picture_bytes},
                      .obs = o->obs,
                      .last_obs = o->last_obs,
                      .final_obs = o->final_obs,
                      .action = o->action,
                      .logp = o->logp,
                      .reward = o->reward,
                      .flags = o->flags,
                      .version = o->version,
                      .episode_return = o->episode_return,
                      .episode_length = o->episode_length,
                      .pictures = o->pictures,
                      .final_pictures = o->final_pictures};
    uint32_t i;

    for (i = 0; i < o->n; i++) {
        if (o->version[i] < c.head.version_min)
            c.head.version_min = o->version[i];
        if (o->version[i] > c.head.version_max)
            c.head.version_max = o->version[i];
    }
    to_float(o->last_obs, last_obs, t->n_obs);
    if (t->picture_bytes)
        memcpy(picture_at(t, o, t->lead + t->horizon), last_picture, t->picture_bytes);
    TRY(chunk_write(out, &c));
    o->index++;
    empty(o);
    return ST_OK;
}
