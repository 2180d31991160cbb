// envproto.h - the messages between an env client and an env server.
//
//   client                              server
//   HELLO  what it wants           ->
//                                  <-   WELCOME  spec, layout, the envs it owns
//   RESET  rows of identity        ->
//   STEP   rows of actions         ->
//                                  <-   BATCH    finished rows, why the batch left
//                                  <-   ERROR    a request was refused; nothing of it was executed
//   BYE                            ->
//
// Requests carry a sequence number that counts from 1; a gap is a protocol error. So do batches.
// Every reader checks all lengths and ranges; what does not fit is ST_PROTO.
#ifndef COMMON_WIRE_ENVPROTO_H
#define COMMON_WIRE_ENVPROTO_H

#include "common/wire/spec.h"

#define ENVPROTO_VERSION 1

struct hello {
    uint32_t version;
    uint32_t autoreset; // enum autoreset
    uint32_t n_env;     // envs wanted, 0 = all that are free
    uint32_t k_max;     // actions per request at most, 1..SPEC_CHUNK_MAX
    uint32_t b_max;     // rows per batch, 0 = the server's setting
    int64_t t_max_ns;   // longest wait of a finished row, -1 = the server's setting
};

struct welcome {
    struct spec spec;
    uint32_t autoreset, k_max, b_max;
    int64_t t_max_ns;
    uint32_t n_env;
    uint32_t env[SPEC_ENV_MAX]; // (n_env) ids of the envs that the client owns now
};

// One row of a RESET: which env starts which episode. The initial state is a function of
// (seed, stream, episode) alone.
struct reset_row {
    uint32_t env, reserved;
    uint64_t seed, stream, episode;
};

// One row of a STEP: followed by (k_max, n_act) float32, of which the first n_sub rows count.
struct step_row {
    uint32_t env;
    uint32_t n_sub; // 1..k_max
};

// Head of a BATCH; rows follow.
struct batch_head {
    uint64_t seq;
    uint32_t n;         // rows
    uint32_t why;       // enum batcher_why
    uint32_t in_flight; // requests of this client still running
    uint32_t stride;    // bytes of a row
};

struct proto_error {
    uint32_t code; // enum status
    uint32_t env;  // the env that it is about, UINT32_MAX = none
    uint64_t seq;  // the refused request
    char text[512];
};

NODISCARD enum status hello_write(struct msg **out, const struct hello *h);
NODISCARD enum status hello_read(const struct msg *m, struct hello *out);
NODISCARD enum status welcome_write(struct msg **out, const struct welcome *w);
NODISCARD enum status welcome_read(const struct msg *m, struct welcome *out);
NODISCARD enum status proto_error_write(struct msg **out, const struct proto_error *e);
NODISCARD enum status proto_error_read(const struct msg *m, struct proto_error *out);

// RESET and STEP: a u64 sequence number, a u32 count, a u32 row size, then rows. The readers give
// pointers into the message.
NODISCARD enum status reset_write(struct msg **out, uint64_t seq, const struct reset_row *rows,
                                  int n);
NODISCARD enum status reset_read(const struct msg *m, uint64_t *seq, const struct reset_row **rows,
                                 int *n);
// Room for n rows of step_stride(k_max, n_act) bytes each; `rows` points to the first (zeroed).
NODISCARD enum status step_begin(struct msg **out, uint64_t seq, int n, int k_max, int n_act,
                                 uint8_t **rows);
NODISCARD enum status step_read(const struct msg *m, int k_max, int n_act, uint64_t *seq,
                                const uint8_t **rows, int *n);
size_t step_stride(int k_max, int n_act);

// Head and first row of a BATCH; checks that the rows fit and that the stride is the layout's.
NODISCARD enum status batch_read(const struct msg *m, const struct row_layout *layout,
                                 const struct batch_head **head, const uint8_t **rows);

#endif
