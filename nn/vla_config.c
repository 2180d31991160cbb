#include "nn/vla_config.h"

#include "common/base/config.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/rng.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// field, low, high, vla-tiny, vla-small, meaning
#define VLA_FIELDS(X)                                                                 \
    X(cameras, 1, 16, "2", "2", "different cameras")                                  \
    X(image, 4, 1024, "64", "64", "side of a picture in pixels")                      \
    X(vocab, 2, 1000000, "260", "260", "token ids")                                   \
    X(state, 1, 4096, "8", "8", "numbers of the robot's state")                       \
    X(action, 1, 64, "7", "7", "numbers of an action")                                \
    X(chunk, 1, 256, "8", "8", "actions that come out at once")                       \
    X(patch, 1, 128, "8", "8", "side of a patch in pixels")                           \
    X(vision_width, 1, 8192, "128", "256", "width of the vision transformer")         \
    X(vision_layers, 1, VLA_LAYERS_MAX, "2", "4", "its layers")                       \
    X(vision_heads, 1, 256, "4", "8", "its heads")                                    \
    X(vision_mlp, 1, 65536, "256", "1024", "width inside its MLPs")                   \
    X(width, 1, 8192, "128", "256", "width of the trunk")                             \
    X(layers, 1, VLA_LAYERS_MAX, "4", "7", "layers of trunk and expert")              \
    X(heads, 1, 256, "4", "8", "query heads of trunk and expert")                     \
    X(kv_heads, 1, 256, "2", "4", "key and value heads, which the query heads share") \
    X(head_dim, 2, 512, "32", "32", "numbers of a head")                              \
    X(mlp, 1, 65536, "256", "768", "width inside the trunk's MLPs")                   \
    X(expert_width, 1, 8192, "96", "160", "width of the action expert")               \
    X(expert_mlp, 1, 65536, "192", "384", "width inside its MLPs")                    \
    X(keep, 1, 100, "100", "100", "percent of picture tokens that pass")              \
    X(steps, 1, 100, "4", "4", "steps of a flow from noise to actions")

// What a JSON object fills; the preset first, then the fields it changes.
struct choice {
    struct vla_config c;
    int model, head;
};

