#include "evaluation/tensor.h"

#include <math.h>
#include <string.h>

static const struct {
    char name[4];
    uint8_t bytes;
} types[TENSOR_TYPES] = {{"|b1", 1}, {"|u1", 1}, {"|i1", 1}, {"<u2", 2}, {"<i2", 2}, {"<u4", 4},
                         {"<i4", 4}, {"<u8", 8}, {"<i8", 8}, {"<f2", 2}, {"<f4", 4}, {"<f8", 8}};

const char *tensor_type_name(enum tensor_type type)
{
    return types[type].name;
}

enum status tensor_type_find(enum tensor_type *out, const char *name, size_t n)
{
    int i;

    for (i = 0; i < TENSOR_TYPES; i++)
        if (n == 3 && memcmp(types[i].name, name, 3) == 0) {
            *out = (enum tensor_type)i;
            return ST_OK;
        }
    return FAIL(ST_PROTO, "an array of type '%.*s', expected numbers, little endian",
                (int)(n < 16 ? n : 16), name);
}

static size_t count(const struct tensor *t)
{
    size_t n = 1;
    int i;

    for (i = 0; i < t->n_dim; i++)
        n *= t->shape[i];
    return n;
}

size_t tensor_bytes(const struct tensor *t)
{
    return count(t) * types[t->type].bytes;
}

enum status tensor_slice(struct tensor *out, const struct tensor *t, uint32_t i)
{
    int k;

    if (t->n_dim < 1 || i >= t->shape[0])
        return FAIL(ST_PROTO, "an array of %u rows has no row %u", t->n_dim ? t->shape[0] : 0, i);
    out->type = t->type;
    out->n_dim = t->n_dim - 1;
    for (k = 0; k < out->n_dim; k++)
        out->shape[k] = t->shape[k + 1];
    out->data = (const uint8_t *)t->data + i * tensor_bytes(out);
    return ST_OK;
}

static float half(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float v = e == 31  ? (m ? NAN : INFINITY)
              : e == 0 ? ldexpf((float)m, -24)
                       : ldexpf((float)(m + 1024), e - 25);

    return h >> 15 ? -v : v;
}

#define ELEMENT(T)                                 \
    do {                                           \
        T x_;                                      \
        memcpy(&x_, p + i * sizeof x_, sizeof x_); \
        return (float)x_;                          \
    } while (0)

static float element(enum tensor_type type, const uint8_t *p, size_t i)
{
    uint16_t h;

    switch (type) {
    case TENSOR_B1:
        return p[i] ? 1 : 0;
    case TENSOR_U1:
        return p[i];
    case TENSOR_I1:
        ELEMENT(int8_t);
    case TENSOR_U2:
        ELEMENT(uint16_t);
    case TENSOR_I2:
        ELEMENT(int16_t);
    case TENSOR_U4:
        ELEMENT(uint32_t);
    case TENSOR_I4:
        ELEMENT(int32_t);
    case TENSOR_U8:
        ELEMENT(uint64_t);
    case TENSOR_I8:
        ELEMENT(int64_t);
    case TENSOR_F4:
        ELEMENT(float);
    case TENSOR_F8:
        ELEMENT(double);
    default:
        memcpy(&h, p + 2 * i, sizeof h);
        return half(h);
    }
}

enum status tensor_floats_from(struct tensor_floats *out, const struct tensor *t)
{
    size_t n = count(t), i;

    if (n > out->cap)
        return FAIL(ST_PROTO, "an array of %zu numbers, expected at most %zu", n, out->cap);
    out->n_dim = t->n_dim;
    memcpy(out->shape, t->shape, sizeof out->shape);
    for (i = 0; i < n; i++)
        out->v[i] = element(t->type, t->data, i);
    out->n = n;
    return ST_OK;
}
