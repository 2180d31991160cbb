#include "nn/vla_priv.h"

#include <math.h>
#include <string.h>

// A block of one stream: its rows and operators.
struct half {
    const struct vla_block *at;
    int n, width, mlp, q_width, kv_width; // q_width 0: keys and values only
    const int *position, *attn;
    struct vla_keep *keep;
    struct nn_norm norm1, norm2;
    struct nn_linear qkv, out, up, down;
};

static struct nn_norm norm_of(const struct vla_net *net, int64_t weight, int width)
{
    return (struct nn_norm){
        .width = width, .eps = (real)VLA_NORM_EPS, .weight = net->params + weight};
}

static struct half half_of(const struct vla_net *net, struct vla_work *w, int i, int stream)
{
    const struct vla_config *c = &net->c;
    const struct vla_plan *p = &w->plan;
    const struct vla_block *b = stream == PREFIX ? &net->t.trunk[i] : &net->t.expert[i];
    const bool prefix = stream == PREFIX;
    struct half h = {.at = b,
                     .n = prefix ? p->n_prefix : p->n_suffix,
                     .width = (int)(prefix ? c->width : c->expert_width),
                     .mlp = (int)(prefix ? c->mlp : c->expert_mlp),
                     .q_width = b->out >= 0 ? (int)(c->heads * c->head_dim) : 0,
                     .kv_width = (int)(c->kv_heads * c->head_dim),
                     .position = prefix ? p->prefix_position : p->suffix_position,
                     .attn = prefix ? p->prefix_attn : p->suffix_attn,
                     .keep = &w->trunk[i].s[stream]};

    h.norm1 = norm_of(net, b->norm1, h.width);
    h.qkv = vla_linear(net, b->qkv, -1, h.width, h.q_width + 2 * h.kv_width);
    if (h.q_width == 0)
        return h;
    h.out = vla_linear(net, b->out, -1, h.q_width, h.width);
    h.norm2 = norm_of(net, b->norm2, h.width);
    h.up = vla_linear(net, b->up, -1, h.width, 2 * h.mlp);
    h.down = vla_linear(net, b->down, -1, h.mlp, h.width);
    return h;
}

static bool is_last(const struct vla_net *net, int i)
{
    return i == net->c.layers - 1;
}

// Queries of the last layer, and of all layers of vla_again, are those of the suffix alone, in its
// order.
static bool suffix_asks(const struct vla_net *net, const struct vla_work *w, int i)
{
    return w->again || is_last(net, i);
}

static struct nn_attention attention_of(const struct vla_net *net, struct vla_work *w, int i)
{
    const struct vla_config *c = &net->c;
    const struct vla_trunk_keep *k = &w->trunk[i];
    const int q_width = (int)(c->heads * c->head_dim), kv_width = (int)(c->kv_heads * c->head_dim);
    const bool asks = suffix_asks(net, w, i);

    return (struct nn_attention){.heads = (int)c->heads,
                                 .kv_heads = (int)c->kv_heads,
                                 .head_dim = (int)c->head_dim,
                                 .scale = 1 / (real)sqrt((double)c->head_dim),
                                 .n_seq = w->plan.n_seq,
                                 .cu_q = asks ? w->plan.cu_suffix : w->plan.cu_attn,
                                 .cu_k = w->plan.cu_attn,
                                 .limit = asks ? w->plan.suffix_limit : w->plan.limit,
                                 .q = k->q,
                                 .k = k->k,
                                 .v = k->v,
                                 .ldq = q_width,
                                 .ldk = kv_width,
                                 .ldv = kv_width,
                                 .o = k->o,
                                 .ldo = q_width,
                                 .lse = k->lse,
                                 .scratch = w->attn_scratch};
}

// Between the rows of a stream and those of attention, rotated; `q_to` is where queries are.
struct crossing {
    struct nn_rope q, k;
    struct nn_rows v;
    const int *q_to;
};

