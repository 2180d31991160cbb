// status.h - one status type for every fallible function, and the text of the last failure.
//
// A function that can fail returns `enum status`; ST_OK is 0, results go through pointers and are
// untouched on failure. The codes say what the caller does next, the text says what happened.
//
// Threads: the last error is kept per thread; hand it over by value with the item that failed.
#ifndef COMMON_BASE_STATUS_H
#define COMMON_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#define NODISCARD __attribute__((warn_unused_result))

enum status {
    ST_OK = 0,
    ST_AGAIN,   // nothing there yet, ask again; not an error, no text
    ST_TIMEOUT, // the time allowed has passed; not an error, no text
    ST_CLOSED,  // the other side has ended: stop
    ST_INVAL,   // bad argument, option or file content: fix the input
    ST_PROTO,   // the peer broke the protocol: reject it
    ST_IO,      // the system refused (file, socket, thread): report
    ST_NOMEM,   // out of memory
    ST_ENGINE,  // the physics engine reported an error: end the episode
    ST_MISSING, // a file, library or device is absent: say what to install
};

struct error {
    enum status code;
    int sys; // errno or the library's own code, 0 if none
    const char *file;
    int line;
    char text[512];
};

// The last failure of the calling thread. Never NULL; code is ST_OK before the first failure.
const struct error *error_last(void);

// Record a failure; use the macros. `sys` is an errno or 0.
void error_set(enum status code, int sys, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

// Make `err` the calling thread's last error (a failure that came from another thread); its code.
enum status error_adopt(const struct error *err);

// Put "what: " before the text of the calling thread's last error; returns its code.
enum status error_prefix(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// Short name of a code, such as "timeout". Never NULL.
const char *status_name(enum status code);

// Comma expressions, so that the compiler knows which code comes out.
#define FAIL(code, ...)          (error_set((code), 0, __FILE__, __LINE__, __VA_ARGS__), (code))
#define FAIL_SYS(code, sys, ...) (error_set((code), (sys), __FILE__, __LINE__, __VA_ARGS__), (code))
#define TRY(expr)                     \
    do {                              \
        enum status try_st_ = (expr); \
        if (try_st_ != ST_OK)         \
            return try_st_;           \
    } while (0)

// Log the message and a backtrace, then abort. For bugs only.
_Noreturn void panic(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
