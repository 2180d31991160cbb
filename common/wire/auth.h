// auth.h - both sides of a connection prove that they hold the same key, without sending it.
//
// A proof is HMAC-SHA256 (mbed TLS) under the key over the name of the side, the server's and the
// client's random bytes, and the HELLO; it is compared in constant time. The two names differ, so a
// proof cannot be sent back as the other side's; the random bytes are fresh, so none can be used
// twice. It keeps strangers out. It does not hide or seal what follows: that is what TLS is for.
#ifndef COMMON_WIRE_AUTH_H
#define COMMON_WIRE_AUTH_H

#include "common/wire/control.h"

#define AUTH_KEY_MIN 16 // bytes
#define AUTH_KEY_MAX 1024

enum auth_side { AUTH_CLIENT, AUTH_SERVER };

struct auth_key {
    size_t n;
    uint8_t bytes[AUTH_KEY_MAX];
};

// What both sides have seen before they prove anything.
struct auth_seen {
    uint8_t server[NONCE_BYTES], client[NONCE_BYTES];
    const void *hello; // the body of HELLO
    size_t n_hello;
};

// The bytes of a file, without line ends at its end. ST_INVAL if the key is too short or too long,
// or if others than the owner may read the file. Overwrite the key when it is not needed any more.
NODISCARD enum status auth_key_load(struct auth_key *out, const char *path);
void auth_key_clear(struct auth_key *key);

// Fresh random bytes of the system.
NODISCARD enum status auth_nonce(uint8_t out[NONCE_BYTES]);

NODISCARD enum status auth_prove(const struct auth_key *key, enum auth_side side,
                                 const struct auth_seen *seen, uint8_t out[MAC_BYTES]);

// ST_PROTO if the proof is not that of `side`.
NODISCARD enum status auth_check(const struct auth_key *key, enum auth_side side,
                                 const struct auth_seen *seen, const uint8_t mac[MAC_BYTES]);

#endif
