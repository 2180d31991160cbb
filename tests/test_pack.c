// Against the Python packages, by their bytes (tests/oracle/policy_golden.py), and with damage.
#include "evaluation/pack.h"

#include "tests/testing.h"

#include <stdio.h>

static uint8_t bytes[4096];
static char text[1 << 16];

static size_t unhex(const char *p, uint8_t *out)
{
    size_t n = 0;
    unsigned b;

    while (sscanf(p, "%2x", &b) == 1 && p[0] && p[1]) {
        out[n++] = (uint8_t)b;
        p += 2;
    }
    return n;
}

static double number(enum tensor_type type, int i)
{
    if (type == TENSOR_B1)
        return i % 2;
    return type >= TENSOR_F2 ? i * 0.25 - 1 : (i * 7 + 3) % 100;
}

// Element i of the array in its type.
static void put(enum tensor_type type, int i, uint8_t *p)
{
    static const uint16_t halves[] = {0xbc00, 0xba00, 0xb800, 0xb400, 0x0000, 0x3400,
                                      0x3800, 0x3a00, 0x3c00, 0x3d00, 0x3e00, 0x3f00};
    int64_t v = (int64_t)number(type, i);
    float f = (float)number(type, i);
    double d = number(type, i);
    size_t n = tensor_bytes(&(struct tensor){.type = type});

    if (type == TENSOR_F2)
        memcpy(p, &halves[i], 2);
    else if (type == TENSOR_F4)
        memcpy(p, &f, 4);
    else if (type == TENSOR_F8)
        memcpy(p, &d, 8);
    else
        memcpy(p, &v, n); // little endian
}

static void check_array(enum tensor_style style, const char *type, const char *shape,
                        const uint8_t *want, size_t n)
{
    uint8_t data[512];
    struct tensor t = {.data = data}, back;
    float v[64];
    struct tensor_floats f = {.v = v, .cap = 64};
    size_t size, i;
    msgpack_unpacked u;
    struct pack k;

    assert_ok(tensor_type_find(&t.type, type, 3));
    for (; *shape && *shape != '-'; shape += strcspn(shape, "x"), shape += *shape == 'x')
        t.shape[t.n_dim++] = (uint32_t)strtoul(shape, NULL, 10);
    size = tensor_bytes(&(struct tensor){.type = t.type});
    for (i = 0; i < tensor_bytes(&t) / size; i++)
        put(t.type, (int)i, data + i * size);
    pack_init(&k);
    pack_tensor(&k, style, &t);
    assert_ok(pack_done(&k));
    if (k.buf.size != n || memcmp(k.buf.data, want, n) != 0)
        fail_msg("style %d, %s: other bytes than Python's", (int)style, type);
    pack_fini(&k);

    assert_ok(pack_open(&u, want, n));
    assert_ok(tensor_read(&back, &u.data));
    assert_int_equal(back.type, t.type);
    assert_int_equal(back.n_dim, t.n_dim);
    assert_memory_equal(back.shape, t.shape, (size_t)t.n_dim * sizeof t.shape[0]);
    assert_ok(tensor_floats_read(&f, &u.data));
    assert_int_equal(f.n, tensor_bytes(&t) / size);
    for (i = 0; i < f.n; i++)
        assert_true(v[i] == (float)number(t.type, (int)i));
    msgpack_unpacked_destroy(&u);
}

static void arrays_are_those_of_the_python_packages(void **state)
{
    static const char *const styles[] = {"openpi", "str", "npy", "nd"};
    FILE *f = fopen(TESTS_DIR "/golden/policy.txt", "r");
    char style[16], type[8], shape[32];
    int count = 0, at, i;

    (void)state;
    assert_non_null(f);
    while (fgets(text, sizeof text, f)) {
        if (sscanf(text, "array %15s %7s %31s %n", style, type, shape, &at) != 3)
            continue;
        for (i = 0; strcmp(styles[i], style) != 0;)
            i++;
        check_array((enum tensor_style)i, type, shape, bytes, unhex(text + at, bytes));
        count++;
    }
    fclose(f);
    assert_int_equal(count, 4 * 12 * 5);
}

// Open, and read numbers.
static enum status read_floats(const char *hex, struct tensor_floats *f)
{
    msgpack_unpacked u;
    enum status st = pack_open(&u, bytes, unhex(hex, bytes));

    if (st == ST_OK)
        st = tensor_floats_read(f, &u.data);
    msgpack_unpacked_destroy(&u);
    return st;
}

