#include "common/wire/envproto.h"

#include "common/base/batcher.h"
#include "common/wire/fields.h"
#include "common/wire/proto_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct reset_row) == 32, "rows are sent as they stand in memory");
_Static_assert(sizeof(struct step_row) == 8, "rows are sent as they stand in memory");
_Static_assert(sizeof(struct batch_head) == 24, "heads are sent as they stand in memory");
_Static_assert(sizeof(struct row_head) == 56, "heads are sent as they stand in memory");

#define PICTURES_ALL    UINT32_MAX // in HELLO: all that the server has
#define ROWS_HEAD_BYTES 16         // u64 sequence number, u32 rows, u32 bytes of a row

static enum status put_hello(struct msg *m, const struct hello *h)
{
    uint32_t i;

    TRY(msg_u32(m, h->version));
    TRY(msg_u32(m, h->autoreset));
    TRY(msg_u32(m, h->n_env));
    TRY(msg_u32(m, h->k_max));
    TRY(msg_u32(m, h->b_max));
    TRY(msg_u64(m, (uint64_t)h->t_max_ns));
    TRY(msg_u32(m, h->b_min));
    TRY(msg_u32(m, h->features));
    TRY(msg_u64(m, (uint64_t)h->idle_ns));
    TRY(msg_str(m, h->name));
    TRY(msg_u32(m, h->listed ? h->n_picture : PICTURES_ALL));
    for (i = 0; h->listed && i < h->n_picture; i++) {
        TRY(msg_str(m, h->pictures[i].name));
        TRY(msg_u32(m, h->pictures[i].width));
        TRY(msg_u32(m, h->pictures[i].height));
    }
    return ST_OK;
}

enum status hello_write(struct msg **out, const struct hello *h)
{
    struct msg *m;

    if (h->listed && h->n_picture > SPEC_PICTURE_MAX)
        return FAIL(ST_INVAL, "HELLO: %u pictures wanted, at most %d are possible", h->n_picture,
                    SPEC_PICTURE_MAX);
    TRY(msg_new(&m, MSG_HELLO, 128));
    return finish(put_hello(m, h), m, out);
}

static void read_wanted(struct reader *r, struct hello *h)
{
    uint32_t i, n = read_u32(r);

    h->listed = n != PICTURES_ALL;
    if (!h->listed)
        return;
    if (n > SPEC_PICTURE_MAX) {
        r->bad = true;
        return;
    }
    h->n_picture = n;
    for (i = 0; i < n; i++) {
        read_str(r, h->pictures[i].name, sizeof h->pictures[i].name);
        h->pictures[i].width = read_u32(r);
        h->pictures[i].height = read_u32(r);
        make_printable(h->pictures[i].name);
    }
}

enum status hello_want(struct hello *h, const char *text)
{
    h->listed = true;
    h->n_picture = 0;
    while (*text) {
        struct hello_picture p = {0};
        char size[16];
        int n = (int)strcspn(text, ","), name = (int)strcspn(text, ":,"), end = 0;

        if (h->n_picture == SPEC_PICTURE_MAX)
            return FAIL(ST_INVAL, "more than %d pictures wanted", SPEC_PICTURE_MAX);
        if (name < 1 || name >= (int)sizeof p.name || n - name >= (int)sizeof size)
            return FAIL(ST_INVAL, "picture '%.*s', expected NAME or NAME:WIDTHxHEIGHT", n, text);
        snprintf(p.name, sizeof p.name, "%.*s", name, text);
        snprintf(size, sizeof size, "%.*s", n - name, text + name);
        if (size[0] && (sscanf(size, ":%5ux%5u%n", &p.width, &p.height, &end) != 2 || size[end] ||
                        p.width < 1 || p.height < 1))
            return FAIL(ST_INVAL, "picture '%.*s', expected NAME or NAME:WIDTHxHEIGHT", n, text);
        h->pictures[h->n_picture++] = p;
        text += n + (text[n] == ',');
    }
    return ST_OK;
}

enum status hello_skip(const struct hello *h, const struct spec *spec, uint32_t *skip)
{
    char list[256];
    uint32_t i;

    *skip = 0;
    if (!h->listed)
        return ST_OK;
    *skip = (1u << spec->n_picture) - 1;
    for (i = 0; i < h->n_picture; i++) {
        const struct hello_picture *want = &h->pictures[i];
        const struct spec_picture *p = spec_picture_find(spec, want->name);

        if (!p)
            return FAIL(ST_INVAL, "picture '%s' is wanted; this server renders %s", want->name,
                        spec_picture_list(spec, list, sizeof list));
        if ((want->width || want->height) && (want->width != p->width || want->height != p->height))
            return FAIL(ST_INVAL, "picture '%s' of %ux%u is wanted; this server renders %s",
                        want->name, want->width, want->height,
                        spec_picture_list(spec, list, sizeof list));
        *skip &= ~(1u << (p - spec->pictures));
    }
    return ST_OK;
}

