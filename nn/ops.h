// ops.h - the operators of transformer policies, forward and backward, on packed rows.
//
// A buffer of rows is (n, width) with a distance `ld` between rows, of any length: sequences lie
// one behind the other, without padding, and operators that mix rows take cumulative lengths.
// Weights are (n_out, n_in) as PyTorch has them. Gradients of parameters are added to, gradients of
// inputs are set unless it says otherwise.
//
// A device implements `struct nn_backend`; `nn_cpu` is the one for the CPU. Every function is pure:
// it allocates nothing, keeps nothing and cannot fail; shapes are the caller's to check.
//
// What a row becomes does not depend on the rows beside it, to the bit: each number is one chain
// of sums in the order of its own row. That holds on one processor type; another vector width
// rounds some sums differently.
//
// Threads: any; one call works on its caller's thread.
#ifndef NN_OPS_H
#define NN_OPS_H

#include "nn/real.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef REAL_IS_DOUBLE
#define nn_linear_forward      nn_linear_forward_f64
#define nn_linear_backward     nn_linear_backward_f64
#define nn_rms_forward         nn_rms_forward_f64
#define nn_rms_backward        nn_rms_backward_f64
#define nn_layer_norm_forward  nn_layer_norm_forward_f64
#define nn_layer_norm_backward nn_layer_norm_backward_f64
#define nn_gelu_forward        nn_gelu_forward_f64
#define nn_gelu_backward       nn_gelu_backward_f64
#define nn_silu_forward        nn_silu_forward_f64
#define nn_silu_backward       nn_silu_backward_f64
#define nn_glu_forward         nn_glu_forward_f64
#define nn_glu_backward        nn_glu_backward_f64
#define nn_add                 nn_add_f64
#define nn_rope_table          nn_rope_table_f64
#define nn_rope                nn_rope_f64
#define nn_rows_copy           nn_rows_copy_f64
#define nn_rows_add            nn_rows_add_f64
#define nn_patches             nn_patches_f64
#define nn_attention_forward   nn_attention_forward_f64
#define nn_attention_backward  nn_attention_backward_f64
#define nn_attention_scores    nn_attention_scores_f64
#define nn_attention_scratch   nn_attention_scratch_f64
#define nn_block_limits        nn_block_limits_f64
#define nn_cpu                 nn_cpu_f64
#endif

// --- linear: y = x W^T + b -----------------------------------------------------------------------

struct nn_linear {
    int n_in, n_out;
    const real *weight; // (n_out, n_in)
    const real *bias;   // (n_out); NULL: none
};

struct nn_linear_grad {
    real *dx; // (n, n_in); NULL: not wanted
    int lddx;
    bool add;      // dx is added to
    real *dweight; // (n_out, n_in); NULL: no gradient of parameters
    real *dbias;   // (n_out); NULL where there is none
};

// y (n, n_out) from x (n, n_in).
void nn_linear_forward(const struct nn_linear *l, int n, const real *x, int ldx, real *y, int ldy);

// From dy (n, n_out), and x of the forward pass.
void nn_linear_backward(const struct nn_linear *l, int n, const real *x, int ldx, const real *dy,
                        int lddy, const struct nn_linear_grad *g);

// --- norms ---------------------------------------------------------------------------------------

struct nn_norm {
    int width;
    real eps;
    const real *weight; // (width)
    const real *bias;   // (width); NULL: none. LayerNorm only
    bool plus_one;      // the weight counts from 1, as Gemma's does. RMSNorm only
};

struct nn_norm_grad {
    real *dx;              // (n, width)
    bool add;              // dx is added to
    real *dweight, *dbias; // (width); NULL: no gradient of parameters
};

// RMSNorm (Zhang and Sennrich 2019): y = x / sqrt(mean x^2 + eps) * weight, rows contiguous; y may
// be x. rstd (n), NULL where no backward pass follows: the factor of each row.
void nn_rms_forward(const struct nn_norm *m, int n, const real *x, real *y, real *rstd);
void nn_rms_backward(const struct nn_norm *m, int n, const real *x, const real *rstd,
                     const real *dy, const struct nn_norm_grad *g);

