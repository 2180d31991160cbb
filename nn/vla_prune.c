#include "nn/vla_priv.h"

#include <math.h>

// Instruction and state ask, the pictures' tokens answer, with the first layer's queries and keys:
// tokens go through the connector as they are before the vision transformer, which then sees only
// those that pass. No parameters of its own, nothing to differentiate; no rotation, for this is
// about what is there and not where.
void vla_prune(const struct vla_net *net, struct vla_work *w)
{
    const struct vla_config *c = &net->c;
    const struct nn_backend *op = net->op;
    const struct vla_plan *p = &w->plan;
    const int width = (int)c->width, narrow = (int)c->vision_width, n = p->n_patch;
    const int q_width = (int)(c->heads * c->head_dim), kv_width = (int)(c->kv_heads * c->head_dim);
    const int n_asking = p->cu_asking[p->n_seq];
    const int64_t qkv = net->t.trunk[0].qkv;
    const struct nn_norm post = {.width = narrow,
                                 .eps = (real)VLA_VISION_EPS,
                                 .weight = net->params + net->t.post_norm,
                                 .bias = net->params + net->t.post_norm_bias};
    const struct nn_norm first = {
        .width = width, .eps = (real)VLA_NORM_EPS, .weight = net->params + net->t.trunk[0].norm1};
    const struct nn_linear connector =
        vla_linear(net, net->t.connector, net->t.connector_bias, narrow, width);
    const struct nn_linear q = vla_linear(net, qkv, -1, width, q_width);
    const struct nn_linear k = vla_linear(net, qkv + (int64_t)q_width * width, -1, width, kv_width);
    const struct nn_attention a = {.heads = (int)c->heads,
                                   .kv_heads = (int)c->kv_heads,
                                   .head_dim = (int)c->head_dim,
                                   .scale = 1 / (real)sqrt((double)c->head_dim),
                                   .n_seq = p->n_seq,
                                   .cu_q = p->cu_asking,
                                   .cu_k = p->cu_patch,
                                   .q = w->prune.q,
                                   .k = w->prune.k,
                                   .ldq = q_width,
                                   .ldk = kv_width,
                                   .scratch = w->attn_scratch};

    op->layer_norm_forward(&post, n, w->prune.x, w->prune.normed, NULL);
    op->linear_forward(&connector, n, w->prune.normed, narrow, w->prune.token, width);
    op->rows_add(&(struct nn_rows){.n = n, .width = width, .from = p->all_camera},
                 net->params + net->t.camera, width, w->prune.token, width);
    op->rms_forward(&first, n, w->prune.token, w->prune.token, NULL);
    op->linear_forward(&k, n, w->prune.token, width, w->prune.k, kv_width);
    op->rows_copy(&(struct nn_rows){.n = n_asking, .width = width, .from = p->asking},
                  w->trunk[0].s[PREFIX].x, width, w->prune.asking, width);
    op->rms_forward(&first, n_asking, w->prune.asking, w->prune.asking, NULL);
    op->linear_forward(&q, n_asking, w->prune.asking, width, w->prune.q, q_width);
    op->attention_scores(&a, w->prune.score);
    vla_plan_keep(&w->plan, c, w->prune.score);
}
