#include "nn/vla_priv.h"

#include <string.h>

static struct nn_norm norm_of(const struct vla_net *net, int64_t weight, int64_t bias)
{
    return (struct nn_norm){.width = (int)net->c.vision_width,
                            .eps = (real)VLA_VISION_EPS,
                            .weight = net->params + weight,
                            .bias = net->params + bias};
}

static struct nn_norm_grad norm_grad(real *dx, bool add, real *grad, int64_t weight, int64_t bias)
{
    return (struct nn_norm_grad){
        .dx = dx, .add = add, .dweight = grad + weight, .dbias = grad + bias};
}

static struct nn_attention attention_of(const struct vla_net *net, const struct vla_work *w,
                                        const struct vla_vision_keep *keep)
{
    struct nn_attention a =
        nn_attention_of_qkv((int)net->c.vision_width, (int)net->c.vision_heads, w->plan.n_image,
                            w->plan.cu_vision, keep->qkv, keep->o, w->attn_scratch);

    a.lse = keep->lse;
    return a;
}

struct parts {
    struct nn_norm norm1, norm2;
    struct nn_linear qkv, out, up, down;
};

static struct parts parts_of(const struct vla_net *net, int i)
{
    const struct vla_block *b = &net->t.vision[i];
    const int64_t width = net->c.vision_width, mlp = net->c.vision_mlp;

    return (struct parts){.norm1 = norm_of(net, b->norm1, b->norm1_bias),
                          .norm2 = norm_of(net, b->norm2, b->norm2_bias),
                          .qkv = vla_linear(net, b->qkv, b->qkv_bias, width, 3 * width),
                          .out = vla_linear(net, b->out, b->out_bias, width, width),
                          .up = vla_linear(net, b->up, b->up_bias, width, mlp),
                          .down = vla_linear(net, b->down, b->down_bias, mlp, width)};
}

// Block i, from what it keeps of x to `out` (n, width), which may be x.
static void block_forward(const struct vla_net *net, struct vla_work *w, int i, real *out)
{
    const struct nn_backend *op = net->op;
    const struct vla_vision_keep *k = &w->vision[i];
    const struct parts p = parts_of(net, i);
    const int n = w->plan.n_vision, width = p.qkv.n_in, mlp = p.up.n_out;
    const struct nn_attention a = attention_of(net, w, k);

    op->layer_norm_forward(&p.norm1, n, k->s.x, w->norm, k->s.stat1);
    op->linear_forward(&p.qkv, n, w->norm, width, k->qkv, 3 * width);
    op->attention_forward(&a);
    op->linear_forward(&p.out, n, k->o, width, w->norm, width);
    op->add((int64_t)n * width, k->s.x, w->norm, k->s.mid);
    op->layer_norm_forward(&p.norm2, n, k->s.mid, w->norm, k->s.stat2);
    op->linear_forward(&p.up, n, w->norm, width, k->s.up, mlp);
    op->gelu_forward((int64_t)n * mlp, k->s.up, w->act);
    op->linear_forward(&p.down, n, w->act, mlp, w->norm, width);
    op->add((int64_t)n * width, k->s.mid, w->norm, out);
}

// d_vision from the gradient by the block's output to that by what came in.
static void block_backward(const struct vla_net *net, struct vla_work *w, int i, real *grad)
{
    const struct nn_backend *op = net->op;
    const struct vla_block *b = &net->t.vision[i];
    const struct vla_vision_keep *k = &w->vision[i];
    const struct parts p = parts_of(net, i);
    const int n = w->plan.n_vision, width = p.qkv.n_in, mlp = p.up.n_out;
    const struct nn_attention a = attention_of(net, w, k);
    struct nn_norm_grad g = norm_grad(w->d_vision, true, grad, b->norm2, b->norm2_bias);

    op->gelu_forward((int64_t)n * mlp, k->s.up, w->act);
    vla_linear_backward(net, &p.down, n, w->act, w->d_vision, w->d_act, grad);
    op->gelu_backward((int64_t)n * mlp, k->s.up, w->d_act, w->d_act);
    op->layer_norm_forward(&p.norm2, n, k->s.mid, w->norm, NULL);
    vla_linear_backward(net, &p.up, n, w->norm, w->d_act, w->d_norm, grad);
    op->layer_norm_backward(&p.norm2, n, k->s.mid, k->s.stat2, w->d_norm, &g);
    vla_linear_backward(net, &p.out, n, k->o, w->d_vision, w->d_os, grad);
    op->attention_backward(&a, &(struct nn_attention_grad){.d_o = w->d_os,
                                                           .ldd_o = width,
                                                           .dq = w->d_qkv,
                                                           .dk = w->d_qkv + width,
                                                           .dv = w->d_qkv + 2 * (ptrdiff_t)width,
                                                           .lddq = 3 * width,
                                                           .lddk = 3 * width,
                                                           .lddv = 3 * width});
    op->layer_norm_forward(&p.norm1, n, k->s.x, w->norm, NULL);
    vla_linear_backward(net, &p.qkv, n, w->norm, w->d_qkv, w->d_norm, grad);
    g = norm_grad(w->d_vision, true, grad, b->norm1, b->norm1_bias);
    op->layer_norm_backward(&p.norm1, n, k->s.x, k->s.stat1, w->d_norm, &g);
}

