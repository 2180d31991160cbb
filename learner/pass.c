#include "learner/pass.h"

#include "common/base/mem.h"
#include "nn/gaussian.h"

#include <string.h>

enum status nets_init(struct nets *nets, const struct model_shape *shape)
{
    nets->shape = *shape;
    model_table_make(&nets->table, shape);
    TRY(encoder_init(&nets->encoder, shape));
    TRY(mlp_init(&nets->policy, shape, shape->n_act));
    TRY(mlp_init(&nets->value, shape, 1));
    nets->inv_std = mem_alloc((size_t)shape->n_act, sizeof *nets->inv_std);
    return nets->inv_std ? ST_OK : ST_NOMEM;
}

void nets_fini(struct nets *nets)
{
    encoder_fini(&nets->encoder);
    mlp_fini(&nets->policy);
    mlp_fini(&nets->value);
    mem_free(nets->inv_std);
    nets->inv_std = NULL;
}

static int64_t log_std_offset(const struct nets *nets)
{
    return nets->table.piece[nets->table.i_log_std].offset;
}

void nets_pack(struct nets *nets, const real *params)
{
    encoder_pack(&nets->encoder, params);
    mlp_pack(&nets->policy, params + nets->table.n_encoder);
    mlp_pack(&nets->value, params + nets->table.n_policy);
    nets->logp_norm =
        gaussian_inv_std(params + log_std_offset(nets), nets->shape.n_act, nets->inv_std);
}

static enum status vision_init(struct pass *p, const struct nets *nets)
{
    size_t count = (size_t)PASS_ROWS * (size_t)REAL_LD(model_n_in(&nets->shape));

    if (nets->encoder.n_layer == 0)
        return ST_OK;
    TRY(encoder_rows_init(&p->seen, &nets->encoder, PASS_ROWS, true));
    p->x = mem_alloc(3 * count, sizeof *p->x);
    if (!p->x)
        return ST_NOMEM;
    p->policy_grad = p->x + count;
    p->value_grad = p->policy_grad + count;
    return ST_OK;
}

enum status pass_init(struct pass *p, const struct nets *nets)
{
    TRY(vision_init(p, nets));
    TRY(mlp_rows_init(&p->policy, &nets->policy, PASS_ROWS, true));
    TRY(mlp_rows_init(&p->value, &nets->value, PASS_ROWS, true));
    p->logp = mem_alloc(PASS_ROWS, sizeof *p->logp);
    return p->logp ? ST_OK : ST_NOMEM;
}

void pass_fini(struct pass *p)
{
    encoder_rows_fini(&p->seen);
    mem_free(p->x);
    p->x = NULL;
    mlp_rows_fini(&p->policy);
    mlp_rows_fini(&p->value);
    mem_free(p->logp);
    p->logp = NULL;
}

// What the networks see.
static const real *see(struct pass *p, const struct nets *nets, const real *x,
                       const uint8_t *const *pictures, int n)
{
    if (nets->encoder.n_layer == 0)
        return x;
    encoder_forward(&nets->encoder, &p->seen, pictures, x, n, p->x);
    return p->x;
}

// Both networks' gradients by what they see go through the encoder together.
static void see_backward(struct pass *p, const struct nets *nets, const struct samples *s,
                         real *grad)
{
    size_t count = (size_t)s->n * (size_t)REAL_LD(model_n_in(&nets->shape));

    if (nets->encoder.n_layer == 0)
        return;
    for (size_t i = 0; i < count; i++)
        p->policy_grad[i] += p->value_grad[i];
    encoder_backward(&nets->encoder, &p->seen, s->pictures, s->n, p->policy_grad, grad);
}

void pass_value(struct pass *p, const struct nets *nets, const real *x,
                const uint8_t *const *pictures, int n, real *out)
{
    const real *v = mlp_forward(&nets->value, &p->value, see(p, nets, x, pictures, n), n);

    for (int i = 0; i < n; i++)
        out[i] = v[(size_t)i * REAL_LD(1)];
}

void pass_run(struct pass *p, const struct nets *nets, const struct loss_config *cfg,
              const struct samples *s, bool first, bool have_value, real *grad,
              struct loss_sums *sums)
{
    const bool seen = have_value && nets->encoder.n_layer > 0;
    const real *x = seen ? p->x : see(p, nets, s->x, s->pictures, s->n);
    struct loss_rows rows = {
        .n = s->n,
        .n_act = nets->shape.n_act,
        .mean = mlp_forward(&nets->policy, &p->policy, x, s->n),
        .inv_std = nets->inv_std,
        .action = s->action,
        .logp = p->logp,
        .logp_ref = first ? NULL : s->logp_ref,
        .weight = s->weight,
        .advantage = s->advantage,
        .value = p->value.act[nets->value.n_layer - 1],
        .target = s->target,
    };

    gaussian_logp(rows.mean, s->action, s->n, rows.n_act, nets->inv_std, nets->logp_norm, p->logp);
    if (first) {
        memcpy(s->logp_ref, p->logp, (size_t)s->n * sizeof *p->logp);
        loss_weights(p->logp, s->logp_behaviour, s->n, cfg->weight_cap, s->weight, sums);
    }
    loss_policy(cfg, &rows, mlp_out_grad(&nets->policy, &p->policy), grad + log_std_offset(nets),
                sums);
    mlp_backward(&nets->policy, &p->policy, x, s->n, grad + nets->table.n_encoder, p->policy_grad);
    if (!have_value)
        mlp_forward(&nets->value, &p->value, x, s->n);
    loss_value(cfg, &rows, mlp_out_grad(&nets->value, &p->value), sums);
    mlp_backward(&nets->value, &p->value, x, s->n, grad + nets->table.n_policy, p->value_grad);
    see_backward(p, nets, s, grad);
}
