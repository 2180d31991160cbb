// stateproto.h - the requests of the env protocol that are not about episodes: states of envs out
// and in, and fields of their models.
//
//   SAVE  envs             -> SAVED     their states
//   LOAD  envs and states  -> EXECUTED
//   SET   envs and numbers -> EXECUTED
//   GET   envs             -> VALUES    their numbers
//
// They count as requests beside RESET and STEP and are answered at once, between batches; a refusal
// is an ERROR that names the request. No env may have a row coming. Both sides have FEATURE_STATE.
#ifndef COMMON_WIRE_STATEPROTO_H
#define COMMON_WIRE_STATEPROTO_H

#include "common/wire/envproto.h"

#define STATE_BYTES_MAX   (64u << 20) // of a request or an answer
#define STATE_FIELD_MAX   SPEC_NAME_MAX
#define STATE_ELEMENT_MAX 256

// Head of a row of SAVED, LOAD, SET and VALUES; a state, or float64 numbers, follow: bytes of a row
// less this, a multiple of 8.
struct state_row {
    uint32_t env, reserved;
};

// Rows of any of these messages.
struct state_rows {
    uint64_t seq;
    int n;
    size_t stride;
    const uint8_t *rows;                                     // each begins with the env
    char field[STATE_FIELD_MAX], element[STATE_ELEMENT_MAX]; // of SET and GET
};

// SAVE and GET (with field and element, else NULL): env is (n).
NODISCARD enum status state_ask(struct msg **out, enum msg_type type, uint64_t seq,
                                const uint32_t *env, int n, const char *field, const char *element);

// SAVED, LOAD, SET and VALUES with room for `bytes` of each of the n envs; the first row is at
// *rows, sizeof(struct state_row) + bytes from one to the next. ST_INVAL if that is too much for a
// message.
NODISCARD enum status state_begin_rows(struct msg **out, enum msg_type type, uint64_t seq,
                                       const uint32_t *env, int n, size_t bytes, uint8_t **rows);
// The end of a SET.
NODISCARD enum status state_name(struct msg *m, const char *field, const char *element);

// Any of them but EXECUTED; `out` points into the message.
NODISCARD enum status state_read_rows(const struct msg *m, struct state_rows *out);

NODISCARD enum status executed_write(struct msg **out, uint64_t seq);
NODISCARD enum status executed_read(const struct msg *m, uint64_t *seq);

#endif
