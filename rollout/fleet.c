#include "rollout/fleet.h"

#include "common/base/mem.h"
#include "rollout/framestack.h"

#include <string.h>

struct place {
    int source;
    uint32_t env; // the server's number
};

struct fleet {
    struct intake *in;
    struct spec spec; // of the first server; the others' tasks are the same
    int n_env, n_left, n_source;
    struct place *place;     // (n_env)
    bool *lost;              // (n_source)
    int **local;             // (n_source, the server's envs) our number, -1 = not ours
    struct reset_row *reset; // (n_env) scratch
};

static const struct welcome *welcome_of(const struct fleet *f, int source)
{
    return envclient_welcome(intake_source(f->in, source));
}

static enum status check_same(const struct fleet *f, const struct spec *spec)
{
    const struct spec *first = &f->spec;
    char list[2][200];

    if (strcmp(spec->task, first->task) != 0 || spec->n_obs != first->n_obs ||
        spec->n_act != first->n_act)
        return FAIL(ST_INVAL,
                    "env servers offer different tasks: %s (%d observations, %d actions) and "
                    "%s (%d, %d)",
                    first->task, first->n_obs, first->n_act, spec->task, spec->n_obs, spec->n_act);
    if (!framestack_same(spec, first))
        return FAIL(ST_INVAL, "env servers draw different pictures: %s and %s",
                    spec_picture_list(first, list[0], sizeof list[0]),
                    spec_picture_list(spec, list[1], sizeof list[1]));
    return ST_OK;
}

// The server's numbers of its envs, for our numbers from `first` on.
static enum status map_source(struct fleet *f, int s, int first)
{
    const struct welcome *w = welcome_of(f, s);
    int *local = mem_alloc((size_t)w->spec.n_env, sizeof local[0]);
    uint32_t k;

    if (!local)
        return ST_NOMEM;
    memset(local, 0xff, (size_t)w->spec.n_env * sizeof local[0]);
    for (k = 0; k < w->n_env; k++) {
        f->place[first + (int)k] = (struct place){s, w->env[k]};
        local[w->env[k]] = first + (int)k;
    }
    mem_free(f->local[s]);
    f->local[s] = local;
    return ST_OK;
}

static enum status number(struct fleet *f)
{
    int s, at = 0;

    f->place = mem_alloc((size_t)f->n_env, sizeof f->place[0]);
    f->reset = mem_alloc((size_t)f->n_env, sizeof f->reset[0]);
    f->local = mem_alloc((size_t)f->n_source, sizeof f->local[0]);
    f->lost = mem_alloc((size_t)f->n_source, sizeof f->lost[0]);
    if (!f->place || !f->reset || !f->local || !f->lost)
        return ST_NOMEM;
    for (s = 0; s < f->n_source; s++) {
        TRY(map_source(f, s, at));
        at += (int)welcome_of(f, s)->n_env;
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
    f->spec = welcome_of(f, 0)->spec;
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
    mem_free(f->lost);
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
    return &f->spec;
}

enum status fleet_find(const struct fleet *f, int source, uint32_t env, int *out)
{
    int i = env < (uint32_t)welcome_of(f, source)->spec.n_env ? f->local[source][env] : -1;

    if (i < 0)
        return FAIL(ST_PROTO, "an env server sent a row of env %u, which is not ours", env);
    *out = i;
    return ST_OK;
}

enum status fleet_locate(const struct fleet *f, int env, int *source, uint32_t *id)
{
    const struct place *p = &f->place[env];

    if (f->lost[p->source])
        return FAIL(ST_CLOSED, "env %d: env server %s is lost", env,
                    envclient_url(intake_source(f->in, p->source)));
    *source = p->source;
    *id = p->env;
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
    const struct spec *s = &f->spec;
    int k;

    for (k = 0; k < s->n_act; k++)
        out[k] = action[k] < s->act_low[k]    ? s->act_low[k]
                 : action[k] > s->act_high[k] ? s->act_high[k]
                                              : action[k];
}

enum status fleet_step_chunks(struct fleet *f, const int *env, const float *action, int chunk,
                              int n)
{
    size_t width = (size_t)chunk * (size_t)f->spec.n_act;
    size_t stride = step_stride(chunk, f->spec.n_act);
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
            row->n_sub = (uint32_t)chunk;
            memcpy(row + 1, action + (size_t)i * width, width * sizeof action[0]);
            at += stride;
        }
        st = envclient_step_send(c, m);
        if (st != ST_OK && st != ST_CLOSED)
            return st;
    }
    return ST_OK;
}

enum status fleet_step(struct fleet *f, const int *env, const float *action, int n)
{
    return fleet_step_chunks(f, env, action, 1, n);
}

enum status fleet_reset_some(struct fleet *f, const int *env, struct reset_row *rows, int n)
{
    int s, i, count;

    for (i = 0; i < n; i++)
        rows[i].env = f->place[env[i]].env;
    for (s = 0; s < f->n_source; s++) {
        enum status st = ST_OK;

        for (i = count = 0; i < n; i++)
            if (f->place[env[i]].source == s)
                f->reset[count++] = rows[i];
        if (count > 0)
            st = envclient_reset(intake_source(f->in, s), f->reset, count);
        if (st != ST_OK && st != ST_CLOSED)
            return st;
    }
    return ST_OK;
}

enum status fleet_return(struct fleet *f, int source, int *env, int *n)
{
    const struct welcome *w = welcome_of(f, source);
    int i, count = 0;

    TRY(check_same(f, &w->spec));
    for (i = 0; i < f->n_env; i++)
        if (f->place[i].source == source)
            env[count++] = i; // these follow one another
    if ((int)w->n_env != count)
        return FAIL(ST_INVAL, "env server %s came back with %u envs, expected %d",
                    envclient_url(intake_source(f->in, source)), w->n_env, count);
    TRY(map_source(f, source, env[0]));
    f->n_left += count;
    f->lost[source] = false;
    *n = count;
    return ST_OK;
}

int fleet_lose(struct fleet *f, int source, int *env)
{
    int i, n = 0;

    for (i = 0; i < f->n_env && !f->lost[source]; i++)
        if (f->place[i].source == source)
            env[n++] = i;
    f->lost[source] = true;
    f->n_left -= n;
    return n;
}
