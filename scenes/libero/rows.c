// What is kept of a LIBERO world between two requests, besides the engine's state: the controller,
// where the episode has put fixtures, what its stoves show, counters, the random reset's cursor and
// what the expert has in mind. The observation is not: it is sampled within every step.
#include "scenes/libero/libero.h"

#include <math.h>
#include <string.h>

// What begins it; poses of fixtures and alphas of burners follow, then cursor and expert if the
// settings need them.
struct kept_head {
    struct osc osc;
    int64_t clipped;
    int32_t n_forced, init_row;
    uint64_t success;
};

_Static_assert(sizeof(struct kept_head) % 8 == 0, "doubles follow");
_Static_assert(sizeof(struct reset_cursor) % 8 == 0, "the expert follows");

static const struct libero *shared(const struct scene *scene)
{
    return scene->data;
}

static int n_fixture(const struct scene *scene)
{
    return shared(scene)->binding.n_item - shared(scene)->binding.n_movable;
}

// Only LIBERO's own resets depend on those before.
static bool has_cursor(const struct scene *scene)
{
    return ((const struct libero_params *)scene->params)->compat == COMPAT_LIBERO;
}

static bool has_expert(const struct scene *scene)
{
    return ((const struct libero_params *)scene->params)->expert;
}

void libero_base_view(struct world *w)
{
    struct libero_world *lw = w->scratch;
    const mjModel *m = w->scene->model;
    int i;

    lw->view = *m;
    lw->view.body_pos = lw->body_pos;
    lw->view.body_quat = lw->body_quat;
    lw->view.site_rgba = lw->site_rgba;
    w->model = &lw->view;
    mju_copy(lw->body_pos, m->body_pos, 3 * (int)m->nbody);
    mju_copy(lw->body_quat, m->body_quat, 4 * (int)m->nbody);
    memcpy(lw->site_rgba, m->site_rgba, (size_t)m->nsite * 4 * sizeof(float));
    for (i = 0; i < m->nsite; i++)
        if (lw->site_rgba[4 * i + 3] > 0)
            lw->site_rgba[4 * i + 3] = -lw->site_rgba[4 * i + 3];
}

static size_t numbers(const struct scene *scene)
{
    return (size_t)n_fixture(scene) * 7 + (size_t)shared(scene)->n_burner;
}

size_t libero_kept_bytes(const struct scene *scene)
{
    return sizeof(struct kept_head) + numbers(scene) * sizeof(double) +
           (has_cursor(scene) ? sizeof(struct reset_cursor) : 0) +
           (has_expert(scene) ? EXPERT_KEPT_BYTES : 0);
}

void libero_save(const struct world *w, void *kept)
{
    const struct libero *l = shared(w->scene);
    const struct libero_world *lw = w->scratch;
    struct kept_head head;
    double *x = (double *)((char *)kept + sizeof head);
    int i;

    memset(&head, 0, sizeof head);
    head.osc = lw->osc;
    head.clipped = lw->clipped;
    head.n_forced = lw->n_forced;
    head.init_row = lw->init_row;
    head.success = lw->success;
    memcpy(kept, &head, sizeof head);
    for (i = l->binding.n_movable; i < l->binding.n_item; i++, x += 7) {
        mju_copy3(x, lw->body_pos + 3 * l->binding.items[i].body);
        mju_copy4(x + 3, lw->body_quat + 4 * l->binding.items[i].body);
    }
    for (i = 0; i < l->n_burner; i++)
        *x++ = (double)lw->site_rgba[4 * l->burner_site[i] + 3];
    if (has_cursor(w->scene)) {
        memcpy(x, &lw->cursor, sizeof lw->cursor);
        x += sizeof lw->cursor / sizeof *x;
    }
    if (has_expert(w->scene))
        expert_save(&lw->expert, x);
}

void libero_load(struct world *w, const void *kept)
{
    const struct libero *l = shared(w->scene);
    struct libero_world *lw = w->scratch;
    struct kept_head head;
    const double *x = (const double *)((const char *)kept + sizeof head);
    struct expert_view v = {&l->hand, &l->binding, &l->goal, w->scene->model, w->d};
    int i;

    libero_base_view(w);
    memcpy(&head, kept, sizeof head);
    lw->osc = head.osc;
    lw->clipped = head.clipped;
    lw->n_forced = head.n_forced;
    lw->init_row = head.init_row;
    lw->success = head.success != 0;
    for (i = l->binding.n_movable; i < l->binding.n_item; i++, x += 7) {
        mju_copy3(lw->body_pos + 3 * l->binding.items[i].body, x);
        mju_copy4(lw->body_quat + 4 * l->binding.items[i].body, x + 3);
    }
    for (i = 0; i < l->n_burner; i++)
        lw->site_rgba[4 * l->burner_site[i] + 3] = (float)*x++;
    if (has_cursor(w->scene)) {
        memcpy(&lw->cursor, x, sizeof lw->cursor);
        x += sizeof lw->cursor / sizeof *x;
    }
    if (has_expert(w->scene))
        expert_load(&lw->expert, &v, x);
}

// A bool whose byte is neither 0 nor 1 must not be read as one.
static bool is_flag(const void *kept, size_t at)
{
    return ((const uint8_t *)kept)[at] <= 1;
}

#define CURSOR_FLAG(field) is_flag(bytes, offsetof(struct reset_cursor, field))

// Zeroes are the one state that the generator never leaves, and no normal number comes of it.
static bool is_stuck(const struct np_random *r)
{
    uint32_t bits = r->mt[0] & 0x80000000u;
    size_t i;

    for (i = 1; i < sizeof r->mt / sizeof r->mt[0]; i++)
        bits |= r->mt[i];
    return bits == 0;
}

// So that the next reset neither reads beside the generator's numbers nor takes for ever.
static bool check_cursor(const void *bytes)
{
    struct reset_cursor c;

    if (!CURSOR_FLAG(started) || !CURSOR_FLAG(rng.has_normal))
        return false;
    memcpy(&c, bytes, sizeof c);
    return !is_stuck(&c.rng) && c.rng.used >= 0 &&
           c.rng.used <= (int)(sizeof c.rng.mt / sizeof c.rng.mt[0]) && c.next <= LIBERO_EPISODES &&
           c.loads <= 1 + RESET_RESTARTS * c.next && isfinite(c.rng.normal);
}

enum status libero_check(const struct scene *scene, const void *kept)
{
    const char *at = (const char *)kept + sizeof(struct kept_head);
    struct kept_head head;
    size_t i;

    if (!is_flag(kept, offsetof(struct kept_head, osc.refresh_due)))
        return FAIL(ST_PROTO, "the controller's part of the state makes no sense");
    memcpy(&head, kept, sizeof head);
    if (head.n_forced < 0 || head.n_forced > LIBERO_SUBSTEPS + 1 || head.init_row < -1 ||
        head.success > 1 || head.clipped < 0 || head.clipped > 1000000000000)
        return FAIL(ST_PROTO, "the counters of the state make no sense");
    for (i = 0; i < numbers(scene); i++, at += sizeof(double))
        if (!isfinite(*(const double *)(const void *)at))
            return FAIL(ST_PROTO, "a pose of a fixture in the state is not finite");
    if (has_cursor(scene)) {
        if (!check_cursor(at))
            return FAIL(ST_PROTO, "the reset's part of the state makes no sense");
        at += sizeof(struct reset_cursor);
    }
    return has_expert(scene) ? expert_check(&shared(scene)->goal, at) : ST_OK;
}
