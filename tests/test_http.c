// Pages over HTTP; curl, where it is installed, is the second opinion.
#include "common/wire/http.h"

#include "tests/testing.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct site {
    atomic_int hits;
};

static int hello(void *arg, struct text *out)
{
    struct site *s = arg;

    text_add(out, "hello %d\n", atomic_fetch_add(&s->hits, 1));
    return 200;
}

static int big(void *arg, struct text *out)
{
    (void)arg;
    for (int i = 0; i < 100000; i++)
        text_add(out, "%09d\n", i);
    return 200;
}

static int busy(void *arg, struct text *out)
{
    (void)arg;
    text_add(out, "not now\n");
    return 503;
}

static const struct http_page pages[] = {
    {"/hello", "text/plain; charset=utf-8", hello},
    {"/big", "text/plain", big},
    {"/busy", "text/plain", busy},
};

static void pages_are_fetched(void **state)
{
    struct site site = {0};
    struct http *h, *other;
    struct text t;

    (void)state;
    assert_ok(http_open(&h, "127.0.0.1:0", pages, 3, &site));
    assert_int_equal(strncmp(http_address(h), "127.0.0.1:", 10), 0);
    for (int i = 0; i < 50; i++) {
        char want[32];

        text_init(&t);
        assert_ok(http_get(http_address(h), "/hello", ENOUGH, &t));
        snprintf(want, sizeof want, "hello %d\n", i);
        assert_string_equal(text_get(&t), want);
        text_fini(&t);
    }
    text_init(&t);
    assert_ok(http_get(http_address(h), "/big", ENOUGH, &t));
    assert_int_equal(t.len, 1000000);
    assert_string_equal(text_get(&t) + t.len - 10, "000099999\n");
    text_fini(&t);
    assert_ok(http_get(http_address(h), "/busy", ENOUGH, &t));
    assert_string_equal(text_get(&t), "not now\n");
    text_fini(&t);
    assert_fails(http_get(http_address(h), "/nothing", ENOUGH, &t), ST_IO, "status 404");
    assert_fails(http_open(&other, http_address(h), pages, 3, &site), ST_IO, "in use");
    http_close(h);
    assert_fails(http_get("127.0.0.1:1", "/", ENOUGH, &t), ST_IO, "127.0.0.1:1/");
    assert_fails(http_get("nonsense", "/", NS_PER_S, &t), ST_INVAL, "host:port");
    assert_fails(http_open(&h, "ftp://a:1", pages, 1, &site), ST_INVAL, "host:port");
}

// run COMMAND with the address for %s; its exit code, its output in `out`.
static int shell(const char *format, const char *address, char *out, size_t size)
{
    char command[1024];
    size_t n;
    FILE *p;

    snprintf(command, sizeof command, format, address);
    p = popen(command, "r");
    assert_non_null(p);
    n = fread(out, 1, size - 1, p);
    out[n] = '\0';
    return WEXITSTATUS(pclose(p));
}

// A connection on which the first half of a request has been sent.
static int half_a_request(const char *address)
{
    static const char half[] = "GET /hello HTTP/1.1\r\nX: ";
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(write(fd, half, sizeof half - 1), sizeof half - 1);
    return fd;
}

static void curl_sees_the_same(void **state)
{
    struct site site = {0};
    char out[8192];
    struct http *h;
    int fd;

    (void)state;
    if (shell("curl --version >/dev/null 2>&1", "", out, sizeof out) != 0)
        skip();
    assert_ok(http_open(&h, "127.0.0.1:0", pages, 3, &site));
    assert_int_equal(shell("curl -si http://%s/hello", http_address(h), out, sizeof out), 0);
    assert_non_null(strstr(out, "HTTP/1.1 200 OK"));
    assert_non_null(strstr(out, "Content-Type: text/plain; charset=utf-8"));
    assert_non_null(strstr(out, "hello 0\n"));
    assert_int_equal(shell("curl -si -X POST -d x=1 http://%s/hello", http_address(h), out, 8192),
                     0);
    assert_non_null(strstr(out, "405"));
    assert_int_equal(
        shell("curl -si http://%s/../../etc/passwd --path-as-is", http_address(h), out, sizeof out),
        0);
    assert_non_null(strstr(out, "404"));
    // a request that is no HTTP, and one that never ends, hold nobody up
    shell("printf 'nonsense\\r\\n\\r\\n' | timeout 1 curl -s telnet://%s", http_address(h), out,
          sizeof out);
    fd = half_a_request(http_address(h));
    assert_int_equal(shell("curl -s http://%s/hello", http_address(h), out, sizeof out), 0);
    assert_string_equal(out, "hello 1\n");
    close(fd);
    http_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(pages_are_fetched),
        leak_test(curl_sees_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
