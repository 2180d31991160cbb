#include "common/base/config.h"

#include "tests/testing.h"

#include <float.h>
#include <unistd.h>

struct settings {
    int64_t count;
    double rate;
    bool fast;
    char name[OPT_STR_MAX];
    int64_t wait_ns;
    double range[2];
    int mode;
    char must[OPT_STR_MAX];
};

#define AT(field) offsetof(struct settings, field)

static const struct opt table[] = {
    {"count", OPT_INT, AT(count), 1, 1000, "32", "how many", NULL},
    {"rate", OPT_REAL, AT(rate), 0, INFINITY, "0.5", "how fast", NULL},
    {"fast", OPT_BOOL, AT(fast), 0, 0, "false", "hurry", NULL},
    {"name", OPT_STR, AT(name), 0, 0, "x", "what to call it", NULL},
    {"wait", OPT_TIME, AT(wait_ns), 0, 10e9, "2ms", "how long", NULL},
    {"range", OPT_RANGE, AT(range), -INFINITY, INFINITY, "0.2,1", "from and to", NULL},
    {"mode", OPT_ENUM, AT(mode), 0, 0, "slow", "which way", "slow|medium|quick"},
    {"must", OPT_STR, AT(must), 0, 0, NULL, "has to be given", NULL},
    {0},
};

static struct settings defaults(void)
{
    struct settings s = {0};

    assert_ok(opts_defaults(table, &s));
    return s;
}

static void defaults_fill_every_type(void **state)
{
    struct settings s = defaults();

    (void)state;
    assert_int_equal(s.count, 32);
    assert_true(s.rate == 0.5);
    assert_false(s.fast);
    assert_string_equal(s.name, "x");
    assert_int_equal(s.wait_ns, 2000000);
    assert_true(s.range[0] == 0.2 && s.range[1] == 1);
    assert_int_equal(s.mode, 0);
}

static void text_sets_every_type(void **state)
{
    struct settings s = defaults();

    (void)state;
    assert_ok(opts_set(table, &s, "count", "1000"));
    assert_ok(opts_set(table, &s, "count", "1e2"));
    assert_int_equal(s.count, 100);
    assert_ok(opts_set(table, &s, "rate", "inf"));
    assert_true(isinf(s.rate));
    assert_ok(opts_set(table, &s, "rate", "2.5e-3"));
    assert_true(s.rate == 2.5e-3);
    assert_ok(opts_set(table, &s, "fast", "on"));
    assert_true(s.fast);
    assert_ok(opts_set(table, &s, "fast", "0"));
    assert_false(s.fast);
    assert_ok(opts_set(table, &s, "name", ""));
    assert_string_equal(s.name, "");
    assert_ok(opts_set(table, &s, "range", "-inf,3"));
    assert_true(isinf(s.range[0]) && s.range[1] == 3);
    assert_ok(opts_set(table, &s, "mode", "quick"));
    assert_int_equal(s.mode, 2);
    assert_string_equal(opt_choice_name("slow|medium|quick", s.mode), "quick");
    assert_string_equal(opt_choice_name("slow|medium|quick", 0), "slow");
}

static void times_take_units(void **state)
{
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {{"5ns", 5}, {"1.5us", 1500}, {"2ms", 2000000}, {"0.25s", 250000000}, {"0", 0}};
    static const char *const bad[] = {"5",    "ms",  "5 ms",  "5min", "",
                                      "-1ms", "11s", "nanms", "infs"};
    struct settings s = defaults();

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        assert_ok(opts_set(table, &s, "wait", good[i].text));
        assert_int_equal(s.wait_ns, good[i].ns);
    }
    for (size_t i = 0; i < 9; i++)
        assert_fails(opts_set(table, &s, "wait", bad[i]), ST_INVAL, "'wait'");
    assert_int_equal(s.wait_ns, 0);
}

static void bad_text_is_refused_by_name(void **state)
{
    static const struct {
        const char *name, *text, *part;
    } bad[] = {
        {"count", "0", "1 to 1000"},
        {"count", "1001", "1 to 1000"},
        {"count", "1.5", "whole number"},
        {"count", "abc", "a number"},
        {"count", "", "a number"},
        {"count", "7x", "a number"},
        {"count", "inf", "whole number"},
        {"count", "1e300", "whole number"},
        {"count", "nan", "a number"},
        {"rate", "-0.1", "0 to inf"},
        {"rate", "nan", "a number"},
        {"rate", "1,2", "a number"},
        {"fast", "maybe", "true or false"},
        {"fast", "", "true or false"},
        {"range", "1", "low,high"},
        {"range", "1,2,3", "a number"},
        {"range", "1,", "a number"},
        {"range", "nan,1", "a number"},
        {"mode", "fast", "slow|medium|quick"},
        {"mode", "", "slow|medium|quick"},
        {"mode", "slo", "slow|medium|quick"},
        {"mode", "slow|medium", "slow|medium|quick"},
    };
    struct settings s = defaults(), before = s;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_fails(opts_set(table, &s, bad[i].name, bad[i].text), ST_INVAL, bad[i].name);
        assert_non_null(strstr(error_last()->text, bad[i].part));
    }
    assert_memory_equal(&s, &before, sizeof s); // a refused value changes nothing
}

