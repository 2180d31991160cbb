#include "nn/vla_policy.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "nn/heads.h"
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
    // of a pass, as struct policy_draw has them: (PASS_ROWS, chunk, action); latent has a number
    // more
    float *around, *drawn, *action, *latent;
    // of a flow: where it is; latent is where its stochastic step begins
    float *x; // (PASS_ROWS, chunk, action)
    double time[PASS_ROWS];
    struct rng rng[PASS_ROWS];
    int noisy_step[PASS_ROWS]; // number of the stochastic step, -1: none
};

static enum status build(struct vla_policy *p, const struct weights *w)
{
    const struct vla_config *c = &w->vla->model;
    const size_t n = PASS_ROWS * (size_t)(c->chunk * c->action);

    TRY(vla_about_copy(&p->about, w->vla));
    TRY(tokenizer_parse(&p->tokenizer, w->vla->vocabulary, w->vla->n_vocabulary, "vocabulary"));
    p->mean = mem_alloc(6 * n + PASS_ROWS, sizeof p->mean[0]);
    if (!p->mean)
        return ST_NOMEM;
    p->around = p->mean + n;
    p->drawn = p->around + n;
    p->action = p->drawn + n;
    p->x = p->action + n;
    p->latent = p->x + n;
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

// The first pass over n rows: means, or the velocity where a flow begins.
static enum status pass(struct vla_policy *p, const struct policy_row *rows, int n,
                        struct vla_batch *batch)
{
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
    *batch = (struct vla_batch){.n_seq = n,
                                .cu_image = p->cu_image,
                                .image = p->image,
                                .camera = p->camera,
                                .cu_text = p->cu_text,
                                .text = p->text,
                                .state = p->state,
                                .noisy = p->x,
                                .time = p->time};
    return vla_forward(&p->net, p->work, batch, p->mean, p->value);
}

static size_t width_of(const struct vla_policy *p)
{
    return (size_t)(p->about->model.chunk * p->about->model.action);
}

static struct rng rng_of(const struct policy_row *row)
{
    return rng_make(row->seed, RNG_ACTION, row->stream, row->episode, row->step);
}

// Around the means, which are p->mean.
static void sample(struct vla_policy *p, const struct policy_row *rows, int n, bool greedy)
{
    const size_t width = width_of(p), n_act = (size_t)p->about->model.action;

    for (int i = 0; i < n; i++) {
        const size_t end = ((size_t)i + 1) * width;
        struct rng rng = rng_of(&rows[i]);

        for (size_t k = (size_t)i * width; k < end; k++)
            p->drawn[k] = greedy
                              ? p->mean[k]
                              : (float)((double)p->mean[k] + p->std[k % n_act] * rng_normal(&rng));
    }
    memcpy(p->around, p->mean, (size_t)n * width * sizeof *p->around);
    memcpy(p->action, p->drawn, (size_t)n * width * sizeof *p->action);
}

// --- flow ---------------------------------------------------------------------------------------

static void begin_flow(struct vla_policy *p, const struct policy_row *rows, int n, bool greedy)
{
    const size_t width = width_of(p);

    for (int i = 0; i < n; i++) {
        p->rng[i] = rng_of(&rows[i]);
        for (size_t k = 0; k < width; k++)
            p->x[(size_t)i * width + k] = (float)rng_normal(&p->rng[i]);
        p->noisy_step[i] =
            greedy ? -1 : (int)rng_below(&p->rng[i], (uint32_t)p->about->model.steps);
        p->time[i] = 1;
    }
}

// Row i makes the stochastic step number `step` with velocity v (width).
static void noisy_step(struct vla_policy *p, int i, int step, const float *v)
{
    const int n_act = (int)p->about->model.action;
    const size_t width = width_of(p), at = (size_t)i * width;
    float *x = p->x + at, *latent = p->latent + (size_t)i * (width + 1);
    struct heads_flow f[SPEC_ACT_MAX];

    memcpy(latent, x, width * sizeof *latent);
    latent[width] = (float)step;
    heads_flow_levels(step, (int)p->about->model.steps, n_act, p->net.params + p->net.t.log_std, f);
    heads_flow_unit(f, n_act, (int64_t)width, x, v, p->around + at);
    for (size_t k = 0; k < width; k++) {
        p->drawn[at + k] = (float)((double)p->around[at + k] + rng_normal(&p->rng[i]));
        x[k] = (float)((double)p->drawn[at + k] * f[k % (size_t)n_act].std);
    }
}

static enum status flow(struct vla_policy *p, const struct policy_row *rows, int n, bool greedy)
{
    const int steps = (int)p->about->model.steps;
    const size_t width = width_of(p);
    struct vla_batch batch;

