// golden_encoder.h - tests/golden/encoder_grad.h5 (see tests/oracle/encoder_golden.py) in the
// test's precision, through nn/encoder.h alone and through learner/pass.h.
#ifndef TESTS_GOLDEN_ENCODER_H
#define TESTS_GOLDEN_ENCODER_H

#include "tests/golden_ppo.h"

#define EYE_ROWS 5
#define EYE_ACT  2

static const struct eye { // as in the script
    int width, height, stack, n_obs;
    const char *conv;
} eyes[] = {
    {9, 7, 1, 0, "4x3/2"},
    {12, 15, 2, 3, "5x4/2,7x2/1"},
    {20, 20, 3, 0, "6x6/3,18x3/1,3x2/2"},
    {31, 17, 1, 2, "17x4/4,2x1/1,6x3/3,20x1/1"},
};

static inline struct model_shape eye_shape(const struct eye *e)
{
    struct model_shape shape;

    assert_ok(model_shape_parse(&shape, e->n_obs ? e->n_obs : 1, EYE_ACT, "6"));
    shape.vision = (struct model_vision){
        .width = e->width, .height = e->height, .stack = e->stack, .state = e->n_obs > 0};
    assert_ok(model_conv_parse(&shape.vision, e->conv));
    return shape;
}

// A dataset of one case: (rows, cols) into rows that are `ld` apart. NULL: not converted.
static inline double *eye_read(struct h5file *f, int i, const char *name, int64_t rows,
                               int64_t cols, int64_t ld, real **out)
{
    double *data = mem_alloc((size_t)(rows * cols), sizeof *data);
    char path[64];

    snprintf(path, sizeof path, "case%d/%s", i, name);
    assert_non_null(data);
    assert_ok(h5file_get(f, path, H5_F64, rows, cols, data));
    if (!out)
        return data;
    *out = mem_alloc((size_t)(rows * ld), sizeof **out);
    assert_non_null(*out);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            (*out)[r * ld + c] = (real)data[r * cols + c];
    mem_free(data);
    return NULL;
}

struct eye_data {
    struct model_shape shape;
    struct model_table table;
    int n_in, ld;
    const uint8_t *pictures[EYE_ROWS * 8];
    uint8_t *memory;
    real *params, *obs, *factor, *action, *advantage, *target, *logp;
    double *x, *grad, *grad_pass;
};

static inline void eye_load(struct eye_data *d, struct h5file *f, int i)
{
    const struct model_vision *v = &d->shape.vision;
    int64_t bytes, n = EYE_ROWS * eyes[i].stack;
    char path[64];

    d->shape = eye_shape(&eyes[i]);
    model_table_make(&d->table, &d->shape);
    d->n_in = model_n_in(&d->shape);
    d->ld = REAL_LD(d->n_in);
    bytes = (int64_t)model_picture_bytes(v);
    d->memory = mem_alloc((size_t)(n * bytes), 1);
    assert_non_null(d->memory);
    snprintf(path, sizeof path, "case%d/pictures", i);
    assert_ok(h5file_get(f, path, H5_U8, n, bytes, d->memory));
    for (int64_t k = 0; k < n; k++)
        d->pictures[k] = d->memory + k * bytes;
    (void)eye_read(f, i, "params", 1, d->table.n_param, d->table.n_param, &d->params);
    (void)eye_read(f, i, "obs", EYE_ROWS, d->shape.n_obs, REAL_LD(d->shape.n_obs), &d->obs);
    (void)eye_read(f, i, "factor", EYE_ROWS, d->n_in, d->ld, &d->factor);
    (void)eye_read(f, i, "action", EYE_ROWS, EYE_ACT, EYE_ACT, &d->action);
    (void)eye_read(f, i, "advantage", 1, EYE_ROWS, EYE_ROWS, &d->advantage);
    (void)eye_read(f, i, "target", 1, EYE_ROWS, EYE_ROWS, &d->target);
    (void)eye_read(f, i, "logp", 1, EYE_ROWS, EYE_ROWS, &d->logp);
    d->x = eye_read(f, i, "x", EYE_ROWS, d->n_in, d->n_in, NULL);
    d->grad = eye_read(f, i, "grad", 1, d->table.n_encoder, 0, NULL);
    d->grad_pass = eye_read(f, i, "grad_pass", 1, d->table.n_param, 0, NULL);
}

