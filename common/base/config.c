#include "common/base/config.h"

#include "common/base/json.h"
#include "common/base/mem.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#define CONFIG_BYTES_MAX (1 << 20)

static pthread_mutex_t parse_mtx = PTHREAD_MUTEX_INITIALIZER;

static cJSON *parse(const char *text, const char **end)
{
    cJSON *root;

    pthread_mutex_lock(&parse_mtx);
    root = cJSON_ParseWithOpts(text, end, 1);
    pthread_mutex_unlock(&parse_mtx);
    return root;
}

struct cJSON *config_parse(const char *text)
{
    const char *end;

    return parse(text, &end);
}

enum status config_check_object(const char *text, const char *what)
{
    cJSON *root = config_parse(text);
    bool fine = cJSON_IsObject(root);

    cJSON_Delete(root);
    return fine ? ST_OK : FAIL(ST_INVAL, "%s: expected a JSON object, not '%.80s'", what, text);
}

static const struct opt *find(const struct opt *table, const char *name, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && strncmp(table->name, name, n) == 0)
            return table;
    return NULL;
}

static void *field(const struct opt *o, void *obj)
{
    return (char *)obj + o->offset;
}

static enum status check_range(const struct opt *o, double x)
{
    if (!(x >= o->low && x <= o->high))
        return FAIL(ST_INVAL, "option '%s' is %.10g, expected %.10g to %.10g", o->name, x, o->low,
                    o->high);
    return ST_OK;
}

// Parse one number; the rest of the text after it goes to *end.
static enum status parse_real(const struct opt *o, const char *text, double *out, const char **end)
{
    char *stop;

    *out = strtod(text, &stop);
    if (stop == text || isnan(*out))
        return FAIL(ST_INVAL, "option '%s' is '%s', expected a number", o->name, text);
    *end = stop;
    return ST_OK;
}

static enum status whole(const struct opt *o, const char *text, const char *end)
{
    if (*end != '\0')
        return FAIL(ST_INVAL, "option '%s' is '%s', expected a number", o->name, text);
    return ST_OK;
}

static enum status set_int(const struct opt *o, void *obj, const char *text)
{
    double x;
    const char *end;

    TRY(parse_real(o, text, &x, &end));
    TRY(whole(o, text, end));
    if (x != floor(x) || fabs(x) > 9007199254740992.0)
        return FAIL(ST_INVAL, "option '%s' is '%s', expected a whole number", o->name, text);
    TRY(check_range(o, x));
    *(int64_t *)field(o, obj) = (int64_t)x;
    return ST_OK;
}

static enum status set_real(const struct opt *o, void *obj, const char *text)
{
    double x;
    const char *end;

    TRY(parse_real(o, text, &x, &end));
    TRY(whole(o, text, end));
    TRY(check_range(o, x));
    *(double *)field(o, obj) = x;
    return ST_OK;
}

static enum status set_bool(const struct opt *o, void *obj, const char *text)
{
    static const char *const yes[] = {"1", "true", "on", "yes"};
    static const char *const no[] = {"0", "false", "off", "no"};
    size_t i;

    for (i = 0; i < 4; i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *(bool *)field(o, obj) = strcmp(text, yes[i]) == 0;
            return ST_OK;
        }
    }
    return FAIL(ST_INVAL, "option '%s' is '%s', expected true or false", o->name, text);
}

static enum status set_str(const struct opt *o, void *obj, const char *text)
{
    size_t n = strlen(text);

    if (n >= OPT_STR_MAX)
        return FAIL(ST_INVAL, "option '%s' has %zu characters, at most %d allowed", o->name, n,
                    OPT_STR_MAX - 1);
    memcpy(field(o, obj), text, n + 1);
    return ST_OK;
}

static enum status set_time(const struct opt *o, void *obj, const char *text)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    double x;
    const char *end;
    size_t i;

    TRY(parse_real(o, text, &x, &end));
    for (i = 0; i < 4; i++) {
        if (strcmp(end, units[i].unit) == 0) {
            TRY(check_range(o, x * units[i].ns));
            *(int64_t *)field(o, obj) = llround(x * units[i].ns);
            return ST_OK;
        }
    }
    if (x == 0 && *end == '\0') {
        *(int64_t *)field(o, obj) = 0;
        return check_range(o, 0);
    }
    return FAIL(ST_INVAL, "option '%s' is '%s', expected a time such as 2ms (ns, us, ms or s)",
                o->name, text);
}

static enum status set_range(const struct opt *o, void *obj, const char *text)
{
    double low, high;
    const char *end;

    TRY(parse_real(o, text, &low, &end));
    if (*end != ',')
        return FAIL(ST_INVAL, "option '%s' is '%s', expected two numbers: low,high", o->name, text);
    TRY(parse_real(o, end + 1, &high, &end));
    TRY(whole(o, text, end));
    TRY(check_range(o, low));
    TRY(check_range(o, high));
    ((double *)field(o, obj))[0] = low;
    ((double *)field(o, obj))[1] = high;
    return ST_OK;
}

