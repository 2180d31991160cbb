#include "common/wire/trainproto.h"

#include "common/wire/proto_priv.h"

#include <string.h>

_Static_assert(sizeof(struct chunk_head) == 64, "heads are sent as they stand in memory");
_Static_assert(sizeof(struct weights_head) == 40, "heads are sent as they stand in memory");

#define CHUNK_FLAGS (CHUNK_TERMINATED | CHUNK_TRUNCATED | CHUNK_ERROR | CHUNK_SKIP)

static enum status put_join(struct msg *m, const struct join *j)
{
    TRY(msg_u32(m, j->version));
    TRY(msg_u32(m, j->n_env));
    TRY(msg_u32(m, j->env_first));
    TRY(msg_u64(m, j->seed));
    TRY(msg_u32(m, j->horizon));
    TRY(msg_u32(m, j->n_obs));
    TRY(msg_u32(m, j->n_act));
    TRY(msg_u32(m, j->width));
    TRY(msg_u32(m, j->height));
    TRY(msg_u32(m, j->chunk));
    TRY(msg_u32(m, j->n_view));
    TRY(msg_str(m, j->task));
    TRY(msg_str(m, j->picture));
    return msg_str(m, j->instruction);
}

enum status join_write(struct msg **out, const struct join *j)
{
    struct msg *m;

    TRY(msg_new(&m, MSG_JOIN, 512));
    return finish(put_join(m, j), m, out);
}

enum status join_read(const struct msg *m, struct join *out)
{
    struct reader r = reader_make(m);
    struct join j = {0};

    TRY(expect(m, MSG_JOIN, "JOIN"));
    j.version = read_u32(&r);
    TRY(reader_end(&r, false, "JOIN"));
    if (j.version != TRAINPROTO_VERSION)
        return FAIL(ST_PROTO, "the peer speaks version %u of the training protocol, expected %d",
                    j.version, TRAINPROTO_VERSION);
    j.n_env = read_u32(&r);
    j.env_first = read_u32(&r);
    j.seed = read_u64(&r);
    j.horizon = read_u32(&r);
    j.n_obs = read_u32(&r);
    j.n_act = read_u32(&r);
    j.width = read_u32(&r);
    j.height = read_u32(&r);
    j.chunk = read_u32(&r);
    j.n_view = read_u32(&r);
    read_str(&r, j.task, sizeof j.task);
    read_str(&r, j.picture, sizeof j.picture);
    read_str(&r, j.instruction, sizeof j.instruction);
    TRY(reader_end(&r, true, "JOIN"));
    TRY(in_range("JOIN: n_env", j.n_env, 1, SPEC_ENV_MAX));
    TRY(in_range("JOIN: env_first", j.env_first, 0, UINT32_MAX - j.n_env));
    TRY(in_range("JOIN: horizon", j.horizon, 1, TRAIN_STEPS_MAX));
    TRY(in_range("JOIN: n_obs", j.n_obs, 1, SPEC_OBS_MAX));
    TRY(in_range("JOIN: n_act", j.n_act, 1, SPEC_ACT_MAX));
    TRY(in_range("JOIN: chunk", j.chunk, 0, SPEC_CHUNK_MAX));
    if (j.picture[0]) {
        TRY(in_range("JOIN: width", j.width, 1, TRAIN_SIDE_MAX));
        TRY(in_range("JOIN: height", j.height, 1, TRAIN_SIDE_MAX));
    } else if (j.width || j.height) {
        return FAIL(ST_PROTO, "JOIN: a picture of %u by %u without a name", j.width, j.height);
    }
    TRY(in_range("JOIN: n_view", j.n_view, j.picture[0] ? 1 : 0,
                 j.picture[0] ? SPEC_PICTURE_MAX : 0));
    *out = j;
    return ST_OK;
}

static enum status put_weights(struct msg *m, const struct weights_head *h, const void *blob)
{
    TRY(msg_bytes(m, h, sizeof *h));
    return msg_bytes(m, blob, h->blob_bytes);
}

enum status weights_write(struct msg **out, const struct weights_head *h, const void *blob)
{
    struct msg *m;

    TRY(msg_new(&m, MSG_WEIGHTS, sizeof *h + h->blob_bytes));
    return finish(put_weights(m, h, blob), m, out);
}

