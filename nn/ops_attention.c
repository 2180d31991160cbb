#include "nn/ops.h"

#include <math.h>
#include <stddef.h>

#define QUERIES 32 // of a tile
#define KEYS    64
#define NEVER   ((real)-1e30) // a score whose exp is 0

#ifdef REAL_IS_DOUBLE
#define LOG log
#else
#define LOG logf
#endif

// The keys and values of one sequence and head, packed, and a tile of queries: all in the scratch.
struct side {
    int n_k;
    real *k_tiles, *v_tiles;         // (tiles, head_dim, KEYS)
    real *k_rows, *v_rows, *dk, *dv; // (n_k, REAL_LD(head_dim))
    real *q_rows, *d_rows, *out;     // (QUERIES, REAL_LD(head_dim))
};

static int whole_tiles(int n_k)
{
    return (n_k + KEYS - 1) / KEYS * KEYS;
}

static struct side side_of(const struct nn_attention *a, int s, bool backward)
{
    const ptrdiff_t ld = REAL_LD(a->head_dim);
    struct side x = {.n_k = a->cu_k[s + 1] - a->cu_k[s]};
    const ptrdiff_t keys = whole_tiles(x.n_k) * ld;
    real *at = a->scratch;

    x.out = at;
    x.q_rows = at + QUERIES * ld;
    x.d_rows = at + 2 * QUERIES * ld;
    at += (backward ? 3 : 1) * QUERIES * ld;
    x.k_tiles = at;
    if (!backward) {
        x.v_rows = at + keys;
        return x;
    }
    x.v_tiles = at + keys;
    x.k_rows = at + 2 * keys;
    x.dk = at + 3 * keys;
    x.dv = at + 4 * keys;
    return x;
}

static inline int limit_of(const struct nn_attention *a, const struct side *s, int q)
{
    return a->limit ? a->limit[q] : s->n_k;
}

#define KERNELS "nn/ops_attention_priv.h"
#include "nn/ops_levels.h"

struct nn_attention nn_attention_of_qkv(int width, int heads, int n_seq, const int *cu,
                                        const real *qkv, real *o, real *scratch)
{
    return (struct nn_attention){.heads = heads,
                                 .kv_heads = heads,
                                 .head_dim = width / heads,
                                 .scale = 1 / (real)sqrt((double)width / heads),
                                 .n_seq = n_seq,
                                 .cu_q = cu,
                                 .cu_k = cu,
                                 .q = qkv,
                                 .k = qkv + width,
                                 .v = qkv + 2 * (ptrdiff_t)width,
                                 .ldq = 3 * width,
                                 .ldk = 3 * width,
                                 .ldv = 3 * width,
                                 .o = o,
                                 .ldo = width,
                                 .scratch = scratch};
}

int64_t nn_attention_scratch(int max_k, int head_dim, bool backward)
{
    const int64_t ld = REAL_LD(head_dim);

    return backward ? (5 * whole_tiles(max_k) + 3 * QUERIES) * ld
                    : (2 * whole_tiles(max_k) + QUERIES) * ld;
}

void nn_attention_forward(const struct nn_attention *a)
{
    DISPATCH(attention_forward, a);
}

void nn_attention_backward(const struct nn_attention *a, const struct nn_attention_grad *g)
{
    DISPATCH(attention_backward, a, g);
}

void nn_attention_scores(const struct nn_attention *a, real *score)
{
    DISPATCH(attention_scores, a, score);
}