static enum status set_enum(const struct opt *o, void *obj, const char *text)
{
    const char *p = o->choices;
    size_t n = strlen(text);
    int i;

    for (i = 0;; i++) {
        size_t len = strcspn(p, "|");

        if (len == n && strncmp(p, text, n) == 0) {
            *(int *)field(o, obj) = i;
            return ST_OK;
        }
        if (p[len] == '\0')
            return FAIL(ST_INVAL, "option '%s' is '%s', expected one of %s", o->name, text,
                        o->choices);
        p += len + 1;
    }
}

static enum status set_text(const struct opt *o, void *obj, const char *text)
{
    switch (o->type) {
    case OPT_INT:
        return set_int(o, obj, text);
    case OPT_REAL:
        return set_real(o, obj, text);
    case OPT_BOOL:
        return set_bool(o, obj, text);
    case OPT_STR:
        return set_str(o, obj, text);
    case OPT_TIME:
        return set_time(o, obj, text);
    case OPT_RANGE:
        return set_range(o, obj, text);
    case OPT_ENUM:
        return set_enum(o, obj, text);
    }
    return FAIL(ST_INVAL, "option '%s' has no type", o->name);
}

enum status opts_defaults(const struct opt *table, void *obj)
{
    for (; table->name; table++)
        if (table->def)
            TRY(set_text(table, obj, table->def));
    return ST_OK;
}

static enum status unknown(const struct opt *table, const char *name, size_t n)
{
    char all[384] = "";
    size_t used = 0;

    for (; table->name && used < sizeof all; table++)
        used += (size_t)snprintf(all + used, sizeof all - used, " %s", table->name);
    return FAIL(ST_INVAL, "unknown option '%.*s'; there are:%s", (int)n, name, all);
}

enum status opts_set(const struct opt *table, void *obj, const char *name, const char *text)
{
    const struct opt *o = find(table, name, strlen(name));

    if (!o)
        return unknown(table, name, strlen(name));
    return set_text(o, obj, text);
}

// The text of a JSON value as it would be typed; types that do not fit are errors.
static enum status json_to_text(const struct opt *o, const cJSON *v, char *buf, size_t size)
{
    if (cJSON_IsString(v)) {
        if (strlen(v->valuestring) >= size)
            return FAIL(ST_INVAL, "option '%s' is too long", o->name);
        snprintf(buf, size, "%s", v->valuestring);
        if (o->type == OPT_BOOL)
            return FAIL(ST_INVAL, "option '%s' is a string, expected true or false", o->name);
    } else if (cJSON_IsNumber(v) && o->type != OPT_BOOL) {
        snprintf(buf, size, "%.17g", v->valuedouble);
    } else if (cJSON_IsBool(v) && o->type == OPT_BOOL) {
        snprintf(buf, size, "%s", cJSON_IsTrue(v) ? "true" : "false");
    } else if (cJSON_IsArray(v) && o->type == OPT_RANGE && cJSON_GetArraySize(v) == 2) {
        char part[2][40];
        int i;

        for (i = 0; i < 2; i++) {
            const cJSON *x = cJSON_GetArrayItem(v, i);

            if (cJSON_IsNumber(x))
                snprintf(part[i], sizeof part[i], "%.17g", x->valuedouble);
            else if (cJSON_IsString(x))
                snprintf(part[i], sizeof part[i], "%.30s", x->valuestring);
            else
                return FAIL(ST_INVAL, "option '%s' [%d] is not a number", o->name, i);
        }
        snprintf(buf, size, "%s,%s", part[0], part[1]);
    } else {
        return FAIL(ST_INVAL, "option '%s' has a JSON value of the wrong type", o->name);
    }
    return ST_OK;
}

enum status opts_json(const struct opt *table, void *obj, const char *text, const char *what)
{
    enum status st = ST_OK;
    const char *end = NULL;
    cJSON *root;
    const cJSON *v;

    if (strspn(text, " \t\r\n") == strlen(text))
        return ST_OK;
    root = parse(text, &end);
    if (!root || !cJSON_IsObject(root)) {
        long at = end && !root ? (long)(end - text) : 0;

        cJSON_Delete(root);
        return FAIL(ST_INVAL, "%s is not a JSON object (character %ld)", what, at);
    }
    cJSON_ArrayForEach(v, root)
    {
        const struct opt *o = find(table, v->string, strlen(v->string));
        char buf[OPT_STR_MAX];

        st = o ? json_to_text(o, v, buf, sizeof buf) : unknown(table, v->string, strlen(v->string));
        if (st == ST_OK)
            st = set_text(o, obj, buf);
        if (st != ST_OK) {
            st = error_prefix("%s", what);
            break;
        }
    }
    cJSON_Delete(root);
    return st;
}

static enum status apply_file(const struct opt *table, void *obj, const char *path)
{
    FILE *f = fopen(path, "r");
    char *text;
    size_t n;
    enum status st;