static void numbers_come_in_other_ways_too(void **state)
{
    static float v[8];
    struct tensor_floats f = {.v = v, .cap = 8};

    (void)state;
    assert_ok(read_floats("929201cb3fe0000000000000920203", &f)); // [[1, 0.5], [2, 3]]
    assert_int_equal(f.n_dim, 2);
    assert_int_equal(f.shape[0], 2);
    assert_int_equal(f.shape[1], 2);
    assert_true(v[0] == 1 && v[1] == 0.5f && v[2] == 2 && v[3] == 3);
    assert_ok(read_floats("ff", &f)); // -1
    assert_int_equal(f.n_dim, 0);
    assert_true(v[0] == -1);
    // {b"__npgeneric__": true, b"data": 0.5, b"dtype": "<f8"}
    assert_ok(read_floats("83c40d5f5f6e7067656e657269635f5fc3c40464617461cb3fe0000000000000"
                          "c4056474797065a33c6638",
                          &f));
    assert_true(v[0] == 0.5f);
    // {b"nd": false, b"type": "<f4", b"data": 1.5}
    assert_ok(read_floats("83c4026e64c2c40474797065a33c6634c40464617461c4040000c03f", &f));
    assert_int_equal(f.n_dim, 0);
    assert_true(v[0] == 1.5f);
    assert_fails(read_floats("92920102920102"
                             "03",
                             &f),
                 ST_PROTO, "1 bytes behind");
    assert_fails(read_floats("929201029101", &f), ST_PROTO, "side by side");
    assert_fails(read_floats("92910101", &f), ST_PROTO, "differ in depth");
    assert_fails(read_floats("92a16101", &f), ST_PROTO, "neither a number");
    assert_fails(read_floats("99010101010101010101", &f), ST_PROTO, "more than 8 numbers");
    assert_fails(read_floats("919191919191919101", &f), ST_PROTO, "deep");
}

static void damage_is_named(void **state)
{
    // each a damage of {"__ndarray__": true, "data": 4 bytes, "dtype": "<f4", "shape": [1]}
    static const struct {
        const char *hex, *why;
    } cases[] = {
        {"", "ends too early"},
        {"c1", "no msgpack"},
        {"0102", "1 bytes behind"},
        {"dd7fffffff", "ends too early"},   // an array of 2^31 - 1
        {"df8000000101", "ends too early"}, // a map of 2^31 + 1
        {"c6ffffffff00", "ends too early"}, // 4 GiB of bytes
        {"c9ffffffff", "ends too early"},   // ext
        {"9191919191919191919191919191919191919101", "nested"},
        {"84ab5f5f6e6461727261795f5fc3a464617461c40400000000a56474797065a33c6634a573686170659102",
         "needs another number"},
        {"84ab5f5f6e6461727261795f5fc3a464617461c40400000000a56474797065a33e6634a573686170659101",
         "type '>f4'"},
        {"84ab5f5f6e6461727261795f5fc3a464617461c40400000000a56474797065a27c4fa573686170659101",
         "type '|O'"},
        {"84ab5f5f6e6461727261795f5fc3a464617461c40400000000a56474797065a33c6634a5736861706591ff",
         "no size"},
        // 65536 * 65536 * 65536 * 65536 * 4 bytes wrap around to 0
        {"84ab5f5f6e6461727261795f5fc3a464617461c400a56474797065a33c6634a5736861706594"
         "ce00010000ce00010000ce00010000ce00010000",
         "needs another number"},
        {"84ab5f5f6e6461727261795f5fc3a464617461c400a56474797065a33c6634a57368617065970101010101010"
         "1",
         "at most 6"},
        {"82b15f5f6e6461727261795f636c6173735f5fc3a661735f6e7079c4020000", "does not begin"},
        {"80", "no array"},
        {"85c4026e64c3c40474797065a33c6634c4046b696e64c4014fc4057368617065"
         "9101c40464617461c40400000000",
         "Python objects"},
    };
    static float v[8];
    struct tensor_floats f = {.v = v, .cap = 8};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(read_floats(cases[i].hex, &f), ST_PROTO, cases[i].why);
}

static void maps_become_json(void **state)
{
    msgpack_unpacked u;
    struct text t;

    (void)state;
    text_init(&t);
    // {"a": [1, -2, 0.5, nil, true, "x\"\n"], b"b": array of 2 float32}
    assert_ok(
        pack_open(&u, bytes,
                  unhex("82a1619601fecb3fe0000000000000c0c3a378220ac40162"
                        "84ab5f5f6e6461727261795f5fc3a464617461c4080000000000000000a56474797065"
                        "a33c6634a573686170659102",
                        bytes)));
    pack_to_json(&t, &u.data);
    assert_string_equal(text_get(&t),
                        "{\"a\": [1, -2, 0.5, null, true, \"x\\\"\\n\"], \"b\": \"<f4 [2]\"}");
    msgpack_unpacked_destroy(&u);
    text_fini(&t);
}

static void json_becomes_members(void **state)
{
    static const uint8_t want[] = {0xa1, 'a',  1,   0xa1, 'b',  0x92, 0xa1, 'x',
                                   0xc0, 0xa1, 'c', 0x81, 0xa1, 'd',  0xc2};
    struct pack k;
    size_t n;

    (void)state;
    pack_init(&k);
    assert_ok(pack_json_members(&k, "{\"a\": 1, \"b\": [\"x\", null], \"c\": {\"d\": false}}", &n));
    assert_int_equal(n, 3);
    assert_int_equal(k.buf.size, sizeof want);
    assert_memory_equal(k.buf.data, want, sizeof want);
    assert_fails(pack_json_members(&k, "[1]", &n), ST_INVAL, "no JSON object");
    assert_fails(pack_json_members(&k, "{", &n), ST_INVAL, "no JSON object");
    pack_fini(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(arrays_are_those_of_the_python_packages),
        leak_test(numbers_come_in_other_ways_too),
        leak_test(damage_is_named),
        leak_test(maps_become_json),
        leak_test(json_becomes_members),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
