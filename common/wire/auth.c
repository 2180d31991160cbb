#include "common/wire/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mbedtls/constant_time.h>
#include <mbedtls/md.h>
#include <mbedtls/platform_util.h>

static const char *const side_names[] = {"simstream client 1", "simstream server 1"};

void auth_key_clear(struct auth_key *key)
{
    mbedtls_platform_zeroize(key, sizeof *key);
}

static enum status check_file(int fd, const char *path)
{
    struct stat sb;

    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode))
        return FAIL(ST_INVAL, "key file %s: not a regular file", path);
    if (sb.st_mode & 077)
        return FAIL(ST_INVAL, "key file %s: others may use it (mode %03o), expected 600", path,
                    (unsigned)sb.st_mode & 0777);
    return ST_OK;
}

static enum status read_key(struct auth_key *out, int fd, const char *path)
{
    uint8_t extra[2]; // a line end may follow the longest key
    ssize_t n, more;

    TRY(check_file(fd, path));
    n = read(fd, out->bytes, sizeof out->bytes);
    if (n < 0)
        return FAIL_SYS(ST_IO, errno, "key file %s", path);
    more = n == AUTH_KEY_MAX ? read(fd, extra, sizeof extra) : 0;
    while (more > 0 && (extra[more - 1] == '\n' || extra[more - 1] == '\r'))
        more--;
    if (more != 0)
        return FAIL(ST_INVAL, "key file %s: expected at most %d bytes", path, AUTH_KEY_MAX);
    while (n > 0 && (out->bytes[n - 1] == '\n' || out->bytes[n - 1] == '\r'))
        n--;
    if (n < AUTH_KEY_MIN)
        return FAIL(ST_INVAL, "key file %s: %zd bytes, expected at least %d", path, n,
                    AUTH_KEY_MIN);
    out->n = (size_t)n;
    return ST_OK;
}

enum status auth_key_load(struct auth_key *out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum status st;

    if (fd < 0)
        return FAIL_SYS(errno == ENOENT ? ST_INVAL : ST_IO, errno, "key file %s", path);
    st = read_key(out, fd, path);
    close(fd);
    if (st != ST_OK)
        auth_key_clear(out);
    return st;
}

enum status auth_nonce(uint8_t out[NONCE_BYTES])
{
    if (getrandom(out, NONCE_BYTES, 0) != NONCE_BYTES)
        return FAIL_SYS(ST_IO, errno, "the system gives no random bytes");
    return ST_OK;
}

static int mac_of(mbedtls_md_context_t *ctx, const struct auth_key *key, const char *name,
                  const struct auth_seen *seen, uint8_t out[MAC_BYTES])
{
    int rv = mbedtls_md_setup(ctx, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1);

    if (rv == 0)
        rv = mbedtls_md_hmac_starts(ctx, key->bytes, key->n);
    if (rv == 0)
        rv = mbedtls_md_hmac_update(ctx, (const uint8_t *)name, strlen(name) + 1);
    if (rv == 0)
        rv = mbedtls_md_hmac_update(ctx, seen->server, NONCE_BYTES);
    if (rv == 0)
        rv = mbedtls_md_hmac_update(ctx, seen->client, NONCE_BYTES);
    if (rv == 0)
        rv = mbedtls_md_hmac_update(ctx, seen->hello, seen->n_hello);
    return rv == 0 ? mbedtls_md_hmac_finish(ctx, out) : rv;
}

enum status auth_prove(const struct auth_key *key, enum auth_side side,
                       const struct auth_seen *seen, uint8_t out[MAC_BYTES])
{
    mbedtls_md_context_t ctx;
    int rv;

    mbedtls_md_init(&ctx);
    rv = mac_of(&ctx, key, side_names[side], seen, out);
    mbedtls_md_free(&ctx);
    return rv == 0 ? ST_OK : FAIL_SYS(ST_IO, rv, "HMAC-SHA256 fails with %d", rv);
}

enum status auth_check(const struct auth_key *key, enum auth_side side,
                       const struct auth_seen *seen, const uint8_t mac[MAC_BYTES])
{
    uint8_t right[MAC_BYTES];

    TRY(auth_prove(key, side, seen, right));
    if (mbedtls_ct_memcmp(right, mac, sizeof right) != 0)
        return FAIL(ST_PROTO, "the %s has another key", side == AUTH_CLIENT ? "client" : "server");
    return ST_OK;
}
