#include "rollout/framestack.h"

#include "common/base/mem.h"

#include <string.h>

enum status framestack_choose(const struct spec *spec, const char *name,
                              const struct spec_picture **out)
{
    const struct spec_picture *p = NULL;
    char list[1024];
    int i;

    if (name[0])
        p = spec_picture_find(spec, name);
    for (i = 0; !name[0] && !p && i < spec->n_picture; i++)
        if (spec->pictures[i].plane == SPEC_RGB)
            p = &spec->pictures[i];
    if (!p || p->plane != SPEC_RGB)
        return FAIL(ST_INVAL,
                    "the policy sees the picture '%s' in RGB, %s has the pictures: %s; the task's "
                    "keyword 'cameras' asks for them",
                    name[0] ? name : "of any name", spec->task,
                    spec_picture_list(spec, list, sizeof list));
    *out = p;
    return ST_OK;
}

bool framestack_same(const struct spec *a, const struct spec *b)
{
    for (int i = 0; i < a->n_picture && i < b->n_picture; i++) {
        const struct spec_picture *x = &a->pictures[i], *y = &b->pictures[i];

        if (strcmp(x->name, y->name) != 0 || x->plane != y->plane || x->width != y->width ||
            x->height != y->height || x->orient != y->orient)
            return false;
    }
    return a->n_picture == b->n_picture;
}

enum status framestack_init(struct framestack *f, const struct spec_picture *picture, int n_env,
                            int stack)
{
    size_t n = (size_t)n_env * (size_t)stack;

    *f = (struct framestack){
        .n_env = n_env, .stack = stack, .offset = picture->offset, .bytes = picture->bytes};
    f->memory = mem_alloc(n, f->bytes);
    f->picture = mem_alloc(n, sizeof f->picture[0]);
    if (!f->memory || !f->picture)
        return ST_NOMEM;
    for (size_t i = 0; i < n; i++)
        f->picture[i] = f->memory + i * f->bytes;
    return ST_OK;
}

void framestack_fini(struct framestack *f)
{
    mem_free(f->memory);
    mem_free(f->picture);
    *f = (struct framestack){0};
}

void framestack_push(struct framestack *f, int env, const uint8_t *block, bool first)
{
    const uint8_t **p, *oldest;
    int i;

    if (f->stack == 0)
        return;
    p = f->picture + (size_t)env * (size_t)f->stack;
    oldest = p[0];
    memmove(p, p + 1, (size_t)(f->stack - 1) * sizeof p[0]);
    p[f->stack - 1] = oldest;
    memcpy((uint8_t *)oldest, block + f->offset, f->bytes);
    for (i = 0; first && i < f->stack - 1; i++)
        memcpy((uint8_t *)p[i], oldest, f->bytes);
}
