#include "learner/actor_vla.h"

#include "common/base/mem.h"
#include "nn/heads.h"
#include "nn/tokenizer.h"
#include "nn/vla.h"
#include "nn/vla_policy.h"

#include <math.h>
#include <string.h>

// Tokens of an instruction that was met.
struct words {
    char *text;
    int32_t *ids;
    int n;
    struct words *next;
};

struct actor_vla {
    struct vla_about *about;
    struct vla_net net;
    struct tokenizer *tokenizer;
    struct vla_work *work;
    struct vla_batch batch; // of the last forward pass
    struct words *words;
    int rows;      // of a pass
    int room_text; // tokens of the longest instruction that the workspace has room for
    int64_t bytes;
    int *cu_image, *cu_text, *camera, *text; // (rows + 1) twice, (rows, cameras), (rows, room_text)
    const uint8_t **image;                   // (rows, cameras)
    float *state;                            // (rows, VLA_STATE)
    float *mean, *grad;                      // (rows, width)
    float *value, *value_grad;               // (rows)
    // of a flow: where its steps begin (rows, width), their times and numbers
    float *noisy;
    double *time; // (rows)
    int *step;    // (rows)
};

static enum status build(struct actor_vla *a, const struct weights *w, int64_t budget)
{
    const struct vla_config *c = &w->vla->model;
    const size_t width = (size_t)(c->chunk * c->action), n_camera = (size_t)w->vla->input.n_camera;
    // an instruction of a task's longest line has fewer tokens than bytes; most have far fewer
    const int usual = vla_tokens(c, (int)n_camera, 64);
    size_t rows;

    if (budget < usual)
        return FAIL(ST_INVAL, "a decision has about %d tokens, the budget of a pass is %lld", usual,
                    (long long)budget);
    a->rows = (int)(budget / usual);
    rows = (size_t)a->rows;
    TRY(vla_about_copy(&a->about, w->vla));
    TRY(tokenizer_parse(&a->tokenizer, w->vla->vocabulary, w->vla->n_vocabulary, "vocabulary"));
    TRY(vla_net_init(&a->net, c, NULL));
    a->cu_image = mem_alloc(2 * (rows + 1) + rows * n_camera, sizeof a->cu_image[0]);
    a->image = mem_alloc(rows * n_camera, sizeof a->image[0]);
    a->state = mem_alloc(rows * (VLA_STATE + 2 * width + 2), sizeof a->state[0]);
    a->noisy = mem_alloc(rows * width, sizeof a->noisy[0]);
    a->time = mem_alloc(rows, sizeof a->time[0]);
    a->step = mem_alloc(rows, sizeof a->step[0]);
    if (!a->cu_image || !a->image || !a->state || !a->noisy || !a->time || !a->step)
        return ST_NOMEM;
    a->cu_text = a->cu_image + rows + 1;
    a->camera = a->cu_text + rows + 1;
    a->mean = a->state + rows * VLA_STATE;
    a->grad = a->mean + rows * width;
    a->value = a->grad + rows * width;
    a->value_grad = a->value + rows;
    return ST_OK;
}

enum status actor_vla_create(struct actor_vla **out, const struct weights *w, int64_t budget)
{
    struct actor_vla *a = mem_alloc(1, sizeof *a);
    enum status st;

    if (!a)
        return ST_NOMEM;
    st = build(a, w, budget);
    if (st != ST_OK) {
        actor_vla_destroy(a);
        return st;
    }
    *out = a;
    return ST_OK;
}

void actor_vla_destroy(struct actor_vla *a)
{
    if (!a)
        return;
    while (a->words) {
        struct words *w = a->words;

        a->words = w->next;
        mem_free(w->text);
        mem_free(w->ids);
        mem_free(w);
    }
    vla_work_destroy(a->work);
    vla_net_fini(&a->net);
    tokenizer_destroy(a->tokenizer);
    vla_about_destroy(a->about);
    mem_free(a->cu_image);
    mem_free(a->image);
    mem_free(a->text);
    mem_free(a->state);
    mem_free(a->noisy);
    mem_free(a->time);
    mem_free(a->step);
    mem_free(a);
}

int actor_vla_rows(const struct actor_vla *a)
{
    return a->rows;
}

int actor_vla_latent(const struct actor_vla *a)
{
    return vla_policy_latent(&a->about->model);
}

int64_t actor_vla_params(const struct actor_vla *a)
{
    return a->net.t.n_param;
}

int64_t actor_vla_log_std_at(const struct actor_vla *a)
{
    return a->net.t.log_std;
}

int64_t actor_vla_bytes(const struct actor_vla *a)
{
    return a->bytes;
}

void actor_vla_use(struct actor_vla *a, const float *params)
{
    a->net.params = params;
}

static enum status find_words(struct actor_vla *a, const char *text, const struct words **out)
{
    struct words *w;
    size_t n = strlen(text);
    enum status st = ST_NOMEM;

    for (w = a->words; w; w = w->next)
        if (strcmp(w->text, text) == 0) {
            *out = w;
            return ST_OK;
        }
    w = mem_alloc(1, sizeof *w);
    if (!w)
        return ST_NOMEM;
    w->text = mem_strdup(text);
    w->ids = mem_alloc(n + 1, sizeof w->ids[0]);
    if (w->text && w->ids)
        st = tokenizer_encode(a->tokenizer, text, n, w->ids, (int)n, &w->n);
    if (st != ST_OK) {
        mem_free(w->text);
        mem_free(w->ids);
        mem_free(w);
        return st;
    }
    w->next = a->words;
    a->words = w;
    *out = w;
    return ST_OK;
}

// A workspace with room for instructions of n_text tokens.
static enum status make_room(struct actor_vla *a, int n_text)
{
    struct vla_room room = {.seqs = a->rows,
                            .images = a->rows * a->about->input.n_camera,
                            .texts = a->rows * n_text,
                            .backward = true};

