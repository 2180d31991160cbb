// golden_token.h - tests/golden/token_loss.h5 (see tests/oracle/token_golden.py) in the test's
// precision, and learner/token_loss.h's run over it.
#ifndef TESTS_GOLDEN_TOKEN_H
#define TESTS_GOLDEN_TOKEN_H

#include "tests/testing.h"

#include "learner/token_loss.h"
#include "nn/gaussian.h"
#include "nn/h5file.h"

#include <stdio.h>

#define TOKEN_N            11
#define TOKEN_C            4
#define TOKEN_D            3
#define TOKEN_W            (TOKEN_C * TOKEN_D)
#define TOKEN_LD           REAL_LD(TOKEN_W)
#define TOKEN_EPS          5
#define TOKEN_FIXED_LENGTH 20

struct golden_token {
    real mean[TOKEN_N * TOKEN_LD], log_std[TOKEN_W], inv_std[TOKEN_W], action[TOKEN_N * TOKEN_W];
    real behaviour[TOKEN_N * TOKEN_C], start[TOKEN_N * TOKEN_C], advantage[TOKEN_N];
    real logp[TOKEN_N * TOKEN_C], omega[TOKEN_N];
    uint32_t n_sub[TOKEN_N];
    int episode[TOKEN_N];
};

struct token_result {
    real mean_grad[TOKEN_N * TOKEN_LD], log_std_grad[TOKEN_W];
    struct token_sums sums;
    double divisor;
};

static const struct token_config golden_token_config = {
    .clip_low = 0.2, .clip_high = 0.28, .dual_clip = 3, .weight_cap = 2, .entropy_coef = 0.01};

static inline void token_read(struct h5file *f, const char *name, int rows, int cols, int ld,
                              real *out)
{
    double data[TOKEN_N * TOKEN_W];

    assert_ok(h5file_get(f, name, H5_F64, rows, cols, data));
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < (cols ? cols : 1); k++)
            out[i * ld + k] = (real)data[i * (cols ? cols : 1) + k];
}

// What follows from mean and log_std.
static inline void token_update(struct golden_token *g)
{
    (void)gaussian_inv_std(g->log_std, TOKEN_W, g->inv_std);
    gaussian_parts(g->mean, TOKEN_LD, g->action, TOKEN_N, TOKEN_W, TOKEN_C, g->log_std, g->inv_std,
                   g->logp);
}

static inline void token_load(struct golden_token *g)
{
    real whole[TOKEN_N];
    struct h5file *f;

    memset(g, 0, sizeof *g);
    assert_ok(h5file_open(&f, TESTS_DIR "/golden/token_loss.h5"));
    token_read(f, "mean", TOKEN_N, TOKEN_W, TOKEN_LD, g->mean);
    token_read(f, "log_std", TOKEN_W, 0, 1, g->log_std);
    token_read(f, "action", TOKEN_N, TOKEN_W, TOKEN_W, g->action);
    token_read(f, "logp_behaviour", TOKEN_N, TOKEN_C, TOKEN_C, g->behaviour);
    token_read(f, "logp_start", TOKEN_N, TOKEN_C, TOKEN_C, g->start);
    token_read(f, "advantage", TOKEN_N, 0, 1, g->advantage);
    token_read(f, "n_sub", TOKEN_N, 0, 1, whole);
    for (int i = 0; i < TOKEN_N; i++)
        g->n_sub[i] = (uint32_t)whole[i];
    token_read(f, "episode", TOKEN_N, 0, 1, whole);
    for (int i = 0; i < TOKEN_N; i++)
        g->episode[i] = (int)whole[i];
    h5file_close(f);
    token_update(g);
}

