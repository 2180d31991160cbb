// crc.h - CRC-32C (Castagnoli), for frames and TensorBoard records.
#ifndef COMMON_BASE_CRC_H
#define COMMON_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

// CRC of `n` bytes, continuing from `crc` (0 at the start).
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

#endif
