#include "common/base/thread.h"
#include "tests/testing.h"

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static void blocks_are_zeroed_and_aligned(void **state)
{
    static const size_t sizes[] = {1, 7, 63, 64, 65, 1000, 1 << 20};

    (void)state;
    for (int round = 0; round < 2; round++) { // the second round gets used memory back
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            uint8_t *p = mem_alloc(sizes[i], 1);

            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 64, 0);
            assert_true(all_zero(p, sizes[i]));
            memset(p, 0xa5, sizes[i]);
            mem_free(p);
        }
    }
}

static void nothing_is_a_valid_block(void **state)
{
    void *a = mem_alloc(0, 8), *b = mem_alloc(8, 0);

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
}

static void sizes_that_overflow_are_refused(void **state)
{
    static const size_t bad[][2] = {
        {SIZE_MAX, 2}, {SIZE_MAX / 2 + 1, 2}, {1, SIZE_MAX}, {SIZE_MAX - 64, 1}};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_null(mem_alloc(bad[i][0], bad[i][1]));
        assert_int_equal(error_last()->code, ST_NOMEM);
    }
}

static void resize_keeps_what_was_there(void **state)
{
    uint8_t *p = mem_resize(NULL, 10, 1);

    (void)state;
    assert_non_null(p);
    memset(p, 1, 10);
    p = mem_resize(p, 100, 10);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_int_equal(p[9], 1);
    assert_true(all_zero(p + 10, 990));
    memset(p, 2, 1000);
    p = mem_resize(p, 5, 1);
    assert_non_null(p);
    assert_int_equal(p[4], 2);
    p = mem_resize(p, 50, 1);
    assert_true(all_zero(p + 5, 45));
    mem_free(p);
}

static void a_failed_resize_leaves_the_block(void **state)
{
    uint8_t *p = mem_alloc(4, 1);

    (void)state;
    assert_non_null(p);
    p[3] = 9;
    mem_fail_after(0);
    assert_null(mem_resize(p, 100, 1));
    assert_int_equal(error_last()->code, ST_NOMEM);
    assert_null(mem_resize(p, SIZE_MAX, 8));
    assert_int_equal(p[3], 9);
    mem_free(p);
}

static void strings_are_copied(void **state)
{
    char text[] = "abc";
    char *copy = mem_strdup(text);

    (void)state;
    text[0] = 'x';
    assert_string_equal(copy, "abc");
    mem_free(copy);
    mem_fail_after(0);
    assert_null(mem_strdup("abc"));
}

static void the_nth_allocation_fails_once(void **state)
{
    void *p[3];

    (void)state;
    mem_fail_after(1);
    p[0] = mem_alloc(1, 1);
    p[1] = mem_alloc(1, 1);
    p[2] = mem_alloc(1, 1);
    assert_non_null(p[0]);
    assert_null(p[1]);
    assert_non_null(p[2]);
    mem_free(p[0]);
    mem_free(p[2]);
    mem_fail_after(0);
    mem_fail_after(-1);
    p[0] = mem_alloc(1, 1);
    assert_non_null(p[0]);
    mem_free(p[0]);
}

static void blocks_and_calls_are_counted(void **state)
{
    int64_t live = mem_live(), calls = mem_calls();
    void *p = mem_alloc(1, 1);

    (void)state;
    assert_int_equal(mem_live(), live + 1);
    p = mem_resize(p, 2, 1);
    assert_int_equal(mem_live(), live + 1);
    assert_int_equal(mem_calls(), calls + 2);
    mem_free(p);
    assert_int_equal(mem_live(), live);
    assert_int_equal(mem_calls(), calls + 2);
}

static void churn(void *arg, int i_thread, int n_thread)
{
    (void)arg;
    (void)n_thread;
    for (int i = 0; i < 2000; i++) {
        uint8_t *p = mem_alloc((size_t)(i % 200 + i_thread), 3);

        p = mem_resize(p, 100, 3);
        mem_free(p);
    }
}

static void threads_may_allocate_together(void **state)
{
    struct team *team;
    int64_t live = mem_live(), calls = mem_calls();

    (void)state;
    assert_ok(team_create(&team, 4));
    team_run(team, churn, NULL);
    team_destroy(team);
    assert_int_equal(mem_live(), live);
    assert_int_equal(mem_calls(), calls + 1 + 4 * 2 * 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(blocks_are_zeroed_and_aligned),    leak_test(nothing_is_a_valid_block),
        leak_test(sizes_that_overflow_are_refused),  leak_test(resize_keeps_what_was_there),
        leak_test(a_failed_resize_leaves_the_block), leak_test(strings_are_copied),
        leak_test(the_nth_allocation_fails_once),    leak_test(blocks_and_calls_are_counted),
        leak_test(threads_may_allocate_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
