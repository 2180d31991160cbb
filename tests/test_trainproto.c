#include "common/wire/trainproto.h"

#include "tests/wire_samples.h"

static struct msg *join_msg(struct join j)
{
    struct msg *m = NULL;

    assert_ok(join_write(&m, &j));
    return m;
}

static void a_join_comes_back(void **state)
{
    struct join in = sample_join(), out;
    struct msg *m = join_msg(in);

    (void)state;
    memset(&out, 0xff, sizeof out);
    assert_int_equal(m->type, MSG_JOIN);
    assert_ok(join_read(m, &out));
    assert_int_equal(out.n_env, in.n_env);
    assert_int_equal(out.env_first, in.env_first);
    assert_int_equal(out.seed, in.seed);
    assert_int_equal(out.horizon, in.horizon);
    assert_int_equal(out.n_obs, in.n_obs);
    assert_int_equal(out.n_act, in.n_act);
    assert_string_equal(out.task, in.task);
    assert_string_equal(out.picture, in.picture);
    assert_string_equal(out.instruction, in.instruction);
    assert_int_equal(out.chunk, in.chunk);
    assert_int_equal(out.n_view, 1);
    assert_int_equal(join_picture_bytes(&out), SAMPLE_PICTURE);
    assert_only_whole(m, join_read(&part, &out));
    msg_free(m);
}

static void bad_joins_are_named(void **state)
{
    struct join out, j;
    struct msg *m;

#define REFUSED(change, part_)                             \
    do {                                                   \
        j = sample_join();                                 \
        change;                                            \
        m = join_msg(j);                                   \
        assert_fails(join_read(m, &out), ST_PROTO, part_); \
        msg_free(m);                                       \
    } while (0)
    (void)state;
    REFUSED(j.version = 1, "version 1 of the training protocol, expected 5");
    REFUSED(j.n_env = 0, "n_env is 0, expected 1 to 65536");
    REFUSED(j.n_env = UINT32_MAX, "n_env");
    REFUSED(j.env_first = UINT32_MAX - 7, "env_first");
    REFUSED(j.horizon = 0, "horizon");
    REFUSED(j.horizon = TRAIN_STEPS_MAX + 1, "horizon");
    REFUSED(j.n_obs = 0, "n_obs");
    REFUSED(j.n_obs = SPEC_OBS_MAX + 1, "n_obs");
    REFUSED(j.n_act = 0, "n_act");
    REFUSED(j.n_act = SPEC_ACT_MAX + 1, "n_act");
    REFUSED(j.chunk = SPEC_CHUNK_MAX + 1, "chunk is 257, expected 0 to 256");
    REFUSED(j.n_view = 0, "n_view is 0, expected 1 to 16");
    REFUSED(j.n_view = 17, "n_view is 17");
    REFUSED(j.width = 0, "width is 0, expected 1 to 4096");
    REFUSED(j.height = UINT32_MAX, "height");
    REFUSED(j.picture[0] = '\0', "a picture of 4 by 2 without a name");
#undef REFUSED
}

static void weights_come_back_in_place(void **state)
{
    struct msg *m = sample_weights();
    struct weights_head h;
    const void *blob;

    (void)state;
    assert_ok(weights_read(m, &h, &blob));
    assert_int_equal(h.version, 3);
    assert_int_equal(h.admit, 4096);
    assert_int_equal(h.blob_bytes, 7);
    assert_int_equal(h.want_state, 0);
    assert_int_equal((uintptr_t)blob % 8, 0);
    assert_memory_equal(blob, "\1\2\3\4\5\6\7", 7);
    assert_only_whole(m, weights_read(&part, &h, &blob));
    ((struct weights_head *)m->data)->blob_bytes = UINT32_MAX;
    assert_fails(weights_read(m, &h, &blob), ST_PROTO, "too short");
    ((struct weights_head *)m->data)->want_state = 2;
    assert_fails(weights_read(m, &h, &blob), ST_PROTO, "want_state is 2");
    msg_free(m);
    m = sample_weights();
    ((struct weights_head *)m->data)->n_env = SPEC_ENV_MAX + 1;
    assert_fails(weights_read(m, &h, &blob), ST_PROTO, "n_env is 65537");
    ((struct weights_head *)m->data)->n_env = 8;
    ((struct weights_head *)m->data)->group_size = 9;
    assert_fails(weights_read(m, &h, &blob), ST_PROTO, "group_size is 9, expected 0 to 8");
    msg_free(m);
    h = (struct weights_head){.want_state = 1};
    assert_ok(weights_write(&m, &h, NULL)); // no parameters
    assert_ok(weights_read(m, &h, &blob));
    assert_int_equal(h.want_state, 1);
    msg_free(m);
}