enum status weights_read(const struct msg *m, struct weights_head *out, const void **blob)
{
    struct reader r = reader_make(m);
    const struct weights_head *h;
    const void *bytes;

    TRY(expect(m, MSG_WEIGHTS, "WEIGHTS"));
    h = read_bytes(&r, 1, sizeof *h);
    TRY(reader_end(&r, false, "WEIGHTS"));
    TRY(in_range("WEIGHTS: want_state", h->want_state, 0, 1));
    TRY(in_range("WEIGHTS: n_env", h->n_env, 0, SPEC_ENV_MAX));
    TRY(in_range("WEIGHTS: group_size", h->group_size, 0, h->n_env));
    bytes = read_bytes(&r, h->blob_bytes, 1);
    TRY(reader_end(&r, true, "WEIGHTS"));
    *out = *h;
    *blob = bytes;
    return ST_OK;
}

enum status state_begin(struct msg **out, uint32_t env_first, uint32_t n_env, uint32_t n_act)
{
    const uint32_t head[4] = {env_first, n_env, n_act, 0};
    struct msg *m;

    TRY(msg_new(&m, MSG_STATE, 1 << 16));
    return finish(msg_bytes(m, head, sizeof head), m, out);
}

enum status state_add(struct msg *m, const struct episode_state *s, uint32_t n_act)
{
    size_t bytes = (size_t)s->elapsed * n_act * sizeof(float);

    TRY(msg_u64(m, s->episode));
    TRY(msg_u32(m, s->elapsed));
    TRY(msg_u32(m, 0));
    TRY(msg_bytes(m, s->action, bytes));
    return msg_bytes(m, "\0\0\0", bytes % 8); // the next episode is aligned
}

enum status state_read(const struct msg *m, uint32_t n_act, struct reader *r, uint32_t *env_first,
                       uint32_t *n_env)
{
    uint32_t first, n, act;

    TRY(expect(m, MSG_STATE, "STATE"));
    *r = reader_make(m);
    first = read_u32(r);
    n = read_u32(r);
    act = read_u32(r);
    (void)read_u32(r);
    TRY(reader_end(r, false, "STATE"));
    TRY(in_range("STATE: n_env", n, 1, SPEC_ENV_MAX));
    TRY(in_range("STATE: env_first", first, 0, UINT32_MAX - n));
    TRY(in_range("STATE: n_act", act, n_act, n_act));
    *env_first = first;
    *n_env = n;
    return ST_OK;
}

enum status state_next(struct reader *r, uint32_t n_act, struct episode_state *out)
{
    struct episode_state s = {0};
    uint64_t n;

    s.episode = read_u64(r);
    s.elapsed = read_u32(r);
    n = (uint64_t)s.elapsed * n_act;
    (void)read_u32(r);
    s.action = read_bytes(r, n, sizeof(float));
    (void)read_bytes(r, n % 2, sizeof(float));
    TRY(reader_end(r, false, "STATE"));
    if (!floats_finite(s.action, n))
        return FAIL(ST_PROTO, "STATE: an action is not finite");
    *out = s;
    return ST_OK;
}

static enum status put_envs(struct msg *m, const uint32_t *env, uint32_t n)
{
    TRY(msg_u32(m, n));
    return msg_bytes(m, env, n * sizeof *env);
}

// The rest of a message: a count and so many ascending numbers.
static enum status take_envs(struct reader *r, const char *what, const uint32_t **env, uint32_t *n)
{
    uint32_t count = read_u32(r), i;
    const uint32_t *p;

    TRY(reader_end(r, false, what));
    if (count < 1 || count > SPEC_ENV_MAX)
        return FAIL(ST_PROTO, "%s: n_env is %u, expected 1 to %d", what, count, SPEC_ENV_MAX);
    p = read_bytes(r, count, sizeof *p);
    TRY(reader_end(r, true, what));
    for (i = 1; i < count; i++)
        if (p[i] <= p[i - 1])
            return FAIL(ST_PROTO, "%s: env %u after env %u, expected ascending numbers", what, p[i],
                        p[i - 1]);
    *env = p;
    *n = count;
    return ST_OK;
}

