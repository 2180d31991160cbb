// ops_attention_priv.h - kernels of ops_attention.c, once per instruction set.
#include "nn/ops_vec.h"

#include "nn/ops_mm.h"

// b (tiles, head_dim, KEYS) from n rows of a head: transposed by tiles of keys, times `scale`.
static TARGET void LEVEL(pack_tiles)(const real *x, ptrdiff_t ld, int n, int dim, real scale,
                                     real *b)
{
    for (int j = 0; j < n; j++) {
        real *to = b + (ptrdiff_t)(j / KEYS) * KEYS * dim + j % KEYS;

        for (int d = 0; d < dim; d++)
            to[(ptrdiff_t)d * KEYS] = x[j * ld + d] * scale;
    }
}

// b (n, REAL_LD(dim)) from n rows of a head, times `scale`, padded with zeros.
static TARGET void LEVEL(pack_rows)(const real *x, ptrdiff_t ld, int n, int dim, real scale,
                                    real *b)
{
    for (int j = 0; j < n; j++, b += REAL_LD(dim)) {
        for (int d = 0; d < dim; d++)
            b[d] = x[j * ld + d] * scale;
        for (int d = dim; d < REAL_LD(dim); d++)
            b[d] = 0;
    }
}

// One row of a tile of scores (n) of which the first `see` count: to exp(score - max), the running
// max and sum brought up to date. Returns what the sums so far shrink by.
ALWAYS TARGET real LEVEL(softmax_row)(real *s, int n, int see, real *max, real *sum)
{
    LEVEL(vec) most = SPLAT(*max), total = {0};
    real part[LANES], shrink, held = *max;
    int i;

    if (see <= 0) {
        memset(s, 0, (size_t)n * sizeof *s);
        return 1;
    }
    for (i = see; i < REAL_LD(n); i++)
        s[i] = NEVER;
    for (i = 0; i < n; i += LANES) {
        LEVEL(vec) v = LEVEL(load)(s + i);

        most = (LEVEL(vec))(((LEVEL(mask))v & (v > most)) | ((LEVEL(mask))most & ~(v > most)));
    }
    LEVEL(store)(part, most);
    for (i = 0; i < LANES; i++)
        *max = part[i] > *max ? part[i] : *max;
    for (i = 0; i < n; i += LANES) {
        LEVEL(vec) p = LEVEL(exp)(LEVEL(load)(s + i) - *max);

        LEVEL(store)(s + i, p);
        total += p;
    }
    // two numbers of one vector, so that both are computed alike
    shrink = LEVEL(exp)(SPLAT(held - *max))[0];
    *sum = *sum * shrink + LEVEL(sum)(total);
    return shrink;
}

