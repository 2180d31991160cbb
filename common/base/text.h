// text.h - text that grows; formatted pieces are appended.
//
// Ownership: text_init makes an empty one, text_fini frees it. Errors are sticky: after a failed
// allocation every call is a no-op and text_get returns NULL. Threads: one at a time.
#ifndef COMMON_BASE_TEXT_H
#define COMMON_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *buf;
    size_t len, cap;
    bool failed;
};

void text_init(struct text *t);
void text_fini(struct text *t);

void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_bytes(struct text *t, const void *bytes, size_t n);

// The text so far, terminated; NULL after a failed allocation. Valid until the next call.
const char *text_get(const struct text *t);

#endif
