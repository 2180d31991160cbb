#include "nn/safetensors.h"

#include "common/base/file.h"
#include "common/base/rng.h"
#include "tests/testing.h"

#include <stdio.h>
#include <unistd.h>

static char path[64];

// A file in memory: the header, then n bytes of numbers.
static size_t compose(uint8_t *out, const char *header, const void *data, size_t n)
{
    uint64_t length = strlen(header);

    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    memcpy(out + 8 + length, data, n);
    return 8 + length + n;
}

// tests/oracle/safetensors_golden.py made it with the format's own package: of each type, the
// numbers i * 0.375 - 2.
static void files_of_the_package_are_read(void **state)
{
    static const struct {
        const char *name, *type;
        int rank;
        int64_t dims[3], n;
    } parts[] = {{"block.0.weight", "F32", 2, {3, 4}, 12},
                 {"brain", "BF16", 1, {5}, 5},
                 {"empty", "F32", 2, {0, 3}, 0},
                 {"half", "F16", 3, {2, 1, 3}, 6},
                 {"single", "F32", 0, {0}, 1},
                 {"wide", "F64", 1, {3}, 3}};
    struct safetensors *s;
    float x[16];
    uint8_t bytes[16];
    size_t i;

    (void)state;
    assert_ok(safetensors_open(&s, TESTS_DIR "/golden/package.safetensors"));
    assert_int_equal(safetensors_count(s), 7);
    for (i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const struct safetensor *t = safetensors_find(s, parts[i].name);

        assert_non_null(t);
        assert_string_equal(t->type_name, parts[i].type);
        assert_int_equal(t->rank, parts[i].rank);
        assert_memory_equal(t->dims, parts[i].dims, (size_t)t->rank * sizeof t->dims[0]);
        assert_int_equal(t->n, parts[i].n);
        assert_ok(safetensors_get(s, parts[i].name, parts[i].rank, parts[i].dims, x));
        for (int k = 0; k < t->n; k++)
            assert_true(x[k] == 0.375f * (float)k - 2);
    }
    assert_fails(safetensors_get(s, "brain", 1, (int64_t[]){4}, x), ST_INVAL,
                 "array 'brain' is (5), expected (4)");
    assert_fails(safetensors_get(s, "brian", 1, (int64_t[]){5}, x), ST_INVAL, "no array 'brian'");
    assert_fails(safetensors_read(s, safetensors_find(s, "flags"), x), ST_INVAL,
                 "array 'flags' is BOOL, expected F32");
    assert_ok(safetensors_bytes(s, safetensors_find(s, "flags"), bytes));
    assert_memory_equal(bytes, "\1\0\1", 3);
    assert_string_equal(safetensors_meta(s, "format"), "pt");
    assert_null(safetensors_meta(s, "pt"));
    safetensors_close(s);
    assert_fails(safetensors_open(&s, "/nonexistent.safetensors"), ST_MISSING, "/nonexistent");
    assert_fails(safetensors_open(&s, "/tmp"), ST_INVAL, "not a file");
}

