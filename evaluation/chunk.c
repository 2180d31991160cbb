#include "evaluation/chunk.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

struct piece {     // one chunk
    uint64_t step; // of its first action
    int n;
    float *actions; // (n, n_act), room for CHUNK_STEPS_MAX
};

struct chunk {
    struct chunk_config cfg;
    uint64_t next; // step of the next request
    int n_piece, n_max;
    struct piece *pieces; // (n_max), the oldest first, first n_piece
};

enum status chunk_create(struct chunk **out, const struct chunk_config *cfg)
{
    struct chunk *c;
    int i;

    if (cfg->execute < 0 || cfg->execute > CHUNK_STEPS_MAX)
        return FAIL(ST_INVAL, "%d steps of a chunk are to be executed, expected 0 to %d",
                    cfg->execute, CHUNK_STEPS_MAX);
    if (cfg->ensemble != CHUNK_NEWEST && cfg->execute == 0)
        return FAIL(ST_INVAL, "an ensemble of chunks needs chunks that overlap: say how many steps "
                              "are executed of each");
    c = mem_alloc(1, sizeof *c);
    if (!c)
        return ST_NOMEM;
    c->cfg = *cfg;
    // as many as can have an action for one step
    c->n_max =
        cfg->ensemble == CHUNK_NEWEST ? 1 : (CHUNK_STEPS_MAX + cfg->execute - 1) / cfg->execute;
    c->pieces = mem_alloc((size_t)c->n_max, sizeof c->pieces[0]);
    for (i = 0; c->pieces && i < c->n_max; i++) {
        c->pieces[i].actions =
            mem_alloc((size_t)CHUNK_STEPS_MAX * (size_t)cfg->n_act, sizeof(float));
        if (!c->pieces[i].actions)
            break;
    }
    if (!c->pieces || i < c->n_max) {
        chunk_destroy(c);
        return ST_NOMEM;
    }
    *out = c;
    return ST_OK;
}

void chunk_destroy(struct chunk *c)
{
    int i;

    if (!c)
        return;
    for (i = 0; c->pieces && i < c->n_max; i++)
        mem_free(c->pieces[i].actions);
    mem_free(c->pieces);
    mem_free(c);
}

void chunk_reset(struct chunk *c)
{
    c->n_piece = 0;
    c->next = 0;
}

bool chunk_wanted(const struct chunk *c, uint64_t step)
{
    return step >= c->next;
}

// Room for one more: pieces without an action for `step` go, else the oldest.
static struct piece *make_room(struct chunk *c, uint64_t step)
{
    while (c->n_piece > 0 &&
           (c->n_piece == c->n_max || c->pieces[0].step + (uint64_t)c->pieces[0].n <= step)) {
        struct piece first = c->pieces[0];

        memmove(c->pieces, c->pieces + 1, (size_t)(c->n_piece - 1) * sizeof first);
        c->pieces[--c->n_piece] = first;
    }
    return &c->pieces[c->n_piece++];
}

enum status chunk_add(struct chunk *c, uint64_t step, const float *actions, int n)
{
    int execute = c->cfg.execute ? c->cfg.execute : n;
    struct piece *p;

    if (n < 1 || n < execute)
        return FAIL(ST_INVAL, "the policy gave a chunk of %d actions, %d are to be executed", n,
                    execute);
    n = n < CHUNK_STEPS_MAX ? n : CHUNK_STEPS_MAX;
    execute = execute < n ? execute : n;
    p = make_room(c, step);
    p->step = step;
    p->n = n;
    memcpy(p->actions, actions, (size_t)n * (size_t)c->cfg.n_act * sizeof actions[0]);
    c->next = step + (uint64_t)execute;
    return ST_OK;
}

static const float *action_of(const struct chunk *c, int i, uint64_t step)
{
    const struct piece *p = &c->pieces[i];

    if (step < p->step || step >= p->step + (uint64_t)p->n)
        return NULL;
    return p->actions + (size_t)(step - p->step) * (size_t)c->cfg.n_act;
}

void chunk_act(const struct chunk *c, uint64_t step, float *action)
{
    int n_act = c->cfg.n_act, i, k, age = 0;
    double sum[CHUNK_ACT_MAX] = {0}, total = 0;

    if (c->cfg.ensemble == CHUNK_NEWEST) {
        memcpy(action, action_of(c, 0, step), (size_t)n_act * sizeof action[0]);
        return;
    }
    for (i = 0; i < c->n_piece; i++) {
        const float *a = action_of(c, i, step);
        double w = 1;

        if (!a)
            continue;
        if (c->cfg.ensemble == CHUNK_ACT)
            w = exp(-c->cfg.a * age);
        if (c->cfg.ensemble == CHUNK_EMA && age > 0) {
            for (k = 0; k < n_act; k++)
                sum[k] = c->cfg.a * a[k] + (1 - c->cfg.a) * sum[k];
        } else {
            for (k = 0; k < n_act; k++)
                sum[k] += w * a[k];
            total += w;
        }
        age++;
    }
    for (k = 0; k < n_act; k++)
        action[k] = (float)(sum[k] / total);
}
