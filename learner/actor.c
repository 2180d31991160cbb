#include "learner/actor.h"

#include "common/base/mem.h"
#include "learner/scale.h"
#include "nn/encoder.h"
#include "nn/gaussian.h"
#include "nn/mlp.h"
#include "nn/obsnorm.h"

#include <string.h>

struct actor {
    struct actor_vla *vla; // NULL: perceptrons, which all but the last is for
    struct model_shape shape;
    struct model_table table;
    struct encoder encoder;
    struct encoder_rows seen;
    struct mlp net, value;
    struct mlp_rows rows, value_rows;
    bool critic;
    struct obsnorm norm;
    float *raw; // (ACTOR_ROWS, n_obs)
    float *obs; // (ACTOR_ROWS, REAL_LD(n_obs)) normalised
    // (ACTOR_ROWS, REAL_LD(n_in)) what the networks see; NULL without vision
    float *x, *x_grad, *value_x_grad;
    const uint8_t **pictures; // (ACTOR_ROWS, n_view)
    int width, n_act;
    float *log_std, *inv_std; // (width)
};

static bool has_vision(const struct actor *a)
{
    return a->encoder.n_layer > 0;
}

static enum status make_std(struct actor *a)
{
    a->log_std = mem_alloc(2 * (size_t)a->width, sizeof *a->log_std);
    if (!a->log_std)
        return ST_NOMEM;
    a->inv_std = a->log_std + a->width;
    return ST_OK;
}

static enum status build_vla(struct actor *a, const struct weights *w, int64_t budget)
{
    a->width = (int)(w->vla->model.chunk * w->vla->model.action);
    a->n_act = (int)w->vla->model.action;
    TRY(make_std(a));
    return actor_vla_create(&a->vla, w, budget);
}

static enum status build(struct actor *a, const struct weights *w)
{
    const size_t n_obs = (size_t)w->shape.n_obs;
    const size_t n_in = ACTOR_ROWS * (size_t)REAL_LD(model_n_in(&w->shape));

    a->shape = w->shape;
    a->width = a->n_act = w->shape.n_act;
    model_table_make(&a->table, &a->shape);
    TRY(make_std(a));
    TRY(encoder_init(&a->encoder, &a->shape));
    TRY(encoder_rows_init(&a->seen, &a->encoder, ACTOR_ROWS, true));
    TRY(mlp_init(&a->net, &a->shape, a->shape.n_act));
    TRY(mlp_rows_init(&a->rows, &a->net, ACTOR_ROWS, true));
    if (a->critic) {
        TRY(mlp_init(&a->value, &a->shape, 1));
        TRY(mlp_rows_init(&a->value_rows, &a->value, ACTOR_ROWS, true));
    }
    TRY(obsnorm_init(&a->norm, a->shape.n_obs));
    obsnorm_set(&a->norm, w->obs_mean, w->obs_var);
    a->raw = mem_alloc(ACTOR_ROWS * n_obs, sizeof *a->raw);
    a->obs = mem_alloc(ACTOR_ROWS * (size_t)REAL_LD(a->shape.n_obs), sizeof *a->obs);
    if (!a->raw || !a->obs)
        return ST_NOMEM;
    if (!has_vision(a))
        return ST_OK;
    a->x = mem_alloc(3 * n_in, sizeof *a->x);
    a->pictures = mem_alloc(ACTOR_ROWS * (size_t)a->shape.vision.stack, sizeof a->pictures[0]);
    if (!a->x || !a->pictures)
        return ST_NOMEM;
    a->x_grad = a->x + n_in;
    a->value_x_grad = a->x_grad + n_in;
    return ST_OK;
}

enum status actor_create(struct actor **out, const struct weights *w, int64_t budget, bool critic)
{
    struct actor *a = mem_alloc(1, sizeof *a);
    enum status st;

    if (!a)
        return ST_NOMEM;
    a->critic = critic;
    st = w->vla ? build_vla(a, w, budget) : build(a, w);
    if (st != ST_OK) {
        actor_destroy(a);
        return st;
    }
    *out = a;
    return ST_OK;
}

void actor_destroy(struct actor *a)
{
    if (!a)
        return;
    actor_vla_destroy(a->vla);
    encoder_fini(&a->encoder);
    encoder_rows_fini(&a->seen);
    mlp_fini(&a->net);
    mlp_rows_fini(&a->rows);
    mlp_fini(&a->value);
    mlp_rows_fini(&a->value_rows);
    obsnorm_fini(&a->norm);
    mem_free(a->raw);
    mem_free(a->obs);
    mem_free(a->x);
    mem_free(a->pictures);
    mem_free(a->log_std);
    mem_free(a);
}

int actor_rows(const struct actor *a)
{
    int rows = a->vla ? actor_vla_rows(a->vla) : ACTOR_ROWS;

    return rows < ACTOR_ROWS ? rows : ACTOR_ROWS;
}

int actor_width(const struct actor *a)
{
    return a->width;
}

int actor_ld(const struct actor *a)
{
    return a->vla ? a->width : REAL_LD(a->width);
}

int64_t actor_params(const struct actor *a)
{
    return a->vla      ? actor_vla_params(a->vla)
           : a->critic ? a->table.n_param
                       : a->table.n_policy; // the value network's come behind
}

