#include "common/base/status.h"

#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct error last;

const struct error *error_last(void)
{
    return &last;
}

void error_set(enum status code, int sys, const char *file, int line, const char *fmt, ...)
{
    char text[sizeof last.text]; // an argument may be the old text itself
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (sys != 0 && n >= 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": %s", strerror(sys));
    last.code = code;
    last.sys = sys;
    last.file = file;
    last.line = line;
    memcpy(last.text, text, sizeof text);
}

enum status error_adopt(const struct error *err)
{
    last = *err;
    return last.code;
}

enum status error_prefix(const char *fmt, ...)
{
    char text[sizeof last.text];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text)
        return last.code;
    if (snprintf(text + n, sizeof text - (size_t)n, ": %s", last.text) < 0)
        return last.code;
    memcpy(last.text, text, sizeof text);
    return last.code;
}

const char *status_name(enum status code)
{
    static const char *const names[] = {"ok",    "again", "timeout", "closed", "invalid",
                                        "proto", "io",    "nomem",   "engine", "missing"};

    return (size_t)code < sizeof names / sizeof names[0] ? names[code] : "unknown";
}

void panic(const char *fmt, ...)
{
    void *frames[32];
    va_list ap;

    fputs("simstream: bug: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
    abort();
}
