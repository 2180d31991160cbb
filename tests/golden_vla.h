// golden_vla.h - tests/golden/vla.h5 (see tests/oracle/vla_golden.py) in the test's precision:
// operators, heads and the whole policy against PyTorch.
#ifndef TESTS_GOLDEN_VLA_H
#define TESTS_GOLDEN_VLA_H

#include "tests/vla_testing.h"

#include "nn/h5file.h"
#include "nn/heads.h"

#include <stdio.h>

#define GOLDEN_ARRAYS 24

// Arrays of one group; freed together.
struct golden {
    struct h5file *f;
    const char *group;
    double value_tol, grad_tol; // relative to the largest number
    real *array[GOLDEN_ARRAYS];
    int n_array;
};

static inline real *keep(struct golden *g, real *p)
{
    assert_true(g->n_array < GOLDEN_ARRAYS);
    return g->array[g->n_array++] = p;
}

static inline void golden_open(struct golden *g, double value_tol, double grad_tol)
{
    memset(g, 0, sizeof *g);
    g->value_tol = value_tol;
    g->grad_tol = grad_tol;
    assert_ok(h5file_open(&g->f, TESTS_DIR "/golden/vla.h5"));
}

static inline void golden_group(struct golden *g, const char *name)
{
    while (g->n_array > 0)
        mem_free(g->array[--g->n_array]);
    g->group = name;
}

static inline void golden_close(struct golden *g)
{
    golden_group(g, "");
    h5file_close(g->f);
}

static inline void golden_path(const struct golden *g, const char *name, char *path, size_t size,
                               int64_t *n)
{
    int64_t rows;

    snprintf(path, size, "%s/%s", g->group, name);
    assert_ok(h5file_shape(g->f, path, &rows, n));
    assert_int_equal(rows, 1);
}

// An array of the group, and how many numbers it has.
static inline real *golden_get(struct golden *g, const char *name, int64_t *n)
{
    char path[64];
    int64_t count;
    double *data;
    real *out;

    golden_path(g, name, path, sizeof path, &count);
    data = mem_alloc((size_t)count, sizeof *data);
    assert_non_null(data);
    assert_ok(h5file_get(g->f, path, H5_F64, 1, count, data));
    out = keep(g, zeros(count));
    for (int64_t i = 0; i < count; i++)
        out[i] = (real)data[i];
    mem_free(data);
    if (n)
        *n = count;
    return out;
}

static inline int *golden_ints(struct golden *g, const char *name)
{
    char path[64];
    int64_t count, *data;
    int *out;

    golden_path(g, name, path, sizeof path, &count);
    data = mem_alloc((size_t)count, sizeof *data);
    out = mem_alloc((size_t)count, sizeof *out);
    assert_true(data && out);
    assert_ok(h5file_get(g->f, path, H5_I64, 1, count, data));
    for (int64_t i = 0; i < count; i++)
        out[i] = (int)data[i];
    mem_free(data);
    return out;
}

// `got` is what PyTorch has under `name`.
static inline void golden_same(struct golden *g, const char *name, const real *got, double tol)
{
    int64_t n;
    const real *want = golden_get(g, name, &n);

    if (!(distance(got, want, n) <= tol))
        fail_msg("%s/%s is %.2e from PyTorch's, expected %.0e", g->group, name,
                 distance(got, want, n), tol);
}

static inline void golden_norms(struct golden *g)
{
    static const char *const kinds[] = {"rms", "rms_plus_one", "layer_norm"};

    for (int i = 0; i < 3; i++) {
        int64_t n, width;
        struct nn_norm m = {.eps = (real)1e-5, .plus_one = i == 1};
        real *x, *factor, *y, *stat, *dw, *db;

        golden_group(g, kinds[i]);
        x = golden_get(g, "x", &n);
        m.weight = golden_get(g, "w", &width);
        m.bias = i == 2 ? golden_get(g, "b", NULL) : NULL;
        m.width = (int)width;
        factor = golden_get(g, "factor", NULL);
        y = keep(g, zeros(n));
        stat = keep(g, zeros(2 * n));
        dw = keep(g, zeros(width));
        db = keep(g, zeros(width));
        if (i < 2)
            nn_rms_forward(&m, (int)(n / width), x, y, stat);
        else
            nn_layer_norm_forward(&m, (int)(n / width), x, y, stat);
        golden_same(g, "y", y, g->value_tol);
        if (i < 2)
            nn_rms_backward(&m, (int)(n / width), x, stat, factor,
                            &(struct nn_norm_grad){.dx = y, .dweight = dw});
        else
            nn_layer_norm_backward(&m, (int)(n / width), x, stat, factor,
                                   &(struct nn_norm_grad){.dx = y, .dweight = dw, .dbias = db});
        golden_same(g, "d_x", y, g->grad_tol);
        golden_same(g, "d_w", dw, g->grad_tol);
        if (i == 2)
            golden_same(g, "d_b", db, g->grad_tol);
    }
}

