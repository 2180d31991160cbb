#include "learner/sft_batch.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/thread.h"
#include "learner/packing.h"
#include "nn/heads.h"
#include "nn/tokenizer.h"
#include "nn/vla.h"

#include <math.h>
#include <string.h>

#define CENTER_PICTURES 256
#define CENTER_STD      0.5
#define CENTER_GAIN_MAX 8.0

// What one thread works with: room for one micro-batch.
struct worker {
    struct vla_work *work;
    int *cu_image, *cu_text, *camera, *text;
    const uint8_t **image;
    float *state, *mean, *value, *d_mean, *grad;
    float *noisy; // (seqs, width) of a flow
    double *time; // (seqs)
    double *d_log_std;
    double loss;
    enum status st;
    struct error err;
};

struct sft_batch {
    struct sft_batch_config cfg;
    struct demos *demos;
    const struct vla_about *about;
    struct vla_net net;
    struct vla_room room;
    struct packing packing;
    struct team *team;
    struct worker *workers; // (threads)
    size_t picture_bytes;
    int64_t bytes;
    // instructions, one after the other
    int *first_token; // (n_instruction + 1)
    int32_t *tokens;
    // samples of the step
    int *length;      // (samples) tokens
    int *instruction; // (samples)
    int *n_real;      // (samples)
    float *state;     // (samples, VLA_STATE) as the network sees it
    float *target;    // (samples, chunk, n_act) the same; of a flow the velocity's
    float *noisy;     // (samples, chunk, n_act) of a flow, at
    float *time;      // (samples)
    uint8_t *picture; // (samples, n_camera, picture_bytes)
    uint8_t *moved;   // (picture_bytes) scratch
    // of team_run
    int round; // micro-batch of the first worker
};

static int width_of(const struct sft_batch *b)
{
    return (int)(b->about->model.chunk * b->about->model.action);
}

static enum status encode_instructions(struct sft_batch *b)
{
    const struct vla_about *a = b->about;
    int n = demos_info(b->demos)->n_instruction, total = 0, k;
    struct tokenizer *t;
    enum status st = ST_OK;

    for (int i = 0; i < n; i++)
        total += (int)strlen(demos_instruction(b->demos, i));
    b->first_token = mem_alloc((size_t)n + 1, sizeof b->first_token[0]);
    b->tokens = mem_alloc((size_t)total, sizeof b->tokens[0]);
    if (!b->first_token || !b->tokens)
        return ST_NOMEM;
    TRY(tokenizer_parse(&t, a->vocabulary, a->n_vocabulary, "vocabulary"));
    for (int i = 0; i < n && st == ST_OK; i++) {
        const char *text = demos_instruction(b->demos, i);

        st = tokenizer_encode(t, text, strlen(text), b->tokens + b->first_token[i],
                              (int)strlen(text), &k);
        if (st == ST_OK)
            b->first_token[i + 1] = b->first_token[i] + k;
    }
    tokenizer_destroy(t);
    return st;
}

static int tokens_of(const struct sft_batch *b, int instruction)
{
    int n_text = b->first_token[instruction + 1] - b->first_token[instruction];

    return vla_tokens(&b->about->model, b->about->input.n_camera, n_text);
}

// Room for the largest micro-batch that the budget allows.
static enum status plan(struct sft_batch *b)
{
    int n_camera = b->about->input.n_camera, shortest = 0, text = 1, seqs;

    for (int i = 0; i < demos_info(b->demos)->n_instruction; i++) {
        int n_text = b->first_token[i + 1] - b->first_token[i], n = tokens_of(b, i);

        if (n > b->cfg.budget)
            return FAIL(ST_INVAL,
                        "a sequence has %d tokens (%d pictures, an instruction of %d, state and "
                        "actions), the budget of a micro-batch is %d",
                        n, n_camera, n_text, b->cfg.budget);
        shortest = shortest == 0 || n < shortest ? n : shortest;
        text = n_text > text ? n_text : text;
    }
    seqs = b->cfg.budget / shortest;
    seqs = seqs < b->cfg.samples ? seqs : b->cfg.samples;
    b->room = (struct vla_room){.seqs = seqs,
                                .images = seqs * n_camera,
                                .texts = seqs * text,
                                .backward = true,
                                .checkpoint = b->cfg.checkpoint,
                                .padded = b->cfg.padded};
    return ST_OK;
}

