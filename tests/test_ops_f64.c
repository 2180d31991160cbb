// Norms, activations, rows, rotation and attention in double: gradients by finite differences over
// random shapes.
#define REAL_IS_DOUBLE
#include "tests/ops_testing.h"

#define TRIES 8 // numbers of each input that are changed

// --- norms --------------------------------------------------------------------------------------

struct norm_rig {
    struct nn_norm m;
    bool rms;
    int n;
    real *x, *w, *b, *y, *keep, *factor;
};

static double norm_loss(void *arg)
{
    struct norm_rig *g = arg;

    if (g->rms)
        nn_rms_forward(&g->m, g->n, g->x, g->y, g->keep);
    else
        nn_layer_norm_forward(&g->m, g->n, g->x, g->y, g->keep);
    return weighted(g->y, g->factor, (int64_t)g->n * g->m.width);
}

static void norm_backward(struct norm_rig *g, const struct nn_norm_grad *grad)
{
    (void)norm_loss(g);
    if (g->rms)
        nn_rms_backward(&g->m, g->n, g->x, g->keep, g->factor, grad);
    else
        nn_layer_norm_backward(&g->m, g->n, g->x, g->keep, g->factor, grad);
}

static void norms_agree_with_finite_differences(void **state)
{
    struct rng r = rng_make(1, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 40; i++) {
        struct norm_rig g = {.rms = i % 2, .n = between(&r, 0, 6)};
        const int width = between(&r, 1, 70);
        const int64_t n = (int64_t)g.n * width;
        real *dx = zeros(n), *dw = zeros(width), *db = zeros(width);

        g.x = normals(&r, n, 2);
        g.w = normals(&r, width, 1);
        g.b = normals(&r, width, 1);
        g.y = zeros(n);
        g.keep = zeros(2 * (int64_t)g.n);
        g.factor = normals(&r, n, 1);
        g.m = (struct nn_norm){.width = width, .eps = 1e-5, .weight = g.w};
        if (g.rms)
            g.m.plus_one = rng_below(&r, 2);
        else
            g.m.bias = g.b;
        norm_backward(&g,
                      &(struct nn_norm_grad){.dx = dx, .dweight = dw, .dbias = g.rms ? NULL : db});
        check_gradient(norm_loss, &g, g.x, n, dx, TRIES, &r);
        check_gradient(norm_loss, &g, g.w, width, dw, TRIES, &r);
        check_gradient(norm_loss, &g, g.b, width, db, TRIES, &r);
        memcpy(g.b, dx, (size_t)(n < width ? n : width) * sizeof *dx);
        norm_backward(&g, &(struct nn_norm_grad){.dx = dx, .add = true});
        for (int k = 0; k < (n < width ? n : width); k++)
            assert_close(dx[k], 2 * g.b[k], 1e-12, 1e-12);
        mem_free(g.x);
        mem_free(g.w);
        mem_free(g.b);
        mem_free(g.y);
        mem_free(g.keep);
        mem_free(g.factor);
        mem_free(dx);
        mem_free(dw);
        mem_free(db);
    }
}

// --- activations --------------------------------------------------------------------------------

enum act { GELU, SILU, SWIGLU, GEGLU, N_ACT };

struct act_rig {
    enum act kind;
    int n, m;
    real *x, *y, *factor;
};

static double act_loss(void *arg)
{
    struct act_rig *g = arg;
    const int64_t n = (int64_t)g->n * g->m;

    switch (g->kind) {
    case GELU:
        nn_gelu_forward(n, g->x, g->y);
        break;
    case SILU:
        nn_silu_forward(n, g->x, g->y);
        break;
    default:
        nn_glu_forward(g->kind == GEGLU ? NN_GEGLU : NN_SWIGLU, g->n, g->m, g->x, g->y);
    }
    return weighted(g->y, g->factor, n);
}

