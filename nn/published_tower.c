#include "nn/published_priv.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

// --- pictures -----------------------------------------------------------------------------------

// Where number i of n_out comes from among n_in: between two, and how far.
struct between {
    int low, high;
    float part;
};

static struct between from(int i, int n_in, int n_out)
{
    const float at = fmaxf(((float)i + 0.5f) * ((float)n_in / (float)n_out) - 0.5f, 0);
    const int low = (int)at < n_in ? (int)at : n_in - 1;

    return (struct between){low, low + 1 < n_in ? low + 1 : low, at - (float)low};
}

enum status published_picture(const struct published *p, const uint8_t *rgb, int width, int height,
                              float *out)
{
    const int side = p->shape.side;
    const double ratio = fmax((double)width / side, (double)height / side);
    const bool as_is = width == side && height == side;
    const int w = as_is ? side : (int)(width / ratio), h = as_is ? side : (int)(height / ratio);
    const bool corner = p->shape.kind == PUBLISHED_SMOLVLA;
    const int left = corner ? side - w : (side - w) / 2, top = corner ? side - h : (side - h) / 2;

    if (width < 1 || height < 1 || w < 1 || h < 1)
        return FAIL(ST_INVAL, "a picture of %d x %d pixels", width, height);
    for (int k = 0; k < 3 * side * side; k++)
        out[k] = -1;
    for (int y = 0; y < h; y++) {
        const struct between v = from(y, height, h);

        for (int x = 0; x < w; x++) {
            const struct between u = from(x, width, w);

            for (int c = 0; c < 3; c++) {
                const float a = rgb[3 * (v.low * width + u.low) + c];
                const float b = rgb[3 * (v.low * width + u.high) + c];
                const float d = rgb[3 * (v.high * width + u.low) + c];
                const float e = rgb[3 * (v.high * width + u.high) + c];
                const float up = a + (b - a) * u.part, down = d + (e - d) * u.part;

                out[(c * side + top + y) * side + left + x] =
                    (up + (down - up) * v.part) / 127.5f - 1;
            }
        }
    }
    return ST_OK;
}

// --- the vision transformer ---------------------------------------------------------------------

int pub_tower_tokens(const struct pub_tower *t)
{
    return t->grid * t->grid / (t->shuffle * t->shuffle);
}

enum status pub_tower_room(struct published *p)
{
    struct pub_tower *t = &p->tower;
    const int64_t n = (int64_t)t->grid * t->grid;

    TRY(pub_hold(p, n * t->embed.n_in, &t->patches));
    TRY(pub_hold(p, n * t->width, &t->x));
    TRY(pub_hold(p, n * t->width, &t->y));
    TRY(pub_hold(p, n * 3 * t->width, &t->qkv));
    TRY(pub_hold(p, n * t->mlp, &t->up));
    return pub_hold(p, nn_attention_scratch((int)n, t->width / t->heads, false), &t->scratch);
}

static void patches(const struct pub_tower *t, const float *image)
{
    const int side = t->grid * t->patch;
    float *to = t->patches;

    for (int at = 0; at < t->grid * t->grid; at++)
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < t->patch; y++) {
                const int row = at / t->grid * t->patch + y, col = at % t->grid * t->patch;

                memcpy(to, image + ((ptrdiff_t)c * side + row) * side + col,
                       (size_t)t->patch * sizeof *to);
                to += t->patch;
            }
}

static void block_forward(const struct pub_tower *t, const struct pub_vision_block *b)
{
    const int n = t->grid * t->grid, width = t->width, cu[] = {0, n};
    const int64_t numbers = (int64_t)n * width;
    const struct nn_attention a =
        nn_attention_of_qkv(width, t->heads, 1, cu, t->qkv, t->y, t->scratch);

    nn_layer_norm_forward(&b->norm1, n, t->x, t->y, NULL);
    pub_linear(&b->qkv, n, t->y, t->qkv);
    nn_attention_forward(&a);
    pub_linear(&b->out, n, t->y, t->qkv);
    nn_add(numbers, t->x, t->qkv, t->x);
    nn_layer_norm_forward(&b->norm2, n, t->x, t->y, NULL);
    pub_linear(&b->up, n, t->y, t->up);
    nn_gelu_forward((int64_t)n * b->up.n_out, t->up, t->up);
    pub_linear(&b->down, n, t->up, t->y);
    nn_add(numbers, t->x, t->y, t->x);
}

// Neighbours side by side in one row, ordered (y, x, width), from t->y to t->qkv.
static void shuffle(const struct pub_tower *t)
{
    const int s = t->shuffle, across = t->grid / s;
    float *to = t->qkv;

    for (int big = 0; big < across * across; big++)
        for (int k = 0; k < s * s; k++, to += t->width) {
            const int row = big / across * s + k / s, col = big % across * s + k % s;

            memcpy(to, t->y + ((ptrdiff_t)row * t->grid + col) * t->width,
                   (size_t)t->width * sizeof *to);
        }
}

void pub_tower_forward(const struct pub_tower *t, const float *image, float *out)
{
    const int n = t->grid * t->grid;

    patches(t, image);
    pub_linear(&t->embed, n, t->patches, t->x);
    nn_add((int64_t)n * t->width, t->x, t->position, t->x);
    for (int i = 0; i < t->n_layer; i++)
        block_forward(t, &t->block[i]);
    nn_layer_norm_forward(&t->post, n, t->x, t->y, NULL);
    shuffle(t);
    pub_linear(&t->connector, pub_tower_tokens(t), t->qkv, out);
}