// A whole STATE as its readers take it.
static enum status read_state(const struct msg *m)
{
    uint32_t env_first, n_env;
    struct episode_state s;
    struct reader r;

    TRY(state_read(m, SAMPLE_ACT, &r, &env_first, &n_env));
    for (uint32_t i = 0; i < n_env; i++)
        TRY(state_next(&r, SAMPLE_ACT, &s));
    return reader_end(&r, true, "STATE");
}

static void a_state_comes_back_in_place(void **state)
{
    struct msg *m = sample_state();
    uint32_t env_first, n_env;
    struct episode_state s;
    struct reader r;

    (void)state;
    assert_ok(state_read(m, SAMPLE_ACT, &r, &env_first, &n_env));
    assert_int_equal(env_first, 16);
    assert_int_equal(n_env, 2);
    assert_ok(state_next(&r, SAMPLE_ACT, &s));
    assert_int_equal(s.episode, 7);
    assert_int_equal(s.elapsed, 3);
    assert_true(s.action[0] == 0.1f && s.action[5] == 0.6f);
    assert_ok(state_next(&r, SAMPLE_ACT, &s));
    assert_int_equal(s.episode, 8);
    assert_int_equal(s.elapsed, 0);
    assert_ok(reader_end(&r, true, "STATE"));
    assert_only_whole(m, read_state(&part));
    assert_fails(state_read(m, 3, &r, &env_first, &n_env), ST_PROTO, "n_act is 2, expected 3");
    msg_free(m);
}

static void odd_actions_keep_the_next_episode_aligned(void **state)
{
    static const float action[3] = {1, 2, 3};
    struct episode_state s = {.episode = 1, .elapsed = 3, .action = action};
    uint32_t env_first, n_env;
    struct msg *m = NULL;
    struct reader r;

    (void)state;
    assert_ok(state_begin(&m, 0, 3, 1));
    for (int i = 0; i < 3; i++)
        assert_ok(state_add(m, &s, 1));
    assert_int_equal(m->len % 8, 0);
    assert_ok(state_read(m, 1, &r, &env_first, &n_env));
    for (int i = 0; i < 3; i++) {
        assert_int_equal((uintptr_t)r.p % 8, 0);
        assert_ok(state_next(&r, 1, &s));
        assert_memory_equal(s.action, action, sizeof action);
    }
    assert_ok(reader_end(&r, true, "STATE"));
    msg_free(m);
}

static void bad_states_are_named(void **state)
{
    struct msg *m;

#define REFUSED(at, value, part_)                     \
    do {                                              \
        uint32_t v_ = (value);                        \
        m = sample_state();                           \
        memcpy(m->data + (at), &v_, sizeof v_);       \
        assert_fails(read_state(m), ST_PROTO, part_); \
        msg_free(m);                                  \
    } while (0)
    (void)state;
    REFUSED(0, UINT32_MAX, "env_first");
    REFUSED(4, 0, "n_env is 0");
    REFUSED(4, 1, "too many");
    REFUSED(4, 3, "too short");
    REFUSED(4, UINT32_MAX, "n_env");
    REFUSED(8, 1, "n_act is 1");
    REFUSED(24, UINT32_MAX, "too short");  // elapsed of the first env
    REFUSED(32, 0x7fc00000, "not finite"); // its first number
    REFUSED(32 + 5 * 4, 0xff800000, "not finite");
#undef REFUSED
}

static struct msg *chunk_msg(const struct chunk *c)
{
    struct msg *m = NULL;

    assert_ok(chunk_write(&m, c));
    return m;
}

static enum status read_into(const struct msg *m, struct chunk *out)
{
    const struct join j = sample_join();

    return chunk_read(m, &j, SAMPLE_LEAD, out);
}

static enum status read_sample(const struct msg *m)
{
    struct chunk out;

