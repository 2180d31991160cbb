// progress.h - one line on stderr that is redrawn while a command works: only when stderr is a
// terminal (else one plain line every 30 s), never on stdout.
#ifndef COMMON_BASE_PROGRESS_H
#define COMMON_BASE_PROGRESS_H

#include <stdbool.h>

// Draw `text` (printf style) at most ten times a second; `force` draws now.
void progress_draw(bool force, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Finish the line, so that what follows starts on a new one.
void progress_end(void);

// "1h02m", "3m20s", "12s" into buf (at least 16 bytes).
const char *progress_time(char *buf, double seconds);

#endif
