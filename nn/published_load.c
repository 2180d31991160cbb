#include "nn/published_priv.h"

#include "common/base/file.h"
#include "common/base/mem.h"
#include "nn/safetensors.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#define TEXT_MAX 256 // of a name; the longest has some 120 bytes
#define SMOL     "vlm_with_expert."
#define PALI     "paligemma_with_expert."

struct loader {
    struct published *p;
    struct safetensors *file;
};

enum status pub_hold(struct published *p, int64_t n, float **out)
{
    float *block;

    if (p->n_held == p->held_max) {
        const int more = p->held_max ? 2 * p->held_max : 256;
        float **held = mem_resize(p->held, (size_t)more, sizeof *held);

        if (!held)
            return ST_NOMEM;
        p->held = held;
        p->held_max = more;
    }
    block = mem_alloc((size_t)(n > 0 ? n : 1), sizeof *block);
    if (!block)
        return ST_NOMEM;
    p->held[p->n_held++] = *out = block;
    return ST_OK;
}

// --- config.json --------------------------------------------------------------------------------

// A whole number of the object, at a path of names and places in arrays.
static enum status number(const cJSON *j, const char *name, int low, int high, int *out)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, name);

    if (cJSON_IsArray(x))
        x = cJSON_GetArrayItem(x, 0); // a picture's sides, which are equal, or a feature's length
    if (!cJSON_IsNumber(x) || x->valuedouble != floor(x->valuedouble) || x->valuedouble < low ||
        x->valuedouble > high)
        return FAIL(ST_INVAL, "'%s' is not a whole number of %d to %d", name, low, high);
    *out = (int)x->valuedouble;
    return ST_OK;
}

static const char *text(const cJSON *j, const char *name)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, name);

    return cJSON_IsString(x) ? x->valuestring : "";
}

static enum status feature(const cJSON *config, const char *group, const char *name, int *out)
{
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(config, group);

    if (number(cJSON_GetObjectItemCaseSensitive(of, name), "shape", 1, 4096, out) != ST_OK)
        return error_prefix("%s.%s", group, name);
    return ST_OK;
}

static enum status count_cameras(const cJSON *config, int *out)
{
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(config, "input_features"), *f;
    int n = 0;

    cJSON_ArrayForEach(f, of) n += strcmp(text(f, "type"), "VISUAL") == 0;
    if (n < 1 || n > PUBLISHED_CAMERAS_MAX)
        return FAIL(ST_INVAL, "input_features has %d pictures, expected 1 to %d", n,
                    PUBLISHED_CAMERAS_MAX);
    *out = n;
    return ST_OK;
}

static enum status read_config(struct published *p, const cJSON *j)
{
    static const char *const kinds[] = {"smolvla", "pi0", "pi05"};
    struct published_shape *s = &p->shape;
    const char *type = text(j, "type");
    int kind = 0;

    while (kind < 3 && strcmp(type, kinds[kind]) != 0)
        kind++;
    if (kind == 3)
        return FAIL(ST_INVAL, "type is '%s', expected smolvla, pi0 or pi05", type);
    s->kind = (enum published_kind)kind;
    TRY(count_cameras(j, &s->cameras));
    TRY(number(j, "chunk_size", 1, 4096, &s->chunk));
    TRY(number(j, "tokenizer_max_length", 1, 4096, &s->texts));
    TRY(feature(j, "output_features", "action", &s->action));
    if (s->kind != PUBLISHED_PI05)
        TRY(feature(j, "input_features", "observation.state", &s->state));
    p->self_every = 1;
    if (s->kind != PUBLISHED_SMOLVLA) {
        TRY(number(j, "image_resolution", 1, 4096, &s->side));
        return number(j, "num_inference_steps", 1, 1000, &s->steps);
    }
    if (strcmp(text(j, "attention_mode"), "cross_attn") != 0)
        return FAIL(ST_INVAL, "attention_mode is '%s', expected cross_attn",
                    text(j, "attention_mode"));
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "add_image_special_tokens")))
        return FAIL(ST_INVAL, "add_image_special_tokens is true, expected false");
    TRY(number(j, "self_attn_every_n_layers", -1, 1000, &p->self_every));
    TRY(number(j, "resize_imgs_with_padding", 1, 4096, &s->side));
    return number(j, "num_steps", 1, 1000, &s->steps);
}

static enum status load_config(struct published *p, const char *folder)
{
    char path[PATH_MAX], *bytes;
    enum status st;
    cJSON *j;
    size_t n;