    return read_into(m, &out);
}

static void a_chunk_comes_back_in_place(void **state)
{
    struct chunk in = sample_chunk(), out;
    struct msg *m = chunk_msg(&in);
    struct join j;

    (void)state;
    assert_ok(read_into(m, &out));
    assert_memory_equal(&out.head, &in.head, sizeof in.head);
#define SAME(field, n)                                                     \
    do {                                                                   \
        assert_int_equal((uintptr_t)out.field % sizeof *out.field, 0);     \
        assert_memory_equal(out.field, in.field, (n) * sizeof *out.field); \
    } while (0)
    SAME(obs, SAMPLE_STEPS * SAMPLE_OBS);
    SAME(last_obs, SAMPLE_OBS);
    SAME(final_obs, 2 * SAMPLE_OBS);
    SAME(action, SAMPLE_STEPS * SAMPLE_ACT);
    SAME(logp, SAMPLE_STEPS);
    SAME(reward, SAMPLE_STEPS);
    SAME(flags, SAMPLE_STEPS);
    SAME(version, SAMPLE_STEPS);
    SAME(episode_return, 3);
    SAME(episode_length, 3);
    SAME(pictures, (size_t)(SAMPLE_LEAD + SAMPLE_STEPS + 1) * SAMPLE_PICTURE);
    SAME(final_pictures, (size_t)2 * SAMPLE_PICTURE);
#undef SAME
    assert_only_whole(m, read_sample(&part));
    j = sample_join();
    j.n_obs++;
    assert_fails(chunk_read(m, &j, SAMPLE_LEAD, &out), ST_PROTO, "n_obs is 5, expected 6");
    j = sample_join();
    j.n_act = 1;
    assert_fails(chunk_read(m, &j, SAMPLE_LEAD, &out), ST_PROTO, "n_act is 2, expected 1 to 1");
    j = sample_join();
    j.height = 3;
    assert_fails(chunk_read(m, &j, SAMPLE_LEAD, &out), ST_PROTO,
                 "picture_bytes is 24, expected 36");
    j = sample_join();
    assert_fails(chunk_read(m, &j, SAMPLE_LEAD + 1, &out), ST_PROTO, "n_lead is 2, expected 3");
    msg_free(m);
}

static void one_step_without_ends_is_a_chunk(void **state)
{
    struct chunk in = sample_chunk(), out;
    struct msg *m;

    (void)state;
    in.head.n_step = 1;
    in.head.n_truncated = in.head.n_episode = 0;
    in.final_obs = in.episode_return = in.episode_length = NULL;
    m = chunk_msg(&in); // two lead pictures, the step's, the last
    assert_ok(read_into(m, &out));
    assert_int_equal(out.head.n_step, 1);
    assert_true(out.obs[SAMPLE_OBS - 1] == SAMPLE_OBS - 1);
    msg_free(m);
}

static void bad_heads_are_named(void **state)
{
    struct msg *m;

#define REFUSED(change, part_)                         \
    do {                                               \
        struct chunk c_ = sample_chunk();              \
        struct chunk_head *h;                          \
        m = chunk_msg(&c_);                            \
        h = (struct chunk_head *)m->data;              \
        change;                                        \
        assert_fails(read_sample(m), ST_PROTO, part_); \
        msg_free(m);                                   \
    } while (0)
    (void)state;
    REFUSED(h->n_step = 0, "n_step is 0");
    REFUSED(h->n_step = TRAIN_STEPS_MAX + 1, "n_step");
    REFUSED(h->n_step = TRAIN_STEPS_MAX, "too short");
    REFUSED(h->n_step--, "too many");
    REFUSED(h->n_obs = UINT32_MAX, "n_obs");
    REFUSED(h->n_obs = SPEC_OBS_MAX, "n_obs");
    REFUSED(h->n_act = 0, "n_act");
    REFUSED(h->n_act = 3, "n_act is 3");
    REFUSED(h->n_truncated = SAMPLE_STEPS + 1, "n_truncated");
    REFUSED(h->n_episode = UINT32_MAX, "n_episode");
    REFUSED(h->picture_bytes = UINT32_MAX, "picture_bytes");
    REFUSED(h->picture_bytes = 0, "n_lead is 2, expected 0");
    REFUSED(h->picture_bytes++, "picture_bytes is 25, expected 24");
    REFUSED(h->n_lead = UINT32_MAX, "n_lead");
    REFUSED(h->n_lead = 3, "n_lead is 3, expected 2");
    REFUSED(h->version_min = 7, "versions from 7 to 6");
    REFUSED(h->version_min = 5, "step 0 has version 4, expected 5 to 6");
    REFUSED(h->version_max = 5, "step 5 has version 6, expected 4 to 5");
#undef REFUSED
}

