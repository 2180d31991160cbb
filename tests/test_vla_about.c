#include "nn/vla_about.h"

#include "common/base/rng.h"
#include "nn/h5file.h"
#include "nn/safetensors.h"
#include "tests/vla_policy_testing.h"

#include <unistd.h>

static char path[64];

static void assert_same(const struct weights *a, const struct weights *b)
{
    assert_true(weights_same_model(a, b));
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->n_param, b->n_param);
    assert_memory_equal(a->params, b->params, (size_t)a->n_param * sizeof a->params[0]);
    assert_string_equal(a->vla->kwargs, b->vla->kwargs);
    assert_int_equal(a->shape.n_obs, b->shape.n_obs);
    assert_int_equal(a->shape.n_act, b->shape.n_act);
}

static void weights_travel_as_bytes_and_files(void **state)
{
    struct weights *w = vla_policy_weights(7), *back, *copy;
    size_t n = weights_blob_bytes(w);
    uint8_t *blob = mem_alloc(n, 1);

    (void)state;
    assert_int_equal(w->shape.n_act, 12);
    weights_blob_write(w, blob);
    assert_ok(weights_blob_read(&back, blob, n));
    assert_same(w, back);
    weights_drop(back);
    assert_ok(weights_save(w, path));
    assert_ok(weights_load(&back, path));
    assert_same(w, back);
    assert_ok(weights_copy(&copy, back));
    assert_same(w, copy);
    weights_drop(back);
    weights_drop(copy);
    mem_free(blob);
    weights_drop(w);
}

static void damaged_bytes_are_refused(void **state)
{
    struct weights *w = vla_policy_weights(7), *back = NULL;
    size_t n = weights_blob_bytes(w), step = n / 200;
    uint8_t *blob = mem_alloc(n, 1), *hurt = mem_alloc(n, 1);
    struct rng r = rng_make(3, RNG_TEST, 0, 0, 0);
    int refused = 0;

    (void)state;
    weights_blob_write(w, blob);
    for (size_t k = 0; k < n; k += step)
        assert_fails(weights_blob_read(&back, blob, k), ST_PROTO, "");
    w->params[5] = NAN;
    weights_blob_write(w, hurt);
    assert_fails(weights_blob_read(&back, hurt, n), ST_PROTO, "model holds a number");
    for (int i = 0; i < 3000; i++) {
        enum status st;

        memcpy(hurt, blob, n);
        hurt[rng_below(&r, 9000)] ^= (uint8_t)(1u << rng_below(&r, 8));
        st = weights_blob_read(&back, hurt, n);
        if (st == ST_OK)
            weights_drop(back);
        else
            assert_true(st == ST_PROTO || st == ST_NOMEM);
        refused += st != ST_OK;
    }
    assert_true(refused > 30); // most of what was hit is behind the end of some text
    mem_free(blob);
    mem_free(hurt);
    weights_drop(w);
}

static void files_that_lack_something_are_refused(void **state)
{
    struct weights *w = vla_policy_weights(7), *back = NULL;
    struct h5file *f;

    (void)state;
    assert_ok(h5file_create(&f));
    assert_ok(h5file_put_int(f, "format", 3));
    assert_ok(vla_about_put(w->vla, f));
    assert_ok(h5file_save(f, path));
    h5file_close(f);
    assert_fails(weights_load(&back, path), ST_INVAL, "no attribute 'version'");
    assert_ok(h5file_create(&f));
    assert_ok(h5file_put_int(f, "format", 3));
    assert_ok(h5file_put_text(f, "model", "{\"layers\": 0}"));
    assert_ok(h5file_save(f, path));
    h5file_close(f);
    assert_fails(weights_load(&back, path), ST_INVAL, "layers");
    weights_drop(w);
}

static void parameters_go_through_safetensors(void **state)
{
    struct weights *w = vla_policy_weights(7), *other = vla_policy_weights(8);
    struct safetensors *s;

    (void)state;
    assert_ok(vla_about_export(w->vla, w->params, false, path));
    assert_ok(vla_about_import(other->vla, other->params, path));
    assert_memory_equal(w->params, other->params, (size_t)w->n_param * sizeof w->params[0]);
    assert_ok(safetensors_open(&s, path));
    assert_true(strstr(safetensors_meta(s, "model"), "\"expert_mlp\": 12") != NULL);
    safetensors_close(s);
    assert_ok(vla_about_export(w->vla, w->params, true, path));
    assert_ok(vla_about_import(other->vla, other->params, path));
    for (int64_t i = 0; i < w->n_param; i++)
        assert_close(other->params[i], w->params[i], 1.0 / 256, 0);
    assert_ok(safetensors_save(path, NULL, 0, NULL, 0));
    assert_fails(vla_about_import(other->vla, other->params, path), ST_INVAL, "no array '");
    weights_drop(w);
    weights_drop(other);
}

static void parts_that_do_not_fit_are_refused(void **state)
{
    struct weights *w = vla_policy_weights(7);
    struct vla_config c = w->vla->model;
    struct vla_input in = w->vla->input;
    struct vla_about *a = NULL;

    (void)state;
    c.cameras = 3;
    assert_fails(vla_about_create(&a, &c, &in, NULL, 0), ST_INVAL, "a model for 3 cameras");
    c = w->vla->model;
    c.vocab = 257;
    assert_fails(vla_about_create(&a, &c, &in, VLA_POLICY_WORDS, strlen(VLA_POLICY_WORDS)),
                 ST_INVAL, "a vocabulary of 258 tokens, the model has room for 257");
    c = w->vla->model;
    assert_fails(vla_about_create(&a, &c, &in, "nonsense", 8), ST_INVAL, "vocabulary:1:");
    in.state_std[0] = 0;
    assert_fails(vla_about_create(&a, &c, &in, NULL, 0), ST_INVAL, "state_std of number 0");
    weights_drop(w);
}

static void out_of_memory_is_reported(void **state)
{
    struct weights *w = vla_policy_weights(7), *back = NULL;
    size_t n = weights_blob_bytes(w);
    uint8_t *blob = mem_alloc(n, 1);
    int k;

    (void)state;
    weights_blob_write(w, blob);
    for (k = 0;; k++) {
        mem_fail_after(k);
        if (weights_blob_read(&back, blob, n) == ST_OK)
            break;
        assert_null(back);
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_true(k > 5);
    weights_drop(back);
    mem_free(blob);
    weights_drop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(weights_travel_as_bytes_and_files),
        leak_test(damaged_bytes_are_refused),
        leak_test(files_that_lack_something_are_refused),
        leak_test(parameters_go_through_safetensors),
        leak_test(parts_that_do_not_fit_are_refused),
        leak_test(out_of_memory_is_reported),
    };
    int failed;

    snprintf(path, sizeof path, "/tmp/vla-about-%d.h5", (int)getpid());
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
