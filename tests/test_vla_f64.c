// The whole policy in double: its gradient by finite differences, and the same gradient from a
// ragged batch packed, padded, one sequence at a time, and with checkpoints.
#define REAL_IS_DOUBLE
#include "tests/vla_testing.h"

#define SEQS  5
#define TEXTS 6

struct rig {
    struct vla_net net;
    struct vla_work *work;
    struct ragged g;
    real *params, *mean, *value, *d_mean, *d_value, *grad;
    int64_t n_mean;
};

static double loss(void *arg)
{
    struct rig *x = arg;

    assert_ok(vla_forward(&x->net, x->work, &x->g.b, x->mean, x->value));
    return weighted(x->mean, x->d_mean, x->n_mean) + weighted(x->value, x->d_value, SEQS);
}

static void rig_make(struct rig *x, uint64_t seed, const char *json)
{
    const struct vla_room room = {
        .seqs = SEQS, .images = SEQS * 3, .texts = SEQS * TEXTS, .backward = true};
    struct rng r = rng_make(seed, RNG_TEST, 0, 0, 0);
    struct vla_config c;

    assert_ok(vla_config_parse(&c, json, "test"));
    assert_ok(vla_net_init(&x->net, &c, NULL));
    x->net.params = x->params = test_params(&x->net, seed);
    assert_ok(vla_work_create(&x->work, &x->net, &room));
    ragged_make(&x->g, &r, &c, SEQS, TEXTS);
    x->n_mean = SEQS * c.chunk * c.action;
    x->mean = zeros(x->n_mean);
    x->value = zeros(SEQS);
    x->d_mean = normals(&r, x->n_mean, 1);
    x->d_value = normals(&r, SEQS, 1);
    x->grad = zeros(x->net.t.n_param);
}

static void rig_free(struct rig *x)
{
    ragged_free(&x->g);
    vla_work_destroy(x->work);
    vla_net_fini(&x->net);
    mem_free(x->params);
    mem_free(x->mean);
    mem_free(x->value);
    mem_free(x->d_mean);
    mem_free(x->d_value);
    mem_free(x->grad);
}

static void gradient_agrees_with_finite_differences(void **state)
{
    struct rng r = rng_make(77, RNG_TEST, 0, 0, 0);

    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct rig x;

        // all tokens of pictures pass, or some; a flow
        rig_make(&x, seed,
                 seed % 3 == 0   ? VLA_TEST_JSON_FLOW
                 : seed % 2 == 1 ? VLA_TEST_JSON
                                 : VLA_TEST_JSON_PRUNED);
        (void)loss(&x);
        vla_backward(&x.net, x.work, &x.g.b, x.d_mean, x.d_value, x.grad);
        // some of every tensor
        for (int i = 0; i < x.net.t.n_piece; i++) {
            const struct vla_piece *p = &x.net.t.piece[i];

            check_gradient(loss, &x, x.params + p->offset,
                           (int64_t)p->rows * (p->cols ? p->cols : 1), x.grad + p->offset, 3, &r);
        }
        rig_free(&x);
    }
}

static void check_layouts(const char *json)
{
    struct rig x;
    real *other;
    int64_t n;

    rig_make(&x, 5, json);
    n = x.net.t.n_param;
    other = zeros(n);
    (void)loss(&x);
    vla_backward(&x.net, x.work, &x.g.b, x.d_mean, x.d_value, x.grad);
    for (int way = 0; way < 3; way++) { // padded, with checkpoints, both
        const struct vla_room room = {.seqs = SEQS,
                                      .images = SEQS * 3,
                                      .texts = SEQS * TEXTS,
                                      .backward = true,
                                      .padded = way != 1,
                                      .checkpoint = way > 0};
        struct vla_work *w;

        memset(other, 0, (size_t)n * sizeof *other);
        assert_ok(vla_work_create(&w, &x.net, &room));
        assert_ok(vla_forward(&x.net, w, &x.g.b, x.mean, x.value));
        vla_backward(&x.net, w, &x.g.b, x.d_mean, x.d_value, other);
        assert_true(distance(other, x.grad, n) < 1e-12);
        vla_work_destroy(w);
    }
    memset(other, 0, (size_t)n * sizeof *other);
    for (int s = 0; s < SEQS; s++) {
        int cu[4];
        const struct vla_batch one = one_of(&x.g.b, &x.net.c, s, cu);

        assert_ok(vla_forward(&x.net, x.work, &one, x.mean, x.value));
        vla_backward(&x.net, x.work, &one, x.d_mean + s * x.n_mean / SEQS, x.d_value + s, other);
    }
    assert_true(distance(other, x.grad, n) < 1e-12);
    mem_free(other);
    rig_free(&x);
}

static void every_layout_gives_the_same_gradient(void **state)
{
    (void)state;
    check_layouts(VLA_TEST_JSON);
    check_layouts(VLA_TEST_JSON_FLOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(gradient_agrees_with_finite_differences),
        leak_test(every_layout_gives_the_same_gradient),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
