// envproto.h - the messages between an env client and an env server.
//
//   client                              server
//   HELLO  what it wants           ->
//                                  <-   WELCOME  spec, layout, the envs it owns
//   RESET  rows of identity        ->
//   STEP   rows of actions         ->
//                                  <-   BATCH    finished rows, why the batch left
//                                  <-   ERROR    a request was refused; nothing of it was executed
//                                  <-   PING     are you there
//   PONG                           ->
//   SAVE LOAD SET GET              ->
//                                  <-   SAVED EXECUTED EXECUTED VALUES
//                                  <-   BYE      the server ends; nothing that it took is lost
//   BYE                            ->
//
// docs/protocol.md has every byte. SAVE and what belongs to it are in stateproto.h; BYE, PING, PONG
// and the proof of a key are in control.h. Requests carry a sequence number that counts from 1; a
// gap is a protocol error. So do batches. Every reader checks all lengths and ranges; what does not
// fit is ST_PROTO.
#ifndef COMMON_WIRE_ENVPROTO_H
#define COMMON_WIRE_ENVPROTO_H

#include "common/wire/spec.h"

#define ENVPROTO_VERSION 3

// What a side can do beyond the version; WELCOME holds what both can.
enum feature {
    FEATURE_HEARTBEAT = 1, // answers PING; may be taken for dead after a silence of idle_ns
    FEATURE_BYE = 2,       // the client wants to be told when the server ends
    FEATURE_AUTH = 4,      // the client has a key and demands that the server proves its own
    FEATURE_STATE = 8,     // answers SAVE, LOAD, SET and GET
    FEATURE_PLAN = 16,     // WELCOME says how the envs' models differ
};

#define WELCOME_PLAN_MAX 16384 // bytes of a plan, with the 0 at its end

// A picture that a client wants, by its name in the spec. The size is what the client can take; 0 x
// 0 = any.
struct hello_picture {
    char name[SPEC_NAME_MAX];
    uint32_t width, height;
};

struct hello {
    uint32_t version;
    uint32_t autoreset; // enum autoreset
    uint32_t n_env;     // envs wanted, 0 = all that are free
    uint32_t k_max;     // actions per request at most, 1..SPEC_CHUNK_MAX
    uint32_t b_max;     // rows per batch, 0 = the server's setting
    int64_t t_max_ns;   // longest wait of a finished row, -1 = the server's setting
    uint32_t b_min;     // rows that are enough for a batch, 0 = the server's setting
    uint32_t features;  // enum feature; bits that the other side does not know are ignored
    int64_t idle_ns;    // silence after which a side is taken for dead, 0 = the server's setting
    char name[SPEC_NAME_MAX]; // who it is, for logs and the status page; may be empty
    bool listed;              // rows have the pictures below alone; false = all of the server's
    uint32_t n_picture;
    struct hello_picture pictures[SPEC_PICTURE_MAX];
};

struct welcome {
    struct spec spec;
    uint32_t autoreset, k_max, b_max, b_min;
    int64_t t_max_ns, idle_ns;
    uint32_t features;
    uint64_t session; // the server's number of this connection, as in its log
    uint32_t n_env;
    uint32_t env[SPEC_ENV_MAX];  // (n_env) ids of the envs that the client owns now
    char plan[WELCOME_PLAN_MAX]; // FEATURE_PLAN: of envserver/randomize.h, JSON; "" = one model
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
// Read "NAME[:WIDTHxHEIGHT],..." into h->pictures; "" = no pictures. ST_INVAL names the part.
NODISCARD enum status hello_want(struct hello *h, const char *text);
// The pictures of `spec` that the client does not want, as a bit each. ST_INVAL, with a text that
// says what there is, if it wants one that is not there or of another size.
NODISCARD enum status hello_skip(const struct hello *h, const struct spec *spec, uint32_t *skip);
NODISCARD enum status welcome_write(struct msg **out, const struct welcome *w);
NODISCARD enum status welcome_read(const struct msg *m, struct welcome *out);
NODISCARD enum status proto_error_write(struct msg **out, const struct proto_error *e);
NODISCARD enum status proto_error_read(const struct msg *m, struct proto_error *out);

// Every request, and SAVED and VALUES: a u64 sequence number, a u32 count, a u32 row size, then
// rows, which are aligned to 8. rows_begin gives room for them (zeroed), rows_read a pointer into
// the message; it checks the count, and nothing after the rows.
NODISCARD enum status rows_begin(struct msg **out, enum msg_type type, uint64_t seq, int n,
                                 size_t stride, uint8_t **rows);
NODISCARD enum status rows_read(struct reader *r, const char *what, uint64_t *seq,
                                const uint8_t **rows, int *n, size_t *stride);

// RESET and STEP. The readers give pointers into the message.
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
