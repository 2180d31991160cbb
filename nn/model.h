// model.h - the Gaussian MLP policy and its value network: shape, parameter table, initial values.
//
// Policy: obs (n_obs) -> tanh layers -> mean (n_act); a learned log standard deviation (n_act) that
// does not depend on the observation. Value: obs -> tanh layers -> 1. No shared layers. Parameters
// are one flat vector: policy, log_std, value. The table names its pieces as PyTorch's Sequential
// would, which counts the tanh layers: "policy.0.weight" (out, in), "policy.0.bias",
// "policy.2.weight", ..., "log_std", "value.0.weight", ...
//
// A model with vision has an encoder before both networks and shared by them: pictures -> tanh
// convolutions -> features; "encoder.0.weight" (out, kernel * kernel * in), and so on, come first
// in the vector. The networks see the features, and behind them the observation if `state` is set.
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include "common/base/status.h"

#include <stdint.h>

#define MODEL_LAYERS_MAX 4
#define MODEL_WIDTH_MAX  4096
#define MODEL_OBS_MAX    (1 << 20)
#define MODEL_ACT_MAX    64
#define MODEL_RGB        3
#define MODEL_CONV_MAX   4
#define MODEL_SIDE_MAX   1024 // of a picture
#define MODEL_STACK_MAX  8
#define MODEL_KERNEL_MAX 32
#define MODEL_PIECES_MAX (4 * (MODEL_LAYERS_MAX + 1) + 1 + 2 * MODEL_CONV_MAX)

struct model_conv {
    int channels, kernel, stride; // no padding around the picture
};

// What a model sees of one camera; n_conv 0: nothing.
struct model_vision {
    int width, height; // of a picture, RGB
    int stack;         // pictures of as many successive steps are seen at once
    bool state;        // the observation is seen too
    int n_conv;
    struct model_conv conv[MODEL_CONV_MAX];
};

struct model_shape {
    int n_obs, n_act;
    int n_hidden; // hidden layers of each network, 1..MODEL_LAYERS_MAX
    int hidden[MODEL_LAYERS_MAX];
    struct model_vision vision;
};

struct model_piece {
    char name[32];
    int64_t offset; // into the flat vector
    int rows, cols; // cols 0: a vector of `rows`
};

struct model_table {
    int n_piece;
    int i_log_std; // its piece
    int64_t n_param;
    int64_t n_encoder; // parameters of the encoder, the first of all; 0 without vision
    int64_t n_policy;  // with those of the policy and log_std; the value network's come after
    struct model_piece piece[MODEL_PIECES_MAX];
};

// "256,256" -> hidden sizes. ST_INVAL says what was expected.
NODISCARD enum status model_shape_parse(struct model_shape *out, int n_obs, int n_act,
                                        const char *hidden);
NODISCARD enum status model_shape_check(const struct model_shape *shape);
// The hidden layers as model_shape_parse takes them, into a buffer of at least 64 bytes.
void model_shape_print(const struct model_shape *shape, char *out, size_t size);
bool model_shape_equal(const struct model_shape *a, const struct model_shape *b);
void model_table_make(struct model_table *out, const struct model_shape *shape);

// "16x8/4,32x4/2": channels x kernel / stride of each convolution, into `v`, whose picture is set.
NODISCARD enum status model_conv_parse(struct model_vision *v, const char *conv);
// As model_conv_parse takes it, into a buffer of at least 96 bytes.
void model_conv_print(const struct model_vision *v, char *out, size_t size);

// One side of what a convolution puts out for a side of `n`.
static inline int model_conv_out(int n, const struct model_conv *c)
{
    return (n - c->kernel) / c->stride + 1;
}

// Numbers that one output of convolution i depends on: kernel rows, columns, channels.
static inline int model_patch(const struct model_vision *v, int i)
{
    return v->conv[i].kernel * v->conv[i].kernel *
           (i > 0 ? v->conv[i - 1].channels : MODEL_RGB * v->stack);
}

// Bytes of a picture; 0 without vision.
size_t model_picture_bytes(const struct model_vision *v);
// Numbers that the encoder makes of a row's pictures: positions by channels, the channel fastest.
int model_n_feature(const struct model_vision *v);
// Numbers that both networks take in.
int model_n_in(const struct model_shape *shape);

// Orthogonal weights (gain sqrt 2 hidden, 0.01 policy head, 1 value head), zero biases, log_std as
// given. A function of the seed alone.
NODISCARD enum status model_init(const struct model_shape *shape, uint64_t seed, double log_std,
                                 float *params);

#endif
