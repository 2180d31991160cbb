// ops_mm.h - the block of a matrix product that the numeric operators are made of. Part of a header
// of kernels (ops_levels.h); comes after ops_vec.h.
//
// Every number of c is one chain of multiply-adds in ascending k, in its own vector lane. So a
// row's result does not depend on which rows are computed with it, nor on how k is cut into parts.

#define PANEL (2 * LANES) // columns of one pass

struct LEVEL(mm) {
    int k;
    const real *a; // a[i * rs + k * ks]
    ptrdiff_t rs, ks;
    const real *b; // (k, ldb), whole vectors of it may be read
    ptrdiff_t ldb;
    const real *init; // (m, init_ld) what the sums start from; NULL: zero
    ptrdiff_t init_ld;
    real *c; // (m, ldc); may be init
    ptrdiff_t ldc;
};

// rows x vecs vectors of c; n_col of its columns are stored.
ALWAYS TARGET void LEVEL(mm_block)(const struct LEVEL(mm) * m, int i, int col, int n_col,
                                   const int rows, const int vecs, const bool along_k)
{
    const ptrdiff_t rs = along_k ? m->rs : 1, ks = along_k ? 1 : m->ks;
    const real *a = m->a + i * rs, *b = m->b + col;
    LEVEL(vec) sum[ROWS][2];
    int k, r, v;

    for (r = 0; r < rows; r++)
        for (v = 0; v < vecs; v++)
            sum[r][v] = m->init ? LEVEL(load_n)(m->init + (i + r) * m->init_ld + col + v * LANES,
                                                n_col - v * LANES)
                                : (LEVEL(vec)){0};
    for (k = 0; k < m->k; k++, b += m->ldb, a += ks)
        for (r = 0; r < rows; r++)
            for (v = 0; v < vecs; v++)
                sum[r][v] = MADD(SPLAT(a[r * rs]), LEVEL(load)(b + v * LANES), sum[r][v]);
    for (r = 0; r < rows; r++)
        for (v = 0; v < vecs; v++)
            LEVEL(store_n)(m->c + (i + r) * m->ldc + col + v * LANES, n_col - v * LANES, sum[r][v]);
}

ALWAYS TARGET void LEVEL(mm_rows)(const struct LEVEL(mm) * m, int i, int n, const int rows,
                                  const bool along_k)
{
    int col = 0;

    for (; col + LANES < n; col += PANEL) {
        int n_col = n - col < PANEL ? n - col : PANEL;

        LEVEL(mm_block)(m, i, col, n_col, rows, 2, along_k);
    }
    if (col < n)
        LEVEL(mm_block)(m, i, col, n - col, rows, 1, along_k);
}

// rows x n of c. along_k: ks is 1; otherwise rs is 1.
ALWAYS TARGET void LEVEL(mm_any)(const struct LEVEL(mm) * m, int rows, int n, const bool along_k)
{
    int i = 0;

#if ROWS == 8
    for (; i + 8 <= rows; i += 8)
        LEVEL(mm_rows)(m, i, n, 8, along_k);
#endif
    for (; i + 4 <= rows; i += 4)
        LEVEL(mm_rows)(m, i, n, 4, along_k);
    for (; i < rows; i++)
        LEVEL(mm_rows)(m, i, n, 1, along_k);
}

static TARGET void LEVEL(mm_along)(const struct LEVEL(mm) * m, int rows, int n)
{
    LEVEL(mm_any)(m, rows, n, true);
}

static TARGET void LEVEL(mm_across)(const struct LEVEL(mm) * m, int rows, int n)
{
    LEVEL(mm_any)(m, rows, n, false);
}
