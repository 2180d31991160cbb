#include "nn/vla_policy.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "nn/tokenizer.h"
#include "nn/vla.h"

#include <math.h>
#include <string.h>

#define PASS_ROWS 8 // rows of one pass

struct vla_policy {
    struct vla_about *about;
    struct vla_net net;
    struct tokenizer *tokenizer;
    struct vla_work *work; // with room for `room_text` tokens of a row
    int room_text;
    char *instruction; // whose tokens `ids` are
    int32_t *ids;      // (n_id)
    int n_id;
    int cu_image[PASS_ROWS + 1], cu_text[PASS_ROWS + 1];
    const uint8_t *image[PASS_ROWS * VLA_CAMERAS_MAX];
    int camera[PASS_ROWS * VLA_CAMERAS_MAX];
    float state[PASS_ROWS * VLA_STATE];
    int *text;                     // (PASS_ROWS, room_text)
    float *mean, value[PASS_ROWS]; // (PASS_ROWS, chunk, action)
    double std[SPEC_ACT_MAX], log_std[SPEC_ACT_MAX];
};

static enum status build(struct vla_policy *p, const struct weights *w)
{
    const struct vla_config *c = &w->vla->model;

    TRY(vla_about_copy(&p->about, w->vla));
    TRY(tokenizer_parse(&p->tokenizer, w->vla->vocabulary, w->vla->n_vocabulary, "vocabulary"));
    p->mean = mem_alloc(PASS_ROWS * (size_t)(c->chunk * c->action), sizeof p->mean[0]);
    if (!p->mean)
        return ST_NOMEM;
    return vla_net_init(&p->net, c, w->params);
}

enum status vla_policy_create(struct vla_policy **out, const struct weights *w)
{
    struct vla_policy *p = mem_alloc(1, sizeof *p);
    enum status st;

