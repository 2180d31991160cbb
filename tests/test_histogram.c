#include "common/base/histogram.h"

#include "tests/testing.h"

static void values_fall_into_their_bins(void **state)
{
    static const int64_t bound[] = {1, 10, 100};
    struct histogram_view v;
    struct histogram h;

    (void)state;
    histogram_init(&h, bound, 3);
    histogram_read(&h, &v);
    assert_true(isnan(histogram_quantile(&v, 0.5)));
    for (int64_t x = 1; x <= 100; x++)
        histogram_add(&h, x);
    histogram_add(&h, 101);
    histogram_read(&h, &v);
    assert_int_equal(v.count[0], 1);
    assert_int_equal(v.count[1], 9);
    assert_int_equal(v.count[2], 90);
    assert_int_equal(v.count[3], 1);
    assert_int_equal(v.total, 101);
    assert_int_equal(v.sum, 5050 + 101);
    // uniform values: the quantile is the value
    assert_close(histogram_quantile(&v, 50 / 101.), 50, 0, 1e-9);
    assert_close(histogram_quantile(&v, 5 / 101.), 5, 0, 1e-9);
    assert_close(histogram_quantile(&v, 1), 100, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_test(values_fall_into_their_bins)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
