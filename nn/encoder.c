#include "nn/encoder.h"

#include "common/base/mem.h"
#include "nn/gemm.h"

#include <string.h>

static int places(const struct encoder_layer *l)
{
    return l->h * l->w;
}

static size_t out_count(const struct encoder_layer *l)
{
    return (size_t)places(l) * REAL_LD(l->linear.n_out);
}

static size_t patch_count(const struct encoder_layer *l)
{
    return (size_t)places(l) * REAL_LD(l->linear.n_in);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

enum status encoder_init(struct encoder *e, const struct model_shape *shape)
{
    const struct model_vision *v = &shape->vision;
    int i, w = v->width, h = v->height, c = MODEL_RGB * v->stack, ld = c;
    size_t count = 0;
    real *p;

    memset(e, 0, sizeof *e);
    e->vision = *v;
    e->n_layer = v->n_conv;
    e->n_feature = model_n_feature(v);
    e->n_obs = v->state ? shape->n_obs : 0;
    for (i = 0; i < v->n_conv; i++) {
        const struct model_conv *conv = &v->conv[i];
        struct encoder_layer *l = &e->layer[i];

        *l = (struct encoder_layer){.linear = {.n_in = model_patch(v, i), .n_out = conv->channels},
                                    .kernel = conv->kernel,
                                    .stride = conv->stride,
                                    .w_in = w,
                                    .c_in = c,
                                    .ld_in = ld,
                                    .h = model_conv_out(h, conv),
                                    .w = model_conv_out(w, conv)};
        w = l->w;
        h = l->h;
        c = conv->channels;
        ld = REAL_LD(c);
        count += linear_count(&l->linear);
    }
    if (count == 0)
        return ST_OK;
    e->packed = p = mem_alloc(count, sizeof *p);
    if (!p)
        return ST_NOMEM;
    for (i = 0; i < e->n_layer; i++)
        p = linear_place(&e->layer[i].linear, p);
    return ST_OK;
}

void encoder_fini(struct encoder *e)
{
    mem_free(e->packed);
    e->packed = NULL;
}

void encoder_pack(struct encoder *e, const real *params)
{
    const real *p = params;

    for (int i = 0; i < e->n_layer; i++) {
        struct linear *l = &e->layer[i].linear;
        const real *bias = p + (size_t)l->n_in * l->n_out;

        linear_pack(l, p, bias);
        p = bias + l->n_out;
    }
    e->params = params;
}

enum status encoder_rows_init(struct encoder_rows *rows, const struct encoder *e, int n_max,
                              bool backward)
{
    const struct model_vision *v = &e->vision;
    size_t input = model_picture_bytes(v) * (size_t)v->stack, act = 0, patch = 0, grad = 0, count;
    real *p;

    memset(rows, 0, sizeof *rows);
    if (e->n_layer == 0)
        return ST_OK;
    for (int i = 0; i < e->n_layer; i++) {
        act += out_count(&e->layer[i]);
        patch = larger(patch, patch_count(&e->layer[i]));
        grad = larger(grad, out_count(&e->layer[i]));
    }
    input = (size_t)REAL_LD((int)input); // what follows begins on a cache line
    count = input + patch + (size_t)n_max * act + (backward ? patch + 2 * grad : 0);
    rows->memory = p = mem_alloc(count, sizeof *p);
    if (!p)
        return ST_NOMEM;
    rows->input = p;
    rows->patch = p += input;
    p += patch;
    for (int i = 0; i < e->n_layer; i++) {
        rows->act[i] = p;
        p += (size_t)n_max * out_count(&e->layer[i]);
    }
    rows->patch_grad = backward ? p : NULL;
    rows->grad = backward ? p + patch : NULL;
    return ST_OK;
}

void encoder_rows_fini(struct encoder_rows *rows)
{
    mem_free(rows->memory);
    rows->memory = NULL;
}

// One row's pictures as the first convolution sees them.
static void load(const struct model_vision *v, const uint8_t *const *pictures, real *out)
{
    const int n = v->width * v->height, c = MODEL_RGB * v->stack;

    for (int s = 0; s < v->stack; s++) {
        const uint8_t *p = pictures[s];
        real *o = out + (ptrdiff_t)MODEL_RGB * s;

        for (int i = 0; i < n; i++, p += MODEL_RGB, o += c)
            for (int k = 0; k < MODEL_RGB; k++)
                o[k] = (real)p[k] / 255;
    }
}

// The patches (places, REAL_LD(kernel * kernel * c_in)) of one row; the padding stays as it is.
static void gather(const struct encoder_layer *l, const real *in, real *patch)
{
    const int n_run = l->ld_in == l->c_in ? 1 : l->kernel; // runs of numbers in a kernel row
    const size_t run = (size_t)(l->kernel / n_run) * (size_t)l->c_in;

    for (int y = 0; y < l->h; y++)
        for (int x = 0; x < l->w; x++, patch += REAL_LD(l->linear.n_in)) {
            real *out = patch;

            for (int ky = 0; ky < l->kernel; ky++) {
                const real *from = in + ((size_t)(y * l->stride + ky) * (size_t)l->w_in +
                                         (size_t)(x * l->stride)) *
                                            (size_t)l->ld_in;

                for (int k = 0; k < n_run; k++, out += run, from += l->ld_in)
                    memcpy(out, from, run * sizeof *out);
            }
        }
}

// The opposite: add the gradient of the patches to that of the row (h_in, w_in, ld_in).
static void scatter(const struct encoder_layer *l, const real *patch_grad, real *in_grad)
{
    for (int y = 0; y < l->h; y++)
        for (int x = 0; x < l->w; x++, patch_grad += REAL_LD(l->linear.n_in)) {
            const real *from = patch_grad;

            for (int ky = 0; ky < l->kernel; ky++) {
                real *to = in_grad + ((size_t)(y * l->stride + ky) * (size_t)l->w_in +
                                      (size_t)(x * l->stride)) *
                                         (size_t)l->ld_in;

                for (int kx = 0; kx < l->kernel; kx++, from += l->c_in, to += l->ld_in)
                    for (int c = 0; c < l->c_in; c++)
                        to[c] += from[c];
            }
        }
}

void encoder_forward(const struct encoder *e, struct encoder_rows *rows,
                     const uint8_t *const *pictures, const real *obs, int n, real *x)
{
    const struct encoder_layer *last = &e->layer[e->n_layer - 1];
    const size_t c = (size_t)last->linear.n_out, n_obs = (size_t)e->n_obs;
    const int ldx = REAL_LD(e->n_feature + e->n_obs);

    for (int i = 0; i < n; i++, x += ldx, pictures += e->vision.stack) {
        const real *in = rows->input;

        load(&e->vision, pictures, rows->input);
        for (int k = 0; k < e->n_layer; k++) {
            const struct encoder_layer *l = &e->layer[k];
            real *out = rows->act[k] + (size_t)i * out_count(l);

            gather(l, in, rows->patch);
            linear_forward(&l->linear, rows->patch, places(l), true, out);
            in = out;
        }
        for (int p = 0; p < places(last); p++)
            memcpy(x + (size_t)p * c, in + (size_t)p * (size_t)REAL_LD(last->linear.n_out),
                   c * sizeof *x);
        if (n_obs > 0)
            memcpy(x + e->n_feature, obs + (size_t)i * (size_t)REAL_LD(e->n_obs),
                   n_obs * sizeof *x);
    }
}

// The gradient by what a layer puts out, from that by tanh of it.
static void through_tanh(real *grad, const real *act, size_t n)
{
    for (size_t i = 0; i < n; i++)
        grad[i] *= 1 - act[i] * act[i];
}

// One row of a layer: `grad` is the gradient by its output before tanh. in_grad (NULL = none) is
// added to.
static void layer_backward(const struct encoder_layer *l, struct encoder_rows *rows, const real *in,
                           const real *grad, const real *weight, real *param_grad, real *in_grad)
{
    const int n = places(l), n_in = l->linear.n_in, n_out = l->linear.n_out, ld = REAL_LD(n_out);
    real *bias_grad = param_grad + (size_t)n_in * n_out;

    for (int p = 0; p < n; p++)
        for (int o = 0; o < n_out; o++)
            bias_grad[o] += grad[(size_t)p * ld + o];
    gather(l, in, rows->patch);
    gemm_tn_add(n_out, n_in, n, grad, ld, rows->patch, REAL_LD(n_in), param_grad, n_in);
    if (!in_grad)
        return;
    gemm_nn(n, n_in, n_out, grad, ld, weight, n_in, rows->patch_grad, REAL_LD(n_in));
    scatter(l, rows->patch_grad, in_grad);
}

void encoder_backward(const struct encoder *e, struct encoder_rows *rows,
                      const uint8_t *const *pictures, int n, const real *x_grad, real *param_grad)
{
    const struct encoder_layer *last = &e->layer[e->n_layer - 1];
    const size_t c = (size_t)last->linear.n_out;
    const int ldx = REAL_LD(e->n_feature + e->n_obs);
    size_t offset[MODEL_CONV_MAX], half = 0, at = 0;

    for (int k = 0; k < e->n_layer; k++) {
        offset[k] = at;
        at += (size_t)(e->layer[k].linear.n_in + 1) * (size_t)e->layer[k].linear.n_out;
        half = larger(half, out_count(&e->layer[k]));
    }
    for (int i = 0; i < n; i++, x_grad += ldx, pictures += e->vision.stack) {
        real *grad = rows->grad, *below = rows->grad + half, *held;

        memset(grad, 0, out_count(last) * sizeof *grad);
        for (int p = 0; p < places(last); p++)
            memcpy(grad + (size_t)p * (size_t)REAL_LD(last->linear.n_out), x_grad + (size_t)p * c,
                   c * sizeof *grad);
        for (int k = e->n_layer - 1; k >= 0; k--) {
            const struct encoder_layer *l = &e->layer[k];
            const real *in = k > 0 ? rows->act[k - 1] + (size_t)i * out_count(l - 1) : rows->input;

            through_tanh(grad, rows->act[k] + (size_t)i * out_count(l), out_count(l));
            if (k > 0)
                memset(below, 0, out_count(l - 1) * sizeof *below);
            else
                load(&e->vision, pictures, rows->input);
            layer_backward(l, rows, in, grad, e->params + offset[k], param_grad + offset[k],
                           k > 0 ? below : NULL);
            held = grad;
            grad = below;
            below = held;
        }
    }
}
