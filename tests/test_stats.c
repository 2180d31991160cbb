#include "tests/testing.h"

#include "evaluation/stats.h"

static void stats_t975_matches_published_values(void **state)
{
    // closed forms for 1 and 2 degrees of freedom, the others from tables of ten digits
    static const struct {
        double df, t;
    } known[] = {
        {1, 12.706204736174698}, {2, 4.302652729749464}, {3, 3.182446305283710},
        {4, 2.776445105197793},  {9, 2.262157162798205}, {19, 2.093024054408310},
        {99, 1.984216951586420},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_close(stats_t975(known[i].df), known[i].t, 1e-10, 0);
    // tan(0.475 pi), and (2 p - 1) / sqrt(2 p (1 - p)) at p = 0.975
    assert_close(stats_t975(1), tan(0.475 * acos(-1)), 1e-12, 0);
    assert_close(stats_t975(2), 0.95 / sqrt(2 * 0.975 * 0.025), 1e-12, 0);
    // many degrees of freedom: the normal distribution
    assert_close(stats_t975(1e9), 1.9599639845400542, 1e-8, 0);
}

// Two methods meet at 1000: the second differences go on smoothly.
static void stats_t975_is_smooth_where_the_method_changes(void **state)
{
    double bend[7];
    int i;

    (void)state;
    for (i = 0; i < 7; i++)
        bend[i] = stats_t975(996.5 + i) - 2 * stats_t975(997.5 + i) + stats_t975(998.5 + i);
    for (i = 0; i < 7; i++)
        assert_close(bend[i], bend[0], 0.05, 2e-11);
}

static void stats_t975_falls_with_the_degrees_of_freedom(void **state)
{
    double before = INFINITY;
    int df;

    (void)state;
    for (df = 1; df < 2000; df++) {
        double t = stats_t975(df);

        assert_true(t < before);
        before = t;
    }
}

static void stats_beta_inc_matches_closed_forms(void **state)
{
    double x;

    (void)state;
    for (x = 0; x <= 1; x += 0.125) {
        assert_close(stats_beta_inc(1, 1, x), x, 1e-13, 1e-15);
        assert_close(stats_beta_inc(3, 1, x), x * x * x, 1e-13, 1e-15);
        assert_close(stats_beta_inc(2, 2, x), x * x * (3 - 2 * x), 1e-13, 1e-15);
        assert_close(stats_beta_inc(0.5, 0.5, x), 2 / acos(-1) * asin(sqrt(x)), 1e-13, 1e-15);
        assert_close(stats_beta_inc(7.5, 0.5, x), 1 - stats_beta_inc(0.5, 7.5, 1 - x), 1e-12,
                     1e-14);
    }
}

static void stats_mean_gives_the_student_interval(void **state)
{
    static const double values[] = {2, 4, 4, 4, 5, 5, 7, 9, 3, 7};
    struct stats_mean m;
    double half;

    (void)state;
    stats_mean(&m, values, 10);
    assert_close(m.mean, 5, 1e-15, 0);
    assert_close(m.std, sqrt(40.0 / 9), 1e-14, 0); // squares: 9 1 1 1 0 0 4 16 4 4
    half = 2.262157162798205 * sqrt(40.0 / 9) / sqrt(10);
    assert_close(m.low, 5 - half, 1e-10, 0);
    assert_close(m.high, 5 + half, 1e-10, 0);
    assert_true(m.min == 2 && m.max == 9);
}

static void stats_mean_is_exact_for_large_offsets(void **state)
{
    static const double values[] = {1e9 + 1, 1e9 + 2, 1e9 + 3};
    struct stats_mean m;

    (void)state;
    stats_mean(&m, values, 3);
    assert_close(m.std, 1, 1e-12, 0);
}

static void stats_mean_of_few_values_has_no_interval(void **state)
{
    const double one = 3;
    struct stats_mean m;

    (void)state;
    stats_mean(&m, &one, 1);
    assert_true(m.mean == 3 && m.min == 3 && m.max == 3);
    assert_true(isnan(m.std) && isnan(m.low) && isnan(m.high));
    stats_mean(&m, NULL, 0);
    assert_true(isnan(m.mean) && isnan(m.min) && isnan(m.max));
}

// The bounds are the rates p at which (rate - p)^2 = z^2 p (1 - p) / n.
static void check_wilson(int hits, int n)
{
    double z = 1.9599639845400542, rate = (double)hits / n;
    struct stats_rate r;

    stats_wilson(&r, hits, n);
    assert_true(r.rate == rate);
    assert_true(0 <= r.low && r.low <= rate && rate <= r.high && r.high <= 1);
    assert_close((rate - r.low) * (rate - r.low), z * z * r.low * (1 - r.low) / n, 1e-9, 1e-14);
    assert_close((rate - r.high) * (rate - r.high), z * z * r.high * (1 - r.high) / n, 1e-9, 1e-14);
}

static void stats_wilson_solves_the_score_equation(void **state)
{
    struct stats_rate r;
    int hits;

    (void)state;
    for (hits = 0; hits <= 20; hits++)
        check_wilson(hits, 20);
    check_wilson(45, 50);
    stats_wilson(&r, 45, 50);
    assert_close(r.low, 0.7864, 0, 5e-5);
    assert_close(r.high, 0.9565, 0, 5e-5);
    stats_wilson(&r, 0, 10);
    assert_true(r.low == 0);
    assert_close(r.high, 0.2775, 0, 5e-5);
    stats_wilson(&r, 10, 10);
    assert_true(r.high == 1);
    stats_wilson(&r, 0, 0);
    assert_true(isnan(r.rate) && isnan(r.low) && isnan(r.high));
}

// p: scipy.stats.binomtest(min(x, y), x + y, 0.5). Bounds: the d at which the score, with the rates
// that maximise the likelihood numerically (scipy.optimize), is +-1.96.
static void stats_of_pairs_match_scipy(void **state)
{
    static const struct {
        int x, y, n;
        double p, low, high;
    } known[] = {
        {12, 3, 50, 0.03515625, 0.031386, 0.329888},
        {0, 0, 20, 1, -0.161125, 0.161125},
        {1, 0, 10, 1, -0.205286, 0.404150},
        {5, 5, 40, 1, -0.166324, 0.166324},
        {30, 2, 100, 2.46334820986e-07, 0.186156, 0.380291},
        {0, 9, 25, 0.00390625, -0.554815, -0.178859},
        {7, 0, 500, 0.015625, 0.006269, 0.028613},
        {20, 21, 2000, 1, -0.007070, 0.006030},
        {10, 0, 10, 0.001953125, 0.444934, 1},
    };
    struct stats_rate d, mirror;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        int x = known[i].x, y = known[i].y, n = known[i].n;

        assert_close(stats_mcnemar(x, y), known[i].p, 1e-10, 0);
        assert_close(stats_mcnemar(y, x), known[i].p, 1e-10, 0);
        stats_paired(&d, x, y, n);
        stats_paired(&mirror, y, x, n);
        assert_true(d.rate == (double)(x - y) / n);
        assert_close(d.low, known[i].low, 0, 2e-6);
        assert_close(d.high, known[i].high, 0, 2e-6);
        assert_close(mirror.low, -d.high, 0, 1e-12);
        assert_close(mirror.high, -d.low, 0, 1e-12);
    }
    stats_paired(&d, 0, 0, 0);
    assert_true(isnan(d.rate) && isnan(d.low) && isnan(d.high));
}

