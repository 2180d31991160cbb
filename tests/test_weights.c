#include "tests/testing.h"

#include "common/base/rng.h"
#include "nn/weights.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[] = "/tmp/simstream-weights-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/policy.h5", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static struct weights *example(uint64_t version)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, 4, 2, "8,6"));
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, version, -0.5, w->params));
    w->version = version;
    w->obs_mean[1] = 0.25;
    w->obs_var[2] = 4;
    w->obs_count = 1000;
    w->ret_mean = -3;
    w->ret_std = 2.5;
    snprintf(w->task, sizeof w->task, "Ant-v5");
    snprintf(w->config, sizeof w->config, "{\"lr\": 0.1}");
    return w;
}

// The same with an encoder.
static struct weights *seeing(uint64_t version)
{
    struct model_shape shape;
    struct weights *w;

    assert_ok(model_shape_parse(&shape, 4, 2, "8,6"));
    shape.vision = (struct model_vision){.width = 20, .height = 16, .stack = 2, .state = true};
    assert_ok(model_conv_parse(&shape.vision, "3x6/3,5x2/1"));
    assert_ok(weights_create(&w, &shape));
    assert_ok(model_init(&shape, version, -0.5, w->params));
    w->version = version;
    snprintf(w->task, sizeof w->task, "Ant-v5");
    snprintf(w->picture, sizeof w->picture, "track_image");
    return w;
}

static void assert_equal(const struct weights *a, const struct weights *b)
{
    assert_int_equal(a->version, b->version);
    assert_true(model_shape_equal(&a->shape, &b->shape));
    assert_int_equal(a->n_param, b->n_param);
    assert_memory_equal(a->params, b->params, (size_t)a->n_param * sizeof *a->params);
    assert_memory_equal(a->obs_mean, b->obs_mean, 4 * sizeof(double));
    assert_memory_equal(a->obs_var, b->obs_var, 4 * sizeof(double));
    assert_close(a->obs_count, b->obs_count, 0, 0);
    assert_close(a->ret_mean, b->ret_mean, 0, 0);
    assert_close(a->ret_std, b->ret_std, 0, 0);
    assert_string_equal(a->task, b->task);
    assert_string_equal(a->picture, b->picture);
    assert_string_equal(a->config, b->config);
}

static void copies_are_equal_and_apart(void **state)
{
    struct weights *a = example(3), *b;

    (void)state;
    assert_ok(weights_copy(&b, a));
    assert_equal(a, b);
    b->params[0] += 1;
    assert_true(a->params[0] != b->params[0]);
    assert_ptr_equal(weights_hold(a), a);
    weights_drop(a);
    assert_int_equal(a->version, 3); // one reference is left
    weights_drop(a);
    weights_drop(b);
    weights_drop(NULL);
}

static void blob_comes_back_to_the_bit(void **state)
{
    (void)state;
    for (int see = 0; see < 2; see++) {
        struct weights *a = see ? seeing(9) : example(9), *b;
        size_t n = weights_blob_bytes(a);
        uint8_t *blob = mem_alloc(n, 1);

        weights_blob_write(a, blob);
        assert_ok(weights_blob_read(&b, blob, n));
        assert_equal(a, b);
        weights_drop(a);
        weights_drop(b);
        mem_free(blob);
    }
}

static void bad_blobs_are_refused(void **state)
{
    struct weights *a = example(9), *b;
    size_t n = weights_blob_bytes(a);
    uint8_t *blob = mem_alloc(n + 1, 1);

    (void)state;
    weights_blob_write(a, blob);
    assert_fails(weights_blob_read(&b, blob, n - 1), ST_PROTO, "bytes");
    assert_fails(weights_blob_read(&b, blob, n + 1), ST_PROTO, "bytes");
    assert_fails(weights_blob_read(&b, blob, 10), ST_PROTO, "10 bytes");
    blob[0] ^= 1;
    assert_fails(weights_blob_read(&b, blob, n), ST_PROTO, "format");
    a->params[5] = INFINITY;
    weights_blob_write(a, blob);
    assert_fails(weights_blob_read(&b, blob, n), ST_PROTO, "policy.0.weight");
    a->params[5] = 0;
    a->obs_var[0] = -1;
    weights_blob_write(a, blob);
    assert_fails(weights_blob_read(&b, blob, n), ST_PROTO, "obs_var");
    weights_drop(a);
    mem_free(blob);
}

