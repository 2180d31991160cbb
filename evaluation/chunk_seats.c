#include "evaluation/chunk_seats.h"

#include "common/base/mem.h"
#include "evaluation/chunk.h"
#include "rollout/framestack.h"

#include <stdio.h>
#include <string.h>

struct chunk_seats {
    struct vla_about *about; // NULL: a perceptron
    struct vla_view view;
    uint32_t picture_at[SPEC_PICTURE_MAX]; // a perceptron's pictures in the block of a row
    int n_view;                            // pictures that a row is seen with
    char instruction[SPEC_TEXT_MAX];
    int n_env, n_act, n_chunk;
    size_t picture_bytes;
    struct policy *policy;
    struct chunk **chunks;    // (n_env)
    struct policy_row *asked; // (n_env) rows that need a new chunk
    int *of;                  // (n_env) which of the given rows each is
    double *state;            // (n_env, VLA_STATE); not of a perceptron
    uint8_t *picture;         // (n_env, n_view, picture_bytes); not of a perceptron
    const uint8_t **pictures; // (n_env, n_view)
    float *actions;           // (n_env, n_chunk, n_act)
};

bool chunk_seats_wanted(const struct weights *w, const struct spec *spec)
{
    return w->vla || (w->shape.n_act > spec->n_act && w->shape.n_act % spec->n_act == 0);
}

static enum status see_as_vla(struct chunk_seats *s, const struct vla_about *about,
                              const struct spec *spec)
{
    const struct vla_config *c = &about->model;
    const size_t n = (size_t)s->n_env;

    s->n_act = (int)c->action;
    s->n_chunk = (int)c->chunk;
    s->n_view = (int)c->cameras;
    s->picture_bytes = (size_t)(VLA_RGB * c->image * c->image);
    snprintf(s->instruction, sizeof s->instruction, "%s", spec->instruction);
    TRY(vla_about_copy(&s->about, about));
    TRY(vla_view_init(&s->view, &s->about->input, (int)c->image, spec));
    s->state = mem_alloc(n * VLA_STATE, sizeof s->state[0]);
    s->picture = mem_alloc(n * (size_t)s->n_view, s->picture_bytes);
    return s->state && s->picture ? ST_OK : ST_NOMEM;
}

static enum status wrong_number(const struct weights *w)
{
    return FAIL(ST_INVAL, "the policy sees %d pictures, and names '%s'", w->shape.vision.stack,
                w->picture);
}

// The weights name its pictures, with commas between.
static enum status see_as_perceptron(struct chunk_seats *s, const struct weights *w,
                                     const struct spec *spec)
{
    const struct model_vision *v = &w->shape.vision;
    char names[sizeof w->picture], *rest = names;

    s->n_act = spec->n_act;
    s->n_chunk = w->shape.n_act / spec->n_act;
    memcpy(names, w->picture, sizeof names);
    for (char *name; v->n_conv > 0 && (name = strsep(&rest, ",")); s->n_view++) {
        const struct spec_picture *p;

        if (s->n_view == v->stack)
            return wrong_number(w);
        TRY(framestack_choose(spec, name, &p));
        if ((int)p->width != v->width || (int)p->height != v->height)
            return FAIL(ST_INVAL, "the policy sees %s in %d by %d, %s draws it in %u by %u", name,
                        v->width, v->height, spec->task, p->width, p->height);
        s->picture_at[s->n_view] = p->offset;
    }
    if (v->n_conv > 0 && s->n_view < v->stack)
        return wrong_number(w);
    return ST_OK;
}

