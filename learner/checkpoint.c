#include "learner/checkpoint.h"

#include "common/base/log.h"
#include "nn/h5file.h"

#include <stdio.h>
#include <string.h>

#define COUNT_MAX 1000000000000000LL

// The updater's options, stored under their names.
struct stored_options {
    struct update_config u;
};

static const struct opt options[] = {UPDATE_OPTS(struct stored_options, u), {0}};

// Threads and the modelled accelerator do not change the result.
static bool changes_result(const struct opt *o)
{
    return o->type != OPT_TIME && strcmp(o->name, "learner-threads") != 0;
}

static double option_value(const struct opt *o, const struct update_config *cfg)
{
    const char *p = (const char *)cfg + o->offset;

    return o->type == OPT_REAL  ? *(const double *)p
           : o->type == OPT_INT ? (double)*(const int64_t *)p
                                : (double)*(const bool *)p;
}

static enum status put_options(struct h5file *f, const struct update_config *cfg)
{
    for (const struct opt *o = options; o->name; o++)
        if (changes_result(o))
            TRY(h5file_put_real(f, o->name, option_value(o, cfg)));
    return ST_OK;
}

static enum status check_options(struct h5file *f, const struct update_config *cfg)
{
    for (const struct opt *o = options; o->name; o++) {
        double stored, now;

        if (!changes_result(o))
            continue;
        now = option_value(o, cfg);
        TRY(h5file_get_real(f, o->name, o->low, o->high, &stored));
        if (stored != now)
            return FAIL(ST_INVAL, "option '%s' was %.10g in the checkpoint and is %.10g now",
                        o->name, stored, now);
    }
    return ST_OK;
}

static enum status put_state(struct h5file *f, const struct updater_state *s)
{
    TRY(h5file_put_int(f, "adam_step", s->n_step));
    TRY(h5file_put_int(f, "total_windows", s->total_windows));
    TRY(h5file_put(f, "adam_m", H5_F32, s->n_param, 0, s->m));
    TRY(h5file_put(f, "adam_v", H5_F32, s->n_param, 0, s->v));
    TRY(h5file_put(f, "averages", H5_F64, 2, 3, s->averages));
    return put_options(f, s->cfg);
}

static enum status put_progress(struct h5file *f, const struct train_progress *p)
{
    TRY(h5file_put_int(f, "windows", (int64_t)p->windows));
    TRY(h5file_put_int(f, "env_steps", (int64_t)p->env_steps));
    TRY(h5file_put_int(f, "episodes", (int64_t)p->episodes));
    TRY(h5file_put_int(f, "dropped", (int64_t)p->dropped));
    return h5file_put_real(f, "seconds", p->seconds);
}

static enum status put_all(struct h5file *f, struct updater *u,
                           const struct train_progress *progress)
{
    struct updater_state state;

    updater_get(u, &state);
    TRY(weights_put(state.weights, f));
    TRY(put_state(f, &state));
    return put_progress(f, progress);
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

static enum status get_count(struct h5file *f, const char *name, uint64_t *out)
{
    int64_t value;

    TRY(h5file_get_int(f, name, 0, COUNT_MAX, &value));
    *out = (uint64_t)value;
    return ST_OK;
}

static enum status get_progress(struct h5file *f, struct train_progress *p)
{
    TRY(get_count(f, "windows", &p->windows));
    TRY(get_count(f, "env_steps", &p->env_steps));
    TRY(get_count(f, "episodes", &p->episodes));
    TRY(get_count(f, "dropped", &p->dropped));
    return h5file_get_real(f, "seconds", 0, 1e15, &p->seconds);
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
    TRY(h5file_get_int(f, "adam_step", 0, COUNT_MAX, &s.n_step));
    TRY(h5file_get_int(f, "total_windows", 0, COUNT_MAX, &total));
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
        st = check_options(f, s.cfg);
    if (st == ST_OK)
        st = get_progress(f, &p);
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
