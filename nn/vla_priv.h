// vla_priv.h - the inside of a workspace of nn/vla.h, shared by its sources.
#ifndef NN_VLA_PRIV_H
#define NN_VLA_PRIV_H

#include "nn/vla.h"

#ifdef REAL_IS_DOUBLE
#define vla_plan_fill       vla_plan_fill_f64
#define vla_plan_keep       vla_plan_keep_f64
#define vla_prune           vla_prune_f64
#define vla_vision_forward  vla_vision_forward_f64
#define vla_vision_backward vla_vision_backward_f64
#define vla_trunk_forward   vla_trunk_forward_f64
#define vla_trunk_backward  vla_trunk_backward_f64
#define vla_flow_forward    vla_flow_forward_f64
#define vla_flow_backward   vla_flow_backward_f64
#endif

#define VLA_NORM_EPS   1e-5
#define VLA_VISION_EPS 1e-6
#define VLA_ROPE_BASE  10000

// Which row is what in one batch. Streams hold the prefixes of all sequences and the suffixes of
// all, one sequence behind the other; attention wants each sequence's prefix and suffix together,
// and what is only padding last.
struct vla_plan {
    int n_seq, n_image, n_patch, n_text; // n_patch: tokens of all pictures
    int n_vision;                        // those of them that pass
    int n_prefix, n_suffix, n_attn;      // rows of the streams and of both together
    const uint8_t **image;               // (n_image)
    int *all_place, *all_camera;         // (n_patch) place in the picture; camera
    int *cu_patch;                       // (n_seq + 1) tokens before each sequence's pictures
    int *kept;                           // (n_vision) which of all
    int *place, *camera, *image_to;      // (n_vision) the same of it; row of the prefix
    int *cu_vision;                      // (n_image + 1) tokens that pass before each picture
    int *text, *text_to;                 // (n_text) token; row of the prefix
    int *state_to;                       // (n_seq)
    int *prefix_position, *prefix_attn;  // (n_prefix)
    int *suffix_position, *suffix_attn;  // (n_suffix)
    int *query;                          // (n_suffix) which of the learned queries
    int *action_at, *value_at;           // (n_seq * chunk), (n_seq) rows of the suffix
    int *cu_attn, *cu_suffix;            // (n_seq + 1)
    int *limit, *suffix_limit;           // (n_attn), (n_suffix) keys that a query sees
    int *asking, *cu_asking;             // (n_text + n_seq), (n_seq + 1) rows of the prefix that
                                         // choose the tokens
    uint8_t *blank;                      // a picture of padding
};

// What a block keeps for its backward pass; rows of one stream.
struct vla_keep {
    real *x, *stat1;   // (n, width) what comes in; its norm's statistics
    real *mid, *stat2; // (n, width) after attention
    real *up;          // (n, mlp) or, gate and up, (n, 2 mlp), before the activation
};

struct vla_vision_keep {
    struct vla_keep s;
    real *qkv, *o, *lse; // (n, 3 width), (n, width), (n, heads)
};

enum { PREFIX, SUFFIX, N_STREAM };

struct vla_trunk_keep {
    struct vla_keep s[N_STREAM];
    real *q, *k, *v, *o, *lse; // (n_attn, ...); of the last layer only the suffix has q, o and lse
};

// What choosing tokens needs.
struct vla_prune {
    real *x, *normed;   // (n_patch, vision_width)
    real *token;        // (n_patch, width)
    real *k, *score;    // (n_patch, kv_heads * head_dim), (n_patch)
    real *asking, *q;   // (n_text + n_seq, width), (..., heads * head_dim)
    real *kept_patches; // (n_vision, 3 * patch * patch), of the backward pass
};

// How noisy actions become rows of the suffix; (n_seq * chunk, ...) each.
struct vla_flow {
    real *in, *mid, *act, *out; // (2 expert_width) action and time; (expert_width) each
    real *d_in, *d_mid, *d_out;
    real *time; // (expert_width) of one sequence
};

struct vla_work {
    struct vla_room room;
    int64_t bytes;
    void *memory;
    struct vla_plan plan;
    struct vla_vision_keep vision[VLA_LAYERS_MAX];
    struct vla_trunk_keep trunk[VLA_LAYERS_MAX];
    real *vision_out, *vision_stat; // (n_vision, vision_width) what leaves the last block
    real *suffix_out, *suffix_stat; // (n_suffix, expert_width)
    real *rope;                     // (positions, head_dim)
    struct vla_flow flow;
    bool again; // the suffix alone: queries of every layer are the suffix's, in its order
    // scratch; forward
    struct vla_prune prune;
    real *patches; // (n_patch, 3 * patch * patch)
    real *norm, *qkv, *act,
        *os; // rows of any stream: normed, q k v, activation, attention's output
    real *attn_scratch;
    // backward
    real *d_vision, *d_prefix, *d_suffix; // gradient by a stream
    real *d_norm, *d_qkv, *d_act, *d_up, *d_os;
    real *dq, *dk, *dv, *d_o; // (n_attn, ...)
};

// ST_INVAL: a number of the batch is out of range, or it does not fit.
NODISCARD enum status vla_plan_fill(struct vla_plan *p, const struct vla_config *c,
                                    const struct vla_room *room, const struct vla_batch *b);

// Which tokens of the pictures pass, by their score (n_patch), into the plan.
void vla_plan_keep(struct vla_plan *p, const struct vla_config *c, const real *score);

// Choose among prune.x, the tokens of all pictures, by the prefix of the first layer without
// pictures.
void vla_prune(const struct vla_net *net, struct vla_work *w);

// Tokens of the pictures into the prefix of the first layer, and their gradient out of d_prefix.
void vla_vision_forward(const struct vla_net *net, struct vla_work *w);
void vla_vision_backward(const struct vla_net *net, struct vla_work *w, real *grad);

// From the streams of the first layer to suffix_out, and from d_suffix (by suffix_out) to d_prefix
// and d_suffix by the first layer's.
void vla_trunk_forward(const struct vla_net *net, struct vla_work *w);
void vla_trunk_backward(const struct vla_net *net, struct vla_work *w, real *grad);

// Of a flow: noisy actions and their times onto the suffix of the first layer, and the gradient of
// its parameters out of d_suffix.
void vla_flow_forward(const struct vla_net *net, struct vla_work *w, const struct vla_batch *b);
void vla_flow_backward(const struct vla_net *net, struct vla_work *w, const struct vla_batch *b,
                       real *grad);

// The linear operator at `weight` and `bias` (-1: none) of the parameters.
static inline struct nn_linear vla_linear(const struct vla_net *net, int64_t weight, int64_t bias,
                                          int64_t n_in, int64_t n_out)
{
    return (struct nn_linear){.n_in = (int)n_in,
                              .n_out = (int)n_out,
                              .weight = net->params + weight,
                              .bias = bias >= 0 ? net->params + bias : NULL};
}

// Its backward pass on contiguous rows; dx NULL: not wanted.
static inline void vla_linear_backward(const struct vla_net *net, const struct nn_linear *l, int n,
                                       const real *x, const real *dy, real *dx, real *grad)
{
    net->op->linear_backward(
        l, n, x, l->n_in, dy, l->n_out,
        &(struct nn_linear_grad){.dx = dx,
                                 .lddx = l->n_in,
                                 .dweight = grad + (l->weight - net->params),
                                 .dbias = l->bias ? grad + (l->bias - net->params) : NULL});
}

#endif
