// tensor.h - an array of numbers with a shape and NumPy's name of its type.
//
// Threads: any; nothing is kept.
#ifndef EVALUATION_TENSOR_H
#define EVALUATION_TENSOR_H

#include "common/base/status.h"

#include <stdint.h>

#define TENSOR_DIMS 6

enum tensor_type {
    TENSOR_B1,
    TENSOR_U1,
    TENSOR_I1,
    TENSOR_U2,
    TENSOR_I2,
    TENSOR_U4,
    TENSOR_I4,
    TENSOR_U8,
    TENSOR_I8,
    TENSOR_F2,
    TENSOR_F4,
    TENSOR_F8,
    TENSOR_TYPES
};

struct tensor {
    enum tensor_type type;
    int n_dim;
    uint32_t shape[TENSOR_DIMS]; // (n_dim)
    const void *data;            // C order, little endian, maybe not aligned
};

size_t tensor_bytes(const struct tensor *t);
const char *tensor_type_name(enum tensor_type type); // NumPy's dtype.str, such as "<f4"
NODISCARD enum status tensor_type_find(enum tensor_type *out, const char *name, size_t n);

// Element i of the first dimension; ST_PROTO if there is none.
NODISCARD enum status tensor_slice(struct tensor *out, const struct tensor *t, uint32_t i);

// Numbers of an array, or of lists within lists.
struct tensor_floats {
    int n_dim;
    uint32_t shape[TENSOR_DIMS];
    float *v;      // the caller's, room for `cap`
    size_t n, cap; // n: numbers that were read
};
NODISCARD enum status tensor_floats_from(struct tensor_floats *out, const struct tensor *t);

#endif
