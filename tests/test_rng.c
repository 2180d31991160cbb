#include "common/base/rng.h"

#include "tests/testing.h"

#define N 100000

// Known answers of Philox4x32-10 that its authors publish with their library (Random123,
// kat_vectors).
static void philox_gives_the_published_numbers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rng r = {.used = 4};

        memcpy(r.counter, known[i].counter, sizeof r.counter);
        memcpy(r.key, known[i].key, sizeof r.key);
        for (int k = 0; k < 4; k++)
            assert_int_equal(rng_u32(&r), known[i].want[k]);
    }
}

static void a_sequence_is_a_function_of_its_coordinates(void **state)
{
    struct rng a = rng_make(1, RNG_RESET, 2, 3, 4), b = rng_make(1, RNG_RESET, 2, 3, 4);

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(rng_u32(&a), rng_u32(&b));
}

// Correlation of two uniform sequences, in standard deviations of that of independent ones.
static double correlation(struct rng a, struct rng b)
{
    double sum = 0;

    for (int i = 0; i < 10000; i++)
        sum += (rng_unit(&a) - 0.5) * (rng_unit(&b) - 0.5);
    return fabs(sum * 12 / sqrt(10000));
}

static void every_coordinate_makes_another_sequence(void **state)
{
    const struct rng all[] = {
        rng_make(1, RNG_RESET, 0, 0, 0),          rng_make(2, RNG_RESET, 0, 0, 0),
        rng_make(1, RNG_ACTION, 0, 0, 0),         rng_make(1, RNG_RESET, 1, 0, 0),
        rng_make(1, RNG_RESET, 0, 1, 0),          rng_make(1, RNG_RESET, 0, 0, 1),
        rng_make(1ull << 40, RNG_RESET, 0, 0, 0), rng_make(1, RNG_RESET, 1ull << 40, 0, 0),
        rng_make(1, RNG_RESET, 0, 1ull << 40, 0), rng_make(0, RNG_RESET, 0, 0, 0),
    };
    const int n = sizeof all / sizeof all[0];

    (void)state;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            struct rng a = all[i], b = all[j];

            assert_int_not_equal(rng_u32(&a), rng_u32(&b));
            assert_true(correlation(all[i], all[j]) < 4.5);
        }
    }
}

static void neighbouring_steps_do_not_correlate(void **state)
{
    double sum = 0, last = 0.5;

    (void)state;
    for (uint64_t step = 0; step < N; step++) {
        struct rng r = rng_make(7, RNG_ACTION, 3, 5, step);
        double x = rng_unit(&r);

        sum += (x - 0.5) * (last - 0.5);
        last = x;
    }
    assert_true(fabs(sum * 12 / sqrt(N)) < 4.5);
}

static void unit_is_uniform_in_its_interval(void **state)
{
    struct rng r = rng_make(11, RNG_TEST, 0, 0, 0);
    int bins[10] = {0};
    double sum = 0, square = 0, chi2 = 0;

    (void)state;
    for (int i = 0; i < N; i++) {
        double x = rng_unit(&r);

        assert_true(x >= 0 && x < 1);
        sum += x;
        square += x * x;
        bins[(int)(x * 10)]++;
    }
    assert_close(sum / N, 0.5, 0, 5 * 0.2887 / sqrt(N));
    assert_close(square / N, 1.0 / 3, 0, 5 * 0.298 / sqrt(N));
    for (int i = 0; i < 10; i++)
        chi2 += (bins[i] - N / 10.0) * (bins[i] - N / 10.0) / (N / 10.0);
    assert_true(chi2 < 34); // 9 degrees of freedom: p = 1e-4
}

static void normal_has_the_right_moments(void **state)
{
    struct rng r = rng_make(12, RNG_TEST, 0, 0, 0);
    double m[5] = {0};
    int tail = 0;

    (void)state;
    for (int i = 0; i < N; i++) {
        double x = rng_normal(&r);

        assert_true(isfinite(x));
        for (int k = 1; k < 5; k++)
            m[k] += pow(x, k) / N;
        tail += fabs(x) > 2;
    }
    assert_close(m[1], 0, 0, 5 / sqrt(N));
    assert_close(m[2], 1, 0, 5 * sqrt(2) / sqrt(N));
    assert_close(m[3], 0, 0, 5 * sqrt(15) / sqrt(N));
    assert_close(m[4], 3, 0, 5 * sqrt(96) / sqrt(N));
    assert_close(tail / (double)N, 0.0455, 0, 5 * 0.2084 / sqrt(N));
}

static void uniform_stays_between_its_bounds(void **state)
{
    struct rng r = rng_make(13, RNG_TEST, 0, 0, 0);
    double sum = 0;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        double x = rng_uniform(&r, -3, 5);

        assert_true(x >= -3 && x < 5);
        sum += x;
    }
    assert_close(sum / 10000, 1, 0, 5 * 8 * 0.2887 / 100);
    assert_true(rng_uniform(&r, 2, 2) == 2);
}

static void below_reaches_every_number_equally(void **state)
{
    struct rng r = rng_make(14, RNG_TEST, 0, 0, 0);
    int count[7] = {0};

    (void)state;
    for (int i = 0; i < 70000; i++) {
        uint32_t x = rng_below(&r, 7);

        assert_true(x < 7);
        count[x]++;
    }
    for (int i = 0; i < 7; i++)
        assert_true(abs(count[i] - 10000) < 500);
    for (int i = 0; i < 100; i++)
        assert_int_equal(rng_below(&r, 1), 0);
}

static void the_counter_carries_over(void **state)
{
    struct rng a = {.used = 4, .counter = {~0u, 5, 0, 0}}, b = {.used = 4, .counter = {0, 6, 0, 0}};

    (void)state;
    for (int i = 0; i < 4; i++)
        (void)rng_u32(&a);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rng_u32(&a), rng_u32(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(philox_gives_the_published_numbers),
        leak_test(a_sequence_is_a_function_of_its_coordinates),
        leak_test(every_coordinate_makes_another_sequence),
        leak_test(neighbouring_steps_do_not_correlate),
        leak_test(unit_is_uniform_in_its_interval),
        leak_test(normal_has_the_right_moments),
        leak_test(uniform_stays_between_its_bounds),
        leak_test(below_reaches_every_number_equally),
        leak_test(the_counter_carries_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
