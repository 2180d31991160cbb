#include "common/wire/stateproto.h"

#include "common/wire/proto_priv.h"

#include <string.h>

_Static_assert(sizeof(struct state_row) == 8, "rows are sent as they stand in memory");

static bool has_name(unsigned type)
{
    return type == MSG_SET || type == MSG_GET;
}

static bool has_content(unsigned type)
{
    return type == MSG_SAVED || type == MSG_LOAD || type == MSG_SET || type == MSG_VALUES;
}

enum status state_name(struct msg *m, const char *field, const char *element)
{
    if (strlen(field) >= STATE_FIELD_MAX || strlen(element) >= STATE_ELEMENT_MAX)
        return FAIL(ST_INVAL, "field '%.80s', element '%.80s': one of these names is too long",
                    field, element);
    TRY(msg_str(m, field));
    return msg_str(m, element);
}

enum status state_ask(struct msg **out, enum msg_type type, uint64_t seq, const uint32_t *env,
                      int n, const char *field, const char *element)
{
    struct msg *m;
    uint8_t *rows;

    TRY(rows_begin(&m, type, seq, n, sizeof *env, &rows));
    memcpy(rows, env, (size_t)n * sizeof *env);
    return finish(field ? state_name(m, field, element) : ST_OK, m, out);
}

enum status state_begin_rows(struct msg **out, enum msg_type type, uint64_t seq,
                             const uint32_t *env, int n, size_t bytes, uint8_t **rows)
{
    size_t stride = sizeof(struct state_row) + bytes;
    int i;

    if (n > 0 && stride > (STATE_BYTES_MAX - 1024) / (size_t)n)
        return FAIL(ST_INVAL, "%d envs of %zu bytes do not fit into one message: %zu at a time", n,
                    bytes, (STATE_BYTES_MAX - 1024) / stride);
    TRY(rows_begin(out, type, seq, n, stride, rows));
    for (i = 0; i < n; i++)
        ((struct state_row *)(*rows + (size_t)i * stride))->env = env[i];
    return ST_OK;
}

enum status state_read_rows(const struct msg *m, struct state_rows *out)
{
    static const char *const names[] = {"SAVE", "SAVED", "LOAD", "SET", "GET", "VALUES"};
    struct reader r = reader_make(m);
    const char *name;

    if (m->type < MSG_SAVE || m->type > MSG_VALUES)
        return FAIL(ST_PROTO, "a message of type %u is not about states or fields", m->type);
    name = names[m->type - MSG_SAVE];
    out->field[0] = out->element[0] = '\0';
    TRY(rows_read(&r, name, &out->seq, &out->rows, &out->n, &out->stride));
    if (has_name(m->type)) {
        read_str(&r, out->field, sizeof out->field);
        read_str(&r, out->element, sizeof out->element);
    }
    TRY(reader_end(&r, true, name));
    if (has_content(m->type) ? out->stride <= sizeof(struct state_row) || out->stride % 8 != 0
                             : out->stride != sizeof(uint32_t))
        return FAIL(ST_PROTO, "%s: rows of %zu bytes", name, out->stride);
    make_printable(out->field);
    make_printable(out->element);
    return ST_OK;
}

enum status executed_write(struct msg **out, uint64_t seq)
{
    struct msg *m;

    TRY(msg_new(&m, MSG_EXECUTED, sizeof seq));
    return finish(msg_u64(m, seq), m, out);
}

enum status executed_read(const struct msg *m, uint64_t *seq)
{
    struct reader r = reader_make(m);

    TRY(expect(m, MSG_EXECUTED, "EXECUTED"));
    *seq = read_u64(&r);
    return reader_end(&r, true, "EXECUTED");
}