// LayerNorm (Ba et al. 2016): y = (x - mean x) / sqrt(var x + eps) * weight + bias. mean_rstd
// (n, 2), NULL where no backward pass follows.
void nn_layer_norm_forward(const struct nn_norm *m, int n, const real *x, real *y, real *mean_rstd);
void nn_layer_norm_backward(const struct nn_norm *m, int n, const real *x, const real *mean_rstd,
                            const real *dy, const struct nn_norm_grad *g);

// --- activations, of n numbers -------------------------------------------------------------------

// GELU by tanh: y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
void nn_gelu_forward(int64_t n, const real *x, real *y);
void nn_gelu_backward(int64_t n, const real *x, const real *dy, real *dx); // dx may be dy
// SiLU: y = x / (1 + exp(-x)).
void nn_silu_forward(int64_t n, const real *x, real *y);
void nn_silu_backward(int64_t n, const real *x, const real *dy, real *dx); // dx may be dy

// Gated units (Shazeer 2020): u (n, 2 m) is gate and up, y (n, m) = f(gate) * up.
enum nn_gate { NN_SWIGLU, NN_GEGLU }; // f is SiLU, GELU by tanh
void nn_glu_forward(enum nn_gate f, int n, int m, const real *u, real *y);
void nn_glu_backward(enum nn_gate f, int n, int m, const real *u, const real *dy, real *du);

// y = a + b; y may be either.
void nn_add(int64_t n, const real *a, const real *b, real *y);

// --- rows ----------------------------------------------------------------------------------------

// Which rows go where: row i of n is src[from[i]] and dst[to[i]]; NULL: row i itself.
struct nn_rows {
    int n, width;
    const int *from, *to;
};

// dst = src, and dst += src one row after the other. Embeddings are rows copied from a table, their
// backward pass adds rows to the table's gradient.
void nn_rows_copy(const struct nn_rows *r, const real *src, int lds, real *dst, int ldd);
void nn_rows_add(const struct nn_rows *r, const real *src, int lds, real *dst, int ldd);

// Patches of n_image pictures (side, side, 3) as rows (n_image * patches, 3 * patch * patch), by
// rows of patches; a row is ordered (colour, y, x), its numbers run from -1 to 1.
void nn_patches(int n_image, const uint8_t *const *image, int side, int patch, real *rows);

// --- rotary positions (Su et al. 2021), split halves ---------------------------------------------

// table (n, head_dim) of positions 0 .. n - 1: cosines, then sines, of position times
// base^(-i / (head_dim / 2)).
void nn_rope_table(int n, int head_dim, double base, real *table);

struct nn_rope {
    int heads, head_dim;
    const real *table;   // (positions, head_dim)
    const int *position; // (rows.n)
    bool inverse;        // the backward pass: the other way round
};

// dst[to[i]] = src[from[i]] with every head rotated; rows.width is not read.
void nn_rope(const struct nn_rope *m, const struct nn_rows *r, const real *src, int lds, real *dst,
             int ldd);

// --- attention -----------------------------------------------------------------------------------

// Of sequences that do not see each other, by an online softmax over tiles of keys: no (n, n)
// buffer (Dao et al. 2022). A query sees the first `limit` keys of its sequence. That is all that
// masks by cumulative blocks ("a query sees the keys whose block is not after its own") need; see
// nn_block_limits. One that sees nothing gets zeros.
struct nn_attention {
    int heads, kv_heads, head_dim; // query head h uses key head h / (heads / kv_heads)
    real scale;                    // of the scores, usually 1 / sqrt(head_dim)
    int n_seq;
    const int *cu_q, *cu_k; // (n_seq + 1) rows before each sequence's
    const int *limit;       // (rows of q); NULL: every query sees all keys of its sequence
    const real *q, *k, *v;  // (rows, heads * head_dim) or (rows, kv_heads * head_dim)
    int ldq, ldk, ldv;
    real *o; // (rows of q, heads * head_dim)
    int ldo;
    real *lse;     // (rows of q, heads) log of the sum of exp(scores); NULL: no backward pass
    real *scratch; // nn_attention_scratch numbers
};

