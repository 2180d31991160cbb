// ops_linear_priv.h - kernels of ops_linear.c, once per instruction set.
#include "nn/ops_vec.h"

#include "nn/ops_mm.h"

#define K_PART 256 // of k in one panel: 32 KiB, so that it stays in the nearest cache

static int LEVEL(least)(int a, int b)
{
    return a < b ? a : b;
}

// b (k, PANEL) from n rows of w, transposed; columns from n on are zero.
static TARGET void LEVEL(pack_across)(const real *w, ptrdiff_t ld, int n, int k, real *b)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < k; i++)
            b[i * PANEL + j] = w[j * ld + i];
    for (int j = n; j < PANEL; j++)
        for (int i = 0; i < k; i++)
            b[i * PANEL + j] = 0;
}

// b (k, PANEL) from n columns of w.
static TARGET void LEVEL(pack_along)(const real *w, ptrdiff_t ld, int n, int k, real *b)
{
    for (int i = 0; i < k; i++, b += PANEL)
        for (int v = 0; v < 2; v++)
            LEVEL(store)
    (b + v * LANES,
     n > v * LANES ? LEVEL(load_n)(w + i * ld + v * LANES, n - v * LANES) : (LEVEL(vec)){0});
}

static TARGET void LEVEL(linear_forward)(const struct nn_linear *l, int n, const real *x, int ldx,
                                         real *y, int ldy)
{
    _Alignas(64) real panel[K_PART * PANEL];

    for (int col = 0; col < l->n_out; col += PANEL) {
        const int n_col = LEVEL(least)(PANEL, l->n_out - col);

        for (int k = 0; k < l->n_in; k += K_PART) {
            struct LEVEL(mm) m = {.k = LEVEL(least)(K_PART, l->n_in - k),
                                  .a = x + k,
                                  .rs = ldx,
                                  .b = panel,
                                  .ldb = PANEL,
                                  .c = y + col,
                                  .ldc = ldy};

            if (k > 0) {
                m.init = m.c;
                m.init_ld = ldy;
            } else if (l->bias) {
                m.init = l->bias + col;
            }
            LEVEL(pack_across)
            (l->weight + (ptrdiff_t)col * l->n_in + k, l->n_in, n_col, m.k, panel);
            LEVEL(mm_along)(&m, n, n_col);
        }
    }
}

static TARGET void LEVEL(linear_input_grad)(const struct nn_linear *l, int n, const real *dy,
                                            int lddy, real *dx, int lddx, bool add)
{
    _Alignas(64) real panel[K_PART * PANEL];

    for (int col = 0; col < l->n_in; col += PANEL) {
        const int n_col = LEVEL(least)(PANEL, l->n_in - col);

        for (int k = 0; k < l->n_out; k += K_PART) {
            struct LEVEL(mm) m = {.k = LEVEL(least)(K_PART, l->n_out - k),
                                  .a = dy + k,
                                  .rs = lddy,
                                  .b = panel,
                                  .ldb = PANEL,
                                  .init = k > 0 || add ? dx + col : NULL,
                                  .init_ld = lddx,
                                  .c = dx + col,
                                  .ldc = lddx};

            LEVEL(pack_along)(l->weight + (ptrdiff_t)k * l->n_in + col, l->n_in, n_col, m.k, panel);
            LEVEL(mm_along)(&m, n, n_col);
        }
    }
}

// dweight (n_out, n_in) += dy^T x; dbias (n_out) += the sum of dy's rows
static TARGET void LEVEL(linear_param_grad)(const struct nn_linear *l, int n, const real *x,
                                            int ldx, const real *dy, int lddy, real *dweight,
                                            real *dbias)
{
    _Alignas(64) real panel[K_PART * PANEL];

    for (int r = 0; r < n; r += K_PART)
        for (int col = 0; col < l->n_in; col += PANEL) {
            const int n_col = LEVEL(least)(PANEL, l->n_in - col);
            struct LEVEL(mm) m = {.k = LEVEL(least)(K_PART, n - r),
                                  .a = dy + (ptrdiff_t)r * lddy,
                                  .ks = lddy,
                                  .b = panel,
                                  .ldb = PANEL,
                                  .init = dweight + col,
                                  .init_ld = l->n_in,
                                  .c = dweight + col,
                                  .ldc = l->n_in};

            LEVEL(pack_along)(x + (ptrdiff_t)r * ldx + col, ldx, n_col, m.k, panel);
            LEVEL(mm_across)(&m, l->n_out, n_col);
        }
    if (!dbias)
        return;
    for (int col = 0; col < l->n_out; col += LANES) {
        LEVEL(vec) sum = LEVEL(load_n)(dbias + col, l->n_out - col);

        for (int r = 0; r < n; r++)
            sum += LEVEL(load_n)(dy + (ptrdiff_t)r * lddy + col, l->n_out - col);
        LEVEL(store_n)(dbias + col, l->n_out - col, sum);
    }
}

#undef K_PART
#undef PANEL
#undef LANES