// Queries q0 .. q0 + n_q of head h, the keys of whose sequence are packed.
static TARGET void LEVEL(forward_tile)(const struct nn_attention *a, const struct side *side, int h,
                                       int q0, int n_q)
{
    const int dim = a->head_dim, ld = REAL_LD(dim);
    _Alignas(64) real s[QUERIES * KEYS];
    real max[QUERIES], sum[QUERIES];
    int most = 0;

    for (int i = 0; i < n_q; i++) {
        max[i] = NEVER;
        sum[i] = 0;
        most = limit_of(a, side, q0 + i) > most ? limit_of(a, side, q0 + i) : most;
    }
    memset(side->out, 0, (size_t)(n_q * ld) * sizeof(real));
    for (int j = 0; j < most; j += KEYS) {
        const int n = most - j < KEYS ? most - j : KEYS;
        struct LEVEL(mm) scores = {.k = dim,
                                   .a = a->q + (ptrdiff_t)q0 * a->ldq + h * dim,
                                   .rs = a->ldq,
                                   .b = side->k_tiles + (ptrdiff_t)j * dim,
                                   .ldb = KEYS,
                                   .c = s,
                                   .ldc = KEYS};
        struct LEVEL(mm) values = {.k = n,
                                   .a = s,
                                   .rs = KEYS,
                                   .b = side->v_rows + (ptrdiff_t)j * ld,
                                   .ldb = ld,
                                   .init = side->out,
                                   .init_ld = ld,
                                   .c = side->out,
                                   .ldc = ld};

        LEVEL(mm_along)(&scores, n_q, n);
        for (int i = 0; i < n_q; i++) {
            const int see = limit_of(a, side, q0 + i) - j;
            const real shrink =
                LEVEL(softmax_row)(s + i * KEYS, n, see < n ? see : n, &max[i], &sum[i]);

            for (int d = 0; d < ld; d += LANES)
                LEVEL(store)(side->out + i * ld + d, LEVEL(load)(side->out + i * ld + d) * shrink);
        }
        LEVEL(mm_along)(&values, n_q, dim);
    }
    for (int i = 0; i < n_q; i++) {
        const real k = sum[i] > 0 || sum[i] != sum[i] ? 1 / sum[i] : 0;
        real *o = a->o + (ptrdiff_t)(q0 + i) * a->ldo + h * dim;

        for (int d = 0; d < dim; d += LANES)
            LEVEL(store_n)(o + d, dim - d, LEVEL(load)(side->out + i * ld + d) * k);
        if (a->lse)
            a->lse[(ptrdiff_t)(q0 + i) * a->heads + h] = k == 0 ? 0 : max[i] + LOG(sum[i]);
    }
}

static TARGET void LEVEL(attention_forward)(const struct nn_attention *a)
{
    const int dim = a->head_dim, group = a->heads / a->kv_heads;

    for (int s = 0; s < a->n_seq; s++)
        for (int kv = 0; kv < a->kv_heads; kv++) {
            const ptrdiff_t k0 = a->cu_k[s];
            struct side side = side_of(a, s, false);

            LEVEL(pack_tiles)
            (a->k + k0 * a->ldk + kv * dim, a->ldk, side.n_k, dim, a->scale, side.k_tiles);
            LEVEL(pack_rows)(a->v + k0 * a->ldv + kv * dim, a->ldv, side.n_k, dim, 1, side.v_rows);
            for (int h = kv * group; h < (kv + 1) * group; h++)
                for (int q = a->cu_q[s]; q < a->cu_q[s + 1]; q += QUERIES) {
                    const int left = a->cu_q[s + 1] - q;

                    LEVEL(forward_tile)(a, &side, h, q, left < QUERIES ? left : QUERIES);
                }
        }
}

// Probabilities and the gradient by scores of one row of a tile, in place of scores and of the
// gradient by probabilities. `d`: the sum of that gradient times probability, over the row.
ALWAYS TARGET void LEVEL(softmax_row_backward)(real *p, real *ds, int n, int see, real lse, real d)
{
    if (see <= 0) {
        memset(p, 0, (size_t)n * sizeof *p);
        memset(ds, 0, (size_t)n * sizeof *ds);
        return;
    }
    for (int i = see; i < REAL_LD(n); i++)
        p[i] = NEVER;
    for (int i = 0; i < n; i += LANES) {
        LEVEL(vec) prob = LEVEL(exp)(LEVEL(load)(p + i) - lse);

        LEVEL(store)(p + i, prob);
        LEVEL(store)(ds + i, prob * (LEVEL(load)(ds + i) - d));
    }
}