static void unknown_names_list_what_there_is(void **state)
{
    struct settings s = defaults();

    (void)state;
    assert_fails(opts_set(table, &s, "cuont", "1"), ST_INVAL, "unknown option 'cuont'");
    assert_non_null(strstr(error_last()->text, "count rate fast"));
    assert_fails(opts_set(table, &s, "coun", "1"), ST_INVAL, "unknown");
    assert_fails(opts_set(table, &s, "", "1"), ST_INVAL, "unknown");
}

static void strings_have_a_limit(void **state)
{
    struct settings s = defaults();
    char text[OPT_STR_MAX + 1];

    (void)state;
    memset(text, 'a', sizeof text);
    text[OPT_STR_MAX] = '\0';
    assert_fails(opts_set(table, &s, "name", text), ST_INVAL, "2047");
    assert_string_equal(s.name, "x");
    text[OPT_STR_MAX - 1] = '\0';
    assert_ok(opts_set(table, &s, "name", text));
    assert_string_equal(s.name, text);
}

static void json_sets_every_type(void **state)
{
    struct settings s = defaults();

    (void)state;
    assert_ok(opts_json(table, &s,
                        "{\"count\": 7, \"rate\": \"inf\", \"fast\": true, \"name\": \"n\\u00e4\", "
                        "\"wait\": \"3us\", \"range\": [\"-inf\", 0.125], \"mode\": \"medium\"}",
                        "--kwargs"));
    assert_int_equal(s.count, 7);
    assert_true(isinf(s.rate));
    assert_true(s.fast);
    assert_string_equal(s.name, "n\xc3\xa4");
    assert_int_equal(s.wait_ns, 3000);
    assert_true(isinf(s.range[0]) && s.range[0] < 0 && s.range[1] == 0.125);
    assert_int_equal(s.mode, 1);
    assert_ok(opts_json(table, &s, "{\"range\": \"1,2\", \"rate\": 0.1}", "x"));
    assert_true(s.range[0] == 1 && s.range[1] == 2 && s.rate == 0.1);
    assert_ok(opts_json(table, &s, "", "x"));
    assert_ok(opts_json(table, &s, " \n\t", "x"));
    assert_ok(opts_json(table, &s, "{}", "x"));
}

static void bad_json_names_its_source(void **state)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"{", "not a JSON object"},
        {"[1]", "not a JSON object"},
        {"3", "not a JSON object"},
        {"{\"count\": 1} x", "not a JSON object"},
        {"{\"count\": 1,}", "not a JSON object"},
        {"{\"nothing\": 1}", "unknown option 'nothing'"},
        {"{\"count\": \"many\"}", "'count'"},
        {"{\"count\": null}", "'count'"},
        {"{\"count\": true}", "'count'"},
        {"{\"count\": 1.5}", "'count'"},
        {"{\"count\": {}}", "'count'"},
        {"{\"fast\": 1}", "'fast'"},
        {"{\"fast\": \"true\"}", "'fast'"},
        {"{\"name\": 3.5, \"mode\": 2}", "'mode'"},
        {"{\"wait\": 5}", "'wait'"},
        {"{\"range\": [1]}", "'range'"},
        {"{\"range\": [1, 2, 3]}", "'range'"},
        {"{\"range\": [1, null]}", "'range'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct settings s = defaults();

        assert_fails(opts_json(table, &s, bad[i].text, "--kwargs"), ST_INVAL, "--kwargs");
        assert_non_null(strstr(error_last()->text, bad[i].part));
    }
}

static void json_that_is_too_deep_or_long_is_refused(void **state)
{
    struct settings s = defaults();
    char *text = mem_alloc(100001, 1);

    (void)state;
    memset(text, '[', 100000);
    assert_fails(opts_json(table, &s, text, "x"), ST_INVAL, "not a JSON object");
    memset(text, 'a', 100000);
    memcpy(text, "{\"name\": \"", 10);
    memcpy(text + 99998, "\"}", 2);
    assert_fails(opts_json(table, &s, text, "x"), ST_INVAL, "'name'");
    mem_free(text);
}

// A command line given as words between blanks; the words that are left go to `left`.
static enum status command_line(struct settings *s, const char *line, char *left)
{
    char buf[512], *argv[32];
    int argc = 0, n_word = 0;
    enum status st;

