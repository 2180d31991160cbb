#include "evaluation/vla_seats.h"

#include "common/base/mem.h"
#include "evaluation/chunk.h"

#include <stdio.h>
#include <string.h>

struct vla_seats {
    struct vla_about *about;
    struct vla_view view;
    char instruction[SPEC_TEXT_MAX];
    int n_env, n_act, n_chunk;
    size_t picture_bytes;
    struct policy *policy;
    struct chunk **chunks;    // (n_env)
    struct policy_row *asked; // (n_env) rows that need a new chunk
    int *of;                  // (n_env) which of the given rows each is
    double *state;            // (n_env, VLA_STATE)
    uint8_t *picture;         // (n_env, n_camera, picture_bytes)
    const uint8_t **pictures; // (n_env, n_camera)
    float *actions;           // (n_env, n_chunk, n_act)
};

static enum status build(struct vla_seats *s, const struct weights *w, const struct spec *spec,
                         int64_t execute)
{
    const struct vla_config *c = &w->vla->model;
    size_t n = (size_t)s->n_env, n_camera = (size_t)c->cameras;

    if (execute > c->chunk)
        return FAIL(ST_INVAL, "%lld actions of a chunk are to be executed, the policy's have %lld",
                    (long long)execute, (long long)c->chunk);
    s->n_act = (int)c->action;
    s->n_chunk = (int)c->chunk;
    s->picture_bytes = (size_t)(VLA_RGB * c->image * c->image);
    snprintf(s->instruction, sizeof s->instruction, "%s", spec->instruction);
    TRY(vla_about_copy(&s->about, w->vla));
    TRY(vla_view_init(&s->view, &s->about->input, (int)c->image, spec));
    TRY(policy_create_of(&s->policy, w, s->n_env));
    s->chunks = mem_alloc(n, sizeof s->chunks[0]);
    s->asked = mem_alloc(n, sizeof s->asked[0]);
    s->of = mem_alloc(n, sizeof s->of[0]);
    s->state = mem_alloc(n * VLA_STATE, sizeof s->state[0]);
    s->picture = mem_alloc(n * n_camera, s->picture_bytes);
    s->pictures = mem_alloc(n * n_camera, sizeof s->pictures[0]);
    s->actions = mem_alloc(n * (size_t)(s->n_chunk * s->n_act), sizeof s->actions[0]);
    if (!s->chunks || !s->asked || !s->of || !s->state || !s->picture || !s->pictures ||
        !s->actions)
        return ST_NOMEM;
    for (int i = 0; i < s->n_env; i++) {
        struct chunk_config cfg = {.n_act = s->n_act, .execute = (int)execute};

        TRY(chunk_create(&s->chunks[i], &cfg));
    }
    return ST_OK;
}

enum status vla_seats_create(struct vla_seats **out, const struct weights *w,
                             const struct spec *spec, int n_env, int64_t execute)
{
    struct vla_seats *s = mem_alloc(1, sizeof *s);
    enum status st;

    if (!s)
        return ST_NOMEM;
    s->n_env = n_env;
    st = build(s, w, spec, execute);
    if (st != ST_OK) {
        vla_seats_destroy(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void vla_seats_destroy(struct vla_seats *s)
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
static void ask(struct vla_seats *s, int k, const struct vla_seat_row *from)
{
    const int n_camera = s->about->input.n_camera;
    double *state = s->state + (size_t)k * VLA_STATE;

    s->asked[k] = from->row;
    vla_view_state(&s->view, from->row.obs, state);
    s->asked[k].obs = state;
    s->asked[k].instruction = s->instruction;
    s->asked[k].pictures = s->pictures + (size_t)(k * n_camera);
    for (int c = 0; c < n_camera; c++) {
        uint8_t *picture = s->picture + (size_t)(k * n_camera + c) * s->picture_bytes;

        vla_view_picture(&s->view, c, from->block, picture);
        s->pictures[k * n_camera + c] = picture;
    }
}

enum status vla_seats_act(struct vla_seats *s, const struct weights *w,
                          const struct vla_seat_row *rows, int n, bool greedy, float *actions)
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
