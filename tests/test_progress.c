#define _GNU_SOURCE // pty
#include "tests/testing.h"

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

// stderr is a pipe or a terminal during a test; `seen` is what came out of it.
static int saved, reader_fd;
static char seen[4096];

static void capture(int in, int out)
{
    reader_fd = in;
    fcntl(in, F_SETFL, O_NONBLOCK);
    fflush(stderr);
    saved = dup(STDERR_FILENO);
    dup2(out, STDERR_FILENO);
    close(out);
}

static void capture_pipe(void)
{
    int fd[2];

    assert_int_equal(pipe(fd), 0);
    capture(fd[0], fd[1]);
}

static void capture_terminal(int columns)
{
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    struct termios raw;
    int in = posix_openpt(O_RDWR | O_NOCTTY), out;

    assert_true(in >= 0);
    assert_int_equal(grantpt(in), 0);
    assert_int_equal(unlockpt(in), 0);
    out = open(ptsname(in), O_RDWR | O_NOCTTY);
    assert_true(out >= 0);
    assert_int_equal(tcgetattr(out, &raw), 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(out, TCSANOW, &raw), 0);
    assert_int_equal(ioctl(out, TIOCSWINSZ, &size), 0);
    capture(in, out);
}

// Read before restoring: a terminal drops what is unread when its last writer goes.
static const char *release(void)
{
    ssize_t n;
    size_t len = 0;

    fflush(stderr);
    while (len < sizeof seen - 1 && (n = read(reader_fd, seen + len, sizeof seen - 1 - len)) > 0)
        len += (size_t)n;
    seen[len] = '\0';
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(reader_fd);
    return seen;
}

static void progress_draws_rarely_when_stderr_is_no_terminal(void **state)
{
    (void)state;
    capture_pipe();
    progress_draw(false, "at once %d", 1);
    progress_draw(false, "too soon %d", 2);
    progress_draw(true, "forced %d", 3);
    progress_end();
    assert_string_equal(release(), "forced 3\n");
}

static void progress_is_json_where_the_log_is(void **state)
{
    const char *text;

    (void)state;
    log_set_json(true);
    capture_pipe();
    progress_draw(true, "forced %d", 3);
    progress_end();
    text = release();
    log_set_json(false);
    assert_int_equal(text[0], '{');
    assert_non_null(strstr(text, "\"module\": \"progress\", \"text\": \"forced 3\"}\n"));
}

static void progress_redraws_one_line_on_a_terminal(void **state)
{
    (void)state;
    capture_terminal(20);
    progress_draw(false, "one");
    progress_draw(true, "longer than the twenty columns");
    progress_end();
    progress_end();
    assert_string_equal(release(), "\r\033[Kone\r\033[Klonger than the twe\n");
}

static void progress_draws_at_most_ten_times_a_second(void **state)
{
    int64_t begin = clock_now_ns();
    int i, n = 0, most;
    const char *p;

    (void)state;
    capture_terminal(80);
    for (i = 0; i < 100; i++)
        progress_draw(false, "line");
    most = 1 + (int)((clock_now_ns() - begin) / (100 * NS_PER_MS));
    progress_end();
    for (p = release(); (p = strstr(p, "line")); p++)
        n++;
    assert_in_range(n, 1, most);
}

static void progress_end_lets_the_next_line_draw_at_once(void **state)
{
    (void)state;
    capture_terminal(80);
    progress_draw(false, "one");
    progress_end();
    progress_draw(false, "two");
    progress_end();
    assert_string_equal(release(), "\r\033[Kone\n\r\033[Ktwo\n");
}

static void progress_line_makes_way_for_a_log_line(void **state)
{
    const char *text;

    (void)state;
    capture_terminal(80);
    progress_draw(false, "working");
    log_warn("test", "a message");
    progress_draw(true, "still");
    progress_end();
    log_warn("test", "afterwards");
    text = release();
    assert_memory_equal(text, "\r\033[Kworking\r\033[K", strlen("\r\033[Kworking\r\033[K"));
    assert_non_null(strstr(text, "test: a message\n\r\033[Kstill\n"));
    assert_non_null(strstr(text, "test: afterwards\n"));
}

static void progress_time_is_short(void **state)
{
    char buf[16];

    (void)state;
    assert_string_equal(progress_time(buf, 0), "0s");
    assert_string_equal(progress_time(buf, 12.4), "12s");
    assert_string_equal(progress_time(buf, 59.6), "1m00s");
    assert_string_equal(progress_time(buf, 200), "3m20s");
    assert_string_equal(progress_time(buf, 3720), "1h02m");
    assert_string_equal(progress_time(buf, 999999999), "277777h46m");
    assert_string_equal(progress_time(buf, -1), "?");
    assert_string_equal(progress_time(buf, NAN), "?");
    assert_string_equal(progress_time(buf, INFINITY), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_test(progress_draws_rarely_when_stderr_is_no_terminal),
        leak_test(progress_is_json_where_the_log_is),
        leak_test(progress_redraws_one_line_on_a_terminal),
        leak_test(progress_draws_at_most_ten_times_a_second),
        leak_test(progress_end_lets_the_next_line_draw_at_once),
        leak_test(progress_line_makes_way_for_a_log_line),
        leak_test(progress_time_is_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
