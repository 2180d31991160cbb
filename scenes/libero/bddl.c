#include "scenes/libero/bddl.h"

#include "common/base/file.h"
#include "common/base/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 100000
#define DEPTH_MAX 64

// A word or a list, in document order. Lists know where their elements end, so that walking a list
// is skipping from element to element: no pointers, one array.
struct item {
    char *word;    // NULL: a list
    int length;    // of the word
    int end;       // index after the last item of the list; of a word its own index + 1
    int line, col; // where it starts
};

struct parse {
    const char *what;
    char *text; // lower-cased copy; words point into it
    struct item *items;
    int n;
    struct bddl *out;
};

static enum status fail(const struct parse *p, int line, int col, const char *why, const char *word)
{
    return FAIL(ST_INVAL, "%s:%d:%d: %s%s%s%s", p->what, line, col, why, word ? " '" : "",
                word ? word : "", word ? "'" : "");
}

static enum status fail_item(const struct parse *p, int i, const char *why)
{
    const struct item *it = &p->items[i];

    return fail(p, it->line, it->col, why, it->word);
}

// ------------------------------------------------------------------ words and lists

struct scan {
    int line, col, depth;
    int open[DEPTH_MAX]; // items of the lists that are open
};

static enum status push(struct parse *p, char *word, int length, const struct scan *s)
{
    struct item *it = &p->items[p->n];

    if (p->n == WORDS_MAX)
        return fail(p, s->line, s->col, "the file has too many words", NULL);
    it->word = word;
    it->length = length;
    it->line = s->line;
    it->col = s->col;
    it->end = ++p->n;
    return ST_OK;
}

static enum status parenthesis(struct parse *p, struct scan *s, char c)
{
    if (c == '(') {
        if (s->depth == DEPTH_MAX)
            return fail(p, s->line, s->col, "lists are nested too deeply", NULL);
        s->open[s->depth++] = p->n;
        return push(p, NULL, 0, s);
    }
    if (s->depth == 0)
        return fail(p, s->line, s->col, "')' without '('", NULL);
    p->items[s->open[--s->depth]].end = p->n;
    return ST_OK;
}

// Characters at `t` that belong together: a comment or a word; otherwise one.
static int span(const char *t, const char *end)
{
    const char *s = t + 1;

    if (*t == ';')
        while (s < end && *s != '\n')
            s++;
    else if (!isspace((unsigned char)*t) && *t != '(' && *t != ')')
        while (s < end && *s && !isspace((unsigned char)*s) && !strchr("();", *s))
            s++;
    return (int)(s - t);
}

static enum status scan_text(struct parse *p, size_t size)
{
    struct scan s = {.line = 1, .col = 1};
    char *t = p->text, *end = t + size;
    int i, n;

    for (; t < end; t += n, s.col += n) {
        n = span(t, end);
        if (*t == '\n') {
            s.line++;
            s.col = 0;
        } else if (*t == '\0') {
            return fail(p, s.line, s.col, "the file has a byte 0, expected text", NULL);
        } else if (*t == '(' || *t == ')') {
            TRY(parenthesis(p, &s, *t));
        } else if (*t != ';' && !isspace((unsigned char)*t)) {
            TRY(push(p, t, n, &s));
        }
    }
    for (i = 0; i < p->n; i++)
        if (p->items[i].word)
            p->items[i].word[p->items[i].length] = '\0';
    if (s.depth > 0)
        return fail_item(p, s.open[s.depth - 1], "this list is never closed");
    if (p->n == 0)
        return fail(p, 1, 1, "the file is empty, expected (define ...)", NULL);
    return ST_OK;
}

// ------------------------------------------------------------------ helpers over lists

static bool is_list(const struct parse *p, int i)
{
    return !p->items[i].word;
}

// First element of list i; elements follow at items[k].end until items[i].end.
#define EACH(p, i, k) for (k = (i) + 1; k < (p)->items[i].end; k = (p)->items[k].end)

static int count(const struct parse *p, int list)
{
    int k, n = 0;

    EACH(p, list, k)
    n++;
    return n;
}

