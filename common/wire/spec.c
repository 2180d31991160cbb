#include "common/wire/spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *row_error_name(enum row_error error)
{
    static const char *const names[] = {
        "none",       "bad position",   "bad velocity",     "bad acceleration", "engine error",
        "bad output", "worker crashed", "worker timed out", "no picture",       "server lost",
    };

    return (size_t)error < sizeof names / sizeof names[0] ? names[error] : "unknown";
}

const char *spec_plane_name(enum spec_plane plane)
{
    static const char *const names[] = {"rgb", "depth", "seg"};

    return (size_t)plane < sizeof names / sizeof names[0] ? names[plane] : "unknown";
}

static enum status check_size(enum status code, const char *what, int64_t n, int64_t low,
                              int64_t high)
{
    if (n < low || n > high)
        return FAIL(code, "spec: %s is %lld, expected %lld to %lld", what, (long long)n,
                    (long long)low, (long long)high);
    return ST_OK;
}

// Names end up in logs and files, so they hold no control characters.
static enum status check_text(enum status code, const char *what, const char *name, size_t size)
{
    size_t i, n = strnlen(name, size);

    if (n == 0 || n == size)
        return FAIL(code, "spec: %s has %zu characters, expected 1 to %zu", what, n, size - 1);
    for (i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return FAIL(code, "spec: %s holds a control character", what);
    return ST_OK;
}

static enum status check_name(enum status code, const char *what, const char *name)
{
    return check_text(code, what, name, SPEC_NAME_MAX);
}

static enum status check_counts(enum status code, const struct spec *s)
{
    TRY(check_size(code, "n_obs", s->n_obs, 1, SPEC_OBS_MAX));
    TRY(check_size(code, "n_act", s->n_act, 1, SPEC_ACT_MAX));
    TRY(check_size(code, "n_info", s->n_info, 0, SPEC_OBS_MAX));
    TRY(check_size(code, "n_info_key", s->n_info_key, 0, SPEC_INFO_MAX));
    return check_size(code, "n_env", s->n_env, 1, SPEC_ENV_MAX);
}

static enum status check_info(enum status code, const struct spec *s)
{
    int64_t sum = 0;
    int i;

    for (i = 0; i < s->n_info_key; i++) {
        TRY(check_name(code, "an info name", s->info[i].name));
        TRY(check_size(code, "the size of an info", s->info[i].n, 1, SPEC_OBS_MAX));
        sum += s->info[i].n;
    }
    if (sum != s->n_info)
        return FAIL(code, "spec: n_info is %d, its parts have %lld", s->n_info, (long long)sum);
    return ST_OK;
}

static enum status check_fields(enum status code, const struct spec *s)
{
    int64_t sum = 0;
    int i;

    TRY(check_size(code, "n_field", s->n_field, 0, SPEC_FIELD_MAX));
    for (i = 0; i < s->n_field; i++) {
        TRY(check_name(code, "a field name", s->fields[i].name));
        TRY(check_size(code, "the size of a field", s->fields[i].n, 1, SPEC_OBS_MAX));
        if (s->fields[i].offset != sum)
            return FAIL(code, "spec: field '%s' starts at %d, the ones before end at %lld",
                        s->fields[i].name, s->fields[i].offset, (long long)sum);
        sum += s->fields[i].n;
    }
    if (s->n_field > 0 && sum != s->n_obs)
        return FAIL(code, "spec: n_obs is %d, its fields have %lld", s->n_obs, (long long)sum);
    return ST_OK;
}

static uint64_t picture_size(const struct spec_picture *p)
{
    static const uint64_t pixel[] = {3, sizeof(float), 2 * sizeof(int32_t)};

    return (uint64_t)p->width * p->height * pixel[p->plane];
}

static uint64_t round8(uint64_t n)
{
    return (n + 7) / 8 * 8;
}

// All but the place.
static enum status check_picture(enum status code, const struct spec_picture *p)
{
    TRY(check_name(code, "a picture's name", p->name));
    TRY(check_name(code, "a picture's camera", p->camera));
    TRY(check_size(code, "the plane of a picture", p->plane, 0, SPEC_PLANES - 1));
    TRY(check_size(code, "the width of a picture", p->width, 1, SPEC_PICTURE_SIDE_MAX));
    TRY(check_size(code, "the height of a picture", p->height, 1, SPEC_PICTURE_SIDE_MAX));
    return check_size(code, "the orientation of a picture", p->orient, 0, 2);
}

static enum status check_pictures(enum status code, const struct spec *s)
{
    uint64_t at = 0;
    int i, k;

