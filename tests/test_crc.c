#include "common/base/crc.h"

#include "common/base/rng.h"
#include "tests/testing.h"

static void the_check_value_of_crc32c(void **state)
{
    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, "", 0), 0);
}

// Vectors of RFC 3720, appendix B.4.
static void the_vectors_of_rfc_3720(void **state)
{
    uint8_t data[32];

    (void)state;
    memset(data, 0, 32);
    assert_int_equal(crc32c(0, data, 32), 0x8a9136aa);
    memset(data, 0xff, 32);
    assert_int_equal(crc32c(0, data, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)i;
    assert_int_equal(crc32c(0, data, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)(31 - i);
    assert_int_equal(crc32c(0, data, 32), 0x113fdb5c);
}

static void pieces_give_the_same_sum_as_the_whole(void **state)
{
    struct rng r = rng_make(1, RNG_TEST, 0, 0, 0);
    uint8_t data[100];
    uint32_t whole;

    (void)state;
    for (int i = 0; i < 100; i++)
        data[i] = (uint8_t)rng_u32(&r);
    whole = crc32c(0, data, 100);
    for (size_t cut = 0; cut <= 100; cut++)
        assert_int_equal(crc32c(crc32c(0, data, cut), data + cut, 100 - cut), whole);
}

// One bit at a time, as the polynomial says.
static uint32_t slow(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < 8 * n; i++) {
        uint32_t bit = (crc ^ (uint32_t)(p[i / 8] >> (i % 8))) & 1;

        crc = (crc >> 1) ^ (bit ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void every_length_and_alignment_agrees_with_the_definition(void **state)
{
    struct rng r = rng_make(2, RNG_TEST, 0, 0, 0);
    uint8_t data[80];

    (void)state;
    for (int i = 0; i < 80; i++)
        data[i] = (uint8_t)rng_u32(&r);
    for (size_t at = 0; at < 9; at++)
        for (size_t n = 0; n < 70; n++)
            assert_int_equal(crc32c(0, data + at, n), slow(data + at, n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(the_check_value_of_crc32c),
        leak_test(the_vectors_of_rfc_3720),
        leak_test(pieces_give_the_same_sum_as_the_whole),
        leak_test(every_length_and_alignment_agrees_with_the_definition),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
