// What the process uses: the figures follow what it does.
#include "tests/testing.h"

#include "common/base/usage.h"

#include <fcntl.h>
#include <unistd.h>

static void an_open_file_counts(void **state)
{
    double before = usage_open_files();
    int fd = open("/dev/null", O_RDONLY);

    (void)state;
    assert_true(before >= 3 && fd >= 0);
    assert_close(usage_open_files(), before + 1, 0, 0);
    close(fd);
    assert_close(usage_open_files(), before, 0, 0);
}

static void touched_memory_counts(void **state)
{
    const size_t bytes = 64 << 20;
    double before = usage_resident_bytes();
    char *p = mem_alloc(bytes, 1);

    (void)state;
    assert_non_null(p);
    memset(p, 1, bytes);
    assert_true(usage_resident_bytes() - before > 0.9 * (double)bytes);
    mem_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(an_open_file_counts),
        leak_test(touched_memory_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
