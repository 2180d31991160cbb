// encoder.h - convolutions from pictures to features, the first part of what the networks of a
// model with vision take in: forward that keeps what backward needs, and backward that adds to a
// gradient.
//
// A row's pictures are `stack` RGB pictures of uint8 (height, width, 3), the oldest first; the
// first convolution sees them side by side, (height, width, stack * 3), divided by 255. Each
// convolution is followed by tanh. Weights are (out, kernel row, kernel column, in) and lie as
// model.h's table has them: weight, bias, layer after layer. A convolution is linear.h's kernel on
// the patches of one row at a time, so a row's features are the same to the bit in any batch.
//
// Threads: a packed encoder may be read by many threads, each with its own struct encoder_rows.
#ifndef NN_ENCODER_H
#define NN_ENCODER_H

#include "common/base/status.h"
#include "nn/linear.h"
#include "nn/model.h"

#ifdef REAL_IS_DOUBLE
#define encoder_init      encoder_init_f64
#define encoder_fini      encoder_fini_f64
#define encoder_pack      encoder_pack_f64
#define encoder_rows_init encoder_rows_init_f64
#define encoder_rows_fini encoder_rows_fini_f64
#define encoder_forward   encoder_forward_f64
#define encoder_backward  encoder_backward_f64
#endif

// Numbers lie (h, w, channels), those of one place `ld` after those of the place before.
struct encoder_layer {
    struct linear linear; // a patch (kernel, kernel, c_in) -> channels
    int kernel, stride;
    int w_in, c_in, ld_in; // its input
    int h, w;              // its output, whose ld is REAL_LD(channels)
};

struct encoder {
    struct model_vision vision;
    int n_layer; // 0: no vision; forward and backward must not be called
    int n_feature;
    int n_obs; // numbers of the observation behind the features, 0 = none
    struct encoder_layer layer[MODEL_CONV_MAX];
    const real *params; // as of encoder_pack, borrowed
    real *packed;       // memory of the layers
};

// What one thread needs to push up to n_max rows through an encoder.
struct encoder_rows {
    real *input;               // one row's pictures (height, width, stack * 3)
    real *patch;               // of one row and layer (places, REAL_LD(patch))
    real *patch_grad;          // (same)
    real *act[MODEL_CONV_MAX]; // (n_max, h, w, ld) output of each layer
    real *grad;                // the largest layer's (h, w, ld), twice
    real *memory;
};

NODISCARD enum status encoder_init(struct encoder *e, const struct model_shape *shape);
void encoder_fini(struct encoder *e);

// Take over new parameters. They must stay where they are while backward is in use.
void encoder_pack(struct encoder *e, const real *params);

NODISCARD enum status encoder_rows_init(struct encoder_rows *rows, const struct encoder *e,
                                        int n_max, bool backward);
void encoder_rows_fini(struct encoder_rows *rows);

// What the networks take in of n rows, x (n, REAL_LD(model_n_in)): the features of their pictures
// (n, stack), then obs (n, REAL_LD(n_obs)) if the model sees it. The padding is not touched.
void encoder_forward(const struct encoder *e, struct encoder_rows *rows,
                     const uint8_t *const *pictures, const real *obs, int n, real *x);

// After encoder_forward of the same rows: add the gradient of the parameters to param_grad. x_grad
// (n, REAL_LD(model_n_in)) is the loss's by x.
void encoder_backward(const struct encoder *e, struct encoder_rows *rows,
                      const uint8_t *const *pictures, int n, const real *x_grad, real *param_grad);

#endif