    snprintf(buf, sizeof buf, "%s", line);
    for (char *p = buf; p; argc++) {
        argv[argc] = p;
        p = strchr(p, ' ');
        if (p)
            *p++ = '\0';
    }
    st = opts_argv(table, s, argc, argv, &n_word);
    *left = '\0';
    for (int i = 0; i < n_word; i++)
        left += snprintf(left, 64, "%s;", argv[i]);
    return st;
}

static void a_command_line_in_all_its_forms(void **state)
{
    struct settings s = defaults();
    char left[512];

    (void)state;
    assert_ok(command_line(&s, "serve --count=5 --name a=b --fast word --rate=1e3 --mode quick -1",
                           left));
    assert_string_equal(left, "serve;word;-1;");
    assert_int_equal(s.count, 5);
    assert_string_equal(s.name, "a=b");
    assert_true(s.fast);
    assert_true(s.rate == 1000);
    assert_int_equal(s.mode, 2);
}

static void booleans_may_stand_alone(void **state)
{
    struct settings s = defaults();
    char left[512];

    (void)state;
    assert_ok(command_line(&s, "--fast 0", left)); // the word is not its value
    assert_true(s.fast);
    assert_string_equal(left, "0;");
    assert_ok(command_line(&s, "--fast=false", left));
    assert_false(s.fast);
    assert_fails(command_line(&s, "--count", left), ST_INVAL, "'count' needs a value");
    assert_fails(command_line(&s, "--config", left), ST_INVAL, "'config' needs a value");
    assert_fails(command_line(&s, "--speed=1", left), ST_INVAL, "unknown option 'speed'");
    assert_fails(command_line(&s, "--fast=2", left), ST_INVAL, "'fast'");
    assert_fails(command_line(&s, "--", left), ST_INVAL, "unknown option ''");
}

static void a_file_counts_where_it_stands(void **state)
{
    char path[] = "/tmp/simstream_config_XXXXXX", line[128], left[512];
    const char *text = "{\"count\": 9, \"rate\": 9}\n";
    struct settings s = defaults();
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(line, sizeof line, "--count=1 --config=%s --rate=3", path);
    assert_ok(command_line(&s, line, left));
    assert_int_equal(s.count, 9); // the file comes later
    assert_true(s.rate == 3);     // the file comes before
    unlink(path);
    assert_fails(command_line(&s, line, left), ST_INVAL, path);
}

static void required_options_are_asked_for(void **state)
{
    struct settings s = defaults();

    (void)state;
    assert_fails(opts_check_required(table, &s), ST_INVAL, "'--must' is required");
    assert_ok(opts_set(table, &s, "must", "here"));
    assert_ok(opts_check_required(table, &s));
}

static void help_names_every_option_once(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    (void)state;
    opts_help(table, out);
    fclose(out);
    assert_non_null(strstr(text, "--count=N"));
    assert_non_null(strstr(text, "how many [32]\n"));
    assert_non_null(strstr(text, "hurry\n"));
    assert_non_null(strstr(text, "--mode=slow|medium|quick"));
    assert_non_null(strstr(text, "has to be given (required)\n"));
    for (const struct opt *o = table; o->name; o++) {
        char key[32];

        snprintf(key, sizeof key, "--%s", o->name);
        assert_non_null(strstr(text, key));
        assert_null(strstr(strstr(text, key) + 1, key));
    }
    free(text);
}

static void a_dump_read_back_gives_the_same(void **state)
{
    struct settings s = defaults(), t;
    char text[2048];

    (void)state;
    s.count = 999;
    s.rate = INFINITY;
    s.fast = true;
    snprintf(s.name, sizeof s.name, "a \"b\" \\ \n");
    s.wait_ns = 1234567891;
    s.range[0] = -INFINITY;
    s.range[1] = 1.0 / 3;
    s.mode = 1;
    assert_ok(opts_dump(table, &s, text, sizeof text));
    t = defaults();
    assert_ok(opts_json(table, &t, text, "dump"));
    assert_memory_equal(&s.count, &t.count, sizeof s.count);
    assert_true(t.rate == s.rate && t.fast && t.wait_ns == s.wait_ns && t.mode == 1);
    assert_string_equal(t.name, s.name);
    assert_true(t.range[0] == s.range[0] && t.range[1] == s.range[1]);
    assert_fails(opts_dump(table, &s, text, 10), ST_INVAL, "buffer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(defaults_fill_every_type),
        leak_test(text_sets_every_type),
        leak_test(times_take_units),
        leak_test(bad_text_is_refused_by_name),
        leak_test(unknown_names_list_what_there_is),
        leak_test(strings_have_a_limit),
        leak_test(json_sets_every_type),
        leak_test(bad_json_names_its_source),
        leak_test(json_that_is_too_deep_or_long_is_refused),
        leak_test(a_command_line_in_all_its_forms),
        leak_test(booleans_may_stand_alone),
        leak_test(a_file_counts_where_it_stands),
        leak_test(required_options_are_asked_for),
        leak_test(help_names_every_option_once),
        leak_test(a_dump_read_back_gives_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