static void activations_agree_with_finite_differences(void **state)
{
    struct rng r = rng_make(2, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 8 * N_ACT; i++) {
        struct act_rig g = {
            .kind = (enum act)(i % N_ACT), .n = between(&r, 0, 4), .m = between(&r, 1, 40)};
        const int64_t n = (int64_t)g.n * g.m, n_x = g.kind >= SWIGLU ? 2 * n : n;
        real *dx = zeros(n_x);

        g.x = normals(&r, n_x, 2);
        g.y = zeros(n);
        g.factor = normals(&r, n, 1);
        if (g.kind == GELU)
            nn_gelu_backward(n, g.x, g.factor, dx);
        else if (g.kind == SILU)
            nn_silu_backward(n, g.x, g.factor, dx);
        else
            nn_glu_backward(g.kind == GEGLU ? NN_GEGLU : NN_SWIGLU, g.n, g.m, g.x, g.factor, dx);
        check_gradient(act_loss, &g, g.x, n_x, dx, 2 * TRIES, &r);
        mem_free(g.x);
        mem_free(g.y);
        mem_free(g.factor);
        mem_free(dx);
    }
}

// --- rows and rotation --------------------------------------------------------------------------

static void rotation_keeps_lengths_and_comes_back(void **state)
{
    struct rng r = rng_make(3, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 20; i++) {
        const int dim = 2 * between(&r, 1, 20), heads = between(&r, 1, 4), n = between(&r, 0, 9);
        const int width = dim * heads, ld = width + 3;
        real *table = zeros(50 * dim), *x = normals(&r, (int64_t)n * ld, 1);
        real *y = zeros((int64_t)n * ld), *back = zeros((int64_t)n * ld);
        int position[9], to[9];
        struct nn_rope m = {.heads = heads, .head_dim = dim, .table = table, .position = position};
        struct nn_rows there = {.n = n, .to = to}, here = {.n = n, .from = to};

        nn_rope_table(50, dim, 10000, table);
        for (int k = 0; k < n; k++) {
            position[k] = between(&r, 0, 49);
            to[k] = n - 1 - k;
        }
        nn_rope(&m, &there, x, ld, y, ld);
        for (int k = 0; k < n; k++)
            for (int h = 0; h < heads; h++)
                for (int d = 0; d < dim / 2; d++) {
                    const real *in = x + k * ld + h * dim + d, *out = y + to[k] * ld + h * dim + d;
                    const double f = pow(10000, -(double)d / (dim / 2)) * position[k];

                    assert_close(out[0], in[0] * cos(f) - in[dim / 2] * sin(f), 1e-9, 1e-9);
                    assert_close(out[dim / 2], in[dim / 2] * cos(f) + in[0] * sin(f), 1e-9, 1e-9);
                }
        m.inverse = true; // which is the gradient too: a rotation's transpose
        nn_rope(&m, &here, y, ld, back, ld);
        for (int k = 0; k < n; k++)
            assert_true(distance(back + k * ld, x + k * ld, width) < 1e-12);
        mem_free(table);
        mem_free(x);
        mem_free(y);
        mem_free(back);
    }
}

static void rows_go_where_they_should(void **state)
{
    const real src[] = {1, 2, 9, 3, 4, 9, 5, 6, 9};
    const int from[] = {2, 0, 2}, to[] = {1, 1, 0};
    real dst[4] = {0, 0, 10, 10};

    (void)state;
    nn_rows_add(&(struct nn_rows){.n = 3, .width = 2, .from = from, .to = to}, src, 3, dst, 2);
    assert_true(dst[0] == 5 && dst[1] == 6 && dst[2] == 16 && dst[3] == 18);
    nn_rows_copy(&(struct nn_rows){.n = 2, .width = 2, .from = from}, src, 3, dst, 2);
    assert_true(dst[0] == 5 && dst[1] == 6 && dst[2] == 1 && dst[3] == 2);
}

