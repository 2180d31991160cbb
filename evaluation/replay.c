#include "evaluation/replay.h"

#include "common/base/mem.h"
#include "evaluation/worklist.h"
#include "nn/h5file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MAX 10000000 // of all demos
#define ACT_MAX   64
#define STATE_TOL 1e-9

struct demo {
    uint64_t start;
    int64_t n;     // steps
    float *action; // (n, n_act)
    double *state; // (n_state) the first one
    int n_state;
};

struct replay {
    char path[PATH_MAX];
    char task[64];      // "": the file does not say
    int64_t seed;       // -1: the same
    struct demo *demos; // (n_demo)
    int64_t n_demo;
    int n_act;
};

const char *replay_path(const struct replay *r)
{
    return r->path;
}

int64_t replay_demos(const struct replay *r)
{
    return r->n_demo;
}

int replay_n_act(const struct replay *r)
{
    return r->n_act;
}

uint64_t replay_start(const struct replay *r, int64_t demo)
{
    return r->demos[demo].start;
}

void replay_act(const struct replay *r, int64_t demo, uint64_t step, float *action)
{
    const struct demo *d = &r->demos[demo];
    size_t n = (size_t)r->n_act;

    if (step < (uint64_t)d->n)
        memcpy(action, d->action + step * n, n * sizeof action[0]);
    else
        memset(action, 0, n * sizeof action[0]);
}

enum status replay_check_task(const struct replay *r, const char *task, int64_t seed)
{
    if (r->task[0] && strcmp(r->task, task) != 0)
        return FAIL(ST_INVAL, "'%s' was recorded of task %s, not of %s", r->path, r->task, task);
    if (r->seed >= 0 && r->seed != seed)
        return FAIL(ST_INVAL, "'%s' was recorded with seed %lld, not with %lld", r->path,
                    (long long)r->seed, (long long)seed);
    return ST_OK;
}

enum status replay_check_start(const struct replay *r, int64_t demo, const double *state, int n)
{
    const struct demo *d = &r->demos[demo];
    int i;

    if (n != d->n_state)
        return FAIL(ST_INVAL, "'%s': a state of demo_%lld has %d numbers, the task's %d", r->path,
                    (long long)demo, d->n_state, n);
    for (i = 0; i < n; i++)
        if (!(fabs(state[i] - d->state[i]) <= STATE_TOL * (1 + fabs(d->state[i]))))
            return FAIL(ST_INVAL,
                        "'%s': demo_%lld was recorded from another state (its number %d is %.9g, "
                        "here %.9g): do seed, task and keyword arguments agree?",
                        r->path, (long long)demo, i, d->state[i], state[i]);
    return ST_OK;
}

static enum status read_actions(struct replay *r, struct h5file *f, const char *group,
                                struct demo *d)
{
    char name[64];
    int64_t rows, cols, i;
    double *wide;
    enum status st;

    snprintf(name, sizeof name, "%s/actions", group);
    TRY(h5file_shape(f, name, &rows, &cols));
    if (rows < 1 || rows > STEPS_MAX || cols < 1 || cols > ACT_MAX ||
        (r->n_act && cols != r->n_act))
        return FAIL(ST_INVAL, "'%s': dataset '%s' is (%lld, %lld), expected one row a step",
                    r->path, name, (long long)rows, (long long)cols);
    r->n_act = (int)cols;
    d->n = rows;
    d->action = mem_alloc((size_t)(rows * cols), sizeof d->action[0]);
    wide = mem_alloc((size_t)(rows * cols), sizeof wide[0]);
    st = d->action && wide ? h5file_get(f, name, H5_F64, rows, cols, wide) : ST_NOMEM;
    for (i = 0; st == ST_OK && i < rows * cols; i++)
        d->action[i] = (float)wide[i];
    mem_free(wide);
    return st;
}

static enum status read_state(struct h5file *f, const char *group, struct demo *d)
{
    char name[64];
    int64_t rows, cols;

    snprintf(name, sizeof name, "%s/states", group);
    TRY(h5file_shape(f, name, &rows, &cols));
    d->state = mem_alloc((size_t)cols, sizeof d->state[0]);
    if (!d->state)
        return ST_NOMEM;
    d->n_state = (int)cols;
    return h5file_get_reals(f, "init_state", cols, d->state);
}

static enum status read_demo(struct replay *r, struct h5file *f, int64_t i)
{
    struct demo *d = &r->demos[i];
    int64_t start = i;
    char group[32];

    snprintf(group, sizeof group, "data/demo_%lld", (long long)i);
    TRY(h5file_at(f, group));
    if (h5file_has_attr(f, "episode"))
        TRY(h5file_get_int(f, "episode", 0, INT64_MAX, &start));
    d->start = (uint64_t)start;
    TRY(read_actions(r, f, group, d));
    return read_state(f, group, d);
}

static enum status read_all(struct replay *r, struct h5file *f)
{
    int64_t i, steps = 0;

    r->seed = -1;
    TRY(h5file_at(f, "data"));
    if (h5file_has_attr(f, "task"))
        TRY(h5file_get_text(f, "task", r->task, sizeof r->task));
    if (h5file_has_attr(f, "seed"))
        TRY(h5file_get_int(f, "seed", 0, INT64_MAX, &r->seed));
    TRY(h5file_get_int(f, "num_demos", 1, WORKLIST_MAX, &r->n_demo));
    r->demos = mem_alloc((size_t)r->n_demo, sizeof r->demos[0]);
    if (!r->demos)
        return ST_NOMEM;
    for (i = 0; i < r->n_demo; i++) {
        TRY(read_demo(r, f, i));
        steps += r->demos[i].n;
        if (steps > STEPS_MAX)
            return FAIL(ST_INVAL, "'%s' has more than %d steps", r->path, STEPS_MAX);
    }
    return ST_OK;
}

enum status replay_open(struct replay **out, const char *path)
{
    struct replay *r = mem_alloc(1, sizeof *r);
    struct h5file *f = NULL;
    enum status st;

    if (!r)
        return ST_NOMEM;
    snprintf(r->path, sizeof r->path, "%s", path);
    st = h5file_open_large(&f, path);
    if (st == ST_OK)
        st = read_all(r, f);
    h5file_close(f);
    if (st != ST_OK) {
        replay_close(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

void replay_close(struct replay *r)
{
    int64_t i;

    if (!r)
        return;
    for (i = 0; r->demos && i < r->n_demo; i++) {
        mem_free(r->demos[i].action);
        mem_free(r->demos[i].state);
    }
    mem_free(r->demos);
    mem_free(r);
}
