// safetensors.h - named arrays in the format of Hugging Face's safetensors: reader and writer.
//
// A file is 8 bytes (the header's length, little-endian), the header (JSON: name -> dtype, shape,
// data_offsets), then the numbers. The reader trusts nothing: the header's length has a bound, and
// the arrays must fill the rest of the file without gap or overlap, each as large as its shape
// says. Only then is anything read. Errors name the file and the array.
//
// A large file is read where it lies. Numbers of 16 bits become float32 exactly; what is written in
// 16 bits is rounded to the nearest, ties to even.
//
// Threads: reading from any once open.
#ifndef NN_SAFETENSORS_H
#define NN_SAFETENSORS_H

#include "common/base/status.h"

#include <stdint.h>

#define SAFETENSORS_HEADER_MAX 100000000 // bytes, the format's own bound
#define SAFETENSORS_RANK_MAX   8

enum safetensors_type {
    SAFETENSORS_F32,
    SAFETENSORS_BF16,
    SAFETENSORS_F16,
    SAFETENSORS_F64,
    SAFETENSORS_OTHER, // whole numbers and rarer kinds: its bytes can be read, not its numbers
};

struct safetensor {
    const char *name;
    enum safetensors_type type;
    const char *type_name; // "F32", "BF16", "I64", ...
    int rank;              // 0 = a single number
    int64_t dims[SAFETENSORS_RANK_MAX];
    int64_t n;            // numbers
    uint64_t from, bytes; // in the part behind the header
};

struct safetensors;

// ST_MISSING if there is no such file, ST_INVAL with the fault.
NODISCARD enum status safetensors_open(struct safetensors **out, const char *path);
// The same of a file's bytes in memory, borrowed; `what` names it in errors.
NODISCARD enum status safetensors_of(struct safetensors **out, const uint8_t *bytes, size_t n,
                                     const char *what);
void safetensors_close(struct safetensors *s); // NULL is fine

// Arrays in the order of their names.
int safetensors_count(const struct safetensors *s);
const struct safetensor *safetensors_at(const struct safetensors *s, int i);
const struct safetensor *safetensors_find(const struct safetensors *s, const char *name); // or NULL

// The text of a key of the header's "__metadata__"; NULL if there is none.
const char *safetensors_meta(const struct safetensors *s, const char *key);

// Its numbers (t->n) as float32. ST_INVAL if they are of another kind, or one is not finite.
NODISCARD enum status safetensors_read(const struct safetensors *s, const struct safetensor *t,
                                       float *out);
// As safetensors_read, of the array `name`, which must be of these dimensions.
NODISCARD enum status safetensors_get(const struct safetensors *s, const char *name, int rank,
                                      const int64_t *dims, float *out);
// Its bytes (t->bytes) as they are.
NODISCARD enum status safetensors_bytes(const struct safetensors *s, const struct safetensor *t,
                                        void *out);

// What is to be written.
struct safetensors_part {
    const char *name;
    enum safetensors_type type; // F32, BF16 or F16
    int rank;
    int64_t dims[SAFETENSORS_RANK_MAX];
    const float *data;
};

struct safetensors_note { // of "__metadata__"
    const char *key, *text;
};

// Written beside `path` and renamed. Names must differ; arrays lie in the file in the given order
// (the format's own writer puts wide types first; do the same where alignment matters).
NODISCARD enum status safetensors_save(const char *path, const struct safetensors_part *parts,
                                       int n_part, const struct safetensors_note *notes,
                                       int n_note);

// The conversions, for tests and others.
float safetensors_from_f16(uint16_t half);
uint16_t safetensors_to_f16(float x);
float safetensors_from_bf16(uint16_t half);
uint16_t safetensors_to_bf16(float x);

#endif