// Rows picked from a table of t and put at places of another, any of them twice or not at all: what
// adding does is copying's transpose (an embedding and its gradient), and nothing else is touched.
static void adding_rows_is_the_transpose_of_copying_them(void **state)
{
    struct rng r = rng_make(7, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 60; i++) {
        const int n = between(&r, 0, 12), t = between(&r, 1, 9), width = between(&r, 1, 40);
        const int ldt = width + between(&r, 0, 5), ld = width + between(&r, 0, 5);
        const bool as_it_is = i % 3 == 0 && n <= t; // row i of the table, to row i
        real *table = normals(&r, (int64_t)t * ldt, 1), *dy = normals(&r, (int64_t)n * ld, 1);
        real *y = normals(&r, (int64_t)n * ld, 1), *grad = normals(&r, (int64_t)t * ldt, 1);
        real *y_before = zeros((int64_t)n * ld), *grad_before = zeros((int64_t)t * ldt);
        int from[12], to[12];
        double forward = 0, backward = 0;

        memcpy(y_before, y, (size_t)(n * ld) * sizeof *y);
        memcpy(grad_before, grad, (size_t)(t * ldt) * sizeof *grad);
        for (int k = 0; k < n; k++) {
            from[k] = between(&r, 0, t - 1);
            to[k] = k;
        }
        for (int k = n - 1; k > 0; k--) { // in any order
            const int other = between(&r, 0, k), kept = to[k];

            to[k] = to[other];
            to[other] = kept;
        }
        nn_rows_copy(
            &(struct nn_rows){
                .n = n, .width = width, .from = as_it_is ? NULL : from, .to = as_it_is ? NULL : to},
            table, ldt, y, ld);
        nn_rows_add(
            &(struct nn_rows){
                .n = n, .width = width, .from = as_it_is ? NULL : to, .to = as_it_is ? NULL : from},
            dy, ld, grad, ldt);
        for (int k = 0; k < n; k++) {
            const real *row = table + (as_it_is ? k : from[k]) * ldt;

            assert_memory_equal(y + (as_it_is ? k : to[k]) * ld, row, (size_t)width * sizeof *row);
        }
        for (int k = 0; k < n * ld; k++) {
            if (k % ld >= width)
                assert_true(y[k] == y_before[k]);
            else
                forward += y[k] * dy[k];
        }
        for (int k = 0; k < t * ldt; k++) {
            if (k % ldt >= width)
                assert_true(grad[k] == grad_before[k]);
            else
                backward += table[k] * (grad[k] - grad_before[k]);
        }
        assert_close(forward, backward, 1e-10, 1e-10);
        mem_free(table);
        mem_free(dy);
        mem_free(y);
        mem_free(grad);
        mem_free(y_before);
        mem_free(grad_before);
    }
}

static void sums_may_lie_where_their_parts_lie(void **state)
{
    struct rng r = rng_make(8, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int n = 0; n < 70; n++) {
        real *a = normals(&r, n, 1), *b = normals(&r, n, 1), *y = zeros(n);

        nn_add(n, a, b, y);
        for (int k = 0; k < n; k++)
            assert_true(y[k] == a[k] + b[k]);
        nn_add(n, a, b, n % 2 ? a : b);
        assert_memory_equal(n % 2 ? a : b, y, (size_t)n * sizeof *y);
        mem_free(a);
        mem_free(b);
        mem_free(y);
    }
}

static void patches_are_ordered_as_convolutions_have_them(void **state)
{
    uint8_t picture[4 * 6 * 6 * 3];
    const uint8_t *images[2] = {picture, picture + 6 * 6 * 3};
    real rows[2 * 9 * 12];

    (void)state;
    for (size_t i = 0; i < sizeof picture; i++)
        picture[i] = (uint8_t)(i * 7 % 256);
    nn_patches(2, images, 6, 2, rows);
    for (int p = 0; p < 18; p++)
        for (int k = 0; k < 12; k++) {
            const int c = k / 4, y = p % 9 / 3 * 2 + k / 2 % 2, x = p % 3 * 2 + k % 2;

            assert_close(rows[p * 12 + k], images[p / 9][(y * 6 + x) * 3 + c] / 127.5 - 1, 0,
                         1e-12);
        }
}

// --- attention ----------------------------------------------------------------------------------

#define SEQS 4

struct attention_rig {
    struct nn_attention a;
    int cu_q[SEQS + 1], cu_k[SEQS + 1];
    int *limit;
    real *q, *k, *v, *factor;
    int n_q, n_k, width, kv_width;
};

static double attention_loss(void *arg)
{
    struct attention_rig *g = arg;

    nn_attention_forward(&g->a);
    return weighted(g->a.o, g->factor, (int64_t)g->n_q * g->width);
}