static void what_is_written_is_read(void **state)
{
    float a[6] = {1, -2.5f, 3e30f, 0, -0.0f, 1e-40f}, b[40000], x[40000];
    struct safetensors_part parts[] = {{"a", SAFETENSORS_F32, 2, {2, 3}, a},
                                       {"b", SAFETENSORS_BF16, 1, {40000}, b},
                                       {"c \"\\", SAFETENSORS_F16, 1, {40000}, b},
                                       {"d", SAFETENSORS_F32, 0, {0}, b + 7},
                                       {"e", SAFETENSORS_F32, 1, {0}, NULL}};
    struct safetensors_note notes[] = {{"config", "{\"a\": 1}"}, {"format", "pt"}};
    struct rng r = rng_make(1, RNG_TEST, 0, 0, 0);
    struct safetensors *s;
    int i;

    (void)state;
    for (i = 0; i < 40000; i++)
        b[i] = (float)rng_normal(&r);
    assert_ok(safetensors_save(path, parts, 5, notes, 2));
    assert_ok(safetensors_open(&s, path));
    assert_int_equal(safetensors_count(s), 5);
    assert_string_equal(safetensors_meta(s, "config"), "{\"a\": 1}");
    assert_int_equal((safetensors_at(s, 0)->from) % 8, 0);
    assert_ok(safetensors_get(s, "a", 2, parts[0].dims, x));
    assert_memory_equal(x, a, sizeof a);
    assert_ok(safetensors_get(s, "b", 1, parts[1].dims, x));
    for (i = 0; i < 40000; i++)
        assert_close(x[i], b[i], 1.0 / 256, 0);
    assert_ok(safetensors_get(s, "c \"\\", 1, parts[1].dims, x));
    for (i = 0; i < 40000; i++)
        assert_close(x[i], b[i], 1.0 / 2048, 6e-8);
    assert_ok(safetensors_get(s, "d", 0, NULL, x));
    assert_true(x[0] == b[7]);
    safetensors_close(s);
    parts[0].type = SAFETENSORS_F64;
    assert_fails(safetensors_save(path, parts, 1, NULL, 0), ST_INVAL, "array 'a' is not of F32");
    parts[0].type = SAFETENSORS_F32;
    assert_fails(safetensors_save("/nonexistent/x", parts, 1, NULL, 0), ST_IO, "/nonexistent/x");
    assert_ok(safetensors_save(path, NULL, 0, NULL, 0));
    assert_ok(safetensors_open(&s, path));
    assert_int_equal(safetensors_count(s), 0);
    assert_null(safetensors_find(s, "a"));
    safetensors_close(s);
}

