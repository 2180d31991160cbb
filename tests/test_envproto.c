#include "common/wire/envproto.h"

#include "tests/wire_samples.h"

static struct msg *hello_msg(struct hello h)
{
    struct msg *m = NULL;

    assert_ok(hello_write(&m, &h));
    return m;
}

static void a_hello_comes_back(void **state)
{
    struct hello in = sample_hello(), out;
    struct msg *m = hello_msg(in);

    (void)state;
    memset(&out, 0xff, sizeof out);
    assert_int_equal(m->type, MSG_HELLO);
    assert_ok(hello_read(m, &out));
    assert_int_equal(out.version, in.version);
    assert_int_equal(out.autoreset, in.autoreset);
    assert_int_equal(out.n_env, in.n_env);
    assert_int_equal(out.k_max, in.k_max);
    assert_int_equal(out.b_max, in.b_max);
    assert_int_equal(out.t_max_ns, in.t_max_ns);
    assert_int_equal(out.b_min, in.b_min);
    assert_int_equal(out.features, in.features);
    assert_int_equal(out.idle_ns, in.idle_ns);
    assert_string_equal(out.name, in.name);
    assert_true(out.listed);
    assert_int_equal(out.n_picture, 1);
    assert_string_equal(out.pictures[0].name, "agentview_image");
    assert_int_equal(out.pictures[0].width, 128);
    assert_int_equal(out.pictures[0].height, 128);
    assert_only_whole(m, hello_read(&part, &out));
    msg_free(m);
}

static void a_hello_may_want_all_pictures_or_none(void **state)
{
    struct hello in = sample_hello(), out;
    struct msg *m;
    uint32_t many = SPEC_PICTURE_MAX + 1;

    (void)state;
    in.listed = false;
    m = hello_msg(in);
    assert_ok(hello_read(m, &out));
    assert_false(out.listed);
    msg_free(m);
    in.listed = true;
    in.n_picture = 0;
    m = hello_msg(in);
    assert_ok(hello_read(m, &out));
    assert_true(out.listed);
    assert_int_equal(out.n_picture, 0);
    memcpy(m->data + m->len - 4, &many, 4);
    assert_fails(hello_read(m, &out), ST_PROTO, "HELLO");
    msg_free(m);
    in.n_picture = many;
    assert_fails(hello_write(&m, &in), ST_INVAL, "17 pictures wanted");
}

// What a client wants against what sample_spec renders: 5 x 3 pixels.
static void pictures_that_are_not_rendered_are_refused(void **state)
{
    struct spec spec = sample_spec();
    struct hello h = sample_hello();
    uint32_t skip = 99;

    (void)state;
    assert_fails(hello_skip(&h, &spec, &skip), ST_INVAL,
                 "picture 'agentview_image' of 128x128 is wanted; this server renders "
                 "agentview_image 5x3 rgb, agentview_depth 5x3 depth");
    h.pictures[0].width = 5;
    h.pictures[0].height = 3;
    assert_ok(hello_skip(&h, &spec, &skip));
    assert_int_equal(skip, 2);
    h.pictures[0].width = h.pictures[0].height = 0;
    assert_ok(hello_skip(&h, &spec, &skip));
    assert_int_equal(skip, 2);
    memcpy(h.pictures[0].name, "agentview_depth", 16);
    assert_ok(hello_skip(&h, &spec, &skip));
    assert_int_equal(skip, 1);
    memcpy(h.pictures[0].name, "agentview", 10);
    assert_fails(hello_skip(&h, &spec, &skip), ST_INVAL, "picture 'agentview' is wanted");
    h.n_picture = 0;
    assert_ok(hello_skip(&h, &spec, &skip));
    assert_int_equal(skip, 3);
    h.listed = false;
    assert_ok(hello_skip(&h, &spec, &skip));
    assert_int_equal(skip, 0);
}

static void bad_hellos_are_named(void **state)
{
    struct hello out, h;
    struct msg *m;

#define REFUSED(change, part_)                              \
    do {                                                    \
        h = sample_hello();                                 \
        change;                                             \
        m = hello_msg(h);                                   \
        assert_fails(hello_read(m, &out), ST_PROTO, part_); \
        msg_free(m);                                        \
    } while (0)
    (void)state;
    REFUSED(h.version = 9, "speaks version 9 of the env protocol, expected 3");
    REFUSED(h.autoreset = 3, "autoreset is 3");
    REFUSED(h.n_env = SPEC_ENV_MAX + 1, "n_env");
    REFUSED(h.k_max = 0, "k_max is 0, expected 1 to 256");
    REFUSED(h.k_max = SPEC_CHUNK_MAX + 1, "k_max");
    REFUSED(h.b_max = UINT32_MAX, "b_max");
    REFUSED(h.t_max_ns = -2, "t_max_ns is -2");
    REFUSED(h.t_max_ns = INT64_MIN, "t_max_ns");
    REFUSED(h.b_min = 9, "b_min is 9, expected 0 to 8");
    REFUSED(h.idle_ns = -1, "idle_ns is -1");
#undef REFUSED
}