// Sequences of `longest` at most, some of them empty or one long; cross attention half the time.
static void attention_make(struct attention_rig *g, struct rng *r, int longest)
{
    const int kv_heads = between(r, 1, 3), heads = kv_heads * between(r, 1, 3);
    const int dim = between(r, 1, 20);
    const bool cross = rng_below(r, 2);
    int max_k = 0;

    memset(g, 0, sizeof *g);
    for (int s = 0; s < SEQS; s++) {
        const int kind = between(r, 0, 3);
        const int n_k = kind == 0 ? 0 : kind == 1 ? 1 : between(r, 1, longest);

        g->cu_k[s + 1] = g->cu_k[s] + n_k;
        g->cu_q[s + 1] = g->cu_q[s] + (cross ? between(r, 0, longest) : n_k);
        max_k = n_k > max_k ? n_k : max_k;
    }
    g->n_q = g->cu_q[SEQS];
    g->n_k = g->cu_k[SEQS];
    g->width = heads * dim;
    g->kv_width = kv_heads * dim;
    g->q = normals(r, (int64_t)g->n_q * g->width, 1);
    g->k = normals(r, (int64_t)g->n_k * g->kv_width, 1);
    g->v = normals(r, (int64_t)g->n_k * g->kv_width, 1);
    g->factor = normals(r, (int64_t)g->n_q * g->width, 1);
    if (rng_below(r, 2)) {
        g->limit = mem_alloc((size_t)g->n_q, sizeof *g->limit);
        assert_non_null(g->limit);
        for (int s = 0; s < SEQS; s++)
            for (int i = g->cu_q[s]; i < g->cu_q[s + 1]; i++)
                g->limit[i] = between(r, 0, g->cu_k[s + 1] - g->cu_k[s]);
    }
    g->a = (struct nn_attention){.heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = dim,
                                 .scale = 1 / sqrt(dim),
                                 .n_seq = SEQS,
                                 .cu_q = g->cu_q,
                                 .cu_k = g->cu_k,
                                 .limit = g->limit,
                                 .q = g->q,
                                 .k = g->k,
                                 .v = g->v,
                                 .ldq = g->width,
                                 .ldk = g->kv_width,
                                 .ldv = g->kv_width,
                                 .o = zeros((int64_t)g->n_q * g->width),
                                 .ldo = g->width,
                                 .lse = zeros((int64_t)g->n_q * heads),
                                 .scratch = zeros(nn_attention_scratch(max_k, dim, true))};
}

static void attention_free(struct attention_rig *g)
{
    mem_free(g->limit);
    mem_free(g->q);
    mem_free(g->k);
    mem_free(g->v);
    mem_free(g->factor);
    mem_free(g->a.o);
    mem_free(g->a.lse);
    mem_free(g->a.scratch);
}

// The definition, one query and head at a time.
static void check_values(const struct attention_rig *g)
{
    const struct nn_attention *a = &g->a;
    const int dim = a->head_dim;

    for (int s = 0; s < SEQS; s++)
        for (int i = g->cu_q[s]; i < g->cu_q[s + 1]; i++)
            for (int h = 0; h < a->heads; h++) {
                const int kv = h / (a->heads / a->kv_heads), n = g->cu_k[s + 1] - g->cu_k[s];
                const int see = g->limit ? g->limit[i] : n;
                double want[20] = {0}, total = 0;

                for (int j = 0; j < see; j++) {
                    const real *k = g->k + (g->cu_k[s] + j) * g->kv_width + kv * dim;
                    const real *v = g->v + (g->cu_k[s] + j) * g->kv_width + kv * dim;
                    double score = 0;

                    for (int d = 0; d < dim; d++)
                        score += g->q[i * g->width + h * dim + d] * k[d];
                    score = exp(score * a->scale);
                    total += score;
                    for (int d = 0; d < dim; d++)
                        want[d] += score * v[d];
                }
                for (int d = 0; d < dim; d++)
                    assert_close(a->o[i * g->width + h * dim + d], total > 0 ? want[d] / total : 0,
                                 1e-10, 1e-10);
                if (see > 0)
                    assert_close(a->lse[i * a->heads + h], log(total), 1e-10, 1e-10);
            }
}

