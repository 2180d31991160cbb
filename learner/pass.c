#include "learner/pass.h"

#include "common/base/mem.h"
#include "nn/gaussian.h"

#include <string.h>

enum status nets_init(struct nets *nets, const struct model_shape *shape)
{
    nets->shape = *shape;
    model_table_make(&nets->table, shape);
    TRY(mlp_init(&nets->policy, shape, shape->n_act));
    TRY(mlp_init(&nets->value, shape, 1));
    nets->inv_std = mem_alloc((size_t)shape->n_act, sizeof *nets->inv_std);
    return nets->inv_std ? ST_OK : ST_NOMEM;
}

void nets_fini(struct nets *nets)
{
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
    mlp_pack(&nets->policy, params);
    mlp_pack(&nets->value, params + nets->table.n_policy);
    nets->logp_norm =
        gaussian_inv_std(params + log_std_offset(nets), nets->shape.n_act, nets->inv_std);
}

enum status pass_init(struct pass *p, const struct nets *nets)
{
    TRY(mlp_rows_init(&p->policy, &nets->policy, PASS_ROWS, true));
    TRY(mlp_rows_init(&p->value, &nets->value, PASS_ROWS, true));
    p->logp = mem_alloc(PASS_ROWS, sizeof *p->logp);
    return p->logp ? ST_OK : ST_NOMEM;
}

void pass_fini(struct pass *p)
{
    mlp_rows_fini(&p->policy);
    mlp_rows_fini(&p->value);
    mem_free(p->logp);
    p->logp = NULL;
}

void pass_value(struct pass *p, const struct nets *nets, const real *x, int n, real *out)
{
    const real *v = mlp_forward(&nets->value, &p->value, x, n);

    for (int i = 0; i < n; i++)
        out[i] = v[(size_t)i * REAL_LD(1)];
}

void pass_run(struct pass *p, const struct nets *nets, const struct loss_config *cfg,
              const struct samples *s, bool first, bool have_value, real *grad,
              struct loss_sums *sums)
{
    struct loss_rows rows = {
        .n = s->n,
        .n_act = nets->shape.n_act,
        .mean = mlp_forward(&nets->policy, &p->policy, s->x, s->n),
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
    mlp_backward(&nets->policy, &p->policy, s->x, s->n, grad);
    if (!have_value)
        mlp_forward(&nets->value, &p->value, s->x, s->n);
    loss_value(cfg, &rows, mlp_out_grad(&nets->value, &p->value), sums);
    mlp_backward(&nets->value, &p->value, s->x, s->n, grad + nets->table.n_policy);
}
