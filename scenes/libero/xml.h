// xml.h - XML files as trees that can be edited and written again; the home of expat.
//
// A document is an arena: nodes and strings live until xml_fini. Text between elements is dropped,
// since MJCF has none. Order of elements and attributes is kept.
//
// Threads: a document belongs to one thread.
#ifndef SCENES_LIBERO_XML_H
#define SCENES_LIBERO_XML_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct xml_attr {
    const char *key, *value;
    struct xml_attr *next;
};

struct xml_node {
    const char *tag;
    struct xml_attr *attrs;
    struct xml_node *parent, *first, *last, *next;
};

struct xml_doc {
    struct xml_block *blocks;
    bool failed; // an allocation failed; what was made since is incomplete
};

void xml_init(struct xml_doc *doc);
void xml_fini(struct xml_doc *doc);

// Parse `size` bytes into `doc`; `what` names them in errors, which say line and column: ST_INVAL.
NODISCARD enum status xml_parse(struct xml_doc *doc, const char *text, size_t size,
                                const char *what, struct xml_node **root);

// Read and parse a file; also ST_MISSING and ST_IO.
NODISCARD enum status xml_load(struct xml_doc *doc, const char *path, struct xml_node **root);

// The calls below never return NULL nodes; a lack of memory shows in doc->failed.
struct xml_node *xml_new(struct xml_doc *doc, const char *tag);
struct xml_node *xml_copy(struct xml_doc *doc, const struct xml_node *node); // with its subtree
const char *xml_strdup(struct xml_doc *doc, const char *text);

// NULL if the element has no such attribute.
const char *xml_get(const struct xml_node *node, const char *key);
void xml_set(struct xml_doc *doc, struct xml_node *node, const char *key, const char *value);
void xml_unset(struct xml_node *node, const char *key);
// Numbers with enough digits to read the same doubles again.
void xml_set_reals(struct xml_doc *doc, struct xml_node *node, const char *key, const double *x,
                   int n);

// Detach `child` from its parent, if it has one, and make it the last child of `parent`.
void xml_append(struct xml_node *parent, struct xml_node *child);
void xml_remove(struct xml_node *node);

// First child with this tag and, unless `name` is NULL, this name attribute; NULL if none.
struct xml_node *xml_child(const struct xml_node *node, const char *tag, const char *name);
// The same among all descendants, in document order.
struct xml_node *xml_find(struct xml_node *node, const char *tag, const char *name);
// Next node in document order below `top`; NULL at the end.
struct xml_node *xml_walk(const struct xml_node *top, struct xml_node *node);

// The tree as text, owned by `doc`; NULL without memory.
const char *xml_text(struct xml_doc *doc, const struct xml_node *root);

#endif
