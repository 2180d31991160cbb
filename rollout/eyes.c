#include "rollout/eyes.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

#define RGB 3

static enum status check_sizes(const struct eyes *e)
{
    char list[1024];

    for (int i = 1; i < e->n_shown; i++)
        if (e->view[i]->width != e->view[0]->width || e->view[i]->height != e->view[0]->height)
            return FAIL(ST_INVAL, "a policy sees pictures of one size, %s has the pictures: %s",
                        e->spec->task, spec_picture_list(e->spec, list, sizeof list));
    return ST_OK;
}

enum status eyes_init(struct eyes *e, const struct spec *spec, const struct hello *hello,
                      bool pixels)
{
    char list[1024];
    size_t at = 0;

    e->spec = spec;
    for (int i = 0; i < spec->n_picture && pixels; i++) {
        const struct spec_picture *p =
            hello->listed ? spec_picture_find(spec, hello->pictures[i].name) : &spec->pictures[i];

        if (p && p->plane == SPEC_RGB)
            e->view[e->n_shown++] = p;
    }
    if (pixels && e->n_shown == 0)
        return FAIL(ST_INVAL,
                    "the policy sees pictures in RGB, %s has the pictures: %s; the task's keyword "
                    "'cameras' asks for them",
                    spec->task, spec_picture_list(spec, list, sizeof list));
    TRY(check_sizes(e));
    for (int i = 0; i < e->n_shown; i++) {
        at += (size_t)snprintf(e->names + at, sizeof e->names - at, "%s%s", i ? "," : "",
                               e->view[i]->name);
        if (at >= sizeof e->names)
            return FAIL(ST_INVAL, "the names of the pictures are longer than %zu bytes: %s",
                        sizeof e->names - 1, spec_picture_list(spec, list, sizeof list));
    }
    return ST_OK;
}

void eyes_fini(struct eyes *e)
{
    mem_free(e->obs);
    mem_free(e->pictures);
    mem_free(e->seen);
    e->obs = NULL;
    e->pictures = NULL;
    e->seen = NULL;
}

static enum status see_as_perceptrons(struct eyes *e, const struct weights *w, int width)
{
    const struct model_shape *s = &w->shape;
    const struct spec_picture *first = e->n_shown > 0 ? e->view[0] : NULL;

    if (s->n_obs != e->spec->n_obs || s->n_act != width)
        return FAIL(ST_PROTO,
                    "the learner's policy takes %d observations and gives %d numbers, expected %d "
                    "and %d for %s",
                    s->n_obs, s->n_act, e->spec->n_obs, width, e->spec->task);
    if (strcmp(w->picture, e->names) != 0 || s->vision.stack != e->n_shown ||
        (first && ((uint32_t)s->vision.width != first->width ||
                   (uint32_t)s->vision.height != first->height)))
        return FAIL(ST_PROTO,
                    "the learner's policy sees the pictures '%s' of %d by %d, expected '%s'",
                    w->picture, s->vision.width, s->vision.height, e->names);
    e->n_obs = e->spec->n_obs;
    e->n_view = e->n_shown;
    e->picture_bytes = first ? (size_t)RGB * first->width * first->height : 0;
    return ST_OK;
}

static enum status see_as_vla(struct eyes *e, const struct vla_about *vla, int width)
{
    const struct vla_config *c = &vla->model;

    if (c->chunk * c->action != width)
        return FAIL(ST_INVAL,
                    "the policy's decisions are %lld actions of %lld numbers, expected %d numbers "
                    "(--action-chunk)",
                    (long long)c->chunk, (long long)c->action, width);
    TRY(vla_view_init(&e->vla_view, &vla->input, (int)c->image, e->spec));
    e->vla = true;
    e->n_obs = VLA_STATE;
    e->n_view = vla->input.n_camera;
    e->picture_bytes = (size_t)(RGB * c->image * c->image);
    return ST_OK;
}

enum status eyes_open(struct eyes *e, const struct weights *w, int n_env, int width)
{
    size_t views;

    TRY(w->vla ? see_as_vla(e, w->vla, width) : see_as_perceptrons(e, w, width));
    views = (size_t)n_env * (size_t)e->n_view;
    e->obs = mem_alloc((size_t)n_env * (size_t)e->n_obs, sizeof e->obs[0]);
    if (!e->obs)
        return ST_NOMEM;
    if (views == 0)
        return ST_OK;
    e->pictures = mem_alloc(views, e->picture_bytes);
    e->seen = mem_alloc(views, sizeof e->seen[0]);
    if (!e->pictures || !e->seen)
        return ST_NOMEM;
    for (size_t i = 0; i < views; i++)
        e->seen[i] = e->pictures + i * e->picture_bytes;
    return ST_OK;
}

void eyes_see(struct eyes *e, int env, const uint8_t *row, const struct row_layout *layout)
{
    const double *obs = (const double *)(row + layout->obs);
    double *to = e->obs + (size_t)env * (size_t)e->n_obs;
    const uint8_t *block = row + layout->pictures;

    if (e->vla)
        vla_view_state(&e->vla_view, obs, to);
    else
        memcpy(to, obs, (size_t)e->n_obs * sizeof *to);
    for (int i = 0; i < e->n_view; i++) {
        uint8_t *at = e->pictures + ((size_t)(env * e->n_view + i)) * e->picture_bytes;

        if (e->vla)
            vla_view_picture(&e->vla_view, i, block, at);
        else
            memcpy(at, block + e->view[i]->offset, e->picture_bytes);
    }
}

void eyes_row(const struct eyes *e, int env, struct policy_row *row)
{
    row->obs = e->obs + (size_t)env * (size_t)e->n_obs;
    row->pictures = e->n_view > 0 ? e->seen + (size_t)env * (size_t)e->n_view : NULL;
    row->instruction = e->spec->instruction;
}