int64_t actor_critic_at(const struct actor *a)
{
    return a->vla ? actor_vla_params(a->vla) : a->table.n_policy;
}

int64_t actor_log_std_at(const struct actor *a)
{
    return a->vla ? actor_vla_log_std_at(a->vla) : a->table.piece[a->table.i_log_std].offset;
}

int actor_n_log_std(const struct actor *a)
{
    return a->n_act;
}

int actor_latent(const struct actor *a)
{
    return a->vla ? actor_vla_latent(a->vla) : 0;
}

void actor_use(struct actor *a, const float *params)
{
    const float *log_std = params + actor_log_std_at(a);

    for (int d = 0; d < a->width; d++)
        a->log_std[d] = actor_latent(a) > 0 ? 0 : log_std[d % a->n_act];
    (void)gaussian_inv_std(a->log_std, a->width, a->inv_std);
    if (a->vla) {
        actor_vla_use(a->vla, params);
        return;
    }
    encoder_pack(&a->encoder, params);
    mlp_pack(&a->net, params + a->table.n_encoder);
    if (a->critic)
        mlp_pack(&a->value, params + a->table.n_policy);
}

const float *actor_log_std(const struct actor *a)
{
    return a->log_std;
}

const float *actor_inv_std(const struct actor *a)
{
    return a->inv_std;
}

enum status actor_forward(struct actor *a, const struct actor_row *rows, int n, const float **mean)
{
    const size_t n_obs = (size_t)a->shape.n_obs, n_view = (size_t)a->shape.vision.stack;
    const size_t bytes = model_picture_bytes(&a->shape.vision);
    const float *x = a->obs;

    if (a->vla)
        return actor_vla_forward(a->vla, rows, n, mean);
    if (n < 1 || n > ACTOR_ROWS)
        return FAIL(ST_INVAL, "%d decisions in one pass, expected 1 to %d", n, ACTOR_ROWS);
    for (int i = 0; i < n; i++)
        memcpy(a->raw + (size_t)i * n_obs, rows[i].obs, n_obs * sizeof a->raw[0]);
    obsnorm_rows(&a->norm, a->raw, n, a->obs);
    if (has_vision(a)) {
        for (int i = 0; i < n; i++) {
            if (!rows[i].pictures)
                return FAIL(ST_INVAL, "decision %d has no pictures, the model sees %zu", i, n_view);
            for (size_t k = 0; k < n_view; k++)
                a->pictures[(size_t)i * n_view + k] = rows[i].pictures + k * bytes;
        }
        encoder_forward(&a->encoder, &a->seen, a->pictures, a->obs, n, a->x);
        x = a->x;
    }
    *mean = mlp_forward(&a->net, &a->rows, x, n);
    if (a->critic)
        mlp_forward(&a->value, &a->value_rows, x, n);
    return ST_OK;
}

float *actor_mean_grad(struct actor *a)
{
    return a->vla ? actor_vla_mean_grad(a->vla) : mlp_out_grad(&a->net, &a->rows);
}

float actor_value(const struct actor *a, int i)
{
    return a->vla ? actor_vla_value(a->vla)[i]
                  : a->value_rows.act[a->value.n_layer - 1][(size_t)i * REAL_LD(1)];
}

float *actor_value_grad(struct actor *a, int i)
{
    return a->vla ? actor_vla_value_grad(a->vla) + i
                  : mlp_out_grad(&a->value, &a->value_rows) + (size_t)i * REAL_LD(1);
}

void actor_value_rescale(const struct actor *a, float *params, double old_mean, double old_std,
                         double mean, double std)
{
    const struct model_piece *last;

    if (a->vla) {
        scale_preserve(params + actor_vla_value_at(a->vla), actor_vla_value_cols(a->vla), old_mean,
                       old_std, mean, std);
        return;
    }
    last = &a->table.piece[a->table.n_piece - 2];
    scale_preserve(params + last->offset, last->cols, old_mean, old_std, mean, std);
}

void actor_backward(struct actor *a, int n, const float *log_std_grad, float *grad)
{
    const size_t n_x = (size_t)n * (size_t)REAL_LD(model_n_in(&a->shape));
    const float *x = has_vision(a) ? a->x : a->obs;
    float *to = grad + actor_log_std_at(a);

    for (int d = 0; d < a->width && actor_latent(a) == 0; d++)
        to[d % a->n_act] += log_std_grad[d];
    if (a->vla) {
        actor_vla_backward(a->vla, a->critic, grad);
        return;
    }
    mlp_backward(&a->net, &a->rows, x, n, grad + a->table.n_encoder, a->x_grad);
    if (a->critic) {
        float *pad = actor_value_grad(a, 0);

        for (int i = 0; i < n; i++)
            memset(pad + (size_t)i * REAL_LD(1) + 1, 0, (REAL_LD(1) - 1) * sizeof *pad);
        mlp_backward(&a->value, &a->value_rows, x, n, grad + a->table.n_policy, a->value_x_grad);
        for (size_t i = 0; has_vision(a) && i < n_x; i++)
            a->x_grad[i] += a->value_x_grad[i];
    }
    if (has_vision(a))
        encoder_backward(&a->encoder, &a->seen, a->pictures, n, a->x_grad, grad);
}
