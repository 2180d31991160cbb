#include "nn/policy.h"

#include "common/base/mem.h"
#include "nn/encoder.h"
#include "nn/gaussian.h"
#include "nn/mlp.h"
#include "nn/obsnorm.h"
#include "nn/vla_policy.h"

#include <math.h>
#include <string.h>

struct policy {
    struct vla_policy *vla; // NULL: perceptrons, which all the rest is for
    int chunk;
    struct model_shape shape;
    struct model_table table;
    int n_max;
    struct encoder encoder;
    struct encoder_rows seen;
    struct mlp net;
    struct mlp_rows rows;
    struct obsnorm norm;
    struct weights *weights;  // whose packed form `net` holds; held, so the pointer identifies it
    float *raw;               // (n_max, n_obs)
    float *x;                 // (n_max, REAL_LD(n_in)) what the network sees
    float *obs;               // (n_max, REAL_LD(n_obs)) normalised; x itself without vision
    const uint8_t **pictures; // (n_max, stack)
    float *inv_std;           // (n_act)
    double *std;              // (n_act)
    double logp_norm;
};

static enum status build(struct policy *p)
{
    size_t n_max = (size_t)p->n_max, n_obs = (size_t)p->shape.n_obs;
    size_t n_act = (size_t)p->shape.n_act;

    TRY(encoder_init(&p->encoder, &p->shape));
    TRY(encoder_rows_init(&p->seen, &p->encoder, p->n_max, false));
    TRY(mlp_init(&p->net, &p->shape, p->shape.n_act));
    TRY(mlp_rows_init(&p->rows, &p->net, p->n_max, false));
    TRY(obsnorm_init(&p->norm, p->shape.n_obs));
    p->raw = mem_alloc(n_max * n_obs, sizeof *p->raw);
    p->x = mem_alloc(n_max * (size_t)REAL_LD(model_n_in(&p->shape)), sizeof *p->x);
    p->obs = p->x;
    p->inv_std = mem_alloc(n_act, sizeof *p->inv_std);
    p->std = mem_alloc(n_act, sizeof *p->std);
    if (!p->raw || !p->x || !p->inv_std || !p->std)
        return ST_NOMEM;
    if (p->encoder.n_layer == 0)
        return ST_OK;
    p->obs = mem_alloc(n_max * (size_t)REAL_LD(p->shape.n_obs), sizeof *p->obs);
    p->pictures = mem_alloc(n_max * (size_t)p->shape.vision.stack, sizeof p->pictures[0]);
    return p->obs && p->pictures ? ST_OK : ST_NOMEM;
}

enum status policy_create(struct policy **out, const struct model_shape *shape, int n_max)
{
    struct policy *p;
    enum status st;

