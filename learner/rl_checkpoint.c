#include "learner/rl_checkpoint.h"

#include "nn/h5file.h"

#include <string.h>

#define COUNT_MAX 1000000000000000LL

struct stored {
    struct update_config u;
    struct rl_config r;
};

static const struct opt options[] = {UPDATE_OPTS(struct stored, u), RL_OPTS(struct stored, r), {0}};

// Times are the modelled accelerator's, texts the initial policy's name, `updates` may be more.
static bool changes_result(const struct opt *o)
{
    return o->type != OPT_TIME && o->type != OPT_STR && strcmp(o->name, "updates") != 0;
}

static double value(const struct opt *o, const struct stored *s)
{
    const char *p = (const char *)s + o->offset;

    return o->type == OPT_REAL   ? *(const double *)p
           : o->type == OPT_INT  ? (double)*(const int64_t *)p
           : o->type == OPT_ENUM ? *(const int *)p
                                 : (double)*(const bool *)p;
}

static enum status put_all(struct h5file *f, const struct stored *s, struct rl_updater *u,
                           const struct rl_progress *p)
{
    struct rl_state state;

    rl_get(u, &state);
    TRY(weights_put(rl_weights(u), f));
    TRY(h5file_put_int(f, "adam_step", state.n_step));
    TRY(h5file_put(f, "adam_m", H5_F32, state.n, 0, state.m));
    TRY(h5file_put(f, "adam_v", H5_F32, state.n, 0, state.v));
    for (const struct opt *o = options; o->name; o++)
        if (changes_result(o))
            TRY(h5file_put_real(f, o->name, value(o, s)));
    TRY(h5file_put_int(f, "windows", (int64_t)p->windows));
    TRY(h5file_put_int(f, "env_steps", (int64_t)p->env_steps));
    TRY(h5file_put_int(f, "episodes", (int64_t)p->episodes));
    TRY(h5file_put_int(f, "dropped", (int64_t)p->dropped));
    TRY(h5file_put_int(f, "next_episode", (int64_t)p->next));
    return h5file_put_real(f, "seconds", p->seconds);
}

enum status rl_checkpoint_save(const char *path, const struct update_config *cfg,
                               const struct rl_config *rl, struct rl_updater *u,
                               const struct rl_progress *progress)
{
    const struct stored s = {.u = *cfg, .r = *rl};
    struct h5file *f;
    enum status st;

    TRY(h5file_create(&f));
    st = put_all(f, &s, u, progress);
    if (st == ST_OK)
        st = h5file_save(f, path);
    h5file_close(f);
    return st;
}

static enum status get_count(struct h5file *f, const char *name, uint64_t *out)
{
    int64_t count;

    TRY(h5file_get_int(f, name, 0, COUNT_MAX, &count));
    *out = (uint64_t)count;
    return ST_OK;
}

static enum status check_options(struct h5file *f, const struct stored *s)
{
    for (const struct opt *o = options; o->name; o++) {
        double stored, now;

        if (!changes_result(o))
            continue;
        now = value(o, s);
        TRY(h5file_get_real(f, o->name, -1e300, 1e300, &stored));
        if (stored != now)
            return FAIL(ST_INVAL, "option '%s' was %.10g in the checkpoint and is %.10g now",
                        o->name, stored, now);
    }
    return ST_OK;
}

static enum status get_all(struct h5file *f, const struct stored *s, struct rl_updater *u,
                           struct rl_progress *out)
{
    struct rl_progress p;
    struct rl_state state;
    struct weights *w;
    enum status st;
    int64_t n_step;

    TRY(check_options(f, s));
    TRY(get_count(f, "windows", &p.windows));
    TRY(get_count(f, "env_steps", &p.env_steps));
    TRY(get_count(f, "episodes", &p.episodes));
    TRY(get_count(f, "dropped", &p.dropped));
    TRY(get_count(f, "next_episode", &p.next));
    TRY(h5file_get_real(f, "seconds", 0, 1e15, &p.seconds));
    TRY(h5file_get_int(f, "adam_step", 0, COUNT_MAX, &n_step));
    rl_get(u, &state);
    TRY(h5file_get(f, "adam_m", H5_F32, state.n, 0, state.m));
    TRY(h5file_get(f, "adam_v", H5_F32, state.n, 0, state.v));
    TRY(weights_get(&w, f));
    st = rl_restore(u, w, n_step);
    weights_drop(w);
    if (st == ST_OK)
        *out = p;
    return st;
}

enum status rl_checkpoint_load(const char *path, const struct update_config *cfg,
                               const struct rl_config *rl, struct rl_updater *u,
                               struct rl_progress *progress)
{
    const struct stored s = {.u = *cfg, .r = *rl};
    struct h5file *f;
    enum status st;

    TRY(h5file_open(&f, path));
    st = get_all(f, &s, u, progress);
    h5file_close(f);
    return st != ST_OK && !strstr(error_last()->text, path) ? error_prefix("'%s'", path) : st;
}
