// vla_config.h - sizes of a vision-language-action policy, its parameters' names, and their first
// values.
//
// The policy (nn/vla.h) is the family of SmolVLA and pi0. Pictures pass a vision transformer and a
// connector; their tokens, the instruction's and one for the robot's state are the prefix. A suffix
// of learned queries, one for each action of the chunk and one for the value, runs beside it in the
// action expert: own weights and width, one attention over both in every layer. The prefix sees
// itself, the actions see prefix and actions, the value query sees everything, nobody sees it.
//
// All sizes are one JSON object whose keys are the fields of struct vla_config:
//     {"model": "vla-tiny", "layers": 5, "image": 96}
// "model" names the preset that the others change: vla-tiny (1 M parameters), vla-small (10 M).
//
// "head" says what the actions are:
//   gaussian  diagonal, all dimensions alike, the gripper too: a mean for each dimension and step
//   of
//             the chunk, one learned log standard deviation for each dimension
//   flow      flow matching (nn/heads.h): the suffix sees noisy actions and their time besides, and
//             what comes out is a velocity, followed in "steps" steps from noise to actions. Its
//             log_std is the log of the noise level of the stochastic sampler
//
// Threads: a table may be read by many.
#ifndef NN_VLA_CONFIG_H
#define NN_VLA_CONFIG_H

#include "common/base/status.h"

#include <stdint.h>

#define VLA_LAYERS_MAX 64
#define VLA_NAME_MAX   80
#define VLA_JSON_MAX   1024 // bytes of vla_config_print
#define VLA_RGB        3

enum vla_head { VLA_GAUSSIAN, VLA_FLOW };
#define VLA_HEADS "gaussian|flow"

struct vla_config {
    // what comes in and goes out
    int64_t cameras; // different ones; a sequence may lack some
    int64_t image;   // side of a picture in pixels
    int64_t vocab;   // ids of the instruction's tokens are below
    int64_t state;   // numbers of the robot's state
    int64_t action;  // numbers of one action
    int64_t chunk;   // actions that come out at once
    // vision transformer (LayerNorm, GELU)
    int64_t patch; // side in pixels
    int64_t vision_width, vision_layers, vision_heads, vision_mlp;
    // trunk (RMSNorm, grouped query heads, RoPE, SwiGLU)
    int64_t width, layers, heads, kv_heads, head_dim, mlp;
    // action expert: as many layers and heads as the trunk
    int64_t expert_width, expert_mlp;
    // percent of a sequence's picture tokens that pass, those to which instruction and state attend
    // most (nn/vla_prune.c); 100: all
    int64_t keep;
    // what the actions are, enum vla_head; steps of a flow
    int64_t steps, head;
};

// One parameter tensor.
struct vla_piece {
    char name[VLA_NAME_MAX];
    int64_t offset; // into the flat vector
    int rows, cols; // cols 0: a vector of `rows`
};

// Where a transformer block has its parameters; -1: it has none such. q, k and v lie one behind the
// other, weights and biases, and so do gate and up: each is one linear operator.
struct vla_block {
    int64_t norm1, norm1_bias, qkv, qkv_bias, out, out_bias;
    int64_t norm2, norm2_bias, up, up_bias, down,
        down_bias; // `up`: gate and up where there are two
};

struct vla_table {
    int n_piece;
    struct vla_piece *piece; // (n_piece) in the order of the vector
    int64_t n_param;
    // vision
    int64_t patch, patch_bias,
        position; // (vision_width, 3 * patch * patch), (patches, vision_width)
    struct vla_block vision[VLA_LAYERS_MAX];
    int64_t post_norm, post_norm_bias, connector, connector_bias;
    // prefix
    int64_t camera, text, state, state_bias; // (cameras, width), (vocab, width), (width, state)
    struct vla_block trunk[VLA_LAYERS_MAX];  // the last layer has norm1, k and v only
    // suffix
    int64_t query; // (chunk + 1, expert_width), the value's last
    // of a flow: (expert_width, action), (expert_width, 2 * expert_width) of action and time,
    // square
    int64_t action_in, action_in_bias, time_in, time_in_bias, time_out, time_out_bias;
    struct vla_block expert[VLA_LAYERS_MAX];
    int64_t expert_norm, mean, mean_bias, value, value_bias;
    int64_t log_std; // (action)
};

// From a preset's name ("vla-tiny") or JSON text; `what` names the text in errors.
NODISCARD enum status vla_config_parse(struct vla_config *out, const char *text, const char *what);
// From a preset's name or a JSON file.
NODISCARD enum status vla_config_read(struct vla_config *out, const char *preset_or_path);
NODISCARD enum status vla_config_check(const struct vla_config *c);
// As vla_config_parse takes it, into a buffer of VLA_JSON_MAX.
void vla_config_print(const struct vla_config *c, char *out);
bool vla_config_equal(const struct vla_config *a, const struct vla_config *b);

// Patches of a picture: its tokens.
int vla_patches(const struct vla_config *c);
// Of so many pictures of one sequence, the tokens that pass.
int vla_kept(const struct vla_config *c, int n_image);
// Rows of a sequence's prefix and suffix together; what token budgets count.
int vla_tokens(const struct vla_config *c, int n_image, int n_text);

// The table of a checked configuration; ST_NOMEM.
NODISCARD enum status vla_table_init(struct vla_table *t, const struct vla_config *c);
void vla_table_fini(struct vla_table *t);

// First values, a function of the seed alone: normal weights of variance 1 / n_in, smaller for what
// a block adds to its stream (1 / sqrt(2 layers)) and for the heads, so that the means begin near
// zero; norms 1, biases 0, log_std as given.
void vla_init(const struct vla_config *c, const struct vla_table *t, uint64_t seed, double log_std,
              float *params);

#endif