// Whatever the bytes, the decoder gives a sound object or an error with a text.
static void mutate_blob(struct weights *a)
{
    struct weights *b;
    size_t n = weights_blob_bytes(a), max = n + 64;
    uint8_t *good = mem_alloc(n, 1), *blob = mem_alloc(max, 1);
    struct rng rng = rng_make(1, RNG_TEST, 0, 0, 0);
    int i, k, accepted = 0;

    weights_blob_write(a, good);
    for (i = 0; i < 20000; i++) {
        size_t size = rng_below(&rng, 4) == 0 ? rng_below(&rng, (uint32_t)max) : n;
        int changes = 1 + (int)rng_below(&rng, 4);

        memset(blob, 0, max);
        memcpy(blob, good, n);
        for (k = 0; k < changes; k++) {
            // most of the decisions are made by the first bytes
            uint32_t at = rng_below(&rng, rng_below(&rng, 2) ? 136 : (uint32_t)n);

            blob[at] = (uint8_t)rng_u32(&rng);
        }
        if (weights_blob_read(&b, blob, size) == ST_OK) {
            accepted++;
            assert_int_equal(weights_blob_bytes(b), size);
            weights_drop(b);
        } else {
            assert_int_equal(error_last()->code, ST_PROTO);
            assert_true(error_last()->text[0] != '\0');
        }
    }
    assert_true(accepted > 0 && accepted < 20000);
    weights_drop(a);
    mem_free(good);
    mem_free(blob);
}

static void mutated_blobs_never_crash(void **state)
{
    (void)state;
    mutate_blob(example(9));
    mutate_blob(seeing(9));
}

static void file_comes_back_to_the_bit(void **state)
{
    (void)state;
    for (int see = 0; see < 2; see++) {
        struct weights *a = see ? seeing(9) : example(9), *b;

        assert_ok(weights_save(a, path));
        assert_ok(weights_load(&b, path));
        assert_equal(a, b);
        weights_drop(a);
        weights_drop(b);
    }
}

static void a_file_of_another_kind_is_named(void **state)
{
    struct weights *w;
    FILE *out;

    (void)state;
    unlink(path);
    assert_fails(weights_load(&w, path), ST_MISSING, path);
    out = fopen(path, "w");
    assert_non_null(out);
    fputs("not a policy", out);
    fclose(out);
    assert_fails(weights_load(&w, path), ST_INVAL, path);
}

// The disk is full half-way through the write.
static void a_full_disk_leaves_the_old_file(void **state)
{
    struct weights *a = example(1), *b = example(2), *c;
    struct rlimit limit, small;
    enum status st;

    (void)state;
    assert_ok(weights_save(a, path));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    st = weights_save(b, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_fails(st, ST_IO, "policy.h5");
    assert_ok(weights_load(&c, path));
    assert_equal(a, c);
    assert_fails(weights_save(a, "/nowhere/policy.h5"), ST_IO, "/nowhere/policy.h5");
    weights_drop(a);
    weights_drop(b);
    weights_drop(c);
}

static void out_of_memory_is_reported(void **state)
{
    struct weights *a = example(1), *b = NULL;
    enum status st;
    int n;

    (void)state;
    assert_ok(weights_save(a, path));
    for (n = 0;; n++) {
        mem_fail_after(n);
        st = weights_load(&b, path);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
        assert_null(b);
    }
    assert_true(n > 3);
    weights_drop(a);
    weights_drop(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(copies_are_equal_and_apart),      leak_test(blob_comes_back_to_the_bit),
        leak_test(bad_blobs_are_refused),           leak_test(mutated_blobs_never_crash),
        leak_test(file_comes_back_to_the_bit),      leak_test(a_file_of_another_kind_is_named),
        leak_test(a_full_disk_leaves_the_old_file), leak_test(out_of_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
