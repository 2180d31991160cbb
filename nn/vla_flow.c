#include "nn/heads.h"
#include "nn/vla_priv.h"

// As SmolVLA and pi0 have it: an action's row is out(silu(in([action_in(x_t), time(t)]))). The
// learned query of the action's place in the chunk is added to it.
struct layers {
    struct nn_linear action, in, out;
};

static struct layers layers_of(const struct vla_net *net)
{
    const struct vla_table *t = &net->t;
    const int64_t width = net->c.expert_width;

    return (struct layers){
        .action = vla_linear(net, t->action_in, t->action_in_bias, net->c.action, width),
        .in = vla_linear(net, t->time_in, t->time_in_bias, 2 * width, width),
        .out = vla_linear(net, t->time_out, t->time_out_bias, width, width)};
}

static int rows_of(const struct vla_net *net, const struct vla_work *w)
{
    return w->plan.n_seq * (int)net->c.chunk;
}

void vla_flow_forward(const struct vla_net *net, struct vla_work *w, const struct vla_batch *b)
{
    const struct nn_backend *op = net->op;
    const struct layers l = layers_of(net);
    const struct vla_flow *f = &w->flow;
    const int n = rows_of(net, w), width = l.out.n_out, chunk = (int)net->c.chunk;

    op->linear_forward(&l.action, n, b->noisy, l.action.n_in, f->in, 2 * width);
    for (int s = 0; s < w->plan.n_seq; s++) {
        heads_time_embedding(b->time[s], width, f->time);
        for (int k = s * chunk; k < (s + 1) * chunk; k++)
            op->rows_copy(&(struct nn_rows){.n = 1, .width = width}, f->time, width,
                          f->in + (2 * (ptrdiff_t)k + 1) * width, width);
    }
    op->linear_forward(&l.in, n, f->in, 2 * width, f->mid, width);
    op->silu_forward((int64_t)n * width, f->mid, f->act);
    op->linear_forward(&l.out, n, f->act, width, f->out, width);
    op->rows_add(&(struct nn_rows){.n = n, .width = width, .to = w->plan.action_at}, f->out, width,
                 w->trunk[0].s[SUFFIX].x, width);
}

void vla_flow_backward(const struct vla_net *net, struct vla_work *w, const struct vla_batch *b,
                       real *grad)
{
    const struct nn_backend *op = net->op;
    const struct layers l = layers_of(net);
    const struct vla_flow *f = &w->flow;
    const int n = rows_of(net, w), width = l.out.n_out;

    op->rows_copy(&(struct nn_rows){.n = n, .width = width, .from = w->plan.action_at}, w->d_suffix,
                  width, f->d_out, width);
    vla_linear_backward(net, &l.out, n, f->act, f->d_out, f->d_mid, grad);
    op->silu_backward((int64_t)n * width, f->mid, f->d_mid, f->d_mid);
    vla_linear_backward(net, &l.in, n, f->in, f->d_mid, f->d_in, grad);
    // of the noisy actions only the parameters' part is wanted
    op->linear_backward(&l.action, n, b->noisy, l.action.n_in, f->d_in, 2 * width,
                        &(struct nn_linear_grad){.dweight = grad + net->t.action_in,
                                                 .dbias = grad + net->t.action_in_bias});
}
