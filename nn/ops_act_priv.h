// ops_act_priv.h - kernels of ops_act.c, once per instruction set.
#include "nn/ops_vec.h"

#define ROOT_2_PI ((real)0.79788456080286535588)
#define CUBE      ((real)0.044715)

// y = f(x) and f'(x).
ALWAYS TARGET LEVEL(vec) LEVEL(gelu)(LEVEL(vec) x)
{
    LEVEL(vec) t = LEVEL(tanh)(x * (x * x * CUBE + (real)1) * ROOT_2_PI);

    return x * (real)0.5 * (t + (real)1);
}

ALWAYS TARGET LEVEL(vec) LEVEL(gelu_slope)(LEVEL(vec) x)
{
    LEVEL(vec) xx = x * x, t = LEVEL(tanh)(x * (xx * CUBE + (real)1) * ROOT_2_PI);
    LEVEL(vec) inner = (xx * (3 * CUBE) + (real)1) * ROOT_2_PI;

    return (t + (real)1) * (real)0.5 + x * ((real)1 - t * t) * inner * (real)0.5;
}

ALWAYS TARGET LEVEL(vec) LEVEL(silu)(LEVEL(vec) x)
{
    return x * LEVEL(sigmoid)(x);
}

ALWAYS TARGET LEVEL(vec) LEVEL(silu_slope)(LEVEL(vec) x)
{
    LEVEL(vec) s = LEVEL(sigmoid)(x);

    return s * (x * ((real)1 - s) + (real)1);
}

static TARGET void LEVEL(act_forward)(enum nn_gate f, int64_t n, const real *x, real *y)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const int k = n - i < LANES ? (int)(n - i) : LANES;
        LEVEL(vec) v = LEVEL(load_n)(x + i, k);

        LEVEL(store_n)(y + i, k, f == NN_GEGLU ? LEVEL(gelu)(v) : LEVEL(silu)(v));
    }
}

static TARGET void LEVEL(act_backward)(enum nn_gate f, int64_t n, const real *x, const real *dy,
                                       real *dx)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const int k = n - i < LANES ? (int)(n - i) : LANES;
        LEVEL(vec) v = LEVEL(load_n)(x + i, k), d = LEVEL(load_n)(dy + i, k);

        LEVEL(store_n)
        (dx + i, k, d * (f == NN_GEGLU ? LEVEL(gelu_slope)(v) : LEVEL(silu_slope)(v)));
    }
}

static TARGET void LEVEL(glu_forward)(enum nn_gate f, int n, int m, const real *u, real *y)
{
    for (int r = 0; r < n; r++, u += 2 * (ptrdiff_t)m, y += m)
        for (int i = 0; i < m; i += LANES) {
            LEVEL(vec) gate = LEVEL(load_n)(u + i, m - i), up = LEVEL(load_n)(u + m + i, m - i);

            gate = f == NN_GEGLU ? LEVEL(gelu)(gate) : LEVEL(silu)(gate);
            LEVEL(store_n)(y + i, m - i, gate * up);
        }
}

static TARGET void LEVEL(glu_backward)(enum nn_gate f, int n, int m, const real *u, const real *dy,
                                       real *du)
{
    for (int r = 0; r < n; r++, u += 2 * (ptrdiff_t)m, du += 2 * (ptrdiff_t)m, dy += m)
        for (int i = 0; i < m; i += LANES) {
            LEVEL(vec) gate = LEVEL(load_n)(u + i, m - i), up = LEVEL(load_n)(u + m + i, m - i);
            LEVEL(vec) d = LEVEL(load_n)(dy + i, m - i);
            LEVEL(vec) value = f == NN_GEGLU ? LEVEL(gelu)(gate) : LEVEL(silu)(gate);
            LEVEL(vec) slope = f == NN_GEGLU ? LEVEL(gelu_slope)(gate) : LEVEL(silu_slope)(gate);

            LEVEL(store_n)(du + i, m - i, d * up * slope);
            LEVEL(store_n)(du + m + i, m - i, d * value);
        }
}

static TARGET void LEVEL(add)(int64_t n, const real *a, const real *b, real *y)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const int k = n - i < LANES ? (int)(n - i) : LANES;

        LEVEL(store_n)(y + i, k, LEVEL(load_n)(a + i, k) + LEVEL(load_n)(b + i, k));
    }
}

#undef ROOT_2_PI
#undef CUBE
#undef LANES
