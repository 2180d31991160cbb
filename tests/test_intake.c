// A counting env server that comes and goes faster than the consumer looks.
#include "tests/testing.h"

#include "rollout/intake.h"
#include "tests/fake_server.h"

static void expect(struct intake *in, enum event_kind kind, struct event **out)
{
    assert_ok(intake_next(in, out, ENOUGH));
    assert_int_equal((*out)->kind, kind);
    assert_int_equal((*out)->source, 0);
}

static uint64_t session(struct intake *in)
{
    return envclient_welcome(intake_source(in, 0))->session;
}

// Start an intake at a server that drops its first `vanish` clients, when it has welcomed the one
// after them.
static struct intake *flap(struct fake_server *server, sem_t *welcome, int vanish)
{
    static const atomic_bool never;
    struct intake_config cfg = {
        .env_urls = "inproc://test-intake",
        .connect_wait_ns = ENOUGH,
        .rejoin = true,
        .hello = {.autoreset = AUTORESET_DISABLED, .k_max = 1, .t_max_ns = -1},
        .stop = &never};
    struct intake *in;
    int i;

    sem_init(welcome, 0, 0);
    fake_start(server, cfg.env_urls,
               &(struct fake_script){.n_env = 2,
                                     .vanish = vanish,
                                     .returns = vanish,
                                     .post_at_welcome = welcome,
                                     FAKE_SCRIPT});
    assert_ok(intake_create(&in, &cfg));
    assert_ok(intake_start(in));
    for (i = 0; i <= vanish; i++)
        while (sem_wait(welcome) != 0)
            ;
    return in;
}

static void end(struct intake *in, struct fake_server *server, sem_t *welcome)
{
    intake_destroy(in);
    fake_stop(server);
    sem_destroy(welcome);
    msg_drain();
}

// Each return is a connection of its own, in order, and the last one works.
static void intake_keeps_returns_apart(void **state)
{
    struct reset_row row = {.seed = 1};
    static struct fake_server server;
    struct intake *in;
    struct event *e;
    sem_t welcome;
    uint64_t n;

    (void)state;
    in = flap(&server, &welcome, 3);
    for (n = 1; n <= 3; n++) {
        expect(in, EVENT_SOURCE_LOST, &e);
        intake_done(in, e);
        assert_int_equal(session(in), n);
        expect(in, EVENT_SOURCE_BACK, &e);
        intake_adopt(in, e);
        intake_done(in, e);
        assert_int_equal(session(in), n + 1);
    }
    assert_ok(envclient_reset(intake_source(in, 0), &row, 1));
    expect(in, EVENT_BATCH, &e);
    assert_int_equal(e->head->n, 1);
    intake_done(in, e);
    end(in, &server, &welcome);
}

// What nobody adopted is closed and freed.
static void intake_ends_with_returns_unseen(void **state)
{
    static struct fake_server server;
    struct intake *in;
    sem_t welcome;

    (void)state;
    in = flap(&server, &welcome, 2);
    end(in, &server, &welcome);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(intake_keeps_returns_apart),
        leak_test(intake_ends_with_returns_unseen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