    TRY(check_size(code, "n_picture", s->n_picture, 0, SPEC_PICTURE_MAX));
    for (i = 0; i < s->n_picture; i++) {
        const struct spec_picture *p = &s->pictures[i];

        TRY(check_picture(code, p));
        for (k = 0; k < i; k++)
            if (strcmp(p->name, s->pictures[k].name) == 0)
                return FAIL(code, "spec: two pictures are called '%s'", p->name);
        if (p->offset != at || p->bytes != picture_size(p))
            return FAIL(code, "spec: picture '%s' has %u bytes at %u, expected %llu at %llu",
                        p->name, p->bytes, p->offset, (unsigned long long)picture_size(p),
                        (unsigned long long)at);
        at += round8(p->bytes);
        TRY(check_size(code, "bytes of the pictures of an observation", (int64_t)at, 1,
                       SPEC_PICTURE_BYTES_MAX));
    }
    return check_size(code, "picture_bytes", (int64_t)s->picture_bytes, (int64_t)at, (int64_t)at);
}

enum status spec_add_picture(struct spec *s, const struct spec_picture *picture)
{
    struct spec_picture p = *picture;

    if (s->n_picture == SPEC_PICTURE_MAX)
        return FAIL(ST_INVAL, "more than %d pictures of an observation", SPEC_PICTURE_MAX);
    TRY(check_picture(ST_INVAL, &p));
    if (spec_picture_find(s, p.name))
        return FAIL(ST_INVAL, "two pictures are called '%s'", p.name);
    if (s->picture_bytes + round8(picture_size(&p)) > SPEC_PICTURE_BYTES_MAX)
        return FAIL(ST_INVAL,
                    "picture '%s' of %u x %u: the pictures of an observation have more "
                    "than %u MiB",
                    p.name, p.width, p.height, SPEC_PICTURE_BYTES_MAX >> 20);
    p.offset = (uint32_t)s->picture_bytes;
    p.bytes = (uint32_t)picture_size(&p);
    s->pictures[s->n_picture++] = p;
    s->picture_bytes += round8(p.bytes);
    return ST_OK;
}

void spec_skip_pictures(struct spec *s, uint32_t skip)
{
    int i, n = s->n_picture;

    s->n_picture = 0;
    s->picture_bytes = 0;
    for (i = 0; i < n; i++) {
        if (skip >> i & 1)
            continue;
        s->pictures[s->n_picture] = s->pictures[i];
        s->pictures[s->n_picture++].offset = (uint32_t)s->picture_bytes;
        s->picture_bytes += round8(s->pictures[i].bytes);
    }
    memset(&s->pictures[s->n_picture], 0, (size_t)(n - s->n_picture) * sizeof s->pictures[0]);
}

const struct spec_picture *spec_picture_find(const struct spec *s, const char *name)
{
    int i;

    for (i = 0; i < s->n_picture; i++)
        if (strcmp(s->pictures[i].name, name) == 0)
            return &s->pictures[i];
    return NULL;
}

const char *spec_picture_list(const struct spec *s, char *buf, size_t size)
{
    size_t n = 0;
    int i;

    snprintf(buf, size, "none");
    for (i = 0; i < s->n_picture && n < size; i++) {
        const struct spec_picture *p = &s->pictures[i];

        n += (size_t)snprintf(buf + n, size - n, "%s%s %ux%u %s", i ? ", " : "", p->name, p->width,
                              p->height, spec_plane_name((enum spec_plane)p->plane));
    }
    return buf;
}

// The same rules for what is sent and what is received; `code` is what a broken one costs.
static enum status check(enum status code, const struct spec *s)
{
    int i;

