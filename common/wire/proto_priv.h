// proto_priv.h - what the protocols' writers and readers share.
#ifndef COMMON_WIRE_PROTO_PRIV_H
#define COMMON_WIRE_PROTO_PRIV_H

#include "common/wire/msg.h"

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

// Texts of a peer are shown to people: no control characters.
static inline void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

#endif
