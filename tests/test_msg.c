#include "common/wire/msg.h"

#include "common/base/thread.h"
#include "tests/wire_samples.h"

static struct msg *make(size_t cap)
{
    struct msg *m = NULL;

    assert_ok(msg_new(&m, 3, cap));
    return m;
}

static void values_come_back_in_order(void **state)
{
    struct msg *m = make(0);
    struct reader r;
    char text[8];

    (void)state;
    assert_int_equal(m->type, 3);
    assert_int_equal(m->len, 0);
    assert_ok(msg_u32(m, 0xdeadbeef));
    assert_ok(msg_u64(m, 0x0123456789abcdef));
    assert_ok(msg_f64(m, -0.1));
    assert_ok(msg_str(m, "seven77"));
    assert_ok(msg_str(m, ""));
    assert_ok(msg_bytes(m, "xyz", 3));
    assert_int_equal(m->data[0], 0xef); // little-endian
    assert_int_equal(m->len, 4 + 8 + 8 + 4 + 7 + 4 + 3);
    r = reader_make(m);
    assert_int_equal(read_u32(&r), 0xdeadbeef);
    assert_true(read_u64(&r) == 0x0123456789abcdef);
    assert_true(read_f64(&r) == -0.1);
    read_str(&r, text, sizeof text);
    assert_string_equal(text, "seven77");
    read_str(&r, text, sizeof text);
    assert_string_equal(text, "");
    assert_fails(reader_end(&r, true, "note"), ST_PROTO, "note has 3 bytes too many");
    assert_ok(reader_end(&r, false, "note"));
    assert_memory_equal(read_bytes(&r, 1, 3), "xyz", 3);
    assert_ok(reader_end(&r, true, "note"));
    msg_free(m);
}

static void appended_bytes_are_zeroed_and_aligned(void **state)
{
    struct msg *m = make(1000);

    (void)state;
    assert_int_equal((uintptr_t)m->data % 64, 0);
    memset(m->data, 0xff, m->cap);
    msg_free(m);
    m = make(1000); // the same buffer again
    for (int i = 0; i < 50; i++) {
        const uint8_t *p = msg_append(m, 1000);

        assert_non_null(p);
        assert_int_equal((uintptr_t)m->data % 64, 0);
        for (int k = 0; k < 1000; k++)
            assert_int_equal(p[k], 0);
    }
    assert_int_equal(m->len, 50000);
    msg_free(m);
    msg_free(NULL);
}

static void growing_keeps_the_contents(void **state)
{
    struct msg *m = make(0);

    (void)state;
    for (uint32_t i = 0; i < 100000; i++)
        assert_ok(msg_u32(m, i));
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(((uint32_t *)m->data)[i], i);
    msg_free(m);
}

static void messages_have_a_limit(void **state)
{
    struct msg *m = NULL;

    (void)state;
    assert_fails(msg_new(&m, 1, (size_t)MSG_BYTES_MAX + 1), ST_NOMEM, "longer than");
    assert_null(m);
    m = make(10);
    assert_non_null(msg_append(m, 10));
    assert_null(msg_append(m, MSG_BYTES_MAX));
    assert_non_null(strstr(error_last()->text, "longer than"));
    assert_null(msg_append(m, SIZE_MAX));
    assert_null(msg_append(m, SIZE_MAX - 5));
    assert_int_equal(msg_bytes(m, "x", MSG_BYTES_MAX), ST_NOMEM);
    assert_int_equal(m->len, 10);
    msg_free(m);
}

static void a_warm_loop_allocates_nothing(void **state)
{
    int64_t calls = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct msg *a = make(100), *b = make(3000000);

        if (i == 1)
            calls = mem_calls();
        for (int k = 0; k < 1000; k++)
            assert_ok(msg_u64(a, 1)); // grows
        msg_free(a);
        msg_free(b);
    }
    assert_int_equal(mem_calls(), calls);
}

static void small_messages_take_small_buffers(void **state)
{
    struct msg *m = make(5000000);

    (void)state;
    msg_free(m);
    m = make(100);
    assert_true(m->cap < 1000);
    msg_free(m);
}

static void the_list_is_bounded(void **state)
{
    enum { N = 3000 };
    int64_t live = mem_live();
    static struct msg *all[N];
    struct msg *big[3];

    (void)state;
    for (int i = 0; i < N; i++)
        all[i] = make(10);
    for (int i = 0; i < N; i++)
        msg_free(all[i]);
    assert_true(mem_live() - live > 100);
    assert_true(mem_live() - live <= 2 * 1024);
    msg_drain();
    assert_int_equal(mem_live(), live);
    for (int i = 0; i < 3; i++)
        big[i] = make(20 << 20);
    for (int i = 0; i < 3; i++)
        msg_free(big[i]);
    assert_int_equal(mem_live() - live, 2 * 2); // two of 32 MiB are kept
    msg_drain();
    assert_int_equal(mem_live(), live);
}

