#include "common/wire/control.h"

#include "common/wire/proto_priv.h"

#include <string.h>

enum status ping_write(struct msg **out, enum msg_type type, uint64_t number)
{
    struct msg *m;

    TRY(msg_new(&m, (uint16_t)type, sizeof number));
    return finish(msg_u64(m, number), m, out);
}

enum status ping_read(const struct msg *m, enum msg_type type, uint64_t *number)
{
    struct reader r = reader_make(m);
    uint64_t n;

    TRY(expect(m, type, type == MSG_PING ? "PING" : "PONG"));
    n = read_u64(&r);
    TRY(reader_end(&r, true, "PING"));
    *number = n;
    return ST_OK;
}

enum status bye_write(struct msg **out, const struct bye *b)
{
    struct msg *m;
    enum status st;

    TRY(msg_new(&m, MSG_BYE, sizeof *b));
    st = msg_u64(m, b->seq);
    if (st == ST_OK)
        st = msg_str(m, b->why);
    return finish(st, m, out);
}

enum status bye_read(const struct msg *m, struct bye *out)
{
    struct reader r = reader_make(m);
    struct bye b = {0};

    TRY(expect(m, MSG_BYE, "BYE"));
    if (m->len > 0) {
        b.seq = read_u64(&r);
        read_str(&r, b.why, sizeof b.why);
        TRY(reader_end(&r, true, "BYE"));
        make_printable(b.why);
    }
    *out = b;
    return ST_OK;
}

enum status challenge_write(struct msg **out, const uint8_t nonce[NONCE_BYTES])
{
    struct msg *m;

    TRY(msg_new(&m, MSG_CHALLENGE, NONCE_BYTES));
    return finish(msg_bytes(m, nonce, NONCE_BYTES), m, out);
}

enum status challenge_read(const struct msg *m, uint8_t nonce[NONCE_BYTES])
{
    struct reader r = reader_make(m);
    const void *p;

    TRY(expect(m, MSG_CHALLENGE, "CHALLENGE"));
    p = read_bytes(&r, NONCE_BYTES, 1);
    TRY(reader_end(&r, true, "CHALLENGE"));
    memcpy(nonce, p, NONCE_BYTES);
    return ST_OK;
}

enum status proof_write(struct msg **out, const struct proof *p)
{
    struct msg *m;

    TRY(msg_new(&m, MSG_PROOF, sizeof *p));
    return finish(msg_bytes(m, p, sizeof *p), m, out);
}

enum status proof_read(const struct msg *m, struct proof *out)
{
    struct reader r = reader_make(m);
    const void *p;

    TRY(expect(m, MSG_PROOF, "PROOF"));
    p = read_bytes(&r, sizeof *out, 1);
    TRY(reader_end(&r, true, "PROOF"));
    memcpy(out, p, sizeof *out);
    return ST_OK;
}
