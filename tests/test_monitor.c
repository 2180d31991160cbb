// What a server tells about itself: Prometheus' text grammar, and numbers that agree with what was
// done.
#include "envserver/monitor.h"

#include "common/wire/http.h"
#include "rollout/envclient.h"
#include "tests/testing.h"

#include <stdio.h>

#define URL "inproc://test-monitor"

struct rig {
    struct pool *pool;
    struct server *server;
    struct envclient *client;
    struct monitor_config cfg;
};

static void recv_rows(struct envclient *c, int n)
{
    const struct batch_head *head;
    const uint8_t *rows;
    struct msg *m;

    for (; n > 0; n -= (int)head->n) {
        assert_ok(envclient_recv(c, &m, &head, &rows, ENOUGH));
        msg_free(m);
    }
}

// Three of four envs have been reset once and stepped twice.
static void rig_init(struct rig *r)
{
    struct envclient_config client = {
        .url = URL,
        .hello = {.n_env = 3, .k_max = 1, .t_max_ns = -1, .name = "a \"quoted\" <name>"},
        .connect_wait_ns = ENOUGH};
    struct reset_row reset[3] = {{.env = 0}, {.env = 1}, {.env = 2}};
    uint8_t *rows;
    struct msg *m;

    assert_ok(pool_create(
        &r->pool, &(struct pool_config){.task = "InvertedPendulum-v5", .n_env = 4, .n_thread = 1}));
    assert_ok(server_create(
        &r->server, &(struct server_config){
                        .pool = r->pool, .listen = URL, .b_max = 3, .t_max_ns = 10 * NS_PER_S}));
    assert_ok(envclient_open(&r->client, &client));
    assert_ok(envclient_reset(r->client, reset, 3));
    recv_rows(r->client, 3);
    for (int i = 0; i < 2; i++) {
        assert_ok(envclient_step_begin(r->client, 3, &m, &rows));
        for (uint32_t e = 0; e < 3; e++)
            *(struct step_row *)(rows + e * step_stride(1, 1)) = (struct step_row){e, 1};
        assert_ok(envclient_step_send(r->client, m));
        recv_rows(r->client, 3);
    }
    r->cfg = (struct monitor_config){.address = "127.0.0.1:0",
                                     .server = r->server,
                                     .pool = r->pool,
                                     .version = "1.2.3",
                                     .commit = "abc"};
}

static void rig_fini(struct rig *r)
{
    envclient_destroy(r->client);
    server_destroy(r->server);
    pool_destroy(r->pool);
    msg_drain();
}

static double value_of(const char *text, const char *name)
{
    char want[256];
    const char *at;

    snprintf(want, sizeof want, "\n%s ", name);
    at = strstr(text, want);
    if (!at)
        fail_msg("no sample %s", name);
    return strtod(at + strlen(want), NULL);
}

// name{label="value",...} number, after a HELP and a TYPE of its family.
static void check_line(const char *line, char *family)
{
    const char *at = line;
    char *end;
    size_t n;

    if (strncmp(line, "# HELP ", 7) == 0)
        return;
    if (strncmp(line, "# TYPE ", 7) == 0) {
        sscanf(line + 7, "%127s", family);
        return;
    }
    n = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
    if (n == 0 || strncmp(line, family, strlen(family)) != 0)
        fail_msg("'%s' is not of family %s", line, family);
    at += n;
    if (*at == '{') {
        do {
            at++;
            at += strspn(at, "abcdefghijklmnopqrstuvwxyz_");
            assert_int_equal(*at++, '=');
            assert_int_equal(*at++, '"');
            for (; *at && *at != '"'; at++)
                if (*at == '\\')
                    at++;
            assert_int_equal(*at++, '"');
        } while (*at == ',');
        assert_int_equal(*at++, '}');
    }
    assert_int_equal(*at++, ' ');
    (void)strtod(at, &end);
    if (end == at || *end != '\0')
        fail_msg("'%s' does not end with a number", line);
}

static void metrics_are_prometheus_text(void **state)
{
    char family[128] = "none", line[512];
    struct rig r;
    struct text t;
    const char *at, *end;

    (void)state;
    rig_init(&r);
    text_init(&t);
    assert_ok(monitor_metrics(&t, &r.cfg));
    for (at = text_get(&t); *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_non_null(end); // the last line ends too
        assert_true((size_t)(end - at) < sizeof line);
        memcpy(line, at, (size_t)(end - at));
        line[end - at] = '\0';
        check_line(line, family);
    }
    at = text_get(&t);
    assert_true(value_of(at, "simstream_steps_total{suite=\"InvertedPendulum-v5\"}") == 6);
    assert_true(value_of(at, "simstream_rows_total") == 9);
    assert_true(value_of(at, "simstream_batches_total{why=\"full\"}") +
                    value_of(at, "simstream_batches_total{why=\"drained\"}") ==
                3);
    assert_true(value_of(at, "simstream_envs{state=\"idle\"}") == 1);
    assert_true(value_of(at, "simstream_envs{state=\"waiting_policy\"}") == 3);
    assert_true(value_of(at, "simstream_requests_total{kind=\"reset\"}") == 1);
    assert_true(value_of(at, "simstream_requests_total{kind=\"step\"}") == 2);
    assert_true(value_of(at, "simstream_batch_rows_sum") == 9);
    assert_true(value_of(at, "simstream_batch_rows_bucket{le=\"2\"}") == 0);
    assert_true(value_of(at, "simstream_batch_rows_bucket{le=\"4\"}") == 3);
    assert_true(value_of(at, "simstream_batch_rows_bucket{le=\"+Inf\"}") == 3);
    assert_true(value_of(at, "simstream_request_seconds_count") == 9);
    assert_true(value_of(at, "process_resident_memory_bytes") > 1e6);
    text_fini(&t);
    rig_fini(&r);
}

static void pages_come_over_http(void **state)
{
    struct monitor *m;
    struct rig r;
    struct text t;

    (void)state;
    rig_init(&r);
    assert_ok(monitor_open(&m, &r.cfg));
    text_init(&t);
    assert_ok(http_get(monitor_address(m), "/status", ENOUGH, &t));
    assert_non_null(strstr(text_get(&t), "\"name\": \"a \\\"quoted\\\" <name>\", \"envs\": 3"));
    assert_non_null(strstr(text_get(&t), "\"version\": \"1.2.3\", \"commit\": \"abc\""));
    text_fini(&t);
    assert_ok(http_get(monitor_address(m), "/healthz", ENOUGH, &t));
    assert_string_equal(text_get(&t), "ok\n");
    text_fini(&t);
    assert_ok(http_get(monitor_address(m), "/", ENOUGH, &t));
    assert_non_null(strstr(text_get(&t), "</html>"));
    // the page needs nothing from elsewhere
    assert_null(strstr(text_get(&t), "src="));
    assert_null(strstr(text_get(&t), "http:"));
    assert_null(strstr(text_get(&t), "https:"));
    text_fini(&t);
    envclient_destroy(r.client);
    r.client = NULL;
    assert_true(server_drain(r.server, ENOUGH));
    assert_ok(http_get(monitor_address(m), "/healthz", ENOUGH, &t));
    assert_string_equal(text_get(&t), "draining\n");
    text_fini(&t);
    monitor_close(m);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(metrics_are_prometheus_text),
        leak_test(pages_come_over_http),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