// All numbers of 16 bits come back, and the nearest one is found, ties to even.
static void sixteen_bits_are_exact_and_rounded_to_nearest(void **state)
{
    uint32_t h;

    (void)state;
    for (h = 0; h < 65536; h++) {
        uint16_t half = (uint16_t)h;
        float f16 = safetensors_from_f16(half), bf16 = safetensors_from_bf16(half);

        if (isnan(f16))
            assert_true(isnan(safetensors_from_f16(safetensors_to_f16(f16))));
        else
            assert_int_equal(safetensors_to_f16(f16), half);
        if (isnan(bf16))
            assert_true(isnan(safetensors_from_bf16(safetensors_to_bf16(bf16))));
        else
            assert_int_equal(safetensors_to_bf16(bf16), half);
        if ((half & 0x7fff) < 0x7bff) { // between this one and the next
            float next = safetensors_from_f16(half + 1), mid = f16 / 2 + next / 2;

            assert_int_equal(safetensors_to_f16(mid), half & 1 ? half + 1 : half);
            assert_int_equal(safetensors_to_f16(nextafterf(mid, f16)), half);
            assert_int_equal(safetensors_to_f16(nextafterf(mid, next)), half + 1);
        }
        if ((half & 0x7fff) < 0x7f7f) {
            float next = safetensors_from_bf16(half + 1), mid = f16;
            double exact = 0.5 * bf16 + 0.5 * next;

            mid = (float)exact;
            if ((double)mid == exact)
                assert_int_equal(safetensors_to_bf16(mid), half & 1 ? half + 1 : half);
        }
    }
    assert_int_equal(safetensors_to_f16(65519.996f), 0x7bff);
    assert_int_equal(safetensors_to_f16(65520), 0x7c00);
    assert_int_equal(safetensors_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(safetensors_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(safetensors_to_bf16(3.4e38f), 0x7f80);
}

static void hostile_files_are_refused(void **state)
{
#define ONE(offsets) "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                            \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" first \
    "},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" second "}}"
    static const struct {
        const char *header, *part;
    } cases[] = {
        {"", "is not a JSON object"},
        {"[]", "is not a JSON object"},
        {"{} x", "is not a JSON object"},
        {"{}", "0 bytes of arrays, the file has 8"},
        {ONE("[0,4]"), "'a': its 'shape' and 'data_offsets' do not agree"},
        {ONE("[8,16]"), "'a': it ends behind the end of the file"},
        {ONE("[8,0]"), "'a': its 'data_offsets' are not two offsets in order"},
        {ONE("[0.5,8.5]"), "'a': its 'data_offsets' are not"},
        {ONE("[-8,0]"), "'a': its 'data_offsets' are not"},
        {ONE("[0]"), "'a': its 'data_offsets' are not"},
        {ONE("{\"0\":0,\"1\":8}"), "'a': its 'data_offsets' are not"},
        {ONE("[0,1e300]"), "'a': its 'data_offsets' are not"},
        {TWO("[0,4]", "[0,4]"), "it overlaps another array"},
        {TWO("[4,8]", "[4,8]"), "a gap lies before it"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "'a': it stands twice"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", "'dtype' is missing"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "'dtype' is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", "no 'shape'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "up to 8 sizes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}",
         "up to 8 sizes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
         "too large"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4503599627370496],\"data_offsets\":[0,8]}}",
         "do not agree"},
        {"{\"a\":7}", "expected an object"},
        {"{\"__metadata__\":[]}", "expected an object of texts"},
        {"{\"__metadata__\":{\"a\":1}}", "expected an object of texts"},
    };
    uint8_t file[1024], numbers[8] = {0};
    struct safetensors *s = NULL;
    float nan_of[2] = {1, NAN}, x[2];
    uint64_t length;
    size_t i, n;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        n = compose(file, cases[i].header, numbers, 8);
        assert_fails(safetensors_of(&s, file, n, "f"), ST_INVAL, cases[i].part);
        assert_null(s);
    }
    n = compose(file, ONE("[0,8]"), numbers, 8);
    for (i = 0; i < n; i++) // cut anywhere
        assert_fails(safetensors_of(&s, file, i, "f"), ST_INVAL, "'f'");
    assert_fails(safetensors_of(&s, file, n + 1, "f"), ST_INVAL, "8 bytes of arrays, the file has");
    for (length = SAFETENSORS_HEADER_MAX + 1; length != 0; length *= 2) {
        memcpy(file, &length, 8);
        assert_fails(safetensors_of(&s, file, n, "f"), ST_INVAL, "a header of");
    }
    n = compose(file, ONE("[0,8]"), numbers, 8);
    file[8 + 3] = '\0';
    assert_fails(safetensors_of(&s, file, n, "f"), ST_INVAL, "is not a JSON object");
    n = compose(file, ONE("[0,8]"), nan_of, 8);
    assert_ok(safetensors_of(&s, file, n, "f"));
    assert_fails(safetensors_read(s, safetensors_at(s, 0), x), ST_INVAL, "'a': it holds a number");
    safetensors_close(s);
}

static void out_of_memory_is_reported(void **state)
{
    uint8_t file[256];
    float numbers[2] = {1, 2};
    size_t n = compose(file, ONE("[0,8]"), numbers, 8);
    struct safetensors *s = NULL;
    int k;

    (void)state;
    for (k = 0;; k++) {
        mem_fail_after(k);
        if (safetensors_of(&s, file, n, "f") == ST_OK)
            break;
        assert_null(s);
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
    mem_fail_after(-1);
    assert_int_equal(k, 4);
    safetensors_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(files_of_the_package_are_read),
        leak_test(what_is_written_is_read),
        leak_test(sixteen_bits_are_exact_and_rounded_to_nearest),
        leak_test(hostile_files_are_refused),
        leak_test(out_of_memory_is_reported),
    };
    int failed;

    snprintf(path, sizeof path, "/tmp/safetensors-%d", (int)getpid());
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
