// log.h - one line a message to stderr: time, level, module, text; or the same as a JSON object.
//
// Threads: any. Results never go through here; they belong to stdout.
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_line(enum log_level level, const char *module, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Messages above `level` are dropped. The default is LOG_INFO.
void log_set_level(enum log_level level);

// Lines as JSON objects {"time", "level", "module", "text"}; the default is plain text.
void log_set_json(bool on);
bool log_is_json(void);

// Level of a name (error, warn, info, debug); false if it is none of them.
bool log_level_parse(const char *name, enum log_level *out);

// Send lines to `sink` instead of stderr; NULL restores stderr. For tests and progress lines.
typedef void (*log_sink_fn)(enum log_level level, const char *line, void *arg);
void log_set_sink(log_sink_fn sink, void *arg);

// Around fork(): no other thread holds the log meanwhile, and the child writes to stderr.
void log_before_fork(void);
void log_after_fork(bool child);

#define log_error(module, ...) log_line(LOG_ERROR, (module), __VA_ARGS__)
#define log_warn(module, ...)  log_line(LOG_WARN, (module), __VA_ARGS__)
#define log_info(module, ...)  log_line(LOG_INFO, (module), __VA_ARGS__)
#define log_debug(module, ...) log_line(LOG_DEBUG, (module), __VA_ARGS__)

#endif