// scipy.stats.binomtest(hits, n).proportion_ci(method="wilson")
static void stats_wilson_matches_scipy(void **state)
{
    static const struct {
        int hits, n;
        double low, high;
    } known[] = {
        {0, 10, 0, 0.277532799863},
        {45, 50, 0.786397685625, 0.956524235068},
        {7, 9, 0.452588969107, 0.936774892882},
        {1, 2000, 8.82677307055e-05, 0.00282686250327},
        {1986, 2000, 0.988284137437, 0.995825653944},
    };
    struct stats_rate r;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        stats_wilson(&r, known[i].hits, known[i].n);
        assert_close(r.low, known[i].low, 1e-11, 1e-15);
        assert_close(r.high, known[i].high, 1e-11, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(stats_t975_matches_published_values),
        leak_test(stats_t975_is_smooth_where_the_method_changes),
        leak_test(stats_t975_falls_with_the_degrees_of_freedom),
        leak_test(stats_beta_inc_matches_closed_forms),
        leak_test(stats_mean_gives_the_student_interval),
        leak_test(stats_mean_is_exact_for_large_offsets),
        leak_test(stats_mean_of_few_values_has_no_interval),
        leak_test(stats_wilson_solves_the_score_equation),
        leak_test(stats_wilson_matches_scipy),
        leak_test(stats_of_pairs_match_scipy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