static enum status worker_init(struct sft_batch *b, struct worker *w)
{
    size_t seqs = (size_t)b->room.seqs, images = (size_t)b->room.images;
    size_t width = (size_t)width_of(b);

    TRY(vla_work_create(&w->work, &b->net, &b->room));
    w->cu_image = mem_alloc(seqs + 1, sizeof w->cu_image[0]);
    w->cu_text = mem_alloc(seqs + 1, sizeof w->cu_text[0]);
    w->camera = mem_alloc(images, sizeof w->camera[0]);
    w->image = mem_alloc(images, sizeof w->image[0]);
    w->text = mem_alloc((size_t)b->room.texts, sizeof w->text[0]);
    w->state = mem_alloc(seqs * VLA_STATE, sizeof w->state[0]);
    w->mean = mem_alloc(seqs * width, sizeof w->mean[0]);
    w->d_mean = mem_alloc(seqs * width, sizeof w->d_mean[0]);
    w->value = mem_alloc(seqs, sizeof w->value[0]);
    w->noisy = mem_alloc(seqs * width, sizeof w->noisy[0]);
    w->time = mem_alloc(seqs, sizeof w->time[0]);
    w->grad = mem_alloc((size_t)b->net.t.n_param, sizeof w->grad[0]);
    w->d_log_std = mem_alloc((size_t)b->about->model.action, sizeof w->d_log_std[0]);
    return w->cu_image && w->cu_text && w->camera && w->image && w->text && w->state && w->mean &&
                   w->d_mean && w->value && w->noisy && w->time && w->grad && w->d_log_std
               ? ST_OK
               : ST_NOMEM;
}

static void worker_fini(struct worker *w)
{
    vla_work_destroy(w->work);
    mem_free(w->cu_image);
    mem_free(w->cu_text);
    mem_free(w->camera);
    mem_free(w->image);
    mem_free(w->text);
    mem_free(w->state);
    mem_free(w->mean);
    mem_free(w->d_mean);
    mem_free(w->value);
    mem_free(w->noisy);
    mem_free(w->time);
    mem_free(w->grad);
    mem_free(w->d_log_std);
}

static enum status build(struct sft_batch *b)
{
    const struct vla_config *c = &b->about->model;
    size_t n = (size_t)b->cfg.samples, n_camera = (size_t)b->about->input.n_camera;

    if (demos_info(b->demos)->n_action != c->action)
        return FAIL(ST_INVAL, "the demonstrations have %d numbers an action, the model %lld",
                    demos_info(b->demos)->n_action, (long long)c->action);
    b->picture_bytes = (size_t)(VLA_RGB * c->image * c->image);
    TRY(encode_instructions(b));
    TRY(plan(b));
    TRY(vla_net_init(&b->net, c, NULL));
    TRY(packing_init(&b->packing, b->cfg.samples));
    TRY(team_create(&b->team, b->cfg.threads));
    b->length = mem_alloc(n, sizeof b->length[0]);
    b->instruction = mem_alloc(n, sizeof b->instruction[0]);
    b->n_real = mem_alloc(n, sizeof b->n_real[0]);
    b->state = mem_alloc(n * VLA_STATE, sizeof b->state[0]);
    b->target = mem_alloc(n * (size_t)width_of(b), sizeof b->target[0]);
    b->noisy = mem_alloc(n * (size_t)width_of(b), sizeof b->noisy[0]);
    b->time = mem_alloc(n, sizeof b->time[0]);
    b->picture = mem_alloc(n * n_camera, b->picture_bytes);
    b->moved = mem_alloc(b->picture_bytes, 1);
    b->workers = mem_alloc((size_t)b->cfg.threads, sizeof b->workers[0]);
    if (!b->length || !b->instruction || !b->n_real || !b->state || !b->target || !b->noisy ||
        !b->time || !b->picture || !b->moved || !b->workers)
        return ST_NOMEM;
    for (int i = 0; i < b->cfg.threads; i++)
        TRY(worker_init(b, &b->workers[i]));
    b->bytes =
        b->cfg.threads * (vla_work_bytes(c, &b->room) + b->net.t.n_param * (int64_t)sizeof(float));
    return ST_OK;
}

