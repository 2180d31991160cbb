#include "nn/model.h"

#include "common/base/mem.h"
#include "common/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_CONV_NUMBERS (1 << 24)

static enum status check_range(const char *what, int n, int low, int high)
{
    if (n < low || n > high)
        return FAIL(ST_INVAL, "%s is %d, expected %d to %d", what, n, low, high);
    return ST_OK;
}

static enum status check_vision(const struct model_vision *v)
{
    int i, w = v->width, h = v->height;

    TRY(check_range("the number of convolutions", v->n_conv, 0, MODEL_CONV_MAX));
    if (v->n_conv == 0)
        return ST_OK;
    TRY(check_range("the width of pictures", v->width, 1, MODEL_SIDE_MAX));
    TRY(check_range("the height of pictures", v->height, 1, MODEL_SIDE_MAX));
    TRY(check_range("the stack of pictures", v->stack, 1, MODEL_STACK_MAX));
    for (i = 0; i < v->n_conv; i++) {
        const struct model_conv *c = &v->conv[i];

        TRY(check_range("a convolution's channels", c->channels, 1, MODEL_WIDTH_MAX));
        TRY(check_range("a convolution's kernel", c->kernel, 1, MODEL_KERNEL_MAX));
        TRY(check_range("a convolution's stride", c->stride, 1, c->kernel));
        if (c->kernel > w || c->kernel > h)
            return FAIL(ST_INVAL, "convolution %d has a kernel of %d, what it sees is %d by %d", i,
                        c->kernel, w, h);
        w = model_conv_out(w, c);
        h = model_conv_out(h, c);
        // what a convolution puts out and the patches that it takes in, for one picture
        if ((int64_t)w * h * (c->channels + model_patch(v, i)) > MODEL_CONV_NUMBERS)
            return FAIL(ST_INVAL, "convolution %d is too large, expected a larger stride", i);
    }
    return ST_OK;
}

static bool vision_equal(const struct model_vision *a, const struct model_vision *b)
{
    if (a->n_conv != b->n_conv)
        return false;
    return a->n_conv == 0 || (a->width == b->width && a->height == b->height &&
                              a->stack == b->stack && a->state == b->state &&
                              memcmp(a->conv, b->conv, (size_t)a->n_conv * sizeof a->conv[0]) == 0);
}

enum status model_shape_check(const struct model_shape *s)
{
    int i;

    if (s->n_obs < 1 || s->n_obs > MODEL_OBS_MAX)
        return FAIL(ST_INVAL, "n_obs is %d, expected 1 to %d", s->n_obs, MODEL_OBS_MAX);
    if (s->n_act < 1 || s->n_act > MODEL_ACT_MAX)
        return FAIL(ST_INVAL, "n_act is %d, expected 1 to %d", s->n_act, MODEL_ACT_MAX);
    if (s->n_hidden < 1 || s->n_hidden > MODEL_LAYERS_MAX)
        return FAIL(ST_INVAL, "%d hidden layers, expected 1 to %d", s->n_hidden, MODEL_LAYERS_MAX);
    for (i = 0; i < s->n_hidden; i++)
        if (s->hidden[i] < 1 || s->hidden[i] > MODEL_WIDTH_MAX)
            return FAIL(ST_INVAL, "hidden layer %d has %d units, expected 1 to %d", i, s->hidden[i],
                        MODEL_WIDTH_MAX);
    return check_vision(&s->vision);
}

void model_shape_print(const struct model_shape *shape, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; i < shape->n_hidden && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, i > 0 ? ",%d" : "%d", shape->hidden[i]);
}

bool model_shape_equal(const struct model_shape *a, const struct model_shape *b)
{
    return a->n_obs == b->n_obs && a->n_act == b->n_act && a->n_hidden == b->n_hidden &&
           memcmp(a->hidden, b->hidden, (size_t)a->n_hidden * sizeof a->hidden[0]) == 0 &&
           vision_equal(&a->vision, &b->vision);
}

enum status model_conv_parse(struct model_vision *v, const char *conv)
{
    const char *p = conv;

    v->n_conv = 0;
    for (;;) {
        struct model_conv c;
        int used = 0;

        if (sscanf(p, "%5dx%5d/%5d%n", &c.channels, &c.kernel, &c.stride, &used) != 3 ||
            (p[used] != ',' && p[used] != '\0'))
            return FAIL(ST_INVAL,
                        "convolutions '%s', expected channels x kernel / stride of each, such as "
                        "16x8/4,32x4/2",
                        conv);
        if (v->n_conv == MODEL_CONV_MAX)
            return FAIL(ST_INVAL, "convolutions '%s', expected at most %d", conv, MODEL_CONV_MAX);
        v->conv[v->n_conv++] = c;
        if (p[used] == '\0')
            return check_vision(v);
        p += used + 1;
    }
}

void model_conv_print(const struct model_vision *v, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; i < v->n_conv && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%dx%d/%d", i > 0 ? "," : "",
                              v->conv[i].channels, v->conv[i].kernel, v->conv[i].stride);
}

size_t model_picture_bytes(const struct model_vision *v)
{
    return v->n_conv > 0 ? (size_t)v->width * (size_t)v->height * MODEL_RGB : 0;
}

int model_n_feature(const struct model_vision *v)
{
    int i, w = v->width, h = v->height;

    if (v->n_conv == 0)
        return 0;
    for (i = 0; i < v->n_conv; i++) {
        w = model_conv_out(w, &v->conv[i]);
        h = model_conv_out(h, &v->conv[i]);
    }
    return w * h * v->conv[v->n_conv - 1].channels;
}

