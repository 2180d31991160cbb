#include "rollout/fleet.h"

#include "common/base/mem.h"

#include <string.h>

struct place {
    int source;
    uint32_t env; // the server's number
};

struct fleet {
    struct intake *in;
    const struct spec *spec;
    int n_env, n_left, n_source;
    struct place *place;     // (n_env)
    int **local;             // (n_source, the server's envs) our number, -1 = not ours
    struct reset_row *reset; // (n_env) scratch
};

static const struct welcome *welcome_of(const struct fleet *f, int source)
{
    return envclient_welcome(intake_source(f->in, source));
}

static enum status check_same(struct fleet *f, const struct spec *spec)
{
    if (!f->spec)
        f->spec = spec;
    if (strcmp(spec->task, f->spec->task) != 0 || spec->n_obs != f->spec->n_obs ||
        spec->n_act != f->spec->n_act)
        return FAIL(ST_INVAL,
                    "env servers offer different tasks: %s (%d observations, %d actions) and "
                    "%s (%d, %d)",
                    f->spec->task, f->spec->n_obs, f->spec->n_act, spec->task, spec->n_obs,
                    spec->n_act);
    return ST_OK;
}

static enum status number(struct fleet *f)
{
    uint32_t k;
    int s, at = 0;

    f->place = mem_alloc((size_t)f->n_env, sizeof f->place[0]);
    f->reset = mem_alloc((size_t)f->n_env, sizeof f->reset[0]);
    f->local = mem_alloc((size_t)f->n_source, sizeof f->local[0]);
    if (!f->place || !f->reset || !f->local)
        return ST_NOMEM;
    for (s = 0; s < f->n_source; s++) {
        const struct welcome *w = welcome_of(f, s);

        f->local[s] = mem_alloc((size_t)w->spec.n_env, sizeof f->local[s][0]);
        if (!f->local[s])
            return ST_NOMEM;
        memset(f->local[s], 0xff, (size_t)w->spec.n_env * sizeof f->local[s][0]);
        for (k = 0; k < w->n_env; k++, at++) {
            f->place[at] = (struct place){s, w->env[k]};
            f->local[s][w->env[k]] = at;
        }
    }
    return ST_OK;
}

enum status fleet_create(struct fleet **out, struct intake *in)
{
    struct fleet *f = mem_alloc(1, sizeof *f);
    enum status st = ST_OK;
    int s;

    if (!f)
        return ST_NOMEM;
    f->in = in;
    f->n_source = intake_n_source(in);
    for (s = 0; s < f->n_source && st == ST_OK; s++) {
        st = check_same(f, &welcome_of(f, s)->spec);
        f->n_env += (int)welcome_of(f, s)->n_env;
    }
    if (st == ST_OK && f->n_env > SPEC_ENV_MAX)
        st = FAIL(ST_INVAL, "%d envs, at most %d are possible", f->n_env, SPEC_ENV_MAX);
    f->n_left = f->n_env;
    if (st == ST_OK)
        st = number(f);
    if (st != ST_OK) {
        fleet_destroy(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

void fleet_destroy(struct fleet *f)
{
    int s;

    if (!f)
        return;
    for (s = 0; f->local && s < f->n_source; s++)
        mem_free(f->local[s]);
    mem_free(f->local);
    mem_free(f->place);
    mem_free(f->reset);
    mem_free(f);
}

int fleet_n_env(const struct fleet *f)
{
    return f->n_env;
}

int fleet_n_left(const struct fleet *f)
{
    return f->n_left;
}

const struct spec *fleet_spec(const struct fleet *f)
{
    return f->spec;
}

enum status fleet_find(const struct fleet *f, int source, uint32_t env, int *out)
{
    int i = env < (uint32_t)welcome_of(f, source)->spec.n_env ? f->local[source][env] : -1;

    if (i < 0)
        return FAIL(ST_PROTO, "an env server sent a row of env %u, which is not ours", env);
    *out = i;
    return ST_OK;
}

enum status fleet_reset(struct fleet *f, uint64_t seed, uint64_t stream_first,
                        const uint64_t *episode)
{
    int s, i, n;

    for (s = 0; s < f->n_source; s++) {
        for (i = n = 0; i < f->n_env; i++)
            if (f->place[i].source == s)
                f->reset[n++] = (struct reset_row){.env = f->place[i].env,
                                                   .seed = seed,
                                                   .stream = stream_first + (uint64_t)i,
                                                   .episode = episode[i]};
        if (n > 0) {
            enum status st = envclient_reset(intake_source(f->in, s), f->reset, n);

            if (st != ST_OK && st != ST_CLOSED)
                return st;
        }
    }
    return ST_OK;
}

void fleet_clip(const struct fleet *f, const float *action, float *out)
{
    const struct spec *s = f->spec;
    int k;

    for (k = 0; k < s->n_act; k++)
        out[k] = action[k] < s->act_low[k]    ? s->act_low[k]
                 : action[k] > s->act_high[k] ? s->act_high[k]
                                              : action[k];
}

enum status fleet_step(struct fleet *f, const int *env, const float *action, int n)
{
    size_t n_act = (size_t)f->spec->n_act, stride = step_stride(1, f->spec->n_act);
    int s, i;

    for (s = 0; s < f->n_source; s++) {
        struct envclient *c = intake_source(f->in, s);
        int count = 0;
        struct msg *m;
        uint8_t *at;
        enum status st;

        for (i = 0; i < n; i++)
            count += f->place[env[i]].source == s;
        if (count == 0)
            continue;
        TRY(envclient_step_begin(c, count, &m, &at));
        for (i = 0; i < n; i++) {
            struct step_row *row = (struct step_row *)at;

            if (f->place[env[i]].source != s)
                continue;
            row->env = f->place[env[i]].env;
            row->n_sub = 1;
            memcpy(row + 1, action + (size_t)i * n_act, n_act * sizeof action[0]);
            at += stride;
        }
        st = envclient_step_send(c, m);
        if (st != ST_OK && st != ST_CLOSED)
            return st;
    }
    return ST_OK;
}

int fleet_lose(struct fleet *f, int source, int *env)
{
    int i, n = 0;

    for (i = 0; i < f->n_env; i++)
        if (f->place[i].source == source)
            env[n++] = i;
    f->n_left -= n;
    return n;
}
