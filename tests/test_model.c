#include "tests/testing.h"

#include "nn/model.h"

static void shape_is_parsed(void **state)
{
    struct model_shape s;
    char text[64];

    (void)state;
    assert_ok(model_shape_parse(&s, 17, 6, "64,32"));
    assert_int_equal(s.n_hidden, 2);
    assert_int_equal(s.hidden[0], 64);
    assert_int_equal(s.hidden[1], 32);
    model_shape_print(&s, text, sizeof text);
    assert_string_equal(text, "64,32");
}

static void bad_shapes_are_named(void **state)
{
    static const char *const bad[] = {
        "", ",", "64,", "64,,64", "0", "-4", "4097", "64;64", "99999999999999999999", "a"};
    struct model_shape s;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(model_shape_parse(&s, 3, 2, bad[i]), ST_INVAL, "hidden layers");
    assert_fails(model_shape_parse(&s, 3, 2, "8,8,8,8,8"), ST_INVAL, "at most 4");
    assert_fails(model_shape_parse(&s, 0, 2, "8"), ST_INVAL, "n_obs");
    assert_fails(model_shape_parse(&s, 3, 65, "8"), ST_INVAL, "n_act");
}

static void table_lists_all_parameters_in_order(void **state)
{
    static const char *const name[] = {"policy.0.weight", "policy.0.bias",  "policy.2.weight",
                                       "policy.2.bias",   "log_std",        "value.0.weight",
                                       "value.0.bias",    "value.2.weight", "value.2.bias"};
    struct model_shape s;
    struct model_table t;
    int64_t at = 0;
    int i;

    (void)state;
    assert_ok(model_shape_parse(&s, 5, 3, "7"));
    model_table_make(&t, &s);
    assert_int_equal(t.n_piece, 9);
    for (i = 0; i < 9; i++) {
        assert_string_equal(t.piece[i].name, name[i]);
        assert_int_equal(t.piece[i].offset, at);
        at += t.piece[i].rows * (t.piece[i].cols ? t.piece[i].cols : 1);
    }
    assert_int_equal(at, t.n_param);
    assert_int_equal(t.piece[2].rows, 3);
    assert_int_equal(t.piece[2].cols, 7);
    assert_int_equal(t.i_log_std, 4);
    assert_int_equal(t.n_policy, t.piece[5].offset);
}

// w w^T or w^T w, whichever is smaller, is gain^2 times the identity.
static void check_orthogonal(const float *w, int rows, int cols, double gain)
{
    int n = rows < cols ? rows : cols, dim = rows < cols ? cols : rows, a, b, k;
    int vector = rows < cols ? cols : 1, along = rows < cols ? 1 : cols;

    for (a = 0; a < n; a++)
        for (b = 0; b < n; b++) {
            double dot = 0;

            for (k = 0; k < dim; k++)
                dot += (double)w[a * vector + k * along] * (double)w[b * vector + k * along];
            assert_close(dot, a == b ? gain * gain : 0, 1e-5, 1e-5 * gain * gain);
        }
}

static void initial_weights_are_orthogonal_with_their_gains(void **state)
{
    float params[4096];
    struct model_shape s;
    struct model_table t;
    int i, k;

    (void)state;
    assert_ok(model_shape_parse(&s, 5, 3, "16,8"));
    model_table_make(&t, &s);
    assert_true(t.n_param < 4096);
    assert_ok(model_init(&s, 7, -0.5, params));
    for (i = 0; i < t.n_piece; i++) {
        const struct model_piece *p = &t.piece[i];
        double gain = strcmp(p->name, "policy.4.weight") == 0  ? 0.01
                      : strcmp(p->name, "value.4.weight") == 0 ? 1
                                                               : sqrt(2);

        if (p->cols > 0)
            check_orthogonal(params + p->offset, p->rows, p->cols, gain);
        for (k = 0; p->cols == 0 && k < p->rows; k++)
            assert_close(params[p->offset + k], i == t.i_log_std ? -0.5 : 0, 0, 0);
    }
}

static void initial_weights_depend_on_the_seed_alone(void **state)
{
    static float a[65536], b[65536], c[65536];
    struct model_shape s;
    struct model_table t;
    size_t bytes;

    (void)state;
    assert_ok(model_shape_parse(&s, 17, 6, "64,64"));
    model_table_make(&t, &s);
    bytes = (size_t)t.n_param * sizeof *a;
    assert_true(t.n_param < 65536);
    assert_ok(model_init(&s, 1, 0, a));
    assert_ok(model_init(&s, 1, 0, b));
    assert_ok(model_init(&s, 2, 0, c));
    assert_memory_equal(a, b, bytes);
    assert_memory_not_equal(a, c, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(shape_is_parsed),
        leak_test(bad_shapes_are_named),
        leak_test(table_lists_all_parameters_in_order),
        leak_test(initial_weights_are_orthogonal_with_their_gains),
        leak_test(initial_weights_depend_on_the_seed_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