// The word that a list starts with, such as ":regions"; "" for others.
static const char *head(const struct parse *p, int list)
{
    if (!is_list(p, list) || p->items[list].end == list + 1 || is_list(p, list + 1))
        return "";
    return p->items[list + 1].word;
}

static enum status copy_name(const struct parse *p, int i, char *out, size_t size)
{
    if (is_list(p, i))
        return fail_item(p, i, "expected a word, found a list");
    if (strlen(p->items[i].word) >= size)
        return fail_item(p, i, "the name is too long:");
    memcpy(out, p->items[i].word, strlen(p->items[i].word) + 1);
    return ST_OK;
}

// A number, or the arithmetic upstream evaluates: [-]pi[/N], N/M.
static enum status number(const struct parse *p, int i, double *out)
{
    const char *text = p->items[i].word, *s = text;
    double sign = 1, value, divisor = 1;
    char *end;

    if (!text)
        return fail_item(p, i, "expected a number, found a list");
    if (*s == '-' && strncmp(s + 1, "pi", 2) == 0) {
        sign = -1;
        s++;
    }
    if (strncmp(s, "pi", 2) == 0) {
        value = 3.141592653589793;
        end = (char *)s + 2;
    } else {
        value = strtod(s, &end);
        if (end == s)
            return fail_item(p, i, "expected a number, found");
    }
    if (*end == '/') {
        s = end + 1;
        divisor = strtod(s, &end);
        if (end == s)
            return fail_item(p, i, "expected a number, found");
    }
    value = sign * value / divisor;
    if (*end != '\0' || !isfinite(value))
        return fail_item(p, i, "expected a number, found");
    *out = value;
    return ST_OK;
}

// Grow an array by one zeroed element; NULL without memory.
static void *grow(void *array_of_pointer, int *n, size_t size)
{
    void **array = array_of_pointer;
    char *bigger = mem_resize(*array, (size_t)*n + 1, size);

    if (!bigger)
        return NULL;
    *array = bigger;
    return bigger + (size_t)(*n)++ * size;
}

// ------------------------------------------------------------------ sections

static enum status add_object(struct parse *p, int i, const char *type, struct bddl_object **array,
                              int *n)
{
    struct bddl_object *o;
    int k;

    for (k = 0; k < *n; k++)
        if (strcmp((*array)[k].name, p->items[i].word) == 0)
            return fail_item(p, i, "the name is used twice:");
    o = grow(array, n, sizeof *o);
    if (!o)
        return ST_NOMEM;
    memcpy(o->type, type, strlen(type) + 1);
    return copy_name(p, i, o->name, sizeof o->name);
}

// a b - type c - type2
static enum status typed_list(struct parse *p, int list, struct bddl_object **array, int *n)
{
    int k, first = list + 2, j;
    char type[BDDL_NAME_MAX];

    for (k = list + 2; k < p->items[list].end; k = p->items[k].end) {
        if (is_list(p, k))
            return fail_item(p, k, "expected NAME... - TYPE, found a list");
        if (strcmp(p->items[k].word, "-") != 0)
            continue;
        if (k == first || p->items[k].end >= p->items[list].end)
            return fail_item(p, k, "expected NAME... - TYPE around");
        TRY(copy_name(p, k + 1, type, sizeof type));
        for (j = 0; j < *n; j++)
            if (strcmp((*array)[j].type, type) == 0)
                return fail_item(p, k + 1, "the type is listed twice:");
        for (j = first; j < k; j++)
            TRY(add_object(p, j, type, array, n));
        k++;
        first = k + 1;
    }
    if (first != p->items[list].end)
        return fail_item(p, first, "a type is missing after");
    return ST_OK;
}

// :ranges and :yaw_rotation wrap their lists once more: (:ranges ((x0 y0 x1 y1)))
static enum status wrapped_numbers(struct parse *p, int list, double *out, int n)
{
    int outer = list + 2, inner, k, i = 0;

    if (count(p, list) != 2 || !is_list(p, outer) || count(p, outer) < 1 || !is_list(p, outer + 1))
        return fail_item(p, list, "expected a list of lists of numbers");
    inner = outer + 1;
    if (count(p, outer) != 1 || count(p, inner) != n)
        return fail_item(p, inner,
                         n == 4 ? "expected one rectangle (x0 y0 x1 y1)" : "expected (low high)");
    EACH(p, inner, k)
    TRY(number(p, k, &out[i++]));
    return ST_OK;
}

