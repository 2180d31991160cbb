#include "cli/kwargs.h"

#include <string.h>

#define BLANKS " \t\r\n"

enum status kwargs_add(char *kwargs, const char *member)
{
    char rest[OPT_STR_MAX];
    const char *p = kwargs + strspn(kwargs, BLANKS), *q;

    snprintf(rest, sizeof rest, "%s", *p ? p : "{}");
    if (rest[0] != '{')
        return ST_OK; // no object: the task's reader says so
    q = rest + 1 + strspn(rest + 1, BLANKS);
    if (snprintf(kwargs, OPT_STR_MAX, "{%s%s%s", member, *q == '}' ? "" : ", ", q) >= OPT_STR_MAX)
        return FAIL(ST_INVAL, "--kwargs is too long");
    return ST_OK;
}
