// sha256.h - SHA-256 of a file, as 64 hexadecimal digits: which file it was, for reports.
//
// Threads: any.
#ifndef COMMON_BASE_SHA256_H
#define COMMON_BASE_SHA256_H

#include "common/base/status.h"

#define SHA256_TEXT 65 // bytes, with the end

// ST_IO, ST_MISSING as file_read.
NODISCARD enum status sha256_file(const char *path, char out[SHA256_TEXT]);

#endif
