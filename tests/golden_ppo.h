// golden_ppo.h - tests/golden/ppo_grad.h5 (see tests/oracle/ppo_golden.py) in the test's precision,
// and the run of learner/pass.h over it.
#ifndef TESTS_GOLDEN_PPO_H
#define TESTS_GOLDEN_PPO_H

#include "tests/testing.h"

#include "learner/pass.h"
#include "nn/h5file.h"

#include <stdio.h>

#define GOLDEN_N     64
#define GOLDEN_OBS   5
#define GOLDEN_ACT   3
#define GOLDEN_PARAM 900 // at least

struct golden {
    int64_t n_param;
    struct model_shape shape;
    real params[GOLDEN_PARAM];
    real x[GOLDEN_N * REAL_LD(GOLDEN_OBS)], action[GOLDEN_N * GOLDEN_ACT];
    real advantage[GOLDEN_N], target[GOLDEN_N], logp_behaviour[GOLDEN_N];
    real logp_ref[GOLDEN_N], weight[GOLDEN_N];
    double grad[2][GOLDEN_PARAM], loss[2][4]; // replay, first
};

static const struct loss_config golden_config = {
    .clip = 0.2, .value_coef = 0.7, .entropy_coef = 0.01, .weight_cap = 2};

static inline void golden_read(struct h5file *f, const char *name, int rows, int cols, int ld,
                               real *out)
{
    static double data[GOLDEN_N * 16 + GOLDEN_PARAM];
    int i, k;

    assert_ok(h5file_get(f, name, H5_F64, rows, cols, data));
    for (i = 0; i < rows; i++)
        for (k = 0; k < (cols ? cols : 1); k++)
            out[i * ld + k] = (real)data[i * (cols ? cols : 1) + k];
}

static inline void golden_load(struct golden *g)
{
    struct model_table t;
    struct h5file *f;

    memset(g, 0, sizeof *g);
    assert_ok(model_shape_parse(&g->shape, GOLDEN_OBS, GOLDEN_ACT, "16,16"));
    model_table_make(&t, &g->shape);
    g->n_param = t.n_param;
    assert_true(t.n_param <= GOLDEN_PARAM);
    assert_ok(h5file_open(&f, TESTS_DIR "/golden/ppo_grad.h5"));
    golden_read(f, "params", (int)t.n_param, 0, 1, g->params);
    golden_read(f, "x", GOLDEN_N, GOLDEN_OBS, REAL_LD(GOLDEN_OBS), g->x);
    golden_read(f, "action", GOLDEN_N, GOLDEN_ACT, GOLDEN_ACT, g->action);
    golden_read(f, "advantage", GOLDEN_N, 0, 1, g->advantage);
    golden_read(f, "target", GOLDEN_N, 0, 1, g->target);
    golden_read(f, "logp_behaviour", GOLDEN_N, 0, 1, g->logp_behaviour);
    golden_read(f, "logp_ref", GOLDEN_N, 0, 1, g->logp_ref);
    golden_read(f, "weight", GOLDEN_N, 0, 1, g->weight);
    assert_ok(h5file_get(f, "grad_replay", H5_F64, t.n_param, 0, g->grad[0]));
    assert_ok(h5file_get(f, "grad_first", H5_F64, t.n_param, 0, g->grad[1]));
    assert_ok(h5file_get(f, "loss_replay", H5_F64, 4, 0, g->loss[0]));
    assert_ok(h5file_get(f, "loss_first", H5_F64, 4, 0, g->loss[1]));
    h5file_close(f);
}

// Gradient sums (n_param) and losses of rows at..at+n-1; `first` as in pass_run.
static inline void golden_pass(const struct golden *g, const struct nets *nets, struct pass *pass,
                               int at, int n, bool first, real *grad, struct loss_sums *sums)
{
    real weight[GOLDEN_N], logp_ref[GOLDEN_N];
    struct samples s = {.n = n,
                        .x = g->x + at * REAL_LD(GOLDEN_OBS),
                        .action = g->action + at * GOLDEN_ACT,
                        .advantage = g->advantage + at,
                        .target = g->target + at,
                        .logp_behaviour = g->logp_behaviour + at,
                        .weight = weight,
                        .logp_ref = logp_ref};

    memcpy(weight, g->weight + at, (size_t)n * sizeof *weight);
    memcpy(logp_ref, g->logp_ref + at, (size_t)n * sizeof *logp_ref);
    pass_run(pass, nets, &golden_config, &s, first, false, grad, sums);
}

// The largest difference of two gradients, as a share of the second's largest entry.
static inline double golden_distance(const real *a, const double *b, int64_t n)
{
    double worst = 0, most = 0;

    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)a[i] - b[i]));
        most = fmax(most, fabs(b[i]));
    }
    return worst / most;
}

// PyTorch's losses and gradients, to `rtol`.
static inline void golden_check(double rtol)
{
    static struct golden g;
    struct nets nets = {0};
    struct pass pass = {0};
    int first;

    golden_load(&g);
    assert_ok(nets_init(&nets, &g.shape));
    assert_ok(pass_init(&pass, &nets));
    nets_pack(&nets, g.params);
    for (first = 0; first < 2; first++) {
        static real grad[GOLDEN_PARAM];
        struct loss_sums sums = {0};

        memset(grad, 0, sizeof grad);
        golden_pass(&g, &nets, &pass, 0, GOLDEN_N, first, grad, &sums);
        assert_int_equal(sums.samples, GOLDEN_N);
        assert_close(sums.policy, g.loss[first][0], rtol, rtol);
        assert_close(sums.value, g.loss[first][1], rtol, rtol);
        assert_close(sums.kl, g.loss[first][2], rtol, 10 * rtol);
        assert_close(sums.clipped, g.loss[first][3], 0, 0);
        assert_true(golden_distance(grad, g.grad[first], g.n_param) < rtol);
    }
    pass_fini(&pass);
    nets_fini(&nets);
}

#endif
