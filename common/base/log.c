#include "common/base/log.h"

#include "common/base/thread.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {"error", "warn", "info", "debug"};
static atomic_int max_level = LOG_INFO;
static atomic_bool json;
static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;
static log_sink_fn sink_fn; // guarded by mtx
static void *sink_arg;      // guarded by mtx

void log_set_level(enum log_level level)
{
    atomic_store(&max_level, (int)level);
}

void log_set_json(bool on)
{
    atomic_store(&json, on);
}

bool log_is_json(void)
{
    return atomic_load(&json);
}

bool log_level_parse(const char *name, enum log_level *out)
{
    size_t i;

    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

void log_set_sink(log_sink_fn sink, void *arg)
{
    pthread_mutex_lock(&mtx);
    sink_fn = sink;
    sink_arg = arg;
    pthread_mutex_unlock(&mtx);
}

// Append text inside quotes; what does not fit is left out. This works without the heap.
static size_t put_escaped(char *line, size_t size, size_t at, const char *text)
{
    for (; *text && at + 8 < size; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            at += (size_t)snprintf(line + at, size - at, "\\%c", c);
        else if (c < 0x20)
            at += (size_t)snprintf(line + at, size - at, "\\u%04x", c);
        else
            line[at++] = (char)c;
    }
    line[at] = '\0';
    return at;
}

static void format_text(char *line, size_t size, const struct tm *tm, int ms, const char *level,
                        const char *module, const char *text)
{
    snprintf(line, size, "%02d:%02d:%02d.%03d %-5s %s: %s", tm->tm_hour, tm->tm_min, tm->tm_sec, ms,
             level, module, text);
}

static void format_json(char *line, size_t size, const struct tm *tm, int ms, const char *level,
                        const char *module, const char *text)
{
    size_t at = (size_t)snprintf(line, size,
                                 "{\"time\": \"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\", "
                                 "\"level\": \"%s\", \"module\": \"%s\", \"text\": \"",
                                 tm->tm_year + 1900, tm->tm_mon + 1, tm->tm_mday, tm->tm_hour,
                                 tm->tm_min, tm->tm_sec, ms, level, module);

    at = put_escaped(line, size - 2, at, text);
    memcpy(line + at, "\"}", 3);
}

void log_line(enum log_level level, const char *module, const char *fmt, ...)
{
    char text[1024], line[2048];
    double now = clock_wall_s();
    time_t sec = (time_t)now;
    struct tm tm;
    va_list ap;

    if ((int)level > atomic_load(&max_level))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gmtime_r(&sec, &tm);
    (atomic_load(&json) ? format_json : format_text)(
        line, sizeof line, &tm, (int)((now - (double)sec) * 1e3), names[level], module, text);
    pthread_mutex_lock(&mtx);
    if (sink_fn)
        sink_fn(level, line, sink_arg);
    else
        fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&mtx);
}

void log_before_fork(void)
{
    pthread_mutex_lock(&mtx);
}

void log_after_fork(bool child)
{
    if (child)
        sink_fn = NULL; // it belongs to threads that are not here
    pthread_mutex_unlock(&mtx);
}