enum status hello_read(const struct msg *m, struct hello *out)
{
    struct reader r = reader_make(m);
    struct hello h = {0};

    TRY(expect(m, MSG_HELLO, "HELLO"));
    h.version = read_u32(&r);
    TRY(reader_end(&r, false, "HELLO"));
    if (h.version != ENVPROTO_VERSION)
        return FAIL(ST_PROTO, "the client speaks version %u of the env protocol, expected %d",
                    h.version, ENVPROTO_VERSION);
    h.autoreset = read_u32(&r);
    h.n_env = read_u32(&r);
    h.k_max = read_u32(&r);
    h.b_max = read_u32(&r);
    h.t_max_ns = (int64_t)read_u64(&r);
    h.b_min = read_u32(&r);
    h.features = read_u32(&r);
    h.idle_ns = (int64_t)read_u64(&r);
    read_str(&r, h.name, sizeof h.name);
    read_wanted(&r, &h);
    TRY(reader_end(&r, true, "HELLO"));
    make_printable(h.name);
    TRY(in_range("HELLO: autoreset", h.autoreset, 0, AUTORESET_DISABLED));
    TRY(in_range("HELLO: n_env", h.n_env, 0, SPEC_ENV_MAX));
    TRY(in_range("HELLO: k_max", h.k_max, 1, SPEC_CHUNK_MAX));
    TRY(in_range("HELLO: b_max", h.b_max, 0, BATCHER_MAX));
    TRY(in_range("HELLO: t_max_ns", h.t_max_ns, -1, INT64_MAX));
    TRY(in_range("HELLO: b_min", h.b_min, 0, h.b_max ? h.b_max : BATCHER_MAX));
    TRY(in_range("HELLO: idle_ns", h.idle_ns, 0, INT64_MAX));
    *out = h;
    return ST_OK;
}

static enum status put_welcome(struct msg *m, const struct welcome *w)
{
    struct fields fields;

    TRY(spec_write(m, &w->spec));
    TRY(msg_u32(m, w->autoreset));
    TRY(msg_u32(m, w->k_max));
    TRY(msg_u32(m, w->b_max));
    TRY(msg_u32(m, w->b_min));
    TRY(msg_u64(m, (uint64_t)w->t_max_ns));
    TRY(msg_u64(m, (uint64_t)w->idle_ns));
    TRY(msg_u32(m, w->features));
    TRY(msg_u64(m, w->session));
    fields_make(&fields, &w->spec, (int)w->k_max, (enum autoreset)w->autoreset);
    TRY(fields_write(m, &fields));
    TRY(msg_u32(m, w->n_env));
    TRY(msg_bytes(m, w->env, w->n_env * sizeof w->env[0]));
    return w->features & FEATURE_PLAN ? msg_str(m, w->plan) : ST_OK;
}

enum status welcome_write(struct msg **out, const struct welcome *w)
{
    struct msg *m;

    if (w->n_env < 1 || w->n_env > SPEC_ENV_MAX)
        return FAIL(ST_INVAL, "WELCOME: n_env is %u, expected 1 to %d", w->n_env, SPEC_ENV_MAX);
    TRY(msg_new(&m, MSG_WELCOME, 8192 + w->n_env * sizeof w->env[0]));
    return finish(put_welcome(m, w), m, out);
}

// The ids ascend, so none stands twice.
static enum status check_envs(const struct welcome *w)
{
    uint32_t i;

    for (i = 0; i < w->n_env; i++) {
        TRY(in_range("WELCOME: an env", w->env[i], 0, w->spec.n_env - 1));
        if (i > 0 && w->env[i] <= w->env[i - 1])
            return FAIL(ST_PROTO, "WELCOME: env %u after env %u, expected ascending numbers",
                        w->env[i], w->env[i - 1]);
    }
    return ST_OK;
}

static enum status read_settings(struct reader *r, struct welcome *w)
{
    w->autoreset = read_u32(r);
    w->k_max = read_u32(r);
    w->b_max = read_u32(r);
    w->b_min = read_u32(r);
    w->t_max_ns = (int64_t)read_u64(r);
    w->idle_ns = (int64_t)read_u64(r);
    w->features = read_u32(r);
    w->session = read_u64(r);
    TRY(reader_end(r, false, "WELCOME"));
    TRY(in_range("WELCOME: autoreset", w->autoreset, 0, AUTORESET_DISABLED));
    TRY(in_range("WELCOME: k_max", w->k_max, 1, SPEC_CHUNK_MAX));
    TRY(in_range("WELCOME: b_max", w->b_max, 1, BATCHER_MAX));
    TRY(in_range("WELCOME: b_min", w->b_min, 1, w->b_max));
    TRY(in_range("WELCOME: t_max_ns", w->t_max_ns, 0, INT64_MAX));
    return in_range("WELCOME: idle_ns", w->idle_ns, 0, INT64_MAX);
}

