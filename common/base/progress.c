// While a line is drawn on a terminal, log lines go through a sink of this file, which clears the
// line first; the next draw brings it back. Lock order: the log's lock, then mtx.
#include "common/base/progress.h"

#include "common/base/log.h"
#include "common/base/thread.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_NS (100 * NS_PER_MS)
#define PLAIN_NS  (30 * NS_PER_S)
#define CLEAR     "\r\033[K"

static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;
static int64_t last_ns; // guarded by mtx; 0 = nothing drawn since the start or progress_end
static bool on_screen;  // guarded by mtx; the terminal's last line is ours

static void log_above(enum log_level level, const char *line, void *arg)
{
    (void)level;
    (void)arg;
    pthread_mutex_lock(&mtx);
    fprintf(stderr, "%s%s\n", on_screen ? CLEAR : "", line);
    on_screen = false;
    pthread_mutex_unlock(&mtx);
}

// May a line be drawn now? The first plain line comes only after its interval has passed once.
static bool due(bool force, bool terminal, int64_t now)
{
    bool yes =
        force || (last_ns == 0 ? terminal : now - last_ns >= (terminal ? REDRAW_NS : PLAIN_NS));

    if (yes || last_ns == 0)
        last_ns = now;
    return yes;
}

static void draw_on_terminal(char *text)
{
    struct winsize size;

    // a line that wraps could not be redrawn
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 &&
        strlen(text) >= size.ws_col)
        text[size.ws_col - 1] = '\0';
    fprintf(stderr, CLEAR "%s", text);
    fflush(stderr);
    on_screen = true;
}

void progress_draw(bool force, const char *fmt, ...)
{
    bool terminal = isatty(STDERR_FILENO) == 1, logged = !terminal && log_is_json();
    char text[512];
    va_list ap;
    bool first;

    pthread_mutex_lock(&mtx);
    first = last_ns == 0;
    if (!due(force, terminal, clock_now_ns())) {
        pthread_mutex_unlock(&mtx);
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (terminal)
        draw_on_terminal(text);
    else if (!logged)
        fprintf(stderr, "%s\n", text);
    pthread_mutex_unlock(&mtx);
    if (logged) // who reads JSON reads nothing else
        log_info("progress", "%s", text);
    if (first && terminal)
        log_set_sink(log_above, NULL);
}

void progress_end(void)
{
    bool ours;

    pthread_mutex_lock(&mtx);
    ours = last_ns != 0 && isatty(STDERR_FILENO) == 1;
    if (on_screen)
        fprintf(stderr, "\n");
    on_screen = false;
    last_ns = 0;
    pthread_mutex_unlock(&mtx);
    if (ours)
        log_set_sink(NULL, NULL);
}

const char *progress_time(char *buf, double seconds)
{
    int s = seconds >= 0 && seconds < 1e9 ? (int)(seconds + 0.5) : -1;

    if (s < 0)
        snprintf(buf, 16, "?");
    else if (s >= 3600)
        snprintf(buf, 16, "%dh%02um", s / 3600, (unsigned)(s / 60) % 60);
    else if (s >= 60)
        snprintf(buf, 16, "%dm%02us", s / 60, (unsigned)s % 60);
    else
        snprintf(buf, 16, "%ds", s);
    return buf;
}
