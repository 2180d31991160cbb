#include "common/base/text.h"

#include "tests/testing.h"

static void pieces_are_appended(void **state)
{
    struct text t;

    (void)state;
    text_init(&t);
    assert_string_equal(text_get(&t), "");
    for (int i = 0; i < 1000; i++)
        text_add(&t, "%d,", i);
    text_bytes(&t, "a\0b", 3);
    assert_int_equal(t.len, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    assert_int_equal(strncmp(text_get(&t), "0,1,2,", 6), 0);
    assert_memory_equal(text_get(&t) + t.len - 3, "a\0b", 4);
    text_fini(&t);
}

static void without_memory_there_is_no_text(void **state)
{
    struct text t;

    (void)state;
    text_init(&t);
    mem_fail_after(0);
    text_add(&t, "x");
    mem_fail_after(-1);
    text_add(&t, "y");
    assert_null(text_get(&t));
    text_fini(&t);
    assert_string_equal(text_get(&t), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pieces_are_appended),
        leak_test(without_memory_there_is_no_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
