#include "common/base/log.h"

#include "tests/testing.h"

#include <stdio.h>

static char last[4096];

static void keep(enum log_level level, const char *line, void *arg)
{
    (void)level;
    (void)arg;
    snprintf(last, sizeof last, "%s", line);
}

static void levels_are_named(void **state)
{
    enum log_level level = LOG_DEBUG;

    (void)state;
    assert_true(log_level_parse("error", &level));
    assert_int_equal(level, LOG_ERROR);
    assert_true(log_level_parse("debug", &level));
    assert_false(log_level_parse("loud", &level));
    log_set_sink(keep, NULL);
    log_set_level(LOG_WARN);
    last[0] = '\0';
    log_info("m", "nothing");
    assert_string_equal(last, "");
    log_warn("m", "a line");
    assert_non_null(strstr(last, "warn  m: a line"));
    log_set_level(LOG_INFO);
    log_set_sink(NULL, NULL);
}

static void json_lines_are_whole(void **state)
{
    static char much[3000];

    (void)state;
    log_set_sink(keep, NULL);
    log_set_json(true);
    log_warn("server", "a \"quote\" \\ and\nmore");
    assert_non_null(strstr(last, "\"level\": \"warn\", \"module\": \"server\", \"text\": "
                                 "\"a \\\"quote\\\" \\\\ and\\u000amore\"}"));
    assert_int_equal(strncmp(last, "{\"time\": \"20", 12), 0);
    memset(much, '"', sizeof much - 1);
    log_warn("server", "%s", much);
    assert_string_equal(last + strlen(last) - 4, "\\\"\"}");
    assert_true(strlen(last) < 2048);
    log_set_json(false);
    log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(levels_are_named),
        leak_test(json_lines_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