    TRY(check_name(code, "the task", s->task));
    TRY(check_name(code, "the engine", s->engine));
    TRY(check_text(code, "the instruction", s->instruction, sizeof s->instruction));
    TRY(check_counts(code, s));
    TRY(check_fields(code, s));
    TRY(check_pictures(code, s));
    TRY(check_info(code, s));
    for (i = 0; i < s->n_act; i++)
        if (!(s->act_low[i] <= s->act_high[i]))
            return FAIL(code, "spec: action %d has the bounds %g to %g", i, (double)s->act_low[i],
                        (double)s->act_high[i]);
    TRY(check_size(code, "max_episode_steps", s->max_episode_steps, 0, INT64_MAX));
    if (!(s->dt_s > 0 && isfinite(s->dt_s)))
        return FAIL(code, "spec: dt_s is %g, expected a positive number", s->dt_s);
    return ST_OK;
}

static enum status write_info(struct msg *m, const struct spec *s)
{
    int i;

    TRY(msg_u32(m, (uint32_t)s->n_info));
    TRY(msg_u32(m, (uint32_t)s->n_info_key));
    for (i = 0; i < s->n_info_key; i++) {
        TRY(msg_str(m, s->info[i].name));
        TRY(msg_u32(m, (uint32_t)s->info[i].n));
        TRY(msg_u32(m, s->info[i].on_reset));
    }
    return ST_OK;
}

static enum status write_fields(struct msg *m, const struct spec *s)
{
    int i;

    TRY(msg_u32(m, (uint32_t)s->n_field));
    for (i = 0; i < s->n_field; i++) {
        TRY(msg_str(m, s->fields[i].name));
        TRY(msg_u32(m, (uint32_t)s->fields[i].n));
    }
    return ST_OK;
}

static enum status write_pictures(struct msg *m, const struct spec *s)
{
    int i;

    TRY(msg_u32(m, (uint32_t)s->n_picture));
    for (i = 0; i < s->n_picture; i++) {
        TRY(msg_str(m, s->pictures[i].name));
        TRY(msg_str(m, s->pictures[i].camera));
        TRY(msg_u32(m, s->pictures[i].plane));
        TRY(msg_u32(m, s->pictures[i].width));
        TRY(msg_u32(m, s->pictures[i].height));
        TRY(msg_u32(m, s->pictures[i].orient));
    }
    return ST_OK;
}

int spec_info_find(const struct spec *s, const char *name)
{
    int i, at = 0;

    for (i = 0; i < s->n_info_key; at += s->info[i++].n)
        if (s->info[i].n == 1 && strcmp(s->info[i].name, name) == 0)
            return at;
    return -1;
}

const struct spec_field *spec_field_find(const struct spec *s, const char *name)
{
    int i;

    for (i = 0; i < s->n_field; i++)
        if (strcmp(s->fields[i].name, name) == 0)
            return &s->fields[i];
    return NULL;
}

enum status spec_write(struct msg *m, const struct spec *s)
{
    TRY(check(ST_INVAL, s));
    TRY(msg_str(m, s->task));
    TRY(msg_str(m, s->engine));
    TRY(msg_str(m, s->instruction));
    TRY(msg_u32(m, (uint32_t)s->n_obs));
    TRY(msg_u32(m, (uint32_t)s->n_act));
    TRY(msg_bytes(m, s->act_low, (size_t)s->n_act * sizeof s->act_low[0]));
    TRY(msg_bytes(m, s->act_high, (size_t)s->n_act * sizeof s->act_high[0]));
    TRY(write_info(m, s));
    TRY(write_fields(m, s));
    TRY(write_pictures(m, s));
    TRY(msg_u64(m, (uint64_t)s->max_episode_steps));
    TRY(msg_f64(m, s->dt_s));
    TRY(msg_u32(m, s->has_success));
    return msg_u32(m, (uint32_t)s->n_env);
}

// A count that may be used before the whole spec is checked: 0 if it is above `max`.
static int read_count(struct reader *r, uint32_t max)
{
    uint32_t n = read_u32(r);

    if (n > max) {
        r->bad = true;
        return 0;
    }
    return (int)n;
}

static bool read_bool(struct reader *r)
{
    return read_count(r, 1) == 1;
}

static void read_floats(struct reader *r, float *out, int n)
{
    const void *p = read_bytes(r, (uint64_t)n, sizeof *out);

    if (p)
        memcpy(out, p, (size_t)n * sizeof *out);
}

static void read_fields(struct reader *r, struct spec *s)
{
    int64_t at = 0;
    int i;

    s->n_field = read_count(r, SPEC_FIELD_MAX);
    for (i = 0; i < s->n_field; i++) {
        struct spec_field *f = &s->fields[i];

        read_str(r, f->name, sizeof f->name);
        f->n = read_count(r, SPEC_OBS_MAX);
        f->offset = (int)at; // at most 320 * 2^20
        at += f->n;
    }
}

static void read_pictures(struct reader *r, struct spec *s)
{
    int i;

    s->n_picture = read_count(r, SPEC_PICTURE_MAX);
    for (i = 0; i < s->n_picture; i++) {
        struct spec_picture *p = &s->pictures[i];

        read_str(r, p->name, sizeof p->name);
        read_str(r, p->camera, sizeof p->camera);
        p->plane = (uint32_t)read_count(r, SPEC_PLANES - 1);
        p->width = (uint32_t)read_count(r, SPEC_PICTURE_SIDE_MAX);
        p->height = (uint32_t)read_count(r, SPEC_PICTURE_SIDE_MAX);
        p->orient = read_u32(r);
        p->offset = (uint32_t)s->picture_bytes; // 16 times 128 MiB at most
        p->bytes = (uint32_t)picture_size(p);
        s->picture_bytes += round8(p->bytes);
    }
}

enum status spec_read(struct reader *r, struct spec *out)
{
    struct spec s = {0};
    int i;