    TRY(model_shape_check(shape));
    if (n_max < 1)
        return FAIL(ST_INVAL, "a policy for %d rows, expected at least 1", n_max);
    p = mem_alloc(1, sizeof *p);
    if (!p)
        return ST_NOMEM;
    p->shape = *shape;
    p->n_max = n_max;
    p->chunk = 1;
    model_table_make(&p->table, shape);
    st = build(p);
    if (st != ST_OK) {
        policy_destroy(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

enum status policy_create_of(struct policy **out, const struct weights *w, int n_max)
{
    struct policy *p;
    enum status st;

    if (!w->vla)
        return policy_create(out, &w->shape, n_max);
    if (n_max < 1)
        return FAIL(ST_INVAL, "a policy for %d rows, expected at least 1", n_max);
    p = mem_alloc(1, sizeof *p);
    if (!p)
        return ST_NOMEM;
    p->n_max = n_max;
    p->chunk = (int)w->vla->model.chunk;
    st = vla_policy_create(&p->vla, w);
    if (st != ST_OK) {
        policy_destroy(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

int policy_chunk(const struct policy *p)
{
    return p->chunk;
}

void policy_destroy(struct policy *p)
{
    if (!p)
        return;
    vla_policy_destroy(p->vla);
    encoder_fini(&p->encoder);
    encoder_rows_fini(&p->seen);
    mlp_fini(&p->net);
    mlp_rows_fini(&p->rows);
    obsnorm_fini(&p->norm);
    weights_drop(p->weights);
    if (p->obs != p->x)
        mem_free(p->obs);
    mem_free(p->pictures);
    mem_free(p->raw);
    mem_free(p->x);
    mem_free(p->inv_std);
    mem_free(p->std);
    mem_free(p);
}

static enum status use_weights(struct policy *p, const struct weights *w)
{
    const float *log_std;
    int d;

    if (p->weights == w)
        return ST_OK;
    if (w->vla || !model_shape_equal(&w->shape, &p->shape))
        return FAIL(ST_INVAL,
                    "weights of a model with %d observations, %d actions, expected %d, %d"
                    " and the same hidden layers and convolutions",
                    w->shape.n_obs, w->shape.n_act, p->shape.n_obs, p->shape.n_act);
    weights_drop(p->weights);
    p->weights = weights_hold((struct weights *)w);
    log_std = w->params + p->table.piece[p->table.i_log_std].offset;
    encoder_pack(&p->encoder, w->params);
    mlp_pack(&p->net, w->params + p->table.n_encoder);
    obsnorm_set(&p->norm, w->obs_mean, w->obs_var);
    p->logp_norm = gaussian_inv_std(log_std, p->shape.n_act, p->inv_std);
    for (d = 0; d < p->shape.n_act; d++)
        p->std[d] = exp((double)log_std[d]);
    return ST_OK;
}

static enum status take_obs(struct policy *p, const struct policy_row *rows, int n)
{
    int i, k, n_obs = p->shape.n_obs;
    float *raw = p->raw;

    for (i = 0; i < n; i++, raw += n_obs)
        for (k = 0; k < n_obs; k++) {
            raw[k] = (float)rows[i].obs[k];
            if (!isfinite(raw[k]))
                return FAIL(ST_INVAL, "row %d: observation %d is %g, expected a finite float32", i,
                            k, rows[i].obs[k]);
        }
    obsnorm_rows(&p->norm, p->raw, n, p->obs);
    return ST_OK;
}

// What the network sees of the rows.
static enum status see(struct policy *p, const struct policy_row *rows, int n)
{
    const int stack = p->shape.vision.stack;

    if (p->encoder.n_layer == 0)
        return ST_OK;
    for (int i = 0; i < n; i++) {
        if (!rows[i].pictures)
            return FAIL(ST_INVAL, "row %d has no pictures, the model sees %d", i, stack);
        memcpy(p->pictures + (size_t)i * (size_t)stack, rows[i].pictures,
               (size_t)stack * sizeof p->pictures[0]);
    }
    encoder_forward(&p->encoder, &p->seen, p->pictures, p->obs, n, p->x);
    return ST_OK;
}

enum status policy_act(struct policy *p, const struct weights *w, const struct policy_row *rows,
                       int n, bool greedy, float *action, float *logp)
{
    const int n_act = p->shape.n_act;
    const float *mean;
    int i, d;

    if (n < 0 || n > p->n_max)
        return FAIL(ST_INVAL, "%d rows for a policy of at most %d", n, p->n_max);
    if (p->vla)
        return vla_policy_act(p->vla, w, rows, n, greedy, action, logp);
    TRY(use_weights(p, w));
    TRY(take_obs(p, rows, n));
    TRY(see(p, rows, n));
    mean = mlp_forward(&p->net, &p->rows, p->x, n);
    for (i = 0; i < n; i++) {
        const struct policy_row *row = &rows[i];
        const float *m = mean + (size_t)i * REAL_LD(n_act);
        float *a = action + (size_t)i * n_act;
        struct rng rng;

        if (greedy) {
            memcpy(a, m, (size_t)n_act * sizeof *a);
            continue;
        }
        rng = rng_make(row->seed, RNG_ACTION, row->stream, row->episode, row->step);
        for (d = 0; d < n_act; d++)
            a[d] = (float)((double)m[d] + p->std[d] * rng_normal(&rng));
    }
    if (logp)
        gaussian_logp(mean, action, n, n_act, p->inv_std, p->logp_norm, logp);
    return ST_OK;
}

// Perceptrons have no other scale than the task's.
static enum status draw(struct policy *p, const struct weights *w, const struct policy_row *rows,
                        int n, const struct policy_draw *out)
{
    const int n_act = p->shape.n_act;
    const size_t bytes = (size_t)n * (size_t)n_act * sizeof(float);

    TRY(policy_act(p, w, rows, n, true, out->mean, NULL));
    for (int i = 0; i < n && out->drawn; i++) {
        const struct policy_row *row = &rows[i];
        struct rng rng = rng_make(row->seed, RNG_ACTION, row->stream, row->episode, row->step);

        for (int d = i * n_act; d < (i + 1) * n_act; d++)
            out->drawn[d] =
                (float)((double)out->mean[d] + p->std[d - i * n_act] * rng_normal(&rng));
    }
    if (out->drawn && out->action)
        memcpy(out->action, out->drawn, bytes);
    return ST_OK;
}

enum status policy_draw(struct policy *p, const struct weights *w, const struct policy_row *rows,
                        int n, const struct policy_draw *out)
{
    return p->vla ? vla_policy_draw(p->vla, w, rows, n, out) : draw(p, w, rows, n, out);
}

int policy_latent(const struct weights *w)
{
    return w->vla ? vla_policy_latent(&w->vla->model) : 0;
}

enum status policy_log_std(const struct weights *w, float *log_std)
{
    struct model_table t;

    if (w->vla)
        return vla_policy_log_std(w, log_std);
    model_table_make(&t, &w->shape);
    memcpy(log_std, w->params + t.piece[t.i_log_std].offset,
           (size_t)w->shape.n_act * sizeof log_std[0]);
    return ST_OK;
}
