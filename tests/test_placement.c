// Which processors the workers run on.
#define _GNU_SOURCE
#include "tests/testing.h"

#include "envserver/placement.h"

#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int allowed[CPU_SETSIZE], n_allowed;

static void find_allowed(void)
{
    cpu_set_t mask;
    int i;

    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    for (n_allowed = i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &mask))
            allowed[n_allowed++] = i;
}

static void nothing_is_pinned_unless_asked(void **state)
{
    struct placement p;

    (void)state;
    assert_ok(placement_make(&p, NULL, 3, NULL));
    assert_true(p.cpu[0] == -1 && p.cpu[2] == -1 && p.n_node == 1);
    assert_ok(placement_make(&p, "none", 3, NULL));
    assert_true(p.cpu[0] == -1 && p.n_node == 1);
    assert_ok(placement_pin(&p, 0));
}

static void workers_take_the_processors_in_turn(void **state)
{
    struct placement p;
    char list[32];
    int i;

    (void)state;
    find_allowed();
    assert_ok(placement_make(&p, "auto", 2 * n_allowed, NULL));
    for (i = 0; i < 2 * n_allowed; i++)
        assert_int_equal(p.cpu[i], allowed[i % n_allowed]);
    snprintf(list, sizeof list, "%d-%d,%d", allowed[0], allowed[0], allowed[n_allowed - 1]);
    assert_ok(placement_make(&p, list, 3, NULL));
    assert_true(p.cpu[0] == allowed[0] && p.cpu[1] == allowed[n_allowed - 1] &&
                p.cpu[2] == allowed[0]);
    assert_ok(placement_pin(&p, 1));
    assert_int_equal(sched_getcpu(), allowed[n_allowed - 1]);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

// Two memory nodes whose numbers have a gap.
static void nodes_are_read_from_sys(void **state)
{
    char dir[] = "placement-XXXXXX", path[64], text[32];
    struct placement p;
    int i;

    (void)state;
    find_allowed();
    assert_non_null(mkdtemp(dir));
    for (i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/node%d", dir, 5 - 3 * i);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/node%d/cpulist", dir, 5 - 3 * i);
        snprintf(text, sizeof text, "%d%s\n", allowed[i % n_allowed], i ? ",700-710" : "");
        put(path, text);
    }
    assert_ok(placement_make(&p, "auto", n_allowed, dir));
    assert_int_equal(p.node[0], 0);
    if (n_allowed == 2)
        assert_true(p.node[1] == 1 && p.n_node == 2);
    for (i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/node%d/cpulist", dir, 5 - 3 * i);
        unlink(path);
        snprintf(path, sizeof path, "%s/node%d", dir, 5 - 3 * i);
        rmdir(path);
    }
    rmdir(dir);
}

static void nonsense_is_refused(void **state)
{
    static const char *const bad[] = {"1-", "-1", "a", "3-1", "0,,1", "0 1", "99999"};
    struct placement p;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(placement_make(&p, bad[i], 2, NULL), ST_INVAL, "expected none, auto or");
    assert_fails(placement_make(&p, "1023", 2, NULL), ST_INVAL, "processor 1023 is not one of");
    assert_fails(placement_make(&p, "", 0, NULL), ST_INVAL, "0 workers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(nothing_is_pinned_unless_asked),
        leak_test(workers_take_the_processors_in_turn),
        leak_test(nodes_are_read_from_sys),
        leak_test(nonsense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
