// pack.h - arrays and maps in msgpack, as the Python policy servers write and read them.
//
// msgpack itself is msgpack-c. There are four ways in use to put a NumPy array into it; all are
// written on demand and all are read, whichever a server prefers.
//
// What is read came from a network: pack_open checks every length, count and depth before anything
// is unpacked. Objects and tensors point into the bytes, which must outlive them.
//
// Threads: one at a time per object.
#ifndef EVALUATION_PACK_H
#define EVALUATION_PACK_H

#include "common/base/text.h"
#include "evaluation/tensor.h"

#include <msgpack.h>

enum tensor_style {
    TENSOR_OPENPI, // {b"__ndarray__": true, b"data", b"dtype", b"shape"}
    TENSOR_STR,    // the same with str keys
    TENSOR_NPY,    // {"__ndarray_class__": true, "as_npy": a whole .npy file}
    TENSOR_ND,     // {b"nd": true, b"type", b"kind": b"", b"shape", b"data"}
};

// --- writing
// A failed allocation is kept in mind until pack_done.
struct pack {
    msgpack_packer p;
    msgpack_sbuffer buf;
    bool failed;
};

void pack_init(struct pack *k);
void pack_fini(struct pack *k);
void pack_clear(struct pack *k);
NODISCARD enum status pack_done(const struct pack *k); // ST_NOMEM if something is missing

void pack_map(struct pack *k, size_t n);
void pack_array(struct pack *k, size_t n);
void pack_nil(struct pack *k);
void pack_bool(struct pack *k, bool value);
void pack_int(struct pack *k, int64_t value);
void pack_real(struct pack *k, double value);
void pack_str(struct pack *k, const char *text);
void pack_tensor(struct pack *k, enum tensor_style style, const struct tensor *t);
// The members of a JSON object without its head, such as constants that a server wants in every
// request; `*n` is their number. k may be NULL. ST_INVAL if it is no object.
NODISCARD enum status pack_json_members(struct pack *k, const char *json, size_t *n);

// --- reading
// ST_PROTO says what is wrong with the bytes. `u` is destroyed with msgpack_unpacked_destroy, also
// after a failure.
NODISCARD enum status pack_open(msgpack_unpacked *u, const uint8_t *bytes, size_t n);

// The value of a key, which may be str or bin; NULL if `map` is no map or lacks it.
const msgpack_object *pack_find(const msgpack_object *map, const char *key);

// Is it this text (str or bin)?
bool pack_is(const msgpack_object *o, const char *text);

// A text for people: what of it is printable, cut to `size`. "" if it is none.
const char *pack_text(const msgpack_object *o, char *buf, size_t size);

// ST_PROTO unless `o` is an array in one of the four styles with as many bytes as its shape needs.
NODISCARD enum status tensor_read(struct tensor *out, const msgpack_object *o);

// Numbers from a tensor, nested lists of equal length, or a number.
NODISCARD enum status tensor_floats_read(struct tensor_floats *out, const msgpack_object *o);

// The object as JSON, arrays as "dtype [shape]".
void pack_to_json(struct text *out, const msgpack_object *o);

#endif
