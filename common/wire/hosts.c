#include "common/wire/hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define ITEM_MAX 4096 // characters of an item with its brackets

// Does the text end with a colon and digits?
static bool has_port(const char *text)
{
    const char *colon = strrchr(text, ':');

    return colon && colon[1] && colon[1 + strspn(colon + 1, "0123456789")] == '\0';
}

static enum status add(struct hosts *out, const char *text)
{
    char url[2 * HOSTS_URL_MAX];
    int i;

    if (strstr(text, "://"))
        snprintf(url, sizeof url, "%s", text);
    else if (has_port(text))
        snprintf(url, sizeof url, "tcp://%s", text);
    else
        snprintf(url, sizeof url, "tcp://%s:%d", text, HOSTS_DEFAULT_PORT);
    if (strlen(url) >= HOSTS_URL_MAX)
        return FAIL(ST_INVAL, "an address of %zu characters, at most %d are possible", strlen(url),
                    HOSTS_URL_MAX - 1);
    if (out->n == HOSTS_MAX)
        return FAIL(ST_INVAL, "more than %d addresses", HOSTS_MAX);
    for (i = 0; i < out->n; i++)
        if (strcmp(out->url[i], url) == 0)
            return FAIL(ST_INVAL, "address %s stands twice", url);
    memcpy(out->url[out->n++], url, strlen(url) + 1);
    return ST_OK;
}

// Digits at *at as a number; *width counts them.
static enum status number(const char **at, const char *end, long *value, int *width)
{
    *value = 0;
    for (*width = 0; *at < end && isdigit((unsigned char)**at) && *width < 9; ++*at, ++*width)
        *value = *value * 10 + (**at - '0');
    if (*width == 0 || (*at < end && isdigit((unsigned char)**at)))
        return FAIL(ST_INVAL, "a number of 1 to 9 digits expected at '%.*s'", (int)(end - *at),
                    *at);
    return ST_OK;
}

static enum status expand(struct hosts *out, const char *head, const char *rest);

// The addresses of one item of a bracket, "7" or "01-04"; `rest` follows the bracket.
static enum status expand_range(struct hosts *out, const char *head, const char *item,
                                const char *end, const char *rest)
{
    char longer[HOSTS_URL_MAX];
    long first, last, i;
    int width, ignored;

    TRY(number(&item, end, &first, &width));
    last = first;
    if (item < end && *item == '-') {
        item++;
        TRY(number(&item, end, &last, &ignored));
    }
    if (item != end)
        return FAIL(ST_INVAL, "',' or ']' expected at '%.*s'", (int)(end - item), item);
    if (last < first || last - first >= HOSTS_MAX)
        return FAIL(ST_INVAL, "a range from %ld to %ld, expected 1 to %d numbers", first, last,
                    HOSTS_MAX);
    for (i = first; i <= last; i++) {
        if (snprintf(longer, sizeof longer, "%s%0*ld", head, width, i) >= (int)sizeof longer)
            return FAIL(ST_INVAL, "an address is too long: %.40s...", head);
        TRY(expand(out, longer, rest));
    }
    return ST_OK;
}

// All addresses that begin with `head` and go on as `rest` says.
static enum status expand(struct hosts *out, const char *head, const char *rest)
{
    const char *open = strchr(rest, '['), *close = open ? strchr(open, ']') : NULL, *item, *end;
    char longer[HOSTS_URL_MAX];
    bool literal;
    size_t n;

    if (open && !close)
        return FAIL(ST_INVAL, "']' is missing in '%s'", rest);
    literal = open && memchr(open, ':', (size_t)(close - open));
    n = !open ? strlen(rest) : (size_t)(literal ? close + 1 - rest : open - rest);
    if (snprintf(longer, sizeof longer, "%s%.*s", head, (int)n, rest) >= (int)sizeof longer)
        return FAIL(ST_INVAL, "an address is too long: %.40s...", head);
    if (!open)
        return add(out, longer);
    if (literal)
        return expand(out, longer, close + 1);
    for (item = open + 1; item <= close; item = end + 1) {
        for (end = item; end < close && *end != ','; end++)
            ;
        TRY(expand_range(out, longer, item, end, close + 1));
    }
    return ST_OK;
}

enum status hosts_expand(struct hosts *out, const char *list)
{
    char one[ITEM_MAX];
    const char *end;
    size_t n;
    int depth;

    out->n = 0;
    for (;; list = end + 1) {
        for (depth = 0, end = list; *end && (depth > 0 || *end != ','); end++)
            depth += *end == '[' ? 1 : *end == ']' ? -1 : 0;
        list += strspn(list, " ");
        for (n = end > list ? (size_t)(end - list) : 0; n > 0 && list[n - 1] == ' '; n--)
            ;
        if (n == 0)
            return FAIL(ST_INVAL, "an empty address in a list");
        if (n >= sizeof one)
            return FAIL(ST_INVAL, "an item of %zu characters, at most %zu are possible", n,
                        sizeof one - 1);
        memcpy(one, list, n);
        one[n] = '\0';
        TRY(expand(out, "", one));
        if (!*end)
            return ST_OK;
    }
}