    if (!p)
        return ST_NOMEM;
    st = build(p, w);
    if (st != ST_OK) {
        vla_policy_destroy(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void vla_policy_destroy(struct vla_policy *p)
{
    if (!p)
        return;
    vla_work_destroy(p->work);
    vla_net_fini(&p->net);
    tokenizer_destroy(p->tokenizer);
    vla_about_destroy(p->about);
    mem_free(p->instruction);
    mem_free(p->ids);
    mem_free(p->text);
    mem_free(p->mean);
    mem_free(p);
}

// Tokens of an instruction; the last one is remembered.
static enum status encode(struct vla_policy *p, const char *instruction)
{
    size_t n = strlen(instruction);
    char *copy;
    int32_t *ids;
    int n_id;
    enum status st;

    if (p->instruction && strcmp(p->instruction, instruction) == 0)
        return ST_OK;
    copy = mem_strdup(instruction);
    ids = mem_alloc(n + 1, sizeof ids[0]);
    st =
        copy && ids ? tokenizer_encode(p->tokenizer, instruction, n, ids, (int)n, &n_id) : ST_NOMEM;
    if (st != ST_OK) {
        mem_free(copy);
        mem_free(ids);
        return st;
    }
    mem_free(p->instruction);
    mem_free(p->ids);
    p->instruction = copy;
    p->ids = ids;
    p->n_id = n_id;
    return ST_OK;
}

// A workspace with room for instructions of `n_text` tokens.
static enum status make_room(struct vla_policy *p, int n_text)
{
    struct vla_room room = {.seqs = PASS_ROWS,
                            .images = PASS_ROWS * p->about->input.n_camera,
                            .texts = PASS_ROWS * n_text};

    if (p->work && n_text <= p->room_text)
        return ST_OK;
    vla_work_destroy(p->work);
    mem_free(p->text);
    p->work = NULL;
    p->text = mem_alloc(PASS_ROWS * (size_t)n_text, sizeof p->text[0]);
    if (!p->text)
        return ST_NOMEM;
    p->room_text = n_text;
    return vla_work_create(&p->work, &p->net, &room);
}

static enum status add_row(struct vla_policy *p, int i, const struct policy_row *row)
{
    const struct vla_input *in = &p->about->input;
    int n_image = p->cu_image[i];
    float *state = p->state + (size_t)i * VLA_STATE;

    for (int k = 0; k < VLA_STATE; k++)
        if (!isfinite((float)row->obs[k]))
            return FAIL(ST_INVAL, "row %d: state %d is %g, expected a finite float32", i, k,
                        row->obs[k]);
    vla_input_state(in, row->obs, state);
    for (int k = 0; k < in->n_camera; k++)
        if (row->pictures && row->pictures[k]) {
            p->image[n_image] = row->pictures[k];
            p->camera[n_image++] = k;
        }
    p->cu_image[i + 1] = n_image;
    for (int k = 0; k < p->n_id; k++)
        p->text[p->cu_text[i] + k] = p->ids[k];
    p->cu_text[i + 1] = p->cu_text[i] + p->n_id;
    return ST_OK;
}

// The chunk of a row from its means.
static void sample(const struct vla_policy *p, const struct policy_row *row, const float *mean,
                   bool greedy, float *action, float *logp)
{
    const int chunk = (int)p->about->model.chunk, n_act = p->about->input.n_action;
    struct rng rng = rng_make(row->seed, RNG_ACTION, row->stream, row->episode, row->step);
    float scaled[SPEC_ACT_MAX];

    for (int j = 0; j < chunk; j++, mean += n_act, action += n_act) {
        double sum = 0;

        for (int d = 0; d < n_act; d++) {
            double z;

            scaled[d] = greedy ? mean[d] : (float)((double)mean[d] + p->std[d] * rng_normal(&rng));
            z = ((double)scaled[d] - mean[d]) / p->std[d];
            sum -= z * z / 2 + p->log_std[d] + log(2 * M_PI) / 2;
        }
        vla_input_unscale(&p->about->input, scaled, action);
        if (logp)
            logp[j] = (float)sum;
    }
}

static enum status pass(struct vla_policy *p, const struct policy_row *rows, int n)
{
    struct vla_batch batch = {.n_seq = n,
                              .cu_image = p->cu_image,
                              .image = p->image,
                              .camera = p->camera,
                              .cu_text = p->cu_text,
                              .state = p->state};
    int longest = 1;

    for (int i = 0; i < n; i++) {
        if (!rows[i].instruction)
            return FAIL(ST_INVAL, "row %d has no instruction", i);
        TRY(encode(p, rows[i].instruction));
        longest = p->n_id > longest ? p->n_id : longest;
    }
    TRY(make_room(p, longest));
    for (int i = 0; i < n; i++) {
        TRY(encode(p, rows[i].instruction));
        TRY(add_row(p, i, &rows[i]));
    }
    batch.text = p->text;
    return vla_forward(&p->net, p->work, &batch, p->mean, p->value);
}

enum status vla_policy_act(struct vla_policy *p, const struct weights *w,
                           const struct policy_row *rows, int n, bool greedy, float *action,
                           float *logp)
{
    const int chunk = (int)p->about->model.chunk, n_act = p->about->input.n_action;

    if (!w->vla || !vla_about_equal(w->vla, p->about))
        return FAIL(ST_INVAL, "weights of another model than the policy's");
    p->net.params = w->params;
    for (int d = 0; d < n_act; d++) {
        p->log_std[d] = w->params[p->net.t.log_std + d];
        p->std[d] = exp(p->log_std[d]);
    }
    for (int from = 0; from < n; from += PASS_ROWS) {
        int k = n - from < PASS_ROWS ? n - from : PASS_ROWS;

        TRY(pass(p, rows + from, k));
        for (int i = 0; i < k; i++)
            sample(p, &rows[from + i], p->mean + (size_t)i * (size_t)(chunk * n_act), greedy,
                   action + (size_t)(from + i) * (size_t)(chunk * n_act),
                   logp ? logp + (size_t)(from + i) * (size_t)chunk : NULL);
    }
    return ST_OK;
}

enum status vla_policy_means(struct vla_policy *p, const struct weights *w,
                             const struct policy_row *rows, int n, float *mean)
{
    const size_t width = (size_t)(p->about->model.chunk * p->about->model.action);

    if (!w->vla || !vla_about_equal(w->vla, p->about))
        return FAIL(ST_INVAL, "weights of another model than the policy's");
    p->net.params = w->params;
    for (int from = 0; from < n; from += PASS_ROWS) {
        int k = n - from < PASS_ROWS ? n - from : PASS_ROWS;

        TRY(pass(p, rows + from, k));
        memcpy(mean + (size_t)from * width, p->mean, (size_t)k * width * sizeof *mean);
    }
    return ST_OK;
}
