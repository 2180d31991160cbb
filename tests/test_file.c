#include "tests/testing.h"

#include "common/base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static int make_dir(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/simstream-file-XXXXXX");
    return mkdtemp(dir) ? leak_setup(state) : -1;
}

static int remove_dir(void **state)
{
    char cmd[128];

    snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
    return system(cmd) == 0 ? leak_teardown(state) : -1;
}

static const char *in_dir(const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void assert_holds(const char *path, const char *want)
{
    char got[256] = "";
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, want);
}

static void file_make_dir_makes_parents_and_accepts_what_is_there(void **state)
{
    struct stat st;

    (void)state;
    assert_ok(file_make_dir(in_dir("a/b//c/")));
    assert_int_equal(stat(in_dir("a/b/c"), &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_ok(file_make_dir(in_dir("a/b/c")));
    assert_ok(file_make_dir("/"));
}

static void file_make_dir_names_the_file_in_the_way(void **state)
{
    (void)state;
    assert_ok(file_write_atomic(in_dir("plain"), "x", 1));
    assert_fails(file_make_dir(in_dir("plain")), ST_IO, "a file has this name");
    assert_fails(file_make_dir(in_dir("plain/below")), ST_IO, "/plain");
    assert_fails(file_make_dir(""), ST_INVAL, "expected 1..");
}

static void file_write_atomic_replaces_the_whole_file(void **state)
{
    (void)state;
    assert_false(file_exists(in_dir("f")));
    assert_ok(file_write_atomic(in_dir("f"), "long text", 9));
    assert_ok(file_write_atomic(in_dir("f"), "short", 5));
    assert_true(file_exists(in_dir("f")));
    assert_holds(in_dir("f"), "short");
    assert_false(file_exists(in_dir("f.tmp")));
}

static void file_write_atomic_keeps_the_old_file_when_the_disk_is_full(void **state)
{
    (void)state;
    assert_ok(file_write_atomic(in_dir("f"), "old", 3));
    assert_int_equal(symlink("/dev/full", in_dir("f.tmp")), 0);
    assert_fails(file_write_atomic(in_dir("f"), "new", 3), ST_IO, "/f.tmp': No space left");
    assert_holds(in_dir("f"), "old");
    assert_false(file_exists(in_dir("f.tmp")));
    assert_fails(file_write_atomic(in_dir("no/such/f"), "x", 1), ST_IO, "/no/such/f");
}

static void file_append_takes_back_half_a_write(void **state)
{
    struct rlimit old, low;
    int fd = open(in_dir("lines"), O_WRONLY | O_CREAT | O_APPEND, 0600);

    (void)state;
    assert_true(fd >= 0);
    assert_ok(file_append(fd, "lines", "first\n", 6));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    low = (struct rlimit){.rlim_cur = 9, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
    assert_fails(file_append(fd, "lines", "second\n", 7), ST_IO, "cannot write 'lines': File too");
    setrlimit(RLIMIT_FSIZE, &old);
    assert_holds(in_dir("lines"), "first\n");
    assert_ok(file_append(fd, "lines", "third\n", 6));
    assert_holds(in_dir("lines"), "first\nthird\n");
    close(fd);
}

#define dir_test(fn) cmocka_unit_test_setup_teardown(fn, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        dir_test(file_make_dir_makes_parents_and_accepts_what_is_there),
        dir_test(file_make_dir_names_the_file_in_the_way),
        dir_test(file_write_atomic_replaces_the_whole_file),
        dir_test(file_write_atomic_keeps_the_old_file_when_the_disk_is_full),
        dir_test(file_append_takes_back_half_a_write),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