static inline void eye_free(struct eye_data *d)
{
    void *all[] = {d->memory, d->params, d->obs, d->factor, d->action,   d->advantage,
                   d->target, d->logp,   d->x,   d->grad,   d->grad_pass};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mem_free(all[i]);
}

static inline void eye_check_encoder(const struct eye_data *d, double value_tol, double grad_tol)
{
    struct encoder e;
    struct encoder_rows rows;
    real *x = mem_alloc((size_t)(EYE_ROWS * d->ld), sizeof *x);
    real *grad = mem_alloc((size_t)d->table.n_encoder, sizeof *grad);

    assert_true(x && grad);
    assert_ok(encoder_init(&e, &d->shape));
    assert_ok(encoder_rows_init(&rows, &e, EYE_ROWS, true));
    encoder_pack(&e, d->params);
    encoder_forward(&e, &rows, d->pictures, d->obs, EYE_ROWS, x);
    for (int r = 0; r < EYE_ROWS; r++)
        for (int k = 0; k < d->n_in; k++)
            assert_close((double)x[r * d->ld + k], d->x[r * d->n_in + k], value_tol, value_tol);
    encoder_backward(&e, &rows, d->pictures, EYE_ROWS, d->factor, grad);
    assert_true(golden_distance(grad, d->grad, d->table.n_encoder) < grad_tol);
    // it adds
    encoder_backward(&e, &rows, d->pictures, EYE_ROWS, d->factor, grad);
    assert_true(golden_distance(grad, d->grad, d->table.n_encoder) > 0.9);
    encoder_rows_fini(&rows);
    encoder_fini(&e);
    mem_free(x);
    mem_free(grad);
}

static inline void eye_check_pass(const struct eye_data *d, double grad_tol)
{
    static const struct loss_config cfg = {.clip = 0.2, .value_coef = 0.7, .weight_cap = 2};
    real weight[EYE_ROWS], logp_ref[EYE_ROWS], value[EYE_ROWS];
    struct samples s = {.n = EYE_ROWS,
                        .x = d->obs,
                        .pictures = d->pictures,
                        .action = d->action,
                        .advantage = d->advantage,
                        .target = d->target,
                        .logp_behaviour = d->logp,
                        .weight = weight,
                        .logp_ref = logp_ref};
    struct nets nets = {0};
    struct pass pass = {0};

    assert_ok(nets_init(&nets, &d->shape));
    assert_ok(pass_init(&pass, &nets));
    nets_pack(&nets, d->params);
    for (int have_value = 0; have_value < 2; have_value++) {
        real *grad = mem_alloc((size_t)d->table.n_param, sizeof *grad);
        struct loss_sums sums = {0};

        assert_non_null(grad);
        if (have_value)
            pass_value(&pass, &nets, d->obs, d->pictures, EYE_ROWS, value);
        pass_run(&pass, &nets, &cfg, &s, true, have_value, grad, &sums);
        assert_true(golden_distance(grad, d->grad_pass, d->table.n_param) < grad_tol);
        mem_free(grad);
    }
    pass_fini(&pass);
    nets_fini(&nets);
}

// PyTorch's features to value_tol and its gradients to grad_tol of the largest.
static inline void golden_encoder_check(double value_tol, double grad_tol)
{
    struct h5file *f;

    assert_ok(h5file_open(&f, TESTS_DIR "/golden/encoder_grad.h5"));
    for (int i = 0; i < (int)(sizeof eyes / sizeof eyes[0]); i++) {
        struct eye_data d = {0};

        eye_load(&d, f, i);
        eye_check_encoder(&d, value_tol, grad_tol);
        eye_check_pass(&d, grad_tol);
        eye_free(&d);
    }
    h5file_close(f);
}

#endif
