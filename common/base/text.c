#include "common/base/text.h"

#include "common/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void text_init(struct text *t)
{
    memset(t, 0, sizeof *t);
}

void text_fini(struct text *t)
{
    mem_free(t->buf);
    text_init(t);
}

static bool room(struct text *t, size_t n)
{
    size_t cap = (t->len + n + 1) * 2;
    char *buf;

    if (t->failed || t->len + n + 1 <= t->cap)
        return !t->failed;
    buf = mem_resize(t->buf, cap, 1);
    if (!buf) {
        t->failed = true;
        return false;
    }
    t->buf = buf;
    t->cap = cap;
    return true;
}

void text_bytes(struct text *t, const void *bytes, size_t n)
{
    if (!room(t, n))
        return;
    memcpy(t->buf + t->len, bytes, n);
    t->len += n;
    t->buf[t->len] = '\0';
}

void text_add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !room(t, (size_t)n))
        return;
    va_start(ap, fmt);
    t->len += (size_t)vsnprintf(t->buf + t->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
}

const char *text_get(const struct text *t)
{
    if (t->failed)
        return NULL;
    return t->buf ? t->buf : "";
}
