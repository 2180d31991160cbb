#include "scenes/libero/tables.h"

#include "common/base/file.h"
#include "common/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    const char *path;
    int line;
};

static enum status bad(const struct place *at, const char *word, const char *expected)
{
    return FAIL(ST_INVAL, "%s:%d: '%.80s', expected %s", at->path, at->line, word, expected);
}

// `n` numbers with `separator` between them, the text's end behind; false if they are not that.
static bool numbers(const char *text, char separator, double *out, int n)
{
    char *end;
    int i;

    for (i = 0; i < n; i++) {
        out[i] = strtod(text, &end);
        if (end == text || !isfinite(out[i]) || *end != (i + 1 < n ? separator : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}

static enum status copy(const struct place *at, char *out, size_t size, const char *text)
{
    if (!*text || strlen(text) >= size)
        return bad(at, text, "a shorter text");
    memcpy(out, text, strlen(text) + 1);
    return ST_OK;
}

// ------------------------------------------------------------------ categories

static enum status rotation(struct category *c, const struct place *at, const char *value)
{
    int i = c->n_rotate;

    if (i == 3 || value[0] < 'x' || value[0] > 'z' || value[1] != ':' ||
        !numbers(value + 2, ':', c->rotate[i], 2))
        return bad(at, value, "AXIS:LOW:HIGH, at most three times");
    c->axis[i] = value[0] - 'x';
    c->n_rotate++;
    return ST_OK;
}

static enum status rule(struct joint_rule *r, const struct place *at, const char *value)
{
    static const char *const ops[] = {"lt:", "le:", "gt:", "ge:"};
    int i;

    for (i = 0; i < 4; i++)
        if (strncmp(value, ops[i], 3) == 0 && numbers(value + 3, '\0', &r->value, 1)) {
            r->has = true;
            r->less = i < 2;
            r->strict = i % 2 == 0;
            return ST_OK;
        }
    return bad(at, value, "OP:NUMBER with OP lt, le, gt or ge");
}

static enum status category_word(void *record, const struct place *at, const char *key,
                                 const char *value)
{
    static const char *const states[] = {"open", "close", "turnon", "turnoff"};
    struct category *c = record;
    int i;

    if (strcmp(key, "rotate") == 0)
        return rotation(c, at, value);
    for (i = 0; i < N_JOINT_STATE; i++) {
        size_t n = strlen(states[i]);

        if (strncmp(key, states[i], n) != 0)
            continue;
        if (key[n] == '\0')
            return rule(&c->rules[i], at, value);
        if (strcmp(key + n, "_init") == 0) {
            c->rules[i].has_init = true;
            return numbers(value, ':', c->rules[i].init, 2) ? ST_OK : bad(at, value, "LOW:HIGH");
        }
    }
    return bad(at, key, "rotate, open, close, turnon, turnoff or one of these with _init");
}

// ------------------------------------------------------------------ problem classes

static enum status camera(struct problem_class *p, const struct place *at, char *value)
{
    struct arena_camera *c = &p->cameras[p->n_camera];
    char *pos = strchr(value, ':'), *quat = pos ? strchr(pos + 1, ':') : NULL;

    if (!quat || p->n_camera == TABLES_CAMERA_MAX)
        return bad(at, value, "NAME:X,Y,Z:W,X,Y,Z, at most six times");
    *pos = *quat = '\0';
    if (!numbers(pos + 1, ',', c->pos, 3) || !numbers(quat + 1, ',', c->quat, 4))
        return bad(at, value, "a camera with three numbers and four numbers");
    p->n_camera++;
    return copy(at, c->name, sizeof c->name, value);
}

static enum status text_of_problem(struct problem_class *p, const struct place *at, const char *key,
                                   const char *value, bool *known)
{
    const struct {
        const char *key;
        char *out;
        size_t size;
    } texts[] = {
        {"arena", p->arena, sizeof p->arena}, {"workspace", p->workspace, sizeof p->workspace},
        {"token", p->token, sizeof p->token}, {"zone_body", p->zone_body, sizeof p->zone_body},
        {"floor", p->floor, sizeof p->floor}, {"wall", p->wall, sizeof p->wall},
    };
    size_t i;

    for (i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(key, texts[i].key) == 0) {
            *known = true;
            return copy(at, texts[i].out, texts[i].size, value);
        }
    return ST_OK;
}

static enum status problem_word(void *record, const struct place *at, const char *key, char *value)
{
    struct problem_class *p = record;
    const struct {
        const char *key;
        double *out;
        int n;
    } reals[] = {
        {"offset", p->offset, 3}, {"fixture_z", &p->fixture_z, 1}, {"zone_z", &p->zone_z, 1},
        {"base", p->base, 3},     {"table", p->friction, 3},
    };
    const struct {
        const char *key, *no, *yes;
        bool *out;
    } flags[] = {
        {"robot", "ground", "mounted", &p->mounted},
        {"zone_offset", "0", "1", &p->zone_offset},
        {"shrink", "0", "1", &p->shrink},
    };
    bool known = false;
    size_t i;

    TRY(text_of_problem(p, at, key, value, &known));
    if (known)
        return ST_OK;
    if (strcmp(key, "camera") == 0)
        return camera(p, at, value);
    p->sets_table = p->sets_table || strcmp(key, "table") == 0;
    for (i = 0; i < sizeof reals / sizeof reals[0]; i++)
        if (strcmp(key, reals[i].key) == 0)
            return numbers(value, ',', reals[i].out, reals[i].n)
                       ? ST_OK
                       : bad(at, value, "numbers with commas between them");
    for (i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (strcmp(key, flags[i].key) == 0) {
            *flags[i].out = strcmp(value, flags[i].yes) == 0;
            return *flags[i].out || strcmp(value, flags[i].no) == 0 ? ST_OK
                                                                    : bad(at, value, flags[i].yes);
        }
    return bad(at, key, "a key of a problem record");
}

// ------------------------------------------------------------------ lines

// The place of record `name`: the one of that name, emptied, or a new one. NULL without memory.
static void *place_of(void *array_of_pointer, int *n, size_t size, const char *name)
{
    char **array = array_of_pointer, *bigger;
    int i;

    for (i = 0; i < *n; i++)
        if (strcmp(*array + (size_t)i * size, name) == 0) {
            memset(*array + (size_t)i * size, 0, size);
            return *array + (size_t)i * size;
        }
    bigger = mem_resize(*array, (size_t)*n + 1, size);
    if (!bigger)
        return NULL;
    *array = bigger;
    return bigger + (size_t)(*n)++ * size;
}

static char *next_word(char **rest)
{
    char *word;

    while (**rest == ' ' || **rest == '\t' || **rest == '\r')
        (*rest)++;
    if (!**rest || **rest == '#')
        return NULL;
    word = *rest;
    while (**rest && !strchr(" \t\r", **rest))
        (*rest)++;
    if (**rest)
        *(*rest)++ = '\0';
    return word;
}

static enum status check_problem(const struct problem_class *p, const struct place *at)
{
    if (p->arena[0] && p->workspace[0] && p->token[0] && p->zone_body[0])
        return ST_OK;
    return bad(at, p->name, "the keys arena, workspace, token and zone_body");
}

static enum status line_of(struct tables *t, const struct place *at, char *text)
{
    char *kind = next_word(&text), *name = kind ? next_word(&text) : NULL, *word, *value;
    bool is_category = kind && strcmp(kind, "category") == 0;
    struct category *c = NULL;
    struct problem_class *p = NULL;

    if (!kind)
        return ST_OK;
    if (!is_category && strcmp(kind, "problem") != 0)
        return bad(at, kind, "'category' or 'problem'");
    if (!name || strlen(name) >= TABLES_NAME_MAX)
        return bad(at, kind, "a name behind it");
    if (is_category) {
        c = place_of(&t->categories, &t->n_category, sizeof *c, name);
        word = next_word(&text);
        if (!c)
            return ST_NOMEM;
        memcpy(c->name, name, strlen(name) + 1);
        TRY(copy(at, c->file, sizeof c->file, word ? word : ""));
    } else {
        p = place_of(&t->problems, &t->n_problem, sizeof *p, name);
        if (!p)
            return ST_NOMEM;
        memcpy(p->name, name, strlen(name) + 1);
    }
    while ((word = next_word(&text))) {
        value = strchr(word, '=');
        if (!value)
            return bad(at, word, "KEY=VALUE");
        *value++ = '\0';
        TRY(is_category ? category_word(c, at, word, value) : problem_word(p, at, word, value));
    }
    return p ? check_problem(p, at) : ST_OK;
}

enum status tables_parse(struct tables *t, char *text, const char *what)
{
    struct place at = {what, 1};
    char *line, *end;

    for (line = text; line; line = end, at.line++) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        TRY(line_of(t, &at, line));
    }
    return ST_OK;
}

enum status tables_load(struct tables *t, const char *path)
{
    char *text;
    enum status st;
    size_t n;

    TRY(file_read(path, &text, &n));
    st = strlen(text) == n ? tables_parse(t, text, path)
                           : FAIL(ST_INVAL, "%s: byte 0 in the file, expected text", path);
    mem_free(text);
    return st;
}

void tables_fini(struct tables *t)
{
    mem_free(t->categories);
    mem_free(t->problems);
    memset(t, 0, sizeof *t);
}

const struct category *tables_category(const struct tables *t, const char *name)
{
    int i;

    for (i = 0; i < t->n_category; i++)
        if (strcmp(t->categories[i].name, name) == 0)
            return &t->categories[i];
    return NULL;
}

const struct problem_class *tables_problem(const struct tables *t, const char *name, bool *exact)
{
    const struct problem_class *best = NULL;
    size_t n, longest = 0;
    int i;

    for (i = 0; i < t->n_problem; i++) {
        n = strlen(t->problems[i].name);
        if (n > longest && strncmp(name, t->problems[i].name, n) == 0 &&
            (name[n] == '\0' || name[n] == '_')) {
            best = &t->problems[i];
            longest = n;
        }
    }
    *exact = best && name[longest] == '\0';
    return best;
}