static enum status region(struct parse *p, int list)
{
    struct bddl *b = p->out;
    struct bddl_region *r = grow(&b->regions, &b->n_region, sizeof *r);
    char name[BDDL_NAME_MAX];
    int k;

    if (!r)
        return ST_NOMEM;
    if (!is_list(p, list) || count(p, list) < 1)
        return fail_item(p, list, "expected (NAME (:target T) ...)");
    TRY(copy_name(p, list + 1, name, sizeof name));
    for (k = p->items[list + 1].end; k < p->items[list].end; k = p->items[k].end) {
        const char *what = head(p, k);

        if (strcmp(what, ":target") == 0 && count(p, k) == 2)
            TRY(copy_name(p, k + 2, r->target, sizeof r->target));
        else if (strcmp(what, ":ranges") == 0) {
            TRY(wrapped_numbers(p, k, r->range, 4));
            r->has_range = true;
        } else if (strcmp(what, ":yaw_rotation") == 0)
            TRY(wrapped_numbers(p, k, r->yaw, 2));
        else if (strcmp(what, ":rgba") != 0)
            return fail_item(p, k, "expected (:target T), (:ranges ...) or (:yaw_rotation ...)");
    }
    if (!r->target[0])
        return fail_item(p, list, "the region has no (:target T)");
    if (strlen(r->target) + 1 + strlen(name) >= sizeof r->key)
        return fail_item(p, list, "the name of the region is too long");
    snprintf(r->key, sizeof r->key, "%s_%s", r->target, name);
    return ST_OK;
}

static enum status atom(struct parse *p, int list, struct bddl_atom **array, int *n, bool negated)
{
    struct bddl_atom *a;
    int k;

    if (!*head(p, list))
        return fail_item(p, list, "expected (PREDICATE NAME...)");
    if (count(p, list) - 1 > BDDL_ARG_MAX)
        return fail_item(p, list + 1, "too many arguments of predicate");
    a = grow(array, n, sizeof *a);
    if (!a)
        return ST_NOMEM;
    a->negated = negated;
    a->line = p->items[list].line;
    TRY(copy_name(p, list + 1, a->predicate, sizeof a->predicate));
    for (k = list + 2; k < p->items[list].end; k = p->items[k].end)
        TRY(copy_name(p, k, a->arg[a->n_arg++], sizeof a->arg[0]));
    return ST_OK;
}

// A conjunction of atoms and their negations; other connectives are refused.
static enum status goal(struct parse *p, int list, bool negated)
{
    const char *what = head(p, list);
    int k;

    if (strcmp(what, "and") == 0 && !negated) {
        for (k = list + 2; k < p->items[list].end; k = p->items[k].end)
            TRY(goal(p, k, false));
        return ST_OK;
    }
    if (strcmp(what, "not") == 0 && count(p, list) == 2 && is_list(p, list + 2))
        return goal(p, list + 2, !negated);
    if (strcmp(what, "and") == 0 || strcmp(what, "or") == 0 || strcmp(what, "imply") == 0 ||
        strncmp(what, "forall", 6) == 0 || strncmp(what, "exists", 6) == 0 ||
        strncmp(what, "forn", 4) == 0 || strncmp(what, "forpairs", 8) == 0)
        return fail_item(p, list + 1, "a goal is a conjunction of predicates; not supported:");
    return atom(p, list, &p->out->goal, &p->out->n_goal, negated);
}

static enum status language(struct parse *p, int list)
{
    char *out = p->out->language;
    size_t used = 0, n;
    int k;

    for (k = list + 2; k < p->items[list].end; k = p->items[k].end) {
        if (is_list(p, k))
            return fail_item(p, k, "expected words, found a list");
        n = strlen(p->items[k].word);
        if (used + n + 2 > sizeof p->out->language)
            return fail_item(p, k, "the instruction is too long at");
        if (used)
            out[used++] = ' ';
        memcpy(out + used, p->items[k].word, n + 1);
        used += n;
    }
    return ST_OK;
}

