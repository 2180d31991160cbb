#include "common/wire/episode.h"

#include "common/wire/proto_priv.h"

#include <math.h>

_Static_assert(sizeof(struct episode_head) == 96, "heads are sent as they stand in memory");

#define FLAGS (EPISODE_SUCCESS | EPISODE_TRUNCATED | EPISODE_ERROR | EPISODE_FINAL)

static size_t picture_bytes(const struct episode_head *h)
{
    return (size_t)episode_n_seen(h) * h->n_view * h->picture_bytes;
}

static size_t episode_bytes(const struct episode_head *h)
{
    size_t floats = h->n_latent + (size_t)h->chunk * ((size_t)h->n_act + 2);

    return sizeof *h +
           h->n_decision * (sizeof(uint64_t) + sizeof(uint32_t) + floats * sizeof(float)) +
           (size_t)episode_n_seen(h) * h->n_obs * sizeof(float) + picture_bytes(h);
}

// Sizes that a reader accepts; with these the products below stay far from overflow.
static enum status check_sizes(const struct episode_head *h)
{
    TRY(in_range("EPISODE: flags", h->flags, 0, FLAGS));
    TRY(in_range("EPISODE: n_decision", h->n_decision, h->flags & EPISODE_ERROR ? 0 : 1,
                 TRAIN_STEPS_MAX));
    TRY(in_range("EPISODE: n_obs", h->n_obs, 1, SPEC_OBS_MAX));
    TRY(in_range("EPISODE: n_act", h->n_act, 1, SPEC_ACT_MAX));
    TRY(in_range("EPISODE: chunk", h->chunk, 1, SPEC_CHUNK_MAX));
    TRY(in_range("EPISODE: n_view", h->n_view, 0, SPEC_PICTURE_MAX));
    TRY(in_range("EPISODE: n_latent", h->n_latent, 0, EPISODE_LATENT_MAX));
    TRY(in_range("EPISODE: unused", h->unused, 0, 0));
    TRY(in_range("EPISODE: n_sub", h->n_sub, h->n_decision, (int64_t)h->n_decision * h->chunk));
    return in_range("EPISODE: picture_bytes", h->picture_bytes, 0,
                    3 * TRAIN_SIDE_MAX * TRAIN_SIDE_MAX);
}

static enum status put(struct msg *m, const struct episode *e)
{
    const struct episode_head *h = &e->head;
    const size_t n = h->n_decision, subs = n * h->chunk;

    TRY(msg_bytes(m, h, sizeof *h));
    TRY(msg_bytes(m, e->version, n * sizeof *e->version));
    TRY(msg_bytes(m, e->obs, (size_t)episode_n_seen(h) * h->n_obs * sizeof *e->obs));
    TRY(msg_bytes(m, e->action, subs * h->n_act * sizeof *e->action));
    TRY(msg_bytes(m, e->logp, subs * sizeof *e->logp));
    TRY(msg_bytes(m, e->reward, subs * sizeof *e->reward));
    TRY(msg_bytes(m, e->latent, n * h->n_latent * sizeof *e->latent));
    TRY(msg_bytes(m, e->executed, n * sizeof *e->executed));
    return msg_bytes(m, e->pictures, picture_bytes(h));
}

enum status episode_write(struct msg **out, const struct episode *e)
{
    struct msg *m;

    if (check_sizes(&e->head) != ST_OK)
        return FAIL(ST_INVAL, "%s", error_last()->text);
    TRY(msg_new(&m, MSG_EPISODE, episode_bytes(&e->head)));
    return finish(put(m, e), m, out);
}

// Does it fit what the worker said that it would send?
static enum status check_join(const struct episode_head *h, const struct join *j)
{
    TRY(in_range("EPISODE: n_obs", h->n_obs, j->n_obs, j->n_obs));
    TRY(in_range("EPISODE: n_act", h->n_act, j->n_act, j->n_act));
    TRY(in_range("EPISODE: chunk", h->chunk, j->chunk, j->chunk));
    TRY(in_range("EPISODE: n_view", h->n_view, j->n_view, j->n_view));
    TRY(in_range("EPISODE: picture_bytes", h->picture_bytes, join_picture_bytes(j),
                 join_picture_bytes(j)));
    if (h->env < j->env_first || h->env - j->env_first >= j->n_env)
        return FAIL(ST_PROTO, "EPISODE: env %u is not the worker's", h->env);
    if (!isfinite(h->score) || !isfinite(h->episode_return))
        return FAIL(ST_PROTO, "EPISODE: the score or return is not finite");
    if (h->version_min > h->version_max)
        return FAIL(ST_PROTO, "EPISODE: versions from %llu to %llu",
                    (unsigned long long)h->version_min, (unsigned long long)h->version_max);
    return ST_OK;
}

static enum status check_decisions(const struct episode *e)
{
    const struct episode_head *h = &e->head;
    uint64_t n_sub = 0;

    for (uint32_t i = 0; i < h->n_decision; i++) {
        if (e->version[i] < h->version_min || e->version[i] > h->version_max)
            return FAIL(ST_PROTO, "EPISODE: decision %u has version %llu, expected %llu to %llu", i,
                        (unsigned long long)e->version[i], (unsigned long long)h->version_min,
                        (unsigned long long)h->version_max);
        TRY(in_range("EPISODE: executed", e->executed[i], 1, h->chunk));
        n_sub += e->executed[i];
    }
    if (n_sub != h->n_sub)
        return FAIL(ST_PROTO, "EPISODE: n_sub is %u, but %llu actions were executed", h->n_sub,
                    (unsigned long long)n_sub);
    return ST_OK;
}

enum status episode_read(const struct msg *m, const struct join *j, struct episode *out)
{
    struct reader r = reader_make(m);
    const struct episode_head *h;
    const char *bad = NULL;
    struct episode e;
    uint64_t n, subs;

    TRY(expect(m, MSG_EPISODE, "EPISODE"));
    h = read_bytes(&r, 1, sizeof *h);
    TRY(reader_end(&r, false, "EPISODE"));
    TRY(check_sizes(h));
    TRY(check_join(h, j));
    n = h->n_decision;
    subs = n * h->chunk;
    e.head = *h;
    e.version = read_bytes(&r, n, sizeof *e.version);
    e.obs = read_floats(&r, (uint64_t)episode_n_seen(h) * h->n_obs, "obs", &bad);
    e.action = read_floats(&r, subs * h->n_act, "action", &bad);
    e.logp = read_floats(&r, subs, "logp", &bad);
    e.reward = read_floats(&r, subs, "reward", &bad);
    e.latent = read_floats(&r, n * h->n_latent, "latent", &bad);
    e.executed = read_bytes(&r, n, sizeof *e.executed);
    e.pictures = read_bytes(&r, picture_bytes(h), 1);
    TRY(reader_end(&r, true, "EPISODE"));
    if (bad)
        return FAIL(ST_PROTO, "EPISODE: %s holds a number that is not finite", bad);
    TRY(check_decisions(&e));
    *out = e;
    return ST_OK;
}