enum status lost_write(struct msg **out, const uint32_t *env, uint32_t n)
{
    struct msg *m;

    TRY(msg_new(&m, MSG_LOST, sizeof n + n * sizeof *env));
    return finish(put_envs(m, env, n), m, out);
}

enum status lost_read(const struct msg *m, const uint32_t **env, uint32_t *n)
{
    struct reader r = reader_make(m);

    TRY(expect(m, MSG_LOST, "LOST"));
    return take_envs(&r, "LOST", env, n);
}

enum status back_write(struct msg **out, uint64_t chunks, const uint32_t *env, uint32_t n)
{
    struct msg *m;
    enum status st;

    TRY(msg_new(&m, MSG_BACK, sizeof chunks + sizeof n + n * sizeof *env));
    st = msg_u64(m, chunks);
    if (st == ST_OK)
        st = put_envs(m, env, n);
    return finish(st, m, out);
}

enum status back_read(const struct msg *m, uint64_t *chunks, const uint32_t **env, uint32_t *n)
{
    struct reader r = reader_make(m);

    TRY(expect(m, MSG_BACK, "BACK"));
    *chunks = read_u64(&r);
    TRY(take_envs(&r, "BACK", env, n));
    if (*chunks > UINT32_MAX)
        return FAIL(ST_PROTO, "BACK: %llu chunks, expected at most %u", (unsigned long long)*chunks,
                    UINT32_MAX);
    return ST_OK;
}

// Bytes of the pictures before the final ones.
static size_t final_offset(const struct chunk_head *h)
{
    return h->picture_bytes ? (chunk_n_picture(h) - h->n_truncated) * (size_t)h->picture_bytes : 0;
}

static size_t chunk_bytes(const struct chunk_head *h)
{
    size_t floats = (size_t)h->n_step * (h->n_obs + (size_t)h->n_act + 2) + h->n_obs +
                    (size_t)h->n_truncated * h->n_obs + 2 * (size_t)h->n_episode;

    return sizeof *h + h->n_step * (sizeof(uint64_t) + sizeof(uint32_t)) + floats * sizeof(float) +
           (size_t)chunk_n_picture(h) * h->picture_bytes;
}

static enum status put_floats(struct msg *m, const float *p, size_t rows, size_t n)
{
    return msg_bytes(m, p, rows * n * sizeof *p);
}

static enum status put_chunk(struct msg *m, const struct chunk *c)
{
    const struct chunk_head *h = &c->head;

    TRY(msg_bytes(m, h, sizeof *h));
    TRY(msg_bytes(m, c->version, h->n_step * sizeof *c->version));
    TRY(put_floats(m, c->obs, h->n_step, h->n_obs));
    TRY(put_floats(m, c->last_obs, 1, h->n_obs));
    TRY(put_floats(m, c->final_obs, h->n_truncated, h->n_obs));
    TRY(put_floats(m, c->action, h->n_step, h->n_act));
    TRY(put_floats(m, c->logp, h->n_step, 1));
    TRY(put_floats(m, c->reward, h->n_step, 1));
    TRY(msg_bytes(m, c->flags, h->n_step * sizeof *c->flags));
    TRY(put_floats(m, c->episode_return, h->n_episode, 1));
    TRY(put_floats(m, c->episode_length, h->n_episode, 1));
    TRY(msg_bytes(m, c->pictures, final_offset(h)));
    return msg_bytes(m, c->final_pictures, h->n_truncated * (size_t)h->picture_bytes);
}

// Sizes that a reader accepts; with these the products below stay far from overflow.
static enum status check_sizes(const struct chunk_head *h)
{
    TRY(in_range("CHUNK: n_step", h->n_step, 1, TRAIN_STEPS_MAX));
    TRY(in_range("CHUNK: n_obs", h->n_obs, 1, SPEC_OBS_MAX));
    TRY(in_range("CHUNK: n_act", h->n_act, 1, SPEC_ACT_MAX));
    TRY(in_range("CHUNK: n_truncated", h->n_truncated, 0, h->n_step));
    TRY(in_range("CHUNK: picture_bytes", h->picture_bytes, 0, 3 * TRAIN_SIDE_MAX * TRAIN_SIDE_MAX));
    TRY(in_range("CHUNK: n_lead", h->n_lead, 0, h->picture_bytes ? TRAIN_LEAD_MAX : 0));
    return in_range("CHUNK: n_episode", h->n_episode, 0, h->n_step);
}

