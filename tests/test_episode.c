#include "common/wire/episode.h"

#include "tests/wire_samples.h"

static struct msg *message(const struct episode *e)
{
    struct msg *m = NULL;

    assert_ok(episode_write(&m, e));
    return m;
}

static enum status read_sample(const struct msg *m)
{
    const struct join j = sample_join();
    struct episode out;

    return episode_read(m, &j, &out);
}

static void an_episode_comes_back_in_place(void **state)
{
    struct episode in = sample_episode(), out;
    struct msg *m = message(&in);
    const struct join j = sample_join();

    (void)state;
    assert_ok(episode_read(m, &j, &out));
    assert_memory_equal(&out.head, &in.head, sizeof in.head);
#define SAME(field, n)                                                     \
    do {                                                                   \
        assert_int_equal((uintptr_t)out.field % sizeof *out.field, 0);     \
        assert_memory_equal(out.field, in.field, (n) * sizeof *out.field); \
    } while (0)
    SAME(version, SAMPLE_DECISIONS);
    SAME(obs, SAMPLE_DECISIONS * SAMPLE_OBS);
    SAME(action, SAMPLE_DECISIONS * SAMPLE_K * SAMPLE_ACT);
    SAME(logp, SAMPLE_DECISIONS * SAMPLE_K);
    SAME(reward, SAMPLE_DECISIONS * SAMPLE_K);
    SAME(latent, SAMPLE_DECISIONS * SAMPLE_LATENT);
    SAME(executed, SAMPLE_DECISIONS);
    SAME(pictures, (size_t)SAMPLE_DECISIONS * SAMPLE_PICTURE);
#undef SAME
    assert_only_whole(m, read_sample(&part));
    msg_free(m);
}

static void an_error_may_have_no_decisions(void **state)
{
    struct episode e = sample_episode();
    struct msg *m = NULL;

    (void)state;
    e.head.n_decision = e.head.n_sub = 0;
    assert_fails(episode_write(&m, &e), ST_INVAL, "n_decision is 0, expected 1 to 65536");
    e.head.flags = EPISODE_ERROR;
    m = message(&e);
    assert_ok(read_sample(m));
    msg_free(m);
}

static void bad_heads_are_named(void **state)
{
    (void)state;
#define REFUSED(change, part_)                                   \
    do {                                                         \
        struct episode e_ = sample_episode();                    \
        struct msg *m = message(&e_);                            \
        struct episode_head *h = (struct episode_head *)m->data; \
        change;                                                  \
        assert_fails(read_sample(m), ST_PROTO, part_);           \
        msg_free(m);                                             \
    } while (0)
    REFUSED(h->flags = 16, "flags is 16");
    REFUSED(h->flags |= EPISODE_FINAL, "too short");
    REFUSED(h->n_decision = 0, "n_decision is 0");
    REFUSED(h->n_decision = UINT32_MAX, "n_decision");
    REFUSED(h->n_decision++, "too short");
    REFUSED(h->n_sub = 2, "n_sub is 2, expected 3 to 12");
    REFUSED(h->n_sub = 8, "n_sub is 8, but 9 actions were executed");
    REFUSED(h->n_obs = 6, "n_obs is 6");
    REFUSED(h->n_act = 1, "n_act is 1");
    REFUSED(h->chunk = 5, "chunk is 5");
    REFUSED(h->chunk = UINT32_MAX, "chunk");
    REFUSED(h->n_view = 2, "n_view is 2, expected 1 to 1");
    REFUSED(h->picture_bytes = 23, "picture_bytes is 23");
    REFUSED(h->n_latent = 256 * 64 + 2, "n_latent is 16386, expected 0 to 16385");
    REFUSED(h->n_latent++, "too short");
    REFUSED(h->unused = 1, "unused is 1");
    REFUSED(h->env = 15, "env 15 is not the worker's");
    REFUSED(h->env = 24, "env 24 is not the worker's");
    REFUSED(h->score = NAN, "score or return is not finite");
    REFUSED(h->episode_return = INFINITY, "score or return is not finite");
    REFUSED(h->version_min = 10, "versions from 10 to 9");
    REFUSED(h->version_max = 8, "decision 2 has version 9, expected 8 to 8");
#undef REFUSED
}

static void bad_arrays_are_named(void **state)
{
    const float nan = NAN;
    const uint32_t none = 0, many = SAMPLE_K + 1;

    (void)state;
#define REFUSED(field, at, value, part_)                                             \
    do {                                                                             \
        const struct join j = sample_join();                                         \
        struct episode e = sample_episode(), view;                                   \
        struct msg *m = message(&e);                                                 \
        assert_ok(episode_read(m, &j, &view));                                       \
        memcpy(m->data + ((const uint8_t *)(view.field + (at)) - m->data), &(value), \
               sizeof(value));                                                       \
        assert_fails(read_sample(m), ST_PROTO, part_);                               \
        msg_free(m);                                                                 \
    } while (0)
    REFUSED(obs, SAMPLE_DECISIONS * SAMPLE_OBS - 1, nan, "obs holds a number that is not");
    REFUSED(action, 0, nan, "action holds");
    REFUSED(logp, SAMPLE_DECISIONS * SAMPLE_K - 1, nan, "logp holds");
    REFUSED(reward, 1, nan, "reward holds");
    REFUSED(latent, 2, nan, "latent holds");
    REFUSED(executed, 1, none, "executed is 0, expected 1 to 4");
    REFUSED(executed, 1, many, "executed is 5");
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(an_episode_comes_back_in_place),
        wire_test(an_error_may_have_no_decisions),
        wire_test(bad_heads_are_named),
        wire_test(bad_arrays_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