static void a_welcome_comes_back(void **state)
{
    struct welcome *in = sample_welcome(), *out = mem_alloc(1, sizeof *out);
    struct msg *m = NULL;

    (void)state;
    assert_ok(welcome_write(&m, in));
    assert_int_equal(m->type, MSG_WELCOME);
    assert_ok(welcome_read(m, out));
    assert_memory_equal(in, out, sizeof *in);
    assert_only_whole(m, welcome_read(&part, out));
    msg_free(m);
    in->n_env = 0;
    assert_fails(welcome_write(&m, in), ST_INVAL, "n_env is 0");
    in->n_env = SPEC_ENV_MAX + 1;
    assert_fails(welcome_write(&m, in), ST_INVAL, "n_env");
    in->n_env = 1;
    in->spec.n_obs = 0;
    assert_fails(welcome_write(&m, in), ST_INVAL, "n_obs");
    mem_free(in);
    mem_free(out);
}

static void a_welcome_to_every_env_fits(void **state)
{
    struct welcome *in = sample_welcome(), *out = mem_alloc(1, sizeof *out);
    struct msg *m = NULL;

    (void)state;
    in->spec.n_env = SPEC_ENV_MAX;
    in->n_env = SPEC_ENV_MAX;
    for (uint32_t i = 0; i < SPEC_ENV_MAX; i++)
        in->env[i] = i;
    assert_ok(welcome_write(&m, in));
    assert_ok(welcome_read(m, out));
    assert_memory_equal(in, out, sizeof *in);
    msg_free(m);
    mem_free(in);
    mem_free(out);
}

static void bad_welcomes_are_named(void **state)
{
    struct welcome *out = mem_alloc(1, sizeof *out), *w;
    struct msg *m;

#define REFUSED(change, part_)                               \
    do {                                                     \
        w = sample_welcome();                                \
        change;                                              \
        assert_ok(welcome_write(&m, w));                     \
        assert_fails(welcome_read(m, out), ST_PROTO, part_); \
        msg_free(m);                                         \
        mem_free(w);                                         \
    } while (0)
    (void)state;
    REFUSED(w->autoreset = 3, "autoreset");
    REFUSED(w->k_max = 0, "k_max");
    REFUSED(w->b_max = 0, "b_max");
    REFUSED(w->b_min = 9, "b_min");
    REFUSED(w->idle_ns = -1, "idle_ns");
    REFUSED(w->t_max_ns = -1, "t_max_ns");
    REFUSED(w->n_env = 65, "n_env is 65, expected 1 to 64");
    REFUSED(w->env[2] = 64, "an env is 64");
    REFUSED(w->env[1] = 0, "env 0 after env 0");
    REFUSED(w->env[0] = 8, "env 7 after env 8");
#undef REFUSED
    mem_free(out);
}

static void resets_come_back_in_place(void **state)
{
    struct msg *m = sample_reset();
    const struct reset_row *rows;
    uint64_t seq = 0;
    int n = 0;

    (void)state;
    assert_ok(reset_read(m, &seq, &rows, &n));
    assert_int_equal(seq, 4);
    assert_int_equal(n, 2);
    assert_int_equal((uintptr_t)rows % 8, 0);
    assert_int_equal(rows[0].env, 7);
    assert_int_equal(rows[0].episode, 3);
    assert_true(rows[1].seed == ~0ull);
    assert_only_whole(m, reset_read(&part, &seq, &rows, &n));
    m->data[12] = 31; // bytes of a row
    assert_fails(reset_read(m, &seq, &rows, &n), ST_PROTO, "2 rows of 31 bytes");
    m->data[12] = 32;
    memset(m->data + 8, 0xff, 4); // count
    assert_int_equal(reset_read(m, &seq, &rows, &n), ST_PROTO);
    memset(m->data + 8, 0, 4);
    m->len = 16;
    assert_fails(reset_read(m, &seq, &rows, &n), ST_PROTO, "0 rows");
    msg_free(m);
    assert_fails(reset_write(&m, 1, rows, 0), ST_INVAL, "0 rows");
    assert_fails(reset_write(&m, 1, rows, -1), ST_INVAL, "-1 rows");
    assert_fails(reset_write(&m, 1, rows, SPEC_ENV_MAX + 1), ST_INVAL, "rows");
}

