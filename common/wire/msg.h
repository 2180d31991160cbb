// msg.h - a message: a type and bytes, with writers that grow it and a reader that checks bounds.
//
// Bytes are little-endian; a message body never holds padding that was not zeroed. Messages come
// from a free list, so a warm loop allocates nothing.
//
// Ownership: msg_new gives the message to the caller, msg_free returns it to the list.
// Threads: any thread may take and return messages; one message belongs to one thread at a time.
#ifndef COMMON_WIRE_MSG_H
#define COMMON_WIRE_MSG_H

#include "common/base/status.h"

#include <stdint.h>

#define MSG_BYTES_MAX (256u << 20) // no message is larger

enum msg_type {
    // env server, see envproto.h
    MSG_HELLO = 1,
    MSG_WELCOME,
    MSG_RESET,
    MSG_STEP,
    MSG_BATCH,
    MSG_SAVE, // this one and the following: see stateproto.h
    MSG_SAVED,
    MSG_LOAD,
    MSG_SET,
    MSG_GET,
    MSG_VALUES,
    MSG_EXECUTED,
    // learner, see trainproto.h
    MSG_JOIN = 32,
    MSG_WEIGHTS,
    MSG_CHUNK,
    MSG_STATE,
    MSG_LOST,
    MSG_BACK,
    MSG_EPISODE, // see episode.h
    // both
    MSG_ERROR = 64,
    MSG_BYE, // this one and the following: see control.h
    MSG_PING,
    MSG_PONG,
    MSG_CHALLENGE,
    MSG_PROOF,
};

struct msg {
    uint16_t type;
    size_t len, cap;   // bytes used and allocated
    uint8_t *data;     // (cap), aligned to 64
    struct msg *next_; // the free list's
};

// An empty message with room for `cap` bytes.
NODISCARD enum status msg_new(struct msg **out, uint16_t type, size_t cap);

// NULL is fine.
void msg_free(struct msg *m);

// Free the list itself, at the end of a program or test.
void msg_drain(void);

// Append `n` bytes and return where they stand (zeroed); NULL (with error_last) if there is no
// memory or the message would pass MSG_BYTES_MAX. The pointer is valid until the next append.
void *msg_append(struct msg *m, size_t n);

// The same without the zeroes, for callers that fill every byte that leaves.
void *msg_extend(struct msg *m, size_t n);

// Append one value. Failure is ST_NOMEM.
NODISCARD enum status msg_u32(struct msg *m, uint32_t v);
NODISCARD enum status msg_u64(struct msg *m, uint64_t v);
NODISCARD enum status msg_f64(struct msg *m, double v);
NODISCARD enum status msg_str(struct msg *m, const char *text); // u32 length, bytes
NODISCARD enum status msg_bytes(struct msg *m, const void *p, size_t n);

// Reads the body from the front; the first read past the end makes all later reads fail.
struct reader {
    const uint8_t *p, *end;
    bool bad;
};

struct reader reader_make(const struct msg *m);
uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
double read_f64(struct reader *r);
// A string into buf (always terminated); longer than the buffer is bad.
void read_str(struct reader *r, char *buf, size_t size);
// `n` items of `size` bytes in place; NULL (and bad) if they are not there. n * size may overflow.
const void *read_bytes(struct reader *r, uint64_t n, size_t size);
// ST_OK if nothing went wrong and, with `all`, nothing is left; else ST_PROTO that names `what`.
NODISCARD enum status reader_end(const struct reader *r, bool all, const char *what);

#endif