static struct crossing crossing_of(const struct vla_net *net, const struct vla_work *w,
                                   const struct half *h, int i, bool inverse)
{
    const struct nn_rope rope = {.heads = (int)net->c.heads,
                                 .head_dim = (int)net->c.head_dim,
                                 .table = w->rope,
                                 .position = h->position,
                                 .inverse = inverse};
    struct crossing x = {.q = rope,
                         .k = rope,
                         .v = {.n = h->n, .width = h->kv_width},
                         .q_to = suffix_asks(net, w, i) ? NULL : h->attn};

    x.k.heads = (int)net->c.kv_heads;
    return x;
}

static void before_attention(const struct vla_net *net, struct vla_work *w, const struct half *h,
                             int i)
{
    const struct nn_backend *op = net->op;
    const struct vla_trunk_keep *k = &w->trunk[i];
    const int ld = h->qkv.n_out;
    const struct crossing x = crossing_of(net, w, h, i, false);

    op->rms_forward(&h->norm1, h->n, h->keep->x, w->norm, h->keep->stat1);
    op->linear_forward(&h->qkv, h->n, w->norm, h->width, w->qkv, ld);
    if (h->q_width > 0)
        op->rope(&x.q, &(struct nn_rows){.n = h->n, .to = x.q_to}, w->qkv, ld, k->q, h->q_width);
    op->rope(&x.k, &(struct nn_rows){.n = h->n, .to = h->attn}, w->qkv + h->q_width, ld, k->k,
             h->kv_width);
    op->rows_copy(&(struct nn_rows){.n = h->n, .width = h->kv_width, .to = h->attn},
                  w->qkv + h->q_width + h->kv_width, ld, k->v, h->kv_width);
}

// To `out` (n, width), which may be what came in.
static void after_attention(const struct vla_net *net, struct vla_work *w, const struct half *h,
                            int i, real *out)
{
    const struct nn_backend *op = net->op;
    const struct vla_keep *k = h->keep;
    const int64_t numbers = (int64_t)h->n * h->width;

    op->rows_copy(&(struct nn_rows){.n = h->n,
                                    .width = h->q_width,
                                    .from = suffix_asks(net, w, i) ? NULL : h->attn},
                  w->trunk[i].o, h->q_width, w->os, h->q_width);
    op->linear_forward(&h->out, h->n, w->os, h->q_width, w->norm, h->width);
    op->add(numbers, k->x, w->norm, k->mid);
    op->rms_forward(&h->norm2, h->n, k->mid, w->norm, k->stat2);
    op->linear_forward(&h->up, h->n, w->norm, h->width, k->up, 2 * h->mlp);
    op->glu_forward(NN_SWIGLU, h->n, h->mlp, k->up, w->act);
    op->linear_forward(&h->down, h->n, w->act, h->mlp, w->norm, h->width);
    op->add(numbers, k->mid, w->norm, out);
}

// out[stream] NULL: the scratch, nobody reads it
static void block_forward(const struct vla_net *net, struct vla_work *w, int i,
                          real *const out[N_STREAM])
{
    const struct nn_attention a = attention_of(net, w, i);
    const int first = w->again ? SUFFIX : PREFIX;
    struct half h[N_STREAM];

    for (int s = first; s < N_STREAM; s++) {
        h[s] = half_of(net, w, i, s);
        before_attention(net, w, &h[s], i);
    }
    net->op->attention_forward(&a);
    for (int s = first; s < N_STREAM; s++)
        if (h[s].q_width > 0)
            after_attention(net, w, &h[s], i, out[s] ? out[s] : w->norm);
}

static real *stream_grad(struct vla_work *w, int stream)
{
    return stream == PREFIX ? w->d_prefix : w->d_suffix;
}

