// ops_norm_priv.h - kernels of ops_norm.c, once per instruction set.
#include "nn/ops_vec.h"

// Sum of x * y over a row.
ALWAYS TARGET real LEVEL(dot)(const real *x, const real *y, int width)
{
    LEVEL(vec) sum = {0};

    for (int i = 0; i < width; i += LANES)
        sum = MADD(LEVEL(load_n)(x + i, width - i), LEVEL(load_n)(y + i, width - i), sum);
    return LEVEL(sum)(sum);
}

ALWAYS TARGET real LEVEL(total)(const real *x, int width)
{
    LEVEL(vec) sum = {0};

    for (int i = 0; i < width; i += LANES)
        sum += LEVEL(load_n)(x + i, width - i);
    return LEVEL(sum)(sum);
}

static TARGET void LEVEL(rms_forward)(const struct nn_norm *m, int n, const real *x, real *y,
                                      real *rstd)
{
    const int width = m->width;
    const real one = m->plus_one ? 1 : 0;

    for (int r = 0; r < n; r++, x += width, y += width) {
        const real k = 1 / SQRT(LEVEL(dot)(x, x, width) / (real)width + m->eps);

        for (int i = 0; i < width; i += LANES) {
            LEVEL(vec) w = LEVEL(load_n)(m->weight + i, width - i) + one;

            LEVEL(store_n)(y + i, width - i, LEVEL(load_n)(x + i, width - i) * k * w);
        }
        if (rstd)
            rstd[r] = k;
    }
}

static TARGET void LEVEL(rms_backward)(const struct nn_norm *m, int n, const real *x,
                                       const real *rstd, const real *dy,
                                       const struct nn_norm_grad *g)
{
    const int width = m->width;
    const real one = m->plus_one ? 1 : 0;
    real *dx = g->dx;

    for (int r = 0; r < n; r++, x += width, dy += width, dx += width) {
        const real k = rstd[r];
        LEVEL(vec) sum = {0};
        real mean;

        // dx = k (dh - xh mean(dh xh)) with xh = k x and dh = dy weight
        for (int i = 0; i < width; i += LANES) {
            LEVEL(vec) w = LEVEL(load_n)(m->weight + i, width - i) + one;
            LEVEL(vec) d = LEVEL(load_n)(dy + i, width - i);
            LEVEL(vec) xh = LEVEL(load_n)(x + i, width - i) * k;

            sum = MADD(d * w, xh, sum);
            if (g->dweight)
                LEVEL(store_n)
            (g->dweight + i, width - i, MADD(d, xh, LEVEL(load_n)(g->dweight + i, width - i)));
        }
        mean = LEVEL(sum)(sum) / (real)width;
        for (int i = 0; i < width; i += LANES) {
            LEVEL(vec) w = LEVEL(load_n)(m->weight + i, width - i) + one;
            LEVEL(vec) d = LEVEL(load_n)(dy + i, width - i) * w;
            LEVEL(vec) xh = LEVEL(load_n)(x + i, width - i) * k;
            LEVEL(vec) out = (d - xh * mean) * k;

            if (g->add)
                out += LEVEL(load_n)(dx + i, width - i);
            LEVEL(store_n)(dx + i, width - i, out);
        }
    }
}

static TARGET void LEVEL(layer_norm_forward)(const struct nn_norm *m, int n, const real *x, real *y,
                                             real *mean_rstd)
{
    const int width = m->width;

    for (int r = 0; r < n; r++, x += width, y += width) {
        const real mean = LEVEL(total)(x, width) / (real)width;
        LEVEL(vec) sum = {0};
        real k;

        for (int i = 0; i < width; i += LANES) {
            LEVEL(vec) d = LEVEL(load_n)(x + i, width - i) - mean;

            if (width - i < LANES) // what fills the last vector is no number of the row
                d = LEVEL(load_n)((const real *)&d, width - i);
            sum = MADD(d, d, sum);
        }
        k = 1 / SQRT(LEVEL(sum)(sum) / (real)width + m->eps);
        for (int i = 0; i < width; i += LANES) {
            LEVEL(vec)
            out = (LEVEL(load_n)(x + i, width - i) - mean) * k *
                  LEVEL(load_n)(m->weight + i, width - i);

            if (m->bias)
                out += LEVEL(load_n)(m->bias + i, width - i);
            LEVEL(store_n)(y + i, width - i, out);
        }
        if (mean_rstd) {
            mean_rstd[2 * r] = mean;
            mean_rstd[2 * r + 1] = k;
        }
    }
}

static TARGET void LEVEL(layer_norm_backward)(const struct nn_norm *m, int n, const real *x,
                                              const real *mean_rstd, const real *dy,
                                              const struct nn_norm_grad *g)
{
    const int width = m->width;
    real *dx = g->dx;

    for (int r = 0; r < n; r++, x += width, dy += width, dx += width) {
        const real mean = mean_rstd[2 * r], k = mean_rstd[2 * r + 1];
        LEVEL(vec) sum_d = {0}, sum_dx = {0};
        real mean_d, mean_dx;

        // dx = k (dh - mean dh - xh mean(dh xh)) with xh = k (x - mean) and dh = dy weight
        for (int i = 0; i < width; i += LANES) {
            LEVEL(vec) w = LEVEL(load_n)(m->weight + i, width - i);
            LEVEL(vec) d = LEVEL(load_n)(dy + i, width - i);
            LEVEL(vec) xh = (LEVEL(load_n)(x + i, width - i) - mean) * k;

            sum_d = MADD(d, w, sum_d);
            sum_dx = MADD(d * w, xh, sum_dx);
            if (g->dweight)
                LEVEL(store_n)
            (g->dweight + i, width - i, MADD(d, xh, LEVEL(load_n)(g->dweight + i, width - i)));
            if (g->dbias)
                LEVEL(store_n)(g->dbias + i, width - i, d + LEVEL(load_n)(g->dbias + i, width - i));
        }
        mean_d = LEVEL(sum)(sum_d) / (real)width;
        mean_dx = LEVEL(sum)(sum_dx) / (real)width;
        for (int i = 0; i < width; i += LANES) {
            LEVEL(vec) w = LEVEL(load_n)(m->weight + i, width - i);
            LEVEL(vec) d = LEVEL(load_n)(dy + i, width - i) * w;
            LEVEL(vec) xh = (LEVEL(load_n)(x + i, width - i) - mean) * k;
            LEVEL(vec) out = (d - mean_d - xh * mean_dx) * k;

            if (g->add)
                out += LEVEL(load_n)(dx + i, width - i);
            LEVEL(store_n)(dx + i, width - i, out);
        }
    }
}

#undef LANES