enum status welcome_read(const struct msg *m, struct welcome *out)
{
    struct reader r = reader_make(m);
    struct fields fields;
    const void *env;

    TRY(expect(m, MSG_WELCOME, "WELCOME"));
    TRY(spec_read(&r, &out->spec));
    TRY(read_settings(&r, out));
    fields_make(&fields, &out->spec, (int)out->k_max, (enum autoreset)out->autoreset);
    TRY(fields_check(&r, &fields));
    out->n_env = read_u32(&r);
    TRY(reader_end(&r, false, "WELCOME"));
    TRY(in_range("WELCOME: n_env", out->n_env, 1, out->spec.n_env));
    env = read_bytes(&r, out->n_env, sizeof out->env[0]);
    out->plan[0] = '\0';
    if (out->features & FEATURE_PLAN)
        read_str(&r, out->plan, sizeof out->plan);
    TRY(reader_end(&r, true, "WELCOME"));
    memcpy(out->env, env, out->n_env * sizeof out->env[0]);
    return check_envs(out);
}

static enum status put_error(struct msg *m, const struct proto_error *e)
{
    TRY(msg_u32(m, e->code));
    TRY(msg_u32(m, e->env));
    TRY(msg_u64(m, e->seq));
    return msg_str(m, e->text);
}

enum status proto_error_write(struct msg **out, const struct proto_error *e)
{
    struct msg *m;

    TRY(msg_new(&m, MSG_ERROR, 1024));
    return finish(put_error(m, e), m, out);
}

enum status proto_error_read(const struct msg *m, struct proto_error *out)
{
    struct reader r = reader_make(m);
    struct proto_error e;

    TRY(expect(m, MSG_ERROR, "ERROR"));
    e.code = read_u32(&r);
    e.env = read_u32(&r);
    e.seq = read_u64(&r);
    read_str(&r, e.text, sizeof e.text);
    TRY(reader_end(&r, true, "ERROR"));
    TRY(in_range("ERROR: code", e.code, ST_CLOSED, ST_MISSING));
    make_printable(e.text);
    *out = e;
    return ST_OK;
}

enum status rows_begin(struct msg **out, enum msg_type type, uint64_t seq, int n, size_t stride,
                       uint8_t **rows)
{
    struct msg *m;
    enum status st;

    if (n < 1 || n > SPEC_ENV_MAX)
        return FAIL(ST_INVAL, "a request of %d rows, expected 1 to %d", n, SPEC_ENV_MAX);
    TRY(msg_new(&m, (uint16_t)type, ROWS_HEAD_BYTES + (size_t)n * stride));
    st = msg_u64(m, seq);
    if (st == ST_OK)
        st = msg_u32(m, (uint32_t)n);
    if (st == ST_OK)
        st = msg_u32(m, (uint32_t)stride);
    *rows = st == ST_OK ? msg_append(m, (size_t)n * stride) : NULL;
    return finish(*rows ? ST_OK : ST_NOMEM, m, out);
}

enum status rows_read(struct reader *r, const char *what, uint64_t *seq, const uint8_t **rows,
                      int *n, size_t *stride)
{
    uint64_t number = read_u64(r);
    uint32_t count = read_u32(r), bytes = read_u32(r);
    const uint8_t *first = read_bytes(r, count, bytes);

    TRY(reader_end(r, false, what));
    if (count < 1 || count > SPEC_ENV_MAX || bytes < sizeof(uint32_t))
        return FAIL(ST_PROTO, "%s: %u rows of %u bytes, expected 1 to %d rows", what, count, bytes,
                    SPEC_ENV_MAX);
    *seq = number;
    *rows = first;
    *n = (int)count;
    *stride = bytes;
    return ST_OK;
}

// A whole message of rows of one size.
static enum status read_exact(const struct msg *m, const char *what, size_t want, uint64_t *seq,
                              const uint8_t **rows, int *n)
{
    struct reader r = reader_make(m);
    uint64_t number;
    const uint8_t *first;
    size_t stride;
    int count;

    TRY(rows_read(&r, what, &number, &first, &count, &stride));
    if (stride != want)
        return FAIL(ST_PROTO, "%s: %d rows of %zu bytes, expected rows of %zu", what, count, stride,
                    want);
    TRY(reader_end(&r, true, what));
    *seq = number;
    *rows = first;
    *n = count;
    return ST_OK;
}