enum status sft_batch_create(struct sft_batch **out, const struct sft_batch_config *cfg,
                             struct demos *demos, const struct vla_about *about)
{
    struct sft_batch *b = mem_alloc(1, sizeof *b);
    enum status st;

    if (!b)
        return ST_NOMEM;
    b->cfg = *cfg;
    b->demos = demos;
    b->about = about;
    st = build(b);
    if (st != ST_OK) {
        sft_batch_destroy(b);
        return st;
    }
    *out = b;
    return ST_OK;
}

void sft_batch_destroy(struct sft_batch *b)
{
    if (!b)
        return;
    for (int i = 0; b->workers && i < b->cfg.threads; i++)
        worker_fini(&b->workers[i]);
    team_destroy(b->team);
    packing_fini(&b->packing);
    vla_net_fini(&b->net);
    mem_free(b->workers);
    mem_free(b->first_token);
    mem_free(b->tokens);
    mem_free(b->length);
    mem_free(b->instruction);
    mem_free(b->n_real);
    mem_free(b->state);
    mem_free(b->target);
    mem_free(b->noisy);
    mem_free(b->time);
    mem_free(b->picture);
    mem_free(b->moved);
    mem_free(b);
}

int64_t sft_batch_params(const struct sft_batch *b)
{
    return b->net.t.n_param;
}

int64_t sft_batch_log_std(const struct sft_batch *b)
{
    return b->net.t.log_std;
}

int64_t sft_batch_bytes(const struct sft_batch *b)
{
    return b->bytes;
}

void sft_batch_init(const struct sft_batch *b, uint64_t seed, double log_std, float *params)
{
    vla_init(&b->about->model, &b->net.t, seed, log_std, params);
}

// ------------------------------------------------------------------ first values

// Mean (patches, in) of the patches of up to CENTER_PICTURES pictures, and the root of the mean
// variance of their numbers.
static enum status picture_moments(struct sft_batch *b, uint64_t seed, float *rows, double *mean,
                                   double *std)
{
    const struct vla_config *c = &b->about->model;
    const int64_t n_sample = demos_info(b->demos)->n_sample;
    const int64_t n_row = vla_patches(c) * (VLA_RGB * c->patch * c->patch);
    const int n_camera = b->about->input.n_camera;
    const uint8_t *picture = b->moved;
    double square = 0, of_means = 0;

    for (int i = 0; i < CENTER_PICTURES; i++) {
        struct rng rng = rng_make(seed, RNG_SHUFFLE, 2, (uint64_t)i, 0);

        TRY(demos_picture(b->demos, rng_below(&rng, (uint32_t)n_sample), i % n_camera, b->moved));
        b->net.op->patches(1, &picture, (int)c->image, (int)c->patch, rows);
        for (int64_t k = 0; k < n_row; k++) {
            mean[k] += (double)rows[k] / CENTER_PICTURES;
            square += (double)rows[k] * rows[k] / CENTER_PICTURES;
        }
    }
    for (int64_t k = 0; k < n_row; k++)
        of_means += mean[k] * mean[k];
    *std = sqrt(fmax(square - of_means, 0) / (double)n_row);
    return ST_OK;
}

enum status sft_batch_center(struct sft_batch *b, uint64_t seed, float *params)
{
    const struct vla_config *c = &b->about->model;
    const int64_t n_in = VLA_RGB * c->patch * c->patch, n_patch = vla_patches(c);
    float *weight = params + b->net.t.patch, *position = params + b->net.t.position;
    float *rows = mem_alloc((size_t)(n_patch * n_in), sizeof rows[0]);
    double *mean = mem_alloc((size_t)(n_patch * n_in), sizeof mean[0]), std, gain;
    enum status st = rows && mean ? picture_moments(b, seed, rows, mean, &std) : ST_NOMEM;

