// linear_priv.h - the forward kernel for one vector width; included by linear.c once per level.
//
// Wants: TARGET (function attribute), LEVEL(name), VEC_BYTES, ROWS (rows per register block),
// MADD(a, b, c) = a b + c and SPLAT(x), a vector of equal numbers. Everything works on explicit
// vector types, and what is fused is written so (compilers must not choose: -ffp-contract=off), so
// no row takes a path of its own.

typedef real LEVEL(vec) __attribute__((vector_size(VEC_BYTES)));
#define VEC_LANES (VEC_BYTES / (int)sizeof(real))

#ifdef REAL_IS_DOUBLE
static inline TARGET void LEVEL(squash)(LEVEL(vec) * v)
{
    for (int i = 0; i < VEC_LANES; i++)
        (*v)[i] = tanh((*v)[i]);
}
#else
typedef int32_t LEVEL(ivec) __attribute__((vector_size(VEC_BYTES)));

// tanh |x| = e / (e + 2) with e = exp(2 |x|) - 1. With 2 |x| = k ln 2 + r and |r| <= ln 2 / 2,
// e = 2^k (exp(r) - 1) + (2^k - 1), which loses nothing near zero; exp(r) - 1 by its power series.
static inline __attribute__((always_inline)) TARGET void LEVEL(squash)(LEVEL(vec) * v)
{
    const float rounder = 12582912.0f; // 1.5 * 2^23: adding it leaves the whole number in the bits
    LEVEL(ivec) bits = (LEVEL(ivec)) * v, sign = bits & INT32_MIN, over, scale;
    LEVEL(vec) a = (LEVEL(vec))(bits & INT32_MAX), shifted, k, r, p, e, two_k;

    over = (LEVEL(ivec))(a > 9.5f); // tanh is 1 from here; a NaN stays one
    a = (LEVEL(vec))((over & 0x41180000) | (~over & (LEVEL(ivec))a));
    a = a + a;
    shifted = MADD(a, SPLAT(1.44269504f), SPLAT(rounder));
    k = shifted - rounder;
    r = MADD(k, SPLAT(-0.693359375f), a);
    r = MADD(k, SPLAT(2.12194440e-4f), r);
    scale = ((LEVEL(ivec))shifted << 23) + 0x3f800000;
    two_k = (LEVEL(vec))scale;
    p = MADD(r, SPLAT(1.0f / 5040), SPLAT(1.0f / 720));
    p = MADD(p, r, SPLAT(1.0f / 120));
    p = MADD(p, r, SPLAT(1.0f / 24));
    p = MADD(p, r, SPLAT(1.0f / 6));
    p = MADD(p, r, SPLAT(0.5f));
    p = p * r;
    p = MADD(p, r, r);
    e = MADD(two_k, p, two_k - 1.0f);
    *v = (LEVEL(vec))((LEVEL(ivec))(e / (e + 2.0f)) | sign);
}
#endif

// One block of rows x vectors of the output, both known at compile time.
static inline __attribute__((always_inline)) TARGET void
LEVEL(block)(const struct linear *l, const real *x, real *y, int lane, bool squash, const int rows,
             const int vecs)
{
    const int ldx = REAL_LD(l->n_in), ldy = REAL_LD(l->n_out);
    const real *w = l->weight + lane;
    LEVEL(vec) sum[ROWS][2];
    int k, r, v;

    for (r = 0; r < rows; r++)
        for (v = 0; v < vecs; v++)
            sum[r][v] = *(const LEVEL(vec) *)(l->bias + lane + v * VEC_LANES);
    for (k = 0; k < l->n_in; k++, w += ldy)
        for (r = 0; r < rows; r++)
            for (v = 0; v < vecs; v++)
                sum[r][v] = MADD(SPLAT(x[r * ldx + k]), *(const LEVEL(vec) *)(w + v * VEC_LANES),
                                 sum[r][v]);
    for (r = 0; r < rows; r++)
        for (v = 0; v < vecs; v++) {
            if (squash)
                LEVEL(squash)(&sum[r][v]);
            *(LEVEL(vec) *)(y + r * ldy + lane + v * VEC_LANES) = sum[r][v];
        }
}

// A block of rows over all outputs.
static inline __attribute__((always_inline)) TARGET void
LEVEL(rows)(const struct linear *l, const real *x, real *y, bool squash, const int rows)
{
    const int ldy = REAL_LD(l->n_out);
    int lane = 0;

    for (; lane + 2 * VEC_LANES <= ldy; lane += 2 * VEC_LANES)
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

#undef VEC_LANES
#undef MADD
#undef SPLAT
#undef TARGET
#undef LEVEL
#undef VEC_BYTES
#undef ROWS