static inline void golden_activations(struct golden *g)
{
    static const char *const kinds[] = {"gelu", "silu", "swiglu", "geglu"};

    for (int i = 0; i < 4; i++) {
        int64_t n;
        real *x, *factor, *y;

        golden_group(g, kinds[i]);
        x = golden_get(g, "x", &n);
        factor = golden_get(g, "factor", NULL);
        y = keep(g, zeros(n));
        if (i == 0)
            nn_gelu_forward(n, x, y);
        else if (i == 1)
            nn_silu_forward(n, x, y);
        else
            nn_glu_forward(i == 2 ? NN_SWIGLU : NN_GEGLU, 5, 21, x, y);
        golden_same(g, "y", y, g->value_tol);
        if (i == 0)
            nn_gelu_backward(n, x, factor, y);
        else if (i == 1)
            nn_silu_backward(n, x, factor, y);
        else
            nn_glu_backward(i == 2 ? NN_SWIGLU : NN_GEGLU, 5, 21, x, factor, y);
        golden_same(g, "d_x", y, g->grad_tol);
    }
}

static inline void golden_linear(struct golden *g)
{
    struct nn_linear l;
    int64_t n, n_w, n_out;
    real *x, *dx, *dw, *db, *y;

    golden_group(g, "linear");
    x = golden_get(g, "x", &n);
    l.weight = golden_get(g, "w", &n_w);
    l.bias = golden_get(g, "b", &n_out);
    l.n_out = (int)n_out;
    l.n_in = (int)(n_w / n_out);
    dx = keep(g, zeros(n));
    dw = keep(g, zeros(n_w));
    db = keep(g, zeros(n_out));
    y = keep(g, zeros(n / l.n_in * n_out));
    nn_linear_forward(&l, (int)n / l.n_in, x, l.n_in, y, l.n_out);
    golden_same(g, "y", y, g->value_tol);
    nn_linear_backward(
        &l, (int)n / l.n_in, x, l.n_in, golden_get(g, "factor", NULL), l.n_out,
        &(struct nn_linear_grad){.dx = dx, .lddx = l.n_in, .dweight = dw, .dbias = db});
    golden_same(g, "d_x", dx, g->grad_tol);
    golden_same(g, "d_w", dw, g->grad_tol);
    golden_same(g, "d_b", db, g->grad_tol);
}

static inline void golden_attention(struct golden *g)
{
    static const struct {
        const char *name;
        int n_seq, heads, kv_heads, dim, cu_q[5], cu_k[5];
    } cases[] = {{"attention_full", 4, 4, 2, 5, {0, 3, 3, 70, 71}, {0, 3, 3, 70, 71}},
                 {"attention_limit", 3, 3, 1, 10, {0, 5, 14, 47}, {0, 70, 79, 112}}};
    static const int first[] = {70, 1, 64, 65, 9};

    for (int i = 0; i < 2; i++) {
        const int width = cases[i].heads * cases[i].dim, kv = cases[i].kv_heads * cases[i].dim;
        int64_t n_q, n_k;
        int limit[47];
        real *q, *k, *v, *o, *dq, *dk, *dv;
        struct nn_attention a;

        golden_group(g, cases[i].name);
        q = golden_get(g, "q", &n_q);
        k = golden_get(g, "k", &n_k);
        v = golden_get(g, "v", NULL);
        o = keep(g, zeros(n_q));
        dq = keep(g, zeros(n_q));
        dk = keep(g, zeros(n_k));
        dv = keep(g, zeros(n_k));
        for (int r = 0; r < 47; r++) // as in the script
            limit[r] = r < 5 ? first[r] : r < 14 ? r - 4 : r < 34 ? 20 : 33;
        a = (struct nn_attention){.heads = cases[i].heads,
                                  .kv_heads = cases[i].kv_heads,
                                  .head_dim = cases[i].dim,
                                  .scale = 1 / (real)sqrt(cases[i].dim),
                                  .n_seq = cases[i].n_seq,
                                  .cu_q = cases[i].cu_q,
                                  .cu_k = cases[i].cu_k,
                                  .limit = i == 1 ? limit : NULL,
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .ldq = width,
                                  .ldk = kv,
                                  .ldv = kv,
                                  .o = o,
                                  .ldo = width,
                                  .lse = keep(g, zeros(n_q)),
                                  .scratch =
                                      keep(g, zeros(nn_attention_scratch(70, cases[i].dim, true)))};
        nn_attention_forward(&a);
        golden_same(g, "y", o, g->value_tol);
        nn_attention_backward(&a, &(struct nn_attention_grad){.d_o = golden_get(g, "factor", NULL),
                                                              .ldd_o = width,
                                                              .dq = dq,
                                                              .lddq = width,
                                                              .dk = dk,
                                                              .lddk = kv,
                                                              .dv = dv,
                                                              .lddv = kv});
        golden_same(g, "d_q", dq, g->grad_tol);
        golden_same(g, "d_k", dk, g->grad_tol);
        golden_same(g, "d_v", dv, g->grad_tol);
    }
}