    if (!f)
        return FAIL(ST_INVAL, "cannot open configuration file '%s'", path);
    text = mem_alloc(CONFIG_BYTES_MAX + 1, 1);
    if (!text) {
        fclose(f);
        return ST_NOMEM;
    }
    n = fread(text, 1, CONFIG_BYTES_MAX + 1, f);
    if (ferror(f) || n > CONFIG_BYTES_MAX)
        st = FAIL(ST_INVAL, "cannot read configuration file '%s' (at most %d bytes)", path,
                  CONFIG_BYTES_MAX);
    else
        st = opts_json(table, obj, text, path);
    fclose(f);
    mem_free(text);
    return st;
}

enum status opts_argv(const struct opt *table, void *obj, int argc, char **argv, int *n_word)
{
    int i, words = 0;

    for (i = 0; i < argc; i++) {
        const char *arg = argv[i], *value;
        const struct opt *o;
        size_t n;

        if (strncmp(arg, "--", 2) != 0) {
            argv[words++] = argv[i];
            continue;
        }
        arg += 2;
        n = strcspn(arg, "=");
        value = arg[n] == '=' ? arg + n + 1 : NULL;
        o = find(table, arg, n);
        if (!o && !(n == 6 && strncmp(arg, "config", 6) == 0))
            return unknown(table, arg, n);
        if (!value && o && o->type == OPT_BOOL)
            value = "true";
        if (!value) {
            if (i + 1 >= argc)
                return FAIL(ST_INVAL, "option '%.*s' needs a value", (int)n, arg);
            value = argv[++i];
        }
        TRY(o ? set_text(o, obj, value) : apply_file(table, obj, value));
    }
    *n_word = words;
    return ST_OK;
}

enum status opts_check_required(const struct opt *table, const void *obj)
{
    for (; table->name; table++)
        if (!table->def && table->type == OPT_STR && *((const char *)obj + table->offset) == '\0')
            return FAIL(ST_INVAL, "option '--%s' is required: %s", table->name, table->help);
    return ST_OK;
}

void opts_help(const struct opt *table, FILE *out)
{
    static const char *const kinds[] = {"N", "X", "", "TEXT", "TIME", "LOW,HIGH", ""};
    int width = 0;
    const struct opt *o;

    for (o = table; o->name; o++) {
        int n = (int)(strlen(o->name) + strlen(o->choices ? o->choices : kinds[o->type]));

        if (n > width && n <= 40)
            width = n;
    }
    for (o = table; o->name; o++) {
        const char *kind = o->choices ? o->choices : kinds[o->type];
        int pad = width - (int)(strlen(o->name) + strlen(kind));

        fprintf(out, "  --%s%s%s%*s  %s", o->name, *kind ? "=" : " ", kind, pad > 0 ? pad : 0, "",
                o->help);
        if (!o->def)
            fprintf(out, " (required)\n");
        else if (*o->def && o->type != OPT_BOOL)
            fprintf(out, " [%s]\n", o->def);
        else if (o->type == OPT_BOOL && strcmp(o->def, "true") == 0)
            fprintf(out, " [on]\n");
        else
            fprintf(out, "\n");
    }
}

const char *opt_choice_name(const char *choices, int i)
{
    static _Thread_local char name[64];

    for (; i > 0; i--) {
        choices += strcspn(choices, "|");
        if (*choices == '|')
            choices++;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(choices, "|"), choices);
    return name;
}

static void dump_real(struct json *j, const char *key, double x)
{
    if (isinf(x))
        json_str(j, key, x > 0 ? "inf" : "-inf");
    else
        json_real(j, key, x);
}

static void dump_one(struct json *j, const struct opt *o, const void *p)
{
    char text[40];

    switch (o->type) {
    case OPT_INT:
        json_int(j, o->name, *(const int64_t *)p);
        break;
    case OPT_REAL:
        dump_real(j, o->name, *(const double *)p);
        break;
    case OPT_BOOL:
        json_bool(j, o->name, *(const bool *)p);
        break;
    case OPT_STR:
        json_str(j, o->name, p);
        break;
    case OPT_TIME:
        snprintf(text, sizeof text, "%lldns", (long long)*(const int64_t *)p);
        json_str(j, o->name, text);
        break;
    case OPT_RANGE:
        json_open(j, o->name, '[');
        dump_real(j, NULL, ((const double *)p)[0]);
        dump_real(j, NULL, ((const double *)p)[1]);
        json_close(j, ']');
        break;
    case OPT_ENUM:
        json_str(j, o->name, opt_choice_name(o->choices, *(const int *)p));
        break;
    }
}

enum status opts_dump(const struct opt *table, const void *obj, char *buf, size_t size)
{
    struct json j;
    const char *text;
    enum status st = ST_OK;

    json_init(&j);
    json_open(&j, NULL, '{');
    for (; table->name; table++)
        dump_one(&j, table, (const char *)obj + table->offset);
    json_close(&j, '}');
    text = json_text(&j);
    if (!text)
        st = ST_NOMEM;
    else if (strlen(text) >= size)
        st = FAIL(ST_INVAL, "the options take %zu bytes, the buffer has %zu", strlen(text), size);
    else
        snprintf(buf, size, "%s", text);
    json_fini(&j);
    return st;
}
