// published_priv.h - the inside of a policy of nn/published.h, shared by its sources.
#ifndef NN_PUBLISHED_PRIV_H
#define NN_PUBLISHED_PRIV_H

#include "nn/ops.h"
#include "nn/published.h"

#include <stddef.h>

#define PUBLISHED_LAYERS_MAX 64

// RMSNorm; of pi0.5's expert scale, shift and gate are a linear function of the time.
struct pub_norm {
    const float *weight;    // (width); NULL: adaptive
    struct nn_linear dense; // width to 3 width
};

struct pub_block {
    struct pub_norm norm1, norm2;
    struct nn_linear q, k, v, o, up, down; // up: gate and up
};

struct pub_stream {
    bool gemma; // norms count from 1, eps 1e-6, GeGLU; else llama's, 1e-5, SwiGLU
    int n_layer, width, mlp;
    struct pub_block block[PUBLISHED_LAYERS_MAX];
    struct pub_norm norm; // the last; of the expert alone
};

struct pub_vision_block {
    struct nn_norm norm1, norm2;
    struct nn_linear qkv, out, up, down;
};

struct pub_tower {
    int patch, grid, width, mlp, heads, n_layer;
    int shuffle; // so many by so many tokens become one
    struct nn_linear embed, connector;
    const float *position; // (grid^2, width)
    struct pub_vision_block block[PUBLISHED_LAYERS_MAX];
    struct nn_norm post;
    // rows of one picture: (grid^2, ...)
    float *patches, *x, *y, *qkv, *up, *scratch;
};

struct published {
    struct published_shape shape;
    int head_dim, heads, kv_heads;
    int self_every; // SmolVLA: layers of the prefix with a joint attention, 0: none; pi: 1
    struct pub_tower tower;
    struct pub_stream prefix, expert;
    const float *embed;     // (vocab, prefix.width)
    struct nn_linear state; // of SmolVLA and pi0
    struct nn_linear action_in, action_out, time_in, time_out;
    float **held; // (n_held) blocks of memory
    int n_held, held_max;
    // what it computes with; room for max_prefix rows of prefix, max_suffix of suffix
    int max_prefix, max_suffix;
    float *k[PUBLISHED_LAYERS_MAX], *v[PUBLISHED_LAYERS_MAX]; // (max_prefix + max_suffix, kv)
    float *cross_k[PUBLISHED_LAYERS_MAX], *cross_v[PUBLISHED_LAYERS_MAX]; // (max_prefix, kv)
    float *rope;                        // (max_prefix + max_suffix, head_dim)
    float *x, *norm, *q, *o, *up, *act; // rows of either stream
    float *s, *in, *time, *cond;        // the suffix; (chunk, 2 width); (width) twice
    float *mod;                         // (3, width) of an adaptive norm
    float *padded, *seen_state;         // the state, (state.n_in), and of pi0 its row of the suffix
    float *noisy, *velocity;            // (chunk, n_action)
    float *scratch;
    int *limit, *position; // (max_prefix + max_suffix)
    int n_prefix;          // rows of the last published_see
};

// n numbers, zero, that published_close frees.
NODISCARD enum status pub_hold(struct published *p, int64_t n, float **out);

// From the folder: shape, sizes and weights.
NODISCARD enum status pub_load(struct published *p, const char *folder,
                               const struct published_sizes *sizes);

// Tokens that the tower makes of a picture, and room for it.
int pub_tower_tokens(const struct pub_tower *t);
NODISCARD enum status pub_tower_room(struct published *p);
// A picture's tokens, out (tokens, connector.n_out).
void pub_tower_forward(const struct pub_tower *t, const float *image, float *out);

static inline void pub_linear(const struct nn_linear *l, int n, const float *x, float *y)
{
    nn_linear_forward(l, n, x, l->n_in, y, l->n_out);
}

#endif
