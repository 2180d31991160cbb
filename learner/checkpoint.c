#include "learner/checkpoint.h"

#include "common/base/log.h"

#include <stdio.h>
#include <string.h>

// The updater's options, stored under their names.
struct stored_options {
    struct update_config u;
};

static const struct opt options[] = {UPDATE_OPTS(struct stored_options, u), {0}};

static enum status put_state(struct h5file *f, const struct updater_state *s)
{
    TRY(h5file_put_int(f, "adam_step", s->n_step));
    TRY(h5file_put_int(f, "total_windows", s->total_windows));
    TRY(h5file_put(f, "adam_m", H5_F32, s->n_param, 0, s->m));
    TRY(h5file_put(f, "adam_v", H5_F32, s->n_param, 0, s->v));
    TRY(h5file_put(f, "averages", H5_F64, 2, 3, s->averages));
    return saved_put_options(f, options, s->cfg);
}

static enum status put_all(struct h5file *f, struct updater *u,
                           const struct train_progress *progress)
{
    struct updater_state state;

    updater_get(u, &state);
    TRY(weights_put(state.weights, f));
    TRY(put_state(f, &state));
    return saved_put_progress(f, progress);
}

enum status checkpoint_save(const char *path, struct updater *u,
                            const struct train_progress *progress)
{
    struct h5file *f;
    enum status st;

    TRY(h5file_create(&f));
    st = put_all(f, u, progress);
    if (st == ST_OK)
        st = h5file_save(f, path);
    h5file_close(f);
    return st;
}

static void print_vision(const struct model_vision *v, char *out, size_t size)
{
    char conv[96];

    model_conv_print(v, conv, sizeof conv);
    if (v->n_conv == 0)
        snprintf(out, size, "no pictures");
    else
        snprintf(out, size, "%d pictures of %d by %d%s through %s", v->stack, v->width, v->height,
                 v->state ? " and the observation" : "", conv);
}

static enum status check_model(const struct weights *w, const struct weights *now)
{
    const struct model_shape *a = &w->shape, *b = &now->shape;
    char hidden[64], expected[64], sees[256], expected_sees[256];

    if (model_shape_equal(a, b))
        return ST_OK;
    model_shape_print(a, hidden, sizeof hidden);
    model_shape_print(b, expected, sizeof expected);
    print_vision(&a->vision, sees, sizeof sees);
    print_vision(&b->vision, expected_sees, sizeof expected_sees);
    if (strcmp(sees, expected_sees) != 0)
        return FAIL(ST_INVAL, "the model sees %s, expected %s", sees, expected_sees);
    return FAIL(ST_INVAL,
                "the model has %d observations, %d actions and hidden layers %s, expected %d, %d "
                "and %s",
                a->n_obs, a->n_act, hidden, b->n_obs, b->n_act, expected);
}

// Read into the updater's own arrays only after everything else was found to fit.
static enum status get_state(struct h5file *f, struct updater *u, const struct weights *w)
{
    struct updater_state s;
    int64_t total;

    updater_get(u, &s);
    TRY(h5file_get_int(f, "adam_step", 0, SAVED_COUNT_MAX, &s.n_step));
    TRY(h5file_get_int(f, "total_windows", 0, SAVED_COUNT_MAX, &total));
    TRY(h5file_get(f, "averages", H5_F64, 2, 3, s.averages));
    if (total != s.total_windows)
        log_warn("checkpoint",
                 "made for %lld windows, going on for %lld: the schedule of the "
                 "learning rate changes",
                 (long long)total, (long long)s.total_windows);
    TRY(h5file_get(f, "adam_m", H5_F32, s.n_param, 0, s.m));
    TRY(h5file_get(f, "adam_v", H5_F32, s.n_param, 0, s.v));
    return updater_restore(u, w, &s);
}

static enum status get_all(struct h5file *f, struct updater *u, struct train_progress *progress)
{
    struct train_progress p;
    struct updater_state s;
    struct weights *w;
    enum status st;

    updater_get(u, &s);
    TRY(weights_get(&w, f));
    st = check_model(w, s.weights);
    if (st == ST_OK)
        st = saved_check_options(f, options, s.cfg);
    if (st == ST_OK)
        st = saved_get_progress(f, &p);
    if (st == ST_OK)
        st = get_state(f, u, w);
    weights_drop(w);
    if (st == ST_OK)
        *progress = p;
    return st;
}

enum status checkpoint_load(const char *path, struct updater *u, struct train_progress *progress)
{
    struct h5file *f;
    enum status st;

    TRY(h5file_open(&f, path));
    st = get_all(f, u, progress);
    h5file_close(f);
    return st != ST_OK && !strstr(error_last()->text, path) ? error_prefix("'%s'", path) : st;
}
