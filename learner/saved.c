#include "learner/saved.h"

#include <string.h>

enum status saved_put_progress(struct h5file *f, const struct train_progress *p)
{
    TRY(h5file_put_int(f, "windows", (int64_t)p->windows));
    TRY(h5file_put_int(f, "env_steps", (int64_t)p->env_steps));
    TRY(h5file_put_int(f, "episodes", (int64_t)p->episodes));
    TRY(h5file_put_int(f, "dropped", (int64_t)p->dropped));
    if (p->next_episode > 0)
        TRY(h5file_put_int(f, "next_episode", (int64_t)p->next_episode));
    return h5file_put_real(f, "seconds", p->seconds);
}

static enum status get_count(struct h5file *f, const char *name, uint64_t *out)
{
    int64_t value;

    TRY(h5file_get_int(f, name, 0, SAVED_COUNT_MAX, &value));
    *out = (uint64_t)value;
    return ST_OK;
}

enum status saved_get_progress(struct h5file *f, struct train_progress *p)
{
    *p = (struct train_progress){0};
    TRY(get_count(f, "windows", &p->windows));
    TRY(get_count(f, "env_steps", &p->env_steps));
    TRY(get_count(f, "episodes", &p->episodes));
    TRY(get_count(f, "dropped", &p->dropped));
    if (h5file_has_attr(f, "next_episode"))
        TRY(get_count(f, "next_episode", &p->next_episode));
    return h5file_get_real(f, "seconds", 0, 1e15, &p->seconds);
}

// Times are the modelled accelerator's, texts the initial policy's name; threads do not change a
// result, and `updates` may be more.
static bool changes_result(const struct opt *o)
{
    return o->type != OPT_TIME && o->type != OPT_STR && strcmp(o->name, "learner-threads") != 0 &&
           strcmp(o->name, "updates") != 0;
}

static double option_value(const struct opt *o, const void *base)
{
    const char *p = (const char *)base + o->offset;

    return o->type == OPT_REAL   ? *(const double *)p
           : o->type == OPT_INT  ? (double)*(const int64_t *)p
           : o->type == OPT_ENUM ? *(const int *)p
                                 : (double)*(const bool *)p;
}

enum status saved_put_options(struct h5file *f, const struct opt *options, const void *base)
{
    for (const struct opt *o = options; o->name; o++)
        if (changes_result(o))
            TRY(h5file_put_real(f, o->name, option_value(o, base)));
    return ST_OK;
}

enum status saved_check_options(struct h5file *f, const struct opt *options, const void *base)
{
    for (const struct opt *o = options; o->name; o++) {
        double stored, now;

        if (!changes_result(o))
            continue;
        now = option_value(o, base);
        TRY(h5file_get_real(f, o->name, -1e300, 1e300, &stored));
        if (stored != now)
            return FAIL(ST_INVAL, "option '%s' was %.10g in the checkpoint and is %.10g now",
                        o->name, stored, now);
    }
    return ST_OK;
}
