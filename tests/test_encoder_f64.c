// The encoder, alone and before the networks, in double: the same sources compiled again, against
// PyTorch and, over random shapes, against finite differences.
#define REAL_IS_DOUBLE
#include "tests/golden_encoder.h"

// clang-format off
#include "nn/linear.c"
#include "nn/gemm.c"
#include "nn/gaussian.c"
#include "nn/encoder.c"
#include "nn/mlp.c"
#include "learner/loss.c"
#include "learner/pass.c"
// clang-format on

#include "common/base/rng.h"

#define ROWS     3
#define SHAPES   30
#define PER_CASE 25 // parameters of a shape that are tried

static void pytorch_gets_the_same(void **state)
{
    (void)state;
    golden_encoder_check(1e-12, 1e-9);
}

static int between(struct rng *r, int low, int high)
{
    return low + (int)rng_below(r, (uint32_t)(high - low + 1));
}

// One to four convolutions, as the picture allows.
static struct model_shape random_shape(struct rng *r)
{
    struct model_shape s = {.n_obs = between(r, 1, 5), .n_act = 1, .n_hidden = 1, .hidden = {4}};
    struct model_vision *v = &s.vision;
    int n = between(r, 1, 4), w, h;

    v->width = w = between(r, 3, 24);
    v->height = h = between(r, 3, 24);
    v->stack = between(r, 1, 3);
    v->state = rng_below(r, 2);
    while (v->n_conv < n) {
        struct model_conv *c = &v->conv[v->n_conv];
        int side = w < h ? w : h;

        c->kernel = between(r, 1, side < 6 ? side : 6);
        c->stride = between(r, 1, c->kernel);
        c->channels = between(r, 1, 20);
        w = model_conv_out(w, c);
        h = model_conv_out(h, c);
        v->n_conv++;
    }
    assert_ok(model_shape_check(&s));
    return s;
}

struct rig {
    struct model_shape shape;
    struct encoder encoder;
    struct encoder_rows rows;
    const uint8_t *pictures[ROWS * MODEL_STACK_MAX];
    uint8_t *memory;
    real *params, *obs, *factor, *x, *grad;
    int64_t n_param;
    size_t n_x;
};

static real *normal_numbers(struct rng *r, size_t n, double scale)
{
    real *p = mem_alloc(n, sizeof *p);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = scale * rng_normal(r);
    return p;
}

static void rig_make(struct rig *g, struct rng *r)
{
    struct model_table table;
    size_t bytes, n;

    g->shape = random_shape(r);
    model_table_make(&table, &g->shape);
    g->n_param = table.n_encoder;
    bytes = model_picture_bytes(&g->shape.vision);
    n = ROWS * (size_t)g->shape.vision.stack;
    g->memory = mem_alloc(n, bytes);
    assert_non_null(g->memory);
    for (size_t i = 0; i < n * bytes; i++)
        g->memory[i] = (uint8_t)rng_u32(r);
    for (size_t i = 0; i < n; i++)
        g->pictures[i] = g->memory + i * bytes;
    g->n_x = ROWS * (size_t)REAL_LD(model_n_in(&g->shape));
    g->params = normal_numbers(r, (size_t)g->n_param, 0.2);
    g->obs = normal_numbers(r, ROWS * (size_t)REAL_LD(g->shape.n_obs), 1);
    g->factor = normal_numbers(r, g->n_x, 1);
    g->x = normal_numbers(r, g->n_x, 0);
    g->grad = normal_numbers(r, (size_t)g->n_param, 0);
    assert_ok(encoder_init(&g->encoder, &g->shape));
    assert_ok(encoder_rows_init(&g->rows, &g->encoder, ROWS, true));
}

static void rig_free(struct rig *g)
{
    encoder_rows_fini(&g->rows);
    encoder_fini(&g->encoder);
    mem_free(g->memory);
    mem_free(g->params);
    mem_free(g->obs);
    mem_free(g->factor);
    mem_free(g->x);
    mem_free(g->grad);
}

// The sum of what comes out times fixed factors, so that its gradient by an output is the factor.
static double score(struct rig *g)
{
    double sum = 0;

    encoder_pack(&g->encoder, g->params);
    encoder_forward(&g->encoder, &g->rows, g->pictures, g->obs, ROWS, g->x);
    for (size_t i = 0; i < g->n_x; i++)
        sum += g->x[i] * g->factor[i];
    return sum;
}

static void gradients_agree_with_finite_differences(void **state)
{
    struct rng r = rng_make(5, RNG_TEST, 0, 0, 0);

    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        struct rig g;

        rig_make(&g, &r);
        (void)score(&g);
        encoder_backward(&g.encoder, &g.rows, g.pictures, ROWS, g.factor, g.grad);
        for (int k = 0; k < PER_CASE; k++) {
            // the last ones are the last layer's, the others anywhere
            int64_t at = k < 5 && k < g.n_param ? g.n_param - 1 - k
                                                : (int64_t)rng_below(&r, (uint32_t)g.n_param);
            const double h = 1e-5, held = g.params[at];
            double up, down;

            g.params[at] = held + h;
            up = score(&g);
            g.params[at] = held - h;
            down = score(&g);
            g.params[at] = held;
            assert_close(g.grad[at], (up - down) / (2 * h), 1e-6, 1e-6);
        }
        rig_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pytorch_gets_the_same),
        leak_test(gradients_agree_with_finite_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
