// log_testing.h - the lines that were logged during a test. Include it in one file of a program.
#ifndef TESTS_LOG_TESTING_H
#define TESTS_LOG_TESTING_H

#include "common/base/log.h"

#include <stdio.h>
#include <string.h>

static char log_text[8192];

static inline void keep_log(enum log_level level, const char *line, void *arg)
{
    size_t n = strlen(log_text);

    (void)level;
    (void)arg;
    snprintf(log_text + n, sizeof log_text - n, "%s\n", line);
}

// Keep what is logged from here on, and nothing of before.
static inline void log_capture(void)
{
    log_text[0] = '\0';
    log_set_sink(keep_log, NULL);
}

#endif