static TARGET void LEVEL(backward_tile)(const struct nn_attention *a,
                                        const struct nn_attention_grad *g, const struct side *side,
                                        int h, int q0, int n_q)
{
    const int dim = a->head_dim, ld = REAL_LD(dim);
    _Alignas(64) real p[QUERIES * KEYS], ds[QUERIES * KEYS];
    real d_sum[QUERIES];
    int most = 0;

    LEVEL(pack_rows)(a->q + (ptrdiff_t)q0 * a->ldq + h * dim, a->ldq, n_q, dim, 1, side->q_rows);
    LEVEL(pack_rows)
    (g->d_o + (ptrdiff_t)q0 * g->ldd_o + h * dim, g->ldd_o, n_q, dim, 1, side->d_rows);
    for (int i = 0; i < n_q; i++) {
        const real *o = a->o + (ptrdiff_t)(q0 + i) * a->ldo + h * dim;
        LEVEL(vec) sum = {0};

        for (int d = 0; d < dim; d += LANES)
            sum = MADD(LEVEL(load_n)(o + d, dim - d), LEVEL(load)(side->d_rows + i * ld + d), sum);
        d_sum[i] = LEVEL(sum)(sum);
        most = limit_of(a, side, q0 + i) > most ? limit_of(a, side, q0 + i) : most;
    }
    memset(side->out, 0, (size_t)(n_q * ld) * sizeof(real));
    for (int j = 0; j < most; j += KEYS) {
        const int n = most - j < KEYS ? most - j : KEYS;
        const ptrdiff_t at = (ptrdiff_t)j * ld;
        struct LEVEL(mm) m = {.k = dim, .a = side->q_rows, .rs = ld, .ldb = KEYS, .ldc = KEYS};

        m.b = side->k_tiles + (ptrdiff_t)j * dim;
        m.c = p;
        LEVEL(mm_along)(&m, n_q, n);
        m.a = side->d_rows;
        m.b = side->v_tiles + (ptrdiff_t)j * dim;
        m.c = ds;
        LEVEL(mm_along)(&m, n_q, n);
        for (int i = 0; i < n_q; i++) {
            const int see = limit_of(a, side, q0 + i) - j;

            LEVEL(softmax_row_backward)
            (p + i * KEYS, ds + i * KEYS, n, see < n ? see : n,
             a->lse[(ptrdiff_t)(q0 + i) * a->heads + h], d_sum[i]);
        }
        // by the queries
        m = (struct LEVEL(mm)){.k = n,
                               .a = ds,
                               .rs = KEYS,
                               .b = side->k_rows + at,
                               .ldb = ld,
                               .init = side->out,
                               .init_ld = ld,
                               .c = side->out,
                               .ldc = ld};
        LEVEL(mm_along)(&m, n_q, dim);
        // by the keys, then by the values
        m = (struct LEVEL(mm)){.k = n_q, .a = ds, .ks = KEYS, .ldb = ld, .init_ld = ld, .ldc = ld};
        m.b = side->q_rows;
        m.c = side->dk + at;
        m.init = m.c;
        LEVEL(mm_across)(&m, n, dim);
        m.a = p;
        m.b = side->d_rows;
        m.c = side->dv + at;
        m.init = m.c;
        LEVEL(mm_across)(&m, n, dim);
    }
    for (int i = 0; i < n_q; i++)
        memcpy(g->dq + (ptrdiff_t)(q0 + i) * g->lddq + h * dim, side->out + i * ld,
               (size_t)dim * sizeof(real));
}

static TARGET void LEVEL(attention_backward)(const struct nn_attention *a,
                                             const struct nn_attention_grad *g)
{
    const int dim = a->head_dim, ld = REAL_LD(dim), group = a->heads / a->kv_heads;

    for (int s = 0; s < a->n_seq; s++)
        for (int kv = 0; kv < a->kv_heads; kv++) {
            const ptrdiff_t k0 = a->cu_k[s];
            struct side side = side_of(a, s, true);
            const real *k = a->k + k0 * a->ldk + kv * dim;

            LEVEL(pack_tiles)(k, a->ldk, side.n_k, dim, a->scale, side.k_tiles);
            LEVEL(pack_rows)(k, a->ldk, side.n_k, dim, a->scale, side.k_rows);
            LEVEL(pack_tiles)
            (a->v + k0 * a->ldv + kv * dim, a->ldv, side.n_k, dim, 1, side.v_tiles);
            memset(side.dk, 0, (size_t)side.n_k * (size_t)ld * sizeof(real));
            memset(side.dv, 0, (size_t)side.n_k * (size_t)ld * sizeof(real));
            for (int h = kv * group; h < (kv + 1) * group; h++)
                for (int q = a->cu_q[s]; q < a->cu_q[s + 1]; q += QUERIES) {
                    const int left = a->cu_q[s + 1] - q;

                    LEVEL(backward_tile)(a, g, &side, h, q, left < QUERIES ? left : QUERIES);
                }
            for (int j = 0; j < side.n_k; j++)
                for (int d = 0; d < dim; d++) {
                    g->dk[(k0 + j) * g->lddk + kv * dim + d] = side.dk[j * ld + d] * a->scale;
                    g->dv[(k0 + j) * g->lddv + kv * dim + d] = side.dv[j * ld + d];
                }
        }
}