#define MODELS "vla-tiny|vla-small"
#define FIELD(name, low, high, def, help) \
    {#name, OPT_INT, offsetof(struct choice, c.name), low, high, def, help, NULL},
#define TINY(name, low, high, tiny, small, help)  FIELD(name, low, high, tiny, help)
#define SMALL(name, low, high, tiny, small, help) FIELD(name, low, high, small, help)
#define MODEL(def)                                {"model", OPT_ENUM, offsetof(struct choice, model), 0, 0, def, "preset", MODELS},
#define LAST                                     \
    {                                            \
        NULL, OPT_INT, 0, 0, 0, NULL, NULL, NULL \
    }

#define HEAD                                                                                  \
    {"head",   OPT_ENUM, offsetof(struct choice, head), 0, 0, "gaussian", "what actions are", \
     VLA_HEADS},

static const struct opt tiny_table[] = {MODEL("vla-tiny") VLA_FIELDS(TINY) HEAD LAST};
static const struct opt small_table[] = {MODEL("vla-small") VLA_FIELDS(SMALL) HEAD LAST};

static const struct opt *const tables[] = {tiny_table, small_table}; // in the order of MODELS

enum status vla_config_check(const struct vla_config *c)
{
#define CHECK(name, low, high, tiny, small, help)                                                  \
    if (c->name < (low) || c->name > (high))                                                       \
        return FAIL(ST_INVAL, "%s is %lld, expected %lld to %lld (%s)", #name, (long long)c->name, \
                    (long long)(low), (long long)(high), help);
    VLA_FIELDS(CHECK)
#undef CHECK
    if (c->image % c->patch != 0)
        return FAIL(ST_INVAL, "image is %lld, expected a multiple of patch, %lld",
                    (long long)c->image, (long long)c->patch);
    if (c->vision_width % c->vision_heads != 0)
        return FAIL(ST_INVAL, "vision_width is %lld, expected a multiple of vision_heads, %lld",
                    (long long)c->vision_width, (long long)c->vision_heads);
    if (c->vision_width / c->vision_heads > 512)
        return FAIL(ST_INVAL, "vision_width is %lld, expected at most 512 a head",
                    (long long)c->vision_width);
    if (c->heads % c->kv_heads != 0)
        return FAIL(ST_INVAL, "heads is %lld, expected a multiple of kv_heads, %lld",
                    (long long)c->heads, (long long)c->kv_heads);
    if (c->keep < 100 && c->layers < 2)
        return FAIL(ST_INVAL,
                    "keep is %lld, expected 100 with one layer, which has no queries of the "
                    "prefix",
                    (long long)c->keep);
    if (c->head_dim % 2 != 0)
        return FAIL(ST_INVAL, "head_dim is %lld, expected an even number", (long long)c->head_dim);
    if (c->head != VLA_GAUSSIAN && c->head != VLA_FLOW)
        return FAIL(ST_INVAL, "head is number %lld, expected one of " VLA_HEADS,
                    (long long)c->head);
    if (c->head == VLA_FLOW && c->expert_width % 2 != 0)
        return FAIL(ST_INVAL,
                    "expert_width is %lld, expected an even number for sines and cosines of the "
                    "time",
                    (long long)c->expert_width);
    return ST_OK;
}

enum status vla_config_parse(struct vla_config *out, const char *text, const char *what)
{
    struct choice choice;

    TRY(opts_defaults(tiny_table, &choice));
    if (text[strspn(text, " \t\r\n")] != '{') {
        TRY(opts_set(tiny_table, &choice, "model", text));
        TRY(opts_defaults(tables[choice.model], &choice));
    } else {
        TRY(opts_json(tiny_table, &choice, text, what)); // for its preset
        TRY(opts_defaults(tables[choice.model], &choice));
        TRY(opts_json(tables[choice.model], &choice, text, what));
    }
    choice.c.head = choice.head;
    if (vla_config_check(&choice.c) != ST_OK)
        return error_prefix("%s", what);
    *out = choice.c;
    return ST_OK;
}

enum status vla_config_read(struct vla_config *out, const char *preset_or_path)
{
    enum status st;
    char *text;
    size_t n;

    if (!strchr(preset_or_path, '.') && !strchr(preset_or_path, '/'))
        return vla_config_parse(out, preset_or_path, "model");
    TRY(file_read(preset_or_path, &text, &n));
    st = text[strspn(text, " \t\r\n")] == '{'
             ? vla_config_parse(out, text, preset_or_path)
             : FAIL(ST_INVAL, "%s is not a JSON object of a model's sizes", preset_or_path);
    mem_free(text);
    return st;
}

void vla_config_print(const struct vla_config *c, char *out)
{
    size_t n = 0;

#define PRINT(name, low, high, tiny, small, help)                                                  \
    n += (size_t)snprintf(out + n, VLA_JSON_MAX - n, "%s\"%s\": %lld", n == 0 ? "{" : ", ", #name, \
                          (long long)c->name);
    VLA_FIELDS(PRINT)
#undef PRINT
    snprintf(out + n, VLA_JSON_MAX - n, ", \"head\": \"%s\"}",
             c->head == VLA_FLOW ? "flow" : "gaussian");
}

bool vla_config_equal(const struct vla_config *a, const struct vla_config *b)
{
    return memcmp(a, b, sizeof *a) == 0; // int64_t only, so no padding
}

int vla_patches(const struct vla_config *c)
{
    const int side = (int)(c->image / c->patch);

    return side * side;
}

int vla_kept(const struct vla_config *c, int n_image)
{
    const int64_t n = (int64_t)n_image * vla_patches(c);

    return (int)((n * c->keep + 99) / 100);
}

int vla_tokens(const struct vla_config *c, int n_image, int n_text)
{
    return vla_kept(c, n_image) + n_text + 1 + (int)c->chunk + 1;
}

static int64_t add(struct vla_table *t, int64_t rows, int64_t cols, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// The next piece of the vector; without memory for pieces they are only counted.
static int64_t add(struct vla_table *t, int64_t rows, int64_t cols, const char *fmt, ...)
{
    const int64_t offset = t->n_param;

    if (t->piece) {
        struct vla_piece *p = &t->piece[t->n_piece];
        va_list args;

        va_start(args, fmt);
        vsnprintf(p->name, sizeof p->name, fmt, args);
        va_end(args);
        p->offset = offset;
        p->rows = (int)rows;
        p->cols = (int)cols;
    }
    t->n_piece++;
    t->n_param += rows * (cols ? cols : 1);
    return offset;
}

static void add_vision_block(struct vla_table *t, const struct vla_config *c, int i)
{
    static const char *const parts[] = {"q", "k", "v"};
    const int64_t w = c->vision_width, m = c->vision_mlp;
    struct vla_block *b = &t->vision[i];
    int k;

#define LAYER "vision.layers.%d."
    b->norm1 = add(t, w, 0, LAYER "layer_norm1.weight", i);
    b->norm1_bias = add(t, w, 0, LAYER "layer_norm1.bias", i);
    b->qkv = t->n_param;
    for (k = 0; k < 3; k++)
        (void)add(t, w, w, LAYER "self_attn.%s_proj.weight", i, parts[k]);
    b->qkv_bias = t->n_param;
    for (k = 0; k < 3; k++)
        (void)add(t, w, 0, LAYER "self_attn.%s_proj.bias", i, parts[k]);
    b->out = add(t, w, w, LAYER "self_attn.out_proj.weight", i);
    b->out_bias = add(t, w, 0, LAYER "self_attn.out_proj.bias", i);
    b->norm2 = add(t, w, 0, LAYER "layer_norm2.weight", i);
    b->norm2_bias = add(t, w, 0, LAYER "layer_norm2.bias", i);
    b->up = add(t, m, w, LAYER "mlp.fc1.weight", i);
    b->up_bias = add(t, m, 0, LAYER "mlp.fc1.bias", i);
    b->down = add(t, w, m, LAYER "mlp.fc2.weight", i);
    b->down_bias = add(t, w, 0, LAYER "mlp.fc2.bias", i);
#undef LAYER
}

// A block of trunk or expert. `kv_only`: what the other stream needs of it and no more.
static void add_block(struct vla_table *t, const struct vla_config *c, struct vla_block *b,
                      const char *net, int i, int64_t w, int64_t m, bool kv_only)
{
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

    b->norm1_bias = b->qkv_bias = b->out_bias = b->norm2_bias = b->up_bias = b->down_bias = -1;
    b->out = b->norm2 = b->up = b->down = -1;
    b->norm1 = add(t, w, 0, "%s.layers.%d.input_layernorm.weight", net, i);
    b->qkv = t->n_param;
    if (!kv_only)
        (void)add(t, q, w, "%s.layers.%d.self_attn.q_proj.weight", net, i);
    (void)add(t, kv, w, "%s.layers.%d.self_attn.k_proj.weight", net, i);
    (void)add(t, kv, w, "%s.layers.%d.self_attn.v_proj.weight", net, i);
    if (kv_only)
        return;
    b->out = add(t, w, q, "%s.layers.%d.self_attn.o_proj.weight", net, i);
    b->norm2 = add(t, w, 0, "%s.layers.%d.post_attention_layernorm.weight", net, i);
    b->up = add(t, m, w, "%s.layers.%d.mlp.gate_proj.weight", net, i);
    (void)add(t, m, w, "%s.layers.%d.mlp.up_proj.weight", net, i);
    b->down = add(t, w, m, "%s.layers.%d.mlp.down_proj.weight", net, i);
}

static void add_flow(struct vla_table *t, int64_t w, int64_t n_act)
{
    t->action_in = add(t, w, n_act, "action_in_proj.weight");
    t->action_in_bias = add(t, w, 0, "action_in_proj.bias");
    t->time_in = add(t, w, 2 * w, "action_time_mlp_in.weight");
    t->time_in_bias = add(t, w, 0, "action_time_mlp_in.bias");
    t->time_out = add(t, w, w, "action_time_mlp_out.weight");
    t->time_out_bias = add(t, w, 0, "action_time_mlp_out.bias");
}

static void add_all(struct vla_table *t, const struct vla_config *c)
{
    int i;

    t->n_piece = 0;
    t->n_param = 0;
    t->patch = add(t, c->vision_width, VLA_RGB * c->patch * c->patch,
                   "vision.embeddings.patch_embedding.weight");
    t->patch_bias = add(t, c->vision_width, 0, "vision.embeddings.patch_embedding.bias");
    t->position =
        add(t, vla_patches(c), c->vision_width, "vision.embeddings.position_embedding.weight");
    for (i = 0; i < c->vision_layers; i++)
        add_vision_block(t, c, i);
    t->post_norm = add(t, c->vision_width, 0, "vision.post_layernorm.weight");
    t->post_norm_bias = add(t, c->vision_width, 0, "vision.post_layernorm.bias");
    t->connector = add(t, c->width, c->vision_width, "connector.weight");
    t->connector_bias = add(t, c->width, 0, "connector.bias");
    t->camera = add(t, c->cameras, c->width, "camera_embedding.weight");
    t->text = add(t, c->vocab, c->width, "text.embed_tokens.weight");
    t->state = add(t, c->width, c->state, "state_proj.weight");
    t->state_bias = add(t, c->width, 0, "state_proj.bias");
    for (i = 0; i < c->layers; i++)
        add_block(t, c, &t->trunk[i], "trunk", i, c->width, c->mlp, i == c->layers - 1);
    t->query = add(t, c->chunk + 1, c->expert_width, "expert.query.weight");
    if (c->head == VLA_FLOW)
        add_flow(t, c->expert_width, c->action);
    for (i = 0; i < c->layers; i++)
        add_block(t, c, &t->expert[i], "expert", i, c->expert_width, c->expert_mlp, false);
    t->expert_norm = add(t, c->expert_width, 0, "expert.norm.weight");
    t->mean = add(t, c->action, c->expert_width, "action_out_proj.weight");
    t->mean_bias = add(t, c->action, 0, "action_out_proj.bias");
    t->value = add(t, 1, c->expert_width, "value_head.weight");
    t->value_bias = add(t, 1, 0, "value_head.bias");
    t->log_std = add(t, c->action, 0, "log_std");
}

enum status vla_table_init(struct vla_table *t, const struct vla_config *c)
{
    memset(t, 0, sizeof *t);
    add_all(t, c);
    t->piece = mem_alloc((size_t)t->n_piece, sizeof *t->piece);
    if (!t->piece)
        return ST_NOMEM;
    add_all(t, c);
    return ST_OK;
}

void vla_table_fini(struct vla_table *t)
{
    mem_free(t->piece);
    t->piece = NULL;
}

static bool ends(const char *name, const char *tail)
{
    const size_t n = strlen(name), k = strlen(tail);

    return n >= k && strcmp(name + n - k, tail) == 0;
}

// Standard deviation of a piece's first values.
static double spread(const struct vla_config *c, const struct vla_piece *p)
{
    const double deep =
        1 /
        sqrt(2.0 * (double)(strncmp(p->name, "vision.", 7) == 0 ? c->vision_layers : c->layers));
    const double fan = p->cols ? 1 / sqrt((double)p->cols) : 0;

    if (ends(p->name, "embed_tokens.weight") || ends(p->name, "query.weight"))
        return 1;
    if (ends(p->name, "position_embedding.weight") || ends(p->name, "camera_embedding.weight"))
        return 0.5;
    if (ends(p->name, "out_proj.weight") && strncmp(p->name, "action", 6) != 0)
        return deep * fan;
    if (ends(p->name, "o_proj.weight") || ends(p->name, "down_proj.weight") ||
        ends(p->name, "fc2.weight"))
        return deep * fan;
    if (ends(p->name, "action_out_proj.weight") || ends(p->name, "value_head.weight"))
        return 0.1 * fan;
    return fan;
}

void vla_init(const struct vla_config *c, const struct vla_table *t, uint64_t seed, double log_std,
              float *params)
{
    for (int i = 0; i < t->n_piece; i++) {
        const struct vla_piece *p = &t->piece[i];
        struct rng rng = rng_make(seed, RNG_INIT, (uint64_t)i, 0, 0);
        const int64_t n = (int64_t)p->rows * (p->cols ? p->cols : 1);
        const double std = spread(c, p);
        float *w = params + p->offset;

        for (int64_t k = 0; k < n; k++)
            if (p->cols)
                w[k] = (float)(std * rng_normal(&rng));
            else if (p->offset == t->log_std)
                w[k] = (float)log_std;
            else
                w[k] = strstr(p->name, "norm") && ends(p->name, ".weight") ? 1 : 0;
    }
}
