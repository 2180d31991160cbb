#include "common/base/json.h"

#include "common/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_init(struct json *j)
{
    memset(j, 0, sizeof *j);
}

void json_fini(struct json *j)
{
    mem_free(j->buf);
    json_init(j);
}

const char *json_text(const struct json *j)
{
    if (j->failed)
        return NULL;
    return j->buf ? j->buf : "";
}

static void put(struct json *j, const char *text, size_t n)
{
    if (j->failed)
        return;
    if (j->len + n + 1 > j->cap) {
        size_t cap = (j->len + n + 1) * 2;
        char *buf = mem_resize(j->buf, cap, 1);

        if (!buf) {
            j->failed = true;
            return;
        }
        j->buf = buf;
        j->cap = cap;
    }
    memcpy(j->buf + j->len, text, n);
    j->len += n;
    j->buf[j->len] = '\0';
}

static void put_string(struct json *j, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    char esc[8];

    put(j, "\"", 1);
    for (; *p; p++) {
        if (*p == '"' || *p == '\\') {
            esc[0] = '\\';
            esc[1] = (char)*p;
            put(j, esc, 2);
        } else if (*p < 0x20) {
            snprintf(esc, sizeof esc, "\\u%04x", *p);
            put(j, esc, 6);
        } else {
            put(j, (const char *)p, 1);
        }
    }
    put(j, "\"", 1);
}

static void start(struct json *j, const char *key)
{
    if (j->comma)
        put(j, ", ", 2);
    j->comma = true;
    if (key) {
        put_string(j, key);
        put(j, ": ", 2);
    }
}

void json_open(struct json *j, const char *key, char bracket)
{
    start(j, key);
    put(j, &bracket, 1);
    j->comma = false;
}

void json_close(struct json *j, char bracket)
{
    put(j, &bracket, 1);
    j->comma = true;
}

void json_str(struct json *j, const char *key, const char *value)
{
    start(j, key);
    put_string(j, value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    char text[32];

    start(j, key);
    put(j, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)value));
}

void json_real(struct json *j, const char *key, double value)
{
    char text[40];
    int digits;

    start(j, key);
    if (!isfinite(value)) {
        put(j, "null", 4);
        return;
    }
    for (digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    put(j, text, strlen(text));
}

void json_bool(struct json *j, const char *key, bool value)
{
    start(j, key);
    put(j, value ? "true" : "false", value ? 4 : 5);
}

void json_raw(struct json *j, const char *key, const char *json_value)
{
    start(j, key);
    put(j, json_value, strlen(json_value));
}
