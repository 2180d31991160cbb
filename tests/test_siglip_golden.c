// The picture towers (SigLIP and connector) of tiny SmolVLA, pi0 and pi0.5 checkpoints as
// published, read from their safetensors and computed with the operators of nn/ops.h, at every
// vector width: what PyTorch got after the patches, each layer, the last norm and the connector.
//
// The checkpoints lie beside the source tree, in ../shared/vla; without them the test is skipped.
#include "tests/ops_testing.h"

#include "nn/safetensors.h"
#include "nn/simd.h"

#include <stdio.h>
#include <unistd.h>

#define NORM_EPS 1e-6
#define TOL      2e-5 // of the largest number: float32 on both sides
#define HELD_MAX 256

static const struct tower {
    const char *folder, *vision, *connector; // names of tensors begin so
    int patch, heads;
    int shuffle; // so many by so many tokens become one
} towers[] = {
#define SMOL "model.vlm_with_expert.vlm.model."
#define PI   "model.paligemma_with_expert.paligemma.model."
    {"smolvla", SMOL "vision_model.", SMOL "connector.modality_projection.proj.", 4, 2, 2},
    {"smolvla_cross", SMOL "vision_model.", SMOL "connector.modality_projection.proj.", 4, 2, 2},
    {"pi0", PI "vision_tower.vision_model.", PI "multi_modal_projector.linear.", 7, 2, 1},
    {"pi05", PI "vision_tower.vision_model.", PI "multi_modal_projector.linear.", 7, 2, 1},
};

struct files {
    struct safetensors *model, *golden;
    real *held[HELD_MAX]; // freed in the end
    int n_held;
};

// What one tower computes with.
struct run {
    const struct tower *t;
    struct files f;
    int n_image, grid, n, width; // n: rows, of all pictures
};

static real *hold(struct files *f, real *p)
{
    assert_true(f->n_held < HELD_MAX);
    f->held[f->n_held++] = p;
    return p;
}

// The tensor whose name is the three parts in a row; NULL if there is none.
static const struct safetensor *find(const struct safetensors *s, const char *group,
                                     const char *part, const char *leaf)
{
    char name[512];

    snprintf(name, sizeof name, "%s%s%s", group, part, leaf);
    return safetensors_find(s, name);
}

// The numbers of one that must be there.
static real *numbers(struct files *f, const struct safetensors *s, const char *group,
                     const char *part, const char *leaf)
{
    const struct safetensor *t = find(s, group, part, leaf);
    real *p;

    if (!t)
        fail_msg("no tensor %s%s%s", group, part, leaf);
    p = hold(f, zeros(t->n));
    assert_ok(safetensors_read(s, t, p));
    return p;
}

// The linear operator of a weight and, where there is one, a bias.
static struct nn_linear linear(struct files *f, const char *group, const char *part)
{
    const struct safetensor *w = find(f->model, group, part, "weight");
    const bool bias = find(f->model, group, part, "bias") != NULL;

    if (!w)
        fail_msg("no tensor %s%sweight", group, part);
    return (struct nn_linear){.n_in = (int)(w->n / w->dims[0]),
                              .n_out = (int)w->dims[0],
                              .weight = numbers(f, f->model, group, part, "weight"),
                              .bias = bias ? numbers(f, f->model, group, part, "bias") : NULL};
}

// q, k and v one behind the other, as nn/vla_config.h lays them.
static struct nn_linear linear_qkv(struct files *f, const char *layer, int width)
{
    const int64_t one = (int64_t)width * width;
    real *weight = hold(f, zeros(3 * one)), *bias = hold(f, zeros(3 * (int64_t)width));
    static const char *const parts[] = {"self_attn.q_proj.", "self_attn.k_proj.",
                                        "self_attn.v_proj."};

    for (int i = 0; i < 3; i++) {
        const struct nn_linear l = linear(f, layer, parts[i]);

        assert_true(l.n_in == width && l.n_out == width && l.bias);
        memcpy(weight + i * one, l.weight, (size_t)one * sizeof *weight);
        memcpy(bias + (ptrdiff_t)i * width, l.bias, (size_t)width * sizeof *bias);
    }
    return (struct nn_linear){.n_in = width, .n_out = 3 * width, .weight = weight, .bias = bias};
}