    if (st == ST_OK) {
        gain = fmin(fmax(CENTER_STD / fmax(std, 1e-6), 1), CENTER_GAIN_MAX);
        for (int64_t k = 0; k < c->vision_width * n_in; k++)
            weight[k] *= (float)gain;
        for (int64_t p = 0; p < n_patch; p++)
            for (int64_t o = 0; o < c->vision_width; o++) {
                double sum = 0;

                for (int64_t k = 0; k < n_in; k++)
                    sum += weight[o * n_in + k] * mean[p * n_in + k];
                position[p * c->vision_width + o] -= (float)sum;
            }
    }
    mem_free(rows);
    mem_free(mean);
    return st;
}

// ------------------------------------------------------------------ samples

// Move a picture (side, side, 3) by (dx, dy); its border goes on outside.
static void move_picture(uint8_t *picture, uint8_t *scratch, int side, int dx, int dy)
{
    memcpy(scratch, picture, 3 * (size_t)side * (size_t)side);
    for (int r = 0; r < side; r++)
        for (int c = 0; c < side; c++) {
            int from_r = r + dy < 0 ? 0 : r + dy >= side ? side - 1 : r + dy;
            int from_c = c + dx < 0 ? 0 : c + dx >= side ? side - 1 : c + dx;

            memcpy(picture + 3 * (r * side + c), scratch + 3 * (from_r * side + from_c), 3);
        }
}

// The actions of sample i, in its target, become what a flow learns from: noise, how much of it,
// and the velocity that leads from there. Behind the end of a demo its last action goes on; the
// loss does not count it, but the network sees it beside the others.
static void blur(struct sft_batch *b, int i, uint64_t seed, uint64_t step)
{
    const size_t width = (size_t)width_of(b), n_act = (size_t)b->about->model.action;
    float *target = b->target + (size_t)i * width, *noisy = b->noisy + (size_t)i * width;
    struct rng rng = rng_make(seed, RNG_SHUFFLE, 3, step, (uint64_t)i);

    for (size_t k = (size_t)b->n_real[i] * n_act; k < width; k++)
        target[k] = target[k - n_act];
    b->time[i] = (float)heads_flow_time(rng_unit(&rng));
    for (size_t k = 0; k < width; k++) {
        const float noise = (float)rng_normal(&rng), action = target[k];

        heads_flow_point(1, 1, &noise, &action, &b->time[i], &noisy[k], &target[k]);
    }
}

// Sample number `number` of the data as number i of the step.
static enum status take(struct sft_batch *b, int i, int32_t number, uint64_t seed, uint64_t step)
{
    const struct vla_input *in = &b->about->input;
    struct rng rng = rng_make(seed, RNG_SHUFFLE, 1, step, (uint64_t)i);
    struct demos_sample s;

    demos_at(b->demos, number, &s);
    b->instruction[i] = s.i_instruction;
    b->length[i] = tokens_of(b, s.i_instruction);
    b->n_real[i] = s.n_real;
    vla_input_state(in, s.state, b->state + (size_t)i * VLA_STATE);
    for (int j = 0; j < s.n_real; j++)
        vla_input_scale(in, s.action + j * in->n_action,
                        b->target + (size_t)i * (size_t)width_of(b) + j * in->n_action);
    if (b->about->model.head == VLA_FLOW)
        blur(b, i, seed, step);
    for (int k = 0; k < in->n_camera; k++) {
        uint8_t *picture = b->picture + (size_t)(i * in->n_camera + k) * b->picture_bytes;
        uint32_t span = 2 * (uint32_t)b->cfg.shift + 1;

        TRY(demos_picture(b->demos, number, k, picture));
        if (span > 1) {
            int dx = (int)rng_below(&rng, span) - b->cfg.shift;
            int dy = (int)rng_below(&rng, span) - b->cfg.shift;

            move_picture(picture, b->moved, (int)b->about->model.image, dx, dy);
        }
    }
    return ST_OK;
}

// ------------------------------------------------------------------ a micro-batch