// Each row's omega, and the divisor.
static inline double token_prepare(struct golden_token *g, const struct token_config *cfg)
{
    int64_t decisions[TOKEN_EPS] = {0}, subs[TOKEN_EPS] = {0}, all = 0;

    for (int i = 0; i < TOKEN_N; i++) {
        decisions[g->episode[i]]++;
        subs[g->episode[i]] += g->n_sub[i];
    }
    for (int i = 0; i < TOKEN_N; i++) {
        int e = g->episode[i];

        g->omega[i] =
            (real)token_omega(cfg->mean, token_entries(cfg->level, decisions[e], subs[e]));
    }
    for (int e = 0; e < TOKEN_EPS; e++)
        all += token_entries(cfg->level, decisions[e], subs[e]);
    return token_divisor(cfg->mean, TOKEN_EPS, all, TOKEN_FIXED_LENGTH);
}

// The sums of rows at..at+n-1, added to `r`.
static inline void token_run(const struct golden_token *g, const struct token_config *cfg,
                             bool start, int at, int n, struct token_result *r)
{
    const struct token_rows rows = {.n = n,
                                    .chunk = TOKEN_C,
                                    .n_act = TOKEN_D,
                                    .ld = TOKEN_LD,
                                    .mean = g->mean + at * TOKEN_LD,
                                    .log_std = g->log_std,
                                    .inv_std = g->inv_std,
                                    .action = g->action + at * TOKEN_W,
                                    .n_sub = g->n_sub + at,
                                    .logp = g->logp + at * TOKEN_C,
                                    .logp_behaviour = g->behaviour + at * TOKEN_C,
                                    .logp_start = start ? g->start + at * TOKEN_C : NULL,
                                    .advantage = g->advantage + at,
                                    .omega = g->omega + at};

    token_loss(cfg, &rows, r->mean_grad + at * TOKEN_LD, r->log_std_grad, &r->sums);
}

static inline void token_compare(struct h5file *f, const char *what, const char *name, int rows,
                                 int cols, int ld, const real *sum, double divisor, double rtol)
{
    double want[TOKEN_N * TOKEN_W];
    double scale = rows == 1 ? 1 : 0; // a single sum may cancel
    char path[96];

    snprintf(path, sizeof path, "%s_%s", what, name);
    assert_ok(h5file_get(f, path, H5_F64, rows, cols, want));
    cols = cols ? cols : 1;
    for (int i = 0; i < rows * cols; i++)
        scale = fmax(scale, fabs(want[i]));
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < cols; k++)
            assert_close((double)sum[i * ld + k] / divisor, want[i * cols + k], 0, rtol * scale);
}

// All levels, means and objectives against PyTorch.
static inline void token_check(double rtol)
{
    static const char *const level[] = {"action", "chunk"};
    static const char *const mean[] = {"sequence", "entry", "fixed"};
    static const char *const objective[] = {"behaviour", "decoupled", "decoupled_start"};
    static struct golden_token g;
    struct h5file *f;

    token_load(&g);
    assert_ok(h5file_open(&f, TESTS_DIR "/golden/token_loss.h5"));
    for (int i = 0; i < 2 * 3 * 3; i++) {
        struct token_config cfg = golden_token_config;
        struct token_result r = {0};
        real policy[1];
        char name[64];

        cfg.level = (enum token_level)(i / 9);
        cfg.mean = (enum token_mean)(i / 3 % 3);
        cfg.objective = i % 3 == 0 ? TOKEN_BEHAVIOUR : TOKEN_DECOUPLED;
        snprintf(name, sizeof name, "%s_%s_%s", level[i / 9], mean[i / 3 % 3], objective[i % 3]);
        r.divisor = token_prepare(&g, &cfg);
        token_run(&g, &cfg, i % 3 == 2, 0, TOKEN_N, &r);
        policy[0] = (real)r.sums.policy;
        token_compare(f, "loss", name, 1, 0, 1, policy, r.divisor, rtol);
        token_compare(f, "mean", name, TOKEN_N, TOKEN_W, TOKEN_LD, r.mean_grad, r.divisor, rtol);
        token_compare(f, "std", name, TOKEN_W, 0, 1, r.log_std_grad, r.divisor, rtol);
    }
    h5file_close(f);
}

#endif
