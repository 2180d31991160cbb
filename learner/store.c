#include "learner/store.h"

#include "common/base/mem.h"

#include <string.h>

void store_init(struct store *s, const struct model_shape *shape)
{
    memset(s, 0, sizeof *s);
    s->n_obs = shape->n_obs;
    s->n_act = shape->n_act;
    s->picture_bytes = model_picture_bytes(&shape->vision);
    s->stack = s->picture_bytes ? shape->vision.stack : 0;
}

void store_fini(struct store *s)
{
    mem_free(s->x);
    mem_free(s->action);
    mem_free(s->advantage);
    mem_free(s->ret);
    mem_free(s->logp_behaviour);
    mem_free(s->logp_ref);
    mem_free(s->weight);
    mem_free(s->picture);
    mem_free(s->pictures);
    memset(s, 0, sizeof *s);
}

static enum status grow(float **p, int64_t rows, int width)
{
    float *q = mem_resize(*p, (size_t)rows, (size_t)width * sizeof **p);

    if (!q)
        return ST_NOMEM;
    *p = q;
    return ST_OK;
}

enum status store_reserve(struct store *s, int64_t n)
{
    int64_t rows = s->n_max + s->n_max / 2;

    if (n <= s->n_max)
        return ST_OK;
    if (rows < n)
        rows = n;
    TRY(grow(&s->x, rows, REAL_LD(s->n_obs)));
    TRY(grow(&s->action, rows, s->n_act));
    TRY(grow(&s->advantage, rows, 1));
    TRY(grow(&s->ret, rows, 1));
    TRY(grow(&s->logp_behaviour, rows, 1));
    TRY(grow(&s->logp_ref, rows, 1));
    TRY(grow(&s->weight, rows, 1));
    if (s->stack > 0) {
        uint32_t *p = mem_resize(s->picture, (size_t)rows, (size_t)s->stack * sizeof *p);

        if (!p)
            return ST_NOMEM;
        s->picture = p;
    }
    s->n_max = rows;
    return ST_OK;
}

enum status store_reserve_pictures(struct store *s, int64_t n)
{
    int64_t rows = s->n_picture_max + s->n_picture_max / 2;
    uint8_t *p;

    if (n <= s->n_picture_max)
        return ST_OK;
    if (rows < n)
        rows = n;
    p = mem_resize(s->pictures, (size_t)rows, s->picture_bytes);
    if (!p)
        return ST_NOMEM;
    s->pictures = p;
    s->n_picture_max = rows;
    return ST_OK;
}

void store_copy(struct store *s, int64_t to, const struct store *other, int64_t from)
{
    size_t ld = (size_t)REAL_LD(s->n_obs), n_act = (size_t)s->n_act;

    memcpy(s->x + (size_t)to * ld, other->x + (size_t)from * ld, ld * sizeof *s->x);
    memcpy(s->action + (size_t)to * n_act, other->action + (size_t)from * n_act,
           n_act * sizeof *s->action);
    s->advantage[to] = other->advantage[from];
    s->ret[to] = other->ret[from];
    s->logp_behaviour[to] = other->logp_behaviour[from];
    s->logp_ref[to] = other->logp_ref[from];
    s->weight[to] = other->weight[from];
    if (s->stack > 0)
        memcpy(s->picture + to * s->stack, other->picture + from * s->stack,
               (size_t)s->stack * sizeof s->picture[0]);
}

struct samples store_view(const struct store *s, int64_t first, int n, const struct scales *scales,
                          const uint8_t *list, const struct view *to)
{
    const double adv_scale = 1 / scales->adv_std, ret_scale = 1 / scales->ret_std;

    for (int i = 0; i < n; i++) {
        to->advantage[i] =
            (float)(((double)s->advantage[first + i] - scales->adv_mean) * adv_scale);
        to->target[i] = (float)(((double)s->ret[first + i] - scales->ret_mean) * ret_scale);
    }
    for (int i = 0; i < n * s->stack; i++)
        to->pictures[i] = list + s->picture[first * s->stack + i] * s->picture_bytes;
    return (struct samples){
        .n = n,
        .x = s->x + first * REAL_LD(s->n_obs),
        .action = s->action + first * s->n_act,
        .pictures = to->pictures,
        .advantage = to->advantage,
        .target = to->target,
        .logp_behaviour = s->logp_behaviour + first,
        .weight = s->weight + first,
        .logp_ref = s->logp_ref + first,
    };
}