static enum status build(struct chunk_seats *s, const struct weights *w, const struct spec *spec,
                         int64_t execute)
{
    size_t n = (size_t)s->n_env;

    TRY(w->vla ? see_as_vla(s, w->vla, spec) : see_as_perceptron(s, w, spec));
    if (execute > s->n_chunk)
        return FAIL(ST_INVAL, "%lld actions of a chunk are to be executed, the policy's have %d",
                    (long long)execute, s->n_chunk);
    TRY(policy_create_of(&s->policy, w, s->n_env));
    s->chunks = mem_alloc(n, sizeof s->chunks[0]);
    s->asked = mem_alloc(n, sizeof s->asked[0]);
    s->of = mem_alloc(n, sizeof s->of[0]);
    s->pictures = mem_alloc(n * (size_t)(s->n_view + 1), sizeof s->pictures[0]); // never empty
    s->actions = mem_alloc(n * (size_t)(s->n_chunk * s->n_act), sizeof s->actions[0]);
    if (!s->chunks || !s->asked || !s->of || !s->pictures || !s->actions)
        return ST_NOMEM;
    for (int i = 0; i < s->n_env; i++) {
        struct chunk_config cfg = {.n_act = s->n_act, .execute = (int)execute};

        TRY(chunk_create(&s->chunks[i], &cfg));
    }
    return ST_OK;
}

enum status chunk_seats_create(struct chunk_seats **out, const struct weights *w,
                               const struct spec *spec, int n_env, int64_t execute)
{
    struct chunk_seats *s = mem_alloc(1, sizeof *s);
    enum status st;

    if (!s)
        return ST_NOMEM;
    s->n_env = n_env;
    st = build(s, w, spec, execute);
    if (st != ST_OK) {
        chunk_seats_destroy(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void chunk_seats_destroy(struct chunk_seats *s)
{
    if (!s)
        return;
    for (int i = 0; s->chunks && i < s->n_env; i++)
        chunk_destroy(s->chunks[i]);
    policy_destroy(s->policy);
    vla_about_destroy(s->about);
    mem_free(s->chunks);
    mem_free(s->asked);
    mem_free(s->of);
    mem_free(s->state);
    mem_free(s->picture);
    mem_free(s->pictures);
    mem_free(s->actions);
    mem_free(s);
}

// Row `k` of those that ask, from what the server sent.
static void ask(struct chunk_seats *s, int k, const struct chunk_seat_row *from)
{
    const uint8_t **seen = s->pictures + (size_t)(k * s->n_view);

    s->asked[k] = from->row;
    s->asked[k].pictures = s->n_view > 0 ? seen : NULL;
    if (!s->about) {
        for (int c = 0; c < s->n_view; c++)
            seen[c] = from->block + s->picture_at[c];
        return;
    }
    s->asked[k].obs = s->state + (size_t)k * VLA_STATE;
    s->asked[k].instruction = s->instruction;
    vla_view_state(&s->view, from->row.obs, s->state + (size_t)k * VLA_STATE);
    for (int c = 0; c < s->n_view; c++) {
        uint8_t *picture = s->picture + (size_t)(k * s->n_view + c) * s->picture_bytes;

        vla_view_picture(&s->view, c, from->block, picture);
        seen[c] = picture;
    }
}

enum status chunk_seats_act(struct chunk_seats *s, const struct weights *w,
                            const struct chunk_seat_row *rows, int n, bool greedy, float *actions)
{
    int n_asked = 0;

    for (int i = 0; i < n; i++) {
        struct chunk *c = s->chunks[rows[i].env];

        if (rows[i].row.step == 0)
            chunk_reset(c);
        if (!chunk_wanted(c, rows[i].row.step))
            continue;
        ask(s, n_asked, &rows[i]);
        s->of[n_asked++] = i;
    }
    TRY(policy_act(s->policy, w, s->asked, n_asked, greedy, s->actions, NULL));
    for (int k = 0; k < n_asked; k++)
        TRY(chunk_add(s->chunks[rows[s->of[k]].env], rows[s->of[k]].row.step,
                      s->actions + (size_t)k * (size_t)(s->n_chunk * s->n_act), s->n_chunk));
    for (int i = 0; i < n; i++)
        chunk_act(s->chunks[rows[i].env], rows[i].row.step, actions + (size_t)i * (size_t)s->n_act);
    return ST_OK;
}