enum status chunk_write(struct msg **out, const struct chunk *c)
{
    struct msg *m;

    if (check_sizes(&c->head) != ST_OK)
        return FAIL(ST_INVAL, "%s", error_last()->text);
    TRY(msg_new(&m, MSG_CHUNK, chunk_bytes(&c->head)));
    return finish(put_chunk(m, c), m, out);
}

static enum status check_steps(const struct chunk *c)
{
    const struct chunk_head *h = &c->head;
    uint32_t i, unknown = 0, truncated = 0;

    for (i = 0; i < h->n_step; i++) {
        uint32_t flags = c->flags[i];

        unknown |= flags & ~(uint32_t)CHUNK_FLAGS;
        truncated += (flags & CHUNK_TRUNCATED) != 0;
        // what chose the action of a skipped step means nothing
        if (!(flags & CHUNK_SKIP) &&
            (c->version[i] < h->version_min || c->version[i] > h->version_max))
            return FAIL(ST_PROTO, "CHUNK: step %u has version %llu, expected %llu to %llu", i,
                        (unsigned long long)c->version[i], (unsigned long long)h->version_min,
                        (unsigned long long)h->version_max);
    }
    if (unknown)
        return FAIL(ST_PROTO, "CHUNK: unknown step flags %#x", unknown);
    if (truncated != h->n_truncated)
        return FAIL(ST_PROTO, "CHUNK: n_truncated is %u, but %u steps are truncated",
                    h->n_truncated, truncated);
    return ST_OK;
}

enum status chunk_read(const struct msg *m, const struct join *j, uint32_t n_lead,
                       struct chunk *out)
{
    struct reader r = reader_make(m);
    const struct chunk_head *h;
    const char *bad = NULL;
    struct chunk c;

    TRY(expect(m, MSG_CHUNK, "CHUNK"));
    h = read_bytes(&r, 1, sizeof *h);
    TRY(reader_end(&r, false, "CHUNK"));
    TRY(check_sizes(h));
    TRY(in_range("CHUNK: n_obs", h->n_obs, j->n_obs, j->n_obs));
    TRY(in_range("CHUNK: n_act", h->n_act, j->n_act, j->n_act));
    TRY(in_range("CHUNK: picture_bytes", h->picture_bytes, join_picture_bytes(j),
                 join_picture_bytes(j)));
    TRY(in_range("CHUNK: n_lead", h->n_lead, n_lead, n_lead));
    if (h->version_min > h->version_max)
        return FAIL(ST_PROTO, "CHUNK: versions from %llu to %llu",
                    (unsigned long long)h->version_min, (unsigned long long)h->version_max);
    c.head = *h;
    c.version = read_bytes(&r, h->n_step, sizeof *c.version);
    c.obs = read_floats(&r, (uint64_t)h->n_step * h->n_obs, "obs", &bad);
    c.last_obs = read_floats(&r, h->n_obs, "last_obs", &bad);
    c.final_obs = read_floats(&r, (uint64_t)h->n_truncated * h->n_obs, "final_obs", &bad);
    c.action = read_floats(&r, (uint64_t)h->n_step * h->n_act, "action", &bad);
    c.logp = read_floats(&r, h->n_step, "logp", &bad);
    c.reward = read_floats(&r, h->n_step, "reward", &bad);
    c.flags = read_bytes(&r, h->n_step, sizeof *c.flags);
    c.episode_return = read_floats(&r, h->n_episode, "episode_return", &bad);
    c.episode_length = read_floats(&r, h->n_episode, "episode_length", &bad);
    c.pictures = read_bytes(&r, (uint64_t)chunk_n_picture(h) * h->picture_bytes, 1);
    TRY(reader_end(&r, true, "CHUNK"));
    c.final_pictures = c.pictures + final_offset(h);
    if (bad)
        return FAIL(ST_PROTO, "CHUNK: %s holds a number that is not finite", bad);
    TRY(check_steps(&c));
    *out = c;
    return ST_OK;
}