    if ((size_t)snprintf(path, sizeof path, "%s/config.json", folder) >= sizeof path)
        return FAIL(ST_INVAL, "folder name '%.60s...' is too long", folder);
    TRY(file_read(path, &bytes, &n));
    j = cJSON_ParseWithLength(bytes, n);
    mem_free(bytes);
    st = cJSON_IsObject(j) ? read_config(p, j) : FAIL(ST_INVAL, "not a JSON object");
    cJSON_Delete(j);
    return st == ST_OK ? st : error_prefix("%s", path);
}

// --- tensors ------------------------------------------------------------------------------------

struct tensor_name {
    char text[TEXT_MAX];
};

static struct tensor_name name_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static struct tensor_name name_of(const char *fmt, ...)
{
    struct tensor_name name;
    va_list args;

    va_start(args, fmt);
    vsnprintf(name.text, sizeof name.text, fmt, args);
    va_end(args);
    return name;
}

// `name` is the text that the format makes.
#define NAMED(name, ...)                                       \
    const struct tensor_name name##_of = name_of(__VA_ARGS__); \
    const char *const name = name##_of.text

static const struct safetensor *find(const struct loader *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

// Names may lack the "model." in front.
static const struct safetensor *find(const struct loader *l, const char *fmt, ...)
{
    const struct safetensor *t;
    char name[TEXT_MAX] = "model.";
    va_list args;

    va_start(args, fmt);
    vsnprintf(name + 6, sizeof name - 6, fmt, args);
    va_end(args);
    t = safetensors_find(l->file, name);
    return t ? t : safetensors_find(l->file, name + 6);
}

// Numbers of a tensor that must be (rows, cols) - cols 0: (rows) - at `to`, or in memory of its
// own.
static enum status get(struct loader *l, int64_t rows, int64_t cols, float *to, const float **out,
                       const char *name)
{
    const struct safetensor *t = find(l, "%s", name);
    const int64_t n = rows * (cols ? cols : 1);

    if (!t)
        return FAIL(ST_INVAL, "there is no array '%s'", name);
    // a convolution's weight has more dimensions than the matrix that it is
    if (t->n != n || t->rank < 1 || t->dims[0] != rows)
        return FAIL(ST_INVAL,
                    "'%s' has %lld numbers, the first of its dimensions is %lld; expected "
                    "%lld and %lld",
                    name, (long long)t->n, (long long)(t->rank ? t->dims[0] : 0), (long long)n,
                    (long long)rows);
    if (!to) {
        TRY(pub_hold(l->p, n, &to));
        *out = to;
    }
    return safetensors_read(l->file, t, to);
}

// The dimensions of a matrix, from its tensor.
static enum status matrix(struct loader *l, const char *name, int *rows, int *cols)
{
    const struct safetensor *t = find(l, "%s", name);

    if (!t || t->rank < 2 || t->n < 1 || t->dims[0] > 1 << 24 || t->n / t->dims[0] > 1 << 24)
        return FAIL(ST_INVAL, "there is no matrix '%s'", name);
    *rows = (int)t->dims[0];
    *cols = (int)(t->n / t->dims[0]);
    return ST_OK;
}

// Whether there is a bias is known of every layer.
static enum status check_bias(struct loader *l, const char *bias, bool wanted)
{
    if ((find(l, "%s", bias) != NULL) != wanted)
        return FAIL(ST_INVAL, "there is %s array '%s'", wanted ? "no" : "an unexpected", bias);
    return ST_OK;
}

enum { PLAIN, BIASED }; // without or with a bias

// A linear layer of n_in inputs (-1: any).
static enum status linear(struct loader *l, int n_in, int biased, struct nn_linear *out,
                          const char *part)
{
    int rows, cols;

    NAMED(weight, "%s.weight", part);
    NAMED(bias, "%s.bias", part);
    TRY(matrix(l, weight, &rows, &cols));
    if (n_in >= 0 && cols != n_in)
        return FAIL(ST_INVAL, "'%s' takes %d numbers, expected %d", weight, cols, n_in);
    *out = (struct nn_linear){.n_in = cols, .n_out = rows};
    TRY(get(l, rows, cols, NULL, &out->weight, weight));
    TRY(check_bias(l, bias, biased == BIASED));
    return biased == BIASED ? get(l, rows, 0, NULL, &out->bias, bias) : ST_OK;
}

// Layers that lie in a network side by side.
struct siblings {
    const char *const *part; // (n)
    int n, n_in, n_out, biased;
};

// As one layer, one behind the other.
static enum status stacked(struct loader *l, const struct siblings *of, const char *block,
                           struct nn_linear *out)
{
    const ptrdiff_t one = (ptrdiff_t)of->n_out * of->n_in;
    float *weight, *bias = NULL;

    TRY(pub_hold(l->p, of->n * one, &weight));
    if (of->biased == BIASED)
        TRY(pub_hold(l->p, (int64_t)of->n * of->n_out, &bias));
    for (int i = 0; i < of->n; i++) {
        NAMED(w, "%s%s.weight", block, of->part[i]);
        NAMED(b, "%s%s.bias", block, of->part[i]);
        TRY(get(l, of->n_out, of->n_in, weight + i * one, NULL, w));
        TRY(check_bias(l, b, bias != NULL));
        if (bias)
            TRY(get(l, of->n_out, 0, bias + (ptrdiff_t)i * of->n_out, NULL, b));
    }
    *out = (struct nn_linear){
        .n_in = of->n_in, .n_out = of->n * of->n_out, .weight = weight, .bias = bias};
    return ST_OK;
}

static enum status layer_norm(struct loader *l, int width, struct nn_norm *out, const char *part)
{
    NAMED(weight, "%s.weight", part);
    NAMED(bias, "%s.bias", part);
    *out = (struct nn_norm){.width = width, .eps = 1e-6f};
    TRY(get(l, width, 0, NULL, &out->weight, weight));
    return get(l, width, 0, NULL, &out->bias, bias);
}

static enum status rms_norm(struct loader *l, int width, struct pub_norm *out, const char *part)
{
    NAMED(weight, "%s.weight", part);
    NAMED(dense, "%s.dense", part);
    if (find(l, "%s", weight))
        return get(l, width, 0, NULL, &out->weight, weight);
    TRY(linear(l, width, BIASED, &out->dense, dense));
    if (out->dense.n_out != 3 * width)
        return FAIL(ST_INVAL, "'%s' gives %d numbers, expected %d", dense, out->dense.n_out,
                    3 * width);
    return ST_OK;
}

// --- the parts ----------------------------------------------------------------------------------

static enum status load_tower(struct loader *l, const char *pre, const char *connector,
                              int vision_heads)
{
    static const char *const qkv[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    struct pub_tower *t = &l->p->tower;
    const bool smol = l->p->shape.kind == PUBLISHED_SMOLVLA;

    NAMED(embed, "%sembeddings.patch_embedding", pre);
    NAMED(position, "%sembeddings.position_embedding.weight", pre);
    NAMED(post, "%spost_layernorm", pre);
    TRY(linear(l, -1, BIASED, &t->embed, embed));
    t->width = t->embed.n_out;
    t->heads = vision_heads;
    t->patch = (int)lround(sqrt(t->embed.n_in / 3.0));
    if (3 * t->patch * t->patch != t->embed.n_in || l->p->shape.side % t->patch != 0 ||
        t->width % t->heads != 0)
        return FAIL(ST_INVAL,
                    "patches of %d numbers, %d wide, with %d heads: expected squares that divide "
                    "pictures of %d pixels, and whole heads",
                    t->embed.n_in, t->width, t->heads, l->p->shape.side);
    t->grid = l->p->shape.side / t->patch;
    TRY(get(l, (int64_t)t->grid * t->grid, t->width, NULL, &t->position, position));
    for (int i = 0; i < PUBLISHED_LAYERS_MAX; i++) {
        struct pub_vision_block *b = &t->block[i];

        NAMED(block, "%sencoder.layers.%d.", pre, i);
        NAMED(norm1, "%slayer_norm1", block);
        NAMED(norm2, "%slayer_norm2", block);
        NAMED(out, "%sself_attn.out_proj", block);
        NAMED(fc1, "%smlp.fc1", block);
        NAMED(fc2, "%smlp.fc2", block);
        if (!find(l, "%s.weight", norm1))
            break;
        TRY(layer_norm(l, t->width, &b->norm1, norm1));
        TRY(layer_norm(l, t->width, &b->norm2, norm2));
        TRY(stacked(l, &(struct siblings){qkv, 3, t->width, t->width, BIASED}, block, &b->qkv));
        TRY(linear(l, t->width, BIASED, &b->out, out));
        TRY(linear(l, t->width, BIASED, &b->up, fc1));
        TRY(linear(l, b->up.n_out, BIASED, &b->down, fc2));
        t->mlp = b->up.n_out > t->mlp ? b->up.n_out : t->mlp;
        t->n_layer++;
    }
    TRY(layer_norm(l, t->width, &t->post, post));
    TRY(linear(l, -1, smol ? PLAIN : BIASED, &t->connector, connector));
    t->shuffle = (int)lround(sqrt(t->connector.n_in / (double)t->width));
    if (t->shuffle < 1 || t->shuffle * t->shuffle * t->width != t->connector.n_in ||
        t->grid % t->shuffle != 0)
        return FAIL(ST_INVAL, "'%s' takes %d numbers of tokens of %d, expected whole squares",
                    connector, t->connector.n_in, t->width);
    return ST_OK;
}

// `last`: of the last layer only the norm, keys and values are used.
static enum status load_block(struct loader *l, struct pub_stream *s, struct pub_block *b,
                              const char *block, bool last)
{
    static const char *const gate_up[] = {"mlp.gate_proj", "mlp.up_proj"};
    int cols;

    NAMED(norm1, "%sinput_layernorm", block);
    NAMED(norm2, "%spost_attention_layernorm", block);
    NAMED(q, "%sself_attn.q_proj", block);
    NAMED(k, "%sself_attn.k_proj", block);
    NAMED(v, "%sself_attn.v_proj", block);
    NAMED(o, "%sself_attn.o_proj", block);
    NAMED(gate, "%smlp.gate_proj.weight", block);
    NAMED(down, "%smlp.down_proj", block);
    TRY(rms_norm(l, s->width, &b->norm1, norm1));
    TRY(linear(l, -1, PLAIN, &b->k, k));
    TRY(linear(l, b->k.n_in, PLAIN, &b->v, v));
    if (last)
        return ST_OK;
    TRY(linear(l, s->width, PLAIN, &b->q, q));
    TRY(linear(l, b->q.n_out, PLAIN, &b->o, o));
    TRY(rms_norm(l, s->width, &b->norm2, norm2));
    TRY(matrix(l, gate, &s->mlp, &cols));
    TRY(stacked(l, &(struct siblings){gate_up, 2, s->width, s->mlp, PLAIN}, block, &b->up));
    return linear(l, s->mlp, PLAIN, &b->down, down);
}

static enum status load_stream(struct loader *l, struct pub_stream *s, const char *pre, bool prefix)
{
    NAMED(norm, "%snorm", pre);
    while (s->n_layer < PUBLISHED_LAYERS_MAX &&
           find(l, "%slayers.%d.self_attn.q_proj.weight", pre, s->n_layer))
        s->n_layer++;
    if (s->n_layer < 1)
        return FAIL(ST_INVAL, "there are no layers '%slayers.N.'", pre);
    NAMED(q, "%slayers.0.self_attn.q_proj.weight", pre);
    NAMED(k, "%slayers.0.self_attn.k_proj.weight", pre);
    TRY(matrix(l, q, &l->p->heads, &s->width));
    if (prefix)
        TRY(matrix(l, k, &l->p->kv_heads, &s->width)); // numbers of all heads, until load_nets
    for (int i = 0; i < s->n_layer; i++) {
        NAMED(block, "%slayers.%d.", pre, i);
        TRY(load_block(l, s, &s->block[i], block, prefix && i == s->n_layer - 1));
    }
    return prefix ? ST_OK : rms_norm(l, s->width, &s->norm, norm);
}

// Layers fit together: as many numbers of heads everywhere.
static enum status check_heads(const struct published *p, int q, int kv)
{
    const struct pub_stream *const streams[] = {&p->prefix, &p->expert};

    for (int s = 0; s < 2; s++)
        for (int i = 0; i < streams[s]->n_layer; i++) {
            const struct pub_block *b = &streams[s]->block[i];

            if (b->k.n_out != kv || b->v.n_out != kv || (b->q.weight && b->q.n_out != q))
                return FAIL(ST_INVAL,
                            "layer %d of the %s has %d, %d and %d numbers of queries, keys and "
                            "values, expected %d, %d and %d",
                            i, s == 0 ? "prefix" : "expert", b->q.n_out, b->k.n_out, b->v.n_out, q,
                            kv, kv);
        }
    return ST_OK;
}

static enum status load_embedding(struct loader *l, const char *pre)
{
    // a tied matrix has one of two names
    NAMED(own, "%sembed_tokens.weight", pre);
    const char *name = find(l, "%s", own) ? own : PALI "paligemma.lm_head.weight";
    int width;

    TRY(matrix(l, name, &l->p->shape.vocab, &width));
    return get(l, l->p->shape.vocab, l->p->prefix.width, NULL, &l->p->embed, name);
}

static enum status load_projections(struct loader *l)
{
    struct published *p = l->p;
    const bool five = p->shape.kind == PUBLISHED_PI05;
    const int width = p->expert.width;

    TRY(linear(l, -1, BIASED, &p->action_in, "action_in_proj"));
    p->shape.n_action = p->action_in.n_in;
    TRY(linear(l, width, BIASED, &p->action_out, "action_out_proj"));
    TRY(linear(l, five ? width : 2 * width, BIASED, &p->time_in,
               five ? "time_mlp_in" : "action_time_mlp_in"));
    TRY(linear(l, width, BIASED, &p->time_out, five ? "time_mlp_out" : "action_time_mlp_out"));
    if (p->action_in.n_out != width || p->time_in.n_out != width || p->time_out.n_out != width ||
        width % 2 != 0 || p->action_out.n_out != p->shape.n_action ||
        p->shape.action > p->shape.n_action)
        return FAIL(ST_INVAL,
                    "actions of %d numbers (%d used), %d come out, the expert is %d wide: the "
                    "projections do not fit",
                    p->shape.n_action, p->shape.action, p->action_out.n_out, width);
    if (five)
        return ST_OK;
    TRY(linear(l, -1, BIASED, &p->state, "state_proj"));
    if (p->state.n_in < p->shape.state ||
        p->state.n_out != (p->shape.kind == PUBLISHED_PI0 ? width : p->prefix.width))
        return FAIL(ST_INVAL, "'state_proj' takes %d numbers and gives %d, the state has %d",
                    p->state.n_in, p->state.n_out, p->shape.state);
    return ST_OK;
}

// A layer of the expert belongs to a layer of the prefix; one that sees only the prefix takes keys
// and values of it instead of its own rows.
static enum status check_expert(const struct published *p)
{
    const int step = p->prefix.n_layer / p->expert.n_layer;

    if (p->prefix.n_layer % p->expert.n_layer != 0)
        return FAIL(ST_INVAL, "an expert of %d layers beside %d, expected a divisor",
                    p->expert.n_layer, p->prefix.n_layer);
    for (int e = 0; e < p->expert.n_layer; e++) {
        const bool joint = p->self_every > 0 && e * step % p->self_every == 0;
        const int want = joint ? p->expert.width : p->expert.block[e].k.n_out;

        if (p->expert.block[e].k.n_in != want)
            return FAIL(ST_INVAL,
                        "keys of layer %d of the expert are made of %d numbers, expected "
                        "%d",
                        e, p->expert.block[e].k.n_in, want);
    }
    return ST_OK;
}

static enum status load_nets(struct loader *l, const struct published_sizes *sizes)
{
    struct published *p = l->p;
    const bool smol = p->shape.kind == PUBLISHED_SMOLVLA;
    const char *vision =
        smol ? SMOL "vlm.model.vision_model." : PALI "paligemma.model.vision_tower.vision_model.";
    const char *connector = smol ? SMOL "vlm.model.connector.modality_projection.proj"
                                 : PALI "paligemma.model.multi_modal_projector.linear";
    const char *prefix =
        smol ? SMOL "vlm.model.text_model." : PALI "paligemma.model.language_model.";
    const char *expert = smol ? SMOL "lm_expert." : PALI "gemma_expert.model.";
    int q, kv;

    p->head_dim = sizes && sizes->head_dim > 0 ? sizes->head_dim : smol ? 64 : 256;
    p->prefix.gemma = p->expert.gemma = !smol;
    TRY(load_tower(l, vision, connector,
                   sizes && sizes->vision_heads > 0 ? sizes->vision_heads
                   : smol                           ? 12
                                                    : 16));
    TRY(load_stream(l, &p->prefix, prefix, true));
    TRY(load_stream(l, &p->expert, expert, false));
    q = p->heads;
    kv = p->kv_heads;
    if (p->head_dim % 2 != 0 || q % p->head_dim != 0 || kv % p->head_dim != 0 || q % kv != 0)
        return FAIL(ST_INVAL, "%d numbers of queries and %d of keys, expected whole heads of %d", q,
                    kv, p->head_dim);
    TRY(check_heads(p, q, kv));
    TRY(check_expert(p));
    p->heads = q / p->head_dim;
    p->kv_heads = kv / p->head_dim;
    TRY(load_embedding(l, prefix));
    if (p->tower.connector.n_out != p->prefix.width)
        return FAIL(ST_INVAL, "'%s' gives %d numbers, the prefix is %d wide", connector,
                    p->tower.connector.n_out, p->prefix.width);
    return load_projections(l);
}

enum status pub_load(struct published *p, const char *folder, const struct published_sizes *sizes)
{
    struct loader l = {.p = p};
    char path[PATH_MAX];
    enum status st;

    TRY(load_config(p, folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    TRY(safetensors_open(&l.file, path));
    st = load_nets(&l, sizes);
    safetensors_close(l.file);
    return st != ST_OK && !strstr(error_last()->text, path) ? error_prefix("%s", path) : st;
}