static void apply(const struct nn_linear *l, int n, const real *x, real *y)
{
    nn_linear_forward(l, n, x, l->n_in, y, l->n_out);
}

static void layer_norm(struct run *r, const char *group, const char *part, const real *x, real *y)
{
    const struct nn_norm m = {.width = r->width,
                              .eps = (real)NORM_EPS,
                              .weight = numbers(&r->f, r->f.model, group, part, "weight"),
                              .bias = numbers(&r->f, r->f.model, group, part, "bias")};

    nn_layer_norm_forward(&m, r->n, x, y, NULL);
}

static void check(struct run *r, const char *name, const real *got, int64_t n)
{
    const struct safetensor *t = find(r->f.golden, "train.vision.", name, "");
    const real *want = numbers(&r->f, r->f.golden, "train.vision.", name, "");
    double apart;

    assert_int_equal(t->n, n);
    apart = distance(got, want, n);
    if (!(apart <= TOL))
        fail_msg("%s: %s is %g apart", r->t->folder, name, apart);
}

// Patches of float pictures (n_image, 3, side, side), rows ordered (colour, y, x).
static real *patches_of(struct run *r, const real *image)
{
    const int patch = r->t->patch, side = r->grid * patch;
    real *rows = hold(&r->f, zeros((int64_t)r->n * 3 * patch * patch)), *to = rows;

    for (int row = 0; row < r->n; row++) {
        const int i = row / (r->grid * r->grid), at = row % (r->grid * r->grid);

        for (int c = 0; c < 3; c++)
            for (int y = 0; y < patch; y++)
                for (int x = 0; x < patch; x++)
                    *to++ =
                        image[(((ptrdiff_t)i * 3 + c) * side + at / r->grid * patch + y) * side +
                              at % r->grid * patch + x];
    }
    return rows;
}

static void attention(struct run *r, const real *qkv, real *o)
{
    const int head_dim = r->width / r->t->heads, each = r->grid * r->grid;
    int cu[8] = {0};
    real *scratch = zeros(nn_attention_scratch(each, head_dim, false));
    struct nn_attention a =
        nn_attention_of_qkv(r->width, r->t->heads, r->n_image, cu, qkv, o, scratch);

    assert_true(r->n_image < 8);
    for (int i = 0; i < r->n_image; i++)
        cu[i + 1] = cu[i] + each;
    nn_attention_forward(&a);
    mem_free(scratch);
}

// x (n, width) passes the layer whose tensors begin with `layer`.
static void pass_layer(struct run *r, const char *layer, real *x)
{
    const int64_t all = (int64_t)r->n * r->width;
    const struct nn_linear qkv = linear_qkv(&r->f, layer, r->width);
    const struct nn_linear out = linear(&r->f, layer, "self_attn.out_proj.");
    const struct nn_linear up = linear(&r->f, layer, "mlp.fc1.");
    const struct nn_linear down = linear(&r->f, layer, "mlp.fc2.");
    real *y = hold(&r->f, zeros(all)), *o = hold(&r->f, zeros(all)), *wide;

    layer_norm(r, layer, "layer_norm1.", x, y);
    wide = hold(&r->f, zeros(3 * all));
    apply(&qkv, r->n, y, wide);
    attention(r, wide, o);
    apply(&out, r->n, o, y);
    nn_add(all, x, y, x);

    layer_norm(r, layer, "layer_norm2.", x, y);
    wide = hold(&r->f, zeros((int64_t)r->n * up.n_out));
    apply(&up, r->n, y, wide);
    nn_gelu_forward((int64_t)r->n * up.n_out, wide, wide);
    apply(&down, r->n, wide, y);
    nn_add(all, x, y, x);
}

