#include "cli/indices.h"

#include <stdlib.h>

enum status indices_each(const char *text, const char *option, index_fn fn, void *arg)
{
    const char *p = text;
    char *end;

    for (;;) {
        long first = strtol(p, &end, 10), last = first;

        if (end != p && *end == '-') {
            p = end + 1;
            last = strtol(p, &end, 10);
        }
        if (end == p || (*end && *end != ',') || first > last)
            return FAIL(ST_INVAL, "%s: '%s', expected indices such as 0,3,5-7", option, text);
        for (long i = first; i <= last; i++)
            TRY(fn(arg, i));
        if (!*end)
            return ST_OK;
        p = end + 1;
    }
}
