#include "cli/vary.h"

#include "common/base/file.h"
#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

enum status vary_read(char **out, const char *value)
{
    size_t n;

    *out = NULL;
    if (!value[0])
        return ST_OK;
    if (value[strspn(value, " \t\r\n")] == '[') {
        *out = mem_strdup(value);
        return *out ? ST_OK : ST_NOMEM;
    }
    return file_read(value, out, &n) == ST_OK ? ST_OK : error_prefix("--randomize");
}

enum status vary_note(char *buf, size_t size, const char *options, const char *plan)
{
    int n;

    if (plan)
        n = snprintf(buf, size, "%.*s, \"randomize_plan\": %s}", (int)strlen(options) - 1, options,
                     plan);
    else
        n = snprintf(buf, size, "%s", options);
    if (n < 0 || (size_t)n >= size)
        return FAIL(ST_INVAL, "--randomize: the plan is too long to be kept with the results");
    return ST_OK;
}