    if (a->work && n_text <= a->room_text)
        return ST_OK;
    vla_work_destroy(a->work);
    mem_free(a->text);
    a->work = NULL;
    a->room_text = 0;
    a->text = mem_alloc((size_t)room.texts, sizeof a->text[0]);
    if (!a->text)
        return ST_NOMEM;
    TRY(vla_work_create(&a->work, &a->net, &room));
    a->room_text = n_text;
    a->bytes = vla_work_bytes(&a->about->model, &room);
    return ST_OK;
}

static enum status add_row(struct actor_vla *a, int i, const struct actor_row *row)
{
    const struct vla_input *in = &a->about->input;
    const int64_t side = a->about->model.image;
    const struct words *words;
    double state[VLA_STATE];

    TRY(find_words(a, row->instruction, &words));
    for (int k = 0; k < VLA_STATE; k++)
        state[k] = (double)row->obs[k];
    vla_input_state(in, state, a->state + (size_t)i * VLA_STATE);
    for (int k = 0; k < in->n_camera; k++) {
        a->image[a->cu_image[i] + k] = row->pictures + k * VLA_RGB * side * side;
        a->camera[a->cu_image[i] + k] = k;
    }
    a->cu_image[i + 1] = a->cu_image[i] + in->n_camera;
    for (int k = 0; k < words->n; k++)
        a->text[a->cu_text[i] + k] = words->ids[k];
    a->cu_text[i + 1] = a->cu_text[i] + words->n;
    return ST_OK;
}

static bool is_flow(const struct actor_vla *a)
{
    return a->about->model.head == VLA_FLOW;
}

static int width_of(const struct actor_vla *a)
{
    return (int)(a->about->model.chunk * a->about->model.action);
}

// Where the step of row i began, and which it was.
static enum status add_latent(struct actor_vla *a, int i, const float *latent)
{
    const int width = width_of(a), steps = (int)a->about->model.steps;
    const float step = latent ? latent[width] : -1;

    if (!(step >= 0 && step < (float)steps) || step != floorf(step))
        return FAIL(ST_INVAL, "decision %d: the flow's step is %g, expected 0 to %d", i,
                    (double)step, steps - 1);
    a->step[i] = (int)step;
    a->time[i] = heads_flow_step(a->step[i], steps).t;
    memcpy(a->noisy + (ptrdiff_t)i * width, latent, (size_t)width * sizeof *latent);
    return ST_OK;
}

static void steps_of_row(const struct actor_vla *a, int i, struct heads_flow *f)
{
    heads_flow_levels(a->step[i], (int)a->about->model.steps, (int)a->about->model.action,
                      a->net.params + a->net.t.log_std, f);
}

// Velocities become means, in units of each step's standard deviation.
static void means_of_flow(struct actor_vla *a, int n)
{
    const int width = width_of(a), n_act = (int)a->about->model.action;
    struct heads_flow f[SPEC_ACT_MAX];

    for (int i = 0; i < n; i++) {
        float *v = a->mean + (ptrdiff_t)i * width;

        steps_of_row(a, i, f);
        heads_flow_unit(f, n_act, width, a->noisy + (ptrdiff_t)i * width, v, v);
    }
}

enum status actor_vla_forward(struct actor_vla *a, const struct actor_row *rows, int n,
                              const float **mean)
{
    const struct words *words;
    int longest = 1;

    if (n < 1 || n > a->rows)
        return FAIL(ST_INVAL, "%d decisions in one pass, expected 1 to %d", n, a->rows);
    for (int i = 0; i < n; i++) {
        if (!rows[i].pictures && a->about->input.n_camera > 0)
            return FAIL(ST_INVAL, "decision %d has no pictures", i);
        TRY(find_words(a, rows[i].instruction, &words));
        longest = words->n > longest ? words->n : longest;
    }
    TRY(make_room(a, longest));
    for (int i = 0; i < n; i++)
        TRY(add_row(a, i, &rows[i]));
    for (int i = 0; i < n && is_flow(a); i++)
        TRY(add_latent(a, i, rows[i].latent));
    a->batch = (struct vla_batch){.n_seq = n,
                                  .cu_image = a->cu_image,
                                  .image = a->image,
                                  .camera = a->camera,
                                  .cu_text = a->cu_text,
                                  .text = a->text,
                                  .state = a->state,
                                  .noisy = a->noisy,
                                  .time = a->time};
    TRY(vla_forward(&a->net, a->work, &a->batch, a->mean, a->value));
    if (is_flow(a))
        means_of_flow(a, n);
    *mean = a->mean;
    return ST_OK;
}

float *actor_vla_mean_grad(struct actor_vla *a)
{
    return a->grad;
}

const float *actor_vla_value(const struct actor_vla *a)
{
    return a->value;
}

float *actor_vla_value_grad(struct actor_vla *a)
{
    return a->value_grad;
}

int64_t actor_vla_value_at(const struct actor_vla *a)
{
    return a->net.t.value;
}

int actor_vla_value_cols(const struct actor_vla *a)
{
    return (int)a->about->model.expert_width;
}

void actor_vla_backward(struct actor_vla *a, bool critic, float *grad)
{
    struct heads_flow f[SPEC_ACT_MAX];

    for (int i = 0; i < a->batch.n_seq && is_flow(a); i++) {
        float *d = a->grad + (ptrdiff_t)i * width_of(a);

        steps_of_row(a, i, f);
        heads_flow_unit_backward(f, (int)a->about->model.action, width_of(a), d, d);
    }
    vla_backward(&a->net, a->work, &a->batch, a->grad, critic ? a->value_grad : NULL, grad);
}
