#include "rollout/played.h"

#include "common/base/mem.h"

#include <string.h>

#define DECISIONS_MIN 16

struct open_episode {
    uint64_t index, group;
    uint32_t member;
    size_t n, n_max; // decisions with outcome; room
    bool final;      // an observation stands behind theirs
    uint32_t n_sub;
    uint64_t *version; // these as in struct episode
    float *obs, *action, *logp, *reward, *latent;
    uint32_t *executed;
    uint8_t *pictures;
};

struct played {
    struct played_config cfg;
    struct open_episode *open; // (n_env)
};

enum status played_create(struct played **out, const struct played_config *cfg)
{
    struct played *p;

    if (cfg->n_env < 1 || cfg->chunk < 1 || cfg->chunk > SPEC_CHUNK_MAX)
        return FAIL(ST_INVAL, "%d envs, chunks of %d actions: expected 1 or more, 1 to %d",
                    cfg->n_env, cfg->chunk, SPEC_CHUNK_MAX);
    p = mem_alloc(1, sizeof *p);
    if (!p)
        return ST_NOMEM;
    p->cfg = *cfg;
    p->open = mem_alloc((size_t)cfg->n_env, sizeof p->open[0]);
    if (!p->open) {
        mem_free(p);
        return ST_NOMEM;
    }
    *out = p;
    return ST_OK;
}

void played_destroy(struct played *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->cfg.n_env; i++) {
        struct open_episode *e = &p->open[i];

        mem_free(e->version);
        mem_free(e->obs);
        mem_free(e->action);
        mem_free(e->logp);
        mem_free(e->reward);
        mem_free(e->latent);
        mem_free(e->executed);
        mem_free(e->pictures);
    }
    mem_free(p->open);
    mem_free(p);
}

void played_begin(struct played *p, int env, uint64_t index, uint64_t group, uint32_t member)
{
    struct open_episode *e = &p->open[env];

    e->index = index;
    e->group = group;
    e->member = member;
    e->n = 0;
    e->final = false;
    e->n_sub = 0;
}

uint64_t played_index(const struct played *p, int env)
{
    return p->open[env].index;
}

uint64_t played_group(const struct played *p, int env)
{
    return p->open[env].group;
}

uint32_t played_member(const struct played *p, int env)
{
    return p->open[env].member;
}

int played_decisions(const struct played *p, int env)
{
    return (int)p->open[env].n;
}

static size_t view_bytes(const struct played *p)
{
    return (size_t)p->cfg.n_view * p->cfg.picture_bytes;
}

// Room for n * width numbers; what is there stays.
#define RESIZE(field, width)                                             \
    do {                                                                 \
        void *at_ = mem_resize(e->field, n, (width) * sizeof *e->field); \
        if (!at_)                                                        \
            return ST_NOMEM;                                             \
        e->field = at_;                                                  \
    } while (0)

static enum status reserve(const struct played *p, struct open_episode *e)
{
    size_t n = e->n_max ? 2 * e->n_max : DECISIONS_MIN, chunk = (size_t)p->cfg.chunk;

    if (e->n < e->n_max)
        return ST_OK;
    RESIZE(version, 1);
    RESIZE(obs, (size_t)p->cfg.n_obs);
    RESIZE(action, chunk * (size_t)p->cfg.n_act);
    RESIZE(logp, chunk);
    RESIZE(reward, chunk);
    RESIZE(executed, 1);
    if (p->cfg.n_latent > 0)
        RESIZE(latent, (size_t)p->cfg.n_latent);
    if (view_bytes(p) > 0)
        RESIZE(pictures, view_bytes(p));
    e->n_max = n;
    return ST_OK;
}

// Observation number n of an episode.
static void see(const struct played *p, struct open_episode *e, const double *obs,
                const uint8_t *const *views)
{
    float *to = e->obs + e->n * (size_t)p->cfg.n_obs;

    for (int i = 0; i < p->cfg.n_obs; i++)
        to[i] = (float)obs[i];
    for (int i = 0; i < p->cfg.n_view; i++)
        memcpy(e->pictures + e->n * view_bytes(p) + (size_t)i * p->cfg.picture_bytes, views[i],
               p->cfg.picture_bytes);
}

enum status played_decide(struct played *p, int env, const struct played_decision *d)
{
    const size_t chunk = (size_t)p->cfg.chunk, width = chunk * (size_t)p->cfg.n_act;
    const size_t n_latent = (size_t)p->cfg.n_latent;
    struct open_episode *e = &p->open[env];

    TRY(reserve(p, e));
    see(p, e, d->obs, d->views);
    memcpy(e->action + e->n * width, d->action, width * sizeof d->action[0]);
    memcpy(e->logp + e->n * chunk, d->logp, chunk * sizeof d->logp[0]);
    if (n_latent > 0)
        memcpy(e->latent + e->n * n_latent, d->latent, n_latent * sizeof d->latent[0]);
    e->version[e->n] = d->version;
    return ST_OK;
}

void played_outcome(struct played *p, int env, const double *reward, uint32_t executed)
{
    struct open_episode *e = &p->open[env];
    float *to = e->reward + e->n * (size_t)p->cfg.chunk;

    if (executed == 0)
        return;
    memset(to, 0, (size_t)p->cfg.chunk * sizeof *to);
    for (uint32_t i = 0; i < executed; i++)
        to[i] = (float)reward[i];
    e->executed[e->n++] = executed;
    e->n_sub += executed;
}

enum status played_final(struct played *p, int env, const double *obs, const uint8_t *const *views)
{
    struct open_episode *e = &p->open[env];

    TRY(reserve(p, e));
    see(p, e, obs, views);
    e->final = true;
    return ST_OK;
}

enum status played_end(struct played *p, int env, uint32_t env_global, uint32_t flags, double score,
                       double episode_return, struct msg **out)
{
    const struct open_episode *o = &p->open[env];
    struct episode e = {.head = {.index = o->index,
                                 .group = o->group,
                                 .version_min = o->n > 0 ? UINT64_MAX : 0,
                                 .score = score,
                                 .episode_return = episode_return,
                                 .env = env_global,
                                 .member = o->member,
                                 .flags = flags | (o->final ? EPISODE_FINAL : 0),
                                 .n_decision = (uint32_t)o->n,
                                 .n_sub = o->n_sub,
                                 .n_obs = (uint32_t)p->cfg.n_obs,
                                 .n_act = (uint32_t)p->cfg.n_act,
                                 .chunk = (uint32_t)p->cfg.chunk,
                                 .n_view = (uint32_t)p->cfg.n_view,
                                 .picture_bytes = (uint32_t)p->cfg.picture_bytes,
                                 .n_latent = (uint32_t)p->cfg.n_latent},
                        .version = o->version,
                        .obs = o->obs,
                        .action = o->action,
                        .logp = o->logp,
                        .reward = o->reward,
                        .latent = o->latent,
                        .executed = o->executed,
                        .pictures = o->pictures};

    for (size_t i = 0; i < o->n; i++) {
        if (o->version[i] < e.head.version_min)
            e.head.version_min = o->version[i];
        if (o->version[i] > e.head.version_max)
            e.head.version_max = o->version[i];
    }
    return episode_write(out, &e);
}