static real *input_of(const struct vla_net *net, struct vla_work *w, int i)
{
    return i < net->c.vision_layers ? w->vision[i].s.x : w->vision_out;
}

static struct nn_linear patch_linear(const struct vla_net *net)
{
    return vla_linear(net, net->t.patch, net->t.patch_bias, VLA_RGB * net->c.patch * net->c.patch,
                      net->c.vision_width);
}

void vla_vision_forward(const struct vla_net *net, struct vla_work *w)
{
    const struct nn_backend *op = net->op;
    const struct vla_plan *p = &w->plan;
    const int width = (int)net->c.vision_width, trunk = (int)net->c.width, n = p->n_vision;
    const struct nn_linear patch = patch_linear(net);
    const struct nn_norm post = norm_of(net, net->t.post_norm, net->t.post_norm_bias);
    const struct nn_linear connector =
        vla_linear(net, net->t.connector, net->t.connector_bias, width, trunk);
    const bool all = net->c.keep == 100;
    real *x = input_of(net, w, 0), *prefix = w->trunk[0].s[PREFIX].x;
    real *embedded = all ? x : w->prune.x;

    op->patches(p->n_image, p->image, (int)net->c.image, (int)net->c.patch, w->patches);
    op->linear_forward(&patch, p->n_patch, w->patches, patch.n_in, embedded, width);
    op->rows_add(&(struct nn_rows){.n = p->n_patch, .width = width, .from = p->all_place},
                 net->params + net->t.position, width, embedded, width);
    if (!all) {
        vla_prune(net, w);
        op->rows_copy(&(struct nn_rows){.n = n, .width = width, .from = p->kept}, w->prune.x, width,
                      x, width);
    }
    for (int i = 0; i < net->c.vision_layers; i++)
        block_forward(net, w, i, input_of(net, w, i + 1));
    op->layer_norm_forward(&post, n, w->vision_out, w->norm, w->vision_stat);
    op->linear_forward(&connector, n, w->norm, width, w->os, trunk);
    op->rows_copy(&(struct nn_rows){.n = n, .width = trunk, .to = p->image_to}, w->os, trunk,
                  prefix, trunk);
    op->rows_add(&(struct nn_rows){.n = n, .width = trunk, .from = p->camera, .to = p->image_to},
                 net->params + net->t.camera, trunk, prefix, trunk);
}

void vla_vision_backward(const struct vla_net *net, struct vla_work *w, real *grad)
{
    const struct nn_backend *op = net->op;
    const struct vla_plan *p = &w->plan;
    const int width = (int)net->c.vision_width, trunk = (int)net->c.width, n = p->n_vision;
    const struct nn_linear patch = patch_linear(net);
    const struct nn_norm post = norm_of(net, net->t.post_norm, net->t.post_norm_bias);
    const struct nn_linear connector =
        vla_linear(net, net->t.connector, net->t.connector_bias, width, trunk);
    const struct nn_norm_grad g =
        norm_grad(w->d_vision, false, grad, net->t.post_norm, net->t.post_norm_bias);

    op->rows_copy(&(struct nn_rows){.n = n, .width = trunk, .from = p->image_to}, w->d_prefix,
                  trunk, w->d_os, trunk);
    op->rows_add(&(struct nn_rows){.n = n, .width = trunk, .to = p->camera}, w->d_os, trunk,
                 grad + net->t.camera, trunk);
    op->layer_norm_forward(&post, n, w->vision_out, w->norm, NULL);
    vla_linear_backward(net, &connector, n, w->norm, w->d_os, w->d_norm, grad);
    op->layer_norm_backward(&post, n, w->vision_out, w->vision_stat, w->d_norm, &g);
    for (int i = (int)net->c.vision_layers - 1; i >= 0; i--) {
        if (w->room.checkpoint) // its output is not needed again: into the scratch
            block_forward(net, w, i, w->norm);
        block_backward(net, w, i, grad);
    }
    op->rows_add(&(struct nn_rows){.n = n, .width = width, .to = p->place}, w->d_vision, width,
                 grad + net->t.position, width);
    op->patches(p->n_image, p->image, (int)net->c.image, (int)net->c.patch, w->patches);
    if (net->c.keep < 100)
        op->rows_copy(&(struct nn_rows){.n = n, .width = patch.n_in, .from = p->kept}, w->patches,
                      patch.n_in, w->prune.kept_patches, patch.n_in);
    vla_linear_backward(net, &patch, n, net->c.keep < 100 ? w->prune.kept_patches : w->patches,
                        w->d_vision, NULL, grad);
}
