// proto_priv.h - what the protocols' writers and readers share.
#ifndef COMMON_WIRE_PROTO_PRIV_H
#define COMMON_WIRE_PROTO_PRIV_H

#include "common/wire/msg.h"

#include <string.h>

static inline enum status expect(const struct msg *m, enum msg_type type, const char *what)
{
    if (m->type != type)
        return FAIL(ST_PROTO, "%s expected, got a message of type %u", what, m->type);
    return ST_OK;
}

static inline enum status in_range(const char *what, int64_t n, int64_t low, int64_t high)
{
    if (n < low || n > high)
        return FAIL(ST_PROTO, "%s is %lld, expected %lld to %lld", what, (long long)n,
                    (long long)low, (long long)high);
    return ST_OK;
}

// Hand a finished message over, or free the failed one.
static inline enum status finish(enum status st, struct msg *m, struct msg **out)
{
    if (st == ST_OK)
        *out = m;
    else
        msg_free(m);
    return st;
}

// A whole array without a branch, so that the loop is vectorised.
static inline bool floats_finite(const float *p, size_t n)
{
    uint32_t bad = 0, x;

    for (size_t i = 0; i < n; i++) {
        memcpy(&x, p + i, sizeof x);
        bad |= (x & 0x7f800000u) == 0x7f800000u;
    }
    return bad == 0;
}

// An array of finite numbers in place; after the first fault `*what` names the array.
static inline const float *read_floats(struct reader *r, uint64_t n, const char *name,
                                       const char **what)
{
    const float *p = read_bytes(r, n, sizeof *p);

    if (p && !*what && !floats_finite(p, n))
        *what = name;
    return p;
}

// Texts of a peer are shown to people: no control characters.
static inline void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

#endif
