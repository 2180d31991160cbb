#include "common/base/json.h"

#include "common/base/rng.h"
#include "tests/testing.h"

#include <float.h>

static void values_commas_and_nesting(void **state)
{
    struct json j;

    (void)state;
    json_init(&j);
    assert_string_equal(json_text(&j), "");
    json_open(&j, NULL, '{');
    json_int(&j, "a", -3);
    json_open(&j, "list", '[');
    json_real(&j, NULL, 0.5);
    json_open(&j, NULL, '{');
    json_close(&j, '}');
    json_bool(&j, NULL, true);
    json_bool(&j, NULL, false);
    json_close(&j, ']');
    json_open(&j, "empty", '[');
    json_close(&j, ']');
    json_str(&j, "s", "x");
    json_raw(&j, "raw", "[1]");
    json_close(&j, '}');
    assert_string_equal(json_text(&j), "{\"a\": -3, \"list\": [0.5, {}, true, false], "
                                       "\"empty\": [], \"s\": \"x\", \"raw\": [1]}");
    json_fini(&j);
    assert_string_equal(json_text(&j), "");
}

static void strings_and_keys_are_escaped(void **state)
{
    struct json j;

    (void)state;
    json_init(&j);
    json_open(&j, NULL, '{');
    json_str(&j, "k\"\n", "a\"b\\c\td\x01\x1f/\xc3\xa4");
    json_close(&j, '}');
    assert_string_equal(json_text(&j),
                        "{\"k\\\"\\u000a\": \"a\\\"b\\\\c\\u0009d\\u0001\\u001f/\xc3\xa4\"}");
    json_fini(&j);
}

static const char *real_text(struct json *j, double x)
{
    json_fini(j);
    json_real(j, NULL, x);
    return json_text(j);
}

static void numbers_come_back_exactly_and_short(void **state)
{
    static const double some[] = {0,      1,       -1,      0.1,    1.0 / 3,   1e21,
                                  1e-7,   DBL_MAX, DBL_MIN, 5e-324, 123456789, 1e15 + 1,
                                  2.5e-5, -0.0,    1e300,   M_PI,   1 << 30,   0.3};
    struct rng r = rng_make(3, RNG_TEST, 0, 0, 0);
    struct json j;

    (void)state;
    json_init(&j);
    assert_string_equal(real_text(&j, 0.1), "0.1");
    assert_string_equal(real_text(&j, 3), "3");
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        assert_true(strtod(real_text(&j, some[i]), NULL) == some[i]);
    for (int i = 0; i < 5000; i++) {
        uint64_t bits = (uint64_t)rng_u32(&r) << 32 | rng_u32(&r);
        double x;

        memcpy(&x, &bits, sizeof x);
        if (isfinite(x))
            assert_true(strtod(real_text(&j, x), NULL) == x);
    }
    json_fini(&j);
}

static void whole_numbers_reach_both_ends(void **state)
{
    struct json j;

    (void)state;
    json_init(&j);
    json_open(&j, NULL, '[');
    json_int(&j, NULL, INT64_MIN);
    json_int(&j, NULL, INT64_MAX);
    json_close(&j, ']');
    assert_string_equal(json_text(&j), "[-9223372036854775808, 9223372036854775807]");
    json_fini(&j);
}

static void what_json_cannot_say_is_null(void **state)
{
    struct json j;

    (void)state;
    json_init(&j);
    assert_string_equal(real_text(&j, NAN), "null");
    assert_string_equal(real_text(&j, INFINITY), "null");
    assert_string_equal(real_text(&j, -INFINITY), "null");
    json_fini(&j);
}

static void a_failed_allocation_sticks(void **state)
{
    struct json j;

    (void)state;
    for (int64_t n = 0;; n++) {
        const char *text;

        json_init(&j);
        mem_fail_after(n);
        json_open(&j, NULL, '[');
        for (int i = 0; i < 100; i++)
            json_int(&j, NULL, 1000000 + i);
        json_close(&j, ']');
        mem_fail_after(-1);
        text = json_text(&j);
        if (text) {
            assert_true(n > 3);
            assert_int_equal(text[strlen(text) - 1], ']');
            json_fini(&j);
            break;
        }
        json_str(&j, NULL, "still nothing");
        assert_null(json_text(&j));
        json_fini(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(values_commas_and_nesting),           leak_test(strings_and_keys_are_escaped),
        leak_test(numbers_come_back_exactly_and_short), leak_test(whole_numbers_reach_both_ends),
        leak_test(what_json_cannot_say_is_null),        leak_test(a_failed_allocation_sticks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
