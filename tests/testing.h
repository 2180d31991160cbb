// testing.h - cmocka plus the asserts and fixtures that all unit tests share.
#ifndef TESTS_TESTING_H
#define TESTS_TESTING_H

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include "common/base/mem.h"
#include "common/base/status.h"
#include "common/base/thread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A wait that never ends in a test that passes, however slow the machine or however long it stands
// still; what does not come at all ends with the time limit of tests/CMakeLists.txt.
#define ENOUGH (3600 * NS_PER_S)

// The expression gives ST_OK; otherwise print it with code and message.
#define assert_ok(expr)                                                                  \
    do {                                                                                 \
        enum status assert_st_ = (expr);                                                 \
        if (assert_st_ != ST_OK)                                                         \
            fail_msg("%s: %s (%s)", #expr, status_name(assert_st_), error_last()->text); \
    } while (0)

// The expression fails with `code`, and the message contains `part`.
#define assert_fails(expr, want, part)                                                  \
    do {                                                                                \
        enum status assert_st_ = (expr);                                                \
        if (assert_st_ != (want))                                                       \
            fail_msg("%s: got %s, expected %s", #expr, status_name(assert_st_), #want); \
        if (!strstr(error_last()->text, (part)))                                        \
            fail_msg("%s: message '%s' lacks '%s'", #expr, error_last()->text, (part)); \
    } while (0)

// |a - b| <= atol + rtol * |b|
#define assert_close(a, b, rtol, atol)                                         \
    do {                                                                       \
        double assert_a_ = (a), assert_b_ = (b);                               \
        if (!(fabs(assert_a_ - assert_b_) <= (atol) + (rtol)*fabs(assert_b_))) \
            fail_msg("%s = %.17g, %s = %.17g", #a, assert_a_, #b, assert_b_);  \
    } while (0)

// Fixture: the test frees all that it allocates through mem.h.
static inline int leak_setup(void **state)
{
    *state = (void *)(intptr_t)(mem_live() + 1);
    return 0;
}

static inline int leak_teardown(void **state)
{
    int64_t before = (int64_t)(intptr_t)*state - 1;

    if (mem_live() != before) {
        print_error("%lld blocks leaked\n", (long long)(mem_live() - before));
        return -1;
    }
    return 0;
}

#define leak_test(fn) cmocka_unit_test_setup_teardown(fn, leak_setup, leak_teardown)

#endif
