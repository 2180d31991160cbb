// json.h - writes one JSON value into a growing buffer; commas and escapes are taken care of.
//
// Ownership: json_init makes an empty writer, json_fini frees it. Errors are sticky: after a failed
// allocation every call is a no-op and json_text returns NULL. Threads: one at a time.
#ifndef COMMON_BASE_JSON_H
#define COMMON_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    char *buf;
    size_t len, cap;
    bool comma, failed;
};

void json_init(struct json *j);
void json_fini(struct json *j);

// The text so far, terminated; NULL after a failed allocation. Valid until the next call.
const char *json_text(const struct json *j);

// `key` is NULL inside an array and at the top.
void json_open(struct json *j, const char *key, char bracket); // '{' or '['
void json_close(struct json *j, char bracket);                 // '}' or ']'
void json_str(struct json *j, const char *key, const char *value);
void json_int(struct json *j, const char *key, int64_t value);
void json_real(struct json *j, const char *key, double value); // shortest exact; NaN, inf: null
void json_bool(struct json *j, const char *key, bool value);
void json_raw(struct json *j, const char *key, const char *json_value); // already JSON

#endif