// A key's score is the gradient of the sum of all outputs by its value, where every query's output
// gradient is 1 in one dimension.
static void check_scores(const struct attention_rig *g)
{
    const struct nn_attention *a = &g->a;
    real *score = zeros(g->n_k), *want = zeros(g->n_k), *d_o = zeros((int64_t)g->n_q * g->width);
    real *dq = zeros((int64_t)g->n_q * g->width), *dk = zeros((int64_t)g->n_k * g->kv_width);
    real *dv = zeros((int64_t)g->n_k * g->kv_width);

    for (int i = 0; i < g->n_q; i++)
        for (int h = 0; h < a->heads; h++)
            d_o[i * g->width + h * a->head_dim] = 1;
    nn_attention_backward(a, &(struct nn_attention_grad){.d_o = d_o,
                                                         .ldd_o = g->width,
                                                         .dq = dq,
                                                         .lddq = g->width,
                                                         .dk = dk,
                                                         .lddk = g->kv_width,
                                                         .dv = dv,
                                                         .lddv = g->kv_width});
    for (int j = 0; j < g->n_k; j++)
        for (int h = 0; h < a->kv_heads; h++)
            want[j] += dv[j * g->kv_width + h * a->head_dim];
    nn_attention_scores(a, score);
    assert_true(distance(score, want, g->n_k) < 1e-12);
    mem_free(score);
    mem_free(want);
    mem_free(d_o);
    mem_free(dq);
    mem_free(dk);
    mem_free(dv);
}

static void attention_agrees_with_its_definition_and_finite_differences(void **state)
{
    struct rng r = rng_make(4, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 60; i++) {
        struct attention_rig g;
        int64_t n_q, n_k;
        real *dq, *dk, *dv;

        attention_make(&g, &r, i % 6 == 0 ? 150 : 12);
        n_q = (int64_t)g.n_q * g.width;
        n_k = (int64_t)g.n_k * g.kv_width;
        dq = normals(&r, n_q, 1); // what is there is overwritten
        dk = normals(&r, n_k, 1);
        dv = normals(&r, n_k, 1);
        (void)attention_loss(&g);
        check_values(&g);
        check_scores(&g);
        nn_attention_backward(&g.a, &(struct nn_attention_grad){.d_o = g.factor,
                                                                .ldd_o = g.width,
                                                                .dq = dq,
                                                                .lddq = g.width,
                                                                .dk = dk,
                                                                .lddk = g.kv_width,
                                                                .dv = dv,
                                                                .lddv = g.kv_width});
        check_gradient(attention_loss, &g, g.q, n_q, dq, TRIES, &r);
        check_gradient(attention_loss, &g, g.k, n_k, dk, TRIES, &r);
        check_gradient(attention_loss, &g, g.v, n_k, dv, TRIES, &r);
        mem_free(dq);
        mem_free(dk);
        mem_free(dv);
        attention_free(&g);
    }
}

static void limits_follow_cumulative_blocks(void **state)
{
    struct rng r = rng_make(5, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < 50; i++) {
        uint8_t begins[40];
        int cu[SEQS + 1] = {0}, limit[40];

        for (int s = 0; s < SEQS; s++)
            cu[s + 1] = cu[s] + between(&r, 0, 10);
        for (int k = 0; k < 40; k++)
            begins[k] = rng_below(&r, 2);
        nn_block_limits(SEQS, cu, begins, limit);
        for (int s = 0; s < SEQS; s++) {
            int c[40] = {0}, sum = 0;

            for (int k = cu[s]; k < cu[s + 1]; k++)
                c[k] = sum += begins[k];
            for (int q = cu[s]; q < cu[s + 1]; q++)
                for (int k = cu[s]; k < cu[s + 1]; k++)
                    assert_int_equal(c[k] <= c[q], k - cu[s] < limit[q]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(norms_agree_with_finite_differences),
        leak_test(activations_agree_with_finite_differences),
        leak_test(rotation_keeps_lengths_and_comes_back),
        leak_test(rows_go_where_they_should),
        leak_test(adding_rows_is_the_transpose_of_copying_them),
        leak_test(sums_may_lie_where_their_parts_lie),
        leak_test(patches_are_ordered_as_convolutions_have_them),
        leak_test(attention_agrees_with_its_definition_and_finite_differences),
        leak_test(limits_follow_cumulative_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
