#include "evaluation/compare.h"

#include "common/base/mem.h"

#include <string.h>

struct pairing { // what is being put together
    const struct results *a, *b;
    double *differences; // (n) of returns, so far
    int64_t n;
};

static bool counts(const struct result *row)
{
    return row->r.outcome != OUTCOME_ERROR;
}

static void count(struct compared *c, const struct result *a, const struct result *b)
{
    bool x = a->r.outcome == OUTCOME_SUCCESS, y = b->r.outcome == OUTCOME_SUCCESS;

    c->n++;
    c->both += x && y;
    c->only_a += x && !y;
    c->only_b += !x && y;
    c->neither += !x && !y;
}

static void judge(struct compared *c, bool has_success, const double *differences)
{
    c->has_success = has_success;
    stats_mean(&c->returns, differences, (int)c->n);
    c->p = stats_mcnemar((int)c->only_a, (int)c->only_b);
    stats_paired(&c->difference, (int)c->only_b, (int)c->only_a, (int)c->n);
}

// The row of `r` for this item; NULL = none, or an error.
static const struct result *find(const struct results *r, int task, const struct result *like)
{
    int64_t low = 0, high = r->n;

    while (low < high) {
        int64_t middle = (low + high) / 2;
        const struct result *row = &r->rows[middle];

        if (row->task < task || (row->task == task && row->r.episode < like->r.episode))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == r->n || r->rows[low].task != task || r->rows[low].r.episode != like->r.episode ||
        r->rows[low].seed != like->seed || !counts(&r->rows[low]))
        return NULL;
    return &r->rows[low];
}

static void pair_task(struct comparison *out, struct pairing *p, int task, int64_t *next)
{
    int other = results_find_task(p->b, p->a->tasks[task].name);
    struct compared *c = &out->tasks[task];
    int64_t first = p->n, k;

    for (k = *next; k < p->a->n && p->a->rows[k].task == task; k++) {
        const struct result *row = &p->a->rows[k];
        const struct result *twin = other < 0 || !counts(row) ? NULL : find(p->b, other, row);

        if (!twin) {
            out->unpaired_a += counts(row);
            continue;
        }
        count(c, row, twin);
        count(&out->all, row, twin);
        p->differences[p->n++] = twin->r.ret - row->r.ret;
        if (twin->r.outcome != row->r.outcome)
            out->flips[out->n_flip++] = (struct flip){k, twin - p->b->rows};
    }
    *next = k;
    judge(c, p->a->tasks[task].input.has_success, p->differences + first);
    out->all.has_success |= c->has_success && c->n > 0;
}

static int64_t countable(const struct results *r)
{
    int64_t k, n = 0;

    for (k = 0; k < r->n; k++)
        n += counts(&r->rows[k]);
    return n;
}

enum status compare_make(struct comparison *out, const struct results *a, const struct results *b)
{
    struct pairing p = {.a = a, .b = b};
    int64_t next = 0;
    int t;

    memset(out, 0, sizeof *out);
    p.differences = mem_alloc((size_t)a->n, sizeof p.differences[0]);
    out->tasks = mem_alloc((size_t)a->n_task, sizeof out->tasks[0]);
    out->flips = mem_alloc((size_t)a->n, sizeof out->flips[0]);
    if (!p.differences || !out->tasks || !out->flips) {
        mem_free(p.differences);
        compare_fini(out);
        return ST_NOMEM;
    }
    for (t = 0; t < a->n_task; t++)
        pair_task(out, &p, t, &next);
    judge(&out->all, out->all.has_success, p.differences);
    out->unpaired_b = countable(b) - out->all.n;
    mem_free(p.differences);
    if (out->all.n > 0)
        return ST_OK;
    compare_fini(out);
    return FAIL(ST_INVAL, "the two evaluations have no item in common: tasks, episodes and seeds "
                          "must be the same");
}

void compare_fini(struct comparison *c)
{
    mem_free(c->tasks);
    mem_free(c->flips);
    memset(c, 0, sizeof *c);
}