static void steps_come_back_in_place(void **state)
{
    struct msg *m = sample_step();
    size_t stride = step_stride(SAMPLE_K, SAMPLE_ACT);
    const uint8_t *rows;
    uint64_t seq = 0;
    int n = 0;

    (void)state;
    assert_int_equal(stride, 8 + 4 * SAMPLE_K * SAMPLE_ACT);
    assert_ok(step_read(m, SAMPLE_K, SAMPLE_ACT, &seq, &rows, &n));
    assert_int_equal(seq, 9);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        const struct step_row *row = (const void *)(rows + (size_t)i * stride);
        const float *action = (const void *)(row + 1);

        assert_int_equal((uintptr_t)row % 4, 0);
        assert_int_equal(row->env, 10 + i);
        assert_int_equal(row->n_sub, 1 + i);
        assert_true(action[0] == 0.5f * (float)i);
        for (int k = 1; k < SAMPLE_K * SAMPLE_ACT; k++)
            assert_true(action[k] == 0);
    }
    assert_only_whole(m, step_read(&part, SAMPLE_K, SAMPLE_ACT, &seq, &rows, &n));
    assert_int_equal(step_read(m, SAMPLE_K + 1, SAMPLE_ACT, &seq, &rows, &n), ST_PROTO);
    assert_int_equal(step_read(m, SAMPLE_K, SAMPLE_ACT - 1, &seq, &rows, &n), ST_PROTO);
    assert_fails(step_read(m, SAMPLE_K / 2, SAMPLE_ACT * 2, &seq, &rows, &n), ST_PROTO,
                 "env 12 has 3 actions, expected 1 to 2");
    ((struct step_row *)(m->data + 16))->n_sub = 0;
    assert_fails(step_read(m, SAMPLE_K, SAMPLE_ACT, &seq, &rows, &n), ST_PROTO,
                 "env 10 has 0 actions");
    msg_free(m);
    assert_fails(step_begin(&m, 1, 0, 1, 1, NULL), ST_INVAL, "0 rows");
}

static void errors_come_back(void **state)
{
    struct proto_error e, in = {.code = 0};
    struct msg *m = sample_error();

    (void)state;
    assert_ok(proto_error_read(m, &e));
    assert_int_equal(e.code, ST_PROTO);
    assert_int_equal(e.env, 12);
    assert_int_equal(e.seq, 3);
    assert_string_equal(e.text, "action 1 is NaN");
    assert_only_whole(m, proto_error_read(&part, &e));
    msg_free(m);
    assert_ok(proto_error_write(&m, &in));
    assert_fails(proto_error_read(m, &e), ST_PROTO, "code is 0");
    msg_free(m);
    in.code = ST_INVAL;
    memset(in.text, 'x', sizeof in.text - 1);
    in.text[3] = '\x1b';
    assert_ok(proto_error_write(&m, &in));
    assert_ok(proto_error_read(m, &e));
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    assert_int_equal(e.text[3], '?'); // a terminal is safe from it
    msg_free(m);
}

static enum status read_batch(const struct msg *m, enum autoreset autoreset)
{
    struct row_layout l = sample_layout(autoreset);
    const struct batch_head *head;
    const uint8_t *rows;

    return batch_read(m, &l, &head, &rows);
}

static void batches_are_read_in_place(void **state)
{
    (void)state;
    for (int mode = 0; mode <= AUTORESET_DISABLED; mode++) {
        struct row_layout l = sample_layout((enum autoreset)mode);
        struct msg *m = sample_batch((enum autoreset)mode, 4);
        const struct batch_head *head;
        const uint8_t *rows;

        assert_ok(batch_read(m, &l, &head, &rows));
        assert_int_equal(head->seq, 5);
        assert_int_equal(head->n, 4);
        assert_int_equal((uintptr_t)rows % 8, 0);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(((const struct row_head *)(rows + i * l.stride))->env, i);
            assert_true(((const double *)(rows + i * l.stride + l.obs))[1] == i + 0.1);
        }
        assert_only_whole(m, read_batch(&part, (enum autoreset)mode));
        msg_free(m);
    }
}