static void bad_arrays_are_named(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)state;
#define REFUSED(field, at, value, part_)                                             \
    do {                                                                             \
        struct chunk c = sample_chunk(), view;                                       \
        struct msg *m = chunk_msg(&c);                                               \
        assert_ok(read_into(m, &view));                                              \
        memcpy(m->data + ((const uint8_t *)(view.field + (at)) - m->data), &(value), \
               sizeof(value));                                                       \
        assert_fails(read_sample(m), ST_PROTO, part_);                               \
        msg_free(m);                                                                 \
    } while (0)
    for (int i = 0; i < 3; i++) {
        REFUSED(obs, SAMPLE_STEPS * SAMPLE_OBS - 1, bad[i], "obs holds a number that is not");
        REFUSED(last_obs, 0, bad[i], "last_obs holds");
        REFUSED(final_obs, 2 * SAMPLE_OBS - 1, bad[i], "final_obs holds");
        REFUSED(action, 0, bad[i], "action holds");
        REFUSED(logp, SAMPLE_STEPS - 1, bad[i], "logp holds");
        REFUSED(reward, 2, bad[i], "reward holds");
        REFUSED(episode_return, 2, bad[i], "episode_return holds");
        REFUSED(episode_length, 0, bad[i], "episode_length holds");
    }
    {
        uint32_t unknown = 16, truncated = CHUNK_TRUNCATED, none = 0;

        REFUSED(flags, 0, unknown, "unknown step flags 0x10");
        REFUSED(flags, 0, truncated, "n_truncated is 2, but 3 steps are truncated");
        REFUSED(flags, 1, none, "n_truncated is 2, but 1 steps are truncated");
    }
#undef REFUSED
}

static void a_writer_refuses_what_no_reader_takes(void **state)
{
    struct chunk c = sample_chunk();
    struct msg *m = NULL;

    (void)state;
    c.head.n_step = 0;
    assert_fails(chunk_write(&m, &c), ST_INVAL, "n_step");
    c = sample_chunk();
    c.head.n_truncated = 7;
    assert_fails(chunk_write(&m, &c), ST_INVAL, "n_truncated");
    c = sample_chunk();
    c.head.n_step = TRAIN_STEPS_MAX; // far above the longest message
    c.head.n_obs = SPEC_OBS_MAX;
    assert_fails(chunk_write(&m, &c), ST_NOMEM, "longer than");
    assert_null(m);
}

static void writers_survive_without_memory(void **state)
{
    struct join j = sample_join();
    struct chunk c = sample_chunk();
    struct weights_head h = {.blob_bytes = 3};

    (void)state;
    for (int which = 0; which < 3; which++) {
        struct msg *m = NULL;
        int64_t n = 0;

        for (;; n++) {
            enum status st;

            msg_drain();
            mem_fail_after(n);
            st = which == 0   ? join_write(&m, &j)
                 : which == 1 ? weights_write(&m, &h, "abc")
                              : chunk_write(&m, &c);
            mem_fail_after(-1);
            if (st == ST_OK)
                break;
            assert_int_equal(st, ST_NOMEM);
            assert_null(m);
        }
        assert_int_equal(n, 2); // the size is known: one message, never grown
        msg_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(a_join_comes_back),
        wire_test(bad_joins_are_named),
        wire_test(weights_come_back_in_place),
        wire_test(a_state_comes_back_in_place),
        wire_test(odd_actions_keep_the_next_episode_aligned),
        wire_test(bad_states_are_named),
        wire_test(a_chunk_comes_back_in_place),
        wire_test(one_step_without_ends_is_a_chunk),
        wire_test(bad_heads_are_named),
        wire_test(bad_arrays_are_named),
        wire_test(a_writer_refuses_what_no_reader_takes),
        wire_test(writers_survive_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