// The scores of a tile of queries of head h by one tile of keys, in s.
ALWAYS TARGET void LEVEL(score_tile)(const struct nn_attention *a, const struct side *side, int h,
                                     int q0, int n_q, int j, int n, real *s)
{
    const struct LEVEL(mm) m = {.k = a->head_dim,
                                .a = a->q + (ptrdiff_t)q0 * a->ldq + h * a->head_dim,
                                .rs = a->ldq,
                                .b = side->k_tiles + (ptrdiff_t)j * a->head_dim,
                                .ldb = KEYS,
                                .c = s,
                                .ldc = KEYS};

    LEVEL(mm_along)(&m, n_q, n);
}

// Add the probabilities of a tile of queries to `score` of the sequence's keys. Twice over the
// keys: for the sums, then for the shares.
static TARGET void LEVEL(add_probabilities)(const struct nn_attention *a, const struct side *side,
                                            int h, int q0, int n_q, real *score)
{
    _Alignas(64) real s[QUERIES * KEYS], unused[KEYS];
    real max[QUERIES], sum[QUERIES];

    for (int i = 0; i < n_q; i++) {
        max[i] = NEVER;
        sum[i] = 0;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j < side->n_k; j += KEYS) {
            const int n = side->n_k - j < KEYS ? side->n_k - j : KEYS;

            LEVEL(score_tile)(a, side, h, q0, n_q, j, n, s);
            for (int i = 0; i < n_q; i++) {
                const int limit = limit_of(a, side, q0 + i) - j, see = limit < n ? limit : n;

                if (pass == 0) {
                    (void)LEVEL(softmax_row)(s + i * KEYS, n, see, &max[i], &sum[i]);
                    continue;
                }
                memset(unused, 0, sizeof unused);
                LEVEL(softmax_row_backward)(s + i * KEYS, unused, n, see, max[i] + LOG(sum[i]), 0);
                for (int k = 0; k < n; k++)
                    score[j + k] += s[i * KEYS + k];
            }
        }
}

static TARGET void LEVEL(attention_scores)(const struct nn_attention *a, real *score)
{
    const int dim = a->head_dim, group = a->heads / a->kv_heads;

    memset(score, 0, (size_t)a->cu_k[a->n_seq] * sizeof *score);
    for (int s = 0; s < a->n_seq; s++)
        for (int kv = 0; kv < a->kv_heads; kv++) {
            struct side side = side_of(a, s, false);

            LEVEL(pack_tiles)
            (a->k + (ptrdiff_t)a->cu_k[s] * a->ldk + kv * dim, a->ldk, side.n_k, dim, a->scale,
             side.k_tiles);
            for (int h = kv * group; h < (kv + 1) * group; h++)
                for (int q = a->cu_q[s]; q < a->cu_q[s + 1]; q += QUERIES) {
                    const int left = a->cu_q[s + 1] - q;

                    LEVEL(add_probabilities)
                    (a, &side, h, q, left < QUERIES ? left : QUERIES, score + a->cu_k[s]);
                }
        }
}

#undef PANEL
#undef LANES