static void bad_batches_are_named(void **state)
{
    enum autoreset mode;
    struct row_layout l;
    struct msg *m;

#define HEAD             ((struct batch_head *)m->data)
#define ROW(i)           (m->data + sizeof(struct batch_head) + (i)*l.stride)
#define ROW_HEAD(i)      ((struct row_head *)ROW(i))
#define NUMBER(i, at, k) (((double *)(ROW(i) + (at)))[k])
#define REFUSED(change, part_)                              \
    do {                                                    \
        l = sample_layout(mode);                            \
        m = sample_batch(mode, 4);                          \
        change;                                             \
        assert_fails(read_batch(m, mode), ST_PROTO, part_); \
        msg_free(m);                                        \
    } while (0)
    (void)state;
    for (mode = 0; mode <= AUTORESET_DISABLED; mode++) {
        REFUSED(HEAD->n = 0, "rows is 0");
        REFUSED(HEAD->n = UINT32_MAX, "rows is 4294967295");
        REFUSED(HEAD->n = 5, "too short");
        REFUSED(HEAD->n = 3, "too many");
        REFUSED(HEAD->why = BATCHER_WAIT, "why is 0");
        REFUSED(HEAD->why = BATCHER_WHYS, "why is 5");
        REFUSED(HEAD->in_flight = UINT32_MAX, "in_flight");
        REFUSED(HEAD->stride = 0, "stride is 0");
        REFUSED(HEAD->stride += 8, "stride");
        REFUSED(ROW_HEAD(2)->flags |= 64, "env 2 has flags");
        REFUSED(ROW_HEAD(1)->n_sub = SAMPLE_K + 1, "5 actions");
        REFUSED(ROW_HEAD(3)->error = ROW_ERROR_LAST + 1, "and error");
        REFUSED(ROW_HEAD(3)->episode_return = NAN, "env 3 has a number that is not finite");
        REFUSED(NUMBER(0, l.reward, 2) = -INFINITY, "env 0 has a number");
        REFUSED(NUMBER(2, l.obs, SAMPLE_OBS - 1) = NAN, "env 2 has a number");
    }
    mode = AUTORESET_SAME_STEP;
    REFUSED(NUMBER(2, l.final_obs, 0) = INFINITY, "env 2 has a number");
    mode = AUTORESET_NEXT_STEP;
    REFUSED(ROW_HEAD(2)->flags |= ROW_HAS_FINAL, "env 2 has flags");
    // numbers that nobody reads may be anything; a reset's info is NaN where it gives none
    mode = AUTORESET_SAME_STEP;
    l = sample_layout(mode);
    m = sample_batch(mode, 4);
    NUMBER(0, l.reward, 3) = NAN;
    NUMBER(1, l.info, 0) = NAN;
    NUMBER(0, l.final_obs, 0) = NAN;
    assert_ok(read_batch(m, mode));
    msg_free(m);
#undef REFUSED
}

static void writers_survive_without_memory(void **state)
{
    static const struct reset_row row;
    struct welcome *w = sample_welcome();
    struct hello h = sample_hello();
    struct proto_error e = {.code = ST_IO, .text = "x"};

    (void)state;
    for (int which = 0; which < 5; which++) {
        struct msg *m = NULL;
        int64_t n = 0;

        for (;; n++) {
            enum status st;
            uint8_t *rows;

            msg_drain();
            mem_fail_after(n);
            st = which == 0   ? hello_write(&m, &h)
                 : which == 1 ? welcome_write(&m, w)
                 : which == 2 ? reset_write(&m, 1, &row, 1)
                 : which == 3 ? step_begin(&m, 1, 1, 1, 1, &rows)
                              : proto_error_write(&m, &e);
            mem_fail_after(-1);
            if (st == ST_OK)
                break;
            assert_int_equal(st, ST_NOMEM);
            assert_null(m);
        }
        assert_true(n >= 2);
        msg_free(m);
    }
    mem_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(a_hello_comes_back),
        wire_test(a_hello_may_want_all_pictures_or_none),
        wire_test(pictures_that_are_not_rendered_are_refused),
        wire_test(bad_hellos_are_named),
        wire_test(a_welcome_comes_back),
        wire_test(a_welcome_to_every_env_fits),
        wire_test(bad_welcomes_are_named),
        wire_test(resets_come_back_in_place),
        wire_test(steps_come_back_in_place),
        wire_test(errors_come_back),
        wire_test(batches_are_read_in_place),
        wire_test(bad_batches_are_named),
        wire_test(writers_survive_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
