#include "scenes/libero/xml.h"

#include "common/base/file.h"
#include "common/base/mem.h"

#include <expat.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES (64 << 10)
#define DEPTH_MAX   200

struct xml_block {
    struct xml_block *next;
    size_t used, size;
    _Alignas(16) char bytes[];
};

// Where allocations go when there is no memory: the document is marked as failed, and its maker
// looks at the mark once at the end instead of after every attribute.
static _Thread_local union {
    struct xml_node node;
    struct xml_attr attr;
} waste;

void xml_init(struct xml_doc *doc)
{
    memset(doc, 0, sizeof *doc);
}

void xml_fini(struct xml_doc *doc)
{
    while (doc->blocks) {
        struct xml_block *next = doc->blocks->next;

        mem_free(doc->blocks);
        doc->blocks = next;
    }
}

static void *arena_alloc(struct xml_doc *doc, size_t bytes)
{
    struct xml_block *b = doc->blocks;
    size_t need = (bytes + 15) & ~(size_t)15;

    if (!b || b->size - b->used < need) {
        size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;

        b = mem_alloc(1, sizeof *b + size);
        if (!b) {
            doc->failed = true;
            return NULL;
        }
        b->size = size;
        b->next = doc->blocks;
        doc->blocks = b;
    }
    b->used += need;
    return b->bytes + b->used - need;
}

const char *xml_strdup(struct xml_doc *doc, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = arena_alloc(doc, n);

    if (!copy)
        return "";
    memcpy(copy, text, n);
    return copy;
}

struct xml_node *xml_new(struct xml_doc *doc, const char *tag)
{
    struct xml_node *node = arena_alloc(doc, sizeof *node);

    if (!node) {
        memset(&waste, 0, sizeof waste);
        node = &waste.node;
    }
    node->tag = xml_strdup(doc, tag);
    return node;
}

const char *xml_get(const struct xml_node *node, const char *key)
{
    const struct xml_attr *a;

    for (a = node->attrs; a; a = a->next)
        if (strcmp(a->key, key) == 0)
            return a->value;
    return NULL;
}

void xml_set(struct xml_doc *doc, struct xml_node *node, const char *key, const char *value)
{
    struct xml_attr **p = &node->attrs;

    while (*p && strcmp((*p)->key, key) != 0)
        p = &(*p)->next;
    if (!*p) {
        struct xml_attr *a = arena_alloc(doc, sizeof *a);

        if (!a)
            return;
        a->key = xml_strdup(doc, key);
        *p = a;
    }
    (*p)->value = xml_strdup(doc, value);
}

void xml_unset(struct xml_node *node, const char *key)
{
    struct xml_attr **p = &node->attrs;

    while (*p && strcmp((*p)->key, key) != 0)
        p = &(*p)->next;
    if (*p)
        *p = (*p)->next;
}