static void no_memory_is_survived(void **state)
{
    struct msg *m = NULL;
    int64_t n;

    (void)state;
    for (n = 0;; n++) {
        enum status st;

        msg_drain();
        mem_fail_after(n);
        st = msg_new(&m, 1, 100);
        mem_fail_after(-1);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_NOMEM);
        assert_null(m);
    }
    assert_int_equal(n, 2);
    assert_ok(msg_bytes(m, "abc", 3));
    mem_fail_after(0);
    assert_null(msg_append(m, 1000));
    mem_fail_after(0);
    assert_int_equal(msg_u32(m, 1), ST_OK); // fits
    mem_fail_after(1);
    assert_int_equal(msg_bytes(m, m->data, 1000), ST_NOMEM);
    mem_fail_after(-1);
    assert_int_equal(m->len, 7);
    assert_memory_equal(m->data, "abc\1\0\0\0", 7);
    msg_free(m);
}

static void the_first_read_past_the_end_spoils_the_rest(void **state)
{
    struct msg *m = make(0);
    struct reader r;

    (void)state;
    assert_ok(msg_u32(m, 7));
    assert_ok(msg_u32(m, 8));
    r = reader_make(m);
    assert_int_equal(read_u32(&r), 7);
    assert_true(read_u64(&r) == 0);
    assert_int_equal(read_u32(&r), 0); // it would be there
    assert_true(read_f64(&r) == 0);
    assert_null(read_bytes(&r, 0, 1));
    assert_fails(reader_end(&r, false, "note"), ST_PROTO, "note is too short");
    msg_free(m);
}

static void sizes_that_overflow_are_not_there(void **state)
{
    static const struct {
        uint64_t n;
        size_t size;
    } bad[] = {{17, 1},
               {3, 8},
               {UINT64_MAX, 1},
               {UINT64_MAX, 8},
               {1ull << 61, 8},
               {1ull << 63, 2},
               {1, SIZE_MAX},
               {2, SIZE_MAX / 2 + 2},
               {UINT64_MAX / 8 + 2, 8}};
    struct msg *m = make(0);

    (void)state;
    assert_non_null(msg_append(m, 16));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct reader r = reader_make(m);

        assert_null(read_bytes(&r, bad[i].n, bad[i].size));
        assert_true(r.bad);
    }
    {
        struct reader r = reader_make(m);

        assert_ptr_equal(read_bytes(&r, 2, 8), m->data);
        assert_non_null(read_bytes(&r, UINT64_MAX, 0)); // nothing, however often
        assert_ok(reader_end(&r, true, "x"));
    }
    msg_free(m);
}

static void strings_are_checked(void **state)
{
    struct msg *m = make(0);
    struct reader r;
    char text[5] = "old";

    (void)state;
    assert_ok(msg_str(m, "12345"));
    r = reader_make(m);
    read_str(&r, text, sizeof text); // one too long
    assert_true(r.bad);
    assert_string_equal(text, "");
    m->len = 0;
    assert_ok(msg_str(m, "1234"));
    r = reader_make(m);
    read_str(&r, text, sizeof text);
    assert_false(r.bad);
    assert_string_equal(text, "1234");
    m->data[5] = '\0'; // a zero inside
    r = reader_make(m);
    read_str(&r, text, sizeof text);
    assert_true(r.bad);
    assert_string_equal(text, "");
    m->len = 7; // shorter than it says
    r = reader_make(m);
    read_str(&r, text, sizeof text);
    assert_true(r.bad);
    m->len = 0;
    assert_ok(msg_u32(m, UINT32_MAX));
    r = reader_make(m);
    read_str(&r, text, sizeof text);
    assert_true(r.bad);
    msg_free(m);
}

static void churn(void *arg, int i_thread, int n_thread)
{
    int *errors = (int *)arg + i_thread;

    (void)n_thread;
    for (int i = 0; i < 3000; i++) {
        struct msg *m;
        uint8_t mark = (uint8_t)(i_thread * 50 + i % 50);

        if (msg_new(&m, mark, (size_t)(i % 7) * 300) != ST_OK) {
            ++*errors;
            continue;
        }
        for (int k = 0; k < 5; k++) {
            uint8_t *p = msg_append(m, 200);

            if (p)
                memset(p, mark, 200);
        }
        for (size_t k = 0; k < m->len; k++)
            *errors += m->data[k] != mark;
        *errors += m->len != 1000 || m->type != mark;
        msg_free(m);
    }
}

static void threads_share_the_list(void **state)
{
    int errors[4] = {0};
    struct team *team;

    (void)state;
    assert_ok(team_create(&team, 4));
    team_run(team, churn, errors);
    team_destroy(team);
    for (int i = 0; i < 4; i++)
        assert_int_equal(errors[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(values_come_back_in_order),
        wire_test(appended_bytes_are_zeroed_and_aligned),
        wire_test(growing_keeps_the_contents),
        wire_test(messages_have_a_limit),
        wire_test(a_warm_loop_allocates_nothing),
        wire_test(small_messages_take_small_buffers),
        wire_test(the_list_is_bounded),
        wire_test(no_memory_is_survived),
        wire_test(the_first_read_past_the_end_spoils_the_rest),
        wire_test(sizes_that_overflow_are_not_there),
        wire_test(strings_are_checked),
        wire_test(threads_share_the_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
