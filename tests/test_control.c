// BYE, heartbeats and the messages of the key's proof.
#include "common/wire/control.h"

#include "tests/wire_samples.h"

static void pings_and_pongs_come_back(void **state)
{
    struct msg *m = sample_control(MSG_PING);
    uint64_t n = 0;

    (void)state;
    assert_ok(ping_read(m, MSG_PING, &n));
    assert_int_equal(n, 99);
    assert_fails(ping_read(m, MSG_PONG, &n), ST_PROTO, "PONG expected");
    assert_only_whole(m, ping_read(&part, MSG_PING, &n));
    msg_free(m);
    m = sample_control(MSG_PONG);
    assert_ok(ping_read(m, MSG_PONG, &n));
    msg_free(m);
}

static void a_bye_may_say_why(void **state)
{
    struct msg *m = sample_control(MSG_BYE);
    struct bye b = {.seq = 99};

    (void)state;
    assert_ok(bye_read(m, &b));
    assert_int_equal(b.seq, 7);
    assert_string_equal(b.why, "the server is stopped");
    memcpy(m->data + 12, "\x1b[2J", 4); // a terminal's escape sequence
    assert_ok(bye_read(m, &b));
    assert_string_equal(b.why, "?[2Jserver is stopped");
    m->len = 11;
    assert_int_equal(bye_read(m, &b), ST_PROTO);
    m->len = 0; // a client's
    assert_ok(bye_read(m, &b));
    assert_string_equal(b.why, "");
    assert_int_equal(b.seq, 0);
    msg_free(m);
}

static void challenge_and_proof_come_back(void **state)
{
    struct msg *m = sample_control(MSG_CHALLENGE);
    uint8_t nonce[NONCE_BYTES];
    struct proof p;

    (void)state;
    assert_ok(challenge_read(m, nonce));
    assert_int_equal(nonce[2], 3);
    assert_only_whole(m, challenge_read(&part, nonce));
    msg_free(m);
    m = sample_control(MSG_PROOF);
    assert_ok(proof_read(m, &p));
    assert_int_equal(p.nonce[0], 1);
    assert_int_equal(p.mac[2], 6);
    assert_only_whole(m, proof_read(&part, &p));
    msg_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(pings_and_pongs_come_back),
        wire_test(a_bye_may_say_why),
        wire_test(challenge_and_proof_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
