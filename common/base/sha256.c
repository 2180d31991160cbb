#include "common/base/sha256.h"

#include "common/base/file.h"
#include "common/base/mem.h"

#include <mbedtls/md.h>
#include <stdint.h>
#include <stdio.h>

enum status sha256_file(const char *path, char out[SHA256_TEXT])
{
    uint8_t digest[32];
    char *bytes;
    size_t n, i;
    int rv;

    TRY(file_read(path, &bytes, &n));
    rv =
        mbedtls_md(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), (const uint8_t *)bytes, n, digest);
    mem_free(bytes);
    if (rv != 0)
        return FAIL(ST_IO, "SHA-256 of '%s' failed", path);
    for (i = 0; i < sizeof digest; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return ST_OK;
}