enum status reset_write(struct msg **out, uint64_t seq, const struct reset_row *rows, int n)
{
    uint8_t *to;

    TRY(rows_begin(out, MSG_RESET, seq, n, sizeof *rows, &to));
    memcpy(to, rows, (size_t)n * sizeof *rows);
    return ST_OK;
}

enum status reset_read(const struct msg *m, uint64_t *seq, const struct reset_row **rows, int *n)
{
    const uint8_t *first;

    TRY(expect(m, MSG_RESET, "RESET"));
    TRY(read_exact(m, "RESET", sizeof **rows, seq, &first, n));
    *rows = (const void *)first;
    return ST_OK;
}

size_t step_stride(int k_max, int n_act)
{
    return sizeof(struct step_row) + (size_t)k_max * (size_t)n_act * sizeof(float);
}

enum status step_begin(struct msg **out, uint64_t seq, int n, int k_max, int n_act, uint8_t **rows)
{
    return rows_begin(out, MSG_STEP, seq, n, step_stride(k_max, n_act), rows);
}

enum status step_read(const struct msg *m, int k_max, int n_act, uint64_t *seq,
                      const uint8_t **rows, int *n)
{
    size_t stride = step_stride(k_max, n_act);
    const uint8_t *first;
    uint64_t number;
    int i, count;

    TRY(expect(m, MSG_STEP, "STEP"));
    TRY(read_exact(m, "STEP", stride, &number, &first, &count));
    for (i = 0; i < count; i++) {
        const struct step_row *row = (const void *)(first + (size_t)i * stride);

        if (row->n_sub < 1 || row->n_sub > (uint32_t)k_max)
            return FAIL(ST_PROTO, "STEP: env %u has %u actions, expected 1 to %d", row->env,
                        row->n_sub, k_max);
    }
    *seq = number;
    *rows = first;
    *n = count;
    return ST_OK;
}

static bool all_finite(const uint8_t *p, size_t n)
{
    uint64_t bad = 0, x;
    size_t i;

    for (i = 0; i < n; i++) {
        memcpy(&x, p + i * sizeof x, sizeof x);
        bad |= (x & 0x7ff0000000000000u) == 0x7ff0000000000000u;
    }
    return bad == 0;
}

// Numbers of an observation: up to the part that follows it.
static size_t obs_numbers(const struct row_layout *l)
{
    uint32_t end = l->info        ? l->info
                   : l->final_obs ? l->final_obs
                   : l->pictures  ? l->pictures
                                  : l->stride;

    return (end - l->obs) / sizeof(double);
}

static enum status check_row(const struct row_layout *l, const uint8_t *row)
{
    const struct row_head *h = (const void *)row;
    uint32_t known = ROW_FIRST | ROW_DONE | ROW_SUCCESS | (l->final_obs ? ROW_HAS_FINAL : 0);
    bool fine;

    if ((h->flags & ~known) || h->n_sub > (uint32_t)l->k_max || h->error > ROW_ERROR_LAST)
        return FAIL(ST_PROTO, "BATCH: env %u has flags %#x, %u actions and error %u", h->env,
                    h->flags, h->n_sub, h->error);
    fine = isfinite(h->episode_return) && all_finite(row + l->reward, h->n_sub) &&
           all_finite(row + l->obs, obs_numbers(l));
    if (fine && (h->flags & ROW_HAS_FINAL))
        fine = all_finite(row + l->final_obs, obs_numbers(l));
    if (!fine)
        return FAIL(ST_PROTO, "BATCH: env %u has a number that is not finite", h->env);
    return ST_OK;
}

enum status batch_read(const struct msg *m, const struct row_layout *layout,
                       const struct batch_head **head, const uint8_t **rows)
{
    struct reader r = reader_make(m);
    const struct batch_head *h;
    const uint8_t *first;
    uint32_t i;

    TRY(expect(m, MSG_BATCH, "BATCH"));
    h = read_bytes(&r, 1, sizeof *h);
    TRY(reader_end(&r, false, "BATCH"));
    TRY(in_range("BATCH: rows", h->n, 1, BATCHER_MAX));
    TRY(in_range("BATCH: why", h->why, BATCHER_FULL, BATCHER_WHYS - 1));
    TRY(in_range("BATCH: in_flight", h->in_flight, 0, SPEC_ENV_MAX));
    TRY(in_range("BATCH: stride", h->stride, layout->stride, layout->stride));
    first = read_bytes(&r, h->n, h->stride);
    TRY(reader_end(&r, true, "BATCH"));
    for (i = 0; i < h->n; i++)
        TRY(check_row(layout, first + (size_t)i * h->stride));
    *head = h;
    *rows = first;
    return ST_OK;
}
