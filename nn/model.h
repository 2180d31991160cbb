// model.h - the Gaussian MLP policy and its value network: shape, parameter table, initial values.
//
// Policy: obs (n_obs) -> tanh layers -> mean (n_act); a learned log standard deviation (n_act) that
// does not depend on the observation. Value: obs -> tanh layers -> 1. No shared layers. Parameters
// are one flat vector: policy, log_std, value. The table names its pieces as PyTorch's Sequential
// would, which counts the tanh layers: "policy.0.weight" (out, in), "policy.0.bias",
// "policy.2.weight", ..., "log_std", "value.0.weight", ...
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include "common/base/status.h"

#include <stdint.h>

#define MODEL_LAYERS_MAX 4
#define MODEL_WIDTH_MAX  4096
#define MODEL_OBS_MAX    (1 << 20)
#define MODEL_ACT_MAX    64
#define MODEL_PIECES_MAX (4 * (MODEL_LAYERS_MAX + 1) + 1)

struct model_shape {
    int n_obs, n_act;
    int n_hidden; // hidden layers of each network, 1..MODEL_LAYERS_MAX
    int hidden[MODEL_LAYERS_MAX];
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
    int64_t n_policy; // parameters of the policy with log_std; the value network's come after
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

// Orthogonal weights (gain sqrt 2 hidden, 0.01 policy head, 1 value head), zero biases, log_std as
// given. A function of the seed alone.
NODISCARD enum status model_init(const struct model_shape *shape, uint64_t seed, double log_std,
                                 float *params);

#endif
