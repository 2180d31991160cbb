#include "common/wire/spec.h"

#include <math.h>
#include <string.h>

const char *row_error_name(enum row_error error)
{
    static const char *const names[] = {
        "none", "bad position", "bad velocity", "bad acceleration", "engine error", "bad output",
    };

    return (size_t)error < sizeof names / sizeof names[0] ? names[error] : "unknown";
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
static enum status check_name(enum status code, const char *what, const char *name)
{
    size_t i, n = strnlen(name, SPEC_NAME_MAX);

    if (n == 0 || n == SPEC_NAME_MAX)
        return FAIL(code, "spec: %s has %zu characters, expected 1 to %d", what, n,
                    SPEC_NAME_MAX - 1);
    for (i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return FAIL(code, "spec: %s holds a control character", what);
    return ST_OK;
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

// The same rules for what is sent and what is received; `code` is what a broken one costs.
static enum status check(enum status code, const struct spec *s)
{
    int i;

    TRY(check_name(code, "the task", s->task));
    TRY(check_name(code, "the engine", s->engine));
    TRY(check_counts(code, s));
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

enum status spec_write(struct msg *m, const struct spec *s)
{
    TRY(check(ST_INVAL, s));
    TRY(msg_str(m, s->task));
    TRY(msg_str(m, s->engine));
    TRY(msg_u32(m, (uint32_t)s->n_obs));
    TRY(msg_u32(m, (uint32_t)s->n_act));
    TRY(msg_bytes(m, s->act_low, (size_t)s->n_act * sizeof s->act_low[0]));
    TRY(msg_bytes(m, s->act_high, (size_t)s->n_act * sizeof s->act_high[0]));
    TRY(write_info(m, s));
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

enum status spec_read(struct reader *r, struct spec *out)
{
    struct spec s = {0};
    int i;

    read_str(r, s.task, sizeof s.task);
    read_str(r, s.engine, sizeof s.engine);
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
    s.max_episode_steps = (int64_t)read_u64(r);
    s.dt_s = read_f64(r);
    s.has_success = read_bool(r);
    s.n_env = read_count(r, SPEC_ENV_MAX);
    TRY(reader_end(r, false, "spec"));
    TRY(check(ST_PROTO, &s));
    *out = s;
    return ST_OK;
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
    out->stride = at;
}
