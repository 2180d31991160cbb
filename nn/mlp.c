#include "nn/mlp.h"

#include "common/base/mem.h"
#include "nn/gemm.h"

enum status mlp_init(struct mlp *m, const struct model_shape *shape, int n_out)
{
    size_t count = 0;
    real *p;
    int i;

    m->n_layer = shape->n_hidden + 1;
    for (i = 0; i < m->n_layer; i++) {
        m->layer[i].n_in = i == 0 ? model_n_in(shape) : shape->hidden[i - 1];
        m->layer[i].n_out = i < shape->n_hidden ? shape->hidden[i] : n_out;
        count += linear_count(&m->layer[i]);
    }
    m->params = NULL;
    m->packed = p = mem_alloc(count, sizeof *p);
    if (!p)
        return ST_NOMEM;
    for (i = 0; i < m->n_layer; i++)
        p = linear_place(&m->layer[i], p);
    return ST_OK;
}

void mlp_fini(struct mlp *m)
{
    mem_free(m->packed);
    m->packed = NULL;
}

int64_t mlp_n_param(const struct mlp *m)
{
    int64_t n = 0;

    for (int i = 0; i < m->n_layer; i++)
        n += (int64_t)(m->layer[i].n_in + 1) * m->layer[i].n_out;
    return n;
}

void mlp_pack(struct mlp *m, const real *params)
{
    const real *p = params;

    for (int i = 0; i < m->n_layer; i++) {
        struct linear *l = &m->layer[i];
        const real *bias = p + (size_t)l->n_in * l->n_out;

        linear_pack(l, p, bias);
        p = bias + l->n_out;
    }
    m->params = params;
}

enum status mlp_rows_init(struct mlp_rows *rows, const struct mlp *m, int n_max, bool backward)
{
    size_t width = 0;
    real *p;
    int i;

    for (i = 0; i < m->n_layer; i++)
        width += REAL_LD(m->layer[i].n_out);
    rows->n_max = n_max;
    rows->memory = p = mem_alloc(width * (backward ? 2 : 1), (size_t)n_max * sizeof *p);
    if (!p)
        return ST_NOMEM;
    for (i = 0; i < m->n_layer; i++) {
        rows->act[i] = p;
        rows->grad[i] = backward ? p + width * (size_t)n_max : NULL;
        p += (size_t)n_max * REAL_LD(m->layer[i].n_out);
    }
    return ST_OK;
}

void mlp_rows_fini(struct mlp_rows *rows)
{
    mem_free(rows->memory);
    rows->memory = NULL;
}

const real *mlp_forward(const struct mlp *m, struct mlp_rows *rows, const real *x, int n)
{
    for (int i = 0; i < m->n_layer; i++) {
        linear_forward(&m->layer[i], x, n, i < m->n_layer - 1, rows->act[i]);
        x = rows->act[i];
    }
    return x;
}

// bias_grad (n_out) += the columns' sums of dy (n, REAL_LD(n_out)).
static void add_rows(real *bias_grad, const real *dy, int n, int n_out)
{
    int i, o;

    for (i = 0; i < n; i++, dy += REAL_LD(n_out))
        for (o = 0; o < n_out; o++)
            bias_grad[o] += dy[o];
}

void mlp_backward(const struct mlp *m, struct mlp_rows *rows, const real *x, int n,
                  real *param_grad, real *x_grad)
{
    const real *w = m->params + mlp_n_param(m);
    real *g = param_grad + mlp_n_param(m);
    int i, k;

    for (i = m->n_layer - 1; i >= 0; i--) {
        const struct linear *l = &m->layer[i];
        const real *in = i > 0 ? rows->act[i - 1] : x;
        const real *dy = rows->grad[i];
        real *dx;
        int ldy = REAL_LD(l->n_out), ldx = REAL_LD(l->n_in);

        g -= l->n_out;
        add_rows(g, dy, n, l->n_out);
        g -= (size_t)l->n_in * l->n_out;
        w -= (size_t)(l->n_in + 1) * l->n_out;
        gemm_tn_add(l->n_out, l->n_in, n, dy, ldy, in, ldx, g, l->n_in);
        dx = i > 0 ? rows->grad[i - 1] : x_grad;
        if (!dx)
            break;
        gemm_nn(n, l->n_in, l->n_out, dy, ldy, w, l->n_in, dx, ldx);
        if (i == 0)
            break;
        // through tanh; the padding of `in` and of dx is zero and stays so
        for (k = 0; k < n * ldx; k++)
            dx[k] *= 1 - in[k] * in[k];
    }
}