static enum status init_atoms(struct parse *p, int list)
{
    int k;

    for (k = list + 2; k < p->items[list].end; k = p->items[k].end)
        TRY(atom(p, k, &p->out->init, &p->out->n_init, false));
    return ST_OK;
}

static enum status regions(struct parse *p, int list)
{
    int k;

    for (k = list + 2; k < p->items[list].end; k = p->items[k].end)
        TRY(region(p, k));
    return ST_OK;
}

static enum status section(struct parse *p, int list)
{
    struct bddl *b = p->out;
    const char *what = head(p, list);

    if (strcmp(what, "problem") == 0 && count(p, list) == 2)
        return copy_name(p, list + 2, b->problem, sizeof b->problem);
    if (strcmp(what, ":language") == 0)
        return language(p, list);
    if (strcmp(what, ":regions") == 0)
        return regions(p, list);
    if (strcmp(what, ":fixtures") == 0)
        return typed_list(p, list, &b->fixtures, &b->n_fixture);
    if (strcmp(what, ":objects") == 0)
        return typed_list(p, list, &b->objects, &b->n_object);
    if (strcmp(what, ":init") == 0)
        return init_atoms(p, list);
    if (strcmp(what, ":goal") == 0 && count(p, list) == 2)
        return goal(p, list + 2, false);
    if (strcmp(what, ":domain") == 0 || strcmp(what, ":obj_of_interest") == 0 ||
        strcmp(what, ":scene_properties") == 0 || strcmp(what, ":requirements") == 0)
        return ST_OK;
    return fail_item(p, *what ? list + 1 : list, "unknown or malformed section");
}

static enum status problem(struct parse *p)
{
    int k;

    if (strcmp(head(p, 0), "define") != 0)
        return fail_item(p, 0, "expected (define ...), found");
    if (p->items[0].end != p->n)
        return fail_item(p, p->items[0].end, "after the end of (define ...)");
    for (k = 2; k < p->n; k = p->items[k].end)
        TRY(section(p, k));
    if (!p->out->problem[0])
        return fail_item(p, 0, "the file has no (problem NAME)");
    if (p->out->n_goal == 0)
        return fail_item(p, 0, "the file has no (:goal ...)");
    return ST_OK;
}

enum status bddl_parse(struct bddl *out, const char *text, size_t size, const char *what)
{
    struct parse p = {.what = what, .out = out};
    enum status st = ST_NOMEM;
    size_t i;

    memset(out, 0, sizeof *out);
    p.text = mem_alloc(size + 1, 1);
    p.items = mem_alloc(size < WORDS_MAX ? size + 1 : WORDS_MAX, sizeof p.items[0]);
    if (p.text && p.items) {
        for (i = 0; i < size; i++)
            p.text[i] = (char)tolower((unsigned char)text[i]);
        st = scan_text(&p, size);
        if (st == ST_OK)
            st = problem(&p);
    }
    mem_free(p.text);
    mem_free(p.items);
    if (st != ST_OK)
        bddl_fini(out);
    return st;
}

enum status bddl_load(struct bddl *out, const char *path)
{
    char *text;
    size_t size;
    enum status st;

    TRY(file_read(path, &text, &size));
    st = bddl_parse(out, text, size, path);
    mem_free(text);
    return st;
}

void bddl_fini(struct bddl *b)
{
    mem_free(b->objects);
    mem_free(b->fixtures);
    mem_free(b->regions);
    mem_free(b->init);
    mem_free(b->goal);
    memset(b, 0, sizeof *b);
}

const struct bddl_region *bddl_region_find(const struct bddl *b, const char *key)
{
    int i;

    for (i = 0; i < b->n_region; i++)
        if (strcmp(b->regions[i].key, key) == 0)
            return &b->regions[i];
    return NULL;
}

enum status bddl_refuse(const struct bddl_atom *atom, const char *why)
{
    return FAIL(ST_INVAL, "line %d: (%s %s%s%s): %s", atom->line, atom->predicate, atom->arg[0],
                atom->n_arg > 1 ? " " : "", atom->n_arg > 1 ? atom->arg[1] : "", why);
}
