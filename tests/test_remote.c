// The remote policy against a server that says what it should not.
#include "evaluation/remote.h"

#include "common/base/log.h"
#include "common/wire/spec.h"
#include "tests/fake_policy.h"
#include "tests/log_testing.h"

#include <semaphore.h>
#include <unistd.h>

// {"actions": [[0.5, -1], [0.25, 1]]}
#define ACTIONS \
    "\x81\xa7"  \
    "actions\x92\x92\xcb\x3f\xe0\0\0\0\0\0\0\xff\x92\xcb\x3f\xd0\0\0\0\0\0\0\x01"
#define SAY(text)                              \
    (struct fake_say)                          \
    {                                          \
        .bytes = (text), .n = sizeof(text) - 1 \
    }
#define CLOSE ((struct fake_say){.n = -1})

static struct fake_policy fake;
static struct remote *remote;
static struct remote_task *task;
static struct remote_seat *seat;
static sem_t done;
static enum status answer;
static struct error answer_error;

static void answered(void *arg, enum status st)
{
    (void)arg;
    answer = st;
    answer_error = *error_last();
    sem_post(&done);
}

static const struct spec *toy(void)
{
    static struct spec spec = {.task = "Toy",
                               .instruction = "do it",
                               .n_obs = 3,
                               .n_act = 2,
                               .n_field = 2,
                               .fields = {{"pos", 0, 2}, {"vel", 2, 1}},
                               .act_low = {-1, -1},
                               .act_high = {1, 1}};
    return &spec;
}

// A server that says `hello` first, and a remote of `n` connections.
static enum status try_open(struct fake_say hello, const char *options, int n)
{
    struct remote_config cfg = {.address = fake.url, .options = options, .n_conn = n};

    fake.hello = hello;
    fake.good = SAY(ACTIONS);
    fake_policy_start(&fake);
    cfg.address = fake.url;
    return remote_open(&remote, &cfg);
}

static void begin(const char *options)
{
    assert_ok(try_open(SAY("\x81\xa3who\xa3toy"), options, 1));
    assert_ok(remote_task_create(&task, remote, toy()));
    assert_ok(remote_seat_create(&seat, task, answered, NULL));
    remote_begin(seat, 7, 0);
}

static void ask(uint64_t step)
{
    static const double obs[] = {1, 2, 3};

    remote_ask(seat, step, obs, NULL);
    while (sem_wait(&done) != 0)
        ;
}

static int setup(void **state)
{
    memset(&fake, 0, sizeof fake);
    remote = NULL;
    task = NULL;
    seat = NULL;
    log_capture();
    sem_init(&done, 0, 0);
    return leak_setup(state);
}

static int teardown(void **state)
{
    remote_seat_destroy(seat);
    remote_task_destroy(task);
    remote_close(remote);
    if (fake.listener)
        fake_policy_stop(&fake);
    sem_destroy(&done);
    log_set_sink(NULL, NULL);
    return leak_teardown(state);
}

#define OPTIONS "\"states\": \"state=pos+vel[0:1]\", \"answer_wait\": \"3600s\""

static void actions_come_in_chunks(void **state)
{
    struct remote_counts c;
    float a[2];
    uint64_t step;

    (void)state;
    begin("{" OPTIONS ", \"gripper\": \"invert\"}");
    for (step = 0; step < 40; step++) {
        if (!remote_act(seat, step, a)) {
            assert_int_equal(step % 2, 0);
            ask(step);
            assert_int_equal(answer, ST_OK);
            assert_true(remote_act(seat, step, a));
        }
        assert_true(a[0] == (step % 2 ? 0.25f : 0.5f) && a[1] == (step % 2 ? -1 : 1));
    }
    remote_end(seat, true);
    remote_count(remote, &c);
    assert_int_equal(c.requests, 20);
    assert_int_equal(c.observations, 20);
    assert_int_equal(c.failures + c.reconnects, 0);
    assert_non_null(strstr(remote_describe(remote), "\"says\": {\"who\": \"toy\"}"));
    // what decides the actions, not how long they may take
    assert_non_null(strstr(remote_describe(remote), "\"execute\": "));
    assert_null(strstr(remote_describe(remote), "_wait"));
}