struct nn_attention_grad {
    const real *d_o;    // by o
    real *dq, *dk, *dv; // set
    int ldd_o, lddq, lddk, lddv;
};

// That of sequences to themselves from rows (n, 3 width) of queries, keys and values, with as many
// heads of keys, to o (n, width); without limit and lse.
struct nn_attention nn_attention_of_qkv(int width, int heads, int n_seq, const int *cu,
                                        const real *qkv, real *o, real *scratch);

// Numbers of scratch for sequences of at most max_k keys; `backward`: for both passes.
int64_t nn_attention_scratch(int max_k, int head_dim, bool backward);
void nn_attention_forward(const struct nn_attention *a);
void nn_attention_backward(const struct nn_attention *a, const struct nn_attention_grad *g);

// score (rows of k) of every key: its probabilities summed over queries and heads. v, o and lse are
// not used.
void nn_attention_scores(const struct nn_attention *a, real *score);

// Limits of tokens whose sequences are cu (n_seq + 1) and which begin a new block where `begins`:
// every token sees all up to the end of its own block.
void nn_block_limits(int n_seq, const int *cu, const uint8_t *begins, int *limit);

// --- the table that a device fills ---------------------------------------------------------------

struct nn_backend {
    const char *name;
    void (*linear_forward)(const struct nn_linear *l, int n, const real *x, int ldx, real *y,
                           int ldy);
    void (*linear_backward)(const struct nn_linear *l, int n, const real *x, int ldx,
                            const real *dy, int lddy, const struct nn_linear_grad *g);
    void (*rms_forward)(const struct nn_norm *m, int n, const real *x, real *y, real *rstd);
    void (*rms_backward)(const struct nn_norm *m, int n, const real *x, const real *rstd,
                         const real *dy, const struct nn_norm_grad *g);
    void (*layer_norm_forward)(const struct nn_norm *m, int n, const real *x, real *y,
                               real *mean_rstd);
    void (*layer_norm_backward)(const struct nn_norm *m, int n, const real *x,
                                const real *mean_rstd, const real *dy,
                                const struct nn_norm_grad *g);
    void (*gelu_forward)(int64_t n, const real *x, real *y);
    void (*gelu_backward)(int64_t n, const real *x, const real *dy, real *dx);
    void (*silu_forward)(int64_t n, const real *x, real *y);
    void (*silu_backward)(int64_t n, const real *x, const real *dy, real *dx);
    void (*glu_forward)(enum nn_gate f, int n, int m, const real *u, real *y);
    void (*glu_backward)(enum nn_gate f, int n, int m, const real *u, const real *dy, real *du);
    void (*add)(int64_t n, const real *a, const real *b, real *y);
    void (*rows_copy)(const struct nn_rows *r, const real *src, int lds, real *dst, int ldd);
    void (*rows_add)(const struct nn_rows *r, const real *src, int lds, real *dst, int ldd);
    void (*patches)(int n_image, const uint8_t *const *image, int side, int patch, real *rows);
    void (*rope_table)(int n, int head_dim, double base, real *table);
    void (*rope)(const struct nn_rope *m, const struct nn_rows *r, const real *src, int lds,
                 real *dst, int ldd);
    void (*attention_forward)(const struct nn_attention *a);
    void (*attention_backward)(const struct nn_attention *a, const struct nn_attention_grad *g);
    void (*attention_scores)(const struct nn_attention *a, real *score);
    int64_t (*attention_scratch)(int max_k, int head_dim, bool backward);
};

extern const struct nn_backend nn_cpu;

#endif