// Pixel shuffle: s by s neighbours side by side in one row, ordered (y, x, width).
static real *shuffled(struct run *r, const real *x)
{
    const int s = r->t->shuffle, grid = r->grid, n = r->n;
    int *from = mem_alloc((size_t)n, sizeof *from);
    real *y = hold(&r->f, zeros((int64_t)n * r->width));
    struct nn_rows rows = {.n = n, .width = r->width, .from = from};

    assert_non_null(from);
    for (int i = 0, to = 0; i < r->n_image; i++)
        for (int big = 0; big < grid * grid / (s * s); big++)
            for (int k = 0; k < s * s; k++) {
                const int row = big / (grid / s) * s + k / s, col = big % (grid / s) * s + k % s;

                from[to++] = (i * grid + row) * grid + col;
            }
    nn_rows_copy(&rows, x, r->width, y, r->width);
    mem_free(from);
    return y;
}

static void open_files(struct files *f, const char *root, const char *folder)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/%s/model.safetensors", root, folder);
    assert_ok(safetensors_open(&f->model, path));
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", root, folder);
    assert_ok(safetensors_open(&f->golden, path));
}

static void check_tower(const struct tower *t, const char *root)
{
    struct run r = {.t = t};
    const struct safetensor *image;
    struct nn_linear embed, connector;
    const real *place;
    real *x, *y;
    char name[256];
    int layers = 0, n_out;

    open_files(&r.f, root, t->folder);
    image = find(r.f.golden, "prep.", "image0", "");
    assert_non_null(image);
    r.n_image = (int)image->dims[0];
    r.grid = (int)image->dims[2] / t->patch;
    r.n = r.n_image * r.grid * r.grid;
    embed = linear(&r.f, t->vision, "embeddings.patch_embedding.");
    r.width = embed.n_out;
    x = hold(&r.f, zeros((int64_t)r.n * r.width));
    apply(&embed, r.n, patches_of(&r, numbers(&r.f, r.f.golden, "prep.", "image0", "")), x);
    place = numbers(&r.f, r.f.model, t->vision, "embeddings.position_embedding.", "weight");
    for (int i = 0; i < r.n_image; i++) {
        const int64_t one = (int64_t)r.grid * r.grid * r.width;

        nn_add(one, x + i * one, place, x + i * one);
    }
    check(&r, "patch_pos", x, (int64_t)r.n * r.width);
    for (;; layers++) {
        snprintf(name, sizeof name, "%sencoder.layers.%d.", t->vision, layers);
        if (!find(r.f.model, name, "layer_norm1.", "weight"))
            break;
        pass_layer(&r, name, x);
        snprintf(name, sizeof name, "layer%d.out", layers);
        check(&r, name, x, (int64_t)r.n * r.width);
    }
    assert_int_equal(layers, 2);
    y = hold(&r.f, zeros((int64_t)r.n * r.width));
    layer_norm(&r, t->vision, "post_layernorm.", x, y);
    check(&r, "post_ln", y, (int64_t)r.n * r.width);

    connector = linear(&r.f, t->connector, "");
    assert_int_equal(connector.n_in, r.width * t->shuffle * t->shuffle);
    n_out = r.n / (t->shuffle * t->shuffle);
    x = hold(&r.f, zeros((int64_t)n_out * connector.n_out));
    apply(&connector, n_out, shuffled(&r, y), x);
    check(&r, "image_tokens", x, (int64_t)n_out * connector.n_out);

    for (int i = 0; i < r.f.n_held; i++)
        mem_free(r.f.held[i]);
    safetensors_close(r.f.model);
    safetensors_close(r.f.golden);
}

static void towers_give_what_pytorch_got(void **state)
{
    const char *source = getenv("SOURCE_DIR");
    char root[512];

    (void)state;
    snprintf(root, sizeof root, "%s/../shared/vla", source ? source : ".");
    if (access(root, R_OK) != 0) {
        print_message("skipped: no checkpoints in %s\n", root);
        skip();
    }
    for (int level = SIMD_BASE; level <= SIMD_AVX512; level++) {
        simd_limit((enum simd_level)level);
        for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
            check_tower(&towers[i], root);
    }
    simd_limit(SIMD_AVX512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_test(towers_give_what_pytorch_got)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