// The gradient by a block's output to that by `mid`, and d_o of its rows.
static void after_backward(const struct vla_net *net, struct vla_work *w, const struct half *h,
                           int i, real *d, real *grad)
{
    const struct nn_backend *op = net->op;
    const int *attn = is_last(net, i) ? NULL : h->attn;

    op->glu_forward(NN_SWIGLU, h->n, h->mlp, h->keep->up, w->act);
    vla_linear_backward(net, &h->down, h->n, w->act, d, w->d_act, grad);
    op->glu_backward(NN_SWIGLU, h->n, h->mlp, h->keep->up, w->d_act, w->d_up);
    op->rms_forward(&h->norm2, h->n, h->keep->mid, w->norm, NULL);
    vla_linear_backward(net, &h->up, h->n, w->norm, w->d_up, w->d_norm, grad);
    op->rms_backward(&h->norm2, h->n, h->keep->mid, h->keep->stat2, w->d_norm,
                     &(struct nn_norm_grad){.dx = d, .add = true, .dweight = grad + h->at->norm2});
    op->rows_copy(&(struct nn_rows){.n = h->n, .width = h->q_width, .from = attn}, w->trunk[i].o,
                  h->q_width, w->os, h->q_width);
    vla_linear_backward(net, &h->out, h->n, w->os, d, w->d_os, grad);
    op->rows_copy(&(struct nn_rows){.n = h->n, .width = h->q_width, .to = attn}, w->d_os,
                  h->q_width, w->d_o, h->q_width);
}

static void before_backward(const struct vla_net *net, struct vla_work *w, const struct half *h,
                            int i, real *d, real *grad)
{
    const struct nn_backend *op = net->op;
    const int ld = h->qkv.n_out;
    const struct crossing x = crossing_of(net, w, h, i, true);

    if (h->q_width > 0)
        op->rope(&x.q, &(struct nn_rows){.n = h->n, .from = x.q_to}, w->dq, h->q_width, w->d_qkv,
                 ld);
    op->rope(&x.k, &(struct nn_rows){.n = h->n, .from = h->attn}, w->dk, h->kv_width,
             w->d_qkv + h->q_width, ld);
    op->rows_copy(&(struct nn_rows){.n = h->n, .width = h->kv_width, .from = h->attn}, w->dv,
                  h->kv_width, w->d_qkv + h->q_width + h->kv_width, ld);
    op->rms_forward(&h->norm1, h->n, h->keep->x, w->norm, NULL);
    vla_linear_backward(net, &h->qkv, h->n, w->norm, w->d_qkv, w->d_norm, grad);
    op->rms_backward(&h->norm1, h->n, h->keep->x, h->keep->stat1, w->d_norm,
                     &(struct nn_norm_grad){.dx = d, .add = true, .dweight = grad + h->at->norm1});
}

static void block_backward(const struct vla_net *net, struct vla_work *w, int i, real *grad)
{
    const struct nn_attention a = attention_of(net, w, i);
    struct half h[N_STREAM];

    for (int s = 0; s < N_STREAM; s++) {
        h[s] = half_of(net, w, i, s);
        if (h[s].q_width > 0)
            after_backward(net, w, &h[s], i, stream_grad(w, s), grad);
    }
    net->op->attention_backward(&a, &(struct nn_attention_grad){.d_o = w->d_o,
                                                                .ldd_o = a.ldo,
                                                                .dq = w->dq,
                                                                .lddq = a.ldq,
                                                                .dk = w->dk,
                                                                .lddk = a.ldk,
                                                                .dv = w->dv,
                                                                .lddv = a.ldv});
    for (int s = 0; s < N_STREAM; s++)
        before_backward(net, w, &h[s], i, stream_grad(w, s), grad);
}

void vla_trunk_forward(const struct vla_net *net, struct vla_work *w)
{
    for (int i = 0; i < net->c.layers; i++) {
        real *out[N_STREAM] = {NULL, w->suffix_out};

        for (int s = 0; s < N_STREAM && !is_last(net, i); s++)
            out[s] = w->trunk[i + 1].s[s].x;
        block_forward(net, w, i, out);
    }
}

void vla_trunk_backward(const struct vla_net *net, struct vla_work *w, real *grad)
{
    memset(w->d_prefix, 0, (size_t)w->plan.n_prefix * (size_t)net->c.width * sizeof(real));
    for (int i = (int)net->c.layers - 1; i >= 0; i--) {
        if (w->room.checkpoint) {
            real *const nowhere[N_STREAM] = {NULL, NULL};

            block_forward(net, w, i, nowhere);
        }
        block_backward(net, w, i, grad);
    }
}
