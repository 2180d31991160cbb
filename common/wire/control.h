// control.h - messages that keep a connection rather than do its work: the end, heartbeats, and the
// proof that both sides hold the same key.
//
//   HELLO      ->                        (with FEATURE_AUTH: "I have a key")
//              <-  CHALLENGE  32 random bytes
//   PROOF      ->                        32 random bytes of its own, and the proof over both
//              <-  PROOF                 the server's proof over both
//              <-  WELCOME
//
// Either side may send PING; the other answers PONG with the same number. BYE is the last message
// of a side; it may be empty, else it says why and, from a server, how many requests it executed.
#ifndef COMMON_WIRE_CONTROL_H
#define COMMON_WIRE_CONTROL_H

#include "common/wire/msg.h"

#define NONCE_BYTES 32
#define MAC_BYTES   32
#define BYE_MAX     128

struct proof {
    uint8_t nonce[NONCE_BYTES]; // the sender's; zero from a server, which sent its own before
    uint8_t mac[MAC_BYTES];
};

struct bye {
    uint64_t seq; // the last request that was executed, 0 = none or unknown
    char why[BYE_MAX];
};

// type: MSG_PING or MSG_PONG.
NODISCARD enum status ping_write(struct msg **out, enum msg_type type, uint64_t number);
NODISCARD enum status ping_read(const struct msg *m, enum msg_type type, uint64_t *number);

NODISCARD enum status bye_write(struct msg **out, const struct bye *b);
NODISCARD enum status bye_read(const struct msg *m, struct bye *out);

NODISCARD enum status challenge_write(struct msg **out, const uint8_t nonce[NONCE_BYTES]);
NODISCARD enum status challenge_read(const struct msg *m, uint8_t nonce[NONCE_BYTES]);
NODISCARD enum status proof_write(struct msg **out, const struct proof *p);
NODISCARD enum status proof_read(const struct msg *m, struct proof *out);

#endif
