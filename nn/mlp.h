// mlp.h - a multilayer perceptron with tanh between its layers: forward that keeps what backward
// needs, and backward that adds to a gradient.
//
// Parameters lie as model.h's table has them: weight (out, in), bias (out), layer after layer.
// Rows of inputs, activations and outputs are REAL_LD long, the padding is zero.
//
// Threads: a packed net may be read by many threads, each with its own struct mlp_rows.
#ifndef NN_MLP_H
#define NN_MLP_H

#include "common/base/status.h"
#include "nn/linear.h"
#include "nn/model.h"

#ifdef REAL_IS_DOUBLE
#define mlp_init      mlp_init_f64
#define mlp_fini      mlp_fini_f64
#define mlp_pack      mlp_pack_f64
#define mlp_n_param   mlp_n_param_f64
#define mlp_rows_init mlp_rows_init_f64
#define mlp_rows_fini mlp_rows_fini_f64
#define mlp_forward   mlp_forward_f64
#define mlp_backward  mlp_backward_f64
#endif

#define MLP_LAYERS_MAX (MODEL_LAYERS_MAX + 1)

struct mlp {
    int n_layer;
    struct linear layer[MLP_LAYERS_MAX];
    const real *params; // (n_param) as of mlp_pack, borrowed
    real *packed;       // memory of the layers
};

// What one thread needs to push up to n_max rows through a net.
struct mlp_rows {
    int n_max;
    real *act[MLP_LAYERS_MAX];  // (n_max, REAL_LD(n_out)) output of each layer
    real *grad[MLP_LAYERS_MAX]; // the loss's gradient by it; the caller fills the last one
    real *memory;
};

// A net from model_n_in through the hidden layers of `shape` to n_out numbers. Unpacked.
NODISCARD enum status mlp_init(struct mlp *m, const struct model_shape *shape, int n_out);
void mlp_fini(struct mlp *m);
int64_t mlp_n_param(const struct mlp *m);

// Take over new parameters. They must stay where they are while backward is in use.
void mlp_pack(struct mlp *m, const real *params);

NODISCARD enum status mlp_rows_init(struct mlp_rows *rows, const struct mlp *m, int n_max,
                                    bool backward);
void mlp_rows_fini(struct mlp_rows *rows);

// Outputs of n rows of x (n, REAL_LD(n_in)): (n, REAL_LD(n_out)), in rows->act.
const real *mlp_forward(const struct mlp *m, struct mlp_rows *rows, const real *x, int n);

// Where the caller puts the gradient by the outputs, (n, REAL_LD(n_out)), before mlp_backward.
static inline real *mlp_out_grad(const struct mlp *m, const struct mlp_rows *rows)
{
    return rows->grad[m->n_layer - 1];
}

// After mlp_forward of the same rows: add the gradient of the parameters to param_grad (n_param),
// and set x_grad (n, REAL_LD(n_in)) to that by x unless it is NULL; its padding is not touched.
void mlp_backward(const struct mlp *m, struct mlp_rows *rows, const real *x, int n,
                  real *param_grad, real *x_grad);

#endif
