// Lists of addresses; the expected ones are what `scontrol show hostnames` prints for the same
// list.
#include "common/wire/hosts.h"

#include "tests/testing.h"

#include <stdio.h>

static struct hosts h;

static void expands_to(const char *list, const char *want)
{
    char got[8192] = "";
    size_t at = 0;

    assert_ok(hosts_expand(&h, list));
    for (int i = 0; i < h.n; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%s", i ? " " : "", h.url[i]);
    assert_string_equal(got, want);
}

static void lists_are_expanded(void **state)
{
    (void)state;
    expands_to("tcp://a:1", "tcp://a:1");
    expands_to("tcp://a:1,ipc:///run/b.sock", "tcp://a:1 ipc:///run/b.sock");
    expands_to("tcp://node[01-04]:5555",
               "tcp://node01:5555 tcp://node02:5555 tcp://node03:5555 tcp://node04:5555");
    expands_to("10.0.0.[1-2]:55", "tcp://10.0.0.1:55 tcp://10.0.0.2:55");
    expands_to("gpu[09-11,7]",
               "tcp://gpu09:7447 tcp://gpu10:7447 tcp://gpu11:7447 tcp://gpu7:7447");
    expands_to("tls+tcp://r[1-2]n[8-9]:1", "tls+tcp://r1n8:1 tls+tcp://r1n9:1 tls+tcp://r2n8:1 "
                                           "tls+tcp://r2n9:1");
    expands_to("tcp://[::1]:7,tcp://[fe80::2]:[8-9]", "tcp://[::1]:7 tcp://[fe80::2]:8 "
                                                      "tcp://[fe80::2]:9");
    expands_to("tcp://127.0.0.1:[5000-5002]",
               "tcp://127.0.0.1:5000 tcp://127.0.0.1:5001 tcp://127.0.0.1:5002");
    assert_ok(hosts_expand(&h, "n[1-256]"));
    assert_int_equal(h.n, 256);
}

static void bad_lists_are_named(void **state)
{
    char text[600] = "tcp://";

    (void)state;
    assert_fails(hosts_expand(&h, ""), ST_INVAL, "empty address");
    assert_fails(hosts_expand(&h, "a,,b"), ST_INVAL, "empty address");
    assert_fails(hosts_expand(&h, "a,"), ST_INVAL, "empty address");
    assert_fails(hosts_expand(&h, "a, ,b"), ST_INVAL, "empty address");
    assert_fails(hosts_expand(&h, "n[1-4"), ST_INVAL, "']' is missing");
    assert_fails(hosts_expand(&h, "n[]"), ST_INVAL, "a number");
    assert_fails(hosts_expand(&h, "n[1-]"), ST_INVAL, "a number");
    assert_fails(hosts_expand(&h, "n[a-b]"), ST_INVAL, "a number");
    assert_fails(hosts_expand(&h, "n[1,]"), ST_INVAL, "a number");
    assert_fails(hosts_expand(&h, "n[1-2x]"), ST_INVAL, "',' or ']' expected at 'x'");
    assert_fails(hosts_expand(&h, "n[4-1]"), ST_INVAL, "from 4 to 1");
    assert_fails(hosts_expand(&h, "n[1-257]"), ST_INVAL, "1 to 256");
    assert_fails(hosts_expand(&h, "n[1-256],m"), ST_INVAL, "more than 256");
    assert_fails(hosts_expand(&h, "n[0-9][0-9][0-9][0-9]"), ST_INVAL, "more than 256");
    assert_fails(hosts_expand(&h, "n[1-4],n3"), ST_INVAL, "tcp://n3:7447 stands twice");
    assert_fails(hosts_expand(&h, "n[0000000001]"), ST_INVAL, "1 to 9 digits");
    memset(text + 6, 'a', 500);
    assert_fails(hosts_expand(&h, text), ST_INVAL, "too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(lists_are_expanded),
        leak_test(bad_lists_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
