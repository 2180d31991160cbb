// The proof of a key, against the HMAC-SHA256 of another library.
#include "common/wire/auth.h"

#include "tests/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *write_key(const void *bytes, size_t n, mode_t mode)
{
    static char path[64];
    int fd;

    snprintf(path, sizeof path, "/tmp/simstream-key-%d", (int)getpid());
    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static void keys_are_read_and_bad_ones_are_named(void **state)
{
    static char longest[AUTH_KEY_MAX + 2];
    struct auth_key key;
    const char *path;

    (void)state;
    path = write_key("0123456789abcdef\n", 17, 0600);
    assert_ok(auth_key_load(&key, path));
    assert_int_equal(key.n, 16);
    assert_memory_equal(key.bytes, "0123456789abcdef", 16);
    auth_key_clear(&key);
    assert_int_equal(key.n, 0);
    path = write_key("0123456789abcde\n", 16, 0600);
    assert_fails(auth_key_load(&key, path), ST_INVAL, "15 bytes, expected at least 16");
    path = write_key("0123456789abcdef", 16, 0640);
    assert_fails(auth_key_load(&key, path), ST_INVAL, "others may use it (mode 640)");
    memset(longest, 'x', sizeof longest);
    path = write_key(longest, AUTH_KEY_MAX + 1, 0600);
    assert_fails(auth_key_load(&key, path), ST_INVAL, "at most 1024 bytes");
    longest[AUTH_KEY_MAX] = '\n';
    path = write_key(longest, AUTH_KEY_MAX + 1, 0600);
    assert_ok(auth_key_load(&key, path));
    assert_int_equal(key.n, AUTH_KEY_MAX);
    unlink(path);
    assert_fails(auth_key_load(&key, path), ST_INVAL, "No such file");
    assert_fails(auth_key_load(&key, "/tmp"), ST_INVAL, "not a regular file");
}

// The proof is what `openssl dgst -sha256 -hmac KEY` says of the same bytes.
static void a_proof_is_an_hmac(void **state)
{
    struct auth_key key = {.n = 16, .bytes = "0123456789abcdef"};
    struct auth_seen seen = {.hello = "hello!", .n_hello = 6};
    uint8_t mac[MAC_BYTES];
    char hex[2 * MAC_BYTES + 1], want[256] = "";
    FILE *p;

    (void)state;
    memset(seen.server, 's', sizeof seen.server);
    memset(seen.client, 'c', sizeof seen.client);
    assert_ok(auth_prove(&key, AUTH_CLIENT, &seen, mac));
    for (int i = 0; i < MAC_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", mac[i]);
    p = popen("{ printf 'simstream client 1\\000'; printf 's%.0s' $(seq 32); "
              "printf 'c%.0s' $(seq 32); printf 'hello!'; } | "
              "openssl dgst -sha256 -hmac 0123456789abcdef 2>/dev/null",
              "r");
    assert_non_null(p);
    if (!fgets(want, sizeof want, p)) {
        pclose(p);
        skip(); // no openssl here
    }
    pclose(p);
    if (!strstr(want, hex))
        fail_msg("proof %s, openssl says %s", hex, want);
}

static void a_proof_covers_all_that_was_seen(void **state)
{
    struct auth_key key = {.n = 16, .bytes = "0123456789abcdef"}, other = key;
    struct auth_seen seen = {.hello = "hello", .n_hello = 5}, changed;
    uint8_t mac[MAC_BYTES];

    (void)state;
    assert_ok(auth_nonce(seen.server));
    assert_ok(auth_nonce(seen.client));
    assert_memory_not_equal(seen.server, seen.client, NONCE_BYTES);
    assert_ok(auth_prove(&key, AUTH_CLIENT, &seen, mac));
    assert_ok(auth_check(&key, AUTH_CLIENT, &seen, mac));
    // neither as the other side's, nor with another key, other random bytes or another HELLO
    assert_fails(auth_check(&key, AUTH_SERVER, &seen, mac), ST_PROTO, "the server has another key");
    other.bytes[15] ^= 1;
    assert_fails(auth_check(&other, AUTH_CLIENT, &seen, mac), ST_PROTO, "the client has");
    changed = seen;
    changed.server[0] ^= 1;
    assert_int_equal(auth_check(&key, AUTH_CLIENT, &changed, mac), ST_PROTO);
    changed = seen;
    changed.client[31] ^= 1;
    assert_int_equal(auth_check(&key, AUTH_CLIENT, &changed, mac), ST_PROTO);
    changed = seen;
    changed.hello = "hellO";
    assert_int_equal(auth_check(&key, AUTH_CLIENT, &changed, mac), ST_PROTO);
    for (int bit = 0; bit < 8 * MAC_BYTES; bit++) {
        mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(auth_check(&key, AUTH_CLIENT, &seen, mac), ST_PROTO);
        mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(keys_are_read_and_bad_ones_are_named),
        leak_test(a_proof_is_an_hmac),
        leak_test(a_proof_covers_all_that_was_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