void xml_set_reals(struct xml_doc *doc, struct xml_node *node, const char *key, const double *x,
                   int n)
{
    char text[512];
    int i, used = 0;

    for (i = 0; i < n && used < (int)sizeof text - 32; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%.17g", i ? " " : "", x[i]);
    xml_set(doc, node, key, text);
}

void xml_remove(struct xml_node *node)
{
    struct xml_node *parent = node->parent, *c, *before = NULL;

    if (!parent)
        return;
    for (c = parent->first; c != node; c = c->next)
        before = c;
    if (before)
        before->next = node->next;
    else
        parent->first = node->next;
    if (parent->last == node)
        parent->last = before;
    node->parent = node->next = NULL;
}

void xml_append(struct xml_node *parent, struct xml_node *child)
{
    if (child == &waste.node || parent == &waste.node)
        return;
    xml_remove(child);
    child->parent = parent;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
}

static bool is(const struct xml_node *node, const char *tag, const char *name)
{
    const char *have;

    if (strcmp(node->tag, tag) != 0)
        return false;
    if (!name)
        return true;
    have = xml_get(node, "name");
    return have && strcmp(have, name) == 0;
}

struct xml_node *xml_child(const struct xml_node *node, const char *tag, const char *name)
{
    struct xml_node *c;

    for (c = node->first; c; c = c->next)
        if (is(c, tag, name))
            return c;
    return NULL;
}

struct xml_node *xml_walk(const struct xml_node *top, struct xml_node *node)
{
    if (node->first)
        return node->first;
    while (node != top && !node->next)
        node = node->parent;
    return node == top ? NULL : node->next;
}

struct xml_node *xml_find(struct xml_node *node, const char *tag, const char *name)
{
    struct xml_node *n;

    for (n = node; n; n = xml_walk(node, n))
        if (n != node && is(n, tag, name))
            return n;
    return NULL;
}

struct xml_node *xml_copy(struct xml_doc *doc, const struct xml_node *node)
{
    struct xml_node *copy = xml_new(doc, node->tag), *c;
    const struct xml_attr *a;

    for (a = node->attrs; a; a = a->next)
        xml_set(doc, copy, a->key, a->value);
    for (c = node->first; c; c = c->next)
        xml_append(copy, xml_copy(doc, c));
    return copy;
}

// ------------------------------------------------------------------ reading

struct load {
    struct xml_doc *doc;
    struct xml_node *root, *open;
    int depth;
    XML_Parser parser;
};

static void XMLCALL on_start(void *user, const char *tag, const char **attrs)
{
    struct load *l = user;
    struct xml_node *node;

    if (++l->depth > DEPTH_MAX) {
        XML_StopParser(l->parser, XML_FALSE);
        return;
    }
    node = xml_new(l->doc, tag);
    for (; attrs[0]; attrs += 2)
        xml_set(l->doc, node, attrs[0], attrs[1]);
    if (l->open)
        xml_append(l->open, node);
    else
        l->root = node;
    l->open = node;
}

static void XMLCALL on_end(void *user, const char *tag)
{
    struct load *l = user;

    (void)tag;
    l->depth--;
    l->open = l->open->parent;
}

enum status xml_parse(struct xml_doc *doc, const char *text, size_t size, const char *what,
                      struct xml_node **root)
{
    struct load l = {.doc = doc, .parser = XML_ParserCreate(NULL)};
    enum status st;

    if (!l.parser)
        return FAIL(ST_NOMEM, "no memory for an XML parser");
    XML_SetUserData(l.parser, &l);
    XML_SetElementHandler(l.parser, on_start, on_end);
    if (size > INT_MAX)
        st = FAIL(ST_INVAL, "%s: %zu bytes are too many", what, size);
    else if (XML_Parse(l.parser, text, (int)size, 1) == XML_STATUS_OK)
        st = doc->failed ? ST_NOMEM : ST_OK;
    else
        st = FAIL(ST_INVAL, "%s:%lu:%lu: %s", what,
                  (unsigned long)XML_GetCurrentLineNumber(l.parser),
                  (unsigned long)XML_GetCurrentColumnNumber(l.parser) + 1,
                  l.depth > DEPTH_MAX ? "elements are nested too deeply"
                                      : XML_ErrorString(XML_GetErrorCode(l.parser)));
    XML_ParserFree(l.parser);
    *root = l.root;
    return st;
}

enum status xml_load(struct xml_doc *doc, const char *path, struct xml_node **root)
{
    char *text;
    size_t size;
    enum status st;

    TRY(file_read(path, &text, &size));
    st = xml_parse(doc, text, size, path, root);
    mem_free(text);
    return st;
}

// ------------------------------------------------------------------ writing

struct out {
    char *buf; // NULL: only count
    size_t n;
};

static void put(struct out *o, const char *text)
{
    size_t n = strlen(text);

    if (o->buf)
        memcpy(o->buf + o->n, text, n);
    o->n += n;
}

static void put_value(struct out *o, const char *text)
{
    char one[2] = "";

    for (; *text; text++) {
        one[0] = *text;
        put(o, *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '"' ? "&quot;" : one);
    }
}

static void put_node(struct out *o, const struct xml_node *node)
{
    const struct xml_attr *a;
    const struct xml_node *c;

    put(o, "<");
    put(o, node->tag);
    for (a = node->attrs; a; a = a->next) {
        put(o, " ");
        put(o, a->key);
        put(o, "=\"");
        put_value(o, a->value);
        put(o, "\"");
    }
    if (!node->first) {
        put(o, "/>\n");
        return;
    }
    put(o, ">\n");
    for (c = node->first; c; c = c->next)
        put_node(o, c);
    put(o, "</");
    put(o, node->tag);
    put(o, ">\n");
}

const char *xml_text(struct xml_doc *doc, const struct xml_node *root)
{
    struct out o = {0};

    put_node(&o, root);
    o.buf = arena_alloc(doc, o.n + 1);
    if (!o.buf)
        return NULL;
    o.n = 0;
    put_node(&o, root);
    o.buf[o.n] = '\0';
    return o.buf;
}
