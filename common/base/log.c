#include "common/base/log.h"

#include "common/base/thread.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {"error", "warn", "info", "debug"};
static atomic_int max_level = LOG_INFO;
static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;
static log_sink_fn sink_fn; // guarded by mtx
static void *sink_arg;      // guarded by mtx

void log_set_level(enum log_level level)
{
    atomic_store(&max_level, (int)level);
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

void log_line(enum log_level level, const char *module, const char *fmt, ...)
{
    char text[1024], line[1200];
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
    snprintf(line, sizeof line, "%02d:%02d:%02d.%03d %-5s %s: %s", tm.tm_hour, tm.tm_min, tm.tm_sec,
             (int)((now - (double)sec) * 1e3), names[level], module, text);
    pthread_mutex_lock(&mtx);
    if (sink_fn)
        sink_fn(level, line, sink_arg);
    else
        fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&mtx);
}