    begin_flow(p, rows, n, greedy);
    for (int step = 0; step < steps; step++) {
        const struct heads_flow euler = heads_flow_step(step, steps);

        for (int i = 0; i < n; i++)
            p->time[i] = euler.t;
        if (step == 0)
            TRY(pass(p, rows, n, &batch));
        else
            vla_again(&p->net, p->work, &batch, p->mean);
        for (int i = 0; i < n; i++) {
            float *x = p->x + (size_t)i * width, *v = p->mean + (size_t)i * width;

            if (p->noisy_step[i] == step)
                noisy_step(p, i, step, v);
            else
                heads_flow_mean(&euler, (int64_t)width, x, v, x);
        }
    }
    memcpy(p->action, p->x, (size_t)n * width * sizeof *p->action);
    return ST_OK;
}

// --- all of them --------------------------------------------------------------------------------

static enum status use(struct vla_policy *p, const struct weights *w)
{
    if (!w->vla || !vla_about_equal(w->vla, p->about))
        return FAIL(ST_INVAL, "weights of another model than the policy's");
    p->net.params = w->params;
    for (int d = 0; d < (int)p->about->model.action; d++) {
        p->log_std[d] = w->params[p->net.t.log_std + d];
        p->std[d] = exp(p->log_std[d]);
    }
    return ST_OK;
}

// n rows, at most those of a pass, into p->around and so on.
static enum status decide(struct vla_policy *p, const struct policy_row *rows, int n, bool greedy)
{
    struct vla_batch batch;

    if (p->about->model.head == VLA_FLOW)
        return flow(p, rows, n, greedy);
    TRY(pass(p, rows, n, &batch));
    sample(p, rows, n, greedy);
    return ST_OK;
}

// n rows of `width` numbers, from row `first` of `to` on; NULL: not wanted.
static void put(const float *from, int width, int first, int n, float *to)
{
    if (to)
        memcpy(to + (ptrdiff_t)first * width, from, (size_t)n * (size_t)width * sizeof *to);
}

enum status vla_policy_draw(struct vla_policy *p, const struct weights *w,
                            const struct policy_row *rows, int n, const struct policy_draw *out)
{
    const int width = (int)width_of(p);

    TRY(use(p, w));
    for (int from = 0; from < n; from += PASS_ROWS) {
        const int k = n - from < PASS_ROWS ? n - from : PASS_ROWS;

        TRY(decide(p, rows + from, k, false));
        put(p->around, width, from, k, out->mean);
        put(p->drawn, width, from, k, out->drawn);
        put(p->action, width, from, k, out->action);
        put(p->latent, vla_policy_latent(&p->about->model), from, k, out->latent);
    }
    return ST_OK;
}

int vla_policy_latent(const struct vla_config *c)
{
    return c->head == VLA_FLOW ? (int)(c->chunk * c->action) + 1 : 0;
}

enum status vla_policy_log_std(const struct weights *w, float *log_std)
{
    const struct vla_config *c = &w->vla->model;
    struct vla_table t;

    TRY(vla_table_init(&t, c));
    for (int64_t k = 0; k < c->chunk * c->action; k++)
        log_std[k] = c->head == VLA_FLOW ? 0 : w->params[t.log_std + k % c->action];
    vla_table_fini(&t);
    return ST_OK;
}

// The log-probability of every action of row i of a pass.
static void row_logp(const struct vla_policy *p, int i, float *logp)
{
    const int n_act = (int)p->about->model.action;
    const bool flow = p->about->model.head == VLA_FLOW; // drawn in units of the deviation
    const size_t at = (size_t)i * width_of(p);

    for (size_t j = 0; j < (size_t)p->about->model.chunk; j++) {
        double sum = 0;

        for (size_t d = 0; d < (size_t)n_act; d++) {
            const size_t k = at + j * (size_t)n_act + d;
            const double z = ((double)p->drawn[k] - p->around[k]) / (flow ? 1 : p->std[d]);

            sum -= z * z / 2 + (flow ? 0 : p->log_std[d]) + log(2 * M_PI) / 2;
        }
        logp[j] = (float)sum;
    }
}

enum status vla_policy_act(struct vla_policy *p, const struct weights *w,
                           const struct policy_row *rows, int n, bool greedy, float *action,
                           float *logp)
{
    const size_t chunk = (size_t)p->about->model.chunk, n_act = (size_t)p->about->model.action;

    TRY(use(p, w));
    if (greedy && logp && p->about->model.head == VLA_FLOW)
        return FAIL(ST_INVAL, "greedy actions of a flow have no log-probability");
    for (int from = 0; from < n; from += PASS_ROWS) {
        const int k = n - from < PASS_ROWS ? n - from : PASS_ROWS;

        TRY(decide(p, rows + from, k, greedy));
        for (size_t j = 0; j < (size_t)k * chunk; j++)
            vla_input_unscale(&p->about->input, p->action + j * n_act,
                              action + ((size_t)from * chunk + j) * n_act);
        for (int i = 0; i < k && logp; i++)
            row_logp(p, i, logp + (size_t)(from + i) * chunk);
    }
    return ST_OK;
}
