// linear_priv.h - the forward kernel of linear.c, once per instruction set (ops_levels.h).
//
// ROWS is the rows of a register block. Everything works on explicit vector types, and what is
// fused is written so (compilers must not choose: -ffp-contract=off), so no row takes a path of its
// own.
#include "nn/ops_vec.h"

// One block of rows x vectors of the output, both known at compile time.
ALWAYS TARGET void LEVEL(block)(const struct linear *l, const real *x, real *y, int lane,
                                bool squash, const int rows, const int vecs)
{
    const int ldx = REAL_LD(l->n_in), ldy = REAL_LD(l->n_out);
    const real *w = l->weight + lane;
    LEVEL(vec) sum[ROWS][2];
    int k, r, v;

    for (r = 0; r < rows; r++)
        for (v = 0; v < vecs; v++)
            sum[r][v] = *(const LEVEL(vec) *)(l->bias + lane + v * LANES);
    for (k = 0; k < l->n_in; k++, w += ldy)
        for (r = 0; r < rows; r++)
            for (v = 0; v < vecs; v++)
                sum[r][v] =
                    MADD(SPLAT(x[r * ldx + k]), *(const LEVEL(vec) *)(w + v * LANES), sum[r][v]);
    for (r = 0; r < rows; r++)
        for (v = 0; v < vecs; v++) {
            if (squash)
                sum[r][v] = LEVEL(tanh)(sum[r][v]);
            *(LEVEL(vec) *)(y + r * ldy + lane + v * LANES) = sum[r][v];
        }
}

// A block of rows over all outputs.
ALWAYS TARGET void LEVEL(rows)(const struct linear *l, const real *x, real *y, bool squash,
                               const int rows)
{
    const int ldy = REAL_LD(l->n_out);
    int lane = 0;

    for (; lane + 2 * LANES <= ldy; lane += 2 * LANES)
        LEVEL(block)(l, x, y, lane, squash, rows, 2);
    if (lane < ldy)
        LEVEL(block)(l, x, y, lane, squash, rows, 1);
}

static TARGET void LEVEL(forward)(const struct linear *l, const real *x, int n, bool squash,
                                  real *y)
{
    const int ldx = REAL_LD(l->n_in), ldy = REAL_LD(l->n_out);
    int i = 0;

#if ROWS == 8
    for (; i + 8 <= n; i += 8)
        LEVEL(rows)(l, x + (size_t)i * ldx, y + (size_t)i * ldy, squash, 8);
#endif
    for (; i + 4 <= n; i += 4)
        LEVEL(rows)(l, x + (size_t)i * ldx, y + (size_t)i * ldy, squash, 4);
    for (; i < n; i++)
        LEVEL(rows)(l, x + (size_t)i * ldx, y + (size_t)i * ldy, squash, 1);
}