static inline void golden_heads(struct golden *g)
{
    static const int target[] = {0, 3, -1, 8, 2, 2};
    real loss[24], grad[54], d_log_std[3] = {0};
    const real *mean, *log_std, *action;

    golden_group(g, "cross_entropy");
    heads_cross_entropy(6, 9, golden_get(g, "x", NULL), target, golden_get(g, "factor", NULL), loss,
                        grad);
    golden_same(g, "y", loss, g->value_tol);
    golden_same(g, "d_x", grad, g->grad_tol);
    golden_group(g, "gaussian");
    mean = golden_get(g, "mean", NULL);
    log_std = golden_get(g, "log_std", NULL);
    action = golden_get(g, "action", NULL);
    heads_gaussian_logp(8, 3, mean, log_std, action, loss);
    golden_same(g, "y", loss, g->value_tol);
    heads_gaussian_backward(8, 3, mean, log_std, action, golden_get(g, "factor", NULL), grad,
                            d_log_std);
    golden_same(g, "d_mean", grad, g->grad_tol);
    golden_same(g, "d_log_std", d_log_std, g->grad_tol);
}

// The whole policy, under `name`.
static inline void golden_policy(struct golden *g, const char *name, const char *json)
{
    static const int cu_image[] = {0, 2, 2, 5, 6}, cu_text[] = {0, 4, 10, 10, 11};
    const struct vla_room room = {.seqs = 4, .images = 6, .texts = 11, .backward = true};
    struct vla_config c;
    struct vla_net net;
    struct vla_work *w;
    uint8_t pixels[6 * 8 * 8 * 3];
    const uint8_t *image[6];
    const bool flow = strcmp(name, "policy_flow") == 0;
    char path[64];
    double time[4];
    int *camera, *text;
    real *mean, *value, *grad;
    int64_t n;

    golden_group(g, name);
    assert_ok(vla_config_parse(&c, json, "test"));
    assert_ok(vla_net_init(&net, &c, golden_get(g, "params", &n)));
    assert_int_equal(n, net.t.n_param);
    assert_ok(vla_work_create(&w, &net, &room));
    snprintf(path, sizeof path, "%s/images", name);
    assert_ok(h5file_get(g->f, path, H5_U8, 1, sizeof pixels, pixels));
    for (int i = 0; i < 6; i++)
        image[i] = pixels + i * 8 * 8 * 3;
    if (flow) {
        snprintf(path, sizeof path, "%s/time", name);
        assert_ok(h5file_get(g->f, path, H5_F64, 1, 4, time));
    }
    camera = golden_ints(g, "camera");
    text = golden_ints(g, "text");
    mean = keep(g, zeros(4 * c.chunk * c.action));
    value = keep(g, zeros(4));
    grad = keep(g, zeros(n));
    {
        const struct vla_batch b = {.n_seq = 4,
                                    .cu_image = cu_image,
                                    .image = image,
                                    .camera = camera,
                                    .cu_text = cu_text,
                                    .text = text,
                                    .state = golden_get(g, "state", NULL),
                                    .noisy = flow ? golden_get(g, "noisy", NULL) : NULL,
                                    .time = flow ? time : NULL};

        assert_ok(vla_forward(&net, w, &b, mean, value));
        golden_same(g, "mean", mean, g->value_tol);
        golden_same(g, "value", value, g->value_tol);
        vla_backward(&net, w, &b, golden_get(g, "d_mean", NULL), golden_get(g, "d_value", NULL),
                     grad);
        golden_same(g, "grad", grad, g->grad_tol);
    }
    mem_free(camera);
    mem_free(text);
    vla_work_destroy(w);
    vla_net_fini(&net);
}

static inline void golden_vla_check(double value_tol, double grad_tol)
{
    struct golden g;

    golden_open(&g, value_tol, grad_tol);
    golden_linear(&g);
    golden_norms(&g);
    golden_activations(&g);
    golden_attention(&g);
    golden_heads(&g);
    golden_policy(&g, "policy", VLA_TEST_JSON);
    golden_policy(&g, "policy_flow", VLA_TEST_JSON_FLOW);
    golden_close(&g);
}

#endif