    read_str(r, s.task, sizeof s.task);
    read_str(r, s.engine, sizeof s.engine);
    read_str(r, s.instruction, sizeof s.instruction);
    s.n_obs = read_count(r, SPEC_OBS_MAX);
    s.n_act = read_count(r, SPEC_ACT_MAX);
    read_floats(r, s.act_low, s.n_act);
    read_floats(r, s.act_high, s.n_act);
    s.n_info = read_count(r, SPEC_OBS_MAX);
    s.n_info_key = read_count(r, SPEC_INFO_MAX);
    for (i = 0; i < s.n_info_key; i++) {
        read_str(r, s.info[i].name, sizeof s.info[i].name);
        s.info[i].n = read_count(r, SPEC_OBS_MAX);
        s.info[i].on_reset = read_bool(r);
    }
    read_fields(r, &s);
    read_pictures(r, &s);
    s.max_episode_steps = (int64_t)read_u64(r);
    s.dt_s = read_f64(r);
    s.has_success = read_bool(r);
    s.n_env = read_count(r, SPEC_ENV_MAX);
    TRY(reader_end(r, false, "spec"));
    TRY(check(ST_PROTO, &s));
    *out = s;
    return ST_OK;
}

// Pictures have their own rule: the block is a multiple of 8.
static uint32_t place_pictures(uint32_t *at, const struct spec *spec, bool wanted)
{
    uint32_t here = *at;

    if (!wanted || spec->picture_bytes == 0)
        return 0;
    *at += (uint32_t)spec->picture_bytes;
    return here;
}

// Every part is a row of 8-byte numbers, so each starts where the one before ends.
static uint32_t place(uint32_t *at, int n)
{
    uint32_t here = *at;

    *at += (uint32_t)n * (uint32_t)sizeof(double);
    return n > 0 ? here : 0;
}

_Static_assert(sizeof(struct row_head) % sizeof(double) == 0, "numbers after it are aligned");

void row_layout_make(struct row_layout *out, const struct spec *spec, int k_max,
                     enum autoreset autoreset)
{
    bool final = autoreset == AUTORESET_SAME_STEP;
    uint32_t at = sizeof(struct row_head);

    *out = (struct row_layout){.k_max = k_max};
    out->reward = place(&at, k_max);
    out->obs = place(&at, spec->n_obs);
    out->info = place(&at, spec->n_info);
    out->final_obs = place(&at, final ? spec->n_obs : 0);
    out->final_info = place(&at, final ? spec->n_info : 0);
    out->pictures = place_pictures(&at, spec, true);
    out->final_pictures = place_pictures(&at, spec, final);
    out->stride = at;
}
