#include "evaluation/resize.h"

#include "common/base/mem.h"

#include <math.h>
#include <string.h>

#define BITS 22 // of the weights, behind the point

struct axis {       // one direction
    int in, out;    // pixels
    int taps;       // most that an output pixel takes
    int *first, *n; // (out) the input pixels that it takes
    int32_t *w;     // (out, taps)
};

struct resize {
    int out_w, out_h, left, top; // where the resampled picture lies in the output
    struct axis x, y;
};

static enum status axis_init(struct axis *a, int in, int out)
{
    double scale = (double)in / out, f = fmax(scale, 1), sum;
    int i, k;

    a->in = in;
    a->out = out;
    a->taps = (int)ceil(f) * 2 + 1;
    a->first = mem_alloc((size_t)out, sizeof a->first[0]);
    a->n = mem_alloc((size_t)out, sizeof a->n[0]);
    a->w = mem_alloc((size_t)out * (size_t)a->taps, sizeof a->w[0]);
    if (!a->first || !a->n || !a->w)
        return ST_NOMEM;
    for (i = 0; i < out; i++) {
        double centre = (i + 0.5) * scale, w[2 * RESIZE_MAX + 3];
        int from = (int)(centre - f + 0.5), to = (int)(centre + f + 0.5);

        from = from > 0 ? from : 0;
        to = to < in ? to : in;
        for (sum = 0, k = 0; k < to - from; k++)
            sum += w[k] = fmax(0, 1 - fabs((k + from - centre + 0.5) * (1 / f)));
        for (k = 0; k < to - from; k++)
            a->w[(size_t)i * (size_t)a->taps + (size_t)k] =
                (int32_t)(0.5 + w[k] / sum * (1 << BITS));
        a->first[i] = from;
        a->n[i] = to - from;
    }
    return ST_OK;
}

static void axis_fini(struct axis *a)
{
    mem_free(a->first);
    mem_free(a->n);
    mem_free(a->w);
}

enum status resize_create(struct resize **out, enum resize_how how, int in_w, int in_h, int out_w,
                          int out_h)
{
    int w = out_w, h = out_h;
    struct resize *r;
    enum status st;

    if (in_w < 1 || in_h < 1 || out_w < 1 || out_h < 1 || in_w > RESIZE_MAX || in_h > RESIZE_MAX ||
        out_w > RESIZE_MAX || out_h > RESIZE_MAX)
        return FAIL(ST_INVAL, "cannot resize %dx%d to %dx%d: sides are 1 to %d", in_w, in_h, out_w,
                    out_h, RESIZE_MAX);
    if (how == RESIZE_PAD) {
        double ratio = fmax((double)in_w / out_w, (double)in_h / out_h);

        w = (int)(in_w / ratio);
        h = (int)(in_h / ratio);
        if (w < 1 || h < 1)
            return FAIL(ST_INVAL, "a picture of %dx%d vanishes in one of %dx%d", in_w, in_h, out_w,
                        out_h);
    }
    r = mem_alloc(1, sizeof *r);
    if (!r)
        return ST_NOMEM;
    r->out_w = out_w;
    r->out_h = out_h;
    r->left = (out_w - w) / 2;
    r->top = (out_h - h) / 2;
    st = axis_init(&r->x, in_w, w);
    if (st == ST_OK)
        st = axis_init(&r->y, in_h, h);
    if (st != ST_OK) {
        resize_destroy(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

void resize_destroy(struct resize *r)
{
    if (!r)
        return;
    axis_fini(&r->x);
    axis_fini(&r->y);
    mem_free(r);
}

size_t resize_scratch(const struct resize *r)
{
    return (size_t)r->x.out * (size_t)r->y.in * 3;
}

static uint8_t clip(int32_t sum)
{
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

// One line to one line.
static void across(const struct axis *a, const uint8_t *src, uint8_t *dst)
{
    int i, k;

    for (i = 0; i < a->out; i++) {
        const int32_t *w = a->w + (size_t)i * (size_t)a->taps;
        const uint8_t *p = src + 3 * (size_t)a->first[i];
        int32_t s0 = 1 << (BITS - 1), s1 = s0, s2 = s0;

        for (k = 0; k < a->n[i]; k++, p += 3) {
            s0 += p[0] * w[k];
            s1 += p[1] * w[k];
            s2 += p[2] * w[k];
        }
        *dst++ = clip(s0);
        *dst++ = clip(s1);
        *dst++ = clip(s2);
    }
}

// Lines of `row` bytes to one line.
static void down(const struct axis *a, int i, size_t row, const uint8_t *src, uint8_t *dst)
{
    const int32_t *w = a->w + (size_t)i * (size_t)a->taps;
    size_t x;
    int k;

    src += (size_t)a->first[i] * row;
    for (x = 0; x < row; x++) {
        int32_t sum = 1 << (BITS - 1);

        for (k = 0; k < a->n[i]; k++)
            sum += src[(size_t)k * row + x] * w[k];
        dst[x] = clip(sum);
    }
}

void resize_run(const struct resize *r, const uint8_t *src, uint8_t *dst, void *scratch)
{
    size_t in_row = (size_t)r->x.in * 3, row = (size_t)r->x.out * 3;
    size_t out_row = (size_t)r->out_w * 3;
    uint8_t *mid = scratch;
    int y;

    for (y = 0; y < r->y.in; y++) {
        if (r->x.in == r->x.out) // Pillow leaves out a pass that changes nothing
            memcpy(mid + (size_t)y * row, src + (size_t)y * in_row, row);
        else
            across(&r->x, src + (size_t)y * in_row, mid + (size_t)y * row);
    }
    if (r->x.out != r->out_w || r->y.out != r->out_h)
        memset(dst, 0, out_row * (size_t)r->out_h);
    dst += (size_t)r->top * out_row + (size_t)r->left * 3;
    for (y = 0; y < r->y.out; y++, dst += out_row) {
        if (r->y.in == r->y.out)
            memcpy(dst, mid + (size_t)y * row, row);
        else
            down(&r->y, y, row, mid, dst);
    }
}