// After each fault the next answer is taken again, over a new connection.
static void faults_are_named_and_survived(void **state)
{
    static const char ndarray[] = "\x81\xa7"
                                  "actions\x84\xc4\x0b__ndarray__\xc3\xc4\x04"
                                  "data\xc4\x08\0\0\x80\x3f\0\0\xc0\x7f\xc4\x05"
                                  "dtype\xa3<f4\xc4\x05shape\x91\x02"; // (1, NaN)
    static const struct {
        struct fake_say say;
        enum status st;
        const char *why;
    } cases[] = {
        {{"Traceback (most recent call last):\n  File x\nValueError: no\n", 58},
         ST_IO,
         "error: ValueError: no"},
        {{"\x81\xa7"
          "actions",
          9},
         ST_PROTO,
         "ends too early"},
        {{"\x81\xa7"
          "actions\xdd\xff\xff\xff\xff",
          14},
         ST_PROTO,
         "ends too early"},
        {{"\x80\x80", 2}, ST_PROTO, "1 bytes behind"},
        {{ndarray, sizeof ndarray - 1},
         ST_PROTO,
         "number 1 of the policy's action 0 is not finite"},
        {{"\x80", 1}, ST_INVAL, "no 'actions'"},
        {{"\x81\xa7"
          "actions\xc0",
          10},
         ST_PROTO,
         "neither a number"},
        {{"\x81\xa7"
          "actions\x93\x01\x02\x03",
          13},
         ST_INVAL,
         "3 numbers or more, the task takes 2"},
        {{"\x81\xa7"
          "actions\x91\x01",
          11},
         ST_INVAL,
         "have 1 numbers, the task takes 2"},
        {{"\x82\xa4type\xa5"
          "error\xa7message\xa4"
          "oops",
          25},
         ST_IO,
         "error: oops"},
        {{NULL, -1}, ST_CLOSED, "closed the connection"},
    };
    size_t i;
    float a[2];

    (void)state;
    begin("{" OPTIONS "}");
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        remote_begin(seat, 7, i);
        fake.bad = cases[i].say;
        atomic_store(&fake.bad_left, 1);
        ask(0);
        if (answer != cases[i].st || !strstr(answer_error.text, cases[i].why))
            fail_msg("case %zu: %s (%s)", i, status_name(answer), answer_error.text);
        remote_end(seat, false);
        remote_begin(seat, 7, i);
        ask(0);
        if (answer != ST_OK)
            fail_msg("after case %zu: %s (%s)", i, status_name(answer), answer_error.text);
        assert_true(remote_act(seat, 0, a));
    }
}

// The protocol has no numbers of requests, so what comes unasked can only be noticed while nothing
// is asked: here for longer and longer, as the machine may be slow.
static void an_answer_too_many_is_noticed(void **state)
{
    struct remote_counts c = {0};
    uint64_t step;

    (void)state;
    begin("{" OPTIONS ", \"execute\": 1}");
    for (step = 0; step < 90 && c.reconnects == 0; step++) {
        atomic_store(&fake.twice, true); // one that is late passes for the next answer
        ask(step);
        assert_int_equal(answer, ST_OK);
        clock_sleep_ns((int64_t)(step + 1) * 10 * NS_PER_MS);
        remote_count(remote, &c);
    }
    assert_int_equal(c.reconnects, 1);
}

static void silence_ends_by_the_time_limit(void **state)
{
    (void)state;
    begin("{\"states\": \"state=pos\", \"first_wait\": \"150ms\"}");
    fake.good = (struct fake_say){.n = 0};
    ask(0);
    assert_int_equal(answer, ST_TIMEOUT);
    assert_non_null(strstr(answer_error.text, "has not answered in time"));
}

static void a_request_can_be_given_up(void **state)
{
    static const double obs[] = {1, 2, 3};

    (void)state;
    begin("{" OPTIONS ", \"first_wait\": \"3600s\"}");
    fake.good = (struct fake_say){.n = 0};
    remote_ask(seat, 0, obs, NULL);
    while (atomic_load(&fake.requests) == 0)
        clock_sleep_ns(NS_PER_MS);
    remote_seat_destroy(seat);
    seat = NULL;
    assert_int_equal(answer, ST_CLOSED);
}

static void many_failures_in_a_row_are_the_end(void **state)
{
    int i;

    (void)state;
    begin("{" OPTIONS "}");
    fake.good = SAY("out of memory");
    for (i = 1; i <= 20; i++) {
        ask(0);
        assert_int_equal(answer, i < 20 ? ST_IO : ST_MISSING);
    }
    assert_non_null(strstr(answer_error.text, "20 requests to the policy server failed"));
}

static void another_policy_is_refused(void **state)
{
    (void)state;
    begin("{" OPTIONS "}");
    fake.hello = SAY("\x81\xa3who\xa5other");
    fake.bad = CLOSE;
    atomic_store(&fake.bad_left, 1);
    ask(0);
    assert_int_equal(answer, ST_CLOSED);
    ask(0);
    assert_int_equal(answer, ST_INVAL);
    assert_non_null(strstr(answer_error.text, "another policy than before"));
}

