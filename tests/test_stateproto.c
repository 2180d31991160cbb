// SAVE, SAVED, LOAD, SET, GET, VALUES and EXECUTED: they come back whole or not at all.
#include "tests/wire_samples.h"

static void questions_come_back_in_place(void **state)
{
    struct state_rows q;
    struct msg *m = sample_states(MSG_SAVE);
    uint32_t env;

    (void)state;
    assert_only_whole(m, state_read_rows(&part, &q));
    assert_ok(state_read_rows(m, &q));
    assert_int_equal(q.seq, 8);
    assert_int_equal(q.n, 2);
    assert_int_equal(q.stride, 4);
    memcpy(&env, q.rows + 4, sizeof env);
    assert_int_equal(env, 63);
    assert_string_equal(q.field, "");
    msg_free(m);

    m = sample_states(MSG_GET);
    assert_only_whole(m, state_read_rows(&part, &q));
    assert_ok(state_read_rows(m, &q));
    assert_string_equal(q.field, "body_mass");
    assert_string_equal(q.element, "torso");
    msg_free(m);
}

// The types that have rows of content differ in nothing else.
static enum status read_as(const struct msg *m, enum msg_type type, struct state_rows *out)
{
    return m->type == type ? state_read_rows(m, out) : ST_PROTO;
}

static void rows_come_back_in_place(void **state)
{
    static const enum msg_type types[] = {MSG_SAVED, MSG_LOAD, MSG_SET, MSG_VALUES};
    struct state_rows q;
    size_t i;

    (void)state;
    for (i = 0; i < 4; i++) {
        struct msg *m = sample_states(types[i]);

        assert_only_whole(m, read_as(&part, types[i], &q));
        assert_ok(state_read_rows(m, &q));
        assert_int_equal(q.n, 2);
        assert_int_equal(q.stride, 24);
        assert_int_equal((uintptr_t)q.rows % 8, 0);
        assert_int_equal(((const struct state_row *)(q.rows + 24))->env, 63);
        assert_true(((const double *)(q.rows + 24 + 8))[1] == 3.5);
        assert_string_equal(q.element, types[i] == MSG_SET ? "torso" : "");
        msg_free(m);
    }
}

static void executed_comes_back(void **state)
{
    struct msg *m;
    uint64_t seq;

    (void)state;
    assert_ok(executed_write(&m, 77));
    assert_only_whole(m, executed_read(&part, &seq));
    assert_ok(executed_read(m, &seq));
    assert_int_equal(seq, 77);
    msg_free(m);
}

// A number of the head: at 8 the rows, at 12 the bytes of a row.
static void check_head(enum msg_type type, size_t at, uint32_t n, const char *text)
{
    struct msg *m = sample_states(type);
    struct state_rows q;

    memcpy(m->data + at, &n, sizeof n);
    assert_fails(state_read_rows(m, &q), ST_PROTO, text);
    msg_free(m);
}

static void bad_rows_are_named(void **state)
{
    char name[STATE_ELEMENT_MAX + 1];
    uint32_t env = 1;
    uint8_t *rows;
    struct msg *m;

    (void)state;
    check_head(MSG_SAVE, 8, 0, "SAVE: 0 rows of 4 bytes");
    check_head(MSG_SAVE, 8, 1, "SAVE has 4 bytes too many");
    check_head(MSG_SAVE, 8, 3, "SAVE is too short");
    check_head(MSG_SAVE, 8, UINT32_MAX, "SAVE is too short");
    check_head(MSG_SAVE, 12, 0, "SAVE: 2 rows of 0 bytes");
    check_head(MSG_SAVE, 12, 8, "SAVE is too short");
    check_head(MSG_LOAD, 12, 20, "LOAD has 8 bytes too many");
    check_head(MSG_VALUES, 12, UINT32_MAX, "VALUES is too short");
    assert_ok(state_ask(&m, MSG_SAVE, 1, &env, 1, NULL, NULL));
    m->type = MSG_LOAD; // rows without content
    assert_fails(state_read_rows(m, &(struct state_rows){0}), ST_PROTO, "LOAD: rows of 4 bytes");
    msg_free(m);
    assert_ok(rows_begin(&m, MSG_SAVED, 1, 1, 8, &rows));
    assert_fails(state_read_rows(m, &(struct state_rows){0}), ST_PROTO, "SAVED: rows of 8 bytes");
    msg_free(m);
    assert_ok(rows_begin(&m, MSG_SAVED, 1, 1, 20, &rows));
    assert_fails(state_read_rows(m, &(struct state_rows){0}), ST_PROTO, "SAVED: rows of 20 bytes");
    msg_free(m);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    m = NULL;
    assert_fails(state_ask(&m, MSG_GET, 1, &env, 1, "f", name), ST_INVAL, "too long");
    assert_fails(state_ask(&m, MSG_GET, 1, &env, 1, name, "e"), ST_INVAL, "too long");
    assert_fails(state_ask(&m, MSG_SAVE, 1, &env, 0, NULL, NULL), ST_INVAL, "0 rows");
    assert_fails(state_begin_rows(&m, MSG_LOAD, 1, &env, 1, STATE_BYTES_MAX, &rows), ST_INVAL,
                 "do not fit into one message: 0 at a time");
    assert_null(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(questions_come_back_in_place),
        wire_test(rows_come_back_in_place),
        wire_test(executed_comes_back),
        wire_test(bad_rows_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
