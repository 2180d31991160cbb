#include "learner/rl_checkpoint.h"

#include <string.h>

struct stored {
    struct update_config u;
    struct rl_config r;
};

static const struct opt options[] = {UPDATE_OPTS(struct stored, u), RL_OPTS(struct stored, r), {0}};

static enum status put_all(struct h5file *f, const struct stored *s, struct rl_updater *u,
                           const struct train_progress *p)
{
    struct rl_state state;

    rl_get(u, &state);
    TRY(weights_put(rl_weights(u), f));
    TRY(h5file_put_int(f, "adam_step", state.n_step));
    TRY(h5file_put(f, "adam_m", H5_F32, state.n, 0, state.m));
    TRY(h5file_put(f, "adam_v", H5_F32, state.n, 0, state.v));
    TRY(h5file_put(f, "averages", H5_F64, 2, 3, state.averages));
    TRY(saved_put_options(f, options, s));
    return saved_put_progress(f, p);
}

enum status rl_checkpoint_save(const char *path, const struct update_config *cfg,
                               const struct rl_config *rl, struct rl_updater *u,
                               const struct train_progress *progress)
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

static enum status get_all(struct h5file *f, const struct stored *s, struct rl_updater *u,
                           struct train_progress *out)
{
    struct train_progress p;
    struct rl_state state;
    struct weights *w;
    enum status st;
    int64_t n_step;

    TRY(saved_check_options(f, options, s));
    TRY(saved_get_progress(f, &p));
    TRY(h5file_get_int(f, "adam_step", 0, SAVED_COUNT_MAX, &n_step));
    rl_get(u, &state);
    TRY(h5file_get(f, "adam_m", H5_F32, state.n, 0, state.m));
    TRY(h5file_get(f, "adam_v", H5_F32, state.n, 0, state.v));
    TRY(h5file_get(f, "averages", H5_F64, 2, 3, state.averages));
    TRY(weights_get(&w, f));
    st = rl_restore(u, w, n_step);
    weights_drop(w);
    if (st == ST_OK)
        *out = p;
    return st;
}

enum status rl_checkpoint_load(const char *path, const struct update_config *cfg,
                               const struct rl_config *rl, struct rl_updater *u,
                               struct train_progress *progress)
{
    const struct stored s = {.u = *cfg, .r = *rl};
    struct h5file *f;
    enum status st;

    TRY(h5file_open(&f, path));
    st = get_all(f, &s, u, progress);
    h5file_close(f);
    return st != ST_OK && !strstr(error_last()->text, path) ? error_prefix("'%s'", path) : st;
}