static void gather(const struct sft_batch *b, int micro, struct worker *w, struct vla_batch *out)
{
    const int n_camera = b->about->input.n_camera;
    const int from = b->packing.first[micro], n = b->packing.first[micro + 1] - from;

    for (int k = 0; k < n; k++) {
        int i = b->packing.item[from + k], first = b->first_token[b->instruction[i]];
        int n_text = b->first_token[b->instruction[i] + 1] - first;

        for (int c = 0; c < n_camera; c++) {
            w->image[k * n_camera + c] = b->picture + (size_t)(i * n_camera + c) * b->picture_bytes;
            w->camera[k * n_camera + c] = c;
        }
        w->cu_image[k + 1] = (k + 1) * n_camera;
        for (int j = 0; j < n_text; j++)
            w->text[w->cu_text[k] + j] = b->tokens[first + j];
        w->cu_text[k + 1] = w->cu_text[k] + n_text;
        memcpy(w->noisy + k * width_of(b), b->noisy + (ptrdiff_t)i * width_of(b),
               (size_t)width_of(b) * sizeof w->noisy[0]);
        w->time[k] = (double)b->time[i];
        memcpy(w->state + (size_t)k * VLA_STATE, b->state + (size_t)i * VLA_STATE,
               VLA_STATE * sizeof w->state[0]);
    }
    *out = (struct vla_batch){.n_seq = n,
                              .cu_image = w->cu_image,
                              .image = w->image,
                              .camera = w->camera,
                              .cu_text = w->cu_text,
                              .text = w->text,
                              .state = w->state,
                              .noisy = w->noisy,
                              .time = w->time};
}

static enum status run_micro(struct sft_batch *b, int micro, struct worker *w)
{
    const int width = width_of(b), from = b->packing.first[micro];
    const int n_act = (int)b->about->model.action;
    const float *log_std = b->net.params + b->net.t.log_std;
    struct vla_batch batch;

    gather(b, micro, w, &batch);
    memset(w->grad, 0, (size_t)b->net.t.n_param * sizeof w->grad[0]);
    memset(w->d_log_std, 0, (size_t)n_act * sizeof w->d_log_std[0]);
    w->loss = 0;
    TRY(vla_forward(&b->net, w->work, &batch, w->mean, w->value));
    for (int k = 0; k < batch.n_seq; k++) {
        int i = b->packing.item[from + k];

        w->loss += clone_loss(b->cfg.loss, w->mean + (size_t)k * (size_t)width,
                              b->target + (size_t)i * (size_t)width, b->n_real[i],
                              (int)b->about->model.chunk, n_act, log_std,
                              w->d_mean + (size_t)k * (size_t)width, w->d_log_std);
    }
    vla_backward(&b->net, w->work, &batch, w->d_mean, NULL, w->grad);
    for (int d = 0; d < n_act; d++)
        w->grad[b->net.t.log_std + d] += (float)w->d_log_std[d];
    return ST_OK;
}

static void work(void *arg, int i_thread, int n_thread)
{
    struct sft_batch *b = arg;
    struct worker *w = &b->workers[i_thread];

    (void)n_thread;
    w->st = ST_OK;
    if (b->round + i_thread >= b->packing.n_batch)
        return;
    w->st = run_micro(b, b->round + i_thread, w);
    if (w->st != ST_OK)
        w->err = *error_last();
}

enum status sft_batch_run(struct sft_batch *b, const float *params, const int32_t *sample, int n,
                          uint64_t seed, uint64_t step, float *grad, struct sft_sums *sums)
{
    const int64_t n_param = b->net.t.n_param;

    b->net.params = params;
    *sums = (struct sft_sums){0};
    for (int i = 0; i < n; i++) {
        TRY(take(b, i, sample[i], seed, step));
        sums->weight += (double)b->n_real[i] * (double)b->about->model.action;
    }
    TRY((b->cfg.padded ? packing_pad : packing_pack)(&b->packing, b->length, n, b->cfg.budget));
    sums->tokens = b->packing.tokens;
    sums->computed = b->packing.computed;
    sums->micro = b->packing.n_batch;
    memset(grad, 0, (size_t)n_param * sizeof grad[0]);
    for (b->round = 0; b->round < b->packing.n_batch; b->round += b->cfg.threads) {
        team_run(b->team, work, b);
        for (int i = 0; i < b->cfg.threads && b->round + i < b->packing.n_batch; i++) {
            const struct worker *w = &b->workers[i];

            if (w->st != ST_OK)
                return error_adopt(&w->err);
            sums->loss += w->loss;
            for (int64_t k = 0; k < n_param; k++)
                grad[k] += w->grad[k];
        }
    }
    return ST_OK;
}