// Somebody has to be told while nothing happens; no server is an absence, not a bad option.
static void no_server_is_waited_for_aloud(void **state)
{
    static const char *const addresses[] = {"ws://127.0.0.1:1", "http://127.0.0.1:1",
                                            "vla-eval+ws://127.0.0.1:1"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct remote_config cfg = {.address = addresses[i],
                                    .options = "{\"states\": \"s=pos\", \"connect_wait\": "
                                               "\"300ms\"}",
                                    .n_conn = 2};

        log_capture();
        assert_fails(remote_open(&remote, &cfg), ST_MISSING, "no policy server after 0 s");
        assert_non_null(strstr(log_text, "waiting for the policy server, 0 s of 0 s"));
        assert_non_null(strstr(log_text, "127.0.0.1:1"));
    }
}

static void a_server_that_goes_for_good_is_absent(void **state)
{
    (void)state;
    begin("{" OPTIONS ", \"connect_wait\": \"200ms\"}");
    fake_policy_stop(&fake);
    fake.listener = NULL;
    ask(0);
    if (answer == ST_CLOSED) // it went in the middle of the request
        ask(0);
    assert_int_equal(answer, ST_MISSING);
    assert_non_null(strstr(answer_error.text, "no policy server after"));
    assert_non_null(strstr(log_text, "waiting for the policy server"));
}

static void a_server_has_to_say_what_it_is(void **state)
{
    static const struct {
        struct fake_say hello;
        const char *why;
    } cases[] = {
        {{"\x81", 1}, "ends too early"},
        {{"go away", 7}, "go away"},
        {{NULL, -1}, "no policy server"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum status st;

        memset(&fake, 0, sizeof fake);
        st = try_open(cases[i].hello, "{\"states\": \"s=pos\", \"connect_wait\": \"0s\"}", 1);
        if (st == ST_OK || !strstr(error_last()->text, cases[i].why))
            fail_msg("case %zu: %s (%s)", i, status_name(st), error_last()->text);
        fake_policy_stop(&fake);
        fake.listener = NULL;
    }
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    assert_ok(try_open(
        SAY("\x80"),
        "{\"states\": \"a=pos,b=mass,c=pos[1:3],=vel\", \"images\": \"i=front_image\"}", 1));
    assert_fails(remote_task_create(&task, remote, toy()), ST_INVAL, "in 4 points");
    assert_non_null(strstr(log_text, "no numbers 'mass'"));
    assert_non_null(strstr(log_text, "'pos[1:3]': expected FIELD[FROM:TO] within 0:2"));
    assert_non_null(strstr(log_text, "no key of an item"));
    assert_non_null(strstr(log_text, "no picture 'front_image'; there are: none"));
}

static void options_are_checked(void **state)
{
    static const struct {
        const char *address, *preset, *options, *why;
    } cases[] = {
        {"ftp://x", NULL, "{}", "no address of a policy server"},
        {"ws://127.0.0.1:1", NULL, "{}", "would see nothing"},
        {"ws://127.0.0.1:1", "best", "{}", "no preset 'best'"},
        {"ws://127.0.0.1:1", "openpi", "{\"extra\": \"[\"}", "extra: '[' is no JSON object"},
        {"ws://127.0.0.1:1", "gr00t", "{}", "gr00t does not go over WebSockets"},
        {"ws://127.0.0.1:1", "openpi", "{\"exekute\": 1}", "exekute"},
        {"ws://127.0.0.1:1", "openpi", "@/nonexistent", "/nonexistent"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct remote_config cfg = {.address = cases[i].address,
                                    .preset = cases[i].preset,
                                    .options = cases[i].options,
                                    .n_conn = 1};

        if (remote_open(&remote, &cfg) == ST_OK || !strstr(error_last()->text, cases[i].why))
            fail_msg("case %zu: %s", i, error_last()->text);
    }
}

#define remote_test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        remote_test(actions_come_in_chunks),
        remote_test(faults_are_named_and_survived),
        remote_test(an_answer_too_many_is_noticed),
        remote_test(silence_ends_by_the_time_limit),
        remote_test(a_request_can_be_given_up),
        remote_test(many_failures_in_a_row_are_the_end),
        remote_test(another_policy_is_refused),
        remote_test(a_server_has_to_say_what_it_is),
        remote_test(what_does_not_fit_is_named),
        remote_test(options_are_checked),
        remote_test(no_server_is_waited_for_aloud),
        remote_test(a_server_that_goes_for_good_is_absent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
