#include "common/base/crc.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc_hw(uint32_t crc, const uint8_t *p, size_t n)
{
    uint64_t c = crc, word;

    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
    }
    for (; n > 0; n--)
        c = _mm_crc32_u8((uint32_t)c, *p++);
    return (uint32_t)c;
}
#endif

static uint32_t crc_bits(uint32_t crc, const uint8_t *p, size_t n)
{
    int k;

    for (; n > 0; n--) {
        crc ^= *p++;
        for (k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return crc;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_hw(~crc, data, n);
#endif
    return ~crc_bits(~crc, data, n);
}
