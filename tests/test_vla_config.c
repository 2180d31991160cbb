#include "tests/testing.h"

#include "common/base/file.h"
#include "nn/vla_config.h"

#include <stdio.h>
#include <unistd.h>

static void presets_have_the_sizes_they_promise(void **state)
{
    static const struct {
        const char *name;
        double low, high;
    } want[] = {{"vla-tiny", 0.9e6, 1.2e6}, {"vla-small", 9e6, 11e6}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct vla_config c;
        struct vla_table t;

        assert_ok(vla_config_read(&c, want[i].name));
        assert_ok(vla_table_init(&t, &c));
        print_message("%s: %lld parameters\n", want[i].name, (long long)t.n_param);
        assert_true((double)t.n_param > want[i].low && (double)t.n_param < want[i].high);
        assert_int_equal(vla_patches(&c), 64);
        assert_int_equal(vla_tokens(&c, 2, 30), 128 + 30 + 1 + 8 + 1);
        c.keep = 30; // rounded up
        assert_int_equal(vla_tokens(&c, 2, 30), 39 + 30 + 1 + 8 + 1);
        vla_table_fini(&t);
    }
}

static void pieces_cover_the_vector_without_gaps(void **state)
{
    struct vla_config c;
    struct vla_table t;
    int64_t at = 0;

    (void)state;
    assert_ok(vla_config_parse(&c, "{\"layers\": 3, \"cameras\": 1}", "test"));
    assert_ok(vla_table_init(&t, &c));
    for (int i = 0; i < t.n_piece; i++) {
        const struct vla_piece *p = &t.piece[i];

        assert_int_equal(p->offset, at);
        assert_true(strlen(p->name) > 0);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(p->name, t.piece[k].name);
        at += (int64_t)p->rows * (p->cols ? p->cols : 1);
    }
    assert_int_equal(at, t.n_param);
    // one linear operator for q, k and v, and one for gate and up
    assert_int_equal(t.trunk[0].out - t.trunk[0].qkv, (4 + 2 + 2) * 32 * 128);
    assert_int_equal(t.trunk[0].down - t.trunk[0].up, 2 * 256 * 128);
    assert_int_equal(t.trunk[2].out, -1);
    vla_table_fini(&t);
}

static void json_comes_back_as_it_was(void **state)
{
    struct vla_config a, b;
    char text[VLA_JSON_MAX];

    (void)state;
    assert_ok(
        vla_config_parse(&a, "{\"layers\": 3, \"model\": \"vla-small\", \"image\": 96}", "x"));
    assert_int_equal(a.width, 256); // of the preset, wherever its name stands
    assert_int_equal(a.layers, 3);
    vla_config_print(&a, text);
    assert_ok(vla_config_parse(&b, text, "x"));
    assert_true(vla_config_equal(&a, &b));
}

static void faults_are_named(void **state)
{
    struct vla_config c = {0};
    const char *path = "vla_config_test.json";

    (void)state;
    assert_fails(vla_config_parse(&c, "{\"layers\": 0}", "m.json"), ST_INVAL, "layers");
    assert_fails(vla_config_parse(&c, "{\"layres\": 1}", "m.json"), ST_INVAL, "layres");
    assert_fails(vla_config_parse(&c, "{\"image\": 65}", "m.json"), ST_INVAL, "multiple of patch");
    assert_fails(vla_config_parse(&c, "{\"heads\": 3}", "m.json"), ST_INVAL, "kv_heads");
    assert_fails(vla_config_parse(&c, "{\"head_dim\": 3}", "m.json"), ST_INVAL, "even");
    assert_fails(vla_config_parse(&c, "{\"vision_heads\": 5}", "m.json"), ST_INVAL, "vision_heads");
    assert_fails(vla_config_parse(&c, "{\"keep\": 50, \"layers\": 1}", "m.json"), ST_INVAL, "keep");
    assert_fails(vla_config_parse(&c, "{\"layers\": ", "m.json"), ST_INVAL, "m.json");
    assert_fails(vla_config_parse(&c, "vla-huge", "model"), ST_INVAL, "vla-tiny");
    assert_fails(vla_config_read(&c, "no/such.json"), ST_MISSING, "no/such.json");
    assert_ok(file_write_atomic(path, "vla-tiny", 8));
    assert_fails(vla_config_read(&c, path), ST_INVAL, path);
    assert_ok(file_write_atomic(path, "{\"chunk\": 5}", 12));
    assert_ok(vla_config_read(&c, path));
    assert_int_equal(c.chunk, 5);
    assert_int_equal(unlink(path), 0);
}

static void first_values_depend_on_the_seed_alone(void **state)
{
    struct vla_config c;
    struct vla_table t;
    float *a, *b;
    size_t bytes;

    (void)state;
    assert_ok(vla_config_parse(&c, "vla-tiny", "x"));
    assert_ok(vla_table_init(&t, &c));
    bytes = (size_t)t.n_param * sizeof *a;
    a = mem_alloc((size_t)t.n_param, sizeof *a);
    b = mem_alloc((size_t)t.n_param, sizeof *b);
    assert_true(a && b);
    vla_init(&c, &t, 7, -1.5, a);
    vla_init(&c, &t, 7, -1.5, b);
    assert_memory_equal(a, b, bytes);
    assert_true(a[t.log_std] == -1.5f && a[t.expert_norm] == 1 && a[t.mean_bias] == 0);
    vla_init(&c, &t, 8, -1.5, b);
    assert_true(memcmp(a, b, bytes) != 0);
    mem_free(a);
    mem_free(b);
    vla_table_fini(&t);
}

static void memory_that_runs_out_is_reported(void **state)
{
    struct vla_config c;
    struct vla_table t;

    (void)state;
    assert_ok(vla_config_parse(&c, "vla-tiny", "x"));
    mem_fail_after(0);
    assert_int_equal(vla_table_init(&t, &c), ST_NOMEM);
    mem_fail_after(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(presets_have_the_sizes_they_promise),
        leak_test(pieces_cover_the_vector_without_gaps),
        leak_test(json_comes_back_as_it_was),
        leak_test(faults_are_named),
        leak_test(first_values_depend_on_the_seed_alone),
        leak_test(memory_that_runs_out_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