int model_n_in(const struct model_shape *s)
{
    if (s->vision.n_conv == 0)
        return s->n_obs;
    return model_n_feature(&s->vision) + (s->vision.state ? s->n_obs : 0);
}

enum status model_shape_parse(struct model_shape *out, int n_obs, int n_act, const char *hidden)
{
    struct model_shape s = {.n_obs = n_obs, .n_act = n_act};
    const char *p = hidden;
    char *end;

    for (;;) {
        long width = strtol(p, &end, 10);

        if (end == p || (*end != ',' && *end != '\0') || width < 1 || width > MODEL_WIDTH_MAX)
            return FAIL(ST_INVAL, "hidden layers '%s', expected sizes of 1 to %d such as 64,64",
                        hidden, MODEL_WIDTH_MAX);
        if (s.n_hidden == MODEL_LAYERS_MAX)
            return FAIL(ST_INVAL, "hidden layers '%s', expected at most %d", hidden,
                        MODEL_LAYERS_MAX);
        s.hidden[s.n_hidden++] = (int)width;
        if (*end == '\0')
            break;
        p = end + 1;
    }
    TRY(model_shape_check(&s));
    *out = s;
    return ST_OK;
}

static void add(struct model_table *t, const char *name, int rows, int cols)
{
    struct model_piece *piece = &t->piece[t->n_piece++];

    snprintf(piece->name, sizeof piece->name, "%s", name);
    piece->offset = t->n_param;
    piece->rows = rows;
    piece->cols = cols;
    t->n_param += (int64_t)rows * (cols ? cols : 1);
}

static void add_layer(struct model_table *t, const char *net, int i, int out, int in)
{
    char name[32];

    snprintf(name, sizeof name, "%s.%d.weight", net, 2 * i); // PyTorch counts the activations
    add(t, name, out, in);
    snprintf(name, sizeof name, "%s.%d.bias", net, 2 * i);
    add(t, name, out, 0);
}

static void add_network(struct model_table *t, const struct model_shape *s, const char *net,
                        int n_out)
{
    int i, in = model_n_in(s), out;

    for (i = 0; i <= s->n_hidden; i++) {
        out = i < s->n_hidden ? s->hidden[i] : n_out;
        add_layer(t, net, i, out, in);
        in = out;
    }
}

void model_table_make(struct model_table *out, const struct model_shape *shape)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < shape->vision.n_conv; i++)
        add_layer(out, "encoder", i, shape->vision.conv[i].channels,
                  model_patch(&shape->vision, i));
    out->n_encoder = out->n_param;
    add_network(out, shape, "policy", shape->n_act);
    out->i_log_std = out->n_piece;
    add(out, "log_std", shape->n_act, 0);
    out->n_policy = out->n_param;
    add_network(out, shape, "value", 1);
}

// Eight partial sums, so that the compiler may use vectors.
static double dot(const double *a, const double *b, int n)
{
    double part[8] = {0}, sum = 0;
    int i, k;

    for (i = 0; i + 8 <= n; i += 8)
        for (k = 0; k < 8; k++)
            part[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (k = 0; k < 8; k++)
        sum += part[k];
    return sum;
}

static void subtract(double *v, double factor, const double *u, int n)
{
    for (int i = 0; i < n; i++)
        v[i] -= factor * u[i];
}

// n orthonormal rows of `dim` numbers (n <= dim): modified Gram-Schmidt on normal numbers.
static void orthonormal(double *q, int n, int dim, struct rng *rng)
{
    int i, j, k;

    for (i = 0; i < n; i++) {
        double *v = q + (size_t)i * dim, scale;

        for (k = 0; k < dim; k++)
            v[k] = rng_normal(rng);
        // twice: the first round leaves rounding errors when v is nearly spanned already
        for (j = 0; j < 2 * i; j++) {
            const double *u = q + (size_t)(j % i) * dim;

            subtract(v, dot(u, v, dim), u, dim);
        }
        scale = 1 / sqrt(dot(v, v, dim));
        for (k = 0; k < dim; k++)
            v[k] *= scale;
    }
}

// Fill w (rows, cols) with gain times an orthogonal matrix; the longer side holds the vectors.
static enum status orthogonal(float *w, int rows, int cols, double gain, struct rng *rng)
{
    bool tall = rows > cols;
    int n = tall ? cols : rows, dim = tall ? rows : cols, i, k;
    double *q = mem_alloc((size_t)n * dim, sizeof *q);

    if (!q)
        return ST_NOMEM;
    orthonormal(q, n, dim, rng);
    for (i = 0; i < n; i++)
        for (k = 0; k < dim; k++)
            w[tall ? (size_t)k * cols + i : (size_t)i * cols + k] =
                (float)(gain * q[(size_t)i * dim + k]);
    mem_free(q);
    return ST_OK;
}

enum status model_init(const struct model_shape *shape, uint64_t seed, double log_std,
                       float *params)
{
    struct model_table t;
    int i, k;

    TRY(model_shape_check(shape));
    model_table_make(&t, shape);
    for (i = 0; i < t.n_piece; i++) {
        const struct model_piece *piece = &t.piece[i];
        struct rng rng = rng_make(seed, RNG_INIT, (uint64_t)i, 0, 0);
        float *w = params + piece->offset;
        double gain = i == t.i_log_std - 2 ? 0.01 : i == t.n_piece - 2 ? 1 : sqrt(2);

        if (piece->cols > 0)
            TRY(orthogonal(w, piece->rows, piece->cols, gain, &rng));
        else
            for (k = 0; k < piece->rows; k++)
                w[k] = i == t.i_log_std ? (float)log_std : 0;
    }
    return ST_OK;
}
